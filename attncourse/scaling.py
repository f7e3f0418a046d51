"""Long sequences: attention in chunks, without the matrix of weights, and a cache for decoding.

The matrix of scores has a number for every pair of a query and a key. The softargmax can be
computed without ever holding it: piece by piece, since two partial results can be merged.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attncourse._require import (
    require_count,
    require_mask,
    require_query_and_key,
    require_rows,
    require_same_dtype,
    require_value,
    shape_of,
)
from attncourse.attention_operator import attention_weights
from attncourse.masking import causal_mask

__all__ = ["KeyValueCache", "PartialAttention", "chunked_attention", "merge_partials", "partial_attention"]


class PartialAttention(NamedTuple):
    """What is known of an average after some of the keys.

    The average itself is ``weighted / total``. A row that has seen no key has `largest`
    minus infinity, and `total` and `weighted` 0.
    """

    #: The largest score so far, shape (..., num_queries, 1).
    largest: Tensor
    #: The sum of exp(score - largest), shape (..., num_queries, 1).
    total: Tensor
    #: The sum of exp(score - largest) times value, shape (..., num_queries, value_dim).
    weighted: Tensor


def partial_attention(scores: Tensor, value: Tensor) -> PartialAttention:
    """Add up the values of some of the keys, without dividing yet.

    Parameters
    ----------
    scores : Tensor, shape (..., num_queries, some_keys)
        Minus infinity where a query may not attend.
    value : Tensor, shape (..., some_keys, value_dim)

    Returns
    -------
    PartialAttention
        To be merged with that of other keys by :func:`merge_partials`. For derivatives,
        `largest` is a constant: whichever number is subtracted, the average is the same.
    """
    largest = scores.detach().amax(-1, keepdim=True)  # (..., num_queries, 1)
    exponentials = torch.exp(scores - _finite(largest))  # (..., num_queries, some_keys)
    return PartialAttention(largest, exponentials.sum(-1, keepdim=True), exponentials @ value)


def merge_partials(first: PartialAttention, second: PartialAttention) -> PartialAttention:
    r"""Make one partial result of two, for the same queries and different keys.

    .. math:: m = \max(m_1, m_2), \quad l = e^{m_1 - m} l_1 + e^{m_2 - m} l_2,
       \quad o = e^{m_1 - m} o_1 + e^{m_2 - m} o_2

    The order does not matter, nor does it matter which pairs are merged first.

    Parameters
    ----------
    first, second : PartialAttention
        Largest score m, total l and weighted sum o, of the same shapes.

    Returns
    -------
    PartialAttention

    References
    ----------
    Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018, section 3.1.
    """
    largest = torch.maximum(first.largest, second.largest)
    finite = _finite(largest)
    factors = [torch.exp(part.largest - finite) for part in (first, second)]
    return PartialAttention(
        largest,
        factors[0] * first.total + factors[1] * second.total,
        factors[0] * first.weighted + factors[1] * second.weighted,
    )


def chunked_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    *,
    chunk_size: int = 512,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    """Compute what :func:`attention` computes, in memory that grows with the number of positions.

    The scores are computed for `chunk_size` queries and `chunk_size` keys at a time, and
    forgotten again. The backward pass computes them a second time. Beside the inputs, the
    output and the gradients, memory is needed for one such block and two numbers per query.
    Batches and heads are taken one after the other.

    Parameters
    ----------
    query : Tensor, shape (..., num_queries, key_dim)
    key : Tensor, shape (..., num_keys, key_dim)
    value : Tensor, shape (..., num_keys, value_dim)
        `query`, `key` and `value` have the same leading dimensions and dtype. With 16 bits,
        sums are kept in float32.
    mask : Tensor of bool, optional
        Broadcasts to (..., num_queries, num_keys). True = may attend.
    chunk_size : int
        At least 1. The result does not depend on it, except for rounding.
    scale : float, optional
        The factor on the dot products; 1 / sqrt(key_dim) if not given.
    causal : bool
        Every query sees its own position and those before it, as with
        :func:`causal_mask`, and no matrix of num_queries by num_keys is needed for it.
        What is all in the future is not computed. Together with `mask`, both must allow.

    Returns
    -------
    Tensor, shape (..., num_queries, value_dim)
        A query that may attend to no key gets a row of zeros, and no gradient.

    Raises
    ------
    ValueError
        If shapes, dtypes, the mask or `chunk_size` do not fit; the message names the
        argument.
    TypeError
        If an argument that should be a tensor is not, or `chunk_size` is not an int.

    References
    ----------
    Rabe and Staats, *Self-attention does not need O(n²) memory*, 2021.
    Dao et al., *FlashAttention: fast and memory-efficient exact attention with
    IO-awareness*, 2022, algorithms 1 and 4.
    """
    require_query_and_key(query, key)
    require_value(value, key)
    require_count("chunk_size", chunk_size, 1)
    scores_shape = torch.Size((*query.shape[:-1], key.shape[-2]))
    if mask is not None:
        require_mask(mask, scores_shape)
        mask = mask.expand(scores_shape)  # a view: no number is copied
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    return _ChunkedAttention.apply(query, key, value, mask, causal, scale, chunk_size)


class _ChunkedAttention(torch.autograd.Function):
    """The two passes, each a loop over the batch and in it over blocks of scores."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        scale: float,
        chunk_size: int,
    ) -> Tensor:
        output = query.new_empty(*query.shape[:-1], value.shape[-1])
        # Exponentials minus this are the weights: the logarithm of each row's sum.
        log_total = query.new_empty(query.shape[:-1], dtype=_summing_dtype(query))
        for index in product(*map(range, query.shape[:-2])):
            blocks = _Blocks(query[index], key[index], mask, index, causal, scale, chunk_size)
            for rows in blocks.rows():
                state = blocks.nothing_seen(rows, value.shape[-1])
                for columns, scores in blocks.scores_of(rows):
                    state = _add_keys(state, scores, value[index][columns].to(scores.dtype))
                empty = state.total == 0
                output[index][rows] = state.weighted / state.total.masked_fill(empty, 1.0)
                log_total[index][rows] = (state.largest + state.total.log()).masked_fill(empty, 0.0)[:, 0]
        ctx.save_for_backward(query, key, value, mask, output, log_total)
        ctx.options = causal, scale, chunk_size
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, output, log_total = ctx.saved_tensors
        causal, scale, chunk_size = ctx.options
        query_grad, key_grad, value_grad = (
            torch.zeros_like(x, dtype=log_total.dtype) for x in (query, key, value)
        )
        for index in product(*map(range, query.shape[:-2])):
            blocks = _Blocks(query[index], key[index], mask, index, causal, scale, chunk_size)
            for rows in blocks.rows():
                upstream = output_grad[index][rows].to(log_total.dtype)  # (rows, value_dim)
                # The softargmax's derivative subtracts a mean from each row of gradients; this is it.
                mean = (upstream * output[index][rows]).sum(-1, keepdim=True)  # (rows, 1)
                for columns, scores in blocks.scores_of(rows):
                    weights = scores.sub_(log_total[index][rows, None]).exp_()  # (rows, columns)
                    value_grad[index][columns].addmm_(weights.mT, upstream)
                    values = value[index][columns].to(log_total.dtype)
                    scores_grad = torch.mm(upstream, values.mT).sub_(mean).mul_(weights).mul_(scale)
                    query_grad[index][rows].addmm_(scores_grad, key[index][columns].to(log_total.dtype))
                    key_grad[index][columns].addmm_(scores_grad.mT, query[index][rows].to(log_total.dtype))
        gradients = (grad.to(query.dtype) for grad in (query_grad, key_grad, value_grad))
        return *gradients, None, None, None, None


