"""Whether an answer passes its check: where nobody reads why not, this is many times as quick."""

from attncourse.checks.compare import problem_with
from attncourse.probe.calling import probe, usual_settings


@usual_settings()
def passes(task, answer, *, refusing=True):
    """Whether the answer is right in all cases that a student's own check has."""
    for case in task.cases(0):
        (given,) = probe(task.calling, answer, [case], refusing=refusing)
        if problem_with(task, case, given, task.known(task.reference, case)) is not None:
            return False
    return True
