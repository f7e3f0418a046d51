"""Figures that a reader can play with: one HTML element for each chapter that has one.

Each function writes real tables of numbers, computed by the course's own functions, in an
element named after its unit: ``<try-masking>``. In the book, ``book/_static/interactive.js``
adds controls to the element and rewrites the numbers when they are moved. Without
JavaScript the tables show the case with which the controls begin.
"""

import base64
import json
import math
from collections.abc import Iterable, Sequence
from html import escape

import torch
from IPython.display import HTML
from torch import Tensor

from attncourse.attention_operator import attention, attention_weights, softargmax
from attncourse.masking import causal_mask, influence, local_mask
from attncourse.permutation import permute
from attncourse.positional import binary_encoding, sinusoidal_encoding
from attncourse.scaling import merge_partials, partial_attention
from attncourse.vision import attention_rollout

__all__ = [
    "attention_operator",
    "intro",
    "masking",
    "multihead",
    "permutation",
    "positional",
    "scaling",
    "transformer",
    "vision",
    "words",
]


#: The factors of the soft look-up; the reader begins with 4.
LOOK_UP_FACTORS = (0, 0.5, 1, 2, 4, 8, 16, 100)


def intro(hours: Sequence[int], degrees: Sequence[float]) -> HTML:
    """Let the reader ask a soft dictionary for any hour, and set how sharply it tells near from far.

    Parameters
    ----------
    hours : sequence of int
        The keys, from 0 to 24, on the face of a clock of 24 hours.
    degrees : sequence of float, of the same length
        The values.

    Returns
    -------
    IPython.display.HTML
        For the hour 9 and the factor 4.
    """
    asked, factor = 9, 4.0
    key = _clock(torch.tensor(hours, dtype=torch.float32))  # (num_keys, 2)
    value = torch.tensor(degrees).unsqueeze(1)  # (num_keys, 1)
    similarity = _clock(torch.tensor([asked])) @ key.T  # (1, num_keys)
    weights = softargmax(factor * similarity)[0]  # (num_keys,)
    rows = [
        (f"{hour}", [_cell(_two(similarity[0, k])), _share(weights[k]), _cell(f"{degrees[k]:g}")])
        for k, hour in enumerate(hours)
    ]
    foot = ("sum, answer", [_cell(""), _cell(_two(weights.sum())), _cell(_two(weights @ value))])
    table = _table(
        "hours try-bars", f"Hour {asked}, factor 4", [["hour", "similarity", "weight", "degrees"]], rows, foot
    )
    moments = torch.linspace(0, 24, 97)
    answers = (softargmax(factor * _clock(moments) @ key.T) @ value)[:, 0]  # (97,)
    given = {
        "hours": list(hours),
        "degrees": list(degrees),
        "asked": asked,
        "factor": factor,
        "factors": LOOK_UP_FACTORS,
    }
    lowest, highest = min(degrees), max(degrees)

    def place(hour: float, degree: float) -> str:
        return f"{30 + 11 * hour:.1f},{130 - 110 * (degree - lowest) / (highest - lowest):.1f}"

    def mark(name: str, radius: int, at: str) -> str:
        x, y = at.split(",")
        return f'<circle class="try-{name}" r="{radius}" cx="{x}" cy="{y}"/>'

    curve = " ".join(place(float(h), float(a)) for h, a in zip(moments, answers, strict=True))
    dots = "".join(mark("dot", 5, place(h, d)) for h, d in zip(hours, degrees, strict=True))
    answer = mark("answer", 7, place(asked, float(weights @ value)))
    ticks = "".join(f'<text x="{30 + 11 * hour}" y="160">{hour}</text>' for hour in range(0, 25, 6))
    picture = (
        '<figure><svg viewBox="0 0 310 165" role="img" aria-label="The answer for every hour, as a curve; '
        'a dot for each stored hour, and a ring for the hour that is asked for.">'
        f'<path class="try-line" d="M30 12V142H300"/><g>{ticks}</g>'
        f'<text x="2" y="24">{highest:g}</text><text x="2" y="134">{lowest:g}</text>'
        f'<polyline class="try-curve" points="{curve}"/>{dots}{answer}</svg>'
        "<figcaption>Degrees over hours. Dots: what is stored. Ring: the answer.</figcaption></figure>"
    )
    return _element("intro", given, [picture, table])


