"""Grading one submission after the other with nbgrader's own converters and gradebook."""

import csv
import logging
import os
import sysconfig
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.plugins import CsvExportPlugin, ExportPlugin
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, rmtree
from traitlets import Unicode
from traitlets.config import Config

from attncourse.grading.submitted import Problem, Submission

LOG = ".nbgrader.log"


# The mark of every graded cell, by its name; None where it has none.
Marks = dict[str, float | None]


class NotGraded(Exception):
    """A submission could not be graded; the message says why, and is meant for the instructor."""


class Stamp(NbGraderPreprocessor):
    """Notes in an autograded notebook what it was graded from.

    It runs last, so a notebook that has it was graded to the end.
    """

    digest = Unicode(help="fingerprint of the submission").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        nb.metadata["attncourse"] = {"graded_from": self.digest}
        return nb, resources


class TaskMarks(ExportPlugin):
    """A table with one row for each student and graded cell.

    nbgrader's own command writes it, too:
    ``nbgrader export --exporter=attncourse.grading.course.TaskMarks --to=grades_by_task.csv``.
    """

    def export(self, gradebook: Gradebook) -> None:
        with open(self.to or "grades_by_task.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["assignment", "student_id", "cell", "score", "max_score"])
            for assignment in gradebook.assignments:
                for submission in sorted(assignment.submissions, key=lambda one: one.student_id):
                    for grade in (grade for notebook in submission.notebooks for grade in notebook.grades):
                        row = (assignment.name, submission.student_id, grade.name)
                        writer.writerow([*row, _score(grade), grade.max_score])


class Course:
    """The course in the current folder, as its ``nbgrader_config.py`` describes it."""

    def __init__(self) -> None:
        # nbgrader calls alembic by its bare name; it lies beside this interpreter.
        os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
        # SQLAlchemy's remarks on nbgrader's own code.
        warnings.filterwarnings("ignore", module=r"nbgrader\.")
        quiet = {"handlers": {"console": {"level": "CRITICAL"}}}
        self.app = NbGrader(config=Config({"NbGrader": {"logfile": LOG, "logging_config": quiet}}))
        self.app.raise_config_file_errors = True
        self.app.initialize([])
        self.folders = self.app.coursedir
        self.submitted = self._step("submitted")

    def units(self) -> list[str]:
        """All units that have a source notebook."""
        source = self._step("source")
        return sorted(path.parent.name for path in source.glob("*/*.ipynb") if path.stem == path.parent.name)

    def points(self, unit: str) -> dict[str, float]:
        """The graded cells of a unit, in the order of its notebook, and the points of each."""
        notebook = nbformat.read(self._source(unit), as_version=4)
        return {
            cell.metadata.nbgrader.grade_id: float(cell.metadata.nbgrader.points)
            for cell in notebook.cells
            if is_grade(cell)
        }

    def prepare(self, unit: str) -> None:
        """Make the unit's cells known to the gradebook, as ``nbgrader generate_assignment`` does.

        Raises
        ------
        NotGraded
            If the gradebook cannot take them: nbgrader refuses when graded cells were added or
            removed after the first submission was graded.
        """
        # The release itself is committed, and is not to be touched.
        with tempfile.TemporaryDirectory() as folder, self._set(assignment_id=unit, release_directory=folder):
            self._run(GenerateAssignment(coursedir=self.folders, parent=self.app))

    def is_graded(self, submission: Submission) -> bool:
        """Whether exactly this submission was graded already, to the end."""
        try:
            notebook = nbformat.read(self._output("autograded", submission, "ipynb"), as_version=4)
        except Exception:
            return False
        graded_from = notebook.metadata.get("attncourse", {}).get("graded_from")
        return graded_from == submission.digest(self._source(submission.unit))

    def grade(self, submission: Submission) -> None:
        """Autograde one submission, whatever was there before.

        Raises
        ------
        NotGraded
        """
        # Feedback on an earlier submission must not outlive it.
        feedback = self._output("feedback", submission, "html").parent
        if feedback.exists():
            rmtree(feedback)
        reason = submission.unreadable()
        if reason is not None:
            raise NotGraded(reason)
        # nbgrader would leave the mark of an earlier submission where this one lacks the check.
        with self._grades(submission) as grades:
            for grade in grades:
                grade.auto_score = None
                grade.needs_manual_grade = True
        with self._set(assignment_id=submission.unit, student_id=submission.student):
            converter = Autograde(coursedir=self.folders, parent=self.app)
            converter.force = True
            converter.autograde_preprocessors = [*converter.autograde_preprocessors, Stamp]
            converter.update_config(
                Config({"Stamp": {"digest": submission.digest(self._source(submission.unit))}})
            )
            if "extra_arguments" not in converter.config.Execute:
                # Every kernel would warn on this terminal that it talks over TCP, unencrypted.
                converter.update_config(Config({"Execute": {"extra_arguments": ["--log-level=CRITICAL"]}}))
            self._run(converter)

    def give_feedback(self, submission: Submission) -> None:
        """Write the feedback on a graded submission, unless it is there.

        Raises
        ------
        NotGraded
        """
        with self._set(assignment_id=submission.unit, student_id=submission.student):
            self._run(GenerateFeedback(coursedir=self.folders, parent=self.app))

    def remarks(self, submission: Submission) -> Iterator[Problem]:
        """What is odd about a graded submission: cells that were stopped, cells without a mark."""
        notebook = nbformat.read(self._output("autograded", submission, "ipynb"), as_version=4)
        place = f"{submission.student}, {submission.unit}"
        for cell in notebook.cells:
            if any(output.get("ename") == "CellTimeoutError" for output in cell.get("outputs", ())):
                name = cell.metadata.get("nbgrader", {}).get("grade_id", cell.get("id", "a cell"))
                yield Problem(place, f"{name} did not come to an end in time and was stopped", False)
        missing = ", ".join(name for name, mark in self.marks(submission).items() if mark is None)
        if missing:
            yield Problem(place, f"no mark for {missing}: not in the notebook that was handed in", False)

    def marks(self, submission: Submission) -> Marks:
        """The marks that the gradebook has for a submission."""
        with self._grades(submission) as grades:
            found = {grade.name: _score(grade) for grade in grades}
        return {name: found.get(name) for name in self.points(submission.unit)}

    def export(self) -> list[str]:
        """Write everyone's marks, by unit and by task, and return the names of the files."""
        with self._gradebook() as gradebook:
            CsvExportPlugin(parent=self.app).export(gradebook)
            TaskMarks(parent=self.app).export(gradebook)
        return ["grades.csv", "grades_by_task.csv"]

    def _gradebook(self) -> Gradebook:
        return Gradebook(self.folders.db_url, self.folders.course_id)

    @contextmanager
    def _grades(self, submission: Submission) -> Iterator[list[Any]]:
        """The gradebook's rows for a submission; what is changed in them is kept."""
        with self._gradebook() as gradebook:
            try:
                unit, student = submission.unit, submission.student
                grades = gradebook.find_submission_notebook(unit, unit, student).grades
            except MissingEntry:
                grades = []
            yield grades
            gradebook.db.commit()

    def _step(self, step: str) -> Path:
        return Path(self.folders.root, getattr(self.folders, f"{step}_directory"))

    def _source(self, unit: str) -> Path:
        return self._step("source") / unit / f"{unit}.ipynb"

    def _output(self, step: str, submission: Submission, suffix: str) -> Path:
        return self._step(step) / submission.student / submission.unit / f"{submission.unit}.{suffix}"

    @contextmanager
    def _set(self, **names: str) -> Iterator[None]:
        before = {name: getattr(self.folders, name) for name in names}
        for name, value in names.items():
            setattr(self.folders, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                setattr(self.folders, name, value)

    def _run(self, converter: Autograde | GenerateAssignment | GenerateFeedback) -> None:
        causes = _Causes()
        self.app.log.addHandler(causes)
        try:
            converter.start()
        except (Exception, SystemExit) as error:
            raise NotGraded(causes.first or str(error) or type(error).__name__) from error
        finally:
            self.app.log.removeHandler(causes)


class _Causes(logging.Handler):
    """Keeps the last line of the first traceback, or else of the first error, that nbgrader logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record.getMessage().strip())

    @property
    def first(self) -> str:
        tracebacks = [error for error in self.errors if error.startswith("Traceback")]
        return next(iter(tracebacks + self.errors), "").rpartition("\n")[2]


def _score(grade: Any) -> float | None:
    """The mark as it counts, None where neither a check nor a person has given one."""
    return None if grade.auto_score is None and grade.manual_score is None else grade.score
