"""Grading: nbgrader, with a judge outside the student's process.

``configure`` switches everything on, in ``nbgrader_config.py``; nbgrader's own commands then use it.
"""

from pathlib import Path
from typing import Any

from attncourse.grading import rules

__all__ = ["configure"]


def configure(c: Any) -> None:
    """Have nbgrader repair what students hand in, run it, and judge it in its own process.

    Parameters
    ----------
    c : traitlets.config.Config
        What ``get_config()`` gives in ``nbgrader_config.py``.
    """
    ours = "attncourse.grading"
    nbgrader = "nbgrader.preprocessors"
    c.Autograde.sanitize_preprocessors = [
        f"{ours}.repair.Repair",
        f"{nbgrader}.ClearOutput",
        f"{nbgrader}.OverwriteKernelspec",
        f"{nbgrader}.OverwriteCells",
        f"{nbgrader}.CheckCellMetadata",
        f"{ours}.sanitise.Sanitise",
    ]
    c.Autograde.autograde_preprocessors = [
        f"{ours}.judging.Execute",
        f"{ours}.sanitise.Sanitise",
        f"{nbgrader}.LimitOutput",
        f"{nbgrader}.SaveAutoGrades",
        f"{nbgrader}.AssignLatePenalties",
        f"{ours}.sanitise.RenameFiles",
    ]
    # A notebook is validated when all of them have run, not after each.
    c.Exporter.optimistic_validation = True
    c.AssignLatePenalties.plugin_class = f"{ours}.rules.LatePolicy"
    # nbgrader's own would write 0 over the empty marks of whoever did not hand in.
    c.ExportApp.plugin_class = f"{ours}.marks.UnitMarks"
    # The pages: feedback, and the formgrader's.
    c.GenerateFeedback.preprocessors = [
        f"{ours}.sanitise.Sanitise",
        f"{nbgrader}.GetGrades",
        f"{ours}.feedback.Names",
    ]
    c.HTMLExporter.preprocessors = [f"{ours}.sanitise.Sanitise"]
    c.HTMLExporter.template_file = str(Path(__file__).with_name("page.html.jinja"))
    c.HTMLExporter.filters = {
        "markdown2html": f"{ours}.sanitise.markdown2html",
        "clean_html": f"{ours}.sanitise.clean_html",
        "strip_files_prefix": f"{ours}.sanitise.unchanged",
        "with_policy": f"{ours}.sanitise.with_policy",
    }
    c.GenerateFeedback.exporter_class = f"{ours}.feedback.FeedbackExporter"
    said = rules.read(Path())
    c.FeedbackExporter.title, c.FeedbackExporter.book = said.title, said.book
    c.FeedbackExporter.units = list(said.units)
