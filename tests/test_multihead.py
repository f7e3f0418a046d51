"""The multi-head layer against PyTorch's, against a loop over heads, and by its properties."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import attncourse
from attncourse import MultiHeadAttention, attention, head_importance, merge_heads, split_heads
from attncourse.experiments import multihead as experiment

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_mask(*shape, seed=0):
    """True with probability one half, and at least once in every row."""
    mask = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < 0.5
    mask[..., 0] |= ~mask.any(-1)
    return mask


def random_layer(*sizes, seed=0, dtype=torch.float64, **options):
    """A layer whose biases, too, are random."""
    layer = MultiHeadAttention(*sizes, **options).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator)
    return layer


def random_torch(*sizes, seed=0, dtype=torch.float64, **options):
    """PyTorch's layer, with random biases, in evaluation mode."""
    layer = nn.MultiheadAttention(*sizes, **options).to(dtype).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return layer


def test_the_public_interface_is_the_units():
    from attncourse import multihead

    assert set(multihead.__all__) <= set(attncourse.__all__)
    for name in multihead.__all__:
        assert getattr(attncourse, name) is getattr(multihead, name)


# --- split and merge ---


@given(batches, sizes, sizes, sizes, seeds)
def test_each_head_has_its_block_of_every_position(batch, positions, num_heads, head_dim, seed):
    x = normal(*batch, positions, num_heads * head_dim, seed=seed)
    heads = split_heads(x, num_heads)
    assert heads.shape == (*batch, num_heads, positions, head_dim)
    for h, n, d in itertools.product(range(num_heads), range(positions), range(head_dim)):
        assert torch.equal(heads[..., h, n, d], x[..., n, h * head_dim + d])
    assert torch.equal(merge_heads(heads), x)


@given(batches, sizes, sizes, sizes, seeds)
def test_merging_puts_the_heads_side_by_side(batch, positions, num_heads, head_dim, seed):
    heads = normal(*batch, num_heads, positions, head_dim, seed=seed)
    merged = merge_heads(heads)
    assert torch.equal(merged, torch.cat(heads.unbind(-3), dim=-1))
    assert torch.equal(split_heads(merged, num_heads), heads)


def test_split_heads_is_a_view_and_takes_any_strides():
    x = normal(2, 6, 3)
    assert split_heads(x, 3).data_ptr() == x.data_ptr()
    strided = x.mT
    assert torch.equal(split_heads(strided, 2), split_heads(strided.contiguous(), 2))
    heads = normal(2, 3, 4, 5).transpose(0, 1)
    assert torch.equal(merge_heads(heads), merge_heads(heads.contiguous()))


# --- against a loop over the heads ---


def loop_over_heads(layer, query, key, value, mask=None, head_mask=None):
    """One head after the other and one sequence after the other, with plain matrix products."""
    weights, output = [], 0
    for h in range(layer.num_heads):
        q, k, v = query @ layer.W_Q[h], key @ layer.W_K[h], value @ layer.W_V[h]
        if layer.b_Q is not None:
            q, k, v = q + layer.b_Q[h], k + layer.b_K[h], v + layer.b_V[h]
        scores = q @ k.T / math.sqrt(layer.key_dim)
        if mask is not None:
            scores = torch.where(mask, scores, -math.inf)
        weights.append(torch.softmax(scores, 1))
        rows = slice(h * layer.value_dim, (h + 1) * layer.value_dim)
        contribution = weights[-1] @ v @ layer.W_O[rows]
        output = output + contribution * (1 if head_mask is None else head_mask[h])
    return output + (0 if layer.b_O is None else layer.b_O), torch.stack(weights)


@given(batches, sizes, sizes, sizes, sizes, sizes, sizes, st.booleans(), st.booleans(), seeds)
def test_the_layer_is_its_definition(
    batch, num_queries, num_keys, num_heads, model_dim, key_dim, value_dim, bias, masked, seed
):
    layer = random_layer(
        model_dim, num_heads, key_dim, value_dim, bias, seed=seed, key_input_dim=5, value_input_dim=3
    )
    query = normal(*batch, num_queries, model_dim, seed=seed)
    key = normal(*batch, num_keys, 5, seed=seed + 1)
    value = normal(*batch, num_keys, 3, seed=seed + 2)
    mask = random_mask(*batch, num_queries, num_keys, seed=seed) if masked else None
    head_mask = normal(*batch, num_heads, seed=seed) if masked else None
    output, weights = layer(query, key, value, mask, head_mask, return_weights=True)
    assert output.shape == (*batch, num_queries, model_dim)
    assert weights.shape == (*batch, num_heads, num_queries, num_keys)
    for index in itertools.product(*map(range, batch)):
        masks = (mask[index], head_mask[index]) if masked else ()
        expected = loop_over_heads(layer, query[index], key[index], value[index], *masks)
        assert_close((output[index], weights[index]), expected)


