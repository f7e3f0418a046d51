"""Feedback pages: each task with its points, what is wrong with the answer, and where to read about it.

What a student wrote cannot hold them up: some Markdown takes hours to become HTML.
"""

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import nbformat
from jinja2 import Environment, PackageLoader, pass_context
from markupsafe import Markup, escape
from nbconvert.exporters import HTMLExporter
from nbconvert.exporters.exporter import Exporter
from nbgrader.api import Gradebook
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer, List, Unicode

from attncourse.checks.task import registry
from attncourse.grading import harmless, sanitise
from attncourse.grading.alarm import TooLong, at_most
from attncourse.grading.job import PageJob
from attncourse.grading.repair import VERDICT

ANSI = re.compile(r"\x1b\[[0-9;]*m")
CHAPTER = re.compile(r'<a( [^>]*?)href="(?:\.\./)*book/(\w+)\.md(#[\w-]+)?"([^>]*>)(.*?)</a>', re.DOTALL)
PASSAGE = re.compile(r"book/[\w/]+\.html(?:#[\w-]+)?")
LINK = re.compile(rf'<a href="({PASSAGE.pattern})">(.*?)</a>')


def address_of(passage: str, book: str, units: Sequence[str]) -> str:
    """Where a passage of the book is; nowhere, if its chapter is of a unit that is not one of these.

    Parameters
    ----------
    passage : str
        Such as ``book/masking.html#patterns``.
    book : str
        The address of the published book; without it, the passage is beside what names it.
    units : sequence of str
        The units that the book has; without any, all.
    """
    chapter = Path(passage.partition("#")[0]).stem
    if units and chapter not in units and any(task.unit == chapter for task in registry.values()):
        return ""
    return f"{book.rstrip('/')}/{passage}" if book else passage


@dataclass
class TaskPage:
    """What is said about one graded cell."""

    name: str
    heading: str
    score: float
    points: float
    marked: bool
    comments: list[str]
    messages: list[Markup]  # of the check
    parts: list[Markup]  # what was handed in

    @property
    def result(self) -> str:
        if not self.marked:
            return "not marked yet"
        if self.score >= self.points:
            return "right"
        return "partly right" if self.score > 0 else "not right yet"

    @property
    def kind(self) -> str:
        return "right" if self.result == "right" else "wrong"


@dataclass
class StudentPage:
    """A page of feedback."""

    title: str
    published: bool
    unit: str
    student: str
    score: float
    most: float
    penalty: float
    tasks: list[TaskPage]
    rest: list[Markup]


