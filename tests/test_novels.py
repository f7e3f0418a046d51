"""The novels: text, tokens, counting models, training and its interruptions, and the committed results."""

import collections
import importlib
import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attncourse import LanguageModel, generate, novels, parameter_count
from attncourse.novels import NGramModel, Run, training
from attncourse.novels.__main__ import main
from attncourse.novels.data import TOKENIZER

results_module = importlib.import_module("attncourse.novels.results")  # its name is that of a function, too
RESULTS = novels.results()
COURSE = Run("full").name

pytestmark = pytest.mark.usefixtures("one_thread")


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


# --- text and tokens ---


def test_the_novels_begin_where_they_begin():
    first = {
        "sense_and_sensibility": "The family of Dashwood had long been settled in Sussex.",
        "pride_and_prejudice": "It is a truth universally acknowledged,",
        "mansfield_park": "About thirty years ago Miss Maria Ward,",
        "emma": "Emma Woodhouse, handsome, clever, and rich,",
        "northanger_abbey": "No one who had ever seen Catherine Morland",
        "persuasion": "Sir Walter Elliot, of Kellynch Hall, in Somersetshire,",
    }
    assert set(first) == set(novels.NOVELS)
    for name, words in first.items():
        text = novels.novel(name)
        assert text.startswith(words)
        assert 400_000 < len(text) < 1_000_000
        lines = text.splitlines()
        assert all(line and line == line.strip() and "  " not in line for line in lines)
        assert not any(line.lower().startswith(("chapter", "volume")) for line in lines)
        assert "_" not in text
        assert "gutenberg" not in text.lower()


@pytest.mark.slow
def test_the_novel_held_out_is_not_among_those_to_train_on():
    assert novels.HELD_OUT not in novels.TRAINING
    known = {line for name in novels.TRAINING for line in novels.novel(name).splitlines()}
    assert not [
        line for line in novels.novel(novels.HELD_OUT).splitlines() if len(line) > 60 and line in known
    ]
    assert novels.decode(novels.training_tokens()) == "".join(map(novels.novel, novels.TRAINING))
    assert novels.decode(novels.held_out_tokens()) == novels.novel(novels.HELD_OUT)


@settings(max_examples=50)
@given(st.text(max_size=30))
def test_tokens_become_any_text_again(text):
    tokens = novels.encode(text)
    assert tokens.dtype == torch.long
    assert novels.decode(tokens) == text
    assert novels.decode(tokens.to(torch.int32)) == text


def test_common_words_are_one_token():
    pieces = [novels.decode(token) for token in novels.encode("My dear Mrs. Bennet's carriage").split(1)]
    assert "".join(pieces) == "My dear Mrs. Bennet's carriage"
    assert {" dear", " Mrs"} <= set(pieces)


def test_the_tokens_are_learned_from_the_novels_to_train_on():
    made = novels.byte_pair_tokenizer("".join(map(novels.novel, novels.TRAINING)))
    assert json.loads(made.to_str()) == json.loads(TOKENIZER.read_text(encoding="utf-8"))
    assert made.get_vocab_size() == novels.VOCABULARY_SIZE == 2048


def test_the_most_frequent_pair_becomes_a_token_first():
    text = "low low low lower lower newest newest newest newest newest widest\n"
    merges = json.loads(novels.byte_pair_tokenizer(text, 256 + 6).to_str())["model"]["merges"]

    # By hand: words as tuples of tokens, the space before a word is "Ġ"; of equal pairs any may come first.
    words = collections.Counter(tuple("Ġ" + word) for word in text.split())
    words[tuple("low")] += 1
    words[tuple("Ġlow")] -= 1
    for merge in merges:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += count
        assert pairs[tuple(merge)] == max(pairs.values())
        merged = collections.Counter()
        for word, count in words.items():
            parts, rest = [], list(word)
            while rest:
                size = 2 if tuple(rest[:2]) == tuple(merge) else 1
                parts.append("".join(rest[:size]))
                del rest[:size]
            merged[tuple(parts)] += count
        words = merged


