"""The attention operator against PyTorch, against plain loops, and by its properties."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

import attncourse
from attncourse import additive_attention, attention, attention_weights, softargmax
from attncourse.experiments import attention_operator as experiment

INF = math.inf
# Batch shape, num_queries, num_keys, key_dim, value_dim: square, rectangular both ways, batched, single.
SHAPES = [
    ((), 4, 4, 3, 3),
    ((), 2, 5, 3, 4),
    ((3,), 5, 2, 4, 1),
    ((2, 3), 3, 4, 2, 5),
    ((), 1, 1, 1, 1),
    ((2,), 4, 7, 16, 2),
]
seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 5)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)


def random_inputs(batch, num_queries, num_keys, key_dim, value_dim, dtype=torch.float64, seed=0):
    """Query, key and value that record gradients, from unit normal numbers."""
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(*batch, rows, features, generator=generator, dtype=dtype).requires_grad_()
        for rows, features in ((num_queries, key_dim), (num_keys, key_dim), (num_keys, value_dim))
    )


def random_mask(*shape, seed=0, full_rows=False):
    """True with probability one half; with `full_rows`, every row has a True."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    if full_rows:
        mask[..., 0] |= ~mask.any(-1)
    return mask


def random_additive_inputs(
    batch=(), num_queries=2, num_keys=3, query_dim=4, key_dim=5, value_dim=2, hidden_dim=6
):
    """The six arguments of additive attention by name, all recording gradients."""
    generator = torch.Generator().manual_seed(1)
    shapes = {
        "query": (*batch, num_queries, query_dim),
        "key": (*batch, num_keys, key_dim),
        "value": (*batch, num_keys, value_dim),
        "query_weight": (query_dim, hidden_dim),
        "key_weight": (key_dim, hidden_dim),
        "score_weight": (hidden_dim,),
    }
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        for name, shape in shapes.items()
    }


def test_the_public_interface_is_the_units():
    from attncourse import attention_operator

    assert set(attention_operator.__all__) <= set(attncourse.__all__)
    for name in attention_operator.__all__:
        assert getattr(attncourse, name) is getattr(attention_operator, name)


# --- against PyTorch ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [None, 0.3, 0.0, -1.0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_pytorchs_in_value_and_gradient(shape, masked, scale, dtype):
    batch, num_queries, num_keys, *_ = shape
    ours = random_inputs(*shape, dtype=dtype)
    theirs = tuple(x.detach().clone().requires_grad_() for x in ours)
    mask = random_mask(*batch, num_queries, num_keys, full_rows=True) if masked else None

    output = attention(*ours, mask, scale=scale)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask, scale=scale)
    assert output.dtype == dtype
    assert_close(output, expected)

    upstream = torch.randn(output.shape, generator=torch.Generator().manual_seed(2), dtype=dtype)
    assert_close(torch.autograd.grad(output, ours, upstream), torch.autograd.grad(expected, theirs, upstream))


@pytest.mark.parametrize(
    "mask_shape", [(), (5,), (4, 1), (4, 5), (1, 4, 5), (2, 1, 1, 5), (2, 3, 4, 5)], ids=str
)
def test_a_mask_broadcasts_as_in_pytorch(mask_shape):
    inputs = random_inputs((2, 3), 4, 5, 3, 2)
    mask = random_mask(*mask_shape, seed=3, full_rows=True) if mask_shape else torch.tensor(True)
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=mask.expand(2, 3, 4, 5))
    assert_close(attention(*inputs, mask), expected)


@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_softargmax_is_pytorchs_softmax_along_any_dimension(dim):
    scores = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert_close(softargmax(scores, dim), torch.softmax(scores, dim))


def test_half_precision_stays_half_precision():
    for dtype in (torch.float16, torch.bfloat16):
        inputs = random_inputs((), 2, 3, 4, 2, dtype=dtype)
        output, weights = attention(*inputs, return_weights=True)
        assert output.dtype == weights.dtype == dtype
        expected = attention(*(x.double() for x in inputs))
        assert_close(output.double(), expected, atol=0.03, rtol=0.03)


