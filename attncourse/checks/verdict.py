"""The outcome of a check, and how a student reads it: as text, and as HTML in a notebook."""

from __future__ import annotations

import functools
import html
import json
import re
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from attncourse.probe.answer import Foreign, Plain

WIDTH = 80  # what fits beside the file browser on a laptop
_TITLE = 14  # the column of a table's titles


def link(read: str) -> str:
    """The page of the built book, and the place in it, that ``<unit>#<anchor>`` stands for."""
    unit, _, anchor = read.partition("#")
    return f"book/{unit}.html#{anchor}"


@functools.cache
def _pages() -> dict[str, dict]:
    return json.loads(Path(__file__).with_name("passages.json").read_text(encoding="utf-8"))


def in_words(read: str) -> str:
    """The chapter and the section that ``<unit>#<anchor>`` stands for; nothing, if there is none."""
    unit, _, anchor = read.partition("#")
    page = _pages().get(unit, {"title": "", "sections": {}})
    section = page["sections"].get(anchor)
    return f"{page['title']}, “{section}”" if section else ""


# How a link is written in HTML: what it gets is what `link` gives.
Address = Callable[[str], str]


@dataclass(frozen=True)
class Words:
    """A paragraph."""

    words: str

    def text(self) -> str:
        return textwrap.fill(self.words, WIDTH)

    def html(self, address: Address) -> str:
        return f"<p>{_prose(self.words)}</p>"


@dataclass(frozen=True)
class Facts:
    """What was called and what came back: titles, and what stands beside each."""

    rows: Sequence[tuple[str, str]]

    def text(self) -> str:
        return "\n".join(
            textwrap.fill(words, WIDTH, initial_indent=f"{title:<{_TITLE}}", subsequent_indent=" " * _TITLE)
            for title, words in self.rows
        )

    def html(self, address: Address) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left;vertical-align:top;white-space:nowrap">'
            f'{html.escape(title)}</th><td style="text-align:left">{_prose(words)}</td></tr>'
            for title, words in self.rows
        )
        return f"<table>{rows}</table>"


@dataclass(frozen=True)
class Picture:
    """A value under its title: a number, a row or a matrix (or a few of them), wrong numbers marked."""

    title: str
    value: Plain
    wrong: Tensor | None = None


@dataclass(frozen=True)
class Pictures:
    """Values side by side."""

    pictures: Sequence[Picture]

    def text(self) -> str:
        blocks = [_block(picture) for picture in self.pictures]
        lines: list[str] = []
        while blocks:
            row = [blocks.pop(0)]
            while blocks and sum(_width(block) + 4 for block in [*row, blocks[0]]) - 4 <= WIDTH:
                row.append(blocks.pop(0))
            lines += _beside(row) + ([""] if blocks else [])
        if any(picture.wrong is not None and picture.wrong.any() for picture in self.pictures):
            lines += ["", "(* is wrong)"]
        return "\n".join(lines)

    def html(self, address: Address) -> str:
        shown = "".join(
            f'<div style="display:inline-block;vertical-align:top;margin-right:2em">{_table(picture)}</div>'
            for picture in self.pictures
        )
        return f'<div style="overflow-x:auto">{shown}</div>'


@dataclass(frozen=True)
class Code:
    """Lines as they are."""

    lines: str

    def text(self) -> str:
        return self.lines

    def html(self, address: Address) -> str:
        return f'<pre style="white-space:pre-wrap">{html.escape(self.lines)}</pre>'


@dataclass(frozen=True)
class Passage:
    """Something to understand: a bold sentence, what to think about, and where to read."""

    sentence: str
    words: str
    read: str

    def text(self) -> str:
        parts = [
            textwrap.fill(self.sentence, WIDTH, break_on_hyphens=False),
            textwrap.fill(self.words, WIDTH),
        ]
        if self.read:
            lines = [*textwrap.wrap(in_words(self.read), WIDTH - 6), link(self.read)]
            parts.append(textwrap.indent("\n".join(lines), " " * 6).replace(" " * 6, "Read: ", 1))
        return "\n".join(filter(None, parts))

    def html(self, address: Address) -> str:
        words = f"<br>{_stressed(_prose(self.words))}" if self.words else ""
        passage = ""
        if self.read:
            page, place = link(self.read), address(link(self.read))
            shown = html.escape(in_words(self.read) or page)
            linked = f'<a href="{html.escape(place)}">{shown}</a>' if place else f"{shown} ({page})"
            passage = f"<br>Read: {linked}"
        return f"<p><strong>{_prose(self.sentence)}</strong>{words}{passage}</p>"


