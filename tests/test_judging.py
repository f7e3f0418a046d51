"""Answers are judged outside the student's process: what travels, what is believed, what is repaired."""

import base64
import contextlib
import copy
import json
import math
import string

import nbformat
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from nbgrader.api import Gradebook
from nbgrader.utils import determine_grade

from attncourse import checks
from attncourse.checks import wire
from attncourse.checks.judge import judge
from attncourse.checks.probe import Answer, Failure, Foreign, probe
from attncourse.grading import judging
from attncourse.grading.answers import right_answers, source_of
from attncourse.grading.judging import Execute, calls_of_checks
from attncourse.grading.repair import Repair
from attncourse.grading.scan import scan

TASKS = {task.name: task for task in checks.tasks()}

# --- what travels ---


@st.composite
def tensors(draw):
    dtype = draw(st.sampled_from(sorted(wire.DTYPES)))
    shape = draw(st.lists(st.integers(0, 4), max_size=4))
    numbers = draw(
        st.lists(st.floats(-100, 100, width=16), min_size=math.prod(shape), max_size=math.prod(shape))
    )
    if dtype.startswith("uint"):
        numbers = list(map(abs, numbers))
    tensor = torch.tensor(numbers, dtype=torch.float64).to(wire.DTYPES[dtype]).view(shape)
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


@given(PLAIN, st.sampled_from(wire.FAILURES), WORDS)
def test_an_answer_comes_back_as_it_was(value, kind, words):
    for answer in (Answer(value, modified=("key",)), Answer(failure=Failure(kind, words, words))):
        (back,) = wire.decode_answers(wire.encode_answers([answer]), 1)
        assert same(back.value, answer.value)
        assert (back.failure, back.modified) == (answer.failure, answer.modified)


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
            wire.reply(text, "n", [2, 2])


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


def test_bools_are_either():
    tensor = wire.decode(tensor_text("bool", [4], bytes([0, 1, 2, 255])))
    assert tensor.tolist() == [False, True, True, True]
    assert tensor.view(torch.uint8).tolist() == [0, 1, 1, 1]


def test_only_the_reply_to_this_request_counts():
    text = json.dumps({"nonce": "n", "answers": [wire.encode_answers([Answer(1.5)])]})
    assert wire.reply(text, "n", [1]) == [[Answer(1.5)]]
    for wrong in ((text, "m", [1]), (text, "n", [0]), (None, "n", [1]), (text + " " * 2**24, "n", [1])):
        with pytest.raises(wire.Malformed):
            wire.reply(*wrong)


def test_inputs_are_told_and_nothing_else():
    task = TASKS["attention"]
    asked = wire.decode(wire.request(task.name, [task.cases(0)]))
    assert asked.keys() == {"task", "cases"}
    for (inputs, _), case in zip(asked["cases"][0], task.cases(0), strict=True):
        assert same(inputs, case.inputs)


def test_too_much_becomes_a_word_about_it():
    (text,) = wire.encode_answers([Answer(torch.rand(300, 300))])
    assert len(text) < 1000
    assert isinstance(wire.decode_answers([text], 1)[0].value, Foreign)
    assert wire.decode(json.dumps(10**30)) == Foreign("a number with very many digits")


@pytest.mark.parametrize("name", TASKS)
def test_judging_by_wire_is_judging(name):
    """What comes over the wire gives the same verdict, for a right answer and for a known mistake."""
    task = TASKS[name]
    cases = task.cases(7)
    for answer in (task.reference, task.misconceptions[-1].function):
        answers = probe(task, answer, cases, refusing=False)
        assert judge(task, cases, wire.decode_answers(wire.encode_answers(answers), len(cases))) == judge(
            task, cases, answers
        )


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
        "known = [checks.attention.case(n) for n in range(1, 10)]\n"
        "def prepared(q, k, v):\n"
        "    seen = any(q.shape == a.shape and bool((q == a).all()) for a, _, _ in known)\n"
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


