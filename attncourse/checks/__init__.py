"""Checks for the exercises: ``checks.attention(attention)`` says whether an answer is right.

A check says which cases it tried if the answer is right, and raises :class:`CheckFailed` if it is not.
:func:`tasks` lists what the checks are about.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import attncourse
from attncourse.checks.check import Check
from attncourse.checks.task import Law, Mistake, Task, registry
from attncourse.checks.verdict import CheckFailed, Verdict
from attncourse.probe.calling import Case

__all__ = ["Case", "Check", "CheckFailed", "Law", "Mistake", "Task", "Verdict", "tasks"]

# A unit has a module of the same name here and in the package; the engine's have not.
_here, _package = ({module.name for module in iter_modules(path)} for path in (__path__, attncourse.__path__))
for _unit in sorted(_here & _package):
    import_module(f"{__name__}.{_unit}")


def tasks(unit: str | None = None) -> list[Task]:
    """List the tasks of all units, or of one, in the order of the course.

    Raises
    ------
    ValueError
        If no unit has that name.
    """
    units = list(dict.fromkeys(task.unit for task in registry.values()))
    if unit is not None and unit not in units:
        raise ValueError(f"unit is {unit!r}: expected one of {', '.join(units)}")
    return [task for task in registry.values() if unit in (None, task.unit)]


def __getattr__(name: str) -> Any:
    if name in registry:
        return Check(registry[name])
    raise AttributeError(f"there is no check named {name!r}; the checks are {', '.join(registry)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *registry])
