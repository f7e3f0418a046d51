"""What a student is asked to write, declared once: the right answer, its laws, and the mistakes to know.

A unit's tasks stand in ``attncourse/checks/<unit>.py``. Declaring a :class:`Task` there is
all that is needed: it can then be called from a notebook as ``checks.<name>(answer)``.
"""

from __future__ import annotations

import ast
import functools
import inspect
import itertools
import re
import textwrap
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from attncourse.checks.draws import Draws
from attncourse.probe.answer import Answer, Plain
from attncourse.probe.calling import Calling, Case, Way, probe

registry: dict[str, Task] = {}

# What the references and the mistakes give for the cases that somebody holds.
_known: weakref.WeakKeyDictionary[Case, dict[tuple[Task, Callable], Answer]] = weakref.WeakKeyDictionary()

# Random inputs: ``normal(3, 4)`` is a tensor of that shape, mean 0 and variance 1.
Normal = Callable[..., Tensor]


@dataclass(frozen=True)
class Law:
    """What holds of every right answer, and how to see whether it holds of this one.

    Parameters
    ----------
    sentence : str
        The law, for the student: "with equal keys every output is the plain mean of the values".
        It continues "Of every right answer it is true that".
    read : str
        The passage that explains it, ``<unit>#<anchor>`` in the book.
    inputs : callable
        ``inputs(normal)`` makes the inputs of one call of the answer, or of several that are
        compared with each other: a dictionary, or a list of them.
    broken : callable
        ``broken(inputs, value)`` returns None if the law holds and otherwise a sentence with the
        numbers: "row 0 of yours sums to 1.7". With several calls it gets two lists. It is asked
        only about values of the right form (shape and kind of dtype).
    """

    sentence: str
    read: str
    inputs: Callable[[Normal], dict[str, Plain] | list[dict[str, Plain]]]
    broken: Callable[[Any, Any], str | None]

    @functools.cached_property
    def cases(self) -> Callable[[int], list[Case]]:
        """``cases(seed)`` gives the calls by which the law is tried."""
        return functools.lru_cache(maxsize=8)(self._new_cases)

    def _new_cases(self, seed: int) -> list[Case]:
        inputs = self.inputs(normal_source(seed))
        return [Case(one) for one in (inputs if isinstance(inputs, list) else [inputs])]

    def breach(self, cases: list[Case], values: list[Plain]) -> str | None:
        """How the values that came back break the law, or None."""
        inputs = [case.inputs for case in cases]
        return self.broken(inputs, values) if len(cases) > 1 else self.broken(inputs[0], values[0])


@dataclass(frozen=True)
class Wrong:
    """A mistake: in what words to name it, what to think about, and where to read.

    Parameters
    ----------
    label : str
        The mistake in words that continue "This looks like:". Unique within its task.
    hint : str
        What to think about; it teaches and does not give the answer.
    read : str
        The passage that explains it, ``<unit>#<anchor>`` in the book.
    """

    label: str
    hint: str
    read: str


def wrongs(read: str, text: str) -> dict[Any, Wrong]:
    """The wrong choices of a factor, as a text.

    Parameters
    ----------
    read : str
        The passage that explains them.
    text : str
        A line for each choice, ``choice: label``, and below it, indented, its hint. Where another passage
        explains it, that stands in brackets at the end of the hint: ``(multihead#slices)``.
    """
    choices: dict[Any, list[str]] = {}
    for line in textwrap.dedent(text).strip().splitlines():
        if line.startswith(" "):
            list(choices.values())[-1].append(line.strip())
        else:
            choice, label = line.split(": ", 1)
            choices[choice] = [label]
    found = {}
    for choice, (label, *hint) in choices.items():
        passage = re.search(r" \((\w+#[\w-]+)\)$", " ".join(hint))
        words = " ".join(hint)[: passage.start()] if passage else " ".join(hint)
        found[choice] = Wrong(label, words, passage[1] if passage else read)
    return found


