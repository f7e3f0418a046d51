"""Figures for both of the book's themes: one SVG on the page's own ground, and its mirror image for the dark.

In the mirror every colour keeps its hue, and its contrast with white becomes its contrast with black. So any
two colours stand out from each other in the dark page as they do in the light one: text from its cell, a
line from the next line.
"""

import re

_WEIGHTS = (0.2126, 0.7152, 0.0722)  # of red, green and blue in the luminance (WCAG 2)


def mirrored(colour: str) -> str:
    """The colour of the same hue that has the contrast with black that `colour` has with white.

    Both are written as ``#rrggbb``.
    """
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    wanted = 0.05 * 1.05 / (_luminance(linear) + 0.05) - 0.05
    grey, brightest = min(linear), max(linear)
    if brightest == grey:
        pure = [1.0] * 3
    else:  # a pale colour would lose its hue in the dark, so white is taken out of it, in part
        strength = ((brightest - grey) / brightest) ** 0.5
        pure = [1 - strength * (brightest - c) / (brightest - grey) for c in linear]
    most = _luminance(pure)
    if wanted <= most:
        mixed = [c * wanted / most for c in pure]
    else:  # brighter than this hue can be: white is mixed in
        share = (wanted - most) / (1 - most)
        mixed = [c + share * (1 - c) for c in pure]
    encoded = [12.92 * c if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in mixed]
    return "#" + "".join(f"{round(255 * min(max(c, 0.0), 1.0)):02x}" for c in encoded)


def _luminance(linear: list[float]) -> float:
    return sum(weight * c for weight, c in zip(_WEIGHTS, linear, strict=True))


def for_the_dark(svg: str) -> str:
    """Mirror every colour of a picture, and take away the ground that Matplotlib draws: its first patch.

    What has no colour is drawn in SVG's black, and becomes white. Bitmaps in the SVG stay as they are.
    """
    svg = re.sub(r'<g id="patch_1">.*?</g>', "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(
        r"((?:fill|stroke)(?:: |=\"))(#[0-9a-fA-F]{6})\b", lambda found: found[1] + mirrored(found[2]), svg
    )
    return re.sub(r"<svg\b", '<svg fill="#ffffff"', svg, count=1)
