"""The figures that a reader can play with: every number is attncourse's, by keyboard and by pointer."""

import itertools
import math
import re
from pathlib import Path

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

from attncourse import (
    TransformerBlock,
    attention,
    attention_rollout,
    attention_weights,
    binary_encoding,
    causal_mask,
    influence,
    interactive,
    local_mask,
    padding_mask,
    permute,
    sinusoidal_encoding,
)

STATIC = Path(__file__).parents[1] / "book/_static"
FACTORS = [0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, math.inf]


def drawn(*shape):
    """Random numbers with one decimal, so that the page is given them exactly."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64).round(decimals=1)


WORDS = ["one", "two", "three", "four", "five"]
QUERY, KEY, VALUE = (3 * drawn(5, 3)).round(), drawn(5, 3, 1)[..., 0], drawn(5, 2).abs()
X, W_Q, W_K, W_V = drawn(5, 4), drawn(4, 3), drawn(3, 4).T, drawn(4, 2)
LONGER = [*WORDS, "six", "seven", "eight"]
QUERY_8, KEY_8, VALUE_8 = drawn(8, 3), drawn(8, 3, 1)[..., 0], drawn(8, 1)
HOURS, DEGREES = [3, 9, 20], [12.5, 18.0, 10.0]
SENTENCES = [["one", "saw", "two"], ["two", "saw", "one"]]
KIND = torch.stack([torch.eye(3)[[0, 2, 1], :2], torch.eye(3)[[1, 2, 0], :2]])  # (2, 3, 2)
NAMES = ["a six", "a one"]
IMAGES, FALLS = drawn(2, 8, 8).abs().clamp(max=1), drawn(2, 16)
LOOKS = torch.softmax(2 * drawn(2, 2, 3, 17, 17), -1).round(decimals=3)
TOKENS = [["[CLS]", "it", "rains", "[SEP]"], ["[CLS]", "the", "cat", "saw", "it", "[SEP]"]]
ATTENDS = [torch.softmax(3 * drawn(2, 3, len(names), len(names)), -1).round(decimals=2) for names in TOKENS]
MOVED = drawn(2, 2, 3).abs() / 10
FIGURES = {
    "intro": interactive.intro(HOURS, DEGREES),
    "multihead": interactive.multihead(SENTENCES, ["first", "second"], KIND),
    "attention_operator": interactive.attention_operator(
        WORDS, ["red", "green", "blue"], QUERY, KEY, VALUE, ["size", "age"]
    ),
    "masking": interactive.masking(WORDS, X, W_Q, W_K, W_V),
    "permutation": interactive.permutation(WORDS[:4], QUERY[:4], KEY[:4], VALUE[:4]),
    "positional": interactive.positional(),
    "scaling": interactive.scaling(LONGER, QUERY_8, KEY_8, VALUE_8),
    "transformer": interactive.transformer(WORDS),
    "vision": interactive.vision(NAMES, IMAGES, LOOKS, FALLS),
    "words": interactive.words(TOKENS, ATTENDS, MOVED, head=(1, 2), asks="it"),
}


@pytest.fixture
def shown(browser, tmp_path):
    """Opens one figure, or all, as a file, with the book's script and style."""
    contexts = []

    def show(*names, **options):
        elements = "".join(FIGURES[name].data for name in names or FIGURES)
        file = tmp_path / "page.html"
        file.write_text(
            '<!doctype html><html lang="en"><meta charset="utf-8"><title>Figures</title>'
            '<meta name="viewport" content="width=device-width">'
            f'<link rel="stylesheet" href="{(STATIC / "interactive.css").as_uri()}">'
            f'<script defer src="{(STATIC / "interactive.js").as_uri()}"></script>'
            f"<main><h1>Figures</h1>{elements}</main>"
        )
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("pageerror", lambda error: pytest.fail(str(error)))
        page.goto(file.as_uri())
        return page

    yield show
    for context in contexts:
        context.close()


def tables(page):
    """{name: rows of cells} of the tables, without the rows that are hidden."""
    soup = BeautifulSoup(page.content(), "html.parser")
    return {
        table["class"][0].removeprefix("try-"): [
            row.find_all(["th", "td"]) for row in table.find_all("tr") if not row.has_attr("hidden")
        ]
        for table in soup.find_all("table")
    }


def numbers(cells):
    """The numbers that the cells show, as many as they show."""
    text = ", ".join(cell.text for cell in cells)
    return torch.tensor([float(word.replace("−", "-")) for word in text.split(", ")], dtype=torch.float64)


