"""How answers of the unit ``your_model`` are called, where it is not with the inputs by position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import Misfit
from attncourse.probe.calling import Way
from attncourse.probe.program import Program
from attncourse.probe.refusing import given

# What the model keeps of the positions so far: for its only block, keys and values.
Caches = list[tuple[Tensor, Tensor]]


class Reader:
    """A made-up model of texts: each row depends on all tokens up to it, and on where they stand.

    Parameters
    ----------
    table : Tensor, shape (vocabulary_size, vocabulary_size)

    Attributes
    ----------
    run : int
        How many positions it has read.
    longest : int
        How many the longest text had that it saw, with what the caches held.
    """

    def __init__(self, table: Tensor) -> None:
        self.table, self.run, self.longest = table, 0, 0
        self._texts: list[Tensor] = []  # those that it has given caches of

    def __call__(self, tokens: Any, caches: Caches | None = None) -> tuple[Tensor, Caches]:
        new = torch.as_tensor(tokens)
        if new.dim() != 1 or len(new) == 0 or new.is_floating_point():
            raise ValueError(
                f"tokens has shape {tuple(new.shape)} and dtype {new.dtype}: expected (positions,), whole "
                "numbers, at least one"
            )
        if new.min() < 0 or new.max() >= len(self.table):
            raise ValueError(f"tokens has {int(new.max())}: expected 0 to {len(self.table) - 1}")
        self.run += len(new)
        before = new[:0] if caches is None else self._text_of(caches)
        text = torch.cat((before, new))
        self.longest = max(self.longest, len(text))
        rows = self.table[text]
        places = torch.arange(1, len(text) + 1)[:, None]
        logits = 2 * rows + (rows * (1.7 * places).cos()).cumsum(0)
        self._texts.append(text)
        return logits[len(before) :], self._kept(text)

    def _kept(self, text: Tensor) -> Caches:
        """Keys and values, each of shape (1, positions, vocabulary_size)."""
        rows = self.table[text]
        places = torch.arange(1, len(text) + 1)[:, None]
        return [((rows * (2.3 * places).sin()).cumsum(0)[None], rows[None])]

    def _text_of(self, caches: Caches) -> Tensor:
        ((keys, values),) = caches
        positions = keys.shape[-2]
        for text in self._texts:
            kept = self._kept(text)
            if all(
                torch.equal(ours[:, :positions], part)
                for ours, part in zip(kept[0], (keys, values), strict=True)
            ):
                return text[:positions]
        raise ValueError("caches are not what the model has given, nor their first positions")


def chosen(logits: Tensor, place: int) -> Tensor:
    """The token with the highest score but `place` others, shape (1,)."""
    if not isinstance(logits, Tensor) or logits.dim() != 1:
        shape = tuple(logits.shape) if isinstance(logits, Tensor) else ()
        raise ValueError(f"logits has shape {shape}: expected (vocabulary_size,), those of one position")
    return logits.argsort(descending=True)[place : place + 1]


class WriteOn(Way):
    """Hands over the model of ``table``, and what chooses the token of that place; counts what is read.

    Where the count would stand beside the answer, which could set it back, the model and its count stay
    with the grader: then a function comes in the table's place.
    """

    def functions(self, inputs: dict[str, Any]) -> dict[str, Callable]:
        return {"table": Reader(inputs["table"])}

    def use(self, answer: Callable, inputs: dict[str, Any]) -> Any:
        table, place, tokens, num_tokens = inputs.values()
        functions: dict[str, Callable] = (
            {"table": table} if isinstance(table, Program) else self.functions(inputs)
        )
        reader = functions["table"]
        model = given(lambda tokens, caches=None: reader(tokens, caches))
        text = answer(model, given(lambda logits: chosen(logits, place)), tokens, num_tokens)
        self.look(inputs, functions, text)
        return text

    def look(self, inputs: dict[str, Any], functions: dict[str, Callable], value: Any) -> None:
        reader, most = functions["table"], len(inputs["tokens"]) + inputs["num_tokens"]
        if not isinstance(reader, Reader):  # which counts elsewhere
            return
        right_length = isinstance(value, Tensor) and value.shape == (most,)
        if reader.run > most and right_length:
            longer = f", and with its caches the model saw a text of {reader.longest}"
            raise Misfit(
                f"your function had the model read {reader.run} positions for a text of {most}, "
                "where with the caches each is read once" + (longer if reader.longest > most else "")
            )
