"""What an honest notebook is made of, and what in a cell is something else.

In how many ways a program can work unseen, in a thread, in another process, by way of Python's own frames,
nobody can list. They come from modules that no answer needs. So it is listed what notebooks do need, and a
person is told of the rest: it costs nothing.
"""

import ast
import functools
import itertools
import pkgutil
import re
import sys
from collections.abc import Collection, Iterator

import IPython
import numpy
import torch
from IPython.core import magics

from attncourse.grading.scopes import Cell, last_name

# Nearly all are loaded before a notebook runs, so that no file of the same name comes in their place.
MODULES = {
    *("__future__", "abc", "cmath", "collections", "collections.abc", "contextlib", "copy", "dataclasses"),
    *("datetime", "decimal", "enum", "fractions", "functools", "gc", "heapq", "itertools", "math", "numbers"),
    *("operator", "pprint", "random", "re", "statistics", "textwrap", "time", "timeit", "typing"),
    *("typing_extensions", "warnings", "torch", "torch.autograd", "torch.fft", "torch.func", "torch.linalg"),
    *("torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.modules", "torch.nn.parameter"),
    *("torch.optim", "torch.random", "torch.special", "torch.testing", "torch.types", "torch.version"),
    *("numpy", "numpy.fft", "numpy.linalg", "numpy.random", "numpy.testing", "numpy.typing"),
    *("IPython", "IPython.display", "ipywidgets"),
    # Of these nothing else.
    *("inspect.signature", "torch.nn.utils.clip_grad_norm_"),
}
# Of these every part, but those that call other programs.
WHOLE = ("attncourse", "matplotlib", "mpl_toolkits")
OTHER_PROGRAMS = {"backends", "testing", "texmanager", "sphinxext"}
# What stands between two underlines and belongs to numbers, texts and lists, or says what something is.
TOLD = {"__name__", "__qualname__", "__doc__", "__module__", "__version__", "__file__"}
METHODS = {*dir(float), *dir(list), *dir(dict), *TOLD, "__call__", "__post_init__", "__annotations__"}
METHODS |= {"__enter__", "__exit__", "__next__", "__matmul__"}
METHODS -= {"__getattribute__", "__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__getnewargs__"}
METHODS -= {"__subclasshook__", "__init_subclass__", "__class_getitem__", "__getformat__"}
# The ways from a call that runs to what stands around it.
FRAMES = {"f_globals", "f_builtins", "f_locals", "f_back", "tb_frame", "gi_frame", "cr_frame", "ag_frame"}
# IPython keeps the results and the texts of earlier cells under these names.
KEPT = re.compile(r"_+|_i+|_\d+|_i\d+|_[oid]h|Out|In")
# Of these what follows is Python, which is read as such.
TIMING = {"time", "timeit", "prun"}
LINE_MAGICS = {
    *("autoreload", "autosave", "conda", "config", "ls", "lsmagic", "magic", "matplotlib", "pdb", "pdoc"),
    *("pinfo", "pinfo2", "pip", "precision", "psource", "pwd", "quickref", "reset", "who", "who_ls", "whos"),
    *("xmode", *TIMING, "run"),  # a remark of its own is about the last
}
KNOWN_EXTENSIONS = {"autoreload", "tensorboard"}
CELL_MAGICS = {"markdown", "html", "HTML", "latex", "svg", "SVG", "javascript", "js", *TIMING, "capture"}
# IPython puts values into a command for these.
EXPANDED = set("{$")
SHELL = re.compile(r"\s*(ls|pwd|echo|date|pip3?|conda|nvidia-smi|whoami|uname|df|free)\b[^;&|`${<>\n]*")
SHELLS = {"ls", "pip", "conda"}
# Under which modules are parts of modules, too.
OTHER_NAMES = {
    *("bltns", "calling", "classes", "dist", "docutils", "intrinsic", "mp", "ops", "parallel", "qat"),
    *("quantized", "refusing", "trait_types", "tunable", "wire", "_functions", "_internal", "_private"),
}
# What runs code in ordinary modules.
RUNNING = {
    *("InteractiveShell", "extract_module_locals", "embed", "start_ipython", "start_kernel", "embed_kernel"),
    *("run_threaded", "runstring", "rundocs", "measure", "extbuild", "memusage"),
}
# By these something is asked for by a text that is its name.
ASKING = {"getattr", "setattr", "attrgetter", "methodcaller", "getattr_static"}
_DOTTED = re.compile(r"\w+(\.\w+)*")
COMMANDS = {"run_line_magic": "%", "run_cell_magic": "%%", "system": "!", "getoutput": "!"}
# Python itself gives every module these.
HIDDEN = {"__builtins__", "__loader__", "__spec__"}
_OPTIONS = re.compile(r"(\s*-\w+(\s+\d+)?)*\s*")


def _is_ordinary(name: str) -> bool:
    return name in MODULES or (
        name.partition(".")[0] in WHOLE and OTHER_PROGRAMS.isdisjoint(name.split(".")[1:])
    )


@functools.cache
def _names_of_modules() -> frozenset[str]:
    """The names under which modules that are not in the list are attributes of those that are."""
    places = itertools.chain(torch.__path__, numpy.__path__, IPython.__path__)
    names = {found.name for found in pkgutil.iter_modules(places)} | sys.stdlib_module_names
    last = {name.rpartition(".")[2] for name in MODULES}
    return frozenset(names - last - {"cuda", "attention"} | OTHER_NAMES)


