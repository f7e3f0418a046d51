"""What a person has entered about a submission: it is for the answers that the person saw."""

import keyword
import re
from typing import Any

from nbformat import NotebookNode
from nbgrader.utils import is_grade, is_solution

_WORD = re.compile(r"[^\W\d]\w*")
# Where code may give a name a meaning: before a =, and in definitions and imports.
_GIVING = re.compile(r"^.*(?<![=!<>])=(?!=)|^.*\bimport\b.*|\b(?:def|class)\s+\w+", re.MULTILINE)


def set_aside(
    row: Any, before: NotebookNode | None, now: NotebookNode, same_files: bool = True
) -> list[dict[str, str]]:
    """Take back the marks and comments by hand that were given to another answer than this one.

    Those whose answer is the same stay, and are told of if it may do something else by now.

    Parameters
    ----------
    row : nbgrader.api.SubmittedNotebook
    before, now : NotebookNode
        What was graded last, None if that is not known, and what is graded now.
    same_files : bool
        Whether what lies beside the notebook is the same.

    Returns
    -------
    list of dict
        A flag for each, as `attncourse.grading.repair.flag` makes them.
    """
    flags = []
    old, new = answers(before) if before else {}, answers(now)
    told = before.metadata.get("attncourse", {}).get("flags", []) if before else []
    for item in [*row.grades, *row.comments]:
        graded = hasattr(item, "manual_score")
        given = item.manual_score if graded else item.manual_comment
        if given is None:
            continue
        what = (
            f"the mark by hand, {given + (item.extra_credit or 0):g}," if graded else f"the comment {given!r}"
        )
        was, answer = old.get(item.name, []), new.get(item.name, [])
        if before is None:
            words = f"{what} may have been given to another answer: it counts, look at it again"
        elif _sources(was) == _sources(answer):
            words = f"{what} was given before cells or files were changed that it may rest on: it counts, "
            words += "look at it again"
            same = beneath(before, was) == beneath(now, answer) and (same_files or not _runs(answer))
            # nbgrader notes when a person has looked at a mark.
            waits = {"cell": item.name, "words": words} in told and graded and item.needs_manual_grade
            if same and not waits:
                continue
        elif graded:
            item.manual_score = item.extra_credit = None
            words = f"{what} was given to an earlier answer and does not count for this one"
        else:
            item.manual_comment = None
            words = f"{what} was made on an earlier answer and is not shown with this one"
        flags.append({"cell": item.name, "words": words})
    return flags


def answers(notebook: NotebookNode) -> dict[str, list[NotebookNode]]:
    """For each cell that can have a mark or a comment, the student's cells that it is about."""
    found: dict[str, list[NotebookNode]] = {}
    since: list[NotebookNode] = []
    graded = False
    for cell in notebook.cells:
        name = _name(cell)
        if is_solution(cell):
            since = [*([] if graded else since), cell]
            found[name] = [cell]
        elif is_grade(cell):
            found[name] = since
        graded = is_grade(cell) or (graded and not is_solution(cell))
    return found


def beneath(notebook: NotebookNode, answer: list[NotebookNode]) -> list[str]:
    """What else of the student's an answer may rest on: all own code, and other answers that it names.

    A mark without a cell for its answer is about everything of the student's own.
    """
    own = [cell for cell in notebook.cells if not _name(cell)]
    if not answer:
        return _sources(own)
    if not _runs(answer):
        return []
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell not in answer]
    used = [cell for cell in code if not _name(cell)]
    left = [cell for cell in code if is_solution(cell)]
    names = _names(_sources([*answer, *used]))
    while named := [cell for cell in left if names & _given(cell)]:
        used += named
        left = [cell for cell in left if cell not in named]
        names |= _names(_sources(named))
    return [cell.source for cell in code if cell in used]


def _given(cell: NotebookNode) -> set[str]:
    return {_name(cell)} | _names(_GIVING.findall(cell.source))


def _names(texts: list[str]) -> set[str]:
    return {word for text in texts for word in _WORD.findall(text)}.difference(keyword.kwlist)


def _runs(cells: list[NotebookNode]) -> bool:
    return any(cell.cell_type == "code" for cell in cells)


def _sources(cells: list[NotebookNode]) -> list[str]:
    return [cell.source for cell in cells]


def _name(cell: NotebookNode) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")
