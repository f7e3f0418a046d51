"""What wrong answers are told: some as students have written them, and the rules for naming a mistake."""

import math

import pytest
import torch

from attncourse import checks
from attncourse.checks import laws
from attncourse.checks.recognise import _tells as tells
from attncourse.checks.task import registry


def told(name, answer):
    """The message to a wrong answer."""
    with pytest.raises(checks.CheckFailed) as caught:
        getattr(checks, name)(answer)
    return " ".join(str(caught.value).split())


# --- answers, each with words of the message ---


def column_attention(query, key, value):
    scores = key.mT @ query / math.sqrt(query.shape[-2])
    return value @ torch.softmax(scores, 1)


def softargmax(scores):
    exponentials = scores.clamp(max=80).exp()
    return exponentials / exponentials.sum(-1, keepdim=True)


def picking_query(key, index, share):
    low, high = 0.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        weights = torch.softmax(key @ (middle * key[index]) / math.sqrt(key.shape[1]), -1)
        low, high = (middle, high) if weights[index] < share else (low, middle)
    return high * key[index]


def diagnosis(before, after, loss):
    if not torch.allclose(before.sum(-1), torch.ones(len(before)), atol=1e-3):
        return "over the queries"
    largest = before.amax(-1).mean()
    return "no scale" if largest > 0.5 else "scaled twice" if largest < 0.1 else "right"


def diagnosis_of_logarithms(before, after, loss):
    if not torch.allclose(before.sum(-1), torch.ones(len(before)), atol=1e-3):
        return "over the queries"
    spread = before.log().std(-1).mean()
    return "no scale" if spread > 3 else "scaled twice" if spread < 0.4 else "right"


def packed_mask(document):
    length = document.shape[-1]
    return (document[:, :, None] >= document[:, None, :]) & torch.ones(length, length).tril().bool()


def masked_attention(query, key, value, mask):
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    return torch.softmax(scores, -1) * mask @ value


def is_equivariant(layer, x):
    y = layer(x)
    if y.shape != x.shape:
        return False
    orders = [torch.randperm(len(x)) for _ in range(30)]
    return all(torch.allclose(layer(x[order]), y[order]) for order in orders)


def symmetry(layer, x):
    y = layer(x)
    if len(y) != len(x):
        return "neither"
    orders = [torch.randperm(len(x)) for _ in range(30)]
    equivariant = all(torch.allclose(layer(x[order]), y[order]) for order in orders)
    invariant = all(torch.allclose(layer(x[order]), y) for order in orders)
    both = equivariant and invariant
    return "both" if both else "equivariant" if equivariant else "invariant" if invariant else "neither"


