"""The student's kernel answers, this process judges: nbgrader's ``Execute`` with the judge outside."""

import ast
import asyncio
import functools
import hashlib
import hmac
import importlib.machinery
import json
import math
import os
import platform
import re
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from queue import Empty
from time import monotonic
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.utils import ensure_async, run_sync
from nbclient.exceptions import CellExecutionComplete, CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from nbgrader import preprocessors
from nbgrader.utils import is_grade, is_locked, is_solution
from traitlets import Float, Integer, List, Unicode, default

import attncourse
from attncourse.checks import Case, CheckFailed, Task, Verdict
from attncourse.checks.judge import judge
from attncourse.checks.task import registry
from attncourse.checks.verdict import Passage, Words
from attncourse.grading import beside, made, secret
from attncourse.grading.alarm import TooLong, at_most
from attncourse.grading.harmless import LONGEST_REMARK, one_line, several_lines
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels import KernelManager
from attncourse.grading.pipe import Pipe
from attncourse.grading.repair import VERDICT, flag, remarks
from attncourse.grading.scan import Findings, Remark, forget, scan
from attncourse.probe import wire
from attncourse.probe.absent import NotInGrading
from attncourse.probe.answer import Answer, Failure, Misfit
from attncourse.probe.calling import Way

LARGEST_MESSAGE = 2**26  # bytes; whatever sends a larger one is cut off before it is read
MOST_LISTS = 2**21  # and dictionaries in one message, each of which takes 30 times the room of its text
LONGEST_LINE = 2000  # characters of a line of an error message
LONGEST_NAME = 100  # of its class
MOST_NAMED = 5  # names in a remark
# What a check says of an answer for which this Python may be too old.
_OF_PYTHON = ("has no value here", "SyntaxError", "AttributeError", "ImportError", "TypeError")
MOST_SECONDS_READING = 60  # all code of a notebook: what somebody has written takes one or two
# What a cell gives a meaning, as its lines begin.
_GIVEN = re.compile(r"^(?:(?:def|class) +(\w+)|(\w+)\s*(?::[^=\n]+)?=[^=])", re.MULTILINE)
MOST_LINES = 60  # of a traceback
FRAME = 400  # characters of a page around each output: tens of thousands take a browser half a minute


UNREADABLE = "what came back from the calls could not be read as tensors, numbers and words"


class Stopped(Exception):
    """The student's kernel runs no more; the message says why."""


