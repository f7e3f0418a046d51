"""The course as nbgrader knows it: its units, the gradebook, and the folders that grading writes.

One process writes, whoever graded: what a submission came to goes into the gradebook, then into
``feedback/``, and at last into ``autograded/``, whose notebook says what it was graded from. So a run
that ends anywhere, however it ends, leaves nothing that the next one takes for complete and is not.
"""

import datetime
import hashlib
import json
import os
import pickle
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.utils import is_grade, parse_utc, rmtree
from traitlets.config import Config

from attncourse.grading import leftovers
from attncourse.grading.autograding import Log, run, snapshot
from attncourse.grading.export import TaskMarks, UnitMarks, mark
from attncourse.grading.harmless import one_line
from attncourse.grading.job import ByHand, Files, Graded, Job, NotGraded, Unit, course_version
from attncourse.grading.sanitise import file_name
from attncourse.grading.submitted import Problem, Submission, digest, read_folder

LOG = ".nbgrader.log"

# The mark of every graded cell, by its name; None where it has none.
Marks = dict[str, float | None]


class Course:
    """The course in the current folder, as its ``nbgrader_config.py`` describes it.

    Parameters
    ----------
    isolation : str or None
        What ``c.Provisioner.isolation`` is to be; None leaves it as configured.
    """

    def __init__(self, isolation: str | None = None) -> None:
        # nbgrader calls alembic by its bare name; it lies beside this interpreter.
        os.environ["PATH"] = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", "")])
        # SQLAlchemy's remarks on nbgrader's own code.
        warnings.filterwarnings("ignore", module=r"nbgrader\.")
        quiet = {"handlers": {"console": {"level": "CRITICAL"}}}
        self.app = NbGrader(config=Config({"NbGrader": {"logfile": LOG, "logging_config": quiet}}))
        self.app.raise_config_file_errors = True
        self.app.initialize([])
        self.config = Config(self.app.config)
        if isolation is not None:
            self.config.Provisioner.isolation = isolation
        self.folders = self.app.coursedir
        self.submitted = self._step("submitted")
        self.reports = Path(self.folders.root, "reports")

    @cached_property
    def gradebook(self) -> Gradebook:
        return Gradebook(self.folders.db_url, self.folders.course_id)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Keep other runs out of this folder meanwhile; False if one is going on."""
        try:
            import fcntl
        except ImportError:  # Windows
            yield True
            return
        with open(LOG, "a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
            else:
                yield True

    def units(self) -> list[str]:
        """All units that have a source notebook."""
        source = self._step("source")
        return sorted(path.parent.name for path in source.glob("*/*.ipynb") if path.stem == path.parent.name)

    def points(self, unit: str) -> dict[str, float]:
        """The graded cells of a unit, in the order of its notebook, and the points of each."""
        notebook = nbformat.read(self._source(unit) / f"{unit}.ipynb", as_version=4)
        return {
            cell.metadata.nbgrader.grade_id: float(cell.metadata.nbgrader.points)
            for cell in notebook.cells
            if is_grade(cell)
        }

    def prepare(self, unit: str) -> Unit:
        """Make the unit's cells known to the gradebook, as ``nbgrader generate_assignment`` does.

        Returns
        -------
        Unit
            What whoever grades a submission of the unit has to know of it.

        Raises
        ------
        NotGraded
            If the gradebook cannot take the cells: nbgrader refuses when graded cells were added or
            removed after the first submission was graded.
        """
        before = self.folders.assignment_id, self.folders.release_directory
        # The release itself is committed, and is not to be touched.
        with leftovers.Folder() as folder:
            self.folders.assignment_id, self.folders.release_directory = unit, folder
            try:
                run(GenerateAssignment(coursedir=self.folders, parent=self.app), Log())
            finally:
                self.folders.assignment_id, self.folders.release_directory = before
        sources = read_folder(self._source(unit))
        prepared = Unit(unit, sources, snapshot(unit, sources, self.config), self.config, course_version())
        try:
            pickle.dumps(prepared)
        except Exception as error:
            raise NotGraded(
                "nbgrader_config.py cannot be sent to the workers: classes and functions must be "
                f"imported from a module there, not defined ({error})"
            ) from error
        return prepared

    def unchanged(self, submission: Submission) -> bool | None:
        """Whether a submission was graded to the end and would come to the same again.

        None if only the course was changed since: the unit's source, or the package with its checks.

        Raises
        ------
        NotGraded
            If the submission cannot be read.
        """
        before = self.about(submission).get("graded_from", "")
        now = self._digest(submission, submission.read())
        if not self.marks(submission) or not self._output("feedback", submission).is_dir():
            return False
        if before == now:
            return True
        return None if before.partition("/")[0] == now.partition("/")[0] else False

    def job(self, submission: Submission) -> Job:
        """What whoever grades a submission needs.

        Raises
        ------
        NotGraded
            If the submission cannot be read.
        """
        files = dict(submission.read())
        fingerprint = self._digest(submission, files)
        if _timestamp(files) is None:  # nbgrader stumbles over one that is not a date
            files.pop("timestamp.txt", None)
        return Job(submission.student, files, fingerprint, self._by_hand(submission))

    def keep(self, submission: Submission, job: Job, graded: Graded, unit: Unit) -> None:
        """Write what a submission came to: see the top of this file for the order."""
        self.discard(submission)
        self._record(submission, job, graded)
        others = {
            file_name(place): content for place, content in job.files.items() if not place.endswith(".ipynb")
        }
        dated = {place: others[place] for place in ("timestamp.txt",) if place in others}
        sources = {place: content for place, content in unit.sources.items() if not place.endswith(".ipynb")}
        name = submission.unit
        feedback = GenerateFeedback(coursedir=self.folders, parent=self.app)
        autograde = Autograde(coursedir=self.folders, parent=self.app)
        self._place(submission, "feedback", {**dated, f"{name}.html": graded.feedback}, feedback.permissions)
        files = {**others, **sources, f"{name}.ipynb": graded.notebook}
        self._place(submission, "autograded", files, autograde.permissions)
        self.log(submission, graded.log)

    def discard(self, submission: Submission) -> None:
        """Remove what an earlier submission came to, but for its marks in the gradebook."""
        for step in ("autograded", "feedback"):
            folder = self._output(step, submission)
            if folder.exists():
                rmtree(str(folder))

    def log(self, submission: Submission, lines: str) -> None:
        if lines:
            said = [f"{submission.student}, {submission.unit}:", *lines.splitlines()]
            self.app.log.warning("%s", "\n".join(map(one_line, said)))

    def marks(self, submission: Submission) -> Marks:
        """The marks that the gradebook has for a submission; empty if it knows none."""
        with self._row(submission) as row:
            found = {grade.name: mark(grade) for grade in row.grades} if row else {}
        return found

    def remarks(self, submission: Submission) -> Iterator[Problem]:
        """What a person should look at in a graded submission."""
        place = f"{submission.student}, {submission.unit}"
        for flag in self.about(submission).get("flags", ()):
            yield Problem(place, ": ".join(filter(None, (flag["cell"], flag["words"]))), False)
        missing = ", ".join(name for name, found in self.marks(submission).items() if found is None)
        if missing:
            yield Problem(place, f"no mark for {missing}: a person has to give it", False)
        timestamp = submission.folder / "timestamp.txt"
        if timestamp.is_file() and _timestamp({timestamp.name: timestamp.read_bytes()}) is None:
            yield Problem(place, "timestamp.txt holds no date: graded as if there were none", False)

    def about(self, submission: Submission) -> dict[str, Any]:
        """What the autograded notebook says about its grading; nothing if it is not complete."""
        notebook = self._output("autograded", submission) / f"{submission.unit}.ipynb"
        try:
            return json.loads(notebook.read_bytes())["metadata"].get("attncourse", {})
        except (OSError, ValueError, KeyError):
            return {}

    def export(self) -> list[str]:
        """Write everyone's marks, by unit and by task, and return the names of the files."""
        UnitMarks(parent=self.app).export(self.gradebook)
        TaskMarks(parent=self.app).export(self.gradebook)
        self.gradebook.db.remove()
        return ["grades.csv", "grades_by_task.csv"]

    def _record(self, submission: Submission, job: Job, graded: Graded) -> None:
        gradebook, unit, student = self.gradebook, submission.unit, submission.student
        try:
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(unit, student)
            row = gradebook.find_submission_notebook(unit, unit, student)
            row.assignment.timestamp = _timestamp(job.files)
            row.late_submission_penalty = graded.penalty
            for grade in row.grades:
                grade.auto_score = graded.marks[grade.name]
                # As nbgrader does: a mark given by hand stays, and is to be looked at again.
                grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
            for comment in row.comments:
                comment.auto_comment = graded.comments[comment.name]
            gradebook.db.commit()
        finally:
            # Forgets what was read, too, or the memory of a large class would pile up.
            gradebook.db.remove()

    def _by_hand(self, submission: Submission) -> ByHand:
        with self._row(submission) as row:
            if row is None:
                duedate = self.gradebook.find_assignment(submission.unit).duedate
                return ByHand(duedate)
            return ByHand(
                row.assignment.assignment.duedate,
                row.assignment.extension,
                {grade.name: (grade.manual_score, grade.extra_credit) for grade in row.grades},
                {comment.name: comment.manual_comment for comment in row.comments},
            )

    @contextmanager
    def _row(self, submission: Submission) -> Iterator[Any]:
        """The gradebook's row for a submission, to read from; None where there is none."""
        unit = submission.unit
        try:
            row = self.gradebook.find_submission_notebook(unit, unit, submission.student)
        except MissingEntry:
            row = None
        try:
            yield row
        finally:
            self.gradebook.db.remove()

    def _place(self, submission: Submission, step: str, files: Files, permissions: int) -> None:
        """Write a folder under another name, and give it its own when it is complete."""
        folder = self._output(step, submission)
        part = folder.with_name(f".{folder.name}.part")
        if part.exists():
            rmtree(str(part))
        for place, content in files.items():
            path = part / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(int(str(permissions), 8))
        part.rename(folder)

    def _digest(self, submission: Submission, files: Files) -> str:
        """A fingerprint of the submission and, after a slash, one of what it is graded by."""
        course = digest(read_folder(self._source(submission.unit))) + course_version()
        return f"{digest(files)}/{hashlib.sha256(course.encode()).hexdigest()}"

    def _step(self, step: str) -> Path:
        return Path(self.folders.root, getattr(self.folders, f"{step}_directory"))

    def _source(self, unit: str) -> Path:
        return self._step("source") / unit

    def _output(self, step: str, submission: Submission) -> Path:
        return self._step(step) / submission.student / submission.unit


def _timestamp(files: Files) -> datetime.datetime | None:
    """The time of the hand-in, in UTC, if there is one that can be read."""
    try:
        return parse_utc(files["timestamp.txt"].decode().strip())
    except (KeyError, ValueError, OverflowError):
        return None