def explain_run(loss, blind, alike):
    def same(first, second):
        return bool(((first - second).abs() < 1e-6).all())

    if same(alike, alike[0, 0]):
        return "not told"
    if same(alike, alike[:, :1]):
        return "items numbered"
    numbers = alike[0].sort().values
    if (numbers.diff() < 1e-6).any():
        return "positions confused"
    return "used" if loss[-len(loss) // 4 :].mean() < blind / 2 else "not used"


def explain_steps(whole, steps, value, num_prompt):
    right = (steps - whole).abs()[:, 0] < 1e-4
    later = right[num_prompt:]
    if right.all():
        return "right"
    if not right[:num_prompt].all():
        return "sees ahead" if later.all() else "other"
    if ((steps - value)[num_prompt:, 0].abs() < 1e-4).all():
        return "forgets"
    if ((steps - value[0])[num_prompt:, 0].abs() < 1e-4).all():
        return "stuck at the start"
    number = int(later.sum())
    return "runs full" if number and later[:number].all() else "other"


def same_bag(patches):
    _, counts = patches.int().unique(dim=0, return_counts=True)
    return math.factorial(len(patches)) // math.prod(math.factorial(count) for count in counts.tolist())


def which_norm(layer, x):
    def normalised(y):
        mean, variance = y.mean(-1), y.var(-1)
        return torch.allclose(mean, 0 * mean, atol=1e-4) and torch.allclose(
            variance, 0 * variance + 1, atol=1e-4
        )

    y = layer(x)
    if normalised(y):
        return "post"
    if normalised(y - x):
        return "inside"
    return "overwritten" if torch.allclose(layer(10 * x), y, atol=1e-4) else "pre"


def decoder_block(x, memory, attend, look, mlp, norms):
    mask = torch.ones(x.shape[-2], x.shape[-2]).tril().bool()
    copy = norms[0](x)
    x = x + attend(copy, copy, mask)
    x = x + look(norms[2](x), memory)
    return x + mlp(norms[1](x))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (column_attention, "dimension 1 is normalised, which is the keys only with a single batch dimension"),
        (softargmax, "among scores of a thousand, too, two weights have the ratio"),
        (picking_query, "two keys that are close to each other, so that the query must be long"),
        (diagnosis, "however many keys there are"),
        (diagnosis_of_logarithms, "the logarithm is taken of weights that are 0"),
        (packed_mask, "compared by their size, which are not in order"),
        (masked_attention, "the weights are set to 0 after the softargmax"),
        (is_equivariant, "a layer whose output has another shape than its input is given up at once"),
        (symmetry, "a layer with another number of rows is called neither at once"),
        (explain_run, "looked for in the first sequence only"),
        (explain_steps, "only the first feature is compared"),
        (same_bag, "patches whose pixels differ behind the point only are taken for alike"),
        (which_norm, "a block whose every output has mean 0 and variance 1 is post-norm"),
        (decoder_block, "the last two normalisations are exchanged"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_a_students_mistake_is_told(answer, words):
    torch.manual_seed(0)
    name = answer.__name__.removesuffix("_of_logarithms")
    message = told(name, answer)
    assert words in message
    assert "without any tolerance" not in message


# --- two mistakes at once ---


def local_mask(num_queries, num_keys, radius):
    query, key = torch.arange(num_queries)[:, None], torch.arange(num_keys)
    return (query - key).abs() < radius


def attention(query, key, value):
    weights = torch.softmax(query @ key.mT, dim=-1)
    return weights @ value, weights


def counterexample(layer, x):
    for order in (torch.arange(len(x)).flip(0), torch.arange(len(x)).roll(1)):
        if not torch.allclose(layer(x[order]), layer(x)[order]):
            return order[None].double()
    return None


def chunked_attention(query, key, value, chunk_size):
    """Without the scale, and without what is left over at the end."""
    chunk_size = min(chunk_size, key.shape[-2])
    whole = key.shape[-2] // chunk_size * chunk_size
    scores = query @ key[..., :whole, :].mT
    return torch.softmax(scores, -1) @ value[..., :whole, :]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (local_mask, "positions at a distance of exactly the radius are left out"),
        (
            attention,
            "in the form that was asked for, there is something else. This looks like: the scores are",
        ),
        (counterexample, "an order was expected: a tensor of whole numbers"),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_of_two_mistakes_one_is_told(answer, words):
    assert words in told(answer.__name__, answer)


def test_on_the_inputs_of_a_law_of_two_mistakes_one_shows():
    seen = []

    def watched(query, key, value, chunk_size):
        seen.append(chunk_size)
        return chunked_attention(query, key, value, chunk_size)

    message = told("chunked_attention", watched)
    assert seen
    law = "with equal keys every output is the plain mean of the values"
    named = "On those inputs it does the same as this mistake: the last chunk is left out if it is not full."
    assert message.index(law) < message.index(named)


def test_words_that_two_mistakes_could_give_name_none_that_was_not_made():
    """Where a run that is a little above the loss of a blind one is called stuck, nothing is exchanged."""

    def which_run(losses, words_right, num_letters, length):
        if words_right > 0.5:
            return "works"
        fifth = len(losses) // 5
        last, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean()
        blind = registry["blind_loss"].reference(num_letters, length)
        if last < 0.1 * blind:
            return "leak"
        if last < 0.9 * before:
            return "unfinished"
        return "blind" if last <= blind else "stuck"

    assert "exchanged" not in told("which_run", which_run)


def test_where_the_first_law_names_nothing_a_later_one_may():
    def mlp(x, W_1, b_1, W_2, b_2):
        """The first matrix is read in the wrong order, and what is negative is cut off at the end."""
        hidden = x @ W_1.reshape(W_1.shape[1], W_1.shape[0]) + b_1
        return torch.relu(hidden @ W_2.mT + b_2)

    message = told("mlp", mlp)
    assert "it is also true that" in message
    assert "does the same as this mistake: the ReLU stands at the end" in message


def test_of_a_few_numbers_no_mistake_is_told_that_shows_in_a_law():
    """One minus p is both the chance of none and, of one, that of another."""

    def chance_of_best(num_right, num_pairs, num_heads):
        of_one = sum(math.comb(num_pairs, k) for k in range(num_right, num_pairs + 1)) / 2**num_pairs
        return 1 - of_one**num_heads

    assert "does the same as this mistake" not in told("chance_of_best", chance_of_best)


@pytest.mark.parametrize("name", ["telling_input", "leaking_change"])
def test_what_gives_no_input_is_not_said_to_give_one(name):
    message = told(name, lambda *inputs: False)
    assert "either None or" in message
    assert "yours gives one" not in message


def showing_picture(cut, kept):
    generator = torch.Generator().manual_seed(7)
    shapes = [(1, 2, 3), (1, 3, 2), (2, 2, 3), (3, 3, 2), (2, 2, 2)]
    for channels, rows, columns, size in filter(
        kept, [(*shape, size) for size in (1, 2, 3) for shape in shapes]
    ):
        picture = 10 * torch.randn(channels, rows * size, columns * size, generator=generator)
        right = torch.nn.functional.unfold(picture[None], size, stride=size)[0].T
        found = cut(picture, size)
        if found.shape != right.shape or not torch.allclose(found, right):
            break
    return picture, size


ONE_CHANNEL = "Just the same is missed with this mistake: only pictures with one channel are tried."
NOT_WIDE = "looks like: no picture that is wider than tall is tried."
ONE_SIZE = "Just the same is missed with this mistake: only patches of side 2 are tried."


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        (lambda at: at[0] == 1, [ONE_CHANNEL]),
        (lambda at: at[3] == 2, [ONE_SIZE]),
        (
            lambda at: at[0] == 1 and at[1] >= at[2],
            [
                "Just the same is missed with two mistakes together.",
                "looks like: only pictures with one channel are tried.",
                NOT_WIDE,
            ],
        ),
    ],
)
def test_what_is_not_found_says_how_it_was_looked_for(kept, words):
    message = told("showing_picture", lambda cut, seen: showing_picture(cut, kept))
    assert all(one in message for one in words), message


