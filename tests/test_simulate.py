"""The practice class: what is written, and that its truth is the truth."""

import ast
import builtins
import csv
import dis
import inspect
import math
import shutil
import sqlite3
from pathlib import Path

import nbformat
import pytest
import torch
from nbgrader.api import Gradebook
from passing import passes

from attncourse import checks
from attncourse.checks.task import source_of
from attncourse.grading.__main__ import main
from attncourse.grading.answers import right_answers
from attncourse.grading.simulate import Exercise, unfinished

ROOT = Path(__file__).parents[1]
UNITS = sorted(path.parent.name for path in ROOT.glob("exercises/*/*.ipynb"))
UNIT = "permutation"


@pytest.fixture
def course(monkeypatch):
    monkeypatch.chdir(ROOT)


def simulate(out, *arguments):
    assert main(["simulate", UNIT, "--out", str(out), *arguments]) == 0
    return {str(path.relative_to(out)): path for path in sorted(out.rglob("*")) if path.is_file()}


def truth(out):
    with open(f"{out}_truth.csv", newline="") as file:
        return list(csv.DictReader(file))


def function(source, name):
    """What a cell with this source defines."""
    scope = {"math": math, "torch": torch}
    exec(source, scope)
    return scope[name]


def test_the_same_seed_gives_the_same_class(course, tmp_path):
    one, same, other = (tmp_path / name for name in ("one", "same", "other"))
    first = {name: path.read_bytes() for name, path in simulate(one, "--students", "5").items()}
    assert first == {name: path.read_bytes() for name, path in simulate(same, "--students", "5").items()}
    assert truth(one) == truth(same)
    third = {
        name: path.read_bytes() for name, path in simulate(other, "--students", "5", "--seed", "7").items()
    }
    assert first.keys() == third.keys()
    assert first != third


def test_a_larger_class_has_the_same_first_students(course, tmp_path):
    few = simulate(tmp_path / "few", "--students", "3")
    many = simulate(tmp_path / "many", "--students", "9")
    assert len(many) == 9
    assert all(path.read_bytes() == many[name].read_bytes() for name, path in few.items())


@pytest.mark.slow
def test_everyone_has_a_line_for_every_task(course, tmp_path):
    simulate(tmp_path / "class", "--students", "40")
    exercise = Exercise(UNIT, nbformat.read(ROOT / "exercises" / UNIT / f"{UNIT}.ipynb", as_version=4))
    rows = truth(tmp_path / "class")
    students = dict.fromkeys(row["student_id"] for row in rows)
    assert len(students) == 40
    assert [(row["student_id"], row["cell"]) for row in rows] == [
        (student, cell) for student in students for cell in exercise.points
    ]
    assert {row["kind"] for row in rows} == {"right", "misconception", "unfinished", "blank"}
    for row in rows:
        assert row["assignment"] == UNIT
        assert float(row["max_score"]) == exercise.points[row["cell"]]
        assert float(row["score"]) == (float(row["max_score"]) if row["kind"] == "right" else 0)
    # Neither a class of geniuses nor one that is lost.
    share = sum(float(row["score"]) for row in rows) / sum(float(row["max_score"]) for row in rows)
    assert 0.3 < share < 0.9


@pytest.mark.slow
def test_the_notebooks_hold_what_the_truth_says(course, tmp_path):
    files = simulate(tmp_path / "class", "--students", "20")
    release = nbformat.read(ROOT / "exercises" / UNIT / f"{UNIT}.ipynb", as_version=4)
    tasks = {task.name: task for task in checks.tasks(UNIT)}
    for row in truth(tmp_path / "class"):
        notebook = nbformat.read(files[f"{row['student_id']}/{UNIT}/{UNIT}.ipynb"], as_version=4)
        nbformat.validate(notebook)
        assert [cell.id for cell in notebook.cells] == [cell.id for cell in release.cells]
        task = tasks[row["cell"].removeprefix("check_")]
        (source,) = (cell.source for cell in notebook.cells if cell.id == task.name)
        expected = {
            "right": {
                source_of(answer, task.name)
                for answer in right_answers(task)
                if answer.__name__ == f"{task.name}__{row['what']}"
            },
            "misconception": {
                mistake.source(task.name) for mistake in task.single_mistakes if mistake.label == row["what"]
            },
            "unfinished": {
                unfinished(source_of(answer, task.name)).rstrip() for answer in right_answers(task)
            },
            "blank": {cell.source for cell in release.cells if cell.id == task.name},
        }[row["kind"]]
        assert source in expected


def names_of(code):
    """The names that code reads from outside and those that it defines, with those of functions in it."""
    steps = list(dis.get_instructions(code))
    read = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    defined = {step.argval for step in steps if step.opname == "STORE_NAME"}
    for inner in filter(inspect.iscode, code.co_consts):
        more, own = names_of(inner)
        read, defined = read | more, defined | own
    return read, defined


