"""Tasks of the unit ``permutation``: orders, what they change, and what can be concluded from it."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import permutation, toy
from attncourse.attention_operator import attention, attention_weights
from attncourse.checks import laws
from attncourse.checks.choices import only
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.probe.permutation import AskAboutLayer
from attncourse.probe.program import trace

PERMUTING_ROWS = "permutation#permuting-rows"
UNDOING = "permutation#undoing"
DEFINITIONS = "permutation#definitions"
PROPERTY_TESTS = "permutation#property-tests"
KEYS_WITH_VALUES = "permutation#keys-with-values"
MASKS_MOVE = "permutation#masks-move-along"
REPEATS = "permutation#sets-with-repeats"
TOY_PROBLEM = "permutation#toy-problem-a"
CHANNELS_FIRST = "permutation#channels-first"
PLATEAU = "permutation#toy-a-results"
TOY_MAP = "permutation#toy-a-map"


def _order_source(seed: int) -> Callable[[int], Tensor]:
    """A source of permutations that differ from their inverse, as from length 3 on there are some."""
    draws = Draws(seed, "choices")

    def order(length: int) -> Tensor:
        drawn = draws.randperm(length)
        while torch.equal(drawn, drawn.argsort()):
            drawn = draws.randperm(length)
        return drawn

    return order


# ---------------------------------------------------------------------------------------
# From one order to another
# ---------------------------------------------------------------------------------------


def _reordering(first: Tensor, second: Tensor) -> Tensor:
    return first.argsort()[second]


def _reordering_cases(seed: int) -> list[Case]:
    order = _order_source(seed)
    return [
        Case({"first": order(5), "second": order(5)}),
        Case({"first": order(8), "second": order(8)}, "eight rows"),
        Case({"first": torch.arange(6), "second": order(6)}, "the first is in its old order"),
        Case({"first": order(7), "second": torch.arange(7)}, "the second is in its old order"),
        Case({"first": torch.tensor([0]), "second": torch.tensor([0])}, "a single row"),
    ]


def _same_order(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    wrong = (value != torch.arange(len(value))).nonzero()
    return f"yours takes position {int(wrong[0])} from elsewhere" if len(wrong) else None


def _is_second(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    wrong = (value != inputs["second"]).nonzero()
    return f"yours is another order at position {int(wrong[0])}" if len(wrong) else None


def _first_row_there(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    place, wanted = int(value[0]), int(inputs["second"][0])
    if not 0 <= place < len(value):
        return f"yours begins with {place}, and the rows are counted from 0 to {len(value) - 1}"
    found = int(inputs["first"][place])
    words = f"yours takes it from place {place}, where row {found} of X stands, and row {wanted} is wanted"
    return words if found != wanted else None


reordering = Task(
    "reordering",
    _reordering,
    {"first": torch.tensor([2, 0, 3, 1]), "second": torch.tensor([3, 2, 1, 0])},
    _reordering_cases,
    laws=[
        Law(
            "two files in the same order need no reordering: the answer is 0, 1, 2 and so on",
            UNDOING,
            lambda normal: {"first": torch.tensor([2, 0, 3, 1]), "second": torch.tensor([2, 0, 3, 1])},
            _same_order,
        ),
        Law(
            "where the first file has the old order, the answer is `second`",
            UNDOING,
            lambda normal: {"first": torch.arange(4), "second": torch.tensor([2, 0, 3, 1])},
            _is_second,
        ),
        Law(
            "the first row is taken from where row second[0] of X stands in the first file",
            PERMUTING_ROWS,
            lambda normal: {"first": torch.tensor([2, 0, 3, 1]), "second": torch.tensor([1, 2, 0, 3])},
            _first_row_there,
        ),
    ],
)


@reordering.made_of(
    order=wrongs(
        UNDOING,
        """
        back: it leads from the second file to the first
            Your order is the inverse of what is wanted. Position i of the *second* file is to be taken from
            position p[i] of the *first*. Try it with three rows.
        from X: it leads from X to the second file, as if the first were X, or is that file itself
            The rows of the first file have moved already. Where does row second[0] of X stand there?
        to X: it leads from the first file back to X, and no further
            That is the first half of the way. From X, which order leads to the second file?
        not undone: the second order is applied to the first one as it is
            `first[second]` says what is in the file if the first file is permuted by `second`. But you want
            the file `second` of X: the first order has to be undone before.
        composed: the two orders are put together the other way round
            Two orders one after the other are one order, and which of the two indexes the other matters.
            You look for p with first[p] = second. What has to be done to both sides?
        difference: the orders are subtracted
            The numbers are names of rows, not amounts. For each row of the second file, find where it
            stands in the first.
        """,
    )
)
def any_reordering(first, second, *, order=""):
    inverse = first.argsort()
    return {
        "back": second.argsort()[first],
        "from X": second.clone(),
        "to X": inverse,
        "not undone": first[second],
        "composed": second[inverse],
        "difference": second - first,
    }.get(order, inverse[second])


def _rows_of(x: Tensor) -> list[tuple[float, ...]]:
    return sorted(map(tuple, x.tolist()))


def _keeps_rows(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    names = list(inputs.values())
    lost = set(_rows_of(names[0])) - set(_rows_of(value))
    return f"row {[round(n, 4) for n in min(lost)]} is not in yours" if lost else None


# ---------------------------------------------------------------------------------------
# A memory in another order
# ---------------------------------------------------------------------------------------


def _sorted_memory(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    order = key[:, 0].argsort()
    return permutation.permute(key, order), permutation.permute(value, order)


def _sorted_memory_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"key": normal(5, 3), "value": normal(5, 2)}),
        Case({"key": normal(4, 4), "value": normal(4, 4)}, "values as wide as keys"),
        Case({"key": normal(6, 2), "value": normal(6, 1)}, "values with one feature"),
        Case(
            {"key": normal(7, 3, dtype=torch.float64), "value": normal(7, 4, dtype=torch.float64)},
            "double precision",
        ),
    ]


def _keys_rise(inputs: dict[str, Tensor], value: tuple[Tensor, Tensor]) -> str | None:
    first = value[0][:, 0]
    falls = (first[1:] < first[:-1]).nonzero()
    if not len(falls):
        return None
    row = int(falls[0])
    return f"in yours {first[row]:.4g} stands before {first[row + 1]:.4g}"


def _keys_are_whole(inputs: dict[str, Tensor], value: tuple[Tensor, Tensor]) -> str | None:
    return _keeps_rows({"key": inputs["key"]}, value[0])


def _values_follow(inputs: dict[str, Tensor], value: tuple[Tensor, Tensor]) -> str | None:
    pairs = _rows_of(torch.cat([inputs["key"], inputs["value"]], -1))
    lost = [row for row in _rows_of(torch.cat(list(value), -1)) if row not in pairs]
    width = inputs["key"].shape[1]
    if not lost:
        return None
    key, of = lost[0][:width], lost[0][width:]
    return f"yours has key {[round(n, 4) for n in key]} beside value {[round(n, 4) for n in of]}"


def _memory(normal: Normal) -> dict[str, Tensor]:
    return {"key": normal(5, 2), "value": normal(5, 3)}


sorted_memory = Task(
    "sorted_memory",
    _sorted_memory,
    {
        "key": torch.tensor([[3.0, 1.0], [1.0, 2.0], [2.0, 0.0]]),
        "value": torch.tensor([[10.0, 60.0], [30.0, 40.0], [20.0, 50.0]]),
    },
    _sorted_memory_cases,
    laws=[
        Law("the first feature of the keys rises from row to row", KEYS_WITH_VALUES, _memory, _keys_rise),
        Law("every key is in the result, in one piece", KEYS_WITH_VALUES, _memory, _keys_are_whole),
        Law("every key still stands beside its own value", KEYS_WITH_VALUES, _memory, _values_follow),
    ],
    exact_dtype=True,
)


@sorted_memory.made_of(
    keys=wrongs(
        KEYS_WITH_VALUES,
        """
        apart: every feature is sorted on its own, and the rows fall apart
            `torch.sort` along the rows sorts each column by itself. Afterwards a row holds the features of
            several keys. Ask for the *order* of one column, and move whole rows.
        unmoved: the keys stay as they are
            It is the keys that are to be sorted. Where does your order act on them?
        transposed: the columns of the keys are sorted instead of the rows
            `argsort` without a dimension takes the last one: of a table, that is along a row. Which numbers
            are to be compared? (permutation#permuting-rows)
        """,
    ),
    values=wrongs(
        KEYS_WITH_VALUES,
        """
        unmoved: the keys are permuted and the values are not
            A key and its value belong together: the weight that a query gives to key 3 goes to value 3. If
            only one of them moves, the weights go to strangers.
        by themselves: the values are sorted by their own first feature
            So they come in another order than the keys. One order must serve for both.
        apart: every feature of the values is sorted on its own
            A value has to stay in one piece, and beside its key. Move whole rows, by the keys' order.
        inverse: the values are put in the inverse order
            Keys and values must take the same way: what is taken from row i of one is taken from row i of
            the other. (permutation#undoing)
        """,
    ),
    order=wrongs(
        KEYS_WITH_VALUES,
        """
        descending: the keys are sorted from large to small
            The smallest first feature should come first.
        ranks: ranks are used as if they were an order
            `argsort` of an `argsort` tells for each key which rank it has. That is the inverse of the
            order: which key is to come first, which second? (permutation#undoing)
        last feature: the keys are sorted by their last feature
            Feature number 0 is the first. Which column does your `argsort` look at?
        sum: the keys are sorted by the sum or length of their features
            Only the first feature decides. Which column does your `argsort` look at?
        values: the values decide the order
            The keys are to be sorted, and the values follow them.
        """,
    ),
    given=wrongs(
        KEYS_WITH_VALUES,
        """
        exchanged: values and keys are returned in the wrong order
            First the keys, then the values, as they came.
        """,
    ),
)
def any_sorted(key, value, *, keys="", values="", order="", given=""):
    by = {"last feature": key[:, -1], "sum": key.sum(-1), "values": value[:, 0]}.get(order, key[:, 0])
    rows = by.argsort(descending=order == "descending")
    if order == "ranks":
        rows = rows.argsort()
    new_key = {"apart": lambda: key.sort(dim=0).values, "unmoved": key.clone}.get(keys, lambda: key[rows])()
    if keys == "transposed":
        new_key = key.sort(dim=-1).values
    new_value = {
        "unmoved": value.clone,
        "by themselves": lambda: value[value[:, 0].argsort()],
        "apart": lambda: value.sort(dim=0).values,
        "inverse": lambda: value[rows.argsort()],
    }.get(values, lambda: value[rows])()
    return (new_value, new_key) if given == "exchanged" else (new_key, new_value)


# ---------------------------------------------------------------------------------------
# A causal mask for events in any order
# ---------------------------------------------------------------------------------------


def _mask_of_times(query_time: Tensor, key_time: Tensor) -> Tensor:
    return key_time[..., None, :] <= query_time[..., :, None]


def _mask_of_times_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)
    own = order(6).double()
    return [
        Case({"query_time": own, "key_time": own.clone()}, "the events ask each other"),
        Case({"query_time": normal(3), "key_time": normal(5)}, "more keys than queries"),
        Case({"query_time": normal(6).round(), "key_time": normal(4).round()}, "some at the same time"),
        Case({"query_time": normal(2, 4), "key_time": normal(2, 4)}, "a batch"),
        Case({"query_time": normal(3, 3), "key_time": normal(3, 3)}, "a batch, all sizes the same"),
        Case({"query_time": normal(1, 3), "key_time": normal(1, 1)}, "a batch of one, and one key"),
    ]


def _some_times(normal: Normal) -> dict[str, Tensor]:
    return {"query_time": torch.tensor([3.0, 1.0, 2.0]), "key_time": torch.tensor([2.0, 0.0, 4.0, 3.0])}


def _own_times(normal: Normal) -> dict[str, Tensor]:
    return {"query_time": torch.tensor([5.0, 1.0, 3.0]), "key_time": torch.tensor([5.0, 1.0, 3.0])}


def _sees_itself(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    blind = (~value.diagonal()).nonzero()
    return f"yours forbids it to event {int(blind[0])}" if len(blind) else None


def _none_after(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    query, key = inputs["query_time"], inputs["key_time"]
    for i, j in value.nonzero().tolist():
        if key[j] > query[i]:
            return f"in yours the query at time {query[i]:g} may attend to the event at time {key[j]:g}"
    return None


def _rows_follow(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    wrong = (values[1] != values[0].flip(-2)).nonzero()
    return f"yours does not at {wrong[0].tolist()}" if len(wrong) else None


def _all_stays(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    wrong = (values[1] != values[0]).nonzero()
    return f"yours is another one at {wrong[0].tolist()}" if len(wrong) else None


mask_of_times = Task(
    "mask_of_times",
    _mask_of_times,
    {"query_time": torch.tensor([3.0, 1.0, 2.0]), "key_time": torch.tensor([2.0, 0.0, 4.0, 3.0])},
    _mask_of_times_cases,
    laws=[
        Law("every event may attend to itself", MASKS_MOVE, _own_times, _sees_itself),
        Law("nobody attends to what comes later", MASKS_MOVE, _some_times, _none_after),
        Law(
            "if the queries are put in another order, the rows of the mask move along, and nothing else",
            MASKS_MOVE,
            lambda normal: [
                _some_times(normal),
                _some_times(normal) | {"query_time": torch.tensor([2.0, 1.0, 3.0])},
            ],
            _rows_follow,
        ),
        Law(
            "only who comes first matters, not when: a day later for all changes nothing",
            MASKS_MOVE,
            lambda normal: [
                _some_times(normal),
                {name: time + 24 for name, time in _some_times(normal).items()},
            ],
            _all_stays,
        ),
    ],
    exact_dtype=True,
)


@mask_of_times.made_of(
    allowed=wrongs(
        MASKS_MOVE,
        """
        strict: an event may not attend to what happens at its own time
            So not to itself, either. A causal mask has True on its diagonal. (masking#diagonal)
        later: what comes later is allowed, and what came before is forbidden
            Read your comparison aloud: the key's time must not be later than the query's.
        forbidden: True stands for what is forbidden
            In this course True means: may attend.
        """,
    ),
    compared=wrongs(
        MASKS_MOVE,
        """
        places: the places are compared instead of the times
            A triangle speaks of places. Here the events stand in any order, and only their times say what
            came before what.
        ranks: ranks are compared, each among its own
            The third of the queries may be earlier than the first of the keys. Compare the times themselves.
        sorted: the times are sorted first
            The rows of the mask must belong to the queries as they stand, and the columns to the keys.
        """,
    ),
    layout=wrongs(
        MASKS_MOVE,
        """
        transposed: keys are in rows and queries in columns
            Rows ask, columns answer. Which of the two times must get a new last dimension?
        numbers: the mask comes back as numbers
            A mask is of dtype bool.
        first: the new dimensions stand in front, which in a batch are not queries and keys
            With a batch in front, count from the back: the queries get a last dimension, the keys one before
            their last.
        """,
    ),
)
def any_mask_of_times(query_time, key_time, *, allowed="", compared="", layout=""):
    times = [query_time, key_time]
    if compared == "places":
        times = [torch.arange(time.shape[-1]).expand(time.shape) for time in times]
    elif compared == "ranks":
        times = [time.argsort(-1).argsort(-1) for time in times]
    elif compared == "sorted":
        times = [time.sort(-1).values for time in times]
    query, key = times
    query, key = (query[:, None], key[None]) if layout == "first" else (query[..., None], key[..., None, :])
    mask = {"strict": key < query, "later": key >= query, "forbidden": key > query}.get(allowed, key <= query)
    return mask.mT if layout == "transposed" else mask.float() if layout == "numbers" else mask


# ---------------------------------------------------------------------------------------
# The two testers, and which layer is which
# ---------------------------------------------------------------------------------------

_LENGTH, _DIM = 7, 9  # more features than positions, so that no pooled output passes for a sequence

# A layer, and what it is: equivariant, invariant, both or neither.
Mysteries = dict[str, tuple[Callable[[Tensor], Tensor], str]]


def _layers(seed: int, x: Tensor) -> Mysteries:
    """Layers whose numbers come from the seed.

    Some notice that they get something else than `x`, and show it in a part of their output only: in all
    rows but one, in one feature, in a direction, a little.
    """
    normal, order = normal_source(seed, "layers"), _order_source(seed)

    def draw(*shape: int) -> Tensor:
        return normal(*shape, dtype=torch.float64)

    W = draw(3, _DIM, _DIM) / _DIM**0.5
    memory, encoding = draw(5, _DIM), draw(_LENGTH, _DIM)
    everyone = torch.ones(_LENGTH, _LENGTH, dtype=torch.bool)
    feature = int(order(_DIM - 1)[0]) + 1
    row, other = (order(_LENGTH - 2)[:2] + 1).tolist()
    part = torch.zeros(_LENGTH, _DIM, dtype=torch.float64)
    not_first, not_last, one_feature, one_number = part.clone(), part.clone(), part.clone(), part.clone()
    not_first[1:], not_last[:-1], one_feature[:, feature], one_number[row, feature] = 1, 1, 1, 1
    last_of_five = part[:5].clone()
    last_of_five[-1] = 0.2
    balanced = one_number.clone()
    balanced[other, feature] = -1

    def unlike(z: Tensor) -> Tensor:
        """0 for x itself, and up to 1 for every position that has changed."""
        return torch.clamp((z - x).abs().sum(-1, keepdim=True), max=1.0)

    # Exchanging position 0 with the next one, or with the last, is not noticed.
    alike = torch.tensor([0.0, 0, 1, 2, 3, 4, 0], dtype=torch.float64)[:, None]
    ends = torch.tensor([0.0, 0, 1, 2, 1, 0, 0], dtype=torch.float64)[:, None]
    smooth = torch.eye(_LENGTH, dtype=torch.float64) / 2
    smooth = smooth + torch.diag(torch.full((_LENGTH - 1,), 0.25, dtype=torch.float64), 1)
    smooth = smooth + torch.diag(torch.full((_LENGTH - 1,), 0.25, dtype=torch.float64), -1)
    circle = 0.2 * torch.eye(_LENGTH, dtype=torch.float64).roll(1, 0)
    circle = circle + torch.eye(_LENGTH, dtype=torch.float64) * 0.5
    circle = circle + 0.3 * torch.eye(_LENGTH, dtype=torch.float64).roll(-1, 0)
    sums = torch.ones(_LENGTH, _LENGTH, dtype=torch.float64).tril()

    around = torch.eye(_LENGTH, dtype=torch.float64).roll(1, 0)

    def attend(x: Tensor, source: Any = None, mask: Any = None) -> Tensor:
        source = x if source is None else source
        scores = (x @ W[0]) @ (source @ W[1]).mT / _DIM**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return torch.softmax(scores, -1) @ source @ W[2]

    return {
        "self-attention": (lambda x: attend(x), "equivariant"),
        "causal self-attention": (lambda x: attend(x, mask=everyone.tril()), "neither"),
        "every position by itself": (lambda x: torch.tanh(x @ W[0]), "equivariant"),
        "every position by itself, with fewer features": (
            lambda x: torch.tanh(x @ W[0][:, :5]),
            "equivariant",
        ),
        "self-attention, and what is added for a position adds up to 0": (
            lambda x: attend(x) + encoding - encoding.mean(1, keepdim=True),
            "neither",
        ),
        "the mean over the positions": (lambda x: x.mean(0, keepdim=True), "invariant"),
        "a convolution with equal weights to both sides": (lambda x: torch.tanh(smooth @ x), "neither"),
        "a convolution on a circle": (lambda x: circle @ x, "neither"),
        "a convolution on a circle with equal weights to both sides": (
            lambda x: torch.tanh((circle + circle.mT) @ x),
            "neither",
        ),
        "the mean of the products of neighbours on a circle": (
            lambda x: (x * (around @ x)).mean(0, keepdim=True),
            "neither",
        ),
        "self-attention with a vector added for each position": (lambda x: attend(x + encoding), "neither"),
        "a layer that treats the first, second and last position alike": (
            lambda x: torch.tanh(x + alike),
            "neither",
        ),
        "a layer that treats the two positions at each end alike": (
            lambda x: torch.tanh(x + ends),
            "neither",
        ),
        "self-attention after the input has been sorted": (
            lambda x: attend(x[x[:, feature].argsort()]),
            "invariant",
        ),
        "the sum of all numbers": (lambda x: x[:1] * 0 + x.sum(), "invariant"),
        "five fixed queries that attend to the input": (lambda x: attend(memory, x), "invariant"),
        "the input attends to a fixed memory": (lambda x: attend(x, memory), "equivariant"),
        "self-attention to all positions but one's own": (
            lambda x: attend(x, mask=~torch.eye(_LENGTH).bool()),
            "equivariant",
        ),
        "the mean, and once more the first row": (
            lambda z: z.mean(0, keepdim=True) + z[:1],
            "neither",
        ),
        "the mean, handed to every position": (lambda x: 0 * x + x.mean(0), "both"),
        "self-attention and a thousandth of a vector for each position": (
            lambda x: attend(x) + encoding / 1000,
            "neither",
        ),
        "the sums up to each position": (lambda x: sums @ x, "neither"),
        "the sums from each position on": (lambda x: sums.mT @ x, "neither"),
        "self-attention with large numbers": (lambda x: 1e6 * attend(x), "equivariant"),
        "the largest numbers minus the smallest": (
            lambda x: x.amax(0, keepdim=True) - x.amin(0, keepdim=True),
            "invariant",
        ),
        "self-attention, and the mean as one row more": (
            lambda x: torch.cat([attend(x), x.mean(0, keepdim=True)]),
            "neither",
        ),
        "the order of the features is turned round": (lambda x: x.flip(1), "equivariant"),
        "self-attention, and another order shows in all rows but the first": (
            lambda z: attend(z) + not_first * unlike(z),
            "neither",
        ),
        "self-attention, and another order shows in all rows but the last": (
            lambda z: attend(z) + not_last * unlike(z),
            "neither",
        ),
        "self-attention, and another order shows in one feature": (
            lambda z: attend(z) + one_feature * unlike(z),
            "neither",
        ),
        "self-attention, and another order shows in one number": (
            lambda z: attend(z) + one_number * unlike(z).sum(),
            "neither",
        ),
        "self-attention, and what another order adds to one row it takes from another": (
            lambda z: attend(z) + balanced * unlike(z).sum(),
            "neither",
        ),
        "self-attention, and another order makes numbers smaller": (
            lambda z: attend(z) - unlike(z),
            "neither",
        ),
        "self-attention, and another order makes numbers larger": (
            lambda z: attend(z) + unlike(z),
            "neither",
        ),
        "self-attention, and another order turns the sign of one feature": (
            lambda z: attend(z) * (1 - 2 * one_feature * (unlike(z).sum() > 0).double()),
            "neither",
        ),
        "self-attention, and another order shows a little": (
            lambda z: attend(z) + unlike(z) / 1000,
            "neither",
        ),
        "the mean, and another order shows in one feature": (
            lambda z: z.mean(0, keepdim=True) + one_feature[:1] * unlike(z).sum(),
            "neither",
        ),
        "the mean, and what another order adds to one feature it takes from another": (
            lambda z: z.mean(0, keepdim=True) + (one_feature - one_feature.roll(1, 1))[:1] * unlike(z).sum(),
            "neither",
        ),
        "the mean, and another order makes numbers smaller": (
            lambda z: z.mean(0, keepdim=True) - unlike(z).sum(),
            "neither",
        ),
        "the mean, and another order makes numbers larger": (
            lambda z: z.mean(0, keepdim=True) + unlike(z).sum(),
            "neither",
        ),
        "the mean, and another order turns the sign of one feature": (
            lambda z: z.mean(0, keepdim=True) * (1 - 2 * one_feature[:1] * (unlike(z).sum() > 0).double()),
            "neither",
        ),
        "the mean, and another order shows a little": (
            lambda z: z.mean(0, keepdim=True) + unlike(z).sum() / 10000,
            "neither",
        ),
        "five fixed queries that attend to the input, and another order shows in the last row": (
            lambda z: attend(memory, z) + last_of_five * unlike(z).sum(),
            "neither",
        ),
        "five fixed queries that attend to the input, and another order shows in the first row": (
            lambda z: attend(memory, z) + last_of_five.flip(0) * unlike(z).sum(),
            "neither",
        ),
    }


def _layer_cases(*names: str) -> Callable[[int], list[Case]]:
    def cases(seed: int) -> list[Case]:
        normal, listed = normal_source(seed), []
        for name in in_any_order(names or _layers(0, torch.zeros(_LENGTH, _DIM)), seed):
            x = normal(_LENGTH, _DIM, dtype=torch.float64)
            layer = trace(_layers(seed, x)[name][0])
            listed.append(Case({"layer": layer, "x": x}, f"the layer is: {name}"))
        return listed

    # The unit is found by the module of this function.
    return cases


# Each position by itself: the one layer that can be followed on paper.
_LAYER_PENCIL = {
    "layer": trace(lambda x: 2 * x),
    "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64),
}
_LAYER_PENCIL_NOTE = "the layer doubles every number"

ORDERS = wrongs(
    PROPERTY_TESTS,
    """
    identity: no order is tried but the one that was given
        The identity changes nothing, so it cannot tell layers apart. Does any permutation that you try move
        a position?
    swap: only one swap is tried
        A layer may treat just these two positions alike. A random permutation moves many positions at once,
        and ten of them leave hardly a layer undetected.
    reversal: only the reversed order is tried
        A convolution with equal weights to both sides does not notice that a sequence is turned round, and
        yet knows well who is whose neighbour. Try random orders.
    shifts: only shifts are tried
        A convolution on a circle follows every one of them. That says nothing about other orders. Try
        random orders.
    shift: only one shift is tried
        A convolution on a circle follows every shift. That is a symmetry, too, but a much smaller one. Try
        random orders.
    one: only one order is tried
        No single order stands for all, not even a random one: a layer may follow just that one. Try
        several, and say yes only when all of them have been tried. If you have a loop, look at where its
        `return` stands: the first order may show that a layer is *not* what you ask for, but never that it
        is.
    features: the features are permuted instead of the positions
        Rows are positions. Which index of x are you permuting? (permutation#permuting-rows)
    """,
)

COMPARED = wrongs(
    DEFINITIONS,
    """
    first number: only one number of the output is compared
        A layer may keep that number and change all others. Compare the whole output.
    first row: only the first row of the output is compared
        A layer may be right in its first row and nowhere else. Compare the whole output.
    last row: only the last row of the output is compared
        One of the layers gives the sums up to each position. Its last row is the sum of all, whatever their
        order; the rows before it are not. Compare the whole output.
    first feature: only the first feature is compared
        A layer may give a position away in any of its features. Compare the whole output.
    sum over features: only the sums over the features are compared
        What one feature gains another may lose. Every single number has to be where it should be.
    sum over rows: only the sums over the outputs are compared
        Outputs that merely change places have the same sum. Every single number has to be where it should
        be.
    norm: only the length of the outputs is compared
        Many outputs have the same length. Every single number has to be where it should be.
    signed: differences count in one direction only
        A difference of -1 is smaller than any tolerance, and no rounding. Take absolute values before you
        compare. (permutation#property-tests)
    any: it is enough that some numbers agree
        Some numbers of two different outputs may agree. *All* of them must.
    shape: only the shapes are compared
        An output with one row for each position may or may not follow a permutation. Only its numbers tell.
        (permutation#property-tests)
    """,
)

TOLERANCES = wrongs(
    PROPERTY_TESTS,
    """
    wide: the tolerance is so wide that a small dependence on order passes
        Rounding in float64 changes about the sixteenth digit. A difference in the third digit is no
        rounding. With which tolerance do you compare?
    none: the outputs must agree to the last digit
        A sum in another order is rounded in another way, so the last digits of two equal outputs differ.
        Allow for that, and for no more: `torch.allclose`.
    """,
)


def _agree(first: Tensor, second: Tensor, compared: str, tolerance: str) -> bool:
    """Whether two outputs agree, with choices of `COMPARED` and `TOLERANCES`."""
    if compared == "shape":
        return first.shape == second.shape
    part = {
        "first number": lambda y: y.flatten()[:1],
        "first row": lambda y: y[:1],
        "last row": lambda y: y[-1:],
        "first feature": lambda y: y[..., :1],
        "sum over features": lambda y: y.sum(-1),
        "sum over rows": lambda y: y.sum(0),
        "norm": lambda y: y.norm(),
    }.get(compared, lambda y: y)
    first, second = part(first), part(second)
    if compared == "signed":
        return bool(((first - second) < 1e-6 * second.abs().max()).all())
    if tolerance == "none":
        same = first == second
    else:
        same = torch.isclose(first, second, *((0.01, 0.01) if tolerance == "wide" else (1e-5, 1e-8)))
    return bool(same.any() if compared == "any" else same.all())


def _tried(layer: Any, x: Tensor, orders: str, side: str, compared: str, tolerance: str, rows: str) -> bool:
    """Whether a layer is equivariant (or, with side "unmoved", invariant), with all of the choices."""
    y = layer(x)
    length = x.shape[1] if orders == "features" else len(x)
    places = torch.arange(length)
    generator = torch.Generator().manual_seed(0)
    some = {
        "identity": [places],
        "swap": [torch.cat([places[[1, 0]], places[2:]])],
        "reversal": [places.flip(0)],
        "shift": [places.roll(1)],
        "one": [torch.randperm(length, generator=generator)],
        "shifts": [places.roll(by) for by in range(1, length)],
    }.get(orders) or [torch.randperm(length, generator=generator) for _ in range(4)]
    if rows == "other shape" and y.shape != x.shape:
        return False
    if rows == "checked" and side != "unmoved" and y.shape[0] != len(x):
        return False
    for order in some:
        moved = layer(x[:, order] if orders == "features" else x[order])
        expected = y
        if side == "forth":
            expected = y[:, order] if orders == "features" else y[order]
        if side == "back":
            expected = y[order.argsort()]
        if not _agree(moved, expected, compared, tolerance):
            return False
    return True


ROWS = wrongs(
    DEFINITIONS,
    """
    unchecked: the number of rows of the output is not looked at
        A layer that returns a single row for all positions cannot follow a permutation. Find that out
        before you permute its output.
    other shape: a layer whose output has another shape than its input is given up at once
        An output may have fewer or more features than x, and still follow every permutation. It may have a
        single row, and be invariant. What does each of the two sentences ask of the shape?
    """,
)

ANSWER = wrongs(
    PROPERTY_TESTS,
    """
    always yes: every layer gets a yes
        Some layers are not what you say they are. Try them on permuted inputs before you answer.
    always no: no layer gets a yes
        Some layers are what you ask for. Try them on permuted inputs before you answer.
    inverted: yes and no are exchanged
        True is to stand for a layer that passes all your comparisons. (permutation#definitions)
    """,
)


def _answered(value: bool, answer: str) -> bool:
    return {"always yes": True, "always no": False, "inverted": not value}.get(answer, value)


is_equivariant = Task(
    "is_equivariant",
    permutation.is_equivariant,
    _LAYER_PENCIL,
    _layer_cases(),
    way=AskAboutLayer(),
    pencil_note=_LAYER_PENCIL_NOTE,
)

SIDE = wrongs(
    DEFINITIONS,
    """
    unmoved: it is invariance that is tested
        Your test asks whether the output stays as it is. An equivariant layer's output moves, in the
        same way as the input.
    back: the output is not permuted as the input is
        The output of the permuted input is compared with sigma(f(X)), where sigma does to the output
        what it did to the input. You permute *back* what should be permuted forth, or the wrong one of
        the two outputs, or draw a second order for the output.
    """,
)


@is_equivariant.made_of(
    orders=ORDERS,
    side=SIDE,
    compared=COMPARED,
    tolerance=TOLERANCES,
    rows=ROWS,
    answer=ANSWER,
)
def any_equivariant(
    layer,
    x,
    *,
    orders="many",
    side="forth",
    compared="all",
    tolerance="right",
    rows="checked",
    answer="right",
):
    if side == "unmoved" and rows == "checked" and len(layer(x)) != len(x):
        return _answered(False, answer)
    return _answered(_tried(layer, x, orders, side, compared, tolerance, rows), answer)


def _symmetry(layer: Callable[[Tensor], Tensor], x: Tensor) -> str:
    equivariant = bool(permutation.is_equivariant(layer, x))
    invariant = bool(permutation.is_invariant(layer, x))
    return _word(equivariant, invariant, "")


def _word(equivariant: bool, invariant: bool, word: str) -> str:
    if word == "either":
        return "both" if equivariant or invariant else "neither"
    if equivariant and invariant:
        return {"equivariance first": "equivariant", "invariance first": "invariant"}.get(word, "both")
    if word == "exchanged":
        equivariant, invariant = invariant, equivariant
    return "equivariant" if equivariant else "invariant" if invariant else "neither"


symmetry = Task(
    "symmetry",
    _symmetry,
    _LAYER_PENCIL,
    _layer_cases(),
    way=AskAboutLayer(),
    builds_on=("is_equivariant",),
    pencil_note=_LAYER_PENCIL_NOTE,
)


@symmetry.made_of(
    orders=ORDERS,
    compared=COMPARED,
    tolerance=TOLERANCES,
    word=wrongs(
        DEFINITIONS,
        """
        equivariance first: no layer is found to be both
            If every row of the output is the same, permuting the rows changes nothing. Such a layer can be
            equivariant *and* invariant. Find out both things before you answer.
        invariance first: no layer is found to be both, and invariance goes first
            If every row of the output is the same, permuting the rows changes nothing. Such a layer can be
            equivariant *and* invariant. Find out both things before you answer.
        exchanged: the two words are exchanged
            Invariant: the output stays. Equivariant: the output moves in the same way as the input.
        either: "both" is said where only one of the two holds
            It is to be said of layers that are equivariant *and* invariant.
        """,
    ),
    rows={
        **ROWS,
        "pooled": Wrong(
            "a layer with another number of rows is called neither at once",
            """It cannot be equivariant. But its output may stay the same in every order, and then it
            is invariant.""",
            DEFINITIONS,
        ),
    },
    side=only(SIDE, "back"),
    invariance=wrongs(
        PROPERTY_TESTS,
        """
        first row: of invariance, only the first row of the output is compared
            A layer may be right in its first row and nowhere else. Compare the whole output.
        sum over rows: of invariance, only the sums over the outputs are compared
            Outputs that merely change places have the same sum. Every single number has to stay.
        none: for invariance, the outputs must agree to the last digit
            A sum in another order is rounded in another way. Allow for that, and for no more.
        """,
    ),
)
def any_symmetry(
    layer,
    x,
    *,
    orders="many",
    compared="all",
    tolerance="right",
    word="",
    rows="checked",
    side="forth",
    invariance="",
):
    if rows == "pooled" and len(layer(x)) != len(x):
        return "neither"
    equivariant = _tried(layer, x, orders, side, compared, tolerance, rows)
    compared = invariance if invariance in ("first row", "sum over rows") else compared
    tolerance = "none" if invariance == "none" else tolerance
    invariant = _tried(layer, x, orders, "unmoved", compared, tolerance, rows)
    return _word(equivariant, invariant, word)


@symmetry.mistake(
    "the shape of the output decides",
    hint="""An output with one row for each position may or may not follow a permutation. Only trying it
    tells.""",
    read=PROPERTY_TESTS,
)
def symmetry_by_shape(layer, x):
    layer(x.flip(0)), layer(x.roll(1, 0))
    return "equivariant" if layer(x).shape[0] == len(x) else "invariant"


# ---------------------------------------------------------------------------------------
# A no is proof: hand over the order
# ---------------------------------------------------------------------------------------


def _nearly_equivariant(seed: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Layers that follow many orders, and not all."""
    normal = normal_source(seed, "layers")
    W = normal(_DIM, _DIM, dtype=torch.float64) / _DIM**0.5
    upper = torch.ones(_LENGTH, _LENGTH, dtype=torch.float64).triu(1)
    # 1 below and on the diagonal, so that a product takes in only the pairs above it.
    lower = 1 - upper
    circle = torch.eye(_LENGTH, dtype=torch.float64).roll(1, 0)
    alike = torch.tensor([0.0, 0, 1, 2, 3, 4, 0], dtype=torch.float64)[:, None]
    group = torch.tensor([0.0, 0, 0, 1, 1, 1, 1], dtype=torch.float64)[:, None]
    encoding = normal(_LENGTH, _DIM, dtype=torch.float64)

    def attend(x: Tensor) -> Tensor:
        return torch.softmax(x @ W @ x.mT / _DIM**0.5, -1) @ x

    def oddness(x: Tensor, feature: int) -> Tensor:
        """1 or -1, which every exchange of two positions turns round."""
        column = x[:, feature : feature + 1]
        return torch.sign((column - column.mT) * upper + lower).prod()

    # Neighbours, so that exchanging neighbours shows every fault.
    above = Draws(seed, "neighbours").randint(0, _LENGTH - 1, (_DIM,)).tolist()

    def larger(x: Tensor, feature: int) -> Tensor:
        """1 or -1: in which of two neighbours this feature is larger."""
        return torch.sign(x[above[feature], feature] - x[above[feature] + 1, feature])

    # Of these an order that is the same for every layer shows about every other one.
    compared = {
        f"{what} by which of two neighbours has the larger number in feature {feature}": layer
        for feature, what, layer in (
            (3, "the sign is given", lambda x: attend(x) * larger(x, 3)),
            (4, "the sign is given", lambda x: attend(x) * larger(x, 4)),
            (5, "the sign of what attention adds is given", lambda x: x + attend(x) * larger(x, 5)),
            (6, "the sign of what attention adds is given", lambda x: x + attend(x) * larger(x, 6)),
            (7, "a little is decided", lambda x: attend(x) * (1 + larger(x, 7) / 100)),
            (8, "the mean that is added is decided", lambda x: x + attend(x).mean(0) * (2 + larger(x, 8))),
        )
    }
    return compared | {
        "every exchange of two positions turns the sign, two exchanges turn it back": (
            lambda x: attend(x) * oddness(x, 0)
        ),
        "a convolution on a circle": lambda x: torch.tanh(circle @ x),
        "a convolution with equal weights to both sides of a circle": lambda x: (circle + circle.mT) @ x + x,
        "the first, second and last position are treated alike": lambda x: attend(x) + alike,
        "the first three and the last four positions are treated alike": lambda x: attend(x) + group,
        "an exchange shows a little in one feature": lambda x: attend(x) + oddness(x, 1) / 1000,
        # Of these three many orders change the last digits only.
        "an exchange turns the sign of what attention adds": lambda x: x + attend(x) * oddness(x, 1),
        "an exchange shows a little in all features": lambda x: attend(x) * (1 + oddness(x, 0) / 100),
        "an exchange shows in the mean that is added": (
            lambda x: x + attend(x).mean(0) * (2 + oddness(x, 2))
        ),
        "a small vector is added for each position": lambda x: attend(x) + encoding / 1000,
        "large numbers, and an exchange turns the sign of a few": lambda x: (
            1e5 * torch.tanh(x) * oddness(x, 2)
        ),
    }


def _nearly_cases(seed: int) -> list[Case]:
    normal, layers = normal_source(seed), _nearly_equivariant(seed)
    return [
        Case(
            {"layer": trace(layers[name]), "x": normal(_LENGTH, _DIM, dtype=torch.float64)},
            f"the layer is: {name}",
        )
        for name in in_any_order(layers, seed)
    ]


def _an_order(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    found = permutation.is_equivariant(layer, x, return_counterexample=True)
    assert isinstance(found, tuple)
    assert found[1] is not None
    return found[1]


def _shows_it(inputs: dict[str, Any], value: Any) -> str | None:
    layer, x = inputs["layer"], inputs["x"]
    length = len(x)
    if isinstance(value, list | tuple) and all(type(place) is int for place in value):
        value = torch.tensor(value)
    if not isinstance(value, Tensor) or value.is_floating_point() or value.dtype == torch.bool:
        return "an order was expected: a tensor of whole numbers"
    if value.shape != (length,) or not torch.equal(value.sort().values.long(), torch.arange(length)):
        return f"an order of {length} positions has each of the numbers 0 to {length - 1} once"
    order = value.long()
    moved, expected = layer(x[order]), layer(x)[order]
    if (moved - expected).abs().max() > 1e-8 * expected.abs().max():
        return None
    if torch.equal(order, torch.arange(length)):
        return "this order moves nothing, and proves nothing"
    return "in this order the layer does what an equivariant one does, so it is no proof"


counterexample = Task(
    "counterexample",
    _an_order,
    {
        "layer": trace(lambda x: x + torch.tensor([[0.0], [10.0], [20.0]], dtype=torch.float64)),
        "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64),
    },
    _nearly_cases,
    compare=_shows_it,
    builds_on=("is_equivariant",),
    pencil_note="the layer adds 0, 10 and 20 to its three rows",
)


@counterexample.mistake(
    "an order is returned that has not been tried",
    hint="""One order shows the fault of some layers, and not of all: some of them show it only after an
    odd number of exchanges. Call the layer, compare, and return an order for which it fails.""",
    read=PROPERTY_TESTS,
)
def counterexample_untried(layer, x):
    layer(x)
    return torch.tensor([1, 2, 0, 3, 4, 5, 6][: len(x)])


@counterexample.mistake(
    "it is the identity",
    hint="""The identity moves no position, and every layer follows it.""",
    read=PROPERTY_TESTS,
)
def counterexample_identity(layer, x):
    return torch.arange(len(x))


@counterexample.mistake(
    "it is always the reversed order",
    hint="""A layer that treats both directions alike follows it. Several orders have to be tried.""",
    read=PROPERTY_TESTS,
)
def counterexample_reversed(layer, x):
    return torch.arange(len(x)).flip(0)


@counterexample.mistake(
    "it is always a shift",
    hint="""A layer that works on a circle follows every shift. And a shift of seven positions is made of
    six exchanges, an even number, which some layers do not notice. Several orders have to be tried.""",
    read=PROPERTY_TESTS,
)
def counterexample_shift(layer, x):
    return torch.arange(len(x)).roll(1)


@counterexample.mistake(
    "it is always the exchange of the first two positions",
    hint="""A layer may treat just these two alike. Several orders have to be tried.""",
    read=PROPERTY_TESTS,
)
def counterexample_swap(layer, x):
    return torch.cat([torch.tensor([1, 0]), torch.arange(2, len(x))])


@counterexample.mistake(
    "an order is returned that the layer follows",
    hint="""The output of this order is the old one, permuted: that is what the layer should do. Return an
    order for which the two sides differ.""",
    read=DEFINITIONS,
)
def counterexample_where_it_holds(layer, x):
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        order = torch.randperm(len(x), generator=generator)
        if torch.allclose(layer(x[order]), layer(x)[order]):
            return order
    return torch.arange(len(x))


@counterexample.mistake(
    "it is the changed output, not the order",
    hint="""What is asked for is the order of the positions, a tensor of whole numbers. Whoever has it
    can call the layer and see.""",
    read=PROPERTY_TESTS,
)
def counterexample_output(layer, x):
    return layer(x.flip(0))


# ---------------------------------------------------------------------------------------
# Disprove a claim
# ---------------------------------------------------------------------------------------


def _same_rows_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(rows: int, dim: int, note: str = "", query: Any = None) -> Case:
        drawn = normal(1, dim, dtype=torch.float64) if query is None else query
        return Case({"query": drawn, "x": normal(rows, dim, dtype=torch.float64)}, note)

    return [
        case(4, 3),
        case(2, 2, "two rows"),
        case(5, 4, "a query of zeros", torch.zeros(1, 4, dtype=torch.float64)),
        *(
            _with_the_output_in(normal(2, 3, dtype=torch.float64), place)
            for place in ("first", "second", "last")
        ),
        _with_a_row_far_away(normal(3, 3, dtype=torch.float64)),
    ]


def _with_a_row_far_away(x: Tensor) -> Case:
    """A row from which the query looks away, so that it has no weight, however often it occurs."""
    query = torch.tensor([[4.0, 0.0, 0.0]], dtype=x.dtype)
    return Case({"query": query, "x": torch.cat([x, -10 * query])}, "the farthest row has no weight")


def _with_the_output_in(x: Tensor, place: str) -> Case:
    """A query of zeros, to which all rows are alike, and a row that is the mean of the others."""
    before = {"first": 0, "second": 1, "last": len(x)}[place]
    rows = [x[:before], x.mean(0, keepdim=True), x[before:]]
    query = torch.zeros(1, x.shape[1], dtype=x.dtype)
    return Case({"query": query, "x": torch.cat(rows)}, f"the {place} row is what comes out anyway")


def _with_last_row_again(query: Tensor, x: Tensor) -> Tensor:
    # Whichever row, repeated, moves the output most.
    attended = [torch.cat([x, row[None]]) for row in x]
    return max(attended, key=lambda rows: (_output(query, rows) - _output(query, x)).abs().max())


def _output(query: Tensor, x: Tensor) -> Tensor:
    return attention_weights(query, x) @ x


def _disproves(inputs: dict[str, Any], value: Any) -> str | None:
    query, x = inputs["query"], inputs["x"]
    if not isinstance(value, Tensor) or value.dim() != 2 or value.shape[1] != x.shape[1]:
        return f"a sequence was expected: a tensor with two dimensions, the second of them {x.shape[1]}"
    if value.dtype != x.dtype:
        return f"the dtype should be {str(x.dtype).removeprefix('torch.')}, that of x"
    equal = (value[:, None] == x).all(-1)  # (rows of value, rows of x)
    if not equal.any(1).all():
        return f"its row {int(equal.any(1).long().argmin())} is no row of x: the claim says nothing about it"
    if not equal.any(0).all():
        return f"row {int(equal.any(0).long().argmin())} of x is missing: the claim says nothing about it"
    if not (_output(query, value) - _output(query, x)).abs().max() > 1e-6:
        times = equal.sum(0)  # (rows of x,)
        what = ", which every row of x is in equally often," if times.unique().numel() == 1 else ""
        return f"for this sequence{what} the output is the same as for x, so the claim holds for it"
    return None


same_rows = Task(
    "same_rows",
    _with_last_row_again,
    {
        "query": torch.tensor([[1.0, 0.0]], dtype=torch.float64),
        "x": torch.tensor([[0.0, 1.0], [2.0, 0.0], [0.0, 3.0]], dtype=torch.float64),
    },
    _same_rows_cases,
    compare=_disproves,
)


@same_rows.mistake(
    "the rows are only put in another order",
    hint="""This is where the claim is right: the order of keys and values does not matter. What else can
    differ between two sequences that are made of the same rows?""",
    read=REPEATS,
)
def same_rows_reversed(query, x):
    return x.flip(0)


@same_rows.mistake(
    "every row is repeated equally often",
    hint="""If every row comes twice, all exponentials come twice in the sum, too, and the weight of each
    pair is what the single row had. Is there need to treat all rows alike?""",
    read=REPEATS,
)
def same_rows_twice(query, x):
    return torch.cat([x, x])


@same_rows.mistake(
    "a row is left out",
    hint="""Without one of its rows it is another set, and the claim says nothing about it. All rows of x must
    be there.""",
    read=REPEATS,
)
def same_rows_without_one(query, x):
    return x[1:]


@same_rows.mistake(
    "a new row is added",
    hint="""A row of zeros is a key and a value like any other, and x does not have it. Use the rows that are
    there.""",
    read=REPEATS,
)
def same_rows_and_zeros(query, x):
    return torch.cat([x, torch.zeros_like(x[:1])])


@same_rows.mistake(
    "it is the sequence itself",
    hint="""The same sequence gives the same output. Change something that keeps the set of rows.""",
    read=REPEATS,
)
def same_rows_unchanged(query, x):
    return x.clone()


@same_rows.mistake(
    "a certain row is repeated, whatever it is",
    hint="""A row that is just the output already pulls it nowhere. Find out which row lies far from
    the output, or repeat several rows, each another number of times.""",
    read=REPEATS,
)
def same_rows_first_again(query, x):
    return torch.cat([x, x[:1]])


# ---------------------------------------------------------------------------------------
# The lecture's layer: positions last
# ---------------------------------------------------------------------------------------


def _channels_first(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    x = x.mT  # (batch, positions, in_channels)
    query, key, value = (x @ W[..., 0].mT for W in (W_Q, W_K, W_V))
    output = attention(query, key, value, scale=1.0)
    assert isinstance(output, Tensor)
    return output.mT


def _convolutions(normal: Normal, *shape: int, key_dim: int, out: int) -> dict[str, Tensor]:
    channels = shape[1]
    return {
        "x": normal(*shape),
        "W_Q": normal(key_dim, channels, 1) / channels**0.5,
        "W_K": normal(key_dim, channels, 1) / channels**0.5,
        "W_V": normal(out, channels, 1) / channels**0.5,
    }


def _channels_first_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_convolutions(normal, 1, 3, 5, key_dim=2, out=4), "a batch of one"),
        Case(_convolutions(normal, 2, 4, 6, key_dim=4, out=4), "as many channels out as in"),
        Case(_convolutions(normal, 3, 5, 5, key_dim=5, out=5), "as many channels as positions"),
        Case(_convolutions(normal, 4, 4, 4, key_dim=4, out=4), "all sizes the same"),
        Case(_convolutions(normal, 2, 1, 7, key_dim=3, out=1), "one channel"),
        Case(_convolutions(normal, 2, 3, 1, key_dim=2, out=2), "one position"),
    ]


def _some_convolutions(normal: Normal) -> dict[str, Tensor]:
    return _convolutions(normal, 2, 3, 4, key_dim=2, out=5)


def _no_queries(normal: Normal) -> dict[str, Tensor]:
    drawn = _some_convolutions(normal)
    return drawn | {"W_Q": torch.zeros_like(drawn["W_Q"])}


def _value_channels(inputs: dict[str, Tensor]) -> Tensor:
    return inputs["W_V"][..., 0] @ inputs["x"]  # (batch, out_channels, positions)


def _is_mean_of_values(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    mean = _value_channels(inputs).mean(-1, keepdim=True)
    return laws.is_not(value, mean.expand_as(value), "yours gives {yours} at {place}, the mean is {expected}")


def _all_positions_alike(normal: Normal) -> dict[str, Tensor]:
    drawn = _some_convolutions(normal)
    return drawn | {"x": drawn["x"][..., :1].expand_as(drawn["x"]).clone()}


def _is_its_value(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, not {expected}"
    return laws.is_not(value, _value_channels(inputs), words)


def _turned_round(inputs: list[dict[str, Tensor]], values: list[Tensor]) -> str | None:
    words = "yours then gives {yours} at {place} instead of {expected}"
    return laws.is_not(values[1], values[0].flip(-1), words)


def _channels_twice(inputs: dict[str, Tensor], normal: Normal) -> dict[str, Tensor]:
    return {name: torch.cat([inputs[name] / 2**0.5] * 2) for name in ("W_Q", "W_K")}


channels_first_attention = Task(
    "channels_first_attention",
    _channels_first,
    {
        "x": torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]]),
        "W_Q": 4 * torch.eye(2)[..., None],
        "W_K": torch.eye(2)[..., None],
        "W_V": torch.tensor([[[10.0], [20.0]]]),
    },
    _channels_first_cases,
    laws=[
        Law(
            "where W_Q is all zeros, every position gets the mean of the values",
            CHANNELS_FIRST,
            _no_queries,
            _is_mean_of_values,
        ),
        Law(
            "where all positions of x are alike, the output is that of a convolution with W_V",
            CHANNELS_FIRST,
            _all_positions_alike,
            _is_its_value,
        ),
        Law(
            "turning the positions round turns the output round",
            CHANNELS_FIRST,
            lambda normal: [
                drawn := _some_convolutions(normal),
                drawn | {"x": drawn["x"].flip(-1)},
            ],
            _turned_round,
        ),
        laws.stays(
            "there is no scale: writing every channel of queries and keys twice, divided by the root of 2, "
            "changes nothing",
            CHANNELS_FIRST,
            _some_convolutions,
            _channels_twice,
        ),
        laws.stays(
            "a sequence gets the same output whatever else is in the batch",
            CHANNELS_FIRST,
            _some_convolutions,
            lambda inputs, normal: {"x": torch.cat([inputs["x"][:1], normal(1, 3, 4)])},
            lambda value: value[0],
        ),
    ],
)


@channels_first_attention.made_of(
    compared=wrongs(
        CHANNELS_FIRST,
        """
        scaled: the scores are divided by the root of key_dim
            The lecture's layer leaves the scale out. It is to be written as it stands there.
        exchanged: queries and keys are exchanged
            Row i of the scores belongs to query i, which is made with W_Q. Queries have their positions last:
            which of the two has to be transposed?
        reshaped: the sequence is reshaped where it should be transposed
            A reshape keeps the numbers in their order and cuts them up anew, so that a row holds pieces of
            several positions. Positions and channels must change places.
        W_K for both: the keys' weights make the queries, too
            There are three convolutions.
        """,
    ),
    axis=wrongs(
        CHANNELS_FIRST,
        """
        queries: the weights are normalised over the queries
            A position shares out its attention among the keys. Sum your weights along each dimension:
            along which one should it be 1? (attention_operator#rows-and-columns)
        batch: the weights are normalised over the batch
            `dim=0` is the batch. Count from the back.
        none: the scores are used without a softargmax
            Scores may be negative and add up to anything.
        """,
    ),
    averaged=wrongs(
        CHANNELS_FIRST,
        """
        transposed: the values meet the wrong dimension of the weights
            The values have positions last, and the sum runs over the positions of the *keys*, the columns of
            the weights. Which dimension of the weights has to meet the last one of the values?
        keys: the keys are averaged instead of the values
            The keys decide the weights and nothing else.
        inputs: the sequence itself is averaged, without W_V
            The values are made by a convolution, too.
        """,
    ),
    form=wrongs(
        CHANNELS_FIRST,
        """
        positions first: the output has its channels last
            The next layer is a convolution and wants the form in which x came.
        """,
    ),
)
def any_channels_first(x, W_Q, W_K, W_V, *, compared="", axis="", averaged="", form=""):
    W_Q, W_K, W_V = W_Q[..., 0], W_K[..., 0], W_V[..., 0]
    if compared == "W_K for both":
        W_Q = W_K
    rows = x.reshape(x.shape[0], x.shape[2], x.shape[1]) if compared == "reshaped" else x.mT
    query, key, value = rows @ W_Q.mT, rows @ W_K.mT, rows @ W_V.mT
    scores = key @ query.mT if compared == "exchanged" else query @ key.mT
    if compared == "scaled":
        scores = scores / math.sqrt(W_Q.shape[0])
    weights = scores if axis == "none" else torch.softmax(scores, {"queries": 1, "batch": 0}.get(axis, 2))
    if averaged == "transposed":
        weights = weights.mT
    output = weights @ {"keys": key, "inputs": rows}.get(averaged, value)
    return output if form == "positions first" else output.mT


# ---------------------------------------------------------------------------------------
# The data of the experiment
# ---------------------------------------------------------------------------------------


def _toy_pair(centre: Tensor, width: Tensor, height: Tensor, length: int) -> tuple[Tensor, Tensor]:
    profile = toy.profiles(centre, width)[..., :length]  # (num_sequences, 4, length)
    mean = (height + height[:, [1, 0, 3, 2]]) / 2  # (num_sequences, 4)
    x, target = ((each[..., None] * profile).sum(1, keepdim=True) for each in (height, mean))
    return x, target


def _shapes(normal: Normal, number: int, length: int = 100) -> dict[str, Any]:
    """Four shapes apart from each other, in any order, and no edge where rounding decides."""
    places = torch.tensor([12.0, 37.0, 62.0, 87.0])
    order = normal(number, 4).argsort(1)
    return {
        "centre": places[order] + normal(number, 4).clamp(-2.5, 2.5),
        "width": 8 + normal(number, 4).clamp(-2.5, 2.5),
        "height": 13 + 4 * normal(number, 4).clamp(-2.5, 2.5),
        "length": length,
    }


def _toy_pair_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_shapes(normal, 3), "three sequences"),
        Case(_shapes(normal, 1), "a single sequence"),
        Case(_shapes(normal, 4), "as many sequences as shapes"),
        Case(_shapes(normal, 2, 70), "shorter sequences, which end before the last shape"),
        Case(
            {
                "centre": torch.tensor([[20.0, 40.0, 70.0, 85.0]]),
                "width": torch.tensor([[6.0, 4.0, 4.0, 6.0]]),
                "height": 13 + 4 * normal(1, 4).clamp(-2.5, 2.5),
                "length": 100,
            },
            "ends that fall on positions",
        ),
    ]


def _equal_heights(normal: Normal) -> dict[str, Any]:
    return _shapes(normal, 2) | {"height": torch.tensor([[3.0, 3.0, 5.0, 5.0], [8.0, 8.0, 2.0, 2.0]])}


def _target_is_input(inputs: dict[str, Tensor], value: tuple[Tensor, Tensor]) -> str | None:
    return laws.is_not(value[1], value[0], "yours has {yours} at {place} of the target, {expected} in x")


def _only_height(shape: int) -> laws.Draw:
    def draw(normal: Normal) -> dict[str, Any]:
        height = torch.zeros(1, 4)
        height[:, shape] = 8
        width = torch.full((1, 4), 7.0)
        centre = torch.tensor([[20.0, 40.0, 60.0, 80.0]])
        return {"centre": centre, "width": width, "height": height, "length": 100}

    return draw


def _spans(
    first: int, last: int, top: float
) -> Callable[[dict[str, Any], tuple[Tensor, Tensor]], str | None]:
    def broken(inputs: dict[str, Tensor], value: tuple[Tensor, Tensor]) -> str | None:
        places = (value[0][0, 0] != 0).nonzero().flatten().tolist() or [-1]
        if (places[0], places[-1]) != (first, last):
            return f"the numbers of yours that are not 0 reach from {places[0]} to {places[-1]}"
        return laws.is_not(value[0].amax((1, 2)), torch.tensor([top]), "the highest of yours is {yours}")

    return broken


def _twice(inputs: list[dict[str, Tensor]], values: list[tuple[Tensor, Tensor]]) -> str | None:
    words = "yours then has {yours} at {place} instead of {expected}"
    return laws.is_not(values[1][0], 2 * values[0][0], words) or laws.is_not(
        values[1][1], 2 * values[0][1], words
    )


toy_pair = Task(
    "toy_pair",
    _toy_pair,
    {
        "centre": torch.tensor([[3.0, 8.0, 11.0, 13.0]]),
        "width": torch.tensor([[4.0, 4.0, 1.0, 3.0]]),
        "height": torch.tensor([[4.0, 8.0, 3.0, 5.0]]),
        "length": 16,
    },
    _toy_pair_cases,
    laws=[
        Law(
            "where both triangles have one height and both rectangles one, the target is x",
            TOY_PROBLEM,
            _equal_heights,
            _target_is_input,
        ),
        Law(
            "twice the heights are twice the sequences",
            TOY_PROBLEM,
            lambda normal: [
                drawn := _shapes(normal, 2),
                drawn | {"height": 2 * drawn["height"]},
            ],
            _twice,
        ),
        Law(
            "a triangle of height 8 and width 7 at 20 reaches from 17 to 23, and is 8 high",
            TOY_PROBLEM,
            _only_height(0),
            _spans(17, 23, 8.0),
        ),
        Law(
            "a rectangle of height 8 and width 7 at 60 reaches from 57 to 63",
            TOY_PROBLEM,
            _only_height(2),
            _spans(57, 63, 8.0),
        ),
    ],
)


@toy_pair.made_of(
    triangle=wrongs(
        TOY_PROBLEM,
        """
        not clipped: beside a triangle the sequence goes below 0
            The two sides of the triangle are lines, and lines go on. Below 0 there is no triangle any more.
        pointed: half a position is not taken off the distance from a triangle's centre
            Its sides are too low by that half. Look at the formula: what is done to d before it is divided?
        full width: a triangle is twice as wide as it should be
            The width goes from one end to the other, the distance only from the middle to an end.
        """,
    ),
    rectangle=wrongs(
        TOY_PROBLEM,
        """
        full width: a rectangle is twice as wide as it should be
            The width goes from one end to the other, the distance only from the middle to an end.
        to the right: a rectangle begins at its centre
            Half of it lies to the left of its centre: take the size of the difference.
        with ends: a position at the very end of a rectangle is counted to it
            Is a distance of half the width still inside? Look at the sign in the formula.
        """,
    ),
    kinds=wrongs(
        TOY_PROBLEM,
        """
        exchanged: triangles are drawn as rectangles, and rectangles as triangles
            The first two of the four are triangles, the last two are rectangles.
        """,
    ),
    positions=wrongs(
        TOY_PROBLEM,
        """
        from one: positions are counted from 1
            The first position is number 0.
        a hundred: there are always a hundred positions
            The last argument says how many there are.
        """,
    ),
    pairs=wrongs(
        TOY_PROBLEM,
        """
        copied: the target is the sequence itself
            In the target both triangles have one height, and both rectangles one.
        all: in the target all four shapes have one height
            The triangles' heights are averaged among themselves, and so are the rectangles'.
        exchanged: in the target the two shapes of a kind have exchanged their heights
            Each of them gets the *mean* of the two.
        across: a triangle and a rectangle are averaged
            The first two are the triangles, the last two the rectangles.
        batch: heights are averaged over the sequences
            Each sequence has four shapes of its own. Dimension 0 counts the sequences.
        """,
    ),
    form=wrongs(
        TOY_PROBLEM,
        """
        no channel: the dimension of the channel is missing
            Convolutions want (batch, channels, positions), even where there is one channel.
        target first: target and input are exchanged
            First the sequence as it is, then what it is to become.
        """,
    ),
)
def any_toy_pair(
    centre, width, height, length, *, triangle="", rectangle="", kinds="", positions="", pairs="", form=""
):
    length = 100 if positions == "a hundred" else length
    place = torch.arange(length) + (positions == "from one")
    difference = place - centre[..., None]  # (num_sequences, 4, length)
    distance, half = difference.abs(), width[..., None] / 2
    top = distance if triangle == "pointed" else (distance - 0.5).clamp(min=0)
    sides = 1 - top / (2 * half if triangle == "full width" else half)
    sides = sides if triangle == "not clipped" else sides.clamp(min=0)
    inside = {
        "full width": distance < 2 * half,
        "to the right": (difference >= 0) & (difference < 2 * half),
        "with ends": distance <= half,
    }.get(rectangle, distance < half).to(sides.dtype)
    first, last = (inside, sides) if kinds == "exchanged" else (sides, inside)
    profile = torch.cat([first[:, :2], last[:, 2:]], 1)
    partner = height[:, [1, 0, 3, 2]]
    mean = {
        "copied": height,
        "all": height.mean(1, keepdim=True).expand(height.shape),
        "exchanged": partner,
        "across": (height + height[:, [2, 3, 0, 1]]) / 2,
        "batch": (height + partner).mean(0, keepdim=True).expand(height.shape) / 2,
    }.get(pairs, (height + partner) / 2)
    keep = form != "no channel"
    x, target = ((each[..., None] * profile).sum(1, keepdim=keep) for each in (height, mean))
    return (target, x) if form == "target first" else (x, target)


# ---------------------------------------------------------------------------------------
# How many numbers a network learns
# ---------------------------------------------------------------------------------------

Layers = list[tuple[str, int, int, int]]


def _network_size(layers: Layers) -> int:
    size = 0
    for kind, in_channels, out_channels, third in layers:
        if kind == "conv":
            size += out_channels * (in_channels * third + 1)
        else:
            size += in_channels * (2 * third + out_channels)
    return size


def _network(middle: tuple[str, int, int, int], channels: int = 64, width: int = 5) -> Layers:
    """The running experiment's, with a layer in its middle."""
    conv = ("conv", channels, channels, width)
    return [("conv", 1, channels, width), conv, middle, conv, ("conv", channels, 1, width)]


def _network_size_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")
    first, second, third, fourth = (draws.randperm(20)[:4] + 2).tolist()
    return [
        Case({"layers": _network(("conv", 64, 64, 5))}, "the network of five convolutions"),
        Case({"layers": _network(("attention", 64, 64, 64))}, "the network with attention"),
        Case({"layers": [("conv", first, second, third)]}, "one convolution"),
        Case({"layers": [("attention", first, second, fourth)]}, "one attention"),
        Case({"layers": [("attention", third, first, second), ("conv", first, fourth, 3)]}, "two layers"),
        Case({"layers": _network(("conv", third, third, 3), third, 3)}, "a small network of five"),
    ]


def _size_law(sentence: str, before: Layers | None, after: Layers, difference: int) -> Law:
    if before is None:
        return laws.differs_by(sentence, TOY_PROBLEM, {"layers": after}, None, difference)
    return laws.differs_by(sentence, TOY_PROBLEM, {"layers": before}, {"layers": after}, difference)


network_size = Task(
    "network_size",
    _network_size,
    {"layers": [("conv", 1, 2, 3), ("attention", 2, 4, 1)]},
    _network_size_cases,
    laws=[
        _size_law("a convolution of width 1 from one channel to one learns 2", None, [("conv", 1, 1, 1)], 2),
        _size_law(
            "a convolution from 3 channels to 5 that is wider by 1 learns 15 more",
            [("conv", 3, 5, 2)],
            [("conv", 3, 5, 3)],
            15,
        ),
        _size_law(
            "an attention from 3 channels whose key_dim is larger by 1 learns 6 more",
            [("attention", 3, 5, 2)],
            [("attention", 3, 5, 3)],
            6,
        ),
        _size_law(
            "one more layer adds what it learns by itself",
            [("attention", 2, 2, 1)],
            [("conv", 1, 1, 1), ("attention", 2, 2, 1)],
            2,
        ),
    ],
)


@network_size.made_of(
    biases=wrongs(
        TOY_PROBLEM,
        """
        none: convolutions have no biases
            Each output channel of a convolution has a number that is added to it.
        one: there is one bias for a whole convolution
            Each output channel has a number of its own that is added to it.
        of inputs: there is a bias for each input channel
            A bias is added to what comes out. How many channels come out?
        of attention: the attention layer has biases, too
            It has three matrices and nothing else.
        """,
    ),
    convolution=wrongs(
        TOY_PROBLEM,
        """
        one position: the width of a convolution is not used
            For each position under it, a convolution has a matrix of its own.
        shared: a convolution has one set of weights for all its output channels
            Each output channel has weights for all input channels and all positions under it.
        """,
    ),
    attention=wrongs(
        CHANNELS_FIRST,
        """
        one of two: queries and keys have one matrix together
            There are three matrices: for queries, for keys and for values.
        no values: the matrix for the values is not counted
            There are three matrices: for queries, for keys and for values.
        with W_O: the attention has a fourth matrix
            There are three matrices: for queries, for keys and for values. What these give is the output.
        values like keys: the values have as many channels as the keys
            What comes out is made of values. How many channels come out?
        """,
    ),
    summed=wrongs(
        TOY_PROBLEM,
        """
        last: only the last layer is counted
            Look at where your sum begins, and what your loop adds to.
        """,
    ),
)
def any_network_size(layers, *, biases="", convolution="", attention="", summed=""):
    size = 0
    for kind, channels, out, third in layers:
        if summed == "last":
            size = 0
        if kind == "conv":
            width = 1 if convolution == "one position" else third
            size += channels * width * (1 if convolution == "shared" else out)
            size += {"none": 0, "one": 1, "of inputs": channels}.get(biases, out)
        else:
            size += (1 if attention == "one of two" else 2) * channels * third
            size += channels * {"no values": 0, "values like keys": third}.get(attention, out)
            size += out * out if attention == "with W_O" else 0
            size += 2 * third + out if biases == "of attention" else 0
    return size


# ---------------------------------------------------------------------------------------
# The experiment: predict, and explain
# ---------------------------------------------------------------------------------------


def _left_by_a_line(x: Tensor, y: Tensor) -> Tensor:
    """The smallest mean squared error of a line from x to y."""
    dx, dy = x.flatten() - x.mean(), y.flatten() - y.mean()
    return dy.square().mean() - (dx * dy).mean().square() / dx.square().mean()


def _plateau(height: Tensor, target: Tensor, cost: float) -> float:
    return float(cost * _left_by_a_line(height, target))


def _heights(normal: Normal, number: int, slope: float = 0.5, noise: float = 3.0) -> dict[str, Any]:
    height = 13 + 5 * normal(number, 4, dtype=torch.float64)
    other = normal(number, 4, dtype=torch.float64)
    return {"height": height, "target": slope * height + 6 + noise * other, "cost": 0.25}


def _plateau_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_heights(normal, 20)),
        Case(_heights(normal, 5, slope=-1.5) | {"cost": 0.1}, "a line that falls"),
        Case(_heights(normal, 8, slope=1.0, noise=0.5) | {"cost": 1.0}, "a line that rises by 1"),
        Case(_heights(normal, 12, slope=0.0) | {"cost": 2.0}, "the height says next to nothing"),
    ]


def _ten_heights(normal: Normal) -> dict[str, Any]:
    return _heights(normal, 10)


def _on_a_line(normal: Normal) -> dict[str, Any]:
    return _heights(normal, 10, noise=0.0)


def _nothing_left(inputs: dict[str, Any], value: float) -> str | None:
    return f"yours is {value:.4g}" if abs(value) > 1e-6 else None


def _times(factor: float) -> Callable[[list[dict[str, Any]], list[float]], str | None]:
    def broken(inputs: list[dict[str, Any]], values: list[float]) -> str | None:
        before, after = values
        if math.isclose(after, factor * before, rel_tol=1e-5, abs_tol=1e-9):
            return None
        return f"yours is {before:.4g} before and {after:.4g} after"

    return broken


def _less_than_the_mean(inputs: dict[str, Any], value: float) -> str | None:
    best = inputs["cost"] * inputs["target"].var(correction=0).item()
    if value <= best * (1 + 1e-6):
        return None
    return f"yours is {value:.4g}, and with the mean the loss is {best:.4g}"


def _plateau_law(sentence: str, factor: float, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Law:
    def inputs(normal: Normal) -> list[dict[str, Any]]:
        drawn = _ten_heights(normal)
        return [drawn, drawn | change(drawn)]

    return Law(sentence, PLATEAU, inputs, _times(factor))


plateau = Task(
    "plateau",
    _plateau,
    {
        "height": torch.tensor([[0.0, 2.0, 0.0, 2.0], [2.0, 0.0, 2.0, 0.0]], dtype=torch.float64),
        "target": torch.tensor([[1.0, 4.0, 3.0, 2.0], [4.0, 1.0, 2.0, 3.0]], dtype=torch.float64),
        "cost": 0.5,
    },
    _plateau_cases,
    laws=[
        Law("where the targets lie on a line, nothing is left: 0", PLATEAU, _on_a_line, _nothing_left),
        _plateau_law("twice the cost is twice the loss", 2, lambda drawn: {"cost": 2 * drawn["cost"]}),
        Law(
            "the best line is no worse than to say the mean of all targets every time",
            PLATEAU,
            _ten_heights,
            _less_than_the_mean,
        ),
        _plateau_law(
            "targets that are all higher by 1 change nothing", 1, lambda d: {"target": d["target"] + 1}
        ),
        _plateau_law(
            "errors count squared: targets three times as large give 9 times the loss",
            9,
            lambda drawn: {"target": 3 * drawn["target"]},
        ),
    ],
)


@plateau.made_of(
    line=wrongs(
        PLATEAU,
        """
        through zero: the line goes through zero
            A line has a slope *and* a height at 0. With the slope alone it is not the best.
        mean: the height is not used
            The mean of the targets is the best that can be said without looking. The network sees the height
            of its own shape.
        copy: the height itself is the guess
            To leave the heights as they are is one line, of slope 1. There is a better one.
        slope one: the line rises by 1
            The best slope need not be 1: a tall shape will have to shrink.
        exchanged: the heights are guessed from the targets
            What is known is the height, and what is guessed is the target. The line goes from one to the
            other.
        columns: each of the four shapes has a line of its own
            The network does not know which of the four it is drawing. One line serves for all.
        """,
    ),
    error=wrongs(
        PLATEAU,
        """
        root: it is the root of the error
            It is the mean squared error itself, and not its root, that is turned into the loss.
        absolute: the sizes of the errors are averaged, not their squares
            Mean *squared* error.
        sum: the squared errors are added up
            A mean does not grow with the number of shapes.
        explained: it is what the line explains, not what it leaves
            The loss is what remains between the line and the targets.
        """,
    ),
    price=wrongs(
        PLATEAU,
        """
        forgotten: the cost is not used
            That is the error on the shapes. The loss is a mean over all positions, and most of them are on no
            shape.
        divided: it is divided by the cost
            The cost says by how much the loss rises for an error of 1. So a larger cost gives a larger loss.
        """,
    ),
)
def any_plateau(height, target, cost, *, line="", error="", price=""):
    x, y = (height, target) if line == "columns" else (height.reshape(-1, 1), target.reshape(-1, 1))
    if line == "exchanged":
        x, y = y, x
    mean_x, mean_y = x.mean(0), y.mean(0)
    a = ((x - mean_x) * (y - mean_y)).sum(0) / (x - mean_x).square().sum(0)
    if line == "through zero":
        a = (x * y).sum() / x.square().sum()
    a = {"mean": 0 * a, "copy": 0 * a + 1, "slope one": 0 * a + 1}.get(line, a)
    b = 0 if line in ("through zero", "copy") else mean_y - a * mean_x
    left = y - a * x - b
    if error == "explained":
        left = a * x + b - mean_y
    loss = left.abs().mean() if error == "absolute" else left.square().mean()
    loss = left.square().sum() if error == "sum" else loss.sqrt() if error == "root" else loss
    return float(loss if price == "forgotten" else loss / cost if price == "divided" else loss * cost)


WORDS = ("own", "kind", "nearest", "all")


def _sources(height: Tensor, centre: Tensor) -> dict[str, Tensor]:
    """What each shape would be drawn like, by who is averaged with it."""
    apart = (centre[:, :, None] - centre[:, None]).abs()  # (num_sequences, 4, 4)
    nearest = (apart + 1000 * torch.eye(4, dtype=apart.dtype)).argmin(-1)
    return {
        "own": height,
        "kind": (height + height[:, [1, 0, 3, 2]]) / 2,
        "nearest": (height + height.gather(1, nearest)) / 2,
        "all": height.mean(1, keepdim=True).expand(height.shape),
    }


def _averaged_with(height: Tensor, centre: Tensor, drawn: Tensor) -> str:
    left = {word: _left_by_a_line(source, drawn) for word, source in _sources(height, centre).items()}
    return min(left, key=lambda word: left[word])


def _averaged_with_cases(seed: int) -> list[Case]:
    normal, listed = normal_source(seed), []
    draws = Draws(seed, "choices")

    def shapes(number: int = 24) -> tuple[Tensor, Tensor, Tensor]:
        height, centre, noise = (normal(number, 4, dtype=torch.float64) for _ in range(3))
        return 13 + 5 * height, 50 + 20 * centre, noise

    for name in in_any_order([f"{word} {how}" for how in ("plain", "shrunk") for word in WORDS], seed):
        word, _, how = name.partition(" ")
        height, centre, noise = shapes()
        source = _sources(height, centre)[word]
        drawn = source if how == "plain" else 0.4 * source + 9
        drawn = drawn + 0.45 * drawn.std() * noise
        note = "noise" if how == "plain" else "noise, and nothing is drawn very low or very high"
        listed.append(Case({"height": height, "centre": centre, "drawn": drawn}, note))
    # A little nearer to one reading than to another: an answer that makes one of them amiss is told.
    for pair in in_any_order(map(" ".join, itertools.permutations(WORDS, 2)), seed):
        word, other = pair.split()
        height, centre, noise = shapes(16)
        sources = _sources(height, centre)
        ratio = 1.12 + 0.1 * draws.rand().item()
        least, most, drawn = 0.0, 1.0, height
        for _ in range(8):  # until the other leaves so many times the error
            part = (least + most) / 2
            drawn = (1 - part) * sources[word] + part * sources[other] + 0.5 * noise
            near = ratio * _left_by_a_line(sources[word], drawn) < _left_by_a_line(sources[other], drawn)
            least, most = (part, most) if near else (least, part)
        best, next_best = sorted(_left_by_a_line(source, drawn) for source in sources.values())[:2]
        right = _left_by_a_line(sources[word], drawn) == best
        if right and next_best > 1.1 * best:  # no third one is as near
            listed.append(Case({"height": height, "centre": centre, "drawn": drawn}, "two that are near"))
    return listed


def _drawn_from(word: str, change: Callable[[Tensor], Tensor] = torch.clone) -> laws.Draw:
    def draw(normal: Normal) -> dict[str, Tensor]:
        height = 13 + 5 * normal(6, 4, dtype=torch.float64)
        centre = 50 + 20 * normal(6, 4, dtype=torch.float64)
        return {"height": height, "centre": centre, "drawn": change(_sources(height, centre)[word])}

    return draw


def _word_law(word: str, when: str, change: Callable[[Tensor], Tensor] = torch.clone) -> Law:
    return Law(f"where {when}, the answer is {word!r}", TOY_MAP, _drawn_from(word, change), laws.says(word))


averaged_with = Task(
    "averaged_with",
    _averaged_with,
    {
        "height": torch.tensor([[2.0, 8.0, 4.0, 10.0], [9.0, 3.0, 1.0, 6.0]], dtype=torch.float64),
        "centre": torch.tensor([[10.0, 60.0, 20.0, 80.0], [40.0, 90.0, 55.0, 10.0]], dtype=torch.float64),
        "drawn": torch.tensor([[3.0, 9.0, 3.0, 9.0], [5.0, 2.0, 5.0, 7.5]], dtype=torch.float64),
    },
    _averaged_with_cases,
    laws=[
        _word_law("own", "every shape is drawn as high as it is"),
        _word_law(
            "kind", "both triangles (0 and 1) have their mean height, and both rectangles (2 and 3) theirs"
        ),
        _word_law(
            "nearest",
            "every shape has the mean of its own height and that of the nearest of the three others",
        ),
        _word_law("all", "every shape has the mean height of all four"),
        _word_law(
            "kind", "every shape has half the mean height of its kind, and 6 more", lambda h: h / 2 + 6
        ),
    ],
    builds_on=("plateau",),
)


@averaged_with.made_of(
    source=wrongs(
        TOY_MAP,
        """
        other alone: the height of the other shape stands for the mean of the two
            A shape is drawn with the *mean* of its own height and the other's.
        position nearest: the nearest shape is taken by its place in the list
            The four shapes stand in the list by their kind. Where they are in the sequence is in `centre`.
        farthest: the farthest shape is taken for the nearest
            Which of the distances to the other three is the smallest?
        itself: every shape is its own nearest
            Its distance to itself is 0, which no other can beat. Leave it out before you look for the
            smallest.
        wrong kind: a triangle is taken together with a rectangle as one kind
            Shapes 0 and 1 are triangles, 2 and 3 are rectangles.
        """,
    ),
    compared=wrongs(
        PLATEAU,
        """
        raw: the heights are compared as they are, without the best line
            A network that is half trained draws nothing very low and nothing very high, whoever it looks at.
            Which of the four does the drawing *follow*, on the best line?
        first sequence: only the first sequence is looked at
            Four shapes are too few: with noise, a wrong reading may come closest by chance. And within
            one sequence the mean of all four is one number, on which no line can be drawn.
        largest: the reading that fits worst is chosen
            The smaller the error that a line leaves, the better the reading.
        """,
    ),
    never=wrongs(
        TOY_MAP,
        """
        own: it is never said that a shape is drawn by its own height
            A network that finds nobody to average with has only the shape itself to go by.
        kind: it is never said that shapes of a kind are averaged
            That is what the network is to learn. Is it among the readings that you compare?
        nearest: it is never said that neighbours are averaged
            A network may confuse who is near with who is of the same kind.
        all: it is never said that all four are averaged
            A network may take in all shapes without telling them apart.
        """,
    ),
)
def any_averaged_with(height, centre, drawn, *, source="", compared="", never=""):
    apart = (centre[:, :, None] - centre[:, None]).abs()
    hidden = 0 if source == "itself" else 1000 * torch.eye(4)
    nearest = height.gather(1, (apart + hidden).argmin(-1))
    if source == "farthest":
        nearest = height.gather(1, apart.argmax(-1))
    elif source == "position nearest":
        nearest = height[:, [1, 0, 1, 2]]
    kind = height[:, [2, 3, 0, 1] if source == "wrong kind" else [1, 0, 3, 2]]
    own = 0 if source == "other alone" else height
    readings = {
        "own": height,
        "kind": (own + kind) / 2,
        "nearest": (own + nearest) / 2,
        "all": height.mean(1, keepdim=True).expand(height.shape),
    }
    readings.pop(never, None)
    left = {}
    for word, reading in readings.items():
        x, y = reading.flatten(), drawn.flatten()
        if compared == "first sequence":
            x, y = x[:4], y[:4]
        dx, dy = x - x.mean(), y - y.mean()
        left[word] = dy.square().mean() - (dx * dy).mean() ** 2 / dx.square().mean().clamp(min=1e-12)
        if compared == "raw":
            left[word] = (x - y).square().mean()
    return (max if compared == "largest" else min)(left, key=left.get)
