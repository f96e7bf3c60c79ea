"""Asks a stack's cloud what the stack needs of it, and keeps the answers in the state dir."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

from cli import console
from cli.errors import CliError
from cli.operation import drain_recovery
from cli.stack import impact_of_edit, pulumi_program, state_dir
from cluster.catalog.prices import PriceRow
from cluster.cloud_checks import TAKEN, CloudCheckError, CloudOutcome, CloudReport, CloudRow, read_report
from cluster.config import ClusterConfig
from cluster.platforms import registry
from components.cloud_questions import start
from components.clouds import CHECKS, PRICES

_ON_MACHINES = {
    "accounting", "deletion_protection", "former_users", "groups", "partitions", "pricing", "slurm", "users",
}  # fmt: skip
"""Sections of a stack file whose edits create nothing."""
_AMOUNTS = {"capacity-block", "quota", "reservation"}
"""Checks of amounts: after an `up` that failed, part of what the stack asks for exists and counts as used."""


def ask(stack: str, config: ClusterConfig, before: ClusterConfig | None) -> CloudReport:
    """Ask the cloud, and keep the answers in the state dir. `before` is the configuration that the cluster runs with.

    Raises CloudCheckError: nothing could be asked.
    """
    return _keep(stack, config, CHECKS[config.platform](config, before, state_dir.backend(stack)))


def ask_with_prices(stack: str, config: ClusterConfig, show: Callable[[Sequence[CloudRow]], None]) -> CloudReport:
    """Ask the cloud, and read its price list beside that, which takes longer: `show` gets the rows as they come.

    Raises CloudCheckError: nothing could be asked.
    """
    before = impact_of_edit.running_config(stack, pulumi_program.installed_pulumi())
    pending = start(PRICES.get(config.platform, lambda _: ([], [])), config)
    report = ask(stack, config, before)
    show(report.rows)
    rows, found = pending.result()
    show(rows)
    if found:
        kept = {(row.platform, row.item, row.way, *row.regions): row for row in (*kept_prices(), *found)}
        state_dir.write_file(_prices(), json.dumps([asdict(row) for row in kept.values()], default=str, indent=1))
    return _keep(stack, config, [*report.rows, *rows]) if rows else report


def kept_prices() -> Sequence[PriceRow]:
    """Return the prices of clouds' lists that earlier runs have read, of any stack of this state dir."""
    try:
        kept: list[dict[str, Any]] = json.loads(_prices().read_text(encoding="utf-8"))
        return [PriceRow(**row | {"dated": date.fromisoformat(row["dated"])}) for row in kept]
    except (OSError, KeyError, TypeError, ValueError):
        return ()


def _keep(stack: str, config: ClusterConfig, rows: Sequence[CloudRow]) -> CloudReport:
    report = CloudReport(date=_now(), request=_request(config), rows=rows)
    state_dir.write_file(_file(stack), report.text())
    return report


def last(stack: str) -> CloudReport | None:
    """Return the answers of the last run; None if there was none."""
    try:
        return read_report(_file(stack).read_text(encoding="utf-8"))
    except OSError:
        return None


def seen(stack: str, config: ClusterConfig) -> list[str]:
    """Return the end of a preview: a line for the answers of the last run, if there was one, and each that is wrong."""
    report = last(stack)
    if report is None:
        return []
    edited = "" if report.request == _request(config) else ", of the stack file before an edit"
    head = f"Seen in your project on {report.date[:10]}{edited}: {report.summary} (./hpc check cloud {stack})"
    return [head, *(f"  wrong: {row.asked}: {row.seen}" for row in report.of(CloudOutcome.WRONG))]


def before_up(stack: str, config: ClusterConfig, before: ClusterConfig | None, *, quiet: bool) -> None:
    """Ask before the first step of an `up`, if it asks the cloud for something new.

    Nothing is asked without credentials, which the provider reports itself. After an `up` that failed, amounts do not
    stop the next one. Raises CliError: something is wrong.
    """
    login = registry.get(config.platform).login
    # A setting of the stack file logs only the provider in.
    if config.platform not in CHECKS or login is None or not login.found({}) or _is_known(stack, config, before):
        return
    try:
        report = ask(stack, config, before)
    except CloudCheckError as error:
        console.note(f"The cloud was not asked before the first step: {error}")
        return
    # Of an `up` that failed on another machine there is no record here, and names of the stack are taken.
    is_partial = any(row.id == "names" and row.seen.startswith(TAKEN) for row in report.of(CloudOutcome.NOT_ASKED))
    counts_twice = _AMOUNTS if is_partial or drain_recovery.is_unfinished(stack) else ()
    if wrong := [row for row in report.of(CloudOutcome.WRONG) if row.id not in counts_twice]:
        rows = "".join(f"\n  {row.asked}: {row.seen}\n    to do: {row.todo}" for row in wrong)
        error = CliError(
            f"stack {stack} was not changed, since its cloud does not have what `up` would create.{rows}\n"
            f"All answers: ./hpc check cloud {stack}. To run `up` all the same: --no-check"
        )
        error.document = report.document()
        raise error
    if not quiet:
        console.note(f"The cloud was asked before the first step: {report.summary}.")


def _is_known(stack: str, config: ClusterConfig, before: ClusterConfig | None) -> bool:
    """Return whether there is nothing to ask: the cluster has all of it, or all was well when the same was asked.

    That was today, or before an `up` that failed: part of what it asked for exists now, and would count twice.
    """
    request, known = _request(config), last(stack)
    if before and _request(before) == request:
        return True
    recent = known is not None and (known.date[:10] == _now()[:10] or drain_recovery.is_unfinished(stack))
    return known is not None and known.ok and known.request == request and recent


def _request(config: ClusterConfig) -> str:
    """Return a hash of the configuration but for the sections that add nothing to the cloud."""
    return hashlib.sha256(config.model_dump_json(exclude=_ON_MACHINES).encode()).hexdigest()


def _now() -> str:
    """Return the day and time, UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _file(stack: str) -> Path:
    return state_dir.directory() / "cloud-checks" / f"{stack}.json"


def _prices() -> Path:
    return state_dir.directory() / "list-prices.json"
