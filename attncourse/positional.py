"""Positional encodings: what tells a position from the others, or how far two of them are apart."""

from functools import cache

import torch
from torch import Tensor, nn

from attncourse._require import require_count, require_rows, require_tensor, shape_of

__all__ = [
    "LearnedEncoding",
    "alibi_bias",
    "alibi_slopes",
    "binary_encoding",
    "rotary",
    "sinusoidal_encoding",
]


def binary_encoding(length: int, num_bits: int | None = None) -> Tensor:
    r"""Write every position as a binary number, one bit a feature.

    .. math:: E_{t,b} = \lfloor t / 2^b \rfloor \bmod 2

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


def sinusoidal_encoding(length: int, dim: int) -> Tensor:
    r"""Write every position as sines and cosines of many wavelengths, two features for each.

    .. math::
        E_{t,2i} = \sin(t\,\omega_i), \quad E_{t,2i+1} = \cos(t\,\omega_i), \quad
        \omega_i = 10000^{-2i/D}

    Parameters
    ----------
    length : int
        The number of positions, at least 1. They count from 0.
    dim : int
        The number of features, at least 1. If it is odd, the last sine has no cosine.

    Returns
    -------
    Tensor, shape (length, dim)
        From -1 to 1, in PyTorch's default floating point type. Sines and cosines take turns.

    Raises
    ------
    ValueError
        If a number is less than 1.
    TypeError
        If a number is not an int.

    References
    ----------
    Vaswani et al., *Attention is all you need*, 2017, section 3.5.
    """
    require_count("length", length, least=1)
    require_count("dim", dim, least=1)
    angles = _angles(torch.arange(length), dim)  # (length, pairs), the last pair perhaps without cosine
    pairs = torch.stack((angles.sin(), angles.cos()), dim=-1)  # (length, pairs, 2)
    return pairs.flatten(-2)[:, :dim].to(torch.get_default_dtype())


def _angles(positions: Tensor, dim: int, base: float = 10_000.0) -> Tensor:
    """The angle of each position for each pair of features, (..., pairs)."""
    # In float32 a position of 100,000 would leave the fast angles only two digits.
    return positions.double().unsqueeze(-1) * _frequencies(dim, base).to(positions.device)


@cache
def _frequencies(dim: int, base: float) -> Tensor:
    """By what angle each pair of features turns from one position to the next, (pairs,)."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim  # (pairs,)
    return base**-exponents


class LearnedEncoding(nn.Module):
    """A table of encodings, one row a position, which is learned like any other weight.

    The table is the parameter ``table``, of shape (max_length, dim). It starts with small
    random numbers, of standard deviation 0.02.

    Parameters
    ----------
    max_length : int
        The number of positions that the table has rows for.
    dim : int
        The number of features.

    Raises
    ------
    ValueError
        If a number is less than 1.
    TypeError
        If a number is not an int.

    References
    ----------
    Vaswani et al., *Attention is all you need*, 2017, section 3.5, which compares it with
    sinusoids.
    """

    def __init__(self, max_length: int, dim: int) -> None:
        super().__init__()
        require_count("max_length", max_length, least=1)
        require_count("dim", dim, least=1)
        self.table = nn.Parameter(0.02 * torch.randn(max_length, dim))

    def forward(self, length: int) -> Tensor:
        """The encodings of the first `length` positions, (length, dim).

        Raises
        ------
        ValueError
            If the table has no row for a position: what was not learned cannot be looked up.
        TypeError
            If `length` is not an int.
        """
        require_count("length", length, least=1)
        if length > len(self.table):
            raise ValueError(f"length is {length}: expected at most {len(self.table)}, the rows of the table")
        return self.table[:length]


