"""Waits of `up`: for Kubernetes' API server and nodes, Soperator's SlurmCluster, Slurm's nodes, the login address.

KINDS is the table of them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.platforms.nebius.kubectl import LOGIN_NODES, login_address, selector, why_no_login_address
from cluster.platforms.nebius.names import (
    AVAILABLE,
    CONTROLLER_POD,
    GPU,
    NODE_GROUP_LABEL,
    POWER_STATES,
    SLURM_CLUSTERS,
    login_service,
    populate_job,
)
from cluster.platforms.nebius.observation import conditions, pods
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.kubectl import LOGIN, Kubectl, KubectlError, pod_of
from components.nebius.poll import Poll
from scripts.node.slurm.nodes import COMMAND, Node, parse

API_SECONDS = 900
GPU_SECONDS = 600
LEAVES, RECREATED = "hpc: leaves the cluster", "hpc: its machine is recreated"
"""Reasons of drained nodes, as on machines (scripts/node/slurm/scheduler.py)."""
NEEDED = (
    ("apiextensions.k8s.io", "customresourcedefinitions"),
    ("rbac.authorization.k8s.io", "clusterroles"),
    ("", "namespaces"),
)
"""API group and resource of what charts create that needs an administrator."""
_LOG_LINES = 15
_SHOWN = 8

Spec = Mapping[str, Any]


class WaitError(RuntimeError):
    """A wait has failed; the text has what was missing, the objects that show why, and what to do."""


@dataclass(frozen=True)
class Progress:
    """The result of one check of a goal."""

    text: str = ""
    """The missing objects, in one line."""
    done: bool = False
    failed: bool = False
    """True if the goal can't be reached any more."""
    facts: dict[str, Any] = field(default_factory=dict)
    """The result of the wait, if it has a value."""


@dataclass(frozen=True)
class WaitGoal:
    """The object that a wait is for, and the parts of its error."""

    what: str
    check: Callable[[], Progress]
    todo: str = "run `up` again to continue to wait"
    explain: Callable[[], str] = lambda: ""
    """Returns lines that show why the goal was not reached."""
    limit: str = "nebius.timeouts.available"
    """The field of the stack file that has the deadline; empty if none has."""
    most: float = float("inf")
    """The longest time to wait, in seconds."""


def wait_for(goal: WaitGoal, seconds: float, pace: float) -> dict[str, Any]:
    """Check every `pace` seconds until the goal is reached, and return its facts.

    An error of kubectl counts as not yet reached, unless a program or a credential is missing.
    Raises WaitError after `seconds`: with what was missing, why, and what to do.
    """
    seconds = min(seconds, goal.most)
    poll = Poll(seconds, pace)
    while True:
        try:
            progress = goal.check()
        except KubectlError as error:
            _raise_if_final(goal.what, str(error))
            progress = Progress(str(error))
        if progress.done:
            return progress.facts
        if progress.failed or poll.left < 0:
            late = f"did not come within {seconds:.0f} s" + (f" ({goal.limit})" if goal.limit else "")
            first = f"{goal.what} {'failed' if progress.failed else late}: {progress.text}"
            raise WaitError("\n".join(filter(None, [first, goal.explain(), f"to do: {goal.todo}"])))
        poll.pause(progress.text, f"waiting for {goal.what}: {progress.text}")


def _raise_if_final(what: str, error: str) -> None:
    """Raise WaitError for an error of kubectl that does not pass by itself."""
    if "is not installed" in error:
        raise WaitError(error)
    refusals = ("getting credentials", "exec plugin", "You must be logged in", "(Unauthorized)")
    if any(refusal in error for refusal in refusals):
        raise WaitError(
            f"{what}: the credential command gives no credential that the API server accepts: {error}\n"
            "to do: run `./hpc nebius-token`, or the command of nebius.token_command where the stack file has one, by "
            "itself; it must print an ExecCredential"
        )


def _listed(texts: Sequence[str]) -> str:
    return "; ".join(texts[:_SHOWN]) + (f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else "")


def _indented(lines: Iterable[str]) -> str:
    return "\n".join(f"  {line}" for line in lines)


