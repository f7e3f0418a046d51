"""Grading a class: what is added to nbgrader."""
