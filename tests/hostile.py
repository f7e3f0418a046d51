"""Hostile, broken and odd submissions: every kind with the points that it must get.

Each kind is a function that spoils a notebook of right answers. Where it concerns one answer,
that is the third task's: so that there are points before it and after it to be lost.
Nothing here is ever run but in the kernel of a submission. What could bring down a machine (the
fork bomb, the memory hog) is bounded, so that an ordinary machine survives it without isolation.
"""

import json
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output
from torch import Tensor

from attncourse.checks.task import registry
from attncourse.probe.calling import probe

# What lies in a submission's folder: the content of each file, or where a symbolic link points to.
Files = dict[str, bytes | Path]

# What a kind must get.
ALL = "every point"
OTHERS = "no point for the answer concerned, every other point"
BEFORE = "no point for the answer concerned, every point before it; those after it may be lost"
FLAGGED = "no point for the answer concerned, or a remark to the instructor; every other point"
UNGRADED = "no marks: it cannot be graded, and the instructor is told"


def write(path: Path, files: Files) -> None:
    """Write the files of a submission into a folder, which must not exist."""
    path.mkdir(parents=True)
    for name, content in files.items():
        file = path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            file.symlink_to(content)
        else:
            file.write_bytes(content)


@dataclass
class Sheet:
    """A notebook of right answers, for a kind to spoil.

    Parameters
    ----------
    unit : str
    notebook : NotebookNode
    course : Path
        The folder of the course, where there is something to read, to write and to break.
    port : int
        A port on this machine that listens, perhaps.
    """

    unit: str
    notebook: NotebookNode
    course: Path
    port: int = 9

    def __post_init__(self) -> None:
        self.task = [cell for cell in self.notebook.cells if _nbgrader(cell).get("solution")][
            2
        ].metadata.nbgrader.grade_id
        self.answer = self.cell(self.task)
        self.check = self.cell(f"check_{self.task}")

    def cell(self, name: str) -> NotebookNode:
        return next(cell for cell in self.notebook.cells if _nbgrader(cell).get("grade_id") == name)

    def write(self, source: str) -> None:
        """Put an answer into the notebook: ANSWER is the function's name."""
        self.answer.source = self._adapted(source)

    def go_on(self, source: str) -> None:
        """Go on after the right answer."""
        self.answer.source += "\n\n\n" + self._adapted(source)

    def insert(self, cell: NotebookNode, before: NotebookNode) -> None:
        self.notebook.cells.insert(self.notebook.cells.index(before), cell)

    def _adapted(self, source: str) -> str:
        source = textwrap.dedent(source).strip("\n")
        for word, value in (
            ("ANSWER", self.task),
            ("COURSE", repr(str(self.course))),
            ("PORT", str(self.port)),
            ("UNIT", self.unit),
        ):
            source = source.replace(word, value)
        return source


@dataclass(frozen=True)
class Kind:
    """A way to hand in something hostile, broken or odd.

    Parameters
    ----------
    name : str
    words : str
        What is done, in a sentence.
    earns : str
        What it must get: ``ALL``, ``OTHERS``, ``BEFORE``, ``FLAGGED`` or ``UNGRADED``.
    spoil : callable
        Changes a :class:`Sheet`, and may return the files to hand in.
    """

    name: str
    words: str
    earns: str
    spoil: Callable[[Sheet], Files | None]

    def files(self, sheet: Sheet) -> Files:
        """The files to hand in."""
        files = self.spoil(sheet)
        return {f"{sheet.unit}.ipynb": _content(sheet.notebook)} if files is None else files

    def marks(self, points: dict[str, float], task: str) -> dict[str, float | None]:
        """The points to get for every graded cell, where `points` has the most; None without marks."""
        if self.earns == UNGRADED:
            return dict.fromkeys(points)
        names = list(points)
        spoilt = names.index(f"check_{task}")
        lost = {ALL: [], BEFORE: names[spoilt:]}.get(self.earns, [names[spoilt]])
        return {name: 0.0 if name in lost else most for name, most in points.items()}


kinds: dict[str, Kind] = {}


def _kind(earns: str) -> Callable[[Callable[[Sheet], Files | None]], Callable]:
    def register(spoil: Callable[[Sheet], Files | None]) -> Callable:
        name = spoil.__name__.replace("_", "-")
        kinds[name] = Kind(name, " ".join((spoil.__doc__ or "").split()), earns, spoil)
        return spoil

    return register


def _nbgrader(cell: NotebookNode) -> dict[str, Any]:
    return cell.metadata.get("nbgrader", {})


def _content(notebook: NotebookNode) -> bytes:
    return json.dumps(notebook, indent=1).encode()


# An answer that is wrong, for those who try to get its points by other means.
WRONG = """
import torch

def ANSWER(*args, **kwargs):
    return torch.zeros(3)
"""

# Where there is something to find: the course's folder, this one and those above it.
SEARCH = """
import glob, os, sqlite3, sys
places = [COURSE, "..", "../..", "../../..", os.path.expanduser("~"), "/proc/1/cwd"]
places.append(f"/proc/{os.getppid()}/cwd")
def show(pattern):
    for place in places:
        for path in glob.glob(os.path.join(place, pattern)):
            try:
                print(open(path, "rb").read().decode(errors="replace"))
            except OSError as error:
                print(type(error).__name__)
"""


# --- odd, but honest ------------------------------------------------------------------------


@_kind(ALL)
def warns_on_stderr(sheet: Sheet) -> None:
    """The right answer writes to the standard error stream and warns."""
    sheet.go_on("""
        import sys, warnings
        right = ANSWER
        def ANSWER(*args, **kwargs):
            warnings.warn("careful")
            print("still thinking", file=sys.stderr)
            return right(*args, **kwargs)
    """)


