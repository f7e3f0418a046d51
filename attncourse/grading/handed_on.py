"""Where a notebook hands a function on that it may not use: what gets it may keep it for an answer.

Whatever an answer calls by name can be followed. What is an argument, an operand or the result of something
cannot: so a person is told of every function that a task forbids, and of everything that is made of one,
where it is neither called at once nor kept under a name.
"""

import ast
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

from attncourse.grading.scopes import COMPREHENSIONS, Cell, Scope, last_name

# What gives back something that is kept in a list or a dictionary.
_TAKING = {"pop", "popleft", "popitem", "get", "setdefault", "values", "items", "copy", "__getitem__"}
# As these attributes a function or a layer can be called, too.
_CALLING = {"forward", "apply", "__call__", "__func__", "__wrapped__", "_call_impl"}
# Of what these decorators of Python's and PyTorch's make of a function the name is still its name.
_DECORATORS = {
    *("property", "staticmethod", "classmethod", "cache", "lru_cache", "cached_property", "wraps"),
    *("no_grad", "inference_mode", "dataclass", "contextmanager", "abstractmethod", "override"),
}
# These functions of Python's keep nothing of what they are asked about, and give nothing of it back.
_ASKED = {"super", "isinstance", "hasattr", "setattr", "len", "print", "repr", "str", "id", "float", "int"}
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
_MOST_ROUNDS = 6  # in which something goes from one name to the next, against the order of the cells
# Through these a value goes on unchanged, or as a part of something.
_PASSING = (
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.Starred, ast.BoolOp, ast.Await),
    *COMPREHENSIONS,
)
# Here it only is shown, or told from others.
_ENDING = (ast.Expr, ast.JoinedStr, ast.FormattedValue, ast.Assert, ast.If, ast.While)


@functools.lru_cache(maxsize=500)
def _above(cell: Cell) -> dict[ast.AST, ast.AST]:
    """For each node of a cell the one that it is part of."""
    return {part: node for node in cell.nodes for part in ast.iter_child_nodes(node)}


def handed_on(
    cells: Sequence[tuple[str, Cell]], forbidden: Callable[[Cell, ast.AST], str]
) -> Iterator[tuple[str, ast.AST, str]]:
    """What is handed on in cells: the cell's name, the node, and the forbidden name that it is made of.

    Parameters
    ----------
    cells : sequence of (str, Cell)
    forbidden : callable
        Gives what a name or an attribute forbids, by the cell and the node; or nothing.
    """
    there = [
        (place, cell, node, name)
        for place, cell in cells
        for node in cell.nodes
        if isinstance(node, ast.Name | ast.Attribute) and (name := forbidden(cell, node))
    ]
    if not there:
        return
    carried = _Carried([cell for _, cell in cells])
    for _, cell, part, name in there:
        carried.add(cell, part, name)
    for _ in range(_MOST_ROUNDS):
        known = len(carried.by)
        found: dict[int, tuple[str, ast.AST, str]] = {}
        for place, cell in cells:
            for node in cell.nodes:
                name = carried.name_of(cell, node)
                if not name or not carried.goes_astray(cell, node, name):
                    name = carried.lets_itself_out(cell, node)
                if name:
                    found[id(node)] = place, node, name
        if len(carried.by) == known:  # nothing is new
            break
    else:  # from name to name without end
        found |= {id(node): (place, node, name) for place, _, node, name in there}
    yield from found.values()


