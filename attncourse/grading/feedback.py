"""Feedback pages: what each student gets, made from the graded notebook and the gradebook."""

import hashlib
import json
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from nbconvert.exporters import HTMLExporter

from attncourse.grading.grader import PageJob


class _Memory(BytecodeCache):
    """Keeps the code of translated templates as long as this process lives."""

    def __init__(self) -> None:
        self.code: dict[tuple[str, str], bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        code = self.code.get((bucket.key, bucket.checksum))
        if code is not None:
            bucket.bytecode_from_string(code)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self.code[bucket.key, bucket.checksum] = bucket.bytecode_to_string()


class FeedbackExporter(HTMLExporter):
    """What ``c.GenerateFeedback.exporter_class`` is set to."""

    _memory = _Memory()

    def _create_environment(self) -> Environment:
        environment: Any = super()._create_environment()
        environment.bytecode_cache = self._memory
        return environment


def fingerprint(job: PageJob) -> str:
    """What identifies a page of feedback: all that it is made from."""
    said = [job.student, job.name, sorted(job.grades.items()), sorted(job.comments.items()), job.penalty]
    whole = hashlib.sha256(job.notebook + json.dumps(said).encode())
    for path in sorted(Path(__file__).parent.glob("feedback*")):
        if path.is_file():
            whole.update(path.read_bytes())
    return whole.hexdigest()
