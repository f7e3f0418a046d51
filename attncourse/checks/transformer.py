"""Tasks of the unit ``transformer``: the parts of a block, the block, the stack, and writing with it."""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.checks import laws
from attncourse.checks.draws import Draws
from attncourse.checks.laws import Inputs
from attncourse.checks.task import Case, Law, Normal, Task, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.masking import causal_mask
from attncourse.probe.masking import AskAboutLayer
from attncourse.probe.program import trace
from attncourse.probe.transformer import Block, DecoderBlock, Decoding, NextScores, Stack

NORMALISATION = "transformer#layer-normalisation"
THINK = "transformer#fetch-then-think"
RESIDUALS = "transformer#residuals"
BLOCK = "transformer#block-in-full"
PRE_AND_POST = "transformer#pre-and-post"
MEETING_PLACE = "transformer#only-meeting-place"
OPEN_BLOCK = "transformer#one-open-block"
STACK = "transformer#transformer-stack"
SIZES = "transformer#paper-sizes"
THREE_FORMS = "transformer#three-forms"
NEXT_LETTER = "transformer#next-letter"
IN_ORDER = "transformer#letters-in-order"
MAP = "transformer#sorting-map"
WRITING = "transformer#writing"


def _others_changed(name: str = "x") -> Callable[[Inputs, Normal], Inputs]:
    """Other positions than the first are changed."""

    def change(inputs: Inputs, normal: Normal) -> Inputs:
        x = inputs[name].clone()
        x[1:] += normal(*x[1:].shape)
        return {name: x}

    return change


def _first(value: Tensor) -> Tensor:
    return value[0]


# ---------------------------------------------------------------------------------------
# Layer normalisation
# ---------------------------------------------------------------------------------------


def _layer_norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gain, bias)


def _layer_norm_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str = "", scale: float = 1.0, **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        x = normal(*shape, dtype=dtype)
        # Not all nearly the same by chance, so that every formula for the variance gives it.
        x = x / (0.2 + x.std(-1, correction=0, keepdim=True)) + torch.tanh(
            normal(*shape[:-1], 1, dtype=dtype)
        )
        x = scale * x
        gain, bias = 1 + 0.5 * normal(shape[-1], dtype=dtype), normal(shape[-1], dtype=dtype)
        return Case({"x": x, "gain": gain, "bias": bias}, note, **how)

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


def _to_normalise(normal: Normal) -> Inputs:
    return {"x": 30 * normal(4, 4), "gain": torch.ones(4), "bias": torch.zeros(4)}


def _has_mean_zero(inputs: Inputs, value: Tensor) -> str | None:
    mean = value.mean(-1)
    return laws.is_not(mean, torch.zeros_like(mean), "in yours position {place} has the mean {yours}")


def _has_variance_one(inputs: Inputs, value: Tensor) -> str | None:
    variance = value.var(-1, correction=0)
    return laws.is_not(variance, torch.ones_like(variance), "in yours position {place} has {yours}")


def _is_bias(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, where the bias is {expected}"
    return laws.is_not(value, inputs["bias"].expand_as(value), words)


def _has_variance_half(inputs: Inputs, value: Tensor) -> str | None:
    variance = value.var(-1, correction=0)
    return laws.is_not(variance, torch.full_like(variance, 0.5), "in yours position {place} has {yours}")


layer_norm = Task(
    "layer_norm",
    _layer_norm,
    {
        "x": torch.tensor([[1.0, 1.0, 5.0, 5.0], [2.0, 8.0, 8.0, 2.0], [0.0, 0.0, 0.0, 4.0]]),
        "gain": torch.tensor([1.0, 2.0, 10.0, 1.0]),
        "bias": torch.tensor([100.0, 0.0, 0.0, 50.0]),
    },
    _layer_norm_cases,
    laws=[
        Law(
            "with a gain of 1 and a bias of 0 every position has the mean 0",
            NORMALISATION,
            _to_normalise,
            _has_mean_zero,
        ),
        Law(
            "with a gain of 1 and a bias of 0 every position has the variance 1",
            NORMALISATION,
            _to_normalise,
            _has_variance_one,
        ),
        laws.stays(
            "what becomes of a position does not depend on the other positions",
            NORMALISATION,
            _to_normalise,
            _others_changed(),
            _first,
        ),
        laws.stays(
            "adding the same number to all features of a position changes nothing",
            NORMALISATION,
            _to_normalise,
            lambda inputs, normal: {"x": inputs["x"] + 10},
        ),
        Law(
            "with a gain of 0 every position becomes the bias",
            NORMALISATION,
            lambda normal: {"x": normal(3, 4), "gain": torch.zeros(4), "bias": normal(4)},
            _is_bias,
        ),
        Law(
            "a variance as large as the small number under the root comes out as 1/2",
            NORMALISATION,
            lambda normal: _to_normalise(normal) | {"x": torch.tensor([[1.0, -1, 1, -1]]) * 1e-5**0.5},
            _has_variance_half,
        ),
        Law(
            "a position whose features are all equal becomes the bias",
            NORMALISATION,
            lambda normal: {"x": torch.ones(3, 4), "gain": 2 * torch.ones(4), "bias": normal(4)},
            _is_bias,
        ),
    ],
    refuses=(
        "layer_norm",
        "group_norm",
        "native_layer_norm",
        "native_group_norm",
        "instance_norm",
        "batch_norm",
        "native_batch_norm",
        "rms_norm",
        "local_response_norm",
        "CrossMapLRN2d",
    ),
)


@layer_norm.made_of(
    over=wrongs(
        NORMALISATION,
        """
        positions: mean and variance run over the positions instead of the features
            Each position is to be normalised by itself. Otherwise a later position changes what an earlier
            one becomes, and a decoder sees the future. Over which dimension must the mean be taken?
        sequence: one mean and one variance for the whole sequence
            Then the positions meet in the normalisation. Each position has a mean and a variance of its own:
            how many of them are there?
        everything: one mean and one variance for everything, the sequences of a batch included
            Then all positions meet in the normalisation, and even different sequences. Each position has a
            mean and a variance of its own: how many of them are there?
        first: mean and variance run over the first dimension
            Without a batch, the first dimension is that of the positions; with one, it counts the sequences.
            It is the features of one position that are to be normalised. Count from the back.
        dim 1: mean and variance run over dimension 1, which is the features only without a batch
            Dimensions counted from the front move when a batch is added. Count from the back.
        """,
    ),
    spread=wrongs(
        NORMALISATION,
        """
        sample: the variance is divided by D - 1
            That is how one estimates the variance of a population from a sample, and it is the default of
            `var` and `std`. Here the features are all there are: divide by their number.
        variance: the features are divided by the variance, without the root
            What is the variance of your result, before gain and bias? When all numbers are ten times as
            large, the variance is a hundred times as large.
        sum: the squares are added up, and not averaged
            The variance is the *mean* of the squared distances. With twice as many features, of the same
            size, should the result become smaller?
        around zero: the mean is subtracted, but the squares are those of the features as they were
            The variance is measured around the mean: which numbers must be squared?
        mean square: the root of the mean square, without subtracting the mean
            That is another normalisation, which many recent models use. Here the mean goes first, and the
            variance is measured around it.
        distance: the features are divided by their mean distance from the mean
            The variance is the mean of *squared* distances, and it is the root of that which divides.
        none: the mean is subtracted, and nothing is divided
            Two things are brought to a standard: where the middle of the numbers lies, and how large they
            are.
        """,
    ),
    epsilon=wrongs(
        NORMALISATION,
        """
        none: the small number under the root is missing
            What becomes of a position whose features are all the same? Its variance is 0.
        outside: the small number is added to the root, instead of under it
            For large variances there is no difference. But where the variance is tiny, the root of 0.00001 is
            0.003, which is much more than 0.00001.
        other: the small number under the root is not the one asked for
            Which number is to be added to the variance? For features that hardly differ it shows.
        """,
    ),
    mean=wrongs(
        NORMALISATION,
        """
        kept: the mean is not subtracted
            Two things are brought to a standard: how large the numbers are, and where their middle lies.
        added: the mean is added instead of subtracted
            What is the mean of your result, before gain and bias?
        no brackets: the brackets around the difference from the mean are missing
            Python divides before it subtracts. What does your line divide: the difference, or only the mean?
        lost: the mean has lost its dimension
            A mean over the last dimension has one dimension fewer, so what was the positions is taken for the
            features. How do you keep the dimension?
        """,
    ),
    learned=wrongs(
        NORMALISATION,
        """
        none: gain and bias are not used
            The normalised features have mean 0 and variance 1. The two learned vectors let the network change
            that where it needs to. Which of your arguments do you not read?
        exchanged: gain and bias are exchanged
            One of them multiplies, the other is added. Which is which?
        bias first: the bias is added before the gain multiplies
            A feature that is normalised to 0 is to become just its bias. What does it become in yours?
        no gain: the gain is not used
            Which of your arguments do you not read?
        no bias: the bias is not used
            Which of your arguments do you not read?
        bias subtracted: the bias is subtracted
            A bias is added, whatever its sign.
        gain divides: the features are divided by the gain
            A gain of 2 is to make a feature larger.
        gain and one: 1 is added to the gain
            Some models learn how far the gain is from 1. Here it is the factor itself that you are handed.
        """,
    ),
)
def any_norm(
    x, gain, bias, *, over="features", spread="deviation", epsilon="under", mean="subtracted", learned=""
):
    dims = {"positions": (-2,), "sequence": (-2, -1), "first": (0,), "dim 1": (1,)}.get(over, (-1,))
    dims = tuple(range(x.dim())) if over == "everything" else dims
    middle = x.mean(dims, keepdim=mean != "lost")
    centred = {"kept": x, "added": x + middle}.get(mean, x - middle)
    variance = x.var(dims, keepdim=mean != "lost", correction=int(spread == "sample"))
    squared = {"sum": (x - middle) ** 2, "around zero": x**2, "mean square": x**2}
    if spread in squared:
        variance = squared[spread].mean(dims, keepdim=True) * (x.shape[-1] if spread == "sum" else 1)
    if spread == "mean square":
        centred = x
    if spread == "distance":
        variance = (x - middle).abs().mean(dims, keepdim=True) ** 2
    small = {"none": 0, "other": 1e-3}.get(epsilon, 1e-5)
    below = torch.sqrt(variance) + small if epsilon == "outside" else torch.sqrt(variance + small)
    if spread == "variance":
        below = variance + small
    if spread == "none":
        below = 1
    result = x - middle / below if mean == "no brackets" else centred / below
    match learned:
        case "none":
            return result
        case "exchanged":
            return result * bias + gain
        case "bias first":
            return (result + bias) * gain
        case "no gain":
            return result + bias
        case "no bias":
            return result * gain
        case "bias subtracted":
            return result * gain - bias
        case "gain divides":
            return result / gain + bias
        case "gain and one":
            return result * (1 + gain) + bias
    return result * gain + bias


# ---------------------------------------------------------------------------------------
# The MLP
# ---------------------------------------------------------------------------------------


def _mlp(x: Tensor, W_1: Tensor, b_1: Tensor, W_2: Tensor, b_2: Tensor) -> Tensor:
    return torch.relu(x @ W_1.mT + b_1) @ W_2.mT + b_2


def _mlp_inputs(normal: Normal, *shape: int, hidden: int, dtype: torch.dtype = torch.float32) -> Inputs:
    dim = shape[-1]
    return {
        "x": normal(*shape, dtype=dtype),
        "W_1": normal(hidden, dim, dtype=dtype),
        "b_1": normal(hidden, dtype=dtype),
        "W_2": normal(dim, hidden, dtype=dtype),
        "b_2": normal(dim, dtype=dtype),
    }


def _mlp_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, hidden: int, note: str = "", contiguous: bool = True, **how: Any) -> Case:
        return Case(_mlp_inputs(normal, *shape, hidden=hidden, **how), note, contiguous)

    return [
        case(3, 4, hidden=8),
        case(4, 4, hidden=4, note="everything square"),
        case(2, 3, 5, hidden=7, note="a batch"),
        case(1, 2, 3, 4, hidden=6, note="two batch dimensions, in double precision", dtype=torch.float64),
        case(1, 3, hidden=5, note="one position"),
        case(4, 3, hidden=6, note="an input that is not contiguous", contiguous=False),
    ]


