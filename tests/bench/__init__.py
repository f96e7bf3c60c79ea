"""Measures how fast this program is, as ratios and times that anybody can measure again.

As root: `.venv/bin/python -m tests.bench`. `cases` measures on clusters of `clusters`, `__main__` prints the results.
"""
