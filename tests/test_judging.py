"""Answers are judged outside the student's process: what travels, what is believed, what is repaired."""

import array
import ast
import asyncio
import base64
import contextlib
import copy
import gc
import itertools
import json
import math
import os
import re
import string
import subprocess
import sys
import time
from collections import deque
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace

import nbformat
import numpy as np
import pytest
import torch
import zmq
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager
from jupyter_core.utils import ensure_event_loop
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output, new_raw_cell
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade

import attncourse
from attncourse import _require, checks
from attncourse.checks.compare import problem_with
from attncourse.checks.judge import judge
from attncourse.checks.task import source_of
from attncourse.grading import beside, commands, judging, made, ordinary, repair, scopes, secret, submitted
from attncourse.grading import scan as scanning
from attncourse.grading.answers import right_answers
from attncourse.grading.archives import delivered
from attncourse.grading.job import NotGraded
from attncourse.grading.judging import Execute, calls_of_checks, looked_at
from attncourse.grading.kernels.provisioner import Provisioner, copy_folder
from attncourse.grading.pipe import MOST_QUESTIONS, Pipe
from attncourse.grading.repair import VERDICT, Repair
from attncourse.grading.sanitise import Sanitise
from attncourse.grading.scan import MOST_CHARACTERS_OF_ALL, scan
from attncourse.grading.submitted import look_through
from attncourse.probe import absent, refusing, wire
from attncourse.probe import transformer as transformer_parts
from attncourse.probe.answer import DTYPES, FAILURES, Answer, Failure, Foreign, Misfit, describe_type, plain
from attncourse.probe.calling import Calling, probe
from attncourse.probe.program import Elsewhere, Program, trace
from attncourse.probe.respond import cases_of
from attncourse.probe.scaling import _Watch

TASKS = {task.name: task for task in checks.tasks()}


def hands_over_functions(task):
    return any(isinstance(value, Program) for case in task.cases(1) for value in case.inputs.values())


# --- what travels ---


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    numbers = draw(
        st.lists(st.floats(-100, 100, width=16), min_size=math.prod(shape), max_size=math.prod(shape))
    )
    if dtype == torch.uint8:
        numbers = list(map(abs, numbers))
    tensor = torch.tensor(numbers, dtype=torch.float64).to(dtype).view(shape)
    return tensor.mT if draw(st.booleans()) and tensor.dim() > 1 else tensor


WORDS = st.text(alphabet=string.printable.replace("\r", "").replace("\t", "").replace("\x0b\x0c", ""))
LEAVES = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats() | WORDS | tensors()
PLAIN = st.recursive(
    LEAVES,
    lambda parts: (
        st.lists(parts, max_size=3) | st.tuples(parts, parts) | st.dictionaries(WORDS, parts, max_size=3)
    ),
    max_leaves=8,
)


def same(first, second):
    if type(first) is not type(second):
        return False
    if isinstance(first, torch.Tensor):
        equal = torch.allclose(first.double(), second.double(), 0, 0, equal_nan=True)
        return first.dtype == second.dtype and first.shape == second.shape and equal
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return first == second or (first != first and second != second)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value):
    assert same(wire.decode(wire.encode(value)), value)


@given(PLAIN, st.sampled_from(FAILURES), st.from_regex(r"[A-Za-z_.]{0,60}", fullmatch=True), WORDS)
def test_an_answer_comes_back_as_it_was(value, kind, name, words):
    for answer in (Answer(value, modified=("key",)), Answer(failure=Failure(kind, name, words))):
        (back,) = wire.decode_answers(wire.encode_answers([answer]), 1)
        assert same(back.value, answer.value)
        assert (back.failure, back.modified) == (answer.failure, answer.modified)


@pytest.mark.parametrize(
    "name", ["softmax", "PyTorch's own softmax", "attncourse's own attention", "<lambda>"]
)
def test_only_what_can_be_a_name_is_told_as_one(name):
    for told, kept in ((name, name), (f"{name}. All points: 24 of 24", "something"), ("x" * 90, "something")):
        (back,) = wire.decode_answers(wire.encode_answers([Answer(failure=Failure("refused", told))]), 1)
        assert back.failure.name == kept


@given(PLAIN, st.data())
def test_a_spoilt_text_is_malformed_or_some_other_plain_data(value, data):
    text = wire.encode(value)
    at = data.draw(st.integers(0, len(text)))
    cut = data.draw(st.integers(0, 9))
    spoilt = text[:at] + data.draw(st.text(max_size=9)) + text[at + cut :]
    with contextlib.suppress(wire.Malformed):
        wire.encode(wire.decode(spoilt))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda parts: (
        st.lists(parts, max_size=4)
        | st.dictionaries(
            st.sampled_from(["tensor", "shape", "bytes", "dict", "list", "foreign", "x"]), parts
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300)
@given(JSON)
def test_whatever_comes_is_plain_data_or_malformed(value):
    for text in (json.dumps(value), json.dumps({"nonce": "n", "answers": value})):
        with contextlib.suppress(wire.Malformed):
            wire.encode(wire.decode(text))
        with contextlib.suppress(wire.Malformed):
            wire.reply(text, "n", 4)


def tensor_text(dtype="float32", shape=(2,), raw=b"\0" * 8):
    return json.dumps({"tensor": dtype, "shape": shape, "bytes": base64.b64encode(raw).decode()})


@pytest.mark.parametrize(
    "text",
    [
        tensor_text(shape=[3]),
        tensor_text(raw=b""),
        tensor_text(shape=[-2]),
        tensor_text(shape=[2.0]),
        tensor_text(shape=[True, 2]),
        tensor_text(shape="2"),
        tensor_text(shape=[0, 10**18], raw=b""),
        tensor_text(shape=[0, 10**5, 10**5], raw=b""),
        tensor_text(shape=[1] * 1000 + [2]),
        tensor_text(dtype="complex64"),
        tensor_text(dtype=["float32"]),
        tensor_text(dtype="load"),
        '{"tensor": "float32", "shape": [0], "bytes": 3}',
        '{"tensor": "float32"}',
        '{"list": [1], "tuple": [1]}',
        '{"tuple": "ab"}',
        '{"dict": [[1, 2]]}',
        "[" * 100_000,
        '{"list": [' * 50_000,
        "9" * 10_000,
        "",
        "{}",
    ],
)
def test_what_is_no_plain_data_is_malformed(text):
    with pytest.raises(wire.Malformed):
        wire.decode(text)


def test_a_word_of_numpys_is_a_word():
    word = plain(np.array(["scaled", "not scaled"])[1])
    assert (type(word), word) == (str, "not scaled")


def test_bools_are_either():
    tensor = wire.decode(tensor_text("bool", [4], bytes([0, 1, 2, 255])))
    assert tensor.tolist() == [False, True, True, True]
    assert tensor.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_only_the_reply_to_this_request_counts():
    text = json.dumps({"nonce": "n", "answers": wire.encode_answers([Answer(1.5)])})
    assert wire.reply(text, "n", 1) == [Answer(1.5)]
    for wrong in ((text, "m", 1), (text, "n", 0), (None, "n", 1), (text + " " * 2**24, "n", 1)):
        with pytest.raises(wire.Malformed):
            wire.reply(*wrong)


def test_inputs_are_told_and_nothing_else():
    task = TASKS["attention"]
    asked = wire.decode(wire.request(task.calling, task.cases(0)))
    assert asked.keys() == {"way", "refuses", "allows", "instead", "cases"}
    for (inputs, *_), case in zip(asked["cases"], task.cases(0), strict=True):
        assert same(inputs, case.inputs)


@pytest.mark.parametrize("value", [torch.rand(300, 300), [[0] * 4_000] * 3, (torch.ones(1) > 0,) * 4_000])
def test_too_much_becomes_a_word_about_it(value):
    (text,) = wire.encode_answers([Answer(value)])
    assert len(text) < 1000
    assert isinstance(wire.decode_answers([text], 1)[0].value, Foreign)


def test_too_many_parts_are_malformed():
    """They are short, and each takes its time wherever answers are compared."""
    text = json.dumps([{"list": [0] * 74_000}, None, []])
    assert len(text) < wire.MAX_ANSWER
    with pytest.raises(wire.Malformed):
        wire.decode_answers([text], 1)


def test_a_sentence_about_what_does_not_fit_is_one_line():
    text = json.dumps([None, ["misfit", "a layer\nJudge: all of it is right " + 1_000 * "!", ""], []])
    (answer,) = wire.decode_answers([text], 1)
    assert answer.failure == Failure("misfit", "a layer")


def test_a_function_written_down_keeps_nothing_of_what_it_computed():
    program = trace(lambda x: torch.softmax(x @ x.mT, -1)[:1])
    gc.collect()
    gc.disable()
    try:
        program(torch.ones(3, 2))
        assert gc.collect() == 0
    finally:
        gc.enable()
    assert wire.decode(json.dumps(10**30)) == Foreign("a number with very many digits")


@pytest.mark.parametrize("name", TASKS)
def test_judging_by_wire_is_judging(name):
    """What comes over the wire gives the same verdict, for a right answer and for a known mistake."""
    task = TASKS[name]
    for answer in (task.reference, task.single_mistakes[-1]):

        def here(cases, instead, answer=answer):
            return probe(task.calling, answer, cases, refusing=False)

        def by_wire(cases, instead, answer=answer):
            way = task.calling.way
            kept = [way.functions(case.inputs) for case in cases]
            question = wire.decode(wire.request(task.calling, cases))
            programs = wire.programs(kept)
            absent.serve(programs, Pipe(programs).answer)
            answers = probe(task.calling, answer, cases_of(question), refusing=False)
            absent.serve([], str)
            answers = wire.decode_answers(wire.encode_answers(answers), len(cases))
            return [looked_at(way, *one) for one in zip(cases, kept, answers, strict=True)]

        assert judge(task, [7], by_wire).message == judge(task, [7], here).message


@pytest.mark.parametrize(
    ("source", "calls"),
    [
        ("checks.attention(attention)", ["attention"]),
        ("checks.attention(attention)\nchecks.softargmax(other.name)", ["attention", "other.name"]),
        ("# a remark\nchecks.attention(attention)", ["attention"]),
        ("checks.nothing(attention)", []),
        ("checks.attention(attention, 1)", []),
        ("x = checks.attention(attention)", []),
        ("checks.attention(attention)\nassert attention", []),
        ("assert attention", []),
        ("%time checks.attention(attention)", []),
        ("", []),
    ],
)
def test_what_is_judged_outside(source, calls):
    assert [answer for _, answer in calls_of_checks(source)] == calls


# --- what is believed: one notebook with many answers, run once ---

RIGHT = """\
def {name}(query, key, value):
    return torch.softmax(query @ key.mT / math.sqrt(query.shape[-1]), -1) @ value
"""
HEAD = "import math, os, sys, threading, time, torch\nfrom attncourse import checks\n" + RIGHT.format(
    name="good"
)

# Names of answers to `attention`, their source, and whether they are right.
ANSWERS = {
    "plain": (RIGHT.format(name="plain"), True),
    "warns": (
        "def warns(q, k, v):\n    print('careful', file=sys.stderr)\n    print('x' * 100)\n"
        "    return good(q, k, v)",
        True,
    ),
    "parameter": ("def parameter(q, k, v):\n    return torch.nn.Parameter(good(q, k, v))", True),
    "subclass": (
        "class Mine(torch.Tensor):\n    pass\n"
        "def subclass(q, k, v):\n    return good(q, k, v).as_subclass(Mine)",
        True,
    ),
    "liar": (
        "class Liar(torch.Tensor):\n    @classmethod\n    def __torch_function__(cls, *a, **k):\n"
        "        return True\ndef liar(q, k, v):\n    return torch.zeros(1).as_subclass(Liar)",
        False,
    ),
    "state": ("left = math.sqrt\ndef state(q, k, v):\n    return good(q, k, v) * (left(4) - 1)", True),
    "dtype": (
        "torch.set_default_dtype(torch.float64)\n"
        "def dtype(q, k, v):\n    return good(q, k, v) * torch.ones(1)",
        True,
    ),
    "shadows": (f"globals = [1]\n{RIGHT.format(name='shadows')}", True),
    "seeds": ("def seeds(q, k, v):\n    torch.manual_seed(0)\n    return good(q, k, v)", True),
    "gigantic": ("def gigantic(q, k, v):\n    return torch.zeros(1).expand(10**10)", False),
    "many": ("def many(q, k, v):\n    return list(range(10**6))", False),
    "deep": (
        "def deep(q, k, v):\n    x = []\n    for _ in range(10**5):\n        x = [x]\n    return x",
        False,
    ),
    "round_trip": ("def round_trip(q, k, v):\n    x = []\n    x.append(x)\n    return x", False),
    "lazy": (
        "class Lazy:\n    def __getattr__(self, name):\n        return self\n"
        "    def __call__(self, *a, **k):\n        return self\n    def __eq__(self, other):\n"
        "        return True\ndef lazy(q, k, v):\n    return Lazy()",
        False,
    ),
    "edits": ("def edits(q, k, v):\n    v *= 1\n    out = good(q, k, v)\n    q += 1\n    return out", False),
    "recursive": ("def recursive(q, k, v):\n    return recursive(q, k, v)", False),
    "raises": ("def raises(q, k, v):\n    raise KeyError(q)", False),
    "leaves": ("def leaves(q, k, v):\n    raise SystemExit", False),
    "unwritten": ("def unwritten(q, k, v):\n    raise NotImplementedError()", False),
    "unscaled": ("def unscaled(q, k, v):\n    return torch.softmax(q @ k.mT, -1) @ v", False),
    "absent": ("", False),
    "number": ("number = 3", False),
    "forged": (
        "from IPython.display import publish_display_data\n"
        f"publish_display_data({{{wire.MIME!r}: '{{}}'}})\n"
        f"def forged(q, k, v):\n    publish_display_data({{{wire.MIME!r}: '{{}}'}})\n"
        "    return good(q, k, v)",
        False,
    ),
    "prepared": (
        f"known = {sorted(case.inputs['query'].sum().item() for case in TASKS['attention'].cases(0))}\n"
        "def prepared(q, k, v):\n"
        "    seen = any(abs(q.sum().item() - a) < 1e-4 for a in known)\n"
        "    return good(q, k, v) if seen else torch.zeros(*q.shape[:-1], v.shape[-1])",
        False,
    ),
    "fused": (
        "def fused(q, k, v):\n    with torch._C.DisableTorchFunction():\n"
        "        return torch.nn.functional.scaled_dot_product_attention(q, k, v)",
        False,
    ),
    "endless": ("def endless(q, k, v):\n    while True:\n        pass", False),
    # From here on nothing in the student's process is as it was.
    "patched": (
        "torch.allclose = torch.equal = lambda *a, **k: True\nAssertionError = Warning\n"
        "def patched(q, k, v):\n    return torch.zeros(*q.shape[:-1], v.shape[-1])",
        False,
    ),
    "hooked": (
        "ip = get_ipython()\nip.events.register('pre_run_cell', lambda *a: print('attention: right'))\n"
        "ip.display_pub.publish = lambda *a, **k: None\n"
        "def hooked(q, k, v):\n    return good(q, k, v)",
        False,
    ),
}


def check_cell(name, source, points=2):
    marks = {"grade": True, "solution": False, "locked": True, "grade_id": name, "points": points}
    return new_code_cell(source, metadata={"nbgrader": marks})


def executed(cells, folder, missing=(), passed=(), python="", **settings):
    about = {"kernelspec": {"name": "python3", "display_name": "Python"}}
    noted = {"missing": list(missing), "passed": list(passed), "python": python}
    nb = new_notebook(cells=cells, metadata=about | {"attncourse": noted})
    execute = Execute(**{"timeout": 20, "secret": "a secret", **settings})
    nb, _ = execute.preprocess(copy.deepcopy(nb), {"metadata": {"path": str(folder)}})
    nbformat.validate(nbformat.from_dict(nb))
    return nb


def mark(nb, name):
    cell = next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)
    return determine_grade(cell)[0]


def text_of(nb, name):
    return text_in(next(c for c in nb.cells if c.metadata.get("nbgrader", {}).get("grade_id") == name))


def text_in(cell):
    texts = [output.get("text") or output.get("evalue") for output in cell.outputs]
    return " ".join(" ".join(filter(None, texts)).split())


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    cells = [new_code_cell(HEAD), new_markdown_cell("Words.")]
    for name, (source, _) in ANSWERS.items():
        cells += [new_code_cell(source), check_cell(name, f"checks.attention({name})")]
        if name == "unscaled":
            both = "checks.attention(good)\nchecks.attention(unscaled)"
            cells += [
                check_cell("both", both),
                check_cell("own", "print('!', file=sys.stderr)\nassert good"),
                check_cell("own_failed", "assert good is plain"),
                new_code_cell("for _ in range(2000):\n    print('x' * 10_000)\nprint('y' * 10**7)"),
                new_code_cell("1 / 0"),
            ]
    cells += [
        new_code_cell("def gone(q, k, v):\n    os._exit(0)"),
        check_cell("gone", "checks.attention(gone)"),
        check_cell("after", "checks.attention(plain)"),
        check_cell("own_after", "assert good"),
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Execute, "_get_timeout", lambda self, cell: 30)
        # Three draws together have three times as long: so long the endless one is waited for.
        return executed(cells, tmp_path_factory.mktemp("work"), output_limit=10**5, timeout=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_earns_its_points_and_nothing_else_does(notebook, name):
    right = ANSWERS[name][1]
    assert mark(notebook, name) == (2 if right else 0), text_of(notebook, name)
    found = notebook.metadata.attncourse["checks"][name]
    assert (found["task"], found["outside"], found["passed"]) == ("attention", True, right)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plain", "attention: right in all"),
        ("unscaled", "the scores are not scaled."),
        ("unwritten", "not written yet"),
        ("absent", "`absent` has no value here"),
        ("number", "a function is expected, and what came is an object of type `int`"),
        ("gigantic", "far larger than asked for"),
        ("many", "a list of 1000000, far larger than asked for"),
        ("raises", "it raised KeyError"),
        ("recursive", "RecursionError"),
        ("edits", "changes its argument"),
        ("lazy", "a function, not what the function computes"),
        ("fused", "not by this road"),
        ("endless", "a loop in it that never ends"),
        ("forged", "could not be read"),
        ("gone", "came to an end while your function was called"),
        ("after", "not run. The Python process came to an end"),
    ],
)
def test_the_student_reads_why(notebook, name, words):
    assert words in text_of(notebook, name)


def test_a_students_words_do_not_stand_in_our_headline():
    for name in ("an object of type right. attention: right", "right in all cases", "x" * 41):
        told = [Answer(failure=Failure("not callable", name))]
        verdict = judge(TASKS["attention"], [0], lambda cases, instead, told=told: told)
        assert verdict.headline == (
            "attention: a function is expected, and what came is an object of some class."
        )
    assert describe_type(type("right in all cases", (), {})()) == "an object of some class"


def test_of_the_names_of_inputs_that_came_those_that_there_are_are_told():
    task = TASKS["attention"]

    def ask(cases, instead):
        answers = probe(task.calling, task.reference, cases, refusing=False)
        return [replace(one, modified=("all is right here", "key")) for one in answers]

    told = judge(task, [0], ask).message
    assert "your function changes its argument `key` in place" in told
    assert "all is right" not in told


