"""Which copies the report on alike answers finds in a made-up class, and whom it accuses wrongly."""

import ast
import builtins
import random

import pytest
from axe_playwright_python.sync_playwright import Axe
from bs4 import BeautifulSoup

from attncourse import checks
from attncourse.checks.task import source_of
from attncourse.grading.answers import right_answers
from attncourse.grading.similar import LONGEST, alike, html, pieces

UNIT = "attention_operator"
TASKS = [task.name for task in checks.tasks(UNIT)]
RIGHT = {
    task.name: [source_of(answer, task.name) for answer in right_answers(task)] for task in checks.tasks(UNIT)
}


class Rename(ast.NodeTransformer):
    """Other names for everything that is not imported or built in."""

    def __init__(self, chance, source):
        names = {node.arg for node in ast.walk(ast.parse(source)) if isinstance(node, ast.arg)}
        names |= {
            n.id
            for n in ast.walk(ast.parse(source))
            if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self.names = {
            name: f"{name[0]}{chance.randrange(1000)}" for name in sorted(names - set(dir(builtins)))
        }

    def visit_Name(self, node):
        node.id = self.names.get(node.id, node.id)
        return node

    def visit_arg(self, node):
        node.arg = self.names.get(node.arg, node.arg)
        return node


class TakeOut(ast.NodeTransformer):
    """Some of the expressions inside of a statement get a line of their own, to everyone's taste."""

    def __init__(self, chance):
        self.chance = chance
        self.number = 0

    def statements(self, body):
        found = []
        for statement in body:
            self.before = []
            if isinstance(statement, ast.Return | ast.Assign) and statement.value is not None:
                statement.value = self.visit(statement.value)
            found += [*self.before, statement]
        return found

    def generic_visit(self, node):
        node = super().generic_visit(node)
        taken = isinstance(node, ast.BinOp | ast.Call | ast.Subscript) and self.chance.random() < 0.3
        if not taken or any(isinstance(one, ast.Lambda | ast.comprehension) for one in ast.walk(node)):
            return node
        self.number += 1
        name = f"part{self.number}"
        self.before.append(ast.Assign([ast.Name(name, ast.Store())], node))
        return ast.Name(name, ast.Load())

    def visit_Lambda(self, node):
        return node

    visit_ListComp = visit_GeneratorExp = visit_Lambda


def own_words(chance, source):
    """The answer of somebody who wrote it alone: a known way, in steps, checks and slips of one's own."""
    tree = ast.parse(source)
    take_out = TakeOut(chance)
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        function.body = take_out.statements(function.body)
        if chance.random() < 0.4 and function.args.args:
            name = chance.choice(function.args.args).arg
            shown = chance.choice(
                ["print({0}.shape)", "assert {0} is not None", "{0} = {0} * 1.0", "size = {0}.dim()"]
            )
            function.body.insert(0, ast.parse(shown.format(name)).body[0])
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and chance.random() < 0.08:
            node.op = chance.choice([ast.Add(), ast.Mult(), ast.Sub()])
        if isinstance(node, ast.Constant) and node.value == 1 and chance.random() < 0.1:
            node.value = 2
    return ast.unparse(ast.fix_missing_locations(tree))


def copied(chance, source, how):
    """What somebody makes of another one's answer."""
    if how == "as it is":
        return f"# my own work\n{source}\n"
    tree = Rename(chance, source).visit(ast.parse(source))
    if how == "reordered":
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            function.body.insert(0, ast.parse("answer = None").body[0])
            for place in range(1, len(function.body) - 1):
                one, two = function.body[place : place + 2]
                stored = {
                    node.id
                    for node in ast.walk(one)
                    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
                }
                used = {node.id for node in ast.walk(two) if isinstance(node, ast.Name)}
                if not stored & used and not isinstance(two, ast.Return):
                    function.body[place : place + 2] = [two, one]
    return ast.unparse(ast.fix_missing_locations(tree))


HOW = ("as it is", "renamed", "reordered")


def a_class(seed, students=40, copies=9):
    """Everyone's answers, and who copied from whom and how."""
    chance = random.Random(seed)
    answers = {
        f"student-{number:02}": {task: own_words(chance, chance.choice(RIGHT[task])) for task in TASKS}
        for number in range(students)
    }
    names = sorted(answers)
    truth = {}
    for number in range(copies):
        giver, taker = names[number], names[students - 1 - number]
        how = HOW[number % 3]
        # Half of the tasks: the others the taker did alone.
        for task in chance.sample(TASKS, len(TASKS) // 2):
            answers[taker][task] = copied(chance, answers[giver][task], how)
        truth[giver, taker] = how
    return answers, truth


def measure(seeds):
    found, missed, wrong = [], [], []
    for seed in seeds:
        answers, truth = a_class(seed)
        pairs = {(pair.one, pair.other) for pair in alike(answers, RIGHT)}
        found += [truth[pair] for pair in pairs & truth.keys()]
        missed += [truth[pair] for pair in truth.keys() - pairs]
        wrong += sorted(pairs - truth.keys())
    return found, missed, wrong


def test_copies_are_found_and_nobody_is_accused_wrongly():
    found, missed, wrong = measure(range(3))
    assert len(found) >= 22, missed  # of 27
    assert set(found) == set(HOW)
    assert len(wrong) <= 1


def test_what_everybody_can_have_is_no_evidence():
    same = {task: sources[0] for task, sources in RIGHT.items()}
    assert alike(dict.fromkeys(("ada", "ben", "cem"), same), RIGHT) == []
    # Nor is what many have written, even if the course does not know it.
    chance = random.Random(1)
    common = {task: own_words(chance, sources[0]) for task, sources in RIGHT.items()}
    others = a_class(5, copies=0)[0]
    assert alike({**others, **{f"many-{number}": common for number in range(10)}}, RIGHT) == []


def test_names_comments_and_layout_are_nothing():
    one = 'def f(a, b):\n    """What."""\n    # why\n    total = a + b * 2\n    return total.sum(dim=-1)'
    two = "def f(x: int, y: int) -> int:\n    s = (x\n         + y * 2)\n\n    return s.sum(dim=-1)"
    assert [*pieces(one)]
    assert pieces(one).keys() - pieces(two).keys() <= {p for p in pieces(one) if "FunctionDef" in p}
    assert pieces(one).keys() != pieces(two.replace("dim=-1", "dim=0")).keys()


def test_code_that_is_nested_deeply_is_compared_by_its_words():
    assert pieces("x = " + " + ".join(["1"] * 5000))


def test_of_an_answer_without_end_only_the_beginning_is_compared():
    long = {"attention": "".join(f"x{number} = y{number} + {number}\n" for number in range(9000))}
    (pair,) = alike({"ada": long, "ben": long, "cem": {"attention": "x = 1"}}, {})
    assert sum(len(line) + 1 for line, _ in pair.answers[0][1]) <= LONGEST + 1


def test_code_that_is_no_python_is_compared_by_its_words():
    one, two = (f"%%time\nfor {name} in range(3) print({name} + 1, sep='', end='')" for name in "ab")
    assert pieces(one).keys() == pieces(two).keys() != set()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_the_page_can_be_read_by_everyone(browser, tmp_path, width, scheme):
    answers, _ = a_class(0, students=8, copies=3)
    answers = {
        who: {task: f"{source}\n# <script>alert(1)</script>" for task, source in tasks.items()}
        for who, tasks in answers.items()
    }
    pairs = alike(answers, RIGHT)
    path = tmp_path / "similar.html"
    path.write_text(html({UNIT: (8, pairs)}), encoding="utf-8")
    text = BeautifulSoup(path.read_text(), "html.parser").text
    assert pairs
    assert f"{pairs[0].one} and {pairs[0].other}" in text
    assert "<script>alert(1)</script>" in text
    assert "That does not prove that anybody copied." in text
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    assert asked == [path.as_uri()]
    assert page.locator("script").count() == 0
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
