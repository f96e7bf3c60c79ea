"""`./hpc check cloud`: asks a stack's cloud, before it creates anything, for what the stack needs."""

import json as jsonlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typer import Exit

from cli import console, options
from cli.commands.installation import program_version
from cli.errors import CliError
from cli.operation.cloud_check import ask_with_prices
from cli.stack import project
from cli.stack.stack_config import parse
from cluster.cloud_checks import CloudOutcome, CloudRow
from components.clouds import CHECKS, NAMELESS

_STYLES = {CloudOutcome.OK: "green", CloudOutcome.WRONG: "bold red", CloudOutcome.NOT_ASKED: "yellow"}


def cloud(
    stack: options.Stack,
    *,
    config_file: options.ConfigFile = None,
    send: options.Send = None,
    json: options.Json = False,
) -> None:
    """Ask the cloud, before it costs anything, whether the stack can be created there.

    It uses your own login and requests that only read: project, your permissions, quotas, machine types, capacity,
    images, network, names, state. Of a cluster that is up, what the next `up` adds is compared with quotas and
    reservations. On gcp it also reads Google's price list, for up to 45 seconds: later previews and `./hpc cost` use
    what is certain of it. The answers are kept in the state dir with their date. Exit code 0 when nothing is wrong, 1
    when something is; a question that the cloud does not answer for you is not wrong. --send writes a file without the
    names of your projects, users and resources.

    JSON: {stack, date, ok, checks [{id, asked, seen, outcome, todo, assumptions}]}; outcome is ok, wrong or could not
    ask.
    """
    config = parse(project.require_file(stack, config_file))
    if config.platform not in CHECKS:
        places = " and ".join(CHECKS)
        raise CliError(f"stack {stack} is on platform {config.platform}: check cloud is for stacks on {places}.")
    if send and send.exists():
        raise CliError(f"{send}: is there already, and is not overwritten. Give another name, or move it away.")
    report = ask_with_prices(stack, config, (lambda _: None) if json else _print)
    if json:
        console.json({"stack": stack, **report.document()})
    else:
        console.line(f"\n{report.summary}", style="bold")
    if send:
        _write(
            send,
            {"hpc": program_version(), "platform": config.platform, **report.without_names(NAMELESS[config.platform])},
        )
    raise Exit(0 if report.ok else 1)


def _write(file: Path, document: Mapping[str, Any]) -> None:
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(jsonlib.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise CliError(f"{file}: can't be written: {error.strerror}.") from None
    console.note(f"Wrote what was seen, without your names: {file}. Read it before you send it.")


def _print(rows: Sequence[CloudRow]) -> None:
    width = max(len(outcome.value) for outcome in CloudOutcome)
    for row in rows:
        console.line(f"{row.outcome.value:<{width}}  {row.asked}: {row.seen}", style=_STYLES[row.outcome])
        if row.todo:
            console.line(f"{'':<{width}}  to do: {row.todo}")
