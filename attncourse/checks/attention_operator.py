"""Tasks of the unit ``attention_operator``: from one query to the batched matrix form."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import attention_operator
from attncourse.checks import laws
from attncourse.checks.choices import (
    AVERAGED,
    AXIS,
    NORMALISER,
    SCALE,
    SIMILARITY,
    attend,
    compared,
    draw,
    draw_single,
    normalised,
    only,
    scaled,
    without,
)
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.probe.program import trace

SOFTMAX = (
    "softmax",
    "log_softmax",
    "_log_softmax",
    "special_softmax",
    "special_log_softmax",
    "_softmax",
    "softmin",
    "logsumexp",
    "special_logsumexp",
    "logcumsumexp",
    "cross_entropy",
)


# ---------------------------------------------------------------------------------------
# One query at a time
# ---------------------------------------------------------------------------------------


def _single_query(query: Tensor, key: Tensor, value: Tensor, count: Tensor) -> Tensor:
    # A key that occurs twice is two keys.
    key, value = (rows.repeat_interleave(count, 0) for rows in (key, value))
    return attention_operator.attention(query[None], key, value)[0]


def _single_query_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(counts: list[int], key_dim: int, value_dim: int, note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs = {
            "query": normal(key_dim, dtype=dtype),
            "key": normal(len(counts), key_dim, dtype=dtype),
            "value": normal(len(counts), value_dim, dtype=dtype),
            "count": torch.tensor(counts),
        }
        return Case(inputs, note, **how)

    return [
        case([2, 1, 3], 2, 2),
        case([1, 1, 1, 1, 1], 4, 3, "every key once"),
        case([4, 0, 2], 9, 9, "a key that does not occur"),
        case([5], 4, 2, "a single key"),
        case([1, 1, 1, 1, 1, 1], 3, 5, "double precision", dtype=torch.float64),
        case([2, 3, 1, 1], 8, 3, "keys and values that are not contiguous", contiguous=False),
        case([1, 20, 3, 1], 3, 1, "a key that occurs twenty times"),
    ]


ONE_QUERY = "attention_operator#one-query"
SOFTARGMAX = "attention_operator#softargmax"
WHY_THE_SCALE = "attention_operator#why-the-scale"
TWO_LIMITS = "attention_operator#two-limits"
MATRIX_FORM = "attention_operator#matrix-form"
ROWS_AND_COLUMNS = "attention_operator#rows-and-columns"
BATCHES = "attention_operator#batches"


def _once(normal: Normal) -> dict[str, Tensor]:
    return draw_single(normal) | {"count": torch.ones(4, dtype=torch.long)}


def _several(normal: Normal) -> dict[str, Tensor]:
    return draw_single(normal) | {"count": torch.tensor([1, 3, 1, 2])}


def _written_out(drawn: dict[str, Tensor], normal: Normal) -> dict[str, Tensor]:
    """Every key as often as it occurs."""
    rows = {name: drawn[name].repeat_interleave(drawn["count"], 0) for name in ("key", "value")}
    return rows | {"count": torch.ones(int(drawn["count"].sum()), dtype=torch.long)}


def _one_missing(normal: Normal) -> dict[str, Tensor]:
    return draw_single(normal) | {"count": torch.tensor([1, 2, 1, 0])}


def _without_the_missing(drawn: dict[str, Tensor], normal: Normal) -> dict[str, Tensor]:
    return {name: drawn[name][:3] for name in ("key", "value", "count")}


single_query = Task(
    "single_query",
    _single_query,
    {
        "query": torch.tensor([2.0, 0.0, 0.0, 0.0]),
        "key": torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "value": torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]]),
        "count": torch.tensor([1, 2, 1]),
    },
    _single_query_cases,
    laws=[
        laws.ones_come_back(_several, SOFTARGMAX),
        laws.equal_keys_average(_once, TWO_LIMITS),
        laws.between_the_values(_several, ONE_QUERY),
        laws.stays(
            "a key that occurs three times does the same as three keys that occur once",
            SOFTARGMAX,
            _several,
            _written_out,
        ),
        laws.order_of_keys_is_nothing(_once, ONE_QUERY),
        laws.features_written_twice(_several, WHY_THE_SCALE),
        laws.best_match_takes_all(_several, TWO_LIMITS),
        laws.stays(
            "a key that does not occur could as well not be there",
            SOFTARGMAX,
            _one_missing,
            _without_the_missing,
            when=("with it", "without it"),
        ),
    ],
    refuses=(*SOFTMAX, "logaddexp"),
)


@single_query.made_of(
    counted=wrongs(
        SOFTARGMAX,
        """
        not: how often a key occurs plays no part
            Your function does not feel the counts. Write a key with count 2 as two keys, on paper: what
            happens to the sum below the fraction bar?
        above only: the counts stand above the fraction bar but not below it
            The weights of all keys are to sum to 1. What does the sum below the fraction bar run over, if a
            key occurs twice?
        below only: the counts stand below the fraction bar but not above it
            The weights of all keys are to sum to 1. How much weight have two equal keys together?
        scores: the scores are multiplied by the counts
            A key that occurs twice does not match twice as well. It is there twice: its exponential is
            added up twice.
        at least once: a key that does not occur is counted as if it occurred once
            A count may be 0: then the key is not there. What is 0 times its exponential?
        added: the counts are added to the scores
            Adding to a score multiplies its exponential by e for each 1. How often does the exponential of
            a key with count 2 stand in the sum?
        """,
    ),
    similarity=only(SIMILARITY, "cosine", "distance", "negated", "values"),
    scale=without(SCALE, "num queries", "first dim"),
    normaliser=only(NORMALISER, "none", "not divided", "no exponential", "sigmoid", "base 2"),
    averaged=only(AVERAGED, "key", "weights", "plain mean", "divided again", "summed"),
)
def one_query(
    query, key, value, count, *, counted="", similarity="", scale="root", normaliser="", averaged=""
):
    scores = scaled(compared(query[None], key, value, similarity), query[None], key, value, scale)[0]
    if counted == "scores":
        scores = scores * count
    if counted == "added":
        scores = scores + count
    if counted == "at least once":
        count = count.clamp(min=1)
    if normaliser == "base 2":
        scores = scores * math.log(2)
    parts = scores.exp()
    if normaliser in ("none", "no exponential"):
        parts = scores
    if normaliser == "sigmoid":
        parts = torch.sigmoid(scores)
    above = parts if counted in ("not", "below only", "scores", "added") else parts * count
    below = parts if counted in ("not", "above only", "scores", "added") else parts * count
    weights = above if normaliser in ("none", "not divided", "sigmoid") else above / below.sum()
    if scale == "after":
        weights = weights / math.sqrt(len(query))
    if averaged == "weights":
        return weights
    if averaged == "plain mean":
        return value.mean(0)
    output = weights @ (key if averaged == "key" else value)
    if averaged == "divided again":
        output = output / len(key)
    return output.sum() if averaged == "summed" else output


@single_query.mistake(
    "the sum below the fraction bar runs only over the keys so far",
    hint="""A weight needs the sum over all keys. While your loop is at the first key, that sum is not yet
    complete. One loop can collect the exponentials, and a second one use them.""",
    read=SOFTARGMAX,
)
def running_sum(query, key, value, count):
    exponentials = count * torch.exp(key @ query / math.sqrt(query.shape[0]))
    return (exponentials / exponentials.cumsum(0)) @ value


# ---------------------------------------------------------------------------------------
# Stable softargmax
# ---------------------------------------------------------------------------------------


def _softargmax_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    apart = normal(3, 4)
    apart[0] += 1000
    apart[2] -= 1000
    far = 100 * normal(4, 6)
    far[range(4), [5, 0, 2, 4]] += 1000  # the largest score stands somewhere else in each row
    return [
        Case({"scores": normal(3, 4)}),
        Case({"scores": normal(5)}, "a single row"),
        Case({"scores": normal(4, 4)}, "as many queries as keys"),
        Case({"scores": normal(2, 3, 5, dtype=torch.float64)}, "a batch in double precision"),
        Case({"scores": far}, "scores in the thousands"),
        Case({"scores": normal(2, 5) - 1000}, "scores around -1000"),
        Case({"scores": apart}, "rows that lie a thousand apart"),
        Case({"scores": normal(2, 4, 3)}, "scores that are not contiguous", contiguous=False),
        Case({"scores": normal(1, 3, 1)}, "a batch of one with a single key"),
    ]


STABLE = "attention_operator#stable-softargmax"

SHIFT = {
    "one maximum": NORMALISER["one maximum"],
    "nothing": Wrong(
        "the exponential of a large score overflows",
        """In float32, exp(89) is infinite, and exp(-104) is 0. Adding the same number to all scores of a row
        changes none of its weights: which number would you add so that exp is never asked for too much, and
        the sum never comes out as 0?""",
        STABLE,
    ),
    "first": Wrong(
        "the first score of the row is subtracted instead of its maximum",
        """Subtracting any score of the row changes no weight, but does it bound what exp is asked for? Think
        of a row whose first score is its smallest.""",
        STABLE,
    ),
    "smallest": Wrong(
        "the smallest score is subtracted instead of the largest",
        """Now no exponent is negative, and the largest is the difference between the ends of the row.
        Which exponents can never overflow?""",
        STABLE,
    ),
    "mean": Wrong(
        "the mean of the row is subtracted instead of its maximum",
        """Subtracting the mean is allowed, as it changes no weight, but does it bound what exp is asked for?
        Think of a row with a single score far above the others.""",
        STABLE,
    ),
    "absolute": Wrong(
        "the largest absolute value is subtracted instead of the maximum",
        """In a row of very negative scores that number lies far above the largest, so every exponential
        becomes 0. The largest score, sign and all, is the one that bounds what exp is asked for.""",
        STABLE,
    ),
    "above only": Wrong(
        "the maximum is subtracted above the fraction bar but not below it",
        """Numerator and denominator must be the same exponentials; otherwise the weights no longer add up
        to 1. Print the sum of each row.""",
        STABLE,
    ),
    "divided": Wrong(
        "the scores are divided by the maximum instead of lowered by it",
        """Dividing changes how far the scores lie apart, and so the weights. Which change does no weight
        notice?""",
        STABLE,
    ),
    "clamped": Wrong(
        "large scores are cut off",
        """Cutting scores off keeps exp finite, but it changes them: two different large scores end up equal.
        Look for a change that no weight notices.""",
        STABLE,
    ),
    "added": Wrong(
        "the maximum is added instead of subtracted",
        """That makes the largest exponent twice as large. In which direction must the scores be moved?""",
        STABLE,
    ),
}


def _rows_sum_to_one(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    sums = value.sum(-1)
    return laws.is_not(sums, torch.ones_like(sums), "row {place} of yours sums to {yours}")


def _never_negative(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value, value.clamp(min=0), "yours holds {yours}, at {place}")


def _same_after_shift(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "at {place} yours gives {expected} before and {yours} after 1 was added to the scores of row 0"
    return laws.is_not(values[1], values[0], words)


def _ratio_of_exponentials(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    ratio = value[..., 1] / value[..., 0]
    expected = (inputs["scores"][..., 1] - inputs["scores"][..., 0]).exp()
    words = "of the first two weights of row {place} yours is {yours} times the other, not {expected} times"
    return laws.is_not(ratio, expected, words)


def _far_scores_are_finite(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    bad = ~value.isfinite()
    return f"yours holds {value[bad][0].item()} at {bad.nonzero()[0].tolist()}" if bad.any() else None


def _raised_row(normal: Normal) -> list[dict[str, Tensor]]:
    scores = normal(3, 4)
    raised = scores.clone()
    raised[0] += 1
    return [{"scores": scores}, {"scores": raised}]


softargmax = Task(
    "softargmax",
    attention_operator.softargmax,
    {"scores": torch.tensor([[0.0, 1.0, 2.0], [5.0, 5.0, 5.0]])},
    _softargmax_cases,
    laws=[
        Law("no weight is negative", SOFTARGMAX, lambda normal: {"scores": normal(3, 4)}, _never_negative),
        Law(
            "the weights of a row sum to 1",
            SOFTARGMAX,
            lambda normal: {"scores": normal(3, 4)},
            _rows_sum_to_one,
        ),
        Law(
            "adding the same number to all scores of a row changes none of its weights",
            STABLE,
            _raised_row,
            _same_after_shift,
        ),
        Law(
            "two weights of a row have the ratio exp(the difference of their scores)",
            SOFTARGMAX,
            lambda normal: {"scores": normal(3, 4)},
            _ratio_of_exponentials,
        ),
        Law(
            "every weight is a finite number, however large or small the scores",
            STABLE,
            lambda normal: {"scores": 1000 * normal(3, 4)},
            _far_scores_are_finite,
        ),
        Law(
            "among scores of a thousand, too, two weights have the ratio exp(the difference of their scores)",
            STABLE,
            lambda normal: {"scores": 1000 + normal(3, 4)},
            _ratio_of_exponentials,
        ),
    ],
    refuses=(*SOFTMAX, "logaddexp"),
)


@softargmax.made_of(
    shift=SHIFT,
    axis=AXIS,
    sums=wrongs(
        STABLE,
        """
        lost: a sum or maximum along the rows lost its dimension
            `sum(-1)` of a tensor of shape (3, 4) has shape (3,), which broadcasts along the wrong
            dimension, or not at all. There is an argument that keeps the dimension.
        """,
    ),
    form={
        **only(NORMALISER, "not divided", "no exponential", "sigmoid", "logarithm", "base 2", "absolute"),
        "one-hot": Wrong(
            "all the weight goes to the largest score",
            """That is the argmax, written as a one-hot row. Softargmax is its smooth version: close scores
            get
            close weights.""",
            SOFTARGMAX,
        ),
        "negated": Wrong(
            "the scores have the opposite sign",
            """The largest score gets the smallest weight in yours. Look at the sign in the exponential.""",
            SOFTARGMAX,
        ),
        "squared": Wrong(
            "the weights of a row have length 1 instead of the sum 1",
            """You divide by the root of a sum of squares. It is the plain sum that must be 1.""",
            SOFTARGMAX,
        ),
    },
)
def soft(scores, *, shift="maximum", axis="keys", sums="kept", form="softargmax"):
    dims = {"keys": (-1,), "queries": (-2,), "dim 0": (0,), "dim 1": (1,), "dim 2": (2,)}
    along = {"dim": dims.get(axis, tuple(range(scores.dim()))), "keepdim": sums == "kept"}
    if form == "negated":
        scores = -scores
    if form == "absolute":
        scores = scores.abs()
    if form == "base 2":
        scores = scores * math.log(2)
    if form == "sigmoid":
        return torch.sigmoid(scores)
    if form == "no exponential":
        return scores / scores.sum(**along)
    if form == "one-hot":
        top = scores.amax(**along)
        return (scores == top).to(scores.dtype)
    shifts = {
        "one maximum": lambda: scores.max(),
        "nothing": lambda: 0,
        "first": lambda: scores.narrow(along["dim"][0], 0, 1),
        "smallest": lambda: scores.amin(**along),
        "mean": lambda: scores.mean(**along),
        "absolute": lambda: scores.abs().amax(**along),
        "clamped": lambda: scores - scores.clamp(-50, 50),
        "added": lambda: -scores.amax(**along),
    }
    moved = scores - shifts.get(shift, lambda: scores.amax(**along))()
    if shift == "divided":
        moved = scores / scores.amax(**along)
    above = torch.exp(moved)
    if form == "not divided":
        return above
    if form == "squared":
        return above / (above**2).sum(**along).sqrt()
    weights = above / (torch.exp(scores) if shift == "above only" else above).sum(**along)
    return weights.log() if form == "logarithm" else weights


# ---------------------------------------------------------------------------------------
# The matrix form, batched
# ---------------------------------------------------------------------------------------


def _attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        batch: tuple[int, ...], queries: int, keys: int, dim: int, value_dim: int, note: str, **how: Any
    ) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs = {
            "query": normal(*batch, queries, dim, dtype=dtype),
            "key": normal(*batch, keys, dim, dtype=dtype),
            "value": normal(*batch, keys, value_dim, dtype=dtype),
        }
        return Case(inputs, note, **how)

    large = case((), 3, 5, 4, 2, "scores in the thousands, in double precision", dtype=torch.float64)
    large.inputs["query"] *= 1000

    return [
        case((), 3, 5, 4, 2, "no batch"),
        case((), 4, 4, 8, 8, "everything square"),
        case((2,), 3, 5, 4, 6, "a batch"),
        case((2,), 5, 5, 3, 3, "a batch of square matrices", dtype=torch.float64),
        case((3, 2), 2, 7, 16, 4, "two batch dimensions"),
        case((3,), 3, 3, 9, 9, "a batch as large as the number of positions"),
        case((2,), 4, 6, 5, 3, "inputs that are not contiguous", contiguous=False),
        case((1,), 1, 4, 3, 2, "a batch of one with a single query"),
        large,
    ]


PENCIL = {
    "query": torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0]]),
    "key": torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0]]),
    "value": torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]]),
}

attention = Task(
    "attention",
    attention_operator.attention,
    PENCIL,
    _attention_cases,
    laws=[
        laws.ones_come_back(draw(), ROWS_AND_COLUMNS),
        laws.equal_keys_average(draw(), TWO_LIMITS),
        laws.between_the_values(draw(), MATRIX_FORM),
        laws.queries_are_asked_alone(draw(), ROWS_AND_COLUMNS),
        laws.sequences_are_treated_alone(draw(2), BATCHES),
        laws.order_of_keys_is_nothing(draw(), MATRIX_FORM),
        laws.features_written_twice(draw(), WHY_THE_SCALE),
        laws.best_match_takes_all(draw(), TWO_LIMITS),
    ],
    builds_on=("softargmax",),
)


@attention.made_of(
    similarity=SIMILARITY, scale=SCALE, axis=AXIS, normaliser=NORMALISER, averaged=without(AVERAGED, "summed")
)
def any_attention(query, key, value, *, similarity="", scale="root", axis="keys", normaliser="", averaged=""):
    return attend(query, key, value, similarity, scale, axis, normaliser, averaged)


@attention.mistake(
    "the sequences of a batch are put together: every query sees the keys of all of them",
    hint="""A reshape to two dimensions joins the sequences into one. Each sequence is to be treated by
    itself.""",
    read=BATCHES,
)
def attention_over_the_batch(query, key, value):
    keys, values = key.reshape(-1, key.shape[-1]), value.reshape(-1, value.shape[-1])
    return torch.softmax(query @ keys.T / math.sqrt(query.shape[-1]), -1) @ values


@attention.mistake(
    "keys and values have changed places",
    hint="""Queries are matched with keys, and what is averaged is the values. Yours does it the other way
    round.""",
    read=MATRIX_FORM,
)
def attention_exchanged(query, key, value):
    return torch.softmax(query @ value.mT / math.sqrt(query.shape[-1]), -1) @ key


# ---------------------------------------------------------------------------------------
# The two limits
# ---------------------------------------------------------------------------------------


def _unit_keys(normal: Any, num_keys: int, key_dim: int, **how: Any) -> Tensor:
    return torch.nn.functional.normalize(normal(num_keys, key_dim, **how), dim=-1)


def _weights(query: Tensor, key: Tensor) -> Tensor:
    return attention_operator.attention_weights(query[None].to(key.dtype), key)[0]


def _wrong_query(key: Tensor, query: Any) -> str | None:
    """Why the answer cannot be a query for these keys."""
    if not isinstance(query, Tensor):
        return "one tensor was expected: the query. Is there a `return` at the end of your function?"
    if tuple(query.shape) != (key.shape[1],):
        return f"a query for these keys has shape ({key.shape[1]},)"
    if not query.dtype.is_floating_point:
        return f"a query has floating-point numbers, and yours are {query.dtype}"
    if not query.isfinite().all():
        return "a query has finite numbers, and in yours there is NaN or infinity"
    return None


def _picking_query(key: Tensor, index: int, share: float) -> Tensor:
    # The longer a query along a key of length 1, the larger the weight of that key: halve, and halve again.
    unit = key[index].double()
    lead = key.double() @ unit / math.sqrt(key.shape[-1])
    lead -= lead[index].clone()  # of every key over the one to pick, for a query of length 1

    def is_short(length: float) -> bool:
        return float((length * lead).exp().sum()) > 1 / share

    low, high = 0.0, 1.0
    while is_short(high):
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_short(middle) else (low, middle)
    return (high * unit).to(key.dtype)


def _picking_compare(inputs: dict[str, Any], query: Any) -> str | None:
    key, index, share = inputs.values()
    wrong = _wrong_query(key, query)
    if wrong is not None:
        return wrong
    weights = _weights(query, key)
    if abs(weights[index] - share) <= 1e-3:
        return None
    return f"with this query key {index} gets a weight of {weights[index]:.4f}, and {share} was wanted"


def _picking_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_keys: int, key_dim: int, index: int, share: float, note: str = "", **how: Any) -> Case:
        key = _unit_keys(normal, num_keys, key_dim, **how)
        # Between two keys that are almost the same, single precision could not choose.
        while (key @ key[index]).sort().values[-2] > 0.995:
            key = _unit_keys(normal, num_keys, key_dim, **how)
        return Case({"key": key, "index": index, "share": share}, note)

    # Most keys lie to one side of the one to pick, and one lies close to it on the other.
    degrees = torch.tensor([0.0, 20.0, *(-60 + 5 * normal(6)).tolist()]).deg2rad()
    one_sided = Case(
        {"key": torch.stack([degrees.cos(), degrees.sin()], -1), "index": 0, "share": 0.9},
        "most keys to one side, one close by on the other",
    )
    degrees = torch.tensor([0.0, 8.0, *(90 + 20 * normal(2)).tolist()], dtype=torch.float64).deg2rad()
    near = Case(
        {"key": torch.stack([degrees.cos(), degrees.sin()], -1), "index": 0, "share": 0.9},
        "two keys that are close to each other, so that the query must be long",
    )
    return [
        one_sided,
        near,
        case(4, 6, 2, 0.5, "one half"),
        case(5, 3, 0, 0.95, "the first key"),
        case(7, 16, 6, 0.3, "the last key"),
        case(8, 4, 3, 0.125, "as much as every other key"),
        case(12, 2, 5, 0.6, "twelve keys with two features, some of them close"),
        case(3, 8, 1, 0.8, "double precision", dtype=torch.float64),
    ]


def _more_than_equal(inputs: dict[str, Any], query: Tensor) -> str | None:
    weight = _weights(query, inputs["key"])[inputs["index"]].item()
    return None if weight > 1 / 5 else f"with yours it gets {shown(weight)}"


def _less_than_all(inputs: dict[str, Any], query: Tensor) -> str | None:
    weight = _weights(query, inputs["key"])[inputs["index"]].item()
    return None if weight < 0.5 else f"with yours it gets {shown(weight)}"


picking_query = Task(
    "picking_query",
    _picking_query,
    {"key": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), "index": 2, "share": 0.9},
    _picking_cases,
    laws=[
        Law(
            "a key that is to get 0.9 of the weight of five keys gets more than a fifth",
            TWO_LIMITS,
            lambda normal: {"key": _unit_keys(normal, 5, 4), "index": 1, "share": 0.9},
            _more_than_equal,
        ),
        Law(
            "a key that is to get 0.25 of the weight gets less than half",
            TWO_LIMITS,
            lambda normal: {"key": _unit_keys(normal, 5, 4), "index": 1, "share": 0.25},
            _less_than_all,
        ),
    ],
    compare=_picking_compare,
    builds_on=("attention", "softargmax"),
)


def _searched(key, index, share, score_of):
    low, high = 0.0, 1e4
    for _ in range(80):
        middle = (low + high) / 2
        weight = torch.softmax(score_of(key.double() @ (middle * key[index].double())), -1)[index]
        low, high = (middle, high) if weight < share else (low, middle)
    return (high * key[index].double()).to(key.dtype)


@picking_query.mistake(
    "the scale is left out while the query is looked for",
    hint="""The weights are those of scaled dot-product attention: the dot products are divided by the root of
    the number of features. With the scale, how much longer must the query be?""",
    read=WHY_THE_SCALE,
)
def picks_without_scale(key, index, share):
    return _searched(key, index, share, lambda products: products)


@picking_query.mistake(
    "the query is very long, so that the key gets all the weight",
    hint="""The direction is right. But the key is to get `share`, not everything. Between a query of
    zeros and a very long one lies the length that gives just that.""",
    read=TWO_LIMITS,
)
def picks_all(key, index, share):
    return 1e5 * key[index]


@picking_query.mistake(
    "the query is doubled until the weight is large enough, and then it is too large",
    hint="""At some length the weight is below `share`, at twice that length above it. The length you want
    lies between the two: how do you come closer?""",
    read=TWO_LIMITS,
)
def picks_by_doubling(key, index, share):
    query = key[index]
    while torch.softmax(key @ query / math.sqrt(key.shape[1]), -1)[index] < share:
        query = 2 * query
    return query


@picking_query.mistake(
    "the query is the key itself, whatever the share",
    hint="""The direction is right: no other key of length 1 matches better. What happens to the differences
    between the scores when the query is made longer, or shorter?""",
    read=TWO_LIMITS,
)
def picks_with_key(key, index, share):
    return key[index]


@picking_query.mistake(
    "the key is multiplied by the share",
    hint="""The share is a weight, after the softargmax. The length of the query acts before it. How do the
    scores, and then the weights, depend on the length?""",
    read=TWO_LIMITS,
)
def picks_with_share(key, index, share):
    return share * key[index]


@picking_query.mistake(
    "the query points away from the key",
    hint="""A dot product is largest where two vectors point the same way. Yours is the smallest possible for
    this key.""",
    read=TWO_LIMITS,
)
def picks_opposite(key, index, share):
    return -1000 * key[index]


@picking_query.mistake(
    "the query is a one-hot vector over the features",
    hint="""A query lives in the space of the features, not in the space of the positions: it has no entry
    for key number `index`. What do you know about that key that could tell it from the others?""",
    read=ONE_QUERY,
)
def picks_one_hot(key, index, share):
    query = torch.zeros_like(key[0])
    query[index] = 1
    return query


# ---------------------------------------------------------------------------------------
# The scale
# ---------------------------------------------------------------------------------------


def _score_scale(key_dim: int, query_std: float, key_std: float) -> float:
    return 1 / (query_std * key_std * math.sqrt(key_dim))


def _score_scale_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")
    high, low, more = (1 + draws.rand(3)).tolist()
    settings = [
        (16, 1.0, 1.0, "variances of 1"),
        (100, 1.0, 1.0, "many features"),
        (8, 2.0, 2.0, "longer queries and keys"),
        (int(50 * more), round(3 * high, 2), round(low / 4, 2), "queries and keys of different size"),
        (1, 0.5, 3.0, "a single feature"),
    ]
    return [
        Case({"key_dim": dim, "query_std": query_std, "key_std": key_std}, note)
        for dim, query_std, key_std, note in settings
    ]


def _score_scale_compare(inputs: dict[str, Any], factor: Any) -> str | None:
    if isinstance(factor, Tensor) and factor.numel() == 1:
        factor = factor.item()
    if isinstance(factor, bool) or not isinstance(factor, float | int):
        return "one number was expected: the factor. Is there a `return` at the end of your function?"
    # Of the unscaled scores the standard deviation is 1 / reference.
    deviation = factor / _score_scale(**inputs)
    variance = deviation * deviation  # infinite for 1e200, of which ** makes an exception
    if not abs(variance - 1) <= 1e-5:  # so that NaN is wrong
        return f"multiplied by your factor, the scores have a variance of {variance:.6g} instead of 1"
    if factor < 0:
        return "the size is right, but with a negative factor the best match would get the smallest weight"
    return None


score_scale = Task(
    "score_scale",
    _score_scale,
    {"key_dim": 4, "query_std": 1.0, "key_std": 0.5},
    _score_scale_cases,
    laws=[
        Law(
            "with four times as many features the factor is half as large",
            WHY_THE_SCALE,
            lambda normal: [{"key_dim": dim, "query_std": 1.0, "key_std": 1.0} for dim in (9, 36)],
            lambda inputs, values: _ratio(values, 0.5),
        ),
        Law(
            "with queries twice as long the factor is half as large",
            WHY_THE_SCALE,
            lambda normal: [{"key_dim": 9, "query_std": std, "key_std": 1.0} for std in (1.0, 2.0)],
            lambda inputs, values: _ratio(values, 0.5),
        ),
    ],
    compare=_score_scale_compare,
)


def _ratio(values: list[float], expected: float) -> str | None:
    """How far the second number is from so many times the first."""
    ratio = values[1] / values[0] if values[0] else math.nan
    words = f"yours gives {shown(values[0])} and then {shown(values[1])}"
    return None if math.isclose(ratio, expected, rel_tol=1e-4) else words


@score_scale.made_of(
    dim=wrongs(
        WHY_THE_SCALE,
        """
        whole: the number of features stands there without the square root
            The variance of a sum of independent terms is the sum of their variances. A factor c multiplies
            the variance by c squared.
        none: the number of features is left out
            A score adds up one product for each feature. What does that do to its variance?
        """,
    ),
    std=wrongs(
        WHY_THE_SCALE,
        """
        none: the standard deviations of queries and keys are left out
            The factor is right when both are 1. If every query gets twice as long, what happens to the
            scores?
        query only: the standard deviation of the keys is left out
            If every key gets twice as long, what happens to the scores?
        key only: the standard deviation of the queries is left out
            If every query gets twice as long, what happens to the scores?
        squared: variances stand where standard deviations should
            A factor c multiplies the standard deviation of the scores by c, and their variance by c
            squared. Which of the two are you dividing by?
        above: the standard deviations are multiplied after the division
            Python divides and multiplies from left to right: in `1 / a * b`, the b stands above the
            fraction bar. Brackets help.
        rooted: the standard deviations stand under the root
            Under the root belongs a variance. You have put standard deviations there.
        variances added: the variances of queries and keys are added
            A score is a sum of products. The variance of a *sum* of two is the sum of their variances. And
            that of a product?
        mean of variances: the mean of the two variances is taken
            A score is a sum of products. What is the variance of a *product* of two independent numbers?
        added: the standard deviations are added
            A score is a sum of products. What is the variance of a *product* of two independent numbers?
        """,
    ),
    form=wrongs(
        WHY_THE_SCALE,
        """
        inverted: this is the size of the scores, not the factor that undoes it
            You have found the standard deviation of the unscaled scores. Which factor turns it into 1?
        variance: this is the variance of the scores, or its inverse, instead of the standard deviation
            A factor c multiplies the variance by c squared. Which number, squared, is the one you have?
        """,
    ),
)
def any_factor(key_dim, query_std, key_std, *, dim="root", std="both", form="factor"):
    size = {"whole": key_dim, "none": 1.0}.get(dim, math.sqrt(key_dim))
    product = query_std * key_std
    size *= {
        "none": 1.0,
        "query only": query_std,
        "key only": key_std,
        "squared": product**2,
        "above": 1 / product,
        "rooted": math.sqrt(product),
        "added": query_std + key_std,
        "variances added": math.hypot(query_std, key_std),
        "mean of variances": math.hypot(query_std, key_std) / math.sqrt(2),
    }.get(std, product)
    return {"inverted": size, "variance": 1 / size**2}.get(form, 1 / size)


# ---------------------------------------------------------------------------------------
# The column convention
# ---------------------------------------------------------------------------------------


def _column_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = attention_operator.attention_weights(query.mT, key.mT)  # (..., num_queries, num_keys)
    return (weights @ value.mT).mT


def _in_columns(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.mT for name, value in inputs.items()}


def _column_cases(seed: int) -> list[Case]:
    return [Case(_in_columns(case.inputs), case.note, case.contiguous) for case in _attention_cases(seed)]


def _column_ones(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value, torch.ones_like(value), "yours gives {yours} at {place}")


def _column_alone(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "at {place} yours gives {expected} among other queries and {yours} alone"
    return laws.is_not(values[1], values[0][..., :1], words)


def _column_twice(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "at {place} yours gives {yours} for the first and {expected} for the second"
    return laws.is_not(values[0], values[1], words)


def _columns_of_ones(normal: Normal) -> dict[str, Tensor]:
    return _in_columns(draw()(normal)) | {"value": torch.ones(2, 4)}


def _columns_one_query(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _in_columns(draw()(normal))
    return [drawn, drawn | {"query": drawn["query"][:, :1]}]


def _columns_twice(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _in_columns(draw()(normal))
    twice = {name: torch.cat([drawn[name]] * 2) for name in ("query", "key")}
    return [drawn | twice, drawn | {"query": drawn["query"] * 2**0.5}]


COLUMNS = "attention_operator#column-convention"

column_attention = Task(
    "column_attention",
    _column_attention,
    _in_columns(PENCIL),
    _column_cases,
    laws=[
        Law(
            "values that are all ones come back as ones, as the weights of a query sum to 1",
            COLUMNS,
            _columns_of_ones,
            _column_ones,
        ),
        Law(
            "a query gets the same output alone as among other queries",
            COLUMNS,
            _columns_one_query,
            _column_alone,
        ),
        Law(
            laws.FEATURES_TWICE,
            WHY_THE_SCALE,
            _columns_twice,
            _column_twice,
        ),
    ],
    builds_on=("attention", "softargmax"),
)


@column_attention.made_of(
    similarity=only(SIMILARITY, "cosine", "negated", "T", "values"),
    scale=SCALE,
    axis={
        "rows": Wrong(
            "the weights are normalised along the rows",
            """Now every column of the scores belongs to a query. So which dimension holds the keys that share
            out its attention?""",
            COLUMNS,
        ),
        "dim 0": Wrong(
            "dimension 0 is normalised, which is the batch when there is one",
            """Without a batch dimension 0 holds the keys, with one it holds the sequences. Which dimension is
            that of the keys, counted from the back?""",
            COLUMNS,
        ),
        "dim 1": Wrong(
            "dimension 1 is normalised, which is the keys only with a single batch dimension",
            """Dimensions counted from the front move when a batch is added: without one, dimension 1 holds
            the queries. Count from the back.""",
            COLUMNS,
        ),
        **only(AXIS, "all"),
    },
    normaliser=NORMALISER,
    averaged=only(AVERAGED, "key", "weights", "plain mean", "divided again"),
    layout=wrongs(
        COLUMNS,
        """
        rows: the output has its positions in rows
            The numbers are right. In this convention the output, like its inputs, keeps one position in
            each column.
        """,
    ),
)
def any_columns(
    query,
    key,
    value,
    *,
    similarity="",
    scale="root",
    axis="columns",
    normaliser="",
    averaged="",
    layout="columns",
):
    query, key, value = query.mT, key.mT, value.mT
    # What stands in columns is turned round to be scored, and with it what dimensions are called.
    products = (key @ query.T).mT if similarity == "T" else compared(query, key, value, similarity)
    scores = scaled(products, query, key, value, scale).mT
    names = {"columns": "queries", "rows": "keys"}
    weights = normalised(scores, names.get(axis, axis), normaliser).mT
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    if averaged == "key":
        value = key
    if averaged == "plain mean":
        weights = torch.full_like(weights, 1 / key.shape[-2])
    if averaged == "divided again":
        weights = weights / key.shape[-2]
    output = weights if averaged == "weights" else weights @ value
    return output if layout == "rows" else output.mT


@column_attention.mistake(
    "the inputs are read as if their rows were positions",
    hint="""This is the formula for rows, unchanged. Here a column is a position: write down the shape of each
    matrix beside the formula and see which products fit.""",
    read=COLUMNS,
)
def columns_read_as_rows(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


# ---------------------------------------------------------------------------------------
# The rabbit sentence: weights that do what is wanted
# ---------------------------------------------------------------------------------------

THREE_INPUTS = "attention_operator#three-inputs"
VALUES_NOT_INPUTS = "attention_operator#values-not-inputs"
NOT_SYMMETRIC = "attention_operator#not-symmetric"


def _rabbit_weights(num_features: int, asks: int, found: int, handed: int) -> tuple[Tensor, Tensor, Tensor]:
    W_Q, W_K, W_V = torch.zeros(3, num_features, 1).unbind()
    W_Q[asks], W_K[found], W_V[handed] = 100.0, 1.0, 1.0
    return W_Q, W_K, W_V


def _sentences(num_features: int, asks: int, found: int, length: int) -> Tensor:
    """Words with features 0 or 1; in each sentence one asks, another does not, and one can be found.

    In half of the sentences, only few can be found.
    """
    generator = torch.Generator().manual_seed(num_features)
    words = torch.randint(2, (20, length, num_features), generator=generator).double()
    words[10:, 3:, found] = 0
    words[:, 0, asks], words[:, 1, asks] = 1, 0
    words[:, 2, found], words[:, 3, found] = 1, 0
    return words


def _no_weights(num_features: int, weights: Any) -> str | None:
    """Why what came back cannot be the three matrices of a layer."""
    if not isinstance(weights, tuple | list) or len(weights) != 3:
        return "three matrices were expected: return W_Q, W_K, W_V"
    for name, W in zip(("W_Q", "W_K", "W_V"), weights, strict=True):
        if not isinstance(W, Tensor) or not W.dtype.is_floating_point:
            return f"{name} is no matrix of floating-point numbers"
        if W.dim() != 2:
            return (
                f"{name} has shape {tuple(W.shape)}: a matrix has two sizes, and this one {num_features} rows"
            )
        if len(W) != num_features:
            return f"{name} has {len(W)} rows, and a word has {num_features} features"
        if not W.isfinite().all():
            return f"in {name} there is NaN or infinity; finite numbers will do"
    if weights[0].shape[1] != weights[1].shape[1] or not weights[0].shape[1]:
        return f"a query has {weights[0].shape[1]} features and a key {weights[1].shape[1]}: no dot product"
    if weights[0].shape[1] > 1000:
        return "queries of at most 1,000 features, please"
    if weights[2].shape[1] != 1:
        return f"a value is one number, and W_V gives {weights[2].shape[1]}"
    return None


def _rabbit_compare(inputs: dict[str, Any], value: Any) -> str | None:
    num_features, asks, found, handed = inputs.values()
    wrong = _no_weights(num_features, value)
    if wrong is not None:
        return wrong
    W_Q, W_K, W_V = (W.double() for W in value)
    for length in (7, 40):
        words = _sentences(num_features, asks, found, length)  # (20, length, num_features)
        output = (attention_operator.attention_weights(words @ W_Q, words @ W_K) @ (words @ W_V))[..., 0]
        handed_over = words[..., handed]
        among_found = (handed_over * words[..., found]).sum(-1) / words[..., found].sum(-1)
        among_all = handed_over.mean(-1)
        expected = torch.where(words[..., asks] == 1, among_found[:, None], among_all[:, None])
        if not output.isfinite().all():
            return "with weights as large as yours the scores overflow; far smaller ones will do"
        off = (output - expected).abs()
        if (off <= 0.01).all():
            continue
        sentence, word = divmod(int(off.argmax()), length)
        does = "asks" if words[sentence, word, asks] else "does not ask"
        of = "among the words that can be found" if does == "asks" else "of all words"
        can, have = (words[sentence, :, place].nonzero()[:, 0].tolist() for place in (found, handed))
        return (
            f"in a sentence of {length} words, counted from 0, words {can} can be found and words {have} "
            f"have the feature `handed`; word {word} {does}, and comes out with "
            f"{output[sentence, word]:.3f}; the mean {of} is {expected[sentence, word]:.3f}"
        )
    return None


def _rabbit_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")

    def case(num_features: int, note: str, same: str = "") -> Case:
        asks, found, handed = draws.randperm(num_features)[:3].tolist()
        if same == "handed":
            handed = found
        if same == "found":
            found = asks
        return Case({"num_features": num_features, "asks": asks, "found": found, "handed": handed}, note)

    return [
        case(4, "four features"),
        case(9, "nine features"),
        case(5, "what is found is what is handed over", "handed"),
        case(6, "those who ask are those who are found", "found"),
        case(30, "thirty features"),
    ]


def _said(inputs: dict[str, Any]) -> str:
    return "{num_features} features, asks {asks}, found {found} and handed {handed}".format(**inputs)


def _only_handed(inputs: dict[str, Any], value: Any) -> str | None:
    W_V = value[2]
    row = int((W_V[:, 0] != 0).float().argmax())
    others = [int(place) for place in W_V[:, 0].nonzero()[:, 0] if int(place) != inputs["handed"]]
    if not others:
        return None
    wrong = others[0] if row == inputs["handed"] else row
    return f"in yours, with {_said(inputs)}, row {wrong} of W_V is not 0"


def _who_asks(inputs: dict[str, Any], value: Any) -> str | None:
    W_Q, W_K, _ = value
    scores = W_Q.double() @ W_K.double().mT / math.sqrt(W_Q.shape[1])
    quiet = [place for place in range(len(scores)) if place != inputs["asks"]]
    gap = scores[quiet].amax(-1) - scores[quiet].amin(-1)
    if gap.max() < 0.1:
        return None
    return f"in yours, with {_said(inputs)}, feature {quiet[int(gap.argmax())]} asks for something"


def _rabbit_law(normal: Normal) -> dict[str, Any]:
    return {"num_features": 4, "asks": 1, "found": 3, "handed": 0}


rabbit_weights = Task(
    "rabbit_weights",
    _rabbit_weights,
    {"num_features": 3, "asks": 0, "found": 1, "handed": 2},
    _rabbit_cases,
    laws=[
        Law(
            "a word hands over its feature number `handed`, and nothing of any other",
            THREE_INPUTS,
            _rabbit_law,
            _only_handed,
        ),
        Law(
            "a word without the feature `asks` has the same score with every key",
            TWO_LIMITS,
            _rabbit_law,
            _who_asks,
        ),
    ],
    compare=_rabbit_compare,
    shows_right=False,
)


@rabbit_weights.made_of(
    role=wrongs(
        NOT_SYMMETRIC,
        """
        exchanged: those who ask and those who are found have changed places
            W_Q says what a word looks for, W_K what it can be found by. In yours, the words with the feature
            `found` do the asking.
        mutual: words are found by the feature by which they ask
            Then a word finds those who ask as it does. What a word looks for and what it offers are two
            things.
        everyone: every word asks
            A word without the feature `asks` is to come out with the plain mean. Which query has the same
            score with all keys? (attention_operator#two-limits)
        negated: those who ask turn away from those who can be found
            A large dot product means a good match. In yours the product is negative.
            (attention_operator#one-query)
        """,
    ),
    size=wrongs(
        TWO_LIMITS,
        """
        soft: the question is asked too quietly
            The direction is right, but words that cannot be found still get a part of the weight. How do the
            weights change if the query is made longer?
        """,
    ),
    value=wrongs(
        VALUES_NOT_INPUTS,
        """
        found: words hand over what they are found by
            A word is found by one feature and hands over another. Which of the three weights says what it
            hands over? (attention_operator#three-inputs)
        asks: words hand over the feature by which they ask
            A word asks by one feature and hands over another. Which of the three weights says what it
            hands over? (attention_operator#three-inputs)
        all: words hand over the sum of all their features
            A value is to be the feature `handed` alone. Which rows of W_V are 0?
            (attention_operator#three-inputs)
        inputs: words hand over everything they are
            The value is to be a single number, the feature `handed`: W_V has one column. With the identity
            there, the inputs themselves are averaged.
        """,
    ),
)
def any_rabbit(num_features, asks, found, handed, *, role="", size="", value=""):
    W_Q, W_K, W_V = torch.zeros(3, num_features, 1).unbind()
    if role == "exchanged":
        asks, found = found, asks
    W_Q[asks] = {"soft": 1.0}.get(size, 100.0)
    W_K[asks if role == "mutual" else found] = 1.0
    if role == "everyone":
        W_Q[:] = W_Q[asks].clone()
    if role == "negated":
        W_Q = -W_Q
    if value == "inputs":
        return W_Q, W_K, torch.eye(num_features)
    if value == "all":
        W_V[:] = 1.0
    W_V[{"found": found, "asks": asks}.get(value, handed)] = 1.0
    return W_Q, W_K, W_V


# ---------------------------------------------------------------------------------------
# Find the slip: an input that shows it
# ---------------------------------------------------------------------------------------


def _operators(seed: int) -> dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]:
    """Operators that do what attention does on one sequence of four words with four positive features."""
    shift = normal_source(seed, "operators")(1, dtype=torch.float64)

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5

    def unsafe(s: Tensor) -> Tensor:
        e = torch.exp(s)
        return e / e.sum(-1, keepdim=True)

    def of_log(s: Tensor) -> Tensor:
        return torch.exp(s - torch.logsumexp(s, -1, keepdim=True))

    return {
        "the softargmax runs over dimension 1": lambda q, k, v: torch.softmax(scores(q, k), 1) @ v,
        "the products are divided by 2": lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / 2, -1) @ v,
        "the root is that of the features of a value": lambda q, k, v: (
            torch.softmax(q @ k.transpose(-2, -1) / v.shape[-1] ** 0.5, -1) @ v
        ),
        "the root is that of the number of keys": lambda q, k, v: (
            torch.softmax(q @ k.transpose(-2, -1) / k.shape[-2] ** 0.5, -1) @ v
        ),
        "the exponentials overflow, which those of scores above 709 do in float64": lambda q, k, v: (
            unsafe(scores(q, k)) @ v
        ),
        "one maximum is subtracted from all rows": lambda q, k, v: (
            unsafe(scores(q, k) - scores(q, k).max()) @ v
        ),
        "scores lose their sign": lambda q, k, v: torch.softmax(scores(q, k).abs(), -1) @ v,
        "scores below 0 become 0": lambda q, k, v: torch.softmax(scores(q, k).clamp(min=0), -1) @ v,
        "nothing is wrong: the queries are scaled first": lambda q, k, v: (
            torch.softmax((q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1), -1) @ v
        ),
        "nothing is wrong: the same is added to all features of all keys": lambda q, k, v: (
            torch.softmax(scores(q, k + shift), -1) @ v
        ),
        "nothing is wrong: the weights come from their logarithms": lambda q, k, v: of_log(scores(q, k)) @ v,
    }


def _differ(operator: Callable, inputs: tuple[Tensor, ...]) -> bool:
    query, key, value = inputs
    output, expected = operator(*inputs), attention_operator.attention_weights(query, key) @ value
    return output.shape != expected.shape or not torch.allclose(output, expected, rtol=1e-6, atol=1e-8)


def _trials() -> list[tuple[Tensor, ...]]:
    normal = normal_source(3)
    # No two sizes are the same; then such scores that exponentials overflow.
    return [
        (size * normal(2, 3, 5, dtype=torch.float64), *(normal(2, 6, d, dtype=torch.float64) for d in (5, 7)))
        for size in (1.0, 1e5)
    ]


def _telling_input(operator: Callable, query: Tensor, key: Tensor, value: Tensor) -> tuple | None:
    for trial in _trials():
        if _differ(operator, trial):
            return trial
    return None


def _no_input(value: Any) -> str | None:
    """Why what came back cannot be an input of attention."""
    if not isinstance(value, tuple | list) or len(value) != 3:
        return "either None or three tensors were expected: query, key and value"
    for name, part in zip(("query", "key", "value"), value, strict=True):
        if not isinstance(part, Tensor) or not part.dtype.is_floating_point or part.dim() < 2:
            return f"your {name} is no tensor of floating-point numbers with at least two dimensions"
        if not part.isfinite().all():
            return f"in your {name} there is NaN or infinity: on that, attention itself says nothing"
    query, key, value = value
    if not query.numel():
        return "your query is empty"
    if query.shape[:-2] != key.shape[:-2] or key.shape[:-1] != value.shape[:-1] or not key.numel():
        return "the shapes do not fit: a value for each key, and the same batch for all three"
    if query.shape[-1] != key.shape[-1]:
        return f"your queries have {query.shape[-1]} features and your keys {key.shape[-1]}"
    # A wrong operator may have scores of features with features, and each query gets a value.
    longest = max(*query.shape[-2:], *key.shape[-2:], *value.shape[-2:])
    if query.shape[:-2].numel() * longest**2 > 1_000_000:
        return "that is a very large input; a smaller one will do"
    return None


def _telling_compare(inputs: dict[str, Any], value: Any) -> str | None:
    operator = inputs["operator"]
    sound = _telling_input(**inputs) is None
    if value is None:
        return None if sound else "nothing was found, and this operator has a fault"
    wrong = _no_input(value)
    if wrong is not None:
        return wrong
    if sound:
        return "this operator is right, so None was expected"
    query, key, value = (part.double() for part in value)
    if not attention_operator.attention_weights(query, key).isfinite().all():
        return "with numbers as large as yours the scores overflow, and attention itself says nothing"
    if _differ(operator, (query, key, value)):
        return None
    shapes = ", ".join(str(tuple(part.shape)) for part in (query, key, value))
    found = "the operator gives what attention gives, but for the last digits"
    return f"on your input, of shapes {shapes}, {found}"


def _telling_given(normal: Normal) -> dict[str, Tensor]:
    x = normal(4, 4, dtype=torch.float64).abs()
    return {"query": x, "key": x.clone(), "value": x.clone()}


def _telling_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    operators = _operators(seed)
    return [
        Case({"operator": trace(operators[name]), **_telling_given(normal)}, name)
        for name in in_any_order(operators, seed)
    ]


def _telling_law(name: str) -> Callable[[Normal], dict[str, Any]]:
    return lambda normal: {"operator": trace(_operators(0)[name]), **_telling_given(normal)}


telling_input = Task(
    "telling_input",
    _telling_input,
    {
        "operator": trace(
            lambda q, k, v: torch.softmax(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5, -1) @ v
        ),
        **{name: torch.eye(2, dtype=torch.float64) for name in ("query", "key", "value")},
    },
    _telling_cases,
    laws=[
        Law(
            "no input is found for an operator that only scales the queries first, which changes the last "
            "digits at most",
            MATRIX_FORM,
            _telling_law("nothing is wrong: the queries are scaled first"),
            lambda inputs, value: None if value is None or _no_input(value) else "yours gives one",
        )
    ],
    compare=_telling_compare,
    builds_on=("attention", "softargmax"),
)


def _tried(operator: Callable, trials: list, exact: bool = False) -> Any:
    """The first input on which an operator and attention differ."""
    for query, key, value in trials:
        scores = query @ key.mT / math.sqrt(query.shape[-1])
        expected = torch.softmax(scores, -1) @ value
        off = (operator(query, key, value) - expected).abs()
        if not bool((off <= (0 if exact else 1e-8)).all()):
            return query, key, value
    return None


def _drawn(*sizes):
    generator = torch.Generator().manual_seed(0)
    drawn = []
    for batch, queries, keys, dim, value_dim, size in sizes:
        shapes = (*batch, queries, dim), (*batch, keys, dim), (*batch, keys, value_dim)
        q, k, v = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in shapes)
        drawn.append((size * q, k, v))
    return drawn


@telling_input.mistake(
    "nobody is found at fault",
    hint="""Most of these operators have a fault. Try inputs of your own and compare what the operator gives
    with what your attention gives.""",
    read=ROWS_AND_COLUMNS,
)
def tells_nothing(operator, query, key, value):
    return None


@telling_input.mistake(
    "the input that was given is handed back",
    hint="""On that input every one of the operators is right. In what is it special? How many sequences, how
    many keys, how many features, which signs, how large?""",
    read=ROWS_AND_COLUMNS,
)
def tells_given(operator, query, key, value):
    return query, key, value


@telling_input.mistake(
    "numbers are compared with ==: a difference in the last digits is taken for a fault",
    hint="""Two right ways to compute the same thing differ in the last digits. Compare with a tolerance:
    `torch.allclose`.""",
    read=MATRIX_FORM,
)
def tells_exactly(operator, query, key, value):
    return _tried(operator, _drawn(((2,), 3, 6, 5, 7, 1.0), ((2,), 3, 6, 5, 7, 1e5)), exact=True)


@telling_input.mistake(
    "operators that give NaN for large scores are not found",
    hint="""Multiply the queries by many thousands, too. And mind how you compare: every comparison with
    NaN is False, `off > 0.1` as well. Ask whether all is close, not whether something is far.""",
    read=STABLE,
)
def tells_by_small_numbers(operator, query, key, value):
    return _tried(operator, _drawn(((2,), 3, 6, 5, 7, 1.0)))


@telling_input.mistake(
    "only single sequences are tried",
    hint="""What runs over dimension 1 is right without a batch. Try a batch, too.""",
    read=BATCHES,
)
def tells_without_batch(operator, query, key, value):
    return _tried(operator, _drawn(((), 3, 6, 5, 7, 1.0), ((), 3, 6, 5, 7, 1e5)))


@telling_input.mistake(
    "queries, keys and values are tried with the same sizes only",
    hint="""A scale that is taken from the wrong dimension, or is always 2, is right as long as all sizes
    are 4. Try
    an input in which no two sizes are the same.""",
    read=WHY_THE_SCALE,
)
def tells_by_squares(operator, query, key, value):
    return _tried(operator, _drawn(((2,), 4, 4, 4, 4, 1.0), ((2,), 4, 4, 4, 4, 1e5)))


# ---------------------------------------------------------------------------------------
# The experiment: what is predicted, and what is read in its records
# ---------------------------------------------------------------------------------------


def _predicted_loss(weights: Tensor, asked: int, value_std: float) -> float:
    wanted = torch.zeros_like(weights)
    wanted[asked] = 1
    return value_std**2 * (weights - wanted).square().sum().item()


def _predicted_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(weights: Tensor, asked: int, value_std: float, note: str) -> Case:
        return Case({"weights": weights, "asked": asked, "value_std": value_std}, note)

    # Where a key gets nearly all the weight and was asked for, large terms leave a loss of their last digits.
    sharp = torch.softmax(2 * normal(5), -1)
    return [
        case(torch.softmax(normal(6), -1), 2, 1.0, "six keys"),
        case(torch.full((16,), 1 / 16), 0, 1.0, "sixteen keys with equal weights"),
        case(sharp, int(sharp.argsort()[2]), 3.0, "values of standard deviation 3"),
        case(torch.eye(7)[3], 5, 0.5, "all weight on a key that was not asked for"),
        case(torch.eye(7)[3], 3, 2.0, "all weight on the key that was asked for"),
        case(normal(4).abs(), 1, 1.5, "weights that do not sum to 1"),
    ]


def _one_hot_law(place: int, expected: float) -> dict[str, Any]:
    def broken(inputs: dict[str, Any], value: float) -> str | None:
        return None if math.isclose(value, expected, abs_tol=1e-6) else f"yours gives {shown(value)}"

    return {
        "inputs": lambda normal: {"weights": torch.eye(4)[place], "asked": 1, "value_std": 3.0},
        "broken": broken,
    }


predicted_loss = Task(
    "predicted_loss",
    _predicted_loss,
    {"weights": torch.tensor([0.25, 0.5, 0.25]), "asked": 0, "value_std": 2.0},
    _predicted_cases,
    laws=[
        Law(
            "with all weight on the key that was asked for, the loss is 0",
            TWO_LIMITS,
            **_one_hot_law(1, 0.0),
        ),
        Law(
            "with all weight on another key, the loss is twice the variance of the values, here 18",
            TWO_LIMITS,
            **_one_hot_law(2, 18.0),
        ),
        Law(
            "with equal weights for n keys, the loss is the variance of the values times 1 - 1/n, here 0.75",
            TWO_LIMITS,
            lambda normal: {"weights": torch.full((4,), 0.25), "asked": 1, "value_std": 1.0},
            lambda inputs, value: (
                None if math.isclose(value, 0.75, rel_tol=1e-5) else f"yours gives {shown(value)}"
            ),
        ),
        Law(
            "with a weight of 2 for the key that was asked for and 0 for all others, the loss is the "
            "variance of the values, here 9",
            ONE_QUERY,
            lambda normal: {"weights": 2 * torch.eye(4)[1], "asked": 1, "value_std": 3.0},
            lambda inputs, value: (
                None if math.isclose(value, 9, rel_tol=1e-5) else f"yours gives {shown(value)}"
            ),
        ),
    ],
)


@predicted_loss.made_of(
    parts=wrongs(
        ONE_QUERY,
        """
        output only: the variance of the output alone, without what was wanted
            The loss compares the output with the value that was asked for, and that value is a part of the
            output. Write down the difference of the two: which factor does each value get in it?
        others only: the value that was asked for is left out
            It has its weight in the output, and stands with weight 1 in what is wanted. What remains of it
            in the difference?
        asked only: only the value that was asked for is counted
            The other values are in the output, too, each with its weight. None of them was asked for:
            what they add is error, too.
        apart: output and wanted value are taken for independent
            The variances of two independent numbers add up. But the output contains the very value that is
            wanted. Collect the factors of each value first.
        together: the factors are added up before they are squared
            The values are independent of each other: the variance of their sum is a sum of squares, not the
            square of a sum. (attention_operator#why-the-scale)
        normalised: the weights are made to sum to 1 first
            They need not: the loss is asked for as they are.
        absolute: the factors are not squared
            A factor c multiplies a variance by c squared. (attention_operator#why-the-scale)
        """,
    ),
    std=wrongs(
        WHY_THE_SCALE,
        """
        plain: the standard deviation stands where the variance should
            A squared error is measured in squares. If all values are twice as large, how much larger is it?
        none: the size of the values is left out
            If all values are twice as large, what happens to the error, and to its square?
        """,
    ),
    mean=wrongs(
        ONE_QUERY,
        """
        keys: the loss is divided by the number of keys
            The output of a query is one number, and so is its error. The sum over the keys is inside that
            number, and is no mean.
        """,
    ),
)
def any_prediction(weights, asked, value_std, *, parts="", std="variance", mean=""):
    if parts == "normalised":
        weights = weights / weights.sum()
    factors = weights.clone()
    factors[asked] -= 1
    others = torch.cat([weights[:asked], weights[asked + 1 :]])
    total = {
        "output only": weights.square().sum(),
        "others only": others.square().sum(),
        "asked only": (1 - weights[asked]) ** 2,
        "apart": 1 + weights.square().sum(),
        "together": factors.sum() ** 2,
        "absolute": factors.abs().sum(),
    }.get(parts, factors.square().sum())
    size = {"plain": value_std, "none": 1.0}.get(std, value_std**2)
    return (size * total / (len(weights) if mean == "keys" else 1)).item()


FAULTS = ("right", "no scale", "scaled twice", "over the queries")


def _record(normal: Normal, fault: str, num_queries: int, num_keys: int, key_dim: int) -> dict[str, Tensor]:
    """What a training with this fault leaves behind; how well it went says nothing."""

    def weights(scale: float, sharper: float = 0.0) -> Tensor:
        scores = scale * normal(num_queries, key_dim) @ normal(num_keys, key_dim).mT
        asked = (normal(num_queries).abs() * 1000).long() % num_keys
        scores[range(num_queries), asked] += sharper
        return torch.softmax(scores, 0 if fault == "over the queries" else -1)

    first, last = 2 * normal(2).abs() + 0.1
    steps = torch.arange(40.0)
    loss = last + (first - last) * torch.exp(-steps / 8)
    scale = {"no scale": 1.0, "scaled twice": 1 / key_dim}.get(fault, key_dim**-0.5)
    # After training weights are as sharp with too little scale, and with too much: it was learned.
    after = weights(key_dim**-0.5, sharper=12.0)
    return {"before": weights(scale), "after": after, "loss": loss + 0.01 * normal(40).abs()}


def _diagnosis(before: Tensor, after: Tensor, loss: Tensor) -> str:
    if not torch.allclose(before.sum(-1), torch.ones(len(before)), atol=1e-3):
        return "over the queries"
    spread = before.clamp(min=1e-30).log().std(-1).mean()  # of the scores, but for a constant in each row
    return "no scale" if spread > 3 else "scaled twice" if spread < 0.4 else "right"


def _diagnosis_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    # So many queries that a mean over them hardly depends on the draw.
    sizes = {
        "as many queries as keys": (48, 48, 144),
        "more queries than keys": (60, 12, 100),
        "fewer queries than keys": (40, 64, 144),
        "eight keys": (120, 8, 256),
        "a hundred keys": (50, 100, 144),
        "very many features": (40, 12, 1024),
    }
    # Every training in every size, so that no size tells how it went.
    named = in_any_order([f"{note}: {fault}" for note in sizes for fault in FAULTS], seed)
    settings = [name.split(": ") for name in named]
    return [Case(_record(normal, fault, *sizes[note]), note) for note, fault in settings]


def _is_named(fault: str, sentence: str, read: str) -> Law:
    return Law(sentence, read, lambda normal: _record(normal, fault, 40, 16, 100), laws.says(fault))


diagnosis = Task(
    "diagnosis",
    _diagnosis,
    {
        "before": torch.tensor([[0.5, 0.5], [0.25, 0.25], [0.25, 0.25]]),
        "after": torch.tensor([[0.9, 0.0], [0.1, 0.0], [0.0, 1.0]]),
        "loss": torch.tensor([1.0, 0.5, 0.25]),
    },
    _diagnosis_cases,
    laws=[
        _is_named("over the queries", 'rows that do not sum to 1 are "over the queries"', ROWS_AND_COLUMNS),
        _is_named(
            "no scale", 'weights that are nearly one-hot before any training are "no scale"', WHY_THE_SCALE
        ),
        _is_named(
            "scaled twice",
            'weights that are nearly equal before any training are "scaled twice"',
            WHY_THE_SCALE,
        ),
        _is_named(
            "right", 'rows that sum to 1, soft but not equal before any training, are "right"', WHY_THE_SCALE
        ),
    ],
)


@diagnosis.made_of(
    record=wrongs(
        WHY_THE_SCALE,
        """
        after: the weights after training are judged instead of those before it
            An operator that has learned to look up attends to one key almost alone, and so it should. It is
            at the start that weights must be soft.
        """,
    ),
    sums=wrongs(
        ROWS_AND_COLUMNS,
        """
        columns: the columns are expected to sum to 1
            A row belongs to a query, and it is the query that shares out its attention. Columns may sum to
            anything.
        total: only the sum of all weights is looked at
            With as many queries as keys all weights sum to the same, whichever way they were normalised.
            Look at each row.
        unlooked: the sums of the rows are not looked at
            A softargmax over the queries gives weights that look much like others, but their rows do not sum
            to 1.
        """,
    ),
    spread=wrongs(
        WHY_THE_SCALE,
        """
        one row: a single large weight is taken for a missing scale
            Among many soft rows, some row is sharp by chance. Take a mean over the rows.
        no even: weights that are nearly equal are not looked for
            Divided by the number of features instead of its root, the scores are nearly 0, and all weights
            nearly the same.
        no sharp: weights that are nearly one-hot are not looked for
            Without the scale the scores are large before anything was learned, and each row attends to one
            key by chance.
        swapped: sharp and even have changed places
            Do scores without a scale lie far apart or close together? And what does that do to the weights?
        fixed: the largest weight is compared with the same two numbers, however many keys there are
            Equal weights of six keys are each a sixth, and of a hundred keys each a hundredth. With what
            does "nearly equal" have to be compared?
        zeros: the logarithm is taken of weights that are 0
            Without the scale some weights are so small that they are rounded to 0. Their logarithm is minus
            infinity, and no standard deviation with that is a number. There is `clamp`.
        """,
    ),
)
def any_diagnosis(before, after, loss, *, record="before", sums="rows", spread="mean"):
    weights = after if record == "after" else before
    total = {"columns": weights.sum(0), "total": weights.sum()[None] / len(weights)}.get(
        sums, weights.sum(-1)
    )
    if sums != "unlooked" and bool(((total - 1).abs() > 1e-3).any()):
        return "over the queries"
    scores = weights.clamp(min=0 if spread == "zeros" else 1e-30).log().std(-1).mean()
    sharp, even = bool(scores > 3), bool(scores < 0.4)
    if spread == "fixed":
        sharp, even = bool(weights.amax(-1).mean() > 0.5), bool(weights.amax(-1).mean() < 0.1)
    if spread == "one row":
        sharp = bool(weights.amax() > 0.4)
    if sharp and spread != "no sharp":
        return "scaled twice" if spread == "swapped" else "no scale"
    if even and spread != "no even":
        return "no scale" if spread == "swapped" else "scaled twice"
    return "right"


@diagnosis.mistake(
    "the run is judged by its loss alone",
    hint="""A right operator that was trained for a short time may end with a larger loss than one without a
    scale that was trained for long. Which of the records is made before training?""",
    read=WHY_THE_SCALE,
)
def diagnosis_by_loss(before, after, loss):
    return "right" if loss[-1] < loss[0] / 2 else "no scale"


@diagnosis.mistake(
    "every run is called right",
    hint="""Three of the four words stand for a fault. Look at the sums of the rows, and at how much the
    weights of a row differ, before training.""",
    read=ROWS_AND_COLUMNS,
)
def diagnosis_of_all(before, after, loss):
    return "right"
