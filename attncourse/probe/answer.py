"""What comes of calling an answer: plain data, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

# What the student's session and the judge exchange: tensors, numbers, words, and tuples,
# lists and dictionaries of them. Nothing in it can run.
Plain = Any

# What the numbers of a tensor are; no answer is made of others, such as complex ones.
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
# A tensor with more numbers answers no task, and might not fit into the memory.
MOST_NUMBERS = 2**20
# The same of a list, a tuple or a dictionary.
MOST_PARTS = 10_000
# Of all parts together: written down, it is no longer than the grader reads (see wire.py).
MOST_BYTES = 180_000
# Characters of the name of a type.
LONGEST_TYPE = 40


@dataclass(frozen=True)
class Failure:
    """Why a call of the answer gave no value.

    Parameters
    ----------
    kind : str
        One of `FAILURES`.
    name : str
        The exception's type, what was refused, the part that is not written, or the sentence that
        says what does not fit.
    text : str
        The exception's message and the lines of the student's code that led to it.
    """

    kind: str
    name: str = ""
    text: str = ""


# What a probe reports; "missing" stands for an answer that has no value at all.
FAILURES = (
    "unwritten",
    "unwritten part",
    "not callable",
    "misfit",
    "refused",
    "raised",
    "interrupted",
    "missing",
)


@dataclass(frozen=True)
class Foreign:
    """Stands for a returned object that is not plain data: only its description is kept."""

    description: str


@dataclass(frozen=True)
class Answer:
    """What one call of the answer gave.

    Parameters
    ----------
    value : plain data, or Foreign
    failure : Failure, optional
        Why there is no value.
    modified : tuple of str
        The inputs that the call changed in place.
    """

    value: Plain = None
    failure: Failure | None = None
    modified: tuple[str, ...] = ()


class Misfit(Exception):
    """The answer cannot be used as the task uses it; the message is a sentence for the student.

    For a way of calling: "the layer has no parameter W_Q".
    """


def plain(value: Any) -> Plain:
    """Reduce a returned value to plain data; what is not plain becomes a :class:`Foreign`."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            return Foreign("a sparse tensor")
        # A subclass may bring its own idea of everything, its size included; here its numbers count.
        with torch._C.DisableTorchFunctionSubclass():
            if value.numel() > MOST_NUMBERS:
                return Foreign(f"a tensor of shape {tuple(value.shape)}, far larger than asked for")
            if value.dtype in (torch.uint16, torch.uint32, torch.uint64):
                value = value.long()  # whole numbers like all others
            if value.dtype not in DTYPES:
                return Foreign(f"a tensor of {str(value.dtype).removeprefix('torch.')}")
            return value.detach().as_subclass(Tensor).cpu().clone()
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)  # NumPy's words are words, too
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        number = int(value)
        return number if abs(number) < 2**63 else Foreign("a number with very many digits")
    if isinstance(value, float | np.floating):
        return float(value)
    if isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
        return plain(np.ndarray.item(value))
    if isinstance(value, tuple):  # some have names for their parts, or are a tensor's shape
        value = tuple(value)
    if isinstance(value, dict) and type(value) is not dict:  # some have an order, or a default
        value = dict(dict.items(value))
    if type(value) in (tuple, list, dict) and len(value) > MOST_PARTS:
        return Foreign(f"a {type(value).__name__} of {len(value)}, far larger than asked for")
    if type(value) in (tuple, list):
        return type(value)(map(plain, value))
    if type(value) is dict:
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return Foreign(f"a NumPy array of shape {value.shape}")
    return Foreign(describe_type(value))


def bounded(value: Plain) -> Plain:
    """The same plain data, or a :class:`Foreign` in its place if there is more of it than grading reads."""
    size = _size(value)
    if size <= MOST_BYTES:
        return value
    return Foreign(f"about {size:,} bytes, where grading reads {MOST_BYTES:,}")


def _size(value: Plain) -> int:
    if isinstance(value, Tensor):
        return 150 + value.nbytes
    if isinstance(value, str):
        return 6 * len(value)
    if isinstance(value, dict):
        return sum(6 * len(name) + _size(part) for name, part in value.items())
    if isinstance(value, tuple | list):
        return sum(map(_size, value))
    return 24


def describe_type(value: Any) -> str:
    """What an object is, in words that continue "what came is"."""
    if callable(value):
        return "a function, not what the function computes"
    return object_of_type(type(value).__name__)


def object_of_type(name: str) -> str:
    """The same of an object whose type has this name."""
    return f"an object of type `{name}`" if is_name(name) else "an object of some class"


def is_name(name: str) -> bool:
    """Whether this can be told as a name: whoever makes a class may call it by a whole sentence."""
    return name.isidentifier() and len(name) <= LONGEST_TYPE
