"""What the process of a `Grader` does, after it was forked: it grades what comes in on a socket."""

import os
import queue
import shutil
import threading
from multiprocessing.connection import Connection
from typing import NoReturn

import psutil
from sqlalchemy import Engine, event

# What nbgrader is told by name to use, so that every grader has it from the start.
from attncourse.grading import feedback, judging, repair, sanitise  # noqa: F401
from attncourse.grading.autograding import outcome
from attncourse.grading.job import Job, PageJob, Unit
from attncourse.grading.leftovers import kill_family


def main(descriptor: int) -> NoReturn:
    """Grade until there is nobody to grade for, and end then, with all that was started."""
    # The databases of this process are its own, and are gone with it: nothing has to reach the disk.
    event.listen(Engine, "connect", lambda database, _: database.execute("PRAGMA synchronous = OFF"))
    connection = Connection(descriptor)
    connection.send(os.getpid())
    jobs: queue.SimpleQueue[tuple[Unit, Job | PageJob]] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                jobs.put(connection.recv())
        finally:
            kill_family(psutil.Process(), but_itself=True)
            shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        connection.send(outcome(*jobs.get()))
