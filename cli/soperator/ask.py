"""Asks Kubernetes' API and slurmctld how a cluster of pods is, side by side."""

import secrets
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from cli.access import remote
from cli.access.kubectl import Answer, KubeApi, Kubernetes
from cli.cluster.cluster import Cluster, from_outputs
from cli.interrupts import unwound
from cluster.observe.observation import ClusterObservation, MachineObservation, Observation
from cluster.platforms.nebius import observation
from cluster.platforms.nebius.kubectl import NO_KIND
from cluster.platforms.nebius.names import ACTIVE_CHECKS, NODE_SETS, OPERATOR_NAMESPACE, SLURM_CLUSTERS
from cluster.platforms.nebius.observation import Pod, View

SECONDS = 20.0
"""For one question."""
LOGS = 6
"""Containers that crash whose last lines are read."""
LINES = 60
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "SlurmCluster": ("get", SLURM_CLUSTERS, "--output=json"),
    "NodeSets": ("get", NODE_SETS, "--output=json"),
    "ActiveChecks": ("get", ACTIVE_CHECKS, "--output=json"),
    "pods": ("get", "pods,deployments.apps", "--all-namespaces", "--output=json"),
    "events": ("get", "events", "--all-namespaces", "--field-selector=type!=Normal", "--output=json"),
    "nodes": ("get", "nodes", "--output=json"),
}
"""What kubectl is asked, by what it is called where it can't be read."""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What was seen of a cluster."""

    cluster: ClusterObservation
    view: View
    objects: Mapping[str, list[dict[str, Any]]]
    """The objects of each question, as Kubernetes has them."""


def ask(
    stack: str, outputs: Mapping[str, Any], *, more: Mapping[str, str] | None = None, seconds: float = SECONDS
) -> Seen:
    """What is seen of a cluster, also of one that does not answer; with the parts that `more` has slurm's commands for.
    Each question is given `seconds`.

    Raises CliError: the stack is not up, or there is no kubectl here.
    """
    cluster = from_outputs(stack, outputs)
    with unwound(), ExitStack() as stack_of_files:
        api = KubeApi(stack_of_files, Kubernetes.of(outputs.get("kubernetes")), seconds)
        mark = secrets.token_hex(8)
        with ThreadPoolExecutor() as pool:
            answers = {name: pool.submit(api.ask, *words) for name, words in QUESTIONS.items()}
            # In this thread, which handles signals.
            line = observation.script(mark, more=more)
            facts = remote.capture(cluster.controller, cluster.admin_key, line, seconds=seconds)
            found = {name: answer.result() for name, answer in answers.items()}
            view = _view(api, found)
            return Seen(
                cluster=_observation(stack, cluster, view, facts, mark),
                view=view,
                objects={name: answer.items for name, answer in found.items()},
            )


def replaces(outputs: Mapping[str, Any]) -> bool:
    """Whether the operator may replace nodes; no if the cluster does not answer."""
    with unwound(), ExitStack() as stack_of_files:
        api = KubeApi(stack_of_files, Kubernetes.of(outputs.get("kubernetes")), SECONDS)
        words = ("get", "deployments.apps", f"--namespace={OPERATOR_NAMESPACE}", "--output=json")
        return observation.may_replace(api.ask(*words).items)


def _view(api: KubeApi, found: Mapping[str, Answer]) -> View:
    """What Kubernetes' objects say, and the last lines of what crashes."""
    objects: dict[str, list[dict[str, Any]]] = {}
    for item in found["pods"].items:
        objects.setdefault(item["kind"], []).append(item)
    namespace = api.kubernetes.namespace
    pods = observation.pods(objects.get("Pod", ()), found["events"].items)
    clusters = found["SlurmCluster"].items
    cluster = next((one for one in clusters if one["metadata"]["name"] == namespace), clusters[0] if clusters else None)
    unread = {name: answer.why for name, answer in found.items() if answer.code and NO_KIND not in answer.err}
    return View(
        namespace=namespace,
        phase=str(((cluster or {}).get("status") or {}).get("phase") or ""),
        conditions=observation.conditions(cluster or {}),
        nodesets=observation.nodesets(found["NodeSets"].items),
        checks=observation.checks(found["ActiveChecks"].items),
        pods=pods,
        hosts=observation.hosts(found["nodes"].items),
        replacement=observation.may_replace(objects.get("Deployment", ())),
        logs=_crash_logs(api, [pod for pod in pods if pod.crashes]),
        unread=unread,
    )


def _crash_logs(api: KubeApi, pods: list[Pod]) -> dict[str, str]:
    """The last lines of containers that crash, of this start and of the one before."""

    def text(pod: Pod) -> str:
        words = ("logs", pod.name, "--namespace", pod.namespace, "--container", pod.container, f"--tail={LINES}")
        return "\n".join(api.ask(*words, *again).out for again in (("--previous",), ()))

    chosen = pods[:LOGS]
    with ThreadPoolExecutor(max_workers=LOGS) as pool:
        return dict(zip((pod.name for pod in chosen), pool.map(text, chosen), strict=True))


def _observation(stack: str, cluster: Cluster, view: View, done: remote.Done, mark: str) -> ClusterObservation:
    """The cluster's targets as machines: reached if their pod is ready, the controller's with slurmctld's view."""
    pods = {pod.name: pod for pod in view.pods if pod.namespace == view.namespace}
    machines: list[MachineObservation] = []
    for name, target in cluster.targets.items():
        pod = pods.get(str(target.row.get("pod") or name))
        why = "" if pod and pod.ready else (pod.why or f"its pod is {pod.phase}" if pod else "it has no pod")
        reached, facts = not why, Observation()
        if target == cluster.controller:
            reached, why = done.reached, "" if done.reached else done.err
            facts = Observation(slurm=observation.parsed(done.out, mark)) if done.reached else facts
        machines.append(
            MachineObservation(
                name=name, roles=target.roles, reached=reached, why=why, facts=facts, asked=done.asked,
                answered=done.answered,
            )
        )  # fmt: skip
    return ClusterObservation(stack=stack, machines=tuple(machines))
