"""Reads what a student wrote, without running it: does the answer let something else do the work?

The refusals of ``attncourse.checks`` stop such calls while the answer runs. They run beside the
student's code, which may have got rid of them; this does not.
"""

import ast
import builtins
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from IPython.core.inputtransformer2 import TransformerManager

from attncourse.checks import Task, tasks
from attncourse.checks.probe import FUSED

# What ends in the fused functions, or reaches them past PyTorch's public names.
MODULES = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "flex_attention")
# By these the refusals are switched off, or one's callers looked at. No answer needs them.
BACKSTAGE = {
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "TorchFunctionMode",
    "_pop_mode",
    "_pop_torch_function_stack",
    "_getframe",
    "f_back",
    "f_locals",
    "__closure__",
    "__code__",
    "__globals__",
    "__wrapped__",
    "__dict__",
    "sys.modules",
    "gc",
    "inspect",
}
# With these anything can be done unseen; most of what is done with them is harmless.
UNSEEN_BUILTINS = {
    *("exec", "eval", "compile", "__import__", "globals", "locals", "vars", "setattr", "delattr"),
    "__builtins__",
}
UNSEEN_MODULES = {"importlib", "ctypes", "marshal", "pickle", "subprocess", "multiprocessing", "socket"}
IMPORTERS = {"import_module", "__import__"}
BY_NAME = {"getattr", "attrgetter", "methodcaller"}


@dataclass
class Findings:
    """What reading a notebook's code has brought to light about the answer to one task.

    Parameters
    ----------
    calls : str
        What does the work in the student's stead, or empty.
    changes : str
        What some cell changes of that with which answers are checked, or empty.
    suspicious : list of str
        What a person should look at.
    """

    calls: str = ""
    changes: str = ""
    suspicious: list[str] = field(default_factory=list)


def scan(task: Task, answer: str, sources: Sequence[str]) -> Findings:
    """Read the code that stands above a check.

    Parameters
    ----------
    task : Task
    answer : str
        The expression that is checked: the name of the student's function.
    sources : sequence of str
        The student's code cells above the check.
    """
    notebook = _Notebook([tree for source in sources if (tree := _parse(source)) is not None])
    used = (notebook.forbidden(task, *found) for found in notebook.reached(ast.parse(answer)))
    return Findings(next(filter(None, used), ""), notebook.changes(), notebook.suspicious())


def _parse(source: str) -> ast.Module | None:
    try:
        tree = ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # such a cell does not run either
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                ends = (at for at, part in enumerate(block, 1) if isinstance(part, ast.Return | ast.Raise))
                del block[next(ends, len(block)) :]
    return tree