def rotary(x: Tensor, positions: Tensor | None = None, *, base: float = 10_000.0) -> Tensor:
    r"""Turn each pair of neighbouring features by an angle that grows with the position.

    .. math::
        y_{2i} &= x_{2i} \cos(t\,\omega_i) - x_{2i+1} \sin(t\,\omega_i) \\
        y_{2i+1} &= x_{2i} \sin(t\,\omega_i) + x_{2i+1} \cos(t\,\omega_i), \quad
        \omega_i = b^{-2i/D}

    for the row of position t, with the base b. Queries and keys are turned, values are not: then a score
    depends on how far apart query and key stand, and not on where.

    Parameters
    ----------
    x : Tensor, shape (..., length, dim)
        Queries or keys; `dim` is even.
    positions : Tensor, shape (length,), optional
        Where each row stands; 0, 1, 2 and so on if not given. Any shape that broadcasts to
        (..., length) will do, and places between two positions, such as 0.5.
    base : float
        More than 1. The larger, the slower the slow pairs turn; 10,000 in the paper.

    Returns
    -------
    Tensor, the shape of `x`

    Raises
    ------
    ValueError
        If `x` is not of floating-point numbers with an even number of features,
        `positions` does not fit it, or `base` is not more than 1.
    TypeError
        If an argument is not a tensor.

    Notes
    -----
    Some implementations pair feature i with feature i + dim/2 instead. Weights that were
    trained with one pairing do not fit the other.

    References
    ----------
    Su et al., *RoFormer: enhanced transformer with rotary position embedding*, 2021,
    section 3.2.2 and equation 34.
    """
    require_rows("x", x)
    length, dim = x.shape[-2:]
    if dim % 2 or dim == 0:
        raise ValueError(
            f"x has shape {shape_of(x)}: expected an even number of features, to turn them in pairs"
        )
    if positions is None:
        positions = torch.arange(length, device=x.device)
    require_tensor("positions", positions)
    try:
        positions.expand(x.shape[:-1])
        fits = True
    except RuntimeError:
        fits = False
    if not fits or positions.dim() == 0 or positions.shape[-1] != length:
        raise ValueError(
            f"positions has shape {shape_of(positions)}: expected one position for each row of x, ({length},)"
        )
    if not base > 1:
        raise ValueError(f"base is {base}: expected a number greater than 1")
    angles = _angles(positions, dim, base)  # (..., length, dim / 2)
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]  # (..., length, dim / 2) each
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def alibi_slopes(num_heads: int) -> Tensor:
    r"""How steeply each head's scores fall with distance.

    .. math:: m_h = 2^{-8h/H}, \quad h = 1, \dots, H

    if H is a power of two. Otherwise the slopes are those of the next smaller power of two,
    and after them the first, third, fifth and so on of the double of that, as many as are
    missing.

    Parameters
    ----------
    num_heads : int
        At least 1.

    Returns
    -------
    Tensor, shape (num_heads,)
        Positive, in PyTorch's default floating point type.

    Raises
    ------
    ValueError
        If `num_heads` is less than 1.
    TypeError
        If `num_heads` is not an int.

    References
    ----------
    Press, Smith and Lewis, *Train short, test long: attention with linear biases enables
    input length extrapolation*, 2022, section 3, and the code that goes with it.
    """
    require_count("num_heads", num_heads, least=1)
    power = 2 ** (num_heads.bit_length() - 1)  # the largest power of two that is not above num_heads

    def geometric(number: int) -> Tensor:
        return 2.0 ** (-8 * torch.arange(1, number + 1) / number)  # (number,)

    return torch.cat((geometric(power), geometric(2 * power)[0::2]))[:num_heads]


def alibi_bias(num_heads: int, num_queries: int, num_keys: int | None = None) -> Tensor:
    r"""Numbers to be added to the scores: the farther the key, the lower.

    .. math:: B_{h,q,k} = -m_h\, |q + (N^{KV} - N^Q) - k|

    Queries and keys are aligned at the end, as in :func:`attncourse.causal_mask`:
    with fewer queries than keys, the queries are the last positions.

    Parameters
    ----------
    num_heads : int
        At least 1; see :func:`alibi_slopes` for the slopes.
    num_queries : int
        At least 1.
    num_keys : int, optional
        At least 1; as many as queries if not given.

    Returns
    -------
    Tensor, shape (num_heads, num_queries, num_keys)
        0 where a query meets its own position, elsewhere negative.

    Raises
    ------
    ValueError
        If a number is less than 1.
    TypeError
        If a number is not an int.

    Notes
    -----
    The paper has causal masks only, so that no key comes after the query. Here such keys
    get the same bias as those before; together with a causal mask it is the paper's.

    References
    ----------
    Press, Smith and Lewis, *Train short, test long: attention with linear biases enables
    input length extrapolation*, 2022, section 3.
    """
    slopes = alibi_slopes(num_heads)  # (num_heads,)
    num_keys = num_queries if num_keys is None else num_keys
    require_count("num_queries", num_queries, least=1)
    require_count("num_keys", num_keys, least=1)
    own = torch.arange(num_queries) + (num_keys - num_queries)  # (num_queries,)
    distance = (own.unsqueeze(-1) - torch.arange(num_keys)).abs()  # (num_queries, num_keys)
    return slopes[:, None, None] * -distance
