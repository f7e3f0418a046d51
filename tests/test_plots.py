"""Figures say what they should: labels, numbers and colours are read back from what was drawn."""

import importlib.util
import io
import math
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from matplotlib.colors import rgb_to_hsv, to_rgb

from attncourse import plots

ROOT = Path(__file__).parents[1]


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


# --- colours, in both themes ---

DARK_PAGE = "#121212"  # test_book_in_a_browser.py holds that it is


def figures():
    """The module of the book's extension that makes the figures of the dark theme."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "book/_ext/figures.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


#: How people see who lack one kind of cone: Machado, Oliveira and Fernandes (2009), severity 1, linear RGB.
SEEN = {
    "everyone": np.eye(3),
    "protanopia": np.array([[0.1523, 1.0526, -0.2049], [0.1145, 0.7863, 0.0992], [-0.0039, -0.0481, 1.0520]]),
    "deuteranopia": np.array(
        [[0.3673, 0.8606, -0.2280], [0.2801, 0.6725, 0.0474], [-0.0118, 0.0429, 0.9689]]
    ),
    "tritanopia": np.array([[1.2555, -0.0767, -0.1788], [-0.0784, 0.9308, 0.1476], [0.0047, 0.6914, 0.3039]]),
}


def lab(colour, seen):
    """CIE 1976 coordinates, in which distances are about what eyes see."""
    channels = np.array(to_rgb(colour))
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = to_xyz @ np.clip(seen @ linear, 0, 1) / (0.9505, 1, 1.089)
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("people", SEEN)
def test_everyone_can_tell_the_colours_apart(people, dark):
    colours = [figures().mirrored(colour) if dark else colour for colour in plots.COLOURS]
    places = [lab(colour, SEEN[people]) for colour in colours]
    distances = [np.linalg.norm(a - b) for i, a in enumerate(places) for b in places[:i]]
    assert min(distances) > 14  # about six times what is just noticed


def test_words_can_be_read_in_every_colour_in_both_themes():
    for colour in plots.COLOURS:
        assert contrast(colour, "white") >= 4.5
        assert contrast(figures().mirrored(colour), DARK_PAGE) >= 4.5
    for tint in plots.TINTS:
        assert contrast("black", tint) >= 7
        assert contrast("white", figures().mirrored(tint)) >= 7


def test_the_mirror_keeps_every_contrast():
    colours = [*plots.COLOURS, *plots.TINTS, "#ffffff", "#ff0000", "#0000ff", "#00ff00", "#777777", "#fcfdbf"]
    mirror = figures().mirrored
    for one in colours:
        for other in colours:
            assert contrast(mirror(one), mirror(other)) == pytest.approx(contrast(one, other), rel=0.04)
    assert mirror("#ffffff") == "#000000"
    assert mirror("#000000") == "#ffffff"


def test_the_mirror_keeps_a_hue_and_leaves_grey_grey():
    for colour in plots.COLOURS[:3] + plots.TINTS[:3]:
        before, after = (rgb_to_hsv(to_rgb(c))[0] for c in (colour, figures().mirrored(colour)))
        assert abs(before - after) < 0.06
    for grey in ("#dadada", "#808080"):
        assert len(set(to_rgb(figures().mirrored(grey)))) == 1


def test_a_figure_for_the_dark_has_no_ground_and_the_same_shapes():
    plots.use_style()
    _, ax = drawn(2, 3, title="a title")
    ax.plot([0, 1], [0, 1])
    with io.StringIO() as file:
        ax.figure.savefig(file, format="svg")
        light = file.getvalue()
    dark = figures().for_the_dark(light)
    assert 'id="patch_1"' in light
    assert 'id="patch_1"' not in dark
    assert re.findall(r' d="[^"]*"', light)[1:] == re.findall(r' d="[^"]*"', dark)
    for colour in set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", light)):
        assert figures().mirrored(colour) in dark
    assert '<svg fill="#ffffff"' in dark  # what names no colour is black
    assert re.findall('href="[^"]*"', light) == re.findall('href="[^"]*"', dark)


# --- the drawing that grows ---


def said(ax):
    return [text.get_text() for text in ax.texts if text.get_text()]


def test_the_flow_names_every_stage():
    words = said(plots.flow())
    assert words == ["$X$", "$Q$", "$K$", "$V$", "scores", "weights", "softargmax", "$Y$"]


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"mask": torch.ones(4, 4, dtype=torch.bool).tril()}, {"mask"}),
        ({"dropout": True}, {"softargmax,\ndropout"}),
        ({"heads": 3}, {"$Y_h$", "side by side,\ntimes $W^O$"}),
        ({"positions": True}, {"$P$", "+"}),
        ({"block": True}, {"attention", "MLP", "+"}),
    ],
)
def test_the_flow_grows(options, more):
    assert set(said(plots.flow(**options))) - set(said(plots.flow())) == more


def test_the_flow_hides_what_the_mask_forbids_and_keeps_what_is_cached():
    def hatched(ax, pattern):
        return sum(patch.get_hatch() == pattern for patch in ax.patches)

    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    assert hatched(plots.flow(), "////") == 0
    assert hatched(plots.flow(mask=mask), "////") == 6
    assert hatched(plots.flow(cached=3), "..") == 3 * 3 * 2  # three rows of three in keys and values


def test_the_flow_pales_what_is_not_in_focus():
    full = plots.flow(focus=["scores"])
    pale = {text.get_text() for text in full.texts if text.get_color() != "black"} - {""}
    assert pale == set(said(full)) - {"scores"}
    assert all(contrast(text.get_color(), "white") >= 5.3 for text in full.texts)


@pytest.mark.parametrize("options", [{}, {"heads": 4, "block": True, "positions": True, "dropout": True}])
def test_nothing_of_the_flow_is_cut_off_or_covers_a_word(options):
    plots.use_style()
    ax = plots.flow(mask=torch.ones(4, 4, dtype=torch.bool).tril(), **options)
    ax.figure.canvas.draw()
    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    for i, box in enumerate(boxes):
        assert ax.figure.bbox.x0 <= box.x0 < box.x1 <= ax.figure.bbox.x1
        assert ax.figure.bbox.y0 <= box.y0 < box.y1 <= ax.figure.bbox.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
    assert min(text.get_fontsize() for text in ax.texts) >= 9
    assert ax.figure.get_figwidth() <= 4.3


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"focus": ["scroes"]}, "focus has .*scroes"),
        ({"mask": torch.ones(3, 3, dtype=torch.bool)}, r"mask has shape \(3, 3\)"),
        ({"mask": torch.ones(4, 4)}, "float32"),
        ({"heads": 0}, "heads is 0"),
        ({"cached": 4}, "cached is 4"),
    ],
)
def test_the_flow_refuses(options, wrong):
    with pytest.raises(ValueError, match=wrong):
        plots.flow(**options)


# --- tables ---


def test_a_table_has_its_names_and_its_numbers():
    columns = {
        "word": ["shot", "by & by"],
        "score": torch.tensor([3.0, -0.001]),
        "count": [1234, -5],
        "seen": [True, False],
        "limit": [math.inf, -math.inf],
    }
    table = plots.Table(columns, ".2f", caption="One <query>")
    page = BeautifulSoup(table._repr_html_(), "html.parser")
    assert page.caption.text == "One <query>"
    assert [cell.text for cell in page.select("th[scope=col]")] == list(columns)
    assert [cell.text for cell in page.select("th[scope=row]")] == ["shot", "by & by"]
    rows = [[cell.text for cell in row.select("td")] for row in page.select("tbody tr")]
    assert rows == [["3.00", "1,234", "yes", "∞"], ["0.00", "−5", "no", "−∞"]]
    lines = repr(table).splitlines()
    assert lines[1].split() == ["shot", "3.00", "1,234", "yes", "∞"]
    assert len({len(line) for line in lines}) == 1


def test_a_table_refuses_columns_of_different_length():
    with pytest.raises(ValueError, match=r"column 'b' has 1 entries: expected 2, as column 'a'"):
        plots.Table({"a": [1, 2], "b": [1]})
    with pytest.raises(ValueError, match="empty"):
        plots.Table({})
