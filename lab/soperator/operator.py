"""The loop of the stand-in operator: what it reads decides alone, so it may be ended and started at any time."""

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from cluster.platforms.nebius.names import (
    AVAILABLE,
    CONTROLLER_POD,
    GROUP,
    OPERATOR_NAMESPACE,
    login_service,
    populate_job,
)
from lab.soperator import nodes, pods
from lab.soperator.kube import Kube, KubeError, Object
from lab.soperator.nodes import Cloud, NodeGroup
from lab.soperator.wanted import Behaviour, Machines, NoMachines, State, Wanted, wanted

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
    """The step that a cluster is in, and since when."""
    machines: Callable[[], object] = lambda: None
    """Moves the machines on, and returns what is there of them; set by `move`."""
    left: object = None
    """What it returned in the last turn."""

    def move(self, machines: Callable[[], _T]) -> _T:
        """Move the machines on, in this way until the next turn."""
        self.machines = machines
        found = machines()
        self.left = found
        return found

    def are_as_left(self) -> bool:
        """Move the machines on, and return whether there is of them what there was in the last turn."""
        return self.machines() == self.left

    def waited(self, name: str, step: str, seconds: float) -> bool:
        """Return whether the cluster has been in a step for so long."""
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
    """Move the SlurmCluster, if there is one, a step further; remove what is left of one that is gone."""
    memory.move(lambda: None)
    clusters = kube.list(API, "SlurmCluster")
    for cluster in clusters[1:]:
        report(f"SlurmCluster {cluster['metadata']['name']}: only one can be brought up at a time")
    if not clusters:
        memory.since.clear()
        memory.login_address = ""
        _leave(kube)
        memory.move(machines.remove)
        return
    if _is_stopped(kube):
        return
    found = clusters[0]
    namespace = found["metadata"]["namespace"]
    nodesets = kube.list(SETS_API, "NodeSet", namespace)
    asked = wanted(found, nodesets, _powered(kube, nodesets))
    _Turn(kube, machines, behaviour, memory, found, asked).run(nodes, free=free)
    _checks(kube, namespace, behaviour)


def _powered(kube: Kube, nodesets: Sequence[Object]) -> dict[str, list[int]]:
    """The nodes of elastic nodesets that are up; each gets its NodeSetPowerState once, as Soperator creates it."""
    found: dict[str, list[int]] = {}
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
            found[name] = sorted(state["spec"].get("activeNodes") or ())
    return found


