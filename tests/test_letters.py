"""The two letter models: their data, who sees what in them, their training, and the committed results."""

import json
import math

import pytest
import torch
from commands import Command
from hypothesis import given
from hypothesis import strategies as st

from attncourse import causal_mask, influence, letters
from attncourse.letters import LetterModel, Run, training
from attncourse.letters.__main__ import main
from attncourse.letters.data import text_batch

RESULTS = letters.results()


pytestmark = pytest.mark.usefixtures("one_thread")


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


# --- data ---


@given(st.text(letters.ALPHABETS["sorting"], max_size=10))
def test_letters_become_numbers_and_letters_again(word):
    assert letters.decode("sorting", letters.encode("sorting", word)) == word


def test_the_text_is_plain_and_its_end_is_held_out():
    assert 5_000 < len(letters.TEXT) < 20_000
    assert set(letters.TEXT) <= set(" ,.abcdefghijklmnopqrstuvwxyz")
    assert "  " not in letters.TEXT
    known, held_out = letters.text_parts()
    assert letters.decode("text", torch.cat((known, held_out))) == letters.TEXT
    assert len(held_out) / len(letters.TEXT) == pytest.approx(0.1, abs=0.001)


def test_passages_are_of_the_text_to_train_on_and_targets_come_one_later():
    torch.manual_seed(0)
    known = letters.decode("text", letters.text_parts()[0])
    passages, next_letters = text_batch(200, 30)
    for passage, later in zip(passages, next_letters, strict=True):
        whole = letters.decode("text", torch.cat((passage, later[-1:])))
        assert whole in known
        assert torch.equal(passage[1:], later[:-1])


