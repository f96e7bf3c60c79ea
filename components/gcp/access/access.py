"""How machines with private addresses are reached: through a login machine with a public one, or Google's proxy."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.gcp import iap
from cluster.roster import MachineSpec, controller_name
from components.gcp.access import tunnels
from components.machine import Proxy, Reach

DIAL_ERROR_LIMIT = 120
"""The provider waits 5 s after a refusal, so this outlasts ten minutes of a machine's first boot."""
PER_DIAL_TIMEOUT = 10
"""Seconds. One that never answers is given up after half an hour."""
_LOOPBACK = "127.0.0.1"


class Access:
    """How each machine of a cluster is reached.

    With `login.public`, login machines are reached at their public addresses and all others through the first of
    them; else controller and login machines by a tunnel through Identity-Aware Proxy. The program logs in to no node:
    users reach nodes through the controller.
    """

    def __init__(self, config: ClusterConfig) -> None:
        if config.gcp is None:
            raise ValueError("a cluster on Google Cloud has a project and a zone")
        self._config, self._place = config, config.gcp
        self._entrances: dict[int, tuple[str, Proxy]] = {}
        self._controller: Proxy | None = None

    def reach(
        self,
        spec: MachineSpec,
        *,
        address: pulumi.Input[str],
        public: pulumi.Input[str] | None,
        instance_id: pulumi.Output[str],
        name: str,
        host_key: pulumi.Input[str],
    ) -> Reach:
        """How to reach a machine; `address` is its private address, `name` the instance's, `public` its public address
        where it has one.

        May be asked of machines in any order: the jump host is looked up when all are known.
        """
        if spec.roles == ("node",):
            return Reach(host=None, via=self._through_controller)
        if "controller" in spec.roles:
            self._controller = Proxy(host=address, host_key=host_key)
        patient = partial(Reach, dial_error_limit=DIAL_ERROR_LIMIT, per_dial_timeout=PER_DIAL_TIMEOUT)
        if self._config.login.public and "login" in spec.roles:
            if public is None:
                raise ValueError(f"{spec.name}: login.public, and it has no public address")
            self._entrances[spec.index] = (spec.name, Proxy(host=public, host_key=host_key))
            return patient(host=public)
        if self._config.login.public:
            return patient(host=address, proxy=lambda: self._entrance()[1], via=self._through_entrance)
        instance = iap.Instance(name=name, project=self._place.project, zone=self._place.zone)
        cluster = f"{instance.project}/{instance.zone}/{self._config.name}"
        port = iap.port(cluster, 0 if "controller" in spec.roles else spec.index + 1)

        async def tunnelled(_: str) -> str:
            await tunnels.opened(instance, port)
            return _LOOPBACK

        # Host and port are the same in every run: another connection would run every command again.
        return patient(
            host=_LOOPBACK if pulumi.runtime.is_dry_run() else instance_id.apply(tunnelled),
            port=port,
            via=lambda: {"iap": {"instance": name, "project": instance.project, "zone": instance.zone}},
        )

    def _entrance(self) -> tuple[str, Proxy]:
        if not self._entrances:
            raise ValueError("login.public, and no login machine is known: the others can't be reached")
        return self._entrances[min(self._entrances)]

    def _through_entrance(self) -> Mapping[str, Any]:
        name, proxy = self._entrance()
        return {"jump": {"name": name, "address": proxy.host, "host_key": proxy.host_key}}

    def _through_controller(self) -> Mapping[str, Any]:
        if self._controller is None:
            raise ValueError("no controller is known: the nodes can't be reached")
        name = controller_name(self._config)
        return {"jump": {"name": name, "address": self._controller.host, "host_key": self._controller.host_key}}
