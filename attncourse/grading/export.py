"""``python -m attncourse.grading export``: everyone's marks as tables, or what a learning platform takes."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from attncourse.grading import rules
from attncourse.grading.course import Course
from attncourse.grading.harmless import one_line
from attncourse.grading.upload import PLATFORMS, fill, pack

DESCRIPTION = """\
Write everyone's marks: grades.csv, grades_by_task.csv and total.csv, with one row
a student. Or fill in the marks of a unit where a learning platform expects them
(--to and --template): in its own table as it exported it, whose ids and columns
stay as they are. Or pack the feedback as it expects it (--feedback)."""

TEMPLATE = """\
the platform's own table: Moodle's grading worksheet, or the export of Canvas's or
Brightspace's gradebook"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m attncourse.grading export",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--to", choices=PLATFORMS, help="the learning platform")
    parser.add_argument("--template", type=Path, metavar="CSV", help=TEMPLATE)
    parser.add_argument("--unit", metavar="U", help="the unit; total for what it comes to, in percent")
    parser.add_argument(
        "--column", metavar="NAME", help="the heading of the column to fill, if it is not called as the unit"
    )
    parser.add_argument("--feedback", action="store_true", help="pack the pages of feedback, not the marks")
    parser.add_argument("--out", type=Path, metavar="FILE", help="what to write")
    options = parser.parse_args(arguments)
    course = Course.here(parser)
    if not options.to:
        print(f"{', '.join(course.export())} are written.")
        return 0
    if not options.unit or not (options.template or (options.feedback and options.to != "moodle")):
        parser.error("--to needs --unit and --template")
    if options.unit != "total" or options.feedback:
        course.chosen([options.unit], parser)
    try:
        lines = (pack if options.feedback else fill)(course, options)
    except rules.Unusable as reason:
        print(one_line(f"Nothing is written: {reason}."), file=sys.stderr)
        return 1
    for line in lines:
        print(one_line(line))
    return int(len(lines) > 1)
