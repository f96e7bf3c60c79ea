"""Soperator has brought up the SlurmCluster: the jail is populated, its phase is Available, its NodeSets are full."""

from collections.abc import Mapping, Sequence
from typing import Any

from cluster.platforms.nebius.names import AVAILABLE, CONTROLLER_POD, NODE_SETS, SLURM_CLUSTERS, populate_job
from components.nebius.kubernetes.kubectl import Kubectl, KubectlError
from components.nebius.waits.poll import Look, wait_for

LIMIT = "nebius.timeouts.available"
_LOG_LINES = 15
_SHOWN = 8


def wait_populated(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the Job that populates the jail is complete. Raises WaitError with the end of its log."""
    job = populate_job(spec["cluster"])
    return wait_for(
        f"Job {job}",
        lambda: _populated(kubectl, spec["cluster"], job),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit=LIMIT,
        explain=lambda: _log(kubectl, f"job/{job}") or _indented(kubectl.events("Job", job)),
        todo=f"delete the Job, which Soperator then creates again (kubectl delete job {job}), and run `up` again",
    )


def _populated(kubectl: Kubectl, cluster: str, job: str) -> Look:
    found = kubectl.object("job", job)
    if found is None:
        # Soperator deletes it some time after it has ended, and starts nothing before that.
        state = _cluster(kubectl, cluster)
        return Look(
            done=state is not None and _phase(state) == AVAILABLE,
            text="the SlurmCluster is not there" if state is None else "Soperator has not created it yet",
        )
    conditions = {one["type"]: one for one in found["status"].get("conditions", ())}
    if _true(conditions.get("Complete")):
        return Look(done=True)
    if _true(conditions.get("Failed")):
        failed = conditions["Failed"]
        return Look(failed=True, text=f"{failed.get('reason', '')}: {failed.get('message', '')}")
    return Look(text=f"{found['status'].get('active', 0)} of its pods run, {found['status'].get('failed', 0)} failed")


def wait_available(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until the SlurmCluster's phase is Available. Raises WaitError with its conditions and pods."""
    name = spec["cluster"]
    return wait_for(
        f"SlurmCluster {name}",
        lambda: _available(kubectl, name),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit=LIMIT,
        explain=lambda: _explained(kubectl, name),
        todo=f"kubectl describe slurmcluster {name} --namespace={name} shows what it waits for; then run `up` again",
    )


def _available(kubectl: Kubectl, name: str) -> Look:
    found = _cluster(kubectl, name)
    if found is None:
        return Look(text="it is not there")
    if _phase(found) == AVAILABLE:
        return Look(done=True)
    return Look(text=f"phase {_phase(found) or 'none yet'}" + "".join(f"; {one}" for one in _conditions(found)))


def wait_nodesets(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until each NodeSet of `replicas` (by name) has as many as it should. Raises WaitError."""
    wanted = {name: int(count) for name, count in spec["replicas"].items()}
    return wait_for(
        f"{len(wanted)} NodeSets",
        lambda: nodesets(wanted, kubectl.items(NODE_SETS)),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit=LIMIT,
        explain=lambda: _indented(_pods(kubectl)),
        todo="pods that are Pending need nodes: see their events (kubectl describe pod); then run `up` again",
    )


def nodesets(wanted: Mapping[str, int], found: Sequence[Mapping[str, Any]]) -> Look:
    """Which NodeSets are not full. A pure function."""
    has = {
        one["metadata"]["name"]: (
            int(one.get("status", {}).get("replicas", 0)),
            int(one["spec"].get("replicas", 0)),
        )
        for one in found
    }
    missing = [
        f"{name} has {has[name][0]} of {count} pods" if name in has else f"{name} is not there"
        for name, count in wanted.items()
        if has.get(name) != (count, count)
    ]
    return Look(done=not missing, text="; ".join(missing[:_SHOWN]))


def _cluster(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    try:
        return kubectl.object(SLURM_CLUSTERS, name)
    except KubectlError as error:
        if error.not_found:
            return None
        raise


def _phase(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("status", {}).get("phase") or "")


def _conditions(cluster: Mapping[str, Any]) -> list[str]:
    """Conditions that are not true."""
    return [
        f"{one['type']}={one['status']} ({': '.join(filter(None, [one.get('reason'), one.get('message')]))})"
        for one in cluster.get("status", {}).get("conditions", ())
        if one["status"] != "True"
    ]


def _explained(kubectl: Kubectl, name: str) -> str:
    lines = _pods(kubectl)
    text = _indented(lines)
    if any(line.startswith(CONTROLLER_POD) for line in lines):
        text += "\n" + _log(kubectl, f"pod/{CONTROLLER_POD}", "--container=slurmctld")
    return text + _indented(kubectl.events("SlurmCluster", name))


def _pods(kubectl: Kubectl) -> list[str]:
    """Pods that are not ready, with the reason."""
    found: list[str] = []
    for pod in kubectl.items("pods"):
        status = pod["status"]
        if status.get("phase") == "Succeeded" or _true(_condition(status, "Ready")):
            continue
        waiting = [
            f"{one['name']}: {state.get('reason', '')} {state.get('message', '')}".strip()
            for one in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
            if (state := one.get("state", {}).get("waiting"))
        ]
        unscheduled = _condition(status, "PodScheduled") or {}
        if unscheduled.get("status") == "False":
            waiting.append(f"{unscheduled.get('reason', '')}: {unscheduled.get('message', '')}")
        found.append(f"{pod['metadata']['name']}: {status.get('phase')} {'; '.join(waiting)}".rstrip())
    return found[:_SHOWN] + ([f"and {len(found) - _SHOWN} more pods"] if len(found) > _SHOWN else [])


def _condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    return next((one for one in status.get("conditions", ()) if one["type"] == kind), None)


def _true(condition: Mapping[str, Any] | None) -> bool:
    return condition is not None and condition["status"] == "True"


def _log(kubectl: Kubectl, of: str, *arguments: str) -> str:
    """The end of a log; empty where there is none."""
    try:
        text = kubectl.run("logs", of, *arguments, f"--tail={_LOG_LINES}")
    except KubectlError:
        return ""
    return _indented(text.rstrip().splitlines())


def _indented(lines: Sequence[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)
