"""How answers of the unit ``multihead`` are called, where it is not with the inputs by position."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import Misfit, object_of_type
from attncourse.probe.calling import Way
from attncourse.probe.refusing import given

PARAMETERS = ("W_Q", "W_K", "W_V", "W_O")
# Times 1 / sqrt(model_dim): what a new layer may start with. PyTorch's and others' ways stay well between.
LOUD, QUIET = 3, 0.01


class Loss(Way):
    """Hands over the loss of a small model whose heads contribute to its prediction, and their number."""

    def arguments(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        contributions, target = inputs["contributions"], inputs["target"]
        num_heads = len(contributions)

        def loss(head_mask: Any) -> Tensor:
            head_mask = torch.as_tensor(head_mask, dtype=contributions.dtype)
            if tuple(head_mask.shape) != (num_heads,):
                raise ValueError(
                    f"head_mask has shape {tuple(head_mask.shape)}: "
                    f"expected ({num_heads},), one number a head"
                )
            return ((head_mask @ contributions - target) ** 2).mean()

        return given(loss), num_heads


class Layer(Way):
    """Makes the layer, gives it the case's weights, and calls it on one to three inputs and a mask.

    The value is the output, or, where there is an ``output_gradient``, what it leads to: the gradients of
    the four weights.
    """

    def arguments(self, inputs: dict[str, Any]) -> tuple[int, int]:
        return inputs["model_dim"], inputs["num_heads"]

    def use(self, answer: Callable, inputs: dict[str, Any]) -> Any:
        shapes = {name: tuple(inputs[name].shape) for name in PARAMETERS}
        layer, parameters = _new_layer(answer, self.arguments(inputs), shapes)
        for name in PARAMETERS:
            parameters[name].data = inputs[name]
        handed_over = [inputs.get(name) for name in ("query", "key", "value", "mask")]
        while handed_over[-1] is None:
            handed_over.pop()
        evaluated = layer.eval()(*handed_over)
        if "output_gradient" not in inputs:
            return evaluated
        output = layer.train()(*handed_over)
        shape = inputs["output_gradient"].shape
        if any(not isinstance(one, Tensor) or one.shape != shape for one in (evaluated, output)):
            raise Misfit("forward does not return one tensor of the shape of query")
        if not torch.allclose(evaluated, output, 1e-4, 1e-5, equal_nan=True):
            raise Misfit(
                "after layer.train() the output is another one than after layer.eval(): nothing was asked "
                "for that happens only in training"
            )
        return _gradients(output, inputs["output_gradient"], parameters)


def _new_layer(
    answer: Callable, sizes: tuple[int, int], shapes: dict[str, tuple[int, ...]]
) -> tuple[torch.nn.Module, dict[str, torch.nn.Parameter]]:
    """Make the student's layer, and see that its four parameters are there and begin as they should."""
    if isinstance(answer, torch.nn.Module):
        raise Misfit("the class itself was expected, and what came is a layer that has been made from one")
    with torch.random.fork_rng(devices=[]), _unset_numbers_are_nan():
        # `torch.manual_seed` notes, for every kind of machine that there is not, where it was called.
        before = torch.default_generator.manual_seed(1).get_state()
        layer, twin = answer(*sizes), answer(*sizes)
        is_random = not torch.equal(torch.get_rng_state(), before)
    if not isinstance(layer, torch.nn.Module):
        raise Misfit("a class that derives from torch.nn.Module was expected, and calling yours gave none")
    parameters = _parameters(layer)
    _look_at(parameters, layer, shapes)
    others = _parameters(twin)
    _look_at(others, twin, shapes)
    if not is_random and torch.equal(parameters["W_Q"], others["W_Q"]):
        raise Misfit("every new layer starts with the same numbers: nothing in them is random")
    for name in PARAMETERS:
        if _are_alike(parameters[name].detach(), others[name].detach()):
            raise Misfit(
                f"every new layer starts with nearly the same numbers in {name}: they are not random"
            )
    for name, other in combinations(PARAMETERS, 2):
        if _are_alike(parameters[name].detach(), parameters[other].detach()):
            raise Misfit(f"in a new layer, {name} and {other} start with nearly the same numbers")
    return layer, parameters


