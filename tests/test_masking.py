"""Masks against PyTorch, against plain loops, and by what they let through."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import attncourse
from attncourse import (
    additive_mask,
    attention,
    boolean_mask,
    causal_mask,
    influence,
    inverted_mask,
    local_mask,
    padding_mask,
    softargmax,
)
from attncourse._require import broadcasts_to
from attncourse.experiments import masking as experiment

INF = math.inf
sizes = st.integers(1, 7)
seeds = st.integers(0, 2**32 - 1)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_the_public_interface_is_the_units():
    from attncourse import masking

    assert set(masking.__all__) <= set(attncourse.__all__)
    for name in masking.__all__:
        assert getattr(attncourse, name) is getattr(masking, name)


# --- the masks, against loops ---


@given(sizes, sizes)
def test_causal_mask_lets_each_query_see_its_own_position_and_those_before(num_queries, num_keys):
    mask = causal_mask(num_queries, num_keys)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [k <= q + num_keys - num_queries for k in range(num_keys)] for q in range(num_queries)
    ]
    assert mask[-1].all()


@given(sizes, sizes, st.integers(0, 8))
def test_local_mask_lets_each_query_see_positions_within_the_radius(num_queries, num_keys, radius):
    mask = local_mask(num_queries, num_keys, radius=radius)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [
        [abs(q + num_keys - num_queries - k) <= radius for k in range(num_keys)] for q in range(num_queries)
    ]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=4))
def test_padding_mask_hides_the_keys_from_the_length_on(lengths):
    mask = padding_mask(lengths, 5)
    assert mask.dtype == torch.bool
    assert mask.tolist() == [[[k < length for k in range(5)]] for length in lengths]
    assert torch.equal(padding_mask(torch.tensor(lengths), 5), mask)
    assert torch.equal(padding_mask(torch.tensor(lengths, dtype=torch.int32)[:, None], 5), mask[:, None])


def test_keys_are_as_many_as_queries_if_not_given():
    assert torch.equal(causal_mask(4), torch.ones(4, 4).tril().bool())
    assert torch.equal(local_mask(4, radius=1), local_mask(4, 4, radius=1))
    assert torch.equal(local_mask(4, radius=0), torch.eye(4).bool())
    assert padding_mask(torch.tensor(2), 3).tolist() == [[True, True, False]]


def test_one_query_of_a_cached_decoder_sees_all_keys_and_queries_before_all_keys_see_none():
    assert causal_mask(1, 4).tolist() == [[True] * 4]
    assert causal_mask(3, 1).tolist() == [[False], [False], [True]]


@given(sizes, sizes, st.integers(0, 7))
def test_causal_and_local_combine_to_a_window_of_the_past(num_queries, num_keys, radius):
    window = causal_mask(num_queries, num_keys) & local_mask(num_queries, num_keys, radius=radius)
    for q, row in enumerate(window.tolist()):
        own = q + num_keys - num_queries
        assert [k for k, may in enumerate(row) if may] == list(range(max(0, own - radius), own + 1))


# --- the masks at work, against PyTorch ---


def random_inputs(batch, num_queries, num_keys, seed=0):
    shapes = ((num_queries, 4), (num_keys, 4), (num_keys, 3))
    return tuple(normal(*batch, *shape, seed=seed + i).requires_grad_() for i, shape in enumerate(shapes))


def assert_same_attention(inputs, mask, **theirs):
    """Values and gradients of `attention` with our mask are those of PyTorch's with theirs."""
    output, expected = attention(*inputs, mask), F.scaled_dot_product_attention(*inputs, **theirs)
    assert_close(output, expected)
    upstream = normal(*output.shape, seed=9)
    assert_close(
        torch.autograd.grad(output, inputs, upstream), torch.autograd.grad(expected, inputs, upstream)
    )


def test_a_square_causal_mask_is_pytorchs_is_causal():
    inputs = random_inputs((2,), 5, 5)
    assert_same_attention(inputs, causal_mask(5), is_causal=True)


