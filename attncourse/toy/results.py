"""Finished runs: the weights and, beside them, what was run and what came out."""

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attncourse.toy.data import NOISE_FLOOR, make_test_data
from attncourse.toy.evaluation import attention_shares, evaluate
from attncourse.toy.models import ToyModel
from attncourse.toy.training import Run

#: What comes with the course: the log of every run, and the weights of one run of every model.
RESULTS = Path(__file__).parent / "runs"


class Result(NamedTuple):
    """A finished run, its log, and its model if the weights are there."""

    run: Run
    log: dict[str, Any]
    model: ToyModel | None


def results(folder: Path = RESULTS) -> dict[str, Result]:
    """All results in a folder by their runs' names; by default, those that come with the course."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        run, model = Run(**log["run"]), None
        if path.with_suffix(".npz").exists():
            model = ToyModel(run.model, run.positions)
            with np.load(path.with_suffix(".npz")) as weights:
                model.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})
        found[run.name] = Result(run, log, model)
    return found


def save(run: Run, model: ToyModel, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.name
    np.savez(path.with_suffix(".npz"), **{name: w.half().numpy() for name, w in model.state_dict().items()})
    model.load_state_dict({name: weight.half() for name, weight in model.state_dict().items()})
    data = make_test_data(run.version)
    log = {
        "command": run.command,
        "run": dataclasses.asdict(run),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "cpu_seconds": round(log["cpu_seconds"]),
        "noise_floor": NOISE_FLOOR,
        "test_sequences": len(data.input),
        "test_mse": evaluate(model, data),
        "sequences": log["sequences"],
        "loss": [round(loss, 5) for loss in log["loss"]],
    }
    if run.model == "attention":
        log["attention_shares"] = attention_shares(model, make_test_data(run.version, 1_000))
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in log.items())
    # Last and in one step: where there is a log, the run is finished.
    path.with_suffix(".new").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    path.with_suffix(".new").replace(path.with_suffix(".json"))
