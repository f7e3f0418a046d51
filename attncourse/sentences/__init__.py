"""Our own sentences, and what the heads of the published encoder do in them.

A small grammar makes sentences in which it is known what belongs to what; pairs of sentences differ in the
one word that decides what *it* stands for; and the course's glossary is there to be searched.

``python -m attncourse.sentences --help`` shows what can be run from a terminal.
"""

from attncourse.sentences.data import (
    FAMILIES,
    NUM_SENTENCES,
    SEED,
    WORDS,
    Family,
    Pair,
    Sentence,
    pairs,
    sentences,
)
from attncourse.sentences.heads import (
    FINDER,
    JOBS,
    NUM_SILENCED,
    Study,
    count,
    margins,
    readings,
    study,
    vectors,
    vectors_of_each_silent,
    wanted,
    weights_of,
)
from attncourse.sentences.results import RESULTS, results, save
from attncourse.sentences.terms import QUESTIONS, passages, write_passages

__all__ = [
    "FAMILIES",
    "FINDER",
    "JOBS",
    "NUM_SENTENCES",
    "NUM_SILENCED",
    "QUESTIONS",
    "RESULTS",
    "SEED",
    "WORDS",
    "Family",
    "Pair",
    "Sentence",
    "Study",
    "count",
    "margins",
    "pairs",
    "passages",
    "readings",
    "results",
    "save",
    "sentences",
    "study",
    "vectors",
    "vectors_of_each_silent",
    "wanted",
    "weights_of",
    "write_passages",
]
