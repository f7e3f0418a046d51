"""The process from which kernels are forked: it imports once what every notebook imports.

It runs as ``python -m attncourse.grading.kernels.zygote FD``, started by :class:`Zygote`, which
holds the other end of the socket FD. A request on it asks for a kernel and brings a socket, the
kernel's leash, on which the kernel's supervisor says "ready" and its number, or why not, and at last how
the kernel ended. Who lets go of the leash ends the kernel with all that it started, and the end of
the zygote ends all::

    grader ---- zygote ---- supervisor ---- [ guard ---- [ kernel ---- what it starts ] ]
                            holds the leash   each bracket a process namespace of its own

From inside, nothing of what stands to the left can be seen or reached, and the kernel, number 1 of its
namespace, cannot be killed. So an end by SIGKILL came from outside, and is not the notebook's doing: the
guard and the supervisor tell it (`KILLED`) from an exit or a crash, from the notebook's hunger for memory,
which the supervisor watches, and from its limit on computing, ours or its own. A supervisor that was
killed itself says nothing, which means the same.
"""

import contextlib
import functools
import gc
import importlib
import json
import os
import random
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from attncourse.grading.kernels import jail
from attncourse.grading.kernels.environment import environment

IMPORTS = [
    "torch",
    "torch._dynamo",  # which every optimizer imports when it is made, for two seconds
    "numpy.random",
    "matplotlib.pyplot",
    "matplotlib.backends.backend_agg",
    "torch.overrides",
    "torch.utils._pytree",
    "ipykernel.ipkernel",
    "ipykernel.kernelapp",
    "ipykernel.zmqshell",
    "IPython.core.pylabtools",
    # What each kernel would load by itself while it starts.
    "ipykernel.debugger",
    "IPython.core.completerlib",
    "IPython.core.debugger",
    "IPython.core.logger",
    "IPython.core.oinspect",
    "IPython.extensions.storemagic",
    "faulthandler",
    "psutil",
    "sqlite3",
    "tornado.platform.asyncio",
]

_MOST = 1 << 16
_PATIENCE = 60  # seconds that a kernel may take until it listens
_READY = b"ready"
_MOST_THREADS = 8
_PAUSE = 0.05  # seconds between two looks at the memory that a notebook uses
_LONGEST_PAUSE = 0.5
_SHARE = 0.1  # of the time, at most, goes into these looks

# How a kernel ended, as its supervisor says it: of itself, if with nothing of these.
KILLED, HUNGRY = "killed", "hungry"
_EXIT_KILLED = 255

# What the kernel's process does: it takes the request and a descriptor to say on that it is ready.
Job = Callable[[dict[str, Any], int], object]


class Zygote:
    """The grader's end: the zygote of this process, started when first needed and when it has died.

    After a fork the child's is its parent's: whoever holds the socket can ask for a kernel, whose leash
    brings all answers.
    """

    _own: "Zygote | None" = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(other.fileno())],
                env={**environment(), "HOME": str(Path.home()), "PYTHONPATH": self._course()},
                # This becomes an entry of its path.
                cwd="/",
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @functools.cached_property
    def refusal(self) -> str:
        """Why it can jail nothing; empty if it can."""
        # It stays there, for all who hold the socket; and of those who wait to read, one would be woken.
        self._state(select.POLLIN, None)
        answer = self._socket.recv(_MOST, socket.MSG_PEEK)
        return "" if answer == _READY else answer.decode() or "it ended while it started"

    @property
    def ended(self) -> bool:
        """Whether nobody listens any more."""
        return bool(self._state(0, 0))

    def _state(self, events: int, milliseconds: int | None) -> list[tuple[int, int]]:
        poll = select.poll()
        poll.register(self._socket, events)
        return poll.poll(milliseconds)

    @staticmethod
    @functools.cache
    def _course() -> str:
        """A folder with an `attncourse` in which there is nothing but what this process needs.

        Whatever it imports is in the memory of every notebook.
        """
        from attncourse.grading import made  # which is not there in the zygote

        folder = made.new_folder()
        here = Path("attncourse", "grading", "kernels")
        (folder / here).mkdir(parents=True)
        for package in (here, *here.parents[:2]):
            (folder / package / "__init__.py").touch()
        for name in ("environment.py", "jail.py", "zygote.py"):
            shutil.copy(Path(__file__).with_name(name), folder / here)
        return os.pathsep.join(filter(None, [str(folder), environment().get("PYTHONPATH")]))

    @classmethod
    def get(cls) -> "Zygote":
        with cls._lock:
            if cls._own is None or cls._own.ended:
                cls._own = cls()
            return cls._own

    @classmethod
    def start_kernel(cls, request: dict[str, Any]) -> tuple[socket.socket, int]:
        """Start a kernel and return its leash and the number of its supervisor, once the kernel listens.

        Raises
        ------
        RuntimeError
            If it does not start; the message says why.
        """
        answer = b""
        for _ in range(2):
            leash, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            leash.settimeout(_PATIENCE)
            # A zygote that was killed meanwhile is replaced, once.
            with contextlib.suppress(OSError):
                with other, cls._lock:
                    zygote = cls.get()
                    socket.send_fds(zygote._socket, [json.dumps(request).encode()], [other.fileno()])
                answer = leash.recv(_MOST)
                if answer.startswith(_READY):
                    return leash, int(answer.removeprefix(_READY))
                if answer:
                    break
            leash.close()
        reason = answer.decode() if answer else "the process that starts kernels died twice"
        raise RuntimeError(f"the kernel did not start: {reason}")


