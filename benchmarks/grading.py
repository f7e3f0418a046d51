"""How long a submission takes: ``python -m attncourse.grading`` beside stock nbgrader.

Both grade the same simulated class, from the submissions to marks and feedback, one after the other:
nbgrader with its own preprocessors and kernels, this course with its own. The exercise is known to
both gradebooks before. Run in the folder of the repository, on a machine with nothing else to do::

    python benchmarks/grading.py --students 100
    python benchmarks/grading.py --students 20 500 --no-stock
"""

import argparse
import csv
import ctypes
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import nbformat
import psutil

from attncourse.grading.simulate import Exercise, simulate

ROOT = Path(__file__).parents[1]
STOCK = """\
c = get_config()
c.CourseDirectory.course_id = "attncourse"
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
"""


@dataclass
class Cost:
    """What one run took: seconds, seconds of all its processes together, bytes of the first of them."""

    seconds: float
    computing: float
    memory: int
    output: str


def new_course(folder: Path, unit: str, students: int, config: str) -> Path:
    """A course with one unit and a simulated class, which is the same for the same number."""
    for room in ("solutions", "exercises"):
        shutil.copytree(ROOT / room / unit, folder / room / unit)
    (folder / "nbgrader_config.py").write_text(config)
    exercise = Exercise(unit, nbformat.read(folder / "exercises" / unit / f"{unit}.ipynb", as_version=4))
    simulate(exercise, folder / "submitted", folder / "truth.csv", students=students, seed=1)
    measured(folder, ["nbgrader", "generate_assignment", unit, "--force"])
    return folder


def measured(course: Path, *commands: list[str]) -> Cost:
    """Run commands, one after the other, in the folder of a course."""
    before = _computing()
    start = time.monotonic()
    memory, output = 0, ""
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT),
    }
    for command in commands:
        with tempfile.TemporaryFile("w+") as file:
            process = subprocess.Popen(
                command, cwd=course, env=environment, stdout=file, stderr=subprocess.STDOUT
            )
            while process.poll() is None:
                memory = max(memory, _peak(process.pid))
                time.sleep(0.1)
            file.seek(0)
            output += file.read()
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{output[-3000:]}")
    seconds = time.monotonic() - start
    for child in psutil.Process().children():  # what was left behind, so that it counts, too
        child.wait()
    return Cost(seconds, _computing() - before, memory, output)


def wrong_marks(course: Path) -> int:
    """How many marks are not what they must be."""
    with open(course / "truth.csv", newline="") as file:
        truth = {(row["student_id"], row["cell"]): float(row["score"]) for row in csv.DictReader(file)}
    with open(course / "grades_by_task.csv", newline="") as file:
        found = {(row["student_id"], row["cell"]): float(row["score"]) for row in csv.DictReader(file)}
    return sum(found.get(place) != score for place, score in truth.items())


def _computing() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _peak(pid: int) -> int:
    try:
        found = re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found.group(1)) * 1024 if found else 0


def _line(name: str, students: int, cost: Cost) -> str:
    return (
        f"{name:<12}{students:>9}{cost.seconds:>9.1f}{cost.seconds / students:>15.2f}"
        f"{cost.computing / students:>16.2f}{cost.memory / 1e6:>10.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--unit", default="attention_operator")
    parser.add_argument("--students", type=int, nargs="+", default=[100], help="sizes of classes (100)")
    parser.add_argument("--workers", type=int, default=2, help="submissions at a time (2)")
    parser.add_argument("--isolation", choices=("best", "required", "none"), default="required")
    parser.add_argument("--no-stock", action="store_true", help="leave nbgrader as it comes out")
    options = parser.parse_args()

    # Whoever is left behind by a process that ended becomes a child of this one, and is counted.
    ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    print(f"{options.unit}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before\n")
    print(f"{'':<12}{'students':>9}{'s':>9}{'s/submission':>15}{'CPU s each':>16}{'peak MB':>10}")
    stock = None
    with tempfile.TemporaryDirectory(prefix="attncourse-benchmark-") as folder:
        if not options.no_stock:
            students = options.students[0]
            course = new_course(Path(folder, "stock"), options.unit, students, STOCK)
            commands = [["nbgrader", command, options.unit] for command in ("autograde", "generate_feedback")]
            stock = measured(course, *commands)
            print(_line("nbgrader", students, stock), flush=True)
        for students in options.students:
            config = (ROOT / "nbgrader_config.py").read_text()
            course = new_course(Path(folder, f"ours-{students}"), options.unit, students, config)
            command = [sys.executable, "-m", "attncourse.grading", options.unit]
            how = ["--workers", str(options.workers), "--isolation", options.isolation]
            cost = measured(course, [*command, *how])
            print(_line("attncourse", students, cost), flush=True)
            isolation = re.search(r"Isolation: .*", cost.output)
            print(f"  {isolation.group() if isolation else 'Isolation: unknown.'}", end=" ")
            print(f"Marks that are not what they must be: {wrong_marks(course)}.")
            if stock is not None and students == options.students[0]:
                print(
                    f"  {stock.seconds / cost.seconds:.1f} times as fast as nbgrader, "
                    f"with {stock.computing / cost.computing:.1f} times less computing"
                )


if __name__ == "__main__":
    main()
