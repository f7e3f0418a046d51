"""What platforms deliver is taken in: by whom, which unit, which attempt; and nothing is lost."""

import csv
import io
import json
import os
import random
import struct
import tracemalloc
import unicodedata
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from stat import S_IFREG
from types import SimpleNamespace

import nbformat
import pytest
from platforms import (
    archive,
    brightspace_grades,
    brightspace_name,
    canvas_gradebook,
    canvas_name,
    ids,
    moodle_name,
    moodle_worksheet,
    people,
)
from quick_course import RIGHT, UNIT, WRONG, answered, gradebook_of, new_course

from attncourse.grading import archives, autograding, grader, upload
from attncourse.grading.__main__ import main
from attncourse.grading.archives import delivered
from attncourse.grading.collect import Collection
from attncourse.grading.doubts import Delivery, Notebook
from attncourse.grading.platforms import attempt, sender
from attncourse.grading.roster import Person

CLASS = list(zip(ids(4), people(4), strict=True))


def notebook(answers=RIGHT, mark=""):
    """A notebook as handed in; with another mark it is another file."""
    return nbformat.writes(answered(**{**answers, "essay": f"A number. {mark}"})).encode()


@pytest.fixture
def course(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = new_course(tmp_path)
    (made / "course.toml").write_text('timezone = "Europe/Berlin"\n')
    return made


def collect(capsys, *arguments, expect=0):
    assert main(["collect", *map(str, arguments)]) == expect
    return capsys.readouterr().out


def there(course):
    return {path.parts[-3]: path.read_bytes() for path in course.glob(f"submitted/*/{UNIT}/{UNIT}.ipynb")}


def handed_in(course, student):
    path = course / f"submitted/{student}/{UNIT}/timestamp.txt"
    return path.read_text().strip() if path.exists() else None


def write(path, content):
    path.write_bytes(content)
    return path


def test_moodles_zip_with_its_worksheet(course, capsys):
    sheet = write(course / "sheet.csv", moodle_worksheet(CLASS))
    folders = [moodle_name(number, person) for number, (_, person) in enumerate(CLASS, 1)]
    inside = archive(
        {"homework/sums/sums.ipynb": notebook(mark="2"), "homework/.ipynb_checkpoints/x.ipynb": b""}
    )
    files = {
        f"{folders[0]}my work (1).ipynb": notebook(mark="1").replace(b"\n", b"\r\n"),
        f"{folders[1]}homework.zip": inside,
        moodle_name(3, CLASS[2][1], folder=False) + "sums.ipynb": notebook(mark="3"),
        "Some Body_1234_assignsubmission_file_/sums.ipynb": notebook(mark="4"),
        f"{folders[0]}essay.pdf": b"%PDF",
        "__MACOSX/._sums.ipynb": b"",
    }
    zipped = write(
        course / "download.zip", archive(files, {f"{folders[0]}my work (1).ipynb": (2026, 7, 1, 14, 30, 0)})
    )
    before = zipped.read_bytes()
    out = collect(capsys, zipped, "--unit", UNIT, "--roster", sheet, expect=1)
    assert there(course) == {
        "student-01": files[f"{folders[0]}my work (1).ipynb"],
        "student-02": notebook(mark="2"),
        "student-03": notebook(mark="3"),
    }
    assert handed_in(course, "student-01") == "2026-07-01 12:30:00 UTC"  # summer in Berlin
    assert "Matched: 3 students, 3 notebooks." in out
    assert "Absent: student-04 (Stúdent O'Adx)" in out
    assert "Unmatched: download.zip: Some Body_1234" in out
    assert "who is not on the roster" in out
    assert "essay.pdf is no notebook" in out
    assert zipped.read_bytes() == before
    with gradebook_of(course) as gradebook:
        assert [(one.id, one.last_name) for one in gradebook.students] == [
            (id_, last) for id_, (_, last) in CLASS
        ]
    # The same again takes nothing, and one more is one more. The names are in the gradebook by now.
    stamps = {path: path.stat().st_mtime_ns for path in course.glob("submitted/*/*/*")}
    files.pop("Some Body_1234_assignsubmission_file_/sums.ipynb")
    files[f"{folders[3]}sums.ipynb"] = notebook(mark="5")
    out = collect(capsys, write(course / "download.zip", archive(files)), "--unit", UNIT)
    assert out.count("there already") == 3
    assert there(course)["student-04"] == notebook(mark="5")
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items())


def test_canvass_attempts_and_late_ones(course, capsys):
    roster = write(course / "grades.csv", canvas_gradebook(CLASS, ["Sums (77)"], [9]))
    first, second = (canvas_name(1, CLASS[0][1], name) for name in ("sums.ipynb", "sums-1.ipynb"))
    late = canvas_name(2, CLASS[1][1], "anything.ipynb", late=True)
    files = {second: notebook(mark="second"), first: notebook(mark="first"), late: notebook(mark="late")}
    out = collect(capsys, write(course / "a.zip", archive(files)), "--roster", roster)
    assert there(course) == {"student-01": notebook(mark="second"), "student-02": notebook(mark="late")}
    assert "Twice: student-01, sums: 2 attempts, taken a.zip: " + second in out
    assert handed_in(course, "student-02") is None  # the zip's times are those of the download
    assert "Late, but not known when: student-02, sums" in out
    # An older attempt in another zip replaces nothing, a newer one does.
    older = archive({first: notebook(mark="older")}, {first: (2026, 2, 1, 9, 0, 0)})
    assert "not copied: a newer one is there" in collect(capsys, write(course / "b.zip", older))
    newer = archive({first: notebook(mark="newer")}, {first: (2026, 4, 1, 9, 0, 0)})
    assert "newer attempt" in collect(capsys, write(course / "c.zip", newer))
    assert there(course)["student-01"] == notebook(mark="newer")


@pytest.mark.parametrize("roster", [True, False])
def test_nobody_hands_in_for_another_by_the_names_within_a_zip(course, capsys, roster):
    roster = ["--roster", write(course / "grades.csv", canvas_gradebook(CLASS, ["Sums (77)"], [9]))] * roster
    inside = archive(
        {f"{moodle_name(2, CLASS[1][1])}sums.ipynb": notebook(mark="forged")},
        {f"{moodle_name(2, CLASS[1][1])}sums.ipynb": (2027, 1, 1, 0, 0, 0)},
    )
    own = canvas_name(2, CLASS[1][1], "sums.ipynb")
    files = {canvas_name(1, CLASS[0][1], "work.zip"): inside, own: notebook(mark="own")}
    collect(capsys, write(course / "a.zip", archive(files)), "--unit", UNIT, *roster)
    assert sorted(there(course).values()) == sorted([notebook(mark="forged"), notebook(mark="own")])
    if roster:
        assert there(course) == {"student-01": notebook(mark="forged"), "student-02": notebook(mark="own")}
        # A folder of zips that carry the students' names.
        first, last = CLASS[2][1]
        write(course / f"{first} {last}.zip", inside)
        (course / "zips").mkdir()
        (course / f"{first} {last}.zip").rename(course / "zips" / f"{first} {last}.zip")
        collect(capsys, course / "zips", *roster)
        assert there(course)["student-03"] == notebook(mark="forged")
        assert there(course)["student-02"] == notebook(mark="own")


def test_what_lies_in_a_zip_was_handed_in_when_the_zip_was(course, capsys):
    name = f"{moodle_name(1, CLASS[0][1])}work.zip"
    inside = archive({"sums.ipynb": notebook()}, {"sums.ipynb": (2026, 1, 1, 0, 0, 0)})
    content = archive({name: inside}, {name: (2026, 11, 30, 12, 0, 0)})
    collect(capsys, write(course / "a.zip", content), "--unit", UNIT)
    (student,) = there(course)
    assert handed_in(course, student) == "2026-11-30 11:00:00 UTC"


