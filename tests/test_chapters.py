"""What the chapters' sources keep to: what is folded, what is claimed, what is seen first."""

import ast
from pathlib import Path

import pytest
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig

ROOT = Path(__file__).parents[1]
UNITS = sorted(path.name for path in (ROOT / "solutions").glob("[!.]*") if path.is_dir())
CHAPTERS = ["intro", *UNITS]


def notebook(chapter):
    return read_myst_markdown_notebook((ROOT / f"book/{chapter}.md").read_text(), MdParserConfig())


def code(chapter):
    """(tags, metadata, syntax tree) of each cell of code."""
    for cell in notebook(chapter)["cells"]:
        if cell["cell_type"] == "code":
            source = "\n".join(line for line in cell["source"].splitlines() if not line.startswith("%"))
            yield set(cell["metadata"].get("tags", ())), cell["metadata"], ast.parse(source)


def folded(tags):
    return any(tag.startswith("hide-") for tag in tags)


def with_parents(tree):
    """{node: its parent}"""
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def around(node, parents):
    while node in parents:
        node = parents[node]
        yield node


def name_of(call):
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


SETTINGS = {"manual_seed", "set_num_threads", "set_printoptions", "use_style"}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_set_up_is_folded_and_holds_nothing_else(chapter):
    (first, _, _), *_ = code(chapter)
    assert "hide-cell" in first
    for tags, _, tree in code(chapter):
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        if "hide-cell" in tags and "after-task" not in tags:
            for statement in tree.body:
                is_setting = isinstance(statement, ast.Expr) and name_of(statement.value) in SETTINGS
                assert statement in imports or is_setting, ast.unparse(statement)
        else:
            assert not imports, ast.unparse(tree)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_the_code_of_a_figure_is_folded_and_no_other(chapter):
    for tags, metadata, tree in code(chapter):
        is_figure = "figure" in metadata.get("mystnb", {})
        if "after-task" not in tags:
            assert ("hide-input" in tags) == is_figure, ast.unparse(tree)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_what_is_folded_with_a_figure_is_not_needed_elsewhere(chapter):
    made_by_figures: set[str] = set()
    for tags, metadata, tree in code(chapter):
        names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        inside = {node for function in functions for node in ast.walk(function)}
        stored = [node for node in names if isinstance(node.ctx, ast.Store)]
        made = {node.id for node in stored if node not in inside} | {node.name for node in functions}
        if "figure" in metadata.get("mystnb", {}):
            made_by_figures |= made
        elif not folded(tags):
            local = {node.id for node in stored} | {node.arg for node in inside if isinstance(node, ast.arg)}
            read = {node.id for node in names if isinstance(node.ctx, ast.Load)} - made - local
            assert not read & made_by_figures, f"{read & made_by_figures} in {ast.unparse(tree)[:200]}"
            made_by_figures -= made


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_claim_of_equality_stops_the_build_if_it_does_not_hold(chapter):
    for _, _, tree in code(chapter):
        parents = with_parents(tree)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            above = list(around(call, parents))
            asserted = any(isinstance(node, ast.Assert | ast.FunctionDef) for node in above)
            if name_of(call) in {"equal", "array_equal"}:
                assert asserted, ast.unparse(tree)
            elif name_of(call) in {"allclose", "isclose"}:
                # With no tolerance stated it may say that two numbers differ, not that they agree.
                negated = any(
                    isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) for node in above
                )
                assert negated, f"use torch.testing.assert_close: {ast.unparse(tree)}"
                assert asserted, ast.unparse(tree)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_opens_with_the_picture_of_its_idea(chapter):
    lines = 0
    for cell in notebook(chapter)["cells"]:
        if cell["cell_type"] == "code":
            if "figure" in cell["metadata"].get("mystnb", {}) or "interactive." in cell["source"]:
                break
        else:
            assert "\n## " not in cell["source"], "a section begins before the first picture"
            lines += len(cell["source"].split("\n# ")[-1].strip().splitlines())
    assert lines <= 8, "the picture is not on the first screen of a phone"
