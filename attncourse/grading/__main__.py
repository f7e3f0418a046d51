"""``python -m attncourse.grading``: grade what lies in ``submitted/`` and report on it."""

import argparse
import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

from attncourse.grading import policy
from attncourse.grading.cluster import (
    ClusterLost,
    Item,
    Outcome,
    Results,
    cluster_at,
    on_cluster,
    on_this_machine,
)
from attncourse.grading.course import LOG, Course, Marks
from attncourse.grading.harmless import LONGEST_REMARK, one_line
from attncourse.grading.job import Failed, Graded, Job, NotGraded, Page, PageJob, Unit
from attncourse.grading.kernels.provisioner import OPEN
from attncourse.grading.nursery import Nursery
from attncourse.grading.progress import Progress
from attncourse.grading.report import Entry, Report, task_name
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import Problem, Submission, look_through, shown
from attncourse.grading.trouble import advice

DESCRIPTION = """\
Grade the notebooks submitted/<student>/<unit>/<unit>.ipynb of the course in the
current folder: run them with nbgrader, write feedback for every student into
feedback/, everyone's marks into grades.csv, grades_by_task.csv and total.csv and
reports on the class into reports/, and print a table of the marks and what is in the way.

A submission that was graded is graded again only if it was changed, or the
exercise, or this package with its checks (--force for another reason, such as
a changed nbgrader_config.py). A run that was interrupted, however it was, goes
on where it stopped. Marks and comments given by hand are kept."""

# What else there is to do, each in the module of its name.
COMMANDS = ("collect", "export", "kit", "release", "similar", "simulate")

