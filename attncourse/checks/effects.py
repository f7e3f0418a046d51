"""Do the effects of two mistakes make up what came?

The effect of a mistake is what it changes of the right answers. Two mistakes that were made together often
change what each changes alone: a number is wrong by the sum of two errors or by both factors, a mask is
turned round at the places of one and at those of the other, a word is wrong for one reason, another for
another.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import torch
from torch import Tensor

from attncourse.probe.answer import Answer, Foreign, Plain

Name = TypeVar("Name", bound=Hashable)

# Words, yes and no and whole numbers agree by chance: so many must be wrong, and of words so many by each
# mistake alone.
LEAST_WRONG, LEAST_ALONE = 5, 3
# Of more numbers than these some are looked at.
MOST_NUMBERS = 5_000


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


def _flat(answers: Sequence[Answer]) -> _Flat | None:
    truths: list[Tensor] = []
    numbers: list[Tensor] = []
    words: list[Plain] = []

    def take(value: Plain) -> None:
        if isinstance(value, Tensor) and value.dtype == torch.bool:
            truths.append(value.flatten())
        elif isinstance(value, Tensor):
            numbers.append(value.flatten().double())
        elif isinstance(value, float | int) and not isinstance(value, bool):
            numbers.append(torch.tensor([value], dtype=torch.float64))
        elif isinstance(value, tuple | list):
            for part in value:
                take(part)
        elif isinstance(value, dict):
            for name in sorted(value):
                take(value[name])
        else:
            words.append(value)

    for answer in answers:
        if answer.failure is not None or isinstance(answer.value, Foreign):
            return None
        take(answer.value)
    none = torch.zeros(0)
    flat = _Flat(torch.cat([none.bool(), *truths]), torch.cat([none.double(), *numbers]), tuple(words))
    return flat if flat.numbers.isfinite().all() else None


@dataclass
class Effects(Generic[Name]):
    """What mistakes change of the right answers.

    Parameters
    ----------
    right, given : _Flat
        The right answers, and those that came.
    """

    right: _Flat
    given: _Flat
    known: dict[Name, _Flat] = field(default_factory=dict)

    @classmethod
    def of(cls, right: Sequence[Answer], given: Sequence[Answer]) -> Effects | None:
        """None if answers failed, have another form than the right ones, or numbers that are none."""
        flat_right, flat_given = _flat(right), _flat(given)
        if flat_right is None or flat_given is None or not flat_given.like(flat_right):
            return None
        return cls(flat_right, flat_given)

    def add(self, name: Name, answers: Sequence[Answer]) -> None:
        """Take the answers of a mistake, if they can be compared."""
        flat = _flat(answers)
        if flat is not None and flat.like(self.right):
            self.known[name] = flat

    def pairs(self) -> Iterator[tuple[Name, Name]]:
        """Every two mistakes that together give what came."""
        names = list(self.known)
        kept = slice(None, None, len(self.right.numbers) // MOST_NUMBERS + 1)
        truths, words = self._changed_truths(names), self._changed_words(names)
        acts = truths.any(1) | self._changed_numbers(names, kept).any(1) | words.any(1)
        telling = bool((self.given.numbers != self.given.numbers.round()).any())
        if not telling and self._wrong(kept) < LEAST_WRONG:
            return
        for one, other in itertools.combinations(range(len(names)), 2):
            if not (acts[one] and acts[other]):
                continue
            if words.any() and not telling:
                alone = words[one] & ~words[other], words[other] & ~words[one]
                if min(int(part.sum()) for part in alone) < LEAST_ALONE:
                    continue
            if self._together(names[one], names[other], truths[one] ^ truths[other], kept):
                yield names[one], names[other]

    def _wrong(self, kept: slice) -> int:
        """How many of the answers that came are wrong."""
        given, right = self.given, self.right
        truths = int((given.truths ^ right.truths).sum())
        numbers = int((~_close(given.numbers[kept], right.numbers[kept])).sum())
        return truths + numbers + sum(a != b for a, b in zip(given.words, right.words, strict=True))

    def _changed_truths(self, names: Sequence[Name]) -> Tensor:
        shape = len(names), len(self.right.truths)
        rows = [self.known[name].truths ^ self.right.truths for name in names]
        return torch.stack(rows) if rows else torch.zeros(shape).bool()

    def _changed_numbers(self, names: Sequence[Name], kept: slice) -> Tensor:
        right = self.right.numbers[kept]
        rows = [~_close(self.known[name].numbers[kept], right) for name in names]
        return torch.stack(rows) if rows else torch.zeros(0, len(right)).bool()

    def _changed_words(self, names: Sequence[Name]) -> Tensor:
        rows = [
            [own != right for own, right in zip(self.known[name].words, self.right.words, strict=True)]
            for name in names
        ]
        return torch.tensor(rows).bool().view(len(names), len(self.right.words))

    def _together(self, one: Name, other: Name, truths: Tensor, kept: slice) -> bool:
        first, second = self.known[one], self.known[other]
        if not torch.equal(self.right.truths ^ truths, self.given.truths):
            return False
        for a, b, right, given in zip(
            first.words, second.words, self.right.words, self.given.words, strict=True
        ):
            if given not in (a, b) or (given == right and (a != right or b != right)):
                return False
        right, given, a, b = (flat.numbers[kept] for flat in (self.right, self.given, first, second))
        if _close(a + b - right, given).all():
            return True
        safe = torch.where(right == 0, 1.0, right)
        return bool(_close(a * b / safe, given).all())


def _close(one: Tensor, other: Tensor) -> Tensor:
    return torch.isclose(one, other, rtol=1e-4, atol=1e-5)
