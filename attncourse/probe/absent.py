"""What stands, in grading, for the functions of the course that are not in the process of a submission.

They import as ever. A call raises :class:`NotInGrading`, but for what the task that is judged allows, or
what has to be right for it: that is computed where the grader is, which sends back plain data.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import disable_saved_tensors_hooks
from torch.nn import Parameter
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from attncourse.probe.answer import MOST_PARTS, Foreign, Plain, plain
from attncourse.probe.program import Elsewhere, Named, Own
from attncourse.probe.refusing import given
from attncourse.probe.wire import decode, encode


class NotInGrading(Exception):
    """Something of the course was used that is not there in grading."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"`{name}` is not there in grading, where nothing of the course computes an answer. "
            "This cell ended there; what stands below in it is missing."
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

    def __or__(self, other: Any) -> Any:  # as in `layer: MultiHeadAttention | None`
        return self

    __ror__ = __or__

    def __instancecheck__(self, value: Any) -> bool:
        return False

    def __mro_entries__(self, bases: tuple[type, ...]) -> tuple[type, ...]:
        raise NotInGrading(self.__name__)

    def __bool__(self) -> bool:
        return True

    def __format__(self, how: str) -> str:
        if how:
            raise NotInGrading(self.__name__)
        return repr(self)

    def __repr__(self) -> str:
        return f"<{self.__name__}, which is not there in grading>"


def _is_asked(absent: Absent, *others: Any) -> Any:
    raise NotInGrading(absent.__name__)


