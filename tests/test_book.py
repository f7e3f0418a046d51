"""The built book: complete, executed, self-contained, and silent about solutions."""

import functools
import gzip
import re
from pathlib import Path

import nbformat
import pytest
from bs4 import BeautifulSoup
from built_book import CHAPTERS, LEFT_OUT, ROOT, UNITS, names_of_pages, program
from fontTools.ttLib import TTFont

from attncourse import checks

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def pages(html):
    """Every page of the book, parsed: {path within the book: soup}."""
    return {name: BeautifulSoup((html / name).read_text(), "html.parser") for name in names_of_pages(html)}


# The build


def test_the_book_builds_without_a_warning(built):
    status, log, _ = built
    assert status == 0, log
    assert "WARNING:" not in log


def test_every_unit_has_its_chapter_and_its_exercise_in_the_book(pages):
    for unit in UNITS:
        assert f"book/{unit}.html" in pages
        assert f"exercises/{unit}/{unit}.html" in pages


def test_every_code_cell_of_a_chapter_was_executed(html):
    chapters = {path.stem for path in (ROOT / "book").glob("*.md") if "{code-cell}" in path.read_text()}
    chapters -= LEFT_OUT
    read = {path.stem: path for path in (html.parent / "jupyter_execute/book").glob("*.ipynb")}
    assert chapters
    assert chapters <= set(read)
    executed = [code_of(path) for path in html.parent.glob(".jupyter_cache/*/executed/*/base.ipynb")]
    by_source = {tuple(cell["source"] for cell in cells): cells for cells in executed}
    for chapter in chapters:
        for cell in by_source[tuple(cell["source"] for cell in code_of(read[chapter]))]:
            assert cell["execution_count"], cell["source"]
            assert all(output["output_type"] != "error" for output in cell["outputs"]), cell["source"]


def code_of(path):
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def test_exercises_are_shown_unsolved_and_unexecuted_and_can_be_downloaded(html, pages):
    for unit in UNITS:
        page = pages[f"exercises/{unit}/{unit}.html"]
        assert "YOUR CODE HERE" in page.text
        assert not page.select(".cell_output")
        release = f"exercises/{unit}/{unit}.ipynb"
        assert page.find("a", href=f"../../_sources/{release}")
        assert (html / "_sources" / release).read_bytes() == (ROOT / release).read_bytes()


def test_no_solution_is_published(html):
    told = re.compile(rb"BEGIN SOLUTION|END SOLUTION|BEGIN HIDDEN TESTS|solutions/\w+/\w+")
    for path in html.rglob("*"):
        # One page shows instructors how the lines are marked that students do not get: by an example.
        marks = [b"BEGIN SOLUTION", b"END SOLUTION"] if "own_task" in path.name else []
        if path.is_file():
            assert told.findall(path.read_bytes()) == marks, path


# What a page holds


def test_every_image_says_what_it_shows(pages):
    for name, page in pages.items():
        for image in page.select("img"):
            alt = image.get("alt", "").strip()
            assert len(alt.split()) >= 3, f"{name}: {image}"
            assert not re.search(r"\.(png|svg|jpe?g)$", alt), f"{name}: {image}"


def test_every_picture_has_its_room_before_it_arrives(pages):
    for name, page in pages.items():
        for image in page.select("main img"):
            assert int(image["width"]) * int(image["height"]) > 0, f"{name}: {image}"


def test_no_page_names_a_place_on_the_machine_that_built_it(html, pages):
    for name in pages:
        assert str(ROOT) not in (html / name).read_text(encoding="utf-8"), name


def test_no_page_loads_anything_from_elsewhere(html, pages):
    elsewhere = re.compile(r"\s*(https?:)?//")
    loading = {
        "script": "src",
        "img": "src",
        "iframe": "src",
        "source": "src",
        "link": "href",
        "object": "data",
    }
    for name, page in pages.items():
        for tag, attribute in loading.items():
            for element in page.find_all(tag, {attribute: elsewhere}):
                assert element.get("rel") == ["canonical"], f"{name}: {element}"
    for sheet in html.rglob("*.css"):
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", sheet.read_text()), sheet


