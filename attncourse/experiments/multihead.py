"""The experiment of ``multihead``: every query asks for two things at a time.

A sequence has 6 items, each with a symbol as its key and a number as its value. A query names two of the
symbols, a first and a second, and should get both their numbers. Keys are made of symbols alone and values of
numbers alone, so that no weight depends on a number. What is learned are the vectors of the symbols, as keys
and as first and second part of a query, the layer, and what reads the two numbers from its output.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from attncourse import plots
from attncourse._require import require_count, require_output
from attncourse.experiments._figure import Captioned, axes_for, level
from attncourse.experiments._training import one_cycle
from attncourse.multihead import MultiHeadAttention

NUM_SYMBOLS, NUM_KEYS, NUM_QUERIES, MODEL_DIM, BATCH, RATE = 8, 6, 6, 32, 32, 1e-2
NUM_TEST = 500

# Makes a layer of the model's size with so many heads, which is called with query, key and value.
LayerClass = Callable[[int, int], nn.Module]
WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


@dataclass(frozen=True)
class Batch:
    """Sequences to look up in, and what is asked of them.

    Parameters
    ----------
    symbols : Tensor, shape (number, 6), int64
        Of each key its symbol; in one sequence no two are the same.
    wanted : Tensor, shape (number, 6, 2), int64
        Of each query the places of the two keys that it asks for, which differ.
    value : Tensor, shape (number, 6)
        The number that belongs to each key: mean 0, variance 1.
    """

    symbols: Tensor
    wanted: Tensor
    value: Tensor


def look_up_batch(number: int, generator: torch.Generator) -> Batch:
    """Random sequences.

    Raises
    ------
    ValueError
        If `number` is less than 1.
    """
    require_count("number", number, 1)
    symbols = torch.rand(number, NUM_SYMBOLS, generator=generator).argsort(-1)[:, :NUM_KEYS]
    wanted = torch.rand(number, NUM_QUERIES, NUM_KEYS, generator=generator).argsort(-1)[..., :2]
    return Batch(symbols, wanted, torch.randn(number, NUM_KEYS, generator=generator))


class Model(nn.Module):
    """Symbols and numbers in, a layer, two numbers for each query out."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer
        self.asking = nn.Parameter(torch.randn(2, NUM_SYMBOLS, MODEL_DIM))
        self.answering = nn.Parameter(torch.randn(NUM_SYMBOLS, MODEL_DIM))
        self.number = nn.Parameter(torch.randn(MODEL_DIM))
        self.read = nn.Parameter(torch.randn(MODEL_DIM, 2) / MODEL_DIM**0.5)

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value, each (number, 6, 32)."""
        asked = batch.symbols[:, None].expand(-1, NUM_QUERIES, -1).gather(2, batch.wanted)  # (number, 6, 2)
        query = self.asking[0][asked[..., 0]] + self.asking[1][asked[..., 1]]
        return query, self.answering[batch.symbols], batch.value[..., None] * self.number

    def loss(self, batch: Batch, layer: nn.Module | None = None) -> Tensor:
        """The mean squared error, with another layer in place of the model's own if one is given."""
        query, key, value = self.inputs(batch)
        output = (layer or self.layer)(query, key, value)
        require_output("layer", output, query.shape)
        right = batch.value[:, None].expand(-1, NUM_QUERIES, -1).gather(2, batch.wanted)  # (number, 6, 2)
        return (output @ self.read - right).square().mean()