def agree(cells, expected):
    """Whether the cells show these numbers, rounded to the two decimals that they have."""
    assert all(re.fullmatch(r"−?\d+\.\d\d", word) for cell in cells for word in cell.text.split(", "))
    torch.testing.assert_close(numbers(cells), expected.double().flatten(), atol=0.005 + 1e-6, rtol=0)


def agree_masked(cells, expected, mask):
    """The same for a row of weights, of which the hidden ones are striped and exactly 0."""
    assert ["try-hidden" not in cell.get("class", []) for cell in cells] == mask.tolist()
    if mask.any():
        agree([cell for cell, seen in zip(cells, mask, strict=True) if seen], expected[mask])
    assert {cell.text for cell, seen in zip(cells, mask, strict=True) if not seen} <= {"0"}
    assert not expected[~mask].any()


def starred(cell):
    return "try-starred" in cell.get("class", [])


def status(page):
    return page.get_by_role("status").inner_text()


def reach(page, name):
    """Go to a control with the tabulator key."""
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate(
            "(({ariaLabel, labels, textContent}) => ariaLabel ?? labels?.[0]?.textContent ?? textContent)"
            "(document.activeElement)"
        )
        if found.startswith(name):
            return
    pytest.fail(f"no way to {name} by the tabulator key")


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


# --- intro ---


def check_intro(page, hour, factor):
    angles = (hour - torch.tensor(HOURS, dtype=torch.float64)) * 2 * math.pi / 24
    weights = torch.softmax(factor * angles.cos(), dim=0)
    answer = weights @ torch.tensor(DEGREES, dtype=torch.float64)
    rows = tables(page)["hours"][1:]
    agree([row[1] for row in rows[:-1]], angles.cos())
    agree([row[2] for row in rows[:-1]], weights)
    agree(rows[-1][2:], torch.stack([weights.sum(), answer]))
    ring = [float(page.locator(".try-answer").get_attribute(name)) for name in ("cx", "cy")]
    height = 130 - 110 * (float(answer) - 10) / 8
    assert ring == pytest.approx([30 + 11 * hour, height], abs=0.1)
    # The ring is on the curve.
    curve = page.locator(".try-curve").get_attribute("points").split()
    at_hour = [float(number) for number in curve[4 * hour].split(",")]
    assert at_hour == pytest.approx(ring, abs=0.11)
    return answer


def test_intro_every_factor_at_several_hours(shown):
    page = shown("intro")
    check_intro(page, 9, 4)  # as the script begins
    for hour in (0, 7, 24):
        page.locator("input[type=range]").first.fill(str(hour))
        reach(page, "factor") if hour == 0 else page.get_by_label("factor").focus()
        press(page, "Home")
        for factor in interactive.LOOK_UP_FACTORS:
            answer = check_intro(page, hour, factor)
            assert f"The answer for {hour} hours is {answer:.2f} degrees." in status(page)
            press(page, "ArrowRight")
    page.get_by_label("factor").press("Home")
    assert "Largest weight: 0.33, for every hour." in status(page)


# --- multihead ---


def check_multihead(page, scores, added=False):
    weights = torch.softmax(torch.tensor([[s, 0.0, o] for s, o in scores], dtype=torch.float64), dim=-1)
    heads = weights @ KIND.double()[:, None].squeeze(1)  # (2, 2, 2): sentence, head, kind
    rows = tables(page)
    for h, row in enumerate(rows["heads"][1:]):
        agree(row[1:], weights[h])
    for s, row in enumerate(rows["outputs"][1:]):
        if added:
            agree(row[1:3], heads[s].sum(dim=0))
            assert [cell.text for cell in row[3:]] == ["", ""]
        else:
            agree(row[1:], heads[s].flatten())
    outputs = heads.sum(dim=1) if added else heads.flatten(1)
    largest = (outputs[0] - outputs[1]).abs().max()
    assert ("is lost" in status(page)) == bool(largest < 0.005)
    if largest >= 0.005:
        assert f"differ, by {largest:.2f} at most" in status(page)


def test_multihead_any_scores(shown):
    page = shown("multihead")
    check_multihead(page, [(3, 0), (0, 3)])  # as the script begins
    sliders = page.locator("input[type=range]").all()
    scores = [3, 0, 0, 3]
    for i, value in [(3, 0), (2, 3), (0, 0), (2, 0), (0, -4), (3, 4), (1, 2)]:
        sliders[i].fill(str(value))
        scores[i] = value
        check_multihead(page, [tuple(scores[:2]), tuple(scores[2:])])
    page.get_by_label("subject").first.press("ArrowRight")
    check_multihead(page, [(scores[0] + 1, scores[1]), tuple(scores[2:])])


