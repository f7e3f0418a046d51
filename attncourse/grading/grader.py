"""What goes to whoever grades a submission and what comes back, and a process that grades.

All of it is plain data, so that it makes no difference where a submission is graded. The `Grader` is what
survives a submission that hangs nbgrader or kills it. This module does without nbgrader, which
a worker that only waits for its grader need not load.
"""

import datetime
import functools
import hashlib
import os
import queue
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
from traitlets.config import Config

from attncourse.grading import leftovers

# What is larger is refused: the files of a submission, and what grading makes of them.
MOST_BYTES = 100_000_000

# How often a submission is tried that takes too long or kills the process that grades it.
TRIES = 2

Files = Mapping[str, bytes]


class NotGraded(Exception):
    """A submission could not be graded; the message says why, in words that continue its name."""

    def __init__(self, words: str, log: str = "") -> None:
        super().__init__(words)
        self.log = log


@dataclass(frozen=True)
class Unit:
    """What is the same for all submissions of a unit.

    Parameters
    ----------
    name : str
    sources : mapping of str to bytes
        The files of the unit's source folder, by their paths in it.
    gradebook : bytes
        An SQLite gradebook that knows the unit's cells, and nobody's marks; see `snapshot`.
    config : Config
        nbgrader's configuration; that of the folders and of the database is not used.
    course : str
        `course_version` of the machine that wants the marks.
    """

    name: str
    sources: Files
    gradebook: bytes
    config: Config
    course: str


@dataclass(frozen=True)
class ByHand:
    """What a person has entered into the gradebook about one submission, and grading must respect."""

    duedate: datetime.datetime | None = None
    extension: datetime.timedelta | None = None
    grades: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    comments: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One submission: the files handed in, by their paths, and what identifies them."""

    student: str
    files: Files
    digest: str
    by_hand: ByHand = ByHand()


@dataclass(frozen=True)
class Graded:
    """What nbgrader makes of a submission.

    `marks` and `comments` are the automatic ones, None where there is none; `log` holds nbgrader's
    warnings and errors.
    """

    notebook: bytes
    feedback: bytes
    marks: dict[str, float | None]
    comments: dict[str, str | None]
    penalty: float | None
    log: str


@dataclass(frozen=True)
class Failed:
    """Why a submission could not be graded, in words that continue its name."""

    words: str
    log: str = ""


# Modules and packages of this package that give nobody a mark.
_WITHOUT_MARKS = {"toy", "plots", "interactive", "answers", "hostile", "simulate", "kit", "export", "report"}


@functools.cache
def course_version() -> str:
    """A fingerprint of the package's code: the checks, what they compare with, and the grading."""
    package = Path(__file__).parents[1]
    whole = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        place = path.relative_to(package).with_suffix("")
        if not _WITHOUT_MARKS.intersection(place.parts):
            whole.update(f"{place.as_posix()}\0".encode() + path.read_bytes())
    return whole.hexdigest()


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
        self.process: subprocess.Popen[bytes] | None = None

    def grade(self, unit: Unit, job: Job) -> Graded | Failed:
        """Grade one submission, whatever it does to the process that grades it."""
        for _ in range(TRIES):
            reason = "met a machine that cannot start nbgrader"
            try:
                if self.process is None:
                    self._start()
                    self.connection.recv()  # it is ready: the limit is for grading only
                reason = "killed the process that graded it"
                self.connection.send((unit, job))
                if self.connection.poll(self.limit):
                    return self.connection.recv()
                reason = f"was stopped after {self.limit:g} s"
            except (EOFError, OSError):
                pass
            self.close()
        return Failed(f"{reason}, {TRIES} times")

    def close(self) -> None:
        """End the process and everything that it has started."""
        if self.process is not None:
            _kill(self.process.pid)
            self.process.wait()
            self.process = None
            self.connection.close()
            self.folder.cleanup()

    def _start(self) -> None:
        self.folder = leftovers.Folder()
        here, there = socket.socketpair()
        with here, there:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from {__name__} import serve; serve({there.fileno()})"],
                # One process for each core: more threads would only be in each other's way.
                env={"OMP_NUM_THREADS": "1", **os.environ, "TMPDIR": self.folder.name},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[there.fileno()],
                # Ctrl-C is for the process that started this one.
                start_new_session=True,
            )
            self.connection = Connection(here.detach())


def serve(descriptor: int) -> None:
    """Be the process of a `Grader`: grade what comes in, until there is nobody to grade for."""
    from attncourse.grading.worker import outcome

    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    connection.send("ready")
    jobs: queue.SimpleQueue[tuple[Unit, Job]] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                jobs.put(connection.recv())
        finally:
            _kill(os.getpid(), but_itself=True)
            shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        connection.send(outcome(*jobs.get()))


def _kill(pid: int, *, but_itself: bool = False) -> None:
    """Kill a process and everything that it has started."""
    try:
        process = psutil.Process(pid)
        family = process.children(recursive=True)
        for member in family if but_itself else [process, *family]:
            member.kill()
    except psutil.NoSuchProcess:
        pass
