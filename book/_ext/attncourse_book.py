"""What the book needs beyond Jupyter Book, in one Sphinx extension.

- Cells run again when the sources of the attncourse package change.
- A figure without a text alternative, or one drawn by code without a caption, is a warning.
- A build that failed for a warning fails again until the warning is gone.
- A link may name a label in another page: `chapter.md#label`.
- Small corrections to the HTML, so that every page passes an accessibility check and works
  when it is opened as a file.
"""

import hashlib
import importlib.util
import re
from pathlib import Path

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import ENV_PICKLE_FILENAME, Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)


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


def link_to_labels(app: Sphinx, doctree: nodes.document) -> None:
    """Let `chapter.md#label` find a label, as MyST lets it find only a heading.

    Notebooks link to chapters in this way: in JupyterLab such a link opens the chapter's source.
    """
    labels = app.env.metadata[app.env.docname].setdefault("myst_slugs", {})
    for name, is_explicit in doctree.nametypes.items():
        if is_explicit and doctree.nameids.get(name):
            labels.setdefault(name, (0, doctree.nameids[name], name))


def mend_body(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Mend what the HTML of docutils and of viewcode does that the standard does not allow."""
    if "body" in context:
        # Bibliographies: the parents that these roles need are missing.
        context["body"] = re.sub(r' role="(list|doc-biblioentry)"', "", context["body"])
    if pagename == "_modules/index":
        body = BeautifulSoup(context["body"], "html.parser")
        for inner in body.select("ul > ul"):
            inner.find_previous_sibling("li").append(inner)
        context["body"] = str(body)


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


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", set_execution_cache)
    app.connect("doctree-read", warn_of_undescribed_figures)
    app.connect("doctree-read", link_to_labels)
    app.connect("html-page-context", mend_body)
    app.connect("html-page-context", name_sidebar_toggles, priority=900)  # after the theme
    app.connect("build-finished", forget_a_failed_build)
    # The search page fetches every hit to quote from it, which a browser refuses to a page opened as a file.
    app.add_js_file(None, body='DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";')
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
