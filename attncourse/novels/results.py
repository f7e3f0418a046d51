"""Finished runs: how good they are on the novel that is held out, the weights, and what was run."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from attncourse._require import require_count, require_tensor, shape_of
from attncourse._runs import load_weights, save_log, save_weights
from attncourse.novels.data import HELD_OUT, held_out_tokens, novel
from attncourse.novels.training import Run, model_config
from attncourse.your_model import LanguageModel

#: What comes with the course: the log of every run, and the weights of the full model.
RESULTS = Path(__file__).parent / "runs"


class Result(NamedTuple):
    """A finished run, its log, and its model if the weights are there."""

    #: What decided the training.
    run: Run
    #: What the training and the test gave, as the log's file has it.
    log: dict[str, Any]
    #: The trained model, in evaluation mode, or None if its weights are not in the folder.
    model: LanguageModel | None


@torch.no_grad()
def token_losses(model: LanguageModel, tokens: Tensor, length: int | None = None) -> Tensor:
    """-log of the probability that a model gives to each token of a text, from those before it.

    The text is read in passages of `length` that overlap by half: but for the beginning of the text, a token
    is predicted from at least length / 2 tokens.

    Parameters
    ----------
    model : LanguageModel
    tokens : Tensor of int, shape (positions,)
    length : int, optional
        The model's max_length if not given.

    Returns
    -------
    Tensor, shape (positions - 1,)

    Raises
    ------
    ValueError
        If there are fewer than two tokens, a token is out of range, or `length` is less than 2 or more than
        the model reads.
    TypeError
        If an argument is of another type.
    """
    require_tensor("tokens", tokens)
    if tokens.dim() != 1 or len(tokens) < 2:
        raise ValueError(f"tokens has shape {shape_of(tokens)}: expected (positions,), at least two")
    length = model.config.max_length if length is None else length
    require_count("length", length, least=2)
    if length > model.config.max_length:
        raise ValueError(
            f"length is {length}: expected at most {model.config.max_length}, the model's max_length; "
            "or see its stretched()"
        )
    half = length // 2
    losses = []
    for start in range(0, len(tokens) - 1, half):
        # Tokens before the first of these are there to look at, and are not scored.
        passage = tokens[max(0, start - half) : start + half + 1]
        scored = min(half, len(tokens) - 1 - start)
        logits = model(passage[:-1])
        losses.append(nn.functional.cross_entropy(logits, passage[1:], reduction="none")[-scored:])
    return torch.cat(losses)


def evaluate(model: LanguageModel) -> dict[str, float]:
    """How good a model is on the novel that is held out.

    Returns
    -------
    dict
        "loss", the mean of -log of the probability of each token; "bits_per_letter", the same, shared
        among the letters of the text, which does not depend on how it is cut into tokens.
    """
    losses = token_losses(model, held_out_tokens())
    return {
        "loss": losses.mean().item(),
        "bits_per_letter": losses.sum().item() / torch.tensor(2.0).log().item() / len(novel(HELD_OUT)),
    }


def load(run: Run, path: Path) -> LanguageModel:
    """The model of a run with the weights of a file, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        model = LanguageModel(model_config(run.size, run.variant)).eval()
    load_weights(path, model)
    return model


def results(folder: Path = RESULTS) -> dict[str, Result]:
    """All results in a folder by their runs' names; by default, those that come with the course."""
    found = {}
    for path in sorted(Path(folder).glob("*-seed*.json")):
        log = json.loads(path.read_text(encoding="utf-8"))
        run = Run(**log["run"])
        weights = path.with_suffix(".npz")
        found[run.name] = Result(run, log, load(run, weights) if weights.exists() else None)
    return found


def course_model() -> LanguageModel:
    """The model that comes with the course, in evaluation mode."""
    run = Run("full")
    log = json.loads((RESULTS / f"{run.name}.json").read_text(encoding="utf-8"))
    return load(Run(**log["run"]), RESULTS / f"{run.name}.npz")


def save(run: Run, model: LanguageModel, log: dict[str, Any], folder: Path) -> None:
    """Write the weights, rounded to numbers of 16 bits, and beside them a log with what these achieve."""
    path = Path(folder) / run.name
    path.parent.mkdir(parents=True, exist_ok=True)
    save_weights(path.with_suffix(".npz"), model)
    save_log(path.with_suffix(".json"), run, model, log, {"held_out": evaluate(model)})
