"""The `Grader`: a process that grades, seen from the process that gives it what to grade.

It is what survives a submission that hangs nbgrader or kills it. This module does without nbgrader, which
who only waits for a grader need not load; what runs on the other side is `serving`, forked by `nursery`.
"""

import contextlib
import os
import socket
import threading
from multiprocessing.connection import Connection

import psutil

from attncourse.grading import leftovers
from attncourse.grading.job import Failed, Graded, Job, Limits, Page, PageJob, Unit
from attncourse.grading.leftovers import kill_family
from attncourse.grading.nursery import Nursery

_PATIENCE = 10  # seconds that the end of a process that was killed may take


class Grader:
    """A process beside this one that grades submissions one by one and can be killed at any time.

    It keeps what is costly to start (PyTorch, nbgrader, the kernels' zygote) from one submission to
    the next. It ends, with all that it has started, when this process does.

    Parameters
    ----------
    limit : float
        Seconds that one submission may take.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.process: psutil.Process | None = None
        # nbgrader changes that of this process while it works.
        self._cwd = os.getcwd()
        self._stopped = False
        self._lock = threading.Lock()

    def grade(self, unit: Unit, job: Job | PageJob) -> Graded | Page | Failed:
        """Do a job, whatever the submission does to the process that does it."""
        tries = Limits(config=unit.config).tries
        for _ in range(tries):
            reason = "met a machine that cannot start nbgrader"
            try:
                self._be_ready()
                reason = "killed the process that graded it"
                self.connection.send((unit, job))
                if self.connection.poll(self.limit):
                    result: Graded | Failed = self.connection.recv()
                    if not isinstance(result, Failed) or not result.again:
                        return result
                    reason = result.words
                    continue
                reason = f"was stopped after {self.limit:g} s"
            except (EOFError, OSError):
                pass
            self.close()
        return Failed(f"{reason}, {tries} times")

    def warm_up(self) -> None:
        """Start the process, so that it is ready when there is something to grade."""
        with contextlib.suppress(EOFError, OSError):  # whoever grades will meet them
            self._be_ready()

    def close(self) -> None:
        """End the process and everything that it has started."""
        if self.process is not None:
            kill_family(self.process)
            with contextlib.suppress(psutil.Error):
                self.process.wait(_PATIENCE)
            self.process = None
            self.connection.close()
            self.folder.cleanup()

    def stop(self) -> None:
        """From another thread: end what is going on, and start nothing more."""
        with self._lock:
            self._stopped = True
            if self.process is not None:
                kill_family(self.process)

    def _be_ready(self) -> None:
        if self.process is None:
            self._start()

    def _start(self) -> None:
        folder = leftovers.Folder()
        here, there = socket.socketpair()
        connection = Connection(here.detach())
        try:
            with there:
                if self._stopped:
                    raise EOFError
                Nursery.start_grader(there, cwd=self._cwd, tmpdir=folder.name)
            process = psutil.Process(connection.recv())  # the limit is for grading only
        except (EOFError, OSError, psutil.Error) as error:
            connection.close()
            folder.cleanup()
            raise EOFError from error
        with self._lock:
            self.process, self.connection, self.folder = process, connection, folder
            if self._stopped:
                kill_family(process)
                raise EOFError