@_kind(ALL)
def prints_a_lot(sheet: Sheet) -> None:
    """The right answer prints twenty lines at every call."""
    sheet.go_on("""
        right = ANSWER
        def ANSWER(*args, **kwargs):
            for line in range(20):
                print(line, "where am I?")
            return right(*args, **kwargs)
    """)


@_kind(ALL)
def subclass_of_a_tensor(sheet: Sheet) -> None:
    """The right answer comes as a subclass of a tensor."""
    sheet.go_on("""
        class Named(torch.Tensor):
            pass
        right = ANSWER
        def ANSWER(*args, **kwargs):
            result = right(*args, **kwargs)
            return result.as_subclass(Named) if isinstance(result, torch.Tensor) else result
    """)


@_kind(ALL)
def global_state(sheet: Sheet) -> None:
    """The right answer needs a variable that a cell of the student's own defines."""
    sheet.insert(new_code_cell("my_constant = 1.0", id="my-constant"), sheet.answer)
    sheet.go_on("""
        right = ANSWER
        def ANSWER(*args, **kwargs):
            assert my_constant == 1.0
            return right(*args, **kwargs)
    """)


@_kind(ALL)
def seeds_the_generators(sheet: Sheet) -> None:
    """The right answer seeds every random generator."""
    sheet.go_on("""
        import random
        import numpy
        right = ANSWER
        def ANSWER(*args, **kwargs):
            torch.manual_seed(0), random.seed(0), numpy.random.seed(0)
            return right(*args, **kwargs)
    """)


@_kind(ALL)
def changes_folder(sheet: Sheet) -> None:
    """The right answer goes to another folder and leaves files there."""
    sheet.go_on("""
        import os, tempfile
        os.chdir(tempfile.mkdtemp())
        open("notes.txt", "w").write("mine")
    """)


@_kind(ALL)
def copied_check(sheet: Sheet) -> None:
    """A check was copied and pasted below itself, as one easily does."""
    sheet.insert(NotebookNode(sheet.check), sheet.check)


@_kind(ALL)
def copied_answer(sheet: Sheet) -> None:
    """The cell of an answer was copied and pasted: first an attempt, then the answer."""
    sheet.insert(NotebookNode(sheet.answer), sheet.answer)


@_kind(ALL)
def same_ids(sheet: Sheet) -> None:
    """All cells have the same id, which the notebook format forbids."""
    for cell in sheet.notebook.cells:
        cell["id"] = "same"


@_kind(ALL)
def moved_task(sheet: Sheet) -> None:
    """A task was moved to the end of the notebook, answer before check."""
    for cell in (sheet.answer, sheet.check):
        sheet.notebook.cells.remove(cell)
        sheet.notebook.cells.append(cell)


@_kind(ALL)
def moved_check(sheet: Sheet) -> None:
    """A check was moved to the end of the notebook."""
    sheet.notebook.cells.remove(sheet.check)
    sheet.notebook.cells.append(sheet.check)


@_kind(ALL)
def check_before_answer(sheet: Sheet) -> None:
    """A check was moved above the answer that it checks."""
    sheet.notebook.cells.remove(sheet.check)
    sheet.insert(sheet.check, sheet.answer)


@_kind(ALL)
def unknown_kernel(sheet: Sheet) -> None:
    """The notebook names a kernel that is not installed here."""
    sheet.notebook.metadata.kernelspec = {"name": "my-env", "display_name": "My env", "language": "python"}


@_kind(ALL)
def no_kernel(sheet: Sheet) -> None:
    """The notebook names no kernel at all."""
    sheet.notebook.metadata = NotebookNode()


@_kind(ALL)
def format_3(sheet: Sheet) -> Files:
    """The notebook is in the format of 2011."""
    old = nbformat.convert(sheet.notebook, 3)
    return {f"{sheet.unit}.ipynb": nbformat.writes(old, version=3).encode()}


@_kind(ALL)
def other_encoding(sheet: Sheet) -> Files:
    """The notebook is text in UTF-16, as an editor of another system saves it."""
    return {f"{sheet.unit}.ipynb": _content(sheet.notebook).decode().encode("utf-16")}


@_kind(ALL)
def odd_metadata(sheet: Sheet) -> None:
    """Cells have metadata that make no sense."""
    sheet.notebook.cells[0].metadata = NotebookNode(nbgrader={}, tags=["\u2028", "skip"])
    sheet.insert(new_markdown_cell("odd", id="odd", metadata={"nbgrader": {"grade_id": 3}}), sheet.answer)


@_kind(ALL)
def many_outputs(sheet: Sheet) -> None:
    """A cell that was run keeps twenty megabytes of what it printed."""
    sheet.answer.outputs = [new_output("stream", name="stdout", text="attention " * 2_000_000)]


@_kind(ALL)
def extra_notebook(sheet: Sheet) -> Files:
    """Another notebook and a few files with odd names lie beside it."""
    own = f"{sheet.unit}.ipynb"
    return {own: _content(sheet.notebook), f"Copy of {own}": b"{}", "größe 大.csv": b"1,2", "a/b/c.txt": b""}


@_kind(ALL)
def many_cells(sheet: Sheet) -> None:
    """The notebook has five thousand empty cells at its end."""
    cell = new_code_cell("")
    sheet.notebook.cells += [NotebookNode(cell, id=f"empty-{number}") for number in range(5000)]


@_kind(ALL)
def busy_cells(sheet: Sheet) -> None:
    """The notebook goes on with a thousand cells that take their time."""
    cell = new_code_cell("import time; time.sleep(3)")
    sheet.notebook.cells += [NotebookNode(cell, id=f"busy-{number}") for number in range(1000)]


