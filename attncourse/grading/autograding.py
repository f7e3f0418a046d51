"""One submission is graded by nbgrader, in a folder and with a gradebook of its own.

What goes in and what comes out is plain data: it makes no difference where this runs.
"""

import copy
import json
import logging
import re
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import nbformat
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateAssignment, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import NbGraderPreprocessor
from sqlalchemy import URL, CreateEnginePlugin, Dialect, Engine
from sqlalchemy.dialects import plugins
from traitlets import Unicode
from traitlets.config import Config

from attncourse.grading import leftovers
from attncourse.grading.harmless import one_line
from attncourse.grading.job import (
    Failed,
    Files,
    Graded,
    Job,
    Limits,
    NotGraded,
    Page,
    PageJob,
    Unit,
    course_version,
)
from attncourse.grading.trouble import advice


def snapshot(unit: str, sources: Files, config: Config) -> bytes:
    """A gradebook that knows the unit's cells and nothing else.

    Raises
    ------
    NotGraded
        If nbgrader cannot make a release of the unit.
    """
    with leftovers.Folder() as folder:
        root = Path(folder)
        _write(root / "source" / unit, sources)
        with closing(sqlite3.connect(root / "gradebook.db")) as database:
            # In a database without tables nbgrader notes its version, which takes it a second to find out.
            database.execute("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)")
        coursedir = _course(root, unit, "", config)
        run(GenerateAssignment(coursedir=coursedir, config=config, log=coursedir.log), Log())
        return (root / "gradebook.db").read_bytes()