@pytest.mark.parametrize(("num_queries", "num_keys"), [(1, 4), (2, 5), (4, 4)])
def test_a_rectangular_causal_mask_is_pytorchs_lower_right_and_not_its_upper_left(num_queries, num_keys):
    # Imports PyTorch's compiler, which takes a second.
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    inputs = [x[None, None].detach() for x in random_inputs((), num_queries, num_keys)]
    inputs[2] = inputs[2][..., :1].expand(1, 1, num_keys, 4).contiguous()
    ours = attention(*inputs, causal_mask(num_queries, num_keys))
    lower_right = causal_lower_right(num_queries, num_keys)
    assert_close(ours, F.scaled_dot_product_attention(*inputs, attn_mask=lower_right))
    upper_left = F.scaled_dot_product_attention(*inputs, attn_mask=causal_upper_left(num_queries, num_keys))
    assert torch.allclose(ours, upper_left) == (num_queries == num_keys)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=3), sizes, st.integers(0, 3), seeds)
def test_combined_masks_empty_rows_included_are_pytorchs(lengths, num_queries, radius, seed):
    mask = padding_mask(lengths, 4) & causal_mask(num_queries, 4) & local_mask(num_queries, 4, radius=radius)
    assert mask.shape == (len(lengths), num_queries, 4)
    assert_same_attention(
        random_inputs((len(lengths),), num_queries, 4, seed=seed % 1000), mask, attn_mask=mask
    )


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), seeds)
def test_padding_changes_nothing_for_the_true_positions(lengths, seed):
    """A padded batch gives what each sequence gives alone, and no gradient reaches the padding."""
    inputs = random_inputs((len(lengths),), 5, 5, seed=seed % 1000)
    output = attention(*inputs, padding_mask(lengths, 5) & causal_mask(5))
    for b, length in enumerate(lengths):
        alone = attention(*(x[b, :length] for x in inputs), causal_mask(length))
        assert_close(output[b, :length], alone)
    gradients = torch.autograd.grad(output.sum(), inputs)
    hidden = torch.arange(5) >= torch.tensor(lengths)[:, None]
    for gradient in gradients[1:]:
        assert (gradient[hidden] == 0).all()
    # Queries are not hidden: every row of the output is an average of true values.
    assert output.isfinite().all()
    assert (output != 0).all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_inverted_masks_mean_to_multihead_attention_what_ours_mean_to_us(need_weights):
    torch.manual_seed(0)
    layer = nn.MultiheadAttention(4, 1, batch_first=True, bias=False, dtype=torch.float64)
    x = normal(3, 5, 4)
    padding, causal = padding_mask([5, 2, 4], 5), causal_mask(5)
    W_Q, W_K, W_V = layer.in_proj_weight.mT.split(4, dim=1)
    ours = attention(x @ W_Q, x @ W_K, x @ W_V, padding & causal) @ layer.out_proj.weight.mT
    for attn_mask, key_padding_mask in (
        (inverted_mask(causal), inverted_mask(padding)[:, 0]),
        (additive_mask(causal, torch.float64), additive_mask(padding, torch.float64)[:, 0]),
        (inverted_mask(padding & causal), None),
    ):
        theirs, _ = layer(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=need_weights
        )
        assert_close(ours, theirs)


@given(sizes, sizes, seeds)
def test_additive_masks_mean_the_same_to_scaled_dot_product_attention(num_queries, num_keys, seed):
    inputs = random_inputs((), num_queries, num_keys, seed=seed % 1000)
    mask = torch.rand(num_queries, num_keys, generator=torch.Generator().manual_seed(seed)) < 0.5
    assert_same_attention(inputs, mask, attn_mask=additive_mask(mask, torch.float64))


# --- converters ---


@given(sizes, sizes, seeds)
def test_converters_undo_each_other(num_queries, num_keys, seed):
    mask = torch.rand(num_queries, num_keys, generator=torch.Generator().manual_seed(seed)) < 0.5
    inverted = inverted_mask(mask)
    assert ((mask.int() + inverted.int()) == 1).all()
    assert torch.equal(inverted_mask(inverted), mask)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        additive = additive_mask(mask, dtype)
        assert additive.dtype == dtype
        assert additive.tolist() == [[0.0 if may else -INF for may in row] for row in mask.tolist()]
        assert torch.equal(boolean_mask(additive), mask)


