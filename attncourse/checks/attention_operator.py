"""Tasks of the unit ``attention_operator``: from one query to the batched matrix form."""

import math
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
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, normal_source, wrongs
from attncourse.checks.verdict import shown

SOFTMAX = (
    "softmax",
    "log_softmax",
    "special_softmax",
    "_softmax",
    "softmin",
    "logsumexp",
    "special_logsumexp",
)


# ---------------------------------------------------------------------------------------
# One query at a time
# ---------------------------------------------------------------------------------------


def _single_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_operator.attention(query[None], key, value)[0]


def _single_query_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_keys: int, key_dim: int, value_dim: int, note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs = {
            "query": normal(key_dim, dtype=dtype),
            "key": normal(num_keys, key_dim, dtype=dtype),
            "value": normal(num_keys, value_dim, dtype=dtype),
        }
        return Case(inputs, note, **how)

    return [
        case(3, 2, 2),
        case(5, 4, 3, "more keys than features"),
        case(3, 9, 9, "as many value as key features"),
        case(1, 4, 2, "a single key"),
        case(6, 3, 5, "double precision", dtype=torch.float64),
        case(4, 8, 3, "keys and values that are not contiguous", contiguous=False),
        case(4, 3, 1, "a single feature in the values"),
    ]


ONE_QUERY = "attention_operator#one-query"
SOFTARGMAX = "attention_operator#softargmax"
WHY_THE_SCALE = "attention_operator#why-the-scale"
TWO_LIMITS = "attention_operator#two-limits"
MATRIX_FORM = "attention_operator#matrix-form"
ROWS_AND_COLUMNS = "attention_operator#rows-and-columns"
BATCHES = "attention_operator#batches"

single_query = Task(
    "single_query",
    _single_query,
    {
        "query": torch.tensor([2.0, 0.0, 0.0, 0.0]),
        "key": torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "value": torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]]),
    },
    _single_query_cases,
    laws=[
        laws.ones_come_back(draw_single, SOFTARGMAX),
        laws.equal_keys_average(draw_single, TWO_LIMITS),
        laws.between_the_values(draw_single, ONE_QUERY),
        laws.order_of_keys_is_nothing(draw_single, ONE_QUERY),
        laws.features_written_twice(draw_single, WHY_THE_SCALE),
        laws.best_match_takes_all(draw_single, TWO_LIMITS),
    ],
    refuses=SOFTMAX,
)


@single_query.made_of(
    similarity=only(SIMILARITY, "cosine", "distance", "negated", "values"),
    scale=without(SCALE, "num queries", "first dim"),
    normaliser=without(NORMALISER, "one maximum", "overflows"),
    averaged=only(AVERAGED, "key", "weights", "plain mean", "divided again", "summed"),
)
def one_query(query, key, value, *, similarity="", scale="root", normaliser="", averaged=""):
    return attend(query[None], key, value, similarity, scale, "keys", normaliser, averaged)[0]


@single_query.mistake(
    "the sum below the fraction bar runs only over the keys so far",
    hint="""A weight needs the sum over all keys. While your loop is at the first key, that sum is not yet
    complete. One loop can collect the exponentials, and a second one use them.""",
    read=SOFTARGMAX,
)
def running_sum(query, key, value):
    exponentials = torch.exp(key @ query / math.sqrt(query.shape[0]))
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
    ],
    refuses=SOFTMAX,
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
    # The other scores are lower by at least this much for each unit of the query's length.
    others = torch.cat([key[:index], key[index + 1 :]]) @ key[index]
    gap = (1 - others.max()) / math.sqrt(key.shape[1])
    # share of one against (1 - share) of all others, if all were as close as the closest.
    needed = math.log(share / (1 - share) * (len(key) - 1))
    return key[index] * (1.01 * needed / gap)


