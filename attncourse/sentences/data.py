"""Our own sentences: made by a small grammar, so that what belongs to what is known, and pairs about *it*."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

#: How many sentences the grammar makes, and from which seed.
NUM_SENTENCES, SEED = 360, 14

#: What the grammar chooses from.
WORDS = {
    kind: words.split()
    for kind, words in {
        "noun": "farmer child dog horse teacher bird king girl soldier cat doctor artist boat train garden "
        "table letter window river castle piano bottle tree stone",
        "adjective": "old young small red quiet heavy strange happy broken famous cold green",
        "verb": "saw found followed carried painted watched moved loved lost liked remembered touched missed "
        "reached",
        "preposition": "near behind under beside",
        "joint": "and but because when while",
    }.items()
}


@dataclass(frozen=True)
class Sentence:
    """Words, and which of them belong together.

    Every word is one token of the published encoder's, so with ``[CLS]`` in front word i is token i + 1.
    """

    #: In lower case; the last is the full stop.
    words: tuple[str, ...]
    #: For each job that the grammar knows, which word asks and which it should look at.
    links: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As one writes it."""
        return " ".join(self.words[:-1]) + self.words[-1]


class _Writer:
    """Writes words one after the other, and remembers what belongs to what."""

    def __init__(self, choose: random.Random) -> None:
        self.choose = choose
        self.words: list[str] = []
        self.links: dict[str, list[tuple[int, int]]] = {"noun": [], "subject": [], "verb": [], "same": []}

    def word(self, *words: str) -> int:
        """One of `words`; where it stands."""
        self.words.append(self.choose.choice(words))
        return len(self.words) - 1

    def noun_phrase(self, noun: str) -> int:
        """NP -> (the | a) [adjective] noun. The place of its noun."""
        article = self.word("the", "the", "a")
        if described := self.choose.random() < 0.5:
            self.word(*WORDS["adjective"])
        place = self.word(noun)
        if described:  # otherwise it is only the next word
            self.links["noun"].append((article, place))
        return place

    def verb_phrase(self, subject: int, noun: str, *, far: bool = False) -> int:
        """VP -> verb NP. The place of the object; `far` says that a clause stands before the verb."""
        verb = self.word(*WORDS["verb"])
        if far:  # otherwise it is only the word before
            self.links["subject"].append((verb, subject))
        found = self.noun_phrase(noun)
        self.links["verb"].append((found, verb))
        return found


def _sentence(choose: random.Random) -> Sentence:
    """S -> NP VP P NP | NP that VP VP | NP VP joint NP VP, in which the object may come back as subject."""
    write = _Writer(choose)
    nouns = choose.sample(WORDS["noun"], 4)
    first = write.noun_phrase(nouns[0])
    kind = choose.choice(("place", "clause", "two"))
    if kind == "place":
        write.verb_phrase(first, nouns[1])
        write.word(*WORDS["preposition"])
        write.noun_phrase(nouns[2])
    elif kind == "clause":
        write.word("that")
        write.verb_phrase(first, nouns[1])
        write.verb_phrase(first, nouns[2], far=True)
    else:
        found = write.verb_phrase(first, nouns[1])
        write.word(*WORDS["joint"])
        again = choose.random() < 0.5
        second = write.noun_phrase(nouns[1] if again else nouns[2])
        if again:
            write.links["same"] += [(found, second), (second, found)]
        write.verb_phrase(second, nouns[3])
    write.word(".")
    return Sentence(tuple(write.words), {job: tuple(links) for job, links in write.links.items()})


