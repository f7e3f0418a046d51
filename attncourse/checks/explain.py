"""What the numbers of a wrong answer say by themselves, whether or not anybody foresaw the mistake."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from attncourse.checks.compare import difference, roughly
from attncourse.probe.answer import Answer, Plain

# Of cases of more kinds than these only the number is told.
NOTES_AT_MOST = 4


def where(wrong: Tensor) -> str | None:
    """The places of a tensor's wrong numbers, if they are just some rows, columns or the like."""
    if wrong.all() or wrong.dim() < 2:
        return None
    if wrong.dim() == 2 and wrong.shape[0] == wrong.shape[1] > 2:
        above, below = wrong.triu(1), wrong.tril(-1)
        diagonal = wrong.diagonal()
        if not (above.any() or below.any()) and diagonal.all():
            return "on the diagonal, and nowhere else"
        if not diagonal.any() and not (above.any() and below.any()):
            return f"{'above' if above.any() else 'below'} the diagonal only"
    words, block = [], 1
    for dim, size in enumerate(wrong.shape):
        others = [other for other in range(wrong.dim()) if other != dim]
        found = wrong.sum(others)  # (size,)
        places = found.nonzero().flatten().tolist()
        block *= len(places)
        if len(places) == size or len(places) > 3:
            continue
        named = f"index {places[0]}" if len(places) == 1 else f"indices {_listed(places)}"
        words.append(f"{named} of dimension {dim}")
    is_block = len(words) == 2 and int(wrong.sum()) == block
    return f"only at {' and '.join(words)}" if len(words) == 1 or is_block else None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:-1])) + f" and {numbers[-1]}"


def relation(wrong: Sequence[tuple[Mapping[str, Plain], Plain, Plain]]) -> str | None:
    """How an answer goes with what is right, if it does so in the same simple way wherever it is wrong.

    Parameters
    ----------
    wrong : sequence of (inputs, value, expected)
        The cases in which it is wrong.

    Returns
    -------
    str or None
        A sentence without a capital letter and a full stop: "yours is 2 times what is right".
    """
    held: list[str] | None = None
    for inputs, value, expected in wrong:
        here = list(_relations(inputs, value, expected))
        held = here if held is None else [sentence for sentence in held if sentence in here]
        if not held:
            return None
    return held[0] if held else None


def _relations(inputs: Mapping[str, Plain], value: Plain, expected: Plain) -> Iterator[str]:
    if isinstance(expected, tuple) and isinstance(value, tuple) and len(value) == len(expected) == 2:
        if difference(value[::-1], expected) is None:
            yield "the two things that you return are exchanged"
        return
    own, right = _as_tensor(value), _as_tensor(expected)
    if own is None or right is None or own.shape != right.shape:
        return
    if right.dtype == torch.bool:
        if own.dtype == torch.bool:
            yield from _of_booleans(own, right)
        return
    if own.dtype == torch.bool or not (own.isfinite().all() and right.isfinite().all()):
        return
    counts = not right.is_floating_point()
    own, right = own.double(), right.double()
    if _alike(own, right):  # so it is alike to much that has nothing to do with why it is wrong
        yield from _added(own, right) if counts else ()
        return
    yield from _of_inputs(inputs, own, right)
    yield from _of_places(own, right)
    yield from _of_sizes(own, right)


def _as_tensor(value: Plain) -> Tensor | None:
    if isinstance(value, float | int) and not isinstance(value, bool):
        return torch.tensor(value, dtype=torch.float64)
    return value if isinstance(value, Tensor) else None


def _alike(one: Tensor, other: Tensor) -> bool:
    return bool(roughly(one, other).all())


def _of_booleans(own: Tensor, right: Tensor) -> Iterator[str]:
    if torch.equal(own, ~right):
        yield "every True should be False, and every False True"
    if own.any() and not (own & ~right).any():
        yield "no True of yours is wrong, but some are missing"
    if not own.all() and not (right & ~own).any():
        yield "no True is missing, but yours has too many"
    yield from _of_places(own.double(), right.double())


def _of_inputs(inputs: Mapping[str, Plain], own: Tensor, right: Tensor) -> Iterator[str]:
    for name, given in inputs.items():
        tensor = _as_tensor(given)
        if tensor is None or tensor.dtype == torch.bool or tensor.shape != right.shape or tensor.numel() < 2:
            continue
        tensor = tensor.double()
        if not tensor.isfinite().all() or not tensor.any():
            continue
        if _alike(own, tensor):
            yield f"what comes back is `{name}`, as it came"
        for word, other in (("plus", right + tensor), ("minus", right - tensor)):
            if _alike(own, other):
                yield f"yours is what is right {word} `{name}`"


