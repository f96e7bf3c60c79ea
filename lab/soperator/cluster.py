"""A SlurmCluster with its NodeSets and ActiveChecks: Job, pods, Service, statuses."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from lab.soperator import pods
from lab.soperator.kube import Kube, Object
from lab.soperator.wanted import Behaviour, Machines, State, Wanted, wanted

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


def converge(
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
