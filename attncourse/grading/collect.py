"""``python -m attncourse.grading collect``: what a platform delivers, put where grading looks for it."""

import argparse
import csv
import datetime
import functools
import hashlib
import json
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from attncourse.grading import leftovers
from attncourse.grading.archives import Found, delivered
from attncourse.grading.autograding import text_of
from attncourse.grading.course import Course
from attncourse.grading.doubts import Delivery, Notebook, known_by_several_numbers
from attncourse.grading.grader import Grader
from attncourse.grading.harmless import csv_cell, one_line
from attncourse.grading.job import Graded, Job, NotGraded
from attncourse.grading.platforms import MOODLES, Sender, attempt, numbers_in, read_time, sender
from attncourse.grading.roster import Person, Roster
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import as_known, digest, spelled, unfit_for_a_name
from attncourse.grading.trouble import advice

DESCRIPTION = """\
Copy the notebooks that a learning platform delivers into submitted/. A PATH is a
zip as downloaded from Moodle, Canvas or Brightspace, a folder unpacked from one,
or any folder of notebooks. Which unit a notebook belongs to is seen by its cells,
whatever it is called. Nothing is moved or unpacked; what is in submitted/ already
stays unless a newer attempt comes. The same command with more files takes what is
new. collected.csv says what came from where."""

ROSTER = """\
who takes the course: the platform's own export of participants, of its gradebook,
or Moodle's grading worksheet, as it is; or nbgrader's id,last_name,first_name,email.
It gives everyone a name in the gradebook"""

LIST = "collected.csv"
PACKED = (".rar", ".7z", ".tar", ".gz", ".tgz", ".bz2", ".xz")
# Of so many attempts of one student the best is looked for, and so much of what is left over is shown.
MOST_ATTEMPTS, MOST_LINES, LONGEST_LINE = 10, 100, 1000


@dataclass(frozen=True)
class Taken:
    """A line of ``collected.csv``: where the notebook in a folder of ``submitted/`` came from."""

    student_id: str
    assignment: str
    time: str
    late: str
    sha256: str
    source: str

    @property
    def places(self) -> list[str]:
        """The names in the source: of folders, zips, and the file."""
        return re.split(": |/", self.source)


@dataclass(frozen=True)
class Attempt:
    """A notebook that somebody handed in.

    Its content is in `kept`, not in `found`: the memory of a machine does not hold those of a class.
    """

    student: str
    unit: str
    found: Found
    sha256: str
    kept: Path
    sender: Sender
    handed_in: datetime.datetime | None  # in UTC, where somebody knows
    fits: bool = True  # whether it has cells of the unit: else it is something that lay beside

    @property
    def order(self) -> tuple[bool, datetime.datetime, int, int]:
        """By the platform's time, or else the file's; then by the number in the name, and the place.

        What is in a zip of somebody's has one time: there a notebook counts before one further in.
        """
        time, parts = self.sender.time or self.found.time, self.found.parts
        return (self.fits, time, attempt(parts[-1]), -len(parts))

    @property
    def taken(self) -> Taken:
        time = (self.sender.time or self.found.time).isoformat(sep=" ", timespec="seconds")
        late = "late" if self.sender.late else ""
        return Taken(self.student, self.unit, time, late, self.sha256, self.found.place)


