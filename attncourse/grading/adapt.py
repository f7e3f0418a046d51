"""A gradebook follows an exercise that was changed after somebody was graded.

nbgrader refuses to make a new version then.
"""

from typing import Any

from nbformat import NotebookNode
from nbgrader.api import Comment, Grade, GradeCell, SolutionCell, SourceCell, TaskCell
from nbgrader.utils import is_grade, is_locked, is_solution, is_task

# What a cell of each kind is in the gradebook, and what it keeps of every submission.
KINDS: tuple[tuple[Any, Any, tuple[Any, ...]], ...] = (
    (GradeCell, is_grade, (Grade,)),
    (SolutionCell, is_solution, (Comment,)),
    (TaskCell, is_task, (Grade, Comment)),
)


def adapt(gradebook: Any, unit: str, notebook: NotebookNode) -> list[str]:
    """Have the gradebook know the cells of a notebook although submissions were graded without them.

    Marks of a task that is no more go with it, and comments on it.

    Parameters
    ----------
    gradebook : nbgrader.api.Gradebook
    unit : str
    notebook : NotebookNode
        The exercise as it is now.

    Returns
    -------
    list of str
        A sentence for each task that a person had marked and that is no more, with the marks; and for each
        answer that is no more and has comments by hand, with whose they are.
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
    """What a person has said about a task or an answer that is about to go."""
    given = [
        f"{row.notebook.student.id} {row.manual_score + (row.extra_credit or 0):g}"
        for row in cell.grades or ()
        if row.manual_score is not None
    ]
    said = [row.notebook.student.id for row in cell.comments or () if row.manual_comment]
    gone = [
        ("no task any more; the marks by hand for it", given),
        ("no more; the comments by hand on it", said),
    ]
    return [f"{cell.name} is {what} are gone: {', '.join(sorted(whose))}" for what, whose in gone if whose]
