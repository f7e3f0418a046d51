"""The half of a check that calls an answer, and brings back nothing but plain data.

In grading it is the only half in the process that runs a submission. It knows how answers are
called, and of no answer whether it is right: it imports nothing else of the course.
"""
