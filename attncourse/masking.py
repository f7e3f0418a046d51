"""Masks: which query may attend to which key.

A mask is a tensor of bool that broadcasts to the scores, ``(..., num_queries, num_keys)``;
True = may attend. Masks are combined with ``&``, and taken by
:func:`attncourse.attention_operator.attention`.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from attncourse._require import require_bool, require_count, require_floating, require_rows, shape_of

__all__ = [
    "additive_mask",
    "boolean_mask",
    "causal_mask",
    "influence",
    "inverted_mask",
    "local_mask",
    "padding_mask",
]


def causal_mask(num_queries: int, num_keys: int | None = None) -> Tensor:
    r"""Let every query attend to its own position and to those before it.

    .. math:: M_{q,k} = 1 \iff k \le q + (N^{KV} - N^Q)

    With fewer queries than keys, the queries are the last positions of the sequence: the
    two are aligned at the end, and the last query sees all keys. This is the case of a
    decoder that keeps the keys of earlier positions and asks for new ones only. It is not
    PyTorch's ``is_causal=True``, which aligns the two at the start.

    Parameters
    ----------
    num_queries : int
        At least 1.
    num_keys : int, optional
        At least 1; as many as queries if not given. With fewer keys than queries, the
        first queries come before all keys and see none.

    Returns
    -------
    Tensor of bool, shape (num_queries, num_keys)
        True = may attend; below the diagonal and on it, if there are as many queries as
        keys.

    Raises
    ------
    ValueError
        If a number is less than 1.
    TypeError
        If a number is not an int.

    References
    ----------
    François Fleuret, *Deep Learning Course*, lecture 13.2, "causal attention".
    Vaswani et al., *Attention is all you need*, 2017, section 3.2.3.
    """
    return _positions_from_query(num_queries, num_keys) <= 0


def local_mask(num_queries: int, num_keys: int | None = None, *, radius: int) -> Tensor:
    r"""Let every query attend to the positions around its own.

    .. math:: M_{q,k} = 1 \iff |q + (N^{KV} - N^Q) - k| \le \Delta

    Queries and keys are aligned at the end, as in :func:`causal_mask`, so that
    ``causal_mask(n, m) & local_mask(n, m, radius=r)`` is a window of each query's own
    position and the r before it.

    Parameters
    ----------
    num_queries : int
        At least 1.
    num_keys : int, optional
        At least 1; as many as queries if not given.
    radius : int
        How many positions to either side; 0 leaves each query its own position only.

    Returns
    -------
    Tensor of bool, shape (num_queries, num_keys)
        True = may attend.

    Raises
    ------
    ValueError
        If a number of positions is less than 1, or `radius` is negative.
    TypeError
        If an argument is not an int.

    References
    ----------
    François Fleuret, *Deep Learning Course*, lecture 13.2, "local attention".
    """
    require_count("radius", radius, 0)
    return _positions_from_query(num_queries, num_keys).abs() <= radius


def _positions_from_query(num_queries: int, num_keys: int | None) -> Tensor:
    """How far after each query's own position each key stands, the last query being at the last key."""
    num_keys = num_queries if num_keys is None else num_keys
    require_count("num_queries", num_queries, 1)
    require_count("num_keys", num_keys, 1)
    position_of_query = torch.arange(num_queries) + (num_keys - num_queries)  # (num_queries,)
    return torch.arange(num_keys) - position_of_query[:, None]  # (num_queries, num_keys)


def padding_mask(lengths: Tensor | Sequence[int], num_keys: int) -> Tensor:
    """Hide the keys with which short sequences of a batch were filled up.

    The padding stands at the end. Only keys are hidden: queries at padding positions attend
    to the true keys like all others, and whoever uses the output leaves their rows out.

    Parameters
    ----------
    lengths : Tensor of int or sequence of int, shape (batch,)
        How many positions of each sequence are true. Any shape will do: the mask has it in
        front.
    num_keys : int
        The length to which the sequences were filled up.

    Returns
    -------
    Tensor of bool, shape (batch, 1, num_keys)
        True = may attend. The 1 stands where the scores have their queries, so the mask
        broadcasts over them and can be combined with a mask of shape (num_queries,
        num_keys). A sequence of length 0 leaves its queries no key.

    Raises
    ------
    ValueError
        If `lengths` does not hold whole numbers from 0 to `num_keys`, or `num_keys` is
        less than 1.
    TypeError
        If `num_keys` is not an int.
    """
    require_count("num_keys", num_keys, 1)
    lengths = torch.as_tensor(lengths)
    if lengths.dtype.is_floating_point or lengths.dtype.is_complex or lengths.dtype == torch.bool:
        raise ValueError(
            f"lengths has shape {shape_of(lengths)} and dtype {lengths.dtype}: expected whole numbers"
        )
    if ((lengths < 0) | (lengths > num_keys)).any():
        raise ValueError(
            f"lengths has shape {shape_of(lengths)} and values from {lengths.min()} to {lengths.max()}: "
            f"expected values from 0 to num_keys, which is {num_keys}"
        )
    return torch.arange(num_keys, device=lengths.device) < lengths[..., None, None]