def sentences(number: int = NUM_SENTENCES, seed: int = SEED) -> list[Sentence]:
    """Different sentences of the grammar, in the order in which the seed gives them.

    Parameters
    ----------
    number : int
    seed : int

    Returns
    -------
    list of Sentence
        With links "noun" (from an article to its noun, over an adjective), "subject" (from a verb to its
        subject, over a clause), "verb" (from an object to its verb) and "same" (between two occurrences of
        a noun).
    """
    choose = random.Random(seed)
    found: dict[str, Sentence] = {}
    while len(found) < number:
        made = _sentence(choose)
        found[made.text] = made
    return list(found.values())


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in one word, which decides what *it* stands for.

    The first and the second word of `decides` fit the first and the second thing.
    """

    family: str
    things: tuple[str, str]
    verb: str
    decides: tuple[str, str]

    @property
    def sentences(self) -> tuple[Sentence, Sentence]:
        """*It* stands for the first thing in the first, and for the second in the second."""
        made = []
        for place, word in enumerate(self.decides):
            words = (
                *f"the {self.things[0]} {self.verb} the {self.things[1]} because it was {word}".split(),
                ".",
            )
            asks = len(words) - 4
            things = 1, asks - 2
            made.append(Sentence(words, {"it": ((asks, things[place]), (asks, things[1 - place]))}))
        return made[0], made[1]


@dataclass(frozen=True)
class Family:
    """What pairs are made of: any first thing, any verb, any second thing, and one pair of words."""

    first: str
    verbs: tuple[str, ...]
    second: str
    decides: str

    def pairs(self, name: str) -> Iterator[Pair]:
        """All that can be made."""
        for first, verb, second, words in itertools.product(
            self.first.split(), self.verbs, self.second.split(), self.decides.split()
        ):
            one, other = words.split("/")
            yield Pair(name, (first, second), verb, (one, other))


#: No thing, verb or deciding word stands in two families. In the last, both words fit both things: only who
#: knows what fits into what can tell.
FAMILIES = {
    "food": Family(
        "cat dog baby bird",
        ("left", "refused", "tasted", "wanted"),
        "milk soup cheese bread",
        "hungry/sour thirsty/fresh sick/sweet greedy/warm curious/delicious angry/salty sleepy/bitter "
        "tired/smooth shy/raw lazy/spicy excited/dry jealous/expensive",
    ),
    "ways": Family(
        "horse wolf sheep fox",
        ("crossed", "avoided", "entered"),
        "bridge forest river valley",
        "frightened/narrow exhausted/frozen wounded/steep lonely/muddy blind/dark pregnant/quiet afraid/wide "
        "restless/shallow",
    ),
    "tools": Family(
        "hammer knife axe drill",
        ("broke", "cut", "damaged"),
        "glass board plate rope",
        "heavy/thin sharp/fragile powerful/weak strong/cracked hard/delicate metal/wet massive/hollow "
        "hot/rotten",
    ),
    "storms": Family(
        "storm flood wind fire",
        ("destroyed", "ruined", "hit"),
        "house roof boat tower",
        "violent/wooden fierce/old sudden/abandoned severe/unfinished intense/vulnerable relentless/empty "
        "deadly/exposed terrible/ancient",
    ),
    "sizes": Family(
        "trophy book violin statue",
        ("did not fit in", "could not go into", "was too much for"),
        "suitcase box drawer bag",
        "big/small large/tiny huge/little enormous/short long/compact tall/slim broad/cramped "
        "giant/miniature",
    ),
}
#: How many pairs are made of each pair of words.
NUM_OF_WORDS = 5


def pairs(families: Sequence[str] = tuple(FAMILIES), seed: int = SEED) -> list[Pair]:
    """Five pairs for each two deciding words of each family, drawn without repetition.

    Parameters
    ----------
    families : sequence of str
        Names from ``FAMILIES``.
    seed : int

    Returns
    -------
    list of Pair
        In the order of the families and of their words.
    """
    found = []
    for name in families:
        choose = random.Random(f"{seed} {name}")
        for words in FAMILIES[name].decides.split():
            group = [pair for pair in FAMILIES[name].pairs(name) if pair.decides == tuple(words.split("/"))]
            found += choose.sample(group, NUM_OF_WORDS)
    return found
