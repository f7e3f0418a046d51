"""A whole term: collected from two platforms, marked, changed, given back; every number computed anew."""

import csv
import zipfile
from dataclasses import replace

import nbformat
import pytest
from bs4 import BeautifulSoup
from markupsafe import escape
from nbgrader.apps import ExportApp
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
from quick_course import RIGHT, UNIT, WRONG, answered, gradebook_of, new_course, source

from attncourse.grading import __main__ as grading
from attncourse.grading.__main__ import main
from attncourse.grading.autograding import outcome
from attncourse.grading.feedback import fingerprint
from attncourse.grading.job import Job, Page
from attncourse.grading.rules import Rules
from attncourse.grading.term import Term, UnitResults, difficulty

pytestmark = pytest.mark.slow

NUMBER = 40
IDS = ids(NUMBER)
CLASS = list(zip(IDS, people(NUMBER), strict=True))
MORE, LAST = "more", "zeros"
UNITS = (MORE, UNIT, LAST)  # as an alphabet has them
POINTS = {UNIT: 9, MORE: 9, LAST: 12}
WEIGHTS = {UNIT: 1, MORE: 3, LAST: 2}

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
drop_lowest = 1

[weights]
{UNIT} = 1
{MORE} = 3
{LAST} = 2

[due]
{UNIT} = 2026-03-01T12:00:00
{MORE} = 2026-03-08T12:00:00

[late]
grace = 30
per_day = 10
floor = 50

