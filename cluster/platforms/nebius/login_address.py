"""The address of the login pods' SSH server, from their Service, as the guide's login.sh finds it."""

from collections.abc import Iterable, Mapping
from typing import Any

from cluster.platforms.nebius.kubectl import last_lines
from cluster.platforms.nebius.names import LOGIN_NODE_PORT, NODESET_LABEL

SSH_PORT = 22
NODES = (f"--selector={NODESET_LABEL}=login", "--output=json")
"""Kubernetes nodes of login pods (modules/slurm/templates of nebius-solutions-library)."""
HOST_KEY = "cat /etc/ssh/sshd_keys/ssh_host_ed25519_key.pub 2>/dev/null || cat /etc/ssh/ssh_host_ed25519_key.pub"
"""Prints the public host key of a login pod: a Secret that all of them mount (VolumeMountPathSSHDKeys, internal/consts/
volume.go of soperator), or the machine's own in a rehearsal."""
_EVENTS = 3


def address(service: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> tuple[str, int] | None:
    """Address and port; None while there is none. `nodes` are the Kubernetes nodes of login pods, for a NodePort."""
    if service["spec"].get("type") == "LoadBalancer":
        for address in service.get("status", {}).get("loadBalancer", {}).get("ingress") or ():
            if found := address.get("ip") or address.get("hostname"):
                return str(found), SSH_PORT
        return None
    ports = [port.get("nodePort") for port in service["spec"].get("ports") or ()]
    port = next((port for port in ports if port), LOGIN_NODE_PORT)
    for node in nodes:
        for address in node.get("status", {}).get("addresses") or ():
            if address.get("type") == "ExternalIP" and address.get("address"):
                return str(address["address"]), int(port)
    return None


def missing(service: Mapping[str, Any], events: Iterable[Mapping[str, Any]]) -> str:
    """Return why there is no address, with the last events of the Service."""
    name = service["metadata"]["name"]
    last = "; ".join(last_lines(events, _EVENTS))
    if service["spec"].get("type") == "LoadBalancer":
        why = (
            f"service {name} has no address yet: its load balancer is being created, or the project allows no public "
            "addresses (nebius.login.exposure: internal asks for an internal one)."
        )
    else:
        why = f"service {name} is of type NodePort, and no Kubernetes node of login pods has an ExternalIP."
    return f"{why} Its last events: {last}." if last else why