def test_multihead_adding_up_loses_who_did_what(shown):
    page = shown("multihead")
    page.get_by_label("add the heads up").check()
    check_multihead(page, [(3, 0), (0, 3)], added=True)
    assert "who did what is lost" in status(page)
    page.get_by_label("add the heads up").uncheck()
    check_multihead(page, [(3, 0), (0, 3)])


# --- attention_operator ---


def check_operator(page, query, factor):
    rows = tables(page)["bars"][1:]
    scores = query @ KEY.T / math.sqrt(3)
    if factor == math.inf:
        weights = (scores == scores.max()).double()
        weights /= weights.sum()
    else:
        weights = attention_weights(query[None], KEY, scale=factor / math.sqrt(3))[0]
    agree([row[2] for row in rows[:-1]], KEY @ query / math.sqrt(3))
    agree([row[3] for row in rows[:-1]], weights)
    agree(rows[-1][3:], torch.cat([torch.ones(1), weights @ VALUE]))
    agreed = [float(row[3]["style"].removeprefix("--share:").strip("; ")) for row in rows[:-1]]
    assert agreed == pytest.approx(weights.tolist(), abs=0.0006)
    return weights


def check_plane(page, weights):
    """The dots are the values' affine image; the cross is the same image of the output."""
    dots = page.locator(".try-dot").evaluate_all(
        "dots => dots.map(dot => ['cx', 'cy', 'r'].map(name => +dot.getAttribute(name)))"
    )
    dots = torch.tensor(dots, dtype=torch.float64)
    ones = torch.ones(5, 1, dtype=torch.float64)
    image = torch.linalg.lstsq(torch.cat([VALUE, ones], dim=1), dots[:, :2]).solution
    place = torch.cat([weights @ VALUE, ones[0]]) @ image
    cross = re.findall(r"[-\d.]+", page.locator(".try-cross").get_attribute("transform"))
    assert [float(number) for number in cross] == pytest.approx(place.tolist(), abs=0.1)
    area = ((dots[:, 2] - 3) / 14) ** 2
    torch.testing.assert_close(area, weights, atol=0.01, rtol=0)


def test_operator_every_factor(shown):
    page = shown("attention_operator")
    check_plane(page, check_operator(page, QUERY[0], 1))  # as the script begins
    reach(page, "factor")
    press(page, "Home")
    for factor in FACTORS:
        check_plane(page, check_operator(page, QUERY[0], factor))
        press(page, "ArrowRight")
    assert page.get_by_label("factor").get_attribute("aria-valuetext") == "∞"


def test_operator_the_sharp_limit_is_shared_by_equals(shown):
    page = shown("attention_operator")
    for colour in ("red", "green", "blue"):
        page.get_by_label(colour).fill("0")
    page.get_by_label("factor").press("End")
    assert "The sharp limit. Largest weight: 0.20, for all words." in status(page)
    check_operator(page, torch.zeros(3, dtype=torch.float64), math.inf)


def test_operator_any_query(shown):
    page = shown("attention_operator")
    query = QUERY[0].clone()
    for index, (colour, key, step) in enumerate(
        [("red", "ArrowRight", 1), ("green", "ArrowLeft", -1), ("blue", "ArrowUp", 1)]
    ):
        reach(page, colour)
        for _ in range(3):
            press(page, key)
            query[index] += step
            check_operator(page, query, 1)
    assert page.get_by_label("as asked by").input_value() == ""


def test_operator_the_query_of_another_word(shown):
    page = shown("attention_operator")
    reach(page, "as asked by")
    press(page, "ArrowDown", "ArrowDown")
    weights = check_operator(page, QUERY[2], 1)
    assert status(page).startswith(f"Largest weight: {weights.max():.2f}, for {WORDS[weights.argmax()]}.")
    assert page.locator(".try-bars caption").inner_text().endswith("factor 1")


@pytest.mark.parametrize("wrong", [QUERY + 0.5, QUERY + 9])
def test_operator_refuses_a_query_that_its_sliders_cannot_show(wrong):
    with pytest.raises(ValueError, match="query"):
        interactive.attention_operator(WORDS, ["red", "green", "blue"], wrong, KEY, VALUE, ["size", "age"])


# --- masking ---


def check_masking(page, mask):
    rows = tables(page)
    weights = attention_weights(X @ W_Q, X @ W_K, mask)
    for q, row in enumerate(rows["weights"][1:]):
        agree_masked(row[1:6], weights[q], mask[q])
        agree(row[6:], weights[q].sum())
    found = influence(lambda x: attention(x @ W_Q, x @ W_K, x @ W_V, mask), X)
    cells = [row[1:] for row in rows["influence"][1:]]
    assert [[cell.text == "yes" for cell in row] for row in cells] == found.tolist()
    assert [[starred(cell) for cell in row] for row in cells] == (found & ~mask).tolist()
    empty = [word for word, row in zip(WORDS, mask, strict=True) if not row.any()]
    assert ("Empty rows" in status(page)) == bool(empty)
    assert f" {mask.sum()} of 25 weights are allowed" in status(page)