@pytest.mark.parametrize("unit", UNITS)
def test_right_answers_need_no_more_than_the_exercise_has(unit):
    release = nbformat.read(ROOT / "exercises" / unit / f"{unit}.ipynb", as_version=4)
    sources = [cell.source for cell in release.cells if cell.cell_type == "code"]
    trees = [ast.parse(source) for source in sources if not source.startswith("%")]
    there = {*dir(builtins), "__name__"}
    for node in (node for tree in trees for node in tree.body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            there |= {(one.asname or one.name).partition(".")[0] for one in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            there.add(node.name)
        elif isinstance(node, ast.Assign):
            there |= {name.id for name in ast.walk(node) if isinstance(name, ast.Name)}
    for task in checks.tasks(unit):
        for answer in right_answers(task):
            read, defined = names_of(compile(source_of(answer, task.name), task.name, "exec"))
            assert not read - defined - there, answer.__name__


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_an_unfinished_answer_gets_no_point(unit):
    for task in checks.tasks(unit):
        for answer in right_answers(task):
            assert passes(task, function(source_of(answer, task.name), task.name))
            assert not passes(task, function(unfinished(source_of(answer, task.name)), task.name))


@pytest.mark.parametrize("there", ["class/mine.txt", "class_truth.csv", "class"])
def test_nothing_is_overwritten(there, course, tmp_path, capsys):
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(SystemExit) as stop:
        simulate(tmp_path / "class")
    assert stop.value.code == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert len(list(tmp_path.rglob("*"))) == len(path.relative_to(tmp_path).parts)


def test_a_second_unit_joins_the_first(course, tmp_path, capsys):
    simulate(tmp_path / "class", "--students", "2")
    first = truth(tmp_path / "class")
    assert main(["simulate", "masking", "--out", str(tmp_path / "class"), "--students", "3"]) == 0
    assert truth(tmp_path / "class")[: len(first)] == first
    assert len(list((tmp_path / "class").glob("*/masking/masking.ipynb"))) == 3
    assert {row["assignment"] for row in truth(tmp_path / "class")} == {UNIT, "masking"}
    with pytest.raises(SystemExit):
        simulate(tmp_path / "class", "--students", "2")
    assert f"has {UNIT} already, and nothing is overwritten" in capsys.readouterr().err


def test_a_rehearsal_is_removed_and_nothing_else(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("solutions", "exercises"):
        (tmp_path / name / UNIT).mkdir(parents=True)
        shutil.copy(ROOT / name / UNIT / f"{UNIT}.ipynb", tmp_path / name / UNIT)
    shutil.copy(ROOT / "nbgrader_config.py", tmp_path)
    with sqlite3.connect(tmp_path / "gradebook.db") as database:
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    assert main(["simulate", UNIT, "--students", "3"]) == 0
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db", "attncourse") as gradebook:
        gradebook.add_assignment(UNIT)
        for student in ("student-001", "student-002", "student-003", "real"):
            gradebook.add_student(student)
            gradebook.add_submission(UNIT, student)
    real = tmp_path / "submitted" / "real" / UNIT / f"{UNIT}.ipynb"
    mine = tmp_path / "submitted" / "student-003" / UNIT / f"{UNIT}.ipynb"
    graded = [
        tmp_path / step / "student-001" / UNIT / "x" for step in ("autograded", "feedback", "submitted")
    ]
    for path in (real, *graded[:2]):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    mine.write_text("handed in by somebody of that name")
    assert main(["simulate", "--remove"]) == 1
    assert "student-003/permutation was changed since, and stays" in capsys.readouterr().out
    names = {path.relative_to(tmp_path).parts[1] for path in tmp_path.glob("*/*/*/*")}
    assert names == {"student-003", "real"}
    assert {row["student_id"] for row in truth(tmp_path / "submitted")} == {"student-003"}
    with Gradebook(f"sqlite:///{tmp_path}/gradebook.db", "attncourse") as gradebook:
        assert {one.id for one in gradebook.students} == {"student-003", "real"}
    for path in (real, mine):
        shutil.rmtree(path.parents[1])
    assert main(["simulate", "--remove"]) == 0
    after = {path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".nbgrader.log"}
    assert (
        after - {tmp_path / "grades.csv", tmp_path / "grades_by_task.csv", tmp_path / "total.csv"} == before
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "no_such_unit"], "no unit is called 'no_such_unit': there are attention_operator"),
        (["simulate", UNIT, "--students", "-1"], "cannot be negative"),
        (["simulate"], "UNIT"),
    ],
)
def test_wrong_usage_is_explained(arguments, words, course, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


def test_a_class_is_simulated_in_the_folder_of_a_course(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        main(["simulate", UNIT])
    assert "run this in the folder of the course" in capsys.readouterr().err
