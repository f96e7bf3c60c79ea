"""The loop of the stand-in operator: what it reads decides alone, so it may be ended and started at any time."""

import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace

from lab.soperator import cluster, nodes, pods
from lab.soperator.kube import Kube, KubeError
from lab.soperator.nodes import Cloud, NodeGroup
from lab.soperator.wanted import Behaviour, Machines, NoMachines

CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "root-ca-certificate-publisher-controller",
    "serviceaccount-controller", "deployment-controller", "replicaset-controller", "daemonset-controller",
    "job-controller", "persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
)  # fmt: skip
"""Controllers of Kubernetes that run beside it, for charts with Deployments, Jobs and volumes."""
PACE_SECONDS = 0.4
CLOUD_SECONDS = 2.0
"""How often the cloud is read."""
ALONE = NodeGroup(id="mk8snodegroup-standin", name="stand-in", count=1)
"""The node of a cluster that has no cloud."""


class Operator:
    """Moves Nodes, pods, SlurmClusters, NodeSets and ActiveChecks, as Kubernetes on Nebius with Soperator does."""

    def __init__(
        self,
        kube: Kube,
        *,
        cloud: Cloud | None = None,
        machines: Machines | None = None,
        behaviour: Behaviour | None = None,
        kubelet: int = 10250,
        report: Callable[[str], None] = lambda _text: None,
    ) -> None:
        """`kubelet` is the port at which the kubelet of all nodes serves. Without a cloud there is one node, for all
        pods; without machines there are only statuses."""
        self._kube, self._cloud, self._kubelet, self._report = kube, cloud, kubelet, report
        self._machines = machines or NoMachines()
        self.behaviour = behaviour or Behaviour()
        self._groups: Sequence[NodeGroup] = () if cloud else (ALONE,)
        self._asked = 0.0
        self._version: object = None
        """The cloud's, when its groups were read."""
        self._memory = cluster.Memory()
        self._seen: object = None
        """What decided in the last turn."""

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Work until `stopped`; an API server that does not answer is asked again."""
        reported = ""
        while not stopped():
            try:
                self.turn()
                reported = ""
            except KubeError as error:
                reported = self._report_once(reported, str(error))
            except Exception:  # noqa: BLE001 - what can't be done in this turn may be in the next, and is reported
                reported = self._report_once(reported, traceback.format_exc())
            time.sleep(PACE_SECONDS)

    def _report_once(self, reported: str, text: str) -> str:
        """Report a problem once."""
        if text != reported:
            self._report(text)
        return text

    def turn(self) -> None:
        """Do one turn: read all, and move each object one step. Nothing is read where nothing can have changed."""
        self._read_cloud()
        external = self._memory.login_address
        seen = (self._kube.revision(), self._groups, replace(self.behaviour), external)
        if seen == self._seen and not self.behaviour.phase_seconds and self._memory.are_as_left():
            return
        self._seen = None
        there = nodes.register(self._kube, self._groups, kubelet=self._kubelet, external=external)
        pods.run_others(self._kube, there)
        nodes.bind(self._kube)
        cluster.converge(
            self._kube,
            self._machines,
            there,
            self.behaviour,
            self._memory,
            free=self._cloud is None,
            report=self._report,
        )
        self._seen = seen

    def _read_cloud(self) -> None:
        if self._cloud is None or time.monotonic() < self._asked:
            return
        self._asked = time.monotonic() + CLOUD_SECONDS
        version = self._cloud.version()
        if version == self._version:
            return
        try:
            self._groups, self._version = self._cloud.node_groups(), version
        except Exception as error:  # noqa: BLE001 - gRPC's and the SDK's own; the nodes stay as they are
            self._report(f"the Nebius API: {error}")