@pytest.mark.parametrize(("causal", "radii"), [(True, [None, 1]), (False, [None, 0, 1, 2, 3, 4])])
def test_masking_every_mask(causal, radii, shown):
    page = shown("masking")
    first = torch.ones(5, 5, dtype=torch.bool)
    if causal:
        first = causal_mask(5)
        check_masking(page, first)  # as the script begins
    else:
        reach(page, "causal")
        press(page, "Space")
    for radius in radii:
        near = first
        if radius is not None:
            page.get_by_label("local").set_checked(True)
            page.get_by_label("radius").press("Home")
            press(page, *["ArrowRight"] * radius)
            near = first & local_mask(5, radius=radius)
        check_masking(page, near)
        page.get_by_label("padding").press("Space")
        for length in range(6):
            page.get_by_label("true words").press("Home" if length == 0 else "ArrowRight")
            check_masking(page, near & padding_mask([length], 5)[0])
        page.get_by_label("padding").press("Space")


def test_masking_a_slider_waits_for_its_mask(shown):
    page = shown("masking")
    assert page.get_by_label("radius").is_disabled()
    reach(page, "local")
    press(page, "Space")
    reach(page, "radius")
    press(page, "ArrowRight")
    check_masking(page, causal_mask(5) & local_mask(5, radius=2))
    caption = page.locator(".try-weights caption").inner_text()
    assert caption == "Weights. Mask: causal and local, radius 2"


# --- permutation ---


def check_permutation(page, order, moves, causal=False, along=False):
    identity = list(range(4))
    of_query, of_key, of_value = (order if name in moves else identity for name in "QKV")
    mask = causal_mask(4) if causal else torch.ones(4, 4, dtype=torch.bool)
    old, old_weights = attention(QUERY[:4], KEY[:4], VALUE[:4], mask, return_weights=True)
    moved = mask[of_query][:, of_key] if along else mask
    new, new_weights = attention(
        permute(QUERY[:4], of_query),
        permute(KEY[:4], of_key),
        permute(VALUE[:4], of_value),
        moved,
        return_weights=True,
    )
    rows = tables(page)
    for name, queries, keys, weights, output, seen in (
        ("before", identity, identity, old_weights, old, mask),
        ("after", of_query, of_key, new_weights, new, moved),
    ):
        head, *body = rows[name]
        assert [cell.text for cell in head[1:5]] == [WORDS[k] for k in keys]
        assert [row[0].text for row in body] == [WORDS[q] for q in queries]
        for q, row in enumerate(body):
            agree_masked(row[1:5], weights[q], seen[q])
            agree(row[5:], output[q])
    stars = [[starred(cell) for cell in row[1:]] for row in rows["after"][1:]]
    news = (new_weights - old_weights[of_query][:, of_key]).abs() > 1e-9
    new_outputs = ((new - old[of_query]).abs() > 1e-9).any(dim=1, keepdim=True)
    assert stars == torch.cat([news, new_outputs], dim=1).tolist()
    assert ("No new weight." in status(page)) == (not news.any())
    assert ("All outputs" in status(page)) == (not new_outputs.any())
    return news.any(), new_outputs.any()


def swaps(size):
    """Which neighbours to exchange so that every order comes up: Steinhaus, Johnson and Trotter's way."""
    if size == 1:
        return
    last = list(range(size - 1))
    for turn, swap in enumerate([*swaps(size - 1), None]):
        yield from last if turn % 2 else last[::-1]
        if swap is not None:
            yield swap + (turn % 2 == 0)


def test_permutation_every_order(shown):
    page = shown("permutation")
    check_permutation(page, [3, 0, 1, 2], "QKV")  # as the script begins
    page.get_by_role("button", name="Original order").press("Enter")
    order, seen = [0, 1, 2, 3], set()
    choices = {
        "queries, keys and values": "QKV",
        "queries": "Q",
        "keys with their values": "KV",
        "keys alone": "K",
    }
    for turn, swap in enumerate([None, *swaps(4)]):
        if swap is not None:
            # Up or down: it is the same exchange, by another button.
            word, way = (order[swap], "down") if turn % 2 else (order[swap + 1], "up")
            page.get_by_label(f"Move {WORDS[word]} {way}").press("Enter")
            order[swap : swap + 2] = order[swap + 1], order[swap]
        seen.add(tuple(order))
        for choice in (turn % 4, (turn + 1) % 4):
            name, moves = list(choices.items())[choice]
            page.get_by_label(name, exact=True).press("Space")
            weights, outputs = check_permutation(page, order, moves)
            assert not weights
            assert outputs == (moves == "K" and order != [0, 1, 2, 3])
    assert len(seen) == 24