class Collection:
    """Finds out who handed in what, and copies it.

    Parameters
    ----------
    course : Course
    units : sequence of str
        Notebooks of other units are left where they are.
    certain : bool
        Whether a notebook without any cell of the course is of the one unit all the same.
    roster : Roster or None
        Without one, everybody is called as the folder or file.
    keep_all : bool
        Whether of several attempts more than the last is looked at.
    folder : Path
        An empty one, for what was handed in until it is copied.
    """

    def __init__(
        self,
        course: Course,
        units: Sequence[str],
        certain: bool,
        roster: Roster | None,
        keep_all: bool,
        folder: Path,
    ) -> None:
        self.course = course
        self.units = units
        self.certain = certain
        self.roster = roster
        self.keep_all = keep_all
        self.folder = folder
        self.seen: set[tuple[str, str]] = set()
        self.cells = {unit: frozenset(course.cells(unit)) for unit in course.units()}
        self.attempts: dict[tuple[str, str], list[Attempt]] = {}
        self.unmatched: list[str] = []
        self.others: list[str] = []  # of another unit, or no notebooks
        # By what numbers the platform knows who handed in what, in this run and before.
        self.numbers: dict[tuple[str, str], set[str]] = {}
        self.several: set[tuple[str, str]] = set()
        # Without a roster, the names that became one name in the gradebook.
        self.spellings: dict[str, set[str]] = {}
        self.list = Path(course.folders.root, LIST)
        # Without a roster, a student who is there already is called as the folder.
        self.there = {path.name for path in course.submitted.glob("*")}
        self.failed = False

    def look_through(self, paths: Iterable[Path]) -> None:
        """Find the notebooks in what was delivered."""
        for path in paths:
            notebooks: list[Notebook] = []
            with_one: set[str] = set()
            without: dict[str, str] = {}
            for found in delivered(path):
                if isinstance(found, str):
                    self.unmatched.append(found)
                    continue
                name = found.parts[-1].lower()
                whose, by_platform = self._bundle(found)
                if name.endswith(".ipynb"):
                    with_one.add(whose)
                    notebooks += self._read(found)
                elif name not in ("index.html", "timestamp.txt", "submission_secret.txt"):
                    words = f"{found.place} {_why_not_read(name)}"
                    self.others.append(words)
                    if by_platform or not words.endswith(_OTHER):
                        without.setdefault(whose, words)
            self._add(notebooks)
            # Whoever has handed in something else only is named, however many lines there are.
            alone = {words: whose for whose, words in without.items() if whose not in with_one}
            self.others = [words for words in self.others if words not in alone]
            self.unmatched += [
                f"{words}, and there is no notebook of {whose!r}" for words, whose in alone.items()
            ]
        for student, names in self.spellings.items():
            if len(names) > 1:
                both = " and ".join(map(repr, sorted(names)))
                words = f"is of {student!r}, who may be any of {both}: rename all but one, or give a roster"
                self._give_up(student, words)

    def _bundle(self, found: Found) -> tuple[str, bool]:
        """What was handed in together, by the platform's name or the outermost folder; and which of them."""
        who = sender(found.parts, self.cells)
        if who.platform:
            return f"{who.names[0]} ({who.number})", True
        return found.parts[0], False

    def _read(self, found: Found) -> list[Notebook]:
        """What a file is, if it is a notebook of a unit that is wanted, and new."""
        sha256 = _sha(found.content)
        if (found.place, sha256) in self.seen:
            return []
        self.seen.add((found.place, sha256))
        words = "has no cell of any unit"
        try:
            unit = unit_of(found.content, self.cells, self.course.limits.most_values)
        except NotGraded as reason:
            unit, words = None, str(reason)
        fits = unit is not None
        if unit is None and self.certain:
            unit = self.units[0]  # grading says what is wrong with it
        if unit is None:
            self.unmatched.append(f"{found.place} {words}")
        elif unit not in self.units:
            self.others.append(f"{found.place} belongs to {unit}")
        else:
            kept = self.folder / str(len(self.seen))
            kept.write_bytes(found.content)
            found = replace(found, content=b"")
            who = sender(found.parts, self.cells)
            try:
                return [Notebook(unit, found, sha256, kept, *self._person(who), fits=fits)]
            except LookupError as reason:
                level = len(who.around) if who.platform else None
                return [Notebook(unit, found, sha256, kept, who, None, level, str(reason))]
        return []

    def _add(self, notebooks: Sequence[Notebook]) -> None:
        """Take the notebooks of one delivery, each as somebody's."""
        delivery = Delivery(notebooks, self.roster is not None)
        for one in notebooks:
            doubt = delivery.doubt(one)
            if one.person is not None and not doubt:
                doubt = self._several_numbers(one.person, one.unit, one.sender)
            if one.person is None or doubt:
                self.unmatched.append(f"{one.found.place} {one.reason or doubt}")
                one.kept.unlink()
                continue
            handed_in = self._handed_in(one.found, one.sender, one.person)
            given = one.person.id, one.unit, one.found, one.sha256, one.kept, one.sender
            self._keep(Attempt(*given, handed_in, one.fits))

    def _several_numbers(self, person: Person, unit: str, who: Sender) -> str:
        """Why it is not certain who handed in, where the name came with another number in another delivery.

        What of that has been brought in this run is nobody's, either. A number of Moodle's is one of a person
        in one exercise, any other is the person's.
        """
        number = who.number
        if not number or number in person.numbers:
            return ""
        unit = unit if who.platform == "moodle" else ""
        whose = person.id, unit
        if whose not in self.numbers:
            places = [
                place for one in self._brought(person) if unit in (one.assignment, "") for place in one.places
            ]
            self.numbers[whose] = {
                one for place in places for one in numbers_in(place) if unit or not MOODLES.search(place)
            }
        words = known_by_several_numbers(person.id, self.roster is not None)
        if self.numbers[whose] and number not in self.numbers[whose]:
            self.several.add(whose)
            self._give_up(person.id, words, unit)
        self.numbers[whose].add(number)
        return words if whose in self.several else ""

    def _give_up(self, student: str, words: str, unit: str = "") -> None:
        """Take what was brought in this run as somebody's, of one unit or of all, for nobody's."""
        for whose in [one for one in self.attempts if one[0] == student and unit in (one[1], "")]:
            for one in self.attempts.pop(whose):
                self.unmatched.append(f"{one.found.place} {words}")
                one.kept.unlink(missing_ok=True)

    def _keep(self, one: Attempt) -> None:
        """Keep an attempt: of several the last comes to stand at the end, and only its file stays."""
        attempts = self.attempts.setdefault((one.student, one.unit), [])
        if any(other.sha256 == one.sha256 and other.found.parts == one.found.parts for other in attempts):
            one.kept.unlink()  # downloaded twice
            return
        attempts[-1:] = sorted([*attempts[-1:], one], key=lambda each: each.order)
        if self.keep_all and len(attempts) > MOST_ATTEMPTS:
            attempts.sort(key=lambda each: each.order)
            attempts.pop(0).kept.unlink()
        if not self.keep_all and len(attempts) > 1:
            attempts[-2].kept.unlink()

    def _person(self, who: Sender) -> tuple[Sender, Person, int | None]:
        """Whose it is: what is to be believed of the names, the person, and how far in that name stands.

        Raises
        ------
        LookupError
            If that is not certain; the message continues the name of the file.
        """
        if self.roster is not None:
            for level, names in enumerate(who.around):
                # A zip that carries a student's name is that student's, whatever names and times stand in it.
                if found := self._of_folder(names):
                    other = self._inside(who, level)
                    inside = other.id if other and other is not found else ""
                    return Sender(names, (level,) * len(names), inside=inside), found, level
        if who.doubt:
            raise LookupError(who.doubt)
        if self.roster is not None:
            found = self.roster.find(who.names, who.number, bool(who.platform))
            if found is None:
                raise LookupError(
                    f"is of {who.names[-1]!r}, who is not on the roster" if who.names else _NOBODY
                )
            level = next(
                (at for name, at in zip(who.names, who.levels, strict=True) if self._is(name, found)),
                who.levels[0],
            )
            return who, found, level
        if not who.names:
            raise LookupError(_NOBODY)
        # Of a platform's number and name, the name: the number may be another one in the next exercise.
        name = who.names[-1] if who.platform else who.names[0]
        plain = "-".join(name.split())
        obeyed = any(unicodedata.category(letter) == "Cc" for letter in plain)  # by a terminal
        if not plain or plain.startswith(".") or "/" in plain or obeyed:
            raise LookupError(
                f"is of {name!r}, which cannot be the name of a folder: rename it, or give a roster"
            )
        if unfit := unfit_for_a_name(plain):
            raise LookupError(f"is of {name!r}: the name {unfit}; rename it, or give a roster")
        person = Person(as_known(spelled(plain), self.there))
        if person.id not in self.spellings:
            stems = (
                PurePosixPath(place).stem for one in self._brought(person) for place in (*one.places, "")
            )
            self.spellings[person.id] = {
                spelled(one) for one in stems if spelled("-".join(one.split())) == plain
            }
        self.spellings[person.id].add(spelled(name))
        return who, person, who.levels[-1 if who.platform else 0]

    def _inside(self, who: Sender, level: int) -> Person | None:
        """Whom the names further in fit."""
        assert self.roster is not None
        names = [name for name, at in zip(who.names, who.levels, strict=True) if at > level]
        try:
            return self.roster.find(names, who.number, bool(who.platform))
        except LookupError:
            return None

    def _of_folder(self, names: Sequence[str]) -> Person | None:
        """The student whom one of the names fits that a folder may say; LookupError if it is one each."""
        assert self.roster is not None
        fitting = {found.id: found for name in names if (found := self.roster.find((name,)))}
        if len(fitting) > 1:
            raise LookupError(f"may be {' or '.join(fitting)}'s, by the name of its folder: rename that")
        return next(iter(fitting.values()), None)

    def _is(self, name: str, person: Person) -> bool:
        assert self.roster is not None
        try:
            return self.roster.find((name,)) is person
        except LookupError:
            return False

    def _handed_in(self, found: Found, who: Sender, person: Person) -> datetime.datetime | None:
        """When it was handed in, in UTC, if the platform says so.

        The times in Moodle's zips are those of the upload, in Canvas's those of the download.
        """
        local = who.time or (read_time(person.time) if person.time else None)
        if local is None and who.platform == "moodle":
            local = found.time
        return None if local is None else self.course.rules.utc(local)

    def copy(self, choose: Callable[[list[Attempt]], Attempt]) -> list[tuple[Attempt, str]]:
        """Copy one attempt of everyone's, and return it with what was done."""
        before = self._before()
        done = []
        for (student, unit), attempts in sorted(self.attempts.items()):
            chosen = choose(sorted(attempts, key=lambda one: one.order))
            try:
                words = self._copy(chosen, before.get((student, unit)))
            except OSError as error:
                words = f"not copied: {advice(error) or error.strerror}"
                self.failed = True
            # Copied by a run that came no further, too.
            if words in (_NEW, _NEWER) or (words == _SAME and (student, unit) not in before):
                before[student, unit] = chosen.taken
                self._write(before.values())
            done.append((chosen, words))
        return done

    def _copy(self, one: Attempt, before: Taken | None) -> str:
        folder = self.course.submitted / one.student / one.unit
        notebook = folder / f"{one.unit}.ipynb"
        words = _NEW
        if os.path.lexists(notebook):
            there = _sha(notebook.read_bytes()) if notebook.is_file() else ""
            if there == one.taken.sha256:
                return _SAME
            if before is None or before.sha256 != there:
                return (
                    "not copied: another one lies there, which collect did not bring; delete it to take this"
                )
            if not one.fits:
                return f"not copied: it has no cell of {one.unit}, and another one is there"
            if before.time > one.taken.time:
                return "not copied: a newer one is there"
            words = _NEWER
        folder.mkdir(parents=True, exist_ok=True)
        part = folder / f".{notebook.name}.part"
        part.write_bytes(one.kept.read_bytes())
        seconds = one.found.time.timestamp()
        os.utime(part, (seconds, seconds))
        timestamp = folder / "timestamp.txt"
        if one.handed_in is not None:
            timestamp.write_text(f"{one.handed_in:%Y-%m-%d %H:%M:%S} UTC\n")
        elif timestamp.exists():
            timestamp.unlink()
        part.replace(notebook)
        return words

    def _before(self) -> dict[tuple[str, str], Taken]:
        """What was brought before."""
        # What a spreadsheet would have calculated is marked as text.
        ids = {csv_cell(student): student for student, _ in self.attempts}
        return {(ids.get(one.student_id, one.student_id), one.assignment): one for one in self.brought}

    def _brought(self, person: Person) -> list[Taken]:
        return [one for one in self.brought if one.student_id == csv_cell(person.id)]

    @functools.cached_property
    def brought(self) -> list[Taken]:
        """What runs before this one have copied."""
        if not self.list.exists():
            return []
        try:
            with self.list.open(newline="", encoding="utf-8-sig") as file:
                rows = list(csv.reader(file))
        except (OSError, ValueError, csv.Error) as error:
            raise Unusable(
                f"{LIST} cannot be read ({type(error).__name__}): put back a copy, in UTF-8, or move it away"
            ) from None
        try:
            return [Taken(*row) for row in rows[1:]]
        except TypeError:
            line = next(number for number, row in enumerate(rows, 1) if len(row) != len(_COLUMNS))
            raise Unusable(f"{LIST}, line {line}: has not {len(_COLUMNS)} cells; mend or delete it") from None

    def _write(self, taken: Iterable[Taken]) -> None:
        part = self.list.with_name(f".{LIST}.part")
        with part.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(_COLUMNS)
            writer.writerows(sorted([csv_cell(cell) for cell in astuple(one)] for one in taken))
        part.replace(self.list)


