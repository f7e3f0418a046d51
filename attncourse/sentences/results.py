"""The finished study, which comes with the course, and what was run for it."""

import json
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attncourse.sentences.data import SEED
from attncourse.sentences.heads import Study

#: What comes with the course.
RESULTS = Path(__file__).parent / "runs"
COMMAND = "python -m attncourse.sentences study"


def save(study: Study, cpu_seconds: float, folder: Path) -> None:
    """Write the numbers, and beside them a log of what was run.

    All but the margins are rounded to 16 bits: of these, the sign of a difference counts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {name: numbers.detach().numpy() for name, numbers in study._asdict().items()}
    for name in set(arrays) - {"number", "margin"}:
        arrays[name] = arrays[name].astype(np.float16)
    np.savez_compressed(folder / "study.npz", **arrays)
    log: dict[str, Any] = {
        "command": COMMAND,
        "seed": SEED,
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "cpu_seconds": round(cpu_seconds),
    }
    (folder / "study.json").write_text(json.dumps(log, indent=2) + "\n", encoding="utf-8")


def results(folder: Path = RESULTS) -> Study:
    """The study in a folder; by default, that which comes with the course."""
    with np.load(Path(folder) / "study.npz") as numbers:
        return Study(**{name: torch.from_numpy(numbers[name]).float() for name in numbers})
