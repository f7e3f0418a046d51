"""Who grades: processes on this machine, one for each thread that waits for it, or a cluster of machines.

Both run `Grader.grade` and give the same. On a cluster, a worker that is lost with its submissions loses
nothing: Dask gives them to another one.
"""

import logging
import queue
import threading
import warnings
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from typing import Any

from attncourse.grading.grader import Grader
from attncourse.grading.job import Failed, Graded, Job, Page, PageJob, Unit
from attncourse.grading.submitted import Submission

Item = tuple[Submission, Unit, Job | PageJob]
Outcome = Graded | Page | Failed
# What is to be done. It may have more to give after a result than before.
Work = Iterable[Item]
Results = Generator[tuple[Submission, Unit, Job | PageJob, Outcome], None, None]


# The grader that a thread owns, on this machine or on a worker of a cluster.
_OF_THREAD = threading.local()


class ClusterLost(Exception):
    """The cluster cannot be reached, or not any more."""


def on_this_machine(work: Work, workers: int, limit: float) -> Results:
    """Grade so many submissions at a time, by threads that own a process each, and listen to no network.

    The processes start while the first of the work is made. Later one submission for each of them waits
    ready, so that none of them waits for this process.
    """
    graders = [Grader(limit) for _ in range(workers)]
    unowned = queue.SimpleQueue[Grader]()
    for grader in graders:
        unowned.put(grader)

    def begin() -> None:
        _OF_THREAD.grader = unowned.get()
        _OF_THREAD.grader.warm_up()

    def grade(unit: Unit, job: Job | PageJob) -> Outcome:
        return _OF_THREAD.grader.grade(unit, job)

    work = iter(work)
    waiting: dict[Future[Outcome], Item] = {}
    with ThreadPoolExecutor(workers, initializer=begin) as threads:
        try:
            for _ in range(workers):
                threads.submit(int)  # a thread begins when there is something for it to do
            while True:
                for submission, unit, job in islice(work, 2 * workers - len(waiting)):
                    waiting[threads.submit(grade, unit, job)] = submission, unit, job
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield *waiting.pop(future), future.result()
        finally:
            threads.shutdown(wait=False, cancel_futures=True)
            for grader in graders:
                grader.stop()
            threads.shutdown()
            for grader in graders:
                grader.close()


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
    except TypeError as error:  # Dask's, of a key that it was not told of
        raise ClusterLost(f"{address} needs a key (README.md says how to name it): {error}") from error
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


def _grade(unit: Unit, job: Job | PageJob, limit: float) -> Outcome:
    """Grade on a worker, in a process that this thread of the worker keeps for it."""
    if not hasattr(_OF_THREAD, "grader"):
        _OF_THREAD.grader = Grader(limit)
    _OF_THREAD.grader.limit = limit
    return _OF_THREAD.grader.grade(unit, job)


def _itself(unit: Unit) -> Unit:
    return unit