def _picking_compare(inputs: dict[str, Any], query: Any) -> str | None:
    key, index, share = inputs.values()
    wrong = _wrong_query(key, query)
    if wrong is not None:
        return wrong
    weights = _weights(query, key)
    if weights[index] >= share:
        return None
    best = int(weights.argmax())
    if best != index:
        return (
            f"with this query key {best} gets the largest weight, {weights[best]:.4f}, instead of key {index}"
        )
    return f"with this query key {index} gets a weight of {weights[index]:.6f}, less than {share}"


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
    return [
        one_sided,
        case(4, 6, 2, 0.9),
        case(5, 3, 0, 0.99, "the first key"),
        case(7, 16, 6, 0.999, "the last key, and a share of 0.999"),
        case(12, 2, 5, 0.95, "twelve keys with two features, some of them close"),
        case(3, 8, 1, 0.99, "double precision", dtype=torch.float64),
    ]


def _points_to_key(inputs: dict[str, Any], query: Tensor) -> str | None:
    best = int((inputs["key"] @ query.to(inputs["key"].dtype)).argmax())
    return (
        None
        if best == inputs["index"]
        else f"with yours it is key {best}, and key {inputs['index']} was wanted"
    )


picking_query = Task(
    "picking_query",
    _picking_query,
    {"key": torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), "index": 2, "share": 0.9},
    _picking_cases,
    laws=[
        Law(
            "among keys of length 1 the one wanted has the largest dot product with the query",
            TWO_LIMITS,
            lambda normal: {"key": _unit_keys(normal, 5, 4), "index": 1, "share": 0.5},
            _points_to_key,
        )
    ],
    compare=_picking_compare,
    builds_on=("softargmax",),
)


@picking_query.mistake(
    "the query is the key itself, which points the right way but is too short",
    hint="""The direction is right: no other key of length 1 matches better. What happens to the differences
    between the scores when the query is made longer?""",
    read="attention_operator#two-limits",
)
def picks_with_key(key, index, share):
    return key[index]


@picking_query.mistake(
    "the query is shortened by the share",
    hint="""The share is a weight, after the softargmax. A query shorter than the key makes the scores, and so
    the weights, more alike.""",
    read="attention_operator#two-limits",
)
def picks_with_share(key, index, share):
    return share * key[index]


@picking_query.mistake(
    "the query only makes up for the scale",
    hint="""Now the matching key has a score of exactly 1, and exp(1) is not much larger than exp(0). By how
    much must the best score lead?""",
    read="attention_operator#two-limits",
)
def picks_unscaled(key, index, share):
    return math.sqrt(key.shape[1]) * key[index]


@picking_query.mistake(
    "the query points away from the key",
    hint="""A dot product is largest where two vectors point the same way. Yours is the smallest possible for
    this key.""",
    read="attention_operator#two-limits",
)
def picks_opposite(key, index, share):
    return -1000 * key[index]


@picking_query.mistake(
    "the mean of the keys is subtracted from the key",
    hint="""Of the keys that lie to one side, the mean points away from that side, and with it your query.
    Another
    key may then match better. Which direction does a key of length 1 match best?""",
    read="attention_operator#two-limits",
)
def picks_key_without_mean(key, index, share):
    return 1000 * (key[index] - key.mean(0))


@picking_query.mistake(
    "the query is a one-hot vector over the features",
    hint="""A query lives in the space of the features, not in the space of the positions: it has no entry
    for key number `index`. What do you know about that key that could tell it from the others?""",
    read="attention_operator#one-query",
)
def picks_one_hot(key, index, share):
    query = torch.zeros_like(key[0])
    query[index] = 1
    return query


def _averaging_query(key: Tensor) -> Tensor:
    return torch.zeros_like(key[0])


def _averaging_compare(inputs: dict[str, Any], query: Any) -> str | None:
    (key,) = inputs.values()
    wrong = _wrong_query(key, query)
    if wrong is not None:
        return wrong
    weights = _weights(query, key)
    if weights.max() - weights.min() < 1e-6:
        return None
    difference = (weights.max() - weights.min()).item()
    return f"with this query the largest and the smallest weight differ by {difference:.3g}"


