"""How answers of the unit ``positional`` are called: with a layer to be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import Misfit, Plain
from attncourse.probe.calling import Way


class AskForPermutation(Way):
    """Hands a layer over and takes a permutation, as a list or a tensor. The layer has to be asked."""

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> Any:
        layer = inputs["layer"]
        value = answer(layer, inputs["x"])
        if isinstance(value, list | tuple):
            # `list` of a tensor or an array keeps their own kinds of whole numbers.
            numbers = [getattr(number, "item", lambda number=number: number)() for number in value]
            if all(type(number) is int for number in numbers):
                value = torch.tensor(numbers)
        if isinstance(value, Tensor) and not layer.calls:
            raise Misfit(f"{value.tolist()} is said without a look at the layer: it was never called")
        return value
