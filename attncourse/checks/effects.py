"""Do the effects of two mistakes make up what came?

The effect of a mistake is what it changes of the right answers. Two mistakes that were made together often
change what each changes alone: a number is wrong by the sum of two errors or by both factors, a mask is
turned round at the places of one and at those of the other, a word is wrong for one reason, another for
another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from attncourse.checks.compare import roughly
from attncourse.probe.answer import Answer, Foreign, Plain

Name = TypeVar("Name")

# Words, yes and no and whole numbers agree by chance: so many must be wrong, and of words so many by each
# mistake alone.
LEAST_WRONG, LEAST_ALONE = 5, 3
# Of more numbers than these some are looked at.
MOST_NUMBERS = 5_000


def two_that_make_up(
    given: Sequence[Answer],
    right: Sequence[Answer],
    known: Mapping[Name, Sequence[Answer]],
    alternatives: Callable[[Name, Name], bool] = lambda one, other: False,
) -> list[tuple[Name, Name]]:
    """Every two mistakes that together give what came.

    Parameters
    ----------
    given, right : sequence of Answer
        What came and what is right, for the same cases.
    known : mapping to sequences of Answer
        What each mistake gives for them.
    alternatives : callable
        ``alternatives(one, other)`` says whether two mistakes are other choices in the same thing: these
        cannot both have been made where both would show.

    Returns
    -------
    list of pairs of names
        Empty also where what came failed, has another form than what is right, or is no number.
    """
    came, wanted = _flat(given), _flat(right)
    if came is None or wanted is None or not came.like(wanted):
        return []
    effects = {}
    for name, answers in known.items():
        flat = _flat(answers)
        if flat is not None and flat.like(wanted) and any(flat.differs(wanted)):
            effects[name] = flat
    telling = bool((came.numbers != came.numbers.round()).any())
    if not telling and sum(came.differs(wanted)) < LEAST_WRONG:
        return []
    return [
        (one, other)
        for (one, first), (other, second) in itertools.combinations(effects.items(), 2)
        if _together(first, second, came, wanted)
        and not (alternatives(one, other) and _overlap(first, second, wanted))
        and (telling or not wanted.words or _each_alone(first, second, wanted))
    ]


def one_of_two(given: Answer, right: Answer, known: Mapping[Name, Answer]) -> list[Name]:
    """The mistakes that with another one give what came for one case: no others can for all cases.

    The parameters are those of `two_that_make_up`, for one case.
    """
    came, wanted = _flat([given]), _flat([right])
    if came is None or wanted is None or not came.like(wanted):
        return []
    flats = {name: _flat([answer]) for name, answer in known.items()}
    effects = {name: flat for name, flat in flats.items() if flat is not None and flat.like(wanted)}
    pairs = itertools.combinations(effects.items(), 2)
    found = {
        name
        for (one, first), (other, second) in pairs
        if _together(first, second, came, wanted)
        for name in (one, other)
    }
    return [name for name in effects if name in found]


@dataclass(frozen=True)
class _Flat:
    """All that a function returned, for all cases: what is true or false, numbers, and words."""

    truths: Tensor
    numbers: Tensor
    words: tuple[Plain, ...]

    def like(self, other: _Flat) -> bool:
        return (
            self.truths.shape == other.truths.shape
            and self.numbers.shape == other.numbers.shape
            and len(self.words) == len(other.words)
        )

    def differs(self, other: _Flat) -> tuple[int, int, int]:
        """How many truths, numbers and words differ."""
        truths = int((self.truths ^ other.truths).sum())
        numbers = int((~roughly(self.numbers, other.numbers)).sum())
        return truths, numbers, sum(a != b for a, b in zip(self.words, other.words, strict=True))


def _flat(answers: Sequence[Answer]) -> _Flat | None:
    if any(answer.failure is not None or isinstance(answer.value, Foreign) for answer in answers):
        return None
    truths: list[Tensor] = [torch.zeros(0, dtype=torch.bool)]
    numbers: list[Tensor] = [torch.zeros(0, dtype=torch.float64)]
    words: list[Plain] = []
    for kind, leaves in itertools.groupby(_leaves([answer.value for answer in answers]), _kind):
        if kind == "truths":
            truths += (leaf.flatten() for leaf in leaves)
        elif kind == "tensors":
            numbers += (leaf.flatten().double() for leaf in leaves)
        elif kind == "numbers":  # of a long list one tensor, not one of each
            numbers.append(torch.tensor(list(leaves), dtype=torch.float64))
        else:
            words += leaves
    all_numbers = torch.cat(numbers)
    step = len(all_numbers) // MOST_NUMBERS + 1
    flat = _Flat(torch.cat(truths), all_numbers[::step], tuple(words))
    return flat if flat.numbers.isfinite().all() else None


def _leaves(value: Plain) -> Iterator[Plain]:
    """The tensors, numbers and words of a value, in one order."""
    if isinstance(value, tuple | list):
        for part in value:
            yield from _leaves(part)
    elif isinstance(value, dict):
        for name in sorted(value):
            yield from _leaves(value[name])
    else:
        yield value


def _kind(leaf: Plain) -> str:
    if isinstance(leaf, Tensor):
        return "truths" if leaf.dtype == torch.bool else "tensors"
    return "numbers" if isinstance(leaf, float | int) and not isinstance(leaf, bool) else "words"


def _together(first: _Flat, second: _Flat, came: _Flat, wanted: _Flat) -> bool:
    if not torch.equal(first.truths ^ second.truths ^ wanted.truths, came.truths):
        return False
    for a, b, right, word in zip(first.words, second.words, wanted.words, came.words, strict=True):
        if word not in (a, b) or (word == right and (a != right or b != right)):
            return False
    a, b, right = first.numbers, second.numbers, wanted.numbers
    if roughly(a + b - right, came.numbers).all():
        return True
    return bool(roughly(a * b / torch.where(right == 0, 1.0, right), came.numbers).all())


def _overlap(first: _Flat, second: _Flat, wanted: _Flat) -> bool:
    """Whether there is a truth or a number that both mistakes change."""
    truths = (first.truths ^ wanted.truths) & (second.truths ^ wanted.truths)
    numbers = ~roughly(first.numbers, wanted.numbers) & ~roughly(second.numbers, wanted.numbers)
    return bool(truths.any() or numbers.any())


def _each_alone(first: _Flat, second: _Flat, wanted: _Flat) -> bool:
    """Whether each of the two is wrong about enough words of which the other is right."""
    changed = [
        (a != right, b != right) for a, b, right in zip(first.words, second.words, wanted.words, strict=True)
    ]
    return min(changed.count((True, False)), changed.count((False, True))) >= LEAST_ALONE
