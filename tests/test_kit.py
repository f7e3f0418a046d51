"""What students get: complete, installable, and without a solution in it."""

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import nbformat
import pytest

from attncourse import checks
from attncourse.checks.task import source_of
from attncourse.grading import kit
from attncourse.grading.answers import right_answers

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
UNITS = sorted(path.parent.name for path in ROOT.glob("exercises/*/*.ipynb"))
UNIT = "attention_operator"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The kit, unpacked, with a book of one page."""
    folder = tmp_path_factory.mktemp("kit")
    for name in ("index.html", f"book/{UNIT}.html", "_static/style.css", ".buildinfo", "__pycache__/x.pyc"):
        path = folder / "built" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    run = subprocess.run(
        [
            sys.executable,
            "-m",
            "attncourse.grading",
            "kit",
            "--out",
            folder / "kit.zip",
            "--book",
            folder / "built",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert "with the book" in run.stdout
    with zipfile.ZipFile(folder / "kit.zip") as archive:
        archive.extractall(folder)
    return folder / kit.NAME


def names(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def bodies(unit):
    """The solutions of a unit, found by another way than the kit's: line by line."""
    for cell in nbformat.read(ROOT / "solutions" / unit / f"{unit}.ipynb", as_version=4).cells:
        body = None
        for line in cell.source.splitlines():
            if line.strip() == "### BEGIN SOLUTION":
                body = []
            elif line.strip() == "### END SOLUTION":
                yield " ".join(" ".join(body).split())
                body = None
            elif body is not None:
                body.append(line)


def test_it_has_what_a_student_needs_and_nothing_of_the_teacher(made):
    found = names(made)
    for unit in UNITS:
        assert {f"exercises/{unit}/{unit}.ipynb", f"book/{unit}.md", f"attncourse/{unit}.py"} <= found
    assert {"README.md", "LICENSE", "LICENSES.md", "pyproject.toml", "requirements.txt"} <= found
    assert ("requirements-model.txt" in found) == ("words" in UNITS)
    assert ("-r requirements-model.txt" in (made / "README.md").read_text()) == ("words" in UNITS)
    assert {"index.html", f"book/{UNIT}.html", "_static/style.css", "lab/labconfig/page_config.json"} <= found
    assert {"attncourse_lab/__init__.py", "lab/labextensions/attncourse/static/remoteEntry.js"} <= found
    assert any(name.endswith(".npz") for name in found)
    assert {name for name in found if name.startswith("attncourse/")} == {
        f"attncourse/{name}"
        for name in names(ROOT / "attncourse")
        if "__pycache__" not in name and not name.startswith((".", "grading/"))
    }
    forbidden = re.compile(r"solutions|submitted|gradebook|grading|tests|nbgrader_config|pyc|(^|/)\.")
    assert [name for name in found if forbidden.search(name)] == []


def test_no_solution_is_in_it(made):
    found = 0
    texts = {}
    for path in made.rglob("*"):
        if path.suffix == ".ipynb":
            notebook = nbformat.read(path, as_version=4)
            texts[path] = "\n".join(cell.source for cell in notebook.cells)
        elif path.suffix in (".py", ".md", ".html", ".txt", ".toml"):
            texts[path] = path.read_text(encoding="utf-8")
    for unit in UNITS:
        for body in bodies(unit):
            found += 1
            for path, text in texts.items():
                # A single line may be what the library does, and the library they have.
                if path.suffix == ".ipynb" or (len(body) > 200 and path.parent.name != "attncourse"):
                    assert body not in " ".join(text.split()), path
    assert found >= 5 * len(UNITS)
    assert not any("BEGIN SOLUTION" in text for text in texts.values())


def test_the_exercises_are_those_of_the_course(made):
    for unit in UNITS:
        name = f"exercises/{unit}/{unit}.ipynb"
        handed_out, here = (made / name).read_bytes(), (ROOT / name).read_bytes()
        # But for the links: they lead to the page of a chapter, where there is one.
        assert handed_out.replace(f"book/{UNIT}.html".encode(), f"book/{UNIT}.md".encode()) == here
        assert (f"book/{UNIT}.html".encode() in handed_out) == (f"book/{UNIT}.md".encode() in here)


