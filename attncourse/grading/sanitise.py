"""What a submission brings does not run in the browser of whoever reads it.

HTML is cleaned by nh3, the Python package of ammonia, which parses as browsers do, keeps only what is named
here, and is maintained for that purpose (bleach, which nbconvert brings, has been declared at its end).
It happens twice. `Sanitise` cleans a notebook before it is stored, for whatever opens it later; the filters
below clean what a page is made of when it is made, by nbgrader's formgrader and for feedback: what is
Markdown, and harmless as such, is HTML only then. `with_policy` forbids all other scripts to both pages.
"""

import base64
import binascii
import functools
import html
import itertools
import math
import mimetypes
import os
import re
import secrets
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path, PurePosixPath
from time import monotonic
from typing import Any
from urllib.parse import unquote
from xml.etree.ElementTree import Element, ParseError, register_namespace, tostring

import nbformat
import nh3
from bs4 import BeautifulSoup, Comment
from defusedxml import DefusedXmlException
from defusedxml.ElementTree import fromstring
from jinja2 import Environment, pass_context, pass_environment
from jinja2.runtime import Context
from math_core import LatexError, LatexToMathML
from nbconvert.filters import strip_files_prefix
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_locked
from PIL import Image
from traitlets import Integer

from attncourse.grading import policy, repair
from attncourse.grading.alarm import TooLong, at_most
from attncourse.grading.repair import flag
from attncourse.grading.submitted import LONGEST_NAME, are_settings

# --- HTML ---

_TAGS = nh3.ALLOWED_TAGS - {"area", "map"} | {"big", "font", "input", "tfoot"}
_ATTRIBUTES: dict[str, set[str]] = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
_ATTRIBUTES["*"] = {"align", "class", "dir", "id", "lang", "style", "title", "valign"}
_ATTRIBUTES |= {"font": {"color", "face", "size"}, "details": {"open"}, "input": {"checked"}}
# Of a table whose cells each cover more, browsers draw the lines for minutes. pandas shows 60 rows at most.
_SPANS = {"colspan": 20, "columnspan": 20, "rowspan": 60, "span": 20}
_SIZES = {"border", "cellpadding", "cellspacing", "height", "size", "width"}
for _tag in ("table", "td", "th", "col"):
    _ATTRIBUTES[_tag] |= {"border", "cellpadding", "cellspacing", "bgcolor", "height", "width"}
_STYLES = {
    "color",
    "background-color",
    "width",
    "height",
    "max-width",
    "max-height",
    "min-width",
    "line-height",
}
_STYLES |= {"text-align", "text-decoration", "text-indent", "vertical-align", "white-space", "float", "clear"}
_STYLES |= {f"font-{of}" for of in ("family", "size", "style", "weight", "variant")} | {"list-style-type"}
_STYLES |= {
    f"{of}{side}" for of in ("padding", "margin") for side in ("", "-top", "-right", "-bottom", "-left")
}
_STYLES |= {f"border{of}" for of in ("", "-top", "-right", "-bottom", "-left", "-color", "-style", "-width")}
_STYLES |= {"border-collapse", "border-spacing", "border-radius"}
# What could cover what stands beside it: negative lengths, calculated ones (brackets are for colours), and
# what is written in another way than it is read.
_UNFIT = re.compile(
    r"(^|[^\w#-])-[\d.]|(?<!rgb)(?<!rgba)(?<!hsl)(?<!hsla)\(|\\|/\*",
    re.IGNORECASE,
)
# What could push it away. Many small sizes together are left to the pages: there all that was handed in lies
# in boxes of a limited height (see page.html.jinja and look.css).
_NUMBER = re.compile(r"(?<![\w#.])(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?)([a-z%]*)", re.IGNORECASE)
MOST_PIXELS = 2000
_LARGEST = {"": MOST_PIXELS, "px": MOST_PIXELS, "pt": MOST_PIXELS, "%": 300}
LARGEST = 100  # of every other unit, such as em


