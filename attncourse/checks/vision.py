"""Tasks of the unit ``vision``: patches and back, positions on a grid, rollout, and what shuffling does."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from attncourse import vision
from attncourse.checks import laws
from attncourse.checks.draws import Draws
from attncourse.checks.task import Case, Law, Normal, Task, in_any_order, normal_source, wrongs
from attncourse.checks.verdict import shown
from attncourse.probe.program import trace

PATCHES = "vision#patches"
BACK = "vision#patches-and-back"
SHAPES = "vision#shapes-that-tell"
GRID = "vision#grid-positions"
TOKENS = "vision#vision-tokens"
ROLLOUT = "vision#rollout"
SHUFFLED = "vision#shuffled-patches"
BAG = "vision#bag-of-patches"

# ---------------------------------------------------------------------------------------
# Patches
# ---------------------------------------------------------------------------------------


def _pictures(*shape: int, patch_size: int = 2, dtype: torch.dtype = torch.float32) -> laws.Draw:
    return lambda normal: {"images": normal(*shape, dtype=dtype), "patch_size": patch_size}


def _numbered_pictures(*shape: int, patch_size: int = 2) -> laws.Draw:
    """A picture whose pixels are counted, so that a student can see which one came where."""
    images = torch.arange(float(math.prod(shape))).view(shape)
    return lambda normal: {"images": images, "patch_size": patch_size}


def _patchify_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_pictures(1, 6, 4)(normal), "a picture that is taller than wide"),
        Case(_pictures(3, 4, 6)(normal), "three channels"),
        Case(_pictures(1, 6, 9, patch_size=3)(normal), "patches of 3 x 3"),
        Case(_pictures(4, 1, 8, 8)(normal), "a batch"),
        Case(_pictures(2, 2, 2, 4, 8, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_pictures(2, 3, 5, patch_size=1)(normal), "patches of one pixel"),
        Case(_pictures(2, 3, 3, patch_size=3)(normal), "one patch that is the whole picture"),
        Case(_pictures(2, 2, 4, 6)(normal), "pictures that are not contiguous in memory", contiguous=False),
    ]


def _first_patch_is_the_corner(inputs: dict[str, Any], value: Tensor) -> str | None:
    corner = inputs["images"][0, :2, :2].flatten()
    words = (
        "where pixels are numbered from 0 in the order of reading, number {place} of it is {yours} in yours, "
        "not {expected}"
    )
    return laws.is_not(value[0], corner, words)


def _next_patch_is_to_the_right(inputs: dict[str, Any], value: Tensor) -> str | None:
    expected = inputs["images"][0, 0, 2]
    words = (
        "where pixels are numbered from 0 in the order of reading, its first pixel is {yours} in yours, "
        "not {expected}"
    )
    return laws.is_not(value[1, 0], expected, words)


def _whole_picture(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = (
        "where pixels are numbered from 0, channel after channel, number {place} of it is {yours} in yours, "
        "not {expected}"
    )
    return laws.is_not(value[0], inputs["images"].flatten(), words)


def _order_of_reading(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = (
        "where pixels are numbered from 0 in that order, patch {place} is {yours} in yours, not {expected}"
    )
    return laws.is_not(value[:, 0], inputs["images"].flatten(), words)


def _every_pixel_once(inputs: dict[str, Any], value: Tensor) -> str | None:
    found = laws.unlike(value.flatten().sort().values, inputs["images"].flatten().sort().values)
    return None if found is None else "in yours some pixels are missing, and others are there twice"


patchify = Task(
    "patchify",
    vision.patchify,
    {"images": torch.arange(24.0).view(1, 4, 6), "patch_size": 2},
    _patchify_cases,
    laws=[
        Law("every pixel comes exactly once", PATCHES, _pictures(1, 4, 6), _every_pixel_once),
        Law(
            "the first patch is the upper left corner, row by row",
            PATCHES,
            _numbered_pictures(1, 4, 6),
            _first_patch_is_the_corner,
        ),
        Law(
            "the second patch stands to the right of the first",
            PATCHES,
            _numbered_pictures(1, 4, 6),
            _next_patch_is_to_the_right,
        ),
        Law(
            "patches of one pixel are the pixels in the order of reading",
            PATCHES,
            _numbered_pictures(1, 2, 3, patch_size=1),
            _order_of_reading,
        ),
        Law(
            "a patch that is the whole picture has its first channel row by row, then the next",
            PATCHES,
            _numbered_pictures(3, 2, 2),
            _whole_picture,
        ),
        laws.sequences_are_treated_alone(_pictures(3, 1, 4, 6), PATCHES, ("images",)),
    ],
)


@patchify.made_of(
    cut=wrongs(
        PATCHES,
        """
        reshaped: the numbers are cut up in the order of reading: strips, not squares
            A reshape keeps the order in which numbers are read. The second row of a patch does not follow
            its first row there: the rest of the picture's row comes between them.
        exchanged: the numbers of patches along the height and along the width are exchanged
            How many patches fit into the height, and how many into the width? In the first reshape the last
            two sizes are those of a row of pixels: together they are the width.
        number: patch_size is taken for the number of patches along a side
            It is the side of a patch in pixels. How many patches there are, follows from it.
        overlapping: the patches overlap
            The next patch begins where this one ends. How far apart do they begin in yours?
        """,
    ),
    order=wrongs(
        PATCHES,
        """
        columns: the patches come column by column
            The second patch stands to the right of the first, like words on a line.
        channels: every channel is cut into patches of its own
            A patch holds its pixels in all channels. The channels belong to the features.
        """,
    ),
    pixels=wrongs(
        PATCHES,
        """
        columns: the pixels of a patch come column by column
            Within a patch, too, the order is that of reading: its upper row first.
        channels last: the channels of a pixel stand side by side
            Asked for are all pixels of the first channel, and then those of the next.
        """,
    ),
    form=wrongs(
        PATCHES,
        """
        grid: the patches are left in rows and columns
            For attention they are one sequence: a single dimension, of rows * columns.
        squares: the pixels of a patch are left in a square
            A token is a vector: channels, rows and columns of a patch in one dimension.
        transposed: patches stand in columns, and their pixels in rows
            Asked for is a row for each patch, with its pixels as features.
        batch: the pictures of a batch are strung together to one sequence
            Patches of different pictures must not attend to each other. What stands in front of the
            channels stays in front.
        """,
    ),
)
def any_patchify(images, patch_size, *, cut="", order="", pixels="", form=""):
    P = patch_size
    *batch, channels, height, width = images.shape
    if cut == "overlapping":
        squares = images.unfold(-2, P, 1).unfold(-2, P, 1).movedim(-5, -3)
    elif cut == "reshaped":
        squares = images.reshape(*batch, height // P, width // P, channels, P, P)
    else:
        sizes = (height // P, P, width // P, P)
        if cut == "exchanged":
            sizes = (width // P, P, height // P, P)
        if cut == "number":
            sizes = (P, height // P, P, width // P)
        squares = images.reshape(*batch, channels, *sizes).movedim((-4, -2), (-5, -4))
    if order == "columns":
        squares = squares.transpose(-5, -4)
    if order == "channels":
        squares = squares.movedim(-3, -5)
    if pixels == "columns":
        squares = squares.mT
    if pixels == "channels last":
        squares = squares.movedim(-3, -1)
    if form == "squares":
        return squares.flatten(-5, -4)
    patches = squares.flatten(-3)
    if order == "channels":
        patches = squares.flatten(-2).flatten(-4, -3)
    if form == "grid":
        return patches
    patches = patches.flatten(-3, -2)
    if form == "batch":
        return patches.reshape(-1, patches.shape[-1])
    return patches.mT if form == "transposed" else patches


# ---------------------------------------------------------------------------------------
# And back
# ---------------------------------------------------------------------------------------


def _patches(
    *shape: int, patch_size: int, height: int, width: int, dtype: torch.dtype = torch.float32
) -> Any:
    return lambda normal: {
        "patches": normal(*shape, dtype=dtype),
        "patch_size": patch_size,
        "height": height,
        "width": width,
    }


def _numbered_patches(*shape: int, patch_size: int, height: int, width: int) -> Any:
    """Patches whose numbers are counted, so that a student can see which one came where."""
    patches = torch.arange(float(math.prod(shape))).view(shape)
    return lambda normal: {"patches": patches, "patch_size": patch_size, "height": height, "width": width}


def _unpatchify_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_patches(6, 4, patch_size=2, height=6, width=4)(normal), "a picture that is taller than wide"),
        Case(_patches(6, 12, patch_size=2, height=4, width=6)(normal), "three channels"),
        Case(_patches(16, 4, patch_size=2, height=4, width=16)(normal), "as many patches as in a square"),
        Case(_patches(6, 18, patch_size=3, height=6, width=9)(normal), "patches of 3 x 3, two channels"),
        Case(_patches(3, 16, 4, patch_size=2, height=8, width=8)(normal), "a batch"),
        Case(
            _patches(2, 2, 8, 8, patch_size=2, height=4, width=8, dtype=torch.float64)(normal),
            "a batch of batches, in float64",
        ),
        Case(_patches(15, 2, patch_size=1, height=3, width=5)(normal), "patches of one pixel"),
        Case(_patches(1, 18, patch_size=3, height=3, width=3)(normal), "a single patch"),
        Case(
            _patches(2, 6, 8, patch_size=2, height=4, width=6)(normal),
            "patches that are not contiguous in memory",
            contiguous=False,
        ),
    ]


def _corner_is_the_first_patch(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = (
        "where the first patch has the numbers 0 to 3, the second 4 to 7, and so on, "
        "yours has {yours} at {place} of the corner, not {expected}"
    )
    return laws.is_not(value[0, :2, :2], inputs["patches"][0].view(2, 2), words)


def _as_they_are_read(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = "where patch n is the number n, yours has {yours} at {place}, not {expected}"
    return laws.is_not(value, inputs["patches"].view(1, 2, 3), words)


def _single_patch(inputs: dict[str, Any], value: Tensor) -> str | None:
    words = "where the patch has the numbers 0 to 11, yours has {yours} at {place}, not {expected}"
    return laws.is_not(value, inputs["patches"].view(3, 2, 2), words)


def _cut_picture(normal: Normal) -> dict[str, Any]:
    picture = 10 * torch.arange(1.0, 5.0)[:, None] + torch.arange(1.0, 7.0)  # 11 12 13 ..., 21 22 23 ...
    return {"patches": vision.patchify(picture[None], 2), "patch_size": 2, "height": 4, "width": 6}


def _picture_again(inputs: dict[str, Any], value: Tensor) -> str | None:
    picture = 10 * torch.arange(1.0, 5.0)[:, None] + torch.arange(1.0, 7.0)
    return laws.is_not(value[0], picture, "at {place} yours has {yours}, not {expected}")


_TWO_BY_THREE = _numbered_patches(6, 4, patch_size=2, height=4, width=6)

unpatchify = Task(
    "unpatchify",
    vision.unpatchify,
    {"patches": torch.arange(24.0).view(6, 4), "patch_size": 2, "height": 4, "width": 6},
    _unpatchify_cases,
    laws=[
        Law(
            "the upper left corner is the first patch, row by row",
            BACK,
            _TWO_BY_THREE,
            _corner_is_the_first_patch,
        ),
        Law(
            "patches of one pixel are the picture in the order of reading",
            BACK,
            _numbered_patches(6, 1, patch_size=1, height=2, width=3),
            _as_they_are_read,
        ),
        Law(
            "a single patch is the picture: its first channel row by row, then the next",
            BACK,
            _numbered_patches(1, 12, patch_size=2, height=2, width=2),
            _single_patch,
        ),
        Law(
            "a picture that was cut comes back: in row r and column c of it stands 10 r + c, counted from 1",
            BACK,
            _cut_picture,
            _picture_again,
        ),
        laws.sequences_are_treated_alone(
            _patches(3, 6, 4, patch_size=2, height=4, width=6), BACK, ("patches",)
        ),
    ],
)


@unpatchify.made_of(
    read=wrongs(
        BACK,
        """
        columns: the patches are laid out column by column
            The second patch belongs to the right of the first, like words on a line.
        exchanged: the numbers of patches in a row and in a column are exchanged
            In a row stand width / patch_size patches, and there are height / patch_size such rows.
        """,
    ),
    pixels=wrongs(
        BACK,
        """
        columns: the pixels of a patch are laid out column by column
            Within a patch, too, the order is that of reading: its upper row first.
        channels last: the numbers of a patch are read as pixels with their channels side by side
            First come all pixels of the first channel, then those of the next.
        one channel: the number of channels is taken to be one
            How many features has a patch, and how many of them belong to one channel?
        """,
    ),
    joined=wrongs(
        BACK,
        """
        reshaped: the numbers are only given another shape
            Before the last reshape, whatever is to be neighbours in the picture must be neighbours in the
            tensor: a row of pixels runs through several patches.
        rows: the rows of pixels are in the wrong order: the first rows of all patches come first
            A row of the picture is named by the row of its patch, and within that by the row of the pixel.
            Which of the two dimensions has to stand first?
        columns: the columns of pixels are in the wrong order: the first columns of all patches come first
            A column of the picture is named by the column of its patch, and within that by the column of
            the pixel. Which of the two dimensions has to stand first?
        """,
    ),
    form=wrongs(
        BACK,
        """
        no channels: a single channel has lost its dimension
            A grey picture has one channel. The dimension of the channels stays, with size 1.
        channels at the end: the channels stand behind the columns
            Asked for is the order channels, height, width.
        exchanged: height and width are exchanged
            The last dimension runs along a row of pixels, so it is as long as the picture is wide.
        """,
    ),
)
def any_unpatchify(patches, patch_size, height, width, *, read="", pixels="", joined="", form=""):
    P = patch_size
    batch = patches.shape[:-2]
    rows, columns = height // P, width // P
    channels = 1 if pixels == "one channel" else patches.shape[-1] // P**2
    if read == "columns":
        cut = patches.unflatten(-2, (columns, rows)).transpose(-3, -2)
    elif read == "exchanged":
        cut = patches.unflatten(-2, (columns, rows))
    else:
        cut = patches.unflatten(-2, (rows, columns))
    if pixels == "channels last":
        cut = cut.unflatten(-1, (P, P, channels)).movedim(-1, -3)
    elif pixels == "one channel":
        cut = cut[..., : P * P].unflatten(-1, (1, P, P))
    else:
        cut = cut.unflatten(-1, (channels, P, P))
    if pixels == "columns":
        cut = cut.mT
    # (..., rows, columns, channels, P, P) -> (..., channels, rows, P, columns, P)
    if joined != "reshaped":
        cut = cut.movedim((-5, -4), (-4, -2))
    if joined == "rows":
        cut = cut.transpose(-4, -3)
    if joined == "columns":
        cut = cut.mT
    picture = cut.reshape(*batch, channels, height, width)
    if form == "no channels" and channels == 1:
        return picture.squeeze(-3)
    if form == "channels at the end":
        return picture.movedim(-3, -1)
    return picture.mT if form == "exchanged" else picture


# ---------------------------------------------------------------------------------------
# Find the slip: pictures that show it
# ---------------------------------------------------------------------------------------

_LONGEST, _MOST_CHANNELS, _LARGEST = 12, 3, 1000.0


def _cutter(
    order: Sequence[int] = (1, 3, 0, 2, 4),
    change: Callable[[Tensor, int], Tensor] = lambda images, P: images,
    size: Callable[[int], int] = lambda P: P,
    spoilt: Callable[[Tensor, Tensor, int], Tensor] = lambda patches, images, P: patches,
) -> Callable[[Tensor, int], Tensor]:
    """A function that cuts a picture into patches; what is given in another way than by default is wrong."""

    def cut(images: Tensor, patch_size: int) -> Tensor:
        P = size(patch_size)
        images = change(images, P)
        channels, height, width = images.shape[0], images.shape[1], images.shape[2]
        squares = images.reshape(channels, height // P, P, width // P, P).permute(*order)
        patches = squares.reshape((height // P) * (width // P), channels * P * P)
        return spoilt(patches, images, P)

    return cut


def _rolled(places: Callable[[Tensor, int], Any], dim: int) -> Callable[[Tensor, Tensor, int], Tensor]:
    """Patches, or pixels in them, that are some places off where `places` is not 0."""
    return lambda patches, images, P: patches.roll(places(images, P), dim)


def _picture_slips() -> dict[str, Callable[[Tensor, int], Tensor]]:
    """Functions that cut pictures into patches, each wrong for some pictures."""
    return {
        "the patches come column by column": _cutter((3, 1, 0, 2, 4)),
        "the pixels of a patch come column by column": _cutter((1, 3, 0, 4, 2)),
        "the channels of a pixel stand side by side": _cutter((1, 3, 2, 4, 0)),
        "strips instead of squares": _cutter((0, 1, 2, 3, 4)),
        "right for patches of 2 x 2 only": _cutter(spoilt=_rolled(lambda images, P: (P - 2) * (P - 2), 1)),
        "wrong for patches of 2 x 2 only": _cutter(
            spoilt=_rolled(lambda images, P: 1 // (1 + (P - 2) * (P - 2)), 0)
        ),
        "wrong for pictures with one channel": _cutter(
            spoilt=_rolled(lambda images, P: 1 // images.shape[0], 0)
        ),
        "wrong for pictures that are taller than wide": _cutter(
            spoilt=_rolled(lambda images, P: (images.shape[1] - 1) // images.shape[2], 0)
        ),
        "wrong for pictures that are wider than tall": _cutter(
            spoilt=_rolled(lambda images, P: (images.shape[2] - 1) // images.shape[1], 0)
        ),
        "pixels below 0 are lost": _cutter(change=lambda images, P: images.clamp(min=0.0)),
        "pixels are rounded": _cutter(change=lambda images, P: images.round()),
        "the last patch is the one before it": _cutter(
            spoilt=lambda patches, images, P: torch.cat([patches[:-1], patches[-2:-1]])
        ),
    }


def _unequal(cut: Callable, images: Tensor, patch_size: int) -> bool:
    """Whether a function cuts this picture in another way than into its patches."""
    right = vision.patchify(images, patch_size)
    try:
        found = cut(images.clone(), patch_size)
    except (RuntimeError, IndexError):
        return True
    return found.shape != right.shape or not bool(((found - right).abs() < 0.01).all())


def _tried() -> list[tuple[Tensor, int]]:
    """Pictures, and how to cut them: of several shapes, all but one with fractions and both signs."""
    normal = normal_source(0)
    shapes = [(1, 4, 6, 2), (1, 6, 4, 2), (2, 4, 6, 2), (1, 6, 9, 3), (2, 9, 6, 3), (3, 2, 4, 1)]
    # That one is for the pencil case: a student is to read it as a right answer.
    small = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    return [(small, 1), *((10 * normal(channels, height, width), P) for channels, height, width, P in shapes)]


def _showing_picture(cut: Callable[[Tensor, int], Tensor]) -> tuple[Tensor, int]:
    for images, patch_size in _tried():
        if _unequal(cut, images, patch_size):
            return images, patch_size
    raise ValueError("cut is right for all that is tried: expected one that is not")


def _showing_cases(seed: int) -> list[Case]:
    slips = _picture_slips()
    # The functions are the same for every seed, but none can be told from its place.
    normal = normal_source(seed)
    return [
        Case({"cut": trace(slips[name]), "seen": normal(1, 4, 4)}, f"the slip is: {name}")
        for name in in_any_order(slips, seed)
    ]


def _showing_compare(inputs: dict[str, Any], value: Any) -> str | None:
    if not isinstance(value, tuple | list) or len(value) != 2:
        return "a picture and a patch size were expected, as a tuple"
    images, patch_size = value
    if not isinstance(images, Tensor) or not images.dtype.is_floating_point or images.dim() != 3:
        return "the picture is to be a tensor of floating-point numbers, of shape (channels, height, width)"
    if isinstance(patch_size, bool) or not isinstance(patch_size, int):
        return "the patch size is to be a whole number"
    channels, height, width = images.shape
    if not 1 <= channels <= _MOST_CHANNELS or not (1 <= height <= _LONGEST and 1 <= width <= _LONGEST):
        return (
            f"the picture has the shape {tuple(images.shape)}, and allowed are 1 to 3 channels, and "
            "1 to 12 rows and columns"
        )
    if patch_size < 1 or height % patch_size or width % patch_size:
        return f"patches of side {patch_size} do not fill a picture of {height} x {width} pixels"
    if not bool((images.abs() <= _LARGEST).all()):
        return "a pixel may be any number from -1000 to 1000, and nothing else"
    if _unequal(inputs["cut"], images.double(), patch_size):
        return None
    return "`cut` cuts this picture as it should"


def _picture_slip(name: str) -> Callable[[Normal], dict[str, Any]]:
    program = trace(_picture_slips()[name])
    return lambda normal: {"cut": program, "seen": torch.arange(16.0).view(1, 4, 4)}


def _picture_law(sentence: str, name: str, broken: Callable[[Tensor, int], str | None]) -> Law:
    return Law(sentence, SHAPES, _picture_slip(name), lambda inputs, value: broken(*value))


def _has_no_negative(images: Tensor, patch_size: int) -> str | None:
    least = float(images.min())
    return None if least < 0 else f"the smallest number of yours is {shown(least)}"


def _is_whole(images: Tensor, patch_size: int) -> str | None:
    return None if bool((images != images.round()).any()) else "yours has whole numbers only"


showing_picture = Task(
    "showing_picture",
    lambda cut, seen: _showing_picture(cut),
    _picture_slip("the patches come column by column")(normal_source(0)),
    _showing_cases,
    builds_on=("patchify",),
    laws=[
        _picture_law(
            "a function that loses pixels below 0 is shown by a picture that has some",
            "pixels below 0 are lost",
            _has_no_negative,
        ),
        _picture_law(
            "a function that rounds is shown by numbers that are not whole", "pixels are rounded", _is_whole
        ),
    ],
    compare=_showing_compare,
    pencil_note="`cut` takes the patches column by column",
)


@showing_picture.made_of(
    tried=wrongs(
        SHAPES,
        """
        one: the same picture comes back for every function, whatever it does with it
            No picture shows every slip. Try several, and call `cut` with each.
        square: only square pictures are tried
            What mixes up height and width is right as long as they are the same.
        wide: no picture that is taller than wide is tried
            One of the functions is wrong only there. Try pictures of both kinds.
        tall: no picture that is wider than tall is tried
            One of the functions is wrong only there. Try pictures of both kinds.
        grey: only pictures with one channel are tried
            How channels are ordered shows only if there are several.
        coloured: no picture with a single channel is tried
            One of the functions is wrong for grey pictures, and only there.
        one size: only patches of side 2 are tried
            One of the functions is right only for these. Try 3, too.
        whole: only whole numbers are tried
            One of the functions rounds.
        positive: no numbers below 0 are tried
            One of the functions puts 0 in their place.
        """,
    ),
    compared=wrongs(
        SHAPES,
        """
        sums: only the sums of the patches are compared
            Pixels in another order have the same sum. Compare number by number.
        bag: patches are compared as a set, without their order
            The same patches in another order are another answer. Compare row by row.
        agreeing: a picture comes back that is cut as it should be
            Asked for is a picture that shows the slip. Which way round is your comparison?
        """,
    ),
    form=wrongs(
        SHAPES,
        """
        picture: the picture comes back without the patch size
            Whoever is to see the slip needs both: return a tuple.
        flat: the picture has no dimension for its channels
            A grey picture has the shape (1, height, width).
        patches: the wrong patches come back instead of the picture
            Asked for is what the function is to be called with, so that anyone can see the slip.
        """,
    ),
)
def any_showing_picture(cut, seen, *, tried="", compared="", form=""):
    generator = torch.Generator().manual_seed(0)
    shapes = [
        (1, 4, 6, 2),
        (1, 6, 4, 2),
        (2, 4, 6, 2),
        (2, 6, 4, 2),
        (1, 6, 9, 3),
        (2, 9, 6, 3),
        (3, 2, 4, 1),
    ]
    shapes += [(1, 4, 4, 2), (2, 6, 6, 3)]
    kept = {
        "square": lambda c, h, w, P: h == w,
        "wide": lambda c, h, w, P: h <= w,
        "tall": lambda c, h, w, P: h >= w,
        "grey": lambda c, h, w, P: c == 1,
        "coloured": lambda c, h, w, P: c > 1,
        "one size": lambda c, h, w, P: P == 2,
    }.get(tried, lambda c, h, w, P: True)
    found = None
    for channels, height, width, P in shapes:
        if not kept(channels, height, width, P):
            continue
        images = 10 * torch.randn(channels, height, width, generator=generator)
        if tried == "whole":
            images = images.round()
        if tried == "positive":
            images = images.abs()
        if found is None:
            found = images, P
        if tried == "one":
            break
        rows, columns = height // P, width // P
        squares = images.reshape(channels, rows, P, columns, P).permute(1, 3, 0, 2, 4)
        right = squares.reshape(rows * columns, channels * P * P)
        patches = cut(images, P)
        same = torch.allclose(patches, right)
        if compared == "sums":
            same = torch.allclose(patches.sum(1), right.sum(1), atol=1e-3)
        if compared == "bag":
            same = torch.allclose(patches[patches[:, 0].argsort()], right[right[:, 0].argsort()])
        if compared == "agreeing":
            same = not same
        if not same:
            found = images, P
            break
    if form == "picture":
        return found[0]
    if form == "flat":
        return found[0][0], found[1]
    return cut(*found) if form == "patches" else found


# ---------------------------------------------------------------------------------------
# Positions on a grid
# ---------------------------------------------------------------------------------------


def _encodings(
    rows: int, columns: int, row_dim: int = 2, column_dim: int = 2, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    return lambda normal: {
        "row_encoding": normal(rows, row_dim, dtype=dtype),
        "column_encoding": normal(columns, column_dim, dtype=dtype),
    }


def _grid_encoding_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_encodings(4, 4)(normal), "a square grid"),
        Case(_encodings(5, 2)(normal), "more rows than columns"),
        Case(_encodings(2, 5, 3, 4)(normal), "more columns than rows, and encodings of different length"),
        Case(_encodings(3, 1)(normal), "a single column"),
        Case(_encodings(1, 1, 1, 2, torch.float64)(normal), "a single patch, in float64"),
        Case(_encodings(3, 4, 2, 1)(normal), "encodings that are not contiguous", contiguous=False),
    ]


def _row_of(place: int, row: int) -> Callable[[Any, Tensor], str | None]:
    def broken(inputs: dict[str, Tensor], value: Tensor) -> str | None:
        dim = inputs["row_encoding"].shape[1]
        words = "number {place} of its encoding is {yours} in yours, not {expected}"
        return laws.is_not(value[place, :dim], inputs["row_encoding"][row], words)

    return broken


def _same_column_below(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "in yours number {place} is {expected} for the first and {yours} for the second"
    return laws.is_not(value[4, 2:], value[0, 2:], words)


def _single_patch_is_both(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    both = torch.cat([inputs["row_encoding"][0], inputs["column_encoding"][0]])
    return laws.is_not(value[0], both, "number {place} of it is {yours} in yours, not {expected}")


grid_encoding = Task(
    "grid_encoding",
    vision.grid_encoding,
    {
        "row_encoding": torch.tensor([[1.0, 0.0], [2.0, 0.0]]),
        "column_encoding": torch.tensor([[0.0, 10.0], [0.0, 20.0], [0.0, 30.0]]),
    },
    _grid_encoding_cases,
    laws=[
        Law(
            "a single patch has the encoding of its row, and beside it that of its column",
            GRID,
            _encodings(1, 1),
            _single_patch_is_both,
        ),
        Law(
            "the second patch of a grid with several columns stands in the first row",
            GRID,
            _encodings(3, 4),
            _row_of(1, 0),
        ),
        Law(
            "in a grid with 4 columns patch 4 stands in the second row", GRID, _encodings(3, 4), _row_of(4, 1)
        ),
        Law(
            "in a grid with 4 columns patches 0 and 4 have the same encoding of the column",
            GRID,
            _encodings(3, 4),
            _same_column_below,
        ),
    ],
)


@grid_encoding.made_of(
    order=wrongs(
        GRID,
        """
        columns: the positions come column by column
            The order is that of the patches: the second stands to the right of the first, in the same row.
        rows counted: a position is divided by the number of rows instead of that of columns
            A row is full after as many patches as there are columns. That is the number to divide by.
        """,
    ),
    parts=wrongs(
        GRID,
        """
        exchanged: the encoding of the column comes first
            First the row, then the column.
        added: the two encodings are added instead of put side by side
            Then different places may get the same sum. Side by side, each keeps its own features.
        row only: only the row is encoded
            All patches of a row look alike. Where is the column?
        column only: only the column is encoded
            All patches of a column look alike. Where is the row?
        row twice: the row is used for both
            The second half is to tell the columns apart.
        taken turns: the features of row and column take turns
            First all features of the row's encoding, then all of the column's.
        """,
    ),
    form=wrongs(
        GRID,
        """
        grid: the result is a grid of encodings, not a list
            The patches are one sequence. So are their encodings: a row for each patch.
        diagonal: row and column are counted up together, and only the diagonal is encoded
            Every row meets every column: rows * columns pairs.
        """,
    ),
)
def any_grid(row_encoding, column_encoding, *, order="", parts="", form=""):
    rows, columns = len(row_encoding), len(column_encoding)
    place = torch.arange(rows * columns)
    row, column = place // columns, place % columns
    if order == "columns":
        row, column = place % rows, place // rows
    if order == "rows counted":
        row, column = place // rows, place % rows
    if form == "diagonal":
        row = column = torch.arange(min(rows, columns))
    first, second = row_encoding[row], column_encoding[column]
    if parts == "row only":
        found = first
    elif parts == "column only":
        found = second
    elif parts == "added":
        found = first + second
    elif parts == "exchanged":
        found = torch.cat([second, first], 1)
    elif parts == "row twice":
        found = torch.cat([first, first], 1)
    elif parts == "taken turns":
        found = torch.stack([first, second], 2).flatten(1)
    else:
        found = torch.cat([first, second], 1)
    return found.unflatten(0, (rows, columns)) if form == "grid" else found


# ---------------------------------------------------------------------------------------
# Tokens
# ---------------------------------------------------------------------------------------


def _embed_patches(patches: Tensor, W: Tensor, b: Tensor, class_token: Tensor, encoding: Tensor) -> Tensor:
    tokens = patches @ W + b + encoding  # (..., num_patches, model_dim)
    return torch.cat((class_token.expand(*tokens.shape[:-2], 1, -1), tokens), dim=-2)


def _embedding(
    *batch: int, num: int = 3, pixels: int = 4, dim: int = 5, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    return lambda normal: {
        "patches": normal(*batch, num, pixels, dtype=dtype),
        "W": normal(pixels, dim, dtype=dtype),
        "b": normal(dim, dtype=dtype),
        "class_token": normal(dim, dtype=dtype),
        "encoding": normal(num, dim, dtype=dtype),
    }


def _embed_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_embedding()(normal), "one picture"),
        Case(_embedding(4)(normal), "a batch"),
        Case(_embedding(2, 3, dtype=torch.float64)(normal), "a batch of batches, in float64"),
        Case(_embedding(2, num=4, pixels=4, dim=4)(normal), "as many patches as pixels and features"),
        Case(_embedding(1, num=1)(normal), "a single patch, in a batch of one"),
        Case(_embedding(3, num=3, pixels=2, dim=3)(normal), "as many pictures as patches"),
        Case(_embedding(2)(normal), "tensors that are not contiguous in memory", contiguous=False),
    ]


def _class_token_first(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    words = "number {place} of yours is {yours}, not {expected}"
    return laws.is_not(value[0], inputs["class_token"], words)


def _without(*names: str, draw: laws.Draw) -> laws.Draw:
    def drawn(normal: Normal) -> dict[str, Tensor]:
        inputs = draw(normal)
        return inputs | {name: torch.zeros_like(inputs[name]) for name in names}

    return drawn


def _encoding_is_left(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    return laws.is_not(
        value[1:], inputs["encoding"], "at {place} of these tokens yours has {yours}, not {expected}"
    )


def _bias_is_left(inputs: dict[str, Tensor], value: Tensor) -> str | None:
    expected = inputs["b"].expand_as(value[1:])
    return laws.is_not(value[1:], expected, "at {place} of these tokens yours has {yours}, not {expected}")


embed_patches = Task(
    "embed_patches",
    _embed_patches,
    {
        "patches": torch.tensor([[1.0, 0.0], [0.0, 2.0]]),
        "W": torch.tensor([[1.0, 2.0, 0.0], [0.0, 1.0, 3.0]]),
        "b": torch.tensor([0.0, 0.0, 1.0]),
        "class_token": torch.tensor([7.0, 8.0, 9.0]),
        "encoding": torch.tensor([[10.0, 0.0, 0.0], [20.0, 0.0, 0.0]]),
    },
    _embed_cases,
    laws=[
        Law("the first token is the class token, as it is", TOKENS, _embedding(), _class_token_first),
        Law(
            "where W and b are zero, the tokens of the patches are the encoding",
            TOKENS,
            _without("W", "b", draw=_embedding()),
            _encoding_is_left,
        ),
        Law(
            "where pixels and encoding are zero, the token of every patch is b",
            TOKENS,
            _without("patches", "encoding", draw=_embedding()),
            _bias_is_left,
        ),
        laws.sequences_are_treated_alone(_embedding(3), TOKENS, ("patches",)),
    ],
)


@embed_patches.made_of(
    first=wrongs(
        TOKENS,
        """
        end: the class token stands at the end
            It is put in front. Whoever reads position 0 later would read a patch.
        none: the class token is missing
            Asked for is one token more than there are patches.
        added: the class token is added to every patch instead of put in front
            It is a token of its own: it asks what is in the picture, and no patch is changed by it.
        in place: the class token takes the place of the first patch
            The first patch is to be there, too, behind it.
        """,
    ),
    positions=wrongs(
        TOKENS,
        """
        none: the encoding of positions is not added
            Without it the model does not know which patch stands where.
        one off: the encodings are one place off: the class token has that of the first patch
            The first row of the encoding is the first patch's, which is token 1.
        twice: the encoding is added twice
            Once is enough.
        times: the tokens of the patches are multiplied by the encoding
            The encoding is to be added.
        """,
    ),
    bias=wrongs(
        TOKENS,
        """
        none: b is not added
            A token is the patch times W, plus b.
        everywhere: b is added to the class token as well
            The class token is learned as it is, and does not come from pixels.
        """,
    ),
    matrix=wrongs(
        TOKENS,
        """
        transposed: W is transposed
            W has a row for each pixel and a column for each feature. A patch, as a row, stands to the left
            of it in the product.
        class token too: the class token is multiplied by W
            It already has as many features as the model.
        """,
    ),
)
def any_embedding(patches, W, b, class_token, encoding, *, first="", positions="", bias="", matrix=""):
    tokens = patches @ (W.mT if matrix == "transposed" else W)
    if bias != "none":
        tokens = tokens + b
    if matrix == "class token too":
        class_token = class_token @ W
    if bias == "everywhere":
        class_token = class_token + b
    if positions == "twice":
        tokens = tokens + 2 * encoding
    elif positions == "times":
        tokens = tokens * encoding
    elif positions == "":
        tokens = tokens + encoding
    front = class_token.expand(*tokens.shape[:-2], 1, -1)
    if positions == "one off":
        front = front + encoding[:1]
        tokens = tokens + torch.cat([encoding[1:], 0 * encoding[:1]])
    if first == "end":
        return torch.cat([tokens, front], -2)
    if first == "none":
        return tokens
    if first == "added":
        return tokens + class_token
    if first == "in place":
        return torch.cat([front, tokens[..., 1:, :]], -2)
    return torch.cat([front, tokens], -2)


# ---------------------------------------------------------------------------------------
# Rollout
# ---------------------------------------------------------------------------------------


def _rollout_map(weights: Tensor, rows: int, columns: int) -> Tensor:
    return vision.attention_rollout(list(weights))[0, 1:].view(rows, columns)


def _some_weights(
    blocks: int, heads: int, rows: int, columns: int, dtype: torch.dtype = torch.float32
) -> laws.Draw:
    length = 1 + rows * columns

    def drawn(normal: Normal) -> dict[str, Any]:
        scores = 2 * normal(blocks, heads, length, length, dtype=dtype)
        return {"weights": torch.softmax(scores, -1), "rows": rows, "columns": columns}

    return drawn


def _rollout_cases(seed: int) -> list[Case]:
    normal = normal_source(seed)
    return [
        Case(_some_weights(2, 1, 2, 2)(normal), "two blocks with one head"),
        Case(_some_weights(2, 3, 2, 2)(normal), "two blocks with three heads"),
        Case(_some_weights(1, 2, 3, 2)(normal), "one block, and more rows than columns"),
        Case(_some_weights(3, 4, 2, 4, torch.float64)(normal), "three blocks, in float64"),
        Case(_some_weights(2, 2, 1, 4)(normal), "a single row of patches"),
        Case(_some_weights(4, 2, 4, 4)(normal), "four blocks, and a grid of 4 x 4"),
        Case(_some_weights(2, 2, 2, 3)(normal), "weights that are not contiguous", contiguous=False),
    ]


def _planted(*blocks: dict[int, int]) -> laws.Draw:
    """One head; of each block, where a token looks that does not look at itself."""

    def drawn(normal: Normal) -> dict[str, Any]:
        weights = torch.eye(5).repeat(len(blocks), 1, 1, 1)
        for block, looks in zip(weights, blocks, strict=True):
            for query, key in looks.items():
                block[0, query] = torch.eye(5)[key]
        return {"weights": weights, "rows": 2, "columns": 2}

    return drawn


def _map_is(*expected: float) -> Callable[[Any, Tensor], str | None]:
    wanted = torch.tensor(expected, dtype=torch.float32).view(2, 2)
    return lambda inputs, value: laws.is_not(value, wanted, "at {place} yours has {yours}")


def _even(normal: Normal) -> dict[str, Any]:
    return {"weights": torch.full((1, 2, 5, 5), 0.2), "rows": 2, "columns": 2}


def _two_heads(normal: Normal) -> dict[str, Any]:
    weights = torch.eye(5).repeat(1, 2, 1, 1)
    weights[0, 1, 0] = torch.eye(5)[2]
    return {"weights": weights, "rows": 2, "columns": 2}


_PENCIL_WEIGHTS = torch.tensor(
    [
        [[[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]]],
        [[[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]],
    ]
)

rollout_map = Task(
    "rollout_map",
    _rollout_map,
    {"weights": _PENCIL_WEIGHTS, "rows": 1, "columns": 2},
    _rollout_cases,
    laws=[
        Law(
            "where every token looks only at itself, the map is 0 everywhere",
            ROLLOUT,
            _planted({}, {}),
            _map_is(0, 0, 0, 0),
        ),
        Law(
            "in one block whose class token looks only at the lower left of 2 x 2 patches, "
            "this patch has a half",
            ROLLOUT,
            _planted({0: 3}),
            _map_is(0, 0, 0.5, 0),
        ),
        Law(
            "in one block with even weights over 5 tokens, every patch has a tenth",
            ROLLOUT,
            _even,
            _map_is(0.1, 0.1, 0.1, 0.1),
        ),
        Law(
            "in one block whose class token looks at the upper right patch in one of two heads and at "
            "itself in the other, this patch has a quarter",
            ROLLOUT,
            _two_heads,
            _map_is(0, 0.25, 0, 0),
        ),
        Law(
            "where the upper left of 2 x 2 patches looks at the lower right one in the first block, the "
            "class token at the upper left one in the second, and all others at themselves, both have "
            "a quarter",
            ROLLOUT,
            _planted({1: 4}, {0: 1}),
            _map_is(0.25, 0, 0, 0.25),
        ),
        Law(
            "where the class token looks at the upper left of 2 x 2 patches in the first block, this patch "
            "at the lower right one in the second, and all others at themselves, only the upper left one has "
            "something, a half",
            ROLLOUT,
            _planted({0: 1}, {1: 4}),
            _map_is(0.5, 0, 0, 0),
        ),
    ],
)


@rollout_map.made_of(
    heads=wrongs(
        ROLLOUT,
        """
        first: only the first head is used
            All heads of a block work side by side. Take their mean.
        max: the largest weight of all heads is taken, not the mean
            Then a token gives out more weight than it has: rows sum to more than 1.
        sum: the heads are added up instead of averaged
            Then a token gives out more weight than it has: rows sum to the number of heads.
        """,
    ),
    residual=wrongs(
        ROLLOUT,
        """
        none: the residual is left out
            A token keeps what it was, beside what it fetches: a half of each.
        not halved: the identity is added, and the sum is not halved
            Rows of the identity sum to 1, and those of the weights, too. What do those of the sum come to?
        once: the residual counts once, not in every block
            Every block adds what it finds to its input.
        """,
    ),
    product=wrongs(
        ROLLOUT,
        """
        reversed: the blocks are multiplied in the wrong order
            The first block acts on the tokens first. So its matrix stands at the right of the product.
        last: only the last block is used
            Its keys are tokens that have looked around already. The blocks before tell what is in them.
        first only: only the first block is used
            What do the blocks after it do with that?
        mean: the blocks are averaged instead of multiplied
            A path through two blocks has two steps, and its share is the product of their weights.
        elementwise: the blocks are multiplied number by number
            A path through two blocks may change the token in between: a sum over that token, which is a
            matrix product.
        """,
    ),
    read=wrongs(
        ROLLOUT,
        """
        column: what flows from the class token is read, not what flows to it
            A row belongs to a query: it says whom it asks. Which row is the class token's?
        class kept: the class token itself is read as the first patch
            Token 0 is the class token. The patches begin at 1.
        mean: the mean over all tokens is read instead of the row of the class token
            The scores of the classes are read from the class token alone.
        last row: the row of the last patch is read
            Where does the class token stand?
        """,
    ),
    form=wrongs(
        ROLLOUT,
        """
        flat: the map is a list of patches, not a grid
            To be drawn over the picture, it needs rows and columns.
        transposed: the map is filled column by column
            The patches come row by row: the second stands to the right of the first.
        shares: the map is divided by its sum
            Asked for is the rollout as it is: what is missing to 1 is the class token's own share.
        largest: the map is divided by its largest number
            Asked for is the rollout as it is. Colours can be scaled when it is drawn.
        """,
    ),
)
def any_rollout(weights, rows, columns, *, heads="", residual="", product="", read="", form=""):
    identity = torch.eye(weights.shape[-1], dtype=weights.dtype)
    match heads:
        case "first":
            mixed = weights[:, 0]
        case "max":
            mixed = weights.amax(1)
        case "sum":
            mixed = weights.sum(1)
        case _:
            mixed = weights.mean(1)
    if residual == "":
        mixed = (mixed + identity) / 2
    if residual == "not halved":
        mixed = mixed + identity
    steps = list(mixed)
    if product == "reversed":
        steps = steps[::-1]
    if product == "last":
        steps = steps[-1:]
    if product == "first only":
        steps = steps[:1]
    rolled = steps[0]
    for step in steps[1:]:
        rolled = step * rolled if product == "elementwise" else step @ rolled
    if product == "mean":
        rolled = mixed.mean(0)
    if residual == "once":
        rolled = (rolled + identity) / 2
    found = {
        "column": rolled[1:, 0],
        "class kept": rolled[0, :-1],
        "mean": rolled[:, 1:].mean(0),
        "last row": rolled[-1, 1:],
    }.get(read, rolled[0, 1:])
    if form == "flat":
        return found
    if form == "transposed":
        return found.reshape(columns, rows).mT
    if form == "shares":
        found = found / found.sum()
    if form == "largest":
        found = found / found.max()
    return found.reshape(rows, columns)


# ---------------------------------------------------------------------------------------
# Predict: which pictures are one and the same
# ---------------------------------------------------------------------------------------


def _same_bag(patches: Tensor) -> int:
    counts = Counter(tuple(patch) for patch in patches.tolist())
    return math.factorial(len(patches)) // math.prod(map(math.factorial, counts.values()))


def _bag(*kinds: int) -> Tensor:
    """Patches of two pixels; those of one kind are alike, and some kinds differ only in where the ink is."""
    looks = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, 0.0], [0.0, 2.0], [3.0, 1.0]])
    return looks[torch.tensor(kinds)]


def _same_bag_cases(seed: int) -> list[Case]:
    draws = Draws(seed, "choices")

    def case(num: int, kinds: int, note: str, size: float = 1.0) -> Case:
        drawn = draws.randint(0, kinds, (num,))
        noise = draws.whole(1, 999) * 0.25
        return Case({"patches": size * _bag(*drawn.tolist()) + noise}, note)

    all_kinds = draws.randperm(7).tolist()
    return [
        case(4, 2, "patches of at most two kinds"),
        case(6, 3, "patches of at most three kinds"),
        case(9, 7, "nine patches"),
        case(16, 4, "sixteen patches"),
        case(12, 2, "twelve patches of at most two kinds"),
        case(10, 5, "patches that differ by an eighth", 0.125),
        case(25, 6, "twenty-five patches"),
        Case({"patches": _bag(*all_kinds)}, "patches that are all different"),
        Case({"patches": _bag(*all_kinds[:1] * 5)}, "patches that are all alike"),
        case(1, 7, "a single patch"),
    ]


def _bag_law(sentence: str, kinds: tuple[int, ...], number: int) -> Law:
    def broken(inputs: Any, value: Any) -> str | None:
        return None if value == number else f"yours counts {shown(value)}"

    return Law(sentence, BAG, lambda normal: {"patches": _bag(*kinds)}, broken)


same_bag = Task(
    "same_bag",
    _same_bag,
    {"patches": _bag(0, 0, 0, 1)},
    _same_bag_cases,
    laws=[
        _bag_law("with a single patch there is one picture", (3,), 1),
        _bag_law("with two different patches there are two pictures", (1, 2), 2),
        _bag_law("with patches that are all alike there is one picture", (0, 0, 0), 1),
        _bag_law("with three different patches there are six pictures", (0, 1, 2), 6),
        _bag_law("with two patches of one kind and two of another there are six pictures", (1, 1, 3, 3), 6),
    ],
)


@same_bag.made_of(
    alike=wrongs(
        BAG,
        """
        ignored: patches that are alike are not taken into account
            Two patches that are alike may change places, and the picture is the same.
        once: patches that are alike count only once
            They are there several times, and may stand in several places. They just cannot be told apart.
        not orders: the divisor is how many patches are alike, not how many orders they have
            Three patches that are alike can be put in 3 * 2 * 1 orders, which all look the same.
        largest: only the most frequent patch is taken into account
            Other patches may be there several times, too.
        sum: the divisor is the sum of the orders that each kind has, not their product
            Every order of one kind goes with every order of another.
        """,
    ),
    equal=wrongs(
        BAG,
        """
        sums: patches with the same sum are taken for alike
            The ink may lie in another place. Patches are alike if all their pixels are.
        sorted: patches with the same pixels in another order are taken for alike
            The model does not know the order of the patches, but it knows that of the pixels in a patch.
        first pixel: patches with the same first pixel are taken for alike
            Patches are alike if all their pixels are.
        whole: patches whose pixels differ behind the point only are taken for alike
            Grey has many shades. Compare the pixels as they are.
        neighbours: patches that are alike are counted together only where they stand beside each other
            They may stand anywhere in the sequence.
        """,
    ),
    counted=wrongs(
        BAG,
        """
        others: the picture itself is not counted
            It is one of them.
        pairs: only two patches at a time change places
            The patches may stand in any order.
        """,
    ),
)
def any_bag(patches, *, alike="", equal="", counted=""):
    rows = patches.tolist()
    if equal == "sums":
        rows = [[sum(row)] for row in rows]
    if equal == "sorted":
        rows = [sorted(row) for row in rows]
    if equal == "first pixel":
        rows = [row[:1] for row in rows]
    if equal == "whole":
        rows = [[int(pixel) for pixel in row] for row in rows]
    listed = [tuple(row) for row in rows]
    counts = [listed.count(row) for row in dict.fromkeys(listed)]
    if equal == "neighbours":
        counts = torch.unique_consecutive(patches, dim=0, return_counts=True)[1].tolist()
    num = len(listed)
    if counted == "pairs":
        same = sum(count * (count - 1) // 2 for count in counts)
        return 1 + num * (num - 1) // 2 - (0 if alike == "ignored" else same)
    if alike == "once":
        number = math.factorial(len(counts))
    else:
        orders = [math.factorial(count) for count in counts]
        divisor = {
            "ignored": 1,
            "not orders": math.prod(counts),
            "largest": max(orders),
            "sum": sum(orders),
        }.get(alike, math.prod(orders))
        number = math.factorial(num) // divisor
    return number - 1 if counted == "others" else number


# ---------------------------------------------------------------------------------------
# After the experiment: what does the model do with the order?
# ---------------------------------------------------------------------------------------


def _explain_orders(kept: Tensor, mixed: Tensor, labels: Tensor) -> str:
    if bool(((kept - mixed).abs() < 1e-4).all()):
        return "blind"
    right_kept, right_mixed = ((x.argmax(-1) == labels).double().mean().item() for x in (kept, mixed))
    if right_kept < 0.2 and right_mixed < 0.2:
        return "guesses"
    if right_kept >= right_mixed + 0.2:
        return "needs the order"
    if right_mixed >= right_kept + 0.2:
        return "wants another"
    return "copes"


# Of the pictures as they are, the share that is right, where it is not 0.9.
SHARES = {
    "copes": 0.7,
    "wants": 0.3,
    "guesses": 0.1,
    "low": 0.15,
    "blind guess": 0.1,
    "loses what it had": 0.3,
    "half": 0.5,
    "hardly": 0.05,
}


def _orders_records(seed: int) -> dict[str, dict[str, Any]]:
    """Scores of forty pictures as they are and with patches mixed, of models that do this or that."""
    normal = normal_source(seed)
    draws = Draws(seed, "choices")
    num = 40

    def drawn_labels() -> tuple[Tensor, int]:
        """The right classes, of so many that twice the chance of guessing right is a fifth, or is not."""
        classes = draws.whole(5, 14)
        return draws.randint(0, classes, (num,)), classes

    def scores(share: float, labels: Tensor, classes: int) -> Tensor:
        """So large a share is right: the highest score stands at the label, and elsewhere at the next."""
        found = normal(num, classes).clamp(-2.0, 2.0)
        wrong = draws.randperm(num)[: round((1 - share) * num)]
        said = labels.clone()
        said[wrong] = (labels[wrong] + 3) % classes
        found[torch.arange(num), said] = 5.0
        return found

    def record(name: str) -> dict[str, Any]:
        labels, classes = drawn_labels()
        so_many_right = lambda share: scores(share, labels, classes)
        kept = (20_000 if name == "large" else 0) + so_many_right(SHARES.get(name, 0.9))
        mixed = {
            "blind": lambda: kept + 1e-6 * normal(num, classes),
            "blind but for one": lambda: kept + 1e-6 * normal(num, classes),
            "faintly told": lambda: kept + 1e-2 * normal(num, classes).clamp(-3.0, 3.0),
            "copes": lambda: so_many_right(0.65),
            "less sure": lambda: 0.5 * kept,
            "half": lambda: so_many_right(0.375),
            "hardly": lambda: so_many_right(0.075),
            "wants": lambda: so_many_right(0.8),
            "guesses": lambda: so_many_right(0.15),
            "low": lambda: so_many_right(0.4),
            "chance when mixed": lambda: so_many_right(0.1),
            "a little worse": lambda: so_many_right(0.75),
            "blind guess": lambda: kept + 1e-6 * normal(num, classes),
            "loses what it had": lambda: so_many_right(0.05),
            "higher": lambda: kept + 0.5,
            "one by a little": lambda: torch.cat([kept[:-1], kept[-1:] + 0.003]),
            "large": lambda: kept + 0.01,
            "lower": lambda: kept - 0.5,
            "one lower by a little": lambda: torch.cat([kept[:1] - 0.000115, kept[1:]]),
            "rounded more": lambda: kept + 2e-5 * normal(num, classes).clamp(-3.5, 3.5),
        }.get(name, lambda: so_many_right(0.4))()
        if name == "blind but for one":
            mixed[-1] = mixed[-1].roll(3)
        if name == "as often right, of others":
            mixed = so_many_right(0.9)
        return {"kept": kept, "mixed": mixed, "labels": labels}

    def counted(least: int, most: int, more: int) -> dict[str, Any]:
        """From `least` to `most` of forty are right as they are, and so many more with mixed patches."""
        right = draws.whole(least, most)
        labels, classes = drawn_labels()
        kept, mixed = (scores(each / num, labels, classes) for each in (right, right + more))
        return {"kept": kept, "mixed": mixed, "labels": labels}

    return {
        "a model without positions": record("blind"),
        "a model that needs the order": record("needs"),
        "a model that guesses": record("guesses"),
        "a model that learned from mixed patches": record("copes"),
        "a model that was taught one other order": record("wants"),
        "positions that are told faintly": record("faintly told"),
        "the same classes, by half the scores": record("less sure"),
        "one picture of forty gets other scores": record("blind but for one"),
        "chance, as soon as patches are mixed": record("chance when mixed"),
        "as often right, but for other pictures": record("as often right, of others"),
        "a little worse with mixed patches": record("a little worse"),
        "few are right as they are, and more with mixed patches": record("low"),
        "a model without positions that guesses": record("blind guess"),
        "little, and with mixed patches nothing": record("loses what it had"),
        "with mixed patches all scores are higher": record("higher"),
        "one picture of forty gets scores a little higher": record("one by a little"),
        "large scores that differ by a hundredth": record("large"),
        "half are right, and a few less with mixed patches": record("half"),
        "hardly any are right, as they are or mixed": record("hardly"),
        "with mixed patches all scores are lower": record("lower"),
        "one picture of forty gets scores lower by very little": record("one lower by a little"),
        "rounding that shows a little more": record("rounded more"),
        # On both sides of a fifth, which is 8 of 40.
        "almost a fifth better with mixed patches": counted(10, 33, 7),
        "almost a fifth worse with mixed patches": counted(17, 40, -7),
        "a little more than a fifth better with mixed patches": counted(10, 31, 9),
        "a little more than a fifth worse with mixed patches": counted(18, 40, -9),
        "a tenth better with mixed patches": counted(10, 35, 4),
        "almost a fifth are right, as they are and mixed": counted(6, 7, 0),
        "almost a fifth are right, and with mixed patches a little more": counted(7, 7, 2),
        "almost a fifth are right with mixed patches, and a little more as they are": counted(9, 9, -2),
        # A fifth and nothing: of exact differences the only one that no rounding changes.
        "none are right, and with mixed patches a fifth": counted(0, 0, 8),
        "a fifth are right, and with mixed patches none": counted(8, 8, -8),
    }


def _explain_cases(seed: int) -> list[Case]:
    records = _orders_records(seed)
    return [Case(records[name], name) for name in in_any_order(records, seed)]


def _orders_law(words: str, right: str, name: str) -> Law:
    return Law(
        f"{words}, {right!r} is said", SHUFFLED, lambda normal: _orders_records(0)[name], laws.says(right)
    )


explain_orders = Task(
    "explain_orders",
    _explain_orders,
    {
        "kept": torch.tensor([[2.0, 1.0], [0.0, 3.0], [4.0, 1.0], [1.0, 2.0]]),
        "mixed": torch.tensor([[1.0, 2.0], [0.0, 3.0], [1.0, 4.0], [1.0, 2.0]]),
        "labels": torch.tensor([0, 1, 0, 1]),
    },
    _explain_cases,
    laws=[
        _orders_law("where all scores agree but for rounding", "blind", "a model without positions"),
        _orders_law(
            "where 4 of 40 are right as they are, and 6 with mixed patches", "guesses", "a model that guesses"
        ),
        _orders_law(
            "where 36 of 40 are right as they are, and 16 with mixed patches",
            "needs the order",
            "a model that needs the order",
        ),
        _orders_law(
            "where 12 of 40 are right as they are, and 32 with mixed patches",
            "wants another",
            "a model that was taught one other order",
        ),
        _orders_law(
            "where 28 of 40 are right as they are, and 26 with mixed patches",
            "copes",
            "a model that learned from mixed patches",
        ),
        _orders_law(
            "where all classes stay the same, and scores differ by a hundredth",
            "copes",
            "positions that are told faintly",
        ),
        _orders_law(
            "where 36 of 40 are right as they are, and 4 with mixed patches",
            "needs the order",
            "chance, as soon as patches are mixed",
        ),
        _orders_law(
            "where 36 of 40 are right as they are, and 30 with mixed patches",
            "copes",
            "a little worse with mixed patches",
        ),
    ],
)


@explain_orders.made_of(
    same=wrongs(
        SHUFFLED,
        """
        exactly: differences by rounding count
            Sums in another order differ in their last digits. Less than a ten-thousandth is no difference.
        loosely: small differences do not count
            A model that is told positions faintly gives other scores, and that is not blind. Only less than
            a ten-thousandth is no difference.
        predictions: only the predicted classes are compared, not the scores
            The same class may win with other scores: then the model has seen the order, and does not care.
        some: it is enough that some scores agree
            For a blind model all scores of all pictures agree, as they are and mixed.
        """,
    ),
    right=wrongs(
        SHUFFLED,
        """
        agreement: it is asked for how many pictures the class stays the same, not for how many it is right
            Right is what the label says. Compare each of the two with the labels.
        smallest: the class with the smallest score is taken
            The highest score wins.
        """,
    ),
    asked=wrongs(
        SHUFFLED,
        """
        exchanged: the two shares are exchanged
            A model that needs the order is right less often with mixed patches.
        no guessing: it is never asked whether the model only guesses
            Where both shares are less than a fifth, it may all be chance, and a difference says nothing.
        either guesses: one share below a fifth is enough to call it guessing
            A model that needs the order may well guess when it is taken away. Both have to be low.
        any difference: every difference counts
            A few pictures more or less are chance. Ask for a difference of 0.2.
        a tenth: only shares below a tenth are called guessing
            Asked for is less than a fifth.
        twice chance: shares below twice what guessing gives are called guessing, however many classes
            Asked for is less than a fifth, for any number of classes.
        ratio: shares are divided instead of subtracted
            Asked for is a difference of 0.2 at least.
        """,
    ),
)
def any_explained(kept, mixed, labels, *, same="", right="", asked=""):
    gap = (kept - mixed).abs()
    blind = {
        "exactly": (gap == 0).all(),
        "loosely": (gap < 0.1).all(),
        "predictions": (kept.argmax(-1) == mixed.argmax(-1)).all(),
        "some": (gap < 1e-4).any(),
    }.get(same, (gap < 1e-4).all())
    if blind:
        return "blind"

    def share(scores):
        said = scores.argmin(-1) if right == "smallest" else scores.argmax(-1)
        return (said == labels).double().mean().item()

    first, second = share(kept), share(mixed)
    if right == "agreement":
        first, second = 1.0, (kept.argmax(-1) == mixed.argmax(-1)).double().mean().item()
    below = {"a tenth": 0.1, "twice chance": 2 / kept.shape[-1]}.get(asked, 0.2)
    low = [part < below for part in (first, second)]
    if asked != "no guessing" and (any(low) if asked == "either guesses" else all(low)):
        return "guesses"
    least = 1e-9 if asked == "any difference" else 0.2
    if asked == "exchanged":
        first, second = second, first
    if asked == "ratio":
        if first >= 1.2 * second:
            return "needs the order"
        return "wants another" if second >= 1.2 * first else "copes"
    if first >= second + least:
        return "needs the order"
    return "wants another" if second >= first + least else "copes"
