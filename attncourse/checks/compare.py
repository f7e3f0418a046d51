"""Is what came back what was expected, and if not, where and how do they differ?"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from attncourse.checks.task import Task
from attncourse.probe.answer import Answer, Foreign, Plain, is_name
from attncourse.probe.calling import Case

# Summing in another order changes the last digits; a mistake changes the first ones. Of float64 a single
# constant or step is often of float32, as `/ torch.sqrt(torch.tensor(key_dim))`: that is no mistake either.
TOLERANCE = {torch.float64: (1e-4, 1e-5), torch.float32: (1e-4, 1e-5)}  # relative, absolute


@dataclass(frozen=True)
class Problem:
    """What is wrong with one answer.

    Parameters
    ----------
    came : str
        What came back; empty if nothing could be made of the answer.
    differs : str
        Where it differs, or what does not fit.
    wrong : tensor of bool, optional
        For a tensor of the right form, which of its numbers are wrong.
    """

    came: str
    differs: str = ""
    wrong: Tensor | None = None


def problem_with(task: Task, case: Case, answer: Answer, reference: Answer) -> Problem | None:
    """What is wrong with the answer to a case, or None."""
    if answer.failure is not None:
        if answer.failure.kind == "misfit":
            return Problem("", answer.failure.name)
        name = answer.failure.name
        return Problem(f"nothing: it raised {name if is_name(name) else 'an error of some class'}")
    if task.compare is not None:
        sentence = task.compare(case.inputs, answer.value)
        problem = None if sentence is None else Problem(describe(answer.value), sentence)
    else:
        problem = difference(answer.value, reference.value, exact_dtype=task.exact_dtype, part=task.part)
    if problem is None and answer.modified:
        return Problem("the right thing, but the input is not as it was")
    return problem


def difference(
    value: Plain,
    expected: Plain,
    *,
    exact_dtype: bool = False,
    part: Callable[..., str] | None = None,
    place: tuple[int, ...] = (),
) -> Problem | None:
    """Why `value` is not `expected`, without saying what was expected beyond its form.

    `part` is that of the task, and `place` says which of several things, of several, this is.
    """
    if isinstance(expected, Tensor):
        return _tensor_difference(value, expected, exact_dtype)
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        return _number_difference(value, expected, exact_dtype)
    if isinstance(expected, tuple | list):
        if not isinstance(value, tuple | list) or len(value) != len(expected):
            kind = "list" if isinstance(expected, list) else "tuple"
            things = "one thing was" if len(expected) == 1 else f"{len(expected)} things were"
            return Problem(describe(value), f"{things} expected, as a {kind}")
        for number, (own, expected_own) in enumerate(zip(value, expected, strict=True)):
            here = (*place, number)
            problem = difference(own, expected_own, exact_dtype=exact_dtype, part=part, place=here)
            if problem is not None:
                which = f"as number {number + 1} of {len(expected)}" if part is None else part(*here)
                return Problem(f"{which}: {problem.came}", problem.differs)
        return None
    if isinstance(expected, dict):
        if not isinstance(value, dict) or value.keys() != expected.keys():
            return Problem(describe(value), f"the keys should be {', '.join(map(repr, expected))}")
        for name in expected:
            problem = difference(value[name], expected[name], exact_dtype=exact_dtype)
            if problem is not None:
                return Problem(f"under {name!r}: {problem.came}", problem.differs)
        return None
    if isinstance(value, Foreign) or type(value) is not type(expected):
        return Problem(describe(value), f"{_KINDS[type(expected)]} was expected")
    if value == expected:
        return None
    opposite = (
        f"{expected} is right" if isinstance(expected, bool) else "this is not what the question asks for"
    )
    return Problem(describe(value), opposite)


_KINDS: dict[type, str] = {bool: "True or False", str: "a word, in quotes"}


def same_form(value: Plain, expected: Plain) -> bool:
    """Whether a value has the shape and kind of what was expected, so that a law can be asked about it.

    Where nothing is to be returned, everything can.
    """
    if expected is None:
        return True
    if isinstance(expected, Tensor):
        return (
            isinstance(value, Tensor)
            and value.shape == expected.shape
            and (value.dtype in TOLERANCE) == expected.is_floating_point()
            and (value.dtype == torch.bool) == (expected.dtype == torch.bool)
        )
    if isinstance(expected, tuple | list):
        return (
            isinstance(value, tuple | list)
            and len(value) == len(expected)
            and all(map(same_form, value, expected))
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and value.keys() == expected.keys()
            and all(same_form(value[name], expected[name]) for name in expected)
        )
    if isinstance(expected, float | int) and not isinstance(expected, bool):
        return isinstance(value, float | int) and not isinstance(value, bool)
    return type(value) is type(expected)


def coincide(answer: Answer, other: Answer) -> bool:
    """Whether two answers to a case are the same, failures included."""
    if answer.failure is not None or other.failure is not None:
        return (
            answer.failure is not None
            and other.failure is not None
            and (answer.failure.kind, answer.failure.name) == (other.failure.kind, other.failure.name)
            # The lines below the first are those of the code, which may differ.
            and answer.failure.text.partition("\n")[0] == other.failure.text.partition("\n")[0]
        )
    return set(other.modified) <= set(answer.modified) and _same(answer.value, other.value)


def _same(value: Plain, other: Plain) -> bool:
    if other is None or isinstance(other, Foreign):
        return value == other
    if all(isinstance(one, Tensor) and one.dtype in TOLERANCE for one in (value, other)):
        # What `difference` says, without the words, which take long to find.
        return value.shape == other.shape and bool(close(value, other).all())
    return difference(value, other) is None


def _tensor_difference(value: Plain, expected: Tensor, exact_dtype: bool) -> Problem | None:
    if value is None:
        return Problem("None", "a tensor was expected. Is there a `return` at the end of your function?")
    if isinstance(value, tuple | list):
        return Problem(describe(value), "one tensor was expected, on its own")
    if not isinstance(value, Tensor):
        return Problem(describe(value), "a torch tensor was expected")
    came = describe(value)
    if value.shape != expected.shape:
        return Problem(came, f"the shape should be {tuple(expected.shape)}")
    if exact_dtype and value.dtype != expected.dtype:
        return Problem(f"{came}, of {dtype_name(value)}", f"the dtype should be {dtype_name(expected)}")
    if not expected.is_floating_point():
        wanted = "bool" if expected.dtype == torch.bool else "whole numbers (torch.long)"
        if value.dtype.is_floating_point or (value.dtype == torch.bool) != (expected.dtype == torch.bool):
            return Problem(f"{came}, of {dtype_name(value)}", f"the dtype should be {wanted}")
        return _where_wrong(came, value, value != expected)
    if value.dtype not in TOLERANCE:
        return Problem(f"{came}, of {dtype_name(value)}", f"the dtype should be {dtype_name(expected)}")
    wrong = ~close(value, expected)
    if not wrong.any():
        return None
    for what, found in (
        ("NaN", value.isnan() & ~expected.isnan()),
        ("infinite", value.isinf() & ~expected.isinf()),
    ):
        if found.any():
            return Problem(came, _where(found, what), wrong)
    problem = _where_wrong(came, value, wrong)
    gap = (value.double() - expected.double()).abs().max()
    if problem is not None and gap < 0.01 * expected.abs().max():
        return Problem(came, f"{problem.differs}; no number is far off", wrong)
    return problem


def _where_wrong(came: str, value: Tensor, wrong: Tensor) -> Problem | None:
    if not wrong.any():
        return None
    yours = value[tuple(_place(wrong))].item()
    shown = f"{yours:.4g}" if value.is_floating_point() else str(yours)
    there = "where yours is" if wrong.dim() else "yours is"
    return Problem(came, f"{_where(wrong, 'wrong')}, {there} {shown}", wrong)


def _number_difference(value: Plain, expected: float, exact_dtype: bool) -> Problem | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    if value is None:
        return Problem("None", "a number was expected. Is there a `return` at the end of your function?")
    if isinstance(value, bool) or not isinstance(value, float | int):
        return Problem(describe(value), "a number was expected")
    if math.isnan(value):
        # Two mistakes that both give NaN do the same.
        words = (
            "this is not the number that the question asks for: 0/0 gives NaN, and so does 0 times infinity"
        )
        return None if math.isnan(expected) else Problem("NaN", words)
    # A count is right or wrong; another number may have passed through single precision.
    relative, absolute = (0.0, 0.0) if isinstance(expected, int) else (1e-5, 1e-6)
    if isinstance(value, int) and isinstance(expected, int):  # as floats, large ones are equal that are not
        is_right = value == expected
    else:
        is_right = math.isclose(value, expected, rel_tol=relative, abs_tol=absolute)
    if is_right:
        if exact_dtype and isinstance(expected, int) and isinstance(value, float):
            words = (
                "this is a float, and a whole number was expected, an int: `/` gives a float, `//` does not"
            )
            return Problem(describe(value), words)
        return None
    return Problem(describe(value), "this is not the number that the question asks for")


def close(value: Tensor, expected: Tensor) -> Tensor:
    """Where two floating-point tensors agree, to the precision of the less precise of them."""
    relative, absolute = max(TOLERANCE[value.dtype], TOLERANCE[expected.dtype])
    return torch.isclose(value.double(), expected.double(), rtol=relative, atol=absolute, equal_nan=True)


def roughly(value: Tensor, other: Tensor) -> Tensor:
    """Where two tensors of float64, that may have been computed in single precision, agree."""
    relative, absolute = TOLERANCE[torch.float32]
    return torch.isclose(value, other, rtol=relative, atol=absolute)


def describe(value: Plain) -> str:
    """A value in words that continue "Came back"."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    if isinstance(value, Foreign):
        return value.description
    if isinstance(value, tuple | list):
        kind = type(value).__name__
        return f"a {kind} of {len(value)}" if value else f"an empty {kind}"
    if isinstance(value, dict):
        return f"a dictionary of {len(value)}"
    if isinstance(value, float):
        return f"the number {value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"the number {value}"
    return repr(value)


def dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _place(where: Tensor) -> list[int]:
    return where.nonzero()[0].tolist()


def _where(found: Tensor, what: str) -> str:
    """How many of a tensor's numbers are so, and the first of them: "3 of its 8 numbers are NaN; ..."."""
    if found.dim() == 0:
        return f"it is {what}"
    number, numel = int(found.sum()), found.numel()
    subject = f"all of its {numel} numbers" if number == numel else f"{number} of its {numel} numbers"
    return f"{subject} {'is' if number == 1 else 'are'} {what}; the first is at {_place(found)}"