# What Python asks a class for, and not `__getattr__`: of a list or a number of the course, say.
_OPERATORS = ("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "pow")
for _name in (
    *("len", "contains", "reversed", "next", "enter", "exit", "int", "float", "complex", "round"),
    *("neg", "abs", "lt", "le", "gt", "ge", *_OPERATORS, *(f"r{one}" for one in _OPERATORS)),
):
    setattr(Absent, f"__{_name}__", _is_asked)


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
    _served.update({name: _elsewhere(name, ask) for name in names})


def served(name: str) -> Callable:
    return _served[name]


def _elsewhere(name: str, ask: Callable[[str], str]) -> Callable:
    @given
    def put(leaves: Sequence[Any], form: TreeSpec, values: Sequence[Any]) -> Any:
        question = _Question(name, ask, form, values)
        # Of an answer's own nothing is to run in here.
        with disable_saved_tensors_hooks(f"{name} is called within hooks for saved tensors"):
            return tree_unflatten(_Elsewhere.apply(question, *leaves), question.found)

    def call(*inputs: Any, **named: Any) -> Any:
        # What objects of the answer's do while they are looked at, the answer does.
        own: list[Callable] = []
        leaves, form = tree_flatten(_data((inputs, named), own))
        # What functions of the answer's have given, one call after the other.
        values: list[Any] = []
        while True:
            try:
                return put(leaves, form, values)
            except _Wanted as one:
                wanted = one
            values.append(own[wanted.number](*wanted.inputs))

    return call


class _Wanted(Exception):
    """What one of the answer's own functions gives is wanted."""

    def __init__(self, number: int, inputs: Sequence[Plain]) -> None:
        super().__init__()
        self.number, self.inputs = number, inputs


def _data(value: Any, own: list[Callable]) -> Any:
    """The same without objects that have methods of their own; tensors keep how they were made.

    In the place of functions of the answer's, which are put into `own`, stand their numbers.
    """
    if isinstance(value, Elsewhere):
        return value.hand_on()
    if isinstance(value, Tensor):
        return value if type(value) in (Tensor, Parameter) else value.as_subclass(Tensor)
    # Of a kind of its own, such as a model's weights, only what is in it is handed on.
    if isinstance(value, tuple):
        return tuple(_data(part, own) for part in tuple.__iter__(value))
    if isinstance(value, list):
        return [_data(part, own) for part in list.__iter__(value)]
    if isinstance(value, dict):
        return {str.__str__(str(key)): _data(part, own) for key, part in dict.items(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return torch.as_tensor(np.array(value))
    found = plain(value)
    if not isinstance(found, Foreign):
        return found
    if callable(value):  # before all: layers in a row can be gone through, too
        own.append(value)
        return Own(len(own) - 1)
    if isinstance(value, Iterable):
        return [_data(part, own) for part in islice(value, MOST_PARTS)]
    return found


# What a function of the grader raises is raised here again, so that it can be expected as at home.
_KINDS = {
    name: kind
    for name, kind in vars(builtins).items()
    # Those two cannot be made of words alone.
    if isinstance(kind, type)
    and issubclass(kind, Exception)
    and not issubclass(kind, ExceptionGroup | UnicodeError)
}


@dataclass
class _Question:
    """What to ask, but for the leaves of its arguments, of the form `form`; `found` is the reply's form.

    `values` are what functions of the answer's have given that are among the arguments.
    """

    name: str
    ask: Callable[[str], str]
    form: TreeSpec
    values: Sequence[Any] = ()
    found: Any = None

    def put(self, leaves: Sequence[Any], **more: Plain) -> Plain:
        # Sizes often come as NumPy's numbers.
        data = [leaf if isinstance(leaf, Named | Own) else plain(leaf) for leaf in leaves]
        inputs, named = tree_unflatten(data, self.form)
        question = {"name": self.name, "inputs": inputs, "named": named, **more}
        if self.values:
            question["values"] = [plain(value) for value in self.values]
        reply = decode(self.ask(encode(question)))
        if "wanted" in reply:
            raise _Wanted(reply["wanted"], reply["inputs"])
        if "error" in reply:
            raise _KINDS.get(reply.get("kind"), ValueError)(reply["error"])
        return reply["value"]


class _Elsewhere(Function):
    """A call that is computed elsewhere, with its derivatives."""

    @staticmethod
    def forward(question: _Question, *leaves: Any) -> tuple:
        values, question.found = tree_flatten(question.put(leaves))
        return tuple(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        ctx.question, *leaves = inputs
        ctx.others = [None if isinstance(leaf, Tensor) else (leaf,) for leaf in leaves]
        ctx.dtypes = [getattr(value, "dtype", None) for value in output]
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.found = None

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        columns = zip(*_derivatives(ctx), strict=True)  # one for each leaf
        return (None, *(_sum(map(_back, gradients, column)) for column in columns))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Tensor | None) -> tuple:
        rows = _derivatives(ctx)  # one for each value
        found = (_sum(map(_ahead, row, tangents)) for row in rows)
        return tuple(
            None if one is None else one.to(dtype) for one, dtype in zip(found, ctx.dtypes, strict=True)
        )

    @staticmethod
    def vmap(info: Any, dims: tuple, *inputs: Any) -> tuple[tuple, tuple]:
        return _one_by_one(_Elsewhere, info, dims, inputs)


def _derivatives(ctx: Any) -> list[Sequence[Tensor | None]]:
    """Of each value by each leaf of the arguments: (*sizes of the value, *sizes of the leaf)."""
    if ctx.found is not None:
        return ctx.found
    tensors = iter(ctx.saved_tensors)
    leaves = [next(tensors) if other is None else other[0] for other in ctx.others]
    found = _Derivatives.apply(ctx.question, *leaves)
    rows = [found[start : start + len(leaves)] for start in range(0, len(found), len(leaves))]
    # Some go back again and again, a number of the value at a time.
    if not torch.is_grad_enabled():
        ctx.found = rows
    return rows


def _back(gradient: Tensor | None, derivative: Tensor | None) -> Tensor | None:
    if gradient is None or derivative is None:
        return None
    return torch.tensordot(gradient.to(derivative.dtype), derivative, gradient.dim())


def _ahead(derivative: Tensor | None, tangent: Tensor | None) -> Tensor | None:
    if derivative is None or tangent is None:
        return None
    return torch.tensordot(derivative, tangent, tangent.dim())


def _sum(parts: Iterable[Tensor | None]) -> Tensor | None:
    known = [part for part in parts if part is not None]
    return functools.reduce(torch.add, known) if known else None


class _Derivatives(Function):
    """The derivatives of a call that is computed elsewhere."""

    @staticmethod
    def forward(question: _Question, *leaves: Any) -> tuple:
        return tuple(question.put(leaves, derivatives=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: tuple) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple:
        raise RuntimeError("what is computed outside of the notebook has first derivatives only")

    @staticmethod
    def vmap(info: Any, dims: tuple, *inputs: Any) -> tuple[tuple, tuple]:
        return _one_by_one(_Derivatives, info, dims, inputs)


def _one_by_one(function: type[Function], info: Any, dims: tuple, inputs: tuple) -> tuple[tuple, tuple]:
    """The rule for `torch.vmap`: whoever computes gets one call after the other."""
    columns = [
        [part] * info.batch_size if dim is None else part.unbind(dim)
        for part, dim in zip(inputs, dims, strict=True)
    ]
    rows = [function.apply(*row) for row in zip(*columns, strict=True)]
    values = [
        torch.stack(column) if isinstance(column[0], Tensor) else column[0]
        for column in zip(*rows, strict=True)
    ]
    return tuple(values), tuple(0 if isinstance(value, Tensor) else None for value in values)