def _clock(hour: Tensor) -> Tensor:
    """Hours as points on a circle: (..., 2)."""
    angle = hour * 2 * math.pi / 24
    return torch.stack([angle.cos(), angle.sin()], dim=-1)


def attention_operator(
    words: Sequence[str],
    features: Sequence[str],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    value_features: Sequence[str],
) -> HTML:
    """Let the reader choose a query and a factor on it, and see scores, weights and output.

    Parameters
    ----------
    words : sequence of str, length num_keys
        A name for each position.
    features : sequence of str, length key_dim
        What the features of queries and keys mean.
    query : Tensor, shape (num_keys, key_dim)
        The query of each word, in whole numbers from −8 to 8: the steps of its sliders. The
        reader begins with the first.
    key : Tensor, shape (num_keys, key_dim)
    value : Tensor, shape (num_keys, 2)
        Two features, which are drawn as a plane.
    value_features : sequence of str, length 2

    Returns
    -------
    IPython.display.HTML

    Raises
    ------
    ValueError
        If a query has numbers that its sliders cannot show.
    """
    if not ((query == query.round()) & (query.abs() <= 8)).all():
        raise ValueError(
            f"query has shape {tuple(query.shape)} and values that are not whole numbers from -8 to 8"
        )
    scores = query[0] @ key.T / key.shape[1] ** 0.5  # (num_keys,)
    output, weights = attention(query[:1], key, value, return_weights=True)  # (1, 2), (1, num_keys)
    rows = [
        (
            word,
            [_cell(_exact(key[k])), _cell(_two(scores[k])), _share(weights[0, k]), _cell(_exact(value[k]))],
        )
        for k, word in enumerate(words)
    ]
    sums = [_cell(""), _cell(""), _cell(_two(weights.sum())), _cell(", ".join(map(_two, output[0])))]
    table = _table(
        "bars",
        f"Query ({_exact(query[0])}), factor 1",
        [["word", "key", "score", "weight", "value"]],
        rows,
        ("sum, output", sums),
    )
    given = {
        "words": words,
        "features": features,
        "query": _numbers(query),
        "key": _numbers(key),
        "value": _numbers(value),
        "value_features": value_features,
    }
    plane = _plane(words, value, value_features, weights[0].tolist())
    return _element("attention-operator", given, [plane, table])


def masking(words: Sequence[str], x: Tensor, W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> HTML:
    """Let the reader combine masks, and see the weights and who can change whom.

    Parameters
    ----------
    words : sequence of str, length num_words
    x : Tensor, shape (num_words, model_dim)
        The input of self-attention.
    W_Q, W_K, W_V : Tensor, shape (model_dim, ...)
        What makes queries, keys and values of it.

    Returns
    -------
    IPython.display.HTML
    """
    mask = causal_mask(len(words))  # (num_words, num_words)

    def weights_of(x: Tensor) -> Tensor:
        return attention_weights(x @ W_Q, x @ W_K, mask)

    weights = weights_of(x)  # (num_words, num_words)
    influenced = influence(lambda x: weights_of(x) @ (x @ W_V), x)  # (num_words, num_words)
    weight_rows = []
    influence_rows = []
    for q, word in enumerate(words):
        cells = [_share(w) if seen else _hidden() for w, seen in zip(weights[q], mask[q], strict=True)]
        weight_rows.append((word, [*cells, _cell(_two(weights[q].sum()))]))
        influence_rows.append((word, [_yes() if can else _cell("–") for can in influenced[q]]))
    tables = [
        _table("weights", "Weights. Mask: causal", [["query", *words, "sum"]], weight_rows),
        _table(
            "influence",
            "Can this input (column) change that output (row)?",
            [["output", *words]],
            influence_rows,
        ),
    ]
    given = {
        "words": words,
        "x": _numbers(x),
        "W_Q": _numbers(W_Q),
        "W_K": _numbers(W_K),
        "W_V": _numbers(W_V),
    }
    return _element("masking", given, tables)


def multihead(sentences: Sequence[Sequence[str]], kinds: Sequence[str], kind: Tensor) -> HTML:
    """Let the reader set what each of two heads looks for, and see whether their answers tell who did what.

    In each sentence the second word, the verb, asks; the first is the subject and the third
    the object.

    Parameters
    ----------
    sentences : sequence of two sequences of three str
        They say opposite things.
    kinds : sequence of str, length num_kinds
        What a word hands out.
    kind : Tensor, shape (2, 3, num_kinds)
        The values: of which kind each word of each sentence is.

    Returns
    -------
    IPython.display.HTML
        With one head that scores the subject with 3, and one that does so with the object.
    """
    scores = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 3.0]])  # (num_heads, num_words)
    weights = softargmax(scores)  # (num_heads, num_words)
    rows = [(str(h), [_share(weight) for weight in row]) for h, row in enumerate(weights)]
    names = [[a if a == b else f"{a} or {b}" for a, b in zip(*sentences, strict=True)]]
    tables = [
        _table("heads", f"Weights of {sentences[0][1]}", [["head", *names[0]]], rows),
        _table(
            "outputs",
            "Outputs, side by side",
            [["sentence", *(f"head {h}: {name}" for h in range(2) for name in kinds)]],
            [
                (" ".join(words), [_cell(_two(number)) for number in (weights @ kind[s]).flatten()])
                for s, words in enumerate(sentences)
            ],
        ),
    ]
    given = {
        "sentences": sentences,
        "kinds": kinds,
        "kind": [_numbers(matrix) for matrix in kind],
        "scores": _numbers(scores),
    }
    return _element("multihead", given, tables)