def test_permutation_the_mask_stays_or_moves_along(shown):
    page = shown("permutation")
    assert page.get_by_label("the mask moves along").is_disabled()
    reach(page, "causal mask")
    press(page, "Space")
    assert all(check_permutation(page, [3, 0, 1, 2], "QKV", causal=True))
    reach(page, "the mask moves along")
    press(page, "Space")
    assert not any(check_permutation(page, [3, 0, 1, 2], "QKV", causal=True, along=True))
    for moves, name in (("Q", "queries"), ("KV", "keys with their values")):
        page.get_by_label(name, exact=True).press("Space")
        assert not any(check_permutation(page, [3, 0, 1, 2], moves, causal=True, along=True))


def test_permutation_an_arrow_keeps_the_focus_on_its_word(shown):
    page = shown("permutation")
    reach(page, "Move four down")
    press(page, "Enter", "Enter", "Enter", "Enter")  # once too often
    check_permutation(page, [0, 1, 2, 3], "QKV")
    press(page, "Shift+Tab", "Enter")
    check_permutation(page, [0, 1, 3, 2], "QKV")


def test_permutation_dragged(shown):
    page = shown("permutation")
    start = page.locator(".try-grip").filter(has_text="four").bounding_box()
    end = page.locator(".try-grip").filter(has_text="two").bounding_box()
    page.mouse.move(start["x"] + 10, start["y"] + 10)
    page.mouse.down()
    page.mouse.move(end["x"] + 10, end["y"] + end["height"] - 5, steps=20)
    check_permutation(page, [0, 1, 3, 2], "QKV")
    page.mouse.up()
    page.mouse.move(start["x"] + 10, start["y"] + 10, steps=5)
    check_permutation(page, [0, 1, 3, 2], "QKV")


# --- positional ---


def check_positional(page, t, k):
    bits, waves = binary_encoding(32), sinusoidal_encoding(32, 8)
    rows = tables(page)
    positions = sorted({t, t + k})
    for name, encoding in (("binary", bits), ("sinusoidal", waves)):
        body = [row for row in rows[name] if row[0].get("scope") == "row"]
        assert [int(row[0].text) for row in body] == positions
        for position, row in zip(positions, body, strict=True):
            torch.testing.assert_close(numbers(row[1:]), encoding[position].double(), atol=0.00501, rtol=0)
    last = rows["binary"][-1]
    stars = [starred(cell) for cell in last[1:]]
    assert stars == (bits[t] != bits[t + k]).tolist()
    differ, product = re.search(r"(\d+) bits? differs?\. .*: (\S+)\.$", status(page)).groups()
    assert int(differ) == sum(stars)
    assert float(product) == pytest.approx(float(waves[t] @ waves[t + k]), abs=0.005001)
    ones = re.search(r"in bits ([\d +]+)\.", status(page)).group(1)
    assert sum(int(one) for one in ones.split(" + ")) == t
    for kind, position in (("now", t), ("then", t + k)):
        ends = page.locator(f".try-{kind}").evaluate_all("hands => hands.map(hand => hand.getAttribute('d'))")
        ends = [[float(number) / 32 for number in end.removeprefix("M0 0L").split()] for end in ends]
        found = torch.tensor(ends) * torch.tensor([1.0, -1.0])  # cosine to the right, sine upwards
        torch.testing.assert_close(found.flip(1).flatten(), waves[position], atol=0.002, rtol=0)


def test_positional_every_position(shown):
    page = shown("positional")
    check_positional(page, 5, 2)  # as the script begins
    reach(page, "position t")
    press(page, "Home")
    reach(page, "one on")
    for t in range(24):
        check_positional(page, t, 2)
        press(page, "Enter")
    press(page, "Shift+Tab", "Enter")
    check_positional(page, 22, 2)
    page.get_by_label("offset k").press("Home")
    for k in range(9):
        check_positional(page, 22, k)
        page.get_by_label("offset k").press("ArrowRight")


# --- scaling ---


