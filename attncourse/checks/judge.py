"""Our side of a check: compare answers with the reference, recognise mistakes, word the verdict."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attncourse.checks.probe import Answer, Foreign, probe

if TYPE_CHECKING:
    from attncourse.checks.task import Case, Misconception, Plain, Task

WIDTH = 80  # what fits beside the file browser on a laptop

# Summing in another order changes the last digits; a mistake changes the first ones.
TOLERANCE = {torch.float64: (1e-7, 1e-9), torch.float32: (1e-4, 1e-5)}  # relative, absolute


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check.

    Parameters
    ----------
    task : str
        The task's name.
    passed : bool
    message : str
        What the student reads.
    misconception : str, optional
        The label of the mistake that the answer looks like.
    """

    task: str
    passed: bool
    message: str
    misconception: str | None = None


class CheckFailed(AssertionError):
    """An answer is not right yet.

    Attributes
    ----------
    task : str
        The task's name.
    misconception : str or None
        The label of the mistake that the answer looks like.
    message : str
        What to tell the student: what was called, what came back, what it looks like.
    """

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.message)
        self.task = verdict.task
        self.misconception = verdict.misconception
        self.message = verdict.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message and nothing of ours."""
        bold, plain_text = "\x1b[1m", "\x1b[0m"
        lines = self.message.splitlines()
        headlines = {lines[0]}
        if self.misconception is not None:
            headlines.update(_looks_like(self.misconception).splitlines())
        return [f"{bold}{line}{plain_text}" if line in headlines else line for line in lines]


def judge(task: Task, cases: Sequence[Case], answers: Sequence[Answer], seed: int = 0) -> Verdict:
    """Decide whether the answers to the cases are right, and if not say why.

    Parameters
    ----------
    task : Task
    cases : sequence of Case
    answers : sequence of Answer
        What :func:`attncourse.checks.probe.probe` returned for these cases. Nothing else of
        the student's session is needed, and nothing of it is believed.
    seed : int
        From which the cases were made.

    Returns
    -------
    Verdict

    Raises
    ------
    ValueError
        If there is not one answer for each case, and no interruption explains it.
    """
    stopped_early = bool(answers) and answers[-1].failure is not None
    if len(answers) > len(cases) or (len(answers) < len(cases) and not stopped_early):
        raise ValueError(
            f"answers has {len(answers)} answers: expected one for each of the {len(cases)} cases"
        )
    references = probe(task, task.reference, cases, refusing=False)
    problems = [_problem(task, *triple) for triple in zip(cases, answers, references, strict=False)]
    wrong = [number for number, problem in enumerate(problems) if problem is not None]
    if not wrong:
        return Verdict(task.name, True, _praise(task, cases))

    first = wrong[0]
    failure = answers[first].failure
    if failure is not None and failure.kind in _WITHOUT_CASE:
        headline, advice = (text.format(task=task, failure=failure) for text in _WITHOUT_CASE[failure.kind])
        return Verdict(task.name, False, _join(f"{task.name}: {headline}", textwrap.fill(advice, WIDTH)))

    problem = problems[first]
    assert problem is not None
    sections = [
        f"{task.name}: not right yet.",
        _facts(task, cases, first, problem, answers[first].modified, len(wrong), seed),
    ]
    if failure is not None and failure.text:
        sections.append(failure.text)
    misconception = recognise(task, cases, answers)
    if misconception is not None:
        sections.append(
            f"{_looks_like(misconception.label)}\n"
            f"{textwrap.fill(misconception.hint, WIDTH)}\n"
            f"Read: {link(misconception.read)}"
        )
    return Verdict(task.name, False, _join(*sections), misconception.label if misconception else None)


def recognise(task: Task, cases: Sequence[Case], answers: Sequence[Answer]) -> Misconception | None:
    """The first misconception that gives the same as the answers on all cases, or None."""
    if len(answers) < len(cases):
        return None
    for misconception in task.misconceptions:
        wrong = probe(task, misconception.function, cases, refusing=False)
        if all(_coincide(*pair) for pair in zip(answers, wrong, strict=True)):
            return misconception
    return None


def _looks_like(label: str) -> str:
    return textwrap.fill(f"This looks like: {label}.", WIDTH, break_on_hyphens=False)


def link(read: str) -> str:
    """The page of the built book, and the place in it, that ``<unit>#<anchor>`` stands for."""
    unit, _, anchor = read.partition("#")
    return f"book/{unit}.html#{anchor}"


