"""Finished runs: the weights and, beside them, what was run and what came out."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attncourse._runs import load_weights, save_log, save_weights
from attncourse.digits.data import ORDERS, digits, reordered
from attncourse.digits.models import make_model
from attncourse.digits.training import Run

#: What comes with the course: the log of every run, and the weights of one run of some models.
RESULTS = Path(__file__).parent / "runs"
#: Orders for the tests come from this seed, which no training run uses.
TEST_SEED = 1_000_000_007


class Result(NamedTuple):
    """A finished run, its log, and its model if the weights are there."""

    #: What decided the training.
    run: Run
    #: What the training and the tests gave, as the log's file has it.
    log: dict[str, Any]
    #: The trained model, in evaluation mode, or None if its weights are not in the folder.
    model: nn.Module | None


def share_right(scores: Tensor, labels: Tensor) -> float:
    """The share of pictures whose highest score, of (num_images, classes), is that of their label."""
    return (scores.argmax(-1) == labels).double().mean().item()


@torch.no_grad()
def evaluate(model: nn.Module) -> dict[str, float]:
    """The share of held-out digits that a model gets right, with the patches in each of the orders.

    With orders of their own every digit is shown ten times, each time in another.
    """
    generator = torch.Generator().manual_seed(TEST_SEED)
    _, held_out = digits()
    found = {}
    for order in ORDERS:
        times = 10 if order == "own" else 1
        images = reordered(held_out.images.repeat(times, 1, 1, 1), order, generator)
        found[order] = share_right(model(images), held_out.labels.repeat(times))
    return found


def results(folder: Path = RESULTS) -> dict[str, Result]:
    """All results in a folder by their runs' names; by default, those that come with the course."""
    found = {}
    for path in sorted(Path(folder).glob("*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        run, model = Run(**log["run"]), None
        if path.with_suffix(".npz").exists():
            model = make_model(run.model, run.positions).eval()
            load_weights(path.with_suffix(".npz"), model)
        found[run.name] = Result(run, log, model)
    return found


def save(run: Run, model: nn.Module, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_weights(path.with_suffix(".npz"), model)
    save_log(path.with_suffix(".json"), run, model, log, {"held_out": evaluate(model)})