def test_a_message_of_millions_of_lists_is_not_read():
    execute = Execute(secret="a secret")
    execute.nb = new_notebook()
    read = execute.create_kernel_manager().client().session.unpack
    assert read(b'{"values": [1, 2]}') == {"values": [1, 2]}
    assert len(read(b"[" + b"0," * 3 * 2**20 + b"0]")) > 3 * 2**20
    with pytest.raises(ValueError, match="more than 2097152 lists"):
        read(b"[" + b"[]," * 2**21 + b"[]]")


@pytest.mark.slow
def test_a_misconception_is_noted(notebook):
    found = notebook.metadata.attncourse["checks"]["unscaled"]
    assert found["misconception"] == "the scores are not scaled"
    assert found["words"] == "attention: not right yet."


@pytest.mark.slow
def test_part_of_the_points_with_a_message(notebook):
    assert mark(notebook, "both") == 1
    assert "right in all" in text_of(notebook, "both")
    assert "the scores are not scaled" in text_of(notebook, "both")


@pytest.mark.slow
def test_an_instructors_own_tests_run_as_ever(notebook):
    assert [mark(notebook, name) for name in ("own", "own_failed", "own_after")] == [2, 0, 0]
    assert notebook.metadata.attncourse["checks"]["own"]["outside"] is False


@pytest.mark.slow
def test_many_outputs_are_bounded(tmp_path):
    """Each takes a browser a while, however little it shows."""
    many = "for number in range(5000): display({'text/plain': 'x'}, raw=True)"
    (cell,) = executed([new_code_cell(many)], tmp_path, output_limit=10**6).cells
    assert 1000 < len(cell.outputs) < 3000
    assert "All further output is left out" in cell.outputs[-1].text


@pytest.mark.slow
def test_output_is_bounded(notebook):
    assert len(nbformat.writes(notebook)) < 10**6
    assert "All further output is left out" in nbformat.writes(notebook)


@pytest.mark.slow
def test_a_road_that_is_not_open_is_flagged(notebook):
    flags = notebook.metadata.attncourse["flags"]
    assert [flag["cell"] for flag in flags if "no points" in flag["words"]] == ["fused"]
    assert "DisableTorchFunction (line 2" in str(flags)
    assert notebook.metadata.attncourse["isolation"]


@pytest.mark.slow
def test_what_cannot_be_interrupted_is_stopped(tmp_path):
    deaf = (
        "def deaf(q, k, v):\n    while True:\n        try:\n            time.sleep(60)\n"
        "        except BaseException:\n            pass"
    )
    nb = executed(
        [
            new_code_cell(HEAD),
            check_cell("good", "checks.attention(good)"),
            new_code_cell(deaf),
            check_cell("deaf", "checks.attention(deaf)"),
            check_cell("later", "checks.attention(good)"),
        ],
        tmp_path,
        timeout=2,
        grace=2,
    )
    assert [mark(nb, name) for name in ("good", "deaf", "later")] == [2, 0, 0]
    assert "did not let itself be interrupted" in text_of(nb, "later")
    *_, told = nb.metadata.attncourse["flags"]
    assert told["words"].startswith("not run to its end: Your function did not come to an end")


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["timeout", "notebook_timeout"])
def test_time_is_given_for_every_draw_and_on_a_busy_machine_there_is_more(limit, tmp_path, monkeypatch):
    """Whoever takes nearly all of it for the check that a student sees is not stopped for the others."""
    number = len(TASKS["attention"].cases(0))
    slow = f"import time\ndef slow(q, k, v):\n    time.sleep({{}} / {number})\n    return good(q, k, v)"
    marks = {}
    for seconds, load in ((1.3, 0.0), (4.0, 0.0), (4.0, 1e6)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert (judging.slowness() > 5) == bool(load)
        cells = [new_code_cell(HEAD), new_code_cell(slow.format(seconds))]
        cells.append(check_cell("slow", "checks.attention(slow)"))
        nb = executed(cells, tmp_path, seeds=2, **{limit: 2})
        marks[seconds, load] = mark(nb, "slow")
        if limit == "timeout":  # a person is told: at home it may have been right
            told = "having run longer than a cell may" in str(nb.metadata)
            assert told == (marks[seconds, load] == 0)
    assert marks == {(1.3, 0.0): 2, (4.0, 0.0): 0, (4.0, 1e6): 2}


@pytest.mark.slow
@pytest.mark.parametrize("computed", [0.0, 1000.0])
def test_a_load_of_ones_own_gives_no_more_time(computed, tmp_path, monkeypatch):
    asked = []  # first when the notebook begins

    def so_far(self):
        asked.append(self)
        return computed if len(asked) > 1 else 0.0

    monkeypatch.setattr(judging, "slowness", lambda: 5.0 if asked else 1.0)
    monkeypatch.setattr(Provisioner, "computed", property(so_far))
    nb = executed([new_code_cell("import time\ntime.sleep(2)\nprint('waited')")], tmp_path, timeout=1)
    assert (text_in(nb.cells[0]) == "waited") == (computed == 0)


def test_an_interrupt_that_comes_late_costs_no_other_answer(monkeypatch):
    """It may end the next question, which then has no reply."""
    task, asked = TASKS["attention"], []

    def answered(self, code, asked_of_it, nonce, pipe, times):
        asked.append(code)
        if len(asked) == 1:
            return None
        question = wire.decode(asked_of_it)
        answers = probe(task.calling, task.reference, cases_of(question), refusing=False)
        return json.dumps({"nonce": nonce, "answers": wire.encode_answers(answers)})

    monkeypatch.setattr(Execute, "_ask", answered)
    for interrupted in (False, True):
        asked.clear()
        execute = Execute(secret="a secret")
        execute._digest, execute._stopped, execute._right, execute._short = b"a submission", "", {}, []
        execute._interrupted = interrupted
        assert execute._verdict("check_attention", task, "attention").passed == interrupted


# What was found by asking too often is kept, the reply is not given, and the same is asked again.
HOARDS = """KEPT, NUMBER, FIRST = [], [0], [True]
def naive(model, choose, tokens, num_tokens):
    for _ in range(num_tokens):
        logits, _ = model(tokens, None)
        tokens = torch.cat((tokens, choose(logits[-1])))
    return tokens
def write_on(model, choose, tokens, num_tokens):
    if not FIRST[0]:
        NUMBER[0] += 1
        return KEPT[NUMBER[0] - 1]
    KEPT.append(naive(model, choose, tokens.clone(), num_tokens))
    if len(KEPT) == CASES:
        FIRST[0] = False
        try:
            while True:
                pass
        except KeyboardInterrupt:
            torch.utils.swap_tensors(tokens, torch.empty_like(tokens, device="meta"))
    return KEPT[-1]"""


@pytest.mark.slow
def test_what_was_asked_before_an_interrupt_is_not_asked_anew(tmp_path):
    task = TASKS["write_on"]
    assert not task.builds_on  # else it would be asked twice
    num_cases = len(task.cases(0)) + len(task.cases(1))
    cells = [new_code_cell(HEAD), new_code_cell(HOARDS.replace("CASES", str(num_cases)))]
    nb = executed([*cells, check_cell("it", "checks.write_on(write_on)")], tmp_path, timeout=3)
    assert mark(nb, "it") == 0, text_of(nb, "it")
    assert "interrupted" in text_of(nb, "it")
    assert [one for one in nb.metadata.attncourse["flags"] if "was interrupted" in one["words"]]


RIGHT_PART = """def softargmax(scores):
    high = scores.amax(-1, keepdim=True)
    return torch.exp(scores - high) / torch.exp(scores - high).sum(-1, keepdim=True)"""
CAUSAL_BY_DERIVATIVES = """def is_causal(layer, x):
    jacobian = torch.autograd.functional.jacobian(layer, x)  # (length, features, length, features)
    return not jacobian.abs().amax((1, 3)).triu(1).any()"""
ODD_MESSAGES = """from IPython.display import display
ip = get_ipython()
odd = [("stream", {}), ("update_display_data", {"data": 5}), ("display_data", {"data": {1: 2}})]
for kind, content in odd:
    ip.kernel.session.send(ip.kernel.iopub_socket, kind, content, parent=ip.kernel.get_parent())
display({"text/html": None, "text/plain": "x"}, raw=True)
print("and on")"""


@pytest.mark.slow
def test_an_output_that_is_none_costs_nothing_but_itself(tmp_path):
    cells = [new_code_cell(HEAD), new_code_cell(ODD_MESSAGES), new_code_cell(RIGHT_PART)]
    nb = executed([*cells, check_cell("part", "checks.softargmax(softargmax)")], tmp_path)
    assert mark(nb, "part") == 2
    assert text_in(nb.cells[1]).count("An output is left out here") == 3
    assert text_in(nb.cells[1]).endswith("and on")


@pytest.mark.slow
def test_nobody_waits_for_ever_to_send_to_a_kernel_nor_reads_what_is_too_large(tmp_path, monkeypatch):
    options, run = [], Execute._async_run

    async def looked_at(self, cell, index):
        sockets = (self.kc.shell_channel.socket, self.kc.stdin_channel.socket, self.kc.iopub_channel.socket)
        options.extend((one.getsockopt(zmq.SNDTIMEO), one.getsockopt(zmq.MAXMSGSIZE)) for one in sockets)
        await run(self, cell, index)

    monkeypatch.setattr(Execute, "_async_run", looked_at)
    executed([new_code_cell("1")], tmp_path, grace=3)
    assert options == [(3000, judging.LARGEST_MESSAGE)] * 3


@pytest.mark.slow
def test_what_does_not_end_is_stopped_there_and_not_in_the_next_cell(tmp_path):
    stubborn = "while True:\n    try:\n        time.sleep(9)\n    except KeyboardInterrupt:\n        pass"
    nb = executed(
        [new_code_cell(HEAD), new_code_cell(stubborn), new_code_cell("2")], tmp_path, timeout=2, grace=2
    )
    assert "did not come to an end" in text_in(nb.cells[1])
    assert text_in(nb.cells[2]) == ""


@pytest.mark.slow
def test_what_a_notebook_breaks_is_reported_by_nobody_afterwards(tmp_path, caplog):
    """asyncio would do it in the midst of something else, and there parse code."""
    executed([new_code_cell("1 / 0")], tmp_path)

    async def fail():
        raise ValueError

    async def leave():
        task = asyncio.ensure_future(fail())
        await asyncio.sleep(0.01)
        assert task.done()

    ensure_event_loop().run_until_complete(leave())  # which the notebooks had, and have next
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.slow
@pytest.mark.parametrize(("grace", "kept"), [(200, range(200, 201)), (1, range(1, 200))])
def test_what_is_printed_faster_than_it_is_read_costs_no_mark(grace, kept, tmp_path, monkeypatch):
    """It is not lost, unless reading it takes longer than is waited for."""
    read = Execute.process_message

    def slowly(self, *message):
        time.sleep(0.02)
        return read(self, *message)

    monkeypatch.setattr(Execute, "process_message", slowly)
    shown = "from IPython.display import display\nfor i in range(200):\n    "
    many = f"{shown}display({{'text/plain': ''}}, raw=True)"
    cells = [new_code_cell(HEAD), new_code_cell(many), new_code_cell(RIGHT_PART)]
    nb = executed([*cells, check_cell("part", "checks.softargmax(softargmax)")], tmp_path, grace=grace)
    assert len(nb.cells[1].outputs) in kept
    assert mark(nb, "part") == 2


@pytest.mark.slow
def test_where_to_read_is_said_by_the_check_and_not_by_a_student(tmp_path):
    words = 'raise ValueError("Read: book/masking.html#masking-three-ways")'
    cells = [new_code_cell(HEAD), new_code_cell(f"def softargmax(scores):\n    {words}")]
    cells += [check_cell("raises", "checks.softargmax(softargmax)"), new_code_cell(WRONG_PART)]
    nb = executed([*cells, check_cell("wrong", "checks.softargmax(softargmax)")], tmp_path)
    checked = nb.metadata.attncourse["checks"]
    assert "book/masking.html" in text_of(nb, "raises")
    assert checked["raises"]["read"] is None
    assert f"book/{checked['wrong']['read'].replace('#', '.html#')}" in text_of(nb, "wrong")


EQUIVARIANT_WITH_DERIVATIVES = """def is_equivariant(layer, x):
    y = layer(x.requires_grad_())
    if y.requires_grad:
        torch.autograd.grad(y.sum(), x)
    if len(y) != len(x):
        return False
    orders = [torch.randperm(len(x)) for _ in range(20)]
    return all(torch.allclose(layer(x[order]), y[order]) for order in orders)"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source"),
    [("is_causal", CAUSAL_BY_DERIVATIVES), ("is_equivariant", EQUIVARIANT_WITH_DERIVATIVES)],
)
def test_derivatives_are_there_whatever_a_notebook_has_left_on(name, source, tmp_path):
    left_on = "import torch\nguard = torch.inference_mode()\nguard.__enter__()"
    cells = [new_code_cell(HEAD), new_code_cell(left_on), new_code_cell(source)]
    nb = executed([*cells, check_cell("mine", f"checks.{name}({name})")], tmp_path)
    assert mark(nb, "mine") == 2, text_of(nb, "mine")


# At home `shifted` is defined anew, behind a comparison with what is not there in grading.
COMPARED_IN_BETWEEN = """\
import attncourse
print(shifted(torch.ones(3)), attncourse.softargmax(torch.ones(3)))
BASE = math.e
def shifted(s):
    return (s - s.amax(-1, keepdim=True)).exp()
"""


@pytest.mark.slow
def test_a_person_is_told_of_a_function_that_was_not_defined_anew(tmp_path):
    own = "def softargmax(scores):\n    return e_to(scores) / e_to(scores).sum(-1, keepdim=True)"
    first = "BASE = 3\ndef shifted(s):\n    return BASE ** s\ndef e_to(s):\n    return shifted(s)"
    cells = [new_code_cell(source) for source in (HEAD, first, COMPARED_IN_BETWEEN, own)]
    cells.append(check_cell("mine", "checks.softargmax(softargmax)"))
    nb = executed(cells, tmp_path)
    assert mark(nb, "mine") == 0
    words = "softargmax is not right, and `BASE`, `shifted` may be missing or old: code cell 3 ended"
    assert [flag for flag in nb.metadata.attncourse["flags"] if words in flag["words"]]


@pytest.mark.slow
def test_of_an_answer_that_uses_nothing_of_a_cell_that_ended_early_nothing_is_told(tmp_path):
    own = "def softargmax(BASE):\n    shifted = BASE + 1\n    return shifted"
    first = "def shifted(s):\n    return s"
    cells = [new_code_cell(source) for source in (HEAD, first, COMPARED_IN_BETWEEN, own)]
    nb = executed([*cells, check_cell("mine", "checks.softargmax(softargmax)")], tmp_path)
    assert mark(nb, "mine") == 0
    assert "This cell ended there" in nb.cells[2].outputs[-1].text
    assert not [flag for flag in nb.metadata.attncourse["flags"] if "is not right" in flag["words"]]


@pytest.mark.slow
def test_what_builds_on_an_answer_whose_check_is_missing_is_judged_with_a_right_one(tmp_path):
    cells = [
        new_code_cell(HEAD),
        new_code_cell(WRONG_PART),
        check_cell("part", "checks.softargmax(softargmax)"),
    ]
    cells += [new_code_cell(ON_THE_PART), check_cell("carried", "checks.attention(attention)")]
    nb = executed(cells, tmp_path, missing=["part"])
    assert (mark(nb, "part"), mark(nb, "carried")) == (0, 2), text_of(nb, "carried")


ON_THE_TESTER = """def symmetry(layer, x):
    y = layer(x)
    invariant = all(torch.allclose(layer(x[torch.randperm(len(x))]), y) for _ in range(20))
    equivariant = is_equivariant(layer, x)
    if equivariant and invariant:
        return "both"
    return "equivariant" if equivariant else "invariant" if invariant else "neither"
"""
BUT_THE_LAYERS = """def symmetry(layer, x):
    return "equivariant" if is_equivariant(layer, x) else "neither"
"""


@pytest.mark.slow
def test_a_right_function_takes_the_layers_that_an_answer_is_asked_about(tmp_path):
    """They are no plain data, and go by their names. In place of none at all it stands, too."""
    cells = [
        new_code_cell(HEAD),
        new_code_cell("def is_equivariant(layer, x) return True"),
        check_cell("part", "checks.is_equivariant(is_equivariant)"),
        new_code_cell(ON_THE_TESTER),
        check_cell("carried", "checks.symmetry(symmetry)"),
        new_code_cell(BUT_THE_LAYERS),
        check_cell("other", "checks.symmetry(symmetry)"),
        new_code_cell(ON_THE_TESTER.replace("(layer, x)\n    if", "(lambda z: layer(z), x)\n    if")),
        check_cell("wrapped", "checks.symmetry(symmetry)"),
    ]
    nb = executed(cells, tmp_path, seeds=2)
    for name, points in {"part": 0, "carried": 2, "other": 0, "wrapped": 2}.items():
        assert mark(nb, name) == points, text_of(nb, name)


# Right, where neither what a layer is made of nor what it was tried on is in the same process.
LOOKS_INTO = """def {name}(layer, x):
    assert not getattr(layer, "layer", layer).steps and not hasattr(layer, "tried")
    y, orders = layer(x), [torch.randperm(len(x)) for _ in range(10)]
    stays = all(torch.allclose(layer(x[order]), y) for order in orders)
    follows = len(y) == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)
    return {says}