# Failures of which no single case is the cause: a headline, and what to do.
_WITHOUT_CASE = {
    "unwritten": (
        "not written yet.",
        "Replace the line `raise NotImplementedError()` by your code, run that cell, then run this again.",
    ),
    "not callable": (
        "a function is expected, and what came is {failure.name}.",
        "Pass the function itself, without brackets after its name: checks.{task.name}({task.name})",
    ),
    "unwritten part": (
        "something that it needs is not written yet.",
        "Your answer calls `{failure.name}`, which still stops with `raise NotImplementedError()`. "
        "Write that one first, or do without it here.",
    ),
    "refused": (
        "not by this road.",
        "Your answer calls {failure.name}, which does work that you are asked to write yourself. "
        "Use simpler operations, or what you have written before.",
    ),
    "missing": (
        "nothing to check.",
        "`{failure.name}` has no value here. Is its cell still there, above this one, and does it run "
        "without an error?",
    ),
    "interrupted": (
        "interrupted.",
        "The call of your function was stopped before it came back. Is there a loop in it that never ends?",
    ),
}


@dataclass(frozen=True)
class _Problem:
    """What is wrong with one answer: what came back, and where it differs."""

    came: str
    differs: str = ""


def _problem(task: Task, case: Case, answer: Answer, reference: Answer) -> _Problem | None:
    if answer.failure is not None:
        if answer.failure.kind == "misfit":
            return _Problem("nothing that could be used", answer.failure.name)
        return _Problem(f"nothing: it raised {answer.failure.name}")
    if task.compare is not None:
        sentence = task.compare(case.inputs, answer.value)
        problem = None if sentence is None else _Problem(_describe(answer.value), sentence)
    else:
        problem = _difference(answer.value, reference.value)
    if problem is None and answer.modified:
        return _Problem("the right thing, but the input is not as it was")
    return problem


def _difference(value: Plain, expected: Plain) -> _Problem | None:
    """Why `value` is not `expected`, without saying what was expected beyond its form."""
    if isinstance(expected, Tensor):
        return _tensor_difference(value, expected)
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        return _number_difference(value, expected)
    if isinstance(expected, tuple | list):
        if not isinstance(value, tuple | list) or len(value) != len(expected):
            return _Problem(_describe(value), f"{len(expected)} things were expected, as a tuple")
        for number, (part, expected_part) in enumerate(zip(value, expected, strict=True), 1):
            problem = _difference(part, expected_part)
            if problem is not None:
                return _Problem(f"as number {number} of {len(expected)}: {problem.came}", problem.differs)
        return None
    if isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            return _Problem(_describe(value), f"the keys should be {', '.join(map(repr, expected))}")
        for name in expected:
            problem = _difference(value[name], expected[name])
            if problem is not None:
                return _Problem(f"under {name!r}: {problem.came}", problem.differs)
        return None
    if isinstance(value, Foreign) or type(value) is not type(expected):
        return _Problem(_describe(value), f"{_KINDS[type(expected)]} was expected")
    return None if value == expected else _Problem(_describe(value), "this is not what the question asks for")


_KINDS: dict[type, str] = {bool: "True or False", str: "a word, in quotes"}


def _tensor_difference(value: Plain, expected: Tensor) -> _Problem | None:
    if value is None:
        return _Problem("None", "a tensor was expected. Is there a `return` at the end of your function?")
    if isinstance(value, tuple | list):
        return _Problem(_describe(value), "one tensor was expected, on its own")
    if not isinstance(value, Tensor):
        return _Problem(_describe(value), "a torch tensor was expected")
    came = _describe(value)
    if value.shape != expected.shape:
        return _Problem(came, f"the shape should be {tuple(expected.shape)}")
    if not expected.is_floating_point():
        wanted = "bool" if expected.dtype == torch.bool else "whole numbers (torch.long)"
        if value.dtype.is_floating_point or (value.dtype == torch.bool) != (expected.dtype == torch.bool):
            return _Problem(f"{came}, of {_dtype(value)}", f"the dtype should be {wanted}")
        return _where_wrong(came, value, value != expected)
    if value.dtype not in TOLERANCE:
        return _Problem(f"{came}, of {_dtype(value)}", f"the dtype should be {_dtype(expected)}")
    for what, found in (
        ("NaN", value.isnan() & ~expected.isnan()),
        ("infinite", value.isinf() & ~expected.isinf()),
    ):
        if found.any():
            return _Problem(came, _where(found, what))
    wrong = ~_close(value, expected)
    problem = _where_wrong(came, value, wrong)
    if problem is not None and (value.double() - expected.double()).abs().max() < 0.01 * expected.abs().max():
        return _Problem(came, f"{problem.differs}; it is close, as if a constant were rounded")
    return problem


