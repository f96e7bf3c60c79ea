"""The observer of clusters that Soperator runs: it reads Kubernetes' objects and slurmctld's view."""

import json
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import yaml

from cluster.config.cluster import ClusterConfig
from cluster.findings import ClusterFinding
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
from cluster.platforms.nebius.observation import PodState, View
from cluster.platforms.nebius.stack_file_fields import settings_of
from cluster.platforms.observer import (
    ClusterAccess,
    ControllerResult,
    KubectlResult,
    LogRequest,
    ReportTable,
    StatusReport,
)
from scripts.node.slurm.nodes import Node

_CRASHES = 6
"""Number of crashed containers whose last lines `status` reads."""
REQUESTS: Mapping[str, tuple[str, ...]] = {
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
"""Arguments of kubectl, by the name of what is not read if they fail."""


# Names of containers: internal/consts/container.go of nebius/soperator 4.1.7; of the operator helm/soperator/templates,
# of the database the MariaDB operator.
LOGS: Mapping[str, tuple[str, ...]] = {
    "slurmctld": ("slurmctld",),
    "slurmd": ("slurmd",),
    # In a rehearsal the container has the daemon's name.
    "slurmdbd": ("accounting", "slurmdbd"),
    "slurmrestd": ("slurmrestd",),
    "sshd": ("sshd",),
    "munge": ("munge",),
    "mariadb": ("mariadb",),
    "populate-jail": ("populate-jail",),
    "sconfigcontroller": ("sconfigctrl",),
    "operator": ("manager",),
}
"""Names of the containers that write a log, by the name that `logs` takes."""


@dataclass(frozen=True, kw_only=True, order=True)
class LogSource:
    """A container's log."""

    namespace: str
    pod: str
    container: str
    """Empty for all containers of the pod."""

    def words(self, asked: LogRequest) -> list[str]:
        """Return the arguments of kubectl, which prints before each line the time at which Kubernetes read it."""
        words = ["logs", self.pod, f"--namespace={self.namespace}", "--timestamps"]
        words += [f"--container={self.container}"] if self.container else ["--all-containers", "--max-log-requests=20"]
        words += [f"--tail={-1 if asked.lines is None else asked.lines}"]
        words += [f"--since-time={asked.since}"] if asked.since else []
        return [*words, "--follow"] if asked.follow else words


class SoperatorObserver:
    """Reads clusters over Kubernetes' API, and slurmctld in its pod."""

    operator: ClassVar[str] = "Soperator"
    advice: ClassVar[Mapping[str, str]] = {
        "up": "What the stack made and somebody changed: ./hpc refresh STACK, then ./hpc up STACK",
        "hand": "What else was changed: change it back with kubectl, scontrol or sacctmgr, or write it into the stack.",
    }

    @staticmethod
    def status(access: ClusterAccess) -> StatusReport:
        """Return the SlurmCluster with its nodesets, pods and checks, and Slurm's nodes, partitions and jobs."""
        seen, view, _ = _read(access)
        shown = ["cluster", "nodesets", "nodes", "drained", "alerts", "partitions", "queue", "checks", "pods"]
        return _report(seen, view, health.findings(seen, view, now=time.time()), shown)

    @staticmethod
    def health(access: ClusterAccess) -> StatusReport:
        """Return drained nodes, and the last results of Soperator's checks."""
        seen, view, _ = _read(access)
        report = _report(
            seen, view, health.health_findings(seen, view, now=time.time()), ["nodes", "drained", "checks"]
        )
        document = {key: report.document[key] for key in ("stack", "ok", "findings")}
        document |= {key: report.document["kubernetes"][key] for key in ("drained", "checks")}
        return replace(report, document=document)

    @staticmethod
    def drift(access: ClusterAccess, config: ClusterConfig) -> tuple[list[Difference], list[str]]:
        """Compare charts and their objects, NodeSets, Slurm's own view and its database."""
        settings = settings_of(config)
        seen, view, answers = _read(access, observation.ACCOUNTING)
        records = access.kubectl("get", "secrets", "--all-namespaces", f"--selector={drift.SELECTOR}", "--output=json")
        releases = None if records.code else drift.parse_releases(records.items)
        expected = drift.expected_releases(config, settings, access.stack)
        soperators = {release.name for release in expected if release.repo == settings.soperator.charts}
        compared = [release for name, release in (releases or {}).items() if name in soperators]
        manifests = {release.name: _documents(release.manifest) for release in compared}
        with ThreadPoolExecutor() as pool:
            read = pool.map(lambda row: read_objects(access.kubectl, row.namespace, manifests[row.name]), compared)
            objects_of = dict(zip(manifests, read, strict=True))
        unread = [f"objects of release {name}: {answer.why}" for name, answer in objects_of.items() if answer.code]
        unread += [f"Helm's releases: {records.why}"] if records.code else []
        objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        for item in (item for answer in objects_of.values() for item in answer.items):
            kind, namespace, name = drift.key(item)
            objects[kind, namespace, name] = item
            # Charts leave the namespace of most objects to the release.
            objects.setdefault((kind, "", name), item)
        live = drift.Live(
            seen=seen,
            view=view,
            releases=releases,
            objects=objects,
            manifests=[item for name, items in manifests.items() if not objects_of[name].code for item in items],
            hosts=answers["nodes"].items,
        )
        return drift.differences(config, expected, live), drift.not_compared(live, unread)

    @staticmethod
    def logs(asked: LogRequest, pods: Sequence[Mapping[str, Any]], namespace: str) -> dict[str, list[str]]:
        """Return the arguments of kubectl by the name of the pod, with the namespace if it is not the cluster's."""
        return {
            source.pod if source.namespace == namespace else f"{source.namespace}/{source.pod}": source.words(asked)
            for source in select_sources(asked.what, asked.on, pods, namespace)
        }

    @staticmethod
    def shown(line: str) -> str:
        """Return a line without the time that Kubernetes put in front, if it has a time of its own."""
        _, _, text = line.partition(" ")
        return text if re.match(r"\[?[0-9]{4}-[0-9]{2}-[0-9]{2}[T ]", text) else line

    @staticmethod
    def actors(access: ClusterAccess, nodes: Iterable[Node]) -> dict[str, str]:
        """Return who must act on drained nodes. If the cluster does not answer, the operator counts as not allowed to
        replace nodes."""
        drained = [node for node in nodes if node.drained]
        if not drained:
            return {}
        deployments = access.kubectl("get", "deployments.apps", f"--namespace={OPERATOR_NAMESPACE}", "--output=json")
        replaces, now = observation.allows_replacement(deployments.items), time.time()
        return {node.name: health.action_on(node, replaces, now=now).actor.value for node in drained}


def _read(
    access: ClusterAccess, more: Mapping[str, str] | None = None
) -> tuple[ClusterObservation, View, Mapping[str, KubectlResult]]:
    """Read a cluster; return its observation, the view of Kubernetes, and the answers of kubectl to REQUESTS. `more`
    are further commands of Slurm, by the name of their part."""
    mark = secrets.token_hex(8)
    with ThreadPoolExecutor() as pool:
        requests = {name: pool.submit(access.kubectl, *words) for name, words in REQUESTS.items()}
        # In this thread, which handles signals.
        facts = access.run(observation.script(mark, more=more))
        answers = {name: request.result() for name, request in requests.items()}
    view = _view(access, answers)
    return _observation(access, view, facts, mark, observation.alerts(answers["alerts"].out)), view, answers


def _view(access: ClusterAccess, answers: Mapping[str, KubectlResult]) -> View:
    items = answers["pods"].items
    pods = observation.pods([item for item in items if item["kind"] == "Pod"], answers["events"].items)
    clusters = answers["SlurmCluster"].items
    named = [item for item in clusters if item["metadata"]["name"] == access.namespace]
    cluster = next(iter(named or clusters), {})
    return View(
        namespace=access.namespace,
        phase=str((cluster.get("status") or {}).get("phase") or ""),
        conditions=observation.conditions(cluster),
        nodesets=observation.nodesets(answers["NodeSets"].items),
        checks=tuple(map(observation.check, answers["ActiveChecks"].items)),
        pods=pods,
        hosts=observation.hosts(answers["nodes"].items),
        replacement=observation.allows_replacement(item for item in items if item["kind"] == "Deployment"),
        logs=_crash_logs(access, [pod for pod in pods if pod.container and pod.restarts][:_CRASHES]),
        unread={name: answer.why for name, answer in answers.items() if answer.code and not _is_absent(answer.err)},
    )


def _is_absent(error: str) -> bool:
    """Return whether there is no such kind, or no Alertmanager, which not every stack has."""
    return NO_KIND in error or ("(NotFound)" in error and ALERTMANAGER in error)


def _crash_logs(access: ClusterAccess, pods: Sequence[PodState]) -> dict[str, str]:
    """Return the last lines of each pod's container, of its previous run and of this one."""

    def text(pod: PodState) -> str:
        words = ("logs", pod.name, "--namespace", pod.namespace, "--container", pod.container, "--tail=60")
        return "\n".join(access.kubectl(*words, *run).out for run in (("--previous",), ()))

    with ThreadPoolExecutor(max_workers=_CRASHES) as pool:
        return dict(zip((pod.name for pod in pods), pool.map(text, pods), strict=True))


def _observation(
    access: ClusterAccess, view: View, done: ControllerResult, mark: str, alerts: Sequence[dict[str, str]]
) -> ClusterObservation:
    """Return the observation of the targets, which are reached if their pod is ready; the controller's has slurmctld's
    view."""
    pods = {pod.name: pod for pod in view.pods if pod.namespace == view.namespace}
    machines: list[MachineObservation] = []
    for name, roles in access.roles.items():
        pod = pods.get(access.pods[name])
        why = "" if pod and pod.ready else (pod.why or f"its pod is {pod.phase}" if pod else "it has no pod")
        reached, facts = not why, Observation()
        if name == access.controller:
            reached, why = done.reached, "" if done.reached else done.err
            facts = Observation(slurm=observation.parse_output(done.out, mark)) if done.reached else facts
            if alerts:
                facts["alerts"] = [*alerts]
        machines.append(
            MachineObservation(
                name=name, roles=roles, reached=reached, why=why, facts=facts, asked=done.asked, answered=done.answered
            )
        )
    return ClusterObservation(stack=access.stack, machines=tuple(machines))


def sources_of_log(log: str, pods: Iterable[Mapping[str, Any]], namespace: str) -> list[LogSource]:
    """Return the containers that write a log."""
    own_namespace, sources = OPERATOR_NAMESPACE if log == "operator" else namespace, list[LogSource]()
    for pod in pods:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        # Placeholders only keep the controller's image on other Kubernetes nodes (internal/consts/label.go).
        is_placeholder = (metadata.get("labels") or {}).get(f"{GROUP}/controller-type") == "placeholder"
        if metadata["namespace"] == own_namespace and not is_placeholder:
            names = {row["name"] for row in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))}
            for container in names & {*LOGS[log]}:
                sources.append(LogSource(namespace=own_namespace, pod=metadata["name"], container=container))
    return sorted(sources)


