"""Commands run in copies of this process, which has imported everything already: that takes longest."""

import contextvars
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from attncourse.grading import serving  # noqa: F401  (what every grader needs)
from attncourse.grading.nursery import Nursery


class Command:
    """A program with its arguments, begun in a folder, in a session of its own.

    Parameters
    ----------
    program : callable
        Gets the arguments as a list, and may return an exit status.
    folder : Path
    *arguments : str
    environment : mapping, optional
        What is set beside what is set here.
    """

    def __init__(self, program, folder, *arguments, environment=()):
        self._said = [tempfile.NamedTemporaryFile() for _ in range(2)]  # noqa: SIM115
        self._process = multiprocessing.get_context("fork").Process(
            target=self._be, args=(program, folder, list(arguments), dict(environment))
        )
        self._process.start()
        self.pid = self._process.pid

    def _be(self, program, folder, arguments, environment):
        os.setsid()
        os.chdir(folder)
        os.environ.update(environment)
        for number, file in enumerate(self._said, 1):
            os.dup2(file.fileno(), number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        sys.argv = [program.__name__, *arguments]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        Nursery._own = None  # that of the process from which this was copied
        status = 1
        try:
            # Without the event loop of the process from which this was copied: its threads were not.
            status = contextvars.Context().run(program, arguments) or 0
        except SystemExit as stop:
            status = stop.code or 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with suppress(AttributeError):
                Nursery._own._end()
            os._exit(status)

    @property
    def stdout(self):
        return Path(self._said[0].name).read_text()

    @property
    def stderr(self):
        return Path(self._said[1].name).read_text()

    @property
    def returncode(self):
        """The exit status, or None before there is one."""
        return self._process.exitcode

    def kill(self):
        self._process.kill()

    def ended(self, seconds=600):
        """Itself, once it has ended."""
        self._process.join(seconds)
        assert self.returncode is not None, f"not ended after {seconds} s:\n{self.stdout}{self.stderr}"
        return self

    def wait_until_it_says(self, words):
        while words not in self.stdout:
            assert self.returncode is None, f"ended before it said {words!r}:\n{self.stdout}{self.stderr}"
            time.sleep(0.05)
