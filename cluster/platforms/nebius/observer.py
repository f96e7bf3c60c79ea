"""The observer of clusters that Soperator runs: reads Kubernetes' objects and slurmctld's view, side by side."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import yaml

from cluster.findings import ClusterFinding
from cluster.load import parse_output
from cluster.observe.nodes import Node
from cluster.observe.observation import ClusterObservation, Difference, MachineObservation, Observation
from cluster.platforms.nebius import drift, health, observation
from cluster.platforms.nebius.kubectl import NO_KIND
from cluster.platforms.nebius.names import (
    ACTIVE_CHECKS,
    ALERTMANAGER,
    GROUP,
    MONITORING_NAMESPACE,
    NODE_SETS,
    OPERATOR_NAMESPACE,
    POWER_STATES,
    SLURM_CLUSTERS,
)
from cluster.platforms.nebius.observation import Pod, View
from cluster.platforms.nebius.section import Nebius
from cluster.platforms.observer import Access, ControllerResult, KubectlResult, LogRequest, StatusReport, Table

_CRASHES = 6
"""Number of crashed containers whose last lines `status` reads."""
_LINES = 60
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "SlurmCluster": ("get", SLURM_CLUSTERS, "--output=json"),
    "NodeSets": ("get", f"{NODE_SETS},{POWER_STATES}", "--output=json"),
    "ActiveChecks": ("get", ACTIVE_CHECKS, "--output=json"),
    "pods": ("get", "pods,deployments.apps", "--all-namespaces", "--output=json"),
    "events": ("get", "events", "--all-namespaces", "--field-selector=type!=Normal", "--output=json"),
    "nodes": ("get", "nodes", "--output=json"),
    "alerts": (
        "get",
        "--raw",
        f"/api/v1/namespaces/{MONITORING_NAMESPACE}/services/{ALERTMANAGER}:9093/proxy/api/v2/alerts?active=true",
    ),
}
"""Arguments of kubectl, by the name of what can't be read if it fails."""
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_PLACEHOLDER = (f"{GROUP}/controller-type", "placeholder")
"""Pods that only keep the controller's image on other Kubernetes nodes (internal/consts/label.go)."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """A kind of log."""

    container: str
    also: str = ""
    """Another name of it."""
    system: bool = False
    """True if it is in the operator's namespace."""


# Names of containers: internal/consts/container.go of nebius/soperator 4.1.7. The operator's is in
# helm/soperator/templates, the database's is the MariaDB operator's.
LOGS: Mapping[str, Log] = {
    "slurmctld": Log(container="slurmctld"),
    "slurmd": Log(container="slurmd"),
    # In a rehearsal the container has the daemon's name.
    "slurmdbd": Log(container="accounting", also="slurmdbd"),
    "slurmrestd": Log(container="slurmrestd"),
    "sshd": Log(container="sshd"),
    "munge": Log(container="munge"),
    "mariadb": Log(container="mariadb"),
    "populate-jail": Log(container="populate-jail"),
    "sconfigcontroller": Log(container="sconfigctrl"),
    "operator": Log(container="manager", system=True),
}
"""Logs by the name that `logs` takes."""


@dataclass(frozen=True, kw_only=True, order=True)
class Source:
    """A container's log."""

    namespace: str
    pod: str
    container: str
    """Empty for all containers of the pod."""

    def words(self, *, lines: int | None, since: str, follow: bool) -> list[str]:
        """Arguments of kubectl. `since` is an RFC 3339 time, or empty. kubectl prints in front of each line the time at
        which Kubernetes read it."""
        words = ["logs", self.pod, f"--namespace={self.namespace}", "--timestamps"]
        words += [f"--container={self.container}"] if self.container else ["--all-containers", "--max-log-requests=20"]
        words += [f"--tail={-1 if lines is None else lines}"]
        words += [f"--since-time={since}"] if since else []
        return [*words, "--follow"] if follow else words


