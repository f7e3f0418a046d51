"""Tasks of the unit ``positional``: encodings of positions, and scores that see distances."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import positional
from attncourse.checks import laws
from attncourse.checks.permutation import COMPARED, TOLERANCES, _agree
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.probe.positional import AskForPermutation
from attncourse.probe.program import trace

BINARY = "positional#binary-encoding"
BITS = "positional#number-of-bits"
COLLIDING = "positional#colliding-positions"
BESIDE = "positional#concatenate-or-add"
LEARNED = "positional#learned-encoding"
PER_ITEM = "positional#added-per-item"
SINUSOIDAL = "positional#sinusoidal-encoding"
OFFSET = "positional#offset-property"
GONE = "positional#equivariance-gone"
ROTARY = "positional#rotary-encoding"
ALIBI = "positional#alibi"
LAST_QUERIES = "masking#rectangular-masks"


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


def _only_bits(inputs: Any, value: Tensor) -> str | None:
    return laws.is_not(value, (value == 1).to(value.dtype), "yours has {yours} at {place}")


def _nothing_first(inputs: Any, value: Tensor) -> str | None:
    return laws.is_not(value[0], torch.zeros_like(value[0]), "yours has {yours} there, at {place}")


def _takes_turns(inputs: Any, value: Tensor) -> str | None:
    expected = torch.arange(len(value)).to(value.dtype) % 2
    return laws.is_not(value[:, 0], expected, "in yours position {place} has {yours} there")


def _all_different(inputs: Any, value: Tensor) -> str | None:
    same = (value[:, None] == value).all(-1).triu(1).nonzero()
    return f"in yours positions {same[0, 0]} and {same[0, 1]} have the same" if len(same) else None


def _adds_up(inputs: Any, value: Tensor) -> str | None:
    total = value @ (2.0 ** torch.arange(value.shape[1])).to(value.dtype)
    expected = torch.arange(len(value)).to(value.dtype)
    return laws.is_not(total, expected, "in yours those of position {place} add up to {yours}")


binary_encoding = Task(
    "binary_encoding",
    positional.binary_encoding,
    {"length": 5},
    _binary_cases,
    laws=[
        Law("all its numbers are 0 or 1", BINARY, lambda normal: {"length": 6}, _only_bits),
        Law("position 0 has zeros only", BINARY, lambda normal: {"length": 6}, _nothing_first),
        Law("the first feature is 0, 1, 0, 1 and so on", BINARY, lambda normal: {"length": 7}, _takes_turns),
        Law("no two positions have the same row", BINARY, lambda normal: {"length": 8}, _all_different),
        Law(
            "the features of a position, counted as 1, 2, 4 and so on, add up to its number",
            BINARY,
            lambda normal: {"length": 11},
            _adds_up,
        ),
    ],
    exact_dtype=True,
)


@binary_encoding.made_of(
    bits=wrongs(
        BITS,
        """
        rounded down: one bit too few, except at powers of two
            With b bits you can tell 2 to the power of b positions apart. Must the logarithm be rounded down
            or up?
        rounded: the number of bits is rounded to the nearest whole number
            With b bits you can tell 2 to the power of b positions apart. 5 positions need more than 2.3
            bits, so 2 are not enough.
        of the last: one bit too few where the last position is a power of two
            With 17 positions the last is number 16, and 16 needs a bit more than 15. What is to be told
            apart is all the positions, and there is one more of them than the number of the last.
        of the length: one bit too many at powers of two
            With 16 positions the last is number 15, and 15 has four bits. In your table the last column is
            all zeros: it tells nobody from anybody.
        one more: one bit too many
            In your table the last column is all zeros: it tells nobody from anybody. How many bits has the
            largest number that occurs?
        length: there are as many bits as positions
            A bit for each position would be far too many: with 3 bits there are 8 different rows already.
        eight: there are always eight bits
            The number of bits is to depend on the number of positions: as few as tell them apart.
        """,
    ),
    order=wrongs(
        BINARY,
        """
        reversed: the bit order is reversed: the most significant bit comes first
            Numbers are written that way, with the ones last. Here the first feature is to be the bit that
            changes at every step. Look down your first column.
        transposed: bits stand in rows and positions in columns
            That is how convolutions want it, and how the lecture prints it. Here rows are positions.
        positions: the last position comes first
            Row 0 is for position 0, whose bits are all 0.
        """,
    ),
    start=wrongs(
        BINARY,
        """
        one: positions are counted from 1
            The first position is number 0, and its bits are all 0. Counted from 1, the last of 16 positions
            would be 16, for which four bits do not suffice.
        """,
    ),
    powers=wrongs(
        BINARY,
        """
        from two: the powers begin with 2: the bit for the ones is missing
            The first bit changes at every step. By which power of two is a position to be divided for it,
            so that the quotient is the position itself?
        multiples: positions are divided by 1, 2, 3 and so on
            The bits stand for 1, 2, 4, 8: each counts twice as much as the one before. Those are powers of
            2.
        """,
    ),
    digit=wrongs(
        BINARY,
        """
        fractions: the quotients are not rounded down
            5 divided by 2 is 2.5, and the bit is that of 2. Whole division is `//`.
        quotients: the quotients themselves, not whether they are odd
            Position 5 divided by 1 is 5. A bit is 0 or 1: it says whether that quotient is even or odd.
        remainders: the remainders of the positions, not of the quotients
            Divide by the power of two first and round down; whether *that* is odd is the bit.
        masked: a set bit counts as its power of two, not as 1
            `t & 4` is 4 or 0. A feature is 1 or 0, whichever bit it is.
        inverted: zeros and ones are exchanged
            A bit is 1 where the quotient is odd. Position 0 has no ones at all.
        signs: the bits are -1 and 1 instead of 0 and 1
            Signs are a good choice for a network. What is asked for here are the bits themselves.
        gray: two bits are combined, so that from one position to the next a single one changes
            That is another code, named after Gray. The bits of a number are wanted: from 7 to 8 all of them
            change.
        """,
    ),
    form=wrongs(
        BINARY,
        """
        whole: the bits are whole numbers, not floating-point ones
            They are to stand beside other features, which are of float32. `.float()` converts them.
        bool: the bits are True and False, not 1 and 0
            They are to stand beside other features, which are of float32. `.float()` converts them.
        """,
    ),
)
def any_binary(length, *, bits="", order="", start="", powers="", digit="", form=""):
    needed = (length - 1).bit_length()
    num_bits = {
        "rounded down": length.bit_length() - 1,
        "rounded": round(math.log2(length)),
        "of the last": (length - 2).bit_length(),
        "of the length": length.bit_length(),
        "one more": needed + 1,
        "length": length,
        "eight": 8,
    }.get(bits, needed)
    t = torch.arange(length)[:, None] + (start == "one")
    step = 2 ** torch.arange(min(num_bits, 62))[None]
    if powers == "from two":
        step = 2 * step
    if powers == "multiples":
        step = torch.arange(1, num_bits + 1)[None]
    if order == "positions":
        t = t.flip(0)
    bit = t // step % 2
    table = {
        "fractions": t / step % 2,
        "quotients": t // step,
        "remainders": t % step,
        "masked": bit * step,
        "inverted": 1 - bit,
        "signs": 2 * bit - 1,
        "gray": (t ^ (t >> 1)) // step % 2,
    }.get(digit, bit)
    if order == "reversed":
        table = table.flip(1)
    if order == "transposed":
        table = table.T
    return table.long() if form == "whole" else table.bool() if form == "bool" else table.float()


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
    rows, near = normal(4, 3), normal(3, 4)[[0, 1, 2, 1, 0]]
    near[3, whole(0, 3)] += 0.001
    signs = torch.cat((normal(1, 3), normal(1, 3)))[[0, 0, 1, 1]]
    signs[1] *= -1
    signs[3] = signs[3].flip(0)
    return [
        Case({"encoding": of_numbers([0, 1, 2, 3, 0, 5, 6, 1, 0], 3)}, "some share a code"),
        Case({"encoding": of_numbers([*shuffled, shuffled[whole(0, 5)]], 3)}, "two share a code"),
        Case({"encoding": of_numbers(shuffled, 3)}, "no two share a code"),
        Case({"encoding": rows[[0, 1, 0, 2, 3, 3]]}, "numbers other than bits"),
        Case({"encoding": torch.tensor([[1.0, 2], [2, 1], [0, 3], [3, 1], [2, 0], [1, 2]])}, "whole numbers"),
        Case({"encoding": near}, "two that differ by a thousandth"),
        Case({"encoding": signs}, "opposite signs, and another order"),
        Case({"encoding": normal(1, 4)}, "a single position"),
    ]


def _off_diagonal(inputs: Any, value: Tensor) -> str | None:
    wrong = value.diagonal().nonzero()
    return f"in yours position {int(wrong[0])} shares its code with itself" if len(wrong) else None


def _both_ways(inputs: Any, value: Tensor) -> str | None:
    wrong = (value & ~value.T).nonzero()
    if not len(wrong):
        return None
    row, column = wrong[0].tolist()
    return f"yours is True at [{row}, {column}] and False at [{column}, {row}]"


def _bits_differ(inputs: Any, value: Tensor) -> str | None:
    wrong = value.nonzero()
    return f"for these yours is True at {wrong[0].tolist()}" if len(wrong) else None


def _all_share(inputs: Any, value: Tensor) -> str | None:
    wrong = (~value & ~torch.eye(len(value), dtype=torch.bool)).nonzero()
    return f"yours is False at {wrong[0].tolist()}" if len(wrong) else None


def _one_feature_tells(inputs: Any, value: Tensor) -> str | None:
    return "yours says that rows 0 and 1 do share a code" if value[0, 1] or value[1, 0] else None


def _nearly_equal(normal: Normal) -> dict[str, Tensor]:
    rows = normal(1, 4).repeat(3, 1)
    rows[1, 2] += 0.01
    return {"encoding": rows}


same_code = Task(
    "same_code",
    _same_code,
    {"encoding": torch.tensor([[1.0, 2.0], [3.0, 1.0], [2.0, 1.0], [1.0, 2.0]])},
    _same_code_cases,
    laws=[
        Law(
            "no position shares its code with itself: the diagonal is False",
            COLLIDING,
            lambda normal: {"encoding": normal(4, 3)[[0, 1, 2, 3, 0]]},
            _off_diagonal,
        ),
        Law(
            "if one position shares the code of another, that one shares its code, too",
            COLLIDING,
            lambda normal: {"encoding": normal(3, 2)[[0, 1, 2, 0, 1]]},
            _both_ways,
        ),
        Law(
            "no two of the eight rows 000, 100, 010, 110 and so on share a code",
            COLLIDING,
            lambda normal: {"encoding": (torch.arange(8)[:, None] >> torch.arange(3) & 1).float()},
            _bits_differ,
        ),
        Law(
            "where all rows are equal, all pairs of different positions are True",
            COLLIDING,
            lambda normal: {"encoding": normal(1, 3).repeat(4, 1)},
            _all_share,
        ),
        Law(
            "two rows that differ by a hundredth, in one feature only, do not share a code",
            COLLIDING,
            _nearly_equal,
            _one_feature_tells,
        ),
    ],
)

_COMPARE_FEATURES = """0 and 1 may have all their bits but one in common, and they can be told apart by that
    one. Compare feature by feature, and all of them."""


@same_code.made_of(
    compared={
        "any": Wrong(
            "one equal feature is taken for the same code",
            """0 and 1 have all their bits but one in common, and they can be told apart by that one. Two
            positions are mixed up only if *all* features are equal.""",
            COLLIDING,
        ),
        "sums": Wrong(
            "sums of features are compared",
            """1 is written 1, 0 and 2 is written 0, 1: the sums are equal and the codes are not. Compare
            feature by feature.""",
            COLLIDING,
        ),
        "lengths": Wrong(
            "the lengths of the rows are compared",
            """Many vectors have the same length. Compare feature by feature.""",
            COLLIDING,
        ),
        "products": Wrong(
            "dot products take the place of a comparison",
            """A large dot product means that two rows point the same way, not that they are equal. Compare
            feature by feature.""",
            COLLIDING,
        ),
        "numbers": Wrong(
            "the features are read as the bits of a number, and the numbers are compared",
            """For bits this is right. But a table may hold other numbers: 1 + 2 * 2 and 3 + 2 * 1 are the
            same, and the codes 1, 2 and 3, 1 are not. Compare feature by feature.""",
            COLLIDING,
        ),
        "first": Wrong("only the first feature is compared", _COMPARE_FEATURES, COLLIDING),
        "last": Wrong("only the last feature is compared", _COMPARE_FEATURES, COLLIDING),
        "sorted": Wrong(
            "the order of the features is not looked at",
            """1, 0 and 0, 1 have the same numbers in them and are two codes. The first feature of one has to
            equal the first of the other.""",
            COLLIDING,
        ),
        "absolute": Wrong(
            "the signs of the features are not looked at",
            """1 and -1 are two numbers. Compare the features as they are.""",
            COLLIDING,
        ),
        "tolerant": Wrong(
            "codes that are merely close count as the same",
            """The slow waves of an encoding change by very little from position to position, and it is they
            that tell far positions apart. How wide is your tolerance?""",
            COLLIDING,
        ),
        "rounded": Wrong(
            "the features are rounded before they are compared",
            """Bits survive that. Other encodings have their differences behind the point.""",
            COLLIDING,
        ),
    },
    pairs=wrongs(
        COLLIDING,
        """
        itself: every position shares its code with itself
            That is true of any encoding, so it tells nothing. Asked for are two *different* positions: the
            diagonal must be False.
        upper: each pair is told once only
            If 0 cannot be told from 8, neither can 8 from 0: the table is the same on both sides of its
            diagonal.
        lower: a position is compared with earlier ones only
            If 8 cannot be told from 0, neither can 0 from 8: the table is the same on both sides of its
            diagonal.
        neighbours: only neighbours are compared
            Codes repeat where a count starts again, far from where it first began. Compare every position
            with every other.
        first: all are compared with position 0 only
            Positions 1 and 17 may share a code as well. Compare every position with every other.
        no last: the last position is left out
            It may share its code with an earlier one. Where do your loops end?
        """,
    ),
    polarity=wrongs(
        COLLIDING,
        """
        inverted: True stands where two positions can be told apart
            You have found the positions that differ. Asked for are those that do not.
        all differ: True stands where all features differ
            Asked for are pairs in which none does.
        diagonal: True and False are exchanged everywhere, the diagonal included
            True is to mean: different positions, and the same code. Where does your `~` act?
        """,
    ),
    form=wrongs(
        COLLIDING,
        """
        numbers: zeros and ones come back instead of True and False
            A yes or no is a bool: a mask can be made of it, and `~` turns it round.
        positions: it is told which positions share a code, and not with whom
            Asked for is a table: a row and a column for each position.
        pairs: the pairs are listed instead of being marked in a table
            Asked for is a table with True at these places: a row and a column for each position.
        """,
    ),
    dimension=wrongs(
        COLLIDING,
        """
        features: features are compared with each other, instead of positions
            The encoding has a row for each position. Which two of the three dimensions of your comparison
            count positions, and which one has to go?
        middle: `all` runs over a dimension of positions
            The comparison has three dimensions: two count positions, one counts features. `all` is to take
            the features together. Where do they stand?
        """,
    ),
)
def any_same(encoding, *, compared="", pairs="", polarity="", form="", dimension=""):
    code = encoding.T if dimension == "features" else encoding
    if compared == "rounded":
        code = code.round()
    if compared == "absolute":
        code = code.abs()
    if compared == "sorted":
        code = code.sort(-1).values
    if compared == "first":
        code = code[:, :1]
    if compared == "last":
        code = code[:, -1:]
    if compared == "sums":
        code = code.sum(-1, keepdim=True)
    if compared == "lengths":
        code = code.norm(dim=-1, keepdim=True)
    if compared == "numbers":
        code = (code * 2 ** torch.arange(code.shape[1])).sum(-1, keepdim=True)
    equal = code[:, None] == code
    if compared == "tolerant":
        equal = (code[:, None] - code).abs() < 0.01
    if compared == "products":
        equal = (code @ code.T == (code * code).sum(-1))[..., None]
    reduced = 1 if dimension == "middle" else -1
    same = equal.any(reduced) if compared == "any" else equal.all(reduced)
    if polarity == "inverted":
        same = ~same
    if polarity == "all differ":
        same = (~equal).all(reduced)
    row, column = torch.arange(same.shape[0])[:, None], torch.arange(same.shape[1])
    if pairs != "itself":
        same = same & (row != column)
    match pairs:
        case "upper":
            same = same.triu()
        case "lower":
            same = same.tril()
        case "neighbours":
            same = same & ((row - column).abs() == 1)
        case "first":
            same = same & ((row == 0) | (column == 0))
        case "no last":
            same = same & (row < len(same) - 1) & (column < len(same) - 1)
    if polarity == "diagonal":
        same = ~same
    match form:
        case "numbers":
            return same.float()
        case "positions":
            return same.any(-1)
        case "pairs":
            return same.nonzero()
    return same


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


def _channels(normal: Normal) -> dict[str, Tensor]:
    return {"x": normal(2, 3, 4), "encoding": normal(4, 2)}


def _own_channels(inputs: Any, value: Tensor) -> str | None:
    words = "yours has {yours} at {place}, and x has {expected} there"
    return laws.is_not(value[:, :3], inputs["x"], words)


def _same_for_all(inputs: Any, value: Tensor) -> str | None:
    words = "at {place} of these yours has {yours} for item 1 and {expected} for item 0"
    return laws.is_not(value[1, 3:], value[0, 3:], words)


def _row_in_column(inputs: Any, value: Tensor) -> str | None:
    words = "at position 1 yours has {yours} at {place}, and row 1 has {expected} there"
    return laws.is_not(value[0, 3:, 1], inputs["encoding"][1], words)


concatenate_positions = Task(
    "concatenate_positions",
    _concatenate,
    {
        "x": torch.tensor([[[1.0, 2.0, 3.0]], [[4.0, 5.0, 6.0]]]),
        "encoding": torch.tensor([[10.0, 40.0], [20.0, 50.0], [30.0, 60.0]]),
    },
    _concatenate_cases,
    laws=[
        Law("the first channels are those of x", BESIDE, _channels, _own_channels),
        Law("the further channels are the same for all items of a batch", BESIDE, _channels, _same_for_all),
        Law(
            "at position t the further channels hold row t of the encoding", BESIDE, _channels, _row_in_column
        ),
    ],
    exact_dtype=True,
)


@concatenate_positions.made_of(
    turned=wrongs(
        BESIDE,
        """
        reshaped: the encoding is reshaped where it should be transposed
            `view` and `reshape` read the numbers in the same order and only begin new rows elsewhere, so
            the features of one position are spread over several. Exchanging rows and columns is `.T`.
        not: the encoding is not transposed
            The encoding has a row for each position, x has a column for each. They have to be made alike
            before they can be put together.
        backwards: the positions of the encoding run backwards
            Row 0 belongs to position 0, the first column of x.
        """,
    ),
    order=wrongs(
        BESIDE,
        """
        first: the encoding comes before the input's own channels
            Nothing is lost, but the order was agreed on: first the channels of x, then those of the
            encoding.
        """,
    ),
    along=wrongs(
        BESIDE,
        """
        positions: the encoding is put behind the last position instead of beside the channels
            That would make the sequence longer. The number of positions stays; the number of channels
            grows. Which dimension is that?
        batch: the encoding is put behind the batch, as further items
            The number of items stays; the number of channels grows. Which dimension is that?
        """,
    ),
    batch=wrongs(
        BESIDE,
        """
        one item: the encoding is there for one item of the batch only
            `torch.cat` does not broadcast. Every item of the batch needs the same encoding: `expand` gives
            it to each of them without a copy.
        no dimension: the encoding has no dimension for the batch
            x has three dimensions and the encoding two. `torch.cat` needs as many of each: every item of
            the batch gets the same encoding.
        zeros: only the first item of the batch gets the encoding
            The positions are the same in every item. `expand` gives each the same encoding.
        scaled: the items of the batch get different encodings
            The positions are the same in every item, so the further channels are, too.
        """,
    ),
    combined=wrongs(
        BESIDE,
        """
        added: the encoding is added instead of put beside
            That is the other way, and a good one. Here the channels of x stay as they are, and others come
            behind them.
        alone: the input's own channels are missing
            The network needs to know what stands at a position, and not only which position it is.
        """,
    ),
)
def any_concatenated(x, encoding, *, turned="", order="", along="", batch="", combined=""):
    channels = {
        "reshaped": encoding.reshape(encoding.shape[1], encoding.shape[0]),
        "not": encoding,
        "backwards": encoding.flip(0).T,
    }.get(turned, encoding.T)
    if combined == "added":
        return x + channels
    if batch != "no dimension":
        channels = channels[None] if batch == "one item" else channels.expand(len(x), -1, -1)
    number = torch.arange(len(x))[:, None, None]
    if batch == "zeros":
        channels = channels * (number == 0)
    if batch == "scaled":
        channels = channels * (number + 1)
    if combined == "alone":
        return channels
    parts = (channels, x) if order == "first" else (x, channels)
    return torch.cat(parts, dim={"positions": 2, "batch": 0}.get(along, 1))


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


def _first_rows(inputs: Any, value: Tensor) -> str | None:
    words = "yours gives {yours} at {place}, and the table has {expected} there"
    return laws.is_not(value, inputs["table"][:3].expand_as(value), words)


def _shorter(normal: Normal) -> list[dict[str, Tensor]]:
    x, table = normal(4, 2), normal(6, 2)
    return [{"x": x, "table": table}, {"x": x[:3], "table": table}]


def _same_row_first(inputs: Any, values: list[Tensor]) -> str | None:
    words = "at {place} yours gives {yours} with three positions and {expected} with four"
    return laws.is_not(values[1], values[0][:3], words)


add_positions = Task(
    "add_positions",
    _add,
    {
        "x": torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[9.0, 8.0], [7.0, 6.0], [5.0, 4.0]]]),
        "table": torch.tensor([[0.0, 0.0], [10.0, 50.0], [20.0, 60.0], [30.0, 70.0]]),
    },
    _add_cases,
    laws=[
        Law(
            "a table of zeros changes nothing",
            LEARNED,
            lambda normal: {"x": normal(3, 2), "table": torch.zeros(5, 2)},
            lambda inputs, value: laws.is_not(value, inputs["x"]),
        ),
        Law(
            "a position gets the same row in a shorter sequence as in a longer one",
            LEARNED,
            _shorter,
            _same_row_first,
        ),
        Law(
            "of an x of zeros the first rows of the table are left, in every sequence of a batch",
            PER_ITEM,
            lambda normal: {"x": torch.zeros(2, 3, 4), "table": normal(6, 4)},
            _first_rows,
        ),
    ],
)


@add_positions.made_of(
    rows={
        "per item": Wrong(
            "each item of the batch gets a vector of its own, the same at all its positions",
            """You have numbered the items of the batch, not the positions in them. In code that puts
            positions first and the batch second, the same line would be right. Which dimension holds the
            positions here?""",
            PER_ITEM,
        ),
        "whole": Wrong(
            "the whole table is added",
            """The table has rows for longer sequences, too. How many rows does this one need?""",
            LEARNED,
        ),
        "last": Wrong(
            "the last rows of the table are taken",
            """The first position has row 0, however long the sequence is. Otherwise the same word at the same
            place would get another vector in every sequence.""",
            LEARNED,
        ),
        "from one": Wrong(
            "positions are counted from 1",
            """Row 0 of the table is never used. The first position is number 0.""",
            LEARNED,
        ),
        "second dimension": Wrong(
            "the positions are looked for in the second dimension, wherever that is",
            """With one batch dimension in front, positions are the second. With none, or with two, they are
            not. Count from the back.""",
            PER_ITEM,
        ),
        "first dimension": Wrong(
            "the positions are looked for in the first dimension, which in a batch counts the sequences",
            """`len` is the size of the first dimension. In code that puts positions first, that is the length
            of the sequences; here it is the length only where there is no batch. Count from the back.""",
            PER_ITEM,
        ),
        "features": Wrong(
            "as many rows are taken as there are features",
            """The last dimension holds features. Positions stand in the one before it.""",
            PER_ITEM,
        ),
        "one": Wrong(
            "one row is added at all positions",
            """Then all positions carry the same mark, and none can be told from another. You need as many
            rows as there are positions.""",
            LEARNED,
        ),
        "first row": Wrong(
            "row 0 is added at all positions",
            """Then all positions carry the same mark, and none can be told from another.""",
            LEARNED,
        ),
        "backwards": Wrong(
            "the rows run backwards",
            """Position 0 gets row 0, position 1 gets row 1.""",
            LEARNED,
        ),
    },
    combined=wrongs(
        LEARNED,
        """
        concatenated: the encoding is concatenated instead of added
            That is the other way, and a good one. Here the number of features is to stay as it is.
            (positional#concatenate-or-add)
        subtracted: the rows are subtracted instead of added
            A network could live with that. But the sum is what was asked for.
        multiplied: the input is multiplied by the rows instead of adding them
            A feature of 0 would stay 0 at every position, and could carry no mark. Add.
        alone: the input is missing: only rows of the table come back
            The position is added to what stands there; it does not replace it.
        scaled: the input is multiplied by the root of its number of features first
            The first Transformer did so with its words. Here the input is added as it is.
        averaged: the mean of input and row is taken instead of the sum
            Both would be halved. Add.
        """,
    ),
)
def any_added(x, table, *, rows="", combined=""):
    length = x.shape[-2]
    taken = {
        "per item": lambda: table[: x.shape[0], None],
        "whole": lambda: table,
        "last": lambda: table[-length:],
        "from one": lambda: table[1 : length + 1],
        "second dimension": lambda: table[: x.shape[1]],
        "first dimension": lambda: table[: x.shape[0]],
        "features": lambda: table[: x.shape[-1]],
        "one": lambda: table[length],
        "first row": lambda: table[0],
        "backwards": lambda: table[:length].flip(0),
    }.get(rows, lambda: table[:length])()
    match combined:
        case "concatenated":
            return torch.cat((x, taken.expand(x.shape)), dim=-1)
        case "subtracted":
            return x - taken
        case "multiplied":
            return x * taken
        case "alone":
            return taken.expand(x.shape)
        case "scaled":
            return x * math.sqrt(x.shape[-1]) + taken
        case "averaged":
            return (x + taken) / 2
    return x + taken


# ---------------------------------------------------------------------------------------
# The sinusoidal encoding
# ---------------------------------------------------------------------------------------


def _exponents(read: str) -> dict[str, Wrong]:
    return {
        "half": Wrong(
            "the exponent grows half as fast as it should",
            """Pair i has the exponent 2i/D, where D counts features: two for each pair. You have used
            i/D.""",
            read,
        ),
        "double": Wrong(
            "the exponent grows twice as fast as it should",
            """In the exponent 2i/D, i counts pairs: 0, 1, 2 and so on. If your numbers are 0, 2, 4, they are
            doubled already.""",
            read,
        ),
        "own": Wrong(
            "the two features of a pair have different frequencies",
            """The exponent belongs to the pair, not to the feature: features 0 and 1 have the same, so do 2
            and 3. With different frequencies the two are not a point on a circle any more.""",
            OFFSET,
        ),
        "from one": Wrong(
            "the exponent is off by one: pairs are counted from 1",
            """For the first pair the exponent is 0, so its angle is the position itself. Is it in yours?""",
            read,
        ),
        "to the end": Wrong(
            "the exponent reaches 1 at the last pair",
            """This is how one well-known program spreads the frequencies. In the paper's formula the number
            of features stands below the fraction, and the last exponent stays below 1.""",
            read,
        ),
        "none": Wrong(
            "all pairs have the same frequency",
            """The first pair turns with the position itself. The others turn more slowly, each by its own
            frequency, like the hands of a clock.""",
            read,
        ),
    }


POWER = {
    "multiplied": (
        "positions are multiplied by the power of 10000 instead of divided by it",
        """Each pair is to be slower than the one before. Yours are faster. Where in the fraction does the
        power stand?""",
    ),
    "1000": (
        "the base is wrong: 1000 instead of 10000",
        """Count the zeros of your base, and those of the formula's.""",
    ),
    "100000": (
        "the base is wrong: 100000 instead of 10000",
        """Count the zeros of your base, and those of the formula's.""",
    ),
    "e": (
        "the base is wrong: e instead of 10000",
        """`exp` of an exponent is a power of e. To get a power of 10000 that way, multiply the exponent by
        the logarithm of 10000 first.""",
    ),
    "2": (
        "the base is wrong: 2 instead of 10000",
        """The bits of the binary encoding go with powers of 2. These waves go with powers of 10000.""",
    ),
    "product": (
        "10000 is multiplied by the exponent, not raised to it",
        """What stands above and to the right of a number is a power: `**`. For the first pair the exponent is
        0, and 10000 to the power of 0 is 1.""",
    ),
}