def test_a_short_text_gives_as_many_tokens_as_it_can():
    tokenizer = novels.byte_pair_tokenizer("a b", 300)
    assert 256 <= tokenizer.get_vocab_size() < 300
    for text in ("a b", "", "Ä € \n\t\x00"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


# --- counting ---

SMALL = torch.randint(5, (60,), generator=torch.Generator().manual_seed(0))


def kneser_ney(tokens, order, word, before):
    """The equation in the docstring, with dictionaries: the probability of a word after others."""

    def probability(length, context):
        if length == 0:
            return 1 / novels.VOCABULARY_SIZE
        runs = [tuple(tokens[n : n + length]) for n in range(len(tokens) - length + 1)]
        counts = collections.Counter(runs)
        if length < order:  # how many different tokens stood before
            longer = {tuple(tokens[n : n + length + 1]) for n in range(len(tokens) - length)}
            counts = collections.Counter(run[1:] for run in longer)
        shorter = probability(length - 1, context[1:])
        after = {run: count for run, count in counts.items() if run[:-1] == context}
        if not after:
            return shorter
        once, twice = (list(counts.values()).count(number) for number in (1, 2))
        discount = once / (once + 2 * twice) if once and twice else 0.5
        total = sum(after.values())
        own = max(after.get((*context, word), 0) - discount, 0) / total
        return own + discount * len(after) / total * shorter

    length = min(order, len(before) + 1)
    return probability(length, tuple(before[len(before) - length + 1 :]))


@pytest.mark.parametrize("order", range(1, 6))
def test_counting_is_its_equation(order):
    text = torch.tensor([1, 4, 0, 0, 3, 7, 1, 1, 2, 4])  # with a token that was never seen
    losses = NGramModel(SMALL, order).token_losses(text)
    known, written = SMALL.tolist(), text.tolist()
    expected = [-math.log(kneser_ney(known, order, written[n], written[:n])) for n in range(1, len(written))]
    assert losses.tolist() == pytest.approx(expected)
    # A text may be shorter than what is counted.
    assert NGramModel(SMALL, order).token_losses(text[:2]).tolist() == pytest.approx(expected[:1])


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("before", [(1, 2), (7, 7), (0, 9)])
def test_the_probabilities_of_all_tokens_sum_to_one(order, before):
    every = torch.arange(novels.VOCABULARY_SIZE)
    text = torch.stack((*(torch.full_like(every, token) for token in before), every), 1).flatten()
    losses = NGramModel(SMALL, order).token_losses(text)
    assert losses[1::3].neg().exp().sum().item() == pytest.approx(1)


@pytest.mark.slow
def test_longer_contexts_help_on_the_novel_held_out():
    losses = novels.ngram_losses()
    assert list(losses) == [1, 2, 3, 4, 5]
    assert losses[1] > losses[2] > losses[3] > losses[5]
    counted = NGramModel(novels.training_tokens(), 2).token_losses(novels.held_out_tokens())
    assert counted.mean().item() == pytest.approx(losses[2], abs=1e-5)


# --- losses ---


def tiny():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LanguageModel(training.model_config("small", "today"))
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2)
    return model.eval()


@settings(max_examples=5)
@given(st.integers(2, 30), st.integers(2, 12))
@torch.no_grad()
def test_each_token_is_scored_once_and_from_half_a_passage_or_more(number, length):
    model = tiny()
    tokens = novels.held_out_tokens()[:number]
    losses = novels.token_losses(model, tokens, length)
    assert losses.shape == (number - 1,)
    half = length // 2
    for place in range(1, number):
        start = max(0, (place - 1) // half * half - half)
        scores = torch.log_softmax(model(tokens[start:place])[-1], -1)
        assert losses[place - 1].item() == pytest.approx(-scores[tokens[place]].item(), abs=1e-4)
        assert place - start >= min(place, half)


# --- training ---


@pytest.mark.parametrize("size", novels.SIZES)
def test_all_variants_have_as_many_parameters(size):
    wanted = parameter_count(training.model_config(size, "today"))
    variants = novels.VARIANTS if size == "small" else ("before", "today")
    for variant in variants:
        model = LanguageModel(training.model_config(size, variant))
        assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(wanted, rel=0.002)
    assert training.model_config(size, "before").norm == "layer"
    assert training.model_config(size, "today").key_value_heads == 2


@pytest.mark.slow
def test_a_run_is_its_seed_and_reads_the_novels_to_train_on(monkeypatch):
    run = Run("small", steps=3, batch=2, dropout=0.1)
    read, forward = [], LanguageModel.forward

    def watched(model, tokens, *arguments, **options):
        read.extend(tokens)
        return forward(model, tokens, *arguments, **options)

    state = torch.random.get_rng_state()
    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "forward", watched)
        first, log = novels.train(run)
    second, _ = novels.train(run)
    assert torch.equal(weights_of(first), weights_of(second))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert log["steps"] == [1, 2, 3]
    assert log["loss"][0] == pytest.approx(math.log(novels.VOCABULARY_SIZE), abs=0.2)
    assert not first.training
    other = novels.train(Run("small", steps=3, batch=2, dropout=0.1, seed=2))[0]
    assert not torch.equal(weights_of(first), weights_of(other))
    assert len(read) == 6
    text = novels.training_tokens().numpy().tobytes()
    assert all(passage.shape == (128,) and passage.numpy().tobytes() in text for passage in read)


