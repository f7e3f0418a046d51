"""What the chapters keep to: what is folded, what is claimed, what is seen first, how long it takes."""

import ast
import re
from pathlib import Path

import pytest
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from passing import passes

from attncourse.checks.task import registry

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


# How long it takes


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_no_function_of_a_chapter_is_the_answer_to_a_task(unit, monkeypatch, capsys):
    monkeypatch.chdir(ROOT / "book")
    names, written = {"__name__": "chapter"}, {}
    for _, _, tree in code(unit):
        for node in tree.body:
            if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef | ast.ClassDef):
                exec(compile(ast.Module([node], []), unit, "exec"), names)
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    written[node.name] = names[node.name]
    notebook = (ROOT / f"solutions/{unit}/{unit}.ipynb").read_text()
    tasks = re.findall(r'^ +"checks\.(\w+)\(', notebook, re.M)
    assert written
    assert len(tasks) >= 8
    for task in tasks:
        for name, function in written.items():
            assert not passes(registry[task], function), f"{name}, in book/{unit}.md, answers {task}"


def hours(text):
    """The hours of "1 hour", "2½ hours" or "50 minutes"."""
    number, unit = re.fullmatch(r"([\d½]+) (hour|minute)s?", text).groups()
    amount = float(number.rstrip("½") or 0) + 0.5 * number.endswith("½")
    return amount / (60 if unit == "minute" else 1)


def to_half(number):
    return f"{number:.0f}" if round(2 * number) % 2 == 0 else f"{int(number)}½"


def test_the_totals_are_the_sums_of_the_cards():
    page = (ROOT / "index.md").read_text().replace("\N{NO-BREAK SPACE}", " ")
    cards = re.findall(r":::\{container\} unit\n(.*?)\n:::", page, re.DOTALL)
    read, written = {}, {}
    for card in cards:
        name = re.search(r"\]\(book/(\w+)\.md\)", card)[1]
        read[name] = hours(re.search(r"Reading: ([^.\n]+)", card)[1])
        exercise = re.search(r"ipynb\): ([^\n]+)", card)
        written[name] = hours(exercise[1]) if exercise else 0
    assert {"intro", *UNITS} == set(read)
    beyond = {"scaling", "transformer", "vision", "words", "your_model"}
    core_read, core_written = (
        sum(time for name, time in of.items() if name not in beyond) for of in (read, written)
    )
    everything = sum(read.values()) + sum(written.values())
    core = core_read + core_written
    assert f"**{core:.0f} hours**, of which {core_read:.0f} are reading" in page
    assert (
        f"**{everything:.0f} hours**, of which {to_half(sum(read.values()))} are reading "
        f"and {to_half(sum(written.values()))} are writing"
    ) in page.replace("\n  ", " ")
    contents = (ROOT / "_toc.yml").read_text()
    assert f"The core: {core:.0f} hours" in contents
    assert f"Everything: {everything - core:.0f} hours more" in contents
    assert f"3, {core:.0f} or {everything:.0f} hours" in contents
    paths = (ROOT / "book/paths.md").read_text()
    assert f"## The core: {core:.0f} hours" in paths
    assert f"## Everything: {everything:.0f} hours" in paths
    three_hours = paths[paths.index("## Three hours") : paths.index("## The core")]
    assert (
        150 <= sum(int(minutes) for minutes in re.findall(r"\| (\d+) \|$", three_hours, re.MULTILINE)) <= 180
    )


@pytest.mark.parametrize("unit", UNITS)
def test_every_notebook_names_the_ways_through(unit):
    text = (ROOT / f"solutions/{unit}/{unit}.ipynb").read_text()
    assert "book/paths.md" in text


@pytest.mark.parametrize("chapter", sorted(path.stem for path in ROOT.glob("book/*.md")))
def test_what_is_in_another_chapter_is_named_with_it(chapter):
    # Only then a book without that chapter can do without the link.
    text = (ROOT / f"book/{chapter}.md").read_text()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(#?([\w-]+)\)|\{(?:eq|numref|ref|doc)\}`(?:[^<`]*<)?([\w-]+)>?`", prose)
    here = r"^\({0}\)=|(?:name|label): *{0}$|^\$\$ \({0}\)"
    for label in {one or other for one, other in links}:
        assert re.search(here.format(label), text, re.MULTILINE), label