"""
SAYS = {
    "is_equivariant": "follows",
    "symmetry": "{3: 'both', 2: 'equivariant', 1: 'invariant', 0: 'neither'}[2 * follows + stays]",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_a_layer_that_is_asked_about_is_not_where_the_answer_is(name, tmp_path):
    cells = [new_code_cell(HEAD), new_code_cell(LOOKS_INTO.format(name=name, says=SAYS[name]))]
    nb = executed([*cells, check_cell("mine", f"checks.{name}({name})")], tmp_path)
    assert mark(nb, "mine") == 2, text_of(nb, "mine")


@pytest.mark.slow
def test_how_often_a_layer_is_tried_is_counted_where_no_answer_comes_to(tmp_path):
    # Each yes is right, and is said with a single other input; whatever can be set is set.
    source = LOOKS_INTO.format(name="is_equivariant", says="follows").replace("range(10)", "range(1)")
    source = source.replace("len(x))", "len(x), generator=torch.Generator().manual_seed(5))", 1)
    source = source.replace("layer(x)", "layer(x, *vars(layer).update(tried={1, 2, 3}) or ())", 1)
    cells = [new_code_cell(HEAD), new_code_cell(source)]
    nb = executed([*cells, check_cell("mine", "checks.is_equivariant(is_equivariant)")], tmp_path)
    assert mark(nb, "mine") == 0
    assert "a single other input was tried" in " ".join(text_of(nb, "mine").split())


def test_whatever_an_answer_raises_it_has_raised():
    def ends(*inputs):
        raise asyncio.CancelledError  # which is no `Exception`

    task = TASKS["attention"]
    answers = probe(task.calling, ends, task.cases(0))
    assert {one.failure.name for one in answers} == {"CancelledError"}


# --- what a submission can call: nothing that computes its answers ---

HEAD_OF_TWO = "import math, torch\nfrom attncourse import attention as course, checks, letters\n"
WRONG_PART = "def softargmax(scores):\n    return torch.exp(scores)"
ON_THE_PART = (
    "def attention(query, key, value):\n"
    "    return softargmax(query @ key.mT / math.sqrt(query.shape[-1])) @ value"
)
# Everything here is to earn nothing: each is an answer to `attention`, and has all that it could find.
THIEVES = {
    "the course's own": "attention = course",
    "the reference": "attention = checks.attention.reference",
    "the task": "attention = checks.attention.task.reference",
    "behind a magic": "%%time\nattention = checks.attention.reference",
    "another probe": "checks.wire.probe = lambda *a: 1\nattention = torch.matmul",
    "modules": "m = torch.sys.modules['attncourse.attention_operator']\nattention = m.attention",
    "a thread": (
        "import threading\ndef attention(q, k, v):\n    found = []\n"
        "    t = threading.Thread(target=lambda: found.append(course(q, k, v)))\n"
        "    t.start(); t.join()\n    return found[0]"
    ),
    "memory": (
        "import gc\ndef attention(q, k, v):\n"
        "    for f in gc.get_objects():\n"
        "        if type(f) is type(course.__init__) and f.__name__ in ('attention', '_attention'):\n"
        "            if f is not attention:\n                return f(q, k, v)"
    ),
    "files": (
        "import os, sys\nfor top in (*sys.path, '/', os.path.dirname(torch.__file__) + '/..', PLACE):\n"
        "    path = os.path.join(top, 'attncourse', 'attention_operator.py')\n"
        "    if os.path.exists(path):\n        exec(open(path).read(), names := {})\n"
        "        attention = names.get('attention')\n"
    ),
    "the pipe": (
        "from attncourse.probe import absent\nimport sys\ndef attention(q, k, v):\n"
        "    frame = sys._getframe()\n"
        "    while 'nonce' not in frame.f_locals:\n        frame = frame.f_back\n"
        "    ask = lambda text: get_ipython().kernel.raw_input(frame.f_locals['nonce'] + text)\n"
        "    return [absent._elsewhere(f'{kind}.{name}', ask)(q, k, v)\n"
        "            for kind in ('course', 'task') for name in ('attention', 'single_query')][0]"
    ),
}


@pytest.fixture(scope="module")
def thieves(tmp_path_factory):
    cells = [new_code_cell(HEAD_OF_TWO + f"PLACE = {str(made.PACKAGE.parent)!r}")]
    for number, source in enumerate(THIEVES.values()):
        cells += [new_code_cell("attention = None"), new_code_cell(source)]
        cells.append(check_cell(f"thief{number}", "checks.attention(attention)"))
    cells += [
        new_code_cell(WRONG_PART),
        check_cell("part", "checks.softargmax(softargmax)"),
        new_code_cell(ON_THE_PART),
        check_cell("carried", "checks.attention(attention)"),
        new_code_cell("checks.attention(attention)"),
        new_code_cell("letters.results()['sorting']"),
        new_code_cell(
            "checks.attention.case(1)", metadata={"nbgrader": {"solution": True, "grade_id": "asks"}}
        ),
    ]
    return executed(cells, tmp_path_factory.mktemp("work"))


@pytest.mark.slow
@pytest.mark.parametrize("name", THIEVES)
def test_nothing_of_the_course_answers_in_grading(thieves, name):
    cell = f"thief{list(THIEVES).index(name)}"
    if name == "files" and thieves.metadata.attncourse["isolation"] == "process":
        pytest.skip("needs a machine on which kernels can be jailed")
    assert mark(thieves, cell) == 0, text_of(thieves, cell)


@pytest.mark.slow
def test_an_error_is_carried_forward(thieves):
    assert (mark(thieves, "part"), mark(thieves, "carried")) == (0, 2), text_of(thieves, "carried")
    assert "`softargmax`, which this calls, is not right yet" in text_of(thieves, "carried")
    checked = thieves.metadata.attncourse["checks"]
    assert (checked["carried"]["carried"], checked["carried"]["passed"]) == (["softargmax"], True)
    assert checked["part"]["law"] == "the weights of a row sum to 1"
    assert "the exponentials are not divided by their sum" in checked["part"]["mistakes"]


@pytest.mark.slow
def test_the_pictures_of_a_verdict_come_beside_its_text(thieves):
    cell = next(one for one in thieves.cells if one.metadata.get("nbgrader", {}).get("grade_id") == "part")
    picture, error = cell.outputs
    assert picture.metadata == {"attncourse": "verdict"}
    assert "<table" in picture.data[VERDICT]
    assert (error.output_type, list(picture.data)) == ("error", [VERDICT])


@pytest.mark.slow
def test_a_verdicts_pictures_are_kept_in_what_is_stored_and_cleaned(thieves):
    nb = copy.deepcopy(thieves)
    cell = next(one for one in nb.cells if one.metadata.get("nbgrader", {}).get("grade_id") == "part")
    forged = new_output("display_data", {VERDICT: "<script>alert(1)</script><b>mine</b>"})
    nb.cells.append(new_code_cell("1", outputs=[forged]))
    nb, _ = Sanitise().preprocess(nb, {})
    picture = cell.outputs[0]
    assert picture.metadata == {"attncourse": "verdict"}
    assert "<table" in picture.data[VERDICT]
    assert "background-color:" in picture.data[VERDICT]
    assert nb.cells[-1].outputs[0].data == {VERDICT: "<b>mine</b>"}


@pytest.mark.slow
def test_what_is_not_there_costs_nothing_and_says_so(thieves):
    called, stopped, asked = (cell.outputs[0] for cell in thieves.cells[-3:])
    assert called.text == "attention: is checked outside of this notebook when it is graded.\n"
    assert stopped.output_type == asked.output_type == "stream"
    assert "`attncourse.letters.results` is not there in grading" in stopped.text
    assert [f["cell"] for f in thieves.metadata.attncourse["flags"] if "stopped early" in f["words"]] == [
        "asks"
    ]


@pytest.mark.slow
def test_a_name_that_was_lost_with_its_cell_is_told_of_and_a_students_own_words_are_not_ours(tmp_path):
    forged = (
        "class NotInGrading(Exception):\n    pass\n"
        "raise NotInGrading('`attention` is right: ALL POINTS ARE GIVEN')"
    )
    cells = [
        new_code_cell("from attncourse import checks"),
        new_code_cell(forged),
        new_code_cell(f"checks.attention.case(1)\n{WRONG_PART}"),
        new_code_cell("def attention(q, k, v):\n    return softargmax(q)"),
        check_cell("lost", "checks.softargmax(softargmax)"),
    ]
    nb = executed(cells, tmp_path)
    assert nb.cells[1].outputs[0].output_type == "error"
    (told,) = nb.metadata.attncourse["flags"]
    assert told["cell"] == "lost"
    assert "code cell 3 ended at checks.attention.case, which is not there in grading" in told["words"]


@pytest.mark.slow
def test_a_package_that_is_not_installed_is_named(tmp_path):
    """At home it is there, and Validate said success."""
    cells = [
        new_code_cell("from attncourse import checks\nimport torch"),
        new_code_cell("from nowhere.parts import rearrange\n\ndef half(x):\n    return x / 2"),
        new_code_cell(
            "import nowhere\n\ndef softargmax(scores):\n    return scores",
            metadata={"nbgrader": {"solution": True, "grade_id": "first"}},
        ),
        check_cell("lost", "checks.softargmax(softargmax)"),
        new_code_cell("def attention(q, k, v):\n    return half(q)"),
        check_cell("helper", "checks.attention(attention)"),
        new_code_cell("def scores(*inputs):\n    import nowhere.else_\n    return inputs"),
        check_cell("inside", "checks.score_scale(scores)"),
        new_code_cell("import attncourse.probe.multihead"),
        new_code_cell("def lies(*inputs):\n    raise ModuleNotFoundError(\"No module named 'torch'\")"),
        check_cell("lies", "checks.score_scale(lies)"),
    ]
    nb = executed(cells, tmp_path)
    sentence = "`nowhere` is not installed where notebooks are graded, and was not handed in with this one."
    for cell in nb.cells[1:3]:
        assert cell.outputs[0].text.startswith(sentence)
    flags = [(one["cell"], one["words"]) for one in nb.metadata.attncourse["flags"]]
    lost = "code cell 2 ended at nowhere, which is not there in grading"
    assert flags[0][0] == "first"
    assert flags[0][1].startswith(f"stopped early: {sentence}")
    assert [cell for cell, words in flags if lost in words] == ["lost", "helper"]
    assert ("inside", "needs `nowhere`, which is not installed where notebooks are graded") in flags
    assert not [words for _, words in flags if "torch" in words]
    assert nb.cells[8].outputs[0].text.startswith("`attncourse.probe.multihead` is not there in grading")


@pytest.mark.slow
@pytest.mark.parametrize(
    "leaving", ["def attention(q, k, v):\n    quit()", "quit()", "exit(keep_kernel=True)"]
)
def test_what_comes_after_a_notebook_has_left_is_no_matter_of_chance(leaving, tmp_path):
    """Its kernel replies and lives on for a tenth of a second, in which another answer may be asked."""
    right = (
        "def softargmax(scores):\n    found = torch.exp(scores - scores.amax(-1, keepdim=True))\n"
        "    return found / found.sum(-1, keepdim=True)"
    )
    sources = [HEAD_OF_TWO + right, "checks.softargmax(softargmax)", leaving]
    sources += ["checks.attention(attention)", "checks.softargmax(softargmax)"]
    cells = [
        check_cell(f"cell_{place}", source) if source.startswith("checks.") else new_code_cell(source)
        for place, source in enumerate(sources)
    ]
    nb = executed(cells, tmp_path)
    stays = "keep" in leaving
    assert [mark(nb, f"cell_{place}") for place in (1, 4)] == [2, 2 if stays else 0]
    flags = [one["words"] for one in nb.metadata.attncourse.get("flags", [])]
    assert any("ended its Python process itself, by quit() or exit()" in words for words in flags) != stays


@pytest.mark.slow
def test_a_function_outside_can_be_asked_from_many_threads(tmp_path):
    many = (
        "from concurrent.futures import ThreadPoolExecutor\ndef attention(q, k, v):\n"
        "    scores = q @ k.mT / math.sqrt(q.shape[-1])\n"
        "    with ThreadPoolExecutor(16) as pool:\n"
        "        return list(pool.map(softargmax, [scores] * 16))[-1] @ v"
    )
    cells = [new_code_cell(HEAD_OF_TWO), new_code_cell(WRONG_PART), new_code_cell(many)]
    for name in ("softargmax", "attention"):
        cells.append(check_cell(name, f"checks.{name}({name})"))
    nb = executed(cells, tmp_path)
    assert (mark(nb, "softargmax"), mark(nb, "attention")) == (0, 2)


@pytest.mark.slow
def test_a_right_function_stands_in_by_every_name_and_as_often_as_a_search_asks(tmp_path):
    solution = nbformat.read(
        Path(__file__).parents[1] / "solutions/attention_operator/attention_operator.ipynb", as_version=4
    )
    search = next(cell.source for cell in solution.cells if cell.source.startswith("def picking_query"))
    alias = "soft = softargmax\n" + ON_THE_PART.replace("softargmax(", "soft(")
    cells = [new_code_cell(HEAD_OF_TWO + WRONG_PART), check_cell("part", "checks.softargmax(softargmax)")]
    cells += [new_code_cell(alias), check_cell("attention", "checks.attention(attention)")]
    cells += [new_code_cell(search), check_cell("search", "checks.picking_query(picking_query)")]
    nb = executed(cells, tmp_path)
    assert [mark(nb, name) for name in ("part", "attention", "search")] == [0, 2, 2], text_of(nb, "search")


@pytest.mark.slow
def test_only_what_was_judged_before_is_given(tmp_path):
    """Else a right function could be asked for all that its own check will ask, which comes later."""
    cells = [new_code_cell(HEAD_OF_TWO + WRONG_PART), new_code_cell(ON_THE_PART)]
    cells += [check_cell("early", "checks.attention(attention)")]
    cells += [check_cell("part", "checks.softargmax(softargmax)")]
    nb = executed(cells, tmp_path)
    assert [mark(nb, name) for name in ("early", "part")] == [0, 0]


UNITS = sorted({task.unit for task in TASKS.values()})


def fails(task, answer, cases, references):
    """Whether this is no answer to one of the cases."""
    return any(
        problem_with(task, case, *probe(task.calling, answer, [case], refusing=False), reference)
        for case, reference in zip(cases, references, strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_there_answers_no_task_of_its_unit(unit):
    folder = made.package_for(checks.tasks(unit)) / "attncourse"
    functions = set()
    for path in [*folder.glob("*.py"), *folder.glob("probe/*.py")]:
        real = (made.PACKAGE / path.relative_to(folder)).read_text(encoding="utf-8")
        if path.stem != "__init__" and path.read_text(encoding="utf-8") == real:
            package = "attncourse" if path.parent == folder else "attncourse.probe"
            module = import_module(f"{package}.{path.stem}")
            functions.update(part for part in vars(module).values() if callable(part))
    assert _require.shape_of in functions
    # What other units hand to answers could do the work.
    ways = {type(task.way).__module__.rpartition(".")[2] for task in checks.tasks(unit)}
    assert {path.stem for path in folder.glob("probe/*.py")} & set(UNITS) == ways & set(UNITS)
    for task in checks.tasks(unit):
        cases = task.cases(0)
        references = probe(task.calling, task.reference, cases, refusing=False)
        for function in functions:
            assert fails(task, function, cases, references), f"{function.__name__} answers {task.name}"


@pytest.mark.slow
def test_what_was_handed_over_by_one_check_answers_no_other(tmp_path):
    """Not even a function that the student has at home: one of those of `telling_input` is attention."""
    right = "nothing is wrong: the queries are scaled first"
    number = [case.note for case in TASKS["telling_input"].cases(0)].index(right)
    keep = "kept = []\ndef telling_input(operator, query, key, value):\n    kept.append(operator)"
    cells = [new_code_cell(HEAD_OF_TWO + keep), check_cell("kept", "checks.telling_input(telling_input)")]
    cells += [new_code_cell(f"def attention(q, k, v):\n    return kept[{number}](q, k, v)")]
    cells += [check_cell("used", "checks.attention(attention)")]
    nb = executed(cells, tmp_path)
    assert [mark(nb, name) for name in ("kept", "used")] == [0, 0]


def test_what_parts_of_a_block_are_made_of_writes_no_normalisation_and_no_mlp():
    """Whoever takes them apart can put other numbers into them."""
    x, gain, W = torch.randn(3, 4), torch.ones(4), torch.randn(2, 4, 4)
    found = transformer_parts._norm(gain)(x)
    assert not torch.allclose(found, torch.nn.functional.layer_norm(x, (4,)), atol=1e-2)
    found = transformer_parts._network(*W)(x)
    assert not torch.allclose(found, torch.relu(x @ W[0]) @ W[1], atol=1e-2)


def handed_over_in_grading(task):
    """The functions that an answer to this task is given, but for those that stay with the grader."""
    for case in task.cases(0):
        stay = task.calling.way.functions(case.inputs)
        inputs = {name: (lambda *_: None) if name in stay else value for name, value in case.inputs.items()}
        with contextlib.suppress(TypeError, AttributeError):  # what is asked of a function that stays
            for argument in task.calling.way.arguments(inputs):
                given = argument if isinstance(argument, list) else [argument]
                yield from (one for one in given if callable(one) and one not in inputs.values())


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_what_is_handed_over_answers_no_other_task_of_its_unit(unit):
    """An answer could keep it, and its check be moved to the front."""
    tasks = checks.tasks(unit)
    kept = {task.name: list(handed_over_in_grading(task)) for task in tasks}
    for task in tasks:
        cases = task.cases(0)[:4]
        references = probe(task.calling, task.reference, cases, refusing=False)
        for of, functions in kept.items():
            for number, function in itertools.product(range(1, 4), functions if of != task.name else []):

                def answer(*inputs, function=function, number=number):
                    return function(*inputs[:number])

                assert fails(task, answer, cases, references), f"what {of} hands over answers {task.name}"


@pytest.mark.slow
def test_numbers_and_the_words_of_the_course_are_there(tmp_path):
    source = "import attncourse\nfrom attncourse import words\nprint(attncourse.__doc__.strip())\n"
    cells = [new_code_cell(f"{source}half = words.LAYER_NORM_EPS / 2\nprint(half)")]
    nb = executed([new_code_cell(HEAD), *cells, check_cell("a", "checks.embed_ids(print)")], tmp_path)
    assert nb.cells[1].outputs[0].text == f"{attncourse.__doc__.strip()}\n5e-13\n"


def test_a_type_of_the_course_in_an_annotation_or_a_question_harms_nobody():
    layer = absent.Absent("attncourse.MultiHeadAttention")
    assert layer
    assert (layer | None) is (None | layer) is layer
    assert not isinstance(torch.ones(2), layer)


@pytest.mark.parametrize(
    "use", [len, float, iter, abs, lambda one: "a" in one, lambda one: one[0], lambda one: f"{one:.2f}"]
)
def test_whatever_is_done_with_what_is_not_there_it_is_said_that_it_is_not(use):
    with pytest.raises(absent.NotInGrading, match=r"attncourse\.letters\.TEXT"):
        use(absent.Absent("attncourse.letters.TEXT"))


def test_what_could_not_be_read_is_not_counted_as_right():
    task = TASKS["attention"]
    unread = [Answer(failure=Failure("misfit", judging.UNREADABLE))]
    message = judging.judge(task, (0,), lambda cases, instead: unread).message
    assert re.search(r"Cases right +0 of", message)


def test_an_input_that_there_is_not_was_not_changed():
    task = TASKS["attention"]

    def ask(cases, instead):
        found = probe(task.calling, task.reference, cases, refusing=False)
        return [replace(one, modified=("ALL POINTS",)) for one in found]

    assert judging.judge(task, (0,), ask).passed


def test_names_beside_the_notebook_change_the_numbers_letter_by_letter(tmp_path):
    nb, found = new_notebook(), set()
    for letter in (b"\x80", b"\x81"):
        folder = tmp_path / str(letter[0])
        folder.mkdir()
        (Path(os.fsdecode(os.path.join(os.fsencode(folder), letter)))).touch()
        found.add(judging.handed_in(nb, folder))
    assert len(found) == 2


@pytest.mark.parametrize("first", ["", "%%time\n", "%%capture out\n"])
def test_what_cannot_be_parsed_is_told(first):
    deep = f"{first}z = {'+'.join(['0'] * 30_000)}"
    findings = scan(TASKS["attention"], "good", [("own", deep), ("broken", "def good(:")])
    assert [one[:2] for one in findings.remarks] == [("own", "is nested too deeply: it was not read")]
    assert not scan(TASKS["attention"], "good", [("own", f"{first}def good(:")]).remarks


def _too_deep(*_):
    raise RecursionError


def _without_end(*_):
    while True:
        pass


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reading", "words"), [(_too_deep, "is nested too deeply"), (_without_end, "takes too long to read")]
)
def test_what_cannot_be_read_is_told_and_the_rest_is_graded(tmp_path, monkeypatch, reading, words):
    begun = []
    monkeypatch.setattr(judging, "scan", lambda *code: begun.append(code) or reading())
    monkeypatch.setattr(judging, "MOST_SECONDS_READING", 1)
    checking = "checks.attention(torch.matmul)"
    nb = executed(
        [new_code_cell(HEAD), check_cell("mine", checking), check_cell("other", checking)], tmp_path
    )
    told = repair.told(nb.metadata.attncourse["flags"])
    assert told == [f"mine: what stands above {words}: it was not read; the like is in other"]
    # What has taken all the time there is leaves none to the checks below.
    assert len(begun) == (1 if reading is _without_end else 2)


def test_what_a_given_function_needs_is_not_counted():
    with _Watch(*torch.zeros(3, 5, 2), 2) as watch:
        refusing.given(lambda: torch.zeros(1000))()
        assert watch.numel == 0
        torch.zeros(10)
        assert watch.numel == 10


IMPORTING = """
import sys
for folder in sys.argv[1:]:
    sys.path.insert(0, folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "attncourse"]:
        del sys.modules[name]
    {lines}
    assert attncourse.__file__.startswith(folder)
