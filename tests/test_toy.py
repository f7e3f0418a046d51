"""The running experiment: its data shape by shape, its layer, its training, and the committed results."""

import importlib
import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from attncourse import attention, binary_encoding, toy
from attncourse.toy import NOISE_FLOOR, Run, SelfAttention, ToyModel, training
from attncourse.toy.__main__ import main, parser

RESULTS = toy.results()
versions = st.sampled_from(toy.VERSIONS)
seeds = st.integers(0, 2**63 - 1)


pytestmark = pytest.mark.usefixtures("one_thread")


def data_from(version, num_sequences, seed=0):
    return toy.make_data(version, num_sequences, torch.Generator().manual_seed(seed))


def drawn(shapes, t):
    """What four shapes, (is it a triangle, centre, width, height), show at position t: loops, no tensors."""
    total = 0.0
    for triangle, centre, width, height in shapes:
        distance = abs(t - centre)
        if not triangle:
            total += height if distance < width / 2 else 0.0
        elif distance <= 0.5:
            total += height
        elif distance < width / 2 + 0.5:
            total += height * (width / 2 + 0.5 - distance) / (width / 2)
    return total


def averaged(version, shapes):
    """The shapes with the heights of the target, by the words of the task."""
    if version == "A":
        pairs = [[shape for shape in shapes if shape[0] is kind] for kind in (True, False)]
    else:
        from_left = sorted(shapes, key=lambda shape: shape[1])
        pairs = [from_left[:2], from_left[2:]]
    return [(*shape[:3], sum(each[3] for each in pair) / 2) for pair in pairs for shape in pair]


def shapes_of(data, n):
    columns = (data.centre[n].tolist(), data.width[n].tolist(), data.height[n].tolist())
    return list(zip((True, True, False, False), *columns, strict=True))


# --- data ---


@given(version=versions, seed=seeds)
@settings(max_examples=20)
def test_inputs_and_targets_are_their_shapes_and_noise(version, seed):
    data = data_from(version, 3, seed)
    for n in range(3):
        shapes = shapes_of(data, n)
        for signal_, its_shapes in ((data.input, shapes), (data.target, averaged(version, shapes))):
            clean = torch.tensor([drawn(its_shapes, t) for t in range(toy.LENGTH)])
            assert (signal_[n, 0] - clean).abs().max() < toy.NOISE_WIDTH / 2 + 1e-3


@given(version=versions, seed=seeds)
@settings(max_examples=20)
def test_shapes_lie_apart_and_within_their_ranges(version, seed):
    data = data_from(version, 20, seed)
    for n in range(20):
        shapes = shapes_of(data, n)
        for t in range(toy.LENGTH):
            assert sum(drawn([shape], t) > 0 for shape in shapes) <= 1
        for _, centre, width, height in shapes:
            assert 5.5 <= centre <= 94.5
            assert 5 <= width <= 11
            assert 1 <= height <= 25


@given(version=versions, seed=seeds)
@settings(max_examples=20)
def test_what_is_to_be_told_apart_differs_by_more_than_4(version, seed):
    data = data_from(version, 20, seed)
    for n in range(20):
        shapes = shapes_of(data, n)
        if version == "A":
            differences = [shapes[0][3] - shapes[1][3], shapes[2][3] - shapes[3][3]]
        else:
            left, *_, right = sorted(averaged("B", shapes), key=lambda shape: shape[1])
            differences = [left[3] - right[3]]
        assert min(map(abs, differences)) > 4


def test_nothing_more_is_rejected_than_must_be():
    # Close to the limits there are sequences: heights just more than 4 apart, shapes that touch.
    data = data_from("A", 5_000)
    differences = (data.height[:, 0::2] - data.height[:, 1::2]).abs()
    assert differences.min() < 4.01
    empty = (toy.profiles(data.centre, data.width) > 0).sum(1) == 0  # (num_sequences, LENGTH)
    blocks = ((~empty[:, 1:]) & empty[:, :-1]).sum(1) + ~empty[:, 0]
    assert blocks.min() == 1
    assert data.centre.min() < 5.6
    assert data.centre.max() > 94.4
    # Overlapping sequences are drawn again, so what is left prefers narrow shapes, but has wide ones.
    assert data.width.max() > 10.95