Section = Words | Facts | Pictures | Code | Passage


@dataclass(frozen=True)
class Verdict:
    """The outcome of one check.

    Parameters
    ----------
    task : str
        The task's name.
    passed : bool
    headline : str
    sections : sequence of Section
        What the student reads below the headline.
    mistakes : tuple of str
        The labels of the mistakes that the answer looks like.
    law : str, optional
        The first law that the answer breaks.
    carried : tuple of str
        The student's own functions that are wrong and had right ones put in their place.
    """

    task: str
    passed: bool
    headline: str
    sections: tuple[Section, ...] = ()
    mistakes: tuple[str, ...] = ()
    law: str | None = None
    carried: tuple[str, ...] = ()

    @property
    def misconception(self) -> str | None:
        """The mistakes in one line, if there are any."""
        return "; and ".join(self.mistakes) or None

    @property
    def message(self) -> str:
        """The whole as text, no line of it wider than `WIDTH` but for the student's own code."""
        head = textwrap.fill(self.headline, WIDTH, subsequent_indent="  ")
        return "\n\n".join([head, *(section.text() for section in self.sections)])

    def html(self, address: Address = lambda passage: passage) -> str:
        """The whole as HTML without scripts or style sheets, readable on light and dark pages."""
        parts = "".join(section.html(address) for section in self.sections)
        return f"<div><p><strong>{_prose(self.headline)}</strong></p>{parts}</div>"


