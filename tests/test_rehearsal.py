"""A whole term: collected from two platforms, marked, changed, given back; every number computed anew."""

import csv
import zipfile

import nbformat
import pytest
from bs4 import BeautifulSoup
from platforms import (
    archive,
    brightspace_grades,
    canvas_gradebook,
    canvas_name,
    ids,
    moodle_name,
    moodle_worksheet,
    people,
)
from quick_course import RIGHT, UNIT, WRONG, answered, gradebook_of, new_course, one_by_one, source

from attncourse.grading import __main__ as grading
from attncourse.grading.__main__ import main
from attncourse.grading.rules import Rules
from attncourse.grading.term import Term, UnitResults, difficulty

NUMBER = 8
IDS = ids(NUMBER)
CLASS = list(zip(IDS, people(NUMBER), strict=True))
SECOND = "more"

CONFIG = """
from attncourse.grading import configure
configure(c)
c.Autograde.autograde_preprocessors = [
    "quick_course.InThisProcess" if one.endswith("Execute") else one
    for one in c.Autograde.autograde_preprocessors
]
"""

RULES = f"""
title = "This autumn"
timezone = "UTC"
drop_lowest = 0

[weights]
{UNIT} = 1
{SECOND} = 3

[due]
{UNIT} = 2026-03-01T12:00:00

[late]
grace = 30
per_day = 10
floor = 50

[extensions]
student-03 = {{ {UNIT} = 2 }}
"""


def second(notebook):
    """The same exercise under other names: another unit."""
    for cell in notebook.cells:
        cell.metadata.nbgrader.grade_id += "_2"
        cell.id += "-2"
    return notebook


def handed_in(answers, unit=UNIT, mark=""):
    notebook = answered(**answers, essay=f"A number. {mark}")
    return nbformat.writes(second(notebook) if unit == SECOND else notebook).encode()


# Who hands in what, and for the first unit how many hours after it was due.
FIRST = {one: (RIGHT if number % 3 else WRONG) for number, one in enumerate(IDS[:7])}
HOURS = {IDS[1]: 25, IDS[2]: 25, IDS[3]: 0.4, IDS[4]: 24 * 9}
LATER = {one: (WRONG if number % 2 else RIGHT) for number, one in enumerate(IDS[:6])}
ESSAYS = {IDS[0]: 4.0, IDS[1]: 3.5, IDS[2]: 1.0}


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """The folder of a course at the end of its term."""
    folder = new_course(tmp_path_factory.mktemp("term"), CONFIG)
    (folder / "course.toml").write_text(RULES)
    (folder / "solutions" / SECOND).mkdir()
    nbformat.write(second(source()), folder / "solutions" / SECOND / f"{SECOND}.ipynb")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(grading, "on_this_machine", one_by_one)
        moodle(folder)
        canvas(folder)
        assert main([]) == 0
        by_hand(folder)
        # One hands in again, right now; and a task of the second unit changes its points.
        files = {moodle_name(1, CLASS[0][1]) + "again.ipynb": handed_in(RIGHT, mark="again")}
        times = dict.fromkeys(files, (2026, 3, 1, 11, 0, 0))
        (folder / "again.zip").write_bytes(archive(files, times))
        assert main(["collect", "again.zip", "--unit", UNIT]) == 0
        changed = second(source())
        changed.cells[1].metadata.nbgrader.points = 5
        nbformat.write(changed, folder / "solutions" / SECOND / f"{SECOND}.ipynb")
        assert main([]) == 0
        yield folder