[extensions]
student-03 = {{ {UNIT} = 2 }}
"""


def of_unit(notebook, unit):
    """The same exercise under other names: another unit."""
    for cell in notebook.cells if unit != UNIT else ():
        cell.metadata.nbgrader.grade_id += f"_{unit}"
        cell.id += f"-{unit}"
    return notebook


def handed_in(answers, unit=UNIT, mark=""):
    return nbformat.writes(of_unit(answered(**answers, essay=f"A number. {mark}"), unit)).encode()


# Who hands in what, and how many hours after it was due. Few have the last unit yet: the term is going on.
HANDED_IN = {
    UNIT: {one: (RIGHT if number % 3 else WRONG) for number, one in enumerate(IDS[:22])},
    MORE: {one: (WRONG if number % 2 else RIGHT) for number, one in enumerate(IDS[10:24])},
    LAST: {one: (RIGHT if number % 2 else WRONG) for number, one in enumerate(IDS[::7])},
}
HOURS = {one: {1: 25, 3: 0.4, 4: 24 * 9}.get(number % 10, -1) for number, one in enumerate(IDS)}
HOURS[IDS[2]] = 25  # who has an extension
LATE_ON_CANVAS = {IDS[12]: 30, IDS[20]: 3}
ESSAYS = {IDS[0]: 4.0, IDS[1]: 3.5, IDS[2]: 1.0, IDS[21]: 2.0}


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """The folder of a course at the end of its term."""
    folder = new_course(tmp_path_factory.mktemp("term"), CONFIG)
    (folder / "course.toml").write_text(RULES)
    for unit in (MORE, LAST):
        write_source(folder, of_unit(source(), unit), unit)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(grading, "on_this_machine", each_once)
        (folder / "sheet.csv").write_bytes(moodle_worksheet(CLASS))
        moodle(folder, UNIT, "--roster", "sheet.csv")
        canvas(folder)
        moodle(folder, LAST)
        assert main([]) == 0
        by_hand(folder)
        # One hands in again, right now; and a task of the last unit changes its points.
        files = {moodle_name(1, CLASS[0][1]) + "again.ipynb": handed_in(RIGHT, mark="again")}
        times = dict.fromkeys(files, (2026, 3, 1, 11, 0, 0))
        (folder / "again.zip").write_bytes(archive(files, times))
        assert main(["collect", "again.zip", "--unit", UNIT]) == 0
        changed = of_unit(source(), LAST)
        changed.cells[1].metadata.nbgrader.points = 5
        write_source(folder, changed, LAST)
        assert main([]) == 0
        yield folder


def each_once(work, *_):
    """Grades in this process, and what two have handed in alike, at the same time, only once; pages, too."""
    known = {}
    for submission, unit, job in work:
        asked = job if isinstance(job, Job) else replace(job, student="someone", name=("Some", "One"))
        key = (unit.name, job.digest if isinstance(job, Job) else fingerprint(asked))
        if key not in known:
            known[key] = outcome(unit, asked)
        result = known[key]
        if isinstance(result, Page):
            result = Page(result.html.replace(b"Some One", escape(" ".join(job.name)).encode()))
        yield submission, unit, job, result


def write_source(folder, notebook, unit):
    (folder / "solutions" / unit).mkdir(exist_ok=True)
    nbformat.write(notebook, folder / "solutions" / unit / f"{unit}.ipynb")


def moodle(folder, unit, *arguments):
    """Moodle's zip, with the times of uploading."""
    files, times = {}, {}
    for number, (id_, person) in enumerate(CLASS, 1):
        if id_ in HANDED_IN[unit]:
            name = moodle_name(number, person) + "homework (1).ipynb"
            files[name] = handed_in(HANDED_IN[unit][id_], unit)
            days, minutes = divmod(12 * 60 + round(HOURS[id_] * 60), 24 * 60)
            times[name] = (2026, 3, 1 + days, minutes // 60, minutes % 60, 0)
    (folder / f"{unit}.zip").write_bytes(archive(files, times))
    assert main(["collect", f"{unit}.zip", "--unit", unit, *arguments]) == 0


def canvas(folder):
    """Canvas's zip, with two attempts of everyone's; it says who was late, but not when."""
    files = {}
    for number, (id_, person) in enumerate(CLASS, 1):
        if id_ in HANDED_IN[MORE]:
            late = id_ in LATE_ON_CANVAS
            first, last = (canvas_name(number, person, name, late=late) for name in ("x.ipynb", "x-1.ipynb"))
            files[first] = handed_in({}, MORE, "draft")
            files[last] = handed_in(HANDED_IN[MORE][id_], MORE)
    (folder / "canvas.zip").write_bytes(archive(files))
    (folder / "canvas.csv").write_bytes(canvas_gradebook(CLASS, ["Sums (1)", "More (2)"], [9, 20]))
    assert main(["collect", "canvas.zip", "--roster", "canvas.csv"]) == 0
    for id_, hours in LATE_ON_CANVAS.items():
        days, hour = divmod(12 + hours, 24)
        path = folder / f"submitted/{id_}/{MORE}/timestamp.txt"
        path.write_text(f"2026-03-{8 + days:02} {hour:02}:00:00 UTC\n")


def by_hand(folder):
    with gradebook_of(folder) as gradebook:
        for student, points in ESSAYS.items():
            gradebook.find_grade("essay", UNIT, UNIT, student).manual_score = points
        gradebook.db.commit()


def expected(unit, id_):
    """A mark, computed from what was handed in and the rules, by hand."""
    if id_ not in HANDED_IN[unit]:
        return None
    is_right = HANDED_IN[unit][id_] is RIGHT
    if unit == LAST:  # no due date; the first task counts 5 since it was changed, the second 3
        return 8.0 if is_right else 5.0
    if (unit, id_) == (UNIT, IDS[0]):
        return 5.0  # handed in again, another essay: the mark by hand was for the first
    mark = 5.0 if is_right else 2.0
    if unit == MORE:
        return mark * {30: 0.8, 3: 0.9}.get(LATE_ON_CANVAS.get(id_), 1)
    mark += ESSAYS.get(id_, 0)
    if id_ == IDS[2]:
        return mark  # two days more
    # 25 hours are two days; of nine days half of it stays; the rest was in time, or in the time of grace.
    return mark * {25: 0.8, 24 * 9: 0.5}.get(HOURS[id_], 1)


def total(id_):
    """The mean by weights without the worst unit; of two that are as bad, the one that counts more goes."""
    shares = {unit: (expected(unit, id_) or 0) / POINTS[unit] for unit in UNITS}
    worst = min(UNITS, key=lambda unit: (shares[unit], -WEIGHTS[unit]))
    kept = [unit for unit in UNITS if unit != worst]
    return 100 * sum(WEIGHTS[one] * shares[one] for one in kept) / sum(WEIGHTS[one] for one in kept)


def rows(path, key):
    with open(path, newline="", encoding="utf-8-sig") as file:
        return {row[key]: row for row in csv.DictReader(file)}


def number(text):
    return float(text) if text else None


def test_the_tables_have_every_mark(term):
    found = rows(term / "total.csv", "student_id")
    assert list(found) == IDS
    with open(term / "grades.csv", newline="") as file:
        scores = {
            (row["assignment"], row["student_id"]): number(row["score"]) for row in csv.DictReader(file)
        }
    for id_, (first, last) in CLASS:
        row = found[id_]
        assert (row["first_name"], row["last_name"]) == (first, last)
        for unit in UNITS:
            assert number(row[unit]) == scores[unit, id_] == pytest.approx(expected(unit, id_)), (unit, id_)
        assert float(row["total"]) == pytest.approx(total(id_), abs=0.006), id_


def test_nbgraders_own_export_writes_the_same_table(term, monkeypatch):
    monkeypatch.chdir(term)
    before = (term / "grades.csv").read_bytes()
    (term / "grades.csv").unlink()
    app = ExportApp()
    app.initialize([])
    app.start()
    assert (term / "grades.csv").read_bytes() == before


def test_platforms_get_their_own_tables_back(term, monkeypatch):
    monkeypatch.chdir(term)
    assert main(["export", "--to", "moodle", "--template", "sheet.csv", "--unit", UNIT]) == 0
    before, after = (rows(name, "Email address") for name in ("sheet.csv", f"{UNIT}_moodle.csv"))
    assert list(before) == list(after)
    for id_ in IDS:
        old, new = before[f"{id_}@example.org"], after[f"{id_}@example.org"]
        mark = expected(UNIT, id_)
        grade = number(new.pop("Grade"))
        assert grade == (None if mark is None else pytest.approx(mark * 100 / 9, abs=0.006))
        assert new == {name: value for name, value in old.items() if name != "Grade"}
    assert main(["export", "--to", "canvas", "--template", "canvas.csv", "--unit", MORE]) == 0
    before, after = ([*rows(name, "ID").values()] for name in ("canvas.csv", f"{MORE}_canvas.csv"))
    for old, new in zip(before, after, strict=True):
        id_ = new["SIS Login ID"]
        mark = expected(MORE, id_) if id_ else None
        right = old["More (2)"] if mark is None else pytest.approx(mark * 20 / 9, abs=0.006)
        assert (new["More (2)"] if mark is None else float(new["More (2)"])) == right
        assert {**new, "More (2)": ""} == {**old, "More (2)": ""}
    (term / "bright.csv").write_bytes(brightspace_grades(CLASS, ["Zeros Points Grade <Numeric MaxPoints:6>"]))
    arguments = ["--to", "brightspace", "--template", "bright.csv", "--unit", LAST, "--out", "back.csv"]
    assert main(["export", *arguments]) == 0
    for row in rows("back.csv", "Username").values():
        mark = expected(LAST, row["Username"].removeprefix("#"))
        assert number(row["Zeros Points Grade <Numeric MaxPoints:6>"]) == (None if mark is None else mark / 2)
        assert row["End-of-Line Indicator"] == "#"
    arguments = ["--to", "canvas", "--template", "canvas.csv", "--unit", "total", "--column", "Sums (1)"]
    assert main(["export", *arguments]) == 0
    for row in rows("total_canvas.csv", "ID").values():
        if row["SIS Login ID"]:
            assert float(row["Sums (1)"]) == pytest.approx(total(row["SIS Login ID"]) * 9 / 100, abs=0.006)


def test_feedback_goes_back_under_the_platforms_names(term, monkeypatch, tmp_path):
    monkeypatch.chdir(term)
    for unit in (UNIT, LAST):
        arguments = ["--feedback", "--to", "moodle", "--template", "sheet.csv", "--unit", unit]
        assert main(["export", *arguments]) == 0
        with zipfile.ZipFile(f"{unit}_moodle.zip") as made:
            made.extractall(tmp_path / unit)
        pages = {str(path.relative_to(tmp_path / unit)): path for path in tmp_path.glob(f"{unit}/*/*")}
        assert len(pages) == len(HANDED_IN[unit])
        for number, (id_, (first, last)) in enumerate(CLASS, 1):
            if id_ in HANDED_IN[unit]:
                page = pages[f"{first} {last}_{9000 + number}_assignfeedback_file_/{unit}.html"].read_text()
                text = " ".join(BeautifulSoup(page, "html.parser").main.text.split())
                mark, most = round(expected(unit, id_), 2), POINTS[unit]
                assert f"This autumn {unit} {first} {last}: {mark:g} of {most} points" in text
    assert main(["export", "--feedback", "--to", "canvas", "--unit", MORE]) == 0
    with zipfile.ZipFile(f"{MORE}_canvas.zip") as made:
        names = set(made.namelist())
    assert names == {
        canvas_name(number, person, "x-1.html", late=id_ in LATE_ON_CANVAS)
        for number, (id_, person) in enumerate(CLASS, 1)
        if id_ in HANDED_IN[MORE]
    }


def test_the_term_report_has_every_mark(term):
    page = BeautifulSoup((term / "reports" / "index.html").read_text(), "html.parser")
    table = page.find(attrs={"aria-label": "Everyone's marks"})
    found = {row.th.text.split()[0]: [cell.text for cell in row("td")] for row in table.tbody("tr")}
    assert len(found) == NUMBER
    for id_ in IDS:
        marks = [expected(unit, id_) for unit in UNITS]
        percents = [
            "absent" if mark is None else f"{100 * mark / POINTS[unit]:.0f}"
            for unit, mark in zip(UNITS, marks, strict=True)
        ]
        assert found[id_][:4] == [*percents, f"{total(id_):.1f}"], id_
    for unit in UNITS:
        assert f"{unit}: {', '.join(one for one in IDS if one not in HANDED_IN[unit])}" in page.text


def test_alike_answers_are_shown_and_no_mark_is_changed(term, monkeypatch, capsys):
    monkeypatch.chdir(term)
    before = (term / "grades.csv").read_bytes()
    assert main(["similar", UNIT]) == 0
    # All of them are what the course knows, or what half of the class has written.
    assert "reports/similar.html: 0 pairs to look at in sums." in capsys.readouterr().out
    assert "22 submissions were compared" in (term / "reports" / "similar.html").read_text()
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


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
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
        ("\ufeff[due]\nsums = 0001-01-01T00:00:00Z", "course.toml, line 2: sums is datetime"),
        ("[extensions]\nada = { sums = 9e11 }", "course.toml, line 2: ada has 900000000000.0 more days"),
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
