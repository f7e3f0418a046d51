"""Tasks of the unit ``positional``: encodings of positions, and scores that see distances."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import positional
from attncourse.checks.probe import given
from attncourse.checks.task import Case, Task, normal_source


def _whole(seed: int) -> Callable[[int, int], int]:
    """A source of whole numbers: ``whole(2, 5)`` is 2, 3, 4 or 5."""
    generator = torch.Generator().manual_seed(seed)

    def whole(least: int, most: int) -> int:
        return int(torch.randint(least, most + 1, (), generator=generator))

    return whole


# ---------------------------------------------------------------------------------------
# The binary encoding
# ---------------------------------------------------------------------------------------


def _binary_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    return [
        Case({"length": 6}),
        Case({"length": 16}, "a power of two"),
        Case({"length": 17}, "one more than a power of two"),
        Case({"length": whole(34, 60)}, "a longer sequence"),
        Case({"length": 2}, "two positions"),
        Case({"length": whole(66, 127)}, "a still longer one"),
    ]


binary_encoding = Task("binary_encoding", positional.binary_encoding, _binary_cases)


@binary_encoding.misconception(
    "the bit order is reversed: the most significant bit comes first",
    hint="""Numbers are written that way, with the ones last. Here the first feature is to be the bit that
    changes at every step. Look down your first column.""",
    read="positional#binary-encoding",
)
def binary_reversed(length):
    num_bits = (length - 1).bit_length()
    bits = torch.arange(length)[:, None] // 2 ** torch.arange(num_bits) % 2
    return bits.flip(1).float()


@binary_encoding.misconception(
    "one bit too few, except at powers of two",
    hint="""With b bits you can tell 2 to the power of b positions apart. Must the logarithm be rounded
    down or up?""",
    read="positional#number-of-bits",
)
def binary_rounded_down(length):
    num_bits = math.floor(math.log2(length))
    return (torch.arange(length)[:, None] // 2 ** torch.arange(num_bits) % 2).float()


@binary_encoding.misconception(
    "one bit too few where the last position is a power of two",
    hint="""With 17 positions the last is number 16, and 16 needs a bit more than 15. What is to be told apart
    is all the positions, and there is one more of them than the number of the last.""",
    read="positional#number-of-bits",
)
def binary_of_the_last(length):
    num_bits = math.ceil(math.log2(length - 1))
    return (torch.arange(length)[:, None] // 2 ** torch.arange(num_bits) % 2).float()


@binary_encoding.misconception(
    "one bit too many at powers of two",
    hint="""With 16 positions the last is number 15, and 15 has four bits. In your table the last column is
    all zeros: it tells nobody from anybody.""",
    read="positional#number-of-bits",
)
def binary_of_the_length(length):
    num_bits = length.bit_length()
    return (torch.arange(length)[:, None] // 2 ** torch.arange(num_bits) % 2).float()


@binary_encoding.misconception(
    "positions are counted from 1",
    hint="""The first position is number 0, and its bits are all 0. Counted from 1, the last of 16 positions
    would be 16, for which four bits do not suffice.""",
    read="positional#binary-encoding",
)
def binary_from_one(length):
    num_bits = (length - 1).bit_length()
    return (torch.arange(1, length + 1)[:, None] // 2 ** torch.arange(num_bits) % 2).float()


@binary_encoding.misconception(
    "bits stand in rows and positions in columns",
    hint="""That is how convolutions want it, and how the lecture prints it. Here rows are positions.""",
    read="positional#binary-encoding",
)
def binary_transposed(length):
    num_bits = (length - 1).bit_length()
    return (torch.arange(length) // 2 ** torch.arange(num_bits)[:, None] % 2).float()


@binary_encoding.misconception(
    "the quotients are not rounded down",
    hint="""5 divided by 2 is 2.5, and the bit is that of 2. Whole division is `//`.""",
    read="positional#binary-encoding",
)
def binary_fractions(length):
    num_bits = (length - 1).bit_length()
    return (torch.arange(length)[:, None] / 2 ** torch.arange(num_bits) % 2).float()


@binary_encoding.misconception(
    "the quotients themselves, not whether they are odd",
    hint="""Position 5 divided by 1 is 5. A bit is 0 or 1: it says whether that quotient is even or odd.""",
    read="positional#binary-encoding",
)
def binary_quotients(length):
    num_bits = (length - 1).bit_length()
    return (torch.arange(length)[:, None] // 2 ** torch.arange(num_bits)).float()


# ---------------------------------------------------------------------------------------
# Positions that share a code
# ---------------------------------------------------------------------------------------


def _same_code(encoding: Tensor) -> Tensor:
    same = (encoding.unsqueeze(1) == encoding).all(-1)
    return same & ~torch.eye(len(encoding), dtype=torch.bool)


def _same_code_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), _whole(seed)

    def of_numbers(numbers: list[int], bits: int) -> Tensor:
        return (torch.tensor(numbers)[:, None] >> torch.arange(bits) & 1).float()

    shuffled = torch.randperm(7, generator=torch.Generator().manual_seed(seed)).tolist()
    rows = normal(4, 3)
    return [
        Case({"encoding": of_numbers([0, 1, 2, 3, 0, 5, 6, 1, 0], 3)}, "some share a code"),
        Case({"encoding": of_numbers([*shuffled, shuffled[whole(0, 5)]], 3)}, "two share a code"),
        Case({"encoding": of_numbers(shuffled, 3)}, "no two share a code"),
        Case({"encoding": rows[[0, 1, 0, 2, 3, 3]]}, "numbers other than bits"),
        Case({"encoding": torch.tensor([[1.0, 2], [2, 1], [0, 3], [3, 1], [2, 0], [1, 2]])}, "whole numbers"),
        Case({"encoding": normal(1, 4)}, "a single position"),
    ]


same_code = Task("same_code", _same_code, _same_code_cases)


@same_code.misconception(
    "every position shares its code with itself",
    hint="""That is true of any encoding, so it tells nothing. Asked for are two *different* positions: the
    diagonal must be False.""",
    read="positional#colliding-positions",
)
def same_code_with_itself(encoding):
    return (encoding[:, None] == encoding).all(-1)


@same_code.misconception(
    "one equal feature is taken for the same code",
    hint="""0 and 1 have all their bits but one in common, and they can be told apart by that one. Two
    positions are mixed up only if *all* features are equal.""",
    read="positional#colliding-positions",
)
def same_code_any(encoding):
    same = (encoding[:, None] == encoding).any(-1)
    return same & ~torch.eye(len(encoding), dtype=torch.bool)


@same_code.misconception(
    "sums of features are compared",
    hint="""1 is written 1, 0 and 2 is written 0, 1: the sums are equal and the codes are not. Compare feature
    by feature.""",
    read="positional#colliding-positions",
)
def same_code_of_sums(encoding):
    total = encoding.sum(-1)
    return (total[:, None] == total) & ~torch.eye(len(encoding), dtype=torch.bool)


@same_code.misconception(
    "each pair is told once only",
    hint="""If 0 cannot be told from 8, neither can 8 from 0: the table is the same on both sides of its
    diagonal.""",
    read="positional#colliding-positions",
)
def same_code_upper(encoding):
    return (encoding[:, None] == encoding).all(-1).triu(1)


@same_code.misconception(
    "only neighbours are compared",
    hint="""Codes repeat where a count starts again, far from where it first began. Compare every position
    with every other.""",
    read="positional#colliding-positions",
)
def same_code_of_neighbours(encoding):
    same = (encoding[:, None] == encoding).all(-1)
    position = torch.arange(len(encoding))
    return same & ((position[:, None] - position).abs() == 1)


@same_code.misconception(
    "True stands where two positions can be told apart",
    hint="""You have found the positions that differ. Asked for are those that do not.""",
    read="positional#colliding-positions",
)
def same_code_inverted(encoding):
    return (encoding[:, None] != encoding).any(-1)


@same_code.misconception(
    "the features are read as the bits of a number, and the numbers are compared",
    hint="""For bits this is right. But a table may hold other numbers: 1 + 2 * 2 and 3 + 2 * 1 are the same,
    and the codes 1, 2 and 3, 1 are not. Compare feature by feature.""",
    read="positional#colliding-positions",
)
def same_code_of_numbers(encoding):
    number = (encoding * 2 ** torch.arange(encoding.shape[1])).sum(-1)
    return (number[:, None] == number) & ~torch.eye(len(encoding), dtype=torch.bool)


# ---------------------------------------------------------------------------------------
# The encoding as further channels, and as something added
# ---------------------------------------------------------------------------------------


def _concatenate(x: Tensor, encoding: Tensor) -> Tensor:
    return torch.cat((x, encoding.T.expand(len(x), -1, -1)), dim=1)


def _concatenate_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(batch: int, channels: int, length: int, features: int, note: str, **how: Any) -> Case:
        inputs = {"x": normal(batch, channels, length, **how), "encoding": normal(length, features, **how)}
        return Case(inputs, note)

    return [
        case(3, 2, 6, 4, "a batch"),
        case(1, 1, 5, 3, "a batch of one"),
        case(2, 4, 4, 4, "as many of everything"),
        case(4, 1, 7, 2, "one channel"),
        case(2, 3, 5, 1, "double precision", dtype=torch.float64),
    ]


concatenate_positions = Task("concatenate_positions", _concatenate, _concatenate_cases)


@concatenate_positions.misconception(
    "the encoding is reshaped where it should be transposed",
    hint="""`view` and `reshape` read the numbers in the same order and only begin new rows elsewhere, so the
    features of one position are spread over several. Exchanging rows and columns is `.T`.""",
    read="positional#concatenate-or-add",
)
def concatenate_reshaped(x, encoding):
    channels = encoding.reshape(encoding.shape[1], encoding.shape[0])
    return torch.cat((x, channels.expand(len(x), -1, -1)), dim=1)


@concatenate_positions.misconception(
    "the encoding is not transposed",
    hint="""The encoding has a row for each position, x has a column for each. They have to be made alike
    before they can be put together.""",
    read="positional#concatenate-or-add",
)
def concatenate_untransposed(x, encoding):
    return torch.cat((x, encoding.expand(len(x), -1, -1)), dim=1)


@concatenate_positions.misconception(
    "the encoding comes before the input's own channels",
    hint="""Nothing is lost, but the order was agreed on: first the channels of x, then those of the
    encoding.""",
    read="positional#concatenate-or-add",
)
def concatenate_first(x, encoding):
    return torch.cat((encoding.T.expand(len(x), -1, -1), x), dim=1)


@concatenate_positions.misconception(
    "the encoding is put behind the last position instead of beside the channels",
    hint="""That would make the sequence longer. The number of positions stays; the number of channels
    grows. Which dimension is that?""",
    read="positional#concatenate-or-add",
)
def concatenate_along_positions(x, encoding):
    return torch.cat((x, encoding.T.expand(len(x), -1, -1)), dim=2)


@concatenate_positions.misconception(
    "the encoding is there for one item of the batch only",
    hint="""`torch.cat` does not broadcast. Every item of the batch needs the same encoding: `expand` gives it
    to each of them without a copy.""",
    read="positional#concatenate-or-add",
)
def concatenate_to_one_item(x, encoding):
    return torch.cat((x, encoding.T[None]), dim=1)


def _add(x: Tensor, table: Tensor) -> Tensor:
    return x + table[: x.shape[-2]]


def _add_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(batch: tuple[int, ...], length: int, dim: int, note: str, **how: Any) -> Case:
        return Case({"x": normal(*batch, length, dim, **how), "table": normal(9, dim, **how)}, note)

    return [
        case((), 5, 4, "no batch"),
        case((3,), 5, 4, "a batch"),
        case((1,), 6, 2, "a batch of one"),
        case((4,), 4, 4, "as many of everything"),
        case((2, 3), 4, 5, "two batch dimensions"),
        case((2,), 1, 3, "a single position"),
        case((2,), 7, 3, "double precision", dtype=torch.float64),
    ]


add_positions = Task("add_positions", _add, _add_cases)


@add_positions.misconception(
    "each item of the batch gets a vector of its own, the same at all its positions",
    hint="""You have numbered the items of the batch, not the positions in them. In code that puts positions
    first and the batch second, the same line would be right. Which dimension holds the positions
    here?""",
    read="positional#added-per-item",
)
def add_per_item(x, table):
    return x + table[: x.shape[0], None]


@add_positions.misconception(
    "the whole table is added",
    hint="""The table has rows for longer sequences, too. How many rows does this one need?""",
    read="positional#learned-encoding",
)
def add_whole_table(x, table):
    return x + table


@add_positions.misconception(
    "the last rows of the table are taken",
    hint="""The first position has row 0, however long the sequence is. Otherwise the same word at the same
    place would get another vector in every sequence.""",
    read="positional#learned-encoding",
)
def add_last_rows(x, table):
    return x + table[-x.shape[-2] :]


@add_positions.misconception(
    "positions are counted from 1",
    hint="""Row 0 of the table is never used. The first position is number 0.""",
    read="positional#learned-encoding",
)
def add_from_one(x, table):
    return x + table[1 : x.shape[-2] + 1]


@add_positions.misconception(
    "the positions are looked for in the second dimension, wherever that is",
    hint="""With one batch dimension in front, positions are the second. With none, or with two, they are
    not. Count from the back.""",
    read="positional#added-per-item",
)
def add_second_dimension(x, table):
    return x + table[: x.shape[1]]


@add_positions.misconception(
    "the positions are looked for in the first dimension, which in a batch counts the sequences",
    hint="""`len` is the size of the first dimension. In code that puts positions first, that is the length of
    the sequences; here it is the length only where there is no batch. Count from the back.""",
    read="positional#added-per-item",
)
def add_first_dimension(x, table):
    return x + table[: x.shape[0]]


@add_positions.misconception(
    "the encoding is concatenated instead of added",
    hint="""That is the other way, and a good one. Here the number of features is to stay as it is.""",
    read="positional#concatenate-or-add",
)
def add_concatenated(x, table):
    rows = table[: x.shape[-2]].expand(x.shape)
    return torch.cat((x, rows), dim=-1)


# ---------------------------------------------------------------------------------------
# The sinusoidal encoding
# ---------------------------------------------------------------------------------------


def _sinusoidal_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    return [
        Case({"length": 6, "dim": 4}),
        Case({"length": 5, "dim": 3}, "an odd number of features"),
        Case({"length": whole(8, 30), "dim": 2 * whole(3, 8)}, "more features"),
        Case({"length": whole(8, 30), "dim": 2 * whole(3, 8) + 1}, "more, and an odd number"),
        Case({"length": 40, "dim": 6}, "a longer sequence"),
        Case({"length": 1, "dim": 4}, "a single position"),
    ]


sinusoidal_encoding = Task("sinusoidal_encoding", positional.sinusoidal_encoding, _sinusoidal_cases)


@sinusoidal_encoding.misconception(
    "all sines come first and then all cosines, where they should take turns",
    hint="""Both orders are in use, and weights trained with one do not fit the other. Here features 0 and 1
    are the sine and the cosine of the same angle, then come 2 and 3, and so on.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_halves(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.cat((angles.sin(), angles.cos()), 1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the sine and the cosine of a pair have different frequencies",
    hint="""The exponent belongs to the pair, not to the feature: features 0 and 1 have the same, so do 2 and
    3. With different frequencies the two are not a point on a circle any more.""",
    read="positional#offset-property",
)
def sinusoidal_own_frequencies(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(dim) / dim)
    return torch.where(torch.arange(dim) % 2 == 0, angles.sin(), angles.cos())


@sinusoidal_encoding.misconception(
    "the exponent grows half as fast as it should",
    hint="""Pair i has the exponent 2i/D, where D counts features: two for each pair. You have used i/D, so
    that the slow waves are far too fast.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_half_exponent(length, dim):
    pairs = (dim + 1) // 2
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(pairs) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the exponent grows twice as fast as it should",
    hint="""In the exponent 2i/D, i counts pairs: 0, 1, 2 and so on. If your numbers are 0, 2, 4, they are
    doubled already.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_double_exponent(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (2 * torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "positions are multiplied by the power of 10000 instead of divided by it",
    hint="""Each pair is to be slower than the one before. Yours are faster. Where in the fraction does the
    power stand?""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_multiplied(length, dim):
    angles = torch.arange(length)[:, None] * 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the exponent is off by one: pairs are counted from 1",
    hint="""For the first pair the exponent is 0, so its angle is the position itself: sin 0, sin 1, sin 2 and
    so on. What is your first column?""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_pairs_from_one(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(2, dim + 2, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the exponent reaches 1 at the last pair",
    hint="""This is how one well-known program spreads the frequencies. In the paper's formula the number of
    features stands below the fraction, and the last exponent stays below 1.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_to_the_end(length, dim):
    pairs = (dim + 1) // 2
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(pairs) / (pairs - 1))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the base is wrong: 1000 instead of 10000",
    hint="""Count the zeros of your base, and those of the formula's.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_small_base(length, dim):
    angles = torch.arange(length)[:, None] / 1_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "the base is wrong: e instead of 10000",
    hint="""`exp` of an exponent is a power of e. To get a power of 10000 that way, multiply the exponent by
    the logarithm of 10000 first.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_base_e(length, dim):
    angles = torch.arange(length)[:, None] * torch.exp(-torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "positions are counted from 1",
    hint="""At position 0 all angles are 0, so all sines are 0 and all cosines are 1. Is that your first
    row?""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_from_one(length, dim):
    angles = torch.arange(1, length + 1)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "sine and cosine are exchanged",
    hint="""Features 0, 2, 4 and so on are sines: at position 0 they are 0.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_exchanged(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return torch.stack((angles.cos(), angles.sin()), -1).flatten(1)[:, :dim]


@sinusoidal_encoding.misconception(
    "with an odd number of features the last one is missing",
    hint="""Five features are two pairs and a sine without its cosine. Count your columns.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_whole_pairs(length, dim):
    pairs = dim // 2
    angles = torch.arange(length)[:, None] / 10_000 ** (2 * torch.arange(pairs) / dim)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


@sinusoidal_encoding.misconception(
    "with an odd number of features there are as many cosines as sines",
    hint="""Every second column, beginning with the second, holds a cosine: with five features that are two
    columns, and three sines. The last angle gets no cosine.""",
    read="positional#sinusoidal-encoding",
)
def sinusoidal_cosine_too_many(length, dim):
    angles = torch.arange(length)[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    encoding = torch.zeros(length, dim)
    encoding[:, 0::2] = angles.sin()
    encoding[:, 1::2] = angles.cos()
    return encoding


# ---------------------------------------------------------------------------------------
# Equivariance is gone
# ---------------------------------------------------------------------------------------


def _attend_with(x: Tensor, encoding: Tensor) -> Tensor:
    marked = torch.cat((x, encoding.to(x.dtype)), 1)  # (length, dim + features)
    return torch.softmax(marked @ marked.mT / 2, -1) @ marked


def _ring(x: Tensor) -> Tensor:
    """A convolution on a ring: after the last position comes the first."""
    return torch.tanh(x + 2 * x.roll(1, 0) - x.roll(-1, 0))


_LAYERS: dict[str, Callable[[Tensor], Tensor]] = {
    "attention with the binary encoding": lambda x: _attend_with(x, positional.binary_encoding(len(x))),
    "attention, positions numbered 0 0 1 1 2 2 ...": lambda x: _attend_with(
        x, (torch.arange(len(x)) // 2).float()[:, None]
    ),
    "attention, each position marked with its distance from the middle": lambda x: _attend_with(
        x, (torch.arange(len(x)) - (len(x) - 1) / 2).abs()[:, None]
    ),
    "a convolution on a ring": _ring,
    "attention, only the two positions in the middle marked": lambda x: _attend_with(
        x, ((torch.arange(len(x)) - (len(x) - 1) / 2).abs() < 1).float()[:, None]
    ),
    "attention, only the last position marked": lambda x: _attend_with(x, torch.eye(len(x))[:, -1:]),
    "attention, only the third position marked": lambda x: _attend_with(x, torch.eye(len(x))[:, 2:3]),
}


def _tells(layer: Callable[[Tensor], Tensor], x: Tensor, order: Tensor) -> bool:
    return bool((layer(x[order]) - layer(x)[order]).abs().max() > 1e-6)


def _telling_permutation(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    for t in range(len(x) - 1):
        order = torch.arange(len(x))
        order[t], order[t + 1] = t + 1, t
        if _tells(layer, x, order):
            return order
    raise ValueError("layer is equivariant: expected one that is not")


def _telling_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), _whole(seed)
    return [Case({"layer": name, "x": normal(2 * whole(3, 4), 3, dtype=torch.float64)}) for name in _LAYERS]


def _ask_for_permutation(answer: Callable, inputs: dict[str, Any]) -> Any:
    value = answer(given(_LAYERS[inputs["layer"]]), inputs["x"])
    if isinstance(value, list | tuple):
        # `list` of a tensor or an array keeps their own kinds of whole numbers.
        numbers = [getattr(number, "item", lambda number=number: number)() for number in value]
        if all(type(number) is int for number in numbers):
            return torch.tensor(numbers)
    return value


def _telling_compare(inputs: dict[str, Any], value: Any) -> str | None:
    x = inputs["x"]
    if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype == torch.bool:
        return "a permutation was expected: a list or a tensor of whole numbers"
    if value.shape != (len(x),) or value.sort().values.tolist() != list(range(len(x))):
        return f"a permutation of {len(x)} positions was expected: each number from 0 to {len(x) - 1} once"
    if not _tells(_LAYERS[inputs["layer"]], x, value):
        return (
            f"with the permutation {value.tolist()} it makes no difference whether the input or the output "
            "is permuted"
        )
    return None


telling_permutation = Task(
    "telling_permutation",
    _telling_permutation,
    _telling_cases,
    compare=_telling_compare,
    call=_ask_for_permutation,
)


@telling_permutation.misconception(
    "the identity, which leaves everything where it is",
    hint="""If nothing is moved, no layer can show that it knows where things were.""",
    read="positional#equivariance-gone",
)
def telling_identity(layer, x):
    return torch.arange(len(x))


@telling_permutation.misconception(
    "always the first two positions are exchanged, whatever the layer",
    hint="""A layer may know some positions and not others: if the first two look alike to it, exchanging them
    tells nothing. Ask the layer about more exchanges than one. If you do, look at what you compare: the
    output for the permuted input with the *permuted* output for the input.""",
    read="positional#equivariance-gone",
)
def telling_first_two(layer, x):
    order = torch.arange(len(x))
    order[0], order[1] = 1, 0
    return order


@telling_permutation.misconception(
    "always the order is reversed, whatever the layer",
    hint="""A layer that sees how far each position is from the middle sees the same after the reversal. Ask
    the layer about more permutations than one.""",
    read="positional#equivariance-gone",
)
def telling_reversed(layer, x):
    return torch.arange(len(x)).flip(0)


@telling_permutation.misconception(
    "always everything is shifted by one, whatever the layer",
    hint="""A convolution on a ring does the same everywhere: shift its input, and its output is shifted. Ask
    the layer about more permutations than one.""",
    read="positional#equivariance-gone",
)
def telling_shifted(layer, x):
    return torch.arange(len(x)).roll(1)


@telling_permutation.misconception(
    "always everything is shifted back by one, whatever the layer",
    hint="""A convolution on a ring does the same everywhere: shift its input, and its output is shifted. Ask
    the layer about more permutations than one.""",
    read="positional#equivariance-gone",
)
def telling_shifted_back(layer, x):
    return torch.arange(len(x)).roll(-1)


@telling_permutation.misconception(
    "always the first and the last position are exchanged, whatever the layer",
    hint="""The two ends of a sequence can look alike to a layer, which still tells others apart. Ask the
    layer about more permutations than one.""",
    read="positional#equivariance-gone",
)
def telling_ends(layer, x):
    order = torch.arange(len(x))
    order[0], order[-1] = len(x) - 1, 0
    return order


# ---------------------------------------------------------------------------------------
# Rotary
# ---------------------------------------------------------------------------------------


def _rotary_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), _whole(seed)

    def case(*shape: int, first: int, note: str, contiguous: bool = True, **how: Any) -> Case:
        positions = torch.arange(first, first + shape[-2])
        return Case({"x": normal(*shape, **how), "positions": positions}, note, contiguous)

    return [
        case(5, 4, first=0, note="no batch"),
        case(3, 6, first=whole(7, 20), note="later positions"),
        case(2, 4, 8, first=0, note="a batch"),
        case(2, 3, 4, 6, first=1, note="two batch dimensions, memory the other way round", contiguous=False),
        case(1, 2, first=3, note="a single position"),
        Case(
            {"x": normal(3, 6, dtype=torch.float64), "positions": torch.tensor([4, 900, 20])},
            "positions in any order, double precision",
        ),
    ]


rotary = Task("rotary", positional.rotary, _rotary_cases)


@rotary.misconception(
    "the wrong pairs are rotated: feature i with feature i + D/2",
    hint="""Many programs pair the two halves, and it works as well; but weights trained with one pairing do
    not fit the other. Here neighbours are a pair: features 0 and 1, then 2 and 3.""",
    read="positional#rotary-encoding",
)
def rotary_halves(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    first, second = x[..., :half], x[..., half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, first * sin + second * cos), -1)


@rotary.misconception(
    "the rotated pairs are not put back where they were",
    hint="""You have split the features into even and odd ones and rotated the right pairs. Then you put all
    the first ones before all the second ones. In the output neighbours are to be a pair again.""",
    read="positional#rotary-encoding",
)
def rotary_not_interleaved(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((even * cos - odd * sin, even * sin + odd * cos), -1)


@rotary.misconception(
    "the rotation goes the other way round",
    hint="""Mind the minus sign. Turned by a right angle, the pair (1, 0) becomes (0, 1), not (0, -1).""",
    read="positional#rotary-encoding",
)
def rotary_backwards(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos + odd * sin, odd * cos - even * sin), -1).flatten(-2)


@rotary.misconception(
    "the given positions are not used: rows are counted from 0",
    hint="""A decoder that has kept earlier keys asks for position 17 with a single row. Which row a vector
    stands in does not say where it stands in the sequence; `positions` does.""",
    read="positional#rotary-encoding",
)
def rotary_own_positions(x, positions):
    half = x.shape[-1] // 2
    positions = torch.arange(x.shape[-2])
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "the exponent grows half as fast as it should",
    hint="""Pair i has the exponent 2i/D, where D counts features, two for each pair. You have used i/D.""",
    read="positional#rotary-encoding",
)
def rotary_half_exponent(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / (2 * half))
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "the exponent grows twice as fast as it should",
    hint="""In the exponent 2i/D, i counts pairs: 0, 1, 2 and so on. If your numbers are 0, 2, 4, they are
    doubled already.""",
    read="positional#rotary-encoding",
)
def rotary_double_exponent(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (2 * torch.arange(0, dim, 2, dtype=x.dtype) / dim)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "the second of a pair is made from the first one as it is already turned",
    hint="""Both lines of the formula speak of the old a and the old b. Yours has overwritten a before it is
    used for the second time. Keep the old ones, and write into a new tensor.""",
    read="positional#rotary-encoding",
)
def rotary_one_after_the_other(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    cos, sin = angles.cos(), angles.sin()
    even = x[..., 0::2] * cos - x[..., 1::2] * sin
    return torch.stack((even, even * sin + x[..., 1::2] * cos), -1).flatten(-2)


@rotary.misconception(
    "the base is wrong: 1000 instead of 10000",
    hint="""Count the zeros of your base, and those of the formula's.""",
    read="positional#rotary-encoding",
)
def rotary_small_base(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 1_000 ** (torch.arange(half, dtype=x.dtype) / half)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "the angles are of single precision where x is of double",
    hint="""`torch.arange` divided by a whole number is of single precision, and an angle of hundreds is then
    rounded in the fourth or fifth digit behind the point. `arange` takes a `dtype`.""",
    read="positional#rotary-encoding",
)
def rotary_single_precision(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "all pairs are turned by the same angle",
    hint="""The first pair is turned by the position itself. The others turn more slowly, each by its own
    frequency, like the hands of a clock.""",
    read="positional#rotary-encoding",
)
def rotary_one_angle(x, positions):
    angles = positions[:, None].to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


@rotary.misconception(
    "the sinusoids are added instead of turning the pairs",
    hint="""Added sinusoids shift a vector; here each pair of features is to be turned about the origin. A
    rotation keeps the norm, so compare the norms before and after.""",
    read="positional#rotary-encoding",
)
def rotary_added(x, positions):
    half = x.shape[-1] // 2
    angles = positions[:, None] / 10_000 ** (torch.arange(half, dtype=x.dtype) / half)
    return x + torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)


# ---------------------------------------------------------------------------------------
# ALiBi
# ---------------------------------------------------------------------------------------


def _alibi_slopes_cases(seed: int) -> list[Case]:
    whole = _whole(seed)
    return [
        Case({"num_heads": 8}, "eight heads"),
        Case({"num_heads": 16}, "more heads"),
        Case({"num_heads": 2}, "fewer heads"),
        Case({"num_heads": 12}, "no power of two"),
        Case({"num_heads": whole(17, 31)}, "no power of two, and more"),
        Case({"num_heads": 3}, "three heads"),
        Case({"num_heads": 1}, "a single head"),
    ]


alibi_slopes = Task("alibi_slopes", positional.alibi_slopes, _alibi_slopes_cases)


@alibi_slopes.misconception(
    "the formula for powers of two is used for all head counts",
    hint="""It gives slopes for any number, and reasonable ones. But the authors' program has others if the
    number of heads is no power of two, and so has this task: read on after the formula.""",
    read="positional#alibi",
)
def slopes_plain(num_heads):
    return 2.0 ** (-8 * torch.arange(1, num_heads + 1) / num_heads)


@alibi_slopes.misconception(
    "the first slope is 1: heads are counted from 0",
    hint="""Heads are counted from 1 here. For eight heads the first slope is one half, and the last is
    2 to the power of -8.""",
    read="positional#alibi",
)
def slopes_from_one(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(power) / power)
    double = 2.0 ** (-8 * torch.arange(2 * power) / (2 * power))
    return torch.cat((slopes, double[0::2]))[:num_heads]


@alibi_slopes.misconception(
    "every slope is half of the one before, whatever the number of heads",
    hint="""That is right for eight heads. With 16 the slopes lie closer together, with two farther apart: the
    last slope of any power of two is 2 to the power of -8.""",
    read="positional#alibi",
)
def slopes_halved(num_heads):
    return 2.0 ** -torch.arange(1.0, num_heads + 1)


@alibi_slopes.misconception(
    "the slopes are evenly spaced",
    hint="""Each slope is the one before *times* a factor, not minus a number.""",
    read="positional#alibi",
)
def slopes_linear(num_heads):
    return 1 - torch.arange(1.0, num_heads + 1) / (num_heads + 1)


@alibi_slopes.misconception(
    "the slopes in between are taken from the wrong places",
    hint="""Every second slope of the doubled number of heads is one that you have already. Print both lists
    for 2 and 4. Which ones are new?""",
    read="positional#alibi",
)
def slopes_wrong_places(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    double = 2.0 ** (-8 * torch.arange(1, 2 * power + 1) / (2 * power))
    return torch.cat((slopes, double[1::2]))[:num_heads]


@alibi_slopes.misconception(
    "the slopes in between are taken one after the other",
    hint="""Of the slopes for twice as many heads every second one is there already. Write down those for 2
    and for 4 heads: which are new?""",
    read="positional#alibi",
)
def slopes_without_a_step(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    double = 2.0 ** (-8 * torch.arange(1, 2 * power + 1) / (2 * power))
    return torch.cat((slopes, double))[:num_heads]


@alibi_slopes.misconception(
    "the slopes are those of the next larger power of two, cut off",
    hint="""You go up to the next power of two and take its first slopes. Go down to the next smaller one,
    take all its slopes, and fill up what is missing.""",
    read="positional#alibi",
)
def slopes_cut_off(num_heads):
    power = 2 ** math.ceil(math.log2(num_heads))
    return 2.0 ** (-8 * torch.arange(1, power + 1) / power)[:num_heads]


@alibi_slopes.misconception(
    "the slopes are sorted",
    hint="""The right slopes, in another order. The slopes in between come last, behind those of the power of
    two, as in the code that goes with the paper. A trained head needs its own slope.""",
    read="positional#alibi",
)
def slopes_sorted(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    double = 2.0 ** (-8 * torch.arange(1, 2 * power + 1) / (2 * power))
    return torch.cat((slopes, double[0::2]))[:num_heads].sort(descending=True).values


@alibi_slopes.misconception(
    "the slopes are negative",
    hint="""The minus sign is in the bias, which is minus slope times distance. The slopes themselves are
    positive.""",
    read="positional#alibi",
)
def slopes_negative(num_heads):
    power = 2 ** int(math.log2(num_heads))
    slopes = 2.0 ** (-8 * torch.arange(1, power + 1) / power)
    double = 2.0 ** (-8 * torch.arange(1, 2 * power + 1) / (2 * power))
    return -torch.cat((slopes, double[0::2]))[:num_heads]


def _alibi_bias(slopes: Tensor, num_queries: int, num_keys: int) -> Tensor:
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()


def _alibi_bias_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(heads: int, queries: int, keys: int, note: str, **how: Any) -> Case:
        slopes = normal(heads, **how).abs() / 2
        return Case({"slopes": slopes, "num_queries": queries, "num_keys": keys}, note)

    return [
        case(3, 5, 5, "as many queries as keys"),
        case(2, 3, 6, "fewer queries than keys"),
        case(4, 1, 4, "one query"),
        case(1, 4, 4, "one head"),
        case(4, 4, 4, "as many of everything"),
        case(2, 2, 5, "double precision", dtype=torch.float64),
    ]


alibi_bias = Task("alibi_bias", _alibi_bias, _alibi_bias_cases)


@alibi_bias.misconception(
    "far keys are preferred: the sign is wrong",
    hint="""The bias is added to the scores, and a larger score means more weight. Which keys should lose?""",
    read="positional#alibi",
)
def bias_positive(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()


@alibi_bias.misconception(
    "queries and keys are aligned at the start",
    hint="""With fewer queries than keys, the queries are the last positions. Where does the last query stand,
    and which key is at distance 0 from it?""",
    read="masking#rectangular-masks",
)
def bias_aligned_at_the_start(slopes, num_queries, num_keys):
    own = torch.arange(num_queries)
    return -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()


@alibi_bias.misconception(
    "keys after the query are preferred: a distance has no sign",
    hint="""Query minus key is negative for a key that comes after the query, and minus that is a reward. Both
    neighbours are at distance 1.""",
    read="positional#alibi",
)
def bias_signed(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys))


@alibi_bias.misconception(
    "keys after the query get no bias",
    hint="""That they may not be seen is the business of a mask. Here they are at a distance like all
    others.""",
    read="positional#alibi",
)
def bias_of_the_past(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).clamp(min=0)


@alibi_bias.misconception(
    "keys after the query are masked",
    hint="""Minus infinity forbids them altogether. That is the business of a mask, and not every layer has
    one. Here they are at a distance like all others.""",
    read="positional#alibi",
)
def bias_masked(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    bias = -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()
    return bias.masked_fill(own[:, None] < torch.arange(num_keys), -math.inf)


@alibi_bias.misconception(
    "keys stand in rows and queries in columns",
    hint="""As in the scores to which it is added: a row for each query, a column for each key.""",
    read="positional#alibi",
)
def bias_transposed(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return (-slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()).mT


@alibi_bias.misconception(
    "the distance is squared",
    hint="""The L in ALiBi is for linear: twice as far, twice the penalty.""",
    read="positional#alibi",
)
def bias_squared(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return -slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)) ** 2


@alibi_bias.misconception(
    "the slopes are spread over keys instead of heads",
    hint="""`slopes * distance` lines the slopes up with the last dimension, which is that of the keys. Each
    head has one slope for all its queries and keys. Which shape must the slopes have?""",
    read="positional#alibi",
)
def bias_slopes_over_keys(slopes, num_queries, num_keys):
    own = torch.arange(num_queries) + (num_keys - num_queries)
    return -slopes * (own[:, None] - torch.arange(num_keys)).abs()
