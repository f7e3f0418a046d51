"""The running experiment: triangles and rectangles whose heights are to be averaged.

A sequence has 100 positions and four shapes on it, two triangles and two rectangles. The
target shows the same shapes with other heights: each has the mean height of its pair. In
version A the pairs are the two triangles and the two rectangles, so a model must know what
a shape is. In version B they are the two leftmost and the two rightmost shapes, so it must
know where a shape is. The problem and the networks are those of François Fleuret,
*Deep Learning Course*, lecture 13.2, "Attention Mechanisms".

``python -m attncourse.toy --help`` shows what can be run from a terminal.
"""

from attncourse.toy.data import (
    LEAST_DIFFERENCE,
    LENGTH,
    NOISE_FLOOR,
    NOISE_WIDTH,
    VERSIONS,
    Data,
    make_data,
    make_test_data,
    profiles,
)
from attncourse.toy.evaluation import anchors, attention_shares, evaluate
from attncourse.toy.models import INPUT_MEAN, INPUT_STD, MODELS, POSITIONS, SelfAttention, ToyModel
from attncourse.toy.results import RESULTS, Result, results, save
from attncourse.toy.training import Run, train

__all__ = [
    "INPUT_MEAN",
    "INPUT_STD",
    "LEAST_DIFFERENCE",
    "LENGTH",
    "MODELS",
    "NOISE_FLOOR",
    "NOISE_WIDTH",
    "POSITIONS",
    "RESULTS",
    "VERSIONS",
    "Data",
    "Result",
    "Run",
    "SelfAttention",
    "ToyModel",
    "anchors",
    "attention_shares",
    "evaluate",
    "make_data",
    "make_test_data",
    "profiles",
    "results",
    "save",
    "train",
]
