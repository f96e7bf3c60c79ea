"""Measures how fast this is, as ratios and times that anybody can measure again: `./hpc bench`.

`cases` has the questions and asks them, `report` shows the answers. Clusters of a bench
live under a root of their own and are gone at its end, however it ends.
"""
