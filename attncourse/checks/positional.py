"""Tasks of the unit ``positional``: encodings of positions, and scores that see distances."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse import positional
from attncourse.checks import laws
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, Wrong, in_any_order, normal_source, wrongs
from attncourse.probe.program import trace

BINARY = "positional#binary-encoding"
BITS = "positional#number-of-bits"
COLLIDING = "positional#colliding-positions"
BESIDE = "positional#concatenate-or-add"
LEARNED = "positional#learned-encoding"
PER_ITEM = "positional#added-per-item"
SINUSOIDAL = "positional#sinusoidal-encoding"
OFFSET = "positional#offset-property"
SEES = "positional#five-side-by-side"
ROTARY = "positional#rotary-encoding"
ALIBI = "positional#alibi"
BLIND = "positional#positional-how-far"
DIAGNOSED = "positional#equivariance-gone"
LAST_QUERIES = "masking#rectangular-masks"


# ---------------------------------------------------------------------------------------
# The binary encoding
# ---------------------------------------------------------------------------------------


def _binary_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole
    return [
        Case({"length": 6}),
        Case({"length": 16}, "a power of two"),
        Case({"length": 17}, "one more than a power of two"),
        Case({"length": whole(34, 60)}, "a longer sequence"),
        Case({"length": 2}, "two positions"),
        Case({"length": whole(66, 127)}, "a still longer one"),
        Case({"length": whole(300, 1300)}, "hundreds of positions"),
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


def _columns(*columns: Tensor) -> Tensor:
    return torch.stack(columns, -1).double()


def _encoders(length: int) -> dict[str, Callable[[Tensor], Tensor]]:
    """Encodings of any positions, for a sequence of this length, from 18 to 28."""
    few, enough = 2 ** torch.arange(4), 2 ** torch.arange(6)
    middle, last = (length - 1) / 2, length - 1

    def wave(turns: float) -> Callable[[Tensor], Tensor]:
        return lambda t: t.double() * (2 * math.pi * turns)

    return {
        "bits, one too few": lambda t: (t[:, None] // few % 2).double(),
        "bits": lambda t: (t[:, None] // enough % 2).double(),
        "bits, of which some begin too late": lambda t: torch.cat(
            (t[:, None] // enough[:3] % 2, (t[:, None] - 1).clamp(min=0) // enough[3:] % 2), 1
        ).double(),
        "hands of a clock that meet again": lambda t: _columns(
            wave(1 / 12)(t).sin(), wave(1 / 12)(t).cos(), wave(1 / 4)(t).sin(), wave(1 / 4)(t).cos()
        ),
        "a slow hand": lambda t: _columns((t / 5000.0).sin(), (t / 5000.0).cos()),
        "sines without cosines": lambda t: _columns(wave(1 / 16)(t).sin(), wave(3 / 16)(t).sin()),
        "the distance from the middle": lambda t: _columns((t - middle).abs(), (t - middle) ** 2),
        "numbers up to a largest one": lambda t: _columns(t.clamp(max=last - 1), t * 0),
        "numbers from a smallest one on": lambda t: _columns(t.clamp(min=1), t * 0),
        "the first and the last alike": lambda t: _columns(t % last, t % last // 2),
        "tenths": lambda t: _columns(t // 10 / 10.0, t % 10 / 10.0),
        "steps of five millionths": lambda t: _columns(1 + t / 2e5, t * 0),
        "squares divided by a prime number": lambda t: _columns(t * t % 41, t * t % 37),
        "two in between alike": lambda t: _columns(t - (t == last - 4) * (last - 9), t * 0),
        "bits, in another order": lambda t: ((t[:, None] ^ (t[:, None] // 2)) // enough % 2).double(),
    }


def _pairs_alike(encode: Callable[[Tensor], Tensor], num_positions: int) -> list[tuple[int, int]]:
    codes = encode(torch.arange(num_positions))
    alike = (codes.unsqueeze(1) - codes).abs().amax(-1) < 1e-9  # (positions, positions)
    return [(s, t) for s, t in alike.nonzero().tolist() if s < t]


def _colliding(encode: Callable[[Tensor], Tensor], num_positions: int) -> tuple[int, int] | None:
    pairs = _pairs_alike(encode, num_positions)
    return pairs[0] if pairs else None


def _colliding_cases(seed: int) -> list[Case]:
    whole = Draws(seed, "choices").whole
    cases = []
    for name in in_any_order(_encoders(18), seed):
        length = whole(18, 28)
        program = trace(_encoders(length)[name])
        cases.append(Case({"encode": program, "num_positions": length}, f"the encoding is: {name}"))
    return cases


def _colliding_compare(inputs: dict[str, Any], value: Any) -> str | None:
    pairs = _pairs_alike(inputs["encode"], inputs["num_positions"])
    if value is None:
        return "there are two positions that share a code" if pairs else None
    if isinstance(value, Tensor) and value.dim() == 1 and not value.is_floating_point():
        value = value.tolist()
    if not isinstance(value, tuple | list) or len(value) != 2:
        return "two positions were expected, as a tuple, or None"
    numbers = [one.item() if isinstance(one, Tensor) and one.numel() == 1 else one for one in value]
    if not all(type(one) is int for one in numbers):
        return "two whole numbers were expected, or None"
    s, t = sorted(numbers)
    if not 0 <= s < t < inputs["num_positions"]:
        return f"two different positions from 0 to {inputs['num_positions'] - 1} were expected"
    if (s, t) in pairs:
        return None
    return f"positions {s} and {t} have different codes" + ("" if pairs else ", as all have")


def _encoded(encode: Callable[[Tensor], Tensor], num_positions: int) -> Callable[[Normal], dict[str, Any]]:
    program = trace(encode)
    return lambda normal: {"encode": program, "num_positions": num_positions}


def _two_of_them(inputs: Any, value: Any) -> str | None:
    s, t = value
    inside = s != t and all(0 <= one < inputs["num_positions"] for one in (s, t))
    return None if inside else f"yours gives {s} and {t} for five positions with one and the same code"


def _so_far_apart(step: int) -> Callable[[Any, Any], str | None]:
    def broken(inputs: Any, value: Any) -> str | None:
        s, t = value
        right = s != t and (s - t) % step == 0
        return None if right else f"yours gives {s} and {t}"

    return broken


def _the_last_two(inputs: Any, value: Any) -> str | None:
    return None if sorted(value) == [5, 6] else f"yours gives {value[0]} and {value[1]}"


colliding = Task(
    "colliding",
    _colliding,
    _encoded(lambda t: _columns(t % 3), 4)(torch.randn),
    _colliding_cases,
    laws=[
        Law(
            "the two are different positions of the sequence",
            COLLIDING,
            _encoded(lambda t: _columns(t * 0), 5),
            _two_of_them,
        ),
        Law(
            "where a code holds the remainder of the position when divided by 4, the two differ by 4 or 8",
            COLLIDING,
            _encoded(lambda t: _columns(t % 4), 10),
            _so_far_apart(4),
        ),
        Law(
            "where only the last two of seven positions share a code, it is they",
            COLLIDING,
            _encoded(lambda t: _columns(t.clamp(max=5), t * 0), 7),
            _the_last_two,
        ),
    ],
    compare=_colliding_compare,
    pencil_note="the code is the remainder of the position when it is divided by 3",
)


@colliding.made_of(
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
        "first": Wrong(
            "only the first feature is compared",
            """0 and 2 have the first bit in common, and they can be told apart by the second. Compare all
            features.""",
            COLLIDING,
        ),
        "exact": Wrong(
            "codes that differ by rounding only count as different",
            """A hand that has made a full turn is back where it was, but for the sixteenth digit. `==` looks
            at that digit; `torch.allclose` does not.""",
            COLLIDING,
        ),
        "tolerant": Wrong(
            "codes that are merely close count as the same",
            """The slow waves of an encoding change by very little from position to position, and it is they
            that tell far positions apart. How wide is your tolerance?""",
            COLLIDING,
        ),
    },
    pairs=wrongs(
        COLLIDING,
        """
        neighbours: only neighbours are compared
            Codes repeat where a count starts again, far from where it first began. Compare every position
            with every other.
        with zero: all are compared with position 0 only
            Positions 1 and 17 may share a code as well. Compare every position with every other.
        no last: the last position is left out
            It may share its code with an earlier one. Where do your loops end?
        no first: position 0 is left out
            It may share its code with a later one. Where do your loops begin?
        first half: only the first half of the positions is looked at
            A code may be long enough for the first positions and too short for the last.
        itself: a position is compared with itself, too
            That a position has the same code as itself says nothing. The two must be different.
        """,
    ),
    said=wrongs(
        COLLIDING,
        """
        yes: True and False come back instead of the positions
            Asked for are the two positions, by which anyone can see the fault.
        code: the code that is shared comes back instead of the positions
            Asked for are the numbers of the two positions.
        zeros: where all positions differ, two zeros come back
            0 and 0 are one position. If nothing is found, that is what is to be said: None.
        empty: where all positions differ, an empty list comes back
            An empty list is still a list. If nothing is found, that is what is to be said: None.
        """,
    ),
)
def any_colliding(encode, num_positions, *, compared="", pairs="", said=""):
    codes = encode(torch.arange(num_positions))
    if compared == "sums":
        codes = codes.sum(-1, keepdim=True)
    if compared == "first":
        codes = codes[:, :1]
    apart = (codes[:, None] - codes).abs()
    near = apart <= {"exact": 0.0, "tolerant": 0.01}.get(compared, 1e-9)
    alike = near.any(-1) if compared == "any" else near.all(-1)
    row, column = torch.arange(num_positions)[:, None], torch.arange(num_positions)
    last = num_positions - 1
    looked_at = {
        "neighbours": column == row + 1,
        "with zero": (row == 0) & (column > 0),
        "no last": (row < column) & (column < last),
        "no first": (row > 0) & (row < column),
        "first half": (row < column) & (column < num_positions // 2),
        "itself": row <= column,
    }.get(pairs, row < column)
    found = (alike & looked_at).nonzero().tolist()
    if said == "yes":
        return bool(found)
    if not found:
        return {"zeros": (0, 0), "empty": []}.get(said)
    s, t = found[0]
    return codes[s] if said == "code" else (s, t)


@colliding.mistake(
    "the loop gives its answer at the first two that it compares",
    hint="""That these two differ does not say that all do. Only after all have been compared can it be said
    that there are none: how far is your `return None` indented?""",
    read=COLLIDING,
)
def colliding_at_once(encode, num_positions):
    codes = encode(torch.arange(num_positions))
    for s in range(num_positions):
        for t in range(s + 1, num_positions):
            if torch.allclose(codes[s], codes[t], rtol=0, atol=1e-9):
                return s, t
            return None


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


def _add(x: Tensor, table: Tensor, num_padding: Tensor) -> Tensor:
    position = torch.arange(x.shape[1]) - num_padding[:, None]  # (batch, length)
    return x + table[position.clamp(min=0)] * (position >= 0).unsqueeze(-1)


def _add_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), Draws(seed, "choices").whole

    def case(padding: list[int], length: int, dim: int, note: str, **how: Any) -> Case:
        batch = len(padding)
        inputs = {"x": normal(batch, length, dim, **how), "table": normal(length + 3, dim, **how)}
        return Case(inputs | {"num_padding": torch.tensor(padding)}, note)

    return [
        case([0, 0, 0], 5, 4, "no padding"),
        case([2, 0, 1], 5, 4, "padding of different lengths"),
        case([whole(1, 3), whole(0, 2), whole(1, 3), whole(2, 3)], 6, 3, "every sequence padded"),
        case([whole(1, 3)], 6, 2, "a batch of one"),
        case([1, 3, 0, 2], 4, 4, "as many of everything"),
        case([0, 4], 4, 3, "a sequence that is all padding"),
        case([0, 0], 1, 3, "a single position"),
        case([1, 2], 7, 3, "double precision", dtype=torch.float64),
    ]


def _padded(*padding: int) -> Callable[[Normal], dict[str, Any]]:
    return lambda normal: {
        "x": normal(len(padding), 4, 2),
        "table": normal(6, 2),
        "num_padding": torch.tensor(padding),
    }


def _no_padding_first_rows(inputs: Any, value: Tensor) -> str | None:
    words = "what yours adds is {yours} at {place}, and the table has {expected} there"
    return laws.is_not(value - inputs["x"], inputs["table"][:4].expand_as(value), words)


def _padding_stays(inputs: Any, value: Tensor) -> str | None:
    words = "at [row, feature] {place} of the second sequence yours has {yours}, and x has {expected}"
    return laws.is_not(value[1, :3], inputs["x"][1, :3], words)


def _row_zero_first(inputs: Any, value: Tensor) -> str | None:
    words = "what yours adds to the first row after two of padding is {yours} at {place}, not {expected}"
    return laws.is_not(value[1, 2] - inputs["x"][1, 2], inputs["table"][0], words)


def _one_later(normal: Normal) -> list[dict[str, Any]]:
    drawn = {"x": torch.zeros(1, 4, 2), "table": normal(6, 2)}
    return [drawn | {"num_padding": torch.tensor([number])} for number in (0, 1)]


def _moved_on(inputs: Any, values: list[Tensor]) -> str | None:
    words = "at {place} of the later rows yours has {yours}, and one row earlier it had {expected}"
    return laws.is_not(values[1][0, 1:], values[0][0, :-1], words)


add_positions = Task(
    "add_positions",
    _add,
    {
        "x": torch.tensor([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], [[9.0, 8.0], [7.0, 6.0], [5.0, 4.0]]]),
        "table": torch.tensor([[10.0, 50.0], [20.0, 60.0], [30.0, 70.0], [40.0, 80.0]]),
        "num_padding": torch.tensor([0, 1]),
    },
    _add_cases,
    laws=[
        Law(
            "a table of zeros changes nothing",
            LEARNED,
            lambda normal: _padded(1, 0)(normal) | {"table": torch.zeros(6, 2)},
            lambda inputs, value: laws.is_not(value, inputs["x"]),
        ),
        Law(
            "without padding every sequence gets the first rows of the table, in order",
            PER_ITEM,
            _padded(0, 0),
            _no_padding_first_rows,
        ),
        Law("rows of padding stay as they are", LEARNED, _padded(0, 3), _padding_stays),
        Law(
            "the first row that is no padding gets row 0 of the table",
            LEARNED,
            _padded(0, 2),
            _row_zero_first,
        ),
        Law("one row of padding more moves what is added one row on", LEARNED, _one_later, _moved_on),
    ],
)


@add_positions.made_of(
    rows=wrongs(
        LEARNED,
        """
        padding counted: the padding is counted as positions
            The first word is at position 0, however much padding stands before it. Otherwise the same
            sentence is told other positions in every batch.
        from the end: rows of padding get rows from the end of the table
            Position -1 is no position, but as an index it is the last row: Python and PyTorch say nothing.
            What should rows of padding get?
        row zero: rows of padding get row 0 of the table
            Then padding looks as if it stood where the first word stands. Rows of padding are to stay as
            they are.
        from one: the first row that is no padding gets row 1 of the table
            Row 0 of the table is never used. The first position is number 0.
        first item: all sequences are taken to have as much padding as the first
            Each sequence has its own number in `num_padding`. Line the numbers up with the batch: which
            shape must they have?
        behind: the padding is taken to stand behind the words
            In this batch it stands in front, so that all sequences end together, as a model that goes on
            writing needs it.
        backwards: the rows run backwards
            The first word gets row 0, the one after it row 1.
        later: padding moves the positions up instead of down
            Three rows of padding, and the fourth row of x is position 0: is its number larger or smaller
            than 3?
        per item: each sequence gets a vector of its own, the same at all its positions
            You have numbered the sequences of the batch, not the positions in them. Which dimension holds
            the positions? (positional#added-per-item)
        """,
    ),
    combined=wrongs(
        LEARNED,
        """
        concatenated: the encoding is concatenated instead of added
            That is the other way, and a good one. Here the number of features is to stay as it is.
            (positional#concatenate-or-add)
        zeroed: rows of padding come back as zeros
            Nothing is added to them, and nothing is taken away. Which of the two, x or what is added, is to
            be 0 there?
        alone: the input is missing: only rows of the table come back
            The position is added to what stands there; it does not replace it.
        scaled: the input is multiplied by the root of its number of features first
            The first Transformer did so with its words. Here the input is added as it is.
        """,
    ),
)
def any_added(x, table, num_padding, *, rows="", combined=""):
    length = x.shape[1]
    t = torch.arange(length).expand(len(x), -1)
    padding = num_padding[:, None]
    if rows == "first item":
        padding = padding[:1]
    position = {
        "padding counted": t,
        "from one": t - padding + 1,
        "behind": t,
        "backwards": length - 1 - t,
        "later": t + padding,
        "per item": torch.arange(len(x))[:, None].expand_as(t),
    }.get(rows, t - padding)
    words = t < length - padding if rows == "behind" else t >= padding
    if rows in ("padding counted", "from the end", "row zero"):
        words = torch.ones_like(words)
    if rows != "from the end":
        position = position.clamp(min=0)
    added = table[position] * words.unsqueeze(-1)
    match combined:
        case "concatenated":
            return torch.cat((x, added), dim=-1)
        case "zeroed":
            return (x + added) * words.unsqueeze(-1)
        case "alone":
            return added
        case "scaled":
            return x * math.sqrt(x.shape[-1]) + added
    return x + added


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
    whole = Draws(seed, "choices").whole
    return [
        Case({"length": 6, "dim": 4}),
        Case({"length": 5, "dim": 3}, "an odd number of features"),
        Case({"length": whole(8, 30), "dim": 2 * whole(3, 8)}, "more features"),
        Case({"length": whole(8, 30), "dim": 2 * whole(3, 8) + 1}, "more, and an odd number"),
        Case({"length": 40, "dim": 6}, "a longer sequence"),
        Case({"length": 1, "dim": 4}, "a single position"),
        Case({"length": whole(5, 12), "dim": whole(60, 200)}, "many features"),
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
# What the scores see of the positions
# ---------------------------------------------------------------------------------------

#: Positions from 0 to this are those that the layers are used for.
_FARTHEST = 24


def _score_functions(seed: int, dim: int, num_words: int) -> dict[str, tuple[str, Callable]]:
    """By what they do: what they see, and the scores of words at positions; `dim` is even."""
    normal, whole = normal_source(seed, "layers"), Draws(seed, "place").whole
    W_Q, W_K = normal(2, dim, dim, dtype=torch.float64) / dim**0.5
    marked = whole(num_words + 3, _FARTHEST - 2)
    frequency = torch.tensor([1.0, 0.3, 0.1, 0.03], dtype=torch.float64)[: dim // 2]
    into = normal(dim, dim, dtype=torch.float64)
    constant = normal(num_words, num_words, dtype=torch.float64)

    but_first = (torch.arange(num_words) > 0)[:, None].double()
    table = normal(_FARTHEST + 1, dtype=torch.float64)

    def plain(x: Tensor) -> Tensor:
        return (x @ W_Q) @ (x @ W_K).mT

    def waves(t: Tensor) -> Tensor:
        angle = t[:, None].double() * frequency
        return torch.cat((angle.sin(), angle.cos()), -1)

    def turned(x: Tensor, t: Tensor) -> Tensor:
        angle = t[:, None].double() * frequency
        cos, sin = angle.cos(), angle.sin()
        a, b = x[:, : dim // 2], x[:, dim // 2 :]
        return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)

    def offset(t: Tensor) -> Tensor:
        return (t[:, None] - t).double()

    def one(t: Tensor, place: int) -> Tensor:
        return (t == place).double()

    return {
        "no positions": ("nothing", lambda x, t: plain(x)),
        "no positions, and some places of the matrix preferred": (
            "nothing",
            lambda x, t: plain(x) + constant,
        ),
        "a penalty for distance": ("distance", lambda x, t: plain(x) - offset(t).abs() / 2),
        "a small penalty for distance": ("distance", lambda x, t: plain(x) - offset(t).abs() / 300),
        "a tiny penalty for distance": ("distance", lambda x, t: plain(x) - offset(t).abs() / 30_000),
        "a penalty for far keys only": (
            "distance",
            lambda x, t: plain(x) - (offset(t).abs() - (num_words - 2)).clamp(min=0),
        ),
        "a penalty for distance, but for the first query": (
            "distance",
            lambda x, t: plain(x) - offset(t).abs() * but_first,
        ),
        "scores that shrink with distance": ("distance", lambda x, t: plain(x) * torch.exp(-offset(t).abs())),
        "queries and keys turned": ("offset", lambda x, t: turned(x @ W_Q, t) @ turned(x @ W_K, t).mT),
        "keys on one side preferred": ("offset", lambda x, t: plain(x) + offset(t).sign()),
        "a number for each offset": ("offset", lambda x, t: plain(x) + (offset(t).clamp(-3, 3) * 2.0).sin()),
        "only queries turned": ("position", lambda x, t: turned(x @ W_Q, t) @ (x @ W_K).mT),
        "waves added to the words": (
            "position",
            lambda x, t: plain(x + waves(t) @ into),
        ),
        "a penalty for the distance between pairs": (
            "position",
            lambda x, t: plain(x) - offset(t // 2).abs(),
        ),
        "a penalty for the distance on a clock": ("position", lambda x, t: plain(x) - offset(t % 10).abs()),
        "position 0 preferred": ("position", lambda x, t: plain(x) + one(t, 0)),
        "one later position preferred": ("position", lambda x, t: plain(x) + one(t, marked)),
        "the last position preferred": ("position", lambda x, t: plain(x) + one(t, _FARTHEST)),
        "a number for each position, from a table": (
            "position",
            lambda x, t: plain(x) + table.index_select(0, t),
        ),
    }


def _at(length: int, start: int = 0) -> Tensor:
    return torch.arange(start, start + length)


def _what_scores_see(scores: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> str:
    def same(first: Tensor, second: Tensor) -> bool:
        return bool((scores(x, first) - scores(x, second)).abs().max() < 1e-6)

    here = _at(len(x))
    shifted = all(same(_at(len(x), start), here) for start in range(1, _FARTHEST - len(x) + 2))
    if not shifted:
        return "position"
    if not same(here.flip(0), here):
        return "offset"
    return "nothing" if same(here * 0, here) else "distance"


def _seeing_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), Draws(seed, "choices").whole
    cases = []
    for name in in_any_order(_score_functions(0, 4, 5), seed):
        dim, length = 2 * whole(2, 4), whole(5, 9)
        program = trace(_score_functions(seed, dim, length)[name][1])
        x = normal(length, dim, dtype=torch.float64)
        cases.append(Case({"scores": program, "x": x}, f"the layer has: {name}"))
    return cases


def _seen(function: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Normal], dict[str, Any]]:
    program = trace(function)
    return lambda normal: {"scores": program, "x": normal(5, 4, dtype=torch.float64)}


def _sees(words: str, right: str, function: Callable[[Tensor, Tensor], Tensor]) -> Law:
    return Law(f"{words} see {right!r}", SEES, _seen(function), laws.says(right))


what_scores_see = Task(
    "what_scores_see",
    _what_scores_see,
    {
        "scores": trace(lambda x, t: x @ x.mT - (t[:, None] - t).abs()),
        "x": torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64),
    },
    _seeing_cases,
    laws=[
        _sees("scores that are the same for all positions", "nothing", lambda x, t: x @ x.mT + t[0] * 0),
        _sees(
            "scores from which the distance is subtracted",
            "distance",
            lambda x, t: x @ x.mT - (t[:, None] - t).abs(),
        ),
        _sees(
            "scores to which the number of steps from key to query is added, below 0 if the key comes later,",
            "offset",
            lambda x, t: x @ x.mT + (t[:, None] - t),
        ),
        _sees(
            "scores to which the number of the key's position is added", "position", lambda x, t: x @ x.mT + t
        ),
    ],
    pencil_note="the scores are x @ x.mT less the distance of the two positions",
)


@what_scores_see.made_of(
    shifts=wrongs(
        SEES,
        """
        none: positions are never moved together
            Offsets and distances are what does not change when all words move on by the same number of
            positions. Do you ever move them?
        large: only one large shift is tried
            A layer that takes positions in pairs, or reads a clock, gives the same scores after some
            shifts and not after others. Try every shift that keeps the words between 0 and 24.
        one: only one shift or a few are tried
            A layer may treat a later position in a way of its own, or read a clock that begins anew, and
            a few steps do not bring a word there. The positions go up to 24.
        but one: the last shift is left out, which brings the last word to position 24
            Positions from 0 to 24 are used, and 24 is one of them. Where does your `range` end?
        """,
    ),
    mirror=wrongs(
        SEES,
        """
        never: distance is never told from offset
            A distance has no sign: turn the order of the positions round, and every distance stays what it
            was. What becomes of the offsets?
        always: whatever stays under shifts is taken for distance
            Rotary stays under shifts, too, and knows before from after. Turn the order of the positions
            round: do the scores stay?
        """,
    ),
    nothing=wrongs(
        SEES,
        """
        never: a layer that sees nothing is not told from the others
            What does not depend on positions at all stays under shifts and reversals, too. Put all the
            words at one and the same position: do the scores change?
        under shifts: what stays under shifts is taken for nothing
            Scores that see distances or offsets stay under shifts as well. Which change of the positions
            changes distances?
        """,
    ),
    compared=wrongs(
        SEES,
        """
        exactly: differences by rounding count
            Rotary gives the same scores after a shift but for the last digits. `==` and `torch.equal` look
            at those.
        loosely: small differences do not count
            One layer has a small penalty, some thousandths for a step. Rounding is more than ten digits
            farther back:
            the scores are of float64.
        sums: only the sum of the scores is compared
            What one score gains another may lose. Compare score by score.
        first: only the scores of the first query are compared
            Other queries may see what the first does not. Compare all scores.
        """,
    ),
    moved=wrongs(
        SEES,
        """
        words: the words are moved instead of the positions
            The words stay what they are. It is the second argument of `scores` that is to change.
        """,
    ),
    said=wrongs(
        SEES,
        """
        plural: the words for the answers are not those of the task
            The four answers are "nothing", "distance", "offset" and "position", written like that.
        exchanged: offset and distance are exchanged
            A distance is the same on both sides. An offset has a sign.
        """,
    ),
)
def any_seeing(scores, x, *, shifts="", mirror="", nothing="", compared="", moved="", said=""):
    length = len(x)
    here = torch.arange(length)

    def scores_at(positions):
        if moved == "words":
            return scores(x[positions % length], here)
        return scores(x, positions)

    def same(first, second):
        one, other = scores_at(first), scores_at(second)
        if compared == "sums":
            one, other = one.sum(), other.sum()
        if compared == "first":
            one, other = one[0], other[0]
        tolerance = {"exactly": 0.0, "loosely": 0.05}.get(compared, 1e-6)
        return bool((one - other).abs().max() <= tolerance)

    farthest = 25 - length
    tried = {"none": [], "large": [farthest], "one": [1], "but one": range(1, farthest)}
    tried = tried.get(shifts, range(1, farthest + 1))
    stays = all(same(here + shift, here) for shift in tried)
    turned = same(here.flip(0), here)
    blind = same(here * 0, here)
    if not stays:
        found = "position"
    elif nothing == "under shifts":
        found = "nothing"
    elif mirror == "always" or (turned and mirror != "never"):
        found = "nothing" if blind and nothing != "never" else "distance"
    else:
        found = "nothing" if blind and mirror == "never" and nothing != "never" else "offset"
    if said == "plural":
        return found + "s"
    return {"offset": "distance", "distance": "offset"}.get(found, found) if said == "exchanged" else found


# ---------------------------------------------------------------------------------------
# Rotary
# ---------------------------------------------------------------------------------------


def _rotary_cases(seed: int) -> list[Case]:
    normal, whole = normal_source(seed), Draws(seed, "choices").whole

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
            {"x": normal(3, 6, dtype=torch.float64), "positions": torch.tensor([4, 90_000, 20])},
            "positions in any order, one of them 90,000, in double precision",
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
    hint="""`torch.arange` divided by a whole number is of single precision, and an angle of thousands is
    then rounded in the third or fourth digit behind the point. `arange` takes a `dtype`.""",
    read=ROTARY,
)
def rotary_single_precision(x, positions):
    dim = x.shape[-1]
    angles = positions[:, None] / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return _turned(x, angles)


@rotary.mistake(
    "the frequencies are of single precision where x is of double",
    hint="""A frequency that is rounded in the eighth digit is multiplied by the position: at one of tens of
    thousands the angle is wrong in the third or fourth digit behind the point. `arange` takes a `dtype`.""",
    read=ROTARY,
)
def rotary_single_frequencies(x, positions):
    dim = x.shape[-1]
    frequencies = 1.0 / 10_000 ** (torch.arange(0, dim, 2) / dim)
    return _turned(x, positions[:, None].to(x.dtype) * frequencies)


def _turned(x: Tensor, angles: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


# ---------------------------------------------------------------------------------------
# ALiBi
# ---------------------------------------------------------------------------------------


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


# ---------------------------------------------------------------------------------------
# Before the experiment, and after it
# ---------------------------------------------------------------------------------------


def _blind_error(height: Tensor, partner: Tensor) -> float:
    others = (height.sum(-1, keepdim=True) - height) / (height.shape[-1] - 1)
    guess, target = (height + others) / 2, (height + height[:, partner]) / 2
    return (guess - target).square().mean().item()


def _partners(length: int, kind: str) -> Tensor:
    t = torch.arange(length)
    return {"neighbours": t ^ 1, "halves": (t + length // 2) % length, "mirror": length - 1 - t}[kind]


def _blind_error_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)

    def case(num: int, length: int, kind: str, note: str, **how: Any) -> Case:
        height = 13 + 7 * normal(num, length, **how)
        return Case({"height": height, "partner": _partners(length, kind)}, note)

    # Of heights that are nearly the same, squares of single precision leave an error of their last digits.
    single = case(1, 4, "neighbours", "one sequence")
    single.inputs["height"][:, ::2] += 50
    return [
        case(50, 6, "neighbours", "neighbours are partners"),
        single,
        case(20, 8, "halves", "partners half a sequence apart"),
        case(9, 4, "mirror", "the first with the last"),
        case(30, 10, "mirror", "double precision", dtype=torch.float64),
    ]


def _heights(normal: Normal) -> dict[str, Tensor]:
    return {"height": 5 + 3 * normal(4, 6), "partner": _partners(6, "neighbours")}


blind_error = Task(
    "blind_error",
    _blind_error,
    {
        "height": torch.tensor([[1.0, 3.0, 5.0, 9.0], [2.0, 2.0, 8.0, 8.0]]),
        "partner": torch.tensor([1, 0, 3, 2]),
    },
    _blind_error_cases,
    laws=[
        Law(
            "with heights that are all the same the error is 0",
            BLIND,
            lambda normal: {"height": torch.full((3, 4), 7.0), "partner": _partners(4, "neighbours")},
            lambda inputs, value: None if abs(value) < 1e-6 else f"yours is {value:.4g}",
        ),
        Law(
            "with two positions the error is 0: there is only one other",
            BLIND,
            lambda normal: {"height": 5 + 3 * normal(4, 2), "partner": torch.tensor([1, 0])},
            lambda inputs, value: None if abs(value) < 1e-6 else f"yours is {value:.4g}",
        ),
        laws.stays(
            "making all heights larger by 10 leaves the error as it is",
            BLIND,
            _heights,
            lambda drawn, normal: {"height": drawn["height"] + 10},
            lambda value: round(float(value), 3),
        ),
        Law(
            "twice the heights give four times the error",
            BLIND,
            lambda normal: [(drawn := _heights(normal)), drawn | {"height": 2 * drawn["height"]}],
            lambda inputs, values: (
                None
                if math.isclose(values[1], 4 * values[0], rel_tol=1e-3)
                else f"yours goes from {values[0]:.4g} to {values[1]:.4g}"
            ),
        ),
        laws.stays(
            "reordering the positions, and `partner` with them, leaves the error as it is",
            BLIND,
            lambda normal: {"height": 5 + 3 * normal(4, 6), "partner": torch.tensor([1, 0, 3, 2, 5, 4])},
            # The first of each pair, then the second ones.
            lambda drawn, normal: {
                "height": drawn["height"][:, [0, 2, 4, 1, 3, 5]],
                "partner": torch.tensor([3, 4, 5, 0, 1, 2]),
            },
            lambda value: round(float(value), 3),
        ),
    ],
)


@blind_error.made_of(
    guess=wrongs(
        BLIND,
        """
        own: the guess is the position's own height
            Its own height is half of the target, and certain. The other half is somebody's, and something
            is known of it: what?
        all: the partner is guessed as the mean of all heights, its own included
            Nobody is its own partner. The mean is to be taken over the others: there is one fewer of them.
        mean only: the guess is a mean of heights, and forgets that half of the target is known
            A position knows its own height, and that is half of its target. Only the other half is to be
            guessed.
        over sequences: the partner is guessed as the mean over the sequences of the batch
            What other sequences hold is nothing to this one. The mean is over the other positions of the
            same sequence.
        knows: the guess knows the partner
            Then there is no error. Who is blind to order sees the other heights and not which of them is
            the partner's.
        """,
    ),
    target=wrongs(
        BLIND,
        """
        partner: the target is the partner's height
            The target of both is their mean.
        kind: the target is the mean of all heights
            The target is the mean of two: the position's own height and its partner's.
        neighbours: `partner` is not looked at: two neighbours are always taken for partners
            Who belongs to whom says `partner`: an index into the positions. Is it the same in every
            case?
        shifted: the partner is always the next position
            Who belongs to whom says `partner`: an index into the positions. The next one it is by chance.
        """,
    ),
    error=wrongs(
        BLIND,
        """
        absolute: the mean of the absolute differences is taken
            The loss of the network is the mean *squared* error, and it is that which you predict.
        root: the root of the mean squared error is taken
            The loss of the network is the mean squared error itself.
        per sequence: the squared errors of each sequence are summed, and averaged over the sequences only
            The mean runs over all positions of all sequences.
        summed: the squared errors are summed
            The mean does not depend on how many sequences there are; the sum does.
        first: only the error of the first position is taken
            The network is judged at all its positions.
        """,
    ),
    form=wrongs(
        BLIND,
        """
        each: the error of each sequence comes back
            One number is asked for: the mean over all sequences and all positions.
        """,
    ),
)
def any_blind(height, partner, *, guess="", target="", error="", form=""):
    length = height.shape[1]
    total = height.sum(1, keepdim=True)
    other = (total - height) / (length - 1)
    wanted = {
        "partner": height[:, partner],
        "kind": (total / length).expand_as(height),
        "neighbours": (height + height[:, torch.arange(length) ^ 1]) / 2,
        "shifted": (height + height.roll(-1, 1)) / 2,
    }.get(target, (height + height[:, partner]) / 2)
    guessed = {
        "own": height,
        "all": (height + total / length) / 2,
        "mean only": (total / length).expand_as(height),
        "over sequences": (height + height.mean(0)) / 2,
        "knows": (height + height[:, partner]) / 2,
    }.get(guess, (height + other) / 2)
    wrong = guessed - wanted
    if error == "first":
        wrong = wrong[:, :1]
    wrong = wrong.abs() if error == "absolute" else wrong**2
    if form == "each":
        return wrong.mean(1)
    mean = {"summed": wrong.sum(), "per sequence": wrong.sum(1).mean()}.get(error, wrong.mean())
    return (mean.sqrt() if error == "root" else mean).item()


ANSWERS = ("not told", "items numbered", "positions confused", "not used", "used")


def _explain_run(loss: Tensor, blind: float, alike: Tensor) -> str:
    def same(first: Tensor, second: Tensor) -> Tensor:
        return (first - second).abs() < 1e-6

    if same(alike, alike[:1, :1]).all():
        return "not told"
    if same(alike, alike[:, :1]).all():
        return "items numbered"
    pairs = same(alike[:, :, None], alike[:, None]).any(0)  # (positions, positions)
    if pairs.triu(1).any():
        return "positions confused"
    last = loss[-(len(loss) // 4) :].mean()
    return "used" if last < blind / 2 else "not used"


def _records(seed: int) -> list[tuple[str, dict[str, Any]]]:
    """Records of runs, each with what is special about it."""
    normal, whole = normal_source(seed), Draws(seed, "choices").whole
    blind = float(whole(80, 120)) / 10
    end = torch.linspace(0, 1, 20)

    def falling(to: float) -> Tensor:
        return to + (2.5 * blind - to) * torch.exp(-12 * end) + 0.01 * normal(20)

    low, stuck, halfway = falling(0.1 * blind), falling(blind), falling(0.75 * blind)
    dip, peak, rising = stuck.clone(), low.clone(), low.clone()
    dip[-1], dip[7] = 0.2 * blind, 0.1 * blind
    peak[-1] = 2 * blind
    rising[10:] = 1.2 * blind

    def outputs(batch: int, length: int) -> Tensor:
        """One number for each position, all different, in every sequence."""
        draws = Draws(seed, "outputs")
        number = torch.arange(length) + 0.1 * draws.rand(1, dtype=torch.float64)
        return number[draws.randperm(length)].expand(batch, length).clone()

    def rounded(x: Tensor) -> Tensor:
        return x + 1e-11 * normal(*x.shape, dtype=torch.float64)

    batch, length = whole(3, 5), whole(7, 12)
    told = outputs(batch, length)
    far, near, ends = told.clone(), told.clone(), told.clone()
    far[:, -1] = far[:, 0]
    near[:, 3] = near[:, 2]
    ends[:, 2:-2] = 5.0
    last, first = told.clone(), told.clone()
    last[-1, 4], first[0] = last[-1, 1], 4.0
    items = torch.arange(batch).double()[:, None].expand(batch, length)
    faint = 1e-3 * told
    # What counts is the last quarter, all of it, and nothing before, however many steps there are.
    before, falls, rises = low.clone(), falling(blind).repeat(2), falling(blind).repeat(2)
    before[-6] = 5 * blind
    falls[30:] = blind * torch.tensor([0.8, 0.35]).repeat_interleave(5)
    rises[30:] = blind * torch.tensor([0.3, 0.58]).repeat_interleave(5)
    close = told.clone()
    close[:, 3] = close[:, 1] + 1.4e-6
    records = {
        "told, and the loss low": (low, told),
        "nothing told, and stuck": (stuck, torch.full((batch, length), 4.0).double()),
        "nothing told, and the error low all the same": (low, torch.full((batch, length), 4.0).double()),
        "sequences numbered": (stuck, items),
        "first and last confused": (halfway, far),
        "two neighbours confused, and the error low": (low, near),
        "only the ends told apart": (stuck, ends),
        "told faintly, and the loss high": (stuck, faint),
        "told, and the last number low": (dip, told),
        "told, and the last number high": (peak, told),
        "told, and at last three quarters of the prediction": (halfway, told),
        "told, and unlearned again": (rising, told),
        "as many sequences as positions": (low, outputs(length, length)),
        "two positions confused in the last sequence only": (low, last),
        "all positions confused in the first sequence only": (low, first),
        "told, and all numbers large": (low, 1000 + told / 1000),
        "told, and the loss high just before the last quarter": (before, told),
        "told, and the loss falls below half of the prediction in the last quarter": (falls, told),
        "told, and the loss rises above half of the prediction in the last quarter": (rises, told),
        "two positions differ by a little more than a millionth": (low, close),
    }
    half = {"loss": 4 + 16 * (torch.arange(20) < 10).float(), "blind": 8.0, "alike": rounded(told)}
    return [("told, and the loss ends at just half of the prediction", half)] + [
        (name, {"loss": loss, "blind": blind, "alike": rounded(alike)})
        for name, (loss, alike) in records.items()
    ]


def _explain_cases(seed: int) -> list[Case]:
    records = dict(_records(seed))
    return [Case(records[name], name) for name in in_any_order(records, seed)]


def _record(name: str) -> Callable[[Normal], dict[str, Any]]:
    return lambda normal: dict(_records(0))[name]


def _says(words: str, right: str, name: str) -> Law:
    return Law(f"{words}, {right!r} is said", DIAGNOSED, _record(name), laws.says(right))


explain_run = Task(
    "explain_run",
    _explain_run,
    {
        "loss": torch.tensor([20.0, 12.0, 6.0, 4.0, 3.0, 2.0, 2.0, 1.0]),
        "blind": 10.0,
        "alike": torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]], dtype=torch.float64),
    },
    _explain_cases,
    laws=[
        _says("where all numbers of `alike` are the same", "not told", "nothing told, and stuck"),
        _says("where only the rows of `alike` differ", "items numbered", "sequences numbered"),
        _says(
            "where a sequence has the same number at its first and its last position",
            "positions confused",
            "first and last confused",
        ),
        _says(
            "where all positions differ and the loss stays at `blind`",
            "not used",
            "told faintly, and the loss high",
        ),
        _says(
            "where all positions differ and the loss falls far below `blind`",
            "used",
            "told, and the loss low",
        ),
    ],
)


@explain_run.made_of(
    ending=wrongs(
        DIAGNOSED,
        """
        last: only the last number of the loss is looked at
            A single batch may be easy or hard. The mean of the last quarter says where the run has come.
        least: the smallest loss is looked at
            One easy batch in the middle, or a run that has unlearned everything, would count as a success.
            The mean of the last quarter says where the run has come.
        whole: the mean of the whole loss is looked at
            It holds the beginning, too, where nothing was learned yet. Where does the last quarter begin?
        half: the mean of the last half is looked at
            A run may still be on its way then. Asked for is the last quarter.
        first: the first quarter is looked at instead of the last
            At the beginning no run has learned anything. Where does the last quarter begin?
        """,
    ),
    threshold=wrongs(
        DIAGNOSED,
        """
        blind: any loss below the prediction counts as used
            A loss a little below may be chance, or a network that has found out about the ends only. Asked
            for is less than half.
        with half: a loss of just half the prediction counts as used
            Half or above is not used: the loss must have ended below that.
        absolute: the loss is compared with a fixed number, and not with the prediction
            Which loss is low depends on the problem: that is why `blind` is handed over.
        """,
    ),
    same=wrongs(
        DIAGNOSED,
        """
        exactly: numbers that differ by rounding count as different
            A network rounds, and not always in the same way. Less than a millionth is no difference here.
        loosely: small differences are taken for none
            A faint encoding makes faint differences, and yet it has been told. Only less than a millionth
            is no difference. (positional#encoding-scale)
        relative: large numbers count as the same although they differ by more than a millionth
            `allclose` and `isclose` allow for more the larger the numbers are: that is what their `rtol` is
            for. Here a millionth is meant, whatever the numbers.
        """,
    ),
    confused=wrongs(
        COLLIDING,
        """
        neighbours: only neighbouring positions are compared
            Codes repeat where a count starts again: the first and the last position may be the ones.
            Compare every position with every other.
        with first: all positions are compared with the first only
            Any two positions may be confused. Compare every position with every other.
        first sequence: confused positions are looked for in the first sequence only
            Some two positions of *a* sequence: it may be any of them.
        all sequences: two positions that are confused in one of the sequences only are not found
            One sequence is enough, whichever it is, and what the others say does not matter then.
        forgotten: confused positions are never looked for
            A network may be told something and not all: some positions get the same number. And the loss
            may be low all the same.
        """,
    ),
    order=wrongs(
        DIAGNOSED,
        """
        loss first: a low loss is called used before anything else is looked at
            A low loss says that the problem could be solved, and not that positions were told. Some
            problems do not need them. The order of the five answers is the order in which to ask.
        rows and columns: sequences and positions are exchanged
            A row of `alike` is a sequence, and a column is a position. (positional#added-per-item)
        items forgotten: it is never asked whether the sequences are numbered
            If the numbers change from sequence to sequence and not from position to position, something was
            told, but not the position. (positional#added-per-item)
        """,
    ),
)
def any_explained(loss, blind, alike, *, ending="", threshold="", same="", confused="", order=""):
    limit = {"exactly": 1e-15, "loosely": 0.01}.get(same, 1e-6)

    def close(first, second):
        if same == "relative":
            return torch.isclose(first, second)
        return (first - second).abs() < limit

    def all_same(first, second):
        return bool(close(first, second).all())

    quarter = len(loss) // 4
    end = {
        "last": loss[-1],
        "least": loss.min(),
        "whole": loss.mean(),
        "half": loss[-2 * quarter :].mean(),
        "first": loss[:quarter].mean(),
    }.get(ending, loss[-quarter:].mean())
    used = bool(end < {"blind": blind, "absolute": 1.0}.get(threshold, blind / 2))
    if threshold == "with half":
        used = bool(end <= blind / 2)
    if order == "loss first" and used:
        return "used"
    if order == "rows and columns":
        alike = alike.mT
    if all_same(alike, alike[:1, :1]):
        return "not told"
    if all_same(alike, alike[:, :1]) and order != "items forgotten":
        return "items numbered"
    pairs = close(alike[:, :, None], alike[:, None]).triu(1)  # (batch, positions, positions)
    pairs = {"first sequence": pairs[0], "all sequences": pairs.all(0)}.get(confused, pairs.any(0))
    if confused == "neighbours":
        pairs = pairs.diagonal(1)
    if confused == "with first":
        pairs = pairs[0]
    if confused != "forgotten" and pairs.any():
        return "positions confused"
    return "used" if used else "not used"
