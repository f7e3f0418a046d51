"""A figure with its caption and its text alternative, as a notebook shows it."""

import base64
import io
from html import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure


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
