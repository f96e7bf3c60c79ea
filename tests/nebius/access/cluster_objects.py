"""Objects of a cluster, shaped as Soperator and Kubernetes have them.

Fields: api/v1/slurmcluster_types.go, api/v1alpha1/{nodeset,activecheck}_types.go, internal/consts of nebius/soperator
4.1.7; internal/render; k8s.io/api core/v1.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

SINCE = "2026-01-05T05:00:00Z"
Object = dict[str, Any]


def condition(type_: str, status: str = "True", reason: str = "", message: str = "", since: str = SINCE) -> Object:
    return {"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def slurm_cluster(phase: str = "Available", *conditions: Object, spec: Object | None = None) -> Object:
    status: Object = {"phase": phase, "conditions": list(conditions)}
    return {"kind": "SlurmCluster", "metadata": {"name": "soperator"}, "spec": spec or {}, "status": status}


def node_set(name: str = "worker", wanted: int = 2, ready: int = 2, phase: str = "Ready") -> Object:
    return {
        "kind": "NodeSet",
        "metadata": {"name": name},
        "spec": {"replicas": wanted},
        "status": {"phase": phase, "replicas": ready},
    }


def elastic_node_set(name: str, most: int, powered: Sequence[int], ready: int) -> list[Object]:
    """A NodeSet with its NodeSetPowerState."""
    nodeset = node_set(name, most, ready)
    nodeset["spec"]["ephemeralNodes"] = True
    state = {"kind": "NodeSetPowerState", "metadata": {"name": name}, "spec": {"nodeSetRef": name}}
    # Soperator leaves out a list that is empty.
    return [nodeset, {**state, "spec": {**state["spec"], **({"activeNodes": [*powered]} if powered else {})}}]


def active_check(name: str, *, slurm: str = "", pods: str = "", drains: bool = False, needs: Sequence[str] = (),
                 failed: Mapping[str, str] | None = None, suspend: bool = False) -> Object:  # fmt: skip
    spec: Object = {"checkType": "slurmJob" if slurm else "k8sJob", "dependsOn": list(needs), "suspend": suspend}
    if drains:
        spec["failureReactions"] = {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}}
    return {
        "kind": "ActiveCheck",
        "metadata": {"name": name},
        "spec": spec,
        "status": {
            "k8sJobsStatus": {"lastJobStatus": pods or "Complete", "lastTransitionTime": SINCE},
            "slurmJobsStatus": {
                "lastRunStatus": slurm,
                "lastTransitionTime": SINCE,
                "lastRunFailJobsAndReasons": [{"jobID": job, "reason": why} for job, why in (failed or {}).items()],
                "lastRunErrorJobsAndReasons": None,
            },
        },
    }


def pod(
    name: str, *, ready: bool = True, phase: str = "Running", container: str = "slurmd", namespace: str = "soperator",
    component: str = "nodeset", node: str = "host-1", state: Object | None = None, restarts: int = 0,
    scheduled: Object | None = None, job: str = "", labels: Mapping[str, str] | None = None,
) -> Object:  # fmt: skip
    conditions = [condition("PodScheduled"), condition("Ready", "True" if ready else "False")]
    if scheduled:
        conditions[0] = scheduled
    status = {"name": container, "ready": ready, "restartCount": restarts, "state": state or {"running": {}}}
    return {
        "kind": "Pod",
        "metadata": {
            "namespace": namespace, "name": name, "creationTimestamp": SINCE,
            "labels": {"app.kubernetes.io/component": component, **(labels or {})},
            "ownerReferences": [{"kind": "Job", "name": job}] if job else [],
        },
        "spec": {"nodeName": node, "containers": [{"name": container}, {"name": "munge"}]},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": [status]},
    }  # fmt: skip


def event(name: str, reason: str, message: str, *, kind: str = "Pod", namespace: str = "soperator") -> Object:
    about = {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": "Event", "involvedObject": about, "reason": reason, "message": message, "lastTimestamp": SINCE}


def host(name: str, *conditions: Object, labels: Mapping[str, str] | None = None) -> Object:
    status = {"conditions": [condition("Ready"), *conditions]}
    return {"kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}, "status": status}


def checks_manager(*, replacement: bool) -> Object:
    args = [f"--enable-node-replacement={str(replacement).lower()}", "--enable-extensive-check=false"]
    template = {"spec": {"containers": [{"name": "manager", "args": args}]}}
    metadata = {"name": "soperator-checks", "namespace": "soperator-system"}
    return {"kind": "Deployment", "metadata": metadata, "spec": {"template": template}}


PODS = [
    pod("controller-0", container="slurmctld", component="controller"),
    pod("login-0", container="sshd", component="login"),
    pod("login-1", container="sshd", component="login"),
    pod("worker-0"),
    pod("worker-1", node="host-2"),
    pod("accounting-7d9f-abcde", container="accounting", component="accounting"),
    pod("soperator-manager-abc", container="manager", component="operator", namespace="soperator-system"),
    pod(
        "soperator-populate-jail-x7k2p",
        container="populate-jail",
        phase="Succeeded",
        ready=False,
        component="populate-jail",
        job="j",
    ),
]
NODES = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=32 CPUAlloc=0 CPUTot=128 Gres=gpu:h100:8 State={state} "
    "Partitions=main Version=25.11.8{reason}\n"
)
PARTITIONS = (
    "PartitionName=main Default=YES State=UP MaxTime=UNLIMITED Nodes=worker-[0-1] TotalCPUs=256 TotalNodes=2\n"
    "PartitionName=hidden Default=NO State=UP MaxTime=UNLIMITED Nodes=worker-[0-1] TotalCPUs=256 TotalNodes=2\n"
)


def node_rows(states: Mapping[str, tuple[str, str]]) -> str:
    """Return what `scontrol show node` prints, by name: state, and reason with who gave it and when."""
    rows = (
        NODES.format(name=name, state=state, reason=f" Reason={why} [root@2026-01-05T05:00:00]" if why else "")
        for name, (state, why) in states.items()
    )
    return "".join(rows)


IDLE = {"worker-0": ("IDLE+DYNAMIC_NORM", ""), "worker-1": ("IDLE+DYNAMIC_NORM", "")}


class World:
    """What a fake kubectl answers, which a test changes before it writes it."""

    def __init__(self) -> None:
        self.clusters: list[Object] | None = [slurm_cluster("Available", condition("ControllersAvailable"))]
        self.node_sets: list[Object] | None = [node_set()]
        self.checks: list[Object] | None = [active_check("all-reduce-perf", slurm="Complete", drains=True)]
        self.pods: list[Object] = [*PODS, checks_manager(replacement=True)]
        self.events: list[Object] = []
        self.hosts: list[Object] = [host("host-1"), host("host-2")]
        self.secrets: list[Object] = []
        self.live: list[Object] = []
        self.logs: dict[str, str] = {}
        self.nodes: Mapping[str, tuple[str, str]] = IDLE
        self.ping = "Slurmctld(primary) at controller-0 is UP"
        self.partitions = PARTITIONS
        self.database: Mapping[str, str] = {}

    def script(self) -> str:
        """The program, for the fixture `kubectl`."""
        absent = 'echo "error: the server doesn\'t have a resource type \\"$2\\"" >&2; exit 1'
        kinds = {
            "slurmclusters.slurm.nebius.ai": self.clusters,
            "nodesets.slurm.nebius.ai,nodesetpowerstates.slurm.nebius.ai": self.node_sets,
            "activechecks.slurm.nebius.ai": self.checks, "events": self.events, "nodes": self.hosts,
            "pods,deployments.apps": self.pods,
            "pods": [pod for pod in self.pods if pod["kind"] == "Pod"], "secrets": self.secrets,
            "--filename=-": self.live, "deployments.apps": [pod for pod in self.pods if pod["kind"] == "Deployment"],
        }  # fmt: skip
        cases = [
            f"'get {kind}') "
            + (f"{_print(json.dumps({'kind': 'List', 'items': items}))}" if items is not None else absent)
            for kind, items in kinds.items()
        ]
        cases += [f"'logs {name}') {_print(text)}" for name, text in self.logs.items()]
        # The script for the container is run here, with Slurm's commands as functions.
        functions = {
            "scontrol": f'case "$*" in ping) {_print(self.ping)};; *node) {_print(node_rows(self.nodes))};; '
            f"*) {_print(self.partitions)};; esac",
            "squeue": ":",
            "sacctmgr": 'case "$4" in '
            + " ".join(f"{kind}) {_print(text)};;" for kind, text in self.database.items())
            + " esac",
            "timeout": 'shift; "$@"',
        }
        defined = "; ".join(f"{name}() {{ {body}; }}" for name, body in functions.items())
        cases.append(f"'exec controller-0') for line; do :; done; eval \"{defined_escaped(defined)}; $line\"")
        return 'case "$1 $2" in ' + ";; ".join(cases) + ";; esac"


def defined_escaped(text: str) -> str:
    """Text for double quotes of a shell."""
    for character in '\\"$`':
        text = text.replace(character, f"\\{character}")
    return text


def _print(text: str) -> str:
    return f"printf '%s\\n' {shlex.quote(text.rstrip(chr(10)))}"
