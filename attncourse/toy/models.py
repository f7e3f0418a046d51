"""The networks: convolutions only, or with self-attention in the middle."""

import torch
from torch import Tensor, nn

from attncourse._require import require_choice
from attncourse.attention_operator import attention
from attncourse.positional import binary_encoding
from attncourse.toy.data import LENGTH

MODELS = ("conv", "attention")
POSITIONS = ("none", "bits", "signs", "standardised")
#: Mean and standard deviation of the inputs, by which models standardise them.
INPUT_MEAN, INPUT_STD = 3.325, 6.28


class SelfAttention(nn.Module):
    """One head of self-attention between convolutions: input and output have positions last.

    The scores are not divided by the square root of `key_dim`. The lecture's layer leaves
    this factor out and says so; here it makes training faster, and the committed results
    are those of the layer as it stands.

    Parameters
    ----------
    in_channels, out_channels, key_dim : int
        The layer learns ``W_Q`` and ``W_K`` (in_channels, key_dim) and ``W_V``
        (in_channels, out_channels), which start as the weights of a convolution do.
    """

    def __init__(self, in_channels: int, out_channels: int, key_dim: int) -> None:
        super().__init__()
        self.W_Q = nn.Parameter(torch.empty(in_channels, key_dim))
        self.W_K = nn.Parameter(torch.empty(in_channels, key_dim))
        self.W_V = nn.Parameter(torch.empty(in_channels, out_channels))
        for weight in self.parameters():
            nn.init.uniform_(weight, -(in_channels**-0.5), in_channels**-0.5)

    def forward(self, x: Tensor, return_weights: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """From (batch, in_channels, positions) to (batch, out_channels, positions).

        With `return_weights`, also the attention map, (batch, positions, positions).
        """
        x = x.transpose(1, 2)  # (batch, positions, in_channels)
        query, key, value = x @ self.W_Q, x @ self.W_K, x @ self.W_V
        output, weights = attention(query, key, value, scale=1.0, return_weights=True)
        output = output.transpose(1, 2)  # (batch, out_channels, positions)
        return (output, weights) if return_weights else output


class ToyModel(nn.Module):
    """Five layers from a sequence to a sequence: all convolutions, or with attention in the middle.

    Parameters
    ----------
    model : str
        "conv": five convolutions. "attention": the third one, and the ReLU after it, give
        place to :class:`SelfAttention`.
    positions : str
        What is concatenated to the input as further channels: "none", or the seven bits of
        each position's number as 0 and 1 ("bits"), as -1 and 1 ("signs"), or as 0 and 1
        standardised with the mean and standard deviation of the signal, as the lecture's
        program does ("standardised").

    Raises
    ------
    ValueError
        If `model` or `positions` is unknown.
    """

    encoding: Tensor

    def __init__(self, model: str, positions: str = "none") -> None:
        super().__init__()
        require_choice("model", model, MODELS)
        require_choice("positions", positions, POSITIONS)
        bits = binary_encoding(LENGTH).T  # (7, LENGTH)
        encoding = {
            "none": bits[:0],
            "bits": bits,
            "signs": 2 * bits - 1,
            "standardised": (bits - INPUT_MEAN) / INPUT_STD,
        }[positions]
        self.register_buffer("encoding", encoding, persistent=False)
        self.layers = nn.Sequential(
            nn.Conv1d(1 + len(encoding), 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.Conv1d(64, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            *(
                [SelfAttention(64, 64, key_dim=64)]
                if model == "attention"
                else [nn.Conv1d(64, 64, kernel_size=5, padding=2), nn.ReLU()]
            ),
            nn.Conv1d(64, 64, kernel_size=5, padding=2),
            nn.ReLU(),
            nn.Conv1d(64, 1, kernel_size=5, padding=2),
        )

    def channels(self, x: Tensor) -> Tensor:
        """What the first layer gets: the standardised input with its positions' encoding."""
        encoding = self.encoding.expand(len(x), -1, -1)
        return torch.cat(((x - INPUT_MEAN) / INPUT_STD, encoding), dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Predict targets, (batch, 1, LENGTH), from inputs of the same shape."""
        return self.layers(self.channels(x))

    def attention_map(self, x: Tensor) -> Tensor:
        """The weights of the attention layer, (batch, LENGTH, LENGTH), for these inputs."""
        x = self.channels(x)
        for layer in self.layers:
            if isinstance(layer, SelfAttention):
                return layer(x, return_weights=True)[1]
            x = layer(x)
        raise ValueError("this model has no attention layer")
