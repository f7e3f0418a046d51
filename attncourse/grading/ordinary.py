"""What an honest notebook is made of, and what in a cell is something else.

In how many ways a program can work unseen, in a thread, in another process, by way of Python's own frames,
nobody can list. They come from modules that no answer needs. So it is listed what notebooks do need, and a
person is told of the rest: it costs nothing.
"""

import ast
import builtins
import functools
import itertools
import pkgutil
import re
import sys
import typing
from collections.abc import Collection, Iterator

import IPython
import numpy
import torch

from attncourse.grading.commands import command, other_command
from attncourse.grading.scopes import Cell, last_name

# Nearly all are loaded before a notebook runs, so that no file of the same name comes in their place.
MODULES = {
    *("__future__", "abc", "cmath", "collections", "collections.abc", "contextlib", "copy", "dataclasses"),
    "bisect",
    *("datetime", "decimal", "enum", "fractions", "functools", "gc", "heapq", "itertools", "math", "numbers"),
    *("operator", "pprint", "random", "re", "statistics", "textwrap", "time", "typing"),
    *("typing_extensions", "warnings", "torch", "torch.autograd", "torch.fft", "torch.func", "torch.linalg"),
    *("torch.nn", "torch.nn.functional", "torch.nn.init", "torch.nn.modules", "torch.nn.parameter"),
    *("torch.optim", "torch.random", "torch.special", "torch.testing", "torch.types", "torch.version"),
    *("numpy", "numpy.fft", "numpy.linalg", "numpy.random", "numpy.testing", "numpy.typing"),
    *("IPython", "IPython.display", "ipywidgets"),
    "torch.autograd.functional",
    # Of these nothing else.
    *("inspect.signature", "torch.nn.utils.clip_grad_norm_"),
}
# Beside Python's own those all of whose names may be imported: they bring no module, or one that computes.
STARRED = {"attncourse", "attncourse.plots", "IPython.display", "torch"}
# Of these every part, but those that call other programs.
WHOLE = ("attncourse", "matplotlib", "mpl_toolkits")
OTHER_PROGRAMS = {"backends", "testing", "texmanager", "sphinxext"}
# What stands between two underlines and belongs to numbers, texts and lists, or says what something is.
TOLD = {"__name__", "__qualname__", "__doc__", "__module__", "__version__", "__file__"}
METHODS = {*dir(float), *dir(list), *dir(dict), *TOLD, "__call__", "__post_init__"}
METHODS |= {"__enter__", "__exit__", "__next__", "__matmul__"}
METHODS -= {"__getattribute__", "__reduce__", "__reduce_ex__", "__getstate__", "__dir__", "__getnewargs__"}
METHODS -= {"__float__", "__int__"}  # which PyTorch calls in the middle of something
METHODS -= {"__subclasshook__", "__init_subclass__", "__class_getitem__", "__getformat__"}
# Only defined: what an operator or PyTorch calls in the middle of something else is not among them.
DEFINED = {"__getattr__", "__missing__", "__aenter__", "__aexit__", "__and__", "__invert__"}
# Of these a pattern by place is the value itself.
SIMPLE = {"bool", "bytes", "bytearray", "dict", "float", "frozenset", "int", "list", "set", "str", "tuple"}
GIVEN = {"__slots__", "__all__", "__author__", "__array_priority__"}
# What everybody may call, however it begins.
PUBLIC = {"_asdict", "_replace", "_fields", "_make", "_repr_html_"}
# The ways from a call that runs to what stands around it.
FRAMES = {"f_globals", "f_builtins", "f_locals", "f_back", "tb_frame", "gi_frame", "cr_frame", "ag_frame"}
# IPython keeps the results and the texts of earlier cells under these names.
KEPT = re.compile(r"_+|_i+|_\d+|_i\d+|_[oid]h|Out|In")
# Under which modules are parts of modules, too.
OTHER_NAMES = {
    *("bltns", "calling", "classes", "dist", "docutils", "intrinsic", "mp", "ops", "parallel", "qat"),
    *("quantized", "refusing", "trait_types", "tunable", "wire", "_functions", "_internal", "_private"),
}
# What runs code in ordinary modules.
RUNNING = {
    *("InteractiveShell", "extract_module_locals", "embed", "start_ipython", "start_kernel", "embed_kernel"),
    *("run_threaded", "runstring", "rundocs", "measure", "extbuild", "memusage", "get_type_hints"),
    *("ForwardRef", "evaluate_forward_ref", "decorate_methods", "make_dataclass"),
    *("singledispatch", "singledispatchmethod"),  # which run the texts of annotations
    "Function",  # whose steps PyTorch calls in the middle of something
    "barry_as_FLUFL",  # after it Python reads what its own reader refuses
    # What they write into a file can be a module's code.
    *("tofile", "savetxt", "memmap", "open_memmap", "from_file"),
}
# By these something is asked for by a text that is its name.
ASKING = {"getattr", "setattr", "attrgetter", "methodcaller", "getattr_static"}
# Where these have the names; the others have one behind what they ask.
_NAMED_AT = {"attrgetter": slice(None), "methodcaller": slice(1)}
# By these all names of something can be had, to choose one.
LISTING = {"vars", "dir"}
_TYPE = re.compile(r"(?!.*__)[\w .,|\[\]-]*")
# In a text that is a type and has brackets or a line: the last part of each name, and the parts before it.
_TYPES = {*typing.__all__, "None", "Tensor", "Parameter", "Module", "ndarray", "NDArray", "Path", "...", ""}
_TYPES |= {name for name, kind in vars(builtins).items() if isinstance(kind, type)}
_OF_TYPES = {"torch", "nn", "np", "numpy", "npt", "typing", "collections", "abc"}
_DOTTED = re.compile(r"\w+(\.\w+)*")
# Python itself gives every module these.
HIDDEN = {"__builtins__", "__loader__", "__spec__"}


