"""Reads what a student wrote, without running it, for what a task forbids.

While an answer runs in an honest student's process, the refusals of ``attncourse.probe`` stop such calls.
Code that gets around them is found by reading, or by a person who is told where to read.
"""

import ast
import functools
import itertools
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from attncourse.checks import Task
from attncourse.grading import commands, handed_on, ordinary
from attncourse.grading.commands import plain_python
from attncourse.grading.scopes import Cell, Scope, imports, last_name
from attncourse.probe.refusing import FUSED

# PyTorch's layers that end in the fused functions.
LAYERS = (
    *("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "flex_attention"),
    *("TransformerEncoder", "TransformerDecoder", "Transformer"),
)
# By these the refusals are switched off, the process of the grading is looked into, or anything is done
# unseen, beside what `ordinary` does not list. Some honest cell may have them: a person decides.
SUSPICIOUS = {
    *("disabletorchfunction", "disabletorchfunctionsubclass", "torchfunctionmode", "pop_mode"),
    *("pop_mode_temporarily", "pop_torch_function_stack", "probe", "raw_input", "globals"),
    *("disable_current_modes", "compilationunit", "cell_contents", "runcode"),
    *("run_cell", "run_cell_async", "run_code", "safe_execfile", "extension_manager"),
    *("get_objects", "get_referrers", "get_referents", "make_wrapper_subclass", "as_subclass"),
}
# In such names, too, stand the modes that refuse, and what PyTorch calls in their stead.
MODES = ("function_mode", "dispatch_mode", "__torch_function__", "__torch_dispatch__")
ASKING = ordinary.ASKING | {"delattr", "__getattribute__", "__dict__", "vars"}
# By these arguments, with these values, a file can bring code.
LOADING = {"allow_pickle": True, "weights_only": False}
# What these call is not refused.
CALLING = {"apply_", "map_", "map2_", "custom_op", "triton_op", "library"}
BUILTINS = {"exec", "eval", "compile", "globals", "__import__", "__builtins__"}
# Where a task forbids to look into something, what Python itself gives for that.
LOOKS = {"vars"}


class Remark(NamedTuple):
    """What a person should look at: the name of the cell, what it is, and what of a notebook is told once."""

    place: str
    words: str
    kind: str


@dataclass
class Findings:
    """What reading has brought to light about the answer to one task.

    Parameters
    ----------
    calls : str
        What certainly does the work in the student's stead, and where; or empty.
    remarks : list of Remark
        What a person should look at.
    names : set of str
        Those of the whole notebook's that stand in the answer's code, and in what that calls.
    """

    calls: str = ""
    remarks: list[Remark] = field(default_factory=list)
    names: set[str] = field(default_factory=set)


def scan(
    task: Task,
    answer: str,
    cells: Sequence[tuple[str, str]],
    locked: Sequence[str] = (),
    beside: Collection[str] = (),
) -> Findings:
    """Read the code that stands above a check.

    Parameters
    ----------
    task : Task
    answer : str
        The expression that is checked: the name of the student's function.
    cells : sequence of (str, str)
        The names and sources of the student's code cells above the check.
    locked : sequence of str
        The sources of the code cells that are not the student's.
    beside : collection of str
        The names of modules that were handed in beside the notebook.
    """
    found = Findings()
    refused = {_plain(name) for name in (*FUSED, *task.refuses) if name not in task.allows}
    # PyTorch's layers are called as its functions are, but for the signs between the words.
    forbidden = refused | {_plain(name) for name in LAYERS if name not in task.allows}
    of_torch = {name.replace("_", "") for name in forbidden}
    ends = itertools.accumulate(len(source) for _, source in cells)
    fitting = sum(end <= MOST_CHARACTERS_OF_ALL for end in ends)
    for place, _ in cells[fitting : fitting + 1]:
        words = f"with it the notebook's own cells have more than {MOST_CHARACTERS_OF_ALL:,} characters"
        found.remarks.append(Remark(place, f"{words}: it was not read, and nothing below it", "all"))
    cells = cells[:fitting]
    whole: dict[str, set[str]] = {}
    read = list(_with_few_meanings(((place, _parse(source)) for place, source in cells), whole))
    own = [(place, cell) for place, cell in read if isinstance(cell, Cell)]
    read += _with_few_meanings(((place, text) for place, cell in own for text in _inside(cell)), whole)
    inside = [(place, cell) for place, cell in read[len(cells) :] if isinstance(cell, Cell)]
    unread = dict.fromkeys((place, words) for place, words in read if isinstance(words, str))
    found.remarks += [Remark(place, words, words) for place, words in unread]
    for place, source in cells:
        if not is_too_much(source) and _runs_a_file(source):
            found.remarks.append(Remark(place, "the code runs a file, which was not read", "file"))
    notebook = _Notebook([cell for cell in map(_parse, locked) if isinstance(cell, Cell)], own, inside)
    found.calls = notebook.certain_call(answer, refused)
    found.names = {
        node.id
        for _, cell, node in notebook.reached(answer)
        if isinstance(node, ast.Name) and cell.scopes[node].owner(node.id) is cell.top
    }
    by_name = any(_asks_by_name(node) for _, _, node in notebook.reached(answer))
    # Of the whole notebook what is suspicious, of what the answer reaches what its task forbids.
    seen = itertools.chain(
        ((place, cell, node, SUSPICIOUS) for place, cell in (*own, *inside) for node in cell.nodes),
        ((*reached, forbidden) for reached in notebook.reached(answer)),
    )
    lines: dict[tuple[str, str], set[int]] = defaultdict(set)
    unusual: dict[str, tuple[set[str], set[int]]] = defaultdict(lambda: (set(), set()))
    own_names = frozenset(name for _, cell in (*own, *inside) for name in _names_given_by(cell))
    for place, cell in (*own, *inside):
        for node, name in ordinary.unusual(cell, own_names):
            if name.partition(".")[0] not in beside:  # of which a remark of its own tells
                unusual[place][0].add(name)
                unusual[place][1].add(getattr(node, "lineno", 1))
    for place, (names, numbers) in unusual.items():
        words = f"the code uses {_some(sorted(names))} ({_lines(numbers)} of its cell), which no answer needs"
        found.remarks.append(Remark(place, words, "unusual"))

    def forbids(cell: Cell, node: ast.AST) -> str:
        if not notebook.may_be_of(cell, node, of_torch):
            return ""
        for name in notebook.names(cell, node):
            last = name.rpartition(".")[2]
            of_pytorch = name.startswith("torch.") and last not in task.allows
            of_pytorch = of_pytorch and any(one in _plain(last).replace("_", "") for one in of_torch)
            ours = name.startswith("attncourse") or "." not in name
            if not ours and (of_pytorch or _plain(last) in forbidden):
                return last
        return ""

    for place, cell in (*own, *inside):
        for node in cell.nodes:
            for text in notebook.asked_for(cell, node):
                if _plain(text.rpartition(".")[2]) in forbidden:
                    lines[place, text].add(getattr(node, "lineno", 1))
    for place, node, name in handed_on.handed_on((*own, *inside), forbids):
        lines[place, f"{name}, and hands it on to where nobody can follow it"].add(getattr(node, "lineno", 1))
    for place, cell, node, unwanted in seen:
        for text in _texts(node) if unwanted is forbidden else ():
            # A word is often no more than that, where nothing is asked for by its name.
            if _plain(text.rpartition(".")[2]) in forbidden and (by_name or "." in text):
                lines[place, text].add(getattr(node, "lineno", 1))
        for name in notebook.names(cell, node):
            last = name.rpartition(".")[2]
            if unwanted is forbidden and name == f"attncourse.{last}":
                continue  # what the course itself gives is not there in grading, or allowed
            # By these PyTorch is called, which has some functions by more than one name.
            hidden = unwanted is forbidden and name.startswith("torch.") and last not in task.allows
            hidden = hidden and any(one in _plain(last).replace("_", "") for one in of_torch)
            hidden |= unwanted is SUSPICIOUS and any(mode in last for mode in MODES)
            hidden |= name.startswith("builtins.") and last in BUILTINS
            fused = unwanted is forbidden and "scaled_dot_product" in last
            # Probes of their own many notebooks have.
            own_probe = last == "probe" and "." in name and not name.startswith("attncourse.")
            hidden |= unwanted is forbidden and last in CALLING
            if unwanted is forbidden and name.partition(".")[0] in forbidden & ordinary.MODULES:
                hidden, last = True, name.partition(".")[0]
            hidden |= name.startswith("builtins.") and bool(ordinary.KEPT.fullmatch(last))
            hidden |= unwanted is SUSPICIOUS and last.startswith("register_module_")
            if hidden or fused or (_plain(last) in unwanted and not own_probe):
                lines[place, last].add(getattr(node, "lineno", 1))
        if isinstance(node, ast.keyword) and _loads_code(node):
            lines[place, str(node.arg)].add(node.lineno)
        for module in (*(origin.partition(".")[0] for _, origin in imports(node)), *_extensions(node)):
            words = f"the code imports {module}, which was handed in beside it and was not read"
            remark = Remark(place, words, "import")
            if module in beside and remark not in found.remarks:
                found.remarks.append(remark)
    for (place, last), numbers in lines.items():
        # Of names that somebody can have made up by the dozen, what they hold.
        kind = next((one for one in sorted(forbidden) if one in _plain(last)), _plain(last))
        words = f"the code uses {last} ({_lines(numbers)} of its cell)"
        found.remarks.append(Remark(place, words, f"use of {kind}"))
    return found


class _Notebook:
    """What the names in the cells above a check mean.

    Parameters
    ----------
    given : sequence of Cell
        Those that are not the student's.
    own : sequence of (str, Cell)
        The student's, each with its name.
    inside : sequence of (str, Cell)
        What stands as code in texts of the student's cells, with their names.
    """

    def __init__(
        self,
        given: Sequence[Cell],
        own: Sequence[tuple[str, Cell]],
        inside: Sequence[tuple[str, Cell]] = (),
    ) -> None:
        self.own, self.inside = own, inside
        self.imports: dict[str, set[str]] = defaultdict(set)
        self.bound: Counter[str] = Counter()
        for cell in (*given, *(cell for _, cell in (*own, *inside))):
            for name, origins in cell.top.imports.items():
                self.imports[name] |= origins
        for cell in (*given, *(cell for _, cell in own)):
            self.bound.update(cell.top.bound)
        modules = {origin.partition(".")[0] for origin in self.imports["*"]}
        # What Python's own modules give is nothing that a task forbids.
        self.starred = not modules <= sys.stdlib_module_names

    def meanings(self, cell: Cell, name: str, scope: Scope) -> tuple[set[str], int]:
        """What a name stands for by imports, and how often anything else gives it a meaning."""
        owner = scope.owner(name)
        if owner is cell.top:
            return self.imports.get(name, set()), self.bound[name]
        origins, bound = owner.imports.get(name, set()), owner.bound[name]
        if owner.kind is ast.ClassDef and owner.above is not None:
            # A class may take a name from further out and give it a meaning of its own then.
            origins = origins | self.meanings(cell, name, owner.above)[0]
        return origins, bound

    def names(self, cell: Cell, node: ast.AST) -> Iterator[str]:
        """The names that stand in a node itself, with where they come from as far as that is known."""
        if isinstance(node, ast.Import | ast.ImportFrom):
            whole = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            yield from (part for name in whole for part in name.split("."))
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            yield node.name
        elif isinstance(node, ast.Name):
            origins, bound = self.meanings(cell, node.id, cell.scopes[node])
            yield from origins
            if not origins and node.id in BUILTINS:  # `exec = exec` is no other one
                yield f"builtins.{node.id}"
            elif not origins and not bound:
                if node.id in LOOKS or ordinary.KEPT.fullmatch(node.id):
                    yield f"builtins.{node.id}"
                elif self.starred:
                    yield node.id
        elif isinstance(node, ast.Attribute):
            root = cell.roots.get(node)
            origins = (
                {""} if root is None else self.meanings(cell, root.id, cell.scopes[root])[0] or {root.id}
            )
            before = getattr(node.value, "attr", "")
            for origin in origins:
                # Of what stands between no more than the last: in a long line there are thousands.
                middle = before or origin.rpartition(".")[2]
                yield f"{origin.partition('.')[0]}.{middle}.{node.attr}"

    def asked_for(self, cell: Cell, node: ast.AST) -> list[str]:
        """The texts by which a node asks for something that has them as its name."""
        if not isinstance(node, ast.Call) or not node.args:
            return _texts(node) if isinstance(node, ast.MatchClass) else []
        texts = [text for part in node.args for text in _texts(part)]
        names = {last_name(node.func), *(name.rpartition(".")[2] for name in self.names(cell, node.func))}
        return texts if texts and not ASKING.isdisjoint(names) else []

    def may_be_of(self, cell: Cell, node: ast.AST, wanted: Collection[str]) -> bool:
        """Whether a name could be one of the wanted, or be imported: a quick look, for most are not."""
        if isinstance(node, ast.Name):
            if self.starred or cell.scopes[node].owner(node.id).imports.get(node.id):
                return True
            return node.id in self.imports
        last = getattr(node, "attr", "").lower().replace("_", "")
        return any(one in last for one in wanted)

    @functools.cached_property
    def _replaced(self) -> set[str]:
        """The names of which something may be put in the place of PyTorch's, with any other texts."""
        nodes = [node for _, cell in self.own for node in cell.nodes]
        texts = {text for node in nodes if isinstance(node, ast.Constant) for text in _texts(node)}
        return texts | {
            node.attr
            for node in nodes
            if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)
        }

    @functools.cached_property
    def defined(self) -> Mapping[str | tuple[Scope, str], Sequence[tuple[str, Cell, ast.AST]]]:
        """By the names that are the whole notebook's, what gives them code, each with its cell.

        By a scope and a name, what gives it code within. By a dot and a name also what gives something an
        attribute of that name, whatever it is.
        """
        defined: dict[str | tuple[Scope, str], list[tuple[str, Cell, ast.AST]]] = defaultdict(list)
        for place, cell in (*self.own, *self.inside):
            in_a_chain: set[ast.AST] = set()
            for node in cell.nodes:  # each call behind those that are made on what it gives
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    in_a_chain.add(node.func.value)
                for name in _given_by(node) if node not in in_a_chain else ():
                    owner = cell.scopes[node].owner(name)
                    if owner is not cell.top:
                        defined[owner, name].append((place, cell, node))
                    elif self.bound[name] or name not in self.imports:
                        defined[name].append((place, cell, node))
                    if owner.kind is ast.ClassDef:
                        defined[f".{name}"].append((place, cell, node))
                for name in _attributes_given_by(node):
                    defined[f".{name}"].append((place, cell, node))
            for statement in cell.tree.body:
                for name in _given_by_text(statement):
                    defined[name].append((place, cell, statement))
        return defined

    def reached(self, answer: str) -> Iterator[tuple[str, Cell, ast.AST]]:
        """What gives the answer its code, and what it calls by name: each node once."""
        names: list[str | tuple[Scope, str]] = [answer]
        known, seen = {*names}, set()
        for name in names:  # which grows
            for place, cell, given in self.defined.get(name, ()):
                left = [given]
                while left:
                    node = left.pop()
                    if id(node) in seen:
                        continue
                    seen.add(id(node))
                    left += ast.iter_child_nodes(node)
                    yield place, cell, node
                    more: list[str | tuple[Scope, str]] = [f".{text}" for text in _texts(node)]
                    if isinstance(node, ast.Attribute):
                        more.append(f".{node.attr}")
                    if isinstance(node, ast.Name):
                        owner = cell.scopes[node].owner(node.id)
                        more.append(node.id if owner is cell.top else (owner, node.id))
                    names += [name for name in more if name not in known]
                    known.update(more)

    def certain_call(self, answer: str, refused: Collection[str]) -> str:
        """The refused function that the answer certainly calls, and where; or empty."""
        # Whatever is imported with a star may have any name.
        if self.starred or self.bound[answer] != 1 or len(self.defined.get(answer, ())) != 1:
            return ""
        ((_, cell, definition),) = self.defined[answer]
        if definition not in cell.tree.body:
            return ""
        for call in _certain(definition):
            root = cell.roots.get(call.func, call.func)
            if not isinstance(root, ast.Name):
                continue
            origins, bound = self.meanings(cell, root.id, cell.scopes[root])
            (origin, *others) = origins or {root.id}
            last = call.func.attr if isinstance(call.func, ast.Attribute) else origin.rpartition(".")[2]
            # A class of that name is only made here: whether it is called nobody can be certain.
            if others or bound or origin.partition(".")[0] != "torch" or not last.islower():
                continue
            if _plain(last) in refused and last not in self._replaced:
                return f"{last} (line {call.lineno} of its cell)"
        return ""


