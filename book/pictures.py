"""Draw the pictures of the front page: `python book/pictures.py` writes them into book/images/.

Each shows the idea of one unit. They are SVG of a few hundred bytes, without a ground, in two hues that
colour-blind readers can tell apart.
"""

import math
from pathlib import Path

FOLDER = Path(__file__).parent / "images"
WIDTH, HEIGHT = 160, 100
BLUE, ORANGE, GREY = "#0b6fb0", "#b34700", "#808080"


def square(x, y, side, colour, strength=1.0):
    opacity = f' fill-opacity="{strength:.2f}"' if strength < 1 else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{side:g}" height="{side:g}" fill="{colour}"{opacity}/>'


def grid(table, x, y, side, colour=BLUE):
    """Squares in rows and columns, the stronger the larger the number, at most 1."""
    return "".join(
        square(x + column * side, y + row * side, side - 1, colour, 0.06 + 0.94 * number)
        for row, numbers in enumerate(table)
        for column, number in enumerate(numbers)
    )


def line(points, colour, width=2.5):
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"/>'


def softargmax(scores):
    exponentials = [math.exp(score) for score in scores]
    return [number / sum(exponentials) for number in exponentials]


def intro():
    """A curve that passes near three dots: a soft look-up."""
    dots = [(30, 70), (80, 22), (130, 45)]
    curve = []
    for x in range(10, 151, 2):
        weights = softargmax([-(((x - at) / 16) ** 2) for at, _ in dots])
        curve.append((x, sum(weight * y for weight, (_, y) in zip(weights, dots, strict=True))))
    return line(curve, BLUE) + "".join(f'<circle cx="{x}" cy="{y}" r="5" fill="{ORANGE}"/>' for x, y in dots)


def attention_operator():
    """A matrix of weights, one row for each query; one row stands out."""
    scores = [[3 * math.cos(1.1 * query + 0.9 * key) for key in range(9)] for query in range(5)]
    weights = [softargmax(row) for row in scores]
    picture = grid([[weight / max(row) for weight in row] for row in weights], 17, 14, 14)
    return (
        picture
        + f'<rect x="15" y="40" width="129" height="17" fill="none" stroke="{ORANGE}" stroke-width="2.5"/>'
    )


def masking():
    """A triangle: each position sees itself and those before it."""
    rows = [[1 / (query + 1) if key <= query else 0 for key in range(7)] for query in range(7)]
    return grid([[min(1, 0.1 * bool(weight) + weight) for weight in row] for row in rows], 40, 10, 11.5)


def multihead():
    """Three matrices side by side, each with a pattern of its own."""
    before = [[1.0 if key == query - 1 or query == key == 0 else 0 for key in range(4)] for query in range(4)]
    first = [[1.0 if key == 0 else 0 for key in range(4)] for _ in range(4)]
    mean = [[0.3] * 4 for _ in range(4)]
    heads = zip((before, first, mean), (BLUE, ORANGE, GREY), strict=True)
    return "".join(grid(head, 8 + 50 * place, 28, 11.5, colour) for place, (head, colour) in enumerate(heads))


def permutation():
    """Five shapes change places."""
    order = [2, 0, 4, 1, 3]
    picture = ""
    for place, came_from in enumerate(order):
        colour, strength = (ORANGE, 1.0) if came_from == 4 else (BLUE, 0.25 + 0.2 * came_from)
        start, end = 23 + 26 * came_from, 23 + 26 * place
        picture += line([(start + 6, 30), (end + 6, 70)], GREY, 1.5)
        picture += square(start, 16, 13, colour, strength) + square(end, 70, 13, colour, strength)
    return picture


def positional():
    """Waves of three lengths, which together number the positions."""
    waves = [(24, 6, BLUE), (50, 14, ORANGE), (76, 38, GREY)]
    return "".join(
        line([(x, y - 10 * math.sin((x - 10) / length)) for x in range(10, 151, 2)], colour)
        for y, length, colour in waves
    )


def scaling():
    """A large matrix of which one strip is computed at a time."""
    picture = grid([[0.0] * 12 for _ in range(7)], 9, 10, 11.8)
    return picture + grid([[0.9] * 3 for _ in range(7)], 9 + 6 * 11.8, 10, 11.8, ORANGE)


