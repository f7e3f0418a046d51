"""Attention in chunks, and with a cache, against the explicit operator and PyTorch's kernel."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import attncourse
from attncourse import (
    KeyValueCache,
    MultiHeadAttention,
    attention,
    causal_mask,
    chunked_attention,
    influence,
    local_mask,
    merge_heads,
    merge_partials,
    padding_mask,
    partial_attention,
)
from attncourse.experiments import scaling as experiment

INF = math.inf
sizes = st.integers(1, 9)
seeds = st.integers(0, 2**32 - 1)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def inputs_of(batch, num_queries, num_keys, seed=0, key_dim=4, value_dim=3, dtype=torch.float64):
    shapes = ((num_queries, key_dim), (num_keys, key_dim), (num_keys, value_dim))
    return tuple(
        normal(*batch, *shape, seed=seed + i, dtype=dtype).requires_grad_() for i, shape in enumerate(shapes)
    )


def assert_same(ours, theirs, inputs, **tolerance):
    """The two functions agree in value and in every gradient."""
    output, expected = ours(*inputs), theirs(*inputs)
    assert output.dtype == inputs[0].dtype
    assert_close(output, expected, **tolerance)
    upstream = normal(*output.shape, seed=9, dtype=output.dtype)
    for found, wanted in zip(
        torch.autograd.grad(output, inputs, upstream),
        torch.autograd.grad(expected, inputs, upstream),
        strict=True,
    ):
        assert_close(found, wanted, **tolerance)


def test_the_public_interface_is_the_units():
    from attncourse import scaling

    assert set(scaling.__all__) <= set(attncourse.__all__)
    for name in scaling.__all__:
        assert getattr(attncourse, name) is getattr(scaling, name)


# --- chunks: the same as the explicit operator ---


@settings(max_examples=60)
@given(
    st.sampled_from([(), (2,), (2, 3)]),
    sizes,
    sizes,
    st.integers(1, 11),
    st.booleans(),
    st.sampled_from(["none", "one", "full", "rows of keys", "nothing"]),
    seeds,
)
def test_chunks_of_any_size_with_any_mask_give_what_the_operator_gives(
    batch, num_queries, num_keys, chunk_size, causal, kind, seed
):
    inputs = inputs_of(batch, num_queries, num_keys, seed=seed % 1000)
    shape = {
        "one": (num_queries, num_keys),
        "full": (*batch, num_queries, num_keys),
        "rows of keys": (num_keys,),
    }.get(kind, ())
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < (
        0 if kind == "nothing" else 0.6
    )
    mask = None if kind == "none" else mask
    both = causal_mask(num_queries, num_keys) if causal else torch.ones(num_queries, num_keys).bool()
    both = both if mask is None else both & mask
    assert_same(
        lambda *x: chunked_attention(*x, mask, chunk_size=chunk_size, causal=causal),
        lambda *x: attention(*x, both),
        inputs,
    )


@pytest.mark.parametrize("chunk_size", [3, 32, 512])
def test_chunks_agree_with_pytorchs_kernel(chunk_size):
    inputs = inputs_of((1, 2), 70, 70, value_dim=4, dtype=torch.float32)
    tolerance = {"rtol": 1e-4, "atol": 1e-5}
    for causal in (False, True):
        assert_same(
            lambda *x, causal=causal: chunked_attention(*x, chunk_size=chunk_size, causal=causal),
            lambda *x, causal=causal: F.scaled_dot_product_attention(*x, is_causal=causal),
            inputs,
            **tolerance,
        )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_precision_and_empty_rows(dtype):
    inputs = inputs_of((2,), 6, 7, dtype=dtype)
    mask = causal_mask(6, 7) & local_mask(6, 7, radius=2)
    mask[4] = False
    output = chunked_attention(*inputs, mask, chunk_size=2)
    assert output.dtype == dtype
    assert (output[:, 4] == 0).all()
    assert (output[:, [0, 1, 2, 3, 5]] != 0).all()
    gradients = torch.autograd.grad(output.square().sum(), inputs)
    assert [gradient.dtype for gradient in gradients] == [dtype] * 3
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert (gradients[0][:, 4] == 0).all()
    # Sums are kept in 32 bits: nothing but the last rounding is lost.
    exact = attention(*(x.double() for x in inputs), mask)
    assert_close(output.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)


def test_scores_that_are_extreme_stay_finite():
    """Rising, falling, and a forbidden one that towers above: the largest score moves between chunks."""
    key = torch.tensor([[-2e4], [0.0], [3e4], [1e4], [5e4], [-5e4]], dtype=torch.float64)
    query = torch.tensor([[1.0], [-1.0], [1e-4]], dtype=torch.float64)
    value = normal(6, 2)
    mask = torch.tensor([True, True, True, True, False, True])
    for chunk_size in (1, 2, 3, 4, 6):
        assert_close(
            chunked_attention(query, key, value, mask, chunk_size=chunk_size, scale=1.0),
            attention(query, key, value, mask, scale=1.0),
        )


@pytest.mark.parametrize(("num_queries", "num_keys"), [(5, 5), (3, 7), (7, 3)])
def test_gradients_are_those_of_finite_differences(num_queries, num_keys):
    inputs = inputs_of((), num_queries, num_keys)
    mask = normal(num_queries, num_keys, seed=4) > -0.5
    assert torch.autograd.gradcheck(
        lambda *x: chunked_attention(*x, mask, chunk_size=2, causal=True, scale=0.7), inputs
    )


def test_second_derivatives_are_refused_not_wrong():
    inputs = inputs_of((), 3, 3)
    (gradient,) = torch.autograd.grad(chunked_attention(*inputs).square().sum(), inputs[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_influence_is_the_mask_between_chunks_too():
    x, mask = normal(7, 3), local_mask(7, radius=1) & causal_mask(7)
    assert torch.equal(influence(lambda x: chunked_attention(x, x, x, mask, chunk_size=2), x), mask)
    found = influence(lambda x: chunked_attention(x, x, x, chunk_size=3, causal=True), x)
    assert torch.equal(found, causal_mask(7))


def test_inputs_may_be_views_and_stay_as_they_were():
    x = normal(3, 2, 9, 4)
    query, key, value = x.transpose(0, 1)[0].mT.mT, x[:, 0].flip(-1), x[:1, 1].expand(3, 9, 4)
    copies = [t.clone() for t in (query, key, value)]
    mask = padding_mask([9, 4, 0], 9)
    assert_close(chunked_attention(query, key, value, mask, chunk_size=4), attention(query, key, value, mask))
    for view, copy in zip((query, key, value), copies, strict=True):
        assert torch.equal(view, copy)


# --- memory ---


class Largest(TorchDispatchMode):
    """Watches every operation, and keeps the size of the largest tensor that one has made."""

    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        made = [x.untyped_storage().nbytes() for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        self.numel = max([self.numel, *made])
        return result


@pytest.mark.parametrize("how", ["plain", "causal", "padding"])
def test_no_tensor_is_larger_than_the_inputs_or_a_block(how):
    num, dim, chunk_size = 1024, 16, 64
    inputs = inputs_of((), num, num, key_dim=dim, value_dim=dim, dtype=torch.float32)
    mask = padding_mask([700], num)[0] if how == "padding" else None
    with Largest() as largest:
        output = chunked_attention(*inputs, mask, chunk_size=chunk_size, causal=how == "causal")
        output.sum().backward()
    assert largest.numel <= 4 * num * dim
    with Largest() as largest:
        attention(*inputs)
    assert largest.numel >= 4 * num * num


@pytest.mark.slow
def test_sixty_five_thousand_positions_fit_in_a_gibibyte():
    """The whole process, PyTorch included. A few of the queries suffice: each block is like the others."""
    # VmHWM, as the maximum of getrusage also counts the process that started this one.
    program = r"""
