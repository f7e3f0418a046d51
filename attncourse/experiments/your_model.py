"""The experiment of ``your_model``: the student's functions become the course's language model, and write.

The weights are those of :func:`attncourse.novels.course_model`. A small model can be trained on a text of
the student's own; what is trained, and what writes, is the student's function.
"""

import functools
import itertools
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from attncourse import novels, plots
from attncourse._require import require_choice, require_count
from attncourse.attention_operator import attention
from attncourse.experiments._figure import Captioned, milliseconds, times_of
from attncourse.masking import causal_mask
from attncourse.multihead import merge_heads, repeat_heads
from attncourse.positional import rotary
from attncourse.your_model import LanguageModel, ModelConfig

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: What a text is begun with.
PROMPT = "It was a truth universally"
#: For the figure, times are taken together for so many tokens.
TOGETHER = 16
#: The least text, in letters, that a model can be trained on.
LEAST_LETTERS = 20_000

Weights = Mapping[str, Tensor]
Caches = list[tuple[Tensor, Tensor]]
# Of tokens, weights by name, and what was kept of the tokens before: the logits, and what to keep.
Model = Callable[[Tensor, Weights, Caches | None], tuple[Tensor, Caches]]
# Of tokens and what was kept: the logits, and what to keep.
Reader = Callable[[Tensor, Caches | None], tuple[Tensor, Caches]]
# Of the model, what chooses a token, the tokens so far and how many to add: the longer text.
Writer = Callable[[Reader, Callable[[Tensor], Tensor], Tensor, int], Tensor]


@functools.cache
def _model() -> LanguageModel:
    return novels.course_model()


@functools.cache
def weights() -> dict[str, Tensor]:
    """The weights of the course's model, by their names."""
    return {name: part.detach() for name, part in _model().state_dict().items()}


@torch.no_grad()
def logits(tokens: Tensor) -> Tensor:
    """What the course's own model gives: from (..., positions) to (..., positions, vocabulary_size)."""
    found = _model()(tokens)
    assert isinstance(found, Tensor)
    return found


def encode(text: str) -> Tensor:
    """The tokens of a text, (positions,)."""
    return novels.encode(text)


def decode(tokens: Tensor) -> str:
    """The text of tokens."""
    return novels.decode(tokens)


def wrapped(text: str) -> str:
    """The text to be printed: no line is longer than 80 letters, and none is broken within a word."""
    return "\n".join(textwrap.fill(line, 80, break_on_hyphens=False) for line in text.splitlines())


def held_out(num_tokens: int = 200) -> Tensor:
    """The first tokens of the novel that the model has not read, (num_tokens,)."""
    require_count("num_tokens", num_tokens, least=2)
    return novels.held_out_tokens()[:num_tokens]


def loss(found: Tensor, tokens: Tensor) -> float:
    """The mean of -log of the probability of each next token, from (positions, vocabulary_size) logits."""
    return nn.functional.cross_entropy(found[:-1], tokens[1:]).item()


@dataclass(frozen=True)
class Writing:
    """What was written, and the time it took.

    Parameters
    ----------
    tokens : Tensor of int, shape (positions,)
        With those of the beginning.
    seconds : Tensor, shape (num_tokens,)
        The time of each new token; that of the first includes the beginning.
    """

    tokens: Tensor
    seconds: Tensor

    @property
    def text(self) -> str:
        return decode(self.tokens)


def best(found: Tensor) -> Tensor:
    """The token with the highest logit, shape (1,), from (vocabulary_size,)."""
    return found.argmax(-1, keepdim=True)


@torch.no_grad()
def with_cache(
    write_on: Writer, model: Reader, choose: Callable[[Tensor], Tensor], tokens: Tensor, num_tokens: int
) -> Writing:
    """Have the student's function write, and take the time of each token."""
    times = [time.perf_counter()]

    def timed(found: Tensor) -> Tensor:
        token = choose(found)
        times.append(time.perf_counter())
        return token

    return Writing(
        write_on(model, timed, tokens, num_tokens), torch.tensor(times, dtype=torch.float64).diff()
    )


@torch.no_grad()
def without_cache(
    model: Reader, choose: Callable[[Tensor], Tensor], tokens: Tensor, num_tokens: int
) -> Writing:
    """Write with the same model, which reads the whole text anew for each token."""
    seconds = []
    for _ in range(num_tokens):
        start = time.perf_counter()
        found, _ = model(tokens, None)
        tokens = torch.cat((tokens, choose(found[-1])))
        seconds.append(time.perf_counter() - start)
    return Writing(tokens, torch.tensor(seconds, dtype=torch.float64))


