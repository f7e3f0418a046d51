"""The digits, which of them are held out, and pictures whose patches stand in another order."""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from attncourse._require import require_choice
from attncourse.permutation import permute
from attncourse.vision import patchify, unpatchify

#: Side of the pictures, and of the patches, in pixels.
IMAGE_SIZE, PATCH_SIZE = 8, 2
NUM_PATCHES, NUM_CLASSES = (IMAGE_SIZE // PATCH_SIZE) ** 2, 10
#: How many pictures no model is trained on.
NUM_HELD_OUT = 360
#: In what order patches are: as they stand, in one order for all pictures, or each picture in its own.
ORDERS = ("kept", "one", "own")

# Which pictures are held out, and the one order for all, are the same in every run.
_SPLIT_SEED, _ORDER_SEED = 0, 1


class Digits(NamedTuple):
    """Pictures of digits, and which digit each is."""

    #: From 0 for paper to 1 for ink, of shape (num_images, 1, 8, 8).
    images: Tensor
    #: From 0 to 9, of shape (num_images,).
    labels: Tensor


@functools.cache
def digits() -> tuple[Digits, Digits]:
    """1,437 handwritten digits to train on, and 360 that are held out.

    Returns
    -------
    known, held_out : Digits

    References
    ----------
    Alpaydin and Kaynak, *Optical recognition of handwritten digits*, UCI Machine Learning Repository, 1998:
    the test set, as scikit-learn's ``load_digits`` has it.
    """
    with np.load(Path(__file__).with_name("digits.npz")) as data:
        images = torch.from_numpy(data["images"]).float().unsqueeze(1) / 16  # (1797, 1, 8, 8)
        labels = torch.from_numpy(data["labels"]).long()  # (1797,)
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(_SPLIT_SEED))
    held_out, known = mixed[:NUM_HELD_OUT], mixed[NUM_HELD_OUT:]
    return Digits(images[known], labels[known]), Digits(images[held_out], labels[held_out])


def shifted(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Each picture moved by at most one pixel up or down, left or right, with paper where nothing was.

    Parameters
    ----------
    images : Tensor, shape (num_images, 1, 8, 8)
    generator : torch.Generator, optional
        Where the moves come from; PyTorch's if not given.

    Returns
    -------
    Tensor, the shape of `images`
    """
    size, num_images = IMAGE_SIZE, len(images)
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1)).squeeze(1)  # (num_images, 10, 10)
    starts = torch.randint(3, (2, num_images, 1), generator=generator)
    row, column = starts + torch.arange(size)  # (num_images, 8) each
    which = torch.arange(num_images)[:, None, None]
    return padded[which, row.unsqueeze(2), column.unsqueeze(1)].unsqueeze(1)


def one_order() -> Tensor:
    """The order that all pictures share where it is "one", (16,)."""
    return torch.randperm(NUM_PATCHES, generator=torch.Generator().manual_seed(_ORDER_SEED))


def reordered(images: Tensor, order: str, generator: torch.Generator | None = None) -> Tensor:
    """The pictures with their patches put in another order.

    Parameters
    ----------
    images : Tensor, shape (num_images, 1, 8, 8)
    order : str
        "kept": as they are. "one": all in the same order. "own": each in an order of its own.
    generator : torch.Generator, optional
        Where the orders come from that are "own"; PyTorch's if not given.

    Returns
    -------
    Tensor, the shape of `images`

    Raises
    ------
    ValueError
        If `order` is unknown.
    """
    require_choice("order", order, ORDERS)
    if order == "kept":
        return images
    patches = patchify(images, PATCH_SIZE)  # (num_images, 16, 4)
    if order == "one":
        patches = permute(patches, one_order())
    else:
        orders = torch.rand(patches.shape[:2], generator=generator).argsort(1)  # (num_images, 16)
        patches = patches.gather(1, orders.unsqueeze(-1).expand_as(patches))
    return unpatchify(patches, PATCH_SIZE, IMAGE_SIZE, IMAGE_SIZE)
