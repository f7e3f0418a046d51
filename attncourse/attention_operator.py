"""The attention operator: every query averages the values of the keys it matches.

The notation is that of *The Little Book of Deep Learning*, section 4.8: rows are
positions, ``query`` is Q, ``key`` is K, ``value`` is V, ``weights`` is A and
``output`` is Y.
"""

import math

import torch
from torch import Tensor

from attncourse._require import (
    require_floating,
    require_key,
    require_mask,
    require_query_and_key,
    require_rows,
    require_same_batch,
    require_same_dtype,
    require_value,
    shape_of,
)

__all__ = ["additive_attention", "attention", "attention_weights", "softargmax"]


def softargmax(scores: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    r"""Turn scores into weights that are positive and sum to 1 along `dim`.

    .. math:: A_{q,k} = \frac{\exp S_{q,k}}{\sum_{l} \exp S_{q,l}}

    The largest score is subtracted before the exponential, so scores of any size give
    finite weights. The operation is best known as *softmax*; *softargmax* says what it
    is, a smooth version of the one-hot argmax.

    Parameters
    ----------
    scores : Tensor, shape (..., num_queries, num_keys), or any shape with `dim` in it
        Floating point. An entry of minus infinity gets weight 0.
    dim : int
        The dimension that is normalised.
    mask : Tensor of bool, optional
        Broadcasts to `scores`. True = may attend.

    Returns
    -------
    Tensor, the shape and dtype of `scores`
        Weights. Where the mask is False they are exactly 0. A row without any True is
        all zeros, and so is its gradient.

    Raises
    ------
    ValueError
        If `scores` is not floating point or has nothing along `dim`, or if `mask` is
        not of bool or does not broadcast to the shape of `scores`.
    TypeError
        If `scores` or `mask` is not a tensor.

    References
    ----------
    François Fleuret, *The Little Book of Deep Learning*, section 4.8, equation 4.1.
    """
    require_floating("scores", scores)
    if not -scores.dim() <= dim < scores.dim():
        raise ValueError(f"dim is {dim}, but scores has shape {shape_of(scores)}: expected a dimension of it")
    if scores.shape[dim] == 0:
        raise ValueError(f"scores has shape {shape_of(scores)}: expected at least one entry along dim={dim}")
    if mask is not None:
        require_mask(mask, scores.shape)
        scores = scores.masked_fill(~mask, -math.inf)

    largest = scores.detach().amax(dim, keepdim=True)
    # A row that is all minus infinity has no largest score; 0 keeps exp(-inf - 0) = 0.
    largest = largest.masked_fill(largest == -math.inf, 0.0)
    exponentials = torch.exp(scores - largest)
    total = exponentials.sum(dim, keepdim=True)
    # Such a row sums to 0; dividing by 1 instead leaves it at zero, without 0/0.
    return exponentials / total.masked_fill(total == 0, 1.0)


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None = None, *, scale: float | None = None
) -> Tensor:
    r"""How much each query attends to each key.

    .. math:: A = \operatorname{softargmax}\left(\frac{QK^\top}{\sqrt{D^{QK}}}\right)

    Parameters
    ----------
    query : Tensor, shape (..., num_queries, key_dim)
    key : Tensor, shape (..., num_keys, key_dim)
        The same leading dimensions and dtype as `query`.
    mask : Tensor of bool, optional
        Broadcasts to (..., num_queries, num_keys). True = may attend.
    scale : float, optional
        The factor on the dot products; 1 / sqrt(key_dim) if not given.

    Returns
    -------
    Tensor, shape (..., num_queries, num_keys)
        Every row sums to 1, or is all zeros where the mask leaves a query no key.

    Raises
    ------
    ValueError
        If shapes, dtypes or the mask do not fit; the message names the argument.
    TypeError
        If an argument that should be a tensor is not.

    References
    ----------
    François Fleuret, *The Little Book of Deep Learning*, section 4.8, equation 4.1.
    Vaswani et al., *Attention is all you need*, 2017, equation 1.
    """
    require_query_and_key(query, key)
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = query @ key.transpose(-2, -1) * scale  # (..., num_queries, num_keys)
    return softargmax(scores, mask=mask)


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Average the values with the attention weights.

    .. math:: Y = AV, \qquad A = \operatorname{softargmax}\left(\frac{QK^\top}{\sqrt{D^{QK}}}\right)

    Parameters
    ----------
    query : Tensor, shape (..., num_queries, key_dim)
    key : Tensor, shape (..., num_keys, key_dim)
    value : Tensor, shape (..., num_keys, value_dim)
        `query`, `key` and `value` have the same leading dimensions and dtype.
    mask : Tensor of bool, optional
        Broadcasts to (..., num_queries, num_keys). True = may attend.
    scale : float, optional
        The factor on the dot products; 1 / sqrt(key_dim) if not given.
    dropout_p : float
        The probability that a weight is dropped; the others are divided by
        1 - dropout_p. Applied whenever it is above 0, as in PyTorch's
        ``scaled_dot_product_attention``: pass 0 for evaluation.
    return_weights : bool
        Also return the weights by which the values were averaged, so that
        ``output == weights @ value`` (after dropout, where there is some).

    Returns
    -------
    output : Tensor, shape (..., num_queries, value_dim)
        A query that the mask leaves no key gets a row of zeros.
    weights : Tensor, shape (..., num_queries, num_keys)
        Only if `return_weights`.

    Raises
    ------
    ValueError
        If shapes, dtypes, the mask or `dropout_p` do not fit; the message names the
        argument.
    TypeError
        If an argument that should be a tensor is not.

    References
    ----------
    François Fleuret, *The Little Book of Deep Learning*, section 4.8, equations 4.1 and 4.2.
    Vaswani et al., *Attention is all you need*, 2017, equation 1.
    """
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p is {dropout_p}: expected a probability, from 0 to 1")
    weights = attention_weights(query, key, mask, scale=scale)  # (..., num_queries, num_keys)
    require_value(value, key)
    if dropout_p > 0.0:
        weights = torch.dropout(weights, dropout_p, train=True)
    output = weights @ value  # (..., num_queries, value_dim)
    return (output, weights) if return_weights else output


def additive_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    query_weight: Tensor,
    key_weight: Tensor,
    score_weight: Tensor,
    mask: Tensor | None = None,
    *,
    return_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attention whose scores come from a small network instead of a dot product.

    .. math:: S_{q,k} = \tanh(Q_q W^Q + K_k W^K) \cdot w

    Queries and keys may have different dimensions. The scores are not scaled: tanh
    bounds what the network adds up.

    Parameters
    ----------
    query : Tensor, shape (..., num_queries, query_dim)
    key : Tensor, shape (..., num_keys, key_dim)
    value : Tensor, shape (..., num_keys, value_dim)
    query_weight : Tensor, shape (query_dim, hidden_dim)
    key_weight : Tensor, shape (key_dim, hidden_dim)
    score_weight : Tensor, shape (hidden_dim,)
    mask : Tensor of bool, optional
        Broadcasts to (..., num_queries, num_keys). True = may attend.
    return_weights : bool
        Also return the attention weights.

    Returns
    -------
    output : Tensor, shape (..., num_queries, value_dim)
    weights : Tensor, shape (..., num_queries, num_keys)
        Only if `return_weights`.

    Raises
    ------
    ValueError
        If shapes, dtypes or the mask do not fit; the message names the argument.
    TypeError
        If an argument that should be a tensor is not.

    References
    ----------
    Bahdanau, Cho and Bengio, *Neural machine translation by jointly learning to align
    and translate*, 2015, appendix A.1.2.
    """
    require_rows("query", query)
    require_key(key)
    require_same_batch("key", key, "query", query)
    require_value(value, key)
    for name, weight in (
        ("query_weight", query_weight),
        ("key_weight", key_weight),
        ("score_weight", score_weight),
    ):
        require_floating(name, weight)
        require_same_dtype(name, weight, "query", query)
    if score_weight.dim() != 1:
        raise ValueError(f"score_weight has shape {shape_of(score_weight)}: expected (hidden_dim,)")
    for name, weight, rows in (("query_weight", query_weight, query), ("key_weight", key_weight, key)):
        expected = (rows.shape[-1], score_weight.shape[0])
        if shape_of(weight) != expected:
            raise ValueError(f"{name} has shape {shape_of(weight)}: expected {expected}")

    hidden = torch.tanh(
        (query @ query_weight).unsqueeze(-2)  # (..., num_queries, 1, hidden_dim)
        + (key @ key_weight).unsqueeze(-3)  # (..., 1, num_keys, hidden_dim)
    )
    scores = hidden @ score_weight  # (..., num_queries, num_keys)
    weights = softargmax(scores, mask=mask)
    output = weights @ value  # (..., num_queries, value_dim)
    return (output, weights) if return_weights else output
