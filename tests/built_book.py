"""The book as tests build it, once for all of them and for the next run, too."""

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from filelock import FileLock

from attncourse import checks
from attncourse.grading import rules

ROOT = Path(__file__).parents[1]
ALL = sorted({task.unit for task in checks.tasks()})
UNITS = rules.taught(ROOT, ALL)  # those that the book has
LEFT_OUT = {*(set(ALL) - set(UNITS)), *(["paths"] if UNITS != ALL else [])}
CHAPTERS = ["intro", *UNITS]

# What cells use, and what else goes into the book. A build is kept as long as they are the same.
USED_BY_CELLS = ["attncourse", "benchmarks", "requirements.txt"]
INPUTS = [*USED_BY_CELLS, "_config.yml", "_toc.yml", "course.toml", "book", "exercises", "index.md"]


def digest(names):
    """Hash the names and contents of files and folders of the repository."""
    found = hashlib.sha256(f"{sys.version} {UNITS}".encode())
    for name in names:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode())
                found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def build(builder):
    """Build the book as a release is built, warnings being errors; give status, log and folder.

    The first process of tests that comes here builds, the others wait. What is left by an earlier run
    of the tests is used if it was made of the same files; of its cells, those that are the same.
    """
    place = ROOT / "_build/tests"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        cells, files = digest(USED_BY_CELLS), digest(INPUTS)
        for other in place.glob("*/"):
            if other.name != cells:
                shutil.rmtree(other)
        folder, done = place / cells / "_build", place / cells / f"{builder}.json"
        built = json.loads(done.read_text()) if done.exists() else {}
        if built.get("of") != files:
            if builder == "html":
                shutil.rmtree(folder / "html", ignore_errors=True)
                shutil.rmtree(folder / ".doctrees", ignore_errors=True)
            command = [
                Path(sysconfig.get_path("scripts"), "jupyter-book"),
                "build",
                ".",
                "-W",
                "-n",
                "--keep-going",
            ]
            run = subprocess.run(
                [*command, "--builder", builder, "--path-output", place / cells],
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            built = {"of": files, "status": run.returncode, "log": run.stdout}
            if not run.returncode:
                done.write_text(json.dumps(built))
        return built["status"], built["log"], folder


def names_of_pages(html):
    """The paths of all pages within the book."""
    paths = (path.relative_to(html) for path in html.rglob("*.html"))
    return sorted(str(path) for path in paths if path.parts[0] != "_static")


def program(name):
    """A Python file of the book, as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"book/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
