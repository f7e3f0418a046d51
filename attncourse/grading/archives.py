"""What learning platforms deliver: folders and zips, in each other; nothing is unpacked onto the disk."""

import datetime
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from attncourse.grading.job import MOST_BYTES
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import shown

DEEPEST = 4  # zips in zips
# Those that are unpacked piece by piece, so that a lie about the size costs nothing.
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
# What a zip that is not whole, or made to mislead, may raise.
BROKEN = (zipfile.BadZipFile, zlib.error, ValueError, RuntimeError, NotImplementedError, EOFError, OSError)
# What nobody has handed in: left behind by systems and programs.
JUNK = {"__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini"}


@dataclass(frozen=True)
class Found:
    """A file that was delivered.

    Parameters
    ----------
    place : str
        Where it is, as a person would say it.
    parts : tuple of str
        The names of the folders and zips around it, from the outermost, and its own.
    time : datetime.datetime
        When it was changed last, on this machine's or the platform's clock: of what stands in a zip in a
        zip, or in somebody's folder, when that was put there.
    content : bytes
    """

    place: str
    parts: tuple[str, ...]
    time: datetime.datetime
    content: bytes


def delivered(path: Path) -> Iterator[Found | str]:
    """All files in a folder or zip, or the one file; a sentence for what cannot be read.

    Raises
    ------
    Unusable
        If there is no such path, or it is a zip that cannot be read.
    """
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            parts = file.relative_to(path).parts
            if file.is_file() and not file.is_symlink() and not _junk(parts):
                yield from _file(file, parts)
    elif path.is_file():
        if zipfile.is_zipfile(path):
            yield from _zip(path.read_bytes(), shown(path), (), 0)
        elif path.suffix == ".zip":
            raise Unusable(f"{path} is not a zip, or not a whole one: download it again")
        else:
            yield from _file(path, (path.name,))
    else:
        raise Unusable(f"{path} does not exist")


def _file(path: Path, parts: tuple[str, ...]) -> Iterator[Found | str]:
    try:
        status = path.stat()
        if status.st_size > MOST_BYTES:
            yield f"{shown(path)} is larger than {MOST_BYTES // 10**6} MB"
            return
        content = path.read_bytes()
    except OSError as error:
        yield f"{shown(path)} cannot be opened: {error.strerror}"
        return
    time = datetime.datetime.fromtimestamp(status.st_mtime)
    if path.suffix.lower() == ".zip":
        # A zip in a folder of somebody's is theirs; one that stands alone may be the platform's.
        put_there = time if len(parts) > 1 else None
        yield from _zip(content, shown(path), (*parts[:-1], path.stem), 0, put_there)
    else:
        yield Found(shown(path), parts, time, content)


def _zip(
    content: bytes,
    place: str,
    around: tuple[str, ...],
    depth: int,
    put_there: datetime.datetime | None = None,
    room: list[int] | None = None,
) -> Iterator[Found | str]:
    """What is in a zip; `room` is how much may still be unpacked of it and of the zips in it."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except BROKEN:
        yield f"{place} is not a zip, or not a whole one"
        return
    room = [100 * MOST_BYTES] if room is None else room
    for member in archive.infolist():
        # A name is only ever read: nothing is unpacked, wherever it wants to go.
        parts = PurePosixPath(member.filename.replace("\\", "/")).parts
        inside = f"{place}: {member.filename}"
        if member.is_dir() or not parts or _junk(parts):
            continue
        if member.compress_type not in METHODS:
            yield f"{inside} is packed in an unusual way: pack it again, as an ordinary zip"
            continue
        if member.file_size > MOST_BYTES:
            yield f"{inside} is larger than {MOST_BYTES // 10**6} MB"
            continue
        if member.file_size > room[0]:
            yield f"{inside} is left out: with what stands before it, it is too much for one zip"
            continue
        room[0] -= member.file_size
        try:
            with archive.open(member) as file:
                data = file.read(member.file_size + 1)
        except BROKEN as error:
            yield f"{inside} cannot be unpacked: {error}"
            continue
        try:
            time = put_there or datetime.datetime(*member.date_time)
        except ValueError:
            time = datetime.datetime(1980, 1, 1)
        if not parts[-1].lower().endswith(".zip"):
            yield Found(inside, (*around, *parts), time, data)
        elif depth < DEEPEST:
            within = [MOST_BYTES] if depth == 0 else room
            yield from _zip(data, inside, (*around, *parts[:-1], parts[-1][:-4]), depth + 1, time, within)
        else:
            yield f"{inside} is a zip in too many zips"


def _junk(parts: tuple[str, ...]) -> bool:
    return any(part in JUNK or part.startswith((".", "~")) for part in parts)