@given(batches, sizes, sizes, st.sampled_from([(4, 1), (4, 2), (6, 3), (6, 6)]), st.booleans(), seeds)
@settings(max_examples=30)
def test_shared_keys_and_values_are_those_of_a_layer_that_repeats_them(
    batch, num_queries, num_keys, heads, bias, seed
):
    num_heads, shared = heads
    options = {"bias": bias, "key_input_dim": 5, "value_input_dim": 3}
    layer = random_layer(7, num_heads, 2, 3, seed=seed, num_key_value_heads=shared, **options)
    repeating = MultiHeadAttention(7, num_heads, 2, 3, **options).double()
    state = layer.state_dict()
    of_group = torch.arange(num_heads) // (num_heads // shared)  # which of the shared each head has
    repeating.load_state_dict(
        {name: x[of_group] if name[2:] in ("K", "V") else x for name, x in state.items()}
    )
    inputs = (
        normal(*batch, num_queries, 7, seed=seed),
        normal(*batch, num_keys, 5, seed=seed + 1),
        normal(*batch, num_keys, 3, seed=seed + 2),
    )
    mask = random_mask(*batch, num_queries, num_keys, seed=seed)
    found, expected = (of(*inputs, mask, return_weights=True) for of in (layer, repeating))
    assert_close(found, expected)
    assert_close(layer(*inputs, mask), found[0])


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_shared_keys_and_values_are_pytorchs_in_value_and_gradient(shared):
    layer = random_layer(8, 4, num_key_value_heads=shared)
    x = normal(2, 5, 8).requires_grad_()
    weights = (layer.W_Q, layer.W_K, layer.W_V)
    heads = nn.functional.scaled_dot_product_attention(
        *(torch.einsum("bnd,hde->bhne", x, weight) for weight in weights), is_causal=True, enable_gqa=True
    )
    expected = merge_heads(heads) @ layer.W_O
    factors = normal(2, 5, 8, seed=1)
    for options in ({}, {"return_weights": True}):
        found = layer(x, mask=torch.ones(5, 5).tril() > 0, **options)
        found = found[0] if options else found
        assert_close(found, expected)
        gradients = [
            torch.autograd.grad((y * factors).sum(), (x, *weights, layer.W_O), retain_graph=True)
            for y in (found, expected)
        ]
        assert_close(*gradients)


def test_a_layer_that_shares_learns_fewer_numbers():
    sizes = {shared: MultiHeadAttention(12, 6, num_key_value_heads=shared) for shared in (1, 2, 3, 6, None)}
    for shared, layer in sizes.items():
        heads = 6 if shared is None else shared
        assert sum(weight.numel() for weight in layer.parameters()) == 2 * 12 * 12 + 2 * 12 * 2 * heads
    assert sizes[6].to_torch().num_heads == 6
    silent = torch.tensor([1.0, 0, 1, 1, 1, 1])
    x = normal(3, 12, dtype=torch.float32)
    assert not torch.allclose(sizes[2](x), sizes[2](x, head_mask=silent))


def test_the_inputs_that_are_left_out():
    layer = random_layer(6, 2)
    x, memory = normal(2, 3, 6), normal(2, 5, 6, seed=1)
    assert torch.equal(layer(x), layer(x, x, x))
    assert torch.equal(layer(x, memory), layer(x, memory, memory))
    assert not torch.allclose(layer(x, memory), layer(x, memory, memory.flip(-1)))


