"""What a submission brings, made harmless where a person reads it: in a terminal, a table, a remark.

A name or a message may hold what a terminal obeys (escape sequences), what forges a line of its own,
what turns the order of letters round, or what a spreadsheet takes for a formula.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

# Characters of a remark that are kept. Longer than any that the course makes itself.
LONGEST_REMARK = 400

# Marks on one letter, such as accents; more lie over the lines above and below.
MOST_MARKS = 4

_COLOUR_OR_END = re.compile(r"(\x1b\[[0-9;]*m|\n)")

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")

# They join and part letters in Persian, in Indian scripts and in emoji: part of honest names.
_JOINERS = "\u200c\u200d"

# A semicolon, because in much of the world it parts the columns.
_FORMULA = re.compile(r"(^|;)(\s*)(?=[=+\-@＝＋－＠])")


def one_line(text: str, most: int | None = None) -> str:
    """Text that a terminal shows and does not obey: on one line, what is not printable is spelled out.

    Parameters
    ----------
    text : str
    most : int or None
        How many characters to keep, if not all.
    """
    kept = text if most is None else text[: most + 1]  # none becomes shorter
    shown = "".join(_visible(character) if few else _spelt(character) for character, few in _marked(kept))
    return shown if most is None or len(shown) <= most else f"{shown[: most - 2]} …"


def several_lines(text: str) -> str:
    """The same, but on the lines and in the colours that it has, such as a traceback."""
    parts = _COLOUR_OR_END.split(text)
    return "".join(part if _COLOUR_OR_END.fullmatch(part) else one_line(part) for part in parts)


def page(text: str) -> str:
    """A page without what no browser shows and a terminal obeys, to which somebody may print it."""
    return _CONTROL.sub(lambda found: _spelt(found[0]), text)


def _visible(character: str) -> str:
    if character.isprintable() or character in _JOINERS:
        return character
    return " " if character.isspace() else _spelt(character)


def _spelt(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _marked(text: str) -> Iterator[tuple[str, bool]]:
    """Each character, and whether it is no mark above or below a letter that has enough of them."""
    marks = 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        yield character, marks <= MOST_MARKS


def csv_cell(value: Any) -> Any:
    """A value that no spreadsheet calculates; numbers stay numbers.

    An apostrophe before a formula is how spreadsheets themselves mark text.
    """
    return _FORMULA.sub(r"\1\2'", one_line(value)) if isinstance(value, str) else value
