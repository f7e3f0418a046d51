"""A hostile class, graded once beside honest students: every kind gets what it must, and nothing else."""

import csv
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil
import pytest
from hostile import ALL, BEFORE, FLAGGED, OTHERS, UNGRADED, Sheet, kinds, write
from nbformat.v4 import new_markdown_cell
from nbgrader.api import Gradebook

from attncourse.grading.simulate import Exercise

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNIT = "attention_operator"
# Tasks before the one that is spoilt, which is the third, and after it.
LAST = "check_picking_query"
HONEST = 2
# As small as lets honest cells come to their end: what never ends is waited for as long.
LIMITS = """
c.Execute.timeout, c.Execute.grace, c.Execute.notebook_timeout, c.Execute.seeds = 3, 3, 30, 2
c.Execute.slower = 3.0
c.Provisioner.memory, c.Provisioner.reading = 1 << 30, 200 << 20
"""
# What must not come out again where it does not belong.
CANARIES = {
    name: f"canary-of-the-{name}" for name in ("solutions", "gradebook", "environment", "student", "marks")
}
PLACES = [Path(place) for place in ("/", "/tmp", "/var/tmp", "/dev/shm", Path.home(), sys.prefix)]
# What only a jail prevents. Everything else holds without one, too.
NEEDS_JAIL = {
    "connects",
    "fork-bomb",
    "kills-its-parent",
    "links-out",
    "reads-other-students",
    "reads-the-environment",
    "reads-the-gradebook",
    "reads-the-solutions",
    "writes-outside",
    "writes-the-gradebook",
}


@dataclass(repr=False)
class HostileClass:
    folder: Path
    points: dict
    task: str
    run: subprocess.CompletedProcess
    marks: dict
    calls: list
    left: list
    before: dict

    def remarks(self, student):
        """What grading has noted in a student's notebook; None if it was not graded."""
        path = self.folder / "autograded" / student / UNIT / f"{UNIT}.ipynb"
        if not path.exists():
            return None
        return json.loads(path.read_text(encoding="utf-8"))["metadata"]["attncourse"]


def files_in(course):
    """All files of a course that grading has no business to change."""
    tables = ("grades.csv", "grades_by_task.csv", "total.csv", "reports")
    made = ("autograded", "feedback", "gradebook.db", ".grading-secret", ".nbgrader.log", *tables)
    return {
        str(path.relative_to(course)): path.read_bytes()
        for path in course.rglob("*")
        if path.is_file() and not path.is_symlink() and path.relative_to(course).parts[0] not in made
    }


def new_course(folder):
    """A course with the beginning of one unit, whose solutions, gradebook and environment are marked."""
    for step in ("exercises", "solutions"):
        notebook = nbformat.read(ROOT / step / UNIT / f"{UNIT}.ipynb", as_version=4)
        names = [cell.metadata.get("nbgrader", {}).get("grade_id") for cell in notebook.cells]
        notebook.cells = notebook.cells[: names.index(LAST) + 1]
        if step == "solutions":
            for cell in notebook.cells:
                mark = f"### BEGIN SOLUTION\n    # {CANARIES['solutions']}"
                cell.source = cell.source.replace("### BEGIN SOLUTION", mark)
        (folder / step / UNIT).mkdir(parents=True)
        nbformat.write(notebook, folder / step / UNIT / f"{UNIT}.ipynb")
    assert CANARIES["solutions"] in nbformat.writes(notebook)
    (folder / "nbgrader_config.py").write_text((ROOT / "nbgrader_config.py").read_text() + LIMITS)
    with Gradebook(f"sqlite:///{folder}/gradebook.db", "attncourse") as gradebook:
        gradebook.add_student(CANARIES["gradebook"])


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    course = tmp_path_factory.mktemp("course")
    new_course(course)
    exercise = Exercise(UNIT, nbformat.read(course / "exercises" / UNIT / f"{UNIT}.ipynb", as_version=4))
    right = {task.name: exercise.right(task) for task in exercise.tasks}
    calls = []
    # Whoever is left behind by a process that ended becomes a child of this one.
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    ours = set(psutil.Process().children())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen():
            while True:
                try:
                    calls.append(listener.accept())
                except OSError:
                    return

        threading.Thread(target=listen, daemon=True).start()
        for number in range(1, HONEST + 1):
            notebook = exercise.filled(right)
            notebook.cells.append(new_markdown_cell(CANARIES["student"], id="mine"))
            write(
                course / "submitted" / f"student-{number:03}" / UNIT,
                {f"{UNIT}.ipynb": nbformat.writes(notebook).encode()},
            )
        for kind in kinds.values():
            sheet = Sheet(UNIT, exercise.filled(right), course, listener.getsockname()[1])
            write(course / "submitted" / f"hostile-{kind.name}" / UNIT, kind.files(sheet))
        before = files_in(course)
        run = subprocess.run(
            [sys.executable, "-m", "attncourse.grading", UNIT, "--workers", "4"],
            cwd=course,
            env={**os.environ, "OMP_NUM_THREADS": "1", "PGPASSWORD": CANARIES["environment"]},
            capture_output=True,
            text=True,
            timeout=1500,
        )
        listener.shutdown(socket.SHUT_RDWR)
    assert run.returncode in (0, 1), run.stdout + run.stderr
    left = [child for child in psutil.Process().children() if child not in ours]
    _, left = psutil.wait_procs(left, timeout=5)
    names = [" ".join(child.cmdline()) for child in left]
    for child in left:
        child.kill()
    marks = {}
    if (course / "grades_by_task.csv").exists():
        with open(course / "grades_by_task.csv", newline="") as file:
            for row in csv.DictReader(file):
                marks.setdefault(row["student_id"], {})[row["cell"]] = float(row["score"] or "nan")
    return HostileClass(course, exercise.points, sheet.task, run, marks, calls, names, before)


