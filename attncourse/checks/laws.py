"""What is true of every right answer, for tasks that share it: the propositions of the chapters.

Each function here makes a :class:`~attncourse.checks.task.Law` for a task whose inputs `draw` makes: a
dictionary with ``query``, ``key`` and ``value``, and whatever else the task gets, in the order in
which it gets it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.checks.compare import close
from attncourse.checks.task import Law, Normal
from attncourse.checks.verdict import shown

Inputs = dict[str, Any]
Draw = Callable[[Normal], Inputs]

FEATURES_TWICE = (
    "writing every feature of queries and keys twice does the same as making the queries longer by "
    "the root of 2"
)


def unlike(value: Tensor, expected: Tensor) -> tuple[str, str, str] | None:
    """The first place where two tensors differ, and the two numbers there, as words; None if nowhere."""
    wrong = ~close(value, expected)
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    yours, there = value[place].item(), expected[place].item()
    words = shown(yours), shown(there)
    if words[0] == words[1]:  # they differ in a later digit
        words = f"{yours:.8g}", f"{there:.8g}"
    return str(list(place)) if place else "", *words


def is_not(
    value: Tensor, expected: Tensor, words: str = "yours is {yours} at {place}, not {expected}"
) -> str | None:
    """A sentence about the first place where two tensors differ; None if they are the same.

    `words` may name the place, and the two numbers, ``yours`` and ``expected``.
    """
    found = unlike(value, expected)
    if found is None:
        return None
    place, yours, there = found
    return words.format(place=place, yours=yours, expected=there)


def says(word: str) -> Callable[[Any, str], str | None]:
    """What breaks a law of a task whose answer is a word: every other word."""
    return lambda inputs, value: None if value == word else f"yours says {value!r}"


def ones_come_back(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        return drawn | {"value": torch.ones_like(drawn["value"])}

    def broken(inputs: Inputs, value: Tensor) -> str | None:
        return is_not(value, torch.ones_like(value), "yours gives {yours} at {place}")

    sentence = "values that are all ones come back as ones, as the weights of a query sum to 1"
    return Law(sentence, read, inputs, broken)


def equal_keys_average(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        return drawn | {"key": drawn["key"][..., :1, :].expand_as(drawn["key"]).clone()}

    def broken(inputs: Inputs, value: Tensor) -> str | None:
        mean = inputs["value"].mean(-2, keepdim=value.dim() == inputs["value"].dim())
        return is_not(
            value, mean.expand_as(value), "yours gives {yours} at {place}, and the mean is {expected}"
        )

    return Law("with equal keys every output is the plain mean of the values", read, inputs, broken)


def between_the_values(draw: Draw, read: str) -> Law:
    def broken(inputs: Inputs, value: Tensor) -> str | None:
        keepdim = value.dim() == inputs["value"].dim()
        least, most = inputs["value"].amin(-2, keepdim=keepdim), inputs["value"].amax(-2, keepdim=keepdim)
        return is_not(
            value,
            value.clamp(least, most),
            "yours gives {yours} at {place}, and the nearest of the values there is {expected}",
        )

    return Law("every output lies between the smallest and the largest of the values", read, draw, broken)


def queries_are_asked_alone(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        return [drawn, drawn | {"query": drawn["query"][..., :1, :]}]

    def broken(inputs: list[Inputs], values: list[Tensor]) -> str | None:
        words = "at {place} yours gives {expected} among other queries and {yours} alone"
        return is_not(values[1], values[0][..., :1, :], words)

    return Law("a query gets the same output alone as among other queries", read, inputs, broken)


def sequences_are_treated_alone(
    draw: Draw, read: str, names: tuple[str, ...] = ("query", "key", "value")
) -> Law:
    """For a `draw` with one batch dimension in front of the inputs `names`."""

    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        return [drawn, drawn | {name: drawn[name][0] for name in names}]

    def broken(inputs: list[Inputs], values: list[Tensor]) -> str | None:
        words = "for the first sequence yours gives {expected} at {place} in the batch and {yours} alone"
        return is_not(values[1], values[0][0], words)

    return Law("a sequence gets the same output alone as in a batch", read, inputs, broken)


def order_of_keys_is_nothing(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        return [drawn, drawn | {name: drawn[name].flip(-2) for name in ("key", "value")}]

    def broken(inputs: list[Inputs], values: list[Tensor]) -> str | None:
        words = "with both turned round yours gives {yours} at {place} instead of {expected}"
        return is_not(values[1], values[0], words)

    return Law("reordering keys and values together changes nothing", read, inputs, broken)


def features_written_twice(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        twice = {name: torch.cat([drawn[name]] * 2, -1) for name in ("query", "key")}
        return [drawn | twice, drawn | {"query": drawn["query"] * 2**0.5}]

    def broken(inputs: list[Inputs], values: list[Tensor]) -> str | None:
        words = "at {place} yours gives {yours} for the first and {expected} for the second"
        return is_not(values[0], values[1], words)

    return Law(FEATURES_TWICE, read, inputs, broken)


def best_match_takes_all(draw: Draw, read: str) -> Law:
    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        # The first key is the first query, of length 1, and all others point the other way. Scores of
        # 30 and -30 say enough, and no exponential overflows.
        unit = torch.nn.functional.normalize(drawn["query"], dim=-1)
        first = unit if unit.dim() == 1 else unit[..., :1, :]
        key = -first.expand_as(drawn["key"]).clone()
        key[..., 0, :] *= -1
        return drawn | {"query": 30 * unit * unit.shape[-1] ** 0.5, "key": key}

    def broken(inputs: Inputs, value: Tensor) -> str | None:
        single = value.dim() < inputs["value"].dim()
        first = value if single else value[..., 0, :]
        words = "yours gives {yours} at {place}, and the value of that key is {expected} there"
        return is_not(first, inputs["value"][..., 0, :], words)

    sentence = "a query that matches one key far better than all others gets the value of that key"
    return Law(sentence, read, inputs, broken)


def vanishes(sentence: str, read: str, draw: Draw) -> Law:
    """For inputs with which every output is 0."""

    def broken(inputs: Inputs, value: Tensor) -> str | None:
        return is_not(value, torch.zeros_like(value), "yours gives {yours} at {place}")

    return Law(sentence, read, draw, broken)


def stays(
    sentence: str,
    read: str,
    draw: Draw,
    change: Callable[[Inputs, Normal], Inputs],
    part: Callable[[Any], Any] = lambda value: value,
    *,
    when: tuple[str, str] = ("before", "after"),
) -> Law:
    """For a change of the inputs that leaves the output, or the `part` of it, as it was.

    `when` says which of the two outputs is which, where the sentence alone does not.
    """
    first, second = when

    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        return [drawn, drawn | change(drawn, normal)]

    def broken(inputs: list[Inputs], values: list[Any]) -> str | None:
        before, after = map(part, values)
        if isinstance(before, Tensor):
            return is_not(
                after, before, f"yours gives {{expected}} at {{place}} {first} and {{yours}} {second}"
            )
        return None if before == after else f"yours gives {shown(before)} {first} and {shown(after)} {second}"

    return Law(sentence, read, inputs, broken)


def differs_by(sentence: str, read: str, before: Inputs, after: Inputs | None, difference: int) -> Law:
    """For counts: by how much the second is larger; without a second, how large the first is."""

    def broken(inputs: Any, values: Any) -> str | None:
        if after is None:
            inputs, values = [inputs], [values]
        if values[-1] - (0 if after is None else values[0]) == difference:
            return None
        counts = (
            f"{value} for {', '.join(map(str, one.values()))}"
            for one, value in zip(inputs, values, strict=True)
        )
        return f"yours counts {' and '.join(counts)}"

    return Law(sentence, read, lambda normal: before if after is None else [before, after], broken)