def table(writings: Mapping[str, Writing]) -> plots.Table:
    """A row for each writing: the time of all tokens, and that of one at the end, as the figure has it."""
    rows = list(writings.values())
    return plots.Table(
        {
            "": list(writings),
            "seconds for all": [one.seconds.sum() for one in rows],
            f"ms a token, last {TOGETHER}": [milliseconds(one.seconds, TOGETHER)[-1] for one in rows],
        },
        ".1f",
    )


def figure(writings: Mapping[str, Writing]) -> Captioned:
    """The time of each token, against how many have been written."""
    return times_of({name: one.seconds for name, one in writings.items()}, "token", TOGETHER)


# What a black box says ------------------------------------------------------------------

#: Models in which something is wrong.
SLIPS = ("first", "second", "third", "fourth", "fifth")


def slipping(slip: str) -> Model:
    """The course's model, with a slip.

    Parameters
    ----------
    slip : str
        One of :data:`SLIPS`.

    Returns
    -------
    callable
        ``model(tokens, weights, caches)`` gives logits and caches, as the student's does.

    Raises
    ------
    ValueError
        If `slip` is not one of these.
    """
    require_choice("slip", slip, SLIPS)

    def attend(x: Tensor, part: Callable[[str], Tensor], cache: tuple[Tensor, Tensor] | None):
        query, key, value = (x.unsqueeze(-3) @ part(f"attention.W_{name}") for name in "QKV")
        before = 0 if cache is None or slip == "second" else cache[0].shape[-2]
        places = torch.arange(before, before + x.shape[-2])
        query, key = rotary(query, places), rotary(key, places)
        if slip == "third":
            value = rotary(value, places)
        if cache is not None and slip != "fourth":
            key, value = torch.cat((cache[0], key), -2), torch.cat((cache[1], value), -2)
        group = query.shape[-3] // key.shape[-3]
        keys, values = repeat_heads(key, group), repeat_heads(value, group)
        if slip == "fifth":
            keys, values = torch.cat([key] * group, -3), torch.cat([value] * group, -3)
        mask = causal_mask(query.shape[-2], keys.shape[-2])
        if slip == "first":  # of several, each sees the next one, too
            mask = torch.ones_like(mask).tril(mask.shape[1] - len(mask) + 1)
        found = attention(query, keys, values, mask)
        assert isinstance(found, Tensor)
        return merge_heads(found) @ part("attention.W_O"), (key, value)

    def model(tokens: Tensor, given: Weights, caches: Caches | None = None) -> tuple[Tensor, Caches]:
        def norm(x: Tensor, name: str) -> Tensor:
            return nn.functional.rms_norm(x, x.shape[-1:], given[f"{name}.weight"], 1e-6)

        x = given["table"][tokens]
        kept: Caches = []
        for number in itertools.count():
            beginning = f"blocks.{number}."
            if f"{beginning}mlp.W_up" not in given:
                break
            part = lambda name, beginning=beginning: given[beginning + name]
            found, cache = attend(
                norm(x, f"{beginning}attention_norm"), part, caches[number] if caches else None
            )
            kept.append(cache)
            x = x + found
            y = norm(x, f"{beginning}mlp_norm")
            x = x + (nn.functional.silu(y @ part("mlp.W_gate")) * (y @ part("mlp.W_up"))) @ part("mlp.W_down")
        return norm(x, "norm") @ given["table"].mT, kept

    return model