class FeedbackExporter(HTMLExporter):
    """What ``c.GenerateFeedback.exporter_class`` is set to."""

    markdown_timeout = Integer(
        20,
        help="seconds that all Markdown of a notebook may take; what is left then is shown as it was written",
    ).tag(config=True)
    title = Unicode("", help="what stands above the unit").tag(config=True)
    book = Unicode("", help="the address of the published book; without it, links lead beside the page").tag(
        config=True
    )

    units: Any = List(Unicode(), help="the units that the book has; without any, all").tag(config=True)

    environment_of_pages = Environment(loader=PackageLoader("attncourse.grading", "."), autoescape=True)

    def from_notebook_node(self, nb: Any, resources: Any = None, **settings: Any) -> Any:
        self._left = float(self.markdown_timeout)
        # What HTMLExporter does first: nbgrader's preprocessors note the marks in the notebook.
        nb, resources = Exporter.from_notebook_node(self, nb, resources, **settings)
        page = self._page(nb, resources.get("nbgrader", {}))
        template = self.environment_of_pages.get_template("feedback.html.jinja")
        return harmless.page(template.render(page=page)), resources

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        start = monotonic()
        try:
            with at_most(self._left):
                return sanitise.markdown2html(context, source)
        except TooLong:
            return f"<pre>{html.escape(source)}</pre>"
        finally:
            self._left -= monotonic() - start

    def _page(self, nb: Any, names: Any) -> StudentPage:
        tasks: list[TaskPage] = []
        comments: list[str] = []
        parts: list[Markup] = []
        titles = names.get("titles", {})
        for cell in nb.cells:
            marks = cell.metadata.get("nbgrader", {})
            if comment := marks.get("comment"):
                comments.append(comment)
            graded = is_grade(cell)
            if not graded or is_solution(cell):
                parts += self._parts(cell)
            if graded:
                name = marks.grade_id.removeprefix("check_")
                own = names.get("marked", {}).get(marks.grade_id, True)
                messages = [] if is_solution(cell) else self._messages(cell, nb)
                task = TaskPage(
                    name,
                    titles.get(marks.grade_id, name),
                    marks.get("score") or 0.0,
                    marks.points,
                    own,
                    comments,
                    messages,
                    parts,
                )
                tasks.append(task)
                comments, parts = [], []
        return StudentPage(
            self.title,
            bool(self.book),
            names.get("notebook", ""),
            names.get("name") or names.get("student", ""),
            names.get("score", 0.0),
            names.get("max_score", 0.0),
            names.get("late_penalty", 0.0),
            tasks,
            parts,
        )

    def _parts(self, cell: Any) -> list[Markup]:
        """A cell as it was handed in, and what it showed."""
        if cell.cell_type != "code":
            text = self.markdown2html({"cell": cell}, cell.source)
            # Beside the exercises lies the text of the chapters, beside this page at most the book.
            return [Markup(CHAPTER.sub(self._chapter, text))]
        parts = [Markup("<pre><code>{}</code></pre>").format(cell.source)] if cell.source.strip() else []
        return parts + [self._shown(output, cell) for output in cell.get("outputs", ())]

    def _shown(self, output: Any, cell: Any) -> Markup:
        """What a cell of the student's showed, in the richest way there is; `Sanitise` has cleaned it."""
        data = output.get("data", {})
        for kind in ("text/html", "text/latex", "image/svg+xml", "image/png", "image/jpeg", "text/markdown"):
            shown = data.get(kind)
            if not isinstance(shown, str):
                continue
            if kind == "text/html":
                return Markup(f'<div class="wide">{sanitise.clean_html(shown)}</div>')
            if kind in ("text/latex", "text/markdown"):
                return Markup(self.markdown2html({"cell": cell}, shown))
            name = "output_svg" if kind == "image/svg+xml" else "output_png"
            encoded = (
                base64.b64encode(shown.encode()).decode() if name == "output_svg" else "".join(shown.split())
            )
            picture = Markup('<div class="{}"><img alt="what your code drew" src="data:{};base64,{}"></div>')
            return picture.format(name, kind, encoded)
        return Markup('<pre class="wrap">{}</pre>').format(_text(output))

    def _messages(self, cell: Any, nb: Any) -> list[Markup]:
        """What the check said: drawn, if it was judged outside the student's process, or in words."""
        checks = nb.metadata.get("attncourse", {}).get("checks", {})
        if checks.get(cell.metadata.nbgrader.grade_id, {}).get("outside"):
            for output in cell.outputs:
                drawn = output.get("data", {}).get(VERDICT)
                if isinstance(drawn, str):  # the other outputs say the same in words
                    linked = LINK.sub(lambda found: self._link(found[1], Markup(found[2])), drawn)
                    return [Markup(f'<div class="verdict">{linked}</div>')]
        texts = [_text(output) for output in cell.outputs if output.output_type != "execute_result"]
        return [self._message(text) for text in texts if text]

    def _message(self, text: str) -> Markup:
        """The text of a check, in which passages of the book are links."""
        linked, end = Markup(""), 0
        for found in PASSAGE.finditer(text):
            linked += Markup("{}{}").format(text[end : found.start()], self._link(found[0], found[0]))
            end = found.end()
        return Markup('<pre class="message">{}{}</pre>').format(linked, text[end:])

    def _link(self, passage: str, words: str) -> Markup:
        """A link to a passage of the book, or the words alone if the book is without that chapter."""
        address = address_of(passage, self.book, self.units)
        return Markup('<a href="{}">{}</a>').format(address, words) if address else escape(words)

    def _chapter(self, link: re.Match[str]) -> str:
        """A link to the text of a chapter leads to the page that is made from it."""
        address = address_of(f"book/{link[2]}.html{link[3] or ''}", self.book, self.units)
        return f'<a{link[1]}href="{address}"{link[4]}{link[5]}</a>' if address else link[5]


def _text(output: Any) -> str:
    """What an output says in plain text."""
    if output.output_type == "stream":
        text = output.text
    elif output.output_type == "error":
        text = "\n".join(output.traceback) or output.evalue
    else:
        text = output.get("data", {}).get("text/plain", "")
    return ANSI.sub("", text).rstrip() if isinstance(text, str) else ""


def titles(unit: Any) -> dict[str, str]:
    """The headings of a unit's notebook, by the graded cells that each of them stands above."""
    found, heading = {}, ""
    for cell in unit.cells:
        if cell.cell_type == "markdown" and (line := re.search(r"^#+ (.+)$", cell.source, re.MULTILINE)):
            heading = re.sub(r"[`*]", "", line[1]).strip()
        if is_grade(cell) and heading:
            found[cell.metadata.nbgrader.grade_id], heading = heading, ""
    return found


class Names(NbGraderPreprocessor):
    """Notes what nbgrader's own step leaves out: names and titles, and what nobody has marked yet.

    The titles are those of the course's own notebook: a student may have written other headings.
    """

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        names = resources["nbgrader"]
        folders = self.parent.parent.coursedir  # of the exporter's command
        folder = folders.format_path(folders.source_directory, ".", names["assignment"])
        with suppress(OSError, ValueError):
            names["titles"] = titles(nbformat.read(Path(folder, f"{names['notebook']}.ipynb"), as_version=4))
        with Gradebook(names["db_url"]) as gradebook:
            row = gradebook.find_submission_notebook(names["notebook"], names["assignment"], names["student"])
            name = " ".join(filter(None, [row.student.first_name, row.student.last_name]))
            names["name"] = name or row.student.id
            names["marked"] = {
                one.name: one.auto_score is not None or one.manual_score is not None for one in row.grades
            }
        return nb, resources


def fingerprint(job: PageJob, *settings: str) -> str:
    """What identifies a page of feedback: all that it is made from."""
    said = [
        settings,
        job.student,
        job.name,
        sorted(job.grades.items()),
        sorted(job.comments.items()),
        job.penalty,
    ]
    whole = hashlib.sha256(job.notebook + json.dumps(said).encode())
    for name in ("feedback.py", "feedback.html.jinja", "look.css", "sanitise.py"):
        whole.update(Path(__file__).with_name(name).read_bytes())
    return whole.hexdigest()
