"""The experiment of ``transformer``: what the student wrote becomes a Transformer that sorts and writes.

First the weights that the course has trained are put into the student's functions. Then small models made of
these functions learn to put letters in order, three times: as they should, without the source, and with an
open mask.

The functions are those of the exercise, by their names there: ``layer_norm``, ``mlp``,
``transformer_block``, ``decoder_block``, ``causal_stack`` and ``greedy_decode``. Only the attention
is the course's, a :class:`~attncourse.MultiHeadAttention`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attncourse import plots
from attncourse._require import require_choice, require_count
from attncourse.experiments._figure import Captioned, axes_for, level
from attncourse.experiments._training import one_cycle
from attncourse.letters.models import LetterModel
from attncourse.letters.results import results
from attncourse.positional import sinusoidal_encoding
from attncourse.transformer import Transformer

#: The runs: as it should be, with zeros for what the encoder has found, and with an open mask in the decoder.
KINDS = ("as it should be", "without the source", "with an open mask")
#: So many letters there are.
NUM_LETTERS = 8
#: So many of them has a word.
LENGTH = 4
#: The numbers of what a written word starts with, and of what ends it; the letters are between them.
START, END = 0, NUM_LETTERS + 1
MODEL_DIM, BATCH, RATE = 32, 32, 1e-2
#: So many words a trained model has to write.
WORDS = 50


@dataclass(frozen=True)
class Functions:
    """What the student wrote, from which a Transformer is put together.

    Parameters
    ----------
    layer_norm, mlp, transformer_block, decoder_block : callable
    """

    layer_norm: Callable
    mlp: Callable
    transformer_block: Callable
    decoder_block: Callable


def sorter(
    layer_norm: Callable, mlp: Callable, transformer_block: Callable, decoder_block: Callable
) -> Callable[[Tensor, Tensor], Tensor]:
    """The course's trained model that sorts letters, computed by these functions.

    Returns
    -------
    callable
        ``scores(written, source)``, as :meth:`attncourse.letters.LetterModel.forward`, of tensors or of
        lists of numbers.
    """
    functions = Functions(layer_norm, mlp, transformer_block, decoder_block)
    model = results()["sorting"].model

    @torch.no_grad()
    def scores(written: Tensor | Sequence[int], source: Tensor | Sequence[int]) -> Tensor:
        return _scores(functions, model, torch.as_tensor(written), torch.as_tensor(source))

    return scores


def writer(
    layer_norm: Callable, mlp: Callable, transformer_block: Callable, causal_stack: Callable
) -> Callable[[Tensor], Tensor]:
    """The course's trained model that goes on with a text, computed by these functions.

    Returns
    -------
    callable
        ``scores(written)``, as :meth:`attncourse.letters.LetterModel.forward`, of a tensor or a list of
        numbers. It looks at the last 64 letters only, as many as it was trained on.
    """
    model = results()["text"].model
    stack = model.transformer

    def block_of(block: Any) -> Callable[[Tensor, Tensor], Tensor]:
        def apply(x: Tensor, mask: Tensor) -> Tensor:
            norms = (_norm(layer_norm, block.attention_norm), _norm(layer_norm, block.mlp_norm))
            return transformer_block(
                x, lambda y: block.attention(y, mask=mask), _think(mlp, block), *norms, "pre"
            )

        return apply

    blocks = [block_of(block) for block in stack.decoder]

    @torch.no_grad()
    def scores(written: Tensor | Sequence[int]) -> Tensor:
        x = model.embed(torch.as_tensor(written)[-64:])  # (length, model_dim)
        return causal_stack(x, blocks, _norm(layer_norm, stack.decoder_norm)) @ model.W_out

    return scores


@dataclass(frozen=True)
class Run:
    """What a training leaves behind.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    losses : Tensor, shape (steps,)
        The loss of each step, the mean over all positions.
    words_right : float
        The share of words that the model, writing on its own, puts in order without a mistake.
    """

    kind: str
    losses: Tensor
    words_right: float


def train(
    layer_norm: Callable,
    mlp: Callable,
    transformer_block: Callable,
    decoder_block: Callable,
    greedy_decode: Callable,
    *,
    kind: str = "as it should be",
    steps: int = 120,
    seed: int = 0,
) -> Run:
    """Train a small model made of these functions to put the letters of words in order.

    A word has 4 different letters out of 8. The model has one block in the encoder and one in the decoder,
    with 4 heads and 32 features.

    Parameters
    ----------
    layer_norm, mlp, transformer_block, decoder_block, greedy_decode : callable
    kind : str
        One of `KINDS`.
    steps : int
        At least 1.
    seed : int

    Raises
    ------
    ValueError
        If `kind` is unknown or `steps` is less than 1.
    """
    require_choice("kind", kind, KINDS)
    require_count("steps", steps, least=1)
    functions = Functions(layer_norm, mlp, transformer_block, decoder_block)
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Small()

    def loss() -> Tensor:
        words, in_order = some_words(BATCH, generator)
        scores = _scores(functions, model, in_order[:, :-1], words, kind)  # (BATCH, LENGTH + 1, letters)
        return nn.functional.cross_entropy(scores.flatten(0, 1), in_order[:, 1:].flatten())

    losses = one_cycle(model.parameters(), (loss() for _ in range(steps)), steps, RATE)
    right = 0
    with torch.no_grad():
        for word, in_order in zip(*some_words(WORDS, generator), strict=True):
            found = greedy_decode(
                lambda written, word=word: _scores(functions, model, torch.as_tensor(written), word, kind),
                START,
                END,
                2 * LENGTH,
            )
            right += [int(letter) for letter in found] == in_order[1:-1].tolist()
    return Run(kind, losses, right / WORDS)


def some_words(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Random words of 4 different letters out of 8, and the same letters in order.

    Parameters
    ----------
    number : int
        At least 1.
    generator : torch.Generator

    Returns
    -------
    words : Tensor, shape (number, 5), int64
        Letters from 1 to 8, and at the end a 9.
    in_order : Tensor, shape (number, 6), int64
        The same letters in order, with a 0 in front of them and a 9 behind them.

    Raises
    ------
    ValueError
        If `number` is less than 1.
    """
    require_count("number", number, least=1)
    letters = 1 + torch.rand(number, NUM_LETTERS, generator=generator).argsort(1)[:, :LENGTH]
    start, end = torch.tensor([START, END]).expand(number, 2).split(1, dim=1)
    return torch.cat([letters, end], 1), torch.cat([start, letters.sort(1).values, end], 1)


