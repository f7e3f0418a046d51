"""Our own sentences, what is counted in them, and the results that come with the course."""

import itertools
import json
import os
from importlib import metadata
from pathlib import Path

import pytest
import torch

from attncourse import SentenceEncoder, load_sentence_encoder, load_tokenizer, sentences
from attncourse.sentences import heads, terms
from attncourse.sentences.__main__ import main
from attncourse.words import PACKAGE

ROOT = Path(__file__).parents[1]


def installed():
    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        return False
    return True


# Without the package these are left out; in CI it must be there.
needs_the_model = pytest.mark.skipif(
    not installed() and not os.environ.get("CI"), reason=f"needs the package {PACKAGE}"
)


@pytest.fixture(scope="module")
def model():
    return load_sentence_encoder().requires_grad_(False)


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


# --- the grammar ---


def test_there_are_more_than_300_different_sentences_and_always_the_same():
    found = sentences.sentences()
    assert len({sentence.text for sentence in found}) == sentences.NUM_SENTENCES >= 300
    assert found == sentences.sentences()
    assert found != sentences.sentences(seed=1)
    assert found[:5] == sentences.sentences(5)


def test_a_sentence_has_its_words_and_a_full_stop():
    for sentence in sentences.sentences(50):
        assert sentence.words[-1] == "."
        assert sentence.text == " ".join(sentence.words).replace(" .", ".")


def test_links_lead_to_what_they_name():
    # By the kinds of words, in the order in which they stand: independent of how sentences are written.
    kinds = {word: kind for kind, words in sentences.WORDS.items() for word in words}
    counted = dict.fromkeys(("noun", "verb", "subject", "same"), 0)
    for sentence in sentences.sentences():
        words = sentence.words
        named = [kinds.get(word, word) for word in words]
        for job, links in sentence.links.items():
            counted[job] += len(links)
            kind = "verb" if job == "verb" else "noun"
            assert {named[answers] for _, answers in links} <= {kind}
        expected = {
            (at, at + 2)
            for at in range(len(words) - 2)
            if words[at] in ("the", "a") and named[at + 1] == "adjective"
        }
        assert set(sentence.links["noun"]) == expected
        nouns = [at for at, name in enumerate(named) if name == "noun"]
        verbs = [at for at, name in enumerate(named) if name == "verb"]
        objects = {(min(noun for noun in nouns if noun > verb), verb) for verb in verbs}
        assert set(sentence.links["verb"]) == objects
        far = {(verbs[1], nouns[0])} if "that" in words else set()
        assert set(sentence.links["subject"]) == far
        twice = {(a, b) for a, b in itertools.permutations(nouns, 2) if words[a] == words[b]}
        assert set(sentence.links["same"]) == twice
    assert min(counted.values()) > 50


# --- pairs ---


def test_a_pair_differs_in_the_word_that_decides_and_in_what_it_stands_for():
    for pair in sentences.pairs():
        one, other = pair.sentences
        assert [a == b for a, b in zip(one.words, other.words, strict=True)].count(False) == 1
        assert (one.words[-2], other.words[-2]) == pair.decides
        for place, sentence in enumerate(pair.sentences):
            (asks, right), (also, wrong) = sentence.links["it"]
            assert asks == also
            assert sentence.words[asks] == "it"
            assert sentence.words[right] == pair.things[place]
            assert sentence.words[wrong] == pair.things[1 - place]


def test_families_share_no_word_that_counts():
    words = {}
    for name in sentences.FAMILIES:
        found = [pair for pair in sentences.pairs() if pair.family == name]
        words[name] = {word for pair in found for word in (*pair.things, *pair.decides, pair.verb)}
    for one, other in itertools.combinations(words.values(), 2):
        assert not one & other


def test_five_different_pairs_of_each_two_deciding_words_stand_together():
    found = sentences.pairs()
    assert len({pair.sentences[0].text for pair in found}) == len(found) == 220
    for start in range(0, len(found), 5):
        assert len({pair.decides for pair in found[start : start + 5]}) == 1
    assert found == sentences.pairs()
    assert [pair for pair in found if pair.family == "ways"] == sentences.pairs(["ways"])


@needs_the_model
def test_every_word_is_one_token(tokenizer):
    ours = [*sentences.sentences(), *(one for pair in sentences.pairs() for one in pair.sentences)]
    for sentence in ours:
        assert tokenizer.encode(sentence.text).tokens == ["[CLS]", *sentence.words, "[SEP]"]


# --- counting ---


