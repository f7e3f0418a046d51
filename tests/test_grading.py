"""A class of students is graded: by nbgrader's own commands, and by ``python -m attncourse.grading``."""

import ast
import copy
import csv
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from nbgrader.api import Gradebook

from attncourse import checks
from attncourse.grading.__main__ import Progress, grade, main, table
from attncourse.grading.answers import right_answers, source_of
from attncourse.grading.course import NotGraded
from attncourse.grading.submitted import Submission, look_through

ROOT = Path(__file__).parents[1]
UNITS = sorted(path.parent.name for path in ROOT.glob("solutions/*/*.ipynb"))
# Long enough to import torch on a busy machine; as long as every endless loop makes us wait.
TIMEOUT = 10


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
        return {task: task.misconceptions[number] for task in self.tasks if number < len(task.misconceptions)}


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


def the_class(exercise):
    """Every kind of student, with the marks that each must get."""
    names = [task.name for task in exercise.tasks]
    first, last = names[0], names[-1]
    half = names[: len(names) // 2]
    students = {
        "by_the_solutions": Student(exercise.filled(solutions_of(exercise)), exercise.marks()),
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
            exercise.filled({**exercise.right, last: f"def {last}(*args):\n    while True:\n        pass"}),
            exercise.marks(wrong=[last]),
        ),
        "renamed_arguments": Student(
            exercise.filled({name: with_other_arguments(source) for name, source in exercise.right.items()}),
            exercise.marks(),
        ),
        "without_a_check": Student(
            exercise.filled(exercise.right), {**exercise.marks(), f"check_{first}": None}
        ),
    }
    deleted = students["without_a_check"].notebook
    deleted.cells.remove(cells(deleted)[f"check_{first}"])
    for number in range(max(len(right_answers(task)) for task in exercise.tasks)):
        answers = {}
        for task in exercise.tasks:
            variants = right_answers(task)
            answers[task.name] = source_of(variants[number % len(variants)], task.name)
        students[f"right_{number:02}"] = Student(exercise.filled(answers), exercise.marks())
    for number in range(max(len(task.misconceptions) for task in exercise.tasks)):
        wrong = exercise.misconceptions(number)
        answers = {task.name: source_of(mistake.function, task.name) for task, mistake in wrong.items()}
        students[f"wrong_{number:02}"] = Student(
            exercise.filled({**exercise.right, **answers}),
            exercise.marks(wrong=answers),
            [mistake.label for mistake in wrong.values()],
        )
    return students


def solutions_of(exercise):
    return {task.name: exercise.solved[task.name] for task in exercise.tasks}


# --- a course in a folder of its own ---


