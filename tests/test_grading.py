"""A class of students is graded: by nbgrader's own commands, and by ``python -m attncourse.grading``."""

import ast
import copy
import csv
import itertools
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from commands import Command
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderApp
from traitlets.config import Config

from attncourse import checks
from attncourse.checks.task import source_of
from attncourse.grading import autograding
from attncourse.grading import job as jobs
from attncourse.grading.__main__ import Progress, main, table
from attncourse.grading.answers import right_answers
from attncourse.grading.course import Course
from attncourse.grading.report import Entry
from attncourse.grading.submitted import Submission, digest, look_through

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNITS = sorted(path.parent.name for path in ROOT.glob("solutions/*/*.ipynb"))
# The unit of the class, which is one of few tasks that are graded in a short time.
UNIT = "vision"
# Long enough to import torch on a busy machine; as long as every endless loop makes us wait.
TIMEOUT = 20


# --- notebooks as students hand them in ---


class Exercise:
    """A unit's exercise, to be filled as students fill it."""

    def __init__(self, unit):
        self.unit = unit
        self.tasks = checks.tasks(unit)
        self.release = nbformat.read(ROOT / "exercises" / unit / f"{unit}.ipynb", as_version=4)
        self.solution = nbformat.read(ROOT / "solutions" / unit / f"{unit}.ipynb", as_version=4)
        self.solved = {name: cell.source for name, cell in cells(self.solution).items()}
        self.points = {
            name: cell.metadata.nbgrader.points
            for name, cell in cells(self.solution).items()
            if cell.metadata.nbgrader.grade
        }
        # Answers that need no other answer, so that a mistake elsewhere leaves them right.
        self.right = {task.name: source_of(right_answers(task)[0], task.name) for task in self.tasks}

    def filled(self, answers):
        """The release with the given answers, by the names of their tasks; the others stay unwritten."""
        notebook = copy.deepcopy(self.release)
        for name, source in answers.items():
            cells(notebook)[name].source = source
        return notebook

    def marks(self, wrong=()):
        """All points, but none for the wrong tasks."""
        return {
            name: 0 if name.removeprefix("check_") in wrong else most for name, most in self.points.items()
        }

    def misconceptions(self, number):
        """For each task that has so many misconceptions, the one of that number."""
        return {
            task: task.single_mistakes[number] for task in self.tasks if number < len(task.single_mistakes)
        }


def cells(notebook):
    return {cell.metadata.nbgrader.grade_id: cell for cell in notebook.cells if "nbgrader" in cell.metadata}


def with_other_arguments(source):
    """The source of a function with its arguments renamed; that of a class as it is."""
    tree = ast.parse(source)
    if isinstance(tree.body[0], ast.ClassDef):
        return source
    names = {argument.arg: f"my_{argument.arg}" for argument in tree.body[0].args.args}
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
    return ast.unparse(tree)


@dataclass
class Student:
    notebook: nbformat.NotebookNode
    marks: dict
    labels: list = field(default_factory=list)


def by_the_solutions(exercise):
    return Student(exercise.filled(solutions_of(exercise)), exercise.marks())


