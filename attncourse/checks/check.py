"""The check that a notebook calls: ``checks.attention(attention)``."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from attncourse.checks.judge import judge
from attncourse.checks.task import Task, registry
from attncourse.checks.verdict import CheckFailed, Verdict
from attncourse.probe.answer import Answer
from attncourse.probe.calling import Case, handed_over, probe, usual_settings
from attncourse.probe.refusing import given


class Check:
    """Says whether an answer to a task is right.

    Parameters
    ----------
    task : Task
    """

    def __init__(self, task: Task) -> None:
        self.task = task

    def __call__(self, answer: Any) -> None:
        """Check an answer: say so if it is right, raise :class:`CheckFailed` if not."""
        verdict = self.verdict(answer)
        if verdict.passed and not verdict.carried:
            print(verdict.message)
            return
        raise CheckFailed(verdict, is_shown=_show(verdict)) from None

    @usual_settings()
    def verdict(self, answer: Any, seeds: Sequence[int] = (0,), *, refusing: bool = True) -> Verdict:
        """Judge an answer that is in this process."""
        names = _names_around(answer)

        def ask(cases: Sequence[Case], instead: Sequence[str]) -> list[Answer]:
            with _replaced(names, {name: given(registry[name].stand_in) for name in instead}):
                return probe(self.task.calling, answer, cases, refusing=refusing)

        called = [name for name in _called(answer, names) if name in self.task.builds_on]
        wrong = [name for name in called if _is_wrong(registry[name], names[name])]
        return judge(self.task, seeds, ask, wrong)

    @usual_settings()
    def case(self, number: int) -> tuple[Any, ...]:
        """What the student's function gets in the case with that number, from 1.

        Grading uses other numbers, too.
        """
        cases = self.task.cases(0)
        if not 1 <= number <= len(cases):
            raise ValueError(f"number is {number}: {self.task.name} has cases 1 to {len(cases)}")
        return self.task.way.arguments(handed_over(cases[number - 1]))

    def __repr__(self) -> str:
        return f"<check {self.task.name} of unit {self.task.unit}: call it with your answer>"


def _is_wrong(task: Task, part: Any) -> bool:
    return not judge(task, (0,), lambda cases, instead: probe(task.calling, part, cases)).passed


def _names_around(answer: Any) -> dict[str, Any]:
    """The names that the answer's code can see: those of the student's notebook."""
    module = sys.modules.get(getattr(answer, "__module__", None) or "")
    return getattr(answer, "__globals__", None) or (vars(module) if module is not None else {})


def _called(answer: Any, names: dict[str, Any]) -> list[str]:
    """The functions of the notebook that an answer calls, and those that they call."""
    found: list[str] = []
    codes = [part.__code__ for part in _functions(answer)]
    while codes:
        code = codes.pop()
        codes += [constant for constant in code.co_consts if hasattr(constant, "co_names")]
        for name in code.co_names:
            if name not in found and name in registry and name in names:
                found.append(name)
                codes += [part.__code__ for part in _functions(names[name])]
    return found


def _functions(value: Any) -> list[Callable]:
    parts = vars(value).values() if isinstance(value, type) else [value]
    return [part for part in parts if hasattr(part, "__code__")]


@contextlib.contextmanager
def _replaced(names: dict[str, Any], others: dict[str, Any]) -> Iterator[None]:
    before = {name: names[name] for name in others if name in names}
    names.update(others)
    try:
        yield
    finally:
        names.update(before)


def _show(verdict: Verdict) -> bool:
    """Show a verdict as HTML where somebody looks at a notebook; elsewhere the exception's text will do."""
    if not _someone_looks():
        return False
    from IPython.display import HTML, display

    display(HTML(verdict.html(_address)))
    return True


def _someone_looks() -> bool:
    """Whether this is a notebook's kernel and a person's request, not a run of the whole notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    # Who can be asked for input is there to read.
    return bool(getattr(kernel, "_allow_stdin", False))


def _address(passage: str) -> str:
    """Where a passage of the book is on the Jupyter server; nothing, if no server has the book.

    A link to the page's file would lead JupyterLab to show it without its styles, and not at the passage.
    """
    book = os.environ.get("ATTNCOURSE_BOOK")  # `attncourse_lab` sets it
    return f"{book}{passage}" if book else ""
