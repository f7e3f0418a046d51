"""Finished runs: how good they are, the weights, and beside them what was run and what came out."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional as F

from attncourse._runs import load_weights, save_log, save_weights
from attncourse.letters.data import LONGEST, SHORTEST, random_words, text_parts
from attncourse.letters.models import LetterModel
from attncourse.letters.training import Run

#: What comes with the course: the weights and the log of one run of each task.
RESULTS = Path(__file__).parent / "runs"
#: Words for the tests come from this seed, which no training run uses.
TEST_SEED = 1_000_000_007


class Result(NamedTuple):
    """A finished run, its log, and its model in evaluation mode."""

    #: What decided the training.
    run: Run
    #: What the training and the tests gave, as the log's file has it.
    log: dict[str, Any]
    #: The trained model.
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
        load_weights(path.with_suffix(".npz"), model)
        found[run.task] = Result(run, log, model)
    return found


def save(run: Run, model: LetterModel, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.task
    save_weights(path.with_suffix(".npz"), model)
    save_log(path.with_suffix(".json"), run, model, log, {"test": evaluate(model, run.task)})
