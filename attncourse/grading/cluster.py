"""Who grades: a process beside this one, all cores of this machine, or a cluster of machines.

All three run `Grader.grade` and give the same. A worker that is lost with its submissions loses
nothing: Dask gives them to another one.
"""

import logging
import signal
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

from attncourse.grading.grader import Failed, Graded, Grader, Job, Page, PageJob, Unit
from attncourse.grading.submitted import Submission

Item = tuple[Submission, Unit, Job | PageJob]
Outcome = Graded | Page | Failed
Work = Iterable[Item]
Results = Generator[tuple[Submission, Unit, Job | PageJob, Outcome], None, None]


class ClusterLost(Exception):
    """The cluster cannot be reached, or not any more."""


def one_by_one(grader: Grader, work: Work) -> Results:
    """Grade one submission after the other, without Dask."""
    for submission, unit, job in work:
        yield submission, unit, job, grader.grade(unit, job)


@contextmanager
def local_cluster(workers: int) -> Iterator[Any]:
    """A Dask client with so many worker processes on this machine."""
    from distributed import Client, LocalCluster

    # On a busy machine it remarks on how long its own files take.
    warnings.filterwarnings("ignore", module=r"distributed\.")
    # Ctrl-C is for this process, which then ends its workers: they would only print tracebacks.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        cluster = LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            memory_limit=0,  # a worker only waits for its grader
            dashboard_address=None,
            # Its HTTP server: for nobody else, and at no port that another run may have.
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
            silence_logs=logging.CRITICAL,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with cluster, Client(cluster) as client:
        yield client


@contextmanager
def cluster_at(address: str, seconds: float = 30) -> Iterator[Any]:
    """A Dask client of the scheduler at an address such as ``tcp://10.0.0.1:8786``.

    Raises
    ------
    ClusterLost
        If there is no scheduler, or it has no worker, after so many seconds.
    """
    from distributed import Client

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    try:
        client = Client(address, timeout=seconds)
    except (OSError, ValueError) as error:
        raise ClusterLost(f"there is no scheduler at {address}: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=seconds)
        except TimeoutError as error:
            raise ClusterLost(f"the scheduler at {address} has no workers") from error
        yield client


def on_cluster(client: Any, work: Work, limit: float) -> Results:
    """Grade on a Dask cluster, and return what is done as it is done.

    Two submissions for each thread of the cluster are on their way at a time, so that no thread
    waits and the memory of this process does not grow with the class.

    Raises
    ------
    ClusterLost
        If the connection to the scheduler breaks.
    """
    from distributed import CancelledError, KilledWorker, as_completed

    # What it is about to say to the instructor, about a submission of some megabytes.
    warnings.filterwarnings("ignore", message="Sending large graph")
    work = iter(work)
    units: dict[str, Any] = {}
    waiting: dict[Any, Item] = {}
    arriving = as_completed()

    def send(submission: Submission, unit: Unit, job: Job | PageJob) -> None:
        if unit.name not in units:
            # As a task, not as scattered data: it is made anew when all workers that had it are lost.
            units[unit.name] = client.submit(_itself, unit, pure=False)
        future = client.submit(_grade, units[unit.name], job, limit, pure=False)
        waiting[future.key] = submission, unit, job
        arriving.add(future)

    def refill() -> None:
        threads = sum(client.nthreads().values())
        for item in islice(work, max(0, max(2 * threads, 2) - len(waiting))):
            send(*item)

    refill()
    for future in arriving:
        submission, unit, job = waiting.pop(future.key)
        result: Outcome
        try:
            result = future.result()
        except KilledWorker as error:
            result = Failed(f"was on {error.allowed_failures + 1} workers when they were lost")
        except CancelledError as error:
            raise ClusterLost("the connection to the scheduler broke") from error
        except Exception as error:
            result = Failed(f"could not be graded: {type(error).__name__}: {error}")
        del future
        yield submission, unit, job, result
        refill()


_OF_THREAD = threading.local()


def _grade(unit: Unit, job: Job | PageJob, limit: float) -> Outcome:
    """Grade on a worker, in a process that this thread of the worker keeps for it."""
    if not hasattr(_OF_THREAD, "grader"):
        _OF_THREAD.grader = Grader(limit)
    _OF_THREAD.grader.limit = limit
    return _OF_THREAD.grader.grade(unit, job)


def _itself(unit: Unit) -> Unit:
    return unit
