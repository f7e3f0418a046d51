"""``python -m attncourse.grading``: grade what lies in ``submitted/`` and report on it."""

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from attncourse.grading import simulate
from attncourse.grading.cluster import ClusterLost, Results, cluster_at, on_cluster, on_this_machine
from attncourse.grading.course import LOG, Course, Marks
from attncourse.grading.harmless import LONGEST_REMARK, one_line
from attncourse.grading.job import Failed, Graded, Job, NotGraded, Unit
from attncourse.grading.kernels.provisioner import OPEN
from attncourse.grading.progress import Progress
from attncourse.grading.report import Entry, Report, task_name
from attncourse.grading.submitted import Problem, Submission, look_through, shown
from attncourse.grading.trouble import advice

DESCRIPTION = """\
Grade the notebooks submitted/<student>/<unit>/<unit>.ipynb of the course in the
current folder: run them with nbgrader, write feedback for every student into
feedback/, everyone's marks into grades.csv and grades_by_task.csv and a report on
the class into reports/, and print a table of the marks and what is in the way.

A submission that was graded is graded again only if it was changed, or the
exercise, or this package with its checks (--force for another reason, such as
a changed nbgrader_config.py). A run that was interrupted, however it was, goes
on where it stopped. Marks and comments given by hand are kept."""

EXIT = """\
exit status: 0 if every submission was graded, 1 if one could not be,
2 if nothing can be graded in this way, 130 if it was interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["simulate"]:
        return simulate.main(arguments[1:])
    parser = _parser()
    options = parser.parse_args(arguments)
    course = _course(parser, options)
    if options.scheduler and not options.scheduler.startswith("tls://"):
        print(
            f"Warning: {options.scheduler} is not tls://. Whoever can reach the scheduler can read what is "
            "handed in, change marks and run programs on its workers.",
            file=sys.stderr,
        )
    known = course.units()
    units = sorted(set(options.units)) or known
    with course.alone() as alone:
        if not alone:
            parser.error("another run is grading in this folder")
        run = Run(course, *look_through(course.submitted, units, known))
        try:
            run.grade(options)
            run.report()
        except NoneGraded as reason:
            print(f"Nothing was graded: every submission {reason}.", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("\nInterrupted. Run the same command again to go on.", file=sys.stderr)
            return 130
        except Exception as error:
            if not (words := advice(error)):
                raise
            print(f"\n{one_line(words)}. Then run the same command again to go on.", file=sys.stderr)
            return 1
        if not run.submissions:
            print(f"Nothing to grade: no submission of {', '.join(units)} in {course.submitted}.")
    return run.conclude()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading",
        description=DESCRIPTION,
        epilog=EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("units", nargs="*", metavar="UNIT", help="a unit to grade; without one, all of them")
    parser.add_argument("--force", action="store_true", help="grade again what is graded already")
    who = parser.add_mutually_exclusive_group()
    who.add_argument(
        "--workers",
        type=_positive,
        default=os.cpu_count(),
        metavar="N",
        help="how many submissions to grade at a time on this machine (here %(default)s, one for each core)",
    )
    who.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="grade on the workers of this Dask scheduler, such as tls://10.0.0.1:8786; "
        "they need the same version of the course installed, and no shared folder",
    )
    parser.add_argument(
        "--isolation",
        choices=("required", "best", "none"),
        help="how submissions are kept from everything else: in a jail, or nothing is graded (required, "
        "unless nbgrader_config.py says otherwise), or as well as this machine can (best), or not at all "
        "(none)",
    )
    parser.add_argument(
        "--limit",
        type=_positive,
        default=600,
        metavar="SECONDS",
        help="how long one submission may take (%(default)s); "
        "one that takes longer is stopped, tried once more and reported",
    )
    return parser


def _course(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Course:
    """The course in the current folder, if it is one and has what the options name."""
    if not Path("nbgrader_config.py").is_file():
        parser.error(f"no nbgrader_config.py in {Path.cwd()}: run this in the folder of the course")
    logging.raiseExceptions = False  # a log that cannot be written is no reason for a traceback
    try:
        course = Course(options.isolation)
    except Exception as error:
        words = advice(error) or f"nbgrader_config.py cannot be used: {type(error).__name__}: {error}"
        parser.error(one_line(words))
    known = course.units()
    for unit in options.units:
        if unit not in known:
            parser.error(f"no unit is called {unit!r}: the course has {', '.join(known) or 'none'}")
    if not course.submitted.is_dir():
        parser.error(f"no folder {course.submitted}: put <student>/<unit>/<unit>.ipynb into it")
    return course


class NoneGraded(Exception):
    """No submission can be graded here; the message says why, in words that continue a submission's name."""


