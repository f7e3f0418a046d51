"""What the book needs beyond Jupyter Book, in one Sphinx extension.

- Cells run again when the sources of the attncourse package change.
- A figure without a text alternative, or one drawn by code without a caption, is a warning.
- Small corrections to the HTML, so that every page passes an accessibility check and works
  when it is opened as a file.
"""

import hashlib
import importlib.util
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
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


def mend_body(app: Sphinx, pagename: str, templatename: str, context: dict, doctree) -> None:
    """Drop docutils' roles from bibliographies: they are not allowed where it puts them."""
    if "body" in context:
        context["body"] = re.sub(r' role="(list|doc-biblioentry)"', "", context["body"])


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", set_execution_cache)
    app.connect("doctree-read", warn_of_undescribed_figures)
    app.connect("html-page-context", mend_body)
    # The search page fetches every hit to quote from it, which a browser refuses to a page opened as a file.
    app.add_js_file(None, body='DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = location.protocol !== "file:";')
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