def _of_places(own: Tensor, right: Tensor) -> Iterator[str]:
    for one, other in itertools.combinations(range(right.dim()), 2):
        if right.shape[one] == right.shape[other] and _alike(own, right.transpose(one, other)):
            yield f"yours has the right numbers, with dimensions {one} and {other} exchanged"
    for dim in range(right.dim()):
        if right.shape[dim] > 1 and _alike(own, right.flip(dim)):
            yield f"yours has the right numbers, in the opposite order along dimension {dim}"
    for dim in range(right.dim()):
        length = right.shape[dim] - 1
        if length < 2:
            continue
        for start, words in ((1, "late"), (0, "early")):
            moved, kept = own.narrow(dim, start, length), right.narrow(dim, 1 - start, length)
            if _alike(moved, kept) and kept.unique().numel() > 2:
                yield f"along dimension {dim} the right numbers stand one place too {words}"
    if right.unique().numel() > 3 and _alike(own.flatten().sort().values, right.flatten().sort().values):
        yield "yours has the right numbers, but not in their places"


def _of_sizes(own: Tensor, right: Tensor) -> Iterator[str]:
    if not right.any():
        return
    largest = right.abs().argmax()
    factor = float(own.flatten()[largest] / right.flatten()[largest])
    if factor and f"{abs(factor):.4g}" != "1" and _alike(own, factor * right):
        yield f"yours is {_number(factor)} times what is right"
        if right.numel() > 3:
            yield "all your numbers are wrong by one and the same factor, another one in another case"
    yield from _added(own, right)
    for words, changed in _CHANGES.items():
        other = changed(right)
        if other.isfinite().all() and _alike(own, other):
            yield words


def _added(own: Tensor, right: Tensor) -> Iterator[str]:
    added = float(own.flatten()[0] - right.flatten()[0])
    if added and _alike(own, right + added):
        yield f"yours is {_number(abs(added))} too {'large' if added > 0 else 'small'}"
        if right.numel() > 3:
            yield "one and the same number is added to all that is right, another one in another case"


_CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "yours is the square of what is right": torch.square,
    "yours is the square root of what is right": torch.sqrt,
    "yours is the logarithm of what is right": torch.log,
    "yours is the exponential of what is right": torch.exp,
    "yours is 1 divided by what is right": torch.reciprocal,
    "yours is 1 minus what is right": lambda right: 1 - right,
    "yours is what is right, but never below 0: the signs are lost": torch.abs,
    "yours has the other sign": torch.neg,
}


def _number(number: float) -> str:
    for words, value in _SIMPLE.items():
        if math.isclose(number, value, rel_tol=1e-4):
            return words
    return f"{number:.4g}"


_SIMPLE = {"half": 1 / 2, "a third": 1 / 3, "a quarter": 1 / 4, "minus 2": -2.0, "minus a half": -1 / 2}


def cases_in_words(notes: Sequence[str], wrong: Sequence[int]) -> tuple[str, str] | None:
    """Of which cases an answer is right, or wrong, whichever is shorter: ("Right for", "a single query")."""
    bad = [note for note in dict.fromkeys(notes[place] for place in wrong) if note]
    good = [note for note in dict.fromkeys(notes) if note and note not in bad]
    if len(bad) < 2 or not good:
        return None
    title, shorter = ("Wrong for", bad) if len(bad) <= len(good) else ("Right for", good)
    return (title, "; ".join(shorter)) if len(shorter) <= NOTES_AT_MOST else None


def in_right_form(answer: Answer, expected: Plain) -> Answer | None:
    """The same answer in the form that was expected, if it can be had without a guess; else None."""
    value = _formed(answer.value, expected)
    return None if value is None else replace(answer, value=value)


def _formed(value: Plain, expected: Plain) -> Plain:
    if isinstance(expected, tuple | list):
        if not isinstance(value, tuple | list) or len(value) != len(expected):
            return None
        parts = [_formed(own, other) for own, other in zip(value, expected, strict=True)]
        return [own if part is None else part for own, part in zip(value, parts, strict=True)]
    if not isinstance(expected, Tensor):
        return None
    if isinstance(value, tuple | list):
        if all(isinstance(part, float | int) for part in value):
            value = torch.tensor(value)
        else:
            fitting = [part for part in value if isinstance(part, Tensor) and part.shape == expected.shape]
            value = fitting[0] if len(fitting) == 1 else None
    if not isinstance(value, Tensor):
        return None
    if value.shape != expected.shape:
        if [size for size in value.shape if size != 1] == [size for size in expected.shape if size != 1]:
            value = value.reshape(expected.shape)
        elif value.dim() == expected.dim():
            value = next(
                (
                    value.transpose(one, other)
                    for one, other in itertools.combinations(range(value.dim()), 2)
                    if value.transpose(one, other).shape == expected.shape
                ),
                None,
            )
    if value is None or value.shape != expected.shape:
        return None
    if expected.dtype == torch.bool and not ((value == 0) | (value == 1)).all():
        return None
    if value.is_floating_point() and not expected.is_floating_point() and (value != value.round()).any():
        return None
    return value.to(expected.dtype)