class _Carried:
    """What names, attributes and functions are made of something forbidden, and its name.

    Parameters
    ----------
    cells : sequence of Cell
    """

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.by: dict[tuple[Scope | None, str] | ast.AST, str] = {}
        self.classes: set[tuple[Scope | None, str]] = set()
        self.in_classes = ""  # of what is forbidden in them, the first name
        scopes = {scope for cell in cells for scope in cell.scopes.values()}
        # What the notebook itself gives a meaning, or imports under another name.
        self.own = {name for scope in scopes for name in scope.bound}
        self.own |= {
            name
            for scope in scopes
            for name, origins in scope.imports.items()
            if any(origin.rpartition(".")[2] != name for origin in origins)
        }
        self.selves = {
            _key(cell, first, first.arg)
            for cell in cells
            for method in cell.nodes
            if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            and cell.scopes[method].kind is ast.ClassDef
            for first in _first_of(method.args)
        }

    def add(self, cell: Cell, node: ast.AST, name: str) -> None:
        """Note that a node stands for something forbidden, and what functions and classes it stands in."""
        self.by.setdefault(node, name)
        whole: ast.AST | None = node
        while (whole := _above(cell).get(whole)) is not None:  # type: ignore[arg-type]
            if whole in self.by:  # and so is what it stands in
                break
            if isinstance(whole, ast.Lambda | _Definition):
                self.by[whole] = name
            if isinstance(whole, _Definition):
                self._keep(cell, whole, whole.name, name)
            if isinstance(whole, ast.ClassDef):
                key = _key(cell, whole, whole.name)
                self.classes.add(key)
                self.in_classes = min(self.in_classes or self.by[key], self.by[key])

    def name_of(self, cell: Cell, node: ast.AST) -> str:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found = self.by.get(node) or self.by.get(_key(cell, node, node.id), "")
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found = self.by.get(node) or self.by.get((None, f".{node.attr}"), "")
        else:
            return self.by.get(node, "")
        if found and node not in self.by:
            self.add(cell, node, found)
        return found

    def _keep(self, cell: Cell, node: ast.AST, target: str, name: str) -> None:
        self.by.setdefault(_key(cell, node, target), name)

    def _keep_in(self, cell: Cell, targets: Sequence[ast.AST], name: str) -> bool:
        """Note what is assigned; whether it is so to something else than a name or an attribute."""
        other = False
        for part in itertools.chain.from_iterable(map(ast.walk, targets)):
            stored = isinstance(getattr(part, "ctx", None), ast.Store)
            if isinstance(part, ast.Name) and stored:
                self._keep(cell, part, part.id, name)
            elif isinstance(part, ast.Attribute) and stored:
                self.by.setdefault((None, f".{part.attr}"), name)
                # What else it is an attribute of may have other names, by which it is called.
                other |= not self._is_self(cell, part.value)
            elif isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
                self._keep(cell, part, part.name, name)
            other |= isinstance(part, ast.Subscript) and stored
        return other

    def _is_self(self, cell: Cell, node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and _key(cell, node, node.id) in self.selves

    def _is_pythons(self, cell: Cell, function: ast.AST) -> bool:
        """Whether the name with which this begins has its meaning from Python or by an import."""
        root = cell.roots.get(function, function)
        return isinstance(root, ast.Name) and root.id not in self.own

    def _keeps_the_name(self, cell: Cell, decorator: ast.AST) -> bool:
        function = getattr(decorator, "func", decorator)
        return last_name(function) in _DECORATORS and self._is_pythons(cell, function)

    def _only_asks(self, cell: Cell, call: ast.Call) -> bool:
        return getattr(call.func, "id", "") in _ASKED and self._is_pythons(cell, call.func)

    def lets_itself_out(self, cell: Cell, node: ast.AST) -> str:
        """What is forbidden in a class of the notebook, if an object hands itself on from within a method.

        Any class may be what another one is made from.
        """
        if not self.classes or not isinstance(node, ast.Name) or not self._is_self(cell, node):
            return ""
        above = _above(cell)
        part: ast.AST = node
        while isinstance(whole := above[part], ast.Subscript) or getattr(whole, "attr", "") == "__class__":
            part = whole
        if isinstance(whole, ast.Call) and part is not whole.func:
            stays = self._only_asks(cell, whole) or last_name(whole.func) == "__init__"
            stays = stays and self._is_pythons(cell, whole.func)
        elif isinstance(whole, ast.Compare):
            stays = _is_by_identity(whole)
        else:
            stays = isinstance(whole, (ast.Attribute, ast.Call, *_ENDING))
        return "" if stays else self.in_classes

    def goes_astray(self, cell: Cell, node: ast.AST, name: str) -> bool:
        """Whether something forbidden goes where nobody can follow it; where it is kept is noted."""
        if isinstance(node, _Definition):
            known = all(self._keeps_the_name(cell, one) for one in node.decorator_list)
            return not known or bool(getattr(node, "keywords", ()))
        above = _above(cell)
        part: ast.AST = node
        while (whole := above.get(part)) is not None:
            if isinstance(whole, ast.Call):
                if part is not whole.func:
                    return not self._only_asks(cell, whole)
                makes = last_name(part) == name and not name.islower()  # one of PyTorch's layers
                makes |= isinstance(part, ast.Name) and _key(cell, part, part.id) in self.classes
                takes = isinstance(part, ast.Attribute) and part.attr in _TAKING and part is not node
                if not makes and not takes:
                    return False
            elif isinstance(whole, ast.Attribute):
                # Else it is a value, or is looked at itself.
                if whole.attr not in _TAKING | _CALLING or self.name_of(cell, whole):
                    return False
            elif isinstance(whole, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                targets = whole.targets if isinstance(whole, ast.Assign) else [whole.target]
                is_type = part is getattr(whole, "annotation", None)  # which Python keeps, too
                if is_type or self._keep_in(cell, targets, name):
                    return True
                if not isinstance(whole, ast.NamedExpr):
                    return False
            elif isinstance(whole, ast.For | ast.AsyncFor | ast.comprehension):
                return part is whole.iter and self._keep_in(cell, [whole.target], name)
            elif isinstance(whole, ast.withitem):
                targets = [whole.optional_vars] if whole.optional_vars else []
                return self._keep_in(cell, targets, name)
            elif isinstance(whole, ast.Match):
                return self._keep_in(cell, [case.pattern for case in whole.cases], name)
            elif isinstance(whole, ast.IfExp):
                if part is whole.test:
                    return False
            elif isinstance(whole, ast.Subscript):
                if part is not whole.value:
                    return True
            elif isinstance(whole, ast.Compare):
                return not _is_by_identity(whole)
            elif isinstance(whole, ast.ClassDef):
                return part in whole.decorator_list
            elif isinstance(whole, (*_ENDING, ast.Lambda)):
                return False
            elif not isinstance(whole, _PASSING):
                return True
            part = whole
        return False


def _first_of(arguments: ast.arguments) -> list[ast.arg]:
    """What a method calls the object that it is of."""
    return [*arguments.posonlyargs, *arguments.args, *filter(None, [arguments.vararg])][:1]


def _is_by_identity(comparison: ast.Compare) -> bool:
    """Whether nothing is called that could keep what is compared."""
    return all(isinstance(op, ast.Is | ast.IsNot) for op in comparison.ops)


def _key(cell: Cell, node: ast.AST, name: str) -> tuple[Scope | None, str]:
    """A name of the whole notebook, or one of a scope within it."""
    owner = cell.scopes[node].owner(name)
    if owner.kind is ast.ClassDef:
        return None, f".{name}"
    return (None if owner is cell.top else owner), name


def forget() -> None:
    """Forget what was read: the next notebook has other cells."""
    _above.cache_clear()
