"""An end to what runs leave: their processes, and temporary folders where they could not tidy up.

A folder is locked by the process that made it for as long as that lives, so that whoever finds one that
is not locked can remove it. The kernel unlocks it, however the process ended.
"""

import contextlib
import functools
import os
import shutil
import stat
import tempfile
import weakref
from pathlib import Path

import psutil

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there, and nothing removed
    fcntl = None  # type: ignore[assignment]

PREFIX = "attncourse-run-"


class Folder(tempfile.TemporaryDirectory[str]):
    """A temporary folder that no other run removes while this process lives.

    The first one of a process removes what killed runs have left.
    """

    def __init__(self) -> None:
        remove_leftovers()
        while True:
            super().__init__(prefix=PREFIX, ignore_cleanup_errors=True)
            if fcntl is None:
                return
            # Between its making and its locking another run may remove it: then there is a next one.
            try:
                lock = os.open(self.name, os.O_RDONLY)
            except FileNotFoundError:
                continue
            self._unlock = weakref.finalize(self, os.close, lock)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.exists(self.name):
                return
            self._unlock()

    def cleanup(self) -> None:
        super().cleanup()
        if fcntl is not None:
            self._unlock()


@functools.cache
def remove_leftovers() -> None:
    """Remove this user's folders that no process holds any more."""
    if fcntl is None:
        return
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
        except OSError:
            pass  # it is in use, or cannot be removed
        finally:
            os.close(lock)


def _remove(folder: Path) -> None:
    for here, folders, _ in os.walk(folder):
        for inside in (Path(here, name) for name in folders):
            if not inside.is_symlink():
                inside.chmod(stat.S_IRWXU)  # a notebook may have locked its own folders
    shutil.rmtree(folder)


def kill_family(process: psutil.Process, *, but_itself: bool = False) -> None:
    """Kill a process and everything that it has started."""
    with contextlib.suppress(psutil.NoSuchProcess):
        family = process.children(recursive=True)
        for member in family if but_itself else [process, *family]:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
