"""The built book: complete, executed, self-contained, accessible, and silent about solutions."""

import functools
import gzip
import hashlib
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup
from filelock import FileLock
from fontTools.ttLib import TTFont

from attncourse import checks
from attncourse.grading import rules

ROOT = Path(__file__).parents[1]
ALL = sorted({task.unit for task in checks.tasks()})
UNITS = rules.taught(ROOT, ALL)  # those that the book has
LEFT_OUT = {*(set(ALL) - set(UNITS)), *(["paths"] if UNITS != ALL else [])}

pytestmark = pytest.mark.slow

# What cells use, and what else goes into the book. A build is kept as long as they are the same.
USED_BY_CELLS = ["attncourse", "benchmarks", "requirements.txt"]
INPUTS = [*USED_BY_CELLS, "_config.yml", "_toc.yml", "course.toml", "book", "exercises", "index.md"]


def digest(names):
    """Hash the names and contents of files and folders of the repository."""
    found = hashlib.sha256(f"{sys.version} {UNITS}".encode())
    for name in names:
        for path in sorted([ROOT / name, *(ROOT / name).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                found.update(f"{path.relative_to(ROOT)}\0".encode())
                found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def build(builder):
    """Build the book as a release is built, warnings being errors; give status, log and folder.

    The first process of tests that comes here builds, the others wait. What is left by an earlier run
    of the tests is used if it was made of the same files; of its cells, those that are the same.
    """
    place = ROOT / "_build/tests"
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        cells, files = digest(USED_BY_CELLS), digest(INPUTS)
        for other in place.glob("*/"):
            if other.name != cells:
                shutil.rmtree(other)
        folder, done = place / cells / "_build", place / cells / f"{builder}.json"
        built = json.loads(done.read_text()) if done.exists() else {}
        if built.get("of") != files:
            if builder == "html":
                shutil.rmtree(folder / "html", ignore_errors=True)
                shutil.rmtree(folder / ".doctrees", ignore_errors=True)
            command = [
                Path(sysconfig.get_path("scripts"), "jupyter-book"),
                "build",
                ".",
                "-W",
                "-n",
                "--keep-going",
            ]
            run = subprocess.run(
                [*command, "--builder", builder, "--path-output", place / cells],
                cwd=ROOT,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            built = {"of": files, "status": run.returncode, "log": run.stdout}
            if not run.returncode:
                done.write_text(json.dumps(built))
        return built["status"], built["log"], folder


@pytest.fixture(scope="session")
def built():
    return build("html")


@pytest.fixture(scope="session")
def html(built):
    status, _, folder = built
    if status:
        pytest.fail("the book did not build: see test_the_book_builds_without_a_warning", pytrace=False)
    return folder / "html"


def names_of_pages(html):
    """The paths of all pages within the book."""
    paths = (path.relative_to(html) for path in html.rglob("*.html"))
    return sorted(str(path) for path in paths if path.parts[0] != "_static")


@pytest.fixture(scope="module")
def pages(html):
    """Every page of the book, parsed: {path within the book: soup}."""
    return {name: BeautifulSoup((html / name).read_text(), "html.parser") for name in names_of_pages(html)}


def program(name):
    """A Python file of the book, as a module."""
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"book/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def extension():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "book/_ext")
        return program("_ext/attncourse_book")


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


def test_the_script_of_interactive_figures_is_loaded_where_there_is_one(pages):
    with_figure = {name for name, page in pages.items() if page.select(".try")}
    with_script = {name for name, page in pages.items() if page.select("script[src*='interactive.js']")}
    assert "book/attention_operator.html" in with_figure
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


CHAPTERS = ["intro", *UNITS]


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_no_chapter_leaves_a_claim_to_the_reader(chapter, pages):
    # What does not hold stops the build; what is printed are findings. Truth values in tensors are data.
    for output in pages[f"book/{chapter}.html"].select(".cell_output pre"):
        printed = re.sub(r"tensor\(\[.*?\]\)", "", output.text, flags=re.DOTALL)
        assert not re.search(r"\b(True|False)\b", printed), output.text


# Where the first picture or figure to try ends that is seen at all.
FIRST_PICTURE = """[...document.querySelectorAll("article :is(figure img, .try)")]
    .find(picture => picture.checkVisibility()).getBoundingClientRect().bottom"""


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_a_chapter_shows_its_idea_on_the_first_screen(width, height, html, browser):
    context = browser.new_context(viewport={"width": width, "height": height})
    for chapter in CHAPTERS:
        page, _ = opened(context, f"{html.as_uri()}/book/{chapter}.html")
        assert page.evaluate(FIRST_PICTURE) <= height, chapter
        page.close()
    page, _ = opened(context, f"{html.as_uri()}/index.html")
    card = page.locator(".unit img").first.bounding_box()
    assert card["y"] + card["height"] <= height, card
    context.close()


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


def test_no_page_is_heavy(html, pages):
    weights = {
        name: sum(len(gzip.compress(path.read_bytes())) for path in loaded_by(name, page, html)) / 1000
        for name, page in pages.items()
    }
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


# The extension


def test_cells_run_again_when_the_package_changes_and_only_then(extension, html, tmp_path):
    package = shutil.copytree(ROOT / "attncourse", tmp_path / "attncourse")
    digest = extension.package_digest(ROOT / "attncourse")
    assert (html.parent / ".jupyter_cache" / digest).is_dir()
    assert extension.package_digest(package) == digest
    (package / "attention_operator.py").open("a").write("\n# changed")
    assert extension.package_digest(package) != digest


DRAWN = """\
---
jupytext: {{text_representation: {{extension: .md, format_name: myst}}}}
kernelspec: {{name: python3, display_name: Python 3}}
---
# Page

```{{code-cell}} ipython3
---
mystnb: {metadata}
---
import matplotlib.pyplot as plt
_ = plt.plot([0, 1])
```
"""


def build_of(folder, settings=""):
    (folder / "conf.py").write_text(
        f"import sys; sys.path.append({str(ROOT / 'book/_ext')!r})\n"
        "extensions = ['myst_nb', 'sphinx_book_theme', 'attncourse_book']\n"
        "html_theme = 'sphinx_book_theme'; show_warning_types = True; html_math_renderer = 'mathml'\n"
        "myst_enable_extensions = ['dollarmath']; html_static_path = []\n"
        f"{settings}\n"
    )
    return subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", folder, folder / "html"],
        capture_output=True,
        text=True,
    )


def warnings_of_a_build(folder, settings=""):
    run = build_of(folder, settings)
    warnings = re.findall(r"\[attncourse\.(\w+)\]", run.stderr)
    assert run.returncode == bool(warnings), run.stderr
    return warnings


def test_a_drawn_figure_without_alternative_or_caption_is_a_warning(tmp_path):
    pages = {
        "index": ("{image: {alt: A rising line}, figure: {caption: A line.}}", set()),
        "without_caption": ("{image: {alt: A rising line}}", {"caption"}),
        "without_alternative": ("{figure: {caption: A line.}}", {"alt"}),
        "without_both": ("{}", {"alt", "caption"}),
    }
    for name, (metadata, _) in pages.items():
        (tmp_path / f"{name}.md").write_text(DRAWN.format(metadata=metadata))
    with (tmp_path / "index.md").open("a") as file:
        file.write("\n```{toctree}\n" + "\n".join(pages) + "\n```\n")
    run = build_of(tmp_path)
    assert run.returncode
    warned = re.findall(r"(\w+)\.md.*\[attncourse\.(\w+)\]", run.stderr)
    assert sorted(warned) == sorted((name, one) for name, (_, missing) in pages.items() for one in missing)


def test_output_is_shown_as_it_was_printed_in_however_many_pieces(tmp_path):
    text = "a: 1\n\nb:  2\n"
    pieces = [
        nbformat.v4.new_output("stream", name="stdout", text=piece)
        for piece in ("a", ": 1", "\n\nb: ", " 2\n")
    ]
    cells = [
        nbformat.v4.new_markdown_cell("# Page"),
        nbformat.v4.new_code_cell("...", execution_count=1, outputs=pieces),
    ]
    metadata = {"language_info": {"name": "python", "pygments_lexer": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), tmp_path / "index.ipynb")
    assert warnings_of_a_build(tmp_path, "nb_execution_mode = 'off'; nb_merge_streams = True") == []
    page = BeautifulSoup((tmp_path / "html/index.html").read_text(), "html.parser")
    assert [output.text for output in page.select(".cell_output pre")] == [text]


def test_a_formula_becomes_mathml_or_a_warning(tmp_path):
    right = "$x^2$\n\n$$\na &= b \\\\\nc &= d\n$$\n\n$P'$, $P'^\\top$ and ($X'_t$).\n"
    (tmp_path / "index.md").write_text(f"# Page\n\n{right}\n$\\frac{{1}}{{2$ and $\\nonsense$\n")
    assert warnings_of_a_build(tmp_path) == ["math", "math"]
    page = BeautifulSoup((tmp_path / "html/index.html").read_text(), "html.parser")
    square, lines, *primed = page.select("math")
    assert str(square.msup) == "<msup><mi>x</mi><mn>2</mn></msup>"
    assert lines["display"] == "block"
    assert len(lines.select("mtr")) == 2
    # A prime is no superscript, which would be drawn too small and too high.
    assert [formula.text for formula in primed] == ["P′", "P′⊤", "X′t"]
    assert [
        [script.contents[-1].text for script in formula.select("msup, msub, msubsup")] for formula in primed
    ] == [
        [],
        ["⊤"],
        ["t"],
    ]
    # What a line must not part.
    assert [part.text for part in page.select(".unbroken")] == ["P′,", "(X′t)."]
    assert [code.text for code in page.select(".math > code")] == [r"\frac{1}{2", r"\nonsense"]


def test_a_warning_is_given_again_by_the_next_build(tmp_path):
    shutil.copy(ROOT / "book/_static/favicon.svg", tmp_path)
    (tmp_path / "index.md").write_text("# Page\n\n![](favicon.svg)\n")
    assert warnings_of_a_build(tmp_path) == ["alt"]
    assert warnings_of_a_build(tmp_path) == ["alt"]
    (tmp_path / "index.md").write_text("# Page\n\n![An attention matrix](favicon.svg)\n")
    assert warnings_of_a_build(tmp_path) == []


def test_a_link_finds_a_label_of_another_page(tmp_path):
    (tmp_path / "index.md").write_text("# Page\n\n[there](other.md#a-label)\n\n```{toctree}\nother\n```\n")
    (tmp_path / "other.md").write_text("# Other\n\n(a-label)=\n## Quite another name\n")
    assert warnings_of_a_build(tmp_path) == []
    assert 'href="other.html#a-label"' in (tmp_path / "html/index.html").read_text()


SMALL = {
    "index.md": """# Some name

:::{container} unit
[One](book/one.md) and [its tasks](exercises/one/one.md)
:::

:::{container} unit
[Two](book/two.md) and [its tasks](exercises/two/two.md)
:::

:::{container} whole-course
There are [ways](book/paths.md#short).
:::

The [last](book/last.md) of all.
""",
    "book/one.md": "# One\n\nSee [**what** comes next](two.md#a-label), or [the end](last.md).\n",
    "book/two.md": "# Two\n\n(a-label)=\n## Heading\n",
    "book/last.md": "# Last\n\nThe page [ways](paths.md) says which.\n",
    "book/paths.md": "# Ways\n\n(short)=\n## Short\n\n[Two](two.md)\n",
    "exercises/one/one.md": "# Tasks 1\n\nThere are *ten*. On the [way](../../book/paths.md), *three*. Go.\n",
    "exercises/two/two.md": "# Tasks 2\n",
    "_toc.yml": """{format: jb-book, root: index, parts: [
 {caption: "Some: 3 hours", chapters: [
  {file: book/paths}, {file: book/one, sections: [{file: exercises/one/one}]}]},
 {caption: "More: 2 hours", chapters: [{file: book/two, sections: [{file: exercises/two/two}]}]},
 {caption: Reference, chapters: [{file: book/last}]}]}
""",
}


def test_a_book_without_a_unit_has_nothing_that_leads_to_it(tmp_path, monkeypatch):
    for name, text in SMALL.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    settings = (
        "extensions.insert(0, 'sphinx_external_toc'); external_toc_exclude_missing = True; nitpicky = True\n"
        "myst_enable_extensions = ['colon_fence']; html_title = 'The name of the book'; html_logo = ''"
    )
    monkeypatch.setenv("UNITS", "")
    assert build_of(tmp_path, settings).stderr == ""
    html = tmp_path / "html"
    front = BeautifulSoup((html / "index.html").read_text(), "html.parser")
    assert front.h1.text.startswith("The name of the book")
    assert "book/two.html" in str(front)
    assert "There are ways." in front.main.text
    # The same, in the same place, without one; and under a name of its own.
    monkeypatch.setenv("UNITS", "one")
    (tmp_path / "logo.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    rules = "title = 'Ours'\nauthors = 'A. Teacher'\nlogo = 'logo.svg'\nbook = 'https://example.org/ours'\n"
    (tmp_path / "course.toml").write_text(rules)
    assert build_of(tmp_path, settings).stderr == ""
    names = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    assert {"book/one.html", "exercises/one/one.html", "book/last.html"} <= names
    assert not names & {"book/two.html", "exercises/two/two.html", "book/paths.html"}
    pages = {
        name: BeautifulSoup((html / name).read_text(), "html.parser")
        for name in names
        if not name.startswith("_")
    }
    for name, page in pages.items():
        assert not re.search(r"two|paths|More|2 hours|3 hours", str(page)), name
        assert not page.select("a.download, a.reference[href*='_downloads']"), name
    text = {name: " ".join(page.main.text.split()) for name, page in pages.items() if page.main}
    assert "See what comes next, or the end." in text["book/one.html"]
    assert pages["book/one.html"].select("a[href='last.html']")
    assert "There are ten. Go." in text["exercises/one/one.html"]
    assert "says which" not in text["book/last.html"]
    front = pages["index.html"]
    assert len(front.select(".unit")) == 1
    assert front.h1.text.startswith("Ours")
    assert front.title.text.endswith("Ours")
    assert front.select(".navbar-brand img[src*='logo.svg']")
    assert "this edition: A. Teacher" in front.text
    assert front.find("link", rel="canonical")["href"] == "https://example.org/ours/index.html"
    assert "Some" in front.select_one("nav.bd-links").text


def page_with_a_cell(title, code):
    return DRAWN.partition("# Page")[0].replace("{{", "{").replace("}}", "}") + (
        f"# {title}\n\n```{{code-cell}} ipython3\n{code}\n```\n"
    )


MEETING = """import pathlib, time
pathlib.Path("{mine}").touch()
for _ in range(600):
    if pathlib.Path("{other}").exists():
        break
    time.sleep(0.1)
else:
    raise TimeoutError
print("met {other}")"""


@pytest.mark.skipif(os.cpu_count() == 1, reason="needs two cores")
def test_pages_run_side_by_side_and_only_once(tmp_path):
    for mine, other in [("index", "second"), ("second", "index")]:
        page = page_with_a_cell(mine, MEETING.format(mine=mine, other=other))
        (tmp_path / f"{mine}.md").write_text(page)
    with (tmp_path / "index.md").open("a") as file:
        file.write("\n```{toctree}\nsecond\n```\n")
    settings = "nb_execution_mode = 'cache'; exclude_patterns = ['.jupyter_cache', 'jupyter_execute']"
    first = build_of(tmp_path, settings)
    assert (first.returncode, first.stderr) == (0, "")
    assert "met index" in (tmp_path / "html/second.html").read_text()
    with (tmp_path / "index.md").open("a") as file:
        file.write("\nA sentence more.\n")
    again = build_of(tmp_path, settings)
    assert again.returncode == 0
    assert ("running cells" in first.stdout, "running cells" in again.stdout) == (True, False)


def test_a_failing_cell_fails_every_build_until_it_is_mended(tmp_path):
    settings = "nb_execution_mode = 'cache'; exclude_patterns = ['.jupyter_cache', 'jupyter_execute']"
    (tmp_path / "index.md").write_text(page_with_a_cell("Page", "1 / 0"))
    for _ in range(2):
        run = build_of(tmp_path, settings)
        assert run.returncode
        assert "ZeroDivisionError" in run.stderr
        assert str(tmp_path / "index.md") in run.stderr
    (tmp_path / "index.md").write_text(page_with_a_cell("Page", "1 / 1"))
    assert build_of(tmp_path, settings).returncode == 0


# The book in a browser


@pytest.fixture(scope="session")
def served(html):
    """The address of the book on a web server of its own."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=html))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def opened(context, address):
    """Open a page."""
    page = context.new_page()
    problems = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if leaves(request.url) else None)
    page.on("requestfailed", lambda request: problems.append(f"{request.url} {request.failure}"))
    page.goto(address, wait_until="load")
    return page, problems


def leaves(url):
    return not re.match(r"(file|data|blob|http://127\.0\.0\.1)[:/]", url)


# Of those that are loaded only when they come into sight nothing could be said before.
DISTORTED = """Promise.all([...document.querySelectorAll("main img")].map(async image => {
    if (!image.checkVisibility()) return "";  // that of the other theme
    image.loading = "eager";
    await image.decode().catch(() => null);
    const around = side => parseFloat(getComputedStyle(image)[`padding${side}`]);
    const width = image.clientWidth - around("Left") - around("Right");
    const height = image.clientHeight - around("Top") - around("Bottom");
    const off = Math.abs(width / height * image.naturalHeight / image.naturalWidth - 1);
    return off <= 0.02 ? "" : image.src;
})).then(all => all.filter(Boolean))"""


# What browsers report as the cumulative layout shift; they call 0.1 good.
MOVED = """new Promise(resolve => {
    let moved = 0;
    new PerformanceObserver(list => { for (const entry of list.getEntries()) moved += entry.value })
        .observe({type: "layout-shift", buffered: true});
    setTimeout(() => resolve(moved), 50);
})"""


# Wide formulas whose beginning is out of sight, and those that a line parts from their punctuation.
BROKEN = """[
    ...[...document.querySelectorAll("div.math")].filter(box =>
        box.querySelector("math").getBoundingClientRect().left < box.getBoundingClientRect().left - 1),
    ...[...document.querySelectorAll(".unbroken")].filter(part => {
        const pieces = [...part.getClientRects()];
        return pieces.length && pieces.at(-1).left < pieces[0].left;  // none where it is folded
    }),
].map(part => part.textContent)"""


TOO_WIDE = "document.documentElement.scrollWidth - window.innerWidth"


# Of all words in code that have the same colours three are enough to look at.
THIN = """
const seen = {};
for (const word of document.querySelectorAll("pre span")) {
    const kind = `${word.closest("div")?.className} ${word.className}`;
    seen[kind] = (seen[kind] ?? 0) + 1;
    if (seen[kind] > 3) word.replaceWith(word.textContent);
}
"""


def faults_of(page, name, axe=None, **rules):
    """What is wrong with a page as it is shown: {what: how}."""
    faults = {}
    page.evaluate(f"() => {{ {THIN} }}")
    if axe and (found := axe.run(page, options={"resultTypes": ["violations"], **rules})).violations_count:
        faults[name] = found.generate_report()
    if (wide := page.evaluate(TOO_WIDE)) > 0:
        faults[f"{name} (width)"] = f"{wide} px wider than the screen"
    if broken := page.evaluate(BROKEN):
        faults[f"{name} (formulas)"] = f"{broken} broken, or cut off at their beginning"
    if distorted := page.evaluate(DISTORTED):
        faults[f"{name} (pictures)"] = f"{distorted} not in proportion"
    return faults


def faults_of_loading(page, name, problems):
    page.wait_for_load_state("networkidle")
    faults = {f"{name} (loading)": problems} if problems else {}
    if (moved := page.evaluate(MOVED)) > 0.1:
        faults[f"{name} (moves)"] = f"the text moves by {moved:.2f} while the page loads"
    return faults


def told(faults):
    return "\n".join(f"{name}: {fault}" for name, fault in faults.items())


@pytest.mark.parametrize("part", range(4))
def test_every_page_works_offline_is_accessible_and_fits_the_screen(part, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    faults = {}
    for name in names_of_pages(html)[part::4]:
        page, problems = opened(context, f"{html.as_uri()}/{name}")
        faults |= faults_of_loading(page, name, problems)
        faults |= faults_of(page, f"{name} at 1280", axe)
        page.set_viewport_size({"width": 390, "height": 800})
        faults |= faults_of(page, f"{name} at 390")
        page.close()
    context.close()
    assert not faults, told(faults)


def pages_that_show_everything(html):
    """A few pages that have between them every kind of element that is in the book.

    What is inside of interactive figures is for test_interactive.py.
    """
    kinds = {
        name: set(re.findall(r' class="((?!try-)[^"]*)"', (html / name).read_text()))
        for name in names_of_pages(html)
    }
    chosen, missing = [], set().union(*kinds.values())
    while missing:
        best = max(kinds, key=lambda name: len(kinds[name] & missing))
        chosen.append(best)
        missing -= kinds[best]
    return chosen


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 390), ("dark", 1280)])
def test_every_kind_of_page_is_accessible_in_other_colours_and_widths(scheme, width, html, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    # In the dark a page is the same, but for its colours.
    colours = {"type": "rule", "values": ["color-contrast", "link-in-text-block"]}
    rules = {"runOnly": colours} if scheme == "dark" else {}
    faults = {}
    for name in pages_that_show_everything(html):
        page, problems = opened(context, f"{html.as_uri()}/{name}")
        faults |= faults_of_loading(page, name, problems)
        faults |= faults_of(page, name, axe, **rules)
        page.close()
    context.close()
    assert not faults, told(faults)


def test_every_kind_of_page_works_from_a_server(html, served, browser):
    context = browser.new_context()
    faults = {}
    for name in [*pages_that_show_everything(html), "search.html?q=softargmax"]:
        page, problems = opened(context, f"{served}/{name}")
        faults |= faults_of_loading(page, name, problems)
        page.close()
    context.close()
    assert not faults, told(faults)


# Of each pair of figures the one that is seen, if there are two and it is loaded.
SEEN_FIGURES = """[...document.querySelectorAll("article img:is(.in-light, .in-dark)")]
    .filter(image => image.checkVisibility()).map(image => image.className)"""


@pytest.mark.parametrize(("scheme", "ground"), [("light", "#ffffff"), ("dark", "#121212")])
def test_figures_have_the_colours_of_the_theme(scheme, ground, html, pages, browser):
    context = browser.new_context(color_scheme=scheme)
    page, problems = opened(context, f"{html.as_uri()}/book/masking.html")
    figures = len(pages["book/masking.html"].select("article img.in-light"))
    assert page.evaluate(SEEN_FIGURES) == [f"in-{scheme}"] * figures
    assert figures
    # The ground on which test_plots.py measures the contrasts.
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert [int(part) for part in re.findall(r"\d+", colour)] == list(bytes.fromhex(ground[1:]))
    page.locator(f"img.in-{scheme}").last.scroll_into_view_if_needed()
    # Pictures are loaded when they come into sight.
    page.wait_for_function(f"document.querySelectorAll('img.in-{scheme}').item({figures} - 1).naturalWidth")
    assert not problems
    context.close()


# Code or a table that is wider than its box, without the shadow that says so.
UNSIGNED = """[...document.querySelectorAll("article *")].filter(box => {
    const style = getComputedStyle(box);
    return box.scrollWidth > box.clientWidth + 1 && ["auto", "scroll"].includes(style.overflowX)
        && !box.matches("div.math") && (style.backgroundImage.match(/gradient/g) ?? []).length < 4;
}).map(box => box.outerHTML.slice(0, 200))"""


def test_what_scrolls_on_a_phone_says_so(html, pages, browser):
    context = browser.new_context(viewport={"width": 390, "height": 844})
    for name in ("book/masking.html", "book/instructors.html"):
        page, _ = opened(context, f"{html.as_uri()}/{name}")
        assert page.locator("article pre").count()
        assert page.evaluate(UNSIGNED) == [], name
        page.close()
    context.close()


LOADED_FONTS = (
    "document.fonts.ready.then(fonts => [...fonts].filter(f => f.status == 'loaded').map(f => f.family))"
)


def test_formulas_have_their_font_from_a_file_too(html, browser):
    context = browser.new_context()
    page, _ = opened(context, f"{html.as_uri()}/book/api.html")
    assert page.locator("math").count()
    assert "STIX Two Math" in page.evaluate(LOADED_FONTS)
    context.close()


@pytest.mark.parametrize("way", ["file", "http"])
def test_the_search_finds(way, html, served, browser):
    base = html.as_uri() if way == "file" else served
    context = browser.new_context()
    page, problems = opened(context, f"{base}/index.html")
    page.keyboard.press("Control+k")
    page.get_by_role("searchbox").fill("softargmax")
    page.keyboard.press("Enter")
    # One hit after the other appears.
    page.wait_for_selector('#search-results ul.search a[href*="book/attention_operator.html"]')
    assert not problems
    context.close()


# So that nothing flashes or moves when the theme's scripts arrive.
@pytest.mark.parametrize(
    ("scheme", "chosen", "theme"), [("light", "", "light"), ("dark", "", "dark"), ("light", "dark", "dark")]
)
def test_a_page_has_its_colours_without_the_scripts_of_the_theme(scheme, chosen, theme, html, browser):
    context = browser.new_context(color_scheme=scheme)
    page = context.new_page()
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(f"{html.as_uri()}/index.html")
    if chosen:
        page.evaluate("theme => { localStorage.mode = localStorage.theme = theme }", chosen)
        page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    context.close()


def test_a_page_has_colours_in_a_browser_without_scripts(html, browser):
    context = browser.new_context(java_script_enabled=False)
    page, _ = opened(context, f"{html.as_uri()}/book/students.html")
    code = page.locator("article code").first
    assert code.evaluate("code => getComputedStyle(code).backgroundColor") != "rgba(0, 0, 0, 0)"
    context.close()


def test_the_theme_can_be_switched(html, browser):
    context = browser.new_context(color_scheme="light")
    page, _ = opened(context, f"{html.as_uri()}/index.html")
    themes = set()
    for _ in range(3):
        page.locator(".theme-switch-button:visible").click()
        themes.add(page.evaluate("document.documentElement.dataset.theme"))
    assert themes == {"light", "dark"}
    context.close()


# The book on paper


@pytest.fixture(scope="session")
def one_page(html):
    """The whole book as one HTML page, in the folder of the other pages' build."""
    status, log, folder = build("singlehtml")
    assert status == 0, log
    return folder / "singlehtml/index.html"


CUT_OFF = """
[...document.querySelectorAll("article :is(pre, table, img, math, figure, svg, p, li, dt)")].filter(part => {
    const box = part.getBoundingClientRect();
    return box.width && (box.right > innerWidth + 1 || part.scrollWidth > part.clientWidth + 1
        && getComputedStyle(part).overflowX != "visible");
}).map(part => part.outerHTML.slice(0, 300))
"""


def test_the_book_prints_whole(one_page, pages, browser, tmp_path):
    pdf = program("pdf")
    page = pdf.open_book(browser, one_page)
    figures = page.locator("article img")
    assert figures.count() == sum(len(soup.select("article img:not(.in-dark)")) for soup in pages.values())
    assert figures.evaluate_all("images => images.every(image => image.complete && image.naturalWidth)")
    # As wide as the paper between its margins; 96 px are an inch, 25.4 mm.
    page.set_viewport_size({"width": int((210 - 2 * 17) / 25.4 * 96 / pdf.PAPER["scale"]), "height": 1000})
    page.emulate_media(media="print")
    assert page.evaluate(CUT_OFF) == []
    page.pdf(path=tmp_path / "book.pdf", **pdf.PAPER)
    page.close()
    assert len(re.findall(rb"/Type /Page\b", (tmp_path / "book.pdf").read_bytes())) > 100
