"""What stands, in grading, for the functions of the course that are not in the process of a submission.

They import as ever. A call raises :class:`NotInGrading`, but for what the task that is judged allows, or
what has to be right for it: that is computed where the grader is, which sends back plain data.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from attncourse.probe.answer import Plain
from attncourse.probe.refusing import given
from attncourse.probe.wire import decode, encode


class NotInGrading(Exception):
    """Something of the course was used that is not there in grading."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"`{name}` is not there in grading, where nothing of the course computes an answer. "
            "No other cell suffers from this."
        )


class Absent:
    """Stands for something of the course's that is not there.

    Parameters
    ----------
    name : str
        As it is imported: "attncourse.causal_mask".
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        asked = "course." + self.__name__.rpartition(".")[2]
        if asked not in _served:
            raise NotInGrading(self.__name__)
        return _served[asked](*inputs, **named)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # Python's and Jupyter's own questions
            raise AttributeError(name)
        raise NotInGrading(f"{self.__name__}.{name}")

    def __getitem__(self, place: Any) -> Any:
        raise NotInGrading(self.__name__)

    def __iter__(self) -> Any:
        raise NotInGrading(self.__name__)

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        raise NotInGrading(self.__name__)

    def __repr__(self) -> str:
        return f"<{self.__name__}, which is not there in grading>"


class Check(Absent):
    """Stands for a check: grading does its work elsewhere."""

    def __call__(self, *inputs: Any, **named: Any) -> None:
        print(f"{self.__name__.rpartition('.')[2]}: is checked outside of this notebook when it is graded.")


def absent(module: str, names: Collection[str], parts: Collection[str] = ()) -> Callable[[str], Any]:
    """The `__getattr__` of a module of which nothing is there but its names.

    Parameters
    ----------
    module : str
    names : collection of str
        Its public functions, classes and constants.
    parts : collection of str
        Its submodules.
    """

    def getattribute(name: str) -> Any:
        if name in names:
            return Absent(f"{module}.{name}")
        if name in parts:
            return importlib.import_module(f"{module}.{name}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return getattribute


def absent_checks(tasks: Collection[str]) -> Callable[[str], Any]:
    """The `__getattr__` of what stands for `attncourse.checks`."""

    def getattribute(name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return (Check if name in tasks else Absent)(f"checks.{name}")

    return getattribute


# Functions that the grader computes while it judges the answer to some task, by what to ask it for.
_served: dict[str, Callable] = {}


def serve(names: Collection[str], ask: Callable[[str], str]) -> None:
    """Have these functions computed by whoever `ask` reaches, and no others."""
    _served.clear()
    _served.update({name: given(_elsewhere(name, ask)) for name in names})


def served(name: str) -> Callable:
    return _served[name]


def _elsewhere(name: str, ask: Callable[[str], str]) -> Callable:
    def call(*inputs: Any, **named: Any) -> Any:
        leaves, form = tree_flatten((inputs, named))
        forms: list[TreeSpec] = []
        values = _Elsewhere.apply(
            lambda question: _asked(ask, {"name": name, **question}), form, forms, *leaves
        )
        return tree_unflatten(values, forms[0])

    return call


def _asked(ask: Callable[[str], str], question: dict[str, Plain]) -> Plain:
    reply = decode(ask(encode(question)))
    if "error" in reply:
        raise ValueError(reply["error"])
    return reply["value"]


class _Elsewhere(Function):
    """A call that is computed elsewhere, forwards and backwards."""

    @staticmethod
    def forward(ctx: Any, asked: Callable, form: TreeSpec, forms: list[TreeSpec], *leaves: Any) -> tuple:
        inputs, named = tree_unflatten(leaves, form)
        ctx.asked, ctx.question, ctx.number = asked, {"inputs": inputs, "named": named}, len(leaves)
        values, found = tree_flatten(asked(ctx.question))
        forms.append(found)
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        found = ctx.asked({**ctx.question, "gradients": gradients})
        return (None, None, None, *found)
