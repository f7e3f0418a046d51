"""The student's kernel answers, this process judges: nbgrader's ``Execute`` with the judge outside."""

import ast
import asyncio
import hashlib
import json
import secrets
from queue import Empty
from time import monotonic
from typing import Any

import zmq
from jupyter_client.utils import ensure_async, run_sync
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.v4 import new_output
from nbgrader import preprocessors
from nbgrader.utils import is_grade, is_locked, is_solution
from traitlets import Integer

from attncourse.checks import CheckFailed, Task, Verdict, wire
from attncourse.checks.judge import judge
from attncourse.checks.probe import Answer, Failure
from attncourse.checks.task import registry
from attncourse.grading.harmless import LONGEST_REMARK, one_line
from attncourse.grading.job import NotGraded
from attncourse.grading.kernels import KernelManager
from attncourse.grading.repair import flag, remarks
from attncourse.grading.scan import Findings, scan

# After an interrupt, Python gets so many seconds to come back before it is stopped for good.
GRACE = 10
LARGEST_MESSAGE = 2**26  # bytes; whatever sends a larger one is cut off before it is read
LONGEST_LINE = 2000  # characters of a line of an error message


class Stopped(Exception):
    """The student's kernel runs no more; the message says why."""


class Execute(preprocessors.Execute):
    """Runs a notebook; whether an answer is right is found out here, not there.

    A graded cell that consists of calls ``checks.<task>(<answer>)`` is not run. The inputs
    of the task's cases go to the kernel, numbers come back, and the verdict on them becomes
    the cell's output, from which nbgrader reads the mark. All other cells run as ever.
    A kernel that dies or cannot be stopped costs only the marks that were not earned by then.
    """

    notebook_timeout = Integer(300, help="seconds that all cells of a notebook may take together").tag(
        config=True
    )
    output_limit = Integer(2**22, help="characters of output of a notebook that are kept").tag(config=True)
    seeds = Integer(3, help="how many times a task's cases are made, each time with other numbers").tag(
        config=True
    )

    iopub_timeout = Integer(GRACE, help=preprocessors.Execute.iopub_timeout.help).tag(config=True)

    def __init__(self, **settings: Any) -> None:
        ours = {"kernel_manager_class": KernelManager, "store_widget_state": False}
        super().__init__(**ours | settings)

    def preprocess(self, nb: Any, resources: Any, km: Any = None) -> tuple[Any, Any]:
        self._remarks = remarks(nb)
        self._stopped = ""
        self._shown = 0
        self._deadline = 0.0
        # The numbers depend on everything that is handed in: nobody can have prepared for them.
        self._digest = hashlib.sha256("\0".join(cell.source for cell in nb.cells).encode()).digest()
        return super().preprocess(nb, resources, km)

    def create_kernel_manager(self) -> Any:
        manager = super().create_kernel_manager()
        manager.context.setsockopt(zmq.MAXMSGSIZE, LARGEST_MESSAGE)
        return manager

    def preprocess_cell(self, cell: Any, resources: Any, index: int) -> tuple[Any, Any]:
        if cell.cell_type != "code":
            return cell, resources
        # The kernel is ready: what that took is the machine's time, not the notebook's.
        self._deadline = self._deadline or monotonic() + self.notebook_timeout
        if "isolation" not in self._remarks:
            self._remarks["isolation"] = getattr(self.km.provisioner, "isolation", "process")
        if not self._stopped and monotonic() > self._deadline:
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
        except (CellTimeoutError, TimeoutError):
            self._stop("The code did not come to an end, and did not let itself be interrupted.")
        except Exception:
            self.log.exception("The kernel could not be understood")
            self._stop("The Python process sent what could not be understood.")
        for output in cell.outputs:
            if output.output_type == "error":
                output.update(_error(output.ename, output.evalue, output.traceback))
        if type(cell.execution_count) is not int:
            cell.execution_count = None
        if self._stopped:
            cell.outputs.append(_error("Stopped", self._stopped, [self._stopped]))

    async def _async_run(self, cell: Any, index: int) -> None:
        """Run a cell, and wait no longer than for its time, an interrupt, and what it still prints.

        nbclient would, for an answer that what a notebook writes on its sockets has kept from coming.
        """
        most = (self._get_timeout(cell) or 0) + 3 * GRACE
        try:
            async with asyncio.timeout(most) as limit:
                await self.async_execute_cell(cell, index, store_history=True)
        except DeadKernelError:  # which nbclient makes of being stopped, too
            if limit.expired():
                raise TimeoutError from None
            raise

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] not in ("status", "execute_input") and self._shown <= self.output_limit:
            self._shown += len(json.dumps(msg["content"], default=str))
            if self._shown > self.output_limit:
                cell.outputs.append(new_output("stream", text="\n... All further output is left out ...\n"))
        if msg["msg_type"] != "status" and self._shown > self.output_limit:
            return None
        return super().process_message(msg, cell, cell_index)

    def _get_timeout(self, cell: Any) -> int | None:
        left = max(1, round(self._deadline - monotonic()))
        return min(super()._get_timeout(cell) or left, left)

    def _stop(self, reason: str) -> None:
        self._stopped = reason
        run_sync(self.km.shutdown_kernel)(now=True)

    def _died(self, words: str) -> None:
        """The kernel came to an end: by the notebook's doing, by a limit of ours, or by neither."""
        provisioner: Any = self.km.provisioner
        if provisioner.lost:
            raise NotGraded("lost its Python process, which was killed from outside", again=True)
        self._stop(f"{words} {provisioner.ending}".strip())

    # Graded cells ---------------------------------------------------------------------------

    def _grade(self, cell: Any, index: int) -> None:
        name = cell.metadata.nbgrader["grade_id"]
        calls = calls_of_checks(cell.source)
        if name in self._remarks.get("missing", ()):
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
        verdict = Verdict(names, not words, words)
        self._note(name, calls, [verdict])

    def _note(self, name: str, calls: list[tuple[Task, str]], verdicts: list[Verdict]) -> None:
        failed = [verdict for verdict in verdicts if not verdict.passed]
        shown = failed or verdicts
        self._remarks["checks"][name] = {
            "task": ", ".join(task.name for task, _ in calls),
            "outside": bool(calls),
            "passed": not failed,
            "misconception": next((one.misconception for one in failed if one.misconception), None),
            "words": one_line(shown[0].message.partition("\n")[0], LONGEST_REMARK),
        }

    def _verdict(self, name: str, task: Task, answer: str) -> Verdict:
        """Whether the answer that this expression has in the student's kernel is right."""
        if self._stopped:
            return Verdict(task.name, False, f"{task.name}: not checked. {self._stopped}")
        seeds = self._fresh_seeds(name, task)
        cases = [task.cases(seed) for seed in seeds]
        nonce = secrets.token_hex()
        asked = wire.request(task.name, cases)
        respond = "__import__('attncourse.checks.wire').checks.wire.respond"
        text = self._ask(f"{respond}({nonce!r}, {asked!r}, lambda: {answer})")
        if self._stopped:
            return Verdict(task.name, False, f"{task.name}: not right. {self._stopped}")
        try:
            answers = wire.reply(text, nonce, [len(some) for some in cases])
            for seed, some, given in zip(seeds, cases, answers, strict=False):
                verdict = judge(task, some, given, seed)
                if not verdict.passed:
                    return verdict
            if len(answers) == len(cases):
                return verdict
        except wire.Malformed:
            pass
        except Exception:
            self.log.exception("An answer could not be judged")
            flag(self.nb, name, f"the answer to {task.name} could not be judged")
        words = "what came back from your function could not be read as tensors, numbers and words."
        return Verdict(task.name, False, f"{task.name}: not right. Of the calls, {words}")

    def _read(self, name: str, index: int, task: Task, answer: str, verdict: Verdict) -> Verdict:
        """The verdict on an answer, after a look at the code that gave it."""
        above = [
            cell.source for cell in self.nb.cells[:index] if cell.cell_type == "code" and not is_locked(cell)
        ]
        try:
            found = scan(task, answer, above)
        except RecursionError:
            found = Findings(suspicious=["the code is nested too deeply to be read"])
        for words in found.suspicious:
            flag(self.nb, "", words)
        if not verdict.passed or not (found.calls or found.changes):
            return verdict
        if found.calls:
            flag(self.nb, name, f"no points: the answer uses {found.calls}")
            return judge(task, task.cases(0), [Answer(failure=Failure("refused", found.calls))])
        flag(self.nb, name, f"no points: a cell changes {found.changes}")
        words = f"A cell of the notebook changes {found.changes}, which is part of how answers are checked."
        return Verdict(task.name, False, f"{task.name}: not by this road.\n\n{words}")

    def _fresh_seeds(self, name: str, task: Task) -> list[int]:
        """Seed 0, which the student knows, and others that nobody knew before handing in."""
        digest = hashlib.sha256(self._digest + f"{name}/{task.name}".encode()).digest()
        return [0] + [int.from_bytes(digest[4 * i : 4 * i + 4]) % 10**6 + 1 for i in range(self.seeds - 1)]

    def _ask(self, code: str) -> str | None:
        try:
            return run_sync(self._async_ask)(code)
        except DeadKernelError:
            self._died("The Python process came to an end while your function was called.")
        except TimeoutError:
            self._stop("Your function did not come to an end, and did not let itself be interrupted.")
        return None

    async def _async_ask(self, code: str) -> str | None:
        """Run code of ours in the student's kernel, and return what it publishes for us."""
        assert self.kc is not None
        request = self.kc.execute(code, silent=True, store_history=False, stop_on_error=False)
        deadline = monotonic() + (self._get_timeout(None) or 0)
        interrupted = False
        found = None
        while True:
            left = deadline - monotonic()
            if left <= 0:
                if interrupted:
                    raise TimeoutError
                interrupted = True
                deadline += GRACE
                await ensure_async(self.km.interrupt_kernel())
                continue
            try:
                msg = await ensure_async(self.kc.iopub_channel.get_msg(timeout=min(1, left)))
                content = msg["content"]
                if msg["parent_header"].get("msg_id") != request:
                    continue
                if msg["msg_type"] == "status" and content["execution_state"] == "idle":
                    return found
                if msg["msg_type"] == "display_data" and found is None:
                    found = content["data"].get(wire.MIME)
            except Empty:
                await self._async_check_alive()
            except (ValueError, TypeError, LookupError, AttributeError):
                continue  # not a message as kernels send it


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
    if not passed:
        return [_failed_check(verdicts)]
    text = "\n\n".join(verdict.message for verdict in verdicts) + "\n"
    shown = [new_output("stream", text=text)]
    if len(passed) < len(verdicts):
        share = points * len(passed) / len(verdicts)
        shown.append(new_output("execute_result", data={"text/plain": f"{share:g}"}))
    return shown


def _failed_check(verdicts: list[Verdict]) -> Any:
    message = "\n\n".join(verdict.message for verdict in verdicts)
    failed = CheckFailed(Verdict(verdicts[0].task, False, message))
    kind = "CellTimeoutError" if ": interrupted." in message.partition("\n")[0] else "CheckFailed"
    return _error(kind, message, failed._render_traceback_())


def _failure(words: str) -> Any:
    return _error("NotGraded", words, [words])


def _error(kind: Any, words: Any, lines: Any) -> Any:
    texts = [str(line)[:LONGEST_LINE] for line in lines] if isinstance(lines, list) else []
    return new_output(
        "error", ename=str(kind)[:LONGEST_LINE], evalue=str(words)[: 2 * LONGEST_LINE], traceback=texts
    )
