"""What the heads of the published encoder do, counted over our own sentences, and what depends on them."""

import functools
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attncourse.sentences.data import SEED, WORDS, Pair, Sentence, pairs, sentences
from attncourse.words import SentenceEncoder, load_tokenizer, mean_pooling, tokenize

if TYPE_CHECKING:
    from tokenizers import Tokenizer

#: What a head may be for, and what its wanted key is.
JOBS = {
    "previous": "from a word to the one before",
    "next": "from a word to the one after",
    "itself": "from a word to itself",
    "same": "from a noun to the same noun elsewhere",
    "noun": "from an article to its noun, over an adjective",
    "verb": "from an object to its verb",
    "subject": "from a verb to its subject, over a clause",
    "[CLS]": "from a word to the token before the sentence",
    "[SEP]": "from a word to the token behind the sentence",
    "stop": "from a word to the full stop",
}
#: In how many sentences, the first ones, each head is silenced in turn; and in how many pairs of two orders.
NUM_SILENCED, NUM_ORDERS = 100, 60
#: The head that is silenced for the riddle: its block, and its number there.
FINDER = 3, 1
#: A head rests on [CLS] if it gives it more than this; and the blocks of which all that rest are silenced.
RESTS, FIRST_BLOCKS = 0.5, slice(1, 5)


class Study(NamedTuple):
    """What was counted; the last two dimensions, where there are (6, 12), are block and head."""

    #: Mean weight of the wanted key, (num_jobs, 6, 12).
    weight: Tensor
    #: The share of times that the wanted key has the largest weight, (num_jobs, 6, 12).
    largest: Tensor
    #: What even weights would give the wanted key, (num_jobs,).
    even: Tensor
    #: How often it was counted, (num_jobs,).
    number: Tensor
    #: The weight of *it* on the right thing less that on the other, (num_pairs, 2, 6, 12).
    margin: Tensor
    #: How far the vector of a sentence moves when a head is silent, 1 - cosine, (NUM_SILENCED, 6, 12).
    moved: Tensor
    #: The same when all heads of blocks 1 to 4 that rest on [CLS] are silent, and when all others are, (2,).
    rested: Tensor
    #: How far apart "the dog saw the cat" and "the cat saw the dog" are, 1 - cosine, (NUM_ORDERS,).
    orders: Tensor
    #: The same when a head is silent, (NUM_ORDERS, 6, 12).
    orders_silenced: Tensor
    #: How much nearer a sentence of a pair is to the right reading than to the other, (num_pairs, 2).
    reading: Tensor
    #: The same when the head ``FINDER`` is silent, (num_pairs, 2).
    reading_silenced: Tensor


def wanted(sentence: Sentence) -> Iterator[tuple[str, int, int]]:
    """For each of ``JOBS`` which token asks, and at which it should look, with [CLS] as token 0."""
    last = len(sentence.words)  # the full stop
    for token in range(1, last + 1):
        yield "itself", token, token
        yield "[CLS]", token, 0
        yield "[SEP]", token, last + 1
        if token > 1:
            yield "previous", token, token - 1
        if token < last:
            yield "next", token, token + 1
            yield "stop", token, last
    for job, links in sentence.links.items():
        for asks, answers in links:
            yield job, asks + 1, answers + 1


@functools.cache
def _tokenizer() -> "Tokenizer":
    return load_tokenizer()


def _tokenize(texts: Sequence[str]) -> tuple[Tensor, Tensor]:
    return tokenize(texts, _tokenizer())


def _size(model: SentenceEncoder) -> tuple[int, int]:
    """How many blocks there are, and how many heads each has."""
    attention: Any = model.blocks[0].attention
    return len(model.blocks), attention.num_heads


def weights_of(model: SentenceEncoder, text: str) -> Tensor:
    """All attention of one sentence: (num_blocks, num_heads, N, N)."""
    _, weights = model(*_tokenize([text]), return_weights=True)
    return torch.cat(weights)


def vectors(model: SentenceEncoder, texts: Sequence[str], head_mask: Tensor | None = None) -> Tensor:
    """One vector of length 1 for each text: (num_texts, model_dim)."""
    found = []
    for start in range(0, len(texts), 32):
        ids, mask = _tokenize(texts[start : start + 32])
        found.append(mean_pooling(model(ids, mask, head_mask=head_mask), mask))
    return torch.cat(found)


def each_silent(num_blocks: int, num_heads: int) -> Tensor:
    """Masks of heads, each with another one silent: (num_blocks * num_heads, num_blocks, num_heads)."""
    number = num_blocks * num_heads
    return 1 - torch.eye(number).view(number, num_blocks, num_heads)


