"""Figures that more than one chapter draws, and the look that all figures share.

Colours are those of Okabe and Ito's palette, which people with any of the common kinds
of colour-blindness can tell apart; line styles change together with the colours, so a
figure can also be read without them.
"""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from torch import Tensor

__all__ = ["COLOURS", "attention_map", "use_style"]

#: The four of Okabe and Ito's that stand out from white (blue, vermilion, bluish green, black).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#000000")

_LINE_STYLES = ("-", "--", "-.", ":")
_CELL_WIDTH = 0.40  # inches: four characters of 9 points with air around them
_LABEL_SPACE = 0.9  # inches: room for the axis label and for words of up to eight letters


def use_style() -> None:
    """Make Matplotlib's defaults those of the course, for every figure drawn from now on.

    Text is at least 9 points, lines take the colours of `COLOURS` each with a line style
    of its own, and the background is white, in a dark page too.
    """
    plt.rcParams.update(
        {
            "figure.figsize": (4.2, 2.9),
            "figure.facecolor": "white",
            "figure.constrained_layout.use": True,
            "font.size": 10,
            "axes.titlesize": 10,
            "axes.labelsize": 10,
            "xtick.labelsize": 9,
            "ytick.labelsize": 9,
            "legend.fontsize": 9,
            "legend.frameon": False,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.prop_cycle": cycler(color=COLOURS) + cycler(linestyle=_LINE_STYLES),
            "lines.linewidth": 2,
            # Without a fixed salt, two builds of one figure differ in their identifiers.
            "svg.hashsalt": "attncourse",
        }
    )


def attention_map(
    weights: Tensor,
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw attention weights as a grid: a row for each query, a column for each key.

    The darker a cell, the larger its weight; its number is written in it, in black or
    white, whichever stands out more. Colours mean the same in every map: the scale goes
    from 0 to 1.

    Parameters
    ----------
    weights : Tensor, shape (num_queries, num_keys)
        From 0 to 1.
    query_labels : sequence of str, length num_queries
    key_labels : sequence of str, length num_keys
    title : str, optional
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure of a fitting size if not given.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on; the figure is its attribute ``figure``.

    Raises
    ------
    ValueError
        If `weights` is not a matrix with entries from 0 to 1, or the labels do not count
        as many as its rows and columns.
    """
    shape = tuple(weights.shape)
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"weights has shape {shape}: expected (num_queries, num_keys), one matrix")
    for name, labels, count in (
        ("query_labels", query_labels, shape[0]),
        ("key_labels", key_labels, shape[1]),
    ):
        if len(labels) != count:
            raise ValueError(
                f"{name} has {len(labels)} labels: expected {count}, as weights has shape {shape}"
            )
    grid = weights.detach().cpu().double().numpy()
    # A weight may leave [0, 1] by a rounding error; NaN fails both comparisons.
    if not ((grid >= -1e-6) & (grid <= 1 + 1e-6)).all():
        raise ValueError(f"weights has shape {shape} and entries outside 0 to 1: expected attention weights")

    if ax is None:
        size = (shape[1] * _CELL_WIDTH + _LABEL_SPACE, shape[0] * _CELL_WIDTH + _LABEL_SPACE)
        ax = plt.subplots(figsize=size)[1]
    mesh = ax.pcolormesh(grid, cmap="magma_r", norm=Normalize(0, 1), edgecolors="white", linewidth=1)
    colours = mesh.to_rgba(grid)  # (num_queries, num_keys, 4)
    for row in range(shape[0]):
        for column in range(shape[1]):
            ax.text(
                column + 0.5,
                row + 0.5,
                f"{grid[row, column]:.2f}",
                ha="center",
                va="center",
                fontsize=9,
                color=_text_colour(colours[row, column]),
            )

    ax.set_xticks([column + 0.5 for column in range(shape[1])], key_labels, rotation=45, ha="left")
    ax.set_yticks([row + 0.5 for row in range(shape[0])], query_labels)
    ax.set_xlabel("key")
    ax.set_ylabel("query")
    ax.xaxis.set_label_position("top")
    ax.xaxis.tick_top()
    ax.tick_params(length=0, pad=2)
    ax.invert_yaxis()
    ax.set_aspect("equal")
    ax.spines[:].set_visible(False)
    if title is not None:
        ax.set_title(title)
    return ax


def _text_colour(background: np.ndarray) -> str:
    """Black or white, whichever has the greater contrast (WCAG 2) with `background`."""
    channels = background[:3]
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    black_contrast = (luminance + 0.05) / 0.05
    white_contrast = 1.05 / (luminance + 0.05)
    return "black" if black_contrast > white_contrast else "white"
