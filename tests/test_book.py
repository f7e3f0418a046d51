"""The built book: complete, executed, self-contained, accessible, and silent about solutions."""

import functools
import http.server
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

from attncourse import checks

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """Build the book as a release is built, warnings being errors; give the log and the folder."""
    output = tmp_path_factory.mktemp("book")
    command = [Path(sysconfig.get_path("scripts"), "jupyter-book"), "build", ".", "-W", "-n", "--keep-going"]
    run = subprocess.run(
        [*command, "--path-output", output],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return run, output / "_build"


@pytest.fixture(scope="session")
def html(built):
    run, folder = built
    if run.returncode:
        pytest.fail("the book did not build: see test_the_book_builds_without_a_warning", pytrace=False)
    return folder / "html"


@pytest.fixture(scope="session")
def pages(html):
    """Every page of the book, parsed: {path within the book: soup}."""
    return {
        str(path.relative_to(html)): BeautifulSoup(path.read_text(), "html.parser")
        for path in sorted(html.rglob("*.html"))
        if "_static" not in path.parts
    }


@pytest.fixture(scope="session")
def extension():
    spec = importlib.util.spec_from_file_location("attncourse_book", ROOT / "book/_ext/attncourse_book.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The build


def test_the_book_builds_without_a_warning(built):
    run, _ = built
    assert run.returncode == 0, run.stdout
    assert "WARNING:" not in run.stdout


def test_every_unit_has_its_chapter_and_its_exercise_in_the_book(pages):
    for unit in {task.unit for task in checks.tasks()}:
        assert f"book/{unit}.html" in pages
        assert f"exercises/{unit}/{unit}.html" in pages


def test_every_code_cell_of_a_chapter_was_executed(built, html):
    chapters = {path.stem for path in (ROOT / "book").glob("*.md") if "{code-cell}" in path.read_text()}
    executed = {path.stem: path for path in (html.parent / "jupyter_execute/book").glob("*.ipynb")}
    assert chapters
    assert chapters <= set(executed)
    for chapter in chapters:
        for cell in json.loads(executed[chapter].read_text())["cells"]:
            if cell["cell_type"] == "code":
                assert cell["execution_count"], cell["source"]
                assert all(output["output_type"] != "error" for output in cell["outputs"]), cell["source"]


def test_exercises_are_shown_unsolved_and_unexecuted_and_can_be_downloaded(html, pages):
    for unit in {task.unit for task in checks.tasks()}:
        page = pages[f"exercises/{unit}/{unit}.html"]
        assert "YOUR CODE HERE" in page.text
        assert not page.select(".cell_output")
        release = f"exercises/{unit}/{unit}.ipynb"
        assert page.find("a", href=f"../../_sources/{release}")
        assert (html / "_sources" / release).read_bytes() == (ROOT / release).read_bytes()


def test_no_solution_is_published(html):
    told = re.compile(rb"BEGIN SOLUTION|END SOLUTION|BEGIN HIDDEN TESTS|solutions/\w+/\w+")
    for path in html.rglob("*"):
        if path.is_file():
            assert not told.search(path.read_bytes()), path


# What a page holds


def test_every_image_says_what_it_shows(pages):
    for name, page in pages.items():
        for image in page.select("img"):
            alt = image.get("alt", "").strip()
            assert len(alt.split()) >= 3, f"{name}: {image}"
            assert not re.search(r"\.(png|svg|jpe?g)$", alt), f"{name}: {image}"


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
        for misconception in task.misconceptions:
            chapter, anchor = misconception.read.split("#")
            where = f"{task.unit}, {task.name}, {misconception.label}: {misconception.read}"
            assert f"book/{chapter}.html" in pages, where
            assert pages[f"book/{chapter}.html"].find(id=anchor), where


def test_the_footer_names_both_licences(pages):
    footer = pages["index.html"].select_one(".bd-footer-content").text
    assert "CC BY 4.0" in footer
    assert "BSD-3-Clause" in footer


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


def warnings_of_a_build(folder):
    (folder / "conf.py").write_text(
        f"import sys; sys.path.append({str(ROOT / 'book/_ext')!r})\n"
        "extensions = ['myst_nb', 'sphinx_book_theme', 'attncourse_book']\n"
        "html_theme = 'sphinx_book_theme'; show_warning_types = True\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", folder, folder / "html"],
        capture_output=True,
        text=True,
    )
    warnings = re.findall(r"\[attncourse\.(\w+)\]", run.stderr)
    assert run.returncode == bool(warnings), run.stderr
    return warnings


@pytest.mark.parametrize(
    ("metadata", "missing"),
    [
        ("{image: {alt: A rising line}, figure: {caption: A line.}}", []),
        ("{image: {alt: A rising line}}", ["caption"]),
        ("{figure: {caption: A line.}}", ["alt"]),
        ("{}", ["alt", "caption"]),
    ],
)
def test_a_drawn_figure_without_alternative_or_caption_is_a_warning(metadata, missing, tmp_path):
    (tmp_path / "index.md").write_text(DRAWN.format(metadata=metadata))
    assert warnings_of_a_build(tmp_path) == missing


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
    """Open a page and wait until its formulas are set."""
    page = context.new_page()
    problems = []
    page.on("console", lambda message: message.type == "error" and problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: problems.append(request.url) if leaves(request.url) else None)
    page.on("requestfailed", lambda request: problems.append(f"{request.url} {request.failure}"))
    page.goto(address, wait_until="load")
    page.evaluate("window.MathJax && MathJax.startup.promise")
    return page, problems


def leaves(url):
    return not re.match(r"(file|data|blob|http://127\.0\.0\.1)[:/]", url)


@pytest.mark.parametrize("way", ["file", "http"])
def test_every_page_works_offline_and_without_an_error(way, html, pages, served, browser):
    base = html.as_uri() if way == "file" else served
    context = browser.new_context()
    faults = {}
    for name in [*pages, "search.html?q=softargmax"]:
        page, problems = opened(context, f"{base}/{name}")
        page.wait_for_load_state("networkidle")
        if problems:
            faults[name] = problems
        page.close()
    context.close()
    assert not faults


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_every_page_is_accessible_and_fits_the_screen(width, scheme, html, pages, browser):
    axe = Axe()
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    faults = {}
    for name in pages:
        page, _ = opened(context, f"{html.as_uri()}/{name}")
        found = axe.run(page)
        if found.violations_count:
            faults[name] = found.generate_report()
        wide = page.evaluate("document.documentElement.scrollWidth - window.innerWidth")
        if wide > 0:
            faults[f"{name} (width)"] = f"{wide} px wider than the screen"
        page.close()
    context.close()
    assert not faults, "\n".join(f"{name}: {fault}" for name, fault in faults.items())


def test_formulas_are_drawn_from_a_file(html, browser):
    context = browser.new_context()
    page, _ = opened(context, f"{html.as_uri()}/book/api.html")
    assert page.locator("mjx-container").count()
    loaded = (
        "document.fonts.ready.then(fonts => [...fonts].filter(f => f.status == 'loaded').map(f => f.family))"
    )
    assert any(family.startswith("MJX") for family in page.evaluate(loaded))
    context.close()