def table(runs: Sequence[Run]) -> plots.Table:
    """What the runs came to: the loss at the end, the mean of the last 20 steps, and the words right."""
    return plots.Table(
        {
            "run": [run.kind for run in runs],
            "loss at the end": [run.losses[-20:].mean() for run in runs],
            "words right": [f"{run.words_right:.0%}" for run in runs],
        }
    )


def figure(runs: Sequence[Run], predicted: float) -> Captioned:
    """The losses of the runs, and a line at the loss that was predicted for the one without the source.

    Parameters
    ----------
    runs : sequence of Run
        At most four.
    predicted : float

    Raises
    ------
    ValueError
        If `runs` is empty or has more than four.
    """
    ends = [run.losses[-20:].mean().item() for run in runs]
    drawn, ax = axes_for(runs, 4.8, 3.0)
    for run in runs:
        means = run.losses.unfold(0, min(10, len(run.losses)), 1).mean(-1)  # of ten steps each
        ax.plot(range(len(run.losses) - len(means) + 1, len(run.losses) + 1), means, label=run.kind)
    level(ax, float(predicted), "predicted", below=True)
    ax.set(xlabel="step", ylabel="loss", ylim=(0, None))
    ax.legend(loc="upper right")
    told = "; ".join(f"{run.kind}, it ends at {end:.2f}" for run, end in zip(runs, ends, strict=True))
    return Captioned(
        drawn,
        "The loss in training, as the mean of ten steps, and the predicted loss without the source.",
        f"Loss against steps, a curve for each run: {told}. A thin line at {float(predicted):.2f} is "
        "marked as predicted.",
    )


class _Small(nn.Module):
    """The weights of a model as small as possible, under the names that they have in a `LetterModel`."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(NUM_LETTERS + 2, MODEL_DIM))
        self.transformer = Transformer(MODEL_DIM, 4, 1, 1, 2 * MODEL_DIM, norm="pre")
        self.W_out = nn.Parameter(torch.zeros(MODEL_DIM, NUM_LETTERS + 2))

    def embed(self, letters: Tensor) -> Tensor:
        return self.table[letters] + sinusoidal_encoding(letters.shape[-1], MODEL_DIM)


def _norm(layer_norm: Callable, norm: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: layer_norm(x, norm.weight, norm.bias)


def _think(mlp: Callable, block: Any) -> Callable[[Tensor], Tensor]:
    # The exercise's matrices are stored as PyTorch's linear layers store theirs: (out, in).
    return lambda x: mlp(x, block.W_1.mT, block.b_1, block.W_2.mT, block.b_2)


def _scores(
    functions: Functions,
    model: LetterModel | _Small,
    written: Tensor,
    source: Tensor,
    kind: str = "as it should be",
) -> Tensor:
    """What a model of one block in each stack makes of its inputs, computed by the functions."""
    stack = model.transformer
    first: Any = stack.encoder[0]
    second: Any = stack.decoder[0]

    def norm(of: Any) -> Callable[[Tensor], Tensor]:
        return _norm(functions.layer_norm, of)

    def attend(query: Tensor, key: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        return second.attention(query, key, mask=None if kind == "with an open mask" else mask)

    def look(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
        return second.cross_attention(query, key, mask=mask)

    memory = functions.transformer_block(
        model.embed(source),
        first.attention,
        _think(functions.mlp, first),
        norm(first.attention_norm),
        norm(first.mlp_norm),
        "pre",
    )
    memory = norm(stack.encoder_norm)(memory)
    if kind == "without the source":
        memory = torch.zeros_like(memory)
    norms = [norm(second.attention_norm), norm(second.cross_attention_norm), norm(second.mlp_norm)]
    x = functions.decoder_block(
        model.embed(written), memory, attend, look, _think(functions.mlp, second), norms
    )
    return norm(stack.decoder_norm)(x) @ model.W_out
