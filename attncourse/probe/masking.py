"""How answers of the unit ``masking`` are called: with gradients, and with a layer to be asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import Misfit, Plain, plain
from attncourse.probe.calling import Way


class WithGradients(Way):
    """The output, and the gradients of a weighted sum of it."""

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> dict[str, Tensor]:
        mask = inputs["mask"]
        differentiable = {name: inputs[name].detach().requires_grad_() for name in ("query", "key", "value")}
        output = answer(*differentiable.values(), mask)
        if output is None:
            raise Misfit(
                "one tensor was expected: the output. Is there a `return` at the end of your function?"
            )
        if not isinstance(output, Tensor) or not output.dtype.is_floating_point:
            raise Misfit("one tensor of floating-point numbers was expected: the output, on its own")
        if not output.requires_grad and mask.any():
            raise Misfit(
                "no gradient flows from the output back to the inputs. Numbers that were taken "
                "out of a tensor "
                "by `item`, `tolist`, `detach` or NumPy have forgotten how they were made"
            )
        gradients: tuple[Tensor | None, ...] = (None, None, None)
        # A NaN in the output is told first; what it does to the gradients depends on how it came about.
        if output.requires_grad and not output.isnan().any():
            upstream = torch.linspace(1, 2, output.numel(), dtype=output.dtype).view(output.shape)
            gradients = torch.autograd.grad(
                output, tuple(differentiable.values()), upstream, allow_unused=True
            )
        found = {"output": output}
        for (name, value), gradient in zip(differentiable.items(), gradients, strict=True):
            found[f"gradient of {name}"] = torch.zeros_like(value) if gradient is None else gradient
        return found


class AskAboutLayer(Way):
    """Hands a layer over, and takes a yes or no that is a tensor for what it says."""

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> Any:
        layer = inputs["layer"]
        value = answer(layer, inputs["x"])
        # `(a == b).all()` is a tensor, and a yes or no all the same.
        if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1:
            value = value.item()
        if not layer.calls:
            raise Misfit(f"{plain(value)!r} is said without a look at the layer: it was never called")
        return value
