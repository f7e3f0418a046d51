"""Reads what a student wrote, without running it, for what a task forbids.

While an answer runs in an honest student's process, the refusals of ``attncourse.probe`` stop such calls.
Code that gets around them is found by reading, or by a person who is told where to read.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from IPython.core.inputtransformer2 import TransformerManager

from attncourse.checks import Task
from attncourse.probe.refusing import FUSED

# PyTorch's layers that end in the fused functions.
LAYERS = ("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer", "flex_attention")
# By these the refusals are switched off or the process of the grading is looked into, or anything is done
# unseen. No answer needs them, and some honest cell may have them: a person decides.
SUSPICIOUS = {
    *("DisableTorchFunction", "DisableTorchFunctionSubclass", "TorchFunctionMode", "_pop_mode"),
    *("_pop_mode_temporarily", "_pop_torch_function_stack", "probe", "f_locals", "f_back", "raw_input"),
    *("exec", "eval", "compile", "__import__", "importlib", "ctypes", "marshal", "pickle"),
}


@dataclass
class Findings:
    """What reading has brought to light about the answer to one task.

    Parameters
    ----------
    calls : str
        What certainly does the work in the student's stead, and where; or empty.
    remarks : list of str
        What a person should look at.
    """

    calls: str = ""
    remarks: list[str] = field(default_factory=list)


def scan(task: Task, answer: str, sources: Sequence[str]) -> Findings:
    """Read the code that stands above a check.

    Parameters
    ----------
    task : Task
    answer : str
        The expression that is checked: the name of the student's function.
    sources : sequence of str
        The student's code cells above the check.
    """
    found = Findings()
    forbidden = {
        name.strip("_").lower() for name in (*FUSED, *task.refuses, *LAYERS) if name not in task.allows
    }
    trees = [tree for source in sources if (tree := _parse(source)) is not None]
    imported = {name: origin for tree in trees for node in ast.walk(tree) for name, origin in _imports(node)}
    defined = {node.name: node for tree in trees for node in tree.body if isinstance(node, DEFINITIONS)}
    if answer in defined:
        for call in _certain(defined[answer]):
            root, *path = _dotted(call.func).split(".")
            path = [*imported.get(root, "").split("."), *path]
            if path[0] == "torch" and path[-1].strip("_").lower() in forbidden:
                found.calls = f"{path[-1]} (line {call.lineno} of its cell)"
    # Of the whole notebook what is suspicious, of what the answer reaches what its task forbids.
    reached = [node for definition in _reached(answer, defined) for node in ast.walk(definition)]
    seen = [(node, SUSPICIOUS) for tree in trees for node in ast.walk(tree)]
    seen += [(node, forbidden) for node in reached]
    for node, unwanted in seen:
        for word in [
            part for name in _words(node) for part in (name, imported.get(name, name).split(".")[-1])
        ]:
            plain = word.strip("_").lower()
            if word in unwanted or plain in unwanted or "scaled_dot_product" in plain:
                remark = f"the code uses {word} (line {getattr(node, 'lineno', 1)} of its cell)"
                if remark not in found.remarks:
                    found.remarks.append(remark)
    return found


DEFINITIONS = (ast.FunctionDef, ast.ClassDef)
# Cell magics that run the rest of the cell as Python.
RUNNING = ("%%time", "%%timeit", "%%capture", "%%prun")


def _parse(source: str) -> ast.Module | None:
    first, _, rest = source.lstrip().partition("\n")
    if first.startswith(RUNNING):
        source = f"\n{rest}"
    try:
        return ast.parse(TransformerManager().transform_cell(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None  # such a cell does not run either


def _imports(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that an import binds, with what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield (alias.asname, alias.name) if alias.asname else (alias.name.partition(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _certain(node: ast.AST) -> Iterator[ast.Call]:
    """The calls that are made whenever an answer is called: none under a condition, none after a return."""
    for name in ("body", "items", "value", "iter", "func", "args", "left", "right", "elts", "keywords"):
        parts = getattr(node, name, None)
        for part in parts if isinstance(parts, list) else [parts]:
            if isinstance(part, ast.AST) and not isinstance(part, (ast.If, ast.While, ast.Lambda)):
                inner = isinstance(part, ast.FunctionDef) and not isinstance(node, ast.ClassDef)
                if not inner:
                    yield from _certain(part)
            if isinstance(part, ast.Return | ast.Raise):
                break
    if isinstance(node, ast.Call):
        yield node


def _reached(answer: str, defined: Mapping[str, ast.AST]) -> list[ast.AST]:
    """The answer's definition and those of what it calls by name."""
    names = [answer]
    for name in names:  # which grows
        if name in defined:
            nodes = ast.walk(defined[name])
            names += [n.id for n in nodes if isinstance(n, ast.Name) and n.id not in names]
    return [defined[name] for name in dict.fromkeys(names) if name in defined]


def _dotted(node: ast.AST) -> str:
    """An expression like torch.nn.functional.softmax, as text; else empty."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _words(node: ast.AST) -> list[str]:
    """The names that stand in a node itself."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        whole = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
        return [part for name in whole for part in name.split(".")]
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return []
