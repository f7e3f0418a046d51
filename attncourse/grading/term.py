"""The term report: the class over all units, as one HTML page that needs nothing beside it."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jinja2 import Environment, PackageLoader

from attncourse.grading.feedback import address_of
from attncourse.grading.report import task_name
from attncourse.grading.rules import Rules

NAME = "index.html"
FEWEST = 8  # students, for a correlation to say anything


@dataclass(frozen=True)
class UnitResults:
    """What is known of a unit.

    Parameters
    ----------
    name : str
    points : mapping of str to float
        The graded cells and the points of each.
    marks : mapping of str to mapping of str to float
        For everyone who has a mark, the mark of each graded cell.
    scores : mapping of str to float
        For everyone who has a mark, what it comes to, after late penalties.
    lost : Counter
        For each passage of the book, how many points were lost by mistakes that it explains.
    """

    name: str
    points: Mapping[str, float]
    marks: Mapping[str, Mapping[str, float]]
    scores: Mapping[str, float]
    lost: Counter[str] = field(default_factory=Counter)

    @property
    def most(self) -> float:
        return sum(self.points.values())


@dataclass(frozen=True)
class Item:
    """How a task did: the share of its points that was earned, and how that goes with all the others."""

    unit: str
    task: str
    share: float
    correlation: float | None

    @property
    def words(self) -> str:
        if self.correlation is None:
            return "Everybody has the same, or too few handed in: it does not tell students apart."
        if self.correlation < 0:
            return "Who does well elsewhere does worse here: look whether the task or its check is at fault."
        if self.correlation < 0.2:
            return "It has little to do with the rest: it may be luck, unclear, or another skill."
        if self.share > 0.9:
            return "Nearly everyone can do it."
        if self.share < 0.3:
            return "Few can do it, and those are the ones who do well elsewhere."
        return "Who does well elsewhere does well here."


@dataclass(frozen=True)
class Row:
    """A student over the term."""

    id: str
    name: str
    percents: Sequence[float | None]
    total: float | None

    @property
    def trend(self) -> str:
        """The last mark against the mean of those before."""
        given = [one for one in self.percents if one is not None]
        if len(given) < 2:
            return ""
        change = given[-1] - statistics.fmean(given[:-1])
        return "steady" if abs(change) < 10 else f"{'up' if change > 0 else 'down'} {abs(change):.0f}"


@dataclass(frozen=True)
class Term:
    """The class over the term.

    Parameters
    ----------
    people : mapping of str to str
        Everyone's id and name.
    units : sequence of UnitResults
    rules : Rules
    """

    people: Mapping[str, str]
    units: Sequence[UnitResults]
    rules: Rules = field(default_factory=Rules)

    @property
    def rows(self) -> list[Row]:
        points = {unit.name: unit.most for unit in self.units}
        rows = []
        for id_, name in sorted(self.people.items()):
            scores = {unit.name: unit.scores.get(id_) for unit in self.units}
            percents = [
                None if (score := scores[unit.name]) is None else 100 * score / unit.most
                for unit in self.units
            ]
            rows.append(Row(id_, name, percents, self.rules.total(scores, points)))
        return rows

    @property
    def absent(self) -> list[tuple[str, list[str]]]:
        """For each unit, who has no mark in it."""
        return [(unit.name, sorted(self.people.keys() - unit.scores.keys())) for unit in self.units]

    @property
    def means(self) -> list[float]:
        return [100 * statistics.fmean(unit.scores.values()) / unit.most for unit in self.units]

    @property
    def items(self) -> list[Item]:
        return [
            Item(unit.name, task_name(cell), *difficulty(unit, cell))
            for unit in self.units
            for cell in unit.points
        ]

    @property
    def passages(self) -> Sequence[tuple[str, float]]:
        """The passages that cost most, and how many points."""
        lost: Counter[str] = Counter()
        for unit in self.units:
            lost.update(unit.lost)
        return sorted(lost.items(), key=lambda item: (-item[1], item[0]))[:10]

    def address(self, passage: str) -> str:
        return address_of(passage, self.rules.book or "../_build/html", self.rules.units)

    def html(self) -> str:
        environment = Environment(loader=PackageLoader("attncourse.grading", "."), autoescape=True)
        return environment.get_template("term.html.jinja").render(term=self)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / NAME
        part = path.with_suffix(".part")
        part.write_text(self.html(), encoding="utf-8")
        part.replace(path)
        return path


def difficulty(unit: UnitResults, cell: str) -> tuple[float, float | None]:
    """The share of a task's points that was earned, and its item-rest correlation.

    That is Pearson's correlation of the mark with the sum of all other marks of the unit; None where one of
    them is the same for everybody, or fewer than `FEWEST` students have a mark.
    """
    marks = [own.get(cell, 0.0) for own in unit.marks.values()]
    rest = [sum(own.values()) - mark for own, mark in zip(unit.marks.values(), marks, strict=True)]
    share = statistics.fmean(marks) / unit.points[cell] if marks and unit.points[cell] else 0.0
    try:
        correlation = statistics.correlation(marks, rest) if len(marks) >= FEWEST else None
    except statistics.StatisticsError:
        correlation = None
    return share, correlation