_COLUMNS = tuple(Taken.__dataclass_fields__)
_NOBODY = "does not say whose it is: put it into a folder of the student's name"
_OTHER = "is no notebook"
_NEW, _NEWER, _SAME = "new", "newer attempt", "there already"


def _why_not_read(name: str) -> str:
    """What kind of file it is, if it is none that is read; continues its name."""
    if name.endswith(PACKED):
        return "is packed in a way that is not read: unpack it"
    if ".ipynb." in name:
        return "may be a notebook under another name: let its name end in .ipynb"
    return _OTHER


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def unit_of(content: bytes, cells: Mapping[str, frozenset[str]], most_values: int) -> str | None:
    """The unit that most of a notebook's cells belong to; None if it is not a notebook, or of none.

    Raises
    ------
    NotGraded
        If it cannot be read, or holds too much to be.
    """
    text = text_of(content, most_values)
    try:
        found = json.loads(text)["cells"]
        names = {name for cell in found if isinstance(name := _name_of(cell), str)}
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    counts = {unit: len(names & own) for unit, own in cells.items()}
    best = max(counts, key=lambda unit: counts[unit], default=None)
    return best if best is not None and counts[best] else None


def _name_of(cell: Any) -> Any:
    """The name of a cell for nbgrader; None where something else than a name or nothing stands there."""
    for key in ("metadata", "nbgrader", "grade_id"):
        cell = cell.get(key) if isinstance(cell, dict) else None
    return cell


