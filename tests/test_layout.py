"""One unit, one name, the same place in every folder; and who may import whom."""

import ast
import graphlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import conftest
import nbformat
import pytest
from commands import Command
from nbgrader.apps import NbGrader, NbGraderAPI

from attncourse import checks
from attncourse.grading import job
from attncourse.grading.rules import Unusable, taught

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "attncourse"
UNITS = sorted(path.name for path in (ROOT / "solutions").glob("[!.]*") if path.is_dir())
PLACES = (
    "book/{}.md",
    "attncourse/{}.py",
    "attncourse/checks/{}.py",
    "attncourse/grading/answers/{}.py",
    "solutions/{0}/{0}.ipynb",
    "exercises/{0}/{0}.ipynb",
    "tests/test_{}.py",
)
NOTEBOOKS = [
    ROOT / folder / unit / f"{unit}.ipynb" for folder in ("solutions", "exercises") for unit in UNITS
]


def ours(folder):
    """The names in a folder, without those that Jupyter and Python leave behind."""
    return sorted(
        path.name for path in folder.iterdir() if path.name not in (".ipynb_checkpoints", "__pycache__")
    )


# --- folders ---


def test_there_are_units():
    assert "attention_operator" in UNITS


@pytest.mark.parametrize("folder", PLACES)
@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_has_its_file_in_every_room(unit, folder):
    assert (ROOT / folder.format(unit)).is_file()


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_is_in_the_table_of_contents(unit):
    assert re.search(rf"\bbook/{unit}\b", (ROOT / "_toc.yml").read_text())


NUMBERS = [
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
]


@pytest.mark.parametrize("unit", UNITS)
def test_the_front_page_counts_the_tasks(unit):
    cells = nbformat.read(ROOT / "exercises" / unit / f"{unit}.ipynb", as_version=4).cells
    tasks = sum(bool(cell.metadata.get("nbgrader", {}).get("grade")) for cell in cells)
    said = re.search(rf"\[(\w+) tasks\]\(exercises/{unit}/", (ROOT / "index.md").read_text(encoding="utf-8"))
    assert said
    assert NUMBERS.index(said[1].lower()) == tasks


def test_only_units_have_exercises():
    assert ours(ROOT / "exercises") == UNITS


@pytest.mark.parametrize("folder", ["solutions", "exercises"])
@pytest.mark.parametrize("unit", UNITS)
def test_nothing_lies_beside_a_notebook(unit, folder):
    # nbgrader copies whatever lies there to the students.
    assert ours(ROOT / folder / unit) == [f"{unit}.ipynb"]


# --- some units only ---


def test_of_units_that_are_left_out_no_test_runs(monkeypatch):
    def item(name, file="test_layout.py", **parameters):
        return SimpleNamespace(
            name=name,
            path=ROOT / "tests" / file,
            callspec=SimpleNamespace(params=parameters),
            get_closest_marker=lambda marker: None,
            fixturenames=[],
        )

    stay = [
        item("test_there_are_units"),
        item("test_x", "test_masking.py"),
        item("test_x", unit="masking", folder="book"),
        item("test_x", task="multihead_mask", width=390, names=["rotary"]),
        item("test_masking_every_mask"),
    ]
    go = [
        item("test_x", "test_positional.py"),
        item("test_x", unit="positional", folder="book"),
        item("test_x", path=ROOT / "book/positional.md"),
        item("test_x", task="rotary"),
        item("test_x", task=checks.rotary.task),
        item("test_positional_every_position"),
    ]
    items, told = [*go, *stay], []
    hook = SimpleNamespace(pytest_deselected=lambda items: told.extend(items))
    monkeypatch.setenv("UNITS", "masking")
    conftest.pytest_collection_modifyitems(SimpleNamespace(hook=hook), items)
    # In whatever order they are to run.
    assert {*map(id, items)} == {*map(id, stay)}
    assert {*map(id, told)} == {*map(id, go)}


