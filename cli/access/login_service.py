"""The address of the login pods' SSH server, read from the cluster: they share one Service and one set of host keys."""

import json
from contextlib import ExitStack
from dataclasses import replace

from cli.access.kube_api import KubeApi, Kubernetes
from cli.cluster.target import Target
from cli.errors import CliError
from cli.interrupts import unwound
from cluster.platforms.nebius.kubectl import selector
from cluster.platforms.nebius.login_address import HOST_KEY, NODES, address, missing
from cluster.platforms.nebius.names import login_service


def over_ssh(target: Target, seconds: float) -> Target:
    """A login target as SSH reaches it: the Service's address as it is now, and the host key of its pod.

    Raises CliError: the cluster does not answer, or the Service has no address; the message has its last events.
    """
    kubernetes = Kubernetes.of(target.row.get("kubernetes"))
    namespace = str(target.row.get("namespace") or kubernetes.namespace)
    name, inside = login_service(namespace), ("--namespace", namespace)
    with unwound(), ExitStack() as stack:
        api = KubeApi(stack, kubernetes)
        service = api.ask("get", "service", name, *inside, "--output=json", seconds=seconds)
        if service.code:
            raise CliError(f"service {name}: {service.why}")
        found = json.loads(service.out)
        nodes = (
            []
            if found["spec"].get("type") == "LoadBalancer"
            else api.ask("get", "nodes", *NODES, seconds=seconds).items
        )
        where = address(found, nodes)
        if where is None:
            about = selector("Service", name)
            events = api.ask("get", "events", *inside, about, "--output=json", seconds=seconds)
            raise CliError(
                f"{missing(found, events.items)} Without it: ./hpc ssh STACK {target.name} goes in by kubectl exec."
            )
        key = api.ask(
            "exec", str(target.row["pod"]), *inside, "--container", str(target.row["container"]), "--",
            "/bin/sh", "-c", HOST_KEY, seconds=seconds,
        )  # fmt: skip
        if key.code or not key.out.strip():
            raise CliError(f"{target.name}: its host key can't be read: {key.why or 'there is none'}")
    words = key.out.split()
    return replace(target, method="ssh", address=where[0], port=where[1], host_key=" ".join(words[:2]), jump=None)
