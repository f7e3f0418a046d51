"""Tasks of the unit ``scaling``: the softargmax piece by piece, and decoding with a cache."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import scaling
from attncourse.checks import laws
from attncourse.checks.attention_operator import SOFTMAX
from attncourse.checks.choices import LOW, SCALE, draw, only, scaled
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.probe.program import trace
from attncourse.probe.scaling import MergeTwo, WithinBudget

ONE_PASS = "scaling#one-pass-softmax"
MERGING = "scaling#merging-partials"
IN_CHUNKS = "scaling#attention-in-chunks"
KV_CACHE = "scaling#kv-cache"
CACHE_SIZE = "scaling#cache-size"
OUT_OF_STEP = "scaling#cache-out-of-step"

# ---------------------------------------------------------------------------------------
# One pass: the largest score and the sum
# ---------------------------------------------------------------------------------------


def _running_total(scores: Tensor) -> Tensor:
    rows = []
    state = scaling.PartialAttention(*scores.new_tensor([[[-math.inf]], [[0.0]], [[0.0]]]))
    for score in scores:
        new = scaling.partial_attention(score.reshape(1, 1).clone(), scores.new_zeros(1, 1))
        state = scaling.merge_partials(state, new)
        rows.append(torch.cat([state.largest[0], state.total[0]]))
    return torch.stack(rows)


def _running_total_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    moving = normal(7)
    moving[0], moving[3] = -3.0, 4.0  # the largest is neither the first nor the last
    below_zero = normal(5) - 6
    forbidden = normal(6)
    forbidden[2] = -math.inf
    forbidden_first = normal(5, dtype=torch.float64)
    forbidden_first[:2] = -math.inf
    return [
        Case({"scores": normal(6).sort().values}, "each larger than those before"),
        Case({"scores": normal(6).sort(descending=True).values}, "each smaller than those before"),
        Case({"scores": moving}, "a largest one in the middle"),
        Case({"scores": below_zero}, "all below zero"),
        Case({"scores": 1000 + normal(5)}, "scores around a thousand"),
        Case({"scores": normal(1)}, "a single score"),
        Case({"scores": forbidden}, "minus infinity in the middle"),
        Case({"scores": forbidden_first}, "minus infinity at the start, in double precision"),
    ]


def _some_scores(normal: Normal) -> dict[str, Tensor]:
    return {"scores": normal(6)}


def _largest_so_far(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "in row {place} of yours it is {yours}, and {expected} has come"
    return laws.is_not(value[:, 0], inputs["scores"].cummax(0).values, words)


def _first_total_is_one(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value[0, 1], torch.ones(()), "yours is {yours}")


def _equal_scores_count(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value[:, 1], torch.arange(1.0, 6.0), "in row {place} yours has {yours}")


def _shifted_alike(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "in row {place} yours has the sum {expected} before and {yours} after 2 was added to every score"
    return laws.is_not(values[1][:, 1], values[0][:, 1], words)


def _knows_no_future(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "at {place} yours has {expected} with two more scores to come, and {yours} without"
    return laws.is_not(values[1], values[0][:4], words)


def _forbidden_adds_nothing(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value[3], value[2], "at {place} of the row yours changes from {expected} to {yours}")


running_total = Task(
    "running_total",
    _running_total,
    {"scores": torch.tensor([1.0, 3.0, 2.0, 3.0])},
    _running_total_cases,
    laws=[
        Law(
            "the first of the two numbers is the largest score so far",
            ONE_PASS,
            _some_scores,
            _largest_so_far,
        ),
        Law("after a single score the sum is exp(0) = 1", ONE_PASS, _some_scores, _first_total_is_one),
        Law(
            "with equal scores the sum is their number: 1, 2, 3, ...",
            ONE_PASS,
            lambda normal: {"scores": torch.full((5,), 2.0)},
            _equal_scores_count,
        ),
        Law(
            "a row does not depend on the scores that come after it",
            ONE_PASS,
            lambda normal: [(drawn := {"scores": normal(6)}), {"scores": drawn["scores"][:4]}],
            _knows_no_future,
        ),
        Law(
            "adding the same number to all scores changes no sum",
            ONE_PASS,
            lambda normal: [(drawn := {"scores": normal(6)}), {"scores": drawn["scores"] + 2}],
            _shifted_alike,
        ),
        Law(
            "a score of minus infinity changes nothing",
            ONE_PASS,
            lambda normal: {"scores": torch.cat([normal(3), torch.tensor([-math.inf])])},
            _forbidden_adds_nothing,
        ),
    ],
    refuses=(*SOFTMAX, "cummax", "cummin", "max_pool"),
    exact_dtype=True,
)

RESCALING = wrongs(
    ONE_PASS,
    """
    never: the sum is not rescaled when a larger score comes
        The exponentials that you have added up so far were taken relative to the old largest score. When
        that changes, all of them are too large. By which factor?
    upside down: the factor is upside down: the sum grows when it should shrink
        A larger largest score makes every exponential relative to it smaller. Is your factor above 1 or
        below?
    afterwards: the sum is rescaled after the new exponential was added to it
        The new exponential is already relative to the new largest score. Only what was there before has to
        be corrected.
    starts again: when a larger score comes, the sum starts again
        The earlier scores still count, only for less than before. By which factor?
    by the score: the sum is rescaled at every step, also when the largest score stays
        The factor is exp(old largest - new largest). What is it when the largest score has not changed?
    """,
)

ADDING = wrongs(
    ONE_PASS,
    """
    relative to old: the new score's exponential is taken relative to the old largest score
        Everything in the sum must be relative to the same number. Which one is it after this step? Find it
        before you take any exponential.
    not relative: the exponentials are not taken relative to the largest score
        Your sum is the sum of exp(score). Scores around a thousand make it infinite, as for any softargmax
        that subtracts nothing.
    not the new largest: a score that is the new largest is not added itself
        Two things happen when a larger score comes: the old sum is corrected, and the new score is added.
    the score: the scores are added, not their exponentials
        The sum is one of exponentials. What is exp of the difference to the largest score?
    """,
)

EMPTY = wrongs(
    ONE_PASS,
    """
    counts one: a first score of minus infinity counts 1
        As long as nothing but minus infinity has come, nothing has been seen. What is the sum of nothing?
    nan: minus infinity minus minus infinity
        As long as nothing but minus infinity has come, the largest score is minus infinity, and the
        difference of two of them is not a number. What should the sum be then?
    zero: the largest score starts at 0
        What becomes of scores that are all below zero? What is the largest of no numbers at all, so that
        any number is larger?
    largest zero: where nothing has been seen, the largest score has become 0
        Subtract something finite, but keep the true largest score beside it: it is asked for, and the next
        step compares with it.
    """,
)


@running_total.made_of(
    rescaling=RESCALING,
    adding=ADDING,
    empty=EMPTY,
    told=wrongs(
        ONE_PASS,
        """
        all: every row has the two numbers of all scores together
            Asked for is what is known just after each score came. After the first, what are the largest and
            the sum?
        two passes: every row has the largest of all scores, also of those that have not come yet
            To know it, you have to go through all scores before you add up anything: two passes. Asked for
            is what is known on the way.
        exchanged: the two numbers of a row are exchanged
            Which of the two is to stand first in a row?
        transposed: the numbers stand in columns: one row of largest scores, one of sums
            Asked for is a row for each score, with two numbers in it. What is the shape of yours?
        """,
    ),
)
def any_running(scores, *, rescaling="", adding="", empty="", told="rows"):
    def exp(difference):
        return torch.exp(difference)

    largest = scores.new_zeros(()) if empty == "zero" else scores.new_tensor(-math.inf)
    everywhere = scores.max()
    total, rows = scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        if told == "two passes":
            new = everywhere
        unseen = new == -math.inf
        if unseen and empty != "nan":
            total = total + (1.0 if empty == "counts one" else 0.0)
            rows.append(torch.stack([new * 0 if empty == "largest zero" else new, total]))
            rows[-1] = rows[-1].nan_to_num(0.0) if empty == "largest zero" else rows[-1]
            continue
        factor = exp(largest - new) if told != "two passes" else scores.new_ones(())
        if rescaling == "never":
            factor = scores.new_ones(())
        if rescaling == "upside down":
            factor = exp(new - largest) if largest > -math.inf else factor
        if rescaling == "starts again":
            factor = (largest == new).to(scores.dtype)
        if rescaling == "by the score":
            factor = exp(score - new) if len(rows) else factor
        match adding:
            case "relative to old":
                added = exp(score - (largest if largest > -math.inf else new))
            case "not relative":
                added = exp(score)
            case "not the new largest":
                added = exp(score - new) * (not rows or largest == new)
            case "the score":
                added = score
            case _:
                added = exp(score - new)
        if rescaling == "afterwards":
            total = (total + added) * (factor if len(rows) else 1)
        else:
            total = total * (1.0 if adding == "not relative" else factor) + added
        largest = new
        rows.append(torch.stack([largest, total]))
    result = torch.stack(rows)
    if told == "all":
        result = result[-1:].expand(len(scores), 2).clone()
    return {"exchanged": result.flip(1), "transposed": result.mT}.get(told, result)


# ---------------------------------------------------------------------------------------
# Merge two finished results
# ---------------------------------------------------------------------------------------

PARTS = ("log_total", "output")


def _merge_outputs(first: tuple, second: tuple) -> tuple:
    parts = []
    for log_total, output in (first, second):
        total = (log_total > -math.inf).to(output.dtype)
        parts.append(scaling.PartialAttention(log_total, total, total * output))
    merged = scaling.merge_partials(*parts)
    seen = merged.total.clamp(min=torch.finfo(merged.total.dtype).tiny)
    return merged.largest + merged.total.log(), merged.weighted / seen


def _results(
    normal: Normal, *batch: int, shift: float = 0.0, empty: str = "", dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    for which in ("first", "second"):
        scores = normal(*batch, 3, 4, dtype=dtype) * 2
        scores = scores + (shift if which == "second" else 0.0)
        if which in empty:
            scores[..., 1, :] = -math.inf
        output = torch.softmax(scores, -1).nan_to_num() @ normal(*batch, 4, 2, dtype=dtype)
        inputs |= {
            f"log_total of {which}": torch.logsumexp(scores, -1, keepdim=True),
            f"output of {which}": output,
        }
    return inputs


def _merge_outputs_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    below = _results(normal)
    for which in ("first", "second"):
        below[f"log_total of {which}"] = below[f"log_total of {which}"] - 200
    apart = _results(normal)
    for which in ("first", "second"):
        apart[f"log_total of {which}"] = apart[f"log_total of {which}"] + torch.tensor([[0], [500], [-500]])
    # Too much for double precision, too, where nothing is subtracted.
    thousands = _results(normal, dtype=torch.float64)
    for which in ("first", "second"):
        thousands[f"log_total of {which}"] += torch.tensor([[0], [2000], [-2000]])
    return [
        Case(_results(normal), "scores of the same size"),
        Case(_results(normal, shift=4.0), "larger scores in the second part"),
        Case(_results(normal, shift=-4.0), "larger scores in the first part"),
        Case(_results(normal, 2, dtype=torch.float64), "a batch, in double precision"),
        Case(_results(normal, shift=300.0), "scores that differ by hundreds"),
        Case(_results(normal, shift=-300.0), "the other way round"),
        Case(below, "all scores far below zero"),
        Case(apart, "queries whose scores differ by hundreds"),
        Case(thousands, "queries whose scores differ by thousands, in double precision"),
        Case(_results(normal, empty="first"), "a row that has seen nothing in the first part"),
        Case(_results(normal, empty="second"), "a row that has seen nothing in the second part"),
        Case(_results(normal, empty="first second"), "a row that has seen nothing in either"),
    ]


def _exchanged_parts(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = list(_results(normal).items())
    names = [name for name, _ in drawn]
    return [dict(drawn), dict(zip(names, (x for _, x in drawn[2:] + drawn[:2]), strict=True))]


def _order_is_nothing(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    for name, one, other in zip(PARTS, *values, strict=True):
        found = laws.is_not(
            other, one, f"of yours, {name} at {{place}} is {{expected}} one way and {{yours}} the other"
        )
        if found:
            return found
    return None


def _log_of_sum(inputs: dict[str, Tensor], value: Any) -> str | None:
    expected = torch.logaddexp(inputs["log_total of first"], inputs["log_total of second"])
    return laws.is_not(
        value[0].exp(), expected.exp(), "from yours follows {yours} at {place}, not {expected}"
    )


def _same_as(which: str) -> Any:
    def broken(inputs: dict[str, Tensor], value: Any) -> str | None:
        for name, part in zip(PARTS, value, strict=True):
            right = part.clone()
            right[..., 1, :] = inputs[f"{name} of {which}"][..., 1, :]
            words = f"{name} in yours is {{yours}} at {{place}}, and was {{expected}} in the part with keys"
            found = laws.is_not(part, right, words)
            if found:
                return found
        return None

    return broken


def _is_between(inputs: dict[str, Tensor], value: Any) -> str | None:
    outputs = [inputs[f"output of {which}"] for which in ("first", "second")]
    inside = value[1].clamp(torch.minimum(*outputs), torch.maximum(*outputs))
    return laws.is_not(
        value[1], inside, "yours is {yours} at {place}, and the nearer of the two is {expected}"
    )


def _equal_totals(normal: Normal) -> dict[str, Tensor]:
    drawn = _results(normal)
    return drawn | {"log_total of second": drawn["log_total of first"].clone()}


def _is_the_mean(inputs: dict[str, Tensor], value: Any) -> str | None:
    mean = (inputs["output of first"] + inputs["output of second"]) / 2
    return laws.is_not(value[1], mean, "yours is {yours} at {place}, and the mean is {expected}")


merge_outputs = Task(
    "merge_outputs",
    _merge_outputs,
    {
        "log_total of first": torch.tensor([[0.0], [2.0]]),
        "output of first": torch.tensor([[4.0], [6.0]]),
        "log_total of second": torch.tensor([[0.0], [-math.inf]]),
        "output of second": torch.tensor([[2.0], [0.0]]),
    },
    _merge_outputs_cases,
    laws=[
        Law(
            "where both parts have the same total, the output is the mean of the two",
            MERGING,
            _equal_totals,
            _is_the_mean,
        ),
        Law("each output lies between those of the two parts", MERGING, _results, _is_between),
        Law(
            "the exponential of the new log_total is the sum of the exponentials of the two",
            MERGING,
            _results,
            _log_of_sum,
        ),
        Law(
            "a part that has seen nothing changes nothing",
            MERGING,
            lambda normal: _results(normal, empty="second"),
            _same_as("first"),
        ),
        Law("it makes no difference which part comes first", MERGING, _exchanged_parts, _order_is_nothing),
    ],
    way=MergeTwo(),
)


@merge_outputs.made_of(
    weight=wrongs(
        MERGING,
        """
        mean: the plain mean of the two outputs is taken
            A part with higher scores must count for more. What do you know of each part beside its output?
        sum: the two outputs are added
            Each is an average over its own keys, and so is what you look for. The shares of the two parts
            must sum to 1.
        larger: the output of the part with the larger log_total is taken alone
            That is nearly right where one is much larger. In general both parts have a share.
        logarithms: the shares are those of the logarithms, not those of the totals
            A part counts for as much as its exponentials sum to. log_total is the logarithm of that.
        exchanged: each output gets the share of the other part
            The part with the larger total counts for more. Which one does in yours?
        overflows: the exponentials are taken without subtracting anything
            For totals of a moderate size this is right. In float32 the exponential of 300 is infinite, in
            float64 that of 2000, and infinite over infinite is not a number.
        all rows: one largest log_total for all rows
            Each row belongs to another query. Relative to another row's number all exponentials may be 0.
        """,
    ),
    log_total=wrongs(
        MERGING,
        """
        sum: the two logarithms are added
            Adding logarithms multiplies the totals. It is the totals that are to be added.
        larger: the larger of the two logarithms comes back
            The total of both is larger than each of them.
        total: the total itself comes back, not its logarithm
            The result is to be merged again, so it must have the same form as the parts.
        mean: the totals are averaged, not added
            Both parts' keys have been seen now, so both totals count in full.
        """,
    ),
    empty={
        "nan": Wrong(
            "minus infinity minus minus infinity",
            """A row that has seen nothing in either part has minus infinity in both. Their difference is not
            a number. Subtract something finite there: what is it to come out as?""",
            MERGING,
        ),
        "zero": Wrong(
            "a log_total of minus infinity comes back as 0",
            """Something finite is to be subtracted there. But 0 is the logarithm of 1, and what has been seen
            is nothing.""",
            MERGING,
        ),
        "passed over": Wrong(
            "a part is passed over, because one of its rows has seen nothing",
            """The other rows of that part have seen something. Each row belongs to another query, and must be
            merged by itself.""",
            MERGING,
        ),
    },
    order=wrongs(
        MERGING,
        """
        output first: the output comes back first, and log_total second
            The result is to have the same form as the parts. In which order do their two tensors stand?
        """,
    ),
)
def any_merge(first, second, *, weight="", log_total="", empty="", order=""):
    if empty == "passed over":
        if (first[0] == -math.inf).any():
            return tuple(second)
        if (second[0] == -math.inf).any():
            return tuple(first)
    larger = torch.maximum(first[0], second[0])
    finite = larger if empty == "nan" else torch.where(larger == -math.inf, 0.0, larger)
    if weight == "all rows":
        finite = finite.max().expand_as(finite)
    if weight == "overflows":
        finite = torch.zeros_like(finite)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    total = a + b
    seen = total if empty == "nan" else torch.where(total == 0, 1.0, total)
    output = (a * first[1] + b * second[1]) / seen
    match weight:
        case "mean":
            output = (first[1] + second[1]) / 2
        case "sum":
            output = first[1] + second[1]
        case "larger":
            output = torch.where(first[0] >= second[0], first[1], second[1])
        case "logarithms":
            output = (first[0] * first[1] + second[0] * second[1]) / (first[0] + second[0])
        case "exchanged":
            output = (b * first[1] + a * second[1]) / seen
    logarithm = {
        "sum": first[0] + second[0],
        "larger": larger,
        "total": torch.exp(finite + total.log()),
        "mean": finite + (total / 2).log(),
    }.get(log_total, finite + total.log())
    if empty == "zero":
        logarithm = torch.where(logarithm == -math.inf, 0.0, logarithm)
    return (output, logarithm) if order == "output first" else (logarithm, output)


# ---------------------------------------------------------------------------------------
# Scores that show a slip
# ---------------------------------------------------------------------------------------

_NUM_SCORES = 8


def _slips() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Averages of eight values by their scores, in two chunks of four, each wrong for some scores."""

    def average(
        m: Callable[[Tensor, Tensor], Tensor] = torch.maximum,
        a: Callable[[Tensor, Tensor], Tensor] = lambda own, m: torch.exp(own - m),
        b: Callable[[Tensor, Tensor], Tensor] = lambda own, m: torch.exp(own - m),
        exp: Callable[[Tensor], Tensor] = torch.exp,
        total: bool = True,
        weighted: bool = True,
        change: Callable[[Tensor], Tensor] = lambda scores: scores,
        least: float = -1e30,
    ) -> Callable[[Tensor, Tensor], Tensor]:
        def function(scores: Tensor, value: Tensor) -> Tensor:
            scores = change(scores)
            first, second = scores[:4], scores[4:]
            m1, m2 = first.amax(-1).clamp(min=least), second.amax(-1).clamp(min=least)
            e1, e2 = exp(first - m1), exp(second - m2)
            both = m(m1, m2)
            f1, f2 = a(m1, both), b(m2, both)
            t1, t2 = (f1, f2) if total else (1.0, 1.0)
            w1, w2 = (f1, f2) if weighted else (1.0, 1.0)
            o = w1 * (e1 @ value[:4]) + w2 * (e2 @ value[4:])
            return o / (t1 * e1.sum(-1) + t2 * e2.sum(-1))

        return function

    def plain(scores: Tensor, value: Tensor) -> Tensor:
        e = torch.exp(scores)
        return (e @ value) / e.sum(-1)

    def relative(to: Callable[[Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        def function(scores: Tensor, value: Tensor) -> Tensor:
            e = torch.exp(scores - to(scores))
            return (e @ value) / e.sum(-1)

        return function

    def means(scores: Tensor, value: Tensor) -> Tensor:
        first = torch.softmax(scores[:4], -1) @ value[:4]
        return (first + torch.softmax(scores[4:], -1) @ value[4:]) / 2

    def last_forgotten(scores: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(scores[:7], -1) @ value[:7]

    def ties(scores: Tensor, value: Tensor) -> Tensor:
        e = torch.exp(scores - scores.amax(-1))
        return (e @ value) / (e.sum(-1) - (scores == scores.amax(-1)).sum(-1) + 1)

    def one(own: Tensor, m: Tensor) -> Tensor:
        return torch.exp(own * 0)

    return {
        "no chunk is brought to the common largest score": average(a=one, b=one),
        "the first chunk is not rescaled": average(a=one),
        "the second chunk is not rescaled": average(b=one),
        "only the totals are rescaled": average(weighted=False),
        "only the weighted sums are rescaled": average(total=False),
        "everything is relative to the first chunk's largest score": average(m=lambda m1, m2: m1),
        "nothing is subtracted": plain,
        "the largest score starts at 0": relative(lambda scores: scores.amax(-1).clamp(min=0)),
        "the largest absolute value is subtracted": relative(lambda scores: scores.abs().amax(-1)),
        "the smallest score is subtracted": relative(lambda scores: scores.amin(-1)),
        "the chunks' outputs are averaged": means,
        "the last key is forgotten": last_forgotten,
        "equal largest scores count once": ties,
        "no exponential is below a fifth": average(exp=lambda x: torch.exp(x).clamp(min=0.2)),
        "scores are rounded to whole numbers": average(change=torch.round),
        "a chunk that may not be seen at all": average(least=-math.inf),
        "negative scores count as 0": average(change=torch.relu),
    }


def _true_average(scores: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(scores, -1) @ value


def _is_shown(average: Callable[[Tensor, Tensor], Tensor], scores: Tensor, value: Tensor) -> bool:
    found = average(scores, value)
    return not bool((found - _true_average(scores, value)).abs() < 0.01)  # NaN is not right, either


def _candidates() -> list[Tensor]:
    up, infinite = torch.arange(8.0).double(), torch.tensor(math.inf).double()
    half = torch.arange(8) < 4
    mixed = torch.tensor([0.3, -1.2, 0.4, 2.1, -0.7, 1.6, 0.2, 0.9]).double()
    return [
        mixed,
        up,
        up.flip(0),
        up * 0,
        mixed + 1000,
        mixed - 1000,
        mixed + 1000 * half,
        mixed - 1000 * half,
        torch.where(half, -infinite, mixed),
        torch.where(half, mixed, -infinite),
    ]


def _showing_scores(average: Callable[[Tensor, Tensor], Tensor], value: Tensor) -> Tensor:
    for scores in _candidates():
        if _is_shown(average, scores, value):
            return scores
    raise ValueError("average is right for all that is tried: expected one that is not")


def _spread_values(normal: Normal) -> Tensor:
    """Eight values that are far apart, in any order."""
    return (3 * torch.arange(8.0) - 10)[normal(8).argsort()].double()


def _showing_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"average": trace(_slips()[name]), "value": _spread_values(normal)}, f"the slip is: {name}")
        for name in in_any_order(_slips(), seed)
    ]


def _showing_compare(inputs: dict[str, Any], value: Any) -> str | None:
    if isinstance(value, list | tuple) and all(type(one) in (int, float) for one in value):
        value = torch.tensor(value, dtype=torch.float64)
    if not isinstance(value, Tensor):
        return "scores were expected: a tensor of eight numbers"
    if value.dtype != torch.float64:
        return f"scores in float64 were expected, and these are {str(value.dtype).removeprefix('torch.')}"
    if value.shape != (_NUM_SCORES,):
        return "eight scores were expected, of shape (8,)"
    scores = value.double()
    if scores.isnan().any() or (scores == math.inf).any():
        return "a score may be any number, or minus infinity, and nothing else"
    if (scores == -math.inf).all():
        return "one score at least must not be minus infinity: there is no right average of nothing"
    if scores[scores > -math.inf].abs().max() > 1e6:
        return "no score was to be larger than a million, or smaller than minus a million"
    if _is_shown(inputs["average"], scores, inputs["value"]):
        return None
    return "with these scores it gives the right average"


def _slip(name: str) -> Callable[[Normal], dict[str, Any]]:
    program = trace(_slips()[name])
    return lambda normal: {"average": program, "value": _spread_values(normal)}


def _not_all_small(inputs: Any, value: Tensor) -> str | None:
    farthest = max((abs(score) for score in value.tolist() if abs(score) < math.inf), default=0.0)
    return None if farthest > 300 else f"the farthest of yours is {farthest:.4g} away"


def _no_forbidden_chunk(inputs: Any, value: Tensor) -> str | None:
    hidden = (value == -math.inf).view(2, 4).all(1)
    return None if hidden.any() else "in yours both chunks have a score above it"


def _same_largest(inputs: Any, value: Tensor) -> str | None:
    number = int((value == value.max()).sum())
    return None if number > 1 else "in yours one score is larger than all others"


def _not_last_only(inputs: Any, value: Tensor) -> str | None:
    weight = float(torch.softmax(value.double(), -1)[-1])
    return None if weight > 1e-5 else f"yours gives the last key a weight of {weight:.4g}"


showing_scores = Task(
    "showing_scores",
    _showing_scores,
    _slip("the last key is forgotten")(normal_source(0)),
    _showing_cases,
    laws=[
        Law(
            "a function that forgets the last key is shown by scores that give this key some weight",
            ONE_PASS,
            _slip("the last key is forgotten"),
            _not_last_only,
        ),
        Law(
            "a function that subtracts nothing is shown by some score that is hundreds away from 0",
            ONE_PASS,
            _slip("nothing is subtracted"),
            _not_all_small,
        ),
        Law(
            "a function that counts equal largest scores once is shown where the largest comes twice",
            ONE_PASS,
            _slip("equal largest scores count once"),
            _same_largest,
        ),
        Law(
            "a function that is wrong only if a chunk is all minus infinity is shown by such a chunk",
            MERGING,
            _slip("a chunk that may not be seen at all"),
            _no_forbidden_chunk,
        ),
    ],
    compare=_showing_compare,
)


@showing_scores.made_of(
    tried=wrongs(
        ONE_PASS,
        """
        mixed: one row of scores is taken for every function, and none is asked
            No row shows every slip: one needs scores that are all far below zero, another one far above.
            Try several rows, and ask the function about each.
        small: no large scores are tried
            Some of the functions overflow, and only there. Try scores in the hundreds and thousands, above
            zero and below.
        above: no row is tried whose scores are all far below zero
            A largest score that starts at 0 does no harm until all scores are far below zero.
        finite: minus infinity is never tried
            In a chunk of keys none of which may be seen, the largest score is minus infinity. What does
            that do
            to the factors?
        no ties: equal scores are never tried
            One of the functions slips only where the largest score comes twice.
        whole: only whole numbers are tried
            One of the functions rounds the scores, and is right wherever there is nothing to round.
        """,
    ),
    compared={
        "nan": Wrong(
            "a result that is not a number is not seen to be wrong",
            """With NaN, `(a - b).abs() > 0.01` is False, and so is `<`. Ask whether the two are
            close, and turn the answer round.""",
            ONE_PASS,
        ),
        "rounding": Wrong(
            "a difference by rounding is taken for a slip",
            """Sums in another order differ in the last digits. What the scores are to show is larger than a
            hundredth.""",
            ONE_PASS,
        ),
        "agreeing": Wrong(
            "scores come back with which the function is right",
            """Asked for are scores that show the slip. Which way round is your comparison?""",
            ONE_PASS,
        ),
    },
    form=wrongs(
        ONE_PASS,
        """
        both: scores and values come back
            The values are given. Asked for are the scores alone.
        output: the wrong average comes back instead of the scores
            Asked for is what the function is to be called with, so that anyone can see it.
        infinite: some score is plus infinity, or not a number
            With that nothing has a right average. A score may be any number, or minus infinity.
        """,
    ),
)
def any_showing(average, value, *, tried="", compared="", form=""):
    up, infinite = torch.arange(8.0).double(), torch.tensor(math.inf).double()
    half = torch.arange(8) < 4
    mixed = torch.tensor([0.3, -1.2, 0.4, 2.1, -0.7, 1.6, 0.2, 0.9]).double()
    rows = {
        "mixed": mixed,
        "up": up,
        "down": up.flip(0),
        "equal": up * 0,
        "above": mixed + 1000,
        "below": mixed - 1000,
        "falls": mixed + 1000 * half,
        "rises": mixed - 1000 * half,
        "first hidden": torch.where(half, -infinite, mixed),
        "second hidden": torch.where(half, mixed, -infinite),
        "far": 5 * up,
    }
    left_out = {
        "small": ("above", "below", "falls", "rises"),
        "above": ("below",),
        "finite": ("first hidden", "second hidden"),
        "no ties": ("equal",),
    }.get(tried, ())
    if tried == "whole":
        rows = {name: row.round() for name, row in rows.items()}
    found = rows["mixed"]
    if tried != "mixed":
        for name, row in rows.items():
            difference = (average(row, value) - torch.softmax(row, -1) @ value).abs()
            shows = not bool(difference < 0.01)
            if compared == "nan":
                shows = bool(difference > 0.01)
            if compared == "rounding":
                shows = not bool(difference == 0)
            if compared == "agreeing":
                shows = not shows
            if shows and name not in left_out:
                found = row
                break
    if form == "both":
        return found, value
    if form == "output":
        return average(found, value)
    return torch.where(found == found.max(), infinite, found) if form == "infinite" else found


# ---------------------------------------------------------------------------------------
# Attention under a memory budget
# ---------------------------------------------------------------------------------------


def _chunked_attention(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> Tensor:
    return scaling.chunked_attention(query, key, value, chunk_size=chunk_size)


def _chunked_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        queries: int,
        keys: int,
        chunk_size: int,
        note: str,
        *batch: int,
        dtype: torch.dtype = torch.float32,
        key_dim: int = 4,
    ) -> Case:
        inputs: dict[str, Any] = {
            "query": normal(*batch, queries, key_dim, dtype=dtype),
            "key": normal(*batch, keys, key_dim, dtype=dtype),
            "value": normal(*batch, keys, 3, dtype=dtype),
            "chunk_size": chunk_size,
        }
        # Scores rise from chunk to chunk for one query and fall for another.
        inputs["key"][..., 0] += torch.linspace(-3, 3, keys, dtype=dtype)
        return Case(inputs, note)

    # Whatever a row is relative to that is not its own largest score so far, some exponential overflows
    # or all of them are 0: from chunk to chunk the scores of the rows rise and fall by 80 and by 160.
    hundreds = case(4, 16, 4, "scores in the hundreds")
    hundreds.inputs["query"][:, 0] = torch.tensor([2.0, -2.0, 1.0, -1.0])
    hundreds.inputs["key"][:, 0] += torch.linspace(-300, 300, 16)
    # In double precision: in single one, scores so large are rounded so much that it shows in the output.
    below = case(4, 12, 4, "all scores far below zero", dtype=torch.float64)
    below.inputs["query"][:, 0] = 10.0
    below.inputs["key"][:, 0] -= 200.0

    return [
        case(5, 12, 4, "three whole chunks"),
        case(5, 11, 4, "a last chunk that is shorter"),
        case(24, 40, 8, "many chunks", key_dim=6),
        case(4, 6, 1, "chunks of one key"),
        case(3, 5, 16, "one chunk that is larger than all"),
        case(1, 9, 4, "one query, in a batch of one", 1),
        case(6, 20, 8, "a batch, in double precision", 2, dtype=torch.float64),
        case(6, 18, 4, "two batch dimensions", 2, 3),
        hundreds,
        below,
        case(20, 18, 2, "small chunks, and many of them", 2, 3, key_dim=5),
    ]


def _draw_chunked(*batch: int) -> laws.Draw:
    inner = draw(*batch, keys=5)
    return lambda normal: {**inner(normal), "chunk_size": 2}


def _size_is_nothing(inputs: list[dict[str, Any]], values: list[Tensor]) -> str | None:
    return laws.is_not(
        values[1], values[0], "at {place} yours gives {expected} with chunks of 1 and {yours} of 2"
    )


def _last_key_counts(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the value of that key is {expected}"
    return laws.is_not(value, inputs["value"][-1:].expand_as(value), words)


def _last_key_matches(normal: Normal) -> dict[str, Any]:
    drawn = _draw_chunked()(normal)
    query = torch.ones_like(drawn["query"]) * 6
    key = torch.zeros_like(drawn["key"])
    key[-1] = 6
    return drawn | {"query": query, "key": key}


chunked_attention = Task(
    "chunked_attention",
    _chunked_attention,
    {
        "query": torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0]]),
        "key": torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 2.0, 0.0, 1.0]]),
        "value": torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]]),
        "chunk_size": 2,
    },
    _chunked_attention_cases,
    laws=[
        laws.ones_come_back(_draw_chunked(), IN_CHUNKS),
        laws.equal_keys_average(_draw_chunked(), IN_CHUNKS),
        Law(
            "a query that matches the last key far better than all others gets the value of that key",
            IN_CHUNKS,
            _last_key_matches,
            _last_key_counts,
        ),
        Law(
            "the size of the chunks changes nothing",
            IN_CHUNKS,
            lambda normal: [(drawn := _draw_chunked()(normal)) | {"chunk_size": 1}, drawn],
            _size_is_nothing,
        ),
        laws.sequences_are_treated_alone(_draw_chunked(2), IN_CHUNKS),
        laws.features_written_twice(_draw_chunked(), "attention_operator#why-the-scale"),
    ],
    # What is in NumPy's arrays would not be counted.
    refuses=("numpy", "__array__", "dlpack", "from_dlpack", "to_dlpack"),
    way=WithinBudget(),
    exact_dtype=True,
    builds_on=("merge_outputs",),
)

