"""The choices in every attention: what many tasks can get wrong in the same ways.

A factor is a dictionary of wrong choices; its right one is whatever is not in it. The functions below take
the choices by name, so that one of them is right and wrong in hundreds of ways.
"""

import math

import torch
from torch import Tensor

from attncourse.checks import laws
from attncourse.checks.task import Normal, Wrong, wrongs

SIMILARITY = wrongs(
    "attention_operator#matrix-form",
    """
    cosine: queries and keys are made equally long before they are compared
        A dot product of vectors of length 1 is a cosine. How long a query is, then plays no part, though it
        decides how sharp its weights are. (attention_operator#one-query)
    distance: queries and keys are compared by their distance instead of the dot product
        Near each other and pointing the same way are two things. The score is a sum of products.
        (attention_operator#one-query)
    negated: the scores have the opposite sign
        The key that matches best gets the smallest weight. A large dot product means a good match.
        (attention_operator#one-query)
    exchanged: the scores are transposed: keys in rows, queries in columns
        Row q of the scores must belong to query q. Which of the two matrices has to stand on the left of
        the product? (attention_operator#rows-and-columns)
    reshaped: the keys are reshaped instead of transposed
        A reshape to the transposed shape keeps the numbers in their old order and cuts them up anew, so the
        columns are no longer keys. Print a small matrix both ways.
    not transposed: the keys are not transposed
        Entry (q, k) of the scores is row q of the queries times *row* k of the keys. A matrix product takes
        rows from the left and columns from the right.
    T: `.T` turns round the batch, too
        `.T` is meant for matrices; with a batch it reverses all the dimensions. Only the last two
        dimensions of the keys may change places. (attention_operator#batches)
    t: the transpose is one that knows matrices only
        Without a batch `.t()` does what you want; with one it refuses. There are transposes that exchange
        the last two dimensions and carry the others along. (attention_operator#batches)
    values: the queries are compared with the values instead of the keys
        Queries are matched with keys, and what is averaged is the values.
    """,
)

SCALE = wrongs(
    "attention_operator#why-the-scale",
    """
    none: the scores are not scaled
        A dot product is a sum over the features: the more features, the larger it gets. What keeps its
        typical size the same for any number of features?
    dim: the scores are divided by the number of features, not by its square root
        The weights come out too even. It is the variance of a dot product that grows with the number of
        features; the scale has to undo its typical size.
    fourth root: the scale takes the root twice
        Queries and keys may each be divided by a fourth root; divide by it once only, and the scores are
        still too large.
    value dim: the scale uses the features of the values
        The scale belongs to the dot product of a query and a key. The values have not been touched yet when
        it is applied.
    num keys: the scale uses the number of keys instead of the number of features
        A score is a dot product: a sum with one term for each feature, however many keys there are. Which
        dimension of `key` holds its features?
    num queries: the scale uses the number of queries instead of the number of features
        A score is a dot product: a sum with one term for each feature, however many queries there are.
        Which dimension of `query` holds its features?
    first dim: the scale uses the first dimension, which in a batch counts the sequences
        `len(x)` and `x.shape[0]` move when a batch is added. Count the dimension of the features from the
        back.
    multiplied: the scores are multiplied by the square root instead of divided by it
        The weights come out far too sharp. The scale is there to make the scores smaller.
    after: the scale is applied to the weights, after the softargmax
        The weights of a row no longer sum to 1. The scale changes how sharp the weights are, so it must act
        before they are made.
    two: the scores are divided by 2, however many features there are
        2 is the square root of 4. A query need not have four features.
    whole: the square root is rounded to a whole number
        `//` divides and rounds down, and so does `int`. The square root of the number of features need not
        be a whole number.
    """,
)

AXIS = wrongs(
    "attention_operator#rows-and-columns",
    """
    queries: the weights are normalised over the queries instead of the keys
        Each row of the scores belongs to a query, and the row must sum to 1. Sum your weights along the
        last dimension, and along the one before it.
    dim 1: dimension 1 is normalised, which is the keys only without a batch
        Dimensions counted from the front move when a batch is added. Count from the back.
    dim 0: dimension 0 is normalised, which is the batch when there is one
        Dimension 0 holds the queries if there is no batch, and the sequences if there is one. Neither
        shares out one query's attention. Over which dimension does that run?
    dim 2: dimension 2 is normalised, which is the last only for a single batch dimension
        That is right for one batch dimension and for no other number. There is a way to name the last
        dimension that holds for any number of dimensions. (attention_operator#batches)
    all: all the weights together sum to 1, instead of each row
        Every query has one whole of attention to share out, not a part of one. `sum` without a dimension
        adds up everything.
    """,
)

