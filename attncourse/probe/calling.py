"""Calling an answer: on which inputs, in which way, and what it may not call itself."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import Answer, Failure, Misfit, Plain, bounded, describe_type, plain
from attncourse.probe.program import Program
from attncourse.probe.refusing import Refusal, Refused

# As it is before any answer is called, which could put another in its place.
_equal = torch.equal


@dataclass(frozen=True, eq=False)
class Case:
    """One call of the student's function.

    Parameters
    ----------
    inputs : dict of str to plain data
        The arguments, in the order in which they are passed; the names are for messages.
    note : str
        What is special about this case, in words that continue "Called with": "a batch".
    contiguous : bool
        False hands over tensors whose memory runs the other way, as a transpose leaves it.
    """

    inputs: dict[str, Plain]
    note: str = ""
    contiguous: bool = True


class Way:
    """How inputs become a call of the answer: here by position, so that arguments may have any names.

    A unit whose answers are called in another way has a subclass in ``attncourse/probe/<unit>.py``.
    """

    def arguments(self, inputs: dict[str, Plain]) -> tuple[Any, ...]:
        """What the student's function gets."""
        return tuple(inputs.values())

    def use(self, answer: Callable, inputs: dict[str, Plain]) -> Any:
        """Call the answer and return what is to be looked at.

        Raises
        ------
        Misfit
            If the answer cannot be used so.
        """
        return answer(*self.arguments(inputs))

    def functions(self, inputs: dict[str, Plain]) -> dict[str, Callable]:
        """By the names of inputs, the functions, which in grading stay where the grader is."""
        return {name: value for name, value in inputs.items() if isinstance(value, Program)}

    def look(self, inputs: dict[str, Plain], functions: dict[str, Callable], value: Any) -> None:
        """Look at how an answer that gave this value has used the functions that stayed with the grader.

        Raises
        ------
        Misfit
            If it may not use them so.
        """


@dataclass(frozen=True)
class Calling:
    """Everything about a task that whoever calls its answers has to know.

    Parameters
    ----------
    way : Way
    refuses : tuple of str
        Names of torch functions that would do the work in the student's stead, beside the
        fused attention functions, which are always refused.
    allows : tuple of str
        Names of the course's own functions, and of PyTorch's layers of attention, that the
        answer may use; all others are refused.
    """

    way: Way = field(default_factory=Way)
    refuses: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()


@contextlib.contextmanager
def usual_settings() -> Iterator[None]:
    """Have tensors made as usual meanwhile, whatever a notebook has set: elsewhere that is not known.

    They are of float32, and have derivatives, in which NaN is no error.
    """
    dtype, derivatives = torch.get_default_dtype(), torch.is_grad_enabled()
    anomalies, checks_nan = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_anomaly_enabled(False)
    inference = torch.is_inference_mode_enabled()
    try:
        with torch.inference_mode(False) if inference else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(derivatives)
        torch.set_anomaly_enabled(anomalies, checks_nan)


@usual_settings()
def probe(calling: Calling, answer: Any, cases: Sequence[Case], *, refusing: bool = True) -> list[Answer]:
    """Call `answer` on every case.

    Parameters
    ----------
    calling : Calling
    answer : callable
        What the student wrote.
    cases : sequence of Case
    refusing : bool
        Refuse the calls that the task asks to write. The judge switches this off for the
        reference and for known mistakes.

    Returns
    -------
    list of Answer
        One for each case, or fewer where the student interrupted a call.
    """
    answers = []
    for case in cases:
        answers.append(_probe_case(calling, answer, case, refusing))
        failure = answers[-1].failure
        if failure is not None and failure.kind in ("interrupted", "not callable"):
            break
    return answers


def _probe_case(calling: Calling, answer: Any, case: Case, refusing: bool) -> Answer:
    inputs = handed_over(case)
    refusal = Refusal(calling.refuses, calling.allows, _probe_case.__code__) if refusing else None
    try:
        # A warning is no mistake, and would seem to come from here instead of from the answer.
        with warnings.catch_warnings(action="ignore"), refusal or contextlib.nullcontext():
            value = bounded(plain(calling.way.use(answer, inputs)))
    except KeyboardInterrupt:
        return Answer(failure=Failure("interrupted"))
    except Refused as refused:
        return Answer(failure=Failure("refused", str(refused)))
    except Misfit as misfit:
        return Answer(failure=Failure("misfit", str(misfit)))
    except BaseException as error:  # some, like asyncio's, are no `Exception`
        if not callable(answer):
            return Answer(failure=Failure("not callable", describe_type(answer)))
        if type(error) is NotImplementedError and not error.args:
            return Answer(failure=_unwritten(answer, error))
        return Answer(failure=Failure("raised", type(error).__name__, _student_traceback(error)))
    if refusal is not None and refusal.refused:
        # The answer caught the refusal; what it computed after that is not what was asked.
        return Answer(failure=Failure("refused", refusal.refused))
    modified = tuple(name for name, value in inputs.items() if _changed(value, case.inputs[name]))
    return Answer(value, modified=modified)


def handed_over(case: Case) -> dict[str, Plain]:
    """A copy of the case's inputs, which the answer may spoil."""
    return {name: _copied(value, case.contiguous) for name, value in case.inputs.items()}


def _copied(value: Plain, contiguous: bool) -> Plain:
    # A tensor is cloned ten times as fast as it is copied deeply, and some inputs are a model's weights.
    if type(value) in (list, tuple):
        return type(value)(_copied(part, True) for part in value)
    if type(value) is dict:
        return {name: _copied(part, True) for name, part in value.items()}
    if isinstance(value, Program):
        return value.anew()
    if not isinstance(value, Tensor):
        return copy.deepcopy(value)
    if contiguous or value.dim() < 2:
        return value.clone()
    return value.mT.contiguous().mT


def _changed(value: Plain, original: Plain) -> bool:
    if isinstance(original, Tensor):
        if value.dtype == original.dtype and _equal(value, original):
            return False
        value, original = value.detach().double(), original.double()  # where NaN equals NaN
        return value.shape != original.shape or not torch.allclose(value, original, 0, 0, equal_nan=True)
    if isinstance(original, list | tuple):
        return len(value) != len(original) or any(map(_changed, value, original))
    if isinstance(original, dict):
        return value.keys() != original.keys() or any(_changed(value[name], original[name]) for name in value)
    return not isinstance(original, Program) and bool(value != original)


_LIBRARIES = tuple(
    os.path.realpath(folder) + os.sep
    for folder in (
        os.path.dirname(os.path.dirname(__file__)),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.path.dirname(torch.__file__)),
    )
)


@functools.cache
def _of_library(file: str) -> bool:
    return os.path.realpath(file).startswith(_LIBRARIES)


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
    # Where a function calls itself there are thousands; and to read the lines of libraries takes long.
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-50, lookup_lines=False
    )
    own = [entry for entry in frames if not _of_library(entry.filename) and entry.line]
    for entry in own[-3:]:
        lines += [f"  line {entry.lineno}, in {entry.name}", f"    {entry.line}"]
    return "\n".join(lines)
