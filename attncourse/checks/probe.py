"""The student's side of a check: call the answer, and bring back nothing but plain data."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from attncourse.checks.task import Case, Plain, Task

# Functions that compute attention in one go: writing it is what the course asks for.
FUSED = (
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
    "_native_multi_head_attention",
)

# A tensor with more numbers answers no task, and might not fit into the memory.
MOST_NUMBERS = 2**20
# The same of a list, a tuple or a dictionary.
MOST_PARTS = 10_000


@dataclass(frozen=True)
class Failure:
    """Why a call of the answer gave no value.

    Parameters
    ----------
    kind : str
        ``unwritten``, ``unwritten part``, ``not callable``, ``misfit``, ``refused``, ``raised``,
        ``interrupted`` or ``missing``.
    name : str
        The exception's type, what was refused, the part that is not written, or the sentence that
        says what does not fit.
    text : str
        The exception's message and the lines of the student's code that led to it.
    """

    kind: str
    name: str = ""
    text: str = ""


@dataclass(frozen=True)
class Foreign:
    """Stands for a returned object that is not plain data: only its description is kept."""

    description: str


@dataclass(frozen=True)
class Answer:
    """What one call of the answer gave.

    Parameters
    ----------
    value : plain data, or Foreign
    failure : Failure, optional
        Why there is no value.
    modified : tuple of str
        The inputs that the call changed in place.
    """

    value: Plain = None
    failure: Failure | None = None
    modified: tuple[str, ...] = ()


class Refused(Exception):
    """The answer called a function that does the task's work in its stead."""


class Misfit(Exception):
    """The answer cannot be used as the task uses it; the message is a sentence for the student.

    For a task's own ``call``: "the layer has no parameter W_Q".
    """


def given(function: Callable) -> Callable:
    """Let a function that the task hands to the answer do what the answer itself may not."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _Refusal.suspended():
            return function(*args, **kwargs)

    return call


def probe(task: Task, answer: Any, cases: Sequence[Case], *, refusing: bool = True) -> list[Answer]:
    """Call `answer` on every case.

    Parameters
    ----------
    task : Task
    answer : callable
        What the student wrote.
    cases : sequence of Case
    refusing : bool
        Refuse the calls that the task asks to write. The judge switches this off for the
        reference and the misconceptions.

    Returns
    -------
    list of Answer
        One for each case, or fewer where the student interrupted a call.
    """
    answers = []
    for case in cases:
        answers.append(_probe_case(task, answer, case, refusing))
        failure = answers[-1].failure
        if failure is not None and failure.kind in ("interrupted", "not callable"):
            break
    return answers


def plain(value: Any) -> Plain:
    """Reduce a returned value to plain data; what is not plain becomes a :class:`Foreign`."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            return Foreign("a sparse tensor")
        # A subclass may bring its own idea of everything, its size included; here its numbers count.
        with torch._C.DisableTorchFunctionSubclass():
            if value.numel() > MOST_NUMBERS:
                return Foreign(f"a tensor of shape {tuple(value.shape)}, far larger than asked for")
            return value.detach().as_subclass(Tensor).cpu().clone()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        number = int(value)
        return number if abs(number) < 2**63 else Foreign("a number with very many digits")
    if isinstance(value, float | np.floating):
        return float(value)
    if type(value) in (tuple, list, dict) and len(value) > MOST_PARTS:
        return Foreign(f"a {type(value).__name__} of {len(value)}, far larger than asked for")
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return Foreign(f"a NumPy array of shape {value.shape}")
    return Foreign(_describe_type(value))


def _describe_type(value: Any) -> str:
    if callable(value):
        return "a function, not what the function computes"
    return f"an object of type {type(value).__name__}"


