"""Tasks of the unit ``words``: a published encoder from its weights, search by meaning, and what a head does.

The encoders here are small, and of random weights. They have the published names.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from attncourse import words
from attncourse.attention_operator import softargmax
from attncourse.checks import laws
from attncourse.checks.choices import LAYER_SCALE, LOW, only
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.multihead import merge_heads, split_heads
from attncourse.probe.program import trace

EMBEDDINGS = "words#embeddings"
LAYER = "words#one-layer"
WHOLE = "words#whole-encoder"
POOLING = "words#pooling"
PADDING = "words#padding"
SEARCH = "words#words-search"
UNSEEN = "words#unseen-sentences"
CHANCE = "words#best-of-72"
COMPARED = "words#words-or-meaning"

Inputs = dict[str, Any]
Weights = dict[str, Tensor]

# What a published layer norm adds to the variance.
EPS = 1e-12


def _learned(normal: Normal, shapes: dict[str, tuple[int, ...]], dtype: torch.dtype) -> Weights:
    """Weights by name: gains around 1, and matrices that leave numbers about as large as they were."""
    found = {}
    for name, shape in shapes.items():
        drawn = normal(*shape, dtype=dtype)
        if name.endswith("LayerNorm.weight"):
            drawn = 1 + 0.5 * drawn
        elif len(shape) == 2 and "embeddings" not in name:
            drawn = 1.2 * drawn * shape[1] ** -0.5
        found[name] = drawn
    return found


def _first_tokens(*lengths: int, num: int) -> Tensor:
    return torch.arange(num) < torch.tensor(lengths)[:, None]


def _all_tokens(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


# ---------------------------------------------------------------------------------------
# Embeddings
# ---------------------------------------------------------------------------------------


def _embed_ids(ids: Tensor, weights: Weights) -> Tensor:
    places = weights["position_embeddings.weight"][: ids.shape[-1]]
    x = weights["word_embeddings.weight"][ids] + places + weights["token_type_embeddings.weight"][0]
    gain, bias = weights["LayerNorm.weight"], weights["LayerNorm.bias"]
    return functional.layer_norm(x, gain.shape, gain, bias, EPS)


def _ids(normal: Normal, size: int, *shape: int) -> Tensor:
    """Numbers of tokens, each as likely as any other."""
    return (normal(*shape, dtype=torch.float64).mul(1000).long() % size).clone()


def _embedding_weights(
    normal: Normal, vocabulary: int, positions: int, dim: int, dtype: torch.dtype = torch.float32
) -> Weights:
    shapes = {
        "word_embeddings.weight": (vocabulary, dim),
        "position_embeddings.weight": (positions, dim),
        "token_type_embeddings.weight": (2, dim),
        "LayerNorm.weight": (dim,),
        "LayerNorm.bias": (dim,),
    }
    return _learned(normal, shapes, dtype)


def _to_embed(
    *shape: int,
    vocabulary: int = 6,
    positions: int = 9,
    dim: int = 4,
    dtype: torch.dtype = torch.float32,
    times: float = 1.0,
    **instead: Tensor,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        weights = _embedding_weights(normal, vocabulary, positions, dim, dtype)
        weights = {name: times * part if "embed" in name else part for name, part in weights.items()}
        instead_of = {name.replace("__", "."): part for name, part in instead.items()}
        return {"ids": _ids(normal, vocabulary, *shape), "weights": weights | instead_of}

    return drawn


def _embed_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_to_embed(5)(normal), "five tokens"),
        Case(_to_embed(3, 4)(normal), "a batch"),
        Case(_to_embed(2, 3, 2, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_to_embed(1)(normal), "a single token"),
        Case(_to_embed(4, 4)(normal), "as many texts as tokens and features"),
        # Among so many tokens some are nearly constant, which makes rounding large.
        Case(_to_embed(3, 8, dtype=torch.float64)(normal), "one position more than tokens"),
        Case(_to_embed(4, times=1e-6)(normal), "embeddings that are very small"),
        Case(_to_embed(2, 3)(normal), "numbers that are not contiguous in memory", contiguous=False),
    ]


def _is_norms_bias(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the bias has {expected} there"
    return laws.is_not(value, inputs["weights"]["LayerNorm.bias"].expand_as(value), words)


def _standard(inputs: Inputs, value: Tensor) -> str | None:
    mean, variance = value.mean(-1), value.var(-1, correction=0)
    if not torch.allclose(mean, torch.zeros_like(mean), atol=1e-4):
        return f"in yours the first token has the mean {shown(mean[0].item())}"
    if not torch.allclose(variance, torch.ones_like(variance), 1e-3):
        return f"in yours the first token has the variance {shown(variance[0].item())}"
    return None


def _with_variance(normal: Normal) -> Inputs:
    """Tokens that differ from their means by a millionth, up or down."""
    signs = torch.tensor([[1.0, -1.0, 1.0, -1.0], [1.0, 1.0, -1.0, -1.0]])
    weights = {
        "word_embeddings.weight": 1e-6 * signs,
        "position_embeddings.weight": torch.zeros(9, 4),
        "token_type_embeddings.weight": torch.zeros(2, 4),
        "LayerNorm.weight": torch.ones(4),
        "LayerNorm.bias": torch.zeros(4),
    }
    return {"ids": torch.tensor([0, 1]), "weights": weights}


def _is_half(inputs: Inputs, value: Tensor) -> str | None:
    variance = value.var(-1, correction=0)
    words = "in yours token {place} has the variance {yours}"
    return laws.is_not(variance, torch.full_like(variance, 0.5), words)


def _same_at_both(inputs: Inputs, value: Tensor) -> str | None:
    return laws.is_not(
        value[1], value[0], "number {place} is {expected} for the first and {yours} for the other"
    )


def _same_word_twice(normal: Normal) -> Inputs:
    drawn = _to_embed(2, position_embeddings__weight=torch.zeros(9, 4))(normal)
    return drawn | {"ids": torch.tensor([3, 3])}


def _plain_norm(normal: Normal) -> Inputs:
    return _to_embed(4, LayerNorm__weight=torch.ones(4), LayerNorm__bias=torch.zeros(4))(normal)


embed_ids = Task(
    "embed_ids",
    _embed_ids,
    {
        "ids": torch.tensor([2, 0]),
        "weights": {
            "word_embeddings.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 0.0]]),
            "position_embeddings.weight": torch.tensor([[0.0, 2.0], [0.0, 3.0], [9.0, 9.0]]),
            "token_type_embeddings.weight": torch.tensor([[1.0, 1.0], [5.0, 0.0]]),
            "LayerNorm.weight": torch.tensor([1.0, 10.0]),
            "LayerNorm.bias": torch.tensor([0.0, 100.0]),
        },
    },
    _embed_cases,
    laws=[
        Law(
            "where the gain of the normalisation is 0, every token is its bias",
            EMBEDDINGS,
            _to_embed(3, LayerNorm__weight=torch.zeros(4)),
            _is_norms_bias,
        ),
        Law(
            "with a gain of 1 and a bias of 0 every token has mean 0 and variance 1",
            EMBEDDINGS,
            _plain_norm,
            _standard,
        ),
        Law(
            "with a gain of 1 and a bias of 0 a token whose variance was 1e-12 has the variance 1/2: below "
            "the root stands twice as much",
            EMBEDDINGS,
            _with_variance,
            _is_half,
        ),
        Law(
            "where all positions are zero, the same word twice gives the same token twice",
            EMBEDDINGS,
            _same_word_twice,
            _same_at_both,
        ),
        laws.stays(
            "a number added to all features of all words changes nothing",
            EMBEDDINGS,
            _to_embed(4),
            lambda inputs, normal: {
                "weights": inputs["weights"]
                | {"word_embeddings.weight": inputs["weights"]["word_embeddings.weight"] + 2.0}
            },
        ),
        laws.stays(
            "the second of the two types plays no part in a single text",
            EMBEDDINGS,
            _to_embed(4),
            lambda inputs, normal: {
                "weights": inputs["weights"]
                | {
                    "token_type_embeddings.weight": torch.stack(
                        [inputs["weights"]["token_type_embeddings.weight"][0], normal(4)]
                    )
                }
            },
        ),
        laws.sequences_are_treated_alone(_to_embed(3, 4), EMBEDDINGS, ("ids",)),
    ],
)


@embed_ids.made_of(
    place=wrongs(
        EMBEDDINGS,
        """
        none: the positions are not added
            Without them, the model does not know in which order the words stand.
        one off: the positions are counted from 1
            The first token, [CLS], stands at position 0.
        ids: the positions are looked up by the numbers of the tokens
            Where a token stands is another thing than which it is. The first N rows of the table are those
            of the N positions.
        batch: the positions are counted along the first dimension, which in a batch counts the texts
            `len(ids)` and `ids.shape[0]` move when a batch is added. Count the dimension from the back.
        last: the last rows of the table are taken
            A text begins at position 0, however long the table is.
        first: every token gets the position of the first
            A row of the table for each position.
        """,
    ),
    kind=wrongs(
        EMBEDDINGS,
        """
        none: the type is not added
            A single text has type 0, and that has a row of numbers, too.
        second: the type of the second text is added
            A single text has type 0: the first of the two rows.
        both: both types are added
            A token is of one type, and in a single text that is type 0.
        """,
    ),
    normalised=wrongs(
        EMBEDDINGS,
        """
        none: nothing is normalised
            The sum still has to go through the layer normalisation, whose gain and bias are the last two of
            the weights.
        words: the words are normalised before positions and type are added
            What is normalised is the sum of all three.
        sample: the variance is divided by one less than the number of features
            `var` and `std` do that unless they are told otherwise: `correction=0`.
        no mean: the mean is not subtracted
            Layer normalisation brings each token to mean 0 and variance 1.
        tokens: it is normalised over the tokens instead of the features
            Every token is normalised by itself. Which dimension holds its features?
        spread: it is divided by the variance instead of its root
            What is divided by the standard deviation has variance 1.
        epsilon: the number below the root is 1e-5, and not 1e-12
            That is PyTorch's default. This model was trained with 1e-12: where numbers are small one sees it.
        no epsilon: nothing is added to the variance
            Where all features of a token are alike, its variance is 0. The 1e-12 below the root keeps the
            quotient a number.
        outside: 1e-12 is added to the root instead of to the variance below it
            First add, then take the root. Where numbers are small one sees the difference.
        """,
    ),
    learned=wrongs(
        EMBEDDINGS,
        """
        no gain: the gain is missing
            Normalised features are multiplied by `LayerNorm.weight`.
        no bias: the bias is missing
            At the end `LayerNorm.bias` is added.
        bias first: the bias is added before the gain multiplies
            First the gain, then the bias.
        exchanged: gain and bias are exchanged
            `weight` multiplies, and `bias` is added.
        """,
    ),
    names=wrongs(
        EMBEDDINGS,
        """
        prefixed: the weights are asked for by names with `embeddings.` in front
            The names here have no `embeddings.` in front. That comes in task 3.
        """,
    ),
)
def any_embedding_of_ids(ids, weights, *, place="", kind="", normalised="", learned="", names=""):
    if names == "prefixed":
        weights["embeddings.word_embeddings.weight"]
    length = ids.shape[-1]
    table = weights["position_embeddings.weight"]
    word = weights["word_embeddings.weight"][ids]
    places = {
        "none": 0.0,
        "one off": table[1 : length + 1],
        "ids": table[ids],
        "batch": table[: ids.shape[0]],
        "last": table[-length:],
        "first": table[0],
    }.get(place, table[:length])
    types = weights["token_type_embeddings.weight"]
    kinds = {"none": 0.0, "second": types[1], "both": types.sum(0)}.get(kind, types[0])
    gain, bias = weights["LayerNorm.weight"], weights["LayerNorm.bias"]
    x = word if normalised == "words" else word + places + kinds
    dim = -2 if normalised == "tokens" else -1
    centred = x if normalised == "no mean" else x - x.mean(dim, keepdim=True)
    correction = 1 if normalised == "sample" else 0
    below = {"epsilon": 1e-5, "no epsilon": 0.0, "outside": 0.0}.get(normalised, 1e-12)
    variance = x.var(dim, correction=correction, keepdim=True) + below
    root = variance.sqrt() + (1e-12 if normalised == "outside" else 0.0)
    y = x if normalised == "none" else centred / (variance if normalised == "spread" else root)
    if learned == "exchanged":
        y = y * bias + gain
    elif learned == "bias first":
        y = (y + bias) * gain
    else:
        y = y if learned == "no gain" else y * gain
        y = y if learned == "no bias" else y + bias
    return y + places + kinds if normalised == "words" else y


# ---------------------------------------------------------------------------------------
# One layer
# ---------------------------------------------------------------------------------------


def _layer_shapes(dim: int, hidden: int) -> dict[str, tuple[int, ...]]:
    def linear(name: str, rows: int, columns: int) -> dict[str, tuple[int, ...]]:
        return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}

    def norm(name: str) -> dict[str, tuple[int, ...]]:
        return {f"{name}.LayerNorm.weight": (dim,), f"{name}.LayerNorm.bias": (dim,)}

    return {
        **linear("attention.self.query", dim, dim),
        **linear("attention.self.key", dim, dim),
        **linear("attention.self.value", dim, dim),
        **linear("attention.output.dense", dim, dim),
        **norm("attention.output"),
        **linear("intermediate.dense", hidden, dim),
        **linear("output.dense", dim, hidden),
        **norm("output"),
    }


def _encoder_layer(x: Tensor, mask: Tensor, weights: Weights, num_heads: int) -> Tensor:
    def linear(y: Tensor, name: str) -> Tensor:
        return y @ weights[f"{name}.weight"].mT + weights[f"{name}.bias"]

    def norm(y: Tensor, name: str) -> Tensor:
        gain = weights[f"{name}.LayerNorm.weight"]
        return functional.layer_norm(y, gain.shape, gain, weights[f"{name}.LayerNorm.bias"], EPS)

    parts = [
        split_heads(linear(x, f"attention.self.{name}"), num_heads) for name in ("query", "key", "value")
    ]
    query, key, value = parts
    scores = query @ key.mT / query.shape[-1] ** 0.5  # (..., num_heads, N, N)
    found = merge_heads(softargmax(scores, mask=mask[..., None, None, :].expand_as(scores)) @ value)
    z = norm(x + linear(found, "attention.output.dense"), "attention.output")
    return norm(z + linear(functional.gelu(linear(z, "intermediate.dense")), "output.dense"), "output")


def _one_layer(
    *shape: int,
    heads: int = 2,
    hidden: int = 5,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    times: float = 1.0,
) -> laws.Draw:
    dim = shape[-1]

    def drawn(normal: Normal) -> Inputs:
        weights = _learned(normal, _layer_shapes(dim, hidden), dtype)
        if times != 1:  # what enters the normalisations is small, too
            weights |= {name: times * part for name, part in weights.items() if ".value." in name}
            weights |= {name: times * part for name, part in weights.items() if name.endswith("dense.bias")}
        return {
            "x": times * normal(*shape, dtype=dtype),
            "mask": _all_tokens(*shape[:-1]) if mask is None else mask.clone(),
            "weights": weights,
            "num_heads": heads,
        }

    return drawn


def _layer_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    ragged = _first_tokens(4, 2, 3, num=4)
    low = _one_layer(3, 4, 6, mask=ragged, dtype=torch.float64)(normal)
    low["weights"]["attention.self.query.bias"] += 8
    low["weights"]["attention.self.key.bias"] -= 8
    tempting = _one_layer(3, 4, 6, mask=ragged, dtype=torch.float64)(normal)
    tempting["weights"]["attention.self.query.bias"] += 8
    tempting["weights"]["attention.self.key.weight"][:, 0] = 1
    tempting["x"][..., 0] = torch.where(ragged, 0.0, 3.6)
    return [
        Case(_one_layer(3, 4)(normal), "one text, two heads"),
        Case(
            _one_layer(3, 6, heads=1, hidden=6)(normal), "one head, and as many hidden features as features"
        ),
        Case(_one_layer(3, 4, 6, heads=3, mask=ragged)(normal), "a batch with padding"),
        Case(_one_layer(2, 5, 6, heads=2, dtype=torch.float64)(normal), "a batch, in float64"),
        Case(_one_layer(1, 8, heads=2)(normal), "a single token"),
        Case(
            _one_layer(3, 4, 4, heads=4, mask=ragged[:, [3, 0, 1, 2]])(normal),
            "padding in front; heads of one feature, as many as tokens",
        ),
        Case(_one_layer(2, 2, 3, 4, mask=_all_tokens(2, 2, 3))(normal), "a batch of batches"),
        Case(_one_layer(3, 4, times=1e-3)(normal), "numbers that are very small"),
        Case(_one_layer(2, 3, 4)(normal), "inputs that are not contiguous in memory", contiguous=False),
        Case(low, "scores that are all far below zero"),
        Case(tempting, "padding with large scores"),
    ]


def _changed(inputs: Inputs, **parts: Tensor) -> Inputs:
    """The weights with some of them changed, by their names with ``__`` for a dot."""
    return {"weights": inputs["weights"] | {name.replace("__", "."): part for name, part in parts.items()}}


def _drawn_with(draw: laws.Draw, **parts: Tensor) -> laws.Draw:
    return lambda normal: (drawn := draw(normal)) | _changed(drawn, **parts)


_SMALL_LAYER = _one_layer(4, 4, mask=_first_tokens(3, num=4)[0])


def _is_last_bias(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the bias has {expected} there"
    return laws.is_not(value, inputs["weights"]["output.LayerNorm.bias"].expand_as(value), words)


def _silent_layer(normal: Normal) -> Inputs:
    """Both steps add nothing, and the normalisations learn nothing."""
    zeros, ones = torch.zeros(4), torch.ones(4)
    return _drawn_with(
        _SMALL_LAYER,
        attention__output__dense__weight=torch.zeros(4, 4),
        attention__output__dense__bias=zeros,
        output__dense__weight=torch.zeros(4, 5),
        output__dense__bias=zeros,
        attention__output__LayerNorm__weight=ones,
        attention__output__LayerNorm__bias=zeros,
        output__LayerNorm__weight=ones,
        output__LayerNorm__bias=zeros,
    )(normal)


def _is_normalised_input(inputs: Inputs, value: Tensor) -> str | None:
    expected = functional.layer_norm(inputs["x"], (4,), eps=EPS)
    return laws.is_not(value, expected, "at {place} yours gives {yours}, not {expected}")


def _without_first_head(normal: Normal) -> Inputs:
    drawn = _SMALL_LAYER(normal)
    dense = drawn["weights"]["attention.output.dense.weight"] * torch.tensor([0.0, 0.0, 1.0, 1.0])
    return drawn | _changed(drawn, attention__output__dense__weight=dense)


def _other_first_head(inputs: Inputs, normal: Normal) -> Inputs:
    rows = torch.tensor([1.0, 1.0, 0.0, 0.0])[:, None]
    parts = {
        f"attention__self__{name}__weight": inputs["weights"][f"attention.self.{name}.weight"]
        + rows * normal(4, 4)
        for name in ("query", "key", "value")
    }
    return _changed(inputs, **parts)


def _padding_changed(inputs: Inputs, normal: Normal) -> Inputs:
    return {"x": torch.where(inputs["mask"][..., None], inputs["x"], 5 * normal(*inputs["x"].shape))}


def _first_three(value: Tensor) -> Tensor:
    return value[:3]


def _turned_round(inputs: Inputs, normal: Normal) -> Inputs:
    return {"x": inputs["x"].flip(-2), "mask": inputs["mask"].flip(-1)}


def _turned_back(normal: Normal) -> list[Inputs]:
    drawn = _SMALL_LAYER(normal)
    return [drawn, drawn | _turned_round(drawn, normal)]


def _is_turned_round(inputs: list[Inputs], values: list[Tensor]) -> str | None:
    words = "for token {place} yours gives {expected} before and {yours} after"
    return laws.is_not(values[1].flip(-2), values[0], words)


_PENCIL_LAYER = {
    "attention.self.query.weight": torch.zeros(2, 2),
    "attention.self.query.bias": torch.zeros(2),
    "attention.self.key.weight": torch.zeros(2, 2),
    "attention.self.key.bias": torch.zeros(2),
    "attention.self.value.weight": torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
    "attention.self.value.bias": torch.zeros(2),
    "attention.output.dense.weight": torch.tensor([[2.0, 0.0], [1.0, 0.0]]),
    "attention.output.dense.bias": torch.zeros(2),
    "attention.output.LayerNorm.weight": torch.tensor([10.0, 10.0]),
    "attention.output.LayerNorm.bias": torch.zeros(2),
    "intermediate.dense.weight": torch.tensor([[0.0, 1.0], [2.0, 0.0]]),
    "intermediate.dense.bias": torch.zeros(2),
    "output.dense.weight": torch.tensor([[3.0, 0.0], [0.0, 2.0]]),
    "output.dense.bias": torch.zeros(2),
    "output.LayerNorm.weight": torch.tensor([1.0, 2.0]),
    "output.LayerNorm.bias": torch.tensor([5.0, 5.0]),
}

encoder_layer = Task(
    "encoder_layer",
    _encoder_layer,
    {
        "x": torch.tensor([[9.0, 0.0], [0.0, 2.0]]),
        "mask": torch.tensor([True, True]),
        "weights": _PENCIL_LAYER,
        "num_heads": 1,
    },
    _layer_cases,
    laws=[
        Law(
            "where the gain of the last normalisation is 0, every output is its bias",
            LAYER,
            _drawn_with(_SMALL_LAYER, output__LayerNorm__weight=torch.zeros(4)),
            _is_last_bias,
        ),
        Law(
            "where both steps add nothing and the gains are 1, the input comes out normalised",
            LAYER,
            _silent_layer,
            _is_normalised_input,
        ),
        laws.stays(
            "what stands at padding changes nothing for the tokens",
            PADDING,
            _SMALL_LAYER,
            _padding_changed,
            _first_three,
        ),
        laws.stays(
            "where the first half of the columns of attention.output.dense is 0, the first of two heads "
            "plays no part",
            LAYER,
            _without_first_head,
            _other_first_head,
        ),
        laws.stays(
            "the bias of the keys changes nothing, as it adds the same to all scores of a query",
            LAYER,
            _SMALL_LAYER,
            lambda inputs, normal: _changed(inputs, attention__self__key__bias=normal(4)),
        ),
        Law(
            "where the tokens come in the opposite order, so do the outputs",
            LAYER,
            _turned_back,
            _is_turned_round,
        ),
        laws.sequences_are_treated_alone(_one_layer(3, 4, 4), LAYER, ("x", "mask")),
    ],
    refuses=("_transformer_encoder_layer_fwd",),
)


@encoder_layer.made_of(
    heads=wrongs(
        "multihead#slices",
        """
        one: there is one head with all features
            The features of queries, keys and values are cut into `num_heads` equal parts, and each head
            attends by itself.
        reshaped: the features are cut by a reshape that mixes tokens and heads
            A reshape from (N, D) to (H, N, D/H) takes the numbers in the order of reading. First give each
            token its heads, (N, H, D/H), and then exchange the two dimensions.
        in turn: the features are dealt out to the heads in turn
            The first head has the first D/H features, side by side.
        joined: the heads are joined without exchanging their dimension with that of the tokens
            Before the last reshape the features of all heads of one token must lie side by side.
        """,
    ),
    matrix=wrongs(
        LAYER,
        """
        transposed: the matrices of the attention are used as rows times matrix
            The published matrices are output × input. With a token as a row, which side of the product
            must have the transpose? The file has output × input: square ones do not complain.
        none transposed: all matrices are used as rows times matrix
            The published matrices are output × input. With a token as a row, which side of the product
            must have the transpose?
        qkv transposed: the matrices of queries, keys and values are used as rows times matrix
            All published matrices are output × input: square ones do not complain.
        query transposed: the matrix of the queries is used as rows times matrix
            All published matrices are output × input: square ones do not complain.
        key transposed: the matrix of the keys is used as rows times matrix
            All published matrices are output × input: square ones do not complain.
        value transposed: the matrix of the values is used as rows times matrix
            All published matrices are output × input: square ones do not complain.
        output transposed: the matrix of attention.output.dense is used as rows times matrix
            The other three of the attention are turned in yours. All published matrices are output × input.
        exchanged: the weights for queries are used for the keys, and the other way round
            Scores are not symmetric: who asks whom?
        """,
    ),
    biases=wrongs(
        LAYER,
        """
        none: none of the biases is added
            Each of the six matrices has a bias, which is added after the product.
        no self bias: the biases of queries, keys and values are missing
            Queries, keys and values have a bias each.
        no query bias: the bias of the queries is missing
            Queries, keys and values have a bias each.
        no value bias: the bias of the values is missing
            Queries, keys and values have a bias each.
        no dense bias: the bias of attention.output.dense is missing
            After the heads are mixed, a bias is added.
        no inner bias: the bias of intermediate.dense is missing
            Both matrices of the small network have a bias.
        """,
    ),
    scale=only(LAYER_SCALE, "none", "dim", "model dim", "multiplied"),
    masked=LOW
    | wrongs(
        PADDING,
        """
        none: the mask is not used
            What stands at padding is no word. No token may attend to it.
        inverted: tokens are hidden, and padding is seen
            True means: this is a token. What must be hidden?
        queries: the mask is applied to the queries instead of the keys
            Whether somebody may be looked at belongs to the key: the last dimension of the scores.
        only queries: the mask hides all that padding asks for, instead of the keys
            Whether somebody may be looked at belongs to the key: the last dimension of the scores. Where
            every score of a row is minus infinity, its softmax is not a number.
        only padding: tokens are hidden with minus infinity, and padding is seen
            True means: this is a token. What must be hidden?
        after: the weights of padding are made 0 after the softmax
            Then the others no longer sum to 1. Hide before the softmax. (masking#masking-three-ways)
        zero: the scores of padding are made 0 instead of minus infinity
            A score of 0 is a score like any other: after the exponential it is 1.
            (masking#masking-three-ways)
        heads: the mask has no dimension for the heads
            Scores have the shape (..., heads, queries, keys). Where there are as many heads as texts, nothing
            complains, and each head of every text gets the mask of another text.
        both: the mask hides padding as keys, and all that padding asks for
            Only who may be looked at is asked here. A row in which everything is hidden has no softmax.
        blank: the output is made 0 at padding
            What comes out there, nobody reads: the mask goes along. Leave it as it is.
        """,
    ),
    along=wrongs(
        "attention_operator#rows-and-columns",
        """
        queries: the softmax runs along the queries instead of the keys
            The weights of each query are to sum to 1: along the last dimension of the scores.
        """,
    ),
    steps=wrongs(
        LAYER,
        """
        pre: the steps are normalised before, and not after the sum
            This model is older: the normalisation stands after each sum. (transformer#pre-and-post)
        no first sum: the input is not added to what the attention finds
            Each of the two steps adds to its input.
        no second sum: its input is not added to what the small network finds
            Each of the two steps adds to its input.
        input twice: the small network's result is added to the input of the layer
            It is added to what went into the small network.
        no first norm: the first normalisation is missing
            There is one after each of the two sums.
        no last norm: the last normalisation is missing
            There is one after each of the two sums.
        norms exchanged: the two normalisations have changed places
            `attention.output.LayerNorm` belongs to the attention, `output.LayerNorm` stands at the end.
        last twice: both normalisations have the weights of the last one
            `attention.output.LayerNorm` belongs to the attention, `output.LayerNorm` stands at the end.
        first twice: both normalisations have the weights of the first one
            `attention.output.LayerNorm` belongs to the attention, `output.LayerNorm` stands at the end.
        """,
    ),
    bend=wrongs(
        LAYER,
        """
        none: nothing stands between the two matrices of the small network
            Two matrices, one after the other, are one matrix. This model has GELU between them.
        relu: there is a ReLU between the two matrices
            This model was trained with GELU, which is smooth.
        approximate: GELU is approximated by a hyperbolic tangent
            This model has the exact GELU, $x\\Phi(x)$, which is what `gelu` computes unless told otherwise.
        end: the GELU stands after the second matrix
            It stands between them.
        """,
    ),
    epsilon=wrongs(
        LAYER,
        """
        usual: the number below the root of the normalisations is 1e-5, and not 1e-12
            That is PyTorch's default. This model was trained with 1e-12: where numbers are small one sees it.
        """,
    ),
)
def any_layer(
    x,
    mask,
    weights,
    num_heads,
    *,
    heads="",
    matrix="",
    biases="",
    scale="",
    masked="",
    along="",
    steps="",
    bend="",
    epsilon="",
):
    H = num_heads

    def linear(y, name):
        W, b = weights[name + ".weight"], weights[name + ".bias"]
        turned = {
            "transposed": "attention",
            "none transposed": "",
            "qkv transposed": "attention.self",
            "query transposed": "attention.self.query",
            "key transposed": "attention.self.key",
            "value transposed": "attention.self.value",
            "output transposed": "attention.output",
        }.get(matrix)
        y = y @ W.mT if turned is None or not name.startswith(turned) else y @ W
        left_out = {
            "none": "",
            "no self bias": "attention.self",
            "no query bias": "attention.self.query",
            "no value bias": "attention.self.value",
            "no dense bias": "attention.output.dense",
            "no inner bias": "intermediate.dense",
        }.get(biases)
        return y + b if left_out is None or not name.startswith(left_out) else y

    def norm(y, name):
        if steps == "norms exchanged":
            name = {"output": "attention.output", "attention.output": "output"}[name]
        name = {"last twice": "output", "first twice": "attention.output"}.get(steps, name)
        small = 1e-5 if epsilon else 1e-12
        centred = y - y.mean(-1, keepdim=True)
        deviation = (centred.square().mean(-1, keepdim=True) + small).sqrt()
        return centred / deviation * weights[name + ".LayerNorm.weight"] + weights[name + ".LayerNorm.bias"]

    def split(y):
        *batch, length, dim = y.shape
        if heads == "one":
            return y.unsqueeze(-3)
        if heads == "reshaped":
            return y.reshape(*batch, H, length, dim // H)
        if heads == "in turn":
            return y.reshape(*batch, length, dim // H, H).movedim(-1, -3)
        return y.reshape(*batch, length, H, dim // H).transpose(-3, -2)

    def attend(y):
        names = ["query", "key", "value"]
        if matrix == "exchanged":
            names = ["key", "query", "value"]
        query, key, value = (split(linear(y, "attention.self." + name)) for name in names)
        d = query.shape[-1]
        by = {"none": 1.0, "dim": d, "model dim": math.sqrt(x.shape[-1]), "multiplied": 1 / math.sqrt(d)}
        scores = query @ key.mT / by.get(scale, math.sqrt(d))
        seen = mask[..., None, :] if masked == "heads" else mask[..., None, None, :]
        if masked == "both":
            scores = scores.masked_fill(~(seen & mask[..., None, :, None]), -torch.inf)
        elif masked == "zero":
            scores = scores * seen
        elif masked == "low":
            scores = scores.masked_fill(~seen, -30.0)
        elif masked == "inverted":
            scores = scores.masked_fill(seen, -1e9)
        elif masked == "queries":
            scores = scores.masked_fill(~mask[..., None, :, None], -1e9)
        elif masked == "only queries":
            scores = scores.masked_fill(~mask[..., None, :, None], -torch.inf)
        elif masked == "only padding":
            scores = scores.masked_fill(seen, -torch.inf)
        elif masked in ("", "heads", "blank"):
            scores = scores.masked_fill(~seen, -torch.inf)
        shares = torch.softmax(scores, -2 if along else -1)
        found = (shares * seen if masked == "after" else shares) @ value
        if heads != "joined":
            found = found.transpose(-3, -2)
        return linear(found.reshape(y.shape), "attention.output.dense")

    def think(y):
        hidden = linear(y, "intermediate.dense")
        gelu = torch.nn.functional.gelu
        if bend == "relu":
            hidden = torch.relu(hidden)
        elif bend == "approximate":
            hidden = gelu(hidden, approximate="tanh")
        elif bend == "":
            hidden = gelu(hidden)
        found = linear(hidden, "output.dense")
        return gelu(found) if bend == "end" else found

    if steps == "pre":
        z = x + attend(norm(x, "attention.output"))
        return z + think(norm(z, "output"))
    z = attend(x) if steps == "no first sum" else x + attend(x)
    if steps != "no first norm":
        z = norm(z, "attention.output")
    y = think(z)
    if steps != "no second sum":
        y = y + (x if steps == "input twice" else z)
    y = y if steps == "no last norm" else norm(y, "output")
    return y * mask[..., None] if masked == "blank" else y


# ---------------------------------------------------------------------------------------
# The whole encoder
# ---------------------------------------------------------------------------------------


def _encode_texts(ids: Tensor, mask: Tensor, weights: Weights, num_heads: int) -> Tensor:
    hidden = words.SentenceEncoder.from_published(weights, num_heads)(ids, mask)
    assert isinstance(hidden, Tensor)
    return hidden.detach()


def _texts(
    *shape: int,
    layers: int = 2,
    heads: int = 2,
    dim: int = 4,
    mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        weights = {
            f"embeddings.{name}": part for name, part in _embedding_weights(normal, 6, 9, dim, dtype).items()
        }
        for number in range(layers):
            layer = _learned(normal, _layer_shapes(dim, 5), dtype)
            weights |= {f"encoder.layer.{number}.{name}": part for name, part in layer.items()}
        return {
            "ids": _ids(normal, 6, *shape),
            "mask": _all_tokens(*shape) if mask is None else mask.clone(),
            "weights": weights,
            "num_heads": heads,
        }

    return drawn


def _encode_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    ragged = _first_tokens(4, 2, 3, num=4)
    deep = _texts(3, layers=12, dtype=torch.float64)(normal)
    for name, part in deep["weights"].items():
        # Else all tokens become alike, and nobody sees any more what the first layers have done.
        if name.startswith("encoder"):
            usual = float(name.endswith("LayerNorm.weight"))
            part.copy_(usual + 0.3 * (part - usual))
    return [
        Case(_texts(3, layers=1)(normal), "one text, one layer"),
        Case(_texts(4, layers=3)(normal), "one text, three layers"),
        Case(_texts(3, 4, layers=2, mask=ragged)(normal), "a batch with padding"),
        Case(deep, "twelve layers, in float64"),
        Case(_texts(2, 3, heads=3, dim=6, dtype=torch.float64)(normal), "three heads, in float64"),
        Case(_texts(2, 2, 3, layers=6)(normal), "a batch of batches, six layers"),
        Case(_texts(2, 1)(normal), "texts of a single token"),
    ]


_TWO_LAYERS = _texts(3, 4, mask=_first_tokens(4, 2, 3, num=4))


def _with_gain_zero(layer: int) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        inputs = _texts(3)(normal)
        name = f"encoder.layer.{layer}.output.LayerNorm.weight"
        return inputs | {"weights": inputs["weights"] | {name: torch.zeros(4)}}

    return drawn


def _is_bias_of_last(inputs: Inputs, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the bias has {expected} there"
    bias = inputs["weights"]["encoder.layer.1.output.LayerNorm.bias"]
    return laws.is_not(value, bias.expand_as(value), words)


def _all_alike(inputs: Inputs, value: Tensor) -> str | None:
    words = "at {place} yours gives {yours}, and {expected} for the first token"
    return laws.is_not(value, value[:1].expand_as(value), words)


def _other_padding(inputs: Inputs, normal: Normal) -> Inputs:
    return {"ids": torch.where(inputs["mask"], inputs["ids"], (inputs["ids"] + 1) % 6)}


def _tokens_only(value: Tensor) -> Tensor:
    return value[_first_tokens(4, 2, 3, num=4)]


encode_texts = Task(
    "encode_texts",
    _encode_texts,
    {
        "ids": torch.tensor([2, 0]),
        "mask": torch.tensor([True, True]),
        "weights": {
            "embeddings.word_embeddings.weight": torch.tensor([[1.0, 0.0], [0.0, 1.0], [4.0, 0.0]]),
            "embeddings.position_embeddings.weight": torch.tensor([[0.0, 2.0], [0.0, 3.0], [9.0, 9.0]]),
            "embeddings.token_type_embeddings.weight": torch.tensor([[1.0, 1.0], [5.0, 0.0]]),
            "embeddings.LayerNorm.weight": torch.tensor([2.0, 2.0]),
            "embeddings.LayerNorm.bias": torch.tensor([2.0, 0.0]),
            **{f"encoder.layer.0.{name}": part for name, part in _PENCIL_LAYER.items()},
        },
        "num_heads": 1,
    },
    _encode_cases,
    laws=[
        Law(
            "where the last normalisation of the last layer has the gain 0, every output is its bias",
            WHOLE,
            _with_gain_zero(1),
            _is_bias_of_last,
        ),
        Law(
            "where the first of two layers makes all tokens alike, they are alike at the end, too",
            WHOLE,
            _with_gain_zero(0),
            _all_alike,
        ),
        laws.stays(
            "which number stands at padding changes nothing for the tokens",
            PADDING,
            _TWO_LAYERS,
            _other_padding,
            _tokens_only,
        ),
        laws.sequences_are_treated_alone(_TWO_LAYERS, WHOLE, ("ids", "mask")),
    ],
    refuses=("_transformer_encoder_layer_fwd",),
    builds_on=("embed_ids", "encoder_layer"),
)


@encode_texts.made_of(
    layers=wrongs(
        WHOLE,
        """
        first only: only the first layer is applied
            What comes out of a layer goes into the next. How many are there, by the names of the weights?
        last missing: the last layer is left out
            Layers are numbered from 0. If the largest number is 5, how many are there?
        last only: only the last layer is applied, to the embeddings
            Each layer gets what the one before it gives.
        backwards: the layers are applied in the opposite order
            Layer 0 comes first.
        alphabet: the layers are sorted as words, so that 10 comes before 2
            Names are sorted letter by letter. Count with numbers: `range(num_layers)`.
        six: there are six layers, always
            How many there are, the names say: this model has as many as its names number.
        same: all layers have the weights of the first
            The number in a name says whose weight it is.
        no embedding: the first layer gets the words alone, without positions, type and normalisation
            That is what your function of task 1 is for.
        """,
    ),
    masked=wrongs(
        PADDING,
        """
        none: the layers are not told what is padding
            Hand the mask on, to every layer.
        first layer: only the first layer is told what is padding
            Hand the mask on, to every layer.
        """,
    ),
    heads=wrongs(
        WHOLE,
        """
        one: every layer has one head
            Hand `num_heads` on.
        """,
    ),
    result=wrongs(
        WHOLE,
        """
        first token: only the vector of the first token comes back
            Asked for are the vectors of all tokens. What is made of them comes later.
        mean: the mean of the tokens comes back
            Asked for are the vectors of all tokens. What is made of them comes later.
        blank: the vectors at padding are set to 0
            Padding is hidden as a key, and asks like every other token. What comes of it, nobody looks at;
            it is not the encoder's to erase. (words#padding)
        blank words: padding goes into the first layer as zeros, without an embedding
            Padding has a number, and is embedded like every other token. That it is not to be seen, the mask
            says. (words#padding)
        """,
    ),
)
def any_encoder(ids, mask, weights, num_heads, *, layers="", masked="", heads="", result=""):
    def below(prefix):
        return {name[len(prefix) :]: part for name, part in weights.items() if name.startswith(prefix)}

    numbers = sorted({int(name.split(".")[2]) for name in weights if name.startswith("encoder.")})
    numbers = {
        "first only": numbers[:1],
        "last missing": numbers[:-1],
        "last only": numbers[-1:],
        "backwards": numbers[::-1],
        "alphabet": sorted(numbers, key=str),
        "six": range(6),
        "same": [0] * len(numbers),
    }.get(layers, numbers)
    if layers == "no embedding":
        x = weights["embeddings.word_embeddings.weight"][ids]
    else:
        x = any_embedding_of_ids(ids, below("embeddings."))
    if result == "blank words":
        x = x * mask[..., None]
    for step, number in enumerate(numbers):
        seen = torch.ones_like(mask) if masked == "none" or (masked and step) else mask
        x = any_layer(x, seen, below(f"encoder.layer.{number}."), 1 if heads == "one" else num_heads)
    if result == "first token":
        return x[..., 0, :]
    if result == "blank":
        return x * mask[..., None]
    return x.mean(-2) if result == "mean" else x


# ---------------------------------------------------------------------------------------
# One vector for a text
# ---------------------------------------------------------------------------------------


def _hidden(*shape: int, mask: Tensor | None = None, dtype: torch.dtype = torch.float32) -> laws.Draw:
    """Vectors of tokens, with a mean that is not 0, and large numbers where padding stands."""

    def drawn(normal: Normal) -> Inputs:
        seen = _all_tokens(*shape[:-1]) if mask is None else mask.clone()
        hidden = normal(*shape, dtype=dtype) + normal(shape[-1], dtype=dtype)
        return {"hidden": torch.where(seen[..., None], hidden, 5 * hidden + 3), "mask": seen}

    return drawn


def _vector_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    ragged = _first_tokens(4, 2, 3, num=4)
    return [
        Case(_hidden(5, 4)(normal), "one text without padding"),
        Case(_hidden(3, 4, 5, mask=ragged)(normal), "a batch with padding"),
        Case(_hidden(3, 4, 3, mask=ragged[:, [3, 2, 0, 1]])(normal), "padding in front and in between"),
        Case(_hidden(2, 2, 4, 3, mask=ragged[[1, 0, 2, 1]].view(2, 2, 4))(normal), "a batch of batches"),
        Case(_hidden(4, 4, 4, mask=_first_tokens(1, 4, 2, 3, num=4), dtype=torch.float64)(normal), "float64"),
        Case(_hidden(2, 1, 6)(normal), "texts of a single token"),
        Case(_hidden(1, 3, 4)(normal), "a batch of one text"),
        Case(_hidden(3, 3, mask=_first_tokens(2, num=3)[0])(normal), "one text with padding"),
        Case(_hidden(2, 4, 3)(normal), "vectors that are not contiguous in memory", contiguous=False),
    ]


def _has_length_one(inputs: Inputs, value: Tensor) -> str | None:
    length = value.square().sum(-1).sqrt()
    return laws.is_not(length, torch.ones_like(length), "yours has the length {yours}")


def _is_its_direction(inputs: Inputs, value: Tensor) -> str | None:
    token = inputs["hidden"][0]
    return laws.is_not(value, token / token.norm(), "number {place} of yours is {yours}, not {expected}")


def _hidden_padding(inputs: Inputs, normal: Normal) -> Inputs:
    return {
        "hidden": torch.where(inputs["mask"][..., None], inputs["hidden"], normal(*inputs["hidden"].shape))
    }


_PADDED = _hidden(3, 4, 3, mask=_first_tokens(4, 2, 3, num=4))

sentence_vectors = Task(
    "sentence_vectors",
    words.mean_pooling,
    {
        "hidden": torch.tensor([[[5.0, 0.0], [1.0, 8.0]], [[0.0, 2.0], [7.0, 7.0]]]),
        "mask": torch.tensor([[True, True], [True, False]]),
    },
    _vector_cases,
    laws=[
        Law("every vector has length 1", POOLING, _hidden(4, 3), _has_length_one),
        Law(
            "the vector of a text of one token is that token's, brought to length 1",
            POOLING,
            _hidden(1, 3),
            _is_its_direction,
        ),
        laws.stays("what stands at padding changes nothing", PADDING, _PADDED, _hidden_padding),
        laws.stays(
            "the order of the tokens changes nothing",
            POOLING,
            _hidden(5, 3),
            lambda inputs, normal: {"hidden": inputs["hidden"].flip(-2)},
        ),
        laws.stays(
            "all numbers of a text made twice as large change nothing",
            POOLING,
            _hidden(5, 3),
            lambda inputs, normal: {"hidden": 2 * inputs["hidden"]},
        ),
        laws.sequences_are_treated_alone(_PADDED, POOLING, ("hidden", "mask")),
    ],
)


@sentence_vectors.made_of(
    averaged=wrongs(
        POOLING,
        """
        padding: the vectors at padding are averaged, too
            How far a text is padded depends on the others in its batch. Its vector must not.
            (words#padding)
        inverted: the vectors at padding are averaged instead of those of the tokens
            True means: this is a token. (words#padding)
        first: the vector of the first token is taken
            Other models do so; this one was trained with the mean of all its tokens.
        last: the vector of the last place is taken
            This model was trained with the mean of all its tokens.
        largest: the largest number of each feature is taken instead of the mean
            This model was trained with the mean of all its tokens.
        without the first: the first token is left out
            [CLS] and [SEP] are tokens, too: this model was trained with the mean over all.
        unit tokens: the vectors of the tokens are brought to length 1 before the mean is taken
            Long vectors count more in the mean, as in training. Only what comes out is brought to length 1.
        """,
    ),
    length=wrongs(
        POOLING,
        """
        none: the vectors are not brought to length 1
            Then a dot product depends on how long the vectors are, and not only on the angle between them.
        absolute: the absolute numbers sum to 1 instead of their squares
            The length of a vector is the root of the sum of squares.
        square: it is divided by the square of the length
            The length of a vector is the *root* of the sum of squares.
        largest: the largest number is brought to 1
            The length of a vector is the root of the sum of squares.
        all: it is divided by the length of all vectors together
            Every text is brought to length 1 by itself. Along which dimension lie the features of one text?
        """,
    ),
    form=wrongs(
        POOLING,
        """
        kept: the dimension of the tokens is still there, of size 1
            There is one vector for each text.
        repeated: the vector stands there once for each token
            There is one vector for each text.
        """,
    ),
)
def any_vectors(hidden, mask, *, averaged="", length="", form=""):
    seen = mask[..., None].to(hidden.dtype)
    if averaged == "unit tokens":
        hidden = hidden / hidden.norm(dim=-1, keepdim=True)
    if averaged == "padding":
        seen = torch.ones_like(seen)
    if averaged == "inverted":
        seen = 1 - seen
    if averaged == "without the first":
        seen = torch.cat([0 * seen[..., :1, :], seen[..., 1:, :]], -2)
    if averaged == "first":
        mean = hidden[..., :1, :]
    elif averaged == "last":
        mean = hidden[..., -1:, :]
    elif averaged == "largest":
        mean = hidden.masked_fill(seen == 0, -torch.inf).amax(-2, keepdim=True)
    else:
        mean = (hidden * seen).sum(-2, keepdim=True) / seen.sum(-2, keepdim=True)
    squares = mean.square().sum(-1, keepdim=True)
    by = {
        "none": 1.0,
        "absolute": mean.abs().sum(-1, keepdim=True),
        "square": squares,
        "largest": mean.abs().amax(-1, keepdim=True),
        "all": mean.norm(),
    }.get(length, squares.sqrt())
    vector = mean / by
    if form == "kept":
        return vector
    return vector.expand_as(hidden) if form == "repeated" else vector.squeeze(-2)


# ---------------------------------------------------------------------------------------
# Find the slip: a batch that shows it
# ---------------------------------------------------------------------------------------

_MOST_TEXTS, _MOST_TOKENS, _MOST_FEATURES, _LARGEST = 6, 8, 6, 1000.0


def _pooler(
    change: Callable[[Tensor, Tensor], Tensor] = lambda hidden, seen: hidden,
    counted: Callable[[Tensor], Tensor] = lambda seen: seen,
    spoilt: Callable[[Tensor, Tensor], Tensor] = lambda vectors, hidden: vectors,
) -> Callable[[Tensor, Tensor], Tensor]:
    """A function from vectors of tokens and a mask to vectors of texts; what is not given is right."""

    def pool(hidden: Tensor, mask: Tensor) -> Tensor:
        seen = mask.double().unsqueeze(2)
        hidden = change(hidden.double(), seen)
        mean = (hidden * counted(seen)).sum(1)
        return spoilt(mean / mean.square().sum(1, True).sqrt(), hidden)

    return pool


def _pooling_slips() -> dict[str, Callable[[Tensor, Tensor], Tensor]]:
    """Functions that make a vector of each text, each wrong for some batches."""
    return {
        "padding is averaged, too": _pooler(counted=lambda seen: seen * 0 + 1),
        "the mask of the first text is used for all": _pooler(counted=lambda seen: seen[:1]),
        "padding is taken to stand behind the tokens": _pooler(
            counted=lambda seen: torch.sort(seen, 1, True)[0]
        ),
        "wrong for a single text": _pooler(
            spoilt=lambda vectors, hidden: vectors.roll(1 // hidden.shape[0], 1)
        ),
        "tokens behind the fifth are not counted": _pooler(
            change=lambda hidden, seen: torch.cat([hidden[:, :5], 0 * hidden[:, 5:]], 1)
        ),
        "a thousandth of padding is counted": _pooler(counted=lambda seen: seen + 0.001 * (1 - seen)),
        "numbers below 0 are lost": _pooler(change=lambda hidden, seen: hidden.clamp(min=0.0)),
        "numbers above 10 are cut": _pooler(
            change=lambda hidden, seen: hidden * (1 - seen) + seen * hidden.clamp(max=10.0)
        ),
        "the last text is taken for the one before it": _pooler(
            spoilt=lambda vectors, hidden: torch.cat(
                [vectors[:-1], vectors[(vectors.shape[0] - 2) * (1 - 1 // vectors.shape[0]) :][:1]]
            )
        ),
    }


def _pools_wrongly(pool: Callable, hidden: Tensor, mask: Tensor) -> bool:
    """Whether a function gives other vectors for this batch than it should."""
    right = words.mean_pooling(hidden, mask)
    try:
        found = pool(hidden.clone(), mask.clone())
    except (RuntimeError, IndexError):
        return True
    return found.shape != right.shape or not bool(((found - right).abs() < 0.01).all())


def _batches_to_try() -> list[tuple[Tensor, Tensor]]:
    """Several texts and one, with padding behind, in front and not at all; a small batch first."""
    normal = normal_source(0)
    behind = _first_tokens(3, 7, 5, num=7)
    masks = [_first_tokens(2, 3, num=3), behind, behind.flip(-1), behind[1:2], behind[:1]]
    return [
        ((torch.where(mask[..., None], 20.0, 900.0) * normal(*mask.shape, 2).clamp(-1, 1)).round(), mask)
        for mask in masks
    ]


def _showing_batch(pool: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    for hidden, mask in _batches_to_try():
        if _pools_wrongly(pool, hidden.double(), mask):
            return hidden, mask
    raise ValueError("pool is right for all that is tried: expected one that is not")


def _showing_cases(seed: int) -> list[Case]:
    slips = _pooling_slips()
    normal = normal_source(seed)
    return [
        Case({"pool": trace(slips[name]), "seen": normal(2, 3, 4)}, f"the slip is: {name}")
        for name in in_any_order(slips, seed)
    ]


def _showing_compare(inputs: Inputs, value: Any) -> str | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return "vectors and a mask were expected, as a tuple"
    hidden, mask = value
    if not isinstance(hidden, Tensor) or not hidden.dtype.is_floating_point or hidden.dim() != 3:
        return "the first is to be a tensor of floating-point numbers, of shape (texts, tokens, features)"
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != hidden.shape[:2]:
        return "the second is to be a mask of True and False, of shape (texts, tokens), as the first has them"
    texts, tokens, features = hidden.shape
    if not (1 <= texts <= _MOST_TEXTS and 1 <= tokens <= _MOST_TOKENS and 1 <= features <= _MOST_FEATURES):
        return f"yours has the shape {tuple(hidden.shape)}: up to 6 texts, 8 tokens and 6 features"
    if not bool((hidden.abs() <= _LARGEST).all()):
        return "a number may be anything from -1000 to 1000, and nothing else"
    if not bool(mask.any(1).all()):
        return "a text has no token: every row of the mask needs a True"
    # As exactly as the function below is asked: else a sum could be 0 for one of the two alone.
    hidden = hidden.double()
    if not bool((torch.where(mask[..., None], hidden, 0.0).sum(1).norm(dim=1) > 1e-3).all()):
        return "the mean of a text is 0, and cannot be brought to length 1"
    if _pools_wrongly(inputs["pool"], hidden, mask):
        return None
    return "for this batch it gives the vectors that it should"


def _pooling_slip(name: str) -> Callable[[Normal], Inputs]:
    program = trace(_pooling_slips()[name])
    return lambda normal: {"pool": program, "seen": torch.arange(12.0).view(1, 3, 4)}


def _batch_law(sentence: str, name: str, broken: Callable[[Tensor, Tensor], str | None]) -> Law:
    return Law(sentence, PADDING, _pooling_slip(name), lambda inputs, value: broken(*value))


def _has_padding(hidden: Tensor, mask: Tensor) -> str | None:
    return "in yours every place is a token" if bool(mask.all()) else None


def _has_below_zero(hidden: Tensor, mask: Tensor) -> str | None:
    least = float(hidden.min())
    return None if least < 0 else f"the smallest number of yours is {shown(least)}"


showing_batch = Task(
    "showing_batch",
    lambda pool, seen: _showing_batch(pool),
    _pooling_slip("padding is averaged, too")(normal_source(0)),
    _showing_cases,
    builds_on=("sentence_vectors",),
    laws=[
        _batch_law(
            "a function that averages padding, too, is shown by a batch that has some",
            "padding is averaged, too",
            _has_padding,
        ),
        _batch_law(
            "a function that loses numbers below 0 is shown by a batch that has some",
            "numbers below 0 are lost",
            _has_below_zero,
        ),
    ],
    compare=_showing_compare,
    pencil_note="`pool` averages padding, too",
)


@showing_batch.made_of(
    tried=wrongs(
        PADDING,
        """
        one: one batch is taken for every function, and none is asked
            No batch shows every slip. Try several, and ask the function about each.
        full: no batch with padding is tried
            What is wrong with padding, shows only if there is some.
        equal: all texts of a batch are equally long
            One of the functions takes the mask of the first text for all.
        behind: padding always stands behind the tokens
            The mask says what is padding, wherever it stands. One of the functions only counts the tokens.
        several: no batch of a single text is tried
            One of the functions is wrong only there.
        single: only batches of a single text are tried
            What mixes up texts needs several of them.
        short: no text of more than five tokens is tried
            One of the functions has a number of tokens written into it.
        quiet: at padding stand numbers as small as elsewhere
            One of the functions counts padding, too, but only a little. How do you make a little large?
        positive: no numbers below 0 are tried
            One of the functions takes them for 0.
        small: no numbers above 10 are tried
            One of the functions cuts them.
        """,
    ),
    compared=wrongs(
        PADDING,
        """
        first text: only the vector of the first text is compared
            One of the functions gives the last text a wrong one.
        agreeing: a batch comes back for which the function is right
            Asked for is a batch that shows the slip. Which way round is your comparison?
        """,
    ),
    form=wrongs(
        PADDING,
        """
        vectors: the batch comes back without the mask
            Whoever is to see the slip needs both: return a tuple.
        result: the wrong vectors come back instead of the batch
            Asked for is what the function is to be called with, so that anyone can see it.
        numbers: the mask is made of numbers instead of True and False
            A mask is of bool, here as everywhere in the course.
        """,
    ),
)
def any_showing_batch(pool, seen, *, tried="", compared="", form=""):
    generator = torch.Generator().manual_seed(0)
    behind = torch.arange(7) < torch.tensor([[3], [7], [5]])
    small = torch.tensor([[True, True, False], [True, True, True]])
    masks = [torch.ones_like(small), small, behind, behind.flip(-1), behind[1:2], behind[:1]]
    if tried == "full":
        masks = [torch.ones_like(mask) for mask in masks]
    if tried == "equal":
        masks = [mask[:1].expand_as(mask) for mask in masks]
    if tried == "behind":
        masks = [torch.ones_like(small), small, behind, behind[1:2], behind[:1]]
    if tried == "several":
        masks = [mask for mask in masks if len(mask) > 1]
    if tried == "single":
        masks = [mask[:1] for mask in masks]
    if tried == "short":
        masks = [torch.ones_like(small), behind[::2, :5], behind[::2, :5].flip(-1), behind[:1, :5]]
    found = None
    for mask in masks:
        hidden = torch.randn(*mask.shape, 2, generator=generator).clamp(-1, 1)
        if tried == "positive":
            hidden = hidden.abs()
        loud = 20.0 if tried == "quiet" else 900.0
        hidden = (hidden * torch.where(mask[..., None], 5.0 if tried == "small" else 20.0, loud)).round()
        if found is None:
            found = hidden, mask
        if tried == "one":
            break
        mean = (hidden * mask[..., None]).sum(1)
        right = (mean / mean.norm(dim=1, keepdim=True)).double()
        vectors = pool(hidden, mask)
        wrong = vectors.shape != right.shape or not torch.allclose(vectors, right, 0, 0.01)
        if compared == "first text":
            wrong = not torch.allclose(vectors[0], right[0], 0, 0.01)
        if compared == "agreeing":
            wrong = not wrong
        if wrong:
            found = hidden, mask
            break
    if form == "vectors":
        return found[0]
    if form == "numbers":
        return found[0], found[1].double()
    return pool(*found) if form == "result" else found


# ---------------------------------------------------------------------------------------
# Ranks
# ---------------------------------------------------------------------------------------


def _search(questions: int, passages: int, dtype: torch.dtype = torch.float32) -> laws.Draw:
    return lambda normal: {
        "similarities": normal(questions, passages, dtype=dtype),
        "wanted": _ids(normal, passages, questions),
    }


def _with_equals(questions: int, passages: int) -> laws.Draw:
    """Some passages are as similar as others: the numbers are halves."""

    def drawn(normal: Normal) -> Inputs:
        inputs = _search(questions, passages)(normal)
        return inputs | {"similarities": (2 * inputs["similarities"]).round() / 2}

    return drawn


def _rank_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_search(6, 5)(normal), "six questions, five passages"),
        Case(_search(4, 12)(normal), "more passages than questions"),
        Case(_search(8, 8)(normal), "as many passages as questions"),
        Case(_with_equals(9, 7)(normal), "passages that are equally similar"),
        Case(_search(1, 6, torch.float64)(normal), "a single question, in float64"),
        Case(_search(3, 1)(normal), "a single passage"),
        Case(
            {"similarities": -1 - normal(5, 4).abs(), "wanted": _ids(normal, 4, 5)},
            "similarities that are all below 0",
        ),
        Case(_search(5, 6)(normal), "similarities that are not contiguous in memory", contiguous=False),
    ]


def _ranks_are(sentence: str, similarities: list[list[float]], wanted: list[int], *right: float) -> Law:
    def broken(inputs: Inputs, value: Tensor) -> str | None:
        words = "yours is {yours} at {place}"
        return laws.is_not(value, torch.tensor(right), words)

    inputs = {"similarities": torch.tensor(similarities), "wanted": torch.tensor(wanted)}
    return Law(sentence, SEARCH, lambda normal: inputs, broken)


reciprocal_ranks = Task(
    "reciprocal_ranks",
    words.reciprocal_rank,
    {
        "similarities": torch.tensor([[0.1, 0.9, 0.3], [0.2, 0.5, 0.8], [0.7, 0.6, 0.4]]),
        "wanted": torch.tensor([1, 1, 2]),
    },
    _rank_cases,
    laws=[
        _ranks_are("with a single passage every question gets 1", [[0.2], [-0.5]], [0, 0], 1.0, 1.0),
        _ranks_are(
            "a question whose wanted passage is the most similar gets 1",
            [[0.1, 0.7, 0.2, 0.3]],
            [1],
            1.0,
        ),
        _ranks_are(
            "a question whose wanted passage is the least similar of four gets a quarter",
            [[0.1, 0.7, 0.2, 0.3]],
            [0],
            0.25,
        ),
        _ranks_are(
            "where two passages are the most similar, and one of them is wanted, it gets a half",
            [[0.5, 0.1, 0.5], [0.5, 0.1, 0.5]],
            [0, 2],
            0.5,
            0.5,
        ),
        laws.stays(
            "a number added to all similarities changes nothing",
            SEARCH,
            _search(4, 5),
            lambda inputs, normal: {"similarities": inputs["similarities"] + 3.0},
        ),
    ],
)


@reciprocal_ranks.made_of(
    order=wrongs(
        SEARCH,
        """
        smallest: the smallest similarity stands first
            The most similar passage is the first that is shown.
        questions: a passage is ranked among the questions instead of among the passages
            Each question has its own list, which is a row.
        """,
    ),
    place=wrongs(
        SEARCH,
        """
        argsort: what stands at place `wanted` of the sorted list is taken for the place of `wanted`
            `argsort` says which passage stands at each place. Asked for is the opposite: at which place this
            passage stands. Counting who is in front of it is simpler.
        from 0: places are counted from 0
            The first place is 1, and 1/1 is the best that one can get.
        """,
    ),
    equals=wrongs(
        SEARCH,
        """
        before: what is equally similar is put behind the wanted passage
            Then a search that finds everything equally similar would be perfect. A passage that
            is as similar stands in front.
        middle: what is equally similar is put half in front and half behind
            Asked for is the strict count: a passage that is as similar stands in front.
        sorted: what is equally similar stands wherever sorting has put it
            Sorting puts equals in the order in which they came, or in any. A passage that is as similar as
            the wanted one is to stand in front, wherever it came from. Counting is simpler than sorting.
        """,
    ),
    result=wrongs(
        SEARCH,
        """
        rank: the place comes back, and not one divided by it
            The second place counts a half.
        whole: the place comes back, as a whole number, and not one divided by it
            The second place counts a half.
        hit: only the first place counts, with 1
            A second place is worth a half, a third a third. (`//` would round that down to 0.)
        share: the share of passages that are not in front comes back
            Asked for is one divided by the place, however many passages there are.
        mean: the mean over all questions comes back
            Asked for is a number for each question. The mean is taken later.
        """,
    ),
)
def any_ranks(similarities, wanted, *, order="", place="", equals="", result=""):
    scores = -similarities if order == "smallest" else similarities
    number = torch.arange(len(wanted))
    own = scores[number, wanted][:, None]
    others = scores[:, wanted].T if order == "questions" else scores
    front, same = (others > own).sum(1), (others == own).sum(1)
    if place == "argsort":
        rank = 1 + torch.argsort(scores, dim=1, descending=True, stable=True)[number, wanted]
    elif equals == "before":
        rank = front + 1
    elif equals == "sorted":
        order = torch.argsort(scores, dim=1, descending=True, stable=True)
        rank = 1 + order.argsort(1)[number, wanted]
    elif equals == "middle":
        rank = front + (same + 1) / 2
    else:
        rank = front + same
    if place == "from 0":
        rank = rank - 1
    rank = rank.float()
    if result == "rank":
        return rank
    if result == "whole":
        return rank.long()
    if result == "hit":
        return (rank == 1).float()
    if result == "share":
        return 1 - (rank - 1) / scores.shape[1]
    return (1 / rank).mean() if result == "mean" else 1 / rank


# ---------------------------------------------------------------------------------------
# A head for a job, and its proof
# ---------------------------------------------------------------------------------------


def _held_out_head(weights: Tensor, asking: Tensor, wanted: Tensor, num_seen: int) -> tuple[int, int, float]:
    shares = weights[torch.arange(len(weights)), :, :, asking, wanted]  # (num_sentences, blocks, heads)
    block, head = divmod(int(shares[:num_seen].mean(0).argmax()), weights.shape[2])
    return block, head, shares[num_seen:, block, head].mean().item()


def _looks(
    sentences: int, blocks: int, heads: int, length: int, seen: int, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    def drawn(normal: Normal) -> Inputs:
        scores = 2 * normal(sentences, blocks, heads, length, length, dtype=dtype)
        asking = _ids(normal, length, sentences)
        wanted = (asking + 1 + _ids(normal, length - 1, sentences)) % length
        return {
            "weights": torch.softmax(scores, -1),
            "asking": asking,
            "wanted": wanted,
            "num_seen": seen,
        }

    return drawn


def _head_cases(seed: int) -> list[Case]:
    normal = normal_source(seed, "weights")
    return [
        Case(_looks(8, 2, 3, 5, 4)(normal), "two blocks with three heads"),
        Case(_looks(9, 3, 2, 4, 3)(normal), "three blocks with two heads, and more unseen than seen"),
        Case(_looks(6, 1, 4, 4, 3)(normal), "one block"),
        Case(_looks(7, 4, 4, 4, 5)(normal), "as many blocks as heads as tokens"),
        Case(_looks(6, 4, 1, 5, 4, torch.float64)(normal), "one head in a block, in float64"),
        Case(_looks(2, 3, 4, 6, 1)(normal), "one sentence seen, and one unseen"),
        Case(_looks(12, 6, 12, 5, 8)(normal), "six blocks with twelve heads"),
    ]


def _planted_heads(*jobs: tuple[int, int, int, int], asked: int = 2, sought: int = 0) -> laws.Draw:
    """Six sentences of four tokens, two blocks with three heads that spread evenly, but for those with a job.

    A job is a block, a head, and from which sentence to which it is done, with weight 1 on the wanted key.
    """

    def drawn(normal: Normal) -> Inputs:
        weights = torch.full((6, 2, 3, 4, 4), 0.25)
        for block, head, first, end in jobs:
            weights[first:end, block, head, asked] = torch.eye(4)[sought]
        return {
            "weights": weights,
            "asking": torch.full((6,), asked),
            "wanted": torch.full((6,), sought),
            "num_seen": 3,
        }

    return drawn


def _found_is(*right: float) -> Callable[[Any, Any], str | None]:
    def broken(inputs: Inputs, value: Any) -> str | None:
        if all(math.isclose(part, there, abs_tol=1e-4) for part, there in zip(value, right, strict=True)):
            return None
        return f"yours says {shown(tuple(value))}"

    return broken


def _others_ask(inputs: Inputs, normal: Normal) -> Inputs:
    """Other weights for all queries but those that ask."""
    weights = inputs["weights"]
    other = torch.softmax(2 * normal(*weights.shape), -1)
    asks = torch.nn.functional.one_hot(inputs["asking"], weights.shape[-1]).bool()[:, None, None, :, None]
    return {"weights": torch.where(asks, weights, other)}


_PENCIL_HEADS = torch.tensor(
    [
        [[[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.75, 0.25]]],
        [[[0.5, 0.5], [1.0, 0.0]], [[0.5, 0.5], [0.25, 0.75]]],
    ]
).unsqueeze(1)

held_out_head = Task(
    "held_out_head",
    _held_out_head,
    {
        "weights": _PENCIL_HEADS,
        "asking": torch.tensor([1, 1]),
        "wanted": torch.tensor([0, 0]),
        "num_seen": 1,
    },
    _head_cases,
    laws=[
        Law(
            "where head 2 of block 1 does the job in all sentences, and no other does, it is found, with 1",
            UNSEEN,
            _planted_heads((1, 2, 0, 6)),
            _found_is(1, 2, 1.0),
        ),
        Law(
            "where head 2 of block 0 does the job in the seen sentences only, and looks evenly at four "
            "tokens in the others, it is found, with a quarter",
            UNSEEN,
            _planted_heads((0, 2, 0, 3)),
            _found_is(0, 2, 0.25),
        ),
        Law(
            "where head 0 of block 1 does the job in two of three seen sentences, and looks evenly at four "
            "tokens in the others, and head 1 of block 0 does it in all unseen, the first is found, with a "
            "quarter",
            UNSEEN,
            _planted_heads((1, 0, 0, 2), (0, 1, 3, 6)),
            _found_is(1, 0, 0.25),
        ),
        laws.stays(
            "what the other tokens look at plays no part",
            UNSEEN,
            _looks(6, 2, 3, 4, 3),
            _others_ask,
        ),
    ],
)


@held_out_head.made_of(
    chosen=wrongs(
        UNSEEN,
        """
        all: the head is chosen on all sentences, the unseen ones included
            Then they are not unseen. What is to prove something must not have been used for choosing.
        unseen: the head is chosen on the unseen sentences
            What is to prove something must not have been used for choosing.
        smallest: the head with the smallest share is chosen
            Wanted is the head that looks most.
        largest once: the head with the largest weight in any single sentence is chosen
            One sentence is an anecdote. Take the mean over all that were seen.
        first block: only the heads of the first block are looked at
            Every block has heads.
        one more: the first of the unseen sentences is counted among the seen ones
            A slice up to `num_seen` has that many. What is to prove something must not have been used for
            choosing.
        apart: block and head are chosen apart, each by its mean
            The best head may stand in a block whose other heads do nothing of the kind. Look for the largest
            of all shares.
        """,
    ),
    read=wrongs(
        UNSEEN,
        """
        exchanged: the weight of the wanted token on the asking one is read
            A row belongs to who asks, and a column to who is looked at.
        first: the places of the first sentence are used for all
            In every sentence they stand elsewhere.
        received: how much all tokens together look at the wanted one is read
            Only one of them asks. Which row is that?
        """,
    ),
    share=wrongs(
        UNSEEN,
        """
        seen: the share on the seen sentences is told
            The best of many looks good on what it was chosen on. What does it do elsewhere?
        all: the share on all sentences is told
            The best of many looks good on what it was chosen on. Only the unseen sentences prove something.
        best: the largest share that any head has on the unseen sentences is told
            That is another head, perhaps. What does *this* one do there?
        """,
    ),
    form=wrongs(
        UNSEEN,
        """
        flat: the head is numbered through all blocks
            A number among all heads, divided by the heads of a block: the whole part is the block, and the
            rest the head.
        exchanged: head and block are exchanged
            First the block, then the head, then the share.
        transposed: heads and blocks are exchanged where the number is taken apart
            After a flatten the head runs fastest: divide by the number of heads.
        """,
    ),
)
def any_head(weights, asking, wanted, num_seen, *, chosen="", read="", share="", form=""):
    sentences, blocks, heads = weights.shape[:3]
    if read == "exchanged":
        asking, wanted = wanted, asking
    if read == "first":
        asking, wanted = asking[:1].expand(sentences), wanted[:1].expand(sentences)
    if read == "received":
        shares = weights.mean(-2)[torch.arange(sentences), :, :, wanted]
    else:
        shares = weights[torch.arange(sentences), :, :, asking, wanted]
    seen, unseen = shares[: num_seen + (chosen == "one more")], shares[num_seen:]
    by = {
        "all": shares.mean(0),
        "unseen": unseen.mean(0),
        "smallest": -seen.mean(0),
        "largest once": seen.amax(0),
        "first block": seen.mean(0)[:1],
    }.get(chosen, seen.mean(0))
    number = int(by.argmax())
    block, head = number // heads, number % heads
    if chosen == "apart":
        block, head = (int(seen.mean(0).mean(dim).argmax()) for dim in (1, 0))
    told = {
        "seen": seen[:, block, head].mean(),
        "all": shares[:, block, head].mean(),
        "best": unseen.mean(0).max(),
    }.get(share, unseen[:, block, head].mean())
    if form == "flat":
        return 0, number, told.item()
    if form == "exchanged":
        return head, block, told.item()
    if form == "transposed":
        return number % blocks, number // blocks, told.item()
    return block, head, told.item()


# ---------------------------------------------------------------------------------------
# Predict: the best of many, by chance
# ---------------------------------------------------------------------------------------


def _chance_of_best(num_right: int, num_pairs: int, num_heads: int) -> float:
    ways = sum(math.comb(num_pairs, k) for k in range(num_right, num_pairs + 1))
    return 1 - (1 - ways / 2**num_pairs) ** num_heads


def _tossed(num_right: int, num_pairs: int, num_heads: int) -> Inputs:
    return {"num_right": num_right, "num_pairs": num_pairs, "num_heads": num_heads}


def _chance_cases(seed: int) -> list[Case]:
    draw = Draws(seed, "choices").whole
    pairs = draw(7, 11)
    return [
        Case(_tossed(10, 10, 72), "all ten pairs, 72 heads"),
        Case(_tossed(9, 10, 72), "nine of ten pairs, 72 heads"),
        Case(_tossed(draw(3, 5), 6, 1), "a single head"),
        Case(_tossed(pairs - draw(0, 2), pairs, draw(12, 144)), "some pairs and heads"),
        Case(_tossed(draw(7, 9), 12, draw(2, 4)), "few heads"),
        # So few that a head without any right pair is not rare.
        Case(_tossed(0, draw(2, 3), draw(1, 3)), "no pair needs to be right"),
        Case(_tossed(20, 30, 72), "thirty pairs"),
        # Not so many heads that a chance of single precision, multiplied so often, is another one.
        Case(_tossed(draw(18, 20), draw(28, 34), draw(50, 120)), "about a hundred heads"),
    ]


def _chance_law(sentence: str, inputs: Inputs, right: float) -> Law:
    def broken(inputs: Inputs, value: float) -> str | None:
        return None if math.isclose(value, right, abs_tol=1e-6) else f"yours says {shown(float(value))}"

    return Law(sentence, CHANCE, lambda normal: inputs, broken)


chance_of_best = Task(
    "chance_of_best",
    _chance_of_best,
    _tossed(2, 2, 3),
    _chance_cases,
    laws=[
        _chance_law("with one head and one pair the chance of being right is a half", _tossed(1, 1, 1), 0.5),
        _chance_law(
            "with one head the chance of two right pairs of two is a quarter", _tossed(2, 2, 1), 0.25
        ),
        _chance_law("with one pair one of two heads is right in three of four cases", _tossed(1, 1, 2), 0.75),
        _chance_law(
            "with one head at least one of two pairs is right in three of four cases", _tossed(1, 2, 1), 0.75
        ),
        _chance_law("to have none right, or more, is certain", _tossed(0, 4, 3), 1.0),
    ],
)


@chance_of_best.made_of(
    counted=wrongs(
        CHANCE,
        """
        exactly: exactly so many right pairs are counted, and not more
            A head with more right is at least as remarkable. Add up all numbers from there on.
        more: only more right pairs than asked for are counted
            So many, or more.
        fewer: so many right pairs or fewer are counted
            So many, or more.
        not none: that no pair is right is left out where it counts, too
            Where none needs to be right, none is enough. Where does a `range` begin?
        without all: that all pairs are right is left out
            So many, or more, up to all of them. Where does a `range` end?
        in this order: it is not counted in how many ways so many pairs can be right
            Nine right of ten can miss the first, or the second, or ... `math.comb` counts the ways.
        """,
    ),
    best=wrongs(
        CHANCE,
        """
        one: only a single head is thought of
            You looked at all heads, and took the best. How likely is it that *any* of them does so well?
        sum: the chances of the heads are added up
            That can be more than 1. Multiply the chances that each head does *not* do so well.
        all: it is the chance that all heads do so well
            One is enough. What is the opposite of "at least one"?
        no head: it is the chance that no head does so well
            Asked for is the opposite.
        """,
    ),
    mixed=wrongs(
        CHANCE,
        """
        exchanged: the numbers of pairs and of heads are exchanged
            A coin is tossed for each pair; the heads are those who toss.
        """,
    ),
)
def any_chance(num_right, num_pairs, num_heads, *, counted="", best="", mixed=""):
    if mixed == "exchanged":
        num_pairs, num_heads = num_heads, num_pairs
    numbers = {
        "exactly": [num_right],
        "more": range(num_right + 1, num_pairs + 1),
        "not none": range(max(num_right, 1), num_pairs + 1),
        "without all": range(num_right, num_pairs),
        "fewer": range(num_right + 1),
    }.get(counted, range(num_right, num_pairs + 1))
    ways = [1 if counted == "in this order" else math.comb(num_pairs, k) for k in numbers]
    p = sum(ways) / 2**num_pairs
    return {
        "one": p,
        "sum": num_heads * p,
        "all": p**num_heads,
        "no head": (1 - p) ** num_heads,
    }.get(best, 1 - (1 - p) ** num_heads)


# ---------------------------------------------------------------------------------------
# After the experiment: by meaning, or by word?
# ---------------------------------------------------------------------------------------


def _explain_search(by_meaning: Tensor, by_word: Tensor) -> str:
    meaning, word = by_meaning > 0.3, by_word > 0.3
    if bool((meaning == word).all()):
        return "both alike"
    only_meaning, only_word = (
        (one & ~other).double().mean() for one, other in ((meaning, word), (word, meaning))
    )
    if min(only_meaning, only_word) >= 0.2:
        return "together"
    if only_meaning - only_word >= 0.1:
        return "meaning"
    return "word" if only_word - only_meaning >= 0.1 else "too close"


def _search_records(seed: int) -> dict[str, Inputs]:
    """Reciprocal ranks of questions, found by both searches, by one, by the other, or by none."""
    draws = Draws(seed, "choices")

    def ranks(found: Tensor, first: bool, third: bool, fourth: bool) -> Tensor:
        """Among the first three where `found`, and behind elsewhere."""
        places = draws.randint(1, 4, found.shape)
        behind = draws.randint(4, 60, found.shape)
        if first:
            places[:] = 1
        if fourth:
            behind[:] = 4
        if third:
            places[:] = 3
        return 1.0 / torch.where(found, places, behind)

    def record(
        both: int, meaning: int, word: int, *, first: str = "", third: bool = False, num: int = 40
    ) -> Inputs:
        fourth = third or first == "both"
        order = draws.randperm(num)
        number = torch.empty_like(order)
        number[order] = torch.arange(num)
        only = (number >= both) & (number < both + meaning)
        other = (number >= both + meaning) & (number < both + meaning + word)
        return {
            "by_meaning": ranks((number < both) | only, first in ("meaning", "both"), third, fourth),
            "by_word": ranks((number < both) | other, first in ("word", "both"), third, fourth),
        }

    drawn = draws.whole
    return {
        "the same questions found by both": record(22, 0, 0),
        "the same, by meaning at the first place": record(40, 0, 0, first="meaning"),
        "the same number, of other questions": record(20, 9, 9),
        "most by meaning": record(15, 14, 2),
        "most by word": record(12, 1, 16),
        "each finds much that the other misses": record(8, 16, 10),
        "a single question differs": record(25, 1, 0),
        "five more by meaning": record(20, 7, 2),
        "three more by meaning": record(20, 5, 2),
        "more by word, by meaning at the first place": record(20, 1, 6, first="meaning"),
        "third places, and fourth": record(10, 9, 3, third=True),
        "many by word, a few by meaning only": record(5, 7, 25),
        "as many by both, but for others": record(28, 4, 4),
        "eight by each only": record(12, 8, 8),
        "a tenth more by meaning": record(18, 4, 0),
        "a tenth more by word": record(18, 0, 4),
        "first places, and fourth, equally many": record(20, 9, 9, first="both"),
        # On both sides of a fifth and a tenth, and not always of forty.
        "a single question differs, found by word": record(25, 0, 1),
        "three more by word": record(drawn(15, 20), 2, 5),
        "much by meaning only, and almost a fifth by word only": record(drawn(8, 15), drawn(12, 16), 7),
        "much by word only, and almost a fifth by meaning only": record(drawn(8, 15), 7, drawn(12, 16)),
        "a little more than a fifth by each only": record(drawn(8, 15), 9, drawn(9, 16)),
        "almost a fifth by each only": record(drawn(8, 15), 7, 7),
        "five or six more by word": record(drawn(8, 15), drawn(1, 2), 7),
        "of a hundred, nine by each only": record(drawn(40, 70), 9, 9, num=100),
        "of a hundred, nine more by meaning": record(drawn(40, 70), 13, 4, num=100),
        "of a hundred, nine more by word": record(drawn(40, 70), 4, 13, num=100),
        "of a hundred, twelve more by meaning": record(drawn(30, 60), 24, 12, num=100),
        "of a hundred, twelve more by word": record(drawn(30, 60), 12, 24, num=100),
        "of twenty, three more by meaning": record(drawn(8, 12), 4, 1, num=20),
        "of twenty, three more by word": record(drawn(8, 12), 0, 3, num=20),
        "of twenty, five by each only": record(drawn(5, 10), 5, 5, num=20),
    }


def _search_cases(seed: int) -> list[Case]:
    records = _search_records(seed)
    return [Case(records[name], name) for name in in_any_order(records, seed)]


def _search_law(words: str, right: str, name: str) -> Law:
    return Law(
        f"{words}, {right!r} is said", COMPARED, lambda normal: _search_records(0)[name], laws.says(right)
    )


explain_search = Task(
    "explain_search",
    _explain_search,
    {
        "by_meaning": torch.tensor([1.0, 0.5, 0.5, 0.25]),
        "by_word": torch.tensor([0.5, 0.2, 1.0, 0.1]),
    },
    _search_cases,
    laws=[
        _search_law(
            "where both find the same 22 of 40 questions", "both alike", "the same questions found by both"
        ),
        _search_law(
            "where 16 of 40 are found by meaning only, and 10 by word only",
            "together",
            "each finds much that the other misses",
        ),
        _search_law(
            "where 14 of 40 are found by meaning only, and 2 by word only", "meaning", "most by meaning"
        ),
        _search_law("where 1 of 40 is found by meaning only, and 16 by word only", "word", "most by word"),
        _search_law(
            "where the only difference is a single question of 40", "too close", "a single question differs"
        ),
    ],
)


@explain_search.made_of(
    found=wrongs(
        COMPARED,
        """
        first: only the first place counts as found
            The first three places count: a third, or more.
        second: the third place is not counted as found
            1/3 is found, too. Is `>` or `>=` what you mean, and how exact is a third? 1/4 is the next.
        fourth: the fourth place counts as found
            The first three places count.
        """,
    ),
    asked=wrongs(
        COMPARED,
        """
        numbers: both are called alike where they find equally many
            They may be other questions. Compare question by question.
        places: both are called alike only where all places agree
            The question is whether it is found: the first and the third place are alike in this.
        all found: both are called alike only where both find every question
            Questions that neither finds are alike, too.
        means: both are called alike where the means of their reciprocal ranks are equal
            They may be other questions. Compare question by question.
        never alike: it is never asked whether both find the same questions
            That comes first, before anything is counted.
        never together: it is never asked whether each finds what the other misses
            A fifth of all questions on both sides: that is the second answer.
        either: it is enough for "together" that one finds much that the other misses
            Both must.
        exchanged: meaning and word are exchanged
            Which of the two is the first argument?
        over a fifth: exactly a fifth of all questions is not enough for "together"
            A fifth *or more*: `>=`, and not `>`.
        over a tenth: a difference of exactly a tenth is not enough
            A tenth *or more*: `>=`, and not `>`.
        any difference: every difference counts
            A question more or less is chance. Ask for a tenth.
        ranks: the means of the reciprocal ranks are compared at the end
            Asked for are the shares of questions that are found.
        """,
    ),
)
def any_explained_search(by_meaning, by_word, *, found="", asked=""):
    least = {"first": 0.9, "second": 0.4, "fourth": 0.24}.get(found, 0.3)
    meaning, word = by_meaning > least, by_word > least
    alike = (meaning == word).all()
    if asked == "numbers":
        alike = meaning.sum() == word.sum()
    if asked == "all found":
        alike = (meaning & word).all()
    if asked == "means":
        alike = by_meaning.mean() == by_word.mean()
    if asked == "places":
        alike = (by_meaning == by_word).all()
    if alike and asked != "never alike":
        return "both alike"
    only_meaning = (meaning & ~word).double().mean().item()
    only_word = (word & ~meaning).double().mean().item()
    fifth = 0.2001 if asked == "over a fifth" else 0.2
    much = [only_meaning >= fifth, only_word >= fifth]
    if asked != "never together" and (any(much) if asked == "either" else all(much)):
        return "together"
    gap = only_meaning - only_word
    if asked == "ranks":
        gap = (by_meaning - by_word).mean().item()
    if asked == "exchanged":
        gap = -gap
    enough = {"any difference": 1e-9, "over a tenth": 0.1001}.get(asked, 0.0999)
    if gap >= enough:
        return "meaning"
    return "word" if -gap >= enough else "too close"
