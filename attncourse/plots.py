"""Figures and tables that more than one chapter shows, and the look that all figures share.

Colours are those of Okabe and Ito's palette, darkened so that words can be written in them;
people with any of the common kinds of colour-blindness can tell them apart. Line styles
change together with the colours, so a figure can also be read without them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from html import escape

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import torch
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.patches import FancyBboxPatch, Rectangle
from torch import Tensor

__all__ = ["COLOURS", "STAGES", "TINTS", "Table", "attention_map", "flow", "use_style"]

#: Blue, vermilion, bluish green and black, for lines and words.
COLOURS = ("#0B6FB0", "#B34700", "#00604A", "#000000")

#: The same hues, and grey, for areas with black words in them.
TINTS = ("#A6D0EC", "#F4BC98", "#9BD5C2", "#DADADA")

#: The stages of attention that `flow` draws, in their order.
STAGES = ("x", "query", "key", "value", "scores", "mask", "weights", "output")

# `cmap="weights"`: from the ground of the page to the strongest blue, evenly in lightness.
matplotlib.colormaps.register(
    LinearSegmentedColormap.from_list("weights", ["#FFFFFF", "#BFDDF0", "#62A5D6", COLOURS[0], "#04273F"]),
    force=True,
)

_LINE_STYLES = ("-", "--", "-.", ":")
_CELL_WIDTH = 0.40  # inches: four characters of 9 points with air around them
_LABEL_SPACE = 0.9  # inches: room for the axis label and for words of up to eight letters


def use_style() -> None:
    """Make Matplotlib's defaults those of the course, for every figure drawn from now on.

    Text is at least 9 points, lines take the colours of `COLOURS` each with a line style
    of its own, and the background is white. In a dark page the book's extension shows the
    mirror image: the same hues on the ground of the page, with the same contrasts.
    """
    plt.rcParams.update(
        {
            "figure.figsize": (4.2, 2.9),
            "figure.facecolor": "white",
            "axes.facecolor": "none",
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

    The stronger a cell's colour, the larger its weight; its number is written in it, in black or
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
    mesh = ax.pcolormesh(grid, cmap="weights", norm=Normalize(0, 1), edgecolors="#C8C8C8", linewidth=0.5)
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


def flow(
    *,
    focus: Collection[str] = (),
    mask: Tensor | None = None,
    dropout: bool = False,
    heads: int = 1,
    positions: bool = False,
    cached: int = 0,
    block: bool = False,
) -> Axes:
    """Draw attention from its input to its output: the picture that grows from chapter to chapter.

    Matrices are drawn as grids of four positions, a row for each. Scores and weights are
    those of an example: the stronger the colour, the larger the number.

    Parameters
    ----------
    focus : collection of str, optional
        The stages of `STAGES` to draw in full, and all others pale. All in full if empty.
    mask : Tensor, shape (4, 4), bool, optional
        Add this mask between scores and weights: hidden cells are striped.
    dropout : bool
        Add dropout after the weights: some are struck out.
    heads : int
        Draw so many heads behind each other, and the matrix that joins them.
    positions : bool
        Add an encoding of the positions to the input.
    cached : int
        Draw the last position alone as a query, and so many keys and values as kept: dotted.
    block : bool
        Add below: where attention stands in a block of a Transformer.

    Returns
    -------
    matplotlib.axes.Axes
        The axes drawn on; the figure is its attribute ``figure``.

    Raises
    ------
    ValueError
        If `focus` names no stage, `mask` is not a Boolean matrix of four by four, `heads` is
        not from 1 to 4, or `cached` not from 0 to 3.
    """
    if unknown := set(focus) - set(STAGES):
        raise ValueError(f"focus has {sorted(unknown)}: expected names of {STAGES}")
    if mask is not None and (tuple(mask.shape) != (4, 4) or mask.dtype != torch.bool):
        raise ValueError(f"mask has shape {tuple(mask.shape)} and {mask.dtype}: expected (4, 4) and bool")
    if not 1 <= heads <= 4:
        raise ValueError(f"heads is {heads}: expected 1 to 4")
    if not 0 <= cached <= 3:
        raise ValueError(f"cached is {cached}: expected 0 to 3, of four positions")
    return _Flow(focus, mask, dropout, heads, positions, cached, block).ax


class _Flow:
    """The drawing of `flow`. A unit is the side of a cell; the places are in the calls of `draw`."""

    _SIDE = 0.138  # inches: the whole is as wide as other figures
    _SCORES = ((2.0, 0.4, -1.0, 0.8), (0.2, 1.6, 0.9, -0.6), (-0.5, 1.2, 1.9, 0.3), (1.4, -0.8, 0.6, 1.7))

    def __init__(self, focus, mask, dropout, heads, positions, cached, block) -> None:
        self.focus = set(focus) or set(STAGES)
        self.heads, self.cached = heads, cached
        self.rows = 1 if cached else 4  # of queries
        bottom = -8.2 if block else -1.6
        height = 18.7 - bottom
        self.ax = plt.subplots(figsize=(30.6 * self._SIDE, height * self._SIDE))[1]
        self.ax.set(xlim=(-0.4, 30.2), ylim=(bottom, bottom + height), aspect="equal")
        self.ax.axis("off")
        self.draw(mask, dropout, positions)
        if block:
            self.block()

    def draw(self, mask, dropout, positions) -> None:
        allowed = np.ones((4, 4), bool) if mask is None else mask.cpu().numpy()
        exponentials = np.exp(np.array(self._SCORES)) * allowed
        weights = exponentials / np.maximum(exponentials.sum(1, keepdims=True), 1e-9)
        last = slice(4 - self.rows, 4)
        scores, weights, allowed = (a[last] for a in ((np.array(self._SCORES) + 1) / 3, weights, allowed))

        lift = 2.6 if positions else 0.0
        self.grid("x", (0, 5.2 + lift), np.ones((self.rows, 3)), TINTS[3], "$X$")
        if positions:
            bits = np.array([[row >> bit & 1 for bit in range(3)] for row in range(4)])[last]
            self.grid("x", (0, 0.6), bits / 2, None, "$P$")
            self.words("x", 1.5, 6.6, "+", size=12)
        for stage, top, colour, letter in (
            ("query", 12.8, TINTS[0], "Q"),
            ("key", 6.4, TINTS[1], "K"),
            ("value", 0, TINTS[2], "V"),
        ):
            rows = self.rows if stage == "query" else 4
            self.arrow(stage, (3.4, 7.2), (6.1, top + rows / 2))
            kept = self.cached if stage != "query" else 0
            self.grid(stage, (6.6, top), np.ones((rows, 3)), colour, f"${letter}$", kept=kept)
        self.arrow("scores", (10.2 + self.behind, 12.8 + self.rows / 2), (12.2, 11.2))
        self.arrow("scores", (10.2 + self.behind, 8.4), (12.2, 10.2))
        self.grid("scores", (12.6, 10.7 - self.rows / 2), scores, None, "scores")
        self.arrow("weights", (17.0 + self.behind, 10.7), (19.3, 10.7))
        self.grid("weights", (19.7, 10.7 - self.rows / 2), weights, None, "weights", allowed == 0, dropout)
        self.words("weights", 18.2, 7.2, "softargmax,\ndropout" if dropout else "softargmax")
        if mask is not None:
            self.mask((16.9, 14.1), allowed)
            self.arrow("mask", (18.2, 13.9), (18.2, 11.2))
        middle = 4.7 if self.heads == 1 else 8.2
        self.arrow("output", (23.2, 10.4 - self.rows / 2), (24.6, middle + 0.9))
        self.arrow("output", (10.2 + self.behind, 2), (24.6, middle - 0.9))
        ones, corner = np.ones((self.rows, 3)), (25.0, middle - self.rows / 2)
        if self.heads == 1:
            self.grid("output", corner, ones, TINTS[2], "$Y$")
        else:
            self.grid("output", corner, ones, TINTS[2], "$Y_h$")
            self.arrow("output", (26.5, corner[1] - 0.2), (26.5, 3.2 + self.rows / 2))
            self.grid("output", (25.0, 3.0 - self.rows / 2), ones, TINTS[3], "", behind=0)
            self.words("output", 26.5, 2.2 - self.rows / 2, "$Y$")
            self.words("output", 20.4, 2.2, "side by side,\ntimes $W^O$")

    @property
    def behind(self) -> float:
        return 0.35 * (self.heads - 1)

    def pale(self, stage) -> float:
        return 1.0 if stage in self.focus else 0.3

    def grid(self, stage, corner, strengths, colour, label, hidden=None, dropout=False, kept=0, behind=None):
        """A matrix with its name above: cells of one colour, or of the map's colours by their strength."""
        rows, columns = strengths.shape
        (left, bottom), alpha = corner, self.pale(stage)
        copies = self.heads - 1 if behind is None else behind
        if stage == "x":
            copies = 0
        for copy in range(copies, 0, -1):
            place = (left + 0.35 * copy, bottom + 0.35 * copy)
            self.ax.add_patch(
                Rectangle(
                    place, columns, rows, facecolor="white", edgecolor="black", linewidth=0.8, alpha=alpha
                )
            )
        for row in range(rows):
            for column in range(columns):
                place = (left + column, bottom + rows - 1 - row)
                shade = colour or plt.get_cmap("weights")(float(strengths[row, column]))
                is_hidden = hidden is not None and hidden[row, column]
                style = {"hatch": "////"} if is_hidden else {"hatch": ".."} if row < kept else {}
                face = "white" if is_hidden else shade
                self.ax.add_patch(
                    Rectangle(
                        place, 1, 1, facecolor=face, edgecolor="#555555", linewidth=0.6, alpha=alpha, **style
                    )
                )
                if dropout and (row, column) in {(1, 0), (2, 2), (3, 1)}:
                    x, y = place
                    for ends in ((y + 0.2, y + 0.8), (y + 0.8, y + 0.2)):
                        self.ax.plot((x + 0.2, x + 0.8), ends, "-", color="black", linewidth=1, alpha=alpha)
        self.words(stage, left + columns / 2, bottom + rows + 0.35 * copies + 0.75, label)

    def mask(self, corner, allowed) -> None:
        alpha, side = self.pale("mask"), 0.65
        for row, column in np.ndindex(allowed.shape):
            place = (corner[0] + side * column, corner[1] + side * (allowed.shape[0] - 1 - row))
            face = COLOURS[0] if allowed[row, column] else "white"
            self.ax.add_patch(
                Rectangle(place, side, side, facecolor=face, edgecolor="#555555", linewidth=0.6, alpha=alpha)
            )
        self.words("mask", corner[0] - 1.9, corner[1] + 2.1, "mask")

    def block(self) -> None:
        """Below, attention as one step of a block: each step adds to what goes past it."""
        y = -6.2
        self.ax.plot((0, 27.6), (y, y), "-", color="black", linewidth=1.2)
        for left, name, tint in ((4, "attention", TINTS[1]), (16, "MLP", TINTS[2])):
            corner = (left, y - 1.1)
            self.ax.add_patch(
                FancyBboxPatch(
                    corner, 6, 2.2, boxstyle="round,pad=0.1", facecolor=tint, edgecolor="black", zorder=3
                )
            )
            self.words("output", left + 3, y, name)
            self.ax.plot(
                (left - 2, left - 2, left + 8.5), (y, y + 2.2, y + 2.2), "-", color="black", linewidth=1.2
            )
            self.arrow("output", (left + 8.5, y + 2.2), (left + 8.5, y + 0.6))
            self.ax.text(
                left + 8.5,
                y,
                "+",
                ha="center",
                va="center",
                fontsize=10,
                bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "linewidth": 0.8},
            )
        self.arrow("output", (26.5, y), (28.2, y))

    def arrow(self, stage, start, end) -> None:
        style = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "linewidth": 1, "color": "black"}
        self.ax.annotate("", end, start, arrowprops={**style, "alpha": self.pale(stage)})

    def words(self, stage, x, y, text, size=9) -> None:
        colour = "black" if stage in self.focus else "#6A6A6A"
        self.ax.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, zorder=4)


