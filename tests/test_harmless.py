"""What a submission brings is harmless where a person reads it, and trouble is told in a sentence."""

import csv
import errno
import logging
import os
import re
import signal
import sqlite3
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_notebook
from quick_course import UNIT, hand_in, new_course, one_by_one
from sqlalchemy import create_engine, text
from sqlalchemy.exc import DatabaseError

from attncourse.grading import __main__ as command
from attncourse.grading import autograding, judging, leftovers, repair
from attncourse.grading.__main__ import main
from attncourse.grading.harmless import LONGEST_REMARK, csv_cell, one_line, several_lines
from attncourse.grading.job import NotGraded
from attncourse.grading.trouble import advice


@pytest.fixture
def course(tmp_path, monkeypatch):
    """A new course, which is the current folder, graded in this process: nothing has to be started."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "on_this_machine", one_by_one)
    return new_course(tmp_path)


# --- names and messages ---


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Zoë O'Brien-李", "Zoë O'Brien-李"),
        ("علی‌رضا", "علی‌رضا"),  # with a joiner between its letters
        ("\x1b[2K\rada: 24", r"\x1b[2K ada: 24"),
        ("ada\nforged: 24 of 24", "ada forged: 24 of 24"),
        ("\x9b31m", r"\x9b31m"),
        ("gnp\u202eipynb", r"gnp\u202eipynb"),
        ("\udcff", r"\udcff"),
        ("a\u2028b", "a b"),
        ("Nguye\u0302\u0303n", "Nguye\u0302\u0303n"),
        ("z" + "\u0335" * 6 + "\u0489b\u0335", "z" + "\u0335" * 4 + r"\u0335\u0335\u0489" + "b\u0335"),
    ],
)
def test_a_terminal_shows_and_does_not_obey(given, shown):
    assert one_line(given) == shown


def test_a_traceback_keeps_its_lines_and_colours_and_nothing_else():
    given = "\x1b[0;31mBad\x1b[2K\x1b[0m: a\n\u202eb\x07"
    assert several_lines(given) == "\x1b[0;31mBad\\x1b[2K\x1b[0m: a\n" + r"\u202eb\x07"


def test_the_class_of_an_error_has_a_name_that_can_be_shown():
    kind = "\x1b[2K\u202eAll right.\n" * 100
    shown = judging._error(kind, kind, [f"\x1b[31m{kind}\x1b[0m"])
    assert shown.ename.isprintable()
    assert len(shown.ename) <= judging.LONGEST_NAME
    for line in (shown.evalue, *shown.traceback):
        assert set(re.sub(r"\x1b\[[0-9;]*m", "", line)) <= {*map(chr, range(32, 127)), "\n"}


@pytest.mark.parametrize("given", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\n=1", "＝1+1", "a;=1+1", "a; @x"])
def test_a_spreadsheet_does_not_calculate(given):
    # However it parts the columns.
    for part in csv_cell(given).split(";"):
        assert part.strip()[0] not in "=+-@＝"


@pytest.mark.parametrize("value", [-1.5, 3, None, True, "ada", "a = b", "e-mail", "a-b@c.org"])
def test_other_values_stay_as_they_are(value):
    assert csv_cell(value) is value or csv_cell(value) == value
    assert type(csv_cell(value)) is type(value)


def test_names_reach_the_terminal_and_the_tables_harmless(course, capsys):
    hand_in(course, "=1+1\x1b[2K\nada, sums: 9 of 9 points\u202e")
    assert main(["--workers", "1"]) == 0
    printed = capsys.readouterr().out
    assert not [character for character in printed if not (character.isprintable() or character == "\n")]
    assert not [line for line in printed.splitlines() if line.startswith("ada")]
    for name in ("grades.csv", "grades_by_task.csv", f"reports/{UNIT}.csv"):
        with open(course / name, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        people = {row.get("student_id", row.get("student")) for row in rows}
        assert people == {r"'=1+1\x1b[2K ada, sums: 9 of 9 points\u202e"}
    assert "\x1b" not in (course / "reports" / f"{UNIT}.html").read_text()
    assert "\x1b" not in (course / ".nbgrader.log").read_text()


@pytest.mark.parametrize(("theirs", "ours"), [("data.csv/x.txt", "data.csv"), ("more", "more/x.txt")])
def test_a_file_in_the_place_of_a_folder_is_a_sentence(course, capsys, theirs, ours):
    for place in (hand_in(course, "ada").parent / theirs, course / "solutions" / UNIT / ours):
        place.parent.mkdir(exist_ok=True)
        place.write_text("x")
    assert main(["--workers", "1"]) == 1
    name = theirs.partition("/")[0]
    assert f"brings {name}, which is a file here and a folder in the unit" in capsys.readouterr().out


def test_remarks_have_a_length_and_none_hides_another():
    notebook = new_notebook()
    for number in range(1000):
        repair.flag(notebook, f"code cell {number}", f"{number}\x1b" * 1000, "one of many")
    for _ in range(2):
        repair.flag(notebook, "last", "no points")
        repair.flag(notebook, "last", "seldom", "one of few")
    flags = notebook.metadata["attncourse"]["flags"]
    certain, many, few = repair.told(flags)
    assert (certain, few) == ("last: no points", "last: seldom")
    assert many.endswith(f"; the like is in {', '.join(f'code cell {n}' for n in range(1, 11))} and 989 more")
    assert max(len(remark["words"]) for remark in flags) == LONGEST_REMARK
    assert all(remark["words"].isprintable() for remark in flags)


# --- a gradebook or a disk that does not work ---


def locked(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE t (x)")
    other.commit()
    other.execute("BEGIN EXCLUSIVE")
    return other, "SELECT * FROM t"


def damaged(path):
    path.write_bytes(b"no gradebook" * 1000)
    return None, "SELECT 1 FROM sqlite_master"


def torn(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (x)")
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes(len(whole) - 100))
    return None, "SELECT * FROM t"


def full(path):
    return None, "PRAGMA max_page_count = 1; CREATE TABLE t (x)"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (locked, "close the formgrader"),
        (damaged, "put back a copy"),
        (torn, "put back a copy"),
        (full, "make room"),
    ],
)
def test_a_gradebook_that_does_not_work_is_a_sentence(tmp_path, spoil, words):
    held, statements = spoil(tmp_path / "gradebook.db")
    engine = create_engine(f"sqlite:///{tmp_path}/gradebook.db", connect_args={"timeout": 0})

    def use():
        with engine.connect() as connection:
            for statement in statements.split(";"):
                connection.execute(text(statement))

    with pytest.raises(DatabaseError) as caught:
        use()
    assert words in advice(caught.value)
    if held:
        held.close()


def test_a_disk_that_is_full_is_a_sentence():
    with pytest.raises(OSError, match="No space") as caught:
        Path("/dev/full").write_text("x")
    assert "make room" in advice(caught.value)
    assert "notebook.ipynb" in advice(PermissionError(errno.EACCES, "denied", "notebook.ipynb"))
    assert advice(ValueError("something else")) == ""


def test_what_nbgrader_has_caught_of_a_full_disk_is_a_sentence():
    """It writes down a traceback, whose last line is an address, and raises something else."""
    converter = SimpleNamespace(log=logging.Logger("converter"))

    def start():
        try:
            raise sqlite3.OperationalError("database or disk is full")
        except sqlite3.OperationalError:
            converter.log.error("Traceback\n(Background on this error at: an address)")
        raise SystemExit(1)

    converter.start = start
    with pytest.raises(NotGraded, match=r"^the disk is full: make room on it$"):
        autograding.run(converter, autograding.Log())


@pytest.mark.parametrize("content", [b"no gradebook" * 1000, b""])
def test_the_command_says_it_and_ends(course, capsys, content):
    hand_in(course, "ada")
    (course / "autograded/ada/sums").mkdir(parents=True)  # so that there was a gradebook
    (course / "gradebook.db").write_bytes(content)
    assert main(["--workers", "1"]) == 1
    said = capsys.readouterr().err
    assert "the gradebook is damaged: put back a copy" in said
    assert len(said.strip().splitlines()) == 1


# --- temporary folders ---


def process_with_a_folder(folder):
    """A process that holds a temporary folder; its id and the folder's name."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = leftovers.Folder()
            os.makedirs(f"{held.name}/a/b")
            os.chmod(f"{held.name}/a", 0)
            os.write(theirs, held.name.encode())
            signal.pause()
        finally:
            os._exit(1)
    return child, os.read(ours, 1000).decode()


