"""What arguments must be: each check names the argument, what came and what was expected."""

from collections.abc import Sequence

import torch
from torch import Tensor


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def broadcasts_to(tensor: Tensor, shape: torch.Size) -> bool:
    # torch.broadcast_shapes imports SymPy first, which takes longer than all else in a cell.
    sizes = zip(reversed(tensor.shape), reversed(shape), strict=False)
    return tensor.dim() <= len(shape) and all(size in (1, whole) for size, whole in sizes)


def require_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}: expected a torch.Tensor")


def require_count(name: str, number: int, least: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"{name} is a {type(number).__name__}: expected an int")
    if number < least:
        raise ValueError(f"{name} is {number}: expected at least {least}")


def require_groups(num_heads: int, num_key_value_heads: int) -> None:
    """Check that heads for queries fall into groups, one for each head for keys and values."""
    if num_heads % num_key_value_heads:
        raise ValueError(
            f"num_key_value_heads is {num_key_value_heads} and num_heads is {num_heads}: "
            "expected a number that divides num_heads"
        )


def require_output(function: str, output: Tensor, shape: Sequence[int]) -> None:
    """Check what a function gives that was passed as an argument."""
    if not isinstance(output, Tensor) or shape_of(output) != tuple(shape):
        came = (
            f"a tensor of shape {shape_of(output)}" if isinstance(output, Tensor) else type(output).__name__
        )
        raise ValueError(f"{function} gives {came}: expected a tensor of shape {tuple(shape)}")


def require_bool(name: str, mask: Tensor) -> None:
    require_tensor(name, mask)
    if mask.dtype != torch.bool:
        raise ValueError(f"{name} has shape {shape_of(mask)} and dtype {mask.dtype}: expected torch.bool")


def require_choice(name: str, choice: str, choices: Sequence[str]) -> None:
    if choice not in choices:
        raise ValueError(f"{name} is {choice!r}: expected one of {', '.join(choices)}")


def require_floating(name: str, tensor: Tensor) -> None:
    require_tensor(name, tensor)
    if not tensor.dtype.is_floating_point:
        raise ValueError(
            f"{name} has shape {shape_of(tensor)} and dtype {tensor.dtype}: expected floating point numbers"
        )


def require_rows(name: str, tensor: Tensor) -> None:
    require_floating(name, tensor)
    if tensor.dim() < 2:
        raise ValueError(f"{name} has shape {shape_of(tensor)}: expected (..., positions, features)")


def require_key(key: Tensor) -> None:
    require_rows("key", key)
    if key.shape[-2] == 0:
        raise ValueError(f"key has shape {shape_of(key)}: expected at least one key")


def require_same_batch(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.shape[:-2] != other.shape[:-2]:
        raise ValueError(
            f"{name} has shape {shape_of(tensor)} and {other_name} has shape {shape_of(other)}: "
            "expected the same leading dimensions (use expand to share one over a batch)"
        )
    require_same_dtype(name, tensor, other_name, other)


def require_same_dtype(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.dtype != other.dtype:
        raise ValueError(
            f"{name} has shape {shape_of(tensor)} and dtype {tensor.dtype}: expected {other.dtype}, "
            f"the dtype of {other_name}"
        )


def require_query_and_key(query: Tensor, key: Tensor) -> None:
    require_rows("query", query)
    require_key(key)
    if query.shape[-1] == 0:
        raise ValueError(f"query has shape {shape_of(query)}: expected at least one feature (key_dim)")
    if key.shape[-1] != query.shape[-1]:
        raise ValueError(
            f"key has shape {shape_of(key)}: expected the last dimension to be {query.shape[-1]}, "
            f"the key_dim of query, whose shape is {shape_of(query)}"
        )
    require_same_batch("key", key, "query", query)


def require_value(value: Tensor, key: Tensor) -> None:
    require_rows("value", value)
    if value.shape[-2] != key.shape[-2]:
        raise ValueError(
            f"value has shape {shape_of(value)}: expected {key.shape[-2]} rows, one for each row of key, "
            f"whose shape is {shape_of(key)}"
        )
    require_same_batch("value", value, "key", key)


def require_mask(mask: Tensor, scores_shape: torch.Size) -> None:
    require_tensor("mask", mask)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"mask has shape {shape_of(mask)} and dtype {mask.dtype}: expected torch.bool, True = may attend"
        )
    if not broadcasts_to(mask, scores_shape):
        raise ValueError(
            f"mask has shape {shape_of(mask)}: expected one that broadcasts to {tuple(scores_shape)}, "
            "the shape of the scores"
        )
