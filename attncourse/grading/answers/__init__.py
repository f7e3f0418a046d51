"""Right answers to the exercises, written in different ways.

A unit's answers stand in ``attncourse/grading/answers/<unit>.py``: one function each, named
``<task>__<how>``. With them, and with the mistakes that the checks know, notebooks can
be filled as a class of students would fill them.
"""

from collections.abc import Callable
from importlib import import_module

from attncourse.checks import Task

__all__ = ["right_answers"]


def right_answers(task: Task) -> list[Callable]:
    """The right answers to a task, in the order in which they are written down."""
    module = import_module(f"{__name__}.{task.unit}")
    return [function for name, function in vars(module).items() if name.startswith(f"{task.name}__")]
