"""Waits of `up`: for Kubernetes' API server and nodes, Soperator's SlurmCluster, Slurm's nodes, the login address."""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.dynamic import CreateResult, UpdateResult

from cluster.observe.nodes import NODES, Node, parse_nodes
from cluster.platforms.nebius import login_address
from cluster.platforms.nebius.kubectl import selector
from cluster.platforms.nebius.names import (
    AVAILABLE,
    CONTROLLER_POD,
    GPU,
    NODE_GROUP_LABEL,
    NODE_SETS,
    SENTINEL,
    SLURM_CLUSTERS,
    login_service,
    populate_job,
)
from components.dynamic import ActionProvider, DynamicResource, given, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError, pod_of
from scripts.node.slurm.output import rows

REPEAT_SECONDS = 60
"""How often an unchanged state is reported again."""
_CREDENTIAL = ("getting credentials", "exec plugin", "You must be logged in", "(Unauthorized)")


class Poll:
    """Deadline, pace and progress of one wait."""

    def __init__(self, seconds: float, pace: float) -> None:
        self._end, self._pace = time.monotonic() + seconds, pace
        self._shown, self._again = "", 0.0

    @property
    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self._end - time.monotonic()

    def pause(self, state: str, line: str) -> None:
        """Sleep until the next attempt. Reports `line` first, if `state` has changed or was reported a minute ago."""
        now = time.monotonic()
        if state != self._shown or now > self._again:
            self._shown, self._again = state, now + REPEAT_SECONDS
            report(line)
        time.sleep(min(self._pace, max(self._end - now, 0.01)))


class WaitError(RuntimeError):
    """A wait has failed; the text has what was missing, the objects that show why, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was found at one time."""

    done: bool = False
    text: str = ""
    """What is missing, in one line."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the wait was for, if it has a value."""
    failed: bool = False
    """Whether it will not come any more, so that waiting on is useless."""


def wait_for(
    what: str,
    look: Callable[[], Look],
    *,
    seconds: float,
    pace: float,
    limit: str = "",
    explain: Callable[[], str] = lambda: "",
    todo: str = "run `up` again to continue to wait",
) -> dict[str, Any]:
    """Look every `pace` seconds until it is done, and return its facts.

    What kubectl answers with an error counts as not yet there, but for a missing program or credential.
    Raises WaitError after `seconds`, which the stack file has as `limit`: with what was missing, `explain()`, and
    what to do.
    """
    poll = Poll(seconds, pace)
    while True:
        try:
            found = look()
        except KubectlError as error:
            _refuse_hopeless(what, error)
            found = Look(text=str(error))
        if found.done:
            return found.facts
        if found.failed or poll.left < 0:
            reason = (
                "failed" if found.failed else f"did not come within {seconds:.0f} s" + (f" ({limit})" if limit else "")
            )
            raise WaitError("\n".join(filter(None, [f"{what} {reason}: {found.text}", explain(), f"to do: {todo}"])))
        poll.pause(found.text, f"waiting for {what}: {found.text}")


def _refuse_hopeless(what: str, error: KubectlError) -> None:
    text = str(error)
    if "is not installed" in text:
        raise WaitError(text)
    if any(one in text for one in _CREDENTIAL):
        raise WaitError(
            f"{what}: the credential command gives no credential that the API server accepts: {text}\n"
            "to do: run `./hpc nebius-token`, or the command of nebius.token_command where the stack file has one, by "
            "itself; it must print an ExecCredential"
        )


NEEDED = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "namespaces"),
)
"""API group and resource of what charts create that needs an administrator."""
API_SECONDS = 900


