"""``python -m attncourse.grading release``: the exercises as students get them.

nbgrader's own ``generate_assignment --force`` deletes the old version first, and then refuses to write the
new one if a task was added or removed after somebody was graded.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbgrader.converters import GenerateAssignment
from nbgrader.utils import rmtree
from traitlets.config import Config

from attncourse.grading.autograding import Log, run
from attncourse.grading.course import Course
from attncourse.grading.job import NotGraded

DESCRIPTION = """\
Write the students' version of each exercise, exercises/<unit>/, from the one with
the solutions, solutions/<unit>/. The old version stays until the new one is there."""


def release(app: Any, unit: str) -> Path:
    """Write a unit's release.

    Parameters
    ----------
    app : nbgrader.apps.NbGrader
        It knows the folders.
    unit : str

    Returns
    -------
    Path
        The folder that was written.

    Raises
    ------
    attncourse.grading.job.NotGraded
        If nbgrader cannot make it; then the old one is as it was.
    """
    folders = app.coursedir
    target = Path(folders.root, folders.release_directory, unit)
    part = target.parent / ".part"
    if part.exists():
        rmtree(str(part))
    before = folders.assignment_id, folders.release_directory
    folders.assignment_id, folders.release_directory = unit, str(part)
    try:
        # What the gradebook knows has no part in it: `adapt` sees to that when it is graded.
        alone = Config({"GenerateAssignment": {"no_database": True}, "SaveCells": {"enabled": False}})
        config = Config(app.config)
        config.merge(alone)
        run(GenerateAssignment(coursedir=folders, config=config, log=app.log), Log())
        if target.exists():
            target.rename(part / "before")
        (part / unit).rename(target)
    finally:
        folders.assignment_id, folders.release_directory = before
        if part.exists():
            rmtree(str(part))
    return target


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading release",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("units", nargs="*", metavar="UNIT", help="a unit; without one, all of them")
    options = parser.parse_args(arguments)
    course = Course.here(parser)
    failed = False
    for unit in course.chosen(options.units, parser):
        try:
            print(f"{release(course.app, unit)} is written.")
        except NotGraded as reason:
            print(f"{unit} is not written, and what was there is as it was: {reason}")
            failed = True
    return int(failed)
