"""An end to what would take too long: some Markdown takes hours to become HTML."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class TooLong(BaseException):
    """The time is over. No error, so that nothing on the way takes it for one of its own."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, where the system has an alarm and this is the thread that hears it."""
    if seconds <= 0:
        raise TooLong
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(*_: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
