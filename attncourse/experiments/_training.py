"""The descent that several experiments share."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn


def one_cycle(
    parameters: Iterable[nn.Parameter], losses: Iterable[Tensor], steps: int, rate: float
) -> Tensor:
    """Take a step of Adam down each loss, at a rate that rises once and falls again.

    Parameters
    ----------
    parameters : iterable of nn.Parameter
        What is learned.
    losses : iterable of Tensor, each of shape ()
        Each is asked for after the step down the one before it, so it may be of new sequences.
    steps : int
        How many losses there are.
    rate : float
        The highest learning rate.

    Returns
    -------
    Tensor, shape (steps,)
        The losses.
    """
    optimiser = torch.optim.Adam(parameters, lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps)
    found = []
    for loss in losses:
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        found.append(loss.item())
    return torch.tensor(found)
