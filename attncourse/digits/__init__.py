"""Handwritten digits of 8 x 8 pixels, and models that tell them apart.

A small Vision Transformer stands beside a convolutional network and a fully connected one of equal size,
and a linear layer. Each can be trained on pictures whose patches stand in another order.

``python -m attncourse.digits --help`` shows what can be run from a terminal.
"""

from attncourse.digits.data import (
    IMAGE_SIZE,
    NUM_CLASSES,
    NUM_PATCHES,
    ORDERS,
    PATCH_SIZE,
    Digits,
    digits,
    one_order,
    reordered,
    shifted,
)
from attncourse.digits.models import MODELS, make_model
from attncourse.digits.results import RESULTS, Result, evaluate, results, save, share_right
from attncourse.digits.training import Run, train

__all__ = [
    "IMAGE_SIZE",
    "MODELS",
    "NUM_CLASSES",
    "NUM_PATCHES",
    "ORDERS",
    "PATCH_SIZE",
    "RESULTS",
    "Digits",
    "Result",
    "Run",
    "digits",
    "evaluate",
    "make_model",
    "one_order",
    "reordered",
    "results",
    "save",
    "share_right",
    "shifted",
    "train",
]
