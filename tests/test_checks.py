"""Every check of every unit: right answers pass, wrong ones fail and are called what they are."""

import ast
import contextlib
import linecache
import math
import warnings
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attncourse
from attncourse import checks
from attncourse.checks.judge import judge
from attncourse.checks.probe import Answer, Foreign, Misfit, given, plain, probe
from attncourse.checks.task import registry
from attncourse.grading.answers import right_answers, source_of

ROOT = Path(__file__).parent.parent
SEEDS = range(4)
TASKS = {task.name: task for task in checks.tasks()}
MISCONCEPTIONS = {
    f"{task.name}: {misconception.label}": (task, misconception)
    for task in TASKS.values()
    for misconception in task.misconceptions
}
RIGHT = {f"{answer.__name__}": (task, answer) for task in TASKS.values() for answer in right_answers(task)}


def each(cases):
    return pytest.mark.parametrize("case", cases.values(), ids=cases.keys())


def verdict(task, answer, seed=0, refusing=True):
    cases = task.cases(seed)
    return judge(task, cases, probe(task, answer, cases, refusing=refusing))


def as_written(function, name):
    """The function as it comes out of a student's notebook: compiled from its source."""
    namespace = {"math": math, "torch": torch}
    exec(compile(source_of(function, name), "<student>", "exec"), namespace)
    return namespace[name]


def failed(task, answer):
    with pytest.raises(checks.CheckFailed) as caught:
        task(answer)
    return caught.value


# What holds for every task ---------------------------------------------------------------


@each(TASKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_reference_passes(case, seed):
    result = verdict(case, case.reference, seed, refusing=False)
    assert result.passed, result.message


@each(RIGHT)
def test_right_answers_pass(case, capsys):
    task, answer = case
    answer = as_written(answer, task.name)
    task(answer)
    assert capsys.readouterr().out.startswith(f"{task.name}: right")
    for seed in SEEDS:
        result = verdict(task, answer, seed)
        assert result.passed, result.message


@each(TASKS)
def test_there_are_several_right_answers(case):
    assert len(right_answers(case)) >= 3


@each(MISCONCEPTIONS)
def test_misconception_fails_with_its_own_label(case):
    task, misconception = case
    for seed in SEEDS:
        result = verdict(task, misconception.function, seed, refusing=False)
        assert not result.passed
        assert result.misconception == misconception.label


@each(MISCONCEPTIONS)
def test_misconception_written_by_a_student_is_named(case):
    task, misconception = case
    error = failed(task, as_written(misconception.function, task.name))
    assert error.misconception == misconception.label
    assert f"This looks like: {misconception.label}." in " ".join(error.message.split())
    told = error.message[error.message.index("This looks like:") :]
    assert max(map(len, told.splitlines())) <= 80  # what JupyterLab shows beside its file browser
    unit, anchor = misconception.read.split("#")
    assert error.message.endswith(f"Read: book/{unit}.html#{anchor}")


@each(TASKS)
def test_labels_are_unique_and_at_least_four(case):
    labels = [misconception.label for misconception in case.misconceptions]
    assert len(set(labels)) == len(labels) >= 4


@each(TASKS)
def test_cases_are_fixed_by_the_seed(case):
    def flat(seed):
        return [plain(value) for item in case.cases(seed) for value in item.inputs.values()]

    def same(first, second):
        pairs = zip(first, second, strict=True)
        return all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in pairs)

    assert same(flat(0), flat(0))
    assert not same(flat(0), flat(1))


def accidents(task):
    """Answers that have the right form and nothing else."""
    reference = task.reference

    def like(fill):
        def answer(*inputs):
            value = reference(*inputs)
            return fill(value) if isinstance(value, Tensor) else type(value)(fill(torch.tensor(value)).item())

        return answer

    return {
        "zeros": like(torch.zeros_like),
        "ones": like(torch.ones_like),
        "NaN": like(
            lambda value: torch.full_like(value, math.nan) if value.is_floating_point() else value * 0 - 1
        ),
        "noise": like(lambda value: torch.rand(value.shape, dtype=torch.float64).to(value.dtype)),
        "the first input": lambda *inputs: inputs[0],
        "the last input": lambda *inputs: inputs[-1],
        "nothing": lambda *inputs: None,
        "a word": lambda *inputs: "attention",
        "a function": lambda *inputs: reference,
    }


