"""What goes to whoever grades a submission, and what comes back.

All of it is plain data, so that it makes no difference where a submission is graded.
"""

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from traitlets import Integer
from traitlets.config import Config, Configurable

Files = Mapping[str, bytes]


# What an archive may hold, too: it is unpacked before there is a configuration.
MOST_BYTES = 100_000_000
# Files that a submission may come with: each is written several times while it is graded.
MOST_FILES = 2000


class Limits(Configurable):
    """What is asked of a machine for one submission, beside the limits on its notebook."""

    most_bytes = Integer(
        MOST_BYTES, help="bytes that a submission may come with, and that grading may make of it"
    ).tag(config=True)
    most_values = Integer(
        2_000_000, help="values, by their commas and brackets, that a notebook may consist of"
    ).tag(config=True)
    tries = Integer(
        2, help="how often a submission is tried that takes too long, or whose process was killed"
    ).tag(config=True)


class NotGraded(Exception):
    """A submission could not be graded; the message says why, in words that continue its name.

    Parameters
    ----------
    words : str
    log : str
        nbgrader's warnings and errors.
    again : bool
        Whether it is worth another try: the machine was in the way, not the submission.
    everyone : bool
        Whether no submission can be graded here.
    """

    def __init__(self, words: str, log: str = "", *, again: bool = False, everyone: bool = False) -> None:
        super().__init__(words)
        self.log = log
        self.again = again
        self.everyone = everyone


@dataclass(frozen=True)
class Unit:
    """What is the same for all submissions of a unit.

    Parameters
    ----------
    name : str
    sources : mapping of str to bytes
        The files of the unit's source folder, by their paths in it.
    gradebook : bytes
        An SQLite gradebook that knows the unit's cells, and nobody's marks; see `snapshot`.
    config : Config
        nbgrader's configuration; that of the folders and of the database is not used.
    course : str
        `course_version` of the machine that wants the marks.
    modules : mapping of str to bytes
        The Python files beside ``nbgrader_config.py``, which may import them.
    """

    name: str
    sources: Files
    gradebook: bytes
    config: Config
    course: str
    modules: Files = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One submission to grade: the files handed in, by their paths, and what identifies them."""

    student: str
    files: Files
    digest: str


@dataclass(frozen=True)
class PageJob:
    """One graded submission to make a page of feedback for: the notebook, and what the gradebook says of it.

    `grades` are automatic mark, mark by hand and extra credit, `comments` the automatic one and that by hand.
    """

    student: str
    name: tuple[str | None, str | None]  # first and last
    notebook: bytes
    grades: Mapping[str, tuple[float | None, float | None, float | None]]
    comments: Mapping[str, tuple[str | None, str | None]]
    penalty: float | None


@dataclass(frozen=True)
class Graded:
    """What nbgrader makes of a submission.

    `marks` and `comments` are the automatic ones, None where there is none; `log` holds nbgrader's
    warnings and errors.
    """

    notebook: bytes
    marks: dict[str, float | None]
    comments: dict[str, str | None]
    log: str


@dataclass(frozen=True)
class Page:
    """What is to be given back."""

    html: bytes


@dataclass(frozen=True)
class Failed:
    """A `NotGraded` that was returned."""

    words: str
    log: str = ""
    again: bool = False
    everyone: bool = False


# Modules and packages of this package that give nobody a mark. What they write is written anew by every run.
_WITHOUT_MARKS = {
    *("digits", "letters", "novels", "sentences", "plots", "interactive", "experiments"),
    *("adapt", "answers", "archives", "collect", "export", "feedback", "kit", "marks", "platforms"),
    *("release", "report", "roster", "rules", "similar", "simulate", "tables", "term", "upload"),
}


@functools.cache
def course_version() -> str:
    """A fingerprint of the package's code: the checks, what they compare with, and the grading."""
    package = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).with_suffix("")
        if not _WITHOUT_MARKS.intersection(place.parts):
            whole.update(f"{place.as_posix()}\0".encode() + path.read_bytes())
    return whole.hexdigest()