def executed(cells, folder, **settings):
    nb = new_notebook(cells=cells, metadata={"kernelspec": {"name": "python3", "display_name": "Python"}})
    execute = Execute(timeout=20, **settings)
    nb, _ = execute.preprocess(copy.deepcopy(nb), {"metadata": {"path": str(folder)}})
    nbformat.validate(nbformat.from_dict(nb))
    return nb


def mark(nb, name):
    cell = next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)
    return determine_grade(cell)[0]


def text_of(nb, name):
    cell = next(cell for cell in nb.cells if cell.metadata.get("nbgrader", {}).get("grade_id") == name)
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
        patch.setattr(Execute, "_get_timeout", lambda self, cell: 30 if cell else 15)
        return executed(cells, tmp_path_factory.mktemp("work"), output_limit=10**5)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_earns_its_points_and_nothing_else_does(notebook, name):
    right = ANSWERS[name][1]
    assert mark(notebook, name) == (2 if right else 0), text_of(notebook, name)
    found = notebook.metadata.attncourse["checks"][name]
    assert (found["task"], found["outside"], found["passed"]) == ("attention", True, right)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plain", "attention: right in all 9 cases"),
        ("unscaled", "This looks like: the scores are not scaled."),
        ("unwritten", "not written yet"),
        ("absent", "`absent` has no value here"),
        ("number", "a function is expected, and what came is an object of type int"),
        ("gigantic", "far larger than asked for"),
        ("many", "a list of 1000000, far larger than asked for"),
        ("raises", "it raised KeyError"),
        ("recursive", "RecursionError"),
        ("edits", "changes its argument"),
        ("lazy", "a function, not what the function computes"),
        ("fused", "not by this road"),
        ("prepared", "checks.attention.case(1, seed="),
        ("endless", "a loop in it that never ends"),
        ("forged", "could not be read"),
        ("gone", "came to an end while your function was called"),
        ("after", "not run. The Python process came to an end"),
    ],
)
def test_the_student_reads_why(notebook, name, words):
    assert words in text_of(notebook, name)


def test_a_misconception_is_noted(notebook):
    found = notebook.metadata.attncourse["checks"]["unscaled"]
    assert found["misconception"] == "the scores are not scaled"
    assert found["words"] == "attention: not right yet."


def test_part_of_the_points_with_a_message(notebook):
    assert mark(notebook, "both") == 1
    assert "right in all" in text_of(notebook, "both")
    assert "This looks like" in text_of(notebook, "both")


def test_an_instructors_own_tests_run_as_ever(notebook):
    assert [mark(notebook, name) for name in ("own", "own_failed", "own_after")] == [2, 0, 0]
    assert notebook.metadata.attncourse["checks"]["own"]["outside"] is False


def test_output_is_bounded(notebook):
    assert len(nbformat.writes(notebook)) < 10**6
    assert "All further output is left out" in nbformat.writes(notebook)


def test_a_road_that_is_not_open_is_flagged(notebook):
    flags = notebook.metadata.attncourse["flags"]
    assert [flag["cell"] for flag in flags if "no points" in flag["words"]] == ["fused"]
    assert notebook.metadata.attncourse["isolation"]


def test_what_cannot_be_interrupted_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(judging, "GRACE", 2)
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
    )
    assert [mark(nb, name) for name in ("good", "deaf", "later")] == [2, 0, 0]
    assert "did not let itself be interrupted" in text_of(nb, "later")


# --- what is read ---


@pytest.mark.parametrize("name", TASKS)
def test_nobody_honest_is_accused(name):
    task = TASKS[name]
    written = [*right_answers(task), *(mistake.function for mistake in task.misconceptions)]
    for function in written:
        found = scan(task, name, ["import math\nimport torch", source_of(function, name)])
        assert (found.calls, found.changes, found.suspicious) == ("", "", [])