class _Notebook:
    """What names mean at the end of some cells."""

    def __init__(self, trees: Sequence[ast.Module]) -> None:
        self.trees = trees
        self.star = ""  # from where any other name may come
        self.imported: dict[str, str] = {}  # names to what they were imported as, the last one counts
        self.defined: dict[str, list[ast.AST]] = {}
        for tree in trees:
            for node in _outside_functions(tree):
                self._bind(node)

    def _bind(self, node: ast.AST) -> None:
        for name, origin in _imports(node):
            if name == "*":
                self.star = origin.removesuffix(".*")
            self.imported[name] = origin
            self.defined.pop(name, None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            self.defined[node.name] = [node]
            self.imported.pop(node.name, None)
        elif isinstance(node, BINDING):
            for name in _stored(ast.walk(node)):
                # Under a condition, or piece by piece: either may be it.
                self.defined.setdefault(name, []).append(node)
                self.imported.pop(name, None)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute | ast.Call):
            # A shorter name for something that has a path already.
            for name, path in ((name, self.path(node.value)) for name in _stored(node.targets)):
                if path:
                    self.imported[name] = path

    def reached(self, root: ast.AST) -> Iterator[tuple[ast.AST, frozenset[str]]]:
        """The nodes of an expression and of all definitions that it needs, each with its local names."""
        seen: set[int] = set()
        todo: list[ast.AST] = [root]
        while todo:
            node = todo.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            data = set()
            if isinstance(node, ast.Assign | ast.AnnAssign):
                # What a function gave, once, is a value and no function.
                data = {id(part.func) for part in _outside_functions(node) if isinstance(part, ast.Call)}
            for part, local in _with_scope(node, frozenset()):
                if isinstance(part, ast.Name):
                    if part.id in local:
                        continue
                    todo += self.defined.get(part.id, [])
                if isinstance(part, ast.Call) and self.path(part.func) in ("eval", "exec", "compile"):
                    todo += filter(None, map(_parse, _words(part)))
                # A class makes things that can be called.
                if id(part) not in data or _last(self.path(part))[:1].isupper():
                    yield part, local

    def path(self, node: ast.AST, local: frozenset[str] = frozenset()) -> str:
        """What an expression names, as a dotted path from where it was imported: torch.softmax."""
        if isinstance(node, ast.Attribute):
            return f"{self.path(node.value, local)}.{node.attr}"
        if isinstance(node, ast.Name):
            if node.id in local or (node.id in self.defined and node.id not in self.imported):
                return node.id
            unknown = f"{self.star}.{node.id}" if self.star and not hasattr(builtins, node.id) else node.id
            return self.imported.get(node.id, unknown)
        if isinstance(node, ast.Call) and (words := _words(node)):
            name = _last(self.path(node.func, local))
            if name in IMPORTERS:
                return words[0]
            if name in BY_NAME:
                return f"{self.path(node.args[0], local) if name == 'getattr' else ''}.{words[-1]}"
        return ""

    def forbidden(self, task: Task, node: ast.AST, local: frozenset[str]) -> str:
        """What a node in the answer's code names that does what the answer should do, or empty."""
        modules = set(MODULES) - set(task.allows)
        unwanted = {_bare(name) for name in (*FUSED, *task.refuses, *modules)}
        paths = [origin for _, origin in _imports(node)] or [self.path(node, local)]
        for path in filter(None, paths):
            parts = path.split(".")
            if parts[:2] == ["attncourse", "checks"] or BACKSTAGE & {path, *parts}:
                return path
            # A module of ours is not yet what it holds.
            ours = parts[0] == "attncourse" and len(parts) > 1 and parts[-1] not in _units()
            if ours and not set(task.allows) & set(parts):
                return f"attncourse's own {parts[-1]}"
            own = isinstance(node, ast.Name) and len(parts) == 1
            if _bare(parts[-1]) in unwanted and not own and parts[0] != "self":
                return parts[-1]
        return ""

    def changes(self) -> str:
        """What of ours some cell replaces, or empty."""
        for node in self._all():
            targets: list[ast.expr] = []
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                targets = [node.value]
            elif isinstance(node, ast.Call) and _last(self.path(node.func)) in SETTERS:
                targets = node.args[:1]
            for path in map(self.path, targets):
                if path.split(".")[0] == "attncourse" or path.startswith("torch.overrides"):
                    return path
        return ""

    def suspicious(self) -> list[str]:
        """What in any of the cells could do something that is not seen here."""
        found = []
        for node in self._all():
            paths = [origin for _, origin in _imports(node)] or [self.path(node)]
            for path in filter(None, paths):
                parts = path.split(".")
                unseen = isinstance(node, ast.Name) and path in UNSEEN_BUILTINS - self.defined.keys()
                inside = parts[:2] == ["attncourse", "checks"] and (
                    {"judge", "probe", "task", "wire", *_units()} & set(parts[2:3]) or "reference" in parts
                )
                if unseen or inside or parts[0] in UNSEEN_MODULES or BACKSTAGE & {path, parts[-1], parts[0]}:
                    found.append(f"the code uses {path.lstrip('.')}")
        return list(dict.fromkeys(found))

    def _all(self) -> Iterator[ast.AST]:
        return (node for tree in self.trees for node in ast.walk(tree))


SETTERS = {"setattr", "delattr", "__setattr__", "__delattr__"}


@cache
def _units() -> set[str]:
    return {task.unit for task in tasks()}


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _words(call: ast.Call) -> list[str]:
    """The texts that stand among the arguments of a call."""
    return [
        part.value for part in call.args if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def _bare(name: str) -> str:
    return name.strip("_").lower()


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, with what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _stored(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]


BINDING = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.AugAssign, ast.For, ast.With)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes in the order of the source, but not what stands inside of functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (*FUNCTIONS, ast.ClassDef)):
            yield from _outside_functions(child)


def _with_scope(node: ast.AST, local: frozenset[str]) -> Iterator[tuple[ast.AST, frozenset[str]]]:
    """All nodes below, each with the names that are local where it stands."""
    if isinstance(node, FUNCTIONS):
        own = {part.arg for part in ast.walk(node.args) if isinstance(part, ast.arg)}
        own.update(_stored(_outside_functions(node)))
        for part in _outside_functions(node):
            if isinstance(part, ast.FunctionDef | ast.ClassDef):
                own.add(part.name)
        for part in ast.walk(node):
            if isinstance(part, ast.Global):
                own -= set(part.names)
        local = local | own
    yield node, local
    for child in ast.iter_child_nodes(node):
        yield from _with_scope(child, local)
