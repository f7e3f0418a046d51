"""Feedback pages as nbgrader makes them, without translating their templates anew for every student.

What a student wrote cannot hold them up: some Markdown takes hours to become HTML.
"""

import html
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from jinja2 import BytecodeCache, Environment, pass_context
from jinja2.bccache import Bucket
from nbconvert.exporters import HTMLExporter
from traitlets import Integer


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

    def from_notebook_node(self, nb: Any, resources: Any = None, **settings: Any) -> Any:
        self._left = float(self.markdown_timeout)
        return super().from_notebook_node(nb, resources, **settings)

    @pass_context
    def markdown2html(self, context: Any, source: str) -> str:
        start = monotonic()
        try:
            with _at_most(self._left):
                return super().markdown2html(context, source)
        except _TooLong:
            return f"<pre>{html.escape(source)}</pre>"
        finally:
            self._left -= monotonic() - start

    def _create_environment(self) -> Environment:
        environment: Any = super()._create_environment()
        environment.bytecode_cache = self._memory
        return environment


class _TooLong(Exception):
    """The time is over."""


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, where the system has an alarm and this is the thread that hears it."""
    if seconds <= 0:
        raise _TooLong
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