@_kind(ALL)
def link_to_itself(sheet: Sheet) -> Files:
    """A folder in the submission is a symbolic link to the folder that it is in."""
    return {f"{sheet.unit}.ipynb": _content(sheet.notebook), "loop": Path(".")}


@_kind(ALL)
def widgets(sheet: Sheet) -> None:
    """Cells of the student's own show widgets."""
    source = "from ipywidgets import Output, interact\ninteract(lambda n: n, n=3)\nout = Output()\n"
    sheet.insert(new_code_cell(source + "with out:\n    print('seen')\nout", id="widgets"), sheet.answer)


@_kind(ALL)
def pasted_picture(sheet: Sheet) -> None:
    """A picture was pasted into a cell, and another cell names one that is not there."""
    picture = {"image.png": {"image/png": "iVBORw0KGgo="}}
    cell = new_markdown_cell("![mine](attachment:image.png)", id="picture", attachments=picture)
    sheet.insert(cell, sheet.answer)
    sheet.insert(new_markdown_cell("![lost](attachment:lost.png)", id="lost"), sheet.answer)


@_kind(ALL)
def import_in_a_locked_cell(sheet: Sheet) -> None:
    """What the right answer needs is imported in the cell with the imports."""
    sheet.cell("imports").source += "\nimport numpy"
    sheet.go_on("""
        right = ANSWER
        def ANSWER(*args, **kwargs):
            numpy.zeros(1)
            return right(*args, **kwargs)
    """)


@_kind(ALL)
def compiled_answer(sheet: Sheet) -> None:
    """The right answer is compiled."""
    sheet.go_on("ANSWER = torch.compile(ANSWER)")


@_kind(ALL)
def half_a_character(sheet: Sheet) -> Files:
    """A comment has half of a character in it, as some editors cut them."""
    sheet.go_on("# \ud83d")
    return {f"{sheet.unit}.ipynb": _content(sheet.notebook)}


@_kind(ALL)
def harmless_habits(sheet: Sheet) -> None:
    """Settings of plots, a look at memory, a decorator that reads a signature, an own static method."""
    sheet.go_on("""
        import functools, gc, inspect
        from attncourse import plots
        plots.plt.rcParams["font.size"] = 9
        gc.collect()
        class Mine:
            @staticmethod
            def softmax(scores):
                return scores
        def told(function):
            inspect.signature(function)
            @functools.wraps(function)
            def call(*args, **kwargs):
                return Mine.softmax(function(*args, **kwargs))
            return call
        ANSWER = told(ANSWER)
    """)


# --- wrong, in a way that could go unnoticed or stop a grader -------------------------------


@_kind(OTHERS)
def edits_its_inputs(sheet: Sheet) -> None:
    """The answer comes out right, but the arguments are changed in place."""
    sheet.go_on("""
        right = ANSWER
        def ANSWER(*args, **kwargs):
            result = right(*(torch.clone(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
            for argument in args:
                if isinstance(argument, torch.Tensor):
                    argument.zero_()
            return result
    """)


@_kind(OTHERS)
def right_only_once(sheet: Sheet) -> None:
    """The answer is right at its first call, and depends on what that call left behind."""
    sheet.go_on("""
        calls = []
        right = ANSWER
        def ANSWER(*args, **kwargs):
            calls.append(right(*args, **kwargs))
            return calls[0]
    """)


@_kind(OTHERS)
def not_numbers(sheet: Sheet) -> None:
    """The answer has the right shape, and nothing but NaN in it."""
    sheet.go_on("""
        right = ANSWER
        def ANSWER(*args, **kwargs):
            def spoilt(value):
                if isinstance(value, torch.Tensor):
                    return torch.full(value.shape, math.nan)
                if isinstance(value, (tuple, list)):
                    return type(value)(map(spoilt, value))
                return math.nan
            return spoilt(right(*args, **kwargs))
    """)


@_kind(OTHERS)
def expanded_tensor(sheet: Sheet) -> None:
    """The answer is a tensor of ten gigabytes that needs only four bytes."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            return torch.zeros(1).expand(2_500_000_000)
    """)


@_kind(OTHERS)
def nested_answer(sheet: Sheet) -> None:
    """The answer is a list in a list in a list, and so on for a hundred thousand levels."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            nested = []
            for level in range(100_000):
                nested = [nested]
            return nested
    """)


@_kind(OTHERS)
def answer_holds_itself(sheet: Sheet) -> None:
    """The answer is a list that holds itself."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            endless = []
            endless.append(endless)
            return endless
    """)


@_kind(OTHERS)
def huge_number(sheet: Sheet) -> None:
    """The answer is a whole number of a million digits."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            return 1 << 3_000_000
    """)


@_kind(OTHERS)
def lazy_object(sheet: Sheet) -> None:
    """The answer is an object that would compute something if it were asked."""
    sheet.write("""
        class Lazy:
            def __getattr__(self, name):
                return Lazy()
            def __call__(self, *args, **kwargs):
                return Lazy()
            def __iter__(self):
                while True:
                    yield Lazy()
            def __array__(self, *args, **kwargs):
                raise RuntimeError("later")
        def ANSWER(*args, **kwargs):
            return Lazy()
    """)


@_kind(OTHERS)
def recursion(sheet: Sheet) -> None:
    """The answer calls itself and never stops."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            return ANSWER(*args, **kwargs)
    """)


@_kind(OTHERS)
def endless_loop(sheet: Sheet) -> None:
    """The answer never comes back."""
    sheet.write("""
        import time
        def ANSWER(*args, **kwargs):
            while True:
                time.sleep(0.01)
    """)