@pytest.mark.parametrize("version", toy.VERSIONS)
def test_partners_are_mutual_and_target_heights_their_mean(version):
    data = data_from(version, 200)
    assert_close(data.partner.gather(1, data.partner), torch.arange(4).expand(200, 4))
    assert (data.partner != torch.arange(4)).all()
    assert_close(data.target_height, (data.height + data.height.gather(1, data.partner)) / 2)
    in_b_kinds_mix = (data.partner != torch.tensor([1, 0, 3, 2])).any()
    assert in_b_kinds_mix == (version == "B")


def test_the_noise_is_uniform_and_independent():
    data = data_from("A", 2_000)
    profile = toy.profiles(data.centre, data.width)
    noises = [
        (signal_ - (height.unsqueeze(-1) * profile).sum(1, keepdim=True)).flatten()
        for signal_, height in ((data.input, data.height), (data.target, data.target_height))
    ]
    for noise in noises:
        assert noise.abs().max() < 0.15001
        assert (noise.abs() < 0.075).float().mean() == pytest.approx(0.5, abs=0.01)
        assert noise.mean().abs() < 0.001
        assert noise.square().mean() == pytest.approx(NOISE_FLOOR, rel=0.02)
    assert abs(torch.corrcoef(torch.stack(noises))[0, 1]) < 0.01


def test_the_noise_floor():
    assert pytest.approx(0.0075) == NOISE_FLOOR


def test_data_come_from_the_seed_alone():
    same, again, other = data_from("A", 5, seed=3), data_from("A", 5, seed=3), data_from("A", 5, seed=4)
    assert all(torch.equal(mine, yours) for mine, yours in zip(same, again, strict=True))
    assert not torch.equal(same.input, other.input)
    # The generator moves on: the next sequences are new ones.
    generator = torch.Generator().manual_seed(3)
    first, second = (toy.make_data("A", 5, generator) for _ in range(2))
    assert torch.equal(first.input, same.input)
    assert not torch.equal(first.input, second.input)
    assert torch.equal(toy.make_test_data("A", 5).input, toy.make_test_data("A", 5).input)


@pytest.mark.parametrize("num_sequences", [1, 7, 250])
def test_as_many_sequences_as_wanted(num_sequences):
    data = data_from("B", num_sequences)
    assert data.input.shape == data.target.shape == (num_sequences, 1, toy.LENGTH)
    assert all(len(part) == num_sequences for part in data)


# --- models ---


@pytest.mark.parametrize(
    ("model", "positions", "count"),
    [
        ("conv", "none", 62_337),
        ("attention", "none", 54_081),
        ("attention", "bits", 56_321),
        ("attention", "signs", 56_321),
        ("attention", "standardised", 56_321),
        ("conv", "bits", 64_577),
    ],
)
def test_the_number_of_parameters(model, positions, count):
    built = ToyModel(model, positions)
    assert sum(weight.numel() for weight in built.parameters()) == count
    assert built(torch.zeros(2, 1, toy.LENGTH)).shape == (2, 1, toy.LENGTH)


@given(seed=seeds, positions=st.integers(1, 6))
@settings(max_examples=20)
def test_the_layer_is_attention_without_the_scale(seed, positions):
    torch.manual_seed(seed)
    layer = SelfAttention(3, 4, key_dim=5).double()
    x = torch.randn(2, 3, positions, dtype=torch.float64)
    output, weights = layer(x, return_weights=True)
    rows = x.mT
    expected = attention(rows @ layer.W_Q * math.sqrt(5), rows @ layer.W_K, rows @ layer.W_V)
    assert_close(output, expected.mT)
    assert_close(layer(x), output)
    # The lecture's own words: Q, K and V by convolutions of width 1, and two Einstein sums.
    q, k, v = (
        torch.nn.functional.conv1d(x, weight.T.unsqueeze(2)) for weight in (layer.W_Q, layer.W_K, layer.W_V)
    )
    assert_close(weights, torch.einsum("nct,ncs->nts", q, k).softmax(2))
    assert_close(output, torch.einsum("nts,ncs->nct", weights, v))