def test_links_of_the_notebooks_lead_to_passages_that_are_there(made):
    seen = 0
    for path in made.glob("exercises/*/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for target, anchor in re.findall(r"\]\((?!https?:|#)([^)#\s]+)#?([^)\s]*)\)", cell.source):
                seen += 1
                file = (path.parent / target).resolve()
                assert file.is_relative_to(made.resolve()), target
                text = file.read_text(encoding="utf-8")  # of the page, which is made up here, the name
                assert not anchor or file.suffix == ".html" or f"({anchor})=" in text, (target, anchor)
    assert seen >= 10 * len(UNITS)


def test_the_requirements_are_the_students(made):
    wanted = (made / "requirements.txt").read_text()
    assert "torch==" in wanted
    assert "jupyterlab==" in wanted
    assert not re.search("pytest|sphinx|jupyter-book|distributed|psycopg2|mypy", wanted, re.IGNORECASE)


def test_a_kit_of_some_units_has_only_their_exercises(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    kit_of = ["masking", "--out", str(tmp_path / "kit.zip"), "--book", str(tmp_path / "none")]
    assert kit.main(kit_of) == 0
    with zipfile.ZipFile(tmp_path / "kit.zip") as archive:
        exercises = [name for name in archive.namelist() if "/exercises/" in name]
        chapters = {name.rpartition("/")[2][:-3] for name in archive.namelist() if "/book/" in name}
        texts = [
            archive.read(name).decode()
            for name in archive.namelist()
            if re.search("/(exercises|book)/", name)
        ]
        readme = archive.read(f"{kit.NAME}/README.md").decode()
    assert exercises == [f"{kit.NAME}/exercises/masking/masking.ipynb"]
    assert chapters & {*UNITS, "paths", "glossary", "intro"} == {"masking", "glossary", "intro"}
    for text in texts:
        for name in {*UNITS, "paths"} - {"masking"}:
            assert not re.search(rf"\]\([^)]*\b{name}\.(md|ipynb)", text), name
    assert "way of three hours" not in texts[-1]
    assert "about two hours in all." in texts[-1]
    assert readme.startswith("# Attention: a short course\n")
    assert kit.main(["no_such_unit", *kit_of[1:]]) == 1
    assert "there is no exercises/no_such_unit" in capsys.readouterr().err


def test_the_same_course_gives_the_same_zip(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    for name in ("one.zip", "two.zip"):
        assert kit.main(["--out", str(tmp_path / name), "--book", str(tmp_path / "none")]) == 0
    assert "without the book" in capsys.readouterr().out
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        assert f"{kit.NAME}/index.html" not in archive.namelist()
        assert b"index.html" not in archive.read(f"{kit.NAME}/README.md")


def test_a_solution_among_the_exercises_is_refused(tmp_path, monkeypatch, capsys):
    for name in (
        "attncourse",
        "book",
        "solutions",
        "pyproject.toml",
        "requirements.txt",
        "LICENSE",
        "LICENSES.md",
        "_config.yml",
        "lab",
    ):
        (tmp_path / name).symlink_to(ROOT / name)
    path = tmp_path / "exercises" / UNIT / f"{UNIT}.ipynb"
    path.parent.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    notebook = nbformat.read(ROOT / "exercises" / UNIT / f"{UNIT}.ipynb", as_version=4)
    nbformat.write(notebook, path)
    assert kit.main(["--out", "kit.zip"]) == 0
    (solution,) = (
        cell.source
        for cell in nbformat.read(ROOT / "solutions" / UNIT / f"{UNIT}.ipynb", as_version=4).cells
        if cell.id == "softargmax"
    )
    (cell,) = (cell for cell in notebook.cells if cell.id == "softargmax")
    cell.source = re.sub(r".*### (BEGIN|END) SOLUTION\n?", "", solution)
    nbformat.write(notebook, path)
    (tmp_path / "kit.zip").unlink()
    assert kit.main(["--out", "kit.zip"]) == 1
    assert "holds a solution" in capsys.readouterr().err
    assert not (tmp_path / "kit.zip").exists()


def test_it_works_where_only_it_is_installed(made, tmp_path):
    # The libraries are those of this environment; of attncourse, only the kit's is to be seen.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    installed = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", installed, made]
    if int(importlib.metadata.version("setuptools").partition(".")[0]) >= 77:
        install.append("--no-build-isolation")
    subprocess.run(install, check=True, env=environment)
    venv.create(tmp_path / "venv")
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "kit.pth").write_text(f"{installed}\n{sysconfig.get_path('purelib')}\n")
    python = tmp_path / "venv" / "bin" / "python"

    # There JupyterLab finds what leaves out the instructor's part of nbgrader.
    assert (installed / "etc/jupyter/labconfig/page_config.json").is_file()
    # And what leads the links of notebooks to the book, with the book.
    assert (installed / "etc/jupyter/jupyter_server_config.d/attncourse_lab.json").is_file()
    assert (installed / "share/jupyter/labextensions/attncourse/static/remoteEntry.js").is_file()
    where = "import attncourse_lab as a; print(a.book(), len(a.passages()))"
    served = subprocess.run(
        [python, "-c", where],
        cwd=tmp_path,
        env={**environment, "JUPYTER_PATH": str(installed / "share/jupyter")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    book = installed / "share/jupyter/attncourse-book"
    assert served[0] == str(book)
    assert names(book) == {"index.html", f"book/{UNIT}.html", "_static/style.css"}
    assert int(served[1]) > len(UNITS)

    where = (
        "import attncourse as a; from importlib.util import find_spec as find; print(a.__file__, find('{}'))"
    )
    where = where.format("attncourse.grading")
    seen = subprocess.run(
        [python, "-c", where], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert seen.stdout == f"{installed}/attncourse/__init__.py None\n"

    path = made / "exercises" / UNIT / f"{UNIT}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    task = checks.single_query.task
    for cell in notebook.cells:
        if cell.id == task.name:
            cell.source = source_of(right_answers(task)[0], task.name)
    # As far as the second check, which finds nothing written.
    notebook.cells = notebook.cells[: [cell.id for cell in notebook.cells].index("check_softargmax") + 1]
    nbformat.write(notebook, path)
    execute = ["-m", "nbconvert", "--to", "notebook", "--execute", "--allow-errors", "--output-dir"]
    subprocess.run(
        [python, *execute, tmp_path, path], env=environment, check=True, capture_output=True, text=True
    )
    cells = {cell.id: cell for cell in nbformat.read(tmp_path / f"{UNIT}.ipynb", as_version=4).cells}
    assert cells["check_single_query"].outputs[0].text.startswith("single_query: right")
    assert cells["check_softargmax"].outputs[0].evalue.startswith("softargmax: not written yet.")
