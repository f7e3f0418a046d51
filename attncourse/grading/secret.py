"""The secret of a course, from which the numbers are drawn on which answers are tried in grading.

Whoever knows it can prepare answers without writing them. It is made once and stays beside the gradebook.
"""

import os
import re
import secrets
from pathlib import Path

NAME = ".grading-secret"


def of_course(root: Path) -> str:
    """The secret of the course in this folder, made now if it has none.

    Raises
    ------
    ValueError
        If its file holds something else.
    """
    path = root / NAME
    if not path.exists():
        part = root / f"{NAME}.{os.getpid()}"
        part.touch(0o600)
        part.write_text(f"{secrets.token_hex()}\n")
        part.replace(path)
    # What is no text, or no file, is no secret either.
    found = path.read_bytes().decode(errors="replace").strip() if path.is_file() else ""
    if not re.fullmatch("[0-9a-f]{64}", found):
        raise ValueError(f"{path} holds no secret: expected 64 hexadecimal digits, or no such file")
    return found
