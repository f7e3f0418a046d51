"""Order: what happens to an output when the positions of an input are permuted.

A permutation of N positions is a tensor of whole numbers that holds each of 0 to N - 1
once; position i of the result is position ``permutation[i]`` of the input.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from attncourse._require import require_count, require_floating, require_tensor, shape_of

__all__ = ["is_equivariant", "is_invariant", "permute"]


def permute(x: Tensor, permutation: Tensor | Sequence[int], dim: int = -2) -> Tensor:
    r"""Put the positions of a sequence in another order.

    .. math:: \sigma(X)_i = X_{\sigma(i)}

    Parameters
    ----------
    x : Tensor, shape (..., positions, features)
        Or any other with positions at `dim`, of any dtype: a mask, too.
    permutation : Tensor of int or sequence of int, shape (positions,)
        Says for each position of the result from which position it is taken.
    dim : int
        Where `x` has its positions.

    Returns
    -------
    Tensor, the shape of `x`
        A copy.

    Raises
    ------
    ValueError
        If `permutation` does not hold each position of `x` exactly once.
    IndexError
        If `x` has no dimension `dim`.
    TypeError
        If `x` is not a tensor.

    References
    ----------
    François Fleuret, *Deep Learning Course*, lecture 13.2.
    """
    require_tensor("x", x)
    length = x.size(dim)
    permutation = torch.as_tensor(permutation, device=x.device)
    if permutation.dim() != 1 or permutation.sort().values.tolist() != list(range(length)):
        raise ValueError(
            f"permutation has shape {shape_of(permutation)}: expected each of 0 to {length - 1} once, "
            f"for the {length} positions of x, whose shape is {shape_of(x)}"
        )
    return x.index_select(dim, permutation.long())


def is_equivariant(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    dim: int = -2,
    num_permutations: int = 24,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
    return_counterexample: bool = False,
) -> bool | tuple[bool, Tensor | None]:
    r"""Test whether permuting the input permutes the output in the same way.

    .. math:: f(\sigma(X)) = \sigma(f(X))

    Parameters
    ----------
    function : callable
        Takes a tensor like `x` and returns a tensor.
    x : Tensor of floating-point numbers, shape (..., positions, features)
        The input at which to test.
    dim : int
        Where `x` and the output have their positions. An output that has not as many
        positions as `x` there is not equivariant.
    num_permutations : int
        How many random permutations to try, at least 1, never the identity. If there are no more than
        this (with up to 4 positions, by default), all are tried.
    tolerance : float, optional
        How large a difference may be, as a fraction of the output's largest number. If
        not given, the square root of the dtype's machine precision: 1.5e-8 in float64,
        3.5e-4 in float32.
    generator : torch.Generator, optional
        The source of the permutations; the same ones at every call if not given.
    return_counterexample : bool
        Also return a permutation that shows the failure.

    Returns
    -------
    bool
    counterexample : Tensor of int, shape (positions,), or None
        Only with `return_counterexample`; None if none was found.

    Raises
    ------
    ValueError
        If `x` is not of floating-point numbers, or `num_permutations` is less than 1.
    IndexError
        If `x` has no dimension `dim`.
    TypeError
        If `x` or what `function` returns is not a tensor.

    Notes
    -----
    A False is proof, up to rounding: the counterexample can be tried by hand. A True is
    evidence, for this input and these permutations. Take random inputs of moderate size in
    float64, where rounding is far below any real difference, and switch dropout off, which
    gives another output at every call. NaN and infinity differ from everything.
    """

    def follows(output: Tensor, permuted_output: Tensor, permutation: Tensor) -> bool:
        return (
            output.dim() >= max(-dim, dim + 1)
            and output.size(dim) == len(permutation)
            and _agree(permuted_output, permute(output, permutation, dim), tolerance)
        )

    permutations = _permutations(x, dim, num_permutations, generator)
    return _verdict(_counterexample(function, x, dim, permutations, follows), return_counterexample)


def is_invariant(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    *,
    dim: int = -2,
    num_permutations: int = 24,
    tolerance: float | None = None,
    generator: torch.Generator | None = None,
    return_counterexample: bool = False,
) -> bool | tuple[bool, Tensor | None]:
    r"""Test whether permuting the input leaves the output as it is.

    .. math:: f(\sigma(X)) = f(X)

    Parameters
    ----------
    function : callable
        Takes a tensor like `x` and returns a tensor of any shape.
    x : Tensor of floating-point numbers, shape (..., positions, features)
        The input at which to test.
    dim : int
        Where `x` has its positions.
    num_permutations, tolerance, generator, return_counterexample
        As for :func:`is_equivariant`, with the same limits.

    Returns
    -------
    bool
    counterexample : Tensor of int, shape (positions,), or None
        Only with `return_counterexample`; None if none was found.

    Raises
    ------
    ValueError
        If `x` is not of floating-point numbers, or `num_permutations` is less than 1.
    IndexError
        If `x` has no dimension `dim`.
    TypeError
        If `x` or what `function` returns is not a tensor.
    """

    def stays(output: Tensor, permuted_output: Tensor, permutation: Tensor) -> bool:
        return _agree(permuted_output, output, tolerance)

    permutations = _permutations(x, dim, num_permutations, generator)
    return _verdict(_counterexample(function, x, dim, permutations, stays), return_counterexample)


def _permutations(x: Tensor, dim: int, number: int, generator: torch.Generator | None) -> Iterator[Tensor]:
    """Random permutations, or all if there are no more than `number`; never the identity."""
    require_floating("x", x)
    require_count("num_permutations", number, 1)
    length = x.size(dim)
    identity = torch.arange(length)
    if math.factorial(length) - 1 <= number:
        return (
            torch.tensor(order) for order in itertools.islice(itertools.permutations(range(length)), 1, None)
        )
    source = torch.Generator().manual_seed(0) if generator is None else generator
    drawn = iter(lambda: torch.randperm(length, generator=source), None)
    return itertools.islice((order for order in drawn if not torch.equal(order, identity)), number)


def _counterexample(
    function: Callable[[Tensor], Tensor],
    x: Tensor,
    dim: int,
    permutations: Iterator[Tensor],
    holds: Callable[[Tensor, Tensor, Tensor], bool],
) -> Tensor | None:
    output = function(x)
    require_tensor("what function returns", output)
    for permutation in permutations:
        if not holds(output, function(permute(x, permutation, dim)), permutation):
            return permutation
    return None


def _verdict(counterexample: Tensor | None, return_counterexample: bool) -> bool | tuple[bool, Tensor | None]:
    holds = counterexample is None
    return (holds, counterexample) if return_counterexample else holds


def _agree(output: Tensor, expected: Tensor, tolerance: float | None) -> bool:
    if output.shape != expected.shape:
        return False
    if not expected.dtype.is_floating_point:
        return torch.equal(output, expected)
    if not expected.numel():
        return True
    if tolerance is None:
        tolerance = torch.finfo(expected.dtype).eps ** 0.5
    # Not `difference > ...`, which NaN would pass.
    return bool((output - expected).abs().max() <= tolerance * expected.abs().max())