def _powers(read: str) -> dict[str, Wrong]:
    return {name: Wrong(label, hint, read) for name, (label, hint) in POWER.items()}


def angles_of(t, dim, exponent, power):
    """The angles of positions (length, 1), two equal ones for each pair, with choices of the factors."""
    column = torch.arange(dim, dtype=t.dtype)
    pair = column // 2
    last = (dim + 1) // 2 - 1
    exponents = {
        "half": pair / dim,
        "double": 4 * pair / dim,
        "own": column / dim,
        "from one": 2 * (pair + 1) / dim,
        "to the end": pair / last if last else pair * math.nan,
        "none": 0 * pair,
        "whole pairs": 2 * pair / (dim // 2 * 2),
        "pairs": pair / (last + 1),
    }.get(exponent, 2 * pair / dim)
    if power == "multiplied":
        return t * 10_000.0**exponents
    if power == "product":
        return t / (10_000.0 * exponents)
    return t / {"1000": 1e3, "100000": 1e5, "e": math.e, "2": 2.0}.get(power, 1e4) ** exponents


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


def _zero_and_one(inputs: Any, value: Tensor) -> str | None:
    expected = torch.arange(value.shape[1]).to(value.dtype) % 2
    return laws.is_not(value[0], expected, "yours has {yours} at {place} of that row")


def _own_sine(inputs: Any, value: Tensor) -> str | None:
    expected = torch.arange(len(value)).double().sin()
    return laws.is_not(value[:, 0], expected, "yours has {yours} at position {place}")


def _on_a_circle(inputs: Any, value: Tensor) -> str | None:
    squares = value[:, 0::2] ** 2 + value[:, 1::2] ** 2
    return laws.is_not(
        squares, torch.ones_like(squares), "in yours they sum to {yours} at [position, pair] {place}"
    )


def _hundredth(inputs: Any, value: Tensor) -> str | None:
    expected = (torch.arange(len(value)).double() / 100).sin()
    return laws.is_not(value[:, 2], expected, "in yours the third feature of position {place} is {yours}")


sinusoidal_encoding = Task(
    "sinusoidal_encoding",
    positional.sinusoidal_encoding,
    {"length": 3, "dim": 4},
    _sinusoidal_cases,
    laws=[
        Law(
            "position 0 has 0, 1, 0, 1 and so on: the sine and the cosine of 0",
            SINUSOIDAL,
            lambda normal: {"length": 3, "dim": 5},
            _zero_and_one,
        ),
        Law(
            "the first feature is the sine of the position itself",
            SINUSOIDAL,
            lambda normal: {"length": 6, "dim": 6},
            _own_sine,
        ),
        Law(
            "the squares of the two features of a pair sum to 1",
            SINUSOIDAL,
            lambda normal: {"length": 6, "dim": 6},
            _on_a_circle,
        ),
        Law(
            "with four features the second pair is a hundred times as slow as the first",
            SINUSOIDAL,
            lambda normal: {"length": 5, "dim": 4},
            _hundredth,
        ),
    ],
    exact_dtype=True,
)


@sinusoidal_encoding.made_of(
    exponent={
        **_exponents(SINUSOIDAL),
        "whole pairs": Wrong(
            "below the fraction stands an even number, one less than the number of features if that is odd",
            """D is the number of features, whatever it is. The missing cosine changes no frequency.""",
            SINUSOIDAL,
        ),
        "pairs": Wrong(
            "below the fraction stands twice the number of pairs, which is one too many if features are odd",
            """D is the number of features, whatever it is. The missing cosine changes no frequency.""",
            SINUSOIDAL,
        ),
    },
    power=_powers(SINUSOIDAL),
    start=wrongs(
        SINUSOIDAL,
        """
        one: positions are counted from 1
            At position 0 all angles are 0, so all sines are 0 and all cosines are 1. Is that your first
            row?
        share: positions are divided by the length
            Then a position would have another code in every sequence. The angle of the first pair is the
            position itself.
        turns: the angles are counted in full turns: there is a factor of 2π too many
            The first pair takes a little more than six steps for a turn. In yours it takes one.
        degrees: the angles are taken for degrees
            `sin` and `cos` want an angle as the formula has it, and nothing needs to be converted.
        """,
    ),
    waves=wrongs(
        SINUSOIDAL,
        """
        halves: all sines come first and then all cosines, where they should take turns
            Both orders are in use, and weights trained with one do not fit the other. Here features 0 and 1
            are the sine and the cosine of the same angle, then come 2 and 3, and so on.
        exchanged: sine and cosine are exchanged
            Features 0, 2, 4 and so on are sines: at position 0 they are 0.
        sines: there are sines only
            A sine alone does not say which way you are going. Features 1, 3, 5 are cosines.
        cosines: there are cosines only
            A cosine alone does not say which way you are going. Features 0, 2, 4 are sines.
        negative: the sines have the opposite sign
            The hands turn the other way. Where does a minus sign enter the angle?
        """,
    ),
    table=wrongs(
        SINUSOIDAL,
        """
        transposed: features stand in rows and positions in columns
            Each position is to have a row of its own.
        whole pairs: with an odd number of features the last one is missing
            Five features are two pairs and a sine without its cosine. Count your columns.
        one more: with an odd number of features there is one too many
            Five features are two pairs and a sine without its cosine. The last cosine has to go.
        zero: with an odd number of features the last one is left at 0
            Five features are two pairs and a sine without its cosine. The last column holds that sine.
        """,
    ),
)
def any_sinusoidal(length, dim, *, exponent="", power="", start="", waves="", table=""):
    t = torch.arange(length)[:, None].float()
    t = {"one": t + 1, "share": t / length, "turns": 2 * math.pi * t, "degrees": t * math.pi / 180}.get(
        start, t
    )
    width = dim + dim % 2
    angles = angles_of(t, dim, exponent, power)
    if dim % 2:  # the last cosine, which is cut off below
        angles = torch.cat((angles, angles[:, -1:]), 1)
    even = torch.arange(width) % 2 == 0
    sines, cosines = angles.sin(), angles.cos()
    encoding = {
        "halves": torch.cat((sines[:, even], cosines[:, even]), 1),
        "exchanged": torch.where(even, cosines, sines),
        "sines": sines,
        "cosines": cosines,
        "negative": torch.where(even, -sines, cosines),
    }.get(waves, torch.where(even, sines, cosines))
    if table == "one more":
        return encoding
    encoding = encoding[:, :dim]
    if table == "whole pairs":
        return encoding[:, : dim // 2 * 2]
    if table == "zero" and dim % 2:
        encoding[:, -1] = 0
    return encoding.T if table == "transposed" else encoding


@sinusoidal_encoding.mistake(
    "with an odd number of features there are as many cosines as sines",
    hint="""Every second column, beginning with the second, holds a cosine: with five features that are two
    columns, and three sines. The last angle gets no cosine.""",
    read=SINUSOIDAL,
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


def _fixed_orders(length: int) -> dict[str, Tensor]:
    """Permutations that one may return without asking, for a length of at least 3."""
    places = torch.arange(length)

    def exchanged(i: int, j: int) -> Tensor:
        order = places.clone()
        order[[i, j]] = order[[j, i]]
        return order

    return {
        "identity": places,
        "first two": exchanged(0, 1),
        "reversed": places.flip(0),
        "shifted": places.roll(1),
        "shifted back": places.roll(-1),
        "ends": exchanged(0, length - 1),
        "last two": exchanged(length - 2, length - 1),
    }


def _few(seed: int, x: Tensor, number: int) -> Callable[[Tensor], Tensor]:
    """A function that is 1 for some three of ten orders of x, and 0 for the others and for x itself.

    The fixed orders are not among them. Some exchange of two neighbours is, one of two positions of
    which the first is one, and one of which the last is one: whoever tries all such finds one.
    """
    length = len(x)
    generator = torch.Generator().manual_seed(1000 * seed + number)
    places = torch.arange(length)

    def exchanges(pairs: list[tuple[int, int]]) -> Tensor:
        orders = places.repeat(len(pairs), 1)
        for order, (i, j) in zip(orders, pairs, strict=True):
            order[i], order[j] = j, i
        return orders

    fixed = torch.stack(list(_fixed_orders(length).values()))
    last = length - 1
    found = [
        exchanges([(i, i + 1) for i in range(1, last - 1)]),
        exchanges([(0, i) for i in range(2, last)]),
        exchanges([(i, last) for i in range(1, last - 1)]),
    ]
    random = torch.rand(300, length, generator=generator).argsort(-1)
    while True:
        W = torch.randn(length, length, generator=generator, dtype=torch.float64)
        threshold = W[places, random].sum(-1).quantile(0.7)
        if (W[places, fixed].sum(-1) > threshold).any():
            continue
        if all((W[places, orders].sum(-1) > threshold + 1e-6).any() for orders in found):
            break

    def few(z: Tensor) -> Tensor:
        which = ((z.unsqueeze(1) - x).abs().sum(-1) < 1e-4).double()  # (length, length): the row of x
        return ((which * W).sum() > threshold).double()

    return few


def _layers(seed: int, x: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Layers that are not equivariant; their numbers come from the seed and from x."""
    length, dim = x.shape
    normal = normal_source(seed + 1)
    W = normal(3, dim, dim, dtype=torch.float64) / 2
    t = torch.arange(length, dtype=torch.float64)[:, None]
    middle = (t - (length - 1) / 2).abs()
    features = [normal(1, dim, dtype=torch.float64) for _ in range(2)]

    def attend(z: Tensor) -> Tensor:
        return torch.softmax((z @ W[0]) @ (z @ W[1]).mT / dim**0.5, -1) @ (z @ W[2]) + z

    def marked(marks: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda z: attend(z + marks * features[0])

    bits = (torch.arange(length)[:, None] >> torch.arange(3) & 1).double() @ normal(
        3, dim, dtype=torch.float64
    )
    row = 1 + seed % (length - 2)
    feature = 1 + seed % (dim - 1)
    one_feature = torch.zeros(1, dim, dtype=torch.float64)
    one_feature[0, feature] = 1
    numbers = {
        name: torch.zeros(length, dim, dtype=torch.float64) for name in ("one", "balanced", "less", "little")
    }
    numbers["one"][row, feature] = numbers["balanced"][row, feature] = 1
    numbers["balanced"][row - 1, feature] = -1
    numbers["less"][:] = -1
    numbers["little"][row] = 0.004
    first_row, last_row = torch.zeros_like(x), torch.zeros_like(x)
    first_row[0] = last_row[-1] = 1
    upper = torch.ones(length, length).triu(1).bool()

    def parity(z: Tensor) -> Tensor:
        """1 if an even number of exchanges sorts the rows by their first feature, and -1 if an odd one."""
        first = z[:, 0]
        return torch.where(upper, (first.unsqueeze(1) - first).sign(), 1.0).prod(0).prod(0)

    def noticing(place: int, added: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda z: attend(z) + _few(seed, x, place)(z) * added

    return {
        "attention with the binary encoding": lambda z: attend(z + bits),
        "attention, positions numbered 0 0 1 1 2 2 ...": marked(t // 2),
        "attention, each position marked with its distance from the middle": marked(middle),
        "a convolution on a ring": lambda z: torch.tanh(z + 2 * z.roll(1, 0) - z.roll(-1, 0)),
        "attention, only the two positions in the middle marked": marked((middle < 1).double()),
        "attention, only the first position marked": marked((t == 0).double()),
        "attention, only the last position marked": marked((t == length - 1).double()),
        "attention, only the third position marked": marked((t == 2).double()),
        "attention, and whether an even number of exchanges leads to an order": (
            lambda z: attend(z) + parity(z) * features[1]
        ),
        "attention, and some orders show in one number": noticing(0, numbers["one"]),
        "attention, and what some orders add to one row they take from another": noticing(
            1, numbers["balanced"]
        ),
        "attention, and some orders make all numbers smaller": noticing(2, numbers["less"]),
        "attention, and some orders make all numbers larger": noticing(3, -numbers["less"]),
        "attention, and some orders turn the sign of one feature": (
            lambda z: attend(z) * (1 - 2 * one_feature * _few(seed, x, 4)(z))
        ),
        "attention, and some orders show a little": noticing(5, numbers["little"]),
        "attention, and some orders show in the first row": noticing(6, first_row),
        "attention, and some orders show in the last row": noticing(7, last_row),
    }


def _tells(layer: Callable[[Tensor], Tensor], x: Tensor, order: Tensor) -> bool:
    return bool((layer(x[order]) - layer(x)[order]).abs().max() > 1e-6)


def _telling_permutation(layer: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    y = layer(x)
    for t in range(len(x) - 1):
        order = torch.arange(len(x))
        order[t], order[t + 1] = t + 1, t
        if (layer(x[order]) - y[order]).abs().max() > 1e-6:
            return order
    raise ValueError("layer is equivariant: expected one that is not")


def _telling_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), _whole(seed)
    cases = []
    for name in in_any_order(_layers(0, torch.zeros(6, 3)), seed):
        x = normal(2 * whole(3, 4), 3, dtype=torch.float64)
        cases.append(Case({"layer": trace(_layers(seed, x)[name]), "x": x}, f"the layer is: {name}"))
    return cases


def _telling_compare(inputs: dict[str, Any], value: Any) -> str | None:
    x = inputs["x"]
    if not isinstance(value, Tensor) or value.dtype.is_floating_point or value.dtype == torch.bool:
        return "a permutation was expected: a list or a tensor of whole numbers"
    if value.shape != (len(x),) or value.sort().values.tolist() != list(range(len(x))):
        return f"a permutation of {len(x)} positions was expected: each number from 0 to {len(x) - 1} once"
    if not _tells(inputs["layer"], x, value):
        return (
            f"with the permutation {value.tolist()} it makes no difference whether the input or the output "
            "is permuted"
        )
    return None


def _marks(*marks: float) -> Callable[[Normal], dict[str, Any]]:
    """A layer that adds these numbers, one for each position, and does nothing else."""
    column = torch.tensor(marks, dtype=torch.float64)[:, None]
    layer = trace(lambda x: x + column)
    return lambda normal: {"layer": layer, "x": normal(len(marks), 3, dtype=torch.float64)}


def _every_position(inputs: Any, value: Tensor) -> str | None:
    missing = set(range(len(value))) - set(value.tolist())
    return f"position {min(missing)} is not in {value.tolist()}" if missing else None


def _told_by_marks(words: str, *marks: float) -> Law:
    def broken(inputs: Any, value: Tensor) -> str | None:
        order = value.tolist()
        told = [
            place for place in order if place not in range(len(marks)) or marks[place] != marks[order[place]]
        ]
        return None if told else f"for such a layer yours gives {order}"

    return Law(words, GONE, _marks(*marks), broken)


telling_permutation = Task(
    "telling_permutation",
    _telling_permutation,
    {
        **_marks(0, 0, 10)(torch.randn),
        "x": torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64),
    },
    _telling_cases,
    laws=[
        Law("it holds every position once", GONE, _marks(0, 0, 0, 1), _every_position),
        _told_by_marks(
            "for a layer that knows only the last of four positions, that position moves", 0, 0, 0, 1
        ),
        _told_by_marks(
            "for a layer that knows positions only as 0 0 1 1 2 2, some position changes its pair",
            *(0, 0, 1, 1, 2, 2),
        ),
        _told_by_marks(
            "for a layer that knows only how far each of six positions is from the middle, some position "
            "gets nearer to it",
            *(2, 1, 0, 0, 1, 2),
        ),
    ],
    way=AskForPermutation(),
    compare=_telling_compare,
)


@telling_permutation.made_of(
    orders=wrongs(
        GONE,
        """
        without last: the exchange of the last two positions is not tried
            One of the layers knows the last position and no other. Where does your loop end?
        without first: the exchange of the first two positions is not tried
            One of the layers knows the first position and no other. Where does your loop begin?
        in pairs: only the exchanges 0 with 1, 2 with 3 and so on are tried
            A layer that knows positions as 0 0 1 1 2 2 sees the same after each of these. Try *all*
            neighbours.
        fixed: a few fixed permutations are tried, such as a reversal and a shift
            Some layers notice none of these. Every permutation can be made of exchanges of two neighbours:
            which should be tried, then?
        features: the features are permuted instead of the positions
            Rows are positions. Which index of x are you permuting?
        """,
    ),
    side=wrongs(
        GONE,
        """
        unmoved: what is compared differs for every permutation and every layer
            The output for the permuted input is to be compared with the *permuted* output for the input. An
            equivariant layer, too, gives something else when its input is permuted.
        agreeing: a permutation comes back to which the layer *is* equivariant
            Asked for is one that makes a difference. Which way round is your comparison?
        """,
    ),
    compared=COMPARED,
    tolerance=TOLERANCES,
    form=wrongs(
        GONE,
        """
        pair: the two positions come back that are to be exchanged, and not the whole permutation
            A permutation of six positions has six numbers: where each row is taken from.
        yes: True comes back instead of the permutation
            Asked for is the permutation itself, not whether there is one.
        rows: the permuted input comes back instead of the permutation
            Asked for are the numbers by which x was permuted.
        """,
    ),
)
def any_telling(layer, x, *, orders="", side="", compared="", tolerance="", form=""):
    length = x.shape[1] if orders == "features" else len(x)
    first, last, step = (
        orders == "without first",
        length - 1 - (orders == "without last"),
        1 + (orders == "in pairs"),
    )
    places = torch.arange(length)
    tried = []
    for t in range(first, last, step):
        order = places.clone()
        order[t], order[t + 1] = t + 1, t
        tried.append((order, (t, t + 1)))
    if orders == "fixed":
        tried = [(tried[0][0], (0, 1)), (places.flip(0), (0, -1)), (places.roll(1), (0, 1))]
    y = layer(x)
    for order, pair in tried:
        z = x[:, order] if orders == "features" else x[order]
        moved, expected = layer(z), y
        if side == "":
            expected = y[:, order] if orders == "features" else y[order]
        if side == "agreeing":
            expected = y[order]
        if _agree(moved, expected, compared, tolerance) == (side == "agreeing"):
            return {"pair": list(pair), "yes": True, "rows": z}.get(form, order)


def telling_identity(layer, x):
    return torch.arange(len(x))


def telling_first_two(layer, x):
    return torch.tensor([1, 0, *range(2, len(x))])


def telling_reversed(layer, x):
    return torch.arange(len(x)).flip(0)


def telling_shifted(layer, x):
    return torch.arange(len(x)).roll(1)


def telling_shifted_back(layer, x):
    return torch.arange(len(x)).roll(-1)


def telling_ends(layer, x):
    return torch.tensor([len(x) - 1, *range(1, len(x) - 1), 0])


def telling_last_two(layer, x):
    return torch.tensor([*range(len(x) - 2), len(x) - 1, len(x) - 2])


for _function, _label, _hint in (
    (
        telling_identity,
        "the identity, which leaves everything where it is",
        "If nothing is moved, no layer can show that it knows where things were.",
    ),
    (
        telling_first_two,
        "always the first two positions are exchanged, whatever the layer",
        """A layer may know some positions and not others: if the first two look alike to it, exchanging
        them tells nothing. Ask the layer about more exchanges than one.""",
    ),
    (
        telling_reversed,
        "always the order is reversed, whatever the layer",
        """A layer that sees how far each position is from the middle sees the same after the reversal. Ask
        the layer about more permutations than one.""",
    ),
    (
        telling_shifted,
        "always everything is shifted by one, whatever the layer",
        """A convolution on a ring does the same everywhere: shift its input, and its output is shifted. Ask
        the layer about more permutations than one.""",
    ),
    (
        telling_shifted_back,
        "always everything is shifted back by one, whatever the layer",
        """A convolution on a ring does the same everywhere: shift its input, and its output is shifted. Ask
        the layer about more permutations than one.""",
    ),
    (
        telling_ends,
        "always the first and the last position are exchanged, whatever the layer",
        """The two ends of a sequence can look alike to a layer, which still tells others apart. Ask the
        layer about more permutations than one.""",
    ),
    (
        telling_last_two,
        "always the last two positions are exchanged, whatever the layer",
        """A layer may know some positions and not others: if the last two look alike to it, exchanging them
        tells nothing. Ask the layer about more exchanges than one.""",
    ),
):
    telling_permutation.mistake(_label, hint=_hint, read=GONE)(_function)


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


def _row_norms(inputs: Any, value: Tensor) -> str | None:
    words = "row {place} of yours has the length {yours} and had {expected}"
    return laws.is_not(value.norm(dim=-1), inputs["x"].norm(dim=-1), words)


def _turned_one(inputs: Any, value: Tensor) -> str | None:
    t = inputs["positions"].double()
    words = "at [row, feature] {place} yours has {yours}, not {expected}"
    return laws.is_not(value, torch.stack((t.cos(), t.sin()), -1), words)


def _second_pair(inputs: Any, value: Tensor) -> str | None:
    t = inputs["positions"].double() / 100
    words = "the point (1, 0) of the second pair has become {yours} at [row, feature] {place} of the pair"
    return laws.is_not(value[:, 2:], torch.stack((t.cos(), t.sin()), -1), words)


def _scores_at(normal: Normal) -> list[dict[str, Tensor]]:
    x = normal(2, 6)
    return [{"x": x, "positions": torch.tensor(at)} for at in ([5, 2], [9, 6])]


def _same_score(inputs: Any, values: list[Tensor]) -> str | None:
    scores = [value[0] @ value[1] for value in values]
    return laws.is_not(scores[1], scores[0], "yours gives {expected} at 5 and 2, and {yours} at 9 and 6")


rotary = Task(
    "rotary",
    positional.rotary,
    {
        "x": torch.tensor([[1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 10.0]]),
        "positions": torch.tensor([0, 2]),
    },
    _rotary_cases,
    laws=[
        Law(
            "at position 0 nothing changes",
            ROTARY,
            lambda normal: {"x": normal(2, 4), "positions": torch.tensor([0, 0])},
            lambda inputs, value: laws.is_not(value, inputs["x"]),
        ),
        Law(
            "every row keeps its length",
            ROTARY,
            lambda normal: {"x": normal(4, 6), "positions": torch.tensor([1, 2, 5, 9])},
            _row_norms,
        ),
        Law(
            "with two features, the point (1, 0) becomes (cos t, sin t) at position t",
            ROTARY,
            lambda normal: {"x": torch.tensor([[1.0, 0.0]] * 3), "positions": torch.tensor([2, 0, 1])},
            _turned_one,
        ),
        Law(
            "with four features the second pair turns a hundred times as slowly as the first",
            ROTARY,
            lambda normal: {"x": torch.tensor([[0.0, 0, 1, 0]] * 2), "positions": torch.tensor([3, 50])},
            _second_pair,
        ),
        Law(
            "the product of two turned rows depends only on how far apart they stand",
            ROTARY,
            _scores_at,
            _same_score,
        ),
    ],
)


@rotary.made_of(
    exponent=_exponents(ROTARY),
    power=_powers(ROTARY),
    pairing=wrongs(
        ROTARY,
        """
        halves: the wrong pairs are rotated: feature i with feature i + D/2
            Many programs pair the two halves, and it works as well; but weights trained with one pairing do
            not fit the other. Here neighbours are a pair: features 0 and 1, then 2 and 3.
        not interleaved: the rotated pairs are not put back where they were
            You have split the features into even and odd ones and rotated the right pairs. Then you put all
            the first ones before all the second ones. In the output neighbours are to be a pair again.
        interleaved: the halves are paired, and come back interleaved
            The features that are taken as a pair have to come back to the places they came from. Here these
            are neighbours, both times.
        exchanged: the two features of a pair have changed places
            The point (a, b) begins with the even feature. At position 0 nothing may change.
        """,
    ),
    turn=wrongs(
        ROTARY,
        """
        backwards: the rotation goes the other way round
            Mind the minus sign. Turned by a right angle, the pair (1, 0) becomes (0, 1), not (0, -1).
        no minus: the minus sign is missing
            Without it this is no rotation, and the length of a vector changes. One of the four products is
            subtracted. Which?
        mirrored: the second feature of each pair has the opposite sign
            A turn by 0 must leave everything as it is. Put an angle of 0 into your two lines.
        sine first: sine and cosine are exchanged
            A turn by 0 must leave everything as it is, and the cosine of 0 is 1. Which of the two is
            multiplied by a in the first line?
        overwritten: the second of a pair is made from the first one as it is already turned
            Both lines of the formula speak of the old a and the old b. Yours has overwritten a before it is
            used for the second time. Keep the old ones, and write into a new tensor.
        cosines only: the features are multiplied by cosines and sines, and the pair is not mixed
            A turned point has something of a and of b in both its coordinates. The formula has four
            products, two in each line.
        added: the sinusoids are added instead of turning the pairs
            Added sinusoids shift a vector; here each pair of features is to be turned about the origin. A
            rotation keeps the norm, so compare the norms before and after.
        """,
    ),
    positions_used=wrongs(
        ROTARY,
        """
        rows: the given positions are not used: rows are counted from 0
            A decoder that has kept earlier keys asks for position 17 with a single row. Which row a vector
            stands in does not say where it stands in the sequence; `positions` does.
        from one: positions are counted from 1
            At position 0 the angle is 0, and nothing is turned. The given positions need nothing added to
            them.
        from the first: positions are counted from that of the first row
            Then the first row is never turned. The angle belongs to the position as it is given.
        turns: the angles are counted in full turns: there is a factor of 2π too many
            The angle of the first pair is the position itself, and `sin` and `cos` take it so.
        degrees: the angles are taken for degrees
            `sin` and `cos` want an angle as the formula has it, and nothing needs to be converted.
        """,
    ),
)
def any_rotary(x, positions, *, exponent="", power="", pairing="", turn="", positions_used=""):
    t = positions.to(x.dtype)
    t = {
        "rows": torch.arange(x.shape[-2], dtype=x.dtype),
        "from one": t + 1,
        "from the first": t - t[0],
        "turns": 2 * math.pi * t,
        "degrees": t * math.pi / 180,
    }.get(positions_used, t)
    angles = angles_of(t[:, None], x.shape[-1], exponent, power)
    cos, sin = angles.cos(), angles.sin()
    cos_a, cos_b, sin_a, sin_b = cos[:, 0::2], cos[:, 1::2], sin[:, 0::2], sin[:, 1::2]
    a, b = x.chunk(2, -1) if pairing in ("halves", "interleaved") else (x[..., 0::2], x[..., 1::2])
    first, second = a * cos_a - b * sin_a, a * sin_b + b * cos_b
    match turn:
        case "backwards":
            first, second = a * cos_a + b * sin_a, b * cos_b - a * sin_b
        case "no minus":
            first = a * cos_a + b * sin_a
        case "mirrored":
            second = a * sin_b - b * cos_b
        case "sine first":
            first, second = a * sin_a - b * cos_a, a * cos_b + b * sin_b
        case "overwritten":
            second = first * sin_b + b * cos_b
        case "cosines only":
            first, second = a * cos_a, b * sin_b
        case "added":
            first, second = a + sin_a, b + cos_b
    if pairing in ("halves", "not interleaved"):
        return torch.cat((first, second), -1)
    if pairing == "exchanged":
        first, second = second, first
    return torch.stack((first, second), -1).flatten(-2)


@rotary.mistake(
    "the angles are of single precision where x is of double",
    hint="""`torch.arange` divided by a whole number is of single precision, and an angle of hundreds is then
    rounded in the fourth or fifth digit behind the point. `arange` takes a `dtype`.""",
    read=ROTARY,
)
def rotary_single_precision(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


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


def _below_one(inputs: Any, value: Tensor) -> str | None:
    wrong = ~((value > 0) & (value < 1))
    place = wrong.nonzero()
    return f"yours has {value[place[0, 0]]:.4g} at [{int(place[0, 0])}]" if len(place) else None


def _last_slope(inputs: Any, value: Tensor) -> str | None:
    return laws.is_not(value[-1], torch.tensor(2.0**-8), "of 16 heads yours gives the last {yours}")


def _same_factor(inputs: Any, value: Tensor) -> str | None:
    factors = value[1:] / value[:-1]
    words = "of 8 heads in yours the first factor is {expected}, and the one at {place} is {yours}"
    return laws.is_not(factors, factors[:1].expand_as(factors), words)


def _heads(*numbers: int) -> Callable[[Normal], list[dict[str, int]]]:
    return lambda normal: [{"num_heads": number} for number in numbers]


def _smaller_first(inputs: Any, values: list[Tensor]) -> str | None:
    words = "of 6 heads yours has {yours} at {place}, and of 4 heads {expected}"
    return laws.is_not(values[1][:4], values[0], words)


def _others_of_double(inputs: Any, values: list[Tensor]) -> str | None:
    for slope in values[1][4:].tolist():
        if not any(math.isclose(slope, other, rel_tol=1e-4) for other in values[0].tolist()):
            return f"of 6 heads yours has {slope:.4g}, which is not among your slopes of 8 heads"
    return None


def _no_slope_twice(inputs: Any, value: Tensor) -> str | None:
    ordered = value.sort().values
    equal = torch.isclose(ordered[1:], ordered[:-1], 1e-4).nonzero()
    return f"of 7 heads yours gives {ordered[int(equal[0])]:.4g} to two" if len(equal) else None


alibi_slopes = Task(
    "alibi_slopes",
    positional.alibi_slopes,
    {"num_heads": 6},
    _alibi_slopes_cases,
    laws=[
        Law("all slopes lie between 0 and 1", ALIBI, lambda normal: {"num_heads": 8}, _below_one),
        Law(
            "for a power of two each slope is the one before times the same factor",
            ALIBI,
            lambda normal: {"num_heads": 8},
            _same_factor,
        ),
        Law(
            "for a power of two the last slope is 1/256, which is 0.003906",
            ALIBI,
            lambda normal: {"num_heads": 16},
            _last_slope,
        ),
        Law("no two heads have the same slope", ALIBI, lambda normal: {"num_heads": 7}, _no_slope_twice),
        Law("the slopes of 6 heads begin with those of 4 heads", ALIBI, _heads(4, 6), _smaller_first),
        Law(
            "the last two slopes of 6 heads are found among those of 8 heads",
            ALIBI,
            _heads(8, 6),
            _others_of_double,
        ),
    ],
    exact_dtype=True,
)


@alibi_slopes.made_of(
    geometric=wrongs(
        ALIBI,
        """
        from zero: the first slope is 1: heads are counted from 0
            Heads are counted from 1 here. For eight heads the first slope is one half, and the last is 2 to
            the power of -8.
        halved: every slope is half of the one before, whatever the number of heads
            That is right for eight heads. With 16 the slopes lie closer together, with two farther apart:
            the last slope of any power of two is 2 to the power of -8.
        linear: the slopes are evenly spaced
            Each slope is the one before *times* a factor, not minus a number.
        not divided: the exponent is not divided by the number of heads
            The last exponent is -8, for any power of two. Yours goes on far beyond.
        growing: the exponent is positive
            The slopes are 2 to the power of a *negative* number: at most 1, and falling.
        base e: the base is wrong: e instead of 2
            `exp` is a power of e. The formula has a power of 2.
        reciprocal: the exponent is the inverse: the number of heads stands above, and the head below
            In -8h/H the number of the head stands above the fraction bar. For 8 heads the exponents are -1,
            -2, -3 and so on.
        backwards: the flattest slope comes first
            Head 1 has the steepest slope: for eight heads one half.
        whole: the exponents are rounded to whole numbers
            With 16 heads the exponents are halves: -1/2, -1, -3/2. `//` rounds them.
        """,
    ),
    between=wrongs(
        ALIBI,
        """
        plain: the formula for powers of two is used for all head counts
            It gives slopes for any number, and reasonable ones. But the authors' program has others if the
            number of heads is no power of two, and so has this task: read on after the formula.
        wrong places: the slopes in between are taken from the wrong places: they are the old ones once more
            Every second slope of the doubled number of heads is one that you have already. Print both lists
            for 2 and 4. Which ones are new?
        without a step: the slopes in between are taken one after the other
            Of the slopes for twice as many heads every second one is there already. Write down those for 2
            and for 4 heads: which are new?
        cut off: the slopes are those of the next larger power of two, cut off
            You go up to the next power of two and take its first slopes. Go down to the next smaller one,
            take all its slopes, and fill up what is missing.
        every second: every second slope of the next larger power of two comes first, then the others
            What comes first is all the slopes of the smaller power of two: every second of the larger
            one's, but from the *second* on.
        last: the slopes in between are taken from the end
            Of the slopes that are new, the first are taken, as many as are needed.
        double of the heads: the slopes in between are those of twice as many heads as are asked for
            It is the power of two that is doubled, so that the new slopes lie between the old ones.
        missing: the slopes of the smaller power of two are all that comes back
            Each head needs a slope. What is missing comes from twice as many heads.
        all: more slopes come back than there are heads
            Only as many are taken from the doubled number of heads as are missing.
        """,
    ),
    order=wrongs(
        ALIBI,
        """
        sorted: the slopes are sorted
            The right slopes, in another order. The slopes in between come last, behind those of the power
            of two, as in the code that goes with the paper. A trained head needs its own slope.
        new first: the slopes in between come first
            They come last, behind those of the power of two.
        """,
    ),
    sign=wrongs(
        ALIBI,
        """
        negative: the slopes are negative
            The minus sign is in the bias, which is minus slope times distance. The slopes themselves are
            positive.
        exponents: the exponents come back, and not the powers of 2
            -8h/H is what 2 is raised to.
        """,
    ),
)
def any_slopes(num_heads, *, geometric="", between="", order="", sign=""):
    power = 2 ** (num_heads.bit_length() - 1)

    def series(number):
        h = torch.arange(1, number + 1).double()
        slopes = {
            "from zero": 2.0 ** (-8 * (h - 1) / number),
            "halved": 2.0**-h,
            "linear": 1 - h / (number + 1),
            "not divided": 2.0 ** (-8 * h),
            "growing": 2.0 ** (8 * h / number),
            "base e": (-8 * h / number).exp(),
            "reciprocal": 2.0 ** (-8 * number / h),
            "backwards": 2.0 ** (-8 * h / number).flip(0),
            "whole": 2.0 ** (-8 * h / number).floor(),
        }.get(geometric, 2.0 ** (-8 * h / number))
        return slopes.float()

    own, double = series(power), series(2 * power)
    missing = num_heads - power
    rest = {
        "wrong places": double[1::2],
        "without a step": double,
        "last": double[0::2][power - missing :],
        "double of the heads": series(2 * num_heads)[0::2],
        "missing": own[:0],
        "all": double[0::2],
    }.get(between, double[0::2])
    if between != "all":
        rest = rest[:missing]
    slopes = torch.cat((rest, own) if order == "new first" else (own, rest))
    if between == "plain":
        slopes = series(num_heads)
    if between == "cut off":
        slopes = series(2 ** (num_heads - 1).bit_length())[:num_heads]
    if between == "every second":
        larger = series(2 ** (num_heads - 1).bit_length())
        slopes = torch.cat((larger[0::2], larger[1::2]))[:num_heads] if missing else own
    if order == "sorted":
        slopes = slopes.sort(descending=True).values
    return -slopes if sign == "negative" else slopes.log2() if sign == "exponents" else slopes


def _alibi_bias(slopes: Tensor, num_queries: int, num_keys: int) -> Tensor:
    own = torch.arange(num_queries) + (num_keys - num_queries)
    # Subtracted from 0, so that no -0 is shown.
    return 0 - slopes[:, None, None] * (own[:, None] - torch.arange(num_keys)).abs()


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


def _square(normal: Normal) -> dict[str, Any]:
    return {"slopes": torch.tensor([0.5, 0.25]), "num_queries": 4, "num_keys": 4}


def _few_queries(normal: Normal) -> dict[str, Any]:
    return {"slopes": torch.tensor([0.5, 0.25]), "num_queries": 2, "num_keys": 5}


def _own_is_zero(inputs: Any, value: Tensor) -> str | None:
    own = value.diagonal(inputs["num_keys"] - inputs["num_queries"], -2, -1)
    return laws.is_not(own, torch.zeros_like(own), "for [head, query] {place} yours gives {yours} there")


def _never_positive(inputs: Any, value: Tensor) -> str | None:
    return laws.is_not(value, value.clamp(max=0), "yours has {yours} at {place}")


def _same_both_sides(inputs: Any, value: Tensor) -> str | None:
    words = "in yours a key one step after has {yours} at {place}, and one step before {expected}"
    return laws.is_not(value[:, :-1].diagonal(1, -2, -1), value[:, 1:].diagonal(0, -2, -1), words)


def _twice_as_far(inputs: Any, value: Tensor) -> str | None:
    last = value[:, -1]
    words = "in yours the key two steps before the last query has {yours} in head {place}, not {expected}"
    return laws.is_not(last[:, -3], 2 * last[:, -2], words)


def _one_step(inputs: Any, value: Tensor) -> str | None:
    words = "one step away yours has {yours} in head {place}, not {expected}"
    return laws.is_not(value[:, -1, -2], -inputs["slopes"], words)


def _last_rows(normal: Normal) -> list[dict[str, Any]]:
    return [_square(normal), _square(normal) | {"num_queries": 2}]


def _same_last_rows(inputs: Any, values: list[Tensor]) -> str | None:
    words = "at {place} yours gives {yours} for two queries, and {expected} for the last two of four"
    return laws.is_not(values[1], values[0][:, 2:], words)


alibi_bias = Task(
    "alibi_bias",
    _alibi_bias,
    {"slopes": torch.tensor([1.0, 10.0]), "num_queries": 2, "num_keys": 3},
    _alibi_bias_cases,
    laws=[
        Law("no number is positive", ALIBI, _square, _never_positive),
        Law("a query adds 0 to the score of its own position", ALIBI, _square, _own_is_zero),
        Law("one step away, a head adds minus its slope", ALIBI, _square, _one_step),
        Law("twice as far is twice the penalty", ALIBI, _square, _twice_as_far),
        Law(
            "a key one step after a query gets the same as one a step before",
            ALIBI,
            _square,
            _same_both_sides,
        ),
        Law(
            "two queries of four keys get the same as the last two of four queries",
            LAST_QUERIES,
            _last_rows,
            _same_last_rows,
        ),
    ],
)


@alibi_bias.made_of(
    sign=wrongs(
        ALIBI,
        """
        positive: far keys are preferred: the sign is wrong
            The bias is added to the scores, and a larger score means more weight. Which keys should lose?
        """,
    ),
    distance=wrongs(
        ALIBI,
        """
        signed: keys after the query are preferred: a distance has no sign
            Query minus key is negative for a key that comes after the query, and minus that is a reward.
            Both neighbours are at distance 1.
        key minus query: keys before the query are preferred: a distance has no sign
            Key minus query is negative for a key that comes before the query, and minus that is a reward.
            Both neighbours are at distance 1.
        past: keys after the query get no bias
            That they may not be seen is the business of a mask. Here they are at a distance like all
            others.
        future: keys before the query get no bias
            They are at a distance like all others: the distance counts on both sides.
        masked: keys after the query are masked
            Minus infinity forbids them altogether. That is the business of a mask, and not every layer has
            one. Here they are at a distance like all others.
        squared: the distance is squared
            The L in ALiBi is for linear: twice as far, twice the penalty.
        root: the root of the distance is taken
            The L in ALiBi is for linear: twice as far, twice the penalty.
        from one: the query's own position is at distance 1
            From a position to itself is no step at all.
        key: the number of the key takes the place of the distance
            Distance means from the query to the key, so it is different for each query.
        share: the distance is divided by the number of keys
            A step is a step, however long the sequence is.
        one: all other positions are at the same distance
            A key two steps away is to lose twice as much as a neighbour.
        """,
    ),
    aligned=wrongs(
        LAST_QUERIES,
        """
        start: queries and keys are aligned at the start
            With fewer queries than keys, the queries are the last positions. Where does the last query
            stand, and which key is at distance 0 from it?
        one more: the queries stand one position too late
            The last query stands at the last position, and that of the last key is one less than the number
            of keys.
        one less: the queries stand one position too early
            The last query stands at the last position, that of the last key, and is at distance 0 from it.
        wrong side: the offset is subtracted where it should be added
            With fewer queries than keys, the queries are the last positions: their numbers are larger than
            those of their rows.
        """,
    ),
    form=wrongs(
        ALIBI,
        """
        transposed: keys stand in rows and queries in columns
            As in the scores to which it is added: a row for each query, a column for each key.
        summed: the tables of the heads are added up
            Each head has a table of its own.
        heads last: the heads stand in the last dimension
            As in the scores to which it is added: heads first, then queries, then keys.
        batch: there is a dimension too many in front
            Heads, queries, keys: three dimensions. A batch broadcasts by itself.
        """,
    ),
    slope=wrongs(
        ALIBI,
        """
        over keys: the slopes are spread over keys instead of heads
            `slopes * distance` lines the slopes up with the last dimension, which is that of the keys. Each
            head has one slope for all its queries and keys. Which shape must the slopes have?
        over queries: the slopes are spread over queries instead of heads
            With one new dimension behind them the slopes line up with the queries. Each head has one slope
            for all its queries and keys.
        divided: the distance is divided by the slope
            The steeper the slope, the larger the penalty: multiply.
        unused: the slopes are not used
            Each head has its own, so that some look near and others far.
        formula: the slopes are computed anew; those that are given are not used
            `slopes` may be any positive numbers. Take them as they come.
        first: all heads have the slope of the first
            Each head has its own, so that some look near and others far.
        """,
    ),
)
def any_bias(slopes, num_queries, num_keys, *, sign="", distance="", aligned="", form="", slope=""):
    shift = num_keys - num_queries
    shift = {"start": 0, "one more": shift + 1, "one less": shift - 1, "wrong side": -shift}.get(
        aligned, shift
    )
    key = torch.arange(num_keys)
    offset = torch.arange(num_queries)[:, None] + shift - key  # (num_queries, num_keys)
    far = offset.abs().to(slopes.dtype)
    far = {
        "signed": offset,
        "key minus query": -offset,
        "past": offset.clamp(min=0),
        "future": -offset.clamp(max=0),
        "masked": far.masked_fill(offset < 0, math.inf),
        "squared": far**2,
        "root": far**0.5,
        "from one": far + 1,
        "key": key.expand(num_queries, -1),
        "share": far / num_keys,
        "one": far.clamp(max=1),
    }.get(distance, far)
    steep = slopes[:, None, None]
    if slope == "over keys":
        steep = slopes
    if slope == "over queries":
        steep = slopes[:, None]
    if slope == "divided":
        steep = 1 / steep
    if slope == "unused":
        steep = torch.ones_like(steep)
    if slope == "formula":
        steep = 2.0 ** (-8 * torch.arange(1, len(slopes) + 1).to(slopes.dtype) / len(slopes))[:, None, None]
    if slope == "first":
        steep = steep[:1].expand_as(steep)
    bias = (1 if sign == "positive" else -1) * steep * far
    match form:
        case "transposed":
            return bias.mT
        case "summed":
            return bias.sum(0)
        case "heads last":
            return bias.movedim(0, -1)
        case "batch":
            return bias[None]
    return bias