EXIT = """\
exit status: 0 if every submission was graded, 1 if one could not be,
2 if nothing can be graded in this way, 130 if it was interrupted"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments and arguments[0] in COMMANDS:
        try:
            return import_module(f"attncourse.grading.{arguments[0]}").main(arguments[1:])
        except Exception as error:
            if not (words := str(error) if isinstance(error, Unusable) else advice(error)):
                raise
            print(one_line(f"{arguments[0]} came to no end: {words}."), file=sys.stderr)
            return 1
    parser = _parser()
    options = parser.parse_args(arguments)
    if not options.scheduler:
        Nursery.begin()
    course = Course.here(parser, options.isolation)
    units, known = course.chosen(options.units, parser), course.units()
    if not course.submitted.is_dir():
        parser.error(f"no folder {course.submitted}: put <student>/<unit>/<unit>.ipynb into it")
    if options.scheduler and not options.scheduler.startswith("tls://"):
        print(
            f"Warning: {options.scheduler} is not tls://. Whoever can reach the scheduler can read what is "
            "handed in, change marks and run programs on its workers.",
            file=sys.stderr,
        )
    with course.alone() as alone:
        if not alone:
            parser.exit(2, "error: another run is grading in this folder\n")
        submissions, problems = look_through(course.submitted, units, known)
        try:
            run = Run(course, course.named(submissions), problems)
            run.grade(options)
            run.report()
        except NoneGraded as reason:
            print(f"Nothing was graded: every submission {reason}.", file=sys.stderr)
            return 2
        except Unusable as reason:
            print(one_line(f"Nothing was graded: {reason}."), file=sys.stderr)
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
        self.units: dict[str, Unit] = {}
        self.pages: deque[Item] = deque()  # of feedback, to be made
        self.points = {unit: course.points(unit) for unit in {one.unit for one in submissions}}

    def grade(self, options: argparse.Namespace) -> None:
        """Grade what is not graded yet, and write down each as soon as it is done.

        Raises
        ------
        NoneGraded
        """
        ahead = self._ahead(options.force)
        self._prepare({one.unit for one in ahead})
        ahead = [one for one in ahead if one.unit in self.units]
        for submission in sorted(self.graded):
            self._settle(submission)
        if not ahead and not self.pages:
            return
        if ahead:
            self.progress = Progress(len(ahead))
        work = _Work(self._work(ahead), self.pages)
        try:
            with ExitStack() as stack:
                if ahead:
                    stack.callback(self.progress.close)
                results: Results
                if options.scheduler:
                    client = stack.enter_context(cluster_at(options.scheduler))
                    results = on_cluster(client, work, options.limit)
                else:
                    results = on_this_machine(
                        work, min(options.workers, len(ahead) or len(self.pages)), options.limit
                    )
                stack.callback(results.close)
                for submission, unit, job, result in results:
                    if isinstance(job, PageJob):
                        self._give_back(submission, job, result)
                    else:
                        self._keep(submission, unit, job, result)
        except ClusterLost as reason:
            rest = len(self.submissions) - len(self.graded)
            self._problem("the workers", f"{reason}; {rest} submissions are left: run this again")

    def _settle(self, submission: Submission) -> None:
        """Bring a graded submission up to what was entered since, and have its page made if need be."""
        try:
            job = self.course.settle(submission)
        except (NotGraded, OSError) as reason:
            self._problem(f"{submission.student}, {submission.unit}", str(reason))
            return
        if job is not None:
            self._prepare({submission.unit})
            if submission.unit in self.units:
                self.pages.append((submission, self.units[submission.unit], job))

    def _give_back(self, submission: Submission, job: PageJob, result: Outcome) -> None:
        try:
            if not isinstance(result, Page):
                raise NotGraded(result.words if isinstance(result, Failed) else "came back as no page")
            self.course.give_feedback(submission, job, result)
        except (NotGraded, OSError) as reason:
            self._problem(f"{submission.student}, {submission.unit}", f"has no page of feedback: {reason}")

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
            print(f"Marks: {', '.join(self.course.export())}.", end=" ")
            print(f"Feedback: {self.course.folders.feedback_directory}/.")
            written.append(shown(self.course.term().write(self.course.reports)))
            print(f"How the class did: {' and '.join(name for name in written if name.endswith('.html'))}.")

    def conclude(self) -> int:
        """Print what is in the way, and return the exit status."""
        self.problems += self.course.problems
        self.problems += self.course.strangers()
        if not policy.is_in_force():
            source, target = (
                Path(__file__).parent / policy.SWITCH,
                Path(sys.prefix, "etc/jupyter", policy.SWITCH),
            )
            words = (
                "is not guarded in this environment against what students hand in: before you open it, copy "
                f"{source} to {target}"
            )
            self.problems.append(Problem("the formgrader", words, ungraded=False))
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
        penalty = self.course.penalty(submission)
        return Entry(submission.student, marks, about, [one.words for one in remarks], penalty)

    def _prepare(self, names: Iterable[str]) -> None:
        """Find out what graders have to know of each unit that can be graded."""
        for name in sorted(set(names) - self.units.keys()):
            try:
                self.units[name] = self.course.prepare(name)
            except NotGraded as reason:
                self._problem(name, f"is not graded at all: {reason}")

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

    def _work(self, ahead: Sequence[Submission]) -> Iterator[Item]:
        """What is to be graded, read when it is its turn."""
        for submission in ahead:
            try:
                job = self.course.job(submission)
            except (NotGraded, OSError) as reason:
                self._fail(submission, reason)
            else:
                yield submission, self.units[submission.unit], job

    def _keep(self, submission: Submission, unit: Unit, job: Job, result: Outcome) -> None:
        try:
            if isinstance(result, Failed):
                if result.everyone:
                    raise NoneGraded(result.words)
                self.course.log(submission, result.log)
                raise NotGraded(result.words)
            assert isinstance(result, Graded)
            self.course.keep(submission, job, result, unit)
        except NoneGraded:
            raise
        except Exception as reason:  # of the gradebook's and of the disk's: the others go on
            self._fail(submission, reason)
        else:
            self.graded.add(submission)
            earned = total(self.course.marks(submission), self.course.penalty(submission))
            most = sum(self.points[submission.unit].values())
            self.progress.done(f"{submission.student}, {submission.unit}: {earned:g} of {most:g} points")
            self._settle(submission)

    def _fail(self, submission: Submission, reason: Exception) -> None:
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
        self.progress.done(f"{submission.student}, {submission.unit}: not graded: {words}", problem=True)


def _words(error: Exception) -> str:
    return advice(error) or f"{type(error).__name__}: {error}"


class _Work(Iterator[Item]):
    """What is to be done: what has become possible with the last result first, then what was planned."""

    def __init__(self, planned: Iterator[Item], possible: deque[Item]) -> None:
        self.planned = planned
        self.possible = possible

    def __next__(self) -> Item:
        return self.possible.popleft() if self.possible else next(self.planned)


def total(marks: Marks, penalty: float = 0) -> float:
    """The points of a submission, as they count."""
    return max(0.0, sum(mark or 0 for mark in marks.values()) - penalty)


def table(unit: str, points: dict[str, float], entries: Sequence[Entry]) -> list[str]:
    """A line for each student with the marks of every task, numbered, and what the numbers mean."""
    names = [one_line(entry.student) for entry in entries]
    width = max(map(len, [*names, "student"]))
    numbers = "".join(f"{number:>5}" for number in range(1, len(points) + 1))
    late = any(entry.penalty for entry in entries)
    numbers += "   late" * late
    lines = ["", f"{unit}, {sum(points.values()):g} points", f"{'student':<{width}}{numbers}    sum"]
    for name, entry in zip(names, entries, strict=True):
        cells = "  not graded"
        if entry.graded:
            scores = (entry.marks.get(cell) for cell in points)
            cells = "".join(f"{'?' if score is None else format(score, 'g'):>5}" for score in scores)
            cells += f"{-entry.penalty if entry.penalty else 0:>7g}" * late
            cells += f"{entry.total:>7g}"
        lines.append(f"{name:<{width}}{cells}")
    legend = [
        f"{number:>3} {task_name(name)} ({most:g})" for number, (name, most) in enumerate(points.items(), 1)
    ]
    return [*lines, "", *legend, ""]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is given: expected a whole number, at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