def the_class(exercise):
    """Everyone beside: right in another way, with a misconception in every task, or none of that."""
    names = [task.name for task in exercise.tasks]
    wrong = exercise.misconceptions(0)
    answers = {task.name: mistake.source(task.name) for task, mistake in wrong.items()}
    first, last = names[0], names[-1]
    half = names[: len(names) // 2]
    students = {
        "in_other_words": Student(
            exercise.filled({name: with_other_arguments(source) for name, source in exercise.right.items()}),
            exercise.marks(),
        ),
        "wrong": Student(
            exercise.filled({**exercise.right, **answers}),
            exercise.marks(wrong=answers),
            [mistake.label for mistake in wrong.values()],
        ),
        "blank": Student(exercise.filled({}), exercise.marks(wrong=names)),
        "half": Student(
            exercise.filled({name: exercise.right[name] for name in half}),
            exercise.marks(wrong=set(names) - set(half)),
        ),
        "raises": Student(
            exercise.filled(
                {**exercise.right, first: f"def {first}(*args):\n    raise RuntimeError('lost')"}
            ),
            exercise.marks(wrong=[first]),
        ),
        "endless": Student(
            exercise.filled(
                {
                    **exercise.right,
                    last: f"def {last}(*args):\n    import time\n    while True:\n        time.sleep(1)",
                }
            ),
            exercise.marks(wrong=[last]),
        ),
        "without_a_check": Student(exercise.filled(exercise.right), exercise.marks(wrong=[first])),
    }
    deleted = students["without_a_check"].notebook
    deleted.cells.remove(cells(deleted)[f"check_{first}"])
    return students


def solutions_of(exercise):
    return {task.name: exercise.solved[task.name] for task in exercise.tasks}


# --- a course in a folder of its own ---


def new_course(folder):
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    config = (ROOT / "nbgrader_config.py").read_text()
    (folder / "nbgrader_config.py").write_text(
        f"{config}\nc.Execute.timeout, c.Execute.seeds = {TIMEOUT}, 2\n"
    )
    return folder


def hand_in(course, student, unit, content):
    path = course / "submitted" / student / unit / f"{unit}.ipynb"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else nbformat.writes(content), encoding="utf-8")
    return path


def run(course, *command, path=None):
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "JUPYTER_CONFIG_DIR": str(course / "no_settings_of_the_user"),
        "PATH": path or os.environ["PATH"],
    }
    return subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True, timeout=600)


def marks_in(course, unit, student):
    with Gradebook(f"sqlite:///{course}/gradebook.db", "attncourse") as gradebook:
        notebook = gradebook.find_submission_notebook(unit, unit, student)
        return {grade.name: grade.auto_score for grade in notebook.grades}


def remarks_in(course, unit, student):
    path = course / "autograded" / student / unit / f"{unit}.ipynb"
    return nbformat.read(path, as_version=4).metadata.attncourse


def feedback_in(course, unit, student):
    html = (course / "feedback" / student / unit / f"{unit}.html").read_text(encoding="utf-8")
    return BeautifulSoup(html, "html.parser").get_text()


# --- the class is graded, by the command and by nbgrader's own ---


@dataclass
class Graded:
    folder: Path
    exercises: dict
    students: dict
    runs: dict

    def submissions(self):
        """Everyone's name with the exercise that was handed in and what has to come of it."""
        for unit, students in self.students.items():
            for name, student in students.items():
                yield name, self.exercises[unit], student