class Execute(preprocessors.Execute):
    """Runs a notebook; whether an answer is right is found out here, not there.

    A graded cell that consists of calls ``checks.<task>(<answer>)`` is not run. The inputs
    of the task's cases go to the kernel, numbers come back, and the verdict on them becomes
    the cell's output, from which nbgrader reads the mark. All other cells run as ever, with an
    `attncourse` in which nothing computes an answer (see made.py).
    A kernel that dies or cannot be stopped costs only the marks that were not earned by then.
    """

    notebook_timeout = Integer(300, help="seconds that all cells of a notebook may take together").tag(
        config=True
    )
    slower = Float(
        5.0, help="how many times longer, at most, all limits on time are where others compute, too"
    ).tag(config=True)
    output_limit = Integer(2**22, help="characters of output of a notebook that are kept").tag(config=True)
    seeds = Integer(3, help="how many times a task's cases are made, each time with other numbers").tag(
        config=True
    )
    released = List(Unicode(), help="files that lie beside the notebook of every student").tag(config=True)
    secret = Unicode(help="what the numbers of the tasks' cases are drawn from; see secret.py").tag(
        config=True
    )

    @default("secret")
    def _secret_of_the_course(self) -> str:
        return secret.of_course(Path.cwd())

    grace = Integer(
        10, help="seconds that Python gets to come back after an interrupt, before it is stopped for good"
    ).tag(config=True)

    @default("iopub_timeout")
    def _as_long_as_an_interrupt(self) -> int:
        return self.grace

    def __init__(self, **settings: Any) -> None:
        ours = {"kernel_manager_class": KernelManager, "store_widget_state": False}
        super().__init__(**ours | settings)

    def preprocess(self, nb: Any, resources: Any, km: Any = None) -> tuple[Any, Any]:
        self._remarks = remarks(nb)
        self._stopped = ""
        self._shown = 0
        # Whether the answers that have been judged so far are right.
        self._right: dict[str, bool] = {}
        # Cells that did not come to their end, because they use what is not there in grading: what is told
        # of each, and its source.
        self._short: dict[str, str] = {}
        self._begun = self._computed = 0.0
        self._slow = 1.0
        self._interrupted = self._left = False
        self._left_to_read = float(MOST_SECONDS_READING)
        folder = Path(resources["metadata"]["path"])
        self._digest = handed_in(nb, folder)
        self._beside = beside.modules(folder)
        if words := beside.remark(folder, self.released):
            flag(nb, "", words)
        try:
            return super().preprocess(nb, resources, km)
        finally:
            forget()

    def create_kernel_manager(self) -> Any:
        manager = super().create_kernel_manager()
        manager.context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        # Else who sends to a kernel that has broken its connection waits for ever.
        manager.context.setsockopt(zmq.SNDTIMEO, 1000 * self.grace)
        manager.session.unpack = functools.partial(_read_message, manager.session.unpack)
        graded = (cell for cell in self.nb.cells if is_grade(cell))
        manager.course = str(
            made.package_for([task for cell in graded for task, _ in calls_of_checks(cell.source)])
        )
        return manager

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        if cell.cell_type != "code":
            return cell, resources
        # The kernel is ready: what that took is the machine's time, not the notebook's.
        if not self._begun:
            self._begun, self._computed = monotonic(), self._computing()
        if "isolation" not in self._remarks:
            self._remarks["isolation"] = getattr(self.km.provisioner, "isolation", "process")
        if not self._stopped and monotonic() > self._end_of_all():
            self._stop(f"The notebook took longer than {self.notebook_timeout} seconds.")
        if is_grade(cell) and not is_solution(cell):
            self._grade(cell, index)
        elif not self._stopped:
            self._run(cell, index)
        return cell, resources

    # Cells of the student's, and an instructor's own tests ----------------------------------

    def _run(self, cell: Any, index: int) -> None:
        try:
            run_sync(self._async_run)(cell, index)
        except DeadKernelError:
            self._died("The Python process came to an end.")
        except (CellTimeoutError, TimeoutError, zmq.Again):
            self._stop("The code did not come to an end, and did not let itself be interrupted.")
        except Exception:
            self.log.exception("The kernel could not be understood")
            self._stop("The Python process sent what could not be understood.")
        self._stop_if_it_left()
        for place, output in enumerate(cell.outputs):
            name, words = ("", "") if output.output_type != "error" or is_grade(cell) else _absent(output)
            if name:
                cell.outputs[place] = new_output("stream", text=f"{words}\n")
                told = f"code cell {index + 1} ended at {name}, which is not there in grading"
                self._short[told] = cell.source
                if is_solution(cell):
                    flag(self.nb, cell.metadata.nbgrader.grade_id, f"stopped early: {words}")
            elif output.output_type == "error":
                output.update(_error(output.ename, output.evalue, _shortened(output.traceback)))
        if type(cell.execution_count) is not int:
            cell.execution_count = None
        if self._stopped:
            cell.outputs.append(_error("Stopped", self._stopped, [self._stopped]))

    async def _async_run(self, cell: Any, index: int) -> None:
        """Run a cell, and wait no longer than for its time, an interrupt, and what it still prints.

        nbclient would, for an answer that what a notebook writes on its sockets has kept from coming.
        """
        _say_nothing_of_tasks()
        # What a cell has printed may be lost; that it has ended its reply says, too.
        self.raise_on_iopub_timeout = False
        most = (self._get_timeout(cell) or 0) + 3 * self.grace
        try:
            async with asyncio.timeout(most) as limit:
                await self.async_execute_cell(cell, index, store_history=True)
        except DeadKernelError:  # which nbclient makes of being stopped, too
            if limit.expired():
                raise TimeoutError from None
            raise

    async def _async_handle_timeout(self, timeout: int, cell: Any = None) -> Any:
        # In place of the reply there is one that nbclient makes: whether the interrupt has come through,
        # only what is printed says.
        self.raise_on_iopub_timeout = True
        return await super()._async_handle_timeout(timeout, cell)

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"].startswith("comm_"):
            return None  # what widgets say to a page that nobody looks at
        if msg["msg_type"] not in ("status", "execute_input") and self._shown <= self.output_limit:
            self._shown += len(json.dumps(msg["content"], default=str)) + FRAME
            if self._shown > self.output_limit:
                cell.outputs.append(new_output("stream", text="\n... All further output is left out ...\n"))
        if msg["msg_type"] != "status" and self._shown > self.output_limit:
            return None
        try:
            return super().process_message(msg, cell, cell_index)
        except CellExecutionComplete:
            raise
        except Exception:  # whatever nbclient stumbles over in what a notebook may have sent by itself
            words = "... An output is left out here: it is not made as outputs are ...\n"
            self._shown += len(words)
            cell.outputs.append(new_output("stream", text=words))
            return None

    def _get_timeout(self, cell: Any) -> int | None:
        now = monotonic()
        return max(1, round(self._end(now, cell) - now))

    def _end(self, begun: float, cell: Any = None, times: int = 1) -> float:
        """When so many cells that began then are to have ended, on a machine as busy as this one was."""
        whole = begun + times * (self._end_of_all() - begun)
        own = super()._get_timeout(cell)
        return min(begun + times * own * self._slow, whole) if own else whole

    def _end_of_all(self) -> float:
        slow = min(slowness(), self.slower)
        if slow > self._slow:
            computed = self._computing() - self._computed
            # Who computes that long has been waiting for nobody, and may be the load.
            if computed > self.grace:
                slow = min(slow, (monotonic() - self._begun) / computed)
            self._slow = max(self._slow, slow)
        return self._begun + self.notebook_timeout * self._slow

    def _computing(self) -> float:
        return getattr(self.km.provisioner, "computed", 0.0)

    def _stop(self, reason: str) -> None:
        self._stopped = reason
        flag(self.nb, "", f"not run to its end: {reason}")
        run_sync(self.km.shutdown_kernel)(now=True)

    def _died(self, words: str) -> None:
        """The kernel came to an end: by the notebook's doing, by a limit of ours, or by neither."""
        provisioner: Any = self.km.provisioner
        if provisioner.lost:
            raise NotGraded("lost its Python process, which was killed from outside", again=True)
        self._stop(f"{words} {provisioner.ending}".strip())

    def on_cell_executed(self, **event: Any) -> None:
        super().on_cell_executed(**event)
        self._look_whether_it_left(event["execute_reply"])

    def _look_whether_it_left(self, reply: Any) -> None:
        """Whether a cell has called ``quit()`` or the like: its kernel ends a while after it has replied."""
        payload = reply["content"].get("payload") if isinstance(reply, dict) else None
        for one in payload if isinstance(payload, list) else []:
            if isinstance(one, dict) and one.get("source") == "ask_exit" and not one.get("keepkernel"):
                self._left = True

    def _stop_if_it_left(self) -> None:
        if self._left and not self._stopped:
            self._stop("The notebook ended its Python process itself, by quit() or exit().")

    # Graded cells ---------------------------------------------------------------------------

    def _grade(self, cell: Any, index: int) -> None:
        name = cell.metadata.nbgrader["grade_id"]
        calls = calls_of_checks(cell.source)
        if name in self._remarks.get("missing", ()):
            for task, _ in calls:
                self._right.setdefault(task.name, False)  # it can earn nothing any more, and may be given
            cell.outputs = [_failure("missing: this cell was not in the notebook that was handed in.")]
        elif self._stopped:
            cell.outputs = [_failure(f"not run. {self._stopped}")]
        elif calls:
            verdicts = [
                self._read(name, index, task, answer, self._verdict(name, task, answer))
                for task, answer in calls
            ]
            cell.outputs = outputs(verdicts, cell.metadata.nbgrader["points"])
            cell.execution_count = None
            self._note(name, calls, verdicts)
            return
        else:
            self._run(cell, index)
            if not any(output.output_type == "error" for output in cell.outputs):
                # A warning is no failed test, and nbgrader would take it for one.
                for output in cell.outputs:
                    if output.output_type == "stream":
                        output.name = "stdout"
        words = next((output.evalue for output in cell.outputs if output.output_type == "error"), "")
        names = ", ".join(task.name for task, _ in calls)
        verdict = Verdict(names, not words, words.partition("\n")[0])
        self._note(name, calls, [verdict])

    def _note(self, name: str, calls: list[tuple[Task, str]], verdicts: list[Verdict]) -> None:
        failed = [verdict for verdict in verdicts if not verdict.passed]
        shown = failed or verdicts
        if failed and name in self._remarks.get("passed", ()):
            flag(self.nb, name, "passed at home, by what the notebook shows, and not here", "passed at home")
        python = self._remarks.get("python")
        if python and any(of_python in one.message for one in failed for of_python in _OF_PYTHON):
            words = (
                f"was written with Python {python}, and this one is {platform.python_version()}: what only "
            )
            flag(self.nb, name, f"{words}the newer has does not run here", "Python")
        laws = [one.law for one in failed if one.law]
        self._remarks["checks"][name] = {
            "task": ", ".join(task.name for task, _ in calls),
            "outside": bool(calls),
            "passed": not failed,
            "misconception": next((one.misconception for one in failed if one.misconception), None),
            "mistakes": [label for one in failed for label in one.mistakes],
            "law": laws[0] if laws else None,
            "carried": [part for one in verdicts for part in one.carried],
            "read": next(
                (part.read for one in failed for part in one.sections if isinstance(part, Passage)), None
            ),
            "words": one_line(shown[0].headline, LONGEST_REMARK),
        }

    def _verdict(self, name: str, task: Task, answer: str) -> Verdict:
        """Whether the answer that this expression has in the student's kernel is right."""
        if self._stopped:
            return Verdict(task.name, False, f"{task.name}: not checked.", (Words(self._stopped),))
        # Only what has been judged can be given: nobody can earn its points with it any more.
        wrong = [part for part in task.builds_on if self._right.get(part) is False]
        words = UNREADABLE
        try:
            return judge(
                task,
                self._seeds(name, task),
                lambda cases, instead: self._answers(name, task, answer, cases, instead),
                wrong,
            )
        except Stopped:
            words = self._stopped
        except Exception:
            self.log.exception("An answer could not be judged")
            flag(self.nb, name, f"the answer to {task.name} could not be judged")
        return Verdict(task.name, False, f"{task.name}: not right.", (Words(words),))

    def _answers(
        self, cell: str, task: Task, answer: str, cases: Sequence[Case], instead: Sequence[str]
    ) -> list[Answer]:
        """What the answer gives for these cases, with right functions in place of some of the student's.

        Raises
        ------
        Stopped
        """
        way = task.calling.way
        # As many cases as a student's own check has get the time of a cell, as they do there.
        times = math.ceil(len(cases) / len(task.cases(0)))
        nonce = secrets.token_hex()
        respond = "__import__('attncourse.probe.respond').probe.respond.respond"
        code = f"{respond}({nonce!r}, lambda: {answer})"
        asked = wire.request(task.calling, cases, instead)
        # An interrupt may come late, when what it was meant for has ended by itself. But who has asked
        # something could keep it for the next time, when it is not known how often that was asked.
        for _ in range(2):
            handed = [way.functions(case.inputs) for case in cases]
            pipe = Pipe(self._functions(task, handed, instead), len(cases))
            text = self._ask(code, asked, nonce, pipe, times)
            if self._stopped or text is not None or not self._interrupted or pipe.left < pipe.most:
                break
            self._interrupted = False
        if self._stopped:
            raise Stopped(self._stopped)
        try:
            if text is None and self._interrupted:
                answers = [Answer(failure=Failure("interrupted"))]
            else:
                answers = wire.reply(text, nonce, len(cases))
            if len(answers) < len(cases) and answers[-1].failure is None:
                raise wire.Malformed("text is not the answers to all cases")
        except wire.Malformed:
            return [Answer(failure=Failure("misfit", UNREADABLE))]
        answers = [looked_at(way, *one) for one in zip(cases, handed, answers, strict=False)]
        failures = [one.failure for one in answers if one.failure]
        if self._short and any(one.kind == "missing" or one.name == "NameError" for one in failures):
            flag(self.nb, cell, f"a name is missing that may have been lost: {'; '.join(self._short)}")
        if any(one.kind == "interrupted" for one in failures):
            flag(self.nb, cell, f"{task.name} was interrupted, having run longer than a cell may")
        lacking = {_not_installed(one.text) for one in failures if one.name == "ModuleNotFoundError"} - {""}
        if lacking:
            names = ", ".join(f"`{name}`" for name in sorted(lacking))
            flag(self.nb, cell, f"needs {names}, which is not installed where notebooks are graded")
        return answers

    def _functions(
        self, task: Task, handed: Sequence[Mapping[str, Callable]], instead: Sequence[str]
    ) -> dict[str, Callable]:
        """What may be asked of us meanwhile, by name: what the cases hand over, and right functions."""
        functions: dict[str, Callable] = {f"task.{part}": registry[part].stand_in for part in instead}
        functions |= wire.programs(handed)
        for part in made.outside(task):
            if self._right.get(part) is not None:
                functions[f"course.{part}"] = getattr(attncourse, part)
        return functions

    def _read(self, name: str, index: int, task: Task, answer: str, verdict: Verdict) -> Verdict:
        """The verdict on an answer, after a look at the code that gave it."""
        above = [cell for cell in self.nb.cells[:index] if cell.cell_type == "code"]
        own = [
            (cell.metadata.get("nbgrader", {}).get("grade_id", f"code cell {number}"), cell.source)
            for number, cell in enumerate(above, 1)
            if not is_locked(cell)
        ]
        locked = [cell.source for cell in above if is_locked(cell)]
        begun = monotonic()
        try:
            with at_most(self._left_to_read):
                found = scan(task, answer, own, locked, self._beside)
        except (RecursionError, TooLong) as error:
            why = "takes too long to read" if isinstance(error, TooLong) else "is nested too deeply"
            words = f"what stands above {why}: it was not read"
            found = Findings(remarks=[Remark(name, words, words)])
        self._left_to_read -= monotonic() - begun
        for remark in found.remarks:
            flag(self.nb, *remark)
        if verdict.passed and found.calls:
            flag(self.nb, name, f"no points: the answer calls {found.calls}")
            refused = [Answer(failure=Failure("refused", found.calls))]
            verdict = judge(task, (0,), lambda cases, instead: refused)
        if not verdict.passed:
            self._tell_of_lost(name, task, found.names)
        self._right[task.name] = verdict.passed
        return verdict

    def _tell_of_lost(self, name: str, task: Task, used: Collection[str]) -> None:
        """Tell of names that may mean something else than at home: a cell ended before it gave them anew."""
        for told, source in self._short.items():
            given = {text for pair in _GIVEN.findall(source) for text in pair}
            is_told = any(told in one["words"] for one in remarks(self.nb)["flags"] if one["cell"] == name)
            if (lost := sorted(given.intersection(used))) and not is_told:
                names = ", ".join(f"`{one}`" for one in lost[:MOST_NAMED])
                flag(self.nb, name, f"{task.name} is not right, and {names} may be missing or old: {told}")

    def _seeds(self, name: str, task: Task) -> list[int]:
        """Seed 0, which the student knows, and others that nobody can know, the same in every run."""
        # Each call of a function out here takes a while, and one draw has all functions already.
        numbers = range(1 if task.hands_over_functions else self.seeds - 1)
        messages = [self._digest + f"{name}/{task.name}/{number}".encode() for number in numbers]
        drawn = [hmac.digest(self.secret.encode(), message, "sha256") for message in messages]
        return [0, *map(int.from_bytes, drawn)]

    def _ask(self, code: str, asked: str, nonce: str, pipe: Pipe, times: int) -> str | None:
        begun = monotonic()
        try:
            return run_sync(self._async_ask)(code, asked, nonce, pipe, times)
        except DeadKernelError:
            self._died("The Python process came to an end while your function was called.")
        except (TimeoutError, zmq.Again):
            self._stop("Your function did not come to an end, and did not let itself be interrupted.")
        finally:
            # Of all that the notebook may take, this is as much as the student's own check takes.
            self._begun += (monotonic() - begun) * (1 - 1 / times)
            self._stop_if_it_left()
        return None

    async def _async_ask(self, code: str, asked: str, nonce: str, pipe: Pipe, times: int) -> str | None:
        """Run code of ours in the student's kernel, as long as so many cells, and return what it publishes.

        Meanwhile, answer what it asks for by Jupyter's way of asking for input.
        """
        _say_nothing_of_tasks()
        assert self.kc is not None
        content = {"code": code, "silent": True, "store_history": False, "stop_on_error": False}
        content |= {"user_expressions": {}, "allow_stdin": bool(pipe.functions), wire.ASKED: asked}
        message = self.kc.session.msg("execute_request", content)
        self.kc.shell_channel.send(message)
        request = message["header"]["msg_id"]
        stdin, shell = self.kc.stdin_channel, self.kc.shell_channel
        channels = stdin, shell, self.kc.iopub_channel
        poller = zmq.asyncio.Poller()
        for channel in channels:
            poller.register(channel.socket, zmq.POLLIN)
        begun = monotonic()
        interrupted = 0.0
        found = None
        idle = replied = False
        while not (idle and replied):
            left = (interrupted + self.grace if interrupted else self._end(begun, times=times)) - monotonic()
            if left <= 0:
                if interrupted:
                    raise TimeoutError
                interrupted = monotonic()
                self._interrupted = True
                await ensure_async(self.km.interrupt_kernel())
                continue
            ready = dict(await poller.poll(1000 * min(1, left)))
            if not ready:
                await self._async_check_alive()
            try:
                for channel in channels:
                    if channel.socket not in ready:
                        continue
                    msg = await ensure_async(channel.get_msg(timeout=0))
                    kind, content = msg["msg_type"], msg["content"]
                    if msg["parent_header"].get("msg_id") != request:
                        continue
                    if channel is stdin and kind == "input_request" and pipe.functions:
                        ours, _, question = content["prompt"].partition(nonce)
                        self.kc.input("" if ours or not question else pipe.answer(question))
                    elif channel is shell:
                        replied = True
                        self._look_whether_it_left(msg)
                    elif kind == "status" and content["execution_state"] == "idle":
                        idle = True
                    elif kind == "display_data" and found is None:
                        found = content["data"].get(wire.MIME)
            except (Empty, ValueError, TypeError, LookupError, AttributeError):
                continue  # not a message as kernels send it
        return found