@dataclass(frozen=True, eq=False)
class Mistake:
    """A wrong answer that the checks can recognise: one mistake, or several that were made together.

    Parameters
    ----------
    function : callable
        The wrong answer.
    wrongs : tuple of Wrong
        What is wrong with it.
    choices : mapping of str to object
        For one that is made of factors, the wrong choices, by the factors' names.
    """

    function: Callable
    wrongs: tuple[Wrong, ...]
    choices: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return "; and ".join(wrong.label for wrong in self.wrongs)

    def source(self, name: str) -> str:
        """The wrong answer as a student could have written it, under this name.

        It needs ``math`` and ``torch``; functions of the checks that it calls stand in front of it.
        """
        helpers = "\n\n".join(map(_bare_source, _helpers(self.function)))
        if not self.choices:
            return "\n\n".join(filter(None, [helpers, source_of(self.function, name)]))
        parameters = inspect.signature(self.function).parameters.values()
        taken = ", ".join(part.name for part in parameters if part.kind is not part.KEYWORD_ONLY)
        chosen = ", ".join(f"{factor}={choice!r}" for factor, choice in self.choices.items())
        inner = "\n\n".join(filter(None, [helpers, source_of(self.function, "made")]))
        return (
            f"def {name}({taken}):\n{textwrap.indent(inner, '    ')}\n\n    return made({taken}, {chosen})\n"
        )

    def __call__(self, *inputs: Any) -> Any:
        return self.function(*inputs, **self.choices)


