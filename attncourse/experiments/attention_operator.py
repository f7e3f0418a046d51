"""The experiment of ``attention_operator``: an operator learns to look numbers up.

A sequence has 16 keys, each with a number as its value. The keys are symbols, 16 different ones out of 32.
Each of 16 queries asks for one of the 16 symbols, and should get the number that belongs to it. What is
learned are the vectors of the symbols, as queries and as keys; nothing else can be.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from attncourse import plots
from attncourse._require import require_count, require_output
from attncourse.experiments._figure import Captioned, axes_for, level

NUM_SYMBOLS, NUM_KEYS, KEY_DIM, BATCH = 32, 16, 256, 32

# Takes query, key and value, and gives the output, as `attncourse.attention` does.
Operator = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    loss : Tensor, shape (steps,)
        The mean squared error of each step.
    before, after : Tensor, shape (16, 16)
        The weights for one and the same sequence, before training and after it.
    """

    loss: Tensor
    before: Tensor
    after: Tensor


def look_up_batch(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Random sequences to look up in.

    Parameters
    ----------
    number : int
        How many sequences, at least 1.
    generator : torch.Generator

    Returns
    -------
    symbols : Tensor, shape (number, 16), int64
        Of each key its symbol; in one sequence no two are the same.
    asked : Tensor, shape (number, 16), int64
        Of each query the place of the key that it asks for.
    value : Tensor, shape (number, 16, 1)
        The number that belongs to each key: mean 0, variance 1.

    Raises
    ------
    ValueError
        If `number` is less than 1.
    """
    require_count("number", number, 1)
    symbols = torch.rand(number, NUM_SYMBOLS, generator=generator).argsort(-1)[:, :NUM_KEYS]
    asked = torch.randint(NUM_KEYS, (number, NUM_KEYS), generator=generator)
    value = torch.randn(number, NUM_KEYS, 1, generator=generator)
    return symbols, asked, value


def train(operator: Operator, *, steps: int = 200, seed: int = 0) -> Run:
    """Train the vectors of the symbols so that the operator looks numbers up.

    Parameters
    ----------
    operator : callable
        Called with query and key of shape (32, 16, 256) and value of shape (32, 16, 1).
    steps : int
        At least 1.
    seed : int
        Draws the vectors at the start, and all sequences.

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `steps` is less than 1, or the output of `operator` has another shape than the values.
    """
    require_count("steps", steps, 1)
    generator = torch.Generator().manual_seed(seed)
    as_query = torch.randn(NUM_SYMBOLS, KEY_DIM, generator=generator).requires_grad_()
    as_key = torch.randn(NUM_SYMBOLS, KEY_DIM, generator=generator).requires_grad_()
    shown_symbols, shown_asked, _ = look_up_batch(1, generator)
    optimiser = torch.optim.Adam([as_query, as_key], lr=0.01)

    def look_up(symbols: Tensor, asked: Tensor, value: Tensor) -> Tensor:
        query = as_query[symbols.gather(1, asked)]  # (number, 16, 256)
        output = operator(query, as_key[symbols], value)
        require_output("operator", output, (*query.shape[:2], value.shape[2]))
        return output

    @torch.no_grad()
    def weights() -> Tensor:
        # Values that are one-hot come back as the weights.
        return look_up(shown_symbols, shown_asked, torch.eye(NUM_KEYS)[None])[0].clone()

    before, losses = weights(), []
    for _ in range(steps):
        symbols, asked, value = look_up_batch(BATCH, generator)
        right = value.gather(1, asked[..., None])  # (32, 16, 1)
        loss = (look_up(symbols, asked, value) - right).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return Run(torch.tensor(losses), before, weights())


def table(runs: Mapping[str, Run]) -> plots.Table:
    """The loss of each run at its start and at its end, as means of ten steps."""
    return plots.Table(
        {
            "operator": list(runs),
            "loss at the start": [run.loss[:10].mean() for run in runs.values()],
            "at the end": [run.loss[-10:].mean() for run in runs.values()],
        }
    )


def figure(runs: Mapping[str, Run], levels: Mapping[str, float]) -> Captioned:
    """The losses over the steps, and the levels that were predicted.

    Parameters
    ----------
    runs : mapping of str to Run
        At most four, by their names.
    levels : mapping of str to float
        Losses to be drawn as level lines, by their names.

    Raises
    ------
    ValueError
        If `runs` is empty or has more than four.
    """
    drawn, ax = axes_for(runs, 5.6, 3.4)
    for name, height in levels.items():
        level(ax, height, name)
    for name, run in runs.items():
        tens = run.loss[: len(run.loss) // 10 * 10].view(-1, 10).mean(-1) if len(run.loss) >= 10 else run.loss
        width = len(run.loss) / len(tens)
        ax.plot((torch.arange(len(tens)) + 0.5) * width, tens, label=name)
    ax.set(xlabel="step", ylabel="mean squared error", ylim=(-0.05, 2.1))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=len(runs))
    ends = ", ".join(
        f"{name} from {run.loss[:10].mean():.2f} to {run.loss[-10:].mean():.2f}" for name, run in runs.items()
    )
    return Captioned(
        drawn,
        "Mean squared error while the vectors of the symbols are learned, a mean of ten steps each. "
        "Thin level lines: what was predicted.",
        f"Curves over the steps: {ends}. Level lines: "
        + (", ".join(f"{name} at {height:.2f}" for name, height in levels.items()) or "none")
        + ".",
    )
