"""What learning platforms deliver: folders and zips, in each other; nothing is unpacked onto the disk."""

import datetime
import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from attncourse.grading.job import MOST_BYTES, MOST_FILES
from attncourse.grading.platforms import YEARS, numbers_in
from attncourse.grading.rules import Unusable
from attncourse.grading.submitted import shown, walk

DEEPEST = 4  # zips in zips
LONGEST = 4096  # of a file's name, with its folders, on a disk: what is longer, nobody has handed in
# So many times what is in one submission, at most, is in a platform's zip of a class.
OF_A_CLASS = 100
# Those that are unpacked piece by piece, so that a lie about the size costs nothing.
METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
# What a zip that is not whole, or made to mislead, may raise.
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ValueError, RuntimeError, ArithmeticError, LookupError),
    *(EOFError, OSError),
)
# What is read: the others are only named.
READ = {".ipynb", ".zip"}
# The time of a file or a part of a zip that says none that there is.
UNKNOWN = datetime.datetime(1980, 1, 1)
# What nobody has handed in: left behind by systems and programs.
JUNK = {"__MACOSX", "__pycache__", "Thumbs.db", "desktop.ini"}
HIDDEN = "has a name, or lies in a folder with one, that begins with a dot or a tilde: rename it"


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
        Of a notebook; nothing of other files, which are not even read.
    zips : tuple of int
        The places in `parts` of zips.
    """

    place: str
    parts: tuple[str, ...]
    time: datetime.datetime
    content: bytes
    zips: tuple[int, ...] = ()


def delivered(path: Path) -> Iterator[Found | str]:
    """All files in a folder or zip, or the one file; a sentence for what cannot be read.

    Raises
    ------
    Unusable
        If there is no such path, or it is a zip that cannot be read.
    """
    if path.is_dir():
        shut: list[OSError] = []
        for file in sorted(walk(path, shut.append)):
            parts = file.relative_to(path).parts
            if _hidden(parts):
                yield f"{shown(file)} {HIDDEN}"
            elif file.is_symlink() and not _junk(parts) and (file.suffix.lower() in READ or len(parts) == 1):
                yield f"{shown(file)} is a link: what it leads to is not looked at; put that here"
            elif file.is_file() and not file.is_symlink() and not _junk(parts):
                yield from _file(file, parts)
        yield from (f"{shown(Path(one.filename))} cannot be opened: {one.strerror}" for one in shut)
    elif path.is_file():
        if zipfile.is_zipfile(path):
            with path.open("rb") as archive:
                yield from _zip(archive, shown(path), (), ())
        elif path.suffix == ".zip":
            raise Unusable(f"{path} is not a zip, or not a whole one: download it again")
        else:
            yield from _file(path, (path.name,))
    else:
        raise Unusable(f"{path} does not exist")


def _file(path: Path, parts: tuple[str, ...]) -> Iterator[Found | str]:
    kind = path.suffix.lower()
    try:
        status = path.stat()
        time = _time(datetime.datetime.fromtimestamp, status.st_mtime)
        if kind not in READ:
            yield Found(shown(path), parts, time, b"")
            return
        if status.st_size > MOST_BYTES:
            yield f"{shown(path)} is larger than {MOST_BYTES // 10**6} MB"
            return
        content = path.read_bytes()
    except OSError as error:
        yield f"{shown(path)} cannot be opened: {error.strerror}"
        return
    if kind == ".zip":
        # A zip in a folder of somebody's is theirs; one that stands alone may be the platform's.
        put_there = time if len(parts) > 1 else None
        yield from _packed(content, shown(path), (*parts[:-1], path.stem), (len(parts) - 1,), put_there)
    else:
        yield Found(shown(path), parts, time, content)


def _time(make: Callable[..., datetime.datetime], *given: float) -> datetime.datetime:
    try:
        time = make(*given)
    except (ValueError, OverflowError, OSError):
        return UNKNOWN
    return time if time.year in YEARS else UNKNOWN


def _packed(
    content: bytes,
    place: str,
    around: tuple[str, ...],
    zips: tuple[int, ...],
    put_there: datetime.datetime | None,
    room: list[int] | None = None,
) -> Iterator[Found | str]:
    """What is in a zip that a student may have made; the rest as `_zip` takes it."""
    most = MOST_FILES if put_there else OF_A_CLASS * MOST_FILES
    # What begins the entry of a file in the zip's list, which is read as a whole.
    if content.count(b"PK\1\2") > most:
        yield f"{place} holds more than {most:,} files: pack it again, with only what is needed"
    else:
        yield from _zip(io.BytesIO(content), place, around, zips, put_there, room)


def _zip(
    file: IO[bytes],
    place: str,
    around: tuple[str, ...],
    zips: tuple[int, ...],
    put_there: datetime.datetime | None = None,
    room: list[int] | None = None,
) -> Iterator[Found | str]:
    """What is in a zip; `room` is how much may still be unpacked of it and of the zips in it."""
    try:
        archive = zipfile.ZipFile(file)
    except BROKEN:
        yield f"{place} is not a zip, or not a whole one"
        return
    room = room or [MOST_BYTES if put_there else OF_A_CLASS * MOST_BYTES]
    for member in archive.infolist():
        # A name is only ever read: nothing is unpacked, wherever it wants to go.
        parts = PurePosixPath(member.filename.replace("\\", "/")).parts
        inside = f"{place}: {member.filename}"
        if _hidden(parts):
            yield f"{inside} {HIDDEN}"
        if not member.filename:
            yield f"{place} holds a file without a name"
        if len(member.filename) > LONGEST:
            yield f"{place} holds a file whose name is too long: {member.filename[:40]}..."
            continue
        if not parts or member.is_dir() or _junk(parts):
            continue
        time = put_there or _time(datetime.datetime, *member.date_time)
        kind = PurePosixPath(parts[-1]).suffix.lower()
        if kind not in READ:
            yield Found(inside, (*around, *parts), time, b"", zips)
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
        if kind != ".zip":
            yield Found(inside, (*around, *parts), time, data, zips)
        elif len(zips) < DEEPEST:
            within = room if put_there else None
            packed = (*around, *parts[:-1], parts[-1][:-4])
            yield from _packed(data, inside, packed, (*zips, len(packed) - 1), time, within)
        else:
            yield f"{inside} is a zip in too many zips"


def _hidden(parts: tuple[str, ...]) -> bool:
    """Whether a notebook is not looked at, or lies where nothing is, and no program has put it there."""
    of_programs = any(part in JUNK or part == ".ipynb_checkpoints" for part in parts)
    # macOS keeps notes in files that begin so, and JupyterLab what it is about to save.
    of_programs |= bool(parts) and parts[-1].startswith(("._", ".~"))
    return _junk(parts) and PurePosixPath(parts[-1].lstrip(".~")).suffix.lower() in READ and not of_programs


def _junk(parts: tuple[str, ...]) -> bool:
    # Somebody who is called so on a platform is no program.
    return any(part in JUNK or (part.startswith((".", "~")) and not numbers_in(part)) for part in parts)
