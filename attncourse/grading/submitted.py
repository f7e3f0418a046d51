"""What lies in ``submitted/``: the submissions to grade, and what is in the wrong place."""

import hashlib
import os
import re
import stat
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import NoReturn

from attncourse.grading.job import MOST_FILES, Files, NotGraded

# What begins a tag, ends a text in HTML and JavaScript, or stands for another sign in an address. O'Brien
# keeps the apostrophe, which pages escape.
OF_PAGES = '<>"&\\%'
LONGEST_NAME = 255  # bytes, on most disks
DEEPEST = 30  # folders in folders
MOST_NAMED = 5  # of the files of one kind that lie beside a notebook


@dataclass(frozen=True, order=True)
class Submission:
    """One student's notebook of one unit, ``<folder>/<unit>.ipynb``."""

    unit: str
    student: str
    folder: Path

    @property
    def notebook(self) -> Path:
        return self.folder / f"{self.unit}.ipynb"

    def read(self, most: int) -> Files:
        """The files handed in, by their paths in the folder; of the notebooks only the unit's.

        A link is left out: what it leads to was not handed in.

        Raises
        ------
        NotGraded
            If a file cannot be read, or everything together is too large or too much.
        """
        files = read_folder(self.folder, most)
        if self.notebook.name not in files:
            raise NotGraded("is a link or a folder, not a notebook")
        return {
            place: content
            for place, content in files.items()
            if not place.endswith(".ipynb") or place == self.notebook.name
        }


def read_folder(folder: Path, most: int) -> Files:
    """All files in a folder, by their paths in it, but for what JupyterLab and Python leave there.

    Raises
    ------
    NotGraded
    """
    files: dict[str, bytes] = {}
    size = number = 0

    def fail(error: OSError) -> NoReturn:
        place = os.path.relpath(error.filename, folder)
        raise NotGraded(f"cannot be graded: {place} cannot be opened: {error.strerror}") from error

    for path in walk(folder, fail):
        place = path.relative_to(folder)
        # The former comes of merely looking at a notebook in JupyterLab.
        if {".ipynb_checkpoints", "__pycache__"}.intersection(place.parts):
            continue
        number += 1
        if number > MOST_FILES:
            raise NotGraded(f"comes with more than {MOST_FILES:,} files: remove those that it does not need")
        if len(place.parts) > DEEPEST:
            raise NotGraded(f"comes with more than {DEEPEST} folders in each other: remove them")
        try:
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                continue
            size += status.st_size
            if size > most:
                raise NotGraded(f"comes with more than {most // 10**6} MB of files")
            files[place.as_posix()] = path.read_bytes()
        except OSError as error:
            fail(error)
    return files


def walk(folder: Path, fail: Callable[[OSError], object]) -> Iterator[Path]:
    """What is in a folder and in the folders in it, not behind links; `fail` hears of those that are shut.

    However deep they are: `Path.rglob` and `os.walk` call themselves for each folder in a folder.
    """
    folders = [folder]
    for here in folders:
        try:
            paths = sorted(here.iterdir())
        except OSError as error:
            fail(error)
            continue
        folders += [path for path in paths if path.is_dir() and not path.is_symlink()]
        yield from paths


def digest(files: Files) -> str:
    """A fingerprint of files and their places."""
    whole = hashlib.sha256()
    for place, content in sorted(files.items()):
        whole.update(place.encode("utf-8", "surrogateescape") + b"\0")
        whole.update(hashlib.sha256(content).digest())
    return whole.hexdigest()


@dataclass(frozen=True)
class Problem:
    """Something that the instructor has to know.

    Parameters
    ----------
    place : str
        The file, folder or student.
    words : str
        What is wrong, in words that continue the place.
    ungraded : bool
        Whether it may have cost somebody a mark.
    """

    place: str
    words: str
    ungraded: bool = True


