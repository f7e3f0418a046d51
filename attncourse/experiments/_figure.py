"""The figures of the experiments: their axes and lines, and how a notebook shows them."""

import base64
import io
from collections.abc import Mapping, Sized
from html import escape

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

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


# In a dark theme of JupyterLab, light and dark change places and hues stay; white becomes nearly the page's
# black. Where no style sheet is let in, the figure keeps its white ground, so that it can be read anywhere.
_IN_THE_DARK = (
    '<style>[data-jp-theme-light="false"] .attncourse-figure img '
    "{filter: invert(93%) hue-rotate(180deg)}</style>"
)


class Captioned:
    """A figure that a notebook shows with a caption below it, and that a screen reader can read out.

    The figure is drawn at once, and then closed. In a dark theme of JupyterLab it is dark, too.

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
        caption = f"<figcaption>{escape(self.caption)}</figcaption>"
        return f'{_IN_THE_DARK}<figure class="attncourse-figure">{picture}{caption}</figure>'

    def __repr__(self) -> str:
        return f"{self.caption} {self.alt}"


def milliseconds(seconds: Tensor, together: int) -> Tensor:
    """The medians of so many times each, in milliseconds, shape (points,).

    The last is that of the last ones. What does not fill a group is left out at the beginning.
    """
    together = min(together, len(seconds))
    return 1000 * seconds[len(seconds) % together :].view(-1, together).median(1).values


def times_of(seconds: Mapping[str, Tensor], what: str, together: int) -> Captioned:
    """Curves of the time that one more takes, against how many have been written.

    Parameters
    ----------
    seconds : dict of str to Tensor
        For each curve, by its name, the time of each in seconds, shape (written,).
    what : str
        What is written: "letter" or "token".
    together : int
        A point is the median of so many, so that one slow one does not count.
    """
    plots.use_style()
    drawing, ax = plt.subplots(figsize=(4.6, 2.8))
    words = []
    for name, each in seconds.items():
        middle = milliseconds(each, together)
        written = len(each) - together * torch.arange(len(middle)).flip(0)
        ax.plot(written, middle, label=name)
        words.append(f"{name}: from {middle[0]:.1f} to {middle[-1]:.1f} milliseconds")
    ax.set(xlabel=f"{what}s written", ylabel=f"milliseconds a {what}")
    ax.set_ylim(bottom=0)
    ax.legend()
    return Captioned(
        drawing,
        f"The time that one more {what} takes, the median of {together} {what}s, as the text grows.",
        "Curves. " + "; ".join(words) + ".",
    )
