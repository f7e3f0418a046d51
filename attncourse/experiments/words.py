"""The experiment of ``words``: the student's functions become a published encoder, and search the glossary.

The weights are those of :func:`attncourse.load_published_weights`, the passages and the sentences those of
:mod:`attncourse.sentences`. What a head looks at comes from the course's own encoder.
"""

import functools
import math
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attncourse import plots, sentences, words
from attncourse._require import require_choice, require_count, require_output
from attncourse.experiments._figure import Captioned, axes_for

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NUM_HEADS = words.NUM_HEADS
#: The published example: sentences, and the cosine of each with the first, to four digits.
EXAMPLE = {
    "A man is eating pasta.": 1.0,
    "A man is eating food.": 0.7035,
    "A man is eating a piece of bread.": 0.5272,
    "A man is riding a horse.": 0.1889,
    "A man is riding a white horse on an enclosed ground.": 0.1047,
    "A cheetah is running behind its prey.": 0.0980,
}
#: What a head may be for: a word of which sentences looks at which other one.
JOBS = {**sentences.JOBS, "it": "from the word it to what that stands for"}
#: The ways in which the same passages are asked for.
KINDS = ("in other words", "by name", "misspelt", "one rare word")


@functools.cache
def weights() -> dict[str, Tensor]:
    """The published weights, by their names, without those that play no part in a sentence's vector."""
    left_out = ("pooler.", "embeddings.position_ids")
    found = words.load_published_weights()
    return {name: part for name, part in found.items() if not name.startswith(left_out)}


@functools.cache
def _tokenizer() -> "Tokenizer":
    return words.load_tokenizer()