def look_through(
    submitted: Path, units: Iterable[str], known: Iterable[str]
) -> tuple[list[Submission], list[Problem]]:
    """Find the submissions of `units`, and everything that is not where it belongs.

    Parameters
    ----------
    submitted : Path
        The folder that holds a folder for each student.
    units : iterable of str
        The units to grade.
    known : iterable of str
        All units of the course: a folder of another name is reported.

    Returns
    -------
    submissions : list of Submission
        Sorted by unit and student.
    problems : list of Problem
    """
    submissions, problems = [], []
    spellings = Counter(spelled(path.name) for path in _visible(submitted))
    for folder in sorted(submitted.glob(".*/")):
        if any((folder / unit / f"{unit}.ipynb").exists() for unit in known):
            problems.append(Problem(shown(folder), "is not graded: a name that begins with a dot is hidden"))
    for student in _visible(submitted):
        if not student.is_dir():
            problems.append(_stray(student, "<student>/<unit>/<unit>.ipynb"))
            continue
        if unfit := unfit_for_a_name(student.name):
            problems.append(Problem(shown(student), f"is not graded: the name {unfit}; rename the folder"))
            continue
        if spellings[spelled(student.name)] > 1:
            words = "is not graded: another folder's name looks the same, with an accent written otherwise; "
            words += "put all into one, or rename one"
            problems.append(Problem(shown(student), words))
            continue
        inside = _visible(student)
        if not inside:
            problems.append(Problem(shown(student), "is a student's folder with nothing in it"))
        for folder in inside:
            if not folder.is_dir():
                problems.append(_stray(folder, "<unit>/<unit>.ipynb"))
            elif folder.name not in known:
                problems.append(
                    Problem(shown(folder), f"is no unit of this course, which has {', '.join(sorted(known))}")
                )
            elif folder.name in units:
                submission = Submission(folder.name, student.name, folder)
                beside = [path for path in sorted(folder.glob("*.ipynb")) if path != submission.notebook]
                if os.path.lexists(submission.notebook):
                    submissions.append(submission)
                    problems += _named(_settings(folder), "is a file of settings: it stays without effect")
                    problems += _named(beside, "lies beside the notebook and is not graded")
                else:
                    others = ", ".join(path.name for path in beside[:MOST_NAMED])
                    there = f"; there is {others}: rename it" if others else ""
                    problems.append(Problem(shown(folder), f"holds no {submission.notebook.name}{there}"))
    return sorted(submissions), problems


# A server, a kernel or nbgrader that is started beside one reads it, and most are Python.
_SETTINGS = re.compile(r"(nbgrader|jupyter|ipython)\w*config.*", re.IGNORECASE)


def are_settings(place: str) -> bool:
    """Whether a file of this place, handed in, would be read as settings of Jupyter's or nbgrader's."""
    return any(map(_SETTINGS.fullmatch, PurePosixPath(place).parts))


def _settings(folder: Path) -> list[Path]:
    # Where there are more, or some cannot be opened, nothing is graded.
    paths = sorted(islice(walk(folder, lambda error: None), MOST_FILES))
    return [path for path in paths if path.is_file() and are_settings(path.relative_to(folder).as_posix())]


def _named(paths: Sequence[Path], words: str) -> list[Problem]:
    """A remark on each of these files, or on the first of many."""
    problems = [Problem(shown(path), words, False) for path in paths[:MOST_NAMED]]
    if len(paths) > MOST_NAMED:
        problems.append(Problem(shown(paths[-1]), f"{words}; so it is with {len(paths)} in all", False))
    return problems


def shown(path: Path) -> str:
    """A path as the instructor knows it: from the current folder, and printable."""
    return os.path.relpath(path).encode("utf-8", "replace").decode()


def spelled(name: str) -> str:
    """A name as it compares with others: é is one character or two, by the system, and looks the same."""
    return unicodedata.normalize("NFC", name)


def as_known(name: str, known: Collection[str]) -> str:
    """The one of the known names that is this or looks the same; the name itself if none does."""
    alike = (one for one in known if spelled(one) == spelled(name))
    return name if name in known else next(alike, name)


def unfit_for_a_name(name: str) -> str:
    """Why nobody can be called so in the gradebook, in words that continue the name; empty if anybody can."""
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        return "is not text in UTF-8"
    if length > LONGEST_NAME:
        return f"has more than {LONGEST_NAME} bytes, which no folder's name can"
    return f"holds one of {' '.join(OF_PAGES)}" if set(OF_PAGES) & set(name) else ""


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def _stray(path: Path, expected: str) -> Problem:
    belongs = shown(path.parent) + "/" + expected
    return Problem(
        shown(path), f"is a stray file: a submission is {belongs}", ungraded=path.suffix == ".ipynb"
    )