def test_sizes_that_are_not_given_are_shares_of_the_model_dim():
    shapes = {name: tuple(p.shape) for name, p in MultiHeadAttention(12, 3).named_parameters()}
    assert shapes == {"W_Q": (3, 12, 4), "W_K": (3, 12, 4), "W_V": (3, 12, 4), "W_O": (12, 12)}
    shapes = {name: tuple(p.shape) for name, p in MultiHeadAttention(7, 3, 5, 2, True).named_parameters()}
    assert shapes == {
        "W_Q": (3, 7, 5), "W_K": (3, 7, 5), "W_V": (3, 7, 2), "W_O": (6, 7),
        "b_Q": (3, 5), "b_K": (3, 5), "b_V": (3, 2), "b_O": (7,),
    }  # fmt: skip


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
def test_the_number_of_parameters_does_not_depend_on_the_number_of_heads(num_heads):
    count = sum(parameter.numel() for parameter in MultiHeadAttention(32, num_heads).parameters())
    assert count == 4 * 32**2


def test_one_head_with_identity_weights_is_the_operator():
    layer = MultiHeadAttention(4, 1).double()
    with torch.no_grad():
        for weight in layer.parameters():
            weight.copy_(torch.eye(4))
    query, key, value = normal(2, 3, 4), normal(2, 5, 4, seed=1), normal(2, 5, 4, seed=2)
    assert_close(layer(query, key, value), attention(query, key, value))


# --- masks ---


@pytest.mark.parametrize("shape", [(5,), (4, 1), (4, 5), (3, 1, 5), (1, 4, 5), (2, 1, 1, 5), (2, 3, 4, 5)])
def test_a_mask_is_the_same_for_all_heads_and_broadcasts_over_the_batch(shape):
    # As many heads as sequences: a mask read along the wrong one would fit.
    layer = random_layer(6, 3)
    query, key = normal(2, 3, 4, 6), normal(2, 3, 5, 6, seed=1)
    mask = random_mask(*shape, seed=3)
    whole = mask.expand(2, 3, 4, 5)
    output, weights = layer(query, key, mask=mask, return_weights=True)
    assert (weights[~whole.unsqueeze(2).expand(2, 3, 3, 4, 5)] == 0).all()
    for i, j in itertools.product(range(2), range(3)):
        expected = loop_over_heads(layer, query[i, j], key[i, j], key[i, j], whole[i, j])
        assert_close((output[i, j], weights[i, j]), expected)


def test_a_query_without_keys_gets_the_output_bias_and_no_gradient():
    layer = random_layer(6, 2, bias=True)
    x = normal(3, 6).requires_grad_()
    mask = torch.tensor([[False] * 3, [True] * 3, [True, False, True]])
    output = layer(x, mask=mask)
    assert_close(output[0], layer.b_O)
    assert (torch.autograd.grad(output[0].sum(), x)[0] == 0).all()


def test_a_head_mask_multiplies_what_the_heads_give():
    layer = random_layer(6, 3)
    x = normal(2, 4, 6)
    alone = [layer(x, head_mask=torch.arange(3) == h) for h in range(3)]
    assert_close(sum(alone), layer(x))
    assert_close(layer(x, head_mask=torch.tensor([2.0, 0.0, -1.0])), 2 * alone[0] - alone[2])
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    assert_close(layer(x, head_mask=rows), torch.stack([alone[0][0], alone[2][1]]))
    _, weights = layer(x, head_mask=torch.zeros(3), return_weights=True)
    assert_close(weights.sum(-1), torch.ones(2, 3, 4, dtype=torch.float64))


# --- against PyTorch ---

OPTIONS = {
    "plain": {"bias": False},
    "bias": {"bias": True},
    "kdim and vdim": {"bias": True, "kdim": 5, "vdim": 7},
    "kdim only": {"bias": False, "kdim": 5},
    "batch second": {"bias": True, "batch_first": False},
}
DTYPES = {torch.float32: 2e-5, torch.float64: 1e-12}


def torch_and_ours(options, dtype=torch.float64):
    theirs = random_torch(12, 3, dtype=dtype, **{"batch_first": True, **options})
    return theirs, MultiHeadAttention.from_torch(theirs)


