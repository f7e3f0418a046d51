"""permute, and the property tests, against definitions, permutation matrices and known symmetries."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse import (
    MultiHeadAttention,
    attention,
    causal_mask,
    is_equivariant,
    is_invariant,
    local_mask,
    permute,
    toy,
)
from attncourse.experiments import permutation as experiment


def random(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def shuffled(length, seed=0):
    return torch.randperm(length, generator=torch.Generator().manual_seed(seed))


def matrix(permutation):
    return torch.nn.functional.one_hot(torch.as_tensor(permutation), len(permutation)).double()


lengths = st.integers(1, 7)
orders = lengths.flatmap(lambda length: st.permutations(range(length)))


# permute


def test_a_small_example():
    x = torch.tensor([[1, 10], [2, 20], [3, 30]])
    assert permute(x, [2, 0, 1]).tolist() == [[3, 30], [1, 10], [2, 20]]


@given(orders, st.integers(1, 3))
def test_each_row_is_the_one_that_the_definition_names(order, features):
    x = random(len(order), features)
    permuted = permute(x, order)
    for i in range(len(order)):
        assert torch.equal(permuted[i], x[order[i]])
    torch.testing.assert_close(permuted, matrix(order) @ x)


@given(orders)
def test_the_inverse_undoes(order):
    x = random(2, len(order), 3)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    assert torch.equal(permute(permute(x, order), inverse), x)


@given(orders, st.data())
def test_two_permutations_are_one(order, data):
    second = data.draw(st.permutations(range(len(order))))
    x = random(len(order), 2)
    assert torch.equal(permute(permute(x, order), second), permute(x, [order[i] for i in second]))


def test_other_dimensions_and_dtypes():
    mask = causal_mask(4)
    order = [3, 1, 0, 2]
    assert torch.equal(permute(mask, order, dim=-1), mask[:, order])
    assert torch.equal(permute(random(4, 2, 3), order, dim=0), random(4, 2, 3)[order])
    assert torch.equal(permute(torch.arange(4), torch.tensor(order), dim=0), torch.tensor(order))


def test_the_result_is_a_copy():
    x = random(3, 2)
    permute(x, [0, 1, 2])[0, 0] = 5.0
    assert torch.equal(x, random(3, 2))


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [0, 1, 3], [0, 1, 2, 3], [-1, 0, 1], [[0, 1, 2]]])
def test_what_is_no_permutation_is_refused(order):
    with pytest.raises(ValueError, match=r"permutation has shape .* expected each of 0 to 2 once"):
        permute(random(3, 2), order)


def test_what_is_no_sequence_is_refused():
    with pytest.raises(TypeError, match="x is a list"):
        permute([1, 2], [1, 0])
    with pytest.raises(IndexError):
        permute(torch.arange(2), [1, 0])


# The propositions


@settings(deadline=None)
@given(orders, orders, st.booleans())
def test_attention_with_everything_permuted(query_order, key_order, masked):
    num_queries, num_keys = len(query_order), len(key_order)
    query, key, value = random(num_queries, 4), random(num_keys, 4, seed=1), random(num_keys, 3, seed=2)
    mask = random(num_queries, num_keys, seed=3) > -0.5 if masked else None
    expected = matrix(query_order) @ attention(query, key, value, mask)
    if masked:
        mask = permute(permute(mask, query_order), key_order, dim=-1)
        both = matrix(query_order) @ (random(num_queries, num_keys, seed=3) > -0.5).double()
        assert torch.equal(mask.double(), both @ matrix(key_order).T)
    permuted = attention(
        permute(query, query_order), permute(key, key_order), permute(value, key_order), mask
    )
    torch.testing.assert_close(permuted, expected)


def test_self_attention_is_equivariant_and_cross_attention_invariant_in_the_source():
    torch.manual_seed(0)
    layer = MultiHeadAttention(6, 2).double()
    x, other = random(5, 6), random(7, 6, seed=1)
    assert is_equivariant(layer, x)
    assert is_equivariant(lambda x: layer(x, other), x)
    assert is_invariant(lambda source: layer(x, source), other)
    assert not is_invariant(layer, x)
    assert not is_equivariant(lambda source: layer(x, source), other)


def test_keys_alone_may_not_be_permuted():
    query, key, value = random(3, 4), random(5, 4, seed=1), random(5, 2, seed=2)
    assert not is_invariant(lambda key: attention(query, key, value), key)
    assert not is_invariant(lambda value: attention(query, key, value), value)


# The property tests


def last_of_causal(layers):
    def function(x):
        for _ in range(layers):
            x = attention(x, x, x, causal_mask(len(x)))
        return x[-1]

    return lambda prefix: function(torch.cat([prefix, random(1, 3, seed=9)]))


def kernel(*weights):
    weight = torch.tensor(weights, dtype=torch.float64)[None, None]
    pad = len(weights) // 2
    return lambda x: torch.nn.functional.conv1d(x.T[:, None], weight, padding=pad)[:, 0].T


ENCODING = random(6, 3, seed=7)
SLOPE = torch.arange(6, dtype=torch.float64)[:, None]

# function: (equivariant, invariant)
KNOWN = {
    "each position by itself": (torch.tanh, (True, False)),
    "attention": (lambda x: attention(x, x, x), (True, False)),
    "minus the mean": (lambda x: x - x.mean(0), (True, False)),
    "the mean everywhere": (lambda x: x.mean(0).expand_as(x), (True, True)),
    "the mean": (lambda x: x.mean(0), (False, True)),
    "one number": (lambda x: x.square().sum(), (False, True)),
    "the maximum": (lambda x: x.amax(-2, keepdim=True), (False, True)),
    "sorted": (lambda x: x[x[:, 0].argsort()], (False, True)),
    "the largest position": (lambda x: x[:, 0].argmax(), (False, False)),
    "causal": (lambda x: attention(x, x, x, causal_mask(6)), (False, False)),
    "local": (lambda x: attention(x, x, x, local_mask(6, radius=1)), (False, False)),
    "only itself": (lambda x: attention(x, x, x, torch.eye(6).bool()), (True, False)),
    "all but itself": (lambda x: attention(x, x, x, ~torch.eye(6).bool()), (True, False)),
    "with positions": (lambda x: attention(x + ENCODING, x, x), (False, False)),
    "convolution": (kernel(0.2, 0.5, 0.3), (False, False)),
    "symmetric convolution": (kernel(0.25, 0.5, 0.25), (False, False)),
    "convolution one wide": (kernel(0.5), (True, False)),
    "shifted around": (lambda x: x.roll(1, 0), (False, False)),
    "a little order": (lambda x: x + 1e-5 * SLOPE, (False, False)),
    "large numbers": (lambda x: attention(1e8 * x, x, 1e8 * x), (True, False)),
    "small numbers": (lambda x: 1e-12 * x.cumsum(0), (False, False)),
    "zeros": (torch.zeros_like, (True, True)),
    "NaN": (lambda x: x * math.nan, (False, False)),
    "one layer of causal attention": (last_of_causal(1), (False, True)),
    "two layers of causal attention": (last_of_causal(2), (False, False)),
}


@pytest.mark.parametrize("name", KNOWN)
def test_functions_whose_symmetry_is_known(name):
    function, (equivariant, invariant) = KNOWN[name]
    x = random(6, 3)
    assert is_equivariant(function, x) is equivariant
    assert is_invariant(function, x) is invariant


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(10))
def test_rounding_is_no_difference(dtype, seed):
    x = 10 * random(20, 8, seed=seed, dtype=dtype)
    assert is_equivariant(lambda x: attention(x, x, x), x)
    assert is_invariant(lambda x: attention(x, x, x).mean(0), x)


def test_batches_and_other_dimensions():
    x = random(2, 5, 3)
    assert is_equivariant(lambda x: attention(x, x, x), x)
    # Unmasked self-attention of the bare input does not know the order of features either.
    assert is_equivariant(lambda x: attention(x, x, x), x, dim=-1)
    assert is_equivariant(lambda x: attention(x.mT, x.mT, x.mT).mT, x, dim=-1)
    assert is_equivariant(torch.relu, random(5), dim=0)
    assert not is_equivariant(lambda x: x.cumsum(-1), x, dim=-1)
    assert is_invariant(lambda x: x.sum(-1), x, dim=-1)


def test_whole_numbers_are_compared_exactly():
    assert is_equivariant(lambda x: (x > 0).long(), random(6, 3))
    assert is_invariant(lambda x: (x > 0).sum(), random(6, 3))
    assert not is_invariant(lambda x: (x > 0).cumsum(0), random(6, 3))


def test_the_counterexample_shows_the_failure():
    x = random(6, 3)

    def function(x):
        return attention(x, x, x, causal_mask(6))

    holds, order = is_equivariant(function, x, return_counterexample=True)
    assert not holds
    assert (function(x[order]) - function(x)[order]).abs().max() > 1e-3
    holds, order = is_invariant(function, x, return_counterexample=True)
    assert (function(x[order]) - function(x)).abs().max() > 1e-3
    assert is_equivariant(torch.tanh, x, return_counterexample=True) == (True, None)


def recorded(length, **options):
    """The orders in which a property test hands over its input."""
    seen = []

    def function(x):
        seen.append(tuple(x[:, 0].long().tolist()))
        return x

    assert is_equivariant(function, torch.arange(float(length))[:, None], **options)
    return seen[1:]


def test_few_positions_are_permuted_in_all_ways():
    assert sorted(recorded(4)) == sorted(itertools.permutations(range(4)))[1:]
    assert recorded(1) == []


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("length", [3, 12])
def test_random_permutations_never_are_the_identity(length, seed):
    seen = recorded(length, num_permutations=4, generator=torch.Generator().manual_seed(seed))
    assert len(seen) == 4
    assert all(sorted(order) == list(range(length)) != list(order) for order in seen)


def test_permutations_come_from_the_generator():
    def drawn(seed):
        return recorded(9, generator=torch.Generator().manual_seed(seed))

    assert recorded(9) == recorded(9)
    assert drawn(1) == drawn(1) != drawn(2)


def test_the_tolerance_is_a_share_of_the_largest_number():
    def function(x):
        return x + 0.01 * SLOPE / 5

    x = random(6, 3)
    x = x / x.abs().max()
    assert not is_equivariant(function, x, tolerance=0.001)
    assert is_equivariant(function, x, tolerance=0.02)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"x has shape \(3, 2\) and dtype torch.int64"):
        is_equivariant(torch.abs, torch.ones(3, 2).long())
    with pytest.raises(ValueError, match="num_permutations is 0"):
        is_invariant(torch.abs, random(3, 2), num_permutations=0)
    with pytest.raises(TypeError, match="what function returns is a list"):
        is_invariant(lambda x: x.tolist(), random(3, 2))
    with pytest.raises(IndexError):
        is_equivariant(torch.abs, random(3))


# the experiment


def by_itself(x, W_Q, W_K, W_V):
    """Every position by itself."""
    return nn.functional.conv1d(x, W_V)


LAYERS = {"convolutions": None, "by itself": by_itself}


@pytest.fixture(scope="module")
def short_runs():
    return {name: experiment.train(layer, sequences=80) for name, layer in LAYERS.items()}


def test_a_network_with_a_convolution_or_a_layer_is_trained(short_runs):
    for run in short_runs.values():
        assert run.sequences.tolist() == list(range(10, 81, 10))
        assert run.loss.shape == (8,)
        assert run.drawn.shape == run.height.shape == run.centre.shape == (500, 4)
    middle = 24 * 24 * 5 + 24 - 3 * 24 * 24
    assert short_runs["convolutions"].parameters - short_runs["by itself"].parameters == middle


def test_the_same_seed_trains_the_same_network(short_runs):
    torch.manual_seed(5)
    again = experiment.train(by_itself, sequences=80)
    assert torch.equal(again.loss, short_runs["by itself"].loss)
    other = experiment.train(by_itself, sequences=80, seed=2)
    assert not torch.equal(other.loss, again.loss)


def test_the_weights_of_the_handed_over_layer_are_learned():
    seen = []

    def watched(x, W_Q, W_K, W_V):
        seen.append(W_V.detach().clone())
        return by_itself(x, W_Q, W_K, W_V)

    experiment.train(watched, sequences=80)
    assert seen[0].shape == (24, 24, 1)
    assert (seen[0] != seen[-1]).any()


def test_the_loss_falls():
    run = experiment.train(sequences=800)
    assert run.loss[-1] < run.loss[0] / 3


def test_the_drawn_height_is_that_of_the_shape(monkeypatch):
    class Doubles(nn.Module):
        """Draws what it gets, twice as high."""

        def __init__(self):
            super().__init__()
            self.zero = nn.Parameter(torch.zeros(()))

        def forward(self, x):
            return 2 * (x * toy.INPUT_STD + toy.INPUT_MEAN) + 0 * self.zero

    monkeypatch.setattr(experiment, "_network", lambda layer: Doubles())
    run = experiment.train(sequences=80)
    torch.testing.assert_close(run.drawn, 2 * run.height, atol=0.3, rtol=0)


def test_an_error_of_one_in_all_heights_costs_as_much_as_it_is_said():
    height, target, cost = experiment.heights()
    data = toy.make_test_data("A")
    profile = toy.profiles(data.centre, data.width)
    right, wrong = ((each[..., None] * profile).sum(1) for each in (target, target + 1))
    assert torch.equal(height, data.height)
    assert (right - wrong).square().mean().item() == pytest.approx(cost, rel=1e-4)


def test_the_experiment_is_told_in_words(short_runs):
    table = repr(experiment.table(short_runs))
    assert "by itself" in table
    assert "8,977" in table
    figure = experiment.figure(short_runs, 2.5)
    assert "by itself from" in figure.alt
    assert "2.50" in figure.alt


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: experiment.train(sequences=100), "sequences is 100: expected a multiple of 80"),
        (lambda: experiment.train(sequences=0), "sequences is 0: expected at least 80"),
        (lambda: experiment.train(lambda x, *W: x.mT, sequences=80), r"layer gives .*\(10, 100, 24\)"),
        (lambda: experiment.train(lambda x, *W: None, sequences=80), "layer gives NoneType"),
        (lambda: experiment.figure({}, 2.5), "runs has 0 runs"),
    ],
)
def test_the_experiment_names_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()