def test_what_lies_in_a_zip_in_an_unpacked_folder_was_handed_in_when_the_zip_was(course, capsys):
    folder = course / "unpacked" / moodle_name(1, CLASS[0][1])
    folder.mkdir(parents=True)
    content = archive({"sums.ipynb": notebook()}, {"sums.ipynb": (2020, 1, 1, 0, 0, 0)})
    # Who unpacks a platform's zip gets the digits of its clock.
    unpacked = datetime(2026, 11, 30, 12).timestamp()
    os.utime(write(folder / "work.zip", content), (unpacked, unpacked))
    collect(capsys, course / "unpacked", "--unit", UNIT)
    (student,) = there(course)
    assert handed_in(course, student) == "2026-11-30 11:00:00 UTC"


def test_brightspaces_folders_say_when(course, capsys):
    roster = write(course / "grades.csv", brightspace_grades(CLASS, ["Sums Points Grade"]))
    times = ("Nov 21, 2026 915 PM", "Nov 22, 2026 1005 AM")
    for number, time in enumerate(times):
        folder = course / "unpacked" / brightspace_name(1, CLASS[0][1], time)
        folder.mkdir(parents=True)
        (folder / "sums.ipynb").write_bytes(notebook(mark=number))
        (folder.parent / "index.html").write_text("<html>")
    collect(capsys, course / "unpacked", "--roster", roster)
    assert there(course) == {"student-01": notebook(mark=1)}
    assert handed_in(course, "student-01") == "2026-11-22 09:05:00 UTC"


def test_a_flat_folder_without_a_roster(course, capsys):
    folder = course / "flat"
    folder.mkdir()
    for name, mark in (
        ("student-01.ipynb", 1),
        ("student-02_sums.ipynb", 2),
        ("sums - student-03 (1).ipynb", 3),
        ("sums (2).ipynb", 4),
    ):
        os.utime(write(folder / name, notebook(mark=mark)), (1.7e9, 1.7e9))
    write(folder / "student-04.zip", archive({"homework/sums/sums.ipynb": notebook(mark=5)}))
    write(folder / "other.ipynb", b'{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')
    out = collect(capsys, folder, expect=1)
    assert there(course) == {f"student-0{one}": notebook(mark=one + (one == 4)) for one in (1, 2, 3, 4)}
    assert (course / f"submitted/student-01/{UNIT}/{UNIT}.ipynb").stat().st_mtime == 1.7e9
    assert "sums (2).ipynb does not say whose it is" in out
    assert "other.ipynb has no cell of any unit" in out


def test_a_name_that_pages_could_misread_is_not_copied(course, capsys):
    (course / "flat").mkdir()
    for name in ("<img src=x>", "Sinéad O'Brien", "Mal\x1b[2Jlory"):
        write(course / "flat" / f"{name}.ipynb", notebook())
    out = collect(capsys, course / "flat", expect=1)
    assert set(there(course)) == {"Sinéad-O'Brien"}
    assert "is of '<img src=x>': the name holds one of < > \" & \\ %; rename it, or give a roster" in out
    assert r"is of 'Mal\x1b[2Jlory', which cannot be the name of a folder" in out


def test_what_lies_there_and_was_not_collected_stays(course, capsys):
    path = course / f"submitted/student-01/{UNIT}/{UNIT}.ipynb"
    path.parent.mkdir(parents=True)
    path.write_bytes(notebook(mark="mended by hand"))
    (course / "flat").mkdir()
    write(course / "flat" / "student-01.ipynb", notebook(mark="as handed in"))
    assert "not copied: another one lies there" in collect(capsys, course / "flat")
    assert path.read_bytes() == notebook(mark="mended by hand")


def test_the_best_of_several_attempts(course, capsys, monkeypatch):
    monkeypatch.setattr(grader.Grader, "grade", lambda self, unit, job: autograding.outcome(unit, job))
    names = [canvas_name(1, CLASS[0][1], name) for name in ("sums.ipynb", "sums-1.ipynb", "sums-2.ipynb")]
    files = dict(zip(names, (notebook(WRONG), notebook(RIGHT), notebook(WRONG, "again")), strict=True))
    roster = write(course / "grades.csv", canvas_gradebook(CLASS, [], []))
    out = collect(capsys, write(course / "a.zip", archive(files)), "--roster", roster, "--attempts", "best")
    assert there(course) == {"student-01": notebook(RIGHT)}
    assert f"3 attempts, taken a.zip: {names[1]}" in out


def test_no_more_than_ten_attempts_are_graded(course, capsys, monkeypatch):
    graded = []

    def grade(self, unit, job):
        graded.append(job.student)
        return autograding.outcome(unit, job)

    monkeypatch.setattr(grader.Grader, "grade", grade)
    files = {
        canvas_name(1, CLASS[0][1], f"sums-{number}.ipynb"): notebook(mark=str(number))
        for number in range(30)
    }
    files[canvas_name(1, CLASS[0][1], "x.pdf" + "x" * 2900)] = b""
    out = collect(capsys, write(course / "a.zip", archive(files)), "--attempts", "best")
    assert len(graded) == 10
    (notebook_,) = there(course).values()
    assert notebook_ == notebook(mark="29")
    assert max(map(len, out.splitlines())) <= 1000


@pytest.mark.parametrize(
    ("roster", "words"),
    [
        (b"", "roster.csv is empty"),
        (b"name,points\nx,1\n", "roster.csv, line 1: no column is called student_id, "),
        (
            b"id,email\nstudent-01,a@example.org\nstudent-01,b@example.org\n",
            "line 3: 'student-01' is in line 2, too",
        ),
        (b"id,email\n../x,a@example.org\n", "line 2: '../x' cannot be the name of a folder"),
        (b"id,email\n<b>,a@example.org\n", "line 2: '<b>' cannot be the name of a folder"),
        (b'id,email\nstudent-01,"a\n', "line "),
        (b"id,email\na,b,c,d\n", "line 2: has 4 cells, and the heading 2"),
        (b"PK\x03\x04", "roster.csv is a spreadsheet or an archive: save it as CSV"),
    ],
)
def test_a_roster_that_cannot_be_used_is_a_sentence(roster, words, course, capsys):
    (course / "flat").mkdir()
    write(course / "flat" / "student-01.ipynb", notebook())
    write(course / "roster.csv", roster)
    assert main(["collect", "flat", "--roster", "roster.csv"]) == 1
    assert words in capsys.readouterr().err
    assert not (course / "submitted").exists()


def test_zips_that_cannot_be_read_are_sentences(course, capsys):
    write(course / "a.zip", b"not a zip")
    assert main(["collect", "a.zip"]) == 1
    assert "a.zip is not a zip, or not a whole one: download it again" in capsys.readouterr().err
    assert main(["collect", "nowhere.zip"]) == 1
    assert "nowhere.zip does not exist" in capsys.readouterr().err
    deep = notebook()
    for _ in range(6):
        deep = archive({"x.zip": deep})
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("student-01/big.ipynb", b" " * 100_000_001)
        made.writestr("../../student-02/sums.ipynb", notebook())
    files = {"student-03/half.zip": archive({"sums.ipynb": notebook()})[:-30], "student-04/deep.zip": deep}
    write(course / "b.zip", bomb.getvalue())
    write(course / "c.zip", archive(files))
    out = collect(capsys, "b.zip", "c.zip", expect=1)
    for words in ("big.ipynb is larger than 100 MB", "half.zip is not a zip", "is a zip in too many zips"):
        assert words in out
    assert not list(course.parent.glob("student-02"))


def test_two_of_the_same_name_are_told_apart_by_number_or_not_at_all(course, capsys):
    twins = [(id_, ("Same", "Name")) for id_ in ids(2)]
    files = {moodle_name(2, ("Same", "Name")) + "sums.ipynb": notebook()}
    write(course / "a.zip", archive(files))
    collect(capsys, "a.zip", "--roster", write(course / "sheet.csv", moodle_worksheet(twins)))
    assert list(there(course)) == ["student-02"]
    lines = "".join(f"{id_},Name,Same\n" for id_ in ids(2))
    roster = write(course / "students.csv", f"id,last_name,first_name\n{lines}".encode())
    assert "fits student-01 and student-02" in collect(capsys, "a.zip", "--roster", roster, expect=1)