class Soperator:
    """Reads clusters over Kubernetes' API, and slurmctld in its pod."""

    operator = "Soperator"
    advice: ClassVar[Mapping[str, str]] = {
        "up": "What the stack made and somebody changed: ./hpc refresh STACK, then ./hpc up STACK",
        "hand": "What else was changed: change it back with kubectl, scontrol or sacctmgr, or write it into the stack.",
    }

    @staticmethod
    def status(access: Access) -> StatusReport:
        """The SlurmCluster with its nodesets, pods and checks, and Slurm's nodes, partitions and jobs."""
        seen, view, _ = _read(access)
        shown = ["cluster", "nodesets", "nodes", "drained", "alerts", "partitions", "queue", "checks", "pods"]
        return _report(seen, view, health.findings(seen, view, now=time.time()), shown)

    @staticmethod
    def health(access: Access) -> StatusReport:
        """Drained nodes, and the last results of Soperator's checks."""
        seen, view, _ = _read(access)
        found = health.health_findings(seen, view, now=time.time())
        report = _report(seen, view, found, ["nodes", "drained", "checks"])
        document = {key: report.document[key] for key in ("stack", "ok", "findings")}
        document |= {key: report.document["kubernetes"][key] for key in ("drained", "checks")}
        return replace(report, document=document)

    @staticmethod
    def drift(access: Access, exported: Any) -> tuple[list[Difference], list[str]]:  # noqa: ANN401 - as exported
        """Compares charts and their objects, node sets, Slurm's own view and its database. Raises LookupError: the
        configuration has no section of this platform."""
        config = parse_output(exported)
        settings = config.section(Nebius)
        if settings is None:
            raise LookupError(f"stack {access.stack} has no section nebius in its output of the configuration.")
        seen, view, answers = _read(access, observation.ACCOUNTING)
        found = access.kubectl("get", "secrets", "--all-namespaces", f"--selector={drift.SELECTOR}", "--output=json")
        releases = None if found.code else drift.installed(found.items)
        wanted = drift.wanted_releases(config, settings)
        own = {release.name for release in wanted if release.repo == settings.soperator.charts}
        ours = [release for name, release in (releases or {}).items() if name in own]
        manifests = {manifest.name: _documents(manifest.manifest) for manifest in ours}
        with ThreadPoolExecutor() as pool:
            rows = pool.map(lambda release: applied(access.kubectl, release.namespace, manifests[release.name]), ours)
            there = dict(zip(manifests, rows, strict=True))
        unread = [f"objects of release {name}: {answer.why}" for name, answer in there.items() if answer.code]
        unread += [f"Helm's releases: {found.why}"] if found.code else []
        objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        for item in (item for answer in there.values() for item in answer.items):
            kind, namespace, name = drift.key(item)
            objects[kind, namespace, name] = item
            # Charts leave the namespace of most objects to the release.
            objects.setdefault((kind, "", name), item)
        live = drift.Live(
            seen=seen,
            view=view,
            releases=releases,
            objects=objects,
            manifests=[item for name, items in manifests.items() if not there[name].code for item in items],
            hosts=answers["nodes"].items,
        )
        return drift.differences(config, wanted, live), drift.unseen(live, unread)

    @staticmethod
    def logs(asked: LogRequest, pods: Sequence[Mapping[str, Any]], namespace: str) -> dict[str, list[str]]:
        """Arguments of kubectl, by the names of pods, those of other namespaces with these."""
        sources = chosen(asked.what, asked.on, pods, namespace)
        return {
            source.pod if source.namespace == namespace else f"{source.namespace}/{source.pod}": source.words(
                lines=asked.lines, since=asked.since, follow=asked.follow
            )
            for source in sources
        }

    @staticmethod
    def shown(line: str) -> str:
        """A line without the time that Kubernetes put in front, if it has one of its own."""
        _, _, text = line.partition(" ")
        return text if re.match(r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]", text) else line

    @staticmethod
    def actors(access: Access, nodes: Iterable[Node]) -> dict[str, str]:
        """Return who must act on drained nodes; the operator replaces none if the cluster does not answer."""
        drained = [node for node in nodes if node.drained]
        if not drained:
            return {}
        deployments = access.kubectl("get", "deployments.apps", f"--namespace={OPERATOR_NAMESPACE}", "--output=json")
        replaces = observation.may_replace(deployments.items)
        return {node.name: act.actor.value for node, act in health.actions(drained, replaces, now=time.time())}


OBSERVER = Soperator()


def _read(
    access: Access, more: Mapping[str, str] | None = None
) -> tuple[ClusterObservation, View, Mapping[str, KubectlResult]]:
    """Return what is seen of a cluster, also of one that does not answer; with the parts that `more` has slurm's
    commands for, and what kubectl answered to each question."""
    mark = secrets.token_hex(8)
    with ThreadPoolExecutor() as pool:
        asked = {name: pool.submit(access.kubectl, *words) for name, words in QUESTIONS.items()}
        # In this thread, which handles signals.
        facts = access.run(observation.script(mark, more=more))
        answers = {name: answer.result() for name, answer in asked.items()}
    view = _view(access, answers)
    return _observation(access, view, facts, mark, observation.alerts(answers["alerts"].out)), view, answers


