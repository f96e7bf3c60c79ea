"""The stand-in operator: one SlurmCluster with its NodeSets and ActiveChecks, and the loop that moves them.

The loop depends on what it reads alone, so the operator can be ended and started at any time.
"""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from lab.soperator import nodes, pods
from lab.soperator.kube import Kube, KubeError, Object
from lab.soperator.names import (
    AVAILABLE,
    CONTROLLER_POD,
    GROUP,
    OPERATOR_NAMESPACE,
    login_service,
    populate_job,
)
from lab.soperator.nodes import Cloud, NodeGroup
from lab.soperator.spec import Behaviour, ClusterSpec, Machines, NoMachines, State, parse_cluster

API, SETS_API = f"{GROUP}/v1", f"{GROUP}/v1alpha1"
PENDING, RECONCILING, UNAVAILABLE = "Pending", "Reconciling", "Not available"
"""Phases of a SlurmCluster, besides AVAILABLE."""
_CONDITIONS = (
    "CommonAvailable",
    "ControllersAvailable",
    "LoginAvailable",
    "SConfigControllerAvailable",
    "NodeSetRefsResolved",
)
_T = TypeVar("_T")


@dataclass
class Memory:
    """The state that the operator keeps between turns; after a start it is read again."""

    login_address: str = ""
    since: dict[str, tuple[str, float]] = field(default_factory=dict)
    """The step of a cluster and the time of its begin, by name."""
    machines: Callable[[], object] = lambda: None
    """Moves the machines a step further, and returns their state; set by `move`."""
    last: object = None
    """Their state in the last turn."""

    def move(self, machines: Callable[[], _T]) -> _T:
        """Move the machines a step further, and keep the function for the next turns."""
        self.machines = machines
        state = machines()
        self.last = state
        return state

    def is_unchanged(self) -> bool:
        """Move the machines a step further, and return whether their state is that of the last turn."""
        return self.machines() == self.last

    def has_waited(self, name: str, step: str, seconds: float) -> bool:
        """Return whether the cluster has been in a step for so many seconds."""
        known, began = self.since.get(name, ("", 0.0))
        if known != step:
            began = time.monotonic()
            self.since[name] = (step, began)
        return time.monotonic() - began >= seconds


def converge_cluster(
    kube: Kube,
    machines: Machines,
    nodes: Sequence[Object],
    behaviour: Behaviour,
    memory: Memory,
    *,
    free: bool,
    report: Callable[[str], None],
) -> None:
    """Move the SlurmCluster a step further; delete the objects and machines of a deleted one."""
    memory.move(lambda: None)
    clusters = kube.list(API, "SlurmCluster")
    for cluster in clusters[1:]:
        report(f"SlurmCluster {cluster['metadata']['name']}: only one can be brought up at a time")
    if not clusters:
        memory.since.clear()
        memory.login_address = ""
        _delete_rest(kube)
        memory.move(machines.remove)
        return
    if _is_stopped(kube):
        return
    cluster = clusters[0]
    namespace = cluster["metadata"]["namespace"]
    nodesets = kube.list(SETS_API, "NodeSet", namespace)
    spec = parse_cluster(cluster, nodesets, _powered(kube, nodesets))
    _Turn(kube, machines, behaviour, memory, cluster, spec).run(nodes, free=free)
    _checks(kube, namespace, behaviour)


def _powered(kube: Kube, nodesets: Sequence[Object]) -> dict[str, list[int]]:
    """Return the powered nodes of elastic nodesets; create each NodeSetPowerState once, as Soperator does."""
    active: dict[str, list[int]] = {}
    for nodeset in nodesets:
        metadata, spec = nodeset["metadata"], nodeset["spec"]
        if spec.get("ephemeralNodes"):
            name, namespace = metadata["name"], metadata["namespace"]
            state = kube.get(SETS_API, "NodeSetPowerState", name, namespace) or kube.apply(
                {
                    "apiVersion": SETS_API,
                    "kind": "NodeSetPowerState",
                    "metadata": {"name": name, "namespace": namespace},
                    "spec": {
                        "nodeSetRef": name,
                        "activeNodes": [*range(spec.get("initialNumberEphemeralNodes", 1))],
                    },
                }
            )
            active[name] = sorted(state["spec"].get("activeNodes") or ())
    return active


