"""How answers of the unit ``transformer`` are called, where it is not with the inputs by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.calling import Way
from attncourse.probe.refusing import given


def _attend(W_Q: Tensor, W_K: Tensor, W_V: Tensor) -> Callable:
    """A step of attention with one head; it takes keys and values from `key`, or from `query`."""

    def attend(query: Tensor, key: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        key = query if key is None else key
        scores = (query @ W_Q) @ (key @ W_K).mT / W_Q.shape[1] ** 0.5
        if mask is not None:
            if mask.dtype != torch.bool:
                raise TypeError(f"mask has dtype {mask.dtype}: expected torch.bool")
            if tuple(mask.shape[-2:]) != tuple(scores.shape[-2:]):
                shape, expected = tuple(mask.shape), tuple(scores.shape[-2:])
                raise ValueError(f"mask has shape {shape}: expected {expected}, a row for each query")
            scores = scores.masked_fill(~mask, -torch.inf)
        # Where nothing may be seen, nothing is found.
        return torch.softmax(scores, -1).nan_to_num(0.0) @ (key @ W_V)

    return given(attend)


# What is handed over does what an MLP and a normalisation do, and answers no task: to write a layer
# normalisation and an MLP with a ReLU is asked in the same notebook.


def _network(W_1: Tensor, W_2: Tensor) -> Callable:
    return given(lambda x: torch.tanh(x @ W_1) @ W_2)


def _norm(gain: Tensor) -> Callable:
    def norm(x: Tensor) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return gain * centred / centred.abs().mean(-1, keepdim=True)

    return given(norm)


def _block(weights: Tensor) -> Callable:
    attend, network = _attend(*weights[:3]), _network(*weights[3:])

    def block(x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x + attend(x, x, mask)
        return x + network(x)

    return given(block)


class Block(Way):
    """Hands over an attention, an MLP and two normalisations, made from ``W`` and ``gains``."""

    def arguments(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        x, W, gains, norm = inputs.values()
        return x, _attend(*W[:3]), _network(*W[3:]), _norm(gains[0]), _norm(gains[1]), norm


class DecoderBlock(Way):
    """Hands over two attentions, an MLP and three normalisations, made from ``W`` and ``gains``."""

    def arguments(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        x, memory, W, gains = inputs.values()
        parts = _attend(*W[:3]), _attend(*W[3:6]), _network(*W[6:])
        return x, memory, *parts, [_norm(gain) for gain in gains]


class Stack(Way):
    """Hands over blocks, one for each part of ``W``, and a normalisation."""

    def arguments(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        x, W, gain = inputs.values()
        return x, [_block(weights) for weights in W], _norm(gain)


class NextScores:
    """A causal model: each row depends on all letters up to it, the last of them most, and on its place.

    Parameters
    ----------
    table : Tensor, shape (num_letters, num_letters)
    places : Tensor, shape (longest, num_letters)
    """

    def __init__(self, table: Tensor, places: Tensor) -> None:
        self.table, self.places = table, places

    def __call__(self, written: Any) -> Tensor:
        letters = torch.as_tensor(written)
        if letters.dim() != 1 or len(letters) == 0 or letters.is_floating_point():
            raise ValueError(
                f"written has shape {tuple(letters.shape)} and dtype {letters.dtype}: "
                "expected (length,), whole numbers, at least one"
            )
        if len(letters) > len(self.places):
            raise ValueError(f"written has {len(letters)} letters: expected at most {len(self.places)}")
        if letters.min() < 0 or letters.max() >= len(self.table):
            raise ValueError(
                f"written has the letter {int(letters.max())}: expected 0 to {len(self.table) - 1}"
            )
        rows = self.table[letters]
        return 2 * rows + rows.cumsum(0) + self.places[: len(letters)]


class Decoding(Way):
    """Hands over the model of ``table`` and ``places``; what comes back may be a list, tuple or tensor."""

    def arguments(self, inputs: dict[str, Any]) -> tuple[Any, ...]:
        table, places, start, end, max_length = inputs.values()
        return given(NextScores(table, places).__call__), start, end, max_length

    def use(self, answer: Callable, inputs: dict[str, Any]) -> Any:
        letters = super().use(answer, inputs)
        if isinstance(letters, Tensor):
            return letters.tolist()
        if isinstance(letters, list | tuple):
            single = [isinstance(part, Tensor) and part.numel() == 1 for part in letters]
            return [part.item() if one else part for part, one in zip(letters, single, strict=True)]
        return letters