def sources_of_pod(name: str, pods: Iterable[Mapping[str, Any]], namespace: str) -> list[LogSource]:
    """Return the pods of a name: that of a pod, with or without `NAMESPACE/`, or of a check or job."""
    where, _, pod = name.rpartition("/")
    candidates = [row["metadata"] for row in pods if row["metadata"]["namespace"] == (where or namespace)]
    names = [metadata["name"] for metadata in candidates if metadata["name"] == pod]
    # Pods of a job have its name and five characters more; jobs of a CronJob have its name and a number.
    pattern = re.compile(rf"{re.escape(pod)}(-[0-9a-z]+)*-[0-9a-z]{{5}}")
    names = names or [
        metadata["name"]
        for metadata in candidates
        if any(row.get("kind") == "Job" for row in metadata.get("ownerReferences") or ())
        and pattern.fullmatch(metadata["name"])
    ]
    return sorted(LogSource(namespace=where or namespace, pod=name, container="") for name in names)


def select_sources(what: str, on: Sequence[str], pods: Sequence[Mapping[str, Any]], namespace: str) -> list[LogSource]:
    """Return the containers of a log, or of a pod, check or job. Raises LookupError: there are none."""
    kinds = ", ".join(LOGS)
    if what not in LOGS:
        if on:
            raise LookupError(f"--on narrows {kinds}; {what} is none of them.")
        if not (sources := sources_of_pod(what, pods, namespace) or sources_of_pod(f"{what}-0", pods, namespace)):
            raise LookupError(f"no pod, check or job of the cluster is called {what!r}. Or one of: {kinds}.")
        return sources
    sources = sources_of_log(what, pods, namespace)
    names = [source.pod for source in sources]
    if missing := [name for name in on if name not in names]:
        raise LookupError(f"{', '.join(missing)}: no {what} there. Pods with one: {', '.join(names) or 'none'}.")
    if not sources:
        raise LookupError(f"no pod of the cluster has {what}.")
    return [source for source in sources if not on or source.pod in on]


