"""Training runs that can be interrupted at any time, and what a finished one leaves in a folder."""

import dataclasses
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


def train_in_parts(
    run: Any,
    model: nn.Module,
    num_steps: int,
    losses: Callable[[int], Iterator[Tensor]],
    generator: torch.Generator,
    checkpoint: Path | None,
    *,
    progress: Callable[[int, float], str] | None = None,
) -> dict[str, Any]:
    """Train with Adam and a one-cycle learning rate, in up to 100 parts, keeping a checkpoint after each.

    Parameters
    ----------
    run : dataclass
        What decides the run. Its `rate` is the highest learning rate, its `command` what to type.
    model : nn.Module
        As it starts. It is changed.
    num_steps : int
    losses : callable
        Of a number of steps, the loss of the model in each of them.
    generator : torch.Generator
        Where `losses` draws its data from.
    checkpoint : Path or None
        A file from which the same run goes on, and to the same weights.
    progress : callable, optional
        Of the number of steps that are done and the mean loss of the last part, the line to show.

    Returns
    -------
    dict
        "steps" and "loss", lists of one number for each part: after how many steps, which mean
        loss since the number before; and "cpu_seconds".

    Raises
    ------
    ValueError
        If the checkpoint is of a different run.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=run.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=run.rate, total_steps=num_steps)
    log: dict[str, Any] = {"steps": [], "loss": [], "cpu_seconds": 0.0}
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        if state["run"] != dataclasses.asdict(run):
            other = dataclasses.replace(run, **state["run"])
            raise ValueError(f"{checkpoint} is of a different run, {other.command}: remove it")
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        generator.set_state(state["generator"])
        log = state["log"]

    num_parts = min(100, num_steps)
    for part in range(len(log["loss"]), num_parts):
        start, stop = (num_steps * end // num_parts for end in (part, part + 1))
        began = time.process_time()
        total = 0.0
        for loss in losses(stop - start):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        log["steps"].append(stop)
        log["loss"].append(total / (stop - start))
        log["cpu_seconds"] += time.process_time() - began
        if progress:
            line = f"\r{progress(stop, log['loss'][-1])}  "
            print(line, end="" if stop < num_steps else "\n", file=sys.stderr, flush=True)
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
    return log


def save_weights(path: Path, model: nn.Module) -> None:
    """Write the weights, rounded to numbers of 16 bits, and leave the model with these."""
    rounded = {name: weight.half() for name, weight in model.state_dict().items()}
    np.savez(path, **{name: weight.numpy() for name, weight in rounded.items()})
    model.load_state_dict(rounded)


def load_weights(path: Path, model: nn.Module) -> None:
    """Give a model the weights of a file."""
    with np.load(path) as weights:
        model.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})


def save_log(path: Path, run: Any, model: nn.Module, log: dict[str, Any], tested: dict[str, Any]) -> None:
    """Write what was run, what the model achieves, and how the training went.

    In one step, and after the weights: where there is a log, the run is finished.
    """
    entries = {
        "command": run.command,
        "run": dataclasses.asdict(run),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        **tested,
        **log,
        "cpu_seconds": round(log["cpu_seconds"]),
        "loss": [round(loss, 5) for loss in log["loss"]],
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in entries.items())
    path.with_suffix(".new").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    path.with_suffix(".new").replace(path)
