"""Tasks of the unit ``multihead``: from splitting into heads to the layer, its weights and its pruning."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import multihead
from attncourse.checks import laws
from attncourse.checks.choices import (
    AVERAGED,
    AXIS,
    LAYER_SCALE,
    LOW,
    MADE_FROM,
    NORMALISER,
    compared,
    normalised,
    only,
    scaled,
    without,
)
from attncourse.checks.draws import Draws
from attncourse.checks.laws import Inputs
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.probe.multihead import Layer, Loss
from attncourse.probe.program import trace

# Attention for one head is what the first unit was about: it may be called here.
OPERATOR = ("attention", "attention_weights", "softargmax")

ONE_AVERAGE = "multihead#one-average"
HEADS = "multihead#heads"
LAYER = "multihead#multihead-layer"
HEADS_AND_SCALE = "multihead#heads-and-scale"
SLICES = "multihead#slices"
VIEW_THEN_TRANSPOSE = "multihead#view-then-transpose"
SUM_OF_HEADS = "multihead#sum-of-heads"
BIAS = "multihead#multihead-bias"
SELF_AND_CROSS = "multihead#self-and-cross"
IMPORTANCE = "multihead#head-importance"
PRUNING = "multihead#pruning-heads"
PYTORCH = "multihead#multihead-pytorch"


# ---------------------------------------------------------------------------------------
# Split into heads, and merge them
# ---------------------------------------------------------------------------------------


def _split_heads_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, heads: int, note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        return Case({"x": normal(*shape, dtype=dtype), "num_heads": heads}, note, **how)

    return [
        case(3, 6, heads=2),
        case(4, 4, heads=2, note="as many positions as features"),
        case(2, 3, 8, heads=4, note="a batch"),
        case(3, 5, 6, heads=3, note="a batch as large as the number of heads"),
        case(2, 3, 4, 6, heads=3, note="two batch dimensions, in double precision", dtype=torch.float64),
        case(3, 5, heads=1, note="one head"),
        case(2, 5, 4, heads=2, note="an input that is not contiguous", contiguous=False),
        case(2, 4, 8, heads=4, note="as many heads as positions"),
    ]


def _numbers_kept(inputs: Inputs, value: Tensor) -> str | None:
    before, after = inputs["x"].flatten().sort().values, value.flatten().sort().values
    return laws.is_not(after, before, "sorted by size, yours holds {yours} where x has {expected}")


def _head_sees_its_block(inputs: Inputs, value: Tensor) -> str | None:
    words = "at {place} head 0 of yours has {yours}, and there x has {expected}"
    return laws.is_not(value[0], inputs["x"][:, : value.shape[-1]], words)


def _numbered(*shape: int) -> Callable[[Normal], Tensor]:
    """Numbers that are all different and stand in a random order."""
    return lambda normal: normal(*shape).flatten().argsort().float().view(shape)


def _one_row(name: str, dim: int) -> Callable[[Inputs, Normal], Inputs]:
    """Changes the last of the positions."""

    def change(inputs: Inputs, normal: Normal) -> Inputs:
        x = inputs[name].clone()
        x.select(dim, -1).add_(1)
        return {name: x}

    return change


split_heads = Task(
    "split_heads",
    multihead.split_heads,
    {
        "x": torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], [9.0, 10.0, 11.0, 12.0]]),
        "num_heads": 2,
    },
    _split_heads_cases,
    laws=[
        Law(
            "every number of x is there once: none is lost, none comes twice",
            VIEW_THEN_TRANSPOSE,
            lambda normal: {"x": _numbered(3, 4)(normal), "num_heads": 2},
            _numbers_kept,
        ),
        laws.stays(
            "changing the last position changes only the last row of each head",
            VIEW_THEN_TRANSPOSE,
            lambda normal: {"x": normal(3, 4), "num_heads": 2},
            _one_row("x", -2),
            lambda value: value[:, :-1],
        ),
        Law(
            "head 0 gets the first features of every position",
            SLICES,
            lambda normal: {"x": normal(3, 6), "num_heads": 2},
            _head_sees_its_block,
        ),
        laws.sequences_are_treated_alone(
            lambda normal: {"x": normal(2, 3, 4), "num_heads": 2}, VIEW_THEN_TRANSPOSE, ("x",)
        ),
    ],
)

FROM_THE_FRONT = wrongs(
    VIEW_THEN_TRANSPOSE,
    """
    front: dimensions 1 and 2 change places, which is right for exactly one batch dimension
        Counted from the front, dimensions move when a batch is added. How do you name the same two when you
        count from the back?
    first two: dimensions 0 and 1 change places, which is right without a batch only
        With a batch, dimension 0 is the batch, and it should stay where it is. How do you name the two when
        you count from the back?
    """,
)


@split_heads.made_of(
    cut=wrongs(
        SLICES,
        """
        interleaved: each head takes every so-many-th feature, instead of a block of neighbours
            The features of head 0 are to be the first few, those of head 1 the next few. When the last
            dimension is cut in two, the first of the two counts the blocks.
        pieces: num_heads is taken for the number of features of a head
            The last dimension becomes two: how many heads there are, and how many features each has. Which of
            the two numbers are you given, and in which place does it belong? (multihead#view-then-transpose)
        transposed first: the input is transposed before its features are cut
            Now each head has features in its rows and positions in its columns, or numbers that do not belong
            together. First cut, then move. (multihead#view-then-transpose)
        positions: the positions are shared out among the heads, instead of the features
            Every head looks at the whole sequence; otherwise a word could not attend to a word that another
            head got. What a head has for itself is some of the features.
        """,
    ),
    moved={
        **wrongs(
            VIEW_THEN_TRANSPOSE,
            """
            reshape: a reshape straight to the shape asked for, without a transpose
                The shape is right, but look at what head 0 has got: the first positions with all their
                features, cut into pieces. A reshape keeps the numbers in the order in which they lie in
                memory. Which two dimensions have to change places, and when?
            not moved: the features are cut into heads, but the heads stand behind the positions
                The first step is done: every position has its features in blocks. Attention works on the last
                two dimensions, so these must be positions and features. Where do the heads have to go?
            before the batch: the heads stand before the batch
                For a single sequence this is right. With a batch, every sequence is to have its heads:
                dimensions of the batch come first, then heads, positions and features.
            """,
        ),
        **FROM_THE_FRONT,
        **wrongs(
            VIEW_THEN_TRANSPOSE,
            """
            last two: heads and features change places, instead of heads and positions
                After the cut there are positions, heads and features, in this order. Which of them has to
                pass which, so that heads come first and features stay last?
            turned: each head has features in its rows and positions in its columns
                The heads are in front, as they should be. Behind them a row is to be a position, as
                everywhere in this course.
            """,
        ),
    },
    order=wrongs(
        SLICES,
        """
        backwards: the heads are counted from the last block of features to the first
            Every block is whole and in its place but for the number of its head. Which features belong to
            head 0?
        """,
    ),
)
def any_split(x, num_heads, *, cut="blocks", moved="before positions", order="forwards"):
    size = x.shape[-1] // num_heads
    if cut == "transposed first":
        return x.mT.reshape(*x.shape[:-2], num_heads, x.shape[-2], size)
    if cut == "positions":
        return x.reshape(*x.shape[:-2], num_heads, -1, x.shape[-1])
    if moved == "reshape":
        return x.reshape(*x.shape[:-2], num_heads, x.shape[-2], size)
    if cut == "interleaved":
        parts = x.unflatten(-1, (size, num_heads)).mT
    else:
        parts = x.unflatten(-1, (size, num_heads) if cut == "pieces" else (num_heads, size))
    if order == "backwards":
        parts = parts.flip(-2)
    match moved:
        case "not moved":
            return parts
        case "before the batch":
            return parts.movedim(-2, 0)
        case "front":
            return parts.transpose(1, 2)
        case "first two":
            return parts.transpose(0, 1)
        case "last two":
            return parts.mT
        case "turned":
            return parts.transpose(-3, -2).mT
    return parts.transpose(-3, -2)


def _merge_heads_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        return Case({"x": normal(*shape, dtype=dtype)}, note, **how)

    return [
        case(2, 3, 4),
        case(3, 3, 3, note="heads, positions and features equally many"),
        case(2, 4, 3, 2, note="a batch"),
        case(2, 3, 2, 5, 3, note="two batch dimensions, in double precision", dtype=torch.float64),
        case(1, 4, 3, note="one head"),
        case(2, 3, 4, 2, note="heads that are not contiguous", contiguous=False),
        case(2, 1, 3, note="a single position"),
    ]


def _head_zero_first(inputs: Inputs, value: Tensor) -> str | None:
    words = "at {place} yours has {yours}, and there head 0 has {expected}"
    return laws.is_not(value[:, : inputs["x"].shape[-1]], inputs["x"][0], words)


merge_heads = Task(
    "merge_heads",
    multihead.merge_heads,
    {"x": torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]])},
    _merge_heads_cases,
    laws=[
        Law(
            "every number of x is there once: none is lost, none comes twice",
            VIEW_THEN_TRANSPOSE,
            lambda normal: {"x": _numbered(2, 3, 2)(normal)},
            _numbers_kept,
        ),
        laws.stays(
            "changing the last position of the heads changes only the last row",
            VIEW_THEN_TRANSPOSE,
            lambda normal: {"x": normal(2, 3, 2)},
            _one_row("x", -2),
            lambda value: value[:-1],
        ),
        Law(
            "the first features of every position are those of head 0",
            VIEW_THEN_TRANSPOSE,
            lambda normal: {"x": normal(2, 3, 2)},
            _head_zero_first,
        ),
        laws.sequences_are_treated_alone(
            lambda normal: {"x": normal(2, 3, 4, 2)}, VIEW_THEN_TRANSPOSE, ("x",)
        ),
    ],
)

# How the heads' outputs become one vector for each position.
MERGED = wrongs(
    SUM_OF_HEADS,
    """
    reshape: the heads are merged by a reshape without a transpose
        The heads stand before the positions, so a reshape puts several positions of one head into one row. A
        row is to hold what all heads found at one position. Before two dimensions can be joined, they must
        stand side by side. (multihead#view-then-transpose)
    summed: the heads are added up instead of put side by side
        Once they are added, nobody can tell any more which head had found what. How many features does the
        merged vector of a position have, if none is lost?
    averaged: the heads are averaged instead of put side by side
        Several heads are there to keep several averages apart. How many features does the merged vector of a
        position have, if none is lost? (multihead#one-average)
    interleaved: the features of the heads are shuffled together: one of each head in turn
        All the features of head 0 come first, then all those of head 1. The rows of W_O are sorted in this
        way, so the order matters. Which of the two dimensions that you join must be the outer one?
    below: the heads are put one below the other, along the positions
        A sequence must keep its length: one row for each position. Along which dimension does each head add
        something of its own? (multihead#heads)
    backwards: the heads are put side by side from the last to the first
        The first rows of W_O belong to head 0. Which head's features must come first?
    """,
)


def merge(heads: Tensor, merged: str) -> Tensor:
    """The heads' outputs as one vector for each position, with one of the choices of `MERGED`."""
    match merged:
        case "reshape":
            return heads.reshape(*heads.shape[:-3], heads.shape[-2], heads.shape[-3] * heads.shape[-1])
        case "summed":
            return heads.sum(-3)
        case "averaged":
            return heads.mean(-3)
        case "interleaved":
            return heads.movedim(-3, -1).flatten(-2)
        case "below":
            return heads.flatten(-3, -2)
        case "backwards":
            heads = heads.flip(-3)
    return heads.transpose(-3, -2).flatten(-2)


@merge_heads.made_of(
    merged={
        **without(MERGED, "backwards"),
        **wrongs(
            VIEW_THEN_TRANSPOSE,
            """
            view: view is asked to join two dimensions that do not lie beside each other in memory
                A transpose moves no number, it only changes how the memory is read. `view` can join two
                dimensions only if the numbers already lie in the new order, and after a transpose they do
                not. There is a function of nearly the same use that copies them when it has to.
            not joined: the heads are moved behind the positions, but not joined
                The first step is done: at each position the heads' features lie side by side. But they still
                have two dimensions. How do two dimensions become one?
            positions and features: positions and features are joined, and the heads are left
                Only neighbouring dimensions can be joined, and what stands beside the features is the
                positions. What should stand there?
            first: the first dimension is taken for the heads, which is right without a batch only
                With a batch, the first dimension counts the sequences. Where do the heads stand, counted from
                the back?
            """,
        ),
        **FROM_THE_FRONT,
    },
    order=only(MERGED, "backwards"),
)
def any_merge(x, *, merged="side by side", order="forwards"):
    if order == "backwards":
        x = x.flip(-3)
    match merged:
        case "view":
            x = x.transpose(-3, -2)
            return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])
        case "not joined":
            return x.transpose(-3, -2)
        case "positions and features":
            return x.flatten(-2)
        case "first":
            return torch.cat(list(x), -1)
        case "front":
            return x.transpose(1, 2).flatten(-2)
        case "first two":
            return x.transpose(0, 1).flatten(-2)
    return merge(x, merged)


# ---------------------------------------------------------------------------------------
# Shapes
# ---------------------------------------------------------------------------------------


def _layer_shapes(
    batch: int, num_queries: int, num_keys: int, model_dim: int, num_heads: int, key_dim: int, value_dim: int
) -> dict[str, tuple[int, ...]]:
    layer = multihead.MultiHeadAttention(model_dim, num_heads, key_dim, value_dim)
    query, key = torch.zeros(batch, num_queries, model_dim), torch.zeros(batch, num_keys, model_dim)
    output, weights = layer(query, key, return_weights=True)
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": tuple(weights.shape),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": tuple(output.shape),
    }


SIZES = ("batch", "num_queries", "num_keys", "model_dim", "num_heads", "key_dim", "value_dim")


def _sizes(*sizes: int) -> Inputs:
    return dict(zip(SIZES, sizes, strict=True))


def _layer_shapes_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")

    def different() -> Inputs:
        # All different, and the head_dim of an even split different from all of them.
        batch, queries, keys, key_dim, value_dim = (draws.randperm(5) + 3).tolist()
        return _sizes(batch, queries, keys, 20, 2, key_dim, value_dim)

    even = draws.whole(2, 5)
    return [
        Case(different(), "all sizes different"),
        Case(different(), "all sizes different"),
        Case(_sizes(2, even, even, 4 * even, 4, even, even), "many sizes equal"),
        Case(_sizes(1, 1, 9, 12, 3, even, 4), "a single query"),
        Case(_sizes(*(draws.randperm(60)[:7] + 10).tolist()), "larger sizes"),
    ]


def _shape_law(sentence: str, read: str, numbers: Callable[[Any, Any], tuple[Any, Any]], words: str) -> Law:
    """That two numbers, or tuples, of an answer about shapes are the same."""

    def broken(inputs: Inputs, value: Any) -> str | None:
        shapes = {name: tuple(shape) for name, shape in value.items()} if isinstance(value, dict) else value
        yours, other = numbers(inputs, shapes)
        return None if yours == other else words.format(yours=yours, other=other)

    return Law(sentence, read, lambda normal: _sizes(2, 3, 5, 28, 4, 8, 6), broken)


layer_shapes = Task(
    "layer_shapes",
    _layer_shapes,
    _sizes(1, 2, 3, 10, 4, 5, 6),
    _layer_shapes_cases,
    laws=[
        _shape_law(
            "queries and keys have equally many features, as each is multiplied with each",
            HEADS,
            lambda _, shapes: (shapes["query"][-1], shapes["key"][-1]),
            "yours have {yours} and {other}",
        ),
        _shape_law(
            "to every key belongs a value, so there are equally many",
            SELF_AND_CROSS,
            lambda _, shapes: (shapes["value"][:-1], shapes["key"][:-1]),
            "before their features, the values of yours have the dimensions {yours}, and its keys {other}",
        ),
        _shape_law(
            "the weights of a head have a row for each query and a column for each key",
            "attention_operator#rows-and-columns",
            lambda _, shapes: (shapes["weights"][-2:], (shapes["query"][-2], shapes["key"][-2])),
            "the weights of yours end in {yours}, and its queries and keys would make it {other}",
        ),
        _shape_law(
            "merging loses no number: there are as many as in the heads' outputs, one for each query",
            HEADS,
            lambda sizes, shapes: (
                math.prod(shapes["merged"]),
                math.prod(shapes["query"][:-1]) * shapes["value"][-1],
            ),
            "yours has {yours} in the merged heads and {other} in the outputs of its heads",
        ),
        _shape_law(
            "the output has the shape of x, so that it can be added to it",
            LAYER,
            lambda sizes, shapes: (
                shapes["output"],
                tuple(sizes[n] for n in ("batch", "num_queries", "model_dim")),
            ),
            "yours has {yours}, and x has {other}",
        ),
        laws.stays(
            "another number of keys changes neither queries nor merged heads nor output",
            SELF_AND_CROSS,
            lambda normal: _sizes(2, 3, 5, 28, 4, 8, 6),
            lambda inputs, normal: {"num_keys": 9},
            lambda shapes: [shapes[name] for name in ("query", "merged", "output")],
        ),
    ],
)


@layer_shapes.made_of(
    rows=wrongs(
        SELF_AND_CROSS,
        """
        self: keys and values have as many rows as the queries
            That is so in self-attention, where all come from one sequence. Here the keys and values are made
            from the other sequence. How many positions has it?
        values per query: the values have as many rows as the queries
            To each key belongs a value. So how many values are there, and which sequence are they made from?
        exchanged: the memory asks and x answers
            Who wants to know something makes the queries; in cross-attention that is `x`. How many positions
            has it?
        answers per key: the output has a row for each key
            Every query gets an answer, and the keys get none. Whose positions does the output have?
        """,
    ),
    weights=wrongs(
        "attention_operator#rows-and-columns",
        """
        transposed: the weights have a row for each key and a column for each query
            Rows ask and columns answer. Who asks here?
        shared: all heads share one matrix of weights
            Each head compares its own queries with its own keys. Can two heads then always come to the same
            weights? (multihead#heads)
        square: the weights have a column for each query
            Each row of weights shares out a query's attention. Among whom: among the queries?
        features: the weights have a column for each feature of a value
            That is what comes out when the weights have met the values. The weights themselves say, for a
            query, how much of each key: how many numbers is that?
        """,
    ),
    merged=wrongs(
        LAYER,
        """
        summed: the merged heads have the features of a single head, as if they had been added
            Merging puts the heads side by side. Nothing is lost: count the features that all heads bring.
            (multihead#heads)
        keys: the merged heads have the features of the keys
            Keys only decide where to look. What is averaged, and so what does a head's output consist of?
        model dim: the merged heads have model_dim features
            So it is if num_heads times value_dim happens to be model_dim. Here it need not be. Which matrix
            is there to bring the number back to model_dim?
        still heads: the merged heads still have a dimension for the heads
            Side by side means that each position has one vector, with the features of all heads in it.
            (multihead#view-then-transpose)
        """,
    ),
    output=wrongs(
        LAYER,
        """
        merged: the output is what the merged heads are, without W_O
            The last step of the layer is one more matrix, which brings the merged heads back to as many
            features as the input has.
        head: the output has the features of one head's values
            All heads together make one output, of as many features as the layer was given.
        """,
    ),
    features=wrongs(
        LAYER,
        """
        even: key_dim and value_dim are replaced by model_dim / num_heads
            That is the usual choice, not a law. Here both are given, and each head has that many.
            (multihead#counting-parameters)
        values like keys: the values have key_dim features
            Queries and keys are multiplied with each other, so they have equally many features. Values are
            averaged, and may have another number.
        values alone: the values have key_dim features, though what is merged has those of the values
            Queries and keys are multiplied with each other, so they have equally many features. Values are
            averaged and merged: count their features in what is merged.
        exchanged: key_dim and value_dim have changed places
            Which of the two numbers is for what is multiplied, and which for what is averaged?
        not projected: queries, keys and values have model_dim features in each head
            That is how wide the input of a head's matrices is. How wide is what comes out?
        """,
    ),
    place=wrongs(
        VIEW_THEN_TRANSPOSE,
        """
        behind: in queries, keys and values the heads stand behind the positions
            That is so after the first step of the split. Attention works on the last two dimensions, so what
            must these be?
        packed: queries, keys and values are not split into heads
            Side by side in one row the heads could not attend apart. Which dimension do the queries of all
            heads need?
        before the batch: the heads stand before the batch
            Every sequence of a batch has its heads. Which of the two dimensions is the outer one?
        """,
    ),
)
def any_shapes(
    batch,
    num_queries,
    num_keys,
    model_dim,
    num_heads,
    key_dim,
    value_dim,
    *,
    rows="memory",
    weights="right",
    merged="side by side",
    output="like x",
    features="given",
    place="before positions",
):
    if features == "even":
        key_dim = value_dim = model_dim // num_heads
    if features == "values like keys":
        value_dim = key_dim
    if features == "exchanged":
        key_dim, value_dim = value_dim, key_dim
    if features == "not projected":
        key_dim = value_dim = model_dim
    if rows == "self":
        num_keys = num_queries
    if rows == "exchanged":
        num_queries, num_keys = num_keys, num_queries

    def in_heads(rows, columns, weights=False):
        if place == "behind" and not weights:
            return (batch, rows, num_heads, columns)
        if place == "packed" and not weights:
            return (batch, rows, num_heads * columns)
        return (
            (num_heads, batch, rows, columns) if place[-5:] == "batch" else (batch, num_heads, rows, columns)
        )

    answers = num_keys if rows == "answers per key" else num_queries
    wide = {"summed": value_dim, "keys": num_heads * key_dim, "model dim": model_dim}
    width = wide.get(merged, num_heads * value_dim)
    all_weights = {
        "transposed": in_heads(num_keys, num_queries, True),
        "shared": (batch, num_queries, num_keys),
        "square": in_heads(num_queries, num_queries, True),
        "features": in_heads(num_queries, value_dim, True),
    }
    return {
        "query": in_heads(num_queries, key_dim),
        "key": in_heads(num_keys, key_dim),
        "value": in_heads(
            num_queries if rows == "values per query" else num_keys,
            key_dim if features == "values alone" else value_dim,
        ),
        "weights": all_weights.get(weights, in_heads(num_queries, num_keys, True)),
        "merged": in_heads(answers, value_dim, True) if merged == "still heads" else (batch, answers, width),
        "output": (batch, answers, {"merged": width, "head": value_dim}.get(output, model_dim)),
    }


# ---------------------------------------------------------------------------------------
# Self-attention with several heads
# ---------------------------------------------------------------------------------------


def _layer(**weights: Tensor) -> multihead.MultiHeadAttention:
    """The course's layer with these weights, and biases where they are given."""
    num_heads, key_input_dim, key_dim = weights["W_K"].shape
    layer = multihead.MultiHeadAttention(
        weights["W_O"].shape[1],
        num_heads,
        key_dim,
        weights["W_V"].shape[2],
        key_input_dim=key_input_dim,
        value_input_dim=weights["W_V"].shape[1],
    )
    for name, weight in weights.items():
        setattr(layer, name, torch.nn.Parameter(weight))
    return layer


def _multihead_attention(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
    return _layer(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O)(x)


def _head_weights(
    normal: Normal,
    heads: int,
    model_dim: int,
    key_dim: int,
    value_dim: int,
    dtype: torch.dtype = torch.float32,
) -> dict[str, Tensor]:
    """Weights under which scores have a standard deviation of about 2."""
    std = model_dim**-0.5
    return {
        "W_Q": 1.5 * std * normal(heads, model_dim, key_dim, dtype=dtype),
        "W_K": 1.5 * std * normal(heads, model_dim, key_dim, dtype=dtype),
        "W_V": std * normal(heads, model_dim, value_dim, dtype=dtype),
        "W_O": (heads * value_dim) ** -0.5 * normal(heads * value_dim, model_dim, dtype=dtype),
    }


def _multihead_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, heads: int, dims: tuple[int, int], note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        x = normal(*shape, dtype=dtype)
        return Case({"x": x, **_head_weights(normal, heads, shape[-1], *dims, dtype)}, note, **how)

    return [
        case(5, 6, heads=2, dims=(3, 3)),
        case(4, 4, heads=4, dims=(4, 4), note="everything square"),
        case(5, 8, heads=1, dims=(3, 2), note="one head"),
        case(2, 3, 6, heads=3, dims=(4, 5), note="a batch, and heads of their own size"),
        case(3, 4, 6, heads=3, dims=(2, 2), note="a batch as large as the number of heads"),
        case(2, 2, 5, 4, heads=2, dims=(3, 2), note="two batch dimensions", dtype=torch.float64),
        case(4, 6, heads=2, dims=(2, 3), note="inputs that are not contiguous", contiguous=False),
        case(1, 6, heads=2, dims=(2, 3), note="a single position"),
    ]


def _small_layer(normal: Normal) -> Inputs:
    # num_heads * value_dim is model_dim, so that a wrong merging keeps the shape.
    return {"x": normal(3, 4), **_head_weights(normal, 2, 4, 3, 2)}


def _mean_through(x: Tensor, inputs: Inputs) -> Tensor:
    """The mean of a sequence, taken through W_V and W_O, (model_dim,)."""
    return (x.mean(-2) @ inputs["W_V"]).flatten() @ inputs["W_O"]


def _means_it(name: str, row: int | None = None) -> Callable[[Inputs, Tensor], str | None]:
    def broken(inputs: Inputs, value: Tensor) -> str | None:
        expected = _mean_through(inputs[name], inputs) + inputs.get("b_O", 0)
        words = "at {place} yours gives {yours}, and that would be {expected}"
        here = value if row is None else value[row]
        return laws.is_not(here, expected.expand_as(here), words)

    return broken


def _zeroed(draw: laws.Draw, *names: str) -> laws.Draw:
    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        return drawn | {name: torch.zeros_like(drawn[name]) for name in names}

    return inputs


def _nothing_asked(normal: Normal) -> Inputs:
    """The queries are made from feature 0 alone, and position 0 has none of it."""
    drawn = _small_layer(normal)
    drawn["x"][0, 0] = 0
    drawn["W_Q"][:, 1:] = 0
    return drawn


def _unread_head(draw: laws.Draw) -> laws.Draw:
    """Head 1 has zeros in its rows of W_O."""

    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        drawn["W_O"][len(drawn["W_O"]) // 2 :] = 0
        return drawn

    return inputs


def _change_unread_head(inputs: Inputs, normal: Normal) -> Inputs:
    changed = {name: inputs[name].clone() for name in ("W_Q", "W_K", "W_V")}
    for name in changed:
        changed[name][1] += normal(*changed[name][1].shape)
    return changed


def _head_by_head(normal: Normal) -> list[Inputs]:
    drawn = _small_layer(normal)
    parts = [
        {name: drawn[name][h : h + 1] for name in ("W_Q", "W_K", "W_V")}
        | {"W_O": drawn["W_O"][2 * h : 2 * h + 2]}
        for h in range(2)
    ]
    return [drawn, *(drawn | part for part in parts)]


def _adds_up(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    together = values[1] + values[2] - inputs[0].get("b_O", 0)
    return laws.is_not(
        values[0],
        together,
        "at {place} the heads of yours add up to {expected}, and both at once give {yours}",
    )


def _features_twice(normal: Normal) -> Inputs:
    drawn = _small_layer(normal)
    return drawn | {name: torch.cat([drawn[name]] * 2, -1) for name in ("W_Q", "W_K")}


def _once(inputs: Inputs, normal: Normal) -> Inputs:
    return {"W_Q": 2**0.5 * inputs["W_Q"][..., :3], "W_K": inputs["W_K"][..., :3]}


NOTHING_OUT = "with W_O of zeros every output is zero"
SUM = "the layer adds up what its heads would give one by one, each with its rows of W_O"
UNREAD = "a head whose rows of W_O are zeros plays no part, whatever its other weights are"
TWICE = (
    "if every feature of queries and keys is there twice, dropping the copies and making W_Q longer by the "
    "root of 2 changes nothing"
)

multihead_attention = Task(
    "multihead_attention",
    _multihead_attention,
    {
        "x": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "W_Q": torch.tensor([[[2.0, 0, 0, 0], [0, 0, 2.0, 0]], [[0, 2.0, 0, 0], [0, 0, 0, 4.0]]]),
        "W_K": torch.tensor([[[0, 0, 1.0, 0], [1.0, 0, 0, 0]], [[0, 0, 0, 1.0], [0, 2.0, 0, 0]]]),
        "W_V": torch.tensor([[[10.0], [20.0]], [[0.0], [100.0]]]),
        "W_O": torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
    },
    _multihead_attention_cases,
    laws=[
        laws.vanishes(NOTHING_OUT, LAYER, _zeroed(_small_layer, "W_O")),
        Law(
            "with W_K of zeros every output is the mean of x, taken through W_V and W_O",
            LAYER,
            _zeroed(_small_layer, "W_K"),
            _means_it("x"),
        ),
        Law(
            "a position whose queries are zero gets the mean of x, taken through W_V and W_O",
            LAYER,
            _nothing_asked,
            _means_it("x", 0),
        ),
        laws.stays(UNREAD, SUM_OF_HEADS, _unread_head(_small_layer), _change_unread_head),
        Law(SUM, SUM_OF_HEADS, _head_by_head, _adds_up),
        laws.stays(TWICE, HEADS_AND_SCALE, _features_twice, _once),
        laws.sequences_are_treated_alone(
            lambda normal: _small_layer(normal) | {"x": normal(2, 3, 4)}, LAYER, ("x",)
        ),
    ],
    allows=OPERATOR,
    builds_on=("split_heads", "merge_heads"),
)

AXES = {
    **only(AXIS, "queries", "dim 1"),
    **wrongs(
        HEADS_AND_SCALE,
        """
        heads: the weights are normalised over the heads instead of the keys
            The heads do not compete: each has one whole of attention to share out among the keys. Which
            dimension of the scores holds the keys, now that there is one for the heads as well?
        """,
    ),
}
# With one of them for each position, W_O does not fit, whichever it is.
MERGED_FOR_OUTPUT = {
    **without(MERGED, "averaged"),
    "summed": Wrong(
        "the heads are added up, or averaged, instead of put side by side",
        MERGED["summed"].hint,
        SUM_OF_HEADS,
    ),
}
AMONG_HEADS = wrongs(
    HEADS,
    """
    first: the attention weights of the first head are used by all heads
        Every head hands over something else, but all of them look at the same words. What are a head's own
        queries and keys for?
    mean: the attention weights are averaged over the heads before they are used
        Several heads are there to look at several places. With one mean of all their weights they look at the
        same, as a single head would. (multihead#one-average)
    values backwards: the values of the heads are in another order than their weights
        Head h must average its own values, with its own weights. In yours the weights of the first head meet
        the values of the last.
    """,
)
OUTPUT = wrongs(
    LAYER,
    """
    none: W_O is missing
        The heads are side by side, but they have not met yet: each feature of the result comes from one head
        alone. One of the four weights has not been used.
    first: W_O is applied to each head before the heads are put side by side
        You may give each head its own rows of W_O. But what comes out then has all the features of the output
        already, for each head. What is left to do with these: put them side by side? (multihead#sum-of-heads)
    transposed: W_O is transposed before it is applied
        PyTorch's `nn.Linear` stores its weight transposed. Here W_O has a row for each feature of the merged
        heads: which product fits as it stands?
    """,
)
NORMALISERS = only(NORMALISER, "none", "not divided", "sigmoid", "hard", "twice")
MADE = only(MADE_FROM, "keys like queries", "exchanged", "values like keys")
# A head's scale has the features of all heads, too, that it could be taken from.
HEAD_SCALE = {
    **only(LAYER_SCALE, "none", "dim", "value dim", "num keys", "multiplied", "after"),
    **wrongs(
        HEADS_AND_SCALE,
        """
        model dim: the scale uses the features of the input instead of those of one head
            Each head takes its dot products after its projection. How many terms has such a sum?
        heads: the scale uses the number of heads
            A score is a dot product within one head: a sum with one term for each feature of its queries. The
            other heads take no part in it.
        """,
    ),
}


def look(query, key, value, scale, axis, normaliser, among="own", averaged="", model_dim=1, mask=None):
    """What each head finds, with choices of `HEAD_SCALE`, `AXES`, `NORMALISERS` and `AMONG_HEADS`."""
    other = {"model dim": model_dim, "heads": query.shape[-3], "all heads": query.shape[-3] * query.shape[-1]}
    if scale in other:
        scores = compared(query, key, value, "") / math.sqrt(other[scale])
    else:
        scores = scaled(compared(query, key, value, ""), query, key, value, scale)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = normalised(scores, axis, normaliser)
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    if among == "first":
        weights = weights[..., :1, :, :]
    if among == "mean":
        weights = weights.mean(-3, keepdim=True)
    if among == "values backwards":
        value = value.flip(-3)
    return weights.mT @ value if averaged == "transposed" else weights @ value


def mix(heads, W_O, merged, output):
    """The output from what the heads have found, with choices of `MERGED` and `OUTPUT`."""
    if output == "first":
        return merge(heads @ W_O.unflatten(0, (heads.shape[-3], -1)), merged)
    side_by_side = merge(heads, merged)
    if output == "none":
        return side_by_side
    return side_by_side @ (W_O.T if output == "transposed" else W_O)


def made_with(W_Q, W_K, W_V, made_from):
    """The weights for queries, keys and values, with a choice of `MADE`."""
    if made_from == "exchanged":
        return W_K, W_Q, W_V
    if made_from == "values like keys":
        return W_Q, W_K, W_K
    return W_Q, W_Q if made_from == "keys like queries" else W_K, W_V


@multihead_attention.made_of(
    made_from=MADE,
    seen=wrongs(
        SLICES,
        """
        split: each head sees only a part of the input's features
            It is the projections that are split, not the input. Each head's matrix has as many rows as the
            input has features, so that it can choose among all of them.
        batch meets heads: the input has no dimension for the heads, so its batch meets them
            Dimensions are matched from the back: behind the last two, the batch of `x` meets the heads of the
            weights. With one sequence there is nothing to meet. Where must `x` have a dimension of length 1?
            (multihead#multihead-layer)
        """,
    ),
    scale=HEAD_SCALE,
    axis=AXES,
    normaliser=NORMALISERS,
    among=AMONG_HEADS,
    averaged=only(AVERAGED, "transposed"),
    merged=MERGED_FOR_OUTPUT,
    output=OUTPUT,
)
def any_multihead(
    x,
    W_Q,
    W_K,
    W_V,
    W_O,
    *,
    made_from="",
    seen="all",
    scale="root",
    axis="keys",
    normaliser="",
    among="own",
    averaged="",
    merged="",
    output="",
):
    weights = made_with(W_Q, W_K, W_V, made_from)
    if seen == "split":
        own = x.shape[-1] // W_Q.shape[0]
        head, feature = torch.arange(W_Q.shape[0])[:, None], torch.arange(x.shape[-1])
        weights = [W * (feature // own == head)[..., None] for W in weights]
    one_more = x if seen == "batch meets heads" else x.unsqueeze(-3)
    query, key, value = (one_more @ W for W in weights)
    found = look(query, key, value, scale, axis, normaliser, among, averaged, x.shape[-1])
    return mix(found, W_O, merged, output)


# ---------------------------------------------------------------------------------------
# Cross-attention with packed weights
# ---------------------------------------------------------------------------------------


def _cross_attention(
    x: Tensor, memory: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, b_O: Tensor, num_heads: int
) -> Tensor:
    W_Q, W_K, W_V = (multihead.split_heads(W, num_heads) for W in (W_Q, W_K, W_V))
    return _layer(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O, b_O=b_O)(x, memory)


def _cross_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        batch: tuple[int, ...], lengths: tuple[int, int], dims: tuple[int, int], note: str = "", **how: Any
    ) -> Case:
        dtype, heads = how.pop("dtype", torch.float32), how.pop("heads")
        key_dim, value_dim = how.pop("head_dims")
        x = normal(*batch, lengths[0], dims[0], dtype=dtype)
        memory = normal(*batch, lengths[1], dims[1], dtype=dtype)
        std = dims[1] ** -0.5
        inputs = {
            "x": x,
            "memory": memory,
            "W_Q": 1.5 * dims[0] ** -0.5 * normal(dims[0], heads * key_dim, dtype=dtype),
            "W_K": 1.5 * std * normal(dims[1], heads * key_dim, dtype=dtype),
            "W_V": std * normal(dims[1], heads * value_dim, dtype=dtype),
            "W_O": (heads * value_dim) ** -0.5 * normal(heads * value_dim, dims[0], dtype=dtype),
            "b_O": normal(dims[0], dtype=dtype),
            "num_heads": heads,
        }
        return Case(inputs, note, **how)

    double = {"dtype": torch.float64}
    return [
        case((), (3, 5), (6, 6), heads=2, head_dims=(3, 3)),
        case((), (4, 4), (4, 4), "sequences of one length", heads=2, head_dims=(2, 2)),
        case((2,), (4, 3), (8, 8), "a batch, and heads of their own size", heads=4, head_dims=(3, 2)),
        case((2,), (3, 4), (6, 4), "sequences with different features", heads=3, head_dims=(2, 2), **double),
        case((3,), (5, 5), (6, 6), "a batch as large as the number of heads", heads=3, head_dims=(2, 2)),
        case((2, 3), (3, 4), (6, 4), "two batch dimensions", heads=2, head_dims=(3, 2), **double),
        case((), (3, 6), (5, 5), "one head", heads=1, head_dims=(4, 3)),
        case((), (1, 4), (6, 6), "a single query", heads=2, head_dims=(3, 3)),
    ]


def _small_cross(normal: Normal) -> Inputs:
    # As long as each other, and as wide, so that a wrong choice between the two keeps the shapes.
    return {
        "x": normal(3, 4),
        "memory": normal(3, 4),
        **{name: normal(4, 4) for name in ("W_Q", "W_K", "W_V", "W_O")},
        "b_O": normal(4),
        "num_heads": 2,
    }


def _only_bias(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, where b_O has {expected}"
    return laws.is_not(value, inputs["b_O"].expand_as(value), words)


def _cross_head_by_head(normal: Normal) -> list[Inputs]:
    drawn = _small_cross(normal)
    blocks = [slice(0, 2), slice(2, 4)]
    parts = [
        {name: drawn[name][:, block] for name in ("W_Q", "W_K", "W_V")}
        | {"W_O": drawn["W_O"][block], "num_heads": 1}
        for block in blocks
    ]
    return [drawn, *(drawn | part for part in parts)]


def _cross_twice(normal: Normal) -> Inputs:
    drawn = _small_cross(normal)
    return drawn | {name: drawn[name].unflatten(-1, (2, 2)).tile(2).flatten(-2) for name in ("W_Q", "W_K")}


def _cross_once(inputs: Inputs, normal: Normal) -> Inputs:
    query, key = (inputs[name].unflatten(-1, (2, 4))[..., :2].flatten(-2) for name in ("W_Q", "W_K"))
    return {"W_Q": 2**0.5 * query, "W_K": key}


cross_attention = Task(
    "cross_attention",
    _cross_attention,
    {
        "x": torch.tensor([[1.0, 0.0], [2.0, 1.0]]),
        "memory": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "W_Q": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        "W_K": torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
        "W_V": torch.tensor([[10.0, 0.0, 0.0, 5.0], [0.0, 20.0, 40.0, 0.0]]),
        "W_O": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0], [1.0, 3.0]]),
        "b_O": torch.tensor([100.0, 200.0]),
        "num_heads": 2,
    },
    _cross_attention_cases,
    laws=[
        Law("with W_O of zeros every output is b_O", BIAS, _zeroed(_small_cross, "W_O"), _only_bias),
        laws.stays(
            "with W_Q of zeros x plays no part: what is handed over comes from memory",
            SELF_AND_CROSS,
            _zeroed(_small_cross, "W_Q"),
            lambda inputs, normal: {"x": normal(3, 4)},
        ),
        laws.stays(
            "the positions of memory may come in any order",
            SELF_AND_CROSS,
            _small_cross,
            lambda inputs, normal: {"memory": inputs["memory"].flip(-2)},
        ),
        laws.stays(
            "a position of x gets the same output whatever the other positions of x are",
            SELF_AND_CROSS,
            _small_cross,
            lambda inputs, normal: {"x": torch.cat([inputs["x"][:1], normal(2, 4)])},
            lambda value: value[0],
        ),
        Law(
            "the heads add up: both at once give what they give one by one, with b_O counted once",
            SUM_OF_HEADS,
            _cross_head_by_head,
            _adds_up,
        ),
        laws.stays(TWICE, HEADS_AND_SCALE, _cross_twice, _cross_once),
        laws.sequences_are_treated_alone(
            lambda normal: _small_cross(normal) | {"x": normal(2, 3, 4), "memory": normal(2, 3, 4)},
            VIEW_THEN_TRANSPOSE,
            ("x", "memory"),
        ),
    ],
    allows=OPERATOR,
    builds_on=("split_heads", "merge_heads"),
)


@cross_attention.made_of(
    sources=wrongs(
        SELF_AND_CROSS,
        """
        self: the sequence attends to itself: memory is never used
            The queries come from `x`. What do the keys and the values come from in cross-attention?
        exchanged: the roles are exchanged: memory asks and x answers
            The output must have a row for each position of `x`, as it is `x` that wants to know something.
            Who asks makes the queries.
        memory only: memory attends to itself: x is never used
            Somebody asks, and somebody answers. Who asks makes the queries.
        values from x: the values are made from x instead of memory
            Each key has one value: what is found and what is handed over belong to the same position of the
            same sequence. Only where both sequences have one length does yours run at all.
        keys from x: the keys are made from x instead of memory
            Each key has one value: what is found and what is handed over belong to the same position of the
            same sequence. Which one is looked at?
        """,
    ),
    made_from=MADE,
    split=wrongs(
        SLICES,
        """
        reshape: the split into heads is a reshape without a transpose
            A reshape to (heads, positions, features) keeps the numbers in their order, so head 0 gets the
            first positions and the last head the last ones. First cut the features, then move the heads.
            (multihead#view-then-transpose)
        keys reshaped: the keys are split by a reshape without a transpose
            Queries and values of yours are split as they should be. A reshape of the keys to (heads,
            positions, features) keeps the numbers in their order, so each head gets some of the positions.
            (multihead#view-then-transpose)
        values reshaped: the values are split by a reshape without a transpose
            Queries and keys of yours are split as they should be. A reshape of the values to (heads,
            positions, features) keeps the numbers in their order, so each head gets some of the positions.
            (multihead#view-then-transpose)
        interleaved: each head takes every so-many-th feature, instead of a block of neighbours
            One matrix holds the columns of all heads, those of head 0 first. When a dimension is cut in two,
            the first of the two counts the blocks.
        packed reshape: the packed matrices are cut by a reshape, so that each head gets some of the rows
            The heads' matrices stand side by side: a head has some of the columns, and all of the rows. A
            reshape keeps the numbers in the order in which they lie in memory, row by row.
        none: there is only one head: num_heads is not used
            The shapes come out right without any split, as one large head. But then each position has one set
            of weights, and one average. (multihead#one-average)
        not moved: the features are cut into heads, but the heads stay behind the positions
            Attention works on the last two dimensions. With heads and features there, it lets the heads of
            one position attend to each other. (multihead#view-then-transpose)
        keys are not split: the heads are cut from the queries only
            A head compares its own queries with its own keys and averages its own values. Which of the three
            projections have to be split?
        """,
    ),
    scale={
        **HEAD_SCALE,
        **wrongs(
            HEADS_AND_SCALE,
            """
            all heads: the scale uses the features of all heads together
                The dot products are taken within a head. Read the number of features off the queries after
                they have been split.
            """,
        ),
    },
    axis=AXES,
    normaliser=NORMALISERS,
    among=AMONG_HEADS,
    averaged=only(AVERAGED, "transposed"),
    merged=MERGED_FOR_OUTPUT,
    output=OUTPUT,
    bias=wrongs(
        BIAS,
        """
        none: the bias is left out
            The numbers are off by the same vector at every position.
        per head: the bias is added once for each head
            The heads meet in W_O, and there is one output. If you add up what the heads contribute, add the
            bias to the sum, not to each term.
        before W_O: the bias is added before W_O
            The bias of a product is added after the product. What goes into W_O is the heads, as they are.
        subtracted: the bias is subtracted
            A bias is added, whatever its sign.
        multiplied: the output is multiplied by the bias
            A bias is added after a product. What multiplies each feature is called a gain.
        """,
    ),
)
def any_cross(
    x,
    memory,
    W_Q,
    W_K,
    W_V,
    W_O,
    b_O,
    num_heads,
    *,
    sources="",
    made_from="",
    split="right",
    scale="root",
    axis="keys",
    normaliser="",
    among="own",
    averaged="",
    merged="",
    output="",
    bias="added",
):
    three = {
        "self": (x, x, x),
        "exchanged": (memory, x, x),
        "memory only": (memory, memory, memory),
        "values from x": (x, memory, x),
        "keys from x": (x, x, memory),
    }.get(sources, (x, memory, memory))

    def in_heads(number, y, W):
        H = 1 if split == "none" or (split == "keys are not split" and number) else num_heads
        alone = {1: "keys reshaped", 2: "values reshaped"}.get(number, "")
        match "reshape" if split == alone else split:
            case "reshape":
                return (y @ W).reshape(*y.shape[:-2], H, y.shape[-2], W.shape[1] // H)
            case "interleaved":
                return (y @ W).unflatten(-1, (-1, H)).movedim(-1, -3)
            case "packed reshape":
                return y.unsqueeze(-3) @ W.reshape(H, W.shape[0], W.shape[1] // H)
            case "not moved":
                return (y @ W).unflatten(-1, (H, -1))
        return (y @ W).unflatten(-1, (H, -1)).transpose(-3, -2)

    weights = made_with(W_Q, W_K, W_V, made_from)
    query, key, value = (in_heads(n, y, W) for n, (y, W) in enumerate(zip(three, weights, strict=True)))
    found = look(query, key, value, scale, axis, normaliser, among, averaged, x.shape[-1])
    if split == "not moved":
        found = found.transpose(-3, -2)
    if bias == "before W_O":
        return (merge(found, merged) + b_O) @ W_O
    result = mix(found, W_O, merged, output)
    match bias:
        case "none":
            return result
        case "per head":
            return result + num_heads * b_O
        case "subtracted":
            return result - b_O
        case "multiplied":
            return result * b_O
    return result + b_O


# ---------------------------------------------------------------------------------------
# The layer as a class
# ---------------------------------------------------------------------------------------


def _class_inputs(
    normal: Normal, model_dim: int, heads: int, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Inputs:
    names = ("query", "key", "value")[: len(shapes)]
    inputs = {name: normal(*shape, dtype=dtype) for name, shape in zip(names, shapes, strict=True)}
    head_dim = model_dim // heads
    weights = _head_weights(normal, heads, model_dim, head_dim, head_dim, dtype)
    return {"model_dim": model_dim, "num_heads": heads, **inputs, **weights}


def _class_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*sizes: Any, note: str, mask: Any = None, **how: Any) -> Case:
        inputs = _class_inputs(normal, *sizes, **how)
        return Case(inputs if mask is None else inputs | {"mask": mask}, note)

    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    lengths = torch.tensor([[3], [5]])
    padding = (torch.arange(5) < lengths).unsqueeze(-2)  # (2, 1, 5)
    allowed = normal(2, 4, 5) > -0.3
    allowed[..., 0] = True
    allowed[0, 1] = False
    training = _class_inputs(normal, 6, 2, (4, 6), (5, 6), (5, 6))
    masked_training = _class_inputs(normal, 6, 3, (2, 4, 6)) | {"mask": causal}
    low = _class_inputs(normal, 6, 2, (4, 6), dtype=torch.float64) | {"mask": causal}
    low["query"][..., 0], low["W_Q"][:, 0, 0], low["W_K"][:, 0, 0] = 2, 7, -7
    tempting = _class_inputs(normal, 6, 2, (4, 6), (5, 6)) | {
        "mask": (torch.arange(5) < 4).expand(4, 5).clone()
    }
    tempting["query"][..., 0], tempting["key"][..., 0] = 2, torch.tensor([0.0, 0, 0, 0, 1.1])
    tempting["W_Q"][:, 0, 0], tempting["W_K"][:, 0, 0] = 7, 7
    return [
        case(6, 2, (4, 6), note="self-attention"),
        case(6, 2, (3, 6), (5, 6), note="cross-attention"),
        case(8, 4, (2, 3, 8), (2, 5, 8), (2, 5, 8), note="three inputs, in a batch"),
        case(6, 3, (2, 4, 6), note="a causal mask", mask=causal, dtype=torch.float64),
        case(8, 2, (2, 4, 8), (2, 5, 8), note="a mask for each sequence of a batch", mask=padding),
        case(
            8, 2, (2, 4, 8), (2, 5, 8), note="a mask for each query, of which one sees nothing", mask=allowed
        ),
        case(5, 1, (4, 5), (4, 5), note="one head"),
        case(6, 2, (2, 3, 4, 6), (2, 3, 5, 6), note="two batch dimensions", dtype=torch.float64),
        case(64, 4, (2, 64), note="many features"),
        Case(
            training | {"output_gradient": normal(4, 6)},
            "a step of training, of which the gradients of the weights are looked at",
        ),
        Case(
            masked_training | {"output_gradient": normal(2, 4, 6)},
            "a step of training under a causal mask, of which the gradients are looked at",
        ),
        Case(low, "scores that are all far below zero"),
        Case(tempting, "a hidden key with a large score"),
    ]


def _small_class(*shapes: tuple[int, ...], **more: Any) -> laws.Draw:
    return lambda normal: _class_inputs(normal, 4, 2, *shapes) | more


HIDES_ONE = torch.tensor([True, False, True]).expand(3, 3)

multihead_class = Task(
    "MultiHeadAttention",
    multihead.MultiHeadAttention,
    {
        "model_dim": 2,
        "num_heads": 2,
        "query": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
        "W_Q": torch.tensor([[[1.0], [0.0]], [[0.0], [2.0]]]),
        "W_K": torch.tensor([[[0.0], [1.0]], [[2.0], [1.0]]]),
        "W_V": torch.tensor([[[10.0], [20.0]], [[0.0], [100.0]]]),
        "W_O": torch.tensor([[1.0, 2.0], [0.0, 1.0]]),
    },
    _class_cases,
    laws=[
        laws.vanishes(NOTHING_OUT, LAYER, _zeroed(_small_class((3, 4)), "W_O")),
        laws.stays(
            "forward(x) does the same as forward(x, x, x)",
            SELF_AND_CROSS,
            _small_class((3, 4)),
            lambda inputs, normal: {"key": inputs["query"], "value": inputs["query"]},
        ),
        Law(
            "with W_Q of zeros, the output of forward(x, memory) is the mean of memory, through W_V and W_O",
            SELF_AND_CROSS,
            _zeroed(_small_class((3, 4), (3, 4)), "W_Q"),
            _means_it("key"),
        ),
        Law(
            "with W_K of zeros every output is the mean of the third input, taken through W_V and W_O",
            SELF_AND_CROSS,
            _zeroed(_small_class((3, 4), (3, 4), (3, 4)), "W_K"),
            _means_it("value"),
        ),
        laws.stays(
            "what the mask hides plays no part",
            LAYER,
            _small_class((3, 4), (3, 4), mask=HIDES_ONE),
            lambda inputs, normal: {
                "key": inputs["key"] + normal(3, 4) * torch.tensor([[0.0], [1.0], [0.0]])
            },
        ),
        laws.stays(
            "the mask of another sequence of the batch plays no part",
            LAYER,
            _small_class((2, 3, 4), mask=torch.ones(2, 3, 3, dtype=torch.bool)),
            lambda inputs, normal: {"mask": torch.stack([inputs["mask"][0], HIDES_ONE])},
            lambda value: value[0],
        ),
        laws.stays(UNREAD, SUM_OF_HEADS, _unread_head(_small_class((3, 4))), _change_unread_head),
    ],
    way=Layer(),
    allows=OPERATOR,
    builds_on=("split_heads", "merge_heads", "multihead_attention"),
)


@multihead_class.made_of(
    start=wrongs(
        LAYER,
        """
        plain tensors: the weights are plain tensors, which nothing will ever train
            A module knows those tensors that are wrapped as parameters when they are assigned to `self`. An
            optimiser gets what `parameters()` lists; for yours that list is empty.
        zeros: all heads start with the same weights
            Heads that start equal compute the same, get the same gradient, and so stay equal for ever: you
            would pay for many heads and have one. What makes two heads different before any training?
        loud: the weights start with a standard deviation of 1, however many features there are
            A score adds up products of as many features as there are. Divide by the root of their number,
            and it has a sensible size from the start.
        empty: the weights start as whatever `torch.empty` finds in memory
            `torch.empty` reserves memory and writes nothing into it: old numbers, zeros, or NaN. A new layer
            needs numbers of which somebody knows how large they are.
        frozen: the parameters do not ask for gradients
            With `requires_grad=False` a parameter is listed, but nothing is ever learned in it.
        numbered: every new layer starts with the same numbers
            The heads differ, but two layers, one above the other, do not. The start is to be random.
        """,
    ),
    learning=wrongs(
        LAYER,
        """
        cut off: what is computed is cut off from the parameters, so that no gradient comes back
            The numbers are right. But `.data`, `detach()` and `no_grad` take a result out of what PyTorch
            remembers about its origin, and without that nothing is learned.
        weights cut off: the attention weights are cut off from the queries and keys, which then learn nothing
            The numbers are right, and values and output learn. But where a head looks depends on W_Q and W_K,
            and no gradient comes back to them.
        """,
    ),
    sources=wrongs(
        SELF_AND_CROSS,
        """
        self: the layer always attends to its own input: key and value are not used
            With one input the result is right. With two, the keys and values must come from the second. Which
            of its arguments does your forward not read?
        value ignored: the values are always made from key, even when value is given
            With one or two inputs the result is right. The third, where there is one, says what the values
            are made from.
        value from query: where value is not given, the values are made from query
            With two inputs, the second answers: its positions are found by their keys, and hand over their
            values. So what should `value` be when only `key` is given?
        or: a tensor is asked whether it is true, as `or` does
            Python's `key or query` wants one yes or no from `key`, and a tensor holds many numbers. The
            question is not whether `key` is true, but whether there is any.
        """,
    ),
    masking=LOW
    | wrongs(
        LAYER,
        """
        none: the mask is not used
            Where the mask is False, a weight must be exactly 0. What has to happen to the scores before the
            softmax?
        inverted: the mask is read the wrong way round
            In this course True means: may attend. `masked_fill` fills where its mask is True. Which of the
            two entries must become minus infinity?
        on heads: the mask of a batch falls on the heads
            The scores have a dimension that the mask has not: the heads. Dimensions are matched from the
            back, so the mask's batch meets the scores' heads. Where they happen to be equally many, nothing
            complains. What shape must the mask have, so that each sequence's mask goes for all its heads?
        after: the mask is applied to the weights, after the softmax
            What the hidden keys had of the whole is lost: the weights of a query no longer sum to 1. What
            must they not even take part in?
        zeros: the scores of hidden keys become 0 instead of minus infinity
            A score of 0 is a score like any other: exp(0) is 1. Which score has a weight of exactly 0?
        added: the mask is added to the scores as it is
            True counts as 1 and False as 0, so a key that may be seen has a score one higher than it had.
            What must be added to a score so that its weight is exactly 0?
        nothing: a query that may attend to nothing gets NaN
            All its scores are minus infinity, and the softmax divides 0 by 0. It is to get zeros.
            (masking#empty-rows)
        always: forward asks for a mask even when there is none
            A mask may be left out, and then it is None, which has no dimensions and nothing to fill.
        """,
    ),
    made_from=MADE,
    scale=only(HEAD_SCALE, "none", "dim", "model dim", "multiplied", "heads"),
    axis=only(AXES, "queries", "heads"),
    among=only(AMONG_HEADS, "first"),
    merged=only(MERGED_FOR_OUTPUT, "reshape", "summed", "interleaved"),
    output=only(OUTPUT, "none", "transposed"),
)
def any_layer(
    model_dim,
    num_heads,
    *,
    start="random",
    learning="all",
    sources="",
    masking="right",
    made_from="",
    scale="root",
    axis="keys",
    among="own",
    merged="",
    output="",
):
    def new(*shape):
        match start:
            case "zeros":
                return torch.nn.Parameter(torch.zeros(shape))
            case "loud":
                return torch.nn.Parameter(torch.randn(shape))
            case "empty":
                return torch.nn.Parameter(torch.empty(shape))
            case "numbered":
                return torch.nn.Parameter(torch.arange(math.prod(shape)).view(shape) / math.prod(shape))
        weight = torch.randn(shape) / model_dim**0.5
        return weight if start == "plain tensors" else torch.nn.Parameter(weight, start != "frozen")

    def forward(layer, query, key=None, value=None, mask=None):
        if sources == "self":
            key = value = query
        key = (key or query) if sources == "or" else query if key is None else key
        value = (query if sources == "value from query" else key) if value is None else value
        value = key if sources == "value ignored" else value
        weights = made_with(layer.W_Q, layer.W_K, layer.W_V, made_from)
        q, k, v = (y.unsqueeze(-3) @ W for y, W in zip((query, key, value), weights, strict=True))
        if learning == "weights cut off":
            q, k = q.detach(), k.detach()
        allowed = mask
        if masking == "always":
            allowed = ~~mask
        if mask is not None and mask.dim() > 2 and masking != "on heads":
            allowed = mask.unsqueeze(-3)
        hidden = (
            None
            if allowed is None or masking in ("none", "after", "zeros", "added", "nothing", "low")
            else allowed
        )
        if masking == "inverted" and mask is not None:
            hidden = ~allowed
        if hidden is None and mask is not None and masking != "none":
            # On the scores or the weights themselves, which `look` does not show.
            scores = q @ k.mT / math.sqrt(q.shape[-1])
            if masking == "zeros":
                scores = scores * allowed
            if masking == "added":
                scores = scores + allowed
            if masking == "nothing":
                scores = scores.masked_fill(~allowed, -torch.inf)
            if masking == "low":
                scores = scores.masked_fill(~allowed, -30.0)
            shares = torch.softmax(scores, -1) * (allowed.any(-1, keepdim=True) if masking == "low" else 1)
            found = (shares * allowed if masking == "after" else shares) @ v
        else:
            found = look(q, k, v, scale, axis, "", among, "", model_dim, hidden)
            if hidden is not None:
                found = found.masked_fill(~hidden.any(-1, keepdim=True), 0.0)
        result = mix(found, layer.W_O, merged, output)
        return result.detach() if learning == "cut off" else result

    layer = torch.nn.Module()
    layer.W_Q, layer.W_K, layer.W_V = (new(num_heads, model_dim, model_dim // num_heads) for _ in range(3))
    layer.W_O = new(model_dim, model_dim)
    layer.forward = lambda *inputs: forward(layer, *inputs)
    return layer


# ---------------------------------------------------------------------------------------
# PyTorch's weights
# ---------------------------------------------------------------------------------------


def _heads_to_torch(W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> tuple[Tensor, Tensor]:
    theirs = _layer(W_Q=W_Q, W_K=W_K, W_V=W_V, W_O=W_O).to_torch()
    return theirs.in_proj_weight.detach(), theirs.out_proj.weight.detach()


def _square_weights(
    normal: Normal, model_dim: int, num_heads: int, dtype: torch.dtype = torch.float32
) -> Inputs:
    shape = (num_heads, model_dim, model_dim // num_heads)
    return {
        **{name: normal(*shape, dtype=dtype) for name in NAMES},
        "W_O": normal(model_dim, model_dim, dtype=dtype),
    }


def _heads_to_torch_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_square_weights(normal, 6, 2)),
        Case(_square_weights(normal, 4, 2), "heads as large as they are many"),
        Case(_square_weights(normal, 12, 3, torch.float64), "three heads"),
        Case(_square_weights(normal, 5, 1), "one head"),
    ]


NAMES = ("W_Q", "W_K", "W_V")


def _only_third(number: int) -> Law:
    def inputs(normal: Normal) -> Inputs:
        drawn = _square_weights(normal, 4, 2)
        return drawn | {name: 0 * drawn[name] for name in NAMES if name != NAMES[number]}

    def broken(inputs: Inputs, value: tuple[Tensor, ...]) -> str | None:
        rows = value[0].any(1).nonzero().flatten().tolist()
        wrong = [row for row in rows if row // 4 != number]
        return f"in yours row {wrong[0]}, of rows 0 to 11, is made of it" if wrong else None

    where = ("first", "second", "last")[number]
    sentence = f"{NAMES[number]} goes into the {where} third of the rows of in_proj_weight alone"
    return Law(sentence, PYTORCH, inputs, broken)


def _same_mixing(inputs: Inputs, value: tuple[Tensor, ...]) -> str | None:
    x = torch.eye(4)
    words = "with the identity matrix as x yours gives {yours} at {place}, and x @ W_O gives {expected}"
    return laws.is_not(x @ value[1].T.float(), x @ inputs["W_O"], words)


def _heads_one_below_the_other(inputs: Inputs, value: tuple[Tensor, ...]) -> str | None:
    words = "yours makes {yours} as feature {place}, and ours is {expected}"
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    for head, rows in enumerate((value[0][:2], value[0][2:4])):
        wrong = laws.is_not(rows.float() @ x, x @ inputs["W_Q"][head], words)
        if wrong is not None:
            return f"for x = (1, 2, 3, 4) and head {head} {wrong}"
    return None


heads_to_torch = Task(
    "heads_to_torch",
    _heads_to_torch,
    {
        "W_Q": torch.tensor([[[0.0], [1.0]], [[2.0], [3.0]]]),
        "W_K": torch.tensor([[[4.0], [5.0]], [[6.0], [7.0]]]),
        "W_V": torch.tensor([[[8.0], [9.0]], [[10.0], [11.0]]]),
        "W_O": torch.tensor([[20.0, 21.0], [22.0, 23.0]]),
    },
    _heads_to_torch_cases,
    laws=[
        *(_only_third(number) for number in range(3)),
        Law(
            "x @ out_proj_weight.T, which is what PyTorch computes, is x @ W_O",
            PYTORCH,
            lambda normal: _square_weights(normal, 4, 2),
            _same_mixing,
        ),
        Law(
            "the first rows of in_proj_weight make the queries of head 0, the next those of head 1",
            SLICES,
            lambda normal: _square_weights(normal, 4, 2),
            _heads_one_below_the_other,
        ),
    ],
    builds_on=("merge_heads",),
)


@heads_to_torch.made_of(
    transposed=wrongs(
        PYTORCH,
        """
        none: the matrices are not transposed
            PyTorch's linear layers compute x @ weight.T: their rows are outputs. Ours compute x @ W. Since
            all the matrices are square here, no shape complains.
        inputs: W_O is not transposed
            Three of the four are right. The output projection is a linear layer of PyTorch's like the others.
        output: only W_O is transposed
            The matrices of queries, keys and values are linear layers of PyTorch's, too: their rows are
            outputs. All of them are square here, so no shape complains.
        """,
    ),
    joined=wrongs(
        SLICES,
        """
        reshape: the heads are joined by a reshape without a transpose
            The features of the heads must come to lie side by side, head 0 first, for each feature of the
            input. A reshape cannot do that: it keeps the numbers in their order.
            (multihead#view-then-transpose)
        interleaved: the heads take turns: first feature of each, second feature of each
            The first few rows of a part belong to head 0, the next few to head 1.
        """,
    ),
    parts=wrongs(
        PYTORCH,
        """
        side by side: the three parts stand side by side
            `in_proj_weight` has three times as many rows as columns: its parts stand one below the other.
        head by head: the parts are packed head by head, each with its queries, keys and values
            Some libraries pack like that. PyTorch puts all the heads' queries first, then all the keys, then
            all the values. With one head there is no difference.
        """,
    ),
    order=wrongs(
        PYTORCH,
        """
        exchanged: queries and keys have changed places
            The packed matrix has three parts, from top to bottom. In which order does PyTorch stack them?
        values before keys: keys and values have changed places
            The packed matrix has three parts, from top to bottom. In which order does PyTorch stack them?
        values first: queries and values have changed places
            The packed matrix has three parts, from top to bottom. In which order does PyTorch stack them?
        """,
    ),
)
def any_to_torch(W_Q, W_K, W_V, W_O, *, transposed="all", joined="blocks", parts="thirds", order=""):
    weights = (W_Q, W_K, W_V)
    orders = {"exchanged": (1, 0, 2), "values before keys": (0, 2, 1), "values first": (2, 1, 0)}
    num_heads, model_dim, _ = W_Q.shape
    three = []
    for number in orders.get(order, (0, 1, 2)):
        W = weights[number]
        if joined == "reshape":
            W = W.reshape(model_dim, model_dim)
        elif joined == "interleaved":
            W = W.permute(1, 2, 0).flatten(1)
        else:
            W = W.transpose(0, 1).flatten(1)
        three.append(W if transposed in ("none", "output") else W.T)
    packed = torch.cat(three, dim=1 if parts == "side by side" else 0)
    if parts == "head by head":
        rows = [W.unflatten(0, (num_heads, -1)) for W in three]
        packed = torch.stack(rows, dim=1).flatten(0, 2)
    return packed, W_O if transposed in ("none", "inputs") else W_O.T


# ---------------------------------------------------------------------------------------
# Which heads matter
# ---------------------------------------------------------------------------------------


def _ablation(loss: Callable, num_heads: int) -> Tensor:
    whole = loss(torch.ones(num_heads))
    return torch.stack([loss(1 - one_head) - whole for one_head in torch.eye(num_heads)])


def _ablation_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_heads: int, size: int, note: str, noise: float = 0.3) -> Case:
        contributions = normal(num_heads, size)
        target = contributions.sum(0) + noise * normal(size)
        return Case({"contributions": contributions, "target": target}, note)

    useless = case(4, 12, "")
    useless.inputs["target"] -= useless.inputs["contributions"][2]
    return [
        case(4, 6, "four heads"),
        case(2, 20, "two heads"),
        Case(useless.inputs, "one of the heads does harm"),
        case(1, 5, "a single head"),
        case(8, 40, "eight heads"),
    ]


def _heads(*target_of: int, silent: int | None = None) -> laws.Draw:
    """Three heads, and a target that is the sum of some of them."""

    def inputs(normal: Normal) -> Inputs:
        contributions = normal(3, 4)
        if silent is not None:
            contributions[silent] = 0
        return {"contributions": contributions, "target": contributions[list(target_of)].sum(0)}

    return inputs


def _head_is(head: int, wrong: Callable[[Tensor], Tensor]) -> Callable[[Inputs, Tensor], str | None]:
    return lambda inputs, value: f"yours gives {value[head].item():.4g}" if wrong(value[head]) else None


def _is_its_loss(inputs: Inputs, value: Tensor) -> str | None:
    expected = (inputs["contributions"] ** 2).mean(-1)
    return laws.is_not(value, expected, "yours gives {yours} at {place}, and that loss is {expected}")


importance_by_ablation = Task(
    "importance_by_ablation",
    _ablation,
    {"contributions": torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), "target": torch.tensor([3.0, 1.0])},
    _ablation_cases,
    laws=[
        Law(
            "a head that adds nothing has the importance 0",
            IMPORTANCE,
            _heads(0, 1, silent=2),
            _head_is(2, lambda number: number.abs() > 1e-5),
        ),
        Law(
            "a head without which the loss falls to 0 has a negative importance",
            IMPORTANCE,
            _heads(0, 1),
            _head_is(2, lambda number: number > -1e-5),
        ),
        Law(
            "if all heads together make no error, the importance of each is the loss without it",
            IMPORTANCE,
            _heads(0, 1, 2),
            _is_its_loss,
        ),
        laws.stays(
            "another head that adds nothing changes no importance",
            IMPORTANCE,
            _heads(0, 1),
            lambda inputs, normal: {"contributions": torch.cat([inputs["contributions"], torch.zeros(1, 4)])},
            lambda value: value[:3],
        ),
    ],
    way=Loss(),
)


@importance_by_ablation.made_of(
    silenced=wrongs(
        IMPORTANCE,
        """
        others: all heads but one are silenced, instead of only that one
            How well a head does alone is another question. What does the layer lose when this one head falls
            silent and all the others go on?
        more and more: silenced heads stay silent
            The first number is right, and from then on one head after the other is gone. Before the next head
            is tried, the last one has to be given its voice back.
        turned down: the head is turned down, but not silenced
            The mask multiplies what the head says. Which number leaves nothing of it?
        louder: the head is made louder instead of silenced
            The mask multiplies what the head says. Which number leaves nothing of it?
        """,
    ),
    compared_with=wrongs(
        IMPORTANCE,
        """
        nothing: the loss is compared with that of no head at all, instead of all heads
            From where does the loss rise when one head falls silent: what is it before?
        no loss: the loss without each head, instead of how much it rises
            A large loss alone says nothing about the head: perhaps it was as large before. What do you
            compare it with?
        mean: the loss is compared with the mean loss without a head
            From where does the loss rise when one head falls silent: what is it before?
        """,
    ),
    rise=wrongs(
        IMPORTANCE,
        """
        turned: the sign is turned round
            A head matters if the loss goes up when it is silenced. Then its importance is to be positive.
        ratio: the ratio of the losses, instead of their difference
            A ratio explodes when the loss of the whole layer is small, and it is never 0 for a head that does
            nothing. By how much does the loss rise?
        relative: the rise is divided by the loss of the whole layer
            A layer that makes no error would have infinitely important heads. By how much does the loss rise,
            as it is?
        size: the sign is lost: harm counts as importance
            A head without which the loss falls does harm. Is it to be told from one that is needed?
        squared: the rise is squared
            A head without which the loss falls does harm. Is it to be told from one that is needed?
        clamped: a fall of the loss counts as 0
            A head without which the loss falls does harm. Is it to be told from one that does nothing?
        per head: the rise is divided by the number of heads
            Each head is asked a question of its own, however many others there are: by how much does the loss
            rise without it?
        shares: the importances are made to sum to 1
            Each head is asked a question of its own: by how much does the loss rise without it?
        """,
    ),
)
def any_ablation(loss, num_heads, *, silenced="one", compared_with="whole", rise="difference"):
    masks = 1 - torch.eye(num_heads)
    masks = {"others": 1 - masks, "turned down": (1 + masks) / 2, "louder": 2 - masks}.get(silenced, masks)
    if silenced == "more and more":
        masks = torch.ones(num_heads, num_heads).triu(1)
    without = torch.stack([loss(mask) for mask in masks])
    before = loss(torch.zeros(num_heads) if compared_with == "nothing" else torch.ones(num_heads))
    before = {"no loss": 0 * before, "mean": without.mean()}.get(compared_with, before)
    importance = without - before
    return {
        "turned": -importance,
        "ratio": without / before,
        "relative": importance / before,
        "size": importance.abs(),
        "squared": importance**2,
        "clamped": importance.clamp(min=0),
        "per head": importance / num_heads,
        "shares": importance / importance.sum(),
    }.get(rise, importance)


@importance_by_ablation.mistake(
    "what each head gains when it is the only one",
    hint="""You compare a head alone with no head at all. Others may do the same work, and then it is not
    missed. Start from the whole layer and take the head away.""",
    read=IMPORTANCE,
)
def ablation_from_nothing(loss, num_heads):
    nothing = loss(torch.zeros(num_heads))
    return torch.stack([nothing - loss(one_head) for one_head in torch.eye(num_heads)])


@importance_by_ablation.mistake(
    "this is the derivative of the loss, not what happens when a head is silenced",
    hint="""A derivative says how the loss begins to change. Silencing a head is a large step: take it, and
    see.""",
    read=IMPORTANCE,
)
def ablation_by_derivative(loss, num_heads):
    head_mask = torch.ones(num_heads, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(head_mask), head_mask)
    return gradient


@importance_by_ablation.mistake(
    "this is minus the derivative of the loss, not what happens when a head is silenced",
    hint="""A derivative says how the loss begins to change. Silencing a head is a large step: take it, and
    see.""",
    read=IMPORTANCE,
)
def ablation_by_minus_derivative(loss, num_heads):
    head_mask = torch.ones(num_heads, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(head_mask), head_mask)
    return -gradient


@importance_by_ablation.mistake(
    "this is the size of the derivative of the loss, not what happens when a head is silenced",
    hint="""A derivative says how the loss begins to change, and without its sign not even whether it rises.
    Silencing a head is a large step: take it, and see.""",
    read=IMPORTANCE,
)
def ablation_by_size_of_derivative(loss, num_heads):
    head_mask = torch.ones(num_heads, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(head_mask), head_mask)
    return gradient.abs()


# ---------------------------------------------------------------------------------------
# Pruning
# ---------------------------------------------------------------------------------------


def _pruned_weights(
    W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor, heads: list[int]
) -> tuple[Tensor, ...]:
    blocks = W_O.unflatten(0, (W_Q.shape[0], -1))  # (num_heads, value_dim, model_dim)
    return W_Q[heads], W_K[heads], W_V[heads], blocks[heads].flatten(0, 1)


def _pruned_weights_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        num_heads: int, dims: tuple[int, int, int], heads: list[int], note: str = "", **how: Any
    ) -> Case:
        return Case({**_head_weights(normal, num_heads, *dims, **how), "heads": heads}, note)

    return [
        case(4, (8, 2, 2), [0, 2]),
        case(3, (6, 4, 2), [2], "one head is kept"),
        case(4, (4, 4, 4), [1, 2, 3], "sizes all equal"),
        case(5, (10, 2, 3), [3, 0, 4], "in another order", dtype=torch.float64),
        case(2, (6, 3, 3), [0, 1], "all heads are kept"),
    ]


def _to_prune(*heads: int) -> laws.Draw:
    return lambda normal: {**_head_weights(normal, 4, 4, 3, 2), "heads": list(heads)}


def _nothing_pruned(inputs: Inputs, value: tuple[Tensor, ...]) -> str | None:
    for name, weight in zip((*NAMES, "W_O"), value, strict=True):
        wrong = laws.is_not(weight, inputs[name], f"{name} of yours has {{yours}} at {{place}}")
        if wrong is not None:
            return wrong
    return None


def _head_kept(number: int, part: int) -> Callable[[Inputs, tuple[Tensor, ...]], str | None]:
    def broken(inputs: Inputs, value: tuple[Tensor, ...]) -> str | None:
        head = inputs["heads"][number]
        if part == 3:
            here, there = value[3][2 * number : 2 * number + 2], inputs["W_O"][2 * head : 2 * head + 2]
            words = f"in the rows for head {head} yours has {{yours}} at {{place}}, and W_O has {{expected}}"
        else:
            here, there = value[part][number], inputs[NAMES[part]][head]
            words = f"at {{place}} of what was head {head} yours has {{yours}}, and it had {{expected}}"
        return laws.is_not(here, there, words)

    return broken


pruned_weights = Task(
    "pruned_weights",
    _pruned_weights,
    {
        "W_Q": torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]], [[5.0], [6.0]]]),
        "W_K": torch.tensor([[[7.0], [8.0]], [[9.0], [10.0]], [[11.0], [12.0]]]),
        "W_V": torch.arange(20.0, 32.0).view(3, 2, 2),
        "W_O": torch.arange(40.0, 52.0).view(6, 2),
        "heads": [2, 0],
    },
    _pruned_weights_cases,
    laws=[
        Law(
            "to keep all heads in their order changes nothing",
            PRUNING,
            _to_prune(0, 1, 2, 3),
            _nothing_pruned,
        ),
        *(
            Law(
                f"the first head of the new {name} is the first that is listed",
                PRUNING,
                _to_prune(2, 1),
                broken,
            )
            for name, broken in zip(NAMES, (_head_kept(0, part) for part in range(3)), strict=True)
        ),
        Law(
            "the second head that is listed is the second of the new heads",
            PRUNING,
            _to_prune(3, 1),
            _head_kept(1, 0),
        ),
        Law(
            "each head that is kept brings its own rows of W_O along",
            SUM_OF_HEADS,
            _to_prune(2, 1),
            lambda inputs, value: _head_kept(0, 3)(inputs, value) or _head_kept(1, 3)(inputs, value),
        ),
    ],
)


@pruned_weights.made_of(
    kept=wrongs(
        PRUNING,
        """
        others: the heads that were to be kept are removed
            `heads` lists those that stay.
        first: the first heads are kept, as many as are listed
            `heads` says which heads stay, not only how many.
        sorted: the heads come in their old order, not in that of the list
            The heads that are kept are the right ones. But in which order are they listed?
        sorted but W_O: the heads come in their old order, and the blocks of W_O in that of the list
            Each block of rows has to meet the features of its own head. In which order are the heads listed?
        backwards: the heads come in the opposite order of the list
            The heads that are kept are the right ones. But in which order are they listed?
        from one: the heads are counted from 1
            Heads are counted from 0 here: which is the first of those that are listed?
        """,
    ),
    output=wrongs(
        SUM_OF_HEADS,
        """
        left: W_O is left as it was
            With fewer heads, the merged vector gets shorter, and W_O no longer fits. Which of its rows has
            nothing to multiply any more? (multihead#pruning-heads)
        single rows: W_O keeps one row for each head, instead of a block of rows
            Each head brings value_dim features into the merged vector. So how many rows of W_O belong to one
            head, and where do they start?
        interleaved: the rows of W_O are taken as if the features of the heads were shuffled together
            In the merged vector all features of head 0 come first, then all those of head 1. So the rows of
            one head are neighbours.
        first rows: W_O keeps its first rows, as many as are needed
            The shape is right. But the first rows belong to head 0. Which rows belong to the heads that you
            keep?
        key dim: the blocks of W_O are key_dim rows long
            What is merged is the heads' outputs, and those are averages of values. How many features has one?
        columns: columns of W_O are removed instead of rows
            What comes out of W_O is the output, and that keeps all its features. What goes in is the heads:
            are these met by rows or by columns?
        blocks: the blocks of W_O are stacked, but not put one below the other again
            The blocks are the right ones. Your W_O has three dimensions: which two must become one?
        old order: the blocks of W_O are in their old order, whatever the order of the heads
            Each block of rows has to meet the features of its own head. In which order do these come now?
        """,
    ),
    forgotten=wrongs(
        PRUNING,
        """
        zeros: the weights of the other heads are set to zero, but not removed
            A head of zeros adds nothing, so the output would be right. But it costs as much time and memory
            as before. The result is to have fewer heads.
        values: W_V keeps all its heads
            A head has a slice of each of W_Q, W_K and W_V. Which of the three have you not touched?
        queries only: only W_Q is pruned
            A head has a slice of each of W_Q, W_K and W_V. Which of the three have you not touched?
        """,
    ),
)
def any_pruned(W_Q, W_K, W_V, W_O, heads, *, kept="listed", output="own blocks", forgotten="nothing"):
    number, size = W_V.shape[0], W_V.shape[2]
    listed = {
        "others": [head for head in range(number) if head not in heads],
        "first": list(range(len(heads))),
        "sorted": sorted(heads),
        "sorted but W_O": sorted(heads),
        "backwards": heads[::-1],
        "from one": [head - 1 for head in heads],
    }.get(kept, heads)
    if forgotten == "zeros":
        keep = torch.zeros(number, dtype=W_Q.dtype)
        keep[listed] = 1
        rows = keep.repeat_interleave(size)
        return *(W * keep[:, None, None] for W in (W_Q, W_K, W_V)), W_O * rows[:, None]
    blocks = W_O.unflatten(0, (number, size))
    match output:
        case "left":
            rows = W_O
        case "single rows":
            rows = W_O[listed]
        case "interleaved":
            rows = W_O.unflatten(0, (size, number))[:, listed].flatten(0, 1)
        case "first rows":
            rows = W_O[: len(listed) * size]
        case "key dim":
            size = W_Q.shape[2]
            rows = torch.cat([W_O[head * size : (head + 1) * size] for head in listed])
        case "columns":
            rows = W_O.unflatten(1, (number, -1))[:, listed].flatten(1)
        case "blocks":
            rows = blocks[listed]
        case "old order":
            rows = blocks[sorted(listed)].flatten(0, 1)
        case _:
            rows = blocks[heads if kept == "sorted but W_O" else listed].flatten(0, 1)
    three = [W if forgotten == "queries only" and W is not W_Q else W[listed] for W in (W_Q, W_K, W_V)]
    return three[0], three[1], W_V if forgotten == "values" else three[2], rows


# ---------------------------------------------------------------------------------------
# Find the slip: which neighbour does a wrong layer see?
# ---------------------------------------------------------------------------------------

_SEEN, _SLIP_DIM = 4, 6  # positions of x and of the memory, and features: two heads of three


def _wrong_cross(seed: int) -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Layers of which somebody says that they are cross-attention, with two heads; none is."""
    normal = normal_source(seed, "layers")

    def draw(*shape: int) -> Tensor:
        return normal(*shape, dtype=torch.float64)

    W_Q, W_K, W_V, W_O = draw(4, _SLIP_DIM, _SLIP_DIM) / _SLIP_DIM**0.5
    parts = (2, _SEEN, _SLIP_DIM // 2)
    onto_first, onto_second, onto_third = torch.zeros(3, _SEEN, _SEEN, dtype=torch.float64)
    onto_first[0, _SEEN - 1], onto_second[1, 0], onto_third[2, 1] = 0.01, 0.01, 0.01

    def cut(rows: Tensor) -> Tensor:
        return rows.unflatten(-1, (2, _SLIP_DIM // 2)).transpose(-3, -2)

    def join(heads: Tensor) -> Tensor:
        return heads.transpose(-3, -2).flatten(-2)

    def weights(query: Tensor, key: Tensor, dim: int = -1) -> Tensor:
        return torch.softmax(query @ key.transpose(-2, -1) / (_SLIP_DIM // 2) ** 0.5, dim)

    def right(x: Tensor, memory: Tensor) -> Tensor:
        return join(weights(cut(x @ W_Q), cut(memory @ W_K)) @ cut(memory @ W_V)) @ W_O

    def asked_by_memory(x: Tensor, memory: Tensor) -> Tensor:
        return join(weights(cut(memory @ W_Q), cut(x @ W_K)) @ cut(x @ W_V)) @ W_O

    def cut_by_view(x: Tensor, memory: Tensor) -> Tensor:
        query, key, value = ((rows).reshape(parts) for rows in (x @ W_Q, memory @ W_K, memory @ W_V))
        return join(weights(query, key) @ value) @ W_O

    def joined_by_view(x: Tensor, memory: Tensor) -> Tensor:
        heads = weights(cut(x @ W_Q), cut(memory @ W_K)) @ cut(memory @ W_V)
        return heads.reshape(_SEEN, _SLIP_DIM) @ W_O

    def over_queries(x: Tensor, memory: Tensor) -> Tensor:
        return join(weights(cut(x @ W_Q), cut(memory @ W_K), -2) @ cut(memory @ W_V)) @ W_O

    def values_of_x(x: Tensor, memory: Tensor) -> Tensor:
        return join(weights(cut(x @ W_Q), cut(memory @ W_K)) @ cut(x @ W_V)) @ W_O

    def keys_of_both(x: Tensor, memory: Tensor) -> Tensor:
        both = torch.cat([memory, x])
        return join(weights(cut(x @ W_Q), cut(both @ W_K)) @ cut(both @ W_V)) @ W_O

    return {
        "keys and queries are exchanged": asked_by_memory,
        "heads are cut by view, without a transpose": cut_by_view,
        "heads are joined by view, without a transpose": joined_by_view,
        "the weights are normalised over the queries": over_queries,
        "the values are made from x": values_of_x,
        "x is attended to as well as the memory": keys_of_both,
        "the last position of x reaches the first output, a little": (
            lambda x, memory: right(x, memory) + onto_first @ x
        ),
        "the first position of x reaches the second output, a little": (
            lambda x, memory: right(x, memory) + onto_second @ x
        ),
        "the second position of x reaches the third output, a little": (
            lambda x, memory: right(x, memory) + onto_third @ x
        ),
    }


def _wrong_cross_cases(seed: int) -> list[Case]:
    normal, layers = normal_source(seed), _wrong_cross(seed)
    return [
        Case(
            {
                "layer": trace(layers[name]),
                "x": normal(_SEEN, _SLIP_DIM, dtype=torch.float64),
                "memory": normal(_SEEN, _SLIP_DIM, dtype=torch.float64),
            },
            f"the slip is: {name}",
        )
        for name in in_any_order(layers, seed)
    ]


def _reached(
    layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, other: Tensor, memory: Tensor
) -> list[int]:
    """The rows of the output that change, of those whose row of x does not."""
    before, after = layer(x, memory), layer(other, memory)
    changed = (after - before).abs().amax(-1) > 1e-9 * before.abs().max()
    return [row for row in changed.nonzero().flatten().tolist() if torch.equal(x[row], other[row])]


def _seen_neighbour(layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, memory: Tensor) -> Tensor:
    for row in range(len(x)):
        other = x.clone()
        other[row] += 1
        if _reached(layer, x, other, memory):
            return other
    return x


def _shows_the_slip(inputs: dict[str, Any], value: Any) -> str | None:
    layer, x, memory = inputs["layer"], inputs["x"], inputs["memory"]
    if not isinstance(value, Tensor) or value.shape != x.shape:
        return f"a sequence like x was expected: a tensor of shape {tuple(x.shape)}"
    if value.dtype != x.dtype:
        return f"the dtype should be {str(x.dtype).removeprefix('torch.')}, that of x"
    if not value.isfinite().all():
        return "some of its numbers are not finite"
    rows = (value != x).any(-1).nonzero().flatten().tolist()
    if not rows:
        return "it is x itself: nothing changes, and nothing is shown"
    if len(rows) > 1:
        return f"its rows {', '.join(map(str, rows))} are other ones than those of x, and only one may be"
    if not _reached(layer, x, value, memory):
        return f"with another row {rows[0]} no other row of the output changes, so it shows nothing"
    return None


seen_neighbour = Task(
    "seen_neighbour",
    _seen_neighbour,
    {
        "layer": trace(
            lambda x, memory: x + memory + torch.tensor([[0.0, 0, 1], [0, 0, 0], [0, 0, 0]]).double() @ x
        ),
        "x": torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], dtype=torch.float64),
        "memory": torch.zeros(3, 2, dtype=torch.float64),
    },
    _wrong_cross_cases,
    compare=_shows_the_slip,
)


@seen_neighbour.mistake(
    "x itself is returned",
    hint="""Two inputs are compared: x and yours. If they are the same, so are the outputs.""",
    read=SELF_AND_CROSS,
)
def seen_neighbour_unchanged(layer, x, memory):
    return x.clone()


@seen_neighbour.mistake(
    "the whole sequence is another one",
    hint="""If every row of x has changed, every row of the output may change, also in a right layer.
    Change one row, and look at the others.""",
    read=SELF_AND_CROSS,
)
def seen_neighbour_all_changed(layer, x, memory):
    return x + 1


@seen_neighbour.mistake(
    "it is always the first row that is changed",
    hint="""Not every position is seen by another one. That the output changes in the *same* row says nothing:
    that row asks. Try all rows, and return one that another row of the output sees.""",
    read=SELF_AND_CROSS,
)
def seen_neighbour_first(layer, x, memory):
    other = x.clone()
    other[0] += 1
    return other


@seen_neighbour.mistake(
    "it is always the last row that is changed",
    hint="""Not every position is seen by another one. Try the others, too, and return one that is seen.""",
    read=SELF_AND_CROSS,
)
def seen_neighbour_last(layer, x, memory):
    other = x.clone()
    other[-1] += 1
    return other


@seen_neighbour.mistake(
    "the output is returned instead of an input",
    hint="""What is asked for is a sequence that goes into the layer.""",
    read=SELF_AND_CROSS,
)
def seen_neighbour_output(layer, x, memory):
    return layer(x, memory)


# ---------------------------------------------------------------------------------------
# The experiment: predict, and explain
# ---------------------------------------------------------------------------------------


def _least_loss(num_heads: int, num_looks: int, variance: float) -> float:
    return variance * max(0, num_looks - num_heads) / num_looks


def _looks(num_heads: int, num_looks: int, variance: float) -> Inputs:
    return {"num_heads": num_heads, "num_looks": num_looks, "variance": variance}


def _least_loss_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")
    variance, looks = 0.5 + draws.rand(4), draws.randint(5, 9, (2,))
    first, second, third, fourth = (round(number.item(), 3) for number in variance)
    return [
        Case(_looks(2, 2, first), "a head for each"),
        Case(_looks(1, 3, second), "one head, three things to find"),
        Case(_looks(3, int(looks[0]), third), "three heads, more things to find"),
        Case(_looks(6, 2, fourth), "more heads than things to find"),
        Case(_looks(4, int(looks[1]), 0.5), "four heads, more things to find"),
    ]


def _loss_is(number: float) -> Callable[[Inputs, float], str | None]:
    return lambda inputs, value: None if abs(value - number) < 1e-6 else f"yours is {value:.4g}"


def _rise_together(inputs: list[Inputs], values: list[float]) -> str | None:
    if abs(values[1] - 2 * values[0]) < 1e-6:
        return None
    once = inputs[0]["variance"]
    return f"yours is {values[0]:.4g} for the variance {once} and {values[1]:.4g} for twice that"


least_loss = Task(
    "least_loss",
    _least_loss,
    _looks(1, 4, 2.0),
    _least_loss_cases,
    laws=[
        Law(
            "as many heads as there are numbers to find leave no error: 0",
            HEADS,
            lambda normal: _looks(3, 3, 1.0),
            _loss_is(0),
        ),
        Law(
            "more heads than numbers to find leave no error either",
            HEADS,
            lambda normal: _looks(5, 3, 1.0),
            _loss_is(0),
        ),
        Law(
            "twice the variance is twice the loss",
            ONE_AVERAGE,
            lambda normal: [_looks(2, 5, 1.0), _looks(2, 5, 2.0)],
            _rise_together,
        ),
        Law(
            "one head that finds one of two numbers leaves the variance of the other, half of it in "
            "the mean: with variance 1, 0.5",
            ONE_AVERAGE,
            lambda normal: _looks(1, 2, 1.0),
            _loss_is(0.5),
        ),
        Law(
            "one head that finds one of four numbers leaves the variance of three, three quarters of it in "
            "the mean: with variance 1, 0.75",
            ONE_AVERAGE,
            lambda normal: _looks(1, 4, 1.0),
            _loss_is(0.75),
        ),
    ],
)


@least_loss.made_of(
    found=wrongs(
        HEADS,
        """
        one: every number is found by one head
            A head finds one average for each query. What is one average worth, if two numbers are wanted?
        all or nothing: with too few heads nothing is found
            A head that finds one of the numbers leaves an error on the others only.
        below zero: more heads than numbers to find make the loss negative
            A squared error is never below 0. What do the spare heads do?
        heads in the denominator: what is left is divided by the number of heads
            The loss is a mean over the numbers that are wanted, however many heads there are.
        share: the share that is found is taken for the share that is left
            With as many heads as numbers nothing is left.
        """,
    ),
    counted=wrongs(
        ONE_AVERAGE,
        """
        sum: the errors of the numbers are added up
            The loss is a mean over all the numbers that are wanted.
        no variance: the variance of the numbers is not used
            Whoever knows nothing of a number guesses its mean. What is then the mean squared error?
        root: the standard deviation is used instead of the variance
            Errors count squared.
        """,
    ),
    wanted=wrongs(
        HEADS,
        """
        two: two numbers are taken to be wanted, whatever `num_looks` says
            In the experiment there are two. Here `num_looks` says how many.
        """,
    ),
)
def any_least_loss(num_heads, num_looks, variance, *, found="", counted="", wanted=""):
    num_looks = 2 if wanted == "two" else num_looks
    left = max(0, num_looks - num_heads)
    left = {
        "one": 0,
        "all or nothing": num_looks if left else 0,
        "below zero": num_looks - num_heads,
        "share": min(num_heads, num_looks),
    }.get(found, left)
    if counted != "sum":
        left = left / (num_heads if found == "heads in the denominator" else num_looks)
    return left * {"no variance": 1.0, "root": variance**0.5}.get(counted, variance)


def _finds(weights: Tensor, wanted: Tensor) -> Tensor:
    """How much weight each head gives, on average, to each of what is wanted, (num_heads, num_looks)."""
    return weights.gather(2, wanted.expand(len(weights), -1, -1)).mean(1)


def _what_heads_find(weights: Tensor, wanted: Tensor) -> str:
    share = _finds(weights, wanted)
    found = (share > 0.5).any(0)
    if found.all():
        return "apart"
    if found.any():
        return "one-sided"
    return "shared" if (share.sum(1) > 0.5).any() else "lost"


HEAD_WORDS = ("apart", "one-sided", "shared", "lost")


def _head_maps(
    normal: Normal, *targets: tuple[float, ...], num_queries: int = 40, num_keys: int = 6
) -> Inputs:
    """Weights of heads that give, on average, so much to each of the wanted keys."""
    double = {"dtype": torch.float64}
    num_looks = len(targets[0])
    wanted = normal(num_queries, num_keys, **double).argsort(-1)[:, :num_looks]
    hit = torch.nn.functional.one_hot(wanted, num_keys).double()  # (num_queries, num_looks, num_keys)
    maps = []
    for target in targets:
        # More in one query and less in another, so that no single one tells; together never more than 1.
        most = min(0.3, 0.8 * (1 / max(sum(target), 0.5) - 1))
        wobble = 1 + most * torch.tanh(normal(num_queries, 1, **double))
        share = torch.tensor(target).double() * wobble / wobble.mean()  # (num_queries, num_looks)
        rest = (1 - hit.sum(1)) * normal(num_queries, num_keys, **double).exp()
        rest = rest / rest.sum(-1, keepdim=True) * (1 - share.sum(-1, keepdim=True))
        maps.append((share[..., None] * hit).sum(1) + rest)
    return {"weights": torch.stack(maps), "wanted": wanted}


def _heads_find_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    draws = Draws(seed, "choices")
    records = {
        "two heads": ((0.7, 0.05), (0.1, 0.65)),
        "three heads": ((0.3, 0.2), (0.02, 0.7), (0.68, 0.04)),
        "two heads with the same map": ((0.7, 0.02), (0.7, 0.02)),
        "one head": ((0.03, 0.56),),
        "one head that looks at two": ((0.31, 0.28),),
        "one head that looks at two, at one of them more": ((0.46, 0.22),),
        "one head that looks at three": ((0.23, 0.23, 0.23),),
        "three heads that look at two": ((0.38, 0.3), (0.33, 0.37), (0.3, 0.4)),
        "four heads": ((0.1, 0.15), (0.2, 0.1), (0.17, 0.17), (0.12, 0.2)),
        "four heads, some of which look": ((0.4, 0.05), (0.05, 0.4), (0.4, 0.05), (0.05, 0.42)),
        "three things wanted": ((0.7, 0.02, 0.02), (0.02, 0.7, 0.02), (0.1, 0.1, 0.66)),
        "three things wanted, two heads": ((0.7, 0.02, 0.02), (0.02, 0.7, 0.02)),
    }

    def maps(targets: tuple[tuple[float, ...], ...], num_keys: int = 6) -> Inputs:
        """Weights that give a little more or less, by heads in any order."""
        off = 1 + 0.06 * (2 * draws.rand(len(targets), len(targets[0])) - 1)
        order = draws.randperm(len(targets))
        return _head_maps(normal, *(torch.tensor(targets) * off)[order].tolist(), num_keys=num_keys)

    def some(inputs: Inputs, places: tuple[int, ...]) -> Inputs:
        """Only these keys are wanted, in any order."""
        order = draws.randperm(len(places))
        return inputs | {"wanted": inputs["wanted"][:, torch.tensor(places)[order]]}

    cases = []
    for name in in_any_order(records, seed):
        places = tuple(range(len(records[name][0])))
        cases.append(Case(some(maps(records[name]), places), name))
    # The same weights for different words: which one is right depends on what is wanted.
    three = maps(
        (
            (0.6, 0.04, 0.04, 0.05, 0.03, 0.02),
            (0.03, 0.6, 0.04, 0.04, 0.02, 0.03),
            (0.04, 0.03, 0.3, 0.33, 0.02, 0.03),
        ),
        num_keys=7,
    )
    one = maps(((0.04, 0.6, 0.1, 0.02, 0.03, 0.03),), num_keys=7)
    alike = {
        "three heads that look at four keys": (three, ((0, 1), (1, 4), (2, 3), (4, 5), (2, 4), (3, 0, 1))),
        "one head that looks at one key": (one, ((1, 2), (2, 0), (3, 4, 5))),
    }
    for name in in_any_order(alike, seed):
        inputs, choices = alike[name]
        order = draws.randperm(len(choices))
        cases += [
            Case(some(inputs, choices[place]), f"{name}, of which not all are wanted") for place in order
        ]
    turns = _head_maps(normal, (0.8, 0.1), (0.1, 0.8))
    swapped = turns["weights"].flip(0)
    odd = (torch.arange(len(turns["wanted"])) % 2 == 1)[:, None]
    return [
        *cases,
        Case(_exact_maps("shared")(normal), "exactly half for each of two"),
        Case(_exact_maps("half")(normal), "exactly half for two together"),
        Case(_head_maps(normal, (0.27, 0.255), (0.1, 0.1)), "a little more than half for two together"),
        Case(_head_maps(normal, (0.1, 0.2), (0.525, 0.02)), "a little more than half for one"),
        Case(turns | {"weights": torch.where(odd, swapped, turns["weights"])}, "heads that take turns"),
    ]


def _exact_maps(word: str) -> laws.Draw:
    targets = {
        "apart": ((1.0, 0.0), (0.0, 1.0)),
        "one-sided": ((1.0, 0.0), (1.0, 0.0)),
        "shared": ((0.5, 0.5), (0.5, 0.5)),
        "lost": ((0.0, 0.0), (0.0, 0.0)),
        "half": ((0.25, 0.25), (0.25, 0.25)),
    }[word]

    def draw(normal: Normal) -> Inputs:
        drawn = _head_maps(normal, *targets, num_queries=5)
        whole = torch.nn.functional.one_hot(drawn["wanted"], 6).double()  # (5, 2, 6)
        maps = [(torch.tensor(target).double()[:, None] * whole).sum(1) for target in targets]
        rest = (1 - whole.sum(1)) / 4
        maps = [each + (1 - sum(target)) * rest for each, target in zip(maps, targets, strict=True)]
        return drawn | {"weights": torch.stack(maps)}

    return draw


def _head_law(word: str, when: str) -> Law:
    return Law(f"where {when}, the answer is {word!r}", HEADS, _exact_maps(word), laws.says(word))


what_heads_find = Task(
    "what_heads_find",
    _what_heads_find,
    {
        "weights": torch.tensor(
            [[[0.75, 0.25, 0.0], [0.0, 1.0, 0.0]], [[0.25, 0.0, 0.75], [0.5, 0.5, 0.0]]], dtype=torch.float64
        ),
        "wanted": torch.tensor([[0, 2], [1, 0]]),
    },
    _heads_find_cases,
    laws=[
        _head_law(
            "apart",
            "one head gives all its weight to the key that is wanted first and another to "
            "the one wanted second",
        ),
        _head_law("one-sided", "all heads give all their weight to the key that is wanted first"),
        _head_law(
            "shared",
            "every head gives half its weight to the key that is wanted first and half to "
            "the one wanted second",
        ),
        _head_law("lost", "no head gives any weight to what is wanted"),
    ],
)


@what_heads_find.made_of(
    share=wrongs(
        HEADS,
        """
        all heads: the heads are averaged before anything is asked
            What one head finds and another does not is lost in their mean. Ask each head by itself.
        best head: of each query the best head counts, before the mean over the queries
            A head that does it now and then, and another at other times, have not found out how. Take the
            mean of each head first.
        best query: a head counts by its best query, not by the mean over them
            A head that finds something once in a while has not found out how. Take the mean over the queries.
        first query: only the first query is looked at
            Another query may say otherwise. Take the mean over all queries.
        first wanted: the keys that the first query wants are looked for by all
            Each query wants keys of its own: row q of `wanted` belongs to query q.
        places: columns 0, 1, … of the weights are read instead of the keys that are wanted
            `wanted` says which key each query wants, as a number. Column 0 of the weights is key 0,
            whichever key is wanted.
        """,
    ),
    decided=wrongs(
        HEADS,
        """
        any: one head that finds something is enough
            Each of the things that are wanted must have a head.
        first only: only the first thing that is wanted is asked about
            There are two of them, or more.
        every head: every head must find something, instead of everything being found by some head
            Two heads that find the same thing leave the other one unfound. Each thing that is wanted must
            have a head.
        shared first: what heads give to all that is wanted together is asked before what they find
            A head that gives nearly all to one thing gives as much to all of them together. What is asked
            last, only if no head has found anything?
        together: a head counts as finding each thing if it finds them together
            Half of the weight for each makes one average of the two, and they cannot be told apart.
        largest: a head that gives one thing more than the others counts, however little that is
            A little more than nothing is not found. It takes more than half of the weight.
        little: less than half of the weight is taken for found
            It takes more than half of the weight.
        much: half of the weight and more is not yet taken for found
            It takes more than half of the weight, and no more than that.
        no sharing: what heads give to all that is wanted together is not asked
            If no head finds one thing, it may still find a mean of them. That is not the same as being lost.
        """,
    ),
)
def any_what_heads_find(weights, wanted, *, share="", decided=""):
    num_looks = wanted.shape[1]
    at = {"places": torch.arange(num_looks), "first wanted": wanted[0]}.get(share, wanted)
    at = at.expand(wanted.shape)
    given = weights.mean(0, keepdim=True) if share == "all heads" else weights
    given = given.gather(2, at.expand(given.shape[0], -1, -1))  # (num_heads, num_queries, num_looks)
    mean = {
        "best head": given.amax(0, keepdim=True).mean(1),
        "best query": given.amax(1),
        "first query": given[:, 0],
    }.get(share, given.mean(1))
    found = (mean > {"little": 0.3, "much": 0.9}.get(decided, 0.5)).any(1 if decided == "every head" else 0)
    if decided == "together":
        found = ((mean.sum(1, keepdim=True) > 0.5) & (mean > 0.25)).any(0)
    elif decided == "largest":
        found = (mean == mean.amax(1, keepdim=True)).any(0)
    elif decided == "first only":
        found = found[:1]
    if found.all() or (decided == "any" and found.any()):
        return "apart"
    if decided == "shared first" and (mean.sum(1) > 0.5).any():
        return "shared"
    if found.any():
        return "one-sided"
    return "shared" if decided != "no sharing" and (mean.sum(1) > 0.5).any() else "lost"