@dataclass
class _Turn:
    kube: Kube
    machines: Machines
    behaviour: Behaviour
    memory: Memory
    cluster: Object
    wanted: Wanted

    def run(self, nodes: Sequence[Object], *, free: bool) -> None:
        if not self.cluster.get("status", {}).get("phase"):
            self._status(PENDING, "the cluster is new")
            return
        unpopulated = self._unpopulated()
        if unpopulated:
            self._status(RECONCILING, unpopulated)
            return
        found = pods.converge(self.kube, self.wanted, nodes, free=free)
        state = self.memory.move(partial(self.machines.ensure, self.wanted, pods.machine_types(found, nodes)))
        ready = self._pods(found, state)
        self._service(state, ready)
        self._nodesets(ready)
        self._phase(ready, state)

    def _unpopulated(self) -> str:
        """Why the jail is not populated, if it is not."""
        name, namespace = populate_job(self.wanted.name), self.wanted.name
        job = self.kube.get("batch/v1", "Job", name, namespace)
        if job is None:
            done = self.cluster.get("status", {}).get("phase") in (AVAILABLE, UNAVAILABLE)
            if not done and self.memory.waited(self.wanted.name, "new", self.behaviour.phase_seconds):
                self.kube.apply(_populate_job(name, namespace))
            return "" if done else "the jail is to be populated"
        conditions = {condition["type"]: condition for condition in job.get("status", {}).get("conditions", ())}
        if conditions.get("Complete", {}).get("status") == "True":
            return ""
        if conditions.get("Failed", {}).get("status") == "True":
            return "the Job that populates the jail failed"
        return "the jail is being populated"

    def _pods(self, found: Sequence[Object], state: State) -> dict[str, Object]:
        """Set the pods' statuses, and return those that are ready."""
        ready: dict[str, Object] = {}
        for pod in found:
            name = pod["metadata"]["name"]
            if not pod["spec"].get("nodeName"):
                continue
            address = state.addresses.get(pods.machine_of(name))
            if self.behaviour.unavailable and name == CONTROLLER_POD:
                self.kube.set_status(pod, pods.waiting(pod, "CrashLoopBackOff", self.behaviour.unavailable))
            elif address and not self._early():
                self.kube.set_status(pod, pods.running(pod, address))
                ready[name] = pod
            else:
                self.kube.set_status(pod, pods.waiting(pod, "ContainerCreating", state.busy))
        return ready

    def _early(self) -> bool:
        """Return whether the cluster is still being reconciled, as far as time goes."""
        if self.cluster["status"]["phase"] == AVAILABLE:
            return False
        return not self.memory.waited(self.wanted.name, "up", self.behaviour.phase_seconds)

    def _service(self, state: State, ready: Mapping[str, Object]) -> None:
        name = login_service(self.wanted.name)
        service = self.kube.get("v1", "Service", name, self.wanted.name)
        asked = _service(name, self.wanted)
        if service is None or _described(service) != _described(asked):
            service = self.kube.apply(asked)
        login = next((name for name in ready if name.startswith(f"{pods.LOGIN}-")), "")
        self.memory.login_address = state.addresses.get(login, "")
        if self.wanted.service_type == "LoadBalancer" and login:
            address = {"ip": self.memory.login_address, "ipMode": "VIP"}
            self.kube.set_status(service, {"loadBalancer": {"ingress": [address]}})

    def _nodesets(self, ready: Mapping[str, Object]) -> None:
        for nodeset in self.kube.list(SETS_API, "NodeSet", self.wanted.name):
            name = nodeset["metadata"]["name"]
            asked = [pod for pod, _, of in pods.rows(self.wanted) if of == name]
            count = sum(pod in ready for pod in asked)
            whole = count == len(asked)
            condition = _condition("PodsReady", ok=whole, reason="Ready" if whole else "Waiting")
            self.kube.set_status(
                nodeset,
                {
                    "phase": "Ready" if whole else "Provisioning",
                    "replicas": count,
                    "observedGeneration": nodeset["metadata"]["generation"],
                    "conditions": _dated([condition], nodeset),
                },
            )

    def _phase(self, ready: Mapping[str, Object], state: State) -> None:
        core = [name for name, role, _ in pods.rows(self.wanted) if role != "worker"]
        lacking = [name for name in core if name not in ready]
        if self.behaviour.unavailable or state.problem:
            self._status(UNAVAILABLE, self.behaviour.unavailable or state.problem, ready)
        elif self.behaviour.never or lacking:
            self._status(RECONCILING, state.busy or f"waiting for {', '.join(lacking[:5])}", ready)
        else:
            self._status(AVAILABLE, "", ready)

    def _status(self, phase: str, why: str, ready: Mapping[str, Object] | None = None) -> None:
        ready = ready or {}
        logins = sum(name.startswith(f"{pods.LOGIN}-") for name in ready)
        ok = {
            "CommonAvailable": phase != PENDING,
            "ControllersAvailable": CONTROLLER_POD in ready and phase != UNAVAILABLE,
            "LoginAvailable": logins == self.wanted.login and logins > 0,
            "AccountingAvailable": pods.ACCOUNTING in ready,
            "SConfigControllerAvailable": CONTROLLER_POD in ready,
            "NodeSetRefsResolved": True,
        }
        kinds = [*_CONDITIONS, *(["AccountingAvailable"] if self.wanted.accounting else [])]
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
    """The conditions with the time of their last change of status."""
    before = {condition["type"]: condition for condition in owner.get("status", {}).get("conditions") or ()}
    moment = pods.now()
    for condition in conditions:
        old = before.get(condition["type"], {})
        same = old.get("status") == condition["status"]
        condition["lastTransitionTime"] = str(old.get("lastTransitionTime", moment)) if same else moment
    return conditions


def _service(name: str, wanted: Wanted) -> Object:
    port: dict[str, Any] = {"name": "ssh", "port": 22, "targetPort": 22, "protocol": "TCP"}
    if wanted.service_type == "NodePort":
        port["nodePort"] = wanted.node_port
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": wanted.name, "annotations": dict(wanted.annotations)},
        "spec": {"type": wanted.service_type, "selector": {"app.kubernetes.io/component": "login"}, "ports": [port]},
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
    """ActiveChecks have run once."""
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
    """Return whether the operator's Deployment was scaled to nothing, as before a cluster is destroyed."""
    found = kube.list("apps/v1", "Deployment", OPERATOR_NAMESPACE)
    return bool(found) and not any(nodeset["spec"].get("replicas", 1) for nodeset in found)


def _leave(kube: Kube) -> None:
    """Remove what belonged to a SlurmCluster that was deleted."""
    for pod in kube.list("v1", "Pod", labels=pods.SLURM):
        kube.delete(pod)
        namespace = pod["metadata"]["namespace"]
        for api, kind, name in (
            ("v1", "Service", login_service(namespace)),
            ("batch/v1", "Job", populate_job(namespace)),
        ):
            there = kube.get(api, kind, name, namespace)
            if there:
                kube.delete(there)


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
        self._memory = Memory()
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
        converge_cluster(
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