def _say_nothing_of_tasks() -> None:
    """Have asyncio not report the error of a task that nobody has waited for.

    It would while something else runs, whenever the garbage is collected, and parses code for that: inside of
    `ast.parse` that is a SystemError.
    """
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)


def _read_message(read: Callable[[bytes], Any], text: bytes) -> Any:
    """What is in a part of a message of the kernel's, read by jupyter_client's own way."""
    if text.count(b"[") + text.count(b"{") > MOST_LISTS:
        raise ValueError(f"message holds more than {MOST_LISTS} lists")
    return read(text)


def looked_at(way: Way, case: Case, functions: dict[str, Callable], answer: Answer) -> Answer:
    """An answer to a case, or what is wrong with how it has used the functions that stayed here."""
    if answer.failure is not None:
        return answer
    try:
        way.look(case.inputs, functions, answer.value)
    except Misfit as misfit:
        return Answer(failure=Failure("misfit", str(misfit)))
    return answer


def handed_in(nb: Any, folder: Path) -> bytes:
    """A fingerprint of all that is handed in, on which the numbers depend: nobody can have prepared for them.

    Files beside the notebook count, too: they could hold what was prepared for another hand-in's numbers.
    """
    cells = [[cell.cell_type, cell.source, cell.get("attachments")] for cell in nb.cells]
    whole = hashlib.sha256(json.dumps(cells, sort_keys=True).encode())
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.suffix != ".ipynb":
            whole.update(f"\0{path.relative_to(folder)}\0".encode(errors="surrogateescape"))
            whole.update(hashlib.sha256(path.read_bytes()).digest())
    return whole.digest()