def _is_module(name: str) -> bool:
    """Whether a name may be that of a module which is not ordinary, hidden or not."""
    return name in _names_of_modules() or (
        name.startswith("_") and name.strip("_") in sys.stdlib_module_names and name.strip("_") not in MODULES
    )


# The same cells stand above many checks.
@functools.lru_cache(maxsize=500)
def unusual(cell: Cell) -> list[tuple[ast.AST, str]]:
    """The nodes of a cell by which something is reached that no honest answer needs, each with its name."""
    calls = [node for node in cell.nodes if isinstance(node, ast.Call)]
    called = {call.func for call in calls}
    shells = {_command(call) for call in calls}
    commands = [call for call in calls if _command(call)]
    found: list[tuple[ast.AST, str]] = [(call, words) for call in commands for words in _other_command(call)]
    shown = {part for call in commands for part in call.args}
    found += [
        (node, "a file of code") for node in cell.nodes if node not in shown and _is_code_in_a_file(node)
    ]
    for node in cell.nodes:
        found += [(node, name) for name in (*_unusual(node, called, shells), *_asked_for(node, called))]
    return found


def _unusual(node: ast.AST, called: Collection[ast.AST], shells: Collection[ast.AST | None]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if not _is_ordinary(one.name))
    elif isinstance(node, ast.ImportFrom):
        name = node.module or ""
        others = [one.name for one in node.names if not _is_ordinary(f"{name}.{one.name}")]
        if others and (node.level or not _is_ordinary(name)):
            yield name or "."
        else:
            yield from (one for one in others if _is_module(one) or _is_way(one))
    elif isinstance(node, ast.Call) and last_name(node.func) == "open":
        mode = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "mode")]
        if not {getattr(one, "value", None) for one in mode} <= {"r", "rt", "rb"}:
            yield "open"
    elif isinstance(node, ast.Attribute):
        # A module is never called. Whatever has an operator of another's does what it likes, unseen.
        replaces = _is_hidden(node.attr) and node.attr not in TOLD and not isinstance(node.ctx, ast.Load)
        is_value = isinstance(node.ctx, ast.Load) and node not in called
        if replaces or _is_way(node.attr) or (is_value and _is_module(node.attr)):
            yield node.attr
    elif isinstance(node, ast.Name) and (
        node.id in HIDDEN or (node.id == "get_ipython" and node not in shells)
    ):
        yield node.id


def _asked_for(node: ast.AST, called: Collection[ast.AST]) -> Iterator[str]:
    """What is asked for by a text that is its name; by another name of `getattr` it could be anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        names = (one for one in node.value.split(".") if one != "__main__")  # as every program asks
        # Without an underline the name of a module is a word like others.
        yield from (one for one in names if _is_way(one) or (one.startswith("_") and _is_module(one)))
    elif isinstance(node, ast.Call) and last_name(node.func) in ASKING:
        texts = (getattr(part, "value", None) for part in node.args)
        yield from (text for text in texts if isinstance(text, str) and _is_module(text))
    elif isinstance(node, ast.MatchClass):
        yield from (name for name in node.kwd_attrs if _is_way(name) or _is_module(name))
    elif isinstance(node, ast.Name | ast.Attribute) and node not in called and last_name(node) in ASKING:
        yield last_name(node)


def _is_way(name: str) -> bool:
    """Whether an attribute leads from an object to what it is made of, or to what calls it."""
    return (_is_hidden(name) and name not in METHODS) or name in FRAMES | RUNNING or name == "get_ipython"


def _is_code_in_a_file(node: ast.AST) -> bool:
    """Whether this is the name of a file that Python could import."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return isinstance(text, str) and text.endswith((".py", ".pyc", ".so", ".pth", ".zip"))


def _is_hidden(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _command(call: ast.Call) -> ast.AST | None:
    """The name of the shell in a call that IPython makes of ``%name``, ``%%name`` or ``!name``."""
    shell = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in COMMANDS else None
    function = shell.func if isinstance(shell, ast.Call) else None
    return function if isinstance(function, ast.Name) and function.id == "get_ipython" else None


def _other_command(call: ast.Call) -> Iterator[str]:
    sign = COMMANDS[call.func.attr]  # type: ignore[attr-defined]
    first, rest, *_ = [*(str(getattr(part, "value", "{")) for part in call.args), "", ""]
    command = first if sign == "!" else f"{first} {rest}" if first in SHELLS else "ls"
    if not SHELL.fullmatch(command):
        yield "a command of the system"
    elif first == "load_ext" and rest in KNOWN_EXTENSIONS:
        pass
    elif sign != "!" and first not in (LINE_MAGICS if sign == "%" else CELL_MAGICS):
        yield f"{sign}{first}"
    elif first not in TIMING and not EXPANDED.isdisjoint(rest):
        yield f"{sign}{first} with a value"


def is_command(line: str) -> bool:
    """Whether IPython takes a line that is no Python for one of its commands, though it has no sign."""
    first, *_ = [*line.split(maxsplit=1), ""]
    groups = [getattr(magics, name) for name in dir(magics) if name.endswith("Magics")]
    return any(first in getattr(group, "magics", {}).get("line", ()) for group in groups)


def timed(call: ast.AST) -> str:
    """The code that a line such as ``%time`` runs, or nothing."""
    if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "run_line_magic":
        name, text, *_ = [*(getattr(part, "value", "") for part in call.args), "", ""]
        if name in TIMING and isinstance(text, str):
            return text[_OPTIONS.match(text).end() :]  # type: ignore[union-attr]
    return ""


def forget() -> None:
    """Forget what was read: the next notebook has other cells."""
    unusual.cache_clear()