# For this task a query of zeros is the answer.
RIGHT_BY_ACCIDENT = {("averaging_query", "zeros")}


@each(TASKS)
def test_nothing_passes_by_accident(case):
    for name, answer in accidents(case).items():
        if (case.name, name) not in RIGHT_BY_ACCIDENT:
            assert not verdict(case, answer, refusing=False).passed, name


# Queries that are to be found: of any number of features, and one of one feature says little.
# An order of one position is no order. The class is used by its layer, which has no value to squeeze,
# and the chunks are told by sizes that are all larger.
NEVER_OF_SIZE_ONE = {
    "picking_query",
    "averaging_query",
    "same_rows",
    "telling_permutation",
    "MultiHeadAttention",
    "chunked_attention",
}


@each(TASKS)
def test_a_lost_dimension_of_size_one_is_found(case):
    def squeezed(*inputs):
        value = case.reference(*inputs)
        return value.squeeze() if isinstance(value, Tensor) else value

    gives_tensors = isinstance(
        probe(case, case.reference, case.cases(0)[:1], refusing=False)[0].value, Tensor
    )
    if gives_tensors and case.name not in NEVER_OF_SIZE_ONE:
        assert not verdict(case, squeezed, refusing=False).passed


class EqualToEverything:
    def __eq__(self, other):
        return True

    __hash__ = None
    __ne__ = __lt__ = __gt__ = lambda self, other: False
    shape = property(lambda self: self)
    dtype = property(lambda self: self)

    def __getattr__(self, name):
        return lambda *args, **kwargs: self


@each(TASKS)
def test_an_object_equal_to_everything_fails(case):
    assert not verdict(case, lambda *inputs: EqualToEverything()).passed


@each(TASKS)
def test_the_message_never_holds_the_right_answer(case):
    """The reference's numbers do not appear in what a student with a wrong answer reads."""
    right = probe(case, case.reference, case.cases(0)[:1], refusing=False)[0].value
    parts = right.values() if isinstance(right, dict) else [right]
    numbers = [n for part in parts for n in (part.flatten().tolist() if isinstance(part, Tensor) else [part])]
    error = failed(case, lambda *inputs: None)
    for number in numbers:
        if isinstance(number, float) and number not in (0.0, 1.0):
            assert f"{number:.3g}" not in error.message.split("checks.")[0].partition("Came back")[2]


def test_the_unsolved_release_fails_every_check():
    seen = set()
    for path in sorted(ROOT.glob("exercises/*/*.ipynb")):
        namespace = {}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != "code":
                continue
            grade = cell.metadata.get("nbgrader", {})
            if grade.get("grade"):
                with pytest.raises(checks.CheckFailed, match="not written yet"):
                    exec(cell.source, namespace)
                seen.update(
                    node.attr for node in ast.walk(ast.parse(cell.source)) if isinstance(node, ast.Attribute)
                )
            else:
                # A cell that shows what the student's function does stops where that is unwritten.
                with contextlib.suppress(NotImplementedError):
                    exec(cell.source, namespace)
    assert seen == set(TASKS)


def test_the_solutions_pass_every_check():
    for path in sorted(ROOT.glob("solutions/*/*.ipynb")):
        namespace = {}
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "code":
                exec(cell.source, namespace)


# What a student reads --------------------------------------------------------------------

attention = checks.attention


def right(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda q, k, v: None, "Is there a `return`"),
        (lambda q, k, v: (right(q, k, v), v), "a tuple of 2"),
        (lambda q, k, v: right(q, k, v).tolist(), "a list of"),
        (lambda q, k, v: right(q, k, v).numpy(), "a NumPy array of shape (3, 2)"),
        (lambda q, k, v: np.float32(3), "the number 3"),
        (lambda q, k, v: right, "a function, not what the function computes"),
        (lambda q, k, v: object(), "an object of type object"),
        (lambda q, k, v: right(q, k, v)[..., :1], "the shape should be (3, 2)"),
        (lambda q, k, v: right(q, k, v) * math.nan, "all of its 6 numbers are NaN; the first is at [0, 0]"),
        (lambda q, k, v: right(q, k, v) / 0, "infinite"),
        (lambda q, k, v: right(q, k, v).half(), "the dtype should be float32"),
        (lambda q, k, v: right(q, k, v).long(), "the dtype should be float32"),
        (
            lambda q, k, v: right(q, k, v) + torch.eye(*q.shape[-2:])[..., : v.shape[-1]],
            "wrong; the first is at",
        ),
    ],
)
def test_wrong_things_get_a_sentence_about_exactly_that(answer, sentence):
    message = failed(attention, answer).message
    assert "Called with   query (3, 4), key (5, 4), value (5, 2), float32" in message
    assert sentence in " ".join(message.split())