def new_course(folder):
    for name in ("solutions", "exercises"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    config = (ROOT / "nbgrader_config.py").read_text()
    (folder / "nbgrader_config.py").write_text(f"{config}\nc.Execute.timeout = {TIMEOUT}\n")
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


def feedback_in(course, unit, student):
    html = (course / "feedback" / student / unit / f"{unit}.html").read_text(encoding="utf-8")
    return BeautifulSoup(html, "html.parser").get_text()


# --- nbgrader's own commands ---


@dataclass
class Graded:
    folder: Path
    exercise: Exercise
    students: dict
    runs: dict


@pytest.fixture(scope="module", params=UNITS)
def graded(request, tmp_path_factory):
    """A whole class, graded once by the commands that the README gives."""
    unit = request.param
    folder = new_course(tmp_path_factory.mktemp("course"))
    exercise = Exercise(unit)
    students = the_class(exercise)
    for name, student in students.items():
        hand_in(folder, name, unit, student.notebook)
    hand_in(folder, "unreadable", unit, "not a notebook")
    hand_in(folder, "elsewhere", "unknown_unit", exercise.release)
    (folder / "submitted" / "notes.txt").write_text("not a submission")
    runs = {
        command: run(folder, "nbgrader", command, *arguments)
        for command, *arguments in (
            ("generate_assignment", unit, "--force"),
            ("autograde", unit),
            ("generate_feedback", unit),
            ("export",),
        )
    }
    return Graded(folder, exercise, students, runs)


def test_nbgraders_commands_succeed_but_for_the_unreadable_notebook(graded):
    status = {command: done.returncode for command, done in graded.runs.items()}
    assert status == {"generate_assignment": 0, "autograde": 1, "generate_feedback": 0, "export": 0}
    failed = [line for line in graded.runs["autograde"].stderr.splitlines() if "error processing" in line]
    assert failed
    assert all("unreadable" in line for line in failed)


def test_the_class_is_large_enough(graded):
    assert len(graded.students) >= 12
    recognised = sum(len(student.labels) for student in graded.students.values())
    assert recognised == sum(len(task.misconceptions) for task in graded.exercise.tasks)


def test_everyone_gets_the_marks_of_every_task(graded):
    unit = graded.exercise.unit
    found = {name: marks_in(graded.folder, unit, name) for name in graded.students}
    assert found == {name: student.marks for name, student in graded.students.items()}


def test_a_deleted_check_waits_for_a_person(graded):
    # What nbgrader does by itself: no mark, and the notebook is listed for manual grading.
    with Gradebook(f"sqlite:///{graded.folder}/gradebook.db", "attncourse") as gradebook:
        unit = graded.exercise.unit
        notebook = gradebook.find_submission_notebook(unit, unit, "without_a_check")
        assert [grade.name for grade in notebook.grades if grade.needs_manual_grade] == [
            f"check_{graded.exercise.tasks[0].name}"
        ]


def test_the_exported_sums_are_those_of_the_marks(graded):
    with open(graded.folder / "grades.csv", newline="") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    for name, student in graded.students.items():
        assert float(rows[name]["score"]) == sum(mark or 0 for mark in student.marks.values())
        assert float(rows[name]["max_score"]) == sum(graded.exercise.points.values())


def test_feedback_names_every_misconception(graded):
    for name, student in graded.students.items():
        text = feedback_in(graded.folder, graded.exercise.unit, name)
        for label in student.labels:
            assert f"This looks like: {label}." in text, name
        if not student.labels:
            assert "This looks like:" not in text, name


def test_feedback_gives_no_solution_away(graded):
    text = feedback_in(graded.folder, graded.exercise.unit, "blank")
    assert "SOLUTION" not in text
    released = {line.strip() for cell in graded.exercise.release.cells for line in cell.source.splitlines()}
    solved = {
        line.strip() for source in solutions_of(graded.exercise).values() for line in source.splitlines()
    }
    hidden = {line for line in solved - released if len(line) > 20}
    assert hidden
    assert not {line for line in hidden if line in text}


def test_nobody_waits_for_those_who_handed_in_something_else(graded):
    assert not (graded.folder / "autograded" / "unreadable").exists() or not list(
        (graded.folder / "autograded" / "unreadable").rglob("*.ipynb")
    )
    assert not (graded.folder / "autograded" / "elsewhere").exists()


# --- python -m attncourse.grading ---


def command(course, *arguments):
    # By path only: nothing of this environment is on PATH, as when no environment is active.
    return run(course, sys.executable, "-m", "attncourse.grading", *arguments, path="/usr/bin:/bin")


def test_the_command_grades_reports_and_goes_on(tmp_path):
    course = new_course(tmp_path)
    unit = UNITS[0]
    exercise = Exercise(unit)
    students = the_class(exercise)
    handed_in = {
        name: hand_in(course, name, unit, students[name].notebook) for name in ("wrong_00", "endless")
    }
    handed_in["by_the_solutions"] = hand_in(
        course, "by_the_solutions", unit, students["by_the_solutions"].notebook
    )
    unreadable = hand_in(course, "unreadable", unit, "not a notebook")
    stray = course / "submitted" / "notes.txt"
    stray.write_text("not a submission")
    unknown = hand_in(course, "elsewhere", "unknown_unit", exercise.release)
    released = (course / "exercises" / unit / f"{unit}.ipynb").stat()

    done = command(course)
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    for name in handed_in:
        assert marks_in(course, unit, name) == students[name].marks
        assert (course / "feedback" / name / unit / f"{unit}.html").exists()
        total = sum(students[name].marks.values())
        assert f"{name}, {unit}: {total:g} of {sum(exercise.points.values()):g} points\n" in done.stdout
    problems = done.stdout.partition("To look at")[2]
    assert f"submitted/unreadable/{unit}/{unit}.ipynb: is not a notebook: it is not JSON" in problems
    assert "submitted/notes.txt: is a stray file" in problems
    assert "submitted/elsewhere/unknown_unit: is no unit of this course" in problems
    last = exercise.tasks[-1].name
    assert f"endless, {unit}: check_{last} did not come to an end in time" in problems
    assert "wrong_00" not in problems
    # The release is as it was: not even written again.
    assert (course / "exercises" / unit / f"{unit}.ipynb").stat() == released
    with open(course / "grades_by_task.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["student_id"] == "wrong_00"]
    assert {row["cell"]: float(row["score"]) for row in rows} == students["wrong_00"].marks

    # What went wrong is mended, one submission replaced by an older file, one run cut short.
    stray.unlink()
    shutil.rmtree(unknown.parents[1])
    unreadable.write_text(nbformat.writes(students["blank"].notebook))
    again = handed_in["wrong_00"]
    again.write_text(nbformat.writes(students["by_the_solutions"].notebook))
    os.utime(again, (0, 0))
    cut_short = course / "autograded" / "by_the_solutions" / unit / f"{unit}.ipynb"
    cut_short.unlink()
    cut_short.write_text(nbformat.writes(students["by_the_solutions"].notebook))

    done = command(course, unit)
    assert done.returncode == 0, done.stderr
    assert "endless, " in next(line for line in done.stdout.splitlines() if "unchanged" in line)
    assert done.stdout.count("unchanged") == 1
    assert marks_in(course, unit, "wrong_00") == students["by_the_solutions"].marks
    assert marks_in(course, unit, "unreadable") == students["blank"].marks
    assert "This looks like" not in feedback_in(course, unit, "wrong_00")
    assert nbformat.read(cut_short, as_version=4).metadata.attncourse

    # A worse file after a good one is not graded, and that is said. A check that was deleted
    # in the meantime does not keep its mark.
    again.write_text("")
    handed_in["endless"].write_text(nbformat.writes(students["without_a_check"].notebook))
    done = command(course)
    assert done.returncode == 1
    assert done.stdout.count("unchanged") == 2
    assert f"wrong_00/{unit}/{unit}.ipynb: is empty; the gradebook keeps an earlier mark" in done.stdout
    assert marks_in(course, unit, "endless") == students["without_a_check"].marks
    assert f"endless, {unit}: no mark for check_{exercise.tasks[0].name}" in done.stdout


def test_the_command_works_where_there_is_nothing_to_grade(tmp_path):
    course = new_course(tmp_path)
    (course / "submitted").mkdir()
    done = command(course)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing to grade")


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
    (tmp_path / "submitted" / "ada [2]").mkdir()
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
        ("ada [2]", True),
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
        (b'{"cells": 3, "nbformat": "x"}', "but not a notebook"),
    ],
)
def test_an_unreadable_notebook_is_described(content, words, tmp_path):
    (tmp_path / "unit.ipynb").write_bytes(content)
    assert words in Submission("ada", "unit", tmp_path).unreadable()


