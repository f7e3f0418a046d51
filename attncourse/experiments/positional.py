"""The experiment of ``positional``: two versions of a problem, and three things to tell about positions.

A row of sixteen shapes is what the running experiment comes to when every shape is a single position. A
network with one layer of attention learns version A, in which each kind of shape gets its mean height, or
version B, in which neighbours get theirs: 0 with 1, 2 with 3, and so on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import matplotlib.pyplot as plt
import torch
from torch import Tensor, nn

from attncourse import plots
from attncourse._require import require_choice, require_count, require_output
from attncourse.experiments._figure import Captioned, level
from attncourse.experiments._training import one_cycle

VERSIONS = ("A", "B")
LENGTH, BATCH, HIDDEN, RATE = 16, 32, 32, 1e-2
#: What heights are drawn from, uniformly; and their mean and standard deviation.
HEIGHTS, MEAN, STD = (1.0, 25.0), 13.0, 7.0
#: For version B, the position with which each position shares its mean.
PARTNER = torch.arange(LENGTH) ^ 1
#: Fresh sequences of which the error is taken.
NUM_TEST = 2000
_TEST_SEED = 1_000_000_007

# Takes x, (batch, channels, positions), and an encoding, (positions, features).
Concatenate = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    loss : Tensor, shape (parts,)
        The mean squared error in training, a mean over each of twenty equal parts.
    error : float
        The mean squared error on sequences that it was not trained on.
    alike : Tensor, shape (batch, positions)
        What the network gives for sequences in which all shapes are alike, in float64.
    """

    loss: Tensor
    error: float
    alike: Tensor


class _Network(nn.Module):
    """A layer at each position, attention, and two more layers at each position."""

    def __init__(self, encoding: Tensor, concatenate: Concatenate) -> None:
        super().__init__()
        self.encoding, self.concatenate = encoding, concatenate
        features = encoding.shape[1]
        self.into = nn.Linear(2 + features, HIDDEN)
        self.W_Q, self.W_K, self.W_V = (
            nn.Parameter(HIDDEN**-0.5 * torch.randn(HIDDEN, HIDDEN)) for _ in range(3)
        )
        self.out = nn.Sequential(nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1))

    def forward(self, x: Tensor) -> Tensor:
        """From (batch, 2, positions), heights and kinds, to heights, (batch, positions)."""
        told = self.concatenate(x, self.encoding)  # (batch, 2 + features, positions)
        require_output("concatenate", told, (len(x), 2 + self.encoding.shape[1], LENGTH))
        z = torch.relu(self.into(told.mT))  # (batch, positions, hidden)
        y = nn.functional.scaled_dot_product_attention(
            z @ self.W_Q, z @ self.W_K, z @ self.W_V
        )  # (batch, positions, hidden)
        return MEAN + STD * self.out(torch.cat((z, y), -1)).squeeze(-1)