NORMALISER = wrongs(
    "attention_operator#softargmax",
    """
    none: the values are averaged with the scores, without a softargmax
        Scores may be negative, and they add up to anything. What turns them into weights is missing.
    not divided: the exponentials are not divided by their sum
        Then the weights of a query do not sum to 1, and the output is no average. Look at the fraction bar
        of the equation.
    no exponential: the scores are divided by their sum, without an exponential
        Weights must be positive whatever the scores. Which function makes every number positive and keeps
        their order?
    sigmoid: each weight is a sigmoid of its score
        A sigmoid looks at one score only. A weight says how a query shares out its attention, so it depends
        on all the scores of the query.
    hard: each query takes the value of its best key only
        A hard choice has no gradient to learn from. Softargmax lets every key contribute according to its
        score. (attention_operator#two-limits)
    logarithm: the weights are logarithms of what they should be
        A log-softargmax is negative everywhere. Weights are positive and sum to 1.
    base 2: the exponential has another base than e
        With a base of 2, say, all the weights are more even. It is the exponential function that is meant.
    absolute: the absolute values of the scores are used
        A key that points against the query matches it worst, not best. Keep the sign of the scores.
    twice: the softargmax is taken twice
        Weights that go through a softargmax again come out nearly even. Once is enough.
    overflows: the exponential of a large score overflows
        It is right while the scores are small. Your softargmax has to survive large ones, too: think of a
        number that may be subtracted from all scores of a row. (attention_operator#stable-softargmax)
    one maximum: one maximum is subtracted from all rows
        A row whose scores all lie far below the largest of the whole tensor becomes all zeros, and 0/0 is
        NaN. Every row needs a number of its own. (attention_operator#stable-softargmax)
    """,
)

AVERAGED = wrongs(
    "attention_operator#matrix-form",
    """
    key: the keys are averaged instead of the values
        The keys decide the weights and nothing else. What is it that the weights are for?
    query: the queries are averaged instead of the values
        A query asks. What comes back is made of what the keys have to hand over: their values.
    weights: the weights are returned instead of the average
        You have the second half of the equation still before you: the weights say how much of each value
        the output takes.
    transposed: the weights are transposed before the values are averaged
        Row q of the weights says how much query q takes of each value. Which dimension of the weights must
        meet the values? (attention_operator#rows-and-columns)
    plain mean: all keys get the same weight
        The plain mean of the values does not depend on the query. Where does the query enter?
        (attention_operator#one-query)
    divided again: the weighted sum is divided by the number of keys again
        The weights of a query sum to 1 already, so their sum is an average as it stands.
        (attention_operator#softargmax)
    summed: the features of the output are added up, too
        The sum runs over the keys. Each feature of the values keeps a place of its own in the output.
        (attention_operator#one-query)
    """,
)


LOW = wrongs(
    "masking#minus-a-billion",
    """
    low: the forbidden scores get a number that is low, but not low enough
        How low is low enough depends on the other scores of the row. If they all lie far below your number,
        the forbidden keys win. Is there a number that is below every score?
    """,
)


def only(choices: dict[str, Wrong], *names: str) -> dict[str, Wrong]:
    """Some of a factor's wrong choices."""
    return {name: choices[name] for name in names}


def without(choices: dict[str, Wrong], *names: str) -> dict[str, Wrong]:
    """A factor's wrong choices but for some."""
    return {name: wrong for name, wrong in choices.items() if name not in names}


MADE_FROM = wrongs(
    "attention_operator#three-inputs",
    """
    keys like queries: the keys are made with the weights of the queries
        What a word looks for and what it offers are two things. With the same weights for both, relatedness
        would have to be mutual. (attention_operator#not-symmetric)
    exchanged: queries and keys have changed places
        The queries are made with the weights for keys, and the keys with those for queries. Scores are not
        symmetric: who asks whom? (attention_operator#not-symmetric)
    inputs averaged: the inputs are averaged instead of the values
        What a word hands over need not be what it is. Which of the three weights says what it hands over,
        and where do you use it? (attention_operator#values-not-inputs)
    inputs compared: the scores compare the inputs themselves, without queries and keys
        The inputs are compared as they are. Two of the three weights have not been used.
    inputs only: none of the three weights is used
        The sentence is compared with itself, word by word, and averaged. What the layer can learn, its
        weights, plays no part.
    queries only: the keys are the inputs themselves
        The queries are made with their weights, the keys are not. Which weight is not used?
    transposed: the weights are transposed before they are applied
        PyTorch's `nn.Linear` stores its weight transposed. Here rows are positions and a weight has shape
        (input features, output features): which product fits as it stands?
    values like keys: the values are made with the weights of the keys
        What a word offers to be found by, and what it then hands over, are two things, with two weights.
    """,
)

