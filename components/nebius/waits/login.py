"""The address that users log in at, from the Service of the login pods."""

from collections.abc import Mapping
from typing import Any

from components.nebius.kubernetes.kubectl import Kubectl
from components.nebius.waits.poll import Look, wait_for

NODE_PORT = 30022
"""Soperator's sshdServiceNodePort."""
LOGIN_NODES = "slurm.nebius.ai/nodeset=login"


def service_name(cluster: str) -> str:
    """The Service of the login pods."""
    return f"{cluster}-login-svc"


def wait(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the Service and its address: facts `address` and `port`. Raises WaitError."""
    name = service_name(spec["cluster"])
    return wait_for(
        f"the address of Service {name}",
        lambda: look(kubectl, name, spec["type"]),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.login",
        explain=lambda: "\n".join(f"  {line}" for line in kubectl.events("Service", name)),
        todo="in a project without public addresses set nebius.login.exposure: internal; otherwise check the quota of "
        "public addresses and load balancers, then run `up` again",
    )


def look(kubectl: Kubectl, name: str, kind: str) -> Look:
    """The address, if there is one by now."""
    service = kubectl.object("service", name)
    if service is None:
        return Look(text="Soperator has not created it yet")
    if kind == "NodePort":
        address = _external_ip(kubectl.items("nodes", f"--selector={LOGIN_NODES}"))
        text = f"no node with the label {LOGIN_NODES} has an ExternalIP"
        return Look(done=True, facts={"address": address, "port": NODE_PORT}) if address else Look(text=text)
    ingress = (service.get("status", {}).get("loadBalancer", {}).get("ingress") or [{}])[0]
    address = ingress.get("ip") or ingress.get("hostname")
    if address:
        return Look(done=True, facts={"address": address, "port": 22})
    return Look(text="the load balancer has no address yet")


def _external_ip(nodes: list[dict[str, Any]]) -> str | None:
    for node in nodes:
        for one in node["status"].get("addresses", ()):
            if one["type"] == "ExternalIP":
                return one["address"]
    return None