def _small_mlp(**instead: Tensor) -> laws.Draw:
    return lambda normal: _mlp_inputs(normal, 4, 4, hidden=4) | instead


def _is_second_bias(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, where b_2 has {expected}"
    return laws.is_not(value, inputs["b_2"].expand_as(value), words)


mlp = Task(
    "mlp",
    _mlp,
    {
        "x": torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 1.0]]),
        "W_1": torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]),
        "b_1": torch.tensor([1.0, -1.0, 0.0]),
        "W_2": torch.tensor([[1.0, 0.0, 2.0], [0.0, -10.0, 1.0]]),
        "b_2": torch.tensor([100.0, 200.0]),
    },
    _mlp_cases,
    laws=[
        Law(
            "with W_2 of zeros every output is b_2", THINK, _small_mlp(W_2=torch.zeros(4, 4)), _is_second_bias
        ),
        laws.stays(
            "what becomes of a position does not depend on the other positions",
            MEETING_PLACE,
            _small_mlp(),
            _others_changed(),
            _first,
        ),
        Law(
            "where b_1 is far below 0 no hidden feature switches on, and only b_2 is left",
            THINK,
            _small_mlp(b_1=-1000 * torch.ones(4)),
            _is_second_bias,
        ),
        laws.vanishes(
            "with W_1 and b_2 of zeros and a negative b_1 every output is zero",
            THINK,
            _small_mlp(W_1=torch.zeros(4, 4), b_2=torch.zeros(4), b_1=-torch.ones(4)),
        ),
        laws.stays(
            "a hidden feature whose column of W_2 is zeros plays no part",
            THINK,
            lambda normal: (drawn := _small_mlp()(normal)) | {"W_2": drawn["W_2"] * torch.eye(4)[0]},
            lambda inputs, normal: {"b_1": inputs["b_1"] + torch.tensor([0.0, 5.0, 5.0, 5.0])},
        ),
        laws.stays(
            "doubling W_1 and b_1 and halving W_2 changes nothing",
            THINK,
            _small_mlp(),
            lambda inputs, normal: {
                "W_1": 2 * inputs["W_1"],
                "b_1": 2 * inputs["b_1"],
                "W_2": inputs["W_2"] / 2,
            },
        ),
    ],
)


@mlp.made_of(
    bend=wrongs(
        THINK,
        """
        none: the ReLU is missing
            Two matrices, one after the other, are one matrix. What stands between them, so that they can do
            more than that?
        last: the ReLU stands at the end
            In yours the output is never negative, so a block could only ever add to its input. Where does the
            formula have it?
        both: there is a second ReLU, at the end
            What a step adds to its input may be negative. After how many of the two matrices does the formula
            have a ReLU?
        first: the ReLU stands before the first matrix
            Applied to the input, the ReLU throws away all features that are negative, and the two matrices
            behind it are one. Which numbers is it to bend?
        gelu: there is a GELU in place of the ReLU
            Many models have this smooth relative of the ReLU. Asked for is the one with the corner.
        sigmoid: there is a sigmoid in place of the ReLU
            A ReLU leaves positive numbers as they are, however large.
        tanh: there is a hyperbolic tangent in place of the ReLU
            A ReLU leaves positive numbers as they are, however large.
        leaky: negative numbers are made smaller instead of 0
            A ReLU lets nothing of a negative number through.
        absolute: there is an absolute value in place of the ReLU
            Where a hidden sum is negative, the feature is to be off, not on.
        turned: the ReLU keeps the negative numbers instead of the positive ones
            A hidden feature is on where its sum is above 0.
        """,
    ),
    first_bias=wrongs(
        THINK,
        """
        missing: the first bias is missing
            Which of your arguments do you not read? Without it, a hidden feature can only switch on where the
            weighted sum passes 0.
        after: the first bias is added after the ReLU
            The bias decides where the ReLU switches on. So on which side of it must the bias be added?
        subtracted: the first bias is subtracted
            A bias is added, whatever its sign.
        """,
    ),
    second_bias=wrongs(
        THINK,
        """
        missing: the second bias is missing
            Which of your arguments do you not read?
        subtracted: the second bias is subtracted
            A bias is added, whatever its sign.
        """,
    ),
    side=wrongs(
        THINK,
        """
        left: the matrices stand on the left, so they mix positions instead of features
            Rows of `x` are positions, columns are features. In `W @ x` each row of the product is a mixture
            of rows of `x`: positions meet. On which side must the matrix stand?
            (transformer#only-meeting-place)
        left and transposed: the matrices stand on the left, transposed
            Rows of `x` are positions, columns are features. In `W.mT @ x` each row of the product is a
            mixture of rows of `x`: positions meet. On which side must the matrix stand?
            (transformer#only-meeting-place)
        not transposed: the matrices are used as they are stored, with outputs in rows
            In the chapter's formula a matrix has a row for each *input*. These have a row for each output.
            Write the two shapes beside each other: which dimension must disappear in the product?
        """,
    ),
    gets=wrongs(
        MEETING_PLACE,
        """
        mean: the positions are averaged, so all of them get the same
            The MLP looks at one position and at no other. The result must have a row of its own for each row
            of `x`.
        """,
    ),
    adds=wrongs(
        RESIDUALS,
        """
        input: the input is added to the result
            That sum belongs to the block, which adds to its input what the MLP returns. Here only the MLP
            itself is asked for.
        """,
    ),
)
def any_mlp(
    x,
    W_1,
    b_1,
    W_2,
    b_2,
    *,
    bend="hidden",
    first_bias="",
    second_bias="",
    side="right",
    gets="x",
    adds="nothing",
):
    def times(y, W):
        ways = {
            "left": lambda: W @ y,
            "left and transposed": lambda: W.mT @ y,
            "not transposed": lambda: y @ W,
        }
        return ways.get(side, lambda: y @ W.mT)()

    other = {
        "none": lambda y: y,
        "last": lambda y: y,
        "first": lambda y: y,
        "gelu": torch.nn.functional.gelu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "leaky": torch.nn.functional.leaky_relu,
        "absolute": torch.abs,
        "turned": lambda y: y.clamp(max=0),
    }
    start = x.mean(-2, keepdim=True).expand_as(x) if gets == "mean" else x
    hidden = times(torch.relu(start) if bend == "first" else start, W_1)
    hidden = {"missing": hidden, "after": hidden, "subtracted": hidden - b_1}.get(first_bias, hidden + b_1)
    hidden = other.get(bend, torch.relu)(hidden)
    result = times(hidden + b_1 if first_bias == "after" else hidden, W_2)
    result = {"missing": result, "subtracted": result - b_2}.get(second_bias, result + b_2)
    if bend in ("last", "both"):
        result = torch.relu(result)
    return x + result if adds == "input" else result


# ---------------------------------------------------------------------------------------
# The block
# ---------------------------------------------------------------------------------------


