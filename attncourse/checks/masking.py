"""Tasks of the unit ``masking``: which query may see which key, and what an empty row gives."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import attention_operator, masking
from attncourse.checks import laws
from attncourse.checks.choices import AXIS, LOW, SCALE, SIMILARITY, compared, only, scaled
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.probe.masking import AskAboutLayer, WithGradients
from attncourse.probe.program import trace

TWO_WRONG = "masking#masking-two-wrong"
THREE_WAYS = "masking#masking-three-ways"
BILLION = "masking#minus-a-billion"
POLARITIES = "masking#two-polarities"
DIAGONAL = "masking#diagonal"
RECTANGULAR = "masking#rectangular-masks"
PATTERNS = "masking#masking-patterns"
PADDING = "masking#padding-hides-keys"
COMBINING = "masking#combining-masks"
EMPTY_ROWS = "masking#empty-rows"
NAN_GRADIENT = "masking#nan-in-the-gradient"
INFLUENCE = "masking#influence-exact-zeros"
WHICH_ARE_CAUSAL = "masking#which-are-causal"


def _random_mask(normal: Any, *shape: int) -> Tensor:
    """Each entry True with a chance of 60 per cent, and at least one in every row, not always the same."""
    mask = normal(*shape) > -0.25
    return mask | torch.nn.functional.one_hot(normal(*shape).argmax(-1), shape[-1]).bool()


def _attention_case(
    normal: Any,
    batch: tuple[int, ...],
    queries: int,
    keys: int,
    mask: Tensor,
    note: str,
    dtype: torch.dtype = torch.float32,
    value_dim: int = 3,
    key_dim: int = 4,
    **how: Any,
) -> Case:
    inputs = {
        "query": normal(*batch, queries, key_dim, dtype=dtype),
        "key": normal(*batch, keys, key_dim, dtype=dtype),
        "value": normal(*batch, keys, value_dim, dtype=dtype),
        "mask": mask,
    }
    return Case(inputs, note, **how)


# ---------------------------------------------------------------------------------------
# What all attention with a mask can get wrong
# ---------------------------------------------------------------------------------------

HIDDEN = LOW | wrongs(
    THREE_WAYS,
    """
    times mask: the forbidden scores are set to 0, and still get weight
        A score of 0 is a score like any other: it can even be the best of its row. What weight does exp(0)
        lead to? Which score leads to a weight of exactly 0? (masking#masking-two-wrong)
    weights times mask: the weights are set to 0 after the softargmax, and what is left does not sum to 1
        Nothing forbidden is averaged any more, but each row has lost the weight that the forbidden keys had
        taken. Sum the rows of your weights. Either the forbidden keys must not take part in the sum, or the
        sum must be made good. (masking#masking-two-wrong)
    zero times infinity: infinity is multiplied by zero
        You add minus infinity times something that is 1 where a key is forbidden and 0 elsewhere. What is 0
        times infinity? Print it. Choose between two numbers instead of multiplying.
        (masking#two-polarities)
    plus infinity: the forbidden scores are set to plus infinity
        exp of plus infinity is infinite: the forbidden key would take everything. Which end is wanted?
    renormalised: the weights are renormalised too late: a forbidden key with a huge score has taken all
        On paper it is the same to divide again afterwards. In numbers, what a forbidden key with a far
        larger score leaves for the others may be exactly 0, and 0/0 is NaN. Hide it before the softargmax.
    values: the values of forbidden keys are set to 0, but the keys keep their weight
        Then a forbidden key hands over nothing, and yet it has taken its share of the weight, so the others
        do not sum to 1. (masking#masking-two-wrong)
    never: the mask is not used
        Every key is seen. Where in the equation does the mask act? (`masked_fill` and `where` leave a tensor
        as it is, and give a new one.)
    """,
)

POLARITY = wrongs(
    POLARITIES,
    """
    inverted: the polarity is inverted: the allowed keys are hidden
        Here True means "may attend". `masked_fill` fills where its argument is True, and `where` keeps
        there. Which entries are to be filled?
    transposed: the mask is transposed: it hides queries instead of keys
        Row q of the mask belongs to query q, as row q of the scores does. (masking#rectangular-masks)
    """,
)


def masked_weights(scores: Tensor, mask: Tensor, hidden: str, polarity: str, axis: str = "keys") -> Tensor:
    """The weights under a mask, with choices of `HIDDEN` and `POLARITY`; an empty row is NaN."""
    if polarity == "inverted":
        mask = ~mask
    if polarity == "transposed":
        mask = mask.mT
    dim = {"queries": -2, "dim 1": 1, "dim 0": 0}.get(axis, -1)
    match hidden:
        case "times mask":
            scores = scores * mask
        case "weights times mask":
            return torch.softmax(scores, dim) * mask
        case "renormalised":
            weights = torch.softmax(scores, dim) * mask
            return weights / weights.sum(dim, keepdim=True)
        case "low":
            scores = scores.masked_fill(~mask, -100.0)
        case "zero times infinity":
            scores = scores + (1 - mask.to(scores.dtype)) * -math.inf
        case "plus infinity":
            scores = scores.masked_fill(~mask, math.inf)
        case "never" | "values":
            pass
        case _:
            scores = scores.masked_fill(~mask, -math.inf)
    return torch.softmax(scores, dim)


def _draw(*batch: int, dtype: torch.dtype = torch.float32) -> laws.Draw:
    return lambda normal: _attention_case(normal, batch, 3, 4, _random_mask(normal, 3, 4), "", dtype).inputs


def _only_one(normal: Normal) -> dict[str, Tensor]:
    drawn = _draw()(normal)
    return drawn | {"mask": torch.eye(3, 4).bool()}


def _output(value: Any) -> Tensor:
    """Of an answer with gradients, the output."""
    return value["output"] if isinstance(value, dict) else value


def _value_of_the_only(inputs: dict[str, Tensor], value: Any) -> str | None:
    words = "yours gives {yours} at {place}, and the value of that key is {expected} there"
    return laws.is_not(_output(value), inputs["value"][:3], words)


def _forbidden_changed(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _draw()(normal)
    drawn["mask"][:, 1] = False
    drawn["mask"][:, 0] = True
    drawn["query"][:, 0] = 10
    other = {name: drawn[name].clone() for name in ("key", "value")}
    other["key"][1, 0] = 80  # so that it would take all of every query
    other["value"][1] += 3
    return [drawn, drawn | other]


def _unmoved(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    words = "at {place} yours gives {expected} before the forbidden key and value were changed, {yours} after"
    return laws.is_not(_output(values[1]), _output(values[0]), words)


def _as_without(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _draw()(normal)
    drawn["mask"] = torch.tensor([True, True, True, False]).expand(3, 4).clone()
    fewer = {name: drawn[name][:3] for name in ("key", "value")}
    return [drawn, drawn | fewer | {"mask": torch.ones(3, 3, dtype=torch.bool)}]


def _same_as_without(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    words = "at {place} yours gives {expected} with the hidden key and {yours} without it"
    return laws.is_not(_output(values[1]), _output(values[0]), words)


def _ones(normal: Normal) -> dict[str, Tensor]:
    drawn = _draw()(normal)
    return drawn | {"value": torch.ones_like(drawn["value"])}


def _ones_again(inputs: dict[str, Tensor], value: Any) -> str | None:
    return laws.is_not(_output(value), torch.ones_like(_output(value)), "yours gives {yours} at {place}")


def _twice(normal: Normal) -> list[dict[str, Tensor]]:
    drawn = _draw()(normal)
    twice = {name: torch.cat([drawn[name]] * 2, -1) for name in ("query", "key")}
    return [drawn | twice, drawn | {"query": drawn["query"] * 2**0.5}]


def _twice_is_root(inputs: list[dict[str, Tensor]], values: list[Any]) -> str | None:
    words = "at {place} yours gives {yours} for the first and {expected} for the second"
    return laws.is_not(_output(values[0]), _output(values[1]), words)


MASK_LAWS = [
    Law(
        "a query that may see one key only gets the value of that key",
        THREE_WAYS,
        _only_one,
        _value_of_the_only,
    ),
    Law(
        "values that are all ones come back as ones, as the weights of a query sum to 1",
        TWO_WRONG,
        _ones,
        _ones_again,
    ),
    Law("what a forbidden key and its value are changes nothing", THREE_WAYS, _forbidden_changed, _unmoved),
    Law("a key that nobody may see could as well not be there", THREE_WAYS, _as_without, _same_as_without),
    Law(laws.FEATURES_TWICE, "attention_operator#why-the-scale", _twice, _twice_is_root),
]

PENCIL = {
    "query": torch.tensor([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0]]),
    "key": torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 2.0, 0.0, 0.0]]),
    "value": torch.tensor([[10.0, 0.0], [20.0, 10.0], [0.0, 30.0]]),
    "mask": torch.tensor([[True, True, False], [False, True, False]]),
}

# ---------------------------------------------------------------------------------------
# Find the leak
# ---------------------------------------------------------------------------------------


def _tempting(normal: Normal) -> Case:
    tempting = _attention_case(
        normal, (), 3, 5, _random_mask(normal, 3, 5), "a forbidden key with a huge score", torch.float64
    )
    tempting.inputs["mask"][:, 2] = False
    tempting.inputs["mask"][:, 0] = True
    tempting.inputs["query"][:, 0] = 40
    tempting.inputs["key"][2, 0] = 80
    return tempting


def _padding(normal: Normal, batch: int, keys: int) -> Tensor:
    """True for the last keys of each sequence: at least one, and never all."""
    filled_up = 1 + (100 * normal(batch).abs()).long() % (keys - 1)
    return torch.arange(keys) >= keys - filled_up[:, None]


def _padded_case(
    normal: Normal,
    batch: int,
    queries: int,
    keys: int,
    note: str,
    dtype: torch.dtype = torch.float32,
    key_dim: int = 4,
) -> Case:
    inputs = {
        "query": normal(batch, queries, key_dim, dtype=dtype),
        "key": normal(batch, keys, key_dim, dtype=dtype),
        "value": normal(batch, keys, 3, dtype=dtype),
        "padding": _padding(normal, batch, keys),
    }
    return Case(inputs, note)


def _padded(query: Tensor, key: Tensor, value: Tensor, padding: Tensor) -> Tensor:
    return attention_operator.attention_weights(query, key, ~padding[:, None]) @ value


def _mended_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    tempting = _padded_case(normal, 2, 3, 5, "padding with a huge score", torch.float64)
    tempting.inputs["query"][..., 0] = 40
    tempting.inputs["key"][:, 4, 0] = 80
    low = _padded_case(normal, 2, 3, 5, "scores that are all far below zero", torch.float64)
    # Below -100, and above -128, where float32 rounds twice as much.
    low.inputs["query"][..., 0], low.inputs["key"][..., 0] = 15, -15
    none = _padded_case(normal, 2, 3, 6, "a sequence without padding")
    none.inputs["padding"][0] = False
    front = _padded_case(normal, 2, 2, 6, "padding in front")
    front.inputs["padding"] = front.inputs["padding"].flip(-1)
    return [
        _padded_case(normal, 3, 2, 5, "three sequences", key_dim=6),
        _padded_case(normal, 4, 4, 4, "as many of everything"),
        none,
        low,
        tempting,
        _padded_case(normal, 1, 3, 5, "a batch of one", key_dim=3),
        front,
    ]


def _draw_padded(normal: Normal) -> dict[str, Tensor]:
    return _padded_case(normal, 2, 3, 4, "").inputs


def _only_first(normal: Normal) -> dict[str, Tensor]:
    return _draw_padded(normal) | {"padding": (torch.arange(4) > 0).expand(2, 4).clone()}


def _value_of_the_first(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the value of that key is {expected} there"
    return laws.is_not(value, inputs["value"][:, :1].expand_as(value), words)


def _other_padding(drawn: dict[str, Tensor], normal: Normal) -> dict[str, Tensor]:
    """Something else to fill up with."""
    others = {name: 100 * normal(*drawn[name].shape) for name in ("key", "value")}
    return {
        name: torch.where(drawn["padding"][..., None], other, drawn[name]) for name, other in others.items()
    }


def _equal_queries(normal: Normal) -> dict[str, Tensor]:
    drawn = _padded_case(normal, 2, 4, 4, "").inputs
    return drawn | {"query": drawn["query"][:, :1].expand(-1, 4, -1).clone()}


def _equal_outputs(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and {expected} for the first query of that sequence"
    return laws.is_not(value, value[:, :1].expand_as(value), words)


mended_attention = Task(
    "mended_attention",
    _padded,
    {
        "query": torch.tensor([[[2.0, 0.0, 0.0, 0.0]]]),
        "key": torch.tensor([[[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]]),
        "value": torch.tensor([[[10.0, 0.0], [20.0, 10.0], [0.0, 30.0]]]),
        "padding": torch.tensor([[False, False, True]]),
    },
    _mended_attention_cases,
    laws=[
        Law(
            "if all keys but the first are padding, every query gets the value of the first",
            PADDING,
            _only_first,
            _value_of_the_first,
        ),
        laws.ones_come_back(_draw_padded, TWO_WRONG),
        laws.stays(
            "with what a sequence is filled up changes nothing", PADDING, _draw_padded, _other_padding
        ),
        Law(
            "equal queries of a sequence get equal outputs, wherever they stand",
            PADDING,
            _equal_queries,
            _equal_outputs,
        ),
        laws.features_written_twice(_draw_padded, "attention_operator#why-the-scale"),
    ],
)

_SIMILARITY = only(SIMILARITY, "cosine", "negated", "T", "t")
_SCALE = only(SCALE, "none", "dim", "two", "value dim", "num keys", "multiplied", "after")


@mended_attention.made_of(
    hidden={name: wrong for name, wrong in HIDDEN.items() if name != "values"},
    polarity={
        "inverted": Wrong(
            "the true keys are hidden, and padding is seen",
            """Here True means padding: what must not be seen. `masked_fill` fills where its argument is True.
            Which entries are to be filled?""",
            POLARITIES,
        )
    },
    shape=wrongs(
        PADDING,
        """
        in front: the padding of a sequence is taken for that of a query
            Without a dimension of size 1 for the queries, `(batch, num_keys)` is lined up with the last two
            dimensions of the scores: the batch is taken for the queries.
        """,
    ),
    similarity=_SIMILARITY,
    scale=_SCALE,
    axis=only(AXIS, "queries", "dim 0"),
    queries=wrongs(
        PADDING,
        """
        zeros: with as many queries as keys, queries at padding positions get zeros
            Padding hides keys. Queries at padding positions ask like all others; what they get, nobody looks
            at.
        nothing: with as many queries as keys, queries at padding positions see nothing, and give NaN
            Padding hides keys. Queries at padding positions ask like all others: their rows have the same
            mask as the other rows.
        mean: with as many queries as keys, queries at padding positions get the mean of all values
            Padding hides keys. Queries at padding positions ask like all others: their rows have the same
            mask as the other rows.
        """,
    ),
)
def any_mended(
    query,
    key,
    value,
    padding,
    *,
    hidden="",
    polarity="",
    shape="",
    similarity="",
    scale="root",
    axis="keys",
    queries="",
):
    mask = ~padding if shape == "in front" else ~padding[:, None]
    scores = scaled(compared(query, key, value, similarity), query, key, value, scale)
    weights = masked_weights(scores, mask, hidden, polarity, axis)
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    if queries and query.shape[1] == key.shape[1]:
        instead = {"zeros": 0.0, "nothing": math.nan, "mean": 1 / key.shape[1]}[queries]
        weights = weights.masked_fill(padding[:, :, None], instead)
    return weights @ value


# ---------------------------------------------------------------------------------------
# A causal mask
# ---------------------------------------------------------------------------------------


def _causal_mask_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole
    square, keys, queries = whole(3, 7), whole(4, 9), whole(2, 4)
    sizes = [
        (square, square, "as many queries as keys"),
        (1, keys, "one new query"),
        (queries, queries + whole(1, 4), "a few new queries"),
        (1, 1, "the first position"),
        (many := whole(20, 99), many + whole(5, 150), "many keys"),
    ]
    return [Case({"num_queries": queries, "num_keys": keys}, note) for queries, keys, note in sizes]


def _last_sees_all(inputs: dict[str, int], value: Tensor) -> str | None:
    missing = (~value[-1]).nonzero()
    return f"in yours it does not see key {int(missing[0])}" if len(missing) else None


def _diagonal_is_seen(inputs: dict[str, int], value: Tensor) -> str | None:
    hidden = (~value.diagonal()).nonzero()
    return f"in yours query {int(hidden[0])} does not" if len(hidden) else None


def _no_future(inputs: dict[str, int], value: Tensor) -> str | None:
    ahead = value.triu(1).nonzero()
    if not len(ahead):
        return None
    query, key = ahead[0].tolist()
    return f"in yours query {query} sees key {key}"


def _one_more_each(inputs: dict[str, int], value: Tensor) -> str | None:
    seen = value.sum(-1).tolist()
    right = seen == list(range(seen[0], seen[0] + len(seen)))
    return None if right else f"in yours they see {', '.join(map(str, seen))} keys"


def _square(normal: Normal) -> dict[str, int]:
    return {"num_queries": 4, "num_keys": 4}


def _rectangle(normal: Normal) -> dict[str, int]:
    return {"num_queries": 2, "num_keys": 5}


CAUSAL_LAWS = [
    Law("with as many queries as keys, a position may see itself", DIAGONAL, _square, _diagonal_is_seen),
    Law("with as many queries as keys, no query sees a key that comes later", PATTERNS, _square, _no_future),
    Law(
        "the last query may see all the keys, however many there are", RECTANGULAR, _rectangle, _last_sees_all
    ),
    Law("each query sees one key more than the one before it", PATTERNS, _rectangle, _one_more_each),
]

TRIANGLE = wrongs(
    PATTERNS,
    """
    strict: the diagonal is missing: a position may not see itself
        A causal mask has True below *and on* the diagonal. What would the first position see otherwise?
        (masking#diagonal)
    ahead: each position sees one position too far: the next one
        The position that is to be predicted would be seen. Count the True of the first row.
        (masking#diagonal)
    transposed: the triangle is transposed: each position sees the future instead of the past
        Rows are queries. The first query may see the first key only, so most of the first row is False.
    everything: every query may see every key
        Causal means that nobody sees the future. Which entries are False?
    diagonal only: each position sees itself and nothing else
        The past may be seen, too: everything up to the position itself.
    """,
)

ALIGNED = wrongs(
    RECTANGULAR,
    """
    start: queries and keys are aligned at the start instead of at the end
        The queries are the last positions of the sequence. The last of them sees everything. How far must
        the triangle be moved?
    wrong sign: the offset between queries and keys has the wrong sign
        With more keys than queries, the first query already sees several keys. Does your offset open more
        of the row, or less?
    """,
)

MASK_FORM = wrongs(
    POLARITIES,
    """
    inverted: the polarity is inverted: True stands where a query may not attend
        Here True means "may attend", as in PyTorch's `scaled_dot_product_attention`.
    additive: 0 and minus infinity instead of True and False
        That is a mask to add. Asked for is one of True and False: of dtype bool.
    numbers: the mask is made of numbers instead of True and False
        1 and 0 look like True and False, but `~` and `masked_fill` want a mask of dtype bool.
    """,
)


def triangle(num_queries: int, num_keys: int, kind: str, aligned: str) -> Tensor:
    """A causal mask, with choices of `TRIANGLE` and `ALIGNED`."""
    offset = {"start": 0, "wrong sign": num_queries - num_keys}.get(aligned, num_keys - num_queries)
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    match kind:
        case "strict":
            return ones.tril(offset - 1)
        case "ahead":
            return ones.tril(offset + 1)
        case "transposed":
            return ones.triu(offset)
        case "future":
            return ones.triu(offset + 1)
        case "everything":
            return ones
        case "diagonal only":
            return ones.tril(offset).triu(offset)
    return ones.tril(offset)


def in_form(mask: Tensor, form: str) -> Tensor:
    """A mask, with one of the choices of `MASK_FORM`."""
    if form == "additive":
        return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)
    return {"inverted": ~mask, "numbers": mask.float()}.get(form, mask)


causal_mask = Task(
    "causal_mask",
    masking.causal_mask,
    {"num_queries": 3, "num_keys": 4},
    _causal_mask_cases,
    laws=CAUSAL_LAWS,
    exact_dtype=True,
)


@causal_mask.made_of(kind=TRIANGLE, aligned=ALIGNED, form=MASK_FORM)
def any_causal(num_queries, num_keys, *, kind="causal", aligned="end", form="bool"):
    return in_form(triangle(num_queries, num_keys, kind, aligned), form)


@causal_mask.mistake(
    "keys stand in rows and queries in columns",
    hint="""The mask has the shape of the scores: a row for each query, and a column for each key.""",
    read=PATTERNS,
)
def causal_keys_in_rows(num_queries, num_keys):
    return torch.arange(num_keys)[:, None] <= torch.arange(num_queries) + num_keys - num_queries


# ---------------------------------------------------------------------------------------
# A local mask
# ---------------------------------------------------------------------------------------


def _local_mask(num_queries: int, num_keys: int, radius: int) -> Tensor:
    return masking.local_mask(num_queries, num_keys, radius=radius)


def _local_mask_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole
    square, queries = whole(6, 9), whole(2, 4)
    settings = [
        (square, square, 2, "as many queries as keys"),
        (square, square, 0, "a radius of 0"),
        (queries, queries + whole(3, 5), 1, "fewer queries than keys"),
        (1, whole(6, 9), 3, "one new query"),
        (many := whole(20, 99), many + whole(5, 150), whole(4, 30), "many keys"),
    ]
    return [
        Case({"num_queries": queries, "num_keys": keys, "radius": radius}, note)
        for queries, keys, radius, note in settings
    ]


def _counts_window(inputs: dict[str, int], value: Tensor) -> str | None:
    seen = int(value[4].sum())
    return None if seen == 5 else f"in yours query 4 of 9 sees {seen}"


def _own_position(inputs: dict[str, int], value: Tensor) -> str | None:
    return _diagonal_is_seen(inputs, value)


def _is_symmetric(inputs: dict[str, int], value: Tensor) -> str | None:
    wrong = (value != value.mT).nonzero()
    if not len(wrong):
        return None
    query, key = wrong[0].tolist()
    return f"in yours {query} and {key} disagree"


def _last_sees_last(inputs: dict[str, int], value: Tensor) -> str | None:
    seen = value[-1].nonzero().flatten().tolist()
    return None if seen == [3, 4] else f"in yours, with 5 keys and a radius of 1, it sees {seen}"


def _window(num_queries: int, num_keys: int, radius: int) -> Callable[[Normal], dict[str, int]]:
    return lambda normal: {"num_queries": num_queries, "num_keys": num_keys, "radius": radius}


local_mask = Task(
    "local_mask",
    _local_mask,
    {"num_queries": 3, "num_keys": 5, "radius": 1},
    _local_mask_cases,
    laws=[
        Law(
            "with as many queries as keys, a position may see itself",
            PATTERNS,
            _window(4, 4, 1),
            _own_position,
        ),
        Law(
            "with as many queries as keys, two positions see each other or neither does",
            PATTERNS,
            _window(6, 6, 2),
            _is_symmetric,
        ),
        Law(
            "a query in the middle sees twice the radius and one more: itself",
            PATTERNS,
            _window(9, 9, 2),
            _counts_window,
        ),
        Law("the last query stands at the last key", RECTANGULAR, _window(2, 5, 1), _last_sees_last),
    ],
    exact_dtype=True,
)


@local_mask.made_of(
    sides=wrongs(
        PATTERNS,
        """
        past: the window has only one side: the past
            A distance is the same to both sides. Which keys lie at a distance of at most the radius?
        future: the window has only one side: the future
            A distance is the same to both sides. Which keys lie at a distance of at most the radius?
        without abs: the distance is not made positive, so that one side is never cut off
            A difference that is far below zero is smaller than any radius. What makes a difference a
            distance?
        other without abs: the distance is not made positive, so that the past is never cut off
            A difference that is far below zero is smaller than any radius. What makes a difference a
            distance?
        either: one of two conditions is enough, so that every position is seen
            A key is near if it is not too far to the left and not too far to the right. Which of the two
            may fail?
        without itself: a query does not see its own position
            Its distance to itself is 0, which is not more than any radius.
        """,
    ),
    edge=wrongs(
        PATTERNS,
        """
        less: positions at a distance of exactly the radius are left out
            With a radius of 0 a query sees itself, at a distance of 0. So is the edge inside, or outside?
        width: the radius is taken for the width of the whole window
            A radius reaches to each side. How wide is a window of radius 2?
        one more: the window reaches one position too far
            A key at a distance of radius + 1 is not to be seen. With which sign do you compare?
        short: the window ends one position too early on the right
            A slice does not include its end. Which position is the last that may be seen?
        """,
    ),
    aligned={
        "start": Wrong(
            ALIGNED["start"].label,
            """The queries are the last positions of the sequence: the last query stands at the last key. At
            which key does query 0 stand?""",
            RECTANGULAR,
        ),
        "wrong sign": Wrong(
            ALIGNED["wrong sign"].label,
            """With more keys than queries, query 0 stands at a later key than key 0. Does your offset move it
            there, or away?""",
            RECTANGULAR,
        ),
        "one further": Wrong(
            "each query is taken to stand one position further on than it does",
            """With as many queries as keys, query 0 stands at position 0. Where does it stand in yours?""",
            RECTANGULAR,
        ),
    },
    form=MASK_FORM,
)
def any_local(num_queries, num_keys, radius, *, sides="both", edge="", aligned="end", form="bool"):
    offset = {"start": 0, "wrong sign": num_queries - num_keys, "one further": num_keys - num_queries + 1}
    own = torch.arange(num_queries)[:, None] + offset.get(aligned, num_keys - num_queries)
    ahead = torch.arange(num_keys) - own
    reach = {"width": radius // 2, "one more": radius + 1, "less": radius - 1}.get(edge, radius)
    right = reach - 1 if edge == "short" else reach
    to_left, to_right = ahead >= -reach, ahead <= right
    mask = {
        "past": to_left & (ahead <= 0),
        "future": to_right & (ahead >= 0),
        "without abs": to_left,
        "other without abs": to_right,
        "either": to_left | to_right,
        "without itself": to_left & to_right & (ahead != 0),
    }.get(sides, to_left & to_right)
    return in_form(mask, form)


@local_mask.mistake(
    "a slice begins at a negative number, which counts from the end",
    hint="""`row[-1:3]` begins at the last position, not before the first. Cut off at 0.""",
    read=PATTERNS,
)
def local_negative_slice(num_queries, num_keys, radius):
    mask = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    for i in range(num_queries):
        own = i + num_keys - num_queries
        mask[i, own - radius : own + radius + 1] = True
    return mask


# ---------------------------------------------------------------------------------------
# Padding
# ---------------------------------------------------------------------------------------


def _lengths(whole: Callable[[int, int], int], batch: int, most: int) -> Tensor:
    """Lengths from 1 to `most`; the last is neither."""
    lengths = [whole(1, most) for _ in range(batch - 1)]
    return torch.tensor([*lengths, whole(2, most - 1)])


def _padding_mask_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole
    return [
        Case({"lengths": _lengths(whole, 3, 5), "num_keys": 5}),
        Case({"lengths": _lengths(whole, 4, 4), "num_keys": 4}, "as many sequences as keys"),
        Case({"lengths": torch.tensor([6, 0, whole(2, 5)]), "num_keys": 6}, "a full and an empty sequence"),
        Case({"lengths": torch.tensor([whole(1, 3)]), "num_keys": whole(4, 8)}, "a single sequence"),
    ]


def _counts_lengths(inputs: dict[str, Any], value: Tensor) -> str | None:
    counted, lengths = value.sum(-1)[:, 0].tolist(), inputs["lengths"].tolist()
    return None if counted == lengths else f"the lengths are {lengths}, and yours has {counted}"


def _first_key_seen(inputs: dict[str, Any], value: Tensor) -> str | None:
    return None if value[:, :, 0].all() else "in yours a sequence does not see its first position"


PADDED = wrongs(
    PADDING,
    """
    one more: one position too many is taken for true
        Positions are counted from 0, so those of a sequence of length 3 are 0, 1 and 2.
    one less: one position too few is taken for true
        Positions are counted from 0, so those of a sequence of length 3 are 0, 1 and 2.
    at start: the padding is taken to stand at the start
        The sequences begin at position 0, and the padding fills up what is left behind them.
    """,
)

padding_mask = Task(
    "padding_mask",
    masking.padding_mask,
    {"lengths": torch.tensor([2, 3]), "num_keys": 4},
    _padding_mask_cases,
    laws=[
        Law(
            "a sequence has as many True as it is long",
            PADDING,
            lambda normal: {"lengths": torch.tensor([3, 0, 4]), "num_keys": 4},
            _counts_lengths,
        ),
        Law(
            "of a sequence that is not empty the first position may be seen",
            PADDING,
            lambda normal: {"lengths": torch.tensor([1, 2]), "num_keys": 4},
            _first_key_seen,
        ),
    ],
    exact_dtype=True,
)


@padding_mask.made_of(
    padded=PADDED,
    shape=wrongs(
        PADDING,
        """
        queries: the queries are masked instead of the keys
            The rows of the mask are queries, the columns keys. Padding is hidden where it would be *seen*:
            as a key.
        no queries: the dimension of the queries is missing
            Scores of a batch have three dimensions: sequences, queries, keys. Without one for the queries,
            yours broadcasts along the wrong one. Leave room of size 1.
        in front: the dimension of size 1 stands before the batch
            In scores of a batch the first dimension counts the sequences, and each has a length of its own.
            Where do the queries stand?
        square: the dimension of the queries is as long as that of the keys
            The number of queries is not known here, and need not be: a dimension of size 1 fits any.
        """,
    ),
    form=MASK_FORM,
)
def any_padding(lengths, num_keys, *, padded="end", shape="keys", form="bool"):
    places = torch.arange(num_keys)
    true = {
        "one more": places <= lengths[:, None],
        "one less": places < lengths[:, None] - 1,
        "at start": places >= num_keys - lengths[:, None],
    }.get(padded, places < lengths[:, None])
    mask = {
        "queries": true[:, :, None],
        "no queries": true,
        "in front": true[None],
        "square": true[:, None].expand(-1, num_keys, -1),
    }.get(shape, true[:, None])
    return in_form(mask, form)


@padding_mask.mistake(
    "queries and keys are both masked",
    hint="""Only keys are hidden. A query that is padding gives an output that nobody looks at; hiding it
    as well
    makes empty rows.""",
    read=PADDING,
)
def padding_of_both(lengths, num_keys):
    true = torch.arange(num_keys) < lengths[:, None]
    return true[:, :, None] & true[:, None]


# ---------------------------------------------------------------------------------------
# Several documents in one sequence
# ---------------------------------------------------------------------------------------


def _packed_mask(document: Tensor) -> Tensor:
    same = document[..., :, None] == document[..., None, :]
    return masking.causal_mask(document.shape[-1]) & same


def _packed_mask_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")
    whole = draws.whole

    def packed(*names: int) -> list[int]:
        return [name for name in names for _ in range(whole(1, 3))]

    def cut(names: list[int], length: int) -> list[int]:
        return (names + [names[-1]] * length)[:length]

    return [
        Case({"document": torch.tensor([cut(packed(1, 2, 3), 7)])}, "a single sequence"),
        Case(
            {"document": torch.tensor([cut(packed(4, 0), 5), cut(packed(7, 0, 5), 5)])},
            "numbers in any order",
        ),
        Case({"document": torch.tensor([[6] * 4, [6, 5, 4, 3], [2, 2, 2, 8], [1, 1, 9, 9]])}, "square"),
        Case({"document": torch.tensor([cut(packed(whole(1, 4), 5, 6), 6)] * 3)}, "three the same"),
        Case(
            {"document": torch.tensor([cut(packed(*draws.randperm(20)[:8].tolist()), 12) for _ in range(3)])},
            "many sequences",
        ),
    ]


def _one_document(inputs: dict[str, Any], value: Tensor) -> str | None:
    wrong = (value[0] != torch.ones(4, 4, dtype=torch.bool).tril()).nonzero()
    return f"yours differs at {wrong[0].tolist()}" if len(wrong) else None


def _apart(inputs: dict[str, Any], value: Tensor) -> str | None:
    seen = value[0, 2:, :2].nonzero()
    if not len(seen):
        return None
    query, key = seen[0].tolist()
    return f"in yours, with documents 5, 5, 3, 3, query {query + 2} sees key {key}"


def _each_itself(inputs: dict[str, Any], value: Tensor) -> str | None:
    hidden = (~value[0].diagonal()).nonzero()
    return f"in yours query {int(hidden[0])} does not" if len(hidden) else None


def _unmoved_by_names(inputs: list[dict[str, Any]], values: list[Tensor]) -> str | None:
    wrong = (values[0] != values[1]).nonzero()
    if not len(wrong):
        return None
    _, query, key = wrong[0].tolist()
    return f"yours is not the same for 5, 5, 3, 3 and for 0, 0, 7, 7 at query {query} and key {key}"


packed_mask = Task(
    "packed_mask",
    _packed_mask,
    {"document": torch.tensor([[1, 1, 2]])},
    _packed_mask_cases,
    laws=[
        Law(
            "for a single document it is the causal mask",
            COMBINING,
            lambda normal: {"document": torch.tensor([[7, 7, 7, 7]])},
            _one_document,
        ),
        Law(
            "no query sees another document",
            COMBINING,
            lambda normal: {"document": torch.tensor([[5, 5, 3, 3]])},
            _apart,
        ),
        Law(
            "every position sees itself",
            DIAGONAL,
            lambda normal: {"document": torch.tensor([[5, 5, 3, 3]])},
            _each_itself,
        ),
        Law(
            "giving the documents other numbers changes nothing",
            COMBINING,
            lambda normal: [
                {"document": torch.tensor([numbers])} for numbers in ([5, 5, 3, 3], [0, 0, 7, 7])
            ],
            _unmoved_by_names,
        ),
    ],
    allows=("causal_mask", "local_mask"),
    builds_on=("causal_mask",),
    exact_dtype=True,
)


@packed_mask.made_of(
    joined=wrongs(
        COMBINING,
        """
        or: either is enough: the two conditions are joined by `or`
            A key must be of the same document, *and* it must not lie in the future. How are two conditions
            joined that must both hold?
        document only: other documents are hidden, but the future is not
            A model must not see what it is to predict. Which of the two conditions is missing?
        causal only: the future is hidden, but other documents are not
            What stands in the document before says nothing about this one. Which of the two conditions is
            missing?
        exactly one: the two conditions are compared with each other instead of joined
            A key must be of the same document *and* not lie in the future: both must be True.
        """,
    ),
    kind={
        **only(TRIANGLE, "strict", "ahead", "transposed"),
        "future": Wrong(
            "the triangle is that of the future: each position sees what comes after it, and not itself",
            """`triu(1)` has True where nothing may be seen. Which triangle has True where it may?""",
            PATTERNS,
        ),
    },
    same=wrongs(
        COMBINING,
        """
        others: a position sees the other documents instead of its own
            Two positions belong together if their numbers are the same. Which of `==` and `!=` says so?
        zero: the number 0 is taken for padding, and hidden
            The numbers are names, and 0 is one of them. There is no padding in these sequences.
        not before: the numbers of the documents are compared by their size
            The numbers are names. A document may have a smaller number than the one before it. When do two
            positions belong together?
        not after: the numbers of the documents are compared by their size, which are not in order
            The numbers are names. A document may have a larger number than the one after it. When do two
            positions belong together?
        neighbours: a position sees at most the one before it
            Two positions of the same document belong together, however far apart they stand.
        """,
    ),
    shape=wrongs(
        COMBINING,
        """
        first only: every sequence gets the mask of the first
            Each sequence of the batch is packed in its own way, so each has a mask of its own.
        """,
    ),
    form=MASK_FORM,
)
def any_packed(document, *, joined="and", kind="causal", same="", shape="", form="bool"):
    length = document.shape[-1]
    causal = triangle(length, length, kind, "end")
    together = document[:, :, None] == document[:, None, :]
    if same == "not before":
        together = document[:, :, None] <= document[:, None, :]
    if same == "not after":
        together = document[:, :, None] >= document[:, None, :]
    if same == "others":
        together = ~together
    if same == "zero":
        together = together & (document != 0)[:, None]
    if same == "neighbours":
        together = together & torch.ones(length, length).triu(-1).bool()
    mask = {
        "or": causal | together,
        "document only": together,
        "causal only": causal.expand(len(document), -1, -1),
        "exactly one": causal ^ together,
    }.get(joined, causal & together)
    if shape == "first only":
        mask = mask[:1].expand(len(document), -1, -1)
    return in_form(mask, form)


@packed_mask.mistake(
    "a whole mask is asked whether it is true, as `and`, `or`, `not` and `if` do",
    hint="""Python's `and` wants one yes or no from a whole tensor. For tensors, number by number, there
    are `&`, `|` and `~`.""",
    read=COMBINING,
)
def packed_python_and(document):
    length = document.shape[-1]
    causal = torch.ones(length, length).tril().bool()
    return causal and (document[:, :, None] == document[:, None, :])


# ---------------------------------------------------------------------------------------
# Attention that survives empty rows
# ---------------------------------------------------------------------------------------


def _masked_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    empty = _random_mask(normal, 4, 4)
    empty[1] = False
    low = _attention_case(
        normal,
        (),
        3,
        5,
        _random_mask(normal, 3, 5),
        "scores in the hundreds of thousands below zero",
        torch.float64,
    )
    low.inputs["query"][:, 0], low.inputs["key"][:, 0] = 800, -800
    low.inputs["mask"][:, 4] = False
    high = _attention_case(
        normal,
        (),
        3,
        5,
        _random_mask(normal, 3, 5),
        "scores in the hundreds of thousands above zero",
        torch.float64,
    )
    high.inputs["query"][:, 0], high.inputs["key"][:, 0] = 800, 800
    return [
        _attention_case(normal, (), 3, 5, _random_mask(normal, 3, 5), "no empty row", key_dim=6),
        _attention_case(normal, (), 4, 4, empty, "an empty row"),
        _attention_case(normal, (2,), 4, 4, empty, "a batch, and an empty row in each part", torch.float64),
        _attention_case(
            normal, (3,), 4, 4, masking.padding_mask([3, 0, 2], 4), "padding, and a sequence of nothing else"
        ),
        _tempting(normal),
        low,
        high,
        _attention_case(normal, (), 2, 3, torch.zeros(2, 3, dtype=torch.bool), "nothing may be seen"),
        _attention_case(normal, (1,), 3, 4, masking.padding_mask([2], 4), "a batch of one", key_dim=3),
        _attention_case(normal, (2, 3), 4, 4, empty, "two batch dimensions, and an empty row in each part"),
        _attention_case(
            normal,
            (2,),
            3,
            4,
            torch.stack([_random_mask(normal, 3, 4), ~empty[:3]]),
            "a mask for each sequence",
        ),
        _attention_case(normal, (2,), 3, 5, _random_mask(normal, 1, 5)[0], "a mask of the keys alone"),
    ]


def _empty_row(normal: Normal) -> dict[str, Tensor]:
    drawn = _draw()(normal)
    drawn["mask"][1] = False
    return drawn


def _zeros_for_empty(inputs: dict[str, Tensor], value: Any) -> str | None:
    row = value["output"][1]
    return laws.is_not(row, torch.zeros_like(row), "yours gives {yours} at {place} of that row")


def _finite_gradients(inputs: dict[str, Tensor], value: Any) -> str | None:
    for name, part in value.items():
        if not part.isfinite().all():
            return f"in yours the {name} holds {part[~part.isfinite()][0].item()}"
    return None


def _no_gradient_for_empty(inputs: dict[str, Tensor], value: Any) -> str | None:
    row = value["gradient of query"][1]
    return laws.is_not(row, torch.zeros_like(row), "in yours it is {yours} at {place}")


masked_attention = Task(
    "masked_attention",
    attention_operator.attention,
    PENCIL | {"mask": torch.tensor([[True, True, False], [False, False, False]])},
    _masked_attention_cases,
    laws=[
        *MASK_LAWS,
        Law("a query that may see nothing gets zeros", EMPTY_ROWS, _empty_row, _zeros_for_empty),
        Law(
            "output and gradients are finite numbers, empty rows or not",
            NAN_GRADIENT,
            _empty_row,
            _finite_gradients,
        ),
        Law(
            "the gradient of a query that may see nothing is zero",
            NAN_GRADIENT,
            _empty_row,
            _no_gradient_for_empty,
        ),
    ],
    way=WithGradients(),
)


@masked_attention.made_of(
    hidden={
        # To set values to 0 does the same as to set weights to 0.
        **{name: wrong for name, wrong in HIDDEN.items() if name != "values"},
        "mended late": Wrong(
            "the weights are divided again after the mask, and rows of which nothing is left become zeros",
            """A row in which a forbidden key with a far larger score has taken all is not empty: its allowed
            keys are to share the weight. Hide the key before the softargmax.""",
            THREE_WAYS,
        ),
        "no maximum": Wrong(
            "the largest score of the row is not subtracted before the exponential",
            """exp of a score in the thousands is infinite, and of one as far below zero it is 0, so that a
            row is divided by 0 that is not empty. Subtract the largest of the allowed scores first.""",
            "attention_operator#stable-softargmax",
        ),
    },
    polarity=POLARITY,
    scale=_SCALE,
    empty={
        "nan": Wrong(
            "an empty row comes out as NaN",
            """All its scores are minus infinity, so the softargmax divides 0 by 0. What is such a row to
            give?
            Where can you put that in?""",
            EMPTY_ROWS,
        ),
        "averages": Wrong(
            "an empty row averages all the values that it may not see",
            """If all scores are equally low, all weights are equal. What is a query to get that may see
            nothing?""",
            BILLION,
        ),
        "output mended": Wrong(
            "the NaN is taken out of the output, but it is still there in the gradients",
            """`nan_to_num` or `where` on the output hides the NaN on the way forth. On the way back the
            gradient passes through the softargmax all the same, and 0 times NaN is NaN. No NaN must arise
            where a gradient comes back.""",
            NAN_GRADIENT,
        ),
        "weights mended": Wrong(
            "the NaN is taken out of the weights, but it is still there in the gradient of the scores",
            """The gradient still passes through a softargmax of minus infinities, and comes back to your
            scores as NaN. Give such a row something harmless to compare, and erase what comes of it.""",
            NAN_GRADIENT,
        ),
    },
)
def any_masked(query, key, value, mask, *, hidden="infinity", polarity="", scale="root", empty="zeros"):
    scores = scaled(query @ key.mT, query, key, value, scale)
    if polarity == "inverted":
        mask = ~mask
    if polarity == "transposed":
        mask = mask.mT
    nothing = ~mask.any(-1, keepdim=True)
    safe = empty not in ("nan", "output mended", "weights mended")
    seen = mask | nothing if safe else mask
    if empty == "weights mended":  # added, so that the gradient passes through
        scores = scores + torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    weights = masked_weights(scores, seen, "never" if empty == "weights mended" else hidden, "")
    if hidden == "mended late":
        weights = torch.softmax(scores, -1) * seen
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1.0, total)
    if hidden == "no maximum":
        weights = torch.exp(scores.masked_fill(~mask, -math.inf))
        total = weights.sum(-1, keepdim=True)
        weights = weights / (torch.where(total == 0, 1.0, total) if safe else total)
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    if empty == "weights mended":
        weights = torch.where(nothing, 0.0, weights)
    if empty == "zeros":
        weights = weights.masked_fill(nothing, 0.0)
    output = weights @ value
    return torch.where(output.isnan(), 0.0, output) if empty == "output mended" else output


@masked_attention.mistake(
    "the exponentials are masked, but those of large scores overflow",
    hint="""exp of a score in the hundreds is infinite. Subtract the largest score of the row first, and of
    the
    allowed ones only.""",
    read="attention_operator#stable-softargmax",
)
def masked_overflow(query, key, value, mask):
    exponentials = torch.exp(query @ key.mT / math.sqrt(query.shape[-1])) * mask
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / torch.where(total == 0, 1.0, total) @ value


@masked_attention.mistake(
    "no gradient flows back through the weights",
    hint="""`detach` and `no_grad` cut off the way to queries and keys for all rows, not for the empty ones
    alone. What those rows gave must be replaced, and all others left as they are.""",
    read=NAN_GRADIENT,
)
def masked_detached(query, key, value, mask):
    scores = (query @ key.mT / math.sqrt(query.shape[-1])).masked_fill(~mask, -math.inf)
    weights = torch.softmax(scores, -1).masked_fill(~mask.any(-1, keepdim=True), 0.0)
    return weights.detach() @ value


@masked_attention.mistake(
    "a row with a single forbidden key is taken for an empty one, and gives zeros",
    hint="""A row is empty if it has no True at all. Which of `any` and `all` asks for that?""",
    read=EMPTY_ROWS,
)
def masked_all_for_any(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1).masked_fill(~mask.all(-1, keepdim=True), 0.0) @ value


@masked_attention.mistake(
    "an empty row comes out as the mean of all values, as if minus a billion stood for minus infinity",
    hint="""With scores of an ordinary size a billion is enough. But if all scores of a row are equally
    low, all
    weights are equal. What is a query to get that may see nothing?""",
    read=BILLION,
)
def masked_minus_a_billion(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(torch.where(mask, scores, scores.detach() * 0 - 1e9), -1) @ value


# ---------------------------------------------------------------------------------------
# Conventions
# ---------------------------------------------------------------------------------------


def _multihead_mask(mask: Tensor, num_heads: int) -> Tensor:
    return masking.inverted_mask(mask).repeat_interleave(num_heads, dim=0)


def _multihead_mask_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"mask": _random_mask(normal, 2, 3, 5), "num_heads": 3}),
        Case({"mask": _random_mask(normal, 3, 4, 4), "num_heads": 2}, "as many queries as keys"),
        Case({"mask": _random_mask(normal, 2, 2, 2), "num_heads": 2}, "two of everything"),
        Case({"mask": _random_mask(normal, 4, 3, 3), "num_heads": 1}, "a single head"),
        Case({"mask": _random_mask(normal, 1, 2, 4), "num_heads": 1}, "a single sequence, a single head"),
    ]


def _two_sequences(normal: Normal) -> dict[str, Any]:
    return {"mask": _random_mask(normal, 2, 3, 4), "num_heads": 2}


def _neighbours_agree(inputs: dict[str, Any], value: Tensor) -> str | None:
    if torch.equal(value[0], value[1]):
        return None
    return "in yours numbers 0 and 1, which are two heads of the first sequence, differ"


def _true_is_hidden(inputs: dict[str, Any], value: Tensor) -> str | None:
    wrong = (value[0] == inputs["mask"][0]).nonzero()
    return f"in yours it is the same at {wrong[0].tolist()}" if len(wrong) else None


multihead_mask = Task(
    "multihead_mask",
    _multihead_mask,
    {"mask": torch.tensor([[[True, False], [True, True]], [[True, True], [False, True]]]), "num_heads": 2},
    _multihead_mask_cases,
    laws=[
        Law(
            "the first mask is the first sequence's, with True and False exchanged",
            POLARITIES,
            _two_sequences,
            _true_is_hidden,
        ),
        Law(
            "the heads of a sequence stand side by side, with the same mask",
            POLARITIES,
            _two_sequences,
            _neighbours_agree,
        ),
    ],
    exact_dtype=True,
)


@multihead_mask.made_of(
    polarity=wrongs(
        POLARITIES,
        """
        same: the polarity is not converted
            `nn.MultiheadAttention` reads True as "may not attend".
        """,
    ),
    order=wrongs(
        POLARITIES,
        """
        heads outside: the order is wrong: all sequences for the first head, then all for the second
            The first masks belong to the first sequence, one for each of its heads. Which way of repeating
            puts copies next to each other?
        not repeated: the mask is not repeated for the heads
            There is to be one mask for each sequence and head. How long is the first dimension?
        own dimension: the heads have a dimension of their own
            That layer wants three dimensions; sequences and heads share the first.
        in a row: the repetition has taken the mask apart: everything stands in one row
            `repeat_interleave` without a dimension flattens. Along which one is to be repeated?
        queries: the rows are repeated instead of the masks
            The second dimension holds the queries. Which one counts the sequences?
        queries reshaped: the rows are repeated instead of the masks, and then cut into masks
            The shape is right, but a head gets the same row several times, and not all the rows. Which
            dimension counts the sequences?
        """,
    ),
    sides=wrongs(
        POLARITIES,
        """
        transposed: queries and keys are exchanged
            The last two dimensions stay as they are: queries, then keys.
        """,
    ),
    form=only(MASK_FORM, "additive", "numbers"),
)
def any_multihead_mask(mask, num_heads, *, polarity="", order="", sides="", form="bool"):
    mask = mask.mT if sides == "transposed" else mask
    mask = mask if polarity == "same" else ~mask
    match order:
        case "heads outside":
            mask = mask.repeat(num_heads, 1, 1)
        case "own dimension":
            mask = mask[:, None].repeat(1, num_heads, 1, 1)
        case "in a row":
            mask = mask.repeat_interleave(num_heads)
        case "queries":
            mask = mask.repeat_interleave(num_heads, dim=1)
        case "queries reshaped":
            mask = mask.repeat_interleave(num_heads, dim=1).reshape(-1, *mask.shape[1:])
        case "not repeated":
            mask = mask.clone()
        case _:
            mask = mask.repeat_interleave(num_heads, dim=0)
    return in_form(~mask, form) if form == "additive" else in_form(mask, form)


# ---------------------------------------------------------------------------------------
# What depends on what
# ---------------------------------------------------------------------------------------


def _dependencies(jacobian: Tensor) -> Tensor:
    return (jacobian != 0).any(dim=3).any(dim=1)


def _dependencies_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def block(outputs: int, output_dim: int, inputs: int, input_dim: int) -> Tensor:
        """Blocks of zeros, full blocks, and some with a single number or with numbers that cancel."""
        pattern = normal(outputs, inputs) > 0
        jacobian = normal(outputs, output_dim, inputs, input_dim, dtype=torch.float64)
        jacobian = jacobian * pattern[:, None, :, None]
        jacobian[:2, :, :2] = 0
        jacobian[0, -1, 0, -1] = -1.5
        jacobian[1, 0, 0, 0], jacobian[1, 0, 0, 1] = 0.75, -0.75
        jacobian[1, -1, 1, -1] = 0.5
        jacobian[2, 0, 0, 0] = 1.25
        return jacobian

    x, other = (normal(5, 3, dtype=torch.float64) for _ in range(2))

    def causal(x: Tensor) -> Tensor:
        return attention_operator.attention_weights(x, x, masking.causal_mask(5)) @ x

    def crossing(x: Tensor) -> Tensor:
        weights = attention_operator.attention_weights(other[:4], x, masking.local_mask(4, 5, radius=1))
        return 1e-12 * weights @ x

    return [
        Case({"jacobian": block(3, 2, 4, 3)}),
        Case({"jacobian": block(4, 4, 4, 4)}, "as many of everything"),
        Case({"jacobian": torch.autograd.functional.jacobian(causal, x)}, "causal attention"),
        Case({"jacobian": torch.autograd.functional.jacobian(crossing, x)}, "tiny derivatives"),
        Case({"jacobian": block(3, 2, 4, 3)[1:2]}, "a single output"),
    ]


def _single_derivative(number: float) -> Callable[[Normal], dict[str, Tensor]]:
    def inputs(normal: Normal) -> dict[str, Tensor]:
        jacobian = torch.zeros(2, 2, 3, 2, dtype=torch.float64)
        jacobian[0, 1, 2, 1] = number
        return {"jacobian": jacobian}

    return inputs


def _one_true(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    found = value.nonzero().tolist()
    return None if found == [[0, 2]] else f"yours has True at {found or 'no place'}"


def _none_true(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return f"yours has True at {value.nonzero()[0].tolist()}" if value.any() else None


def _cancelling(normal: Normal) -> dict[str, Tensor]:
    jacobian = torch.zeros(2, 2, 3, 2, dtype=torch.float64)
    jacobian[0, :, 2, 0], jacobian[0, :, 2, 1] = 1.0, -1.0
    return {"jacobian": jacobian}


dependencies = Task(
    "dependencies",
    _dependencies,
    {
        "jacobian": torch.tensor(
            [
                [[[1.0, -1.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]],
                [[[0.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 0.0]]],
            ]
        )
    },
    _dependencies_cases,
    laws=[
        Law(
            "where all derivatives are 0, nothing depends on anything",
            INFLUENCE,
            _single_derivative(0.0),
            _none_true,
        ),
        Law(
            "a single derivative, of output 0 by input 2, makes one True, at [0, 2]",
            INFLUENCE,
            _single_derivative(1.0),
            _one_true,
        ),
        Law("a derivative below zero counts like one above", INFLUENCE, _single_derivative(-1.0), _one_true),
        Law("a derivative of 1e-9 counts like a large one", INFLUENCE, _single_derivative(1e-9), _one_true),
        Law("derivatives that add up to 0 count", INFLUENCE, _cancelling, _one_true),
    ],
    exact_dtype=True,
)


@dependencies.made_of(
    counted=wrongs(
        INFLUENCE,
        """
        summed: derivatives of opposite sign cancel
            A sum of numbers that are not 0 can be 0. Ask of each of them first whether it is 0.
        positive: only positive derivatives are counted
            A derivative below zero is an influence as well.
        tolerant: small derivatives are taken for zero
            Where a mask hides a position the derivative is *exactly* 0. A small one is a leak.
        inverted: True stands where there is no influence
            True is to say that the output depends on the input.
        """,
    ),
    joined=wrongs(
        INFLUENCE,
        """
        all: all features must depend, instead of any
            One feature of the output that feels one feature of the input is enough.
        first: only the first feature of each position is looked at
            An influence may show in any of the features.
        all inputs: an output must feel all features of the input, instead of any
            One feature of the input is enough.
        """,
    ),
    dims=wrongs(
        INFLUENCE,
        """
        transposed: rows and columns are exchanged: inputs in rows, outputs in columns
            Asked for is a table like a mask: a row for each output, a column for each input.
        moved: the input positions are gone, and their features are left
            When one dimension has gone, those behind it move up. Which number has the dimension that you
            want to remove next?
        missing: a dimension is asked for that has moved up, because another one before it is gone
            When one dimension has gone, those behind it move up. Remove the last one first.
        positions: the positions are joined, and the features are left
            The dimensions are: output position, its feature, input position, its feature. Which two are to
            go?
        """,
    ),
    form=only(MASK_FORM, "numbers"),
)
def any_dependencies(jacobian, *, counted="", joined="any", dims="", form="bool"):
    found = {
        "positive": jacobian > 0,
        "tolerant": jacobian.abs() > 1e-6,
        "inverted": jacobian == 0,
    }.get(counted, jacobian != 0)
    if counted == "summed":
        found, joined = jacobian, "first summed" if joined == "first" else "summed"
    if joined.startswith("first"):
        found, joined = found[:, :1, :, :1], joined.removeprefix("first").strip() or "any"
    if counted == "inverted" and joined == "any":
        joined = "all"
    return jacobian_in_form(found, joined, dims, form)


def jacobian_in_form(found: Tensor, joined: str, dims: str, form: str) -> Tensor:
    """A table of yes and no for four dimensions, made one for two."""
    inner, outer = {"all": ("all", "all"), "all inputs": ("all", "any"), "summed": ("sum", "sum")}.get(
        joined, ("any", "any")
    )
    first, then = {"moved": (1, 1), "missing": (1, 3), "positions": (2, 0)}.get(dims, (3, 1))
    table = getattr(getattr(found, inner)(dim=first), outer)(dim=then) != 0
    return in_form(table.mT if dims == "transposed" else table, form)


# ---------------------------------------------------------------------------------------
# Which layers are causal
# ---------------------------------------------------------------------------------------


def _layers(seed: int, dim: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Layers whose numbers come from the seed; some leak in a part of their output only, or a little.

    They take sequences of any length, as a tester may shorten the one that it is given.
    """
    normal = normal_source(seed, "layers")
    W = normal(3, dim, dim, dtype=torch.float64) / 2
    one_feature = torch.zeros(dim, dtype=torch.float64)
    one_feature[int(normal(1).abs() * 100) % dim] = 1
    signs = one_feature - one_feature.roll(1)
    middle = 2 + seed % 2

    def places(z: Tensor) -> Tensor:
        return torch.ones_like(z[:, :1]).cumsum(0)  # (length, 1): 1, 2, 3, ...

    def causal(z: Tensor) -> Tensor:
        return places(z).mT <= places(z)

    def attend(z: Tensor, mask: Any = None) -> Tensor:
        scores = (z @ W[0]) @ (z @ W[1]).mT / dim**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        return torch.softmax(scores, -1) @ (z @ W[2])

    def past(z: Tensor) -> Tensor:
        return attend(z, causal(z))

    def ahead(z: Tensor, distance: int, first: int = 1, before_last: int = 0) -> Tensor:
        """Each later neighbour at a distance, for positions from `first` on, but not the last ones."""
        own, other, length = places(z), places(z).mT, z.shape[0]
        matrix = (other - own == distance) & (own >= first) & (other <= length - before_last)
        return matrix.double() @ z

    def of_one(z: Tensor, place: int) -> Tensor:
        """For one position, the next one."""
        return ((places(z) == place) & (places(z).mT == place + 1)).double() @ z

    def strictly_before(z: Tensor) -> Tensor:
        matrix = (places(z).mT < places(z)).double()
        return matrix / torch.clamp(matrix.sum(-1, keepdim=True), min=1) @ z @ W[2]

    def score(z: Tensor) -> Tensor:
        return (z @ W[0]) @ (z @ W[1]).mT / 2

    def last_for_the_one_before(z: Tensor) -> Tensor:
        length = z.shape[0]
        return ((places(z) == length - 1) & (places(z).mT == length)).double() @ z

    def there_and_back(y: Tensor, z: Tensor) -> Tensor:
        """y, rounded in a way that depends on all of z; its derivatives by z cancel exactly."""
        # Far from 0 the last digits of the sum are lost, whatever z is: the error stays below 1e-14.
        mean = torch.tanh(z).mean(0, keepdim=True)
        return (((y + mean) + 16) - 16) - mean

    return {
        "causal attention": lambda z: past(z),
        "attention without a mask": lambda z: attend(z),
        "attention to the last three positions": lambda z: attend(
            z, causal(z) & (places(z) - places(z).mT <= 2)
        ),
        "the mean of the earlier positions, without its own": lambda z: strictly_before(z),
        "the mean of the earlier positions, added to x": lambda z: z + strictly_before(z),
        "every position by itself": lambda z: torch.tanh(z @ W[0]),
        "scores multiplied by a causal mask": lambda z: torch.softmax(score(z) * causal(z), -1) @ z @ W[2],
        "weights multiplied by a causal mask, not renormalised": lambda z: (
            torch.softmax(score(z), -1) * causal(z) @ z @ W[2]
        ),
        "causal attention, from which the mean over all positions is subtracted": lambda z: (
            past(z) - past(z).mean(0)
        ),
        "causal attention, and a thousandth of attention without a mask": lambda z: (
            past(z) + attend(z) / 1000
        ),
        "causal attention, and the position after the next, but never the last": lambda z: (
            past(z) + ahead(z, 2, before_last=1)
        ),
        "every position but the first, plus or minus a feature of the next": lambda z: (
            z + signs * ahead(z, 1, first=2)[:, :1]
        ),
        "causal attention, and in the middle the direction of the next position": lambda z: (
            past(z) + ahead(torch.nn.functional.normalize(z, dim=-1), 1, first=2, before_last=1)
        ),
        "causal attention, and for one position one feature of the next": lambda z: (
            past(z) + of_one(z, middle) * one_feature
        ),
        "causal attention, and for one position one feature of the next, with the opposite sign": lambda z: (
            past(z) - of_one(z, middle) * one_feature
        ),
        "causal attention, and for one position another feature of the next": lambda z: (
            past(z) + of_one(z, middle) * one_feature.roll(1)
        ),
        "causal attention, and the last position for the one before it": lambda z: (
            past(z) + last_for_the_one_before(z)
        ),
        "causal attention, and the second position for the first": lambda z: past(z) + of_one(z, 1),
        "causal attention, and how far the features of the next lie from their mean": lambda z: (
            past(z) + ahead(z - z.mean(-1, keepdim=True), 1)
        ),
        "causal attention, and the square of the next position": lambda z: past(z) + ahead(z * z, 1),
        "causal attention, made large": lambda z: 1e4 * past(z),
        "causal attention, to which a mean over all positions is added and taken away again": lambda z: (
            there_and_back(past(z), z)
        ),
    }


def _is_causal(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    return not masking.influence(layer, x).triu(1).any()


def _is_causal_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), Draws(seed, "choices").whole
    cases = []
    layers = _layers(seed, 3)
    for name in in_any_order(layers, seed):
        x = normal(whole(4, 6), 3, dtype=torch.float64)
        cases.append(Case({"layer": trace(layers[name]), "x": x}, f"the layer is: {name}"))
    return cases


is_causal = Task(
    "is_causal",
    _is_causal,
    {
        "layer": trace(lambda x: 2 * x),
        "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64),
    },
    _is_causal_cases,
    way=AskAboutLayer(),
    builds_on=("dependencies",),
)


def _table(layer: Any, x: Tensor, counted: str) -> Tensor:
    jacobian = torch.autograd.functional.jacobian(layer, x)
    if counted == "summed":
        return jacobian.sum(dim=(1, 3)).abs() > 1e-12
    if counted == "positive":
        return (jacobian > 0).any(3).any(1)
    if counted == "first feature":
        return (jacobian[:, 0] != 0).any(-1)
    if counted == "tolerant":
        return (jacobian.abs() > 1e-2).any(3).any(1)
    return (jacobian != 0).any(3).any(1)


@is_causal.made_of(
    counted=wrongs(
        WHICH_ARE_CAUSAL,
        """
        summed: what is added here and subtracted there is not felt
            One of the layers does that with a feature of the next position. A sum of derivatives does not
            feel it, nor does a change of all features by the same number. Look at each derivative, or
            change features by different numbers.
        positive: differences count in one direction only
            A derivative or difference below zero is an influence as well. Take absolute values, or compare
            with `!=`.
        first feature: only one feature is looked at
            A leak may begin in any feature of an input, and show in any feature of an output. Change all,
            and compare all.
        tolerant: small leaks are overlooked
            One of the layers adds a thousandth of attention without a mask. Where a mask hides, the
            influence is exactly 0.
        """,
    ),
    part=wrongs(
        WHICH_ARE_CAUSAL,
        """
        corner: only the influence of the last position on the first is looked at
            A layer may look one position ahead and no further. Every output must be independent of *every*
            later input.
        next: only the influence of the next position is looked at
            A layer may skip the next position and look at the one after it. Every output must be
            independent of *every* later input.
        first: only the first output is looked at
            A layer may leak at any position. Every output must be independent of every later input.
        last: only the influence of the last input is looked at
            A layer may leak any later position. Every output must be independent of *every* later input.
        middle: the last pair of positions is left out
            The last output but one must not see the last input. Where does your loop end?
        not first: the first output is left out
            The first output must not see anything but the first input. Where does your loop begin?
        far: the next position may be seen: only those behind it are forbidden
            The output of a position may depend on itself and on what came before. Where does the future
            begin?
        past: the past is forbidden instead of the future
            Rows are outputs, columns inputs. Which side of the diagonal is the future?
        diagonal: a position may not depend on itself either
            The diagonal belongs to the past: a position may see itself. (masking#diagonal)
        whole past: a layer is called causal only if it uses the whole past
            Nothing asks a layer to look at everything it may see. Only the future is forbidden.
        any row: one output without a leak is enough
            *Every* output must be independent of every later input.
        """,
    ),
    answer=wrongs(
        WHICH_ARE_CAUSAL,
        """
        inverted: True stands for a layer that leaks
            A causal layer is one in which no output depends on the future. Which answer does your function
            give for it?
        no: no layer gets a yes
            Some of the layers are causal. Try them.
        yes: every layer gets a yes
            Some of the layers leak. Try them.
        """,
    ),
)
def any_causality(layer, x, *, counted="", part="future", answer=""):
    table = _table(layer, x, counted)
    ones = torch.ones_like(table)
    looked_at = {
        "corner": ones.triu(len(x) - 1),
        "next": ones.triu(1).tril(1),
        "far": ones.triu(2),
        "past": ones.tril(-1),
        "diagonal": ones.triu(),
    }.get(part, ones.triu(1)).clone()
    if part == "first":
        looked_at[1:] = False
    if part == "last":
        looked_at[:, :-1] = False
    if part == "middle":
        looked_at[-2] = False
    if part == "not first":
        looked_at[0] = False
    found = not bool((table & looked_at).any())
    if part == "whole past":
        found = torch.equal(table, ones.tril())
    if part == "any row":
        found = not bool((table & looked_at).any(1)[:-1].all())
    return {"inverted": not found, "no": False, "yes": True}.get(answer, found)


@is_causal.mistake(
    "the later inputs only change places with each other",
    hint="""Attention without positions does not feel in which order the later inputs stand. Change what they
    *are*.""",
    read=WHICH_ARE_CAUSAL,
)
def causality_by_exchange(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        turned = torch.cat([x[:i], x[i:].flip(0)])
        if not torch.allclose(layer(turned)[:i], before[:i], rtol=0, atol=1e-12):
            return False
    return True


@is_causal.mistake(
    "NaN is put in for the later inputs, and 0 times NaN is NaN",
    hint="""A mask gives later inputs the weight 0, and 0 times NaN is NaN: so it shows in layers that do
    not leak.
    Put in other numbers instead.""",
    read=WHICH_ARE_CAUSAL,
)
def causality_by_nan(layer, x):
    for i in range(1, len(x)):
        spoiled = x.clone()
        spoiled[i:] = math.nan
        if layer(spoiled)[:i].isnan().any():
            return False
    return True


@is_causal.mistake(
    "the later inputs are changed, but in a way that a layer need not notice",
    hint="""Making an input longer changes nothing in a layer that looks at directions only, and adding one
    number
    to all its features nothing in one that looks at differences. Put in quite other numbers.""",
    read=WHICH_ARE_CAUSAL,
)
def causality_of_length_only(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        longer = torch.cat([x[:i], 2 * x[i:]])
        if not torch.allclose(layer(longer)[:i], before[:i], rtol=0, atol=1e-12):
            return False
    return True


@is_causal.mistake(
    "the same number is added to all features of the later inputs",
    hint="""A layer that looks at differences between features does not notice that. Put in quite other
    numbers.""",
    read=WHICH_ARE_CAUSAL,
)
def causality_by_a_constant(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        moved = torch.cat([x[:i], x[i:] + 1])
        if not torch.allclose(layer(moved)[:i], before[:i], rtol=0, atol=1e-12):
            return False
    return True


@is_causal.mistake(
    "the outputs must agree to the last digit",
    hint="""Rounding is no leak: later inputs may have a part in how an output is computed, and none in what
    it is. Then they change its last digits. Allow for that, and for no more: `torch.allclose`.""",
    read=WHICH_ARE_CAUSAL,
)
def causality_to_the_last_digit(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        other = torch.cat([x[:i], torch.cos(1 + 5 * x[i:])])
        if not torch.equal(layer(other)[:i], before[:i]):
            return False
    return True


@is_causal.mistake(
    "the derivatives are taken at zeros, where some vanish by chance",
    hint="""The derivative of a square at 0 is 0, and yet the square depends on its input. Take the x that is
    given.""",
    read=INFLUENCE,
)
def causality_at_zeros(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, torch.zeros_like(x))
    return not bool((jacobian != 0).any(3).any(1).triu(1).any())


# ---------------------------------------------------------------------------------------
# A change that shows a leak
# ---------------------------------------------------------------------------------------


def _masked_layers() -> dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]]:
    """Attention with a mask, as people write it; every query has a key."""

    def scores(q: Tensor, k: Tensor) -> Tensor:
        return q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5

    def filled(s: Tensor, mask: Tensor, number: float) -> Tensor:
        return torch.softmax(s.masked_fill(~mask, number), -1)

    def late(s: Tensor, mask: Tensor) -> Tensor:
        kept = torch.softmax(s, -1) * mask
        return kept / kept.sum(-1, keepdim=True)

    return {
        "the scores are multiplied by the mask": lambda q, k, v, mask: (
            torch.softmax(scores(q, k) * mask, -1) @ v
        ),
        "the weights are multiplied by the mask, and nothing after": lambda q, k, v, mask: (
            (torch.softmax(scores(q, k), -1) * mask) @ v
        ),
        "forbidden scores become -20": lambda q, k, v, mask: filled(scores(q, k), mask, -20.0) @ v,
        "the weights are renormalised after the mask": lambda q, k, v, mask: late(scores(q, k), mask) @ v,
        "the keys are divided by the largest number in them": lambda q, k, v, mask: (
            filled(scores(q, k / k.abs().max()), mask, -torch.inf) @ v
        ),
        "a thousandth of the mean of all values is added": lambda q, k, v, mask: (
            filled(scores(q, k), mask, -torch.inf) @ v + v.mean(-2, keepdim=True) / 1000
        ),
        "nothing leaks: forbidden scores become minus infinity": lambda q, k, v, mask: (
            filled(scores(q, k), mask, -torch.inf) @ v
        ),
        "nothing leaks: forbidden scores become minus a billion": lambda q, k, v, mask: (
            filled(scores(q, k), mask, -1e9) @ v
        ),
        "nothing leaks: the queries ask twice as loudly": lambda q, k, v, mask: (
            filled(2 * scores(q, k), mask, -torch.inf) @ v
        ),
    }


def _change_shows(layer: Callable, inputs: tuple[Tensor, ...], row: Any) -> bool:
    query, key, value, mask = inputs
    other = [torch.cat([rows[:-1], new.double()[None]]) for rows, new in zip((key, value), row, strict=True)]
    after = layer(query, *other, mask)
    return not torch.allclose(after, layer(*inputs), rtol=1e-6, atol=1e-9)


def _leaking_change(
    layer: Callable, query: Tensor, key: Tensor, value: Tensor, mask: Tensor
) -> tuple[Tensor, Tensor] | None:
    for sign in (1e4, -1e4):
        row = sign * (1 + key[0].abs()) * query[0].sign(), 1e8 * torch.ones_like(value[-1])
        if _change_shows(layer, (query, key, value, mask), row):
            return row
    return None


def _leaking_compare(inputs: dict[str, Any], value: Any) -> str | None:
    layer, *rest = inputs.values()
    leaks = _leaking_change(**inputs) is not None
    if value is None:
        return "nothing was found, and this layer leaks" if leaks else None
    if not isinstance(value, tuple | list) or len(value) != 2:
        return "either None or two tensors were expected: another last key, and another last value"
    for name, row, new in zip(("key", "value"), rest[1:3], value, strict=True):
        if not isinstance(new, Tensor) or not new.dtype.is_floating_point:
            return f"your new {name} is no tensor of floating-point numbers"
        if new.shape != row[-1].shape:
            was = tuple(row[-1].shape)
            return f"your new {name} has shape {tuple(new.shape)}, and a single {name} has shape {was}"
        if not (new.abs() <= 2e12).all():
            return f"in your new {name} there is NaN, infinity or a number above 1e12"
    if not leaks:
        return "this layer does not leak, so None was expected"
    if _change_shows(layer, tuple(rest), value):
        return None
    return "with your new last key and value the layer gives what it gave before, but for the last digits"


def _leaking_given(normal: Normal) -> dict[str, Tensor]:
    mask = _random_mask(normal, 4, 4)
    return {
        "query": normal(4, 4, dtype=torch.float64),
        "key": normal(5, 4, dtype=torch.float64),
        "value": normal(5, 3, dtype=torch.float64),
        "mask": torch.cat([mask, torch.zeros(4, 1, dtype=torch.bool)], 1),
    }


def _leaking_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    layers = _masked_layers()
    return [
        Case({"layer": trace(layers[name]), **_leaking_given(normal)}, name)
        for name in in_any_order(layers, seed)
    ]


_SAFE = "nothing leaks: forbidden scores become minus infinity"

leaking_change = Task(
    "leaking_change",
    _leaking_change,
    {
        "layer": trace(_masked_layers()[_SAFE]),
        "query": torch.eye(2, dtype=torch.float64),
        "key": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64),
        "value": torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64),
        "mask": torch.tensor([[True, False, False], [True, True, False]]),
    },
    _leaking_cases,
    laws=[
        Law(
            "no change shows in a layer that puts minus infinity before the softargmax",
            THREE_WAYS,
            lambda normal: {"layer": trace(_masked_layers()[_SAFE]), **_leaking_given(normal)},
            lambda inputs, value: "yours gives one" if isinstance(value, tuple | list) else None,
        )
    ],
    compare=_leaking_compare,
)


def _tried_changes(layer, inputs, rows):
    """The first of some rows with which the output is another."""
    query, key, value, mask = inputs
    before = layer(*inputs)
    for new_key, new_value in rows:
        changed = layer(
            query, torch.cat([key[:-1], new_key[None]]), torch.cat([value[:-1], new_value[None]]), mask
        )
        if not torch.allclose(changed, before, rtol=1e-6, atol=1e-9):
            return new_key, new_value
    return None


@leaking_change.mistake(
    "every layer is said to leak nothing",
    hint="""Most of these layers leak. Put another key and another value in place of the last ones, and
    compare the outputs.""",
    read=TWO_WRONG,
)
def leaks_never(layer, query, key, value, mask):
    return None


@leaking_change.mistake(
    "a change is returned whether it shows or not",
    hint="""Call the layer before the change and after it, and compare. Where nothing shows, whatever you try,
    the answer is None.""",
    read=INFLUENCE,
)
def leaks_always(layer, query, key, value, mask):
    return 1e4 * query[0].sign(), 1e8 * torch.ones_like(value[-1])


@leaking_change.mistake(
    "only the value is changed",
    hint="""If the weights are masked after the softargmax, a forbidden *key* has already had its part in the
    sum. Change both.""",
    read=TWO_WRONG,
)
def leaks_by_value(layer, query, key, value, mask):
    rows = [(key[-1], 1e8 * torch.ones_like(value[-1]))]
    return _tried_changes(layer, (query, key, value, mask), rows)


@leaking_change.mistake(
    "only the key is changed",
    hint="""A forbidden key may have a weight that does not depend on it, such as that of the score 0. Then it
    is its *value* that comes through. Change both.""",
    read=TWO_WRONG,
)
def leaks_by_key(layer, query, key, value, mask):
    rows = [(sign * query[0].sign(), value[-1]) for sign in (1e4, -1e4)]
    return _tried_changes(layer, (query, key, value, mask), rows)


@leaking_change.mistake(
    "only small changes are tried",
    hint="""Some leaks show only when the forbidden key matches far better than all others, or when its value
    is so large that a tiny weight is felt. Be bold.""",
    read=THREE_WAYS,
)
def leaks_by_small_changes(layer, query, key, value, mask):
    rows = [(key[-1] + 0.5, value[-1] + 0.5), (key[-1] - 0.5, value[-1] - 0.5)]
    return _tried_changes(layer, (query, key, value, mask), rows)


# ---------------------------------------------------------------------------------------
# The experiment: what is predicted, and what is read in its records
# ---------------------------------------------------------------------------------------

THE_LEAK = "masking#masking-the-leak"


def _best_loss(chances: Tensor) -> float:
    return torch.special.entr(chances.double()).sum(-1).mean().item()


def _chances(normal: Normal, number: int, *parts: float) -> Tensor:
    """A mixture of so many orders of the letters: rows and columns sum to 1."""
    mixture = torch.zeros(number, number)
    for part in parts:
        mixture[range(number), normal(number).argsort()] += part
    return mixture


def _best_loss_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"chances": _chances(normal, 6, 0.5, 0.3, 0.2)}, "six letters"),
        Case({"chances": _chances(normal, 26, 0.75, 0.25)}, "twenty-six letters"),
        Case({"chances": torch.full((5, 5), 0.2)}, "every letter may follow every letter"),
        Case({"chances": _chances(normal, 10, *[0.1] * 10)}, "ten letters"),
    ]


best_loss = Task(
    "best_loss",
    _best_loss,
    {"chances": torch.tensor([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5]])},
    _best_loss_cases,
    laws=[
        Law(
            "if n letters are equally likely after every letter, it is ln n, here ln 4 = 1.386",
            THE_LEAK,
            lambda normal: {"chances": torch.full((4, 4), 0.25)},
            lambda inputs, value: (
                None if math.isclose(value, math.log(4), rel_tol=1e-4) else f"yours gives {value:.4g}"
            ),
        ),
        Law(
            "if half of the letters have one successor and half have two, it is half of ln 2, or 0.3466",
            THE_LEAK,
            lambda normal: {
                "chances": torch.tensor(
                    [[0.0, 1.0, 0, 0], [1.0, 0, 0, 0], [0, 0, 0.5, 0.5], [0, 0, 0.5, 0.5]]
                )
            },
            lambda inputs, value: (
                None if math.isclose(value, math.log(2) / 2, rel_tol=1e-4) else f"yours gives {value:.4g}"
            ),
        ),
    ],
)


@best_loss.made_of(
    logarithm=wrongs(
        THE_LEAK,
        """
        base 2: the logarithm has base 2
            PyTorch's cross-entropy takes the natural logarithm. `math.log` and `torch.log` are natural.
        base 10: the logarithm has base 10
            PyTorch's cross-entropy takes the natural logarithm. `math.log` and `torch.log` are natural.
        nan: 0 times the logarithm of 0 is NaN
            What has the chance 0 never happens, and costs nothing. Leave it out, or put another number into
            the logarithm there: 0 times that is 0.
        """,
    ),
    over=wrongs(
        THE_LEAK,
        """
        sum: the losses after all letters are added up instead of averaged
            Each guess is made after one letter. All letters are equally frequent, so the loss is a mean over
            the letters.
        entries: the mean runs over all entries instead of over the letters
            After one letter, add up over all that may come next. The mean is over the letters that stand
            before.
        """,
    ),
    guess=wrongs(
        THE_LEAK,
        """
        certain: only the most likely successor is counted
            The loss is what the *true* next letter costs, and the true one is not always the most likely.
            Each comes with its chance.
        equal: after each letter, every letter is taken to be equally likely to follow
            That is the loss before anything is learned. A model that knows the table does better.
        successors: all possible successors are taken to be equally likely
            Some successors come more often than others. How often does each come, and what does it cost
            when it comes?
        averaged: the costs of all possible successors are averaged without their chances
            Some successors come more often than others, and each cost is to be weighted with its chance. A
            plain mean is the same only where all of them are equally likely.
        unweighted: the costs are added up without their chances
            A letter that seldom comes costs much, but seldom. Each cost is to be weighted with its chance.
        """,
    ),
    form=wrongs(
        THE_LEAK,
        """
        negative: the sign is wrong
            The logarithm of a chance is negative. A loss is not.
        perplexity: the exponential of the loss
            You have found the number of letters among which the model hesitates. Asked for is the loss
            itself.
        """,
    ),
)
def any_best_loss(chances, *, logarithm="natural", over="mean", guess="", form="loss"):
    if guess == "equal":
        chances = torch.full_like(chances, 1 / len(chances))
    if guess == "successors":
        chances = (chances > 0) / (chances > 0).sum(-1, keepdim=True)
    logs = chances.log() if logarithm == "nan" else chances.clamp(min=1e-30).log()
    cost = -chances * logs
    if guess == "certain":
        cost = -torch.nn.functional.one_hot(chances.argmax(-1), len(chances)) * logs
    if guess in ("unweighted", "averaged"):
        cost = torch.where(chances > 0, -logs, 0.0)
    if guess == "averaged":
        cost = cost / (chances > 0).sum(-1, keepdim=True)
    total = {"sum": cost.sum(), "entries": cost.mean()}.get(over, cost.sum(-1).mean())
    total = total / {"base 2": math.log(2), "base 10": math.log(10)}.get(logarithm, 1.0)
    return {"negative": -total, "perplexity": total.exp()}.get(form, total).item()


def _run_record(normal: Normal, note: str) -> dict:
    """A training whose loss ends at `low`, and whose writing costs `high`, both in units of `best`.

    For the share `late` of the steps nothing is learned.
    """
    fault, best, low, high, steps, late = _RECORDS[note]
    # What writing costs says by itself nothing of the fault: a table of costs is no answer. But which margins
    # are too narrow or too wide does not depend on the draw: the nearest records lie where they lie.
    first, second = torch.tanh(normal(2)).tolist()
    best = round(best * (1 + 0.5 * first), 4)
    if note not in _NEAREST:
        high *= 1 + (0.2 * abs(second) if high > 1.5 else 0.015 * second)
    level = low * best
    learning = (torch.arange(steps) - late * steps).clamp(min=0)
    curve = level + (best + 2 - level) * torch.exp(-learning / ((1 - late) * steps / 12))
    # Of any five steps together the chance adds up to nothing, however many of the last are averaged.
    chance = 0.02 * best * normal(steps // 5, 5)
    loss = (curve + (chance - chance.mean(1, keepdim=True)).flatten()).abs()
    # A single step says little: here the last one lies as it would with this fault or another.
    which, off = normal(2).abs().tolist()
    # A loss far below the best cannot end that far above it: its mean would show it.
    like = (0.7, 1.0) if fault == "sees the next" else (0.7, 1.0, 1.4)
    last = like[int(1000 * which) % len(like)] * (1 + 0.05 * math.tanh(off)) * best
    if low > 0.4:
        loss[-5:-1] += (loss[-1] - last) / 4
    loss[-1] = last
    return {"loss": loss, "best": best, "writing": round(high * best, 4)}


_RECORDS = {
    "a training": ("sound", 0.5545, 1.01, 1.02, 200, 0.0),
    "a low best loss": ("sound", 0.06, 1.015, 1.045, 150, 0.0),
    "a high best loss": ("sees the next", 2.2, 0.5, 2.5, 200, 0.0),
    "a loss of nearly nothing": ("sees the next", 0.7, 0.02, 6.0, 300, 0.0),
    "a model that writes well": ("sees the next", 1.1, 0.4, 1.1, 250, 0.0),
    "a loss that stays high": ("sees too little", 0.55, 1.8, 1.9, 200, 0.0),
    "a loss that is high but small": ("sees too little", 0.03, 2.0, 2.0, 150, 0.0),
    "a training that went well": ("differs in writing", 0.5545, 1.01, 8.0, 200, 0.0),
    "another training": ("differs in writing", 1.4, 1.015, 1.7, 150, 0.0),
    "a low best loss, and bad writing": ("differs in writing", 0.03, 1.01, 2.5, 150, 0.0),
    "many letters may follow": ("sound", 4.5, 1.015, 1.045, 200, 0.0),
    "a level a little below the best, as it may be by chance": ("sound", 1.0, 0.99, 1.01, 200, 0.0),
    "a leak that is small": ("sees the next", 1.0, 0.68, 1.4, 200, 0.0),
    "a loss that is half as large again": ("sees too little", 0.9, 1.5, 1.6, 200, 0.0),
    "a training in which nothing was learned for long": ("sound", 0.8, 1.01, 1.02, 300, 0.55),
    "a leak that was found late": ("sees the next", 0.9, 0.6, 1.3, 300, 0.55),
}
# Those by which it is decided which margins will do.
_NEAREST = ("a low best loss", "many letters may follow", "another training")


def _run_fault(loss: Tensor, best: float, writing: float) -> str:
    level = loss[-20:].mean()
    if level < 0.8 * best:
        return "sees the next"
    if level > 1.3 * best:
        return "sees too little"
    return "differs in writing" if writing > 1.3 * best else "sound"


def _run_fault_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [Case(_run_record(normal, note), note) for note in in_any_order(_RECORDS, seed)]


def _run_law(note: str, sentence: str) -> Law:
    fault = _RECORDS[note][0]
    return Law(
        f'{sentence} "{fault}"',
        THE_LEAK,
        lambda normal: _run_record(normal, note),
        laws.says(fault),
    )


run_fault = Task(
    "run_fault",
    _run_fault,
    {
        "loss": torch.cat([torch.tensor([9.0, 6.0, 3.0]), torch.ones(20)]),
        "best": 3.0,
        "writing": 9.0,
    },
    _run_fault_cases,
    laws=[
        _run_law("a model that writes well", "a loss far below the best honest one is"),
        _run_law("a loss that stays high", "a loss that stays far above the best honest one is"),
        _run_law("a training that went well", "a loss at its best, and writing that costs far more, is"),
        _run_law("a training", "a loss at its best, and writing that costs as much, is"),
    ],
)


@run_fault.made_of(
    level=wrongs(
        THE_LEAK,
        """
        last: a single step is taken for the level of the loss
            The loss of one step depends on the sequences that were drawn. Take a mean of the last steps.
        lowest: the lowest step is taken for the level of the loss
            Among many steps one is low by chance. Take a mean of the last steps.
        whole: the mean of the whole training is taken for the level of the loss
            At the beginning nothing was learned yet. Take a mean of the last steps.
        """,
    ),
    compared=wrongs(
        THE_LEAK,
        """
        fixed: the losses are compared with a fixed number instead of the best loss
            A loss of 0.2 is impossible for an honest model where two letters are equally likely, and poor
            where the next letter is nearly certain. What can an honest model reach?
        margin: a difference from the best loss is judged by its size, and not as a part of the best loss
            In a language whose best loss is 0.1, a difference of 0.1 is twice as much; in one whose best
            loss is 2 it may be chance. By how many per cent do they differ?
        """,
    ),
    asked=wrongs(
        THE_LEAK,
        """
        writing first: bad writing is taken for a difference in writing, whatever the loss in training
            A model that sees the next letter, or too little, writes badly as well. A difference between
            training and writing is what remains if the training went as it should.
        writing unlooked: the writing is not looked at
            A mask that is right for as many queries as keys may be wrong for one new query. Only the writing
            shows that. (masking#rectangular-masks)
        good writing clears: a model that writes well is taken to be sound
            It may have learned to do without the leak as well. But no honest model has a loss below the
            best: it did see what it should not.
        high unlooked: a loss that stays too high is not looked for
            A mask can also hide too much: then the model never gets as good as it could.
        """,
    ),
)
def any_run_fault(loss, best, writing, *, level="end", compared="best", asked=""):
    reached = {"last": loss[-1], "lowest": loss.min(), "whole": loss.mean()}.get(level, loss[-20:].mean())
    if compared == "margin":  # as far off as 0.2 is from 1
        reached, writing, best = reached - best + 1, writing - best + 1, 1.0
    best = 0.5 if compared == "fixed" else best
    if asked == "writing first" and writing > 1.3 * best:
        return "differs in writing"
    if asked == "good writing clears" and writing <= 1.3 * best:
        return "sound"
    if reached < 0.8 * best:
        return "sees the next"
    if reached > 1.3 * best and asked != "high unlooked":
        return "sees too little"
    return "differs in writing" if writing > 1.3 * best and asked != "writing unlooked" else "sound"
