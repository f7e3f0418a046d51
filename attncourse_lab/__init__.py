"""The built book on a Jupyter server, where the links of notebooks and of messages lead.

A server extension of Jupyter's. It serves the folder of the book below ``attncourse/``, to those who are
logged in, and says where that is: to the script ``lab/labextensions/attncourse``, which leads the links of a
notebook there, and to the kernels, for the links in what a check says. By itself, JupyterLab opens the file
that a link names as a document: a page without its styles and not at the passage, or the text of a chapter.

It is no part of ``attncourse``, which loads PyTorch, as a server need not.
"""

import html
import importlib.util
import json
import os
import re
from collections.abc import Awaitable
from pathlib import Path, PurePosixPath
from typing import Any

from jupyter_core.paths import jupyter_path
from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.utils import url_path_join
from tornado import web

# Where pip puts the book of a kit: <environment>/share/jupyter/attncourse-book.
INSTALLED = "attncourse-book"

# Where the book is on this server: kernels get it with the server's environment.
ADDRESS = "ATTNCOURSE_BOOK"

INSTEAD = """\
<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 1.1rem/1.5 sans-serif; max-width: 40em; margin: 2em auto; padding: 0 1em }}
:target {{ font-weight: bold }}
:target::before {{ content: "Read: " }}
</style>
<h1>{title}</h1>
<p>This page of the book is not on this server.
If this is a copy of the whole course, <code>make book</code> builds it; then load this page again.
Otherwise, whoever gave you the notebooks has it, as a folder of pages or as a website.</p>
{sections}
"""


def book() -> Path | None:
    """The folder of the built book, if there is one: that of a kit, or of a copy of the whole course."""
    here = Path(__file__).resolve().parents[1]
    for folder in [*map(Path, jupyter_path(INSTALLED)), here / "_build/html"]:
        if (folder / "index.html").is_file():
            return folder.resolve()
    return None


def passages() -> dict[str, dict]:
    """The pages of the book, each with its title and its sections by their labels."""
    found = importlib.util.find_spec("attncourse")
    if found is None or found.origin is None:
        return {}
    return json.loads(Path(found.origin).with_name("checks").joinpath("passages.json").read_text("utf-8"))


class Book(JupyterHandler, web.StaticFileHandler):
    """A file of the book; in place of a page that is not there, what to read."""

    auth_resource = "contents"

    def initialize(self) -> None:  # type: ignore[override]
        self.folder = book()
        super().initialize(path=str(self.folder), default_filename="index.html")

    @web.authenticated
    @authorized
    def get(self, path: str, include_body: bool = True) -> Awaitable[None]:  # type: ignore[override]
        if self.folder is None:
            raise web.HTTPError(404)
        return super().get(path, include_body)

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        path = super().validate_absolute_path(root, absolute_path)
        # Neither what a link in the folder leads to, nor what tools keep in it for themselves.
        if path and not is_visible(Path(path).resolve(), Path(root)):
            raise web.HTTPError(404)
        return path

    def compute_etag(self) -> None:
        """Without one: it would be that of the page as it was first, however often it is built."""

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        page = passages().get(PurePosixPath(self.path_args[0]).stem) if self.path_args else None
        if status_code != 404 or page is None:
            super().write_error(status_code, **kwargs)
            return
        sections = "\n".join(
            f'<li id="{html.escape(label)}">{html.escape(title)}</li>'
            for label, title in page["sections"].items()
        )
        self.set_header("Content-Type", "text/html; charset=UTF-8")
        self.finish(INSTEAD.format(title=html.escape(page["title"]), sections=f"<ul>\n{sections}\n</ul>"))


def is_visible(path: Path, folder: Path) -> bool:
    """Whether a file stands in a folder, and neither it nor a folder around it is hidden."""
    within = path.is_relative_to(folder)
    return within and not any(part.startswith(".") for part in path.relative_to(folder).parts)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _load_jupyter_server_extension(app: Any) -> None:
    settings = app.web_app.settings
    address = url_path_join(settings["base_url"], "attncourse/")
    app.web_app.add_handlers(".*$", [(f"{re.escape(address)}(.*)", Book)])
    about = {"book": address, "pages": sorted(passages())}
    settings.setdefault("page_config_data", {})["attncourse"] = about
    os.environ[ADDRESS] = address
