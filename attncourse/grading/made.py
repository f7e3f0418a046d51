"""The `attncourse` that a submission imports: made for its tasks, and without code that answers them.

Beside `probe`, which calls answers, and `plots` it holds the modules whose functions the tasks allow, as
they are. Of everything else there are only names: see `attncourse.probe.absent`.
"""

import ast
import compileall
import functools
import shutil
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

import attncourse
from attncourse.checks.task import Task, registry
from attncourse.grading import leftovers

PACKAGE = Path(attncourse.__file__).parent

# They know of no task.
_HARMLESS = ("_require", "plots")

_ABSENT = """\
from attncourse.probe.absent import absent

__all__ = {names}
__getattr__ = absent(__name__, __all__, {parts})
{numbers}
"""
_CHECKS = """\
from attncourse.probe.absent import absent_checks


class CheckFailed(AssertionError):
    pass


__getattr__ = absent_checks({tasks})
"""
# The package itself, where absent parts are looked for after those that are there.
_HEAD = """\
{words!r}
{imports}
from attncourse.probe.absent import absent

__all__ = {names}
__getattr__ = absent(__name__, __all__, {parts})
"""


def package_for(tasks: Collection[Task]) -> Path:
    """A folder in which lies the `attncourse` for a notebook with these tasks.

    It is made once in each process.
    """
    allowed = frozenset(name for task in tasks for name in task.allows)
    return _made(frozenset(task.unit for task in tasks), allowed)


def outside(task: Task) -> Iterator[str]:
    """The functions of the course that the answer may use although they answer another task of the unit."""
    for name in task.allows:
        if name in registry and registry[name].unit == task.unit and hasattr(attncourse, name):
            yield name


def new_folder() -> Path:
    """A folder that lasts as long as this process. Who runs a submission may be somebody else."""
    folder = Path(tempfile.mkdtemp(dir=_folders().name))
    folder.chmod(0o755)
    Path(_folders().name).chmod(0o711)
    return folder


@functools.cache
def _folders() -> leftovers.Folder:
    return leftovers.Folder()


@functools.cache
def _made(units: frozenset[str], allowed: frozenset[str]) -> Path:
    folder = new_folder()
    made = folder / "attncourse"
    # What another unit hands to answers could do the work here.
    ways = {type(task.way).__module__.rpartition(".")[2] for task in registry.values() if task.unit in units}
    others = [f"{unit}.py" for unit in {task.unit for task in registry.values()} - ways]
    shutil.copytree(PACKAGE / "probe", made / "probe", ignore=shutil.ignore_patterns("__pycache__", *others))
    there = set(_HARMLESS)
    real: dict[str, list[str]] = {}
    for name in sorted(allowed & set(attncourse.__all__)):
        module = getattr(attncourse, name).__module__.rpartition(".")[2]
        needed = _needed(module)
        if not needed & units:
            there |= needed
            real.setdefault(module, []).append(name)
    for module in there:
        shutil.copy(PACKAGE / f"{module}.py", made)
    for path in _absent():
        place = path.relative_to(PACKAGE)
        if place.with_suffix("").as_posix() not in there:
            (made / place).parent.mkdir(parents=True, exist_ok=True)
            (made / place).write_text(
                _ABSENT.format(names=_names(path), parts=_parts(path), numbers=_numbers(path))
            )
    imports = "\n".join(
        f"from attncourse.{module} import {', '.join(names)}" for module, names in real.items()
    )
    names = sorted(attncourse.__all__)
    parts = [*_parts(PACKAGE / "__init__.py"), "checks"]
    (made / "__init__.py").write_text(
        _HEAD.format(words=attncourse.__doc__, imports=imports, names=names, parts=parts)
    )
    (made / "checks").mkdir()
    (made / "checks" / "__init__.py").write_text(_CHECKS.format(tasks=list(registry)))
    compileall.compile_dir(folder, quiet=2)
    return folder


def _needed(module: str) -> set[str]:
    """A module of the course and those that it imports, by their names."""
    found = {module}
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("attncourse."):
            found |= _needed(str(node.module).partition(".")[2])
    return found


def _absent() -> Iterator[Path]:
    """The modules of the course that students may import, but for the package itself."""
    for path in sorted(PACKAGE.rglob("*.py")):
        first, *rest = path.relative_to(PACKAGE).with_suffix("").parts
        private = any(part.startswith("_") and part != "__init__" for part in (first, *rest))
        if first not in ("checks", "grading", "probe", "__init__") and not private:
            yield path


def _names(path: Path) -> list[str]:
    """What a module defines, or has from other modules of the course."""
    found = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [target.id for target in targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.ImportFrom) and str(node.module).startswith("attncourse"):
            found += [alias.asname or alias.name for alias in node.names]
    return [name for name in dict.fromkeys(found) if not name.startswith("_")]


def _numbers(path: Path) -> str:
    """The constants of a module that are plain numbers, which compute nothing."""
    lines = ast.parse(path.read_text(encoding="utf-8")).body
    found = [
        line
        for line in lines
        if isinstance(line, ast.Assign)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, int | float)
    ]
    return "\n".join(map(ast.unparse, found))


def _parts(path: Path) -> list[str]:
    """The submodules of a package; none if it is a module."""
    beside = (
        {other for other in _absent() if other.is_relative_to(path.parent)}
        if path.stem == "__init__"
        else set()
    )
    return sorted({other.relative_to(path.parent).parts[0].removesuffix(".py") for other in beside - {path}})
