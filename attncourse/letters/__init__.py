"""Two small Transformers that write letters: one goes on with a text, the other sorts a word's letters.

``text`` is a decoder. It has read a short text of the course's own, and predicts each letter
from those before it. ``sorting`` is an encoder-decoder. It writes the letters of a word in the
order of the alphabet, and has to look at the word for that.

``python -m attncourse.letters --help`` shows what can be run from a terminal.
"""

from attncourse.letters.data import ALPHABETS, TASKS, TEXT, decode, encode, random_words, text_parts
from attncourse.letters.models import LetterModel
from attncourse.letters.results import RESULTS, Result, evaluate, results, save
from attncourse.letters.training import Run, train

__all__ = [
    "ALPHABETS",
    "RESULTS",
    "TASKS",
    "TEXT",
    "LetterModel",
    "Result",
    "Run",
    "decode",
    "encode",
    "evaluate",
    "random_words",
    "results",
    "save",
    "text_parts",
    "train",
]
