"""The class report: it counts right, believes no text, and can be read by everyone."""

import csv
import io

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

from attncourse import checks
from attncourse.grading.report import Entry, Report

TASKS = checks.tasks("masking")[:3]
POINTS = {f"check_{task.name}": 2.0 + number for number, task in enumerate(TASKS)}
FIRST, SECOND, THIRD = POINTS
LABELS = [mistake.label for mistake in TASKS[0].single_mistakes]
EVIL = "<script>alert(1)</script><img src=http://example.org/x>"


def entry(student, marks, mistakes=(), inside=(), remarks=(), isolation="zygote"):
    about = {
        cell: {
            "task": cell.removeprefix("check_"),
            "outside": cell not in inside,
            "passed": bool(mark),
            "mistakes": [dict(mistakes)[cell]] if cell in dict(mistakes) else [],
            "misconception": dict(mistakes).get(cell),
            "words": "",
        }
        for cell, mark in zip(POINTS, marks, strict=True)
    }
    given = dict(zip(POINTS, marks, strict=True))
    return Entry(student, given, {"checks": about, "isolation": isolation}, remarks)


@pytest.fixture
def report():
    return Report(
        "masking",
        POINTS,
        [
            entry("ada", [2.0, 3.0, 4.0]),
            entry("ben", [0.0, 3.0, 4.0], {FIRST: LABELS[1]}),
            entry("cem", [0.0, 0.0, None], {FIRST: LABELS[1]}, remarks=["no mark for " + THIRD]),
            entry("dia", [0.0, 3.0, 1.5], {FIRST: LABELS[0]}, inside=[SECOND], isolation="process"),
            entry(EVIL, [0.0, 0.0, 0.0], remarks=[EVIL]),
            Entry("eve", remarks=["is not a notebook: it is not JSON"]),
        ],
    )


@pytest.fixture
def page(report):
    return BeautifulSoup(report.html(), "html.parser")


def rows(page, caption_or_label):
    """The cells of the table with this caption, or in the region with this label, as text."""
    for table in page.find_all("table"):
        name = table.caption.text if table.caption else table.parent["aria-label"]
        if caption_or_label in name:
            lines = table.tbody.find_all("tr")
            return [[" ".join(cell.text.split()) for cell in line.find_all(["th", "td"])] for line in lines]
    raise AssertionError(f"no table {caption_or_label}")


def test_the_marks_are_counted(report, page):
    assert report.median == 4.5
    counts = {name: int(count) for name, count, _ in rows(page, "How many submissions")}
    assert sum(counts.values()) == 5
    assert {name for name, count in counts.items() if count} == {"0", "4", "7", "9"}
    assert counts["0"] == 2
    assert "6 submissions, 5 graded. The median is 4.5 of 9 points." in " ".join(page.text.split())


@pytest.mark.parametrize("most", [1, 9, 11, 12, 24, 27, 100])
def test_every_sum_is_in_one_step_of_the_distribution(most):
    sums = [0, most / 3, most / 2, most - 0.5, most, most]
    report = Report("masking", {"check": float(most)}, [Entry("one", {"check": mark}) for mark in sums])
    steps = report.distribution()
    assert sum(count for _, count in steps) == len(sums)
    assert len(steps) <= 13
    assert steps[-1][1] >= 2


def test_tasks_tell_what_was_right_and_what_was_wrong(page):
    first, second, third = rows(page, "Tasks")
    assert first[:3] == [TASKS[0].name, "2", "20%"]
    assert first[-1].startswith(f"2: {LABELS[1]} (book/masking.html#")
    assert f"1: {LABELS[0]}" in first[-1]
    assert first[-1].endswith("1: not recognised, or not written")
    assert second[2] == "60%"
    assert third[4] == f"{(4 + 4 + 1.5) / 5:.2f}"


def test_a_perfect_class_has_no_wrong_answers():
    page = BeautifulSoup(Report("masking", POINTS, [entry("ada", [2.0, 3.0, 4.0])]).html(), "html.parser")
    assert [row[-1] for row in rows(page, "Tasks")] == ["none"] * 3
    assert "All graded cells were judged outside" in page.text
    assert page.find(id="look").find_next("p").text == "Nothing."


def test_what_was_not_judged_outside_is_named(page):
    text = " ".join(page.text.split())
    assert "Isolation of the students' code: process (1), zygote (4)." in text
    assert f"what came of them was believed: {TASKS[1].name} (1)." in text


def test_everyone_is_there_also_who_could_not_be_graded(page):
    table = {row[0]: row[1:] for row in rows(page, "Everyone")}
    assert table["ada"] == ["9", "2", "3", "4"]
    assert table["cem"] == ["0", "0", "0", "none"]
    assert table["eve"] == ["not graded"]
    names = {one.text: [dd.text for dd in one.find_next_siblings("dd")][:1] for one in page.find_all("dt")}
    assert names["eve, not graded"] == ["is not a notebook: it is not JSON"]


def test_a_class_of_which_nothing_could_be_graded():
    report = Report("masking", POINTS, [Entry("eve", remarks=["is empty"])])
    assert "is empty" in BeautifulSoup(report.html(), "html.parser").text
    assert len(list(csv.reader(io.StringIO(report.csv())))) == 1 + len(POINTS)


def test_what_students_write_stays_text(page):
    assert EVIL in page.text
    assert not page.find_all(["script", "img"])


def test_the_table_has_a_line_for_each_submission_and_task(report):
    lines = list(csv.DictReader(io.StringIO(report.csv())))
    assert len(lines) == 6 * 3
    ben = next(line for line in lines if line["student"] == "ben" and line["task"] == TASKS[0].name)
    assert (ben["mark"], ben["points"], ben["misconception"]) == ("0.0", "2.0", LABELS[1])
    assert ben["judged_outside"] == "True"
    assert all(line["mark"] == "" for line in lines if line["student"] == "eve")


def test_written_files_replace_older_ones_and_leave_no_others(report, tmp_path):
    for _ in range(2):
        written = report.write(tmp_path / "reports")
    assert sorted(path.name for path in written) == ["masking.csv", "masking.html"]
    assert sorted((tmp_path / "reports").iterdir()) == sorted(written)
    assert written[0].read_text(encoding="utf-8") == report.html()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_needs_nothing_and_can_be_read_by_everyone(report, browser, tmp_path, width, scheme):
    html = report.write(tmp_path)[0]
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(html.as_uri())
    assert asked == [html.as_uri()]
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
