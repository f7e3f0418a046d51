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
from attncourse.permutation import is_equivariant, is_invariant, permute
from attncourse.positional import (
    LearnedEncoding,
    alibi_bias,
    alibi_slopes,
    binary_encoding,
    rotary,
    sinusoidal_encoding,
)
from attncourse.scaling import (
    KeyValueCache,
    PartialAttention,
    chunked_attention,
    merge_partials,
    partial_attention,
)
from attncourse.transformer import Transformer, TransformerBlock
from attncourse.vision import (
    VisionTransformer,
    attention_distance,
    attention_rollout,
    grid_encoding,
    grid_positions,
    patchify,
    rotary_2d,
    unpatchify,
)
from attncourse.words import (
    SentenceEncoder,
    load_published_weights,
    load_sentence_encoder,
    load_tokenizer,
    mean_pooling,
    reciprocal_rank,
    tokenize,
)
from attncourse.your_model import (
    CausalSelfAttention,
    DecoderBlock,
    LanguageModel,
    ModelConfig,
    RMSNorm,
    SwiGLU,
    cache_bytes,
    generate,
    induction_score,
    next_token_probabilities,
    parameter_count,
)

__all__ = [
    "CausalSelfAttention",
    "DecoderBlock",
    "KeyValueCache",
    "LanguageModel",
    "LearnedEncoding",
    "ModelConfig",
    "MultiHeadAttention",
    "PartialAttention",
    "RMSNorm",
    "SentenceEncoder",
    "SwiGLU",
    "Transformer",
    "TransformerBlock",
    "VisionTransformer",
    "additive_attention",
    "additive_mask",
    "alibi_bias",
    "alibi_slopes",
    "attention",
    "attention_distance",
    "attention_rollout",
    "attention_weights",
    "binary_encoding",
    "boolean_mask",
    "cache_bytes",
    "causal_mask",
    "chunked_attention",
    "generate",
    "grid_encoding",
    "grid_positions",
    "head_importance",
    "induction_score",
    "influence",
    "inverted_mask",
    "is_equivariant",
    "is_invariant",
    "load_published_weights",
    "load_sentence_encoder",
    "load_tokenizer",
    "local_mask",
    "mean_pooling",
    "merge_heads",
    "merge_partials",
    "next_token_probabilities",
    "padding_mask",
    "parameter_count",
    "partial_attention",
    "patchify",
    "permute",
    "reciprocal_rank",
    "rotary",
    "rotary_2d",
    "sinusoidal_encoding",
    "softargmax",
    "split_heads",
    "tokenize",
    "unpatchify",
]