def inverted_mask(mask: Tensor) -> Tensor:
    """Exchange True = may attend with True = may *not* attend.

    The first is the convention of this course and of PyTorch's
    ``scaled_dot_product_attention``; the second is that of ``attn_mask`` and
    ``key_padding_mask`` in ``torch.nn.MultiheadAttention``. The function converts either
    into the other.

    Parameters
    ----------
    mask : Tensor of bool, any shape

    Returns
    -------
    Tensor of bool, the shape of `mask`

    Raises
    ------
    ValueError
        If `mask` is not of bool. For a mask that is added to the scores, see
        :func:`boolean_mask`.
    TypeError
        If `mask` is not a tensor.
    """
    require_bool("mask", mask)
    return ~mask


def additive_mask(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Turn a mask into numbers to be added to the scores: 0 where True, minus infinity where False.

    In this form PyTorch's ``scaled_dot_product_attention`` and
    ``torch.nn.MultiheadAttention`` mean the same.

    Parameters
    ----------
    mask : Tensor of bool, any shape
        True = may attend.
    dtype : torch.dtype
        That of the scores.

    Returns
    -------
    Tensor of `dtype`, the shape of `mask`

    Raises
    ------
    ValueError
        If `mask` is not of bool, or `dtype` is not of floating-point numbers.
    TypeError
        If `mask` is not a tensor.
    """
    require_bool("mask", mask)
    if not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}: expected one of floating-point numbers, for minus infinity")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def boolean_mask(additive: Tensor) -> Tensor:
    """Turn a mask of 0 and minus infinity back into one of bool; undoes :func:`additive_mask`.

    Parameters
    ----------
    additive : Tensor of floating-point numbers, any shape
        0 = may attend, minus infinity = may not.

    Returns
    -------
    Tensor of bool, the shape of `additive`
        True = may attend.

    Raises
    ------
    ValueError
        If there is anything else in `additive`. A number such as -1e9 or a bias on the
        scores is not a yes or a no, and no mask of bool does the same.
    TypeError
        If `additive` is not a tensor.
    """
    require_floating("additive", additive)
    allowed = additive == 0
    other = additive[~allowed & (additive != -math.inf)]
    if other.numel():
        raise ValueError(
            f"additive has shape {shape_of(additive)} and an entry {other[0].item():g}: "
            "expected 0 and minus infinity only"
        )
    return allowed


def influence(function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    r"""Which input position can change which output position.

    Computes the Jacobian of `function` at `inputs` and tells, for every pair of positions,
    whether any derivative of an output feature by an input feature is not exactly 0:

    .. math:: \frac{\partial Y_{q,d}}{\partial X_{k,e}} \ne 0 \text{ for some } d, e

    Parameters
    ----------
    function : callable
        Takes a tensor like `inputs` and returns one of shape (num_outputs, features).
    inputs : Tensor, shape (num_inputs, features)

    Returns
    -------
    Tensor of bool, shape (num_outputs, num_inputs)

    Raises
    ------
    ValueError
        If `inputs` is not a matrix of floating-point numbers, or `function` does not return
        one.
    TypeError
        If `inputs`, or what `function` returns, is not a tensor.

    Notes
    -----
    A True says that some derivative, as computed, is not 0. Where terms cancel on paper only,
    rounding leaves one of about 1e-17, so look at its size before you call it a leak. A False
    is what holds at these inputs: a derivative may be 0 here and not elsewhere (behind a ReLU
    that is off, or a weight so small that it is rounded to 0), and what is computed without
    derivatives (``detach``, ``argmax``, comparisons) is not seen. So take random inputs of
    moderate size, in float64, and switch dropout off. A derivative of NaN counts as True.
    """
    require_rows("inputs", inputs)
    if inputs.dim() != 2:
        raise ValueError(f"inputs has shape {shape_of(inputs)}: expected (positions, features), no batch")

    def checked(x: Tensor) -> Tensor:
        output = function(x)
        require_floating("what function returns", output)
        if output.dim() != 2:
            raise ValueError(
                f"what function returns has shape {shape_of(output)}: expected (positions, features)"
            )
        return output

    jacobian = torch.autograd.functional.jacobian(checked, inputs)  # (outputs, features, inputs, features)
    return (jacobian != 0).any(dim=3).any(dim=1)