def inputs_for(theirs, kind, dtype=torch.float64, batch=True):
    """One to three inputs that fit PyTorch's layer, each twice: recording gradients apart."""
    dims = {
        "self": [("q", 4, 12)],
        "cross": [("q", 4, 12), ("k", 6, theirs.kdim)],
        "three": [("q", 4, 12), ("k", 6, theirs.kdim), ("v", 6, theirs.vdim)],
    }[kind]
    shape = (lambda n, d: (2, n, d)) if theirs.batch_first else (lambda n, d: (n, 2, d))
    made = [
        normal(*(shape(n, d) if batch else (n, d)), seed=i, dtype=dtype) for i, (_, n, d) in enumerate(dims)
    ]
    return [x.clone().requires_grad_() for x in made], [x.clone().requires_grad_() for x in made]


def as_torch_takes_them(inputs):
    query = inputs[0]
    key = inputs[1] if len(inputs) > 1 else query
    return query, key, inputs[2] if len(inputs) > 2 else key


KINDS = [
    (name, kind)
    for name, options in OPTIONS.items()
    for kind in (["three"] if "kdim" in options else ["self", "cross", "three"])
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("batch", [True, False], ids=["batch", "one sequence"])
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_the_layer_is_pytorchs_in_value_and_gradient(name, kind, masked, batch, dtype):
    theirs, ours = torch_and_ours(OPTIONS[name], dtype)
    x_theirs, x_ours = inputs_for(theirs, kind, dtype, batch)
    mask = random_mask(4, 4 if kind == "self" else 6, seed=1) if masked else None

    expected, expected_weights = theirs(
        *as_torch_takes_them(x_theirs), attn_mask=None if mask is None else ~mask, average_attn_weights=False
    )
    output, weights = ours(*x_ours, mask=mask, return_weights=True)
    close = {"atol": DTYPES[dtype], "rtol": DTYPES[dtype]}
    assert output.dtype == dtype
    assert_close(output, expected, **close)
    assert_close(weights, expected_weights, **close)

    upstream = normal(*output.shape, seed=9, dtype=dtype)
    expected.backward(upstream)
    output.backward(upstream)
    assert_close([x.grad for x in x_ours], [x.grad for x in x_theirs], **close)
    # A layer with these gradients as its weights, in PyTorch's form, is compared in one go.
    for parameter in ours.parameters():
        parameter.data = parameter.grad
    for (_, gradient), parameter in zip(ours.to_torch().named_parameters(), theirs.parameters(), strict=True):
        assert_close(gradient.detach(), parameter.grad, **close)


def test_padding_and_causal_masks_agree_with_pytorchs():
    theirs, ours = torch_and_ours({"bias": True})
    (x,), _ = inputs_for(theirs, "self")
    padded = torch.tensor([[False, False, False, True], [False, False, True, True]])
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    expected, _ = theirs(x, x, x, key_padding_mask=padded, attn_mask=~causal)
    assert_close(ours(x, mask=causal & ~padded[:, None, :]), expected)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("training", [True, False])
def test_pytorchs_weights_come_back_from_ours_unchanged(options, training):
    theirs, _ = torch_and_ours({**options, "dropout": 0.25})
    theirs.train(training)
    ours = MultiHeadAttention.from_torch(theirs)
    back = ours.to_torch()
    assert back.state_dict().keys() == theirs.state_dict().keys()
    for name, weight in theirs.state_dict().items():
        assert torch.equal(back.state_dict()[name], weight)
    assert (ours.dropout_p, ours.training, back.dropout, back.training) == (0.25, training, 0.25, training)
    assert back.batch_first == ours.batch_first == theirs.batch_first
    with torch.no_grad():
        ours.W_Q.zero_()
        back.out_proj.weight.zero_()
    assert theirs.out_proj.weight.abs().min() > 0
    assert theirs.state_dict()[next(iter(theirs.state_dict()))].abs().min() > 0


def test_state_is_saved_and_loaded():
    layer, other = random_layer(6, 2, bias=True), MultiHeadAttention(6, 2, bias=True).double()
    other.load_state_dict(layer.state_dict())
    x = normal(3, 6)
    assert torch.equal(layer(x), other(x))


# --- gradients, training, evaluation ---


def test_gradients_match_finite_differences():
    layer = random_layer(4, 2, 3, 2, True)
    inputs = (normal(2, 2, 4), normal(2, 3, 4, seed=1), normal(2, 3, 4, seed=2))
    mask = torch.tensor([[True, False, True], [True, True, False]])
    head_mask = torch.ones(2, 2, dtype=torch.float64)
    names = [name for name, _ in layer.named_parameters()]
    tensors = [t.detach().clone().requires_grad_() for t in (*inputs, head_mask, *layer.parameters())]

    def function(query, key, value, head_mask, *parameters):
        arguments = (query, key, value, mask, head_mask, True)
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), arguments)

    assert torch.autograd.gradcheck(function, tensors)