import re, torch
torch.set_num_threads(1)
from attncourse import chunked_attention
query, key, value = (torch.randn(1, 65536, 64) for _ in range(3))
chunked_attention(query[:, -600:], key, value, causal=True)
most = int(re.search(r"VmHWM:\s*(\d+) kB", open("/proc/self/status").read())[1])
assert most < 2**20, f"{most} KiB"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- partial results ---


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), seeds)
def test_partial_results_merge_in_any_order_to_the_whole(lengths, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = 30 * torch.randn(3, sum(lengths), generator=generator, dtype=torch.float64)
    scores[torch.rand(scores.shape, generator=generator) < 0.4] = -INF
    value = torch.randn(sum(lengths), 2, generator=generator, dtype=torch.float64)
    parts = [
        partial_attention(s.clone(), v)
        for s, v in zip(scores.split(lengths, 1), value.split(lengths), strict=True)
    ]
    while len(parts) > 1:
        first, second = (parts.pop(int(torch.randint(len(parts), (), generator=generator))) for _ in "ab")
        parts.append(merge_partials(first, second))
    largest, total, weighted = parts[0]
    assert_close(largest[:, 0], scores.amax(-1))
    empty = (scores == -INF).all(-1, keepdim=True)
    assert_close(total == 0, empty)
    expected = attncourse.softargmax(scores) @ value
    assert_close(weighted / total.masked_fill(empty, 1), expected)


# --- the cache ---


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.sampled_from([(), (2,), (2, 3)]), seeds)
def test_steps_of_any_size_give_the_full_pass(steps, batch, seed):
    num = sum(steps)
    query, key, value = (x.detach() for x in inputs_of(batch, num, num, seed=seed % 1000))
    whole = attention(query, key, value, causal_mask(num))
    cache, start = KeyValueCache(), 0
    for step in steps:
        new = slice(start, start + step)
        cache.append(key[..., new, :], value[..., new, :])
        assert_close(cache.attend(query[..., new, :]), whole[..., new, :])
        start += step
    assert len(cache) == num
    assert torch.equal(cache.key, key)
    assert torch.equal(cache.value, value)