def test_every_passage_that_a_hint_points_to_exists(pages):
    for task in checks.tasks():
        wrongs = [wrong for mistake in task.single_mistakes for wrong in mistake.wrongs]
        reads = {wrong.read: wrong.label for wrong in wrongs} | {law.read: law.sentence for law in task.laws}
        for read, words in reads.items():
            chapter, anchor = read.split("#")
            if LEFT_OUT & {task.unit, chapter}:
                continue
            where = f"{task.unit}, {task.name}, {words}: {read}"
            assert f"book/{chapter}.html" in pages, where
            assert pages[f"book/{chapter}.html"].find(id=anchor), where


@pytest.mark.parametrize("unit", ["attention_operator"])
def test_the_script_of_interactive_figures_is_loaded_where_there_is_one(unit, pages):
    with_figure = {name for name, page in pages.items() if page.select(".try")}
    with_script = {name for name, page in pages.items() if page.select("script[src*='interactive.js']")}
    assert f"book/{unit}.html" in with_figure
    assert with_script == with_figure


def test_the_footer_names_both_licences(pages):
    footer = pages["index.html"].select_one(".bd-footer-content").text
    assert "CC BY 4.0" in footer
    assert "BSD-3-Clause" in footer


# Finding one's way


def test_every_unit_has_a_card_with_a_picture(pages):
    cards = pages["index.html"].select(".unit")
    for unit in UNITS:
        card = next(card for card in cards if card.find("a", href=f"book/{unit}.html"))
        assert card.find("a", href=f"exercises/{unit}/{unit}.html"), unit
        assert Path(card.img["src"]).name == f"{unit}.svg"


def test_the_pictures_are_those_that_the_program_draws():
    pictures = program("pictures")
    for picture in pictures.PICTURES:
        path = pictures.FOLDER / f"{picture.__name__}.svg"
        assert path.read_text() == pictures.svg(picture), f"{path}: run python book/pictures.py"


def test_every_chapter_asks_and_folds_its_answers(pages):
    for unit in ["intro", *UNITS]:
        section = pages[f"book/{unit}.html"].find("section", id="check-yourself")
        assert len(section.select(".admonition.dropdown")) >= 4, unit


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_chapter_leaves_a_claim_to_the_reader(chapter, pages):
    # What does not hold stops the build; what is printed are findings. Truth values in tensors are data.
    for output in pages[f"book/{chapter}.html"].select(".cell_output pre"):
        printed = re.sub(r"tensor\(\[.*?\]\)", "", output.text, flags=re.DOTALL)
        assert not re.search(r"\b(True|False)\b", printed), output.text


def test_the_glossary_has_the_notation_and_the_text_links_to_every_term(pages):
    glossary = pages["book/glossary.html"]
    terms = [term["id"] for term in glossary.select("dl.glossary dt[id]")]
    names = [term.text.strip("#\n ").lower() for term in glossary.select("dl.glossary dt[id]")]
    assert names == sorted(names)
    assert len(terms) > 30
    linked = {
        link["href"].split("#")[1]
        for name, page in pages.items()
        if name != "book/glossary.html"
        for link in page.select("a[href*='glossary.html#']")
    }
    assert linked <= set(terms)
    assert linked == set(terms) or LEFT_OUT
    notation = pages["book/intro.html"].select_one("#notation").find_next("table")
    in_code = {
        name
        for row in notation.select("tbody tr")
        for name in row.select_one("td:nth-of-type(2)").text.split()
    }
    explained = {code.text for code in glossary.select("code")}
    for name in ("query", "key", "value", "scores", "weights", "output", "x", "mask"):
        assert name in in_code
        assert name in explained


def test_every_link_within_the_book_leads_somewhere(html, pages):
    labels = {
        name: {element.get("id") for element in page.find_all(id=True)}
        | {element.get("name") for element in page.find_all(attrs={"name": True})}
        for name, page in pages.items()
    }
    for name, page in pages.items():
        for link in page.select("main a[href], nav a[href]"):
            address, _, anchor = link["href"].partition("#")
            if re.match("[a-z]+:", address) or not (address or anchor):
                continue
            target = (html / name).parent / address if address else html / name
            assert target.exists(), f"{name}: {link}"
            if anchor and target.suffix == ".html":
                other = str(target.resolve().relative_to(html.resolve()))
                assert anchor in labels[other], f"{name}: {link}"


# How light a page is


