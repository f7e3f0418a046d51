"""Positional encodings: a vector for every position, which tells it from the others."""

import torch
from torch import Tensor

from attncourse._require import require_count

__all__ = ["binary_encoding"]


def binary_encoding(length: int, num_bits: int | None = None) -> Tensor:
    r"""Write every position as a binary number, one bit a feature.

    .. math:: E_{t,b} = \left\lfloor t / 2^b \right\rfloor \bmod 2

    Parameters
    ----------
    length : int
        The number of positions, at least 1. They count from 0.
    num_bits : int, optional
        The number of features; as few as tell all positions apart, and at least 1, if
        not given.

    Returns
    -------
    Tensor, shape (length, num_bits)
        Row t holds the bits of t, the least significant first: 0 or 1, in PyTorch's
        default floating point type, so that it can stand beside other features.

    Raises
    ------
    ValueError
        If `length` is less than 1, or `num_bits` too small to tell all positions apart.
    TypeError
        If a number is not an int.

    References
    ----------
    François Fleuret, *Deep Learning Course*, lecture 13.2, "positional encoding".
    """
    require_count("length", length, least=1)
    needed = max(1, (length - 1).bit_length())
    if num_bits is None:
        num_bits = needed
    require_count("num_bits", num_bits, least=1)
    if num_bits < needed:
        raise ValueError(
            f"num_bits is {num_bits}: expected at least {needed}, to tell {length} positions apart"
        )
    positions = torch.arange(length).unsqueeze(-1)  # (length, 1)
    bits = positions >> torch.arange(num_bits) & 1  # (length, num_bits)
    return bits.to(torch.get_default_dtype())