# The scale of a layer has one more number that it could be taken from.
LAYER_SCALE = {
    **without(SCALE, "first dim", "num queries"),
    "model dim": Wrong(
        "the scale uses the features of the input instead of those of the queries",
        """The dot product is taken after the projection. How many terms does it have then?""",
        "attention_operator#why-the-scale",
    ),
}


def compared(query: Tensor, key: Tensor, value: Tensor, similarity: str) -> Tensor:
    """The products of queries and keys, with one of the choices of `SIMILARITY`."""
    match similarity:
        case "cosine":
            unit = torch.nn.functional.normalize
            return unit(query, dim=-1) @ unit(key, dim=-1).mT
        case "distance":
            return -(query[..., :, None, :] - key[..., None, :, :]).norm(dim=-1)
        case "negated":
            return -query @ key.mT
        case "exchanged":
            return key @ query.mT
        case "reshaped":
            return query @ key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
        case "not transposed":
            return query @ key
        case "T":
            return query @ key.T
        case "t":
            return query @ key.t()
        case "values":
            return query @ value.mT
    return query @ key.mT


def scaled(scores: Tensor, query: Tensor, key: Tensor, value: Tensor, scale: str) -> Tensor:
    """The scores, with one of the choices of `SCALE`."""
    dim = query.shape[-1]
    match scale:
        case "none" | "after":
            return scores
        case "dim":
            return scores / dim
        case "fourth root":
            return scores / dim**0.25
        case "value dim":
            return scores / math.sqrt(value.shape[-1])
        case "num keys":
            return scores / math.sqrt(key.shape[-2])
        case "num queries":
            return scores / math.sqrt(query.shape[-2])
        case "first dim":
            return scores / math.sqrt(query.shape[0])
        case "multiplied":
            return scores * math.sqrt(dim)
        case "two":
            return scores / 2
        case "whole":
            return scores / int(math.sqrt(dim))
    return scores / math.sqrt(dim)


def normalised(scores: Tensor, axis: str, normaliser: str) -> Tensor:
    """The weights, with choices of `AXIS` and `NORMALISER`."""
    axes = {"keys": (-1,), "queries": (-2,), "heads": (-3,), "dim 0": (0,), "dim 1": (1,), "dim 2": (2,)}
    dims = axes.get(axis, tuple(range(scores.dim())))
    top = scores.amax(dims, keepdim=True)
    match normaliser:
        case "none":
            return scores
        case "not divided":
            return torch.exp(scores)
        case "no exponential":
            return scores / scores.sum(dims, keepdim=True)
        case "sigmoid":
            return torch.sigmoid(scores)
        case "hard":
            hard = (scores == top).to(scores.dtype)
            return hard / hard.sum(dims, keepdim=True)
        case "logarithm":
            return scores - top - torch.exp(scores - top).sum(dims, keepdim=True).log()
        case "base 2":
            scores, top = scores * math.log(2), top * math.log(2)
        case "absolute":
            scores = scores.abs()
            top = scores.amax(dims, keepdim=True)
        case "twice":
            once = torch.exp(scores - top)
            scores = once / once.sum(dims, keepdim=True)
        case "overflows":
            top = torch.zeros_like(top)
        case "one maximum":
            top = scores.max()
    exponentials = torch.exp(scores - top)
    return exponentials / exponentials.sum(dims, keepdim=True)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    similarity: str = "dot product",
    scale: str = "root",
    axis: str = "keys",
    normaliser: str = "softargmax",
    averaged: str = "value",
) -> Tensor:
    """Attention with choices of `SIMILARITY`, `SCALE`, `AXIS`, `NORMALISER` and `AVERAGED`."""
    scores = scaled(compared(query, key, value, similarity), query, key, value, scale)
    weights = normalised(scores, axis, normaliser)
    if scale == "after":
        weights = weights / math.sqrt(query.shape[-1])
    match averaged:
        case "key":
            return weights @ key
        case "query":
            return weights @ query
        case "weights":
            return weights
        case "transposed":
            return weights.mT @ value
        case "plain mean":
            return value.mean(-2, keepdim=True).expand(*query.shape[:-1], value.shape[-1])
        case "divided again":
            return weights @ value / key.shape[-2]
        case "summed":
            return (weights @ value).sum(-1)
    return weights @ value


def draw(*batch: int, queries: int = 3, keys: int = 4, dim: int = 3, value_dim: int = 2) -> laws.Draw:
    """Draws queries, keys and values for a law."""

    def drawn(normal: Normal) -> dict[str, Tensor]:
        return {
            "query": normal(*batch, queries, dim),
            "key": normal(*batch, keys, dim),
            "value": normal(*batch, keys, value_dim),
        }

    return drawn


def draw_single(normal: Normal) -> dict[str, Tensor]:
    return {"query": normal(3), "key": normal(4, 3), "value": normal(4, 2)}
