"""The experiments that close the notebooks: what trains in them is the student's own functions."""