def test_a_run_removes_what_killed_ones_have_left_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead, left = process_with_a_folder(tmp_path)
    alive, in_use = process_with_a_folder(tmp_path)
    try:
        assert os.path.isdir(left)
        other = tmp_path / "attncourse-of-something-else"
        other.mkdir()
        link = tmp_path / f"{leftovers.PREFIX}link"
        link.symlink_to(other)
        os.kill(dead, signal.SIGKILL)
        os.waitpid(dead, 0)
        leftovers.remove_leftovers.cache_clear()
        with leftovers.Folder() as ours:
            assert not os.path.exists(left)
            assert os.path.isdir(in_use)
            assert os.path.isdir(ours)
            leftovers.remove_leftovers.cache_clear()
            leftovers.remove_leftovers()
            assert os.path.isdir(ours)
        assert not os.path.exists(ours)
        assert other.is_dir()
        assert link.is_symlink()
    finally:
        os.kill(alive, signal.SIGKILL)
        os.waitpid(alive, 0)


@pytest.mark.parametrize("name", ["export", "similar"])
def test_a_command_that_meets_a_damaged_gradebook_is_a_sentence(name, course, capsys):
    hand_in(course, "ada")
    assert main([]) == 0
    (course / "gradebook.db").write_bytes(b"no database " * 1000)
    capsys.readouterr()
    if main([name]):
        assert "the gradebook is damaged" in capsys.readouterr().err
    else:
        assert name == "similar"  # which reads what was handed in
