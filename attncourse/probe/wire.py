"""Plain data as text and back: all that a student's process and the grader's say to each other.

Nothing that is read here can run, and what is read is no larger than the text that it came in.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from attncourse.probe.answer import DTYPES, FAILURES, Answer, Failure, Foreign, Plain, plain
from attncourse.probe.calling import Calling, Case, Way
from attncourse.probe.program import Named, Own

MIME = "application/vnd.attncourse.answers"
ASKED = "attncourse"  # where the request stands in the message that has it answered
MAX_ANSWER = 2**18  # characters for one answer; the longest right one has about 10,000
MAX_REPLY = 2**24  # characters for all answers to one check
MAX_COMMAS = 10_000  # in one answer: parts of lists that each take time, here and wherever they are compared
MAX_WORDS = 4000  # characters of a message
MAX_SENTENCE = 400  # characters of what does not fit
MAX_DIMS = 16

# Failures that tell a name, and what one looks like: a whole sentence would pass for the grader's.
_OF_NAMES = ("unwritten part", "refused", "raised", "missing")
_NAME = re.compile(r"((PyTorch|attncourse)'s own )?[\w.<>]{1,60}|")

_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in DTYPES}


class Malformed(ValueError):
    """The text is not what :func:`encode` makes."""


def encode(value: Plain) -> str:
    """Plain data, or a :class:`~attncourse.probe.answer.Foreign`, as text.

    Raises
    ------
    ValueError
        If `value` is something else.
    """
    return json.dumps(_packed(value))


def decode(text: str) -> Plain:
    """What :func:`encode` made into `text`.

    Raises
    ------
    Malformed
        Whatever else the text is: too deep, a tensor whose size does not fit its numbers, ...
    """
    try:
        return _unpacked(json.loads(text))
    except (ValueError, TypeError, LookupError, RuntimeError, OverflowError) as error:
        raise Malformed(f"text is not plain data: {type(error).__name__}") from None


def encode_answers(answers: Sequence[Answer]) -> list[str]:
    """Every answer as a text of at most ``MAX_ANSWER`` characters."""
    return [_encode_answer(answer) for answer in answers]


def decode_answers(texts: Any, most: int) -> list[Answer]:
    """The answers that :func:`encode_answers` made into `texts`, of which there are at most so many.

    Raises
    ------
    Malformed
    """
    if not isinstance(texts, list) or len(texts) > most:
        raise Malformed("texts are not the answers to these cases")
    return [_decode_answer(text) for text in texts]


def request(calling: Calling, cases: Sequence[Case], instead: Sequence[str] = ()) -> str:
    """What to ask of an answer: how it is called, and on which inputs. Nothing says what is right.

    Functions among the inputs stay here, and are asked for by the names of `programs`: what one is made
    of would tell what it is, and how it is called may count.

    Parameters
    ----------
    calling : Calling
    cases : sequence of Case
    instead : sequence of str
        Functions of the student's in whose place the grader's are to be called.
    """
    kind = type(calling.way)
    way = "" if kind is Way else f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    question = {
        "way": way,
        "refuses": calling.refuses,
        "allows": calling.allows,
        "instead": tuple(instead),
        "cases": [
            (
                {name: None if name in asked_for else value for name, value in case.inputs.items()},
                case.contiguous,
                asked_for,
            )
            for case, asked_for in zip(cases, _functions(calling, cases), strict=True)
        ],
    }
    return encode(question)


def programs(of_cases: Sequence[Mapping[str, Callable]]) -> dict[str, Callable]:
    """The functions among the inputs of each case, by what they are asked for."""
    return {
        _asked_for(place, name): function
        for place, functions in enumerate(of_cases)
        for name, function in functions.items()
    }


def _asked_for(place: int, name: str) -> str:
    return f"case {place}.{name}"


def is_handed_over(asked_for: str) -> bool:
    """Whether what is asked for by this is one of `programs`."""
    return asked_for.startswith("case ")


def _functions(calling: Calling, cases: Sequence[Case]) -> list[dict[str, str]]:
    """By their names, what the functions among the inputs of each case are asked for."""
    return [
        {name: _asked_for(place, name) for name in calling.way.functions(case.inputs)}
        for place, case in enumerate(cases)
    ]


def reply(text: Any, nonce: str, most: int) -> list[Answer]:
    """In the grader's process: the answers in what :func:`~attncourse.probe.respond.respond` published.

    Parameters
    ----------
    text : str
    nonce : str
    most : int
        How many answers there may be.

    Raises
    ------
    Malformed
        If the text is anything else. Whatever it is, no other exception is raised.
    """
    if not isinstance(text, str) or len(text) > MAX_REPLY:
        raise Malformed("text is longer than any answers")
    try:
        parts = json.loads(text)
    except (ValueError, RecursionError):
        raise Malformed("text is not JSON") from None
    if not isinstance(parts, dict) or parts.get("nonce") != nonce:
        raise Malformed("text is not the reply to this request")
    answers = decode_answers(parts.get("answers"), most)
    if not answers:
        raise Malformed("text holds no answer")
    return answers


def _packed(value: Plain) -> Any:
    if isinstance(value, Tensor):
        return {
            "tensor": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "bytes": base64.b64encode(_bytes(value)).decode("ascii"),
        }
    if isinstance(value, Foreign):
        return {"foreign": value.description[:MAX_WORDS]}
    if isinstance(value, Named):
        return {"named": value.asked_for}
    if isinstance(value, Own):
        return {"own": value.number}
    if isinstance(value, tuple | list):
        return {type(value).__name__: [_packed(part) for part in value]}
    if isinstance(value, dict):
        return {"dict": [[str(name), _packed(part)] for name, part in value.items()]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ValueError(f"value is {type(value).__name__}: expected plain data")


def _bytes(tensor: Tensor) -> bytes:
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _DTYPES or tensor.dim() > MAX_DIMS or tensor.numel() > MAX_ANSWER:
        raise ValueError(f"value is a tensor of {name} and shape {tuple(tensor.shape)}: too much to tell")
    if not tensor.numel():
        return b""
    # Contiguous in earnest: torch lets a single number keep any stride.
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.flatten())
    return flat.view(torch.uint8).numpy().tobytes()


def _unpacked(value: Any) -> Plain:
    if not isinstance(value, dict):
        return plain(_words(value) if isinstance(value, str) else value)
    if "tensor" in value:
        return _tensor(value["tensor"], value["shape"], value["bytes"])
    ((kind, content),) = value.items()
    if kind == "foreign":
        return Foreign(_words(content))
    if kind == "named":
        return Named(_words(content))
    if kind == "own":
        return Own(int(content))
    if not isinstance(content, list):
        raise TypeError
    if kind == "dict":
        return {_words(name): _unpacked(part) for name, part in content}
    return {"tuple": tuple, "list": list}[kind](_unpacked(part) for part in content)


def _tensor(name: Any, shape: Any, text: Any) -> Tensor:
    dtype = _DTYPES[name]
    if not isinstance(shape, list) or len(shape) > MAX_DIMS:
        raise TypeError
    if not all(type(size) is int and 0 <= size <= MAX_ANSWER for size in shape):
        raise ValueError
    # An empty tensor, too, has to be of a size that somebody could have meant.
    if math.prod(max(size, 1) for size in shape) > MAX_ANSWER:
        raise ValueError
    raw = base64.b64decode(text, validate=True)
    if len(raw) != math.prod(shape) * dtype.itemsize:
        raise ValueError
    if not raw:
        return torch.empty(shape, dtype=dtype)
    flat = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
    # Any other byte than 0 and 1 would be a bool that is neither.
    return (flat != 0 if dtype == torch.bool else flat.view(dtype)).view(shape)


def _words(text: Any) -> str:
    if not isinstance(text, str):
        raise TypeError
    return "".join(letter for letter in text[:MAX_WORDS] if letter.isprintable() or letter == "\n")


def holds_function(value: Plain) -> bool:
    """Whether functions are named in it: they can be arguments of others, and never are what is given."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, tuple | list):
        return isinstance(value, Named | Own)
    return any(map(holds_function, value))


