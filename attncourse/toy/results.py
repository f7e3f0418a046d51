"""Finished runs: the weights and, beside them, what was run and what came out."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from attncourse._runs import load_weights, save_log, save_weights
from attncourse.toy.data import NOISE_FLOOR, make_test_data
from attncourse.toy.evaluation import attention_shares, evaluate
from attncourse.toy.models import ToyModel
from attncourse.toy.training import Run

#: What comes with the course: the log of every run, and the weights of one run of every model.
RESULTS = Path(__file__).parent / "runs"


class Result(NamedTuple):
    """A finished run, its log, and its model if the weights are there."""

    #: What decided the training.
    run: Run
    #: What the training and the tests gave, as the log's file has it.
    log: dict[str, Any]
    #: The trained model, or None if its weights are not in the folder.
    model: ToyModel | None


def results(folder: Path = RESULTS) -> dict[str, Result]:
    """All results in a folder by their runs' names; by default, those that come with the course."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        run, model = Run(**log["run"]), None
        if path.with_suffix(".npz").exists():
            model = ToyModel(run.model, run.positions)
            load_weights(path.with_suffix(".npz"), model)
        found[run.name] = Result(run, log, model)
    return found


def save(run: Run, model: ToyModel, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.name
    save_weights(path.with_suffix(".npz"), model)
    data = make_test_data(run.version)
    tested: dict[str, Any] = {
        "noise_floor": NOISE_FLOOR,
        "test_sequences": len(data.input),
        "test_mse": evaluate(model, data),
    }
    if run.model == "attention":
        tested["attention_shares"] = attention_shares(model, make_test_data(run.version, 1_000))
    save_log(path.with_suffix(".json"), run, model, log, tested)
