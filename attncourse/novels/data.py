"""Jane Austen's six novels, cut into the tokens that the model reads."""

import lzma
import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import Tensor

from attncourse._require import require_choice, require_count

#: The novels to train on, in the order in which they were published.
TRAINING = (
    "sense_and_sensibility",
    "pride_and_prejudice",
    "mansfield_park",
    "emma",
    "northanger_abbey",
)
#: The novel that is held out: neither the model nor the tokens know it.
HELD_OUT = "persuasion"
NOVELS = (*TRAINING, HELD_OUT)
#: How many tokens there are.
VOCABULARY_SIZE = 2048

_HERE = Path(str(files("attncourse.novels")))
TOKENIZER = _HERE / "tokenizer.json"
_HEADING = re.compile(r"(volume|chapter)\s+[ivxlc\d]+\.?|finis|the end", re.IGNORECASE)


def novel(name: str) -> str:
    """The text of a novel, a line for each paragraph.

    Title, headings and a publisher's note are left out, and so are the signs ``_`` that the source puts
    around words in italics.

    Parameters
    ----------
    name : str
        One of ``NOVELS``.

    Raises
    ------
    ValueError
        If there is no novel of this name.
    """
    require_choice("name", name, NOVELS)
    text = lzma.decompress((_HERE / "text" / f"{name}.txt.xz").read_bytes()).decode("utf-8")
    text = text.partition("A NOTE ON THE TEXT")[0]  # of a modern publisher
    paragraphs = [" ".join(part.split()).replace("_", "") for part in re.split(r"\n\s*\n", text)]
    first = next(n for n, part in enumerate(paragraphs) if re.match(r"chapter", part, re.IGNORECASE))
    return "\n".join(part for part in paragraphs[first:] if part and not _HEADING.fullmatch(part)) + "\n"


def byte_pair_tokenizer(text: str, vocabulary_size: int = VOCABULARY_SIZE) -> Tokenizer:
    """Learn which pieces of words to cut a text into: byte-pair encoding, which starts from single bytes.

    The two neighbouring tokens that stand side by side most often become one new token, and
    so on until there are enough, or no two are left. Tokens do not reach over the end of a word; the space
    before a word belongs to it. Whatever is not in `text` can still be encoded, byte by byte.

    Parameters
    ----------
    text : str
    vocabulary_size : int
        At least 256, one for each byte.

    Returns
    -------
    tokenizers.Tokenizer

    Raises
    ------
    ValueError
        If `vocabulary_size` is less than 256.
    TypeError
        If `vocabulary_size` is not an int.

    References
    ----------
    Sennrich, Haddow and Birch, *Neural machine translation of rare words with subword units*, 2016.
    Radford et al., *Language models are unsupervised multitask learners*, 2019, section 2.2: bytes.
    """
    require_count("vocabulary_size", vocabulary_size, least=256)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary_size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


@cache
def tokenizer() -> Tokenizer:
    """The tokens of the course's model, learned from the novels to train on."""
    return Tokenizer.from_file(str(TOKENIZER))


def encode(text: str) -> Tensor:
    """The tokens of a text as numbers, shape (tokens,)."""
    return torch.tensor(tokenizer().encode(text).ids, dtype=torch.long)


def decode(tokens: Tensor) -> str:
    """The text that tokens stand for: :func:`encode` reversed.

    Raises
    ------
    ValueError
        If a number is not that of a token.
    """
    wrong = tokens[(tokens < 0) | (tokens >= VOCABULARY_SIZE)]
    if len(wrong):
        raise ValueError(f"tokens holds {wrong[0]}: expected numbers from 0 to {VOCABULARY_SIZE - 1}")
    return tokenizer().decode(tokens.tolist())


@cache
def training_tokens() -> Tensor:
    """The five novels to train on, one after the other, shape (tokens,)."""
    return torch.cat([encode(novel(name)) for name in TRAINING])


@cache
def held_out_tokens() -> Tensor:
    """The novel that is held out, shape (tokens,)."""
    return encode(novel(HELD_OUT))