def _view(access: Access, found: Mapping[str, KubectlResult]) -> View:
    objects: dict[str, list[dict[str, Any]]] = {}
    for item in found["pods"].items:
        objects.setdefault(item["kind"], []).append(item)
    pods = observation.pods(objects.get("Pod", ()), found["events"].items)
    clusters = found["SlurmCluster"].items
    named = [item for item in clusters if item["metadata"]["name"] == access.namespace]
    cluster = next(iter(named or clusters), {})
    return View(
        namespace=access.namespace,
        phase=str((cluster.get("status") or {}).get("phase") or ""),
        conditions=observation.conditions(cluster),
        nodesets=observation.nodesets(found["NodeSets"].items),
        checks=observation.checks(found["ActiveChecks"].items),
        pods=pods,
        hosts=observation.hosts(found["nodes"].items),
        replacement=observation.may_replace(objects.get("Deployment", ())),
        logs=_crash_logs(access, [pod for pod in pods if pod.crashes][:_CRASHES]),
        unread={name: answer.why for name, answer in found.items() if answer.code and not _absent(answer.err)},
    )


def _absent(error: str) -> bool:
    """Return whether there is no such kind, or no Alertmanager, which a stack may do without."""
    return NO_KIND in error or ("(NotFound)" in error and ALERTMANAGER in error)


def _crash_logs(access: Access, pods: Sequence[Pod]) -> dict[str, str]:

    def text(pod: Pod) -> str:
        words = ("logs", pod.name, "--namespace", pod.namespace, "--container", pod.container, f"--tail={_LINES}")
        return "\n".join(access.kubectl(*words, *again).out for again in (("--previous",), ()))

    with ThreadPoolExecutor(max_workers=_CRASHES) as pool:
        return dict(zip((pod.name for pod in pods), pool.map(text, pods), strict=True))


def _observation(
    access: Access, view: View, done: ControllerResult, mark: str, alerts: Sequence[dict[str, str]]
) -> ClusterObservation:
    """The cluster's targets as machines: reached if their pod is ready, the controller's with slurmctld's view."""
    pods = {pod.name: pod for pod in view.pods if pod.namespace == view.namespace}
    machines: list[MachineObservation] = []
    for name, roles in access.roles.items():
        pod = pods.get(access.pods[name])
        why = "" if pod and pod.ready else (pod.why or f"its pod is {pod.phase}" if pod else "it has no pod")
        reached, facts = not why, Observation()
        if name == access.controller:
            reached, why = done.reached, "" if done.reached else done.err
            facts = Observation(slurm=observation.parsed(done.out, mark)) if done.reached else facts
            if alerts:
                facts["alerts"] = [*alerts]
        machines.append(
            MachineObservation(
                name=name, roles=roles, reached=reached, why=why, facts=facts, asked=done.asked, answered=done.answered
            )
        )
    return ClusterObservation(stack=access.stack, machines=tuple(machines))


def of_kind(log: Log, pods: Iterable[Mapping[str, Any]], namespace: str) -> list[Source]:
    """The containers that write a log."""
    wanted, found = OPERATOR_NAMESPACE if log.system else namespace, list[Source]()
    key, placeholder = _PLACEHOLDER
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if metadata["namespace"] == wanted and (metadata.get("labels") or {}).get(key) != placeholder:
            names = {row["name"] for row in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))}
            wrote = sorted(names & {log.container, log.also})
            found += [Source(namespace=wanted, pod=metadata["name"], container=name) for name in wrote]
    return sorted(found)


def of_name(name: str, pods: Iterable[Mapping[str, Any]], namespace: str) -> list[Source]:
    """The pods that a name means: a pod's, with or without its namespace and `/`, or a check's or job's."""
    where, _, pod = name.rpartition("/")
    every = [pod["metadata"] for pod in pods if pod["metadata"]["namespace"] == (where or namespace)]
    of_jobs = [
        metadata["name"]
        for metadata in every
        if any(row.get("kind") == "Job" for row in metadata.get("ownerReferences") or ())
    ]
    # Pods of a job have its name and five characters more; jobs of a CronJob have its name and a number.
    pattern = re.compile(rf"{re.escape(pod)}(-[0-9a-z]+)*-[0-9a-z]{{5}}")
    mine = [metadata["name"] for metadata in every if metadata["name"] == pod]
    names = mine or [name for name in of_jobs if pattern.fullmatch(name)]
    return sorted(Source(namespace=where or namespace, pod=name, container="") for name in names)