def _where_wrong(came: str, value: Tensor, wrong: Tensor) -> _Problem | None:
    if not wrong.any():
        return None
    yours = value[tuple(_place(wrong))].item()
    shown = f"{yours:.4g}" if value.is_floating_point() else str(yours)
    there = "where yours is" if wrong.dim() else "yours is"
    return _Problem(came, f"{_where(wrong, 'wrong')}, {there} {shown}")


def _number_difference(value: Plain, expected: float) -> _Problem | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if value is None:
        return _Problem("None", "a number was expected. Is there a `return` at the end of your function?")
    if isinstance(value, bool) or not isinstance(value, float | int):
        return _Problem(_describe(value), "a number was expected")
    # A count is right or wrong; another number may have passed through single precision.
    tolerance = 0.0 if isinstance(expected, int) else 1e-5
    if math.isclose(value, expected, rel_tol=tolerance):
        return None
    return _Problem(_describe(value), "this is not the number that the question asks for")


def _close(value: Tensor, expected: Tensor) -> Tensor:
    """Where two floating-point tensors agree, to the precision of the less precise of them."""
    relative, absolute = max(TOLERANCE[value.dtype], TOLERANCE[expected.dtype])
    return torch.isclose(value.double(), expected.double(), rtol=relative, atol=absolute, equal_nan=True)


def _coincide(answer: Answer, other: Answer) -> bool:
    if answer.failure is not None or other.failure is not None:
        return (
            answer.failure is not None
            and other.failure is not None
            and (answer.failure.kind, answer.failure.name) == (other.failure.kind, other.failure.name)
            # The lines below the first are those of the code, which may differ.
            and answer.failure.text.partition("\n")[0] == other.failure.text.partition("\n")[0]
        )
    return set(other.modified) <= set(answer.modified) and _same(answer.value, other.value)


def _same(value: Plain, other: Plain) -> bool:
    if other is None or isinstance(other, Foreign):
        return value == other
    return _difference(value, other) is None


def _facts(
    task: Task,
    cases: Sequence[Case],
    index: int,
    problem: _Problem,
    modified: Sequence[str],
    num_wrong: int,
    seed: int,
) -> str:
    case = cases[index]
    rows = [("Called with", _describe_inputs(case)), ("Came back", problem.came)]
    if not case.inputs:
        del rows[0]
    if problem.differs:
        rows.append(("What differs", problem.differs))
    if modified:
        names = " and ".join(f"`{name}`" for name in modified)
        sentence = f"your function changes its argument {names} in place; work on a new tensor instead"
        rows.append(("Besides" if problem.differs else "What differs", sentence))
    if len(cases) > 1:
        share = f"{len(cases) - num_wrong} of {len(cases)}"
        number = f"{index + 1}, seed={seed}" if seed else f"{index + 1}"
        rows.append(("Cases right", f"{share}; the inputs of this one are checks.{task.name}.case({number})"))
    return "\n".join(
        textwrap.fill(text, WIDTH, initial_indent=f"{title:<14}", subsequent_indent=" " * 14)
        for title, text in rows
    )


def _praise(task: Task, cases: Sequence[Case]) -> str:
    notes = list(dict.fromkeys(case.note for case in cases if case.note))
    covered = f" ({'; '.join(notes)})" if notes else ""
    number = f" in all {len(cases)} cases" if len(cases) > 1 else ""
    return textwrap.fill(f"{task.name}: right{number}{covered}.", WIDTH, subsequent_indent="  ")


def _describe_inputs(case: Case) -> str:
    described = ", ".join(f"{name} {_describe_input(value)}" for name, value in case.inputs.items())
    dtypes = {_dtype(value) for value in case.inputs.values() if isinstance(value, Tensor)}
    parts = [described, *sorted(dtypes)]
    return ", ".join(parts) + (f": {case.note}" if case.note else "")


def _describe_input(value: Plain) -> str:
    return str(tuple(value.shape)) if isinstance(value, Tensor) else repr(value)


def _describe(value: Plain) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Foreign):
        return value.description
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    if isinstance(value, dict):
        return f"a dictionary of {len(value)}"
    if isinstance(value, float):
        return f"the number {value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"the number {value}"
    return repr(value)


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _place(where: Tensor) -> list[int]:
    return where.nonzero()[0].tolist()


def _where(found: Tensor, what: str) -> str:
    """How many of a tensor's numbers are so, and the first of them: "3 of its 8 numbers are NaN; ..."."""
    if found.dim() == 0:
        return f"it is {what}"
    number, numel = int(found.sum()), found.numel()
    subject = f"all of its {numel} numbers" if number == numel else f"{number} of its {numel} numbers"
    return f"{subject} {'is' if number == 1 else 'are'} {what}; the first is at {_place(found)}"


def _join(*sections: str) -> str:
    return "\n\n".join(section for section in sections if section)