def test_a_layer_decodes_with_a_cache_as_in_one_pass():
    torch.manual_seed(0)
    layer, x = MultiHeadAttention(8, 2).double(), normal(3, 5, 8)
    cache = KeyValueCache()
    with torch.no_grad():
        for t in range(5):
            new = x[:, None, t : t + 1]  # (batch, 1, 1, model_dim)
            cache.append(new @ layer.W_K, new @ layer.W_V)
            output = merge_heads(cache.attend(new @ layer.W_Q)) @ layer.W_O
            assert_close(output[:, 0], layer(x, mask=causal_mask(5))[:, t])


def test_the_cache_grows_seldom_and_copies_what_it_is_given():
    cache, key = KeyValueCache(), torch.zeros(1, 2)
    places = set()
    for number in range(200):
        key.fill_(number)
        cache.append(key, key)
        places.add(cache.key.data_ptr())
    assert cache.key[:, 0].tolist() == list(range(200))
    assert len(places) <= 9


# --- bad input ---

Q, K, V = normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 6)


def a_cache():
    cache = KeyValueCache()
    cache.append(K, V)
    return cache


VALUE_ERRORS = {
    "key_dim": (lambda: chunked_attention(Q, K[..., :3], V), "key", "(2, 5, 3)", "4"),
    "values": (lambda: chunked_attention(Q, K, V[:, :4]), "value", "(2, 4, 6)", "5 rows"),
    "dtype": (lambda: chunked_attention(Q, K, V.float()), "value", "float32", "float64"),
    "mask of numbers": (
        lambda: chunked_attention(Q, K, V, torch.zeros(3, 5)), "mask", "(3, 5)", "float32", "torch.bool"
    ),
    "mask too large": (
        lambda: chunked_attention(Q, K, V, torch.ones(3, 6).bool()), "mask", "(3, 6)", "(2, 3, 5)"
    ),
    "chunk_size": (lambda: chunked_attention(Q, K, V, chunk_size=0), "chunk_size", "0", "at least 1"),
    "cache: values": (lambda: KeyValueCache().append(K, V[:, :1]), "value", "(2, 1, 6)", "5 rows"),
    "cache: batch": (lambda: a_cache().append(K[:1], V[:1]), "key", "(1, 5, 4)", "(2, 5, 4)"),
    "cache: features": (
        lambda: a_cache().append(K, V[..., :2]), "value", "(2, 5, 2)", "expected (2, 5, 6)", "those before"
    ),
    "cache: dtype": (lambda: a_cache().append(K.float(), V.float()), "key", "float32", "float64"),
    "cache: gradients": (
        lambda: KeyValueCache().append(K.clone().requires_grad_(), V), "key or value", "no_grad"
    ),
    "cache: too many queries": (
        lambda: a_cache().attend(normal(2, 6, 4)), "query", "(2, 6, 4)", "at most 5 rows"
    ),
    "cache: empty": (lambda: KeyValueCache().attend(Q), "query", "at most 0 rows"),
    "cache: no keys": (lambda: KeyValueCache().key, "empty", "append"),
}  # fmt: skip


