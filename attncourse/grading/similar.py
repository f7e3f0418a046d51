"""``python -m attncourse.grading similar``: answers that are more alike than two people would write them.

Two answers are compared as programs: their syntax trees, without names, comments and layout. What was handed
out and what the course knows as right does not count, nor what many in the class have written. What is left
and stands in two submissions is counted, rarer pieces for more. This is the idea of Schleimer, Wilkerson and
Aiken (2003), "Winnowing: local algorithms for document fingerprinting", with all pieces kept, as answers are
short.
"""

import argparse
import ast
import builtins
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from jinja2 import Environment, PackageLoader

DESCRIPTION = """\
Write reports/similar.html: pairs of submissions whose answers are more alike than
two people would write them, side by side. It looks at what was graded. It changes
no mark, and it proves nothing: it says what to look at."""

NAME = "similar.html"
LENGTH = 8  # parts of the syntax tree that make a piece
LEAST = 30.0  # evidence for a pair to be shown; see tests/test_similar.py for what it finds
SHARE = 0.28  # of the rarer pieces of the shorter one, that stand in the other, too
LONGEST = 20_000  # characters of an answer that are compared
COMMON = 0.1  # of the class: what more have written is no evidence

KEPT = {"torch", "math", "np", "numpy", "self"} | set(dir(builtins))

Piece = tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """Two students whose answers to a unit are alike.

    Parameters
    ----------
    one, other : str
    evidence : float
        The sum over all pieces that both have: the logarithm of the class over those who have it.
    share : float
        The part of what is rare in the shorter one that stands in the other, too.
    answers : sequence of tuple
        For each task that has a part in it: its name, and for both the lines, each with whether it is alike.
    """

    one: str
    other: str
    evidence: float
    share: float
    answers: Sequence[tuple[str, Sequence[tuple[str, bool]], Sequence[tuple[str, bool]]]]


def parts(source: str) -> list[tuple[str, int]]:
    """The parts of a program in their order, each with its line; names of variables are all the same."""
    found: list[tuple[str, int]] = []
    try:
        _walk(ast.parse(source), 1, found)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        words = (
            (word, number)
            for number, line in enumerate(source.splitlines(), 1)
            for word in _WORD.findall(line)
        )
        return [(word if word in KEPT or not word[0].isalpha() else "name", number) for word, number in words]
    return found


_WORD = re.compile(r"[^\W\d]\w*|\d+|[^\s#]")


def _walk(node: ast.AST, line: int, found: list[tuple[str, int]]) -> None:
    line = getattr(node, "lineno", line)
    match node:
        case ast.Expr(ast.Constant(str())) | ast.Load() | ast.Store() | ast.Del():
            return  # a docstring; what a name is used for
        case ast.Name(name):
            found.append((name if name in KEPT else "name", line))
        case ast.Attribute(attr=attr):
            found.append((f".{attr}", line))
        case ast.Constant(value):
            found.append((repr(value) if isinstance(value, int | float) else "constant", line))
        case ast.keyword(arg=arg):
            found.append((f"{arg}=", line))
        case ast.arg():
            found.append(("argument", line))
            return  # without what it is said to be
        case ast.Module() | ast.arguments():
            pass
        case _:
            found.append((type(node).__name__, line))
    for child in ast.iter_child_nodes(node):
        _walk(child, line, found)


def pieces(source: str) -> dict[Piece, set[int]]:
    """All runs of `LENGTH` parts, and the lines in which they stand."""
    found: dict[Piece, set[int]] = defaultdict(set)
    whole = parts(source)
    for start in range(len(whole) - LENGTH + 1):
        run = whole[start : start + LENGTH]
        found[tuple(part for part, _ in run)].update(line for _, line in run)
    return found


def alike(answers: Mapping[str, Mapping[str, str]], known: Mapping[str, Iterable[str]]) -> list[Pair]:
    """The pairs of a class that are worth a look, most alike first.

    Parameters
    ----------
    answers : mapping of str to mapping of str to str
        Everyone's answers, by task.
    known : mapping of str to iterable of str
        For each task what anybody can have: what was handed out, and right answers.
    """
    answers = {
        student: {task: source[:LONGEST] for task, source in tasks.items()}
        for student, tasks in answers.items()
    }
    free = {
        task: {piece for source in sources for piece in pieces(source)} for task, sources in known.items()
    }
    own = {
        student: {
            (task, piece): lines
            for task, source in tasks.items()
            for piece, lines in pieces(source).items()
            if piece not in free.get(task, ())
        }
        for student, tasks in answers.items()
    }
    holders: dict[tuple[str, Piece], list[str]] = defaultdict(list)
    for student, found in sorted(own.items()):
        for key in found:
            holders[key].append(student)
    most = max(2, round(COMMON * len(answers)))
    weight = {
        key: math.log(len(answers) / len(students))
        for key, students in holders.items()
        if len(students) <= most
    }
    rare = {student: sum(weight.get(key, 0) for key in found) for student, found in own.items()}
    evidence: defaultdict[tuple[str, str], float] = defaultdict(float)
    for key, value in weight.items():
        for pair in combinations(holders[key], 2):
            evidence[pair] += value
    pairs = []
    for (one, other), value in evidence.items():
        share = value / min(rare[one], rare[other]) if value else 0.0
        if value >= LEAST and share >= SHARE:
            both = {key for key in own[one].keys() & own[other].keys() if key in weight}
            tasks = [task for task in answers[one] if any(name == task for name, _ in both)]
            sides = [
                [_lines(answers[who][task], task, both, own[who]) for task in tasks] for who in (one, other)
            ]
            shown = list(zip(tasks, *sides, strict=True))
            pairs.append(Pair(one, other, value, share, shown))
    return sorted(pairs, key=lambda pair: (-pair.evidence, pair.one, pair.other))


def _lines(
    source: str, task: str, both: set[tuple[str, Piece]], own: Mapping[tuple[str, Piece], set[int]]
) -> list[tuple[str, bool]]:
    marked = {line for key in both if key[0] == task for line in own[key]}
    return [(line, number in marked) for number, line in enumerate(source.splitlines(), 1)]


def html(units: Mapping[str, tuple[int, Sequence[Pair]]]) -> str:
    """The page: for each unit how many submissions were compared, and the pairs."""
    environment = Environment(loader=PackageLoader("attncourse.grading", "."), autoescape=True)
    return environment.get_template("similar.html.jinja").render(units=units)


def main(arguments: Sequence[str]) -> int:
    from attncourse.grading.course import Course

    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading similar",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("units", nargs="*", metavar="UNIT", help="a unit; without one, all of them")
    options = parser.parse_args(arguments)
    course = Course.here(parser)
    found = {}
    for unit in course.chosen(options.units, parser):
        answers = course.answers(unit)
        if len(answers) > 1:
            found[unit] = (len(answers), alike(answers, course.known(unit)))
    if not found:
        print("Nothing to compare: of no unit are two submissions graded.")
        return 0
    course.reports.mkdir(parents=True, exist_ok=True)
    path: Path = course.reports / NAME
    part = path.with_suffix(".part")
    part.write_text(html(found), encoding="utf-8")
    part.replace(path)
    number = sum(len(pairs) for _, pairs in found.values())
    print(f"{path}: {number} pairs to look at in {', '.join(found)}.")
    return 0