def slowness() -> float:
    """How many times longer things take here because others compute, too.

    Two processes for each core are those of a class that is graded. What a busy machine takes is not to
    be the student's loss.
    """
    try:
        load = os.getloadavg()[0]
    except (AttributeError, OSError):  # not on every system
        return 1.0
    return max(1.0, load / (2 * (os.cpu_count() or 1)))


def calls_of_checks(source: str) -> list[tuple[Task, str]]:
    """The task and the answer's expression of each call, if a cell has nothing but calls of checks."""
    calls = []
    try:
        statements = ast.parse(source).body
    except SyntaxError:  # IPython's own commands
        return []
    for statement in statements:
        match statement:
            case ast.Expr(
                ast.Call(
                    func=ast.Attribute(value=ast.Name(id="checks"), attr=name), args=[answer], keywords=[]
                )
            ) if name in registry:
                calls.append((registry[name], ast.unparse(answer)))
            case _:
                return []
    return calls


def outputs(verdicts: list[Verdict], points: float) -> list[Any]:
    """What a graded cell shows: nbgrader gives no points for an error, else what the result says, or all."""
    passed = [verdict for verdict in verdicts if verdict.passed]
    told = [verdict.html() for verdict in verdicts] if any(one.sections for one in verdicts) else []
    pictured = [
        new_output("display_data", {VERDICT: "".join(told)}, metadata={"attncourse": "verdict"})
        for _ in told[:1]
    ]
    if not passed:
        return [*pictured, _failed_check(verdicts)]
    text = "\n\n".join(verdict.message for verdict in verdicts) + "\n"
    shown = [*pictured, new_output("stream", text=text)]
    if len(passed) < len(verdicts):
        share = points * len(passed) / len(verdicts)
        shown.append(new_output("execute_result", data={"text/plain": f"{share:g}"}))
    return shown


