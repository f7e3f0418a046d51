"""Tasks of the unit ``transformer``: the parts of a block, the block, the stack, and writing with it."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.attention_operator import attention
from attncourse.checks.probe import given
from attncourse.checks.task import Case, Task, normal_source
from attncourse.masking import causal_mask

# ---------------------------------------------------------------------------------------
# Layer normalisation
# ---------------------------------------------------------------------------------------


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias)


def _layer_norm_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str = "", scale: float = 1.0, **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        x = scale * normal(*shape, dtype=dtype) + 2 * scale * normal(*shape[:-1], 1, dtype=dtype)
        return Case(
            {
                "x": x,
                "gain": 1 + 0.5 * normal(shape[-1], dtype=dtype),
                "bias": normal(shape[-1], dtype=dtype),
            },
            note,
            **how,
        )

    flat = case(3, 4, note="positions whose features are all the same")
    # Few digits, so that their mean is exact however it is summed: a distance from it would be blown up.
    flat.inputs["x"] = (8 * flat.inputs["x"][:, :1]).round().expand(3, 4) / 8
    return [
        case(3, 6),
        case(4, 4, note="as many positions as features", scale=5.0),
        case(2, 3, 5, note="a batch"),
        case(1, 2, 2, 4, note="two batch dimensions, in double precision", dtype=torch.float64),
        case(1, 3, note="one position"),
        case(3, 8, note="features that hardly differ", scale=2e-3),
        flat,
    ]


layer_norm = Task("layer_norm", _layer_norm, _layer_norm_cases, refuses=("layer_norm", "group_norm"))


@layer_norm.misconception(
    "mean and variance run over the positions instead of the features",
    hint="""Each position is to be normalised by itself. Otherwise a later position changes what an earlier
    one becomes, and a decoder sees the future through its normalisation. Over which dimension must the mean
    be taken?""",
    read="transformer#layer-normalisation",
)
def normalised_over_positions(x, gain, bias):
    mean = x.mean(-2, keepdim=True)
    variance = x.var(-2, keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "one mean and one variance for the whole sequence",
    hint="""Then the positions meet in the normalisation. Each position has a mean and a variance of its
    own: how many of them are there?""",
    read="transformer#layer-normalisation",
)
def normalised_over_sequence(x, gain, bias):
    mean = x.mean((-2, -1), keepdim=True)
    variance = x.var((-2, -1), keepdim=True, correction=0)
    return (x - mean) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the variance is divided by D - 1",
    hint="""That is how one estimates the variance of a population from a sample, and it is the default of
    `var` and `std`. Here the features are all there are: divide by their number.""",
    read="transformer#layer-normalisation",
)
def normalised_with_sample_variance(x, gain, bias):
    variance = x.var(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the features are divided by the variance, without the root",
    hint="""What is the variance of your result, before gain and bias? When all numbers are ten times as
    large, the variance is a hundred times as large.""",
    read="transformer#layer-normalisation",
)
def normalised_by_variance(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the mean is not subtracted",
    hint="""Two things are brought to a standard: how large the numbers are, and where their middle
    lies.""",
    read="transformer#layer-normalisation",
)
def normalised_without_centre(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return x / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the root of the mean square, without subtracting the mean",
    hint="""That is another normalisation, which many recent models use. Here the mean goes first, and the
    variance is measured around it.""",
    read="transformer#layer-normalisation",
)
def normalised_by_mean_square(x, gain, bias):
    return x / torch.sqrt((x**2).mean(-1, keepdim=True) + 1e-5) * gain + bias


@layer_norm.misconception(
    "the small number under the root is missing",
    hint="""What becomes of a position whose features are all the same? Its variance is 0.""",
    read="transformer#layer-normalisation",
)
def normalised_without_epsilon(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance) * gain + bias


@layer_norm.misconception(
    "the small number is added to the root, instead of under it",
    hint="""For large variances there is no difference. But where the variance is tiny, the root of 0.00001
    is 0.003, which is much more than 0.00001.""",
    read="transformer#layer-normalisation",
)
def normalised_with_epsilon_outside(x, gain, bias):
    deviation = x.std(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / (deviation + 1e-5) * gain + bias


@layer_norm.misconception(
    "the features are divided by `std` as it comes, without anything under the root",
    hint="""`std` divides by D - 1 unless it is told otherwise. And what becomes of a position whose features
    are all the same?""",
    read="transformer#layer-normalisation",
)
def normalised_by_std(x, gain, bias):
    return (x - x.mean(-1, keepdim=True)) / x.std(-1, keepdim=True) * gain + bias


@layer_norm.misconception(
    "the features are divided by `std` as it comes, and the small number is added to it",
    hint="""`std` divides by D - 1 unless it is told otherwise. And the small number belongs under the root,
    where the variance is.""",
    read="transformer#layer-normalisation",
)
def normalised_by_std_and_epsilon(x, gain, bias):
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5) * gain + bias


@layer_norm.misconception(
    "the mean has lost its dimension",
    hint="""A mean over the last dimension has one dimension fewer, so what was the positions is taken for the
    features. How do you keep the dimension?""",
    read="transformer#layer-normalisation",
)
def normalised_without_keepdim(x, gain, bias):
    variance = x.var(-1, correction=0)
    return (x - x.mean(-1)) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "gain and bias are not used",
    hint="""The normalised features have mean 0 and variance 1. The two learned vectors let the network
    change that where it needs to. Which of your arguments do you not read?""",
    read="transformer#layer-normalisation",
)
def normalised_only(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5)


@layer_norm.misconception(
    "gain and bias are exchanged",
    hint="""One of them multiplies, the other is added. Which is which?""",
    read="transformer#layer-normalisation",
)
def normalised_exchanged(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) * bias + gain


@layer_norm.misconception(
    "the bias is added before the gain multiplies",
    hint="""A feature that is normalised to 0 is to become just its bias. What does it become in
    yours?""",
    read="transformer#layer-normalisation",
)
def normalised_bias_first(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return ((x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) + bias) * gain


@layer_norm.misconception(
    "mean and variance run over the positions, and the variance is divided by one less than their number",
    hint="""Each position is to be normalised by itself. Over which dimension must the mean be taken? (And by
    what does `var` divide, unless it is told otherwise?)""",
    read="transformer#layer-normalisation",
)
def normalised_over_positions_as_a_sample(x, gain, bias):
    variance = x.var(-2, keepdim=True)
    return (x - x.mean(-2, keepdim=True)) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "one mean and one variance for everything, the sequences of a batch included",
    hint="""Then all positions meet in the normalisation, and even different sequences. Each position has a
    mean and a variance of its own: how many of them are there?""",
    read="transformer#layer-normalisation",
)
def normalised_over_everything(x, gain, bias):
    return (x - x.mean()) / torch.sqrt(x.var(correction=0) + 1e-5) * gain + bias


@layer_norm.misconception(
    "one mean and one variance for everything, and the variance is divided by one less",
    hint="""Then all positions meet in the normalisation. Each has a mean and a variance of its own: how many
    of them are there? (And by what does `var` divide, unless it is told otherwise?)""",
    read="transformer#layer-normalisation",
)
def normalised_over_everything_as_a_sample(x, gain, bias):
    return (x - x.mean()) / torch.sqrt(x.var() + 1e-5) * gain + bias


@layer_norm.misconception(
    "mean and variance run over the first dimension",
    hint="""Without a batch, the first dimension is that of the positions; with one, it counts the sequences.
    It is the features of one position that are to be normalised. Count from the back.""",
    read="transformer#layer-normalisation",
)
def normalised_over_the_first_dimension(x, gain, bias):
    variance = x.var(0, keepdim=True, correction=0)
    return (x - x.mean(0, keepdim=True)) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the gain is not used",
    hint="""Which of your arguments do you not read?""",
    read="transformer#layer-normalisation",
)
def normalised_without_gain(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) + bias


@layer_norm.misconception(
    "the bias is not used",
    hint="""Which of your arguments do you not read?""",
    read="transformer#layer-normalisation",
)
def normalised_without_bias(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(variance + 1e-5) * gain


@layer_norm.misconception(
    "the brackets around the difference from the mean are missing",
    hint="""Python divides before it subtracts. What does your line divide: the difference, or only the
    mean?""",
    read="transformer#layer-normalisation",
)
def normalised_without_brackets(x, gain, bias):
    variance = x.var(-1, keepdim=True, correction=0)
    return x - x.mean(-1, keepdim=True) / torch.sqrt(variance + 1e-5) * gain + bias


@layer_norm.misconception(
    "the squares are added up, and not averaged",
    hint="""The variance is the *mean* of the squared distances. With twice as many features, of the same
    size, should the result become smaller?""",
    read="transformer#layer-normalisation",
)
def normalised_by_the_sum_of_squares(x, gain, bias):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred**2).sum(-1, keepdim=True) + 1e-5) * gain + bias


@layer_norm.misconception(
    "the mean is subtracted, but the squares are those of the features as they were",
    hint="""The variance is measured around the mean: which numbers must be squared?""",
    read="transformer#layer-normalisation",
)
def normalised_around_zero(x, gain, bias):
    mean_square = (x**2).mean(-1, keepdim=True)
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(mean_square + 1e-5) * gain + bias


# ---------------------------------------------------------------------------------------
# The MLP
# ---------------------------------------------------------------------------------------


def _mlp(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return torch.relu(x @ W_1 + b_1) @ W_2 + b_2


def _mlp_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, hidden: int, note: str = "", **how: Any) -> Case:
        dtype, dim = how.pop("dtype", torch.float32), shape[-1]
        inputs = {
            "x": normal(*shape, dtype=dtype),
            "W_1": normal(dim, hidden, dtype=dtype),
            "b_1": normal(hidden, dtype=dtype),
            "W_2": normal(hidden, dim, dtype=dtype),
            "b_2": normal(dim, dtype=dtype),
        }
        return Case(inputs, note, **how)

    return [
        case(3, 4, hidden=8),
        case(4, 4, hidden=4, note="everything square"),
        case(2, 3, 5, hidden=7, note="a batch"),
        case(1, 2, 3, 4, hidden=6, note="two batch dimensions, in double precision", dtype=torch.float64),
        case(1, 3, hidden=5, note="one position"),
        case(4, 3, hidden=6, note="an input that is not contiguous", contiguous=False),
    ]


mlp = Task("mlp", _mlp, _mlp_cases)


@mlp.misconception(
    "the ReLU is missing",
    hint="""Two matrices, one after the other, are one matrix. What stands between them, so that they can do
    more than that?""",
    read="transformer#fetch-then-think",
)
def mlp_linear(x, W_1, b_1, W_2, b_2):
    return (x @ W_1 + b_1) @ W_2 + b_2


@mlp.misconception(
    "the ReLU stands at the end",
    hint="""In yours the output is never negative, so a block could only ever add to its input. Where does
    the formula have it?""",
    read="transformer#fetch-then-think",
)
def mlp_relu_last(x, W_1, b_1, W_2, b_2):
    return torch.relu((x @ W_1 + b_1) @ W_2 + b_2)


@mlp.misconception(
    "there is a second ReLU, at the end",
    hint="""What a step adds to its input may be negative. After how many of the two matrices does the
    formula have a ReLU?""",
    read="transformer#fetch-then-think",
)
def mlp_two_relus(x, W_1, b_1, W_2, b_2):
    return torch.relu(torch.relu(x @ W_1 + b_1) @ W_2 + b_2)


@mlp.misconception(
    "the biases are missing",
    hint="""Without its bias, a hidden feature can only switch on where the weighted sum passes 0. Which of
    your arguments do you not read?""",
    read="transformer#fetch-then-think",
)
def mlp_without_biases(x, W_1, b_1, W_2, b_2):
    return torch.relu(x @ W_1) @ W_2


@mlp.misconception(
    "the first bias is added after the ReLU",
    hint="""The bias decides where the ReLU switches on. So on which side of it must the bias be
    added?""",
    read="transformer#fetch-then-think",
)
def mlp_bias_after_relu(x, W_1, b_1, W_2, b_2):
    return (torch.relu(x @ W_1) + b_1) @ W_2 + b_2


@mlp.misconception(
    "the input is added to the result",
    hint="""That sum belongs to the block, which adds to its input what the MLP returns. Here only the MLP
    itself is asked for.""",
    read="transformer#fetch-then-think",
)
def mlp_with_residual(x, W_1, b_1, W_2, b_2):
    return x + torch.relu(x @ W_1 + b_1) @ W_2 + b_2


@mlp.misconception(
    "the positions are averaged, so all of them get the same",
    hint="""The MLP looks at one position and at no other. The result must have a row of its own for each
    row of `x`.""",
    read="transformer#only-meeting-place",
)
def mlp_of_the_mean(x, W_1, b_1, W_2, b_2):
    mean = x.mean(-2, keepdim=True).expand_as(x)
    return torch.relu(mean @ W_1 + b_1) @ W_2 + b_2


@mlp.misconception(
    "the matrix stands on the left, so it mixes positions instead of features",
    hint="""Rows of `x` are positions, columns are features. In `W @ x` each row of the product is a mixture
    of rows of `x`: positions meet. This only runs at all where there are as many positions as features. On
    which side must the matrix stand?""",
    read="transformer#only-meeting-place",
)
def mlp_from_the_left(x, W_1, b_1, W_2, b_2):
    return W_2.mT @ torch.relu(W_1.mT @ x + b_1) + b_2


@mlp.misconception(
    "the formula for columns is used for rows: the matrices stand on the left as they are",
    hint="""Rows of `x` are positions here, and the matrices have inputs in rows. Write the two shapes beside
    each other: which dimension must disappear in the product?""",
    read="transformer#fetch-then-think",
)
def mlp_for_columns(x, W_1, b_1, W_2, b_2):
    return W_2 @ torch.relu(W_1 @ x + b_1) + b_2


@mlp.misconception(
    "the first bias is missing",
    hint="""Which of your arguments do you not read? Without it, a hidden feature can only switch on where the
    weighted sum passes 0.""",
    read="transformer#fetch-then-think",
)
def mlp_without_first_bias(x, W_1, b_1, W_2, b_2):
    return torch.relu(x @ W_1) @ W_2 + b_2


@mlp.misconception(
    "the second bias is missing",
    hint="""Which of your arguments do you not read?""",
    read="transformer#fetch-then-think",
)
def mlp_without_second_bias(x, W_1, b_1, W_2, b_2):
    return torch.relu(x @ W_1 + b_1) @ W_2


@mlp.misconception(
    "the ReLU stands before the first matrix",
    hint="""Applied to the input, the ReLU throws away all features that are negative, and the two matrices
    behind it are one. Which numbers is it to bend?""",
    read="transformer#fetch-then-think",
)
def mlp_relu_first(x, W_1, b_1, W_2, b_2):
    return (torch.relu(x) @ W_1 + b_1) @ W_2 + b_2


# ---------------------------------------------------------------------------------------
# The block
# ---------------------------------------------------------------------------------------


def _attend(W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Callable:
    """A step of attention with one head; it takes keys and values from `key`, or from `query`."""

    def attend(query: Tensor, key: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        key = query if key is None else key
        output: Any = attention(query @ W_Q, key @ W_K, key @ W_V, mask)
        return output

    return given(attend)


def _small_network(W_1: Tensor, W_2: Tensor) -> Callable:
    return given(lambda x: torch.relu(x @ W_1) @ W_2)


def _norm(gain: Tensor) -> Callable:
    return given(lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:], gain))


def _weights(normal: Callable, number: int, dim: int, dtype: torch.dtype) -> Tensor:
    return 1.5 * dim**-0.5 * normal(number, dim, dim, dtype=dtype)


def _transformer_block(
    x: Tensor, attend: Callable, mlp: Callable, norm_1: Callable, norm_2: Callable, norm: str
) -> Tensor:
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


def _call_block(answer: Any, inputs: dict[str, Any]) -> Any:
    x, W, gains, norm = inputs.values()
    attend, network = _attend(*W[:3]), _small_network(*W[3:])
    return answer(x, attend, network, _norm(gains[0]), _norm(gains[1]), norm)


def _block_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, norm: str, note: str = "", dtype: torch.dtype = torch.float32) -> Case:
        dim = shape[-1]
        inputs = {
            "x": 2 * normal(*shape, dtype=dtype),
            "W": _weights(normal, 5, dim, dtype),
            "gains": 1 + 0.5 * normal(2, dim, dtype=dtype),
            "norm": norm,
        }
        return Case(inputs, note)

    return [
        case(3, 4, norm="pre", note="before the step"),
        case(3, 4, norm="post", note="after the sum"),
        case(2, 3, 5, norm="pre", note="a batch"),
        case(1, 4, norm="pre", note="one position"),
        case(2, 2, 6, norm="post", note="a batch"),
        case(4, 4, norm="post", note="as many positions as features", dtype=torch.float64),
    ]


transformer_block = Task("transformer_block", _transformer_block, _block_cases, call=_call_block)


@transformer_block.misconception(
    "pre and post are exchanged",
    hint="""In a pre-norm block the normalisation comes before the step, and what goes along the sum is
    never normalised. In which of your two branches is that so?""",
    read="transformer#pre-and-post",
)
def block_exchanged(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "post":
        z = x + attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "the block is always pre-norm",
    hint="""With "pre" it is right. Where does your function look at its last argument?""",
    read="transformer#pre-and-post",
)
def block_always_pre(x, attend, mlp, norm_1, norm_2, norm):
    z = x + attend(norm_1(x))
    return z + mlp(norm_2(z))


@transformer_block.misconception(
    "the block is always post-norm",
    hint="""With "post" it is right. Where does your function look at its last argument?""",
    read="transformer#pre-and-post",
)
def block_always_post(x, attend, mlp, norm_1, norm_2, norm):
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "the residual is missing: what a step finds replaces its input",
    hint="""A step is to add to what is there, so that nothing known is lost. If the step finds nothing, what
    should come out?""",
    read="transformer#residuals",
)
def block_without_residuals(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        return mlp(norm_2(attend(norm_1(x))))
    return norm_2(mlp(norm_1(attend(x))))


@transformer_block.misconception(
    "the residual around the MLP is missing",
    hint="""The first step adds to its input. The second one is to do so, too.""",
    read="transformer#residuals",
)
def block_without_second_residual(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return mlp(norm_2(z))
    z = norm_1(x + attend(x))
    return norm_2(mlp(z))


@transformer_block.misconception(
    "the residual around the attention is missing",
    hint="""The second step adds to its input. The first one is to do so, too: otherwise a position
    forgets itself.""",
    read="transformer#residuals",
)
def block_without_first_residual(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = norm_1(attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "in a pre-norm block, the step is added to the normalised input",
    hint="""The sum is to carry the input itself, as it came. Only the step gets a normalised copy. Is your
    `x` still the old one when you add to it?""",
    read="transformer#pre-and-post",
)
def block_adds_to_the_normalised(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        n = norm_1(x)
        z = n + attend(n)
        n = norm_2(z)
        return n + mlp(n)
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "what the step returns is normalised, instead of its input or the sum",
    hint="""There are three places beside a step: before it, after it but before the sum, and after the sum.
    Pre-norm is the first of these, post-norm the last, and the second is neither.""",
    read="transformer#pre-and-post",
)
def block_normalises_the_step(x, attend, mlp, norm_1, norm_2, norm):
    z = x + norm_1(attend(x))
    return z + norm_2(mlp(z))


@transformer_block.misconception(
    "in a post-norm block, what the step returns is normalised before the sum",
    hint="""Post-norm normalises what leaves the sum, so that the next step, and the next sum, get
    normalised numbers.""",
    read="transformer#pre-and-post",
)
def block_post_inside_the_sum(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = x + norm_1(attend(x))
    return z + norm_2(mlp(z))


@transformer_block.misconception(
    "the first normalisation is used for both steps",
    hint="""Each step has a normalisation of its own, with a gain of its own. Do you use all of your
    arguments?""",
    read="transformer#block-in-full",
)
def block_one_norm(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(norm_1(z))
    z = norm_1(x + attend(x))
    return norm_1(z + mlp(z))


@transformer_block.misconception(
    "the MLP works on the block's input, beside the attention instead of after it",
    hint="""The MLP is to work on what the attention has brought. In yours it does not know of it.""",
    read="transformer#block-in-full",
)
def block_parallel(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        return x + attend(norm_1(x)) + mlp(norm_2(x))
    return norm_2(norm_1(x + attend(x)) + mlp(x))


@transformer_block.misconception(
    "the second sum adds to the block's input, so that what the attention has added is lost",
    hint="""The MLP sees what the attention has brought. But what do you add its result to?""",
    read="transformer#residuals",
)
def block_second_sum_from_x(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return x + mlp(norm_2(z))
    z = norm_1(x + attend(x))
    return norm_2(x + mlp(z))


@transformer_block.misconception(
    "the MLP comes first, and then the attention",
    hint="""First fetch, then think. Which step stands first in the formulas?""",
    read="transformer#block-in-full",
)
def block_mlp_first(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + mlp(norm_1(x))
        return z + attend(norm_2(z))
    z = norm_1(x + mlp(x))
    return norm_2(z + attend(z))


@transformer_block.misconception(
    "nothing is normalised",
    hint="""You are handed two normalisations. Where in the block do they belong, for each of the two
    words?""",
    read="transformer#pre-and-post",
)
def block_without_norms(x, attend, mlp, norm_1, norm_2, norm):
    z = x + attend(x)
    return z + mlp(z)


@transformer_block.misconception(
    "the normalisation stands in both places, before the step and after the sum",
    hint="""It is one or the other: before the step with "pre", after the sum with "post".""",
    read="transformer#pre-and-post",
)
def block_with_both(x, attend, mlp, norm_1, norm_2, norm):
    z = norm_1(x + attend(norm_1(x)))
    return norm_2(z + mlp(norm_2(z)))


@transformer_block.misconception(
    "in a pre-norm block, what the step returns is normalised",
    hint="""There are three places beside a step: before it, after it but before the sum, and after the sum.
    Which of them is meant by "pre"?""",
    read="transformer#pre-and-post",
)
def block_pre_behind_the_step(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + norm_1(attend(x))
        return z + norm_2(mlp(z))
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "the two normalisations are exchanged",
    hint="""Each has learned its gain for one step: `norm_1` for the attention, `norm_2` for the MLP.""",
    read="transformer#block-in-full",
)
def block_norms_exchanged(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_2(x))
        return z + mlp(norm_1(z))
    z = norm_2(x + attend(x))
    return norm_1(z + mlp(z))


@transformer_block.misconception(
    "in a pre-norm block, the MLP gets what has not been normalised",
    hint="""The attention gets a normalised copy. What about the second step?""",
    read="transformer#pre-and-post",
)
def block_pre_second_norm_missing(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(z)
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "in a post-norm block, only the second sum is normalised",
    hint="""There is a sum after each step, so there are two. Which of your arguments does that branch not
    use?""",
    read="transformer#pre-and-post",
)
def block_post_first_norm_missing(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = x + attend(x)
    return norm_2(z + mlp(z))


@transformer_block.misconception(
    "there is one sum around both steps, instead of one around each",
    hint="""Draw the straight line from the input to the output. How many plus signs stand on it?""",
    read="transformer#residuals",
)
def block_one_sum(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        return x + mlp(norm_2(attend(norm_1(x))))
    return norm_2(x + mlp(norm_1(attend(x))))


@transformer_block.misconception(
    "the MLP is missing",
    hint="""The block has fetched, and has not thought yet. Which of your arguments do you not use?""",
    read="transformer#block-in-full",
)
def block_without_mlp(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        return x + attend(norm_1(x))
    return norm_1(x + attend(x))


@transformer_block.misconception(
    "in a pre-norm block, the MLP gets the normalised copy from before the attention",
    hint="""What the attention has brought is not in that copy. Of which numbers must the second normalisation
    be taken?""",
    read="transformer#block-in-full",
)
def block_reuses_the_copy(x, attend, mlp, norm_1, norm_2, norm):
    if norm == "pre":
        n = norm_1(x)
        z = x + attend(n)
        return z + mlp(n)
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


# ---------------------------------------------------------------------------------------
# The decoder's block
# ---------------------------------------------------------------------------------------


def _decoder_block(
    x: Tensor, memory: Tensor, attend: Callable, look: Callable, mlp: Callable, norms: list[Callable]
) -> Tensor:
    n = norms[0](x)
    x = x + attend(n, n, causal_mask(x.shape[-2]))
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


def _call_decoder_block(answer: Any, inputs: dict[str, Any]) -> Any:
    x, memory, W, gains = inputs.values()
    parts = _attend(*W[:3]), _attend(*W[3:6]), _small_network(*W[6:])
    return answer(x, memory, *parts, [_norm(gain) for gain in gains])


def _decoder_block_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        batch: tuple[int, ...], target: int, source: int, dim: int, note: str = "", dtype: Any = torch.float32
    ) -> Case:
        inputs = {
            "x": 2 * normal(*batch, target, dim, dtype=dtype),
            "memory": 2 * normal(*batch, source, dim, dtype=dtype),
            "W": _weights(normal, 8, dim, dtype),
            "gains": 1 + 0.5 * normal(3, dim, dtype=dtype),
        }
        return Case(inputs, note)

    return [
        case((), 3, 5, 4, "a memory that is longer"),
        case((), 4, 4, 6, "sequences of one length"),
        case((2,), 4, 3, 5, "a batch"),
        case((), 1, 3, 4, "the first position alone"),
        case((3,), 3, 3, 3, "everything square", torch.float64),
    ]


decoder_block = Task(
    "decoder_block", _decoder_block, _decoder_block_cases, allows=("causal_mask",), call=_call_decoder_block
)


@decoder_block.misconception(
    "the self-attention has no causal mask",
    hint="""The target is written from left to right. When position 0 is written, position 1 is not there
    yet, though in training it is in the tensor.""",
    read="transformer#three-forms",
)
def decoder_without_mask(x, memory, attend, look, mlp, norms):
    n = norms[0](x)
    x = x + attend(n, n)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the cross-attention is causal, too",
    hint="""The memory is complete before the first letter is written, so there is no future in it. Which of
    the two attentions must not look ahead?""",
    read="transformer#three-forms",
)
def decoder_with_causal_memory(x, memory, attend, look, mlp, norms):
    positions = x.shape[-2]
    n = norms[0](x)
    x = x + attend(n, n, torch.ones(positions, positions, dtype=torch.bool).tril())
    mask = torch.ones(positions, memory.shape[-2], dtype=torch.bool).tril()
    x = x + look(norms[1](x), memory, mask)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the square causal mask is handed to the cross-attention, too",
    hint="""A mask has a row for each query and a column for each key. And is there anything in the memory
    that must not be seen?""",
    read="transformer#three-forms",
)
def decoder_with_square_mask(x, memory, attend, look, mlp, norms):
    positions = x.shape[-2]
    mask = torch.ones(positions, positions, dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), memory, mask)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "in the cross-attention, the queries come from the encoder",
    hint="""Who wants to know something here, and who has the answers? The output needs a row for each
    position of the target, and it is the queries that the rows come from.""",
    read="transformer#three-forms",
)
def decoder_queries_from_memory(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(memory, norms[1](x))
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the cross-attention looks at the target, and the memory is never used",
    hint="""A decoder that never looks at the source writes the same whatever it is to translate. Which of
    your arguments do you not read?""",
    read="transformer#three-forms",
)
def decoder_without_memory(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    n = norms[1](x)
    x = x + look(n, n)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the memory is normalised with the norm of the target",
    hint="""The memory comes out of the encoder, which has normalised it already, with a gain of its own. Of
    the two inputs of the cross-attention, one gets the block's norm.""",
    read="transformer#three-forms",
)
def decoder_normalises_memory(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), norms[1](memory))
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the self-attention's queries are normalised, and its keys and values are not",
    hint="""In self-attention all three come from the same numbers. A pre-norm step gets the normalised copy
    for all of them.""",
    read="transformer#pre-and-post",
)
def decoder_keys_not_normalised(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = x + attend(norms[0](x), x, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the cross-attention comes first, and then the self-attention",
    hint="""First the target finds out what has been written so far. Only then does it know what to ask the
    memory.""",
    read="transformer#three-forms",
)
def decoder_looks_first(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = x + look(norms[0](x), memory)
    n = norms[1](x)
    x = x + attend(n, n, mask)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the residual around the cross-attention is missing",
    hint="""Each of the three steps adds to what is there. After yours, what had been written before is
    known only through what was looked up for it.""",
    read="transformer#residuals",
)
def decoder_without_cross_residual(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the block is post-norm",
    hint="""Asked for is a pre-norm block: each step gets a normalised copy, and the sums are left as they
    are.""",
    read="transformer#pre-and-post",
)
def decoder_post_norm(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = norms[0](x + attend(x, x, mask))
    x = norms[1](x + look(x, memory))
    return norms[2](x + mlp(x))


@decoder_block.misconception(
    "no position may see itself",
    hint="""What stands at a position has been written. It is the next one that is to be predicted there. Does
    a causal mask have the diagonal?""",
    read="masking#diagonal",
)
def decoder_strict_mask(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril(-1)
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the cross-attention is causal, too, aligned at the end",
    hint="""The memory is complete before the first letter is written, so there is no future in it, however
    the two sequences are laid side by side. Which of the two attentions must not look ahead?""",
    read="transformer#three-forms",
)
def decoder_with_causal_memory_at_the_end(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    target, source = x.shape[-2], memory.shape[-2]
    mask = torch.ones(target, source, dtype=torch.bool).tril(source - target)
    x = x + look(norms[1](x), memory, mask)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "there are no residuals: what a step finds replaces its input",
    hint="""Each of the three steps adds to what is there, so that nothing known is lost.""",
    read="transformer#residuals",
)
def decoder_without_residuals(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = attend(n, n, mask)
    x = look(norms[1](x), memory)
    return mlp(norms[2](x))


@decoder_block.misconception(
    "the residual around the self-attention is missing",
    hint="""Each of the three steps adds to what is there. After yours, a position has forgotten itself.""",
    read="transformer#residuals",
)
def decoder_without_self_residual(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = attend(n, n, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the residual around the MLP is missing",
    hint="""Each of the three steps adds to what is there. What does your last line return?""",
    read="transformer#residuals",
)
def decoder_without_mlp_residual(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), memory)
    return mlp(norms[2](x))


@decoder_block.misconception(
    "each step is added to the normalised input",
    hint="""The sum is to carry the input itself, as it came. Only the step gets a normalised copy. Is your
    `x` still the old one when you add to it?""",
    read="transformer#pre-and-post",
)
def decoder_adds_to_the_normalised(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = norms[0](x)
    x = x + attend(x, x, mask)
    x = norms[1](x)
    x = x + look(x, memory)
    x = norms[2](x)
    return x + mlp(x)


@decoder_block.misconception(
    "the queries of the cross-attention are not normalised",
    hint="""Each of the three steps of a pre-norm block gets a normalised copy. Which of the norms do you not
    use?""",
    read="transformer#pre-and-post",
)
def decoder_cross_not_normalised(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(x, memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the self-attention gets what has not been normalised",
    hint="""Each of the three steps of a pre-norm block gets a normalised copy. Which of the norms do you not
    use?""",
    read="transformer#pre-and-post",
)
def decoder_self_not_normalised(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = x + attend(x, x, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the cross-attention asks with the normalised copy from before the self-attention",
    hint="""What has been found by the first step is not in that copy. Of which numbers must the second norm
    be taken?""",
    read="transformer#three-forms",
)
def decoder_asks_with_the_old_copy(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(n, memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the first normalisation is used for every step",
    hint="""Each step has a normalisation of its own, with a gain of its own. Which of the norms do you
    use?""",
    read="transformer#block-in-full",
)
def decoder_one_norm(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[0](x), memory)
    return x + mlp(norms[0](x))


@decoder_block.misconception(
    "the two attentions are exchanged",
    hint="""`attend` is the self-attention, `look` the cross-attention: they have weights of their own, each
    for its purpose.""",
    read="transformer#three-forms",
)
def decoder_attentions_exchanged(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + look(n, n, mask)
    x = x + attend(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the weights of the self-attention are used for the cross-attention, too",
    hint="""You are handed two attentions. Which of your arguments do you not use?""",
    read="transformer#three-forms",
)
def decoder_attends_twice(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + attend(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "there is no cross-attention",
    hint="""A decoder that never looks at the source writes the same whatever it is to translate. Which of
    your arguments do you not use?""",
    read="transformer#three-forms",
)
def decoder_without_cross_attention(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    n = norms[0](x)
    x = x + attend(n, n, mask)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "the mask is the other way round: what may be seen is hidden",
    hint="""In this course, as in `scaled_dot_product_attention`, True means: may attend. Only PyTorch's
    layers have it the other way.""",
    read="masking#two-polarities",
)
def decoder_mask_inverted(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
    n = norms[0](x)
    x = x + attend(n, n, mask)
    x = x + look(norms[1](x), memory)
    return x + mlp(norms[2](x))


@decoder_block.misconception(
    "nothing is normalised",
    hint="""You are handed three normalisations. Where in a pre-norm block does each of them belong?""",
    read="transformer#pre-and-post",
)
def decoder_without_norms(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = x + attend(x, x, mask)
    x = x + look(x, memory)
    return x + mlp(x)


# ---------------------------------------------------------------------------------------
# A stack that sees only the past
# ---------------------------------------------------------------------------------------


def _causal_stack(x: Tensor, blocks: list[Callable], norm: Callable) -> Tensor:
    mask = causal_mask(x.shape[-2])
    for block in blocks:
        x = block(x, mask)
    return norm(x)


def _call_stack(answer: Any, inputs: dict[str, Any]) -> Any:
    x, W, gain = inputs.values()

    def block(weights: Tensor) -> Callable:
        attend, network = _attend(*weights[:3]), _small_network(*weights[3:])

        def apply(x: Tensor, mask: Tensor | None = None) -> Tensor:
            x = x + attend(x, x, mask)
            return x + network(x)

        return given(apply)

    return answer(x, [block(weights) for weights in W], _norm(gain))


def _causal_stack_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, blocks: int, note: str, dtype: torch.dtype = torch.float32) -> Case:
        dim = shape[-1]
        W = torch.stack([0.7 * _weights(normal, 5, dim, dtype) for _ in range(blocks)])
        inputs = {"x": normal(*shape, dtype=dtype), "W": W, "gain": 1 + 0.5 * normal(dim, dtype=dtype)}
        return Case(inputs, note)

    return [
        case(4, 5, blocks=3, note="three blocks"),
        case(3, 4, blocks=1, note="one block"),
        case(2, 4, 6, blocks=2, note="a batch"),
        case(1, 4, blocks=2, note="one position"),
        case(4, 4, blocks=4, note="four blocks, everything square", dtype=torch.float64),
    ]


causal_stack = Task(
    "causal_stack", _causal_stack, _causal_stack_cases, allows=("causal_mask",), call=_call_stack
)


@causal_stack.misconception(
    "only the first block gets the mask",
    hint="""The first block lets nothing through from the future. But in the second, each position looks at
    all positions of the first, and those behind it know the future. One open block is enough.""",
    read="transformer#one-open-block",
)
def stack_masked_at_first(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = blocks[0](x, mask)
    for block in blocks[1:]:
        x = block(x)
    return norm(x)


@causal_stack.misconception(
    "only the last block gets the mask",
    hint="""The last block sees only what stands before. But what stands before has heard of the future
    already, in the blocks below. One open block is enough.""",
    read="transformer#one-open-block",
)
def stack_masked_at_last(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks[:-1]:
        x = block(x)
    return norm(blocks[-1](x, mask))


@causal_stack.misconception(
    "no block gets a mask",
    hint="""Which positions can change the output at position 0? In a decoder, position 0 alone.""",
    read="transformer#only-meeting-place",
)
def stack_without_mask(x, blocks, norm):
    for block in blocks:
        x = block(x)
    return norm(x)


@causal_stack.misconception(
    "the mask is turned round: each position sees itself and what comes after",
    hint="""Rows are queries and columns are keys. In which triangle does row 3 have its keys 0 to
    3?""",
    read="masking#masking-patterns",
)
def stack_sees_the_future(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu()
    for block in blocks:
        x = block(x, mask)
    return norm(x)


@causal_stack.misconception(
    "no position may see itself",
    hint="""What stands at a position has been written. It is the next one that is to be predicted there. Does
    a causal mask have the diagonal?""",
    read="masking#diagonal",
)
def stack_strictly_past(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril(-1)
    for block in blocks:
        x = block(x, mask)
    return norm(x)


@causal_stack.misconception(
    "the normalisation at the end is missing",
    hint="""Each block adds to the sum, and in a pre-norm stack nobody normalises it on the way. What is to be
    done with it before it is read?""",
    read="transformer#pre-and-post",
)
def stack_without_norm(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks:
        x = block(x, mask)
    return x


@causal_stack.misconception(
    "the normalisation stands after every block",
    hint="""The blocks normalise what their steps get by themselves. The one that you are given belongs to
    the end of the stack.""",
    read="transformer#pre-and-post",
)
def stack_norm_in_the_loop(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks:
        x = norm(block(x, mask))
    return x


@causal_stack.misconception(
    "every block gets the input of the first one",
    hint="""A block is to go on where the last one stopped. In yours, all but the last have worked for
    nothing.""",
    read="transformer#transformer-stack",
)
def stack_of_first_inputs(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks:
        y = block(x, mask)
    return norm(y)


@causal_stack.misconception(
    "the input of each block is added to its output once more",
    hint="""The residuals are inside the blocks: each returns its input and what it has added.""",
    read="transformer#residuals",
)
def stack_with_more_residuals(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks:
        x = x + block(x, mask)
    return norm(x)


@causal_stack.misconception(
    "the blocks are applied from the last to the first",
    hint="""`blocks[0]` is the one that gets the input.""",
    read="transformer#transformer-stack",
)
def stack_reversed(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in reversed(blocks):
        x = block(x, mask)
    return norm(x)


@causal_stack.misconception(
    "the first block is applied again and again",
    hint="""Each of the blocks has learned weights of its own. Which of them do you use?""",
    read="transformer#transformer-stack",
)
def stack_of_one_block(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for _ in blocks:
        x = blocks[0](x, mask)
    return norm(x)


@causal_stack.misconception(
    "the mask is the other way round: what may be seen is hidden",
    hint="""In this course, as in `scaled_dot_product_attention`, True means: may attend. Only PyTorch's
    layers have it the other way.""",
    read="masking#two-polarities",
)
def stack_mask_inverted(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).triu(1)
    for block in blocks:
        x = block(x, mask)
    return norm(x)


@causal_stack.misconception(
    "the normalisation stands at the start of the stack, and not at its end",
    hint="""Every pre-norm block normalises what its own steps get. What is it that nobody has normalised yet,
    when the last block is done?""",
    read="transformer#pre-and-post",
)
def stack_norm_at_the_start(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    x = norm(x)
    for block in blocks:
        x = block(x, mask)
    return x


@causal_stack.misconception(
    "the input of every block is normalised",
    hint="""The blocks are pre-norm: each normalises what its own steps get, and carries the sum on as it is.
    Where does the normalisation that you are given belong?""",
    read="transformer#pre-and-post",
)
def stack_norm_before_every_block(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    for block in blocks:
        x = block(norm(x), mask)
    return norm(x)


@causal_stack.misconception(
    "only the first block is used: the function returns inside the loop",
    hint="""How often does your loop go round? How far is the `return` indented?""",
    read="transformer#transformer-stack",
)
def stack_returns_in_the_loop(x, blocks, norm):
    mask = torch.ones(x.shape[-2], x.shape[-2], dtype=torch.bool).tril()
    return norm(blocks[0](x, mask))


# ---------------------------------------------------------------------------------------
# How many parameters
# ---------------------------------------------------------------------------------------


def _stack_parameters(
    model_dim: int, hidden_dim: int, num_encoder_blocks: int, num_decoder_blocks: int
) -> int:
    attention, norm = 4 * (model_dim**2 + model_dim), 2 * model_dim
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder_block = attention + norm + mlp + norm
    return num_encoder_blocks * encoder_block + num_decoder_blocks * (encoder_block + attention + norm)


def _stack_parameters_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    names = ("model_dim", "hidden_dim", "num_encoder_blocks", "num_decoder_blocks")

    def case(*numbers: int, note: str) -> Case:
        return Case(dict(zip(names, numbers, strict=True)), note)

    dim, hidden, few, more = (torch.randperm(6, generator=generator)[:4] + 2).tolist()
    return [
        case(4 * dim, 8 * hidden + 4, few, more, note="an encoder and a decoder"),
        case(10, 40, 1, 1, note="one block each"),
        case(3 * hidden, 16, more, 3, note="an encoder and a decoder"),
        case(512, 2048, 6, 6, note="the sizes of the paper"),
    ]


stack_parameters = Task(
    "stack_parameters",
    _stack_parameters,
    _stack_parameters_cases,
    # PyTorch's layers may be counted: they are not asked for here, and nothing is computed with them.
    allows=("TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention"),
)


@stack_parameters.misconception(
    "the decoder's blocks are counted like those of the encoder",
    hint="""A block of the decoder has one step more. It looks at the encoder's output, with weights of its
    own.""",
    read="transformer#paper-sizes",
)
def count_equal_blocks(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    return (num_encoder_blocks + num_decoder_blocks) * (attention + mlp + 4 * model_dim)


@stack_parameters.misconception(
    "the cross-attention is counted without its normalisation",
    hint="""Each step has a layer normalisation. How many steps has a block of the decoder?""",
    read="transformer#paper-sizes",
)
def count_two_norms_in_the_decoder(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 4 * model_dim)


@stack_parameters.misconception(
    "the layer normalisations are left out",
    hint="""They learn, too: a gain and a bias for each feature.""",
    read="transformer#layer-normalisation",
)
def count_without_norms(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    return num_encoder_blocks * (attention + mlp) + num_decoder_blocks * (2 * attention + mlp)


@stack_parameters.misconception(
    "each layer normalisation is counted with one vector instead of two",
    hint="""A gain multiplies each feature, and something is added to it afterwards.""",
    read="transformer#layer-normalisation",
)
def count_gains_only(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 2 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 3 * model_dim)


@stack_parameters.misconception(
    "each layer normalisation is counted with two numbers, whatever the number of features",
    hint="""Mean and variance are not learned. What is learned is one gain and one bias *for each
    feature*.""",
    read="transformer#layer-normalisation",
)
def count_two_numbers_a_norm(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6)


@stack_parameters.misconception(
    "the biases of the attention are left out",
    hint="""The attention's four matrices have a bias each, in these blocks.""",
    read="transformer#paper-sizes",
)
def count_attention_without_biases(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * model_dim**2
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "the biases of the MLP are left out",
    hint="""After each of its two matrices, a vector is added. How long is the first, and how long the
    second?""",
    read="transformer#fetch-then-think",
)
def count_mlp_without_biases(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "all biases are left out",
    hint="""In these blocks a vector is added after every matrix, those of the attention and those of the
    MLP.""",
    read="transformer#paper-sizes",
)
def count_without_biases(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention, mlp = 4 * model_dim**2, 2 * model_dim * hidden_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "W_O is left out",
    hint="""Each attention has three matrices for its heads, and one more that mixes them.""",
    read="multihead#counting-parameters",
)
def count_without_output_weight(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 3 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "the MLP is counted with one of its two matrices",
    hint="""One matrix leads from the model's features to the hidden ones, and another one back.""",
    read="transformer#fetch-then-think",
)
def count_half_an_mlp(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = model_dim * hidden_dim + hidden_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "the encoder is left out",
    hint="""Both stacks learn. The decoder looks at what the encoder's blocks have made of the source.""",
    read="transformer#three-forms",
)
def count_decoder_only(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    return num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "a block of the decoder is counted as two of the encoder, with two MLPs",
    hint="""It has one step more, not two. How many attentions, MLPs and normalisations are there in it?""",
    read="transformer#three-forms",
)
def count_two_mlps_in_the_decoder(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + 2 * num_decoder_blocks * (attention + mlp + 4 * model_dim)


@stack_parameters.misconception(
    "one layer normalisation is counted for each block, and not for each step",
    hint="""Each step of a block has its own. How many steps are there in each kind of block?""",
    read="transformer#block-in-full",
)
def count_one_norm_a_block(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 2 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 2 * model_dim)


@stack_parameters.misconception(
    "the normalisations at the end of the stacks are counted",
    hint="""Asked for are the blocks only. Which of what you have counted belongs to no block?""",
    read="transformer#pre-and-post",
)
def count_norms_at_the_ends(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim) + 4 * model_dim


@stack_parameters.misconception(
    "only the matrices are counted: no biases and no normalisations",
    hint="""A vector is added after every matrix, and every step has a layer normalisation with its two
    vectors.""",
    read="transformer#paper-sizes",
)
def count_matrices_only(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention, mlp = 4 * model_dim**2, 2 * model_dim * hidden_dim
    encoder = num_encoder_blocks * (attention + mlp)
    return encoder + num_decoder_blocks * (2 * attention + mlp)


@stack_parameters.misconception(
    "the attention is counted with one bias",
    hint="""A vector is added after each of its four matrices.""",
    read="transformer#paper-sizes",
)
def count_one_bias_of_the_attention(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * model_dim**2 + model_dim
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "both biases of the MLP are counted with the hidden features",
    hint="""A bias is as long as what it is added to. To what is the second one added?""",
    read="transformer#fetch-then-think",
)
def count_mlp_biases_both_hidden(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + 2 * hidden_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "both biases of the MLP are counted with the features of the model",
    hint="""A bias is as long as what it is added to. To what is the first one added?""",
    read="transformer#fetch-then-think",
)
def count_mlp_biases_both_model(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + 2 * model_dim
    encoder = num_encoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_decoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "the decoder is left out",
    hint="""Both stacks learn. Which of your arguments do you not use?""",
    read="transformer#three-forms",
)
def count_encoder_only(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    return num_encoder_blocks * (attention + mlp + 4 * model_dim)


@stack_parameters.misconception(
    "encoder and decoder are exchanged",
    hint="""Which of the two has blocks that look at another sequence, with an attention more?""",
    read="transformer#three-forms",
)
def count_exchanged(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * (model_dim**2 + model_dim)
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    encoder = num_decoder_blocks * (attention + mlp + 4 * model_dim)
    return encoder + num_encoder_blocks * (2 * attention + mlp + 6 * model_dim)


@stack_parameters.misconception(
    "the layer normalisations and the biases of the attention are left out",
    hint="""In these blocks a vector is added after every matrix. And every step has a layer normalisation,
    with its two vectors.""",
    read="transformer#paper-sizes",
)
def count_without_norms_and_attention_biases(model_dim, hidden_dim, num_encoder_blocks, num_decoder_blocks):
    attention = 4 * model_dim**2
    mlp = 2 * model_dim * hidden_dim + hidden_dim + model_dim
    return num_encoder_blocks * (attention + mlp) + num_decoder_blocks * (2 * attention + mlp)


# ---------------------------------------------------------------------------------------
# What is predicted from what
# ---------------------------------------------------------------------------------------


def _inputs_and_targets(tokens: Tensor) -> tuple[Tensor, Tensor]:
    return tokens[..., :-1], tokens[..., 1:]


def _inputs_and_targets_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)

    def case(*shape: int, note: str = "", **how: Any) -> Case:
        return Case({"tokens": torch.randint(1, 100, shape, generator=generator)}, note, **how)

    return [
        case(6, note="one sequence"),
        case(4, 7, note="a batch"),
        case(3, 3, note="as many sequences as positions"),
        case(2, 3, 5, note="two batch dimensions"),
        case(3, note="three positions"),
        case(3, 6, note="an input that is not contiguous", contiguous=False),
    ]


inputs_and_targets = Task("inputs_and_targets", _inputs_and_targets, _inputs_and_targets_cases)


@inputs_and_targets.misconception(
    "the target is not shifted: each position is to predict itself",
    hint="""A position sees itself, so it could copy, with a loss of 0 and nothing learned. What is it to
    predict?""",
    read="transformer#next-letter",
)
def targets_not_shifted(tokens):
    return tokens[..., :-1], tokens[..., :-1]


@inputs_and_targets.misconception(
    "the whole sequence is both input and target",
    hint="""A position sees itself, so it could copy, with a loss of 0 and nothing learned. What is it to
    predict?""",
    read="transformer#next-letter",
)
def targets_are_the_inputs(tokens):
    return tokens, tokens


@inputs_and_targets.misconception(
    "the shift goes the wrong way: each position is to predict the one before",
    hint="""The one before is in the past, where a causal model can look. The input begins with the first
    token. What is its target? And which of the two is to be returned first?""",
    read="transformer#next-letter",
)
def targets_from_the_past(tokens):
    return tokens[..., 1:], tokens[..., :-1]


@inputs_and_targets.misconception(
    "the shift is two positions wide",
    hint="""Between the last thing that a position sees and the one that it predicts, nothing is to be
    left out.""",
    read="transformer#next-letter",
)
def targets_two_ahead(tokens):
    return tokens[..., :-2], tokens[..., 2:]


@inputs_and_targets.misconception(
    "the last position is to predict the first: the shift goes round in a circle",
    hint="""`roll` puts what falls off the end at the beginning. What comes after the last one is not known,
    so the last one has no target. What follows for the input?""",
    read="transformer#next-letter",
)
def targets_rolled(tokens):
    return tokens, tokens.roll(-1, -1)


@inputs_and_targets.misconception(
    "the shift is along the first dimension, which with a batch counts the sequences",
    hint="""With a batch, yours predicts one sequence from another. Which dimension are the positions,
    counted from the back?""",
    read="transformer#next-letter",
)
def targets_shifted_in_the_batch(tokens):
    return tokens[:-1], tokens[1:]


@inputs_and_targets.misconception(
    "dimension 1 is cut, which is right for exactly one batch dimension",
    hint="""A passage may come alone, or with several batch dimensions in front. How do you name the dimension
    of the positions when you count from the back?""",
    read="transformer#next-letter",
)
def targets_along_dimension_one(tokens):
    return tokens[:, :-1], tokens[:, 1:]


@inputs_and_targets.misconception(
    "only the last position has a target",
    hint="""A causal model predicts at every position at once, each from its own past. A sequence of a
    hundred gives that many lessons instead of one.""",
    read="transformer#next-letter",
)
def targets_at_the_end(tokens):
    return tokens[..., :-1], tokens[..., -1]


@inputs_and_targets.misconception(
    "the last token is dropped from both",
    hint="""The input lacks its last token since nothing comes after it. What does the target lack?""",
    read="transformer#next-letter",
)
def targets_shifted_and_cut(tokens):
    return tokens[..., :-2], tokens[..., 1:-1]


@inputs_and_targets.misconception(
    "the input keeps its last token, for which there is no target",
    hint="""Input and target go together position by position. What would the last position of yours
    predict?""",
    read="transformer#next-letter",
)
def targets_shorter_than_inputs(tokens):
    return tokens, tokens[..., 1:]


# ---------------------------------------------------------------------------------------
# Writing one letter after the other
# ---------------------------------------------------------------------------------------


def _greedy_decode(next_scores: Callable, start: int, end: int, max_length: int) -> list[int]:
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


def _next_scores(table: Tensor, places: Tensor) -> Callable:
    """A causal model: each row depends on all letters up to it, the last of them most, and on its place."""

    def next_scores(written: Any) -> Tensor:
        letters = torch.as_tensor(written)
        if letters.dim() != 1 or len(letters) == 0 or letters.is_floating_point():
            raise ValueError(
                f"written has shape {tuple(letters.shape)} and dtype {letters.dtype}: "
                "expected (length,), whole numbers, at least one"
            )
        if len(letters) > len(places):
            raise ValueError(f"written has {len(letters)} letters: expected at most {len(places)}")
        if letters.min() < 0 or letters.max() >= len(table):
            raise ValueError(f"written has the letter {int(letters.max())}: expected 0 to {len(table) - 1}")
        return 2 * table[letters] + table.roll(1, 0)[letters].cumsum(0) + places[: len(letters)]

    return next_scores


def _call_with_scores(answer: Any, inputs: dict[str, Any]) -> Any:
    table, places, start, end, max_length = inputs.values()
    letters = answer(given(_next_scores(table, places)), start, end, max_length)
    if isinstance(letters, Tensor):
        return letters.tolist()
    if isinstance(letters, list | tuple):
        return [part.item() if isinstance(part, Tensor) and part.numel() == 1 else part for part in letters]
    return letters


def _compare_letters(inputs: dict[str, Any], value: Any) -> str | None:
    table, places, start, end, max_length = inputs.values()
    expected = _greedy_decode(_next_scores(table, places), start, end, max_length)
    if not isinstance(value, list) or not all(type(letter) is int for letter in value):
        return "a list of whole numbers was expected"
    if value == expected:
        return None
    right = next((n for n, pair in enumerate(zip(value, expected, strict=False)) if pair[0] != pair[1]), None)
    if right is None:
        return (
            f"the list {'goes on where it should stop' if len(value) > len(expected) else 'stops too soon'}"
        )
    return f"letter number {right + 1} of the list is not the one that should stand there"


def _greedy_decode_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    generator = torch.Generator().manual_seed(seed)

    def case(num_letters: int, stop: int, max_length: int, note: str) -> Case:
        start, end = torch.randperm(num_letters, generator=generator)[:2].tolist()
        # The end wins after `stop` letters and never before; so does no start.
        places = normal(max_length + 3, num_letters)
        places[:, [start, end]] -= 100
        places[stop, end] += 300
        table = normal(num_letters, num_letters)
        inputs = {"table": table, "places": places, "start": start, "end": end, "max_length": max_length}
        return Case(inputs, note)

    return [
        case(6, 4, 10, "an end after four letters"),
        case(8, 7, 5, "no end before max_length"),
        case(5, 0, 4, "an end at once"),
        case(7, 5, 5, "an end after max_length letters"),
        case(9, 6, 12, "an end after six letters"),
    ]


greedy_decode = Task(
    "greedy_decode",
    _greedy_decode,
    _greedy_decode_cases,
    compare=_compare_letters,
    call=_call_with_scores,
)


@greedy_decode.misconception(
    "the end is part of the result",
    hint="""The end says that the word is complete. It is not one of its letters.""",
    read="transformer#writing",
)
def decodes_with_end(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        written.append(int(next_scores(written)[-1].argmax()))
        if written[-1] == end:
            break
    return written[1:]


@greedy_decode.misconception(
    "the start is part of the result",
    hint="""The start is there so that there is something to look at when the first letter is written. It is
    not one of the letters.""",
    read="transformer#writing",
)
def decodes_with_start(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written


@greedy_decode.misconception(
    "start and end are both part of the result",
    hint="""They say where the word begins and that it is complete. They are not letters of it.""",
    read="transformer#writing",
)
def decodes_with_start_and_end(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        written.append(int(next_scores(written)[-1].argmax()))
        if written[-1] == end:
            break
    return written


@greedy_decode.misconception(
    "the end is not noticed: letters are written up to max_length",
    hint="""The model says itself when it is done. Compare each letter with `end` before you go on.""",
    read="transformer#writing",
)
def decodes_without_end(next_scores, start, end, max_length):
    written = [start]
    for _ in range(max_length):
        written.append(int(next_scores(written)[-1].argmax()))
    return written[1:]


@greedy_decode.misconception(
    "every letter is chosen as if nothing but the start had been written",
    hint="""Either what has been written is not handed back to the model, or the wrong row of the scores is
    read. Each row belongs to a position of what is written, and says what comes after it. After which
    position do you want to go on?""",
    read="transformer#writing",
)
def decodes_from_the_first(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written)[0].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "only the last letter is handed to the model, not all that is written",
    hint="""Attention looks at all letters before. If you hand over only the last one, there is nothing else
    to look at, and every letter stands at position 0.""",
    read="transformer#writing",
)
def decodes_from_the_last_letter(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written[-1:])[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "one letter fewer than max_length is written",
    hint="""`written` begins with the start, which does not count. How long may it become? And if you cut
    something off at the end: is it always the sign of the end that stands there?""",
    read="transformer#writing",
)
def decodes_one_too_few(next_scores, start, end, max_length):
    written = [start]
    while len(written) < max_length:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "one letter more than max_length is written",
    hint="""`written` begins with the start, which does not count. How long may it become?""",
    read="transformer#writing",
)
def decodes_one_too_many(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length + 1:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "the start is not handed to the model again after the first letter",
    hint="""The model has learned with the start in front of every word. Without it, all the letters stand one
    place too early.""",
    read="transformer#writing",
)
def decodes_without_start(next_scores, start, end, max_length):
    letters = []
    while len(letters) < max_length:
        letter = int(next_scores(letters or [start])[-1].argmax())
        if letter == end:
            break
        letters.append(letter)
    return letters


@greedy_decode.misconception(
    "the largest of all scores is looked for, in all the rows",
    hint="""`argmax()` without a row looks through the whole matrix, and counts on from row to row. Which row
    says what comes next?""",
    read="transformer#writing",
)
def decodes_from_all_rows(next_scores, start, end, max_length):
    written = [start]
    while len(written) <= max_length:
        letter = int(next_scores(written).argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "`max_length` is not looked at",
    hint="""A model that never finds an end would write for ever. When else is it to stop?""",
    read="transformer#writing",
)
def decodes_without_limit(next_scores, start, end, max_length):
    written = [start]
    while True:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written[1:]


@greedy_decode.misconception(
    "the first letter is written from nothing, without the start",
    hint="""The model must have something to look at when it writes its first letter. What is the start
    for?""",
    read="transformer#writing",
)
def decodes_from_nothing(next_scores, start, end, max_length):
    written = []
    while len(written) < max_length:
        letter = int(next_scores(written)[-1].argmax())
        if letter == end:
            break
        written.append(letter)
    return written


@greedy_decode.misconception(
    "only one letter is written: the function returns inside the loop",
    hint="""How often does your loop go round? How far is the `return` indented?""",
    read="transformer#writing",
)
def decodes_one_letter(next_scores, start, end, max_length):
    letter = int(next_scores([start])[-1].argmax())
    return [] if letter == end else [letter]
