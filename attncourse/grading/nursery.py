"""The process from which graders are forked: it imports once what all of them need.

:class:`Nursery` is its end in the process that has something to grade. Where that has a single thread, it
forks the nursery from itself, which costs nothing; else it starts a program,
``python -m attncourse.grading.nursery FD``. A request on the socket FD brings a socket, that of one grader,
and says where the grader works. All graders fork their kernels from one zygote::

    who has something to grade ---- nursery ---- graders
                                       |            .
                                     zygote ---- kernels

The end of who has something to grade is that of all others, and the zygote's that of its kernels. A nursery
that is killed leaves its graders at work, and is replaced when one more is needed.
"""

import atexit
import contextlib
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import NoReturn, Optional

import psutil

from attncourse.grading import leftovers
from attncourse.grading.leftovers import kill_family

_MOST = 1 << 16
_PATIENCE = 10  # seconds that its end may take


class Nursery:
    """The nursery of this process, begun by `begin` or when first needed, and again when it has died."""

    _own: Optional["Nursery"] = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self._socket, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            if threading.active_count() == 1:
                self._process = psutil.Process(self._forked(other))
            else:
                self._process = psutil.Popen(
                    [sys.executable, "-P", "-m", __name__, str(other.fileno())],
                    # One process for each core: more threads would only be in each other's way.
                    env={"OMP_NUM_THREADS": "1", **os.environ},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[other.fileno()],
                    # Ctrl-C is for the process that started this one.
                    start_new_session=True,
                )
        atexit.register(self._end)

    def _forked(self, other: socket.socket) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child:
            return child
        status = 1
        try:
            os.setsid()
            self._socket.close()
            nothing = os.open(os.devnull, os.O_RDWR)
            for descriptor in range(3):
                os.dup2(nothing, descriptor)
            if not sys.flags.safe_path:
                del sys.path[0]  # where the command was given, or its script lies: -P
            serve(other)
            status = 0
        finally:
            os._exit(status)

    @classmethod
    def begin(cls) -> None:
        """Fork the nursery now if it can be forked: later there may be what a fork should not have."""
        with cls._lock:
            if cls._own is None and threading.active_count() == 1:
                cls._own = cls()

    @classmethod
    def start_grader(cls, connection: socket.socket, **place: str) -> None:
        """Start a grader at the other end of a connection, with this working folder and this ``TMPDIR``.

        Raises
        ------
        OSError
            If that is not possible.
        """
        message = json.dumps(place).encode()
        with cls._lock:
            for last in (False, True):
                own = cls._own = cls._own or cls()
                try:
                    socket.send_fds(own._socket, [message], [connection.fileno()])
                    return
                except OSError:  # it was killed meanwhile
                    own._end()
                    if last:
                        raise

    def _end(self) -> None:
        if type(self)._own is self:
            type(self)._own = None
        atexit.unregister(self._end)
        self._socket.close()
        with contextlib.suppress(psutil.Error):
            self._process.wait(_PATIENCE)


def serve(control: socket.socket) -> None:
    """Fork a grader for each request, until there is nobody to grade for, and end then with all of them."""
    signal.signal(signal.SIGCHLD, _reap)
    with leftovers.Folder() as folder:
        _use(folder)
        while True:
            message, descriptors, _, _ = socket.recv_fds(control, _MOST, 1)
            if not message:
                break
            _prepare()
            if not os.fork():
                control.close()
                _be_grader(descriptors[0], **json.loads(message))
            os.close(descriptors[0])
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        kill_family(psutil.Process(), but_itself=True)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()


def _reap(*_: object) -> None:
    """Let go of graders that have ended; whoever waits for their end sees it then."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prepare() -> None:
    """Import what graders need, and see that there is a zygote."""
    from attncourse.grading import serving  # noqa: F401

    # The collector of a grader need not look through all that was imported, time and again.
    gc.freeze()

    if sys.platform == "linux":
        from attncourse.grading.kernels.zygote import Zygote

        Zygote.get()


def _be_grader(descriptor: int, cwd: str, tmpdir: str) -> NoReturn:
    try:
        import torch

        from attncourse.grading import serving

        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(cwd)
        _use(tmpdir)
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
        serving.main(descriptor)
    finally:
        os._exit(1)


def _use(folder: str) -> None:
    os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
    os._exit(0)