def test_the_attention_map_is_that_of_the_forward_pass():
    torch.manual_seed(0)
    model, x = ToyModel("attention", "bits"), data_from("B", 3).input
    weights = model.attention_map(x)
    assert_close(weights.sum(-1), torch.ones(3, toy.LENGTH))
    layer = model.layers[4]
    inside = model.layers[:4](model.channels(x))
    assert_close(model(x), model.layers[5:]((weights @ (inside.mT @ layer.W_V)).mT))


def test_a_model_without_attention_has_no_map():
    with pytest.raises(ValueError, match="no attention"):
        ToyModel("conv").attention_map(torch.zeros(1, 1, toy.LENGTH))


@pytest.mark.parametrize(
    ("positions", "low", "high"), [("bits", 0, 1), ("signs", -1, 1), ("standardised", -0.53, -0.37)]
)
def test_positions_stand_beside_the_standardised_signal(positions, low, high):
    data = data_from("A", 500)
    channels = ToyModel("attention", positions).channels(data.input)
    assert channels.shape == (500, 8, toy.LENGTH)
    assert channels[:, 0].mean() == pytest.approx(0, abs=0.03)
    assert channels[:, 0].std() == pytest.approx(1, abs=0.03)
    expected = low + (high - low) * binary_encoding(toy.LENGTH).T
    assert_close(channels[:, 1:], expected.expand(500, 7, toy.LENGTH), atol=0.005, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: data_from("C", 1), "version is 'C': expected one of A, B"),
        (lambda: data_from("A", 0), "num_sequences is 0"),
        (lambda: ToyModel("mlp"), "model is 'mlp': expected one of conv, attention"),
        (lambda: ToyModel("conv", "learned"), "positions is 'learned': expected one of none, bits"),
        (lambda: toy.train(Run("C", "conv")), "version is 'C'"),
        (lambda: toy.train(Run("A", "conv", sequences=25, batch=10)), "sequences is 25: expected a multiple"),
        (lambda: toy.train(Run("A", "conv", sequences=0)), "sequences is 0"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- training ---


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


@pytest.mark.slow
def test_training_lowers_the_error():
    model, log = toy.train(Run("A", "attention", sequences=2_000))
    assert log["sequences"] == list(range(20, 2_001, 20))
    assert len(log["loss"]) == 100
    assert sum(log["loss"][-10:]) / 10 < 0.25 * log["loss"][0]
    # What it has learned holds for sequences that it has not seen: better than predicting zero.
    data = toy.make_test_data("A", 500)
    assert toy.evaluate(model, data) < 0.5 * data.target.square().mean()


def test_a_run_is_its_seed():
    run = Run("B", "attention", "signs", sequences=40, seed=5)
    state = torch.random.get_rng_state()
    first, second = (toy.train(run)[0] for _ in range(2))
    assert torch.equal(weights_of(first), weights_of(second))
    assert torch.equal(torch.random.get_rng_state(), state)
    other = toy.train(Run("B", "attention", "signs", sequences=40, seed=6))[0]
    assert not torch.equal(weights_of(first), weights_of(other))


def test_the_seed_decides_the_data_too(monkeypatch):
    drawn = []

    def recorded(*arguments):
        drawn.append(toy.make_data(*arguments).input)
        return toy.make_data(*arguments)

    monkeypatch.setattr(training, "make_data", recorded)
    for seed in (5, 6):
        toy.train(Run("A", "conv", sequences=10, seed=seed))
    assert not torch.equal(*drawn)


@pytest.mark.parametrize("parts", [1, 7, 10])
def test_an_interrupted_training_ends_with_the_same_weights(parts, tmp_path, monkeypatch):
    run = Run("B", "attention", "bits", sequences=100)
    whole, log = toy.train(run)
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > parts:
            raise KeyboardInterrupt
        return toy.make_data(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(training, "make_data", interrupted)
        if parts < 10:
            with pytest.raises(KeyboardInterrupt):
                toy.train(run, tmp_path)
        else:
            toy.train(run, tmp_path)
    resumed, resumed_log = toy.train(run, tmp_path)
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert resumed_log["loss"] == log["loss"]
    assert len(calls) == min(parts + 1, 10)


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    toy.train(Run("A", "conv", sequences=20), tmp_path)
    with pytest.raises(ValueError, match=r"different run, .*--sequences 20 .*remove it"):
        toy.train(Run("A", "conv", sequences=40), tmp_path)


@pytest.mark.slow
def test_a_killed_command_goes_on_when_it_is_given_again(tmp_path):
    run = Run("A", "conv", sequences=1_000)
    command = [sys.executable, *run.command.split()[1:], "--out", str(tmp_path)]
    checkpoint = tmp_path / f"{run.name}.checkpoint"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        while not checkpoint.exists() and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL if os.name == "posix" else signal.SIGTERM)
    done = len(torch.load(checkpoint, weights_only=True)["log"]["loss"])
    assert 0 < done < 100
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count(" sequences, loss") == 100 - done
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{run.name}.json", f"{run.name}.npz"]

    result = toy.results(tmp_path)[run.name]
    model, log = toy.train(run)
    assert torch.equal(weights_of(result.model), weights_of(model).half().float())
    assert result.log["loss"] == [round(loss, 5) for loss in log["loss"]]
    assert f"{result.log['test_mse']:.4f}" in again.stdout
    assert result.log["command"] == run.command


@pytest.fixture
def few_test_data(monkeypatch):
    """A run that the command trains is tested on 200 sequences rather than on 10,000."""
    for name in ("results", "__main__"):  # of which the first is also a function of the package
        module = importlib.import_module(f"attncourse.toy.{name}")
        monkeypatch.setattr(module, "make_test_data", lambda version, *_: toy.make_test_data(version, 200))


@pytest.mark.usefixtures("few_test_data")
def test_a_finished_run_is_not_trained_again_nor_overwritten(tmp_path, capsys):
    arguments = ["train", "A", "conv", "--sequences", "20", "--out", str(tmp_path)]
    main(arguments)
    before = (tmp_path / "A-conv-none-seed1.json").read_text()
    capsys.readouterr()
    main(arguments)
    assert "loss" not in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*arguments, "--rate", "0.001"])
    assert "choose another folder" in capsys.readouterr().err
    assert (tmp_path / "A-conv-none-seed1.json").read_text() == before