def test_the_batch_comes_to_its_end(graded):
    assert graded.run.returncode == 1, graded.run.stdout + graded.run.stderr
    assert graded.run.stderr == ""
    for kind in kinds.values():
        was_graded = graded.remarks(f"hostile-{kind.name}") is not None
        assert was_graded == (kind.earns != UNGRADED), kind.name


def test_honest_students_get_their_points_and_no_remark(graded):
    for number in range(1, HONEST + 1):
        student = f"student-{number:03}"
        assert graded.marks[student] == graded.points
        assert graded.remarks(student)["flags"] == []


@pytest.mark.parametrize("name", kinds)
def test_no_point_is_stolen_and_none_is_lost(graded, name):
    kind, student = kinds[name], f"hostile-{name}"
    must = kind.marks(graded.points, graded.task)
    if kind.earns == UNGRADED:
        assert student not in graded.marks or not any(mark > 0 for mark in graded.marks[student].values())
        assert f"submitted/{student}" in graded.run.stdout
        return
    remarks = graded.remarks(student)
    if name in NEEDS_JAIL and remarks["isolation"] == "process":
        pytest.skip("needs a machine on which kernels can be jailed")
    found = dict(graded.marks[student])
    spoilt = f"check_{graded.task}"
    if kind.earns == BEFORE:
        names = list(must)
        for cell in names[names.index(spoilt) + 1 :]:
            assert found[cell] in (0, graded.points[cell])
            found[cell] = 0.0
    if kind.earns == FLAGGED and remarks["flags"]:
        found[spoilt] = 0.0
    assert found == must


@pytest.mark.parametrize("name", [name for name, kind in kinds.items() if kind.earns != UNGRADED])
def test_nothing_leaks_into_what_a_student_gets(graded, name):
    student = f"hostile-{name}"
    if name in NEEDS_JAIL and graded.remarks(student)["isolation"] == "process":
        pytest.skip("needs a machine on which kernels can be jailed")
    others = [*CANARIES.values(), *(f"student-{number:03}" for number in range(1, HONEST + 1))]
    others.append((graded.folder / ".grading-secret").read_text().strip())
    for step in ("autograded", "feedback"):
        for path in (graded.folder / step / student).rglob("*"):
            if path.is_file():
                assert path.stat().st_size < 30_000_000
                text = path.read_text(encoding="utf-8", errors="replace")
                assert [secret for secret in others if secret in text] == []


def jailed(graded):
    if graded.remarks("student-001")["isolation"] == "process":
        pytest.skip("needs a machine on which kernels can be jailed")


def test_no_file_outside_was_touched(graded):
    jailed(graded)
    assert files_in(graded.folder) == graded.before
    assert [str(place) for place in PLACES if (place / "hostile-was-here").exists()] == []


def test_no_connection_was_made(graded):
    jailed(graded)
    assert graded.calls == []


def test_no_process_is_left(graded):
    assert graded.left == []


def test_the_gradebook_says_what_the_table_says(graded):
    with Gradebook(f"sqlite:///{graded.folder}/gradebook.db", "attncourse") as gradebook:
        for student, marks in graded.marks.items():
            notebook = gradebook.find_submission_notebook(UNIT, UNIT, student)
            assert {grade.name: grade.score for grade in notebook.grades} == marks


def test_what_a_hostile_submission_must_get():
    points = {"check_a": 1.0, "check_b": 2.0, "check_c": 3.0, "check_d": 4.0}
    by_earns = {kind.earns: kind.marks(points, "c") for kind in kinds.values()}
    assert by_earns[ALL] == points
    assert by_earns[OTHERS] == {**points, "check_c": 0.0}
    assert by_earns[UNGRADED] == dict.fromkeys(points)
    assert kinds["exits-at-once"].marks(points, "c") == {**points, "check_c": 0.0, "check_d": 0.0}


def test_the_kinds_are_many_and_said():
    assert len(kinds) >= 96
    assert all(kind.words.endswith(".") for kind in kinds.values())
    assert len({kind.words for kind in kinds.values()}) == len(kinds)