def vectors_of_each_silent(model: SentenceEncoder, text: str) -> Tensor:
    """The vector of one sentence, with each head silent in turn: (num_blocks, num_heads, model_dim)."""
    ids, mask = _tokenize([text])
    masks = each_silent(*_size(model))
    ids, mask = ids.expand(len(masks), -1), mask.expand(len(masks), -1)
    return mean_pooling(model(ids, mask, head_mask=masks), mask).view(*masks.shape[1:], -1)


def count(model: SentenceEncoder, chosen: Iterable[Sentence]) -> dict[str, Tensor]:
    """`weight`, `largest`, `even` and `number` of :class:`Study`."""
    order = {job: row for row, job in enumerate(JOBS)}
    shape = len(JOBS), *_size(model)
    weight, largest = torch.zeros(2, *shape, dtype=torch.double)
    even, number = torch.zeros(2, len(JOBS), dtype=torch.double)
    for sentence in chosen:
        weights = weights_of(model, sentence.text).double()
        found = weights.argmax(-1)  # (num_blocks, num_heads, N)
        for job, asks, answers in wanted(sentence):
            row = order[job]
            weight[row] += weights[:, :, asks, answers]
            largest[row] += found[:, :, asks] == answers
            even[row] += 1 / weights.shape[-1]
            number[row] += 1
    times = number.view(-1, 1, 1)
    return {"weight": weight / times, "largest": largest / times, "even": even / number, "number": number}


def margins(model: SentenceEncoder, chosen: Iterable[Pair]) -> Tensor:
    """`margin` of :class:`Study`."""
    found = []
    for pair in chosen:
        for sentence in pair.sentences:
            weights = weights_of(model, sentence.text)
            (asks, right), (_, wrong) = sentence.links["it"]
            found.append(weights[:, :, asks + 1, right + 1] - weights[:, :, asks + 1, wrong + 1])
    return torch.stack(found).unflatten(0, (-1, 2))


def readings(model: SentenceEncoder, chosen: Sequence[Pair], head_mask: Tensor | None = None) -> Tensor:
    """`reading` of :class:`Study`: "the milk was sour." against "the cat was sour."."""
    texts = [
        text
        for pair in chosen
        for place, (sentence, word) in enumerate(zip(pair.sentences, pair.decides, strict=True))
        for text in (
            sentence.text,
            f"the {pair.things[place]} was {word}.",
            f"the {pair.things[1 - place]} was {word}.",
        )
    ]
    sentence, right, wrong = vectors(model, texts, head_mask).unflatten(0, (-1, 2, 3)).unbind(2)
    return (sentence * (right - wrong)).sum(-1)


def two_orders(number: int = NUM_ORDERS, seed: int = SEED) -> list[tuple[str, str]]:
    """Two sentences of the same words, in which the two things change places."""
    choose = random.Random(seed)
    found = []
    for _ in range(number):
        (first, second), verb = choose.sample(WORDS["noun"], 2), choose.choice(WORDS["verb"])
        found.append((f"the {first} {verb} the {second}.", f"the {second} {verb} the {first}."))
    return found


def resting(model: SentenceEncoder, texts: Sequence[str], on_first: Tensor) -> Tensor:
    """`rested` of :class:`Study`."""
    rests = on_first > RESTS  # (num_blocks, num_heads)
    first = torch.zeros_like(rests)
    first[FIRST_BLOCKS] = True
    whole = vectors(model, texts)
    masks = ((~(first & silent)).float() for silent in (rests, ~rests))
    return torch.stack([(1 - (vectors(model, texts, mask) * whole).sum(-1)).mean() for mask in masks])


@torch.no_grad()
def study(model: SentenceEncoder) -> Study:
    """Count and silence: some minutes on one core."""
    ours, about_it = sentences(), pairs()
    texts = [sentence.text for sentence in ours[:NUM_SILENCED]]
    counted = count(model, ours)
    moved = torch.stack([vectors_of_each_silent(model, text) @ vectors(model, [text])[0] for text in texts])
    orders = two_orders()
    first, second = (vectors(model, side) for side in zip(*orders, strict=True))
    silent = torch.stack(
        [
            (vectors_of_each_silent(model, one) * vectors_of_each_silent(model, other)).sum(-1)
            for one, other in orders
        ]
    )
    without = torch.ones(*_size(model))
    without[FINDER] = 0
    return Study(
        **counted,
        margin=margins(model, about_it),
        moved=1 - moved,
        rested=resting(model, texts, counted["weight"][list(JOBS).index("[CLS]")]),
        orders=1 - (first * second).sum(-1),
        orders_silenced=1 - silent,
        reading=readings(model, about_it),
        reading_silenced=readings(model, about_it, without),
    )