# --- evaluation ---


class Known(torch.nn.Module):
    """A model whose attention and predictions are given."""

    def __init__(self, weights=None, error=0.0):
        super().__init__()
        self.weights, self.error = weights, error

    def attention_map(self, x):
        return self.weights

    def forward(self, x):
        return x + self.error


def test_the_error_is_the_mean_of_squares_over_all_positions():
    data = data_from("A", 250)
    expected = torch.nn.functional.mse_loss(data.input + 2, data.target)
    assert toy.evaluate(Known(error=2.0), data) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("version", toy.VERSIONS)
def test_attention_shares_by_loops(version):
    data = data_from(version, 4)
    weights = torch.rand(4, toy.LENGTH, toy.LENGTH).softmax(-1)
    total, count = dict.fromkeys(("own", "partner", "others", "elsewhere"), 0.0), 0
    for n in range(4):
        shapes = shapes_of(data, n)
        on = [next((s for s in range(4) if drawn([shapes[s]], t) > 0), None) for t in range(toy.LENGTH)]
        left = sorted(range(4), key=lambda s, shapes=shapes: shapes[s][1])[:2]
        group = [s < 2 if version == "A" else s in left for s in range(4)]
        for t in range(toy.LENGTH):
            if on[t] is None:
                continue
            count += 1
            for u, weight in enumerate(weights[n, t].tolist()):
                if on[u] is None:
                    total["elsewhere"] += weight
                elif on[u] == on[t]:
                    total["own"] += weight
                else:
                    total["partner" if group[on[u]] == group[on[t]] else "others"] += weight
    shares = toy.attention_shares(Known(weights), data)
    assert shares == pytest.approx({name: value / count for name, value in total.items()}, abs=1e-5)


@pytest.fixture(scope="module")
def anchors():
    """What needs no training, of both versions."""
    return {version: toy.anchors(version) for version in toy.VERSIONS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "copy", "own", "linear", "best"),
    [("A", 7.80, 2.53, 1.54, 0.95), ("B", 4.82, 2.85, 2.34, 1.85)],
)
def test_the_anchors(version, copy, own, linear, best, anchors):
    errors = anchors[version]
    expected = {"copy": copy, "own height": own, "own and mean height": linear, "all heights": best}
    assert errors == pytest.approx(expected, rel=0.015)
    # The copy of the input is a model, too, and what it predicts has both noises.
    data = toy.make_test_data(version, 50_000)
    assert toy.evaluate(Known(), data) == pytest.approx(errors["copy"], abs=0.003)


