"""Logs of MLPerf benchmarks: their runs, the time of training steps, and how it compares with published times."""