@pytest.mark.slow
def test_it_learns():
    _, log = novels.train(Run("small", steps=15, batch=4))
    assert sum(log["loss"][-5:]) / 5 < log["loss"][0] - 0.4


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path, monkeypatch):
    run = Run("small", steps=7, batch=1, dropout=0.2)
    whole, log = novels.train(run)
    calls, forward = [], LanguageModel.forward

    def interrupted(*arguments, **options):
        calls.append(arguments)
        if len(calls) > 4:
            raise KeyboardInterrupt
        return forward(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(LanguageModel, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            novels.train(run, tmp_path)
    torch.manual_seed(123)  # what else happens in between does not matter
    resumed, resumed_log = novels.train(run, tmp_path)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert resumed_log["loss"] == log["loss"]
    with pytest.raises(ValueError, match=r"different run, .*--steps 7 .*remove it"):
        novels.train(Run("small", steps=8, batch=1, dropout=0.2), tmp_path)


# --- the command ---


@pytest.fixture
def short(monkeypatch):
    """A test on the first lines of the novel, not on all of it."""
    tokens = novels.held_out_tokens()[:200]
    monkeypatch.setattr(results_module, "held_out_tokens", lambda: tokens)
    monkeypatch.setattr(results_module, "novel", lambda name: novels.decode(tokens))
    return tokens


def test_the_command_trains_writes_and_does_not_overwrite(tmp_path, short, capsys):
    run = Run("small", variant="mlp", steps=2, batch=1)
    command = [*run.command.split()[3:], "--out", str(tmp_path)]
    main(command)
    said = capsys.readouterr()
    assert "2 of 2 steps, loss" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{run.name}.json", f"{run.name}.npz"]
    result = novels.results(tmp_path)[run.name]
    assert result.run == run
    assert torch.equal(weights_of(result.model), weights_of(novels.train(run)[0]).half().float())
    loss = novels.token_losses(result.model, short).mean().item()
    assert result.log["held_out"]["loss"] == pytest.approx(loss, rel=1e-6)
    assert f"{run.name:28} loss {loss:.4f} a token" in said.out
    before = (tmp_path / f"{run.name}.json").read_text()
    with pytest.raises(SystemExit):
        main([*command, "--steps", "3"])
    assert "another run of this name" in capsys.readouterr().err
    main(command)
    assert (tmp_path / f"{run.name}.json").read_text() == before
    main(["evaluate", "--folder", str(tmp_path)])
    assert f"loss {loss:.4f}" in capsys.readouterr().out


def test_the_command_goes_on_with_a_text(monkeypatch, capsys):
    monkeypatch.setattr(novels, "course_model", tiny)
    main(["write", "My dear", "--tokens", "4", "--temperature", "0"])
    expected = generate(tiny(), novels.encode("My dear"), 4, temperature=0)
    assert capsys.readouterr().out == novels.decode(expected) + "\n"
    texts = []
    for seed in ("1", "1", "2"):
        main(["write", "My dear", "--tokens", "4", "--seed", seed])
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required: COMMAND"),
        (["read"], "invalid choice: 'read'"),
        (["train", "huge"], "invalid choice: 'huge'"),
        (["train", "small", "--variant", "none"], "invalid choice: 'none'"),
        (["train", "small", "--layers", "3"], "unrecognized arguments: --layers 3"),
        (["train", "small", "--steps", "0"], "steps is 0: expected at least 1"),
        (["train", "small", "--batch", "0"], "batch is 0: expected at least 1"),
        (["write", ""], "tokens has shape (0,): expected (positions,), at least one"),
        (["write", "My dear", "--tokens", "500"], "num_tokens is 500: expected at most 128 positions in all"),
        (["write", "My dear", "--temperature", "-1"], "temperature is -1.0: expected at least 0"),
        (["write", "My dear", "--top-p", "0"], "top_p is 0.0: expected more than 0"),
    ],
)
def test_a_wrong_command_is_a_sentence(arguments, words, monkeypatch, capsys):
    monkeypatch.setattr(novels, "course_model", tiny)
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert words in capsys.readouterr().err


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--help"])
    assert stopped.value.code == 0
    said = capsys.readouterr().out
    for name in ("train", "evaluate", "write", "ngrams"):
        assert f"\n    {name} " in said
    assert "five of Jane Austen's novels" in said


