"""What students do to a notebook's cells is undone before it runs, so that their answers are graded."""

import ast
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_raw_cell
from nbgrader.api import Gradebook, SourceCell
from nbgrader.nbgraderformat.v3 import MetadataValidatorV3
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Integer

from attncourse.grading.commands import plain_python
from attncourse.grading.harmless import LONGEST_REMARK, one_line
from attncourse.grading.scan import is_too_much

# How a check's verdict is shown as HTML, beside its text: only pages that know this type show it.
VERDICT = "application/vnd.attncourse.verdict"

MOST_CELLS = 10  # that a remark names

NEW = {"code": new_code_cell, "markdown": new_markdown_cell, "raw": new_raw_cell}


def remarks(nb: Any) -> dict[str, Any]:
    """What grading has noted in a notebook, to be written to."""
    found = nb.metadata.setdefault("attncourse", {})
    found.setdefault("flags", [])
    found.setdefault("checks", {})
    return found


def flag(nb: Any, cell: str, words: str, kind: str = "") -> None:
    """Note what a person should look at.

    Parameters
    ----------
    nb : NotebookNode
    cell : str
        Its name, or empty.
    words : str
        What it is, in words that stand on their own.
    kind : str
        Given where a notebook may have any number of such: the first is told, of all others the cells.
        So none can hide another.
    """
    flags = remarks(nb)["flags"]
    remark = {"cell": cell, "words": one_line(words, LONGEST_REMARK)}
    first = next((one for one in flags if kind and one.get("kind") == kind), None)
    if first is not None:
        if not remark.items() <= first.items() and cell not in first["more"]:
            first["more"].append(cell)
    elif kind:
        flags.append(remark | {"kind": kind, "more": []})
    elif remark not in flags:
        flags.append(remark)


def told(flags: Sequence[Mapping[str, Any]]) -> list[str]:
    """The remarks in words: first what is certain, then what reading the code has found."""
    lines = []
    for one in sorted(flags, key=lambda one: "kind" in one):
        more = one.get("more", [])
        left = f" and {len(more) - MOST_CELLS} more" if len(more) > MOST_CELLS else ""
        also = f"; the like is in {', '.join(more[:MOST_CELLS])}{left}" if more else ""
        lines.append(": ".join(filter(None, (one["cell"], one["words"]))) + also)
    return lines


class Repair(NbGraderPreprocessor):
    """Restores the cells of the assignment, and everything about them but the student's code.

    The gradebook knows the cells as they were released. Each of them gets its type, its marks
    and, if it is locked, its source back. A copy becomes an ordinary cell. A graded cell that
    is missing is put back, to be given no points. Nothing else of the notebook's metadata stays.
    """

    most_cells = Integer(
        500, help="of a student's own cells, so many are kept: each costs time at every step of nbgrader's"
    ).tag(config=True)

    def preprocess(self, nb: Any, resources: Any) -> tuple[Any, Any]:
        names = resources["nbgrader"]
        python = _newer_python(nb.metadata)
        # Whatever is there was not written by us.
        nb.metadata = nbformat.from_dict({"language_info": {"name": "python"}})
        with Gradebook(names["db_url"]) as gradebook:
            released = gradebook.find_notebook(names["notebook"], names["assignment"])
            sources = {source.name: source for source in released.source_cells}
            points = {cell.name: cell.max_score for cell in [*released.grade_cells, *released.task_cells]}
            kinds = {
                "grade": {cell.name for cell in released.grade_cells},
                "solution": {cell.name for cell in released.solution_cells},
                "task": {cell.name for cell in released.task_cells},
            }
            remarks(nb)["passed"] = sorted(points.keys() & set(_passed(nb)))
            remarks(nb)["python"] = python
            nb.cells = [_whole(cell) for cell in self._kept(nb, sources)]
            found = self._find(nb, sources)
            for name, cell in found.items():
                if sources[name].locked and _lines(cell.source) != _lines(sources[name].source):
                    kept = self._keep_addition(nb, cell, sources[name], name in points)
                    if name in points:
                        also = ", and what was added stands above it" if kept else ""
                        flag(nb, name, f"a check was changed: it is again as it was released{also}")
                self._restore(nb, cell, sources[name], points, kinds)
            self._put_back(nb, found, sources, points, kinds)
            self._reorder(nb, sources, kinds)
        return nb, resources

    def _kept(self, nb: Any, sources: dict[str, SourceCell]) -> list[Any]:
        """All cells but those of the student's own that are too many."""
        cells = [cell for cell in nb.cells if isinstance(cell, dict)]
        last = {_claimed(cell): cell for cell in cells}
        own = [cell for cell in cells if _claimed(cell) not in sources or last[_claimed(cell)] is not cell]
        if len(own) <= self.most_cells:
            return cells
        flag(nb, "", f"of {len(own)} cells of the student's own, only the first {self.most_cells} were kept")
        dropped = {id(cell) for cell in own[self.most_cells :]}
        return [cell for cell in cells if id(cell) not in dropped]

    def _find(self, nb: Any, sources: dict[str, SourceCell]) -> dict[str, Any]:
        """The last cell of each name; all others forget that they had one."""
        found: dict[str, Any] = {}
        for cell in nb.cells:
            tags = cell.metadata.pop("tags", None)
            name = _claimed(cell)
            cell.metadata.pop("nbgrader", None)
            if name in sources:
                if name in found and not sources[name].locked:
                    flag(nb, name, "this cell is there more than once: the last one counts")
                found[name] = cell
            else:
                name = ""
            if isinstance(tags, list) and "skip-execution" in tags:
                flag(nb, name, "a cell was tagged not to be run; it was run all the same")
        return found

    def _restore(
        self,
        nb: Any,
        cell: Any,
        source: SourceCell,
        points: dict[str, float],
        kinds: dict[str, set[str]],
    ) -> None:
        text = source.source if source.locked else cell.source
        restored = NEW[source.cell_type](source=text, id=cell.id)
        if "attachments" in cell and source.cell_type == "markdown" and not source.locked:
            restored.attachments = cell.attachments
        marks: dict[str, Any] = {kind: source.name in names for kind, names in kinds.items()}
        marks |= {
            "grade_id": source.name,
            "locked": source.locked,
            "checksum": source.checksum,
            "cell_type": source.cell_type,
            "schema_version": MetadataValidatorV3.schema_version,
        }
        if source.name in points:
            marks["points"] = points[source.name]
        restored.metadata["nbgrader"] = nbformat.from_dict(marks)
        cell.clear()
        cell.update(restored)

    def _keep_addition(self, nb: Any, cell: Any, source: SourceCell, graded: bool) -> bool:
        """Put what is in a locked cell that was changed above it: what was added there is still needed.

        Of a check it is all but the check: some write their answer there.
        """
        if not cell.cell_type == source.cell_type == "code":
            return False
        text = cell.source
        if graded:
            released = {*_lines(source.source)}
            text = "\n".join(line for line in text.splitlines() if line.rstrip() not in released)
            if not _does_more_than_check(text):
                return False
        nb.cells.insert(_index(nb, cell), new_code_cell(source=text))
        return True

    def _put_back(
        self,
        nb: Any,
        found: dict[str, Any],
        sources: dict[str, SourceCell],
        points: dict[str, float],
        kinds: dict[str, set[str]],
    ) -> None:
        """Put graded cells that are missing behind the cell that they follow in the release."""
        before = None
        for name, source in sources.items():
            if name not in found and name in kinds["grade"] | kinds["task"]:
                cell = NEW[source.cell_type](source=source.source)
                self._restore(nb, cell, source, points, kinds)
                place = 0 if before is None else _index(nb, before) + 1
                nb.cells.insert(place, cell)
                found[name] = cell
                if name in kinds["grade"]:
                    remarks(nb).setdefault("missing", []).append(name)
                    flag(nb, name, "a graded cell was missing and was put back")
            before = found.get(name, before)

    def _reorder(self, nb: Any, sources: dict[str, SourceCell], kinds: dict[str, set[str]]) -> None:
        """Put a check that stands above the answer that it follows in the release below that answer."""
        places = {_name(cell): cell for cell in nb.cells}
        answer = None
        for name in sources:
            if name in kinds["solution"]:
                answer = places.get(name, answer)
            elif name in kinds["grade"] and answer is not None:
                check = places[name]
                here, there = _index(nb, check), _index(nb, answer)
                if here < there:
                    nb.cells.insert(there, nb.cells.pop(here))


