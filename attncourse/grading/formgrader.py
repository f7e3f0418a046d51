"""nbgrader's formgrader, safe to open beside what students hand in.

A server extension of Jupyter's, which is switched on where the course is installed (see ``pyproject.toml``).
Extensions are loaded in the order of their names, this one before nbgrader's, and of two handlers of an
address the first answers: each of nbgrader's is here once more, and guarded.

* No page is made from names as they are, and every page says what it may run.
* No kernel is started in a folder of what was handed in.
* The configuration is that of the course: nbgrader would load another one, which is Python, from any folder
  that a link names, such as one that a student has handed in.
"""

import datetime
import os
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager
from nbgrader.apps.api import NbGraderAPI
from nbgrader.coursedir import CourseDirectory
from nbgrader.server_extensions.formgrader import apihandlers, handlers
from nbgrader.server_extensions.formgrader.base import BaseHandler
from tornado import web
from traitlets.config import Config

from attncourse.grading import policy


class Templates(FileSystemLoader):
    """nbgrader's templates, in which a value is written into a script as JavaScript writes it."""

    def get_source(self, environment: Environment, template: str) -> tuple[str, str, Callable[[], bool]]:
        source, path, current = super().get_source(environment, template)
        return re.sub(r'= "\{\{ (\w+) \}\}";', r"= {{ \1 | tojson }};", source), path, current


PAGES = Environment(loader=Templates(handlers.template_path), autoescape=True)


class Kernels(AsyncMappingKernelManager):
    """Starts no kernel in a folder of what was handed in.

    Python looks for the kernel's own modules there first, so that opening a notebook would run what a student
    has named like one of them.
    """

    def cwd_for_path(self, path: str, **more: Any) -> str:
        folder = super().cwd_for_path(path, **more)
        formgrader = self.parent.web_app.settings.get("nbgrader_formgrader")  # type: ignore[union-attr]
        course = formgrader.coursedir if formgrader is not None else CourseDirectory()
        steps = (course.submitted_directory, course.autograded_directory, course.feedback_directory)
        for place in (Path(folder).resolve(), *Path(folder).resolve().parents):
            if place.name in steps and (place.parent / "nbgrader_config.py").exists():
                return str(place.parent)
        return folder


class API(NbGraderAPI):
    """nbgrader's, to which a hand-in whose time is no date is one without a time.

    By nbgrader's own, one of them would leave a whole unit without its list.
    """

    def get_submitted_timestamp(self, assignment_id: str, student_id: str) -> datetime.datetime | None:
        try:
            return super().get_submitted_timestamp(assignment_id, student_id)
        except (ValueError, OverflowError):
            return None


class Guarded(BaseHandler):
    """What all addresses of the formgrader have in common."""

    @property
    def api(self) -> API:
        nbgraders = super().api
        api = API(self.coursedir, self.authenticator, parent=nbgraders.parent)
        api.log_level = nbgraders.log_level
        return api

    @property
    def content_security_policy(self) -> str:
        # A page of a notebook brings its own: see `sanitise.with_policy`.
        return f"{super().content_security_policy}; base-uri 'none'; form-action 'none'; object-src 'none'"

    def render(self, name: str, **values: Any) -> str:
        page = PAGES.get_template(name).render(**values)
        nonce = secrets.token_urlsafe()
        own = f"{super().content_security_policy}; {policy.formgrader(nonce, page)}"
        self.set_header("Content-Security-Policy", own)
        return policy.with_nonce(nonce, page)


class Entrance(Guarded, handlers.FormgraderHandler):
    """The formgrader of this course, and of no other folder."""

    @web.authenticated
    def get(self) -> Any:
        path = self.get_argument("path", "")
        if path and os.path.realpath(path) != os.path.realpath(self.coursedir.root):
            raise web.HTTPError(403, "The formgrader opens only the course in whose folder it was started")
        return super().get()


class Files(Guarded, handlers.SubmissionFilesHandler):
    """What was handed in beside a notebook."""

    @property
    def content_security_policy(self) -> str:
        return f"{super().content_security_policy}; script-src 'none'"


OWN = {handlers.FormgraderHandler: Entrance, handlers.SubmissionFilesHandler: Files}


def _guarded(handler: type) -> type:
    if not issubclass(handler, BaseHandler):
        return handler  # nbgrader's own files
    return OWN.get(handler) or type(handler.__name__, (Guarded, handler), {})


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(app: Any) -> None:
    # Who has set another one knows why, and a gateway's kernels do not run here.
    gateway = "GatewayClient" in app.config or "JUPYTER_GATEWAY_URL" in os.environ
    if not gateway and "kernel_manager_class" not in app.config.ServerApp:
        app.update_config(Config({"ServerApp": {"kernel_manager_class": Kernels}}))


def _load_jupyter_server_extension(app: Any) -> None:
    base = app.web_app.settings["base_url"].rstrip("/")
    rules = [*handlers.default_handlers, *apihandlers.default_handlers]
    rules.append((r"/formgrader/(?!static/).*", handlers.Template404))
    app.web_app.add_handlers(
        ".*$", [(base + address, _guarded(handler), *more) for address, handler, *more in rules]
    )
