"""What a person can do about a gradebook or a disk that does not work, in a sentence."""

import errno
import sqlite3
from pathlib import Path

from sqlalchemy.exc import DatabaseError

FULL = "the disk is full: make room on it"
DAMAGED = "the gradebook is damaged: put back a copy, or move it away to grade everything anew"
RIGHTS = "give yourself the right to read and write it, and its folder"

# By what stands in the messages of SQLite.
GRADEBOOK = {
    "locked": "another program has locked the gradebook: close the formgrader and what else has it open",
    "full": FULL,
    "not a database": DAMAGED,
    "malformed": DAMAGED,
    "no such": "the gradebook is not one of this version of nbgrader: `nbgrader db upgrade` may mend it",
    "readonly": f"the gradebook cannot be written: {RIGHTS}",
    "unable to open": f"the gradebook cannot be opened: {RIGHTS}",
    "disk I/O": "the disk does not read or write the gradebook: look at its space and its health",
}


def advice(error: BaseException | None) -> str:
    """What is wrong and what to do, if an error comes from the gradebook or the disk; else nothing."""
    while error is not None:
        if isinstance(error, (DatabaseError, sqlite3.DatabaseError)):
            return _of_gradebook(str(error).partition("\n")[0])
        if isinstance(error, OSError):
            return _of_disk(error)
        error = error.__cause__ or error.__context__
    return ""


def _of_gradebook(message: str) -> str:
    known = (words for mark, words in GRADEBOOK.items() if mark in message)
    return next(known, f"the gradebook refuses: {message}")


def _of_disk(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FULL
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{error.filename or 'a file'} cannot be opened: {RIGHTS}"
    if error.errno == errno.ENOENT and error.filename and not Path(error.filename).parent.is_dir():
        return f"there is no folder {Path(error.filename).parent}: make it first"
    if error.errno == errno.EIO:
        return f"the disk does not read or write {error.filename or 'a file'}: look at its health"
    return ""
