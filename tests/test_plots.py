"""Figures say what they should: labels, numbers and colours are read back from what was drawn."""

import math

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb

from attncourse import plots


@pytest.fixture(autouse=True)
def _own_figures_and_settings():
    with matplotlib.rc_context():
        yield
    plt.close("all")


def relative_luminance(colour) -> float:
    """WCAG 2's definition, written apart from the code under test."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other) -> float:
    light, dark = sorted([relative_luminance(one), relative_luminance(other)], reverse=True)
    return (light + 0.05) / (dark + 0.05)


def drawn(num_queries=2, num_keys=3, **options):
    weights = torch.softmax(
        torch.arange(num_queries * num_keys, dtype=torch.float32).view(num_queries, num_keys).sin() * 3, -1
    )
    queries = [f"q{i}" for i in range(num_queries)]
    keys = [f"k{i}" for i in range(num_keys)]
    return weights, plots.attention_map(weights, queries, keys, **options)


def test_axes_and_positions_are_labelled():
    _, ax = drawn(2, 3)
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("query", "key")
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["q0", "q1"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["k0", "k1", "k2"]


def test_the_number_of_a_cell_stands_in_that_cell():
    weights, ax = drawn(2, 3)
    assert len(ax.texts) == 6
    found = {(int(text.get_position()[1]), int(text.get_position()[0])): text.get_text() for text in ax.texts}
    assert found == {(q, k): f"{weights[q, k].item():.2f}" for q in range(2) for k in range(3)}


def test_the_first_query_is_at_the_top_and_the_first_key_on_the_left():
    _, ax = drawn(2, 3)
    ax.figure.canvas.draw()
    heights = [ax.transData.transform((0.5, row + 0.5))[1] for row in range(2)]
    sides = [ax.transData.transform((column + 0.5, 0.5))[0] for column in range(3)]
    assert heights == sorted(heights, reverse=True)
    assert sides == sorted(sides)


def test_numbers_can_be_read_on_every_colour_of_the_scale():
    weights = torch.linspace(0, 1, 101).view(1, -1)
    ax = plots.attention_map(weights, ["q"], [str(i) for i in range(101)])
    ax.figure.canvas.draw()
    backgrounds = ax.collections[0].get_facecolors()
    for text, background in zip(ax.texts, backgrounds, strict=True):
        assert contrast(text.get_color(), background) >= 4.5


def test_larger_weights_are_darker_and_the_scale_is_the_same_in_every_map():
    small = plots.attention_map(torch.tensor([[0.1, 0.2]]), ["q"], ["a", "b"])
    large = plots.attention_map(torch.tensor([[0.2, 0.9]]), ["q"], ["a", "b"])
    for ax in (small, large):
        ax.figure.canvas.draw()
    first, second = (ax.collections[0].get_facecolors() for ax in (small, large))
    assert relative_luminance(first[0]) > relative_luminance(first[1]) > relative_luminance(second[1])
    np.testing.assert_allclose(first[1], second[0])


def test_text_is_at_least_nine_points():
    plots.use_style()
    _, ax = drawn(2, 3, title="a title")
    written = [
        *ax.texts,
        *ax.get_xticklabels(),
        *ax.get_yticklabels(),
        ax.xaxis.label,
        ax.yaxis.label,
        ax.title,
    ]
    assert min(text.get_fontsize() for text in written) >= 9


@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (9, 9)])
def test_every_number_fits_its_cell_and_no_label_is_cut_off(shape):
    plots.use_style()
    _, ax = drawn(*shape)
    figure = ax.figure
    figure.canvas.draw()
    for text in ax.texts:
        box = text.get_window_extent()
        column, row = (math.floor(place) for place in text.get_position())
        corners = ax.transData.transform([(column, row + 1), (column + 1, row)])
        assert corners[0][0] < box.x0
        assert box.x1 < corners[1][0]
        assert corners[0][1] < box.y0
        assert box.y1 < corners[1][1]
    for label in [*ax.get_xticklabels(), *ax.get_yticklabels(), ax.xaxis.label, ax.yaxis.label]:
        box = label.get_window_extent()
        assert figure.bbox.x0 <= box.x0
        assert box.x1 <= figure.bbox.x1
        assert figure.bbox.y0 <= box.y0
        assert box.y1 <= figure.bbox.y1


def test_it_draws_where_it_is_told_and_leaves_the_weights_alone():
    _, ax = plt.subplots()
    weights = torch.eye(2, requires_grad=True)
    assert plots.attention_map(weights, "ab", "cd", ax=ax, title="mine") is ax
    assert ax.get_title() == "mine"
    assert torch.equal(weights, torch.eye(2))


@pytest.mark.parametrize(
    ("weights", "queries", "keys", "said"),
    [
        (torch.ones(3), "abc", "abc", r"weights has shape \(3,\)"),
        (torch.ones(2, 3, 4), "abc", "abcd", r"weights has shape \(2, 3, 4\)"),
        (torch.ones(0, 4), "", "abcd", r"weights has shape \(0, 4\)"),
        (torch.ones(2, 3), "abc", "abc", r"query_labels has 3 labels: expected 2"),
        (torch.ones(2, 3), "ab", "ab", r"key_labels has 2 labels: expected 3"),
        (torch.full((2, 2), 1.5), "ab", "ab", "entries outside 0 to 1"),
        (torch.full((2, 2), -0.5), "ab", "ab", "entries outside 0 to 1"),
        (torch.full((2, 2), torch.nan), "ab", "ab", "entries outside 0 to 1"),
    ],
)
def test_bad_input_is_named(weights, queries, keys, said):
    with pytest.raises(ValueError, match=said):
        plots.attention_map(weights, queries, keys)
    assert not plt.get_fignums(), "an error should leave no empty figure behind"


def test_lines_differ_in_style_as_well_as_in_colour():
    plots.use_style()
    _, ax = plt.subplots()
    lines = [ax.plot([0, 1], [0, i])[0] for i in range(len(plots.COLOURS))]
    assert [line.get_color() for line in lines] == list(plots.COLOURS)
    assert len({str(line._unscaled_dash_pattern) for line in lines}) == len(lines)


def test_line_colours_stand_out_from_the_white_of_every_figure():
    plots.use_style()
    figure, _ = plt.subplots()
    assert to_rgb(figure.get_facecolor()) == (1, 1, 1)
    assert min(contrast(colour, "white") for colour in plots.COLOURS) >= 3  # WCAG 2's least for graphics