def by_hand(weights, sentence):
    """Weight and hits of each job in one sentence, by looking at each word: {job: [(weight, hit)]}."""
    words, found = sentence.words, {job: [] for job in sentences.JOBS}

    def look(job, asks, answers):
        row = weights[asks + 1]
        found[job].append((row[answers + 1].item(), int(row.argmax()) == answers + 1))

    for at in range(len(words)):
        look("itself", at, at)
        look("[CLS]", at, -1)
        look("[SEP]", at, len(words))
        if at:
            look("previous", at, at - 1)
        if at < len(words) - 1:
            look("next", at, at + 1)
            look("stop", at, len(words) - 1)
    for job, links in sentence.links.items():
        for asks, answers in links:
            look(job, asks, answers)
    return found


@pytest.fixture
def small(monkeypatch):
    """A small encoder of random weights, for which a token is the number of its letters."""
    torch.manual_seed(0)
    model = SentenceEncoder(20, 8, 2, 3, 16).requires_grad_(False)

    def tokenize(texts):
        ids = [[1, *map(len, text.replace(".", " .").split()), 2] for text in texts]
        longest = max(map(len, ids))
        mask = [[True] * len(row) + [False] * (longest - len(row)) for row in ids]
        padded = [row + [0] * (longest - len(row)) for row in ids]
        return torch.tensor(padded), torch.tensor(mask)

    monkeypatch.setattr(heads, "_tokenize", tokenize)
    return model


def test_counting_is_what_one_counts_by_hand(small):
    chosen = [sentence for sentence in sentences.sentences() if all(sentence.links.values())]
    chosen += sentences.sentences(4)
    some = next(one for one in sentences.sentences() if one.links["same"])
    far = next(one for one in sentences.sentences() if one.links["subject"])
    chosen = [*chosen[:4], some, far]
    counted = sentences.count(small, chosen)
    for block, head in ((0, 0), (2, 1)):
        found = {job: [] for job in sentences.JOBS}
        for sentence in chosen:
            weights = sentences.weights_of(small, sentence.text)[block, head]
            for job, numbers in by_hand(weights, sentence).items():
                found[job] += numbers
        for row, numbers in enumerate(found.values()):
            assert counted["number"][row] == len(numbers) > 0
            mean, hits = (sum(column) / len(numbers) for column in zip(*numbers, strict=True))
            assert counted["weight"][row, block, head].item() == pytest.approx(mean, abs=1e-5)
            assert counted["largest"][row, block, head].item() == pytest.approx(hits, abs=1e-5)


def test_margins_are_the_weights_of_it(small):
    chosen = sentences.pairs(["food"])[:2]
    found = sentences.margins(small, chosen)
    assert found.shape == (2, 2, 3, 2)
    for p, pair in enumerate(chosen):
        for place, sentence in enumerate(pair.sentences):
            weights = sentences.weights_of(small, sentence.text)[1, 1, 1 + sentence.words.index("it")]
            right, wrong = (1 + sentence.words.index(pair.things[at]) for at in (place, 1 - place))
            assert found[p, place, 1, 1] == weights[right] - weights[wrong]


def test_each_head_is_silenced_alone(small):
    text = "the dog saw the old cat."
    found = sentences.vectors_of_each_silent(small, text)
    assert found.shape == (3, 2, 8)
    for block, head in itertools.product(range(3), range(2)):
        mask = torch.ones(3, 2)
        mask[block, head] = 0
        torch.testing.assert_close(
            found[block, head], sentences.vectors(small, [text], mask)[0], atol=1e-6, rtol=1e-5
        )


def test_a_reading_is_the_difference_of_two_cosines(small):
    pair = sentences.pairs(["tools"])[3]
    found = sentences.readings(small, [pair])
    assert found.shape == (1, 2)
    (a, b), (one, other) = pair.things, pair.decides
    for place, (right, wrong, word) in enumerate(((a, b, one), (b, a, other))):
        texts = [pair.sentences[place].text, f"the {right} was {word}.", f"the {wrong} was {word}."]
        vector, near, far = sentences.vectors(small, texts)
        assert found[0, place].item() == pytest.approx((vector @ near - vector @ far).item(), abs=1e-6)


def test_all_that_rest_are_silent_together_and_then_all_others(small):
    texts = [sentence.text for sentence in sentences.sentences(3)]
    on_first = torch.tensor([[0.9, 0.1], [0.9, 0.4], [0.2, 0.6]])  # block 0 is left as it is
    whole = sentences.vectors(small, texts)
    found = heads.resting(small, texts, on_first)
    for number, silent in enumerate(([(1, 0), (2, 1)], [(1, 1), (2, 0)])):
        mask = torch.ones(3, 2)
        for place in silent:
            mask[place] = 0
        cosines = (sentences.vectors(small, texts, mask) * whole).sum(-1)
        assert found[number].item() == pytest.approx((1 - cosines).mean().item(), abs=1e-6)
        assert found[number] > 1e-4