@dataclass
class _Turn:
    kube: Kube
    machines: Machines
    behaviour: Behaviour
    memory: Memory
    cluster: Object
    spec: ClusterSpec

    def run(self, nodes: Sequence[Object], *, free: bool) -> None:
        if not self.cluster.get("status", {}).get("phase"):
            self._status(PENDING, "the cluster is new")
            return
        unpopulated = self._unpopulated()
        if unpopulated:
            self._status(RECONCILING, unpopulated)
            return
        slurm_pods = pods.converge(self.kube, self.spec, nodes, free=free)
        state = self.memory.move(partial(self.machines.ensure, self.spec, pods.machine_types(slurm_pods, nodes)))
        ready = self._pods(slurm_pods, state)
        self._service(state, ready)
        self._nodesets(ready)
        self._phase(ready, state)

    def _unpopulated(self) -> str:
        """Return why the jail is not populated; an empty text if it is."""
        name, namespace = populate_job(self.spec.name), self.spec.name
        job = self.kube.get("batch/v1", "Job", name, namespace)
        if job is None:
            done = self.cluster.get("status", {}).get("phase") in (AVAILABLE, UNAVAILABLE)
            if not done and self.memory.has_waited(self.spec.name, "new", self.behaviour.phase_seconds):
                self.kube.apply(_populate_job(name, namespace))
            return "" if done else "the jail is to be populated"
        conditions = {condition["type"]: condition for condition in job.get("status", {}).get("conditions", ())}
        if conditions.get("Complete", {}).get("status") == "True":
            return ""
        if conditions.get("Failed", {}).get("status") == "True":
            return "the Job that populates the jail failed"
        return "the jail is being populated"

    def _pods(self, slurm_pods: Sequence[Object], state: State) -> dict[str, Object]:
        """Set the pods' statuses, and return the ready pods by name."""
        ready: dict[str, Object] = {}
        for pod in slurm_pods:
            name = pod["metadata"]["name"]
            if not pod["spec"].get("nodeName"):
                continue
            address = state.addresses.get(pods.machine_of(name))
            if self.behaviour.unavailable and name == CONTROLLER_POD:
                self.kube.set_status(pod, pods.waiting(pod, "CrashLoopBackOff", self.behaviour.unavailable))
            elif address and not self._is_reconciling():
                self.kube.set_status(pod, pods.running(pod, address))
                ready[name] = pod
            else:
                self.kube.set_status(pod, pods.waiting(pod, "ContainerCreating", state.busy))
        return ready

    def _is_reconciling(self) -> bool:
        """Return whether the time of the phase Reconciling has not passed yet."""
        if self.cluster["status"]["phase"] == AVAILABLE:
            return False
        return not self.memory.has_waited(self.spec.name, "up", self.behaviour.phase_seconds)

    def _service(self, state: State, ready: Mapping[str, Object]) -> None:
        name = login_service(self.spec.name)
        service = self.kube.get("v1", "Service", name, self.spec.name)
        expected = _service(name, self.spec)
        if service is None or _described(service) != _described(expected):
            service = self.kube.apply(expected)
        login = next((name for name in ready if name.startswith(f"{pods.LOGIN}-")), "")
        self.memory.login_address = state.addresses.get(login, "")
        if self.spec.service_type == "LoadBalancer" and login:
            address = {"ip": self.memory.login_address, "ipMode": "VIP"}
            self.kube.set_status(service, {"loadBalancer": {"ingress": [address]}})

    def _nodesets(self, ready: Mapping[str, Object]) -> None:
        for nodeset in self.kube.list(SETS_API, "NodeSet", self.spec.name):
            name = nodeset["metadata"]["name"]
            expected = [pod for pod, _, of in pods.rows(self.spec) if of == name]
            count = sum(pod in ready for pod in expected)
            complete = count == len(expected)
            condition = _condition("PodsReady", ok=complete, reason="Ready" if complete else "Waiting")
            self.kube.set_status(
                nodeset,
                {
                    "phase": "Ready" if complete else "Provisioning",
                    "replicas": count,
                    "observedGeneration": nodeset["metadata"]["generation"],
                    "conditions": _dated([condition], nodeset),
                },
            )

    def _phase(self, ready: Mapping[str, Object], state: State) -> None:
        core = [name for name, role, _ in pods.rows(self.spec) if role != "worker"]
        missing = [name for name in core if name not in ready]
        if self.behaviour.unavailable or state.problem:
            self._status(UNAVAILABLE, self.behaviour.unavailable or state.problem, ready)
        elif self.behaviour.never or missing:
            self._status(RECONCILING, state.busy or f"waiting for {', '.join(missing[:5])}", ready)
        else:
            self._status(AVAILABLE, "", ready)

    def _status(self, phase: str, why: str, ready: Mapping[str, Object] | None = None) -> None:
        ready = ready or {}
        logins = sum(name.startswith(f"{pods.LOGIN}-") for name in ready)
        ok = {
            "CommonAvailable": phase != PENDING,
            "ControllersAvailable": CONTROLLER_POD in ready and phase != UNAVAILABLE,
            "LoginAvailable": logins == self.spec.login and logins > 0,
            "AccountingAvailable": pods.ACCOUNTING in ready,
            "SConfigControllerAvailable": CONTROLLER_POD in ready,
            "NodeSetRefsResolved": True,
        }
        kinds = [*_CONDITIONS, *(["AccountingAvailable"] if self.spec.accounting else [])]
        conditions = [
            _condition(kind, ok=ok[kind], reason="Available" if ok[kind] else "NotAvailable", message=why)
            for kind in kinds
        ]
        status: dict[str, Any] = {
            "phase": phase, "conditions": _dated(conditions, self.cluster), "readyLogin": logins,
        }  # fmt: skip
        status["readySConfigController"] = int(ok["SConfigControllerAvailable"])
        self.kube.set_status(self.cluster, status)