def check_scaling(page, newest, size):
    seen = slice(0, newest + 1)
    head, *rows = tables(page)["chunks"]
    assert [cell.text for cell in head] == ["keys", "m", "l", "o", "o / l"]
    scores = KEY_8[seen] @ QUERY_8[newest] / math.sqrt(3)
    for i, row in enumerate(rows):
        so_far = slice(0, min((i + 1) * size, newest + 1))
        assert row[0].text == ", ".join(LONGER[i * size : so_far.stop])
        terms = (scores[so_far] - scores[so_far].max()).exp()
        answer = attention(QUERY_8[newest : newest + 1], KEY_8[so_far], VALUE_8[so_far])
        totals = [scores[so_far].max(), terms.sum(), terms @ VALUE_8[so_far, 0], answer[0, 0]]
        agree(row[1:], torch.stack(totals))
    assert so_far.stop == newest + 1
    squares = page.locator("rect").evaluate_all("all => all.map(one => one.getAttribute('class'))")
    squares = [squares[8 * q : 8 * q + 8] for q in range(9)]
    for q, k in itertools.product(range(8), range(8)):
        kind = "before" if k <= q < newest else f"chunk{k // size % 2}" if k <= q == newest else "empty"
        assert squares[q][k] == f"try-{kind}"
    assert squares[8] == [*["try-cached"] * (newest + 1), *["try-empty"] * (7 - newest)]


def test_scaling_every_word_in_every_chunk(shown):
    page = shown("scaling")
    check_scaling(page, 5, 2)  # as the script begins
    for size in range(1, 9):
        page.get_by_role("slider", name="chunk").fill(str(size))
        reach(page, "words")
        press(page, "Home")
        for newest in range(8):
            check_scaling(page, newest, size)
            told = [int(number) for number in re.findall(r"\d+", status(page))]
            sums = [sum(range(1, newest + 2)), sum(t * t for t in range(1, newest + 2))]
            assert told == [newest + 1, min(size, newest + 1), *sums]
            press(page, "ArrowRight")


def test_scaling_refuses_a_text_that_is_too_short():
    with pytest.raises(ValueError, match="words has 5 words: expected at least 6"):
        interactive.scaling(WORDS, QUERY, KEY, VALUE[:, :1])


# --- transformer ---


def test_transformer_shows_what_real_blocks_do(shown):
    page = shown("transformer")
    torch.manual_seed(0)
    blocks = [TransformerBlock(8, 2, norm="pre").double() for _ in range(4)]
    x = torch.randn(5, 8, dtype=torch.float64)
    masks = {"causal": causal_mask(5), "open": None, "neighbours": local_mask(5, radius=1)}

    def check(chosen):
        def stack(x):
            for name, block in zip(chosen, blocks, strict=True):
                x = x if name == "left out" else block(x, mask=masks[name])
            return x

        found = influence(stack, x) if set(chosen) != {"left out"} else torch.eye(5) > 0
        ahead = found & ~causal_mask(5)
        rows = [row[1:] for row in tables(page)["stack"][1:]]
        assert [[cell.text == "yes" for cell in row] for row in rows] == found.tolist()
        assert [[starred(cell) for cell in row] for row in rows] == ahead.tolist()
        number = sum(name != "left out" for name in chosen)
        assert status(page).startswith(f"{number} block")
        assert ("Nobody sees the future" in status(page)) == (not ahead.any())
        if ahead.any():
            assert f" {ahead.sum()} starred" in status(page)

    check(["causal", "causal", "causal", "left out"])  # as the script begins
    for chosen in (
        ["open", "causal", "causal", "left out"],
        ["causal", "causal", "open", "causal"],
        ["neighbours", "neighbours", "left out", "left out"],
        ["neighbours", "causal", "neighbours", "causal"],
        ["left out"] * 4,
    ):
        for number, name in enumerate(chosen, start=1):
            page.get_by_label(f"block {number}").select_option(name)
        check(chosen)
    reach(page, "block 2")
    press(page, "ArrowUp")  # from the last to the one before it
    check(["left out", "neighbours", "left out", "left out"])


# --- vision ---