def test_a_unit_that_does_not_exist_is_a_sentence(monkeypatch):
    monkeypatch.setenv("UNITS", "masking msking")
    with pytest.raises(Unusable, match=r"UNITS names the unit 'msking': there are attention_operator, "):
        taught(ROOT, UNITS)
    monkeypatch.setenv("UNITS", "scaling masking")
    assert taught(ROOT, UNITS) == ["masking", "scaling"]


def copied(folder, *arguments):
    """What `make lab` would copy."""
    command = [
        "make",
        "--dry-run",
        "-o",
        ".venv/installed_for_lab",
        "-f",
        ROOT / "Makefile",
        "lab",
        *arguments,
    ]
    # Without what these tests were started with, if that was make.
    plain = {
        name: value for name, value in os.environ.items() if name not in ("UNITS", "MAKEFLAGS", "MAKELEVEL")
    }
    done = subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, check=True)
    said = done.stdout
    return re.findall(r"^cp exercises/(\w+)/", said, re.MULTILINE)


def test_of_units_that_are_left_out_there_is_no_homework(tmp_path):
    (tmp_path / "exercises").symlink_to(ROOT / "exercises")
    assert copied(tmp_path) == UNITS
    assert copied(tmp_path, "UNITS=scaling masking") == ["scaling", "masking"]
    (tmp_path / "course.toml").write_text('units = [\n  "masking",  # first\n  "scaling",\n]\n')
    assert copied(tmp_path) == ["masking", "scaling"]
    with pytest.raises(subprocess.CalledProcessError) as error:
        copied(tmp_path, "UNITS=msking")
    assert "homework/msking/msking.ipynb" in error.value.stderr


# --- imports ---

CHAIN = ("attention_operator", "masking", "multihead", "transformer")
SHARED = {
    "__init__",
    "_require",
    "_runs",
    "plots",
    "interactive",
    "experiments",
    "checks",
    "grading",
    "probe",
}
MODULES = {path.relative_to(PACKAGE).with_suffix("").parts[0] for path in PACKAGE.rglob("*.py")}
MODELS = MODULES - SHARED


def may_import(module):
    """The modules of the package that `module` may import; what is not named here builds on the chain."""
    return {
        "_require": set(),
        "_runs": set(),
        "plots": set(),
        "interactive": MODELS,
        # Of what students write it takes nothing: their functions are handed over.
        "experiments": MODELS | {"_require", "_runs", "plots", "experiments"},
        "__init__": MODELS,
        "probe": {"probe"},
        "checks": MODELS | {"__init__", "_require", "checks", "probe"},
        "grading": {"__init__", "checks", "grading", "probe"},
        "toy": {"_require", "_runs", *CHAIN, "positional", "toy"},
        "vision": {"_require", *CHAIN, "positional"},
        "words": {"_require", *CHAIN, "positional"},
        "sentences": {"_require", "_runs", "words", "sentences"},
        "digits": {"_require", "_runs", "permutation", "vision", "digits"},
        "your_model": {"_require", *CHAIN, "positional", "scaling"},
        "novels": {"_require", "_runs", "your_model", "novels"},
        "letters": {"_require", "_runs", *CHAIN, "positional", "letters"},
        **{name: {"_require", *CHAIN[:index]} for index, name in enumerate(CHAIN)},
    }.get(module, {"_require", *CHAIN})


def imports(path):
    """The modules of the package that a file imports, by their first name below the package."""
    package = path.relative_to(ROOT).parent.parts
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            module = [*above, *(node.module or "").split(".")]
            names = [[*filter(None, module), alias.name] for alias in node.names]
        else:
            continue
        for name in names:
            if name[0] == "attncourse":
                # What is imported from the package itself and is no module comes by its __init__.
                found.add(name[1] if len(name) > 1 and name[1] in MODULES else "__init__")
    return found


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import attncourse", {"__init__"}),
        ("import torch, attncourse.masking", {"masking"}),
        ("from attncourse import attention, checks", {"__init__", "checks"}),
        ("from attncourse.checks.judge import Judge", {"checks"}),
        ("def f():\n    from .. import grading", {"grading"}),
        ("from ..attention_operator import attention", {"attention_operator"}),
        ("from . import judge", {"checks"}),
        ("from .judge import Judge", {"checks"}),
        ("import os, torch.nn", set()),
    ],
)
def test_imports_are_found(source, found, monkeypatch, tmp_path):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    monkeypatch.setitem(globals(), "MODULES", {"attention_operator", "masking", "checks", "grading"})
    path = tmp_path / "attncourse/checks/unit.py"
    path.parent.mkdir(parents=True)
    path.write_text(source)
    assert imports(path) == found


