"""A language model that has read five of Jane Austen's novels, and is tested on the sixth.

The model is :class:`attncourse.LanguageModel`. Here are the text, its tokens, the training, and n-gram
models of the same tokens, which are what it has to beat.

``python -m attncourse.novels --help`` shows what can be run from a terminal.
"""

from attncourse.novels.data import (
    HELD_OUT,
    NOVELS,
    TRAINING,
    VOCABULARY_SIZE,
    byte_pair_tokenizer,
    decode,
    encode,
    held_out_tokens,
    novel,
    tokenizer,
    training_tokens,
)
from attncourse.novels.ngrams import NGramModel, measure_ngrams, ngram_losses
from attncourse.novels.results import RESULTS, Result, course_model, evaluate, results, save, token_losses
from attncourse.novels.training import SIZES, VARIANTS, Run, model_config, train

__all__ = [
    "HELD_OUT",
    "NOVELS",
    "RESULTS",
    "SIZES",
    "TRAINING",
    "VARIANTS",
    "VOCABULARY_SIZE",
    "NGramModel",
    "Result",
    "Run",
    "byte_pair_tokenizer",
    "course_model",
    "decode",
    "encode",
    "evaluate",
    "held_out_tokens",
    "measure_ngrams",
    "model_config",
    "ngram_losses",
    "novel",
    "results",
    "save",
    "token_losses",
    "tokenizer",
    "train",
    "training_tokens",
]
