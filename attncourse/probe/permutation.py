"""How answers of the unit ``permutation`` are called: testers, with a layer to be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attncourse.probe.answer import Misfit, Plain, describe_type, plain
from attncourse.probe.calling import Way
from attncourse.probe.program import Elsewhere, Program
from attncourse.probe.refusing import given


class _Watched(Program):
    """A layer, and on which other inputs than `x` it was tried.

    It takes what is like `x`: whether it could compute something else, too, tells how it is made, and so
    does which outputs of NaN are NaN.
    """

    def __init__(self, layer: Program, x: Tensor) -> None:
        super().__init__([])
        self.layer = layer
        self.shape, self.dtype = x.shape, x.dtype
        self.own = x.numpy().tobytes()
        self.tried: set[bytes] = set()

    @given  # what the layer does, the answer does not do
    @torch.no_grad()  # a graph of how its output was made would tell which layer it is
    def __call__(self, z: Tensor) -> Tensor:
        self.calls += 1
        if type(z) not in (Tensor, torch.nn.Parameter):  # any other object would see what is done with it
            raise TypeError(f"the layer takes a tensor of plain numbers: {describe_type(z)} came")
        came = (z.shape, z.dtype, z.layout, z.device.type)
        if came != (self.shape, self.dtype, torch.strided, "cpu"):
            raise ValueError(
                f"the layer takes a tensor like x, of shape {tuple(self.shape)} and {self.dtype}: "
                f"one of shape {tuple(z.shape)} and {z.dtype} came"
            )
        if len(self.tried) < 2:
            try:
                self.tried.update({z.detach().numpy().tobytes()} - {self.own})
            except RuntimeError:  # within torch.vmap there are several, whose numbers cannot be read
                self.tried |= {b"one of several", b"another of them"}
        y = self.layer(z)
        return torch.where(z.isfinite().all() & y.isfinite().all(), y, torch.nan)


class AskAboutLayer(Way):
    """Hands a layer over and sees on which inputs it is tried. A yes without trying it is no answer."""

    # What says that a layer follows or ignores *every* permutation.
    yes: tuple[Any, ...] = (True, "equivariant", "invariant", "both")

    def functions(self, inputs: dict[str, Plain]) -> dict[str, Callable]:
        return {"layer": _Watched(inputs["layer"], inputs["x"])}

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> Any:
        layer, x = inputs["layer"], inputs["x"]
        elsewhere = isinstance(layer, Elsewhere)
        functions = {"layer": layer} if elsewhere else self.functions(inputs)
        if elsewhere:
            layer.has_derivatives = False  # as what is watched has none
        try:
            value = answer(functions["layer"], x)
        except IndexError:
            num_rows = len(layer(x))
            if num_rows == len(x):
                raise
            # Which index is too large depends on the permutation that was drawn: no message to know it by.
            words = f"it has {num_rows}, and the input {len(x)}"
            raise Misfit(f"rows of the output are asked for that are not there: {words}") from None
        # `(a == b).all()` is a tensor, and a yes or no all the same.
        if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1:
            value = value.item()
        if not elsewhere:
            self.look(inputs, functions, value)
        return value

    def look(self, inputs: dict[str, Plain], functions: dict[str, Callable], value: Any) -> None:
        layer = functions["layer"]
        assert isinstance(layer, _Watched)
        # The powers of one permutation are never all permutations, so a yes needs two at least.
        says_yes = isinstance(value, bool | np.bool_ | str) and value in self.yes
        # Of a few positions there are few orders, and who draws some may draw the same ones.
        drawn = layer.shape[0] < 4 and layer.calls > 2
        if says_yes and len(layer.tried) < 2 and not drawn:
            number = "no other input" if not layer.tried else "a single other input"
            raise Misfit(
                f"{plain(value)!r} is said after {number} was tried: there are many orders of the positions"
            )
        if not layer.calls:
            raise Misfit(f"{plain(value)!r} is said without a look at the layer: it was never called")