def check_vision(page, digit, block, head, asks):
    if block < 2:
        looked, words = LOOKS[digit, block, head, asks], f"block {block}, head {head}"
    else:
        looked, words = attention_rollout(list(LOOKS[digit]))[asks].round(decimals=3), "all blocks by rollout"
    caption = page.locator(".try-looks caption").inner_text()
    assert caption == f"{f'Patch {asks - 1}' if asks else 'The class token'} asks, {words}"
    head_row, *rows, foot = tables(page)["looks"]
    assert [cell.text for cell in head_row] == ["row", "0", "1", "2", "3"]
    agree([cell for row in rows for cell in row[1:]], looked[1:])
    agree(foot[1:2], looked[:1])
    told = status(page)
    assert f"patches, {looked[1:].argmax()} has most" in told
    assert f"most on patch {FALLS[digit].argmax()}:" in told
    # How dark the squares are.
    for name, numbers in (
        ("ink", IMAGES[digit].flatten()),
        ("weight", looked[1:] / looked[1:].max()),
        ("fall", (FALLS[digit] / FALLS[digit].max()).clamp(min=0)),
    ):
        shades = page.locator(f".try-{name}").evaluate_all(
            "all => all.map(one => Number(one.getAttribute('fill-opacity')))"
        )
        torch.testing.assert_close(torch.tensor(shades).double(), numbers, atol=0.00501, rtol=0)
    frame = page.locator(".try-asks")
    assert (frame.get_attribute("visibility") == "visible") == (asks > 0)
    if asks:
        place = [float(frame.get_attribute(name)) for name in ("x", "y")]
        assert place == [4 + 24 * ((asks - 1) % 4), 4 + 24 * ((asks - 1) // 4)]


def test_vision_shows_each_digit_block_head_and_patch(shown):
    page = shown("vision")
    check_vision(page, 0, 1, 0, 0)  # as the script begins
    for digit, block, head, asks in ((1, 1, 0, 0), (1, 0, 2, 6), (0, 0, 1, 16), (0, 2, 1, 1), (1, 2, 1, 0)):
        for name, number in (("digit", digit), ("block", block), ("asks", asks)):
            page.get_by_role("combobox", name=name).select_option(index=number)
        assert page.get_by_role("combobox", name="head").is_disabled() == (block == 2)
        if block < 2:
            page.get_by_role("combobox", name="head").select_option(index=head)
        check_vision(page, digit, block, head, asks)
    reach(page, "asks")
    press(page, "ArrowDown")
    check_vision(page, 1, 2, 1, 1)


def test_vision_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"falls \(2, 15\)"):
        interactive.vision(NAMES, IMAGES, LOOKS, FALLS[:, 1:])


# --- words ---


def check_words(page, sentence, block, head, asks, silent=False):
    names, row = TOKENS[sentence], ATTENDS[sentence][block, head, asks]
    caption = page.locator(".try-asked caption").inner_text()
    assert caption == f"“{names[asks]}” asks, block {block}, head {head}" + silent * ", silent"
    _, *rows = tables(page)["asked"]
    assert [cells[0].text for cells in rows] == names
    agree([cells[1] for cells in rows], row)
    assert all(("try-hidden" in cells[1].get("class", [])) == silent for cells in rows)
    pressed = [cells[0].button["aria-pressed"] == "true" for cells in rows]
    assert pressed == [place == asks for place in range(len(names))]
    most = row.argmax()
    shades = page.locator("try-words .try-weight").evaluate_all(
        "all => all.map(one => Number(one.getAttribute('fill-opacity')))"
    )
    expected = ATTENDS[sentence][:, :, asks, most].flatten().clone()
    expected[3 * block + head] *= not silent
    torch.testing.assert_close(torch.tensor(shades).double(), expected, atol=1e-6, rtol=0)
    frame = page.locator("try-words .try-asks")
    assert [float(frame.get_attribute(name)) for name in ("x", "y")] == [24 + 22 * head, 2 + 16 * block]
    told = status(page)
    if silent:
        moved = MOVED[sentence, block, head]
        assert f"moves by {moved:.4f} (1" in told
        assert f"more: {int((MOVED[sentence] > moved).sum())} of 6." in told
    else:
        assert f"“{names[asks]}” gives most weight to “{names[most]}”, {row[most]:.2f}." in told
        many = int((ATTENDS[sentence][:, :, asks, most] >= 0.3).sum())
        assert f"0.30 or more: {many} of 6." in told


def test_words_shows_each_sentence_and_head_and_silences_it(shown):
    page = shown("words")
    check_words(page, 0, 1, 2, 1)  # as the script begins
    page.get_by_role("combobox", name="block").select_option(index=0)
    page.get_by_role("combobox", name="head").select_option(index=1)
    check_words(page, 0, 0, 1, 1)
    page.get_by_role("combobox", name="sentence").select_option(index=1)
    check_words(page, 1, 0, 1, 4)  # "it" asks again
    page.get_by_label("silence this head").check()
    check_words(page, 1, 0, 1, 4, silent=True)
    page.locator("try-words .try-head").nth(5).click()
    check_words(page, 1, 1, 2, 4, silent=True)
    page.get_by_label("silence this head").uncheck()
    check_words(page, 1, 1, 2, 4)


def test_a_word_asks_by_mouse_by_tap_and_by_keys(shown):
    page = shown("words")
    button = page.get_by_role("button", name="rains")
    button.hover()
    check_words(page, 0, 1, 2, 2)
    page.mouse.move(0, 0)  # it has only been pointed at
    check_words(page, 0, 1, 2, 1)
    button.click()
    page.mouse.move(0, 0)
    check_words(page, 0, 1, 2, 2)
    page.keyboard.press("ArrowLeft")
    check_words(page, 0, 1, 2, 1)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")  # there is no word more
    check_words(page, 0, 1, 2, 3)
    touched = shown("words", has_touch=True)
    touched.get_by_role("button", name="rains").tap()
    check_words(touched, 0, 1, 2, 2)


def test_words_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match=r"weights\[1\] has shape \(2, 3, 5, 5\): expected \(2, 3, 6, 6\)"):
        interactive.words(TOKENS, [ATTENDS[0], ATTENDS[1][:, :, 1:, 1:]], MOVED, head=(0, 0), asks="it")