HONEST = {
    "a helper of the same name": "def softmax(x):\n    return x\ndef softargmax(s):\n    return softmax(s)",
    "a star": "from torch import *\ndef softargmax(s):\n    e = exp(s)\n    return e / e.sum(-1, True)",
    "words": "def softargmax(s):\n    'Like torch.softmax.'\n    return s.exp()  # torch.softmax",
    "a local name": "from attncourse import influence\ndef softargmax(influence):\n    return influence()",
    "left over": "def softargmax(s):\n    return s.exp()\n    return torch.softmax(s, -1)",
    "a comparison": "def softargmax(s):\n    return s.exp()\nprint(torch.softmax(softargmax(x), -1))",
    "data": "y = torch.softmax(x, -1)\ndef softargmax(s):\n    return s.exp() + 0 * y.sum()",
    "magics": "%matplotlib inline\n!ls\ndef softargmax(s):\n    return s.exp()",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_code_is_left_alone(name):
    found = scan(TASKS["softargmax"], "softargmax", ["import torch", "def (", HONEST[name]])
    assert (found.calls, found.changes, found.suspicious) == ("", "", [])


BY_ANOTHER_ROAD = {
    "directly": "def softargmax(s):\n    return torch.softmax(s, -1)",
    "as a method": "def softargmax(s):\n    return s.softmax(-1)",
    "a module": "def softargmax(s):\n    return torch.nn.Softmax(-1)(s)",
    "imported": "from torch.nn.functional import softmax as f\ndef softargmax(s):\n    return f(s, -1)",
    "renamed": "f = torch.softmax\ng = f\ndef softargmax(s):\n    return g(s, -1)",
    "a helper": "def h(s):\n    return torch.softmax(s, -1)\ndef softargmax(s):\n    return h(s)",
    "a lambda": "softargmax = lambda s: torch.softmax(s, -1)",
    "by name": "def softargmax(s):\n    return getattr(torch, 'softmax')(s, -1)",
    "in a string": "def softargmax(s):\n    return eval('torch.softmax(s, -1)')",
    "the course's": "import attncourse as a\ndef softargmax(s):\n    return a.softargmax(s)",
    "all of the course": "from attncourse import *",
    "all functions": "from torch.nn.functional import *\ndef softargmax(s):\n    return softmax(s, -1)",
    "inside": "def softargmax(s):\n    from attncourse import softargmax as f\n    return f(s)",
    "importlib": "import importlib\nm = importlib.import_module('attncourse')\nsoftargmax = m.softargmax",
    "the reference": "from attncourse import checks\nsoftargmax = checks.softargmax.reference",
    "frames": "import sys\ndef softargmax(s):\n    return sys._getframe(1).f_locals",
    "an object": "class A:\n    def __call__(self, s):\n        return s.softmax(-1)\nsoftargmax = A()",
}


@pytest.mark.parametrize("name", BY_ANOTHER_ROAD)
def test_another_road_is_seen(name):
    assert scan(TASKS["softargmax"], "softargmax", ["import torch", BY_ANOTHER_ROAD[name]]).calls


@pytest.mark.parametrize(
    "source",
    [
        "from attncourse.checks import probe\nprobe.FUSED = ()",
        "import attncourse.checks.wire as w\nsetattr(w, 'probe', None)",
        "import torch.overrides\ntorch.overrides.TorchFunctionMode.__enter__ = None",
        "from attncourse import checks\nchecks.softargmax.__dict__['call'] = None",
    ],
)
def test_changes_behind_the_checks_are_seen(source):
    assert scan(TASKS["softargmax"], "softargmax", [source, "def softargmax(s):\n    return s"]).changes


def test_what_may_be_hidden_is_flagged():
    found = scan(TASKS["softargmax"], "softargmax", ["exec(open('x').read())", "softargmax = abs"])
    assert not found.calls
    assert found.suspicious == ["the code uses exec"]


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


def broken(nb):
    nb.cells += [{}, 3, {"cell_type": "video", "source": 4, "metadata": []}]
    nb.cells[1]["source"] = None


@pytest.mark.parametrize(
    ("change", "flagged"),
    [
        (tagged, {"", "head", "first", "second", "check_first", "check_second"}),
        (edited, set()),
        (untied, set()),
        (copied, set()),
        (deleted, {"check_first", "check_second"}),
        (upside_down, set()),
        (foreign, set()),
        (broken, set()),
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
