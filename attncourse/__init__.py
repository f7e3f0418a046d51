"""Working implementations for the course on attention.

The names below are the public interface; each is explained in the chapter whose name its
module bears. Exercises are checked by :mod:`attncourse.checks`.
"""

from attncourse.attention_operator import additive_attention, attention, attention_weights, softargmax
from attncourse.positional import binary_encoding

__all__ = ["additive_attention", "attention", "attention_weights", "binary_encoding", "softargmax"]
