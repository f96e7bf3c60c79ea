"""Environment variables of Nebius's CLI and SDKs, those that Nebius's own recipe for Soperator sets in its .envrc."""

import os
import shutil
import subprocess
from collections.abc import Mapping

from cluster.config import ClusterConfig
from cluster.platforms.nebius.section import Nebius, settings_of
from components.nebius.api import client
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.objects import list_all
from components.state_bucket import Environment

VARIABLES = (client.TOKEN_VARIABLE, "NEBIUS_TENANT_ID", "NEBIUS_PROJECT_ID", "NEBIUS_REGION", "NEBIUS_VPC_SUBNET_ID")
_TOKEN_SECONDS = 120.0
"""Time for the CLI, which may open a browser to log in."""


def project(config: ClusterConfig) -> str:
    """Id of the project, from the stack file."""
    return settings_of(config).project


def environment(config: ClusterConfig) -> Environment:
    """Token, ids, region and subnet. A token or subnet that can't be read is left out; a note has the reason."""
    where, notes = settings_of(config), list[str]()
    token = _token(notes)
    if token:
        os.environ[client.TOKEN_VARIABLE] = token  # for the calls of this process, those for the state bucket too
    found = {
        client.TOKEN_VARIABLE: token,
        "NEBIUS_TENANT_ID": where.tenant,
        "NEBIUS_PROJECT_ID": where.project,
        "NEBIUS_REGION": where.region,
        "NEBIUS_VPC_SUBNET_ID": _subnet(where, notes),
    }
    secret = frozenset({client.TOKEN_VARIABLE} if token else ())
    return Environment(variables={name: value for name, value in found.items() if value}, secret=secret, notes=notes)


def _token(notes: list[str]) -> str:
    """The token of the Nebius CLI, which renews it when it expires; else the one that is set; else none."""
    given = os.environ.get(client.TOKEN_VARIABLE, "").strip()
    if not given and (file := os.environ.get(client.CREDENTIALS_VARIABLE)):
        notes.append(
            f"{client.TOKEN_VARIABLE} is not set: {client.CREDENTIALS_VARIABLE}={file} is used, which does not expire"
        )
        return ""
    found, reason = _of_cli({name: value for name, value in os.environ.items() if name != client.TOKEN_VARIABLE})
    if found:
        notes.append(f"{client.TOKEN_VARIABLE}: from `nebius iam get-access-token`")
    elif given:
        notes.append(f"{client.TOKEN_VARIABLE}: the one that is set, which may expire ({reason})")
    else:
        notes.append(f"{client.TOKEN_VARIABLE} is not set: {reason}")
    return found or given


def _of_cli(environ: Mapping[str, str]) -> tuple[str, str]:
    """The CLI's token, or an empty string and the reason.

    `environ` must not have a token: the CLI would print that one.
    """
    if shutil.which("nebius") is None:
        return "", "there is no `nebius` on PATH"
    try:
        answer = subprocess.run(
            ["nebius", "iam", "get-access-token"],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=_TOKEN_SECONDS,
            check=False,
        )
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return "", f"`nebius iam get-access-token` did not answer ({type(error).__name__})"
    token = answer.stdout.strip()
    if answer.returncode or not token or any(not character.isprintable() or character.isspace() for character in token):
        return "", f"`nebius iam get-access-token` failed (exit code {answer.returncode})"
    return token, ""


def _subnet(where: Nebius, notes: list[str]) -> str:
    """Id of the subnet in the stack file, else of the project's first; empty if there is none yet."""
    if where.subnet == "create":
        notes.append("NEBIUS_VPC_SUBNET_ID is not set: the stack creates its own subnet")
        return ""
    if where.subnet:
        return where.subnet
    try:
        first = next(iter(list_all(KINDS["Subnet"], where.project, where.endpoint)), None)
    except NebiusError as error:
        reason = " ".join(str(error).partition("to do:")[0].split())
        notes.append(f"NEBIUS_VPC_SUBNET_ID is not set: {reason}")
        return ""
    if first is None:
        notes.append(
            f"NEBIUS_VPC_SUBNET_ID is not set: {where.project} has no subnet. To do: set nebius.subnet: create"
        )
        return ""
    return first.metadata.id