class _Blocks:
    """The scores of one sequence, a block at a time, in memory for one block."""

    def __init__(
        self,
        query: Tensor,  # (num_queries, key_dim)
        key: Tensor,  # (num_keys, key_dim)
        mask: Tensor | None,  # (..., num_queries, num_keys)
        index: tuple[int, ...],
        causal: bool,
        scale: float,
        chunk_size: int,
    ) -> None:
        self.query, self.key, self.scale, self.chunk_size = query, key, scale, chunk_size
        self.mask = None if mask is None else mask[index]
        # The queries are the last positions: query 0 stands at this one.
        self.first_position = len(key) - len(query) if causal else None
        side = min(chunk_size, max(query.shape[0], key.shape[0]))
        self.memory = query.new_empty(side * side, dtype=_summing_dtype(query))

    def rows(self) -> Iterator[slice]:
        for start in range(0, len(self.query), self.chunk_size):
            yield slice(start, min(start + self.chunk_size, len(self.query)))

    def nothing_seen(self, rows: slice, value_dim: int) -> PartialAttention:
        """What is known of these queries' averages before the first key."""
        num_rows = rows.stop - rows.start
        largest = self.memory.new_full((num_rows, 1), -math.inf)
        return PartialAttention(
            largest, torch.zeros_like(largest), self.memory.new_zeros(num_rows, value_dim)
        )

    def scores_of(self, rows: slice) -> Iterator[tuple[slice, Tensor]]:
        """The blocks of some queries that hold anything allowed; each overwrites the one before."""
        query = self.query[rows].to(self.memory.dtype) * self.scale  # (rows, key_dim)
        num_rows, num_keys = len(query), len(self.key)
        if self.first_position is not None:
            num_keys = min(num_keys, self.first_position + rows.stop)
        for start in range(0, num_keys, self.chunk_size):
            columns = slice(start, min(start + self.chunk_size, num_keys))
            scores = self.memory[: num_rows * (columns.stop - start)].view(num_rows, -1)
            torch.mm(query, self.key[columns].to(self.memory.dtype).mT, out=scores)
            if self.mask is not None:
                scores.masked_fill_(~self.mask[rows, columns], -math.inf)
            if self.first_position is not None and columns.stop - 1 > self.first_position + rows.start:
                own = torch.arange(rows.start, rows.stop, device=scores.device) + self.first_position
                position = torch.arange(start, columns.stop, device=scores.device)
                scores.masked_fill_(position > own[:, None], -math.inf)
            yield columns, scores


