"""Training on fresh sequences, which can be interrupted at any time."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._runs import train_in_parts
from attncourse.toy.data import make_data
from attncourse.toy.models import ToyModel


@dataclasses.dataclass(frozen=True)
class Run:
    """What decides a training run.

    Two equal runs give the same weights, bit for bit, on the same machine with the same
    versions of everything and as many threads.
    """

    version: str
    model: str
    positions: str = "none"
    sequences: int = 30_000
    batch: int = 10
    rate: float = 2e-3  # the highest learning rate of the cycle
    seed: int = 1

    @property
    def name(self) -> str:
        """What the run's files are called."""
        return f"{self.version}-{self.model}-{self.positions}-seed{self.seed}"

    @property
    def command(self) -> str:
        """What to type to train it."""
        return (
            f"python -m attncourse.toy train {self.version} {self.model} --positions {self.positions} "
            f"--sequences {self.sequences} --batch {self.batch} --rate {self.rate} --seed {self.seed}"
        )


def train(run: Run, folder: Path | None = None, *, progress: bool = False) -> tuple[ToyModel, dict[str, Any]]:
    """Train a model on fresh sequences, each seen once: Adam, with a one-cycle learning rate.

    Parameters
    ----------
    run : Run
        Its number of sequences is a multiple of its batch size.
    folder : Path, optional
        Where to keep a checkpoint, from which the same call goes on after an
        interruption, and to the same weights. Without one, nothing is written.
    progress : bool
        Show a line that says how far the training is.

    Returns
    -------
    model : ToyModel
    log : dict
        "sequences" and "loss", lists of up to 100 numbers: after how many sequences, which
        mean training loss since the number before; and "cpu_seconds".

    Raises
    ------
    ValueError
        If `run` names an unknown version or model, its number of sequences is no multiple
        of its batch size, or the checkpoint in `folder` is of a different run.
    """
    num_steps, rest = divmod(run.sequences, run.batch)
    if rest or num_steps < 1:
        raise ValueError(f"sequences is {run.sequences}: expected a multiple of the batch size, {run.batch}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = ToyModel(run.model, run.positions)
    generator = torch.Generator().manual_seed(run.seed)

    def losses(num_steps: int) -> Iterator[Tensor]:
        data = make_data(run.version, num_steps * run.batch, generator)
        for x, target in zip(data.input.split(run.batch), data.target.split(run.batch), strict=True):
            yield nn.functional.mse_loss(model(x), target)

    def told(done: int, loss: float) -> str:
        return f"{run.name}: {done * run.batch:,} of {run.sequences:,} sequences, loss {loss:.3f}"

    checkpoint = None if folder is None else Path(folder) / f"{run.name}.checkpoint"
    log = train_in_parts(
        run, model, num_steps, losses, generator, checkpoint, progress=told if progress else None
    )
    return model, {"sequences": [steps * run.batch for steps in log.pop("steps")], **log}