def test_two_orders_have_the_same_words():
    found = heads.two_orders()
    assert len(found) == heads.NUM_ORDERS
    assert found == heads.two_orders()
    for one, other in found:
        _, first, verb, _, second = one.rstrip(".").split()
        assert first != second
        assert other == f"the {second} {verb} the {first}."


# --- the results that come with the course ---


def test_the_results_fit_the_sentences():
    found = sentences.results()
    assert found.weight.shape == found.largest.shape == (len(sentences.JOBS), 6, 12)
    assert found.margin.shape == (len(sentences.pairs()), 2, 6, 12)
    number = dict(zip(sentences.JOBS, found.number.int().tolist(), strict=True))
    ours = sentences.sentences()
    assert number["itself"] == sum(len(sentence.words) for sentence in ours)
    for job in ("noun", "verb", "subject", "same"):
        assert number[job] == sum(len(sentence.links[job]) for sentence in ours)
    size = sum(path.stat().st_size for path in sentences.RESULTS.iterdir())
    assert size < 300_000


@needs_the_model
def test_the_results_are_what_the_model_gives(model):
    found = sentences.results()
    pairs = sentences.pairs()
    chosen = [0, 61, 219]
    again = sentences.margins(model, [pairs[n] for n in chosen])
    torch.testing.assert_close(again, found.margin[chosen], atol=1e-5, rtol=1e-3)
    reading = sentences.readings(model, [pairs[n] for n in chosen])
    torch.testing.assert_close(reading, found.reading[chosen], atol=1e-3, rtol=0)
    text = sentences.sentences(1)[0].text
    whole = sentences.vectors(model, [text])[0]
    moved = 1 - sentences.vectors_of_each_silent(model, text) @ whole
    torch.testing.assert_close(moved, found.moved[0], atol=1e-3, rtol=0)
    one, other = heads.two_orders()[0]
    near, far = sentences.vectors(model, [one, other])
    assert (1 - near @ far).item() == pytest.approx(found.orders[0].item(), abs=1e-3)
    silent = [sentences.vectors_of_each_silent(model, text) for text in (one, other)]
    apart = 1 - (silent[0] * silent[1]).sum(-1)
    torch.testing.assert_close(apart, found.orders_silenced[0], atol=1e-3, rtol=0)


@needs_the_model
def test_what_is_counted_in_few_sentences_is_near_what_comes_with_the_course(model):
    found = sentences.results()
    few = sentences.count(model, sentences.sentences(12))
    rows = [list(sentences.JOBS).index(job) for job in ("previous", "next", "[CLS]")]
    assert (few["weight"][rows] - found.weight[rows]).abs().max() < 0.15


def test_a_study_comes_back_as_it_was_saved(tmp_path):
    found = sentences.results()
    sentences.save(found, 12.3, tmp_path)
    for one, other in zip(found, sentences.results(tmp_path), strict=True):
        assert torch.equal(one, other)
    log = json.loads((tmp_path / "study.json").read_text())
    assert (log["cpu_seconds"], log["seed"]) == (12, sentences.SEED)


def test_commands_that_need_no_model(capsys, tmp_path):
    main(["show"])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == 360 + 2 * 220
    assert shown[0] == sentences.sentences(1)[0].text
    main(["results"])
    told = capsys.readouterr().out
    assert "previous      3,952   0.07  (0, 2) 1.00" in told
    assert "food           60   (3, 1) 0.16" in told


# --- passages ---


def test_the_passages_are_the_glossary():
    page = (ROOT / "book/glossary.md").read_text(encoding="utf-8")
    advice = "run: python -m attncourse.sentences passages book/glossary.md"
    assert sentences.passages() == terms.passages_of(page), advice
    assert len(sentences.passages()) > 50


def test_a_passage_is_plain():
    for term, text in sentences.passages().items():
        assert text, term
        assert not set("$`{}[]\\") & set(text), text


def test_an_entry_becomes_plain_text():
    page = (
        "```{glossary}\nred\n  A colour, the {term}`warm <warmth>` one, $r = 1$ (`red`), of a\n"
        "  [fire](fire.md#hot). In code `red`. See [colours](x.md#y).\n\nblue\n  Not red.\n```\n"
    )
    assert terms.passages_of(page) == {
        "red": "A colour, the warm one, red, of a fire.",
        "blue": "Not red.",
    }


def test_every_question_has_an_answer_and_does_not_name_it():
    assert len(sentences.QUESTIONS) >= 20
    for question, term in sentences.QUESTIONS:
        assert term in sentences.passages()
        assert term.lower() not in question.lower()