def api_server(kubectl: Kubectl, _spec: Spec) -> WaitGoal:
    """Return the goal that the API server allows this account to create everything of NEEDED."""

    def check() -> Progress:
        for group, resource in NEEDED:
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": {"group": group, "resource": resource, "verb": "create"}},
            }
            answer = json.loads(kubectl.run("create", "--filename=-", "--output=json", stdin=json.dumps(review)))
            if not answer["status"].get("allowed"):
                return Progress(f"this account may not create {resource} yet: RBAC has not spread")
        return Progress(done=True)

    todo = "check that the account may edit the project, then run `up` again"
    return WaitGoal("Kubernetes' API server", check, todo, limit="")


def kubernetes_nodes(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that nodes are Ready. `groups` are rows of name, id, count (nodes at least), gpus (of each)."""
    groups = spec["groups"]

    def check() -> Progress:
        nodes = kubectl.items("nodes")
        missing = [text for group in groups for text in _missing(group, nodes)]
        return Progress(_listed(missing), done=not missing)

    return WaitGoal(
        f"{sum(int(group['count']) for group in groups)} Kubernetes nodes",
        check,
        "see the node group's events and quotas in Nebius's console, then run `up` again",
    )


def _missing(group: Spec, nodes: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    """Yield what a group lacks: nodes that are Ready, and GPUs that they advertise."""
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
    """Return why a node is not Ready; an empty text if it is."""
    ready = next((condition for condition in conditions(node) if condition.type == "Ready"), None)
    if ready is None:
        return "has no condition Ready"
    return "" if ready.status == "True" else f"{ready.reason}: {ready.message}"


def populated_jail(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that the Job which populates the jail of `cluster` is complete; an error has its log's end."""
    name = populate_job(spec["cluster"])

    def check() -> Progress:
        job = kubectl.object("job", name)
        if job is None:
            # Soperator deletes the Job some time after it has ended, and starts nothing before that.
            slurm = kubectl.object(SLURM_CLUSTERS, spec["cluster"])
            missing = "the SlurmCluster is not there" if slurm is None else "Soperator has not created it yet"
            return Progress(missing, done=slurm is not None and _phase(slurm) == AVAILABLE)
        ended = {condition.type: condition for condition in conditions(job) if condition.status == "True"}
        if failed := ended.get("Failed"):
            return Progress(f"{failed.reason}: {failed.message}", failed=True)
        status = job["status"]
        pods_of_job = f"{status.get('active', 0)} of its pods run, {status.get('failed', 0)} failed"
        return Progress(pods_of_job, done="Complete" in ended)

    return WaitGoal(
        f"Job {name}",
        check,
        f"delete the Job, which Soperator then creates again (kubectl delete job {name}), and run `up` again",
        lambda: _log(kubectl, f"job/{name}") or _indented(kubectl.events("Job", name)),
    )


def available_cluster(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that the SlurmCluster `cluster` is Available; an error has its conditions and pods."""
    name = spec["cluster"]

    def check() -> Progress:
        slurm = kubectl.object(SLURM_CLUSTERS, name)
        if slurm is None:
            return Progress("it is not there")
        bad = [
            f"; {condition.type}={condition.status} ({': '.join(filter(None, [condition.reason, condition.message]))})"
            for condition in conditions(slurm)
            if condition.status != "True"
        ]
        return Progress(f"phase {_phase(slurm) or 'none yet'}{''.join(bad)}", done=_phase(slurm) == AVAILABLE)

    def explain() -> str:
        lines = _unready_pods(kubectl)
        text = _indented(lines)
        if any(line.startswith(CONTROLLER_POD) for line in lines):
            text += "\n" + _log(kubectl, f"pod/{CONTROLLER_POD}", "--container=slurmctld")
        return text + _indented(kubectl.events("SlurmCluster", name))

    todo = f"kubectl describe slurmcluster {name} --namespace={name} shows what it waits for; then run `up` again"
    return WaitGoal(f"SlurmCluster {name}", check, todo, explain)


def _phase(slurm: Mapping[str, Any]) -> str:
    return str(slurm.get("status", {}).get("phase") or "")


def powered_nodes(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that elastic NodeSets have their static nodes powered up, and no node that they have no more.
    `powered` has the number of static and of all nodes of each."""
    powered = spec.get("powered", {})

    def check() -> Progress:
        missing = dict.fromkeys(powered)
        for state in kubectl.items(POWER_STATES) if powered else ():
            name, active = state["metadata"]["name"], state["spec"].get("activeNodes") or []
            missing.pop(name, None)
            if name in powered and (nodes := required_nodes(active, *map(int, powered[name]))) != sorted(active):
                # With the version that was read: Slurm's power programs change it too.
                version = state["metadata"]["resourceVersion"]
                patch = {"metadata": {"resourceVersion": version}, "spec": {"activeNodes": nodes}}
                kubectl.run("patch", POWER_STATES, name, "--type=merge", f"--patch={json.dumps(patch)}")
                report(f"nodeset {name}: static nodes are powered up, and nodes that it has no more are powered down")
        # Soperator creates the state once it has seen the NodeSet.
        return Progress(_listed([f"{name} has none yet" for name in missing]), done=not missing)

    return WaitGoal(
        "power states of elastic NodeSets",
        check,
        "the log of Soperator's manager shows why (namespace soperator-system); then run `up` again",
    )


def required_nodes(active: Iterable[int], static: int, most: int) -> list[int]:
    """Return the numbers of an elastic nodeset's nodes that must be up: the active and the static ones below `most`.

    Soperator reads the number of static nodes once, and keeps pods of nodes that a nodeset has no more.
    """
    return sorted({*active, *range(static)} & {*range(most)})


def _unready_pods(kubectl: Kubectl) -> list[str]:
    unready = [
        f"{pod.name}: {pod.phase} {': '.join(filter(None, [pod.container, pod.why]))}".rstrip()
        for pod in pods(kubectl.items("pods"), ())
        if not pod.ready
    ]
    return unready[:_SHOWN] + ([f"and {len(unready) - _SHOWN} more pods"] if len(unready) > _SHOWN else [])


def _log(kubectl: Kubectl, of: str, *arguments: str) -> str:
    """Return the end of a log; an empty text if it can't be read."""
    try:
        text = kubectl.run("logs", of, *arguments, f"--tail={_LOG_LINES}")
    except KubectlError:
        return ""
    return _indented(text.rstrip().splitlines())


def slurm_nodes(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that `nodes` (GPUs of each, by name) take jobs; nodes that left `nodesets` are deleted in Slurm,
    once they have no pod. An error has the pods that are not ready.

    A drained node counts as present, with a warning, because its reason says who acts. Nodes of `elastic` (names) may
    sleep.
    """
    expected = {name: int(gpus) for name, gpus in spec["nodes"].items()}
    members = {*expected, *spec.get("elastic", ())}

    def check() -> Progress:
        nodes = parse(kubectl.execute(LOGIN, *COMMAND))
        left = [node for name, node in sorted(nodes.items()) if name not in members and _is_of(name, spec["nodesets"])]
        for node in (node for node in left if node.down or node.silent):
            report(f"{node.name} has left the cluster: deleting it from Slurm")
            kubectl.execute(LOGIN, "scontrol", "delete", f"NodeName={node.name}")
        if leaving := [
            node.name for node in left if node.reason == LEAVES and not (node.down or node.silent or node.asleep)
        ]:
            return Progress(f"{_listed(leaving)}: leaving, and slurmd still answers")
        for name in sorted(members & nodes.keys()):
            if nodes[name].drained and nodes[name].reason in (LEAVES, RECREATED):
                # An elastic node that left has no pod: Slurm resumes it once a job needs it.
                sleeps = name not in expected and nodes[name].reason == LEAVES
                state = "POWER_DOWN" if sleeps else "RESUME"
                kubectl.execute(LOGIN, "scontrol", "update", f"NodeName={name}", f"State={state}")
                report(f"powered down {name}" if sleeps else f"resumed {name}")
        progress = slurm_progress(expected, nodes)
        for line in progress.facts["drained"] if progress.done else ():
            report(line)
        return Progress(progress.text, done=progress.done)

    todo = "`scontrol show node NAME` and the log of its pod (container slurmd) show why; then run `up` again"
    return WaitGoal(f"{len(expected)} Slurm nodes", check, todo, lambda: _indented(_unready_pods(kubectl)))


def slurm_progress(expected: Mapping[str, int], nodes: Mapping[str, Node]) -> Progress:
    """Compare Slurm's nodes and their GPUs with those that are expected to take jobs. A pure function.

    The fact `drained` has a warning for each drained node.
    """
    missing: list[str] = []
    drained: list[str] = []
    for name, gpus in expected.items():
        node = nodes.get(name)
        if node is None:
            missing.append(f"{name} has not registered")
        elif node.drained and not node.down:
            drained.append(f"{name} is {node.word}: {node.reason} ({node.by}). `./hpc nodes STACK` says who must act")
        elif not node.ready:
            missing.append(f"{name} is {node.word}" + (f": {node.reason}" if node.reason else ""))
        elif node.gpus != gpus:
            missing.append(f"{name} has {node.gpus} GPUs in Slurm, not {gpus}")
    return Progress(_listed(missing), done=not missing, facts={"drained": drained})


def _is_of(node: str, nodesets: Sequence[str]) -> bool:
    """Return whether a node is of these nodesets: slurmctld keeps dynamic nodes until they are deleted."""
    nodeset, _, index = node.rpartition("-")
    return nodeset in nodesets and index.isdigit()


def jail_gpus(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that the GPUs of `nodes` are in their jails; it finds truncated libraries."""
    expected = {name: int(gpus) for name, gpus in spec["nodes"].items() if gpus}

    def count(name: str) -> str:
        try:
            listed = kubectl.execute(pod_of(name, ("node",)), "nvidia-smi", "--list-gpus")
        except KubectlError as error:
            return f"{name}: {error}"
        found = sum(line.startswith("GPU ") for line in listed.splitlines())
        return "" if found == expected[name] else f"{name} has {found} of {expected[name]} GPUs in its jail"

    def check() -> Progress:
        with ThreadPoolExecutor(16) as pool:
            wrong = [text for text in pool.map(count, expected) if text]
        return Progress(_listed(wrong), done=not wrong)

    return WaitGoal(
        "GPUs in the jail",
        check,
        "delete the worker pods that are named (kubectl delete pod), which Soperator creates again; if libnvidia-ml.so "
        "is not found: ./hpc run STACK -- srun --nodes=1 --gpus=1 ldconfig; then run `up` again",
        limit="",
        most=GPU_SECONDS,
    )


def login_service_address(kubectl: Kubectl, spec: Spec) -> WaitGoal:
    """Return the goal that the login Service of `cluster` has an address: facts `address` and `port`."""
    name = login_service(spec["cluster"])

    def check() -> Progress:
        service = kubectl.object("service", name)
        if service is None:
            return Progress("Soperator has not created it yet")
        balanced = service["spec"].get("type") == "LoadBalancer"
        address = login_address(service, () if balanced else kubectl.items("nodes", LOGIN_NODES[0]))
        if address:
            return Progress(done=True, facts={"address": address[0], "port": address[1]})
        return Progress(why_no_login_address(service, kubectl.items("events", selector("Service", name))))

    return WaitGoal(
        f"the address of Service {name}",
        check,
        "in a project without public addresses set nebius.login.exposure: internal; otherwise check the quotas of "
        "public addresses and load balancers, then run `up` again",
        limit="nebius.timeouts.login",
    )


KINDS: Mapping[str, Sequence[Callable[[Kubectl, Spec], WaitGoal]]] = {
    "api": [api_server],
    "nodes": [kubernetes_nodes],
    "populated": [populated_jail],
    "available": [available_cluster],
    "scheduler": [powered_nodes, slurm_nodes, jail_gpus],
    "login": [login_service_address],
}
"""The goals of each kind of wait, in their order."""


def wait(kubectl: Kubectl, kind: str, spec: Spec, seconds: float, pace: float) -> dict[str, Any]:
    """Wait for the goals of a kind, and return their facts. Raises WaitError."""
    facts: dict[str, Any] = {}
    for goal in KINDS[kind]:
        facts |= wait_for(goal(kubectl, spec), seconds, pace)
    return facts


class WaitProvider(ActionProvider):
    """Waits, and changes nothing but Slurm's and Soperator's records of nodes. An interrupted wait starts again."""

    ID = "{access[context]}/{kind}"
    ACTED_ON = ("kind", "access", "spec", "after")
    """Inputs whose change starts the wait again. The others are limits."""

    def act(self, news: Mapping[str, Any], _olds: Mapping[str, Any] | None, /) -> dict[str, Any]:
        with without_traceback(WaitError), Kubectl(news["access"]) as kubectl:
            return {"facts": wait(kubectl, news["kind"], news["spec"], news["seconds"], news["pace"])}


class Wait(ActionResource, module="nebius", name="Wait"):
    """A wait for a part of a cluster.

    Inputs: `kind` is one of KINDS, `spec` its specification, `seconds` the deadline, `pace` the seconds between two
    checks; a change of `after` starts the wait again.
    """

    PROVIDER = WaitProvider
    OUTPUTS = ("facts",)
    facts: pulumi.Output[dict[str, Any]]
