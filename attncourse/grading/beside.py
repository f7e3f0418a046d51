"""What was handed in beside a notebook: it can hold code that nobody has read.

By how many ways Python comes from a file to code nobody can list, so it is the files that are looked at.
"""

import ast
import importlib.machinery
import re
import zipfile
from pathlib import Path

# How files of pictures begin, and those of one of NumPy's arrays.
DATA = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"%PDF-", b"\x93NUMPY")
# What lies in a file of several arrays of NumPy's, and in one of PyTorch's tensors.
_MEMBERS = re.compile(
    r"[\w. -]+\.npy|[^/]+/(data\.pkl|data/\d+|version|byteorder|\.(data|format_version|storage_\w+)\S*)"
)
_STATEMENT = re.compile(
    r"\b(def|class)\s+\w+\s*[(:]|\blambda\b[^\n:]*:|^\s*(from\s+[\w.]+\s+)?import\s+\w", re.MULTILINE
)
_IN_DATA = re.compile(rb"\b(def|class|lambda|import)\s+\w+\s*[(:.,\n]")
_PACKED = re.compile(r"[\w+/=-]{200,}")  # in letters and digits
MOST_NAMED = 20  # in a remark
MOST_LINES = 2000  # that may be expressions
LONGEST = 100_000  # characters that are read as Python in one


def modules(folder: Path) -> set[str]:
    """The names by which Python could import what lies in a folder, however deep.

    A notebook may say where Python is to look.
    """
    paths = [path for path in folder.rglob("*") if path.is_dir() or path.is_file()]
    return {
        path.name.partition(".")[0]
        for path in paths
        if path.is_dir() or path.name.endswith(tuple(importlib.machinery.all_suffixes()))
    }


def unread(folder: Path) -> list[str]:
    """The places of files that may hold code, notebooks left out: they stay outside of a jail."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.suffix != ".ipynb"]
    return sorted(str(path.relative_to(folder)) for path in files if _may_hold_code(path))


def _may_hold_code(path: Path) -> bool:
    content = path.read_bytes()
    if content.startswith(DATA):
        return bool(_IN_DATA.search(content))
    if zipfile.is_zipfile(path):
        try:
            with zipfile.ZipFile(path) as archive:
                return not all(map(_MEMBERS.fullmatch, archive.namelist()))
        except (zipfile.BadZipFile, OSError, ValueError):
            return True
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return True
    return "\0" in text or bool(_PACKED.search(text) or _STATEMENT.search(text)) or _computes(text)


def _computes(text: str) -> bool:
    """Whether a text, or a line of it, is an expression of Python's that computes something."""
    lines = [line.strip() for line in text.splitlines() if "(" in line or "@" in line or " for " in line]
    if len(lines) > MOST_LINES:
        return True
    for source in (text[:LONGEST], *lines):
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if any(map(_is_of_code, ast.walk(tree))):
            return True
    return False


def _is_of_code(node: ast.AST) -> bool:
    # A call alone may be a unit, as in the head of a table: loss (nats).
    match node:
        case ast.Call(func=ast.Attribute()) | ast.BinOp(op=ast.MatMult()):
            return True
        case ast.BinOp(left=left, right=right):
            return isinstance(left, ast.Call) or isinstance(right, ast.Call)
    return isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.SetComp)
