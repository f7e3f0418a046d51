"""What an answer may not call: whatever does, in its stead, the work that is asked of it.

This teaches, in the student's own session. In grading nothing depends on it.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from torch.overrides import TorchFunctionMode

# Functions that compute attention in one go: writing it is what the course asks for.
FUSED = (
    "scaled_dot_product_attention",
    "multi_head_attention_forward",
    "_native_multi_head_attention",
)


# What hands a call on to where it is computed: in between, functions of the answer's may run.
_ASKING = ("attncourse.probe.absent", "attncourse.probe.program")


class Refused(Exception):
    """The answer called a function that does the task's work in its stead."""


def given(function: Callable) -> Callable:
    """Let a function that the task hands to the answer do what the answer itself may not."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with Refusal.suspended():
            return function(*args, **kwargs)

    return call


class Refusal(TorchFunctionMode):
    """Raises :class:`Refused` when a function that the task asks to write is called.

    Parameters
    ----------
    refuses, allows : tuple of str
        As of :class:`~attncourse.probe.calling.Calling`.
    outside : code object
        The code that calls the answer: what it does itself is not looked at.
    """

    _suspended = 0

    def __init__(self, refuses: tuple[str, ...], allows: tuple[str, ...], outside: CodeType) -> None:
        super().__init__()
        self.refuses = FUSED + refuses
        self.allows = allows
        self.outside = outside
        self.refused = ""

    @classmethod
    def in_given(cls) -> int:
        """How many given functions, of which each has called the next, are running."""
        return cls._suspended

    @classmethod
    @contextlib.contextmanager
    def suspended(cls) -> Iterator[None]:
        cls._suspended += 1
        try:
            yield
        finally:
            cls._suspended -= 1

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._suspended:
            return func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        # It has several of one kind: for each kind of machine, and with some words before or behind.
        refused = any(one in name for one in self.refuses)
        called = f"PyTorch's own {name}" if refused else self._own_function()
        if called:
            self.refused = called
            raise Refused(called)
        return func(*args, **(kwargs or {}))

    def _own_function(self) -> str:
        """The course's own function through which the answer came here, if it may not call it."""
        frames = list(_frames_inside(sys._getframe(2), self.outside))
        # The frames next to the probe are the task's own way of calling the answer.
        while frames and _module(frames[-1]).startswith("attncourse.probe"):
            frames.pop()
        for frame in reversed(frames):
            if _module(frame).startswith("attncourse") and _module(frame) not in _ASKING:
                name = _whole(frame)
                return "" if name in self.allows else f"attncourse's own {name}"
        return ""


def _module(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "")


def _whole(frame: FrameType) -> str:
    """The function or class that the code of a frame is part of."""
    code = frame.f_code
    if code.co_filename == "<string>" and code.co_varnames:  # which a dataclass has written for itself
        return type(frame.f_locals[code.co_varnames[0]]).__name__
    return code.co_qualname.partition(".")[0]


def _frames_inside(frame: FrameType | None, outer_code: Any) -> Iterator[FrameType]:
    """The frames from `frame` outwards, up to the one that runs `outer_code`."""
    while frame is not None and frame.f_code is not outer_code:
        yield frame
        frame = frame.f_back
