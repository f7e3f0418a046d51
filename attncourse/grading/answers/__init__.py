"""Right answers to the exercises, written in different ways.

A unit's answers stand in ``attncourse/grading/answers/<unit>.py``: one function each, named
``<task>__<how>``. With them, and with the misconceptions that the checks know, notebooks can
be filled as a class of students would fill them.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable
from importlib import import_module

from attncourse.checks import Task

__all__ = ["right_answers", "source_of"]


def right_answers(task: Task) -> list[Callable]:
    """The right answers to a task, in the order in which they are written down."""
    module = import_module(f"{__name__}.{task.unit}")
    return [function for name, function in vars(module).items() if name.startswith(f"{task.name}__")]


def source_of(function: Callable, name: str) -> str:
    """The source of an answer as a student would have written it, under another name.

    Parameters
    ----------
    function : callable
        A right answer, or the function of a misconception.
    name : str
        What the student's function is called: the name of the task.

    Returns
    -------
    str
        The definition without decorators. It needs ``math`` and ``torch``.
    """
    source = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(source).body[0]
    undecorated = "\n".join(source.splitlines()[definition.lineno - 1 :])
    # Everywhere, as a function may call itself; but not the attributes of the same name.
    return re.sub(rf"(?<![\w.]){function.__name__}\b", name, undecorated)