@_kind(OTHERS)
def endless_error(sheet: Sheet) -> None:
    """The answer raises an exception whose message has five megabytes."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            raise ValueError("attention " * 500_000)
    """)


@_kind(OTHERS)
def unprintable_error(sheet: Sheet) -> None:
    """The answer raises an exception that raises another one when it is printed."""
    sheet.write("""
        class Unprintable(Exception):
            def __str__(self):
                raise self
            __repr__ = __str__
        def ANSWER(*args, **kwargs):
            raise Unprintable()
    """)


@_kind(OTHERS)
def asks_for_input(sheet: Sheet) -> None:
    """The answer waits for somebody to type something."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            return float(input("What is it? "))
    """)


@_kind(BEFORE)
def leaves_the_notebook(sheet: Sheet) -> None:
    """The answer calls exit(), which ends its kernel."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            exit()
    """)


@_kind(OTHERS)
def syntax_error(sheet: Sheet) -> None:
    """The cell of the answer is not Python."""
    sheet.write("def ANSWER(query, key, value:\n    return query key")


@_kind(OTHERS)
def shell_commands(sheet: Sheet) -> None:
    """The answer is written in another language, by IPython's magic."""
    sheet.write('%%bash\necho "def ANSWER(): ..."\nexit 1')


@_kind(OTHERS)
def deleted_check(sheet: Sheet) -> None:
    """The check was deleted, with the answer wrong."""
    sheet.write(WRONG)
    sheet.notebook.cells.remove(sheet.check)


@_kind(OTHERS)
def deleted_answer(sheet: Sheet) -> None:
    """The cell of the answer was deleted."""
    sheet.notebook.cells.remove(sheet.answer)


# --- what brings down its kernel, or tries to ------------------------------------------------


@_kind(BEFORE)
def exits_at_once(sheet: Sheet) -> None:
    """The answer ends the process without a word."""
    sheet.write("""
        import os
        def ANSWER(*args, **kwargs):
            os._exit(0)
    """)


@_kind(BEFORE)
def kills_its_parent(sheet: Sheet) -> None:
    """The answer kills the process that started its kernel, then every process that it may kill."""
    sheet.write("""
        import os, signal
        def ANSWER(*args, **kwargs):
            if os.getppid() > 1:
                os.kill(os.getppid(), signal.SIGKILL)
            os.killpg(0, signal.SIGKILL)
    """)


@_kind(BEFORE)
def stack_overflow(sheet: Sheet) -> None:
    """The answer calls itself with the limit on recursion lifted."""
    sheet.write("""
        import sys
        def ANSWER(*args, **kwargs):
            sys.setrecursionlimit(10**8)
            def deeper(function):
                return sorted([1], key=lambda _: deeper(function))
            return deeper(deeper)
    """)


@_kind(BEFORE)
def segmentation_fault(sheet: Sheet) -> None:
    """The answer reads memory that is not its own."""
    sheet.write("""
        import ctypes
        def ANSWER(*args, **kwargs):
            return ctypes.string_at(0)
    """)


@_kind(BEFORE)
def swallows_the_interrupt(sheet: Sheet) -> None:
    """The answer never comes back, and takes no interrupt."""
    sheet.write("""
        import signal, time
        def ANSWER(*args, **kwargs):
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            while True:
                try:
                    time.sleep(0.01)
                except BaseException:
                    pass
    """)


@_kind(BEFORE)
def loops_in_its_cell(sheet: Sheet) -> None:
    """The cell of the answer never comes to an end, and takes no interrupt."""
    sheet.write("""
        import time
        while True:
            try:
                time.sleep(0.01)
            except BaseException:
                pass
    """)


@_kind(BEFORE)
def closes_its_connections(sheet: Sheet) -> None:
    """The answer closes all files and sockets of its kernel."""
    sheet.write("""
        import os
        def ANSWER(*args, **kwargs):
            os.closerange(3, 4096)
    """)


@_kind(BEFORE)
def floods_the_output(sheet: Sheet) -> None:
    """The answer prints four hundred megabytes."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            for _ in range(400):
                print("attention " * 100_000)
    """)


@_kind(BEFORE)
def floods_with_pictures(sheet: Sheet) -> None:
    """The cell of the answer displays four hundred pictures of a megabyte."""
    sheet.write("""
        from IPython.display import Image, display
        for _ in range(400):
            display(Image(b"\\x89PNG" + bytes(1_000_000), format="png"))
    """)


@_kind(BEFORE)
def memory_hog(sheet: Sheet) -> None:
    """The answer takes all the memory that it gets, up to twelve gigabytes, and keeps it."""
    sheet.write("""
        hoard = []
        def ANSWER(*args, **kwargs):
            while len(hoard) < 120:
                hoard.append(bytearray(b"a") * 100_000_000)
            return hoard
    """)


@_kind(BEFORE)
def fork_bomb(sheet: Sheet) -> None:
    """The answer starts processes that start processes, up to five hundred, and all of them stay."""
    sheet.write("""
        import os, time
        def ANSWER(*args, **kwargs):
            try:
                for _ in range(9):
                    os.fork()
            finally:
                time.sleep(600)
    """)


@_kind(BEFORE)
def forks(sheet: Sheet) -> None:
    """The answer forks once, and both processes go on as if they were the kernel."""
    sheet.write("""
        import os
        forked = []
        def ANSWER(*args, **kwargs):
            forked[:] = forked or [os.fork()]
            return float(forked[0])
    """)


@_kind(OTHERS)
def leaves_a_daemon(sheet: Sheet) -> None:
    """The answer leaves a process behind that has nothing more to do with it."""
    sheet.write("""
        import subprocess, sys
        def ANSWER(*args, **kwargs):
            subprocess.Popen(
                [sys.executable, "-c", "import time; time.sleep(600)", "left-by-ANSWER"],
                start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            return 0
    """)


