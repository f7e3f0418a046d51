"""Tasks of the unit ``masking``: which query may see which key, and what an empty row gives."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import attention_operator, masking
from attncourse.checks.probe import Misfit, given
from attncourse.checks.task import Case, Task, in_any_order, normal_source


def _whole(seed: int) -> Callable[[int, int], int]:
    """A source of whole numbers: ``whole(2, 5)`` is 2, 3, 4 or 5."""
    generator = torch.Generator().manual_seed(seed)

    def whole(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=generator))

    return whole


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
    **how: Any,
) -> Case:
    inputs = {
        "query": normal(*batch, queries, 4, dtype=dtype),
        "key": normal(*batch, keys, 4, dtype=dtype),
        "value": normal(*batch, keys, value_dim, dtype=dtype),
        "mask": mask,
    }
    return Case(inputs, note, **how)


# ---------------------------------------------------------------------------------------
# Find the leak
# ---------------------------------------------------------------------------------------


def _mended_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    low = _attention_case(
        normal, (), 3, 5, _random_mask(normal, 3, 5), "scores that are all far below zero", torch.float64
    )
    low.inputs["query"][:, 0], low.inputs["key"][:, 0] = 20, -20
    return [
        _attention_case(normal, (), 3, 5, _random_mask(normal, 3, 5), "no batch"),
        _attention_case(normal, (), 4, 4, masking.causal_mask(4), "a causal mask"),
        _attention_case(normal, (2,), 3, 6, _random_mask(normal, 3, 6), "one mask for a batch"),
        _attention_case(normal, (3,), 4, 4, _random_mask(normal, 3, 4, 4), "a mask for each sequence"),
        low,
        _attention_case(normal, (1,), 3, 5, _random_mask(normal, 1, 3, 5), "a batch of one"),
    ]


mended_attention = Task("mended_attention", attention_operator.attention, _mended_attention_cases)


@mended_attention.misconception(
    "the forbidden scores are set to 0, and still get weight",
    hint="""A score of 0 is a score like any other: it can even be the best of its row. What weight does
    exp(0) lead to? Which score leads to a weight of exactly 0?""",
    read="masking#masking-two-wrong",
)
def mended_scores_times_mask(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores * mask, -1) @ value


@mended_attention.misconception(
    "the weights are set to 0 after the softargmax, and what is left does not sum to 1",
    hint="""Nothing forbidden is averaged any more, but each row has lost the weight that the forbidden keys
    had taken. Sum the rows of your weights. Either the forbidden keys must not take part in the sum, or
    the sum must be made good.""",
    read="masking#masking-two-wrong",
)
def mended_weights_times_mask(query, key, value, mask):
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
    return weights * mask @ value


@mended_attention.misconception(
    "the polarity is inverted: the allowed keys are hidden",
    hint="""Here True means "may attend". `masked_fill` fills where its argument is True. Which entries are
    to be filled?""",
    read="masking#two-polarities",
)
def mended_inverted(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ value


@mended_attention.misconception(
    "the forbidden scores get a number that is low, but not low enough",
    hint="""How low is low enough depends on the other scores of the row. If they all lie far below your
    number, the forbidden keys win. Is there a number that is below every score?""",
    read="masking#minus-a-billion",
)
def mended_not_low_enough(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -100.0), -1) @ value


@mended_attention.misconception(
    "infinity is multiplied by zero",
    hint="""You add minus infinity times something that is 1 where a key is forbidden and 0 elsewhere. What is
    0 times infinity? Print it. Choose between two numbers instead of multiplying.""",
    read="masking#two-polarities",
)
def mended_zero_times_infinity(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores + (1 - mask.to(scores.dtype)) * -math.inf, -1) @ value


@mended_attention.misconception(
    "the mask is transposed: it hides queries instead of keys",
    hint="""Row i of the mask belongs to query i, like row i of the scores. It fits as it is.""",
    read="masking#masking-patterns",
)
def mended_transposed(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask.mT, -math.inf), -1) @ value


@mended_attention.misconception(
    "the mask is not used any more",
    hint="""The leak is now as large as it can be: every query sees every key. Where does `mask` come in?""",
    read="masking#masking-three-ways",
)
def mended_without_mask(query, key, value, mask):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@mended_attention.misconception(
    "the forbidden scores are set to plus infinity",
    hint="""Follow a forbidden score: what is its exponential, and what should it be? Mind the sign.""",
    read="masking#masking-three-ways",
)
def mended_plus_infinity(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, math.inf), -1) @ value


@mended_attention.misconception(
    "the mask holds, but the scores are not scaled any more",
    hint="""Compare line by line with the function that leaks: only its mask was wrong.""",
    read="attention_operator#why-the-scale",
)
def mended_unscaled(query, key, value, mask):
    return torch.softmax((query @ key.mT).masked_fill(~mask, -math.inf), -1) @ value


@mended_attention.misconception(
    "the softmax runs over the queries instead of the keys",
    hint="""Each row of weights belongs to a query and sums to 1. Sum yours along the last dimension.""",
    read="attention_operator#rows-and-columns",
)
def mended_softmax_over_queries(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -2) @ value


# ---------------------------------------------------------------------------------------
# The causal mask
# ---------------------------------------------------------------------------------------


def _causal_mask_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    square, keys, queries = whole(3, 7), whole(4, 9), whole(2, 4)
    sizes = [
        (square, square, "as many queries as keys"),
        (1, keys, "one new query"),
        (queries, queries + whole(1, 4), "a few new queries"),
        (1, 1, "the first position"),
    ]
    return [Case({"num_queries": queries, "num_keys": keys}, note) for queries, keys, note in sizes]


causal_mask = Task("causal_mask", masking.causal_mask, _causal_mask_cases)


@causal_mask.misconception(
    "the diagonal is missing: a position may not see itself",
    hint="""The position's own word is known when the next one is to be predicted. And what would the very
    first position see?""",
    read="masking#diagonal",
)
def causal_strict(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).tril(num_keys - num_queries - 1).bool()


@causal_mask.misconception(
    "the triangle is transposed: each position sees the future instead of the past",
    hint="""Rows ask, columns answer. In which columns, left or right, do the earlier positions stand?""",
    read="masking#masking-patterns",
)
def causal_transposed(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).triu(num_keys - num_queries).bool()


@causal_mask.misconception(
    "the polarity is inverted: True stands where a query may not attend",
    hint="""The shape of the triangle is right. In this course, and in `scaled_dot_product_attention`, what
    does a True allow?""",
    read="masking#two-polarities",
)
def causal_inverted(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).triu(num_keys - num_queries + 1).bool()


@causal_mask.misconception(
    "queries and keys are aligned at the start instead of at the end",
    hint="""With as many queries as keys this is right. With fewer, the queries are the *last* positions of
    the sequence. Take one query and four keys: which position is it, and how many keys does it see?""",
    read="masking#rectangular-masks",
)
def causal_at_the_start(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).tril().bool()


@causal_mask.misconception(
    "the offset between queries and keys has the wrong sign",
    hint="""There are keys from before the first query. Do they move the triangle's edge to the right or to
    the left? Try one query and four keys.""",
    read="masking#rectangular-masks",
)
def causal_wrong_sign(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).tril(num_queries - num_keys).bool()


@causal_mask.misconception(
    "each position sees one position too far: the next one",
    hint="""The next word is what a position is to predict. Print your mask for three queries and three keys,
    and read its first row.""",
    read="masking#diagonal",
)
def causal_one_ahead(num_queries, num_keys):
    return torch.ones(num_queries, num_keys).tril(num_keys - num_queries + 1).bool()


@causal_mask.misconception(
    "0 and minus infinity instead of True and False",
    hint="""These numbers are made to be added to the scores. That is another form of the same mask; asked for
    is the one that says yes or no.""",
    read="masking#two-polarities",
)
def causal_additive(num_queries, num_keys):
    return torch.full((num_queries, num_keys), -math.inf).triu(num_keys - num_queries + 1)


@causal_mask.misconception(
    "every query may see every key",
    hint="""Nothing is hidden yet. Which keys has query i no right to see?""",
    read="masking#masking-patterns",
)
def causal_nothing_hidden(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool)


@causal_mask.misconception(
    "keys stand in rows and queries in columns",
    hint="""Rows ask, columns answer. Which of the two row numbers has to stand upright?""",
    read="masking#masking-patterns",
)
def causal_keys_in_rows(num_queries, num_keys):
    return torch.arange(num_keys)[:, None] <= torch.arange(num_queries) + num_keys - num_queries


# ---------------------------------------------------------------------------------------
# The local mask
# ---------------------------------------------------------------------------------------


def _local_mask(num_queries: int, num_keys: int, radius: int) -> Tensor:
    return masking.local_mask(num_queries, num_keys, radius=radius)


def _local_mask_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    square, queries = whole(6, 9), whole(2, 4)
    settings = [
        (square, square, 2, "as many queries as keys"),
        (square, square, 0, "a radius of 0"),
        (queries, queries + whole(3, 5), 1, "fewer queries than keys"),
        (1, whole(6, 9), 3, "one new query"),
    ]
    return [
        Case({"num_queries": queries, "num_keys": keys, "radius": radius}, note)
        for queries, keys, radius, note in settings
    ]


local_mask = Task("local_mask", _local_mask, _local_mask_cases)


@local_mask.misconception(
    "the window has only one side: the past",
    hint="""A distance has no sign. How far is position 5 from position 3, and how far position 3 from
    position 5?""",
    read="masking#masking-patterns",
)
def local_past_only(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    distance = own - torch.arange(num_keys)
    return (distance >= 0) & (distance <= radius)


@local_mask.misconception(
    "the distance is not made positive, so that one side is never cut off",
    hint="""A key far on the one side has a large difference, a key far on the other side a large negative
    one. Your comparison lets the second through.""",
    read="masking#masking-patterns",
)
def local_without_abs(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return own - torch.arange(num_keys) <= radius


@local_mask.misconception(
    "positions at a distance of exactly the radius are left out",
    hint="""With radius 0 each query should still see its own position. What does yours see?""",
    read="masking#masking-patterns",
)
def local_less_than(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return (own - torch.arange(num_keys)).abs() < radius


@local_mask.misconception(
    "the radius is taken for the width of the whole window",
    hint="""A radius goes from the middle to the edge. How many positions does a query see with radius 2?""",
    read="masking#masking-patterns",
)
def local_width(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return (own - torch.arange(num_keys)).abs() <= radius // 2


@local_mask.misconception(
    "queries and keys are aligned at the start instead of at the end",
    hint="""With fewer queries than keys, the queries are the last positions of the sequence, as in the causal
    mask. At which position among the keys does query 0 stand?""",
    read="masking#rectangular-masks",
)
def local_at_the_start(num_queries, num_keys, radius):
    return (torch.arange(num_queries)[:, None] - torch.arange(num_keys)).abs() <= radius


@local_mask.misconception(
    "the polarity is inverted: True stands where a query may not attend",
    hint="""The window is in the right place. Does a True open it or close it?""",
    read="masking#two-polarities",
)
def local_inverted(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    return (own - torch.arange(num_keys)).abs() > radius


@local_mask.misconception(
    "a query does not see its own position",
    hint="""What is the distance of a position from itself, and is that at most the radius?""",
    read="masking#masking-patterns",
)
def local_without_itself(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    distance = (own - torch.arange(num_keys)).abs()
    return (distance > 0) & (distance <= radius)


@local_mask.misconception(
    "the window ends one position too early on the right",
    hint="""The end of a slice, and of a range, is not part of it. Which is the last key that is still near
    enough?""",
    read="masking#masking-patterns",
)
def local_slice_too_short(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries
    distance = torch.arange(num_keys) - own
    return (distance >= -radius) & (distance < radius)


@local_mask.misconception(
    "a slice begins at a negative number, which counts from the end",
    hint="""Near the start of the sequence, position minus radius is below 0. What does Python take -1 for in
    a slice? Print the first rows of your mask.""",
    read="masking#masking-patterns",
)
def local_negative_slice(num_queries, num_keys, radius):
    mask = torch.zeros(num_queries, num_keys, dtype=torch.bool)
    for i in range(num_queries):
        own = i + num_keys - num_queries
        mask[i, own - radius : own + radius + 1] = True
    return mask


@local_mask.misconception(
    "each query is taken to stand one position further on than it does",
    hint="""Take as many queries as keys: at which position does query 0 stand? And the last of two queries
    among five keys?""",
    read="masking#rectangular-masks",
)
def local_one_further(num_queries, num_keys, radius):
    own = torch.arange(num_queries)[:, None] + num_keys - num_queries + 1
    return (own - torch.arange(num_keys)).abs() <= radius


# ---------------------------------------------------------------------------------------
# Padding
# ---------------------------------------------------------------------------------------


def _lengths(whole: Callable[[int, int], int], batch: int, most: int) -> Tensor:
    """Lengths from 1 to `most`; the last is neither."""
    lengths = [whole(1, most) for _ in range(batch - 1)]
    return torch.tensor([*lengths, whole(2, most - 1)])


def _padding_mask_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    return [
        Case({"lengths": _lengths(whole, 3, 5), "num_keys": 5}),
        Case({"lengths": _lengths(whole, 4, 4), "num_keys": 4}, "as many sequences as keys"),
        Case({"lengths": torch.tensor([6, 0, whole(2, 5)]), "num_keys": 6}, "a full and an empty sequence"),
        Case({"lengths": torch.tensor([whole(1, 3)]), "num_keys": whole(4, 8)}, "a single sequence"),
    ]


padding_mask = Task("padding_mask", masking.padding_mask, _padding_mask_cases)


@padding_mask.misconception(
    "the queries are masked instead of the keys",
    hint="""Scores have shape (batch, queries, keys). Padding must not be *looked at*: along which of these
    dimensions do the positions stand that are looked at? The 1 belongs to the other.""",
    read="masking#padding-hides-keys",
)
def padding_of_queries(lengths, num_keys):
    return (torch.arange(num_keys) < lengths[:, None])[:, :, None]


@padding_mask.misconception(
    "queries and keys are both masked",
    hint="""Now the queries at padding positions see nothing at all, which makes empty rows for no need:
    nobody reads their outputs. It is enough that nobody looks at padding.""",
    read="masking#padding-hides-keys",
)
def padding_of_both(lengths, num_keys):
    true = torch.arange(num_keys) < lengths[:, None]
    return true[:, :, None] & true[:, None, :]


@padding_mask.misconception(
    "the dimension of the queries is missing",
    hint="""The numbers are right. But what happens when a mask of shape (batch, keys) meets scores of shape
    (batch, queries, keys)? Broadcasting lines dimensions up from the end: your batch would meet the
    queries.""",
    read="masking#padding-hides-keys",
)
def padding_without_queries(lengths, num_keys):
    return torch.arange(num_keys) < lengths[:, None]


@padding_mask.misconception(
    "the polarity is inverted: True stands where there is padding",
    hint="""This is what `key_padding_mask` of `nn.MultiheadAttention` wants. What does True mean in this
    course?""",
    read="masking#two-polarities",
)
def padding_inverted(lengths, num_keys):
    return torch.arange(num_keys) >= lengths[:, None, None]


@padding_mask.misconception(
    "one position too many is taken for true",
    hint="""Positions are counted from 0. What is the number of the last word of a sequence of length 3?""",
    read="masking#padding-hides-keys",
)
def padding_off_by_one(lengths, num_keys):
    return torch.arange(num_keys) <= lengths[:, None, None]


@padding_mask.misconception(
    "the padding is taken to stand at the start",
    hint="""Short sequences are filled up at the end here. Which positions are true if the length is 1?""",
    read="masking#padding-hides-keys",
)
def padding_at_the_start(lengths, num_keys):
    return torch.arange(num_keys) >= num_keys - lengths[:, None, None]


@padding_mask.misconception(
    "one position too few is taken for true",
    hint="""Positions are counted from 0. How many positions are True in the row of a full sequence, and how
    many should be?""",
    read="masking#padding-hides-keys",
)
def padding_one_too_few(lengths, num_keys):
    return torch.arange(1, num_keys + 1) < lengths[:, None, None]


@padding_mask.misconception(
    "the dimension of size 1 stands before the batch",
    hint="""Lined up with scores of shape (batch, queries, keys), your sequences would meet the queries. Which
    of the three dimensions does not matter for padding?""",
    read="masking#padding-hides-keys",
)
def padding_one_in_front(lengths, num_keys):
    return (torch.arange(num_keys) < lengths[:, None])[None]


@padding_mask.misconception(
    "the dimension of the queries is as long as that of the keys",
    hint="""That fits only where there are as many queries as keys, and the function is not told how many
    queries there are. How long must a dimension be to fit any number?""",
    read="masking#padding-hides-keys",
)
def padding_square(lengths, num_keys):
    return (torch.arange(num_keys) < lengths[:, None, None]).expand(-1, num_keys, -1)


# ---------------------------------------------------------------------------------------
# Causal and padded
# ---------------------------------------------------------------------------------------


def _decoder_mask(lengths: Tensor, num_positions: int) -> Tensor:
    return masking.causal_mask(num_positions) & masking.padding_mask(lengths, num_positions)


def _decoder_mask_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    return [
        Case({"lengths": _lengths(whole, 2, 5), "num_positions": 5}),
        Case({"lengths": _lengths(whole, 4, 4), "num_positions": 4}, "as many sequences as positions"),
        Case({"lengths": torch.tensor([whole(2, 5), 6, 1]), "num_positions": 6}, "one without padding"),
        Case({"lengths": torch.tensor([whole(2, 3)]), "num_positions": 4}, "a single sequence"),
    ]


decoder_mask = Task(
    "decoder_mask", _decoder_mask, _decoder_mask_cases, allows=("causal_mask", "padding_mask", "local_mask")
)


@decoder_mask.misconception(
    "either is enough: the two masks are joined by `or`",
    hint="""A key must be no padding, *and* it must not lie in the future. How are two conditions joined that
    must both hold?""",
    read="masking#combining-masks",
)
def decoder_or(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril().bool()
    return causal | (torch.arange(num_positions) < lengths[:, None, None])


@decoder_mask.misconception(
    "padding is hidden, but the future is not",
    hint="""Read the first row of your mask aloud: what does the first word see?""",
    read="masking#combining-masks",
)
def decoder_padding_only(lengths, num_positions):
    mask = torch.arange(num_positions) < lengths[:, None, None]
    return mask.expand(-1, num_positions, -1)


@decoder_mask.misconception(
    "the future is hidden, but padding is not",
    hint="""All sequences have the same mask, whatever their lengths. For which queries does that matter?""",
    read="masking#combining-masks",
)
def decoder_causal_only(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril().bool()
    return causal.expand(len(lengths), -1, -1)


@decoder_mask.misconception(
    "the queries at padding positions are masked, too",
    hint="""Nobody reads what comes out at a padding position, so its query may look at the true words. If it
    sees nothing its row is empty, and an empty row is a danger. Padding must not be looked at: is that a
    matter of rows or of columns?""",
    read="masking#padding-hides-keys",
)
def decoder_padding_of_queries(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril().bool()
    true = torch.arange(num_positions) < lengths[:, None]
    return causal & true[:, :, None]


@decoder_mask.misconception(
    "the diagonal is missing: a position may not see itself",
    hint="""The word at the position itself is known. What would the first position see otherwise?""",
    read="masking#diagonal",
)
def decoder_strict(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril(-1).bool()
    return causal & (torch.arange(num_positions) < lengths[:, None, None])


@decoder_mask.misconception(
    "the triangle is transposed: each position sees the future instead of the past",
    hint="""Rows ask, columns answer. In which columns do the earlier positions stand?""",
    read="masking#masking-patterns",
)
def decoder_transposed(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).triu().bool()
    return causal & (torch.arange(num_positions) < lengths[:, None, None])


@decoder_mask.misconception(
    "the polarity is inverted: True stands where a query may not attend",
    hint="""Everything is in its place, except that True and False are exchanged.""",
    read="masking#two-polarities",
)
def decoder_inverted(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril().bool()
    return ~(causal & (torch.arange(num_positions) < lengths[:, None, None]))


@decoder_mask.misconception(
    "a whole mask is asked whether it is true, as `and`, `or`, `not` and `if` do",
    hint="""Python's `and` wants one yes or no from each side, and a mask holds many. Which operator joins two
    masks entry by entry?""",
    read="masking#combining-masks",
)
def decoder_python_and(lengths, num_positions):
    causal = torch.ones(num_positions, num_positions).tril().bool()
    return causal and (torch.arange(num_positions) < lengths[:, None, None])


# ---------------------------------------------------------------------------------------
# Masked attention that survives an empty row, in value and in gradient
# ---------------------------------------------------------------------------------------


def _with_gradients(answer: Callable, inputs: dict[str, Any]) -> dict[str, Tensor]:
    """The output, and the gradients of a weighted sum of it."""
    mask = inputs["mask"]
    differentiable = {name: inputs[name].detach().requires_grad_() for name in ("query", "key", "value")}
    output = answer(*differentiable.values(), mask)
    if output is None:
        raise Misfit("one tensor was expected: the output. Is there a `return` at the end of your function?")
    if not isinstance(output, Tensor) or not output.dtype.is_floating_point:
        raise Misfit("one tensor of floating-point numbers was expected: the output, on its own")
    if not output.requires_grad and mask.any():
        raise Misfit(
            "no gradient flows from the output back to the inputs. Numbers that were taken out of a tensor "
            "by `item`, `tolist`, `detach` or NumPy have forgotten how they were made"
        )
    gradients: tuple[Tensor | None, ...] = (None, None, None)
    # A NaN in the output is told first; what it does to the gradients depends on how it came about.
    if output.requires_grad and not output.isnan().any():
        upstream = torch.linspace(1, 2, output.numel(), dtype=output.dtype).view(output.shape)
        gradients = torch.autograd.grad(output, tuple(differentiable.values()), upstream, allow_unused=True)
    found = {"output": output}
    for (name, value), gradient in zip(differentiable.items(), gradients, strict=True):
        found[f"gradient of {name}"] = torch.zeros_like(value) if gradient is None else gradient
    return found


def _masked_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    empty = _random_mask(normal, 4, 4)
    empty[1] = False
    tempting = _attention_case(
        normal, (), 3, 5, _random_mask(normal, 3, 5), "a forbidden key with a huge score", torch.float64
    )
    tempting.inputs["mask"][:, 2] = False
    tempting.inputs["mask"][:, 0] = True
    tempting.inputs["query"][:, 0] = 40
    tempting.inputs["key"][2, 0] = 80
    return [
        _attention_case(normal, (), 3, 5, _random_mask(normal, 3, 5), "no empty row"),
        _attention_case(normal, (), 4, 4, empty, "an empty row"),
        _attention_case(normal, (2,), 4, 4, empty, "a batch, and an empty row in each part", torch.float64),
        _attention_case(
            normal, (3,), 4, 4, masking.padding_mask([3, 0, 2], 4), "padding, and a sequence of nothing else"
        ),
        tempting,
        _attention_case(normal, (), 2, 3, torch.zeros(2, 3, dtype=torch.bool), "nothing may be seen"),
        _attention_case(normal, (1,), 3, 4, masking.padding_mask([2], 4), "a batch of one"),
    ]


masked_attention = Task(
    "masked_attention", attention_operator.attention, _masked_attention_cases, call=_with_gradients
)


@masked_attention.misconception(
    "the scores are multiplied by the mask",
    hint="""A forbidden key gets the score 0, and exp(0) is 1: it takes part like any other. Which score leads
    to a weight of exactly 0?""",
    read="masking#masking-two-wrong",
)
def masked_scores_times_mask(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores * mask, -1) @ value


@masked_attention.misconception(
    "the weights are masked after the softargmax and not renormalised",
    hint="""Sum the rows of your weights: what the forbidden keys had taken is missing.""",
    read="masking#masking-two-wrong",
)
def masked_after(query, key, value, mask):
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
    return weights * mask @ value


@masked_attention.misconception(
    "an empty row comes out as NaN",
    hint="""Where all scores of a row are minus infinity, softmax computes 0/0. Everything else is right. Such
    a row has to be noticed, before it is divided by its sum.""",
    read="masking#empty-rows",
)
def masked_nan(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -math.inf), -1) @ value


@masked_attention.misconception(
    "an empty row averages all the values that it may not see",
    hint="""With a large negative number in place of minus infinity, all scores of an empty row are the same
    number, and softmax sees only differences. So nothing is hidden just where everything should be.""",
    read="masking#minus-a-billion",
)
def masked_minus_a_billion(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask, -1e9), -1) @ value


@masked_attention.misconception(
    "the NaN is taken out of the output, but it is still there in the gradient of the values",
    hint="""The output now looks right. Going backwards, the values get their gradient from the weights: the
    transposed weights times what comes from above. NaN times 0 is NaN. It must not arise in the first
    place.""",
    read="masking#nan-in-the-gradient",
)
def masked_nan_to_num_of_output(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    weights = torch.softmax(scores.masked_fill(~mask, -math.inf), -1)
    return (weights @ value).nan_to_num(0.0)


@masked_attention.misconception(
    "the NaN is taken out of the output, but it is still there in all three gradients",
    hint="""The output now looks right. Going backwards, the values meet the NaN in the weights, and the
    scores meet it in softmax. NaN times 0 is NaN. It must not arise in the first place.""",
    read="masking#nan-in-the-gradient",
)
def masked_nan_to_num_of_output_added(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    additive = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return (torch.softmax(scores + additive, -1) @ value).nan_to_num(0.0)


@masked_attention.misconception(
    "the NaN is taken out of the weights, but it is still there in the gradient of the scores",
    hint="""The output now looks right, and so does the gradient of the values. But going backwards through
    softmax, the NaN that you have replaced is met again, and reaches queries and keys. It must not arise in
    the first place.""",
    read="masking#nan-in-the-gradient",
)
def masked_nan_to_num_of_weights(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    additive = torch.zeros(mask.shape, dtype=scores.dtype).masked_fill(~mask, -math.inf)
    return torch.softmax(scores + additive, -1).nan_to_num(0.0) @ value


@masked_attention.misconception(
    "the weights are renormalised too late: a forbidden key with a huge score has taken all",
    hint="""Masking after the softargmax and dividing by the new sum is right on paper. But if a forbidden key
    is far ahead, all the others are rounded to 0 before they are asked. The largest score that you subtract
    must be one that is allowed.""",
    read="masking#masking-three-ways",
)
def masked_renormalised(query, key, value, mask):
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) * mask
    total = weights.sum(-1, keepdim=True)
    return weights / torch.where(total == 0, 1.0, total) @ value


@masked_attention.misconception(
    "the polarity is inverted: the allowed keys are hidden",
    hint="""True means "may attend". `masked_fill` fills where its argument is True.""",
    read="masking#two-polarities",
)
def masked_inverted(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ value


@masked_attention.misconception(
    "the mask is transposed: it is applied along the wrong dimension",
    hint="""Row i of the mask belongs to query i, and its columns are keys, as in the scores. It broadcasts as
    it is.""",
    read="masking#masking-patterns",
)
def masked_transposed(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~mask.mT, -math.inf), -1) @ value


@masked_attention.misconception(
    "the scores are not scaled",
    hint="""The mask does its work. But the more features a query and a key have, the larger their dot
    product: what keeps its size the same?""",
    read="attention_operator#why-the-scale",
)
def masked_unscaled(query, key, value, mask):
    empty = ~mask.any(-1, keepdim=True)
    scores = (query @ key.mT).masked_fill(~(mask | empty), -math.inf)
    return torch.softmax(scores, -1).masked_fill(empty, 0.0) @ value


@masked_attention.misconception(
    "infinity is multiplied by zero",
    hint="""What is 0 times infinity? Print it. Choose between two numbers instead of multiplying.""",
    read="masking#two-polarities",
)
def masked_zero_times_infinity(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores + (1 - mask.to(scores.dtype)) * -math.inf, -1) @ value


@masked_attention.misconception(
    "an empty row is let see everything, and what it sees is not erased",
    hint="""There is no NaN any more, because the empty row has something to share out. But it was to see
    nothing. What must become of its weights?""",
    read="masking#empty-rows",
)
def masked_not_erased(query, key, value, mask):
    empty = ~mask.any(-1, keepdim=True)
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores.masked_fill(~(mask | empty), -math.inf), -1) @ value


@masked_attention.misconception(
    "the exponentials are masked, but those of large scores overflow",
    hint="""exp(1000) is infinite, and infinity times 0 is NaN. Scores may be of any size. What may be
    subtracted from a row of scores without changing its weights, and which keys may have a say in it?""",
    read="masking#masking-three-ways",
)
def masked_overflow(query, key, value, mask):
    exponentials = torch.exp(query @ key.mT / math.sqrt(query.shape[-1])) * mask
    total = exponentials.sum(-1, keepdim=True)
    return exponentials / torch.where(total == 0, 1.0, total) @ value


# ---------------------------------------------------------------------------------------
# Conventions
# ---------------------------------------------------------------------------------------


def _additive_mask_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    empty = _random_mask(normal, 4, 4)
    empty[2] = False
    return [
        Case({"mask": _random_mask(normal, 3, 5)}),
        Case({"mask": _random_mask(normal, 2, 1, 6)}, "a padding mask"),
        Case({"mask": empty}, "an empty row"),
    ]


additive_mask = Task("additive_mask", masking.additive_mask, _additive_mask_cases)


@additive_mask.misconception(
    "infinity is multiplied by zero",
    hint="""Look at the entries that should be 0. What is 0 times infinity? Choose between two numbers instead
    of multiplying one by 0 or 1.""",
    read="masking#two-polarities",
)
def additive_zero_times_infinity(mask):
    return (1 - mask.float()) * -math.inf


@additive_mask.misconception(
    "the polarity is inverted: what is allowed gets minus infinity",
    hint="""What has to be added to the score of an allowed key so that it stays as it is?""",
    read="masking#two-polarities",
)
def additive_inverted(mask):
    return torch.zeros(mask.shape).masked_fill(mask, -math.inf)


@additive_mask.misconception(
    "these are numbers to multiply by, not to add",
    hint="""Adding 0 leaves a score as it is. What must be added to a score so that its exponential becomes
    0?""",
    read="masking#two-polarities",
)
def additive_zero_and_one(mask):
    return mask.float()


@additive_mask.misconception(
    "a large negative number stands in place of minus infinity",
    hint="""In a row where everything is forbidden, the same number everywhere hides nothing at all. And in
    half precision a billion does not exist.""",
    read="masking#minus-a-billion",
)
def additive_minus_a_billion(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, -1e9)


@additive_mask.misconception(
    "the most negative finite number stands in place of minus infinity",
    hint="""Added to negative scores it may overflow; in a row where everything is forbidden it hides nothing.
    There is a number that is below all others.""",
    read="masking#minus-a-billion",
)
def additive_lowest_finite(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)


@additive_mask.misconception(
    "the allowed entries are left at 1",
    hint="""A mask turned into numbers has 1 where it was True. What does a score become to which this is
    added? And what should it become?""",
    read="masking#two-polarities",
)
def additive_ones_left(mask):
    return mask.float().masked_fill(~mask, -math.inf)


@additive_mask.misconception(
    "the forbidden entries are plus infinity",
    hint="""Added to a score this makes a forbidden key the best of all. Which way do the scores have to
    go?""",
    read="masking#two-polarities",
)
def additive_plus_infinity(mask):
    return torch.zeros(mask.shape).masked_fill(~mask, math.inf)


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


multihead_mask = Task("multihead_mask", _multihead_mask, _multihead_mask_cases)


@multihead_mask.misconception(
    "the polarity is not converted",
    hint="""The order is right. But `nn.MultiheadAttention` reads True as "may not attend".""",
    read="masking#two-polarities",
)
def multihead_same_polarity(mask, num_heads):
    return mask.repeat_interleave(num_heads, dim=0)


@multihead_mask.misconception(
    "the order is wrong: all sequences for the first head, then all for the second",
    hint="""Number b * num_heads + h must be the mask of sequence b. Write down, for two sequences and two
    heads, whose mask stands in each of the four places.""",
    read="masking#two-polarities",
)
def multihead_heads_outside(mask, num_heads):
    return (~mask).repeat(num_heads, 1, 1)


@multihead_mask.misconception(
    "neither the polarity nor the order is right",
    hint="""Take one at a time. What does True mean to `nn.MultiheadAttention`? And whose mask stands in place
    number b * num_heads + h?""",
    read="masking#two-polarities",
)
def multihead_neither(mask, num_heads):
    return mask.repeat(num_heads, 1, 1)


@multihead_mask.misconception(
    "the mask is not repeated for the heads",
    hint="""With several heads there is one score matrix for each sequence *and* head. How many matrices are
    that?""",
    read="masking#two-polarities",
)
def multihead_not_repeated(mask, num_heads):
    return ~mask


@multihead_mask.misconception(
    "the heads have a dimension of their own",
    hint="""The masks are right, and in the right order, but `nn.MultiheadAttention` wants batch and heads
    together in one dimension.""",
    read="masking#two-polarities",
)
def multihead_own_dimension(mask, num_heads):
    return (~mask)[:, None].repeat(1, num_heads, 1, 1)


@multihead_mask.misconception(
    "queries and keys are exchanged",
    hint="""Only what True means differs between the two conventions. In both, rows are queries and columns
    are keys.""",
    read="masking#masking-patterns",
)
def multihead_transposed(mask, num_heads):
    return (~mask.mT).repeat_interleave(num_heads, dim=0)


@multihead_mask.misconception(
    "the repetition has taken the mask apart: everything stands in one row",
    hint="""Without a dimension, `repeat_interleave` repeats single numbers. What is to be repeated here is a
    whole mask. Along which dimension do the masks stand?""",
    read="masking#two-polarities",
)
def multihead_without_dim(mask, num_heads):
    return (~mask).repeat_interleave(num_heads)


# ---------------------------------------------------------------------------------------
# Who depends on whom
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


dependencies = Task("dependencies", _dependencies, _dependencies_cases)


@dependencies.misconception(
    "derivatives of opposite sign cancel",
    hint="""A block with the derivatives 0.75 and -0.75 sums to 0, and yet the output depends on the input.
    The question is whether any of them is not 0.""",
    read="masking#influence-exact-zeros",
)
def dependencies_summed(jacobian):
    return jacobian.sum(dim=(1, 3)) != 0


@dependencies.misconception(
    "only positive derivatives are counted",
    hint="""An input that lowers the output when it grows has influence, too.""",
    read="masking#influence-exact-zeros",
)
def dependencies_positive(jacobian):
    return (jacobian > 0).any(dim=3).any(dim=1)


@dependencies.misconception(
    "all features must depend, instead of any",
    hint="""One feature of the output that changes with one feature of the input is enough: information has
    passed.""",
    read="masking#influence-exact-zeros",
)
def dependencies_all(jacobian):
    return (jacobian != 0).all(dim=3).all(dim=1)


@dependencies.misconception(
    "small derivatives are taken for zero",
    hint="""A mask makes derivatives exactly 0, not small. A small derivative is a small leak. Which
    comparison knows no tolerance?""",
    read="masking#influence-exact-zeros",
)
def dependencies_tolerant(jacobian):
    return (jacobian.abs() > 1e-6).any(dim=3).any(dim=1)


@dependencies.misconception(
    "only the first feature of each position is looked at",
    hint="""A position has several features, and influence may run through any of them.""",
    read="masking#influence-exact-zeros",
)
def dependencies_first_feature(jacobian):
    return jacobian[:, 0, :, 0] != 0


@dependencies.misconception(
    "rows and columns are exchanged: inputs in rows, outputs in columns",
    hint="""In the Jacobian the output comes first. Keep that order: as in the attention map, rows ask.""",
    read="masking#influence-exact-zeros",
)
def dependencies_transposed(jacobian):
    return (jacobian != 0).any(dim=3).any(dim=1).mT


@dependencies.misconception(
    "True stands where there is no influence",
    hint="""You have found the zeros. Asked for is where the input *can* change the output.""",
    read="masking#influence-exact-zeros",
)
def dependencies_inverted(jacobian):
    return (jacobian == 0).all(dim=3).all(dim=1)


@dependencies.misconception(
    "the input positions are gone, and their features are left",
    hint="""Once dimension 1 is gone, those after it have moved up. Which number has the one that you want to
    take away next?""",
    read="masking#influence-exact-zeros",
)
def dependencies_moved_dimension(jacobian):
    return (jacobian != 0).any(dim=1).any(dim=1)


@dependencies.misconception(
    "a dimension is asked for that has moved up, because another one before it is gone",
    hint="""After the first `any` there are three dimensions. Write down which is which, or take them away in
    the other order.""",
    read="masking#influence-exact-zeros",
)
def dependencies_missing_dimension(jacobian):
    return (jacobian != 0).any(dim=1).any(dim=3)


# ---------------------------------------------------------------------------------------
# Which layers are causal
# ---------------------------------------------------------------------------------------

_WEIGHTS = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) / 2


def _attend(x: Tensor, mask: Tensor | None = None) -> Tensor:
    query, key, value = x @ _WEIGHTS
    return attention_operator.attention_weights(query, key, mask) @ value


def _causal(length: int) -> Tensor:
    return masking.causal_mask(length)


def _scores_times_mask(x: Tensor) -> Tensor:
    query, key, value = x @ _WEIGHTS
    return torch.softmax(query @ key.mT / 2 * _causal(len(x)), -1) @ value


def _weights_times_mask(x: Tensor) -> Tensor:
    query, key, value = x @ _WEIGHTS
    return torch.softmax(query @ key.mT / 2, -1) * _causal(len(x)) @ value


def _look_ahead(length: int, distance: int, first: bool, last: bool) -> Tensor:
    """A matrix that fetches the position so far ahead; the first output and the last input may stay out."""
    ahead = torch.ones(length, length, dtype=torch.float64).triu(distance).tril(distance)
    ahead[0] *= first
    ahead[:, -1] *= last
    return ahead


def _plus_or_minus_the_next(x: Tensor) -> Tensor:
    # The sum of an output's features does not feel the next position, nor does the sum of all derivatives.
    sign = torch.tensor([1, 1, -1, -1], dtype=x.dtype)
    return x + sign * (_look_ahead(len(x), 1, first=False, last=True) @ x[:, :1])


def _past_and_after_next(x: Tensor) -> Tensor:
    return _attend(x, _causal(len(x))) + _look_ahead(len(x), 2, first=True, last=False) @ x


def _past_and_direction_of_the_next(x: Tensor) -> Tensor:
    # Whoever makes a later input longer changes nothing.
    direction = torch.nn.functional.normalize(x, dim=-1)  # zeros for zeros
    return _attend(x, _causal(len(x))) + _look_ahead(len(x), 1, first=False, last=False) @ direction


_LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "causal attention": lambda x: _attend(x, _causal(len(x))),
    "attention without a mask": _attend,
    "attention to the last three positions": lambda x: _attend(
        x, _causal(len(x)) & masking.local_mask(len(x), radius=2)
    ),
    "every position, all but the first plus or minus a feature of the next": _plus_or_minus_the_next,
    "causal attention, and in the middle the direction of the next position": _past_and_direction_of_the_next,
    "causal attention, and the position after the next, but never the last": _past_and_after_next,
    "attention to earlier positions only, not to itself, added to x": lambda x: (
        x + _attend(x, torch.ones(len(x), len(x)).tril(-1).bool())
    ),
    "causal attention, from which the mean over all positions is subtracted": lambda x: (
        _attend(x, _causal(len(x))) - _attend(x, _causal(len(x))).mean(0)
    ),
    "scores multiplied by a causal mask": _scores_times_mask,
    "weights multiplied by a causal mask, not renormalised": _weights_times_mask,
    "every position by itself": lambda x: torch.tanh(x @ _WEIGHTS[0]),
    "causal attention, and a thousandth of attention without a mask": lambda x: (
        _attend(x, _causal(len(x))) + _attend(x) / 1000
    ),
}


def _is_causal(layer: Callable[[Tensor], Tensor], x: Tensor) -> bool:
    return not masking.influence(layer, x).triu(1).any()


def _ask_about_layer(answer: Callable, inputs: dict[str, Any]) -> Any:
    value = answer(given(_LAYERS[inputs["layer"]]), inputs["x"])
    # `(a == b).all()` is a tensor, and a yes or no all the same.
    if isinstance(value, Tensor) and value.dtype == torch.bool and value.numel() == 1:
        return value.item()
    return value


def _is_causal_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), _whole(seed)
    return [
        Case({"layer": name, "x": normal(whole(5, 8), 4, dtype=torch.float64)})
        for name in in_any_order(_LAYERS, seed)
    ]


is_causal = Task("is_causal", _is_causal, _is_causal_cases, call=_ask_about_layer)


@is_causal.misconception(
    "True stands for a layer that leaks",
    hint="""A causal layer is one in which no output depends on the future. Which answer does your function
    give for it?""",
    read="masking#which-are-causal",
)
def causality_inverted(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return bool((jacobian != 0).any(3).any(1).triu(1).any())


@is_causal.misconception(
    "only the influence of the last position on the first is looked at",
    hint="""A layer may look one position ahead and no further. Every output must be independent of *every*
    later input.""",
    read="masking#which-are-causal",
)
def causality_of_the_corner(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian[0, :, -1] != 0).any())


@is_causal.misconception(
    "only the influence of the next position is looked at",
    hint="""A layer may skip the next position and look at the one after it. Every output must be independent
    of *every* later input.""",
    read="masking#which-are-causal",
)
def causality_of_the_next(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian != 0).any(3).any(1).diagonal(1).any())


@is_causal.misconception(
    "a layer is called causal only if it uses the whole past",
    hint="""Causal means that nothing comes from the future. How much of the past a layer uses is its own
    affair: a layer that looks at one position at a time is causal.""",
    read="masking#which-are-causal",
)
def causality_with_the_whole_past(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    depends = (jacobian != 0).any(3).any(1)
    return bool((depends == torch.ones_like(depends).tril()).all())


@is_causal.misconception(
    "the past is forbidden instead of the future",
    hint="""Rows of the pattern are outputs, columns are inputs. Later inputs stand in the columns to the
    right of the diagonal.""",
    read="masking#which-are-causal",
)
def causality_of_the_past(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian != 0).any(3).any(1).tril(-1).any())


@is_causal.misconception(
    "a position may not depend on itself either",
    hint="""The position itself is not the future. Does the diagonal belong to what you forbid?""",
    read="masking#diagonal",
)
def causality_without_the_diagonal(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian != 0).any(3).any(1).triu(0).any())


@is_causal.misconception(
    "small leaks are overlooked",
    hint="""What a mask forbids has an influence of exactly 0. A small influence is a leak that training will
    find and use. Compare without a tolerance, or with a far smaller one.""",
    read="masking#influence-exact-zeros",
)
def causality_tolerant(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian.abs() > 0.005).any(3).any(1).triu(1).any())


@is_causal.misconception(
    "only the first output is looked at",
    hint="""The first position has the most future, but others have one, too. A layer may keep its first
    output clean and leak in the middle.""",
    read="masking#which-are-causal",
)
def causality_of_the_first(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian[0, :, 1:] != 0).any())


@is_causal.misconception(
    "only the influence of the last input is looked at",
    hint="""The last position lies in everybody's future, but it is not the only one that does. A layer may
    look ahead, and never as far as the end.""",
    read="masking#which-are-causal",
)
def causality_of_the_last(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian[:-1, :, -1] != 0).any())


@is_causal.misconception(
    "derivatives of opposite sign cancel",
    hint="""A later input may raise one feature of an output and lower another, and the sum of the derivatives
    is 0. Yet both depend on it. So do not add up features, neither before nor after the derivative.""",
    read="masking#influence-exact-zeros",
)
def causality_summed(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)
    return not bool((jacobian.sum(dim=(1, 3)) != 0).triu(1).any())


@is_causal.misconception(
    "the later inputs only change places with each other",
    hint="""Attention without a mask averages over a set, and does not notice the order of what it averages.
    Give the later positions something that was not there before.""",
    read="masking#which-are-causal",
)
def causality_by_exchange(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        other = torch.cat([x[:i], x[i:].flip(0)])
        if (layer(other)[:i] - before[:i]).abs().max() > 1e-9:
            return False
    return True


@is_causal.misconception(
    "NaN is put in for the later inputs, and 0 times NaN is NaN",
    hint="""A forbidden value has the weight 0, and still it is multiplied. What is 0 times NaN? Put in
    numbers that one can calculate with.""",
    read="masking#nan-in-the-gradient",
)
def causality_by_nan(layer, x):
    for i in range(1, len(x)):
        other = torch.cat([x[:i], torch.full_like(x[i:], math.nan)])
        if layer(other)[:i].isnan().any():
            return False
    return True


@is_causal.misconception(
    "the later inputs are changed, but in a way that a layer need not notice",
    hint="""You multiply the later inputs by a number. What does a layer see of that which takes only the
    direction of its inputs? Change them so that nothing of them stays as it was.""",
    read="masking#which-are-causal",
)
def causality_of_length_only(layer, x):
    before = layer(x)
    for i in range(1, len(x)):
        other = torch.cat([x[:i], 2 * x[i:]])
        if (layer(other)[:i] - before[:i]).abs().max() > 1e-9:
            return False
    return True


# ---------------------------------------------------------------------------------------
# Dropout on the weights
# ---------------------------------------------------------------------------------------


def _weight_dropout(weights: Tensor, keep: Tensor, dropout_p: float, training: bool) -> Tensor:
    return weights * keep / (1 - dropout_p) if training else weights.clone()


def _weight_dropout_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, dropout_p: float, training: bool, note: str, **how: Any) -> Case:
        weights = torch.softmax(normal(*shape, **how), -1)
        inputs = {
            "weights": weights,
            "keep": _random_mask(normal, *shape),
            "dropout_p": dropout_p,
            "training": training,
        }
        return Case(inputs, note)

    return [
        case(3, 5, dropout_p=0.25, training=True, note="training"),
        case(2, 4, 4, dropout_p=0.4, training=True, note="a batch in training"),
        case(3, 4, dropout_p=0.25, training=False, note="evaluation"),
        case(4, 3, dropout_p=0.1, training=True, note="double precision", dtype=torch.float64),
        case(1, 5, dropout_p=0.5, training=True, note="a single query"),
    ]


weight_dropout = Task(
    "weight_dropout", _weight_dropout, _weight_dropout_cases, refuses=("dropout", "dropout_")
)


@weight_dropout.misconception(
    "the weights that stay are not enlarged",
    hint="""On average over many draws, each weight should come out as it went in. A weight that is dropped
    one time in four must be larger the other three times. By which factor?""",
    read="masking#weight-dropout",
)
def dropout_unscaled(weights, keep, dropout_p, training):
    return weights * keep if training else weights.clone()


@weight_dropout.misconception(
    "each row is renormalised to sum to 1",
    hint="""Dropout is no mask. The factor is the same for every weight and does not depend on the draw; a row
    may sum to more than 1 or to less, and only its average is 1.""",
    read="masking#weight-dropout",
)
def dropout_renormalised(weights, keep, dropout_p, training):
    kept = weights * keep
    return kept / kept.sum(-1, keepdim=True) if training else weights.clone()


@weight_dropout.misconception(
    "weights are dropped in evaluation, too",
    hint="""Dropout makes training harder on purpose. When the model is used, every weight counts, and the
    answer must not depend on chance.""",
    read="masking#weight-dropout",
)
def dropout_always(weights, keep, dropout_p, training):
    return weights * keep / (1 - dropout_p)


@weight_dropout.misconception(
    "the weights are divided by the chance of being dropped",
    hint="""If a quarter is dropped, three quarters stay. Which of the two numbers makes up for the loss?""",
    read="masking#weight-dropout",
)
def dropout_divided_by_p(weights, keep, dropout_p, training):
    return weights * keep / dropout_p if training else weights.clone()


@weight_dropout.misconception(
    "the weights that stay are made smaller instead of larger",
    hint="""Some weight has been lost. To make up for it, what is left must grow.""",
    read="masking#weight-dropout",
)
def dropout_multiplied(weights, keep, dropout_p, training):
    return weights * keep * (1 - dropout_p) if training else weights.clone()


@weight_dropout.misconception(
    "the correction is made in evaluation instead of in training",
    hint="""This is how dropout was first described, and it keeps the mean, too. PyTorch, and this course,
    make the correction in training, so that a model in use need not know that there ever was dropout.""",
    read="masking#weight-dropout",
)
def dropout_corrected_in_evaluation(weights, keep, dropout_p, training):
    return weights * keep if training else weights * (1 - dropout_p)


@weight_dropout.misconception(
    "the weights that should stay are dropped, and the others stay",
    hint="""`keep` is True for those that stay.""",
    read="masking#weight-dropout",
)
def dropout_inverted(weights, keep, dropout_p, training):
    return weights * ~keep / (1 - dropout_p) if training else weights.clone()


@weight_dropout.misconception(
    "the factor is taken from this draw: the share of the weights that happened to stay",
    hint="""The mean is one over many draws. The factor follows from the probability, and the same draw with
    another number of weights kept must not change it.""",
    read="masking#weight-dropout",
)
def dropout_by_share_kept(weights, keep, dropout_p, training):
    return weights * keep / keep.to(weights.dtype).mean() if training else weights.clone()


@weight_dropout.misconception(
    "training and evaluation are exchanged",
    hint="""In one of the two, nothing is dropped. In which is the answer not to depend on chance?""",
    read="masking#weight-dropout",
)
def dropout_exchanged(weights, keep, dropout_p, training):
    return weights.clone() if training else weights * keep / (1 - dropout_p)
