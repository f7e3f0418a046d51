"""A function as plain data: its steps and its numbers, and nothing that says what it is.

Layers, losses and the like that a task hands to an answer are written down by `trace`, on the judge's
side. The answer gets a :class:`Program`, which can be called like the function; in grading, one that is
computed :class:`Elsewhere`.
"""

from __future__ import annotations

import builtins
import copy
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import describe_type
from attncourse.probe.refusing import given

_MODULES = {"torch": torch, "functional": torch.nn.functional, "operator": operator, "builtins": builtins}
# As they are before any answer is called: what an answer puts in their place sees nothing of the steps.
_FUNCTIONS = {name: dict(vars(module)) for name, module in _MODULES.items()}
_METHODS = {name: getattr(Tensor, name) for name in dir(Tensor) if not name.startswith("__")}


class TooLarge(ValueError):
    """What a function is given, or computes of it, is more than is computed for an answer."""


class Program:
    """A function of tensors, step by step.

    What it cannot be called with is always told in the same words: PyTorch's own tell which steps it has.

    Parameters
    ----------
    steps : list of dict
        What `trace` writes: plain data.

    Attributes
    ----------
    calls : int
        How often it was called.
    """

    def __init__(self, steps: list[dict[str, Any]]) -> None:
        self.steps = steps
        self.calls = 0

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.calls += 1
        try:
            return _run(self.steps, inputs, named)
        except TooLarge:
            raise
        except Exception:
            parts = [*map(_in_words, inputs), *(f"{name}={_in_words(part)}" for name, part in named.items())]
            came = ", ".join(parts) or "nothing"
            raise RuntimeError(f"the function takes something else: {came} came") from None

    def anew(self) -> Program:
        """The same function, which nobody has called yet."""
        again = copy.copy(self)
        again.calls = 0
        return again

    def __deepcopy__(self, memo: dict[int, Any]) -> Program:
        return self  # who calls a copy has called the function

    def __repr__(self) -> str:
        return "<a function>"


def _in_words(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}, of {str(value.dtype).removeprefix('torch.')}"
    return describe_type(value)


class Elsewhere(Program):
    """A function that is computed where the grader is: here is nothing of it to look into.

    Parameters
    ----------
    call : callable
        Has it computed.
    asked_for : str
        The name by which other functions of the grader's can be handed this one.

    Attributes
    ----------
    has_derivatives : bool
        Whether they come with what it gives.
    """

    has_derivatives = True

    def __init__(self, call: Callable, asked_for: str) -> None:
        super().__init__([])
        self._call = call
        self._asked_for = asked_for

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        self.calls += 1
        with torch.set_grad_enabled(self.has_derivatives and torch.is_grad_enabled()):
            return self._call(*inputs, **named)

    def hand_on(self) -> Named:
        """What stands for it where it is an argument of another function, which calls it elsewhere."""
        self.calls += 1
        return Named(self._asked_for)


@dataclass(frozen=True)
class Named:
    """A function of the grader's, by what it is asked for."""

    asked_for: str


@dataclass(frozen=True)
class Own:
    """A function of the student's among the arguments of one of the grader's, by its number."""

    number: int


@given  # what it does, the answer does not do
def _run(steps: list[dict[str, Any]], inputs: tuple[Any, ...], named_inputs: dict[str, Any]) -> Any:
    known: dict[str, Any] = {}
    left, left_named = list(inputs), dict(named_inputs)
    for step in steps:
        kind, name, target = step["kind"], step["name"], step["target"]
        arguments = _value(tuple(step["arguments"]), known)
        named = {key: _value(part, known) for key, part in step["named"].items()}
        if kind == "input":
            if left:
                known[name] = left.pop(0)
            elif target in left_named:
                known[name] = left_named.pop(target)
            elif arguments:
                known[name] = arguments[0]
            else:
                raise TypeError("missing an argument")
        elif kind == "constant":
            known[name] = step["value"]
        elif kind == "function":
            module, _, attribute = target.partition(".")
            known[name] = _FUNCTIONS[module][attribute](*arguments, **named)
        elif kind == "method" and isinstance(arguments[0], Tensor) and callable(_METHODS.get(target)):
            known[name] = _METHODS[target](*arguments, **named)
        elif kind == "method":
            known[name] = getattr(arguments[0], target)(*arguments[1:], **named)
        else:
            if left or left_named:
                raise TypeError("too many arguments were given")
            return arguments[0]
    return None


# No inner function: one that calls itself would keep all tensors until Python looks for circles.
def _value(part: Any, known: dict[str, Any]) -> Any:
    if isinstance(part, dict):
        ((kind, content),) = part.items()
        if kind == "of":
            return known[content]
        if kind == "slice":
            return slice(*(_value(end, known) for end in content))
        return getattr(torch, content)
    if isinstance(part, tuple | list):
        return type(part)(_value(one, known) for one in part)
    return part


def trace(function: Callable) -> Program:
    """Write a function down as a program.

    Parameters
    ----------
    function : callable
        A function of tensors made of PyTorch's functions, operators and methods, and of tensors
        from outside. It decides nothing by a number, asks a tensor for its sizes (``x.shape[0]``,
        not ``len(x)``), and makes no new tensor of a size that it asked for.

    Raises
    ------
    ValueError
        If a step cannot be written down.
    """
    from torch import fx

    tracer = fx.Tracer()
    steps = []
    for node in tracer.trace(function).nodes:
        step: dict[str, Any] = {"name": node.name, "target": "", "arguments": (), "named": {}}
        step["arguments"] = tuple(map(_written, node.args))
        step["named"] = {key: _written(part) for key, part in node.kwargs.items()}
        if node.op == "placeholder":
            step |= {"kind": "input", "target": str(node.target)}
        elif node.op == "get_attr":
            step["kind"] = "constant"
            step["value"] = getattr(tracer.root, str(node.target)).detach().clone()
        elif node.op == "call_method":
            step |= {"kind": "method", "target": node.target}
        elif node.op == "call_function":
            step |= {"kind": "function", "target": _named(node.target)}
        elif node.op == "output":
            step["kind"] = "output"
        else:
            raise ValueError(f"function has a step {node.op!r} that cannot be written down")
        steps.append(step)
    return Program(steps)


def _named(target: Any) -> str:
    attribute = getattr(target, "__name__", "")
    for name, module in _MODULES.items():
        if getattr(module, attribute, None) is target:
            return f"{name}.{attribute}"
    raise ValueError(f"function calls {target!r}, which cannot be written down")


def _written(part: Any) -> Any:
    from torch import fx

    if isinstance(part, fx.Node):
        return {"of": part.name}
    if isinstance(part, slice):
        return {"slice": tuple(_written(end) for end in (part.start, part.stop, part.step))}
    if isinstance(part, torch.dtype):
        return {"dtype": str(part).removeprefix("torch.")}
    if isinstance(part, tuple | list):
        # fx has types of its own, which no one else reads.
        return list(map(_written, part)) if isinstance(part, list) else tuple(map(_written, part))
    if part is None or isinstance(part, bool | int | float | str | Tensor):
        return part
    raise ValueError(f"function uses {part!r}, which cannot be written down")