def _is_ordinary(name: str) -> bool:
    return name in MODULES or (
        name.partition(".")[0] in WHOLE and OTHER_PROGRAMS.isdisjoint(name.split(".")[1:])
    )


def _brings_no_module(name: str) -> bool:
    """Whether all names of a module may be imported at once."""
    return name in STARRED or (name in MODULES and name.partition(".")[0] in sys.stdlib_module_names)


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
def unusual(cell: Cell, own: frozenset[str] = frozenset()) -> list[tuple[ast.AST, str]]:
    """The nodes of a cell by which something is reached that no honest answer needs, each with its name.

    `own` are the names to which the notebook gives a meaning.
    """
    calls = [node for node in cell.nodes if isinstance(node, ast.Call)]
    called = {call.func for call in calls}
    shells = {command(call) for call in calls}
    commands = [call for call in calls if command(call)]
    found: list[tuple[ast.AST, str]] = [(call, words) for call in commands for words in other_command(call)]
    shown = {part for call in commands for part in call.args}
    found += [
        (node, "a file of code") for node in cell.nodes if node not in shown and _is_code_in_a_file(node)
    ]
    for node in cell.nodes:
        found += [(node, name) for name in (*_unusual(node, called, shells), *_asked_for(node, called))]
        if isinstance(node, ast.Attribute) and node.attr not in own and _is_inner(node):
            found.append((node, node.attr))
    return found


def _is_inner(node: ast.Attribute) -> bool:
    """Whether an attribute is one that something of another's keeps for itself."""
    of = getattr(node.value, "id", "")
    inner = node.attr.startswith("_") and not _is_hidden(node.attr)
    return inner and of not in ("self", "cls") and node.attr not in PUBLIC