def loaded_by(name, page, html):
    """The files that a browser loads with a page: its scripts, sheets, pictures and fonts, and itself."""
    files = {html / name}
    for tag, attribute in [("script", "src"), ("link", "href"), ("img", "src")]:
        for element in page.find_all(tag, {attribute: True}):
            if (tag != "link" or "stylesheet" in element["rel"]) and element.get("loading") != "lazy":
                files.add((html / name).parent / element[attribute].split("?")[0])
    files.add(html / "_static/vendor/fontawesome/webfonts/fa-solid-900.woff2")
    if page.find("math"):
        files.add(html / "_static/fonts/stix-two-math.woff2")
    return {path.resolve() for path in files}


@functools.cache
def packed(path):
    """How many bytes of a file a server sends; most files belong to many pages."""
    return len(gzip.compress(path.read_bytes()))


def test_no_page_is_heavy(html, pages):
    weights = {name: sum(map(packed, loaded_by(name, page, html))) / 1000 for name, page in pages.items()}
    assert all(weight < 300 for weight in weights.values()), weights
    # What every page needs, pictures apart.
    assert weights["book/bibliography.html"] < 130, weights


def test_no_page_loads_what_it_does_not_use(pages):
    for name, page in pages.items():
        scripts = " ".join(script.get("src", "") for script in page.find_all("script"))
        assert "fontawesome" not in scripts, name
        assert name == "search.html" or "searchindex" not in scripts, name


def signs_of(font):
    """The characters that a font can draw."""
    return {chr(code) for code in TTFont(font).getBestCmap()}


def test_every_icon_is_in_the_style_sheet_and_in_the_font(html, pages):
    sheet = (html / "_static/styles/pydata-sphinx-theme.css").read_text()
    rules = re.findall(r'((?:\.fa-[\w-]+:before,?)+)\{content:"([^"]*)"\}', sheet)
    drawn = {name: sign for names, sign in rules for name in re.findall(r"fa-[\w-]+", names)}
    font = signs_of(html / "_static/vendor/fontawesome/webfonts/fa-solid-900.woff2")
    named_by_number = set(re.findall('--pst-icon-[^:]*:\\s*"([\ue000-\uf8ff])"', sheet))
    assert len(named_by_number) > 10
    assert len(named_by_number - font) == 2  # GitHub's and GitLab's, of another font
    for name, page in pages.items():
        for icon in page.select("i[class*=fa-]"):
            wanted = set(icon["class"]) - {"fa-solid", "fa-lg", "fas", "theme-switch"}
            assert wanted <= set(drawn), f"{name}: {icon}"
            for one in wanted:
                sign = re.sub(r"\\([0-9a-f]+)\s?", lambda match: chr(int(match[1], 16)), drawn[one])
                assert sign in font, f"{name}: {icon}"


def test_every_sign_of_a_formula_is_in_the_font(html, pages):
    font = signs_of(html / "_static/fonts/stix-two-math.woff2")
    # A letter by itself is a variable, which browsers draw with another sign: the italic one.
    for upright, italic in [("A", 0x1D434), ("a", 0x1D44E), ("α", 0x1D6FC)]:
        letters = [(chr(ord(upright) + i), chr(italic + i)) for i in range(25)]
        assert all(b in font for _, b in letters if b != "\U0001d455")  # of which h is elsewhere
    assert "ℎ" in font
    invisible = set("\u2061\u2062\u2063\u200b \n")
    for name, page in pages.items():
        for formula in page.select("math"):
            missing = set(formula.text) - invisible - font
            assert not missing, f"{name}: {formula} needs {missing}: LICENSES.md says how to add a sign"
        assert not page.select(".math > code"), name
        high = page.select("msqrt :is(mfrac, msqrt, munder, munderover, mtable)")
        assert not high, f"{name}: the font has roots of one line only, see LICENSES.md: {high}"


def test_lines_of_code_and_output_are_seen_whole_on_a_desktop(pages):
    # Beside the sidebars of a screen of 1280 pixels there is room for 80 characters, 76 where code is folded.
    wide = [
        f"{name}: {line}"
        for name, page in pages.items()
        if not name.startswith("_modules")
        for block in page.select("article pre")
        for line in block.text.splitlines()
        if len(line) > (76 if block.find_parent("details") else 80)
    ]
    assert not wide, "\n".join(wide)
