"""The experiment of ``scaling``: a trained model writes, with the student's cache and without.

The model of letters that comes with the course, two blocks with four heads each, writes on from a prompt: at
each step the letter with the highest score. Without a cache each step runs the whole text through the model;
with one it runs the newest letter, and the student's ``decoding_step`` is its attention.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attncourse import plots
from attncourse._require import require_count
from attncourse.attention_operator import attention
from attncourse.experiments._figure import Captioned, milliseconds, times_of
from attncourse.letters.data import decode, encode
from attncourse.letters.models import LetterModel
from attncourse.letters.results import results
from attncourse.masking import causal_mask
from attncourse.multihead import merge_heads
from attncourse.positional import sinusoidal_encoding
from attncourse.transformer import TransformerBlock

#: The model's sizes, for predictions.
NUM_LAYERS, NUM_HEADS, HEAD_DIM, BYTES_PER_NUMBER = 2, 4, 16, 4
PROMPT = "attention "
#: For the figure, times are taken together for so many letters.
TOGETHER = 25

# Of new positions, and the keys and values before them: the output, and the longer keys and values.
DecodingStep = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]


@dataclass(frozen=True)
class Writing:
    """What a model has written, and what it took.

    Parameters
    ----------
    text : str
        The prompt and what was written.
    seconds : Tensor, shape (num_letters,)
        The time of each letter; that of the first includes the prompt.
    scores : int
        How many scores one head has computed.
    cache_bytes : int
        What the keys and values take that are kept at the end; 0 without a cache.
    """

    text: str
    seconds: Tensor
    scores: int
    cache_bytes: int

    @property
    def letters_per_second(self) -> float:
        return len(self.seconds) / self.seconds.sum().item()


@functools.cache
def _model() -> LetterModel:
    return results()["text"].model


@torch.no_grad()
def write(
    decoding_step: DecodingStep | None = None, *, num_letters: int = 300, prompt: str = PROMPT
) -> Writing:
    """Let the model write.

    Parameters
    ----------
    decoding_step : callable, optional
        ``decoding_step(query, key, value, key_cache, value_cache)`` gives the output of the new positions
        and the two caches with them appended. Without it, every step runs the whole text through the model.
    num_letters : int
        How many letters to write, at least 1.
    prompt : str
        What stands before them, of the letters that the model knows.

    Returns
    -------
    Writing

    Raises
    ------
    ValueError
        If `num_letters` is less than 1, `prompt` is empty or has a letter that the model does not know, or
        what `decoding_step` gives does not have the shapes that it should have.
    """
    require_count("num_letters", num_letters, 1)
    if not prompt:
        raise ValueError("prompt is empty: expected at least one letter")
    model, numbers = _model(), encode("text", prompt)
    state = None if decoding_step is None else _State(model, decoding_step)
    seconds, scores = [], 0
    for _ in range(num_letters):
        start = time.perf_counter()
        if state is None:
            found = model(numbers)[-1]
            scores += len(numbers) ** 2
        else:
            new = len(numbers) - state.length
            found = state.step(numbers[-new:])[-1]
            scores += new * len(numbers)
        numbers = torch.cat((numbers, found.argmax()[None]))
        seconds.append(time.perf_counter() - start)
    kept = 0 if state is None else state.num_bytes
    return Writing(decode("text", numbers), torch.tensor(seconds), scores, kept)


@torch.no_grad()
def record(
    decoding_step: DecodingStep, *, text: str = PROMPT + "is an average", num_prompt: int = len(PROMPT)
) -> tuple[Tensor, Tensor, Tensor, int]:
    """What the first head of the first block gives for a text: all at once, and step by step.

    Parameters
    ----------
    decoding_step : callable
        As of :func:`write`.
    text : str
    num_prompt : int
        How many letters come in the first step; each of the others comes in a step of its own.

    Returns
    -------
    whole, steps, value : Tensor, shape (letters, head_dim)
        The outputs of a pass over the whole text, those of the steps, and the values.
    num_prompt : int

    Raises
    ------
    ValueError
        If `num_prompt` is not between 1 and the number of letters.
    """
    if not 1 <= num_prompt <= len(text):
        raise ValueError(f"num_prompt is {num_prompt}: expected 1 to {len(text)}, the number of letters")
    model = _model()
    block: Any = model.transformer.decoder[0]
    query, key, value = (
        part[:1] for part in _projected(block, block.attention_norm(model.embed(encode("text", text))))
    )
    whole: Any = attention(query, key, value, causal_mask(len(text)))
    caches: tuple[Tensor, Tensor] = (key[:, :0], value[:, :0])
    steps = []
    for start, end in ((0, num_prompt), *((t, t + 1) for t in range(num_prompt, len(text)))):
        new = slice(start, end)
        output, *grown = decoding_step(query[:, new], key[:, new], value[:, new], *caches)
        caches = grown[0], grown[1]
        steps.append(output)
    return whole[0], torch.cat(steps, 1)[0], value[0], num_prompt


def _step_with(
    mask: Callable[[int, int], Tensor], kept: Callable[[Tensor], Tensor] = lambda x: x
) -> DecodingStep:
    """A step of decoding, with the mask that is made for (new positions, all positions)."""

    def step(
        query: Tensor, key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = torch.cat((kept(key_cache), key), -2), torch.cat((kept(value_cache), value), -2)
        output: Any = attention(query, keys, values, mask(query.shape[-2], keys.shape[-2]))
        # For the model's bookkeeping both caches grow, whatever was looked at.
        return output, torch.cat((key_cache, key), -2), torch.cat((value_cache, value), -2)

    return step


#: Steps of decoding in which something is wrong.
SLIPS: dict[str, DecodingStep] = {
    "first": _step_with(lambda new, keys: torch.ones(new, keys).tril().bool()),
    "second": _step_with(lambda new, keys: torch.ones(new, keys).bool()),
    "third": _step_with(
        lambda new, keys: torch.ones(new, keys).tril(keys - new).bool(), lambda x: x[..., :0, :]
    ),
    "fourth": _step_with(
        lambda new, keys: torch.ones(new, keys).tril(keys - new).bool() & (torch.arange(keys) < 16)
    ),
}


class _State:
    """The model's caches, and what runs new letters through its blocks."""

    def __init__(self, model: LetterModel, decoding_step: DecodingStep) -> None:
        self.model, self.decoding_step, self.length = model, decoding_step, 0
        empty = torch.zeros(NUM_HEADS, 0, HEAD_DIM)
        self.caches = [(empty, empty) for _ in range(NUM_LAYERS)]

    @property
    def num_bytes(self) -> int:
        return sum(x.numel() * x.element_size() for pair in self.caches for x in pair)

    def step(self, letters: Tensor) -> Tensor:
        """From new letters, (new,), to the scores of the next ones, (new, letters of the alphabet)."""
        model, start = self.model, self.length
        self.length += len(letters)
        # The new letters stand behind those before, and are told so.
        x = (
            model.table[letters] + sinusoidal_encoding(self.length, model.model_dim)[start:]
        )  # (new, model_dim)
        for layer, block in enumerate(model.transformer.decoder):
            assert isinstance(block, TransformerBlock)
            x = x + self._attend(layer, block, block.attention_norm(x))
            x = x + block.mlp(block.mlp_norm(x))
        return model.transformer.decoder_norm(x) @ model.W_out

    def _attend(self, layer: int, block: TransformerBlock, x: Tensor) -> Tensor:
        own: Any = block.attention
        query, key, value = _projected(block, x)
        output, *caches = self.decoding_step(query, key, value, *self.caches[layer])
        shapes = [tuple(part.shape) for part in (output, *caches)]
        grown = (NUM_HEADS, self.length, HEAD_DIM)
        if shapes != [tuple(query.shape), grown, grown]:
            raise ValueError(
                f"decoding_step gives the shapes {shapes}: expected {[tuple(query.shape), grown, grown]}"
            )
        self.caches[layer] = caches[0], caches[1]
        return merge_heads(output) @ own.W_O + own.b_O


def _projected(block: TransformerBlock, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (heads, positions, head_dim), of x, (positions, model_dim)."""
    own: Any = block.attention  # with biases
    return (
        x @ own.W_Q + own.b_Q.unsqueeze(-2),
        x @ own.W_K + own.b_K.unsqueeze(-2),
        x @ own.W_V + own.b_V.unsqueeze(-2),
    )


def table(writings: Mapping[str, Writing]) -> plots.Table:
    """A row for each writing: how fast, with how many scores, and what was kept."""
    rows = list(writings.values())
    return plots.Table(
        {
            "": list(writings),
            "letters a second": [round(one.letters_per_second) for one in rows],
            f"ms a letter, last {TOGETHER}": [milliseconds(one.seconds, TOGETHER)[-1] for one in rows],
            "scores of a head": [one.scores for one in rows],
            "bytes kept": [one.cache_bytes for one in rows],
        }
    )


def figure(writings: Mapping[str, Writing]) -> Captioned:
    """The time of each letter, against how many have been written."""
    return times_of({name: one.seconds for name, one in writings.items()}, "letter", TOGETHER)
