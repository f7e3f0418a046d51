"""What the numbers of a wrong answer say by themselves."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from attncourse import checks
from attncourse.checks.check import Check
from attncourse.checks.effects import two_that_make_up
from attncourse.checks.explain import cases_in_words, in_right_form, relation, where
from attncourse.checks.task import registry
from attncourse.probe.answer import Answer, plain

RIGHT = [torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(seed)) for seed in range(3)]


def related(change, right=RIGHT, inputs=None):
    return relation([(inputs or {}, change(one), one) for one in right])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda right: 2 * right, "yours is 2 times what is right"),
        (lambda right: right / 4, "yours is a quarter times what is right"),
        (lambda right: -right, "yours has the other sign"),
        (lambda right: right + 1, "yours is 1 too large"),
        (lambda right: right.mT, "yours has the right numbers, with dimensions 1 and 2 exchanged"),
        (lambda right: right.flip(0), "yours has the right numbers, in the opposite order along dimension 0"),
        (lambda right: right.roll(1, dims=2), "along dimension 2 the right numbers stand one place too late"),
        (lambda right: right.abs(), "yours is what is right, but never below 0"),
        (lambda right: right.square(), "yours is the square of what is right"),
        (
            lambda right: right.flatten()[torch.randperm(18)].view(2, 3, 3),
            "yours has the right numbers, but not in their places",
        ),
        (lambda right: right * right.sum(), "all your numbers are wrong by one and the same factor"),
        (lambda right: torch.full_like(right, 7.0), None),
    ],
)
def test_a_simple_relation_is_said(change, words):
    found = related(change)
    assert found is None if words is None else found.startswith(words)


def test_of_what_is_only_rounded_nothing_is_said_but_of_counts():
    right = torch.tensor([[3.0, -1e-6], [2.5, 7.0]], dtype=torch.float64)
    assert relation([({"x": right}, right * (1 + 1e-5), right)]) is None
    counts = torch.tensor(250_000)
    assert relation([({}, counts + 1, counts)]) == "yours is 1 too large"


def test_a_relation_holds_in_every_case():
    changes = iter([lambda right: 2 * right, lambda right: right.mT, lambda right: 2 * right])
    assert related(lambda right: next(changes)(right)) is None


def test_what_was_added_is_named():
    x = torch.arange(18.0).view(2, 3, 3)
    assert related(lambda right: right + x, inputs={"x": x}) == "yours is what is right plus `x`"
    assert related(lambda right: x, inputs={"x": x}) == "what comes back is `x`, as it came"
    assert (
        related(lambda pair: pair[::-1], [(1, 2), (3, 5)]) == "the two things that you return are exchanged"
    )


def test_masks_are_turned_round_too_open_or_too_closed():
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    right = [mask, mask[:3, :3]]
    assert related(torch.logical_not, right) == "every True should be False, and every False True"
    assert related(lambda one: one.tril(-1), right) == "no True of yours is wrong, but some are missing"
    assert (
        related(lambda one: torch.ones_like(one).tril(1), right)
        == "no True is missing, but yours has too many"
    )


@given(st.integers(2, 5), st.integers(2, 5), st.data())
def test_the_place_is_where_the_wrong_numbers_are(rows, columns, data):
    row = data.draw(st.integers(0, rows - 1))
    wrong = torch.zeros(rows, columns, dtype=torch.bool)
    wrong[row] = True
    assert where(wrong) == f"only at index {row} of dimension 0"
    assert where(wrong.T) == f"only at index {row} of dimension 1"


def test_the_diagonal_and_what_is_above_it():
    everything = torch.ones(4, 4, dtype=torch.bool)
    assert where(torch.eye(4, dtype=torch.bool)) == "on the diagonal, and nowhere else"
    assert where(everything.triu(1)) == "above the diagonal only"
    assert where(everything) is None
    assert where(tensor([[True, False, True], [False, True, False], [True, False, True]])) is None


def test_scattered_numbers_have_no_place():
    wrong = torch.zeros(4, 5, dtype=torch.bool)
    wrong[0, 0] = wrong[1, 1] = True
    assert where(wrong) is None
    wrong[0, 1] = wrong[1, 0] = True
    assert where(wrong) == "only at indices 0 and 1 of dimension 0 and indices 0 and 1 of dimension 1"


def test_of_right_and_wrong_cases_the_fewer_are_told():
    notes = ["the pencil case", "a batch", "one query", "a batch", "one query"]
    assert cases_in_words(notes, [2, 4]) is None  # the case that is shown is the only kind
    assert cases_in_words(notes, [1, 2]) == ("Right for", "the pencil case")
    assert cases_in_words([*notes, "more", "still more"], [1, 2]) == ("Wrong for", "a batch; one query")
    assert cases_in_words(notes, range(5)) is None


@pytest.mark.parametrize(
    ("came", "expected", "formed"),
    [
        (tensor([1.0, 0.0]), tensor([True, False]), tensor([True, False])),
        (tensor([0.0, -math.inf]), tensor([True, False]), None),
        (tensor([2.0, 1.0]), tensor([2, 1]), tensor([2, 1])),
        (tensor([2.5, 1.0]), tensor([2, 1]), None),
        ([2, 1], tensor([2, 1]), tensor([2, 1])),
        ([tensor([2, 1]), tensor([1, 2])], tensor([[2, 1], [1, 2]]), None),
        (torch.arange(6).view(2, 3), torch.zeros(3, 2), torch.arange(6.0).view(2, 3).T),
        (torch.arange(6.0), torch.zeros(1, 6), torch.arange(6.0).view(1, 6)),
        (torch.arange(6.0), torch.zeros(2, 3), None),
        ([tensor(1), 2], (tensor(1.0), 2), (tensor(1.0), 2)),
        ("a word", tensor(1.0), None),
    ],
)
def test_another_form_is_taken_for_the_right_one_only_without_a_guess(came, expected, formed):
    found = in_right_form(Answer(came), expected)
    if formed is None:
        assert found is None
    elif isinstance(formed, Tensor):
        assert torch.equal(found.value, formed)
        assert found.value.dtype == formed.dtype
    else:
        assert list(found.value) == list(formed)


SHAPES = st.lists(st.integers(0, 3), max_size=3)


@given(SHAPES, SHAPES)
def test_any_shape_is_brought_into_form_or_not_and_keeps_its_numbers(came, expected):
    found = in_right_form(Answer(torch.randn(came)), torch.zeros(expected))
    if found is not None:
        assert list(found.value.shape) == expected
        assert math.prod(came) == math.prod(expected)


def message_of(name, answer):
    with pytest.raises(checks.CheckFailed) as caught:
        getattr(checks, name)(answer)
    return " ".join(str(caught.value).split())


def test_a_student_reads_what_is_true_of_an_answer_that_nobody_foresaw():
    def attention(query, key, value):
        weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
        return 3 * (weights @ value)

    assert "it is wrong, yours is 3 times what is right." in message_of("attention", attention)

    def reordering(first, second):
        return first.argsort()[second].double()

    said = message_of("reordering", reordering)
    assert "in the form that was asked for, every case is right" in said

    def turned_round(first, second):
        return second.argsort()[first].double()

    said = message_of("reordering", turned_round)
    assert "And in the form that was asked for, there is something else. This looks like:" in said
    assert "from the second file to the first" in said


def test_what_decides_a_case_is_said_with_the_word_that_does_not_fit():
    def symmetry(layer, x):
        for order in torch.tensor([1, 0, 2]), torch.tensor([2, 1, 0]), torch.tensor([2, 0, 1]):
            layer(x[order])
        return "neither"

    words = "it does not fit this input: the pencil case, in which the layer doubles every number"
    assert words in message_of("symmetry", symmetry)


def effects_of(right, given, **known):
    answers = {name: [Answer(one) for one in values] for name, values in known.items()}
    return two_that_make_up([Answer(one) for one in given], [Answer(one) for one in right], answers)


def test_two_effects_make_up_what_came():
    right = [torch.randn(3, 2, generator=torch.Generator().manual_seed(seed)) for seed in range(4)]
    doubled, moved = [2 * one for one in right], [one + torch.tensor([0.0, 1.5]) for one in right]
    other = [one.flip(0) for one in right]
    summed = [a + b - c for a, b, c in zip(doubled, moved, right, strict=True)]
    assert effects_of(right, summed, other=other, doubled=doubled, moved=moved) == [("doubled", "moved")]
    assert effects_of(right, doubled, other=other, doubled=doubled, moved=moved) == []
    times = [4.0 * number for number in (1.3, 2.2, 5.1)]
    known = {"half": [0.65, 1.1, 2.55], "eightfold": [10.4, 17.6, 40.8], "far": [9.0, 9.5, 9.7]}
    assert effects_of([1.3, 2.2, 5.1], times, **known) == [("half", "eightfold")]


def test_masks_are_turned_round_at_the_places_of_both():
    right = torch.ones(5, 5, dtype=torch.bool).tril()
    strict, inverted = right.tril(-1), ~right
    found = effects_of(
        [right], [~strict], strict=[strict], inverted=[inverted], open=[torch.ones_like(right)]
    )
    assert found == [("strict", "inverted")]


def test_two_choices_in_one_thing_do_not_meet_in_one_number():
    same = torch.eye(6, dtype=torch.bool)
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    right = past & (same | same.roll(1, 0))
    known = {"either": right ^ past, "one of two": right ^ same}
    came = known["either"] ^ known["one of two"] ^ right
    answers = {name: [Answer(value)] for name, value in known.items()}
    assert two_that_make_up([Answer(came)], [Answer(right)], answers)
    assert not two_that_make_up([Answer(came)], [Answer(right)], answers, lambda one, other: True)


def test_a_few_words_are_no_evidence():
    right = ["a", "b", "a", "b", "a", "b"]
    one, other = ["b", "b", "b", "b", "b", "b"], ["a", "a", "a", "a", "a", "a"]
    assert effects_of(right, ["b", "a", "b", "a", "b", "a"], one=one, other=other) == [("one", "other")]
    assert effects_of(right, ["b", "a", "a", "b", "a", "b"], one=one, other=other) == []
    assert effects_of(right[:2], ["b", "a"], one=one[:2], other=other[:2]) == []


def test_what_cannot_be_compared_has_no_effects():
    half, more = [0.75], [3.0]
    assert effects_of([1.5], [1.5], half=half, more=more) == [("half", "more")]
    assert effects_of([1.5], [(1.5, 2.0)], half=half, more=more) == []
    assert effects_of([1.5], [math.nan], half=half, more=more) == []
    assert effects_of([1.5], [3.0], shorter=[torch.zeros(2)]) == []


def test_two_mistakes_that_nobody_put_together_are_named():
    def packed_mask(document):  # the first sequence's documents for all, and nobody sees itself
        same = document[:1, :, None] == document[:1, None, :]
        length = document.shape[1]
        return (same & torch.ones(length, length, dtype=torch.bool).tril(-1)).expand(len(document), -1, -1)

    said = message_of("packed_mask", packed_mask)
    assert "Two mistakes together." in said
    assert "the diagonal is missing" in said
    assert "every sequence gets the mask of the first" in said


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        (
            "attention",  # of which the first case shows but one: it has no batch
            [
                "the scale takes the root twice",
                "the sequences of a batch are put together: every query sees the",
            ],
        ),
        (
            "local_mask",
            ["the window has only one side: the past", "a slice begins at a negative number"],
        ),
    ],
)
def test_two_mistakes_that_are_known_by_their_effects_are_named(name, labels):
    task = registry[name]
    one, other = (next(m for m in task.single_mistakes if m.label.startswith(label)) for label in labels)

    def both(*inputs):
        right, first, second = (function(*inputs) for function in (task.reference, one, other))
        return right ^ first ^ second if right.dtype == torch.bool else first + second - right

    assert Check(task).verdict(both, refusing=False).mistakes == (one.label, other.label)


def test_counts_of_any_width_are_whole_numbers():
    assert plain(torch.tensor(3, dtype=torch.uint64)).dtype == torch.int64


def test_a_factor_of_any_size_is_judged():
    assert "instead of 1" in message_of("score_scale", lambda key_dim, query_std, key_std: 1e200)


def test_what_decides_a_case_with_many_right_answers_is_said():
    def same_rows(query, x):
        weights = torch.softmax(query @ x.mT / math.sqrt(x.shape[-1]), -1)
        return torch.cat([x, x[(x - weights @ x).norm(dim=1).argmax()][None]])

    assert "the claim holds for it; the farthest row has no weight" in message_of("same_rows", same_rows)


def test_of_one_wrong_case_nothing_is_said_of_all():
    def attention(query, key, value):
        weights = torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1)
        return (2 if query.dim() == 4 else 1) * (weights @ value)

    said = message_of("attention", attention)
    assert "Cases right 9 of 10" in said
    assert "in which it is wrong" not in said


def test_a_mistake_is_seen_though_it_does_not_explain_every_case():
    def is_equivariant(layer, x):  # it is invariance, and rounding is taken for a difference
        y = layer(x)
        orders = [torch.randperm(len(x)) for _ in range(30)]
        return all(torch.equal(layer(x[order]), y) for order in orders)

    torch.manual_seed(0)
    said = message_of("is_equivariant", is_equivariant)
    assert "Whatever else there is, this looks like: it is invariance that is tested." in said