def main() -> None:
    sys.path.remove("/")
    grader = socket.socket(fileno=int(sys.argv[1]))
    # Supervisors that have ended need not be waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for name in IMPORTS:
            importlib.import_module(name)
        gc.collect()
        gc.freeze()
        _try_jail()
    except Exception as error:
        grader.send(f"{type(error).__name__}: {error}".encode()[:_MOST])
        return
    grader.send(_READY)
    while True:
        message, descriptors, _, _ = socket.recv_fds(grader, _MOST, 1)
        if not message:
            return
        request = json.loads(message)
        request["limits"]["RLIMIT_AS"] += _size()
        with socket.socket(fileno=descriptors[0]) as leash:
            _start(request, leash, _be_kernel)


def _try_jail() -> None:
    def look(_: Any, say: int) -> None:
        for module in (os, sys.modules["torch"]):
            Path(str(module.__file__)).read_bytes()
        os.write(say, _READY)

    ours, leash = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with tempfile.TemporaryDirectory() as box, ours:
        for name in ("course", "home", "root", "sockets", "work"):
            os.mkdir(f"{box}/{name}")
        request = {
            "box": box,
            "course": f"{box}/course",
            "hidden": box,
            "limits": {},
            "memory": 1 << 30,
            "space": 1 << 20,
        }
        with leash:
            _start(request, leash, look)
        ours.settimeout(_PATIENCE)
        answer = ours.recv(_MOST)
        if not answer.startswith(_READY):
            raise OSError(answer.decode())


def _size() -> int:
    """The address space of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _start(request: dict[str, Any], leash: socket.socket, job: Job) -> None:
    if len(os.listdir("/proc/self/task")) != 1:
        leash.send(b"the process that starts kernels has more than one thread, and a fork has but one")
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        supervisor = _fork(lambda: _supervise(request, leash, theirs, job), lambda words: leash.send(words))
        theirs.close()
        if ours.recv(1):
            jail.map_ids(supervisor)
            ours.send(b"1")


def _supervise(request: dict[str, Any], leash: socket.socket, zygote: socket.socket, job: Job) -> None:
    """Hold a kernel's leash, outside its jail, until one of the two ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    jail.unshare()
    zygote.send(b"1")
    if not zygote.recv(1):
        return
    jail.die_with_parent()
    heard, say = os.pipe()
    guard = _fork(lambda: _be_guard(request, say, job), lambda words: os.write(say, words))
    os.close(say)
    ended = os.pidfd_open(guard)
    ready = b""
    watched = select.poll()
    for descriptor in (heard, leash.fileno(), ended):
        watched.register(descriptor, select.POLLIN)
    hungry = False
    memory = jail.Memory()
    pause = _PAUSE
    while True:
        happened = {descriptor for descriptor, _ in watched.poll(1000 * pause)}
        if not happened:
            start = time.process_time()
            if ready == _READY and not hungry and memory.is_more_than(request["memory"]):
                hungry = True
                os.kill(guard, signal.SIGKILL)
            pause = min(max(_PAUSE, (time.process_time() - start) / _SHARE), _LONGEST_PAUSE)
        elif heard in happened:
            words = os.read(heard, _MOST)
            ready += words
            if not words:
                watched.unregister(heard)
                if ready == _READY:
                    jail.seal_sockets()
                    leash.send(b"%s %d" % (_READY, os.getpid()))
                else:
                    leash.send(ready or b"it ended while it started")
        elif ended in happened:
            code = os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1])
            killed = code in (_EXIT_KILLED, -signal.SIGKILL)
            leash.send((HUNGRY if hungry else KILLED if killed else str(code)).encode())
            return
        elif leash.fileno() in happened:
            watched.unregister(leash.fileno())
            os.kill(guard, signal.SIGKILL)