def test_the_list_says_where_everything_came_from(course, capsys):
    (course / "flat").mkdir()
    write(course / "flat" / "student-01.ipynb", notebook())
    collect(capsys, "flat")
    with open("collected.csv", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["student_id"], row["assignment"], row["source"]) == (
        "student-01",
        UNIT,
        "flat/student-01.ipynb",
    )
    assert datetime.fromisoformat(row["time"]).astimezone(UTC) <= datetime.now(UTC)


def test_what_names_say():
    units = {"sums", "more_sums"}
    assert sender(["submitted", "student-01", "sums", "sums.ipynb"], units).names == ("student-01",)
    assert sender(["more_sums_student-02.ipynb"], units).names == ("student-02",)
    assert sender(["Ab Cd_12_assignsubmission_file", "x.ipynb"], units).number == "12"
    assert attempt("sums-3.ipynb") == 3
    assert attempt("sums (2).ipynb") == 2
    assert attempt("sums.ipynb") == 0
    assert sender(("Zoë B - Copy of sums.ipynb",), {"sums"}).names == ("Zoë B",)
    assert attempt("sums-Copy1.ipynb") < attempt("sums.ipynb")  # of a time, the one that was worked on counts


def test_a_units_name_is_no_part_of_a_persons():
    units = {"words", "vision"}
    for place, names in {
        "Wordsworth.ipynb": ("Wordsworth",),
        "Visionary Kim-vision.ipynb": ("Visionary Kim",),
        "Bob Swords_vision.ipynb": ("Bob Swords",),
        "Copy of vision.ipynb": (),
        "words-ada/x.ipynb": ("words-ada", "ada", "x"),
    }.items():
        assert sender(place.split("/"), units).names == names


@pytest.mark.parametrize("platform", ["moodle", "canvas", "brightspace"])
def test_namesakes_are_told_apart_or_nobodys(course, capsys, platform):
    names = {
        "moodle": "Wei Wang_{}_assignsubmission_file_sums.ipynb",
        "canvas": "wangwei_{}_9_sums.ipynb",
        "brightspace": "{}-2 - Wei Wang - Nov 21, 2026 915 PM/sums.ipynb",
    }
    files = {names[platform].format(number): notebook(mark=str(number)) for number in (101, 102)}
    out = collect(capsys, write(course / "a.zip", archive(files)), expect=1)
    assert out.count("whom the platform knows by several numbers: give a roster") == 2
    assert there(course) == {}


def test_a_name_that_is_shown_is_not_believed_against_the_number(course, capsys):
    sheet = write(course / "sheet.csv", moodle_worksheet(CLASS))
    mine, another = moodle_name(1, CLASS[0][1]), moodle_name(2, CLASS[0][1])
    files = {f"{mine}sums.ipynb": notebook(mark="1"), f"{another}sums.ipynb": notebook(mark="2")}
    out = collect(capsys, write(course / "a.zip", archive(files)), "--roster", sheet, expect=1)
    assert there(course) == {"student-01": notebook(mark="1")}
    assert "is student-01 by its name, and student-02 by its number" in out


def test_a_class_in_one_folder_is_not_one_student(course, capsys):
    files = {f"The title/{name} - sums.ipynb": notebook(mark=name) for name in ("Ada", "Bo", "Cy")}
    out = collect(capsys, write(course / "a.zip", archive(files)), expect=1)
    assert out.count("lies in 'The title' like all others") == 3
    assert there(course) == {}


def test_a_name_further_in_is_not_believed_where_most_have_none(course, capsys):
    for place in ("101", "102", "103", "104/ada"):
        (course / "all" / place).mkdir(parents=True)
        write(course / f"all/{place}/sums.ipynb", notebook(mark=place))
    roster = write(course / "two.csv", TWO)
    out = collect(capsys, course / "all", "--roster", roster, expect=1)
    assert there(course) == {}
    assert "is ada's by a name inside of '104'" in out


def test_a_name_that_a_spreadsheet_would_calculate_is_text_and_found_again(course, capsys):
    place = course / "all/=1+1/sums.ipynb"
    place.parent.mkdir(parents=True)
    for number, words in enumerate(("new", "newer attempt")):
        write(place, notebook(mark=str(number)))
        os.utime(place, (10**9 + number, 10**9 + number))
        assert collect(capsys, course / "all").splitlines()[0].endswith(words)
        with open("collected.csv", newline="") as file:
            (row,) = csv.DictReader(file)
        assert row["student_id"] == "'=1+1"
    assert there(course) == {"=1+1": notebook(mark="1")}


def test_one_students_units_in_one_folder_are_no_class(course):
    who = sender(["ada", "x.ipynb"], ["sums"])
    found = archives.Found("ada/x.ipynb", ("ada", "x.ipynb"), datetime.now(UTC), b"")

    def doubts(*units):
        person = Person("ada")
        each = [Notebook(unit, found, "", course, who, person, who.levels[0]) for unit in units]
        return list(map(Delivery(each, has_roster=False).doubt, each))

    assert doubts("a", "b", "c") == ["", "", ""]
    assert all(doubts("a", "a", "a"))


def test_a_folder_that_may_be_either_of_two_students_is_neithers(course, capsys):
    """Ada's as GitHub Classroom calls it, or that of somebody whose own name begins with the unit's."""
    students = b"id,last_name,first_name,email\nada,A,A,a@x.org\nsums-ada,B,B,b@x.org\ncarl,C,C,c@x.org\n"
    for name in ("sums-ada", "sums-carl"):
        (course / "all" / name).mkdir(parents=True)
        write(course / f"all/{name}/sums.ipynb", notebook(mark=name))
    told = collect(capsys, course / "all", "--roster", write(course / "three.csv", students), expect=1)
    assert "may be sums-ada or ada's" in " ".join(told.split())
    assert there(course) == {"carl": notebook(mark="sums-carl")}


def test_folders_of_the_courses_own_are_no_class_in_one_folder(course, capsys):
    for name in ("ada", "bo", "cy"):
        folder = course / f"all/submitted/{name}/sums"
        folder.mkdir(parents=True)
        write(folder / "sums.ipynb", notebook(mark=name))
    collect(capsys, course / "all")
    assert set(there(course)) == {"ada", "bo", "cy"}


def test_feedback_goes_back_under_the_name_that_the_platform_gave(course):
    rows = [
        ("mallory", "a.zip: mallmallory_3_4_stuff.zip: lovelaceada_1_2_sums.ipynb"),
        ("ada", "a.zip: lovelaceada_1_2_sums.ipynb"),
        ("grace", "all/grace/hopperbob_5_6_sums.ipynb"),
        ("bob", "hopperbob_5_6_sums.ipynb"),
    ]
    lines = ["student_id,assignment,source", *(f"{student},{UNIT},{source}" for student, source in rows)]
    (course / "collected.csv").write_text("\n".join(lines))
    names = upload._as_delivered(
        SimpleNamespace(folders=SimpleNamespace(root=course)), SimpleNamespace(to="canvas", unit=UNIT)
    )
    assert names == {"mallory": "mallmallory_3_4_stuff.html", "ada": "lovelaceada_1_2_sums.html"}


ANOTHERS = "x_22_assignsubmission_file_"