@_kind(OTHERS)
def leaves_a_thread(sheet: Sheet) -> None:
    """The answer leaves a thread behind that prints and prints."""
    sheet.write("""
        import threading, time
        def chatter():
            while True:
                print("ANSWER: right in all cases")
                time.sleep(0.01)
        def ANSWER(*args, **kwargs):
            if threading.active_count() < 20:
                threading.Thread(target=chatter, daemon=True).start()
            return 0
    """)


# --- forgery -----------------------------------------------------------------------------------


@_kind(OTHERS)
def skips_its_check(sheet: Sheet) -> None:
    """The check is marked as not to be run, and keeps an output that says it is right."""
    sheet.write(WRONG)
    sheet.check.metadata.tags = ["skip-execution", "raises-exception"]
    sheet.check.outputs = [new_output("stream", name="stdout", text=f"{sheet.task}: right in all cases.\n")]


@_kind(OTHERS)
def forged_outputs(sheet: Sheet) -> None:
    """The notebook carries outputs with full marks that nothing has produced."""
    sheet.write(WRONG)
    sheet.check.execution_count = 1
    data = {"text/plain": "4"}
    sheet.check.outputs = [new_output("execute_result", data=data, execution_count=1)]
    sheet.notebook.metadata["attncourse"] = {
        "graded_from": "0" * 64,
        "isolation": "zygote",
        "flags": [],
        "checks": {f"check_{sheet.task}": {"task": sheet.task, "outside": True, "passed": True}},
    }


@_kind(OTHERS)
def emptied_check(sheet: Sheet) -> None:
    """The check was unlocked and does not check anything any more."""
    sheet.write(WRONG)
    sheet.check.source = "100"
    sheet.check.metadata.nbgrader.update(locked=False, checksum="0" * 32)


@_kind(OTHERS)
def answer_is_the_check(sheet: Sheet) -> None:
    """The cells of answer and check have swapped their names."""
    sheet.write(WRONG)
    names = sheet.answer.metadata.nbgrader, sheet.check.metadata.nbgrader
    sheet.check.metadata.nbgrader, sheet.answer.metadata.nbgrader = names


@_kind(ALL)
def more_points(sheet: Sheet) -> None:
    """The notebook says that the check is worth a thousand points."""
    sheet.check.metadata.nbgrader.points = 1000


@_kind(ALL)
def bonus_cell(sheet: Sheet) -> None:
    """A graded cell of the student's own gives a hundred points."""
    graded = {**sheet.check.metadata.nbgrader, "grade_id": "bonus", "points": 100}
    sheet.insert(new_code_cell("100", id="bonus", metadata={"nbgrader": graded}), sheet.check)


@_kind(BEFORE)
def patched_comparisons(sheet: Sheet) -> None:
    """Whatever compares tensors or numbers says that they are equal, to answers further down as well."""
    sheet.write(
        WRONG
        + """
import math, numpy, torch.testing
yes = lambda *args, **kwargs: True
for module in (torch, torch.Tensor, torch.testing, math, numpy):
    for name in ("allclose", "equal", "isclose", "assert_close", "assert_allclose", "array_equal"):
        if hasattr(module, name):
            setattr(module, name, yes)
AssertionError = type("AssertionError", (), {})
"""
    )


@_kind(OTHERS)
def equal_to_everything(sheet: Sheet) -> None:
    """The answer is an object that says it is a tensor, and equal to any other."""
    sheet.write("""
        class Everything(torch.Tensor):
            def __eq__(self, other):
                return True
            __ne__ = __lt__ = __gt__ = lambda self, other: False
            __hash__ = torch.Tensor.__hash__
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                return cls()
            shape = property(lambda self: type("Shape", (tuple,), {"__eq__": lambda *_: True})())
        def ANSWER(*args, **kwargs):
            return Everything()
    """)


@_kind(OTHERS)
def removes_the_checks(sheet: Sheet) -> None:
    """A transformer of IPython's turns whatever is run later into nothing."""
    sheet.write(
        WRONG
        + """
import ast
class Nothing(ast.NodeTransformer):
    def visit_Assert(self, node):
        return ast.Pass()
    def visit_Expr(self, node):
        source = ast.unparse(node)
        return ast.Pass() if "checks.ANSWER(" in source or "lambda: ANSWER)" in source else node
get_ipython().ast_transformers.append(Nothing())
get_ipython().input_transformers_post.append(
    lambda lines: ["4\\n"] if any("checks.ANSWER(" in line for line in lines) else lines
)
"""
    )


@_kind(OTHERS)
def result_from_a_hook(sheet: Sheet) -> None:
    """A hook shows full marks and the line of a right answer before and after every cell."""
    sheet.write(
        WRONG
        + """
from IPython.display import display
def boast(*args):
    print("ANSWER: right in all 6 cases.")
    display({"text/plain": "4"}, raw=True)
    get_ipython().display_pub.publish({"text/plain": "4"})
    sys_displayhook(4)
import sys
sys_displayhook = sys.displayhook
for event in ("pre_run_cell", "pre_execute", "post_run_cell", "post_execute"):
    get_ipython().events.register(event, boast)
"""
    )


@_kind(BEFORE)
def replays_messages(sheet: Sheet) -> None:
    """What the kernel published for another answer is published again for this one."""
    sheet.write(
        WRONG
        + """
session = get_ipython().kernel.session
send = session.send
sent = []
def replay(stream, message, content=None, *args, **kwargs):
    if content is None and isinstance(message, dict):
        content = message.get("content")
    kind = message if isinstance(message, str) else message.get("msg_type")
    if kind in ("display_data", "execute_result", "stream"):
        sent.append((stream, message, content))
        for old in sent[:3]:
            send(*old, *args, **kwargs)
    return send(stream, message, content, *args, **kwargs)
session.send = replay
"""
    )


