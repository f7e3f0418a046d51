"""What was handed in beside a notebook.

By how many ways Python comes from a file to code, and in how many forms, nobody can list. So a person is told
of every file, whatever it seems to be.
"""

import importlib.machinery
from collections.abc import Collection
from pathlib import Path

MOST_NAMED = 20  # in a remark
# nbgrader's own. One that holds anything but a date does not come here.
EXPECTED = {"timestamp.txt"}


def modules(folder: Path) -> set[str]:
    """The names by which Python could import what lies in a folder, however deep.

    A notebook may say where Python is to look.
    """
    paths = [path for path in folder.rglob("*") if path.is_dir() or path.is_file()]
    return {
        path.name.partition(".")[0]
        for path in paths
        if path.is_dir() or path.name.endswith(tuple(importlib.machinery.all_suffixes()))
    }


def remark(folder: Path, released: Collection[str]) -> str:
    """What a person is told of the files in a folder, or nothing if there are none.

    Parameters
    ----------
    folder : Path
        Where the notebook lies. Notebooks are left out: a graded one finds none beside it.
    released : collection of str
        The places of files that every student has got.
    """
    places = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    places = [one for one in places if not one.endswith(".ipynb") and one not in EXPECTED.union(released)]
    if not places:
        return ""
    more = f" and {len(places) - MOST_NAMED} more" if len(places) > MOST_NAMED else ""
    return (
        f"files were handed in beside it, in which code can stand that nobody has read ({len(places)}): "
        f"{', '.join(places[:MOST_NAMED])}{more}"
    )
