"""The process of a `Grader`: ``python -m attncourse.grading.serving FD`` grades what comes in on a socket."""

import os
import queue
import shutil
import sys
import threading
from multiprocessing.connection import Connection

from attncourse.grading.autograding import outcome
from attncourse.grading.grader import kill_family
from attncourse.grading.job import Job, PageJob, Unit


def main(descriptor: int) -> None:
    """Grade until there is nobody to grade for, and end then, with all that was started."""
    os.set_inheritable(descriptor, False)
    connection = Connection(descriptor)
    connection.send("ready")
    jobs: queue.SimpleQueue[tuple[Unit, Job | PageJob]] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                jobs.put(connection.recv())
        finally:
            kill_family(os.getpid(), but_itself=True)
            shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)
            os._exit(0)

    threading.Thread(target=receive, daemon=True).start()
    while True:
        connection.send(outcome(*jobs.get()))


if __name__ == "__main__":
    main(int(sys.argv[1]))
