"""Tasks of the unit ``attention_operator``: from one query to the batched matrix form."""

import math
from typing import Any

import torch
from torch import Tensor

from attncourse import attention_operator
from attncourse.checks.task import Case, Task, normal_source

SOFTMAX = (
    "softmax",
    "log_softmax",
    "special_softmax",
    "_softmax",
    "softmin",
    "logsumexp",
    "special_logsumexp",
)


# ---------------------------------------------------------------------------------------
# One query at a time
# ---------------------------------------------------------------------------------------


def _single_query(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return attention_operator.attention(query[None], key, value)[0]


def _single_query_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_keys: int, key_dim: int, value_dim: int, note: str = "", **how: Any) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs = {
            "query": normal(key_dim, dtype=dtype),
            "key": normal(num_keys, key_dim, dtype=dtype),
            "value": normal(num_keys, value_dim, dtype=dtype),
        }
        return Case(inputs, note, **how)

    return [
        case(3, 2, 2),
        case(5, 4, 3, "more keys than features"),
        case(3, 9, 9, "as many value as key features"),
        case(1, 4, 2, "a single key"),
        case(6, 3, 5, "double precision", dtype=torch.float64),
        case(4, 8, 3, "keys and values that are not contiguous", contiguous=False),
        case(4, 3, 1, "a single feature in the values"),
    ]


single_query = Task("single_query", _single_query, _single_query_cases, refuses=SOFTMAX)


@single_query.misconception(
    "the scores are not scaled",
    hint="""A dot product is a sum over the features: the more features, the larger it gets. Something
    has to bring it back to the size it would have with one feature.""",
    read="attention_operator#why-the-scale",
)
def unscaled(query, key, value):
    exponentials = torch.exp(key @ query)
    return (exponentials / exponentials.sum()) @ value


@single_query.misconception(
    "the scores are divided by the number of features, not by its square root",
    hint="""A sum of many independent terms grows like the square root of their number, because it is the
    variances that add up.""",
    read="attention_operator#why-the-scale",
)
def scaled_by_dim(query, key, value):
    exponentials = torch.exp(key @ query / query.shape[0])
    return (exponentials / exponentials.sum()) @ value


@single_query.misconception(
    "the scale uses the number of keys instead of the number of features",
    hint="""Each score is a dot product of two vectors. How many terms does that sum have: one for each key,
    or one for each feature?""",
    read="attention_operator#why-the-scale",
)
def scaled_by_num_keys(query, key, value):
    exponentials = torch.exp(key @ query / math.sqrt(key.shape[0]))
    return (exponentials / exponentials.sum()) @ value


@single_query.misconception(
    "the exponentials are not divided by their sum",
    hint="""Weights share out one whole: what do they have to add up to? Print the sum of yours.""",
    read="attention_operator#softargmax",
)
def not_normalised(query, key, value):
    return torch.exp(key @ query / math.sqrt(query.shape[0])) @ value


@single_query.misconception(
    "the scores are divided by their sum, without an exponential",
    hint="""Scores can be negative or add up to nearly nothing. Which function makes every number positive
    and keeps their order?""",
    read="attention_operator#softargmax",
)
def without_exponential(query, key, value):
    scores = key @ query / math.sqrt(query.shape[0])
    return (scores / scores.sum()) @ value


@single_query.misconception(
    "the keys are averaged instead of the values",
    hint="""Keys are there to be matched. Once the weights are known, the keys have done their work: what is
    it that a query wants to read?""",
    read="attention_operator#one-query",
)
def averages_keys(query, key, value):
    exponentials = torch.exp(key @ query / math.sqrt(query.shape[0]))
    return (exponentials / exponentials.sum()) @ key


@single_query.misconception(
    "only the value of the best key is returned",
    hint="""Attention does not choose, it mixes: a key with the second best score has its say, too.""",
    read="attention_operator#two-limits",
)
def hard_choice(query, key, value):
    return value[(key @ query).argmax()]


@single_query.misconception(
    "the sum of one score goes on into the next",
    hint="""Print the scores one by one. Each key's sum over the features has to start again at 0.""",
    read="attention_operator#one-query",
)
def sum_goes_on(query, key, value):
    scores = (key @ query).cumsum(0) / math.sqrt(query.shape[0])
    exponentials = torch.exp(scores - scores.max())
    return (exponentials / exponentials.sum()) @ value


@single_query.misconception(
    "each exponential is divided by the sum so far, not by the whole sum",
    hint="""The sum under the fraction bar runs over all the keys, for every weight. It must be complete
    before the first weight can be made.""",
    read="attention_operator#one-query",
)
def sum_so_far(query, key, value):
    exponentials = torch.exp(key @ query / math.sqrt(query.shape[0]))
    return (exponentials / exponentials.cumsum(0)) @ value


@single_query.misconception(
    "the weights are returned instead of the average",
    hint="""You have the last sum still before you: the weights say how much of each value the output
    takes.""",
    read="attention_operator#one-query",
)
def weights_only(query, key, value):
    exponentials = torch.exp(key @ query / math.sqrt(query.shape[0]))
    return exponentials / exponentials.sum()


@single_query.misconception(
    "all keys get the same weight",
    hint="""The plain mean of the values does not depend on the query. Where does the query enter?""",
    read="attention_operator#one-query",
)
def plain_mean(query, key, value):
    return value.mean(0)


# ---------------------------------------------------------------------------------------
# Stable softargmax
# ---------------------------------------------------------------------------------------