def _probe_case(task: Task, answer: Any, case: Case, refusing: bool) -> Answer:
    inputs = {name: _handed_over(value, case.contiguous) for name, value in case.inputs.items()}
    refusal = _Refusal(task) if refusing else contextlib.nullcontext()
    try:
        # A warning is no mistake, and would seem to come from here instead of from the answer.
        with warnings.catch_warnings(action="ignore"), refusal:
            value = plain(task.call(answer, inputs))
    except KeyboardInterrupt:
        return Answer(failure=Failure("interrupted"))
    except Refused as refused:
        return Answer(failure=Failure("refused", str(refused)))
    except Misfit as misfit:
        return Answer(failure=Failure("misfit", str(misfit)))
    except (Exception, SystemExit) as error:
        if not callable(answer):
            return Answer(failure=Failure("not callable", _describe_type(answer)))
        if type(error) is NotImplementedError and not error.args:
            return Answer(failure=_unwritten(answer, error))
        return Answer(failure=Failure("raised", type(error).__name__, _student_traceback(error)))
    if isinstance(refusal, _Refusal) and refusal.refused:
        # The answer caught the refusal; what it computed after that is not what was asked.
        return Answer(failure=Failure("refused", refusal.refused))
    modified = tuple(name for name, value in inputs.items() if _changed(value, case.inputs[name]))
    return Answer(value, modified=modified)


def _handed_over(value: Plain, contiguous: bool) -> Plain:
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if contiguous or value.dim() < 2:
        return value.clone()
    return value.mT.contiguous().mT


def _changed(value: Plain, original: Plain) -> bool:
    if isinstance(original, Tensor):
        value, original = value.detach().double(), original.double()
        return value.shape != original.shape or not torch.allclose(value, original, 0, 0, equal_nan=True)
    if isinstance(original, list | tuple):
        return len(value) != len(original) or any(map(_changed, value, original))
    return bool(value != original)


class _Refusal(TorchFunctionMode):
    """Raises :class:`Refused` when a function that the task asks to write is called."""

    _suspended = 0

    def __init__(self, task: Task) -> None:
        super().__init__()
        self.task = task
        self.refused = ""

    @classmethod
    @contextlib.contextmanager
    def suspended(cls) -> Iterator[None]:
        cls._suspended += 1
        try:
            yield
        finally:
            cls._suspended -= 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._suspended:
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        called = name if name in FUSED + self.task.refuses else self._own_function()
        if called:
            self.refused = called
            raise Refused(called)
        return func(*args, **(kwargs or {}))

    def _own_function(self) -> str:
        """The course's own function through which the answer came here, if it may not call it."""
        frames = list(_frames_inside(sys._getframe(2), _probe_case.__code__))
        # The frames next to the probe are the task's own way of calling the answer.
        while frames and _module(frames[-1]).startswith("attncourse.checks"):
            frames.pop()
        for frame in reversed(frames):
            if _module(frame).startswith("attncourse"):
                name = frame.f_code.co_qualname.partition(".")[0]
                return "" if name in self.task.allows else f"attncourse's own {name}"
        return ""


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _frames_inside(frame: FrameType | None, outer_code: Any) -> Iterator[FrameType]:
    """The frames from `frame` outwards, up to the one that runs `outer_code`."""
    while frame is not None and frame.f_code is not outer_code:
        yield frame
        frame = frame.f_back


_LIBRARIES = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (
        os.path.dirname(os.path.dirname(__file__)),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.path.dirname(torch.__file__)),
    )
)


def _unwritten(answer: Any, error: BaseException) -> Failure:
    """Whether it is the answer that is not written yet, or something of the student's that it calls."""
    frames = list(traceback.walk_tb(error.__traceback__))
    code = frames[-1][0].f_code
    part = code.co_qualname.rpartition("<locals>.")[2].partition(".")[0]
    if part == getattr(answer, "__name__", part):
        return Failure("unwritten")
    return Failure("unwritten part", part)


def _student_traceback(error: BaseException) -> str:
    """The exception's message, under it the lines of the student's own code, innermost last."""
    lines = ["".join(traceback.format_exception_only(error)).strip()]
    tb: TracebackType | None = error.__traceback__
    own = [
        entry
        for entry in traceback.extract_tb(tb)
        if not os.path.realpath(entry.filename).startswith(_LIBRARIES) and entry.line
    ]
    for entry in own[-3:]:
        lines += [f"  line {entry.lineno}, in {entry.name}", f"    {entry.line}"]
    return "\n".join(lines)