class CheckFailed(AssertionError):
    """An answer is not right yet.

    Attributes
    ----------
    task : str
        The task's name.
    misconception : str or None
        What the answer looks like, if it looks like a known mistake or two.
    law : str or None
        The first law that it breaks.
    message : str
        What to tell the student: what was called, what came back, what it looks like.
    verdict : Verdict
    is_shown : bool
        Whether the notebook shows the verdict already, so that it need not be said again.
    """

    def __init__(self, verdict: Verdict, *, is_shown: bool = False) -> None:
        super().__init__(verdict.message)
        self.verdict = verdict
        self.is_shown = is_shown
        self.task = verdict.task
        self.misconception = verdict.misconception
        self.law = verdict.law
        self.message = verdict.message

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback: the message and nothing of ours."""
        if self.is_shown:
            return [f"{self.verdict.headline} See above."]
        bold, plain_text = "\x1b[1m", "\x1b[0m"
        bolds = set(textwrap.fill(self.verdict.headline, WIDTH, subsequent_indent="  ").splitlines())
        for section in self.verdict.sections:
            if isinstance(section, Passage):
                bolds.update(textwrap.fill(section.sentence, WIDTH, break_on_hyphens=False).splitlines())
        return [f"{bold}{line}{plain_text}" if line in bolds else line for line in self.message.splitlines()]


# Values as text ---------------------------------------------------------------------------


def shown(value: Plain) -> str:
    """A number as a student would write it, or whatever else it is."""
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float):
        return f"{value + 0.0:.4g}"  # no -0
    if isinstance(value, Foreign):
        return value.description
    if isinstance(value, Tensor) and value.dim() == 0:
        return shown(value.item())
    if isinstance(value, tuple | list):
        ends = "()" if isinstance(value, tuple) else "[]"
        return ends[0] + ", ".join(map(shown, value)) + ends[1]
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {shown(part)}" for name, part in value.items()) + "}"
    return repr(value)


def _grids(picture: Picture) -> list[list[list[tuple[str, bool]]]] | None:
    """The matrices of a tensor, as rows of written numbers, each with whether it is wrong."""
    value = picture.value
    if not isinstance(value, Tensor) or value.dim() == 0 or value.numel() == 0 or value.numel() > 200:
        return None
    wrong = picture.wrong if picture.wrong is not None else torch.zeros(value.shape, dtype=torch.bool)
    rows = value.reshape(-1, *value.shape[-2:]) if value.dim() > 1 else value.reshape(1, 1, -1)
    marks = wrong.expand(value.shape).reshape(rows.shape)
    return [
        [
            [(shown(n), m) for n, m in zip(row.tolist(), marked, strict=True)]
            for row, marked in zip(matrix, marks_of.tolist(), strict=True)
        ]
        for matrix, marks_of in zip(rows, marks, strict=True)
    ]


def _block(picture: Picture) -> list[str]:
    grids = _grids(picture)
    if grids is None:
        value = picture.value
        words = (
            f"a tensor of shape {tuple(value.shape)}"
            if isinstance(value, Tensor) and value.dim()
            else shown(value)
        )
        return [picture.title, *textwrap.wrap(words, WIDTH - 2)]
    lines = [picture.title]
    for number, grid in enumerate(grids):
        written = [[text + ("*" if wrong else " ") for text, wrong in row] for row in grid]
        widths = [max(len(row[place]) for row in written) for place in range(len(written[0]))]
        lines += [""] * bool(number)
        lines += [
            "[" + " ".join(part.rjust(width) for part, width in zip(row, widths, strict=True)) + "]"
            for row in written
        ]
    if _width(lines) > WIDTH and len(lines) == 2:
        return [picture.title, *textwrap.wrap(lines[1], WIDTH)]
    return (
        lines
        if _width(lines) <= WIDTH
        else [picture.title, f"a tensor of shape {tuple(picture.value.shape)}"]
    )


def _width(block: Sequence[str]) -> int:
    return max(map(len, block))


def _beside(blocks: Sequence[Sequence[str]]) -> list[str]:
    widths = list(map(_width, blocks))
    height = max(map(len, blocks))
    rows = ([block[place] if place < len(block) else "" for block in blocks] for place in range(height))
    return [
        "    ".join(part.ljust(width) for part, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


# Words and values as HTML -----------------------------------------------------------------


def _prose(words: str) -> str:
    """What stands between backticks is code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", html.escape(words))


def _stressed(prose: str) -> str:
    """What our own words stress between asterisks is so in HTML, too; a product is left as it is."""
    return re.sub(r"(?:(?<=[ (])|^)\*(\w[^*<]*)(?<=\w)\*(?![\w*])", r"<em>\1</em>", prose)


def _table(picture: Picture) -> str:
    title = f'<div style="font-weight:bold">{html.escape(picture.title)}</div>'
    grids = _grids(picture)
    if grids is None:
        return title + f"<div>{html.escape(' '.join(_block(picture)[1:]))}</div>"
    value: Tensor = picture.value.double()
    finite = value[value.isfinite()].abs()
    largest = finite.max().item() if len(finite) and finite.max() > 0 else 1.0
    numbers = iter(value.flatten().tolist())
    tables = []
    for grid in grids:
        rows = "".join(
            "<tr>" + "".join(_cell(text, wrong, next(numbers) / largest) for text, wrong in row) + "</tr>"
            for row in grid
        )
        tables.append(f'<table style="border-collapse:separate;margin:0 0 .5em">{rows}</table>')
    return title + "".join(tables)


def _cell(text: str, wrong: bool, part: float) -> str:
    # Blue for positive, orange for negative, so faint that text of either theme is read on it.
    depth = min(abs(part), 1) if part == part else 0
    colour = f"rgba({'0,114,178' if part >= 0 else '213,94,0'},{0.35 * depth:.2f})"
    style = f"text-align:right;padding:.1em .5em;background-color:{colour}"
    if wrong:
        return f'<td style="{style};border:2px solid #d55e00">{html.escape(text)} ✗</td>'
    return f'<td style="{style}">{html.escape(text)}</td>'
