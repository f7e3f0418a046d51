"""Training runs that can be interrupted, what a finished one leaves in a folder, and commands for both."""

import argparse
import dataclasses
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


class Commanded:
    """A run, a dataclass in ``attncourse.<package>.training``, whose first field is given by its place."""

    @property
    def command(self) -> str:
        """What to type to train it."""
        package = ".".join(type(self).__module__.split(".")[:2])
        first, *others = dataclasses.fields(self)  # type: ignore[arg-type]
        options = " ".join(f"--{field.name} {getattr(self, field.name)}" for field in others)
        return f"python -m {package} train {getattr(self, first.name)} {options}"


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


AddCommand = Callable[[str, str], argparse.ArgumentParser]


def command_line(
    name: str, description: str, examples: str, folder: str
) -> tuple[argparse.ArgumentParser, AddCommand, argparse.ArgumentParser]:
    """The parser of ``python -m attncourse.<name>``, which trains models.

    Parameters
    ----------
    name, description, examples : str
    folder : str
        Where ``train`` writes to, if nothing else is said.

    Returns
    -------
    parser : argparse.ArgumentParser
    add : callable
        Adds a command, of its name and what it does.
    train : argparse.ArgumentParser
        The command ``train``, which has the folder, and lacks the options of a run.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m attncourse.{name}",
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--threads", type=int, default=1, help="how many threads PyTorch uses (default: 1)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(command: str, about: str) -> argparse.ArgumentParser:
        default = argparse.ArgumentDefaultsHelpFormatter
        return commands.add_parser(command, help=about, description=about, formatter_class=default)

    train = add("train", "train a model, and write its weights and a log of the training")
    train.add_argument("--out", type=Path, default=Path(folder), help="folder to write to")
    return parser, add, train


def run_command(
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    command: Callable[[argparse.Namespace], None],
) -> None:
    """Do what a command line asks for, and say in a line what is wrong with it."""
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    try:
        command(options)
    except ValueError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print("\nInterrupted. Give the same command again to go on.", file=sys.stderr)
        sys.exit(130)


def run_of(kind: type, options: argparse.Namespace) -> Any:
    """The run that the options of ``train`` describe."""
    return kind(**{field.name: getattr(options, field.name) for field in dataclasses.fields(kind)})


def finished(run: Any, name: str, folder: Path, package: Any) -> Any:
    """The result of a run in a folder, which is trained if it is not there.

    Parameters
    ----------
    run : dataclass
    name : str
        What its files are called.
    folder : Path
    package : module
        Of the run: it has `train`, `save` and `results`.

    Raises
    ------
    ValueError
        If another run has the name.
    """
    done = package.results(folder).get(name)
    if done is not None and done.run != run:
        raise ValueError(f"{folder} has another run of this name, {done.run.command}: choose another folder")
    if done is None:
        model, log = package.train(run, folder, progress=True)
        package.save(run, model, log, folder)
        done = package.results(folder)[name]
    (folder / f"{name}.checkpoint").unlink(missing_ok=True)
    return done
