"""The course as nbgrader knows it: its units, the gradebook, and the folders that grading writes.

One process writes, whoever graded: what a submission came to goes into the gradebook, then into
``autograded/``, whose notebook says what it was graded from, and at last its page into ``feedback/``, which
says what it was made from. So a run that ends anywhere, however it ends, leaves nothing that the next one
takes for complete and is not.
"""

import argparse
import datetime
import hashlib
import json
import logging
import os
import pickle
import re
import sqlite3
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import nbformat
from nbgrader.api import Gradebook, MissingEntry
from nbgrader.apps import NbGrader
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.preprocessors import AssignLatePenalties
from nbgrader.utils import is_grade, is_solution, parse_utc, rmtree
from traitlets.config import Config
from traitlets.utils.importstring import import_item

from attncourse.checks.task import registry, source_of
from attncourse.checks.verdict import link
from attncourse.grading import leftovers, rules, secret
from attncourse.grading.adapt import adapt
from attncourse.grading.answers import right_answers
from attncourse.grading.autograding import Log, run, snapshot
from attncourse.grading.by_hand import set_aside
from attncourse.grading.feedback import fingerprint
from attncourse.grading.harmless import one_line
from attncourse.grading.job import Files, Graded, Job, Limits, NotGraded, Page, PageJob, Unit, course_version
from attncourse.grading.marks import TaskMarks, TotalMarks, UnitMarks, everyone, mark
from attncourse.grading.repair import told
from attncourse.grading.sanitise import file_names
from attncourse.grading.submitted import Problem, Submission, as_known, digest, read_folder, spelled
from attncourse.grading.term import Term, UnitResults
from attncourse.grading.trouble import advice

LOG = ".nbgrader.log"

# Of a submission, what nbgrader's exchange needs to give its feedback back.
FOR_RELEASE = ("timestamp.txt", "submission_secret.txt")

