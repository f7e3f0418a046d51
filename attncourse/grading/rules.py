"""The rules of a course, ``course.toml``: which units count for how much, and what being late costs.

Everything in it may be left out::

    title = "Attention, this autumn"       # on every page, and on the book
    authors = "A. Teacher"                 # of this edition, at the foot of the book
    logo = "logo.svg"                      # a picture beside the book's title
    book = "https://example.org/attention" # where the built book is published
    timezone = "Europe/Berlin"             # of all times here and on the learning platform
    units = ["attention_operator", "masking"]  # those that are taught; without this line, all
    drop_lowest = 1                        # so many of everyone's units, the worst, do not count

    [weights]                              # without one, a unit counts by its points
    masking = 2

    [due]
    masking = 2026-11-21T23:59:00

    [late]
    grace = 15                             # minutes that cost nothing
    per_day = 10                           # percent of the mark, for each day begun
    floor = 50                             # percent of the mark that stay, however late

    [extensions]                           # days
    student-07 = { masking = 3 }
"""

import datetime
import math
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from nbgrader.plugins import LateSubmissionPlugin

from attncourse.grading.submitted import spelled

NAME = "course.toml"
MOST_DAYS = 3650  # of an extension


class Unusable(Exception):
    """A file that an instructor wrote or brought cannot be used; the message names it and the line."""


@dataclass(frozen=True)
class Late:
    """What being late costs: see the top of this file."""

    grace: float = 0
    per_day: float = 0
    floor: float = 0

    def penalty(self, score: float, seconds: float) -> float:
        """The points to take off a mark that came so many seconds after the due date."""
        if seconds <= 60 * self.grace:
            return 0.0
        lost = math.ceil(seconds / 86400) * self.per_day / 100
        return score * min(lost, 1 - self.floor / 100)


@dataclass(frozen=True)
class Rules:
    """What ``course.toml`` says: see the top of this file."""

    title: str = ""
    authors: str = ""
    logo: str = ""
    book: str = ""
    timezone: str = ""
    units: Sequence[str] = ()
    drop_lowest: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    due: Mapping[str, datetime.datetime] = field(default_factory=dict)
    late: Late | None = None
    extensions: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def utc(self, time: datetime.datetime) -> datetime.datetime:
        """A time in UTC as nbgrader keeps it, without a zone; without one it is the course's."""
        if time.tzinfo is None:
            time = time.replace(tzinfo=ZoneInfo(self.timezone)) if self.timezone else time.astimezone()
        return time.astimezone(datetime.UTC).replace(tzinfo=None)

    def extension(self, student: str, unit: str) -> datetime.timedelta | None:
        found = {spelled(one): days for one, days in self.extensions.items()}
        days = found.get(spelled(student), {}).get(unit)
        return None if days is None else datetime.timedelta(days=days)

    def total(self, marks: Mapping[str, float | None], points: Mapping[str, float]) -> float | None:
        """What a student has of all that can be had, in percent.

        Parameters
        ----------
        marks : mapping of str to float or None
            The mark of every unit; None, where there is none, counts as 0.
        points : mapping of str to float
            What can be had in every unit that counts so far.

        Returns
        -------
        float or None
            None if no unit counts so far.
        """
        shares = {unit: (marks.get(unit) or 0) / most for unit, most in points.items() if most}
        weights = {unit: self.weights.get(unit, points[unit]) for unit in shares}
        # Of those that are equally bad, the one that counts most.
        worst = sorted(shares, key=lambda unit: (shares[unit], -weights[unit], unit))
        kept = worst[min(self.drop_lowest, len(worst) - 1) :] if worst else []
        whole = sum(weights[unit] for unit in kept)
        return 100 * sum(weights[unit] * shares[unit] for unit in kept) / whole if whole else None


def read(folder: Path, known: Sequence[str] | None = None) -> Rules:
    """The rules of the course in a folder; those of a course without rules if it has none.

    Parameters
    ----------
    folder : Path
    known : sequence of str, optional
        The names of all units: another one is a mistake.

    Raises
    ------
    Unusable
    """
    path = folder / NAME
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Rules()
    except (OSError, UnicodeDecodeError) as error:
        raise Unusable(f"{NAME} cannot be read: {error}") from None
    try:
        said = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Unusable(f"{NAME} is not TOML: {error}") from None
    return _Reader(text, known).rules(said)