def grade(unit: Unit, job: Job) -> Graded:
    """Grade one submission in this process, with a temporary folder for everything.

    Raises
    ------
    NotGraded
    """
    log = Log()
    name = unit.name
    student = _folder_name(job.student)
    with tempfile.TemporaryDirectory(prefix="g", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        submitted = root / "submitted" / student / name
        _write(root / "source" / name, unit.sources)
        _write(submitted, job.files)
        if clash := _clash(job.files, unit.sources):
            raise NotGraded(
                f"brings {clash}, which is a file here and a folder in the unit, or the reverse: rename it"
            )
        notebook = _text(job.files[f"{name}.ipynb"], Limits(config=unit.config).most_values)
        (submitted / f"{name}.ipynb").write_text(notebook, encoding="utf-8")
        (root / "gradebook.db").write_bytes(unit.gradebook)
        config = copy.deepcopy(unit.config)
        config.Stamp.digest = job.digest
        config.Execute.released = sorted(unit.sources)
        coursedir = _course(root, name, student, config)
        with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            gradebook.add_student(student)
        autograde = Autograde(coursedir=coursedir, config=config, log=coursedir.log)
        autograde.autograde_preprocessors = [*autograde.autograde_preprocessors, Stamp]
        run(autograde, log)
        with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            row = gradebook.find_submission_notebook(name, name, student)
            graded = Graded(
                notebook=(root / "autograded" / student / name / f"{name}.ipynb").read_bytes(),
                marks={grade.name: grade.auto_score for grade in row.grades},
                comments={comment.name: comment.auto_comment for comment in row.comments},
                log=log.text,
            )
    most = Limits(config=unit.config).most_bytes
    if len(graded.notebook) > most:
        raise NotGraded(f"prints more than {most // 10**6} MB")
    return graded


def page(unit: Unit, job: PageJob) -> Page:
    """Make one page of feedback in this process, as nbgrader's ``generate_feedback`` does.

    Raises
    ------
    NotGraded
    """
    name, student = unit.name, _folder_name(job.student)
    with tempfile.TemporaryDirectory(prefix="g", ignore_cleanup_errors=True) as folder:
        root = Path(folder)
        _write(root / "source" / name, {f"{name}.ipynb": unit.sources[f"{name}.ipynb"]})
        _write(root / "autograded" / student / name, {f"{name}.ipynb": job.notebook})
        (root / "gradebook.db").write_bytes(unit.gradebook)
        coursedir = _course(root, name, student, unit.config)
        with Gradebook(coursedir.db_url, coursedir.course_id) as gradebook:
            _enter(gradebook, name, student, job)
        run(GenerateFeedback(coursedir=coursedir, config=unit.config, log=coursedir.log), Log())
        html = (root / "feedback" / student / name / f"{name}.html").read_bytes()
    most = Limits(config=unit.config).most_bytes
    if len(html) > most:
        raise NotGraded(f"has feedback of more than {most // 10**6} MB")
    return Page(html)


class Stamp(NbGraderPreprocessor):
    """Notes in an autograded notebook what it was graded from."""

    digest = Unicode(help="fingerprint of the submission").tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        nb.metadata.setdefault("attncourse", {})["graded_from"] = self.digest
        return nb, resources


def outcome(unit: Unit, job: Job | PageJob) -> Graded | Page | Failed:
    """Do a job in this process; a failure is returned, not raised."""
    try:
        if unit.course != course_version():
            raise NotGraded("met a worker with another version of the course")
        _import_from(unit.modules)
        return grade(unit, job) if isinstance(job, Job) else page(unit, job)
    except NotGraded as reason:
        return Failed(str(reason), reason.log, reason.again, reason.everyone)
    except Exception as error:
        return Failed(f"could not be graded: {advice(error) or f'{type(error).__name__}: {error}'}")


def _folder_name(student: str) -> str:
    """nbgrader looks for its folders with patterns, which some names would upset."""
    return student if re.fullmatch(r"\w([\w .@+-]*[\w.@+-])?", student) else "student"


def _course(root: Path, unit: str, student: str, config: Config) -> CourseDirectory:
    """nbgrader's idea of a course in `root`, with what the configuration says about no folder."""
    ours = Config()
    ours.CourseDirectory = Config(
        {
            name: config.CourseDirectory[name]
            for name in ("course_id", "ignore")
            if name in config.CourseDirectory
        }
    )
    log = logging.Logger("attncourse.grading", logging.WARNING)
    coursedir = CourseDirectory(config=ours, log=log)
    coursedir.root = str(root)
    coursedir.db_url = f"sqlite:///{root}/gradebook.db?plugin={SharedDialect.name}"
    coursedir.assignment_id = unit
    coursedir.student_id = student
    return coursedir


class SharedDialect(CreateEnginePlugin):
    """One dialect for all temporary gradebooks of a process, and what was compiled for it.

    nbgrader opens a gradebook a dozen times for each submission, and SQLAlchemy would compile every query
    anew for each: a fifth of what is computed for a page of feedback.
    """

    name = "attncourse"
    _dialects: ClassVar[list[Dialect]] = []
    _compiled: ClassVar[dict[Any, Any]] = {}

    def __init__(self, url: URL, settings: dict[str, Any]) -> None:
        pass  # there are no settings

    def update_url(self, url: URL) -> URL:
        return url

    def engine_created(self, engine: Engine) -> None:
        if not self._dialects:
            self._dialects.append(engine.dialect)
        engine.dialect = self._dialects[0]
        engine.update_execution_options(compiled_cache=self._compiled)


plugins.register(SharedDialect.name, __name__, SharedDialect.__name__)


_modules: Files = {}


def _import_from(modules: Files) -> None:
    """Have nbgrader find an instructor's own modules here, as it finds them in the course's folder."""
    global _modules
    if modules == _modules:
        return
    folder = tempfile.mkdtemp(prefix="modules")  # below a folder that goes when this process does
    _write(Path(folder), modules)
    for name in [*_modules, *modules]:
        sys.modules.pop(name.removesuffix(".py"), None)
    sys.path.insert(0, folder)
    _modules = modules


def _write(folder: Path, files: Files) -> None:
    for place, content in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _clash(files: Files, others: Files) -> str:
    """What is a file among the ones and a folder among the others, if anything is."""
    for ones, rest in ((files, others), (others, files)):
        folders = {path.as_posix() for place in rest for path in PurePosixPath(place).parents}
        for place in ones:
            if place in folders:
                return place
    return ""


def text_of(content: bytes, most_values: int) -> str:
    """The text of what should be a notebook.

    Raises
    ------
    NotGraded
        If it has none, or holds too much to be read.
    """
    if not content.strip():
        raise NotGraded("is empty")
    try:
        text = content.decode(json.detect_encoding(content))
    except UnicodeDecodeError:
        raise NotGraded("is not a notebook: it is not text in UTF-8") from None
    # Before anything is made of them: Python takes hundreds of bytes for a value of two.
    if sum(map(text.count, ",[{")) > most_values:
        raise NotGraded(f"holds more than {most_values:,} values")
    return text


def _text(content: bytes, most_values: int) -> str:
    """The text of a notebook that nbgrader can read, however it was saved."""
    text = text_of(content, most_values)
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        raise NotGraded("is not a notebook: it is not JSON") from None
    if "\\ud" in text.lower():
        # Halves of characters, which no file can hold.
        text = json.dumps(parsed, ensure_ascii=False).encode(errors="replace").decode()
    try:
        nbformat.reads(text, as_version=4)
    except Exception as error:
        words = " ".join(str(error).split())[:100]
        # Python's words for what it stumbled over help nobody.
        if not isinstance(error, nbformat.ValidationError) or " object has no attribute " in words:
            words = "something in it is of the wrong kind"
        raise NotGraded(f"is JSON, but not a notebook: {words}") from None
    return text


def _enter(gradebook: Gradebook, unit: str, student: str, job: PageJob) -> None:
    """Make the gradebook know the submission as the course's own knows it."""
    first, last = job.name
    if not first and not last:
        last = one_line(job.student)  # whose folder may have another name here
    gradebook.add_student(student, first_name=first, last_name=last)
    gradebook.add_submission(unit, student)
    row = gradebook.find_submission_notebook(unit, unit, student)
    row.late_submission_penalty = job.penalty
    for grade in row.grades:
        grade.auto_score, grade.manual_score, grade.extra_credit = job.grades[grade.name]
    for comment in row.comments:
        comment.auto_comment, comment.manual_comment = job.comments[comment.name]
    gradebook.db.commit()


def run(converter: Autograde | GenerateAssignment | GenerateFeedback, log: "Log") -> None:
    converter.log.addHandler(log)
    try:
        converter.start()
    except (Exception, SystemExit) as error:
        if isinstance(log.caught, NotGraded):
            log.caught.log = log.text
            raise log.caught from error
        words = advice(log.caught) or log.cause or str(error) or type(error).__name__
        raise NotGraded(words, log.text) from error
    finally:
        converter.log.removeHandler(log)


class Log(logging.Handler):
    """Keeps what nbgrader warns of, and knows the cause of the first error."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []
        self.errors: list[str] = []
        #: What nbgrader caught. It logs it while it holds it, and then raises something else.
        self.caught: BaseException | None = None

    def emit(self, record: logging.LogRecord) -> None:
        self.caught = self.caught or sys.exception()
        self.lines.append(f"{record.levelname} {record.getMessage().strip()}")
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage().strip())

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    @property
    def cause(self) -> str:
        """The last line of the first traceback, or else of the first error, without an error's long name."""
        tracebacks = [error for error in self.errors if error.startswith("Traceback")]
        last = next(iter(tracebacks + self.errors), "").rpartition("\n")[2]
        return re.sub(r"^([a-z_]\w*\.)+\w+: ", "", last)
