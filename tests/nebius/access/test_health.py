"""`status` and `health` of a cluster of pods: what is wrong, in words, and who must act."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.platforms.nebius.health import (
    OPERATOR_SECONDS,
    PROBLEMS,
    REASONS,
    action,
    blocking_checks,
    recognize_problems,
)
from cluster.platforms.nebius.observation import HOSTS, Check
from components.deploy import config_text
from tests.cluster.nebius.clusters import nebius
from tests.nebius.access.cluster_objects import (
    IDLE,
    PODS,
    SINCE,
    World,
    active_check,
    checks_manager,
    condition,
    elastic_node_set,
    event,
    host,
    node_set,
    pod,
    slurm_cluster,
)
from tests.nebius.access.conftest import Hpc
from tests.waiting import PATIENCE

DISK = (
    "[user_problem] boot_disk_full: 85% of node boot disk is used. Clean up volumes from 'ssh worker-0 "
    "/opt/soperator_utils/fs_usage.sh -l' [hc_program]"
)


REASONS_OF_DRAINS = (
    DISK, f'"{DISK}"', "[user_problem] alloc_gpus_busy: Allocated GPUs are used [prolog]", "[node_problem] x: y",
    "[node_problem] gpu_health_check: ibperf: failed [hc_program]", "[hardware_problem] extensive-check: job 7 failed",
    "[compute_maintenance] node replacement process", "[compute_maintenance] node reboot process", "Kill task failed",
    "replacing a cable", "",
)  # fmt: skip


def test_the_prefix_of_a_reason_decides_who_acts(reviewed) -> None:
    """An operator that does not act in its time, or may not replace nodes, leaves it to Nebius's support."""
    whens = {"now": (60, True), "late": (OPERATOR_SECONDS + 1, True), "in time": (OPERATOR_SECONDS - 1, True),
             "at no known time": (None, True), "without replacement": (60, False)}  # fmt: skip
    shown = {}
    for reason in REASONS_OF_DRAINS:
        found = {when: action(reason, seconds, replacement=may) for when, (seconds, may) in whens.items()}
        rows = (
            f"{when}: {item.actor.value}{'' if item.known else ' (unknown reason)'}" for when, item in found.items()
        )
        shown[reason or "no reason"] = "\n".join(rows)
    reviewed("health/actors", shown)


def test_every_condition_of_hosts_is_said_in_words() -> None:
    problems = {"NebiusMaintenanceScheduled", "SoperatorChecksNodeMaintenance", "SoperatorChecksNodeDegraded"}
    assert set(HOSTS) == {*problems, "HardwareIssuesSuspected", "Ready"}


def test_no_prefix_of_a_reason_hides_a_longer_one() -> None:
    beginnings = list(REASONS)
    hidden = [
        (first, later)
        for index, first in enumerate(beginnings)
        for later in beginnings[index + 1 :]
        if later.startswith(first)
    ]
    assert hidden == []


TEXTS = {
    7: [
        "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure",
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open shared object",
    ],
    9: ["slurmctld: fatal: Switch configuration a1b2 has invalid child (0f12345678901234567890)"],
    14: [DISK],
}
HARMLESS = [
    "[2026-03-10T10:00:00.000] error: Node worker-0 has low real_memory size",
    "slurmctld: fatal: Switch configuration root has invalid child (leaf-7)",
    "mount: /dev/sda1 mounted on /mnt",
    "[user_problem] alloc_gpus_busy: Allocated GPUs are used by processes not managed by Slurm",
    "Jail directory is already populated (sentinel exists), exiting",
    "topology/tree: init: topology tree plugin loaded",
    "",
]


@pytest.mark.parametrize(("number", "text"), [(number, text) for number, texts in TEXTS.items() for text in texts])
def test_each_is_recognized_in_its_own_text_alone(number: int, text: str) -> None:
    assert [problem.number for problem in recognize_problems(["before", text, "after"])] == [number]


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_show_no_known_problem(text: str) -> None:
    assert list(recognize_problems([text])) == []


def test_every_problem_has_a_text_here() -> None:
    assert {problem.number for problem in PROBLEMS} == set(TEXTS)


def test_one_is_reported_once() -> None:
    assert [problem.number for problem in recognize_problems(TEXTS[9] * 3)] == [9]


