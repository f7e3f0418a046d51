"""The experiment of ``vision``: small Vision Transformers of the student's parts, and patches in any order.

A model of one block is trained with and without positions, on pictures whose patches stand as they are, or
each picture's in an order of its own, and is then shown held-out digits in both ways. The maps of attention
are those of a model that comes with the course.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from attncourse import plots
from attncourse._require import require_choice, require_count, require_output
from attncourse.digits.data import (
    IMAGE_SIZE,
    NUM_CLASSES,
    NUM_PATCHES,
    PATCH_SIZE,
    digits,
    reordered,
    shifted,
)
from attncourse.digits.results import TEST_SEED, results, share_right
from attncourse.experiments._figure import Captioned, axes_for, level
from attncourse.experiments._training import one_cycle
from attncourse.transformer import TransformerBlock

MODEL_DIM, NUM_HEADS, HIDDEN, BATCH, RATE = 32, 4, 64, 64, 1e-2
ORDERS = ("kept", "own")
GRID = IMAGE_SIZE // PATCH_SIZE
#: The models that come with the course, by the name that the table has for them.
SUBJECTS = {
    "positions": "attention-learned-kept-seed1",
    "no positions": "attention-none-kept-seed1",
    "taught one order": "attention-learned-one-seed1",
    "taught all orders": "attention-learned-own-seed1",
}

# Of images and a patch size; of two encodings; of patches, W, b, class token and encoding.
Patchify = Callable[[Tensor, int], Tensor]
GridEncoding = Callable[[Tensor, Tensor], Tensor]
EmbedPatches = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    loss : Tensor, shape (20,)
        The training loss, a mean over each of twenty equal parts.
    kept, mixed : Tensor, shape (num_images, classes)
        The scores of held-out digits as they are, and with the patches of each in an order of its own.
    labels : Tensor, shape (num_images,)
        Which digits they are.
    """

    loss: Tensor
    kept: Tensor
    mixed: Tensor
    labels: Tensor

    @property
    def shares(self) -> tuple[float, float]:
        """The shares that are right, as they are and mixed."""
        return share_right(self.kept, self.labels), share_right(self.mixed, self.labels)