_CHUNK_SCALE = {
    name: Wrong(wrong.label, f"This is about what happens within a chunk. {wrong.hint}", wrong.read)
    for name, wrong in only(SCALE, "none", "dim", "two", "value dim", "multiplied").items()
}


@chunked_attention.made_of(
    scale=_CHUNK_SCALE,
    merged=wrongs(
        IN_CHUNKS,
        """
        added: each chunk has a softargmax of its own, and the outputs are added
            The weights of a row must sum to 1 over *all* keys. Yours sum to 1 in every chunk. Put off the
            division until all chunks have been seen.
        averaged: each chunk has a softargmax of its own, and the outputs are averaged
            A chunk with high scores must count for more than one with low scores. In a plain mean every
            chunk counts the same.
        not rescaled: the chunks are added without bringing them to the same largest score
            Each chunk's exponentials are relative to its own largest score. Rescale before adding: this is
            the merge of the task before. (scaling#merging-partials)
        weighted not: the total is rescaled, and the weighted sum is not
            Both were added up from the same exponentials. When the largest score moves, both are off by the
            same factor. (scaling#merging-partials)
        total not: the weighted sum is rescaled, and the total is not
            Both were added up from the same exponentials. When the largest score moves, both are off by the
            same factor. (scaling#merging-partials)
        last only: only the last chunk counts: what came before is overwritten
            After each chunk, what is known of it is to be merged with what is known of those before. Where
            does yours keep that?
        first only: only the first chunk is looked at: the function returns inside the loop
            How often does your loop go round? What stands below it, and how far is it indented?
        """,
    ),
    relative={
        "nothing": Wrong(
            "the exponentials are not taken relative to the largest score",
            """Without subtracting, nothing need be rescaled, and for small scores it is right. What
            becomes of
            large ones?""",
            ONE_PASS,
        ),
        "first chunk": Wrong(
            "everything is relative to the first chunk's largest score",
            """It is right as long as no later chunk has much larger scores. If one has, the exponential
            overflows.""",
            IN_CHUNKS,
        ),
        "newest chunk": Wrong(
            "everything is relative to the newest chunk's largest score, even if an older one is larger",
            """No factor should be above 1. If the newest chunk has low scores, yours is large, and may
            overflow.
            Which of the two numbers is safe?""",
            IN_CHUNKS,
        ),
        "all queries": Wrong(
            "one largest score for all queries",
            """Each row of scores has a largest score of its own. Relative to that of another row, all its
            exponentials may be 0.""",
            IN_CHUNKS,
        ),
        "from zero": Wrong(
            "the largest score starts at 0",
            """If all scores lie far below zero, all exponentials relative to 0 vanish. What is the largest
            of no
            scores at all?""",
            ONE_PASS,
        ),
    },
    cut=wrongs(
        IN_CHUNKS,
        """
        full chunks: the last chunk is left out if it is not full
            How many chunks of 4 are there in 11 keys? `//` rounds down. A slice may reach beyond the end;
            it then stops there.
        number: `chunk_size` is taken for the number of chunks
            It is the number of keys in a chunk. `chunk` and `split` of PyTorch mean different things by
            their number.
        """,
    ),
    divided=wrongs(
        IN_CHUNKS,
        """
        never: the weighted sum is never divided by the total
            The exponentials are no weights yet. Sum them over the keys: is it 1?
        every time: the weighted sum is divided by the total after every chunk
            What is divided is no longer a sum of exponentials, so the next chunk cannot be added to it.
            When have all keys been seen?
        """,
    ),
)
def any_chunked(
    query, key, value, chunk_size, *, scale="root", merged="", relative="", cut="", divided="once"
):
    largest = torch.full((*query.shape[:-1], 1), -math.inf, dtype=query.dtype)
    if relative == "from zero":
        largest = torch.zeros_like(largest)
    total, weighted, number = 0.0, 0.0, 0
    if cut == "number":
        chunk_size = -(-key.shape[-2] // chunk_size)
    for start in range(0, key.shape[-2], chunk_size):
        keys, values = key[..., start : start + chunk_size, :], value[..., start : start + chunk_size, :]
        if cut == "full chunks" and keys.shape[-2] < chunk_size:
            break
        scores = scaled(query @ keys.mT, query, keys, values, scale)
        top = scores.amax(-1, keepdim=True)
        match relative:
            case "nothing":
                new = torch.zeros_like(top)
            case "first chunk":
                new = largest if number else top
            case "newest chunk":
                new = top
            case "all queries":
                new = torch.maximum(largest, top).max().expand_as(top)
            case _:
                new = torch.maximum(largest, top)
        here = top if merged in ("not rescaled", "added", "averaged") else new
        exponentials = torch.exp(scores - here)
        part, of = exponentials.sum(-1, keepdim=True), exponentials @ values
        factor = torch.exp(largest - new) if number or relative == "from zero" else torch.ones_like(new)
        number += 1
        if merged in ("added", "averaged"):
            weighted, total = weighted + of / part, torch.ones_like(part)
        elif merged in ("last only", "first only"):
            if merged == "last only" or number == 1:
                weighted, total = of, part
        else:
            total = total * (1 if merged in ("not rescaled", "total not") else factor) + part
            weighted = weighted * (1 if merged in ("not rescaled", "weighted not") else factor) + of
        if divided == "every time":
            weighted = weighted / total
        largest = new
    if merged == "averaged":
        total = total * number
    return weighted if divided != "once" else weighted / total


@chunked_attention.mistake(
    "the whole matrix of scores is computed",
    hint="""What you cut up afterwards has been in memory before. Cut the *keys*, and compute the scores of a
    chunk inside the loop.""",
    read=IN_CHUNKS,
)
def chunked_whole_matrix(query, key, value, chunk_size):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@chunked_attention.mistake(
    "the queries are cut in chunks instead of the keys",
    hint="""Fewer queries at a time need fewer scores, but each of these rows still has a score for every key,
    however long the sequence. Cut the other side, and it does not matter how many keys there are.""",
    read=IN_CHUNKS,
)
def chunked_queries(query, key, value, chunk_size):
    rows = query.split(chunk_size, -2)
    return torch.cat([torch.softmax(q @ key.mT / math.sqrt(q.shape[-1]), -1) @ value for q in rows], -2)


@chunked_attention.mistake(
    "the chunks are cut along the first dimension, which with a batch counts the sequences",
    hint="""Which dimension are the keys, counted from the back? `split` takes the first one, unless it is
    told.""",
    read=IN_CHUNKS,
)
def chunked_first_dimension(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size), value.split(chunk_size), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ v
        largest = new
    return weighted / total


# ---------------------------------------------------------------------------------------
# A step of decoding
# ---------------------------------------------------------------------------------------


def _decoding_step(
    query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    cache = scaling.KeyValueCache()
    cache.append(key_cache, value_cache)
    cache.append(key, value)
    return cache.attend(query), cache.key, cache.value


def _step(
    normal: Normal,
    cached: int,
    new: int,
    *batch: int,
    dtype: torch.dtype = torch.float32,
    key_dim: int = 4,
) -> dict[str, Tensor]:
    shapes = {"query": (new, key_dim), "key": (new, key_dim), "value": (new, 3)}
    shapes |= {"key_cache": (cached, key_dim), "value_cache": (cached, 3)}
    return {name: normal(*batch, *shape, dtype=dtype) for name, shape in shapes.items()}


def _decoding_step_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    low = _step(normal, 3, 3, 2, dtype=torch.float64)
    low["query"][..., 0], low["key"][..., 0], low["key_cache"][..., 0] = 15, -15, -15
    tempting = _step(normal, 2, 3, 2)
    tempting["query"][..., 0], tempting["key"][..., 2, 0] = 8, 12
    return [
        Case(_step(normal, 5, 1, key_dim=6), "one new position"),
        Case(_step(normal, 0, 1), "the first position"),
        Case(_step(normal, 0, 3), "a prompt of three positions"),
        Case(_step(normal, 4, 3), "three new positions"),
        Case(_step(normal, 3, 1, 2, key_dim=3), "heads"),
        Case(_step(normal, 3, 2, 2, 3, dtype=torch.float64), "a batch and heads, in double precision"),
        Case(_step(normal, 4, 2, 2), "inputs that are not contiguous", contiguous=False),
        Case(low, "scores that are all far below zero"),
        Case(tempting, "a later position with a large score"),
    ]


def _grown(inputs: dict[str, Tensor], value: Any) -> str | None:
    for name, cache in (("key", value[1]), ("value", value[2])):
        expected = torch.cat([inputs[f"{name}_cache"], inputs[name]], -2)
        found = laws.is_not(
            cache, expected, f"{name}_cache in yours has {{yours}} at {{place}}, not {{expected}}"
        )
        if found:
            return found
    return None


def _ones_in_step(inputs: dict[str, Tensor], value: Any) -> str | None:
    return laws.is_not(value[0], torch.ones_like(value[0]), "yours gives {yours} at {place}")


def _one_after_the_other(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    words = "with a later one the first output is {expected} at {place} in yours, and alone {yours}"
    return laws.is_not(values[1][0], values[0][0][:1], words)


def _first_of_two(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _step(normal, 3, 2)
    return [drawn, drawn | {name: drawn[name][:1] for name in ("query", "key", "value")}]


def _sees_itself(inputs: dict[str, Tensor], value: Any) -> str | None:
    words = "yours gives {yours} at {place}, and its own value is {expected}"
    return laws.is_not(value[0], inputs["value"], words)


def _own_value_only(normal: Normal) -> dict[str, Tensor]:
    drawn = _step(normal, 3, 1)
    return drawn | {"value": torch.ones(1, 3), "value_cache": torch.zeros(3, 3)}


def _more_than_nothing(inputs: dict[str, Tensor], value: Any) -> str | None:
    output = value[0]
    return None if bool((output > 0).all()) else f"yours gives {output.min().item():.4g}"


def _of_ones(normal: Normal) -> dict[str, Tensor]:
    drawn = _step(normal, 3, 2)
    return drawn | {name: torch.ones_like(drawn[name]) for name in ("value", "value_cache")}


decoding_step = Task(
    "decoding_step",
    _decoding_step,
    {
        "query": torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
        "key": torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]),
        "value": torch.tensor([[10.0], [20.0]]),
        "key_cache": torch.tensor([[0.0, 1.0, 0.0, 0.0]]),
        "value_cache": torch.tensor([[30.0]]),
    },
    _decoding_step_cases,
    laws=[
        Law(
            "the caches come back with the new positions behind the old ones",
            KV_CACHE,
            lambda normal: _step(normal, 3, 2),
            _grown,
        ),
        Law("values that are all ones come back as ones", KV_CACHE, _of_ones, _ones_in_step),
        Law(
            "the very first position sees nothing but itself, and gets its own value",
            KV_CACHE,
            lambda normal: _step(normal, 0, 1),
            _sees_itself,
        ),
        Law(
            "a new position sees itself: where all values in the cache are 0 and its own are 1, it gets more "
            "than 0",
            KV_CACHE,
            _own_value_only,
            _more_than_nothing,
        ),
        Law(
            "a new position does not see those that come after it",
            KV_CACHE,
            _first_of_two,
            _one_after_the_other,
        ),
    ],
)


@decoding_step.made_of(
    scale=only(SCALE, "none", "dim", "two", "value dim", "num keys", "multiplied", "after"),
    seen={
        "cache only": Wrong(
            "the new positions do not see themselves",
            """The cache that you attend to ends before the new positions. A position may see itself; the
            first
            one would otherwise see nothing. Append first, then attend.""",
            KV_CACHE,
        ),
        "everything": Wrong(
            "of several new positions, the earlier ones see the later ones",
            """A single new position may see everything there is. The first of three may not see the other
            two.
            Which mask says so?""",
            KV_CACHE,
        ),
        "from start": Wrong(
            "the causal mask is aligned at the start, and hides the cache",
            """The new positions are the last ones. The first of them sees the whole cache and itself. How far
            must the edge of the triangle be moved?""",
            "masking#rectangular-masks",
        ),
        "new only": Wrong(
            "the new positions see only one another, and not the cache",
            """Without the earlier keys and values there would be no need to keep them. Who answers the new
            queries?""",
            KV_CACHE,
        ),
        "one less": Wrong(
            "the new positions see the cache and one another, but not themselves",
            """The edge of your triangle is one place too far to the left. A causal mask has the diagonal: a
            position may see itself.""",
            "masking#rectangular-masks",
        ),
        "one less but once": Wrong(
            "a new position sees itself only where there is nothing else to see",
            """The edge of your triangle is one place too far to the left, but for the very first position. A
            causal mask has the diagonal: every position may see itself.""",
            "masking#rectangular-masks",
        ),
        "one more": Wrong(
            "of several new positions, each sees one position too far ahead",
            """The edge of your triangle is one place too far to the right. With nothing in the cache, how
            many
            positions may the first one see?""",
            "masking#rectangular-masks",
        ),
        "by new": Wrong(
            "the edge of the mask is moved by the number of new positions, and not by that of "
            "the cached ones",
            """The first new position sees the whole cache and itself. By how much must the edge be moved, so
            that it does?""",
            "masking#rectangular-masks",
        ),
        "inverted": Wrong(
            "the mask is the wrong way round: what may be seen is hidden",
            """Write down the mask for three new positions. Where do you fill in minus infinity: where it is
            True, or where it is False?""",
            KV_CACHE,
        ),
    },
    hidden={
        "zero score": Wrong(
            "the scores of later positions are set to 0, and not hidden",
            """A score of 0 is a score like any other, and its exponential is 1. Which score gets the weight
            0?""",
            "masking#masking-two-wrong",
        ),
        "zero weight": Wrong(
            "the weights of later positions are set to 0 after the softargmax, so the rest no "
            "longer sums to 1",
            """The division has counted them already. Hide them before the exponential, or divide again.""",
            "masking#masking-two-wrong",
        ),
        **LOW,
    },
    cache=wrongs(
        KV_CACHE,
        """
        in front: the new keys and values are put in front of the cache
            The cache is in the order of the positions, and the new ones come last.
        as it was: the caches come back as they were, without the new positions
            The next step will need the keys and values of this one as well.
        new ones: only the new keys and values come back, without those before
            The next step will need the earlier keys and values, too.
        exchanged: the two caches come back in the wrong order
            First the output, then the keys, then the values.
        """,
    ),
)
def any_step(
    query,
    key,
    value,
    key_cache,
    value_cache,
    *,
    scale="root",
    seen="causal",
    hidden="infinity",
    cache="behind",
):
    def joined(old, new):
        return torch.cat([new, old] if cache == "in front" else [old, new], -2)

    all_keys, all_values = joined(key_cache, key), joined(value_cache, value)
    keys, values = {"cache only": (key_cache, value_cache), "new only": (key, value)}.get(
        seen, (all_keys, all_values)
    )
    scores = scaled(query @ keys.mT, query, keys, values, scale)
    before, new = key_cache.shape[-2], query.shape[-2]
    edge = {"from start": 0, "one less": before - 1, "one more": before + 1, "by new": new, "new only": 0}
    edge["one less but once"] = before - 1
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(edge.get(seen, before))
    if seen == "one less but once":
        mask[..., 0] |= ~mask.any(-1)
    if seen in ("everything", "cache only"):
        mask = torch.ones_like(mask)
    if seen == "inverted":
        mask = ~mask
    if hidden == "zero score":
        weights = torch.softmax(scores * mask, -1)
    elif hidden == "zero weight":
        weights = torch.softmax(scores, -1) * mask
    else:
        weights = torch.softmax(scores.masked_fill(~mask, -30.0 if hidden == "low" else -math.inf), -1)
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    output = weights @ values
    if cache == "as it was":
        return output, key_cache.clone(), value_cache.clone()
    if cache == "new ones":
        return output, key.clone(), value.clone()
    return (output, all_values, all_keys) if cache == "exchanged" else (output, all_keys, all_values)


@decoding_step.mistake(
    "the cache is appended to along the first dimension",
    hint="""Without a batch, the first dimension is that of the positions. With heads in front it is not.
    Count
    from the back.""",
    read=KV_CACHE,
)
def decoding_first_dimension(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key]), torch.cat([value_cache, value])
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


# ---------------------------------------------------------------------------------------
# Before the experiment: what the cache costs, and what it saves
# ---------------------------------------------------------------------------------------


def _cache_bytes(
    num_positions: int,
    num_layers: int,
    num_heads: int,
    heads_per_group: int,
    head_dim: int,
    bytes_per_number: int,
) -> int:
    """Counted on a true cache of one layer, with one position."""
    cache = scaling.KeyValueCache()
    position = torch.zeros(num_heads // heads_per_group, 1, head_dim)
    cache.append(position, position)
    numbers = cache.key.numel() + cache.value.numel()
    return num_layers * num_positions * numbers * bytes_per_number


SIZES = ("num_positions", "num_layers", "num_heads", "heads_per_group", "head_dim", "bytes_per_number")


def _sizes(*numbers: int) -> dict[str, int]:
    return dict(zip(SIZES, numbers, strict=True))


def _cache_bytes_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole

    def case(
        note: str, positions: tuple, layers: tuple, groups: tuple, per: tuple, dim: tuple, size: int
    ) -> Case:
        group = whole(*per)
        heads = group * whole(*groups)
        return Case(_sizes(whole(*positions), whole(*layers), heads, group, whole(*dim), size), note)

    return [
        case("every head has its own", (100, 999), (3, 7), (5, 9), (1, 1), (10, 31), 4),
        case("groups of heads, in half precision", (1000, 5000), (8, 12), (3, 4), (2, 5), (33, 64), 2),
        case("all heads share one", (50, 99), (2, 4), (1, 1), (3, 9), (3, 9), 4),
        case("a large model, long text", (100_000, 200_000), (80, 96), (8, 9), (7, 8), (120, 128), 2),
    ]


def _doubled(name: str) -> Law:
    def inputs(normal: Normal) -> list[dict[str, int]]:
        sizes = _sizes(10, 3, 6, 2, 7, 4)
        return [sizes, sizes | {name: 2 * sizes[name]}]

    def broken(inputs: list[dict[str, int]], values: list[float]) -> str | None:
        right = values[1] == 2 * values[0]
        return None if right else f"yours goes from {shown(values[0])} to {shown(values[1])}"

    return Law(f"with twice the `{name}` the cache takes twice the bytes", CACHE_SIZE, inputs, broken)


cache_bytes = Task(
    "cache_bytes",
    _cache_bytes,
    _sizes(10, 2, 6, 3, 5, 4),
    _cache_bytes_cases,
    laws=[
        *(_doubled(name) for name in SIZES if name != "heads_per_group"),
        Law(
            "with twice as many heads in a group the cache takes half the bytes",
            CACHE_SIZE,
            lambda normal: [_sizes(10, 3, 8, 2, 7, 4), _sizes(10, 3, 8, 4, 7, 4)],
            lambda inputs, values: (
                None
                if 2 * values[1] == values[0]
                else f"yours goes from {shown(values[0])} to {shown(values[1])}"
            ),
        ),
        Law(
            "one position of one head with one feature takes a key and a value: two numbers",
            CACHE_SIZE,
            lambda normal: _sizes(1, 1, 1, 1, 1, 1),
            lambda inputs, value: None if value == 2 else f"yours says {shown(value)}",
        ),
    ],
    exact_dtype=True,
)


@cache_bytes.made_of(
    what=wrongs(
        CACHE_SIZE,
        """
        one: only the keys are counted, or only the values
            A query needs the keys to find its weights, and then something to average.
        three: queries are counted, too
            A query is asked once, when its position is new, and never again. Does anyone need it later?
        """,
    ),
    positions=wrongs(
        CACHE_SIZE,
        """
        squared: a matrix of positions by positions is counted
            The weights of a step are used in that step and forgotten. What is kept is a row for each
            position.
        forgotten: the number of positions is forgotten
            What you have counted is kept for each position of the text. How many are there?
        all steps: the caches of all steps are added up
            There is one cache, which grows. How large is it when the last position has been appended?
        """,
    ),
    layers=wrongs(
        CACHE_SIZE,
        """
        forgotten: the layers are forgotten
            Each layer makes keys and values of its own from its own input.
        """,
    ),
    heads=wrongs(
        CACHE_SIZE,
        """
        ungrouped: every head is counted with keys and values of its own
            The heads of a group look at the same keys and values, which are kept once. How many groups are
            there?
        per group: the heads of a group are counted, not the groups
            `heads_per_group` heads share one set of keys and values. How many sets are there?
        one group: only one group is counted
            The heads of a group share theirs, and each group has its own.
        multiplied: the heads are multiplied by the size of a group
            The larger the groups, the fewer there are.
        """,
    ),
    features=wrongs(
        CACHE_SIZE,
        """
        forgotten: each key and each value is counted as one number
            A key is a row, and so is a value. How many features has it?
        """,
    ),
    unit=wrongs(
        CACHE_SIZE,
        """
        numbers: numbers are counted instead of bytes
            Each number takes several bytes; how many is the last argument.
        bits: bits are counted
            The last argument is in bytes already.
        """,
    ),
)
def any_bytes(
    num_positions,
    num_layers,
    num_heads,
    heads_per_group,
    head_dim,
    bytes_per_number,
    *,
    what="two",
    positions="",
    layers="",
    heads="",
    features="",
    unit="",
):
    kept = {"one": 1, "three": 3}.get(what, 2)
    n = num_positions
    rows = {"squared": n * n, "forgotten": 1, "all steps": n * (n + 1) // 2}.get(positions, n)
    sets = {
        "ungrouped": num_heads,
        "per group": heads_per_group,
        "one group": 1,
        "multiplied": num_heads * heads_per_group,
    }.get(heads, num_heads // heads_per_group)
    size = {"numbers": 1, "bits": 8 * bytes_per_number}.get(unit, bytes_per_number)
    return kept * rows * (num_layers if not layers else 1) * sets * (head_dim if not features else 1) * size


def _scores_computed(num_prompt: int, num_letters: int) -> tuple[int, int]:
    steps = range(num_prompt, num_prompt + num_letters)
    without = sum(length**2 for length in steps)
    return without, num_prompt**2 + sum(steps) - num_prompt


def _scores_computed_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")

    def case(prompt: tuple[int, int], letters: tuple[int, int], note: str) -> Case:
        return Case({"num_prompt": draws.whole(*prompt), "num_letters": draws.whole(*letters)}, note)

    return [
        case((3, 9), (5, 20), "a short prompt"),
        case((20, 90), (2, 9), "a long prompt"),
        case((1, 1), (10, 30), "a prompt of one letter"),
        case((5, 9), (1, 1), "one letter is written"),
        case((100, 300), (1000, 2000), "a long text"),
    ]


def _counted(prompt: int, letters: int) -> Callable[[Normal], dict[str, int]]:
    return lambda normal: {"num_prompt": prompt, "num_letters": letters}


def _without_is(number: int) -> Callable[[Any, Any], str | None]:
    return lambda inputs, value: None if value[0] == number else f"yours says {shown(value[0])}"


scores_computed = Task(
    "scores_computed",
    _scores_computed,
    {"num_prompt": 2, "num_letters": 3},
    _scores_computed_cases,
    laws=[
        Law(
            "for one letter there is nothing to save: the two numbers are the same",
            KV_CACHE,
            _counted(4, 1),
            lambda inputs, value: (
                None if value[0] == value[1] else f"yours says {shown(value[0])} and {shown(value[1])}"
            ),
        ),
        Law(
            "after a prompt of 1, to write 2 letters without a cache takes 1 and 4 scores: 5",
            KV_CACHE,
            _counted(1, 2),
            _without_is(5),
        ),
        Law(
            "with a cache, one letter more after a prompt of 2 and 3 letters takes 5 scores more",
            KV_CACHE,
            lambda normal: [_counted(2, 3)(normal), _counted(2, 4)(normal)],
            lambda inputs, values: (
                None
                if values[1][1] - values[0][1] == 5
                else f"in yours it takes {shown(values[1][1] - values[0][1])}"
            ),
        ),
    ],
)


@scores_computed.made_of(
    steps=wrongs(
        KV_CACHE,
        """
        one more: the last letter is run through the model, too
            The first letter comes from the prompt, the second from the prompt and the first. From what does
            the last one come? Nobody asks what follows it.
        prompt aside: the text of every step is counted one letter too long
            The first new letter comes from the prompt alone, so the first step has as many positions as
            the prompt.
        no prompt: the prompt is forgotten
            At every step the prompt is part of the text.
        """,
    ),
    without=wrongs(
        KV_CACHE,
        """
        one row: without a cache only the last row of scores is counted
            Without a cache the whole text runs through the model at each step: every position asks all.
        last: only the last step is counted
            A step for each letter, and each computes scores. Add them up.
        triangle: without a cache only scores that may be seen are counted
            A mask hides scores that have been computed. Count the whole square.
        """,
    ),
    cached=wrongs(
        KV_CACHE,
        """
        prompt linear: with a cache, the prompt is counted as one row of scores
            At the first step the cache is empty, and all positions of the prompt are new: each asks all of
            them.
        prompt free: with a cache, the prompt's own scores are left out
            The prompt has to run through the model once, and its positions look at one another.
        itself: with a cache, a new position is not compared with itself
            It is appended first, and then it asks: itself, too.
        """,
    ),
    order=wrongs(
        KV_CACHE,
        """
        exchanged: the number with a cache comes first
            First without, then with. Which of yours is the larger?
        ratio: the ratio comes back instead of the two numbers
            The two numbers are asked for, as a tuple.
        """,
    ),
)
def any_scores(num_prompt, num_letters, *, steps="", without="", cached="", order=""):
    p, n = num_prompt, num_letters
    lengths = {
        "one more": range(p, p + n + 1),
        "prompt aside": range(p + 1, p + n + 1),
        "no prompt": range(1, n + 1),
    }.get(steps, range(p, p + n))
    first = lengths[0]
    squares = sum(length**2 for length in lengths)
    squares = {
        "one row": sum(lengths),
        "last": lengths[-1] ** 2,
        "triangle": sum(length * (length + 1) // 2 for length in lengths),
    }.get(without, squares)
    later = sum(lengths) - first
    rows = {
        "prompt linear": first + later,
        "prompt free": later,
        "itself": first**2 + later - (len(lengths) - 1),
    }.get(cached, first**2 + later)
    if order == "ratio":
        return squares / rows
    return (rows, squares) if order == "exchanged" else (squares, rows)


# ---------------------------------------------------------------------------------------
# After the experiment: which slip is it?
# ---------------------------------------------------------------------------------------

STEPS_ANSWERS = ("right", "sees ahead", "forgets", "stuck at the start", "runs full", "other")


def _explain_steps(whole: Tensor, steps: Tensor, value: Tensor, num_prompt: int) -> str:
    def same(first: Tensor, second: Tensor) -> Tensor:
        return (first - second).abs().amax(-1) < 1e-4

    right = same(steps, whole)  # (positions,)
    if right.all():
        return "right"
    if not right[:num_prompt].all():
        return "sees ahead" if right[num_prompt:].all() else "other"
    if same(steps, value)[num_prompt:].all():
        return "forgets"
    if same(steps, value[0])[num_prompt:].all():
        return "stuck at the start"
    later = right[num_prompt:]
    number = int(later.sum())
    return "runs full" if number > 0 and later[:number].all() else "other"


def _steps_records(seed: int) -> dict[str, dict[str, Any]]:
    """What a layer gives for all positions at once, and step by step with a slip."""
    normal = normal_source(seed)
    draws = Draws(seed, "choices")

    def record(slip: str, prompt: tuple[int, int] = (3, 5)) -> dict[str, Any]:
        num_prompt = draws.whole(prompt[0], prompt[1] - 1)
        length = num_prompt + draws.whole(5, 8)
        query, key, value = normal(length, 4), normal(length, 4), normal(length, 3)
        scores = query @ key.mT / 2
        seen = torch.ones(length, length).tril().bool()
        row, column = torch.arange(length)[:, None], torch.arange(length)
        whole = torch.softmax(scores.masked_fill(~seen, -math.inf), -1) @ value
        later = row >= num_prompt
        mask, changed = seen.clone(), scores
        match slip:
            case "sees ahead":
                mask = torch.where(later, seen, column < num_prompt)
            case "forgets":
                mask = torch.where(later, row == column, seen)
            case "stuck at the start":
                mask = torch.where(later, column == 0, seen)
            case "runs full":
                mask = seen & (row - column < num_prompt + 2)
            case "runs full at once":
                mask = seen & (row - column < num_prompt + 1)
            case "runs full at last":
                mask = seen & (row - column < length - 1)
            case "unscaled":
                changed = 2 * scores
            case "unscaled steps":
                changed = torch.where(later, 2 * scores, scores)
            case "prompt forgotten":
                mask = torch.where(later, seen & (column >= num_prompt), seen)
            case "open and unscaled":
                mask = torch.where(later, seen, column < num_prompt)
                changed = torch.where(later, 2 * scores, scores)
            case "one step":
                mask[num_prompt + 2, 1:] = False
            case "every second step forgets":
                mask = torch.where(later & ((row - num_prompt) % 2 == 0), row == column, seen)
            case "first step":
                mask[num_prompt, 1:] = False
            case "now and then":
                mask[num_prompt + 1, 1:], mask[-1, 1:] = False, False
            case "forgets, prompt wrong":
                mask = torch.where(later, row == column, column < num_prompt)
            case "now and then, prompt wrong":
                mask = torch.where(later, seen, column < num_prompt)
                mask[num_prompt + 1, 1:], mask[-1, 1:] = False, False
            case "first step, prompt wrong" | "last step, prompt wrong":
                mask = torch.where(later, seen, column < num_prompt)
                mask[num_prompt if "first" in slip else -1, 1:] = False
            case "stuck, prompt wrong":
                mask = torch.where(later, column == 0, column < num_prompt)
            case "runs full, prompt wrong":
                mask = torch.where(later, seen & (row - column < num_prompt + 2), column < num_prompt)
            case "stuck at the next":
                mask = torch.where(later, column == 1, seen)
            case "a little":
                changed = torch.where(later, 1.02 * scores, scores)
        steps = torch.softmax(changed.masked_fill(~mask, -math.inf), -1) @ value
        if slip == "features turned round":
            steps = torch.where(later, steps.flip(-1), steps)
        if slip == "second feature":
            steps = torch.where(later, steps + torch.tensor([0.0, 1.0, 0.0]), steps)
        if slip in ("one number of the prompt", "one number after the prompt"):
            first, end = (0, num_prompt) if "of" in slip.split() else (num_prompt, length)
            place = draws.whole(first, end - 1)
            sign = 2 * draws.whole(0, 1) - 1
            steps[place, draws.whole(0, 2)] += sign * 0.000115
        steps = steps + (2e-5 if slip == "rounded more" else 1e-6) * normal(length, 3).clamp(-3.5, 3.5)
        return {"whole": whole, "steps": steps, "value": value, "num_prompt": num_prompt}

    return {
        "nothing is wrong": record(""),
        "no mask in the prompt": record("sees ahead"),
        "the cache is not kept": record("forgets"),
        "the mask is aligned at the start": record("stuck at the start"),
        "the cache has a last place": record("runs full"),
        "the cache runs full at the last step": record("runs full at last"),
        "nothing is scaled": record("unscaled"),
        "only the prompt is scaled": record("unscaled steps"),
        "the prompt is not kept": record("prompt forgotten"),
        "no mask in the prompt, and no scale after it": record("open and unscaled"),
        "one step is wrong": record("one step"),
        "every second step forgets": record("every second step forgets"),
        "a prompt of one position, and the cache is not kept": record("forgets", (1, 2)),
        "the scale is off by a little after the prompt": record("a little"),
        "features are exchanged after the prompt": record("features turned round"),
        "only the first step is wrong": record("first step"),
        "a wrong step, right ones, and a wrong one": record("now and then"),
        "no mask in the prompt, and the cache is not kept": record("forgets, prompt wrong"),
        "every step sees position 1 only": record("stuck at the next"),
        "one feature is wrong after the prompt": record("second feature"),
        "no mask in the prompt, and a wrong step, right ones, and a wrong one": record(
            "now and then, prompt wrong"
        ),
        "no mask in the prompt, and only the first step is wrong": record("first step, prompt wrong"),
        "no mask in the prompt, and only the last step is wrong": record("last step, prompt wrong"),
        "no mask in the prompt, and then one aligned at the start": record("stuck, prompt wrong"),
        "no mask in the prompt, and the cache has a last place": record("runs full, prompt wrong"),
        "one number of the prompt is off by very little": record("one number of the prompt"),
        "one number after the prompt is off by very little": record("one number after the prompt"),
        "rounding that shows a little more": record("rounded more"),
        "the cache has place for one step": record("runs full at once"),
    }


def _explain_steps_cases(seed: int) -> list[Case]:
    records = _steps_records(seed)
    return [Case(records[name], name) for name in in_any_order(records, seed)]


def _steps_law(words: str, right: str, name: str) -> Law:
    inputs = lambda normal: _steps_records(0)[name]
    return Law(f"{words}, {right!r} is said", OUT_OF_STEP, inputs, laws.says(right))


explain_steps = Task(
    "explain_steps",
    _explain_steps,
    {
        "whole": torch.tensor([[4.0], [3.0], [5.0], [6.0]]),
        "steps": torch.tensor([[4.0], [3.0], [7.0], [9.0]]),
        "value": torch.tensor([[4.0], [2.0], [7.0], [9.0]]),
        "num_prompt": 2,
    },
    _explain_steps_cases,
    laws=[
        _steps_law("where all rows agree but for rounding", "right", "nothing is wrong"),
        _steps_law(
            "where rows of the prompt are wrong, and all others right", "sees ahead", "no mask in the prompt"
        ),
        _steps_law(
            "where every row after the prompt is the value of its own position",
            "forgets",
            "the cache is not kept",
        ),
        _steps_law(
            "where every row after the prompt is the value of position 0",
            "stuck at the start",
            "the mask is aligned at the start",
        ),
        _steps_law(
            "where the first rows after the prompt are right and from some row on none",
            "runs full",
            "the cache has a last place",
        ),
    ],
)


@explain_steps.made_of(
    same=wrongs(
        OUT_OF_STEP,
        """
        exactly: differences by rounding count
            A full pass and a step add up in another order. Less than a ten-thousandth is no difference.
        loosely: small differences do not count
            A scale that is a little wrong makes small differences, and they count. Only less than a
            ten-thousandth is no difference.
        sums: only the sums of rows are compared
            Two rows may have the same sum. Compare number by number.
        first feature: only the first feature is compared
            Two rows agree if no number differs: compare all of them.
        one: rows agree as soon as one of their numbers does
            Two rows agree if *no* number differs.
        signed: differences count in one direction only
            A difference of -1 is smaller than a ten-thousandth, too. Take absolute values.
        """,
    ),
    prompt=wrongs(
        OUT_OF_STEP,
        """
        one more: the first new position is counted to the prompt
            Positions 0 to num_prompt - 1 are the prompt.
        first only: only the first row after the prompt is looked at
            One row may be right or wrong by chance, or the cache may run full later. Look at all.
        last only: only the last row is looked at
            What is wrong at the last step may have been right before. Look at all.
        ignored: rows of the prompt are not looked at
            A slip in the prompt shows there and nowhere else.
        enough: a wrong prompt is enough for "sees ahead", whatever the later rows are
            With an open mask in the prompt alone, all later rows are right.
        unasked: what the steps are is asked before what the prompt is
            The third and the fourth answer say that the prompt is right.
        any: what has to hold of all rows is asked of one
            Every row after the prompt must be such a value. If only some are, it is something else.
        """,
    ),
    own=wrongs(
        OUT_OF_STEP,
        """
        exchanged: a step that sees only itself is taken for one that sees only the start
            What comes back is the value of the only position that is seen. Which one is it?
        unasked: the values are not looked at
            A position that sees one key only gets the value of that key. Compare with them.
        last step: of the steps, only the last one is compared with the values
            Every row after the prompt must be such a value. If only some are, it is something else.
        alike: later rows that are all the same are taken for stuck at the start
            The mask could be open at another position, too. With which value are they to be compared?
        """,
    ),
    full=wrongs(
        OUT_OF_STEP,
        """
        unasked: it is never asked whether the first steps were right
            A cache that runs full is right until then. From some step on, all are wrong.
        none right: "runs full" is said where no row after the prompt is right
            A cache that runs full is right until then: at least the first row after the prompt is.
        ends: only the first and the last row after the prompt are looked at
            A cache that has run full stays full: from the first wrong row on, all are wrong.
        some: "runs full" is said wherever some steps are right and some wrong, in whatever order
            A cache that has run full stays full. Once wrong, always wrong.
        """,
    ),
)
def any_steps(whole, steps, value, num_prompt, *, same="", prompt="", own="", full=""):
    limit = {"exactly": 0.0, "loosely": 0.1}.get(same, 1e-4)

    def equal(first, second, signed=False):
        apart = (first - second).abs().amax(-1)
        if same == "sums":
            apart = (first.sum(-1) - second.sum(-1)).abs()
        if same == "first feature":
            apart = (first - second).abs()[..., 0]
        if same == "one":
            apart = (first - second).abs().amin(-1)
        if signed:
            apart = (first - second).amax(-1)
        return apart <= limit

    if prompt == "one more":
        num_prompt = num_prompt + 1
    rows = slice(num_prompt, None)
    if prompt == "first only":
        rows = slice(num_prompt, num_prompt + 1)
    if prompt == "last only":
        rows = slice(-1, None)
    every = torch.any if prompt == "any" else torch.all
    right = equal(steps, whole, same == "signed")
    before, later = right[:num_prompt], right[rows]
    if prompt == "ignored":
        before = torch.ones_like(before)
    if before.all() and later.all():
        return "right"
    if not before.all() and (later.all() or prompt != "unasked"):
        return "sees ahead" if later.all() or prompt == "enough" else "other"
    at_start = steps[rows][0] if own == "alike" else value[0]
    seen = slice(-1, None) if own == "last step" else rows
    itself, start = every(equal(steps, value)[seen]), every(equal(steps, at_start)[seen])
    if own != "unasked" and itself:
        return "stuck at the start" if own == "exchanged" else "forgets"
    if own != "unasked" and start:
        return "forgets" if own == "exchanged" else "stuck at the start"
    number = int(later.sum())
    if full == "unasked" or not before.all() or (number == 0 and full != "none right"):
        return "other"
    if full == "ends":
        return "runs full" if later[0] and not later[-1] else "other"
    return "runs full" if full == "some" or later[:number].all() else "other"