@_kind(OTHERS)
def guesses_the_secret(sheet: Sheet) -> None:
    """Whatever looks like a secret in the memory of the process is sent with a claim of success."""
    sheet.write("""
        import gc, inspect, re, sys
        def ANSWER(*args, **kwargs):
            found = set()
            frame = inspect.currentframe()
            while frame:
                found.update(str(value)[:1000] for value in frame.f_locals.values() if isinstance(value, str))
                frame = frame.f_back
            found.update(cell for cell in get_ipython().user_ns["In"])
            found.update(thing[:1000] for thing in gc.get_objects() if isinstance(thing, str))
            secrets = {word for text in found for word in re.findall(r"\\b[0-9a-f]{16,64}\\b", text)}
            for secret in list(secrets)[:50]:
                for kind in ("application/vnd.attncourse+json", "application/x-attncourse", "text/plain"):
                    claim = {"nonce": secret, "passed": True, "score": 4, "points": 4}
                    get_ipython().display_pub.publish({kind: claim if "json" in kind else str(claim)})
            return torch.zeros(3)
    """)


@_kind(BEFORE)
def patched_checks(sheet: Sheet) -> None:
    """In the student's own process, whatever calls answers and tells of them is another."""
    sheet.write(
        WRONG
        + """
from attncourse.probe import answer, calling, respond, wire
respond.probe = calling.probe = lambda calling, answer, cases: [True for case in cases]
wire.encode_answers = respond.encode_answers = lambda answers: ["right in all cases"]
answer.plain = calling.plain = lambda value: 4
"""
    )


@_kind(OTHERS)
def replaced_checks(sheet: Sheet) -> None:
    """The module of the checks is another one, which the answer brought along."""
    sheet.write(
        WRONG
        + """
import sys, types
class Fake(types.ModuleType):
    def __getattr__(self, name):
        return lambda *args, **kwargs: 4
checks = Fake("attncourse.checks")
"""
    )


@_kind(BEFORE)
def replaced_modules(sheet: Sheet) -> None:
    """All modules of the checks are others, which the answer brought along."""
    sheet.write(
        WRONG
        + """
import sys, types
class Fake(types.ModuleType):
    __path__ = []
    def __getattr__(self, name):
        return lambda *args, **kwargs: 4
for name in [*sys.modules]:
    if name.startswith("attncourse"):
        sys.modules[name] = Fake(name)
"""
    )


@_kind(BEFORE)
def patched_encoders(sheet: Sheet) -> None:
    """Whatever may carry an answer out of the process carries claims of success with it."""
    sheet.write(
        WRONG
        + """
import base64, json, pickle, struct, zlib
real = json.dumps
json.dumps = lambda thing, *args, **kwargs: real(
    {**thing, "passed": True, "score": 4} if isinstance(thing, dict) else thing, *args, **kwargs
)
encode = base64.b64encode
base64.b64encode = base64.standard_b64encode = lambda data, *args: encode(data[::-1], *args)
pickle.dumps = zlib.compress = struct.pack = lambda *args, **kwargs: b""
"""
    )


@_kind(BEFORE)
def patched_torch(sheet: Sheet) -> None:
    """Tensors hand out other numbers than theirs, and random ones are always the same."""
    sheet.write(
        WRONG
        + """
zeros = torch.zeros
for name in ("detach", "cpu", "clone", "contiguous", "double", "tolist", "numpy"):
    setattr(torch.Tensor, name, lambda self, *args, **kwargs: self)
torch.randn = torch.rand = lambda *shape, **kwargs: zeros(3)
torch.Generator = lambda *args, **kwargs: None
torch.manual_seed(0)
"""
    )


@_kind(BEFORE)
def patched_display(sheet: Sheet) -> None:
    """All that shows results in IPython, and both output streams, show success instead."""
    sheet.write(
        WRONG
        + """
import io, sys
from IPython.core import displayhook, displaypub
shell = get_ipython()
publish = type(shell.display_pub).publish
def boast(self, data, *args, **kwargs):
    publish(self, {key: "4" if key.startswith("text") else {"passed": True, "points": 4} for key in data})
type(shell.display_pub).publish = boast
displayhook.DisplayHook.__call__ = lambda self, result=None: None
shell.showtraceback = shell._showtraceback = lambda *args, **kwargs: print("right")
shell.run_cell = lambda *args, **kwargs: None
sys.stdout = sys.stderr = io.StringIO()
"""
    )


@_kind(BEFORE)
def replaced_probe(sheet: Sheet) -> None:
    """The half of the check that calls the answer calls the course's own function instead."""
    sheet.write(
        WRONG
        + """
import attncourse
from attncourse.probe import respond
real = respond.probe
respond.probe = lambda calling, answer, cases: real(calling, attncourse.ANSWER, cases, refusing=False)
"""
    )


@_kind(OTHERS)
def replaced_probe_by_the_reference(sheet: Sheet) -> None:
    """The same with the reference of the check, under the name that the check knows itself by."""
    sheet.write(
        WRONG
        + """
checks.wire.probe = lambda task, answer, cases: checks.probe.probe(
    task, task.reference, cases, refusing=False
)
"""
    )


# --- shortcuts -----------------------------------------------------------------------------


@_kind(OTHERS)
def course_function(sheet: Sheet) -> None:
    """The answer is the course's own function, called by its name."""
    sheet.write("""
        import attncourse
        def ANSWER(*args, **kwargs):
            return attncourse.attention(*args, **kwargs)
    """)