def _parameters(layer: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The layer's own, which an optimiser would get, whatever a method of its own gives out."""
    return {name: found for name, found in vars(layer)["_parameters"].items() if found is not None}


def _are_alike(numbers: Tensor, others: Tensor) -> bool:
    """Of so many random numbers, no two draws are as alike; of a few they may be."""
    if numbers.numel() != others.numel() or numbers.numel() <= 100:
        return False
    return _nearly_alike(torch.stack([numbers.flatten(), others.flatten()]))


def _nearly_alike(rows: Tensor) -> bool:
    """Whether of some rows of numbers any two go up and down together."""
    return bool((torch.corrcoef(rows.double()).triu(1) > 0.9).any())


@contextmanager
def _unset_numbers_are_nan() -> Iterator[None]:
    # The other switch for this imports PyTorch's compiler, which takes seconds.
    before = torch.get_deterministic_debug_mode()
    torch.set_deterministic_debug_mode("warn")
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before)


def _look_at(
    parameters: dict[str, torch.nn.Parameter], layer: torch.nn.Module, shapes: dict[str, tuple[int, ...]]
) -> None:
    for number, name in enumerate(PARAMETERS):
        if name not in parameters:
            found = getattr(layer, name, None)
            kind = "missing" if found is None else object_of_type(type(found).__name__)
            kind = "a plain tensor" if isinstance(found, Tensor) else kind
            raise Misfit(f"the layer's {name} is {kind}, and a torch.nn.Parameter was expected")
        parameter = parameters[name].detach()
        if tuple(parameter.shape) != shapes[name]:
            raise Misfit(
                f"the layer's {name} has shape {tuple(parameter.shape)}, and {shapes[name]} was expected"
            )
        if not parameters[name].requires_grad:
            raise Misfit(
                f"the layer's {name} does not ask for a gradient, so that no training will change it"
            )
        for other in PARAMETERS[:number]:
            if parameters[name] is parameters[other]:
                raise Misfit(f"the layer's {other} and {name} are one and the same parameter")
        if not parameter.isfinite().all():
            raise Misfit(f"in a new layer, {name} holds numbers that nobody has set")
        size = float(parameter.square().mean().sqrt())
        asked = parameters["W_O"].shape[1] ** -0.5
        if parameter.numel() > 100 and not QUIET * asked < size < LOUD * asked:
            loud = "with larger ones the scores lie far apart before anything was learned"
            quiet = "with such small ones there is hardly a difference to learn from"
            raise Misfit(
                f"in a new layer, the numbers of {name} are of a size of {size:.2g}, and 1 / sqrt(model_dim) "
                f"is asked for: {loud if size > asked else quiet}"
            )
        if parameter.numel() > 100 and abs(parameter.mean()) > size / 2:
            raise Misfit(
                f"in a new layer, most numbers of {name} have the same sign: with a mean of 0 nothing is "
                "preferred before anything was learned"
            )
        parts = parameter.flatten(1)
        if len(parts) > 1 and (parts == parts[0]).all():
            raise Misfit(f"in a new layer, the numbers of {name} are the same for all heads")
        if len(parts) > 1 and parts.shape[1] > 100 and _nearly_alike(parts):
            raise Misfit(f"in a new layer, the numbers of {name} are nearly the same for two heads")
        if parts.shape[1] > 1 and (parts == parts[:, :1]).all():
            raise Misfit(f"in a new layer, all the numbers of one head in {name} are the same")
    if unknown := sorted(set(parameters) - set(PARAMETERS)):
        raise Misfit(f"the layer has a parameter {unknown[0]} that was not asked for")


def _gradients(output: Tensor, output_gradient: Tensor, parameters: dict[str, Any]) -> dict[str, Any]:
    wanted = [parameters[name] for name in PARAMETERS]
    gradients: tuple[Tensor | None, ...] = (None,) * len(wanted)
    if output.requires_grad:
        gradients = torch.autograd.grad(output, wanted, output_gradient, allow_unused=True)
    cut_off = [name for name, gradient in zip(PARAMETERS, gradients, strict=True) if gradient is None]
    if cut_off:
        names = " and ".join(filter(None, [", ".join(cut_off[:-1]), cut_off[-1]]))
        raise Misfit(f"no gradient comes back from the output to {names}, so that nothing is learned there")
    return {f"gradient of {name}": part for name, part in zip(PARAMETERS, gradients, strict=True)}