@pytest.mark.parametrize(
    "path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE))
)
def test_a_module_imports_only_what_it_may(path):
    module = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert imports(path) <= may_import(module)


def files_imported(path):
    """The files of the package that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            whole = ROOT.joinpath(*name.split("."))
            # What is no module is something in the module above it.
            places = [
                place
                for one in (whole, whole.parent)
                for place in (one.with_suffix(".py"), one / "__init__.py")
            ]
            found = next((place for place in places if place.exists()), None)
            if found and found.is_relative_to(PACKAGE):
                yield found


def test_no_modules_import_each_other_in_a_circle():
    graph = {path: set(files_imported(path)) for path in PACKAGE.rglob("*.py")}
    assert PACKAGE / "grading/course.py" in graph[PACKAGE / "grading/collect.py"]
    graphlib.TopologicalSorter(graph).prepare()


def test_what_gives_marks_is_part_of_the_courses_version():
    reached = {*PACKAGE.glob("checks/*.py"), *PACKAGE.glob("probe/*.py"), PACKAGE / "grading/serving.py"}
    left = [*reached]
    while left:
        new = set(files_imported(left.pop())) - reached
        reached |= new
        left += new
    names = {path.relative_to(PACKAGE).with_suffix("").parts for path in reached}
    # A page is written anew when what it is made from has changed.
    assert [parts for parts in names if job._WITHOUT_MARKS & {*parts}] == [("grading", "feedback")]


# --- notebooks ---


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_notebook_is_in_normal_form(path):
    notebook = nbformat.read(path, nbformat.NO_CONVERT)
    nbformat.validate(notebook)
    advice = f"in JupyterLab's terminal: jupyter nbconvert --clear-output --inplace {path.relative_to(ROOT)}"
    assert path.read_text(encoding="utf-8") == nbformat.writes(notebook) + "\n", advice
    for cell in notebook.cells:
        assert not cell.get("outputs"), advice
        assert cell.get("execution_count") is None, advice
    assert set(notebook.metadata) <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_code_fits_beside_jupyterlabs_file_browser(path):
    cells = [cell for cell in nbformat.read(path, nbformat.NO_CONVERT).cells if cell.cell_type == "code"]
    assert not [line for cell in cells for line in cell.source.splitlines() if len(line) > 80]


def generate(units):
    app = NbGrader()
    app.initialize([])
    for unit in units:
        outcome = NbGraderAPI(app.coursedir).generate_assignment(unit)
        assert outcome["success"], outcome["log"]


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    """The exercises as nbgrader makes them of the sources, all in one run."""
    folder = tmp_path_factory.mktemp("course")
    shutil.copytree(ROOT / "solutions", folder / "solutions")
    shutil.copy(ROOT / "nbgrader_config.py", folder)
    run = Command(generate, folder, *UNITS).ended()
    assert run.returncode == 0, run.stderr
    return folder / "exercises"


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_the_committed_release_is_what_the_source_generates(unit, generated):
    made, committed = (
        (folder / unit / f"{unit}.ipynb").read_text(encoding="utf-8")
        for folder in (generated, ROOT / "exercises")
    )
    assert committed == made, "run make release and commit exercises/"


# --- machines ---


def test_no_committed_file_names_a_place_on_someones_machine():
    git = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if git.returncode:
        pytest.skip("needs the git repository, to know which files are committed")
    places = re.compile(rb"(?<![\w.~)}%-])(?:/(?:work|home|root|Users|tmp/\w+)/\w|[A-Z]:\\Users)")
    found = {
        name: match.group().decode()
        for name in filter(None, git.stdout.split("\0"))
        if (ROOT / name).is_file() and (match := places.search((ROOT / name).read_bytes()))
    }
    assert not found
