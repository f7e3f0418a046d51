"""What goes back to a learning platform: its own table with the marks filled in, and a zip of feedback.

Moodle takes a zip of ``First Last_12345_assignfeedback_file_/unit.html``, with the number of its grading
worksheet. Canvas and Brightspace know feedback by the names under which they delivered what was handed in,
which ``collected.csv`` has kept.
"""

import argparse
import csv
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from attncourse.grading.collect import LIST
from attncourse.grading.marks import everyone
from attncourse.grading.platforms import BRIGHTSPACE, CANVAS
from attncourse.grading.roster import Person, Roster, letters, person
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import spelled
from attncourse.grading.tables import Table

PLATFORMS = ("moodle", "canvas", "brightspace")


def fill(course: Any, options: argparse.Namespace) -> list[str]:
    """Write a platform's table with the marks of a unit in their column.

    Returns
    -------
    list of str
        What was written, and a line for everyone who is missing in the table or the gradebook.

    Raises
    ------
    Unusable
    """
    table = Table.read(options.template)
    column = _column(table, options)
    points, marks = everyone(course.gradebook, course.rules.units)
    own, most = _marks(course, options.unit, points, marks)
    roster = Roster.of(course.gradebook.students)
    done, lines = set(), []
    possible = _possible(table, column)
    for row, line in zip(table.rows, table.lines, strict=True):
        found = person(table, row)
        if found is None:
            continue
        student = _student(found, roster)
        if student is None:
            lines.append(f"{options.template}, line {line}: {found.name or found.id} is not in the gradebook")
            continue
        done.add(student.id)
        value = own.get(student.id)
        if value is not None:
            highest = _number(table.cell(row, "Maximum Grade")) or possible or most
            row[column] = f"{value * highest / most:.2f}".rstrip("0").rstrip(".")
    missing = sorted(id_ for id_, value in own.items() if value is not None and id_ not in done)
    lines += [f"{id_} has a mark and is not in {options.template}" for id_ in missing]
    out = options.out or Path(f"{options.unit}_{options.to}.csv")
    table.write(out)
    filled = sum(own.get(id_) is not None for id_ in done)
    return [f"{out}: {filled} marks in the column {table.heading[column]!r}.", *lines]


def _marks(
    course: Any, unit: str, points: dict[str, float], marks: dict[str, dict[str, float | None]]
) -> tuple[dict[str, float | None], float]:
    """Everyone's marks in a unit, or their totals; and the most that can be had."""
    if unit == "total":
        students = [one.id for one in course.gradebook.students]
        each = {id_: {name: marks[name].get(id_) for name in points} for id_ in students}
        return {id_: course.rules.total(own, points) for id_, own in each.items()}, 100.0
    if unit not in marks:
        raise Unusable(f"nobody has a mark in {unit} yet")
    return marks[unit], points[unit]


def _column(table: Table, options: argparse.Namespace) -> int:
    """The number of the column to fill."""
    if options.column:
        found = table.column(options.column)
    elif options.to == "moodle":
        found = table.column("Grade")
    else:
        # "Attention operator (1234)", "attention_operator Points Grade <Numeric MaxPoints:24>"
        rest = re.compile(r"\(\d+\)$|Points Grade.*|<.*")
        names = {letters(rest.sub("", name)): number for number, name in enumerate(table.heading)}
        found = names.get(letters(options.unit))
    if found is None:
        wanted = options.column or options.unit
        heads = ", ".join(map(repr, table.heading))
        raise Unusable(
            f"{options.template}, line 1: no column is called {wanted}: name one of {heads} with --column"
        )
    return found


def _possible(table: Table, column: int) -> float | None:
    """The most that the platform gives, if its table says so: Canvas in a row, Brightspace in the heading."""
    if heading := re.search(r"MaxPoints:([\d.]+)", table.heading[column]):
        return float(heading[1])
    rows = (row for row in table.rows if table.cell(row, "Student").casefold() == "points possible")
    return next((_number(row[column]) for row in rows), None)


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ".")) or None
    except ValueError:
        return None


def _student(found: Person, roster: Roster) -> Person | None:
    """Who in the gradebook a row is about."""
    try:
        return roster.find([found.id, *sorted(found.keys), found.name])
    except LookupError:
        return None


def pack(course: Any, options: argparse.Namespace) -> list[str]:
    """Write a zip of the pages of feedback on a unit, named as the platform wants them.

    Returns
    -------
    list of str
        What was written, and a line for each page that is not in it.

    Raises
    ------
    Unusable
    """
    names = _moodle(course, options) if options.to == "moodle" else _as_delivered(course, options)
    folder = Path(course.folders.root, course.folders.feedback_directory)
    found = folder.glob(f"*/{options.unit}/{options.unit}.html")
    pages = {path.parents[1].name: path for path in sorted(found)}
    if not pages:
        raise Unusable(f"there is no feedback on {options.unit} yet: run make grade")
    out = options.out or Path(f"{options.unit}_{options.to}.zip")
    part = out.with_name(f".{out.name}.part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        for student in sorted(pages.keys() & names.keys()):
            # Without a date, so that the same pages give the same zip.
            archive.writestr(
                zipfile.ZipInfo(names[student]), pages[student].read_bytes(), zipfile.ZIP_DEFLATED
            )
    part.replace(out)
    left = sorted(pages.keys() - names.keys())
    lines = [f"{pages[one]} is not in it: the platform's name for {one} is not known" for one in left]
    return [f"{out}: {len(pages) - len(left)} pages of feedback.", *lines]


def _moodle(course: Any, options: argparse.Namespace) -> dict[str, str]:
    table = Table.read(options.template)
    if table.column("Identifier") is None:
        words = "no column is called Identifier: bring the grading worksheet"
        raise Unusable(f"{options.template}, line 1: {words}")
    roster = Roster.of(course.gradebook.students)
    names = {}
    for row in table.rows:
        found = person(table, row)
        number = re.sub(r"\D*(\d+)$", r"\1", table.cell(row, "Identifier"))
        student = _student(found, roster) if found else None
        if student is not None:
            full = re.sub(r"[_/\\]", " ", table.cell(row, "Full name") or student.name)
            names[student.id] = f"{full}_{number}_assignfeedback_file_/{options.unit}.html"
    return names


def _as_delivered(course: Any, options: argparse.Namespace) -> dict[str, str]:
    path = Path(course.folders.root, LIST)
    if not path.exists():
        raise Unusable(f"there is no {LIST}: the names under which {options.to} delivered are not known")
    names = {}
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == options.unit]
    for row in rows:
        # The first, from the outside: what stands in a zip of a student's, the student has named.
        for place in re.split(r": |/", row["source"]):
            if options.to == "canvas" and CANVAS.match(place):
                names[row["student_id"]] = f"{place.rpartition('.')[0]}.html"
                break
            if options.to == "brightspace" and BRIGHTSPACE.match(place):
                names[row["student_id"]] = f"{place}/{options.unit}.html"
                break
    # Of two who would get the same page nobody gets it: one of the names is not the platform's.
    often = Counter(map(spelled, names.values()))
    return {student: name for student, name in names.items() if often[spelled(name)] == 1}