def wait_api(kubectl: Kubectl, _spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until everything of NEEDED may be created. Raises WaitError."""
    return wait_for(
        "Kubernetes' API server",
        lambda: api_state(kubectl),
        seconds=limits["seconds"],
        pace=limits["pace"],
        todo="check that the account may edit the project, then run `up` again",
    )


def api_state(kubectl: Kubectl) -> Look:
    """Whether it answers, and what of NEEDED this account may not create yet."""
    for group, resource in NEEDED:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "create"}},
        }
        answer = json.loads(kubectl.run("create", "--filename=-", "--output=json", stdin=json.dumps(review)))
        if not answer["status"].get("allowed"):
            return Look(text=f"this account may not create {resource} yet: RBAC has not spread")
    return Look(done=True)


_SHOWN_NODES = 5


def wait_nodes(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for `groups`: rows of name, id, count (nodes at least) and gpus (of each node). Raises WaitError."""
    groups = spec["groups"]
    wanted = int(sum(row["count"] for row in groups))
    return wait_for(
        f"{wanted} Kubernetes nodes",
        lambda: nodes_state(groups, kubectl.items("nodes")),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.available",
        explain=lambda: _group_events(kubectl, groups),
        todo="nodes that are missing: see the node group's events and quotas in Nebius's console; nodes without GPUs: "
        "see the pods of the GPU operator (namespace gpu-operator), or choose another nebius.gpu.driver; then `up`",
    )


def nodes_state(groups: Sequence[Mapping[str, Any]], nodes: Sequence[Mapping[str, Any]]) -> Look:
    """What of the groups is missing. A pure function."""
    missing = [text for row in groups for text in _missing(row, nodes)]
    return Look(
        done=not missing, text="; ".join(missing[:_SHOWN_NODES]) + (" ..." if len(missing) > _SHOWN_NODES else "")
    )


def _missing(group: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    own = [node for node in nodes if node["metadata"].get("labels", {}).get(NODE_GROUP_LABEL) == group["id"]]
    ready = [node for node in own if _ready(node) is None]
    texts: list[str] = []
    if len(ready) < group["count"]:
        why = "; ".join(f"{node['metadata']['name']}: {_ready(node)}" for node in own if _ready(node))[:300]
        texts.append(
            f"{group['name']}: {len(ready)} of {group['count']:.0f} nodes are Ready" + (f" ({why})" if why else "")
        )
    if group["gpus"]:
        few = [node for node in ready if int(node["status"].get("allocatable", {}).get(GPU, 0)) != group["gpus"]]
        if few:
            names = ", ".join(
                f"{node['metadata']['name']} has {node['status'].get('allocatable', {}).get(GPU, 0)}"
                for node in few[:_SHOWN_NODES]
            )
            texts.append(f"{group['name']}: {len(few)} nodes do not advertise {group['gpus']:.0f} {GPU}: {names}")
    return texts


def _ready(node: Mapping[str, Any]) -> str | None:
    """Why a node is not Ready; None if it is."""
    for condition in node["status"].get("conditions", ()):
        if condition["type"] == "Ready":
            if condition["status"] == "True":
                return None
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return "has no condition Ready"


def _group_events(kubectl: Kubectl, groups: Sequence[Mapping[str, Any]]) -> str:
    """Events of pods that keep GPUs from being advertised."""
    if not any(row["gpus"] for row in groups):
        return ""
    lines = [
        f"  pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {pod['status'].get('phase')}"
        for pod in kubectl.items("pods", "--namespace=gpu-operator")
        if pod["status"].get("phase") not in ("Running", "Succeeded")
    ]
    return "\n".join(lines[:_SHOWN_NODES])


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
    return Look(
        text=f"phase {_phase(found) or 'none yet'}" + "".join(f"; {condition}" for condition in _conditions(found))
    )


def wait_nodesets(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until each NodeSet of `replicas` (by name) has as many as it should. Raises WaitError."""
    wanted = {name: int(count) for name, count in spec["replicas"].items()}
    return wait_for(
        f"{len(wanted)} NodeSets",
        lambda: nodesets_state(wanted, kubectl.items(NODE_SETS)),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit=LIMIT,
        explain=lambda: _indented(_pods(kubectl)),
        todo="pods that are Pending need nodes: see their events (kubectl describe pod); then run `up` again",
    )


def nodesets_state(wanted: Mapping[str, int], found: Sequence[Mapping[str, Any]]) -> Look:
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


LEAVES, REMADE = "hpc: leaves the cluster", "hpc: its machine is recreated"
"""Reasons of drained nodes, as on machines (scripts/node/slurm/scheduler.py)."""
_SHOWN_SLURM = 8
_PARALLEL = 16
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")


def wait_scheduler(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait until `nodes` (GPUs of each, by name) take jobs; nodes of `nodesets` that have left are deleted from Slurm.

    A node that was drained counts as there, with a warning: its reason says who acts. `count_gpus`: whether GPUs are
    counted inside the jail too. Raises WaitError.
    """
    wanted = {name: int(gpus) for name, gpus in spec["nodes"].items()}
    facts = wait_for(
        f"{len(wanted)} Slurm nodes",
        lambda: _scheduler_state(kubectl, wanted, spec["nodesets"]),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.available",
        todo="`scontrol show node NAME` and the log of its pod (container slurmd) show why; then run `up` again",
    )
    for line in facts.pop("drained"):
        report(line)
    if spec.get("count_gpus"):
        _count_gpus(kubectl, {name: gpus for name, gpus in wanted.items() if gpus}, limits)
    return {}


def _scheduler_state(kubectl: Kubectl, wanted: Mapping[str, int], nodesets: Sequence[str]) -> Look:
    if not _is_populated(kubectl):
        return Look(text=f"the jail has no {SENTINEL}: it is not populated")
    text = LOGIN.run(kubectl, *NODES.split())
    found = parse_nodes(text)
    left = sorted(name for name, node in found.items() if _has_left(node, wanted, nodesets))
    for name in left:
        report(f"{name} has left the cluster: deleting it from Slurm")
        LOGIN.run(kubectl, "scontrol", "delete", f"NodeName={name}")
    resume(kubectl, (found[name] for name in wanted if name in found))
    return scheduler_state(
        wanted, found, {row["NodeName"]: row.get("Gres", "") for row in rows(text) if "NodeName" in row}
    )


def resume(kubectl: Kubectl, nodes: Iterable[Node]) -> None:
    """Resume those of the nodes that were drained here."""
    for node in nodes:
        if node.drained and node.reason in (LEAVES, REMADE):
            LOGIN.run(kubectl, "scontrol", "update", f"NodeName={node.name}", "State=RESUME")
            report(f"resumed {node.name}")


def scheduler_state(wanted: Mapping[str, int], found: Mapping[str, Node], gres: Mapping[str, str]) -> Look:
    """Which of the nodes are missing, do not take jobs, or have other GPUs. A pure function."""
    why: list[str] = []
    drained: list[str] = []
    for name, gpus in wanted.items():
        node = found.get(name)
        if node is None:
            why.append(f"{name} has not registered")
        elif node.drained and not node.down:
            drained.append(f"{name} is {node.word}: {node.reason} ({node.by}). `./hpc nodes STACK` says who must act")
        elif not node.fine:
            why.append(f"{name} is {node.word}" + (f": {node.reason}" if node.reason else ""))
        elif _gpus(gres.get(name, "")) != gpus:
            why.append(f"{name} has {_gpus(gres.get(name, ''))} GPUs in Slurm, not {gpus}")
    more = f" and {len(why) - _SHOWN_SLURM} more" if len(why) > _SHOWN_SLURM else ""
    return Look(done=not why, text="; ".join(why[:_SHOWN_SLURM]) + more, facts={"drained": drained})


def _gpus(gres: str) -> int:
    """GPUs in `gpu:nvidia_h100_80gb_hbm3:8(S:0-1),...`."""
    return sum(int(count) for count in _GPUS.findall(gres.replace("(null)", "")))


def _has_left(node: Node, wanted: Mapping[str, int], nodesets: Sequence[str]) -> bool:
    """Whether a node of ours has no pod any more: slurmctld keeps dynamic nodes that never come back."""
    nodeset, _, index = node.name.rpartition("-")
    return nodeset in nodesets and index.isdigit() and node.name not in wanted and (node.down or node.silent)


def _is_populated(kubectl: Kubectl) -> bool:
    return LOGIN.run(kubectl, "sh", "-c", f"test -e {SENTINEL} && echo yes || echo no").strip() == "yes"


def _count_gpus(kubectl: Kubectl, wanted: Mapping[str, int], limits: Mapping[str, Any]) -> None:
    """Compare what `nvidia-smi` lists in each node's jail: a library that a race has truncated shows here."""

    def count(name: str) -> str:
        try:
            listed = pod_of(name, ("node",)).run(kubectl, "nvidia-smi", "--list-gpus")
        except KubectlError as error:
            return f"{name}: {error}"
        found = sum(line.startswith("GPU ") for line in listed.splitlines())
        return "" if found == wanted[name] else f"{name} has {found} of {wanted[name]} GPUs in its jail"

    def look() -> Look:
        with ThreadPoolExecutor(_PARALLEL) as pool:
            wrong = [text for text in pool.map(count, wanted) if text]
        return Look(done=not wrong, text="; ".join(wrong[:_SHOWN_SLURM]))

    if wanted:
        wait_for(
            "GPUs in the jail",
            look,
            seconds=min(limits["seconds"], 600),
            pace=limits["pace"],
            todo="delete the worker pods that are named (kubectl delete pod), which Soperator creates again; Soperator "
            "before 4.1.4 needs a newer nebius.soperator.version; if libnvidia-ml.so is not found, run ldconfig in the "
            "jail; then run `up` again",
        )


def wait_login(kubectl: Kubectl, spec: Mapping[str, Any], limits: Mapping[str, Any]) -> dict[str, Any]:
    """Wait for the Service and its address: facts `address` and `port`. Raises WaitError with its last events."""
    name = login_service(spec["cluster"])
    return wait_for(
        f"the address of Service {name}",
        lambda: _login_state(kubectl, name),
        seconds=limits["seconds"],
        pace=limits["pace"],
        limit="nebius.timeouts.login",
        todo="in a project without public addresses set nebius.login.exposure: internal; otherwise check the quotas of "
        "public addresses and load balancers, then run `up` again",
    )


def _login_state(kubectl: Kubectl, name: str) -> Look:
    service = kubectl.object("service", name)
    if service is None:
        return Look(text="Soperator has not created it yet")
    balanced = service["spec"].get("type") == "LoadBalancer"
    found = login_address.address(service, () if balanced else kubectl.items("nodes", login_address.NODES[0]))
    if found:
        return Look(done=True, facts={"address": found[0], "port": found[1]})
    return Look(text=login_address.missing(service, kubectl.items("events", selector("Service", name))))


KINDS: Mapping[str, Callable[[Kubectl, Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]] = {
    "api": wait_api,
    "nodes": wait_nodes,
    "populated": wait_populated,
    "available": wait_available,
    "nodesets": wait_nodesets,
    "scheduler": wait_scheduler,
    "login": wait_login,
}
"""What can be waited for. Each takes kubectl, the specification, and the limits: `seconds` and `pace`."""


class WaitProvider(ActionProvider):
    """Waits, and changes nothing but nodes that have left Slurm."""

    ACTED_ON = ("kind", "access", "spec", "after")
    """Inputs whose change is waited for again. The others are limits."""

    def create(self, props: dict[str, Any]) -> CreateResult:
        """Wait. An interrupted one waits again."""
        return CreateResult(f"{props['access']['context']}/{props['kind']}", _waited(props))

    def update(self, _id: str, _olds: dict[str, Any], _news: dict[str, Any]) -> UpdateResult:
        """Wait again."""
        return UpdateResult(_waited(_news))


def _waited(props: dict[str, Any]) -> dict[str, Any]:
    with without_traceback(WaitError), Kubectl(props["access"]) as kubectl:
        facts = KINDS[props["kind"]](kubectl, props["spec"], props)
    return {**given(props), "facts": facts}


class Wait(DynamicResource, module="nebius", name="Wait"):
    """A wait for something of a cluster."""

    facts: pulumi.Output[dict[str, Any]]

    def __init__(
        self,
        kind: str,
        name: str,
        *,
        access: pulumi.Input[Mapping[str, Any]],
        spec: pulumi.Input[Mapping[str, Any]],
        seconds: int,
        pace: float,
        after: pulumi.Input[str] = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`kind` is one of KINDS; `after` changes whenever it has to be waited again; `seconds` is the deadline."""
        props: dict[str, Any] = {
            "kind": kind,
            "access": access,
            "spec": spec,
            "after": after,
            "seconds": seconds,
            "pace": pace,
            "facts": None,
        }
        super().__init__(WaitProvider(), name, props, opts)
