"""The kubeconfig of a cluster, whose credential is a command: it holds no token."""

import base64
import json
from collections.abc import Sequence

EXEC_API = "client.authentication.k8s.io/v1"
"""API version of the ExecCredential that `nebius mk8s v1 cluster get-token --format json` prints."""


def kubeconfig(
    server: str, certificate_authority: str, command: Sequence[str], context: str, namespace: str = "default"
) -> str:
    """YAML text with one cluster, one user and one context, which is the current one.

    `server` is a URL or a host, with or without its port: the API of Nebius gives both. `certificate_authority` is PEM
    text. `command` prints an ExecCredential, and has no terminal: kubectl's own streams may be a job's.
    """
    program, *arguments = command
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


def server_url(server: str) -> str:
    """The URL of an API server that is given as a URL or as a host."""
    return server.rstrip("/") if "://" in server else f"https://{server.rstrip('/')}"
