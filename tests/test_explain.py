"""What the numbers of a wrong answer say by themselves."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from attncourse import checks
from attncourse.checks.explain import cases_in_words, in_right_form, relation, where
from attncourse.probe.answer import Answer

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
        assert found.value == formed


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
        for order in torch.eye(len(x)).long(), torch.arange(len(x)).flip(0), torch.arange(len(x)).roll(1):
            layer(x[order])
        return "neither"

    words = "it does not fit this input: the pencil case, in which the layer doubles every number"
    assert words in message_of("symmetry", symmetry)
