"""Today's models against PyTorch's own layers, loops in plain Python, and what is published about others."""

import cmath
import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import attncourse
from attncourse import (
    CausalSelfAttention,
    DecoderBlock,
    KeyValueCache,
    LanguageModel,
    ModelConfig,
    MultiHeadAttention,
    RMSNorm,
    SwiGLU,
    cache_bytes,
    causal_mask,
    checks,
    generate,
    induction_score,
    influence,
    next_token_probabilities,
    novels,
    parameter_count,
    rotary,
)
from attncourse.checks.check import Check
from attncourse.experiments import your_model as experiment

seeds = st.integers(0, 2**32 - 1)
CONFIG = ModelConfig(11, 8, 4, 2, 5, num_key_value_heads=2, max_length=12)
OLD = {"norm": "layer", "mlp": "relu", "positions": "sinusoidal"}


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def drawn(module, seed=0, dtype=torch.float64):
    """The module with random weights, also where it starts with ones and zeros."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(std=0.5, generator=generator)
    return module


def small(seed=0, dtype=torch.float64, **changes):
    return drawn(LanguageModel(dataclasses.replace(CONFIG, **changes)), seed, dtype)


def some_tokens(*shape, seed=0):
    return torch.randint(CONFIG.vocabulary_size, shape, generator=torch.Generator().manual_seed(seed))


def with_gradients(function, inputs):
    """What a function gives, and its gradients with random factors on the outputs."""
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    output = function(*inputs)
    return output, torch.autograd.grad((output * normal(*output.shape, seed=99)).sum(), inputs)


def test_the_public_interface_is_the_units():
    from attncourse import your_model

    assert set(your_model.__all__) <= set(attncourse.__all__)
    for name in your_model.__all__:
        assert getattr(attncourse, name) is getattr(your_model, name)


# --- the parts of a block ---


@settings(max_examples=20)
@given(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 6), seeds)
def test_rms_norm_is_pytorchs_in_value_and_gradient(batch, dim, seed):
    ours = drawn(RMSNorm(dim), seed)
    theirs = nn.RMSNorm(dim, eps=1e-6).double()
    x = normal(*batch, dim, seed=seed)

    def of(layer, x, weight):
        return torch.func.functional_call(layer, {"weight": weight}, (x,))

    inputs = (x, ours.weight)
    assert_close(
        with_gradients(lambda *a: of(ours, *a), inputs), with_gradients(lambda *a: of(theirs, *a), inputs)
    )


def test_a_row_of_zeros_stays_zero_and_has_a_gradient():
    x = torch.zeros(2, 3, requires_grad=True)
    y = RMSNorm(3)(x)
    assert torch.equal(y, torch.zeros(2, 3))
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


@settings(max_examples=20)
@given(st.integers(1, 4), st.integers(1, 5), seeds)
def test_swiglu_is_its_equation(model_dim, hidden_dim, seed):
    layer = drawn(SwiGLU(model_dim, hidden_dim), seed)
    x = normal(model_dim, seed=seed)
    gate, up, down = (w.tolist() for w in (layer.W_gate, layer.W_up, layer.W_down))
    hidden = []
    for j in range(hidden_dim):
        g, u = (sum(x[i].item() * w[i][j] for i in range(model_dim)) for w in (gate, up))
        hidden.append(g / (1 + math.exp(-g)) * u)
    expected = [sum(hidden[j] * down[j][i] for j in range(hidden_dim)) for i in range(model_dim)]
    assert layer(x).tolist() == pytest.approx(expected)


def by_pytorch(layer, x, W_Q, W_K, W_V, W_O, mask=None):
    """The attention of a block with PyTorch's kernel, which shares keys and values by itself."""

    def turned(heads):
        # Each pair as a complex number.
        pairs = torch.view_as_complex(heads.unflatten(-1, (-1, 2)).contiguous())
        number = pairs.shape[-1]
        speeds = layer.rotary_base ** -(torch.arange(number) / number).double()
        places = torch.arange(heads.shape[-2]).double() / layer.rotary_scale
        angles = places[:, None] * speeds
        return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten(-2)

    query, key, value = (torch.einsum("bnd,hde->bhne", x, weight) for weight in (W_Q, W_K, W_V))
    if layer.rotary_base is not None:
        query, key = turned(query), turned(key)
    mask = torch.ones(x.shape[1], x.shape[1]).tril().bool() if mask is None else mask
    heads = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, enable_gqa=True)
    return torch.einsum("bhne,hed->bnd", heads, W_O.unflatten(0, (layer.num_heads, -1)))


@pytest.mark.parametrize("window", [None, 1, 2, 9])
@pytest.mark.parametrize("num_key_value_heads", [1, 2, 4, None])
@pytest.mark.parametrize("rotary_base", [None, 10_000.0, 30.0])
def test_attention_is_pytorchs_in_value_and_gradient(num_key_value_heads, window, rotary_base):
    layer = drawn(
        CausalSelfAttention(
            16, 4, num_key_value_heads, rotary_base=rotary_base, rotary_scale=1.5, window=window
        )
    )
    names = ("W_Q", "W_K", "W_V", "W_O")
    inputs = (normal(2, 5, 16), *(getattr(layer, name) for name in names))
    far = torch.arange(5)[:, None] - torch.arange(5)
    mask = (far >= 0) & (far < (window or 5))

    def ours(x, *weights):
        return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (x,))

    def shown(x, *weights):
        weights = dict(zip(names, weights, strict=True))
        return torch.func.functional_call(layer, weights, (x,), {"return_weights": True})[0]

    expected = with_gradients(lambda *a: by_pytorch(layer, *a, mask), inputs)
    assert_close(with_gradients(ours, inputs), expected)
    assert_close(with_gradients(shown, inputs), expected)


@settings(max_examples=20)
@given(st.integers(1, 4), st.sampled_from([1, 2, 3, 6]), seeds)
def test_without_turning_it_is_multi_head_attention(positions, shared, seed):
    layer = drawn(CausalSelfAttention(12, 6, shared, rotary_base=None), seed)
    other = MultiHeadAttention(12, 6, num_key_value_heads=shared).double()
    other.load_state_dict(layer.state_dict())
    x = normal(2, positions, 12, seed=seed)
    head_mask = normal(6, seed=seed)
    for options in ({}, {"head_mask": head_mask}, {"return_weights": True}):
        assert_close(layer(x, **options), other(x, mask=causal_mask(positions), **options))


