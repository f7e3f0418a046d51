"""Training, which can be interrupted at any time."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncourse.letters.data import LONGEST, SHORTEST, random_words, text_batch
from attncourse.letters.models import LetterModel


@dataclasses.dataclass(frozen=True)
class Run:
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

    @property
    def command(self) -> str:
        """What to type to train it."""
        options = " ".join(
            f"--{field.name} {getattr(self, field.name)}" for field in dataclasses.fields(self)[1:]
        )
        return f"python -m attncourse.letters train {self.task} {options}"


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
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = LetterModel(run.task, run.dropout)
        optimizer = torch.optim.Adam(model.parameters(), lr=run.rate)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=run.rate, total_steps=run.steps)
        log: dict[str, Any] = {"steps": [], "loss": [], "cpu_seconds": 0.0}

        checkpoint = None if folder is None else Path(folder) / f"{run.task}.checkpoint"
        if checkpoint is not None and checkpoint.exists():
            state = torch.load(checkpoint, weights_only=True)
            if state["run"] != dataclasses.asdict(run):
                raise ValueError(
                    f"{checkpoint} is of a different run, {Run(**state['run']).command}: remove it"
                )
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
            schedule.load_state_dict(state["schedule"])
            torch.random.set_rng_state(state["random"])
            log = state["log"]

        num_parts = min(100, run.steps)
        for part in range(len(log["loss"]), num_parts):
            start, stop = (run.steps * end // num_parts for end in (part, part + 1))
            began = time.process_time()
            losses = []
            for _ in range(start, stop):
                loss = training_loss(model, run)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                schedule.step()
                losses.append(loss.item())
            log["steps"].append(stop)
            log["loss"].append(sum(losses) / len(losses))
            log["cpu_seconds"] += time.process_time() - began
            if progress:
                line = f"\r{run.task}: {stop:,} of {run.steps:,} steps, loss {log['loss'][-1]:.3f}  "
                print(line, end="" if part + 1 < num_parts else "\n", file=sys.stderr, flush=True)
            if checkpoint is not None:
                state = {
                    "run": dataclasses.asdict(run),
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "schedule": schedule.state_dict(),
                    "random": torch.random.get_rng_state(),
                    "log": log,
                }
                checkpoint.parent.mkdir(parents=True, exist_ok=True)
                # Replaced in one step, so that an interruption leaves the old one or the new one, whole.
                torch.save(state, checkpoint.with_suffix(".new"))
                checkpoint.with_suffix(".new").replace(checkpoint)
    return model.eval(), log