def taught(folder: Path, known: Sequence[str]) -> list[str]:
    """The units that book and tests are to have: those that ``UNITS`` names, or else the rules, or else all.

    Parameters
    ----------
    folder : Path
        The folder of the course. ``UNITS`` is of the environment, where ``make book UNITS="masking scaling"``
        puts it.
    known : sequence of str
        The names of all units.

    Raises
    ------
    Unusable
    """
    named = os.environ.get("UNITS", "").split()
    for unit in named:
        if unit not in known:
            raise Unusable(f"UNITS names the unit {unit!r}: there are {', '.join(known)}")
    return sorted(named or read(folder, known).units or known)


class _Reader:
    """Checks what was written, and says in which line it cannot be right."""

    def __init__(self, text: str, known: Sequence[str] | None) -> None:
        self.lines = text.splitlines()
        self.known = known

    def rules(self, said: dict[str, Any]) -> Rules:
        expected = {
            "title": str,
            "authors": str,
            "logo": str,
            "book": str,
            "timezone": str,
            "units": list,
            "drop_lowest": int,
            "weights": dict,
            "due": dict,
            "late": dict,
            "extensions": dict,
        }
        for name, value in said.items():
            self._check(name, name in expected, f"is not one of {', '.join(expected)}")
            right = type(value) is expected[name]
            self._check(name, right, f"is {value!r}: expected {_WORDS[expected[name]]}")
        about = dict(said)
        if "timezone" in said:
            try:
                ZoneInfo(said["timezone"])
            except (OSError, ValueError, KeyError):
                self._check("timezone", False, f"is {said['timezone']!r}: expected one such as Europe/Berlin")
        for unit in said.get("units", ()):
            self._unit("units", unit)
        self._check("drop_lowest", said.get("drop_lowest", 0) >= 0, "is negative")
        for unit, weight in said.get("weights", {}).items():
            self._unit(unit, unit)
            self._number(unit, weight)
        for unit, time in said.get("due", {}).items():
            self._unit(unit, unit)
            right = isinstance(time, datetime.datetime) and 1970 <= time.year < 9000
            self._check(unit, right, f"is {time!r}: expected a date and time such as 2026-11-21T23:59:00")
        if "late" in said:
            for name, value in said["late"].items():
                right = name in ("grace", "per_day", "floor")
                self._check(name, right, "is not one of grace, per_day, floor")
                self._number(name, value)
            self._check("floor", said["late"].get("floor", 0) <= 100, "is more than 100 percent")
            about["late"] = Late(**said["late"])
        for student, extensions in said.get("extensions", {}).items():
            right = isinstance(extensions, dict)
            self._check(student, right, "has no units: expected for example { masking = 3 }")
            for unit, days in extensions.items():
                self._unit(student, unit)
                self._number(student, days)
                self._check(student, days <= MOST_DAYS, f"has {days} more days: expected {MOST_DAYS} at most")
        return Rules(**about)

    def _unit(self, name: str, unit: Any) -> None:
        known = self.known
        self._check(name, known is None or unit in known, f"names the unit {unit!r}: there are {known}")

    def _number(self, name: str, value: Any) -> None:
        right = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf
        self._check(name, right, f"is {value!r}: expected a number that is not negative")

    def _check(self, name: str, right: bool, words: str) -> None:
        if not right:
            pattern = re.compile(rf"^\s*\[?\s*[\"']?{re.escape(name)}[\"']?\s*[=\]]")
            line = next((number for number, text in enumerate(self.lines, 1) if pattern.match(text)), 1)
            raise Unusable(f"{NAME}, line {line}: {name} {words}")


_WORDS = {str: "text", list: "a list", int: "a whole number", dict: "a table"}


class LatePolicy(LateSubmissionPlugin):
    """nbgrader's late penalties by the rules of the course."""

    def late_submission_penalty(
        self, student_id: str, score: float, total_seconds_late: float
    ) -> float | None:
        late = read(Path()).late
        return None if late is None else late.penalty(score, total_seconds_late)