def _softargmax_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    apart = normal(3, 4)
    apart[0] += 1000
    apart[2] -= 1000
    far = 100 * normal(4, 6)
    far[range(4), [5, 0, 2, 4]] += 1000  # the largest score stands somewhere else in each row
    return [
        Case({"scores": normal(3, 4)}),
        Case({"scores": normal(5)}, "a single row"),
        Case({"scores": normal(4, 4)}, "as many queries as keys"),
        Case({"scores": normal(2, 3, 5, dtype=torch.float64)}, "a batch in double precision"),
        Case({"scores": far}, "scores in the thousands"),
        Case({"scores": normal(2, 5) - 1000}, "scores around -1000"),
        Case({"scores": apart}, "rows that lie a thousand apart"),
        Case({"scores": normal(2, 4, 3)}, "scores that are not contiguous", contiguous=False),
        Case({"scores": normal(1, 3, 1)}, "a batch of one with a single key"),
    ]


softargmax = Task("softargmax", attention_operator.softargmax, _softargmax_cases, refuses=SOFTMAX)


@softargmax.misconception(
    "the exponential of a large score overflows",
    hint="""In float32, exp(89) is infinite, and exp(-104) is 0. Adding the same number to all scores of a row
    changes none of its weights: which number would you add so that exp is never asked for too much, and
    the sum never comes out as 0?""",
    read="attention_operator#stable-softargmax",
)
def overflows(scores):
    exponentials = torch.exp(scores)
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "one maximum is subtracted from all rows",
    hint="""A row whose scores all lie far below the largest of the whole tensor becomes all zeros, and 0/0 is
    NaN. Every row needs a number of its own.""",
    read="attention_operator#stable-softargmax",
)
def one_maximum(scores):
    exponentials = torch.exp(scores - scores.max())
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "the first score of the row is subtracted instead of its maximum",
    hint="""Subtracting any score of the row changes no weight, but does it bound what exp is asked for? Think
    of a row whose first score is its smallest.""",
    read="attention_operator#stable-softargmax",
)
def subtracts_first(scores):
    exponentials = torch.exp(scores - scores[..., :1])
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "the smallest score is subtracted instead of the largest",
    hint="""Now no exponent is negative, and the largest is the difference between the ends of the row.
    Which exponents can never overflow?""",
    read="attention_operator#stable-softargmax",
)
def subtracts_smallest(scores):
    exponentials = torch.exp(scores - scores.amin(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "the exponentials are not divided by their sum",
    hint="""The maximum is taken care of; the fraction bar is not. What must each row add up to?""",
    read="attention_operator#softargmax",
)
def never_divided(scores):
    return torch.exp(scores - scores.amax(-1, keepdim=True))


@softargmax.misconception(
    "a sum or maximum along the rows lost its dimension",
    hint="""`sum(-1)` of a tensor of shape (3, 4) has shape (3,), which broadcasts along the wrong dimension,
    or not at all. There is an argument that keeps the dimension.""",
    read="attention_operator#stable-softargmax",
)
def loses_dimension(scores):
    exponentials = torch.exp(scores - scores.amax(-1))
    return exponentials / exponentials.sum(-1)


@softargmax.misconception(
    "the mean of the row is subtracted instead of its maximum",
    hint="""Subtracting the mean is allowed, as it changes no weight, but does it bound what exp is asked for?
    Think of a row with a single score far above the others.""",
    read="attention_operator#stable-softargmax",
)
def subtracts_mean(scores):
    exponentials = torch.exp(scores - scores.mean(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "the maximum is subtracted above the fraction bar but not below it",
    hint="""Numerator and denominator must be the same exponentials; otherwise the weights no longer add up
    to 1. Print the sum of each row.""",
    read="attention_operator#stable-softargmax",
)
def shifted_above_only(scores):
    shifted = scores - scores.amax(-1, keepdim=True)
    return torch.exp(shifted) / torch.exp(scores).sum(-1, keepdim=True)


@softargmax.misconception(
    "large scores are cut off",
    hint="""Cutting scores off keeps exp finite, but it changes them: two different large scores end up equal.
    Look for a change that no weight notices.""",
    read="attention_operator#stable-softargmax",
)
def clamped(scores):
    exponentials = torch.exp(scores.clamp(-50, 50))
    return exponentials / exponentials.sum(-1, keepdim=True)


@softargmax.misconception(
    "the columns are normalised instead of the rows",
    hint="""Each row belongs to one query, and its weights share out that query's attention. Which dimension
    must the sum run over?""",
    read="attention_operator#rows-and-columns",
)
def normalises_columns(scores):
    shifted = scores - scores.amax(0, keepdim=True)
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum(0, keepdim=True)


@softargmax.misconception(
    "dimension 1 is normalised instead of the last one",
    hint="""Dimension 1 is the last one only if there are exactly two. With a batch in front it is another.
    How do you say "the last" in PyTorch?""",
    read="attention_operator#rows-and-columns",
)
def normalises_dim_1(scores):
    shifted = scores - scores.amax(1, keepdim=True)
    exponentials = torch.exp(shifted)
    return exponentials / exponentials.sum(1, keepdim=True)


@softargmax.misconception(
    "all the numbers together sum to 1, instead of each row",
    hint="""Every query has one whole of attention to share out, not a part of one. `sum` without a dimension
    adds up everything.""",
    read="attention_operator#rows-and-columns",
)
def normalises_all(scores):
    exponentials = torch.exp(scores - scores.amax(-1, keepdim=True))
    return exponentials / exponentials.sum()


@softargmax.misconception(
    "all the weight goes to the largest score",
    hint="""That is the argmax, written as a one-hot row. Softargmax is its smooth version: close scores get
    close weights.""",
    read="attention_operator#softargmax",
)
def one_hot(scores):
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


@softargmax.misconception(
    "the scores are divided by their sum, without an exponential",
    hint="""Weights must be positive whatever the scores. Which function makes every number positive and keeps
    their order?""",
    read="attention_operator#softargmax",
)
def divided_by_sum(scores):
    return scores / scores.sum(-1, keepdim=True)


# ---------------------------------------------------------------------------------------
# The matrix form, batched
# ---------------------------------------------------------------------------------------


def _attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(
        batch: tuple[int, ...], queries: int, keys: int, dim: int, value_dim: int, note: str, **how: Any
    ) -> Case:
        dtype = how.pop("dtype", torch.float32)
        inputs = {
            "query": normal(*batch, queries, dim, dtype=dtype),
            "key": normal(*batch, keys, dim, dtype=dtype),
            "value": normal(*batch, keys, value_dim, dtype=dtype),
        }
        return Case(inputs, note, **how)

    large = case((), 3, 5, 4, 2, "scores in the thousands, in double precision", dtype=torch.float64)
    large.inputs["query"] *= 1000

    return [
        case((), 3, 5, 4, 2, "no batch"),
        case((), 4, 4, 8, 8, "everything square"),
        case((2,), 3, 5, 4, 6, "a batch"),
        case((2,), 5, 5, 3, 3, "a batch of square matrices", dtype=torch.float64),
        case((3, 2), 2, 7, 16, 4, "two batch dimensions"),
        case((3,), 3, 3, 9, 9, "a batch as large as the number of positions"),
        case((2,), 4, 6, 5, 3, "inputs that are not contiguous", contiguous=False),
        case((1,), 1, 4, 3, 2, "a batch of one with a single query"),
        large,
    ]


attention = Task("attention", attention_operator.attention, _attention_cases)


@attention.misconception(
    "the scores are not scaled",
    hint="""The weights come out too sharp, and the more features, the sharper. What keeps the size of a dot
    product the same for any number of features?""",
    read="attention_operator#why-the-scale",
)
def attention_unscaled(query, key, value):
    return torch.softmax(query @ key.mT, -1) @ value


@attention.misconception(
    "the scores are divided by the number of features, not by its square root",
    hint="""The weights come out too even. It is the variance of a dot product that grows with the number of
    features; the scale has to undo its typical size.""",
    read="attention_operator#why-the-scale",
)
def attention_scaled_by_dim(query, key, value):
    return torch.softmax(query @ key.mT / query.shape[-1], -1) @ value


@attention.misconception(
    "the scale uses the features of the values",
    hint="""The scale belongs to the dot product of a query and a key. The values have not been touched yet
    when it is applied.""",
    read="attention_operator#why-the-scale",
)
def attention_scaled_by_value_dim(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(value.shape[-1]), -1) @ value


@attention.misconception(
    "the scale uses the number of keys instead of the number of features",
    hint="""A score is a dot product: a sum with one term for each feature, however many keys there are.
    Which dimension of `key` holds its features?""",
    read="attention_operator#why-the-scale",
)
def attention_scaled_by_num_keys(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(key.shape[-2]), -1) @ value


@attention.misconception(
    "the scale is applied to the weights, after the softargmax",
    hint="""The weights of a row no longer sum to 1. The scale changes how sharp the weights are, so it must
    act before they are made.""",
    read="attention_operator#why-the-scale",
)
def attention_scaled_after(query, key, value):
    return torch.softmax(query @ key.mT, -1) / math.sqrt(query.shape[-1]) @ value


@attention.misconception(
    "the scores are multiplied by the square root instead of divided by it",
    hint="""The weights come out far too sharp. The scale is there to make the scores smaller.""",
    read="attention_operator#why-the-scale",
)
def attention_multiplied(query, key, value):
    return torch.softmax(query @ key.mT * math.sqrt(query.shape[-1]), -1) @ value


@attention.misconception(
    "the weights are normalised over the queries instead of the keys",
    hint="""Each row of the scores belongs to a query, and the row must sum to 1. Sum your weights along the
    last dimension, and along the one before it.""",
    read="attention_operator#rows-and-columns",
)
def attention_over_queries(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -2) @ value


@attention.misconception(
    "dimension 1 is normalised, which is the keys only without a batch",
    hint="""Dimensions counted from the front move when a batch is added. Count from the back.""",
    read="attention_operator#rows-and-columns",
)
def attention_dim_1(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), 1) @ value


@attention.misconception(
    "dimension 0 is normalised, which is the batch when there is one",
    hint="""Dimension 0 holds the queries if there is no batch, and the sequences if there is one. Neither
    shares out one query's attention. Over which dimension does that run?""",
    read="attention_operator#rows-and-columns",
)
def attention_dim_0(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), 0) @ value


