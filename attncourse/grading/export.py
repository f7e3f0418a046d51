"""Everyone's marks as tables, by nbgrader's own extension point.

nbgrader's own command writes them, too:
``nbgrader export --exporter=attncourse.grading.export.TaskMarks --to=grades_by_task.csv``.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from nbgrader.api import Gradebook, MissingEntry
from nbgrader.plugins import ExportPlugin

from attncourse.grading.harmless import csv_cell


def mark(grade: Any) -> float | None:
    """The mark as it counts, None where neither a check nor a person has given one."""
    return None if grade.auto_score is None and grade.manual_score is None else grade.score


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
            for student in sorted(gradebook.students, key=lambda one: one.id):
                person = [student.id, student.last_name, student.first_name, student.email]
                timestamp = raw = penalty = score = None
                try:
                    submission = gradebook.find_submission(assignment.name, student.id)
                except MissingEntry:
                    pass
                else:
                    timestamp = submission.timestamp
                    if any(mark(grade) is not None for one in submission.notebooks for grade in one.grades):
                        raw, penalty = submission.score, submission.late_submission_penalty or 0.0
                        score = max(0.0, raw - penalty)
                yield [
                    *[assignment.name, assignment.duedate, timestamp, *person],
                    *[raw, penalty, score, assignment.max_score],
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


def _write(name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with open(name, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(map(csv_cell, row) for row in rows)
