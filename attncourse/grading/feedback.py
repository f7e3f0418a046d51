"""Feedback pages as nbgrader makes them, without translating their templates anew for every student.

What a student wrote cannot hold them up: some Markdown takes hours to become HTML.
"""

import copy
import html
from pathlib import Path
from time import monotonic
from typing import Any

from jinja2 import BytecodeCache, Environment, pass_context
from jinja2.bccache import Bucket
from nbconvert.exporters import HTMLExporter
from traitlets import Integer
from traitlets.config import Config

from attncourse.grading import sanitise
from attncourse.grading.alarm import TooLong, at_most

# The template of the pages of feedback, and of the formgrader's.
PAGE = str(Path(__file__).with_name("page.html.jinja"))


class _Memory(BytecodeCache):
    """Keeps the code of translated templates as long as this process lives."""

    def __init__(self) -> None:
        self.code: dict[tuple[str, str], bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        code = self.code.get((bucket.key, bucket.checksum))
        if code is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.code[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


class FeedbackExporter(HTMLExporter):
    """What ``c.GenerateFeedback.exporter_class`` is set to."""

    markdown_timeout = Integer(
        20,
        help="seconds that all Markdown of a notebook may take; what is left then is shown as it was written",
    ).tag(config=True)

    _memory = _Memory()

    def __init__(self, config: Config | None = None, **settings: Any) -> None:
        # The configuration may have come from another machine, where the course lies elsewhere.
        here = copy.deepcopy(config or Config())
        here.FeedbackExporter.template_file = PAGE
        super().__init__(config=here, **settings)

    def from_notebook_node(self, nb: Any, resources: Any = None, **settings: Any) -> Any:
        self._left = float(self.markdown_timeout)
        return super().from_notebook_node(nb, resources, **settings)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        start = monotonic()
        try:
            with at_most(self._left):
                return sanitise.markdown2html(context, source)
        except TooLong:
            return f"<pre>{html.escape(source)}</pre>"
        finally:
            self._left -= monotonic() - start

    def _create_environment(self) -> Environment:
        environment: Any = super()._create_environment()
        environment.bytecode_cache = self._memory
        environment.filters |= {"markdown2html": self.markdown2html, "with_policy": sanitise.with_policy}
        return environment