@attention.misconception(
    "`.T` turns round the batch, too",
    hint="""`.T` is meant for matrices; with a batch it reverses all the dimensions. Only the last two
    dimensions of the keys may change places.""",
    read="attention_operator#batches",
)
def attention_full_transpose(query, key, value):
    return torch.softmax(query @ key.T / math.sqrt(query.shape[-1]), -1) @ value


@attention.misconception(
    "the transpose is one that knows matrices only",
    hint="""Without a batch `.t()` does what you want; with one it refuses. There are transposes that
    exchange the last two dimensions and carry the others along.""",
    read="attention_operator#batches",
)
def attention_matrix_transpose(query, key, value):
    return torch.softmax(query @ key.t() / math.sqrt(query.shape[-1]), -1) @ value


@attention.misconception(
    "the keys are reshaped instead of transposed",
    hint="""A reshape to the transposed shape keeps the numbers in their old order and cuts them up anew, so
    the columns are no longer keys. Print a small matrix both ways.""",
    read="attention_operator#matrix-form",
)
def attention_reshaped(query, key, value):
    turned = key.reshape(*key.shape[:-2], key.shape[-1], key.shape[-2])
    return torch.softmax(query @ turned / math.sqrt(query.shape[-1]), -1) @ value


@attention.misconception(
    "the exponential of a large score overflows",
    hint="""It is right while the scores are small. Your softargmax has to survive large ones, as in the
    task before.""",
    read="attention_operator#stable-softargmax",
)
def attention_overflows(query, key, value):
    exponentials = torch.exp(query @ key.mT / math.sqrt(query.shape[-1]))
    return exponentials / exponentials.sum(-1, keepdim=True) @ value