def _documents(manifest: str) -> list[dict[str, Any]]:
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents: Iterable[Any] = yaml.load_all(manifest, Loader=loader)
    return [item for item in documents if isinstance(item, dict) and "kind" in item]


def read_objects(
    kubectl: Callable[..., KubectlResult], namespace: str, manifest: Iterable[Mapping[str, Any]]
) -> KubectlResult:
    """Read the objects of a release's manifest as they are now; missing objects are left out."""
    # Not by --namespace: kubectl refuses objects that name another one, which charts may have.
    names = [
        {
            "apiVersion": item.get("apiVersion"),
            "kind": item["kind"],
            "metadata": {"name": item["metadata"]["name"], "namespace": item["metadata"].get("namespace") or namespace},
        }
        for item in manifest
    ]
    words = ("get", "--filename=-", "--ignore-not-found", "--output=json")
    return kubectl(*words, stdin="\n".join(map(json.dumps, names))) if names else KubectlResult(code=0, out="", err="")


def _report(seen: ClusterObservation, view: View, findings: list[ClusterFinding], shown: Sequence[str]) -> StatusReport:
    """Return the report. `shown` are names of tables, of this platform or of all."""
    drained = health.drained_nodes(seen, view, now=time.time())
    tables = _tables(view, drained)
    document = {
        "stack": seen.stack,
        "ok": not findings,
        "findings": [asdict(finding) for finding in findings],
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
            # A cluster has many pods that are ready, without anything to report.
            "pods": [asdict(pod) for pod in view.pods if not pod.ready],
            "logs": {name: text.splitlines() for name, text in view.logs.items()},
            "drained": [
                {
                    "node": node.name,
                    "reason": node.reason,
                    "since": node.since_utc,
                    "actor": action.actor.value,
                    "todo": action.todo,
                }
                for node, action in drained
            ],
        },
    }
    return StatusReport(
        seen=seen, findings=findings, tables=[tables.get(name, name) for name in shown], document=document
    )


