"""A course that is graded without kernels, in a tenth of the time, by everything else of nbgrader."""

import os
import re
import sqlite3
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbgrader.api import Gradebook
from nbgrader.plugins import BasePlugin
from nbgrader.preprocessors import NbGraderPreprocessor

from attncourse.grading import __main__ as grading
from attncourse.grading.autograding import outcome
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels.zygote import Zygote

UNIT = "sums"
HERE = str(Path(__file__).parent)

CONFIG = """
from nbgrader.preprocessors import AssignLatePenalties, SaveAutoGrades
from quick_course import AnHourAPoint, InThisProcess

c = get_config()
c.CourseDirectory.course_id = "quick"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.Autograde.autograde_preprocessors = [InThisProcess, SaveAutoGrades, AssignLatePenalties]
c.AssignLatePenalties.plugin_class = AnHourAPoint
c.GenerateFeedback.preprocessors = ["nbgrader.preprocessors.GetGrades", "attncourse.grading.feedback.Names"]
c.GenerateFeedback.exporter_class = "attncourse.grading.feedback.FeedbackExporter"
"""

RIGHT = {"add": "def add(a, b):\n    return a + b", "double": "def double(a):\n    return add(a, a)"}
WRONG = {**RIGHT, "double": "def double(a):\n    return a"}
MARKS = {"check_add": 2.0, "check_double": 3.0, "essay": None}


class InThisProcess(NbGraderPreprocessor):
    """Runs the cells where nbgrader is running: what a student writes can hang it and kill it."""

    def preprocess(self, nb, resources):
        names: dict = {}
        for cell in nb.cells:
            if cell.cell_type == "code":
                try:
                    exec(cell.source, names)
                except Exception as error:
                    cell.outputs = [new_output("error", ename=type(error).__name__, evalue="", traceback=[])]
        return nb, resources


class Lost(NbGraderPreprocessor):
    """Ends as if the kernel had been killed, as often as a file has letters that the first cell may name."""

    def preprocess(self, nb, resources):
        named = re.search("# lost: (.*)", nb.cells[0].source)
        counter = named and Path(named[1])
        if counter and (left := counter.read_text()):
            counter.write_text(left[1:])
            raise NotGraded("lost its process", again=True)
        return nb, resources


class AnHourAPoint(BasePlugin):
    """A point off for each hour that a submission is late, but not for ada."""

    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return 0 if student_id == "ada" else total_seconds_late // 3600


def source():
    """The unit's notebook as instructors write it."""

    def cell(make, text, name, points=None, *, solution=False):
        nbgrader = {"schema_version": 3, "grade_id": name, "grade": points is not None, "solution": solution}
        nbgrader |= {"locked": not solution, "task": False}
        if points is not None:
            nbgrader["points"] = points
        return make(text, metadata={"nbgrader": nbgrader}, id=name.replace("_", "-"))

    def solved(name):
        head, body = RIGHT[name].split("\n")
        return f"{head}\n    ### BEGIN SOLUTION\n{body}\n    ### END SOLUTION"

    return new_notebook(
        cells=[
            cell(new_code_cell, solved("add"), "add", solution=True),
            cell(new_code_cell, "assert add(2, 3) == 5", "check_add", 2),
            cell(new_code_cell, solved("double"), "double", solution=True),
            cell(new_code_cell, "assert double(4) == 8", "check_double", 3),
            cell(new_markdown_cell, "What is a sum?", "essay", 4, solution=True),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )


def answered(**answers):
    """The notebook of a student who has written these cells, and something into the essay."""
    notebook = source()
    for cell in notebook.cells:
        cell.source = {"essay": "A number.", **answers}.get(cell.metadata.nbgrader.grade_id, cell.source)
    return notebook


def one_by_one(work, *_):
    """What grades a course in this process, to be put in place of `on_this_machine`."""
    for submission, unit, job in work:
        yield submission, unit, job, outcome(unit, job)


def without_kernels(arguments):
    """The command, to be given in a process of its own: it starts nothing that starts kernels."""
    Zygote.get = lambda: None
    return grading.main(arguments)


def new_course(folder, config=""):
    (folder / "solutions" / UNIT).mkdir(parents=True)
    nbformat.write(source(), folder / "solutions" / UNIT / f"{UNIT}.ipynb")
    (folder / "nbgrader_config.py").write_text(CONFIG + config)
    with closing(sqlite3.connect(folder / "gradebook.db")) as database:
        # In a database without tables nbgrader notes its version, which takes it seconds to find out.
        database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
    return folder


def hand_in(course, student, answers=RIGHT, timestamp=None):
    folder = course / "submitted" / student / UNIT
    folder.mkdir(parents=True, exist_ok=True)
    nbformat.write(answered(**answers), folder / f"{UNIT}.ipynb")
    if timestamp:
        (folder / "timestamp.txt").write_text(timestamp)
    return folder / f"{UNIT}.ipynb"


def environment(**more):
    """That of a process that finds this module, and no settings of the user."""
    path = os.pathsep.join(filter(None, [HERE, *sys.path]))
    ours = {"OMP_NUM_THREADS": "1", "PYTHONPATH": path, "JUPYTER_CONFIG_DIR": os.devnull}
    return {**os.environ, **ours, **more}


def enter(course, url=None):
    """What an instructor may have entered before grading."""
    with gradebook_of(course, url) as gradebook:
        gradebook.update_or_create_assignment(UNIT, duedate="2026-03-01 12:00:00 UTC")
        gradebook.update_or_create_student("dan")
        gradebook.update_or_create_submission(UNIT, "dan", extension=timedelta(hours=2))
        gradebook.db.commit()


def gradebook_of(course, url=None):
    return Gradebook(url or f"sqlite:///{course}/gradebook.db", "quick")


def all_marks(course, url=None):
    """Everybody's automatic marks."""
    with gradebook_of(course, url) as gradebook:
        return {
            submission.student_id: {grade.name: grade.auto_score for grade in submission.notebooks[0].grades}
            for submission in gradebook.assignment_submissions(UNIT)
        }


def everything(course, url=None):
    """All that the gradebook knows about the submissions, but for the names of its rows."""
    with gradebook_of(course, url) as gradebook:
        return {
            submission.student_id: (
                submission.timestamp,
                submission.score,
                submission.late_submission_penalty,
                submission.needs_manual_grade,
                sorted(
                    (one.name, one.auto_score, one.manual_score, one.extra_credit, one.needs_manual_grade)
                    for one in submission.notebooks[0].grades
                ),
                sorted(
                    (one.name, one.auto_comment, one.manual_comment)
                    for one in submission.notebooks[0].comments
                ),
            )
            for submission in gradebook.assignment_submissions(UNIT)
        }
