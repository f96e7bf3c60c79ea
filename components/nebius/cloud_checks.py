"""Asks Nebius, and registries, the questions of cluster/platforms/nebius/cloud_checks.py. All of them only read."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cluster.cloud_checks import CloudRow
from cluster.config import ClusterConfig
from cluster.platforms.nebius.cloud_checks import checks
from cluster.platforms.nebius.cloud_request import FreeCapacity, NebiusQuestion, NebiusStack
from cluster.platforms.nebius.kubectl import EXEC_API, INSTALL_KUBECTL, credential_command
from components.cloud_questions import SECONDS, NotAskedError, rows
from components.nebius.api import client, objects
from components.nebius.api.client import NebiusError
from components.nebius.chart_sources import check_artifact

CREDENTIAL_SECONDS = 120.0
"""Timeout of the credential command, which may open a browser."""


def check(config: ClusterConfig, before: ClusterConfig | None = None, state: str = "") -> list[CloudRow]:
    """Return the row of each check. `before` is the configuration that the running cluster has, and `state` the URL of
    the stack's state.

    Raises NebiusError where there is no credential, or Nebius does not accept it.
    """
    with client.limited(SECONDS):
        client.sdk()
    stack = NebiusStack(config=config, before=before, state=state)
    return rows(checks(stack), partial(ask, seconds=SECONDS), SECONDS, "Nebius")


def ask(question: NebiusQuestion, seconds: float, fatal: Collection[str] = ()) -> Any:  # noqa: ANN401 - of each its own
    """Return the answer. Raises NotAskedError, and NebiusError with a code of `fatal`."""
    try:
        with client.limited(seconds):
            return ANSWERS[question.what](*question.args)
    except NebiusError as error:
        if error.code in fatal:
            raise
        raise NotAskedError("; ".join(error.reasons) or str(error), error.todo or "run it again") from None


def _blocks(tenant: str) -> list[FreeCapacity]:
    """Return the advice on capacity, for quotas: without it, they count whole."""
    try:
        return objects.capacities(tenant)
    except NebiusError:
        return []


ANSWERS: Mapping[str, Callable[..., Any]] = {
    "versions": objects.kubernetes_versions,
    "images": objects.node_images,
    "quotas": objects.quotas,
    "blocks": _blocks,
    "capacities": objects.capacities,
    "platforms": objects.platforms,
    "project": objects.project,
    "roles": objects.roles,
    "exists": objects.exists,
    "listed": objects.listed,
    "block": objects.capacity_block,
    "programs": lambda *command: list(programs(command, SECONDS)),
    "artifact": lambda row: check_artifact(json.loads(row)),
}
"""Functions that ask, by the question's `what`."""


def programs(command: Sequence[str], seconds: float = CREDENTIAL_SECONDS) -> Iterator[str]:
    """Yield why kubectl or the credential command can't be used. Raises NotAskedError: there was too little time for
    the credential command."""
    if shutil.which("kubectl") is None:
        yield f"kubectl is not on PATH, which `up` talks to the cluster with: install it ({INSTALL_KUBECTL})"
    words = credential_command(command)
    if shutil.which(words[0]) is None:
        yield f"{words[0]} is not on PATH, which gives kubectl and Helm their credential (nebius.token_command)"
        return
    request = {"apiVersion": EXEC_API, "kind": "ExecCredential", "spec": {"interactive": False}}
    environ = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    shown = f"the credential command `{' '.join(words)}`"
    try:
        done = subprocess.run(
            words,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if seconds < CREDENTIAL_SECONDS and isinstance(error, subprocess.TimeoutExpired):
            raise NotAskedError(f"{shown} did not end within {seconds:g} s", "log in, then run again") from None
        yield f"{shown} did not end well: {error}"
        return
    try:
        answer = json.loads(done.stdout)
        is_credential = (answer["kind"], answer["apiVersion"]) == ("ExecCredential", EXEC_API) and answer["status"]
    except (ValueError, KeyError, TypeError):
        is_credential = False
    if done.returncode:
        yield f"{shown} failed with exit code {done.returncode}: {' '.join(done.stderr.split())[-500:]}"
    elif not is_credential:
        yield f"{shown} does not print an ExecCredential of {EXEC_API}, which kubectl and Helm expect of it"
