"""How fast this is, as ratios and times that anybody can measure again: `./hpc bench`.

`cases` has one file for each question, `runner` asks them, `report` and `plot` show the answers. Clusters of a bench
live under a root of their own and are gone at its end, however it ends.
"""
