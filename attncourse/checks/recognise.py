"""Which mistakes give the same answers as the one that came?"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from attncourse.checks.compare import coincide
from attncourse.checks.effects import one_of_two, two_that_make_up
from attncourse.checks.task import Mistake, Task, Wrong
from attncourse.probe.answer import Answer, Plain
from attncourse.probe.calling import Case


@dataclass(frozen=True)
class Recognised:
    """What an answer looks like.

    Parameters
    ----------
    wrongs : tuple of Wrong
        The mistakes, which it makes together.
    everywhere : bool
        Whether they explain all cases; False where they explain only the first that fails.
    among_others : bool
        Whether it may make more mistakes than these: several combinations fit, and these are what
        all of them share.
    on_inputs_of_law : bool
        Whether they explain what came in a trial of a law.
    by_misses : bool
        Whether they explain no more than which cases are wrong, and not what came in them.
    """

    wrongs: tuple[Wrong, ...]
    everywhere: bool = True
    among_others: bool = False
    on_inputs_of_law: bool = False
    by_misses: bool = False


def recognise(
    task: Task, cases: Sequence[Case], answers: Sequence[Answer], failing: int
) -> Recognised | None:
    """Look among single mistakes, then pairs; then for what explains the first failing case alone.

    Parameters
    ----------
    task : Task
    cases : sequence of Case
    answers : sequence of Answer
        One for each case.
    failing : int
        The place of the first case whose answer is wrong.

    Returns
    -------
    Recognised or None
        None if nothing known does the same.
    """
    if len(answers) < len(cases):
        return None
    # The failing case first: it rules out nearly everything.
    order = sorted(range(len(cases)), key=lambda place: place != failing)
    ordered, given = [cases[place] for place in order], [answers[place] for place in order]

    def does_the_same(mistake: Mistake, case: Case, answer: Answer) -> bool:
        known = task.known(mistake, case)
        if not coincide(answer, known):
            return False
        # What is nearly the same may be wrong for another reason.
        return (
            task.compare is None
            or answer.failure is not None
            or (task.compare(case.inputs, answer.value) == task.compare(case.inputs, known.value))
        )

    def fits(mistake: Mistake) -> bool:
        return all(does_the_same(mistake, case, answer) for case, answer in zip(ordered, given, strict=True))

    def fits_there(mistake: Mistake) -> bool:
        return does_the_same(mistake, ordered[0], given[0])

    singles = [one for one in task.single_mistakes if fits_there(one)]
    # Numbers that follow from an input that was spoilt can look like two mistakes, and are none.
    spoilt = any(answer.modified for answer in given)
    constant = _always_the_same(given)
    for there in (singles, () if spoilt or constant else filter(fits_there, task.pairs)):
        fitting = [mistake for mistake in there if fits(mistake)]
        if fitting:
            shared = _shared(fitting)
            if there is singles or shared is None or any(_tells_much(answer.value) for answer in given):
                return shared
            return _seen(task, shared, ordered, given)
    # An exception says itself what went wrong on one input.
    if given[0].failure is None and len(singles) == 1:
        right = task.known(task.reference, ordered[0])
        if _tells(given[0].value) and not coincide(given[0], right):
            return Recognised(singles[0].wrongs, everywhere=False)
    if spoilt or constant:
        return None
    if task.compare is not None:
        return _misses_the_same(task, ordered, given)
    return _two_effects(task, ordered, given) or _made_among_others(task, ordered, given)


def made_there(task: Task, trial: Sequence[Case], answers: Sequence[Answer]) -> Recognised | None:
    """The mistake that gives the same as the answer in a trial of a law, where only one does."""
    if not any(isinstance(answer.value, Tensor) and _tells(answer.value) for answer in answers):
        return None  # in a single number it may be chance
    fitting = [
        mistake
        for mistake in task.single_mistakes
        if all(
            coincide(answer, task.known(mistake, case)) for case, answer in zip(trial, answers, strict=True)
        )
    ]
    return (
        Recognised(fitting[0].wrongs, everywhere=False, on_inputs_of_law=True) if len(fitting) == 1 else None
    )


def _seen(
    task: Task, shared: Recognised, cases: Sequence[Case], given: Sequence[Answer]
) -> Recognised | None:
    """Of the mistakes of two that are told by words alone, those whose own effects are mostly there.

    Words are few: of many pairs one gives them all where neither of the two was made.
    """
    seen = []
    for mistake in task.single_mistakes:
        if mistake.wrongs[0] not in shared.wrongs:
            continue
        acts = [
            coincide(answer, known)
            for case, answer in zip(cases, given, strict=True)
            if not coincide(known := task.known(mistake, case), task.known(task.reference, case))
        ]
        if len(acts) > 1 and 4 * sum(acts) >= 3 * len(acts):
            seen.append(mistake.wrongs[0])
    return replace(shared, wrongs=tuple(seen), among_others=True) if seen else None


def _two_effects(task: Task, cases: Sequence[Case], given: Sequence[Answer]) -> Recognised | None:
    """Two single mistakes whose effects together are those of the answer."""
    right = [task.known(task.reference, case) for case in cases]
    there = {mistake: task.known(mistake, cases[0]) for mistake in task.single_mistakes}
    likely = one_of_two(given[0], right[0], there)
    known = {mistake: [task.known(mistake, case) for case in cases] for mistake in likely}

    def of_one_factor(one: Mistake, other: Mistake) -> bool:
        return bool(one.choices.keys() & other.choices.keys())

    fitting = two_that_make_up(given, right, known, of_one_factor)
    common = set.intersection(*({*one.wrongs, *other.wrongs} for one, other in fitting)) if fitting else None
    if not common:
        return None
    in_order = [wrong for mistake in task.single_mistakes for wrong in mistake.wrongs if wrong in common]
    return Recognised(tuple(dict.fromkeys(in_order)), among_others=len(fitting) > 1)


def _misses_the_same(task: Task, cases: Sequence[Case], given: Sequence[Answer]) -> Recognised | None:
    """The mistakes that are wrong in just the same cases, with the same words, whatever came in them.

    Who is to find something finds anything that does; where nothing is found says how it was looked for.
    """

    compare = task.compare
    if compare is None or any(answer.failure for answer in given):
        return None

    def misses(answers: Sequence[Answer]) -> frozenset[tuple[int, str]]:
        told = (
            None if one.failure else compare(case.inputs, one.value)
            for case, one in zip(cases, answers, strict=True)
        )
        return frozenset((place, words) for place, words in enumerate(told) if words is not None)

    missed = misses(given)
    if len(missed) == len(cases):
        return None  # what is always wrong can be so for any reason
    of_each: dict[frozenset[tuple[int, str]], list[Mistake]] = {}
    for mistake in task.single_mistakes:
        answers = [task.known(mistake, case) for case in cases]
        if not any(answer.failure for answer in answers) and (places := misses(answers)) and places <= missed:
            of_each.setdefault(places, []).append(mistake)
    ways = [{places} for places in of_each if places == missed]
    parts = [places for places in of_each if places < missed]
    ways += [{one, other} for one, other in itertools.combinations(parts, 2) if one | other == missed]
    seen = [
        shared.wrongs[0]
        for places in of_each
        if ways and all(places in way for way in ways) and (shared := _shared(of_each[places])) is not None
    ]
    complete = len(ways) == 1 and len(seen) == len(ways[0])
    # One case may be missed by chance, too.
    return Recognised(tuple(seen), len(missed) > 1, not complete, by_misses=True) if seen else None


def _made_among_others(task: Task, cases: Sequence[Case], given: Sequence[Answer]) -> Recognised | None:
    """The mistakes whose every effect is there, though they do not explain all cases."""
    found: dict[tuple[int, ...], list[Mistake]] = {}
    for mistake in task.single_mistakes:
        found.setdefault(_acts_in(task, mistake, cases, given), []).append(mistake)
    most = max(found, key=len, default=())
    wrong = sum(
        not coincide(answer, task.known(task.reference, case))
        for case, answer in zip(cases, given, strict=True)
    )
    # Of few cases, or where a quarter is left, it may be chance.
    if len(most) < 5 or 4 * len(most) < 3 * wrong:
        return None
    shared = _shared(found[most])
    return None if shared is None else Recognised(shared.wrongs, among_others=True)


def _acts_in(task: Task, mistake: Mistake, cases: Sequence[Case], given: Sequence[Answer]) -> tuple[int, ...]:
    """The cases in which a mistake is wrong, if the answer does the same in each of them; none otherwise."""
    places = []
    for place, (case, answer) in enumerate(zip(cases, given, strict=True)):
        known = task.known(mistake, case)
        if coincide(known, task.known(task.reference, case)):
            continue
        if answer.failure is not None or not coincide(answer, known):
            return ()
        places.append(place)
    return tuple(places)


def _always_the_same(given: Sequence[Answer]) -> bool:
    """Whether one word, yes or no, or nothing came back in all cases: there are too many reasons for that."""
    values = [answer.value for answer in given if answer.failure is None]
    return len(values) == len(given) > 1 and all(
        value is None or (isinstance(value, str | bool) and value == values[0]) for value in values
    )


def _tells(value: Plain) -> bool:
    """Whether two answers hardly agree in this value by chance.

    They do in a word, in yes or no, in a few whole numbers or one simple fraction, and where nothing is a
    number any more.
    """
    if isinstance(value, tuple | list):
        return any(map(_tells, value))
    if isinstance(value, dict):
        return any(map(_tells, value.values()))
    if isinstance(value, float):
        return math.isfinite(value) and abs(12 * value - round(12 * value)) > 1e-6
    if not isinstance(value, Tensor):
        return False
    numbers = value[value.isfinite()].unique()
    return len(numbers) > 3 or bool((numbers != numbers.double().round()).any())


def _tells_much(value: Plain) -> bool:
    """Whether two answers hardly agree in this value by chance, counts and tables of yes and no included."""
    if isinstance(value, tuple | list):
        return any(map(_tells_much, value)) or (len(value) > 3 and all(type(one) is int for one in value))
    if type(value) is int:
        return abs(value) > 9
    return _tells(value) or (isinstance(value, Tensor) and int(value.isfinite().sum()) > 8)


def _shared(fitting: Sequence[Mistake]) -> Recognised | None:
    """What all the mistakes that fit have in common; None if that is nothing."""
    sets = [mistake.wrongs for mistake in fitting]
    common = tuple(wrong for wrong in sets[0] if all(wrong in other for other in sets))
    return Recognised(common, among_others=len(sets) > 1) if common else None