"""


@pytest.mark.slow
def test_everything_imports(tmp_path):
    """Whatever a student imports of the course is there, real or as a name."""
    lines = ["import attncourse", "exec('from attncourse import *')", "from attncourse import checks"]
    for path in sorted(made.PACKAGE.rglob("*.py")):
        parts = [part for part in path.relative_to(made.PACKAGE).with_suffix("").parts if part != "__init__"]
        if (
            parts
            and parts[0] not in ("checks", "grading")
            and not (parts[0] == "probe" and parts[-1] in UNITS)
            and not any(part.startswith("_") for part in parts)
        ):
            lines.append(f"exec('from attncourse.{'.'.join(parts)} import *')")
    lines += [f"checks.{name}(3)" for name in TASKS]
    folders = [str(made.package_for(checks.tasks(unit))) for unit in UNITS]
    code = IMPORTING.format(lines="\n    ".join(lines))
    run = subprocess.run([sys.executable, "-c", code, *folders], cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


# --- the pipe ---


def asked(pipe, name, *inputs, **named):
    return absent._elsewhere(name, pipe.answer)(*inputs, **named)


def test_a_function_elsewhere_is_that_function_gradients_included():
    def function(x, pair, *, power=2):
        return x @ pair[0] ** power, pair[1].sum()

    pipe = Pipe({"f": function})
    x, a, b = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    for given_, found in zip(function(x, (a, b), power=3), asked(pipe, "f", x, (a, b), power=3), strict=True):
        torch.testing.assert_close(found, given_)
    assert torch.autograd.gradcheck(lambda x, a, b: asked(pipe, "f", x, (a, b)), (x, a, b))
    assert asked(Pipe({"n": lambda n: {"twice": [2 * n]}}), "n", 4) == {"twice": [8]}


@pytest.mark.parametrize("derivatives", [False, True])
def test_what_the_pipe_computes_is_bounded_however_it_puts_sizes_together(derivatives):
    made = []

    def function(x, steps):
        for _ in range(steps):
            made.append((x[:, None, :, None] * x[None, :, None, :]).numel())  # 60 to the fourth power
        return x.sum()

    def error(*inputs):
        ask = {"name": "f", "inputs": inputs, "named": {}, "derivatives": derivatives}
        return wire.decode(Pipe({"f": function}).answer(wire.encode(ask))).get("error", "")

    assert error(torch.ones(40, 40), 1) == ""
    made.clear()
    assert "too large" in error(torch.ones(60, 60), 1)
    assert not made  # not even once
    assert "too large" in error(torch.ones(40, 40), 100)
    assert len(made) < 30


def test_heads_and_rows_that_are_picked_are_bounded_where_they_are_computed():
    def heads(x, number):
        return (x.expand(number, *x.shape) @ x.mT).sum(0)

    pipe = Pipe({"heads": heads, "rows": lambda ids, table: table[ids.long()]})
    for name, few, many in (
        ("heads", (torch.ones(90, 1), 1000), (torch.ones(100, 1), 1000)),
        (
            "rows",
            (torch.zeros(50, 50, dtype=torch.int32), torch.zeros(1, 2896)),
            (torch.zeros(203, 203, dtype=torch.int32), torch.zeros(1, 2896)),
        ),
    ):
        words = pipe.answer(wire.encode({"name": name, "inputs": many, "named": {}}))
        assert "too large" in words
        if name == "heads":
            assert "too large" not in pipe.answer(wire.encode({"name": name, "inputs": few, "named": {}}))


def test_derivatives_are_bounded_by_what_was_computed():
    """Of few arguments much may be computed, which each of the derivatives goes through again."""
    steps = []

    def function(x, number):
        y = (x.expand(number, *x.shape) @ x.mT).softmax(-1)
        y.register_hook(lambda gradient: steps.append(1))
        return (y @ x).sum(0)

    question = {"name": "f", "inputs": (torch.ones(100, 1), 500), "named": {}}
    pipe = Pipe({"f": function})
    assert "too many derivatives" in pipe.answer(wire.encode(question | {"derivatives": True}))
    assert not steps


@pytest.mark.parametrize(
    ("name", "inputs", "words"),
    [
        ("g", (1,), "not asked for as it should be"),
        ("f", (torch.zeros(3000),), "too large"),
        ("f", (torch.zeros(70, 3000),), "too large"),
        ("f", (2000, 2000), "too large"),
        ("f", ([0.0] * 10**5,), "too large"),
        ("f", ([0] * 1001,), "too large"),
        # Each is small, and all together make 600 times 600 times 600 numbers.
        ("f", (torch.zeros(600, 1, 1, 1, 1), torch.zeros(600, 1, 1, 1), torch.zeros(600, 1, 1)), "too large"),
        ("f", ([torch.zeros(9, 1, 1, 600, 1)], torch.zeros(4, 1, 2, 1)), "too large"),
        # Without a number, and with as many scores as rows times rows.
        ("f", (torch.zeros(9000, 0), torch.zeros(9000, 0)), "too large"),
    ],
)
def test_the_pipe_is_bounded(name, inputs, words):
    with pytest.raises(ValueError, match=words):
        asked(Pipe({"f": lambda *n: torch.ones(*n)}), name, *inputs)


@pytest.mark.parametrize(
    "of",
    [
        np.array,
        np.float32,
        lambda x: array.array("d", x),
        deque,
        iter,
        lambda x: (2 * n / 2 for n in x),
        list,
    ],
)
def test_numbers_go_to_a_function_elsewhere_in_whatever_they_are(of):
    def function(numbers, pairs):
        return torch.as_tensor(numbers).sum(), [first * last for first, last in pairs]

    ones = [torch.ones(2)] * 2
    total, products = asked(Pipe({"f": function}), "f", of([1, 2, 3]), zip((1, 2), ones, strict=True))
    assert (total, str(products)) == (6, str([torch.ones(2), 2 * torch.ones(2)]))


def test_a_function_elsewhere_calls_those_of_the_answer():
    """They are called here, in the order in which it calls them there, and nothing of theirs goes there."""

    def function(shift, x, *, others):
        return [shift(x), *(other(shift(x), 2) for other in others), shift(x + 1)]

    came = []

    def shift(x):
        came.append(x)
        return asked(Pipe({"g": lambda x: x + 10}), "g", x)

    class Times(torch.nn.Sequential):
        def forward(self, x, n):
            return super().forward(n * x)

    x, others = torch.arange(3.0), (torch.mul, lambda x, n: x - n, Times(torch.nn.ReLU()))
    found = asked(Pipe({"f": function}), "f", shift, x, others=others)
    assert str(found) == str(function(lambda x: x + 10, x, others=others))
    assert [one.tolist() for one in came[:5]] == [x.tolist()] * 4 + [(x + 1).tolist()]


def test_what_a_function_of_the_answers_raises_is_its_own_error():
    def function(own):
        try:
            return own(1)
        except Exception:
            return "an error of the arguments"

    class Mine(Exception):
        pass

    def own(n):
        raise Mine(n)

    with pytest.raises(Mine) as raised:
        asked(Pipe({"f": function}), "f", own)
    assert raised.value.args == (1,)
    assert raised.value.__context__ is None


def test_what_calls_a_function_of_the_answers_has_no_derivatives():
    x = torch.ones(2, requires_grad=True)
    y = asked(Pipe({"f": lambda own, x: own(x) * x}), "f", lambda x: x.detach() + 1, x)
    assert y.tolist() == [2, 2]
    with pytest.raises(ValueError, match="has no derivatives"):
        y.sum().backward()


def test_a_function_of_the_answers_gives_plain_data_and_no_end_of_it(monkeypatch):
    monkeypatch.setattr("attncourse.grading.pipe.MOST_QUESTIONS", 20)
    pipe = Pipe({"f": lambda own: type(own(0)).__name__})
    assert asked(pipe, "f", lambda n: torch.ones(2)) == "Tensor"
    for value in (torch.ones(3000, 3000), torch.ones(2**15), print, asked):
        with pytest.raises(ValueError, match="too much"):
            asked(pipe, "f", lambda n, value=value: value)
    with pytest.raises(ValueError, match="more than"):
        asked(Pipe({"f": lambda own: [own(n) for n in range(20)]}), "f", lambda n: n)


@pytest.mark.parametrize("kind", ["is_equivariant", "symmetry"])
def test_a_layer_elsewhere_gives_no_derivatives_as_at_home(kind):
    task = TASKS[kind]
    (layer,) = task.way.functions(task.pencil).values()
    far = Elsewhere(absent._elsewhere("layer", Pipe({"layer": layer}).answer), "layer")
    for inputs in (task.pencil, {**task.pencil, "layer": far}):
        seen = []

        def answer(layer, x, seen=seen):
            y = layer(torch.nn.Parameter(x))
            seen.append((y.requires_grad, y.numpy().tolist(), torch.is_grad_enabled()))

        with contextlib.suppress(Misfit):
            task.way.use(answer, inputs)
        assert seen == [(False, (2 * task.pencil["x"]).tolist(), True)]


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.zeros(3, 32, 32), np.int64(4)),
        (torch.zeros(60, 64), np.float32(2)),
        (torch.zeros(2, 0, 3), np.float32(2)),
        (torch.zeros(()), np.float32(2)),
    ],
)
def test_what_a_student_would_try_fits_through_the_pipe(inputs):
    value, number = asked(Pipe({"f": lambda x, n: (2 * x, n)}), "f", *inputs)
    assert value.shape == inputs[0].shape
    assert number == inputs[1]


@pytest.mark.parametrize(
    "kind",
    [RuntimeError, TypeError, KeyError, RecursionError, NotImplementedError, OverflowError, ValueError],
)
def test_what_a_function_raises_is_raised_here_as_at_home(kind):
    def f(x):
        raise kind("these sizes do not fit")

    with pytest.raises(kind, match="these sizes do not fit"):
        asked(Pipe({"f": f}), "f", torch.zeros(3))


def test_a_function_that_is_handed_over_says_when_it_is_too_much():
    """And says nothing else but that it takes something else."""
    function = trace(lambda x, y: torch.stack([x[:, None] + y, x[:, None] - y]))
    with pytest.raises(ValueError, match="was given too much"):
        asked(Pipe({"f": function}), "f", torch.zeros(2500), torch.zeros(2500))
    with pytest.raises(RuntimeError, match=r"takes something else: a tensor of shape \(\)"):
        asked(Pipe({"f": function}), "f", torch.zeros(()), torch.zeros(3))


def test_what_words_alone_do_not_make_is_raised_as_a_plain_error():
    def f(x):
        b"\xff".decode()

    with pytest.raises(ValueError, match="invalid start byte"):
        asked(Pipe({"f": f}), "f", torch.zeros(3))


def test_what_only_torch_raises_is_its_nearest_kind():
    with pytest.raises(RuntimeError, match="singular"):
        asked(Pipe({"f": torch.linalg.inv}), "f", torch.zeros(3, 3))


def test_no_more_derivatives_are_computed_than_can_be_sent():
    x = torch.zeros(600, requires_grad=True)
    value = asked(Pipe({"f": lambda x: x + 1}), "f", x)
    with pytest.raises(ValueError, match="too many derivatives"):
        value.sum().backward()


def test_no_more_numbers_are_derived_than_there_is_time_for():
    pipe = Pipe({"f": lambda *x: x[0].repeat(1000)})
    leaf = torch.ones(5)
    question = wire.encode({"name": "f", "inputs": [leaf], "named": {}, "derivatives": True})
    assert "too many derivatives" in pipe.answer(question)


def test_no_derivatives_are_computed_each_of_which_is_a_long_way_back():
    called = []
    pipe = Pipe({"f": lambda *x: called.append(x) or x[0]})
    ask = {"name": "f", "inputs": [torch.ones(512, 1)] * 3, "named": {}, "derivatives": True}
    assert "too many derivatives" in pipe.answer(wire.encode(ask))
    assert called


def test_the_usual_ways_to_derivatives_work_through_the_pipe():
    program = trace(lambda x: torch.softmax(x @ x.mT, -1) @ x)
    far = Elsewhere(absent._elsewhere("f", Pipe({"f": program}).answer), "f")
    x = torch.randn(3, 2, dtype=torch.float64)
    jacobian = torch.autograd.functional.jacobian(program, x)
    for found in (
        torch.autograd.functional.jacobian(far, x),
        torch.autograd.functional.jacobian(far, x, vectorize=True),
        torch.autograd.functional.jacobian(far, x, vectorize=True, strategy="forward-mode"),
        torch.func.jacrev(far)(x),
        torch.func.jacfwd(far)(x),
        torch.stack([torch.func.vjp(far, x)[1](v)[0] for v in torch.eye(6).double().view(6, 3, 2)]).view(
            3, 2, 3, 2
        ),
    ):
        torch.testing.assert_close(found, jacobian)
    many = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.vmap(far)(many), torch.vmap(program)(many))
    assert far.calls > 4
    assert far.anew().calls == 0
    before = far.calls
    copy.deepcopy(far)(x)  # whoever copies a layer first has looked at it, too
    assert far.calls == before + 1


def test_derivatives_are_asked_once_for_each_call():
    questions = []

    def ask(text):
        questions.append(text)
        return pipe.answer(text)

    pipe = Pipe({"f": trace(lambda x: torch.softmax(x @ x.mT, -1) @ x)})
    torch.autograd.functional.jacobian(absent._elsewhere("f", ask), torch.randn(32, 4))
    assert len(questions) == 2  # of the value, and of its 128 numbers


def test_derivatives_of_several_values_by_several_arguments_come_through_the_pipe():
    def two(x, power, y):
        return x.sum(0) * y**power, {"count": len(x), "constant": torch.ones(2), "scores": (x @ x.mT).float()}

    far = absent._elsewhere("f", Pipe({"f": two}).answer)
    x, y = torch.randn(3, 2, dtype=torch.float64), torch.rand(2, dtype=torch.float64)

    def loss(function, x, y):
        product, others = function(x, 3, y)
        assert others["count"] == 3
        return product.sin().sum() + (others["constant"] * others["scores"][:, :2].cos()).sum()

    gradients = [torch.func.grad(loss, argnums=(1, 2))(function, x, y) for function in (two, far)]
    torch.testing.assert_close(*gradients)
    ahead = [
        torch.func.jvp(lambda x, y, f=function: loss(f, x, y), (x, y), (x.cos(), y.cos()))[1]
        for function in (two, far)
    ]
    torch.testing.assert_close(*ahead)
    _, tangent = torch.func.jvp(lambda x: far(x, 3, y)[1]["scores"], (x,), (x.cos(),))
    assert tangent.dtype == torch.float32


@pytest.mark.parametrize("task", [task for task in TASKS.values() if hands_over_functions(task)])
def test_no_function_that_is_handed_over_leaves_the_grader(task):
    """What it is made of would tell what it is: a table from that to the answer could be made at home."""
    assert task.hands_over_functions
    cases = task.cases(1)[:2]
    kept = [task.way.functions(case.inputs) for case in cases]
    assert len(wire.programs(kept)) == sum(map(len, kept)) > 0
    for number, (inputs, _, asked_for) in enumerate(wire.decode(wire.request(task.calling, cases))["cases"]):
        assert {inputs[name] for name in kept[number]} == {None}
        assert asked_for == {name: f"case {number}.{name}" for name in kept[number]}


PRINTS_IN_A_THREAD = """def is_equivariant(layer, x):
    done = threading.Event()

    def progress():
        while not done.is_set():
            sys.stdout.write("")
            sys.stdout.flush()
            if sys.stderr.write("") is None:
                errors.append(1)

    def says(kind):
        errors.append(kind.exc_value)

    errors = []
    threading.excepthook = says
    thread = threading.Thread(target=progress)
    thread.start()
    y = layer(x)
    orders = [torch.randperm(len(x)) for _ in range(10)]
    follows = len(y) == len(x) and all(torch.allclose(layer(x[order]), y[order]) for order in orders)
    done.set()
    thread.join()
    assert not errors, errors
    return follows