# --- all of them ---


def test_without_javascript_the_tables_show_the_first_case(shown):
    page = shown(java_script_enabled=False)
    assert page.locator("fieldset, [role=status]").count() == 0
    assert page.locator(".try-plain").first.is_visible()
    found = tables(page)
    output, weights = attention(QUERY[:1], KEY, VALUE, return_weights=True)
    agree([row[3] for row in found["bars"][1:-1]], weights)
    agree(found["bars"][-1][3:], torch.cat([torch.ones(1), output[0]]))
    for name, order in (("before", [0, 1, 2, 3]), ("after", [3, 0, 1, 2])):
        output = attention(*(permute(tensor[:4], order) for tensor in (QUERY, KEY, VALUE)))
        agree([row[5] for row in found[name][1:]], output)
    weights = attention_weights(X @ W_Q, X @ W_K, causal_mask(5))
    shown_weights = torch.stack([numbers(row[1:6]) for row in found["weights"][1:]])
    torch.testing.assert_close(shown_weights, weights, atol=0.00501, rtol=0)
    yes = [[cell.text == "yes" for cell in row[1:]] for row in found["influence"][1:]]
    assert yes == causal_mask(5).tolist()
    rows = [row for row in found["binary"] if row[0].get("scope") == "row"]
    assert torch.stack([numbers(row[1:]) for row in rows]).equal(binary_encoding(32).double())
    rows = [row for row in found["sinusoidal"] if row[0].get("scope") == "row"]
    agree([cell for row in rows for cell in row[1:]], sinusoidal_encoding(32, 8))
    agree(found["chunks"][-1][4:], attention(QUERY_8[5:6], KEY_8[:6], VALUE_8[:6]))
    yes = [[cell.text == "yes" for cell in row[1:]] for row in found["stack"][1:]]
    assert yes == causal_mask(5).tolist()
    agree([cell for row in found["looks"][1:5] for cell in row[1:]], LOOKS[0, 1, 0, 0, 1:])
    agree([row[1] for row in found["asked"][1:]], ATTENDS[0][1, 2, 1])


@pytest.mark.parametrize("width", [1280, 320])
def test_figures_are_accessible_and_large_enough_for_a_finger(width, shown):
    page = shown(viewport={"width": width, "height": 800})
    found = Axe().run(page)
    assert not found.violations_count, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") == width
    widths = "tables => tables.map(table => table.closest('.try').clientWidth - table.offsetWidth)"
    assert min(page.locator(".try table").evaluate_all(widths)) >= 0
    # A tick box is as large as the label around it.
    for box in page.locator("button, select, input[type=range], .try-tick, .try-grip").all():
        size = box.bounding_box()
        assert min(size["width"], size["height"]) >= 24


@pytest.mark.parametrize(("width", "height"), [(690, 720), (358, 740)])
def test_controls_picture_and_numbers_are_seen_together(width, height, shown):
    # The widths of the text on screens of 1280 × 800 and 390 × 844 pixels, and the height that bars leave.
    page = shown(viewport={"width": width, "height": height})
    page.add_style_tag(content="body { margin: 0; font: 16px/1.65 sans-serif }")
    sizes = page.locator(".try").evaluate_all(
        "figures => figures.map(figure => [figure.localName, figure.getBoundingClientRect().height])"
    )
    assert len(sizes) == len(FIGURES)
    assert {name: size for name, size in sizes if size > height} == {}


def test_on_paper_there_are_numbers_and_no_controls(shown):
    page = shown("positional")
    page.emulate_media(media="print")
    assert not page.locator("fieldset").is_visible()
    assert page.locator(".try-binary tbody tr").nth(31).is_visible()
