"""kubectl: kubeconfigs, reasons of failures, events as text; and the address of the login pods."""

import base64
import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.platforms.nebius.names import LOGIN_NODE_PORT, NODESET_LABEL

EXEC_API = "client.authentication.k8s.io/v1beta1"
"""API version of the ExecCredential. kubectl refuses a credential of another version than the kubeconfig has. `nebius
mk8s v1 cluster get-token --format json` prints this one, and clients of Kubernetes 1.22 to 1.37 support it (client-go,
plugin/pkg/client/auth/exec)."""
OWN_COMMAND = (str(Path(__file__).resolve().parents[3] / "hpc"), "nebius-token")
"""This program as a credential command, with the credentials of `up` and without the Nebius CLI."""
PROGRAM_VARIABLE = "HPC_PROGRAM"
PORTABLE_COMMAND = ("sh", "-c", f'exec "${{{PROGRAM_VARIABLE}:-./hpc}}" nebius-token')
"""The credential command of a kubeconfig in a state, which must have no path of one machine: `./hpc` sets the variable,
and the Pulumi CLI starts providers in the project's folder (sdk/go/common/resource/plugin/provider_plugin.go)."""


def kubeconfig(
    server: str, certificate_authority: str, command: Sequence[str], context: str, namespace: str = "default"
) -> str:
    """Return the YAML text of a kubeconfig with one cluster, user and context.

    `server` is a URL or a host, with or without its port, because Nebius's API returns both. `certificate_authority` is
    PEM text. `command` prints an ExecCredential (empty: this program), and has no terminal, because kubectl's streams
    may be those of a job.
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
    """Return the words of a credential command, or of this program's own if it is empty."""
    return [*(command or OWN_COMMAND)]


def server_url(server: str) -> str:
    """Return the URL of an API server that is given as a URL or as a host."""
    return server.rstrip("/") if "://" in server else f"https://{server.rstrip('/')}"


CLI = "nebius"
"""The Nebius CLI as a credential command. `nebius iam whoami` logs in: with a federated profile it opens a browser;
`nebius profile create` creates a profile. Source: README and .envrc of nebius/nebius-solutions-library,
soperator/installations/example."""
INSTALL_KUBECTL = "https://kubernetes.io/docs/tasks/tools/, on Debian: apt-get install kubernetes-client"

NO_KIND = "the server doesn't have a resource type"
"""kubectl's message if the cluster has no such kind, such as one of another version of Soperator."""

# Texts of client-go (plugin/pkg/client/auth/exec, rest) and of kubectl (pkg/cmd/util/helpers.go), v1.30 to v1.36.
_NOT_FOUND = re.compile(r"exec: executable (?P<program>\S+) not found|exec: \"(?P<other>[^\"]+)\": .*not found")
_FAILED = re.compile(r"exec: executable (?P<program>\S+) failed with exit code (?P<code>\d+)")
_REFUSED = re.compile(
    r"You must be logged in to the server|\(Unauthorized\)|the server has asked for the client to prov"
)
_NO_POD = re.compile(r"\(NotFound\): pods \"(?P<pod>[^\"]+)\" not found")
_NO_CONTAINER = re.compile(r"container not found \(\"(?P<container>[^\"]+)\"\)")
_HELP = re.compile(
    "It looks like you are trying to use a client-go credential plugin|To learn more about this feature"
    "|See https?://|E[0-9]{4} |W[0-9]{4} |I[0-9]{4} |command terminated with exit code"
)
"""Prefixes of lines that are not the reason."""


def reason(stderr: str, command: Sequence[str]) -> str:
    """Return the reason of a failure in one line. `command` is the kubeconfig's credential command (empty: our own)."""
    command = credential_command(command)
    program = command[0]
    log_in = ". Log in with: nebius iam whoami" if program == CLI else ""
    if _NOT_FOUND.search(stderr):
        where = " Install it (https://docs.nebius.com/cli/install)." if program == CLI else ""
        return f"{program} is not on PATH, which gives kubectl its credential.{where}"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    if failed := _FAILED.search(stderr):
        reasons = [line for line in lines if not _HELP.match(line) and not _FAILED.search(line)]
        why = f": {reasons[-1]}" if reasons else ""
        ended = f"`{shlex.join(command)}` failed with exit code {failed['code']}{why}"
        return f"the credential command {ended}{log_in}"
    if _REFUSED.search(stderr):
        return f"the credential of `{shlex.join(command)}` is refused: it may have expired{log_in}"
    if pod := _NO_POD.search(stderr):
        return f"there is no pod {pod['pod']}"
    if container := _NO_CONTAINER.search(stderr):
        return f"its container {container['container']} does not run"
    reasons = [line for line in lines if not _HELP.match(line)]
    return (reasons or lines or ["kubectl gave no reason"])[-1]


def describe_events(events: Iterable[Mapping[str, Any]], count: int) -> list[str]:
    """Return reason and message of the last `count` events, the newest last."""
    ordered = sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return [" ".join(f"{event.get('reason', '')}: {event.get('message', '')}".split()) for event in ordered[-count:]]


def selector(kind: str, name: str) -> str:
    """Return the option of `kubectl get events` that selects the events of one object."""
    return f"--field-selector=involvedObject.kind={kind},involvedObject.name={name}"


SSH_PORT = 22
LOGIN_NODES = (f"--selector={NODESET_LABEL}=login", "--output=json")
"""Options of `kubectl get nodes` for the nodes of login pods (modules/slurm/templates of nebius-solutions-library)."""
HOST_KEY = "cat /etc/ssh/sshd_keys/ssh_host_ed25519_key.pub 2>/dev/null || cat /etc/ssh/ssh_host_ed25519_key.pub"
"""Command that prints the public host key of a login pod: from a Secret that all of them mount
(VolumeMountPathSSHDKeys, internal/consts/volume.go of soperator), or the machine's own in a rehearsal."""


def login_address(service: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> tuple[str, int] | None:
    """Return address and port; None while there is none. `nodes` are the Kubernetes nodes of login pods."""
    if service["spec"].get("type") == "LoadBalancer":
        for address in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ():
            if host := address.get("ip") or address.get("hostname"):
                return str(host), SSH_PORT
        return None
    ports = [port.get("nodePort") for port in service["spec"].get("ports") or ()]
    port = next(filter(None, ports), LOGIN_NODE_PORT)
    for node in nodes:
        for address in node.get("status", {}).get("addresses") or ():
            if address.get("type") == "ExternalIP" and address.get("address"):
                return str(address["address"]), int(port)
    return None


def why_no_login_address(service: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """Return why there is no address, with the last events of the Service."""
    name = service["metadata"]["name"]
    last = "; ".join(describe_events(events, 3))
    if service["spec"].get("type") == "LoadBalancer":
        why = (
            f"service {name} has no address yet: its load balancer is being created, or the project allows no public "
            "addresses (nebius.login.exposure: internal asks for an internal one)."
        )
    else:
        why = f"service {name} is of type NodePort, and no Kubernetes node of login pods has an ExternalIP."
    return f"{why} Its last events: {last}." if last else why