def _averaging_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"key": normal(5, 3)}),
        Case({"key": normal(8, 8)}, "as many keys as features"),
        Case({"key": 10 * normal(20, 4) + 3}, "long keys, away from the origin"),
        Case({"key": normal(9, 6, dtype=torch.float64)}, "double precision"),
    ]


def _no_product(inputs: dict[str, Tensor], query: Tensor) -> str | None:
    products = inputs["key"] @ query.to(inputs["key"].dtype)
    words = f"with yours they are {', '.join(map(shown, products.tolist()))}"
    return None if products.abs().max() < 1e-6 else words


averaging_query = Task(
    "averaging_query",
    _averaging_query,
    {"key": torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])},
    _averaging_cases,
    laws=[
        Law(
            "its dot products with two keys that point opposite ways are the same, and so 0",
            TWO_LIMITS,
            lambda normal: {"key": torch.tensor([[1.0, 2.0], [-1.0, -2.0], [2.0, -1.0], [-2.0, 1.0]])},
            _no_product,
        )
    ],
    compare=_averaging_compare,
)


@averaging_query.mistake(
    "the query is the mean of the keys",
    hint="""The mean of the keys matches some keys better than others. Equal weights need equal scores. Which
    query has the same dot product with every vector there is?""",
    read="attention_operator#two-limits",
)
def averages_with_mean(key):
    return key.mean(0)


@averaging_query.mistake(
    "the query is all ones",
    hint="""The dot product with a vector of ones adds up a key's features, and that sum differs from key to
    key.""",
    read="attention_operator#two-limits",
)
def averages_with_ones(key):
    return torch.ones_like(key[0])


@averaging_query.mistake(
    "the query holds the equal weights themselves",
    hint="""1 over the number of keys is what the weights should become. The query is not the weights: it has
    one number for each feature, and they are made from its scores.""",
    read="attention_operator#two-limits",
)
def averages_with_weights(key):
    return torch.full_like(key[0], 1 / key.shape[0])


@averaging_query.mistake(
    "the query is the sum of the keys",
    hint="""Every key is in the sum, but a long key, or one with many neighbours, matches it best. Equal
    weights need equal scores.""",
    read="attention_operator#two-limits",
)
def averages_with_sum(key):
    return key.sum(0)


# ---------------------------------------------------------------------------------------
# The scale
# ---------------------------------------------------------------------------------------


def _score_scale(key_dim: int, query_std: float, key_std: float) -> float:
    return 1 / (query_std * key_std * math.sqrt(key_dim))


