"""Tasks of the unit ``permutation``: orders, what they change, and what can be concluded from it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import masking, permutation
from attncourse.attention_operator import attention_weights
from attncourse.checks import laws
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


def _order_source(seed: int) -> Callable[[int], Tensor]:
    """A source of permutations that differ from their inverse, as from length 3 on there are some."""
    generator = torch.Generator().manual_seed(seed)

    def order(length: int) -> Tensor:
        drawn = torch.randperm(length, generator=generator)
        while torch.equal(drawn, drawn.argsort()):
            drawn = torch.randperm(length, generator=generator)
        return drawn

    return order


AROUND = torch.tensor([1, 2, 0])

# Which permutation of the two sides of the law is meant.
ORDER = wrongs(
    PERMUTING_ROWS,
    """
    inverse: the inverse permutation is applied
        Position i of the result is to be *taken from* position permutation[i]. You *put* position i at
        position permutation[i]. Try [1, 2, 0] on three rows: which of them should come first?
    backwards: the order is read backwards
        The same list from its end is another permutation. Position 0 of the result belongs to its first
        number.
    from one: the positions are counted from 1
        Python counts from 0: the first row has number 0, and the numbers of the permutation are meant so.
    ignored: the permutation is not used
        The sequence comes back as it was, or turned round. Your answer must depend on the permutation.
    reversal: the sequence is turned round
        Turning round is one permutation among many. Your answer must depend on the one that is given.
    complement: each number of the permutation is subtracted from the last position
        This turns the numbers round, not the permutation. Check by hand, with [1, 2, 0], which of the three
        rows should come first.
    in turn: rows are exchanged one after the other, and those moved before are moved again
        After the first exchange, position 0 no longer holds what it held. The definition speaks of the rows
        of the *old* sequence. Take all from there, and write into a new one.
    overwritten: rows are overwritten before they have been read
        The first step puts a row at position 0, and what stood there is gone, although it is wanted later
        on. Read from the old sequence, and write into a new one.
    """,
)

DIMENSION = wrongs(
    PERMUTING_ROWS,
    """
    features: the features are permuted instead of the positions
        Positions are rows. The order says which row comes first, and every row stays in one piece. In which
        place of the square brackets do rows stand?
    first: the first dimension is permuted, which in a batch is not the positions
        Without a batch, the first dimension holds the rows. With one it counts the sequences. Count the
        dimension from the back.
    second: the second dimension is permuted, which without a batch holds the features
        In a batch the second dimension holds the positions, without one it holds the features. Which
        dimension is it both times, counted from the back?
    both: rows and columns are both permuted
        A table that compares positions with positions, like a mask, has positions in rows and in columns. A
        sequence has them in its rows only.
    """,
)


def _reordered(x: Tensor, permutation: Tensor, order: str, dimension: str) -> Tensor:
    """Rows in another order, with choices of `ORDER` and `DIMENSION`."""
    length = len(permutation)
    taken = {
        "inverse": permutation.argsort(),
        "backwards": permutation.flip(0),
        "from one": permutation - 1,
        "ignored": torch.arange(length),
        "reversal": torch.arange(length).flip(0),
        "complement": length - 1 - permutation,
    }.get(order, permutation)
    if order in ("in turn", "overwritten"):
        rows = list(range(length))
        for i, j in enumerate(permutation.tolist()):
            rows[i], rows[j] = rows[j], rows[i] if order == "in turn" else rows[j]
        taken = torch.tensor(rows)
    match dimension:
        case "features":
            return x[..., taken]
        case "first":
            return x[taken]
        case "second":
            return x[:, taken]
        case "both":
            return x[..., taken, :][..., taken]
    return x[..., taken, :]


# ---------------------------------------------------------------------------------------
# Permute the rows
# ---------------------------------------------------------------------------------------


def _permute_rows_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)
    return [
        Case({"x": normal(5, 3), "permutation": order(5)}),
        Case({"x": normal(4, 4), "permutation": order(4)}, "as many features as positions"),
        Case({"x": normal(2, 6, 3), "permutation": order(6)}, "a batch"),
        Case({"x": normal(5, 5, 5), "permutation": order(5)}, "a batch, all sizes the same"),
        Case({"x": normal(1, 4, 2), "permutation": order(4)}, "a batch of one"),
        Case(
            {"x": normal(7, 2, dtype=torch.float64), "permutation": order(7)},
            "double precision, not contiguous",
            contiguous=False,
        ),
    ]


def _rows_of(x: Tensor) -> list[tuple[float, ...]]:
    return sorted(map(tuple, x.tolist()))


def _keeps_rows(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    names = list(inputs.values())
    lost = set(_rows_of(names[0])) - set(_rows_of(value))
    return f"row {[round(n, 4) for n in min(lost)]} is not in yours" if lost else None


def _first_row(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    place = int(inputs["permutation"][0])
    words = f"yours begins with {{yours}} at {{place}}, and row {place} of x has {{expected}} there"
    return laws.is_not(value[0], inputs["x"][place], words)


def _unchanged(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(value, next(iter(inputs.values())))


permute_rows = Task(
    "permute_rows",
    permutation.permute,
    {"x": torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]]), "permutation": AROUND},
    _permute_rows_cases,
    laws=[
        Law(
            "the identity, 0, 1, 2, ..., changes nothing",
            PERMUTING_ROWS,
            lambda normal: {"x": normal(4, 3), "permutation": torch.arange(4)},
            _unchanged,
        ),
        Law(
            "every row of x is in the result, in one piece",
            PERMUTING_ROWS,
            lambda normal: {"x": normal(4, 3), "permutation": torch.tensor([2, 0, 3, 1])},
            _keeps_rows,
        ),
        Law(
            "the first row of the result is row permutation[0] of x",
            PERMUTING_ROWS,
            lambda normal: {"x": normal(4, 3), "permutation": torch.tensor([2, 0, 3, 1])},
            _first_row,
        ),
    ],
    exact_dtype=True,
)


@permute_rows.made_of(order=ORDER, dimension=DIMENSION)
def any_permuted(x, permutation, *, order="", dimension="rows"):
    return _reordered(x, permutation, order, dimension)


# ---------------------------------------------------------------------------------------
# Undo a permutation
# ---------------------------------------------------------------------------------------


def _undo(x: Tensor, order: Tensor) -> Tensor:
    return permutation.permute(x, order.argsort())


def _unshuffled_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)
    return [
        Case({"permuted": normal(5, 3), "permutation": order(5)}),
        Case({"permuted": normal(4, 4), "permutation": order(4)}, "as many features as positions"),
        Case({"permuted": normal(2, 6, 3), "permutation": order(6)}, "a batch"),
        Case({"permuted": normal(5, 5, 5), "permutation": order(5)}, "a batch, all sizes the same"),
        Case({"permuted": normal(1, 1), "permutation": torch.tensor([0])}, "a single position"),
    ]


def _first_is_back(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    place = int(inputs["permutation"][0])
    words = f"row {place} of yours has {{yours}} at {{place}}, and row 0 of what was given {{expected}}"
    return laws.is_not(value[place], inputs["permuted"][0], words)


UNDO_ORDER = {
    "again": Wrong(
        "the permutation is applied a second time",
        """Applying a permutation twice gives the old order only if it exchanges pairs. Where did row 0 of
        the old sequence go? You are looking for the place i with permutation[i] = 0.""",
        UNDOING,
    ),
    **{name: Wrong(wrong.label, wrong.hint, UNDOING) for name, wrong in ORDER.items() if name != "inverse"},
    "backwards": Wrong(
        "the order is read backwards",
        """The same list from its end is another permutation, not the inverse one. The inverse says for each
        old position where it stands now.""",
        UNDOING,
    ),
}

unshuffled = Task(
    "unshuffled",
    _undo,
    {"permuted": torch.tensor([[2.0, 20.0], [3.0, 30.0], [1.0, 10.0]]), "permutation": AROUND},
    _unshuffled_cases,
    laws=[
        Law(
            "where the permutation is the identity, 0, 1, 2, ..., nothing has to be undone",
            UNDOING,
            lambda normal: {"permuted": normal(4, 3), "permutation": torch.arange(4)},
            _unchanged,
        ),
        Law(
            "every row that was given is in the result, in one piece",
            UNDOING,
            lambda normal: {"permuted": normal(4, 3), "permutation": torch.tensor([2, 0, 3, 1])},
            _keeps_rows,
        ),
        Law(
            "row 0 of what was given goes back to place permutation[0]",
            UNDOING,
            lambda normal: {"permuted": normal(4, 3), "permutation": torch.tensor([2, 0, 3, 1])},
            _first_is_back,
        ),
    ],
    builds_on=("permute_rows",),
    exact_dtype=True,
)


@unshuffled.made_of(order=UNDO_ORDER, dimension=DIMENSION)
def any_unshuffled(permuted, permutation, *, order="", dimension="rows"):
    if order in ("in turn", "overwritten"):
        return _reordered(permuted, permutation, order, dimension)
    inverse = permutation.argsort()
    turned = {
        "again": permutation,
        "backwards": permutation.flip(0),
        "from one": inverse - 1,
        "complement": len(permutation) - 1 - permutation,
    }.get(order, inverse)
    return _reordered(permuted, turned, order if order in ("ignored", "reversal") else "", dimension)


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
# A mask for permuted positions
# ---------------------------------------------------------------------------------------


def _permuted_mask(mask: Tensor, query_order: Tensor, key_order: Tensor) -> Tensor:
    return permutation.permute(permutation.permute(mask, query_order), key_order, dim=-1)


def _permuted_mask_cases(seed: int) -> list[Case]:
    normal, order = normal_source(seed), _order_source(seed)

    def case(mask: Tensor, note: str, same: bool = False) -> Case:
        query_order, key_order = order(mask.shape[-2]), order(mask.shape[-1])
        inputs = {"mask": mask, "query_permutation": query_order, "key_permutation": key_order}
        return Case(inputs | ({"key_permutation": query_order.clone()} if same else {}), note)

    return [
        case(masking.causal_mask(5), "causal self-attention, one permutation for both", same=True),
        case(normal(3, 5) > 0, "more keys than queries"),
        case(normal(6, 4) > 0, "more queries than keys"),
        case(normal(5, 5) > 0, "as many queries as keys, two permutations"),
        case(normal(2, 4, 4) > 0, "a mask for each sequence of a batch"),
        case(normal(1, 3, 4) > 0, "a batch of one"),
    ]


def _mask_law(normal: Normal, query: list[int], key: list[int]) -> dict[str, Tensor]:
    return {
        "mask": normal(3, 4) > 0,
        "query_permutation": torch.tensor(query),
        "key_permutation": torch.tensor(key),
    }


def _counts_rows(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    before, after = inputs["mask"].sum().item(), value.sum().item()
    return f"the mask has {before}, and yours {after}" if before != after else None


def _same_mask(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    wrong = (value != inputs["mask"]).nonzero()
    return f"yours is another one at {wrong[0].tolist()}" if len(wrong) else None


def _follows(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    i, j = int(inputs["query_permutation"][0]), int(inputs["key_permutation"][0])
    expected, yours = bool(inputs["mask"][i, j]), bool(value[0, 0])
    return (
        None
        if expected == yours
        else f"yours has {yours} there, and entry [{i}, {j}] of the mask is {expected}"
    )


permuted_mask = Task(
    "permuted_mask",
    _permuted_mask,
    {
        "mask": torch.tensor(
            [[True, True, False, False], [True, False, False, False], [False, False, True, True]]
        ),
        "query_permutation": AROUND,
        "key_permutation": torch.tensor([1, 3, 0, 2]),
    },
    _permuted_mask_cases,
    laws=[
        Law(
            "where both permutations are the identity, the mask stays as it is",
            MASKS_MOVE,
            lambda normal: _mask_law(normal, [0, 1, 2], [0, 1, 2, 3]),
            _same_mask,
        ),
        Law(
            "there are as many True as before",
            MASKS_MOVE,
            lambda normal: _mask_law(normal, [1, 2, 0], [1, 3, 0, 2]),
            _counts_rows,
        ),
        Law(
            "the first query now may attend to the first key if query_permutation[0] might attend to "
            "key_permutation[0]",
            MASKS_MOVE,
            lambda normal: _mask_law(normal, [1, 2, 0], [1, 3, 0, 2]),
            _follows,
        ),
    ],
    exact_dtype=True,
    builds_on=("permute_rows",),
)


def _side(what: str, whose: str) -> dict[str, Wrong]:
    """What can happen to the rows or to the columns of the mask."""
    return {
        "unmoved": Wrong(
            f"the {what} of the mask are not permuted",
            f"""Each of the {what} speaks of one of the {whose}, and these have moved. Without theirs, they
            use
            the permissions of whoever stood there before.""",
            MASKS_MOVE,
        ),
        "inverse": Wrong(
            f"the {what} are permuted by the inverse",
            """Position i of the new order is position sigma(i) of the old one, and wants the permissions that
            this one had. So the mask is permuted as its positions are, not back.""",
            MASKS_MOVE,
        ),
    }


@permuted_mask.made_of(
    rows={
        **_side("rows", "queries"),
        "keys' order": Wrong(
            "the keys' permutation is used for the queries, too",
            """In self-attention the two are the same. Here each side has an order of its own.""",
            MASKS_MOVE,
        ),
    },
    columns={
        **_side("columns", "keys"),
        "queries' order": Wrong(
            "the queries' permutation is used for the keys, too",
            """In self-attention the two are the same. Here the keys have an order of their own, and there
            may be
            more of them than queries, or fewer.""",
            MASKS_MOVE,
        ),
    },
    form=wrongs(
        MASKS_MOVE,
        """
        inverted: True and False are exchanged
            Only the places change. Who might attend before may attend afterwards.
        numbers: the mask comes back as numbers
            A product with a permutation matrix makes numbers of True and False. The mask is to stay one: of
            dtype bool.
        """,
    ),
)
def any_permuted_mask(mask, query_permutation, key_permutation, *, rows="", columns="", form=""):
    def order(how, own, other):
        places = {"inverse": own.argsort(), "unmoved": torch.arange(len(own))}
        return places.get(how, other if how.endswith("order") else own)

    result = mask[..., order(rows, query_permutation, key_permutation), :]
    result = result[..., order(columns, key_permutation, query_permutation)]
    return ~result if form == "inverted" else result.float() if form == "numbers" else result


@permuted_mask.mistake(
    "the first two dimensions are permuted, which in a batch are not queries and keys",
    hint="""With a batch in front, queries and keys are the last two dimensions. Count from the back.""",
    read=MASKS_MOVE,
)
def permuted_mask_first_dimensions(mask, query_permutation, key_permutation):
    return mask[query_permutation][:, key_permutation]


@permuted_mask.mistake(
    "the two orders are read in pairs: the first of one with the first of the other",
    hint="""Two lists in one pair of square brackets are read together: first entries, second entries, and so
    on, which gives one number for each. Wanted is every row with every column. Take the rows first, and
    the columns of what comes out.""",
    read=MASKS_MOVE,
)
def permuted_mask_in_pairs(mask, query_permutation, key_permutation):
    return mask[..., query_permutation, key_permutation]


# ---------------------------------------------------------------------------------------
# The two testers, and which layer is which
# ---------------------------------------------------------------------------------------

_LENGTH, _DIM = 7, 9  # more features than positions, so that no pooled output passes for a sequence

# A layer, and what it is: equivariant, invariant, both or neither.
Layers = dict[str, tuple[Callable[[Tensor], Tensor], str]]


def _layers(seed: int, x: Tensor) -> Layers:
    """Layers whose numbers come from the seed: whoever knows the steps does not know what they do.

    Some notice that they get something else than `x`, and show it in a part of their output only: in all
    rows but one, in one feature, in a direction, a little.
    """
    normal, order = normal_source(seed), _order_source(seed)

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
    shift: only a shift is tried
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
    }.get(orders) or [torch.randperm(length, generator=generator) for _ in range(4)]
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
)


@is_equivariant.made_of(
    orders=ORDERS,
    side=wrongs(
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
    ),
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
    return _answered(_tried(layer, x, orders, side, compared, tolerance, rows), answer)


is_invariant = Task(
    "is_invariant",
    permutation.is_invariant,
    _LAYER_PENCIL,
    _layer_cases(),
    way=AskAboutLayer(),
)


@is_invariant.made_of(
    orders={name: ORDERS[name] for name in ("identity", "one", "features")},
    side=wrongs(
        DEFINITIONS,
        """
        forth: it is equivariance that is tested
            The output of an invariant layer does not move with the input. It stays, whatever its shape:
            leave it as it comes.
        """,
    ),
    compared=COMPARED,
    tolerance=TOLERANCES,
    answer=ANSWER,
)
def any_invariant(
    layer, x, *, orders="many", side="unmoved", compared="all", tolerance="right", answer="right"
):
    return _answered(_tried(layer, x, orders, side, compared, tolerance, "checked"), answer)


@is_invariant.mistake(
    "it is equivariance that is tested, whatever the number of rows",
    hint="""The output of an invariant layer does not move with the input. It stays, whatever its shape: leave
    it as it comes.""",
    read=DEFINITIONS,
)
def invariant_or_rather_equivariant(layer, x):
    return _tried(layer, x, "many", "forth", "all", "right", "unchecked")


def _symmetry(layer: Callable[[Tensor], Tensor], x: Tensor) -> str:
    equivariant = bool(permutation.is_equivariant(layer, x))
    invariant = bool(permutation.is_invariant(layer, x))
    return _word(equivariant, invariant, "")


def _word(equivariant: bool, invariant: bool, word: str) -> str:
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
    builds_on=("is_equivariant", "is_invariant"),
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
        """,
    ),
    rows=ROWS,
)
def any_symmetry(layer, x, *, orders="many", compared="all", tolerance="right", word="", rows="checked"):
    equivariant = _tried(layer, x, orders, "forth", compared, tolerance, rows)
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
    ]


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