def _lines(numbers: Collection[int]) -> str:
    """Line numbers in words."""
    return f"line{'s' if len(numbers) > 1 else ''} {_some(sorted(numbers))}"


def _some(things: Sequence[object]) -> str:
    """The first of many, and how many more there are."""
    shown = ", ".join(map(str, things[:MOST_NAMED]))
    return f"{shown} and {len(things) - MOST_NAMED} more" if len(things) > MOST_NAMED else shown


def _plain(name: str) -> str:
    return name.strip("_").lower()


SETTING = {"setattr", "setitem", "__setitem__", "push", "update"}
# Beside these a text may be the name of something that is set.
BY_NAME = SETTING | {"vars", "globals", "locals", "user_ns"}
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Something that gives a name a meaning, or calls something, at a glance.
_MEANING = re.compile(r"[=(]|\b(def|class|import|for|with)\b")
# Statements that do nothing at once, and expressions that need not do what stands in them.
PASSED = (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass, ast.Global, ast.Nonlocal)
MAYBE = (ast.IfExp, ast.BoolOp, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
# What may be a command of IPython's.
# No pattern goes beyond a line: from each of many empty ones it would go to the end of all.
_MAGICS = re.compile(r"^[^\S\n]*[%!?/,;]|\?[^\S\n]*$|=[^\S\n]*[%!]", re.MULTILINE)
MOST_CHARACTERS = 100_000
# Of all own cells: what Python makes of a character while it reads takes hundreds of bytes.
MOST_CHARACTERS_OF_ALL = 300_000
MOST_MEANINGS = 100  # of one name: wherever it stands, everything that it may stand for is looked at
MOST_NAMED = 10  # lines, or what else a remark names
# As IPython writes `%run`. A cell of one line may leave the sign out.
_RUN = re.compile(r"magic\(['\"]%?(run|alias_magic)\b")
_EXTENSIONS = ("load_ext", "reload_ext", "aimport")
_RUN_ALONE = re.compile(r"\s*run[^\S\n]+(?!(is|in|and|or|if|not)\b)['\w./~-][^\s=]")


@functools.lru_cache(maxsize=500)
def is_too_much(source: str) -> bool:
    """Whether a cell is not read, for that would take too long."""
    if len(source) > MOST_CHARACTERS:
        return True
    # IPython's lines end at more signs than a pattern's.
    magics = sum(map(len, map(_MAGICS.findall, source.splitlines())))
    return (
        magics > commands.MOST_MAGICS
        or magics * len(source) > commands.MOST_MAGICS_TIMES_CHARACTERS
        or commands.takes_too_long(source)
    )


@functools.lru_cache(maxsize=500)
def _runs_a_file(source: str) -> bool:
    lines = plain_python(source).strip().splitlines()
    return any("magic(" in line and ("%run" in line or _RUN.search(line)) for line in lines) or (
        len(lines) == 1 and bool(_RUN_ALONE.match(lines[0]))
    )


def _loads_code(argument: ast.keyword) -> bool:
    """Whether what is called may find code in a file; what is no constant may have any value."""
    wanted = LOADING.get(argument.arg or "")
    value = getattr(argument.value, "value", None)
    return wanted is not None and (value is None or value == wanted)


def _extensions(node: ast.AST) -> Iterator[str]:
    """The modules that a call of IPython's magics loads."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "run_line_magic":
        name, *words = [getattr(part, "value", "") for part in node.args]
        if name in _EXTENSIONS and words and isinstance(words[0], str):
            yield from (word.partition(".")[0].strip(",") for word in words[0].split())


@functools.lru_cache(maxsize=500)
def _inside(cell: Cell) -> list[Cell]:
    """What stands in a cell's texts as code that gives names a meaning: something else may run it."""
    found = []
    for node in cell.nodes:
        text = plain_python(commands.code_of(node)) if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _MEANING.search(node.value):
            text = node.value
        if text and isinstance(node, ast.expr):
            try:
                tree = ast.parse(text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue
            inside = Cell(ast.increment_lineno(tree, node.lineno - 1))
            found += [inside, *_inside(inside)]
    return found


# The same cells stand above many checks.
@functools.lru_cache(maxsize=500)
def _parse(source: str) -> Cell | str | None:
    """What stands in a cell; else why it was not read, or None where it does not run either."""
    if is_too_much(source):
        return "is too long, or has too many commands of IPython's: it was not read"
    try:
        return Cell(ast.parse(plain_python(commands.with_sign(source))))
    except (RecursionError, MemoryError):  # this process has less left of Python's stack than a kernel
        return "is nested too deeply: it was not read"
    except Exception:  # a SyntaxError, and whatever IPython's own reading stumbles over
        return None


def _with_few_meanings(
    read: Iterable[tuple[str, Cell | str | None]], whole: dict[str, set[str]]
) -> Iterator[tuple[str, Cell | str | None]]:
    """The same cells; in place of one by which a name is imported from ever more modules, why it isn't read.

    `whole` has what the names of the whole notebook may stand for, and gets what these cells add.
    """
    for place, cell in read:
        if isinstance(cell, Cell):
            of_all = {name: whole.get(name, set()) | origins for name, origins in cell.top.imports.items()}
            within = (scope.imports for scope in set(cell.scopes.values()) - {cell.top})
            meanings = itertools.chain(of_all.values(), *(imported.values() for imported in within))
            if any(len(origins) > MOST_MEANINGS for origins in meanings):
                yield place, f"imports more than {MOST_MEANINGS} things by one name: it was not read"
                continue
            whole.update(of_all)
        yield place, cell


@functools.lru_cache(maxsize=500)
def _walk(tree: ast.AST) -> list[ast.AST]:
    return list(ast.walk(tree))


def forget() -> None:
    """Forget what was read: the next notebook has other cells."""
    ordinary.forget()
    commands.forget()
    handed_on.forget()
    for kept in (is_too_much, _runs_a_file, _parse, _inside, _walk, _names_given_by):
        kept.cache_clear()


def _certain(definition: ast.AST) -> list[ast.Call]:
    """The calls that are made whenever an answer is called: those before anything that may lead elsewhere."""
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return []
    if any(isinstance(node, ast.Yield | ast.YieldFrom) for node in _walk(definition)):
        return []
    return _straight(definition.body)[0]


def _straight(statements: Sequence[ast.stmt]) -> tuple[list[ast.Call], bool]:
    """The calls in statements up to the first that may lead elsewhere, and whether there was none."""
    calls: list[ast.Call] = []
    for statement in statements:
        if isinstance(statement, ast.With):
            calls += [call for item in statement.items for call in _made(item.context_expr)]
            inner, goes_on = _straight(statement.body)
            calls += inner
            if not goes_on:
                return calls, False
        elif isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr | ast.Return):
            calls += _made(statement.value)
        elif not isinstance(statement, PASSED):
            return calls, False
        if isinstance(statement, ast.Return):
            return calls, False
    return calls, True


def _made(node: ast.AST | None) -> Iterator[ast.Call]:
    """The calls that an expression makes whatever the numbers are."""
    if node is None or isinstance(node, MAYBE):
        return
    for part in ast.iter_child_nodes(node):
        yield from _made(part)
    if isinstance(node, ast.Call):
        yield node


def _given_by(node: ast.AST) -> list[str]:
    """The names to which a node gives code: by a definition, or as anything whatever."""
    targets = _targets(node)
    names = [node.name] if isinstance(node, DEFINITIONS) else []
    if isinstance(node, DEFINITIONS):
        targets += node.decorator_list  # which may keep it
    elif isinstance(node, ast.Match):
        patterns = (part for case in node.cases for part in ast.walk(case.pattern))
        names += [
            part.name for part in patterns if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name
        ]
    elif isinstance(node, ast.Call):
        # What is called may keep what it is given.
        if isinstance(node.func, ast.Attribute):
            targets += [node.func.value]
        if last_name(node.func) in SETTING:
            targets += node.args[:1]
    return names + [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]


@functools.lru_cache(maxsize=500)
def _names_given_by(cell: Cell) -> frozenset[str]:
    """All names that a cell gives a meaning, whatever they are the names of."""
    given: set[str] = set()
    for node in cell.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            given.add(last_name(node))
        elif isinstance(node, DEFINITIONS):
            given.add(node.name)
    return frozenset(given)


def _attributes_given_by(node: ast.AST) -> list[str]:
    """The names of the attributes that a node gives something."""
    parts = (part for target in _targets(node) for part in ast.walk(target))
    names = [part.attr for part in parts if isinstance(part, ast.Attribute)]
    if isinstance(node, ast.Call) and last_name(node.func) in SETTING:
        names += [text for part in node.args[1:2] for text in _texts(part)]
    return names


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [*node.targets]
    if isinstance(
        node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign | ast.For | ast.AsyncFor | ast.comprehension
    ):
        return [node.target]
    if isinstance(node, ast.With | ast.AsyncWith):
        return [item.optional_vars for item in node.items if item.optional_vars is not None]
    return []


def _asks_by_name(node: ast.AST) -> bool:
    return isinstance(node, ast.MatchClass) or last_name(node) in ASKING


def _texts(node: ast.AST) -> list[str]:
    """What stands in a node as a text, and may be the name by which something is asked for."""
    if isinstance(node, ast.MatchClass):
        return node.kwd_attrs
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def _given_by_text(statement: ast.stmt) -> set[str]:
    """The names that stand as texts in a statement that gives something a meaning by its name."""
    parts = list(ast.walk(statement))
    words = {last_name(part) for part in parts}
    if words.isdisjoint(BY_NAME):
        return set()
    texts = {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}
    texts |= {part.arg for part in parts if isinstance(part, ast.keyword) and part.arg}
    return {text for text in texts if text.isidentifier()}
