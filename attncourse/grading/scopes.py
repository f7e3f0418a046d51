"""What the names in a student's code stand for, by Python's rules of scopes."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
WITH_SCOPES = (*FUNCTIONS, ast.ClassDef, *COMPREHENSIONS)


@dataclass(eq=False)
class Scope:
    """The names that one function, class, comprehension or cell gives a meaning.

    Parameters
    ----------
    above : Scope, optional
        None for a cell.
    kind : type, optional
        Of the node whose scope it is.
    imports : dict of str to set of str
        What each name that an import gives may stand for, as ``torch.nn.functional.softmax``. Under ``*``
        the modules all of whose names are imported, as ``torch.*``.
    bound : Counter of str
        How often a name is given a meaning by anything else, or loses it.
    declared : dict of str to type
        Names that are said to be of a scope further out: `ast.Global` or `ast.Nonlocal`.
    """

    above: Scope | None = None
    kind: type | None = None
    imports: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    bound: Counter[str] = field(default_factory=Counter)
    declared: dict[str, type] = field(default_factory=dict)

    def owner(self, name: str) -> Scope:
        """The scope in which a name that stands in this one has its meaning: the cell's if in no other."""
        scope = self
        while scope.above is not None:
            if scope.declared.get(name) is ast.Global:
                return scope._cell()
            # What a class defines is not there in its functions.
            seen = scope is self or scope.kind is not ast.ClassDef
            if seen and name not in scope.declared and (name in scope.imports or name in scope.bound):
                return scope
            scope = scope.above
        return scope

    def _cell(self) -> Scope:
        scope = self
        while scope.above is not None:
            scope = scope.above
        return scope


@dataclass(eq=False)
class Cell:
    """The nodes of a cell's tree, each with the scope in which it stands.

    Attributes
    ----------
    nodes : list of ast.AST
        Each node behind the one that it is part of.
    scopes : dict of ast.AST to Scope
    roots : dict of ast.AST to ast.Name
        Of attributes of attributes, as ``torch.nn.functional``, the name with which they begin.
    top : Scope
    """

    tree: ast.Module
    nodes: list[ast.AST] = field(init=False)
    scopes: dict[ast.AST, Scope] = field(default_factory=dict, init=False)
    roots: dict[ast.AST, ast.Name] = field(default_factory=dict, init=False)
    top: Scope = field(default_factory=Scope, init=False)

    def __post_init__(self) -> None:
        self.nodes = list(ast.walk(self.tree))
        given: list[tuple[Scope, str, str]] = []
        outside: set[ast.AST] = set()
        waiting: list[tuple[ast.AST, Scope]] = [(self.tree, self.top)]
        while waiting:
            node, scope = waiting.pop()
            self.scopes[node] = scope
            if isinstance(node, ast.Global | ast.Nonlocal):
                scope.declared |= dict.fromkeys(node.names, type(node))
            given += [(scope, name, origin) for name, origin in imports(node)]
            given += [(scope, name, "") for name in _bound(node)]
            outside.update(_outside(node))
            inner = Scope(scope, type(node)) if isinstance(node, WITH_SCOPES) else scope
            for part in ast.iter_child_nodes(node):
                around = _around(inner) if isinstance(node, ast.NamedExpr) and part is node.target else inner
                waiting.append((part, inner.above if part in outside and inner.above else around))
        # Last those of scopes further out, whose own names are known by then.
        for scope, name, origin in sorted(given, key=lambda one: one[1] in one[0].declared):
            if scope.declared.get(name) is ast.Nonlocal and scope.above is not None:
                scope = scope.above.owner(name)
            elif name in scope.declared:
                scope = self.top
            if origin:
                scope.imports[name].add(origin)
            else:
                scope.bound[name] += 1
        for node in reversed(self.nodes):
            if isinstance(node, ast.Attribute):
                root = node.value if isinstance(node.value, ast.Name) else self.roots.get(node.value)
                if root is not None:
                    self.roots[node] = root


def _outside(node: ast.AST) -> Iterator[ast.AST]:
    """Of a node that has a scope, the parts that are computed in the one above."""
    yield from getattr(node, "decorator_list", ())
    if isinstance(node, ast.ClassDef):
        yield from (*node.bases, *node.keywords)
    elif isinstance(node, COMPREHENSIONS):
        yield node.generators[0].iter
    elif isinstance(node, FUNCTIONS):
        yield from filter(None, (*node.args.defaults, *node.args.kw_defaults, getattr(node, "returns", None)))
        yield from (
            part.annotation for part in ast.walk(node.args) if isinstance(part, ast.arg) and part.annotation
        )


def _around(scope: Scope) -> Scope:
    """The scope that keeps what ``:=`` binds: of a comprehension the one around it."""
    while scope.kind in COMPREHENSIONS and scope.above is not None:
        scope = scope.above
    return scope


def last_name(node: ast.AST) -> str:
    """The last of the names in an expression such as ``a.b``, or nothing if it ends otherwise."""
    return getattr(node, "attr", getattr(node, "id", ""))


def imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, with what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _bound(node: ast.AST) -> Iterator[str]:
    """The names that a node gives a meaning or takes it from, imports left out."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.MatchMapping):
        yield node.rest or ""
    elif isinstance(
        node,
        ast.FunctionDef
        | ast.AsyncFunctionDef
        | ast.ClassDef
        | ast.ExceptHandler
        | ast.MatchAs
        | ast.MatchStar,
    ):
        yield node.name or ""