# Beside a page of feedback, a fingerprint of all that it was made from.
MADE_FROM = ".made_from"

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
        quiet = {
            "handlers": {"console": {"level": "CRITICAL"}},
            # By this one nbgrader's gradebook tells what it raises.
            "loggers": {"tornado.application": {"level": "CRITICAL"}},
        }
        self.app = NbGrader(config=Config({"NbGrader": {"logfile": LOG, "logging_config": quiet}}))
        self.app.raise_config_file_errors = True
        self.app.initialize([])
        self.config = Config(self.app.config)
        if isolation is not None:
            self.config.Provisioner.isolation = isolation
        self.limits = Limits(config=self.config)
        self.folders = self.app.coursedir
        self.submitted = self._step("submitted")
        self.reports = Path(self.folders.root, "reports")
        self.rules = rules.read(Path(self.folders.root), self.sources())
        # What a person should look at and no notebook knows of.
        self.problems: list[Problem] = []

    @classmethod
    def here(cls, parser: argparse.ArgumentParser, isolation: str | None = None) -> "Course":
        """The course in the current folder; if there is none, the command ends and says so."""
        if not Path("nbgrader_config.py").is_file():
            parser.error(f"no nbgrader_config.py in {Path.cwd()}: run this in the folder of the course")
        logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
        try:
            return cls(isolation)
        except rules.Unusable as reason:
            parser.error(one_line(str(reason)))
        except Exception as error:
            words = advice(error) or f"nbgrader_config.py cannot be used: {type(error).__name__}: {error}"
            parser.error(one_line(words))

    def chosen(self, units: Sequence[str], parser: argparse.ArgumentParser) -> list[str]:
        """The units that a command was given, or all; an unknown one ends the command."""
        known = self.units()
        for unit in units:
            if unit not in known:
                parser.error(f"no unit is called {unit!r}: the course has {', '.join(known) or 'none'}")
        return sorted(set(units)) or known

    @cached_property
    def gradebook(self) -> Gradebook:
        # SQLite takes an empty file for a new gradebook, and marks by hand would be gone without a word.
        path = Path(self.folders.db_url.removeprefix("sqlite:///"))
        if path.is_file() and not path.stat().st_size and any(self._step("autograded").glob("*/*")):
            raise sqlite3.DatabaseError("file is empty, and not a database")
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
        """The units that are taught: those that the rules name, or else all."""
        return sorted(self.rules.units) or self.sources()

    def sources(self) -> list[str]:
        """All units that have a source notebook."""
        source = self._step("source")
        return sorted(path.parent.name for path in source.glob("*/*.ipynb") if path.stem == path.parent.name)

    def points(self, unit: str) -> dict[str, float]:
        """The graded cells of a unit, in the order of its notebook, and the points of each."""
        return {
            cell.metadata.nbgrader.grade_id: float(cell.metadata.nbgrader.points)
            for cell in self._notebook(unit).cells
            if is_grade(cell)
        }

    def cells(self, unit: str) -> set[str]:
        """The names of a unit's cells that nbgrader knows."""
        cells = self._notebook(unit).cells
        return {cell.metadata.nbgrader.grade_id for cell in cells if "nbgrader" in cell.metadata}

    def prepare(self, unit: str) -> Unit:
        """Make the unit's cells known to the gradebook, as ``nbgrader generate_assignment`` does.

        Returns
        -------
        Unit
            What whoever grades a submission of the unit has to know of it.

        Raises
        ------
        NotGraded
            If nbgrader cannot make a release of the unit.
        """
        sources = read_folder(self._source(unit), self.limits.most_bytes)
        modules = {
            path.name: path.read_bytes()
            for path in sorted(Path(self.folders.root).glob("*.py"))
            if path.name != "nbgrader_config.py"
        }
        try:
            self.config.Execute.secret = secret.of_course(Path(self.folders.root))
        except (OSError, ValueError) as error:
            raise NotGraded(f"has no secret to draw numbers from: {error}", everyone=True) from error
        config = _portable(self.config)
        cells = snapshot(unit, sources, config)
        self._make_known(unit)
        return Unit(unit, sources, cells, config, course_version(), modules)

    def _make_known(self, unit: str) -> None:
        try:
            gone = adapt(self.gradebook, unit, self._notebook(unit))
        except MissingEntry:
            gone = []
        finally:
            self.gradebook.db.remove()
        self.problems += [Problem(unit, words, False) for words in gone]
        for words in gone:
            self.app.log.warning("%s: %s", unit, words)
        before = self.folders.assignment_id, self.folders.release_directory
        # The release itself is committed, and is not to be touched.
        with leftovers.Folder() as folder:
            self.folders.assignment_id, self.folders.release_directory = unit, folder
            try:
                run(GenerateAssignment(coursedir=self.folders, parent=self.app), Log())
            finally:
                self.folders.assignment_id, self.folders.release_directory = before

    def unchanged(self, submission: Submission) -> bool | None:
        """Whether a submission was graded to the end and would come to the same again.

        None if only the course was changed since: the unit's source, or the package with its checks.

        Raises
        ------
        NotGraded
            If the submission cannot be read.
        """
        before = self.about(submission).get("graded_from", "")
        now = self._digest(submission, submission.read(self.limits.most_bytes))
        if not self.marks(submission):
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
        files = dict(submission.read(self.limits.most_bytes))
        fingerprint = self._digest(submission, files)
        if _timestamp(files) is None:  # nbgrader stumbles over one that is not a date
            files.pop("timestamp.txt", None)
        return Job(submission.student, files, fingerprint)

    def keep(self, submission: Submission, job: Job, graded: Graded, unit: Unit) -> None:
        """Write what a submission came to: see the top of this file for the order."""
        before = self._graded_notebook(submission)
        self.discard(submission)
        handed_in = {place: job.files[place] for place in job.files if not place.endswith(".ipynb")}
        others = {name: handed_in[place] for place, name in file_names(handed_in).items()}
        same_files = before is None or self._same_files(submission, others, unit.sources)
        notebook = self._record(submission, job, graded, before, same_files)
        sources = {place: content for place, content in unit.sources.items() if not place.endswith(".ipynb")}
        autograde = Autograde(coursedir=self.folders, parent=self.app)
        files = {**others, **sources, f"{submission.unit}.ipynb": notebook}
        self._place(submission, "autograded", files, autograde.permissions)
        self._forget_before(submission)
        self.log(submission, graded.log)

    def discard(self, submission: Submission) -> None:
        """Remove what an earlier submission came to, but for its marks in the gradebook.

        Its notebook is put aside: marks by hand are for the answers in it.
        """
        graded, feedback = (self._output(step, submission) for step in ("autograded", "feedback"))
        if graded.exists():
            self._forget_before(submission)
            graded.rename(_before(graded))
        if feedback.exists():
            rmtree(str(feedback))

    def settle(self, submission: Submission) -> PageJob | None:
        """Bring the late penalty of a graded submission up to what was entered since.

        Returns
        -------
        PageJob or None
            What the page of feedback is to be made from; None if it says all that already.
        """
        self._forget_before(submission)
        notebook = (self._output("autograded", submission) / f"{submission.unit}.ipynb").read_bytes()
        with self._row(submission) as row:
            row.late_submission_penalty = penalty = self._penalty(row)
            self.gradebook.db.commit()
            job = PageJob(
                submission.student,
                (row.student.first_name, row.student.last_name),
                notebook,
                {one.name: (one.auto_score, one.manual_score, one.extra_credit) for one in row.grades},
                {one.name: (one.auto_comment, one.manual_comment) for one in row.comments},
                penalty,
            )
        folder = self._output("feedback", submission)
        try:
            current = (folder / MADE_FROM).read_text() == self._fingerprint(job)
        except (OSError, ValueError):
            current = False
        return None if current and (folder / f"{submission.unit}.html").is_file() else job

    def give_feedback(self, submission: Submission, job: PageJob, page: Page) -> None:
        """Put a page of feedback into its place, with what nbgrader's ``release_feedback`` looks for."""
        permissions = GenerateFeedback(coursedir=self.folders, parent=self.app).permissions
        handed_in = submission.read(self.limits.most_bytes)
        files = {name: handed_in[name] for name in FOR_RELEASE if name in handed_in}
        files |= {f"{submission.unit}.html": page.html, MADE_FROM: self._fingerprint(job).encode()}
        self._place(submission, "feedback", files, permissions)

    def _fingerprint(self, job: PageJob) -> str:
        return fingerprint(job, self.rules.title, self.rules.book, *self.rules.units)

    def log(self, submission: Submission, lines: str) -> None:
        if lines:
            said = [f"{submission.student}, {submission.unit}:", *lines.splitlines()]
            self.app.log.warning("%s", "\n".join(map(one_line, said)))

    def marks(self, submission: Submission) -> Marks:
        """The marks that the gradebook has for a submission; empty if it knows none."""
        with self._row(submission) as row:
            found = {grade.name: mark(grade) for grade in row.grades} if row else {}
        return found

    def penalty(self, submission: Submission) -> float:
        """The points that a submission loses for being late."""
        with self._row(submission) as row:
            return (row and row.late_submission_penalty) or 0.0

    def remarks(self, submission: Submission) -> Iterator[Problem]:
        """What a person should look at in a graded submission."""
        place = f"{submission.student}, {submission.unit}"
        for words in told(self.about(submission).get("flags", ())):
            yield Problem(place, words, False)
        missing = ", ".join(name for name, found in self.marks(submission).items() if found is None)
        if missing:
            yield Problem(place, f"no mark for {missing}: a person has to give it", False)
        timestamp = submission.folder / "timestamp.txt"
        if timestamp.is_file() and _timestamp({timestamp.name: timestamp.read_bytes()}) is None:
            words = "timestamp.txt holds no date, as 2026-11-30 20:15:00 UTC is: graded as if there were none"
            yield Problem(place, words, False)

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
        TotalMarks(parent=self.app).export(self.gradebook)
        self.gradebook.db.remove()
        return ["grades.csv", "grades_by_task.csv", "total.csv"]

    def forget(self, submission: Submission) -> None:
        """Remove all that a submission came to, its marks too; of the student, what nobody has entered."""
        for step in ("autograded", "feedback"):
            folder = self._output(step, submission)
            for place in (folder, _before(folder)):
                if place.exists():
                    rmtree(str(place))
        with suppress(MissingEntry):
            self.gradebook.remove_submission(submission.unit, submission.student)
        try:
            student = self.gradebook.find_student(submission.student)
        except MissingEntry:
            return
        finally:
            self.gradebook.db.remove()
        entered = [student.first_name, student.last_name, student.email]
        if not any(entered) and not self.gradebook.student_submissions(submission.student):
            self.gradebook.remove_student(submission.student)
        self.gradebook.db.remove()

    def outputs(self, student: str) -> list[Path]:
        """The folders that grading makes for a student."""
        return [self._step(step) / student for step in ("autograded", "feedback")]

    def write_anew(self, units: Iterable[str]) -> None:
        """Write the tables and the report on the term anew, or remove them where nobody is left."""
        marked, _ = everyone(self.gradebook)
        for unit in set(units) - marked.keys():
            for kind in ("html", "csv"):
                (self.reports / f"{unit}.{kind}").unlink(missing_ok=True)
        written = [*map(Path, self.export()), self.term().write(self.reports)]
        if not marked:
            for path in [*written, self.reports / "similar.html"]:
                path.unlink(missing_ok=True)
            for folder in (self.reports, *map(self._step, ("autograded", "feedback", "submitted"))):
                if folder.is_dir() and not any(folder.iterdir()):
                    folder.rmdir()

    def named(self, submissions: Sequence[Submission]) -> list[Submission]:
        """The same under the names of the gradebook, where a folder's looks the same and is not."""
        if all(one.student.isascii() for one in submissions):
            return list(submissions)
        known = {one.id for one in self.gradebook.students}
        self.gradebook.db.remove()
        return sorted(replace(one, student=as_known(one.student, known)) for one in submissions)

    def term(self) -> Term:
        """The class over all units, as the gradebook and the graded notebooks have it."""
        points, scores = everyone(self.gradebook, self.rules.units)
        people = {
            one.id: " ".join(filter(None, [one.first_name, one.last_name])) for one in self.gradebook.students
        }
        units = []
        for unit in points:
            marks, lost = {}, Counter[str]()
            for row in self.gradebook.notebook_submissions(unit, unit):
                student = row.student.id
                if scores[unit].get(student) is None:
                    continue
                marks[student] = {one.name: mark(one) or 0.0 for one in row.grades}
                submission = Submission(unit, student, self.submitted / student / unit)
                for cell, passage in self._passages(submission).items():
                    lost[passage] += sum(
                        one.max_score - marks[student][cell] for one in row.grades if one.name == cell
                    )
            given = {student: value for student, value in scores[unit].items() if value is not None}
            most = {one.name: one.max_score for one in self._cells_with_points(unit)}
            units.append(UnitResults(unit, most, marks, given, +lost))
        self.gradebook.db.remove()
        return Term(people, units, self.rules)

    def answers(self, unit: str) -> dict[str, dict[str, str]]:
        """Everyone's code of a unit as it was graded last, by the names of the tasks' cells."""
        found = {}
        for path in sorted(self._step("autograded").glob(f"*/{unit}")):
            student = path.parent.name
            if notebook := self._graded_notebook(Submission(unit, student, path)):
                found[student] = _answers(notebook)
        return found

    def known(self, unit: str) -> dict[str, list[str]]:
        """What anybody can have as an answer: the release's, the solution's, and other right ones."""
        solved = _answers(self._notebook(unit))
        begin, end = r"### BEGIN SOLUTION", r"### END SOLUTION"
        found = {
            task: [source, re.sub(rf"(?s){begin}.*?{end}", "", source)] for task, source in solved.items()
        }
        for task in registry.values():
            if task.unit == unit and task.name in found:
                found[task.name] += [source_of(answer, task.name) for answer in right_answers(task)]
        return found

    def _cells_with_points(self, unit: str) -> list[Any]:
        notebook = self.gradebook.find_notebook(unit, unit)
        return [*notebook.grade_cells, *notebook.task_cells]

    def _passages(self, submission: Submission) -> dict[str, str]:
        """For each graded cell whose check names a passage of the book, that passage."""
        checks = self.about(submission).get("checks", {})
        return {name: link(check["read"]) for name, check in checks.items() if check.get("read")}

    def _record(
        self,
        submission: Submission,
        job: Job,
        graded: Graded,
        before: nbformat.NotebookNode | None,
        same_files: bool,
    ) -> bytes:
        """Write the marks into the gradebook, and return the notebook with what is to be said of them."""
        gradebook, unit, student = self.gradebook, submission.unit, submission.student
        notebook = nbformat.reads(graded.notebook.decode(), as_version=4)
        try:
            gradebook.update_or_create_student(student)
            gradebook.update_or_create_submission(unit, student)
            row = gradebook.find_submission_notebook(unit, unit, student)
            row.assignment.timestamp = _timestamp(job.files)
            for grade in row.grades:
                grade.auto_score = graded.marks[grade.name]
            for comment in row.comments:
                comment.auto_comment = graded.comments[comment.name]
            flags = set_aside(row, before, notebook, same_files)
            for grade in row.grades:
                # As nbgrader does: a mark given by hand stays, and is to be looked at again.
                grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
            gradebook.db.flush()
            gradebook.db.expire_all()
            row.late_submission_penalty = self._penalty(row)
            for flag in flags:
                self.log(submission, f"{flag['cell']}: {flag['words']}")
            gradebook.db.commit()
        finally:
            # Forgets what was read, too, or the memory of a large class would pile up.
            gradebook.db.remove()
        if not flags:
            return graded.notebook
        notebook.metadata.setdefault("attncourse", {}).setdefault("flags", []).extend(flags)
        return f"{nbformat.writes(notebook)}\n".encode()

    @cached_property
    def _late(self) -> AssignLatePenalties | None:
        """nbgrader's late penalties as they are configured; None where they are not."""
        for step in Autograde(coursedir=self.folders, parent=self.app).autograde_preprocessors:
            kind = import_item(step) if isinstance(step, str) else step
            if isinstance(kind, type) and issubclass(kind, AssignLatePenalties):
                late = kind(parent=self.app)
                late.init_plugin()
                return late
        return None

    def strangers(self) -> Iterator[Problem]:
        """Who has an extension by the rules of the course, and is not known: perhaps by another spelling."""
        known = {spelled(one.id) for one in self.gradebook.students}
        for name in self.rules.extensions:
            if known and spelled(name) not in known:
                words = f"extensions of {name!r}: nobody of that name has handed in or is in the gradebook"
                yield Problem(rules.NAME, words, ungraded=False)

    def _penalty(self, row: Any) -> float | None:
        """What nbgrader would take off for being late, from the due date and the marks as they are now."""
        unit = row.assignment.assignment
        if (due := self.rules.due.get(unit.name)) and unit.duedate != self.rules.utc(due):
            unit.duedate = self.rules.utc(due)
        extension = self.rules.extension(row.student.id, unit.name)
        if extension is not None and row.assignment.extension != extension:
            row.assignment.extension = extension
        seconds = row.assignment.total_seconds_late if unit.duedate else 0
        if self._late is None or seconds <= 0:
            return None
        try:
            penalty = self._late.plugin_inst.late_submission_penalty(row.student.id, row.score, seconds)
        except Exception as error:
            raise NotGraded(f"the late policy failed: {type(error).__name__}: {error}") from error
        return None if penalty is None else self._late._check_late_penalty(row, penalty)

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
        part.mkdir(parents=True)
        for place, content in files.items():
            path = part / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            path.chmod(int(str(permissions), 8))
        if folder.exists():
            rmtree(str(folder))
        part.rename(folder)

    def _digest(self, submission: Submission, files: Files) -> str:
        """A fingerprint of the submission and, after a slash, one of what it is graded by."""
        course = digest(read_folder(self._source(submission.unit), self.limits.most_bytes)) + course_version()
        return f"{digest(files)}/{hashlib.sha256(course.encode()).hexdigest()}"

    def _step(self, step: str) -> Path:
        return Path(self.folders.root, getattr(self.folders, f"{step}_directory"))

    def _notebook(self, unit: str) -> nbformat.NotebookNode:
        path = self._source(unit) / f"{unit}.ipynb"
        try:
            return nbformat.read(path, as_version=4)
        except (ValueError, AttributeError, nbformat.ValidationError) as error:
            why = " ".join(str(error).split())[:100]
            raise rules.Unusable(f"{path} is no notebook: put back a copy ({why})") from None

    def _graded_notebook(self, submission: Submission) -> nbformat.NotebookNode | None:
        """What was graded last, also if it was put aside since."""
        folder = self._output("autograded", submission)
        for place in (folder, _before(folder)):
            try:
                return nbformat.read(place / f"{submission.unit}.ipynb", as_version=4)
            except (OSError, ValueError):
                continue
        return None

    def _same_files(self, submission: Submission, others: Files, sources: Files) -> bool:
        """Whether these lay beside the notebook that was put aside, too."""
        try:
            before = read_folder(_before(self._output("autograded", submission)), self.limits.most_bytes)
        except NotGraded:
            return False
        given = {*sources, *FOR_RELEASE, f"{submission.unit}.ipynb"}
        now, then = (
            {place: content for place, content in files.items() if place not in given}
            for files in (others, before)
        )
        return now == then

    def _forget_before(self, submission: Submission) -> None:
        before = _before(self._output("autograded", submission))
        if before.exists():
            rmtree(str(before))

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


