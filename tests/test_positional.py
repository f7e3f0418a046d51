"""The encodings of positions against other ways to make them, and by their properties."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

import attncourse
from attncourse import (
    LearnedEncoding,
    alibi_bias,
    alibi_slopes,
    attention,
    binary_encoding,
    causal_mask,
    rotary,
    sinusoidal_encoding,
    toy,
)
from attncourse.experiments import positional as experiment

seeds = st.integers(0, 2**32 - 1)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def test_the_public_interface_is_the_units():
    from attncourse import positional

    assert set(positional.__all__) <= set(attncourse.__all__)
    for name in positional.__all__:
        assert getattr(attncourse, name) is getattr(positional, name)


# --- binary ---


@given(length=st.integers(1, 300), spare=st.integers(0, 3))
def test_a_row_is_its_position_in_binary(length, spare):
    num_bits = max(1, len(f"{length - 1:b}")) + spare
    expected = [[float(bit) for bit in reversed(f"{t:0{num_bits}b}")] for t in range(length)]
    assert_close(binary_encoding(length, num_bits), torch.tensor(expected))


@given(length=st.integers(1, 300))
def test_as_few_bits_as_tell_all_positions_apart(length):
    encoding = binary_encoding(length)
    assert len(encoding.unique(dim=0)) == length
    if encoding.shape[1] > 1:
        assert len(encoding[:, :-1].unique(dim=0)) < length


@pytest.mark.parametrize(
    ("length", "num_bits"), [(1, 1), (2, 1), (3, 2), (20, 5), (64, 6), (65, 7), (100, 7), (128, 7)]
)
def test_the_number_of_bits(length, num_bits):
    assert binary_encoding(length).shape == (length, num_bits)


def test_it_has_the_default_type():
    assert binary_encoding(4).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0,), ValueError, "length is 0"),
        ((-3,), ValueError, "length is -3"),
        ((2.0,), TypeError, "length is a float"),
        ((5, 2), ValueError, "num_bits is 2: expected at least 3"),
        ((8, 0), ValueError, "num_bits is 0"),
        ((1, 0), ValueError, "num_bits is 0"),
        ((8, 3.0), TypeError, "num_bits is a float"),
    ],
)
def test_bad_arguments_of_the_binary_encoding_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        binary_encoding(*arguments)


# --- sinusoidal ---


@given(length=st.integers(1, 40), dim=st.integers(1, 17))
def test_sines_and_cosines_take_turns(length, dim):
    expected = [
        [
            (math.cos if column % 2 else math.sin)(t / 10_000 ** (2 * (column // 2) / dim))
            for column in range(dim)
        ]
        for t in range(length)
    ]
    assert_close(sinusoidal_encoding(length, dim), torch.tensor(expected))


@given(half=st.integers(1, 8), first=st.integers(0, 90), second=st.integers(0, 90), shift=st.integers(0, 90))
def test_dot_products_of_sinusoids_see_the_offset_only(half, first, second, shift):
    encoding = sinusoidal_encoding(200, 2 * half).double()
    dot = encoding[first] @ encoding[second]
    assert_close(encoding[first + shift] @ encoding[second + shift], dot, rtol=0, atol=1e-5)
    assert_close((encoding[first] @ encoding[first]).item(), float(half), rtol=0, atol=1e-5)


def test_distant_positions_keep_their_digits():
    assert_close(sinusoidal_encoding(100_001, 4)[-1, 0].item(), math.sin(100_000), rtol=0, atol=1e-6)


def test_sinusoids_have_the_default_type():
    assert sinusoidal_encoding(4, 3).dtype == torch.float32


# --- learned ---


def test_the_table_is_looked_up_and_learns():
    encoding = LearnedEncoding(7, 3)
    assert [name for name, _ in encoding.named_parameters()] == ["table"]
    assert torch.equal(encoding(4), encoding.table[:4])
    assert encoding(7).shape == (7, 3)
    encoding(4).sum().backward()
    assert encoding.table.grad.sum(1).tolist() == [3, 3, 3, 3, 0, 0, 0]
    with pytest.raises(ValueError, match="length is 8: expected at most 7"):
        encoding(8)


# --- rotary ---


@given(length=st.integers(1, 6), half=st.integers(1, 5), seed=seeds)
def test_each_pair_is_turned_like_a_complex_number(length, half, seed):
    x = normal(2, length, 2 * half, seed=seed)
    turned = rotary(x)
    for t in range(length):
        for i in range(half):
            angle = t * 10_000 ** (-i / half)
            expected = [
                complex(*pair) * complex(math.cos(angle), math.sin(angle))
                for pair in x[:, t, 2 * i : 2 * i + 2].tolist()
            ]
            got = [complex(*pair) for pair in turned[:, t, 2 * i : 2 * i + 2].tolist()]
            assert got == pytest.approx(expected)


@given(offset=st.integers(-50, 50), shift=st.integers(0, 1000), half=st.integers(1, 8), seed=seeds)
def test_scores_of_rotated_vectors_see_the_offset_only(offset, shift, half, seed):
    query, key = normal(2, 1, 2 * half, seed=seed)
    here = torch.tensor([100])

    def score(q, k):
        return (rotary(query, q) * rotary(key, k)).sum()

    assert_close(score(here, here + offset), score(here + shift, here + shift + offset))


@settings(max_examples=30)
@given(length=st.integers(1, 5), half=st.integers(1, 4), base=st.floats(1.01, 1e6), seed=seeds)
def test_the_base_says_how_slowly_the_slow_pairs_turn(length, half, base, seed):
    x = normal(length, 2 * half, seed=seed)
    places = 10 * normal(length, seed=seed + 1)  # places between two positions, too
    turned = rotary(x, places, base=base)
    for t in range(length):
        for i in range(half):
            angle = places[t].item() / base ** (2 * i / (2 * half))
            first, second = x[t, 2 * i : 2 * i + 2].tolist()
            expected = [
                first * math.cos(angle) - second * math.sin(angle),
                first * math.sin(angle) + second * math.cos(angle),
            ]
            assert turned[t, 2 * i : 2 * i + 2].tolist() == pytest.approx(expected, abs=1e-9)
    assert torch.equal(rotary(x, base=10_000), rotary(x))


def test_rotation_tells_order_and_keeps_norms():
    x = normal(5, 8)
    assert_close(rotary(x).norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(rotary(x)[0], x[0])
    query, key = x[:1], x[1:2]
    ahead = rotary(query, torch.tensor([3])) @ rotary(key, torch.tensor([7])).mT
    behind = rotary(query, torch.tensor([7])) @ rotary(key, torch.tensor([3])).mT
    assert (ahead - behind).abs() > 1e-3


def test_rotary_takes_positions_in_batches_and_keeps_the_type():
    x = normal(2, 3, 4, 6, dtype=torch.float32)
    positions = torch.tensor([[[0, 1, 2, 3]], [[5, 6, 7, 8]]])  # one row of positions for each sequence
    turned = rotary(x, positions)
    assert turned.dtype == torch.float32
    assert_close(turned[1], rotary(x[1], torch.arange(5, 9)))
    assert_close(turned[0], rotary(x[0]))


def test_attention_with_rotary_is_not_equivariant():
    x, order = normal(6, 4), torch.tensor([1, 0, 2, 3, 4, 5])

    def layer(x):
        return attention(rotary(x), rotary(x), x)

    assert (layer(x[order]) - layer(x)[order]).abs().max() > 1e-3


# --- ALiBi ---


def test_the_slopes_of_the_paper():
    assert_close(alibi_slopes(8), torch.tensor([1 / 2**n for n in range(1, 9)]))
    assert_close(alibi_slopes(16), torch.tensor([2 ** (-n / 2) for n in range(1, 17)]))
    # From the code that goes with the paper, for 12 heads: eight slopes, and four between them.
    between = [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    assert_close(alibi_slopes(12), torch.tensor([1 / 2**n for n in range(1, 9)] + between))
    assert_close(alibi_slopes(3), torch.tensor([2**-4, 2**-8, 2**-2]).float())
    assert_close(alibi_slopes(1), torch.tensor([2.0**-8]))


@given(st.integers(1, 70))
def test_slopes_are_as_many_as_heads_and_all_different(num_heads):
    slopes = alibi_slopes(num_heads)
    assert slopes.shape == slopes.unique().shape == (num_heads,)
    assert ((slopes > 0) & (slopes < 1)).all()


@given(num_heads=st.integers(1, 9), num_queries=st.integers(1, 6), num_keys=st.integers(1, 6))
def test_alibi_falls_with_the_distance(num_heads, num_queries, num_keys):
    slopes = alibi_slopes(num_heads).tolist()
    expected = [
        [[-slope * abs(q + num_keys - num_queries - k) for k in range(num_keys)] for q in range(num_queries)]
        for slope in slopes
    ]
    assert_close(alibi_bias(num_heads, num_queries, num_keys), torch.tensor(expected))


def test_alibi_is_relative_and_square_by_default():
    bias = alibi_bias(4, 7)
    assert torch.equal(bias, alibi_bias(4, 7, 7))
    assert torch.equal(bias[:, 1:, 1:], bias[:, :-1, :-1])
    assert torch.equal(alibi_bias(4, 2, 7), bias[:, -2:])


def test_alibi_with_a_causal_mask_is_the_papers():
    # The paper's code adds slope * k to the scores of key k: in each row the same up to a constant.
    query, key, value = normal(3, 4, 5, 6)
    bias, mask = alibi_bias(4, 5).double(), causal_mask(5)
    theirs = alibi_slopes(4).double()[:, None, None] * torch.arange(5.0, dtype=torch.float64)
    outputs = [
        torch.nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=(numbers.expand(4, 5, 5)).masked_fill(~mask, -math.inf)
        )
        for numbers in (bias, theirs)
    ]
    assert_close(*outputs)


# --- the runs that the chapter shows ---


def test_the_short_runs_are_what_their_logs_say():
    found = toy.results(toy.RESULTS.parent / "runs_60k")
    ran = {(result.run.version, result.run.model, result.run.positions) for result in found.values()}
    eight = set(itertools.product(toy.VERSIONS, toy.MODELS, ("none", "signs")))
    assert ran == eight | {("B", "attention", positions) for positions in toy.POSITIONS}
    assert len({(r.run.sequences, r.run.batch, r.run.rate, r.run.seed) for r in found.values()}) == 1
    data = {version: toy.make_test_data(version, 300) for version in toy.VERSIONS}
    for name, (run, log, model) in found.items():
        assert name == run.name
        assert log["command"] == run.command
        assert toy.evaluate(model, data[run.version]) == pytest.approx(log["test_mse"], rel=0.2)
        # Where the errors end that need no training: what is not seen, does not help.
        if run.model == "conv":
            assert log["test_mse"] == pytest.approx(ANCHORS[run.version], rel=0.15)


#: The best guess from a shape's own height.
ANCHORS = {"A": 2.53, "B": 2.85}


# --- bad arguments ---


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: sinusoidal_encoding(0, 4), ValueError, "length is 0"),
        (lambda: sinusoidal_encoding(4, 0), ValueError, "dim is 0"),
        (lambda: sinusoidal_encoding(4, 2.0), TypeError, "dim is a float"),
        (lambda: LearnedEncoding(0, 4), ValueError, "max_length is 0"),
        (lambda: LearnedEncoding(4, 0), ValueError, "dim is 0"),
        (lambda: LearnedEncoding(4, 2)(0), ValueError, "length is 0"),
        (lambda: rotary(normal(3, 5)), ValueError, r"x has shape \(3, 5\): expected an even number"),
        (lambda: rotary(torch.arange(4).view(2, 2)), ValueError, "dtype torch.int64"),
        (lambda: rotary(normal(3, 4), torch.arange(4)), ValueError, r"positions has shape \(4,\)"),
        (lambda: rotary(normal(3, 4), torch.tensor([2])), ValueError, r"positions has shape \(1,\)"),
        (lambda: rotary(normal(3, 4), torch.zeros(2, 3)), ValueError, r"positions has shape \(2, 3\)"),
        (lambda: rotary(normal(3, 4), base=1.0), ValueError, "base is 1.0: expected a number greater than 1"),
        (lambda: rotary(normal(3, 4), base=math.nan), ValueError, "base is nan"),
        (lambda: rotary(normal(3, 4), [0, 1, 2]), TypeError, "positions is a list"),
        (lambda: alibi_slopes(0), ValueError, "num_heads is 0"),
        (lambda: alibi_slopes(2.0), TypeError, "num_heads is a float"),
        (lambda: alibi_bias(2, 0), ValueError, "num_queries is 0"),
        (lambda: alibi_bias(2, 3, 0), ValueError, "num_keys is 0"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- the experiment that closes the notebook ---


def beside(x, encoding):
    return torch.cat((x, encoding.T.expand(len(x), -1, -1)), dim=1)


@pytest.mark.parametrize("version", experiment.VERSIONS)
def test_targets_of_the_experiment_are_means(version):
    x, target = experiment.make_data(version, 5, torch.Generator().manual_seed(0))
    height, kind = experiment.MEAN + experiment.STD * x[:, 0], x[:, 1]
    for heights, kinds, targets in zip(height, kind, target, strict=True):
        for t in range(experiment.LENGTH):
            alike = kinds == kinds[t] if version == "A" else torch.arange(experiment.LENGTH) // 2 == t // 2
            assert_close(targets[t], heights[alike].mean(), atol=1e-4, rtol=0)
        assert kinds.sum() == 0


def test_the_experiment_is_decided_by_its_seed():
    code = binary_encoding(experiment.LENGTH)
    first, again, other = (experiment.train("B", code, beside, steps=20, seed=s) for s in (0, 0, 1))
    assert torch.equal(first.loss, again.loss)
    assert first.error == again.error
    assert not torch.equal(first.loss, other.loss)


def test_a_network_that_is_told_nothing_gives_all_positions_the_same():
    told, untold = (
        experiment.train("B", code, beside, steps=20)
        for code in (binary_encoding(experiment.LENGTH), torch.zeros(experiment.LENGTH, 0))
    )
    assert_close(untold.alike, untold.alike[:1, :1].expand_as(untold.alike), atol=1e-9, rtol=0)
    assert len(told.alike[0].unique()) == experiment.LENGTH


@pytest.mark.slow
def test_positions_decide_version_b():
    runs = experiment.two_by_three(
        {"none": torch.zeros(experiment.LENGTH, 0), "binary": binary_encoding(experiment.LENGTH)},
        beside,
        steps=200,
    )
    height = experiment.fresh_heights()
    others = (height.sum(1, keepdim=True) - height) / (experiment.LENGTH - 1)
    blind = ((height[:, experiment.PARTNER] - others) ** 2).mean().item() / 4
    assert runs["B"]["none"].error == pytest.approx(blind, rel=0.02)
    assert max(runs["A"]["none"].error, runs["A"]["binary"].error, runs["B"]["binary"].error) < 0.2
    assert f"{runs['B']['none'].error:.2f}" in repr(experiment.table(runs))
    figure = experiment.figure(runs, blind)
    assert "version B, none" in figure.alt
    assert f"{blind:.2f}" in figure.caption


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: experiment.train("C", torch.zeros(16, 0), beside), "version is 'C'"),
        (lambda: experiment.train("A", torch.zeros(15, 0), beside), r"encoding has shape \(15, 0\)"),
        (lambda: experiment.train("A", torch.zeros(16, 0), beside, steps=30), "steps is 30"),
        (
            lambda: experiment.train("A", torch.ones(16, 2), lambda x, encoding: x, steps=20),
            r"concatenate gives a tensor of shape \(32, 2, 16\): expected .*\(32, 4, 16\)",
        ),
        (lambda: experiment.make_data("A", 0, torch.Generator()), "num_sequences is 0"),
    ],
)
def test_bad_input_to_the_experiment_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
