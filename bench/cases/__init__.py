"""The cases, in the order of the report."""

from bench.case import Case
from bench.cases import change, cloud, jobs, many, mlperf, nodes, noop, preview, rehearse, render, reports, up

CASES: tuple[Case, ...] = (
    up.CASE,
    noop.CASE,
    nodes.CASE,
    change.CASE,
    rehearse.CASE,
    preview.CASE,
    cloud.CASE,
    render.CASE,
    many.CASE,
    jobs.CASE,
    reports.CASE,
    mlperf.CASE,
)
