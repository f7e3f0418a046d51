"""What lies in ``submitted/``: the submissions to grade, and what is in the wrong place."""

import glob
import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nbformat


@dataclass(frozen=True)
class Submission:
    """One student's notebook of one unit, ``<folder>/<unit>.ipynb``."""

    student: str
    unit: str
    folder: Path

    @property
    def notebook(self) -> Path:
        return self.folder / f"{self.unit}.ipynb"

    def unreadable(self) -> str | None:
        """Why the notebook cannot be read, in words that continue its name; None if it can."""
        try:
            content = self.notebook.read_bytes()
            if not content.strip():
                return "is empty"
            nbformat.reads(content.decode("utf-8"), as_version=4)
        except OSError as error:
            return f"cannot be opened: {error.strerror}"
        except UnicodeDecodeError:
            return "is not a notebook: it is not text in UTF-8"
        except Exception as error:
            try:
                json.loads(content)
            except ValueError:
                return "is not a notebook: it is not JSON"
            return f"is JSON, but not a notebook: {' '.join(str(error).split())[:100]}"
        return None

    def digest(self, source: Path) -> str:
        """A fingerprint of all that the mark depends on: the files handed in and the unit's source."""
        digest = hashlib.sha256(source.read_bytes())
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            if ".ipynb_checkpoints" in path.parts:  # comes of merely looking at it in JupyterLab
                continue
            digest.update(str(path.relative_to(self.folder)).encode() + b"\0")
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()


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
    """
    submissions, problems = [], []
    for student in _visible(submitted):
        if not student.is_dir():
            problems.append(_stray(student, "<student>/<unit>/<unit>.ipynb"))
            continue
        if glob.escape(student.name) != student.name:
            problems.append(Problem(shown(student), "is not graded: nbgrader takes no *, ? or [ in a name"))
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
                submission = Submission(student.name, folder.name, folder)
                others = [path.name for path in folder.glob("*.ipynb") if path != submission.notebook]
                if submission.notebook.exists():
                    submissions.append(submission)
                    problems += [
                        Problem(shown(folder / other), "lies beside the notebook and is not graded", False)
                        for other in others
                    ]
                else:
                    there = f"; there is {', '.join(sorted(others))}: rename it" if others else ""
                    problems.append(Problem(shown(folder), f"holds no {submission.notebook.name}{there}"))
    return submissions, problems


def _visible(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if not path.name.startswith("."))


def shown(path: Path) -> str:
    """A path as the instructor knows it: from the current folder."""
    return os.path.relpath(path)


def _stray(path: Path, expected: str) -> Problem:
    belongs = shown(path.parent) + "/" + expected
    return Problem(
        shown(path), f"is a stray file: a submission is {belongs}", ungraded=path.suffix == ".ipynb"
    )
