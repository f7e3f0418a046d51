"""Attention looks at pictures: patches, positions in two dimensions, a Vision Transformer, and rollout.

A picture is cut into square patches, and the patches are the positions of a sequence, row after row. What
follows is the Transformer of :mod:`attncourse.transformer`; only how a picture gets in and how a class comes
out is new.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._require import require_choice, require_count, require_floating, require_tensor, shape_of
from attncourse.attention_operator import attention
from attncourse.multihead import MultiHeadAttention, merge_heads
from attncourse.positional import LearnedEncoding, rotary, sinusoidal_encoding
from attncourse.transformer import TransformerBlock

__all__ = [
    "VisionTransformer",
    "attention_distance",
    "attention_rollout",
    "grid_encoding",
    "grid_positions",
    "patchify",
    "rotary_2d",
    "unpatchify",
]

POSITIONS = ("none", "learned", "sinusoidal", "rotary")


def patchify(images: Tensor, patch_size: int) -> Tensor:
    """Cut pictures into square patches.

    Parameters
    ----------
    images : Tensor, shape (..., channels, height, width)
    patch_size : int
        The side of a patch in pixels, P; it divides height and width.

    Returns
    -------
    Tensor, shape (..., num_patches, channels * P * P)
        The patches row by row, from the upper left; in each the first channel row by row, then the next.

    Raises
    ------
    ValueError
        If `images` has fewer than three dimensions, or the patches do not fill it.
    TypeError
        If `images` is not a tensor or `patch_size` not an int.

    References
    ----------
    Dosovitskiy et al., *An image is worth 16x16 words: transformers for image recognition at scale*, 2021,
    section 3.1.
    """
    require_tensor("images", images)
    require_count("patch_size", patch_size, least=1)
    if images.dim() < 3 or images.shape[-2] % patch_size or images.shape[-1] % patch_size:
        raise ValueError(
            f"images has shape {shape_of(images)}: expected (..., channels, height, width) "
            f"with height and width multiples of patch_size={patch_size}"
        )
    cut = images.unflatten(-1, (-1, patch_size)).unflatten(-3, (-1, patch_size))
    # (..., channels, rows, P, columns, P) -> (..., rows, columns, channels, P, P)
    cut = cut.movedim((-4, -2), (-5, -4))
    return cut.flatten(-3).flatten(-3, -2)


def unpatchify(patches: Tensor, patch_size: int, height: int, width: int) -> Tensor:
    """Put patches together to pictures: the inverse of :func:`patchify`.

    Parameters
    ----------
    patches : Tensor, shape (..., num_patches, channels * P * P)
    patch_size : int
        P.
    height, width : int
        Of the pictures, in pixels; multiples of P.

    Returns
    -------
    Tensor, shape (..., channels, height, width)

    Raises
    ------
    ValueError
        If the patches cannot be those of such pictures.
    TypeError
        If `patches` is not a tensor or a number not an int.
    """
    require_tensor("patches", patches)
    for name, number in (("patch_size", patch_size), ("height", height), ("width", width)):
        require_count(name, number, least=1)
    rows, columns = height // patch_size, width // patch_size
    if (
        patches.dim() < 2
        or (rows * patch_size, columns * patch_size) != (height, width)
        or patches.shape[-2] != rows * columns
        or patches.shape[-1] % patch_size**2
    ):
        raise ValueError(
            f"patches has shape {shape_of(patches)}: expected (..., num_patches, features) with the patches "
            f"of pictures of {height} x {width} pixels and patch_size={patch_size}"
        )
    cut = patches.unflatten(-2, (rows, columns)).unflatten(-1, (-1, patch_size, patch_size))
    # (..., rows, columns, channels, P, P) -> (..., channels, rows, P, columns, P)
    cut = cut.movedim((-5, -4), (-4, -2))
    return cut.flatten(-2).flatten(-3, -2)


def grid_positions(rows: int, columns: int) -> Tensor:
    """Row and column of each patch, in the order of :func:`patchify`: (rows * columns, 2), counted from 0.

    Raises
    ------
    ValueError
        If a number is less than 1.
    TypeError
        If a number is not an int.
    """
    require_count("rows", rows, least=1)
    require_count("columns", columns, least=1)
    return torch.cartesian_prod(torch.arange(rows), torch.arange(columns)).view(-1, 2)


def grid_encoding(row_encoding: Tensor, column_encoding: Tensor) -> Tensor:
    """Encode two-dimensional positions: the encoding of the row, and beside it that of the column.

    Parameters
    ----------
    row_encoding : Tensor, shape (rows, row_dim)
        An encoding of each row, for instance of :func:`attncourse.sinusoidal_encoding`.
    column_encoding : Tensor, shape (columns, column_dim)

    Returns
    -------
    Tensor, shape (rows * columns, row_dim + column_dim)
        In the order of :func:`patchify`.

    Raises
    ------
    ValueError
        If an encoding is not a matrix of floating-point numbers with at least one row.
    TypeError
        If an encoding is not a tensor.
    """
    for name, encoding in (("row_encoding", row_encoding), ("column_encoding", column_encoding)):
        require_floating(name, encoding)
        if encoding.dim() != 2 or len(encoding) == 0:
            raise ValueError(f"{name} has shape {shape_of(encoding)}: expected (positions, features)")
    row, column = grid_positions(len(row_encoding), len(column_encoding)).unbind(-1)
    return torch.cat((row_encoding[row], column_encoding[column]), dim=-1)


def rotary_2d(x: Tensor, positions: Tensor) -> Tensor:
    """Turn the first half of the features by the row, and the second by the column.

    Each half is turned as :func:`attncourse.rotary` does it. A score then depends on how many rows and how
    many columns query and key are apart, and not on where they stand.

    Parameters
    ----------
    x : Tensor, shape (..., length, dim)
        Queries or keys; `dim` is a multiple of 4.
    positions : Tensor, shape (length, 2)
        Row and column of each, for instance of :func:`grid_positions`.

    Returns
    -------
    Tensor, the shape of `x`

    Raises
    ------
    ValueError
        If `dim` is no multiple of 4, or `positions` does not fit `x`.
    TypeError
        If an argument is not a tensor.

    References
    ----------
    Heo et al., *Rotary position embedding for Vision Transformer*, 2024, where it is called axial.
    """
    require_floating("x", x)
    require_tensor("positions", positions)
    if x.dim() < 2 or x.shape[-1] % 4 or x.shape[-1] == 0:
        raise ValueError(
            f"x has shape {shape_of(x)}: expected (..., length, dim) with a multiple of 4 features, "
            "to turn half of them by each of two positions"
        )
    if shape_of(positions) != (x.shape[-2], 2):
        raise ValueError(
            f"positions has shape {shape_of(positions)}: expected ({x.shape[-2]}, 2), a row and a column "
            "for each row of x"
        )
    halves = x.chunk(2, dim=-1)
    return torch.cat([rotary(half, positions[:, axis]) for axis, half in enumerate(halves)], dim=-1)


def attention_rollout(weights: Sequence[Tensor]) -> Tensor:
    r"""Follow attention through all blocks: how much of each input's token is in each output's.

    .. math:: R = \hat A_L \cdots \hat A_2 \hat A_1, \qquad
        \hat A_l = \tfrac12 I + \tfrac12 \cdot \tfrac1H \sum_h A_{l,h}

    The half of the identity stands for the residual, the mean is over the heads. Values, the output
    projection and the small networks are left out, so that it is not what the output depends on.

    Parameters
    ----------
    weights : sequence of Tensor, each of shape (..., num_heads, positions, positions)
        The attention weights of each block, the first first.

    Returns
    -------
    Tensor, shape (..., positions, positions)
        A row for each output's position; rows sum to 1.

    Raises
    ------
    ValueError
        If there are no weights, or they do not fit each other.
    TypeError
        If one is not a tensor.

    References
    ----------
    Abnar and Zuidema, *Quantifying attention flow in transformers*, 2020, "attention rollout".
    """
    if not len(weights):
        raise ValueError("weights is empty: expected those of at least one block")
    for block in weights:
        require_floating("weights", block)
        fits = block.dim() >= 3 and block.shape[-1] == block.shape[-2]
        if not fits or block.shape[:-3] != weights[0].shape[:-3] or block.shape[-1] != weights[0].shape[-1]:
            raise ValueError(
                f"weights has one of shape {shape_of(block)}: expected (..., num_heads, positions, "
                f"positions), with batch and positions of the first, whose shape is {shape_of(weights[0])}"
            )
    identity = torch.eye(weights[0].shape[-1], dtype=weights[0].dtype, device=weights[0].device)
    rolled = identity
    for block in weights:
        rolled = (identity + block.mean(-3)) / 2 @ rolled
    return rolled


def attention_distance(weights: Tensor, positions: Tensor) -> Tensor:
    """How far each head looks: the mean distance between a query and what it attends to.

    Parameters
    ----------
    weights : Tensor, shape (..., num_queries, num_keys)
        Attention weights between patches. Rows that do not sum to 1, where a class token was left out, are
        made to.
    positions : Tensor, shape (num_queries, 2), as many queries as keys
        Row and column of each, for instance of :func:`grid_positions`.

    Returns
    -------
    Tensor, shape (...,)
        In patches.

    Raises
    ------
    ValueError
        If `positions` does not fit `weights`.
    TypeError
        If an argument is not a tensor.

    References
    ----------
    Dosovitskiy et al., *An image is worth 16x16 words*, 2021, section 4.5 and figure 7.
    """
    require_floating("weights", weights)
    require_tensor("positions", positions)
    if (
        weights.dim() < 2
        or shape_of(positions) != (weights.shape[-1], 2)
        or len(positions) != weights.shape[-2]
    ):
        raise ValueError(
            f"positions has shape {shape_of(positions)}: expected a row and a column for each query and key "
            f"of weights, whose shape is {shape_of(weights)}"
        )
    places = positions.to(weights.dtype)
    distances = (places[:, None] - places).norm(dim=-1)  # (num_queries, num_keys)
    return ((weights * distances).sum(-1) / weights.sum(-1)).mean(-1)


class VisionTransformer(nn.Module):
    r"""A Transformer that classifies pictures.

    The patches of a picture, each as a vector of its pixels, become tokens by one matrix. A learned *class
    token* is put in front of them. After the blocks, which are pre-norm, the class token's features are
    read by another matrix:

    .. math::

       Z_0 = (c \mid X W^P + b^P + E), \qquad
       y = \operatorname{norm}(Z_L)_0\, W^{out} + b^{out} .

    Parameters
    ----------
    image_size : (int, int)
        Height and width of the pictures, in pixels.
    patch_size : int
        Divides both.
    num_classes, model_dim, num_heads, num_blocks : int
    hidden_dim : int, optional
        The number of features inside each MLP; 4 * model_dim if not given.
    channels : int
        Of the pictures.
    positions : str
        "none": the model is not told which patch stands where. "learned": a table, added to the patches'
        tokens. "sinusoidal": :func:`grid_encoding` of sines and cosines, added. "rotary": queries and keys
        of patches are turned in every block, as by :func:`rotary_2d`; those of the class token are not.
    dropout_p : float

    Notes
    -----
    The model learns ``W_patch`` (channels * P * P, model_dim), ``b_patch`` and ``class_token``
    (model_dim,), with "learned" the table ``encoding.table`` (num_patches, model_dim), the ``blocks``, the
    last normalisation ``norm``, ``W_out`` (model_dim, num_classes) and ``b_out`` (num_classes,). The class
    token has no row in the table, as it is learned itself.

    Raises
    ------
    ValueError
        If a size is not positive or does not fit another, or `positions` is unknown.
    TypeError
        If a size is not an int.

    References
    ----------
    Dosovitskiy et al., *An image is worth 16x16 words: transformers for image recognition at scale*, 2021.
    """

    def __init__(
        self,
        image_size: tuple[int, int],
        patch_size: int,
        num_classes: int,
        model_dim: int,
        num_heads: int,
        num_blocks: int,
        hidden_dim: int | None = None,
        *,
        channels: int = 1,
        positions: str = "learned",
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        sizes = {
            "image_size": min(image_size),
            "patch_size": patch_size,
            "num_classes": num_classes,
            "model_dim": model_dim,
            "num_heads": num_heads,
            "num_blocks": num_blocks,
            "channels": channels,
        }
        for name, number in sizes.items():
            require_count(name, number, least=1)
        require_choice("positions", positions, POSITIONS)
        if any(side % patch_size for side in image_size):
            raise ValueError(
                f"patch_size is {patch_size}: expected a divisor of {image_size[0]} and {image_size[1]}"
            )
        multiple = {"sinusoidal": 4, "rotary": 4 * num_heads}.get(positions, 1)
        if model_dim % multiple:
            raise ValueError(
                f"model_dim is {model_dim}: expected a multiple of {multiple} for {positions} positions"
            )
        self.image_size, self.patch_size, self.channels = tuple(image_size), patch_size, channels
        self.positions = positions
        rows, columns = (side // patch_size for side in image_size)
        pixels = channels * patch_size**2
        self.W_patch = nn.Parameter(torch.randn(pixels, model_dim) * pixels**-0.5)
        self.b_patch = nn.Parameter(torch.zeros(model_dim))
        self.class_token = nn.Parameter(0.02 * torch.randn(model_dim))
        self.encoding = LearnedEncoding(rows * columns, model_dim) if positions == "learned" else None
        if self.encoding is not None:
            # About as large as the tokens of patches: a table that starts near zero is learned slowly.
            nn.init.normal_(self.encoding.table, std=0.3)
        self.blocks = nn.ModuleList(
            TransformerBlock(model_dim, num_heads, hidden_dim, norm="pre", dropout_p=dropout_p)
            for _ in range(num_blocks)
        )
        if positions == "rotary":
            for block in self.blocks:
                block.attention = _TurnedAttention(
                    model_dim, num_heads, grid_positions(rows, columns), dropout_p
                )
        self.waves: Tensor
        if positions == "sinusoidal":
            waves = (sinusoidal_encoding(length, model_dim // 2) for length in (rows, columns))
            self.register_buffer("waves", grid_encoding(*waves), persistent=False)
        self.norm = nn.LayerNorm(model_dim)
        self.W_out = nn.Parameter(torch.zeros(model_dim, num_classes))
        self.b_out = nn.Parameter(torch.zeros(num_classes))

    def tokens(self, images: Tensor) -> Tensor:
        """What goes into the first block: the class token, and a token for each patch.

        Parameters
        ----------
        images : Tensor, shape (..., channels, height, width)

        Returns
        -------
        Tensor, shape (..., 1 + num_patches, model_dim)

        Raises
        ------
        ValueError
            If `images` has another shape.
        TypeError
            If `images` is not a tensor.
        """
        require_floating("images", images)
        if shape_of(images)[-3:] != (self.channels, *self.image_size):
            expected = ", ".join(map(str, (self.channels, *self.image_size)))
            raise ValueError(f"images has shape {shape_of(images)}: expected (..., {expected})")
        patches = (
            patchify(images, self.patch_size) @ self.W_patch + self.b_patch
        )  # (..., num_patches, model_dim)
        if self.encoding is not None:
            patches = patches + self.encoding.table
        elif self.positions == "sinusoidal":
            patches = patches + self.waves
        class_token = self.class_token.expand(*patches.shape[:-2], 1, -1)  # (..., 1, model_dim)
        return torch.cat((class_token, patches), dim=-2)

    def forward(self, images: Tensor, return_weights: bool = False) -> Tensor | tuple[Tensor, list[Tensor]]:
        """Score every class for each picture.

        Parameters
        ----------
        images : Tensor, shape (..., channels, height, width)
        return_weights : bool
            Also return the attention weights.

        Returns
        -------
        scores : Tensor, shape (..., num_classes)
        weights : list of Tensor
            Only if `return_weights`: those of one block after the other, each of shape
            (..., num_heads, 1 + num_patches, 1 + num_patches). Position 0 is the class token.

        Raises
        ------
        ValueError
            If `images` has another shape than the model was made for.
        TypeError
            If `images` is not a tensor.
        """
        x: Any = self.tokens(images)
        weights = []
        for block in self.blocks:
            x = block(x, return_weights=return_weights)
            if return_weights:
                x, found = x
                weights.append(found["self"])
        scores = self.norm(x[..., 0, :]) @ self.W_out + self.b_out  # (..., num_classes)
        return (scores, weights) if return_weights else scores


class _TurnedAttention(MultiHeadAttention):
    """Self-attention whose queries and keys are turned by their place; those of position 0 are not."""

    def __init__(self, model_dim: int, num_heads: int, positions: Tensor, dropout_p: float) -> None:
        super().__init__(model_dim, num_heads, bias=True, dropout_p=dropout_p)
        self.positions: Tensor
        self.register_buffer("positions", positions, persistent=False)

    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        key: None = None,
        *,
        mask: None = None,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Apply the layer to x, (..., 1 + length, model_dim)."""
        b_Q, b_K, b_V, b_O = self._biases()
        query, keys, value = (
            x.unsqueeze(-3) @ W + b.unsqueeze(-2)  # (..., num_heads, 1 + length, head_dim)
            for W, b in ((self.W_Q, b_Q), (self.W_K, b_K), (self.W_V, b_V))
        )
        dropout_p = self.dropout_p if self.training else 0.0
        heads, weights = attention(
            self._turned(query), self._turned(keys), value, dropout_p=dropout_p, return_weights=True
        )
        if head_mask is not None:
            heads = heads * head_mask[..., None, None].to(heads.dtype)
        output = merge_heads(heads) @ self.W_O + b_O
        return (output, weights) if return_weights else output

    def _turned(self, x: Tensor) -> Tensor:
        return torch.cat((x[..., :1, :], rotary_2d(x[..., 1:, :], self.positions)), dim=-2)