class Table:
    """Numbers that a cell has computed, as a table with names: HTML in a page, text elsewhere.

    Parameters
    ----------
    columns : mapping of str to sequence
        The name of each column, and its entries: words, numbers or tensors of one number.
        The first column names the rows.
    spec : str
        How numbers with a fraction are written, as in `format`; whole numbers get commas.
    caption : str, optional

    Raises
    ------
    ValueError
        If a column has more or fewer entries than the first, or there is none.
    """

    def __init__(
        self, columns: Mapping[str, Sequence | Tensor], spec: str = ".2f", *, caption: str = ""
    ) -> None:
        if not columns:
            raise ValueError("columns is empty: expected at least one")
        entries = {name: [self._written(entry, spec) for entry in column] for name, column in columns.items()}
        first, *others = entries
        for name in others:
            if len(entries[name]) != len(entries[first]):
                raise ValueError(
                    f"column {name!r} has {len(entries[name])} entries: "
                    f"expected {len(entries[first])}, as column {first!r}"
                )
        self.head = list(entries)
        self.rows = [list(row) for row in zip(*entries.values(), strict=True)]
        self.caption = caption

    @staticmethod
    def _written(entry, spec: str) -> str:
        if isinstance(entry, Tensor | np.generic):
            entry = entry.item()
        if isinstance(entry, bool):
            return "yes" if entry else "no"
        if isinstance(entry, int):
            return f"{entry:,}".replace("-", "−")
        if isinstance(entry, float):
            if not math.isfinite(entry):
                return str(entry).replace("-inf", "−∞").replace("inf", "∞")
            text = f"{entry:{spec}}"
            # Never −0.00.
            return (
                text.replace("-", "−")
                if any(digit in text for digit in "123456789")
                else text.replace("-", "")
            )
        return str(entry)

    def _repr_html_(self) -> str:
        caption = f"<caption>{escape(self.caption)}</caption>" if self.caption else ""
        heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in self.head)
        rows = ""
        for first, *others in self.rows:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in others)
            rows += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
        return (
            f'<table class="computed">{caption}<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        )

    def __repr__(self) -> str:
        lines = [self.head, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.head))]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        )


def _text_colour(background: np.ndarray) -> str:
    """Black or white, whichever has the greater contrast (WCAG 2) with `background`."""
    channels = background[:3]
    linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
    luminance = linear @ np.array([0.2126, 0.7152, 0.0722])
    black_contrast = (luminance + 0.05) / 0.05
    white_contrast = 1.05 / (luminance + 0.05)
    return "black" if black_contrast > white_contrast else "white"