class KeyValueCache:
    """The keys and values of the positions so far, for causal decoding step by step.

    A model that writes asks, at each step, for the newest positions only. The keys and
    values of the earlier ones do not change any more, because no position sees a later one.
    So they are kept, and what :meth:`attend` gives is what a pass over the whole sequence
    with a causal mask would give for these positions.

    Memory grows by doubling, so that appending costs the same on average however long the
    sequence is. Gradients are not kept: use it under ``torch.no_grad()``.

    References
    ----------
    Shazeer, *Fast Transformer decoding: one write-head is all you need*, 2019, section 2.4.
    """

    def __init__(self) -> None:
        self._memory: list[Tensor] = []  # key and value, each (..., capacity, features)
        self._length = 0

    def __len__(self) -> int:
        """The number of positions so far."""
        return self._length

    @property
    def key(self) -> Tensor:
        """The keys so far, a view of shape (..., length, key_dim)."""
        return self._so_far(0)

    @property
    def value(self) -> Tensor:
        """The values so far, a view of shape (..., length, value_dim)."""
        return self._so_far(1)

    def append(self, key: Tensor, value: Tensor) -> None:
        """Add the keys and values of new positions.

        Parameters
        ----------
        key : Tensor, shape (..., num_new, key_dim)
        value : Tensor, shape (..., num_new, value_dim)
            The same leading dimensions, features and dtype at every step.

        Raises
        ------
        ValueError
            If shapes or dtypes do not fit each other or those before, or gradients are
            being recorded.
        TypeError
            If an argument is not a tensor.
        """
        require_rows("key", key)
        require_value(value, key)
        if torch.is_grad_enabled() and (key.requires_grad or value.requires_grad):
            raise ValueError("key or value records gradients: expected append to be called under no_grad()")
        if not self._memory:
            self._memory = [x.new_empty(x.shape) for x in (key, value)]
        for name, x, memory in zip(("key", "value"), (key, value), self._memory, strict=True):
            require_same_dtype(name, x, f"the {name}s before", memory)
            expected = (*memory.shape[:-2], x.shape[-2], memory.shape[-1])
            if shape_of(x) != expected:
                raise ValueError(f"{name} has shape {shape_of(x)}: expected {expected}, like those before")
        length = self._length + key.shape[-2]
        if length > self._memory[0].shape[-2]:
            self._grow(2 * length)
        for x, memory in zip((key, value), self._memory, strict=True):
            memory[..., self._length : length, :] = x
        self._length = length

    def attend(self, query: Tensor, *, scale: float | None = None) -> Tensor:
        """Let the newest positions attend to all positions up to their own.

        Parameters
        ----------
        query : Tensor, shape (..., num_new, key_dim)
            The queries of the last num_new positions that were appended.
        scale : float, optional
            The factor on the dot products; 1 / sqrt(key_dim) if not given.

        Returns
        -------
        Tensor, shape (..., num_new, value_dim)

        Raises
        ------
        ValueError
            If the cache is empty, or shapes or dtypes do not fit; there can be no more
            queries than positions.
        TypeError
            If `query` is not a tensor.
        """
        require_rows("query", query)
        num_new = query.shape[-2]
        if not num_new <= len(self):
            raise ValueError(
                f"query has shape {shape_of(query)}: expected at most {len(self)} rows, the positions so far"
            )
        # A single new position sees everything, and needs no mask.
        mask = causal_mask(num_new, len(self)).to(query.device) if num_new > 1 else None
        return attention_weights(query, self.key, mask, scale=scale) @ self.value

    def _so_far(self, which: int) -> Tensor:
        if not self._memory:
            raise ValueError("the cache is empty: expected append to be called first")
        return self._memory[which][..., : self._length, :]

    def _grow(self, capacity: int) -> None:
        for which, memory in enumerate(self._memory):
            larger = memory.new_empty(*memory.shape[:-2], capacity, memory.shape[-1])
            larger[..., : self._length, :] = memory[..., : self._length, :]
            self._memory[which] = larger


def _add_keys(state: PartialAttention, scores: Tensor, value: Tensor) -> PartialAttention:
    """Merge a partial result with that of further keys; both are overwritten, which saves much time."""
    largest = torch.maximum(state.largest, scores.amax(-1, keepdim=True))
    finite = _finite(largest)
    exponentials = scores.sub_(finite).exp_()
    factor = torch.exp(state.largest - finite)
    state.total.mul_(factor).add_(exponentials.sum(-1, keepdim=True))
    state.weighted.mul_(factor).addmm_(exponentials, value)
    return state._replace(largest=largest)


def _finite(largest: Tensor) -> Tensor:
    """Minus infinity, where nothing is allowed, replaced by 0: exp(-inf - 0) is 0, and -inf + inf is NaN."""
    return largest.masked_fill(largest == -math.inf, 0.0)


def _summing_dtype(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
