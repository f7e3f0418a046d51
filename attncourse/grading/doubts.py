"""What makes it uncertain whose a notebook is, beside the others of its delivery."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attncourse.grading.archives import Found
from attncourse.grading.platforms import Sender
from attncourse.grading.roster import Person

A_CLASS = 3  # so many notebooks in one folder may be a class


@dataclass(frozen=True)
class Notebook:
    """A notebook of a unit, and whose it is by its own name, with its content in `kept`."""

    unit: str
    found: Found
    sha256: str
    kept: Path
    sender: Sender
    person: Person | None
    level: int | None  # how far in the name stands
    reason: str = ""  # why it is nobody's
    fits: bool = True  # whether it has cells of the unit

    @property
    def in_zip(self) -> bool:
        """Whether the name stands in a zip, which may be a student's: not that of one whole delivery."""
        return any(place < (self.level or 0) for place in self.found.zips)

    @property
    def whose(self) -> tuple[str, str]:
        """The student and the unit; no student where the name is nobody's."""
        return self.person.id if self.person else "", self.unit


def known_by_several_numbers(student: str, has_roster: bool) -> str:
    """Why nobody can tell who handed in, in words that continue the place of a notebook."""
    better = "a roster with its numbers" if has_roster else "a roster"
    return f"is of {student}, whom the platform knows by several numbers: give {better}"


class Delivery:
    """The notebooks of one delivery, which together say what the names of each are worth.

    Parameters
    ----------
    notebooks : sequence of Notebook
    has_roster : bool
        Whether names are those of a roster; without one, everybody is called as the folder or file.
    """

    def __init__(self, notebooks: Sequence[Notebook], has_roster: bool) -> None:
        self.has_roster = has_roster
        self.of_unit = Counter(one.unit for one in notebooks)
        folders = zip(*(one.found.parts[:-1] for one in notebooks), strict=False)
        alike = itertools.takewhile(lambda names: len(set(names)) == 1, folders)
        self.outer = [names[0] for names in alike]  # the folders in which all of them lie
        named = [one for one in notebooks if one.level is not None]
        self.most_are_named = 2 * len(named) > len(notebooks)
        # How far in names stand, in zips and elsewhere.
        self.levels: dict[bool, set[int | None]] = defaultdict(set)
        # In what each student is named; by whom a folder's notebooks are, by the names further in; and the
        # folders with a notebook that lie in one that is called as the student.
        self.places: dict[tuple[str, str, bool], set[tuple[str, ...]]] = defaultdict(set)
        self.others: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.within: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.numbers: dict[tuple[str, str], set[str]] = defaultdict(set)
        for one in named:
            self.levels[one.in_zip].add(one.level)
            if one.person is None:
                continue
            level, who = one.level or 0, one.sender
            if not who.platform:
                self.places[*one.whose, one.in_zip].add(one.found.parts[:level])
            self.others[one.whose] |= {who.inside} - {""}
            self.within[one.whose].update(one.found.parts[level + 1 : -1][:1])
            self.numbers[one.whose] |= {who.number} - {""}
        self.students = len({student for student, _ in self.within})

    def doubt(self, one: Notebook) -> str:
        """Why a notebook is not certain to be whose it seems, in words that continue its place; or empty."""
        if one.person is None:
            return ""
        return (
            self._is_called_as_a_folder(one)
            or self._has_several_numbers(one)
            or (self._is_named_inside(one) if self.has_roster else self._is_no_student(one))
        )

    def _is_called_as_a_folder(self, one: Notebook) -> str:
        others = sorted(self.others[one.whose])
        if len(others) < 2:
            return ""
        words = f"lies in a folder that is called as {one.whose[0]} is, and so do notebooks of {others[0]}"
        return f"{words} and {others[1]}, by their names: rename the folder, or collect what is in it"

    def _has_several_numbers(self, one: Notebook) -> str:
        if len(self.numbers[one.whose]) < 2:
            return ""
        return known_by_several_numbers(one.whose[0], self.has_roster)

    def _is_named_inside(self, one: Notebook) -> str:
        """With a roster: whether the name stands in something that may be another student's.

        Where all names stand equally far in, those who made the delivery have written them. Where one stands
        further in, or in a zip while others do not, whoever handed in what it stands in may have; and where
        a student is named in two places, one of the two may be somebody else's.
        """
        equally = self.most_are_named and len(self.levels[one.in_zip]) == 1
        equally &= not (one.in_zip and self.levels[False])
        once = len(self.places[*one.whose, one.in_zip]) < 2
        if (one.level or 0) <= len(self.outer) or (equally and once):
            return ""
        place, student = repr("/".join(one.found.parts[: one.level])), one.whose[0]
        return (
            f"is {student}'s by a name inside of {place}, and not all are named so far in, or {student} "
            f"twice: if {place} is one student's, call it by their name; if not, collect it by itself"
        )

    def _is_no_student(self, one: Notebook) -> str:
        """Without a roster: whether a class's folder may be a student's, or a student's be a class's."""
        level = one.level or 0
        no_student = "if that is no student, collect what is in it; else give a roster"
        if one.sender.platform:
            # A platform's folder holds a class: nothing else tells it from a student's.
            if level > len(self.outer) or (level > 0 and self.students < A_CLASS):
                place = repr("/".join(one.found.parts[:level]))
                words = f"is {one.whose[0]}'s by a name inside of {place}, which may be a student's folder: "
                return (
                    f"{words}if it is, call it by their name; if not, collect what is in it, or give a roster"
                )
        elif level < len(self.outer) and self.of_unit[one.unit] >= A_CLASS:
            return f"lies in {'/'.join(self.outer)!r} like all others: {no_student}"
        elif len(self.within[one.whose]) >= A_CLASS:
            return f"lies in a folder in {one.found.parts[level]!r}, as others do: {no_student}"
        return ""
