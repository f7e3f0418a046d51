"""In the process that runs a submission: call an answer as the grader asks, and publish what comes back."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from types import FunctionType
from typing import Any

from attncourse.probe import absent
from attncourse.probe.answer import Answer, Failure
from attncourse.probe.calling import Calling, Case, Way, probe, usual_settings
from attncourse.probe.program import Elsewhere
from attncourse.probe.wire import ASKED, MIME, decode, encode_answers


@usual_settings()
def respond(nonce: str, answer: Callable[[], Any]) -> None:
    """Call the answer on the cases that the message that brought this call holds, under `ASKED`.

    They are not in the call: of what it runs, a kernel computes a fingerprint, letter by letter.

    Parameters
    ----------
    nonce : str
        Comes back with the answers, so that they are known to be those to this request.
    answer : callable
        Gives the student's answer.
    """
    from IPython import get_ipython
    from IPython.core.error import StdinNotImplementedError
    from IPython.display import publish_display_data

    question = decode(get_ipython().get_parent()["content"][ASKED])
    names: dict[str, Any] = get_ipython().user_ns
    module, _, name = question["way"].partition(".")
    way = getattr(import_module(f"attncourse.probe.{module}"), name)() if name else Way()
    calling = Calling(way, question["refuses"], question["allows"])
    instead = question["instead"]
    before = {name: names[name] for name in instead if name in names}
    # By whatever other names an answer calls it.
    others = {
        other: name
        for name, wrong in before.items()
        for other, value in names.items()
        if value is wrong and isinstance(wrong, FunctionType) and wrong.__module__ == "__main__"
    }
    before |= {other: names[other] for other in others}

    one_at_a_time = threading.Lock()

    def ask(text: str) -> str:
        # An answer may ask from several threads, and a kernel's socket ends the process when two use it.
        with (
            one_at_a_time,
            contextlib.redirect_stdout(_Unflushed(sys.stdout)),
            contextlib.redirect_stderr(_Unflushed(sys.stderr)),
        ):
            try:
                return get_ipython().kernel.raw_input(nonce + text)
            except StdinNotImplementedError:
                words = (
                    "what the course computes for this answer is there only below the check of the same name"
                )
                raise RuntimeError(f"in grading, {words}: put the checks back in their order") from None

    absent.serve(
        [
            *(f"course.{name}" for name in calling.allows),
            *(f"task.{name}" for name in instead),
            *(asked_for for _, _, functions in question["cases"] for asked_for in functions.values()),
        ],
        ask,
    )
    try:
        stand_ins = {name: absent.served(f"task.{name}") for name in instead}
        names.update({other: stand_ins[name] for other, name in others.items()} | stand_ins)
        answers = probe(calling, answer(), cases_of(question))
    except NameError as error:
        answers = [Answer(failure=Failure("missing", str(error.name)))]
    except KeyboardInterrupt:
        answers = [Answer(failure=Failure("interrupted"))]
    finally:
        for name in instead:
            names.pop(name, None)
        names.update(before)
        absent.serve([], ask)
    publish_display_data({MIME: json.dumps({"nonce": nonce, "answers": encode_answers(answers)})})


class _Unflushed:
    """Where something is printed to, which is not sent before a question: that would take as long again.

    Another thread may print meanwhile.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def flush(self) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def cases_of(question: dict[str, Any]) -> list[Case]:
    """The cases of a request; the functions among their inputs are those that are served."""
    cases = []
    for inputs, contiguous, functions in question["cases"]:
        for name, asked_for in functions.items():
            inputs[name] = Elsewhere(absent.served(asked_for), asked_for)
        cases.append(Case(inputs, contiguous=contiguous))
    return cases
