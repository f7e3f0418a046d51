"""Tasks of the unit ``your_model``: the parts of a language model of today, the whole, and writing with it.

The models here are small, and of random weights, under the names that the course's model has for them.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attncourse import your_model
from attncourse.attention_operator import attention
from attncourse.checks import laws
from attncourse.checks.choices import AXIS, LOW, SCALE, normalised, only, scaled
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.masking import causal_mask
from attncourse.multihead import merge_heads, repeat_heads
from attncourse.positional import rotary
from attncourse.probe.your_model import Reader, WriteOn, chosen

NORM = "your_model#rms-norm"
GATE = "your_model#swiglu"
TURNED = "your_model#rotary-inside"
GROUPS = "your_model#grouped-queries"
WINDOW = "your_model#sliding-window"
BLOCK = "your_model#llama-block"
COUNTING = "your_model#counting"
MODEL = "your_model#the-model"
CHOOSING = "your_model#choosing-a-token"
CACHE = "your_model#writing-with-a-cache"

Inputs = dict[str, Any]
Weights = dict[str, Tensor]
# The keys and values of one block, each (..., num_key_value_heads, positions, head_dim).
Cache = tuple[Tensor, Tensor]

# What the model's norms add below the root.
EPS = 1e-6

# ---------------------------------------------------------------------------------------
# RMSNorm
# ---------------------------------------------------------------------------------------


def _rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return functional.rms_norm(x, weight.shape, weight, eps)


def _to_norm(
    *shape: int, eps: float = 1e-6, times: float = 1.0, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        # With a mean that is not 0: subtracting it is seen.
        x = times * (normal(*shape, dtype=dtype) + 0.7)
        return {"x": x, "weight": 1 + 0.5 * normal(shape[-1], dtype=dtype), "eps": eps}

    return drawn


def _rms_norm_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_to_norm(3, 5)(normal), "three positions"),
        Case(_to_norm(4)(normal), "a single position, without others beside it"),
        Case(_to_norm(2, 3, 4)(normal), "a batch"),
        Case(_to_norm(2, 1, 3, 6, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_to_norm(4, 4)(normal), "as many positions as features"),
        Case(_to_norm(3, 4, eps=0.5)(normal), "a large eps"),
        Case(_to_norm(3, 4, times=0.01, eps=1e-4)(normal), "small features"),
        Case(_to_norm(3, 1)(normal), "a single feature"),
        Case(_to_norm(3, 5)(normal), "features that are not contiguous in memory", contiguous=False),
    ]


def _mean_square_one(inputs: Inputs, value: Tensor) -> str | None:
    found = value.square().mean(-1)
    return laws.is_not(found, torch.ones_like(found), "at {place} yours has {yours}")


def _plain_rows(normal: Normal) -> Inputs:
    return _to_norm(3, 4, eps=1e-12)(normal) | {"weight": torch.ones(4)}


def _half_of_eps(normal: Normal) -> Inputs:
    return {"x": torch.tensor([[3.0, -3.0, 3.0, 3.0]]), "weight": torch.ones(4), "eps": 27.0}


def _is_half(inputs: Inputs, value: Tensor) -> str | None:
    return laws.is_not(value, inputs["x"] / 6, "number {place} of yours is {yours}, not {expected}")


def _opposite(normal: Normal) -> list[Inputs]:
    drawn = _to_norm(3, 4)(normal)
    return [drawn, drawn | {"x": -drawn["x"]}]


def _is_opposite(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    return laws.is_not(values[1], -values[0], "at {place} yours gives {yours}, not {expected}")


rms_norm = Task(
    "rms_norm",
    _rms_norm,
    {
        "x": torch.tensor([[6.0, 0.0, 0.0, 0.0], [2.0, 2.0, -2.0, 2.0]]),
        "weight": torch.tensor([1.0, 10.0, 1.0, 5.0]),
        "eps": 0.0,
    },
    _rms_norm_cases,
    laws=[
        Law(
            "where the weight is 1, the mean square of the features of each position becomes 1",
            NORM,
            _plain_rows,
            _mean_square_one,
        ),
        laws.vanishes(
            "where the weight is 0, everything becomes 0",
            NORM,
            lambda normal: _to_norm(3, 4)(normal) | {"weight": torch.zeros(4)},
        ),
        Law("the opposite input gives the opposite output", NORM, _opposite, _is_opposite),
        laws.stays(
            "what becomes of a position does not depend on the others",
            NORM,
            _to_norm(3, 4),
            lambda inputs, normal: {"x": torch.cat([inputs["x"][:1], 3 * normal(2, 4)])},
            lambda value: value[0],
        ),
        Law(
            "a mean square of 9 and an eps of 27 make a root of 6, by which all features are divided",
            NORM,
            _half_of_eps,
            _is_half,
        ),
        laws.sequences_are_treated_alone(_to_norm(3, 2, 4), NORM, ("x",)),
    ],
    refuses=(
        "rms_norm",
        "_fused_rms_norm",
        "layer_norm",
        "native_layer_norm",
        "group_norm",
        "native_group_norm",
        "instance_norm",
        "batch_norm",
        "native_batch_norm",
        "local_response_norm",
        "CrossMapLRN2d",
    ),
)


@rms_norm.made_of(
    mean=wrongs(
        NORM,
        """
        subtracted: the mean is subtracted
            That is what a layer normalisation does. What RMSNorm leaves out is just this step.
        variance: the features are divided by their standard deviation
            The variance is the mean square of the features *without their mean*. Here the mean stays in.
        above: the mean is subtracted above the fraction bar, and not below
            It is subtracted nowhere: neither from what is divided nor in what divides.
        """,
    ),
    size=wrongs(
        NORM,
        """
        square: it is divided by the mean square, and not by its root
            Twice as large features have a mean square four times as large. What must be taken of it, so that
            the size cancels?
        less one: the sum of the squares is divided by one less than there are features
            So do `var` and `std` of PyTorch, unless they are told otherwise. A mean divides by how many there
            are.
        sum: the squares are added up, and not averaged
            Then a position becomes a vector of length 1, whose numbers are the smaller, the more there are.
        absolute: it is divided by the mean of the absolute values
            The letters say it in the order of the steps, read from behind: square, mean, root.
        multiplied: it is multiplied by the root, and not divided
            Large features are to become smaller.
        """,
    ),
    over=wrongs(
        NORM,
        """
        positions: the mean runs over the positions instead of the features
            Every position is normalised by itself. Which dimension holds its features?
        all: one mean square is taken of everything
            Every position has a mean square of its own.
        first: the mean runs over the first dimension
            Where there is a single position, the first dimension holds its features; with more, it does not.
            Count from the back.
        """,
    ),
    small=wrongs(
        NORM,
        """
        outside: eps is added to the root, and not below it
            The order is: square, mean, plus eps, root.
        none: eps is left out
            Where all features are 0 there would be 0/0.
        fixed: eps is always 1e-6
            It is an argument: not every model was trained with the same.
        squared: the square of eps is added below the root
            eps stands beside the mean square as it is.
        twice: eps is subtracted
            It is there so that nothing is divided by 0. A difference may well be 0.
        """,
    ),
    gain=wrongs(
        NORM,
        """
        none: the weight is left out
            Each feature is multiplied by a learned number of its own.
        added: the weight is added
            It multiplies. There is nothing that is added here, which a layer normalisation has besides.
        one more: the features are multiplied by 1 + weight
            Some models store their weight so. In this one it is what multiplies.
        before: the weight multiplies before the size is taken
            First normalise, then multiply: the weight must not change by how much is divided.
        divided: the features are divided by the weight
            It multiplies.
        """,
    ),
)
def any_rms_norm(x, weight, eps, *, mean="", size="", over="", small="", gain=""):
    dim = {"positions": -2, "all": tuple(range(x.dim())), "first": 0}.get(over, -1)
    if gain == "before":
        x = x * weight
    centred = x - x.mean(dim, keepdim=True)
    inside = centred if mean in ("subtracted", "variance") else x
    outside = centred if mean in ("subtracted", "above") else x
    square = inside.square().sum(dim, keepdim=True)
    if size != "sum":
        square = inside.square().mean(dim, keepdim=True)
    if size == "less one":
        number = inside.numel() // square.numel()
        square = inside.square().sum(dim, keepdim=True) / torch.tensor(number - 1)
    if size == "absolute":
        square = inside.abs().mean(dim, keepdim=True) ** 2
    eps = {"none": 0.0, "fixed": 1e-6, "squared": eps * eps, "twice": -eps}.get(small, eps)
    root = square.sqrt() + eps if small == "outside" else (square + eps).sqrt()
    if size == "square":
        root = root * root
    y = outside * root if size == "multiplied" else outside / root
    if gain in ("none", "before"):
        return y
    if gain == "added":
        return y + weight
    if gain == "divided":
        return y / weight
    return y * (1 + weight) if gain == "one more" else y * weight


# ---------------------------------------------------------------------------------------
# SwiGLU
# ---------------------------------------------------------------------------------------


def _swiglu(x: Tensor, W_gate: Tensor, W_up: Tensor, W_down: Tensor) -> Tensor:
    return (functional.silu(x @ W_gate) * (x @ W_up)) @ W_down


def _to_gate(*shape: int, hidden: int = 5, dtype: torch.dtype = torch.float32) -> laws.Draw:
    dim = shape[-1]

    def drawn(normal: Normal) -> Inputs:
        return {
            "x": normal(*shape, dtype=dtype),
            "W_gate": normal(dim, hidden, dtype=dtype),
            "W_up": normal(dim, hidden, dtype=dtype),
            "W_down": normal(hidden, dim, dtype=dtype),
        }

    return drawn


def _swiglu_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_to_gate(3, 4)(normal), "three positions"),
        Case(_to_gate(4, hidden=4)(normal), "a single position, and as many hidden features as others"),
        Case(_to_gate(2, 3, 4, hidden=7)(normal), "a batch"),
        Case(_to_gate(2, 1, 2, 3, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_to_gate(3, 3, hidden=3)(normal), "as many of everything"),
        Case(_to_gate(2, 1, hidden=1)(normal), "one feature, and one hidden feature"),
        Case(_to_gate(3, 4)(normal), "tensors that are not contiguous in memory", contiguous=False),
    ]


def _twice_as_large(name: str) -> Callable[[Normal], list[Inputs]]:
    def inputs(normal: Normal) -> list[Inputs]:
        drawn = _to_gate(3, 4)(normal)
        return [drawn, drawn | {name: 2 * drawn[name]}]

    return inputs


def _is_twice(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    return laws.is_not(values[1], 2 * values[0], "at {place} yours gives {yours}, not {expected}")


def _open_gate(normal: Normal) -> Inputs:
    return _to_gate(3, 4)(normal) | {"x": 1 + normal(3, 4).abs(), "W_gate": 30 * torch.ones(4, 5)}


def _gate_passes_itself(inputs: Inputs, value: Tensor) -> str | None:
    x = inputs["x"]
    expected = ((x @ inputs["W_gate"]) * (x @ inputs["W_up"])) @ inputs["W_down"]
    return laws.is_not(value, expected, "at {place} yours gives {yours}, not {expected}")


def _closed_gate(normal: Normal) -> Inputs:
    return _to_gate(3, 4)(normal) | {"x": 1 + normal(3, 4).abs(), "W_gate": -30 * torch.ones(4, 5)}


swiglu = Task(
    "swiglu",
    _swiglu,
    {
        "x": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
        "W_gate": torch.tensor([[40.0, 0.0, -50.0], [0.0, 100.0, 0.0]]),
        "W_up": torch.tensor([[2.0, 7.0, 9.0], [5.0, 3.0, 8.0]]),
        "W_down": torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]),
    },
    _swiglu_cases,
    laws=[
        laws.vanishes(
            "where all products with W_gate are 0, everything is 0",
            GATE,
            lambda normal: _to_gate(3, 4)(normal) | {"W_gate": torch.zeros(4, 5)},
        ),
        laws.vanishes(
            "where all products with W_gate are far below 0, nothing passes",
            GATE,
            _closed_gate,
        ),
        Law(
            "twice as large a W_up makes the output twice as large", GATE, _twice_as_large("W_up"), _is_twice
        ),
        Law(
            "twice as large a W_down makes the output twice as large",
            GATE,
            _twice_as_large("W_down"),
            _is_twice,
        ),
        Law(
            "where all products with W_gate are large, they multiply those with W_up as they are",
            GATE,
            _open_gate,
            _gate_passes_itself,
        ),
        laws.sequences_are_treated_alone(_to_gate(3, 2, 4), GATE, ("x",)),
    ],
)


@swiglu.made_of(
    gate=wrongs(
        GATE,
        """
        exchanged: W_gate and W_up are exchanged
            SiLU belongs to the product with W_gate. The other passes as it is, through the gate.
        both: SiLU is applied to both products
            One of the two is the gate; what goes through it is not bent.
        after: SiLU is applied to what the two products make together
            First SiLU of the one, then times the other.
        added: the two products are added instead of multiplied
            A gate lets through more or less of something: it multiplies.
        no gate: W_gate is not used
            Then it is the network of 2017 with another bend.
        no up: W_up is not used
            The gate is open more or less; what is it that passes?
        """,
    ),
    bend=wrongs(
        GATE,
        """
        sigmoid: the gate is a sigmoid, without the factor x
            SiLU(x) is x times the sigmoid of x. With the sigmoid alone, it is the GLU of which SwiGLU is a
            variant.
        relu: the gate is a ReLU
            That is ReGLU, another variant. SiLU is smooth, and a little negative below 0.
        gelu: the gate is a GELU
            That is GEGLU, another variant. SiLU has the sigmoid where GELU has the distribution function.
        none: nothing bends the gate
            SiLU is missing.
        tanh: the gate is a hyperbolic tangent
            SiLU(x) is x times the sigmoid of x.
        negated: the sigmoid has the opposite sign inside
            SiLU(x) = x / (1 + exp(-x)): for a large x it is nearly x. What does yours give for x = 10?
        """,
    ),
    result=wrongs(
        GATE,
        """
        hidden: W_down is not used
            As many features come back as came: W_down leads from the hidden features to them.
        residual: the input is added
            The sum belongs to the block, and comes later.
        """,
    ),
)
def any_swiglu(x, W_gate, W_up, W_down, *, gate="", bend="", result=""):
    def silu(y):
        match bend:
            case "sigmoid":
                return torch.sigmoid(y)
            case "relu":
                return torch.relu(y)
            case "gelu":
                return torch.nn.functional.gelu(y)
            case "none":
                return y
            case "tanh":
                return torch.tanh(y)
            case "negated":
                return y * torch.sigmoid(-y)
        return y * torch.sigmoid(y)

    first, second = x @ W_gate, x @ W_up
    match gate:
        case "exchanged":
            hidden = first * silu(second)
        case "both":
            hidden = silu(first) * silu(second)
        case "after":
            hidden = silu(first * second)
        case "added":
            hidden = silu(first) + second
        case "no gate":
            hidden = silu(second)
        case "no up":
            hidden = silu(first)
        case _:
            hidden = silu(first) * second
    if result == "hidden":
        return hidden
    return x + hidden @ W_down if result == "residual" else hidden @ W_down


# ---------------------------------------------------------------------------------------
# Grouped queries
# ---------------------------------------------------------------------------------------


def _grouped_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
    group = query.shape[-3] // key.shape[-3]
    found = attention(query, repeat_heads(key, group), repeat_heads(value, group), mask)
    assert isinstance(found, Tensor)
    return found


def _grouped(
    *batch: int,
    heads: int = 4,
    shared: int = 2,
    queries: int = 3,
    keys: int = 3,
    dim: int = 3,
    value_dim: int = 3,
    dtype: torch.dtype = torch.float32,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        return {
            "query": 1.5 * normal(*batch, heads, queries, dim, dtype=dtype),
            "key": normal(*batch, shared, keys, dim, dtype=dtype),
            "value": normal(*batch, shared, keys, value_dim, dtype=dtype),
            "mask": causal_mask(queries, keys),
        }

    return drawn


def _grouped_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    window = _grouped(heads=4, queries=5, keys=5)(normal)
    window["mask"] = window["mask"] & ~causal_mask(5).tril(-2)
    low = _grouped(heads=4, queries=4, keys=4, dtype=torch.float64)(normal)
    low["query"][..., 0], low["key"][..., 0] = 14, -14
    tempting = _grouped(heads=4, queries=4, keys=4)(normal)
    tempting["mask"] = causal_mask(4)
    # About 50: more would be infinitely much for who exponentiates first and multiplies by the mask then.
    tempting["query"][..., 0], tempting["key"][..., 3, 0] = 8, 11
    return [
        Case(_grouped(heads=4, shared=2)(normal), "four heads, of which two share keys and values"),
        Case(_grouped(heads=6, shared=2, dim=4, value_dim=2)(normal), "six heads in two groups"),
        Case(_grouped(heads=6, shared=3, queries=2, keys=5)(normal), "six heads in three groups, more keys"),
        Case(_grouped(heads=3, shared=1)(normal), "one head of keys and values for all"),
        Case(_grouped(heads=3, shared=3)(normal), "every head has its own"),
        Case(_grouped(2, heads=4, shared=2)(normal), "a batch"),
        Case(_grouped(2, 3, heads=4, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_grouped(4, heads=4, shared=2, queries=4, keys=4)(normal), "as many sequences as heads"),
        Case(_grouped(heads=4, shared=2, queries=1, keys=6)(normal), "a single query"),
        Case(window, "a window of two positions"),
        Case(_grouped(heads=4)(normal), "tensors that are not contiguous in memory", contiguous=False),
        Case(low, "scores that are all far below zero"),
        Case(tempting, "a hidden key with a large score"),
    ]


def _first_group(value: Tensor) -> Tensor:
    return value[:2]


def _other_heads_changed(inputs: Inputs, normal: Normal) -> Inputs:
    return {name: torch.cat([inputs[name][:1], normal(*inputs[name][1:].shape)]) for name in ("key", "value")}


def _same_queries(normal: Normal) -> Inputs:
    drawn = _grouped(heads=6, shared=2)(normal)
    return drawn | {"query": drawn["query"][:1].expand(6, -1, -1).clone()}


def _same_in_group(inputs: Inputs, value: Tensor) -> str | None:
    words = "at {place} head 1 of yours gives {yours}, and head 0 {expected}"
    return laws.is_not(value[1], value[0], words)


def _hidden_keys(inputs: Inputs, normal: Normal) -> Inputs:
    return {name: torch.cat([inputs[name][..., :2, :], 3 * normal(2, 1, 3)], -2) for name in ("key", "value")}


grouped_attention = Task(
    "grouped_attention",
    _grouped_attention,
    {
        "query": torch.zeros(4, 2, 4),
        "key": torch.zeros(2, 2, 4),
        "value": torch.tensor([[[2.0], [4.0]], [[10.0], [30.0]]]),
        "mask": torch.tensor([[True, False], [True, True]]),
    },
    _grouped_cases,
    laws=[
        laws.ones_come_back(_grouped(), "attention_operator#softargmax"),
        laws.stays(
            "of four heads that share two of keys and values, the first two see nothing of the second one",
            GROUPS,
            _grouped(heads=4, shared=2),
            _other_heads_changed,
            _first_group,
            when=("before the second one is changed", "after"),
        ),
        Law(
            "of six heads that share two, heads 0 and 1 with equal queries find the same",
            GROUPS,
            _same_queries,
            _same_in_group,
        ),
        laws.stays(
            "keys that are hidden from a query change nothing for it",
            "masking#masking-three-ways",
            _grouped(),
            _hidden_keys,
            lambda value: value[:, :2],
            when=("before a hidden key and its value are changed", "after"),
        ),
        laws.sequences_are_treated_alone(_grouped(3), GROUPS),
    ],
)

GROUPING = wrongs(
    GROUPS,
    """
    tiled: the heads take turns: head 1 has the second of the shared keys and values
        Neighbours are a group: with four heads and two of keys and values, heads 0 and 1 share the first.
        There are two ways to repeat something, `a b a b` and `a a b b`. Which is yours?
    keys tiled: for the keys the heads take turns, for the values neighbours are a group
        A head's values must be those of the positions whose keys it has compared.
    values tiled: for the values the heads take turns, for the keys neighbours are a group
        A head's values must be those of the positions whose keys it has compared.
    first: all heads use the first of the shared keys and values
        There are as many groups as there are heads of keys and values.
    mean: all heads use the mean of the shared keys and values
        Every group has keys and values of its own.
    backwards: the groups come in the opposite order
        The first heads share the first keys and values.
    dim 0: dimension 0 is repeated, which holds the heads only without a batch
        Dimensions counted from the front move when a batch is added. Count from the back.
    dim 1: dimension 1 is repeated, which holds the heads only in a single batch
        Dimensions counted from the front move when a batch is added. Count from the back.
    """,
)
MASKED = LOW | wrongs(
    "masking#masking-three-ways",
    """
    none: the mask is not used
        True means: may attend. What must become of the scores where it is False?
    inverted: what may be seen is hidden, and the other way round
        True means: may attend. What must be hidden?
    inverted, infinite: what may be seen is hidden by minus infinity, and the other way round
        True means: may attend. What must be hidden? Where all is hidden, the softargmax of nothing is NaN.
    zero: the scores that are to be hidden are made 0
        A score of 0 is a score like any other: after the exponential it is 1.
    after: the weights that are to be hidden are made 0 after the softargmax
        Then the others no longer sum to 1. Hide before the softargmax.
    """,
)


OF_ALL_HEADS = Wrong(
    "the scale counts the features of all heads together, and not those of one",
    """A score is the dot product of one query with one key. How many features have these two?""",
    "attention_operator#why-the-scale",
)


@grouped_attention.made_of(
    groups=GROUPING,
    scale={**only(SCALE, "none", "dim", "num keys", "multiplied", "after"), "all heads": OF_ALL_HEADS},
    axis=only(AXIS, "queries", "dim 0", "dim 1", "dim 2"),
    masked=MASKED,
)
def any_grouped(query, key, value, mask, *, groups="", scale="", axis="keys", masked=""):
    heads = query.shape[-3]
    number = torch.arange(heads)
    group = heads // key.shape[-3]
    neighbours = number // group
    turns = number % key.shape[-3]
    k, v = {
        "tiled": (turns, turns),
        "keys tiled": (turns, neighbours),
        "values tiled": (neighbours, turns),
        "first": (0 * number, 0 * number),
        "backwards": (neighbours.flip(0), neighbours.flip(0)),
    }.get(groups, (neighbours, neighbours))
    keys, values = key[..., k, :, :], value[..., v, :, :]
    if groups == "mean":
        keys = key.mean(-3, keepdim=True).expand_as(keys)
        values = value.mean(-3, keepdim=True).expand_as(values)
    if groups in ("dim 0", "dim 1"):
        dim = int(groups[-1])
        keys, values = key.repeat_interleave(group, dim), value.repeat_interleave(group, dim)
    scores = scaled(query @ keys.mT, query, keys, values, scale)
    if scale == "all heads":
        scores = scores / math.sqrt(heads)
    if masked == "zero":
        scores = scores * mask
    elif masked == "low":
        scores = scores.masked_fill(~mask, -30.0)
    elif masked == "inverted":
        scores = scores.masked_fill(mask, -1e30)
    elif masked == "inverted, infinite":
        scores = scores.masked_fill(mask, -torch.inf)
    elif masked == "":
        scores = scores.masked_fill(~mask, -1e30)
    weights = normalised(scores, axis, "")
    if masked == "after":
        weights = weights * mask
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    return weights @ values


# ---------------------------------------------------------------------------------------
# The attention of today
# ---------------------------------------------------------------------------------------


def _todays_attention(x: Tensor, weights: Weights, cache: Cache | None) -> tuple[Tensor, Cache]:
    query, key, value = (x.unsqueeze(-3) @ weights[name] for name in ("W_Q", "W_K", "W_V"))
    before = 0 if cache is None else cache[0].shape[-2]
    places = torch.arange(before, before + x.shape[-2])
    query, key = rotary(query, places), rotary(key, places)
    if cache is not None:
        key, value = torch.cat((cache[0], key), -2), torch.cat((cache[1], value), -2)
    mask = causal_mask(x.shape[-2], key.shape[-2])
    return merge_heads(_grouped_attention(query, key, value, mask)) @ weights["W_O"], (key, value)


def _attention_shapes(
    dim: int, heads: int, shared: int, head_dim: int | None = None
) -> dict[str, tuple[int, ...]]:
    head_dim = head_dim or dim // heads
    return {
        "W_Q": (heads, dim, head_dim),
        "W_K": (shared, dim, head_dim),
        "W_V": (shared, dim, head_dim),
        "W_O": (heads * head_dim, dim),
    }


def _learned(normal: Normal, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> Weights:
    """Weights by name: those of norms around 1, and matrices that leave numbers about as large."""
    found = {}
    for name, shape in shapes.items():
        drawn = normal(*shape, dtype=dtype)
        found[name] = 1 + 0.5 * drawn if len(shape) == 1 else drawn * shape[-2] ** -0.5
    return found


def _kept(
    normal: Normal, *batch: int, shared: int, num: int, head_dim: int, dtype: torch.dtype
) -> Cache | None:
    """Keys and values of so many positions before; None if there are none."""
    if not num:
        return None
    return normal(*batch, shared, num, head_dim, dtype=dtype), normal(
        *batch, shared, num, head_dim, dtype=dtype
    )


def _attending(
    *shape: int,
    heads: int = 2,
    shared: int = 1,
    before: int = 0,
    head_dim: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        *batch, _, dim = shape
        size = head_dim or dim // heads
        weights = _learned(normal, _attention_shapes(dim, heads, shared, size), dtype)
        # Sharp enough that one sees where somebody looks.
        weights["W_Q"] = 2 * weights["W_Q"]
        kept = _kept(normal, *batch, shared=shared, num=before, head_dim=size, dtype=dtype)
        return {"x": normal(*shape, dtype=dtype), "weights": weights, "cache": kept}

    return drawn


def _attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    tempting = _attending(4, 8, heads=4, shared=2)(normal)
    tempting["x"][3] *= 25
    return [
        Case(_attending(4, 8)(normal), "four positions, two heads that share keys and values"),
        Case(_attending(3, 8, heads=4, shared=2)(normal), "four heads in two groups"),
        Case(_attending(3, 6, heads=3, shared=3)(normal), "every head has its own keys and values"),
        Case(_attending(1, 8, before=3)(normal), "a new position after three in the cache"),
        Case(
            _attending(3, 8, heads=4, shared=2, before=2, head_dim=6)(normal),
            "three new ones after two in the cache, and heads that have more features in all than x",
        ),
        Case(_attending(2, 8, heads=4, shared=2, before=5)(normal), "two new ones after five in the cache"),
        Case(_attending(2, 4, 8)(normal), "a batch"),
        Case(_attending(2, 3, 2, 8, before=2, dtype=torch.float64)(normal), "batches, a cache, in float64"),
        Case(_attending(4, 4, 8, heads=4, shared=4, before=4)(normal), "as many of everything"),
        Case(_attending(1, 4)(normal), "a single position"),
        Case(_attending(3, 8, before=3)(normal), "an input that is not contiguous", contiguous=False),
        Case(tempting, "a last position with large numbers"),
    ]


def _without_turning(place: int, name: str) -> Callable[[Inputs, Any], str | None]:
    def broken(inputs: Inputs, value: Any) -> str | None:
        expected = inputs["x"].unsqueeze(-3) @ inputs["weights"][name]
        found = value[1][place]
        if place == 0:
            found, expected = found.norm(dim=-1), expected.norm(dim=-1)
            return laws.is_not(found, expected, "for [head, position] {place} yours has {yours}")
        return laws.is_not(found, expected, "yours has {yours} at {place}, not {expected}")

    return broken


def _alone(inputs: Inputs, value: Any) -> str | None:
    x, weights = inputs["x"], inputs["weights"]
    own = (x.unsqueeze(-3) @ weights["W_V"]).expand(2, -1, -1)
    expected = merge_heads(own) @ weights["W_O"]
    return laws.is_not(value[0], expected, "at {place} yours gives {yours}, not {expected}")


def _last_changed(inputs: Inputs, normal: Normal) -> Inputs:
    return {"x": torch.cat([inputs["x"][:-1], normal(1, inputs["x"].shape[-1])])}


def _all_but_last(value: Any) -> Tensor:
    return value[0][..., :-1, :]


LATER = ("before the last position is changed", "after")


def _in_pieces(
    reference: Callable[[Tensor, Weights, Cache | None], tuple[Tensor, Cache]], draw: laws.Draw
) -> Callable[[Normal], list[Inputs]]:
    """The whole text, and its last part with what a right answer keeps of the first two positions."""

    def inputs(normal: Normal) -> list[Inputs]:
        drawn = draw(normal)
        _, kept = reference(drawn["x"][:2], drawn["weights"], None)
        return [drawn, drawn | {"x": drawn["x"][2:], "cache": kept}]

    return inputs


def _as_in_one_pass(inputs: list[Inputs], values: list[Any]) -> str | None:
    words = "at {place} of the second part yours gives {yours}, and in one pass {expected}"
    return laws.is_not(values[1][0], values[0][0][2:], words)


def _one_vector(draw: laws.Draw) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        inputs = draw(normal)
        return inputs | {"x": inputs["x"][:1].expand_as(inputs["x"]).clone()}

    return drawn


def _all_rows_alike(inputs: Inputs, value: Any) -> str | None:
    output = value[0]
    words = "at {place} yours gives {yours}, and {expected} at position 0"
    return laws.is_not(output, output[:1].expand_as(output), words)


def _part(*place: int) -> str:
    """The names of what comes back with a cache."""
    return ("output", "cache")[place[0]] if len(place) == 1 else ("keys", "values")[place[1]]


todays_attention = Task(
    "todays_attention",
    _todays_attention,
    {
        "x": torch.tensor([[1.0, 0.0], [0.0, 3.0]]),
        "weights": {
            "W_Q": torch.tensor([[[5.0, 0.0], [0.0, 5.0]]]),
            "W_K": torch.zeros(1, 2, 2),
            "W_V": torch.tensor([[[2.0, 0.0], [0.0, 4.0]]]),
            "W_O": torch.tensor([[1.0, 0.0], [10.0, 1.0]]),
        },
        "cache": None,
    },
    _attention_cases,
    laws=[
        Law(
            "the very first position sees nothing but itself: all heads find its own value",
            TURNED,
            _attending(1, 8),
            _alone,
        ),
        Law(
            "the values that are kept are x W_V: nobody turns them",
            TURNED,
            _attending(4, 8),
            _without_turning(1, "W_V"),
        ),
        Law(
            "a key that is kept is as long as x W_K: turning changes no length",
            TURNED,
            _attending(4, 8),
            _without_turning(0, "W_K"),
        ),
        laws.stays(
            "what comes later changes nothing for those before it",
            "masking#masking-the-leak",
            _attending(4, 8, heads=4, shared=2),
            _last_changed,
            _all_but_last,
            when=LATER,
        ),
        Law(
            "where all positions have the same features, all find the same: nobody can count from where "
            "the text began",
            TURNED,
            _one_vector(_attending(4, 8)),
            _all_rows_alike,
        ),
        Law(
            "after a right cache of the first part of a text, the second part comes out as in one pass",
            CACHE,
            _in_pieces(_todays_attention, _attending(5, 8, heads=4, shared=2)),
            _as_in_one_pass,
        ),
    ],
    allows=("rotary", "causal_mask"),
    builds_on=("grouped_attention",),
    part=_part,
)


@todays_attention.made_of(
    turned=wrongs(
        TURNED,
        """
        none: nothing is turned
            Without it, nobody knows how far apart two positions stand.
        values: the values are turned, too
            Turning is there for the scores: a product of two turned vectors depends on their distance. What
            is handed over must be the same from wherever it is seen.
        queries only: only the queries are turned
            Only if both are turned, the two angles become one difference.
        keys only: only the keys are turned
            Only if both are turned, the two angles become one difference.
        input: the input is turned before queries, keys and values are made of it
            Then the matrices mix the turned pairs, and the values are turned with them. Turn what is
            compared.
        before the matrices: the input is turned before queries and keys are made of it
            The matrices would mix pairs that have been turned by different angles. Turn what is compared.
        opposite: queries and keys are turned against each other
            Both go round the same way. Then the difference of the angles is left.
        """,
    ),
    places=wrongs(
        TURNED,
        """
        restart: with a cache, positions are counted from 0 again
            The first new position stands behind those in the cache. How many are there?
        queries restart: with a cache, the queries are counted from 0 again
            Query and key of one position stand at the same place.
        keys restart: with a cache, the keys are counted from 0 again
            Query and key of one position stand at the same place.
        again: the keys of the cache are turned once more
            They have been turned when they were new. Turn the new ones, and append them then.
        at each step: keys go into the cache before they are turned, and at each step all are turned
            Those in the cache that you get have been turned already, and so must be what you add to it.
        unturned: the keys are put into the cache before they are turned
            What is in the cache has been turned, and so must be what you add to it.
        from one: positions are counted from 1
            The scores do not show it, as only distances count. But the keys that you keep are turned by one
            step too many. The first position is 0.
        one less: with a cache, positions are counted from one too few
            With three positions in the cache, they have the numbers 0, 1 and 2. Which is next?
        """,
    ),
    groups=only(GROUPING, "tiled", "first"),
    seen=wrongs(
        "masking#rectangular-masks",
        """
        everything: of several new positions, the earlier ones see the later ones
            Which mask says that a position sees itself and those before it?
        from start: the causal mask is aligned at the start, and hides the cache
            The new positions are the last ones. The first of them sees the whole cache and itself.
        not itself: a position does not see itself
            The diagonal belongs to a causal mask.
        new only: the new positions see only one another, and not the cache
            Who answers the new queries, if not the keys that were kept? (your_model#writing-with-a-cache)
        """,
    ),
    kept=wrongs(
        CACHE,
        """
        as it was: what comes back of keys and values is only what came, without the new ones
            The next step will need those of this one as well.
        new only: what comes back of keys and values is only the new ones
            The next step will need the earlier ones, too.
        exchanged: keys and values come back in the wrong order
            First the keys, then the values.
        in front: the new keys and values are put in front of those before
            They stand in the order of the text.
        ignored: the cache that comes is not used
            The new positions stand behind those in the cache, and see them.
        """,
    ),
    out=wrongs(
        "multihead#multihead-layer",
        """
        none: W_O is not used
            What the heads find, side by side, goes through one more matrix.
        reshaped: the heads are put side by side by a reshape that mixes positions and heads
            Before the last reshape, the features of all heads of one position must lie side by side.
            (multihead#slices)
        transposed: W_O is transposed
            Rows are positions: `found @ W_O` fits as it stands.
        """,
    ),
    scale={**only(SCALE, "none", "dim", "multiplied"), "all heads": OF_ALL_HEADS},
)
def any_todays_attention(
    x, weights, cache, *, turned="", places="", groups="", seen="", kept="", out="", scale=""
):
    def turn(y, t):
        d = y.shape[-1]
        angles = t.to(y.dtype)[:, None] / 10_000 ** (torch.arange(0, d, 2, dtype=y.dtype) / d)
        cos, sin = angles.cos(), angles.sin()
        a, b = y[..., 0::2], y[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    new = x.shape[-2]
    cache = None if kept == "ignored" else cache
    before = 0 if cache is None else cache[0].shape[-2]
    start = {"restart": 0, "from one": before + 1, "one less": max(before - 1, 0)}.get(places, before)
    t = start + torch.arange(new)
    if turned == "input":
        x = turn(x, t)
    query, key, value = (x.unsqueeze(-3) @ weights[name] for name in ("W_Q", "W_K", "W_V"))
    if turned == "before the matrices":
        query, key = (turn(x, t).unsqueeze(-3) @ weights[name] for name in ("W_Q", "W_K"))
    unturned = key
    if turned not in ("none", "keys only", "input", "before the matrices"):
        query = turn(query, t - start if places == "queries restart" else t)
    if turned not in ("none", "queries only", "input", "before the matrices"):
        key = turn(key, t - start if places == "keys restart" else -t if turned == "opposite" else t)
    if turned == "values":
        value = turn(value, t)
    old_key, old_value = (key[..., :0, :], value[..., :0, :]) if cache is None else cache
    if places in ("again", "at each step"):
        keys = turn(torch.cat((old_key, unturned), -2), torch.arange(before + new))
    elif kept == "in front":
        keys = torch.cat((key, old_key), -2)
    else:
        keys = torch.cat((old_key, key), -2)
    values = torch.cat((value, old_value) if kept == "in front" else (old_value, value), -2)
    edge = {"from start": 0, "not itself": before - 1, "everything": before + new}.get(seen, before)
    mask = torch.ones(new, before + new, dtype=torch.bool).tril(edge)
    if seen == "new only":
        mask = mask.tril(before).triu(before) | (mask & (torch.arange(before + new) >= before))
    found = any_grouped(query, keys, values, mask, groups=groups, scale=scale)
    merged = found.transpose(-3, -2).flatten(-2)
    if out == "reshaped":
        merged = found.reshape(merged.shape)
    W_O = weights["W_O"].mT if out == "transposed" else weights["W_O"]
    output = merged if out == "none" else merged @ W_O
    if kept == "as it was":
        return output, (old_key.clone(), old_value.clone())
    if kept == "new only":
        return output, (key, value)
    if places in ("unturned", "at each step"):
        keys = torch.cat((old_key, unturned), -2)
    return output, ((values, keys) if kept == "exchanged" else (keys, values))


# ---------------------------------------------------------------------------------------
# The block
# ---------------------------------------------------------------------------------------


def _below(weights: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): part for name, part in weights.items() if name.startswith(prefix)}


def _llama_block(x: Tensor, weights: Weights, cache: Cache | None) -> tuple[Tensor, Cache]:
    found, cache = _todays_attention(
        _rms_norm(x, weights["attention_norm.weight"], EPS), _below(weights, "attention."), cache
    )
    x = x + found
    y = _rms_norm(x, weights["mlp_norm.weight"], EPS)
    matrices = (weights[f"mlp.W_{name}"] for name in ("gate", "up", "down"))
    return x + _swiglu(y, *matrices), cache


def _block_shapes(dim: int, heads: int, shared: int, hidden: int) -> dict[str, tuple[int, ...]]:
    attention_ = _attention_shapes(dim, heads, shared)
    return {
        "attention_norm.weight": (dim,),
        **{f"attention.{name}": shape for name, shape in attention_.items()},
        "mlp_norm.weight": (dim,),
        "mlp.W_gate": (dim, hidden),
        "mlp.W_up": (dim, hidden),
        "mlp.W_down": (hidden, dim),
    }


def _one_block(
    *shape: int,
    heads: int = 2,
    shared: int = 1,
    hidden: int = 5,
    before: int = 0,
    times: float = 1.0,
    dtype: torch.dtype = torch.float32,
    **instead: Tensor,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        *batch, _, dim = shape
        weights = _learned(normal, _block_shapes(dim, heads, shared, hidden), dtype)
        kept = _kept(normal, *batch, shared=shared, num=before, head_dim=dim // heads, dtype=dtype)
        changed = {name.replace("__", "."): part for name, part in instead.items()}
        return {"x": times * normal(*shape, dtype=dtype), "weights": weights | changed, "cache": kept}

    return drawn


def _block_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_one_block(4, 8)(normal), "four positions"),
        Case(_one_block(3, 12, heads=6, shared=2)(normal), "six heads in two groups"),
        Case(_one_block(1, 8, before=3)(normal), "a new position after three in the cache"),
        Case(_one_block(3, 8, heads=4, shared=2, before=2)(normal), "three new ones after two in the cache"),
        Case(_one_block(2, 3, 8)(normal), "a batch"),
        Case(_one_block(2, 2, 2, 8, before=2, dtype=torch.float64)(normal), "batches, a cache, in float64"),
        Case(_one_block(1, 4)(normal), "a single position"),
        Case(_one_block(3, 8, times=0.003)(normal), "small features"),
    ]


def _silent(*names: str) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        inputs = _one_block(4, 8)(normal)
        weights = inputs["weights"]
        return inputs | {"weights": weights | {name: torch.zeros_like(weights[name]) for name in names}}

    return drawn


def _input_comes_back(inputs: Inputs, value: Any) -> str | None:
    return laws.is_not(value[0], inputs["x"], "at {place} yours gives {yours}, and the input has {expected}")


def _is_mlp_of_input(inputs: Inputs, value: Any) -> str | None:
    x, weights = inputs["x"], inputs["weights"]
    normed = x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weights["mlp_norm.weight"]
    hidden = functional.silu(normed @ weights["mlp.W_gate"]) * (normed @ weights["mlp.W_up"])
    words = "at {place} yours gives {yours}, not {expected}"
    return laws.is_not(value[0], x + hidden @ weights["mlp.W_down"], words)


def _of_other_sizes(normal: Normal) -> list[Inputs]:
    drawn = _silent("mlp.W_down")(normal)
    return [drawn, drawn | {"x": 100 * drawn["x"]}]


def _adds_the_same(inputs: list[Inputs], values: list[Any]) -> str | None:
    added = [value[0] - one["x"] for one, value in zip(inputs, values, strict=True)]
    if torch.allclose(added[0], added[1], 1e-2, 2e-3):
        return None
    return (
        f"yours adds {shown(added[0].flatten()[0])} to the first number, and {shown(added[1].flatten()[0])}"
    )


llama_block = Task(
    "llama_block",
    _llama_block,
    {
        "x": torch.tensor([[3.0, -3.0], [2.0, 2.0]]),
        "weights": {
            "attention_norm.weight": torch.tensor([1.0, 1.0]),
            "attention.W_Q": torch.zeros(1, 2, 2),
            "attention.W_K": torch.zeros(1, 2, 2),
            "attention.W_V": torch.tensor([[[2.0, 0.0], [0.0, 4.0]]]),
            "attention.W_O": torch.eye(2),
            "mlp_norm.weight": torch.tensor([10.0, 10.0]),
            "mlp.W_gate": torch.zeros(2, 3),
            "mlp.W_up": torch.ones(2, 3),
            "mlp.W_down": torch.ones(3, 2),
        },
        "cache": None,
    },
    _block_cases,
    laws=[
        Law(
            "where W_O and W_down are 0, the input comes back",
            BLOCK,
            _silent("attention.W_O", "mlp.W_down"),
            _input_comes_back,
        ),
        Law(
            "where W_O is 0, what is added is what the small network makes of the normalised input",
            BLOCK,
            _silent("attention.W_O"),
            _is_mlp_of_input,
        ),
        Law(
            "where W_down is 0, an input a hundred times as large has the same added to it",
            BLOCK,
            _of_other_sizes,
            _adds_the_same,
        ),
        laws.stays(
            "what comes later changes nothing for those before it",
            "masking#masking-the-leak",
            _one_block(4, 8),
            _last_changed,
            _all_but_last,
            when=LATER,
        ),
        Law(
            "after a right cache of the first part of a text, the second part comes out as in one pass",
            CACHE,
            _in_pieces(_llama_block, _one_block(5, 8, heads=4, shared=2)),
            _as_in_one_pass,
        ),
    ],
    allows=("rotary", "causal_mask"),
    builds_on=("rms_norm", "swiglu", "grouped_attention", "todays_attention"),
    part=_part,
)


@llama_block.made_of(
    norms=wrongs(
        BLOCK,
        """
        after: the norms stand after the sums, as in 2017
            Here what goes *into* a step is normalised, and the sum itself never is.
            (transformer#pre-and-post)
        of what is found: what a step finds is normalised, and not what goes into it
            Normalise first, and hand that to the step.
        none: nothing is normalised
            There are two weights for norms in the dictionary.
        no first: what goes into the attention is not normalised
            Each of the two steps has a norm of its own in front of it.
        no second: what goes into the small network is not normalised
            Each of the two steps has a norm of its own in front of it.
        exchanged: the two norms have changed places
            `attention_norm` stands in front of the attention, `mlp_norm` in front of the small network.
        both: the normalised input is what is added to
            The sum goes on as it is. Only what goes into a step is normalised.
        added first: in the first step, the normalised input is what is added to
            The sum goes on as it is. Only what goes into a step is normalised.
        added second: in the second step, the normalised sum is what is added to
            The sum goes on as it is. Only what goes into a step is normalised.
        """,
    ),
    sums=wrongs(
        BLOCK,
        """
        no first: what goes in is not added to what the attention finds
            Each of the two steps adds to what came into it.
        no second: what goes in is not added to what the small network finds
            Each of the two steps adds to what came into it.
        beside: the small network works on the input of the block, and not on the sum
            The second step takes what the first one leaves.
        input twice: what the small network finds is added to the input of the block, and not to the sum
            The second step adds to what the first one leaves.
        network first: the small network comes first, and then the attention
            First look around, then think.
        """,
    ),
    kept=wrongs(
        CACHE,
        """
        forgotten: the cache is not handed to the attention
            Without it, the new positions see nothing of those before.
        old: the cache comes back as it came
            What comes back is what your attention gives: with the new keys and values.
        """,
    ),
    small=wrongs(
        NORM,
        """
        usual: eps is 1e-5, and not 1e-6
            With a model come the numbers that it was trained with. Where features are small one sees it.
        none: eps is 0
            With a model come the numbers that it was trained with. Where features are small one sees it.
        """,
    ),
    network=wrongs(
        GATE,
        """
        exchanged: W_gate and W_up are exchanged
            They come by name. In which order does your function take them?
        """,
    ),
)
def any_block(x, weights, cache, *, norms="", sums="", kept="", small="", network=""):
    eps = {"usual": 1e-5, "none": 0.0}.get(small, 1e-6)
    given_cache = cache

    def norm(y, name):
        if norms == "exchanged":
            name = {"attention_norm": "mlp_norm", "mlp_norm": "attention_norm"}[name]
        return any_rms_norm(y, weights[name + ".weight"], eps)

    def attend(y):
        parts = {name: weights["attention." + name] for name in ("W_Q", "W_K", "W_V", "W_O")}
        return any_todays_attention(y, parts, None if kept == "forgotten" else given_cache)

    def think(y):
        first, second = ("up", "gate") if network == "exchanged" else ("gate", "up")
        return any_swiglu(y, weights["mlp.W_" + first], weights["mlp.W_" + second], weights["mlp.W_down"])

    def step(y, name, function):
        inside = norms not in ("after", "of what is found", "none")
        skipped = {"no first": "attention_norm", "no second": "mlp_norm"}.get(norms)
        normed = norm(y, name) if inside and name != skipped else y
        found = function(normed)
        found, new = found if name == "attention_norm" else (found, None)
        if norms == "of what is found":
            found = norm(found, name)
        left_out = {"no first": "attention_norm", "no second": "mlp_norm"}.get(sums)
        added = {"added first": "attention_norm", "added second": "mlp_norm", "both": name}.get(norms)
        total = found if name == left_out else (normed if name == added else y) + found
        return (norm(total, name) if norms == "after" else total), new

    if sums == "network first":
        y, _ = step(x, "mlp_norm", think)
        y, new = step(y, "attention_norm", attend)
    else:
        z, new = step(x, "attention_norm", attend)
        y, _ = step(z, "mlp_norm", think)
        if sums == "beside":
            y = z + step(x, "mlp_norm", think)[0] - x
        if sums == "input twice":
            y = x + y - z
    if kept == "old":
        new = tuple(part[..., : part.shape[-2] - x.shape[-2], :] for part in new)
    return y, new


# ---------------------------------------------------------------------------------------
# The model
# ---------------------------------------------------------------------------------------


def _language_model(
    tokens: Tensor, weights: Weights, caches: list[Cache] | None
) -> tuple[Tensor, list[Cache]]:
    """The course's model, filled with these weights."""
    heads, dim, _ = weights["blocks.0.attention.W_Q"].shape
    config = your_model.ModelConfig(
        vocabulary_size=len(weights["table"]),
        model_dim=dim,
        num_heads=heads,
        num_blocks=sum(name.endswith(".mlp_norm.weight") for name in weights),
        hidden_dim=weights["blocks.0.mlp.W_up"].shape[1],
        num_key_value_heads=len(weights["blocks.0.attention.W_K"]),
    )
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model = your_model.LanguageModel(config).to(weights["table"].dtype).eval()
        model.load_state_dict(weights)
        new_caches = model.new_caches()
        for old, new in zip(caches or [], new_caches, strict=bool(caches)):
            new.append(*old)
        logits = model(tokens, new_caches)
    assert isinstance(logits, Tensor)
    return logits, [(cache.key.clone(), cache.value.clone()) for cache in new_caches]


VOCABULARY = 6


def _text(
    *shape: int,
    blocks: int = 2,
    heads: int = 2,
    shared: int = 1,
    dim: int = 4,
    before: int = 0,
    dtype: torch.dtype = torch.float32,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        # Logits are sums of numbers of either sign: with a small table they are as precise as the rest.
        weights = {"table": 0.4 * normal(VOCABULARY, dim, dtype=dtype)}
        for number in range(blocks):
            block = _learned(normal, _block_shapes(dim, heads, shared, 5), dtype)
            weights |= {f"blocks.{number}.{name}": part for name, part in block.items()}
        weights["norm.weight"] = 1 + 0.5 * normal(dim, dtype=dtype)
        kept = None
        if before:
            of_each = (
                _kept(normal, *shape[:-1], shared=shared, num=before, head_dim=dim // heads, dtype=dtype)
                for _ in range(blocks)
            )
            kept = list(of_each)
        tokens = (normal(*shape, dtype=torch.float64).mul(1000).long() % VOCABULARY).clone()
        return {"tokens": tokens, "weights": weights, "caches": kept}

    return drawn


def _model_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    double = torch.float64
    # Each step makes rounding larger, most where features are small: in float32 a right answer could be a
    # ten-thousandth off.
    return [
        Case(_text(4, blocks=2, heads=6, shared=2, dim=12, dtype=double)(normal), "six heads in two groups"),
        # Here and below four features a head: with two there is one frequency, whatever the base.
        Case(_text(5, blocks=1, dim=8)(normal), "one block, four features a head"),
        Case(_text(4, blocks=3, dtype=double)(normal), "three blocks"),
        Case(_text(1, before=3, dtype=double)(normal), "a new token after three in the caches"),
        Case(
            _text(3, blocks=3, dim=8, before=2, dtype=double)(normal),
            "three new tokens after two in the caches, four features a head",
        ),
        Case(_text(3, blocks=12, dtype=double)(normal), "twelve blocks"),
        Case(_text(2, 3, dtype=double)(normal), "a batch"),
        Case(_text(2, 2, 3, before=2, dtype=double)(normal), "batches, caches"),
        Case(_text(1, dtype=double)(normal), "a single token"),
        Case(_faint(_text(4, dtype=double)(normal)), "features so small that eps counts"),
    ]


def _faint(inputs: Inputs) -> Inputs:
    small = ("table", "W_O", "W_down")
    weights = {name: part / 20 if name.endswith(small) else part for name, part in inputs["weights"].items()}
    return inputs | {"weights": weights}


def _with_zero(*names: str, blocks: int = 2) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        inputs = _text(4, blocks=blocks)(normal)
        weights = inputs["weights"]
        zeros = {name: torch.zeros_like(part) for name, part in weights.items() if name.endswith(names)}
        return inputs | {"weights": weights | zeros}

    return drawn


def _all_zero(inputs: Inputs, value: Any) -> str | None:
    return laws.is_not(value[0], torch.zeros_like(value[0]), "yours gives {yours} at {place}")


def _is_table_twice(inputs: Inputs, value: Any) -> str | None:
    weights = inputs["weights"]
    x = weights["table"][inputs["tokens"]]
    normed = x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * weights["norm.weight"]
    return laws.is_not(
        value[0], normed @ weights["table"].mT, "at {place} yours gives {yours}, not {expected}"
    )


def _last_token_changed(inputs: Inputs, normal: Normal) -> Inputs:
    last = (inputs["tokens"][-1:] + 1) % VOCABULARY
    return {"tokens": torch.cat([inputs["tokens"][:-1], last])}


def _one_token(normal: Normal) -> Inputs:
    return _text(5)(normal) | {"tokens": torch.tensor([3, 3, 3, 3, 3])}


def _text_in_pieces(normal: Normal) -> list[Inputs]:
    drawn = _text(5, blocks=2, heads=4, shared=2, dim=8)(normal)
    _, kept = _language_model(drawn["tokens"][:2], drawn["weights"], None)
    return [drawn, drawn | {"tokens": drawn["tokens"][2:], "caches": kept}]


def _last_rows_alike(inputs: Inputs, value: Any) -> str | None:
    output = value[0]
    words = "at {place} yours gives {yours}, and {expected} at position 0"
    return laws.is_not(output, output[:1].expand_as(output), words)


def _model_part(*place: int) -> str:
    """The names of what the model gives."""
    match place:
        case (number,):
            return ("logits", "caches")[number]
        case (_, block):
            return f"block {block}"
    return ("keys", "values")[place[-1]]


language_model = Task(
    "language_model",
    _language_model,
    {
        "tokens": torch.tensor([2, 0]),
        "weights": {
            "table": torch.tensor([[1.0, 1.0], [0.0, 5.0], [3.0, -3.0]]),
            "blocks.0.attention_norm.weight": torch.tensor([1.0, 1.0]),
            "blocks.0.attention.W_Q": torch.zeros(1, 2, 2),
            "blocks.0.attention.W_K": torch.zeros(1, 2, 2),
            "blocks.0.attention.W_V": torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]),
            "blocks.0.attention.W_O": torch.tensor([[1.0, 0.0], [0.0, 1.0]]),
            "blocks.0.mlp_norm.weight": torch.tensor([1.0, 1.0]),
            "blocks.0.mlp.W_gate": torch.zeros(2, 1),
            "blocks.0.mlp.W_up": torch.zeros(2, 1),
            "blocks.0.mlp.W_down": torch.zeros(1, 2),
            "norm.weight": torch.tensor([1.0, 2.0]),
        },
        "caches": None,
    },
    _model_cases,
    laws=[
        Law(
            "where the weight of the last norm is 0, so are all logits",
            MODEL,
            _with_zero("norm.weight"),
            _all_zero,
        ),
        Law(
            "where all blocks add nothing, the logits are products of normalised rows of the table with all "
            "its rows",
            MODEL,
            _with_zero("W_O", "W_down"),
            _is_table_twice,
        ),
        laws.stays(
            "what comes later changes nothing for those before it",
            "masking#masking-the-leak",
            _text(4),
            _last_token_changed,
            _all_but_last,
            when=LATER,
        ),
        Law(
            "where a text is one token again and again, the logits are the same everywhere",
            TURNED,
            _one_token,
            _last_rows_alike,
        ),
        Law(
            "after right caches of the first part of a text, the second part comes out as in one pass",
            CACHE,
            _text_in_pieces,
            _as_in_one_pass,
        ),
    ],
    allows=("rotary", "causal_mask"),
    builds_on=("rms_norm", "swiglu", "grouped_attention", "todays_attention", "llama_block"),
    part=_model_part,
)


@language_model.made_of(
    blocks=wrongs(
        MODEL,
        """
        first only: only the first block is applied
            What comes out of a block goes into the next. How many are there, by the names of the weights?
        last missing: the last block is left out
            Blocks are numbered from 0. If the largest number is 3, how many are there?
        backwards: the blocks are applied in the opposite order
            Block 0 comes first.
        alphabet: the blocks are sorted as words, so that 10 comes before 2
            Names are sorted letter by letter. Count with numbers.
        four: there are four blocks, always
            How many there are, the names say: this model has as many as its names number.
        same: all blocks have the weights of the first
            The number in a name says whose weight it is.
        """,
    ),
    into=wrongs(
        MODEL,
        """
        scaled: the rows of the table are multiplied by the square root of their length
            The Transformer of 2017 does so. This model takes them as they are.
        placed: sinusoidal positions are added to the tokens
            This model has its positions inside the attention, and nowhere else. (your_model#rotary-inside)
        normed: the rows of the table are normalised before the first block
            Each block normalises for itself what it looks at.
        """,
    ),
    out=wrongs(
        MODEL,
        """
        no norm: the last norm is left out
            Blocks add and add, and nobody normalises the sum. `norm.weight` is left: where does it belong?
        no table: what leaves the last norm comes back, without the table
            How well does a token fit as the next one? Its row of the table says so, by a dot product.
        probabilities: probabilities come back instead of logits
            How a token is chosen comes later, and wants the logits.
        last: only the logits of the last position come back
            In training every position is asked for the next token.
        first norm: the last norm is done with the weight of block 0
            The norm behind the last block has a weight of its own, `norm.weight`.
        """,
    ),
    small=wrongs(
        NORM,
        """
        usual: eps of the last norm is 1e-5, and not 1e-6
            With a model come the numbers that it was trained with.
        """,
    ),
    kept=wrongs(
        CACHE,
        """
        forgotten: the caches are not handed to the blocks
            Without them, the new tokens see nothing of those before.
        first: all blocks get the cache of the first
            Each block has keys and values of its own.
        last: only the cache of the last block comes back
            The next step needs those of all blocks, in their order, as a list.
        backwards: the caches come back in the opposite order
            The first belongs to block 0.
        """,
    ),
)
def any_model(tokens, weights, caches, *, blocks="", into="", out="", small="", kept=""):
    def below(prefix):
        return {name[len(prefix) :]: part for name, part in weights.items() if name.startswith(prefix)}

    numbers = sorted({int(name.split(".")[1]) for name in weights if name.startswith("blocks.")})
    table, dim = weights["table"], weights["table"].shape[1]
    x = table[tokens]
    if into == "scaled":
        x = x * dim**0.5
    if into == "placed":
        first = 0 if caches is None else caches[0][0].shape[-2]
        t = torch.arange(first, first + tokens.shape[-1], dtype=x.dtype)[:, None]
        angles = t / 10_000 ** (torch.arange(0, dim, 2, dtype=x.dtype) / dim)
        x = x + torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)
    if into == "normed":
        x = any_rms_norm(x, weights["norm.weight"], 1e-6)
    order = {
        "first only": numbers[:1],
        "last missing": numbers[:-1],
        "backwards": numbers[::-1],
        "alphabet": sorted(numbers, key=str),
        "four": range(4),
    }.get(blocks, numbers)
    new = []
    for place, number in enumerate(order):
        block = below("blocks." + str(0 if blocks == "same" else number) + ".")
        cache = None if caches is None or kept == "forgotten" else caches[0 if kept == "first" else place]
        x, cache = any_block(x, block, cache)
        new.append(cache)
    if kept == "last":
        new = new[-1:]
    if kept == "backwards":
        new = new[::-1]
    if out != "no norm":
        name = "blocks.0.attention_norm.weight" if out == "first norm" else "norm.weight"
        x = any_rms_norm(x, weights[name], 1e-5 if small else 1e-6)
    if out == "no table":
        return x, new
    logits = x @ table.mT
    if out == "probabilities":
        logits = torch.softmax(logits, -1)
    return (logits[..., -1, :] if out == "last" else logits), new


# ---------------------------------------------------------------------------------------
# How many texts fit
# ---------------------------------------------------------------------------------------

SERVED = (
    "memory",
    "num_parameters",
    "num_blocks",
    "model_dim",
    "num_heads",
    "num_key_value_heads",
    "num_tokens",
    "window",
)


def _texts_that_fit(
    memory: int,
    num_parameters: int,
    num_blocks: int,
    model_dim: int,
    num_heads: int,
    num_key_value_heads: int,
    num_tokens: int,
    window: int | None,
) -> int:
    config = your_model.ModelConfig(
        vocabulary_size=1,
        model_dim=model_dim,
        num_heads=num_heads,
        num_blocks=num_blocks,
        hidden_dim=1,
        num_key_value_heads=num_key_value_heads,
        window=window,
    )
    left = memory - 2 * num_parameters
    return max(0, left // your_model.cache_bytes(config, num_tokens))


def _served(*numbers: int | None) -> dict[str, Any]:
    return dict(zip(SERVED, numbers, strict=True))


def _fit_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole

    def case(
        note: str,
        texts: int,
        groups: int,
        per: int,
        tokens: int,
        window: int | None,
        parameters: int,
        is_full: bool = False,
    ) -> Case:
        """So much memory that so many texts fit, and a part of one more, or nothing."""
        blocks, head_dim = whole(3, 40), 2 * whole(9, 64)
        heads = groups * per
        kept = tokens if window is None else min(tokens, window)
        one = 2 * 2 * blocks * groups * head_dim * kept
        memory = 2 * parameters + texts * one + (0 if is_full else whole(one // 3, 2 * one // 3))
        sizes = (memory, parameters, blocks, heads * head_dim, heads, groups, tokens, window)
        return Case(_served(*sizes), note)

    return [
        case("every head has its own keys and values", whole(5, 30), whole(3, 8), 1, 999, None, 10**6),
        case("groups of heads", whole(40, 90), whole(2, 8), whole(2, 8), 2000, None, 7 * 10**7),
        case("one head of keys and values", whole(100, 200), 1, whole(3, 32), 4000, None, 10**6),
        case("a window that is shorter than the texts", whole(30, 60), 2, 4, 5000, whole(300, 700), 10**8),
        case("a window that is longer than the texts", whole(30, 60), 4, 2, 500, whole(900, 2000), 10**6),
        case("a window of a few tokens", whole(30, 60), 2, 4, 5000, whole(2, 4), 10**6),
        case("not even one text fits", 0, 8, 4, 100_000, None, 10**7),
        case("nothing is left over", whole(20, 50), 2, 3, 1000, None, 10**6, is_full=True),
        Case(_served(10**9, whole(6, 9) * 10**8, 12, 768, 12, 12, 100, None), "the weights do not fit"),
    ]


# Memory for exactly a hundred texts beside the weights.
FOR_A_HUNDRED = _served(2_000_000 + 100 * 128_000, 1_000_000, 4, 64, 8, 2, 500, None)


def _twice_fit(name: str, words: str, fit: int, read: str = COUNTING) -> Law:
    def broken(inputs: list[Inputs], values: list[float]) -> str | None:
        if values == [100, fit]:
            return None
        return f"yours says {shown(values[0])}, and {shown(values[1])} with {words}"

    sentence = f"where the weights leave memory for exactly 100 texts, {fit} fit with {words}"
    twice = FOR_A_HUNDRED | {name: 2 * FOR_A_HUNDRED[name]}
    return Law(sentence, read, lambda normal: [FOR_A_HUNDRED, twice], broken)


def _one_number(normal: Normal) -> Inputs:
    return _served(22, 3, 1, 4, 2, 1, 1, None)


texts_that_fit = Task(
    "texts_that_fit",
    _texts_that_fit,
    _served(10_000, 1_000, 2, 12, 6, 3, 10, None),
    _fit_cases,
    laws=[
        Law(
            "where the weights leave 16 bytes, and there is one block with one head of keys and values with "
            "two features, two texts of one token fit",
            COUNTING,
            _one_number,
            lambda inputs, value: None if value == 2 else f"yours says {shown(value)}",
        ),
        _twice_fit("num_blocks", "twice as many blocks", 50),
        _twice_fit("num_tokens", "twice as many tokens in each", 50),
        _twice_fit("num_key_value_heads", "twice as many heads of keys and values", 50),
        _twice_fit("num_heads", "twice as many heads of queries, all heads half as large", 200, GROUPS),
        laws.stays(
            "a window that is longer than the texts changes nothing",
            WINDOW,
            lambda normal: _served(50_000_000, 1_000_000, 4, 64, 8, 2, 500, None),
            lambda inputs, normal: {"window": 600},
            when=("without a window", "with one of 600 for texts of 500 tokens"),
        ),
    ],
)


@texts_that_fit.made_of(
    numbers=wrongs(
        COUNTING,
        """
        one: only the keys are counted, or only the values
            Both are kept.
        three: queries are counted, too
            A query asks once. It is never needed again.
        """,
    ),
    heads=wrongs(
        GROUPS,
        """
        all: a position is counted with all the features of the model, as if no heads shared
            What is kept are keys and values. There are num_key_value_heads of them, each as long as a query.
            How long is that?
        one: one head is counted
            A block keeps keys and values for each of its num_key_value_heads.
        whole: every head is counted with all features of the model
            The features of the model are shared out to the heads of the queries. Keys and values are as long
            as a query.
        """,
    ),
    blocks=wrongs(
        COUNTING,
        """
        one: one block is counted
            Each block keeps its own.
        """,
    ),
    used=wrongs(
        WINDOW,
        """
        ignored: the window is ignored
            What no later position sees need not be kept.
        always: as many positions are counted as the window has, though the text is shorter
            A text of 500 tokens has 500 keys, whatever the window.
        one less: a position less is kept than the window has
            The window counts the position itself, too: so many keys a query sees.
        one more: a position more is kept than the window has
            The window counts the position itself, too: so many keys a query sees.
        """,
    ),
    weights=wrongs(
        COUNTING,
        """
        left out: the weights are not counted
            They lie in the same memory.
        numbers: the weights are counted with one byte each
            Two bytes for a number: for the weights, too.
        each: the weights are counted for every text
            All texts are read with the same weights.
        """,
    ),
    size=wrongs(
        COUNTING,
        """
        one: a number is counted as one byte
            In half precision a number takes two bytes.
        four: a number is counted as four bytes
            In half precision a number takes two bytes.
        """,
    ),
    rounded=wrongs(
        COUNTING,
        """
        room to spare: a last text is not counted where it fills the memory exactly
            A text that needs just what is left does fit.
        up: a last text is counted that does not fit
            Half a text is none. Which way must be rounded?
        none: parts of texts are counted
            Half a text is none: a whole number is asked for.
        negative: where the weights do not fit, the number is negative
            There cannot be fewer than none.
        """,
    ),
)
def any_fit(
    memory,
    num_parameters,
    num_blocks,
    model_dim,
    num_heads,
    num_key_value_heads,
    num_tokens,
    window,
    *,
    numbers="",
    heads="",
    blocks="",
    used="",
    weights="",
    size="",
    rounded="",
):
    kept = num_tokens
    if window is not None and used != "ignored":
        seen = window + {"one less": -1, "one more": 1}.get(used, 0)
        kept = window if used == "always" else min(num_tokens, seen)
    head_dim = model_dim // num_heads
    count = {"all": num_heads, "one": 1}.get(heads, num_key_value_heads)
    if heads == "whole":
        head_dim = model_dim
    each = {"one": 1, "four": 4}.get(size, 2)
    one = {"one": 1, "three": 3}.get(numbers, 2) * (1 if blocks == "one" else num_blocks)
    one = one * count * head_dim * kept * each
    held = {"left out": 0, "numbers": num_parameters}.get(weights, each * num_parameters)
    texts = memory / (one + held) if weights == "each" else (memory - held) / one
    if rounded == "room to spare":
        texts = (memory - held - 1) // one
    if rounded == "none":
        return max(0.0, texts)
    if rounded == "up":
        return max(0, math.ceil(texts))
    return math.floor(texts) if rounded == "negative" else max(0, math.floor(texts))


# ---------------------------------------------------------------------------------------
# Choosing a token
# ---------------------------------------------------------------------------------------


def _probabilities(logits: Tensor, temperature: float, top_p: float) -> Tensor:
    return your_model.next_token_probabilities(logits, temperature=temperature, top_p=top_p)


def _scores(
    *shape: int, temperature: float = 1.0, top_p: float = 0.8, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        logits = 2 * normal(*shape, dtype=dtype)
        return {"logits": logits, "temperature": temperature, "top_p": top_p}

    return drawn


def _probabilities_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_scores(6)(normal), "top-p alone"),
        Case(_scores(6, temperature=0.6, top_p=1.0)(normal), "a low temperature alone"),
        Case(_scores(6, temperature=2.5, top_p=1.0)(normal), "a high temperature alone"),
        Case(_scores(12, temperature=1.7, top_p=0.7)(normal), "a high temperature, and top-p"),
        Case(_scores(12, temperature=0.5, top_p=0.9)(normal), "a low temperature, and top-p"),
        Case(_scores(4, 9, temperature=1.3, top_p=0.75)(normal), "several positions"),
        Case(_scores(2, 3, 8, top_p=0.6, dtype=torch.float64)(normal), "a batch, in float64"),
        Case(_scores(5, top_p=0.01)(normal), "top-p so small that one token is left"),
        Case(_scores(3, 1)(normal), "a single token"),
        Case(_scores(8, 8, top_p=0.85)(normal), "as many positions as tokens"),
    ]


def _sums_to_one(inputs: Inputs, value: Tensor) -> str | None:
    total = value.sum(-1)
    return laws.is_not(total, torch.ones_like(total), "yours sum to {yours}")


def _is_softmax(inputs: Inputs, value: Tensor) -> str | None:
    expected = torch.softmax(inputs["logits"] / inputs["temperature"], -1)
    return laws.is_not(value, expected, "number {place} of yours is {yours}, not {expected}")


def _logs(*numbers: float, **how: float) -> laws.Draw:
    return lambda normal: {"logits": torch.tensor(numbers).log(), "temperature": 1.0, "top_p": 1.0, **how}


def _is_exactly(*numbers: float) -> Callable[[Inputs, Tensor], str | None]:
    return lambda inputs, value: laws.is_not(
        value, torch.tensor(numbers), "number {place} of yours is {yours}, not {expected}"
    )


next_token_probabilities = Task(
    "next_token_probabilities",
    _probabilities,
    {"logits": torch.tensor([1.0, 4.0, 0.5, 2.0]).log(), "temperature": 0.5, "top_p": 0.9},
    _probabilities_cases,
    laws=[
        Law("the probabilities sum to 1", CHOOSING, _scores(3, 7), _sums_to_one),
        Law(
            "of probabilities of 0.6, 0.3 and 0.1, a top_p of 0.7 leaves the first two",
            CHOOSING,
            _logs(0.6, 0.3, 0.1, top_p=0.7),
            _is_exactly(2 / 3, 1 / 3, 0.0),
        ),
        Law(
            "with a temperature of 1 and a top_p of 1 they are the softargmax of the logits",
            CHOOSING,
            _scores(5, top_p=1.0),
            _is_softmax,
        ),
        Law(
            "with a temperature of 2 and a top_p of 1 they are the softargmax of half the logits",
            CHOOSING,
            _scores(5, temperature=2.0, top_p=1.0),
            _is_softmax,
        ),
        Law(
            "of probabilities of 0.1, 0.3 and 0.6, a top_p of 0.5 leaves the last one",
            CHOOSING,
            _logs(0.1, 0.3, 0.6, top_p=0.5),
            _is_exactly(0.0, 0.0, 1.0),
        ),
        laws.sequences_are_treated_alone(_scores(3, 6), CHOOSING, ("logits",)),
    ],
)


@next_token_probabilities.made_of(
    heat=wrongs(
        CHOOSING,
        """
        ignored: the temperature changes nothing
            The logits are divided by it before the softargmax. Probabilities that are divided by it, and
            brought to a sum of 1 again, are what they were.
        multiplied: the logits are multiplied by the temperature
            A temperature below 1 is to make the probable ones more probable. Which way must the
            scores change?
        after: the temperature is applied after the nucleus has been found
            The nucleus is that of the probabilities with the temperature.
        root: the logits are divided by the square root of the temperature
            That is another thing that is called a temperature nowhere. Divide by it as it is.
        """,
    ),
    nucleus=wrongs(
        CHOOSING,
        """
        ignored: all tokens are kept
            Sort them, add up, and ask of each how much the more probable ones have together.
        too few: the token that crosses the threshold is dropped
            With 0.6 and 0.3 and a threshold of 0.7: the first has less than that. So it takes the second,
            too.
        none left: the token that crosses the threshold is dropped, even if it is the first
            With 0.6 and 0.3 and a threshold of 0.5: the first is kept, as there is nothing before it.
        crossing: the token with which the threshold is reached is dropped, even if it is the first
            With 0.6 and 0.3 and a threshold of 0.7: the first has less than that. So it takes the second,
            too. And a top_p of 1 keeps all.
        too many: one token more than needed is kept
            As soon as those that are kept have top_p together, it is enough.
        each: tokens are kept that have by themselves at least the probability top_p
            It is about what the most probable ones have *together*.
        share: so many tokens are kept as the share top_p of all
            It is about how probable they are together, not about how many.
        unsorted: they are added up in the order of their numbers
            The most probable ones come first.
        rising: they are added up from the least probable one
            The most probable ones come first.
        relative: tokens are kept that have at least 1 - top_p times the largest probability
            That is another rule, known as min-p. Here it is about what the kept ones have together.
        """,
    ),
    total=wrongs(
        CHOOSING,
        """
        left: what is left is not brought to a sum of 1
            Something has been taken away. What must be done with the rest, so that it is a distribution?
        softargmax again: what is left goes through a softargmax again
            The softargmax of probabilities is nearly even, and the zeros come to life again. Divide by the
            sum.
        evenly: all that are left get the same
            They keep their ratios. Divide by the sum.
        """,
    ),
    order=wrongs(
        CHOOSING,
        """
        sorted: the probabilities come back sorted
            Number i is that of token i. After sorting, each has to go back to where it was.
        sorted twice: instead of going back to their places, they are moved by the sorting once more
            `sort` says where each came from. To bring them back, put the n-th of the sorted ones to the n-th
            of these places, `scatter`, and do not take it from there, `gather`.
        """,
    ),
    over=wrongs(
        CHOOSING,
        """
        all: one nucleus is found for all positions together
            Every position has a distribution of its own. Along which dimension do you sort and add up?
        """,
    ),
)
def any_probabilities(logits, temperature, top_p, *, heat="", nucleus="", total="", order="", over=""):
    shape = logits.shape
    if over == "all":
        logits = logits.flatten()
    others = {"ignored": 1.0, "after": 1.0, "multiplied": 1 / temperature, "root": temperature**0.5}
    p = torch.softmax(logits / others.get(heat, temperature), -1)
    ordered, places = p.sort(dim=-1, descending=nucleus != "rising", stable=True)
    if nucleus == "unsorted":
        ordered, places = p, torch.arange(p.shape[-1]).expand_as(p)
    together = ordered.cumsum(-1)
    before = together - ordered
    first = torch.arange(p.shape[-1])
    kept = {
        "ignored": ordered >= 0,
        "too few": (together <= top_p) | (first == 0),
        "none left": together <= top_p,
        "crossing": together < top_p,
        "too many": (before - ordered.roll(1, -1) * (first > 0)) < top_p,
        "each": (ordered >= top_p) | (first == 0),
        "share": first < max(1, round(top_p * len(first))),
        "relative": ordered >= (1 - top_p) * ordered.amax(-1, keepdim=True),
    }.get(nucleus, before < top_p)
    if top_p == 1 and nucleus != "crossing":
        kept = torch.ones_like(kept)
    if heat == "after":
        ordered = torch.softmax(logits.gather(-1, places) / temperature, -1)
    left = ordered * kept
    if total == "":
        left = left / left.sum(-1, keepdim=True)
    elif total == "softargmax again":
        left = torch.softmax(left, -1)
    elif total == "evenly":
        left = kept / kept.expand_as(left).sum(-1, keepdim=True).to(left.dtype)
        left = left.to(ordered.dtype)
    if order == "sorted":
        return left.reshape(shape)
    if order == "sorted twice":
        return left.gather(-1, places).reshape(shape)
    return torch.zeros_like(left).scatter(-1, places, left).reshape(shape)


# ---------------------------------------------------------------------------------------
# Writing with a cache
# ---------------------------------------------------------------------------------------


def _write_on(model: Callable, choose: Callable, tokens: Tensor, num_tokens: int) -> Tensor:
    new, caches = tokens, None
    for _ in range(num_tokens):
        logits, caches = model(new, caches)
        new = choose(logits[-1])
        tokens = torch.cat((tokens, new))
    return tokens


def _begun(vocabulary: int, length: int, num_tokens: int, place: int = 0) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        tokens = (normal(length, dtype=torch.float64).mul(1000).long() % vocabulary).clone()
        table = 2 * normal(vocabulary, vocabulary)
        return {"table": table, "place": place, "tokens": tokens, "num_tokens": num_tokens}

    return drawn


def _write_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_begun(12, 4, 6)(normal), "six tokens after four, always the best one"),
        Case(_begun(12, 3, 8, place=1)(normal), "another way to choose: always the second best"),
        Case(_begun(9, 1, 7)(normal), "a beginning of one token"),
        Case(_begun(9, 6, 1, place=2)(normal), "a single new token"),
        Case(_begun(9, 1, 0)(normal), "no new token at all"),
        Case(_begun(25, 8, 12, place=1)(normal), "twelve tokens after eight"),
    ]


def _begins_with(inputs: Inputs, value: Tensor) -> str | None:
    tokens = inputs["tokens"]
    return laws.is_not(
        value[: len(tokens)].double(), tokens.double(), "token {place} of yours is {yours}, not {expected}"
    )


def _next_is_chosen(inputs: Inputs, value: Tensor) -> str | None:
    logits, _ = Reader(inputs["table"])(inputs["tokens"])
    right = chosen(logits[-1], inputs["place"])
    return laws.is_not(
        value[-1:].double(), right.double(), "yours adds {yours}, and `choose` says {expected}"
    )


def _fewer(normal: Normal) -> list[Inputs]:
    drawn = _begun(12, 3, 6)(normal)
    return [drawn | {"num_tokens": 3}, drawn]


def _same_tokens(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    words = "token {place} of yours is {expected} where three are to come, and {yours} where six are"
    return laws.is_not(values[1][:6].double(), values[0].double(), words)


write_on = Task(
    "write_on",
    _write_on,
    {
        "table": torch.tensor([[0.0, 5.0, 0.0], [0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]),
        "place": 0,
        "tokens": torch.tensor([0, 1]),
        "num_tokens": 2,
    },
    _write_cases,
    laws=[
        Law("the text begins with the tokens that were given", CACHE, _begun(12, 4, 3), _begins_with),
        Law(
            "a single new token is what `choose` says of the logits of the last one",
            CHOOSING,
            _begun(12, 4, 1, place=1),
            _next_is_chosen,
        ),
        Law("the first new tokens are the same, however many are to come", CACHE, _fewer, _same_tokens),
    ],
    way=WriteOn(),
    pencil_note="1 is followed by 2, and 2 by 0",
)


@write_on.made_of(
    read=wrongs(
        CACHE,
        """
        whole: at each step the whole text is read, without the caches
            The text is right, and the work is done again and again. Hand over the caches, and only what
            is new.
        whole again: at each step the whole text is read, with the caches of what was read before
            The caches hold all tokens so far. With them, the model needs only what is new.
        last alone: at each step the last token is read, without the caches
            The model would see nothing but this token. What has been read is in the caches.
        first caches: the caches of the first step are handed over at every step
            Each call gives caches that have grown. They are what the next one needs.
        one behind: at each step the token before the last one is read
            The newest token has not been read yet. It is the one to hand over.
        """,
    ),
    row=wrongs(
        CHOOSING,
        """
        first: a token is chosen by the logits of the first position that was read
            Each row says what comes after a position. After which do you want to go on?
        sum: a token is chosen by the sum of the logits
            Each row says what comes after a position. After which do you want to go on?
        """,
    ),
    choice=wrongs(
        CHOOSING,
        """
        best: always the token with the highest logit is taken, whatever `choose` says
            How a token is chosen is not for this function to decide: `choose` is handed over.
        """,
    ),
    result=wrongs(
        CACHE,
        """
        new only: only the new tokens come back
            The beginning belongs to the text.
        last only: only the last token comes back
            The whole text is asked for.
        in front: the new tokens are put in front of the text
            Each is put behind what there is.
        """,
    ),
    number=wrongs(
        CACHE,
        """
        one more: one token too many is added
            How often does your loop go round?
        one less: one token too few is added
            How often does your loop go round? The first new token comes from the given ones.
        in all: num_tokens is taken for the length of the whole text
            So many are to be *added*.
        """,
    ),
)
def any_writing(model, choose, tokens, num_tokens, *, read="", row="", choice="", result="", number=""):
    text, new, caches, first = tokens, tokens, None, None
    steps = {"one more": num_tokens + 1, "one less": num_tokens - 1, "in all": num_tokens - len(tokens)}
    for _ in range(steps.get(number, num_tokens)):
        if read in ("whole", "last alone"):
            caches = None
        if read == "first caches":
            caches = first
        logits, caches = model(text if read in ("whole", "whole again") else new, caches)
        first = caches if first is None else first
        scores = {"first": logits[0], "sum": logits.sum(0)}.get(row, logits[-1])
        token = scores.argmax(-1, keepdim=True) if choice == "best" else choose(scores)
        new = text[-1:] if read == "one behind" else token
        text = torch.cat((token, text) if result == "in front" else (text, token))
    if result == "new only":
        return text[len(tokens) :]
    return text[-1:] if result == "last only" else text


# ---------------------------------------------------------------------------------------
# After the experiment: slips that show without a right model beside them
# ---------------------------------------------------------------------------------------

SLIPS = ("sees ahead", "counts", "forgets", "out of step", "nothing found")


def _which_slip(tokens: Tensor, whole: Tensor, changed: Tensor, same: Tensor, steps: Tensor) -> str:
    def agree(first: Tensor, second: Tensor) -> Tensor:
        return (first - second).abs().amax(-1) < 0.01

    if not agree(changed, whole)[:-1].all():
        return "sees ahead"
    if not agree(same, same[:1]).all():
        return "counts"
    if agree(steps, whole).all():
        return "nothing found"
    pairs = tokens[:, None] == tokens  # (positions, positions)
    alike = agree(steps[:, None], steps)
    return "forgets" if alike[pairs].all() else "out of step"


def _slip_records(seed: int) -> dict[str, Inputs]:
    """What a model gives for a text, with a slip or two."""
    normal = normal_source(seed)
    draws = Draws(seed, "choices")

    def record(*slips: str) -> Inputs:
        length = draws.whole(7, 10)
        # Each token comes more than once: with the same one behind it, or with another.
        tokens = draws.randint(0, 3, (length,))
        tokens[[0, 3, -1]], tokens[[1, 5]], tokens[2] = 0, 1, 2
        whole, by_token = 3 * normal(length, 4), 3 * normal(3, 4)
        changed = torch.cat([whole[:-1], 3 * normal(1, 4)])
        same = (3 * normal(1, 4)).expand(length, 4).clone()
        steps = whole.clone()
        row = torch.arange(length)[:, None]
        column = lambda: draws.whole(0, 3)
        place = lambda: draws.whole(1, length - 2)
        sign = lambda: 2 * draws.whole(0, 1) - 1
        for slip in slips:
            match slip:
                case "own rows":
                    whole = steps = by_token[tokens]
                    changed = torch.cat([whole[:-1], changed[-1:]])
                case "ahead":
                    changed = changed + normal(length, 4)
                case "ahead, one row":
                    changed[draws.whole(1, length - 2)] += 2
                case "ahead, a little":
                    changed = changed + 0.03 * (row < length - 1)
                case "ahead, one number a little":
                    changed[1, 0] += 0.02
                case "ahead, features exchanged":
                    changed = torch.where(row < length - 1, changed.roll(1, -1), changed)
                case "counts":
                    same = same + normal(length, 4)
                case "counts from the second":
                    same = torch.where(row > 1, same + normal(length, 4), same)
                case "counts a little":
                    same = same + 0.03 * (row % 2)
                case "counts, ever a little more":
                    same = same + 0.006 * row
                case "counts, features exchanged":
                    same = torch.where(row % 2 == 1, same.roll(1, -1), same)
                case "forgets":
                    steps = by_token[tokens]
                case "forgets, two alike":
                    by_token[1] = by_token[0]
                    steps = by_token[tokens]
                case "forgets but the first":
                    steps = torch.cat([whole[:1], by_token[tokens[1:]]])
                case "forgets at some":
                    steps = torch.where(row < 4, by_token[tokens], 3 * normal(length, 4))
                case "forgets at one token":
                    known = tokens[:, None] == tokens[0]
                    steps = torch.where(known, by_token[0], 3 * normal(length, 4))
                case "forgets but the third of a token":
                    third = (tokens == 0) & ((tokens == 0).cumsum(0) > 2)
                    steps = torch.where(third[:, None], 3 * normal(length, 4), by_token[tokens])
                case "steps":
                    steps = torch.cat([whole[:1], 3 * normal(length - 1, 4)])
                case "steps, the last":
                    steps[-1] += 2
                case "steps, the last, downwards":
                    steps[-1] -= 2
                case "steps, the second":
                    steps[1] -= 2
                case "steps, the second, upwards":
                    steps[1] += 2
                case "steps, a little":
                    steps = steps + 0.03 * (row > 3)
                case "steps, features exchanged":
                    steps = torch.where(row > 0, steps.roll(1, -1), steps)
                # On both sides of a hundredth, in one number.
                case "ahead, hardly, the last row but one":
                    changed[-2, column()] += sign() * 0.0125
                case "counts, hardly, the last row":
                    same[-1, column()] += sign() * 0.0125
                case "steps, hardly":
                    steps[place(), column()] += sign() * 0.0125
                case "all, less than hardly":
                    for logits in (changed, same, steps):
                        logits[place(), column()] += sign() * 0.008
                case "steps, less than hardly":
                    steps[3, column()] += sign() * 0.008
                case "steps, of equal tokens, hardly":
                    steps[3, column()] += sign() * 0.0125
        rounding = [1e-5 * normal(length, 4) for _ in range(4)]
        records = {"whole": whole, "changed": changed, "same": same, "steps": steps}
        noisy = {name: part + noise for (name, part), noise in zip(records.items(), rounding, strict=True)}
        return {"tokens": tokens, **noisy}

    return {
        "nothing is wrong": record(),
        "nothing is wrong, and every token has a row of its own in one pass, too": record("own rows"),
        "later tokens are seen": record("ahead"),
        "a later token is seen by one": record("ahead, one row"),
        "a later token is seen, a little": record("ahead, a little"),
        "a later token is seen by one number, a little": record("ahead, one number a little"),
        "a later token exchanges features": record("ahead, features exchanged"),
        "it is counted how often a token came": record("counts"),
        "it is counted from the third on": record("counts from the second"),
        "it is counted, a little": record("counts a little"),
        "it is counted, ever a little more": record("counts, ever a little more"),
        "every second row has exchanged features": record("counts, features exchanged"),
        "the steps know one token each": record("forgets"),
        "the steps know one token each, and two tokens are alike": record("forgets, two alike"),
        "the first step is right, and then none": record("steps"),
        "the last step is wrong": record("steps, the last"),
        "the second step is wrong": record("steps, the second"),
        "the last step is wrong, downwards": record("steps, the last, downwards"),
        "the second step is wrong, upwards": record("steps, the second, upwards"),
        "later steps are a little off": record("steps, a little"),
        "steps exchange features": record("steps, features exchanged"),
        "some steps know one token each": record("forgets at some"),
        "steps are alike at the first token": record("forgets at one token"),
        "the first step is right, the others know one token each": record("forgets but the first"),
        "the steps know one token each, but where it comes a third time": record(
            "forgets but the third of a token"
        ),
        "later tokens are seen, and the steps are wrong": record("ahead", "steps"),
        "it is counted, and the steps are wrong": record("counts", "steps"),
        "it is counted, and the steps know one token each": record("counts", "forgets"),
        "later tokens are seen, and it is counted": record("ahead", "counts"),
        "the last token is seen from the place before, hardly": record("ahead, hardly, the last row but one"),
        "it is counted at the last place, hardly": record("counts, hardly, the last row"),
        "one step is off, hardly": record("steps, hardly"),
        "one number of each is off, by less than a hundredth": record("all, less than hardly"),
        "the steps know one token each, and one is off, by less than a hundredth": record(
            "forgets", "steps, less than hardly"
        ),
        "the steps know one token each, and one is off, hardly": record(
            "forgets", "steps, of equal tokens, hardly"
        ),
    }


def _slip_cases(seed: int) -> list[Case]:
    records = _slip_records(seed)
    return [Case(records[name], name) for name in in_any_order(records, seed)]


def _slip_law(words: str, right: str, name: str, read: str) -> Law:
    inputs = lambda normal: _slip_records(0)[name]
    return Law(f"{words}, {right!r} is said", read, inputs, laws.says(right))


which_slip = Task(
    "which_slip",
    _which_slip,
    {
        "tokens": torch.tensor([0, 1, 0]),
        "whole": torch.tensor([[1.0], [2.0], [3.0]]),
        "changed": torch.tensor([[1.0], [2.0], [9.0]]),
        "same": torch.tensor([[4.0], [4.0], [4.0]]),
        "steps": torch.tensor([[1.0], [7.0], [1.0]]),
    },
    _slip_cases,
    laws=[
        _slip_law("where all four hold but for rounding", "nothing found", "nothing is wrong", MODEL),
        _slip_law(
            "where another last token changes rows before it",
            "sees ahead",
            "later tokens are seen",
            "masking#masking-the-leak",
        ),
        _slip_law(
            "where one token, again and again, gets other logits each time",
            "counts",
            "it is counted how often a token came",
            TURNED,
        ),
        _slip_law(
            "where in the steps equal tokens always have equal rows",
            "forgets",
            "the steps know one token each",
            CACHE,
        ),
        _slip_law(
            "where the first step is right and no other",
            "out of step",
            "the first step is right, and then none",
            CACHE,
        ),
    ],
)


@which_slip.made_of(
    ahead=wrongs(
        "masking#masking-the-leak",
        """
        last row: the last row is compared, too
            It was the last token that was changed: its own row must differ.
        first only: only the first row is looked at
            A position may see one token ahead: then it is another row that tells. Look at all but the last.
        ignored: it is not asked whether a later token changes rows before it
            Compare `changed` with `whole`, but for the last row.
        """,
    ),
    counts=wrongs(
        TURNED,
        """
        neighbours: only the first two rows of `same` are compared
            The slip may show from the third on. Compare all of them with the first.
        ends: only the first and the last row of `same` are compared
            Those between may differ, too. Compare all of them with the first.
        before: each row of `same` is compared with the one before it only
            Many small steps make a large one. Compare all of them with the first.
        ignored: it is not asked whether the rows of `same` are equal
            Where all values are equal, so is every average of them. If the rows differ, something is counted.
        with whole: `same` is compared with `whole`
            They are logits of two texts. What must hold is that the rows of `same` are equal to one another.
        """,
    ),
    steps=wrongs(
        CACHE,
        """
        last: only the last step is compared with the whole text
            Any of the steps may go wrong.
        """,
    ),
    forgets=wrongs(
        CACHE,
        """
        everywhere: "forgets" is said wherever the steps differ
            Without what came before, a row depends on its own token only: equal tokens, equal rows. Is it so?
        never: it is never asked whether equal tokens have equal rows in the steps
            Without what came before, a row depends on its own token only. Then what is true of two equal
            ones?
        neighbours: equal tokens are compared only where they stand side by side
            Equal tokens have equal rows *wherever* they stand. Look at every two places.
        both ways: different tokens must have different rows, too
            Two tokens may have the same row by chance. It is asked of equal tokens only.
        one pair: it is enough that one pair of equal tokens has equal rows
            Two rows can be equal for another reason. It must be so for all pairs of equal tokens.
        first: each row is compared with that of the first token only
            Other tokens come more than once, too.
        """,
    ),
    same=wrongs(
        MODEL,
        """
        exactly: differences by rounding count
            Sums in another order differ in the last digits. Less than a hundredth is no difference.
        loosely: small differences do not count
            A hundredth or more is a difference.
        sums: only the sums of rows are compared
            Two rows may have the same sum. Compare number by number.
        mean: the mean difference of two rows is asked for, not the largest
            One number that differs is a difference, however equal the others are.
        signed: differences are taken with their sign
            A number that is smaller than the other differs, too.
        """,
    ),
    order=wrongs(
        MODEL,
        """
        steps first: the steps are looked at before all else
            A model that sees ahead, or counts, may go wrong in the steps, too. Ask in the order that is
            given.
        steps second: the steps are looked at before `same`
            A model that counts may go wrong in the steps, too. Ask in the order that is given.
        counts first: it is asked first whether anything is counted
            Ask in the order that is given.
        """,
    ),
)
def any_slip(
    tokens,
    whole,
    changed,
    same_token,
    by_step,
    *,
    ahead="",
    counts="",
    steps="",
    forgets="",
    same="",
    order="",
):
    limit = {"exactly": 0.0, "loosely": 0.5}.get(same, 0.01)

    def agree(first, second):
        apart = (first - second).abs()
        apart = apart.mean(-1) if same == "mean" else apart.amax(-1)
        if same == "signed":
            apart = (first - second).amax(-1)
        if same == "sums":
            apart = (first.sum(-1) - second.sum(-1)).abs()
        return apart <= limit

    before = agree(changed, whole)
    before = {"last row": before, "first only": before[:1], "ignored": before[:0]}.get(ahead, before[:-1])
    rows = {
        "neighbours": same_token[:2],
        "ends": same_token[[0, -1]],
        "ignored": same_token[:1],
    }.get(counts, same_token)
    others = {"with whole": whole[: len(rows)], "before": same_token.roll(1, 0)}.get(counts, same_token[:1])
    alike = agree(rows, others)[counts == "before" :]
    pairs = tokens[:, None] == tokens
    if forgets == "first":
        pairs = pairs & (torch.arange(len(tokens)) == 0)
    if forgets == "one pair":
        pairs = pairs.tril(-1)
    if forgets == "neighbours":
        pairs = pairs & torch.ones_like(pairs).tril(1).triu(1)
    alike_steps = agree(by_step[:, None], by_step)
    equal = alike_steps == pairs if forgets == "both ways" else alike_steps[pairs]
    forgotten = {"everywhere": True, "never": False, "one pair": bool(equal.any())}.get(
        forgets, bool(equal.all())
    )
    agreeing = agree(by_step, whole)
    right = agreeing[-1] if steps == "last" else agreeing.all()
    of_steps = "" if right else "forgets" if forgotten else "out of step"
    found = {
        "ahead": "" if before.all() else "sees ahead",
        "counts": "" if alike.all() else "counts",
        "steps": of_steps,
    }
    asked = {
        "steps first": ("steps", "ahead", "counts"),
        "steps second": ("ahead", "steps", "counts"),
        "counts first": ("counts", "ahead", "steps"),
    }
    for question in asked.get(order, ("ahead", "counts", "steps")):
        if found[question]:
            return found[question]
    return "nothing found"
