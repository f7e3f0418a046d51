"""``python -m attncourse.grading simulate``: the notebooks of a class that never was, to rehearse on."""

import argparse
import ast
import copy
import csv
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.utils import rmtree

from attncourse import checks
from attncourse.checks import Task
from attncourse.checks.task import source_of
from attncourse.grading.answers import right_answers
from attncourse.grading.job import MOST_BYTES, NotGraded
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import Submission, digest, read_folder

DESCRIPTION = """\
Write the notebooks of students who never were into a folder, as a class would
hand them in: right answers written in different ways, mistakes that people
really make, answers left halfway, exercises never begun. What each is and the
points that it must get stand in a CSV file beside the folder, with the columns
of grades_by_task.csv. The same seed gives the same class. A second unit joins
the first. When the rehearsal is over, --remove takes away all of it and nothing
else: its notebooks, what grading made of them, and their marks."""

COLUMNS = ("assignment", "student_id", "cell", "score", "max_score", "kind", "what", "submission")


@dataclass(frozen=True)
class Answer:
    """What a student does about one task.

    Parameters
    ----------
    kind : str
        ``right``, ``misconception``, ``unfinished`` or ``blank``.
    what : str
        Which right answer, or the label of the misconception.
    source : str
        The cell; empty where it stays as it was released.
    """

    kind: str
    what: str = ""
    source: str = ""


class Exercise:
    """A unit's notebook as students get it, to be filled as students fill it.

    Parameters
    ----------
    unit : str
    release : NotebookNode
        The notebook, from ``exercises/``.
    """

    def __init__(self, unit: str, release: NotebookNode) -> None:
        self.unit = unit
        self.release = release
        self.tasks = checks.tasks(unit)
        # The points of every graded cell, in the order of the notebook.
        self.points = {
            cell.metadata.nbgrader.grade_id: float(cell.metadata.nbgrader.points)
            for cell in release.cells
            if cell.metadata.get("nbgrader", {}).get("grade")
        }

    def filled(self, answers: dict[str, Answer]) -> NotebookNode:
        """The notebook with the answers, by the names of their tasks, in their cells."""
        notebook = copy.deepcopy(self.release)
        for cell in notebook.cells:
            answer = answers.get(cell.metadata.get("nbgrader", {}).get("grade_id"))
            if answer is not None and answer.source:
                cell.source = answer.source
        return notebook

    def right(self, task: Task, number: int = 0) -> Answer:
        """A right answer; each of a task's has a number."""
        variants = right_answers(task)
        function = variants[number % len(variants)]
        return Answer("right", function.__name__.partition("__")[2], source_of(function, task.name))

    def student(self, seed: str) -> dict[str, Answer]:
        """The answers of one student: an able or a struggling one, who may stop on the way."""
        chance = random.Random(f"{self.unit} {seed}")
        ability = chance.betavariate(4, 2)
        end = len(self.tasks) if chance.random() < 0.8 else chance.randrange(len(self.tasks))
        answers = {}
        for number, task in enumerate(self.tasks):
            right = self.right(task, chance.randrange(1000))
            draw = chance.random()
            mistake = chance.choice(task.single_mistakes)
            if number >= end or draw > ability + 0.9 * (1 - ability):
                answers[task.name] = Answer("blank")
            elif draw < ability:
                answers[task.name] = right
            elif draw < ability + 0.75 * (1 - ability):
                source = mistake.source(task.name)
                answers[task.name] = Answer("misconception", mistake.label, source)
            else:
                answers[task.name] = Answer("unfinished", "", unfinished(right.source))
        return answers

    def rows(self, answers: dict[str, Answer]) -> Iterator[tuple[str, float, float, str, str]]:
        """For each graded cell its name, the points it must get and can get, and what the answer is."""
        for cell, most in self.points.items():
            answer = answers.get(cell.removeprefix("check_"))
            if answer is not None:
                yield cell, most if answer.kind == "right" else 0.0, most, answer.kind, answer.what


def unfinished(source: str) -> str:
    """An answer that returns nothing, and has no last statement yet."""
    definition = ast.parse(source).body[0]
    if isinstance(definition, ast.ClassDef):
        definition = definition.body[-1]
    assert isinstance(definition, ast.FunctionDef)
    last = definition.body[-1]
    lines = source.splitlines()[: last.lineno - 1]
    for statement in ast.walk(definition):
        if isinstance(statement, ast.Return) and statement.lineno < last.lineno:
            lines[statement.lineno - 1] = lines[statement.lineno - 1][: statement.col_offset] + "pass"
            for number in range(statement.lineno, statement.end_lineno or 0):
                lines[number] = ""
    return "\n".join([*lines, " " * last.col_offset + "pass  # TODO"])


def simulate(exercise: Exercise, folder: Path, truth: Path, *, students: int, seed: int) -> None:
    """Write a class.

    Parameters
    ----------
    exercise : Exercise
    folder : Path
        Gets a folder for each student.
    truth : Path
        Gets the CSV file with the points that everyone must get.
    students : int
    seed : int
        The first students of a larger class with the same seed are those of a smaller one.
    """
    rows = read_truth(truth)
    for number in range(1, students + 1):
        name = f"student-{number:03}"
        answers = exercise.student(f"{seed} {number}")
        submission = folder / name / exercise.unit
        submission.mkdir(parents=True)
        nbformat.write(exercise.filled(answers), submission / f"{exercise.unit}.ipynb")
        own = fingerprint(submission)
        rows += [[exercise.unit, name, *map(str, row), own] for row in exercise.rows(answers)]
    write_truth(truth, rows)


