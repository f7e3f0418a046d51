"""The experiment of ``masking``: a small model learns which letter comes next, under a mask.

Each of ten letters is followed by one of two others, or always by the same one, so that a letter is all one
needs to know about the next. The model is a single attention layer, whose input says for each position which
letter stands there and which position it is. After training it writes, letter by letter: one new query at a
time, which is the last position.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from attncourse import plots
from attncourse._require import require_count, require_output
from attncourse.experiments._figure import Captioned, axes_for, level

LETTERS = "abcdefghij"
LENGTH, BATCH, KEY_DIM = 9, 64, 16
# For each letter the two that may come next, each with a chance of one half; or twice the same one.
_NEXT = torch.tensor([[3, 3], [7, 2], [5, 5], [8, 4], [0, 6], [9, 0], [1, 9], [2, 8], [6, 1], [4, 7]])

# Takes query, key, value and mask, and gives the output; and gives the mask for so many queries and keys.
Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
MaskOf = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    loss : Tensor, shape (steps,)
        The mean cross-entropy of each step.
    writing : float
        The mean cross-entropy of the next letter where the model is asked for one letter at a time.
    possible : float
        The share of letters written by the model that can follow the letter before them.
    written : str
        Some of what it has written.
    """

    loss: Tensor
    writing: float
    possible: float
    written: str


def chances() -> Tensor:
    """How often each letter is followed by each other.

    Returns
    -------
    Tensor, shape (10, 10)
        Rows sum to 1, and so do columns: all letters are equally frequent.
    """
    return F.one_hot(_NEXT, len(LETTERS)).double().mean(1).float()


def sequences(number: int, generator: torch.Generator) -> Tensor:
    """Random sequences of nine letters, as numbers.

    Parameters
    ----------
    number : int
        At least 1.
    generator : torch.Generator

    Returns
    -------
    Tensor, shape (number, 9), int64

    Raises
    ------
    ValueError
        If `number` is less than 1.
    """
    require_count("number", number, 1)
    letters = [torch.randint(len(LETTERS), (number,), generator=generator)]
    for _ in range(LENGTH - 1):
        which = torch.randint(2, (number,), generator=generator)
        letters.append(_NEXT[letters[-1], which])
    return torch.stack(letters, 1)


def train(attend: Attend, mask_of: MaskOf, *, steps: int = 200, seed: int = 4) -> Run:
    """Train the model to guess the next letter at all positions at once, and let it write.

    Parameters
    ----------
    attend : callable
        Called with query and key of shape (..., 16), value of shape (..., 10), and a mask.
    mask_of : callable
        Called with (9, 9) in training, and with one query when the model writes.
    steps : int
        At least 1.
    seed : int

    Returns
    -------
    Run

    Raises
    ------
    ValueError
        If `steps` is less than 1, or if `mask_of` or `attend` gives another shape than it should.
    """
    require_count("steps", steps, 1)
    generator = torch.Generator().manual_seed(seed)
    features = len(LETTERS) + LENGTH
    W_Q, W_K, W_V = (
        (torch.randn(features, dim, generator=generator) / 4).requires_grad_()
        for dim in (KEY_DIM, KEY_DIM, len(LETTERS))
    )
    optimiser = torch.optim.Adam([W_Q, W_K, W_V], lr=0.1)

    def guess(letters: Tensor, num_queries: int) -> Tensor:
        """Scores of the next letter for the last positions."""
        number, length = letters.shape
        place = torch.eye(LENGTH)[:length].expand(number, length, LENGTH)
        x = torch.cat([F.one_hot(letters, len(LETTERS)), place], -1)  # (number, length, features)
        mask = mask_of(num_queries, length)
        require_output("mask_of", mask, (num_queries, length))
        output = attend(x[:, length - num_queries :] @ W_Q, x @ W_K, x @ W_V, mask)
        require_output("attend", output, (number, num_queries, len(LETTERS)))
        return output

    losses = []
    for _ in range(steps):
        letters = sequences(BATCH, generator)
        # The whole sequence goes in; what is guessed after its last letter has no target.
        loss = F.cross_entropy(guess(letters, LENGTH)[:, :-1].mT, letters[:, 1:])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())

    with torch.no_grad():
        fresh = sequences(500, generator)
        one_at_a_time = [
            F.cross_entropy(guess(fresh[:, :length], 1)[:, 0], fresh[:, length])
            for length in range(1, LENGTH)
        ]
        letters = sequences(200, generator)[:, :1]
        while letters.shape[1] < LENGTH:
            weights = torch.softmax(guess(letters, 1)[:, 0], -1)
            letters = torch.cat([letters, weights.multinomial(1, generator=generator)], 1)
        possible = chances()[letters[:, :-1], letters[:, 1:]] > 0
    written = " ".join("".join(LETTERS[letter] for letter in row) for row in letters[:3])
    return Run(
        torch.tensor(losses),
        torch.stack(one_at_a_time).mean().item(),
        possible.float().mean().item(),
        written,
    )


def table(runs: Mapping[str, Run]) -> plots.Table:
    """The loss of each run at the end of training, and what it writes on its own."""
    return plots.Table(
        {
            "mask": list(runs),
            "loss in training": [run.loss[-20:].mean() for run in runs.values()],
            "possible": [f"{run.possible:.0%}" for run in runs.values()],
            "written": [run.written for run in runs.values()],
        }
    )


def figure(runs: Mapping[str, Run], best: float) -> Captioned:
    """The losses over the steps of training, and the level that was predicted.

    Parameters
    ----------
    runs : mapping of str to Run
        At most four, by their names.
    best : float
        A loss to be drawn as a level line.

    Raises
    ------
    ValueError
        If `runs` is empty or has more than four.
    """
    drawn, ax = axes_for(runs, 5.6, 3.6)
    level(ax, best, "predicted", below=True)
    for name, run in runs.items():
        ax.plot(run.loss, label=name)
    ax.set(xlabel="step", ylabel="cross-entropy", ylim=(-0.05, 2.6))
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
    ends = ", ".join(
        f"{name} from {run.loss[0]:.2f} to {run.loss[-20:].mean():.2f}" for name, run in runs.items()
    )
    return Captioned(
        drawn,
        "Cross-entropy of the next letter in training. Thin level line: what was predicted.",
        f"Curves over the steps: {ends}. The level line is at {best:.2f}.",
    )