def moodle(folder):
    files, times = {}, {}
    for number, id_ in enumerate(FIRST, 1):
        name = moodle_name(number, CLASS[number - 1][1]) + "homework (1).ipynb"
        files[name] = handed_in(FIRST[id_])
        minutes = round(HOURS.get(id_, -1) * 60)
        days, rest = divmod(12 * 60 + minutes, 24 * 60)
        times[name] = (2026, 3, 1 + days, rest // 60, rest % 60, 0)
    (folder / "moodle.zip").write_bytes(archive(files, times))
    (folder / "sheet.csv").write_bytes(moodle_worksheet(CLASS))
    assert main(["collect", "moodle.zip", "--unit", UNIT, "--roster", "sheet.csv"]) == 0


def canvas(folder):
    files = {}
    for number, id_ in enumerate(LATER, 1):
        first, last = (canvas_name(number, CLASS[number - 1][1], name) for name in ("x.ipynb", "x-1.ipynb"))
        files[first], files[last] = handed_in({}, SECOND, "draft"), handed_in(LATER[id_], SECOND)
    (folder / "canvas.zip").write_bytes(archive(files))
    (folder / "canvas.csv").write_bytes(canvas_gradebook(CLASS, ["Sums (1)", "More (2)"], [9, 20]))
    assert main(["collect", "canvas.zip", "--roster", "canvas.csv"]) == 0


def by_hand(folder):
    with gradebook_of(folder) as gradebook:
        for student, points in ESSAYS.items():
            gradebook.find_grade("essay", UNIT, UNIT, student).manual_score = points
        gradebook.db.commit()


def first_mark(id_):
    """A mark of the first unit, computed from what was handed in and the rules, by hand."""
    if id_ not in FIRST:
        return None
    automatic = {True: 5.0, False: 2.0}[FIRST[id_] is RIGHT]
    if id_ == IDS[0]:
        return 5.0  # handed in again, another essay: the mark by hand was for the first
    whole = automatic + ESSAYS.get(id_, 0)
    if id_ == IDS[1]:
        return whole * 0.8  # 25 hours are two days
    if id_ == IDS[4]:
        return whole * 0.5  # nine days, and half of it stays
    return whole  # in time, in the time of grace, or with an extension


def second_mark(id_):
    """A right answer to the first task counts 5 since it was changed, to the second 3."""
    return None if id_ not in LATER else 8.0 if LATER[id_] is RIGHT else 5.0


def total(id_):
    return (first_mark(id_) or 0) / 9 * 25 + (second_mark(id_) or 0) / 12 * 75


def rows(path, key):
    with open(path, newline="", encoding="utf-8-sig") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def number(text):
    return float(text) if text else None


def test_the_tables_have_every_mark(term):
    found = rows(term / "total.csv", "student_id")
    assert list(found) == IDS
    for id_, (first, last) in CLASS:
        row = found[id_]
        assert (row["first_name"], row["last_name"]) == (first, last)
        assert number(row[UNIT]) == (None if first_mark(id_) is None else pytest.approx(first_mark(id_)))
        assert number(row[SECOND]) == second_mark(id_)
        assert float(row["total"]) == pytest.approx(total(id_), abs=0.006)
    with open(term / "grades.csv", newline="") as file:
        scores = {
            (row["assignment"], row["student_id"]): number(row["score"]) for row in csv.DictReader(file)
        }
    assert scores[UNIT, IDS[4]] == pytest.approx(first_mark(IDS[4]))


def test_platforms_get_their_own_tables_back(term, monkeypatch):
    monkeypatch.chdir(term)
    assert main(["export", "--to", "moodle", "--template", "sheet.csv", "--unit", UNIT]) == 0
    before, after = (rows(name, "Email address") for name in ("sheet.csv", f"{UNIT}_moodle.csv"))
    for id_ in IDS:
        old, new = before[f"{id_}@example.org"], after[f"{id_}@example.org"]
        mark = first_mark(id_)
        grade = number(new.pop("Grade"))
        assert grade == (None if mark is None else pytest.approx(mark * 100 / 9, abs=0.006))
        assert new == {name: value for name, value in old.items() if name != "Grade"}
    assert main(["export", "--to", "canvas", "--template", "canvas.csv", "--unit", SECOND]) == 0
    before, after = ([*rows(name, "ID").values()] for name in ("canvas.csv", f"{SECOND}_canvas.csv"))
    for old, new in zip(before, after, strict=True):
        mark = second_mark(new["SIS Login ID"])
        expected = old["More (2)"] if mark is None else pytest.approx(mark * 20 / 12, abs=0.006)
        assert (new["More (2)"] if mark is None else float(new["More (2)"])) == expected
        assert {**new, "More (2)": ""} == {**old, "More (2)": ""}
    (term / "bright.csv").write_bytes(brightspace_grades(CLASS, ["More Points Grade <Numeric MaxPoints:6>"]))
    arguments = ["--to", "brightspace", "--template", "bright.csv", "--unit", SECOND, "--out", "back.csv"]
    assert main(["export", *arguments]) == 0
    for row in rows("back.csv", "Username").values():
        mark = second_mark(row["Username"].removeprefix("#"))
        assert number(row["More Points Grade <Numeric MaxPoints:6>"]) == (None if mark is None else mark / 2)
        assert row["End-of-Line Indicator"] == "#"
    arguments = ["--to", "canvas", "--template", "canvas.csv", "--unit", "total", "--column", "Sums (1)"]
    assert main(["export", *arguments]) == 0
    for row in rows("total_canvas.csv", "ID").values():
        if row["SIS Login ID"]:
            assert float(row["Sums (1)"]) == pytest.approx(total(row["SIS Login ID"]) * 9 / 100, abs=0.006)


def test_feedback_goes_back_under_the_platforms_names(term, monkeypatch):
    monkeypatch.chdir(term)
    assert main(["export", "--feedback", "--to", "moodle", "--template", "sheet.csv", "--unit", UNIT]) == 0
    with zipfile.ZipFile(f"{UNIT}_moodle.zip") as made:
        pages = {name: made.read(name).decode() for name in made.namelist()}
    assert set(pages) == {
        f"{first} {last}_{9000 + number}_assignfeedback_file_/{UNIT}.html"
        for number, (id_, (first, last)) in enumerate(CLASS, 1)
        if id_ in FIRST
    }
    for number, (id_, (first, last)) in enumerate(CLASS, 1):
        if id_ in FIRST:
            page = pages[f"{first} {last}_{9000 + number}_assignfeedback_file_/{UNIT}.html"]
            text = " ".join(BeautifulSoup(page, "html.parser").main.text.split())
            assert f"This autumn {UNIT} {first} {last}: {round(first_mark(id_), 2):g} of 9 points" in text
    assert main(["export", "--feedback", "--to", "canvas", "--unit", SECOND]) == 0
    with zipfile.ZipFile(f"{SECOND}_canvas.zip") as made:
        names = set(made.namelist())
    assert names == {
        canvas_name(number, CLASS[number - 1][1], "x-1.html") for number in range(1, len(LATER) + 1)
    }


def test_the_term_report_has_every_mark(term):
    page = BeautifulSoup((term / "reports" / "index.html").read_text(), "html.parser")
    table = page.find(attrs={"aria-label": "Everyone's marks"})
    found = {row.th.text.split()[0]: [cell.text for cell in row("td")] for row in table.tbody("tr")}
    for id_ in IDS:
        more, sums = second_mark(id_), first_mark(id_)
        marks = [
            "absent" if more is None else f"{100 * more / 12:.0f}",
            "absent" if sums is None else f"{100 * sums / 9:.0f}",
        ]
        assert found[id_][:3] == [*marks, f"{total(id_):.1f}"]
    assert f"{SECOND}: {', '.join(IDS[6:])}" in page.text
    assert f"{UNIT}: {IDS[7]}" in page.text


def test_alike_answers_are_shown_and_no_mark_is_changed(term, monkeypatch, capsys):
    monkeypatch.chdir(term)
    before = (term / "grades.csv").read_bytes()
    assert main(["similar", UNIT]) == 0
    # All of them are what the course knows, or what half of the class has written.
    assert "reports/similar.html: 0 pairs to look at in sums." in capsys.readouterr().out
    assert "7 submissions were compared" in (term / "reports" / "similar.html").read_text()
    assert main(["export"]) == 0
    assert (term / "grades.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--to", "canvas", "--template", "none.csv", "--unit", UNIT], "none.csv cannot be read"),
        (
            ["--to", "canvas", "--template", "sheet.csv", "--unit", UNIT],
            "sheet.csv, line 1: no column is called sums",
        ),
        (
            ["--to", "moodle", "--feedback", "--template", "canvas.csv", "--unit", UNIT],
            "no column is called Identifier",
        ),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(arguments, words, term, monkeypatch, capsys):
    monkeypatch.chdir(term)
    before = sorted(term.iterdir())
    assert main(["export", *arguments]) == 1
    assert words in capsys.readouterr().err
    assert sorted(term.iterdir()) == before


