"""The network of a stack: a bridge on this host, and the hosts file of its machines."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

from components.dynamic import DynamicResource, changed, given, report
from components.local.host import claims
from components.local.host.machines.limits import allow_watches
from components.local.host.networks import network
from components.local.host.packages import require_host

_CLAIM = "network"


class NetworkProvider(ResourceProvider):
    def create(self, props: dict[str, Any]) -> CreateResult:
        """Make the network, or take over what an interrupted run made of it."""
        require_host()
        allow_watches(report)
        wanted = _network(props)
        network.ensure(wanted)
        claim = claims.make(wanted.paths, _CLAIM)
        return CreateResult(wanted.bridge, {**given(props), "bridge": wanted.bridge, claims.KEY: claim})

    def diff(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> DiffResult:
        """Another root or name is another network; all else is changed in place, and a missing bridge is recreated."""
        replaces = changed(_olds, _news, ("root", "stack"))
        changes = changed(_olds, _news, ("owner", "cidr", "gateway", "hosts", "state"))
        there = _network(_olds)
        gone = not (network.is_up(there) and claims.holds(there.paths, _CLAIM, _olds.get(claims.KEY)))
        return DiffResult(changes=bool(replaces or changes or gone), replaces=replaces)

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        require_host()
        allow_watches(report)
        wanted = _network(_news)
        # As it was made: by this state under an earlier id, or before states had ids.
        network.ensure(wanted, before=[_olds["state"]] if _olds.get("state") else [])
        claim = claims.make(wanted.paths, _CLAIM, _olds.get(claims.KEY))
        return UpdateResult({**given(_news), "bridge": wanted.bridge, claims.KEY: claim})

    def read(self, id_: str, props: dict[str, Any]) -> ReadResult:
        there = _network(props).paths.network.exists()
        return ReadResult(id_ if there else "", given(props))

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Remove the bridge and the stack's folder; not those of a network that took their place."""
        old = _network(_props)
        if claims.holds(old.paths, _CLAIM, _props.get(claims.KEY)):
            network.remove(old)


def _network(props: Mapping[str, Any]) -> network.Network:
    return network.Network(
        root=Path(props["root"]), stack=props["stack"], owner=props["owner"], cidr=props["cidr"],
        gateway=props["gateway"], hosts=props["hosts"], state=props.get("state") or "",
    )  # fmt: skip


class Network(DynamicResource, module="local", name="Network"):
    """A stack's network on this host."""

    bridge: pulumi.Output[str]
    """Name of the bridge."""

    def __init__(
        self, name: str, *, root: str, stack: str, owner: str, cidr: str, gateway: str, hosts: Mapping[str, str],
        state: pulumi.Input[str], opts: pulumi.ResourceOptions | None = None,
    ) -> None:  # fmt: skip
        props = {
            "root": root, "stack": stack, "owner": owner, "cidr": cidr, "gateway": gateway, "hosts": dict(hosts),
            "state": state, "bridge": None,
        }  # fmt: skip
        super().__init__(NetworkProvider(), name, props, opts)
