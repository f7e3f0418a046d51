"""Random sequences with triangles and rectangles, and the targets that belong to them."""

from typing import NamedTuple

import torch
from torch import Tensor

from attncourse._require import require_choice, require_count

#: The number of positions of a sequence.
LENGTH = 100
#: What the shapes' heights, widths and centres are drawn from, uniformly.
HEIGHTS, WIDTHS, CENTRES = (1.0, 25.0), (5.0, 11.0), (5.5, 94.5)
#: Heights that are to be averaged (A), or the two averages (B), differ by more than this.
LEAST_DIFFERENCE = 4.0
#: Uniform noise from -0.15 to 0.15 is added to inputs, and other such noise to targets.
NOISE_WIDTH = 0.3
#: The variance of the targets' noise: no model can have a smaller mean squared error.
NOISE_FLOOR = NOISE_WIDTH**2 / 12
#: Test sequences come from this seed, which no training run uses.
TEST_SEED = 1_000_000_007

VERSIONS = ("A", "B")


class Data(NamedTuple):
    """Sequences, and the shapes they were made from: two triangles, then two rectangles."""

    #: The sequences that a model gets, shape (num_sequences, 1, LENGTH).
    input: Tensor
    #: The sequences that it is to give, shape (num_sequences, 1, LENGTH).
    target: Tensor
    #: Where the middle of each shape is, shape (num_sequences, 4).
    centre: Tensor
    #: How wide each shape is, shape (num_sequences, 4).
    width: Tensor
    #: How high each shape is in the input, shape (num_sequences, 4).
    height: Tensor
    #: How high each shape is in the target, shape (num_sequences, 4).
    target_height: Tensor
    #: Which shape, 0 to 3, each is averaged with, shape (num_sequences, 4).
    partner: Tensor


def profiles(centre: Tensor, width: Tensor) -> Tensor:
    """The four shapes with height 1; 0 outside the shape.

    Parameters
    ----------
    centre, width : Tensor, shape (num_sequences, 4)
        The first two are triangles, the last two rectangles.

    Returns
    -------
    Tensor, shape (num_sequences, 4, LENGTH)
    """
    distance = (torch.arange(LENGTH) - centre.unsqueeze(-1)).abs()  # (num_sequences, 4, LENGTH)
    half = width.unsqueeze(-1) / 2  # (num_sequences, 4, 1)
    # A top one position wide, so that every triangle shows its whole height.
    triangles = (1 - (distance - 0.5).relu() / half).relu()
    rectangles = (distance < half).to(distance.dtype)
    return torch.cat((triangles[:, :2], rectangles[:, 2:]), dim=1)


def make_data(version: str, num_sequences: int, generator: torch.Generator) -> Data:
    """Draw random sequences with their targets.

    Parameters
    ----------
    version : str
        "A": the heights are averaged within each kind of shape. "B": among the two
        leftmost shapes, and among the two rightmost.
    num_sequences : int
    generator : torch.Generator
        The source of all randomness: the same state gives the same data.

    Returns
    -------
    Data
        Shapes do not overlap, and heights differ by more than `LEAST_DIFFERENCE`:
        sequences that fail either are drawn again.

    Raises
    ------
    ValueError
        If `version` is unknown, or `num_sequences` less than 1.
    """
    require_choice("version", version, VERSIONS)
    require_count("num_sequences", num_sequences, least=1)
    drawn = [_draw_shapes(version, 0, generator)]
    while (missing := num_sequences - sum(len(centre) for centre, *_ in drawn)) > 0:
        drawn.append(_draw_shapes(version, min(8 * missing + 50, 20_000), generator))
    centre, width, height, partner = (torch.cat(parts)[:num_sequences] for parts in zip(*drawn, strict=True))

    target_height = (height + height.gather(1, partner)) / 2  # (num_sequences, 4)
    profile = profiles(centre, width)  # (num_sequences, 4, LENGTH)

    def noisy(height: Tensor) -> Tensor:
        clean = (height.unsqueeze(-1) * profile).sum(1, keepdim=True)  # (num_sequences, 1, LENGTH)
        return clean + NOISE_WIDTH * (torch.rand(clean.shape, generator=generator) - 0.5)

    return Data(noisy(height), noisy(target_height), centre, width, height, target_height, partner)


def differs(version: str, height: Tensor, partner_height: Tensor) -> Tensor:
    """Whether the heights to be averaged (A), or the two averages (B), differ by enough, (num_sequences,)."""
    if version == "A":
        return ((height - partner_height).abs() > LEAST_DIFFERENCE).all(1)
    mean = (height + partner_height) / 2  # (num_sequences, 4)
    return mean.amax(1) - mean.amin(1) > LEAST_DIFFERENCE


def make_test_data(version: str, num_sequences: int = 10_000) -> Data:
    """Fresh sequences that no run is trained on, the same at every call."""
    return make_data(version, num_sequences, torch.Generator().manual_seed(TEST_SEED))


def _draw_shapes(version: str, num_draws: int, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Centres, widths, heights and partners of those draws that are to be kept."""
    centre, width, height = (
        torch.empty(num_draws, 4).uniform_(low, high, generator=generator)
        for low, high in (CENTRES, WIDTHS, HEIGHTS)
    )
    # The shapes in the order in which neighbours are a pair: as they are, or from left to right.
    order = centre.argsort(1) if version == "B" else torch.arange(4).expand(num_draws, 4)
    partner = torch.empty_like(order).scatter_(1, order, order[:, [1, 0, 3, 2]])
    reach = width / 2 + torch.tensor([0.5, 0.5, 0.0, 0.0])
    first, last = (centre - reach).ceil(), (centre + reach).floor()  # the positions each shape covers
    overlap = (first.unsqueeze(1) <= last.unsqueeze(2)) & (last.unsqueeze(1) >= first.unsqueeze(2))
    apart = overlap.sum((1, 2)) == 4  # each shape with itself only
    kept = apart & differs(version, height, height.gather(1, partner))  # (num_draws,)
    return tuple(tensor[kept] for tensor in (centre, width, height, partner))