@dataclass(eq=False)
class Task:
    """One thing that a student is asked to write.

    Parameters
    ----------
    name : str
        The name of the check, and of the function that the student writes.
    reference : callable
        The right answer, from ``attncourse``.
    pencil : dict of str to plain data, or callable
        The inputs of the pencil case: tiny and with round numbers, so that it can be done on
        paper. It is the only case whose right answer is ever shown.
    drawn : callable
        Makes the list of the other cases from a seed. Different seeds give different numbers. The
        module in which it stands names the unit.
    laws : sequence of Law
        Simplest first.
    way : Way
        How the answer is called.
    refuses, allows : tuple of str
        As of ``attncourse.probe.calling.Calling``.
    compare : callable, optional
        ``compare(inputs, value)`` returns None for a right answer and otherwise a sentence
        that says what is wrong with it: for tasks with more than one right answer. Without
        it, the answer must equal the reference's.
    builds_on : tuple of str
        Earlier tasks of the notebook whose functions the answer may call, so that it is not to
        blame where they are wrong.
    exact_dtype : bool
        Whether the task states the dtype, so that float64 for float32, int32 for int64, or 2.0 for 2, is
        wrong.
    part : callable, optional
        For a task that returns several things, their names: ``part(1, 0)`` is that of the first thing
        in the second one. Without it they are numbered.
    pencil_note : str
        What a function does that the pencil case hands over, in words that continue "in which".
    shows_right : bool
        Whether a right answer to the pencil case may be shown: not where it would be one to all cases.
    """

    name: str
    reference: Callable
    pencil: dict[str, Plain]
    drawn: Callable[[int], list[Case]]
    laws: tuple[Law, ...] | list[Law] = ()
    way: Way = field(default_factory=Way)
    refuses: tuple[str, ...] = ()
    allows: tuple[str, ...] = ()
    compare: Callable[[dict[str, Plain], Plain], str | None] | None = None
    builds_on: tuple[str, ...] = ()
    exact_dtype: bool = False
    part: Callable[..., str] | None = None
    pencil_note: str = ""
    shows_right: bool = True
    functions: list[Mistake] = field(default_factory=list, init=False)
    made: Callable | None = field(default=None, init=False)
    factors: dict[str, dict[Any, Wrong]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.name in registry:
            raise ValueError(
                f"name is {self.name!r}: a task of unit {registry[self.name].unit} has it already"
            )
        registry[self.name] = self

    @property
    def unit(self) -> str:
        """The unit in whose module the task is declared."""
        return self.drawn.__module__.rpartition(".")[2]

    @property
    def calling(self) -> Calling:
        return Calling(self.way, self.refuses, self.allows)

    @property
    def hands_over_functions(self) -> bool:
        return bool(self.way.functions(self.pencil))

    @functools.cached_property
    def cases(self) -> Callable[[int], list[Case]]:
        """``cases(seed)`` gives the cases of a seed; with seed 0, which students see, the pencil case first.

        Nobody changes a case, and to make one may take a while: those of eight seeds are kept.
        """
        return functools.lru_cache(maxsize=8)(self._new_cases)

    def _new_cases(self, seed: int) -> list[Case]:
        note = ", in which ".join(filter(None, ["the pencil case", self.pencil_note]))
        first = [] if seed else [Case(self.pencil, note)]
        return first + self.drawn(seed)

    def mistake(self, label: str, *, hint: str, read: str) -> Callable[[Callable], Callable]:
        """Register the decorated function as a known wrong answer to this task."""

        def register(function: Callable) -> Callable:
            self.functions.append(Mistake(function, (Wrong(label, _one_line(hint), read),)))
            return function

        return register

    def made_of(self, **factors: Mapping[Any, Wrong]) -> Callable[[Callable], Callable]:
        """Register the decorated function as the answer that is made of choices.

        Parameters
        ----------
        **factors : mapping of object to Wrong
            For each keyword-only argument of the function its wrong values, and what is wrong with each.
            The default values are the right ones.
        """

        def register(function: Callable) -> Callable:
            self.made = function
            self.factors = {
                name: {
                    choice: Wrong(wrong.label, _one_line(wrong.hint), wrong.read)
                    for choice, wrong in choices.items()
                }
                for name, choices in factors.items()
            }
            return function

        return register

    @functools.cached_property
    def single_mistakes(self) -> list[Mistake]:
        """Every single known mistake, those of the factors first."""
        return [*self._combinations(1), *self.functions]

    @functools.cached_property
    def pairs(self) -> list[Mistake]:
        """Every two mistakes of different factors, made together."""
        return list(self._combinations(2))

    def _combinations(self, number: int) -> Iterator[Mistake]:
        """All answers with so many wrong choices, each of another factor."""
        if self.made is None:
            return
        for names in itertools.combinations(self.factors, number):
            for chosen in itertools.product(*(self.factors[name].items() for name in names)):
                wrongs = tuple(wrong for _, wrong in chosen)
                choices = {name: choice for name, (choice, _) in zip(names, chosen, strict=True)}
                yield Mistake(self.made, wrongs, choices)

    def known(self, answer: Callable, case: Case) -> Answer:
        """What the reference or a mistake gives for a case: called once, as long as the case is kept."""
        answers = _known.setdefault(case, {})
        # Tasks share laws, and may share a reference that each of them calls in its own way.
        key = (self, answer)
        if key not in answers:
            (answers[key],) = probe(self.calling, answer, [case], refusing=False)
        return answers[key]

    def stand_in(self, *inputs: Any, **named: Any) -> Any:
        """What the reference gives, called as the answer may be.

        Arguments that only the reference has could do the work of other tasks.

        Raises
        ------
        TypeError
            If the arguments are others than the cases have.
        """
        fullest = max((case.inputs for case in self.cases(0)), key=len)
        most = len(self.way.arguments(fullest))
        # Inputs that are put together to fewer arguments have no names that an answer could use.
        names = list(fullest) if most == len(fullest) else []
        following = itertools.takewhile(named.__contains__, names[len(inputs) :])
        values = [*inputs, *(named.pop(name) for name in following)]
        if named or len(values) > most:
            raise TypeError(f"{self.name}() takes no more than {', '.join(names) or most}")
        return self.reference(*values)

    def __repr__(self) -> str:
        return f"<task {self.name} of unit {self.unit}>"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def normal_source(seed: int, use: str = "inputs") -> Normal:
    """A source of random numbers: ``normal(3, 4)`` is a tensor of that shape, mean 0 and variance 1."""
    return Draws(seed, use).randn


def in_any_order(names: Iterable[str], seed: int) -> list[str]:
    """As they come for seed 0, which students see; mixed for any other, so that no list of answers fits."""
    listed = list(names)
    if not seed:
        return listed
    return [listed[place] for place in Draws(seed, f"order of {listed}").randperm(len(listed))]


def source_of(function: Callable, name: str) -> str:
    """The source of an answer as a student would have written it, under another name.

    Parameters
    ----------
    function : callable
        A right answer, or a wrong one.
    name : str
        What the student's function is called: the name of the task.

    Returns
    -------
    str
        The definition without decorators.
    """
    source = textwrap.dedent(inspect.getsource(function))
    definition = ast.parse(source).body[0]
    undecorated = "\n".join(source.splitlines()[definition.lineno - 1 :])
    # Everywhere, as a function may call itself; but not the attributes of the same name.
    return re.sub(rf"(?<![\w.]){function.__name__}\b", name, undecorated)


def _helpers(function: Callable, known: list[Callable] | None = None) -> list[Callable]:
    """The functions of the checks that a function calls, and those that they call, each before its caller."""
    known = [] if known is None else known
    code = inspect.unwrap(function).__code__
    names = [*code.co_names, *(n for c in code.co_consts if inspect.iscode(c) for n in c.co_names)]
    for name in names:
        helper = function.__globals__.get(name)
        if not inspect.isfunction(helper) or not helper.__module__.startswith("attncourse.checks."):
            continue
        if helper is not function and helper not in known:
            _helpers(helper, known)
            known.append(helper)
    return known


def _bare_source(function: Callable) -> str:
    """The source of a function without what only we need: its decorators, types and docstring."""
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list, definition.returns = [], None
    for argument in definition.args.args:
        argument.annotation = None
    if ast.get_docstring(definition) is not None:
        del definition.body[0]
    return ast.unparse(definition)