@pytest.mark.parametrize("name", VALUE_ERRORS)
def test_bad_input_is_refused_by_name(name):
    call, *words = VALUE_ERRORS[name]
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call()
    for word in words:
        assert word in str(caught.value)


def test_things_that_are_no_tensors_or_numbers_are_refused():
    for call in (
        lambda: chunked_attention(Q, K, V.tolist()),
        lambda: chunked_attention(Q, K, V, chunk_size=2.0),
        lambda: KeyValueCache().append([1.0], V),
    ):
        with pytest.raises(TypeError, match="expected"):
            call()


# --- the committed measurements ---


def test_the_committed_measurements_are_what_the_chapter_says():
    rows = json.loads((Path(__file__).parents[1] / "benchmarks/attention.json").read_text())["operators"]
    measured = {(row["operator"], row["pass"], row["positions"]): row for row in rows}
    for which in ("forward", "backward"):
        for positions in (4096, 8192, 16_384, 32_768, 65_536):
            chunked, fused = (measured[name, which, positions] for name in ("chunked", "fused"))
            assert chunked["seconds"] < 2 * fused["seconds"]
            if explicit := measured.get(("explicit", which, positions)):
                softmax = measured["torch.softmax", which, positions]
                assert chunked["seconds"] < softmax["seconds"] < explicit["seconds"]
                assert chunked["bytes"] < softmax["bytes"] < explicit["bytes"]
        assert chunked["bytes"] < 2**30


# --- the experiment that closes the notebook ---


def step_of_decoding(query, key, value, key_cache, value_cache):
    cache = KeyValueCache()
    cache.append(key_cache, value_cache)
    cache.append(key, value)
    return cache.attend(query), cache.key.clone(), cache.value.clone()


def test_the_model_writes_the_same_with_a_cache():
    without, cached = experiment.write(num_letters=30), experiment.write(step_of_decoding, num_letters=30)
    assert without.text == cached.text
    assert without.text.startswith(experiment.PROMPT)
    assert len(without.text) == len(experiment.PROMPT) + 30
    assert without.scores == sum(n**2 for n in range(10, 40))
    assert cached.scores == 10**2 + sum(range(11, 40))
    assert cached.cache_bytes == 39 * 2 * 2 * 64 * 4
    assert without.cache_bytes == 0
    writings = {"without": without, "cached": cached}
    assert f"{cached.scores:,}" in repr(experiment.table(writings))
    assert "cached: from" in experiment.figure(writings).alt


def test_a_record_of_a_right_step_agrees_with_the_whole_pass():
    whole, steps, value, num_prompt = experiment.record(step_of_decoding)
    assert_close(steps, whole, atol=1e-5, rtol=0)
    assert_close(whole[0], value[0], atol=1e-6, rtol=0)
    assert num_prompt == len(experiment.PROMPT)


@pytest.mark.parametrize(
    ("name", "wrong_prompt", "wrong_later"),
    [("first", False, True), ("second", True, False), ("third", False, True), ("fourth", False, True)],
)
def test_the_slips_show_where_they_should(name, wrong_prompt, wrong_later):
    whole, steps, _, num_prompt = experiment.record(experiment.SLIPS[name])
    wrong = (whole - steps).abs().amax(-1) > 1e-3
    assert wrong[:num_prompt].any() == wrong_prompt
    assert wrong[num_prompt:].any() == wrong_later


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: experiment.write(num_letters=0), "num_letters is 0"),
        (lambda: experiment.write(prompt=""), "prompt is empty"),
        (lambda: experiment.write(prompt="Ω"), "letters has 'Ω'"),
        (lambda: experiment.record(step_of_decoding, num_prompt=0), "num_prompt is 0: expected 1 to"),
        (
            lambda: experiment.write(lambda q, k, v, keys, values: (q, k, v), num_letters=2),
            r"decoding_step gives the shapes .*expected .*\(4, 11, 16\)",
        ),
    ],
)
def test_bad_input_to_the_writing_is_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()
