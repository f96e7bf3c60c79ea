"""`./hpc nebius-token`."""

import json
import os
from datetime import timezone

from cli.errors import CliError
from cluster.platforms.nebius.kubectl import EXEC_API
from components.nebius.api import client
from components.nebius.api.client import NebiusError


def nebius_token() -> None:
    """Print a credential for kubectl and Helm (ExecCredential), from the one that the environment has for Nebius."""
    try:
        token, expires = client.token()
    except NebiusError as error:
        # kubectl prints only the last line of an error.
        raise CliError(" ".join(str(error).split())) from None
    until = expires.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ") if expires else None
    status = {"token": token, **({"expirationTimestamp": until} if until else {})}
    print(json.dumps({"apiVersion": _api_version(), "kind": "ExecCredential", "status": status}))


def _api_version() -> str:
    """Return the API version of the kubeconfig: kubectl refuses a credential with another one."""
    try:
        return str(json.loads(os.environ["KUBERNETES_EXEC_INFO"])["apiVersion"])
    except (KeyError, ValueError, TypeError):
        return EXEC_API