# --- bad input ---


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: novels.novel("sanditon"), "name is 'sanditon': expected one of sense_and_sensibility, "),
        (
            lambda: novels.decode(torch.tensor([5, 2048])),
            "tokens holds 2048: expected numbers from 0 to 2047",
        ),
        (lambda: novels.decode(torch.tensor([-1])), "tokens holds -1"),
        (lambda: novels.byte_pair_tokenizer("text", 255), "vocabulary_size is 255: expected at least 256"),
        (lambda: novels.model_config("medium", "today"), "size is 'medium': expected one of full, small"),
        (lambda: novels.model_config("small", "newest"), "variant is 'newest': expected one of before, "),
        (lambda: novels.train(Run("medium")), "size is 'medium'"),
        (lambda: novels.token_losses(tiny(), torch.tensor([1])), r"tokens has shape \(1,\): .*at least two"),
        (lambda: novels.token_losses(tiny(), torch.ones(2, 3)), r"tokens has shape \(2, 3\)"),
        (lambda: novels.token_losses(tiny(), torch.tensor([1, 2, 3]), 1), "length is 1: expected at least 2"),
        (lambda: novels.token_losses(tiny(), torch.tensor([1, 2, 3]), 129), "length is 129: .* at most 128"),
        (lambda: NGramModel(SMALL, 0), "order is 0: expected at least 1"),
        (lambda: NGramModel(SMALL, 6), "order is 6: expected at most 5"),
        (lambda: NGramModel(SMALL[:3], 3), r"tokens has shape \(3,\): expected more than order=3"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_weights_of_another_model_are_named(tmp_path):
    """Weights whose log says another size than they have."""
    run = Run("small")
    torch.manual_seed(0)
    results_module.save_weights(
        tmp_path / f"{run.name}.npz", LanguageModel(novels.model_config("full", "today"))
    )
    (tmp_path / f"{run.name}.json").write_text(json.dumps({"run": {"size": "small"}}))
    with pytest.raises(
        ValueError, match=r"has table of shape \(2048, 192\): expected \(2048, 96\); make the"
    ):
        novels.results(tmp_path)


# --- what comes with the course ---


def test_the_committed_runs_are_small_and_say_how_they_were_made():
    assert COURSE in RESULTS
    assert RESULTS[COURSE].model is not None
    assert sum(path.stat().st_size for path in novels.RESULTS.iterdir()) < 8_000_000
    for name, (run, log, model) in RESULTS.items():
        assert run.name == name
        assert log["command"] == run.command
        assert log["steps"][-1] == run.steps
        config = novels.model_config(run.size, run.variant)
        assert log["parameters"] == sum(weight.numel() for weight in LanguageModel(config).parameters())
        assert (model is not None) == (name == COURSE)
        test = log["held_out"]
        nats = test["loss"] * (len(novels.held_out_tokens()) - 1)
        letters = len(novels.novel(novels.HELD_OUT))
        assert test["bits_per_letter"] == pytest.approx(nats / math.log(2) / letters, rel=1e-5)


def test_the_committed_model_is_as_good_as_its_log_says():
    """On pieces of the whole novel, as many as a few seconds allow: a sample, to three standard errors."""
    model, tokens = novels.course_model(), novels.held_out_tokens()
    assert not model.training
    assert torch.equal(weights_of(model), weights_of(RESULTS[COURSE].model))
    pieces = tokens.unfold(0, 257, 128)[3::24]
    with torch.no_grad():
        logits = model(pieces[:, :-1])[:, 128:]
    losses = torch.nn.functional.cross_entropy(logits.mT, pieces[:, 129:], reduction="none").mean(1)
    error = losses.std() / math.sqrt(len(losses))
    assert error < 0.1
    told = RESULTS[COURSE].log["held_out"]["loss"]
    assert abs(losses.mean() - told) < 3 * error
    assert told < min(novels.ngram_losses().values())


def test_the_course_model_writes_the_same_with_and_without_a_cache():
    model, tokens = novels.course_model(), novels.encode("My dear Emma,")
    found = [generate(model, tokens, 40, temperature=0, use_cache=use_cache) for use_cache in (True, False)]
    assert torch.equal(*found)
    assert novels.decode(found[0]).startswith("My dear Emma,")


@pytest.mark.slow
def test_the_next_token_is_what_is_learned_with_the_dropout_asked_for(monkeypatch):
    read, asked = [], []
    forward, loss = LanguageModel.forward, torch.nn.functional.cross_entropy

    def reads(model, tokens, *arguments, **options):
        read.append(tokens)
        return forward(model, tokens, *arguments, **options)

    def asks(logits, target, *arguments, **options):
        asked.append(target)
        return loss(logits, target, *arguments, **options)

    monkeypatch.setattr(LanguageModel, "forward", reads)
    monkeypatch.setattr(torch.nn.functional, "cross_entropy", asks)
    model, _ = novels.train(Run("small", steps=1, batch=2, dropout=0.3))
    assert {part.p for part in model.modules() if isinstance(part, torch.nn.Dropout)} == {0.3}
    assert torch.equal(asked[0].view(2, -1)[:, :-1], read[0][:, 1:])