class Best:
    """Chooses the attempt that gets the most points, by grading them all; the later one of two equals."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.grader = Grader(600)

    def __call__(self, attempts: list[Attempt]) -> Attempt:
        if len(attempts) == 1:
            return attempts[0]
        return max(attempts, key=lambda one: (self._points(one), one.order))

    def _points(self, one: Attempt) -> float:
        files = {f"{one.unit}.ipynb": one.kept.read_bytes()}
        unit = self.course.prepare(one.unit)
        result = self.grader.grade(unit, Job(one.student, files, digest(files)))
        return sum(mark or 0 for mark in result.marks.values()) if isinstance(result, Graded) else -1.0


def last(attempts: list[Attempt]) -> Attempt:
    return attempts[-1]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading collect",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="what was downloaded")
    parser.add_argument(
        "--unit", metavar="U", help="only notebooks of this unit; also those that have no cells"
    )
    parser.add_argument("--roster", type=Path, metavar="CSV", help=ROSTER)
    parser.add_argument(
        "--attempts",
        choices=("last", "best"),
        default="last",
        help="of several attempts of one student, the last (default), or the best of the last ten",
    )
    options = parser.parse_args(arguments)
    course = Course.here(parser)
    units = course.chosen([options.unit] if options.unit else [], parser)
    with course.alone() as alone, leftovers.Folder() as folder:
        if not alone:
            parser.exit(2, "error: another run is grading in this folder\n")
        try:
            return _collect(course, units, options, Path(folder))
        except (Unusable, NotGraded) as reason:
            print(one_line(f"Nothing is collected: {reason}."), file=sys.stderr)
        except Exception as error:
            if not (words := advice(error)):
                raise
            print(one_line(f"{words}. Then run the same command again to go on."), file=sys.stderr)
        return 1


def _collect(course: Course, units: Sequence[str], options: argparse.Namespace, folder: Path) -> int:
    roster = None
    if options.roster:
        roster = Roster.read(options.roster, course.gradebook.students)
    elif any(one.first_name or one.last_name for one in course.gradebook.students):
        roster = Roster.of(course.gradebook.students)
    collection = Collection(course, units, bool(options.unit), roster, options.attempts == "best", folder)
    collection.look_through(options.paths)
    if options.roster and roster:
        for one in roster.people:
            course.gradebook.update_or_create_student(
                one.id, first_name=one.first or None, last_name=one.last or None, email=one.email or None
            )
    course.gradebook.db.remove()
    best = Best(course) if options.attempts == "best" else None
    try:
        done = collection.copy(best or last)
    finally:
        if best:
            best.grader.close()
    for line in summary(collection, done, roster, options.unit):
        print(line)
    return int(bool(collection.unmatched) or collection.failed or not done)


def summary(
    collection: Collection, done: Sequence[tuple[Attempt, str]], roster: Roster | None, unit: str | None
) -> list[str]:
    """What came of it, as lines to print."""
    rows = [
        (
            one.student,
            one.unit,
            f"{one.handed_in:%Y-%m-%d %H:%M} UTC" if one.handed_in else "time not known",
            words + (", late" if one.sender.late else ""),
        )
        for one, words in done
    ]
    widths = [max((len(one_line(cell)) for cell in column), default=0) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{one_line(cell):<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += ["", f"Matched: {len({one.student for one, _ in done})} students, {len(done)} notebooks."]
    for (student, name), attempts in sorted(collection.attempts.items()):
        if len(attempts) > 1:
            chosen = next(one for one, _ in done if (one.student, one.unit) == (student, name))
            lines.append(f"Twice: {student}, {name}: {len(attempts)} attempts, taken {chosen.found.place}")
    late = [one for one, _ in done if one.sender.late and one.handed_in is None]
    lines += [f"Late, but not known when: {one.student}, {one.unit}: write timestamp.txt" for one in late]
    if roster is not None and unit:
        there = {one.student for one, _ in done}
        there |= {path.parents[1].name for path in collection.course.submitted.glob(f"*/{unit}/{unit}.ipynb")}
        there = set(map(spelled, there))
        absent = [one for one in roster.people if spelled(one.id) not in there]
        lines += [f"Absent: {one.id}{f' ({one.name})' if one.name else ''}" for one in absent]
    if roster is not None:
        known = {csv_cell(one.id) for one in roster.people}
        before = sorted({one.student_id for one in collection.brought} - known)
        words = "was collected before and is not on the roster: if it is somebody who is, delete submitted/"
        lines += [f"Left over: {student} {words}{student}" for student in before]
    lines += [f"Unmatched: {words}" for words in collection.unmatched]
    others = sorted(collection.others, key=lambda words: words.endswith(_OTHER))
    lines += [f"Left where it is: {words}" for words in others[:MOST_LINES]]
    if (more := len(collection.others) - MOST_LINES) > 0:
        lines.append(f"Left where it is: {more} more")
    return [one_line(line, LONGEST_LINE) for line in lines]