def test_one_query_after_the_other_in_plain_python():
    """Turned pairs, shared keys, a window and the softargmax, with Python's own numbers."""
    window, base, head_dim = 3, 50.0, 4
    layer = drawn(CausalSelfAttention(16, 4, 2, rotary_base=base, window=window))
    x = normal(6, 16)

    def turned(row, place):
        row = row.tolist()
        for pair in range(head_dim // 2):
            number = complex(*row[2 * pair : 2 * pair + 2])
            number *= cmath.exp(1j * place * base ** (-2 * pair / head_dim))
            row[2 * pair : 2 * pair + 2] = number.real, number.imag
        return row

    expected = torch.zeros(6, 16, dtype=torch.float64)
    for place, head in itertools.product(range(6), range(4)):
        query = turned(x[place] @ layer.W_Q[head], place)
        seen = range(max(0, place - window + 1), place + 1)
        keys = [turned(x[other] @ layer.W_K[head // 2], other) for other in seen]
        scores = [math.exp(sum(map(float.__mul__, query, key)) / math.sqrt(head_dim)) for key in keys]
        values = [x[other] @ layer.W_V[head // 2] for other in seen]
        found = sum(score * value for score, value in zip(scores, values, strict=True)) / sum(scores)
        expected[place] += found @ layer.W_O[head * head_dim : (head + 1) * head_dim]
    assert_close(layer(x), expected)


def test_only_distances_count():
    """Turned by any number more, all positions see the same; queries turned alone would see another text."""
    layer = drawn(CausalSelfAttention(8, 2))
    heads = normal(2, 5, 4)
    for shift in (0, 50):
        places = torch.arange(5) + shift
        scores = rotary(heads, places) @ rotary(heads, places).mT
        assert_close(scores, rotary(heads) @ rotary(heads).mT)
    x = normal(5, 8)
    assert not torch.allclose(layer(x)[1:], layer(x[1:]))  # it sees one position less
    _, weights = layer(x, return_weights=True)
    assert_close(
        weights[..., 1:, 1:] / weights[..., 1:, 1:].sum(-1, keepdim=True),
        layer(x[1:], return_weights=True)[1],
    )


# --- the model ---


def by_hand(model, tokens):
    """The logits by the equations of the block, with PyTorch's functions."""
    config, x = model.config, model.table[tokens]

    def norm(layer, x):
        if config.norm == "rms":
            return F.rms_norm(x, x.shape[-1:], layer.weight, 1e-6)
        return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, 1e-5)

    if config.positions == "sinusoidal":
        for place, feature in itertools.product(range(x.shape[-2]), range(x.shape[-1])):
            angle = place / 10_000 ** (feature // 2 * 2 / x.shape[-1])
            x[..., place, feature] += 0.02 * (math.cos if feature % 2 else math.sin)(angle)
    for block in model.blocks:
        attention = block.attention
        weights = (attention.W_Q, attention.W_K, attention.W_V, attention.W_O)
        x = x + by_pytorch(attention, norm(block.attention_norm, x), *weights)
        y = norm(block.mlp_norm, x)
        if config.mlp == "swiglu":
            x = x + (F.silu(y @ block.mlp.W_gate) * (y @ block.mlp.W_up)) @ block.mlp.W_down
        else:
            first, last = block.mlp[0], block.mlp[2]
            x = x + F.linear(F.linear(y, first.weight, first.bias).relu(), last.weight, last.bias)
    return F.linear(norm(model.norm, x), model.table)


@pytest.mark.parametrize(
    "changes", [{}, OLD, {"norm": "layer"}, {"mlp": "relu"}, {"positions": "sinusoidal"}]
)
def test_the_model_is_its_equations(changes):
    model, tokens = small(**changes), some_tokens(3, 7)
    with torch.no_grad():
        assert_close(model(tokens), by_hand(model, tokens), atol=1e-7, rtol=1e-6)


@pytest.mark.parametrize("changes", [{}, OLD, {"window": 3}], ids=["today", "2017", "window"])
@settings(max_examples=15)
@given(
    pieces=st.lists(st.integers(1, 5), min_size=1, max_size=5).filter(lambda sizes: sum(sizes) <= 12),
    batch=st.lists(st.integers(1, 2), max_size=2),
    seed=seeds,
)
def test_any_pieces_with_a_cache_give_the_logits_of_one_pass(changes, pieces, batch, seed):
    model, tokens = small(**changes), some_tokens(*batch, sum(pieces), seed=seed)
    caches = model.new_caches()
    with torch.no_grad():
        found = [model(piece, caches) for piece in tokens.split(pieces, -1)]
        assert_close(torch.cat(found, -2), model(tokens))
    assert [len(cache) for cache in caches] == [sum(pieces)] * 2


def test_weights_and_silent_heads_with_a_cache_are_those_without():
    model, tokens = small(window=3), some_tokens(8)
    head_mask = torch.tensor([[1, 0, 1, 1], [1, 1, 0, 1]])
    options = {"head_mask": head_mask, "return_weights": True}
    with torch.no_grad():
        logits, weights = model(tokens, **options)
        assert_close(logits, model(tokens, head_mask=head_mask.bool()))
        assert not torch.allclose(logits, model(tokens))
        caches = model.new_caches()
        model(tokens[:5], caches)
        caches = model.new_caches()
        model(tokens[:5], caches, **options)
        later, seen = model(tokens[5:], caches, **options)
    assert_close(later, logits[5:])
    assert [tuple(of_block.shape) for of_block in seen] == [(4, 3, 8)] * 2
    assert_close(seen, [of_block[:, 5:] for of_block in weights])


def test_to_silence_a_head_is_to_take_its_rows_away():
    model, tokens = small(), some_tokens(6)
    head_mask = torch.ones(2, 4)
    head_mask[1, 2] = 0
    with torch.no_grad():
        found = model(tokens, head_mask=head_mask)
        model.blocks[1].attention.W_O[4:6] = 0
        assert_close(found, model(tokens))


@pytest.mark.parametrize("window", [None, 1, 2, 3])
def test_a_window_is_seen_through_all_blocks(window):
    blocks = 3
    config = dataclasses.replace(CONFIG, window=window, num_blocks=blocks)
    model = drawn(LanguageModel(config))

    def through(x):
        for block in model.blocks:
            x = block(x)
        return x

    seen = influence(through, normal(10, 8))
    far = torch.arange(10)[:, None] - torch.arange(10)
    reach = 10 if window is None else blocks * (window - 1) + 1
    assert torch.equal(seen, (far >= 0) & (far < reach))


def test_a_block_adds_what_it_finds_and_drops_in_training_only():
    block = DecoderBlock(CONFIG, dropout_p=0.5)
    x = normal(3, 8, dtype=torch.float32)
    torch.manual_seed(0)
    assert not torch.equal(block(x), block(x))
    block.eval()
    assert torch.equal(block(x), block(x))
    with torch.no_grad():
        block.attention.W_O.zero_()
        block.mlp.W_down.zero_()
    assert torch.equal(block(x), x)


def test_a_new_model_gives_every_token_about_the_same_chance():
    torch.manual_seed(0)
    config = ModelConfig(64, 32, 4, 3, 64)
    logits = LanguageModel(config)(torch.randint(64, (8, 32)))
    loss = F.cross_entropy(logits.flatten(0, 1), torch.randint(64, (256,)))
    assert loss.item() == pytest.approx(math.log(64), abs=0.05)


def test_the_table_is_used_twice():
    model = small()
    model.table.requires_grad_()
    tokens = torch.tensor([3, 4])
    (gradient,) = torch.autograd.grad(model(tokens)[-1, 7], model.table)
    used = gradient.abs().sum(-1) > 0
    assert used.tolist() == [number in (3, 4, 7) for number in range(11)]


# --- longer texts ---


def test_positions_divided_by_two_are_those_of_half_the_text():
    """At positions 2t, the stretched layer turns as the original does at t."""
    one, two = (drawn(CausalSelfAttention(8, 2, rotary_scale=scale)) for scale in (1.0, 2.0))
    x = normal(5, 8)
    twice = x.repeat_interleave(2, 0)
    _, weights = one(x, return_weights=True)
    _, stretched = two(twice, return_weights=True)
    # Between the even positions stand the odd ones, which take weight but change no ratio.
    even = stretched[:, ::2, ::2]
    assert_close(even / even.sum(-1, keepdim=True), weights)


def angles(config):
    """By which angle each pair turns from one position to the next."""
    pairs = torch.zeros(2, config.head_dim, dtype=torch.float64)
    pairs[:, ::2] = 1
    places = torch.tensor([0, 1 / config.rotary_scale], dtype=torch.float64)
    turned = rotary(pairs, places, base=config.rotary_base)[1]
    return torch.atan2(turned[1::2], turned[::2])


@pytest.mark.parametrize("factor", [1, 2, 3.5])
def test_two_ways_to_stretch_turn_the_slowest_pair_alike_and_the_fastest_not(factor):
    model = drawn(LanguageModel(ModelConfig(11, 32, 2, 1, 5, max_length=8)))
    old = angles(model.config)
    positions, base = (angles(model.stretched(factor, how).config) for how in ("positions", "base"))
    assert_close(positions, old / factor)
    assert_close(base[0], old[0])
    assert_close(base[-1], positions[-1])
    assert (base[1:-1] <= old[1:-1]).all()
    assert (base[1:-1] >= positions[1:-1]).all()


def test_a_stretched_model_reads_more_with_the_same_weights():
    model = LanguageModel(dataclasses.replace(CONFIG, model_dim=16), dropout_p=0.5).double().train()
    state = torch.random.get_rng_state()
    for method in ("none", "positions", "base"):
        longer = model.stretched(2, method)
        assert longer.config.max_length == 24
        assert longer.training
        assert longer.dropout.p == longer.blocks[0].dropout.p == 0.5
        for name, weight in model.named_parameters():
            assert longer.get_parameter(name).data_ptr() == weight.data_ptr()
        tokens = some_tokens(2, 24)
        assert longer.eval()(tokens).dtype == torch.float64
        changed = (longer(tokens[:, :12]) - model.eval()(tokens[:, :12])).abs().max() > 1e-6
        assert bool(changed) == (method != "none")
        model.train()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert_close(model.eval().stretched(1, "base")(tokens[:, :12]), model(tokens[:, :12]))
    assert all(weight.requires_grad for weight in longer.parameters())
    assert not any(
        weight.requires_grad for weight in model.requires_grad_(False).stretched(2, "base").parameters()
    )
    old = small(**OLD)
    assert old.stretched(3, "none")(some_tokens(36)).shape == (36, 11)


# --- which token comes next ---

logits_of = st.lists(st.floats(-20, 20) | st.just(-math.inf), min_size=1, max_size=8).filter(
    lambda scores: max(scores) > -math.inf
)


def nucleus(scores, temperature, top_p):
    """Probabilities by a loop, and the number of tokens to which a rounding could add one more."""
    largest = max(scores)
    powers = [math.exp((score - largest) / temperature) for score in scores]
    chances = [power / sum(powers) for power in powers]
    order = sorted(range(len(scores)), key=lambda token: -chances[token])
    together, kept, close = 0.0, [], False
    for token in order:
        close |= abs(together - top_p) < 1e-9
        if together >= top_p:
            break
        kept.append(token)
        together += chances[token]
    total = sum(chances[token] for token in kept)
    return [chances[token] / total if token in kept else 0.0 for token in range(len(scores))], close


@settings(max_examples=60)
@given(logits_of, st.floats(0.05, 5), st.floats(0.01, 1))
def test_probabilities_are_those_of_a_loop(scores, temperature, top_p):
    expected, close = nucleus(scores, temperature, top_p)
    found = next_token_probabilities(
        torch.tensor(scores, dtype=torch.float64), temperature=temperature, top_p=top_p
    )
    assert found.sum().item() == pytest.approx(1)
    if not close:
        assert found.tolist() == pytest.approx(expected, abs=1e-9)


@settings(max_examples=50)
@given(logits_of, st.floats(0.05, 5), st.floats(0.01, 1), seeds)
def test_what_is_drawn_is_in_the_nucleus(scores, temperature, top_p, seed):
    logits = torch.tensor(scores, dtype=torch.float64)
    plain = next_token_probabilities(logits, temperature=temperature)
    found = next_token_probabilities(logits, temperature=temperature, top_p=top_p)
    token = found.multinomial(1, generator=torch.Generator().manual_seed(seed))
    assert plain[plain > plain[token]].sum() < top_p + 1e-9
    assert plain[found > 0].sum() > top_p - 1e-9


def test_probabilities_of_rows_are_those_of_each():
    logits = normal(2, 3, 7)
    found = next_token_probabilities(logits, temperature=0.7, top_p=0.6)
    for row in itertools.product(range(2), range(3)):
        assert_close(found[row], next_token_probabilities(logits[row], temperature=0.7, top_p=0.6))
    assert_close(next_token_probabilities(logits), torch.softmax(logits, -1))


def test_a_low_temperature_takes_the_most_probable_and_a_high_one_any():
    logits = torch.tensor([[1.0, 3, 3, 2], [90, -90, 0, 0]])
    first = torch.tensor([[0.0, 1, 0, 0], [1, 0, 0, 0]])
    assert torch.equal(next_token_probabilities(logits, temperature=0), first)
    both = torch.tensor([[0, 0.5, 0.5, 0], [1, 0, 0, 0]])
    for temperature in (1e-3, 1e-30, 1e-40):
        assert_close(next_token_probabilities(logits, temperature=temperature), both)
    assert_close(next_token_probabilities(logits, temperature=math.inf), torch.full((2, 4), 0.25))
    # Of two that are equal at the border, the first.
    assert_close(next_token_probabilities(logits, top_p=0.2), first)
    whole = torch.tensor([1.0, 2, 3], dtype=torch.float16)
    assert next_token_probabilities(whole, temperature=0.5, top_p=0.9).dtype == torch.float16


# --- writing ---


@given(seeds, st.integers(1, 6), st.integers(0, 6), st.sampled_from([{}, OLD, {"window": 2}]))
@settings(max_examples=15)
def test_greedy_writing_takes_the_largest_score_with_and_without_cache(seed, start, more, changes):
    model, tokens = small(seed, **changes), some_tokens(start, seed=seed)
    expected = tokens
    with torch.no_grad():
        for _ in range(more):
            expected = torch.cat((expected, model(expected)[-1:].argmax(-1)))
    for use_cache in (True, False):
        assert torch.equal(generate(model, tokens, more, temperature=0, use_cache=use_cache), expected)


def test_the_same_seed_draws_the_same_text_with_and_without_cache():
    model = small()
    texts = []
    for use_cache in (True, False):
        torch.manual_seed(4)
        options = {"temperature": 1.3, "top_p": 0.9, "use_cache": use_cache}
        texts.append([generate(model, torch.tensor([1]), 10, **options).tolist() for _ in range(5)])
    assert texts[0] == texts[1]
    assert len({tuple(text) for text in texts[0]}) > 1


def test_writing_drops_nothing_and_leaves_the_model_in_its_mode():
    model = LanguageModel(CONFIG, dropout_p=0.9).train()
    tokens = some_tokens(3)
    found = [generate(model, tokens, 9, temperature=0, use_cache=use_cache) for use_cache in (True, False)]
    assert model.training
    assert torch.equal(*found)
    with pytest.raises(ValueError, match="top_p"):
        generate(model, tokens, 1, top_p=2.0)
    assert model.training
    assert not found[0].requires_grad


# --- counting ---

PUBLISHED = {
    "Llama 2 7B": (ModelConfig(32_000, 4096, 32, 32, 11_008), 6_738_415_616),
    "Llama 3 8B": (ModelConfig(128_256, 4096, 32, 32, 14_336, 8), 8_030_261_248),
    "Mistral 7B": (ModelConfig(32_000, 4096, 32, 32, 14_336, 8, window=4096), 7_241_732_096),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_sizes_of_known_models_are_the_published_ones(name):
    config, parameters = PUBLISHED[name]
    assert parameter_count(config, tied=False) == parameters
    assert parameter_count(config) == parameters - config.vocabulary_size * config.model_dim


@settings(max_examples=20)
@given(st.integers(1, 3), st.sampled_from([1, 2, 4]), st.integers(1, 3), st.integers(1, 9))
def test_parameters_are_counted_as_they_are(blocks, shared, pairs, hidden_dim):
    config = ModelConfig(7, 8 * pairs, 4, blocks, hidden_dim, shared)
    model = LanguageModel(config)
    assert parameter_count(config) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_bytes_are_those_of_a_filled_cache(shared, dtype):
    model = small(num_key_value_heads=shared, dtype=dtype)
    caches = model.new_caches()
    with torch.no_grad():
        for piece in some_tokens(9).split([4, 1, 1, 3]):
            model(piece, caches)
    held = sum(x.numel() * x.element_size() for cache in caches for x in (cache.key, cache.value))
    assert cache_bytes(model.config, 9, bytes_per_number=dtype.itemsize) == held
    assert cache_bytes(model.config, 9) == held * 2 // dtype.itemsize


def test_with_a_window_no_more_than_the_window_is_needed():
    config = dataclasses.replace(CONFIG, window=4)
    assert cache_bytes(config, 3) == cache_bytes(CONFIG, 3)
    assert cache_bytes(config, 1000) == cache_bytes(CONFIG, 4)
    assert cache_bytes(CONFIG, 0) == 0
    # What the window hides may as well be forgotten: the last 3 positions decide what the fourth finds.
    layer = drawn(CausalSelfAttention(8, 4, window=4, rotary_base=None))
    x = normal(10, 8)
    assert_close(layer(x)[-1], layer(x[-4:])[-1])
    llama = PUBLISHED["Llama 2 7B"][0]
    assert cache_bytes(llama, 4096) == 2 * 2**30  # half a mebibyte for each token


# --- induction ---


def test_a_head_that_looks_behind_the_last_copy_has_the_score_one():
    period, length = 3, 9
    perfect = torch.zeros(length, length)
    for place in range(length):
        perfect[place, place - period + 1 if place >= period else 0] = 1
    assert induction_score(perfect, period).item() == 1
    assert induction_score(torch.eye(length), period).item() == 0
    previous = torch.eye(length).roll(-1, 1)  # it looks at the position before
    assert induction_score(previous, period).item() == 0


@settings(max_examples=30)
@given(st.lists(st.integers(1, 3), max_size=2), st.integers(2, 4), st.integers(1, 5), seeds)
def test_the_score_is_the_mean_over_the_later_readings(batch, period, more, seed):
    length = period + more
    weights = torch.softmax(normal(*batch, length, length, seed=seed), -1)
    looked = [weights[..., place, place - period + 1] for place in range(period, length)]
    assert_close(induction_score(weights, period), torch.stack(looked).mean(0))


# --- bad input ---

MODEL = small(dtype=torch.float32)
LAYER = CausalSelfAttention(8, 4, 2)
X = torch.zeros(2, 3, 8)


def config(**changes):
    return dataclasses.replace(CONFIG, **changes)


def after(model, tokens, more):
    """A pass with caches that hold a text."""
    caches = model.new_caches()
    with torch.no_grad():
        model(tokens, caches)
        return model(more, caches)


def loaded(change):
    state = dict(MODEL.state_dict())
    change(state)
    LanguageModel(CONFIG).load_state_dict(state)


VALUE_ERRORS = {
    "token too large": (lambda: MODEL(torch.tensor([3, 11])), "tokens holds 11", "from 0 to 10"),
    "negative token": (lambda: generate(MODEL, torch.tensor([-1]), 2), "tokens holds -1", "11 tokens"),
    "tokens of floats": (lambda: MODEL(torch.zeros(3)), "float32", "torch.int64"),
    "tokens of bool": (lambda: MODEL(torch.ones(3) > 0), "torch.bool", "torch.int64"),
    "one token alone": (lambda: MODEL(torch.tensor(3)), "tokens has shape ()", "(..., positions)"),
    "no tokens": (lambda: MODEL(some_tokens(2, 0)), "tokens has shape (2, 0)", "at least one position"),
    "too long": (lambda: MODEL(some_tokens(13)), "tokens has shape (13,)", "at most 12", "stretched()"),
    "too long with a cache": (
        lambda: after(MODEL, some_tokens(8), some_tokens(5)), "(5,), after 8 in the caches", "at most 12"
    ),
    "cache of another batch": (
        lambda: after(MODEL, some_tokens(2, 4), some_tokens(3, 1)),
        "tokens has shape (3, 1)", "leading dimensions (2,)", "new cache",
    ),
    "cache of other heads": (lambda: LAYER(X, filled(4)), "key has shape (2, 2, 3, 2)", "(2, 4, 3, 2)"),
    "cache of another dtype": (lambda: LAYER(X, filled(2, torch.float64)), "float32", "torch.float64"),
    "caches missing": (lambda: MODEL(some_tokens(3), [KeyValueCache()]), "caches holds 1", "expected 2"),
    "no caches": (lambda: MODEL(some_tokens(3), []), "caches holds 0", "one for each block"),
    "head mask of one block": (
        lambda: MODEL(some_tokens(3), head_mask=torch.ones(4)), "head_mask has shape (4,)", "(2, 4)"
    ),
    "head mask of a layer": (lambda: LAYER(X, head_mask=torch.ones(3)), "head_mask has shape (3,)", "(4,)"),
    "features": (lambda: LAYER(torch.zeros(3, 7)), "x has shape (3, 7)", "last dimension to be 8"),
    "features of a norm": (lambda: RMSNorm(3)(torch.zeros(2)), "x has shape (2,)", "to be 3"),
    "integers in a norm": (lambda: RMSNorm(3)(torch.zeros(3).long()), "x", "int64", "floating point"),
    "features of SwiGLU": (lambda: SwiGLU(3, 4)(torch.zeros(2)), "x has shape (2,)", "to be 3"),
    "dtype of SwiGLU": (lambda: SwiGLU(3, 4)(normal(2, 3)), "float64", "expected torch.float32"),
    "dtype of a layer": (lambda: LAYER(X.double()), "float64", "torch.float32", "the layer's weights"),
    "no positions": (lambda: LAYER(X[:, :0]), "x has shape (2, 0, 8)", "at least one position"),
    "one position without a dimension": (lambda: LAYER(X[0, 0]), "x has shape (8,)", "positions"),
    "heads do not divide": (lambda: CausalSelfAttention(8, 3), "model_dim is 8", "num_heads is 3"),
    "heads do not divide, config": (lambda: config(num_heads=3), "model_dim is 8", "multiple"),
    "shared heads do not divide": (lambda: CausalSelfAttention(8, 4, 3), "num_key_value_heads is 3"),
    "shared heads, config": (lambda: config(num_key_value_heads=3), "num_key_value_heads is 3", "divides"),
    "no shared heads": (lambda: CausalSelfAttention(8, 4, 0), "num_key_value_heads is 0", "at least 1"),
    "no shared heads, config": (lambda: config(num_key_value_heads=0), "num_key_value_heads is 0"),
    "more shared heads": (lambda: config(num_key_value_heads=8), "num_key_value_heads is 8"),
    "no window": (lambda: CausalSelfAttention(8, 4, window=0), "window is 0", "at least 1"),
    "no window, config": (lambda: config(window=0), "window is 0", "at least 1"),
    "odd heads": (lambda: CausalSelfAttention(6, 2), "model_dim / num_heads is 3", "even number"),
    "odd heads, config": (lambda: config(model_dim=12), "model_dim / num_heads is 3", "in pairs"),
    "base of one": (lambda: config(rotary_base=1.0), "rotary_base is 1.0", "greater than 1"),
    "scale of nothing": (lambda: config(rotary_scale=0.0), "rotary_scale is 0.0", "greater than 0"),
    "no blocks": (lambda: config(num_blocks=0), "num_blocks is 0", "at least 1"),
    "no length": (lambda: config(max_length=0), "max_length is 0"),
    "unknown norm": (lambda: config(norm="batch"), "norm is 'batch'", "rms, layer"),
    "unknown mlp": (lambda: config(mlp="gelu"), "mlp is 'gelu'", "swiglu, relu"),
    "unknown positions": (lambda: config(positions="alibi"), "positions is 'alibi'", "rotary, sinusoidal"),
    "count of the block of 2017": (lambda: parameter_count(config(**OLD)), "norm='layer'", "block of today"),
    "negative text": (lambda: cache_bytes(CONFIG, -1), "num_tokens is -1"),
    "no bytes": (lambda: cache_bytes(CONFIG, 1, bytes_per_number=0), "bytes_per_number is 0"),
    "shrunk": (lambda: MODEL.stretched(0.5, "base"), "factor is 0.5", "at least 1"),
    "stretched without end": (lambda: MODEL.stretched(math.inf, "base"), "factor is inf"),
    "stretched somehow": (lambda: MODEL.stretched(2, "yarn"), "method is 'yarn'", "positions, base, none"),
    "stretched sinusoids": (lambda: small(**OLD).stretched(2, "base"), "method is 'base'", "no rotary"),
    "stretched with one pair": (lambda: MODEL.stretched(2, "base"), "method is 'base'", "a single pair"),
    "temperature": (lambda: next_token_probabilities(X, temperature=-1), "temperature is -1", "at least 0"),
    "temperature nan": (lambda: next_token_probabilities(X, temperature=math.nan), "temperature is nan"),
    "top_p of nothing": (lambda: next_token_probabilities(X, top_p=0), "top_p is 0", "more than 0"),
    "top_p of two": (lambda: next_token_probabilities(X, top_p=2), "top_p is 2", "at most 1"),
    "scores of no tokens": (lambda: next_token_probabilities(X[..., :0]), "(2, 3, 0)", "at least one"),
    "whole scores": (lambda: next_token_probabilities(X.long()), "logits", "floating point"),
    "a batch to write": (lambda: generate(MODEL, some_tokens(2, 3), 1), "(2, 3)", "(positions,)"),
    "nothing to begin with": (lambda: generate(MODEL, some_tokens(0), 1), "(0,)", "at least one"),
    "too long a text": (
        lambda: generate(MODEL, some_tokens(8), 5), "(8,) and num_tokens is 5", "at most 12", "max_length"
    ),
    "fewer than no tokens": (lambda: generate(MODEL, some_tokens(8), -1), "num_tokens is -1"),
    "weights not square": (lambda: induction_score(torch.zeros(3, 4), 2), "(3, 4)", "period is 2"),
    "period too long": (lambda: induction_score(torch.zeros(4, 4), 4), "(4, 4)", "more positions"),
    "period of one": (lambda: induction_score(torch.zeros(4, 4), 1), "period is 1", "at least 2"),
    "a weight of another shape": (
        lambda: loaded(lambda state: state.update({"blocks.1.attention.W_K": torch.zeros(4, 8, 2)})),
        "blocks.1.attention.W_K of shape (4, 8, 2)", "expected (2, 8, 2)", "ModelConfig",
    ),
    "a weight that is missing": (
        lambda: loaded(lambda state: state.pop("norm.weight")), "has no norm.weight", "the 20 weights"
    ),
    "a weight too many": (
        lambda: loaded(lambda state: state.update(W_out=torch.zeros(1))), "has W_out", "the 20 weights"
    ),
    "weights of another model": (
        lambda: small(num_blocks=1).load_state_dict(MODEL.state_dict()), "has blocks.1.", "ModelConfig"
    ),
}  # fmt: skip


def filled(heads, dtype=torch.float32):
    cache = KeyValueCache()
    cache.append(*torch.zeros(2, 2, heads, 3, 2, dtype=dtype))
    return cache


@pytest.mark.parametrize("case", VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_a_value_error_names_what_came_and_what_was_expected(case):
    call, *words = case
    with torch.no_grad(), pytest.raises(ValueError) as error:  # noqa: PT011
        call()
    for word in words:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: MODEL([1, 2]), "tokens is a list"),
        (lambda: generate(MODEL, [1, 2], 3), "tokens is a list"),
        (lambda: MODEL(some_tokens(3), head_mask=[1]), "head_mask is a list"),
        (lambda: LAYER(X, head_mask=[1]), "head_mask is a list"),
        (lambda: LAYER([1.0]), "x is a list"),
        (lambda: RMSNorm(2.0), "dim is a float"),
        (lambda: SwiGLU(2, None), "hidden_dim is a NoneType"),
        (lambda: CausalSelfAttention(8, 2, window=1.5), "window is a float"),
        (lambda: config(num_key_value_heads=2.0), "num_key_value_heads is a float"),
        (lambda: next_token_probabilities([1.0]), "logits is a list"),
        (lambda: induction_score([1.0], 2), "weights is a list"),
        (lambda: cache_bytes(CONFIG, 1.5), "num_tokens is a float"),
    ],
)
def test_a_type_error_names_what_came(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_call_that_is_refused_adds_nothing_to_the_caches():
    caches = MODEL.new_caches()
    with torch.no_grad():
        first = MODEL(some_tokens(4), caches)
        for call in (
            lambda: MODEL(some_tokens(2, 1), caches),
            lambda: MODEL(some_tokens(9), caches),
            lambda: MODEL(torch.tensor([99]), caches),
            lambda: MODEL(some_tokens(1), caches, head_mask=torch.ones(2, 3)),
        ):
            with pytest.raises(ValueError, match="expected"):
                call()
            assert [len(cache) for cache in caches] == [4, 4]
        assert_close(MODEL(some_tokens(5)[4:], caches), MODEL(some_tokens(5))[4:], atol=1e-5, rtol=1e-5)
    assert first.shape == (4, 11)


def test_weights_come_back_as_they_were_saved(tmp_path):
    torch.save(MODEL.state_dict(), tmp_path / "weights")
    other = LanguageModel(CONFIG)
    other.load_state_dict(torch.load(tmp_path / "weights", weights_only=True))
    assert torch.equal(other.eval()(some_tokens(5)), MODEL(some_tokens(5)))


def test_printing_a_layer_shows_its_sizes():
    assert "model_dim=8, num_heads=4, num_key_value_heads=2, window=None" in repr(LAYER)
    assert "8, eps=1e-06" in repr(RMSNorm(8))


# --- what the checks say ---


def said_of(name, answer):
    """What the check says of an answer, which may call what an answer of a student may not."""
    found = Check(getattr(checks, name).task).verdict(answer, (0,), refusing=False)
    assert not found.passed
    return found


def right(name):
    return getattr(checks, name).task.reference


def heads_in_turn(query, key, value, mask):
    times = query.shape[-3] // key.shape[-3]
    return right("grouped_attention")(
        query, torch.cat([key] * times, -3), torch.cat([value] * times, -3), mask
    )


def test_a_law_about_a_change_says_of_what():
    words = " ".join(said_of("grouped_attention", heads_in_turn).message.split())
    assert "before the second one is changed and" in words

    def sees_all(x, weights, cache):
        output, cache = right("todays_attention")(x, weights, cache)
        return output + x[..., -1:, :] - x, cache  # nothing for a single position

    assert " before the last position is changed and " in " ".join(
        said_of("todays_attention", sees_all).message.split()
    )

    def window_always(*sizes):
        *others, num_tokens, window = sizes
        return right("texts_that_fit")(*others, num_tokens if window is None else window, window)

    words = " ".join(said_of("texts_that_fit", window_always).message.split())
    assert "But yours gives 375 without a window and 312 with one of 600 for texts of 500 tokens." in words


def test_so_many_fit_as_are_said():
    """What the laws say of a hundred texts, counted here anew."""
    task = checks.texts_that_fit.task
    told = [law for law in task.laws if "exactly 100 texts" in law.sentence]
    assert len(told) == 4
    for law in told:
        fit = []
        for case in law.cases(0):
            of = case.inputs
            left = of["memory"] - 2 * of["num_parameters"]
            # Two bytes for each feature of a key and of a value.
            one = 4 * of["num_blocks"] * of["num_key_value_heads"] * of["model_dim"] // of["num_heads"]
            fit.append(left / (one * of["num_tokens"]))
        assert fit[0] == 100
        assert f"{fit[1]:.0f} fit with twice as many" in law.sentence
        assert law.breach(law.cases(0), fit) is None
        assert law.breach(law.cases(0), [100, fit[1] + 1]) is not None

    def one_byte(memory, num_parameters, *sizes):
        return right("texts_that_fit")(memory + num_parameters, num_parameters, *sizes)

    words = " ".join(said_of("texts_that_fit", one_byte).message.split())
    assert "100 texts, 50 fit with twice as many blocks. But yours says 107, and 53 with twice" in words


def grouped(query, key, value, mask, divisor=None, front=None):
    group = query.shape[-3] // key.shape[-3]
    key, value = (x.repeat_interleave(group, dim=-3 if front is None else front) for x in (key, value))
    scores = query @ key.mT / (query.shape[-1] if divisor is None else divisor) ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value


def block(x, weights, cache, *, eps=1e-6, first=False, second=False):
    """The block, which adds to the normalised input in one step or both."""
    names = ("W_Q", "W_K", "W_V", "W_O")
    normed = right("rms_norm")(x, weights["attention_norm.weight"], eps)
    found, cache = right("todays_attention")(normed, {n: weights["attention." + n] for n in names}, cache)
    x = (normed if first else x) + found
    normed = right("rms_norm")(x, weights["mlp_norm.weight"], eps)
    found = right("swiglu")(normed, *(weights["mlp.W_" + n] for n in ("gate", "up", "down")))
    return (normed if second else x) + found, cache


def turned_before(x, weights, cache):
    before = 0 if cache is None else cache[0].shape[-2]
    turned = rotary(x, torch.arange(before, before + x.shape[-2])).unsqueeze(-3)
    key, value = turned @ weights["W_K"], x.unsqueeze(-3) @ weights["W_V"]
    if cache is not None:
        key, value = torch.cat((cache[0], key), -2), torch.cat((cache[1], value), -2)
    found = grouped(turned @ weights["W_Q"], key, value, causal_mask(x.shape[-2], key.shape[-2]))
    return found.transpose(-3, -2).flatten(-2) @ weights["W_O"], (key, value)


def turned_at_each_step(x, weights, cache):
    before, new = 0 if cache is None else cache[0].shape[-2], x.unsqueeze(-3)
    key, value = new @ weights["W_K"], new @ weights["W_V"]
    if cache is not None:
        key, value = torch.cat((cache[0], key), -2), torch.cat((cache[1], value), -2)
    places = torch.arange(key.shape[-2])
    query = rotary(new @ weights["W_Q"], places[before:])
    found = grouped(query, rotary(key, places), value, causal_mask(x.shape[-2], len(places)))
    return found.transpose(-3, -2).flatten(-2) @ weights["W_O"], (key, value)


def slip_asked(tokens, whole, changed, same, steps, *, steps_first=False, pairs=None):
    def equal(first, second):
        return (first - second).abs().amax(-1) < 0.01

    if not equal(changed, whole)[:-1].all():
        return "sees ahead"
    counts = not equal(same, same[0]).all()
    if counts and not steps_first:
        return "counts"
    if not equal(steps, whole).all():
        rows, twins = equal(steps[:, None], steps), tokens[:, None] == tokens
        if pairs == "side by side":
            forgets = rows.diagonal(1)[twins.diagonal(1)].all()
        else:
            forgets = (rows == twins).all() if pairs == "both ways" else rows[twins].all()
        return "forgets" if forgets else "out of step"
    return "counts" if counts else "nothing found"


@pytest.mark.parametrize(
    ("name", "answer", "labels"),
    [
        (
            "rms_norm",
            lambda x, weight, eps: weight * x / (x.var(-1, keepdim=True) + eps).sqrt(),
            [
                "the features are divided by their standard deviation",
                "the sum of the squares is divided by one less than there are features",
            ],
        ),
        (
            "grouped_attention",
            lambda query, *rest: grouped(query, *rest, query.shape[-3] * query.shape[-1]),
            ["the scale counts the features of all heads together, and not those of one"],
        ),
        (
            "grouped_attention",
            lambda query, key, value, mask: grouped(query, key, value, ~mask),
            ["what may be seen is hidden by minus infinity, and the other way round"],
        ),
        (
            "grouped_attention",
            lambda *inputs: grouped(*inputs, front=0),
            ["dimension 0 is repeated, which holds the heads only without a batch"],
        ),
        (
            "grouped_attention",
            lambda *inputs: grouped(*inputs, front=1),
            ["dimension 1 is repeated, which holds the heads only in a single batch"],
        ),
        ("todays_attention", turned_before, ["the input is turned before queries and keys are made of it"]),
        (
            "todays_attention",
            turned_at_each_step,
            ["keys go into the cache before they are turned, and at each step all are turned"],
        ),
        (
            "llama_block",
            lambda *inputs: block(*inputs, first=True),
            ["in the first step, the normalised input is what is added to"],
        ),
        (
            "llama_block",
            lambda *inputs: block(*inputs, second=True, eps=1e-5),
            ["in the second step, the normalised sum is what is added to", "eps is 1e-5, and not 1e-6"],
        ),
        (
            "which_slip",
            lambda *inputs: slip_asked(*inputs, steps_first=True),
            ["the steps are looked at before `same`"],
        ),
        (
            "which_slip",
            lambda *inputs: slip_asked(*inputs, pairs="side by side"),
            ["equal tokens are compared only where they stand side by side"],
        ),
        (
            "which_slip",
            lambda *inputs: slip_asked(*inputs, pairs="both ways"),
            ["different tokens must have different rows, too"],
        ),
    ],
)
def test_what_a_student_may_well_write_is_named(name, answer, labels):
    assert list(said_of(name, answer).mistakes) == labels


# --- the experiment of the exercise ---


def test_a_slip_shows_where_it_should():
    """Found by the readings, and in the logits of one pass only where the pass is changed."""
    tokens = experiment.held_out(24)
    right = experiment.logits(tokens)
    assert torch.allclose(right, novels.course_model()(tokens))
    found, one_pass = {}, {}
    for slip in experiment.SLIPS:
        model = experiment.slipping(slip)
        found[slip] = checks.which_slip.task.reference(*experiment.record(model, tokens))
        logits, caches = model(tokens, experiment.weights(), None)
        assert len(caches) == 4
        one_pass[slip] = torch.allclose(logits, right, atol=1e-3)
    assert found == {
        "first": "sees ahead",
        "second": "out of step",
        "third": "counts",
        "fourth": "forgets",
        "fifth": "nothing found",
    }
    assert [slip for slip in experiment.SLIPS if one_pass[slip]] == ["second", "fourth"]
    with pytest.raises(ValueError, match="slip is 'sixth': expected one of"):
        experiment.slipping("sixth")


def test_writing_is_timed_token_by_token():
    read = []

    def model(tokens, caches):
        read.append(len(tokens))
        return torch.eye(9)[(tokens + 1) % 9], caches

    def write_on(model, choose, tokens, num_tokens):
        for _ in range(num_tokens):
            tokens = torch.cat((tokens, choose(model(tokens[-1:], None)[0][-1])))
        return tokens

    begun = torch.tensor([3, 4])
    for writing in (
        experiment.with_cache(write_on, model, experiment.best, begun, 3),
        experiment.without_cache(model, experiment.best, begun, 3),
    ):
        assert writing.tokens.tolist() == [3, 4, 5, 6, 7]
        assert writing.seconds.shape == (3,)
        assert (writing.seconds > 0).all()
    assert read == [1, 1, 1, 2, 3, 4]


def test_what_is_printed_is_broken_between_words():
    text = novels.novel("emma")[:2000]
    lines = experiment.wrapped(text).split("\n")
    assert max(map(len, lines)) <= 80
    assert " ".join(lines).split() == text.split()  # with bride-people whole
    assert experiment.wrapped("one\n\ntwo") == "one\n\ntwo"


def test_table_and_figure_show_the_same_times():
    seconds = torch.arange(1, 41, dtype=torch.float64) / 1000  # 8, and then two times 16
    shown = {"mine": experiment.Writing(torch.zeros(41, dtype=torch.long), seconds)}
    # The median of 16 is the lower one of the two in the middle, as PyTorch has it.
    assert "mine: from 16.0 to 32.0 milliseconds" in experiment.figure(shown).alt
    head, row = repr(experiment.table(shown)).splitlines()
    assert head.split("  ")[-1] == "ms a token, last 16"
    assert row.split() == ["mine", "0.8", "32.0"]


def test_a_model_of_ones_own_is_trained_until_the_time_is_over_or_somebody_stops_it(capsys, monkeypatch):
    monkeypatch.setattr(experiment, "_ticking", lambda seconds: (seconds * n / 150 for n in range(150)))
    config = ModelConfig(300, 16, 2, 1, 16, max_length=8)
    text = novels.novel("emma")[:30_000]
    model, calls = experiment.slipping("second"), []

    def stopped(tokens, weights, caches):
        calls.append(tokens.shape)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return model(tokens, weights, caches)

    own = experiment.train_on(model, text, 10, config=config)
    assert {name: part.shape for name, part in own.weights.items()} == {
        name: part.shape for name, part in LanguageModel(config).state_dict().items()
    }
    assert own.decode(own.encode(text[:100])) == text[:100]
    *_, (_, read, held) = own.losses
    assert max(read, held) < own.losses[0][1] - 0.3 < math.log(300)
    assert "on the held-back end of the text" in capsys.readouterr().out
    own = experiment.train_on(stopped, text, 10, config=config)
    assert calls[0] == (16, 8)
    assert own.losses
    assert "stopped" in capsys.readouterr().out
    with pytest.raises(ValueError, match="text has 5 letters: expected at least 20,000"):
        experiment.train_on(model, "short", 1)
    with pytest.raises(ValueError, match="minutes is 0: expected more than 0"):
        experiment.train_on(model, text, 0)


def test_a_nucleus_that_has_just_top_p_is_enough():
    # Four equal scores have a quarter each, without rounding; of equal ones the first are kept.
    assert next_token_probabilities(torch.zeros(4), top_p=0.5).tolist() == [0.5, 0.5, 0, 0]


def test_what_is_added_below_the_root_is_what_was_asked_for():
    x = torch.randn(3, 8, dtype=torch.float64)
    assert_close(RMSNorm(8, eps=0.5).double()(x), nn.RMSNorm(8, eps=0.5).double()(x))