# --- against plain loops ---


def loop_softmax(scores):
    """Weights of one list of scores, minus infinity for a key that may not be seen."""
    exponentials = [math.exp(s) for s in scores]
    total = sum(exponentials)
    return [e / total if total else 0.0 for e in exponentials]


def loop_average(weights, value):
    """The rows of `value`, averaged with `weights`, number by number."""
    return [sum(w * row[d] for w, row in zip(weights, value, strict=True)) for d in range(len(value[0]))]


def by_loops(score, query, key, value, mask):
    """Attention on lists of numbers: `score(q, k)` for each pair, one exponential at a time."""
    weights = [
        loop_softmax([score(q, k) if may else -INF for k, may in zip(key, row, strict=True)])
        for q, row in zip(query, mask, strict=True)
    ]
    return [loop_average(row, value) for row in weights], weights


@given(batches, sizes, sizes, sizes, sizes, seeds)
def test_attention_is_its_definition_in_loops(batch, num_queries, num_keys, key_dim, value_dim, seed):
    inputs = [x.detach() for x in random_inputs(batch, num_queries, num_keys, key_dim, value_dim, seed=seed)]
    mask = random_mask(*batch, num_queries, num_keys, seed=seed)
    output, weights = attention(*inputs, mask, return_weights=True)
    assert output.shape == (*batch, num_queries, value_dim)
    assert weights.shape == (*batch, num_queries, num_keys)
    assert torch.equal(weights, attention_weights(*inputs[:2], mask))
    for index in itertools.product(*map(range, batch)):
        expected_output, expected_weights = by_loops(
            lambda q, k: sum(a * b for a, b in zip(q, k, strict=True)) / math.sqrt(key_dim),
            *(x[index].tolist() for x in (*inputs, mask)),
        )
        assert_close(output[index], torch.tensor(expected_output, dtype=torch.float64))
        assert_close(weights[index], torch.tensor(expected_weights, dtype=torch.float64))


@given(batches, sizes, sizes, sizes, sizes, sizes, sizes, st.booleans())
def test_additive_attention_is_its_definition_in_loops(
    batch, num_queries, num_keys, query_dim, key_dim, value_dim, hidden_dim, masked
):
    inputs = random_additive_inputs(batch, num_queries, num_keys, query_dim, key_dim, value_dim, hidden_dim)
    mask = random_mask(*batch, num_queries, num_keys) if masked else None
    output, weights = additive_attention(**inputs, mask=mask, return_weights=True)
    assert_close(output, additive_attention(**inputs, mask=mask))
    W_Q, W_K, w = (inputs[name].tolist() for name in ("query_weight", "key_weight", "score_weight"))

    def score(q, k):
        hidden = [
            sum(a * row[h] for a, row in zip(q, W_Q, strict=True))
            + sum(b * row[h] for b, row in zip(k, W_K, strict=True))
            for h in range(hidden_dim)
        ]
        return sum(a * math.tanh(b) for a, b in zip(w, hidden, strict=True))

    everywhere = torch.ones(*batch, num_queries, num_keys, dtype=torch.bool)
    lists = [inputs["query"], inputs["key"], inputs["value"], mask if masked else everywhere]
    for index in itertools.product(*map(range, batch)):
        expected_output, expected_weights = by_loops(score, *(x[index].tolist() for x in lists))
        assert_close(output[index], torch.tensor(expected_output, dtype=torch.float64))
        assert_close(weights[index], torch.tensor(expected_weights, dtype=torch.float64))


# --- gradients against finite differences ---


