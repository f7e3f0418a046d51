"""Training, which can be interrupted at any time."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._runs import Commanded, train_in_parts
from attncourse.letters.data import LONGEST, SHORTEST, random_words, text_batch
from attncourse.letters.models import LetterModel


@dataclasses.dataclass(frozen=True)
class Run(Commanded):
    """What decides a training run.

    Two equal runs give the same weights, bit for bit, on the same machine with the same
    versions of everything and as many threads.
    """

    task: str
    steps: int = 1_000
    batch: int = 32
    length: int = 64  # of the passages of text
    rate: float = 3e-3  # the highest learning rate of the cycle
    dropout: float = 0.0
    seed: int = 1


def training_loss(model: LetterModel, run: Run) -> Tensor:
    """The loss on fresh sequences: the mean of -log of the chance given to the letter that comes next."""
    if run.task == "text":
        letters, next_letters = text_batch(run.batch, run.length)
        scores = model(letters)
    else:
        length = int(torch.randint(SHORTEST, LONGEST + 1, ()))
        words, in_order = random_words(run.batch, length)
        scores, next_letters = model(in_order[:, :-1], words), in_order[:, 1:]
    return nn.functional.cross_entropy(scores.flatten(0, 1), next_letters.flatten())


def train(
    run: Run, folder: Path | None = None, *, progress: bool = False
) -> tuple[LetterModel, dict[str, Any]]:
    """Train a model: Adam, with a one-cycle learning rate.

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
    model : LetterModel
        In evaluation mode.
    log : dict
        "steps" and "loss", lists of up to 100 numbers: after how many steps, which mean
        training loss since the number before; and "cpu_seconds".

    Raises
    ------
    ValueError
        If `run` names an unknown task, or the checkpoint in `folder` is of a different run.
    """
    checkpoint = None if folder is None else Path(folder) / f"{run.task}.checkpoint"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = LetterModel(run.task, run.dropout)

        def losses(num_steps: int) -> Iterator[Tensor]:
            for _ in range(num_steps):
                yield training_loss(model, run)

        def told(done: int, loss: float) -> str:
            return f"{run.task}: {done:,} of {run.steps:,} steps, loss {loss:.3f}"

        log = train_in_parts(
            run,
            model,
            run.steps,
            losses,
            torch.default_generator,
            checkpoint,
            progress=told if progress else None,
        )
    return model.eval(), log