def test_a_new_layer_keeps_the_variance_of_its_input():
    torch.manual_seed(0)
    layer = MultiHeadAttention(256, 4, 32, 128, bias=True)
    x = torch.randn(500, 256)
    for weight in (layer.W_Q, layer.W_K, layer.W_V):
        assert (x @ weight).var().item() == pytest.approx(1, abs=0.1)
    scores = (x @ layer.W_Q[0]) @ (x @ layer.W_K[0]).T / math.sqrt(32)
    assert scores.var().item() == pytest.approx(1, abs=0.2)
    assert (torch.randn(500, 512) @ layer.W_O).var().item() == pytest.approx(1, abs=0.1)
    assert all((bias == 0).all() for bias in (layer.b_Q, layer.b_K, layer.b_V, layer.b_O))


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    layer = random_layer(8, 2, dropout_p=0.25)
    x = normal(64, 10, 8)
    whole, undropped = layer.eval()(x, return_weights=True)
    assert_close(whole, layer(x))
    output, weights = layer.train()(x, return_weights=True)
    assert (weights == 0).double().mean().item() == pytest.approx(0.25, abs=0.02)
    kept = weights != 0
    assert_close(weights[kept], undropped[kept] / 0.75)
    assert not torch.allclose(output, whole)
    assert_close(merge_heads(weights @ (x.unsqueeze(1) @ layer.W_V)) @ layer.W_O, output)


def test_inputs_come_back_unmodified_and_may_be_strided():
    layer = random_layer(6, 2)
    inputs = [normal(2, 3, 6), normal(2, 5, 6), normal(2, 5, 6), random_mask(3, 5), torch.ones(2)]
    before = [x.clone() for x in inputs]
    output = layer(*inputs)
    assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
    strided = [x.mT.contiguous().mT for x in inputs[:3]]
    assert_close(layer(*strided, *inputs[3:]), output)


# --- how much a head matters ---


def test_importance_is_the_mean_size_of_each_examples_derivative():
    layer = random_layer(6, 3)
    x = normal(20, 4, 6)
    target = layer(x).detach() + normal(20, 4, 6, seed=1)

    def losses(head_mask):
        return ((layer(x, head_mask=head_mask) - target) ** 2).mean((-2, -1))

    head_mask = torch.ones(20, 3, dtype=torch.float64, requires_grad=True)
    importance = head_importance(losses(head_mask), head_mask)
    step = 1e-6
    for h in range(3):
        up, down = torch.ones(20, 3).double(), torch.ones(20, 3).double()
        up[:, h] += step
        down[:, h] -= step
        derivative = (losses(up) - losses(down)) / (2 * step)
        assert derivative.min() < 0 < derivative.max()  # otherwise the absolute value is not tested
        assert importance[h].item() == pytest.approx(derivative.abs().mean().item(), rel=1e-4)


def test_a_head_that_nobody_reads_has_no_importance():
    layer = random_layer(6, 3)
    with torch.no_grad():
        layer.W_O[2:4] = 0  # head 1
    head_mask = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    losses = layer(normal(4, 5, 6), head_mask=head_mask).abs().mean((-2, -1))
    importance = head_importance(losses, head_mask)
    assert importance[1] == 0
    assert importance[[0, 2]].min() > 0
    assert head_mask.grad is None
    losses.sum().backward()  # the graph is still there


@given(batches, sizes)
def test_importance_has_a_number_for_each_head(batch, num_heads):
    head_mask = torch.ones(*batch, num_heads, requires_grad=True)
    factors = torch.arange(1.0, num_heads + 1)
    assert_close(head_importance(-(head_mask * factors).sum(-1), head_mask), factors)


# --- bad input ---

