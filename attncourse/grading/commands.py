"""IPython's commands in a cell: what of them is Python, and which of them no answer needs."""

import ast
import functools
import re
from collections.abc import Iterator

from IPython.core import magics
from IPython.core.alias import default_aliases
from IPython.core.inputtransformer2 import HelpEnd, TransformerManager

# Of these what follows is Python, which is read as such; so is what a setting is to be.
TIMING = {"time", "timeit", "prun"}
LINE_MAGICS = {
    *("autoreload", "autosave", "conda", "config", "ls", "lsmagic", "magic", "matplotlib", "pdb", "pdoc"),
    *("pinfo", "pinfo2", "pip", "precision", "psource", "pwd", "quickref", "reset", "who", "who_ls", "whos"),
    *("xmode", *TIMING, "capture", "run"),  # a remark of its own is about the last
}
KNOWN_EXTENSIONS = {"autoreload", "tensorboard"}
CELL_MAGICS = {"markdown", "html", "HTML", "latex", "svg", "SVG", "javascript", "js", *TIMING, "capture"}
# What these may set: other settings of theirs run code.
SETTINGS = {
    "config": re.compile(r"(InlineBackend|(IP)?Completer)\b|$"),
    "matplotlib": re.compile(r"[\w -]*$"),
}
# What IPython knows beside its own magics: names for commands of the system, and those of extensions.
OTHERS = {name for name, _ in default_aliases()} | {"aimport", "tensorboard"}
# IPython puts values into a command for these.
EXPANDED = set("{$")
# Of what installs, what does that by a name or tells what is there: other words have a program run.
_INSTALLING = r"(pip3?|conda) +(install|uninstall|list|show|freeze|check|--version|-V)"
_WORD = r"""( +(["']?\w[\w.=~!,\[\]-]*["']?|-q|-U|-y|--quiet|--upgrade|--user|--yes|--no-cache-dir))"""
SHELL = re.compile(
    r"\s*((ls|pwd|echo|date|nvidia-smi|whoami|uname|df|free)\b[^;&|`${<>\n]*"
    rf"|(pip3?|conda) *|{_INSTALLING}{_WORD}*+ *)"
)
SHELLS = {"ls", "pip", "conda"}
COMMANDS = {"run_line_magic": "%", "run_cell_magic": "%%", "system": "!", "getoutput": "!"}
# Of these cell magics the rest of the cell is Python, too.
_WRAPPING = re.compile(r"\s*%%(time|timeit|prun|capture)(?: ([^\n]*))?(?:\n|$)")
_OPTIONS = re.compile(r"\s*(-([nrp] *\d+|[tcqo]+|-no-raise-error)(\s+|$))*")


# IPython reads a whole cell anew for each command of its own in it: with hundreds that takes minutes.
MOST_MAGICS = 50
MOST_MAGICS_TIMES_CHARACTERS = 250_000
# What a `?` asks about is looked for from each sign of what stands before it to the end.
MOST_ASKED_ABOUT = 300


class _TooMuch(Exception):
    pass


class _Question(HelpEnd):
    def transform(self, lines: list[str]) -> list[str]:
        if sum(map(len, lines[self.start_line : self.q_line + 1])) > MOST_ASKED_ABOUT:
            raise _TooMuch
        return super().transform(lines)


class _Reader(TransformerManager):
    """IPython's reading of a cell, with an end: its own goes round 500 times over what does not change."""

    def __init__(self) -> None:
        super().__init__()
        self.token_transformers = [_Question if one is HelpEnd else one for one in self.token_transformers]

    def do_token_transforms(self, lines: list[str]) -> list[str]:
        characters = sum(map(len, lines))
        number = 0
        while True:
            changed, lines = self.do_one_token_transform(lines)
            if not changed:
                return lines
            if number >= MOST_MAGICS or number * characters > MOST_MAGICS_TIMES_CHARACTERS:
                raise _TooMuch
            number += 1


def plain_python(source: str) -> str:
    """A cell without IPython's own ways of writing; as it is where IPython stumbles over it."""
    plain = _plain(source)
    return source if plain is None else plain


def takes_too_long(source: str) -> bool:
    """Whether a cell is not read to its end, since IPython would take minutes for that."""
    return _plain(with_sign(source)) is None


@functools.lru_cache(maxsize=500)
def _plain(source: str) -> str | None:
    if wrapping := _WRAPPING.match(source):
        name, line = wrapping.groups("")
        # What stands beside the command runs, too, or gets a value.
        plain = re.fullmatch(r"[\w -]*", line) if name == "capture" else _OPTIONS.fullmatch(line)
        first = "\n" if plain else _plain(f"%{name} {line}")
        rest = _plain(with_sign(source[wrapping.end() :]))
        return None if first is None or rest is None else first + rest
    try:
        return _Reader().transform_cell(source)
    except _TooMuch:
        return None
    except Exception:
        return source


def with_sign(source: str) -> str:
    """The same, but for a line by itself that IPython takes for a command, even without its sign."""
    line = source.strip()
    return f"%{line}" if len(line.splitlines()) == 1 and is_command(line) and not _is_python(line) else source


def is_command(line: str) -> bool:
    """Whether IPython takes a line that is no Python for one of its commands, though it has no sign."""
    first, *_ = [*line.split(maxsplit=1), ""]
    if first in OTHERS:
        return True
    groups = [getattr(magics, name) for name in dir(magics) if name.endswith("Magics")]
    return any(first in getattr(group, "magics", {}).get("line", ()) for group in groups)


def command(call: ast.Call) -> ast.AST | None:
    """The name of the shell in a call that IPython makes of ``%name``, ``%%name`` or ``!name``."""
    shell = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr in COMMANDS else None
    function = shell.func if isinstance(shell, ast.Call) else None
    return function if isinstance(function, ast.Name) and function.id == "get_ipython" else None


def other_command(call: ast.Call) -> Iterator[str]:
    """What no answer needs in a call that IPython makes of a command."""
    sign = COMMANDS[call.func.attr]  # type: ignore[attr-defined]
    first, rest = _words(call)
    text = first if sign == "!" else f"{first} {rest}" if first in SHELLS else "ls"
    if not SHELL.fullmatch(text):
        yield "a command of the system"
    elif first == "load_ext" and rest in KNOWN_EXTENSIONS:
        pass
    elif first in SETTINGS and not SETTINGS[first].match(rest):
        yield f"%{first} of something else"
    elif sign != "!" and first not in (LINE_MAGICS if sign == "%" else CELL_MAGICS):
        yield f"{sign}{first}"
    elif first not in TIMING and not EXPANDED.isdisjoint(rest):
        yield f"{sign}{first} with a value"
    elif not _is_python(code_of(call)):
        yield f"{sign}{first} of what was not read"


def code_of(call: ast.Call) -> str:
    """The code that a line such as ``%time`` runs, or nothing."""
    name, line = _words(call)
    if getattr(call.func, "attr", "") != "run_line_magic" or not line.strip():
        return ""
    if name == "config":
        return f"cfg.{line}"
    return line[_OPTIONS.match(line).end() :] if name in TIMING else ""  # type: ignore[union-attr]


def _words(call: ast.Call) -> tuple[str, str]:
    """The name of a command and what stands behind it; what is computed stands there as its sign."""
    values = (getattr(part, "value", None) for part in call.args)
    first, rest, *_ = [*(value if isinstance(value, str) else "{" for value in values), "", ""]
    return first, rest


def _is_python(code: str) -> bool:
    try:
        ast.parse(plain_python(code))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def forget() -> None:
    """Forget what was read: the next notebook has other cells."""
    _plain.cache_clear()