class Run:
    """One run of the command: what there is to grade, and what came of it.

    Parameters
    ----------
    course : Course
    submissions : sequence of Submission
        What there is, sorted.
    problems : list of Problem
        What is in the way; more is added to it.
    """

    def __init__(self, course: Course, submissions: Sequence[Submission], problems: list[Problem]) -> None:
        self.course = course
        self.submissions = submissions
        self.problems = problems
        self.graded: set[Submission] = set()
        self.points = {unit: course.points(unit) for unit in {one.unit for one in submissions}}

    def grade(self, options: argparse.Namespace) -> None:
        """Grade what is not graded yet, and write down each as soon as it is done.

        Raises
        ------
        NoneGraded
        """
        ahead = self._ahead(options.force)
        if not ahead:
            return
        progress = Progress(len(ahead))
        work = self._work(ahead, progress)
        try:
            with ExitStack() as stack:
                stack.callback(progress.close)
                results: Results
                if options.scheduler:
                    client = stack.enter_context(cluster_at(options.scheduler))
                    results = on_cluster(client, work, options.limit)
                else:
                    results = on_this_machine(work, min(options.workers, len(ahead)), options.limit)
                stack.callback(results.close)
                for submission, unit, job, result in results:
                    self._keep(submission, unit, job, result, progress)
        except ClusterLost as reason:
            rest = len(self.submissions) - len(self.graded)
            self._problem("the workers", f"{reason}; {rest} submissions are left: run this again")

    def report(self) -> None:
        """Print and write everyone's marks, and note what a person should look at."""
        isolation: Counter[str] = Counter()
        written: list[str] = []
        for unit, points in sorted(self.points.items()):
            entries = [self._entry(one) for one in self.submissions if one.unit == unit]
            isolation.update(entry.isolation for entry in entries if entry.graded)
            print(*table(unit, points, entries), sep="\n")
            written += map(shown, Report(unit, points, entries).write(self.course.reports))
        for name, count in sorted(isolation.items()):
            is_open = OPEN.get(name)
            print(f"Isolation: {name} ({count}){f'. Open to them were {is_open}' if is_open else ''}.")
        if self.submissions:
            print(f"Marks: {' and '.join(self.course.export())}.", end=" ")
            print(f"Feedback: {self.course.folders.feedback_directory}/.")
            print(f"How the class did: {' and '.join(name for name in written if name.endswith('.html'))}.")

    def conclude(self) -> int:
        """Print what is in the way, and return the exit status."""
        if self.problems:
            print(f"\nTo look at ({LOG} has the details):")
            for problem in sorted(self.problems, key=lambda problem: (not problem.ungraded, problem.place)):
                print(one_line(f"  {problem.place}: {problem.words}"))
        return int(any(problem.ungraded for problem in self.problems))

    def _problem(self, place: str, words: str) -> None:
        self.problems.append(Problem(place, words))

    def _entry(self, submission: Submission) -> Entry:
        """A submission in the report; what a person should look at is noted, too."""
        if submission not in self.graded:
            place = shown(submission.notebook)
            return Entry(
                submission.student, remarks=[one.words for one in self.problems if one.place == place]
            )
        remarks = list(self.course.remarks(submission))
        self.problems += remarks
        marks, about = self.course.marks(submission), self.course.about(submission)
        return Entry(submission.student, marks, about, [one.words for one in remarks])

    def _units(self, names: Iterable[str]) -> dict[str, Unit]:
        """What graders have to know of each unit that can be graded."""
        units = {}
        for name in sorted(names):
            try:
                units[name] = self.course.prepare(name)
            except NotGraded as reason:
                self._problem(name, f"is not graded at all: {reason}")
        return units

    def _ahead(self, force: bool) -> list[Submission]:
        """The submissions that have to be graded, after a line about those that have not."""
        ahead, because_of_the_course = [], 0
        for submission in self.submissions:
            try:
                unchanged = False if force else self.course.unchanged(submission)
            except (NotGraded, OSError):
                unchanged = False  # why, is said when it is its turn
            if unchanged:
                self.graded.add(submission)
            else:
                ahead.append(submission)
                because_of_the_course += unchanged is None
        lines = f"{len(ahead)} of {len(self.submissions)} submissions to grade"
        if self.graded:
            lines += f", {len(self.graded)} unchanged since they were graded"
        if because_of_the_course:
            lines += f"; {because_of_the_course} again because the course was changed since"
        if self.submissions:
            print(f"{lines}.", flush=True)
        return ahead

    def _work(
        self, ahead: Sequence[Submission], progress: Progress
    ) -> Iterator[tuple[Submission, Unit, Job]]:
        """What is to be graded, read when it is its turn."""
        units = self._units({one.unit for one in ahead})
        for submission in ahead:
            if submission.unit not in units:
                progress.drop()
                continue
            try:
                job = self.course.job(submission)
            except (NotGraded, OSError) as reason:
                self._fail(submission, reason, progress)
            else:
                yield submission, units[submission.unit], job

    def _keep(
        self, submission: Submission, unit: Unit, job: Job, result: Graded | Failed, progress: Progress
    ) -> None:
        try:
            if isinstance(result, Failed):
                if result.everyone:
                    raise NoneGraded(result.words)
                self.course.log(submission, result.log)
                raise NotGraded(result.words)
            self.course.keep(submission, job, result, unit)
        except NoneGraded:
            raise
        except Exception as reason:  # of the gradebook's and of the disk's: the others go on
            self._fail(submission, reason, progress)
        else:
            self.graded.add(submission)
            marks = self.course.marks(submission)
            most = sum(self.points[submission.unit].values())
            progress.done(f"{submission.student}, {submission.unit}: {total(marks):g} of {most:g} points")

    def _fail(self, submission: Submission, reason: Exception, progress: Progress) -> None:
        words = str(reason) if isinstance(reason, NotGraded) else _words(reason)
        try:
            # Feedback on an earlier submission must not outlive it.
            self.course.discard(submission)
            if any(mark is not None for mark in self.course.marks(submission).values()):
                words += "; the gradebook keeps an earlier mark"
        except Exception as more:
            words += f"; {_words(more)}"
        words = one_line(words, LONGEST_REMARK)
        self._problem(shown(submission.notebook), words)
        progress.done(f"{submission.student}, {submission.unit}: not graded: {words}", problem=True)


def _words(error: Exception) -> str:
    return advice(error) or f"{type(error).__name__}: {error}"


def total(marks: Marks) -> float:
    return sum(mark or 0 for mark in marks.values())


def table(unit: str, points: dict[str, float], entries: Sequence[Entry]) -> list[str]:
    """A line for each student with the marks of every task, numbered, and what the numbers mean."""
    names = [one_line(entry.student) for entry in entries]
    width = max(map(len, [*names, "student"]))
    numbers = "".join(f"{number:>5}" for number in range(1, len(points) + 1))
    lines = ["", f"{unit}, {sum(points.values()):g} points", f"{'student':<{width}}{numbers}    sum"]
    for name, entry in zip(names, entries, strict=True):
        cells = "  not graded"
        if entry.graded:
            scores = (entry.marks.get(cell) for cell in points)
            cells = "".join(f"{'?' if score is None else format(score, 'g'):>5}" for score in scores)
            cells += f"{entry.total:>7g}"
        lines.append(f"{name:<{width}}{cells}")
    legend = [
        f"{number:>3} {task_name(name)} ({most:g})" for number, (name, most) in enumerate(points.items(), 1)
    ]
    return [*lines, "", *legend, ""]


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    sys.exit(main())