def _weights(normal: Normal, number: int, dim: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return 1.5 * dim**-0.5 * normal(number, dim, dim, dtype=dtype)


def _transformer_block(
    x: Tensor, attend: Callable, mlp: Callable, norm_1: Callable, norm_2: Callable, norm: str
) -> Tensor:
    if norm == "pre":
        z = x + attend(norm_1(x))
        return z + mlp(norm_2(z))
    z = norm_1(x + attend(x))
    return norm_2(z + mlp(z))


def _block_inputs(normal: Normal, *shape: int, norm: str, dtype: torch.dtype = torch.float32) -> Inputs:
    dim = shape[-1]
    return {
        "x": 2 * normal(*shape, dtype=dtype),
        "W": _weights(normal, 5, dim, dtype),
        "gains": 1 + 0.5 * normal(2, dim, dtype=dtype),
        "norm": norm,
    }


def _block_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    double = torch.float64
    return [
        Case(_block_inputs(normal, 3, 4, norm="pre"), "before the step"),
        Case(_block_inputs(normal, 3, 4, norm="post"), "after the sum"),
        Case(_block_inputs(normal, 2, 3, 5, norm="pre"), "a batch"),
        Case(_block_inputs(normal, 1, 4, norm="pre"), "one position"),
        Case(_block_inputs(normal, 2, 2, 6, norm="post"), "a batch"),
        Case(_block_inputs(normal, 2, 3, 2, 4, norm="pre", dtype=double), "two batch dimensions"),
        Case(_block_inputs(normal, 4, 4, norm="post", dtype=double), "as many positions as features"),
    ]


def _silent(draw: laws.Draw, *parts: int, name: str = "W") -> laws.Draw:
    """With zeros for some of the matrices, or gains."""

    def inputs(normal: Normal) -> Inputs:
        drawn = draw(normal)
        drawn[name][list(parts)] = 0
        return drawn

    return inputs


def _small_block(norm: str) -> laws.Draw:
    return lambda normal: _block_inputs(normal, 3, 4, norm=norm)


def _is_input(inputs: Inputs, value: Tensor) -> str | None:
    return laws.is_not(value, inputs["x"], "yours gives {yours} at {place}, where x has {expected}")


def _is_normalised(gain: Callable[[Inputs], Tensor]) -> Callable[[Inputs, Tensor], str | None]:
    def broken(inputs: Inputs, value: Tensor) -> str | None:
        # As the normalisation does it that is handed over.
        before = value / gain(inputs)
        mean, size = before.mean(-1), before.abs().mean(-1)
        words = "divided by the gain, position {place} of yours has the"
        return laws.is_not(mean, torch.zeros_like(mean), words + " mean {yours}, and 0 is right") or (
            laws.is_not(size, torch.ones_like(size), words + " mean size {yours}, and 1 is right")
        )

    return broken


def _doubled(draw: laws.Draw, part: int) -> Callable[[Normal], list[Inputs]]:
    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        factors = torch.ones(len(drawn["W"]), 1, 1)
        factors[part] = 2
        return [drawn, drawn | {"W": factors * drawn["W"]}]

    return inputs


def _adds_twice(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    once, twice = (value - inputs[0]["x"] for value in values)
    return laws.is_not(
        twice, 2 * once, "at {place} yours adds {yours}, and twice what it added before is {expected}"
    )


def _rotation(number: int) -> Tensor:
    return torch.tensor([[[1.0, 0.0], [0.0, 1.0]], [[0.0, 2.0], [1.0, 0.0]], [[1.0, 1.0], [0.0, 2.0]]])[
        number
    ]


# Attention whose queries are zero takes the plain mean: so it can be done on paper.
PENCIL_ATTENTION = [torch.zeros(2, 2), _rotation(0)]

transformer_block = Task(
    "transformer_block",
    _transformer_block,
    {
        "x": torch.tensor([[5.0, 1.0], [2.0, 4.0], [8.0, 2.0]]),
        "W": torch.stack([*PENCIL_ATTENTION, _rotation(1), _rotation(2), _rotation(1)]),
        "gains": torch.tensor([[1.0, 2.0], [3.0, 1.0]]),
        "norm": "pre",
    },
    _block_cases,
    laws=[
        Law(
            "a pre-norm block whose two steps return zeros returns its input",
            RESIDUALS,
            _silent(_small_block("pre"), 2, 4),
            _is_input,
        ),
        Law(
            "in a post-norm block every position comes out normalised, with the gain of norm_2",
            PRE_AND_POST,
            _small_block("post"),
            _is_normalised(lambda inputs: inputs["gains"][1]),
        ),
        laws.stays(
            "if the attention returns zeros, no position depends on another",
            MEETING_PLACE,
            _silent(_small_block("pre"), 2),
            _others_changed(),
            _first,
        ),
        Law(
            "if the MLP returns zeros, an attention with twice the values adds twice as much to x",
            PRE_AND_POST,
            _doubled(_silent(_small_block("pre"), 4), 2),
            _adds_twice,
        ),
        Law(
            "in a pre-norm block whose attention returns zeros, an MLP with twice W_2 adds twice as much",
            PRE_AND_POST,
            _doubled(_silent(_small_block("pre"), 2), 4),
            _adds_twice,
        ),
        laws.stays(
            "in a pre-norm block whose norm_1 returns zeros no position depends on another",
            PRE_AND_POST,
            _silent(_small_block("pre"), 0, name="gains"),
            _others_changed(),
            _first,
        ),
        laws.stays(
            "in a pre-norm block whose norm_2 returns zeros W_1 plays no part",
            PRE_AND_POST,
            _silent(_small_block("pre"), 1, name="gains"),
            lambda inputs, normal: {"W": torch.cat([inputs["W"][:3], 2 * inputs["W"][3:4], inputs["W"][4:]])},
        ),
    ],
    way=Block(),
)

# Mistakes that every block with residuals can make.
SUMS = wrongs(
    RESIDUALS,
    """
    none: there are no residuals: what a step finds replaces its input
        A step is to add to what is there, so that nothing known is lost. If the step finds nothing, what
        should come out?
    not the first: the residual around the self-attention is missing
        The other steps add to their input. The first one is to do so, too: otherwise a position forgets
        itself.
    not the last: the residual around the MLP is missing
        Each step adds to what is there. What does your last line return?
    to the copy: in a pre-norm block, the step is added to the normalised input
        The sum is to carry the input itself, as it came. Only the step gets a normalised copy. Is your `x`
        still the old one when you add to it? (transformer#pre-and-post)
    from x: a later sum adds to the block's input, so that what the attention has added is lost
        The step sees what the attention has brought. But what do you add its result to?
    """,
)


@transformer_block.made_of(
    where=wrongs(
        PRE_AND_POST,
        """
        exchanged: pre and post are exchanged
            In a pre-norm block the normalisation comes before the step, and what goes along the sum is never
            normalised. In which of your two branches is that so?
        pre: the block is always pre-norm
            With "pre" it is right. Where does your function look at its last argument?
        post: the block is always post-norm
            With "post" it is right. Where does your function look at its last argument?
        none: nothing is normalised
            You are handed two normalisations. Where in the block do they belong, for each of the two words?
        both: the normalisation stands in both places, before the step and after the sum
            It is one or the other: before the step with "pre", after the sum with "post".
        behind: what the step returns is normalised, instead of its input or the sum
            There are three places beside a step: before it, after it but before the sum, and after the sum.
            Pre-norm is the first of these, post-norm the last, and the second is neither.
        post behind: in a post-norm block, what the step returns is normalised before the sum
            Post-norm normalises what leaves the sum, so that the next step, and the next sum, get normalised
            numbers.
        pre behind: in a pre-norm block, what the step returns is normalised
            There are three places beside a step: before it, after it but before the sum, and after the sum.
            Which of them is meant by "pre"?
        """,
    ),
    bare=wrongs(
        PRE_AND_POST,
        """
        pre 1: in a pre-norm block, the attention gets what has not been normalised
            The MLP gets a normalised copy. What about the first step?
        pre 2: in a pre-norm block, the MLP gets what has not been normalised
            The attention gets a normalised copy. What about the second step?
        post 1: in a post-norm block, only the second sum is normalised
            There is a sum after each step, so there are two. Which of your arguments does that branch not
            use?
        post 2: in a post-norm block, only the first sum is normalised
            There is a sum after each step, so there are two. Which of your arguments does that branch not
            use?
        """,
    ),
    sums={
        **SUMS,
        **wrongs(
            RESIDUALS,
            """
            one: there is one sum around both steps, instead of one around each
                Draw the straight line from the input to the output. How many plus signs stand on it?
            """,
        ),
    },
    norms=wrongs(
        BLOCK,
        """
        one: the first normalisation is used for both steps
            Each step has a normalisation of its own, with a gain of its own. Do you use all of your
            arguments?
        second: the second normalisation is used for both steps
            Each step has a normalisation of its own, with a gain of its own. Do you use all of your
            arguments?
        exchanged: the two normalisations are exchanged
            Each has learned its gain for one step: `norm_1` for the attention, `norm_2` for the MLP.
        """,
    ),
    steps=wrongs(
        BLOCK,
        """
        mlp first: the MLP comes first, and then the attention
            First fetch, then think. Which step stands first in the formulas?
        no mlp: the MLP is missing
            The block has fetched, and has not thought yet. Which of your arguments do you not use?
        no attention: the attention is missing
            The block thinks, and has fetched nothing. Which of your arguments do you not use?
        parallel: the MLP works on the block's input, beside the attention instead of after it
            The MLP is to work on what the attention has brought. In yours it does not know of it.
        old copy: in a pre-norm block, the MLP gets the normalised copy from before the attention
            What the attention has brought is not in that copy. Of which numbers must the second normalisation
            be taken?
        """,
    ),
)
def any_block(x, attend, mlp, norm_1, norm_2, norm, *, where="right", bare="", sums="", norms="", steps=""):
    def nothing(y):
        return y

    norm_1, norm_2 = {"one": (norm_1, norm_1), "second": (norm_2, norm_2), "exchanged": (norm_2, norm_1)}.get(
        norms, (norm_1, norm_2)
    )
    if steps == "mlp first":
        attend, mlp = mlp, attend
    kind = {"pre": "post", "post": "pre"}[norm] if where == "exchanged" else norm
    kind = where if where in ("pre", "post") else kind
    own = [nothing if bare == f"{kind} {number}" else n for number, n in ((1, norm_1), (2, norm_2))]
    no = [nothing, nothing]
    behind = where in ("behind", f"{kind} behind")
    before = own if where == "both" or (kind == "pre" and where != "none" and not behind) else no
    after = own if where == "both" or (kind == "post" and where != "none" and not behind) else no
    inside = own if behind else no

    copy = before[0](x)
    found = inside[0](attend(copy))
    alone = sums in ("none", "not the first", "one")
    z = after[0](found if alone else found + (copy if sums == "to the copy" else x))
    if steps == "no mlp":
        return z
    if steps == "no attention":
        z = x
    other = copy if steps == "old copy" and kind == "pre" else before[1](x if steps == "parallel" else z)
    thought = inside[1](mlp(other))
    carried = {"to the copy": other if kind == "pre" else z, "from x": x, "one": x}.get(sums, z)
    return after[1](thought if sums in ("none", "not the last") else carried + thought)


# ---------------------------------------------------------------------------------------
# Where the normalisation of an unseen block is
# ---------------------------------------------------------------------------------------

DESIGNS = ("pre", "post", "inside", "overwritten")


def _standard(x: Tensor) -> Tensor:
    """Brought to mean 0 and variance 1; so precisely that any tolerance will do."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-12) ** 0.5


def _designed(design: str, step: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """One step with its residual and a normalisation, in one of `DESIGNS`."""
    return {
        "pre": lambda x: x + step(_standard(x)),
        "post": lambda x: _standard(x + step(x)),
        "inside": lambda x: x + _standard(step(x)),
        "overwritten": lambda x: _standard(x) + step(_standard(x)),
    }[design]


def _some_steps(normal: Normal, dim: int) -> dict[str, Callable[[Tensor], Tensor]]:
    # So many hidden features that at no position all of them are off: zeros cannot be normalised.
    W_1, W_2 = normal(dim, 4 * dim, dtype=torch.float64), normal(4 * dim, dim, dtype=torch.float64)
    bias = 2 * normal(4 * dim, dtype=torch.float64)
    return {
        "an MLP": lambda x: torch.relu(x @ W_1 + bias) @ W_2,
        "an MLP without biases": lambda x: torch.relu(x @ W_1) @ W_2,
        "an MLP whose outputs have the mean 0": lambda x: (
            torch.relu(x @ W_1 + bias) @ (W_2 - W_2.mean(-1, keepdim=True))
        ),
        "an MLP whose outputs are normalised over the positions": lambda x: (
            _standard((torch.relu(x @ W_1 + bias) @ W_2).mT).mT
        ),
        "an MLP whose outputs have the variance 1": lambda x: (
            _standard(torch.relu(x @ W_1 + bias) @ W_2) + 0.5
        ),
        "an attention": lambda x: torch.softmax(x @ W_1[:, :dim] @ x.mT, -1) @ x @ W_2[:dim],
    }


def _which_norm(layer: Callable, x: Tensor) -> str:
    y = layer(x)
    if torch.allclose(_standard(y), y, atol=1e-6):
        return "post"
    if torch.allclose(_standard(y - x), y - x, atol=1e-6):
        return "inside"
    return "overwritten" if torch.allclose(layer(10 * x), y, atol=1e-6) else "pre"


# Each design with an MLP, and with a step by which it is told from the others less easily.
_STEPS = {
    **{f"{design} 1": "an MLP" for design in DESIGNS},
    "pre 2": "an MLP whose outputs have the mean 0",
    "pre 3": "an MLP whose outputs are normalised over the positions",
    "pre 4": "an MLP whose outputs have the variance 1",
    "post 2": "an attention",
    "post 3": "an MLP without biases",
    "inside 2": "an MLP without biases",
    "overwritten 2": "an attention",
}


def _which_norm_cases(seed: int) -> list[Case]:
    normal, listed = normal_source(seed), []
    for name in in_any_order(_STEPS, seed):
        layer = trace(_designed(name.partition(" ")[0], _some_steps(normal, 6)[_STEPS[name]]))
        x = 2 * normal(4, 6, dtype=torch.float64)
        listed.append(Case({"layer": layer, "x": x}, f"the step is {_STEPS[name]}"))
    return listed


def _design_law(sentence: str, design: str, step: str) -> Law:
    def inputs(normal: Normal) -> Inputs:
        layer = trace(_designed(design, _some_steps(normal, 6)[step]))
        return {"layer": layer, "x": 2 * normal(4, 6, dtype=torch.float64)}

    return Law(sentence, PRE_AND_POST, inputs, laws.says(design))


which_norm = Task(
    "which_norm",
    _which_norm,
    {
        "layer": trace(lambda x: _standard(x + 2 * x.flip(-1))),
        "x": torch.tensor([[1.0, 3.0], [2.0, 6.0], [5.0, 1.0]], dtype=torch.float64),
    },
    _which_norm_cases,
    laws=[
        _design_law("a block whose every output has mean 0 and variance 1 is post-norm", "post", "an MLP"),
        _design_law(
            "a block that adds something of mean 0 and variance 1 to every input normalises what it adds",
            "inside",
            "an MLP",
        ),
        _design_law(
            "a block that gives the same for an input ten times as large, and whose output is not "
            "normalised, has overwritten its input",
            "overwritten",
            "an MLP",
        ),
        _design_law(
            "a block that adds the same to an input ten times as large, but nothing normalised, is pre-norm",
            "pre",
            "an MLP",
        ),
    ],
    way=AskAboutLayer(),
)


@which_norm.made_of(
    tried=wrongs(
        PRE_AND_POST,
        """
        once: it is not noticed that a block has lost its input
            In `norm(x) + f(norm(x))` the size of x is lost. With which second input can you see that, and
            what would come out?
        output: only the output is looked at: a block that does not normalise it is called pre-norm
            There are four designs, and three of them do not normalise their output. What can you do with the
            output and the input together?
        larger first: what does not depend on the size of x is called overwritten, even if it is normalised
            Around a step that gives ten times as much for ten times the input, a post-norm block gives the
            same for both as well. In which order do you ask?
        difference: what is added to the input is not looked at
            Post-norm shows in the output, and an overwritten input in a second call. For a third design,
            take the input away from the output: is what is left normalised?
        size: whether something normalised is added is told from a larger input
            An MLP without biases gives ten times as much for ten times the input, and its normalised output
            is the same. Ask what has been added itself: is it normalised?
        """,
    ),
    normalised=wrongs(
        NORMALISATION,
        """
        mean: what has the mean 0 is taken for normalised
            What a step returns may have the mean 0 by itself. What else does a normalisation bring about?
        positions: it is over the positions that mean and variance are taken
            Each position is normalised by itself, so mean and variance run over its features. Which dimension
            is that?
        corrected: the variance is divided by one less than the number of features
            That is what `var` and `std` do if nothing else is said. A normalisation divides by all of them.
            (transformer#layer-normalisation)
        exactly: numbers are compared without any tolerance
            A mean of 0.0000000001 is 0 but for rounding. `torch.allclose` compares with a tolerance.
        """,
    ),
    named=wrongs(
        PRE_AND_POST,
        """
        exchanged: pre and post are exchanged
            Post-norm: after the sum, so what leaves the block is normalised.
        inside as post: a block that normalises what the step returns is called post-norm
            There are three places beside a step: before it, after it but before the sum, and after the sum.
        overwritten as post: a block that has overwritten its input is called post-norm
            There the *input* has been normalised, before the sum. Is what leaves it normalised?
        always pre: every block is called pre-norm
            Some of the blocks are not. What is true of the output of a post-norm block, whatever comes in?
        always post: every block is called post-norm
            What is true of the output of a post-norm block, whatever comes in? Is it true of all of these?
        """,
    ),
)
def any_tell(layer, x, *, tried="twice", normalised="features", named="right"):
    def is_normalised(y):
        dim = -2 if normalised == "positions" else -1
        mean, variance = y.mean(dim), y.var(dim, correction=int(normalised == "corrected"))
        if normalised == "exactly":
            return bool((mean == 0).all() and (variance == 1).all())
        of_mean = torch.allclose(mean, torch.zeros_like(mean), atol=1e-4)
        return of_mean and (
            normalised == "mean" or torch.allclose(variance, torch.ones_like(variance), atol=1e-3)
        )

    y, larger = layer(x), layer(10 * x)
    adds_the_same = torch.allclose(larger - 10 * x, y - x, atol=1e-4)
    inside = not adds_the_same if tried == "size" else is_normalised(y - x)
    if tried == "larger first" and torch.allclose(larger, y, atol=1e-4):
        design = "overwritten"
    elif is_normalised(y):
        design = "post"
    elif tried == "output":
        design = "pre"
    elif tried == "size" and torch.allclose(larger, y, atol=1e-4):
        design = "overwritten"
    elif inside and tried != "difference":
        design = "inside"
    elif tried != "once" and torch.allclose(larger, y, atol=1e-4):
        design = "overwritten"
    else:
        design = "pre"
    match named:
        case "exchanged":
            return {"pre": "post", "post": "pre"}.get(design, design)
        case "inside as post":
            return "post" if design == "inside" else design
        case "overwritten as post":
            return "post" if design == "overwritten" else design
        case "always pre" | "always post":
            return named.rpartition(" ")[2]
    return design


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


def _decoder_block_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*sizes: Any, note: str) -> Case:
        return Case(_decoder_inputs(normal, *sizes), note)

    return [
        case((), 3, 5, 4, note="a memory that is longer"),
        case((), 4, 4, 6, note="sequences of one length"),
        case((2,), 4, 3, 5, note="a batch"),
        case((), 1, 3, 4, note="the first position alone"),
        case((3,), 3, 3, 3, torch.float64, note="everything square"),
        case((2, 3), 2, 4, 3, torch.float64, note="two batch dimensions"),
    ]


def _decoder_inputs(
    normal: Normal, batch: tuple[int, ...], target: int, source: int, dim: int, dtype: Any = torch.float32
) -> Inputs:
    return {
        "x": 2 * normal(*batch, target, dim, dtype=dtype),
        "memory": 2 * normal(*batch, source, dim, dtype=dtype),
        "W": _weights(normal, 8, dim, dtype),
        "gains": 1 + 0.5 * normal(3, dim, dtype=dtype),
    }


def _small_decoder(normal: Normal) -> Inputs:
    return _decoder_inputs(normal, (), 3, 3, 4)


def _last_changed(name: str) -> Callable[[Inputs, Normal], Inputs]:
    def change(inputs: Inputs, normal: Normal) -> Inputs:
        x = inputs[name].clone()
        x[-1] += normal(x.shape[-1])
        return {name: x}

    return change


def _before_the_last(value: Tensor) -> Tensor:
    return value[:-1]


def _last_of_memory_seen(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    same = torch.allclose(values[0][0], values[1][0], atol=1e-6)
    return "the first output of yours stays as it was" if same else None


def _louder_memory(inputs: Inputs, normal: Normal) -> Inputs:
    W = inputs["W"].clone()
    W[4:6] /= 2
    return {"memory": 2 * inputs["memory"], "W": W}


NO_FUTURE = "changing the last position changes no earlier output"

decoder_block = Task(
    "decoder_block",
    _decoder_block,
    {
        "x": torch.tensor([[5.0, 1.0], [2.0, 4.0]]),
        "memory": torch.tensor([[1.0, 0.0], [0.0, 5.0], [2.0, 1.0]]),
        "W": torch.stack(
            [*PENCIL_ATTENTION, _rotation(1), *PENCIL_ATTENTION, _rotation(2), _rotation(2), _rotation(1)]
        ),
        "gains": torch.tensor([[1.0, 2.0], [3.0, 1.0], [1.0, 1.0]]),
    },
    _decoder_block_cases,
    laws=[
        Law(
            "a pre-norm block whose steps return zeros returns its input",
            RESIDUALS,
            _silent(_small_decoder, 2, 5, 7),
            _is_input,
        ),
        laws.stays(NO_FUTURE, THREE_FORMS, _small_decoder, _last_changed("x"), _before_the_last),
        Law(
            "changing the last position of memory changes the first output, too",
            THREE_FORMS,
            lambda normal: [
                drawn := _small_decoder(normal),
                drawn | {"memory": torch.cat([drawn["memory"][:-1], 9 + normal(1, 4)])},
            ],
            _last_of_memory_seen,
        ),
        laws.stays(
            "the positions of memory may come in any order",
            THREE_FORMS,
            _small_decoder,
            lambda inputs, normal: {"memory": inputs["memory"].flip(-2)},
        ),
        laws.stays(
            "a memory twice as large, looked at with keys and values half as large, changes nothing",
            THREE_FORMS,
            _small_decoder,
            _louder_memory,
        ),
        Law(
            "if both attentions return zeros, an MLP with twice W_2 adds twice as much",
            PRE_AND_POST,
            _doubled(_silent(_small_decoder, 2, 5), 7),
            _adds_twice,
        ),
        Law(
            "if the other two steps return zeros, a cross-attention with twice the values adds twice as much",
            PRE_AND_POST,
            _doubled(_silent(_small_decoder, 2, 7), 5),
            _adds_twice,
        ),
    ],
    way=DecoderBlock(),
    allows=("causal_mask",),
)

# The ways of making a causal mask wrong, in every task that needs one.
MASK = wrongs(
    "masking#masking-patterns",
    """
    future: the mask is turned round: each position sees itself and what comes after
        Rows are queries and columns are keys. In which triangle does row 3 have its keys 0 to 3?
    strict: no position may see itself
        What stands at a position has been written. It is the next one that is to be predicted there. Does a
        causal mask have the diagonal? (masking#diagonal)
    inverted: the mask is the other way round: what may be seen is hidden
        In this course, as in `scaled_dot_product_attention`, True means: may attend. Only PyTorch's layers
        have it the other way. (masking#two-polarities)
    one ahead: every position sees one position ahead
        The position behind the last one seen is what is to be predicted. Where does the diagonal end?
        (masking#diagonal)
    features: the mask is as large as the features are many
        A mask has a row and a column for each position. Which dimension of `x` counts them?
    first dim: the mask is as large as the first dimension, which in a batch counts the sequences
        `len(x)` and `x.shape[0]` move when a batch is added. Count the positions from the back.
    dim 1: the mask is as large as dimension 1, which is the positions only with one batch dimension
        Dimensions counted from the front move when a batch is added. Count the positions from the back.
    """,
)


def past(x: Tensor, mask: str) -> Tensor:
    """A causal mask, with one of the choices of `MASK`."""
    place = {"features": -1, "first dim": 0, "dim 1": 1}.get(mask, -2)
    everything = torch.ones(x.shape[place], x.shape[place], dtype=torch.bool)
    match mask:
        case "future":
            return everything.triu()
        case "strict":
            return everything.tril(-1)
        case "inverted":
            return everything.triu(1)
        case "one ahead":
            return everything.tril(1)
    return everything.tril()


@decoder_block.made_of(
    mask={
        **wrongs(
            THREE_FORMS,
            """
            none: the self-attention has no causal mask
                The target is written from left to right. When position 0 is written, position 1 is not there
                yet, though in training it is in the tensor.
            """,
        ),
        **MASK,
    },
    memory_mask=wrongs(
        THREE_FORMS,
        """
        causal: the cross-attention is causal, too
            The memory is complete before the first letter is written, so there is no future in it. Which of
            the two attentions must not look ahead?
        square: the square causal mask is handed to the cross-attention, too
            A mask has a row for each query and a column for each key. And is there anything in the memory
            that must not be seen?
        end: the cross-attention is causal, too, aligned at the end
            The memory is complete before the first letter is written, so there is no future in it, however
            the two sequences are laid side by side. Which of the two attentions must not look ahead?
        """,
    ),
    cross=wrongs(
        THREE_FORMS,
        """
        exchanged: in the cross-attention, the queries come from the encoder
            Who wants to know something here, and who has the answers? The output needs a row for each
            position of the target, and it is the queries that the rows come from.
        target: the cross-attention looks at the target, and the memory is never used
            A decoder that never looks at the source writes the same whatever it is to translate. Which of
            your arguments do you not read?
        memory: in the cross-attention, the memory looks at itself
            Who wants to know something here, and who has the answers?
        normalised: the memory is normalised with the norm of the target
            The memory comes out of the encoder, which has normalised it already, with a gain of its own. Of
            the two inputs of the cross-attention, one gets the block's norm.
        missing: there is no cross-attention
            A decoder that never looks at the source writes the same whatever it is to translate. Which of
            your arguments do you not use?
        old input: the cross-attention asks with the input of the block
            What has been found by the first step is not in there. Of which numbers must the second norm be
            taken?
        old copy: the cross-attention asks with the normalised copy from before the self-attention
            What has been found by the first step is not in that copy. Of which numbers must the second norm
            be taken?
        """,
    ),
    copies=wrongs(
        PRE_AND_POST,
        """
        keys: the self-attention's queries are normalised, and its keys and values are not
            In self-attention all three come from the same numbers. A pre-norm step gets the normalised copy
            for all of them.
        queries: the self-attention's keys and values are normalised, and its queries are not
            In self-attention all three come from the same numbers. A pre-norm step gets the normalised copy
            for all of them.
        1: the self-attention gets what has not been normalised
            Each of the three steps gets a normalised copy. Which of the norms do you not use?
        2: the queries of the cross-attention are not normalised
            Each of the three steps gets a normalised copy. Which of the norms do you not use?
        3: the MLP gets what has not been normalised
            Each of the three steps gets a normalised copy. Which of the norms do you not use?
        none: nothing is normalised
            You are handed three normalisations. Where in a pre-norm block does each of them belong?
        post: the block is post-norm
            Asked for is a pre-norm block: each step gets a normalised copy, and the sums are left as they
            are.
        behind: what the steps return is normalised, instead of what they get
            Asked for is a pre-norm block: on which side of the step is the normalisation?
        """,
    ),
    which=wrongs(
        BLOCK,
        """
        one: the first normalisation is used for every step
            Each step has a normalisation of its own, with a gain of its own. Which of the norms do you use?
        exchanged: the first two normalisations are exchanged
            The norms are in the order of the steps. Which step comes first?
        last exchanged: the last two normalisations are exchanged
            The norms are in the order of the steps. Which step comes last?
        backwards: the normalisations are used from the last to the first
            The norms are in the order of the steps. Which step comes first?
        """,
    ),
    sums={
        **SUMS,
        **wrongs(
            RESIDUALS,
            """
            not the second: the residual around the cross-attention is missing
                Each of the three steps adds to what is there. After yours, what had been written before is
                known only through what was looked up for it.
            """,
        ),
    },
    steps=wrongs(
        THREE_FORMS,
        """
        look first: the cross-attention comes first, and then the self-attention
            First the target finds out what has been written so far. Only then does it know what to ask the
            memory.
        mlp before look: the MLP comes before the cross-attention
            First everything is fetched, and then the block thinks about it. Which step comes last?
        no mlp: the MLP is missing
            The block has fetched, and has not thought yet. Which of your arguments do you not use?
            (transformer#block-in-full)
        exchanged: the two attentions are exchanged
            `attend` is the self-attention, `look` the cross-attention: they have weights of their own, each
            for its purpose.
        attend twice: the weights of the self-attention are used for the cross-attention, too
            You are handed two attentions. Which of your arguments do you not use?
        """,
    ),
)
def any_decoder(
    x,
    memory,
    attend,
    look,
    mlp,
    norms,
    *,
    mask="",
    memory_mask="",
    cross="",
    copies="",
    which="",
    sums="",
    steps="",
):
    if steps == "exchanged":
        attend, look = look, attend
    if steps == "attend twice":
        look = attend
    norms = [
        norms[n]
        for n in {
            "one": (0, 0, 0),
            "exchanged": (1, 0, 2),
            "last exchanged": (0, 2, 1),
            "backwards": (2, 1, 0),
        }.get(which, (0, 1, 2))
    ]
    target, source = x.shape[-2], memory.shape[-2]
    everything = torch.ones(target, source, dtype=torch.bool)
    seen = {"square": past(x, ""), "causal": everything.tril(), "end": everything.tril(source - target)}
    copied = []

    def self_attention(copy, bare):
        query, key = bare if copies == "queries" else copy, bare if copies == "keys" else copy
        return attend(query, key) if mask == "none" else attend(query, key, past(x, mask))

    def cross_attention(copy, bare):
        copy = {"old copy": copied[:1], "old input": [norms[1](x)]}.get(cross, [copy])[0]
        query, key = {"exchanged": (memory, copy), "target": (copy, copy), "memory": (memory, memory)}.get(
            cross, (copy, norms[1](memory) if cross == "normalised" else memory)
        )
        return look(query, key, seen[memory_mask]) if memory_mask in seen else look(query, key)

    parts = [("first", self_attention), ("second", cross_attention), ("last", lambda copy, bare: mlp(copy))]
    order = {"look first": (1, 0, 2), "mlp before look": (0, 2, 1)}.get(steps, (0, 1, 2))
    y = x
    for number, place in enumerate(order):
        name, step = parts[place]
        if (name, cross) == ("second", "missing") or (name, steps) == ("last", "no mlp"):
            continue
        bare = copies in ("none", "post", "behind", str(number + 1))
        copy = y if bare else norms[number](y)
        copied.append(copy)
        found = step(copy, y)
        if copies == "behind":
            found = norms[number](found)
        if sums not in ("none", f"not the {name}"):
            found = {"to the copy": copy, "from x": x}.get(sums, y) + found
        y = norms[number](found) if copies == "post" else found
    return y


# ---------------------------------------------------------------------------------------
# A stack that sees only the past
# ---------------------------------------------------------------------------------------


def _causal_stack(x: Tensor, blocks: list[Callable], norm: Callable) -> Tensor:
    mask = causal_mask(x.shape[-2])
    for block in blocks:
        x = block(x, mask)
    return norm(x)


def _stack_inputs(normal: Normal, *shape: int, blocks: int, dtype: torch.dtype = torch.float32) -> Inputs:
    dim = shape[-1]
    W = torch.stack([0.7 * _weights(normal, 5, dim, dtype) for _ in range(blocks)])
    return {"x": normal(*shape, dtype=dtype), "W": W, "gain": 1 + 0.5 * normal(dim, dtype=dtype)}


def _causal_stack_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str, **how: Any) -> Case:
        return Case(_stack_inputs(normal, *shape, **how), note)

    return [
        case(4, 5, blocks=3, note="three blocks"),
        case(3, 4, blocks=1, note="one block"),
        case(2, 4, 6, blocks=2, note="a batch"),
        case(1, 4, blocks=2, note="one position"),
        case(4, 4, blocks=4, note="four blocks, everything square", dtype=torch.float64),
        case(2, 3, 3, 4, blocks=2, note="two batch dimensions", dtype=torch.float64),
    ]


def _small_stack(normal: Normal) -> Inputs:
    return _stack_inputs(normal, 4, 4, blocks=3)


causal_stack = Task(
    "causal_stack",
    _causal_stack,
    {
        "x": torch.tensor([[2.0, 8.0], [0.0, 0.0], [-1.0, 1.0]]),
        "W": torch.stack(
            [
                torch.stack([*PENCIL_ATTENTION, *torch.tensor(W, dtype=torch.float32)])
                for W in (
                    [[[1, -1], [1, 0]], [[0, -2], [-1, 0]], [[1, 1], [-1, -2]]],
                    [[[1, 0], [-2, 1]], [[-1, -2], [-1, 1]], [[-2, -1], [-1, 0]]],
                )
            ]
        ),
        "gain": torch.tensor([1.0, 10.0]),
    },
    _causal_stack_cases,
    laws=[
        Law(
            "every position comes out normalised, with the gain of the normalisation at the end",
            PRE_AND_POST,
            _small_stack,
            _is_normalised(lambda inputs: inputs["gain"]),
        ),
        laws.stays(NO_FUTURE, OPEN_BLOCK, _small_stack, _last_changed("x"), _before_the_last),
        laws.stays(
            "a block of zeros at the end, which adds nothing to its input, may be left out",
            STACK,
            _silent(_small_stack, 2),
            lambda inputs, normal: {"W": inputs["W"][:2]},
        ),
        laws.stays(
            "a block of zeros at the beginning, which adds nothing to its input, may be left out",
            STACK,
            _silent(_small_stack, 0),
            lambda inputs, normal: {"W": inputs["W"][1:]},
        ),
        laws.stays(
            "blocks of zeros add nothing, so that twice as large an input comes out the same",
            PRE_AND_POST,
            lambda normal: _silent(_small_stack, 0, 1, 2)(normal) | {"x": 50 * normal(4, 4)},
            lambda inputs, normal: {"x": 2 * inputs["x"]},
        ),
        laws.sequences_are_treated_alone(
            lambda normal: _stack_inputs(normal, 2, 4, 4, blocks=2), STACK, ("x",)
        ),
    ],
    way=Stack(),
    allows=("causal_mask",),
)


@causal_stack.made_of(
    masked=wrongs(
        OPEN_BLOCK,
        """
        first: only the first block gets the mask
            The first block lets nothing through from the future. But in the second, each position looks at
            all positions of the first, and those behind it know the future. One open block is enough.
        last: only the last block gets the mask
            The last block sees only what stands before. But what stands before has heard of the future
            already, in the blocks below. One open block is enough.
        not the first: every block but the first gets the mask
            What stands before has heard of the future already, in the first block. One open block is enough.
        none: no block gets a mask
            Which positions can change the output at position 0? In a decoder, position 0 alone.
            (transformer#only-meeting-place)
        """,
    ),
    mask=MASK,
    norms=wrongs(
        PRE_AND_POST,
        """
        none: the normalisation at the end is missing
            Each block adds to the sum, and in a pre-norm stack nobody normalises it on the way. What is to be
            done with it before it is read?
        after every: the normalisation stands after every block
            The blocks normalise what their steps get by themselves. The one that you are given belongs to the
            end of the stack.
        start: the normalisation stands at the start of the stack, and not at its end
            Every pre-norm block normalises what its own steps get. What is it that nobody has normalised yet,
            when the last block is done?
        both ends: the normalisation stands at the start of the stack, and once more at its end
            Every pre-norm block normalises what its own steps get. Which numbers has nobody normalised when
            the last block is done?
        before every: the input of every block is normalised
            The blocks are pre-norm: each normalises what its own steps get, and carries the sum on as it is.
            Where does the normalisation that you are given belong?
        """,
    ),
    applied=wrongs(
        STACK,
        """
        first inputs: every block gets the input of the first one
            A block is to go on where the last one stopped. In yours, all but the last have worked for
            nothing.
        summed: what the blocks make of the same input is added up
            A block is to go on where the last one stopped, and ask about what that has found.
        added: the input of each block is added to its output once more
            The residuals are inside the blocks: each returns its input and what it has added.
            (transformer#residuals)
        backwards: the blocks are applied from the last to the first
            `blocks[0]` is the one that gets the input.
        one block: the first block is applied again and again
            Each of the blocks has learned weights of its own. Which of them do you use?
        first only: only the first block is used: the function returns inside the loop
            How often does your loop go round? How far is the `return` indented?
        not the last: the last block is left out
            How often does your loop go round? Count the blocks.
        not the first: the first block is left out
            How often does your loop go round? Count the blocks.
        """,
    ),
)
def any_stack(x, blocks, norm, *, masked="all", mask="", norms="end", applied=""):
    allowed = past(x, mask)
    count = len(blocks)
    blocks = {
        "backwards": blocks[::-1],
        "one block": blocks[:1] * count,
        "first only": blocks[:1],
        "not the last": blocks[:-1],
        "not the first": blocks[1:],
    }.get(applied, blocks)
    start = y = norm(x) if norms in ("start", "both ends") else x
    results = []
    for number, block in enumerate(blocks):
        y = norm(y) if norms == "before every" else y
        with_mask = {"first": number == 0, "last": number == len(blocks) - 1, "not the first": number > 0}
        taken = start if applied in ("first inputs", "summed") else y
        found = block(taken, allowed) if with_mask.get(masked, masked != "none") else block(taken)
        results.append(found)
        y = y + found if applied == "added" else found
        y = norm(y) if norms == "after every" else y
    if applied == "summed":
        y = sum(results)
    return y if norms in ("none", "after every", "start") else norm(y)


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


def _sizes(*numbers: int) -> Inputs:
    names = ("model_dim", "hidden_dim", "num_encoder_blocks", "num_decoder_blocks")
    return dict(zip(names, numbers, strict=True))


def _stack_parameters_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")
    dim, hidden, few, more = (draws.randperm(6)[:4] + 2).tolist()
    return [
        Case(_sizes(4 * dim, 8 * hidden + 4, few, more), "an encoder and a decoder"),
        Case(_sizes(10, 40, 1, 1), "one block each"),
        Case(_sizes(3 * hidden, 16, more, 3), "an encoder and a decoder"),
        Case(_sizes(512, 2048, 6, 6), "the sizes of the paper"),
        Case(
            _sizes(*(draws.whole(2, most) for most in (900, 4000, 40, 40))),
            "other sizes",
        ),
    ]


stack_parameters = Task(
    "stack_parameters",
    _stack_parameters,
    _sizes(2, 3, 1, 2),
    _stack_parameters_cases,
    laws=[
        laws.differs_by("without blocks there is nothing to learn", SIZES, _sizes(5, 7, 0, 0), None, 0),
        laws.differs_by(
            "a block of an encoder with one feature and one hidden feature has 8 + 4 + 4 numbers",
            SIZES,
            _sizes(1, 1, 1, 0),
            None,
            16,
        ),
        laws.differs_by(
            "one more hidden feature costs a block a column, a number in the bias, and a row",
            THINK,
            _sizes(5, 7, 1, 0),
            _sizes(5, 8, 1, 0),
            11,
        ),
        laws.differs_by(
            "a block of the decoder has an attention and a normalisation more than one of the encoder",
            THREE_FORMS,
            _sizes(5, 7, 1, 0),
            _sizes(5, 7, 0, 1),
            4 * 5 * 6 + 2 * 5,
        ),
        laws.differs_by(
            "every block of the encoder costs the same", SIZES, _sizes(1, 1, 2, 3), _sizes(1, 1, 5, 3), 3 * 16
        ),
    ],
    # PyTorch's layers may be counted: they are not asked for here, and nothing is computed with them.
    allows=("TransformerEncoderLayer", "TransformerDecoderLayer", "MultiheadAttention"),
)


@stack_parameters.made_of(
    decoder=wrongs(
        SIZES,
        """
        like encoder: the decoder's blocks are counted like those of the encoder
            A block of the decoder has one step more. It looks at the encoder's output, with weights of its
            own.
        without norm: the cross-attention is counted without its normalisation
            Each step has a layer normalisation. How many steps has a block of the decoder?
        two mlps: a block of the decoder is counted as two of the encoder, with two MLPs
            It has one step more, not two. How many attentions, MLPs and normalisations are there in it?
            (transformer#three-forms)
        three attentions: a block of the decoder is counted with three attentions
            One looks at what is written, one at the source. How many steps has the block?
            (transformer#three-forms)
        """,
    ),
    norms=wrongs(
        NORMALISATION,
        """
        none: the layer normalisations are left out
            They learn, too: a gain and a bias for each feature.
        gains: each layer normalisation is counted with one vector instead of two
            A gain multiplies each feature, and something is added to it afterwards.
        two numbers: each layer normalisation is counted with two numbers, whatever the number of features
            Mean and variance are not learned. What is learned is one gain and one bias *for each feature*.
        one a block: one layer normalisation is counted for each block, and not for each step
            Each step of a block has its own. How many steps are there in each kind of block?
            (transformer#block-in-full)
        ends: the normalisations at the end of the stacks are counted
            Asked for are the blocks only. Which of what you have counted belongs to no block?
            (transformer#pre-and-post)
        """,
    ),
    attention_biases=wrongs(
        SIZES,
        """
        none: the biases of the attention are left out
            The attention's four matrices have a bias each, in these blocks.
        one: the attention is counted with one bias
            A vector is added after each of its four matrices.
        three: the attention is counted with three biases
            A vector is added after each of its four matrices.
        """,
    ),
    attention=wrongs(
        "multihead#counting-parameters",
        """
        three: W_O is left out
            Each attention has three matrices for its heads, and one more that mixes them.
        one: the attention is counted with one matrix
            Each attention has three matrices for its heads, and one more that mixes them.
        """,
    ),
    mlp_biases=wrongs(
        THINK,
        """
        none: the biases of the MLP are left out
            After each of its two matrices, a vector is added. How long is the first, and how long the second?
        hidden: both biases of the MLP are counted with the hidden features
            A bias is as long as what it is added to. To what is the second one added?
        model: both biases of the MLP are counted with the features of the model
            A bias is as long as what it is added to. To what is the first one added?
        first: the MLP is counted without its second bias
            After each of its two matrices, a vector is added.
        second: the MLP is counted without its first bias
            After each of its two matrices, a vector is added.
        """,
    ),
    mlp=wrongs(
        THINK,
        """
        half: the MLP is counted with one of its two matrices
            One matrix leads from the model's features to the hidden ones, and another one back.
        left out: the MLPs are left out
            Each block fetches, and then it thinks. With what?
        """,
    ),
    stacks=wrongs(
        THREE_FORMS,
        """
        decoder: the encoder is left out
            Both stacks learn. The decoder looks at what the encoder's blocks have made of the source.
        encoder: the decoder is left out
            Both stacks learn. Which of your arguments do you not use?
        exchanged: encoder and decoder are exchanged
            Which of the two has blocks that look at another sequence, with an attention more?
        one each: one block of each kind is counted
            Every block of a stack has weights of its own. How many blocks are there?
            (transformer#transformer-stack)
        """,
    ),
)
def any_parameters(
    model_dim,
    hidden_dim,
    num_encoder_blocks,
    num_decoder_blocks,
    *,
    decoder="",
    norms="",
    attention_biases="",
    attention="",
    mlp_biases="",
    mlp="",
    stacks="",
):
    matrices = {"three": 3, "one": 1}.get(attention, 4)
    biases = {"none": 0, "one": 1, "three": 3}.get(attention_biases, matrices)
    attending = matrices * model_dim**2 + biases * model_dim
    added = {
        "none": 0,
        "hidden": 2 * hidden_dim,
        "model": 2 * model_dim,
        "first": hidden_dim,
        "second": model_dim,
    }.get(mlp_biases, hidden_dim + model_dim)
    thinking = 2 * model_dim * hidden_dim + added
    if mlp == "half":
        thinking = model_dim * hidden_dim + (hidden_dim if mlp_biases != "none" else 0)
    if mlp == "left out":
        thinking = 0
    norm = {"none": 0, "gains": model_dim, "two numbers": 2}.get(norms, 2 * model_dim)
    encoder_block = attending + thinking + (1 if norms == "one a block" else 2) * norm
    more = {
        "like encoder": 0,
        "without norm": attending,
        "two mlps": encoder_block,
        "three attentions": 2 * (attending + norm),
    }.get(decoder, attending + (0 if norms == "one a block" else norm))
    counts = {
        "decoder": (0, num_decoder_blocks),
        "encoder": (num_encoder_blocks, 0),
        "exchanged": (num_decoder_blocks, num_encoder_blocks),
        "one each": (1, 1),
    }.get(stacks, (num_encoder_blocks, num_decoder_blocks))
    blocks = counts[0] * encoder_block + counts[1] * (encoder_block + more)
    return blocks + (4 * model_dim if norms == "ends" else 0)


# ---------------------------------------------------------------------------------------
# What is predicted from what
# ---------------------------------------------------------------------------------------


def _training_passages(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    number = (len(tokens) - 1) // length
    used = tokens[: number * length + 1]
    return used[:-1].view(number, length), used[1:].view(number, length)


def _training_passages_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")

    def case(num_tokens: int, length: int, note: str) -> Case:
        # No token twice, so that nothing fits by chance.
        return Case({"tokens": draws.randperm(90)[:num_tokens], "length": length}, note)

    return [
        case(25, 4, "a text that is used up"),
        case(23, 5, "a text with tokens left over"),
        case(24, 4, "a text that lacks one token"),
        case(9, 8, "a single passage"),
        case(26, 5, "as many passages as a passage is long"),
        case(6, 1, "passages of one token"),
    ]


def _some_text(normal: Normal) -> Inputs:
    return {"tokens": normal(14).argsort() + 10, "length": 4}


def _sees_then_predicts(inputs: Inputs, value: tuple[Tensor, Tensor]) -> str | None:
    text = inputs["tokens"].tolist()
    follows = dict(zip(text, [*text[1:], None], strict=True))
    for given, wanted in zip(value[0].flatten().tolist(), value[1].flatten().tolist(), strict=True):
        if follows.get(given) != wanted:
            after = "nothing comes" if follows.get(given) is None else f"{follows[given]} comes"
            return f"in yours {given} is to predict {wanted}, and after it {after}"
    return None


def _reads_on(inputs: Inputs, value: tuple[Tensor, Tensor]) -> str | None:
    text = inputs["tokens"].tolist()
    for row, passage in enumerate(value[0].tolist()):
        start = row * inputs["length"]
        if passage != text[start : start + inputs["length"]]:
            there = text[start : start + inputs["length"]]
            return f"in yours passage {row} is {passage}, and the text has {there} there"
    return None


training_passages = Task(
    "training_passages",
    _training_passages,
    {"tokens": torch.tensor([5, 7, 9, 8, 6, 4, 1, 3]), "length": 3},
    _training_passages_cases,
    laws=[
        Law(
            "each position is to predict the token that comes next",
            NEXT_LETTER,
            _some_text,
            _sees_then_predicts,
        ),
        Law(
            "the inputs, read row after row, are the text from its beginning",
            NEXT_LETTER,
            _some_text,
            _reads_on,
        ),
    ],
)


@training_passages.made_of(
    shift=wrongs(
        NEXT_LETTER,
        """
        none: the target is not shifted: each position is to predict itself
            A position sees itself, so it could copy, with a loss of 0 and nothing learned. What is it to
            predict?
        back: the shift goes the wrong way: each position is to predict the one before
            The one before is in the past, where a causal model can look. The input begins with the first
            token. What is its target? And which of the two is to be returned first?
        two: the shift is two positions wide
            Between the last thing that a position sees and the one that it predicts, nothing is to be left
            out.
        rolled: the last position of each passage is to predict its first: each row goes round in a circle
            `roll` puts what falls off at one end back in at the other. What comes after the last token of
            a passage
            is known: where does it stand?
        end only: only the last position of a passage has a target
            A causal model predicts at every position at once, each from its own past. A passage of a hundred
            gives that many lessons instead of one.
        """,
    ),
    cut=wrongs(
        NEXT_LETTER,
        """
        apart: the passages do not share a token, so the first token of each is never predicted
            Cutting the text into pieces of `length + 1` leaves out a lesson between two pieces. The last
            target of a passage is the first input of the next.
        overlapping: a passage begins at every token, so that each lesson is there many times
            One passage is to begin where the last one ended. How far is it from one beginning to the next?
        columns: the text runs down the columns
            `view` and `reshape` fill row after row. Which of the two numbers must come first in the shape, so
            that a row is a passage?
        one fewer: there is one passage fewer than the text has room for
            Try a text of `2 * length + 1` tokens on paper. How many passages fit?
        one more: the passages are counted as if the last token of the text had a target
            A text of exactly `2 * length` tokens has no target for its last token. How many tokens are needed
            for two passages?
        end: the passages are counted from the end of the text
            What is left over is left over at the end. With which token does the first passage begin?
        short: the passages are one token too short
            In a passage of inputs there are `length` tokens, and as many targets.
        long: the passages are one token too long
            In a passage of inputs there are `length` tokens, and as many targets.
        """,
    ),
    form=wrongs(
        NEXT_LETTER,
        """
        floats: the tokens become floating-point numbers
            Tokens are the numbers of letters or words, by which a row of a table is found.
        stacked: inputs and targets come as one tensor
            Asked for are two tensors, as a tuple.
        flat: the passages come one behind the other, in one dimension
            Each passage is a sequence of its own, so it has a row of its own.
        """,
    ),
)
def any_passages(tokens, length, *, shift="one", cut="shared", form="pair"):
    length += {"short": -1, "long": 1}.get(cut, 0)
    number = (len(tokens) - 1) // length if length else 0
    number += {"one fewer": -1}.get(cut, 0)
    if cut == "one more":
        number = len(tokens) // length
    if cut == "end":
        tokens = tokens[len(tokens) - number * length - 1 :]
    if cut == "apart":
        both = tokens[: len(tokens) // (length + 1) * (length + 1)].reshape(-1, length + 1)
        inputs, targets = both[:, :-1], both[:, 1:]
    elif cut == "overlapping":
        both = tokens.unfold(0, length + 1, 1)
        inputs, targets = both[:, :-1], both[:, 1:]
    else:
        size = number * length
        shape = (length, number) if cut == "columns" else (number, length)
        inputs, targets = tokens[:size].reshape(shape), tokens[1 : size + 1].reshape(shape)
        if shift == "two":
            targets = torch.cat([tokens, tokens[:1]])[2 : size + 2].reshape(shape)
        if cut == "columns":
            inputs, targets = inputs.mT, targets.mT
    if shift == "none":
        targets = inputs
    if shift == "rolled":
        targets = inputs.roll(-1, -1)
    if shift == "end only":
        targets = targets[:, -1]
    pair = (targets, inputs) if shift == "back" else (inputs, targets)
    if form == "floats":
        pair = tuple(part.float() for part in pair)
    if form == "flat":
        pair = tuple(part.flatten() for part in pair)
    return torch.stack(pair) if form == "stacked" else pair


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


def _compare_letters(inputs: Inputs, value: Any) -> str | None:
    table, places, start, end, max_length = inputs.values()
    expected = _greedy_decode(NextScores(table, places), start, end, max_length)
    if not isinstance(value, list) or not all(type(letter) is int for letter in value):
        return "a list of whole numbers was expected"
    # Whoever leaves out a start that the model has written has read "without `start`" to the letter.
    if value in (expected, [letter for letter in expected if letter != start]):
        return None
    right = next((n for n, pair in enumerate(zip(value, expected, strict=False)) if pair[0] != pair[1]), None)
    if right is None:
        goes = "goes on where it should stop" if len(value) > len(expected) else "stops too soon"
        return f"the list {goes}, after {len(value)} letters"
    return f"letter number {right + 1} of the list is not the one that should stand there"


def _model(
    normal: Normal, letters: tuple[int, int, int], stop: int, max_length: int, *, again: int | None = None
) -> Inputs:
    """The end wins after `stop` letters and never before; so does no start, but after `again` letters."""
    num_letters, start, end = letters
    places = normal(max_length + 3, num_letters)
    places[:, [start, end]] -= 100
    places[stop, end] += 300
    if again is not None:
        places[again, start] += 300
    table = normal(num_letters, num_letters)
    return {"table": table, "places": places, "start": start, "end": end, "max_length": max_length}


def _greedy_decode_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    draws = Draws(seed, "choices")

    def case(num_letters: int, stop: int, max_length: int, note: str, again: int | None = None) -> Case:
        start, end = draws.randperm(num_letters)[:2].tolist()
        return Case(_model(normal, (num_letters, start, end), stop, max_length, again=again), note)

    return [
        case(6, 4, 10, "an end after four letters"),
        case(8, 7, 5, "no end before max_length"),
        case(5, 0, 4, "an end at once"),
        case(7, 5, 5, "an end after max_length letters"),
        case(9, 6, 12, "an end after six letters"),
        case(6, 5, 8, "a start that is written on the way", again=2),
        case(7, 3, 1, "a single letter"),
        case(8, 16, 20, "an end after sixteen letters"),
    ]


def _no_end(max_length: int) -> laws.Draw:
    return lambda normal: _model(normal, (5, 3, 4), max_length + 1, max_length)


def _same_beginning(inputs: list[Inputs], values: list[list[int]]) -> str | None:
    if values[0] == values[1][:2]:
        return None
    return f"with room for 2 yours writes {values[0]}, and with room for 4 {values[1]}"


def _most_probable(inputs: Inputs, value: list[int]) -> str | None:
    scores = NextScores(inputs["table"], inputs["places"])([inputs["start"]])[0]
    best = int(scores.argmax())
    if value[0] == best:
        return None
    return f"the scores after the start are highest for {best}, and yours begins with {value[0]}"


greedy_decode = Task(
    "greedy_decode",
    _greedy_decode,
    {
        "table": torch.tensor(
            [[0.0, 3.0, 1.0, 0.0], [0.0, 0.0, 3.0, 1.0], [0, 1.0, 0.0, 5.0], [0.0, 0, 0, 0]]
        ),
        "places": torch.zeros(6, 4),
        "start": 0,
        "end": 3,
        "max_length": 4,
    },
    _greedy_decode_cases,
    laws=[
        Law(
            "the first letter is the one with the highest score after the start",
            WRITING,
            _no_end(1),
            _most_probable,
        ),
        Law(
            "with more room the same letters are written, and then more",
            WRITING,
            lambda normal: [drawn := _no_end(4)(normal), drawn | {"max_length": 2}][::-1],
            _same_beginning,
        ),
    ],
    compare=_compare_letters,
    way=Decoding(),
)


@greedy_decode.made_of(
    result=wrongs(
        WRITING,
        """
        end: the end is part of the result
            The end says that the word is complete. It is not one of its letters.
        start: the start is part of the result
            The start is there so that there is something to look at when the first letter is written. It is
            not one of the letters.
        both: start and end are both part of the result
            They say where the word begins and that it is complete. They are not letters of it.
        cut: the last letter is always cut off
            Is it always the sign of the end that stands there? With max_length it may be a letter.
        backwards: the letters are in the opposite order
            The letter that is written first stands first.
        """,
    ),
    stops=wrongs(
        WRITING,
        """
        never at the end: the end is not noticed: letters are written up to max_length
            The model says itself when it is done. Compare each letter with `end` before you go on.
        at the start: writing stops at a start, as if it were the end
            The start is a letter like any other once the writing has begun. What says that the word is
            complete?
        too soon: one letter fewer than max_length is written
            `written` begins with the start, which does not count. How long may it become? And if you cut
            something off at the end: is it always the sign of the end that stands there?
        too late: one letter more than max_length is written
            `written` begins with the start, which does not count. How long may it become?
        no limit: `max_length` is not looked at
            A model that never finds an end would write for ever. When else is it to stop?
        after one: only one letter is written: the function returns inside the loop
            How often does your loop go round? How far is the `return` indented?
        """,
    ),
    row=wrongs(
        WRITING,
        """
        first: every letter is chosen as if nothing but the start had been written
            Either what has been written is not handed back to the model, or the wrong row of the scores is
            read. Each row says what comes after a position. After which position do you want to go on?
        all: the largest of all scores is looked for, in all the rows
            `argmax()` without a row looks through the whole matrix, and counts on from row to row. Which row
            says what comes next?
        any: the best score that a letter has in any of the rows decides
            `max(dim=0)` and `amax(0)` look through all the rows, column by column. Which row says what comes
            next?
        column: the last column is searched instead of the last row
            A row belongs to a position of what is written, and has a score for each letter.
        sum: the scores of all rows are added up
            Each row says what comes after a position. After which position do you want to go on?
        smallest: the letter with the lowest score is written
            A high score is for a likely letter.
        before the last: the row before the last one is read
            Each row says what comes after a position. After which position do you want to go on?
        second: the letter with the second highest score is written
            Greedy means: always the best one, as it looks at this moment.
        """,
    ),
    handed=wrongs(
        WRITING,
        """
        last: only the last letter is handed to the model, not all that is written
            Attention looks at all letters before. If you hand over only the last one, there is nothing else
            to look at, and every letter stands at position 0.
        without start: the start is not handed to the model again after the first letter
            The model has learned with the start in front of every word. Without it, all the letters stand one
            place too early.
        nothing: the first letter is written from nothing, without the start
            The model must have something to look at when it writes its first letter. What is the start for?
        backwards: what has been written is handed over from the last letter to the first
            The model has learned to read from the start on. In which order do the letters stand?
        """,
    ),
)
def any_decoding(
    next_scores, start, end, max_length, *, result="letters", stops="", row="last", handed="all"
):
    letters, ended = [], False
    limit = {"too soon": max_length - 1, "too late": max_length + 1, "no limit": 100, "after one": 1}
    while len(letters) < limit.get(stops, max_length):
        written = {
            "last": [start, *letters][-1:],
            "without start": letters or [start],
            "nothing": letters,
            "backwards": [*letters[::-1], start],
        }.get(handed, [start, *letters])
        scores = next_scores(written)
        match row:
            case "first":
                letter = int(scores[0].argmax())
            case "all":
                letter = int(scores.argmax())
            case "any":
                letter = int(scores.amax(0).argmax())
            case "column":
                letter = int(scores[:, -1].argmax())
            case "sum":
                letter = int(scores.sum(0).argmax())
            case "smallest":
                letter = int(scores[-1].argmin())
            case "before the last":
                letter = int(scores[max(len(scores) - 2, 0)].argmax())
            case "second":
                letter = int(scores[-1].argsort()[-2])
            case _:
                letter = int(scores[-1].argmax())
        ended = letter == (start if stops == "at the start" else end) or (
            stops == "at the start" and letter == end
        )
        if ended and stops != "never at the end":
            if result in ("end", "both"):
                letters.append(letter)
            break
        letters.append(letter)
    if result == "cut":
        letters = letters[:-1]
    if result == "backwards":
        letters = letters[::-1]
    return [start, *letters] if result in ("start", "both") else letters


# ---------------------------------------------------------------------------------------
# The experiment: what a decoder can reach that does not see the source, and what went wrong in a training
# ---------------------------------------------------------------------------------------


def _blind_loss(num_letters: int, length: int) -> float:
    return math.log(math.comb(num_letters, length)) / (length + 1)


def _words_of(num_letters: int, length: int) -> Inputs:
    return {"num_letters": num_letters, "length": length}


def _blind_loss_cases(seed: int) -> list[Case]:
    drawn = Draws(seed, "choices").whole
    return [
        Case(_words_of(num := drawn(9, 14), drawn(3, num - 3)), "some of the letters"),
        Case(_words_of(num := drawn(15, 25), drawn(6, num - 6)), "more letters"),
        Case(_words_of(drawn(5, 12), 1), "words of one letter"),
        Case(_words_of(num := drawn(5, 12), num), "words of all the letters"),
        Case(_words_of(num := drawn(5, 12), num - 1), "words that lack one letter"),
        Case(_words_of(num := drawn(60, 120), drawn(10, num - 10)), "many letters"),
    ]


def _number_is(expected: Callable[[Inputs], float]) -> Callable[[Inputs, float], str | None]:
    def broken(inputs: Inputs, value: float) -> str | None:
        right = expected(inputs)
        if math.isclose(value, right, rel_tol=1e-5, abs_tol=1e-6):
            return None
        return f"yours is {shown(value)}, not {shown(right)}"

    return broken


def _twice_as_many(inputs: list[Inputs], values: list[float]) -> str | None:
    # Of 7 letters, 3 or 4 are in the word: the sums over 4 and over 5 positions are the same.
    sums = [value * (one["length"] + 1) for one, value in zip(inputs, values, strict=True)]
    if math.isclose(*sums, rel_tol=1e-5):
        return None
    return f"with yours these are {shown(sums[0])} and {shown(sums[1])}"


blind_loss = Task(
    "blind_loss",
    _blind_loss,
    _words_of(4, 2),
    _blind_loss_cases,
    laws=[
        Law(
            "if every word has all the letters, there is only one that can be written, and the loss is 0",
            IN_ORDER,
            lambda normal: _words_of(6, 6),
            _number_is(lambda inputs: 0.0),
        ),
        Law(
            "a word of one letter out of 9 costs ln 9 at the letter and 0 at the end: ln 9 / 2 in the mean",
            NEXT_LETTER,
            lambda normal: _words_of(9, 1),
            _number_is(lambda inputs: math.log(9) / 2),
        ),
        Law(
            "to know the 3 letters that are in a word is to know the 4 that are not: summed up over the "
            "positions, words of 3 and of 4 letters out of 7 cost the same",
            IN_ORDER,
            lambda normal: [_words_of(7, 3), _words_of(7, 4)],
            _twice_as_many,
        ),
    ],
)


@blind_loss.made_of(
    counted=wrongs(
        IN_ORDER,
        """
        orders: the orders of the source are counted, too
            What is written is in the order of the alphabet. How many different words can be *written*?
        powers: every position may have any letter
            No letter comes twice, and each is later in the alphabet than the one before it. How many
            different words can be written?
        repeats: words with letters that come twice are counted, too
            No letter comes twice in a word.
        letters: only the first letter is looked at, as if all letters were equally likely
            Is z as likely to be the first letter of a sorted word as a? Count whole words, which *are*
            equally likely.
        every letter: every position is taken to cost as much as a letter of which nothing is known
            What has been written rules out many letters. Count whole words, which are equally likely.
        subsets: words of all lengths are counted
            All words have the same length here, and the decoder has learned that.
        """,
    ),
    shared=wrongs(
        NEXT_LETTER,
        """
        letters: the end is not counted as a position
            The decoder writes the letters, and then the sign of the end: so many positions have a target. The
            end costs nothing, as the length is known.
        not: the loss is that of the whole word, not the mean over its positions
            Over how many positions is the mean to be taken? (The end is one of them.)
        start: the start is counted as a position that is to be predicted
            The start is given. Which signs are to be written?
        """,
    ),
    unit=wrongs(
        NEXT_LETTER,
        """
        bits: the logarithm has the base 2
            The loss is the mean of -ln of the chances: the natural logarithm.
        digits: the logarithm has the base 10
            The loss is the mean of -ln of the chances: the natural logarithm.
        sign: the loss has the wrong sign
            The logarithm of a chance is negative, and the loss is minus that.
        chance: what comes back is a chance, and no loss
            The loss is -ln of a chance. How many words are equally likely, and what is the chance of each?
        """,
    ),
)
def any_blind(num_letters, length, *, counted="words", shared="positions", unit="nats"):
    number = {
        "orders": math.perm(num_letters, length),
        "powers": num_letters**length,
        "repeats": math.comb(num_letters + length - 1, length),
        "letters": num_letters,
        "every letter": num_letters ** (length + 1),
        "subsets": 2**num_letters,
    }.get(counted, math.comb(num_letters, length))
    positions = {"letters": length, "not": 1, "start": length + 2}.get(shared, length + 1)
    if unit == "chance":
        return 1 / number
    loss = math.log(number) / positions
    return {"bits": loss / math.log(2), "digits": loss / math.log(10), "sign": -loss}.get(unit, loss)


READINGS = ("works", "leak", "blind", "stuck", "unfinished")


def _which_run(losses: Tensor, words_right: float, num_letters: int, length: int) -> str:
    if words_right > 0.5:
        return "works"
    fifth = len(losses) // 5
    last, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean()
    blind = _blind_loss(num_letters, length)
    if last < 0.1 * blind:
        return "leak"
    if last < 0.9 * before:
        return "unfinished"
    return "blind" if last < 1.15 * blind else "stuck"


def _record(
    normal: Normal,
    reading: str,
    sizes: tuple[int, int, int],
    right: float,
    ends: float,
    last: float,
    slope: float = 0.0,
) -> Inputs:
    """What a run could leave behind: it falls to `ends`, in losses without the source, or is on its way.

    `sizes` are the number of letters, the length of a word and the number of steps. The last step is off
    by `last`, and the one before it the other way. In a fifth of the time it falls by a fifth of `slope`.
    """
    num_letters, length, steps = sizes
    start, end = math.log(num_letters + 2), ends * _blind_loss(num_letters, length)
    done = torch.linspace(0, 1, steps)
    if reading == "unfinished":
        # In each fifth of the time a quarter is taken off, and in the last the mean has come to the end.
        curve = end * torch.exp((slope or 1.5) * (0.9 - done))
    else:
        curve = end * torch.exp(slope * (0.9 - done)) + (start - end) * torch.exp(-18 * done)
    # Every two steps cancel each other out.
    off = 0.05 + 0.1 * normal(steps // 2).abs().clamp(max=1)
    off[-1] = -last
    noise = torch.stack([off, -off], 1).flatten()
    return {
        "losses": curve * (1 + noise),
        "words_right": round(right, 2),
        "num_letters": num_letters,
        "length": length,
    }


@functools.cache
def _all_blind() -> list[tuple[float, int, int]]:
    """The loss without the source, for all sizes: from 0.06, where words have nearly all letters, to 2.8."""
    sizes = [(num_letters, length) for num_letters in range(5, 81) for length in range(2, num_letters)]
    return [(_blind_loss(*each), *each) for each in sizes]


def _which_run_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    draws = Draws(seed, "choices")

    def drawn(least: float, most: float) -> float:
        return least + (most - least) * draws.rand().item()

    runs: dict[str, Callable[[], tuple[str, float, float]]] = {
        "works": lambda: ("works", drawn(0.9, 1.0), 0.01),
        "works, not without mistakes": lambda: ("works", drawn(0.56, 0.8), 0.05),
        "leak": lambda: ("leak", drawn(0.0, 0.1), 0.01),
        "leak 2": lambda: ("leak", drawn(0.0, 0.1), 0.02),
        "leak, falling": lambda: ("unfinished", drawn(0.0, 0.1), 0.015),
        "blind": lambda: ("blind", drawn(0.0, 0.05), 1.0),
        "blind 2": lambda: ("blind", drawn(0.0, 0.05), 1.02),
        "stuck": lambda: ("stuck", 0.0, drawn(1.35, 1.5)),
        "stuck 2": lambda: ("stuck", 0.0, drawn(1.5, 1.8)),
        "unfinished": lambda: ("unfinished", drawn(0.0, 0.05), 1.0),
        "unfinished, lower": lambda: ("unfinished", drawn(0.38, 0.44), drawn(0.6, 0.8)),
        "unfinished, higher": lambda: ("unfinished", 0.0, 1.5),
    }
    listed = []
    for name in in_any_order(runs, seed):
        reading, right, ends = runs[name]()
        num_letters, steps = int(drawn(8, 13)), 10 * int(drawn(4, 13))
        sizes = num_letters, int(drawn(3, num_letters - 3)), steps
        last = 0.95 if list(runs).index(name) % 2 else -0.95
        listed.append(Case(_record(normal, reading, sizes, right, ends, last), f"{steps} steps"))

    # The same curve for words of other sizes, so that its numbers alone decide nothing.
    def near(loss: float, least: float, most: float) -> dict[str, int]:
        """Sizes for which it is from `least` to `most` of the loss without the source."""
        fit = [one for one in _all_blind() if least * one[0] <= loss <= most * one[0]]
        _, num_letters, length = fit[int(drawn(0, len(fit)))]
        return {"num_letters": num_letters, "length": length}

    leak, at, above = (0.02, 0.045), (0.96, 1.04), (1.33, 1.6)
    curves: dict[str, tuple[str, tuple[float, float], float, list[tuple[float, float]]]] = {
        "low": ("rests", (0.09, 0.1), drawn(0.1, 0.15), [leak, at, above]),
        "rises": ("rests", (0.6, 0.9), -drawn(0.1, 0.15), [at, above]),
        "falls": ("unfinished", (0.09, 0.1), drawn(1.25, 1.5), [leak, at, above]),
        "falls, low": ("unfinished", (0.09, 0.1), drawn(1.25, 1.5), [leak, (0.6, 0.8)]),
    }
    for name in in_any_order(curves, seed):
        reading, (least, most), slope, wanted = curves[name]
        loss, steps = drawn(least, most), 10 * int(drawn(4, 13))
        last = 0.95 if drawn(0, 1) < 0.5 else -0.95
        ends = loss / _blind_loss(10, 4)
        inputs = _record(normal, reading, (10, 4, steps), drawn(0, 0.1), ends, last, slope)
        several = [inputs | near(loss, *shares) for shares in wanted]
        several.append(several[int(drawn(0, len(several)))] | {"words_right": round(drawn(0.56, 0.7), 2)})
        listed += [Case(each, f"{steps} steps, and the same losses for other words") for each in several]
    return listed


def _reading_law(sentence: str, read: str, reading: str, right: float, ends: float) -> Law:
    inputs = lambda normal: _record(normal, reading, (10, 4, 60), right, ends, 0.5)
    return Law(sentence, read, inputs, laws.says(reading))


which_run = Task(
    "which_run",
    _which_run,
    {
        "losses": torch.tensor([2.0, 1.6, 1.2, 1.0, 0.8, 0.7, 0.6, 0.6, 0.6, 0.6]),
        "words_right": 0.15,
        "num_letters": 4,
        "length": 2,
    },
    _which_run_cases,
    laws=[
        _reading_law(
            "a model that writes most words without a mistake works, whatever its loss",
            WRITING,
            "works",
            0.75,
            0.05,
        ),
        _reading_law(
            "a loss near 0 with hardly a word right is a leak: in training, something can be seen that is "
            "not there when it writes",
            NEXT_LETTER,
            "leak",
            0.02,
            0.01,
        ),
        _reading_law(
            "where few words are right and the loss is not near 0, it is too early to say more "
            "as long as it falls",
            "transformer#letters-long",
            "unfinished",
            0.0,
            1.0,
        ),
        _reading_law(
            "a loss that has come to rest at that of a decoder without the source is blind: "
            "nothing comes from the source",
            MAP,
            "blind",
            0.02,
            1.0,
        ),
        _reading_law(
            "a loss that has come to rest far above that of a decoder without the source is stuck: "
            "hardly anything has been learned",
            MAP,
            "stuck",
            0.0,
            1.6,
        ),
    ],
    builds_on=("blind_loss",),
)


@which_run.made_of(
    works=wrongs(
        WRITING,
        """
        loss: a small loss is taken for success
            What in the record says how the model does when it writes on its own? A loss is that of training,
            where the true letters are given.
        any: every run that writes some words right is said to work
            One word in ten may be luck, or half learned. Asked is whether it writes *most* words right.
        after the leak: a run with a loss near 0 is called a leak before it is asked what it writes
            A small loss is what a model that works has, too. What tells the two apart?
        perfect: only a run that writes all words right is said to work
            A model that writes eight words in ten without a mistake has learned its task: most are right.
        """,
    ),
    falls=wrongs(
        "transformer#letters-long",
        """
        not asked: whether the loss still falls is not looked at
            A loss may just pass the value at which another run has come to rest. How do you see that it is
            still on its way?
        from the start: the loss at the end is compared with the one at the start
            All of them have fallen since then, also those that have long been at rest. Which parts of the
            curve say whether it falls *now*?
        before the leak: a loss near 0 that still falls is called unfinished
            A loss near 0 leaves nothing to wait for. Which of the two is to be asked first?
        one step: single steps are compared
            From step to step a loss goes up and down by chance. Compare means of many steps.
        """,
    ),
    at=wrongs(
        "transformer#letters-long",
        """
        last step: the last step stands for where the loss has come to rest
            A single step is up or down by chance: here, one is far off. Take a mean of many.
        whole: the mean of all steps stands for where the loss has come to rest
            The first steps are those of a model that knows nothing yet. Which part of the curve says where it
            has come to?
        lowest: the lowest loss stands for where it has come to rest
            Of many steps one is the luckiest. Take a mean of many.
        """,
    ),
    line=wrongs(
        IN_ORDER,
        """
        none: every loss that has come to rest above 0 is called blind
            A decoder without the source can still learn what words look like. You have computed how far that
            takes it. What if the loss rests far above?
        word: the loss without the source is taken for the whole word
            Losses here are means over all positions, the end included.
        """,
    ),
    named=wrongs(
        NEXT_LETTER,
        """
        leak as blind: a leak is called blind
            A decoder without the source knows too little, and one with a leak too much. Which of the two
            has a loss near 0?
        exchanged: leak and blind are exchanged
            A decoder without the source knows too little, and one with a leak too much. Which of the two
            has a loss near 0?
        blind and stuck: blind and stuck are exchanged
            Which of the two has learned what words look like, and so has the smaller loss?
            (transformer#letters-in-order)
        never stuck: a loss at rest is called unfinished where it is high
            Training for longer does not help where the loss no longer falls. (transformer#letters-long)
        """,
    ),
)
def any_reading(
    losses, words_right, num_letters, length, *, works="most", falls="fifths", at="fifth", line="", named=""
):
    blind = any_blind(num_letters, length, shared="not" if line == "word" else "positions")
    fifth = len(losses) // 5
    last, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean()
    falling = {
        "not asked": False,
        "from the start": losses[-fifth:].mean() < 0.9 * losses[:fifth].mean(),
        "one step": losses[-1] < 0.9 * losses[-2],
    }.get(falls, last < 0.9 * before)
    rest = {"last step": losses[-1], "whole": losses.mean(), "lowest": losses.min()}.get(at, last)
    near = rest < 0.1 * blind
    success = {"loss": near, "any": words_right > 0.1, "perfect": words_right == 1}.get(
        works, words_right > 0.5
    )
    if success and not (near and works == "after the leak"):
        reading = "works"
    elif near and not (falling and falls == "before the leak"):
        reading = "leak"
    elif falling:
        reading = "unfinished"
    else:
        reading = "blind" if rest < 1.15 * blind or line == "none" else "stuck"
    match named:
        case "leak as blind":
            return "blind" if reading == "leak" else reading
        case "exchanged":
            return {"leak": "blind", "blind": "leak"}.get(reading, reading)
        case "blind and stuck":
            return {"stuck": "blind", "blind": "stuck"}.get(reading, reading)
        case "never stuck":
            return "unfinished" if reading == "stuck" else reading
    return reading
