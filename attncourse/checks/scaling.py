"""Tasks of the unit ``scaling``: the softargmax piece by piece, and decoding with a cache."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attncourse import scaling
from attncourse.checks.probe import Misfit, given
from attncourse.checks.task import Case, Task, normal_source

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


running_total = Task(
    "running_total",
    _running_total,
    _running_total_cases,
    refuses=("softmax", "log_softmax", "logsumexp", "logcumsumexp", "cummax"),
)


@running_total.misconception(
    "the sum is not rescaled when a larger score comes",
    hint="""The exponentials that you have added up so far were taken relative to the old largest score. When
    that changes, all of them are too large. By which factor?""",
    read="scaling#one-pass-softmax",
)
def running_not_rescaled(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        largest = max(largest, score)
        total = total + (math.exp(score - largest) if score > -math.inf else 0.0)
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


@running_total.misconception(
    "the factor is upside down: the sum grows when it should shrink",
    hint="""A larger largest score makes every exponential relative to it smaller. Is your factor above 1 or
    below?""",
    read="scaling#one-pass-softmax",
)
def running_factor_upside_down(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        factor = torch.exp(new - largest) if largest > -math.inf else scores.new_tensor(0.0)
        total = total * factor + (torch.exp(score - new) if new > -math.inf else 0.0)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the new score's exponential is taken relative to the old largest score",
    hint="""Everything in the sum must be relative to the same number. Which one is it after this step? Find
    it before you take any exponential.""",
    read="scaling#one-pass-softmax",
)
def running_relative_to_old(scores):
    largest, total, rows = scores[0], torch.ones_like(scores[0]), [torch.stack([scores[0], scores[0] ** 0])]
    if largest == -math.inf:
        total = total * 0
        rows = [torch.stack([largest, total])]
    for score in scores[1:]:
        new = torch.maximum(largest, score)
        if new > -math.inf:
            old = largest if largest > -math.inf else new
            total = total * torch.exp(largest - new) + torch.exp(score - old)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the largest score starts at 0",
    hint="""What becomes of scores that are all below zero? What is the largest of no numbers at all, so that
    any number is larger?""",
    read="scaling#one-pass-softmax",
)
def running_starts_at_zero(scores):
    largest, total, rows = scores.new_zeros(()), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        total = total * torch.exp(largest - new) + torch.exp(score - new)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the exponentials are not taken relative to the largest score",
    hint="""Your sum is the sum of exp(score). Scores around a thousand make it infinite, as for any
    softargmax that does not subtract.""",
    read="attention_operator#stable-softargmax",
)
def running_without_subtracting(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        largest = torch.maximum(largest, score)
        total = total + torch.exp(score)
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the sum is rescaled after the new exponential was added to it",
    hint="""The new exponential is already relative to the new largest score. Only what was there before has
    to be corrected. Mind the order of the two.""",
    read="scaling#one-pass-softmax",
)
def running_rescaled_too_late(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        if new > -math.inf:
            total = (total + torch.exp(score - new)) * (torch.exp(largest - new) if rows else 1.0)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "minus infinity minus minus infinity",
    hint="""As long as nothing but minus infinity has come, the largest score is minus infinity, and the
    difference of two of them is not a number. Nothing was seen, so the sum is 0. Subtract something
    finite instead.""",
    read="scaling#merging-partials",
)
def running_nan(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        total = total * torch.exp(largest - new) + torch.exp(score - new)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "every row has the largest of all scores, also of those that have not come yet",
    hint="""To know it, you have to go through all scores before you add up anything: two passes. Asked for is
    what is known after each score.""",
    read="scaling#one-pass-softmax",
)
def running_two_passes(scores):
    largest = scores.max()
    total = torch.exp(scores - largest).cumsum(0)
    return torch.stack([largest.expand(len(scores)), total], dim=1)


@running_total.misconception(
    "every row has the two numbers of all scores together",
    hint="""Asked for is what is known just after each score came. After the first, what are the largest and
    the sum?""",
    read="scaling#one-pass-softmax",
)
def running_all_the_same(scores):
    largest = scores.max()
    return torch.stack([largest, torch.exp(scores - largest).sum()]).expand(len(scores), 2)


@running_total.misconception(
    "when a larger score comes, the sum starts again",
    hint="""The earlier scores still count, only for less than before. By which factor?""",
    read="scaling#one-pass-softmax",
)
def running_starts_again(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        if score > largest:
            largest, total = score, 1.0
        elif largest > -math.inf:
            total = total + math.exp(score - largest)
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


@running_total.misconception(
    "a score that is the new largest is not added itself",
    hint="""Two things happen when a larger score comes: the old sum is corrected, and the new score is
    counted, as every other.""",
    read="scaling#one-pass-softmax",
)
def running_largest_not_added(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        if score > largest:
            total = total * math.exp(largest - score)
            largest = score
        elif largest > -math.inf:
            total = total + math.exp(score - largest)
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


@running_total.misconception(
    "a first score of minus infinity counts 1",
    hint="""If the first score is minus infinity, nothing has been seen after it. What is the sum of
    nothing?""",
    read="scaling#merging-partials",
)
def running_first_counts_one(scores):
    largest, total = scores[0].item(), 1.0
    rows = [[largest, total]]
    for score in scores[1:].tolist():
        new = max(largest, score)
        if new > -math.inf:
            total = total * math.exp(largest - new) + math.exp(score - new)
        largest = new
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


@running_total.misconception(
    "a first score of minus infinity counts 1, and then comes minus infinity minus minus infinity",
    hint="""If the first score is minus infinity, nothing has been seen after it. What is the sum of nothing?
    And if the second is minus infinity, too, their difference is not a number.""",
    read="scaling#merging-partials",
)
def running_first_counts_one_nan(scores):
    largest, total = scores[0], torch.ones_like(scores[0])
    rows = [torch.stack([largest, total])]
    for score in scores[1:]:
        new = torch.maximum(largest, score)
        total = total * torch.exp(largest - new) + torch.exp(score - new)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "as long as nothing has been seen, minus infinity adds 1 to the sum",
    hint="""The difference of two minus infinities has become 0 in yours, and its exponential 1. But a key
    that may not be seen adds nothing.""",
    read="scaling#merging-partials",
)
def running_infinity_counts_one(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        new = max(largest, score)
        nothing_yet = new == -math.inf
        factor = 1.0 if nothing_yet else math.exp(largest - new)
        total = total * factor + (1.0 if nothing_yet else math.exp(score - new))
        largest = new
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


@running_total.misconception(
    "where nothing has been seen, the largest score has become 0",
    hint="""Subtract something finite, but keep the true largest score beside it: it is asked for, and the
    next step needs it.""",
    read="scaling#merging-partials",
)
def running_finite_largest(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        new = torch.where(new == -math.inf, 0.0, new)
        total = total * torch.exp(largest - new) + torch.exp(score - new)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the two numbers of a row are exchanged",
    hint="""Which of the two is to stand first in a row?""",
    read="scaling#one-pass-softmax",
)
def running_exchanged(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        new = max(largest, score)
        if new > -math.inf:
            total = total * math.exp(largest - new) + math.exp(score - new)
        largest = new
        rows.append([total, largest])
    return torch.tensor(rows, dtype=scores.dtype)


# Mistakes of the above, made by those who have not come to think of minus infinity yet.


@running_total.misconception(
    "the sum is not rescaled when a larger score comes, and minus infinity is not taken care of",
    hint="""The exponentials that you have added up so far were taken relative to the old largest score. When
    that changes, all of them are too large. By which factor? (And what is the difference of two minus
    infinities?)""",
    read="scaling#one-pass-softmax",
)
def running_not_rescaled_nan(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        largest = torch.maximum(largest, score)
        total = total + torch.exp(score - largest)
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the new score's exponential is taken relative to the old largest score, at the start minus infinity",
    hint="""Relative to minus infinity, every exponential is infinite. Everything in the sum must be relative
    to the same number. Which one is it after this step?""",
    read="scaling#one-pass-softmax",
)
def running_relative_to_nothing(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        total = total * torch.exp(largest - new) + torch.exp(score - largest)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the factor is upside down, so at the start it is infinite",
    hint="""A larger largest score makes every exponential relative to it smaller. Is your factor above 1 or
    below?""",
    read="scaling#one-pass-softmax",
)
def running_factor_infinite(scores):
    largest, total, rows = scores.new_tensor(-math.inf), scores.new_zeros(()), []
    for score in scores:
        new = torch.maximum(largest, score)
        total = total * torch.exp(new - largest) + torch.exp(score - new)
        largest = new
        rows.append(torch.stack([largest, total]))
    return torch.stack(rows)


@running_total.misconception(
    "the exponentials are not taken relative to the largest score, and `math.exp` gives up",
    hint="""Your sum is the sum of exp(score). For scores around a thousand there is no such number, as for
    any softargmax that does not subtract.""",
    read="attention_operator#stable-softargmax",
)
def running_overflow(scores):
    largest, total, rows = -math.inf, 0.0, []
    for score in scores.tolist():
        largest = max(largest, score)
        total = total + math.exp(score)
        rows.append([largest, total])
    return torch.tensor(rows, dtype=scores.dtype)


# ---------------------------------------------------------------------------------------
# Merge two partial results
# ---------------------------------------------------------------------------------------

PARTS = ("largest", "total", "weighted")


def _merge_partials(first: tuple, second: tuple) -> tuple:
    return tuple(scaling.merge_partials(*(scaling.PartialAttention(*part) for part in (first, second))))


def _call_merge_partials(answer: Callable, inputs: dict[str, Any]) -> Any:
    values = list(inputs.values())
    return answer(tuple(values[:3]), tuple(values[3:]))


def _merge_partials_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(note: str, *batch: int, shift: float = 0.0, empty: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs: dict[str, Tensor] = {}
        for which in ("first", "second"):
            scores = normal(*batch, 3, 4, dtype=dtype) * 2
            scores = scores + (shift if which == "second" else 0.0)
            if which in empty:
                scores[..., 1, :] = -math.inf
            part = scaling.partial_attention(scores, normal(*batch, 4, 2, dtype=dtype))
            inputs |= {f"{name} of {which}": x for name, x in zip(PARTS, part, strict=True)}
        return Case(inputs, note, **how)

    return [
        case("scores of the same size"),
        case("larger scores in the second part", shift=6.0),
        case("larger scores in the first part", shift=-6.0),
        case("a batch, in double precision", 2, dtype=torch.float64),
        case("scores that differ by hundreds", shift=300.0),
        case("the other way round", shift=-300.0),
        case("a row that has seen nothing in the first part", empty="first"),
        case("a row that has seen nothing in the second part", empty="second"),
        case("a row that has seen nothing in either", empty="first second"),
    ]


merge_partials = Task("merge_partials", _merge_partials, _merge_partials_cases, call=_call_merge_partials)


@merge_partials.misconception(
    "sums of exponentials relative to different numbers are added",
    hint="""Each part has subtracted its own largest score before the exponential. Bring both to the same
    one, the largest of all, before you add.""",
    read="scaling#merging-partials",
)
def merge_added(first, second):
    return torch.maximum(first[0], second[0]), first[1] + second[1], first[2] + second[2]


@merge_partials.misconception(
    "the totals are rescaled, and the weighted sums are not",
    hint="""The weighted sum is a sum of the same exponentials, each times a value. What holds for the one
    holds for the other.""",
    read="scaling#merging-partials",
)
def merge_weighted_not_rescaled(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return largest, a * first[1] + b * second[1], first[2] + second[2]


@merge_partials.misconception(
    "the two factors are exchanged",
    hint="""The part with the larger largest score keeps its sums as they are: its factor is 1. Which part has
    factor 1 in yours?""",
    read="scaling#merging-partials",
)
def merge_exchanged(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    b, a = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "the factors are upside down: sums grow when they should shrink",
    hint="""Relative to a larger number, an exponential is smaller. No factor can be above 1.""",
    read="scaling#merging-partials",
)
def merge_upside_down(first, second):
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(largest - first[0]), torch.exp(largest - second[0])
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "minus infinity minus minus infinity",
    hint="""A row that has seen nothing in either part has the largest score minus infinity in both. Their
    difference is not a number. Subtract 0 there: exp of minus infinity is 0, as it should be.""",
    read="scaling#merging-partials",
)
def merge_nan(first, second):
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "everything is relative to the first part's largest score",
    hint="""It is right as long as the second part's scores are not much larger. If they are, the exponential
    overflows. Which number is safe for both?""",
    read="scaling#merging-partials",
)
def merge_relative_to_first(first, second):
    largest = first[0]
    factor = torch.exp(second[0] - largest)
    return largest, first[1] + factor * second[1], first[2] + factor * second[2]


@merge_partials.misconception(
    "one largest score for all rows",
    hint="""Each row of scores belongs to another query and has a largest score of its own. `max()` without a
    dimension looks at all of them. `torch.maximum` compares two tensors place by place.""",
    read="scaling#merging-partials",
)
def merge_one_for_all(first, second):
    largest = torch.max(first[0].max(), second[0].max()).expand(first[0].shape)
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "the weighted sum is divided by the total already",
    hint="""The result of a merge is to be merged again, so it must have the same form as the parts. Divide
    when all the keys have been seen.""",
    read="scaling#merging-partials",
)
def merge_divided(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    total = a * first[1] + b * second[1]
    return largest, total, (a * first[2] + b * second[2]) / total


@merge_partials.misconception(
    "a largest score of minus infinity comes back as 0",
    hint="""Something finite is to be subtracted there. But what you return is to say that nothing has been
    seen, so that the next merge knows it.""",
    read="scaling#merging-partials",
)
def merge_returns_finite(first, second):
    largest = torch.maximum(first[0], second[0])
    largest = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "only the second part is rescaled",
    hint="""That is right where the first part has the larger score. Where the second has it, which part's
    exponentials are relative to a number that is too small?""",
    read="scaling#merging-partials",
)
def merge_only_second(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    factor = torch.exp(second[0] - finite)
    return largest, first[1] + factor * second[1], first[2] + factor * second[2]


@merge_partials.misconception(
    "the weighted sums are rescaled, and the totals are not",
    hint="""The total is a sum of the same exponentials. What holds for the one holds for the other.""",
    read="scaling#merging-partials",
)
def merge_totals_not_rescaled(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return largest, first[1] + second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "each part is brought to the largest score of the other",
    hint="""After yours, the first part is relative to the second's number, and the second to the first's.
    Bring both to the same one.""",
    read="scaling#merging-partials",
)
def merge_to_each_other(first, second):
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(first[0] - second[0]), torch.exp(second[0] - first[0])
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "Python's `max` is asked which of two tensors is larger",
    hint="""A tensor has many numbers, and one of the tensors may be larger here and smaller there.
    `torch.maximum` compares them place by place.""",
    read="scaling#merging-partials",
)
def merge_with_pythons_max(first, second):
    largest = max(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "the weighted sum is divided by the total already, where there is one",
    hint="""The result of a merge is to be merged again, so it must have the same form as the parts. Divide
    when all the keys have been seen.""",
    read="scaling#merging-partials",
)
def merge_divided_where_not_empty(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    total = a * first[1] + b * second[1]
    return largest, total, (a * first[2] + b * second[2]) / torch.where(total == 0, 1.0, total)


@merge_partials.misconception(
    "a part is passed over, because one of its rows has seen nothing",
    hint="""The other rows of that part have seen something. Each row belongs to another query, and must be
    looked at by itself.""",
    read="scaling#merging-partials",
)
def merge_passes_over(first, second):
    if (first[0] == -math.inf).any():
        return second
    if (second[0] == -math.inf).any():
        return first
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "both are brought to the smaller of the two largest scores",
    hint="""Relative to the smaller one, exponentials are larger than 1, and may overflow. Relative to which
    number does none of them exceed 1?""",
    read="scaling#merging-partials",
)
def merge_smaller(first, second):
    smaller = torch.minimum(first[0], second[0])
    finite = torch.where(smaller == -math.inf, 0.0, smaller)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return smaller, a * first[1] + b * second[1], a * first[2] + b * second[2]


@merge_partials.misconception(
    "the total comes back first, and the largest score second",
    hint="""The result is to have the same form as the parts. In which order do their three tensors
    stand?""",
    read="scaling#merging-partials",
)
def merge_in_another_order(first, second):
    largest = torch.maximum(first[0], second[0])
    finite = torch.where(largest == -math.inf, 0.0, largest)
    a, b = torch.exp(first[0] - finite), torch.exp(second[0] - finite)
    return a * first[1] + b * second[1], largest, a * first[2] + b * second[2]


# Mistakes of the above, made by those who have not come to think of minus infinity yet.


@merge_partials.misconception(
    "the weighted sum is divided by the total already, and minus infinity is not taken care of",
    hint="""The result of a merge is to be merged again, so it must have the same form as the parts. Divide
    when all the keys have been seen. (And what is the difference of two minus infinities?)""",
    read="scaling#merging-partials",
)
def merge_divided_nan(first, second):
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    total = a * first[1] + b * second[1]
    return largest, total, (a * first[2] + b * second[2]) / total


@merge_partials.misconception(
    "the totals are rescaled, the weighted sums are not, and minus infinity is not taken care of",
    hint="""The weighted sum is a sum of the same exponentials, each times a value. What holds for the one
    holds for the other. (And what is the difference of two minus infinities?)""",
    read="scaling#merging-partials",
)
def merge_weighted_not_rescaled_nan(first, second):
    largest = torch.maximum(first[0], second[0])
    a, b = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], first[2] + second[2]


@merge_partials.misconception(
    "the two factors are exchanged, and minus infinity is not taken care of",
    hint="""The part with the larger largest score keeps its sums as they are: its factor is 1. Which part has
    factor 1 in yours? (And what is the difference of two minus infinities?)""",
    read="scaling#merging-partials",
)
def merge_exchanged_nan(first, second):
    largest = torch.maximum(first[0], second[0])
    b, a = torch.exp(first[0] - largest), torch.exp(second[0] - largest)
    return largest, a * first[1] + b * second[1], a * first[2] + b * second[2]


# ---------------------------------------------------------------------------------------
# Attention under a memory budget
# ---------------------------------------------------------------------------------------


class _LargestTensor(TorchDispatchMode):
    """Watches every operation on tensors, and keeps the shape of the largest that one has made.

    It sees PyTorch's tensors, and not what is in lists or in NumPy's arrays. And it runs beside the
    answer: a grader sees what the answer returns, and has to believe that it was watched.
    """

    numel = 0
    shape: tuple[int, ...] = ()

    @given  # what is called in here is not called by the answer
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in result if isinstance(result, tuple | list) else (result,):
            # A view is as small as the memory behind it: expanding makes no new numbers.
            if (
                isinstance(made, Tensor)
                and made.numel() > self.numel
                and made.untyped_storage().nbytes() > self.numel * made.element_size()
            ):
                self.numel, self.shape = made.numel(), tuple(made.shape)
        return result


def _chunked_attention(query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> Tensor:
    return scaling.chunked_attention(query, key, value, chunk_size=chunk_size)


def _call_within_budget(answer: Callable, inputs: dict[str, Any]) -> Any:
    query, *_, chunk_size = inputs.values()
    tensors = [x for x in inputs.values() if isinstance(x, Tensor)]
    budget = max(*(x.numel() for x in tensors), math.prod(query.shape[:-1]) * chunk_size)
    with _LargestTensor() as largest:
        output = answer(*inputs.values())
    if largest.numel > budget:
        raise Misfit(
            f"your function made a tensor of shape {largest.shape}, {largest.numel} numbers; "
            f"the budget is {budget}"
        )
    return output


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
        case(20, 18, 2, "small chunks, and many of them", 2, 3),
    ]


chunked_attention = Task(
    "chunked_attention",
    _chunked_attention,
    _chunked_attention_cases,
    refuses=("numpy", "__array__"),  # what is in NumPy's arrays would not be counted
    call=_call_within_budget,
)


@chunked_attention.misconception(
    "the whole matrix of scores is computed, and cut in chunks afterwards",
    hint="""What you cut up afterwards has been in memory before. Cut the *keys*, and compute the scores of a
    chunk inside the loop.""",
    read="scaling#attention-in-chunks",
)
def chunked_whole_matrix(query, key, value, chunk_size):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@chunked_attention.misconception(
    "the queries are cut in chunks instead of the keys",
    hint="""Fewer queries at a time need fewer scores, but each of these rows still has a score for every key,
    however long the sequence. Cut the other side, and it does not matter how many keys there are.""",
    read="scaling#attention-in-chunks",
)
def chunked_queries(query, key, value, chunk_size):
    rows = query.split(chunk_size, -2)
    return torch.cat([torch.softmax(q @ key.mT / math.sqrt(q.shape[-1]), -1) @ value for q in rows], -2)


@chunked_attention.misconception(
    "each chunk has a softargmax of its own, and the outputs are added",
    hint="""The weights of a row must sum to 1 over *all* keys. Yours sum to 1 in every chunk. Put off the
    division until every key has been seen.""",
    read="scaling#merging-partials",
)
def chunked_softmax_each_added(query, key, value, chunk_size):
    output = 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        output = output + torch.softmax(query @ k.mT / math.sqrt(query.shape[-1]), -1) @ v
    return output


@chunked_attention.misconception(
    "each chunk has a softargmax of its own, and the outputs are averaged",
    hint="""A chunk with high scores must count for more than one with low scores. In a plain mean every chunk
    counts the same. By what should it be weighed?""",
    read="scaling#merging-partials",
)
def chunked_softmax_each_averaged(query, key, value, chunk_size):
    outputs = [
        torch.softmax(query @ k.mT / math.sqrt(query.shape[-1]), -1) @ v
        for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True)
    ]
    return sum(outputs) / len(outputs)


@chunked_attention.misconception(
    "the chunks are added without bringing them to the same largest score",
    hint="""Each chunk's exponentials are relative to its own largest score. Rescale before adding: this is
    what merging does.""",
    read="scaling#merging-partials",
)
def chunked_not_rescaled(query, key, value, chunk_size):
    total, weighted = 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        exponentials = torch.exp(scores - scores.amax(-1, keepdim=True))
        total = total + exponentials.sum(-1, keepdim=True)
        weighted = weighted + exponentials @ v
    return weighted / total


@chunked_attention.misconception(
    "the total is rescaled, and the weighted sum is not",
    hint="""Both were added up from the same exponentials. When the largest score moves, both are off by the
    same factor.""",
    read="scaling#merging-partials",
)
def chunked_weighted_not_rescaled(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        exponentials = torch.exp(scores - new)
        total = total * torch.exp(largest - new) + exponentials.sum(-1, keepdim=True)
        weighted = weighted + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the last chunk is left out if it is not full",
    hint="""How many chunks of 4 are there in 11 keys? `//` rounds down. A slice may reach beyond the end; it
    is simply shorter then.""",
    read="scaling#attention-in-chunks",
)
def chunked_last_left_out(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for number in range(key.shape[-2] // chunk_size):
        columns = slice(number * chunk_size, (number + 1) * chunk_size)
        scores = query @ key[..., columns, :].mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ value[..., columns, :]
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the weighted sum is never divided by the total",
    hint="""The exponentials are no weights yet. Sum them over the keys: is it 1?""",
    read="scaling#attention-in-chunks",
)
def chunked_not_divided(query, key, value, chunk_size):
    largest, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        weighted = weighted * torch.exp(largest - new) + torch.exp(scores - new) @ v
        largest = new
    return weighted


@chunked_attention.misconception(
    "the scores are not scaled",
    hint="""The chunks are merged as they should be. Compare the scores with those of the operator, term by
    term.""",
    read="attention_operator#why-the-scale",
)
def chunked_unscaled(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the exponentials are not taken relative to the largest score",
    hint="""Without subtracting, nothing need be rescaled, and for small scores it is right. What becomes of
    exp(300)?""",
    read="attention_operator#stable-softargmax",
)
def chunked_without_subtracting(query, key, value, chunk_size):
    total, weighted = 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        exponentials = torch.exp(query @ k.mT / math.sqrt(query.shape[-1]))
        total = total + exponentials.sum(-1, keepdim=True)
        weighted = weighted + exponentials @ v
    return weighted / total


@chunked_attention.misconception(
    "`chunk_size` is taken for the number of chunks",
    hint="""It is the number of keys in a chunk. `chunk` and `split` of PyTorch mean different things by their
    number. Which of the two do you need?""",
    read="scaling#attention-in-chunks",
)
def chunked_number_of_chunks(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.chunk(chunk_size, -2), value.chunk(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the chunks are cut along the first dimension, which with a batch counts the sequences",
    hint="""Which dimension are the keys, counted from the back? `split` takes the first one, unless it is
    told otherwise, and so does a slice.""",
    read="scaling#attention-in-chunks",
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


@chunked_attention.misconception(
    "the chunks' scores are put together again, to the matrix of all scores",
    hint="""A loop saves nothing if it keeps what it has computed. What is small enough to be kept of a
    chunk?""",
    read="scaling#attention-in-chunks",
)
def chunked_put_together(query, key, value, chunk_size):
    scores = [query @ k.mT for k in key.split(chunk_size, -2)]
    return torch.softmax(torch.cat(scores, -1) / math.sqrt(query.shape[-1]), -1) @ value


@chunked_attention.misconception(
    "each chunk of queries sees only one chunk of the keys",
    hint="""Every query may attend to every key. How many blocks of scores are there, if the queries are cut,
    too?""",
    read="scaling#attention-in-chunks",
)
def chunked_blocks_on_the_diagonal(query, key, value, chunk_size):
    outputs = []
    for q, k, v in zip(*(x.split(chunk_size, -2) for x in (query, key, value)), strict=False):
        outputs.append(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v)
    return torch.cat(outputs, -2)


@chunked_attention.misconception(
    "only the first chunk is looked at: the function returns inside the loop",
    hint="""How often does your loop go round? What stands below it, and how far is it indented?""",
    read="scaling#attention-in-chunks",
)
def chunked_returns_in_the_loop(query, key, value, chunk_size):
    keys, values = key[..., :chunk_size, :], value[..., :chunk_size, :]
    return torch.softmax(query @ keys.mT / math.sqrt(query.shape[-1]), -1) @ values


@chunked_attention.misconception(
    "only the last chunk counts: what came before is overwritten",
    hint="""After each chunk, what is known of it is to be merged with what is known of those before. Where
    does your loop use the old result?""",
    read="scaling#attention-in-chunks",
)
def chunked_overwritten(query, key, value, chunk_size):
    keys, values = key.split(chunk_size, -2)[-1], value.split(chunk_size, -2)[-1]
    return torch.softmax(query @ keys.mT / math.sqrt(query.shape[-1]), -1) @ values


@chunked_attention.misconception(
    "the weighted sum is divided by the total after every chunk",
    hint="""What is divided is no longer a sum of exponentials, so the next chunk cannot be added to it. When
    is the total complete?""",
    read="scaling#attention-in-chunks",
)
def chunked_divided_every_time(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = (weighted * factor + exponentials @ v) / total
        largest = new
    return weighted


@chunked_attention.misconception(
    "the sums are not rescaled when the largest score moves",
    hint="""The new exponentials are relative to the largest score so far, and the old ones to one that is
    smaller. What has to happen to the old sums?""",
    read="scaling#merging-partials",
)
def chunked_running_not_rescaled(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        largest = torch.maximum(largest, scores.amax(-1, keepdim=True))
        exponentials = torch.exp(scores - largest)
        total = total + exponentials.sum(-1, keepdim=True)
        weighted = weighted + exponentials @ v
    return weighted / total


@chunked_attention.misconception(
    "the weighted sum is rescaled, and the total is not",
    hint="""Both were added up from the same exponentials. When the largest score moves, both are off by the
    same factor.""",
    read="scaling#merging-partials",
)
def chunked_total_not_rescaled(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.amax(-1, keepdim=True))
        exponentials = torch.exp(scores - new)
        total = total + exponentials.sum(-1, keepdim=True)
        weighted = weighted * torch.exp(largest - new) + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "everything is relative to the first chunk's largest score",
    hint="""It is right as long as no later chunk has much larger scores. If one has, the exponential
    overflows.""",
    read="scaling#merging-partials",
)
def chunked_relative_to_first(query, key, value, chunk_size):
    largest, total, weighted = None, 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        largest = scores.amax(-1, keepdim=True) if largest is None else largest
        exponentials = torch.exp(scores - largest)
        total = total + exponentials.sum(-1, keepdim=True)
        weighted = weighted + exponentials @ v
    return weighted / total


@chunked_attention.misconception(
    "everything is relative to the newest chunk's largest score, even if an older one is larger",
    hint="""No factor should be above 1. If the newest chunk has low scores, yours is large, and may overflow.
    What is the largest score *so far*?""",
    read="scaling#merging-partials",
)
def chunked_relative_to_newest(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = scores.amax(-1, keepdim=True)
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "one largest score for all queries",
    hint="""Each row of scores has a largest score of its own. Relative to that of another row, all its
    exponentials may be 0.""",
    read="scaling#merging-partials",
)
def chunked_one_largest_for_all(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        new = torch.maximum(largest, scores.max())
        factor, exponentials = torch.exp(largest - new), torch.exp(scores - new)
        total = total * factor + exponentials.sum(-1, keepdim=True)
        weighted = weighted * factor + exponentials @ v
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the chunks are merged, but what is merged has been divided already",
    hint="""The triple of a chunk has the *sum* of its exponentials and the weighted *sum*. With a softargmax
    in every chunk, what do yours sum to?""",
    read="scaling#merging-partials",
)
def chunked_merges_averages(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        its_own = scores.amax(-1, keepdim=True)
        new = torch.maximum(largest, its_own)
        before, now = torch.exp(largest - new), torch.exp(its_own - new)
        total = total * before + now
        weighted = weighted * before + torch.softmax(scores, -1) @ v * now
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the chunks are merged as if relative to their largest scores, but their exponentials are not",
    hint="""The triple of a chunk has sums of exponentials *relative to* its largest score. Relative to what
    are yours?""",
    read="scaling#merging-partials",
)
def chunked_merges_absolute(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / math.sqrt(query.shape[-1])
        its_own, exponentials = scores.amax(-1, keepdim=True), torch.exp(scores)
        new = torch.maximum(largest, its_own)
        before, now = torch.exp(largest - new), torch.exp(its_own - new)
        total = total * before + exponentials.sum(-1, keepdim=True) * now
        weighted = weighted * before + exponentials @ v * now
        largest = new
    return weighted / total


@chunked_attention.misconception(
    "the scores are divided by the number of features, and not by its root",
    hint="""The chunks are merged as they should be. By what are the scores of the operator divided?""",
    read="attention_operator#why-the-scale",
)
def chunked_scaled_without_root(query, key, value, chunk_size):
    largest, total, weighted = torch.tensor(-math.inf, dtype=query.dtype), 0, 0
    for k, v in zip(key.split(chunk_size, -2), value.split(chunk_size, -2), strict=True):
        scores = query @ k.mT / query.shape[-1]
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


def _decoding_step_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(cached: int, new: int, note: str, *batch: int, **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        shapes = {"query": (new, 4), "key": (new, 4), "value": (new, 3)}
        shapes |= {"key_cache": (cached, 4), "value_cache": (cached, 3)}
        inputs = {name: normal(*batch, *shape, dtype=dtype) for name, shape in shapes.items()}
        return Case(inputs, note, **how)

    return [
        case(5, 1, "one new position"),
        case(0, 1, "the first position"),
        case(0, 3, "a prompt of three positions"),
        case(4, 3, "three new positions"),
        case(3, 1, "heads", 2),
        case(3, 2, "a batch and heads, in double precision", 2, 3, dtype=torch.float64),
        case(4, 2, "inputs that are not contiguous", 2, contiguous=False),
    ]


decoding_step = Task("decoding_step", _decoding_step, _decoding_step_cases)


@decoding_step.misconception(
    "the new positions do not see themselves",
    hint="""The cache that you attend to ends before the new positions. A position may see itself; the first
    one would otherwise see nothing. Append first, then attend.""",
    read="scaling#kv-cache",
)
def decoding_without_itself(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ key_cache.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) @ value_cache, keys, values


@decoding_step.misconception(
    "of several new positions, the earlier ones see the later ones",
    hint="""A single new position may see everything there is. The first of three may not see the other two.
    Which mask says so?""",
    read="scaling#kv-cache",
)
def decoding_without_mask(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    return torch.softmax(query @ keys.mT / math.sqrt(query.shape[-1]), -1) @ values, keys, values


@decoding_step.misconception(
    "the causal mask is aligned at the start, and hides the cache",
    hint="""The new positions are the last ones. The first of them sees the whole cache and itself. How far
    must the edge of the triangle be moved?""",
    read="masking#rectangular-masks",
)
def decoding_aligned_at_start(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the new keys and values are put in front of the cache",
    hint="""The cache is in the order of the positions, and the new ones come last.""",
    read="scaling#kv-cache",
)
def decoding_in_front(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key, key_cache], -2), torch.cat([value, value_cache], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the caches come back as they were, without the new positions",
    hint="""The output is right. The next step will need the keys and values of this one as well.""",
    read="scaling#kv-cache",
)
def decoding_forgets(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    output = torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values
    return output, key_cache.clone(), value_cache.clone()


@decoding_step.misconception(
    "the new positions see only one another, and not the cache",
    hint="""Without the earlier keys and values there would be no need to keep them. Who answers the new
    queries?""",
    read="scaling#kv-cache",
)
def decoding_only_new(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ value, keys, values


@decoding_step.misconception(
    "the cache is appended to along the first dimension",
    hint="""Without a batch, the first dimension is that of the positions. With heads in front it is not.
    Count from the back.""",
    read="scaling#kv-cache",
)
def decoding_first_dimension(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key]), torch.cat([value_cache, value])
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the scores are not scaled",
    hint="""The step sees what it should see. Compare the scores with those of the operator, term by
    term.""",
    read="attention_operator#why-the-scale",
)
def decoding_unscaled(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the new positions see the cache and one another, but not themselves",
    hint="""The edge of your triangle is one place too far to the left. A causal mask has the diagonal: a
    position may see itself.""",
    read="masking#diagonal",
)
def decoding_strictly_past(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2] - 1)
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "of several new positions, each sees one position too far ahead",
    hint="""The edge of your triangle is one place too far to the right. With nothing in the cache, how many
    positions may the first one see?""",
    read="masking#rectangular-masks",
)
def decoding_one_ahead(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2] + 1)
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the edge of the mask is moved by the number of new positions, and not by that of the cached ones",
    hint="""The first new position sees the whole cache and itself. By how much must the edge be moved, so
    that it does?""",
    read="masking#rectangular-masks",
)
def decoding_moved_by_new(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(query.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the mask is the wrong way round: what may be seen is hidden",
    hint="""Write down the mask for three new positions. Where do you fill in minus infinity: where it is
    True, or where it is False?""",
    read="masking#masking-patterns",
)
def decoding_mask_inverted(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ values, keys, values


@decoding_step.misconception(
    "the scores of later positions are set to 0, and not hidden",
    hint="""A score of 0 is a score like any other, and its exponential is 1. Which score gets the weight
    0?""",
    read="masking#masking-two-wrong",
)
def decoding_scores_times_zero(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores * mask, -1) @ values, keys, values


@decoding_step.misconception(
    "the weights of later positions are set to 0 after the softargmax, so the rest no longer sums to 1",
    hint="""The division has counted them already. Hide them before the exponential, or divide
    again.""",
    read="masking#masking-two-wrong",
)
def decoding_not_renormalised(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return (torch.softmax(scores, -1) * mask) @ values, keys, values


@decoding_step.misconception(
    "only the new keys and values come back, without those before",
    hint="""The output is right. The next step will need the earlier keys and values, too.""",
    read="scaling#kv-cache",
)
def decoding_returns_new(query, key, value, key_cache, value_cache):
    keys, values = torch.cat([key_cache, key], -2), torch.cat([value_cache, value], -2)
    scores = query @ keys.mT / math.sqrt(query.shape[-1])
    mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(key_cache.shape[-2])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ values, key.clone(), value.clone()


# ---------------------------------------------------------------------------------------
# How large the cache is
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


def _cache_bytes_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def case(note: str, *ranges: tuple[int, int]) -> Case:
        names = ("num_positions", "num_layers", "num_heads", "head_dim", "bytes_per_number")
        numbers = [int(torch.randint(low, high + 1, (), generator=generator)) for low, high in ranges]
        return Case(dict(zip(names, numbers, strict=True)), note)

    return [
        case("a small model", (100, 999), (3, 7), (5, 9), (10, 31), (4, 4)),
        case("half precision", (1000, 5000), (8, 12), (3, 4), (33, 64), (2, 2)),
        case("one layer of one head", (50, 99), (1, 1), (1, 1), (3, 9), (4, 4)),
        case("a large model, long text", (100_000, 200_000), (80, 96), (64, 72), (120, 128), (2, 2)),
    ]


cache_bytes = Task("cache_bytes", _cache_bytes, _cache_bytes_cases)


@cache_bytes.misconception(
    "only the keys are counted, or only the values",
    hint="""A query needs the keys to find its weights, and then something to average.""",
    read="scaling#cache-size",
)
def bytes_keys_only(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return num_positions * num_layers * num_heads * head_dim * bytes_per_number


@cache_bytes.misconception(
    "queries are counted, too",
    hint="""A query is asked once, when its position is new, and never again. Does anyone need it later?""",
    read="scaling#kv-cache",
)
def bytes_with_queries(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 3 * num_positions * num_layers * num_heads * head_dim * bytes_per_number


@cache_bytes.misconception(
    "a matrix of positions by positions is counted",
    hint="""The weights of a step are used in that step and forgotten. What is kept is a row for each
    position.""",
    read="scaling#cache-size",
)
def bytes_squared(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return num_layers * num_heads * num_positions**2 * bytes_per_number


@cache_bytes.misconception(
    "the layers are forgotten",
    hint="""Each layer makes keys and values of its own from its own input.""",
    read="scaling#cache-size",
)
def bytes_without_layers(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_positions * num_heads * head_dim * bytes_per_number


@cache_bytes.misconception(
    "the heads are forgotten",
    hint="""Each head has keys and values of its own, and `head_dim` is the number of features of one
    head.""",
    read="scaling#cache-size",
)
def bytes_without_heads(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_positions * num_layers * head_dim * bytes_per_number


@cache_bytes.misconception(
    "numbers are counted instead of bytes",
    hint="""Each number takes several bytes; how many is the last argument.""",
    read="scaling#cache-size",
)
def bytes_numbers(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_positions * num_layers * num_heads * head_dim


@cache_bytes.misconception(
    "the number of positions is forgotten",
    hint="""What you have counted is kept for each position of the text. How many are there?""",
    read="scaling#cache-size",
)
def bytes_of_one_position(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_layers * num_heads * head_dim * bytes_per_number


@cache_bytes.misconception(
    "each key and each value is counted as one number",
    hint="""A key is a row, and so is a value. How many features has it?""",
    read="scaling#cache-size",
)
def bytes_of_one_feature(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return 2 * num_positions * num_layers * num_heads * bytes_per_number


@cache_bytes.misconception(
    "numbers are counted instead of bytes, and only the keys or only the values",
    hint="""Each number takes several bytes; how many is the last argument. And a query needs the keys to find
    its weights, and then something to average.""",
    read="scaling#cache-size",
)
def bytes_numbers_of_keys(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    return num_positions * num_layers * num_heads * head_dim


@cache_bytes.misconception(
    "the caches of all steps are added up",
    hint="""There is one cache, which grows. How large is it when the last position has been appended?""",
    read="scaling#cache-size",
)
def bytes_of_all_steps(num_positions, num_layers, num_heads, head_dim, bytes_per_number):
    a_position = 2 * num_layers * num_heads * head_dim * bytes_per_number
    return a_position * num_positions * (num_positions + 1) // 2
