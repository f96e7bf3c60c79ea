"""Waits of `up`: for Kubernetes' API server and nodes, Soperator's SlurmCluster, Slurm's nodes, the login address.

KINDS is the table of all that is waited for.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pulumi

from cluster.observe.nodes import NODES, Node, parse_nodes
from cluster.platforms.nebius.kubectl import LOGIN_NODES, login_address, selector, why_no_login_address
from cluster.platforms.nebius.names import (
    AVAILABLE,
    CONTROLLER_POD,
    GPU,
    NODE_GROUP_LABEL,
    NODE_SETS,
    POWER_STATES,
    SENTINEL,
    SLURM_CLUSTERS,
    login_service,
    populate_job,
)
from cluster.platforms.nebius.observation import conditions, pods
from components.dynamic import Action, ActionProvider, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError, pod_of
from components.nebius.poll import Poll
from scripts.node.slurm.output import rows

API_SECONDS = 900
GPU_SECONDS = 600
LEAVES, REMADE = "hpc: leaves the cluster", "hpc: its machine is recreated"
"""Reasons of drained nodes, as on machines (scripts/node/slurm/scheduler.py)."""
NEEDED = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "namespaces"),
)
"""API group and resource of what charts create that needs an administrator."""
_CREDENTIAL = ("getting credentials", "exec plugin", "You must be logged in", "(Unauthorized)")
_LOG_LINES = 15
_SHOWN = 8
_PARALLEL = 16
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,()]+)?:([0-9]+)")

Spec = Mapping[str, Any]


class WaitError(RuntimeError):
    """A wait has failed; the text has what was missing, the objects that show why, and what to do."""


@dataclass(frozen=True)
class Look:
    """The state that was found at one time."""

    text: str = ""
    """The missing objects, in one line."""
    done: bool = False
    failed: bool = False
    """True if it will not come any more, so that waiting on is useless."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The result of the wait, if it has a value."""


@dataclass(frozen=True)
class Awaited:
    """An object that is waited for, and what an error says of it."""

    what: str
    look: Callable[[], Look]
    todo: str = "run `up` again to continue to wait"
    explain: Callable[[], str] = lambda: ""
    """Lines that show why it did not come."""
    limit: str = "nebius.timeouts.available"
    """The field of the stack file that has the deadline, if one has."""
    most: float = float("inf")
    """Seconds that it is waited for at most."""


def wait_for(awaited: Awaited, seconds: float, pace: float) -> dict[str, Any]:
    """Look every `pace` seconds until it is done, and return its facts.

    What kubectl answers with an error counts as not yet there, but for a missing program or credential.
    Raises WaitError after `seconds`: with what was missing, why, and what to do.
    """
    seconds = min(seconds, awaited.most)
    poll = Poll(seconds, pace)
    while True:
        try:
            found = awaited.look()
        except KubectlError as error:
            _refuse_hopeless(awaited.what, error)
            found = Look(str(error))
        if found.done:
            return found.facts
        if found.failed or poll.left < 0:
            late = f"did not come within {seconds:.0f} s" + (f" ({awaited.limit})" if awaited.limit else "")
            first = f"{awaited.what} {'failed' if found.failed else late}: {found.text}"
            raise WaitError("\n".join(filter(None, [first, awaited.explain(), f"to do: {awaited.todo}"])))
        poll.pause(found.text, f"waiting for {awaited.what}: {found.text}")


def _refuse_hopeless(what: str, error: KubectlError) -> None:
    text = str(error)
    if "is not installed" in text:
        raise WaitError(text)
    if any(sign in text for sign in _CREDENTIAL):
        raise WaitError(
            f"{what}: the credential command gives no credential that the API server accepts: {text}\n"
            "to do: run `./hpc nebius-token`, or the command of nebius.token_command where the stack file has one, by "
            "itself; it must print an ExecCredential"
        )


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def api_server(kubectl: Kubectl, _spec: Spec) -> Awaited:
    """The API server, which lets this account create everything of NEEDED."""
    todo = "check that the account may edit the project, then run `up` again"
    return Awaited("Kubernetes' API server", partial(_api_state, kubectl), todo, limit="")


