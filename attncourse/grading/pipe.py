"""The right functions that a submission may call while one of its answers is judged, computed out here.

A question names a function and brings plain data; plain data goes back. Which functions there are is the
judge's decision, for each task anew.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

from attncourse.probe.answer import Plain
from attncourse.probe.wire import Malformed, decode, encode, holds_program

# Much more than any answer needs, and little enough for this process: the largest thing that can be
# computed from it are the scores of one row of numbers with another.
MOST_QUESTIONS = 1000  # for each function
MOST_CHARACTERS = 2**16
MOST_NUMBERS = 2**11  # in one tensor
LARGEST_NUMBER = 2**10  # of positions, say


class Pipe:
    """Answers questions as `attncourse.probe.absent` asks them.

    Parameters
    ----------
    functions : mapping of str to callable
        Those that can be asked for.
    """

    def __init__(self, functions: Mapping[str, Callable]) -> None:
        self.functions = functions
        self.left = self.most = MOST_QUESTIONS * len(functions)

    def answer(self, question: str) -> str:
        """The reply to a question: what the function gives, or why there is nothing, as text."""
        self.left -= 1
        if self.left < 0:
            return _nothing(f"it was called more than {self.most} times")
        if len(question) > MOST_CHARACTERS:
            return _nothing("its arguments are too large")
        try:
            asked = decode(question)
            function, gradients = self.functions[asked["name"]], asked.get("gradients")
            leaves, form = tree_flatten((tuple(asked["inputs"]), asked["named"]))
            if holds_program(leaves) or not all(map(_is_small, leaves)):
                return _nothing("its arguments are too large, or no plain data")
            value = (
                _value(function, leaves, form)
                if gradients is None
                else _back(function, leaves, form, gradients)
            )
            return encode({"value": value})
        except (Malformed, LookupError):
            return _nothing("it was not asked for as it should be")
        except Exception as error:  # what the function says of arguments that do not fit
            return _nothing(f"{type(error).__name__}: {error}")


def _nothing(words: str) -> str:
    return encode({"error": words})


def _is_small(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.numel() <= MOST_NUMBERS
    if isinstance(leaf, int):
        return abs(leaf) <= LARGEST_NUMBER
    return leaf is None or isinstance(leaf, bool | float | str)


@torch.no_grad()
def _value(function: Callable, leaves: list[Any], form: Any) -> Plain:
    inputs, named = tree_unflatten(leaves, form)
    return function(*inputs, **named)


def _back(function: Callable, leaves: list[Any], form: Any, gradients: Any) -> list[Tensor | None]:
    """What comes back to each leaf of the arguments from the gradients at each leaf of the value."""
    tracked = [leaf.requires_grad_() if _is_floating(leaf) else leaf for leaf in leaves]
    inputs, named = tree_unflatten(tracked, form)
    with torch.enable_grad():
        values, _ = tree_flatten(function(*inputs, **named))
    pairs = [
        (value, gradient)
        for value, gradient in zip(values, gradients, strict=True)
        if _is_floating(value) and value.requires_grad and gradient is not None
    ]
    sources = [leaf for leaf in tracked if _is_floating(leaf)]
    found = iter(
        torch.autograd.grad(
            [value for value, _ in pairs],
            sources,
            [gradient for _, gradient in pairs],
            allow_unused=True,
        )
        if pairs
        else [None] * len(sources)
    )
    return [next(found) if _is_floating(leaf) else None for leaf in tracked]


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point