def permutation(words: Sequence[str], query: Tensor, key: Tensor, value: Tensor) -> HTML:
    """Let the reader put words in another order, and see weights and output before and after.

    Parameters
    ----------
    words : sequence of str, length num_words
    query, key : Tensor, shape (num_words, key_dim)
    value : Tensor, shape (num_words, value_dim)

    Returns
    -------
    IPython.display.HTML
        Tables before, and after all words have moved one place down and the last to the front.
    """
    order = [len(words) - 1, *range(len(words) - 1)]
    tables = []
    for title, sigma in (("Before", range(len(words))), ("After", order)):
        Q, K, V = (permute(tensor, list(sigma)) for tensor in (query, key, value))
        output, weights = attention(Q, K, V, return_weights=True)
        named = [words[i] for i in sigma]
        rows = [
            (word, [*map(_share, weights[q]), _cell(", ".join(map(_two, output[q])))])
            for q, word in enumerate(named)
        ]
        caption = f"{title}: {', '.join(named)}"
        tables.append(_table(title.lower(), caption, [["query", *named, "output"]], rows))
    given = {
        "words": words,
        "order": order,
        "query": _numbers(query),
        "key": _numbers(key),
        "value": _numbers(value),
    }
    return _element("permutation", given, tables)


def positional() -> HTML:
    """Let the reader step through 32 positions, and compare the encodings of two of them.

    Returns
    -------
    IPython.display.HTML
    """
    length, dim = 32, 8
    position, offset = 5, 2  # where the reader begins
    bits = binary_encoding(length)  # (length, num_bits)
    waves = sinusoidal_encoding(length, dim)  # (length, dim)
    frequencies = [f"{10_000 ** (-2 * pair / dim):g}" for pair in range(dim // 2)]
    tables = [
        _table(
            "binary",
            "Binary: a bit for …",
            [["position", *(str(2**b) for b in range(bits.shape[1]))]],
            [(str(t), [_yes("1") if bit else _cell("0") for bit in row]) for t, row in enumerate(bits)],
        ),
        _table(
            "sinusoidal",
            "Sinusoidal: sine and cosine at frequency ω",
            [
                ["position", *(f"ω = {frequency}" for frequency in frequencies)],
                [*("sin", "cos") * len(frequencies)],
            ],
            [(str(t), [_cell(_two(number)) for number in row]) for t, row in enumerate(waves)],
        ),
    ]
    given = {
        "position": position,
        "offset": offset,
        "binary": _numbers(bits),
        "sinusoidal": _numbers(waves),
    }
    dials = _dials(waves[position], waves[position + offset], frequencies)
    return _element("positional", given, [dials, *tables])


def scaling(words: Sequence[str], query: Tensor, key: Tensor, value: Tensor) -> HTML:
    """Let the reader go on with a text word by word, with a cache, and attend to it in chunks.

    Parameters
    ----------
    words : sequence of str, length num_words
        At least six.
    query, key : Tensor, shape (num_words, key_dim)
    value : Tensor, shape (num_words, 1)

    Returns
    -------
    IPython.display.HTML
        For the sixth word, in chunks of two keys.

    Raises
    ------
    ValueError
        If there are fewer words than six.
    """
    newest, size = 5, 2  # where the reader begins
    if len(words) <= newest:
        raise ValueError(f"words has {len(words)} words: expected at least {newest + 1}")
    scores = query[newest] @ key[: newest + 1].T / key.shape[1] ** 0.5  # (newest + 1,)
    rows, state = [], None
    for start in range(0, newest + 1, size):
        chunk = slice(start, min(start + size, newest + 1))
        new = partial_attention(scores[None, chunk], value[chunk])
        state = new if state is None else merge_partials(state, new)
        numbers = (*state, state.weighted / state.total)
        rows.append((", ".join(words[chunk]), [_cell(_two(number)) for number in numbers]))
    caption = f"{words[newest]} asks, {size} keys at a time"
    table = _table("chunks", caption, [["keys", "m", "l", "o", "o / l"]], rows)
    side = 20
    squares = "".join(
        f'<rect class="{_square(q, k, newest, size, len(words))}" x="{60 + side * k}" y="{side * q}" '
        f'width="{side}" height="{side}"/>'
        for q in range(len(words) + 1)
        for k in range(len(words))
    )
    names = "".join(
        f'<text x="55" y="{side * q + 15}" text-anchor="end">{escape(word)}</text>'
        for q, word in enumerate([*words, "cache"])
    )
    picture = (
        f'<figure><svg viewBox="0 0 {70 + side * len(words)} {side * (len(words) + 1) + 4}" role="img" '
        'aria-label="A square for each score: a row for each word that asks, a column for each key. '
        "Filled: the scores of the newest word, in chunks. Pale: those of earlier words. Below, a square for "
        f'each key and value in the cache.">{squares}{names}</svg>'
        "<figcaption>Rows ask, columns are keys. Strong: computed now, chunk by chunk. Pale: computed "
        "before, and forgotten. Last row: keys and values that are kept.</figcaption></figure>"
    )
    given = {
        "words": words,
        "newest": newest,
        "size": size,
        "query": _numbers(query),
        "key": _numbers(key),
        "value": _numbers(value),
    }
    return _element("scaling", given, [picture, table])


def _square(q: int, k: int, newest: int, size: int, num_words: int) -> str:
    """How a square is filled; the row below the words' is the cache."""
    if k > min(q, newest) or newest < q < num_words:
        return "try-empty"
    if q < newest:
        return "try-before"
    return f"try-chunk{k // size % 2}" if q == newest else "try-cached"


def transformer(words: Sequence[str]) -> HTML:
    """Let the reader choose the mask of each block of a stack, and see who can change whom.

    Parameters
    ----------
    words : sequence of str

    Returns
    -------
    IPython.display.HTML
        For three causal blocks.
    """
    length = len(words)
    masks = {
        "causal": causal_mask(length),
        "open": torch.ones(length, length, dtype=torch.bool),
        "neighbours": local_mask(length, radius=1),
        "left out": torch.eye(length, dtype=torch.bool),
    }
    blocks = ["causal", "causal", "causal", "left out"]
    seen = torch.eye(length)
    for name in blocks:
        seen = (masks[name].float() @ seen > 0).float()
    rows = [(word, [_yes() if can else _cell("–") for can in seen[q]]) for q, word in enumerate(words)]
    caption = "Can this input (column) change that output (row)?"
    table = _table("stack", caption, [["output", *words]], rows)
    given = {
        "words": words,
        "blocks": blocks,
        "masks": {name: mask.int().tolist() for name, mask in masks.items()},
    }
    return _element("transformer", given, [table])


def vision(names: Sequence[str], images: Tensor, weights: Tensor, falls: Tensor) -> HTML:
    """Let the reader choose a digit, a block, a head and who asks, and see where it looks.

    Parameters
    ----------
    names : sequence of str, length num_images
    images : Tensor, shape (num_images, height, width)
        From 0, paper, to 1, ink.
    weights : Tensor, shape (num_images, num_blocks, num_heads, 17, 17)
        The attention of a model; token 0 is the class token, the others are patches in 4 rows of 4.
        The page gets them in thousandths.
    falls : Tensor, shape (num_images, 16)
        By how much the chance of what the model says falls when a patch is erased.

    Returns
    -------
    IPython.display.HTML
        For the first digit, the last block and its first head, as the class token asks.

    Raises
    ------
    ValueError
        If the shapes do not fit each other.
    """
    num_images, num_blocks = weights.shape[:2]
    if weights.shape[3:] != (17, 17) or falls.shape != (num_images, 16) or len(images) != num_images:
        raise ValueError(
            f"weights has shape {tuple(weights.shape)}, falls {tuple(falls.shape)} and images "
            f"{tuple(images.shape)}: expected (num_images, num_blocks, num_heads, 17, 17), (num_images, 16) "
            "and (num_images, height, width)"
        )
    weights = weights.double().round(decimals=3)
    rolled = attention_rollout(list(weights.unbind(1))).round(decimals=3)  # (num_images, 17, 17)
    row = weights[0, -1, 0, 0]  # (17,)
    rows = [(str(r), [_share(weight) for weight in row[1 + 4 * r : 5 + 4 * r]]) for r in range(4)]
    foot = ("class token", [_share(row[0]), *[_cell("")] * 3])
    caption = f"The class token asks, block {num_blocks - 1}, head 0"
    table = _table("looks", caption, [["row", "0", "1", "2", "3"]], rows, foot)

    def squares(name: str, numbers: Tensor, left: int) -> str:
        """A map of 96 x 96, one square for each number."""
        sides = 96 / numbers.shape[1], 96 / numbers.shape[0]
        return "".join(
            f'<rect class="try-{name}" x="{left + sides[0] * k:g}" y="{4 + sides[1] * r:g}" '
            f'width="{sides[0]:g}" height="{sides[1]:g}" fill-opacity="{max(0.0, float(number)):.2f}"/>'
            for r, line in enumerate(numbers)
            for k, number in enumerate(line)
        )

    maps = [
        squares("ink", images[0], 4),
        squares("weight", row[1:].view(4, 4) / row[1:].max(), 112),
        squares("fall", falls[0].view(4, 4) / falls[0].max().clamp(min=1e-9), 220),
    ]
    frames = "".join(
        f'<rect class="try-frame" x="{left}" y="4" width="96" height="96"/>' for left in (4, 112, 220)
    )
    asks = '<rect class="try-asks" x="4" y="4" width="24" height="24" visibility="hidden"/>'
    words = "".join(
        f'<text x="{left}" y="116">{text}</text>'
        for left, text in ((4, "digit"), (112, "weight"), (220, "erased"))
    )
    picture = (
        '<figure><svg viewBox="0 0 320 122" role="img" aria-label="Three squares side by side: the digit, '
        "with a frame around the patch that asks; the weights of its patches, stronger where there is more; "
        'and, darker where the answer hangs on a patch, what erasing each of them costs.">'
        f"{''.join(maps)}{frames}{asks}{words}</svg>"
        "<figcaption>The stronger, the more. Weight and erased each have a scale of their own.</figcaption>"
        "</figure>"
    )
    thousandths = (
        (1000 * weights).round().int().flatten(3).tolist()
    )  # (num_images, num_blocks, num_heads, 289)
    given = {
        "names": list(names),
        "images": [[round(number, 2) for number in image] for image in images.flatten(1).tolist()],
        "weights": thousandths,
        "rollout": (1000 * rolled).round().int().flatten(1).tolist(),
        "falls": _numbers(falls.double().round(decimals=3)),
    }
    return _element("vision", given, [picture, table])


def words(
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Tensor],
    moved: Tensor,
    *,
    head: tuple[int, int],
    asks: str,
) -> HTML:
    """Let the reader choose a sentence, a head and a word that asks, and silence the head.

    Parameters
    ----------
    tokens : sequence of sequence of str
        The tokens of each sentence.
    weights : sequence of Tensor, each of shape (num_blocks, num_heads, N, N)
        The attention of each sentence, with as many positions as tokens. The page gets it in hundredths.
    moved : Tensor, shape (num_sentences, num_blocks, num_heads)
        How far the vector of a sentence moves when a head is silent.
    head : tuple of two int
        The block and the head with which the reader begins.
    asks : str
        The token of the first sentence that asks first.

    Returns
    -------
    IPython.display.HTML

    Raises
    ------
    ValueError
        If the shapes do not fit each other.
    """
    num_blocks, num_heads = moved.shape[1:]
    for s, (names, found) in enumerate(zip(tokens, weights, strict=True)):
        if found.shape != (num_blocks, num_heads, len(names), len(names)):
            raise ValueError(
                f"weights[{s}] has shape {tuple(found.shape)}: expected "
                f"{(num_blocks, num_heads, len(names), len(names))}, as moved has shape {tuple(moved.shape)} "
                f"and the sentence {len(names)} tokens"
            )
    first, place = tokens[0], list(tokens[0]).index(asks)
    rounded = [found.double().round(decimals=2) for found in weights]
    row = rounded[0][head][place]  # (N,)
    rows = [(name, [_share(weight)]) for name, weight in zip(first, row, strict=True)]
    caption = f"“{asks}” asks, block {head[0]}, head {head[1]}"
    table = _table("asked", caption, [["token", "weight"]], rows)
    most = int(row.argmax())
    width, height = 22, 16
    places = [(b, h) for b in range(num_blocks) for h in range(num_heads)]

    def square(name: str, b: int, h: int, more: str = "") -> str:
        return (
            f'<rect class="try-{name}" x="{24 + width * h}" y="{2 + height * b}" width="{width}" '
            f'height="{height}"{more}/>'
        )

    squares = "".join(
        square("weight", *at, f' fill-opacity="{rounded[0][(*at, place, most)]:.2f}"') for at in places
    )
    frames = "".join(square("head", *at) for at in places)
    names = "".join(f'<text x="12" y="{14 + height * b}">{b}</text>' for b in range(num_blocks)) + "".join(
        f'<text x="{35 + width * h}" y="{16 + height * num_blocks}">{h}</text>' for h in range(num_heads)
    )
    picture = (
        f'<figure><svg viewBox="0 0 {26 + width * num_heads} {20 + height * num_blocks}" role="img" '
        'aria-label="A square for each head, a row for each block: stronger where the head gives more weight '
        'to the word that gets most from the chosen head.">'
        f"{squares}{frames}{square('asks', *head)}<g>{names}</g></svg>"
        "<figcaption>A row for each block, a square for each head: what it gives to the word that gets most "
        "from the framed one.</figcaption></figure>"
    )
    given = {
        "tokens": [list(names) for names in tokens],
        "heads": [num_blocks, num_heads],
        "weights": [
            base64.b64encode(bytes((100 * found).round().int().flatten().tolist())).decode()
            for found in rounded
        ],
        "moved": [[round(number, 4) for number in numbers] for numbers in moved.flatten(1).tolist()],
        "head": list(head),
        "asks": place,
    }
    return _element("words", given, [table, picture])


def _plane(words: Sequence[str], value: Tensor, features: Sequence[str], weights: Sequence[float]) -> str:
    """Values as dots in the plane of their two features, with their hull, and the output as a cross."""
    largest = value.abs().amax(dim=0)  # (2,)
    places = [(40 + 200 * float(x), 195 - 170 * float(y)) for x, y in value / largest]
    dots = labels = ""
    for place in dict.fromkeys(places):  # words with the same value share a dot
        keys = [k for k in range(len(words)) if places[k] == place]
        radius = 3 + 14 * sum(weights[k] for k in keys) ** 0.5
        dots += (
            f'<circle class="try-dot" data-keys="{json.dumps(keys)}" '
            f'cx="{place[0]:g}" cy="{place[1]:g}" r="{radius:.1f}"/>'
        )
        names = escape(", ".join(words[k] for k in keys))
        labels += f'<text x="{place[0] + 6:g}" y="{place[1] - 7:g}">{names}</text>'
    # The output is an average of the values, so its place is the same average of theirs.
    x, y = (sum(w * place[d] for w, place in zip(weights, places, strict=True)) for d in (0, 1))
    across, up = map(escape, features)
    return (
        f'<figure><svg viewBox="0 0 320 230" role="img" aria-label="The plane of {across} and {up}. '
        "A dot for each value, larger where its weight is larger; a cross for the output; "
        'the hull of the values is shaded, and the cross is inside.">'
        f'<polygon class="try-hull" points="{" ".join(f"{x:g},{y:g}" for x, y in _hull(places))}"/>'
        f'<path class="try-line" d="M40 15V195H250"/>{dots}'
        f'<path class="try-cross" d="M-7-7 7 7M-7 7 7-7" transform="translate({x:.1f} {y:.1f})"/>{labels}'
        f'<text x="40" y="220">{across} →</text><text transform="translate(25 195) rotate(-90)">{up} →</text>'
        "</svg><figcaption>Dots: the values, larger where the weight is larger. Cross: the output. "
        "Shaded: where outputs can lie.</figcaption></figure>"
    )


def _hull(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """The corners of the convex hull, by Andrew's two chains."""

    def chain(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
        corners: list[tuple[float, float]] = []
        for x, y in points:
            while len(corners) > 1:
                (a, b), (c, d) = corners[-2:]
                if (c - a) * (y - b) > (d - b) * (x - a):
                    break
                corners.pop()
            corners.append((x, y))
        return corners[:-1]

    ordered = sorted(set(points))
    return chain(ordered) + chain(ordered[::-1])


def _dials(now: Tensor, then: Tensor, frequencies: Sequence[str]) -> str:
    """A dial for each pair of waves, with a hand for each of two positions."""
    dials = "".join(
        f'<g transform="translate({40 + 80 * i} 36)"><circle class="try-line" r="32"/>'
        f"{_hand('then', then[2 * i : 2 * i + 2])}{_hand('now', now[2 * i : 2 * i + 2])}"
        f'<text y="50">ω = {frequency}</text></g>'
        for i, frequency in enumerate(frequencies)
    )
    return (
        f'<figure><svg viewBox="0 0 {80 * len(frequencies)} 90" role="img" aria-label="A dial for each '
        'pair of waves, with one hand for t and one for t + k; the first turns fastest.">'
        f"{dials}</svg><figcaption>A dial for each pair: cosine to the right, sine upwards. "
        "Solid: t. Dashed: t + k.</figcaption></figure>"
    )


def _hand(name: str, pair: Tensor) -> str:
    sine, cosine = pair.tolist()
    return f'<path class="try-{name}" d="M0 0L{32 * cosine:.1f} {-32 * sine:.1f}"/>'


def _element(unit: str, given: dict, shown: Iterable[str]) -> HTML:
    data = escape(json.dumps(given, ensure_ascii=False, separators=(",", ":")))
    return HTML(
        f'<try-{unit} class="try" data-given="{data}">\n'
        f'<div class="try-shown">{"".join(shown)}</div>\n'
        '<p class="try-plain">With JavaScript there are controls here, and the numbers follow them.</p>\n'
        f"</try-{unit}>"
    )


def _table(
    name: str,
    caption: str,
    head: list[list[str]],
    rows: Iterable[tuple[str, list[str]]],
    foot: tuple[str, list[str]] | None = None,
) -> str:
    def line(label: str, cells: list[str]) -> str:
        return f'<tr><th scope="row">{escape(label)}</th>{"".join(cells)}</tr>'

    first, *more = head
    # A second line of heads stands below all columns but the first, in equal parts.
    span = len(more[0]) // (len(first) - 1) if more else 1
    heads = "".join(
        f'<th scope="col"{f" rowspan={len(head)}" if i == 0 else f" colspan={span}"}>{escape(text)}</th>'
        for i, text in enumerate(first)
    )
    under = "".join(f'<th scope="col">{text}</th>' for line in more for text in line)
    return (
        f'<table class="try-{name}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{heads}</tr>{f'<tr>{under}</tr>' if under else ''}</thead>"
        f"<tbody>{''.join(line(*row) for row in rows)}</tbody>"
        f"{f'<tfoot>{line(*foot)}</tfoot>' if foot else ''}</table>\n"
    )


def _cell(text: str) -> str:
    return f"<td>{text}</td>"


def _share(weight: Tensor) -> str:
    """A weight, with its shading."""
    return f'<td style="--share:{float(weight):.3f}">{_two(weight)}</td>'


def _yes(text: str = "yes") -> str:
    return f'<td style="--share:1">{text}</td>'


def _hidden() -> str:
    return '<td class="try-hidden">0</td>'


def _two(number: Tensor) -> str:
    """With two decimals; never −0.00."""
    return f"{round(float(number), 2) + 0.0:.2f}".replace("-", "−")


def _exact(row: Tensor) -> str:
    return ", ".join(f"{number:g}" for number in row.tolist()).replace("-", "−")


def _numbers(matrix: Tensor) -> list[list[float]]:
    """Plain numbers, without the digits that float32 adds to 0.1."""
    return [[round(number, 6) for number in row] for row in matrix.tolist()]
