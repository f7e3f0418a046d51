"""Working implementations for the course on attention.

The names below are the public interface; each is explained in the chapter whose name its
module bears. Exercises are checked by :mod:`attncourse.checks`.
"""

from attncourse.attention_operator import additive_attention, attention, attention_weights, softargmax
from attncourse.multihead import MultiHeadAttention, head_importance, merge_heads, split_heads

__all__ = [
    "MultiHeadAttention",
    "additive_attention",
    "attention",
    "attention_weights",
    "head_importance",
    "merge_heads",
    "softargmax",
    "split_heads",
]
