"""The block against PyTorch's layers and its own formulas; the stack by who can change whom."""

import copy
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

import attncourse
from attncourse import (
    MultiHeadAttention,
    Transformer,
    TransformerBlock,
    causal_mask,
    checks,
    influence,
    is_equivariant,
    letters,
    local_mask,
    padding_mask,
)
from attncourse.checks.task import registry
from attncourse.experiments import transformer as experiment

seeds = st.integers(0, 2**32 - 1)
sizes = st.integers(1, 4)
batches = st.lists(st.integers(1, 3), max_size=2).map(tuple)
norms = st.sampled_from(["pre", "post"])


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def random_module(module, seed=0, dtype=torch.float64):
    """The module in evaluation mode, with every parameter drawn anew: gains and biases, too."""
    generator = torch.Generator().manual_seed(seed)
    module = module.to(dtype).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(generator=generator).mul_(0.5)
    return module


def test_the_public_interface_is_the_units():
    from attncourse import transformer

    assert set(transformer.__all__) <= set(attncourse.__all__)
    for name in transformer.__all__:
        assert getattr(attncourse, name) is getattr(transformer, name)


# --- the block by its formulas ---


def normalised(norm, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight + norm.bias


def by_formula(block, x, memory, mask, memory_mask):
    """The block as its docstring has it, one line a step."""

    def mlp(z):
        return (z @ block.W_1 + block.b_1).clamp(min=0) @ block.W_2 + block.b_2

    def att(z):
        return block.attention(z, z, z, mask)

    def look(z):
        return block.cross_attention(z, memory, memory, memory_mask)

    steps = [(att, block.attention_norm)]
    if memory is not None:
        steps.append((look, block.cross_attention_norm))
    steps.append((mlp, block.mlp_norm))
    for step, norm in steps:
        x = x + step(normalised(norm, x)) if block.norm == "pre" else normalised(norm, x + step(x))
    return x


@given(batches, sizes, sizes, sizes, sizes, sizes, norms, st.booleans(), st.booleans(), seeds)
@settings(max_examples=50)
def test_the_block_is_its_formulas(
    batch, positions, num_memory, num_heads, head_dim, hidden_dim, norm, cross, masked, seed
):
    dim = num_heads * head_dim
    block = random_module(
        TransformerBlock(dim, num_heads, hidden_dim, norm=norm, cross_attention=cross), seed
    )
    x = normal(*batch, positions, dim, seed=seed)
    memory = normal(*batch, num_memory, dim, seed=seed + 1) if cross else None
    mask = causal_mask(positions) if masked else None
    memory_mask = torch.ones(1, num_memory, dtype=torch.bool) if masked and cross else None
    output, weights = block(x, memory, mask, memory_mask, return_weights=True)
    assert_close(output, by_formula(block, x, memory, mask, memory_mask))
    assert_close(block(x, memory, mask, memory_mask), output)
    assert weights["self"].shape == (*batch, num_heads, positions, positions)
    assert ("cross" in weights) == cross
    if cross:
        assert weights["cross"].shape == (*batch, num_heads, positions, num_memory)


@given(batches, sizes, sizes, seeds)
@settings(max_examples=20)
def test_a_post_norm_block_leaves_normalised_rows(batch, positions, num_heads, seed):
    dim = 4 * num_heads
    block = TransformerBlock(dim, num_heads, norm="post").double()
    output = block(normal(*batch, positions, dim, seed=seed))
    assert_close(output.mean(-1), torch.zeros_like(output[..., 0]))
    assert_close(output.var(-1, correction=0), torch.ones_like(output[..., 0]), atol=1e-3, rtol=0)


def test_the_hidden_features_are_four_times_the_models_unless_said():
    shapes = {name: tuple(p.shape) for name, p in TransformerBlock(6, 2, norm="pre").named_parameters()}
    assert {name: shapes[name] for name in ("W_1", "b_1", "W_2", "b_2")} == {
        "W_1": (6, 24), "b_1": (24,), "W_2": (24, 6), "b_2": (6,),
    }  # fmt: skip
    assert len(TransformerBlock(6, 2, 5, norm="pre").b_1) == 5


# --- against PyTorch ---


def torch_layer(kind, norm_first, dtype=torch.float64, **options):
    layer = {"encoder": nn.TransformerEncoderLayer, "decoder": nn.TransformerDecoderLayer}[kind]
    options = {"batch_first": True, "layer_norm_eps": 1e-3, **options}
    return random_module(layer(12, 3, 20, norm_first=norm_first, **options), dtype=dtype)


OPTIONS = {"as it comes": {}, "batch second": {"batch_first": False}, "no bias": {"bias": False}}
DTYPES = {torch.float32: 2e-5, torch.float64: 1e-12}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("norm_first", [False, True], ids=["post", "pre"])
@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_the_block_is_pytorchs_layer_in_value_and_gradient(kind, norm_first, options, masked, dtype):
    theirs = torch_layer(kind, norm_first, dtype, **options)
    ours = TransformerBlock.from_torch(theirs)
    assert ours.norm == ("pre" if norm_first else "post")
    shape = (lambda n: (2, n, 12)) if options.get("batch_first", True) else (lambda n: (n, 2, 12))
    inputs = [normal(*shape(n), seed=n, dtype=dtype) for n in ((5,) if kind == "encoder" else (5, 4))]
    x_theirs, x_ours = ([x.clone().requires_grad_() for x in inputs] for _ in range(2))

    mask = causal_mask(5) if masked else None
    key_mask = padding_mask([2, 4], 5 if kind == "encoder" else 4) if masked else None  # (2, 1, keys)
    if kind == "encoder":
        theirs_masks = {} if mask is None else {"src_mask": ~mask, "src_key_padding_mask": ~key_mask[:, 0]}
        ours_masks = {} if mask is None else {"mask": mask & key_mask}
    else:
        theirs_masks = {} if mask is None else {"tgt_mask": ~mask, "memory_key_padding_mask": ~key_mask[:, 0]}
        ours_masks = {"mask": mask, "memory_mask": key_mask}
    expected, output = theirs(*x_theirs, **theirs_masks), ours(*x_ours, **ours_masks)
    close = {"atol": DTYPES[dtype], "rtol": 10 * DTYPES[dtype]}
    assert output.dtype == dtype
    assert_close(output, expected, **close)

    upstream = normal(*output.shape, seed=9, dtype=dtype)
    expected.backward(upstream)
    output.backward(upstream)
    assert_close([x.grad for x in x_ours], [x.grad for x in x_theirs], **close)
    assert_close(ours.W_1.grad.mT, theirs.linear1.weight.grad, **close)
    assert_close(ours.W_2.grad.mT, theirs.linear2.weight.grad, **close)
    assert_close(ours.attention.W_O.grad.mT, theirs.self_attn.out_proj.weight.grad, **close)
    pairs = [(ours.attention_norm, theirs.norm1)]
    if kind == "decoder":
        pairs += [(ours.cross_attention_norm, theirs.norm2), (ours.mlp_norm, theirs.norm3)]
        assert_close(ours.cross_attention.W_O.grad.mT, theirs.multihead_attn.out_proj.weight.grad, **close)
    else:
        pairs += [(ours.mlp_norm, theirs.norm2)]
    for mine, yours in pairs:
        assert_close(mine.weight.grad, yours.weight.grad, **close)


@pytest.mark.parametrize("kind", ["encoder", "decoder"])
def test_from_torch_copies_and_keeps_mode_and_dropout(kind):
    theirs = torch_layer(kind, True, dropout=0.25).train()
    ours = TransformerBlock.from_torch(theirs)
    assert ours.training
    assert not TransformerBlock.from_torch(theirs.eval()).training
    assert (ours.dropout.p, ours.attention.dropout_p) == (0.25, 0.25)
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.zero_()
    assert all(parameter.abs().max() > 0 for parameter in theirs.parameters())


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_stacks_are_pytorchs(norm):
    pre = norm == "pre"
    encoder = random_module(
        nn.TransformerEncoder(
            torch_layer("encoder", pre), 2, nn.LayerNorm(12) if pre else None, enable_nested_tensor=False
        )
    )
    decoder = random_module(
        nn.TransformerDecoder(torch_layer("decoder", pre), 3, nn.LayerNorm(12) if pre else None), seed=1
    )
    ours = Transformer(12, 3, 2, 3, 20, norm=norm).double().eval()
    for mine, yours in ((ours.encoder, encoder.layers), (ours.decoder, decoder.layers)):
        for index, layer in enumerate(yours):
            mine[index] = TransformerBlock.from_torch(layer)
    if pre:
        ours.encoder_norm, ours.decoder_norm = copy.deepcopy(encoder.norm), copy.deepcopy(decoder.norm)

    source, target = normal(2, 4, 12), normal(2, 5, 12, seed=1)
    real = padding_mask([4, 2], 4)  # (2, 1, 4)
    expected = decoder(
        target,
        encoder(source, src_key_padding_mask=~real[:, 0]),
        tgt_mask=~causal_mask(5),
        memory_key_padding_mask=~real[:, 0],
    )
    output, weights = ours(source, target, real, return_weights=True)
    assert_close(output, expected)
    assert_close(ours(source, target, real), expected)
    assert_close(ours.decode(target, ours.encode(source, real), real), expected)
    assert {name: len(found) for name, found in weights.items()} == {"encoder": 2, "decoder": 3, "cross": 3}
    assert weights["cross"][0].shape == (2, 3, 5, 4)
    assert (weights["cross"][1][1, :, :, 2:] == 0).all()
    assert (weights["encoder"][1][1, :, :, 2:] == 0).all()


def test_parameters_are_as_many_as_pytorchs_and_as_the_checks_count():
    count = checks.stack_parameters.task.reference
    for dim, hidden, encoders, decoders in [(8, 20, 2, 3), (6, 24, 0, 2), (6, 7, 1, 0)]:
        ours = Transformer(dim, 2, encoders, decoders, hidden, norm="post")
        numbers = sum(parameter.numel() for parameter in ours.parameters())
        if encoders and decoders:
            assert numbers == count(dim, hidden, encoders, decoders)
        theirs = [nn.TransformerEncoderLayer(dim, 2, hidden)] * encoders
        if encoders:
            theirs += [nn.TransformerDecoderLayer(dim, 2, hidden)] * decoders
        else:
            theirs += [nn.TransformerEncoderLayer(dim, 2, hidden)] * decoders
        assert numbers == sum(p.numel() for layer in theirs for p in layer.parameters())
    assert count(512, 2048, 6, 6) == 44_138_496


# --- who can change whom ---


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_positions_meet_in_attention_and_nowhere_else(norm):
    block = random_module(TransformerBlock(8, 2, norm=norm))
    x = normal(5, 8)
    alone = torch.eye(5, dtype=torch.bool)
    assert torch.equal(influence(block.mlp, x), alone)
    assert torch.equal(influence(block.attention_norm, x), alone)
    assert torch.equal(influence(lambda x: block(x, mask=alone), x), alone)
    assert influence(block, x).all()
    assert torch.equal(influence(lambda x: block(x, mask=causal_mask(5)), x), causal_mask(5))
    assert is_equivariant(block, x)


@given(sizes, sizes, st.integers(2, 8), norms, seeds)
@settings(max_examples=20)
def test_a_decoder_never_sees_the_future(num_blocks, num_heads, positions, norm, seed):
    model = Transformer(4 * num_heads, num_heads, 0, num_blocks, norm=norm).double()
    x = normal(positions, 4 * num_heads, seed=seed)
    seen = influence(lambda x: model(target=x), x)
    assert not (seen & ~causal_mask(positions)).any()
    for cut in range(1, positions):
        assert_close(model(target=x[:cut]), model(target=x)[:cut])


@pytest.mark.parametrize("num_blocks", [1, 2, 3])
def test_each_block_reaches_one_radius_further(num_blocks):
    blocks = [random_module(TransformerBlock(8, 2, norm="pre"), seed) for seed in range(num_blocks)]

    def stack(x):
        for block in blocks:
            x = block(x, mask=local_mask(9, radius=1))
        return x

    assert torch.equal(influence(stack, normal(9, 8)), local_mask(9, radius=num_blocks))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_an_encoder_decoder_sees_the_whole_source_and_the_past_of_the_target(norm):
    model = Transformer(8, 2, 2, 2, norm=norm).double()
    source, target = normal(4, 8), normal(5, 8, seed=1)
    assert influence(lambda s: model(s, target), source).all()
    assert torch.equal(influence(lambda t: model(source, t), target), causal_mask(5))
    real = torch.tensor([[True, True, False, True]])
    hidden = influence(lambda s: model(s, target, real), source)
    assert torch.equal(hidden, real.expand(5, 4))


@given(sizes, st.integers(1, 5), norms, seeds)
@settings(max_examples=20)
def test_a_padded_source_gives_what_it_gives_alone(num_true, num_padding, norm, seed):
    model = Transformer(8, 2, 2, 1, norm=norm).double()
    source, target = normal(num_true + num_padding, 8, seed=seed), normal(3, 8, seed=seed + 1)
    alone = model(source[:num_true], target)
    padded = model(source, target, padding_mask([num_true], num_true + num_padding)[0])
    assert_close(padded, alone)


def test_batches_are_sequences_apart():
    model = Transformer(8, 2, 1, 2, norm="pre").double()
    source, target = normal(2, 3, 4, 8), normal(2, 3, 5, 8, seed=1)
    output = model(source, target)
    for index in itertools.product(range(2), range(3)):
        assert_close(output[index], model(source[index], target[index]))


def test_an_encoder_alone_and_a_decoder_alone():
    x = normal(2, 4, 8)
    encoder = Transformer(8, 2, 2, norm="pre").double()
    assert_close(encoder(x), encoder.encode(x))
    assert encoder(x, return_weights=True)[1]["decoder"] == []
    decoder = Transformer(8, 2, num_decoder_blocks=2, norm="pre").double()
    assert_close(decoder(target=x), decoder.decode(x))
    assert decoder(target=x, return_weights=True)[1]["cross"] == []


def test_with_pre_norm_each_stack_ends_normalised():
    x = 5 * normal(4, 8)
    for model in (Transformer(8, 2, 2, norm="pre"), Transformer(8, 2, 2, norm="post")):
        output = model.double()(x)
        assert_close(output.mean(-1), torch.zeros(4, dtype=torch.float64))
        assert_close(output.var(-1, correction=0), torch.ones(4, dtype=torch.float64), atol=1e-3, rtol=0)


# --- gradients, training, evaluation ---


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_gradients_match_finite_differences(norm):
    block = random_module(TransformerBlock(4, 2, 3, norm=norm, cross_attention=True))
    names = [name for name, _ in block.named_parameters()]
    tensors = [
        t.detach().clone().requires_grad_() for t in (normal(3, 4), normal(2, 4, seed=1), *block.parameters())
    ]

    def function(x, memory, *parameters):
        return torch.func.functional_call(
            block, dict(zip(names, parameters, strict=True)), (x, memory, causal_mask(3))
        )

    assert torch.autograd.gradcheck(function, tensors)


def test_dropout_acts_in_training_only():
    torch.manual_seed(0)
    block = TransformerBlock(8, 2, norm="pre", dropout_p=0.5)
    x = normal(4, 8, dtype=torch.float32)
    assert torch.equal(block.eval()(x), block(x))
    block.train()
    assert not torch.equal(block(x), block(x))
    # What a step adds is dropped as a whole, feature by feature: half of the sums stay as they were.
    nn.init.zeros_(block.W_2)
    nn.init.zeros_(block.attention.W_V)
    nn.init.ones_(block.attention.b_O)
    added = torch.stack([block(x) - x for _ in range(200)])
    assert (added.abs() < 1e-6).float().mean().item() == pytest.approx(0.5, abs=0.03)
    assert added.mean().item() == pytest.approx(1, abs=0.1)


def test_dropout_inside_the_mlp():
    torch.manual_seed(0)
    block = TransformerBlock(8, 2, 1000, norm="pre", dropout_p=0.25)
    nn.init.zeros_(block.W_1)
    nn.init.ones_(block.b_1)
    nn.init.constant_(block.W_2, 1 / 1000)
    kept = block.mlp(torch.zeros(50, 8))[:, 0]  # the mean of the hidden features that are left
    assert kept.mean().item() == pytest.approx(1, abs=0.02)
    assert kept.std().item() > 0.005


def test_state_is_saved_and_loaded():
    model, other = (Transformer(8, 2, 1, 1, norm="pre") for _ in range(2))
    other.load_state_dict(model.state_dict())
    source, target = normal(3, 8, dtype=torch.float32), normal(4, 8, dtype=torch.float32)
    assert torch.equal(model(source, target), other(source, target))


# --- bad arguments ---

x = torch.zeros(3, 8)
ENCODER, DECODER = Transformer(8, 2, 1, norm="pre"), Transformer(8, 2, 0, 1, norm="pre")
BOTH = Transformer(8, 2, 1, 1, norm="pre")
BLOCK = TransformerBlock(8, 2, norm="pre")
CROSS = TransformerBlock(8, 2, norm="pre", cross_attention=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: TransformerBlock(8, 2, norm="before"), "norm is 'before': expected one of pre, post"),
        (lambda: TransformerBlock(8, 3, norm="pre"), "model_dim is 8 and num_heads is 3"),
        (lambda: TransformerBlock(8, 2, 0, norm="pre"), "hidden_dim is 0"),
        (lambda: TransformerBlock(8, 2, norm="pre", dropout_p=2.0), "dropout_p is 2.0"),
        (lambda: BLOCK(x, x), "memory is given: expected none, as this block has no cross-attention"),
        (lambda: CROSS(x), "memory is not given: expected one, for its cross-attention"),
        (lambda: BLOCK(torch.zeros(3, 7)), r"x has shape \(3, 7\): expected \(..., positions, 8\)"),
        (lambda: CROSS(x, torch.zeros(3, 7)), r"key has shape \(3, 7\)"),
        (lambda: BLOCK(x, mask=torch.ones(2, 2, dtype=torch.bool)), r"mask has shape \(2, 2\)"),
        (lambda: Transformer(8, 2, norm="pre"), "are 0: expected at least one to be positive"),
        (lambda: Transformer(8, 2, -1, 1, norm="pre"), "num_encoder_blocks is -1"),
        (lambda: Transformer(8, 2, 1, norm="both"), "norm is 'both'"),
        (lambda: ENCODER(), "source is not given: expected one"),
        (lambda: ENCODER(x, x), "target is given: expected none"),
        (lambda: DECODER(x), "source is given: expected none"),
        (lambda: DECODER(), "target is not given: expected one"),
        (lambda: DECODER(target=x, source_mask=x > 0), "source_mask is given: expected none"),
        (lambda: BOTH(x), "target is not given"),
        (lambda: BOTH(x, x, causal_mask(3)), r"source_mask has shape \(3, 3\): expected \(..., 1,"),
        (lambda: BOTH(x, torch.zeros(2, 3, 8)), "expected the same leading dimensions"),
        (lambda: BOTH.decode(x), "memory is not given: expected one"),
        (lambda: DECODER.decode(x, x), "memory is given: expected none"),
        (lambda: DECODER.encode(x), "source is given: expected none"),
        (lambda: ENCODER.decode(x), "target is given: expected none"),
        (
            lambda: TransformerBlock.from_torch(nn.TransformerEncoderLayer(8, 2, activation=nn.SiLU())),
            "expected ReLU",
        ),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_from_torch_takes_only_the_two_layers():
    with pytest.raises(TypeError, match=r"layer is a MultiheadAttention: expected a torch\.nn\.Transformer"):
        TransformerBlock.from_torch(nn.MultiheadAttention(8, 2))
    assert isinstance(
        TransformerBlock.from_torch(nn.TransformerEncoderLayer(8, 2)).attention, MultiHeadAttention
    )
    assert TransformerBlock.from_torch(nn.TransformerEncoderLayer(8, 2, activation=nn.ReLU())).norm == "post"


def test_printing_a_block_says_its_kind():
    assert "norm='pre', hidden_dim=32" in repr(BLOCK)


# --- the experiment at the end of the exercise ---

SOLVED = {name: registry[name].reference for name in ("layer_norm", "mlp", "transformer_block")}
SOLVED_DECODER, SOLVED_STACK = registry["decoder_block"].reference, registry["causal_stack"].reference
TRAINED = (*SOLVED.values(), SOLVED_DECODER, registry["greedy_decode"].reference)


def test_the_trained_weights_in_right_functions_give_what_the_models_give():
    written, source = letters.encode("sorting", "<gino"), letters.encode("sorting", "sorting>")
    with torch.no_grad():
        expected = letters.results()["sorting"].model(written, source)
    sorter = experiment.sorter(*SOLVED.values(), SOLVED_DECODER)
    assert_close(sorter(written, source), expected)
    assert_close(sorter(written.tolist(), source.tolist()), expected)  # lists of numbers, too

    passage = letters.encode("text", "the reader looks back, and then once more at what was read before.")
    with torch.no_grad():
        expected = letters.results()["text"].model(passage[-64:])
    assert len(passage) > 64
    assert_close(experiment.writer(*SOLVED.values(), SOLVED_STACK)(passage), expected)


def test_what_is_computed_is_the_functions_own():
    """Any of them may be changed, and the scores change."""
    written, source = letters.encode("sorting", "<gino"), letters.encode("sorting", "sorting>")
    parts = [*SOLVED.values(), SOLVED_DECODER]
    right = experiment.sorter(*parts)(written, source)
    for place, name in enumerate((*SOLVED, "decoder_block")):
        wrong = registry[name].single_mistakes[0]
        changed = experiment.sorter(*parts[:place], wrong, *parts[place + 1 :])
        assert not torch.allclose(changed(written, source), right, atol=1e-3), name


def test_words_to_sort():
    words, in_order = experiment.some_words(200, torch.Generator().manual_seed(0))
    assert words.shape == (200, 5)
    assert in_order.shape == (200, 6)
    assert torch.equal(words[:, :-1].sort(1).values, in_order[:, 1:-1])
    assert (in_order.diff(dim=1) > 0).all()  # from the start over different letters to the end
    assert set(in_order.flatten().tolist()) == set(range(10))


def test_training_is_fixed_by_its_seed_and_leaves_random_numbers_alone():
    torch.manual_seed(3)
    first = experiment.train(*TRAINED, steps=3)
    after = torch.rand(1)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after)
    assert torch.equal(experiment.train(*TRAINED, steps=3).losses, first.losses)
    assert not torch.equal(experiment.train(*TRAINED, steps=3, seed=1).losses, first.losses)
    assert first.losses[0] == pytest.approx(math.log(10))  # of ten letters and signs nothing is known
    assert first.kind == "as it should be"
    assert 0 <= first.words_right <= 1


