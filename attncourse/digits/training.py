"""Training, which can be interrupted at any time."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from attncourse._require import require_choice, require_count
from attncourse._runs import Commanded, train_in_parts
from attncourse.digits.data import ORDERS, digits, reordered, shifted
from attncourse.digits.models import make_model


@dataclasses.dataclass(frozen=True)
class Run(Commanded):
    """What decides a training run.

    Two equal runs give the same weights, bit for bit, on the same machine with the same
    versions of everything and as many threads.
    """

    model: str
    positions: str = "learned"  # of the Vision Transformer
    order: str = "kept"  # of the patches, in training
    steps: int = 2_000
    batch: int = 64
    rate: float = 5e-3  # the highest learning rate of the cycle
    seed: int = 1

    @property
    def name(self) -> str:
        """What the run's files are called."""
        positions = f"-{self.positions}" if self.model == "attention" else ""
        return f"{self.model}{positions}-{self.order}-seed{self.seed}"


def train(
    run: Run, folder: Path | None = None, *, progress: bool = False
) -> tuple[nn.Module, dict[str, Any]]:
    """Train a model on the digits that are not held out: Adam, with a one-cycle learning rate.

    Each picture is moved by at most one pixel, at random, before its patches are put in their order.

    Parameters
    ----------
    run : Run
    folder : Path, optional
        Where to keep a checkpoint, from which the same call goes on after an
        interruption, and to the same weights. Without one, nothing is written.
    progress : bool
        Show a line that says how far the training is.

    Returns
    -------
    model : nn.Module
        In evaluation mode.
    log : dict
        "steps" and "loss", lists of up to 100 numbers: after how many steps, which mean
        training loss since the number before; and "cpu_seconds".

    Raises
    ------
    ValueError
        If `run` names an unknown model, positions or order, or the checkpoint in `folder` is of a
        different run.
    """
    require_choice("order", run.order, ORDERS)
    require_count("steps", run.steps, least=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = make_model(run.model, run.positions)
    generator = torch.Generator().manual_seed(run.seed)
    known, _ = digits()

    def losses(num_steps: int) -> Iterator[Tensor]:
        for _ in range(num_steps):
            drawn = torch.randint(len(known.labels), (run.batch,), generator=generator)
            images = reordered(shifted(known.images[drawn], generator), run.order, generator)
            yield nn.functional.cross_entropy(model(images), known.labels[drawn])

    def told(done: int, loss: float) -> str:
        return f"{run.name}: {done:,} of {run.steps:,} steps, loss {loss:.3f}"

    checkpoint = None if folder is None else Path(folder) / f"{run.name}.checkpoint"
    # For seventeen tokens PyTorch's plain way to attend is faster than the one that saves memory.
    with sdpa_kernel(SDPBackend.MATH):
        log = train_in_parts(
            run, model, run.steps, losses, generator, checkpoint, progress=told if progress else None
        )
    return model.eval(), log
