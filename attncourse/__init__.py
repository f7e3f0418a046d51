"""Working implementations for the course on attention.

The names below are the public interface; each is explained in the chapter whose name its
module bears. Exercises are checked by :mod:`attncourse.checks`.
"""

from attncourse.attention_operator import additive_attention, attention, attention_weights, softargmax
from attncourse.masking import (
    additive_mask,
    boolean_mask,
    causal_mask,
    influence,
    inverted_mask,
    local_mask,
    padding_mask,
)
from attncourse.multihead import MultiHeadAttention, head_importance, merge_heads, split_heads

__all__ = [
    "MultiHeadAttention",
    "additive_attention",
    "additive_mask",
    "attention",
    "attention_weights",
    "boolean_mask",
    "causal_mask",
    "head_importance",
    "influence",
    "inverted_mask",
    "local_mask",
    "merge_heads",
    "padding_mask",
    "softargmax",
    "split_heads",
]