def _newer_python(metadata: Any) -> str:
    """The Python with which a notebook was written, as it says itself, if this one is older; or empty."""
    language = metadata.get("language_info") if isinstance(metadata, dict) else None
    version = language.get("version") if isinstance(language, dict) else None
    found = re.match(r"(3)\.(\d{1,3})(?!\d)", version) if isinstance(version, str) else None
    return found[0] if found and (3, int(found[2])) > sys.version_info[:2] else ""


def _passed(nb: Any) -> Iterator[str]:
    """The names of the cells that have come to their end at home, by what stands in the notebook."""
    for cell in nb.cells:
        if not isinstance(cell, dict) or not isinstance(cell.get("execution_count"), int):
            continue
        outputs = cell.get("outputs")
        shown = [one for one in outputs if isinstance(one, dict)] if isinstance(outputs, list) else []
        if not any(one.get("output_type") == "error" for one in shown):
            yield _claimed(cell)


def _whole(cell: Any) -> Any:
    """A cell with everything that the notebook's format asks for, and without what it had shown."""
    kind = cell.get("cell_type")
    source = cell.get("source")
    made = NEW[kind if kind in NEW else "raw"](source=source if isinstance(source, str) else "")
    metadata = cell.get("metadata")
    if isinstance(metadata, dict):
        made.metadata.update(metadata)
    if kind == "markdown" and isinstance(cell.get("attachments"), dict):
        made.attachments = cell.attachments
    return made


def _lines(source: str) -> list[str]:
    return [line.rstrip() for line in source.strip().splitlines()]


def _does_more_than_check(source: str) -> bool:
    if is_too_much(source):
        return True
    try:
        statements = ast.parse(plain_python(source)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return bool(source.strip())
    return not all(map(_is_idle, statements))


def _is_idle(statement: ast.stmt) -> bool:
    """Whether a statement is a text or a number, or the call of a check."""
    match statement:
        case ast.Expr(ast.Constant() | ast.Call(func=ast.Attribute(value=ast.Name(id="checks")))):
            return True
    return False


def _claimed(cell: Any) -> str:
    """The name that a cell as it was handed in says it has."""
    metadata = cell.get("metadata")
    marks = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    return str(marks.get("grade_id")) if isinstance(marks, dict) else ""


def _name(cell: Any) -> str:
    return cell.metadata.get("nbgrader", {}).get("grade_id", "")


def _index(nb: Any, cell: Any) -> int:
    return next(place for place, other in enumerate(nb.cells) if other is cell)