# --- the committed results ---


@pytest.mark.parametrize("name", RESULTS)
def test_a_log_tells_the_command_that_made_it(name):
    run, log, _ = RESULTS[name]
    python, option, module, *arguments = log["command"].split()
    assert (python, option, module) == ("python", "-m", "attncourse.toy")
    options = vars(parser().parse_args(arguments))
    assert Run(**{key: options[key] for key in log["run"]}) == run
    assert run.name == name
    assert log["noise_floor"] == NOISE_FLOOR < log["test_mse"]
    assert log["test_sequences"] == 10_000
    assert log["sequences"][-1] == run.sequences
    assert len(log["sequences"]) == len(log["loss"]) == 100
    assert log["parameters"] == sum(w.numel() for w in ToyModel(run.model, run.positions).parameters())
    # The last losses, on sequences that were new then, tell the same error as the test.
    assert sum(log["loss"][-5:]) / 5 == pytest.approx(log["test_mse"], rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, result in RESULTS.items() if result.model is not None])
def test_the_weights_have_the_error_that_the_log_tells(name):
    run, log, model = RESULTS[name]
    some = toy.make_test_data(run.version, 2_000)  # a fifth of the sequences that the log is of
    assert toy.evaluate(model, some) == pytest.approx(log["test_mse"], rel=0.1)
    if run.model == "attention":
        shares = toy.attention_shares(model, toy.make_test_data(run.version, 1_000))
        assert shares == pytest.approx(log["attention_shares"], abs=1e-3)


def errors(version, model, positions, sequences):
    """The test errors of all runs of a model with this budget, in batches of 16."""
    wanted = {"version": version, "model": model, "positions": positions, "sequences": sequences, "batch": 16}
    return [log["test_mse"] for _, log, _ in RESULTS.values() if wanted.items() <= log["run"].items()]


@pytest.mark.parametrize(
    ("version", "failing", "succeeding", "sequences", "times"),
    [
        ("A", ("conv", "none"), ("attention", "none"), 200_000, 30),
        ("B", ("attention", "none"), ("attention", "signs"), 800_000, 9),
    ],
)
def test_the_headline_ratios(version, failing, succeeding, sequences, times):
    large, small = (errors(version, *which, sequences) for which in (failing, succeeding))
    assert min(len(large), len(small)) >= 3
    assert min(large) / max(small) >= times
    # One run of each has its weights, for the book's figures.
    assert all(RESULTS["-".join((version, *which, "seed1"))].model for which in (failing, succeeding))


@pytest.mark.slow
@pytest.mark.usefixtures("few_test_data")
def test_the_commands_print_their_tables(anchors, capsys, monkeypatch, tmp_path):
    main(["results"])
    table = capsys.readouterr().out
    for version, model, positions, sequences in (
        ("A", "conv", "none", 200_000),
        ("A", "attention", "none", 200_000),
        ("B", "attention", "none", 800_000),
        ("B", "attention", "signs", 800_000),
    ):
        line = next(line for line in table.splitlines() if line.split()[:3] == [version, model, positions])
        mine = errors(version, model, positions, sequences)
        assert f"{min(mine):.4f} to {max(mine):.4f}" in line
    monkeypatch.setattr("attncourse.toy.__main__.anchors", anchors.get)
    main(["anchors"])
    printed = capsys.readouterr().out
    assert all(f"{error:.3f}" in printed for errors in anchors.values() for error in errors.values())
    main(["train", "B", "attention", "--sequences", "20", "--out", str(tmp_path)])
    capsys.readouterr()
    main(["evaluate", "--folder", str(tmp_path)])
    log = json.loads((tmp_path / "B-attention-none-seed1.json").read_text())
    printed = capsys.readouterr().out
    assert f"test error {log['test_mse']:.4f}" in printed
    assert f"own {log['attention_shares']['own']:.1%}" in printed