@attention.misconception(
    "the values are averaged with the scores, without a softargmax",
    hint="""Scores may be negative, and they add up to anything. What turns them into weights is
    missing.""",
    read="attention_operator#softargmax",
)
def attention_without_softargmax(query, key, value):
    return query @ key.mT / math.sqrt(query.shape[-1]) @ value


@attention.misconception(
    "the scores are transposed: keys in rows, queries in columns",
    hint="""Row q of the scores must belong to query q. Which of the two matrices has to stand on the left of
    the product?""",
    read="attention_operator#rows-and-columns",
)
def attention_transposed(query, key, value):
    return torch.softmax(key @ query.mT / math.sqrt(query.shape[-1]), -1) @ value


@attention.misconception(
    "keys and values have changed places",
    hint="""Queries are matched with keys, and what is averaged is the values. Yours does it the other way
    round.""",
    read="attention_operator#matrix-form",
)
def attention_exchanged(query, key, value):
    return torch.softmax(query @ value.mT / math.sqrt(query.shape[-1]), -1) @ key


@attention.misconception(
    "the keys are averaged instead of the values",
    hint="""The keys decide the weights and nothing else. What is it that the weights are for?""",
    read="attention_operator#matrix-form",
)
def attention_averages_keys(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ key


@attention.misconception(
    "the weights are returned instead of the average",
    hint="""You have the second half of the equation still before you: the weights say how much of each value
    the output takes.""",
    read="attention_operator#matrix-form",
)
def attention_weights_only(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)


@attention.misconception(
    "each query takes the value of its best key only",
    hint="""A hard choice has no gradient to learn from. Softargmax lets every key contribute according to its
    score.""",
    read="attention_operator#two-limits",
)
def attention_hard(query, key, value):
    best = (query @ key.mT).argmax(-1)
    return torch.nn.functional.one_hot(best, key.shape[-2]).to(value.dtype) @ value


# ---------------------------------------------------------------------------------------
# The two limits
# ---------------------------------------------------------------------------------------


def _unit_keys(normal: Any, num_keys: int, key_dim: int, **how: Any) -> Tensor:
    return torch.nn.functional.normalize(normal(num_keys, key_dim, **how), dim=-1)


def _weights(query: Tensor, key: Tensor) -> Tensor:
    return attention_operator.attention_weights(query[None].to(key.dtype), key)[0]


def _wrong_query(key: Tensor, query: Any) -> str | None:
    """Why the answer cannot be a query for these keys."""
    if not isinstance(query, Tensor):
        return "one tensor was expected: the query. Is there a `return` at the end of your function?"
    if tuple(query.shape) != (key.shape[1],):
        return f"a query for these keys has shape ({key.shape[1]},)"
    if not query.dtype.is_floating_point:
        return f"a query has floating-point numbers, and yours are {query.dtype}"
    if not query.isfinite().all():
        return "a query has finite numbers, and in yours there is NaN or infinity"
    return None


def _picking_query(key: Tensor, index: int, share: float) -> Tensor:
    # The other scores are lower by at least this much for each unit of the query's length.
    others = torch.cat([key[:index], key[index + 1 :]]) @ key[index]
    gap = (1 - others.max()) / math.sqrt(key.shape[1])
    # share of one against (1 - share) of all others, if all were as close as the closest.
    needed = math.log(share / (1 - share) * (len(key) - 1))
    return key[index] * (1.01 * needed / gap)


def _picking_compare(inputs: dict[str, Any], query: Any) -> str | None:
    key, index, share = inputs.values()
    wrong = _wrong_query(key, query)
    if wrong is not None:
        return wrong
    weights = _weights(query, key)
    if weights[index] >= share:
        return None
    best = int(weights.argmax())
    if best != index:
        return (
            f"with this query key {best} gets the largest weight, {weights[best]:.4f}, instead of key {index}"
        )
    return f"with this query key {index} gets a weight of {weights[index]:.6f}, less than {share}"


def _picking_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num_keys: int, key_dim: int, index: int, share: float, note: str = "", **how: Any) -> Case:
        key = _unit_keys(normal, num_keys, key_dim, **how)
        # Between two keys that are almost the same, single precision could not choose.
        while (key @ key[index]).sort().values[-2] > 0.995:
            key = _unit_keys(normal, num_keys, key_dim, **how)
        return Case({"key": key, "index": index, "share": share}, note)

    return [
        case(4, 6, 2, 0.9),
        case(5, 3, 0, 0.99, "the first key"),
        case(7, 16, 6, 0.999, "the last key, and a share of 0.999"),
        case(12, 2, 5, 0.95, "twelve keys with two features, some of them close"),
        case(3, 8, 1, 0.99, "double precision", dtype=torch.float64),
    ]