def test_what_is_not_found_and_several_ways_to_look_miss_names_none_of_them():
    """Sums of patches show neither the order of channels nor what is wrong with patches of another side."""
    message = told(
        "showing_picture", lambda cut, seen: showing_picture(cut, lambda at: at[0] == 1 and at[3] == 2)
    )
    assert "is missed with" not in message


def test_what_is_nearly_a_known_mistake_and_wrong_for_another_reason_is_not_called_so():
    def seen_neighbour(layer, x, memory):
        other = x.clone()
        other[0] += 1e-15
        return other

    message = told("seen_neighbour", seen_neighbour)
    assert "with another row 0 no other row of the output changes" in message
    assert "x itself is returned" not in message


def test_a_simple_fraction_names_no_mistake():
    assert "does the same" not in told("least_loss", lambda num_heads, *rest: max(0, 2 - num_heads) / 2)


def test_a_right_answer_to_all_cases_is_never_shown():
    message = told("rabbit_weights", lambda size, asks, found, handed: [torch.zeros(size, 1)] * 3)
    assert "A right answer" not in message
    assert "A right answer" in told("picking_query", lambda key, index, share: key[index])


# --- when a mistake is named ---


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("post", False),
        (True, False),
        (3.0, False),
        (math.nan, False),
        (2.5, False),
        (2.57, True),
        (torch.tensor([1.0, 2.0, math.nan]), False),
        (torch.tensor([1.0, 2.5, math.nan]), True),
        (torch.arange(4), True),
        (torch.full((3,), math.inf), False),
        (["post", torch.tensor(0.5)], True),
        ({"output": torch.zeros(3)}, False),
    ],
)
def test_what_hardly_agrees_by_chance(value, expected):
    assert tells(value) is expected


def test_an_answer_that_spoils_its_inputs_is_not_two_mistakes():
    """What follows from a spoilt input can look like any two: pairs are looked for in no such answer."""

    def unscaled_over_queries(query, key, value):
        return torch.softmax(query @ key.mT, -2) @ value

    def spoiling(query, key, value):
        output = unscaled_over_queries(query, key, value)
        key.zero_()
        return output

    assert "Two mistakes together" in told("attention", unscaled_over_queries)
    message = told("attention", spoiling)
    assert "changes its argument" in message
    assert "Two mistakes together" not in message


def test_numbers_that_differ_in_a_late_digit_are_shown_so_far():
    place, yours, expected = laws.unlike(torch.tensor([1.0, 2.0004]), torch.tensor([1.0, 2.0]))
    assert place == "[1]"
    assert yours != expected
