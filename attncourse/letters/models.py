"""The model of both tasks: letters in, and for each the scores of the letter that comes next."""

import torch
from torch import Tensor, nn

from attncourse._require import require_choice
from attncourse.letters.data import ALPHABETS, TASKS
from attncourse.positional import sinusoidal_encoding
from attncourse.transformer import Transformer


class LetterModel(nn.Module):
    """A table of letters, a Transformer, and a matrix that reads its output.

    Parameters
    ----------
    task : str
        "text": a decoder of two blocks. "sorting": an encoder and a decoder of one block
        each.
    dropout_p : float

    Raises
    ------
    ValueError
        If `task` is unknown, or `dropout_p` is not a probability.
    """

    def __init__(self, task: str, dropout_p: float = 0.0) -> None:
        super().__init__()
        require_choice("task", task, TASKS)
        blocks = {"text": (0, 2), "sorting": (1, 1)}[task]
        self.model_dim = 64
        self.table = nn.Parameter(torch.randn(len(ALPHABETS[task]), self.model_dim))
        self.transformer = Transformer(self.model_dim, 4, *blocks, norm="pre", dropout_p=dropout_p)
        self.W_out = nn.Parameter(torch.zeros(self.model_dim, len(ALPHABETS[task])))

    def embed(self, letters: Tensor) -> Tensor:
        """A vector for each letter and its place: from (..., length) to (..., length, model_dim)."""
        return self.table[letters] + sinusoidal_encoding(letters.shape[-1], self.model_dim)

    def forward(self, target: Tensor, source: Tensor | None = None) -> Tensor:
        """Score, at each letter of `target`, every letter as the next one.

        Parameters
        ----------
        target : Tensor of int, shape (..., num_target)
            What has been written so far.
        source : Tensor of int, shape (..., num_source), optional
            The word whose letters are to be sorted, for "sorting".

        Returns
        -------
        Tensor, shape (..., num_target, letters of the alphabet)
        """
        embedded = None if source is None else self.embed(source)
        return self.transformer(embedded, self.embed(target)) @ self.W_out

    def attention_maps(self, target: Tensor, source: Tensor | None = None) -> dict[str, list[Tensor]]:
        """The attention weights of every block: "encoder", "decoder" and "cross"."""
        embedded = None if source is None else self.embed(source)
        return self.transformer(embedded, self.embed(target), return_weights=True)[1]