class Run:
    """What a training leaves behind.

    Parameters
    ----------
    model : Model
        With a layer that has the four weights of the course's.
    losses : Tensor, shape (steps,)
        The mean squared error of each step.

    Attributes
    ----------
    maps : Tensor, shape (num_heads, 3000, 6)
        The weights of every head, for queries that it was not trained on.
    wanted : Tensor, shape (3000, 2)
        The keys that each of these queries asks for.
    """

    def __init__(self, model: Model, losses: Tensor) -> None:
        self.losses = losses
        self._model = model.requires_grad_(False)
        self._test = look_up_batch(NUM_TEST, torch.Generator().manual_seed(1_000_000))
        _, maps = self._layer(*self.weights())(*model.inputs(self._test), return_weights=True)
        self.maps = maps.transpose(0, 1).flatten(1, 2)
        self.wanted = self._test.wanted.flatten(0, 1)

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """W_Q, W_K, W_V and W_O as they were learned, copies."""
        W_Q, W_K, W_V, W_O = (getattr(self._model.layer, name).clone() for name in WEIGHTS)
        return W_Q, W_K, W_V, W_O

    def loss(self, head_mask: Tensor | None = None) -> Tensor:
        """The loss on new sequences, shape (), with each head's output times its number in the mask.

        Parameters
        ----------
        head_mask : Tensor, shape (num_heads,), optional

        Raises
        ------
        ValueError
            If `head_mask` has another shape.
        """
        W_Q, W_K, W_V, W_O = self.weights()
        if head_mask is None:
            head_mask = torch.ones(len(W_Q))
        if head_mask.shape != (len(W_Q),):
            raise ValueError(
                f"head_mask has shape {tuple(head_mask.shape)}: expected ({len(W_Q)},), one number a head"
            )
        return self.loss_of(W_Q, W_K, W_V, W_O * head_mask.repeat_interleave(W_V.shape[2])[:, None])

    def loss_of(self, W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> Tensor:
        """The loss on new sequences, shape (), of the layer with these weights: of fewer heads, say."""
        return self._model.loss(self._test, self._layer(W_Q, W_K, W_V, W_O))

    @staticmethod
    def _layer(W_Q: Tensor, W_K: Tensor, W_V: Tensor, W_O: Tensor) -> MultiHeadAttention:
        num_heads, model_dim, key_dim = W_Q.shape
        layer = MultiHeadAttention(model_dim, num_heads, key_dim, W_V.shape[2])
        for name, weight in zip(WEIGHTS, (W_Q, W_K, W_V, W_O), strict=True):
            own = getattr(layer, name)
            if own.shape != weight.shape:
                raise ValueError(f"{name} has shape {tuple(weight.shape)}: expected {tuple(own.shape)}")
            own.data = weight.detach().clone()
        return layer.requires_grad_(False)


def train(layer_class: LayerClass, num_heads: int, *, steps: int = 500, seed: int = 0) -> Run:
    """Train a model on fresh sequences.

    Parameters
    ----------
    layer_class : callable
        ``layer_class(32, num_heads)`` makes the layer: four parameters with the names and shapes of the
        course's, called with query, key and value of shape (32, 6, 32).
    num_heads : int
    steps : int
        At least 1.
    seed : int
        Draws the weights at the start, and all sequences.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `steps` or `num_heads` is less than 1, or the layer gives something of another shape than query.
    """
    require_count("num_heads", num_heads, 1)
    require_count("steps", steps, 1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Model(layer_class(MODEL_DIM, num_heads))
    generator = torch.Generator().manual_seed(seed)
    losses = (model.loss(look_up_batch(BATCH, generator)) for _ in range(steps))
    return Run(model, one_cycle(model.parameters(), losses, steps, RATE))


def table(runs: Mapping[int, Run], predicted: Mapping[int, float]) -> plots.Table:
    """For each number of heads what was predicted, and the loss on sequences that are new."""
    return plots.Table(
        {
            "heads": list(runs),
            "features a head": [MODEL_DIM // heads for heads in runs],
            "predicted": [float(predicted[heads]) for heads in runs],
            "loss": [run.loss() for run in runs.values()],
        },
        ".3f",
    )


def figure(runs: Mapping[int, Run], predicted: Mapping[int, float]) -> Captioned:
    """The losses over the steps, and the levels that were predicted.

    Parameters
    ----------
    runs : mapping of int to Run
        At most four, by their numbers of heads.
    predicted : mapping of int to float
        The loss of each.

    Raises
    ------
    ValueError
        If `runs` is empty or has more than four.
    """
    drawn, ax = axes_for(runs, 5.2, 3.2)
    for height in {float(predicted[heads]) for heads in runs}:
        level(ax, height)
    ends = []
    for heads, run in runs.items():
        means = torch.stack([part.mean() for part in run.losses.tensor_split(min(50, len(run.losses)))])
        steps = (torch.arange(len(means)) + 0.5) * len(run.losses) / len(means)
        name = f"{heads} head" if heads == 1 else f"{heads} heads"
        ax.plot(steps, means, label=name)
        ends.append(f"{name} from {means[0]:.2f} to {means[-1]:.2f}")
    ax.set(xlabel="step", ylabel="mean squared error", ylim=(-0.05, None))
    ax.legend()
    levels = ", ".join(f"{float(predicted[heads]):.2f} for {heads}" for heads in runs)
    return Captioned(
        drawn,
        "Mean squared error in training, by the number of heads. Thin level lines: what was predicted.",
        f"Falling curves: {'; '.join(ends)}. Level lines: {levels}.",
    )