picking_query = Task("picking_query", _picking_query, _picking_cases, compare=_picking_compare)


@picking_query.misconception(
    "the query is the key itself, which points the right way but is too short",
    hint="""The direction is right: no other key of length 1 matches better. What happens to the differences
    between the scores when the query is made longer?""",
    read="attention_operator#two-limits",
)
def picks_with_key(key, index, share):
    return key[index]


@picking_query.misconception(
    "the query is shortened by the share",
    hint="""The share is a weight, after the softargmax. A query shorter than the key makes the scores, and so
    the weights, more alike.""",
    read="attention_operator#two-limits",
)
def picks_with_share(key, index, share):
    return share * key[index]


@picking_query.misconception(
    "the query only makes up for the scale",
    hint="""Now the matching key has a score of exactly 1, and exp(1) is not much larger than exp(0). By how
    much must the best score lead?""",
    read="attention_operator#two-limits",
)
def picks_unscaled(key, index, share):
    return math.sqrt(key.shape[1]) * key[index]


@picking_query.misconception(
    "the query points away from the key",
    hint="""A dot product is largest where two vectors point the same way. Yours is the smallest possible for
    this key.""",
    read="attention_operator#two-limits",
)
def picks_opposite(key, index, share):
    return -1000 * key[index]


@picking_query.misconception(
    "the query is a one-hot vector over the features",
    hint="""A query lives in the space of the features, not in the space of the positions: it has no entry
    for key number `index`. What do you know about that key that could tell it from the others?""",
    read="attention_operator#one-query",
)
def picks_one_hot(key, index, share):
    query = torch.zeros_like(key[0])
    query[index] = 1
    return query


def _averaging_query(key: Tensor) -> Tensor:
    return torch.zeros_like(key[0])


def _averaging_compare(inputs: dict[str, Any], query: Any) -> str | None:
    (key,) = inputs.values()
    wrong = _wrong_query(key, query)
    if wrong is not None:
        return wrong
    weights = _weights(query, key)
    if weights.max() - weights.min() < 1e-6:
        return None
    difference = (weights.max() - weights.min()).item()
    return f"with this query the largest and the smallest weight differ by {difference:.3g}"


def _averaging_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case({"key": normal(5, 3)}),
        Case({"key": normal(8, 8)}, "as many keys as features"),
        Case({"key": 10 * normal(20, 4) + 3}, "long keys, away from the origin"),
        Case({"key": normal(9, 6, dtype=torch.float64)}, "double precision"),
    ]


averaging_query = Task("averaging_query", _averaging_query, _averaging_cases, compare=_averaging_compare)


@averaging_query.misconception(
    "the query is the mean of the keys",
    hint="""The mean of the keys matches some keys better than others. Equal weights need equal scores. Which
    query has the same dot product with every vector there is?""",
    read="attention_operator#two-limits",
)
def averages_with_mean(key):
    return key.mean(0)


@averaging_query.misconception(
    "the query is all ones",
    hint="""The dot product with a vector of ones adds up a key's features, and that sum differs from key to
    key.""",
    read="attention_operator#two-limits",
)
def averages_with_ones(key):
    return torch.ones_like(key[0])


@averaging_query.misconception(
    "the query holds the equal weights themselves",
    hint="""1 over the number of keys is what the weights should become. The query is not the weights: it has
    one number for each feature, and they are made from its scores.""",
    read="attention_operator#two-limits",
)
def averages_with_weights(key):
    return torch.full_like(key[0], 1 / key.shape[0])


@averaging_query.misconception(
    "the query is the sum of the keys",
    hint="""Every key is in the sum, but a long key, or one with many neighbours, matches it best. Equal
    weights need equal scores.""",
    read="attention_operator#two-limits",
)
def averages_with_sum(key):
    return key.sum(0)


# ---------------------------------------------------------------------------------------
# The scale
# ---------------------------------------------------------------------------------------


def _score_scale(key_dim: int, query_std: float, key_std: float) -> float:
    return 1 / (query_std * key_std * math.sqrt(key_dim))


def _score_scale_cases(seed: int) -> list[Case]:
    generator = torch.Generator().manual_seed(seed)
    high, low = (1 + torch.rand(2, generator=generator)).tolist()
    settings = [
        (16, 1.0, 1.0, "variances of 1"),
        (100, 1.0, 1.0, "many features"),
        (8, 2.0, 2.0, "longer queries and keys"),
        (50, round(3 * high, 2), round(low / 4, 2), "queries and keys of different size"),
        (1, 0.5, 3.0, "a single feature"),
    ]
    return [
        Case({"key_dim": dim, "query_std": query_std, "key_std": key_std}, note)
        for dim, query_std, key_std, note in settings
    ]