@pytest.mark.parametrize("mask_row", [None, [True, False, True], [False, False, False]], ids=str)
def test_gradients_of_both_orders_match_finite_differences(mask_row):
    mask = None if mask_row is None else torch.tensor([mask_row, [True, True, False]])
    dot_product = random_inputs((2,), 2, 3, 2, 2)
    scores = (dot_product[0] @ dot_product[1].mT).detach().requires_grad_()
    additive = random_additive_inputs()
    for function, inputs in (
        (lambda s: softargmax(s, mask=mask), (scores,)),
        (lambda q, k, v: attention(q, k, v, mask, return_weights=True), dot_product),
        (lambda *args: additive_attention(*args, mask), tuple(additive.values())),
    ):
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


# --- properties ---


@given(batches, sizes, sizes, seeds)
def test_weights_are_positive_and_rows_sum_to_one(batch, num_queries, num_keys, seed):
    query, key, _ = random_inputs(batch, num_queries, num_keys, 3, 1, seed=seed)
    weights = attention_weights(query, key)
    assert (weights > 0).all()
    assert_close(weights.sum(-1), torch.ones(*batch, num_queries, dtype=torch.float64))


@given(sizes, sizes, seeds)
def test_masked_weights_are_exactly_zero_and_the_others_are_renormalised(num_queries, num_keys, seed):
    query, key, _ = random_inputs((), num_queries, num_keys, 3, 1, seed=seed)
    mask = random_mask(num_queries, num_keys, seed=seed, full_rows=True)
    weights = attention_weights(query, key, mask)
    assert (weights[~mask] == 0).all()
    kept = attention_weights(query, key) * mask
    assert_close(weights, kept / kept.sum(-1, keepdim=True))


