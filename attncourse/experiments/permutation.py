"""The experiment of ``permutation``: convolutions only, or a layer of attention in their middle.

Both networks are those of the running experiment, made narrower so that some seconds are enough: they learn
version A, in which both triangles get the mean height of the triangles and both rectangles theirs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attncourse import plots, toy
from attncourse._require import require_count, require_output
from attncourse.experiments._figure import Captioned, axes_for, level
from attncourse.experiments._training import one_cycle

CHANNELS, WIDTH, BATCH, RATE = 24, 5, 10, 8e-3
NUM_TEST = 500

# Takes x, (batch, channels, positions), and the weights of three convolutions of width 1; positions last.
Layer = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    sequences : Tensor, shape (parts,)
        After how many sequences each part of the training ends.
    loss : Tensor, shape (parts,)
        The mean squared error, a mean over the part.
    parameters : int
        How many numbers the network learns.
    height, centre : Tensor, shape (500, 4)
        The shapes of sequences that it was not trained on: two triangles, then two rectangles.
    drawn : Tensor, shape (500, 4)
        How high the network draws each of them.
    """

    sequences: Tensor
    loss: Tensor
    parameters: int
    height: Tensor
    centre: Tensor
    drawn: Tensor


class _Attention(nn.Module):
    """The student's layer, with weights to learn."""

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self.layer = layer
        shape = (CHANNELS, CHANNELS, 1)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(shape)) for _ in range(3))
        for weight in self.parameters():
            nn.init.uniform_(weight, -(CHANNELS**-0.5), CHANNELS**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x, self.W_Q, self.W_K, self.W_V)
        require_output("layer", y, x.shape)
        return y


def heights() -> tuple[Tensor, Tensor, float]:
    """What is to be learned, and how much an error in it counts.

    Returns
    -------
    height, target : Tensor, shape (10000, 4)
        The heights of the shapes, and the heights that they are to get.
    cost : float
        By how much the loss rises if all heights are wrong by 1: most positions are on no shape, where
        nothing is to be got wrong.
    """
    data = toy.make_test_data("A")
    cost = toy.profiles(data.centre, data.width).square().sum(1).mean()
    return data.height, data.target_height, cost.item()


def train(layer: Layer | None = None, *, sequences: int = 6400, seed: int = 1) -> Run:
    """Train a network of five layers on fresh sequences, each of which is seen once.

    Parameters
    ----------
    layer : callable, optional
        Stands in the middle, in place of the third convolution and its ReLU. It is called with x of shape
        (10, 24, 100), positions last, and three weights of shape (24, 24, 1). Without it all five layers
        are convolutions.
    sequences : int
        A multiple of 80, so that the training has eight equal parts.
    seed : int
        Draws the weights at the start, and all sequences.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `sequences` is no multiple of 80, or `layer` gives something of another shape than x.
    """
    require_count("sequences", sequences, 8 * BATCH)
    if sequences % (8 * BATCH):
        raise ValueError(f"sequences is {sequences}: expected a multiple of {8 * BATCH}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = _network(layer)
    data = toy.make_data("A", sequences, torch.Generator().manual_seed(seed))
    losses = (
        nn.functional.mse_loss(network(_standardised(x)), target)
        for x, target in zip(data.input.split(BATCH), data.target.split(BATCH), strict=True)
    )
    loss = one_cycle(network.parameters(), losses, sequences // BATCH, RATE)
    test = toy.make_test_data("A", NUM_TEST)
    profile = toy.profiles(test.centre, test.width)  # (500, 4, 100)
    with torch.no_grad():
        y = torch.cat([network(_standardised(x)) for x in test.input.split(BATCH)])  # (500, 1, 100)
    # The shapes do not overlap, so the height that fits best is that of each by itself.
    drawn = (y * profile).sum(-1) / profile.square().sum(-1)  # (500, 4)
    parts = loss.view(8, -1).mean(-1)
    ends = torch.arange(1, 9) * sequences // 8
    parameters = sum(weight.numel() for weight in network.parameters())
    return Run(ends, parts, parameters, test.height, test.centre, drawn)


def _network(layer: Layer | None) -> nn.Sequential:
    def convolution(in_channels: int, out_channels: int) -> nn.Conv1d:
        return nn.Conv1d(in_channels, out_channels, WIDTH, padding=WIDTH // 2)

    middle = [convolution(CHANNELS, CHANNELS), nn.ReLU()] if layer is None else [_Attention(layer)]
    return nn.Sequential(
        convolution(1, CHANNELS),
        nn.ReLU(),
        convolution(CHANNELS, CHANNELS),
        nn.ReLU(),
        *middle,
        convolution(CHANNELS, CHANNELS),
        nn.ReLU(),
        convolution(CHANNELS, 1),
    )


def _standardised(x: Tensor) -> Tensor:
    return (x - toy.INPUT_MEAN) / toy.INPUT_STD


def table(runs: Mapping[str, Run]) -> plots.Table:
    """Of each network how many numbers it learns, and its loss in the first, fourth and last part."""
    return plots.Table(
        {
            "network": list(runs),
            "parameters": [run.parameters for run in runs.values()],
            "loss, 1st eighth": [run.loss[0] for run in runs.values()],
            "4th": [run.loss[3] for run in runs.values()],
            "last": [run.loss[-1] for run in runs.values()],
        }
    )


def figure(runs: Mapping[str, Run], predicted: float) -> Captioned:
    """The losses over the sequences, and the line that was predicted.

    Parameters
    ----------
    runs : mapping of str to Run
        At most four, by their names.
    predicted : float
        Where the convolutions should stop.

    Raises
    ------
    ValueError
        If `runs` is empty or has more than four.
    """
    drawn, ax = axes_for(runs, 5.2, 3.2)
    level(ax, float(predicted), "predicted")
    for name, run in runs.items():
        ax.plot(run.sequences, run.loss, label=name)
    ax.set(yscale="log", xlabel="sequences", ylabel="mean squared error")
    ax.legend()
    ends = ", ".join(f"{name} from {run.loss[0]:.1f} to {run.loss[-1]:.2f}" for name, run in runs.items())
    return Captioned(
        drawn,
        "Mean squared error in training, a point for each eighth of it, on a logarithmic scale. Thin line: "
        "where the convolutions were predicted to stop.",
        f"Falling curves: {ends}. The level line is at {float(predicted):.2f}.",
    )