def _unusual(node: ast.AST, called: Collection[ast.AST], shells: Collection[ast.AST | None]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (one.name for one in node.names if not _is_ordinary(one.name))
    elif isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
        name = node.module or ""
        if node.level or not _brings_no_module(name):
            yield f"* of {name or '.'}"
    elif isinstance(node, ast.ImportFrom):
        name = node.module or ""
        others = [one.name for one in node.names if not _is_ordinary(f"{name}.{one.name}")]
        if others and (node.level or not _is_ordinary(name)):
            yield name or "."
        else:
            yield from (one for one in others if one[0] == "_" or _is_module(one) or _is_way(one))
            yield from (one.name for one in node.names if one.name in ASKING and one.asname)
            if name.partition(".")[0] in WHOLE:  # which import others
                names = {one.name for one in node.names} - MODULES
                yield from sorted(names & sys.stdlib_module_names)
    elif isinstance(node, ast.Call) and last_name(node.func) == "open":
        mode = [*node.args[1:2], *(one.value for one in node.keywords if one.arg == "mode")]
        if not {getattr(one, "value", None) for one in mode} <= {"r", "rt", "rb"}:
            yield "open"
    elif isinstance(node, ast.Call) and (words := _chooses_code(node)):
        yield words
    elif isinstance(node, ast.Attribute):
        # A module is never called. Whatever has an operator of another's does what it likes, unseen.
        replaces = _is_hidden(node.attr) and node.attr not in TOLD and not isinstance(node.ctx, ast.Load)
        is_value = isinstance(node.ctx, ast.Load) and node not in called
        of = getattr(node.value, "id", "")
        replaces |= not isinstance(node.ctx, ast.Load) and _is_of_a_library(node.value)
        inner = node.attr.startswith("_") and not _is_hidden(node.attr) and of in sys.stdlib_module_names
        if replaces or inner or _is_way(node.attr) or (is_value and _is_module(node.attr)):
            yield node.attr
    elif isinstance(node, ast.arg | ast.AnnAssign) and _is_called_in_words(node.annotation):
        yield "an annotation that is more than a type"
    elif isinstance(node, ast.FunctionDef) and _is_hidden(node.name) and node.name not in METHODS | DEFINED:
        yield node.name
    elif isinstance(node, ast.Name):
        is_given = isinstance(node.ctx, ast.Store) and _is_hidden(node.id)
        is_given &= node.id not in METHODS | DEFINED | GIVEN
        if is_given or node.id in HIDDEN or (node.id == "get_ipython" and node not in shells):
            yield node.id


def _is_of_a_library(node: ast.AST) -> bool:
    """Whether this is a library or a part of it, in which what is replaced is so for the checks, too."""
    while isinstance(node, ast.Attribute):
        node = node.value
    libraries = {"torch", "F", "nn", "functional", "operator", "builtins", "math"}
    return isinstance(node, ast.Name) and node.id in libraries


def _is_called_in_words(annotation: ast.AST | None) -> bool:
    """Whether a text, which Python runs for whoever asks for the types, is more than the name of a type."""
    return annotation is not None and any(
        isinstance(part, ast.Constant) and isinstance(part.value, str) and not _is_type(part.value)
        for part in ast.walk(annotation)
    )


def _is_type(text: str) -> bool:
    if not _TYPE.fullmatch(text):
        return False
    if not {"[", "|"} & set(text):
        return True
    names = (word.strip().rpartition(".") for word in re.split(r"[\[\],|]", text))
    return all(last in _TYPES and {*before.split(".")} <= _OF_TYPES | {""} for before, _, last in names)


def _chooses_code(call: ast.Call) -> str:
    """What a call has among its arguments that has other code run; or empty."""
    name = last_name(call.func)
    for one in call.keywords:
        chosen = not isinstance(one.value, ast.Constant)
        if chosen and (one.arg == "backend" or (one.arg is None and name == "compile")):
            return "compile with a compiler of one's own"
        if one.arg == "eval_str":
            return "eval_str"
    if name in ("wraps", "update_wrapper"):  # which give attributes whose names are texts
        is_chosen = any(one.arg not in ("wrapper", "wrapped") for one in call.keywords)
        if is_chosen or len(call.args) > (1 if name == "wraps" else 2):
            return f"{name} with attributes that are chosen"
    if name == "setattr" and call.args and _is_of_a_library(call.args[0]):
        return "setattr"
    if name == "load":
        unseen = any(one.arg is None for one in call.keywords)
        if unseen or len(call.args) > 2 or any(isinstance(one, ast.Starred) for one in call.args):
            return "load with arguments that say nothing of what they are"
    if name in ("use", "switch_backend"):
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        for argument in call.args:
            text = getattr(argument, "value", None)
            of_matplotlib = getattr(of, "id", "") in ("matplotlib", "mpl", "plt")
            if of_matplotlib if not isinstance(text, str) else ":" in text:
                return "a module that draws"
    return ""


def _asked_for(node: ast.AST, called: Collection[ast.AST]) -> Iterator[str]:
    """What is asked for by a text that is its name; by another name of `getattr` it could be anything."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
        names = (one for one in node.value.split(".") if one != "__main__")  # as every program asks
        # Without an underline the name of a module is a word like others.
        yield from (one for one in names if _is_way(one) or (one.startswith("_") and _is_module(one)))
    elif isinstance(node, ast.Call) and last_name(node.func) in ASKING:
        texts = [getattr(part, "value", None) for part in node.args]
        yield from (text for text in texts if isinstance(text, str) and _is_module(text))
        if not all(isinstance(text, str) for text in texts[_NAMED_AT.get(last_name(node.func), slice(1, 2))]):
            yield f"{last_name(node.func)} with a name that is put together or chosen"
    elif isinstance(node, ast.Call) and node.args and getattr(node.func, "id", "") in LISTING:
        yield node.func.id  # type: ignore[attr-defined]
    elif isinstance(node, ast.MatchClass) and node.patterns and last_name(node.cls) not in SIMPLE:
        yield "a pattern that asks for attributes without their names"
    elif isinstance(node, ast.MatchClass):
        yield from (name for name in node.kwd_attrs if _is_way(name) or _is_module(name))
    elif isinstance(node, ast.Name | ast.Attribute) and node not in called and last_name(node) in ASKING:
        yield last_name(node)


def _is_way(name: str) -> bool:
    """Whether an attribute leads from an object to what it is made of, or to what calls it."""
    # What is called by a hook of PyTorch's is not refused.
    is_hook = name.startswith("register_") and "hook" in name
    return (_is_hidden(name) and name not in METHODS) or name in FRAMES | RUNNING | {"get_ipython"} or is_hook


def _is_code_in_a_file(node: ast.AST) -> bool:
    """Whether this is the name of a file that Python could import."""
    text = node.value if isinstance(node, ast.Constant) else ""
    return isinstance(text, str) and text.endswith((".py", ".pyc", ".so", ".pth", ".zip"))


def _is_hidden(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def forget() -> None:
    """Forget what was read: the next notebook has other cells."""
    unusual.cache_clear()
