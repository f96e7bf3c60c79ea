"""The quickcheck: which jobs check a cluster, and what their outputs mean. Pure functions."""