def transformer():
    """A block: two boxes on a line, each with a way around it."""
    picture = line([(8, 62), (152, 62)], GREY)
    for x, colour in [(34, BLUE), (94, ORANGE)]:
        picture += line([(x - 10, 62), (x - 10, 26), (x + 42, 26), (x + 42, 62)], GREY)
        picture += f'<rect x="{x}" y="46" width="32" height="32" rx="4" fill="{colour}"/>'
        picture += f'<circle cx="{x + 42}" cy="62" r="5" fill="#ffffff" stroke="{GREY}" stroke-width="2"/>'
    return picture


def vision():
    """A picture in patches, one row of which stands below as a sequence."""
    dark = [[0.0, 0.7, 0.8, 0.1], [0.1, 0.6, 0.5, 0.9], [0.6, 0.9, 0.2, 0.1], [0.9, 0.8, 0.7, 0.9]]
    picture = grid(dark, 52, 8, 14)
    picture += "".join(square(20 + 32 * k, 78, 13, BLUE, 0.06 + 0.94 * ink) for k, ink in enumerate(dark[1]))
    picture += "".join(line([(58.5 + 14 * k, 36), (26.5 + 32 * k, 76)], GREY, 1.5) for k in range(4))
    return (
        picture
        + f'<rect x="51" y="21" width="57" height="15" fill="none" stroke="{ORANGE}" stroke-width="2.5"/>'
    )


def words():
    """Words on a line; one looks at two before it, at one of them more."""
    wide = [14, 20, 16, 24, 20, 12, 22]
    picture, x, middles = "", 6.0, []
    for place, width in enumerate(wide):
        colour, strength = (ORANGE, 1.0) if place == 5 else (BLUE, {1: 0.45, 3: 1.0}.get(place, 0.2))
        opacity = f' fill-opacity="{strength:g}"' if strength < 1 else ""
        picture += f'<rect x="{x:g}" y="66" width="{width}" height="13" rx="3" fill="{colour}"{opacity}/>'
        middles.append(x + width / 2)
        x += width + 3
    for place, height, wide in ((1, 14, 1.5), (3, 34, 4.0)):
        start, end = middles[5], middles[place]
        picture += (
            f'<path d="M{start:g} 63 Q{(start + end) / 2:g} {2 * height - 63:g} {end:g} 63" fill="none" '
            f'stroke="{ORANGE}" stroke-width="{wide:g}"/>'
        )
    return picture


def your_model():
    """A tower of blocks that writes a row of tokens, the newest from all before it."""
    picture = ""
    for place, (colour, strength) in enumerate([(BLUE, 0.35), (ORANGE, 1.0), (BLUE, 0.35), (ORANGE, 1.0)]):
        opacity = f' fill-opacity="{strength:g}"' if strength < 1 else ""
        picture += (
            f'<rect x="96" y="{54 - 15 * place}" width="46" height="12" rx="3" fill="{colour}"{opacity}/>'
        )
    wide = [14, 22, 10, 18, 14]
    x = 8.0
    for place, width in enumerate(wide):
        opacity = f' fill-opacity="{0.25 + 0.12 * place:g}"'
        picture += f'<rect x="{x:g}" y="80" width="{width}" height="12" rx="3" fill="{BLUE}"{opacity}/>'
        x += width + 3
    picture += f'<rect x="{x:g}" y="80" width="26" height="12" rx="3" fill="{ORANGE}"/>'
    picture += line([(119, 78), (119, 67)], GREY, 1.5)
    return picture + line([(119, 8), (119, 4), (152, 4), (152, 86), (131, 86)], ORANGE, 1.5)


PICTURES = (
    intro,
    attention_operator,
    masking,
    multihead,
    permutation,
    positional,
    scaling,
    transformer,
    vision,
    words,
    your_model,
)


def svg(picture):
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}">'
        f"{picture()}</svg>\n"
    )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for picture in PICTURES:
        (FOLDER / f"{picture.__name__}.svg").write_text(svg(picture))