def _api_state(kubectl: Kubectl) -> Look:
    for group, resource in NEEDED:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "create"}},
        }
        answer = json.loads(kubectl.run("create", "--filename=-", "--output=json", stdin=json.dumps(review)))
        if not answer["status"].get("allowed"):
            return Look(f"this account may not create {resource} yet: RBAC has not spread")
    return Look(done=True)


def kubernetes_nodes(kubectl: Kubectl, spec: Spec) -> Awaited:
    """Nodes of `groups`: rows of name, id, count (nodes at least) and gpus (of each node)."""
    groups = spec["groups"]
    return Awaited(
        f"{sum(int(group['count']) for group in groups)} Kubernetes nodes",
        lambda: nodes_state(groups, kubectl.items("nodes")),
        "nodes that are missing: see the node group's events and quotas in Nebius's console; nodes without GPUs: "
        "see the pods of the GPU operator (namespace gpu-operator), or choose another nebius.gpu.driver; then `up`",
        lambda: _indented(_driver_pods(kubectl)) if any(group["gpus"] for group in groups) else "",
    )


def nodes_state(groups: Sequence[Spec], nodes: Sequence[Mapping[str, Any]]) -> Look:
    """Compare nodes with what the groups should have. A pure function."""
    missing = [text for group in groups for text in _missing(group, nodes)]
    return Look(_listed(missing), done=not missing)