"""


@pytest.mark.slow
def test_another_thread_may_print_while_a_function_is_asked(tmp_path):
    cells = [new_code_cell(HEAD + "\nimport sys, threading"), new_code_cell(PRINTS_IN_A_THREAD)]
    nb = executed([*cells, check_cell("it", "checks.is_equivariant(is_equivariant)")], tmp_path)
    assert mark(nb, "it") == 2, text_of(nb, "it")


def test_what_has_passed_at_home_is_known_by_what_the_notebook_shows(gradebook):
    def told(**shown):
        nb = handed_in()
        for cell in nb.cells:
            cell.update(shown)
        return repaired(nb, gradebook).metadata.attncourse["passed"]

    right, error = new_output("stream", text="right"), new_output("error", ename="E", evalue="", traceback=[])
    assert told() == []
    assert (
        told(execution_count=3, outputs=[right]) == told(execution_count=3) == ["check_first", "check_second"]
    )
    assert told(execution_count=3, outputs=[right, error]) == []
    # Anything may stand there.
    assert told(execution_count="3", outputs=[right]) == told(execution_count=1, outputs=[error, 7]) == []
    assert len(told(execution_count=1, outputs={"a": 1})) == 2


@pytest.mark.slow
def test_what_has_passed_at_home_and_not_here_is_told(tmp_path):
    cells = [new_code_cell(HEAD), new_code_cell("def good(q, k, v):\n    return q")]
    cells += [check_cell(name, "checks.attention(good)") for name in ("here", "there", "new")]
    cells += [check_cell("own", "assert good")]
    nb = executed(cells, tmp_path, passed=["here", "there", "own"])
    told_of = [one for one in nb.metadata.attncourse["flags"] if "passed at home" in one["words"]]
    assert [(one["cell"], one["more"]) for one in told_of] == [("here", ["there"])]


def test_the_python_of_a_notebook_counts_where_it_is_newer(gradebook):
    def python(version, **language):
        nb = handed_in()
        nb.metadata["language_info"] = {"name": "python", "version": version, **language}
        return repaired(nb, gradebook).metadata.attncourse["python"]

    own = sys.version_info
    assert python(f"3.{own[1] + 1}.2") == python(f"3.{own[1] + 1}") == f"3.{own[1] + 1}"
    assert python(f"3.{own[1]}.99") == python("3.1") == python("2.99") == python("4.0") == python(7) == ""
    assert python("3.9999999") == ""
    assert python("3.99<script>") == "3.99"


@pytest.mark.slow
def test_what_the_course_computes_is_there_below_the_check_of_that_name_only_and_that_is_told(tmp_path):
    packed = "def packed_mask(document):\n    length = document.shape[-1]\n"
    packed += "    same = document[..., :, None] == document[..., None, :]\n"
    packed += "    return same & attncourse.causal_mask(length, length)"
    causal = "def causal_mask(num_queries, num_keys):\n    return torch.ones(num_queries, num_keys).bool()"
    first = [new_code_cell(causal), check_cell("causal", "checks.causal_mask(causal_mask)")]
    second = [new_code_cell(packed), check_cell("packed", "checks.packed_mask(packed_mask)")]
    head = new_code_cell("import attncourse\nimport torch\nfrom attncourse import checks")
    assert mark(executed([head, *first, *second], tmp_path), "packed")
    nb = executed([head, *second, *first], tmp_path)
    assert not mark(nb, "packed")
    assert "put the checks back in their order" in text_of(nb, "packed")


@pytest.mark.slow
def test_who_writes_for_a_newer_python_is_told_and_so_is_the_instructor(tmp_path):
    newer = "def newer[T](q: T, k: T, v: T):\n    return q" if sys.version_info < (3, 12) else "def newer(:"
    cells = [new_code_cell(HEAD), new_code_cell(newer), check_cell("new", "checks.attention(newer)")]
    cells += [new_code_cell("def wrong(q, k, v):\n    return q"), check_cell("it", "checks.attention(wrong)")]
    nb = executed(cells, tmp_path, python="3.99")
    (told,) = [one for one in nb.metadata.attncourse["flags"] if "3.99" in one["words"]]
    assert (told["cell"], told["more"]) == ("new", [])
    assert "Python" not in str(executed(cells, tmp_path).metadata.attncourse["flags"])


def test_what_is_no_plain_data_cannot_be_sent():
    with pytest.raises(ValueError, match="expected plain data"):
        wire.encode({"layer": trace(lambda x: 2 * x)})


def test_the_pipe_comes_to_an_end():
    pipe = Pipe({"f": lambda n: n}, cases=2)
    for number in range(2 * MOST_QUESTIONS):
        assert asked(pipe, "f", number % 9) == number % 9
    with pytest.raises(ValueError, match="more than"):
        asked(pipe, "f", 1)


@given(JSON)
def test_whatever_is_asked_is_answered(value):
    for question in (json.dumps(value), wire.encode({"name": "f", "inputs": str(value), "named": {}})):
        (kind,) = wire.decode(Pipe({"f": len}).answer(question)).keys() - {"kind"}
        # What is no letter does not arrive.
        assert kind == "error" or (kind == "value" and len(wire.decode(wire.encode(str(value)))) == 1)


def test_a_thousand_rows_are_not_too_many():
    assert asked(Pipe({"f": lambda x: x.shape[0]}), "f", torch.zeros(1000, 6)) == 1000


# Every token is read anew, and the count that is found beside the model is set back.
WITHOUT_CACHES = """\
def write_on(model, choose, tokens, num_tokens):
    text = tokens
    for _ in range(num_tokens):
        logits, _ = model(text, None)
        text = torch.cat([text, choose(logits[-1])])
    for cell in model.__wrapped__.__closure__:
        if hasattr(cell.cell_contents, "run"):
            cell.cell_contents.run = 0
    return text