@pytest.mark.parametrize(
    "name",
    [
        # A file's name is its student's, behind what the platform puts first.
        f"Ab Cd_11_assignsubmission_file_{ANOTHERS}.ipynb",
        f"cdab_11_9002_{ANOTHERS}-99.ipynb",
        f"cdab_LATE_11_9002_{ANOTHERS}.ipynb",
        f"11-2 - Ab Cd - Nov 21, 2026 915 PM - {ANOTHERS}.ipynb",
        # What Moodle puts first is a name that students may be able to choose.
        "Ada Lovelace_11_2_22_assignsubmission_file_/sums.ipynb",
        "lovelaceada_11_2_22_assignsubmission_file_/sums.ipynb",
        "11-2 - Ada Lovelace - Nov 21, 2026 915 PM - x_22_assignsubmission_file_/sums.ipynb",
        "Ada Lovelace_11_assignsubmission_file_x_22_assignsubmission_file_/sums.ipynb",
        "Ada Lovelace_11_assignsubmission_file_22_assignsubmission_file_/sums.ipynb",
    ],
)
@pytest.mark.parametrize("roster", [True, False])
def test_a_name_with_the_signs_of_two_platforms_is_nobodys_until_it_is_looked_at(
    course, capsys, name, roster
):
    path = course / "all" / name
    path.parent.mkdir(parents=True)
    write(path, notebook(mark="whose?"))
    rows = [
        "Identifier,Full name,Email address",
        "Participant 11,Ada Lovelace,a@x.org",
        "Participant 22,G H,g@x.org",
    ]
    table = write(course / "moodle.csv", "\n".join(rows).encode())
    arguments = ["--roster", table] if roster else []
    told = collect(capsys, course / "all", *arguments, expect=1)
    assert "may be of any of the numbers 11, 22" in " ".join(told.split())
    assert there(course) == {}


def test_a_name_that_says_the_same_number_twice_is_no_riddle():
    again = "Ab Cd_11_assignsubmission_file_Ab Cd_11_assignsubmission_file_sums.ipynb"
    assert sender([again], ["sums"]).number == "11"
    assert sender(["11-2 - Ab Cd - Nov 21, 2026 915 PM", f"{ANOTHERS}.ipynb"], ["sums"]).number == "11"


ADAS = {
    "canvas": "lovelaceada_1_2_sums.ipynb",
    "moodle": "Ada Lovelace_12_assignsubmission_file_/sums.ipynb",
    "brightspace": "1-2 - Ada Lovelace - Nov 21, 2026 915 PM/sums.ipynb",
    "none": "ada/sums.ipynb",
}
TWO = b"student_id,last_name,first_name,email\nada,Lovelace,Ada,a@x.org\ngrace,Hopper,Grace,g@x.org\n"


@pytest.mark.parametrize("platform", ADAS)
@pytest.mark.parametrize("place", ["grace/{}", "sums-grace/{}", "unknown/{}", "grace.zip"])
@pytest.mark.parametrize("roster", [True, False])
def test_nobody_hands_in_for_another_by_the_names_within_a_folder(course, capsys, platform, place, roster):
    arguments = ["--roster", write(course / "two.csv", TWO)] if roster else []
    unsure = "unknown" in place if roster else platform != "none"
    own = "sums-ada/sums/sums.ipynb" if place.startswith("sums-") else "ada/sums.ipynb"
    inside = place.format(ADAS[platform])
    for path in (course / "all" / own, course / "all" / inside):
        path.parent.mkdir(parents=True, exist_ok=True)
    write(course / "all" / own, notebook(mark="Ada's"))
    theirs = notebook(mark="not Ada's")
    write(course / "all" / inside, archive({ADAS[platform]: theirs}) if inside.endswith(".zip") else theirs)
    collect(capsys, course / "all", *arguments, expect=int(unsure))
    name = "ada" if roster or "sums-" not in place else "sums-ada"
    assert there(course)[name] == notebook(mark="Ada's")
    if roster and "unknown" not in place:
        assert there(course)["grace"] == theirs
        assert handed_in(course, "grace") is None


def test_names_that_all_stand_equally_far_in_are_those_of_whoever_delivered(course, capsys):
    for place, name in (("week 1", "ada"), ("week 2", "grace")):
        (course / "all" / place / name).mkdir(parents=True)
        write(course / f"all/{place}/{name}/sums.ipynb", notebook(mark=name))
    collect(capsys, course / "all", "--roster", write(course / "two.csv", TWO))
    assert there(course) == {name: notebook(mark=name) for name in ("ada", "grace")}


GROUPS = {"groupA/ada": "ada", "groupB/grace": "grace"}


@pytest.mark.parametrize(
    ("groups", "taken"),
    [
        ("my homework.zip", {"ada", "grace"}),  # a zip in which somebody is named, where others have folders
        ("groupB/my homework.zip", {"ada", "grace"}),
        ("my homework", {"grace"}),  # a folder, as those of the groups are: Ada's may be either
    ],
)
def test_who_is_named_in_a_zip_that_is_nobodys_is_not_believed_beside_folders(course, capsys, groups, taken):
    for place, name in GROUPS.items():
        (course / "all" / place).mkdir(parents=True)
        write(course / f"all/{place}/sums.ipynb", notebook(mark=name))
    evil = {"ada/sums.ipynb": notebook(mark="not Ada's")}
    if groups.endswith(".zip"):
        write(course / "all" / groups, archive(evil))
    else:
        (course / "all" / groups / "ada").mkdir(parents=True)
        write(course / "all" / groups / "ada/sums.ipynb", *evil.values())
    out = collect(capsys, course / "all", "--roster", write(course / "two.csv", TWO), expect=1)
    assert there(course) == {name: notebook(mark=name) for name in taken}
    assert "my homework" in out
    assert "collect it by itself" in out


def test_a_class_of_zips_in_one_folder_is_collected_and_what_stands_in_two_is_told(course, capsys):
    (course / "all").mkdir()
    for group, name in (("a", "ada"), ("b", "grace")):
        write(course / f"all/{group}.zip", archive({f"{name}/sums.ipynb": notebook(mark=name)}))
    roster = write(course / "two.csv", TWO)
    collect(capsys, "all", "--roster", roster)
    assert there(course) == {name: notebook(mark=name) for name in ("ada", "grace")}
    write(course / "all/c.zip", archive({"ada/sums.ipynb": notebook(mark="of whom?")}))
    assert "or ada twice" in collect(capsys, "all", "--roster", roster, expect=1)
    assert there(course) == {name: notebook(mark=name) for name in ("ada", "grace")}


@pytest.mark.parametrize("other", ["Ann-Lee", "Ann\u00a0Lee", "Ann  Lee"])
def test_two_who_would_be_one_in_the_gradebook_are_neither(course, capsys, other):
    for name in ("Ann Lee", other, "Bo"):
        (course / "all" / name).mkdir(parents=True)
        write(course / f"all/{name}/sums.ipynb", notebook(mark=name))
    out = collect(capsys, "all", expect=1)
    assert list(there(course)) == ["Bo"]
    for name in ("Ann Lee", other):
        assert f"all/{name}/sums.ipynb is of 'Ann-Lee', who may be any of".replace(
            "\u00a0", " "
        ) in out.replace("\u00a0", " ")


def test_whoever_has_handed_in_no_notebook_is_named_however_much_else_there_is(course, capsys):
    files = {}
    for number in range(120):
        files[f"Some One{number}_{number}_assignsubmission_file_/sums.ipynb"] = notebook(mark=str(number))
        files[f"Some One{number}_{number}_assignsubmission_file_/notes.pdf"] = b"%PDF"
    for name, file in (("Ann", "sums.rar"), ("Bob", "sums.ipynb.txt"), ("Cy", "sums.pdf")):
        files[f"{name} Last_9{ord(name[0])}_assignsubmission_file_/{file}"] = b"something"
    write(course / "a.zip", archive(files))
    out = collect(capsys, "a.zip", expect=1)
    told = [line for line in out.splitlines() if line.startswith("Unmatched")]
    for line, words in zip(told, ("unpack it", "let its name end in .ipynb", "is no notebook"), strict=True):
        assert words in line
        assert " Last (9" in line
    assert "Left where it is: 20 more" in out