def _condition(kind: str, *, ok: bool, reason: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True" if ok else "False", "reason": reason, "message": "" if ok else message}


def _dated(conditions: list[dict[str, str]], owner: Object) -> list[dict[str, str]]:
    """Return the conditions with the time of their last change of status."""
    before = {condition["type"]: condition for condition in owner.get("status", {}).get("conditions") or ()}
    moment = pods.now()
    for condition in conditions:
        old = before.get(condition["type"], {})
        same = old.get("status") == condition["status"]
        condition["lastTransitionTime"] = str(old.get("lastTransitionTime", moment)) if same else moment
    return conditions


def _service(name: str, spec: ClusterSpec) -> Object:
    port: dict[str, Any] = {"name": "ssh", "port": 22, "targetPort": 22, "protocol": "TCP"}
    if spec.service_type == "NodePort":
        port["nodePort"] = spec.node_port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": spec.name, "annotations": dict(spec.annotations)},
        "spec": {"type": spec.service_type, "selector": {"app.kubernetes.io/component": "login"}, "ports": [port]},
    }


def _described(service: Object) -> tuple[str, Mapping[str, str]]:
    return service["spec"]["type"], service["metadata"].get("annotations", {})


def _populate_job(name: str, namespace: str) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "populate-jail", "image": "stand-in"}],
                }
            },
        },
    }


