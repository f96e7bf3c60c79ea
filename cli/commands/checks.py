"""test."""

from typing import Annotated

from typer import Argument, Exit, Option

from cli import checks, console
from cli.errors import CliError
from cli.stack import project


def run_checks(
    arguments: Annotated[
        list[str] | None, Argument(metavar="[-- PYTEST ARGUMENTS...]", help="Passed on to pytest, after `--`.")
    ] = None,
    *,
    fast: Annotated[
        bool, Option("--fast", help="Half a minute: no clusters, no slow tests, types of changed files.")
    ] = False,
    only: Annotated[
        list[str] | None,
        Option(metavar="CHECK", help="Run only this: format, lint, shell, schema, types or tests. May be repeated."),
    ] = None,
    outside: Annotated[
        list[str] | None,
        Option(metavar="NAME=PATH", help="Run only this check, against the artifact at PATH. May be repeated."),
    ] = None,
) -> None:
    """Run every check of this project: format, lint, types, shell scripts, schema, tests.

    The end-to-end tests make real machines on this host, beside any that are up: they need root, and install the
    host's missing packages after saying so. Everything runs side by side; pytest's summary comes last.
    """
    if outside:
        if fast or only:
            raise CliError("--outside runs the checks named there alone: leave out --fast and --only.")
        if checks.run(project.ROOT, [], [checks.outside(outside, arguments or ())]):
            raise Exit(1)
        return
    chosen = only or list(checks.NAMES)
    if unknown := sorted(set(chosen) - set(checks.NAMES)):
        raise CliError(f"--only {unknown[0]}: there is no such check. There are: {', '.join(checks.NAMES)}.")
    with_tests = "tests" in chosen
    if with_tests and not fast:
        checks.prepare()
    tests = checks.tests(arguments or (), fast=fast) if with_tests else []
    console.note(f"Running side by side: {', '.join(name for name in checks.NAMES if name in chosen)} ...")
    failed = checks.run(project.ROOT, checks.checks(chosen, fast=fast), tests)
    if set(failed) - {tests[-1].name if tests else ""}:
        # The last tests' summary may be green and is the last thing on the screen.
        console.error(f"failed: {', '.join(failed)}; see above")
    if failed:
        raise Exit(1)