def test_a_folder_of_the_notebooks_name_is_unreadable(tmp_path):
    (tmp_path / "unit.ipynb").mkdir()
    assert "cannot be opened" in Submission("ada", "unit", tmp_path).unreadable()


def test_a_readable_notebook_is_not_complained_about(tmp_path):
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "unit.ipynb")
    assert Submission("ada", "unit", tmp_path).unreadable() is None


def test_the_fingerprint_changes_with_everything_that_the_mark_depends_on(tmp_path):
    source = tmp_path / "source.ipynb"
    folder = tmp_path / "unit"
    folder.mkdir()
    submission = Submission("ada", "unit", folder)
    seen = set()
    for path, content in (
        (source, "source"),
        (submission.notebook, "answer"),
        (submission.notebook, "better answer"),
        (folder / "timestamp.txt", "2026-01-01"),
        (source, "harder source"),
    ):
        path.write_text(content)
        seen.add(submission.digest(source))
    assert len(seen) == 5
    (folder / ".ipynb_checkpoints").mkdir()
    (folder / ".ipynb_checkpoints" / "unit-checkpoint.ipynb").write_text("looked at")
    assert submission.digest(source) in seen


class Rehearsal:
    """A course in which nothing is run: it says what it was asked to do."""

    def __init__(self):
        self.asked = []

    def prepare(self, unit):
        if unit == "broken":
            raise NotGraded("cells were removed")

    def points(self, unit):
        return {"check_a": 2}

    def is_graded(self, submission):
        return submission.student == "done"

    def grade(self, submission):
        self.asked.append(submission.student)
        if submission.student == "locked":
            raise PermissionError("permission denied")

    def give_feedback(self, submission):
        pass

    def marks(self, submission):
        return {"check_a": 1.5}

    def remarks(self, submission):
        return []


@pytest.mark.parametrize(("force", "asked"), [(False, ["locked", "new"]), (True, ["done", "locked", "new"])])
def test_one_after_the_other_whatever_happens_to_them(force, asked, capsys):
    students = [Submission(name, "unit", Path(name)) for name in ("done", "locked", "new")]
    course = Rehearsal()
    lines, problems = grade(course, [Submission("ada", "broken", Path("ada")), *students], force=force)
    assert course.asked == asked
    assert [(problem.place, problem.words) for problem in problems] == [
        ("broken", "is not graded at all: cells were removed"),
        ("locked/unit.ipynb", "permission denied; the gradebook keeps an earlier mark"),
    ]
    assert "new, unit: 1.5 of 2 points" in capsys.readouterr().out
    assert [line.split()[-1] for line in lines if line.startswith(("done", "locked", "new"))] == [
        "1.5",
        "graded",
        "1.5",
    ]


def test_the_table_has_a_line_for_everyone():
    rows = {
        "ada": {"check_a": 2.0, "check_b": 0.5},
        "ben": {"check_a": None, "check_b": 0},
    }
    lines = table("unit", {"check_a": 2, "check_b": 1}, {**rows, "cem": None})
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
    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    progress = Progress(3)
    for student in ("ada", "ben", "cem"):
        submission = Submission(student, "unit", Path(student))
        progress.begin(submission)
        progress.end(submission, "3 points")
    progress.close()
    printed = capsys.readouterr().out
    assert "[2/3] ben, about 0:00:10 left" in printed
    assert "[3/3] cem, about 0:00:05 left" in printed
    assert printed.endswith("15 s for 3 notebooks.\n")