def _answers(notebook: nbformat.NotebookNode) -> dict[str, str]:
    cells = [cell for cell in notebook.cells if is_solution(cell) and cell.cell_type == "code"]
    return {cell.metadata.nbgrader.grade_id: cell.source for cell in cells}


def _before(folder: Path) -> Path:
    """Where a graded submission is put aside."""
    return folder.with_name(f".{folder.name}.before")


def _portable(value: Any) -> Any:
    """A configuration in which classes and functions are named, as another process will import them.

    Raises
    ------
    NotGraded
        If one was defined in ``nbgrader_config.py``, where no other process finds it.
    """
    if isinstance(value, dict):
        return type(value)({name: _portable(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return type(value)(_portable(item) for item in value)
    if isinstance(value, type) or callable(value):
        name = f"{value.__module__}.{getattr(value, '__qualname__', '')}"
        try:
            if import_item(name) is value:
                return name
        except ImportError:
            pass
        raise NotGraded(
            "nbgrader_config.py cannot be sent to the workers: classes and functions must be imported from "
            f"a module there, not defined ({name.rpartition('.')[2]})"
        )
    try:
        pickle.dumps(value)
    except Exception as error:
        raise NotGraded(f"nbgrader_config.py cannot be sent to the workers: {error}") from error
    return value
