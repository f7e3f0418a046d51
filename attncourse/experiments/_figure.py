"""The figures of the experiments: their axes and lines, and how a notebook shows them."""

import base64
import io
from collections.abc import Sized
from html import escape

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attncourse import plots


def axes_for(runs: Sized, width: float, height: float) -> tuple[Figure, Axes]:
    """Axes in the course's style, in inches, for as many runs as there are colours to tell them apart.

    Raises
    ------
    ValueError
        If `runs` is empty or has more.
    """
    if not 1 <= len(runs) <= len(plots.COLOURS):
        raise ValueError(f"runs has {len(runs)} runs: expected 1 to {len(plots.COLOURS)}")
    plots.use_style()
    return plt.subplots(figsize=(width, height))


def level(ax: Axes, height: float, name: str = "", *, below: bool = False) -> None:
    """Draw what was predicted, as a thin level line with its name at the right, above or below it."""
    ax.axhline(height, color="#6A6A6A", linewidth=1, linestyle="-")
    ax.annotate(name, (1, height), (-2, -4 if below else 2), xycoords=("axes fraction", "data"), ha="right",
                va="top" if below else "baseline", fontsize=9, textcoords="offset points")  # fmt: skip


class Captioned:
    """A figure that a notebook shows with a caption below it, and that a screen reader can read out.

    The figure is drawn at once, and then closed.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
    caption : str
        What the figure shows, for everyone.
    alt : str
        What is to be seen in it, for those who do not see it.
    """

    def __init__(self, figure: Figure, caption: str, alt: str) -> None:
        image = io.BytesIO()
        figure.savefig(image, format="svg")
        plt.close(figure)
        self.caption = caption
        self.alt = alt
        self._image = base64.b64encode(image.getvalue()).decode()

    def _repr_html_(self) -> str:
        source = f"data:image/svg+xml;base64,{self._image}"
        picture = f'<img src="{source}" alt="{escape(self.alt)}" style="max-width:100%">'
        return f"<figure>{picture}<figcaption>{escape(self.caption)}</figcaption></figure>"

    def __repr__(self) -> str:
        return f"{self.caption} {self.alt}"
