"""The right functions that a submission may call while one of its answers is judged, computed out here.

A question names a function and brings plain data; plain data goes back. Which functions there are is the
judge's decision, for each task anew.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from attncourse.probe.answer import Plain, plain
from attncourse.probe.program import Named, Own, TooLarge
from attncourse.probe.wire import decode, encode, holds_function, is_handed_over

# Much more than any answer needs, and little enough for this process: the largest thing that can be
# computed from a tensor are the scores of all rows of numbers with each other.
MOST_QUESTIONS = 1000  # for each function in each case: a search asks a few hundred; time is limited, too
MOST_CHARACTERS = 2**19
MOST_SCORES = 2**23  # the numbers of one tensor, times its largest size; and the scores of all tensors
MOST_COMPUTED = 2**26  # numbers that all steps of a function make, or are given, together
MOST_LEAVES = 1000  # tensors, numbers and words among the arguments
MOST_DERIVATIVES = 2**18  # of one tensor by another
MOST_BACKWARDS = 2**12  # numbers of which derivatives are asked
MOST_WORK = 2**24  # these times the scores of all tensors: each is a way back through all that was computed
MOST_STEPS = 2**27  # these times the numbers that were computed
LARGEST_NUMBER = 2**10  # of positions, say

# For a student, who has called something that is quick at home.
OUTSIDE = "a function that grading computes outside of the notebook"
TOO_LARGE = f"{OUTSIDE} was given too much: its arguments, or what it computes of them, are too large"


class Pipe:
    """Answers questions as `attncourse.probe.absent` asks them.

    Parameters
    ----------
    functions : mapping of str to callable
        Those that can be asked for.
    cases : int
        On how many the answer is called meanwhile.
    """

    def __init__(self, functions: Mapping[str, Callable], cases: int = 1) -> None:
        self.functions = functions
        self.left = self.most = MOST_QUESTIONS * cases * len(functions)

    def answer(self, question: str) -> str:
        """The reply to a question: what the function gives, or why there is nothing, as text."""
        self.left -= 1
        if self.left < 0:
            return _nothing(f"{OUTSIDE} was called more than {self.most} times")
        if len(question) > MOST_CHARACTERS:
            return _nothing(TOO_LARGE)
        try:
            asked = decode(question)
            compute = _derivatives if asked.get("derivatives") else _value
            leaves, form = tree_flatten((tuple(asked["inputs"]), asked["named"]))
            values = list(asked.get("values", ()))
            given, _ = tree_flatten(values)
            if len(leaves) + len(given) > MOST_LEAVES:
                return _nothing(TOO_LARGE)
            data = [leaf for leaf in leaves if not isinstance(leaf, Named | Own)]
            if holds_function([*data, *given]) or not _are_small(data) or not _are_small(given):
                return _nothing(f"{TOO_LARGE}, or no plain data")
            if compute is _derivatives and any(isinstance(leaf, Own) for leaf in leaves):
                return _nothing(f"{OUTSIDE} has no derivatives where it calls a function of the notebook")
            leaves = [self._handed(leaf, values) for leaf in leaves]
            function = self.functions[asked["name"]]
        except Exception:
            return _nothing("it was not asked for as it should be")
        try:
            return encode({"value": compute(function, leaves, form)})
        except _Unknown as unknown:
            return encode({"wanted": unknown.number, "inputs": [*map(plain, unknown.inputs)]})
        except Exception as error:  # what the function says of arguments that do not fit
            kinds = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
            return _nothing(str(error), kinds[0])

    def _handed(self, leaf: Any, values: list[Plain]) -> Any:
        """An argument: a function of the task's, which the answer hands on, or one of the answer's, or data.

        What the functions of the answer's give, they give in this order, whichever is called.
        """
        if isinstance(leaf, Named):
            if not is_handed_over(leaf.asked_for):
                raise LookupError
            return self.functions[leaf.asked_for]
        if isinstance(leaf, Own):
            return lambda *inputs: values.pop(0) if values else _ask_back(leaf.number, inputs)
        return leaf


class _Unknown(BaseException):
    """A function of the answer's was called, and only the process in which it is can say what it gives.

    The same question comes again with that, and what was computed is computed again up to there: nothing of a
    submission is kept meanwhile. No function of the course's is to take it for an error of its arguments.
    """

    def __init__(self, number: int, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.number, self.inputs = number, inputs


def _ask_back(number: int, inputs: Sequence[Any]) -> Plain:
    raise _Unknown(number, inputs)


def _nothing(words: str, kind: str = "ValueError") -> str:
    return encode({"error": words, "kind": kind})


def _are_small(leaves: list[Any]) -> bool:
    """Whether each argument is small, and what comes of all of them together.

    Tensors that are small by themselves make a large one where each is repeated along the sizes of the
    others; and rows without numbers have scores with each other, too.
    """
    return all(map(_is_small, leaves)) and _scores(leaves) <= MOST_SCORES


def _scores(leaves: list[Any]) -> int:
    """How many numbers the scores of all tensors with each other have at most."""
    shapes = [leaf.shape for leaf in leaves if isinstance(leaf, Tensor)]
    # From the last size to the first, as shapes are put side by side.
    sizes = [max(1, *of) for of in zip_longest(*map(reversed, shapes), fillvalue=1)]
    return math.prod(sizes[2:]) * max(sizes[:2], default=1) ** 2


def _is_small(leaf: Any) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.numel() * max(leaf.shape, default=1) <= MOST_SCORES
    if isinstance(leaf, int):
        return abs(leaf) <= LARGEST_NUMBER
    return leaf is None or isinstance(leaf, bool | float | str)


class _Bounded(TorchDispatchMode):
    """Refuses a step that would make too many numbers, before it has made them, and too many such steps.

    How large the arguments are does not say it: a function may lay their sizes side by side as it likes.
    """

    computed = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves, _ = tree_flatten((args, kwargs))
        most = _largest(leaves)
        with suppress(Exception):  # what depends on the numbers makes no more than it gets
            made = func(*_without_numbers(args), **_without_numbers(kwargs))
            most = max(most, _largest(tree_flatten(made)[0]))
        self.computed += most
        if most > MOST_SCORES or self.computed > MOST_COMPUTED:
            raise TooLarge(TOO_LARGE)
        return func(*args, **kwargs)


def _bounded(leaves: list[Any]) -> AbstractContextManager:
    """Bounds what is computed, which takes a while, but for the usual few numbers.

    These are few enough even where each of them meets each other one, in every head.
    """
    numbers = sum(
        math.prod(max(1, size) for size in leaf.shape) for leaf in leaves if isinstance(leaf, Tensor)
    )
    heads = max([1, *(abs(leaf) for leaf in leaves if isinstance(leaf, int))])
    return nullcontext() if heads * numbers**2 <= MOST_SCORES else _Bounded()


def _largest(leaves: list[Any]) -> int:
    return max([0, *(leaf.numel() for leaf in leaves if isinstance(leaf, Tensor))])


def _without_numbers(part: Any) -> Any:
    return tree_map(
        lambda leaf: (
            leaf.to("meta")
            if isinstance(leaf, Tensor)
            else torch.device("meta")
            if isinstance(leaf, torch.device)
            else leaf
        ),
        part,
    )


@torch.no_grad()
def _value(function: Callable, leaves: list[Any], form: Any) -> Plain:
    inputs, named = tree_unflatten(leaves, form)
    with _bounded(leaves):
        return function(*inputs, **named)


@torch.enable_grad()
def _derivatives(function: Callable, leaves: list[Any], form: Any) -> list[Tensor | None]:
    """Of each leaf of the value by each leaf of the arguments, which stand one after the other.

    Each is of the shape (*sizes of the value, *sizes of the argument), or None if one of the two is no
    tensor of numbers with fractions.
    """
    tracked = [leaf.requires_grad_() if _is_floating(leaf) else leaf for leaf in leaves]
    inputs, named = tree_unflatten(tracked, form)
    with _Bounded() as bounds:  # even a little takes long when it is gone through again and again
        values, _ = tree_flatten(function(*inputs, **named))
    sources = [leaf for leaf in tracked if _is_floating(leaf)]
    backwards = sum(value.numel() for value in values if _is_floating(value))
    work, steps = backwards * _scores(leaves), backwards * bounds.computed
    if backwards > MOST_BACKWARDS or work > MOST_WORK or steps > MOST_STEPS:
        raise ValueError("there are too many derivatives")
    found: list[Tensor | None] = []
    for value in values:
        of_each = iter(_of_value(value, sources) if _is_floating(value) else [])
        found += [next(of_each, None) if _is_floating(leaf) else None for leaf in tracked]
    return found


def _of_value(value: Tensor, sources: list[Tensor]) -> list[Tensor]:
    """The derivatives of one tensor by each of these: for each of its numbers, all of them at once."""
    if any(value.numel() * source.numel() > MOST_DERIVATIVES for source in sources):
        raise ValueError("there are too many derivatives")
    found = [torch.zeros(value.numel(), *source.shape, dtype=source.dtype) for source in sources]
    if value.requires_grad and sources:
        for number, one in enumerate(value.flatten()):
            parts = torch.autograd.grad(one, sources, retain_graph=True, materialize_grads=True)
            for rows, part in zip(found, parts, strict=True):
                rows[number] = part
    return [rows.view(value.shape + source.shape) for rows, source in zip(found, sources, strict=True)]


def _is_floating(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dtype.is_floating_point
