"""What the book's Sphinx extension does, in small books of its own."""

import os
import re
import shutil

import myst_nb.sphinx_ext  # noqa: F401  (what takes long to import is imported once, for all builds)
import nbformat
import psutil
import pytest
import sphinx_book_theme  # noqa: F401
from bs4 import BeautifulSoup
from built_book import ROOT, program
from commands import Command
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from sphinx.cmd.build import main as sphinx_build

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def extension():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "book/_ext")
        return program("_ext/attncourse_book")


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
    return Command(sphinx_build, folder, "-W", "--keep-going", str(folder), str(folder / "html")).ended()


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
    assert build_of(tmp_path, settings).stderr == ""
    assert not (html / "book/two.html").exists()
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


def test_a_changed_sentence_imports_nothing_and_a_changed_source_is_shown(tmp_path):
    (tmp_path / "index.md").write_text("# Front\n\n```{toctree}\napi\n```\n")
    (tmp_path / "api.md").write_text(
        "# The package\n\n```{eval-rst}\n.. autofunction:: two_lines.answer\n```\n"
    )
    package, imports = tmp_path / "two_lines.py", tmp_path / "imports"
    source = f"open({str(imports)!r}, 'a').write('.')\n\ndef answer():\n    'Say it.'\n    return 42\n"
    package.write_text(source)
    settings = f"extensions.append('sphinx.ext.autodoc'); sys.path.append({str(tmp_path)!r})"
    assert warnings_of_a_build(tmp_path, settings) == []
    shown = tmp_path / "html/_modules/two_lines.html"
    assert "42" in shown.read_text()
    assert imports.read_text() == "."
    (tmp_path / "index.md").write_text("# Front\n\nA sentence.\n\n```{toctree}\napi\n```\n")
    assert warnings_of_a_build(tmp_path, settings) == []
    assert "A sentence." in (tmp_path / "html/index.html").read_text()
    assert imports.read_text() == "."
    package.write_text(source.replace("return 42", "return 43"))
    assert warnings_of_a_build(tmp_path, settings) == []
    assert "43" in shown.read_text()
    shown.unlink()
    (tmp_path / "index.md").write_text("# Front\n\nAnother.\n\n```{toctree}\napi\n```\n")
    assert warnings_of_a_build(tmp_path, settings) == []
    assert "43" in shown.read_text()


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
    assert ["running the cells" in run.stdout for run in (first, again)] == [True, False]


def test_a_forked_kernel_has_imported_what_takes_long_and_is_a_kernel_otherwise(tmp_path, monkeypatch, capfd):
    monkeypatch.syspath_prepend(ROOT / "book/_ext")
    from kernels import IMPORTS, KernelManager

    cells = [
        f"import os, sys; print(os.getpid(), os.getcwd(), set({IMPORTS}) <= sys.modules.keys())",
        "import matplotlib.pyplot as plt; plt.plot([0, 1]);",
        "1 / 0",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = NotebookClient(
        notebook, kernel_manager_class=KernelManager, resources={"metadata": {"path": tmp_path}}
    )
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        client.execute()
    process, folder, has_imported = notebook.cells[0].outputs[0].text.split()
    assert (folder, has_imported) == (str(tmp_path), "True")
    assert "image/png" in notebook.cells[1].outputs[0].data
    assert not psutil.pid_exists(int(process))
    assert capfd.readouterr().out == ""  # nothing about how to end it


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