def _score_scale_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    high, low = (1 + torch.rand(2, generator=generator)).tolist()
    settings = [
        (16, 1.0, 1.0, "variances of 1"),
        (100, 1.0, 1.0, "many features"),
        (8, 2.0, 2.0, "longer queries and keys"),
        (50, round(3 * high, 2), round(low / 4, 2), "queries and keys of different size"),
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
    variance = (factor / _score_scale(**inputs)) ** 2
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
        **only(AXIS, "dim 0", "dim 1", "all"),
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
# The rabbit sentence: queries, keys and values from one input
# ---------------------------------------------------------------------------------------


def _self_attention(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return attention_operator.attention_weights(x @ W_Q, x @ W_K) @ (x @ W_V)


def _layer_case(
    normal: Any,
    batch: tuple[int, ...],
    length: int,
    model_dim: int,
    key_dim: int,
    value_dim: int,
    note: str,
    **how: Any,
) -> Case:
    dtype = how.pop("dtype", torch.float32)
    # Weights of variance 1 / model_dim give queries, keys and values the variance of x.
    std = model_dim**-0.5
    inputs = {
        "x": normal(*batch, length, model_dim, dtype=dtype),
        "W_Q": 1.5 * std * normal(model_dim, key_dim, dtype=dtype),
        "W_K": 1.5 * std * normal(model_dim, key_dim, dtype=dtype),
        "W_V": std * normal(model_dim, value_dim, dtype=dtype),
    }
    return Case(inputs, note, **how)


def _self_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        _layer_case(normal, (), 9, 4, 3, 2, "nine words"),
        _layer_case(normal, (), 5, 6, 6, 6, "square weights"),
        _layer_case(normal, (), 6, 6, 6, 6, "everything square"),
        _layer_case(normal, (), 4, 8, 2, 5, "double precision", dtype=torch.float64),
        _layer_case(normal, (), 1, 3, 2, 4, "a single word"),
    ]


THREE_INPUTS = "attention_operator#three-inputs"
VALUES_NOT_INPUTS = "attention_operator#values-not-inputs"
NOT_SYMMETRIC = "attention_operator#not-symmetric"

MADE_FROM = wrongs(
    THREE_INPUTS,
    """
    keys like queries: the keys are made with the weights of the queries
        What a word looks for and what it offers are two things. With the same weights for both, relatedness
        would have to be mutual. (attention_operator#not-symmetric)
    exchanged: queries and keys have changed places
        The queries are made with the weights for keys, and the keys with those for queries. Scores are not
        symmetric: who asks whom? (attention_operator#not-symmetric)
    inputs averaged: the inputs are averaged instead of the values
        What a word hands over need not be what it is. Which of the three weights says what it hands over,
        and where do you use it? (attention_operator#values-not-inputs)
    inputs compared: the scores compare the inputs themselves, without queries and keys
        The inputs are compared as they are. Two of the three weights have not been used.
    inputs only: none of the three weights is used
        The sentence is compared with itself, word by word, and averaged. What the layer can learn, its
        weights, plays no part.
    queries only: the keys are the inputs themselves
        The queries are made with their weights, the keys are not. Which weight is not used?
    transposed: the weights are transposed before they are applied
        PyTorch's `nn.Linear` stores its weight transposed. Here rows are positions and a weight has shape
        (input features, output features): which product fits as it stands?
    values like keys: the values are made with the weights of the keys
        What a word offers to be found by, and what it then hands over, are two things, with two weights.
    """,
)

# The scale of a layer has one more number that it could be taken from.
LAYER_SCALE = {
    **without(SCALE, "first dim", "num queries"),
    "model dim": Wrong(
        "the scale uses the features of the input instead of those of the queries",
        """The dot product is taken after the projection. How many terms does it have then?""",
        WHY_THE_SCALE,
    ),
}


def project(
    x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, made_from: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, with one of the choices of `MADE_FROM`."""
    if made_from == "transposed":
        W_Q, W_K, W_V = W_Q.mT, W_K.mT, W_V.mT
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    match made_from:
        case "keys like queries":
            return query, query, value
        case "exchanged":
            return key, query, value
        case "inputs averaged":
            return query, key, x
        case "inputs compared":
            return x, x, value
        case "inputs only":
            return x, x, x
        case "queries only":
            return query, x, value
        case "values like keys":
            return query, key, key
    return query, key, value


def _rooted_layer(x, W_Q, W_K, W_V, made_from, scale, axis, normaliser, averaged):
    query, key, value = project(x, W_Q, W_K, W_V, made_from)
    if scale == "model dim":
        query, scale = query / math.sqrt(x.shape[-1]), "none"
    return attend(query, key, value, "", scale, axis, normaliser, averaged)


def _zeroed(name: str) -> Any:
    def inputs(normal: Normal) -> dict[str, Tensor]:
        drawn = _layer_case(normal, (), 4, 3, 3, 2, "").inputs
        return drawn | {name: torch.zeros_like(drawn[name])}

    return inputs


def _is_mean_of_values(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    mean = (inputs["x"] @ inputs["W_V"]).mean(-2, keepdim=True).expand_as(value)
    return laws.is_not(value, mean, "yours gives {yours} at {place}, and the mean is {expected}")


def _is_nothing(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value, torch.zeros_like(value), "yours gives {yours} at {place}")


def _reordered(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _layer_case(normal, (), 4, 3, 3, 2, "").inputs
    return [drawn, drawn | {"x": drawn["x"].flip(-2)}]


def _follows_order(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "turned round, yours gives {yours} at {place} where it gave {expected} for the same word"
    return laws.is_not(values[1], values[0].flip(-2), words)


def _twice_as_many_features(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _layer_case(normal, (), 4, 3, 3, 2, "").inputs
    twice = {name: torch.cat([drawn[name]] * 2, -1) for name in ("W_Q", "W_K")}
    return [drawn | twice, drawn | {"W_Q": drawn["W_Q"] * 2**0.5}]


LAYER_LAWS = [
    Law(
        "with W_V of zeros nothing is handed over: every output is zero",
        THREE_INPUTS,
        _zeroed("W_V"),
        _is_nothing,
    ),
    Law(
        "with W_Q of zeros every output is the plain mean of the values",
        TWO_LIMITS,
        _zeroed("W_Q"),
        _is_mean_of_values,
    ),
    Law(
        "with W_K of zeros every output is the plain mean of the values",
        TWO_LIMITS,
        _zeroed("W_K"),
        _is_mean_of_values,
    ),
    Law(
        "turning the sentence round turns the outputs round, and nothing else",
        NOT_SYMMETRIC,
        _reordered,
        _follows_order,
    ),
    Law(
        "queries and keys with every feature twice do the same as queries that are longer by the root of 2",
        WHY_THE_SCALE,
        _twice_as_many_features,
        _column_twice,
    ),
]

LAYER_PENCIL = {
    "x": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    "W_Q": torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]]),
    "W_K": torch.tensor([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]]),
    "W_V": torch.tensor([[10.0, 0.0], [0.0, 20.0]]),
}

self_attention = Task(
    "self_attention",
    _self_attention,
    LAYER_PENCIL,
    _self_attention_cases,
    laws=LAYER_LAWS,
    builds_on=("attention", "softargmax"),
)


@self_attention.made_of(
    made_from=MADE_FROM,
    scale=LAYER_SCALE,
    axis=only(AXIS, "queries", "all"),
    normaliser=without(NORMALISER, "overflows", "one maximum"),
    averaged=only(AVERAGED, "weights", "transposed", "divided again"),
)
def any_self_attention(
    x, W_Q, W_K, W_V, *, made_from="", scale="root", axis="keys", normaliser="", averaged=""
):
    return _rooted_layer(x, W_Q, W_K, W_V, made_from, scale, axis, normaliser, averaged)


# ---------------------------------------------------------------------------------------
# Reading the attention matrix
# ---------------------------------------------------------------------------------------


def _most_attended(weights: Tensor) -> Tensor:
    return weights.argmax(-1)


def _most_attended_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str = "") -> Case:
        return Case({"weights": torch.softmax(2 * normal(*shape), -1)}, note)

    return [
        case(4, 7),
        case(9, 9, note="nine words that attend to each other"),
        case(1, 5, note="a single query"),
        case(3, 5, 6, note="a batch"),
    ]


def _attended_to_one(normal: Normal) -> dict[str, Tensor]:
    order = torch.randperm(4, generator=torch.Generator().manual_seed(int(1000 * normal(1).abs())))
    return {"weights": torch.eye(4)[order]}


def _names_the_one(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    expected = inputs["weights"].nonzero()[:, 1]
    wrong = (value != expected).nonzero()
    if not len(wrong):
        return None
    row = int(wrong[0])
    return f"query {row} attends to key {int(expected[row])} only, and yours says {int(value[row])}"


most_attended = Task(
    "most_attended",
    _most_attended,
    {"weights": torch.tensor([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2]])},
    _most_attended_cases,
    laws=[
        Law(
            "of a query that attends to a single key, the answer is the number of that key",
            ROWS_AND_COLUMNS,
            _attended_to_one,
            _names_the_one,
        )
    ],
)


@most_attended.made_of(
    dim={
        "queries": Wrong(
            "for each key, the query that attends to it most",
            """Being attended to by a word and attending to it are two questions, and their answers differ.
            Is a
            query a row of the weights, or a column?""",
            NOT_SYMMETRIC,
        ),
        "all": Wrong(
            "one position for the whole matrix",
            """Without a dimension, `argmax` counts through all the entries as if they stood in one long row.
            Every query is to have an answer of its own.""",
            ROWS_AND_COLUMNS,
        ),
        "dim 0": AXIS["dim 0"],
        "dim 1": Wrong(
            "dimension 1 is searched, which is the keys only without a batch",
            """Dimensions counted from the front move when a batch is added. Count from the back.""",
            ROWS_AND_COLUMNS,
        ),
    },
    what=wrongs(
        ROWS_AND_COLUMNS,
        """
        least: the key with the smallest weight
            A large weight means much attention. (attention_operator#one-query)
        weight: the largest weight itself, instead of its position
            The question is which key, not how much. `max` with a dimension gives two things.
        both: the weights come along with their positions
            `max` with a dimension returns two things, the largest weights and where they stand. Which of
            the two is asked for?
        """,
    ),
    counting=wrongs(
        ROWS_AND_COLUMNS,
        """
        from one: the keys are counted from 1
            Python and PyTorch count from 0: the first key has number 0.
        """,
    ),
)
def any_most_attended(weights, *, dim="keys", what="position", counting="from zero"):
    if what == "least":
        weights = -weights
    if dim == "all":
        place, largest = weights.argmax(), weights.max()
    else:
        along = {"keys": -1, "queries": -2, "dim 0": 0, "dim 1": 1}[dim]
        largest, place = weights.max(along)
    place = place + (counting == "from one")
    return {"weight": largest, "both": (largest, place)}.get(what, place)


# ---------------------------------------------------------------------------------------
# Find the slips
# ---------------------------------------------------------------------------------------


def _mended_layer_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        _layer_case(normal, (), 5, 4, 4, 4, "no batch"),
        _layer_case(normal, (2,), 3, 4, 4, 4, "a batch"),
        _layer_case(normal, (4,), 4, 4, 4, 4, "everything square"),
        _layer_case(normal, (1,), 1, 4, 4, 4, "a batch of one with a single word"),
        _layer_case(
            normal, (2, 3), 5, 6, 3, 2, "two batch dimensions, in double precision", dtype=torch.float64
        ),
    ]


mended_layer = Task(
    "mended_layer",
    _self_attention,
    LAYER_PENCIL,
    _mended_layer_cases,
    laws=[
        *LAYER_LAWS,
        Law(
            "a sequence gets the same output alone as in a batch",
            BATCHES,
            lambda normal: [
                (drawn := _layer_case(normal, (2,), 4, 3, 3, 3, "").inputs),
                drawn | {"x": drawn["x"][0]},
            ],
            lambda inputs, values: laws.is_not(
                values[1], values[0][0], "at {place} yours gives {expected} in the batch and {yours} alone"
            ),
        ),
    ],
    builds_on=("attention", "softargmax"),
)


@mended_layer.made_of(
    made_from=MADE_FROM,
    scale=LAYER_SCALE,
    axis=AXIS,
    normaliser=without(NORMALISER, "overflows", "one maximum"),
    averaged=only(AVERAGED, "weights", "transposed", "divided again"),
)
def any_mended(x, W_Q, W_K, W_V, *, made_from="", scale="root", axis="keys", normaliser="", averaged=""):
    return _rooted_layer(x, W_Q, W_K, W_V, made_from, scale, axis, normaliser, averaged)
