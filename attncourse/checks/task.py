"""What a student is asked to write, declared once: reference, cases and misconceptions.

A unit's tasks stand in ``attncourse/checks/<unit>.py``. Declaring a :class:`Task` there is
all that is needed: it can then be called from a notebook as ``checks.<name>(answer)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from attncourse.checks.judge import CheckFailed, Verdict, judge
from attncourse.checks.probe import probe

# What the student's session and the judge exchange: tensors, numbers, words, and tuples,
# lists and dictionaries of them. Nothing in it can run.
Plain = Any

registry: dict[str, Task] = {}


@dataclass(frozen=True)
class Case:
    """One call of the student's function.

    Parameters
    ----------
    inputs : dict of str to plain data
        The arguments, in the order in which they are passed; the names are for messages.
    note : str
        What is special about this case, in words that continue "Called with": "a batch".
    contiguous : bool
        False hands over tensors whose memory runs the other way, as a transpose leaves it.
    """

    inputs: dict[str, Plain]
    note: str = ""
    contiguous: bool = True


@dataclass(frozen=True)
class Misconception:
    """A wrong answer that people really give.

    Parameters
    ----------
    label : str
        The mistake in words that continue "This looks like:". Unique within its task.
    hint : str
        What to think about; it teaches and does not give the answer.
    read : str
        The passage that explains it, ``<unit>#<anchor>`` in the book.
    function : callable
        The wrong answer. It stands alone: only its arguments, ``math`` and ``torch``.
    """

    label: str
    hint: str
    read: str
    function: Callable


def normal_source(seed: int) -> Callable[..., Tensor]:
    """A source of random inputs: ``normal(3, 4)`` is a tensor of that shape, mean 0 and variance 1."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    return normal


def in_any_order(names: Iterable[str], seed: int) -> list[str]:
    """As they come for seed 0, which students see; mixed for any other, so that no list of answers fits."""
    listed = list(names)
    if not seed:
        return listed
    generator = torch.Generator().manual_seed(seed)
    return [listed[place] for place in torch.randperm(len(listed), generator=generator)]


def call_with_inputs(answer: Callable, inputs: dict[str, Plain]) -> Plain:
    """Call the answer with the inputs by position, so that arguments may have any names."""
    return answer(*inputs.values())


@dataclass(eq=False)
class Task:
    """One thing that a student is asked to write.

    Parameters
    ----------
    name : str
        The name of the check, and of the function that the student writes.
    reference : callable
        The right answer, from ``attncourse``.
    cases : callable
        Makes the list of cases from a seed. Different seeds give different numbers. The
        module in which it stands names the unit.
    refuses : tuple of str
        Names of torch functions that would do the work in the student's stead, beside the
        fused attention functions, which are always refused.
    allows : tuple of str
        Names of the course's own functions, and of PyTorch's layers of attention, that the
        answer may use; all others are refused.
    compare : callable, optional
        ``compare(inputs, value)`` returns None for a right answer and otherwise a sentence
        that says what is wrong with it: for tasks with more than one right answer. Without
        it, the answer must equal the reference's.
    call : callable
        ``call(answer, inputs)`` uses the answer, in the student's session, and returns plain
        data.
    """

    name: str
    reference: Callable
    cases: Callable[[int], list[Case]]
    refuses: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    compare: Callable[[dict[str, Plain], Plain], str | None] | None = None
    call: Callable[[Any, dict[str, Plain]], Plain] = call_with_inputs
    misconceptions: list[Misconception] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        if self.name in registry:
            raise ValueError(
                f"name is {self.name!r}: a task of unit {registry[self.name].unit} has it already"
            )
        registry[self.name] = self

    @property
    def unit(self) -> str:
        """The unit in whose module the task is declared."""
        return self.cases.__module__.rpartition(".")[2]

    def misconception(self, label: str, *, hint: str, read: str) -> Callable[[Callable], Callable]:
        """Register the decorated function as a known wrong answer to this task."""

        def register(function: Callable) -> Callable:
            self.misconceptions.append(Misconception(label, " ".join(hint.split()), read, function))
            return function

        return register

    def __call__(self, answer: Any) -> None:
        """Check an answer: say so if it is right, raise :class:`CheckFailed` if not."""
        cases = self.cases(0)
        verdict: Verdict = judge(self, cases, probe(self, answer, cases))
        if not verdict.passed:
            raise CheckFailed(verdict) from None
        print(verdict.message)

    def case(self, number: int, seed: int = 0) -> tuple[Plain, ...]:
        """The inputs of the case with that number, from 1, to try an answer on by hand.

        Grading uses other seeds, too.
        """
        cases = self.cases(seed)
        if not 1 <= number <= len(cases):
            raise ValueError(f"number is {number}: {self.name} has cases 1 to {len(cases)}")
        return tuple(cases[number - 1].inputs.values())

    def __repr__(self) -> str:
        return f"<check {self.name} of unit {self.unit}: call it with your answer>"