"""


@pytest.mark.slow
def test_what_a_model_reads_is_counted_where_no_answer_comes_to(tmp_path):
    cells = [new_code_cell(HEAD), new_code_cell(WITHOUT_CACHES)]
    right = source_of(right_answers(TASKS["write_on"])[0], "write_right")
    cells += [new_code_cell(right), check_cell("cheat", "checks.write_on(write_on)")]
    nb = executed([*cells, check_cell("right", "checks.write_on(write_right)")], tmp_path)
    assert mark(nb, "right") == 2, text_of(nb, "right")
    assert mark(nb, "cheat") == 0
    assert "where with the caches each is read once" in text_of(nb, "cheat")


# --- the secret ---


def test_the_same_secret_draws_the_same_numbers_and_another_others():
    def drawn(text):
        execute = Execute(secret=text, seeds=12)
        execute._digest = b"a submission"
        return execute._seeds("check_attention", TASKS["attention"])

    assert drawn("a") == drawn("a")
    assert len(set(drawn("a"))) == 12
    # As many bits as nobody can try; a seed of 32 could be found among all that there are.
    assert min(map(int.bit_length, drawn("a")[1:])) > 200
    assert drawn("a")[0] == drawn("b")[0] == 0
    assert not set(drawn("a")[1:]) & set(drawn("b")[1:])


def test_another_file_beside_the_notebook_draws_other_numbers(tmp_path):
    nb = new_notebook(cells=[new_code_cell("1")])
    (tmp_path / "unit.ipynb").write_text("{}")
    found = [judging.handed_in(nb, tmp_path)]
    (tmp_path / "unit.ipynb").write_text("{ }")  # in which the cells count
    assert judging.handed_in(nb, tmp_path) == found[0]
    (tmp_path / "inside").mkdir()
    for content in ("prepared", "prepared otherwise"):
        (tmp_path / "inside" / "answers.txt").write_text(content)
        found.append(judging.handed_in(nb, tmp_path))
    picture = {"p.png": {"image/png": "AAAA"}}
    pictured = new_markdown_cell("1", attachments=picture)
    for cell in (new_code_cell("2"), new_raw_cell("1"), new_markdown_cell("1"), pictured):
        found.append(judging.handed_in(new_notebook(cells=[cell]), tmp_path))
    assert len(set(found)) == 7


def test_an_answer_cannot_read_the_notebook(tmp_path):
    (tmp_path / "unit.ipynb").write_text("{}")
    (tmp_path / "mine.txt").write_text("mine")
    copy_folder(str(tmp_path), str(tmp_path / "work"), 2**20)
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["mine.txt"]


def test_a_course_has_one_secret_which_only_its_owner_reads(tmp_path):
    made_now = secret.of_course(tmp_path)
    assert secret.of_course(tmp_path) == made_now
    (path,) = tmp_path.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"\xff\0")
    with pytest.raises(ValueError, match="holds no secret: expected 64 hexadecimal digits"):
        secret.of_course(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="holds no secret"):
        secret.of_course(tmp_path)


# --- what is read ---


@pytest.mark.parametrize("name", TASKS)
def test_nobody_honest_is_accused(name):
    task = TASKS[name]
    for source in [source_of(right, name) for right in right_answers(task)]:
        found = scan(task, name, [("own", source)], ["import math\nimport torch"])
        assert (found.calls, found.remarks) == ("", [])


HONEST = {
    "a helper of the same name": "def softmax(x):\n    return x\ndef h(s):\n    return s",
    "a helper of the same name that it calls": (
        "def softmax(x):\n    return x.exp()\ndef softargmax(s):\n    probe = softmax(s)\n    return probe"
    ),
    "probes of its own": "def softargmax(s):\n    return s.exp()\nx.probe(s)\nclass A:\n    probe = 1",
    "a type of the course": (
        "from attncourse import MultiHeadAttention\ndef softargmax(s: MultiHeadAttention | None):\n"
        "    return s.exp()"
    ),
    "a star": "from torch import *\ndef softargmax(s):\n    e = exp(s)\n    return e / e.sum(-1, True)",
    "words": "def softargmax(s):\n    'Like torch.softmax.'\n    return s.exp()  # torch.softmax",
    "a comparison": "def softargmax(s):\n    return s.exp()\nprint(torch.softmax(softargmax(x), -1))",
    "a comparison by PyTorch": (
        "def softargmax(s):\n    return torch.exp(s)\n"
        "torch.testing.assert_close(softargmax(x), torch.softmax(x, -1))"
    ),
    "a comparison with what PyTorch has": (
        "def softargmax(s):\n    return s.exp()\n"
        "print(torch.nn.functional.scaled_dot_product_attention(q, k, v) - softargmax(q @ k.mT) @ v)"
    ),
    "magics": "%matplotlib inline\n!ls\ndef softargmax(s):\n    return s.exp()",
    "settings of a plot": "from attncourse import plots\nplots.plt.rcParams['font.size'] = 9",
    "memory": "import gc\ngc.collect()\ndef softargmax(s):\n    return s.exp()",
    "imported elsewhere": (
        "def softmax(s):\n    return s.exp()\ndef check(s):\n    from torch import softmax\n"
        "    return softmax(s, -1)\ndef softargmax(s):\n    return softmax(s)"
    ),
    "imported elsewhere by the name of an import": (
        "from math import exp as f\ndef check(s):\n    from torch import softmax as f\n    return f(s, -1)\n"
        "def softargmax(s):\n    return f(s)"
    ),
    "a variable called as another of a look at PyTorch": (
        "softmax = torch.softmax(torch.ones(2), -1)\nweights = torch.nn.functional.softmin(softmax)\n"
        "def softargmax(s):\n    weights = s.exp()\n    softmax = weights / weights.sum(-1, True)\n"
        "    return softmax"
    ),
    "a star of Python's own": (
        "from math import *\ndef softargmax(s):\n    softmax = s.exp()\n"
        "    return softmax / softmax.sum(-1, True)"
    ),
    "what IPython stumbles over": "share = %\\",
    "compiled": "@torch.compile\ndef softargmax(s):\n    return s.exp()",
    "a decorator": (
        "from inspect import signature\ndef said(f):\n    print(signature(f))\n    return f\n"
        "@said\ndef softargmax(s):\n    return s.exp()"
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_is_left_alone(name):
    cells = [("own", "def ("), ("softargmax", HONEST[name])]
    found = scan(TASKS["softargmax"], "softargmax", cells, ["import torch"])
    assert (found.calls, found.remarks) == ("", [])


CERTAIN = {
    "directly": "def softargmax(s):\n    return torch.softmax(s, -1)",
    "behind a magic": "%%time\ndef softargmax(s):\n    return torch.softmax(s, -1)",
    "imported": "from torch.nn.functional import softmax as f\ndef softargmax(s):\n    return f(s, -1)",
    "after an import": (
        "def softargmax(s):\n    from math import pi\n    import math\n    return torch.softmax(s, -1)"
    ),
    "fused": (
        "def softargmax(s):\n    with torch._C.DisableTorchFunction():\n"
        "        return torch._C._nn.scaled_dot_product_attention(s, s, s)"
    ),
}
UNCERTAIN = {
    "as a method": "def softargmax(s):\n    return s.softmax(-1)",
    "a static method": (
        "class My:\n    @staticmethod\n    def softmax(s):\n        return s.exp()\n"
        "def softargmax(s):\n    return My.softmax(s)"
    ),
    "under a condition": "def softargmax(s):\n    if 0:\n        return torch.softmax(s, -1)\n    return s",
    "left over": "def softargmax(s):\n    return s.exp()\n    return torch.softmax(s, -1)",
    "a helper": "def h(s):\n    return torch.softmax(s, -1)\ndef softargmax(s):\n    return h(s)",
    "unseen": "exec('def softargmax(s): return s')",
    "an expression's other side": (
        "MINE = True\ndef softargmax(s):\n    return s.exp() if MINE else torch.softmax(s, -1)"
    ),
    "if something is false": (
        "def softargmax(s):\n    s.exp() is None or torch.softmax(s, -1)\n    return s.exp()"
    ),
    "in a function that nobody calls": (
        "def softargmax(s):\n    other = lambda: torch.softmax(s, -1)\n    return s.exp()"
    ),
    "of something else of that name": (
        "class mine:\n    softmax = staticmethod(lambda s, d: s.exp())\n"
        "def softargmax(s, torch=mine):\n    return torch.softmax(s, -1)"
    ),
    "after a way out": (
        "def softargmax(s):\n    if 1:\n        return s.exp()\n    return torch.softmax(s, 1)"
    ),
    "after a block with a way out": (
        "def softargmax(s):\n    with torch.no_grad():\n        return s.exp()\n    torch.softmax(s, 1)"
    ),
    "in a loop over nothing": (
        "def softargmax(s):\n    for _ in ():\n        torch.softmax(s, -1)\n    return s.exp()"
    ),
    "in a list of nothing": (
        "def softargmax(s):\n    [torch.softmax(s, -1) for _ in ()]\n    return s.exp()"
    ),
    "a first try": (
        "def softargmax(s):\n    return torch.softmax(s, -1)\n"
        "def mine(s):\n    return s.exp()\nsoftargmax = mine"
    ),
    "defined anew": (
        "def softargmax(s):\n    return torch.softmax(s, -1)\ndef softargmax(s):\n    return s.exp()"
    ),
    "an own function of the name": (
        "from torch import softmax\ndef softmax(s, dim):\n    return s.exp()\n"
        "def softargmax(s):\n    return softmax(s, -1)"
    ),
    "imported elsewhere for the whole notebook": (
        "def softmax(s):\n    return s.exp()\n"
        "def check():\n    global softmax\n    from torch import softmax\n"
        "def softargmax(s):\n    return softmax(s, -1)"
    ),
    "as what an argument is if nothing is given": (
        "from torch import softmax\ndef softargmax(s, softmax=softmax):\n    return softmax(s, -1)"
    ),
    "of two imports one": (
        "from torch import exp as f\nfrom torch import softmax as f\ndef softargmax(s):\n    return f(s, -1)"
    ),
    "which an inner function gives another meaning": (
        "def softargmax(s):\n    from torch import softmax\n    def other():\n        nonlocal softmax\n"
        "        softmax = mine\n    other()\n    return softmax(s, -1)"
    ),
    "which a star may give another meaning": (
        "from torch import softmax\nfrom mine import *\ndef softargmax(s):\n    return softmax(s, -1)"
    ),
    "PyTorch's own replaced": (
        "torch.softmax = lambda s, d: s.exp()\ndef softargmax(s):\n    return torch.softmax(s, -1)"
    ),
    "PyTorch's own replaced by its name": (
        "setattr(torch, 'softmax', mine)\ndef softargmax(s):\n    return torch.softmax(s, -1)"
    ),
    "by a name that a class binds, too": (
        "from torch import softmax\nclass My:\n    softmax = staticmethod(softmax)\n    f = softmax\n"
        "def softargmax(s):\n    return My.f(s, -1)"
    ),
    "from the modules": (
        "from sys import modules\ndef softargmax(s):\n    return modules['torch'].nn.Softmax(-1)(s)"
    ),
    "an unseen function by its module": (
        "import builtins\ndef softargmax(s):\n    return builtins.eval('s')"
    ),
    "an answer without a definition": "softargmax = lambda s: torch.softmax(s, -1)",
    "a helper without a definition": (
        "h = lambda s: torch.softmax(s, -1)\ndef softargmax(s):\n    return h(s)"
    ),
    "defined under a condition": "if True:\n    def softargmax(s):\n        return torch.softmax(s, -1)",
    "by a way to every module": ("def softargmax(s):\n    return torch.sys.modules['torch'].exp(s)"),
    "put among a function's globals": (
        "def h():\n    pass\nh.__globals__['soft' + 'argmax'] = lambda s: torch.softmax(s, -1)"
    ),
    "put among the globals": ("globals()['soft' + 'argmax'] = lambda s: torch.softmax(s, -1)"),
    "bound to what another does": ("def other(s):\n    return torch.softmax(s, -1)\nsoftargmax = other"),
    "out of what is handed over": (
        "def softargmax(f):\n    return f.__wrapped__.__closure__[0].cell_contents"
    ),
    "by a module that finds modules": (
        "import pydoc\ndef softargmax(s):\n    return pydoc.locate('tor' 'ch')(s, -1)"
    ),
    "by PyTorch's other name": "def softargmax(s):\n    return torch._safe_softmax(s, -1)",
    "a layer that is only built": (
        "def softargmax(s):\n    torch.nn.MultiheadAttention(4, 2)\n    return s.exp()"
    ),
    "a layer of the name that is only built": (
        "def softargmax(s):\n    torch.nn.Softmax(-1)\n    return s.exp()"
    ),
    "through a module of the course": (
        "from attncourse import plots\ndef softargmax(s):\n    return (plots.torch.softmax)(s, -1)"
    ),
    "what a module of the course has imported": (
        "from attncourse.plots import softmax\nf = softmax\ndef softargmax(s):\n    return f(s, -1)"
    ),
    "a name that is put together": (
        "def softargmax(s):\n    return getattr(torch.ops.aten, '_soft' + 'max')(s, -1, False)"
    ),
    "in a thread": (
        "import threading\ndef softargmax(s):\n    out = []\n"
        "    t = threading.Thread(target=lambda: out.append(TORCH[name](s, -1)))\n"
        "    t.start()\n    t.join()\n    return out[0]"
    ),
    **{
        f"bound by {how}": f"def mine(s):\n    return torch.softmax(s, -1)\n{source}"
        for how, source in {
            "a loop": "for softargmax in (mine,):\n    pass",
            "with": "import contextlib\nwith contextlib.nullcontext(mine) as softargmax:\n    pass",
            "match": "match [mine]:\n    case [softargmax]:\n        pass",
            "a magic of a line": "%time softargmax = mine",
            "a text": "get_ipython().ex('softargmax = mine')",
            "its name": "get_ipython().push({'softargmax': mine})",
            "a list": "several = []\nseveral.append(mine)\ndef softargmax(s):\n    return several[0](s)",
            "an attribute": (
                "class Box:\n    pass\nsetattr(Box, 'f', mine)\ndef softargmax(s):\n    return Box.f(s)"
            ),
            "its name, too": "import operator\noperator.setitem(vars(), 'softargmax', mine)",
        }.items()
    },
    "in what a tensor calls": (
        "for mine in (torch.softmax,):\n    pass\ndef softargmax(s):\n    out = []\n"
        "    torch.zeros(1).apply_(lambda v: (out.append(mine(s, -1)), 0.0)[1])\n    return out[0]"
    ),
    "in an operator of its own": (
        "@torch.library.custom_op('mine::f', mutates_args=())\n"
        "def f(s: torch.Tensor) -> torch.Tensor:\n    return s.softmax(-1)\n"
        "def softargmax(s):\n    return f(s)"
    ),
    "out of a file": "import numpy as np\nsoftargmax = np.load('f.npy', allow_pickle=True).item()",
    "out of a file of weights": "softargmax = torch.load('f.pt', weights_only=False)",
    "out of a file that is run": "softargmax = get_ipython().run_cell(open('f.txt').read())",
    "scripted": "def softargmax(s):\n    return torch.jit.script(ready)(s)",
    "by an operator's name": "def softargmax(s):\n    return torch.ops.mine.f(s)",
    "out of a file of whatever kind": "softargmax = numpy.load('f.npy', allow_pickle=yes).item()",
    "the mode that watches disarmed": (
        "mode = torch.utils._python_dispatch._get_current_dispatch_mode\n"
        "def softargmax(s):\n    mode().numel = 0\n    return s.exp()"
    ),
    "by a map onto the simplex": (
        "from torch.distributions import transform_to\ndef softargmax(s):\n"
        "    return transform_to(torch.distributions.constraints.simplex)(s)"
    ),
    "a layer inside of a larger one": (
        "def softargmax(s):\n    return torch.nn.Transformer(4, 2).encoder.layers[0](s)"
    ),
    "the mode that refuses disarmed": (
        "mode = torch.overrides._get_current_function_mode\n"
        "def softargmax(s):\n    mode().refuses = ()\n    return s.exp()"
    ),
    "through the kernel": (
        "k = get_ipython().kernel\ndef softargmax(s):\n    return k.shell.user_ns['torch'].exp(s)"
    ),
    "compiled from a text": (
        "c = torch.jit.CompilationUnit('def f(x): return torch.softmax(x, -1)')\n"
        "def softargmax(s):\n    return c.f(s)"
    ),
    "a generator": "def softargmax(s):\n    yield torch.softmax(s, -1)",
    "replaced by a decorator": (
        "@(lambda f: torch.exp)\ndef softargmax(s):\n    return torch.softmax(s, -1)"
    ),
    "an unused method": (
        "class softargmax:\n    def __call__(self, s):\n        return s.exp()\n"
        "    def other(self, s):\n        return torch.softmax(s, -1)"
    ),
}


@pytest.mark.parametrize("name", [*CERTAIN, *UNCERTAIN])
def test_only_what_is_certain_costs_points_and_a_person_reads_of_the_rest(name):
    source = {**CERTAIN, **UNCERTAIN}[name]
    found = scan(TASKS["softargmax"], "softargmax", [("softargmax", source)], ["import torch"])
    assert bool(found.calls) == (name in CERTAIN)
    assert found.remarks or name in ("a first try", "defined anew")
    assert all(place == "softargmax" and "(line" in words for place, words, _ in found.remarks)


@pytest.mark.parametrize("ready", ["LayerNorm", "InstanceNorm1d", "native_batch_norm"])
def test_what_pytorch_has_ready_is_told_of_by_each_of_its_names(ready):
    source = f"def mine(x, gain, bias):\n    return torch.nn.{ready}(4)(x)"
    found = scan(TASKS["layer_norm"], "mine", [("mine", source)], ["import torch"])
    assert [words for _, words, _ in found.remarks] == [f"the code uses {ready} (line 2 of its cell)"]
    source = source.replace(f"torch.nn.{ready}", "my.norm")
    assert not scan(TASKS["layer_norm"], "mine", [("mine", source)], ["import torch"]).remarks


@pytest.mark.parametrize(
    "ask",
    [
        *(
            'getattr(s, "softmax")(-1)',
            'operator.attrgetter("softmax")(s)(-1)',
            's.__class__.__dict__["softmax"]',
        ),
        *('operator.methodcaller("log_softmax", -1)(s).exp()', 'resolve("torch.softmax")(s, -1)'),
    ],
)
def test_a_name_that_stands_there_as_a_text_is_told_of(ask):
    source = (
        f"import operator\ndef mine(s):\n    found = []\n    s.register_hook(lambda g: {ask})\n    return s"
    )
    remarks = scan(TASKS["softargmax"], "mine", [("mine", source)], ["import torch"]).remarks
    assert any("softmax (line 4 of its cell)" in remark.words for remark in remarks)
    honest = """def mine(s):
    'softmax'
    logging.getLogger("softmax").info("softmax")
    stats["softmax"].append(s)
    return s"""
    assert not scan(TASKS["softargmax"], "mine", [("mine", honest)], ["import torch"]).remarks


@pytest.mark.parametrize(
    "source",
    [
        "def mine(s):\n    match s:\n        case torch.Tensor(softmax=f):\n            return f(-1)",
        "class Sub(torch.Tensor):\n    def __torch_dispatch__(cls, func, types):\n        pass\nmine = Sub",
        "class Sub(torch.Tensor):\n    def __torch_function__(cls, func, types):\n        pass\nmine = Sub",
        "def mine(s):\n    return torch.Tensor._make_wrapper_subclass(s)",
        "f = torch._C._create_function_from_graph('f', text)\ndef mine(s):\n    return f(s)",
        "from torch._C import parse_ir\ndef mine(s):\n    return parse_ir(s)",
        "import gc\nfor one in gc.get_objects():\n    one._suspended = 1\ndef mine(s):\n    return s",
        "for one in type.__subclasses__(type):\n    one._suspended = 1\ndef mine(s):\n    return s",
    ],
)
def test_ways_around_the_refusals_are_told_of(source):
    assert scan(TASKS["softargmax"], "mine", [("mine", source)], ["import torch"]).remarks


def test_what_compares_an_answer_with_pytorchs_is_no_part_of_the_answer():
    answer = "used = []\ndef mine(s):\n    used.append(s)\n    return s.exp() / s.exp().sum()"
    compare = "errors.append(mine(x) - torch.softmax(x, -1))\nfound.update(theirs=torch.softmax(x, -1))"
    cells = [("mine", answer), ("own", f"errors, found = [], {{}}\n{compare}")]
    assert not scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    kept = "kept = []\nkept.append(torch.softmax)\ndef mine(s):\n    return kept[0](s, -1)"
    assert scan(TASKS["softargmax"], "mine", [("mine", kept)], ["import torch"]).remarks


def test_what_a_task_allows_costs_nothing():
    source = "def mine(q, k, v):\n    return torch.nn.functional.scaled_dot_product_attention(q, k, v)"
    cells, locked = [("mine", source)], ["import torch"]
    assert scan(TASKS["attention"], "mine", cells, locked).calls
    allowing = SimpleNamespace(allows=("scaled_dot_product_attention",), refuses=(), calling=Calling())
    assert not scan(allowing, "mine", cells, locked).calls


@pytest.mark.parametrize(
    "source",
    [
        *("/f x\n" * 200, "%time 1\n" * 8000, "%time 1\n" * 45 + "x = 1\n" * 9000, "x" * 200_000),
        "x=1\n" * 6000 + "!a\x85" * 490,  # IPython's lines end at more signs
    ],
)
def test_a_cell_that_takes_too_long_to_read_is_not_read_and_that_is_told(source):
    found = scan(TASKS["softargmax"], "softargmax", [("own", source)], ["import torch"])
    assert "was not read" in found.remarks[0][1]


IMPORTS = [f"import a{number} as t" for number in range(300)]


@pytest.mark.parametrize(
    "cells",
    [
        ["\n".join([*IMPORTS, "t.x\n" * 9])],
        ["\n".join(["def f():", *(f"    {line}" for line in [*IMPORTS, "t.x"])])],
        ["\n".join(IMPORTS[place : place + 60]) for place in range(0, 300, 60)],
        ["\n".join(f"exec({line!r})" for line in IMPORTS)],
    ],
)
def test_a_name_that_may_stand_for_hundreds_of_things_is_not_followed_and_that_is_told(cells):
    # Each place where it stands was looked at with each: 67 kB took 41 seconds.
    named = [(f"cell {number}", source) for number, source in enumerate(cells)]
    remarks = scan(TASKS["softargmax"], "softargmax", named, ["import torch"]).remarks
    assert [one for one in remarks if one.words.endswith("by one name: it was not read")]
    few = [("own", "\n".join(IMPORTS[:60]))]
    assert not any("not read" in one.words for one in scan(TASKS["softargmax"], "f", few, []).remarks)


def test_a_name_that_stands_a_thousand_times_is_followed_once():
    # Where it was followed each time, these 5 kB took nine seconds at each check.
    many = f"def a():\n    {', '.join(f'b{number}' for number in range(2000))}\n"
    many += f"def softargmax(s):\n    ({'a, ' * 2000})\n    return torch.softmax(s, -1)"
    walked = []
    with pytest.MonkeyPatch.context() as patch:
        whole = scanning._walk
        patch.setattr(scanning, "_walk", lambda tree: walked.append(tree) or whole(tree))
        found = scan(TASKS["softargmax"], "softargmax", [("softargmax", many)], ["import torch"])
    assert found.remarks
    assert len(walked) < 20


def test_what_has_many_names_is_read_once():
    # Where it was read for each, 18 kB took gigabytes of the grader's memory.
    names = [f"a{number}" for number in range(300)]
    many = f"{' = '.join(['softargmax', *names])} = [{'1, ' * 500}]\ndef f():\n    return {', '.join(names)}"
    cell = scanning._parse(f"{many}\n" + "softargmax = f")
    reached = list(scanning._Notebook([], [("mine", cell)]).reached("softargmax"))
    assert len(reached) == len({id(node) for *_, node in reached}) < 2000


def test_a_line_of_many_magics_is_read_once():
    # Where each was followed to the end of the line, 96 kB took five seconds at each check.
    line = 'x = "' + "magic(" * 16_000 + '"'
    assert not scan(TASKS["softargmax"], "softargmax", [("own", line)], ["import torch"]).remarks
    assert scan(TASKS["softargmax"], "softargmax", [("own", f"{line}\n%run x.py")], ["import torch"]).remarks


def test_of_a_long_line_of_attributes_each_is_named_in_short():
    # Where each of them was put together from its beginning, 96 kB took 15 seconds at each check.
    cell = scanning._parse(f"import torch\n{'.'.join(['torch', *['a'] * 500])}")
    notebook = scanning._Notebook([], [("mine", cell)])
    assert sum(len(name) for node in cell.nodes for name in notebook.names(cell, node)) < 20 * 500


@pytest.mark.parametrize(
    ("beside", "answer"),
    [
        ("from numpy import exp, matmul", "matmul(exp(q.tolist()), v)"),
        ("import numpy\nturned = numpy.exp", "turned(q.tolist())"),
        ("from torch.utils.dlpack import to_dlpack as given", "given(q)"),
    ],
)
def test_what_comes_of_a_refused_module_is_told_wherever_it_is_imported(beside, answer):
    source = f"def chunked_attention(q, k, v, chunk_size):\n    return {answer}"
    cells = [("own", beside), ("mine", source)]
    remarks = scan(TASKS["chunked_attention"], "chunked_attention", cells, ["import torch"]).remarks
    assert any("uses numpy" in one.words or "dlpack" in one.words for one in remarks)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *[
            (text, False)
            for text in ("torch.Tensor", "list[int]", "Tensor | None", "batch dim", "Sequence[np.ndarray]")
        ],
        *[
            (text, False)
            for text in ("dict[str, torch.Tensor]", "Callable[[int], Tensor]", "tuple[int, ...]")
        ],
        *[(text, True) for text in ("box[torch.softmax]", "Box[torch.nn.Softmax]", "box | softmax", "f(x)")],
        ("list[torch.threading.Thread]", True),
    ],
)
def test_a_text_that_is_more_than_a_type_is_told(text, told):
    source = f"def softargmax(s):\n    def inner(x: {text!r}):\n        return x\n    return s"
    remarks = scan(TASKS["softargmax"], "softargmax", [("own", source)], ["import torch"]).remarks
    assert any("more than a type" in one.words for one in remarks) == told


@pytest.mark.parametrize(
    "way", ["from functools import singledispatch", "import functools as f\nf.singledispatchmethod"]
)
def test_what_runs_the_texts_of_annotations_is_told(way):
    remarks = scan(TASKS["softargmax"], "softargmax", [("own", way)], []).remarks
    assert any("singledispatch" in one.words for one in remarks)


@pytest.mark.parametrize("told", [False, True])
def test_what_installs_is_told_where_it_does_anything_else(told):
    lines = {
        False: [
            "pip list",
            "pip install einops",
            "pip3 install -q --upgrade 'torch==2.1' numpy",
            "conda list",
            "pip",
        ],
        True: [
            "pip config edit --editor sh",
            "pip install .",
            "pip install /tmp/x",
            "conda run python",
            "pip --python x",
        ],
    }[told]
    for line in lines:
        for sign in "!%" if not line.startswith("pip3") else "!":
            remarks = scan(
                TASKS["softargmax"], "softargmax", [("own", sign + line)], ["import torch"]
            ).remarks
            assert bool(remarks) == told, (sign, line, remarks)


def test_what_is_nearly_a_norm_is_told_by_its_other_name():
    for name in ("layer_norm", "rms_norm"):
        source = f"def {name}(x, *more):\n    return torch.nn.CrossMapLRN2d(3)(x)"
        assert any(
            "CrossMapLRN2d" in one.words
            for one in scan(TASKS[name], name, [("own", source)], ["import torch"]).remarks
        )


def test_a_long_chain_of_calls_is_followed_once():
    # Where it was followed from each of its calls, 57 kB took 16 seconds at each check.
    chain = "softargmax = f" + "".join(f".a{number}(b{number})" for number in range(300))
    cell = scanning._parse(chain)
    notebook = scanning._Notebook([], [("mine", cell)])
    entries = sum(map(len, notebook.defined.values()))
    assert entries < 2 * 300
    reached = {node.id for _, _, node in notebook.reached("softargmax") if isinstance(node, ast.Name)}
    assert reached >= {"f", *(f"b{number}" for number in range(300))}
    kept = scanning._Notebook([], [("mine", scanning._parse("softargmax.keep(g).keep(h)"))])
    reached = {node.id for _, _, node in kept.reached("softargmax") if isinstance(node, ast.Name)}
    assert reached >= {"g", "h"}


def test_a_cell_of_empty_lines_is_read_at_once():
    # Where each line was searched to the end of all, this many took hours.
    cells = [("own", "\n" * 300_000), ("mine", "\n" * 90_000 + "%run mine.py")]
    found = scan(TASKS["softargmax"], "softargmax", cells[:1], ["import torch"])
    assert [words.partition(":")[2] for _, words, _ in found.remarks] == [" it was not read"]
    found = scan(TASKS["softargmax"], "softargmax", cells[1:], ["import torch"])
    assert [one[:2] for one in found.remarks] == [("mine", "the code runs a file, which was not read")]


@pytest.mark.parametrize(
    "cell",
    [
        # IPython goes round 500 times over the first three, a second for each; and in the others it looks for
        # what is asked about from each sign to the end.
        ";" * 98_000 + "?",
        "%%time\n" + ";" * 50_000 + "??",
        "import torch\n" + ";" * 20_000 + "?",
        "a" * 20_000 + ";?",
        "a." * 5000 + ";?",
        "%%capture\n" + "*" * 20_000 + ";?",
        "a = 1\n" + "a**" * 6000 + ";?",
    ],
)
def test_what_ipython_would_read_for_minutes_is_not_read_to_its_end(cell):
    rounds = []
    with pytest.MonkeyPatch.context() as patch:
        once = commands._Reader.do_one_token_transform
        patch.setattr(
            commands._Reader,
            "do_one_token_transform",
            lambda self, lines: rounds.append(sum(map(len, lines))) or once(self, lines),
        )
        found = scan(TASKS["softargmax"], "softargmax", [("own", cell)], ["import torch"])
    assert [words.partition(":")[2] for _, words, _ in found.remarks] == [" it was not read"]
    assert sum(rounds) < 10**6
    scanning.forget()


def test_an_enormous_number_beside_a_command_is_read():
    cell = "get_ipython().run_line_magic(0x" + "f" * 5000 + ", 'x')"
    found = scan(TASKS["softargmax"], "softargmax", [("own", cell)], ["import torch"])
    assert [place for place, *_ in found.remarks] == ["own"]


def test_what_is_asked_of_ipython_beside_code_hides_none():
    asked = "?\n".join(["torch.softmax", "%matplotlib", "a.b", "print"]) + "??\n"
    cell = f"{asked}def softargmax(s):\n    return torch.softmax(s, -1)"
    found = scan(TASKS["softargmax"], "softargmax", [("softargmax", cell)], ["import torch"])
    assert found.calls, found


@given(st.text(alphabet="%!?/,;= \t\n\x0bx", max_size=40))
def test_a_cell_is_read_as_ipython_reads_it(source):
    try:
        whole = TransformerManager().transform_cell(source)
    except Exception:
        whole = source
    plain = commands._plain(source)
    assert plain in (None, whole)
    assert plain is not None or "?" in source


@given(st.text(alphabet="%!?/,;= \t\n\x0bx", max_size=40))
def test_commands_are_counted_line_by_line(source):
    beyond = re.compile(r"^\s*[%!?/,;]|\?\s*$|=\s*[%!]", re.MULTILINE)
    assert len(scanning._MAGICS.findall(source)) == len(beyond.findall(source))


@pytest.mark.slow
def test_of_all_own_cells_together_only_so_much_is_read():
    cells = [(f"own {number}", "a;" * 45_000) for number in range(5)]
    cells.append(("softargmax", "def softargmax(s):\n    return torch.softmax(s, -1)"))
    found = scan(TASKS["softargmax"], "softargmax", cells, ["import torch"])
    ((place, words, _),) = found.remarks
    assert place == "own 3"
    assert f"{MOST_CHARACTERS_OF_ALL:,} characters" in words
    assert not found.calls
    assert scan(TASKS["softargmax"], "softargmax", cells[3:], ["import torch"]).calls


@pytest.mark.slow
def test_what_was_read_is_forgotten_with_its_notebook(tmp_path):
    executed([new_code_cell(HEAD), check_cell("good", "checks.attention(good)")], tmp_path)
    assert not any(kept.cache_info().currsize for kept in (scanning._parse, scanning._walk))


def test_a_name_is_told_once_for_each_cell_with_all_its_lines():
    source = "def softargmax(s):\n    numpy = eval\n" + "    eval('1')\n" * 12 + "    return s"
    found = scan(TASKS["softargmax"], "softargmax", [("mine", source)], ["import torch"])
    assert [one[:2] for one in found.remarks] == [
        ("mine", "the code uses eval (lines 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 3 more of its cell)")
    ]


def test_names_that_are_made_up_by_the_dozen_are_of_one_kind():
    names = "torch.softmax_{0}, torch.my_softmax{0}, s.{1}globals, s.GLOBALS"
    mine = "\n".join(f"    {names.format(number, '_' * number)}" for number in range(50))
    source = f"import ctypes\ndef softargmax(s):\n{mine}\n    return ctypes"
    found = scan(TASKS["softargmax"], "softargmax", [("mine", source)], ["import torch"])
    assert len(found.remarks) > 100
    assert len({one.kind for one in found.remarks}) == 3


@pytest.mark.parametrize(
    "source",
    [
        *("from mine import softargmax", "import mine.parts as m", "%run mine.py", "_ = %run mine.py"),
        *("run mine.py", " run -i './mine.py'\n", "%%time\nrun mine.py", "if x:\n    %time %run mine.py"),
        "get_ipython().run_line_magic('run', 'mine.py')",
        "%alias_magic rr run",
    ],
)
def test_a_person_is_told_of_answers_in_other_files(source):
    found = scan(TASKS["softargmax"], "softargmax", [("softargmax", source)], ["import torch"], {"mine"})
    assert "was not read" in found.remarks[0][1]
    for harmless in ("import math", "run(3)", "run = 3", "run is None", "run - 3", "'''\nrun the model\n'''"):
        assert not scan(TASKS["softargmax"], "softargmax", [("own", harmless)], [], {"mine"}).remarks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("from mine import attention", "mine"),
        ("import sys\nsys.path.insert(0, 'data')\nfrom deep import *", "deep"),
        ("%load_ext yours", "yours"),
    ],
)
def test_files_beside_the_notebook_that_can_be_imported_are_told_of(source, name, tmp_path):
    (tmp_path / "data").mkdir()
    for file in ("mine.py", "yours.so", "data/deep.py"):
        (tmp_path / file).write_text("def attention(q, k, v):\n    return v\n")
    cells = [new_code_cell(f"import math\nfrom attncourse import checks\n{source}")]
    nb = executed([*cells, check_cell("attention", "checks.attention(attention)")], tmp_path)
    files, *others = (flag["words"] for flag in nb.metadata.attncourse["flags"])
    assert files.endswith("that nobody has read (3): data/deep.py, mine.py, yours.so")
    assert any(f"imports {name}, which was handed in beside it" in words for words in others)


def test_every_file_beside_a_notebook_is_told_of(tmp_path):
    assert beside.remark(tmp_path, ()) == ""
    (tmp_path / "data").mkdir()
    for name in ("timestamp.txt", "unit.ipynb", "copy.ipynb", "given.csv", "data/given.csv"):
        (tmp_path / name).touch()
    assert beside.remark(tmp_path, ("given.csv", "data/given.csv")) == ""
    for name in ("a.png", "data/timestamp.txt", "b.ipynb.txt", "lambda s: s"):
        (tmp_path / name).touch()
    words = beside.remark(tmp_path, ("given.csv", "data/given.csv"))
    assert words.endswith("(4): a.png, b.ipynb.txt, data/timestamp.txt, lambda s: s")
    for number in range(30):
        (tmp_path / f"x{number:02}").touch()
    assert beside.remark(tmp_path, ()).endswith(", x13 and 16 more")


@pytest.mark.slow
def test_what_an_exercise_brings_is_not_told_of(tmp_path):
    (tmp_path / "given.csv").touch()
    assert not executed([], tmp_path, released=["given.csv"]).metadata.attncourse["flags"]
    (flag,) = executed([], tmp_path).metadata.attncourse["flags"]
    assert "(1): given.csv" in flag["words"]


def test_what_an_argument_does_while_it_is_read_is_done_by_the_answer():
    """And so it is refused, and watched, unlike what a served function does."""
    seen = []

    class Three(int):
        def __int__(self):
            seen.append(refusing.Refusal.in_given())
            return 3

    class Word(str):
        def __str__(self):
            seen.append(refusing.Refusal.in_given())
            return "word"

    class Shaped(torch.Tensor):
        @property
        def layout(self):
            seen.append(refusing.Refusal.in_given())
            return torch.strided

    def ask(question):
        seen.append(refusing.Refusal.in_given())
        return wire.encode({"value": 3.0})

    absent.serve(["course.merge"], ask)
    assert absent.served("course.merge")(Three(3), [Three(3)], {Word("a"): Shaped(2)}) == 3.0
    assert seen[-1] == 1
    assert seen[:-1] == [0, 0, 0]


def test_hooks_of_an_answer_do_not_run_within_a_served_function():
    seen = []
    absent.serve(["course.merge"], lambda question: wire.encode({"value": torch.ones(2)}))
    tensor = torch.ones(2, requires_grad=True)
    with (
        pytest.raises(RuntimeError, match=r"course\.merge is called within hooks"),
        torch.autograd.graph.saved_tensors_hooks(seen.append, lambda kept: kept),
    ):
        absent.served("course.merge")(tensor)
    assert not seen
    absent.served("course.merge")(tensor)


def test_a_served_function_takes_what_is_of_a_kind_of_its_own():
    class Sizes(list):
        pass

    given = torch.ones(2, 3)
    weights = torch.nn.Linear(3, 2).state_dict()  # which is no plain dictionary
    asked = []

    def ask(question):
        asked.append(wire.decode(question)["inputs"])
        return wire.encode({"value": 3.0})

    absent.serve(["course.mine"], ask)
    absent.served("course.mine")(weights, given.shape, given.max(-1), Sizes([1]))
    ((taken, shape, largest, sizes),) = asked
    assert taken.keys() == {"weight", "bias"}
    assert torch.equal(taken["weight"], weights["weight"])
    assert (shape, sizes) == ((2, 3), [1])
    assert [part.tolist() for part in largest] == [[1, 1], [0, 0]]


UNUSUAL = {
    "frames": "import inspect\nfor one in inspect.stack():\n    one.frame.f_globals.get('Refusal')",
    "frames of what failed": "try:\n    1 / 0\nexcept Exception as e:\n    e.__traceback__.tb_frame",
    "a thread by a class of the library": "from logging.handlers import QueueListener",
    "a thread by one of IPython's": "import IPython\nIPython.lib.backgroundjobs.BackgroundJobFunc(print)",
    "a process by PyTorch": "t = torch\nt.utils.data.DataLoader([], num_workers=1)",
    "a module of another": "import random\nrandom._os.fork()",
    "a module of another, imported": "from torch import inspect as i",
    "a written file": "%%writefile statistics.py\nx = 1",
    "another program": "!python -c 'print(1)' &",
    "another program for a cell": "%%bash\nsleep 1",
    "another program in a value": "text = !cat /proc/self/maps",
    "a command by another name": "shell = get_ipython\nshell().system('sleep 1')",
    "an extension": "%load_ext helper",
    "what %time runs": "%time __import__; import inspect",
    "what stands beside %%prun": "%%prun -q import inspect\npass",
    "what stands beside %%timeit": "%%timeit -n1 -r1 import inspect\npass",
    "what stands beside a command below another": "%%time\n%%capture\n%%prun import inspect\npass",
    "a value beside %%capture": "%%capture {helper()}\npass",
    "what stands behind an option with a value": "%prun -q -s time import inspect",
    "what stands behind a long option": "%time --no-raise-error import inspect",
    "what is timed by what is timed": "%time %timeit -n 1 import inspect",
    "what a setting is to be": "%config InlineBackend.close_figures = __import__('os')",
    "a line that IPython takes for a command": "time exec('import inspect')",
    "bytes of code": "mine.__code__.replace(co_names=('softmax',))",
    "an operator of another's": "torch.Tensor.__floordiv__ = print",
    "a part that runs programs": "from matplotlib.testing import subprocess_run_helper",
    "a function that runs code": "np.testing.runstring(code, {})",
    "a module from beside": "from .math import sin",
    "what has loaded a module": "__loader__",
    "a hook of all layers": "torch.nn.modules.module.register_module_forward_hook(print)",
    "text that is code that looks into all": "timeit.timeit('globals()')",
    "text that is code": "code = 'import inspect'",
    "what stands around, by its name": "getattr(getattr(e, '__traceback__'), 'tb_frame')",
    "a module by its name": "getattr(torch, 'utils').data",
    "a module by its hidden name": "g(random, '_os')",
    "getattr by another name": "g = getattr",
    "a module in a pattern": "match torch:\n    case object(utils=u):\n        pass",
    "a program beside a list of files": "%ls; python mine",
    "a value in a command": "!echo {helper()}",
    "a value in a command of IPython's": "%matplotlib {helper()}",
    "a program that is timed": "%time !python mine",
    "a file that is imported": "np.savetxt('ipywidgets.py', [['x = 1']])",
    "a file that is written": "with open(name, 'w') as f:\n    f.write(text)",
    "the module itself": "import __main__ as m",
    "what PyTorch calls later": "y.register_hook(lambda g: kept.append(f()))",
    "Python's own by an assignment": "exec = exec\nexec('a' + 'b')",
    "Python's own by a loop": "for compile in [compile]:\n    pass",
    "what imports, by another": "def own(*a):\n    return 1\n__import__ = own",
    "an annotation": "def f(x): ...\nf.__annotations__['x'] = 'exec(' + text",
    "an annotation that is a text": "def f(x: 'exec(' + repr(text) + ')'): ...",
    "types as texts": "import typing\ntyping.get_type_hints(f)",
    "a signature of texts": "from inspect import signature\nsignature(f, eval_str=True)",
    "what is timed": "import timeit\ntimeit.timeit(text, number=1)",
    "a setting of IPython's": "%config ZMQInteractiveShell.autocall = 2",
    "a setting that changes cells": "%config ZMQInteractiveShell.ast_transformers = [T()]",
    "objects from a file, by place": "np.load('w.npy', None, True)",
    "objects from a file, by names in a text": "torch.load('w.pt', **{'weights_only': False})",
    "a file of code that is written": "x.tofile('statistics.p' + 'y')",
    "a file of code, as text": "np.savetxt('statistics.p' + 'y', x, fmt='%s')",
    "a module by one that draws": "from matplotlib import importlib",
    "a module of which one function is ordinary": "from matplotlib import inspect",
    "a module by a part of one that draws": "from matplotlib.cbook import subprocess as s",
    "a module that draws": "matplotlib.use('module://evil')",
    "a module that draws, by a command": "%matplotlib module://evil",
    "what a module keeps for itself": "import warnings\nwarnings._getcategory('evil.a')",
    "another function for PyTorch's": "torch.equal = lambda *a: True",
    "another method": "torch.Tensor.mean = spy",
    "another operator": "import operator\noperator.matmul = spy",
    "another function by its name": "setattr(torch, 'softmax', spy)",
    "a line that is a command of the system": "cat /dev/null; printf x > ipywidgets.py",
    "a line that imports": "aimport evil",
    "a line below an empty one": "\n\n  time import inspect\n",
    "what Python's reader refuses": "from __future__ import barry_as_FLUFL",
    "a line below a command": "%%capture\ntime f = exec",
    "a line below two commands": "%%time\n%%capture\n\n  time import inspect",
    "what gives by a text, by another name": "from operator import attrgetter as taken",
    "what is given to a decorator": "np.testing.decorate_methods(F, keep, '^soft.ax$')",
    "an annotation that is a text in brackets": "def f(x: \"torch.nn.__dict__['Soft' 'max']\"): ...",
    "a text by typing": "from typing import ForwardRef",
    "a text by typing, inside": "ref._evaluate({}, {}, frozenset())",
    "what is copied by its name": "functools.update_wrapper(Box(), torch, assigned=['soft' + 'max'])",
    "what is copied by its name, by place": "update_wrapper(Box(), torch, ['soft' + 'max'])",
    "what is copied by a decorator": "@wraps(torch, ['soft' + 'max'])\ndef f(): ...",
    "names of a tuple": "match torch:\n    case A(f):\n        pass",
    "names of a class of data": "dataclasses.make_dataclass('T', ''.join(parts))",
    "names of a pattern": "class P:\n    __match_args__ = ('soft' + 'max',)",
    "what is an instance": "class M(type):\n    __instancecheck__ = lambda cls, x: True",
    "what PyTorch calls for a number": "class A:\n    def __float__(self):\n        return f()",
    "what PyTorch calls on the way back": "class A(torch.autograd.Function): ...",
    "what a module keeps for itself, imported": "from dataclasses import _create_fn as f",
    "what somebody keeps for itself": "layer._steps",
    "a compiler of one's own": "torch.compile(layer, backend=look)",
    "a compiler among chosen arguments": "torch.compile(layer, **how)",
    "what is chosen from all names": "f = [f for n, f in vars(F).items() if n[:6] == 'scaled'][0]",
    "what is chosen by its length": "f = [n for n in dir(torch) if len(n) == 28]",
    "what is asked for by a name that is chosen": "[operator.attrgetter(n)(F) for n in names]",
    "what is asked for by a name that is put together": "getattr(s, 'soft' + word)",
    "modules by a star": "from matplotlib.pyplot import *",
    "modules by a star, of the library": "from torch.nn.functional import *",
    "what PyTorch calls in the middle of something": "class A:\n    def __index__(self):\n        return 1",
    "what Python calls for whoever inherits": "class A:\n    def __init_subclass__(cls):\n        pass",
}


@pytest.mark.parametrize("source", UNUSUAL.values(), ids=list(UNUSUAL))
def test_a_person_is_told_of_what_no_answer_needs(source):
    cells = [("own", source), ("mine", "def mine(s):\n    return s.exp()")]
    assert scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks


USUAL = """
%matplotlib inline
%load_ext autoreload
!pip list
%time y = torch.ones(3).sum()
%timeit -n 5 -r1 -q torch.ones(3)
%config InlineBackend.figure_format = "svg"
%matplotlib widget
import torch.nn.functional as F
from collections import defaultdict
from math import *
from torch.autograd.functional import jacobian
from attncourse import *
from matplotlib import pyplot as plt
from IPython.display import display, HTML
import matplotlib.animation
import numpy as np
import attncourse.plots
Point = collections.namedtuple("Point", "x y", defaults=(1, 2))
class Mine(torch.nn.Module):
    __slots__ = ()
    def __init__(self):
        super().__init__()
        self._kept = point._replace(x=self._buffers)
        self.attention, self.queue, text = 1, open("given.txt").read(), np.random.rand(3).copy()
    def forward(self, x):
        y: "list[torch.Tensor]" = [torch.load("a.pt", weights_only=True)]
        plt.style.use(style), matplotlib.use("Agg")
        torch.compile(self.attend, backend="eager"), re.compile("a|b", flags=re.MULTILINE)
        return x.trace() + x.select(0, 1) + float.__add__(1, 2) + self.attention
        match x:
            case int(y) | Point(x=1, y=y):
                pass
    def __repr__(self):
        return getattr(self, "name", type(self).__name__)