def _score_scale_compare(inputs: dict[str, Any], factor: Any) -> str | None:
    if isinstance(factor, Tensor) and factor.numel() == 1:
        factor = factor.item()
    if isinstance(factor, bool) or not isinstance(factor, float | int):
        return "one number was expected: the factor. Is there a `return` at the end of your function?"
    # Of the unscaled scores the standard deviation is 1 / reference.
    variance = (factor / _score_scale(**inputs)) ** 2
    if not abs(variance - 1) <= 1e-5:  # so that NaN is wrong
        return f"multiplied by your factor, the scores have a variance of {variance:.6g} instead of 1"
    if factor < 0:
        return "the size is right, but with a negative factor the best match would get the smallest weight"
    return None


score_scale = Task("score_scale", _score_scale, _score_scale_cases, compare=_score_scale_compare)


@score_scale.misconception(
    "the standard deviations of queries and keys are left out",
    hint="""The factor is right when both are 1. If every query gets twice as long, what happens to the
    scores?""",
    read="attention_operator#why-the-scale",
)
def scale_without_std(key_dim, query_std, key_std):
    return 1 / math.sqrt(key_dim)


@score_scale.misconception(
    "the number of features stands there without the square root",
    hint="""The variance of a sum of independent terms is the sum of their variances. A factor c multiplies
    the variance by c squared.""",
    read="attention_operator#why-the-scale",
)
def scale_by_dim(key_dim, query_std, key_std):
    return 1 / (query_std * key_std * key_dim)


@score_scale.misconception(
    "variances stand where standard deviations should",
    hint="""A factor c multiplies the standard deviation of the scores by c, and their variance by c squared.
    Which of the two are you dividing by?""",
    read="attention_operator#why-the-scale",
)
def scale_by_variances(key_dim, query_std, key_std):
    return 1 / (query_std**2 * key_std**2 * key_dim)


@score_scale.misconception(
    "the standard deviations are multiplied after the division",
    hint="""Python divides and multiplies from left to right: in `1 / a * b`, the b stands above the fraction
    bar. Brackets help.""",
    read="attention_operator#why-the-scale",
)
def scale_without_brackets(key_dim, query_std, key_std):
    return 1 / math.sqrt(key_dim) * query_std * key_std


@score_scale.misconception(
    "the standard deviations stand under the root",
    hint="""Under the root belongs a variance. You have put standard deviations there.""",
    read="attention_operator#why-the-scale",
)
def scale_under_root(key_dim, query_std, key_std):
    return 1 / math.sqrt(key_dim * query_std * key_std)


@score_scale.misconception(
    "the number of features is left out",
    hint="""A score adds up one product for each feature. What does that do to its variance?""",
    read="attention_operator#why-the-scale",
)
def scale_without_dim(key_dim, query_std, key_std):
    return 1 / (query_std * key_std)


@score_scale.misconception(
    "this is the size of the scores, not the factor that undoes it",
    hint="""You have found the standard deviation of the unscaled scores. Which factor turns it into 1?""",
    read="attention_operator#why-the-scale",
)
def scale_inverted(key_dim, query_std, key_std):
    return query_std * key_std * math.sqrt(key_dim)


# ---------------------------------------------------------------------------------------
# The column convention
# ---------------------------------------------------------------------------------------


def _column_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    weights = attention_operator.attention_weights(query.mT, key.mT)  # (..., num_queries, num_keys)
    return (weights @ value.mT).mT


def _column_cases(seed: int) -> list[Case]:
    return [
        Case({name: value.mT for name, value in case.inputs.items()}, case.note, case.contiguous)
        for case in _attention_cases(seed)
    ]


column_attention = Task("column_attention", _column_attention, _column_cases)


@column_attention.misconception(
    "the weights are normalised along the rows",
    hint="""Now every column of the scores belongs to a query. So which dimension holds the keys that share
    out its attention?""",
    read="attention_operator#column-convention",
)
def columns_normalised_by_row(query, key, value):
    return value @ torch.softmax(key.mT @ query / math.sqrt(query.shape[-2]), -1)


@column_attention.misconception(
    "the scale uses the number of positions instead of the number of features",
    hint="""The features now run along the other dimension. Which dimension of `key` is summed over in a dot
    product?""",
    read="attention_operator#column-convention",
)
def columns_scaled_by_positions(query, key, value):
    return value @ torch.softmax(key.mT @ query / math.sqrt(key.shape[-1]), -2)


@column_attention.misconception(
    "the scores are not scaled",
    hint="""Turning the matrices over changes neither the dot products nor how fast they grow with the number
    of features.""",
    read="attention_operator#why-the-scale",
)
def columns_unscaled(query, key, value):
    return value @ torch.softmax(key.mT @ query, -2)


@column_attention.misconception(
    "the output has its positions in rows",
    hint="""The numbers are right. In this convention the output, like its inputs, keeps one position in each
    column.""",
    read="attention_operator#column-convention",
)
def columns_output_in_rows(query, key, value):
    return (value @ torch.softmax(key.mT @ query / math.sqrt(query.shape[-2]), -2)).mT


