"""Vision: patches and back, positions on a grid, the model and rollout, against independent computations."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from commands import Command
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from attncourse import (
    TransformerBlock,
    VisionTransformer,
    attention_distance,
    attention_rollout,
    digits,
    grid_encoding,
    grid_positions,
    is_invariant,
    patchify,
    rotary,
    rotary_2d,
    sinusoidal_encoding,
    unpatchify,
)
from attncourse.digits.__main__ import main
from attncourse.experiments import vision as experiment

RESULTS = digits.results()


pytestmark = pytest.mark.usefixtures("one_thread")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weights_of(model):
    return torch.cat([weight.detach().flatten() for weight in model.parameters()])


# --- patches ---

SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))


@given(SIZES)
def test_patches_are_what_unfold_gives(sizes):
    channels, rows, columns, P = sizes
    images = drawn(2, channels, rows * P, columns * P)
    assert torch.equal(patchify(images, P), nn.functional.unfold(images, P, stride=P).mT)


@given(SIZES)
def test_pictures_are_what_fold_gives_and_come_back(sizes):
    channels, rows, columns, P = sizes
    height, width = rows * P, columns * P
    patches = drawn(2, rows * columns, channels * P * P)
    found = unpatchify(patches, P, height, width)
    assert torch.equal(found, nn.functional.fold(patches.mT, (height, width), P, stride=P))
    assert torch.equal(patchify(found, P), patches)


def test_the_matrix_of_patches_is_a_convolution_with_a_stride():
    images, weight = drawn(2, 3, 4, 6), drawn(5, 3, 2, 2)
    convolved = nn.functional.conv2d(images, weight, stride=2)  # (2, 5, 2, 3)
    torch.testing.assert_close(patchify(images, 2) @ weight.flatten(1).T, convolved.flatten(2).mT)


def test_any_batch_and_any_dtype():
    images = torch.arange(2 * 3 * 1 * 4 * 4).view(2, 3, 1, 4, 4)
    patches = patchify(images, 2)
    assert patches.shape == (2, 3, 4, 4)
    assert torch.equal(patches[1, 2], patchify(images[1, 2], 2))
    assert torch.equal(unpatchify(patches, 2, 4, 4), images)


# --- positions ---


def test_positions_are_in_the_order_of_reading():
    places = grid_positions(2, 3).tolist()
    assert places == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    picture = torch.stack(torch.meshgrid(torch.arange(4), torch.arange(6), indexing="ij"))
    first = unpatchify(patchify(picture, 2)[..., ::4][:, :, None].expand(6, 2, 4).flatten(1), 2, 4, 6)
    assert torch.equal(first[:, ::2, ::2].flatten(1).T // 2, grid_positions(2, 3))
    assert grid_positions(1, 1).shape == (1, 2)


@given(st.integers(1, 4), st.integers(1, 4))
def test_an_encoding_of_the_grid_is_one_of_each_pair(rows, columns):
    row, column = drawn(rows, 2), drawn(columns, 3, seed=1)
    expected = [torch.cat([r, c]) for r in row for c in column]
    assert torch.equal(grid_encoding(row, column), torch.stack(expected))


def test_dot_products_of_waves_on_the_grid_depend_on_the_difference_only():
    waves = sinusoidal_encoding(5, 8)
    products = grid_encoding(waves, waves) @ grid_encoding(waves, waves).T
    moved = products.view(5, 5, 5, 5)
    torch.testing.assert_close(moved[:4, :3, :4, :3], moved[1:, 2:, 1:, 2:])


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(0, 100))
def test_scores_of_turned_queries_and_keys_depend_on_the_difference_only(down, right, seed):
    query, key = drawn(3, 8, seed=seed), drawn(3, 8, seed=seed + 1)
    places = torch.tensor([[0, 1], [2, 0], [3, 3]])
    moved = places + torch.tensor([down, right])
    scores = rotary_2d(query, places) @ rotary_2d(key, places).mT
    torch.testing.assert_close(rotary_2d(query, moved) @ rotary_2d(key, moved).mT, scores)
    rows_only = places * torch.tensor([1, 0])
    torch.testing.assert_close(rotary_2d(query, rows_only)[:, :4], rotary(query[:, :4], places[:, 0]))
    torch.testing.assert_close(rotary_2d(query, rows_only)[:, 4:], query[:, 4:])


# --- rollout and distance ---


def test_rollout_is_the_sum_over_all_paths():
    weights = torch.softmax(drawn(3, 2, 4, 4), -1)
    found = attention_rollout(list(weights))
    step = weights.mean(1) / 2 + torch.eye(4, dtype=torch.float64) / 2
    for query in range(4):
        for key in range(4):
            paths = sum(
                step[2, query, a] * step[1, a, b] * step[0, b, key] for a in range(4) for b in range(4)
            )
            assert found[query, key].item() == pytest.approx(float(paths))
    torch.testing.assert_close(found.sum(-1), torch.ones(4, dtype=torch.float64))


def test_rollout_of_a_batch_is_that_of_each():
    weights = [torch.softmax(drawn(5, 2, 3, 3, seed=seed), -1) for seed in range(2)]
    found = attention_rollout(weights)
    torch.testing.assert_close(found[3], attention_rollout([block[3] for block in weights]))


def test_distance_is_a_mean_over_pairs():
    weights = torch.softmax(drawn(2, 6, 6), -1)
    places = grid_positions(2, 3)
    expected = [
        sum(
            float(head[q, k]) * math.dist(places[q].tolist(), places[k].tolist())
            for q in range(6)
            for k in range(6)
        )
        / 6
        for head in weights
    ]
    assert attention_distance(weights, places).tolist() == pytest.approx(expected)
    torch.testing.assert_close(attention_distance(weights * 0.3, places), attention_distance(weights, places))


# --- the model ---


def small(positions="learned", **more):
    torch.manual_seed(0)
    sizes = {"num_classes": 3, "model_dim": 8, "num_heads": 2, "num_blocks": 2} | more
    model = VisionTransformer((4, 6), 2, positions=positions, channels=2, **sizes).double()
    nn.init.normal_(model.W_out)
    return model


def test_the_model_is_pytorchs_encoder_on_a_convolution_of_the_picture():
    model, images = small(), drawn(3, 2, 4, 6)
    layers = [
        nn.TransformerEncoderLayer(8, 2, 32, norm_first=True, batch_first=True, dropout=0.0) for _ in "12"
    ]
    for number, layer in enumerate(layers):
        layer.double().eval()
        model.blocks[number] = TransformerBlock.from_torch(layer)
    kernel = model.W_patch.T.reshape(8, 2, 2, 2)
    tokens = (
        nn.functional.conv2d(images, kernel, model.b_patch, stride=2).flatten(2).mT + model.encoding.table
    )
    z = torch.cat([model.class_token.expand(3, 1, 8), tokens], 1)
    for layer in layers:
        z = layer(z)
    expected = nn.functional.layer_norm(z[:, 0], (8,)) @ model.W_out + model.b_out
    torch.testing.assert_close(model(images), expected)


@pytest.mark.parametrize("positions", ["none", "learned", "sinusoidal", "rotary"])
def test_only_a_model_without_positions_ignores_the_order_of_patches(positions):
    model, images = small(positions), drawn(2, 4, 6)

    def scores(patches):
        return model(unpatchify(patches, 2, 4, 6))

    assert is_invariant(scores, patchify(images, 2)) == (positions == "none")


def test_waves_of_the_model_are_those_of_rows_and_columns():
    model = small("sinusoidal").float()
    for row, column in itertools.product(range(2), range(3)):
        expected = torch.cat([sinusoidal_encoding(2, 4)[row], sinusoidal_encoding(3, 4)[column]])
        torch.testing.assert_close(model.waves[3 * row + column], expected)


def test_patches_that_are_alike_are_told_apart_by_how_far_they_are_from_each_other():
    _, (weights, _) = small("rotary")(torch.ones(2, 4, 6).double(), return_weights=True)
    scores = weights[:, 1:, 1:].log()  # (2, 6, 6): but for what is the same for all keys of a query
    scores = scores - scores.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    assert scores[:, 0].std(-1).min() > 1e-4
    torch.testing.assert_close(scores[:, 0, 1], scores[:, 4, 5])  # one to the right
    torch.testing.assert_close(scores[:, 0, 3], scores[:, 2, 5])  # one down
    torch.testing.assert_close(scores[:, 1, 3], scores[:, 2, 4])  # one down, one to the left


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_the_model_drops_in_training_only(positions):
    model, x = small(positions, num_blocks=1, dropout_p=0.5), drawn(7, 8)
    for part in (model.blocks[0], model.blocks[0].attention):
        assert not torch.equal(part.train()(x), part(x))
        torch.testing.assert_close(part.eval()(x), part(x))


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_weights_come_with_the_same_scores(positions):
    model, images = small(positions), drawn(3, 2, 4, 6)
    scores, weights = model(images, return_weights=True)
    torch.testing.assert_close(scores, model(images))
    assert [tuple(block.shape) for block in weights] == [(3, 2, 7, 7)] * 2
    for block in weights:
        torch.testing.assert_close(block.sum(-1), torch.ones(3, 2, 7, dtype=torch.float64))
    torch.testing.assert_close(model(images[1]), scores[1])


def test_a_head_of_turned_attention_is_silent_without_its_rows_of_the_output_matrix():
    layer, x = small("rotary").blocks[0].attention, drawn(3, 7, 8)
    silent = layer(x, head_mask=torch.tensor([0.0, 1.0]))
    with torch.no_grad():
        layer.W_O[:4] = 0
    torch.testing.assert_close(silent, layer(x))


def test_turned_attention_is_plain_where_nothing_is_turned():
    turned, plain = small("rotary"), small("none")
    plain.load_state_dict(turned.state_dict())
    for block in turned.blocks:
        block.attention.positions.zero_()
    images = drawn(2, 2, 4, 6)
    torch.testing.assert_close(turned(images), plain(images))


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: patchify(torch.ones(4, 4), 2), ValueError, r"images has shape \(4, 4\)"),
        (lambda: patchify(torch.ones(1, 4, 5), 2), ValueError, "multiples of patch_size=2"),
        (lambda: patchify(torch.ones(1, 4, 4), 2.0), TypeError, "patch_size is a float"),
        (lambda: patchify([1], 2), TypeError, "images is a list"),
        (lambda: unpatchify(torch.ones(6, 4), 2, 4, 4), ValueError, "pictures of 4 x 4 pixels"),
        (lambda: unpatchify(torch.ones(6, 5), 2, 4, 6), ValueError, r"patches has shape \(6, 5\)"),
        (lambda: unpatchify(torch.ones(6, 4), 2, 5, 6), ValueError, "pictures of 5 x 6"),
        (lambda: grid_positions(0, 2), ValueError, "rows is 0"),
        (
            lambda: grid_encoding(torch.ones(2), torch.ones(2, 2)),
            ValueError,
            r"row_encoding has shape \(2,\)",
        ),
        (lambda: rotary_2d(torch.ones(3, 6), torch.ones(3, 2)), ValueError, "multiple of 4 features"),
        (lambda: rotary_2d(torch.ones(3, 8), torch.ones(3)), ValueError, r"positions has shape \(3,\)"),
        (lambda: attention_rollout([]), ValueError, "weights is empty"),
        (lambda: attention_rollout([torch.ones(2, 3, 4)]), ValueError, r"one of shape \(2, 3, 4\)"),
        (lambda: attention_distance(torch.ones(3, 3), torch.ones(2, 2)), ValueError, "positions has shape"),
        (
            lambda: attention_rollout([torch.ones(1, 2, 3, 3), torch.ones(2, 2, 3, 3)]),
            ValueError,
            r"\(2, 2, 3, 3\)",
        ),
        (lambda: attention_distance(torch.ones(2, 3), torch.ones(3, 2)), ValueError, "positions has shape"),
        (lambda: grid_encoding(torch.ones(0, 2), torch.ones(2, 2)), ValueError, r"shape \(0, 2\)"),
        (lambda: VisionTransformer((0, 4), 2, 3, 8, 2, 1), ValueError, "image_size is 0"),
        (lambda: small("both"), ValueError, "positions is 'both'"),
        (lambda: small(model_dim=6, num_heads=3, positions="sinusoidal"), ValueError, "multiple of 4"),
        (lambda: VisionTransformer((4, 5), 2, 3, 8, 2, 1), ValueError, "patch_size is 2"),
        (lambda: small()(torch.ones(1, 4, 6)), ValueError, r"expected \(\.\.\., 2, 4, 6\)"),
    ],
)
def test_bad_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- digits ---


def test_the_digits_are_those_of_the_repository():
    with np.load(digits.RESULTS.parent / "digits.npz") as data:
        images, labels = data["images"], data["labels"]
    assert images.shape == (1797, 8, 8)
    assert images.max() == 16
    # As scikit-learn's description and everyone's counts have them.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert images[0, 0].tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_no_digit_is_both_known_and_held_out():
    known, held_out = digits.digits()
    assert (len(known.labels), len(held_out.labels)) == (1437, 360)
    sizes = torch.cat([known.images, held_out.images]).sum()
    with np.load(digits.RESULTS.parent / "digits.npz") as data:
        assert float(sizes) == pytest.approx(data["images"].sum() / 16, rel=1e-5)
        pairs = sorted(zip(data["images"].reshape(1797, -1).tolist(), data["labels"].tolist(), strict=True))
    both = [(16 * images.flatten(1), labels) for images, labels in (known, held_out)]
    mine = sorted(
        (row, label)
        for rows, labels in both
        for row, label in zip(rows.tolist(), labels.tolist(), strict=True)
    )
    assert mine == pairs


def test_orders():
    _, held_out = digits.digits()
    images = held_out.images[:20]
    assert torch.equal(digits.reordered(images, "kept"), images)
    one = digits.reordered(images, "one")
    back = digits.one_order().argsort()
    assert torch.equal(patchify(one, 2)[:, back], patchify(images, 2))
    own = patchify(digits.reordered(images, "own", torch.Generator().manual_seed(1)), 2)
    for mixed, patches in zip(own.tolist(), patchify(images, 2).tolist(), strict=True):
        assert mixed != patches
        assert sorted(mixed) == sorted(patches)
    with pytest.raises(ValueError, match="order is 'any'"):
        digits.reordered(images, "any")


def test_moves_are_by_one_pixel_at_most():
    images = torch.zeros(200, 1, 8, 8)
    images[:, :, 4, 3] = 1
    places = digits.shifted(images, torch.Generator().manual_seed(0)).nonzero()[:, 2:]
    assert len(places) == 200
    assert set(map(tuple, places.tolist())) == {(row, column) for row in (3, 4, 5) for column in (2, 3, 4)}


@pytest.mark.parametrize("model", digits.MODELS)
def test_a_run_is_its_seed_and_goes_on_after_an_interruption(model, tmp_path):
    run = digits.Run(model, steps=4, batch=4, order="own")
    torch.manual_seed(7)
    before = torch.get_rng_state()
    whole, log = digits.train(run)
    assert torch.equal(torch.get_rng_state(), before)
    assert not whole.training
    again, _ = digits.train(run, tmp_path)
    assert torch.equal(weights_of(whole), weights_of(again))
    resumed, resumed_log = digits.train(run, tmp_path)  # from the checkpoint at its end
    assert torch.equal(weights_of(whole), weights_of(resumed))
    assert resumed_log["loss"] == log["loss"]
    with pytest.raises(ValueError, match="different run"):
        digits.train(digits.Run(model, steps=5, batch=4, order="own"), tmp_path)


@pytest.mark.parametrize("order", digits.ORDERS)
def test_pictures_are_moved_and_then_put_in_their_order(order, monkeypatch):
    moved, asked = [], []

    def shifted(images, generator):
        moved.append(digits.shifted(images, generator))
        return moved[-1]

    def reordered(images, order, generator):
        assert images is moved[-1]
        asked.append(order)
        return digits.reordered(images, order, generator)

    monkeypatch.setattr("attncourse.digits.training.shifted", shifted)
    monkeypatch.setattr("attncourse.digits.training.reordered", reordered)
    digits.train(digits.Run("linear", steps=2, batch=4, order=order))
    assert asked == [order] * 2


def test_seeds_of_one_training_are_told_together(tmp_path, capsys):
    for seed, steps in ((1, 1), (2, 1), (1, 2)):
        run = digits.Run("linear", steps=steps, batch=2, seed=seed)
        digits.save(run, *digits.train(run), tmp_path / str(steps))
    for steps, runs in ((1, " 2 "), (2, " 1 ")):
        main(["results", "--folder", str(tmp_path / str(steps))])
        (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("linear")]
        assert runs in line


@pytest.mark.slow
def test_the_command_trains_and_does_not_overwrite(tmp_path, capsys):
    run = digits.Run("attention", "none", steps=2, batch=2)
    made = Command(main, tmp_path, *run.command.split()[3:], "--out", str(tmp_path)).ended()
    assert made.returncode == 0, made.stderr
    assert "order kept" in made.stdout
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".npz"]
    with pytest.raises(SystemExit):
        main(["train", "attention", "--positions", "none", "--steps", "3", "--out", str(tmp_path)])
    capsys.readouterr()
    main(["evaluate", "--folder", str(tmp_path)])
    shown = capsys.readouterr().out
    assert made.stdout.split("order", 1)[1] == shown.split("order", 1)[1]
    main(["results", "--folder", str(tmp_path)])
    assert "attention   none" in capsys.readouterr().out


def test_the_committed_runs_are_small_and_hold_what_the_chapter_says():
    files = list(digits.RESULTS.iterdir())
    assert sum(path.stat().st_size for path in files) < 400_000
    for name, (run, log, model) in RESULTS.items():
        assert name == run.name
        assert log["command"] == run.command
        assert log["steps"][-1] == run.steps
        assert log["cpu_seconds"] <= 90
        if model is not None:
            assert log["parameters"] == sum(weight.numel() for weight in model.parameters())
            # Where two scores are nearly equal, another machine's rounding may turn a digit.
            assert log["held_out"] == pytest.approx(digits.evaluate(model), abs=0.006)
    sizes = {run.model: log["parameters"] for run, log, _ in RESULTS.values() if run.positions == "learned"}
    assert sizes["convolution"] == pytest.approx(sizes["attention"], rel=0.03)
    assert sizes["connected"] == pytest.approx(sizes["attention"], rel=0.03)
    for seed in (1, 2, 3):
        assert RESULTS[f"attention-learned-kept-seed{seed}"].log["held_out"]["kept"] >= 0.97
    assert set(experiment.SUBJECTS.values()) <= {name for name, (_, _, model) in RESULTS.items() if model}


# --- the experiment ---


def embed(patches, W, b, class_token, encoding):
    tokens = patches @ W + b + encoding
    return torch.cat([class_token.expand(len(tokens), 1, -1), tokens], 1)


def test_the_experiment_learns_and_is_its_seed():
    run, again = (experiment.train(patchify, grid_encoding, embed, steps=40) for _ in "12")
    assert torch.equal(run.loss, again.loss)
    assert run.loss[-1] < run.loss[0] - 0.2
    assert run.shares[0] > 0.15
    blind = experiment.train(patchify, grid_encoding, embed, steps=20, positions=False)
    torch.testing.assert_close(blind.kept, blind.mixed, atol=1e-4, rtol=0)


def test_the_experiment_has_all_four_and_each_is_what_its_name_says():
    runs = experiment.two_by_two(patchify, grid_encoding, embed, steps=20)
    for (name, run), (positions, order) in zip(
        runs.items(), itertools.product((True, False), ("kept", "own")), strict=True
    ):
        assert name.startswith("positions") == positions
        assert name.endswith("mixed") == (order == "own")
        alone = experiment.train(patchify, grid_encoding, embed, positions=positions, order=order, steps=20)
        assert torch.equal(run.loss, alone.loss)
    for told in ("positions", "no positions"):
        kept, mixed = runs[f"{told}, trained as they are"], runs[f"{told}, trained mixed"]
        # Without positions the order cannot matter.
        assert torch.allclose(kept.loss, mixed.loss, atol=1e-4) == (told == "no positions")


def test_the_experiment_moves_its_pictures(monkeypatch):
    monkeypatch.setattr(experiment, "shifted", lambda images, generator: torch.zeros_like(images))
    empty = experiment.train(patchify, grid_encoding, embed, steps=20)
    monkeypatch.undo()
    assert not torch.equal(empty.loss, experiment.train(patchify, grid_encoding, embed, steps=20).loss)


def test_who_was_taught_one_order_is_shown_that_one():
    kept, mixed, labels = experiment.record("taught one order")
    assert digits.share_right(mixed, labels) > 0.9
    assert digits.share_right(kept, labels) < 0.5


def test_the_experiment_names_a_function_that_does_not_fit():
    with pytest.raises(ValueError, match="patchify gives a tensor of shape"):
        experiment.train(lambda images, size: images.flatten(1), grid_encoding, embed, steps=20)
    with pytest.raises(ValueError, match="steps is 30"):
        experiment.train(patchify, grid_encoding, embed, steps=30)
    with pytest.raises(ValueError, match="number is 360"):
        experiment.look(360)


def test_figures_and_table_say_what_the_runs_gave():
    run = experiment.train(patchify, grid_encoding, embed, steps=20)
    table = experiment.table({"mine": run})._repr_html_()
    assert f"{100 * run.shares[0]:.0f}" in table
    figure = experiment.figure({"mine": run})
    assert f"mine: from {run.loss[0]:.2f} to {run.loss[-1]:.2f}" in figure.alt
    _, weights, said, label = experiment.look(3)
    assert weights.shape == (2, 4, 17, 17)
    drawn_maps = experiment.overlay([3], {"erased": [experiment.missed(3)]})
    assert f"A {label} that is taken for a {said}" in drawn_maps.alt
    with pytest.raises(ValueError, match="maps has 0 maps of 'none'"):
        experiment.overlay([3], {"none": []})


def test_what_is_missed_is_what_an_erased_patch_costs():
    image, _, said, _ = experiment.look(5)
    model = RESULTS[experiment.SUBJECTS["positions"]].model
    without = image.clone()
    without[:, 2:4, 4:6] = 0
    chances = [torch.softmax(model(one), -1)[said].item() for one in (image, without)]
    assert experiment.missed(5)[1, 2].item() == pytest.approx(chances[0] - chances[1], abs=1e-5)


def test_logs_are_plain_json():
    for path in digits.RESULTS.glob("*.json"):
        assert json.loads(path.read_text())["held_out"].keys() == set(digits.ORDERS)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6))
def test_the_bag_counts_pictures(kinds):
    from attncourse.checks.vision import same_bag

    patches = torch.tensor(kinds).float()[:, None]
    assert same_bag.reference(patches) == len(set(itertools.permutations(kinds)))