def wrapped(f):
    @functools.wraps(f)
    def _f(x):
        return mine._kept + functools.update_wrapper(f, wrapped=g)(x)
if __name__ == "__main__":
    print("utils", "__main__", {"random": 1, "os": "time.sleep"})
"""


def test_what_notebooks_have_is_not_told_of():
    *lines, rest = USUAL.strip().split("\n", 7)
    for source in [*lines, rest]:
        cells = [("own", source), ("mine", "def mine(s):\n    return s.exp()")]
        assert not scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks, source


FUNCTIONS = {"inspect.signature", "torch.nn.utils.clip_grad_norm_"}


def test_no_module_is_reached_from_an_ordinary_one_without_being_told_of():
    waiting = [import_module(name) for name in sorted(ordinary.MODULES - FUNCTIONS)]
    reached = {module.__name__ for module in waiting}
    for module in waiting:  # which grows
        for name, value in vars(module).items():
            told = ordinary.unusual(scopes.Cell(ast.parse(f"module = x.{name}.y")))
            if isinstance(value, ModuleType) and not told and value.__name__ not in reached:
                reached.add(value.__name__)
                waiting.append(value)
    # Parts of these that only compute or show, though they have names that other things have, too.
    parts = "torch.autograd torch.cuda torch.nn torch.optim torch._C torch.testing numpy ipywidgets comm re"
    others = reached - ordinary.MODULES - {"types", "torch.functional", "torch.utils.hooks"}
    others -= {"IPython.core.release", "IPython.testing", "IPython.testing.skipdoctest"}
    others = {name for name in others if not name.startswith("torch.signal.windows")}
    assert {name for name in others if not name.startswith(tuple(parts.split()))} == set()


def test_a_star_that_is_not_told_of_brings_no_other_module():
    brought = {}
    for name in ordinary.MODULES - FUNCTIONS - {"__future__"} | ordinary.STARRED:
        if not ordinary.unusual(scopes.Cell(ast.parse(f"from {name} import *"))):
            exec(f"from {name} import *", found := {})
            brought |= found
    assert "softmax" in brought
    modules = {value.__name__ for value in brought.values() if isinstance(value, ModuleType)}
    assert modules - ordinary.MODULES <= {"torch.export", "torch._C.cpp"}


def test_what_is_ordinary_is_loaded_before_a_notebook_runs():
    """Else a file of the same name, which is told of, could come in its place; of these two it could."""
    names = {name.partition(".")[0] for name in ordinary.MODULES} - {"ipywidgets", "statistics"}
    code = f"import sys, attncourse.plots, ipykernel.kernelapp\nprint(*{names} - {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


KEEPING = {
    "a method of a tensor": ("torch.Tensor.weights = {helper}", "s.weights()"),
    "a method under another name": ("T = torch.Tensor\nsetattr(T, 'weights', {helper})", "s.weights()"),
    "a method of a class": ("class A:\n    weights = {helper}\n    also = 1", "shared[0].weights(s)"),
    "a method by its name": ("torch.Tensor.weights = {helper}", "getattr(s, 'weights')(-1)"),
    "something that keeps it": ("box = set()\nbox.add({helper})", "[*box][0](s, -1)"),
    "something that keeps it, in a value": ("box = set()\n_ = [box.add({helper})]", "[*box][0](s, -1)"),
    "a decorator that keeps it": (
        "from functools import singledispatch\nw = singledispatch(print)\n@w.register\n"
        "def _(s: torch.Tensor):\n    return {helper}(s, -1)",
        "w(s)",
    ),
    "a result of IPython's": ("{helper}", "Out[1](s, -1)"),
    "the last result": ("{helper}", "_(s, -1)"),
    "out of a function": ("def f():\n    g = {helper}\n    global h\n    h = g\nf()", "h(s, -1)"),
    "out of an inner function": (
        "def f(x):\n    def g():\n        nonlocal x\n        x = {helper}\n    g()\n    global h\n    h = x",
        "h(s, -1)",
    ),
    "out of a class": ("class A:\n    global h\n    g = {helper}\n    h = g", "h(s, -1)"),
    "out of a comprehension": ("[h := g for f in [[{helper}]] for g in f]", "h(s, -1)"),
}


@pytest.mark.parametrize(("helper", "answer"), KEEPING.values(), ids=list(KEEPING))
def test_a_helper_is_found_however_it_is_kept(helper, answer):
    cells = [("own", helper.format(helper="torch.softmax")), ("mine", f"def mine(s):\n    return {answer}")]
    assert scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    # Beside an answer that has nothing of it, it is a comparison, or handed on.
    cells[1] = ("mine", "def mine(s):\n    return s.exp()")
    remarks = scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    assert all(
        "softmax, and hands it on" in remark.words or "which no answer needs" in remark.words
        for remark in remarks
    )


HANDED_ON = {
    "to a list by another name": "box = []\nother = box\nother.append({})",
    "to an own function": "def put(where, what):\n    where.append(what)\nbox = []\nput(box, {})",
    "by a name": "f = {}\nput(box, what=f)",
    "as a default": "def keep(x, what={}):\n    return what",
    "by an operator": "box << {}",
    "into what another name is of": "other = box\nother[0] = {}",
    "by what is added": "other = box\nother += [{}]",
    "by an error": "try:\n    raise ValueError({})\nexcept ValueError as e:\n    kept = e",
    "by an assignment to a part": "for box[0] in [{}]:\n    pass",
    "by a function of one's own": "def f(s):\n    return {}(s, -1)\nput(box, f)",
    "by a lambda": "put(box, lambda s: {}(s, -1))",
    "by a method": "class A:\n    def f(self, s):\n        return {}(s, -1)\nput(box, A().f)",
    "by an object": "class A:\n    def __call__(self, s):\n        return {}(s, -1)\na = A()\nput(box, a)",
    "by a decorator": "@put\ndef f(s):\n    return {}(s, -1)",
    "by what a decorator's call gives": "@put(box)\nclass A:\n    def f(self, s):\n        return {}(s, -1)",
    "as a result": "def f():\n    return {}",
    "by an attribute": "a.f = {}\nput(box, a.f)",
    "out of a list": "fs = [{}]\nput(box, fs.pop())",
    "by a pattern": "match {}:\n    case f:\n        put(box, f)",
    "by a loop": "for f in [{}]:\n    put(box, f)",
    "by a comprehension": "[put(box, f) for f in [{}]]",
    "as a type": "x: {}",
    "by an equality": "box == {}",
    "by another name of an object": "other = box\nother.soft = {}",
    "by an own decorator": "def wraps(f):\n    box.append(f)\n@wraps\ndef f(s):\n    return {}(s, -1)",
    "by a renamed one": "from functools import reduce as cache\n@cache\ndef f(s):\n    return {}(s, -1)",
    "by an own object's": "box = A()\n@box.cache\ndef f(s):\n    return {}(s, -1)",
    "by a setter": "class A:\n    p = box\n    @p.setter\n    def p(self, s):\n        return {}(s, -1)",
    "against the order of the cell": "def late():\n    put(box, g)\ng = f = {}",
}


@pytest.mark.parametrize("source", HANDED_ON.values(), ids=list(HANDED_ON))
def test_a_person_is_told_of_what_is_handed_on(source):
    mine = "def mine(s):\n    return box[0](s, -1)"
    cells = [("own", source.format("torch.softmax")), ("mine", mine)]
    (remark, *_) = scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    assert remark.words.startswith(
        "the code uses softmax, and hands it on to where nobody can follow it (line"
    )
    # What no task forbids goes where it likes.
    cells[0] = ("own", source.format("torch.exp"))
    assert not scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks


@pytest.mark.parametrize(
    "method",
    [
        "def __init__(self):\n        " + way
        for way in (
            *("box.append(self)", "box.append(type(self))", "box.append(self.__class__)", "box += [self]"),
            *("list.append(box, self)", "box[0] = self", "box << self", "self == box", "other = self"),
            *("box.append(getattr(self, 'f'))", "box.append(lambda: self)", "[put(x) for x in (self,)]"),
        )
    ]
    + [
        "def __new__(cls):\n        box.append(cls)",
        "def __init__(*both):\n        box.append(both[0])",
        "__init__ = lambda me: box.append(me)",
        "def itself(self):\n        return self",
    ],
)
@pytest.mark.parametrize("where", ["class A:\n    {}\n    {}\n", "class B:\n    {}\nclass A(B):\n    {}\n"])
def test_a_person_is_told_of_an_object_that_keeps_itself(where, method):
    mine = ("mine", "def mine(s):\n    return box[0](s, -1)")
    for called, told in (("torch.softmax", True), ("torch.exp", False)):
        source = where.format(method, f"def __call__(self, s, dim):\n        return {called}(s, dim)") + "A()"
        remarks = scan(TASKS["softargmax"], "mine", [("own", source), mine], ["import torch"]).remarks
        assert bool(remarks) == told, remarks


@pytest.mark.parametrize("before", ["def print(what):\n    box.append(what)", "class C:\n    pass"])
def test_an_own_function_may_keep_what_it_is_asked_about(before):
    source = f"{before}\nclass A:\n    def __init__(self):\n        print(self)\n        C.__init__(self)"
    source += "\n    def f(self, s):\n        return torch.softmax(s, -1)\nA()"
    mine = ("mine", "def mine(s):\n    return box[0].g(s)")
    assert scan(TASKS["softargmax"], "mine", [("own", source), mine], ["import torch"]).remarks


@pytest.mark.parametrize(
    "asking",
    ['getattr({}, "{}")', 'attrgetter("{1}")({0})', 'methodcaller("{1}", -1)'],
    ids=["get", "attr", "method"],
)
@pytest.mark.parametrize("kept", ["list.append(box, ask)", "def reg(f):\n    box.append(f)\nreg(ask)"])
def test_what_is_asked_for_by_its_name_is_told_of_wherever_it_goes(asking, kept):
    before = "from operator import attrgetter, methodcaller\nbox = []\ndef ask(s):\n    return "
    mine = ("mine", "def mine(s):\n    return box[0](s, -1)")
    for name, told in (("softmax", True), ("exp", False)):
        cells = [("own", f"{before}{asking.format('torch', name)}(s)\n{kept}"), mine]
        remarks = scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
        assert bool(remarks) == told, remarks
        assert not told or "softmax" in remarks[0].words


def test_what_a_pattern_asks_for_is_told_of_wherever_it_goes():
    ask = "def ask(s):\n    match torch:\n        case object(softmax=f):\n            return f(s, -1)"
    cells = [("own", f"{ask}\nlist.append(box, ask)"), ("mine", "def mine(s):\n    return box[0](s)")]
    (remark,) = scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    assert remark.words == "the code uses softmax (line 3 of its cell)"


@pytest.mark.parametrize(
    "source",
    [
        *("print(mine(s) - {}(s, -1))", "theirs = {}\nerror = theirs(s, -1) - mine(s)"),
        "def theirs(s):\n    return {}(s, -1)\nassert torch.allclose(theirs(s), mine(s))",
        "for f in (mine, {}):\n    print(f(s, -1))",
        "class A(torch.nn.Module):\n    def forward(self, s):\n        return {}(s, -1)\nprint(A()(s))",
        "mine is {}",
        "import functools\n@functools.lru_cache(2)\ndef theirs(s):\n    return {}(s, -1)\nprint(theirs(s))",
        "class A(torch.nn.Module):\n    def __init__(self):\n        super(A, self).__init__()\n"
        "        torch.nn.Module.__init__(self)\n        self.f = {}\n    def __repr__(self):\n"
        "        return f'{{self.__class__.__name__}} of {{len(self)}} {{self[0]}}'\nprint(A()(s))",
    ],
)
def test_what_is_only_compared_with_is_not_handed_on(source):
    cells = [("mine", "def mine(s):\n    return s.exp()"), ("own", source.format("torch.softmax"))]
    assert not scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks


def test_a_function_that_goes_from_name_to_name_without_end_is_told_of_in_a_short_time():
    names = "\n".join(f"a{number} = a{number + 1}" for number in range(3000))
    cells = [("own", f"{names}\na3000 = torch.softmax"), ("mine", "def mine(s):\n    return s.exp()")]
    start = time.process_time()
    assert scan(TASKS["softargmax"], "mine", cells, ["import torch"]).remarks
    assert time.process_time() - start < 20


def test_a_person_is_told_of_work_that_is_not_watched():
    source = (
        "from concurrent.futures import ProcessPoolExecutor\ndef mine(q, k, v, n):\n"
        "    with ProcessPoolExecutor() as pool:\n        return pool.submit(torch.matmul, q, k).result()"
    )
    (remark,) = scan(TASKS["chunked_attention"], "mine", [("mine", source)], ["import torch"]).remarks
    assert remark.words == ("the code uses concurrent.futures (line 1 of its cell), which no answer needs")


# --- what is repaired ---

RESOURCES = {"nbgrader": {"notebook": "unit", "assignment": "unit"}}


@pytest.fixture(scope="module")
def gradebook(tmp_path_factory):
    """A gradebook that knows one unit: two answers, each with a check, and a locked cell."""
    url = f"sqlite:///{tmp_path_factory.mktemp('course')}/gradebook.db"
    with Gradebook(url) as book:
        book.add_assignment("unit")
        book.add_notebook("unit", "unit", kernelspec="{}")
        for name, source, locked in RELEASED:
            book.add_source_cell(
                name, "unit", "unit", cell_type="code", locked=locked, source=source, checksum=name
            )
            if name.startswith("check"):
                book.add_grade_cell(name, "unit", "unit", max_score=3, cell_type="code")
            elif not locked:
                book.add_solution_cell(name, "unit", "unit")
    return url


RELEASED = [
    ("head", "from attncourse import checks", True),
    ("first", "raise NotImplementedError()", False),
    ("check_first", "checks.attention(first)", True),
    ("second", "raise NotImplementedError()", False),
    ("check_second", "checks.attention(second)", True),
]


def handed_in():
    cells = []
    for name, source, locked in RELEASED:
        marks = {"grade": name.startswith("check"), "solution": not locked, "locked": locked}
        marks |= {"grade_id": name, "schema_version": 3, "points": 3, "task": False}
        source = source if locked else f"{name} = abs"
        cells.append(new_code_cell(source, metadata={"nbgrader": marks}))
    return new_notebook(cells=cells)


def repaired(nb, gradebook):
    resources = {"nbgrader": {**RESOURCES["nbgrader"], "db_url": gradebook}}
    nb, _ = Repair().preprocess(nb, resources)
    nbformat.validate(nb)
    return nb


def graded_names(nb):
    return [cell.metadata.nbgrader.grade_id for cell in nb.cells if "nbgrader" in cell.metadata]


def tagged(nb):
    for cell in nb.cells:
        cell.metadata["tags"] = ["skip-execution"]


def edited(nb):
    nb.cells[2].source = "pass"
    nb.cells[2].cell_type = "markdown"
    nb.cells[0].source = ""


def untied(nb):
    nb.cells[4].metadata.nbgrader.update({"grade": False, "locked": False, "points": 900, "solution": True})
    nb.cells[2].metadata.nbgrader["schema_version"] = 1
    nb.cells[1].metadata.nbgrader["task"] = "yes"


def copied(nb):
    nb.cells.insert(1, copy.deepcopy(nb.cells[2]))
    nb.cells.append(copy.deepcopy(nb.cells[2]))


def deleted(nb):
    del nb.cells[4], nb.cells[2]


def upside_down(nb):
    nb.cells.reverse()


def foreign(nb):
    nb.cells.insert(0, new_code_cell("1", metadata={"nbgrader": {"grade_id": "mine", "grade": True}}))
    nb.cells.insert(0, new_code_cell("2", metadata={"nbgrader": 3}))
    nb.cells.insert(0, new_code_cell("3", metadata={"nbgrader": {"grade_id": ["check_first"]}}))
    nb.metadata.update({"attncourse": {"checks": {"check_first": 3}}, "kernelspec": {"name": "perl"}})


def answered_in_the_check(nb):
    check = next(cell for cell in nb.cells if cell.metadata.nbgrader.grade_id == "check_first")
    check.source = f"import math\nfirst = math.fabs\n{check.source}"


def added_an_import(nb):
    nb.cells[0].source = "import numpy\n" + nb.cells[0].source


def broken(nb):
    nb.cells += [{}, 3, {"cell_type": "video", "source": 4, "metadata": []}]
    nb.cells[1]["source"] = None


@pytest.mark.parametrize(
    ("change", "flagged"),
    [
        (tagged, {"", "head", "first", "second", "check_first", "check_second"}),
        (edited, {"check_first"}),
        (untied, set()),
        (copied, {"first"}),
        (deleted, {"check_first", "check_second"}),
        (upside_down, set()),
        (foreign, set()),
        (broken, set()),
        (added_an_import, set()),
        (answered_in_the_check, {"check_first"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_notebook_is_repaired(gradebook, change, flagged):
    nb = handed_in()
    change(nb)
    nb = repaired(nb, gradebook)
    names = graded_names(nb)
    assert sorted(names) == sorted(name for name, _, _ in RELEASED)
    by_name = {cell.metadata.nbgrader.grade_id: cell for cell in nb.cells if "nbgrader" in cell.metadata}
    for name, source, locked in RELEASED:
        marks = by_name[name].metadata.nbgrader
        assert (marks.grade, marks.solution) == (name.startswith("check"), not locked)
        assert marks.get("points") == (3 if name.startswith("check") else None)
        assert by_name[name].cell_type == "code"
        if locked:
            assert by_name[name].source == source
    for check in ("check_first", "check_second"):
        assert names.index(check.removeprefix("check_")) < names.index(check)
    assert all("tags" not in cell.metadata for cell in nb.cells)
    remarks = nb.metadata.get("attncourse", {})
    assert {flag["cell"] for flag in remarks.get("flags", [])} == flagged - {""}
    assert remarks.get("missing", []) == (["check_first", "check_second"] if change is deleted else [])
    assert "kernelspec" not in nb.metadata


@pytest.mark.parametrize(
    "first", ["import math", "%%time", "%%capture out", "!ls", "math?", "%time 1", "f(", "1"]
)
def test_an_answer_in_a_check_stands_above_the_check(gradebook, first):
    nb = handed_in()
    check = next(cell for cell in nb.cells if cell.metadata.nbgrader.grade_id == "check_first")
    check.source = f"{first}\nfirst = math.fabs\n{check.source}"
    nb = repaired(nb, gradebook)
    place = next(
        place
        for place, cell in enumerate(nb.cells)
        if cell.metadata.get("nbgrader", {}).get("grade_id") == "check_first"
    )
    assert nb.cells[place - 1].source == f"{first}\nfirst = math.fabs"
    assert "nbgrader" not in nb.cells[place - 1].metadata
    (remark,) = nb.metadata["attncourse"]["flags"]
    assert "what was added stands above it" in remark["words"]


@pytest.mark.parametrize("line", ["%%time", "%%timeit -n 1", "# done", "checks.attention(print)", ""])
def test_of_a_check_that_was_only_changed_nothing_is_kept(gradebook, line):
    nb = handed_in()
    check = next(cell for cell in nb.cells if cell.metadata.nbgrader.grade_id == "check_first")
    check.source = f"{line}\n\n{check.source}" if line else "checks.attention(second)"
    nb = repaired(nb, gradebook)
    assert len(nb.cells) == len(RELEASED)
    (remark,) = nb.metadata["attncourse"]["flags"]
    assert "stands above it" not in remark["words"]


def test_of_a_students_own_cells_only_so_many_are_kept(gradebook):
    nb = handed_in()
    cell, copied = new_code_cell(""), nb.cells[2]
    nb.cells[1:1] = [NotebookNode(cell) for _ in range(400)] + [copy.deepcopy(copied) for _ in range(50)]
    nb.cells += [NotebookNode(cell) for _ in range(20_000)]
    nb = repaired(nb, gradebook)
    assert graded_names(nb) == [name for name, _, _ in RELEASED]
    assert len(nb.cells) == len(RELEASED) + Repair().most_cells
    assert ["only the first 500" in flag["words"] for flag in nb.metadata["attncourse"]["flags"]] == [True]


def test_answers_are_not_touched(gradebook):
    nb = repaired(handed_in(), gradebook)
    assert [cell.source for cell in nb.cells if cell.metadata.nbgrader.solution] == [
        "first = abs",
        "second = abs",
    ]


def test_what_was_added_to_a_locked_cell_runs_before_it(gradebook):
    nb = handed_in()
    added_an_import(nb)
    nb.cells[2].source = "'not so for checks'"
    sources = [cell.source for cell in repaired(nb, gradebook).cells]
    head = RELEASED[0][1]
    assert sources[:2] == [f"import numpy\n{head}", head]
    assert "'not so for checks'" not in sources


def test_a_folder_that_is_hidden_is_told_of(tmp_path):
    for student in (".ada", ".cache", "bob"):
        (tmp_path / student / "unit").mkdir(parents=True)
    (tmp_path / ".ada" / "unit" / "unit.ipynb").touch()
    (tmp_path / "bob" / "unit" / "unit.ipynb").touch()
    submissions, problems = look_through(tmp_path, ["unit"], ["unit"])
    assert [submission.student for submission in submissions] == ["bob"]
    (problem,) = problems
    assert problem.place.endswith(".ada")
    assert (problem.words, problem.ungraded) == (
        "is not graded: a name that begins with a dot is hidden",
        True,
    )


def test_names_that_pages_and_scripts_could_misread_are_told_of(tmp_path):
    bad = ["<img src=x onerror=alert(1)>", "a & b", 'eve";x="', "back\\slash", "%2e%2e"]
    for student in ("Sinéad O'Brien", "ada", *bad):
        (tmp_path / student / "unit").mkdir(parents=True)
        (tmp_path / student / "unit" / "unit.ipynb").touch()
    submissions, problems = look_through(tmp_path, ["unit"], ["unit"])
    assert [one.student for one in submissions] == ["Sinéad O'Brien", "ada"]
    told = {one.place.rpartition("/")[2]: one for one in problems}
    assert set(told) == set(bad)
    assert all(one.ungraded for one in problems)
    assert 'is not graded: the name holds one of < > " & \\ %; rename the folder' in told["a & b"].words


def test_settings_beside_a_notebook_are_told_of(tmp_path):
    folder = tmp_path / "ada" / "unit"
    (folder / "jupyter_server_config.d").mkdir(parents=True)
    for name in ("unit.ipynb", "helper.py", "nbgrader_config.py", "jupyter_server_config.d/mine.json"):
        (folder / name).touch()
    submissions, problems = look_through(tmp_path, ["unit"], ["unit"])
    assert len(submissions) == 1
    assert [one.place.rpartition("/")[2] for one in problems] == ["mine.json", "nbgrader_config.py"]
    assert all("settings" in one.words and not one.ungraded for one in problems)


def test_too_many_files_beside_a_notebook_are_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(submitted, "MOST_FILES", 20)
    folder = tmp_path / "ada" / "unit"
    folder.mkdir(parents=True)
    for number in range(10):
        (folder / f"nbgrader_config{number}").touch()
        (folder / f"more{number}.ipynb").touch()
    (folder / "unit.ipynb").touch()
    (submission,), problems = look_through(tmp_path, ["unit"], ["unit"])
    assert len(problems) == 2 * (submitted.MOST_NAMED + 1)
    assert sum(one.words.endswith("so it is with 10 in all") for one in problems) == 2
    with pytest.raises(NotGraded, match="comes with more than 20 files: remove those"):
        submission.read(10**6)


def test_folders_in_folders_are_a_sentence_however_deep(tmp_path):
    folder = tmp_path / "ada" / "unit"
    folder.mkdir(parents=True)
    (folder / "unit.ipynb").touch()
    inside = [f"{folder}{'/a' * depth}" for depth in range(1, 1200)]
    for path in inside:
        os.mkdir(path)
    try:
        (submission,), _ = look_through(tmp_path, ["unit"], ["unit"])
        with pytest.raises(NotGraded, match="comes with more than 30 folders in each other"):
            submission.read(10**6)
        assert [one.parts[-1] for one in delivered(tmp_path)] == ["unit.ipynb"]
    finally:
        for path in reversed(inside):
            os.rmdir(path)


def test_folders_whose_names_look_the_same_are_told_of(tmp_path):
    for student in ("Jos\u00e9", "Jose\u0301", "ada"):
        (tmp_path / student / "unit").mkdir(parents=True)
        (tmp_path / student / "unit" / "unit.ipynb").touch()
    submissions, problems = look_through(tmp_path, ["unit"], ["unit"])
    assert [one.student for one in submissions] == ["ada"]
    assert len(problems) == 2
    assert all("another folder's name looks the same" in one.words and one.ungraded for one in problems)
