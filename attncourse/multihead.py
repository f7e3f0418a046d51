"""The multi-head attention layer: several attention operators side by side, each with its own weights.

The weights have the names and shapes of *The Little Book of Deep Learning*, section 4.8:
a slice of ``W_Q``, ``W_K`` and ``W_V`` for each head, and one ``W_O`` that mixes the heads.
"""

import torch
from torch import Tensor, nn

from attncourse._require import (
    broadcasts_to,
    require_count,
    require_floating,
    require_groups,
    require_key,
    require_mask,
    require_rows,
    require_same_batch,
    require_same_dtype,
    require_tensor,
    require_value,
    shape_of,
)
from attncourse.attention_operator import attention

__all__ = ["MultiHeadAttention", "head_importance", "merge_heads", "split_heads"]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Cut the features into one block for each head, and bring the heads before the positions.

    Parameters
    ----------
    x : Tensor, shape (..., positions, num_heads * head_dim)
    num_heads : int

    Returns
    -------
    Tensor, shape (..., num_heads, positions, head_dim)
        Head h has the features from h * head_dim to (h + 1) * head_dim of every position.
        A view of `x`: no number is copied.

    Raises
    ------
    ValueError
        If the features of `x` cannot be divided evenly among the heads.
    TypeError
        If `x` is not a tensor, or `num_heads` not an int.
    """
    require_tensor("x", x)
    require_count("num_heads", num_heads, 1)
    if x.dim() < 2 or x.shape[-1] % num_heads:
        raise ValueError(
            f"x has shape {shape_of(x)}: expected (..., positions, features) "
            f"with a multiple of num_heads={num_heads} features"
        )
    blocks = x.unflatten(-1, (num_heads, x.shape[-1] // num_heads))  # (..., positions, num_heads, head_dim)
    return blocks.transpose(-3, -2)


def merge_heads(x: Tensor) -> Tensor:
    """Put the features of all heads side by side: the inverse of :func:`split_heads`.

    Parameters
    ----------
    x : Tensor, shape (..., num_heads, positions, head_dim)

    Returns
    -------
    Tensor, shape (..., positions, num_heads * head_dim)
        The features of head 0, then those of head 1, and so on.

    Raises
    ------
    ValueError
        If `x` has fewer than three dimensions.
    TypeError
        If `x` is not a tensor.
    """
    require_tensor("x", x)
    if x.dim() < 3:
        raise ValueError(f"x has shape {shape_of(x)}: expected (..., num_heads, positions, head_dim)")
    return x.transpose(-3, -2).flatten(-2)


def repeat_heads(x: Tensor, group: int) -> Tensor:
    """Give every head of a group the keys or the values that the group shares.

    Parameters
    ----------
    x : Tensor, shape (..., heads, positions, head_dim)
    group : int
        How many neighbouring heads share one; with 1 nothing is done.

    Returns
    -------
    Tensor, shape (..., heads * group, positions, head_dim)
    """
    return x if group == 1 else x.repeat_interleave(group, -3)


class MultiHeadAttention(nn.Module):
    r"""Attend in several ways at once, and mix what the ways have found.

    .. math::

       Y_h = \operatorname{att}(X^Q W^Q_h,\; X^K W^K_h,\; X^V W^V_h), \qquad
       Y = (Y_1 \mid \dots \mid Y_H)\, W^O

    Parameters
    ----------
    model_dim : int
        The number of features of the queries' input and of the output.
    num_heads : int
    key_dim : int, optional
        The number of features of each head's queries and keys; model_dim / num_heads if
        not given.
    value_dim : int, optional
        The number of features of each head's values; model_dim / num_heads if not given.
    bias : bool
        Add a learned vector after each of the four projections.
    dropout_p : float
        The probability that an attention weight is dropped, in training mode only.
    key_input_dim, value_input_dim : int, optional
        The number of features of the inputs from which keys and values are made;
        model_dim if not given. PyTorch calls them kdim and vdim.
    batch_first : bool
        False expects inputs of shape (positions, batch, features), and gives the output
        in that form, as ``nn.MultiheadAttention`` does unless told otherwise.
    num_key_value_heads : int, optional
        How many matrices there are for keys, and how many for values; num_heads if not
        given. With fewer, each serves a group of num_heads / num_key_value_heads
        neighbouring heads: grouped queries, or multi-query attention if there is one.

    Notes
    -----
    The layer learns

    - ``W_Q`` (num_heads, model_dim, key_dim),
    - ``W_K`` (num_key_value_heads, key_input_dim, key_dim),
    - ``W_V`` (num_key_value_heads, value_input_dim, value_dim),
    - ``W_O`` (num_heads * value_dim, model_dim), whose rows from h * value_dim to
      (h + 1) * value_dim belong to head h,
    - with `bias`, ``b_Q`` (num_heads, key_dim), ``b_K`` and ``b_V`` (num_key_value_heads, ...)
      and ``b_O`` (model_dim,).

    Raises
    ------
    ValueError
        If a size is not positive, `dropout_p` is not a probability, `key_dim` or
        `value_dim` is not given and num_heads does not divide model_dim, or
        num_key_value_heads does not divide num_heads.
    TypeError
        If a size is not an int.

    References
    ----------
    F. Fleuret, *The Little Book of Deep Learning*, section 4.8.
    Vaswani et al., *Attention is all you need*, 2017, section 3.2.2.
    Ainslie et al., *GQA: training generalized multi-query Transformer models from multi-head
    checkpoints*, 2023.
    """

    def __init__(
        self,
        model_dim: int,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        bias: bool = False,
        dropout_p: float = 0.0,
        *,
        key_input_dim: int | None = None,
        value_input_dim: int | None = None,
        batch_first: bool = True,
        num_key_value_heads: int | None = None,
    ) -> None:
        super().__init__()
        require_count("model_dim", model_dim, 1)
        require_count("num_heads", num_heads, 1)
        if None in (key_dim, value_dim) and model_dim % num_heads:
            raise ValueError(
                f"model_dim is {model_dim} and num_heads is {num_heads}: expected a multiple of num_heads, "
                "or key_dim and value_dim to be given"
            )
        if not 0.0 <= dropout_p <= 1.0:
            raise ValueError(f"dropout_p is {dropout_p}: expected a probability, from 0 to 1")
        self.model_dim = model_dim
        self.num_heads = num_heads
        self.key_dim = model_dim // num_heads if key_dim is None else key_dim
        self.value_dim = model_dim // num_heads if value_dim is None else value_dim
        self.key_input_dim = model_dim if key_input_dim is None else key_input_dim
        self.value_input_dim = model_dim if value_input_dim is None else value_input_dim
        for name in ("key_dim", "value_dim", "key_input_dim", "value_input_dim"):
            require_count(name, getattr(self, name), 1)
        self.num_key_value_heads = num_heads if num_key_value_heads is None else num_key_value_heads
        require_count("num_key_value_heads", self.num_key_value_heads, 1)
        require_groups(num_heads, self.num_key_value_heads)
        self.dropout_p = dropout_p
        self.batch_first = batch_first

        self.W_Q = nn.Parameter(torch.empty(num_heads, model_dim, self.key_dim))
        self.W_K = nn.Parameter(torch.empty(self.num_key_value_heads, self.key_input_dim, self.key_dim))
        self.W_V = nn.Parameter(torch.empty(self.num_key_value_heads, self.value_input_dim, self.value_dim))
        self.W_O = nn.Parameter(torch.empty(num_heads * self.value_dim, model_dim))
        self.b_Q = nn.Parameter(torch.empty(num_heads, self.key_dim)) if bias else None
        self.b_K = nn.Parameter(torch.empty(self.num_key_value_heads, self.key_dim)) if bias else None
        self.b_V = nn.Parameter(torch.empty(self.num_key_value_heads, self.value_dim)) if bias else None
        self.b_O = nn.Parameter(torch.empty(model_dim)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, normal with variance 1 / (number of terms in the sum), and no biases.

        So inputs of variance 1 give queries, keys, values and scores of variance 1.
        """
        for weight in (self.W_Q, self.W_K, self.W_V, self.W_O):
            nn.init.normal_(weight, std=weight.shape[-2] ** -0.5)
        for bias in self._biases():
            nn.init.zeros_(bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        head_mask: Tensor | None = None,
        return_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Apply the layer to one, two or three inputs.

        Parameters
        ----------
        query : Tensor, shape (..., num_queries, model_dim)
            What the queries are made from.
        key : Tensor, shape (..., num_keys, key_input_dim), optional
            What the keys are made from; `query` if not given (self-attention).
        value : Tensor, shape (..., num_keys, value_input_dim), optional
            What the values are made from; `key` if not given (cross-attention).
        mask : Tensor of bool, optional
            Broadcasts to (..., num_queries, num_keys), the same for all heads.
            True = may attend.
        head_mask : Tensor of bool or floating point, optional
            Broadcasts to (..., num_heads). The output of each head is multiplied by it:
            0 silences a head.
        return_weights : bool
            Also return the attention weights of each head. If they are not asked for,
            PyTorch's ``scaled_dot_product_attention`` computes the same output faster; of
            second derivatives it has none.

        Returns
        -------
        output : Tensor, shape (..., num_queries, model_dim)
        weights : Tensor, shape (..., num_heads, num_queries, num_keys)
            Only if `return_weights`. They are those by which the values were averaged:
            after dropout, where there is some, and before `head_mask`.

        Raises
        ------
        ValueError
            If shapes, dtypes or a mask do not fit; the message names the argument.
        TypeError
            If an argument that should be a tensor is not.
        """
        if key is None:
            if value is not None:
                raise ValueError("value is given and key is not: expected both, or the key alone, or neither")
            key = query
        if value is None:
            value = key
        query, key, value = self._checked(query, key, value)
        batch, num_queries, num_keys = query.shape[:-2], query.shape[-2], key.shape[-2]
        if mask is not None:
            require_mask(mask, torch.Size((*batch, num_queries, num_keys)))
            if mask.dim() > 2:
                mask = mask.unsqueeze(-3)  # (..., 1, num_queries, num_keys)

        group = self.num_heads // self.num_key_value_heads
        inputs = (
            _project(query, self.W_Q, self.b_Q),  # (..., num_heads, num_queries, key_dim)
            repeat_heads(_project(key, self.W_K, self.b_K), group),  # (..., num_heads, num_keys, key_dim)
            repeat_heads(_project(value, self.W_V, self.b_V), group),  # (..., num_heads, num_keys, value_dim)
        )
        dropout_p = self.dropout_p if self.training else 0.0
        if return_weights:
            heads, weights = attention(*inputs, mask, dropout_p=dropout_p, return_weights=True)
        else:
            heads = fused_attention(*inputs, mask, dropout_p)  # (..., num_heads, num_queries, value_dim)
        if head_mask is not None:
            _require_head_mask(head_mask, torch.Size((*batch, self.num_heads)))
            heads = heads * head_mask[..., None, None].to(heads.dtype)
        output = merge_heads(heads) @ self.W_O  # (..., num_queries, model_dim)
        if self.b_O is not None:
            output = output + self.b_O
        if not self.batch_first and output.dim() == 3:
            output = output.transpose(0, 1)
        return (output, weights) if return_weights else output

    @classmethod
    def from_torch(cls, layer: nn.MultiheadAttention) -> "MultiHeadAttention":
        """Make a layer that is the same function of the same inputs as PyTorch's.

        Only the masks differ: PyTorch's ``attn_mask`` and ``key_padding_mask`` are True
        where a key may *not* be attended to, and here True = may attend.

        Parameters
        ----------
        layer : torch.nn.MultiheadAttention

        Returns
        -------
        MultiHeadAttention
            With copies of the weights, and in the same mode (training or evaluation).

        Raises
        ------
        ValueError
            If `layer` was made with ``add_bias_kv`` or ``add_zero_attn``, which add keys
            that are in no input.
        TypeError
            If `layer` is not a ``torch.nn.MultiheadAttention``.
        """
        if not isinstance(layer, nn.MultiheadAttention):
            raise TypeError(f"layer is a {type(layer).__name__}: expected a torch.nn.MultiheadAttention")
        if layer.bias_k is not None or layer.add_zero_attn:
            raise ValueError(
                "layer has add_bias_kv or add_zero_attn: expected one whose keys are those of its input"
            )
        if layer.in_proj_weight is not None:
            projections = layer.in_proj_weight.chunk(3)
        else:
            projections = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        ours = cls(
            layer.embed_dim,
            layer.num_heads,
            bias=layer.in_proj_bias is not None,
            dropout_p=layer.dropout,
            key_input_dim=layer.kdim,
            value_input_dim=layer.vdim,
            batch_first=layer.batch_first,
        )
        ours.to(layer.out_proj.weight).train(layer.training)
        # PyTorch stores a projection as (out, in), with the heads' blocks along `out`.
        with torch.no_grad():
            for weight, packed in zip((ours.W_Q, ours.W_K, ours.W_V), projections, strict=True):
                weight.copy_(split_heads(packed.mT, layer.num_heads))
            ours.W_O.copy_(layer.out_proj.weight.mT)
            if layer.in_proj_bias is not None:
                theirs = (*layer.in_proj_bias.chunk(3), layer.out_proj.bias)
                for bias, flat in zip(ours._biases(), theirs, strict=True):
                    bias.copy_(flat.view_as(bias))
        return ours

    def to_torch(self) -> nn.MultiheadAttention:
        """Make a PyTorch layer that is the same function of the same inputs: :meth:`from_torch` reversed.

        Returns
        -------
        torch.nn.MultiheadAttention
            With copies of the weights, and in the same mode (training or evaluation).

        Raises
        ------
        ValueError
            If key_dim or value_dim is not model_dim / num_heads, or heads share keys and
            values: PyTorch's layer has no other.
        """
        if self.num_key_value_heads != self.num_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_key_value_heads} and num_heads is {self.num_heads}: "
                "expected as many, as in PyTorch's layer"
            )
        if not self.key_dim * self.num_heads == self.value_dim * self.num_heads == self.model_dim:
            raise ValueError(
                f"key_dim is {self.key_dim} and value_dim is {self.value_dim}: expected both to be "
                f"model_dim / num_heads = {self.model_dim / self.num_heads:g}, as in PyTorch's layer"
            )
        layer = nn.MultiheadAttention(
            self.model_dim,
            self.num_heads,
            dropout=self.dropout_p,
            bias=self.b_O is not None,
            kdim=self.key_input_dim,
            vdim=self.value_input_dim,
            batch_first=self.batch_first,
        )
        layer.to(self.W_O).train(self.training)
        # (in, num_heads * head_dim), then turned round
        packed = [merge_heads(weight).mT for weight in (self.W_Q, self.W_K, self.W_V)]
        with torch.no_grad():
            if layer.in_proj_weight is not None:
                layer.in_proj_weight.copy_(torch.cat(packed))
            else:
                for weight, ours in zip(
                    (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight), packed, strict=True
                ):
                    weight.copy_(ours)
            layer.out_proj.weight.copy_(self.W_O.mT)
            if self.b_O is not None:
                *in_proj, out_proj = self._biases()
                layer.in_proj_bias.copy_(torch.cat(in_proj).flatten())
                layer.out_proj.bias.copy_(out_proj)
        return layer

    def extra_repr(self) -> str:
        """The sizes, for ``print(layer)``."""
        return (
            f"model_dim={self.model_dim}, num_heads={self.num_heads}, "
            f"key_dim={self.key_dim}, value_dim={self.value_dim}"
        )

    def _biases(self) -> list[Tensor]:
        return [bias for bias in (self.b_Q, self.b_K, self.b_V, self.b_O) if bias is not None]

    def _checked(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The three inputs with the batch first, once their shapes and dtypes are known to fit."""
        sizes = {"query": self.model_dim, "key": self.key_input_dim, "value": self.value_input_dim}
        inputs = {"query": query, "key": key, "value": value}
        for name, x in inputs.items():
            require_rows(name, x)
            if x.shape[-1] != sizes[name]:
                raise ValueError(
                    f"{name} has shape {shape_of(x)}: expected the last dimension to be {sizes[name]}, "
                    "the features that this layer was made for"
                )
            require_same_dtype(name, x, "the layer's weights", self.W_O)
            if not self.batch_first and x.dim() > 3:
                raise ValueError(
                    f"{name} has shape {shape_of(x)}: expected (positions, batch, features) "
                    "or no batch, as batch_first is False"
                )
        if not self.batch_first:
            query, key, value = (x.transpose(0, 1) if x.dim() == 3 else x for x in inputs.values())
        require_key(key)
        require_same_batch("key", key, "query", query)
        require_value(value, key)
        return query, key, value


def head_importance(losses: Tensor, head_mask: Tensor) -> Tensor:
    r"""How much the loss responds when a head is turned down a little.

    .. math:: I_h = \frac{1}{N} \sum_{n=1}^N \left| \frac{\partial L_n}{\partial \xi_{n,h}} \right|

    The mask :math:`\xi` multiplies the heads' outputs and is all ones. Without the
    absolute value, the examples that a head helps and those that it harms would cancel.
    One backward pass gives the importance of every head, whereas removing each in turn
    takes a forward pass for each.

    Parameters
    ----------
    losses : Tensor, shape (...)
        The loss of each example, computed with `head_mask`.
    head_mask : Tensor, shape (..., num_heads)
        What was handed to the layer: ones that record gradients, a row for each example.

    Returns
    -------
    Tensor, shape (num_heads,)
        At least 0; the larger, the more the loss depends on the head. Only the order and
        the ratios mean something.

    Raises
    ------
    ValueError
        If `head_mask` does not record gradients, `losses` was not computed with it, or the
        shapes do not fit.
    TypeError
        If an argument is not a tensor.

    References
    ----------
    Michel, Levy and Neubig, *Are sixteen heads really better than one?*, 2019, section 4.1.
    """
    require_floating("losses", losses)
    require_floating("head_mask", head_mask)
    if head_mask.dim() < 1 or head_mask.shape[:-1] != losses.shape:
        raise ValueError(
            f"head_mask has shape {shape_of(head_mask)}: expected (*losses.shape, num_heads), a row for each "
            f"loss, and losses has shape {shape_of(losses)}"
        )
    if not head_mask.requires_grad:
        raise ValueError(
            f"head_mask has shape {shape_of(head_mask)} and records no gradient: "
            "expected torch.ones(..., requires_grad=True)"
        )
    gradient = None
    if losses.requires_grad:
        (gradient,) = torch.autograd.grad(losses.sum(), head_mask, retain_graph=True, allow_unused=True)
    if gradient is None:
        raise ValueError(
            f"losses has shape {shape_of(losses)} and does not depend on head_mask: "
            "expected losses of outputs that were computed with this head_mask"
        )
    return gradient.abs().reshape(-1, gradient.shape[-1]).mean(0)


def _project(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply each head's own matrix to every position."""
    num_heads, input_dim, head_dim = weight.shape
    # All heads in one product, their matrices side by side: a product for each would copy x for each.
    packed = weight.transpose(0, 1).reshape(input_dim, num_heads * head_dim)
    projected = x @ packed if bias is None else nn.functional.linear(x, packed.mT, bias.flatten())
    return split_heads(projected, num_heads)  # (..., num_heads, positions, head_dim)


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
) -> Tensor:
    """What :func:`attention` computes, by PyTorch's kernel, which keeps no weights and is faster."""
    batch = query.shape[:-3]
    if mask is not None and mask.dim() > 2:
        mask = mask.expand(*batch, *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])
    # The kernel wants one batch dimension, no more and no less: without, a slow road is taken.
    query, key, value = (x.reshape(-1, *x.shape[-3:]) for x in (query, key, value))
    output = nn.functional.scaled_dot_product_attention(query, key, value, mask, dropout_p, is_causal)
    return output.reshape(*batch, *output.shape[-3:])


def _require_head_mask(head_mask: Tensor, shape: torch.Size) -> None:
    require_tensor("head_mask", head_mask)
    if head_mask.dtype != torch.bool:
        require_floating("head_mask", head_mask)
    if head_mask.dim() == 0 or head_mask.shape[-1] != shape[-1] or not broadcasts_to(head_mask, shape):
        raise ValueError(
            f"head_mask has shape {shape_of(head_mask)}: expected one that broadcasts to {tuple(shape)}, "
            "with a number for each head"
        )