def test_first_wrong_place_and_the_students_number_are_named():
    def one_number_off(query, key, value):
        output = right(query, key, value)
        output[..., 1, 0] = 12.5
        return output

    message = failed(attention, one_number_off).message
    assert "1 of its 6 numbers is wrong; the first is at [1, 0], where yours is 12.5" in " ".join(
        message.split()
    )


def test_only_the_failing_case_is_shown():
    def without_batch_only(query, key, value):
        return right(query, key, value) if query.dim() == 2 else right(query, key, value) * 2

    message = failed(attention, without_batch_only).message
    assert "Cases right   3 of 9; the inputs of this one are checks.attention.case(3)" in message
    assert attention.case(3)[0].shape == (2, 3, 4)
    with pytest.raises(ValueError, match="number is 0: attention has cases 1 to 9"):
        attention.case(0)


def test_changed_input_is_named():
    def scales_its_argument(query, key, value):
        query /= math.sqrt(query.shape[-1])
        return torch.softmax(query @ key.mT, -1) @ value

    assert "changes its argument `query` in place" in " ".join(
        failed(attention, scales_its_argument).message.split()
    )


def test_changed_input_is_named_when_the_result_is_wrong_too():
    def doubles_the_key(key, index, share):
        query = key[index]
        while torch.softmax(key @ query / math.sqrt(key.shape[1]), 0)[index] < share:
            query *= 2
        return query

    message = " ".join(failed(checks.picking_query, doubles_the_key).message.split())
    assert "less than 0.9" in message
    assert "Besides your function changes its argument `key` in place" in message


def test_a_mistake_keeps_its_name_when_an_input_is_changed_besides():
    def unscaled_and_in_place(query, key, value):
        query += 0.0
        key *= 1.5
        return torch.softmax(query @ key.mT / 1.5, -1) @ value

    assert failed(attention, unscaled_and_in_place).misconception == "the scores are not scaled"


def test_an_unwritten_part_is_not_taken_for_the_answer():
    def softargmax(scores):
        raise NotImplementedError()

    def attention_with_it(query, key, value):
        return softargmax(query @ key.mT) @ value

    message = failed(attention, attention_with_it).message
    assert "something that it needs is not written yet" in message
    assert "calls `test_an_unwritten_part_is_not_taken_for_the_answer`" not in message
    assert "calls `softargmax`" in message
    assert "not written yet" in failed(checks.softargmax, softargmax).message.splitlines()[0]


def test_the_same_exception_for_another_reason_is_not_taken_for_a_known_mistake():
    def einsum_without_batch(query, key, value):
        return torch.softmax(torch.einsum("qd,kd->qk", query, key) / math.sqrt(query.shape[-1]), -1) @ value

    error = failed(attention, einsum_without_batch)
    assert "RuntimeError: einsum()" in error.message
    assert error.misconception is None


def test_a_near_miss_is_called_close():
    def rounded(query, key, value):
        return torch.softmax(query @ key.mT * round(1 / math.sqrt(query.shape[-1]), 3), -1) @ value

    assert "it is close" in failed(attention, rounded).message
    assert "it is close" not in failed(attention, lambda q, k, v: right(q, k, v) * 1.5).message


def test_warnings_of_the_answer_stay_out_of_the_check(recwarn):
    def warns(query, key, value):
        warnings.warn("harmless", stacklevel=1)
        return right(query, key, value)

    attention(warns)
    assert not recwarn.list


def test_students_own_traceback_and_nothing_else():
    source = "def attention(query, key, value):\n    weights = query @ key\n    return weights @ value\n"
    namespace = {}
    linecache.cache["<cell 7>"] = (len(source), None, source.splitlines(True), "<cell 7>")
    exec(compile(source, "<cell 7>", "exec"), namespace)
    message = failed(attention, namespace["attention"]).message
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in message
    assert "  line 2, in attention\n    weights = query @ key" in message
    assert "probe.py" not in message
    assert "task.py" not in message