@torch.no_grad()
def record(model: Model, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What a model says in four readings, with the course's weights.

    Parameters
    ----------
    model : callable
        As of :func:`slipping`.
    tokens : Tensor of int, shape (positions,)
        At least two.

    Returns
    -------
    tokens : Tensor of int, shape (positions,)
        As they came.
    whole, changed, same, steps : Tensor, shape (positions, vocabulary_size)
        The logits of the text in one pass; of the text with another last token; of a text that is its
        first token again and again; and of the text token by token, with the caches.
    """
    given = weights()
    whole, _ = model(tokens, given, None)
    other = (tokens[-1:] + 1) % len(given["table"])
    changed, _ = model(torch.cat((tokens[:-1], other)), given, None)
    same, _ = model(tokens[:1].expand(len(tokens)), given, None)
    steps, caches = [], None
    for token in tokens:
        found, caches = model(token[None], given, caches)
        steps.append(found)
    return tokens, whole, changed, same, torch.cat(steps)


# A model of one's own -------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """A small model of a text of one's own.

    Parameters
    ----------
    weights : dict of str to Tensor
        By the names that the course's model has for them.
    tokenizer : tokenizers.Tokenizer
        The tokens, learned from the text.
    losses : list of tuple
        From time to time: after how many steps, the loss on what is trained on, and on the end of the text,
        which is held out.
    """

    weights: dict[str, Tensor]
    tokenizer: "Tokenizer"
    losses: list[tuple[int, float, float]]

    def encode(self, text: str) -> Tensor:
        """The tokens of a text, (positions,)."""
        return torch.tensor(self.tokenizer.encode(text).ids, dtype=torch.long)

    def decode(self, tokens: Tensor) -> str:
        """The text of tokens."""
        return self.tokenizer.decode(tokens.tolist())


def train_on(
    language_model: Model,
    text: str,
    minutes: float = 10,
    *,
    config: ModelConfig | None = None,
    batch: int = 16,
    seed: int = 0,
    progress: bool = True,
) -> Trained:
    """Train a small model on a text, for so long; stop it when you like, and what has been learned stays.

    The tokens are learned from the text, too. A tenth, the end of the text, is held out. Adam takes the
    steps; over the time that is left the learning rate falls to 0.

    Parameters
    ----------
    language_model : callable
        The student's. ``language_model(tokens, weights, None)`` gives logits and caches.
    text : str
        At least 20,000 letters; half a million are better.
    minutes : float
        More than 0.
    config : ModelConfig, optional
        The model's shape; by default three blocks of 96 features, with six heads that share two of keys and
        values, and 1,024 tokens.
    batch : int
        How many passages there are in a step.
    seed : int
    progress : bool
        Print a line now and then.

    Returns
    -------
    Trained

    Raises
    ------
    ValueError
        If `text` is too short, or `minutes` is not more than 0.
    """
    if not minutes > 0:
        raise ValueError(f"minutes is {minutes}: expected more than 0")
    if len(text) < LEAST_LETTERS:
        raise ValueError(f"text has {len(text)} letters: expected at least {LEAST_LETTERS:,}")
    require_count("batch", batch, least=1)
    config = (
        ModelConfig(1024, 96, 6, 3, 256, num_key_value_heads=2, max_length=96) if config is None else config
    )
    tokenizer = novels.byte_pair_tokenizer(text, config.vocabulary_size)
    tokens = torch.tensor(tokenizer.encode(text).ids, dtype=torch.long)
    length = config.max_length
    end = max(len(tokens) // 10, length + 1)
    read, kept_back = tokens[:-end], tokens[-end:]
    if len(read) <= length:
        raise ValueError(f"text has {len(tokens)} tokens: expected more than {end + length}")
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start = LanguageModel(config).state_dict()
    # A text may have fewer tokens than were asked for; those that are left over never come.
    given = {name: nn.Parameter(part.clone()) for name, part in start.items()}
    optimiser = torch.optim.Adam(given.values(), lr=3e-3, betas=(0.9, 0.99), fused=True)

    def loss_on(source: Tensor, number: int) -> Tensor:
        starts = torch.randint(len(source) - length, (number, 1), generator=generator)
        passages = source[starts + torch.arange(length + 1)]  # (number, length + 1)
        found, _ = language_model(passages[:, :-1], given, None)
        return nn.functional.cross_entropy(found.flatten(0, 1), passages[:, 1:].flatten())

    losses: list[tuple[int, float, float]] = []
    lately: list[float] = []

    def told(step: int, passed: float) -> None:
        with torch.no_grad():
            held = loss_on(kept_back, 4 * batch).item()
        losses.append((step, sum(lately) / len(lately), held))
        lately.clear()
        if progress:
            step, mean, held = losses[-1]
            print(
                f"{passed / 60:5.1f} min, {step:6,} steps: loss {mean:.3f}, "
                f"on the held-back end of the text {held:.3f}",
                flush=True,
            )

    steps = 0
    try:
        for steps, passed in enumerate(_ticking(60 * minutes), 1):
            share = passed / (60 * minutes)
            for group in optimiser.param_groups:
                group["lr"] = 3e-3 * min(1.0, steps / 50) * (1 - share)
            optimiser.zero_grad()
            step_loss = loss_on(read, batch)
            step_loss.backward()
            nn.utils.clip_grad_norm_(given.values(), 1.0)
            optimiser.step()
            lately.append(step_loss.item())
            if 20 * share >= len(losses) + 1:
                told(steps, passed)
    except KeyboardInterrupt:
        if progress:
            print("stopped; what has been learned so far stays")
    if lately:
        told(steps, 60 * minutes)
    return Trained({name: part.detach() for name, part in given.items()}, tokenizer, losses)


def _ticking(seconds: float) -> Iterator[float]:
    """The seconds that have passed, until there are so many; at least once."""
    start = time.perf_counter()
    passed = 0.0
    while passed < seconds:
        yield passed
        passed = time.perf_counter() - start