def test_the_runs_differ_in_what_they_see():
    losses = {kind: experiment.train(*TRAINED, kind=kind, steps=40) for kind in experiment.KINDS}
    ends = {kind: run.losses[-5:].mean() for kind, run in losses.items()}
    blind = registry["blind_loss"].reference(experiment.NUM_LETTERS, experiment.LENGTH)
    assert ends["with an open mask"] < ends["without the source"]
    assert ends["without the source"] > blind  # which nothing without the source can beat
    assert losses["without the source"].words_right < 0.3


def test_a_table_and_a_figure_of_runs_say_what_came_of_them():
    runs = [
        experiment.Run("as it should be", torch.linspace(2, 0.25, 30), 0.98),
        experiment.Run("without the source", torch.full((30,), 0.75), 0.0),
    ]
    lines = repr(experiment.table(runs)).splitlines()
    assert "98%" in lines[1]
    assert "0.75" in lines[2]
    figure = experiment.figure(runs, 0.85)
    assert "without the source, it ends at 0.75" in figure.alt
    assert "0.85" in figure.alt
    assert figure.caption in figure._repr_html_()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: experiment.train(*TRAINED, kind="blind"), "kind is 'blind': expected one of"),
        (lambda: experiment.train(*TRAINED, steps=0), "steps is 0"),
        (lambda: experiment.some_words(0, torch.Generator()), "number is 0"),
        (lambda: experiment.figure([], 0.85), "runs has 0 runs"),
    ],
)
def test_bad_arguments_of_the_experiment_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