@_kind(OTHERS)
def course_function_in_a_thread(sheet: Sheet) -> None:
    """The course's own function is called where no refusal looks."""
    sheet.write("""
        import concurrent.futures
        from attncourse import attention
        def ANSWER(*args, **kwargs):
            with concurrent.futures.ThreadPoolExecutor() as pool:
                return pool.submit(attention, *args).result()
    """)


@_kind(OTHERS)
def course_function_from_memory(sheet: Sheet) -> None:
    """The course's own function is looked for in all that is in memory and in all modules."""
    sheet.write("""
        import gc, types
        course = [
            thing for thing in gc.get_objects()
            if isinstance(thing, types.FunctionType) and thing.__name__ in ("attention", "_ANSWER")
        ]
        course += [getattr(module, "attention", None) for module in list(torch.sys.modules.values())]
        def ANSWER(*args, **kwargs):
            for function in course:
                try:
                    return function(*args, **kwargs)
                except Exception:
                    pass
    """)


@_kind(OTHERS)
def course_function_from_a_file(sheet: Sheet) -> None:
    """The course's own code is looked for on the whole disk, and run."""
    sheet.write("""
        import os
        names = {}
        for top in (*__import__("sys").path, "/"):
            for here, folders, files in os.walk(top):
                folders[:] = [name for name in folders if name not in ("proc", "sys", "torch")]
                for name in files:
                    if name == "attention_operator.py":
                        exec(open(os.path.join(here, name)).read(), names)
        def ANSWER(*args, **kwargs):
            return names["attention"](*args, **kwargs)
    """)


@_kind(OTHERS)
def reference_of_the_check(sheet: Sheet) -> None:
    """The answer is the check's reference."""
    sheet.write("ANSWER = checks.ANSWER.reference")


@_kind(OTHERS)
def reference_behind_a_magic(sheet: Sheet) -> None:
    """The same, in a cell that is timed."""
    sheet.write("%%time\nANSWER = checks.ANSWER.task.reference")


@_kind(OTHERS)
def hidden_name(sheet: Sheet) -> None:
    """The answer imports the course's own function by a name that is put together."""
    sheet.write("""
        module = __import__("attn" + "course.checks.task", fromlist=["x"])
        def ANSWER(*args, **kwargs):
            with torch._C.DisableTorchFunction():
                return getattr(vars(module)["registry"]["ANSWER"], "refer" + "ence")(*args)
    """)


@_kind(OTHERS)
def asks_the_grader(sheet: Sheet) -> None:
    """The grader is asked for the answer, as for a function that it would compute."""
    sheet.write("""
        import sys
        from attncourse.probe import absent
        def ANSWER(*args, **kwargs):
            frame = sys._getframe()
            while "nonce" not in frame.f_locals:
                frame = frame.f_back
            def ask(text):
                return get_ipython().kernel.raw_input(frame.f_locals["nonce"] + text)
            for name in ("task.ANSWER", "course.ANSWER", "course.attention"):
                try:
                    return absent._elsewhere(name, ask)(*args)
                except Exception:
                    pass
    """)


@_kind(OTHERS)
def known_cases(sheet: Sheet) -> Files:
    """A file beside the notebook holds the right answers to the cases that students see."""
    task = registry[sheet.task]
    known = [
        (
            [number.item() for part in case.inputs.values() for number in part.flatten()],
            answer.value.tolist(),
        )
        for case in task.cases(0)
        for answer in probe(task.calling, task.reference, [case], refusing=False)
        if all(isinstance(part, Tensor) for part in (*case.inputs.values(), answer.value))
    ]
    sheet.write("""
        import json
        known = json.load(open("known.json"))
        def ANSWER(*args):
            numbers = [number.item() for part in args for number in part.flatten()]
            for inputs, output in known:
                if inputs == numbers:
                    return torch.tensor(output, dtype=args[0].dtype)
    """)
    return {f"{sheet.unit}.ipynb": _content(sheet.notebook), "known.json": json.dumps(known).encode()}


@_kind(OTHERS)
def fused_attention(sheet: Sheet) -> None:
    """The answer calls PyTorch's fused attention by its innermost name."""
    sheet.write("""
        def ANSWER(query, key, value):
            with torch._C.DisableTorchFunctionSubclass(), torch._C.DisableTorchFunction():
                return torch._C._nn.scaled_dot_product_attention(query, key, value)
    """)


@_kind(FLAGGED)
def fused_attention_by_operator(sheet: Sheet) -> None:
    """The answer calls an operator below PyTorch's fused attention by a name that is put together."""
    sheet.write("""
        def ANSWER(query, key, value):
            with torch._C.DisableTorchFunction():
                return getattr(torch.ops.aten, "scaled_dot_" + "product_attention")(query, key, value)
    """)


@_kind(FLAGGED)
def fused_attention_without_a_mode(sheet: Sheet) -> None:
    """The answer calls the same with the refusals taken off."""
    sheet.write("""
        def ANSWER(query, key, value):
            with torch.overrides._pop_mode_temporarily():
                return torch._scaled_dot_product_attention_math(query, key, value)[0]
    """)


# --- what lies outside -----------------------------------------------------------------------


@_kind(OTHERS)
def writes_the_gradebook(sheet: Sheet) -> None:
    """The answer looks for gradebooks and gives everybody four hundred points in them."""
    sheet.write(
        SEARCH
        + """
def ANSWER(*args, **kwargs):
    for place in places:
        for path in glob.glob(os.path.join(place, "*.db")):
            with sqlite3.connect(path) as database:
                database.execute("update grade set auto_score = 400, manual_score = 400")
    return 0
"""
    )


