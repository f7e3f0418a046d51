"""The Transformer: blocks that first let the positions meet, then let each work on its own, in a stack.

The block is that of Vaswani et al., 2017, with its normalisation after each step ("post") or,
as is usual today, before it ("pre"). Positional encodings, which :mod:`attncourse.positional`
has, are added to the input before it comes here.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from attncourse._require import require_choice, require_count, require_rows, require_tensor, shape_of
from attncourse.masking import causal_mask
from attncourse.multihead import MultiHeadAttention

__all__ = ["Transformer", "TransformerBlock"]

NORMS = ("pre", "post")
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": nn.functional.relu, "gelu": nn.functional.gelu}
Step = Callable[[Tensor], Tensor]


class TransformerBlock(nn.Module):
    r"""One block: attention, and then a small network at each position.

    Each of the two steps adds what it finds to its input, and a layer normalisation goes
    with it: before the step (``norm="pre"``),

    .. math::

       Z = X + \operatorname{att}(\operatorname{norm}_1(X)), \qquad
       Y = Z + \operatorname{MLP}(\operatorname{norm}_2(Z)),

    or after the sum (``norm="post"``),

    .. math::

       Z = \operatorname{norm}_1(X + \operatorname{att}(X)), \qquad
       Y = \operatorname{norm}_2(Z + \operatorname{MLP}(Z)),

    with

    .. math:: \operatorname{MLP}(X) = \operatorname{ReLU}(X W_1 + b_1)\, W_2 + b_2 ,

    where ``activation="gelu"`` puts GELU, :math:`x\,\Phi(x)`, in the place of ReLU.

    A block with cross-attention has a third step between the two, whose queries come from
    `x` and whose keys and values come from `memory`.

    Parameters
    ----------
    model_dim : int
        The number of features of the input and of the output, D.
    num_heads : int
    hidden_dim : int, optional
        The number of features inside the MLP; 4 * model_dim if not given.
    norm : str
        "pre" or "post".
    cross_attention : bool
        Whether the block has the third step, as the blocks of an encoder-decoder's decoder.
    dropout_p : float
        The probability that an attention weight, a feature inside the MLP, or a feature of
        what a step adds is dropped, in training mode only.
    activation : str
        "relu" or "gelu".
    layer_norm_eps : float
        What each layer normalisation adds to the variance before it takes the root.

    Notes
    -----
    The block learns ``attention`` and, with `cross_attention`, ``cross_attention``
    (:class:`MultiHeadAttention` with biases), ``W_1`` (model_dim, hidden_dim), ``b_1``
    (hidden_dim,), ``W_2`` (hidden_dim, model_dim), ``b_2`` (model_dim,), and the layer
    normalisations ``attention_norm``, ``cross_attention_norm`` and ``mlp_norm``.

    Raises
    ------
    ValueError
        If `norm` or `activation` is unknown, a size is not positive, num_heads does not
        divide model_dim, or `dropout_p` is not a probability.

    References
    ----------
    Vaswani et al., *Attention is all you need*, 2017, section 3: post.
    Hendrycks and Gimpel, *Gaussian error linear units (GELUs)*, 2016.
    Xiong et al., *On layer normalization in the Transformer architecture*, 2020: pre and post.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        hidden_dim: int | None = None,
        *,
        norm: str,
        cross_attention: bool = False,
        dropout_p: float = 0.0,
        activation: str = "relu",
        layer_norm_eps: float = 1e-5,
    ) -> None:
        super().__init__()
        require_choice("norm", norm, NORMS)
        require_choice("activation", activation, tuple(ACTIVATIONS))
        self.norm = norm
        self.activation = activation
        self.attention = MultiHeadAttention(model_dim, num_heads, bias=True, dropout_p=dropout_p)
        self.cross_attention = (
            MultiHeadAttention(model_dim, num_heads, bias=True, dropout_p=dropout_p)
            if cross_attention
            else None
        )
        hidden_dim = 4 * model_dim if hidden_dim is None else hidden_dim
        require_count("hidden_dim", hidden_dim, least=1)
        self.W_1 = nn.Parameter(torch.empty(model_dim, hidden_dim))
        self.b_1 = nn.Parameter(torch.zeros(hidden_dim))
        self.W_2 = nn.Parameter(torch.empty(hidden_dim, model_dim))
        self.b_2 = nn.Parameter(torch.zeros(model_dim))
        for weight in (self.W_1, self.W_2):
            nn.init.normal_(weight, std=len(weight) ** -0.5)
        self.attention_norm = nn.LayerNorm(model_dim, layer_norm_eps)
        self.cross_attention_norm = nn.LayerNorm(model_dim, layer_norm_eps) if cross_attention else None
        self.mlp_norm = nn.LayerNorm(model_dim, layer_norm_eps)
        self.dropout = nn.Dropout(dropout_p)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        return_weights: bool = False,
        *,
        head_mask: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, dict[str, Tensor]]:
        """Apply the block.

        Parameters
        ----------
        x : Tensor, shape (..., positions, model_dim)
        memory : Tensor, shape (..., num_memory, model_dim), optional
            What a block with cross-attention looks at; other blocks take none.
        mask : Tensor of bool, optional
            Broadcasts to (..., positions, positions): which position may attend to which of
            `x`. True = may attend.
        memory_mask : Tensor of bool, optional
            Broadcasts to (..., positions, num_memory): which position may attend to which
            of `memory`.
        return_weights : bool
            Also return the attention weights.
        head_mask : Tensor of bool or floating point, optional
            Broadcasts to (..., num_heads); 0 silences a head of the self-attention, as in
            :class:`MultiHeadAttention`.

        Returns
        -------
        output : Tensor, shape (..., positions, model_dim)
        weights : dict of str to Tensor
            Only if `return_weights`. "self": (..., num_heads, positions, positions), and
            with cross-attention "cross": (..., num_heads, positions, num_memory).

        Raises
        ------
        ValueError
            If shapes, dtypes or a mask do not fit, or `memory` is missing or not wanted.
        TypeError
            If an argument that should be a tensor is not.
        """
        if (memory is None) != (self.cross_attention is None):
            expected = "none, as this block has no" if self.cross_attention is None else "one, for its"
            raise ValueError(
                f"memory is {'not given' if memory is None else 'given'}: expected {expected} cross-attention"
            )
        require_rows("x", x)
        if x.shape[-1] != len(self.W_1):
            raise ValueError(f"x has shape {shape_of(x)}: expected (..., positions, {len(self.W_1)})")
        weights: dict[str, Tensor] = {}

        def attend(
            name: str,
            layer: MultiHeadAttention,
            key: Tensor | None,
            mask: Tensor | None,
            head_mask: Tensor | None = None,
        ) -> Step:
            def step(x: Tensor) -> Tensor:
                found: Any = layer(x, key, mask=mask, head_mask=head_mask, return_weights=return_weights)
                if return_weights:
                    found, weights[name] = found
                return found

            return step

        x = self._add(attend("self", self.attention, None, mask, head_mask), x, self.attention_norm)
        if self.cross_attention is not None and self.cross_attention_norm is not None:
            look = attend("cross", self.cross_attention, memory, memory_mask)
            x = self._add(look, x, self.cross_attention_norm)
        x = self._add(self.mlp, x, self.mlp_norm)
        return (x, weights) if return_weights else x

    def mlp(self, x: Tensor) -> Tensor:
        """The small network, at each position: from (..., positions, model_dim) to the same shape."""
        hidden = ACTIVATIONS[self.activation](x @ self.W_1 + self.b_1)  # (..., positions, hidden_dim)
        return self.dropout(hidden) @ self.W_2 + self.b_2

    @classmethod
    def from_torch(cls, layer: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer) -> "TransformerBlock":
        """Make a block that is the same function of the same inputs as PyTorch's layer.

        An encoder layer gives a block without cross-attention, a decoder layer one with it.
        Only the masks differ: PyTorch's are True where a key may *not* be attended to.

        Parameters
        ----------
        layer : torch.nn.TransformerEncoderLayer or torch.nn.TransformerDecoderLayer

        Returns
        -------
        TransformerBlock
            With copies of the weights, and in the same mode (training or evaluation).

        Raises
        ------
        ValueError
            If `layer` has another activation than ReLU and the exact GELU.
        TypeError
            If `layer` is neither of the two.
        """
        if not isinstance(layer, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
            raise TypeError(
                f"layer is a {type(layer).__name__}: expected a torch.nn.TransformerEncoderLayer "
                "or a torch.nn.TransformerDecoderLayer"
            )
        activation: Any = layer.activation
        if activation is nn.functional.relu or isinstance(activation, nn.ReLU):
            name = "relu"
        elif activation is nn.functional.gelu or getattr(activation, "approximate", None) == "none":
            name = "gelu"
        else:
            raise ValueError(f"layer has the activation {activation}: expected ReLU, or GELU that is exact")
        ours = cls(
            layer.linear1.in_features,
            layer.self_attn.num_heads,
            layer.linear1.out_features,
            norm="pre" if layer.norm_first else "post",
            cross_attention=isinstance(layer, nn.TransformerDecoderLayer),
            dropout_p=layer.dropout.p,
            activation=name,
        )
        ours.to(layer.linear1.weight)
        ours.attention = MultiHeadAttention.from_torch(layer.self_attn)
        pairs = [
            (ours.W_1, layer.linear1.weight.mT),  # PyTorch stores (out, in)
            (ours.W_2, layer.linear2.weight.mT),
            (ours.b_1, layer.linear1.bias),
            (ours.b_2, layer.linear2.bias),
        ]
        norms: list[tuple[Any, nn.LayerNorm]] = [(ours.attention_norm, layer.norm1)]
        if isinstance(layer, nn.TransformerDecoderLayer):
            ours.cross_attention = MultiHeadAttention.from_torch(layer.multihead_attn)
            norms += [(ours.cross_attention_norm, layer.norm2), (ours.mlp_norm, layer.norm3)]
        else:
            norms += [(ours.mlp_norm, layer.norm2)]
        for norm, theirs in norms:
            norm.eps = theirs.eps
            pairs += [(norm.weight, theirs.weight), (norm.bias, theirs.bias)]
        with torch.no_grad():
            for parameter, value in pairs:
                # A bias that PyTorch's layer does not have is one of zeros, as in a new block.
                if value is not None:
                    parameter.copy_(value)
        return ours.train(layer.training)

    def extra_repr(self) -> str:
        """The kind of the block, for ``print(block)``."""
        return f"norm={self.norm!r}, hidden_dim={len(self.b_1)}, activation={self.activation!r}"

    def _add(self, step: Step, x: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Add what a step finds to x, normalised before the step or after the sum."""
        if self.norm == "pre":
            return x + self.dropout(step(norm(x)))
        return norm(x + self.dropout(step(x)))


class Transformer(nn.Module):
    """A stack of blocks: an encoder, a decoder, or both.

    - An *encoder* (`num_encoder_blocks` only) reads a source: every position sees all.
    - A *decoder* (`num_decoder_blocks` only) writes a target: every position sees itself
      and what comes before.
    - An *encoder-decoder* (both) writes a target while it looks at a source: each of the
      decoder's blocks attends to what the encoder's last block gives.

    Parameters
    ----------
    model_dim, num_heads : int
    num_encoder_blocks, num_decoder_blocks : int
        At least one of the two is positive.
    hidden_dim : int, optional
        The number of features inside each MLP; 4 * model_dim if not given.
    norm : str
        "pre" or "post", as in :class:`TransformerBlock`. With "pre", each stack ends with a
        layer normalisation of its own, since the sum that leaves its last block is not
        normalised.
    dropout_p : float

    Notes
    -----
    The stacks are ``encoder`` and ``decoder``, lists of blocks, and their last
    normalisations ``encoder_norm`` and ``decoder_norm``, which with "post" do nothing.

    Raises
    ------
    ValueError
        If there is no block, or a block cannot be made from the arguments.

    References
    ----------
    Vaswani et al., *Attention is all you need*, 2017, section 3.1.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        num_encoder_blocks: int = 0,
        num_decoder_blocks: int = 0,
        hidden_dim: int | None = None,
        *,
        norm: str,
        dropout_p: float = 0.0,
    ) -> None:
        super().__init__()
        require_choice("norm", norm, NORMS)
        require_count("num_encoder_blocks", num_encoder_blocks, least=0)
        require_count("num_decoder_blocks", num_decoder_blocks, least=0)
        if num_encoder_blocks + num_decoder_blocks == 0:
            raise ValueError(
                "num_encoder_blocks and num_decoder_blocks are 0: expected at least one to be positive"
            )

        def stack(num_blocks: int, cross_attention: bool) -> tuple[nn.ModuleList, nn.Module]:
            blocks = nn.ModuleList(
                TransformerBlock(
                    model_dim,
                    num_heads,
                    hidden_dim,
                    norm=norm,
                    cross_attention=cross_attention,
                    dropout_p=dropout_p,
                )
                for _ in range(num_blocks)
            )
            return blocks, nn.LayerNorm(model_dim) if num_blocks and norm == "pre" else nn.Identity()

        self.encoder, self.encoder_norm = stack(num_encoder_blocks, False)
        self.decoder, self.decoder_norm = stack(num_decoder_blocks, num_encoder_blocks > 0)

    def forward(
        self,
        source: Tensor | None = None,
        target: Tensor | None = None,
        source_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, dict[str, list[Tensor]]]:
        """Apply the stack, or both.

        Parameters
        ----------
        source : Tensor, shape (..., num_source, model_dim)
            For an encoder and an encoder-decoder.
        target : Tensor, shape (..., num_target, model_dim)
            For a decoder and an encoder-decoder. Its attention is causal.
        source_mask : Tensor of bool, optional
            Broadcasts to (..., 1, num_source): which positions of the source may be attended
            to, for instance by :func:`padding_mask`. True = may.
        return_weights : bool
            Also return the attention weights of all blocks.

        Returns
        -------
        output : Tensor, shape (..., num_target, model_dim)
            For an encoder, (..., num_source, model_dim).
        weights : dict of str to list of Tensor
            Only if `return_weights`: "encoder", "decoder" and "cross", each with the
            weights of one block after the other, (..., num_heads, queries, keys).

        Raises
        ------
        ValueError
            If `source` or `target` is missing or not wanted, or shapes, dtypes or the mask
            do not fit.
        TypeError
            If an argument that should be a tensor is not.
        """
        _require_given("source", source, "an encoder", bool(self.encoder))
        _require_given("target", target, "a decoder", bool(self.decoder))
        if source is None and source_mask is not None:
            raise ValueError("source_mask is given: expected none, as there is no source")
        weights: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": []}
        wanted = weights if return_weights else None
        memory = None if source is None else self._encode(source, source_mask, wanted)
        output: Any = memory if target is None else self._decode(target, memory, source_mask, wanted)
        return (output, weights) if return_weights else output

    def encode(self, source: Tensor, source_mask: Tensor | None = None) -> Tensor:
        """What the encoder makes of a source, which :meth:`decode` can look at again and again.

        `source`, `source_mask` and what is returned and raised are as in :meth:`forward` of
        an encoder.
        """
        _require_given("source", source, "an encoder", bool(self.encoder))
        return self._encode(source, source_mask)

    def decode(
        self, target: Tensor, memory: Tensor | None = None, source_mask: Tensor | None = None
    ) -> Tensor:
        """What the decoder makes of a target, given what the encoder has made of the source.

        `memory`, of shape (..., num_source, model_dim), comes from :meth:`encode`; a model
        without an encoder takes none. All else is as in :meth:`forward`.
        """
        _require_given("target", target, "a decoder", bool(self.decoder))
        _require_given("memory", memory, "an encoder", bool(self.encoder))
        return self._decode(target, memory, source_mask)

    def _encode(
        self, source: Tensor, source_mask: Tensor | None, weights: dict[str, list[Tensor]] | None = None
    ) -> Tensor:
        require_rows("source", source)
        if source_mask is not None:
            _require_source_mask(source_mask)
        for block in self.encoder:
            if weights is None:
                source = block(source, mask=source_mask)
            else:
                source, found = block(source, mask=source_mask, return_weights=True)
                weights["encoder"].append(found["self"])
        return self.encoder_norm(source)

    def _decode(
        self,
        target: Tensor,
        memory: Tensor | None,
        source_mask: Tensor | None,
        weights: dict[str, list[Tensor]] | None = None,
    ) -> Tensor:
        require_rows("target", target)
        mask = causal_mask(target.shape[-2]).to(target.device)
        for block in self.decoder:
            if weights is None:
                target = block(target, memory, mask, source_mask)
            else:
                target, found = block(target, memory, mask, source_mask, return_weights=True)
                weights["decoder"].append(found["self"])
                if memory is not None:
                    weights["cross"].append(found["cross"])
        return self.decoder_norm(target)


def _require_given(name: str, tensor: Tensor | None, part: str, has_part: bool) -> None:
    if has_part and tensor is None:
        raise ValueError(f"{name} is not given: expected one, as this Transformer has {part}")
    if not has_part and tensor is not None:
        raise ValueError(f"{name} is given: expected none, as this Transformer has not {part}")


def _require_source_mask(source_mask: Tensor) -> None:
    """One row for all queries: those of the encoder and those of the decoder."""
    require_tensor("source_mask", source_mask)
    if source_mask.dim() > 1 and source_mask.shape[-2] != 1:
        raise ValueError(
            f"source_mask has shape {shape_of(source_mask)}: expected (..., 1, num_source), "
            "the same for every position that looks"
        )