@given(sizes, sizes, seeds, st.floats(-1e3, 1e3))
def test_adding_a_number_to_a_row_of_scores_changes_nothing(num_queries, num_keys, seed, shift):
    scores = torch.randn(
        num_queries, num_keys, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    shifts = shift * torch.arange(1, num_queries + 1, dtype=torch.float64)[:, None]
    assert_close(softargmax(scores + shifts), softargmax(scores), atol=1e-9, rtol=1e-9)


@given(batches, sizes, sizes, sizes, seeds, st.floats(0.0, 100.0))
def test_the_output_lies_within_the_values(batch, num_queries, num_keys, value_dim, seed, scale):
    query, key, value = random_inputs(batch, num_queries, num_keys, 3, value_dim, seed=seed)
    output = attention(query, key, value, scale=scale)
    assert (output >= value.amin(-2, keepdim=True) - 1e-12).all()
    assert (output <= value.amax(-2, keepdim=True) + 1e-12).all()


@given(batches, sizes, sizes, seeds)
def test_the_order_of_keys_with_their_values_does_not_matter(batch, num_queries, num_keys, seed):
    query, key, value = random_inputs(batch, num_queries, num_keys, 3, 2, seed=seed)
    mask = random_mask(*batch, num_queries, num_keys, seed=seed)
    order = torch.randperm(num_keys, generator=torch.Generator().manual_seed(seed))
    output, weights = attention(query, key, value, mask, return_weights=True)
    key, value, mask = key[..., order, :], value[..., order, :], mask[..., order]
    shuffled = attention(query, key, value, mask, return_weights=True)
    assert_close(shuffled, (output, weights[..., order]))


@given(batches, sizes, sizes, seeds)
def test_each_query_is_answered_by_itself(batch, num_queries, num_keys, seed):
    query, key, value = random_inputs(batch, num_queries, num_keys, 3, 2, seed=seed)
    rows = [attention(query[..., i : i + 1, :], key, value) for i in range(num_queries)]
    assert_close(attention(query, key, value), torch.cat(rows, dim=-2))


def test_equal_keys_average_and_a_matched_key_picks():
    value = torch.tensor([[1.0, 0.0], [3.0, 2.0], [5.0, 7.0]])
    query = torch.tensor([[0.3, -2.0, 1.0]])
    assert_close(attention(query, torch.ones(3, 3), value), torch.tensor([[3.0, 3.0]]))
    assert_close(attention(200 * torch.eye(3)[[1]], torch.eye(3), value), value[[1]])


# --- the ends of the number line ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_scores_give_finite_weights_and_gradients(dtype):
    largest = torch.finfo(dtype).max
    scores = torch.tensor(
        [[1e4, -1e4, 0.0], [-1e30, -1e30, -1e30], [largest, largest, -largest]], dtype=dtype
    ).requires_grad_()
    weights = softargmax(scores)
    expected = [[1, 0, 0], [1 / 3, 1 / 3, 1 / 3], [0.5, 0.5, 0]]
    assert_close(weights, torch.tensor(expected, dtype=dtype))
    assert torch.isfinite(torch.autograd.grad(weights[:, 0].sum(), scores)[0]).all()


def test_scores_of_minus_infinity_get_weight_zero():
    scores = torch.tensor([[0.0, -INF, math.log(3.0)], [-INF, -INF, -INF]], requires_grad=True)
    weights = softargmax(scores)
    assert_close(weights, torch.tensor([[0.25, 0.0, 0.75], [0.0, 0.0, 0.0]]))
    (gradient,) = torch.autograd.grad(weights[:, 2].sum(), scores)
    assert_close(gradient, torch.tensor([[-3 / 16, 0.0, 3 / 16], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("attend", [attention, "additive"])
def test_a_query_that_may_see_nothing_gets_zeros_and_gives_no_gradient(attend):
    mask = torch.tensor([[False, False, False], [True, False, True]])
    if attend == "additive":
        inputs = random_additive_inputs()
        output, weights = additive_attention(**inputs, mask=mask, return_weights=True)
    else:
        inputs = dict(zip(("query", "key", "value"), random_inputs((), 2, 3, 4, 2), strict=True))
        output, weights = attention(**inputs, mask=mask, return_weights=True)
    assert (weights[0] == 0).all()
    assert (output[0] == 0).all()
    assert output[1].abs().min() > 0
    for gradient in torch.autograd.grad(output[0].sum(), list(inputs.values()), retain_graph=True):
        assert (gradient == 0).all()
    gradient_of_value = torch.autograd.grad(output.sum(), inputs["value"])[0]
    assert (gradient_of_value[1] == 0).all()
    assert (gradient_of_value[[0, 2]] > 0).all()


def test_no_queries_get_no_answers():
    query, key, value = random_inputs((2,), 3, 4, 2, 5)
    assert attention(query[:, :0], key, value).shape == (2, 0, 5)
    assert attention(query[:0], key[:0], value[:0]).shape == (0, 3, 5)


# --- dropout ---


def test_dropout_of_zero_changes_nothing_and_of_one_drops_everything():
    inputs = random_inputs((2,), 3, 4, 2, 2)
    assert torch.equal(attention(*inputs, dropout_p=0.0), attention(*inputs))
    output, weights = attention(*inputs, dropout_p=1.0, return_weights=True)
    assert (output == 0).all()
    assert (weights == 0).all()


def test_dropout_keeps_the_expectation_and_returns_the_weights_it_used():
    torch.manual_seed(0)
    query, key, value = (x.detach() for x in random_inputs((), 3, 4, 2, 2))
    repeat = 20_000
    output, weights = attention(
        *(x.expand(repeat, *x.shape) for x in (query, key, value)), dropout_p=0.25, return_weights=True
    )
    assert_close(output, weights @ value)
    undropped = attention_weights(query, key)
    assert_close((weights == 0).double().mean(0), torch.full((3, 4), 0.25).double(), atol=0.02, rtol=0)
    assert_close(weights[weights != 0], (undropped / 0.75).expand(repeat, 3, 4)[weights != 0])
    assert_close(output.mean(0), attention(query, key, value), atol=0.03, rtol=0)


# --- how arguments are treated ---


def test_returned_weights_are_those_that_averaged_the_values():
    inputs = random_inputs((2,), 3, 4, 2, 5)
    output, weights = attention(*inputs, return_weights=True)
    assert_close(output, weights @ inputs[2])
    assert torch.equal(output, attention(*inputs))


def test_non_contiguous_inputs_give_the_same_numbers():
    inputs = random_inputs((2,), 3, 4, 2, 5)
    strided = [x.detach().mT.contiguous().mT for x in inputs]
    assert not any(x.is_contiguous() for x in strided)
    assert_close(attention(*strided), attention(*inputs))
    additive = random_additive_inputs()
    strided = {name: torch.stack([x, x], -1)[..., 0].detach() for name, x in additive.items()}
    assert not any(x.is_contiguous() for x in strided.values())
    assert_close(additive_attention(**strided), additive_attention(**additive))


def test_inputs_come_back_unmodified():
    mask = random_mask(2, 3)
    dot_product = [x.detach() for x in random_inputs((), 2, 3, 4, 2)]
    additive = [x.detach() for x in random_additive_inputs().values()]
    scores = torch.tensor([[1.0, -INF, 2.0], [3.0, 1.0, 0.0]])
    for function, inputs in (
        (softargmax, [scores]),
        (attention_weights, dot_product[:2]),
        (attention, dot_product),
        (additive_attention, additive),
    ):
        before = [x.clone() for x in (*inputs, mask)]
        function(*inputs, mask=mask)
        assert all(torch.equal(x, y) for x, y in zip((*inputs, mask), before, strict=True))


# --- bad input ---

Q, K, V = torch.zeros(2, 4), torch.zeros(3, 4), torch.zeros(3, 5)
MASK = torch.ones(2, 3, dtype=torch.bool)
W = {"query_weight": torch.zeros(4, 6), "key_weight": torch.zeros(4, 6), "score_weight": torch.zeros(6)}
# A call, then what the message must say: the argument, its shape or what came, and the expectation.
VALUE_ERRORS = {
    "integer query": (lambda: attention(Q.long(), K, V), "query", "(2, 4)", "torch.int64", "floating point"),
    "boolean key": (lambda: attention(Q, K.bool(), V), "key", "(3, 4)", "torch.bool", "floating point"),
    "complex value": (lambda: attention(Q, K, V + 0j), "value", "(3, 5)", "complex64", "floating point"),
    "query without rows": (lambda: attention(Q[0], K, V), "query", "(4,)", "(..., positions, features)"),
    "key without rows": (lambda: attention(Q, K[0], V), "key", "(4,)", "(..., positions, features)"),
    "value without rows": (lambda: attention(Q, K, V[0]), "value", "(5,)", "(..., positions, features)"),
    "other key_dim": (lambda: attention(Q, K[:, :3], V), "key", "(3, 3)", "last dimension to be 4", "(2, 4)"),
    "no features": (lambda: attention(Q[:, :0], K[:, :0], V), "query", "(2, 0)", "at least one feature"),
    "no keys": (lambda: attention(Q, K[:0], V[:0]), "key", "(0, 4)", "at least one key"),
    "other number of values": (lambda: attention(Q, K, V[:2]), "value", "(2, 5)", "3 rows", "(3, 4)"),
    "one value for all keys": (lambda: attention(Q, K, V[:1]), "value", "(1, 5)", "3 rows", "(3, 4)"),
    "batched query, one key": (lambda: attention(Q[None], K, V), "key", "(1, 2, 4)", "(3, 4)", "leading"),
    "batch of 1 against 2": (
        lambda: attention(Q.expand(2, 2, 4), K[None], V[None]),
        "key", "(2, 2, 4)", "(1, 3, 4)", "leading",
    ),
    "batched value, one key": (lambda: attention(Q, K, V[None]), "value", "(1, 3, 5)", "(3, 4)", "leading"),
    "key of another dtype": (
        lambda: attention(Q, K.double(), V), "key", "(3, 4)", "float64", "float32, the dtype of query"
    ),
    "value of another dtype": (
        lambda: attention(Q, K, V.half()), "value", "(3, 5)", "float16", "float32, the dtype of key"
    ),
    "mask of numbers": (lambda: attention(Q, K, V, MASK.float()), "mask", "(2, 3)", "float32", "torch.bool"),
    "mask transposed": (lambda: attention(Q, K, V, MASK.T), "mask", "(3, 2)", "broadcasts to (2, 3)"),
    "mask that would add a batch": (
        lambda: attention(Q, K, V, MASK.expand(7, 2, 3)), "mask", "(7, 2, 3)", "broadcasts to (2, 3)"
    ),
    "negative dropout": (lambda: attention(Q, K, V, dropout_p=-0.1), "dropout_p", "-0.1", "from 0 to 1"),
    "dropout above one": (lambda: attention(Q, K, V, dropout_p=1.5), "dropout_p", "1.5", "from 0 to 1"),
    "dropout not a number": (lambda: attention(Q, K, V, dropout_p=math.nan), "dropout_p is nan", "from 0"),
    "weights: other key_dim": (lambda: attention_weights(Q, K[:, :3]), "key", "(3, 3)", "to be 4", "(2, 4)"),
    "weights: mask transposed": (lambda: attention_weights(Q, K, MASK.T), "mask", "(3, 2)", "to (2, 3)"),
    "softargmax: integers": (lambda: softargmax(Q.int()), "scores", "(2, 4)", "int32", "floating point"),
    "softargmax: dim too large": (lambda: softargmax(Q, 2), "dim", "2", "(2, 4)", "expected a dimension"),
    "softargmax: dim too small": (lambda: softargmax(Q, -3), "dim", "-3", "(2, 4)", "expected a dimension"),
    "softargmax: a single number": (lambda: softargmax(Q[0, 0]), "dim", "-1", "()", "expected a dimension"),
    "softargmax: nothing": (lambda: softargmax(Q[:, :0]), "scores", "(2, 0)", "one entry along dim=-1"),
    "softargmax: mask too large": (
        lambda: softargmax(Q[:1], mask=torch.ones(2, 4).bool()), "mask", "(2, 4)", "to (1, 4)"
    ),
    "softargmax: mask of integers": (lambda: softargmax(Q, mask=Q.long()), "mask", "(2, 4)", "torch.bool"),
    "additive: no batch in key": (
        lambda: additive_attention(Q[None], K, V, **W), "key", "(3, 4)", "(1, 2, 4)", "leading"
    ),
    "additive: no keys": (
        lambda: additive_attention(Q, K[:0], V[:0], **W), "key", "(0, 4)", "at least one key"
    ),
    "additive: other number of values": (
        lambda: additive_attention(Q, K, V[:2], **W), "value", "(2, 5)", "3 rows"
    ),
    "additive: query_weight": (
        lambda: additive_attention(Q, K, V, **W | {"query_weight": torch.zeros(3, 6)}),
        "query_weight", "(3, 6)", "expected (4, 6)",
    ),
    "additive: key_weight transposed": (
        lambda: additive_attention(Q, K, V, **W | {"key_weight": torch.zeros(6, 4)}),
        "key_weight", "(6, 4)", "expected (4, 6)",
    ),
    "additive: score_weight a column": (
        lambda: additive_attention(Q, K, V, **W | {"score_weight": torch.zeros(6, 1)}),
        "score_weight", "(6, 1)", "expected (hidden_dim,)",
    ),
    "additive: integer weight": (
        lambda: additive_attention(Q, K, V, **W | {"key_weight": torch.zeros(4, 6).long()}),
        "key_weight", "(4, 6)", "torch.int64", "floating point",
    ),
    "additive: weights of another dtype": (
        lambda: additive_attention(Q, K, V, **W | {"query_weight": torch.zeros(4, 6).double()}),
        "query_weight", "(4, 6)", "float64", "torch.float32",
    ),
    "additive: score_weight of another dtype": (
        lambda: additive_attention(Q, K, V, **W | {"score_weight": torch.zeros(6).double()}),
        "score_weight", "(6,)", "float64", "torch.float32",
    ),
    "additive: mask transposed": (
        lambda: additive_attention(Q, K, V, **W, mask=MASK.T), "mask", "(3, 2)", "to (2, 3)"
    ),
}  # fmt: skip
TYPE_ERRORS = {
    "list for query": (lambda: attention([[1.0]], K, V), "query", "list", "torch.Tensor"),
    "array for key": (lambda: attention(Q, K.numpy(), V), "key", "ndarray", "torch.Tensor"),
    "None for value": (lambda: attention(Q, K, None), "value", "NoneType", "torch.Tensor"),
    "list for mask": (lambda: attention(Q, K, V, [[True]]), "mask", "list", "torch.Tensor"),
    "number for scores": (lambda: softargmax(1.0), "scores", "float", "torch.Tensor"),
    "list for score_weight": (
        lambda: additive_attention(Q, K, V, **W | {"score_weight": [1.0]}),
        "score_weight", "list", "torch.Tensor",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("call", "parts"), [(c, p) for c, *p in VALUE_ERRORS.values()], ids=VALUE_ERRORS)
def test_a_bad_value_is_named_with_its_shape_and_what_was_expected(call, parts):
    with pytest.raises(ValueError, match="expected") as caught:
        call()
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


@pytest.mark.parametrize(("call", "parts"), [(c, p) for c, *p in TYPE_ERRORS.values()], ids=TYPE_ERRORS)
def test_a_wrong_type_is_named_with_what_was_expected(call, parts):
    with pytest.raises(TypeError, match="expected") as caught:
        call()
    assert not [part for part in parts if part not in str(caught.value)], str(caught.value)


# --- the experiment of the notebook ---


def without_scale(query, key, value):
    return attention(query * math.sqrt(query.shape[-1]), key, value)


def over_the_queries(query, key, value):
    return softargmax((query @ key.mT / math.sqrt(query.shape[-1])).mT).mT @ value


def test_the_experiment_asks_for_keys_that_are_there_once():
    symbols, asked, value = experiment.look_up_batch(5, torch.Generator().manual_seed(0))
    assert symbols.shape == asked.shape == (5, 16)
    assert value.shape == (5, 16, 1)
    assert all(len(set(row.tolist())) == 16 for row in symbols)
    assert asked.min() >= 0
    assert asked.max() < 16


def test_only_the_scaled_operator_learns_to_look_up():
    right, unscaled, across = (
        experiment.train(operator, steps=60) for operator in (attention, without_scale, over_the_queries)
    )
    assert right.loss[-10:].mean() < 0.1
    assert unscaled.loss[-10:].mean() > 1
    assert across.loss[-10:].mean() > 0.15
    assert_close(right.before.sum(-1), torch.ones(16))
    assert right.before.amax(-1).mean() < 0.4 < 0.8 < unscaled.before.amax(-1).mean()
    assert_close(across.before.sum(0), torch.ones(16))


def test_the_experiment_is_fixed_by_its_seed():
    first, second, other = (experiment.train(attention, steps=2, seed=seed) for seed in (3, 3, 4))
    assert torch.equal(first.loss, second.loss)
    assert torch.equal(first.after, second.after)
    assert not torch.equal(first.loss, other.loss)


def test_the_experiment_shows_its_runs():
    runs = {"mine": experiment.train(attention, steps=12)}
    assert "mine" in repr(experiment.table(runs))
    shown = experiment.figure(runs, {"mean": 15 / 16})
    assert 'alt="Curves over the steps: mine from' in shown._repr_html_()
    assert "mean at 0.94" in repr(shown)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: experiment.look_up_batch(0, torch.Generator()), "number is 0"),
        (lambda: experiment.train(attention, steps=0), "steps is 0"),
        (
            lambda: experiment.train(lambda q, k, v: q),
            r"operator gives a tensor of shape \(1, 16, 256\): expected .*1, 16, 16",
        ),
        (lambda: experiment.train(lambda q, k, v: None), "operator gives NoneType"),
        (lambda: experiment.figure({}, {}), "runs has 0 runs"),
    ],
)
def test_the_experiment_names_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()
