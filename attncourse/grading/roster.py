"""Who takes the course: read from what platforms export, and found by whatever a file is called."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import as_known, spelled, unfit_for_a_name
from attncourse.grading.tables import Table

# Of each platform's table, the columns that name a person, the most lasting first: the first that is
# there becomes the name of the student's folder.
IDS = ("student_id", "SIS Login ID", "Username", "SIS User ID", "ID number", "OrgDefinedId", "id")
EMAILS = ("Email address", "email", "e-mail")
NUMBERS = ("Identifier", "lms_user_id", "ID")  # a platform's own, which may be another in every exercise


@dataclass(frozen=True)
class Person:
    """A student.

    Parameters
    ----------
    id : str
        What nbgrader and the folders call the student.
    first, last, email : str
    keys : frozenset of str
        All by which people know the student: ids, the email address.
    numbers : frozenset of str
        What platforms call the student in the names of files.
    time : str
        When the student handed in, where the table says so, in its own words.
    """

    id: str
    first: str = ""
    last: str = ""
    email: str = ""
    keys: frozenset[str] = field(default_factory=frozenset)
    numbers: frozenset[str] = field(default_factory=frozenset)
    time: str = ""

    @property
    def name(self) -> str:
        return f"{self.first} {self.last}".strip()


def person(table: Table, row: list[str]) -> Person | None:
    """Whom a row of a platform's table is about; None for rows about nobody, such as Canvas's of points."""
    full = table.cell(row, "Full name", "Student")
    if full.casefold() in ("points possible", "student, test", "test student"):
        return None
    first = table.cell(row, "First name", "first_name")
    last = table.cell(row, "Last name", "Surname", "last_name")
    if full and not first + last:
        if "," in full:
            last, _, first = (part.strip() for part in full.partition(","))
        else:
            first, _, last = full.rpartition(" ")
    email = table.cell(row, *EMAILS)
    # Brightspace writes # before what spreadsheets would take for numbers, Moodle "Participant".
    ids = [table.cell(row, name).removeprefix("#") for name in IDS]
    numbers = [re.sub(r"\D*(\d+)$", r"\1", table.cell(row, name)) for name in NUMBERS]
    # A number of Moodle's is another one in the next exercise: where there is nothing else, a name lasts.
    name = "-".join(f"{first} {last}".split())
    chosen = next(filter(None, [*ids, email.partition("@")[0], name, *numbers]), "")
    keys = frozenset(key.casefold() for key in [*ids, email] if key)
    if not chosen:
        return None
    time = table.cell(row, "Last modified (submission)")
    return Person(chosen, first, last, email, keys, frozenset(filter(None, numbers)), time)


class Roster:
    """The students of the course.

    Parameters
    ----------
    people : iterable of Person
    """

    def __init__(self, people: Iterable[Person]) -> None:
        self.people = sorted(people, key=lambda one: one.id)
        self._by_key: dict[str, list[Person]] = {}
        self._by_name: dict[str, list[Person]] = {}
        self._by_number: dict[str, list[Person]] = {}
        for one in self.people:
            for key in {_key(key) for key in (*one.keys, one.id)}:
                self._by_key.setdefault(key, []).append(one)
            for number in one.numbers:
                self._by_number.setdefault(number, []).append(one)
            for name in {letters(one.first + one.last), letters(one.last + one.first)} - {""}:
                self._by_name.setdefault(name, []).append(one)

    @classmethod
    def read(cls, path: Path, students: Iterable[Any] = ()) -> "Roster":
        """Read the participants or the gradebook of a platform, or nbgrader's students.

        Parameters
        ----------
        path : Path
        students : iterable of nbgrader.api.Student
            Those that are known already: who has the same email address keeps the same id, and its spelling.

        Raises
        ------
        Unusable
        """
        table = Table.read(path)
        wanted = [*IDS, *EMAILS, "Identifier"]
        if table.column(*wanted) is None:
            raise Unusable(f"{path}, line 1: no column is called {', '.join(wanted[:-1])} or {wanted[-1]}")
        students = list(students)
        ids: dict[str, set[str]] = {}
        for one in students:
            ids.setdefault((one.email or "").casefold(), set()).add(one.id)
        listed = [person(table, row) for row in table.rows]
        often = Counter(found.email.casefold() for found in listed if found)
        there = {one.id for one in students}
        people: dict[str, Person] = {}
        lines: dict[str, int] = {}
        for found, line in zip(listed, table.lines, strict=True):
            if found is None:
                continue
            # An address that two have in common, such as a team's, is nobody's.
            email = found.email.casefold()
            alike = ids.get(email, set()) if email and often[email] == 1 else set()
            known = next(iter(alike)) if len(alike) == 1 else as_known(found.id, there)
            found = replace(found, id=known)
            if "/" in found.id or found.id.startswith(".") or unfit_for_a_name(found.id):
                words = "rename its column to Identifier if it is a number of the platform's, or change it"
                raise Unusable(f"{path}, line {line}: {found.id!r} cannot be the name of a folder: {words}")
            before = lines.setdefault(spelled(found.id), line)
            if before != line:
                raise Unusable(f"{path}, line {line}: {found.id!r} is in line {before}, too")
            people[found.id] = found
        if not people:
            raise Unusable(f"{path} names nobody")
        return cls(people.values())

    @classmethod
    def of(cls, students: Iterable[Any]) -> "Roster":
        """The students that the gradebook knows."""
        return cls(
            Person(
                one.id,
                one.first_name or "",
                one.last_name or "",
                one.email or "",
                frozenset(filter(None, [(one.email or "").casefold()])),
                frozenset(filter(None, [one.lms_user_id])),
            )
            for one in students
        )

    def find(self, names: Iterable[str], number: str = "", is_shown: bool = False) -> Person | None:
        """The one student whom one of these names fits, the first that fits anybody; or else the number.

        Parameters
        ----------
        names : iterable of str
        number : str
            What the platform calls the person, if it is known.
        is_shown : bool
            Whether the names are those that a platform shows, and not those of folders.

        Raises
        ------
        LookupError
            If a name fits several students, and the number none of them, or the number is another's; the
            message says whom.
        """
        numbered = self._by_number.get(number, [])
        several: list[Person] = []
        for name in filter(None, names):
            keyed, named = self._by_key.get(_key(name), []), self._by_name.get(letters(name), [])
            # What a platform shows is a name, and may be what somebody else is called.
            found = named or [one for one in keyed if not one.name] if is_shown else keyed or named
            if len(found) > 1:
                exactly = [one for one in found if one.id == name and not is_shown]
                found = exactly or [one for one in found if one in numbered] or found
            if len(found) == 1:
                # What a platform shows as a name, students may be able to change.
                if len(numbered) == 1 and found != numbered:
                    raise LookupError(f"is {found[0].id} by its name, and {numbered[0].id} by its number")
                return found[0]
            several = several or found
        if several:
            raise LookupError(f"fits {' and '.join(one.id for one in several)}")
        return numbered[0] if len(numbered) == 1 else None


def _key(name: str) -> str:
    return spelled(spelled(name).casefold())


def letters(name: str) -> str:
    """A name without what platforms change in it: capitals, accents, spaces and signs."""
    plain = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in plain if letter.isalnum() or _is_vowel(letter))


def _is_vowel(letter: str) -> bool:
    """Whether a mark is a part of the name, as the vowels of many scripts are: those of Latin are accents."""
    return unicodedata.category(letter) in ("Mn", "Mc") and not "\u0300" <= letter <= "\u036f"
