"""How answers of the unit ``scaling`` are called: with two results, and within a budget of memory."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attncourse.probe.answer import Misfit, Plain, plain
from attncourse.probe.calling import Way
from attncourse.probe.refusing import Refusal, given

PRODUCTS = ("mm", "bmm", "mv", "matmul", "addmm", "baddbmm", "addmv")


class MergeTwo(Way):
    """Two tuples of the same length, of which the case has all tensors."""

    def arguments(self, inputs: dict[str, Plain]) -> tuple[Any, ...]:
        values = list(inputs.values())
        half = len(values) // 2
        return tuple(values[:half]), tuple(values[half:])


class WithinBudget(Way):
    """Watches what the answer makes: no tensor may be larger than a chunk's scores, or the inputs.

    It sees PyTorch's tensors, and not what is in lists or in NumPy's arrays. And it runs beside the
    answer: a grader sees what the answer returns, and has to believe that it was watched.
    """

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> Any:
        query, key, *_, chunk_size = inputs.values()
        tensors = [x for x in inputs.values() if isinstance(x, Tensor)]
        output_size = math.prod(query.shape[:-1]) * inputs["value"].shape[-1]
        scores = math.prod(query.shape[:-1]) * chunk_size
        budget = max(output_size, scores, *(x.numel() for x in tensors))
        with _Watch(query, key, inputs["value"], chunk_size) as watch:
            # What a result does while it is looked at, the answer does.
            output = plain(answer(*inputs.values()))
        if watch.numel > budget:
            raise Misfit(
                f"your function made a tensor of shape {watch.shape}, {watch.numel} numbers; "
                f"the budget is {budget}"
            )
        if watch.rows:
            num_keys = key.shape[-2]
            which = f"with a number for each of all {num_keys} keys"
            if max(watch.rows) < num_keys:
                which = "in which queries meet more keys than a chunk has"
            raise Misfit(
                f"your function made a tensor of shape {watch.rows}, {which}; only {chunk_size} keys are "
                "to be looked at together"
            )
        return output


# What of the inputs a tensor is made of; of one that was not made here it may be any.
_OF_ANY = frozenset(("query", "key"))


class _Watch(TorchDispatchMode):
    """Keeps the shape of the largest tensor that is made, and of one that compares with too many keys."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, chunk_size: int) -> None:
        super().__init__()
        self.num_keys = key.shape[-2]
        self.chunk_size = chunk_size
        # Of these sizes are what is made of keys and values alone, beside each other, and with a sum.
        features = key.shape[-1], value.shape[-1], key.shape[-1] + value.shape[-1]
        self.features = {*features, *(size + 1 for size in features)}
        # Where something else is as many, nobody can tell what a size is of: queries, or what a chunk
        # has, of one sequence or of several.
        num_chunks = -(-self.num_keys // chunk_size)
        self.others = {1, chunk_size, self.num_keys % chunk_size, num_chunks, num_chunks + 1, *self.features}
        for size in (*key.shape[:-2], query.shape[-2]):
            self.others |= {size * other for other in self.others}
        self.origins: dict[int, frozenset[str]] = {_memory(value): frozenset()}
        for name, part in (("key", key), ("query", query)):
            self.origins[_memory(part)] = self.origins.get(_memory(part), frozenset()) | {name}
        self.numel = 0
        self.shape: tuple[int, ...] = ()
        self.rows: tuple[int, ...] = ()

    @given  # what is called in here is not called by the answer
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if Refusal.in_given() > 1:  # besides this one: what a given function needs is not the answer's
            return result
        name = func.__name__.split(".")[0]
        inputs = _tensors((*args, *(kwargs or {}).values()))
        compares_too_many = name in PRODUCTS and self._has_too_many_keys(*_tensors(args)[-2:])
        origin = frozenset().union(*map(self._origin, inputs))
        there = {_memory(part) for part in inputs}
        computed = not (func.is_view or name.startswith(("new_", "empty", "zeros", "ones", "full")))
        for made in result if isinstance(result, tuple | list) else (result,):
            if not isinstance(made, Tensor):
                continue
            place = _memory(made)
            # What is written into is made of what was there, too.
            self.origins[place] = origin | (self.origins.get(place, _OF_ANY) if place in there else origin)
            if compares_too_many or (computed and self._has_a_number_for_each_key(made)):
                self.rows = tuple(made.shape)
            # A view is as small as the memory behind it: expanding makes no new numbers.
            if (
                made.numel() > self.numel
                and made.untyped_storage().nbytes() > self.numel * made.element_size()
            ):
                self.numel, self.shape = made.numel(), tuple(made.shape)
        return result

    def _origin(self, part: Tensor) -> frozenset[str]:
        return self.origins.get(_memory(part), _OF_ANY)

    def _has_too_many_keys(self, left: Tensor, right: Tensor) -> bool:
        """Whether a product brings more keys than a chunk has together with queries."""
        sizes = math.prod(left.shape[-2:-1]), math.prod(right.shape[1:][-1:])
        # As many as there are features can be features: as where derivatives are computed.
        return any(
            self._origin(part) == {"key"}
            and "query" in self._origin(other)
            and self.chunk_size < size
            and size not in self.features
            for part, size, other in zip((left, right), sizes, (right, left), strict=True)
        )

    def _has_a_number_for_each_key(self, made: Tensor) -> bool:
        """Whether one of its sizes is that of all keys, or more: some may stand for no key."""
        sizes = {*made.shape}
        return (
            self.chunk_size < self.num_keys
            and any(size >= self.num_keys and size not in self.others for size in sizes)
            and sizes.isdisjoint(self.features)
            and (made.is_floating_point() or made.is_complex())
            and self._origin(made) >= _OF_ANY
        )


def _tensors(arguments: tuple[Any, ...]) -> list[Tensor]:
    """The tensors among the arguments of one of PyTorch's operations, which may have lists of them."""
    lists = (part if isinstance(part, tuple | list) else (part,) for part in arguments)
    return [part for part in chain.from_iterable(lists) if isinstance(part, Tensor)]


def _memory(part: Tensor) -> int:
    return part.untyped_storage()._cdata
