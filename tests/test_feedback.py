"""Feedback pages, whatever a student wrote."""

from nbformat.v4 import new_markdown_cell, new_notebook
from traitlets.config import Config

from attncourse.grading.feedback import FeedbackExporter

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
