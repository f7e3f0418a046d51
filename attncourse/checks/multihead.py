"""Tasks of the unit ``multihead``: from splitting into heads to the layer, its weights and its pruning."""

import math
from typing import Any

import torch
from torch import Tensor

from attncourse import multihead
from attncourse.checks.probe import Misfit, given
from attncourse.checks.task import Case, Task, normal_source

# Attention for one head is what the first unit was about: it may be called here.
OPERATOR = ("attention", "attention_weights", "softargmax")


# ---------------------------------------------------------------------------------------
# Split into heads
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
    ]


split_heads = Task("split_heads", multihead.split_heads, _split_heads_cases)


@split_heads.misconception(
    "a reshape straight to the shape asked for, without a transpose",
    hint="""The shape is right, but look at what head 0 has got: the first positions with all their
    features, cut into pieces. A reshape keeps the numbers in the order in which they lie in memory. Which
    two dimensions have to change places, and when?""",
    read="multihead#view-then-transpose",
)
def split_by_reshape(x, num_heads):
    return x.reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-1] // num_heads)


@split_heads.misconception(
    "the features are cut into heads, but the heads stand behind the positions",
    hint="""The first step is done: every position has its features in blocks. Attention works on the
    last two dimensions, so these must be positions and features. Where do the heads have to go?""",
    read="multihead#view-then-transpose",
)
def split_without_moving(x, num_heads):
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads)


@split_heads.misconception(
    "each head takes every so-many-th feature, instead of a block of neighbours",
    hint="""The features of head 0 are to be the first few, those of head 1 the next few. When the last
    dimension is cut in two, the first of the two counts the blocks.""",
    read="multihead#slices",
)
def split_interleaved(x, num_heads):
    return x.reshape(*x.shape[:-1], x.shape[-1] // num_heads, num_heads).movedim(-1, -3)


@split_heads.misconception(
    "the heads stand before the batch",
    hint="""For a single sequence this is right. With a batch, every sequence is to have its heads:
    dimensions of the batch come first, then heads, positions and features.""",
    read="multihead#view-then-transpose",
)
def split_before_batch(x, num_heads):
    return torch.stack(x.chunk(num_heads, dim=-1))


@split_heads.misconception(
    "dimensions 1 and 2 change places, which is right for exactly one batch dimension",
    hint="""Counted from the front, dimensions move when a batch is added. How do you name the same two
    when you count from the back?""",
    read="multihead#view-then-transpose",
)
def split_from_the_front(x, num_heads):
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).transpose(1, 2)


@split_heads.misconception(
    "the positions are shared out among the heads, instead of the features",
    hint="""Every head looks at the whole sequence; otherwise a word could not attend to a word that
    another head got. What a head has for itself is some of the features.""",
    read="multihead#slices",
)
def split_positions(x, num_heads):
    return x.reshape(*x.shape[:-2], num_heads, -1, x.shape[-1])