def tokenize(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Numbers of tokens and the mask, as of :func:`attncourse.tokenize`."""
    return words.tokenize(texts, _tokenizer())


@functools.cache
def _encoder() -> words.SentenceEncoder:
    return words.SentenceEncoder.from_published(weights(), NUM_HEADS)


def questions(kind: str) -> list[str]:
    """Twenty-four questions for passages of the glossary.

    Parameters
    ----------
    kind : str
        One of :data:`KINDS`. "by name" asks for the term itself; "misspelt", too, and exchanges two letters
        in the middle of its longest word; "one rare word" is the word of the passage that the fewest others
        have.

    Raises
    ------
    ValueError
        If there is no such kind.
    """
    require_choice("kind", kind, KINDS)
    if kind == "in other words":
        return [question for question, _ in sentences.QUESTIONS]
    terms = [term for _, term in sentences.QUESTIONS]
    if kind == "one rare word":
        return [_rare(term) for term in terms]
    return [f"What is {term if kind == 'by name' else _misspelt(term)}?" for term in terms]


def _misspelt(term: str) -> str:
    longest = max(re.findall(r"\w+", term), key=len)
    # From the middle on, the first two letters that are not the same.
    place = next(p for p in range(len(longest) // 2 - 1, len(longest)) if longest[p] != longest[p + 1])
    wrong = longest[:place] + longest[place + 1] + longest[place] + longest[place + 2 :]
    return term.replace(longest, wrong)


def _rare(term: str) -> str:
    with_word = Counter(word for text in passages() for word in set(_listed(text)))
    return min(_listed(sentences.passages()[term]), key=lambda word: (with_word[word], -len(word)))


def _listed(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def passages() -> list[str]:
    """The passages of the glossary, each behind its term."""
    return [f"{term}: {text}" for term, text in sentences.passages().items()]


def answers() -> Tensor:
    """The number of the passage that each of the questions wants, whatever their kind."""
    terms = list(sentences.passages())
    return torch.tensor([terms.index(term) for _, term in sentences.QUESTIONS])


def by_word(asked: Sequence[str], texts: Sequence[str]) -> Tensor:
    """How well texts fit questions by the words that both have, with Okapi's BM25: (questions, texts).

    A word counts the more, the fewer texts have it; how often it comes counts ever less; and in a long text
    it counts less than in a short one.
    """
    bags = [Counter(_listed(text)) for text in texts]
    mean = sum(bag.total() for bag in bags) / len(bags)
    with_word = Counter(word for bag in bags for word in bag)

    def score(word: str, bag: Counter[str]) -> float:
        rare = math.log(1 + (len(bags) - with_word[word] + 0.5) / (with_word[word] + 0.5))
        return rare * bag[word] * 2.5 / (bag[word] + 1.5 * (0.25 + 0.75 * bag.total() / mean))

    rows = [set(_listed(question)) for question in asked]
    return torch.tensor([[sum(score(word, bag) for word in row) for bag in bags] for row in rows])


def table(ranks: Mapping[str, tuple[Tensor, Tensor]]) -> plots.Table:
    """Mean reciprocal ranks, by meaning and by word, for each kind of question."""
    return plots.Table(
        {
            "questions": list(ranks),
            "by meaning": [meaning.mean() for meaning, _ in ranks.values()],
            "by word": [word.mean() for _, word in ranks.values()],
        },
        caption="Mean reciprocal rank",
    )


def figure(by_meaning: Tensor, by_word: Tensor) -> Captioned:
    """At which place each question in other words finds its passage, by meaning and by word.

    Parameters
    ----------
    by_meaning, by_word : Tensor, shape (24,)
        Reciprocal ranks.

    Raises
    ------
    ValueError
        If there is not one for each question.
    """
    terms = [term for _, term in sentences.QUESTIONS]
    for name, ranks in (("by_meaning", by_meaning), ("by_word", by_word)):
        require_output(name, ranks, (len(terms),))
    drawing, ax = axes_for(range(2), 6, 5.2)
    order = (1 / by_meaning).argsort(descending=True, stable=True).tolist()
    for height, number in enumerate(order):
        ends = [(1 / ranks[number]).item() for ranks in (by_meaning, by_word)]
        ax.plot(ends, [height] * 2, color="#B0B0B0", linewidth=1, linestyle="-", zorder=1)
    heights = range(len(order))
    ax.scatter(1 / by_meaning[order], heights, label="by meaning", zorder=2)
    # Open, as the other mark may stand in the same place.
    ax.scatter(
        1 / by_word[order], heights, s=80, marker="s", facecolors="none", edgecolors="C1", label="by word"
    )
    ax.set_yticks(range(len(order)), [terms[number] for number in order], fontsize=8)
    ax.set(xscale="log", xlabel="place of the wanted passage")
    ax.set_xticks([1, 2, 3, 5, 10, 20, 50], ["1", "2", "3", "5", "10", "20", "50"])
    ax.minorticks_off()
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=2)
    better, worse = (
        (one > other).sum().item() for one, other in ((by_meaning, by_word), (by_word, by_meaning))
    )
    caption = (
        'Where each of the questions "in other words" finds the passage that it wants. Place 1 is the best.'
    )
    alt = (
        f"Two marks for each of {len(terms)} questions, at places from the first on. By meaning the place is "
        f"better for {better} questions, by word for {worse}, and for the others it is the same."
    )
    return Captioned(drawing, caption, alt)


@torch.no_grad()
def looks(job: str, number: int = 40, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """The attention of all heads in sentences that have a job to do, one for each sentence.

    Parameters
    ----------
    job : str
        One of :data:`JOBS`.
    number : int
        Of sentences.
    seed : int
        Chooses which word asks where several could.

    Returns
    -------
    weights : Tensor, shape (number, 6, 12, N, N)
    asking, wanted : Tensor, shape (number,)
        The places of the token that asks, and of the one that it should look at.

    Raises
    ------
    ValueError
        If there is no such job, or there are not so many sentences with it.
    """
    require_choice("job", job, tuple(JOBS))
    require_count("number", number, 2)
    choose = random.Random(f"{seed} {job}")
    found = []
    if job == "it":
        families = [name for name in sentences.FAMILIES if name != "sizes"]
        told = [one for pair in sentences.pairs(families) for one in pair.sentences]
        choose.shuffle(told)
        for one in told:
            (asks, answers), _ = one.links["it"]
            found.append((one.text, asks + 1, answers + 1))
    else:
        for one in sentences.sentences():
            places = [(asks, answers) for name, asks, answers in sentences.wanted(one) if name == job]
            if places:
                found.append((one.text, *choose.choice(places)))
    if len(found) < number:
        raise ValueError(
            f"number is {number}: expected at most {len(found)}, the sentences that have the job"
        )
    texts, asking, wanted = zip(*found[:number], strict=True)
    _, given = _encoder()(*tokenize(texts), return_weights=True)
    return torch.stack(given, dim=1), torch.tensor(asking), torch.tensor(wanted)


@torch.no_grad()
def moves(families: Sequence[str], each: int = 5) -> Tensor:
    """For pairs of sentences that differ in what *it* stands for: how much weight moves the right way?

    Parameters
    ----------
    families : sequence of str
        Of :data:`attncourse.sentences.FAMILIES`.
    each : int
        How many pairs there are for each two words that decide, 1 to 5.

    Returns
    -------
    Tensor, shape (num_pairs, 6, 12)
        For each head, the weight on the right thing less that on the other, mean of the two sentences of a
        pair. Above 0, the weight moves towards what is meant; the pairs of the same two words that decide
        stand one after the other.
    """
    require_count("each", each, 1)
    told = [pair for place, pair in enumerate(sentences.pairs(families)) if place % 5 < each]
    return sentences.margins(_encoder(), told).mean(1)
