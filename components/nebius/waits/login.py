"""The address that users log in at, from the Service of the login pods."""

from collections.abc import Mapping
from typing import Any

from cluster.platforms.nebius.kubectl import selector
from cluster.platforms.nebius.login_address import NODES, address, missing
from cluster.platforms.nebius.names import login_service
from components.nebius.kubernetes.kubectl import Kubectl
from components.nebius.waits.poll import Look, wait_for


def wait(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the Service and its address: facts `address` and `port`. Raises WaitError with its last events."""
    name = login_service(spec["cluster"])
    return wait_for(
        f"the address of Service {name}",
        lambda: _look(kubectl, name),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.login",
        todo="in a project without public addresses set nebius.login.exposure: internal; otherwise check the quotas of "
        "public addresses and load balancers, then run `up` again",
    )


def _look(kubectl: Kubectl, name: str) -> Look:
    service = kubectl.object("service", name)
    if service is None:
        return Look(text="Soperator has not created it yet")
    balanced = service["spec"].get("type") == "LoadBalancer"
    found = address(service, () if balanced else kubectl.items("nodes", NODES[0]))
    if found:
        return Look(done=True, facts={"address": found[0], "port": found[1]})
    return Look(text=missing(service, kubectl.items("events", selector("Service", name))))
