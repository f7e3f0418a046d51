"""The random numbers on which answers are tried."""

import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Normal

from attncourse.checks.draws import Draws

SEEDS = st.integers(0, 2**256)
MANY = 20_000


@given(SEEDS, st.text(max_size=9))
def test_the_same_seed_and_use_give_the_same_numbers(seed, use):
    one, same = Draws(seed, use), Draws(seed, use)
    assert torch.equal(one.randn(3, 4), same.randn(3, 4))
    assert one.whole(0, 2**40) == same.whole(0, 2**40)


@given(SEEDS, st.integers(1, 2**256))
def test_every_seed_use_and_call_gives_other_numbers(seed, more):
    one = Draws(seed, "inputs")
    drawn = [one.rand(5), one.rand(5), Draws(seed, "layers").rand(5), Draws(seed + more, "inputs").rand(5)]
    assert len(torch.cat(drawn).unique()) == 20


def test_numbers_are_those_of_shake_256():
    digest = hashlib.shake_256(b"7 inputs 1").digest(8)
    expected = (int.from_bytes(digest, "little") >> 11) / 2**53
    assert Draws(7, "inputs").rand(dtype=torch.float64).item() == pytest.approx(expected, abs=1e-15)


def farthest(drawn):
    """How far the shares of the numbers below each number are from an even distribution."""
    return (drawn.double().sort().values - (torch.arange(MANY) + 0.5) / MANY).abs().max()


def test_numbers_are_distributed_as_they_should_be():
    draws = Draws(1, "inputs")
    enough = 1.63 / MANY**0.5  # of Kolmogorov and Smirnov, for 1 in 100
    assert farthest(draws.rand(MANY)) < enough
    assert farthest(Normal(0.0, 1.0).cdf(draws.randn(MANY))) < enough
    counts = draws.randint(3, 10, (7 * MANY,)).bincount()
    assert counts[:3].sum() == 0
    assert (counts[3:] - MANY).abs().max() < 4 * MANY**0.5
    orders = torch.stack([draws.randperm(4) for _ in range(24 * 400)])
    counts = orders.unique(dim=0, return_counts=True)[1]
    assert len(counts) == 24
    assert (counts - 400).abs().max() < 4 * 20


@given(SEEDS, st.integers(-5, 5), st.integers(0, 3))
def test_the_ends_are_drawn_and_nothing_beyond(seed, least, more):
    draws = Draws(seed, "inputs")
    drawn = {draws.whole(least, least + more) for _ in range(200)}
    assert drawn == set(range(least, least + more + 1))


def test_shapes_and_types_are_those_of_pytorchs_functions():
    draws = Draws(0, "inputs")
    for draw, theirs in ((draws.rand, torch.rand), (draws.randn, torch.randn)):
        for shape in ((), (0,), (2, 3)):
            for dtype in (torch.float32, torch.float64):
                ours, other = draw(*shape, dtype=dtype), theirs(shape, dtype=dtype)
                assert (ours.shape, ours.dtype) == (other.shape, other.dtype)
    assert draws.randint(0, 3, (2, 2)).dtype == draws.randperm(3).dtype == torch.int64
