"""What the book needs beyond Jupyter Book, in one Sphinx extension.

- Cells run again when the sources of the attncourse package change, one page on each core.
- A figure without a text alternative, or one drawn by code without a caption, is a warning.
- A build that failed for a warning fails again until the warning is gone.
- A link may name a label in another page: `chapter.md#label`.
- What a cell prints is shown as it was printed, in however many pieces it came.
- Formulas become MathML when the book is built, so that pages need no script for them.
- Pictures have their sizes in the HTML, and those that are SVG a second version for the dark theme.
- A folded cell says what is in it.
- Pages load only those of the theme's scripts, styles and icons that they use.
- Small corrections to the HTML, so that every page passes an accessibility check and works
  when it is opened as a file.
- An edition may have some of the units only, and a title of its own: see edition.py.
- Pages of source code are made when a source has changed: see source_pages.py.
- The script of the interactive figures is loaded on the pages that have one.
"""

import gc
import hashlib
import html
import importlib.util
import itertools
import logging as python_logging
import os
import re
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import edition
import source_pages
from bs4 import BeautifulSoup
from docutils import nodes
from docutils.utils import new_document
from figures import for_the_dark
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from kernels import KernelManager
from math_core import LatexError, LatexToMathML
from myst_nb.core import render
from myst_nb.core.execute import NotebookClientCache, create_client
from myst_nb.core.loggers import DocutilsDocLogger
from myst_nb.core.read import create_nb_reader
from myst_nb.core.utils import coalesce_streams
from nbformat import NotebookNode
from pybtex.plugin import find_plugin, register_plugin
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.errors import SphinxError
from sphinx.util import logging
from sphinx.util.images import get_image_size
from sphinx.util.math import get_node_equation_number
from traitlets.config import Config

logger = logging.getLogger(__name__)

# A page is a tree of many thousand nodes, which stay. To look through all of them for garbage whenever a few
# hundred more are made took 2.7 of the 9.5 seconds of a build after one sentence was changed.
gc.set_threshold(200_000, 20, 100)


def package_digest(package: Path) -> str:
    """Hash the names and contents of the Python files under `package`."""
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        digest.update(f"{source.relative_to(package)}\0".encode())
        digest.update(hashlib.sha256(source.read_bytes()).digest())
    return digest.hexdigest()[:16]


def set_execution_cache(app: Sphinx, config) -> None:
    """Keep one cache of executed cells for each state of the package.

    MyST-NB reads every page again when this path changes, and finds the new cache empty.
    """
    package = Path(importlib.util.find_spec("attncourse").origin).parent
    config.nb_execution_cache_path = str(Path(app.outdir).parent / ".jupyter_cache" / package_digest(package))


class CellFailed(SphinxError):
    """A cell of a page raised an error, or took too long."""

    category = "A cell failed"


# The pages whose cells are running, or have run and were not read yet, with what runs them.
running: dict[str, tuple[NotebookClientCache, Future]] = {}