def _checks(kube: Kube, namespace: str, behaviour: Behaviour) -> None:
    """Set the status of ActiveChecks to that of one run."""
    for check in kube.list(SETS_API, "ActiveCheck", namespace):
        failed = check["metadata"]["name"] in behaviour.failed_checks
        if check["spec"].get("checkType") == "slurmJob":
            status: dict[str, Any] = {
                "slurmJobsStatus": {"lastRunStatus": "Failed" if failed else "Complete", "lastRunId": "1"}
            }
        else:
            status = {"k8sJobsStatus": {"lastJobStatus": "Failed" if failed else "Complete"}}
        kube.set_status(check, status)


def _is_stopped(kube: Kube) -> bool:
    """Return whether the operator's Deployment was scaled to 0, as before a cluster is destroyed."""
    deployments = kube.list("apps/v1", "Deployment", OPERATOR_NAMESPACE)
    return bool(deployments) and not any(deployment["spec"].get("replicas", 1) for deployment in deployments)


def _delete_rest(kube: Kube) -> None:
    """Delete the pods, Services and Jobs of a deleted SlurmCluster."""
    for pod in kube.list("v1", "Pod", labels=pods.SLURM):
        kube.delete(pod)
        namespace = pod["metadata"]["namespace"]
        for api, kind, name in (
            ("v1", "Service", login_service(namespace)),
            ("batch/v1", "Job", populate_job(namespace)),
        ):
            if found := kube.get(api, kind, name, namespace):
                kube.delete(found)


CONTROLLERS = (
    "garbage-collector-controller", "namespace-controller", "root-ca-certificate-publisher-controller",
    "serviceaccount-controller", "deployment-controller", "replicaset-controller", "daemonset-controller",
    "job-controller", "persistentvolumeclaim-protection-controller", "persistentvolume-protection-controller",
)  # fmt: skip
"""Controllers of Kubernetes beside the operator, for charts with Deployments, Jobs and volumes."""
PACE_SECONDS = 0.4
CLOUD_SECONDS = 2.0
"""Seconds between two reads of the cloud."""
ALONE = NodeGroup(id="mk8snodegroup-standin", name="stand-in", count=1)
"""The only node without a cloud."""


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
        self._next_read = 0.0
        self._version: object = None
        """The cloud's version when its groups were read."""
        self._memory = Memory()
        self._inputs: object = None
        """The inputs of the last turn."""

    def run(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Run turns until `stopped`; errors are reported, and the next turn retries."""
        reported = ""
        while not stopped():
            try:
                self.turn()
                reported = ""
            except KubeError as error:
                reported = self._report_once(reported, str(error))
            except Exception:  # noqa: BLE001 - it is reported, and the next turn may succeed
                reported = self._report_once(reported, traceback.format_exc())
            time.sleep(PACE_SECONDS)

    def _report_once(self, reported: str, text: str) -> str:
        """Report a problem once."""
        if text != reported:
            self._report(text)
        return text

    def turn(self) -> None:
        """Read all objects, and move each one step; do nothing if no input has changed."""
        self._read_cloud()
        external = self._memory.login_address
        inputs = (self._kube.revision(), self._groups, replace(self.behaviour), external)
        if inputs == self._inputs and not self.behaviour.phase_seconds and self._memory.is_unchanged():
            return
        self._inputs = None
        registered = nodes.register(self._kube, self._groups, kubelet=self._kubelet, external=external)
        pods.run_others(self._kube, registered)
        nodes.bind(self._kube)
        converge_cluster(
            self._kube,
            self._machines,
            registered,
            self.behaviour,
            self._memory,
            free=self._cloud is None,
            report=self._report,
        )
        self._inputs = inputs

    def _read_cloud(self) -> None:
        if self._cloud is None or time.monotonic() < self._next_read:
            return
        self._next_read = time.monotonic() + CLOUD_SECONDS
        version = self._cloud.version()
        if version == self._version:
            return
        try:
            self._groups, self._version = self._cloud.node_groups(), version
        except Exception as error:  # noqa: BLE001 - gRPC's and the SDK's own; the nodes stay as they are
            self._report(f"the Nebius API: {error}")