LAYER = MultiHeadAttention(6, 2, key_input_dim=5)
LAST = MultiHeadAttention(6, 2, batch_first=False)
Q, K, V = torch.zeros(2, 3, 6), torch.zeros(2, 4, 5), torch.zeros(2, 4, 6)
ONES = torch.ones(2, 3, requires_grad=True)
# A call, then what the message must say: the argument, its shape or what came, and the expectation.
VALUE_ERRORS = {
    "heads do not divide": (lambda: MultiHeadAttention(6, 4), "model_dim is 6", "num_heads is 4", "multiple"),
    "no heads": (lambda: MultiHeadAttention(6, 0), "num_heads is 0", "at least 1"),
    "no features": (lambda: MultiHeadAttention(0, 1), "model_dim is 0", "at least 1"),
    "negative key_dim": (lambda: MultiHeadAttention(6, 2, -3, 3), "key_dim is -3", "at least 1"),
    "no value features": (lambda: MultiHeadAttention(6, 2, value_input_dim=0), "value_input_dim is 0"),
    "dropout above one": (lambda: MultiHeadAttention(6, 2, dropout_p=2.0), "dropout_p is 2.0", "from 0 to 1"),
    "value without key": (lambda: LAYER(Q, value=V), "value is given and key is not"),
    "query features": (lambda: LAYER(K, K, V), "query", "(2, 4, 5)", "last dimension to be 6"),
    "key features": (lambda: LAYER(Q, V, V), "key", "(2, 4, 6)", "last dimension to be 5"),
    "self-attention where keys differ": (lambda: LAYER(Q), "key", "(2, 3, 6)", "last dimension to be 5"),
    "value features": (lambda: LAYER(Q, K), "value", "(2, 4, 5)", "last dimension to be 6"),
    "fewer values": (lambda: LAYER(Q, K, V[:, :3]), "value", "(2, 3, 6)", "4 rows", "(2, 4, 5)"),
    "no keys": (lambda: LAYER(Q, K[:, :0], V[:, :0]), "key", "(2, 0, 5)", "at least one key"),
    "another batch": (lambda: LAYER(Q, K[:1], V[:1]), "key", "(1, 4, 5)", "(2, 3, 6)", "leading"),
    "no positions": (lambda: LAYER(Q[0, 0]), "query", "(6,)", "(..., positions, features)"),
    "integers": (lambda: LAYER(Q.long()), "query", "torch.int64", "floating point"),
    "another dtype": (lambda: LAYER(Q.double(), K, V), "query", "float64", "float32", "the layer's weights"),
    "mask of numbers": (lambda: LAYER(Q, K, V, torch.ones(3, 4)), "mask", "(3, 4)", "torch.bool"),
    "mask transposed": (lambda: LAYER(Q, K, V, torch.ones(4, 3) > 0), "mask", "(4, 3)", "to (2, 3, 4)"),
    "mask for each head": (
        lambda: LAYER(Q, K, V, torch.ones(2, 2, 3, 4) > 0), "mask", "(2, 2, 3, 4)", "to (2, 3, 4)"
    ),
    "too many heads masked": (
        lambda: LAYER(Q, K, V, head_mask=torch.ones(3)), "head_mask", "(3,)", "to (2, 2)"
    ),
    "one number for all heads": (
        lambda: LAYER(Q, K, V, head_mask=torch.ones(2, 1)), "head_mask", "(2, 1)", "each head"
    ),
    "head mask without dimension": (
        lambda: LAYER(Q, K, V, head_mask=torch.tensor(1.0)), "head_mask", "()", "each head"
    ),
    "head mask of integers": (
        lambda: LAYER(Q, K, V, head_mask=torch.ones(2).long()), "head_mask", "int64", "floating point"
    ),
    "batch last, four dimensions": (
        lambda: LAST(torch.zeros(1, 2, 3, 6)), "query", "(1, 2, 3, 6)", "(positions, batch, features)"
    ),
    "split: odd features": (lambda: split_heads(Q, 4), "x", "(2, 3, 6)", "multiple of num_heads=4"),
    "split: one dimension": (lambda: split_heads(Q[0, 0], 2), "x", "(6,)", "(..., positions, features)"),
    "split: no heads": (lambda: split_heads(Q, 0), "num_heads is 0", "at least 1"),
    "merge: no heads": (lambda: merge_heads(Q[0]), "x", "(3, 6)", "(..., num_heads, positions, head_dim)"),
    "extra keys": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2, add_bias_kv=True)), "add_bias_kv"
    ),
    "a zero key": (
        lambda: MultiHeadAttention.from_torch(nn.MultiheadAttention(6, 2, add_zero_attn=True)), "zero_attn"
    ),
    "free key_dim": (
        lambda: MultiHeadAttention(6, 2, 4).to_torch(),
        "key_dim is 4", "value_dim is 3", "model_dim / num_heads = 3",
    ),
    "shared heads do not divide": (
        lambda: MultiHeadAttention(6, 6, num_key_value_heads=4), "num_key_value_heads is 4", "num_heads is 6"
    ),
    "no shared heads": (lambda: MultiHeadAttention(6, 2, num_key_value_heads=0), "num_key_value_heads is 0"),
    "shared heads in PyTorch's layer": (
        lambda: MultiHeadAttention(6, 2, num_key_value_heads=1).to_torch(), "num_key_value_heads is 1"
    ),
    "free value_dim": (lambda: MultiHeadAttention(6, 4, 2, 2).to_torch(), "key_dim is 2", "= 1.5"),
    "importance: no gradient": (
        lambda: head_importance(ONES.sum(-1), torch.ones(2, 3)), "head_mask", "(2, 3)", "requires_grad=True"
    ),
    "importance: one loss": (
        lambda: head_importance(ONES.sum(), ONES), "head_mask", "(2, 3)", "(*losses.shape, num_heads)", "()"
    ),
    "importance: other losses": (
        lambda: head_importance(torch.ones(2), ONES), "losses", "(2,)", "does not depend on head_mask"
    ),
    "importance: unrelated losses": (
        lambda: head_importance(torch.ones(2, requires_grad=True) * 2, ONES), "losses", "does not depend"
    ),
    "importance: integer losses": (lambda: head_importance(torch.ones(2).long(), ONES), "losses", "int64"),
}  # fmt: skip


