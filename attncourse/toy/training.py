"""Training on fresh sequences, which can be interrupted at any time."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

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
    optimizer = torch.optim.Adam(model.parameters(), lr=run.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=run.rate, total_steps=num_steps)
    generator = torch.Generator().manual_seed(run.seed)
    log: dict[str, Any] = {"sequences": [], "loss": [], "cpu_seconds": 0.0}

    checkpoint = None if folder is None else Path(folder) / f"{run.name}.checkpoint"
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["run"] != dataclasses.asdict(run):
            raise ValueError(f"{checkpoint} is of a different run, {Run(**state['run']).command}: remove it")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        generator.set_state(state["generator"])
        log = state["log"]

    num_parts = min(100, num_steps)
    for part in range(len(log["loss"]), num_parts):
        start, stop = (num_steps * end // num_parts * run.batch for end in (part, part + 1))
        began = time.process_time()
        data = make_data(run.version, stop - start, generator)
        losses = []
        for x, target in zip(data.input.split(run.batch), data.target.split(run.batch), strict=True):
            loss = nn.functional.mse_loss(model(x), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        log["sequences"].append(stop)
        log["loss"].append(sum(losses) / len(losses))
        log["cpu_seconds"] += time.process_time() - began
        if progress:
            line = f"\r{run.name}: {stop:,} of {run.sequences:,} sequences, loss {log['loss'][-1]:.3f}  "
            print(line, end="" if part + 1 < num_parts else "\n", file=sys.stderr, flush=True)
        if checkpoint is not None:
            state = {
                "run": dataclasses.asdict(run),
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "schedule": schedule.state_dict(),
                "generator": generator.get_state(),
                "log": log,
            }
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
            # Replaced in one step, so that an interruption leaves the old one or the new one, whole.
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    return model, log
