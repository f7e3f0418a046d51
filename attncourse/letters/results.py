"""Finished runs: how good they are, the weights, and beside them what was run and what came out."""

import dataclasses
import json
import platform
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from attncourse.letters.data import LONGEST, SHORTEST, random_words, text_parts
from attncourse.letters.models import LetterModel
from attncourse.letters.training import Run

#: What comes with the course: the weights and the log of one run of each task.
RESULTS = Path(__file__).parent / "runs"
#: Words for the tests come from this seed, which no training run uses.
TEST_SEED = 1_000_000_007


class Result(NamedTuple):
    """A finished run, its log, and its model in evaluation mode."""

    run: Run
    log: dict[str, Any]
    model: LetterModel


@torch.no_grad()
def evaluate(model: LetterModel, task: str) -> dict[str, float]:
    """How good a model is on what it has not been trained on.

    Returns
    -------
    dict
        For "text", "held_out": the mean of -log of the chance given to each letter of the
        held-out part, from up to 63 letters before it. For "sorting", "words_right": the
        share of 11,000 fresh words, 1,000 of each length, whose every letter and end are
        the ones with the highest score when those before are given.
    """
    if task == "text":
        numbers = text_parts()[1]
        losses = []
        for start in range(0, len(numbers) - 1, 32):
            # Letters before the first of these are there to look at, and are not scored.
            passage = numbers[max(0, start - 31) : start + 33]
            scores = model(passage[:-1])
            scored = min(32, len(numbers) - 1 - start)
            losses.append(F.cross_entropy(scores, passage[1:], reduction="none")[-scored:])
        return {"held_out": float(torch.cat(losses).mean())}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(TEST_SEED)
        right = []
        for length in range(SHORTEST, LONGEST + 1):
            words, in_order = random_words(1_000, length)
            found = model(in_order[:, :-1], words).argmax(-1)  # (1000, length + 1)
            right.append((found == in_order[:, 1:]).all(1))
    return {"words_right": float(torch.cat(right).float().mean())}


def results(folder: Path = RESULTS) -> dict[str, Result]:
    """All results in a folder by their tasks; by default, those that come with the course."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        run = Run(**log["run"])
        model = LetterModel(run.task).eval()
        with np.load(path.with_suffix(".npz")) as weights:
            model.load_state_dict({name: torch.from_numpy(weights[name]).float() for name in weights})
        found[run.task] = Result(run, log, model)
    return found


def save(run: Run, model: LetterModel, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.task
    np.savez(path.with_suffix(".npz"), **{name: w.half().numpy() for name, w in model.state_dict().items()})
    model.load_state_dict({name: weight.half() for name, weight in model.state_dict().items()})
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
        "test": evaluate(model, run.task),
        "steps": log["steps"],
        "loss": [round(loss, 5) for loss in log["loss"]],
    }
    lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in log.items())
    # Last and in one step: where there is a log, the run is finished.
    path.with_suffix(".new").write_text("{\n" + lines + "\n}\n", encoding="utf-8")
    path.with_suffix(".new").replace(path.with_suffix(".json"))