@split_heads.misconception(
    "num_heads is taken for the number of features of a head",
    hint="""The last dimension becomes two: how many heads there are, and how many features each has. Which of
    the two numbers are you given, and in which place does it belong?""",
    read="multihead#view-then-transpose",
)
def split_into_pieces_of_num_heads(x, num_heads):
    return x.reshape(*x.shape[:-1], x.shape[-1] // num_heads, num_heads).transpose(-3, -2)


@split_heads.misconception(
    "dimensions 0 and 1 change places, which is right without a batch only",
    hint="""With a batch, dimension 0 is the batch, and it should stay where it is. How do you name the two
    when you count from the back?""",
    read="multihead#view-then-transpose",
)
def split_swapping_the_first_two(x, num_heads):
    return x.reshape(*x.shape[:-1], num_heads, x.shape[-1] // num_heads).transpose(0, 1)


@split_heads.misconception(
    "the input is transposed before its features are cut",
    hint="""Now each head has features in its rows and positions in its columns, or numbers that do not belong
    together. First cut, then move.""",
    read="multihead#view-then-transpose",
)
def split_after_transpose(x, num_heads):
    return x.mT.reshape(*x.shape[:-2], num_heads, x.shape[-2], x.shape[-1] // num_heads)


# ---------------------------------------------------------------------------------------
# Merge the heads
# ---------------------------------------------------------------------------------------


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


merge_heads = Task("merge_heads", multihead.merge_heads, _merge_heads_cases)


@merge_heads.misconception(
    "a reshape straight to the shape asked for, without a transpose",
    hint="""The shape is right, but a row of the result should hold what all heads found at one
    position. Yours holds several positions of one head. Undo the two steps of the split, in the opposite
    order.""",
    read="multihead#view-then-transpose",
)
def merged_by_reshape(x):
    return x.reshape(*x.shape[:-3], x.shape[-2], x.shape[-3] * x.shape[-1])


@merge_heads.misconception(
    "the heads are added up instead of put side by side",
    hint="""Once they are added, nobody can tell any more which head had found what. How many features
    does the merged vector of a position have, if none is lost?""",
    read="multihead#sum-of-heads",
)
def merged_by_sum(x):
    return x.sum(-3)


@merge_heads.misconception(
    "the heads are averaged instead of put side by side",
    hint="""Several heads are there to keep several averages apart. How many features does the merged
    vector of a position have, if none is lost?""",
    read="multihead#one-average",
)
def merged_by_mean(x):
    return x.mean(-3)


@merge_heads.misconception(
    "the features of the heads are shuffled together: one of each head in turn",
    hint="""All the features of head 0 come first, then all those of head 1. The rows of W_O are sorted
    in this way, so the order matters. Which of the two dimensions that you join must be the outer one?""",
    read="multihead#view-then-transpose",
)
def merged_interleaved(x):
    return x.movedim(-3, -1).flatten(-2)


@merge_heads.misconception(
    "the heads are put one below the other, along the positions",
    hint="""A sequence must keep its length: one row for each position. Along which dimension does each
    head add something of its own?""",
    read="multihead#heads",
)
def merged_along_positions(x):
    return x.flatten(-3, -2)


@merge_heads.misconception(
    "view is asked to join two dimensions that do not lie beside each other in memory",
    hint="""A transpose moves no number, it only changes how the memory is read. `view` can join two
    dimensions only if the numbers already lie in the new order, and after a transpose they do not. There is
    a function of nearly the same use that copies them when it has to.""",
    read="multihead#view-then-transpose",
)
def merged_by_view(x):
    x = x.transpose(-3, -2)
    return x.view(*x.shape[:-2], x.shape[-2] * x.shape[-1])


@merge_heads.misconception(
    "dimensions 1 and 2 change places, which is right for exactly one batch dimension",
    hint="""Counted from the front, dimensions move when a batch is added. Count from the back.""",
    read="multihead#view-then-transpose",
)
def merged_from_the_front(x):
    return x.transpose(1, 2).flatten(-2)


@merge_heads.misconception(
    "the heads are moved behind the positions, but not joined",
    hint="""The first step is done: at each position the heads' features lie side by side. But they still have
    two dimensions. How do two dimensions become one?""",
    read="multihead#view-then-transpose",
)
def merged_not_joined(x):
    return x.transpose(-3, -2)


@merge_heads.misconception(
    "positions and features are joined, and the heads are left",
    hint="""Only neighbouring dimensions can be joined, and what stands beside the features is the positions.
    What should stand there?""",
    read="multihead#view-then-transpose",
)
def merged_positions_and_features(x):
    return x.flatten(-2)


@merge_heads.misconception(
    "the first dimension is taken for the heads, which is right without a batch only",
    hint="""With a batch, the first dimension counts the sequences. Where do the heads stand, counted from the
    back?""",
    read="multihead#view-then-transpose",
)
def merged_along_the_first(x):
    return torch.cat(list(x), -1)


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


def _layer_shapes_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    names = ("batch", "num_queries", "num_keys", "model_dim", "num_heads", "key_dim", "value_dim")

    def different() -> list[int]:
        # All different, and the head_dim of an even split different from all of them.
        batch, queries, keys, key_dim, value_dim = (torch.randperm(5, generator=generator) + 3).tolist()
        return [batch, queries, keys, 20, 2, key_dim, value_dim]

    even = int(torch.randint(2, 6, (), generator=generator))
    return [
        Case(dict(zip(names, different(), strict=True)), "all sizes different"),
        Case(dict(zip(names, different(), strict=True)), "all sizes different"),
        Case(dict(zip(names, (2, even, even, 4 * even, 4, even, even), strict=True)), "many sizes equal"),
        Case(dict(zip(names, (1, 1, 9, 12, 3, even, 4), strict=True)), "a single query"),
    ]


def _call_for_shapes(answer: Any, inputs: dict[str, int]) -> Any:
    shapes = answer(*inputs.values())
    # What `tensor.shape` gives is a tuple, too.
    if isinstance(shapes, dict):
        shapes = {
            name: tuple(shape) if isinstance(shape, torch.Size) else shape for name, shape in shapes.items()
        }
    return shapes


layer_shapes = Task("layer_shapes", _layer_shapes, _layer_shapes_cases, call=_call_for_shapes)


@layer_shapes.misconception(
    "keys and values have as many rows as the queries",
    hint="""That is so in self-attention, where all come from one sequence. Here the keys and values are
    made from the other sequence. How many positions has it?""",
    read="multihead#self-and-cross",
)
def shapes_of_self_attention(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_queries, key_dim),
        "value": (batch, num_heads, num_queries, value_dim),
        "weights": (batch, num_heads, num_queries, num_queries),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the weights have a row for each key and a column for each query",
    hint="""Rows ask and columns answer. Who asks here?""",
    read="attention_operator#rows-and-columns",
)
def shapes_with_weights_transposed(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_keys, num_queries),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "all heads share one matrix of weights",
    hint="""Each head compares its own queries with its own keys. Can two heads then always come to the
    same weights?""",
    read="multihead#heads",
)
def shapes_with_shared_weights(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the merged heads have the features of a single head, as if they had been added",
    hint="""Merging puts the heads side by side. Nothing is lost: count the features that all heads
    bring.""",
    read="multihead#heads",
)
def shapes_with_heads_summed(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the output is what the merged heads are, without W_O",
    hint="""The last step of the layer is one more matrix, which brings the merged heads back to as many
    features as the input has.""",
    read="multihead#multihead-layer",
)
def shapes_without_output_weight(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, num_heads * value_dim),
    }


@layer_shapes.misconception(
    "key_dim and value_dim are replaced by model_dim / num_heads",
    hint="""That is the usual choice, not a law. Here both are given, and each head has that many.""",
    read="multihead#counting-parameters",
)
def shapes_of_an_even_split(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    head_dim = model_dim // num_heads
    return {
        "query": (batch, num_heads, num_queries, head_dim),
        "key": (batch, num_heads, num_keys, head_dim),
        "value": (batch, num_heads, num_keys, head_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * head_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the output has a row for each key",
    hint="""Every query gets an answer, and the keys get none. Whose positions does the output have?""",
    read="multihead#self-and-cross",
)
def shapes_with_output_per_key(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_keys, num_heads * value_dim),
        "output": (batch, num_keys, model_dim),
    }


@layer_shapes.misconception(
    "the values have as many rows as the queries",
    hint="""To each key belongs a value. So how many values are there, and which sequence are they made
    from?""",
    read="multihead#self-and-cross",
)
def shapes_with_values_per_query(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_queries, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "in queries, keys and values the heads stand behind the positions",
    hint="""That is so after the first step of the split. Attention works on the last two dimensions, so what
    must these be?""",
    read="multihead#view-then-transpose",
)
def shapes_with_heads_behind(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_queries, num_heads, key_dim),
        "key": (batch, num_keys, num_heads, key_dim),
        "value": (batch, num_keys, num_heads, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * value_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the merged heads have the features of the keys",
    hint="""Keys only decide where to look. What is averaged, and so what does a head's output consist
    of?""",
    read="multihead#multihead-layer",
)
def shapes_with_merged_keys(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, num_heads * key_dim),
        "output": (batch, num_queries, model_dim),
    }


@layer_shapes.misconception(
    "the merged heads have model_dim features",
    hint="""So it is if num_heads times value_dim happens to be model_dim. Here it need not be. Which matrix
    is there to bring the number back to model_dim?""",
    read="multihead#multihead-layer",
)
def shapes_with_merged_model_dim(batch, num_queries, num_keys, model_dim, num_heads, key_dim, value_dim):
    return {
        "query": (batch, num_heads, num_queries, key_dim),
        "key": (batch, num_heads, num_keys, key_dim),
        "value": (batch, num_heads, num_keys, value_dim),
        "weights": (batch, num_heads, num_queries, num_keys),
        "merged": (batch, num_queries, model_dim),
        "output": (batch, num_queries, model_dim),
    }


# ---------------------------------------------------------------------------------------
# How many parameters
# ---------------------------------------------------------------------------------------


def _num_parameters(model_dim: int, num_heads: int, key_dim: int, value_dim: int, bias: bool) -> int:
    layer = multihead.MultiHeadAttention(model_dim, num_heads, key_dim, value_dim, bias)
    return sum(parameter.numel() for parameter in layer.parameters())