@pytest.mark.parametrize(
    ("checks", "blocked"),
    [
        (
            [
                Check(name="ib-gpu-perf", result="Failed"),
                Check(name="ensure-healthy-nodes", result="", needs=("ib-gpu-perf", "ssh-check")),
                Check(name="ssh-check", result="Complete"),
            ],
            {"ib-gpu-perf": ("ensure-healthy-nodes",)},
        ),
        ([Check(name="drains", result="Failed", drains=True), Check(name="x", result="", needs=("drains",))], {}),
        ([Check(name="comments", result="Failed"), Check(name="x", result="Complete", needs=("comments",))], {}),
    ],
)
def test_a_failed_check_that_only_comments_holds_up_what_depends_on_it(checks: list[Check], blocked: object) -> None:
    """Neither a check that drains, nor one whose dependants ran."""
    assert {name: waiting for name, waiting in blocking_checks(checks).items() if waiting} == blocked


Made = Callable[[str], Path]
Status = Callable[..., dict[str, dict[str, Any]]]
pytestmark = pytest.mark.usefixtures("up")
CRASHING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}}
INVALID = "fatal: Switch configuration ab has invalid child (0f12345678901234567890)"
NO_LIBRARY = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
NOWHERE = condition("PodScheduled", "False", "Unschedulable", "0/5 nodes are available")
LATER = condition("LoginAvailable", "False", "NotAvailable", "Login is not available yet")
PLANNED = condition("NebiusMaintenanceScheduled", "True", "Scheduled", "from 2026-11-30T02:00:00Z")
SUSPECTED = condition("HardwareIssuesSuspected", "True", "GPUHealthCheckFailedSoperator", "xid 79")


def drained(reason: str, **more: Any) -> dict[str, Any]:
    """Return what a world has whose second worker is drained."""
    return {"nodes": {**IDLE, "worker-1": ("IDLE+DRAIN+DYNAMIC_NORM", reason)}, **more}


@pytest.fixture
def status(hpc: Hpc, kubectl: Made) -> Status:
    """Findings of `status --json` by id and place, of a world with some things changed."""

    def run(**changes: Any) -> dict[str, dict[str, Any]]:
        world = World()
        vars(world).update(changes)
        kubectl(world.script())
        ended = hpc("status", "nebius", "--json")
        document = json.loads(ended.out)
        assert ended.code == (0 if document["ok"] else 1), ended.err
        return {f"{row['id']} {','.join(row['where'])}": row for row in document["findings"]}

    return run


SLEEPING = "IDLE+CLOUD+POWERED_DOWN"
STARTING = pod("worker-2", ready=False, phase="Pending", scheduled=NOWHERE, node="")


def elastic(powered: list[int], ready: int, states: list[str], *pods: Any) -> dict[str, Any]:
    """A world whose nodeset has four nodes, the last two of them elastic and in these states."""
    nodes = {f"worker-{number}": (state, "") for number, state in enumerate(states, 2)}
    node_sets = elastic_node_set("worker", 4, powered, ready)
    return {"nodes": {**IDLE, **nodes}, "node_sets": node_sets, "pods": [*PODS, *pods]}


