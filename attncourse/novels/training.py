"""Training, which can be interrupted at any time."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._require import require_choice, require_count
from attncourse._runs import Commanded, train_in_parts
from attncourse.novels.data import VOCABULARY_SIZE, training_tokens
from attncourse.your_model import LanguageModel, ModelConfig, parameter_count

#: The model that comes with the course, and a small one on which changes are tried.
SIZES = {
    "full": ModelConfig(VOCABULARY_SIZE, 192, 6, 4, 512, num_key_value_heads=2, max_length=256),
    "small": ModelConfig(VOCABULARY_SIZE, 96, 6, 3, 256, max_length=128),
}
BEFORE = {"norm": "layer", "mlp": "relu", "positions": "sinusoidal"}
#: What each variant of a block has that the block before these changes has not.
VARIANTS: dict[str, dict[str, Any]] = {
    "before": {},
    "norm": {"norm": "rms"},
    "mlp": {"mlp": "swiglu"},
    "rotary": {"positions": "rotary"},
    "grouped": {"num_key_value_heads": 2},
    "multi-query": {"num_key_value_heads": 1},
    "window": {"window": 32},
    "today": {"norm": "rms", "mlp": "swiglu", "positions": "rotary", "num_key_value_heads": 2},
}


def model_config(size: str, variant: str) -> ModelConfig:
    """The shape of a model; within a size, all variants have as many parameters, to a fifth of a percent.

    The hidden features of the small networks make up for what a variant saves or adds elsewhere.

    Raises
    ------
    ValueError
        If `size` or `variant` is unknown.
    """
    require_choice("size", size, tuple(SIZES))
    require_choice("variant", variant, tuple(VARIANTS))
    config = SIZES[size]
    if variant == "today":
        return dataclasses.replace(config, num_key_value_heads=2)
    wanted = parameter_count(dataclasses.replace(config, num_key_value_heads=2))
    changed = dataclasses.replace(config, **{**BEFORE, "num_key_value_heads": None, **VARIANTS[variant]})

    def count(hidden_dim: int) -> int:
        model = LanguageModel(dataclasses.replace(changed, hidden_dim=hidden_dim))
        return sum(weight.numel() for weight in model.parameters())

    with torch.random.fork_rng(devices=[]):
        one, two = count(1), count(2)
    return dataclasses.replace(changed, hidden_dim=1 + round((wanted - one) / (two - one)))


@dataclasses.dataclass(frozen=True)
class Run(Commanded):
    """What decides a training run.

    Two equal runs give the same weights, bit for bit, on the same machine with the same
    versions of everything and as many threads.
    """

    size: str
    variant: str = "today"
    steps: int = 480
    batch: int = 8
    rate: float = 6e-3  # the highest learning rate of the cycle
    dropout: float = 0.0
    seed: int = 1

    @property
    def name(self) -> str:
        """What the run's files are called."""
        return f"{self.size}-{self.variant}-seed{self.seed}"


def train(
    run: Run, folder: Path | None = None, *, progress: bool = False
) -> tuple[LanguageModel, dict[str, Any]]:
    """Train a model on passages of the five novels: Adam, with a one-cycle learning rate.

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
    model : LanguageModel
        In evaluation mode.
    log : dict
        "steps" and "loss", lists of up to 100 numbers: after how many steps, which mean
        training loss since the number before; and "cpu_seconds".

    Raises
    ------
    ValueError
        If `run` names an unknown size or variant, or the checkpoint in `folder` is of a different run.
    """
    require_count("steps", run.steps, least=1)
    require_count("batch", run.batch, least=1)
    config = model_config(run.size, run.variant)
    text = training_tokens()
    checkpoint = None if folder is None else Path(folder) / f"{run.name}.checkpoint"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = LanguageModel(config, run.dropout)

        def losses(num_steps: int) -> Iterator[Tensor]:
            for _ in range(num_steps):
                starts = torch.randint(len(text) - config.max_length, (run.batch, 1))
                passages = text[starts + torch.arange(config.max_length + 1)]  # (batch, max_length + 1)
                logits = model(passages[:, :-1])  # (batch, max_length, vocabulary_size)
                yield nn.functional.cross_entropy(logits.flatten(0, 1), passages[:, 1:].flatten())

        def told(done: int, loss: float) -> str:
            return f"{run.name}: {done:,} of {run.steps:,} steps, loss {loss:.3f}"

        log = train_in_parts(
            run,
            model,
            run.steps,
            losses,
            torch.default_generator,
            checkpoint,
            progress=told if progress else None,
        )
    return model.eval(), log