class _Network(nn.Module):
    """A Vision Transformer of one block, whose tokens are made by the student."""

    def __init__(
        self, patchify: Patchify, grid_encoding: GridEncoding, embed_patches: EmbedPatches, positions: bool
    ) -> None:
        super().__init__()
        self.patchify, self.grid_encoding, self.embed_patches = patchify, grid_encoding, embed_patches
        self.positions = positions
        self.W = nn.Parameter(torch.randn(PATCH_SIZE**2, MODEL_DIM) / PATCH_SIZE)
        self.b = nn.Parameter(torch.zeros(MODEL_DIM))
        self.class_token = nn.Parameter(0.02 * torch.randn(MODEL_DIM))
        self.row, self.column = (nn.Parameter(0.3 * torch.randn(GRID, MODEL_DIM // 2)) for _ in range(2))
        self.block = TransformerBlock(MODEL_DIM, NUM_HEADS, HIDDEN, norm="pre")
        self.norm = nn.LayerNorm(MODEL_DIM)
        self.out = nn.Linear(MODEL_DIM, NUM_CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """From (num_images, 1, 8, 8) to scores, (num_images, classes)."""
        patches = self.patchify(images, PATCH_SIZE)
        require_output("patchify", patches, (len(images), NUM_PATCHES, PATCH_SIZE**2))
        encoding = self.grid_encoding(self.row, self.column)
        require_output("grid_encoding", encoding, (NUM_PATCHES, MODEL_DIM))
        encoding = encoding if self.positions else torch.zeros_like(encoding)
        tokens = self.embed_patches(patches, self.W, self.b, self.class_token, encoding)
        require_output("embed_patches", tokens, (len(images), 1 + NUM_PATCHES, MODEL_DIM))
        return self.out(self.norm(self.block(tokens)[:, 0]))


def train(
    patchify: Patchify,
    grid_encoding: GridEncoding,
    embed_patches: EmbedPatches,
    *,
    positions: bool = True,
    order: str = "kept",
    steps: int = 300,
    seed: int = 0,
) -> Run:
    """Train a small Vision Transformer whose tokens the three functions make.

    Parameters
    ----------
    patchify, grid_encoding, embed_patches : callable
        As in the exercise.
    positions : bool
        Whether the tokens are told where their patches stand; otherwise the encoding is zero.
    order : str
        "kept": patches as they are, in training. "own": those of each picture in an order of its own.
    steps : int
        How many batches of 64 pictures; a multiple of 20.
    seed : int
        Draws the weights at the start, the pictures and their orders.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `order` is unknown, `steps` is no multiple of 20, or a function gives another shape than it should.
    """
    require_choice("order", order, ORDERS)
    require_count("steps", steps, 20)
    if steps % 20:
        raise ValueError(f"steps is {steps}: expected a multiple of 20")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Network(patchify, grid_encoding, embed_patches, positions)
    generator = torch.Generator().manual_seed(seed)
    known, held_out = digits()

    def batches() -> list[tuple[Tensor, Tensor]]:
        drawn = torch.randint(len(known.labels), (steps, BATCH), generator=generator)
        images = shifted(known.images[drawn.flatten()], generator)
        images = reordered(images, order, generator).view(steps, BATCH, *images.shape[1:])
        return list(zip(images, known.labels[drawn], strict=True))

    losses = (nn.functional.cross_entropy(network(images), labels) for images, labels in batches())
    # For seventeen tokens PyTorch's plain way to attend is faster than the one that saves memory.
    with sdpa_kernel(SDPBackend.MATH):
        loss = one_cycle(network.parameters(), losses, steps, RATE)
    with torch.no_grad():
        kept, mixed = (network(images) for images in _both())
    return Run(loss.view(20, -1).mean(1), kept, mixed, held_out.labels)


@functools.cache
def _both() -> tuple[Tensor, Tensor]:
    """The held-out digits as they are, and with the patches of each in an order of its own."""
    images = digits()[1].images
    return images, reordered(images, "own", torch.Generator().manual_seed(TEST_SEED))


def two_by_two(
    patchify: Patchify, grid_encoding: GridEncoding, embed_patches: EmbedPatches, *, steps: int = 300
) -> dict[str, Run]:
    """Train with positions and without, on patches as they are and in all orders, as of :func:`train`."""
    return {
        f"{told}, trained {how}": train(
            patchify, grid_encoding, embed_patches, positions=positions, order=order, steps=steps
        )
        for positions, told in ((True, "positions"), (False, "no positions"))
        for order, how in (("kept", "as they are"), ("own", "mixed"))
    }


def table(runs: Mapping[str, Run]) -> plots.Table:
    """The shares of held-out digits that are right, in percent."""
    shares = [[100 * share for share in run.shares] for run in runs.values()]
    columns = {
        "shown as they are": [first for first, _ in shares],
        "shown mixed": [second for _, second in shares],
    }
    return plots.Table({"model": list(runs), **columns}, ".0f", caption="Right, in percent")


def figure(runs: Mapping[str, Run]) -> Captioned:
    """The training loss of each model."""
    drawing, ax = axes_for(runs, 5, 3)
    words = []
    for name, run in runs.items():
        ax.plot(range(5, 101, 5), run.loss, label=name)
        words.append(f"{name}: from {run.loss[0]:.2f} to {run.loss[-1]:.2f}")
    level(ax, float(torch.tensor(float(NUM_CLASSES)).log()), "guessing", below=True)
    ax.set(xlabel="percent of the training", ylabel="loss", ylim=(0, None))
    ax.legend()
    caption = "Training loss, a mean over each twentieth of the training."
    return Captioned(drawing, caption, "Curves of the training loss. " + "; ".join(words) + ".")


@functools.cache
def _model(name: str = "positions") -> nn.Module:
    model = results()[SUBJECTS[name]].model
    assert model is not None
    return model


@torch.no_grad()
def look(number: int) -> tuple[Tensor, Tensor, int, int]:
    """What the trained model with positions does with a held-out digit.

    Parameters
    ----------
    number : int
        Which of the 360.

    Returns
    -------
    image : Tensor, shape (1, 8, 8)
    weights : Tensor, shape (num_blocks, num_heads, 17, 17)
        Its attention. Token 0 is the class token, and the others are the patches, row by row.
    said, label : int
        What the model takes it for, and what it is.

    Raises
    ------
    ValueError
        If there is no such digit.
    """
    held_out = digits()[1]
    require_count("number", number, 0)
    if number >= len(held_out.labels):
        raise ValueError(f"number is {number}: expected less than {len(held_out.labels)}")
    image = held_out.images[number]
    scores, weights = _model()(image, return_weights=True)
    return image, torch.stack(weights), int(scores.argmax()), int(held_out.labels[number])


@torch.no_grad()
def missed(number: int) -> Tensor:
    """By how much the chance of what the model says falls when a patch is erased, (4, 4), for a digit."""
    image, _, said, _ = look(number)
    erased = image.repeat(1 + NUM_PATCHES, 1, 1, 1)  # (17, 1, 8, 8): as it is, and without each patch
    for patch in range(NUM_PATCHES):
        top, left = PATCH_SIZE * (patch // GRID), PATCH_SIZE * (patch % GRID)
        erased[1 + patch, :, top : top + PATCH_SIZE, left : left + PATCH_SIZE] = 0
    chance = torch.softmax(_model()(erased), -1)[:, said]  # (17,)
    return (chance[0] - chance[1:]).view(GRID, GRID)


def overlay(numbers: Sequence[int], maps: Mapping[str, Sequence[Tensor]]) -> Captioned:
    """Draw digits, and below each its maps.

    Parameters
    ----------
    numbers : sequence of int
        Which of the 360 held-out digits.
    maps : mapping of str to sequence of Tensor, each of shape (4, 4)
        By the name of a row of maps, a map for each digit. Negative numbers are drawn as 0.

    Raises
    ------
    ValueError
        If a row has not as many maps as there are digits, or a map has another shape.
    """
    for name, row in maps.items():
        if len(row) != len(numbers):
            raise ValueError(f"maps has {len(row)} maps of {name!r}: expected {len(numbers)}")
        for one in row:
            require_output(name, one, (GRID, GRID))
    plots.use_style()
    size = (1.1 * len(numbers) + 0.6, 1.1 * (1 + len(maps)))
    axes: Any
    drawing, axes = plt.subplots(1 + len(maps), len(numbers), figsize=size, squeeze=False)
    words = []
    for column, number in enumerate(numbers):
        image, _, said, label = look(number)
        axes[0, column].imshow(image[0].numpy(), cmap="weights", vmin=0, vmax=1)
        axes[0, column].set_title(str(said) if said == label else f"{said}, not {label}")
        words.append(f"a {label} that is taken for a {said}")
        for ax, drawn in zip(axes[1:, column], maps.values(), strict=True):
            ax.imshow(drawn[column].clamp(min=0).numpy(), cmap="weights", vmin=0)
    for ax in axes.flat:
        ax.set(xticks=[], yticks=[])
    for ax, name in zip(axes[:, 0], ["digit", *maps], strict=True):
        ax.set_ylabel(name)
    caption = "Digits, with what the model says, and maps of their patches: a stronger colour is more."
    alt = f"{', '.join(words)}; below each, grids of 4 by 4 squares: {', '.join(maps)}."
    return Captioned(drawing, caption, alt[:1].upper() + alt[1:])


@torch.no_grad()
def record(name: str) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the held-out digits by one of the `SUBJECTS`: as they are, mixed, and their labels.

    For the one that was taught one other order, "mixed" is this order.

    Raises
    ------
    ValueError
        If there is no subject of that name.
    """
    require_choice("name", name, tuple(SUBJECTS))
    images, mixed = _both()
    if name == "taught one order":
        mixed = reordered(images, "one")
    return _model(name)(images), _model(name)(mixed), digits()[1].labels