def test_the_same_in_two_places_that_say_no_name_is_told_of_each(course, capsys):
    for name in ("ada.zip", "grace.zip"):
        write(course / name, archive({"sums/sums.ipynb": notebook()}))
    out = collect(capsys, "ada.zip", "grace.zip", expect=1)
    assert "Unmatched: ada.zip" in out
    assert "Unmatched: grace.zip" in out


def test_a_delivery_that_was_downloaded_twice_is_one_attempt(course, capsys):
    for name in ("a.zip", "b.zip"):
        write(course / name, archive({"Ada One_12_assignsubmission_file_/sums.ipynb": notebook()}))
    assert "Twice" not in collect(capsys, "a.zip", "b.zip")
    assert list(there(course)) == ["Ada-One"]


def test_a_link_in_what_is_collected_is_told(course, capsys):
    for name in ("ada", "grace"):
        (course / "all" / name).mkdir(parents=True)
        write(course / f"{name}.ipynb", notebook(mark=name))
    write(course / "all/grace/sums.ipynb", notebook(mark="grace"))
    (course / "all/ada/sums.IPYNB").symlink_to(course / "ada.ipynb")
    (course / "all/cy").symlink_to(course / "all/grace")
    (course / "all/grace/data").symlink_to(course / "all/ada")
    out = collect(capsys, "all", expect=1)
    assert list(there(course)) == ["grace"]
    told = [line.split()[1] for line in out.splitlines() if "is a link" in line]
    assert sorted(told) == ["all/ada/sums.IPYNB", "all/cy"]


@pytest.mark.parametrize("seconds", [2.0**40, -(2.0**40), 253_402_300_000.0, -62_135_500_000.0])
def test_a_time_that_no_calendar_has_keeps_nobody_back(course, capsys, monkeypatch, seconds):
    for name in ("ada", "grace"):
        (course / "all" / name).mkdir(parents=True)
        write(course / f"all/{name}/sums.ipynb", notebook(mark=name))
    whole = Path.stat
    far = SimpleNamespace(st_mtime=seconds, st_size=10, st_mode=S_IFREG)

    def stat(path, **how):
        return (
            far if path.name == "sums.ipynb" and path.parent.name == "ada" and not how else whole(path, **how)
        )

    with monkeypatch.context() as patch:  # few disks keep such a time
        patch.setattr(archives.Path, "stat", stat)
        found = [one for one in delivered(course / "all") if not isinstance(one, str)]
    assert [one.time.year for one in found] == [1980, datetime.now().year]


def test_of_what_is_in_one_zip_of_a_students_the_notebook_further_out_counts(course, capsys):
    (course / "all/ada").mkdir(parents=True)
    files = {"sums.ipynb": notebook(mark="last"), "backup/sums.ipynb": notebook(mark="before")}
    write(course / "all/ada/homework.zip", archive(files))
    assert "taken all/ada/homework.zip: sums.ipynb" in collect(capsys, "all")
    assert there(course) == {"ada": notebook(mark="last")}