@pytest.mark.parametrize("case", VALUE_ERRORS.values(), ids=VALUE_ERRORS)
def test_a_value_error_names_what_came_and_what_was_expected(case):
    call, *parts = case
    with pytest.raises(ValueError, match="expected") as caught:
        call()
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: LAYER([1.0]), "query is a list"),
        (lambda: MultiHeadAttention(6, 1.5), "num_heads is a float: expected an int"),
        (lambda: MultiHeadAttention(8, True), "num_heads is a bool: expected an int"),
        (lambda: MultiHeadAttention(6, 2, num_key_value_heads=1.0), "num_key_value_heads is a float"),
        (lambda: LAYER(Q, K, V, mask=[True]), "mask is a list"),
        (lambda: LAYER(Q, K, V, head_mask=[1.0, 0.0]), "head_mask is a list"),
        (lambda: split_heads([1.0], 1), "x is a list"),
        (lambda: merge_heads(None), "x is a NoneType"),
        (lambda: head_importance([1.0], ONES), "losses is a list"),
        (lambda: MultiHeadAttention.from_torch(nn.Linear(2, 2)), "layer is a Linear"),
    ],
)
def test_what_is_no_tensor_is_named(call, name):
    with pytest.raises(TypeError, match=name):
        call()


def test_printing_a_layer_shows_its_sizes():
    expected = "MultiHeadAttention(model_dim=6, num_heads=2, key_dim=3, value_dim=5)"
    assert repr(MultiHeadAttention(6, 2, value_dim=5)) == expected


# the experiment


class Plain(nn.Module):
    """A layer as a student writes it, without what the course's has besides."""

    def __init__(self, model_dim, num_heads):
        super().__init__()
        shape = (num_heads, model_dim, model_dim // num_heads)
        std = model_dim**-0.5
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(std * torch.randn(shape)) for _ in range(3))
        self.W_O = nn.Parameter(std * torch.randn(model_dim, model_dim))

    def forward(self, query, key, value):
        query, key, value = query[:, None] @ self.W_Q, key[:, None] @ self.W_K, value[:, None] @ self.W_V
        scores = query @ key.mT / query.shape[-1] ** 0.5
        return merge_heads(torch.softmax(scores, -1) @ value) @ self.W_O


@pytest.fixture(scope="module")
def run():
    return experiment.train(Plain, 4, steps=3)