def make_data(version: str, num_sequences: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw sequences of shapes, and the heights that they are to get.

    Parameters
    ----------
    version : str
        "A": the mean of its kind. "B": the mean of a pair of neighbours.
    num_sequences : int
    generator : torch.Generator

    Returns
    -------
    x : Tensor, shape (num_sequences, 2, 16)
        Height, less its mean and divided by its standard deviation, and kind, -1 or 1.
    target : Tensor, shape (num_sequences, 16)

    Raises
    ------
    ValueError
        If `version` is unknown, or `num_sequences` less than 1.
    """
    require_choice("version", version, VERSIONS)
    require_count("num_sequences", num_sequences, 1)
    shape = (num_sequences, LENGTH)
    height = torch.empty(shape).uniform_(*HEIGHTS, generator=generator)  # (num_sequences, 16)
    kind = (torch.rand(shape, generator=generator).argsort(1) % 2).float()  # eight of each
    if version == "A":
        first = (height * kind).sum(1, keepdim=True) / (LENGTH // 2)  # (num_sequences, 1)
        second = (height * (1 - kind)).sum(1, keepdim=True) / (LENGTH // 2)
        target = torch.where(kind == 1, first, second)
    else:
        target = (height + height[:, PARTNER]) / 2
    return torch.stack(((height - MEAN) / STD, 2 * kind - 1), 1), target


def fresh_heights() -> Tensor:
    """The heights of the sequences by which the networks of version B are judged, (2000, 16)."""
    x, _ = make_data("B", NUM_TEST, torch.Generator().manual_seed(_TEST_SEED))
    return MEAN + STD * x[:, 0]


def train(
    version: str, encoding: Tensor, concatenate: Concatenate, *, steps: int = 200, seed: int = 0
) -> Run:
    """Train a network that is told positions by an encoding.

    Parameters
    ----------
    version : str
        "A" or "B".
    encoding : Tensor, shape (16, features)
        With 0 features the network is told nothing.
    concatenate : callable
        ``concatenate(x, encoding)`` puts the encoding beside x, (batch, 2, 16), as further channels.
    steps : int
        How many batches of 32 fresh sequences; a multiple of 20.
    seed : int
        Draws the weights at the start, and all sequences.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `version` is unknown, `encoding` has not 16 rows, `steps` is no multiple of 20, or what
        `concatenate` gives has not the shape (batch, 2 + features, 16).
    """
    require_choice("version", version, VERSIONS)
    if encoding.dim() != 2 or len(encoding) != LENGTH:
        raise ValueError(f"encoding has shape {tuple(encoding.shape)}: expected ({LENGTH}, features)")
    if steps < 20 or steps % 20:
        raise ValueError(f"steps is {steps}: expected a multiple of 20")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _Network(encoding, concatenate)
    generator = torch.Generator().manual_seed(seed)
    data = make_data(version, steps * BATCH, generator)
    losses = (
        nn.functional.mse_loss(network(x), target)
        for x, target in zip(*(part.split(BATCH) for part in data), strict=True)
    )
    loss = one_cycle(network.parameters(), losses, steps, RATE)
    x, target = make_data(version, NUM_TEST, torch.Generator().manual_seed(_TEST_SEED))
    with torch.no_grad():
        error = nn.functional.mse_loss(network(x), target).item()
        # With more digits, so that a faint difference is not taken for rounding, nor rounding for one.
        network.double().encoding = encoding.double()
        alike = network(torch.zeros(4, 2, LENGTH, dtype=torch.float64))  # (4, 16)
    return Run(loss.view(20, -1).mean(1), error, alike)


def two_by_three(
    encodings: Mapping[str, Tensor], concatenate: Concatenate, *, steps: int = 200
) -> dict[str, dict[str, Run]]:
    """Train both versions with each encoding: by version, and then by the name of the encoding."""
    return {
        version: {
            name: train(version, encoding, concatenate, steps=steps) for name, encoding in encodings.items()
        }
        for version in VERSIONS
    }


def table(runs: Mapping[str, Mapping[str, Run]]) -> plots.Table:
    """The errors on fresh sequences: a row for each encoding, a column for each version."""
    first = next(iter(runs.values()))
    errors = {
        f"version {version}": [run.error for run in by_name.values()] for version, by_name in runs.items()
    }
    return plots.Table({"positions": list(first), **errors}, caption="Error on fresh sequences")


def figure(runs: Mapping[str, Mapping[str, Run]], blind: float) -> Captioned:
    """The training errors of both versions, and the line below which nobody comes who is blind to order."""
    plots.use_style()
    drawing, axes = plt.subplots(1, len(runs), figsize=(6, 2.8), sharey=True)
    words = []
    for ax, (version, by_name) in zip(axes, runs.items(), strict=True):
        for name, run in by_name.items():
            ax.plot(range(5, 101, 5), run.loss, label=name)
            words.append(f"version {version}, {name}: from {run.loss[0]:.0f} to {run.loss[-1]:.2f}")
        if version == "B":
            level(ax, blind)
        ax.set(title=f"version {version}", xlabel="percent of the training", yscale="log")
    axes[0].set_ylabel("error")
    axes[-1].legend()
    caption = (
        "Training error, a mean over each twentieth of the training. The axis is logarithmic. Grey: your "
        f"prediction for version B without positions, {blind:.2f}."
    )
    return Captioned(drawing, caption, "Curves of the training error. " + "; ".join(words) + ".")