def chosen(what: str, on: Sequence[str], pods: Sequence[Mapping[str, Any]], namespace: str) -> list[Source]:
    """The containers that are asked for. Raises LookupError: there are none."""
    kinds = ", ".join(LOGS)
    if what not in LOGS:
        if on:
            raise LookupError(f"--on narrows {kinds}; {what} is none of them.")
        if not (found := of_name(what, pods, namespace) or of_name(f"{what}-0", pods, namespace)):
            raise LookupError(f"no pod, check or job of the cluster is called {what!r}. Or one of: {kinds}.")
        return found
    found = of_kind(LOGS[what], pods, namespace)
    there = ", ".join(source.pod for source in found) or "none"
    if missing := [name for name in on if name not in {source.pod for source in found}]:
        raise LookupError(f"{', '.join(missing)}: no {what} there. Pods with one: {there}.")
    if not found:
        raise LookupError(f"no pod of the cluster has {what}.")
    return [source for source in found if not on or source.pod in on]


def _documents(manifest: str) -> list[dict[str, Any]]:
    found: Iterable[Any] = yaml.load_all(manifest, Loader=_Loader)
    return [item for item in found if isinstance(item, dict) and "kind" in item]


def applied(
    kubectl: Callable[..., KubectlResult], namespace: str, manifest: Iterable[Mapping[str, Any]]
) -> KubectlResult:
    """The objects of a release as they are now; those that are not there are left out."""
    # Not by --namespace: kubectl refuses objects that name another one, which charts may have.
    given = [
        {
            "apiVersion": one.get("apiVersion"),
            "kind": one["kind"],
            "metadata": {"name": one["metadata"]["name"], "namespace": one["metadata"].get("namespace") or namespace},
        }
        for one in manifest
    ]
    words = ("get", "--filename=-", "--ignore-not-found", "--output=json")
    return kubectl(*words, stdin="\n".join(map(json.dumps, given))) if given else KubectlResult(code=0, out="", err="")


def _report(seen: ClusterObservation, view: View, found: list[ClusterFinding], shown: Sequence[str]) -> StatusReport:
    """`shown` are names of tables, of this platform or of all."""
    acting = health.acting(seen, view, now=time.time())
    tables = _tables(view, acting)
    document = {
        "stack": seen.stack,
        "ok": not found,
        "findings": [asdict(finding) for finding in found],
        "machines": {
            machine.name: {
                "roles": machine.roles,
                "reached": machine.reached,
                "why": machine.why,
                "facts": dict(machine.facts),
            }
            for machine in seen.machines
        },
        "kubernetes": {
            **asdict(view),
            # Of pods that are well there are many, and nothing to say.
            "pods": [asdict(pod) for pod in view.pods if not pod.ready],
            "logs": {name: text.splitlines() for name, text in view.logs.items()},
            "drained": [
                {"node": node.name, "reason": node.reason, "since": node.since_utc, "actor": actor, "todo": todo}
                for node, actor, todo in acting
            ],
        },
    }
    return StatusReport(seen=seen, findings=found, tables=[tables.get(name, name) for name in shown], document=document)


def _tables(view: View, acting: Sequence[tuple[Node, str, str]]) -> dict[str, Table]:
    cluster = [
        (
            condition.type,
            condition.status,
            condition.since,
            ": ".join(filter(None, (condition.reason, condition.message))),
        )
        for condition in view.conditions
    ]
    nodesets = [
        (
            row.name,
            str(row.wanted) if row.most is None else f"{row.wanted} of {row.most}",
            str(row.ready),
            row.phase or "-",
        )
        for row in view.nodesets
    ]
    checks = [
        (check.name, check.result or "never ran", check.since, "suspended" if check.suspended else "-")
        for check in view.checks
    ]
    pods = [
        (f"{pod.namespace}/{pod.name}", pod.phase, str(pod.restarts), pod.since, pod.why or "-")
        for pod in view.pods
        if not pod.ready
    ]
    drained = [(node.name, node.since_utc, actor, node.reason or "-") for node, actor, _ in acting]
    first = ("SlurmCluster", view.phase or "not there", None, "")
    return {
        "cluster": Table(heading=("CLUSTER", "STATE", "FOR", "WHY"), rows=[first, *cluster]),
        "nodesets": Table(heading=("NODESET", "WANTED", "READY", "PHASE"), rows=nodesets),
        "drained": Table(heading=("DRAINED", "FOR", "WHO MUST ACT", "REASON"), rows=drained, widest=60),
        "checks": Table(heading=("CHECK", "LAST RESULT", "AGO", "SCHEDULE"), rows=checks),
        "pods": Table(heading=("POD NOT READY", "PHASE", "RESTARTS", "FOR", "WHY"), rows=pods),
    }
