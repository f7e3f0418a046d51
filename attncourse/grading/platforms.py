"""How learning platforms name what they deliver.

Moodle, *Download all submissions*: ``First Last_12345_assignsubmission_file_/name.ipynb``, or without folders
``First Last_12345_assignsubmission_file_name.ipynb``. Canvas, *Download Submissions*:
``lastfirst_LATE_123_456_name-1.ipynb`` with the numbers of the person and of the file. Brightspace:
``12345-67890 - First Last - Nov 21, 2026 915 PM/name.ipynb``.
"""

import datetime
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

MOODLE = re.compile(r"^(?P<name>.+?)_(?P<key>\d+)_assignsubmission_(?:file|onlinetext)(?:_|$)")
CANVAS = re.compile(
    # A name has a letter: a date in front of a file's name is none.
    r"^(?=[^_]*?[^\W\d_])(?P<name>[^_]+)_(?P<late>late_)?(?P<key>\d+)_(?P<file>\d+)_(?P<rest>.+)$",
    re.IGNORECASE,
)
BRIGHTSPACE = re.compile(
    r"^(?P<key>\d+)-\d+ - (?P<name>.+?) - (?P<time>\w+ \d{1,2}, \d{4} \d{3,4} [AP]M)(?: - .*)?$",
    re.IGNORECASE,
)
BRIGHTSPACES = re.compile(r" - \w+ \d{1,2}, \d{4} \d{3,4} [AP]M(?= - |$)", re.IGNORECASE)
TIMES = ("%b %d, %Y %I%M %p", "%B %d, %Y %I%M %p")
YEARS = range(1970, 2200)  # so far from the ends of the calendar that every time zone has them
MOODLES = re.compile(r"_(\d+)_assignsubmission_(?:file|onlinetext)(?=_|$)")
# Moodle's grading worksheet.
WORKSHEET_TIMES = ("%A, %d %B %Y, %I:%M %p", "%A, %d %B %Y, %H:%M", "%d %B %Y, %I:%M %p", "%Y-%m-%d %H:%M:%S")
# What a browser adds to a name that is taken, and Canvas to a file that is handed in again.
COPY = re.compile(r"( ?\(\d+\)|-\d+)$")
# What JupyterLab adds to the name of a copy that somebody keeps beside the notebook.
KEPT = re.compile(r"-Copy\d+$")
# Folders of the course's own, which say nothing about whose they are.
OURS = {"homework", "exercises", "submitted", "attncourse-kit"}


@dataclass(frozen=True)
class Sender:
    """What a name says about who handed in, and when.

    Parameters
    ----------
    names : tuple of str
        Names by which to look for the person, the surest first.
    levels : tuple of int
        For each of them how far in it stands: 0 is the outermost folder, zip or file.
    number : str
        What the platform calls the person.
    platform : str
        ``moodle``, ``canvas``, ``brightspace`` or empty.
    time : datetime.datetime or None
        Where the name says so.
    late : bool
        Whether the platform says that it was late.
    around : tuple of tuple of str
        The names of each folder and zip around the one that the platform has named, or else around the file.
    inside : str
        Whom of the roster a name further in fits, if that is somebody else.
    doubt : str
        Why the name does not say who handed in, though a platform's signs stand in it; continues the name.
    """

    names: tuple[str, ...]
    levels: tuple[int, ...]
    number: str = ""
    platform: str = ""
    time: datetime.datetime | None = None
    late: bool = False
    around: tuple[tuple[str, ...], ...] = ()
    inside: str = ""
    doubt: str = ""


def sender(parts: Sequence[str], units: Collection[str]) -> Sender:
    """Who handed in the file with this path."""
    # From the outside: what stands inside of a zip that was handed in, whoever handed it in has named.
    around: tuple[tuple[str, ...], ...] = ()
    for place, part in enumerate(parts):
        if len(numbers := numbers_in(part)) > 1:
            several = f"{', '.join(numbers)}, which stand in its name as platforms put them"
            doubt = f"may be of any of the numbers {several}: put it into a folder of the student's name"
            return Sender((), (), around=around, doubt=doubt)
        if found := BRIGHTSPACE.match(part):
            if len(BRIGHTSPACES.findall(part)) > 1:
                doubt = "says two times, of which one is no time: put it into a folder of the student's name"
                return Sender((), (), around=around, doubt=doubt)
            time = read_time(found["time"], TIMES)
            return Sender((found["name"],), (place,), found["key"], "brightspace", time, around=around)
        if found := CANVAS.match(part):
            late = bool(found["late"])
            return Sender((found["name"],), (place,), found["key"], "canvas", late=late, around=around)
        if found := MOODLE.match(part):
            return Sender((found["name"],), (place,), found["key"], "moodle", around=around)
        around += (_names(part, units),)
    stem = _without_units(re.sub(r" ?\(\d+\)$", "", parts[-1].rpartition(".")[0]), units)
    of_each = (*around[:-1], (stem,) if stem else ())
    levels = tuple(level for level, names in enumerate(of_each) for _ in names)
    return Sender(tuple(itertools.chain(*of_each)), levels, around=around[:-1])


def numbers_in(part: str) -> list[str]:
    """What number a name says, by the signs of all platforms; several if a student had a hand in it.

    What Canvas and Brightspace put first, a name that somebody has chosen on Moodle may begin with; what
    Moodle puts behind that, the name of a file that was handed in to the others may end with.
    """
    first = [found["key"] for pattern in (BRIGHTSPACE, CANVAS) if (found := pattern.match(part))]
    return sorted({*first, *MOODLES.findall(part)})


def _names(folder: str, units: Collection[str]) -> tuple[str, ...]:
    """By what names to look for a person whose folder this is: GitHub Classroom calls it "masking-ada"."""
    if folder in OURS or folder in units:
        return ()
    rest = _without_units(folder, units)
    return (folder, rest) if rest and rest != folder and rest not in OURS else (folder,)


def _without_units(name: str, units: Collection[str]) -> str:
    """Without what is no part of a person's name; "words" is a unit, and Wordsworth is somebody."""
    pattern = "|".join(map(re.escape, sorted(units, key=len, reverse=True)))
    name = re.sub(r"(?i)(^| - )copy of ", r"\1", name)
    # From each of many signs it would go to the end of all; so only from the first.
    unit = rf"(?i)(?<![\s_.-])[\s_.-]*+(?<![^\W_])(?:{pattern})(?![^\W_])[\s_.-]*"
    return re.sub(unit, "", name) if units else name


def attempt(name: str) -> int:
    """Which attempt a file is, by what was added to its name; a copy beside the notebook comes before it."""
    stem = name.rpartition(".")[0]
    found = COPY.search(stem)
    return -1 if KEPT.search(stem) else int(re.sub(r"\D", "", found[0])[:15]) if found else 0


def read_time(text: str, patterns: Sequence[str] = WORKSHEET_TIMES) -> datetime.datetime | None:
    """A time as a platform writes it; None if it writes it otherwise."""
    text = " ".join(text.split())
    for pattern in patterns:
        if "%I%M" in pattern:
            # 915 PM is a quarter past nine.
            text = re.sub(r" (\d)(\d\d) ([AP]M)$", r" 0\1\2 \3", text, flags=re.IGNORECASE)
        try:
            time = datetime.datetime.strptime(text, pattern)
        except ValueError:
            continue
        return time if time.year in YEARS else None
    return None