def command(course, *arguments):
    # By path only: nothing of this environment is on PATH, as when no environment is active.
    return run(course, sys.executable, "-m", "attncourse.grading", *arguments, path="/usr/bin:/bin")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A unit handed in by a class, and every unit by one who knows the solutions; graded by the command.

    That each mistake of each task is recognised, also from what kernels send, needs no kernel:
    see test_checks.py and test_judging.py.
    """
    folder = new_course(tmp_path_factory.mktemp("course"))
    exercises = {unit: Exercise(unit) for unit in UNITS}
    students = {unit: {"by_the_solutions": by_the_solutions(exercises[unit])} for unit in UNITS}
    students[UNIT] |= the_class(exercises[UNIT])
    for unit in UNITS:
        for name, student in students[unit].items():
            hand_in(folder, name, unit, student.notebook)
    hand_in(folder, "unreadable", UNIT, "not a notebook")
    hand_in(folder, "elsewhere", "unknown_unit", exercises[UNIT].release)
    (folder / "submitted" / "notes.txt").write_text("not a submission")
    # One of them waits for the endless loop.
    return Graded(folder, exercises, students, {"command": command(folder, "--workers", "3")})


@pytest.fixture(scope="module")
def by_nbgrader(graded, tmp_path_factory):
    """Some of the class, graded by nbgrader's own commands as the README gives them.

    They run the same code on a submission as ours, so a few are enough.
    """
    folder = new_course(tmp_path_factory.mktemp("course"))
    some = ("by_the_solutions", "wrong", "blank", "without_a_check")
    for name in [*some, "unreadable"]:
        place = f"submitted/{name}/{UNIT}"
        shutil.copytree(graded.folder / place, folder / place)
    # In copies of this process: what is tested is not how they start.
    settings = {"JUPYTER_CONFIG_DIR": os.devnull, "OMP_NUM_THREADS": "1"}
    runs = {
        command: Command(
            NbGraderApp.launch_instance, folder, command, *arguments, environment=settings
        ).ended()
        for command, *arguments in (
            ("generate_assignment", UNIT, "--force"),
            ("autograde", UNIT),
            ("generate_feedback", UNIT),
            ("export",),
        )
    }
    students = {name: graded.students[UNIT][name] for name in some}
    return Graded(folder, graded.exercises, {UNIT: students}, runs)


@pytest.fixture(params=["graded", "by_nbgrader"])
def either(request):
    return request.getfixturevalue(request.param)


def test_nbgraders_commands_succeed_but_for_the_unreadable_notebook(by_nbgrader):
    status = {command: done.returncode for command, done in by_nbgrader.runs.items()}
    assert status == {"generate_assignment": 0, "autograde": 1, "generate_feedback": 0, "export": 0}
    failed = [
        line for line in by_nbgrader.runs["autograde"].stderr.splitlines() if "error processing" in line
    ]
    assert failed
    assert all("unreadable" in line for line in failed)


def test_everyone_gets_the_marks_of_every_task(either):
    found = [marks_in(either.folder, exercise.unit, name) for name, exercise, _ in either.submissions()]
    assert found == [student.marks for *_, student in either.submissions()]


def test_the_exported_sums_are_those_of_the_marks(either):
    with open(either.folder / "grades.csv", newline="") as file:
        rows = {(row["assignment"], row["student_id"]): row for row in csv.DictReader(file)}
    for name, exercise, student in either.submissions():
        row = rows[exercise.unit, name]
        assert float(row["score"]) == sum(mark or 0 for mark in student.marks.values())
        assert float(row["max_score"]) == sum(exercise.points.values())


def test_feedback_names_every_misconception(either):
    for name, exercise, student in either.submissions():
        text = " ".join(feedback_in(either.folder, exercise.unit, name).split())
        for label in student.labels:
            assert f"This looks like: {label}." in text, name
        if not student.labels:
            assert "This looks like:" not in text, name


def test_feedback_gives_no_solution_away(either):
    exercise = either.exercises[UNIT]
    text = feedback_in(either.folder, exercise.unit, "blank")
    assert "SOLUTION" not in text
    released = {line.strip() for cell in exercise.release.cells for line in cell.source.splitlines()}
    solved = {line.strip() for source in solutions_of(exercise).values() for line in source.splitlines()}
    hidden = {line for line in solved - released if len(line) > 20}
    assert hidden
    assert not {line for line in hidden if line in text}


def test_a_deleted_check_gives_nothing_and_is_flagged(either):
    name = f"check_{either.exercises[UNIT].tasks[0].name}"
    with Gradebook(f"sqlite:///{either.folder}/gradebook.db", "attncourse") as gradebook:
        notebook = gradebook.find_submission_notebook(UNIT, UNIT, "without_a_check")
        assert not any(grade.needs_manual_grade for grade in notebook.grades)
    assert "this cell was not in the notebook" in feedback_in(either.folder, UNIT, "without_a_check")
    assert [flag["cell"] for flag in remarks_in(either.folder, UNIT, "without_a_check")["flags"]] == [name]


def test_every_mark_is_given_outside_the_students_process(either):
    for name, exercise, _ in either.submissions():
        found = remarks_in(either.folder, exercise.unit, name)
        assert found["checks"].keys() == exercise.points.keys()
        assert all(check["outside"] for check in found["checks"].values())
        assert found["isolation"]


def test_what_cannot_be_graded_leaves_no_file_and_no_mark(graded):
    for name in ("unreadable", "elsewhere"):
        assert not (graded.folder / "autograded" / name).exists()
        assert not (graded.folder / "feedback" / name).exists()
    assert "unreadable" not in (graded.folder / "grades.csv").read_text()


def test_the_command_says_what_it_did(graded):
    done = graded.runs["command"]
    assert (done.returncode, done.stderr) == (1, "")
    for name, exercise, student in graded.submissions():
        total = sum(mark or 0 for mark in student.marks.values())
        assert (
            f"{name}, {exercise.unit}: {total:g} of {sum(exercise.points.values()):g} points" in done.stdout
        )
    with open(graded.folder / "grades_by_task.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for name in ("by_the_solutions", "wrong"):
        own = {row["cell"]: float(row["score"]) for row in rows if row["student_id"] == name}
        known = [students[name].marks for students in graded.students.values() if name in students]
        assert own == {cell: mark for marks in known for cell, mark in marks.items()}
    # The release is as it was: not even written again.
    assert (graded.folder / "exercises" / UNIT / f"{UNIT}.ipynb").stat().st_mtime < (
        graded.folder / "gradebook.db"
    ).stat().st_mtime


def test_the_command_writes_the_class_report(graded):
    for name, exercise, student in graded.submissions():
        with open(graded.folder / "reports" / f"{exercise.unit}.csv", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["student"] == name]
        assert {f"check_{row['task']}": float(row["mark"]) for row in rows} == student.marks
        if name in ("by_the_solutions", "wrong"):
            assert all(row["judged_outside"] == "True" for row in rows)
            assert {bool(row["misconception"]) for row in rows} == {name == "wrong"}
        assert f"reports/{exercise.unit}.html" in graded.runs["command"].stdout


def test_the_command_lists_what_a_person_should_look_at(graded):
    problems = graded.runs["command"].stdout.partition("To look at")[2]
    tasks = graded.exercises[UNIT].tasks
    assert f"submitted/unreadable/{UNIT}/{UNIT}.ipynb: is not a notebook: it is not JSON" in problems
    assert "submitted/notes.txt: is a stray file" in problems
    assert "submitted/elsewhere/unknown_unit: is no unit of this course" in problems
    assert f"without_a_check, {UNIT}: check_{tasks[0].name}: " in problems
    assert "by_the_solutions" not in problems


def test_the_same_marks_in_one_process_without_isolation(graded, monkeypatch):
    monkeypatch.chdir(graded.folder)
    course = Course("none")
    job = course.job(Submission(UNIT, "half", graded.folder / "submitted" / "half" / UNIT))
    result = autograding.grade(course.prepare(UNIT), job)
    assert result.marks == graded.students[UNIT]["half"].marks
    ran = nbformat.reads(result.notebook.decode(), as_version=4).metadata.attncourse.isolation
    assert ran == "process"


def test_the_command_goes_on_where_it_stopped(graded, tmp_path):
    # What went wrong is mended, one submission replaced by an older file, one made worse.
    course = tmp_path / "course"
    shutil.copytree(graded.folder, course)
    students = graded.students[UNIT]
    shutil.rmtree(course / "submitted" / "elsewhere")
    (course / "submitted" / "notes.txt").unlink()
    hand_in(course, "unreadable", UNIT, students["blank"].notebook)
    again = hand_in(course, "wrong", UNIT, students["by_the_solutions"].notebook)
    os.utime(again, (0, 0))
    hand_in(course, "half", UNIT, "")
    done = Command(main, course, UNIT, "--workers", "1").ended()
    assert (done.returncode, done.stderr) == (1, "")
    number = len(students) + 1
    assert (
        f"3 of {number} submissions to grade, {number - 3} unchanged since they were graded." in done.stdout
    )
    assert marks_in(course, UNIT, "wrong") == students["by_the_solutions"].marks
    assert marks_in(course, UNIT, "unreadable") == students["blank"].marks
    assert "This looks like" not in feedback_in(course, UNIT, "wrong")
    # A worse file after a good one is not graded, and that is said.
    assert f"half/{UNIT}/{UNIT}.ipynb: is empty; the gradebook keeps an earlier mark" in done.stdout
    assert not (course / "feedback" / "half" / UNIT).exists()


def test_the_command_works_where_there_is_nothing_to_grade(tmp_path, monkeypatch, capsys):
    course = new_course(tmp_path)
    (course / "submitted").mkdir()
    monkeypatch.chdir(course)
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("Nothing to grade")


def test_a_broken_configuration_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("nbgrader_config.py").write_text("c = get_config(")
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2
    assert "nbgrader_config.py cannot be used: SyntaxError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "missing", "words"),
    [
        ((), "nbgrader_config.py", "no nbgrader_config.py"),
        ((), "submitted", "no folder"),
        (("no_such_unit",), "", f"the course has {', '.join(UNITS)}"),
        (("--no-such-option",), "", "unrecognized arguments"),
    ],
)
def test_wrong_usage_is_explained(arguments, missing, words, tmp_path, monkeypatch, capsys):
    course = new_course(tmp_path)
    if missing == "nbgrader_config.py":
        (course / missing).unlink()
    monkeypatch.chdir(course)
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 2
    assert words in capsys.readouterr().err


# --- its parts ---


def test_everything_out_of_place_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "ada/unit/unit.ipynb",
        "ada/unit/data.csv",
        "ada/unit/copy.ipynb",
        "ada/other/other.ipynb",
        "ben/unit/unit (1).ipynb",
        "cem/unit/readme.txt",
        "dan/unit.ipynb",
        "eve.ipynb",
        ".DS_Store",
        "fay/mystery/unit.ipynb",
    ):
        path = tmp_path / "submitted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "submitted" / "gil").mkdir()
    submissions, problems = look_through(tmp_path / "submitted", ["unit"], ["unit", "other"])
    assert [(found.student, found.unit) for found in submissions] == [("ada", "unit")]
    assert {(problem.place.removeprefix("submitted/"), problem.ungraded) for problem in problems} == {
        ("ada/unit/copy.ipynb", False),
        ("ben/unit", True),
        ("cem/unit", True),
        ("dan/unit.ipynb", True),
        ("eve.ipynb", True),
        ("fay/mystery", True),
        ("gil", True),
    }
    assert any("unit (1).ipynb: rename it" in problem.words for problem in problems)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"PK\x03\x04\xff\xfe", "not text in UTF-8"),
        (b"<html>", "not JSON"),
        (b'{"cells": [', "not JSON"),
        (b"[1, 2]", "but not a notebook"),
        (b'{"cells": 3, "nbformat": "x"}', "but not a notebook: something in it is of the wrong kind"),
        pytest.param(b"[" + b"[]," * 1_000_001 + b"0]", "more than 2,000,000 values", id="crumbs"),
    ],
)
def test_an_unreadable_notebook_is_described(content, words):
    unit = jobs.Unit("unit", {}, b"", Config(), jobs.course_version())
    result = autograding.outcome(unit, jobs.Job("ada", {"unit.ipynb": content}, ""))
    assert words in result.words


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            "jsonschema.exceptions.ValidationError: No schema for v4.-1 notebooks",
            "No schema for v4.-1 notebooks",
        ),
        ("RuntimeError: a cell: has no name", "RuntimeError: a cell: has no name"),
    ],
)
def test_an_errors_long_name_is_not_told(last, words):
    log = autograding.Log()
    log.errors = ["There was an error", f"Traceback (most recent call last):\n  in a file\n{last}"]
    assert log.cause == words


def test_grading_knows_what_the_exercise_brings(monkeypatch):
    known = []
    monkeypatch.setattr(autograding, "run", lambda converter, log: known.append(converter.config.Execute))
    content = nbformat.writes(nbformat.v4.new_notebook()).encode()
    sources = {"unit.ipynb": content, "data/given.csv": b"1"}
    unit = jobs.Unit("unit", sources, b"", Config(), jobs.course_version())
    autograding.outcome(unit, jobs.Job("ada", {"unit.ipynb": content, "own.csv": b"2"}, ""))
    assert [one.released for one in known] == [["data/given.csv", "unit.ipynb"]]


def test_what_was_not_handed_in_is_not_read(tmp_path):
    folder = tmp_path / "unit"
    (folder / "data").mkdir(parents=True)
    for name in ("unit.ipynb", "copy.ipynb", "data/table.csv"):
        (folder / name).write_text(name)
    (tmp_path / "secret").write_text("another student's")
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "unit-checkpoint.ipynb").write_text("looked at")
    submission = Submission("unit", "ada", folder)
    assert submission.read(10**6) == {"unit.ipynb": b"unit.ipynb", "data/table.csv": b"data/table.csv"}
    (folder / "unit.ipynb").unlink()
    (folder / "unit.ipynb").symlink_to(tmp_path / "secret")
    with pytest.raises(jobs.NotGraded, match="is a link"):
        submission.read(10**6)


def test_a_submission_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "unit.ipynb").write_text("{}")
    with open(tmp_path / "data.bin", "wb") as file:
        file.truncate(10**6)
    with pytest.raises(jobs.NotGraded, match="more than 1 MB"):
        Submission("unit", "ada", tmp_path).read(10**6)


def test_the_fingerprint_is_of_contents_and_places():
    folders = ({}, {"a": b"1"}, {"b": b"1"}, {"a": b"2"}, {"a": b"1", "b": b""}, {"a/b": b"1"}, {"ab": b"1"})
    assert len({digest(files) for files in folders}) == len(folders)
    assert digest({"a": b"1", "b": b"2"}) == digest({"b": b"2", "a": b"1"})


def test_the_table_has_a_line_for_everyone():
    entries = [
        Entry("ada", {"check_a": 2.0, "check_b": 0.5}),
        Entry("ben", {"check_a": None, "check_b": 0}),
        Entry("cem"),
    ]
    lines = table("unit", {"check_a": 2, "check_b": 1}, entries)
    assert [line.split() for line in lines if line] == [
        ["unit,", "3", "points"],
        ["student", "1", "2", "sum"],
        ["ada", "2", "0.5", "2.5"],
        ["ben", "?", "0", "0"],
        ["cem", "not", "graded"],
        ["1", "a", "(2)"],
        ["2", "b", "(1)"],
    ]


def test_progress_on_a_terminal_says_how_long_it_takes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    clock = itertools.count(0, 5)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = Progress(3)
    progress.done("ada: 3 points")
    progress.done("ben: is empty", problem=True)
    progress.done("cem: 3 points")
    progress.close()
    printed = capsys.readouterr().out
    assert "] 0 of 3" in printed
    assert "] 1 of 3, about 0:00:10 left" in printed
    assert "] 2 of 3, about 0:00:05 left" in printed
    assert "ben: is empty\n" in printed
    assert "ada" not in printed
    assert printed.endswith("3 done in 0:00:20.\n")


def test_progress_elsewhere_is_a_line_for_each(capsys):
    progress = Progress(2)
    progress.done("ada: 3 points")
    progress.done("ben: is empty", problem=True)
    assert capsys.readouterr().out == "[1/2] ada: 3 points\n[2/2] ben: is empty\n"