def fingerprint(folder: Path) -> str:
    """What identifies a submission; empty if it cannot be read."""
    try:
        return digest(read_folder(folder, MOST_BYTES))
    except NotGraded:
        return ""


def read_truth(truth: Path) -> list[list[str]]:
    """The rows of the file that says what everyone must get; none if there is no such file.

    Raises
    ------
    Unusable
        If it is something else.
    """
    if not truth.exists():
        return []
    with truth.open(newline="", encoding="utf-8", errors="replace") as file:
        rows = list(csv.reader(file))
    if not rows or tuple(rows[0]) != COLUMNS:
        raise Unusable(f"{truth} is there, is no list of a rehearsal, and nothing is overwritten")
    for line, row in enumerate(rows, 1):
        if len(row) != len(COLUMNS):
            raise Unusable(f"{truth}, line {line}: has {len(row)} cells: expected {len(COLUMNS)}")
    return rows[1:]


def write_truth(truth: Path, rows: Iterable[Sequence[str]]) -> None:
    part = truth.with_name(f".{truth.name}.part")
    with part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
    part.replace(truth)


def remove(course: Any, folder: Path, truth: Path) -> list[str]:
    """Remove a rehearsal: what was written, what was graded, and the marks.

    Parameters
    ----------
    course : attncourse.grading.course.Course
    folder, truth : Path
        As for `simulate`.

    Returns
    -------
    list of str
        A line for each submission that is not what was written, and stays.
    """
    rows = read_truth(truth)
    written = {(row[1], row[0]): row[-1] for row in rows}
    kept = {}
    for (student, unit), own in written.items():
        submission = Submission(unit, student, folder / student / unit)
        if submission.folder.exists() and fingerprint(submission.folder) != own:
            kept[student, unit] = f"{submission.folder} was changed since, and stays"
            continue
        if submission.folder.exists():
            rmtree(str(submission.folder))
        course.forget(submission)
        for parent in [submission.folder.parent, *course.outputs(student)]:
            if parent.is_dir() and not any(parent.iterdir()):
                parent.rmdir()
    course.write_anew({unit for _, unit in written})
    left = [row for row in rows if (row[1], row[0]) in kept]
    if left:
        write_truth(truth, left)
    else:
        truth.unlink(missing_ok=True)
    return list(kept.values())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading simulate",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("units", nargs="*", metavar="UNIT", help="a unit whose exercises are answered")
    parser.add_argument("--students", type=int, default=30, metavar="N", help="how many (30)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="which class (0)")
    parser.add_argument("--out", type=Path, default=Path("submitted"), help="the folder (submitted)")
    parser.add_argument("--remove", action="store_true", help="remove the rehearsal, and nothing else")
    options = parser.parse_args(arguments)
    truth = options.out.with_name(f"{options.out.name}_truth.csv")
    try:
        if options.remove:
            return _remove(parser, options.out, truth)
        _check(parser, options, truth)
    except Unusable as reason:
        parser.error(str(reason))
    for unit in options.units:
        exercise = Exercise(unit, nbformat.read(Path("exercises", unit, f"{unit}.ipynb"), as_version=4))
        simulate(exercise, options.out, truth, students=options.students, seed=options.seed)
    print(f"{options.students} students are in {options.out}; what they must get is in {truth}.")
    return 0


def _check(parser: argparse.ArgumentParser, options: argparse.Namespace, truth: Path) -> None:
    """End the command if it cannot do what it was told, or something would be overwritten."""
    if not options.units:
        parser.error("name a UNIT")
    for unit in options.units:
        if unit not in {task.unit for task in checks.tasks()}:
            units = dict.fromkeys(task.unit for task in checks.tasks())
            parser.error(f"no unit is called {unit!r}: there are {', '.join(units)}")
        release = Path("exercises", unit, f"{unit}.ipynb")
        if not release.is_file():
            parser.error(f"no {release} in {Path.cwd()}: run this in the folder of the course")
    if options.students < 0:
        parser.error(f"--students is {options.students}: it cannot be negative")
    written = {(row[1], row[0]) for row in read_truth(truth)}
    if again := sorted({unit for _, unit in written}.intersection(options.units)):
        parser.error(f"{truth} has {', '.join(again)} already, and nothing is overwritten")
    if not options.out.exists():
        return
    there = (
        {path.relative_to(options.out).parts for path in options.out.glob("*/*")}
        if options.out.is_dir()
        else {()}
    )
    single = {path for path in options.out.glob("*") if not path.is_dir()}
    if there - written or single:
        parser.error(f"{options.out} holds something already, and nothing is overwritten: name another --out")


def _remove(parser: argparse.ArgumentParser, folder: Path, truth: Path) -> int:
    from attncourse.grading.course import Course

    course = Course.here(parser)
    if not truth.exists():
        parser.error(f"there is no {truth}: no rehearsal is known that could be removed")
    with course.alone() as alone:
        if not alone:
            parser.exit(2, "error: another run is grading in this folder\n")
        lines = remove(course, folder, truth)
    print("The rehearsal is removed." if not lines else "\n".join(lines))
    return int(bool(lines))