# --- rows that may see nothing ---


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_an_empty_row_is_zeros_in_value_and_gradient_in_every_precision(dtype):
    inputs = [x.detach().to(dtype).requires_grad_() for x in random_inputs((), 3, 4)]
    mask = causal_mask(3, 4)
    mask[1] = False
    output, weights = attention(*inputs, mask, return_weights=True)
    assert (weights[1] == 0).all()
    assert (output[1] == 0).all()
    assert (output[[0, 2]] != 0).all()
    gradients = torch.autograd.grad(output.float().square().sum(), inputs)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][1] == 0).all()
    assert (gradients[0][[0, 2]] != 0).any()


def test_an_empty_row_leaves_second_derivatives_finite_and_others_alone():
    scores = normal(3, 4).requires_grad_()
    mask = torch.tensor([[True, False, True, True], [False] * 4, [True] * 4])
    assert torch.autograd.gradgradcheck(lambda s: softargmax(s, mask=mask), scores)
    assert_close(softargmax(scores, mask=mask)[[0, 2]], softargmax(scores[[0, 2]], mask=mask[[0, 2]]))


# --- dropout on the weights ---


def test_dropout_is_pytorchs_for_the_same_random_numbers():
    inputs = random_inputs((2,), 4, 4)
    mask = causal_mask(4)
    torch.manual_seed(3)
    ours = attention(*inputs, mask, dropout_p=0.5)
    torch.manual_seed(3)
    assert_close(ours, F.scaled_dot_product_attention(*inputs, attn_mask=mask, dropout_p=0.5))


def test_dropout_never_brings_a_masked_key_back_and_rows_need_not_sum_to_one():
    torch.manual_seed(0)
    inputs = random_inputs((), 6, 6)
    mask = causal_mask(6)
    _, weights = attention(*inputs, mask, dropout_p=0.3, return_weights=True)
    assert (weights[~mask] == 0).all()
    assert not torch.isclose(weights.sum(-1), torch.ones(6, dtype=torch.float64)).all()


# --- influence ---

X = normal(6, 3)


def reach_by_changing(function, x):
    """What `influence` should find, found without derivatives: change one position, compare outputs."""
    before = function(x)
    changed = []
    for k in range(len(x)):
        other = x.clone()
        other[k] = normal(x.shape[1], seed=100 + k)
        changed.append((function(other) != before).any(dim=1))
    return torch.stack(changed, dim=1)


MASKS = {
    "full": torch.ones(6, 6, dtype=torch.bool),
    "causal": causal_mask(6),
    "local": local_mask(6, radius=1),
    "both": causal_mask(6) & local_mask(6, radius=2),
    "nothing": torch.zeros(6, 6, dtype=torch.bool),
}


@pytest.mark.parametrize("name", MASKS)
def test_influence_through_keys_and_values_is_the_mask(name):
    mask, query = MASKS[name], normal(6, 3, seed=5)

    def attends(x):
        return attention(query, x, x, mask)

    assert torch.equal(influence(attends, X), mask)
    assert torch.equal(reach_by_changing(attends, X), mask)


@pytest.mark.parametrize("name", MASKS)
def test_influence_in_self_attention_is_the_mask_and_the_query_itself(name):
    mask = MASKS[name]
    expected = mask | (torch.eye(6, dtype=torch.bool) & (mask.sum(-1, keepdim=True) > 1))
    assert torch.equal(influence(lambda x: attention(x, x, x, mask), X), expected)


def test_padding_hides_keys_and_not_queries():
    mask = padding_mask([4], 6)[0]
    found = influence(lambda x: attention(x, x, x, mask), X)
    assert found[:, :4].all()
    # The outputs at padding positions depend on their own queries and on nothing else that is padding.
    assert torch.equal(found[:, 4:], torch.eye(6, dtype=torch.bool)[:, 4:])


def test_influence_of_layers_stacked_is_the_product_of_their_patterns():
    mask = local_mask(6, radius=1)

    def layer(x):
        return attention(x, x, x, mask)

    product = (mask.int() @ mask.int()) > 0
    assert torch.equal(influence(lambda x: layer(layer(x)), X), product)


def test_influence_sees_what_scores_times_mask_lets_through():
    def leaking(x):
        scores = x @ x.mT * causal_mask(6)
        return torch.softmax(scores, -1) @ x

    assert influence(leaking, X).all()