def _tables(view: View, drained: Sequence[tuple[Node, health.DrainAdvice]]) -> dict[str, ReportTable]:
    cluster = [
        (row.type, row.status, row.since, ": ".join(filter(None, (row.reason, row.message)))) for row in view.conditions
    ]
    counts = [str(row.wanted) if row.most is None else f"{row.wanted} of {row.most}" for row in view.nodesets]
    nodesets = [
        (row.name, count, str(row.ready), row.phase or "-") for row, count in zip(view.nodesets, counts, strict=True)
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
    nodes = [(node.name, node.since_utc, action.actor.value, node.reason or "-") for node, action in drained]
    first = ("SlurmCluster", view.phase or "not there", None, "")
    return {
        "cluster": ReportTable(heading=("CLUSTER", "STATE", "FOR", "WHY"), rows=[first, *cluster]),
        "nodesets": ReportTable(heading=("NODESET", "WANTED", "READY", "PHASE"), rows=nodesets),
        "drained": ReportTable(heading=("DRAINED", "FOR", "WHO MUST ACT", "REASON"), rows=nodes, widest=60),
        "checks": ReportTable(heading=("CHECK", "LAST RESULT", "AGO", "SCHEDULE"), rows=checks),
        "pods": ReportTable(heading=("POD NOT READY", "PHASE", "RESTARTS", "FOR", "WHY"), rows=pods),
    }