def _be_guard(request: dict[str, Any], say: int, job: Job) -> NoReturn:
    """Wait for the kernel, as number 1 of a namespace around its own, whose end is the end of all."""
    _close_all_but(say)
    # The kernel stays in this group, where a signal for all of the group reaches nobody it could kill.
    os.setsid()
    jail.unshare_pids()
    kernel = _fork(lambda: _be_jailed(request, say, job), lambda words: os.write(say, words))
    os.close(say)
    jail.drop({})
    jail.die_with_parent()
    jail.set_dumpable(False)
    # What is left of it still says what limit it had: it may have lowered ours.
    os.waitid(os.P_PID, kernel, os.WEXITED | os.WNOWAIT)
    most = resource.prlimit(kernel, resource.RLIMIT_CPU)[1]
    _, status, used = os.wait4(kernel, 0)
    code = os.waitstatus_to_exitcode(status)
    # The system's clocks of computing differ by a little.
    computing = used.ru_utime + used.ru_stime + 1
    if code == -signal.SIGKILL and (most == resource.RLIM_INFINITY or computing < most):
        os._exit(_EXIT_KILLED)
    os._exit(min(code & 0xFF, _EXIT_KILLED - 1))


def _be_jailed(request: dict[str, Any], say: int, job: Job) -> None:
    jail.build(request["box"], request["space"], request["course"], request["hidden"])
    jail.drop(request["limits"])
    job(request, say)


def _be_kernel(request: dict[str, Any], say: int) -> None:
    import numpy
    import torch
    import zmq
    from ipykernel.kernelapp import IPKernelApp
    from IPython.core import interactiveshell
    from IPython.utils._process_common import getoutput

    jail.set_dumpable(True)
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None
    random.seed()
    numpy.random.seed()
    torch.seed()
    # For more a jail has no room, and PyTorch ends the process: who asks for as many as at home gets fewer.
    set_num_threads = torch.set_num_threads
    setattr(torch, "set_num_threads", lambda number: set_num_threads(min(number, _MOST_THREADS)))  # noqa: B010
    # Nothing of the course was imported so far but this.
    for name in [name for name in sys.modules if name.partition(".")[0] == "attncourse"]:
        del sys.modules[name]
    sys.path.insert(0, jail.COURSE)
    sys.argv = ["ipykernel_launcher", *request["arguments"]]

    class App(IPKernelApp):
        def init_iopub(self, context: Any) -> None:
            # Else ZeroMQ drops what is printed faster than it is read, and that a cell has ended.
            context.setsockopt(zmq.SNDHWM, 0)
            super().init_iopub(context)

    app = App.instance()
    app.initialize(sys.argv[1:])
    # IPython runs `!command` in a terminal, and raises an error where there is none, as in a jail.
    shell: Any = app.shell
    shell.system = shell.system_raw
    interactiveshell.getoutput = getoutput
    os.write(say, _READY)
    os.close(say)
    app.start()


def _fork(work: Callable[[], object], complain: Callable[[bytes], object]) -> int:
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        complain(f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})".encode()[:_MOST])
    finally:
        os._exit(status)


def _close_all_but(descriptor: int) -> None:
    """Leave nothing of the zygote's in reach, above all not the sockets that start kernels."""
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, 1 << 20)


if __name__ == "__main__":
    main()
