"""What a person has entered about a submission: it is for the answers that the person saw."""

from typing import Any

from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution


def set_aside(row: Any, before: NotebookNode | None, now: NotebookNode) -> list[dict[str, str]]:
    """Take back the marks and comments by hand that were given to another answer than this one.

    Parameters
    ----------
    row : nbgrader.api.SubmittedNotebook
    before, now : NotebookNode
        What was graded last, None if that is not known, and what is graded now.

    Returns
    -------
    list of dict
        A flag for each, as `attncourse.grading.repair.flag` makes them.
    """
    flags = []
    old, new = answers(before) if before else {}, answers(now)
    for item in [*row.grades, *row.comments]:
        graded = hasattr(item, "manual_score")
        given = item.manual_score if graded else item.manual_comment
        if given is None or (before and old.get(item.name) == new.get(item.name)):
            continue
        what = (
            f"the mark by hand, {given + (item.extra_credit or 0):g}," if graded else f"the comment {given!r}"
        )
        if before is None:
            words = f"{what} may have been given to another answer: it counts, look at it again"
        elif graded:
            item.manual_score = item.extra_credit = None
            words = f"{what} was given to an earlier answer and does not count for this one"
        else:
            item.manual_comment = None
            words = f"{what} was made on an earlier answer and is not shown with this one"
        flags.append({"cell": item.name, "words": words})
    return flags


def answers(notebook: NotebookNode) -> dict[str, list[str]]:
    """For each cell that can have a mark or a comment, the student's cells that it is about."""
    found: dict[str, list[str]] = {}
    since: list[str] = []
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id")
        if is_solution(cell):
            since.append(cell.source)
            found[name] = [cell.source]
        elif is_grade(cell):
            found[name] = since
        if is_grade(cell):
            since = []
    return found