def run_cells_side_by_side(app: Sphinx, env, docnames: list[str]) -> None:
    """Begin to run the cells of all pages that are not in the cache of executed ones, one page on each core.

    MyST-NB would run page after page, each when it is read. Meanwhile, Sphinx reads what has been run.
    """
    to_run = {docname: page for docname in docnames if (page := page_to_run(env, docname))}
    if not to_run:
        return
    # The last chapters take longest.
    contents = list(getattr(app.config, "external_site_map", docnames))
    order = sorted(to_run, key=contents.index, reverse=True)
    cores = os.cpu_count() or 1
    at_once = min(cores, len(order))
    # Every kernel has its share of the cores.
    os.environ.setdefault("OMP_NUM_THREADS", str(cores // at_once))
    # One or two pages may need nothing of what is imported for all.
    forked = len(order) > cores
    logger.info("running the cells of %d pages, %d at a time, while Sphinx reads", len(order), at_once)
    pool = ThreadPoolExecutor(at_once)
    for docname in order:
        page, timeout = to_run[docname], env.mystnb_config.execution_timeout
        folder = str(page.path.parent)
        running[docname] = page, pool.submit(run_cells, page.notebook, folder, timeout, forked)
    pool.shutdown(wait=False)
    docnames.sort(key=lambda docname: order.index(docname) if docname in running else -1)


def wait_for_cells(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put a page that is to be read into the cache of executed ones, where MyST-NB will find it."""
    if docname not in running:
        return
    page, future = running.pop(docname)
    result = future.result()
    if result.err is not None:
        raise CellFailed(f"{page.path}\n{result.err}")
    get_cache(app.env.mystnb_config.execution_cache_path).cache_notebook_bundle(
        CacheBundleIn(result.nb, str(page.path), data={"execution_seconds": result.time}),
        check_validity=False,
        overwrite=True,
    )


def begin_no_more_cells(app: Sphinx, exception) -> None:
    """After a build that failed no page is waited for that has not begun."""
    for _, future in running.values():
        future.cancel()
    running.clear()


def page_to_run(env, docname: str) -> NotebookClientCache | None:
    """What MyST-NB would run when it reads a page; None if the page has nothing, or nothing new, to run."""
    path = env.doc2path(docname)
    text = Path(path).read_text(encoding="utf-8")
    reader = create_nb_reader(path, env.myst_config, env.mystnb_config, text)
    if reader is None:
        return None
    log = DocutilsDocLogger(new_document(path))
    client = create_client(reader.read(text), path, env.mystnb_config, log, reader.read_fmt)
    if not isinstance(client, NotebookClientCache):
        return None
    try:
        get_cache(env.mystnb_config.execution_cache_path).match_cache_notebook(client.notebook)
    except KeyError:
        return client
    return None


def run_cells(notebook: NotebookNode, folder: str, timeout: int, forked: bool) -> ExecutionResult:
    """Run a page's cells in a kernel of its own, `forked` where it is one of many."""
    config = Config()
    # A kernel of ipykernel 7 that is asked to end may complain that its sockets are gone.
    config.NotebookClient.shutdown_kernel = "immediate"
    with tempfile.TemporaryDirectory() as place:
        # By files: of kernels that start together, two may choose the same port. Windows has only ports.
        if os.name == "posix":
            if forked:
                config.NotebookClient.kernel_manager_class = KernelManager
            config.KernelManager.transport = "ipc"
            config.KernelManager.connection_file = str(Path(place, "kernel.json"))
        return single_nb_execution(notebook, folder, timeout, allow_errors=False, config=config)


def warn_of_undescribed_figures(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of every image without a text alternative, and of every drawn figure without a caption."""
    for image in doctree.findall(nodes.image):
        ancestors = list(_ancestors(image))
        cell = next((node for node in ancestors if "cell" in node.get("classes", [])), image)
        if not image.get("alt", "").strip():
            logger.warning(
                "a figure has no text alternative: give its cell `mystnb: image: alt:`, "
                "or its Markdown image a text in the brackets",
                location=cell,
                type="attncourse",
                subtype="alt",
            )
        figure = next((node for node in ancestors if isinstance(node, nodes.figure)), None)
        if cell is not image and (figure is None or not any(figure.findall(nodes.caption))):
            logger.warning(
                "a figure drawn by code has no caption: give its cell `mystnb: figure: caption:`",
                location=cell,
                type="attncourse",
                subtype="caption",
            )


def _ancestors(node: nodes.Node):
    while node.parent is not None:
        node = node.parent
        yield node


def join_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join the pieces of what a cell has printed before MyST-NB does.

    A piece may end in the middle of a line, by chance, and MyST-NB ends a line after every piece.
    """
    joined: list[NotebookNode] = []
    for output in outputs:
        before = joined[-1] if joined else {}
        if output["output_type"] == "stream" and output["name"] == before.get("name"):
            before["text"] += output["text"]
        else:
            joined.append(NotebookNode(output))
    return coalesce_streams(joined)


def link_to_labels(app: Sphinx, doctree: nodes.document) -> None:
    """Let `chapter.md#label` find a label, as MyST lets it find only a heading.

    Notebooks link to chapters in this way; `lab/labextensions` leads such a link to the built page.
    """
    labels = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for name, is_explicit in doctree.nametypes.items():
        if is_explicit and doctree.nameids.get(name):
            labels.setdefault(name, (0, doctree.nameids[name], name))


def mathml(node: nodes.math | nodes.math_block) -> str:
    """Write a formula as MathML; what is not understood is a warning, and stays LaTeX."""
    latex = node.astext()
    is_block = isinstance(node, nodes.math_block)
    outside = re.sub(r"\\begin\{(\w+\*?)\}.*?\\end\{\1\}", "", latex, flags=re.DOTALL)
    if is_block and r"\\" in outside:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    try:
        return set_primes(LatexToMathML().convert_with_local_state(latex, displaystyle=is_block))
    except LatexError as error:
        logger.warning(
            "a formula is not understood: %s", error, location=node, type="attncourse", subtype="math"
        )
        return f"<code>{html.escape(latex)}</code>"


def set_primes(formula: str) -> str:
    """Put every prime beside its letter.

    The sign is small and high as it is: as a superscript it would be smaller and higher still.
    """
    math = BeautifulSoup(formula, "html.parser")
    for node in math.find_all(["msup", "msubsup"]):
        *letter, script = node.find_all(recursive=False)
        first = script.contents[0] if script.name == "mrow" else script
        if first.text == "′":
            prime = math.new_tag("mo", form="postfix", lspace="0", rspace="0", string="′")
            letter[0].wrap(math.new_tag("mrow")).append(prime)
            first.extract()
            if first is script:
                node.name = "msub" if letter[1:] else "mrow"
    return str(math)


# A formula that is wider than the screen scrolls, by keyboard too.
SCROLL_BY_KEYBOARD = """
addEventListener("load", () => {
  const watch = new ResizeObserver(changes => changes.forEach(({target: box}) =>
    box.scrollWidth > box.clientWidth ? box.tabIndex = 0 : box.removeAttribute("tabindex")));
  document.querySelectorAll("div.math").forEach(box => watch.observe(box));
});
"""


def visit_math(self, node: nodes.math) -> None:
    self.body.append(f'<span class="math notranslate nohighlight">{mathml(node)}</span>')
    raise nodes.SkipNode


def visit_displaymath(self, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    if node["number"]:
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append(mathml(node) + "</div>\n")
    raise nodes.SkipNode


# The theme brings 2,000 icons. A book like this uses these, and some that the theme names by their
# numbers; the font in book/_static/vendor holds both.
ICONS = {"angle-left", "angle-right", "arrow-up", "bars", "chevron-down", "circle-half-stroke", "download"}
ICONS |= {"file", "file-pdf", "list", "magnifying-glass", "moon", "sun", "xmark"}


def keep_what_pages_need(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Give the layout `lighten`, which takes from its scripts what this page does not need.

    A page shows its text before it runs the scripts that stay. The search page keeps their order.
    """
    unneeded = "fontawesome" if pagename == "search" else "fontawesome|searchtools|language_data|searchindex"

    def lighten(head: str) -> str:
        head = re.sub(rf'<script[^>]*src="[^"]*\b({unneeded})\.js[^"]*"></script>', "", head)
        if pagename != "search":
            head = re.sub(r'<script src="(?![^"]*documentation_options)', '<script defer src="', head)
        return head

    context["lighten"] = lighten


def keep_what_the_theme_needs(app: Sphinx, exception) -> None:
    """Take out of the built book what no page uses: source maps, and the icons but `ICONS`."""
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    unused = [
        "**/*.map",
        "scripts/fontawesome.js*",
        "vendor/**/*.ttf",
        "vendor/**/fa-[br]*",
        "locales/**/*.[mp]o",
    ]
    for path in {path for pattern in unused for path in static.glob(pattern)}:
        path.unlink()
    sheet = static / "styles/pydata-sphinx-theme.css"
    rule = re.compile(r'((?:\.fa-[\w-]+:before,?)+)\{content:"[^"]*"\}')

    def keep(match: re.Match) -> str:
        return match[0] if ICONS & set(re.findall(r"\.fa-([\w-]+):", match[1])) else ""

    sheet.write_text(rule.sub(keep, sheet.read_text()))


def mend_body(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Mend what the HTML of docutils and of viewcode does that the standard or a good page does not allow."""
    if "body" in context:
        # Bibliographies: the parents that these roles need are missing.
        context["body"] = re.sub(r' role="(list|doc-biblioentry)"', "", context["body"])
        # A line must not break between a formula and a bracket or a sign of punctuation.
        context["body"] = re.sub(
            r'([(\[“]*)(<span class="math .*?</math></span>)([.,;:!?)\]”’]*)',
            lambda found: f'<span class="unbroken">{found[0]}</span>' if found[1] + found[3] else found[0],
            context["body"],
        )
    if pagename == "_modules/index":
        body = BeautifulSoup(context["body"], "html.parser")
        for inner in body.select("ul > ul"):
            inner.find_previous_sibling("li").append(inner)
        context["body"] = str(body)


def place_pictures(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Say how large each picture is, so that the text below it does not move when it arrives.

    One that is an SVG stands there twice, once in each theme's colours; paper is light. But for the first,
    pictures are loaded when they come into sight.
    """
    sources = {name: Path(app.srcdir, uri) for uri, name in app.builder.images.items()}
    loading = itertools.chain([""], itertools.repeat(' loading="lazy"'))

    def placed(tag: re.Match) -> str:
        if tag["name"] not in sources:
            return tag[0]
        width, height = get_image_size(sources[tag["name"]])
        image = f'<img width="{width}" height="{height}"{tag["rest"]}'
        if not tag["name"].endswith(".svg") or app.builder.name != "html":
            return image + tag["end"]
        dark = f'<img class="in-dark" loading="lazy"{image.removeprefix("<img")}'.replace(
            tag["name"], dark_name(tag["name"])
        )
        light = f'<img class="in-light"{next(loading)}{image.removeprefix("<img")}'
        return f"{light}{tag['end']}{dark}{tag['end']}"

    if "body" in context:
        pictures = (
            r'<img(?P<rest>(?: (?!width=)[\w-]+="[^"]*")* src="[^"]*_images/(?P<name>[^"/]+)"'
            r'(?: [\w-]+="[^"]*")*)(?P<end> ?/?>)'
        )
        context["body"] = re.sub(pictures, placed, context["body"])


def dark_name(name: str) -> str:
    return f"{name.removesuffix('.svg')}-dark.svg"


def write_dark_pictures(app: Sphinx, exception) -> None:
    """Write the second version of each SVG beside the first."""
    if exception or app.builder.name != "html":
        return
    for name in app.builder.images.values():
        if name.endswith(".svg"):
            light = Path(app.outdir, app.builder.imagedir, name)
            light.with_name(dark_name(name)).write_text(for_the_dark(light.read_text()))


# What a folded cell says, by its tags; the first that fits.
FOLDS = {
    "after-task": "After the task: the code",
    "hide-cell": "The set-up: what the page loads",
    "hide-input": "The code of the figure",
}


def name_folds(app: Sphinx, doctree: nodes.document) -> None:
    """Say what is folded, in words of the course instead of MyST-NB's."""
    for cell in doctree.findall(nodes.container):
        if cell.get("hide_mode"):
            words = next((text for tag, text in FOLDS.items() if f"tag_{tag}" in cell["classes"]), None)
            cell["prompt_show"] = cell["prompt_hide"] = words or cell["prompt_show"]


def load_interactive_figures(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Load the script and the style of the figures that a reader can play with, where there is one."""
    if 'class="try"' in context.get("body", ""):
        app.add_js_file("interactive.js", loading_method="defer")
        app.add_css_file("interactive.css")


def name_sidebar_toggles(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Give the arrows that unfold a chapter in the sidebar a name that can be read out."""
    make_sidebar = context["generate_toctree_html"]

    def make_named_sidebar(*args, **kwargs):
        sidebar = make_sidebar(*args, **kwargs)
        for toggle in sidebar.select("summary"):
            toggle["aria-label"] = f"Pages of: {toggle.find_previous('a').text.strip()}"
        return sidebar

    context["generate_toctree_html"] = make_named_sidebar


def forget_a_failed_build(app: Sphinx, exception) -> None:
    """Read every page again after a build with warnings, as Sphinx does after an exception.

    Otherwise the next build would not read those pages, give no warning, and pass.
    """
    if app._warncount and app.keep_going:
        Path(app.doctreedir, ENV_PICKLE_FILENAME).unlink(missing_ok=True)


def register_backends() -> None:
    """Let pybtex find at once how a citation is written: otherwise it looks through all packages for each."""
    for name in ("docutils", "plaintext"):
        register_plugin("pybtex.backends", name, find_plugin("pybtex.backends", name))


def setup(app: Sphinx) -> dict:
    edition.setup(app)
    source_pages.setup(app)
    register_backends()
    app.connect("config-inited", set_execution_cache)
    app.connect("env-before-read-docs", run_cells_side_by_side)
    app.connect("source-read", wait_for_cells)
    app.connect("doctree-read", warn_of_undescribed_figures)
    app.connect("doctree-read", link_to_labels)
    app.connect("doctree-read", name_folds)
    app.connect("html-page-context", mend_body)
    app.connect("html-page-context", place_pictures)
    app.connect("html-page-context", load_interactive_figures)
    app.connect("html-page-context", name_sidebar_toggles, priority=900)  # after the theme
    app.connect("html-page-context", keep_what_pages_need)
    app.connect("build-finished", begin_no_more_cells)
    app.connect("build-finished", forget_a_failed_build)
    app.connect("build-finished", keep_what_the_theme_needs)
    # Each of these tells all its settings at the beginning of every build.
    for teller in ("myst_nb.sphinx_ext", "myst_parser.sphinx_ext.main"):
        python_logging.getLogger(f"sphinx.{teller}").setLevel(python_logging.WARNING)
    app.connect("build-finished", write_dark_pictures)
    render.coalesce_streams = join_streams  # it has no setting
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_displaymath, None))
    # The search page fetches every hit to quote from it, which a browser refuses to a page opened as a file.
    app.add_js_file(None, body='DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";')
    app.add_js_file(None, body=SCROLL_BY_KEYBOARD)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
