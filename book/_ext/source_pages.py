"""The pages of source code, as sphinx.ext.viewcode makes them, in builds in which one of them changes.

To find a file's age viewcode imports it, and with the package comes PyTorch: two seconds of each build, even
of one after a single changed sentence. Here the ages are those of the files.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.ext import viewcode

Page = tuple[str, dict[str, Any], str]


def collect_pages(app: Sphinx) -> Iterator[Page]:
    """The pages of all modules that viewcode knows, or none if none of them is missing or old."""
    modules = getattr(app.env, "_viewcode_modules", {})
    if not all(_has_its_page(app, module) for module, found in modules.items() if found):
        yield from viewcode.collect_pages(app)


def _has_its_page(app: Sphinx, module: str) -> bool:
    place = Path(*module.split("."))
    sources = Path(app.srcdir, place).with_suffix(".py"), Path(app.srcdir, place, "__init__.py")
    page = Path(app.outdir, viewcode.OUTPUT_DIRNAME, place).with_suffix(".html")
    written = [source.stat().st_mtime for source in sources if source.exists()]
    return bool(written) and page.exists() and max(written) <= page.stat().st_mtime


def setup(app: Sphinx) -> None:
    app.setup_extension("sphinx.ext.viewcode")
    for listener in app.events.listeners["html-collect-pages"]:
        if listener.handler is viewcode.collect_pages:
            app.disconnect(listener.id)
    app.connect("html-collect-pages", collect_pages)
