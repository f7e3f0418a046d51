"""Texts to search: the entries of the course's glossary, and questions about them in other words."""

import functools
import json
import re
from pathlib import Path

_FILE = Path(__file__).with_name("passages.json")

#: A question in words of daily life, and the term that answers it.
QUESTIONS = (
    ("How do I stop a word from looking at the words that come later?", "causal mask"),
    ("Only things close by may be seen.", "local mask"),
    ("Texts are of unequal size, and the short ones are filled up.", "padding mask"),
    ("Switching off randomly chosen parts during learning.", "dropout"),
    ("Turning arbitrary numbers into probabilities.", "softargmax"),
    ("What keeps the numbers from growing when vectors get longer?", "scale"),
    ("How does the network find out in which place each word stands?", "positional encoding"),
    ("Writing the place as zeros and ones.", "binary encoding"),
    ("Waves of different length that tell where something is.", "sinusoidal encoding"),
    ("Rotating vectors according to where they stand.", "rotary encoding"),
    ("Far away words count less.", "ALiBi"),
    ("The result stays the same when the input is shuffled.", "invariant"),
    ("The result is shuffled in the same way as the input.", "equivariant"),
    ("Which parts of the network could be thrown away without harm?", "head importance"),
    ("Remember what was computed for earlier words instead of doing it again.", "key/value cache"),
    ("Several steps in one piece of machine code, to spare the memory.", "fused kernel"),
    ("Work through the data piece by piece so that it fits into memory.", "chunk"),
    ("Carry the input around a layer and add it back.", "residual connection"),
    ("Make the answers bolder or more cautious.", "temperature"),
    ("While learning to write, it is shown the correct beginning.", "teacher forcing"),
    ("Reading one text while writing another.", "cross-attention"),
    ("Cut a photo into little squares.", "patch"),
    ("Follow the paths through all layers of the network.", "attention rollout"),
    ("A picture model made of the same parts as those for language.", "Vision Transformer"),
)


@functools.cache
def passages() -> dict[str, str]:
    """The entries of the course's glossary as plain text, by their terms.

    Returns
    -------
    dict of str to str
        In the order of the glossary. No text has formulas, code or references to chapters.
    """
    return json.loads(_FILE.read_text(encoding="utf-8"))


def passages_of(glossary: str) -> dict[str, str]:
    """The entries of a page with a ``glossary`` directive, as :func:`passages` gives them."""
    block = glossary.partition("```{glossary}\n")[2].partition("```")[0]
    return {
        entry.partition("\n")[0]: _plain(entry.partition("\n")[2]) for entry in block.strip().split("\n\n")
    }


def write_passages(path: Path) -> None:
    """Write the entries of the book's glossary where :func:`passages` finds them."""
    found = passages_of(path.read_text(encoding="utf-8"))
    _FILE.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")


def _plain(text: str) -> str:
    """Without references, code, formulas and line breaks."""
    text = " ".join(text.split())
    text = re.sub(r"(?:See|In code) [^.]*?(?:\[[^]]*\]\([^)]*\)|`[^`]*`)\.", "", text)
    text = re.sub(r"\{\w+\}`([^`<]*?)(?: <[^>]*>)?`", r"\1", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"\$[^$]*\$,? \(`([^`]*)`\)", r"\1", text)  # a formula and its name in code: the name
    text = re.sub(r",? \(?(?:\$[^$]*\$|`[^`]*`)\)?", "", text)
    for left in (",", ".", ":"):
        text = text.replace(f" {left}", left)
    return " ".join(text.split()).replace(":.", ".")
