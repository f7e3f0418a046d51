"""Decide whether an answer is right, and if it is not say what is true of right ones and what went wrong."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch import Tensor

from attncourse.checks.compare import Problem, difference, dtype_name, problem_with, same_form
from attncourse.checks.explain import cases_in_words, in_right_form, relation, where
from attncourse.checks.recognise import Recognised, made_there, recognise
from attncourse.checks.task import Law, Task
from attncourse.checks.verdict import Code, Facts, Passage, Picture, Pictures, Section, Verdict, Words
from attncourse.probe.answer import Answer, Plain, object_of_type
from attncourse.probe.calling import Case
from attncourse.probe.program import Program

# Calls the student's function on some cases, wherever it is, and brings back plain data. The second
# argument names functions of the student's in whose place right ones are put meanwhile.
Ask = Callable[[Sequence[Case], Sequence[str]], Sequence[Answer]]


# So many pictures fit on a screen with the words.
PICTURES_AT_MOST = 8


def judge(task: Task, seeds: Sequence[int], ask: Ask, wrong_parts: Sequence[str] = ()) -> Verdict:
    """Decide whether an answer is right, and if not say why.

    Parameters
    ----------
    task : Task
    seeds : sequence of int
        From which the cases are made; 0 stands for those that students see.
    ask : callable
        ``ask(cases, instead)`` calls the answer. Nothing else of the student's session is needed,
        and nothing of it is believed.
    wrong_parts : sequence of str
        Functions of the student's that the answer may call (`Task.builds_on`) and that are wrong.

    Returns
    -------
    Verdict
        With `wrong_parts`, an answer that is right once right ones stand in their place passes,
        and says in `carried` which they were.

    Raises
    ------
    ValueError
        If there is not one answer for each case, and no interruption explains it.
    """
    cases = [(seed, number, case) for seed in seeds for number, case in enumerate(task.cases(seed), 1)]
    answers = ask([case for _, _, case in cases], ())
    verdict = _judged(task, cases, answers, ask, ())
    parts = [name for name in wrong_parts if name in task.builds_on]
    if verdict.passed or not parts:
        return verdict
    mended = ask([case for _, _, case in cases], parts)
    verdict_then = _judged(task, cases, mended, ask, parts)
    if not verdict_then.passed and verdict_then.message == verdict.message:
        return verdict  # it does not call them, or is not to be saved by them
    names = " and ".join(f"`{name}`" for name in parts)
    them = "it" if len(parts) == 1 else "them"
    are = "is" if len(parts) == 1 else "are"
    first = Words(f"{names}, which this calls, {are} not right yet: mend {them} first.")
    if verdict_then.passed:
        right = Words(f"With a right one in place of {them}, this is right.")
        return Verdict(
            task.name,
            True,
            f"{task.name}: right, but for what it calls.",
            (first, right),
            carried=tuple(parts),
        )
    then = Words(f"With a right one in place of {them}, this is what remains:")
    return Verdict(
        task.name,
        False,
        verdict_then.headline,
        (first, then, *verdict_then.sections),
        verdict_then.mistakes,
        verdict_then.law,
        tuple(parts),
    )


def _judged(
    task: Task,
    cases: Sequence[tuple[int, int, Case]],
    answers: Sequence[Answer],
    ask: Ask,
    instead: Sequence[str],
) -> Verdict:
    stopped_early = bool(answers) and answers[-1].failure is not None
    if len(answers) > len(cases) or (len(answers) < len(cases) and not stopped_early):
        raise ValueError(
            f"answers has {len(answers)} answers: expected one for each of the {len(cases)} cases"
        )
    plain_cases = [case for _, _, case in cases]
    # Names come from the student's process: of those that there are.
    answers = [
        replace(answer, modified=tuple(name for name in case.inputs if name in answer.modified))
        for answer, case in zip(answers, plain_cases, strict=False)
    ]
    references = [task.known(task.reference, case) for case in plain_cases]
    problems = [problem_with(task, *triple) for triple in zip(plain_cases, answers, references, strict=False)]
    wrong = [place for place, problem in enumerate(problems) if problem is not None]
    if not wrong:
        return Verdict(task.name, True, _praise(task, plain_cases))

    first = wrong[0]
    failure = answers[first].failure
    if failure is not None and failure.kind in _WITHOUT_CASE:
        if failure.kind == "not callable":  # its words become ours
            told = re.fullmatch("an object of type `(.*)`", failure.name)
            failure = replace(failure, name=object_of_type(told[1] if told else ""))
        headline, advice = (text.format(task=task, failure=failure) for text in _WITHOUT_CASE[failure.kind])
        return Verdict(task.name, False, f"{task.name}: {headline}", (Words(advice),))

    problem = problems[first]
    assert problem is not None
    seed, number, case = cases[first]
    answer = answers[first]
    sections: list[Section] = [
        _facts(task, cases, wrong, len(answers), problem, answer, references[first].value)
    ]
    if failure is not None and failure.text:
        sections.append(Code(failure.text))
    recognised = recognise(task, plain_cases, answers, first)
    if recognised is None or not recognised.everywhere:
        sections += _in_all_cases(task, plain_cases, answers, references, wrong)
    laws = _broken_laws(task, seed, ask, instead, recognised is None) if failure is None else []
    for law, breach, made in laws:
        true = "it is true" if law is laws[0][0] else "it is also true"
        tried = f"But {breach}. (That was tried with inputs of its own.)"
        sections.append(Passage(f"Of every right answer {true} that {law.sentence}.", tried, law.read))
        sections += _passages(made)
    sections += _passages(recognised)
    if recognised is None:
        sections += _in_right_form(task, plain_cases, answers, references)
    named = tuple(one.label for one in recognised.wrongs) if recognised and recognised.everywhere else ()
    if not seed and number == 1:
        on_paper = _on_paper(task, case, answer, references[first])
        # What was raised is to be seen first, and so is all that is said below a page of numbers.
        is_last = failure is not None or len(on_paper.pictures) > PICTURES_AT_MOST
        sections.insert(len(sections) if is_last else 0, on_paper)
    return Verdict(
        task.name,
        False,
        f"{task.name}: not right yet.",
        tuple(sections),
        named,
        laws[0][0].sentence if laws else None,
    )


# Failures of which no single case is the cause: a headline, and what to do.
_WITHOUT_CASE = {
    "unwritten": (
        "not written yet.",
        "Replace the line `raise NotImplementedError()` by your code, run that cell, then run this again.",
    ),
    "not callable": (
        "a function is expected, and what came is {failure.name}.",
        "Pass the function itself, without brackets after its name: checks.{task.name}({task.name})",
    ),
    "unwritten part": (
        "something that it needs is not written yet.",
        "Your answer calls `{failure.name}`, which still stops with `raise NotImplementedError()`. "
        "Write that one first, or do without it here.",
    ),
    "refused": (
        "not by this road.",
        "Your answer calls {failure.name}, which does work that you are asked to write yourself. "
        "Use simpler operations, or what you have written before.",
    ),
    "missing": (
        "nothing to check.",
        "`{failure.name}` has no value here. Is its cell still there, above this one, and does it run "
        "without an error?",
    ),
    "interrupted": (
        "interrupted.",
        "The call of your function was stopped before it came back. Is there a loop in it that never ends, "
        "or that goes round so often that it takes longer than a cell may? (What grading allows stands on "
        "the page for students.)",
    ),
}


def _broken_laws(
    task: Task, seed: int, ask: Ask, instead: Sequence[str], naming: bool
) -> list[tuple[Law, str, Recognised | None]]:
    """The first law that the answer breaks, and how; with `naming` the first that names a mistake, too.

    A law's inputs leave little room: of several mistakes often one alone shows there.
    """
    told: list[tuple[Law, str, Recognised | None]] = []
    trials = [law.cases(seed) for law in task.laws]
    flat = [case for trial in trials for case in trial]
    answers = list(ask(flat, instead)) if flat else []
    references = [task.known(task.reference, case) for case in flat]
    place = 0
    for law, trial in zip(task.laws, trials, strict=True):
        here = slice(place, place + len(trial))
        place += len(trial)
        values = [answer.value for answer in answers[here] if answer.failure is None]
        expected = [answer.value for answer in references[here]]
        if len(values) < len(trial):
            continue
        values = list(map(_number_if_expected, values, expected))
        if not all(map(same_form, values, expected)):
            continue
        breach = law.breach(trial, values)
        if breach is None:
            continue
        made = made_there(task, trial, answers[here]) if naming else None
        if not told or made is not None:
            told.append((law, breach, made))
        if made is not None or not naming:
            break
    return told


def _number_if_expected(value: Plain, expected: Plain) -> Plain:
    """A number that came as a tensor, as a number."""
    if isinstance(expected, float) and isinstance(value, Tensor) and value.numel() == 1:
        return value.item()
    return value


def _on_paper(task: Task, case: Case, answer: Answer, reference: Answer) -> Pictures:
    """The pencil case: what went in, what came back, and what was expected."""
    pictures = [
        picture
        for title, value in case.inputs.items()
        if not isinstance(value, Program)
        for name, part in (value.items() if isinstance(value, dict) else [(title, value)])
        for picture in _pictures(name, part)
    ]
    if _named_tensors(reference.value) and _named_tensors(answer.value):
        return Pictures([*pictures, *_pictures_of_named(answer.value, reference.value)])
    if answer.failure is None:
        right = reference.value if task.compare is None else None
        pictures += _pictures("Came back", answer.value, right, task.part)
    if not task.shows_right:
        return Pictures(pictures)
    expected = "Expected" if task.compare is None else "A right answer"
    return Pictures([*pictures, *_pictures(expected, reference.value, reference.value, task.part)])


def _pictures(
    title: str,
    value: Plain,
    right: Plain = None,
    part: Callable[..., str] | None = None,
    place: tuple[int, ...] = (),
) -> list[Picture]:
    """A value's picture, or if it is several tensors one of each, with what is not right marked.

    `part` and `place` are as in `difference`.
    """
    if _of_tensors(value):
        fits = isinstance(right, tuple | list) and len(right) == len(value)
        found = []
        for number, (own, other) in enumerate(
            zip(value, right if fits else [None] * len(value), strict=True)
        ):
            here = (*place, number)
            which = part(*here) if part is not None and fits else str(number + 1)
            found += _pictures(f"{title}: {which}", own, other, part, here)
        return found
    return [Picture(title, value, _wrong(value, right))]


def _named_tensors(value: Plain) -> bool:
    return isinstance(value, dict) and all(isinstance(part, Tensor) for part in value.values())


def _pictures_of_named(value: dict[str, Tensor], right: dict[str, Tensor]) -> list[Picture]:
    """The first tensor in which an answer is wrong, beside the right one: all of them would be too many."""
    name = next(
        (name for name in right if _wrong(value.get(name), right[name]) is not None), next(iter(right))
    )
    return [
        *_pictures(f"Came back: {name}", value.get(name), right[name]),
        *_pictures(f"Expected: {name}", right[name], right[name]),
    ]


def _of_tensors(value: Plain) -> bool:
    """Whether it is several tensors, or several of several."""
    if not isinstance(value, tuple | list) or not value:
        return False
    return all(isinstance(part, Tensor) or _of_tensors(part) for part in value)


def _wrong(value: Plain, right: Plain) -> Tensor | None:
    problem = None if right is None else difference(value, right)
    return None if problem is None else problem.wrong


def _facts(
    task: Task,
    cases: Sequence[tuple[int, int, Case]],
    wrong: Sequence[int],
    looked_at: int,
    problem: Problem,
    answer: Answer,
    right: Plain,
) -> Facts:
    seed, number, case = cases[wrong[0]]
    differs, note = problem.differs, case.note
    if differs and note not in ("", "the pencil case"):
        # What decides such a case is said in its note.
        if task.compare is not None:
            differs, note = f"{differs}; {note}", ""
        elif isinstance(right, str | bool) and type(answer.value) is type(right):
            fits = f"{right} is right for" if isinstance(right, bool) else "it does not fit"
            differs, note = f"{fits} this input: {note}", ""
    rows = [("Called with", _describe_inputs(case, note))] if case.inputs else []
    if problem.came:
        rows.append(("Came back", problem.came))
    if differs:
        rows.append(("What differs" if problem.came else "Does not fit", differs))
    place = None if problem.wrong is None else where(problem.wrong)
    if place is not None:
        rows.append(("Where", place))
    if answer.modified:
        names = " and ".join(f"`{name}`" for name in answer.modified)
        sentence = f"your function changes its argument {names} in place; work on a new tensor instead"
        rows.append(("Besides" if differs else "What differs", sentence))
    # The numbers of the other seeds are the grader's own.
    case_words = "" if seed else f"; the inputs of this one are checks.{task.name}.case({number})"
    rows.append(("Cases right", f"{looked_at - len(wrong)} of {len(cases)}{case_words}"))
    which = cases_in_words([case.note for _, _, case in cases], wrong)
    return Facts(rows if which is None else [*rows, which])


def _in_all_cases(
    task: Task,
    cases: Sequence[Case],
    answers: Sequence[Answer],
    references: Sequence[Answer],
    wrong: Sequence[int],
) -> list[Section]:
    """What is true of the answer wherever it is wrong, if that can be said in a sentence."""
    if task.compare is not None or len(answers) < len(cases):
        return []
    if any(answers[place].failure is not None or answers[place].modified for place in wrong):
        return []
    if len(wrong) < 2:  # of one case alone much is true by chance
        return []
    found = relation([(cases[one].inputs, answers[one].value, references[one].value) for one in wrong])
    if found is None:
        return []
    return [Words(f"In each of the {len(wrong)} cases in which it is wrong, {found}.")]


def _in_right_form(
    task: Task, cases: Sequence[Case], answers: Sequence[Answer], references: Sequence[Answer]
) -> list[Section]:
    """What remains to be said of an answer whose numbers came in another form than was expected."""
    if len(answers) < len(cases):
        return []
    formed = [
        None if answer.failure else in_right_form(answer, reference.value)
        for answer, reference in zip(answers, references, strict=True)
    ]
    mended = [answer if new is None else new for answer, new in zip(answers, formed, strict=True)]
    had_form = [
        same_form(answer.value, reference.value)
        for answer, reference in zip(answers, references, strict=True)
    ]
    if all(had_form):
        return []
    wrong = [
        place
        for place, triple in enumerate(zip(cases, mended, references, strict=True))
        if problem_with(task, *triple) is not None
    ]
    if not wrong:
        return [Words("That is all that is wrong: in the form that was asked for, every case is right.")]
    recognised = recognise(task, cases, mended, wrong[0])
    if recognised is None:
        return []
    return [Words("And in the form that was asked for, there is something else."), *_passages(recognised)]


def _passages(recognised: Recognised | None) -> list[Section]:
    if recognised is None:
        return []
    wrongs = recognised.wrongs
    if recognised.on_inputs_of_law:
        lead = "On those inputs it does the same as this mistake:"
    elif recognised.by_misses:
        few = "Some of it" if recognised.among_others else "Just the same"
        lead = f"{few} is missed with this mistake:"
        if len(wrongs) > 1:
            lead = "Just the same is missed with two mistakes together. One looks like:"
    elif not recognised.everywhere:
        lead = "On this input it does the same as this mistake:"
    elif recognised.among_others:
        lead = "Whatever else there is, this looks like:"
    elif len(wrongs) > 1:
        lead = "Two mistakes together. One looks like:"
    else:
        lead = "This looks like:"
    leads = [lead, *["The other looks like:"] * (len(wrongs) - 1)]
    return [
        Passage(f"{lead} {one.label}.", one.hint, one.read) for lead, one in zip(leads, wrongs, strict=True)
    ]


def _praise(task: Task, cases: Sequence[Case]) -> str:
    notes = list(dict.fromkeys(case.note for case in cases if case.note))
    covered = f" ({'; '.join(notes)})" if notes else ""
    number = f" in all {len(cases)} cases" if len(cases) > 1 else ""
    return f"{task.name}: right{number}{covered}."


def _describe_inputs(case: Case, note: str) -> str:
    described = ", ".join(f"{name} {_describe_input(value)}" for name, value in case.inputs.items())
    flat = [part for value in case.inputs.values() for part in _parts(value)]
    dtypes = {dtype_name(value) for value in flat if isinstance(value, Tensor)}
    parts = [described, *sorted(dtypes)]
    return ", ".join(parts) + (f": {note}" if note else "")


def _parts(value: Plain) -> list[Plain]:
    return list(value.values()) if isinstance(value, dict) else [value]


def _describe_input(value: Plain) -> str:
    if isinstance(value, dict):
        return f"({len(value)} tensors by name)"
    if _of_tensors(value):
        return f"({', '.join(map(_describe_input, value))})"
    return str(tuple(value.shape)) if isinstance(value, Tensor) else repr(value)