def packed(content, method=zipfile.ZIP_DEFLATED, **said):
    """A zip of one notebook, of which the directory at its end says something else."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as made:
        made.writestr(f"{UNIT}.ipynb", content)
        for name, value in said.items():
            setattr(made.infolist()[0], name, value)
    return buffer.getvalue()


def spoilt(content):
    """The same with another first byte of what is packed."""
    start = 30 + len(f"{UNIT}.ipynb")
    return content[:start] + b"\xff" + content[start + 1 :]


def listed(data, name=f"{UNIT}.ipynb", offset=None):
    """A zip of one file, of which the list at its end says another name, or where it begins."""
    start, end = data.index(b"PK\1\2"), data.index(b"PK\5\6")
    entry, tail = bytearray(data[start : start + 46]), bytearray(data[end:])
    extra = b"" if offset is None else struct.pack("<HHQ", 1, 8, offset)
    entry[28:32] = struct.pack("<HH", len(name), len(extra))
    entry[42:46] = b"\xff" * 4 if extra else entry[42:46]
    entry += name.encode() + extra
    tail[12:16] = struct.pack("<I", len(entry))
    return data[:start] + bytes(entry + tail)


BROKEN = {
    "beyond all numbers": lambda: listed(packed(b"x" * 1000), offset=2**63),
    "a name of many signs": lambda: listed(packed(b"x" * 1000), name="_" * 60_000 + "x.ipynb"),
    "a path of many folders": lambda: listed(packed(b"x" * 1000), name="a/" * 30_000 + "x.ipynb"),
    "without a name": lambda: listed(packed(b"x" * 1000), name=""),
    "corrupt": lambda: spoilt(packed(b"x" * 1000)),
    "packed with lzma": lambda: packed(b"x" * 1000, zipfile.ZIP_LZMA),
    "packed with bzip2": lambda: packed(b"x" * 1000, zipfile.ZIP_BZIP2),
    "larger than it says": lambda: packed(b"x" * 10**6, file_size=1000),
    "cut off": lambda: packed(b"x" * 1000)[:-30],
}


@pytest.mark.parametrize("name", BROKEN)
def test_one_broken_zip_keeps_nobody_elses_notebook_back(name, tmp_path):
    content = BROKEN[name]()
    whole = tmp_path / "all.zip"
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr(f"one_1/{UNIT}.ipynb", notebook())
        made.writestr("two_2/mine.zip", content)
        made.writestr(f"zoe_3/{UNIT}.ipynb", notebook(mark="mine"))
    found = [one for one in delivered(whole) if not isinstance(one, str)]
    assert [one.parts[0] for one in found] == ["one_1", "zoe_3"], name
    (told,) = [one for one in delivered(whole) if isinstance(one, str)]
    assert "mine.zip" in told


def test_a_zip_of_which_some_bytes_are_others_keeps_nobody_elses_notebook_back(tmp_path):
    chance = random.Random(0)
    whole = packed(b"x" * 400), listed(packed(b"x" * 400), offset=5)
    path = tmp_path / "two_2" / "mine.zip"
    path.parent.mkdir()
    for _ in range(1000):
        content = bytearray(chance.choice(whole))
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.choice([0, 127, 128, 255, chance.randrange(256)])
        path.write_bytes(content)
        list(delivered(tmp_path))  # whatever is in it, it ends


def test_a_number_behind_a_name_may_be_of_any_length():
    assert attempt(f"sums-{'9' * 5000}.ipynb") > attempt("sums-3.ipynb")


def test_a_zip_that_lies_about_a_size_takes_no_more_memory_than_it_says(tmp_path):
    path = tmp_path / "lying.zip"
    path.write_bytes(packed(b"x" * 10**8, file_size=1000))
    tracemalloc.start()
    try:
        assert all(isinstance(one, str) for one in delivered(path))
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_zips_in_a_zip_have_room_together(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 250_000)
    inner = packed(b"x" * 100_000)
    for _ in range(2):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as made:
            for number in range(3):
                made.writestr(f"{number}.zip", inner)
        inner = buffer.getvalue()
    whole = tmp_path / "all.zip"
    with zipfile.ZipFile(whole, "w") as made:
        made.writestr("mine.zip", inner)
        made.writestr("yours.zip", packed(b"x" * 100_000))
    found = list(delivered(whole))
    sizes = [(one.parts[0], len(one.content)) for one in found if not isinstance(one, str)]
    assert sizes == [("mine", 100_000), ("mine", 100_000), ("yours", 100_000)]
    assert all("too much for one zip" in one for one in found if isinstance(one, str))


def test_what_is_in_somebodys_folder_has_the_room_of_one_submission(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MOST_BYTES", 250_000)
    monkeypatch.setattr(archives, "MOST_FILES", 3)
    notebooks = {f"{number}/{UNIT}.ipynb": b"x" * 100_000 for number in range(3)}
    for student, files in (("eve", notebooks), ("mia", {**notebooks, "data.csv": b"1"})):
        (tmp_path / student).mkdir()
        with zipfile.ZipFile(tmp_path / student / "work.zip", "w", zipfile.ZIP_DEFLATED) as made:
            for name, content in files.items():
                made.writestr(name, content)
    found = list(delivered(tmp_path))
    assert [one.parts[:2] for one in found if not isinstance(one, str)] == [("eve", "work")] * 2
    told = [one for one in found if isinstance(one, str)]
    assert ["too much for one zip" in told[0], "holds more than 3 files" in told[1]] == [True, True]


def test_only_notebooks_are_read(tmp_path):
    write(tmp_path / "data.bin", b"x" * 1000)
    write(tmp_path / "all.zip", archive({"zoe/data.bin": b"x" * 1000}))
    assert [one.content for one in delivered(tmp_path)] == [b"", b""]


def test_of_a_class_one_notebook_at_a_time_is_in_memory(course, capsys):
    (course / "flat").mkdir()
    for number in range(30):
        large = notebook(mark=number) + b" " * 3_000_000
        write(course / "flat" / f"student-{number}.zip", archive({f"{UNIT}.ipynb": large}))
    tracemalloc.start()
    try:
        collect(capsys, course / "flat")
        assert tracemalloc.get_traced_memory()[1] < 45_000_000
    finally:
        tracemalloc.stop()
    assert len(there(course)) == 30


def test_a_notebook_of_too_many_values_is_no_more_than_counted(course, capsys):
    with (course / "nbgrader_config.py").open("a") as file:
        file.write("c.Limits.most_values = 1000\n")
    (course / "flat").mkdir()
    write(course / "flat" / "eve.ipynb", notebook()[:-2] + b', "x": [' + b"0," * 1000 + b"0]}")
    write(course / "flat" / "ann.ipynb", notebook())
    assert "eve.ipynb holds more than 1,000 values" in collect(capsys, course / "flat", expect=1)
    assert set(there(course)) == {"ann"}


def test_a_folder_that_cannot_be_made_keeps_nobody_elses_notebook_back(course, capsys):
    (course / "submitted").mkdir()
    write(course / "submitted" / "bob", b"a file")
    files = {f"{name}/{UNIT}.ipynb": notebook(mark=name) for name in ("bob", "cat", "x" * 300, "zoe")}
    out = collect(capsys, write(course / "a.zip", archive(files)), expect=1)
    assert set(there(course)) == {"cat", "zoe"}
    assert "time not known  not copied: Not a directory" in out
    assert "the name has more than 255 bytes, which no folder's name can; rename it, or give a roster" in out


COMPOSED, DECOMPOSED = (unicodedata.normalize(form, "José") for form in ("NFC", "NFD"))


@pytest.mark.parametrize("roster", [True, False])
def test_an_accent_may_be_written_in_two_ways(course, capsys, roster):
    for name, time in ((DECOMPOSED, 1.7e9), (COMPOSED, 1.6e9)):
        (course / "flat" / name).mkdir(parents=True)
        os.utime(write(course / f"flat/{name}/{UNIT}.ipynb", notebook(mark=time)), (time, time))
    lines = f"id,last_name,first_name\n{DECOMPOSED},X,Y\n".encode()
    arguments = ["--unit", UNIT, "--roster", write(course / "roster.csv", lines)] * roster
    out = collect(capsys, course / "flat", *arguments)
    assert there(course) == {DECOMPOSED if roster else COMPOSED: notebook(mark=1.7e9)}
    assert "2 attempts" in out
    assert "Absent" not in out
    if roster:
        write(course / "roster.csv", lines + f"{COMPOSED},Z,Y\n".encode())
        assert main(["collect", "flat", "--roster", "roster.csv"]) == 1
        assert "line 3: 'José' is in line 2, too" in unicodedata.normalize("NFC", capsys.readouterr().err)


def test_an_address_that_two_share_makes_nobody_another(course, capsys):
    lines = ["id,last_name,first_name,email", "ada,Lovelace,Ada,t@x.org", "zoe,Zed,Zoe,T@x.org", ""]
    roster = course / "team.csv"
    for mark, some in (("first", lines[:2]), ("second", lines), ("third", lines), ("fourth", lines[:2])):
        roster.write_text("\n".join(some))
        place = course / mark / "Ada Lovelace_11_assignsubmission_file_"
        place.mkdir(parents=True)
        write(place / "sums.ipynb", notebook(mark=mark))
        collect(capsys, mark, "--roster", roster)
        assert there(course) == {"ada": notebook(mark=mark)}
    roster.write_text("\n".join([lines[0], *lines[2:]]))
    (course / "fifth/Zoe Zed_12_assignsubmission_file_").mkdir(parents=True)
    write(course / "fifth/Zoe Zed_12_assignsubmission_file_/sums.ipynb", notebook(mark="Zoe's"))
    collect(capsys, "fifth", "--roster", roster)
    assert there(course) == {"ada": notebook(mark="fourth"), "zoe": notebook(mark="Zoe's")}


def test_nor_are_they_one_in_two_runs(course, capsys):
    for place, name in (("a", "Anna Lena"), ("b", "Anna-Lena")):
        (course / place / name).mkdir(parents=True)
        write(course / f"{place}/{name}/sums.ipynb", notebook(mark=name))
    collect(capsys, "a")
    collect(capsys, "a")
    assert "may be any of 'Anna Lena' and 'Anna-Lena'" in collect(capsys, "b", expect=1)
    assert there(course) == {"Anna-Lena": notebook(mark="Anna Lena")}


def test_a_name_that_is_shown_is_no_login_of_somebody_with_another_name(course, capsys):
    lines = b"Username,First name,Surname\nal1,Ada,Lovelace\nann,,\n"
    roster = write(course / "r.csv", lines)
    files = {
        f"{name}_{number}_assignsubmission_file_/sums.ipynb": notebook()
        for number, name in enumerate(["al1", "ann"])
    }
    write(course / "a.zip", archive(files))
    assert "is of 'al1', who is not on the roster" in collect(capsys, "a.zip", "--roster", roster, expect=1)
    assert list(there(course)) == ["ann"]


@pytest.mark.parametrize("platform", ["canvas", "moodle", "brightspace"])
def test_what_a_platform_shows_of_one_is_not_taken_for_what_another_is_called(course, capsys, platform):
    lines = b"id,last_name,first_name,email\nchenwei,Chen,Wei,\nchenwei2,Chen,Wei,\nada,Lovelace,Ada,\n"
    shown = {
        "canvas": "chenwei_22_901_sums.ipynb",
        "moodle": "chenwei_22_assignsubmission_file_/sums.ipynb",
        "brightspace": "22-901 - chenwei - Nov 21, 2026 915 PM/sums.ipynb",
    }[platform]
    write(course / "a.zip", archive({shown: notebook()}))
    out = collect(capsys, "a.zip", "--roster", write(course / "r.csv", lines), expect=1)
    assert "fits chenwei and chenwei2" in out
    assert not there(course)


@pytest.mark.parametrize(
    "place",
    ["{}/.hw.zip", "{}/~hw.IPYNB", "{}/.hidden/sums.zip", "~{}/hw.zip", ".{}/Sums.IPYNB", "~{}/a.pdf"],
)
def test_nobody_is_passed_over_for_a_dot_or_a_tilde(course, capsys, place):
    name = "Eve One_5_assignsubmission_file_"
    content = archive({"sums.ipynb": notebook()}) if place.endswith("zip") else notebook()
    files = {
        place.format(name): content,
        f"{name.replace('Eve', 'Bob').replace('5', '6')}/sums.ipynb": notebook(),
    }
    write(course / "a.zip", archive(files))
    assert main(["collect", "a.zip"]) == int(not place.startswith("~{}/hw"))
    out = capsys.readouterr().out
    assert "Bob-One" in there(course)
    assert "~Eve-One" in there(course) or "Eve One" in out.partition("Unmatched:")[2]


def test_a_folder_of_an_exercise_is_not_the_student_who_is_called_so(course, capsys):
    lines = b"id,last_name,first_name\n1,One,Ann\n2,Two,Bob\n3,Three,Cyd\n"
    roster = write(course / "r.csv", lines)
    files = {}
    for number, name in enumerate(("Ann One", "Bob Two", "Cyd Three"), 11):
        files[f"1/{name}_{number}_assignsubmission_file_/sums.ipynb"] = notebook(mark=name)
    write(course / "a.zip", archive(files))
    out = collect(capsys, "a.zip", "--roster", roster, expect=1)
    assert not there(course)
    assert out.count("called as 1 is, and so do notebooks of 2 and 3") == 3
    # Whose own folder it is may have one with another's name in it.
    write(course / "b.zip", archive(dict(list(files.items())[:2])))
    collect(capsys, "b.zip", "--roster", roster)
    assert list(there(course)) == ["1"]


def test_who_was_collected_before_there_was_a_roster_is_told(course, capsys):
    (course / "all/Ada Lovelace").mkdir(parents=True)
    write(course / "all/Ada Lovelace/sums.ipynb", notebook())
    collect(capsys, "all")
    out = collect(capsys, "all", "--roster", write(course / "two.csv", TWO))
    assert sorted(there(course)) == ["Ada-Lovelace", "ada"]
    assert "Left over: Ada-Lovelace was collected before and is not on the roster" in out
    assert "Left over: ada" not in out


def test_groups_of_students_are_no_students(course, capsys):
    for place in ("group1/ada", "group1/bob", "group1/cyd", "group2/dan", "group2/eve", "group2/fay"):
        (course / "all" / place).mkdir(parents=True)
        write(course / f"all/{place}/sums.ipynb", notebook(mark=place))
    out = collect(capsys, "all", expect=1)
    assert not there(course)
    assert out.count("as others do: if that is no student, collect what is in it; else give a roster") == 6
    collect(capsys, "all/group1", "all/group2")
    assert sorted(there(course)) == ["ada", "bob", "cyd", "dan", "eve", "fay"]


def test_a_time_in_a_name_is_no_time_of_handing_in(course, capsys):
    late = "13-34 - Bob - Nov 1, 2026 915 AM - Nov 28, 2026 915 PM"
    write(course / "a.zip", archive({f"{late}/sums.ipynb": notebook()}))
    assert "says two times" in collect(capsys, "a.zip", expect=1)
    assert sender(["13-34 - Bob - Nov 1, 2026 915 AM - a.ipynb"], []).time.day == 1


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_a_time_at_the_end_of_the_calendar_keeps_nobody_back(course, capsys, zone):
    (course / "course.toml").write_text(f'timezone = "{zone}"\n')
    names = ["12-34 - Ada - Jan 1, 0001 915 AM", "13-34 - Bob - Dec 31, 9999 1159 PM"]
    write(course / "a.zip", archive({f"{name}/sums.ipynb": notebook() for name in names}))
    sheet = "Identifier,Full name,Last modified (submission)\n" + "".join(
        f"Participant {number},{name},{time}\n"
        for number, name, time in ((1, "Ada A", "0001-01-01 00:00:00"), (2, "Bob B", "9999-12-31 23:59:59"))
    )
    collect(capsys, "a.zip")
    assert sorted(there(course)) == ["Ada", "Bob"]
    moodle = {
        f"{name}_{number}_assignsubmission_file_/sums.ipynb": notebook()
        for number, name in ((1, "Ada A"), (2, "Bob B"))
    }
    write(course / "b.zip", archive(moodle))
    collect(capsys, "b.zip", "--roster", write(course / "s.csv", sheet.encode()))
    assert {"Ada-A", "Bob-B"} < set(there(course))


def test_a_date_before_a_name_is_no_canvass():
    assert sender(["2026_11_27_ada.ipynb"], []).platform == ""
    assert (
        sender(["ada1_11_27_sums.ipynb"], []).platform
        == sender(["лев_11_27_a.ipynb"], []).platform
        == "canvas"
    )


def test_vowels_of_other_scripts_are_a_part_of_a_name(course, capsys):
    lines = "id,last_name,first_name\ns1,कुमार,मीना\ns3,कुमार,मोना\ns4,José,Zoë\n"
    roster = write(course / "r.csv", lines.encode())
    names = {"मीना कुमार": "s1", "मोना कुमार": "s3", "Zoe Jose": "s4"}
    files = {
        f"{name}_{number}_assignsubmission_file_/sums.ipynb": notebook()
        for number, name in enumerate(names, 7)
    }
    write(course / "a.zip", archive(files))
    collect(capsys, "a.zip", "--roster", roster)
    assert sorted(there(course)) == ["s1", "s3", "s4"]
    write(course / "b.zip", archive({"मैना कुमार_9_assignsubmission_file_/sums.ipynb": notebook()}))
    assert "is not on the roster" in collect(capsys, "b.zip", "--roster", roster, expect=1)


@pytest.mark.parametrize("spoilt", [{}, {"metadata": None}, {"metadata": {"nbgrader": None}}, None])
def test_a_cell_without_what_belongs_there_does_not_hide_the_unit(course, capsys, spoilt):
    whole = json.loads(notebook())
    cell = {"cell_type": "code", "source": "", "outputs": [], "execution_count": None}
    whole["cells"].append(None if spoilt is None else cell | spoilt)
    (course / "ada").mkdir()
    write(course / "ada/mine.ipynb", json.dumps(whole).encode())
    (course / "all").mkdir()
    (course / "ada").rename(course / "all/ada")
    collect(capsys, "all")
    assert list(there(course)) == ["ada"]


def test_a_number_of_canvass_is_the_persons_in_every_unit(course, capsys):
    write(course / "a.zip", archive({"smithjohn_11_901_sums.ipynb": notebook()}))
    collect(capsys, "a.zip")
    there_is = SimpleNamespace(
        units=lambda: [], submitted=course / "submitted", folders=SimpleNamespace(root=str(course))
    )

    def doubt(name, student="smithjohn"):
        collection = Collection(there_is, [], False, None, False, course)
        return collection._several_numbers(Person(student), "other", sender([name], []))

    assert "several numbers" in doubt("smithjohn_22_902_other.ipynb")
    assert not doubt("smithjohn_11_902_other.ipynb")
    assert not doubt("smithjohn_22_902_other.ipynb", "somebody")
    # Moodle's number is another one in another exercise.
    assert not doubt("Smith John_22_assignsubmission_file_other.ipynb")


def test_of_two_who_are_called_alike_the_exact_name_decides(course, capsys):
    for name in ("Ann", "ann"):
        (course / "flat" / name).mkdir(parents=True)
        write(course / f"flat/{name}/{UNIT}.ipynb", notebook(mark=name))
    roster = write(course / "roster.csv", b"id,last_name,first_name\nAnn,A,B\nann,C,D\n")
    collect(capsys, course / "flat", "--roster", roster)
    assert there(course) == {name: notebook(mark=name) for name in ("Ann", "ann")}


def test_without_a_roster_a_platforms_name_in_somebodys_folder_is_not_believed(course, capsys):
    """A student can call a file as a platform does: by another's name."""
    collect(capsys, folder_of(course / "first", {"grace/sums.ipynb": "grace", "ada/sums.ipynb": "ada"}))
    name = f"grace_1_2_{UNIT}.ipynb"
    out = collect(capsys, folder_of(course / "second", {f"mallory/{name}": "forged"}), expect=1)
    assert f"mallory/{name} is grace's by a name inside of 'mallory'" in out
    alike = {f"{one}/lab_1_2_{UNIT}.ipynb": one for one in ("ada", "bob", "carl")}
    out = collect(capsys, folder_of(course / "third", alike), expect=1)
    assert out.count("is lab's by a name inside of") == 3
    assert there(course) == {one: notebook(mark=one) for one in ("grace", "ada")}
    # Inside of it the name is the outermost; and a class in one folder is a platform's.
    collect(capsys, course / "third/ada")
    assert there(course)["lab"] == notebook(mark="ada")
    class_ = {f"export/{one}_1_2_{UNIT}.ipynb": one for one in ("dan", "eve", "fay")}
    collect(capsys, folder_of(course / "fourth", class_))
    assert {"dan", "eve", "fay"} <= set(there(course))