def test_ipython_shows_the_message_without_a_traceback():
    error = failed(attention, lambda q, k, v: None)
    shown = error._render_traceback_()
    assert [
        line.replace("\x1b[1m", "").replace("\x1b[0m", "") for line in shown
    ] == error.message.splitlines()
    assert isinstance(error, AssertionError)
    assert error.task == "attention"
    assert str(error) == error.message


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (torch.nn.functional.scaled_dot_product_attention, "scaled_dot_product_attention"),
        (lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v), "scaled_dot_product_attention"),
        (lambda q, k, v: nn.MultiheadAttention(4, 1)(q, q, q)[0], "multi_head_attention_forward"),
        (attncourse.attention, "attncourse's own attention"),
        (lambda q, k, v: attncourse.attention_weights(q, k) @ v, "attncourse's own attention_weights"),
        (lambda q, k, v: checks.attention.reference(q, k, v), "attncourse's own attention"),
    ],
)
def test_finished_functions_are_refused(answer, named):
    message = " ".join(failed(attention, answer).message.split())
    assert "not by this road" in message
    assert f"calls {named}, which does work that you are asked to write" in message


def test_refusal_cannot_be_caught():
    def tries(query, key, value):
        try:
            return nn.functional.scaled_dot_product_attention(query, key, value)
        except Exception:
            return right(query, key, value)

    assert "not by this road" in failed(attention, tries).message


@pytest.mark.parametrize(
    "answer",
    [
        lambda scores: torch.softmax(scores, -1),
        lambda scores: scores.softmax(-1),
        lambda scores: nn.functional.softmax(scores, dim=-1),
        lambda scores: nn.Softmax(-1)(scores),
        lambda scores: torch.special.softmax(scores, -1),
        lambda scores: scores.log_softmax(-1).exp(),
        lambda scores: torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)),
    ],
)
def test_softmax_is_refused_where_it_is_the_task(answer):
    assert "not by this road" in failed(checks.softargmax, answer).message


def test_a_result_in_place_of_the_function_is_explained():
    message = failed(attention, torch.zeros(3, 2)).message
    assert "checks.attention(attention)" in message


def test_an_interrupted_call_is_explained():
    def interrupted(query, key, value):
        raise KeyboardInterrupt

    assert "a loop in it that never ends" in " ".join(failed(attention, interrupted).message.split())


def test_leaving_python_is_a_failure_and_does_not_leave():
    def leaves(query, key, value):
        raise SystemExit

    assert "SystemExit" in failed(attention, leaves).message


def test_deep_recursion_is_cut_short():
    def attention_again(query, key, value):
        return attention_again(query, key, value)

    message = failed(attention, attention_again).message
    assert "RecursionError" in message
    assert len(message.splitlines()) < 30


# Finding checks --------------------------------------------------------------------------


def test_tasks_are_listed_by_unit():
    names = [task.name for task in checks.tasks("attention_operator")]
    assert names[0] == "single_query"
    assert all(task.unit == "attention_operator" for task in checks.tasks("attention_operator"))
    with pytest.raises(ValueError, match="unit is 'attention': expected one of attention_operator"):
        checks.tasks("attention")


def test_an_unknown_check_lists_the_known_ones():
    with pytest.raises(AttributeError, match=r"no check named 'atention'; the checks are .*attention"):
        checks.atention  # noqa: B018


def test_a_name_is_taken_once():
    with pytest.raises(ValueError, match="attention_operator has it already"):
        checks.Task("attention", attncourse.attention, checks.attention.cases)


def test_plain_keeps_data_and_describes_the_rest():
    tensor = torch.ones(2, requires_grad=True)
    assert not plain(tensor).requires_grad
    assert plain((1, [2.5, "a"], {"b": True}, None)) == (1, [2.5, "a"], {"b": True}, None)
    assert type(plain(np.float64(2))) is float
    assert type(plain(np.int32(2))) is int
    assert plain(np.bool_(True)) is True
    assert plain(np.ones((2, 3))) == Foreign("a NumPy array of shape (2, 3)")
    assert plain({1, 2}) == Foreign("an object of type set")