def test_influence_of_other_shapes_and_of_nothing():
    assert influence(lambda x: x[1:3] * 2, X).tolist() == [[k == q + 1 for k in range(6)] for q in range(2)]
    assert influence(lambda x: x.sum(0, keepdim=True), X).tolist() == [[True] * 6]
    assert not influence(lambda x: torch.ones(4, 2, dtype=torch.float64), X).any()
    assert not influence(lambda x: x.detach() * 2, X).any()
    # A single feature of a single output is enough, and a NaN is no zero.
    assert influence(lambda x: x * torch.tensor([0.0, 0.0, 1e-30], dtype=torch.float64), X).sum() == 6
    assert influence(lambda x: x * math.nan, X[:2]).tolist() == [[True, True], [True, True]]


def test_influence_needs_no_gradient_of_its_inputs_and_leaves_them_alone():
    x = X.clone().requires_grad_()
    layer = nn.Linear(3, 2, dtype=torch.float64)
    assert torch.equal(influence(layer, x), torch.eye(6, dtype=torch.bool))
    assert x.grad is None
    assert all(parameter.grad is None for parameter in layer.parameters())
    assert torch.equal(x, X)


# --- bad input ---

MASK = torch.ones(2, 3, dtype=torch.bool)
# A call, then what the message must say: the argument, what came, and the expectation.
VALUE_ERRORS = {
    "causal: no queries": (lambda: causal_mask(0), "num_queries", "0", "at least 1"),
    "causal: no keys": (lambda: causal_mask(2, 0), "num_keys", "0", "at least 1"),
    "local: negative radius": (lambda: local_mask(2, radius=-1), "radius", "-1", "at least 0"),
    "local: no queries": (lambda: local_mask(-3, 2, radius=1), "num_queries", "-3", "at least 1"),
    "padding: no keys": (lambda: padding_mask([0], 0), "num_keys", "0", "at least 1"),
    "padding: too long": (lambda: padding_mask([2, 5], 4), "lengths", "(2,)", "from 2 to 5", "which is 4"),
    "padding: negative": (lambda: padding_mask([-1, 2], 4), "lengths", "(2,)", "-1", "from 0 to num_keys"),
    "padding: fractions": (lambda: padding_mask([1.5], 4), "lengths", "(1,)", "float32", "whole numbers"),
    "padding: a mask": (
        lambda: padding_mask([True, False], 4), "lengths", "(2,)", "torch.bool", "whole numbers"
    ),
    "inverted: numbers": (lambda: inverted_mask(MASK.float()), "mask", "(2, 3)", "float32", "torch.bool"),
    "additive: numbers": (lambda: additive_mask(MASK.int()), "mask", "(2, 3)", "int32", "torch.bool"),
    "additive: to integers": (
        lambda: additive_mask(MASK, torch.int64), "dtype", "torch.int64", "floating-point"
    ),
    "boolean: a mask already": (
        lambda: boolean_mask(MASK), "additive", "(2, 3)", "torch.bool", "floating point"
    ),
    "boolean: minus a billion": (
        lambda: boolean_mask(torch.tensor([[0.0, -1e9]])), "additive", "(1, 2)", "-1e+09", "minus infinity"
    ),
    "boolean: zeros and ones": (
        lambda: boolean_mask(MASK.float()), "additive", "(2, 3)", "1", "0 and minus infinity only"
    ),
    "boolean: NaN": (lambda: boolean_mask(torch.tensor([math.nan])), "additive", "(1,)", "nan", "infinity"),
    "influence: a batch": (lambda: influence(torch.sin, X[None]), "inputs", "(1, 6, 3)", "no batch"),
    "influence: a vector": (lambda: influence(torch.sin, X[0]), "inputs", "(3,)", "positions, features"),
    "influence: integers": (lambda: influence(torch.sin, X.long()), "inputs", "int64", "floating point"),
    "influence: a vector comes back": (
        lambda: influence(lambda x: x.sum(1), X), "what function returns", "(6,)", "(positions, features)"
    ),
    "influence: integers come back": (
        lambda: influence(lambda x: x.long(), X), "what function returns", "int64", "floating point"
    ),
}  # fmt: skip
TYPE_ERRORS = {
    "causal: a fraction": (lambda: causal_mask(2.0), "num_queries", "float", "an int"),
    "causal: a tensor": (lambda: causal_mask(2, torch.tensor(2)), "num_keys", "Tensor", "an int"),
    "causal: a truth": (lambda: causal_mask(True), "num_queries", "bool", "an int"),
    "local: a fraction": (lambda: local_mask(2, radius=0.5), "radius", "float", "an int"),
    "padding: a fraction": (lambda: padding_mask([1], 2.0), "num_keys", "float", "an int"),
    "inverted: a list": (lambda: inverted_mask([True]), "mask", "list", "torch.Tensor"),
    "additive: a list": (lambda: additive_mask([True]), "mask", "list", "torch.Tensor"),
    "boolean: a list": (lambda: boolean_mask([0.0]), "additive", "list", "torch.Tensor"),
    "influence: a list": (lambda: influence(torch.sin, [[1.0]]), "inputs", "list", "torch.Tensor"),
    "influence: a tuple comes back": (
        lambda: influence(lambda x: (x, x), X), "what function returns", "tuple", "torch.Tensor"
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


def one_too_far(num_queries, num_keys):
    ones = torch.ones(num_queries, num_keys, dtype=torch.bool)
    return ones.tril(num_keys - num_queries + 1)


def aligned_at_the_start(num_queries, num_keys):
    return torch.ones(num_queries, num_keys, dtype=torch.bool).tril()


def test_the_letters_of_the_experiment_are_equally_frequent_and_follow_the_table():
    chances = experiment.chances()
    assert_close(chances.sum(0), torch.ones(10))
    assert_close(chances.sum(1), torch.ones(10))
    assert (chances.diagonal() == 0).all()
    letters = experiment.sequences(50, torch.Generator().manual_seed(0))
    assert letters.shape == (50, 9)
    assert (chances[letters[:, :-1], letters[:, 1:]] > 0).all()


@pytest.mark.slow
def test_a_leak_is_better_than_the_best_and_writes_badly():
    chances = experiment.chances()
    best = torch.special.entr(chances).sum(-1).mean().item()
    sound, leaks, misaligned = (
        experiment.train(attention, mask) for mask in (causal_mask, one_too_far, aligned_at_the_start)
    )
    assert abs(sound.loss[-20:].mean() - best) < 0.05
    assert sound.writing < 1.1 * best
    assert sound.possible > 0.98
    assert leaks.loss[-20:].mean() < 0.1
    assert leaks.writing > 2 * best
    assert torch.equal(misaligned.loss, sound.loss)
    assert misaligned.writing > 2 * best
    assert misaligned.possible < 0.5


def test_the_experiment_is_fixed_by_its_seed():
    first, second, other = (
        experiment.train(attention, causal_mask, steps=2, seed=seed) for seed in (3, 3, 4)
    )
    assert torch.equal(first.loss, second.loss)
    assert first.written == second.written
    assert not torch.equal(first.loss, other.loss)


def test_the_experiment_shows_its_runs():
    runs = {"mine": experiment.train(attention, causal_mask, steps=3)}
    assert "mine" in repr(experiment.table(runs))
    shown = experiment.figure(runs, 0.55)
    assert 'alt="Curves over the steps: mine from' in shown._repr_html_()
    assert "level line is at 0.55" in repr(shown)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: experiment.sequences(0, torch.Generator()), "number is 0"),
        (lambda: experiment.train(attention, causal_mask, steps=0), "steps is 0"),
        (
            lambda: experiment.train(lambda q, k, v, m: q, causal_mask),
            r"attend gives a tensor of shape \(64, 9, 16\)",
        ),
        (lambda: experiment.train(lambda q, k, v, m: None, causal_mask), "attend gives NoneType"),
        (
            lambda: experiment.train(attention, lambda q, k: causal_mask(3)),
            r"mask_of gives a tensor of shape \(3, 3\)",
        ),
        (lambda: experiment.train(attention, lambda q, k: None), "mask_of gives NoneType"),
        (lambda: experiment.figure({}, 1.0), "runs has 0 runs"),
    ],
)
def test_the_experiment_names_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@given(st.lists(st.integers(0, 3), max_size=4), st.lists(st.integers(0, 3), max_size=4))
def test_what_broadcasts_to_a_shape_is_what_pytorch_broadcasts(sizes, shape):
    try:
        fits = torch.broadcast_shapes(sizes, shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    assert broadcasts_to(torch.empty(sizes), torch.Size(shape)) == fits