FINDINGS: dict[str, dict[str, Any]] = {
    "conditions that are false": {"clusters": [slurm_cluster("Not available", condition("CommonAvailable"), LATER)]},
    "no SlurmCluster": {"clusters": []},
    "a node set that is not full": {
        "node_sets": [node_set(wanted=4, ready=2, phase="Provisioning"), node_set("cpu", 1, 1)]
    },
    "a pod that crashes, with its events": {
        "pods": [*PODS, pod("worker-2", ready=False, state=CRASHING, restarts=7)],
        "logs": {"worker-2": "nothing that is known"},
        "events": [event("worker-2", "BackOff", "Back-off restarting"), event("x", "No", "not its")],
    },
    "a pod that finds no place": {
        "pods": [*PODS, pod("worker-2", ready=False, phase="Pending", scheduled=NOWHERE, node="")]
    },
    "a known problem in the log of one that crashes": {
        "pods": [pod("controller-0", container="slurmctld", ready=False, state=CRASHING, restarts=3), *PODS[1:]],
        "logs": {"controller-0": f"before\n{INVALID}\nafter"},
    },
    "a drained node that its user must act on": drained(
        "[user_problem] alloc_gpus_busy: Allocated GPUs are used [prolog]"
    ),
    "one that the operator has left": drained("[node_problem] gpu_health_check: ib [hc_program]"),
    "one that an administrator drained": drained("replacing a cable"),
    "an operator that may not replace nodes": drained(
        "[hardware_problem] extensive-check", pods=[*PODS, checks_manager(replacement=False)]
    ),
    "a full boot disk": drained(DISK),
    "a node whose pod is gone": {"nodes": {**IDLE, "worker-7": ("DOWN*+DYNAMIC_NORM", "Not responding")}},
    "a host with suspected hardware": {"hosts": [host("host-1"), host("host-2", SUSPECTED)]},
    "a host that Nebius maintains": {"hosts": [host("host-1"), host("host-2", PLANNED)]},
    "a node that is emptied for maintenance, however long its jobs take": {
        "nodes": {**IDLE, "worker-1": ("MIXED+DRAIN+CLOUD", "[compute_maintenance] node replacement process")}
    },
    "a failed check, with its jobs": {
        "checks": [active_check("gpu-fryer", slurm="Failed", drains=True, failed={"71": "too slow"})]
    },
    "a check that holds up the bring-up": {
        "checks": [
            active_check("ib-gpu-perf", slurm="Failed"),
            active_check("ensure-healthy-nodes", pods="Pending", needs=["ib-gpu-perf"]),
        ]
    },
    "missing libraries in containers": {
        "checks": [active_check("nccl-in-docker", slurm="Failed", failed={"3": NO_LIBRARY})]
    },
    "slurmctld that is down": {"ping": "Slurmctld(primary) at controller-0 is DOWN"},
    "nothing": {},
    "a node that is off on request": {"nodes": {**IDLE, "worker-7": ("IDLE+CLOUD+POWERED_DOWN", "")}},
    "elastic nodes that sleep": elastic([0, 1], 2, [SLEEPING, "IDLE+CLOUD+NOT_RESPONDING+POWERED_DOWN"]),
    "one that boots": elastic([0, 1, 2], 2, ["MIXED+CLOUD+NOT_RESPONDING+POWERING_UP", SLEEPING], STARTING),
    "one that is powered down": elastic([0, 1, 2], 2, ["IDLE+CLOUD+POWERING_DOWN", SLEEPING], STARTING),
    "elastic nodes that run": elastic(
        [0, 1, 2, 3], 4, ["IDLE+CLOUD", "ALLOCATED+CLOUD"], pod("worker-2"), pod("worker-3")
    ),
    "an elastic node that did not come": {
        **elastic([0, 1], 2, []),
        "nodes": {**IDLE, "worker-2": ("DOWN+CLOUD+POWERED_DOWN", "ResumeTimeout reached")},
    },
}


def shown(row: dict[str, Any]) -> str:
    """A finding: id, place and text, and below it the note and what to do."""
    more = [f"\n  {name}: {row[key]}" for name, key in (("note", "note"), ("to do", "todo")) if row.get(key)]
    return f"{row['id']} {','.join(row['where'])}: {row['what']}{''.join(more)}"


def test_problems_are_findings_with_a_command(status: Status, reviewed):
    found = {case: status(**changes).values() for case, changes in FINDINGS.items()}
    reviewed("health/pods", {case: "\n".join(map(shown, rows)) for case, rows in found.items()})


def test_elastic_node_sets_are_shown_with_the_nodes_that_are_up(hpc: Hpc, kubectl: Made) -> None:
    world = World()
    world.node_sets = [*elastic_node_set("worker", 16, [0, 1], 2), *elastic_node_set("spare", 4, [], 0)]
    kubectl(world.script())
    rows = [line.split() for line in hpc("status", "nebius").out.splitlines()]
    assert ["worker", "2", "of", "16", "2", "Ready"] in rows
    assert ["spare", "0", "of", "4", "0", "Ready"] in rows


