"""``python -m attncourse.grading``: grade what lies in ``submitted/`` and report on it."""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from attncourse.grading.course import LOG, Course, Marks, NotGraded
from attncourse.grading.submitted import Problem, Submission, look_through, shown

DESCRIPTION = """\
Grade the notebooks submitted/<student>/<unit>/<unit>.ipynb of the course in the
current folder: run them with nbgrader, write feedback for every student into
feedback/ and everyone's marks into grades.csv and grades_by_task.csv, and print
a table of the marks and a list of what is in the way.

A submission that was graded and has not changed since is not graded again.
An interrupted run goes on where it stopped."""

EXIT = """\
exit status: 0 if every submission was graded, 1 if one could not be,
2 if the command was used wrongly, 130 if it was interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading",
        description=DESCRIPTION,
        epilog=EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("units", nargs="*", metavar="UNIT", help="a unit to grade; without one, all of them")
    parser.add_argument("--force", action="store_true", help="grade again what is graded already")
    options = parser.parse_args(arguments)

    if not Path("nbgrader_config.py").is_file():
        parser.error(f"no nbgrader_config.py in {Path.cwd()}: run this in the folder of the course")
    try:
        course = Course()
    except Exception as error:
        parser.error(f"nbgrader_config.py cannot be used: {type(error).__name__}: {error}")
    known = course.units()
    for unit in options.units:
        if unit not in known:
            parser.error(f"no unit is called {unit!r}: the course has {', '.join(known) or 'none'}")
    if not course.submitted.is_dir():
        parser.error(f"no folder {course.submitted}: put <student>/<unit>/<unit>.ipynb into it")

    units = options.units or known
    submissions, problems = look_through(course.submitted, units, known)
    try:
        lines, more = grade(course, submissions, force=options.force)
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to go on.", file=sys.stderr)
        return 130
    problems += more
    for line in lines:
        print(line)
    if submissions:
        print(f"Marks: {' and '.join(course.export())}. Feedback: {course.folders.feedback_directory}/.")
    else:
        print(f"Nothing to grade: no submission of {', '.join(units)} in {course.submitted}.")
    if problems:
        print(f"\nTo look at ({LOG} has the details):")
        for problem in sorted(problems, key=lambda problem: not problem.ungraded):
            print(f"  {problem.place}: {problem.words}")
    return int(any(problem.ungraded for problem in problems))


def grade(
    course: Course, submissions: Sequence[Submission], *, force: bool
) -> tuple[list[str], list[Problem]]:
    """Grade submissions one by one, showing progress; return the tables of marks and the problems."""
    lines: list[str] = []
    problems: list[Problem] = []
    progress = Progress(len(submissions))
    for unit in dict.fromkeys(submission.unit for submission in submissions):
        of_unit = [submission for submission in submissions if submission.unit == unit]
        try:
            course.prepare(unit)
        except NotGraded as reason:
            problems.append(Problem(unit, f"is not graded at all: {reason}"))
            continue
        rows: dict[str, Marks | None] = {}
        for submission in of_unit:
            progress.begin(submission)
            rows[submission.student] = None
            try:
                unchanged = not force and course.is_graded(submission)
                if not unchanged:
                    course.grade(submission)
                course.give_feedback(submission)
            except (NotGraded, OSError) as reason:
                progress.end(submission, "not graded", worked=False)
                earlier = (
                    "; the gradebook keeps an earlier mark" if any(course.marks(submission).values()) else ""
                )
                problems.append(Problem(shown(submission.notebook), f"{reason}{earlier}"))
            else:
                rows[submission.student] = marks = course.marks(submission)
                outcome = f"{total(marks):g} of {sum(course.points(unit).values()):g} points"
                outcome += ", unchanged since it was graded" if unchanged else ""
                progress.end(submission, outcome, worked=not unchanged)
                problems += course.remarks(submission)
        lines += table(unit, course.points(unit), rows)
    progress.close()
    return lines, problems


def total(marks: Marks) -> float:
    return sum(mark or 0 for mark in marks.values())


def table(unit: str, points: dict[str, float], rows: dict[str, Marks | None]) -> list[str]:
    """A line for each student with the marks of every task, numbered, and what the numbers mean."""
    width = max(map(len, [*rows, "student"]))
    numbers = "".join(f"{number:>5}" for number in range(1, len(points) + 1))
    lines = ["", f"{unit}, {sum(points.values()):g} points", f"{'student':<{width}}{numbers}    sum"]
    for student, marks in rows.items():
        cells = "  not graded"
        if marks is not None:
            scores = (marks[name] for name in points)
            cells = "".join(f"{'?' if score is None else format(score, 'g'):>5}" for score in scores)
            cells += f"{total(marks):>7g}"
        lines.append(f"{student:<{width}}{cells}")
    legend = [
        f"{number:>3} {name.removeprefix('check_')} ({most:g})"
        for number, (name, most) in enumerate(points.items(), 1)
    ]
    return [*lines, "", *legend, ""]


class Progress:
    """A line for each submission when it is done; on a terminal also what is being done."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = 0
        self.times: list[float] = []
        self.live = sys.stdout.isatty()

    def begin(self, submission: Submission) -> None:
        self.started = time.monotonic()
        if self.live:
            left = ""
            if self.times:
                seconds = (self.number - self.done) * sum(self.times) / len(self.times)
                left = f", about {timedelta(seconds=round(seconds))} left"
            print(f"[{self.done + 1}/{self.number}] {submission.student}{left}", end="", flush=True)

    def end(self, submission: Submission, outcome: str, *, worked: bool = True) -> None:
        self.done += 1
        if worked:
            self.times.append(time.monotonic() - self.started)
        start = "\r\x1b[2K" if self.live else ""
        print(
            f"{start}[{self.done}/{self.number}] {submission.student}, {submission.unit}: {outcome}",
            flush=True,
        )

    def close(self) -> None:
        if self.times:
            print(f"{sum(self.times):.0f} s for {len(self.times)} notebooks.")


if __name__ == "__main__":
    sys.exit(main())