# --- its parts ---


def test_totals_by_the_rules():
    points = {"a": 10.0, "b": 20.0, "c": 10.0}
    marks = {"a": 5.0, "b": 20.0, "c": None}
    assert Rules().total(marks, points) == pytest.approx(100 * 25 / 40)
    assert Rules(drop_lowest=1).total(marks, points) == pytest.approx(100 * 25 / 30)
    assert Rules(drop_lowest=9).total(marks, points) == 100
    assert Rules(weights={"a": 1, "b": 1, "c": 2}).total(marks, points) == pytest.approx(100 * 1.5 / 4)
    assert Rules().total({}, {}) is None


def test_difficulty_is_that_of_the_textbook():
    marks = {str(n): {"easy": 1.0, "luck": float(n % 2), "good": float(n > 3)} for n in range(8)}
    unit = UnitResults("u", {"easy": 1.0, "luck": 1.0, "good": 2.0}, marks, {str(n): 1.0 for n in range(8)})
    assert difficulty(unit, "easy") == (1.0, None)
    assert difficulty(unit, "good") == (0.25, pytest.approx(0.0))
    few = UnitResults("u", {"easy": 1.0}, {"one": {"easy": 1.0}}, {"one": 1.0})
    assert difficulty(few, "easy") == (1.0, None)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_term_report_can_be_read_by_everyone(browser, tmp_path, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    marks = {one: {"check_a": float(n % 3), "check_b": float(n % 2)} for n, one in enumerate(IDS)}
    scores = {one: sum(own.values()) for one, own in marks.items()}
    units = [UnitResults(f"unit_{n}", {"check_a": 2.0, "check_b": 1.0}, marks, scores) for n in range(3)]
    evil = "<script>alert(1)</script>"
    path = Term({**dict.fromkeys(IDS, "A Name"), "late": evil}, units, Rules(title="This autumn")).write(
        tmp_path
    )
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("title = ", "course.toml is not TOML: Invalid value (at end of document)"),
        ("\nhouse = 1", "course.toml, line 2: house is not one of title, authors"),
        (
            "[late]\nper_day = -1",
            "course.toml, line 2: per_day is -1: expected a number that is not negative",
        ),
        (
            'units = ["sums", "summs"]',
            "course.toml, line 1: units names the unit 'summs': there are ['sums']",
        ),
        ("[due]\nsums = 3", "course.toml, line 2: sums is 3: expected a date and time"),
        ('timezone = "Mars"', "course.toml, line 1: timezone is 'Mars': expected one such as Europe/Berlin"),
    ],
)
def test_rules_that_cannot_be_are_a_sentence(text, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(new_course(tmp_path))
    (tmp_path / "course.toml").write_text(text)
    with pytest.raises(SystemExit) as stop:
        main(["export"])
    assert stop.value.code == 2
    assert words in " ".join(capsys.readouterr().err.split())