def _encode_answer(answer: Answer) -> str:
    failure = answer.failure
    told = None if failure is None else [failure.kind, failure.name[:MAX_WORDS], failure.text[:MAX_WORDS]]
    try:
        text = encode([answer.value, told, list(answer.modified)])
    except (ValueError, TypeError, RuntimeError):
        text = ""
    if not 0 < len(text) <= MAX_ANSWER or text.count(",") > MAX_COMMAS:
        return _encode_answer(replace(answer, value=Foreign("something too large, or too strange, to send")))
    return text


def _decode_answer(text: Any) -> Answer:
    if not isinstance(text, str) or len(text) > MAX_ANSWER or text.count(",") > MAX_COMMAS:
        raise Malformed("text is longer, or has more parts, than any answer")
    try:
        value, told, modified = decode(text)
        failure = None
        if told is not None:
            kind, name, words = map(_words, told)
            if kind not in FAILURES:
                raise TypeError
            if kind in _OF_NAMES and not _NAME.fullmatch(name):
                name = "something"
            if kind == "misfit":
                name = name.split("\n")[0][:MAX_SENTENCE]
            failure = Failure(kind, name, words)
        if not isinstance(modified, list) or holds_function(value):
            raise TypeError
        return Answer(value, failure, tuple(map(_words, modified)))
    except (ValueError, TypeError) as error:
        raise Malformed(f"text is not an answer: {error}") from None
