"""The kubeconfig of a cluster, whose credential is a command: it holds no token."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path

EXEC_API = "client.authentication.k8s.io/v1beta1"
"""API version of the ExecCredential. kubectl refuses a command whose answer has another than the kubeconfig says:
`nebius mk8s v1 cluster get-token --format json` answers with this one, and clients of Kubernetes 1.22 to 1.37 know it
(client-go, plugin/pkg/client/auth/exec)."""
OWN_COMMAND = (str(Path(__file__).resolve().parents[3] / "hpc"), "nebius-token")
"""This program as a credential command: it takes every credential that `up` takes, and needs no Nebius CLI."""


PROGRAM_VARIABLE = "HPC_PROGRAM"
PORTABLE_COMMAND = ("sh", "-c", f'exec "${{{PROGRAM_VARIABLE}:-./hpc}}" nebius-token')
"""The same for a kubeconfig in a state, which has nobody's path: `./hpc` sets the variable, and the Pulumi CLI starts
providers in the project's folder (sdk/go/common/resource/plugin/provider_plugin.go)."""


def kubeconfig(
    server: str, certificate_authority: str, command: Sequence[str], context: str, namespace: str = "default"
) -> str:
    """YAML text with one cluster, one user and one context, which is the current one.

    `server` is a URL or a host, with or without its port: the API of Nebius gives both. `certificate_authority` is PEM
    text. `command` prints an ExecCredential (none: this program does), and has no terminal: kubectl's own streams
    may be a job's.
    """
    program, *arguments = credential_command(command)
    user = {
        "exec": {
            "apiVersion": EXEC_API,
            "command": program,
            "args": arguments,
            "interactiveMode": "Never",
            "provideClusterInfo": False,
        }
    }
    cluster = {
        "server": server_url(server),
        "certificate-authority-data": base64.b64encode(certificate_authority.encode()).decode(),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": cluster}],
        "users": [{"name": context, "user": user}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": context, "namespace": namespace}}],
        "current-context": context,
        "preferences": {},
    }
    # JSON is YAML, and kubectl reads an unquoted `n` or `on` as a truth value.
    return json.dumps(document, indent=2) + "\n"


def credential_command(command: Sequence[str]) -> list[str]:
    """A credential command; this program's own where none is given, which is at another place for each of its users."""
    return [*(command or OWN_COMMAND)]


def server_url(server: str) -> str:
    """The URL of an API server that is given as a URL or as a host."""
    return server.rstrip("/") if "://" in server else f"https://{server.rstrip('/')}"