def _missing(group: Spec, nodes: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    own = [node for node in nodes if node["metadata"].get("labels", {}).get(NODE_GROUP_LABEL) == group["id"]]
    why = {node["metadata"]["name"]: _why_not_ready(node) for node in own}
    ready = [node for node in own if not why[node["metadata"]["name"]]]
    if len(ready) < group["count"]:
        reasons = "; ".join(f"{name}: {text}" for name, text in why.items() if text)[:300]
        yield (
            f"{group['name']}: {len(ready)} of {group['count']:.0f} nodes are Ready"
            + (f" ({reasons})" if reasons else "")
        )
    gpus = {node["metadata"]["name"]: node["status"].get("allocatable", {}).get(GPU, 0) for node in ready}
    few = [f"{name} has {count}" for name, count in gpus.items() if int(count) != group["gpus"]]
    if group["gpus"] and few:
        shown = ", ".join(few[:_SHOWN])
        yield f"{group['name']}: {len(few)} nodes do not advertise {group['gpus']:.0f} {GPU}: {shown}"


def _why_not_ready(node: Mapping[str, Any]) -> str:
    found = [condition for condition in conditions(node) if condition.type == "Ready"]
    if not found:
        return "has no condition Ready"
    return "" if found[0].status == "True" else f"{found[0].reason}: {found[0].message}"


def _driver_pods(kubectl: Kubectl) -> list[str]:
    lines = [
        f"pod {pod['metadata']['namespace']}/{pod['metadata']['name']}: {pod['status'].get('phase')}"
        for pod in kubectl.items("pods", "--namespace=gpu-operator")
        if pod["status"].get("phase") not in ("Running", "Succeeded")
    ]
    return lines[:_SHOWN]


def populated_jail(kubectl: Kubectl, spec: Spec) -> Awaited:
    """The completion of the Job that populates the jail of `cluster`; an error has the end of its log."""
    job = populate_job(spec["cluster"])
    return Awaited(
        f"Job {job}",
        partial(_populated, kubectl, spec["cluster"], job),
        f"delete the Job, which Soperator then creates again (kubectl delete job {job}), and run `up` again",
        lambda: _log(kubectl, f"job/{job}") or _indented(kubectl.events("Job", job)),
    )


def _populated(kubectl: Kubectl, cluster: str, job: str) -> Look:
    found = kubectl.object("job", job)
    if found is None:
        # Soperator deletes it some time after it has ended, and starts nothing before that.
        slurm = _slurm_cluster(kubectl, cluster)
        missing = "the SlurmCluster is not there" if slurm is None else "Soperator has not created it yet"
        return Look(missing, done=slurm is not None and _phase(slurm) == AVAILABLE)
    ended = {condition.type: condition for condition in conditions(found) if condition.status == "True"}
    if failed := ended.get("Failed"):
        return Look(f"{failed.reason}: {failed.message}", failed=True)
    status = found["status"]
    pods_of_job = f"{status.get('active', 0)} of its pods run, {status.get('failed', 0)} failed"
    return Look(pods_of_job, done="Complete" in ended)


def available_cluster(kubectl: Kubectl, spec: Spec) -> Awaited:
    """The phase Available of the SlurmCluster `cluster`; an error has its conditions and pods."""
    name = spec["cluster"]
    return Awaited(
        f"SlurmCluster {name}",
        partial(_available, kubectl, name),
        f"kubectl describe slurmcluster {name} --namespace={name} shows what it waits for; then run `up` again",
        lambda: _why_unavailable(kubectl, name),
    )


def _available(kubectl: Kubectl, name: str) -> Look:
    found = _slurm_cluster(kubectl, name)
    if found is None:
        return Look("it is not there")
    bad = [
        f"; {condition.type}={condition.status} ({': '.join(filter(None, [condition.reason, condition.message]))})"
        for condition in conditions(found)
        if condition.status != "True"
    ]
    return Look(f"phase {_phase(found) or 'none yet'}{''.join(bad)}", done=_phase(found) == AVAILABLE)


def _slurm_cluster(kubectl: Kubectl, name: str) -> dict[str, Any] | None:
    try:
        return kubectl.object(SLURM_CLUSTERS, name)
    except KubectlError as error:
        if error.not_found:
            return None
        raise


def _phase(cluster: Mapping[str, Any]) -> str:
    return str(cluster.get("status", {}).get("phase") or "")


def _why_unavailable(kubectl: Kubectl, name: str) -> str:
    lines = _pods(kubectl)
    text = _indented(lines)
    if any(line.startswith(CONTROLLER_POD) for line in lines):
        text += "\n" + _log(kubectl, f"pod/{CONTROLLER_POD}", "--container=slurmctld")
    return text + _indented(kubectl.events("SlurmCluster", name))


def full_nodesets(kubectl: Kubectl, spec: Spec) -> Awaited:
    """NodeSets of `replicas` (by name), each with as many pods as it should have; those of `most`, with the most that
    they may have, are elastic, and have these at least."""
    wanted = {name: int(count) for name, count in spec["replicas"].items()}
    most = {name: int(count) for name, count in spec.get("most", {}).items()}
    return Awaited(
        f"{len(wanted)} NodeSets",
        partial(_full, kubectl, wanted, most),
        "pods that are Pending need nodes: see their events (kubectl describe pod); then run `up` again",
        lambda: _indented(_pods(kubectl)),
    )


def _full(kubectl: Kubectl, wanted: Mapping[str, int], most: Mapping[str, int]) -> Look:
    found = nodesets_state(wanted, kubectl.items(NODE_SETS), most)
    for state in kubectl.items(POWER_STATES) if most else ():
        name, active = state["metadata"]["name"], state["spec"].get("activeNodes") or []
        if name in most and (nodes := powered(active, wanted[name], most[name])) != sorted(active):
            # With the version that was read: Slurm's power programs change it too.
            version = state["metadata"]["resourceVersion"]
            patch = {"metadata": {"resourceVersion": version}, "spec": {"activeNodes": nodes}}
            kubectl.run("patch", POWER_STATES, name, "--type=merge", f"--patch={json.dumps(patch)}")
            report(f"nodeset {name}: static nodes are powered up, and nodes that it has no more are powered down")
    return found


def powered(active: Iterable[int], static: int, most: int) -> list[int]:
    """Numbers of an elastic nodeset's nodes that have to be up: those that are, the static ones, and none beyond the
    last. Soperator reads the number of static nodes once, and keeps pods of nodes that a nodeset has no more."""
    return sorted({*active, *range(static)} & {*range(most)})


def nodesets_state(
    wanted: Mapping[str, int], found: Sequence[Mapping[str, Any]], most: Mapping[str, int] | None = None
) -> Look:
    """Compare NodeSets with the pods that they should have; those of `most` may have more. A pure function."""
    most = most or {}
    has = {
        nodeset["metadata"]["name"]: (
            int(nodeset.get("status", {}).get("replicas", 0)),
            int(nodeset["spec"].get("replicas", 0)),
        )
        for nodeset in found
    }
    missing = [
        f"{name} has {has[name][0]} of {count} pods" if name in has else f"{name} is not there"
        for name, count in wanted.items()
        if name not in has or has[name][1] != most.get(name, count) or not count <= has[name][0] <= has[name][1]
    ]
    return Look(_listed(missing), done=not missing)


def _pods(kubectl: Kubectl) -> list[str]:
    found = [
        f"{pod.name}: {pod.phase} {': '.join(filter(None, [pod.container, pod.why]))}".rstrip()
        for pod in pods(kubectl.items("pods"), ())
        if not pod.ready
    ]
    return found[:_SHOWN] + ([f"and {len(found) - _SHOWN} more pods"] if len(found) > _SHOWN else [])


def _log(kubectl: Kubectl, of: str, *arguments: str) -> str:
    try:
        text = kubectl.run("logs", of, *arguments, f"--tail={_LOG_LINES}")
    except KubectlError:
        return ""
    return _indented(text.rstrip().splitlines())


def slurm_nodes(kubectl: Kubectl, spec: Spec) -> Awaited:
    """Nodes of `nodes` (GPUs of each, by name) that take jobs; those of `nodesets` that have left are deleted from
    Slurm. A node that was drained counts as there, with a warning: its reason says who acts. Nodes of `elastic` (names)
    may sleep."""
    wanted = {name: int(gpus) for name, gpus in spec["nodes"].items()}
    return Awaited(
        f"{len(wanted)} Slurm nodes",
        partial(_scheduler, kubectl, wanted, spec["nodesets"], spec.get("elastic", ())),
        "`scontrol show node NAME` and the log of its pod (container slurmd) show why; then run `up` again",
    )


def _scheduler(
    kubectl: Kubectl, wanted: Mapping[str, int], nodesets: Sequence[str], elastic: Sequence[str] = ()
) -> Look:
    if LOGIN.run(kubectl, "sh", "-c", f"test -e {SENTINEL} && echo yes || echo no").strip() != "yes":
        return Look(f"the jail has no {SENTINEL}: it is not populated")
    text = LOGIN.run(kubectl, *NODES.split())
    found = parse_nodes(text)
    known = {*wanted, *elastic}
    for name in sorted(name for name, node in found.items() if _has_left(node, known, nodesets)):
        report(f"{name} has left the cluster: deleting it from Slurm")
        LOGIN.run(kubectl, "scontrol", "delete", f"NodeName={name}")
    for name in sorted(known & found.keys()):
        if found[name].drained and found[name].reason in (LEAVES, REMADE):
            # An elastic node that left has no pod: Slurm resumes it once a job needs it.
            sleeps = name not in wanted and found[name].reason == LEAVES
            LOGIN.run(
                kubectl, "scontrol", "update", f"NodeName={name}", f"State={'POWER_DOWN' if sleeps else 'RESUME'}"
            )
            report(f"powered down {name}" if sleeps else f"resumed {name}")
    gres = {row["NodeName"]: row.get("Gres", "") for row in rows(text) if "NodeName" in row}
    look = scheduler_state(wanted, found, gres)
    for line in look.facts["drained"] if look.done else ():
        report(line)
    return Look(look.text, done=look.done)


def scheduler_state(wanted: Mapping[str, int], found: Mapping[str, Node], gres: Mapping[str, str]) -> Look:
    """Compare Slurm's nodes with those that should take jobs, and their GPUs. A pure function.

    The fact `drained` has a warning for each node that is drained.
    """
    why: list[str] = []
    drained: list[str] = []
    for name, gpus in wanted.items():
        node = found.get(name)
        # Such as gpu:nvidia_h100_80gb_hbm3:8(S:0-1).
        there = sum(int(count) for count in _GPUS.findall(gres.get(name, "").replace("(null)", "")))
        if node is None:
            why.append(f"{name} has not registered")
        elif node.drained and not node.down:
            drained.append(f"{name} is {node.word}: {node.reason} ({node.by}). `./hpc nodes STACK` says who must act")
        elif not node.ready:
            why.append(f"{name} is {node.word}" + (f": {node.reason}" if node.reason else ""))
        elif there != gpus:
            why.append(f"{name} has {there} GPUs in Slurm, not {gpus}")
    return Look(_listed(why), done=not why, facts={"drained": drained})


def _has_left(node: Node, wanted: Collection[str], nodesets: Sequence[str]) -> bool:
    """Return whether a node of ours has no pod any more: slurmctld keeps dynamic nodes that never come back."""
    nodeset, _, index = node.name.rpartition("-")
    return nodeset in nodesets and index.isdigit() and node.name not in wanted and (node.down or node.silent)


def jail_gpus(kubectl: Kubectl, spec: Spec) -> Awaited:
    """The GPUs of `nodes` inside their jails, if `count_gpus`: a library that a race has truncated shows here."""
    wanted = {name: int(gpus) for name, gpus in spec["nodes"].items() if gpus and spec.get("count_gpus")}
    return Awaited(
        "GPUs in the jail",
        partial(_counted_gpus, kubectl, wanted),
        "delete the worker pods that are named (kubectl delete pod), which Soperator creates again; Soperator "
        "before 4.1.4 needs a newer nebius.soperator.version; if libnvidia-ml.so is not found, run ldconfig in the "
        "jail; then run `up` again",
        limit="",
        most=GPU_SECONDS,
    )


def _counted_gpus(kubectl: Kubectl, wanted: Mapping[str, int]) -> Look:
    def count(name: str) -> str:
        try:
            listed = pod_of(name, ("node",)).run(kubectl, "nvidia-smi", "--list-gpus")
        except KubectlError as error:
            return f"{name}: {error}"
        found = sum(line.startswith("GPU ") for line in listed.splitlines())
        return "" if found == wanted[name] else f"{name} has {found} of {wanted[name]} GPUs in its jail"

    with ThreadPoolExecutor(_PARALLEL) as pool:
        wrong = [text for text in pool.map(count, wanted) if text]
    return Look(_listed(wrong), done=not wrong)


def login_service_address(kubectl: Kubectl, spec: Spec) -> Awaited:
    """The login Service of `cluster` with its address: facts `address` and `port`; an error has its last events."""
    name = login_service(spec["cluster"])
    return Awaited(
        f"the address of Service {name}",
        partial(_login_state, kubectl, name),
        "in a project without public addresses set nebius.login.exposure: internal; otherwise check the quotas of "
        "public addresses and load balancers, then run `up` again",
        limit="nebius.timeouts.login",
    )


def _login_state(kubectl: Kubectl, name: str) -> Look:
    service = kubectl.object("service", name)
    if service is None:
        return Look("Soperator has not created it yet")
    balanced = service["spec"].get("type") == "LoadBalancer"
    found = login_address(service, () if balanced else kubectl.items("nodes", LOGIN_NODES[0]))
    if found:
        return Look(done=True, facts={"address": found[0], "port": found[1]})
    return Look(why_no_login_address(service, kubectl.items("events", selector("Service", name))))


KINDS: Mapping[str, Sequence[Callable[[Kubectl, Spec], Awaited]]] = {
    "api": [api_server],
    "nodes": [kubernetes_nodes],
    "populated": [populated_jail],
    "available": [available_cluster],
    "nodesets": [full_nodesets],
    "scheduler": [slurm_nodes, jail_gpus],
    "login": [login_service_address],
}
"""Waits in their order. Each is made from kubectl and the specification."""


def wait(kubectl: Kubectl, kind: str, spec: Spec, seconds: float, pace: float) -> dict[str, Any]:
    """Wait for a kind; its facts. Raises WaitError."""
    facts: dict[str, Any] = {}
    for awaited in KINDS[kind]:
        facts |= wait_for(awaited(kubectl, spec), seconds, pace)
    return facts


class WaitProvider(ActionProvider):
    """Waits, and changes nothing but nodes that have left Slurm. An interrupted one waits again."""

    ID = "{access[context]}/{kind}"
    ACTED_ON = ("kind", "access", "spec", "after")
    """Inputs whose change is waited for again. The others are limits."""

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> dict[str, Any]:
        with without_traceback(WaitError), Kubectl(news["access"]) as kubectl:
            return {"facts": wait(kubectl, news["kind"], news["spec"], news["seconds"], news["pace"])}


class Wait(Action, module="nebius", name="Wait"):
    """A wait for something of a cluster.

    Inputs: `kind` is one of KINDS, `spec` its specification, `seconds` the deadline, `pace` the seconds between two
    looks; `after` changes whenever it has to be waited for again.
    """

    PROVIDER = WaitProvider
    OUTPUTS = ("facts",)
    facts: pulumi.Output[dict[str, Any]]
