"""Environment variables of Nebius's CLI and SDKs, which Nebius's own recipe for Soperator sets in its .envrc."""

import os
import shutil
import subprocess

from cluster.config import ClusterConfig
from cluster.platforms.nebius.names import CREDENTIALS_VARIABLE, TOKEN_VARIABLE
from cluster.platforms.nebius.stack_file_fields import Nebius, settings_of
from components.nebius.api.client import NebiusError
from components.nebius.api.kinds import KINDS
from components.nebius.api.objects import list_all
from components.state_bucket import Environment

VARIABLES = (TOKEN_VARIABLE, "NEBIUS_TENANT_ID", "NEBIUS_PROJECT_ID", "NEBIUS_REGION", "NEBIUS_VPC_SUBNET_ID")
_TOKEN_SECONDS = 120.0
"""Timeout of the CLI, which may open a browser to log in."""


def project(config: ClusterConfig) -> str:
    """Return the id of the project, from the stack file."""
    return settings_of(config).project


def environment(config: ClusterConfig) -> Environment:
    """Return token, ids, region and subnet. A token or subnet that can't be read is left out, with a note."""
    settings, notes = settings_of(config), list[str]()
    token = _token(notes)
    if token:
        os.environ[TOKEN_VARIABLE] = token  # for the calls of this process, those for the state bucket too
    values = {
        TOKEN_VARIABLE: token,
        "NEBIUS_TENANT_ID": settings.tenant,
        "NEBIUS_PROJECT_ID": settings.project,
        "NEBIUS_REGION": settings.region,
        "NEBIUS_VPC_SUBNET_ID": _subnet(settings, notes),
    }
    secret = frozenset({TOKEN_VARIABLE} if token else ())
    return Environment(variables={name: value for name, value in values.items() if value}, secret=secret, notes=notes)


def _token(notes: list[str]) -> str:
    """Return the token of the Nebius CLI, which renews expired tokens; else the one that is set; else none."""
    given = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not given and (file := os.environ.get(CREDENTIALS_VARIABLE)):
        notes.append(f"{TOKEN_VARIABLE} is not set: {CREDENTIALS_VARIABLE}={file} is used, which does not expire")
        return ""
    token, reason = _cli_token()
    if token:
        notes.append(f"{TOKEN_VARIABLE}: from `nebius iam get-access-token`")
    elif given:
        notes.append(f"{TOKEN_VARIABLE}: the one that is set, which may expire ({reason})")
    else:
        notes.append(f"{TOKEN_VARIABLE} is not set: {reason}")
    return token or given


def _cli_token() -> tuple[str, str]:
    """Return the CLI's token, or an empty text and the reason."""
    if shutil.which("nebius") is None:
        return "", "there is no `nebius` on PATH"
    try:
        answer = subprocess.run(
            ["nebius", "iam", "get-access-token"],
            # Without the variable of a token, which the CLI would print.
            env={name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE},
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


def _subnet(settings: Nebius, notes: list[str]) -> str:
    """Return the id of the subnet in the stack file, else of the project's first; an empty text if there is none."""
    if settings.subnet == "create":
        notes.append("NEBIUS_VPC_SUBNET_ID is not set: the stack creates its own subnet")
        return ""
    if settings.subnet:
        return settings.subnet
    try:
        first = next(list_all(KINDS["Subnet"], settings.project), None)
    except NebiusError as error:
        reason = " ".join(str(error).partition("to do:")[0].split())
        notes.append(f"NEBIUS_VPC_SUBNET_ID is not set: {reason}")
        return ""
    if first is None:
        notes.append(
            f"NEBIUS_VPC_SUBNET_ID is not set: {settings.project} has no subnet. To do: set nebius.subnet: create"
        )
        return ""
    return first.metadata.id
