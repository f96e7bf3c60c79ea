"""The cases, in the order of the report."""

from bench.case import Case
from bench.cases import change, jobs, nodes, noop, preview, render, up

CASES: tuple[Case, ...] = (up.CASE, noop.CASE, nodes.CASE, change.CASE, preview.CASE, render.CASE, jobs.CASE)
