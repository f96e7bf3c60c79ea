"""Cases, questions about speed, and asking them one after the other."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bench.environment import CommandError, Environment, environment
from bench.report import Claim, Report, Result, Series, description
from components.local.host.paths import HostError

Answer = tuple[list[Series], list[Claim]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """One question."""

    name: str
    title: str
    run: Callable[[Environment], Answer]
    """Measures; what it makes it removes, or leaves to the environment's end."""


def run(cases: Sequence[Case], *, quick: bool, say: Callable[[str], None]) -> Report:
    """Run the cases; one that fails is reported as such, and the others go on.

    All they make is under a root of this process's own, which is swept at the end, however that comes.
    """
    results: list[Result] = []
    with environment(quick=quick, say=say) as here:
        for case in cases:
            say(f"{case.name}: {case.title} ...")
            began = time.monotonic()
            problem, series, claims = "", [], []
            try:
                series, claims = case.run(here)
            except Exception as error:  # noqa: BLE001 - whatever went wrong, the other cases are still asked
                problem = str(error) or type(error).__name__
                with suppress(CommandError, HostError, OSError):
                    here.sweep_all()
            seconds = time.monotonic() - began
            results.append(
                Result(
                    case=case.name,
                    title=case.title,
                    series=tuple(series),
                    claims=tuple(claims),
                    seconds=seconds,
                    problem=problem,
                )
            )
            say(f"{case.name}: {problem or 'done'}, {seconds:.0f} s")
    return Report(machine=description(), date=time.strftime("%Y-%m-%d"), results=tuple(results))
