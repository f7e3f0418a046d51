"""The text, random words, and how letters become numbers."""

from pathlib import Path

import torch
from torch import Tensor

from attncourse._require import require_choice, require_count

TASKS = ("text", "sorting")

#: A text written for this course, in small letters, without line breaks.
TEXT = " ".join(Path(__file__).with_name("text.txt").read_text(encoding="utf-8").lower().split())
#: The letters of each task, in order. In "sorting", "<" starts what is written, and ">" ends every word.
ALPHABETS = {"text": "".join(sorted(set(TEXT))), "sorting": "<abcdefghijklmnopqrstuvwxyz>"}
#: The share of the text, at its end, that no model is trained on.
HELD_OUT = 0.1
#: How many letters a random word has, at least and at most.
SHORTEST, LONGEST = 2, 12


def encode(task: str, letters: str) -> Tensor:
    """The number of each letter in the task's alphabet, (length,).

    Raises
    ------
    ValueError
        If the task is unknown, or a letter is not in its alphabet.
    """
    require_choice("task", task, TASKS)
    alphabet = ALPHABETS[task]
    for letter in letters:
        if letter not in alphabet:
            raise ValueError(f"letters has {letter!r}: expected the letters of {alphabet!r}")
    return torch.tensor([alphabet.index(letter) for letter in letters], dtype=torch.long)


def decode(task: str, numbers: Tensor) -> str:
    """The letters that the numbers stand for: :func:`encode` reversed."""
    require_choice("task", task, TASKS)
    return "".join(ALPHABETS[task][number] for number in numbers.tolist())


def text_parts() -> tuple[Tensor, Tensor]:
    """The text as numbers: the part to train on, and the part at its end that is held out."""
    numbers = encode("text", TEXT)
    cut = round((1 - HELD_OUT) * len(numbers))
    return numbers[:cut], numbers[cut:]


def text_batch(num_sequences: int, length: int) -> tuple[Tensor, Tensor]:
    """Random passages of the text to train on, and for each letter the one that comes next.

    Returns
    -------
    passages, next_letters : Tensor, shape (num_sequences, length)
    """
    numbers, _ = text_parts()
    starts = torch.randint(len(numbers) - length, (num_sequences, 1))  # (num_sequences, 1)
    passages = numbers[starts + torch.arange(length + 1)]  # (num_sequences, length + 1)
    return passages[:, :-1], passages[:, 1:]


def random_words(num_words: int, length: int) -> tuple[Tensor, Tensor]:
    """Words of random letters, no letter twice, and the same letters in the order of the alphabet.

    Returns
    -------
    words : Tensor, shape (num_words, length + 1)
        Each ends with ">".
    in_order : Tensor, shape (num_words, length + 2)
        Each begins with "<" and ends with ">".

    Raises
    ------
    ValueError
        If a number is less than 1, or `length` more than the 26 letters that there are.
    """
    require_count("num_words", num_words, least=1)
    require_count("length", length, least=1)
    if length > 26:
        raise ValueError(f"length is {length}: expected at most 26, as no letter comes twice")
    start, end = encode("sorting", "<>").expand(num_words, 2).split(1, dim=1)  # (num_words, 1) each
    letters = 1 + torch.rand(num_words, 26).argsort(1)[:, :length]  # (num_words, length)
    return torch.cat((letters, end), 1), torch.cat((start, letters.sort(1).values, end), 1)