def _num_parameters_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def case(model_dim: int, num_heads: int, key_dim: int, value_dim: int, bias: bool, note: str) -> Case:
        inputs = {"model_dim": model_dim, "num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        return Case({**inputs, "bias": bias}, note)

    key_dim, value_dim = (torch.randperm(6, generator=generator)[:2] + 5).tolist()
    return [
        case(12, 3, 4, 4, False, "features shared out evenly"),
        case(12, 3, 4, 4, True, "with biases"),
        case(10, 2, key_dim, value_dim, False, "heads of their own size"),
        case(7, 4, value_dim, key_dim, True, "heads of their own size, with biases"),
        case(9, 1, key_dim, 3, True, "one head"),
    ]


num_parameters = Task("num_parameters", _num_parameters, _num_parameters_cases)


@num_parameters.misconception(
    "W_O is left out",
    hint="""There are three matrices for each head, and one more for all of them together.""",
    read="multihead#counting-parameters",
)
def count_without_output_weight(model_dim, num_heads, key_dim, value_dim, bias):
    count = num_heads * model_dim * (2 * key_dim + value_dim)
    return count + bias * num_heads * (2 * key_dim + value_dim)


@num_parameters.misconception(
    "the weights of one head only are counted",
    hint="""Every head has queries, keys and values of its own, and so weights of its own.""",
    read="multihead#counting-parameters",
)
def count_one_head(model_dim, num_heads, key_dim, value_dim, bias):
    count = model_dim * (2 * key_dim + value_dim) + value_dim * model_dim
    return count + bias * (2 * key_dim + value_dim + model_dim)


@num_parameters.misconception(
    "W_O is counted once for each head",
    hint="""W_O takes the merged heads, all at once. How many rows has it, and how many W_O are
    there?""",
    read="multihead#sum-of-heads",
)
def count_output_weight_per_head(model_dim, num_heads, key_dim, value_dim, bias):
    count = num_heads * (model_dim * (2 * key_dim + value_dim) + num_heads * value_dim * model_dim)
    return count + bias * (num_heads * (2 * key_dim + value_dim) + model_dim)


@num_parameters.misconception(
    "the biases are left out",
    hint="""A bias is a vector that is added after a matrix. It has one number for each feature that
    comes out of it.""",
    read="multihead#multihead-bias",
)
def count_without_biases(model_dim, num_heads, key_dim, value_dim, bias):
    return num_heads * model_dim * (2 * key_dim + value_dim) + num_heads * value_dim * model_dim


@num_parameters.misconception(
    "the bias of the output is counted once for each head",
    hint="""The bias of W_O is added to the output, and there is one output. Only the biases of queries,
    keys and values belong to a head.""",
    read="multihead#multihead-bias",
)
def count_output_bias_per_head(model_dim, num_heads, key_dim, value_dim, bias):
    count = num_heads * model_dim * (2 * key_dim + value_dim) + num_heads * value_dim * model_dim
    return count + bias * num_heads * (2 * key_dim + value_dim + model_dim)


@num_parameters.misconception(
    "four square matrices are counted, whatever the size of the heads",
    hint="""Four times D squared is right when num_heads times the size of a head is D. Here the sizes
    of the heads are given.""",
    read="multihead#counting-parameters",
)
def count_four_squares(model_dim, num_heads, key_dim, value_dim, bias):
    return 4 * model_dim**2 + bias * 4 * model_dim


@num_parameters.misconception(
    "queries and keys are counted as if they shared one matrix",
    hint="""What a word looks for and what it can be found by are two things, and each is learned. They
    have the same shape, which is why they are easily taken for one.""",
    read="attention_operator#not-symmetric",
)
def count_shared_keys(model_dim, num_heads, key_dim, value_dim, bias):
    count = num_heads * model_dim * (key_dim + value_dim) + num_heads * value_dim * model_dim
    return count + bias * (num_heads * (key_dim + value_dim) + model_dim)


@num_parameters.misconception(
    "W_O is taken for a square matrix",
    hint="""What comes into W_O is the merged heads. Has that as many features as comes out?""",
    read="multihead#counting-parameters",
)
def count_square_output_weight(model_dim, num_heads, key_dim, value_dim, bias):
    count = num_heads * model_dim * (2 * key_dim + value_dim) + model_dim**2
    return count + bias * (num_heads * (2 * key_dim + value_dim) + model_dim)


@num_parameters.misconception(
    "each of the four biases is counted with model_dim numbers",
    hint="""A bias is added to what comes out of its matrix. Only one of the four has model_dim columns
    whatever the size of the heads.""",
    read="multihead#multihead-bias",
)
def count_biases_of_model_dim(model_dim, num_heads, key_dim, value_dim, bias):
    return 2 * num_heads * model_dim * (key_dim + value_dim) + bias * 4 * model_dim


@num_parameters.misconception(
    "the biases of one head only are counted",
    hint="""You have counted the matrices of every head. Each head's queries, keys and values have a bias,
    too.""",
    read="multihead#multihead-bias",
)
def count_biases_of_one_head(model_dim, num_heads, key_dim, value_dim, bias):
    count = 2 * num_heads * model_dim * (key_dim + value_dim)
    return count + bias * (2 * key_dim + value_dim + model_dim)


@num_parameters.misconception(
    "the bias of the output is counted with the features of the merged heads",
    hint="""The merged heads are what goes into W_O. A bias is as long as what comes out.""",
    read="multihead#multihead-bias",
)
def count_output_bias_of_merged(model_dim, num_heads, key_dim, value_dim, bias):
    return 2 * num_heads * (key_dim + value_dim) * (model_dim + bias)


@num_parameters.misconception(
    "the biases are counted even where there are none",
    hint="""The last argument says whether the layer has biases. Where does your function look at it?""",
    read="multihead#multihead-bias",
)
def count_biases_always(model_dim, num_heads, key_dim, value_dim, bias):
    count = 2 * num_heads * model_dim * (key_dim + value_dim)
    return count + num_heads * (2 * key_dim + value_dim) + model_dim


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
    normal: Any, heads: int, model_dim: int, key_dim: int, value_dim: int, dtype: torch.dtype
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


multihead_attention = Task(
    "multihead_attention", _multihead_attention, _multihead_attention_cases, allows=OPERATOR
)


@multihead_attention.misconception(
    "the heads are merged by a reshape without a transpose",
    hint="""The heads stand before the positions, so a reshape puts several positions of one head into
    one row. Before two dimensions can be joined, they must stand side by side.""",
    read="multihead#view-then-transpose",
)
def multihead_merged_by_reshape(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.reshape(*x.shape[:-1], W_O.shape[0]) @ W_O


@multihead_attention.misconception(
    "the scale uses the features of the input instead of those of one head",
    hint="""Each head takes its dot products after its projection. How many terms has such a sum?""",
    read="multihead#heads-and-scale",
)
def multihead_scaled_by_model_dim(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(x.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the scores are not scaled",
    hint="""Every head is the attention operator of the first chapter, complete with its scale.""",
    read="multihead#heads-and-scale",
)
def multihead_unscaled(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT, -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the heads are added up before W_O, instead of put side by side",
    hint="""Then W_O cannot tell the heads apart, and it has more rows than the sum has features. What
    has as many features as W_O has rows?""",
    read="multihead#sum-of-heads",
)
def multihead_summed(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.sum(-3) @ W_O


@multihead_attention.misconception(
    "W_O is missing",
    hint="""The heads are side by side, but they have not met yet: each feature of the result comes from
    one head alone. One of the four weights has not been used.""",
    read="multihead#multihead-layer",
)
def multihead_without_output_weight(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2)


@multihead_attention.misconception(
    "W_O is applied to each head before the heads are put side by side",
    hint="""You may give each head its own rows of W_O. But what comes out then has all the features of
    the output already, for each head. What is left to do with these: put them side by side?""",
    read="multihead#sum-of-heads",
)
def multihead_output_weight_first(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    projected = heads @ W_O.reshape(W_V.shape[0], W_V.shape[2], -1)
    return projected.transpose(-3, -2).flatten(-2)


@multihead_attention.misconception(
    "the attention weights of the first head are used by all heads",
    hint="""Every head hands over something else, but all of them look at the same words. What are a
    head's own queries and keys for?""",
    read="multihead#heads",
)
def multihead_one_heads_weights(x, W_Q, W_K, W_V, W_O):
    query, key = x @ W_Q[0], x @ W_K[0]
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
    heads = weights.unsqueeze(-3) @ (x.unsqueeze(-3) @ W_V)
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the softmax runs over the heads instead of the keys",
    hint="""The heads do not compete: each has one whole of attention to share out among the keys. Which
    dimension of the scores holds the keys, now that there is one for the heads as well?""",
    read="multihead#heads-and-scale",
)
def multihead_softmax_over_heads(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -3) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the softmax runs over the queries instead of the keys",
    hint="""In each head, each row of weights belongs to a query and sums to 1. Sum yours along the last
    dimension.""",
    read="attention_operator#rows-and-columns",
)
def multihead_softmax_over_queries(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -2) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the keys are made with W_Q",
    hint="""Follow each of the four weights through your code. Does every one of them get used? With the
    same matrix for queries and keys, every relation would have to be mutual.""",
    read="multihead#multihead-layer",
)
def multihead_keys_from_query_weights(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_Q, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the values of the heads are in another order than their weights",
    hint="""Head h must average its own values, with its own weights. In yours the weights of the first
    head meet the values of the last.""",
    read="multihead#heads",
)
def multihead_values_reversed(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value.flip(-3)
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the features of the heads are shuffled together before W_O",
    hint="""The first rows of W_O belong to head 0, the next to head 1, and so on. In which order do the
    features of your merged heads come?""",
    read="multihead#sum-of-heads",
)
def multihead_interleaved(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.movedim(-3, -1).flatten(-2) @ W_O


@multihead_attention.misconception(
    "each head sees only a part of the input's features",
    hint="""It is the projections that are split, not the input. Each head's matrix has as many rows as
    the input has features, so that it can choose among all of them.""",
    read="multihead#slices",
)
def multihead_input_split(x, W_Q, W_K, W_V, W_O):
    heads, share = [], x.shape[-1] // W_Q.shape[0]
    for h in range(W_Q.shape[0]):
        part = slice(h * share, (h + 1) * share)
        query, key, value = (x[..., part] @ W[h, part] for W in (W_Q, W_K, W_V))
        heads.append(torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value)
    return torch.cat(heads, -1) @ W_O


@multihead_attention.misconception(
    "the input has no dimension for the heads, so its batch meets them",
    hint="""Dimensions are matched from the back: behind the last two, the batch of `x` meets the heads of the
    weights. With one sequence there is nothing to meet. Where must `x` have a dimension of length 1?""",
    read="multihead#multihead-layer",
)
def multihead_batch_meets_heads(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "queries and keys are exchanged",
    hint="""Which of the two matrices makes what a position asks, and which makes what it can be found
    by?""",
    read="multihead#multihead-layer",
)
def multihead_exchanged(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_K, W_Q, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@multihead_attention.misconception(
    "the heads are put one below the other before W_O, instead of side by side",
    hint="""Look at the two shapes in the message. How many rows should the merged heads have, and how many
    columns, to go with the rows of W_O?""",
    read="multihead#heads",
)
def multihead_one_below_the_other(x, W_Q, W_K, W_V, W_O):
    query, key, value = (x.unsqueeze(-3) @ W for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.flatten(-3, -2) @ W_O


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
        case((), (3, 6), (5, 5), "one head", heads=1, head_dims=(4, 3)),
        case((), (1, 4), (6, 6), "a single query", heads=2, head_dims=(3, 3)),
    ]


cross_attention = Task("cross_attention", _cross_attention, _cross_attention_cases, allows=OPERATOR)


@cross_attention.misconception(
    "the sequence attends to itself: memory is never used",
    hint="""The queries come from `x`. What do the keys and the values come from in cross-attention?""",
    read="multihead#self-and-cross",
)
def cross_without_memory(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = ((x @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2) for W in (W_Q, W_K, W_V))
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "the roles are exchanged: memory asks and x answers",
    hint="""The output must have a row for each position of `x`, as it is `x` that wants to know
    something. Who asks makes the queries.""",
    read="multihead#self-and-cross",
)
def cross_exchanged(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((memory, W_Q), (x, W_K), (x, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "the values are made from x instead of memory",
    hint="""Each key has one value: what is found and what is handed over belong to the same position of
    the same sequence. Only where both sequences have one length does yours run at all.""",
    read="multihead#self-and-cross",
)
def cross_values_from_x(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((x, W_Q), (memory, W_K), (x, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "the split into heads is a reshape without a transpose",
    hint="""A reshape to (heads, positions, features) keeps the numbers in their order, so head 0 gets
    the first positions and the last head the last ones. First cut the features, then move the heads.""",
    read="multihead#view-then-transpose",
)
def cross_split_by_reshape(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).reshape(*y.shape[:-2], num_heads, y.shape[-2], W.shape[1] // num_heads)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "both the split and the merging are a reshape without a transpose",
    hint="""All shapes are right, and the second reshape even puts the numbers back where the first took
    them from. But between the two, each head has mixed pieces of a few positions. Print head 0 of the
    queries and look for the last position in it.""",
    read="multihead#view-then-transpose",
)
def cross_reshapes_only(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).reshape(*y.shape[:-2], num_heads, y.shape[-2], W.shape[1] // num_heads)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.reshape(*x.shape[:-1], W_O.shape[0]) @ W_O + b_O


@cross_attention.misconception(
    "the heads are split well but merged by a reshape without a transpose",
    hint="""The split has two steps: cut, then move. The way back has two as well, in the opposite
    order.""",
    read="multihead#view-then-transpose",
)
def cross_merged_by_reshape(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.reshape(*x.shape[:-1], W_O.shape[0]) @ W_O + b_O


@cross_attention.misconception(
    "there is only one head: num_heads is not used",
    hint="""The shapes come out right without any split, as one large head. But then each position has
    one set of weights, and one average.""",
    read="multihead#one-average",
)
def cross_one_head(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = x @ W_Q, memory @ W_K, memory @ W_V
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value @ W_O + b_O


@cross_attention.misconception(
    "the scale uses the features of all heads together",
    hint="""The dot products are taken within a head. Read the number of features off the queries after
    they have been split.""",
    read="multihead#heads-and-scale",
)
def cross_scaled_by_all_heads(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(W_Q.shape[1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "the bias is added once for each head",
    hint="""The heads meet in W_O, and there is one output. If you add up what the heads contribute, add
    the bias to the sum, not to each term.""",
    read="multihead#multihead-bias",
)
def cross_bias_per_head(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return (heads @ W_O.unflatten(0, (num_heads, -1)) + b_O).sum(-3)


@cross_attention.misconception(
    "the bias is left out",
    hint="""The numbers are off by the same vector at every position.""",
    read="multihead#multihead-bias",
)
def cross_without_bias(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (num_heads, -1)).transpose(-3, -2)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O


@cross_attention.misconception(
    "the packed matrices are cut by a reshape, so that each head gets some of the rows",
    hint="""The heads' matrices stand side by side: a head has some of the columns, and all of the rows. A
    reshape keeps the numbers in the order in which they lie in memory, row by row.""",
    read="multihead#slices",
)
def cross_packed_reshaped(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        y.unsqueeze(-3) @ W.reshape(num_heads, W.shape[0], W.shape[1] // num_heads)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


@cross_attention.misconception(
    "each head takes every so-many-th feature, instead of a block of neighbours",
    hint="""One matrix holds the columns of all heads, those of head 0 first. When a dimension is cut in two,
    the first of the two counts the blocks.""",
    read="multihead#slices",
)
def cross_interleaved(x, memory, W_Q, W_K, W_V, W_O, b_O, num_heads):
    query, key, value = (
        (y @ W).unflatten(-1, (-1, num_heads)).movedim(-1, -3)
        for y, W in ((x, W_Q), (memory, W_K), (memory, W_V))
    )
    heads = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
    return heads.transpose(-3, -2).flatten(-2) @ W_O + b_O


# ---------------------------------------------------------------------------------------
# The layer as a class
# ---------------------------------------------------------------------------------------

PARAMETERS = ("W_Q", "W_K", "W_V", "W_O")


def _use_layer(answer: Any, inputs: dict[str, Any]) -> Tensor:
    """Make the student's layer, give it the case's weights, and call it on one to three inputs."""
    model_dim, num_heads = inputs["model_dim"], inputs["num_heads"]
    if isinstance(answer, torch.nn.Module):
        raise Misfit("the class itself was expected, and what came is a layer that has been made from one")
    layer = answer(model_dim, num_heads)
    if not isinstance(layer, torch.nn.Module):
        raise Misfit("a class that derives from torch.nn.Module was expected, and calling yours gave none")
    parameters = dict(layer.named_parameters(remove_duplicate=False))
    for name in PARAMETERS:
        if name not in parameters:
            found = getattr(layer, name, None)
            kind = (
                "a plain tensor" if isinstance(found, Tensor) else f"an object of type {type(found).__name__}"
            )
            kind = "missing" if found is None else kind
            raise Misfit(f"the layer's {name} is {kind}, and a torch.nn.Parameter was expected")
        shape, expected = tuple(parameters[name].shape), tuple(inputs[name].shape)
        if shape != expected:
            raise Misfit(f"the layer's {name} has shape {shape}, and {expected} was expected")
        for other in PARAMETERS[: PARAMETERS.index(name)]:
            if parameters[name] is parameters[other]:
                raise Misfit(f"the layer's {other} and {name} are one and the same parameter")
        parts = parameters[name].detach().flatten(1)
        if num_heads > 1 and (parts == parts[0]).all():
            raise Misfit(f"in a new layer, the numbers of {name} are the same for all heads")
    if unknown := sorted(set(parameters) - set(PARAMETERS)):
        raise Misfit(f"the layer has a parameter {unknown[0]} that was not asked for")
    for name in PARAMETERS:
        parameters[name].data = inputs[name]
    given_inputs = [inputs.get(name) for name in ("query", "key", "value", "mask")]
    while given_inputs[-1] is None:
        given_inputs.pop()
    return layer.eval()(*given_inputs)


def _class_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        model_dim: int, heads: int, *shapes: tuple[int, ...], note: str, mask: Any = None, **how: Any
    ) -> Case:
        dtype = how.pop("dtype", torch.float32)
        names = ("query", "key", "value")[: len(shapes)]
        inputs = {name: normal(*shape, dtype=dtype) for name, shape in zip(names, shapes, strict=True)}
        if mask is not None:
            inputs["mask"] = mask
        head_dim = model_dim // heads
        weights = _head_weights(normal, heads, model_dim, head_dim, head_dim, dtype)
        return Case({"model_dim": model_dim, "num_heads": heads, **inputs, **weights}, note, **how)

    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    lengths = torch.tensor([[3], [5]])
    padding = (torch.arange(5) < lengths).unsqueeze(-2)  # (2, 1, 5)
    return [
        case(6, 2, (4, 6), note="self-attention"),
        case(6, 2, (3, 6), (5, 6), note="cross-attention"),
        case(8, 4, (2, 3, 8), (2, 5, 8), (2, 5, 8), note="three inputs, in a batch"),
        case(6, 3, (2, 4, 6), note="a causal mask", mask=causal, dtype=torch.float64),
        case(8, 2, (2, 4, 8), (2, 5, 8), note="a mask for each sequence of a batch", mask=padding),
        case(5, 1, (4, 5), (4, 5), note="one head"),
    ]


multihead_class = Task(
    "MultiHeadAttention", multihead.MultiHeadAttention, _class_cases, allows=OPERATOR, call=_use_layer
)


@multihead_class.misconception(
    "the weights are plain tensors, which nothing will ever train",
    hint="""A module knows those tensors that are wrapped as parameters when they are assigned to
    `self`. An optimiser gets what `parameters()` lists; for yours that list is empty.""",
    read="multihead#multihead-layer",
)
class PlainTensors(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.randn(shape) / model_dim**0.5 for _ in range(3))
        self.W_O = torch.randn(model_dim, model_dim) / model_dim**0.5

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "all heads start with the same weights",
    hint="""Heads that start equal compute the same, get the same gradient, and so stay equal for ever:
    you would pay for many heads and have one. What makes two heads different before any training?""",
    read="multihead#multihead-layer",
)
class StartsAtZero(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.zeros(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.zeros(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the layer always attends to its own input: key and value are not used",
    hint="""With one input the result is right. With two, the keys and values must come from the second.
    Which of its arguments does your forward not read?""",
    read="multihead#self-and-cross",
)
class AlwaysSelf(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        q, k, v = (query.unsqueeze(-3) @ W for W in (self.W_Q, self.W_K, self.W_V))
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the values are always made from key, even when value is given",
    hint="""With one or two inputs the result is right. The third, where there is one, says what the
    values are made from.""",
    read="multihead#self-and-cross",
)
class ValueIgnored(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, key.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "where value is not given, the values are made from query",
    hint="""With two inputs, the second answers: its positions are found by their keys, and hand over
    their values. So what should `value` be when only `key` is given?""",
    read="multihead#self-and-cross",
)
class ValueFromQuery(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = query if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the mask is not used",
    hint="""Where the mask is False, a weight must be exactly 0. What has to happen to the scores before
    the softmax?""",
    read="multihead#multihead-layer",
)
class MaskIgnored(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        weights = torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1)
        return (weights @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the mask is read the wrong way round",
    hint="""In this course True means: may attend. `masked_fill` fills where its mask is True. Which of
    the two entries must become minus infinity?""",
    read="multihead#multihead-layer",
)
class MaskInverted(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the mask of a batch falls on the heads",
    hint="""The scores have a dimension that the mask has not: the heads. Dimensions are matched from
    the back, so the mask's batch meets the scores' heads. Where they happen to be equally many, nothing
    complains. What shape must the mask have, so that each sequence's mask goes for all its heads?""",
    read="multihead#multihead-layer",
)
class MaskOnHeads(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "the scale uses model_dim instead of the features of one head",
    hint="""The dot products are taken after the projection. How many features have a head's
    queries?""",
    read="multihead#heads-and-scale",
)
class ScaledByModelDim(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(query.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


@multihead_class.misconception(
    "W_O is made but never applied",
    hint="""The merged heads already have model_dim features here, so nothing looks wrong. Follow each
    of the four parameters through forward.""",
    read="multihead#multihead-layer",
)
class OutputWeightUnused(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2)


@multihead_class.misconception(
    "the heads are merged by a reshape without a transpose",
    hint="""The shape is right, but a row must hold what all heads found at one position. Before two
    dimensions can be joined, they must stand side by side.""",
    read="multihead#view-then-transpose",
)
class MergedByReshape(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).reshape(query.shape) @ self.W_O


@multihead_class.misconception(
    "a tensor is asked whether it is true, as `or` does",
    hint="""Python's `key or query` wants one yes or no from `key`, and a tensor holds many numbers. The
    question is not whether `key` is true, but whether there is any.""",
    read="multihead#self-and-cross",
)
class KeyOrQuery(torch.nn.Module):
    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        self.W_Q, self.W_K, self.W_V = (torch.nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.W_O = torch.nn.Parameter(torch.randn(model_dim, model_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = key or query
        value = query if value is None else value
        q, k, v = query.unsqueeze(-3) @ self.W_Q, key.unsqueeze(-3) @ self.W_K, value.unsqueeze(-3) @ self.W_V
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            mask = mask.unsqueeze(-3) if mask.dim() > 2 else mask
            scores = scores.masked_fill(~mask, -math.inf)
        return (torch.softmax(scores, -1) @ v).transpose(-3, -2).flatten(-2) @ self.W_O


# ---------------------------------------------------------------------------------------
# PyTorch's weights
# ---------------------------------------------------------------------------------------


def _heads_from_torch(in_proj_weight: Tensor, out_proj_weight: Tensor, num_heads: int) -> tuple[Tensor, ...]:
    theirs = torch.nn.MultiheadAttention(
        out_proj_weight.shape[0], num_heads, bias=False, dtype=in_proj_weight.dtype
    )
    theirs.in_proj_weight.data, theirs.out_proj.weight.data = in_proj_weight, out_proj_weight
    ours = multihead.MultiHeadAttention.from_torch(theirs)
    return tuple(weight.detach() for weight in (ours.W_Q, ours.W_K, ours.W_V, ours.W_O))


def _heads_from_torch_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(model_dim: int, num_heads: int, note: str = "", dtype: torch.dtype = torch.float32) -> Case:
        inputs = {
            "in_proj_weight": normal(3 * model_dim, model_dim, dtype=dtype),
            "out_proj_weight": normal(model_dim, model_dim, dtype=dtype),
            "num_heads": num_heads,
        }
        return Case(inputs, note)

    return [
        case(6, 2),
        case(4, 2, "heads as large as they are many"),
        case(12, 3, "three heads", torch.float64),
        case(5, 1, "one head"),
    ]


heads_from_torch = Task("heads_from_torch", _heads_from_torch, _heads_from_torch_cases)


@heads_from_torch.misconception(
    "the matrices are not transposed",
    hint="""PyTorch's linear layers compute x @ weight.T: their rows are outputs. Ours compute x @ W.
    Since all the matrices are square here, no shape complains.""",
    read="multihead#multihead-pytorch",
)
def from_torch_untransposed(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.unflatten(1, (num_heads, -1)).transpose(0, 1) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight)


@heads_from_torch.misconception(
    "W_O is not transposed",
    hint="""Three of the four are right. The output projection is a linear layer of PyTorch's like the
    others.""",
    read="multihead#multihead-pytorch",
)
def from_torch_output_untransposed(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.T.unflatten(1, (num_heads, -1)).transpose(0, 1) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight)


@heads_from_torch.misconception(
    "each head's matrix still has outputs in its rows",
    hint="""The blocks are the right ones. A head of ours computes x @ W_Q[h], so which dimension of
    W_Q[h] has to be as long as x has features?""",
    read="multihead#multihead-pytorch",
)
def from_torch_blocks_untransposed(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.unflatten(0, (num_heads, -1)) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight.T)


@heads_from_torch.misconception(
    "the heads are cut out by a reshape without a transpose",
    hint="""After transposing, the features of the heads lie side by side in each row, and the heads
    must come to the front. A reshape cannot do that: it keeps the numbers in their order.""",
    read="multihead#view-then-transpose",
)
def from_torch_by_reshape(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.T.reshape(num_heads, W.shape[1], -1) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight.T)


@heads_from_torch.misconception(
    "queries and keys have changed places",
    hint="""The packed matrix has three parts, from top to bottom. In which order does PyTorch stack
    them?""",
    read="multihead#multihead-pytorch",
)
def from_torch_exchanged(in_proj_weight, out_proj_weight, num_heads):
    key, query, value = (W.T.unflatten(1, (num_heads, -1)).transpose(0, 1) for W in in_proj_weight.chunk(3))
    return query, key, value, out_proj_weight.T


@heads_from_torch.misconception(
    "the packed matrix is cut head by head, each with its queries, keys and values",
    hint="""Some libraries pack like that. PyTorch puts all the heads' queries first, then all the keys,
    then all the values. With one head there is no difference.""",
    read="multihead#multihead-pytorch",
)
def from_torch_head_by_head(in_proj_weight, out_proj_weight, num_heads):
    blocks = in_proj_weight.unflatten(0, (num_heads, 3, -1)).mT
    return blocks[:, 0], blocks[:, 1], blocks[:, 2], out_proj_weight.T


@heads_from_torch.misconception(
    "each head takes every so-many-th feature, instead of a block of neighbours",
    hint="""The first few rows of a part belong to head 0, the next few to head 1. When a dimension is
    cut in two, the first of the two counts the blocks.""",
    read="multihead#slices",
)
def from_torch_interleaved(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.T.unflatten(1, (-1, num_heads)).movedim(2, 0) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight.T)


@heads_from_torch.misconception(
    "only W_O is transposed",
    hint="""The matrices of queries, keys and values are linear layers of PyTorch's, too: their rows are
    outputs. All of them are square here, so no shape complains.""",
    read="multihead#multihead-pytorch",
)
def from_torch_inputs_untransposed(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.unflatten(1, (num_heads, -1)).transpose(0, 1) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight.T)


@heads_from_torch.misconception(
    "keys and values have changed places",
    hint="""The packed matrix has three parts, from top to bottom. In which order does PyTorch stack
    them?""",
    read="multihead#multihead-pytorch",
)
def from_torch_values_before_keys(in_proj_weight, out_proj_weight, num_heads):
    query, value, key = (W.T.unflatten(1, (num_heads, -1)).transpose(0, 1) for W in in_proj_weight.chunk(3))
    return query, key, value, out_proj_weight.T


@heads_from_torch.misconception(
    "the matrices are reshaped to the shape asked for, without any transpose",
    hint="""The rows of a part are outputs, those of head 0 first, so a head has a block of rows. How do such
    rows become the columns of the head's matrix?""",
    read="multihead#multihead-pytorch",
)
def from_torch_reshaped_only(in_proj_weight, out_proj_weight, num_heads):
    parts = [W.reshape(num_heads, W.shape[1], -1) for W in in_proj_weight.chunk(3)]
    return (*parts, out_proj_weight.T)


# ---------------------------------------------------------------------------------------
# Which heads matter
# ---------------------------------------------------------------------------------------


def _ablation(loss: Any, num_heads: int) -> Tensor:
    whole = loss(torch.ones(num_heads))
    return torch.stack([loss(1 - one_head) - whole for one_head in torch.eye(num_heads)])


def _call_with_loss(answer: Any, inputs: dict[str, Tensor]) -> Any:
    contributions, target = inputs["contributions"], inputs["target"]
    num_heads = len(contributions)

    def loss(head_mask: Any) -> Tensor:
        head_mask = torch.as_tensor(head_mask, dtype=contributions.dtype)
        if tuple(head_mask.shape) != (num_heads,):
            raise ValueError(
                f"head_mask has shape {tuple(head_mask.shape)}: expected ({num_heads},), one number a head"
            )
        return ((head_mask @ contributions - target) ** 2).mean()

    return answer(given(loss), num_heads)


def _ablation_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_heads: int, size: int, note: str, noise: float = 0.3) -> Case:
        contributions = normal(num_heads, size)
        return Case(
            {"contributions": contributions, "target": contributions.sum(0) + noise * normal(size)}, note
        )

    useless = case(4, 12, "")
    useless.inputs["target"] -= useless.inputs["contributions"][2]
    return [
        case(4, 6, "four heads"),
        case(2, 20, "two heads"),
        Case(useless.inputs, "one of the heads does harm"),
        case(1, 5, "a single head"),
        case(8, 40, "eight heads"),
    ]


importance_by_ablation = Task("importance_by_ablation", _ablation, _ablation_cases, call=_call_with_loss)


@importance_by_ablation.misconception(
    "all heads but one are silenced, instead of only that one",
    hint="""How well a head does alone is another question. What does the layer lose when this one head
    falls silent and all the others go on?""",
    read="multihead#head-importance",
)
def ablation_of_the_others(loss, num_heads):
    whole = loss(torch.ones(num_heads))
    return torch.stack([loss(one_head) - whole for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "the sign is turned round",
    hint="""A head matters if the loss goes up when it is silenced. Then its importance is to be
    positive.""",
    read="multihead#head-importance",
)
def ablation_with_sign_turned(loss, num_heads):
    whole = loss(torch.ones(num_heads))
    return torch.stack([whole - loss(1 - one_head) for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "the loss without each head, instead of how much it rises",
    hint="""A large loss alone says nothing about the head: perhaps it was as large before. What do you
    compare it with?""",
    read="multihead#head-importance",
)
def ablation_without_difference(loss, num_heads):
    return torch.stack([loss(1 - one_head) for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "silenced heads stay silent",
    hint="""The first number is right, and from then on one head after the other is gone. Before the
    next head is tried, the last one has to be given its voice back.""",
    read="multihead#head-importance",
)
def ablation_without_reset(loss, num_heads):
    head_mask = torch.ones(num_heads)
    whole = loss(head_mask)
    importance = []
    for h in range(num_heads):
        head_mask[h] = 0
        importance.append(loss(head_mask) - whole)
    return torch.stack(importance)


@importance_by_ablation.misconception(
    "the ratio of the losses, instead of their difference",
    hint="""A ratio explodes when the loss of the whole layer is small, and it is never 0 for a head
    that does nothing. By how much does the loss rise?""",
    read="multihead#head-importance",
)
def ablation_as_ratio(loss, num_heads):
    whole = loss(torch.ones(num_heads))
    return torch.stack([loss(1 - one_head) / whole for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "what each head gains when it is the only one",
    hint="""You compare a head alone with no head at all. Others may do the same work, and then it is
    not missed. Start from the whole layer and take the head away.""",
    read="multihead#head-importance",
)
def ablation_from_nothing(loss, num_heads):
    nothing = loss(torch.zeros(num_heads))
    return torch.stack([nothing - loss(one_head) for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "the sign is lost: harm counts as importance",
    hint="""A head without which the loss falls does harm. Is it to be told from one that is needed?""",
    read="multihead#head-importance",
)
def ablation_without_sign(loss, num_heads):
    whole = loss(torch.ones(num_heads))
    return torch.stack([(loss(1 - one_head) - whole).abs() for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "the loss is compared with that of no head at all, instead of all heads",
    hint="""From where does the loss rise when one head falls silent: what is it before?""",
    read="multihead#head-importance",
)
def ablation_compared_with_nothing(loss, num_heads):
    nothing = loss(torch.zeros(num_heads))
    return torch.stack([loss(1 - one_head) - nothing for one_head in torch.eye(num_heads)])


@importance_by_ablation.misconception(
    "this is the derivative of the loss, not what happens when a head is silenced",
    hint="""A derivative says how the loss begins to change. Silencing a head is a large step: take it, and
    see.""",
    read="multihead#head-importance",
)
def ablation_by_derivative(loss, num_heads):
    head_mask = torch.ones(num_heads, requires_grad=True)
    (gradient,) = torch.autograd.grad(loss(head_mask), head_mask)
    return gradient


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
        weights = _head_weights(normal, num_heads, *dims, how.get("dtype", torch.float32))
        return Case({**weights, "heads": heads}, note)

    return [
        case(4, (8, 2, 2), [0, 2]),
        case(3, (6, 4, 2), [2], "one head is kept"),
        case(4, (4, 4, 4), [1, 2, 3], "sizes all equal"),
        case(5, (10, 2, 3), [3, 0, 4], "in another order", dtype=torch.float64),
        case(2, (6, 3, 3), [0, 1], "all heads are kept"),
    ]


pruned_weights = Task("pruned_weights", _pruned_weights, _pruned_weights_cases)


@pruned_weights.misconception(
    "the heads that were to be kept are removed",
    hint="""`heads` lists those that stay.""",
    read="multihead#pruning-heads",
)
def prunes_the_listed(W_Q, W_K, W_V, W_O, heads):
    kept = [h for h in range(W_Q.shape[0]) if h not in heads]
    blocks = W_O.reshape(W_Q.shape[0], W_V.shape[2], W_O.shape[1])
    return W_Q[kept], W_K[kept], W_V[kept], blocks[kept].flatten(0, 1)


@pruned_weights.misconception(
    "W_O is left as it was",
    hint="""With fewer heads, the merged vector gets shorter, and W_O no longer fits. Which of its rows
    has nothing to multiply any more?""",
    read="multihead#pruning-heads",
)
def prunes_without_output_weight(W_Q, W_K, W_V, W_O, heads):
    return W_Q[heads], W_K[heads], W_V[heads], W_O


@pruned_weights.misconception(
    "W_O keeps one row for each head, instead of a block of rows",
    hint="""Each head brings value_dim features into the merged vector. So how many rows of W_O belong
    to one head, and where do they start?""",
    read="multihead#sum-of-heads",
)
def prunes_single_rows(W_Q, W_K, W_V, W_O, heads):
    return W_Q[heads], W_K[heads], W_V[heads], W_O[heads]


@pruned_weights.misconception(
    "the first heads are kept, as many as are listed",
    hint="""`heads` says which heads stay, not only how many.""",
    read="multihead#pruning-heads",
)
def prunes_the_last(W_Q, W_K, W_V, W_O, heads):
    kept = len(heads)
    return W_Q[:kept], W_K[:kept], W_V[:kept], W_O[: kept * W_V.shape[2]]


@pruned_weights.misconception(
    "the rows of W_O are taken as if the features of the heads were shuffled together",
    hint="""In the merged vector all features of head 0 come first, then all those of head 1. So the
    rows of one head are neighbours.""",
    read="multihead#sum-of-heads",
)
def prunes_interleaved(W_Q, W_K, W_V, W_O, heads):
    blocks = W_O.reshape(W_V.shape[2], W_Q.shape[0], W_O.shape[1])
    return W_Q[heads], W_K[heads], W_V[heads], blocks[:, heads].flatten(0, 1)


@pruned_weights.misconception(
    "the weights of the other heads are set to zero, but not removed",
    hint="""A head of zeros adds nothing, so the output would be right. But it costs as much time and
    memory as before. The result is to have fewer heads.""",
    read="multihead#pruning-heads",
)
def prunes_by_zeros(W_Q, W_K, W_V, W_O, heads):
    keep = torch.zeros(W_Q.shape[0], dtype=W_Q.dtype)
    keep[heads] = 1
    rows = keep.repeat_interleave(W_V.shape[2])
    return (
        W_Q * keep[:, None, None],
        W_K * keep[:, None, None],
        W_V * keep[:, None, None],
        W_O * rows[:, None],
    )


@pruned_weights.misconception(
    "W_O keeps its first rows, as many as are needed",
    hint="""The shape is right. But the first rows belong to head 0. Which rows belong to the heads that you
    keep?""",
    read="multihead#sum-of-heads",
)
def prunes_the_first_rows(W_Q, W_K, W_V, W_O, heads):
    return W_Q[heads], W_K[heads], W_V[heads], W_O[: len(heads) * W_V.shape[2]]


@pruned_weights.misconception(
    "the heads come in their old order, not in that of the list",
    hint="""The heads that are kept are the right ones. But in which order are they listed?""",
    read="multihead#pruning-heads",
)
def prunes_in_the_old_order(W_Q, W_K, W_V, W_O, heads):
    kept = sorted(heads)
    blocks = W_O.reshape(W_Q.shape[0], W_V.shape[2], W_O.shape[1])
    return W_Q[kept], W_K[kept], W_V[kept], blocks[kept].flatten(0, 1)


@pruned_weights.misconception(
    "the blocks of W_O are key_dim rows long",
    hint="""What is merged is the heads' outputs, and those are averages of values. How many features has
    one?""",
    read="multihead#sum-of-heads",
)
def prunes_blocks_of_key_dim(W_Q, W_K, W_V, W_O, heads):
    size = W_Q.shape[2]
    rows = [W_O[h * size : (h + 1) * size] for h in heads]
    return W_Q[heads], W_K[heads], W_V[heads], torch.cat(rows)