@given(st.integers(1, 5), st.integers(1, 8), st.integers(0, 2**32 - 1))
def test_words_and_their_letters_in_order(num_words, length, seed):
    torch.manual_seed(seed)
    words, in_order = letters.random_words(num_words, length)
    assert words.shape == (num_words, length + 1)
    for word, ordered in zip(words, in_order, strict=True):
        *word, end = letters.decode("sorting", word)
        assert end == ">"
        assert len(set(word)) == length
        assert letters.decode("sorting", ordered) == f"<{''.join(sorted(word))}>"
        assert "".join(word).isalpha()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: letters.encode("text", "a!"), "letters has '!'"),
        (lambda: letters.encode("words", "a"), "task is 'words': expected one of text, sorting"),
        (lambda: letters.decode("words", torch.tensor([0])), "task is 'words'"),
        (lambda: letters.random_words(0, 3), "num_words is 0"),
        (lambda: letters.random_words(1, 27), "length is 27: expected at most 26"),
        (lambda: LetterModel("words"), "task is 'words'"),
        (lambda: letters.train(Run("words")), "task is 'words'"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- models ---


def test_the_text_model_sees_only_the_past():
    model = RESULTS["text"].model
    x = model.embed(letters.encode("text", "a word does")).detach()
    seen = influence(lambda x: model.transformer(target=x) @ model.W_out, x)
    assert torch.equal(seen, causal_mask(11))
    written = letters.encode("text", "a word does not")
    for length in range(1, 15):
        torch.testing.assert_close(model(written[:length]), model(written)[:length])


def test_maps_are_those_of_every_block():
    target, source = letters.encode("sorting", "<ab"), letters.encode("sorting", "dab>")
    maps = RESULTS["sorting"].model.attention_maps(target, source)
    assert {name: [tuple(m.shape) for m in found] for name, found in maps.items()} == {
        "encoder": [(4, 4, 4)], "decoder": [(4, 3, 3)], "cross": [(4, 3, 4)],
    }  # fmt: skip
    maps = RESULTS["text"].model.attention_maps(letters.encode("text", "abc"))
    assert [len(maps[name]) for name in ("encoder", "decoder", "cross")] == [0, 2, 0]


# --- training ---


@pytest.mark.parametrize("task", letters.TASKS)
def test_a_run_is_its_seed_and_learns(task):
    run = Run(task, steps=20, batch=8, length=16, dropout=0.1)
    state = torch.random.get_rng_state()
    (first, log), (second, _) = (letters.train(run) for _ in range(2))
    assert torch.equal(weights_of(first), weights_of(second))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert log["steps"] == list(range(1, 21))
    assert log["loss"][0] == pytest.approx(math.log(len(letters.ALPHABETS[task])), abs=0.01)
    assert sum(log["loss"][-5:]) / 5 < log["loss"][0] - 0.15
    assert not first.training
    other = letters.train(Run(task, steps=20, batch=8, length=16, dropout=0.1, seed=2))[0]
    assert not torch.equal(weights_of(first), weights_of(other))


@pytest.mark.parametrize("task", letters.TASKS)
def test_an_interrupted_training_ends_with_the_same_weights(task, tmp_path, monkeypatch):
    run = Run(task, steps=12, batch=4, length=8, dropout=0.2)
    whole, log = letters.train(run)
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > 7:
            raise KeyboardInterrupt
        return training_loss(*arguments)

    training_loss = training.training_loss
    with monkeypatch.context() as patch:
        patch.setattr(training, "training_loss", interrupted)
        with pytest.raises(KeyboardInterrupt):
            letters.train(run, tmp_path)
    torch.manual_seed(123)  # what else happens in between does not matter
    resumed, resumed_log = letters.train(run, tmp_path)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert resumed_log["loss"] == log["loss"]
    with pytest.raises(ValueError, match=r"different run, .*--steps 12 .*remove it"):
        letters.train(Run(task, steps=13, batch=4, length=8, dropout=0.2), tmp_path)


@pytest.mark.slow
def test_the_command_trains_writes_and_does_not_overwrite(tmp_path):
    run = Run("sorting", steps=3, batch=2)
    made = Command(main, tmp_path, *run.command.split()[3:], "--out", str(tmp_path)).ended()
    assert made.returncode == 0, made.stderr
    assert "3 of 3 steps, loss" in made.stderr
    assert "words right 0.0000" in made.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["sorting.json", "sorting.npz"]
    result = letters.results(tmp_path)["sorting"]
    assert torch.equal(weights_of(result.model), weights_of(letters.train(run)[0]).half().float())
    before = (tmp_path / "sorting.json").read_text()
    with pytest.raises(SystemExit):
        main(["train", "sorting", "--steps", "4", "--out", str(tmp_path)])
    main(["train", "sorting", "--steps", "3", "--batch", "2", "--out", str(tmp_path)])
    assert (tmp_path / "sorting.json").read_text() == before


# --- what comes with the course ---


def test_the_committed_runs_are_small_and_say_how_they_were_made():
    assert set(RESULTS) == set(letters.TASKS)
    for task, (run, log, model) in RESULTS.items():
        assert (letters.RESULTS / f"{task}.npz").stat().st_size < 1_000_000
        assert log["command"] == run.command
        assert log["parameters"] == sum(weight.numel() for weight in model.parameters())
        assert log["test"] == pytest.approx(letters.evaluate(model, task), abs=1e-4)
        assert json.loads((letters.RESULTS / f"{task}.json").read_text())["steps"][-1] == run.steps


def test_the_text_model_beats_counting_pairs():
    known, held_out = letters.text_parts()
    number = len(letters.ALPHABETS["text"])
    pairs = torch.ones(number, number)
    pairs.index_put_((known[:-1], known[1:]), torch.tensor(1.0), accumulate=True)
    chances = pairs / pairs.sum(1, keepdim=True)
    counting = -chances[held_out[:-1], held_out[1:]].log().mean()
    assert RESULTS["text"].log["test"]["held_out"] < counting - 0.5


@torch.no_grad()
def test_the_sorting_model_sorts_every_fresh_word():
    model = RESULTS["sorting"].model
    torch.manual_seed(5)
    for length in range(2, 13):
        words, in_order = letters.random_words(100, length)
        written = in_order[:, :1]
        for _ in range(length + 1):
            written = torch.cat((written, model(written, words)[:, -1:].argmax(-1)), dim=1)
        assert torch.equal(written, in_order)


@torch.no_grad()
def test_what_is_written_comes_from_the_memory():
    model = RESULTS["sorting"].model
    torch.manual_seed(6)
    words, in_order = letters.random_words(50, 8)
    others = words.roll(1, 0)
    found = model(in_order[:, :-1], others)[:, 0].argmax(-1)  # what comes after the start
    assert torch.equal(found, in_order.roll(1, 0)[:, 1])
    assert not torch.equal(found, in_order[:, 1])