def test_fewer_answers_than_cases_never_pass():
    cases = attention.cases(0)
    answers = [Answer(right(*case.inputs.values())) for case in cases]
    assert judge(attention, cases, answers).passed
    with pytest.raises(ValueError, match="answers has 8 answers: expected one for each of the 9 cases"):
        judge(attention, cases, answers[:-1])


# What tasks may be made of ---------------------------------------------------------------


@pytest.fixture
def new_task():
    """Declare a task for one test only."""
    known = set(registry)
    yield checks.Task
    for name in set(registry) - known:
        del registry[name]


def test_a_given_function_may_do_what_the_answer_may_not(new_task):
    def twice(layer, x):
        return layer(layer(x))

    def call(answer, inputs):
        return answer(given(lambda x: attncourse.attention(x, x, x)), inputs["x"])

    task = new_task("twice", twice, lambda seed: [checks.Case({"x": torch.eye(3)})], call=call)
    task(twice)
    error = failed(task, lambda layer, x: twice(layer, attncourse.attention(x, x, x)))
    assert "not by this road" in error.message


def test_an_answer_that_does_not_fit_gets_the_tasks_own_sentence(new_task):
    class Layer(nn.Linear):
        pass

    def call(answer, inputs):
        layer = answer(2, 3)
        if not hasattr(layer, "weight"):
            raise Misfit("the layer has no parameter weight")
        return {name: tuple(parameter.shape) for name, parameter in layer.named_parameters()}

    task = new_task("layer", Layer, lambda seed: [checks.Case({})], call=call)
    task(Layer)
    message = failed(task, lambda *sizes: nn.ReLU()).message
    assert "What differs  the layer has no parameter weight" in message
    assert "Called with" not in message
    assert "under 'weight'" in failed(task, lambda a, b: nn.Linear(a, b + 1)).message
    assert (
        "the keys should be 'weight', 'bias'"
        in failed(task, lambda a, b: nn.Linear(a, b, bias=False)).message
    )


def test_masks_come_back_as_bool_and_unchanged(new_task):
    mask = torch.tensor([[True, False], [True, True]])
    task = new_task("keep", lambda mask: mask.clone(), lambda seed: [checks.Case({"mask": mask})])
    task(lambda mask: mask & mask)
    assert "the dtype should be bool" in failed(task, lambda mask: mask.float()).message
    words = " ".join(failed(task, lambda mask: torch.zeros_like(mask)).message.split())
    assert "where yours is False" in words
    assert (
        "changes its argument `mask`" in failed(task, lambda mask: mask.logical_not_().logical_not()).message
    )


def test_tuples_numbers_and_words_are_compared_part_by_part(new_task):
    task = new_task("parts", lambda: (1.5, "row", True), lambda seed: [checks.Case({})])
    task(lambda: (torch.tensor(1.5), "row", True))
    assert "as number 2 of 3: 'column'" in failed(task, lambda: (1.5, "column", True)).message
    assert "3 things were expected" in failed(task, lambda: (1.5, "row")).message
    assert "True or False was expected" in failed(task, lambda: (1.5, "row", 1)).message
    assert "a number was expected" in failed(task, lambda: (True, "row", True)).message
    assert "as number 1 of 3: None" in failed(task, lambda: (None, "row", True)).message


def test_a_count_is_exact_and_other_numbers_may_be_rounded(new_task):
    count = new_task("count", lambda: 10_000_000, lambda seed: [checks.Case({})])
    count(lambda: torch.tensor(10_000_000))
    assert "not the number" in failed(count, lambda: 10_000_001).message
    ratio = new_task("ratio", lambda: 1 / 3, lambda seed: [checks.Case({})])
    ratio(lambda: torch.tensor(1 / 3))
    assert "not the number" in failed(ratio, lambda: 0.333).message
    assert "not the number" in failed(ratio, lambda: math.nan).message


def test_a_tensor_without_dimensions_has_no_place(new_task):
    task = new_task("scalar", lambda: torch.tensor(2.0), lambda seed: [checks.Case({})])
    assert "it is wrong, yours is 3" in failed(task, lambda: torch.tensor(3.0)).message
    assert "it is NaN" in failed(task, lambda: torch.tensor(math.nan)).message
    assert "a sparse tensor" in failed(task, lambda: torch.eye(2).to_sparse()).message
