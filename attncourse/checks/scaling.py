"""Tasks of the unit ``scaling``: the softargmax piece by piece, and decoding with a cache."""

import math
from typing import Any

import torch
from torch import Tensor

from attncourse import scaling
from attncourse.checks import laws
from attncourse.checks.choices import SCALE, draw, only, scaled
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.probe.scaling import MergeTwo, WithinBudget

ONE_PASS = "scaling#one-pass-softmax"
MERGING = "scaling#merging-partials"
IN_CHUNKS = "scaling#attention-in-chunks"
KV_CACHE = "scaling#kv-cache"
CACHE_SIZE = "scaling#cache-size"

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
    refuses=("softmax", "log_softmax", "logsumexp", "logcumsumexp", "cummax"),
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
# Merge two partial results
# ---------------------------------------------------------------------------------------

PARTS = ("largest", "total", "weighted")


def _merge_partials(first: tuple, second: tuple) -> tuple:
    return tuple(scaling.merge_partials(*(scaling.PartialAttention(*part) for part in (first, second))))


def _triples(
    normal: Normal, *batch: int, shift: float = 0.0, empty: str = "", dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    inputs: dict[str, Tensor] = {}
    for which in ("first", "second"):
        scores = normal(*batch, 3, 4, dtype=dtype) * 2
        scores = scores + (shift if which == "second" else 0.0)
        if which in empty:
            scores[..., 1, :] = -math.inf
        part = scaling.partial_attention(scores, normal(*batch, 4, 2, dtype=dtype))
        inputs |= {f"{name} of {which}": x for name, x in zip(PARTS, part, strict=True)}
    return inputs


def _merge_partials_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    below = _triples(normal)
    for which in ("first", "second"):
        below[f"largest of {which}"] = below[f"largest of {which}"] - 200
    return [
        Case(_triples(normal), "scores of the same size"),
        Case(_triples(normal, shift=6.0), "larger scores in the second part"),
        Case(_triples(normal, shift=-6.0), "larger scores in the first part"),
        Case(_triples(normal, 2, dtype=torch.float64), "a batch, in double precision"),
        Case(_triples(normal, shift=300.0), "scores that differ by hundreds"),
        Case(_triples(normal, shift=-300.0), "the other way round"),
        Case(below, "all scores far below zero"),
        Case(_triples(normal, empty="first"), "a row that has seen nothing in the first part"),
        Case(_triples(normal, empty="second"), "a row that has seen nothing in the second part"),
        Case(_triples(normal, empty="first second"), "a row that has seen nothing in either"),
    ]


def _exchanged_parts(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = list(_triples(normal).items())
    return [
        dict(drawn),
        dict(zip((name for name, _ in drawn), (x for _, x in drawn[3:] + drawn[:3]), strict=True)),
    ]


def _order_is_nothing(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    for name, one, other in zip(PARTS, *values, strict=True):
        found = laws.is_not(
            other, one, f"of yours, {name} at {{place}} is {{expected}} one way and {{yours}} the other"
        )
        if found:
            return found
    return None


def _takes_the_larger(inputs: dict[str, Tensor], value: Any) -> str | None:
    expected = torch.maximum(inputs["largest of first"], inputs["largest of second"])
    return laws.is_not(value[0], expected, "yours is {yours} at {place}, and one of the two had {expected}")


def _same_as(which: str) -> Any:
    def broken(inputs: dict[str, Tensor], value: Any) -> str | None:
        for name, part in zip(PARTS, value, strict=True):
            words = f"{name} in yours is {{yours}} at {{place}}, and was {{expected}}"
            found = laws.is_not(part[..., 1:2, :], inputs[f"{name} of {which}"][..., 1:2, :], words)
            if found:
                return found
        return None

    return broken


def _average_is_between(inputs: dict[str, Tensor], value: Any) -> str | None:
    averages = [inputs[f"weighted of {which}"] / inputs[f"total of {which}"] for which in ("first", "second")]
    merged = value[2] / value[1]
    inside = merged.clamp(torch.minimum(*averages), torch.maximum(*averages))
    return laws.is_not(
        merged, inside, "yours comes to {yours} at {place}, and the nearer of the two is {expected}"
    )


merge_partials = Task(
    "merge_partials",
    _merge_partials,
    {
        "largest of first": torch.tensor([[1.0], [0.0]]),
        "total of first": torch.tensor([[1.0], [2.0]]),
        "weighted of first": torch.tensor([[4.0], [6.0]]),
        "largest of second": torch.tensor([[0.0], [2.0]]),
        "total of second": torch.tensor([[2.0], [1.0]]),
        "weighted of second": torch.tensor([[2.0], [8.0]]),
    },
    _merge_partials_cases,
    laws=[
        Law("the largest score of both is the larger of the two", MERGING, _triples, _takes_the_larger),
        Law(
            "a part that has seen nothing changes nothing",
            MERGING,
            lambda normal: _triples(normal, empty="second"),
            _same_as("first"),
        ),
        Law("it makes no difference which part comes first", MERGING, _exchanged_parts, _order_is_nothing),
        Law(
            "the weighted sum over the total, which is an average, lies between the two parts' averages",
            MERGING,
            _triples,
            _average_is_between,
        ),
    ],
    way=MergeTwo(),
)

NAN = Wrong(
    "minus infinity minus minus infinity",
    """A row that has seen nothing in either part has the largest score minus infinity in both. Their
    difference is not a number. Subtract something finite there: what is it to come out as?""",
    MERGING,
)


@merge_partials.made_of(
    relative=wrongs(
        MERGING,
        """
        nothing: sums of exponentials relative to different numbers are added
            Each part has subtracted its own largest score before the exponential. Bring both to the same
            number before you add them.
        exchanged: the two factors are exchanged
            The part with the larger largest score keeps its sums as they are: its factor is 1. Which part
            has factor 1 in yours?
        upside down: the factors are upside down: sums grow when they should shrink
            Relative to a larger number, an exponential is smaller. No factor can be above 1.
        first: everything is relative to the first part's largest score
            It is right as long as the second part's scores are not much larger. If they are, the
            exponential overflows. Which number is safe for both?
        other: each part is brought to the largest score of the other
            After yours, the first part is relative to the second's number, and the second to the first's.
            Which one number should both be relative to?
        second only: only the second part is rescaled
            That is right where the first part has the larger score. Where the second has it, which part's
            sums are too large?
        smaller: both are brought to the smaller of the two largest scores
            Relative to the smaller one, exponentials are larger than 1, and may overflow. Relative to which
            of the two is none above 1?
        all rows: one largest score for all rows
            Each row of scores belongs to another query and has a largest score of its own. `max()` without
            a dimension looks at all of them.
        """,
    ),
    sums=wrongs(
        MERGING,
        """
        weighted not: the totals are rescaled, and the weighted sums are not
            The weighted sum is a sum of the same exponentials, each times a value. What holds for the one
            holds for the other.
        total not: the weighted sums are rescaled, and the totals are not
            The total is a sum of the same exponentials. What holds for the one holds for the other.
        divided: the weighted sum is divided by the total already
            The result of a merge is to be merged again, so it must have the same form as the parts. Divide
            when all the keys have been seen.
        """,
    ),
    empty={
        "nan": NAN,
        "zero": Wrong(
            "a largest score of minus infinity comes back as 0",
            """Something finite is to be subtracted there. But what you return is to say that nothing has been
            seen.""",
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
        total first: the total comes back first, and the largest score second
            The result is to have the same form as the parts. In which order do their three tensors stand?
        """,
    ),
)
def any_merge(first, second, *, relative="larger", sums="", empty="kept", order=""):
    if empty == "passed over":
        if (first[0] == -math.inf).any():
            return tuple(second)
        if (second[0] == -math.inf).any():
            return tuple(first)
    larger = torch.maximum(first[0], second[0])
    finite = larger if empty == "nan" else torch.where(larger == -math.inf, 0.0, larger)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    match relative:
        case "nothing":
            a, b = torch.ones_like(a), torch.ones_like(b)
        case "exchanged":
            a, b = b, a
        case "upside down":
            a, b = torch.exp(finite - first[0]), torch.exp(finite - second[0])
        case "first":
            larger, a, b = first[0], torch.ones_like(a), torch.exp(second[0] - first[0])
        case "other":
            a, b = torch.exp(first[0] - second[0]), torch.exp(second[0] - first[0])
        case "second only":
            a = torch.ones_like(a)
        case "smaller":
            larger = torch.minimum(first[0], second[0])
            a, b = torch.exp(first[0] - larger), torch.exp(second[0] - larger)
        case "all rows":
            larger = larger.max().expand_as(larger)
            a, b = torch.exp(first[0] - larger), torch.exp(second[0] - larger)
    total = first[1] + second[1] if sums == "total not" else a * first[1] + b * second[1]
    weighted = first[2] + second[2] if sums == "weighted not" else a * first[2] + b * second[2]
    if sums == "divided":
        weighted = weighted / total
    if empty == "zero":
        larger = torch.where(larger == -math.inf, 0.0, larger)
    return (total, larger, weighted) if order == "total first" else (larger, total, weighted)


@merge_partials.mistake(
    "Python's `max` is asked which of two tensors is larger",
    hint="""A tensor has many numbers, and one of the tensors may be larger here and smaller there. PyTorch
    has a function that compares number by number.""",
    read=MERGING,
)
def merge_python_max(first, second):
    largest = max(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


# ---------------------------------------------------------------------------------------
# Attention under a memory budget
# ---------------------------------------------------------------------------------------


def _chunked_attention(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> Tensor:
    return scaling.chunked_attention(query, key, value, chunk_size=chunk_size)


def _chunked_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(queries: int, keys: int, chunk_size: int, note: str, *batch: int, **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs: dict[str, Any] = {
            "query": normal(*batch, queries, 4, dtype=dtype),
            "key": normal(*batch, keys, 4, dtype=dtype),
            "value": normal(*batch, keys, 3, dtype=dtype),
            "chunk_size": chunk_size,
        }
        # Scores rise from chunk to chunk for one query and fall for another.
        inputs["key"][..., 0] += torch.linspace(-3, 3, keys, dtype=dtype)
        return Case(inputs, note, **how)

    # Whatever a row is relative to that is not its own largest score so far, some exponential overflows
    # or all of them are 0: from chunk to chunk the scores of the rows rise and fall by 80 and by 160.
    hundreds = case(4, 16, 4, "scores in the hundreds")
    hundreds.inputs["query"][:, 0] = torch.tensor([2.0, -2.0, 1.0, -1.0])
    hundreds.inputs["key"][:, 0] += torch.linspace(-300, 300, 16)
    below = case(4, 12, 4, "all scores far below zero")
    below.inputs["query"][:, 0] = 10.0
    below.inputs["key"][:, 0] -= 100.0

    return [
        case(5, 12, 4, "three whole chunks"),
        case(5, 11, 4, "a last chunk that is shorter"),
        case(24, 40, 8, "many chunks"),
        case(4, 6, 1, "chunks of one key"),
        case(3, 5, 16, "one chunk that is larger than all"),
        case(1, 9, 4, "one query, in a batch of one", 1),
        case(6, 20, 8, "a batch, in double precision", 2, dtype=torch.float64),
        case(6, 18, 4, "two batch dimensions", 2, 3),
        hundreds,
        below,
        case(20, 18, 2, "small chunks, and many of them", 2, 3),
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
    refuses=("numpy", "__array__"),  # what is in NumPy's arrays would not be counted
    way=WithinBudget(),
    builds_on=("merge_partials",),
)

_CHUNK_SCALE = {
    name: Wrong(wrong.label, f"The chunks are merged as they should be. {wrong.hint}", wrong.read)
    for name, wrong in only(SCALE, "none", "dim", "value dim", "multiplied").items()
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
    "the whole matrix of scores is computed, and cut in chunks afterwards",
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
    normal: Normal, cached: int, new: int, *batch: int, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    shapes = {"query": (new, 4), "key": (new, 4), "value": (new, 3)}
    shapes |= {"key_cache": (cached, 4), "value_cache": (cached, 3)}
    return {name: normal(*batch, *shape, dtype=dtype) for name, shape in shapes.items()}


def _decoding_step_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_step(normal, 5, 1), "one new position"),
        Case(_step(normal, 0, 1), "the first position"),
        Case(_step(normal, 0, 3), "a prompt of three positions"),
        Case(_step(normal, 4, 3), "three new positions"),
        Case(_step(normal, 3, 1, 2), "heads"),
        Case(_step(normal, 3, 2, 2, 3, dtype=torch.float64), "a batch and heads, in double precision"),
        Case(_step(normal, 4, 2, 2), "inputs that are not contiguous", contiguous=False),
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
            "a new position does not see those that come after it",
            KV_CACHE,
            _first_of_two,
            _one_after_the_other,
        ),
    ],
)


@decoding_step.made_of(
    scale=only(SCALE, "none", "dim", "value dim", "num keys", "multiplied", "after"),
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
    },
    cache=wrongs(
        KV_CACHE,
        """
        in front: the new keys and values are put in front of the cache
            The cache is in the order of the positions, and the new ones come last.
        as it was: the caches come back as they were, without the new positions
            The output is right. The next step will need the keys and values of this one as well.
        new ones: only the new keys and values come back, without those before
            The output is right. The next step will need the earlier keys and values, too.
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
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(edge.get(seen, before))
    if seen in ("everything", "cache only"):
        mask = torch.ones_like(mask)
    if seen == "inverted":
        mask = ~mask
    if hidden == "zero score":
        weights = torch.softmax(scores * mask, -1)
    elif hidden == "zero weight":
        weights = torch.softmax(scores, -1) * mask
    else:
        weights = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
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
# What the cache costs
# ---------------------------------------------------------------------------------------


def _cache_bytes(
    num_positions: int, num_layers: int, num_heads: int, head_dim: int, bytes_per_number: int
) -> int:
    """Counted on a true cache of one layer, with one position."""
    cache = scaling.KeyValueCache()
    position = torch.zeros(num_heads, 1, head_dim)
    cache.append(position, position)
    numbers = cache.key.numel() + cache.value.numel()
    return num_layers * num_positions * numbers * bytes_per_number


SIZES = ("num_positions", "num_layers", "num_heads", "head_dim", "bytes_per_number")


def _cache_bytes_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def case(note: str, *ranges: tuple[int, int]) -> Case:
        numbers = [int(torch.randint(low, high + 1, (), generator=generator)) for low, high in ranges]
        return Case(dict(zip(SIZES, numbers, strict=True)), note)

    return [
        case("a small model", (100, 999), (3, 7), (5, 9), (10, 31), (4, 4)),
        case("half precision", (1000, 5000), (8, 12), (3, 4), (33, 64), (2, 2)),
        case("one layer of one head", (50, 99), (1, 1), (1, 1), (3, 9), (4, 4)),
        case("a large model, long text", (100_000, 200_000), (80, 96), (64, 72), (120, 128), (2, 2)),
    ]


def _doubled(name: str) -> Law:
    def inputs(normal: Normal) -> list[dict[str, int]]:
        sizes = dict(zip(SIZES, (10, 3, 5, 7, 4), strict=True))
        return [sizes, sizes | {name: 2 * sizes[name]}]

    def broken(inputs: list[dict[str, int]], values: list[float]) -> str | None:
        right = values[1] == 2 * values[0]
        return None if right else f"yours goes from {shown(values[0])} to {shown(values[1])}"

    return Law(f"with twice the `{name}` the cache takes twice the bytes", CACHE_SIZE, inputs, broken)


cache_bytes = Task(
    "cache_bytes",
    _cache_bytes,
    dict(zip(SIZES, (10, 2, 3, 5, 4), strict=True)),
    _cache_bytes_cases,
    laws=[
        *map(_doubled, SIZES),
        Law(
            "one position of one head with one feature takes a key and a value: two numbers",
            CACHE_SIZE,
            lambda normal: dict(zip(SIZES, (1, 1, 1, 1, 1), strict=True)),
            lambda inputs, value: None if value == 2 else f"yours says {shown(value)}",
        ),
    ],
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
        forgotten: the heads are forgotten
            Each head has keys and values of its own, and `head_dim` is the number of features of one head.
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
        bits: bits are counted, or bytes divided by eight
            The last argument is in bytes already.
        """,
    ),
)
def any_bytes(
    num_positions,
    num_layers,
    num_heads,
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
    size = {"numbers": 1, "bits": 8 * bytes_per_number}.get(unit, bytes_per_number)
    return (
        kept
        * rows
        * (num_layers if not layers else 1)
        * (num_heads if not heads else 1)
        * (head_dim if not features else 1)
        * size
    )