def _absent(error: Any) -> tuple[str, str]:
    """What was used that is not there in grading, by its name, and a sentence on it; or nothing."""
    words = str(error.evalue)
    ours = re.match(r"`((?:attncourse|checks)(?:\.\w{1,40}){1,4})` is not there", words)
    if error.ename == NotInGrading.__name__ and ours:
        return ours[1], str(NotInGrading(ours[1]))
    part = re.match(r"No module named '(attncourse(?:\.\w{1,40}){1,4})'", words)
    if error.ename == ModuleNotFoundError.__name__ and part:
        return part[1], str(NotInGrading(part[1]))
    if error.ename == ModuleNotFoundError.__name__ and (package := _not_installed(words)):
        return package, (
            f"`{package}` is not installed where notebooks are graded, and was not handed in with this one. "
            "This cell ended there; what stands below in it is missing."
        )
    return "", ""


def _not_installed(words: str) -> str:
    """The module that Python's message says it has not found, and that is not there in earnest."""
    found = re.search(r"No module named '([A-Za-z_]\w{,59})['.]", words)
    if found is None or importlib.machinery.PathFinder.find_spec(found[1]):
        return ""
    return found[1]


def _failed_check(verdicts: list[Verdict]) -> Any:
    lines = [line for verdict in verdicts for line in (*CheckFailed(verdict)._render_traceback_(), "")]
    message = "\n\n".join(verdict.message for verdict in verdicts)
    kind = "CellTimeoutError" if verdicts[0].headline.endswith(": interrupted.") else "CheckFailed"
    return _error(kind, message, lines[:-1])


def _failure(words: str) -> Any:
    return _error("NotGraded", words, [words])


def _error(kind: Any, words: Any, lines: Any) -> Any:
    texts = [several_lines(str(line)[:LONGEST_LINE]) for line in lines] if isinstance(lines, list) else []
    message = several_lines(str(words)[: 2 * LONGEST_LINE])
    return new_output("error", ename=one_line(str(kind), LONGEST_NAME), evalue=message, traceback=texts)


def _shortened(lines: Any) -> list[str]:
    """Beginning and end of a traceback, which may have thousands of lines that say the same."""
    texts = "\n".join(map(str, lines)).split("\n") if isinstance(lines, list) else []
    if len(texts) <= MOST_LINES:
        return texts
    half = MOST_LINES // 2
    return [*texts[:half], f"... {len(texts) - 2 * half} lines are left out ...", *texts[-half:]]
