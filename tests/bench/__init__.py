"""Measures how fast this is, as ratios and times that anybody can measure again: `.venv/bin/python -m tests.bench`.

`cases` measures, `report` prints the results. Clusters of a bench are below a root of their own, which is always
removed at the end.
"""
