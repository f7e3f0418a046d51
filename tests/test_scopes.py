"""Scopes of names are those that Python itself finds."""

import ast
import symtable
from pathlib import Path

import pytest

from attncourse.grading.scopes import Cell

ROOT = Path(__file__).parents[1]

ODD = """
import torch as t
from os import path
softmax = [softmax := 1 for name in (softmax for softmax in path)]
def outer(softmax=softmax, *, key: path = path) -> path:
    global made
    made = here = lambda here: (here, there, made)
    class Inner(softmax):
        path = key
        def method(self):
            return path, key, Inner
    def inner():
        nonlocal here
        import torch.nn as here
        try:
            pass
        except ValueError as there:
            del there
        match here:
            case {"a": found, **rest}:
                pass
            case [*several] | several:
                pass
        return [made for made in key if (kept := made)] + [kept]
    return inner
async def later(t):
    async with t as torch, softmax:
        return torch
"""


def tables(table):
    for inner in table.get_children():
        yield inner
        yield from tables(inner)


def compared(source):
    """How many names of functions were looked up, each as Python's own table has it."""
    cell = Cell(ast.parse(source))
    inside = {
        (node.name, node.lineno): cell.scopes[node.body[0]]
        for node in cell.nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    count = 0
    for table in tables(symtable.symtable(source, "cell", "exec")):
        if (scope := inside.get((table.get_name(), table.get_lineno()))) is None:
            continue
        for symbol in table.get_symbols():
            if symbol.get_name() == "__class__":  # which `super()` needs, and nobody writes
                continue
            owner = scope.owner(symbol.get_name())
            found = "global" if owner is cell.top else "local" if owner is scope else "free"
            wanted = "global" if symbol.is_global() else "free" if symbol.is_free() else "local"
            assert found == wanted, (table, symbol)
            count += 1
    return count


def test_names_are_of_the_scopes_in_which_python_has_them():
    assert compared(ODD) > 20


@pytest.mark.parametrize("folder", ["attncourse", "attncourse/grading", "tests"])
def test_so_they_are_in_all_of_this_course(folder):
    assert sum(compared(path.read_text()) for path in (ROOT / folder).glob("*.py")) > 500


def test_what_a_function_computes_when_it_is_defined_stands_outside():
    cell = Cell(ast.parse("def f(softmax=softmax): return softmax\n[softmax for softmax in softmax]"))
    names = [node for node in cell.nodes if isinstance(node, ast.Name) and node.id == "softmax"]
    outside = [node for node in names if cell.scopes[node].owner("softmax") is cell.top]
    assert sorted((node.lineno, node.col_offset) for node in outside) == [(1, 14), (2, 24)]


def test_what_a_comprehension_keeps_is_of_the_scope_around_it():
    cell = Cell(ast.parse("[[kept := x for x in y] for y in z]\ndef f():\n    return {kept := x for x in y}"))
    kept = [node for node in cell.nodes if isinstance(node, ast.Name) and node.id == "kept"]
    assert [cell.scopes[node].owner("kept").kind for node in kept] == [None, ast.FunctionDef]


def test_imports_count_where_they_are():
    source = (
        "from torch import exp\ndef f():\n    from torch import softmax as exp\n    global g\n    import g"
    )
    cell = Cell(ast.parse(source))
    inner = cell.scopes[cell.tree.body[1].body[0]]
    assert cell.top.imports == {"exp": {"torch.exp"}, "g": {"g"}}
    assert inner.imports == {"exp": {"torch.softmax"}}
