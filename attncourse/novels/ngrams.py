"""What a language model has to beat: models that count which tokens followed the last few."""

import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attncourse._require import require_count
from attncourse.novels.data import VOCABULARY_SIZE, held_out_tokens, training_tokens
from attncourse.novels.results import RESULTS

Keys = NDArray[np.int64]


class NGramModel:
    r"""Interpolated Kneser-Ney: the counts after the last n - 1 tokens, eked out by those after fewer.

    .. math::

       p_k(w \mid h) = \frac{\max(c(hw) - d_k, 0)}{\sum_v c(hv)}
       + \frac{d_k \, |\{v : c(hv) > 0\}|}{\sum_v c(hv)} \; p_{k-1}(w \mid h'), \qquad p_0 = \frac 1V

    where h' is the context h without its first token. For the longest context c counts how often
    `h` `w` was seen. For a shorter one it counts how many different tokens were seen before it: a word
    that comes after one other word only, such as "Francisco", should not be expected elsewhere. The
    discount :math:`d_k` is estimated from how many sequences were seen once and twice.

    Parameters
    ----------
    tokens : Tensor of int, shape (positions,)
        What is counted.
    order : int
        From 1, which looks at no token before, to 5.

    Raises
    ------
    ValueError
        If `order` is not in that range, or there are fewer tokens.
    TypeError
        If `order` is not an int.

    References
    ----------
    Kneser and Ney, *Improved backing-off for m-gram language modeling*, 1995.
    Chen and Goodman, *An empirical study of smoothing techniques for language modeling*, 1999, section 3.
    """

    def __init__(self, tokens: Tensor, order: int) -> None:
        require_count("order", order, least=1)
        if order > 5:
            raise ValueError(
                f"order is {order}: expected at most 5, as longer sequences are hardly seen twice"
            )
        if len(tokens) <= order:
            raise ValueError(f"tokens has shape {tuple(tokens.shape)}: expected more than order={order}")
        self.order = order
        self._levels = []
        for length in range(1, order + 1):
            if length == order:
                seen, counts = np.unique(_sequences(tokens, length), return_counts=True)
            else:
                longer = np.unique(_sequences(tokens, length + 1))
                seen, counts = np.unique(longer % VOCABULARY_SIZE**length, return_counts=True)
            self._levels.append(_Level(seen, counts))

    def token_losses(self, tokens: Tensor) -> Tensor:
        """-log of the probability of each token of a text, from those before it.

        Parameters
        ----------
        tokens : Tensor of int, shape (positions,)

        Returns
        -------
        Tensor, shape (positions - 1,)
            Without the first token, as for a model that needs one to begin with.
        """
        probability = np.full(len(tokens), 1 / VOCABULARY_SIZE)
        for before, level in enumerate(self._levels[: len(tokens)]):
            # The first tokens of the text have fewer before them: they keep what shorter contexts gave.
            probability[before:] = level.probability(_sequences(tokens, before + 1), probability[before:])
        return -torch.from_numpy(np.log(probability[1:]))


def ngram_losses(path: Path = RESULTS / "ngrams.json") -> dict[int, float]:
    """The mean loss a token on the novel held out of the models of order 1 to 5, as the file tells."""
    return {int(order): loss for order, loss in json.loads(path.read_text(encoding="utf-8")).items()}


def measure_ngrams() -> dict[int, float]:
    """The same, computed."""
    known, held_out = training_tokens(), held_out_tokens()
    return {order: NGramModel(known, order).token_losses(held_out).mean().item() for order in range(1, 6)}


class _Level:
    """Counts of all sequences of one length."""

    def __init__(self, seen: Keys, counts: Keys) -> None:
        self.seen, self.counts = seen, counts
        # Both are in order, so that sequences with the same beginning stand side by side.
        self.contexts, first = np.unique(seen // VOCABULARY_SIZE, return_index=True)
        self.totals = np.add.reduceat(counts, first)
        self.kinds = np.diff(np.append(first, len(seen)))
        once, twice = (np.count_nonzero(counts == number) for number in (1, 2))
        self.discount = once / (once + 2 * twice) if once and twice else 0.5

    def probability(self, sequences: Keys, shorter: NDArray[np.float64]) -> NDArray[np.float64]:
        """Of the last token of each sequence, where `shorter` is what shorter contexts give."""
        count = _look_up(self.seen, self.counts, sequences)
        contexts = sequences // VOCABULARY_SIZE
        total = _look_up(self.contexts, self.totals, contexts)
        kinds = _look_up(self.contexts, self.kinds, contexts)
        known = np.maximum(total, 1)
        found = np.maximum(count - self.discount, 0) / known + self.discount * kinds / known * shorter
        return np.where(total > 0, found, shorter)


def _sequences(tokens: Tensor, length: int) -> Keys:
    """Each run of `length` neighbouring tokens as one number, whose digits they are."""
    numbers = tokens.numpy()
    keys = np.zeros(len(numbers) - length + 1, dtype=np.int64)
    for place in range(length):
        keys = keys * VOCABULARY_SIZE + numbers[place : len(numbers) - length + 1 + place]
    return keys


def _look_up(keys: Keys, values: Keys, wanted: Keys) -> Keys:
    """The value of each key that is there, and 0 for the others."""
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, values[place], 0)