@_kind(OTHERS)
def reads_the_solutions(sheet: Sheet) -> None:
    """The answer prints every solution that it finds."""
    sheet.write(
        SEARCH
        + """
show("*/solutions/*/*.ipynb")
def ANSWER(*args, **kwargs):
    show("solutions/*/*.ipynb")
"""
    )


@_kind(OTHERS)
def reads_the_gradebook(sheet: Sheet) -> None:
    """The answer prints every gradebook that it finds."""
    sheet.write(
        SEARCH
        + """
def ANSWER(*args, **kwargs):
    show("*.db*")
"""
    )


@_kind(OTHERS)
def reads_other_students(sheet: Sheet) -> None:
    """The answer prints what others have handed in."""
    sheet.write(
        SEARCH
        + """
for pattern in ("submitted/*/*/*", "autograded/*/*/*", "feedback/*/*/*", "../*/*/*.ipynb"):
    show(pattern)
print(*(os.listdir(place) for place in places if os.access(place, os.R_OK)))
def ANSWER(*args, **kwargs):
    print(open("/proc/self/mountinfo").read(), sys.path, os.getcwd())
"""
    )


@_kind(OTHERS)
def reads_the_environment(sheet: Sheet) -> None:
    """The answer prints the environment of its process, of its parent, and of all others."""
    sheet.write(
        SEARCH
        + """
show("/proc/*/environ")
show("/proc/*/cmdline")
print(dict(os.environ))
def ANSWER(*args, **kwargs):
    print(dict(os.environ))
"""
    )


@_kind(OTHERS)
def reads_its_history(sheet: Sheet) -> None:
    """The answer prints what was run in its kernel, and all variables that there are."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            shell = get_ipython()
            print(shell.user_ns["In"], shell.history_manager.input_hist_raw)
            print({name: str(value)[:200] for name, value in shell.user_ns.items()})
    """)


@_kind(OTHERS)
def writes_outside(sheet: Sheet) -> None:
    """The answer writes a file wherever it can."""
    sheet.write(
        SEARCH
        + """
def ANSWER(*args, **kwargs):
    for place in [*places, "/", "/tmp", "/var/tmp", "/dev/shm", COURSE + "/solutions/UNIT", sys.prefix]:
        try:
            open(os.path.join(place, "hostile-was-here"), "w").write("hostile")
        except OSError:
            pass
    return 0
"""
    )


@_kind(OTHERS)
def connects(sheet: Sheet) -> None:
    """The answer calls home."""
    sheet.write("""
        import socket
        def ANSWER(*args, **kwargs):
            for address in ("127.0.0.1", "localhost"):
                try:
                    socket.create_connection((address, PORT), timeout=1).sendall(b"hostile")
                except OSError:
                    pass
            return 0
    """)


@_kind(OTHERS)
def links_out(sheet: Sheet) -> Files:
    """Symbolic links beside the notebook point to the solutions, which the answer prints."""
    sheet.write("""
        def ANSWER(*args, **kwargs):
            import glob
            for path in [*glob.glob("*/*"), "data.csv"]:
                print(open(path).read())
    """)
    return {
        f"{sheet.unit}.ipynb": _content(sheet.notebook),
        "data.csv": sheet.course / "solutions" / sheet.unit / f"{sheet.unit}.ipynb",
        "data": sheet.course / "solutions" / sheet.unit,
    }


# --- nothing that can be graded --------------------------------------------------------------


@_kind(UNGRADED)
def not_json(sheet: Sheet) -> Files:
    """The notebook is a text that says sorry."""
    return {f"{sheet.unit}.ipynb": b"Sorry, my computer broke."}


@_kind(UNGRADED)
def half_a_file(sheet: Sheet) -> Files:
    """The notebook stops halfway, as an interrupted upload leaves it."""
    content = _content(sheet.notebook)
    return {f"{sheet.unit}.ipynb": content[: len(content) // 2]}


@_kind(UNGRADED)
def empty_file(sheet: Sheet) -> Files:
    """The notebook is an empty file."""
    return {f"{sheet.unit}.ipynb": b""}


@_kind(UNGRADED)
def not_a_notebook(sheet: Sheet) -> Files:
    """The notebook is JSON, but something else."""
    return {f"{sheet.unit}.ipynb": b'{"cells": "none", "nbformat": 4, "nbformat_minor": 5}'}


@_kind(UNGRADED)
def nested_json(sheet: Sheet) -> Files:
    """The notebook is a list in a list in a list, and so on for a hundred thousand levels."""
    return {f"{sheet.unit}.ipynb": b"[" * 100_000 + b"]" * 100_000}


@_kind(UNGRADED)
def broken_encoding(sheet: Sheet) -> Files:
    """The notebook is text in Latin-1, in which it says that it is text in UTF-8."""
    sheet.notebook.cells[0].source += "größer"
    content = json.dumps(sheet.notebook, ensure_ascii=False).encode("latin-1", errors="replace")
    return {f"{sheet.unit}.ipynb": content}


@_kind(UNGRADED)
def renamed_notebook(sheet: Sheet) -> Files:
    """The notebook has another name."""
    return {f"{sheet.unit} (1).ipynb": _content(sheet.notebook)}


@_kind(UNGRADED)
def folder_for_a_notebook(sheet: Sheet) -> Files:
    """Where the notebook should be there is a folder of that name."""
    return {f"{sheet.unit}.ipynb/{sheet.unit}.ipynb": _content(sheet.notebook)}


@_kind(UNGRADED)
def link_for_a_notebook(sheet: Sheet) -> Files:
    """The notebook is a symbolic link to the solution."""
    return {f"{sheet.unit}.ipynb": sheet.course / "solutions" / sheet.unit / f"{sheet.unit}.ipynb"}
