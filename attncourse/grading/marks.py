"""Everyone's marks as tables, by nbgrader's own extension point.

nbgrader's own command writes them, too:
``nbgrader export --exporter=attncourse.grading.marks.TaskMarks --to=grades_by_task.csv``.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook
from nbgrader.plugins import ExportPlugin

from attncourse.grading import rules
from attncourse.grading.harmless import csv_cell


def mark(grade: Any) -> float | None:
    """The mark as it counts, None where neither a check nor a person has given one."""
    return None if grade.auto_score is None and grade.manual_score is None else grade.score


def score(submission: Any) -> float | None:
    """The points of a submission as they count, None where there is no mark."""
    if not any(mark(grade) is not None for one in submission.notebooks for grade in one.grades):
        return None
    return max(0.0, submission.score - (submission.late_submission_penalty or 0.0))


class UnitMarks(ExportPlugin):
    """The table of nbgrader's own CSV export, but empty where there is no mark.

    nbgrader writes 0 there, also for what could not be graded, and does not quote a comma.
    """

    def export(self, gradebook: Gradebook) -> None:
        columns = ["assignment", "duedate", "timestamp", "student_id", "last_name", "first_name", "email"]
        columns += ["raw_score", "late_submission_penalty", "score", "max_score"]
        _write(self.to or "grades.csv", columns, self._rows(gradebook))

    def _rows(self, gradebook: Gradebook) -> Iterator[Sequence[Any]]:
        for assignment in sorted(gradebook.assignments, key=lambda one: one.name):
            submissions = {one.student_id: one for one in assignment.submissions}
            for student in sorted(gradebook.students, key=lambda one: one.id):
                person = [student.id, student.last_name, student.first_name, student.email]
                timestamp = raw = penalty = counts = None
                submission = submissions.get(student.id)
                if submission is not None:
                    timestamp, counts = submission.timestamp, score(submission)
                    if counts is not None:
                        raw, penalty = submission.score, submission.late_submission_penalty or 0.0
                yield [
                    *[assignment.name, assignment.duedate, timestamp, *person],
                    *[raw, penalty, counts, assignment.max_score],
                ]


class TaskMarks(ExportPlugin):
    """A table with one row for each student and graded cell."""

    def export(self, gradebook: Gradebook) -> None:
        columns = ["assignment", "student_id", "cell", "score", "max_score"]
        _write(self.to or "grades_by_task.csv", columns, self._rows(gradebook))

    def _rows(self, gradebook: Gradebook) -> Iterator[Sequence[Any]]:
        for assignment in sorted(gradebook.assignments, key=lambda one: one.name):
            for submission in sorted(assignment.submissions, key=lambda one: one.student_id):
                for grade in (grade for notebook in submission.notebooks for grade in notebook.grades):
                    row = (assignment.name, submission.student_id, grade.name)
                    yield [*row, mark(grade), grade.max_score]


class TotalMarks(ExportPlugin):
    """A table with one row for each student, a column for each unit, and the total in percent.

    The total is by the rules of the course. A unit counts as soon as somebody has a mark in it.
    """

    def export(self, gradebook: Gradebook) -> None:
        course = rules.read(Path())
        points, marks = everyone(gradebook, course.units)
        columns = ["student_id", "last_name", "first_name", "email", *points, "total"]
        rows = []
        for student in sorted(gradebook.students, key=lambda one: one.id):
            own = {unit: marks[unit].get(student.id) for unit in points}
            total = course.total(own, points)
            person = [student.id, student.last_name, student.first_name, student.email]
            rows.append([*person, *own.values(), None if total is None else round(total, 2)])
        _write(self.to or "total.csv", columns, rows)


def everyone(
    gradebook: Gradebook, taught: Sequence[str] = ()
) -> tuple[dict[str, float], dict[str, dict[str, float | None]]]:
    """The points of every unit in which somebody has a mark, and everyone's marks in it."""
    points: dict[str, float] = {}
    marks: dict[str, dict[str, float | None]] = {}
    for assignment in sorted(gradebook.assignments, key=lambda one: one.name):
        own = {one.student_id: score(one) for one in assignment.submissions}
        if (not taught or assignment.name in taught) and any(one is not None for one in own.values()):
            points[assignment.name], marks[assignment.name] = assignment.max_score, own
    return points, marks


def _write(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    part = Path(f"{name}.part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(map(csv_cell, row) for row in rows)
    part.replace(name)