def _is_large(size: str) -> bool:
    """Whether a size, or a style, holds a number that is larger than what anybody needs."""
    return any(float(number) > _LARGEST.get(unit.lower(), LARGEST) for number, unit in _NUMBER.findall(size))


# What makes it worth a look that something was taken out: not a class, a name or a colour that is not kept.
_RUNS_OR_LOADS = re.compile(
    r"<\s*+/?\s*+(script|iframe|frame|object|embed|applet|link|meta|base|form|button|svg|math|style|video|audio"
    r"|template|portal|xmp|noscript|plaintext|textarea|select|dialog|marquee|isindex|img|image|input|source)\b"
    r"|[\s/\"']on\w+\s*=|(src|srcset|action|formaction|data|poster|background|ping|xlink:href)\s*="
    r"|script:|data:|url\s*\(|@import|expression\s*\(|position\s*:|&#",
    re.IGNORECASE,
)
# Classes that nbconvert and pandas give; others could be those of the formgrader's buttons.
_CLASSES = re.compile(
    r"highlight|hl-\w+|dataframe|anchor-link|task-list-item(-checkbox)?|attncourse-math(-block)?"
    r"|(?!(btn|col|nav|row|tab)$)[a-z]{1,3}[0-9]?"
)
# Beside the page there is only what was handed in, and nothing above it: no address of the server's.
_BESIDE = re.compile(r"(?!.*\.\.)[\w.][\w ./-]*")
_PICTURE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=\s]*")
_DRAWING = "data:image/svg+xml;base64,"
# A link may lead up to the chapters, and nowhere else above.
_RELATIVE = re.compile(r"((\.\./)*book/)?(?!.*\.\.)[\w.][\w ./#-]*")
# A link with an address leads to a machine that has a name on the internet: a number, or a name without a
# dot, could be a server of whoever reads the page.
_OF_A_HOUSE = r"(localhost|local|localdomain|internal|intranet|lan|home|arpa|box|corp|private|svc|test)\b"
_LINK = re.compile(
    rf"https?://([a-z0-9-]+\.)+(?!{_OF_A_HOUSE})[a-z][a-z0-9-]*\.?(:\d+)?([/?#].*)?|mailto:.*",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_OURS = "submission-"  # what a submission calls a part of the page gets this before its name


def _attribute(tag: str, name: str, value: str) -> str | None:
    """The value that an attribute may have; None takes it away."""
    match name:
        case "class":
            return " ".join(one for one in value.split() if _CLASSES.fullmatch(one)) or None
        case "href" if value.startswith("#"):
            return f"#{_OURS}{value[1:].removeprefix(_OURS)}"
        case "id":
            return _OURS + value.removeprefix(_OURS)
        case "href":
            return value if _LINK.fullmatch(value) or _RELATIVE.fullmatch(unquote(value)) else None
        case "style":
            return ";".join(part for part in value.split(";") if not (_UNFIT.search(part) or _is_large(part)))
        case "src":
            if value.startswith(_DRAWING):
                drawing = _picture("image/svg+xml", value.removeprefix(_DRAWING))
                return None if drawing is None else _DRAWING + drawing
            return value if _is_picture(value) or _BESIDE.fullmatch(unquote(value)) else None
        case _ if name in _SIZES and _is_large(value):
            return None
        case _ if name in _SPANS and _is_wide(name, value):
            return None
    return value


def _is_wide(name: str, span: str) -> bool:
    return not (span.isdecimal() and len(span) < 4 and int(span) <= _SPANS[name])


_CLEANER = nh3.Cleaner(
    tags=_TAGS,
    attributes=_ATTRIBUTES,
    attribute_filter=_attribute,
    url_schemes={"http", "https", "mailto", "data"},
    # Of a list of tasks.
    set_tag_attribute_values={"input": {"type": "checkbox", "disabled": ""}},
    filter_style_properties=_STYLES,
)


# The time that parsers take grows with the square of this, and formulas are parsed by recursion.
MOST_NESTED = 300
LONGEST_FORMULA = 5000
# For each that is not closed the parser tries everything behind it twice.
MOST_OPENED = 16
_OPENED = re.compile(r"\\(big|Big|bigg|Bigg)l(?![a-zA-Z])")
LONGEST_MATHML = 50_000
# Elements that a browser opens again in every paragraph, as long as they are not closed; how many of
# them, times how many of all, there may be.
_FORMATTING = {"a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong"}
_FORMATTING |= {"tt", "u"}
MOST_REOPENED = 300_000
# In what is longer, nothing may be written so that what looks like a tag may be none.
LONGEST_DOUBTFUL = 30_000
_STYLE_SHEET = re.compile(r"<style[^<>]*>[^<]*</style>", re.IGNORECASE)
_DOUBTFUL = re.compile(
    r"<[!?]|</?[a-z][^>]*<|<(title|textarea|style|script|xmp|iframe|noembed|noframes|plaintext)\b",
    re.IGNORECASE,
)
_COMMENT = re.compile("<!--.*?(?:-->|$)", re.DOTALL)
_TAG = re.compile(r"<(/?)([a-zA-Z][^\t\n\f\r />]*)")
# Elements that hold nothing, or whose end need not be written.
_FLAT = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
_FLAT |= {"p", "tr", "td", "th", "thead", "tbody", "tfoot", "option"}
# Those that end where the next of their kind begins, and hold others where it does not.
_ENDED_BY_NEXT = {"li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}}


def clean_html(text: str) -> str:
    """HTML without what could run, load, cover or control anything."""
    if _is_deep(text):
        return _as_written(text)
    return without_piles(_CLEANER.clean(text))


MOST_MARKS = 10  # above and below a letter


def without_piles(text: str) -> str:
    """A text in which no letter carries thousands of marks, over which browsers take minutes."""
    return text if text.isascii() else _piles().sub(r"\1", text)


@functools.cache
def _piles() -> re.Pattern[str]:
    marks = [chr(code) for code in range(0x300, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Me")]
    one = f"[{''.join(marks)}]"
    return re.compile(f"({one}{{{MOST_MARKS}}}){one}+")


def _as_written(text: str) -> str:
    return f"<pre>{html.escape(text)}</pre>"


def _clean_raw(source: str) -> str:
    cleaned = clean_html(source)
    return source if _same(source, cleaned) else cleaned


def _is_deep(text: str) -> bool:
    """Whether more elements may stand in each other, or come again, than anybody writes by hand."""
    text = _STYLE_SHEET.sub("", text)
    if len(text) > LONGEST_DOUBTFUL and _DOUBTFUL.search(text):
        return True
    # With those that stand in a comment, or seem to.
    names = Counter(name.lower() for closing, name in _TAG.findall(text) if not closing)
    if sum(names[name] for name in _FORMATTING) * names.total() > MOST_REOPENED:
        return True
    open_ones: list[str] = []
    for closing, name in _TAG.findall(_COMMENT.sub("", text)):
        name = name.lower()
        if name in _FLAT:
            continue
        if not closing:
            if open_ones and open_ones[-1] in _ENDED_BY_NEXT.get(name, ()):
                open_ones.pop()
            open_ones.append(name)
        elif name in open_ones:
            while open_ones.pop() != name:
                pass
        if len(open_ones) > MOST_NESTED:
            return True
    return False


def _same(one: str, other: str) -> bool:
    """Whether two pieces of HTML hold the same, however they write it."""
    return one == other or (not _is_deep(one) and _shape(one) == _shape(other))


def _shape(text: str) -> tuple[Counter[Any], str]:
    page = BeautifulSoup(text, "html.parser")
    tags: Counter[Any] = Counter()
    for tag in page.find_all(True):
        about = {name: _written(name, value) for name, value in tag.attrs.items() if name != "rel"}
        # Parsers put in what may be left out.
        if about or tag.name not in ("p", "tbody"):
            tags[tag.name, tuple(sorted(about.items()))] += 1
    strings = (one for one in page.find_all(string=True) if not isinstance(one, Comment))
    return tags, "".join(" ".join(strings).split())


def _written(name: str, value: Any) -> str:
    text = " ".join(value) if isinstance(value, list) else str(value)
    if name == "style":
        return " ".join(sorted(part.partition(":")[0].strip().lower() for part in text.split(";"))).strip()
    return text.replace(_OURS, "") if name in ("id", "href") else text


# --- formulas ---

_TEX = LatexToMathML(fancy_error=False)
_MATHML = {"math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "mfrac", "msqrt", "mroot", "mstyle"}
_MATHML |= {"merror", "mpadded", "mphantom", "menclose", "msub", "msup", "msubsup", "munder", "mover"}
_MATHML |= {"munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd"}
_OF_MATHML = {"display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "symmetric", "largeop"}
_OF_MATHML |= {"movablelimits", "fence", "separator", "form", "accent", "accentunder", "columnalign", "style"}
_OF_MATHML |= {"columnspan", "rowspan", "columnlines", "rowlines", "notation"}
_SIZES |= {"depth", "linethickness", "lspace", "maxsize", "minsize", "rspace", "voffset"}
_MATH_CLEANER = nh3.Cleaner(
    tags=_MATHML,
    attributes={"*": _OF_MATHML | _SIZES},
    # A small negative space is part of many formulas.
    attribute_filter=lambda tag, name, value: (
        None
        if ((name in _SIZES or name == "style") and _is_large(value))
        or (name in _SPANS and _is_wide(name, value))
        else value
    ),
    filter_style_properties=_STYLES | {"justify-items"},
)
# In HTML that is clean a value holds no quotation mark: this is a tag wherever it stands.
_FORMULA = re.compile(r'<span class="attncourse-math(-block)?">([^<]*)</span>')


def _mathml(found: re.Match[str]) -> str:
    tex, block = html.unescape(found[2]), found[1] is not None
    try:
        if len(tex) <= LONGEST_FORMULA and len(_OPENED.findall(tex)) <= MOST_OPENED:
            drawn = _MATH_CLEANER.clean(_TEX.convert_with_local_state(tex, displaystyle=block))
            if len(drawn) <= LONGEST_MATHML:
                return drawn
    except LatexError:
        pass
    return f"<code>{html.escape(tex)}</code>"


# --- Markdown ---


def _remembered(function: Callable[..., str]) -> Callable[..., str]:
    """The function, which works once on what many notebooks have in common: short texts without pictures."""
    remembering = functools.lru_cache(maxsize=500)(function)

    @functools.wraps(function)
    def wrapped(source: str, attachments: Mapping[str, Any] | None = None) -> str:
        if attachments or len(source) > 10_000:
            return function(source, attachments)
        return remembering(source)

    return wrapped


# A picture that is attached to a cell, as HTML shows it in another size; each is as large as the picture.
_ATTACHED = re.compile(r"""(<img\b[^<>]*?\ssrc=)(["'])attachment:([^"'<>]+)\2""", re.IGNORECASE)
MOST_ATTACHED = 20


class _Renderer(IPythonRenderer):
    """Formulas are marked, to become MathML; pictures that are elsewhere become links to them."""

    def block_math(self, body: str) -> str:
        return f'<span class="attncourse-math-block">{html.escape(body)}</span>'

    def inline_math(self, body: str) -> str:
        return f'<span class="attncourse-math">{html.escape(body)}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        return self.block_math(rf"\begin{{{name}}}{body}\end{{{name}}}")

    def image(self, text: str, url: str, title: str | None = None) -> str:
        kind, _, name = url.partition(":")
        if kind == "attachment" and name not in self.attachments:
            return html.escape(f"[{text or name}: the picture is missing]")
        if _LINK.fullmatch(url):
            return f'<a href="{html.escape(url)}">{html.escape(text or url)}</a>'
        return super().image(text, url, title)


def _rendered(source: str, attachments: Mapping[str, Any] | None) -> str:
    """Markdown as HTML that is not cleaned."""
    pictures = {unquote(name): one for name, one in (attachments or {}).items()}
    renderer = _Renderer(escape=False, attachments=pictures)

    def attached(found: re.Match[str]) -> str:
        bundle = pictures.get(unquote(found[3]), {})
        return next((f'{found[1]}"data:{kind};base64,{data}"' for kind, data in bundle.items()), found[0])

    try:
        # It makes other addresses of some; so it must come first.
        rendered = strip_files_prefix(MarkdownWithMath(renderer=renderer).render(source))
        return _ATTACHED.sub(attached, rendered, count=MOST_ATTACHED)
    except Exception:
        return f"<pre>{html.escape(source)}</pre>"


@pass_context
def markdown2html(context: Context, source: str) -> str:
    """The filter of this name of nbconvert's, cleaned, with formulas as MathML."""
    cell = context.get("cell") or {}
    return _as_html(source, cell.get("attachments"))


@_remembered
def _as_html(source: str, attachments: Mapping[str, Any] | None = None) -> str:
    return _FORMULA.sub(_mathml, clean_html(_rendered(source, attachments)))


def unchanged(text: str) -> str:
    """A filter in the place of one that must not come after cleaning."""
    return text


@_remembered
def clean_markdown(source: str, attachments: Mapping[str, Any] | None = None) -> str:
    """Markdown that is harmless in every renderer.

    What is harmless stays as it is written, letter by letter. Else the cell becomes what is left
    of it as HTML: one block of it, without a blank line, in which Markdown has no meaning.
    """
    rendered = _rendered(source, attachments)
    cleaned = clean_html(rendered)
    if _same(rendered, cleaned):
        return source
    return "<div>\n" + re.sub(r"\n(?=[ \t]*\n)", "\n&#10;", cleaned.strip()) + "\n</div>"


def as_code(source: str) -> str:
    """Markdown that shows a text as it is written."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", source)), default=0))
    return f"{fence}\n{source}\n{fence}"


# --- pictures ---

_SVG = "{http://www.w3.org/2000/svg}"
MOST_DRAWN = 100_000  # elements of a drawing
_SVG_TAGS = {"svg", "g", "defs", "symbol", "use", "path", "rect", "circle", "ellipse", "line", "polyline"}
# No patterns, masks and markers: few signs of them are drawn millions of times.
_SVG_TAGS |= {"polygon", "text", "tspan", "clipPath", "linearGradient", "radialGradient", "stop", "title"}
_SVG_TAGS |= {"desc", "image", "style"}
_HEAVY = re.compile(r"filter|animation|keyframes|marker|mask|transition|blur|shadow", re.IGNORECASE)
_REFERENCE = re.compile(r"url\(\s*['\"]?#([^'\")\s]*)")
_DASHES = re.compile(r"stroke-dasharray\s*:\s*([^;}]*);?", re.IGNORECASE)
_NUMBERS = re.compile(r"\d*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)
MOST_DASHES = 3_000_000  # of a drawing
register_namespace("", _SVG[1:-1])
register_namespace("xlink", "http://www.w3.org/1999/xlink")


def clean_svg(text: str) -> str | None:
    """A drawing without what could run or load anything; None if it cannot be read."""
    try:
        root = fromstring(text)
    except (ParseError, DefusedXmlException, ValueError, RecursionError):
        return None
    if root.tag != f"{_SVG}svg":
        return None
    try:
        _clean_element(root)
        for name in ("width", "height"):
            if _is_large(root.get(name, "")):
                del root.attrib[name]
        drawn = _drawn(root, {part.get("id", ""): part for part in root.iter()}, {})
        if drawn > MOST_DRAWN:
            return None
        if _dashes(root) * drawn / sum(1 for _ in root.iter()) > MOST_DASHES:
            for part in root.iter():
                _without_dashes(part)
        return tostring(root, encoding="unicode")
    except RecursionError:
        return None


def _drawn(element: Element, named: dict[str, Element], known: dict[Element, int]) -> int:
    """How many elements a browser draws, with those that are used again and again.

    Raises
    ------
    RecursionError
        If one uses itself, or they are nested too deeply.
    """
    if element not in known:
        used = [value[1:] for name, value in element.items() if name.rpartition("}")[2] == "href"]
        used += [name for _, value in element.items() for name in _REFERENCE.findall(value)]
        parts = [*element, *(named[name] for name in used if name in named)]
        known[element] = 1 + sum(_drawn(part, named, known) for part in parts)
    return known[element]


def _dashes(root: Element) -> float:
    """How many dashes there are at most: what all lines measure, by their numbers, in the shortest dashes."""
    length, shortest = 0.0, math.inf
    for part in root.iter():
        told = [part.get("stroke-dasharray", ""), *_DASHES.findall(part.get("style", ""))]
        told += _DASHES.findall(part.text or "") if part.tag == f"{_SVG}style" else []
        for dashes in told:
            whole = sum(map(float, _NUMBERS.findall(dashes)))
            shortest = min(shortest, whole or math.inf)
        for name in ("d", "points", "width", "height", "r", "rx", "ry", "x1", "x2", "y1", "y2"):
            length += sum(map(float, _NUMBERS.findall(part.get(name, ""))))
    return length / max(shortest, 1e-9)


def _without_dashes(part: Element) -> None:
    part.attrib.pop("stroke-dasharray", None)
    if "style" in part.attrib:
        part.attrib["style"] = _DASHES.sub("", part.attrib["style"])
    if part.tag == f"{_SVG}style":
        part.text = _DASHES.sub("", part.text or "")


def _clean_element(element: Element, clips: bool = False) -> None:
    """Clean an element and what is in it; `clips` says that it is part of what others are clipped by."""
    clips = clips or element.tag == f"{_SVG}clipPath"
    for name, value in list(element.attrib.items()):
        local = name.rpartition("}")[2].lower()
        # By the second a dash may be as short as one likes, whatever its numbers say.
        if _HEAVY.match(local) or local == "pathlength" or (local == "style" and _HEAVY.search(value)):
            del element.attrib[name]
            continue
        # What clips, and is itself clipped, would be drawn again and again.
        if clips and (_REFERENCE.search(value) or local == "href"):
            del element.attrib[name]
            continue
        inside = value.startswith("#") or _is_picture(value)
        if local.startswith("on") or (local in ("href", "src") and not inside) or _loads(value):
            del element.attrib[name]
    for child in list(element):
        tag = str(child.tag)
        text = child.text or ""
        told = tag == f"{_SVG}style" and (_HEAVY.search(text) or "url" in text.lower())
        if not tag.startswith(_SVG) or tag.removeprefix(_SVG) not in _SVG_TAGS or _loads(text) or told:
            element.remove(child)
        else:
            _clean_element(child, clips)


def _loads(text: str) -> bool:
    """Whether a style takes something from elsewhere, or hides what it does."""
    return bool(re.search(r"url\(\s*['\"]?(?!#)|@import|javascript:|expression|\\", text, re.IGNORECASE))


def _picture(kind: str, data: Any) -> str | None:
    """The data of an attached picture, if it is one."""
    if not isinstance(data, str):
        return None
    try:
        content = base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    if kind == "image/svg+xml":
        drawing = clean_svg(content.decode("utf-8", "replace"))
        return None if drawing is None else base64.b64encode(drawing.encode()).decode()
    return data if kind in _FORMATS and _can_be_shown(content, _FORMATS[kind]) else None


_FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}


def _is_picture(address: str) -> bool:
    """Whether this is a picture itself, and if it has pixels, not too many."""
    found = _PICTURE.fullmatch(address)
    return found is not None and _picture(f"image/{found[1]}", address.partition(",")[2]) is not None


def _can_be_shown(content: bytes, kind: str) -> bool:
    """Whether this begins as such a picture does, and promises no more pixels than Pillow thinks safe."""
    try:
        with warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning):
            Image.open(BytesIO(content), formats=[kind]).close()
    except Exception:  # whatever its parsers raise, and Pillow's own words on too many pixels
        return False
    return True


# --- notebooks ---


class Sanitise(NbGraderPreprocessor):
    """Cleans a notebook before it is stored, and once more before a page is made of it.

    The locked cells are the instructor's own, restored before.
    """

    markdown_timeout = Integer(
        20,
        help="seconds that cleaning a notebook may take; what is left then is shown as it was written",
    ).tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        self._left = float(self.markdown_timeout)
        nb.metadata.pop("widgets", None)
        for cell in nb.cells:
            self._clean(nb, cell)
        # The formgrader writes these into its page as they are.
        for name in ("student", "first_name", "last_name"):
            if isinstance(resources.get(name), str):
                resources[name] = html.escape(html.unescape(resources[name]))
        return nb, resources

    def _clean(self, nb: Any, cell: Any) -> None:
        kept = {"nbgrader": cell.metadata["nbgrader"]} if "nbgrader" in cell.metadata else {}
        cell.metadata = nbformat.from_dict(kept)
        if "attachments" in cell:
            cell.attachments = nbformat.from_dict(_attachments(cell.attachments))
        if not is_locked(cell):
            cell.source = without_piles(cell.source)
        before = cell.source
        if cell.cell_type == "markdown" and not is_locked(cell):
            cell.source = self._in_time(
                lambda: clean_markdown(before, cell.get("attachments")), as_code(before)
            )
        elif cell.cell_type == "raw" and not is_locked(cell):
            cell.source = self._in_time(lambda: _clean_raw(before), _as_written(before))
        elif cell.cell_type == "code":
            left = nbformat.v4.new_output("stream", text="Here stood what took too long to be read.")
            outputs = [self._in_time(functools.partial(_output, output), left) for output in cell.outputs]
            cell.outputs = [output for output in outputs if output is not None]
        if cell.source != before and _RUNS_OR_LOADS.search(before):
            name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
            flag(nb, name, "HTML that may run or load something was taken out of a text")

    def _in_time(self, clean: Callable[[], Any], instead: Any) -> Any:
        start = monotonic()
        try:
            with at_most(self._left):
                return clean()
        except TooLong:
            return instead
        finally:
            self._left -= monotonic() - start


def _attachments(attachments: Any) -> dict[str, dict[str, str]]:
    """The pictures among what is attached to a cell."""
    found: dict[str, dict[str, str]] = {}
    for name, bundle in attachments.items() if isinstance(attachments, dict) else ():
        pictures = (
            {kind: _picture(kind, data) for kind, data in bundle.items()} if isinstance(bundle, dict) else {}
        )
        if any(pictures.values()):
            found[name] = {kind: data for kind, data in pictures.items() if data is not None}
    return found


def _output(output: Any) -> Any:
    """An output with nothing but what is known to be harmless; None if that is nothing."""
    for name in ("text", "evalue"):
        if isinstance(output.get(name), str):
            output[name] = without_piles(output[name])
    if "data" not in output:
        return output
    data = {kind: _clean_data(kind, value) for kind, value in output.data.items()}
    output.data = nbformat.from_dict({kind: value for kind, value in data.items() if value is not None})
    if not output.data:
        return None
    sizes = {}
    for kind, about in output.get("metadata", {}).items():
        if kind in output.data and isinstance(about, dict):
            sizes[kind] = {
                name: size
                for name, size in about.items()
                if name in ("width", "height") and type(size) is int and 0 < size <= MOST_PIXELS
            }
    ours = {"attncourse": "verdict"} if repair.VERDICT in output.data else {}
    output.metadata = nbformat.from_dict(sizes | ours)
    return output


def _clean_data(kind: str, value: Any) -> Any:
    match kind:
        case "application/json":
            return value
        case _ if not isinstance(value, str):
            return None
        case "text/plain" | "text/latex":
            return without_piles(value)
        case "text/html" | repair.VERDICT:
            return clean_html(value)
        case "text/markdown":
            return clean_markdown(value)
        case "image/svg+xml":
            return clean_svg(value)
        case "image/png" | "image/jpeg":
            return _picture(kind, value)
    return None


# --- files ---

_HARMLESS_FILES = {"text/plain", "text/csv", "text/tab-separated-values", "text/x-python", "application/json"}
_HARMLESS_FILES |= {"text/markdown", "image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}
_HARMLESS_FILES |= {
    "application/zip",
    "application/x-tar",
    "application/x-ipynb+json",
    "application/octet-stream",
}


def file_names(places: Iterable[str]) -> dict[str, str]:
    """The places that files handed in may have beside the notebook, each its own.

    The formgrader hands out what lies there with the rights of its own pages, and a link is enough
    to open it. What a browser would run as a page is text, by its name; so is what Jupyter would take for
    settings.
    """
    names = {place: place for place in sorted(places)}
    folders = {path.as_posix() for place in names for path in PurePosixPath(place).parents}
    taken = folders | names.keys()
    for place in names:
        if not _is_harmless(place):
            names[place] = next(name for name in _texts(place) if name not in taken)
            taken.add(names[place])
    return names


def _is_harmless(place: str) -> bool:
    # With the stroke it is a path, as for whoever hands the file out; without, data:,x.html is an address.
    kind, _ = mimetypes.guess_type(f"/{PurePosixPath(place).name}")
    return not are_settings(place) and (kind is None or kind in _HARMLESS_FILES)


def _texts(place: str) -> Iterator[str]:
    """Names by which a file is text, one after the other."""
    path = PurePosixPath(place)
    for number in itertools.count(1):
        end = ".txt" if number == 1 else f".{number}.txt"
        begin = os.fsencode(path.name)[: LONGEST_NAME - len(end)].decode(errors="ignore")
        yield path.with_name(begin + end).as_posix()


class RenameFiles(NbGraderPreprocessor):
    """Gives the files beside an autograded notebook names by which no browser runs them."""

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        folder = Path(resources["metadata"]["path"])
        files = [path for path in folder.rglob("*") if path.is_file()]
        for place, name in file_names(path.relative_to(folder).as_posix() for path in files).items():
            if name != place:
                (folder / place).replace(folder / name)
        return nb, resources


# --- pages ---


@pass_environment
def with_policy(environment: Environment, head: str) -> str:
    """The head of a page of nbgrader's, with a policy that allows its own scripts and no others.

    What it fetches from other machines is taken out of it: formulas need no MathJax any more.
    """
    formgrader = "/formgrader/static/" in head
    elsewhere = r"<script[^>]*(?:src=\"(?:https?:)?//|text/x-mathjax-config)" if formgrader else "<script"
    head = re.sub(elsewhere + "[^>]*>.*?</script>", "", head, flags=re.DOTALL)
    if not formgrader:
        allowed = f"{policy.NOTHING}; style-src 'unsafe-inline'; img-src data:"
    else:
        nonce = secrets.token_urlsafe()
        head = policy.with_nonce(nonce, head)
        assert environment.loader is not None
        macros = environment.loader.get_source(environment, "formgrade_macros.html.j2")[0]
        allowed = policy.formgrader(nonce, macros)
    return head.replace(
        "<head>", f'<head>\n<meta http-equiv="Content-Security-Policy" content="{allowed}">', 1
    )
