"""Feedback pages, whatever a student wrote."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from traitlets.config import Config

from attncourse import checks
from attncourse.grading.feedback import FeedbackExporter, titles
from attncourse.grading.repair import VERDICT

ORDINARY = "# A title\n\n$x$ and *more*"
# Each of these is looked for to the end of the text: for minutes, and hours if there are twice as many.
ENDLESS = "$$" + r"\begin{a}" * 40_000


def page(*sources):
    exporter = FeedbackExporter(config=Config({"FeedbackExporter": {"markdown_timeout": 1}}))
    return exporter.from_notebook_node(new_notebook(cells=[new_markdown_cell(one) for one in sources]))[0]


def test_markdown_that_takes_too_long_is_shown_as_it_was_written():
    shown = page(ORDINARY, ENDLESS, ORDINARY)
    assert shown.count("<em>more</em>") == 1
    assert f"<pre>{ENDLESS}</pre>" in shown
    assert f"<pre>{ORDINARY}</pre>" in shown


def test_the_next_page_has_its_own_time():
    page(ENDLESS)
    assert "<em>more</em>" in page(ORDINARY)


BOOK = "https://example.org/attention"


def graded_cell(name, *outputs, points=2.0, score=0.0):
    marks = {
        "grade_id": name,
        "grade": True,
        "solution": False,
        "locked": True,
        "points": points,
        "score": score,
    }
    return new_code_cell("checks", metadata={"nbgrader": marks}, outputs=list(outputs))


def answer_cell(source, comment=None):
    marks = {"grade_id": "add", "grade": False, "solution": True, "locked": False, "comment": comment}
    return new_code_cell(source, metadata={"nbgrader": marks})


MESSAGE = "add: not right yet.\nRead: book/sums.html#adding\n<script>alert(1)</script>"


def whole_page(book="", outside=True, units=()):
    """A page about a wrong answer, a right one and an essay that nobody has read yet."""
    failed = new_output("error", ename="CheckFailed", evalue=MESSAGE, traceback=[f"\x1b[1m{MESSAGE}\x1b[0m"])
    wrong = checks.attention.verdict(lambda query, key, value: query @ key.mT @ value)
    drawn = new_output("display_data", data={VERDICT: wrong.html()})
    notebook = new_notebook(
        cells=[
            new_markdown_cell(
                "## A title of the student's own\n\n$x$ [Read](../../book/sums.md#adding) `" + 99 * "x" + "`"
            ),
            answer_cell("def add(a, b):\n    return '<b>'", "Nearly."),
            graded_cell("check_add", failed),
            new_code_cell("print(art)", outputs=[new_output("stream", text="\x1b]0;owned\x07 \x9b2J a\tb")]),
            new_code_cell("plot()", outputs=[new_output("display_data", data={"image/png": "QUJD"})]),
            graded_cell("check_double", new_output("stream", text="in words"), drawn, score=2.0),
            graded_cell("essay"),
        ],
        metadata={"attncourse": {"checks": {"check_double": {"outside": outside}}}},
    )
    settings = {"book": book, "title": "This autumn", "units": list(units)}
    exporter = FeedbackExporter(config=Config({"FeedbackExporter": settings}))
    names = {"notebook": "sums", "name": "Student One", "score": 1.5, "max_score": 6.0, "late_penalty": 0.5}
    names["marked"] = {"essay": False}
    names["titles"] = {"check_add": "Task 1: The sum"}
    return exporter.from_notebook_node(notebook, {"nbgrader": names})[0]


def test_a_page_that_is_printed_in_a_terminal_is_not_obeyed():
    page = whole_page()
    assert not [letter for letter in page if not letter.isprintable() and letter not in "\n\t"]
    assert "\\x1b]0;owned\\x07 \\x9b2J a\tb" in page


def test_a_page_says_who_what_and_how_much():
    page = BeautifulSoup(whole_page(), "html.parser")
    text = " ".join(page.main.text.split())
    assert "This autumn sums Student One: 1.5 of 6 points, after 0.5 taken off for being late." in text
    rows = [[" ".join(cell.text.split()) for cell in row.find_all(["th", "td"])] for row in page.tbody("tr")]
    assert rows == [
        ["Task 1: The sum add", "0 of 2", "not right yet"],
        ["double", "2 of 2", "right"],
        ["essay", "0 of 2", "not marked yet"],
    ]
    add = page.find(id="add")
    assert "Comment: Nearly." in add.text
    assert "\x1b" not in add.text
    assert add.find("pre", class_="message").text == MESSAGE
    assert page.find("img")["src"] == "data:image/png;base64,QUJD"
    assert not page.find_all("script")


def test_tasks_have_the_titles_of_the_courses_own_notebook():
    texts = ["# Sums", "## Task 1: The `sum`\n\nMore.", "No heading.", "## Task 2"]
    cells = [*map(new_markdown_cell, texts[:3]), graded_cell("check_add"), graded_cell("check_more")]
    cells += [new_markdown_cell(texts[3]), answer_cell("pass"), graded_cell("essay")]
    assert titles(new_notebook(cells=cells)) == {"check_add": "Task 1: The sum", "essay": "Task 2"}


@pytest.mark.parametrize(
    ("book", "address"), [("", "book/sums.html#adding"), (f"{BOOK}/", f"{BOOK}/book/sums.html#adding")]
)
def test_passages_are_links(book, address):
    page = BeautifulSoup(whole_page(book), "html.parser")
    links = [
        link["href"]
        for link in page.find(id="add").find_all("a")
        if "anchor-link" not in link.get("class", [])
    ]
    assert links == [address, address]
    assert ("beside the book" in page.text) == (not book)


def test_only_what_was_judged_outside_is_shown_as_it_is():
    ours, words = (BeautifulSoup(whole_page(outside=outside), "html.parser") for outside in (True, False))
    assert "✗" in ours.select_one("#double .verdict").text
    assert "in words" not in ours.find(id="double").text  # not the same twice
    assert "✗" not in words.text
    assert "in words" in words.find(id="double").text


def test_passages_in_a_verdict_lead_to_the_book():
    page = BeautifulSoup(whole_page(BOOK), "html.parser")
    links = [link["href"] for link in page.select(".verdict a")]
    assert links
    assert all(link.startswith(f"{BOOK}/book/attention_operator.html#") for link in links)


def test_no_link_leads_to_a_unit_that_is_not_taught():
    page = BeautifulSoup(whole_page(BOOK, units=["masking"]), "html.parser")
    assert not page.select(".verdict a")
    assert "Read: The attention operator, “" in page.select_one(".verdict").text
    assert page.find("a", href=f"{BOOK}/book/sums.html#adding")  # of no unit
    other = BeautifulSoup(whole_page(BOOK, units=["attention_operator"]), "html.parser")
    assert other.select(".verdict a")


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_a_page_needs_nothing_and_can_be_read_by_everyone(browser, tmp_path, width, scheme):
    path = tmp_path / "sums.html"
    path.write_text(whole_page(), encoding="utf-8")
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
