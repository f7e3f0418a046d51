"""``python -m attncourse.grading release``: the exercises as students get them, and a gradebook that follows.

nbgrader's own ``generate_assignment --force`` deletes the old version first, and then refuses to write the
new one if a task was added or removed after somebody was graded.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, GradeCell, SolutionCell, SourceCell, TaskCell
from nbgrader.converters import GenerateAssignment
from nbgrader.utils import is_grade, is_locked, is_solution, is_task, rmtree
from traitlets.config import Config

from attncourse.grading.autograding import Log, run

DESCRIPTION = """\
Write the students' version of each exercise, exercises/<unit>/, from the one with
the solutions, solutions/<unit>/. The old version stays until the new one is there."""

# What a cell of each kind is in the gradebook, and what it keeps of every submission.
KINDS: tuple[tuple[Any, Any, tuple[Any, ...]], ...] = (
    (GradeCell, is_grade, (Grade,)),
    (SolutionCell, is_solution, (Comment,)),
    (TaskCell, is_task, (Grade, Comment)),
)


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


def adapt(gradebook: Any, unit: str, notebook: NotebookNode) -> list[str]:
    """Have the gradebook know the cells of a notebook although submissions were graded without them.

    Marks of a task that is no more go with it.

    Parameters
    ----------
    gradebook : nbgrader.api.Gradebook
    unit : str
    notebook : NotebookNode
        The exercise as it is now.

    Returns
    -------
    list of str
        A sentence for each task that a person had marked and that is no more, with the marks.
    """
    known = gradebook.find_notebook(unit, unit)
    if not known.submissions:  # nbgrader makes all of it anew
        return []
    named = [cell for cell in notebook.cells if "grade_id" in cell.metadata.get("nbgrader", {})]
    sentences = []
    for kind, belongs, records in KINDS:
        wanted = {cell.metadata.nbgrader.grade_id: cell for cell in named if belongs(cell)}
        there = {cell.name: cell for cell in known._base_cells if isinstance(cell, kind)}
        for name in there.keys() - wanted.keys():
            sentences += _by_hand(there[name])
            for row in [*(there[name].grades or ()), *(there[name].comments or ())]:
                gradebook.db.delete(row)
            gradebook.db.delete(there[name])
        for name in wanted.keys() - there.keys():
            about: dict[str, Any] = {"name": name, "notebook": known}
            if Grade in records:
                about |= {"max_score": wanted[name].metadata.nbgrader.points}
                about |= {"cell_type": wanted[name].cell_type}
            cell = kind(**about)
            rows = [record(cell=cell, notebook=one) for one in known.submissions for record in records]
            gradebook.db.add_all([cell, *rows])
    stored = {
        cell.metadata.nbgrader.grade_id: cell
        for cell in named
        if is_locked(cell) or any(belongs(cell) for _, belongs, _ in KINDS)
    }
    there = {cell.name: cell for cell in known.source_cells}
    for name in there.keys() - stored.keys():
        gradebook.db.delete(there[name])
    for name in stored.keys() - there.keys():
        gradebook.db.add(SourceCell(name=name, notebook=known, cell_type=stored[name].cell_type))
    gradebook.db.commit()
    return sorted(sentences)


def _by_hand(cell: Any) -> list[str]:
    """What a person has said about a task that is about to go."""
    given = [
        f"{row.notebook.student.id} {row.manual_score + (row.extra_credit or 0):g}"
        for row in cell.grades or ()
        if row.manual_score is not None
    ]
    if not given:
        return []
    return [f"{cell.name} is no task any more; the marks by hand for it are gone: {', '.join(sorted(given))}"]


def main(arguments: Sequence[str]) -> int:
    from attncourse.grading.course import Course
    from attncourse.grading.job import NotGraded

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