def folder_of(folder, marks):
    for name, mark in marks.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write(folder / name, notebook(mark=mark))
    return folder


def test_what_was_copied_by_a_killed_run_is_followed_by_the_next_attempt(course, capsys, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    first = folder_of(course / "first", {"ada/sums.ipynb": "1"})
    with monkeypatch.context() as patch:
        patch.setattr(Collection, "_write", killed)
        with pytest.raises(KeyboardInterrupt):
            main(["collect", str(first)])
    assert there(course) == {"ada": notebook(mark="1")}
    assert "there already" in collect(capsys, first)
    later = folder_of(course / "later", {"ada/sums.ipynb": "2"})
    os.utime(later / "ada/sums.ipynb", (2e9, 2e9))
    assert "newer attempt" in collect(capsys, later)
    assert there(course) == {"ada": notebook(mark="2")}


def test_with_names_and_passing_numbers_only_a_student_is_called_by_the_name(course, capsys):
    head = "Identifier,Full name,Status"
    for number, mark in ((9001, "1"), (9777, "2")):
        sheet = write(course / "sheet.csv", f"{head}\nParticipant {number},Ada Byron,Submitted\n".encode())
        name = f"Ada Byron_{number}_assignsubmission_file_/sums.ipynb"
        content = archive({name: notebook(mark=mark)}, {name: (2026, 3, int(mark), 10, 0, 0)})
        collect(capsys, write(course / "a.zip", content), "--roster", sheet)
        assert there(course) == {"Ada-Byron": notebook(mark=mark)}


def test_who_takes_anothers_name_replaces_nothing_where_the_roster_has_no_numbers(course, capsys):
    roster = write(course / "roster.csv", b"id,last_name,first_name,email\nann,Good,Ann,ann@example.org\n")
    files = {
        "Ann Good_101_assignsubmission_file_/sums.ipynb": notebook(mark="1"),
        "ANN good_104_assignsubmission_file_/sums.ipynb": notebook(mark="2"),
    }
    content = archive(files, {name: (2026, 3, 1, 10 + at, 0, 0) for at, name in enumerate(files)})
    out = collect(capsys, write(course / "class.zip", content), "--roster", roster, expect=1)
    assert " ".join(out.split()).count("knows by several numbers: give a roster with its numbers") == 2
    assert there(course) == {}


@pytest.mark.parametrize("numbered", [None, False, True])
@pytest.mark.parametrize("together", [True, False])
def test_nor_in_another_delivery(course, capsys, numbered, together):
    """As when a group is downloaded after another, or who handed in late."""
    rows = {
        False: b"First name,Last name,Email address\nAnn,Good,a@x.org\nBo,B,b@x.org\n",
        True: b"Identifier,Full name,Email address\nParticipant 101,Ann Good,a@x.org\n"
        b"Participant 104,Bo B,b@x.org\n",
    }
    roster = [] if numbered is None else ["--roster", write(course / "roster.csv", rows[numbered])]
    zips = [
        write(
            course / f"{number}.zip",
            archive({f"Ann Good_{number}_assignsubmission_file_/sums.ipynb": content}),
        )
        for number, content in ((101, notebook(mark="Ann's")), (104, notebook(mark="not Ann's")))
    ]
    if together:
        out = collect(capsys, *zips, *roster, expect=1)
    else:
        collect(capsys, zips[0], *roster)
        out = collect(capsys, zips[1], *roster, expect=1)
    told = "by its number" if numbered else "knows by several numbers"
    assert " ".join(out.split()).count(told) == (2 if together and not numbered else 1)
    assert list(there(course).values()) == ([] if together and not numbered else [notebook(mark="Ann's")])
    if not together:
        assert "already" in collect(capsys, zips[0], *roster)


def test_what_lies_beside_a_notebook_of_the_unit_is_not_taken_for_it(course, capsys):
    scratch = nbformat.writes(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1 + 1")])).encode()
    folder = "Ann Good_101_assignsubmission_file_"
    files = {f"{folder}/sums.ipynb": notebook(), f"{folder}/zcratch-9.ipynb": scratch}
    times = {f"{folder}/zcratch-9.ipynb": (2026, 3, 2, 10, 0, 0)}
    collect(capsys, write(course / "a.zip", archive(files, times)), "--unit", UNIT)
    assert list(there(course).values()) == [notebook()]
    late = archive({f"{folder}/zcratch.ipynb": scratch}, {f"{folder}/zcratch.ipynb": (2026, 3, 3, 10, 0, 0)})
    out = collect(capsys, write(course / "b.zip", late), "--unit", UNIT)
    assert "not copied: it has no cell of sums, and another one is there" in " ".join(out.split())
    assert list(there(course).values()) == [notebook()]


def test_a_list_that_a_spreadsheet_has_saved_is_read_or_a_sentence(course, capsys):
    first = folder_of(course / "first", {"zoë/sums.ipynb": "1"})
    collect(capsys, first)
    text = (course / "collected.csv").read_text(encoding="utf-8")
    (course / "collected.csv").write_text(text, encoding="utf-8-sig")
    collect(capsys, first)
    (course / "collected.csv").write_text(text, encoding="cp1252")
    assert main(["collect", str(first)]) == 1
    assert "collected.csv cannot be read" in capsys.readouterr().err


def test_where_nothing_is_taken_no_success_is_told(course, capsys):
    assert "Matched: 0 students" in collect(capsys, write(course / "empty.zip", archive({})), expect=1)
    out = collect(capsys, write(course / "class.tar.gz", b"\x1f\x8b"), expect=1)
    assert "class.tar.gz is packed in a way that is not read: unpack it" in out


@pytest.mark.parametrize(
    "name",
    [
        *(".hidden/sums.ipynb", "..dots/sums.ipynb", "../../up/sums.ipynb", "~me/sums.ipynb"),
        *("bob/.sums.ipynb", "bob/~sums.ipynb", "..bob_13_25_sums.ipynb"),
    ],
)
def test_a_notebook_that_is_not_looked_at_is_told_of(course, capsys, name):
    files = {name: notebook(), "ada/.ipynb_checkpoints/sums.ipynb": notebook()}
    files |= {"ada/sums.ipynb": notebook(), "__MACOSX/ada/._sums.ipynb": b"", "ada/.~sums.ipynb": b""}
    out = collect(capsys, write(course / "class.zip", archive(files)), expect=1)
    assert out.count("Unmatched") == 1
    assert "rename it" in out
    assert there(course).keys() == {"ada"}


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        (["sums"], 2, "solutions/sums/sums.ipynb is no notebook: put back a copy"),
        (["collect", "class.zip"], 1, "solutions/sums/sums.ipynb is no notebook: put back a copy"),
        (["release"], 1, "sums is not written, and what was there is as it was"),
        (["export"], 0, "are written"),  # of what is in the gradebook
    ],
)
def test_a_broken_source_is_a_sentence(course, capsys, command, status, words):
    write(course / "class.zip", archive({"ada/sums.ipynb": notebook()}))
    (course / "solutions/sums/sums.ipynb").write_text("{")
    (course / "submitted/ada/sums").mkdir(parents=True, exist_ok=True)
    write(course / "submitted/ada/sums/sums.ipynb", notebook())
    assert main(command) == status
    said = capsys.readouterr()
    assert words in said.out + said.err


def test_a_folder_that_is_not_there_is_a_sentence(course, capsys):
    write(course / "sheet.csv", moodle_worksheet(CLASS))
    command = ["export", "--to", "moodle", "--template", "sheet.csv", "--unit", "total"]
    assert main([*command, "--out", str(course / "none/marks.csv")]) == 1
    assert f"there is no folder {course}/none: make it first" in capsys.readouterr().err