def test_a_drained_node_is_in_a_table_with_who_must_act_and_since_when_in_utc(
    hpc: Hpc, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    assert status(**drained("cable"))["node-drained worker-1"]["since"] == pytest.approx(1767589200.0), SINCE
    rows = hpc("status", "nebius").out.partition("\nDRAINED")[2].splitlines()
    assert rows[1].startswith("worker-1")
    assert "administrator" in rows[1]


def test_a_cluster_that_is_well(hpc: Hpc, kubectl: Made) -> None:
    kubectl(World().script())
    ended = hpc("status", "nebius")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("nebius: all is well: 2 nodes idle, 0 jobs.\n")
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["SlurmCluster", "Available", "-"] in rows
    assert ["worker", "2", "2", "Ready"] in rows
    assert ["all-reduce-perf", "Complete"] in [row[:2] for row in rows]
    assert ["main*", "up", "unlimited", "2", "256", "worker-[0-1]"] in rows


def test_json_has_the_keys_of_every_platform_and_kubernetes_beside_them(hpc: Hpc, kubectl: Made) -> None:
    kubectl(World().script())
    document = json.loads(hpc("status", "nebius", "--json").out)
    assert (document["stack"], document["ok"], document["findings"]) == ("nebius", True, [])
    assert document["machines"]["worker-0"] == {"roles": ["node"], "reached": True, "why": "", "facts": {}}
    assert document["machines"]["controller-0"]["facts"]["slurm"]["nodes"]["worker-1"]["CPUTot"] == "128"
    kubernetes = document["kubernetes"]
    assert (kubernetes["phase"], kubernetes["pods"], kubernetes["drained"]) == ("Available", [], [])
    assert kubernetes["nodesets"] == [{"name": "worker", "wanted": 2, "ready": 2, "phase": "Ready", "most": None}]


@pytest.mark.parametrize("command", ["status", "drift"])
def test_each_question_has_the_seconds_that_are_given(
    hpc: Hpc, kubectl: Made, up: dict[str, Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("cli.access.kubectl._START_SECONDS", 0)
    up["config"] = config_text(nebius())
    kubectl("exec sleep 600")
    began = time.monotonic()
    ended = hpc(command, "nebius", "--timeout", "1", "--json")
    assert ended.code == 1, ended.err
    assert time.monotonic() - began < PATIENCE
    assert "no answer within 1 s" in ended.out


def test_an_api_that_does_not_answer_is_one_finding_with_its_reason(hpc: Hpc, kubectl: Made) -> None:
    kubectl("echo 'The connection to the server 203.0.113.7 was refused' >&2; exit 1")
    ended = hpc("status", "nebius", "--json")
    document = json.loads(ended.out)
    assert ended.code == 1
    assert {row["id"] for row in document["findings"]} == {"not-read"}
    assert "was refused" in document["findings"][0]["what"]
    assert not document["machines"]["controller-0"]["reached"]
    assert "nodes' states are not known" in hpc("status", "nebius").out


class TestHealth:
    """`./hpc health`: what checks of Soperator and Nebius found, and nothing else."""

    def test_a_cluster_that_is_well(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl(World().script())
        ended = hpc("health", "nebius")
        assert (ended.code, ended.err) == (0, "")
        assert "all-reduce-perf" in ended.out
        assert "NODESET" not in ended.out

    def test_drained_nodes_and_failed_checks(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.hosts = [host("host-1"), host("host-2", PLANNED)]
        world.checks = [active_check("gpu-fryer", slurm="Failed", drains=True, failed={"71": "too slow"})]
        world.nodes = drained("[user_problem] alloc_gpus_busy")["nodes"]
        kubectl(world.script())
        ended = hpc("health", "nebius", "--json")
        document = json.loads(ended.out)
        assert (ended.code, document["ok"]) == (1, False)
        assert {row["id"] for row in document["findings"]} == {"host-condition", "node-drained", "check-failed"}
        assert [(row["node"], row["actor"]) for row in document["drained"]] == [("worker-1", "user")]
        assert document["checks"][0]["name"] == "gpu-fryer"

    def test_it_starts_no_check(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl(World().script())
        ended = hpc("health", "nebius", "--run")
        assert ended.code == 1
        assert "Soperator runs its checks by itself" in ended.err


def test_the_page_of_report_has_the_tables_of_both_and_names_what_it_could_not_read(
    hpc: Hpc, kubectl: Made, up: dict[str, Any], tmp_path: Path
) -> None:
    up["config"] = config_text(nebius())
    kubectl(World().script())
    file = tmp_path / "report.html"
    ended = hpc("report", "nebius", "--output", str(file))
    assert ended.code == 0, ended.err
    page = file.read_text()
    expected = (
        "all is well: 2 nodes idle", "SlurmCluster", "subnet: default", "file system of 2 TiB",
    )  # fmt: skip
    assert [words for words in expected if words not in page] == []
    unread = [line.partition(" could not be read: ")[0] for line in ended.err.splitlines()]
    assert sorted(", ".join(unread).split(", ")) == ["reliability", "usage"]
