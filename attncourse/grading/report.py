"""The class report: how a unit went, as one HTML page that needs nothing beside it, and as CSV.

All of it is read from what grading has left: the gradebook's marks and the remarks that every
autograded notebook carries. Whatever a student can have written is text in it, never HTML.
"""

import csv
import io
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader

from attncourse.checks.judge import link
from attncourse.checks.task import registry
from attncourse.grading.harmless import csv_cell, one_line


@dataclass(frozen=True)
class Entry:
    """What the report has to know of one submission.

    Parameters
    ----------
    student : str
    marks : mapping of str to float or None
        The mark of each graded cell; empty if the submission could not be graded.
    about : mapping
        What the autograded notebook says of its grading: "checks", "flags", "isolation".
    remarks : sequence of str
        What a person should look at.
    penalty : float
        The points taken off for being late.
    """

    student: str
    marks: Mapping[str, float | None] = field(default_factory=dict)
    about: Mapping[str, Any] = field(default_factory=dict)
    remarks: Sequence[str] = ()
    penalty: float = 0

    @property
    def graded(self) -> bool:
        return bool(self.marks)

    @property
    def total(self) -> float:
        return max(0.0, sum(mark or 0 for mark in self.marks.values()) - self.penalty)

    @property
    def isolation(self) -> str:
        return self.about.get("isolation", "unknown")

    def check(self, cell: str) -> Mapping[str, Any]:
        """What was noted about a graded cell; nothing if the submission was not graded."""
        return self.about.get("checks", {}).get(cell, {})


@dataclass(frozen=True)
class Mistake:
    """A misconception, how many have it, and where the book explains it."""

    label: str
    count: int
    read: str


@dataclass(frozen=True)
class TaskSummary:
    """How the class did on one graded cell."""

    name: str
    points: float
    right: int
    share: float
    mean: float
    mistakes: Sequence[Mistake]
    others: int  # wrong in a way that no check knows


@dataclass(frozen=True)
class Report:
    """A unit's results.

    Parameters
    ----------
    unit : str
    points : mapping of str to float
        The graded cells in the order of the notebook, and the points of each.
    entries : sequence of Entry
        One for each submission.
    """

    unit: str
    points: Mapping[str, float]
    entries: Sequence[Entry]

    @property
    def most(self) -> float:
        return sum(self.points.values())

    @cached_property
    def graded(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.graded]

    @property
    def median(self) -> float:
        return statistics.median(entry.total for entry in self.graded)

    @cached_property
    def tasks(self) -> list[TaskSummary]:
        return [self._summary(cell, points) for cell, points in self.points.items()]

    def _summary(self, cell: str, points: float) -> TaskSummary:
        marks = [entry.marks.get(cell) or 0 for entry in self.graded]
        right = sum(mark >= points for mark in marks)
        labels = Counter(
            label for entry in self.graded if (label := entry.check(cell).get("misconception")) is not None
        )
        reads = {
            mistake.label: link(mistake.read) for task in registry.values() for mistake in task.misconceptions
        }
        return TaskSummary(
            task_name(cell),
            points,
            right,
            right / len(marks) if marks else 0,
            statistics.fmean(marks) if marks else 0,
            # By frequency, and by name where that is equal, so that two runs give the same page.
            [
                Mistake(label, count, reads.get(label, ""))
                for label, count in sorted(labels.items(), key=lambda item: (-item[1], item[0]))
            ],
            len(marks) - right - sum(labels.values()),
        )

    @property
    def isolations(self) -> list[tuple[str, int]]:
        return sorted(Counter(entry.isolation for entry in self.graded).items())

    @cached_property
    def inside(self) -> list[tuple[str, int]]:
        """The cells that were run as they are, and their marks believed; and in how many submissions."""
        found = Counter(
            cell for entry in self.graded for cell in self.points if not entry.check(cell).get("outside")
        )
        return [(task_name(cell), found[cell]) for cell in self.points if found[cell]]

    @property
    def late(self) -> bool:
        return any(entry.penalty for entry in self.graded)

    @property
    def to_look_at(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.remarks]

    def html(self) -> str:
        """The page."""
        environment = Environment(loader=PackageLoader("attncourse.grading", "."), autoescape=True)
        return environment.get_template("report.html.jinja").render(
            report=self, task_name=task_name, one_line=one_line
        )

    def csv(self) -> str:
        """A line for each submission and graded cell."""
        file = io.StringIO(newline="")
        writer = csv.writer(file)
        columns = ["unit", "student", "task", "mark", "points", "misconception", "judged_outside"]
        writer.writerow([*columns, "isolation", "to_look_at"])
        for entry in self.entries:
            for cell, points in self.points.items():
                check = entry.check(cell)
                row = [self.unit, entry.student, task_name(cell), entry.marks.get(cell), points]
                row += [check.get("misconception"), check.get("outside")]
                row += [entry.isolation if entry.graded else None, "; ".join(entry.remarks)]
                writer.writerow(map(csv_cell, row))
        return file.getvalue()

    def write(self, folder: Path) -> list[Path]:
        """Write both into `folder` as ``<unit>.html`` and ``<unit>.csv``, replacing older ones whole."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for suffix, text in (("html", self.html()), ("csv", self.csv())):
            path = folder / f"{self.unit}.{suffix}"
            part = path.with_suffix(f".{suffix}.part")
            part.write_text(text, encoding="utf-8", newline="")
            part.replace(path)
            written.append(path)
        return written

    def distribution(self) -> list[tuple[str, int]]:
        """How many submissions have how many points, in at most twelve steps of equal width."""
        most = round(self.most)
        width = most // 12 + 1
        steps = []
        for low in range(0, most + 1, width):
            high = min(low + width - 1, most)
            count = sum(low <= entry.total < low + width for entry in self.graded)
            steps.append((f"{low} to {high}" if high > low else f"{low}", count))
        return steps


def task_name(cell: str) -> str:
    """What people call a graded cell: ``check_attention`` is the task ``attention``."""
    return cell.removeprefix("check_")