def test_the_numbers_asked_for_are_those_of_the_symbols():
    batch = experiment.look_up_batch(50, torch.Generator().manual_seed(0))
    assert (batch.wanted[..., 0] != batch.wanted[..., 1]).all()
    assert all(len(set(row.tolist())) == experiment.NUM_KEYS for row in batch.symbols)
    assert batch.value.var() == pytest.approx(1, abs=0.2)


def test_a_layer_that_knows_the_keys_has_no_loss():
    batch = experiment.look_up_batch(5, torch.Generator().manual_seed(0))
    answers = batch.value[:, None].expand(-1, 6, -1).gather(2, batch.wanted)
    model = experiment.Model(nn.Identity())
    with torch.no_grad():
        model.read.copy_(torch.eye(experiment.MODEL_DIM)[:, :2])

    def knows(query, key, value):
        return nn.functional.pad(answers, (0, experiment.MODEL_DIM - 2))

    assert model.loss(batch, knows).item() == 0
    assert model.loss(batch, lambda query, key, value: 0 * query).item() == pytest.approx(
        answers.square().mean().item()
    )


def test_the_trained_layer_is_the_one_that_is_looked_at(run):
    weights = run.weights()
    assert [tuple(weight.shape) for weight in weights] == [(4, 32, 8)] * 3 + [(32, 32)]
    assert run.losses.shape == (3,)
    torch.testing.assert_close(run.loss(), run.loss_of(*weights))
    # What was trained and what is looked at are the same function.
    with torch.no_grad():
        torch.testing.assert_close(run._model.loss(run._test), run.loss())
    torch.testing.assert_close(run.maps.sum(-1), torch.ones(4, 3000))
    assert run.wanted.shape == (3000, 2)


def test_silencing_heads_is_pruning_them(run):
    W_Q, W_K, W_V, W_O = run.weights()
    kept = W_O.unflatten(0, (4, 8))[[1, 2]].flatten(0, 1)
    pruned = run.loss_of(W_Q[[1, 2]], W_K[[1, 2]], W_V[[1, 2]], kept)
    torch.testing.assert_close(run.loss(torch.tensor([0.0, 1, 1, 0])), pruned)
    assert run.loss(torch.zeros(4)) != run.loss()


def test_the_same_seed_trains_the_same_layer(run):
    torch.manual_seed(5)
    assert torch.equal(experiment.train(Plain, 4, steps=3).losses, run.losses)
    assert not torch.equal(experiment.train(Plain, 4, steps=3, seed=1).losses, run.losses)


def test_the_experiment_is_told_in_words(run):
    assert "0.500" in repr(experiment.table({4: run}, {4: 0.5}))
    assert "4 heads from" in experiment.figure({4: run}, {4: 0.5}).alt


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda run: experiment.train(Plain, 4, steps=0), "steps is 0: expected at least 1"),
        (lambda run: experiment.train(Plain, 0), "num_heads is 0: expected at least 1"),
        (lambda run: run.loss(torch.ones(3)), r"head_mask has shape \(3,\): expected \(4,\)"),
        (lambda run: run.loss_of(*run.weights()[:3], torch.ones(8, 32)), r"W_O has shape \(8, 32\)"),
        (lambda run: experiment.figure({}, {}), "runs has 0 runs"),
        (lambda run: experiment.look_up_batch(0, torch.Generator()), "number is 0"),
    ],
)
def test_the_experiment_names_what_is_wrong(run, call, words):
    with pytest.raises(ValueError, match=words):
        call(run)


def test_a_layer_of_the_wrong_shape_is_named():
    class Half(Plain):
        def forward(self, query, key, value):
            return super().forward(query, key, value)[..., :16]

    with pytest.raises(
        ValueError, match=r"layer gives a tensor of shape \(32, 6, 16\): expected .*\(32, 6, 32\)"
    ):
        experiment.train(Half, 2, steps=1)


def test_one_head_cannot_do_what_two_learn():
    one, two = (experiment.train(Plain, heads, steps=150) for heads in (1, 2))
    assert one.loss() > 0.45
    assert two.loss() < 0.1
    # Each of the two has found one of the things that are wanted.
    share = two.maps.gather(2, two.wanted.expand(2, -1, -1)).mean(1)  # (heads, wanted)
    assert (share > 0.8).sum(0).tolist() == [1, 1]
    assert (share > 0.8).sum(1).tolist() == [1, 1]