@column_attention.misconception(
    "the inputs are read as if their rows were positions",
    hint="""This is the formula for rows, unchanged. Here a column is a position: write down the shape of each
    matrix beside the formula and see which products fit.""",
    read="attention_operator#column-convention",
)
def columns_read_as_rows(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@column_attention.misconception(
    "the scale uses the number of queries instead of the number of features",
    hint="""The features now run along the other dimension. Which dimension of `query` is summed over in a
    dot product?""",
    read="attention_operator#column-convention",
)
def columns_scaled_by_queries(query, key, value):
    return value @ torch.softmax(key.mT @ query / math.sqrt(query.shape[-1]), -2)


@column_attention.misconception(
    "dimension 0 is normalised, which is the keys only without a batch",
    hint="""Dimensions counted from the front move when a batch is added. Count from the back.""",
    read="attention_operator#rows-and-columns",
)
def columns_dim_0(query, key, value):
    return value @ torch.softmax(key.mT @ query / math.sqrt(query.shape[-2]), 0)


@column_attention.misconception(
    "`.T` turns round the batch, too",
    hint="""`.T` is meant for matrices; with a batch it reverses all the dimensions. Only the last two may
    change places.""",
    read="attention_operator#batches",
)
def columns_full_transpose(query, key, value):
    return value @ torch.softmax(key.T @ query / math.sqrt(query.shape[-2]), -2)


# ---------------------------------------------------------------------------------------
# The rabbit sentence: queries, keys and values from one input
# ---------------------------------------------------------------------------------------


def _self_attention(x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Tensor:
    return attention_operator.attention_weights(x @ W_Q, x @ W_K) @ (x @ W_V)


def _layer_case(
    normal: Any,
    batch: tuple[int, ...],
    length: int,
    model_dim: int,
    key_dim: int,
    value_dim: int,
    note: str,
    **how: Any,
) -> Case:
    dtype = how.pop("dtype", torch.float32)
    # Weights of variance 1 / model_dim give queries, keys and values the variance of x.
    std = model_dim**-0.5
    inputs = {
        "x": normal(*batch, length, model_dim, dtype=dtype),
        "W_Q": 1.5 * std * normal(model_dim, key_dim, dtype=dtype),
        "W_K": 1.5 * std * normal(model_dim, key_dim, dtype=dtype),
        "W_V": std * normal(model_dim, value_dim, dtype=dtype),
    }
    return Case(inputs, note, **how)


def _self_attention_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        _layer_case(normal, (), 9, 4, 3, 2, "nine words"),
        _layer_case(normal, (), 5, 6, 6, 6, "square weights"),
        _layer_case(normal, (), 6, 6, 6, 6, "everything square"),
        _layer_case(normal, (), 4, 8, 2, 5, "double precision", dtype=torch.float64),
        _layer_case(normal, (), 1, 3, 2, 4, "a single word"),
    ]


self_attention = Task("self_attention", _self_attention, _self_attention_cases)


@self_attention.misconception(
    "the inputs are averaged instead of the values",
    hint="""What a word hands over need not be what it is. Which of the three weights says what it hands
    over, and where do you use it?""",
    read="attention_operator#values-not-inputs",
)
def layer_averages_inputs(x, W_Q, W_K, W_V):
    query, key = x @ W_Q, x @ W_K
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ x


@self_attention.misconception(
    "the keys are made with the weights of the queries",
    hint="""What a word looks for and what it offers are two things. With the same weights for both,
    relatedness would have to be mutual.""",
    read="attention_operator#not-symmetric",
)
def layer_keys_from_query_weights(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_Q, x @ W_V
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@self_attention.misconception(
    "queries and keys have changed places",
    hint="""The queries are made with the weights for keys, and the keys with those for queries. Scores are
    not symmetric: who asks whom?""",
    read="attention_operator#not-symmetric",
)
def layer_query_key_swapped(x, W_Q, W_K, W_V):
    query, key, value = x @ W_K, x @ W_Q, x @ W_V
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@self_attention.misconception(
    "none of the three weights is used",
    hint="""The sentence is compared with itself, word by word, and averaged. What the layer can learn, its
    weights, plays no part.""",
    read="attention_operator#three-inputs",
)
def layer_without_weights(x, W_Q, W_K, W_V):
    return torch.softmax(x @ x.mT / math.sqrt(x.shape[-1]), -1) @ x


@self_attention.misconception(
    "the scores compare the inputs themselves, without queries and keys",
    hint="""The inputs are compared as they are. Two of the three weights have not been used.""",
    read="attention_operator#three-inputs",
)
def layer_scores_from_inputs(x, W_Q, W_K, W_V):
    return torch.softmax(x @ x.mT / math.sqrt(x.shape[-1]), -1) @ (x @ W_V)


@self_attention.misconception(
    "the scale uses the features of the input instead of those of the queries",
    hint="""The dot product is taken after the projection. How many terms does it have then?""",
    read="attention_operator#why-the-scale",
)
def layer_scaled_by_model_dim(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    return torch.softmax(query @ key.mT / math.sqrt(x.shape[-1]), -1) @ value


@self_attention.misconception(
    "the scores are not scaled",
    hint="""The projections change what is compared, not how a dot product grows with the number of
    features.""",
    read="attention_operator#why-the-scale",
)
def layer_unscaled(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    return torch.softmax(query @ key.mT, -1) @ value


@self_attention.misconception(
    "the weights are transposed before they are applied",
    hint="""PyTorch's `nn.Linear` stores its weight transposed. Here rows are positions and a weight has
    shape (input features, output features): which product fits as it stands?""",
    read="attention_operator#three-inputs",
)
def layer_transposed_weights(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q.mT, x @ W_K.mT, x @ W_V.mT
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@self_attention.misconception(
    "the weights are normalised over the queries instead of the keys",
    hint="""Row i of the weights belongs to word i, and says how it shares out its attention. What must the
    row sum to?""",
    read="attention_operator#rows-and-columns",
)
def layer_over_queries(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -2) @ value


# ---------------------------------------------------------------------------------------
# Reading the attention matrix
# ---------------------------------------------------------------------------------------


def _most_attended(weights: Tensor) -> Tensor:
    return weights.argmax(-1)


def _most_attended_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(*shape: int, note: str = "") -> Case:
        return Case({"weights": torch.softmax(2 * normal(*shape), -1)}, note)

    return [
        case(4, 7),
        case(9, 9, note="nine words that attend to each other"),
        case(1, 5, note="a single query"),
        case(3, 5, 6, note="a batch"),
    ]


most_attended = Task("most_attended", _most_attended, _most_attended_cases)


@most_attended.misconception(
    "for each key, the query that attends to it most",
    hint="""Being attended to by a word and attending to it are two questions, and their answers differ. Is a
    query a row of the weights, or a column?""",
    read="attention_operator#not-symmetric",
)
def most_attending(weights):
    return weights.argmax(-2)


@most_attended.misconception(
    "the largest weight itself, instead of its position",
    hint="""The question is which key, not how much. `max` with a dimension gives two things.""",
    read="attention_operator#rows-and-columns",
)
def largest_weight(weights):
    return weights.amax(-1)


@most_attended.misconception(
    "one position for the whole matrix",
    hint="""Without a dimension, `argmax` counts through all the entries as if they stood in one long row.
    Every query is to have an answer of its own.""",
    read="attention_operator#rows-and-columns",
)
def one_position(weights):
    return weights.argmax()


@most_attended.misconception(
    "the key with the smallest weight",
    hint="""A large weight means much attention.""",
    read="attention_operator#one-query",
)
def least_attended(weights):
    return weights.argmin(-1)


@most_attended.misconception(
    "the keys are counted from 1",
    hint="""Python and PyTorch count from 0: the first key has number 0.""",
    read="attention_operator#rows-and-columns",
)
def counted_from_one(weights):
    return weights.argmax(-1) + 1


@most_attended.misconception(
    "the weights come along with their positions",
    hint="""`max` with a dimension returns two things, the largest weights and where they stand. Which of
    the two is asked for?""",
    read="attention_operator#rows-and-columns",
)
def weights_and_positions(weights):
    return weights.max(-1)


@most_attended.misconception(
    "dimension 1 is searched, which is the keys only without a batch",
    hint="""Dimensions counted from the front move when a batch is added. Count from the back.""",
    read="attention_operator#rows-and-columns",
)
def most_attended_dim_1(weights):
    return weights.argmax(1)


# ---------------------------------------------------------------------------------------
# Find the slips
# ---------------------------------------------------------------------------------------


def _mended_layer_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        _layer_case(normal, (), 5, 4, 4, 4, "no batch"),
        _layer_case(normal, (2,), 3, 4, 4, 4, "a batch"),
        _layer_case(normal, (4,), 4, 4, 4, 4, "everything square"),
        _layer_case(normal, (1,), 1, 4, 4, 4, "a batch of one with a single word"),
        _layer_case(
            normal, (2, 3), 5, 6, 3, 2, "two batch dimensions, in double precision", dtype=torch.float64
        ),
    ]


mended_layer = Task("mended_layer", _self_attention, _mended_layer_cases)


@mended_layer.misconception(
    "both slips are still there",
    hint="""Write the shape of every intermediate result beside its line, first for one sequence, then for a
    batch. One slip shows only with a batch; the other is hidden by a square weight that is not used as it
    should be.""",
    read="attention_operator#batches",
)
def mended_nothing(x, W_Q, W_K, W_V):
    query, key = x @ W_Q, x @ W_K
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), 1)
    return weights @ x


@mended_layer.misconception(
    "one slip is mended, but the inputs are still averaged instead of the values",
    hint="""Follow each of the three weights through the code. Does each of them reach the output?""",
    read="attention_operator#values-not-inputs",
)
def mended_normalisation_only(x, W_Q, W_K, W_V):
    query, key = x @ W_Q, x @ W_K
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
    return weights @ x


@mended_layer.misconception(
    "one slip is mended, but with a batch the wrong dimension is normalised",
    hint="""Without a batch the result is right. With one, sum the weights along the last dimension: what
    should come out?""",
    read="attention_operator#rows-and-columns",
)
def mended_values_only(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), 1)
    return weights @ value


@mended_layer.misconception(
    "dimension 2 is normalised, which is the last only for a single batch dimension",
    hint="""That mends the batch of sequences and breaks the sequence without a batch. There is a way to name
    the last dimension that holds for any number of dimensions.""",
    read="attention_operator#batches",
)
def mended_dim_2(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), 2)
    return weights @ value


@mended_layer.misconception(
    "the slips are mended, but now the scale uses the features of the input",
    hint="""The scale was right. A dot product of a query and a key has as many terms as they have features,
    which need not be as many as the input has.""",
    read="attention_operator#why-the-scale",
)
def mended_scale_broken(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    weights = torch.softmax(query @ key.mT / math.sqrt(x.shape[-1]), -1)
    return weights @ value


@mended_layer.misconception(
    "the weights are normalised over the queries",
    hint="""The dimension before the last holds the queries. Whose attention is it that must sum to 1?""",
    read="attention_operator#rows-and-columns",
)
def mended_over_queries(x, W_Q, W_K, W_V):
    query, key, value = x @ W_Q, x @ W_K, x @ W_V
    weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -2)
    return weights @ value
