"""`status` of a cluster of pods: what is wrong, in words, from objects as Soperator and Kubernetes have them."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
    event,
    host,
    node_set,
    pod,
    slurm_cluster,
)
from tests.nebius.access.conftest import Hpc
from tests.nebius.access.test_reasons import DISK

Made = Callable[[str], Path]
pytestmark = pytest.mark.usefixtures("up")


def found(hpc: Hpc, kubectl: Made, world: World) -> dict[str, dict[str, Any]]:
    """Findings of `status --json` by id and place."""
    kubectl(world.script())
    ended = hpc("status", "nebius", "--json")
    document = json.loads(ended.out)
    assert ended.code == (0 if document["ok"] else 1), ended.err
    return {f"{one['id']} {','.join(one['where'])}": one for one in document["findings"]}


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
    assert kubernetes["nodesets"] == [{"name": "worker", "wanted": 2, "ready": 2, "phase": "Ready"}]


@pytest.mark.parametrize("command", ["status", "drift"])
def test_each_question_has_the_seconds_that_are_given(
    hpc: Hpc, kubectl: Made, up: dict[str, Any], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr("cli.access.kubectl._START_SECONDS", 0)
    up["config"] = config_text(nebius())
    kubectl("sleep 30")
    began = time.monotonic()
    ended = hpc(command, "nebius", "--timeout", "1", "--json")
    assert ended.code == 1, ended.err
    assert time.monotonic() - began < 15
    assert "no answer within 1 s" in ended.out


class TestOperator:
    def test_phase_and_the_conditions_that_are_false(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        bad = condition("LoginAvailable", "False", "NotAvailable", "Login is not available yet")
        world.clusters = [slurm_cluster("Not available", condition("CommonAvailable"), bad)]
        one = found(hpc, kubectl, world)["cluster-unavailable controller-0"]
        assert one["what"] == (
            "the SlurmCluster is Not available: LoginAvailable is False (NotAvailable: Login is not available yet)"
        )
        assert one["since"] is not None

    def test_no_slurm_cluster(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.clusters = []
        assert "the SlurmCluster is not there" in found(hpc, kubectl, world)["cluster-unavailable controller-0"]["what"]

    def test_a_node_set_that_is_not_full(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.node_sets = [node_set(wanted=4, ready=2, phase="Provisioning"), node_set("cpu", 1, 1)]
        findings = found(hpc, kubectl, world)
        assert findings["nodeset-incomplete worker"]["what"] == "has 2 of 4 nodes ready, phase Provisioning"
        assert "nodeset-incomplete cpu" not in findings


class TestPods:
    def test_one_that_crashes_with_its_events(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting"}}
        world.pods += [pod("worker-2", ready=False, state=state, restarts=7)]
        world.events = [
            event("worker-2", "BackOff", "Back-off restarting failed container"),
            event("x", "No", "not its"),
        ]
        world.logs = {"worker-2": "nothing that is known"}
        one = found(hpc, kubectl, world)["pod-not-ready worker-2"]
        assert one["what"] == (
            "is not ready (Running): CrashLoopBackOff: back-off 5m0s restarting. Its last events: BackOff: Back-off "
            "restarting failed container"
        )
        assert one["todo"] == "./hpc logs nebius worker-2"

    def test_one_that_finds_no_place(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        nowhere = condition("PodScheduled", "False", "Unschedulable", "0/5 nodes are available")
        world.pods = [*PODS[:-3], pod("worker-2", ready=False, phase="Pending", scheduled=nowhere, node="")]
        one = found(hpc, kubectl, world)["pod-not-ready worker-2"]
        assert "Pending): Unschedulable: 0/5 nodes are available" in one["what"]

    def test_pods_of_completed_jobs_are_no_finding(self, hpc: Hpc, kubectl: Made) -> None:
        assert found(hpc, kubectl, World()) == {}

    @pytest.mark.parametrize(
        ("text", "number", "what"),
        [
            ("fatal: Switch configuration ab has invalid child (0f12345678901234567890)", 9, "more digits than Slurm"),
        ],
    )
    def test_the_log_of_one_that_crashes_names_a_known_problem(
        self, hpc: Hpc, kubectl: Made, text: str, number: int, what: str
    ) -> None:
        world = World()
        state = {"waiting": {"reason": "CrashLoopBackOff"}}
        world.pods[0] = pod("controller-0", container="slurmctld", ready=False, state=state, restarts=3)
        world.logs = {"controller-0": f"before\n{text}\nafter"}
        findings = found(hpc, kubectl, world)
        assert what in findings[f"known-problem-{number} controller-0"]["what"]
        # The cause stands before its effects.
        assert next(iter(findings)).startswith("known-problem-")


class TestNodes:
    @pytest.mark.parametrize(
        ("reason", "actor", "todo"),
        [
            (
                "[user_problem] alloc_gpus_busy: Allocated GPUs are used [prolog]",
                "user",
                "Remove what the reason names",
            ),
            ("[node_problem] gpu_health_check: ib [hc_program]", "cloud support", "The operator program should have"),
            ("replacing a cable", "administrator", "Resume it once the reason is gone."),
        ],
    )
    def test_a_drained_node_says_who_must_act_and_since_when(
        self, hpc: Hpc, kubectl: Made, reason: str, actor: str, todo: str
    ) -> None:
        world = World()
        world.nodes = {**IDLE, "worker-1": ("IDLE+DRAIN+DYNAMIC_NORM", reason)}
        one = found(hpc, kubectl, world)["node-drained worker-1"]
        assert reason in one["what"]
        assert one["what"].endswith(f"Who must act: {actor}")
        assert one["note"].startswith(todo)
        assert one["since"] == pytest.approx(1767589200.0)
        rows = hpc("status", "nebius").out.partition("\nDRAINED")[2].splitlines()
        assert rows[1].startswith("worker-1")
        assert actor in rows[1]

    def test_an_operator_that_may_not_replace_nodes(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.pods[-1] = checks_manager(replacement=False)
        world.nodes = {**IDLE, "worker-1": ("IDLE+DRAIN", "[hardware_problem] extensive-check: job 7")}
        one = found(hpc, kubectl, world)["node-drained worker-1"]
        assert "may not replace nodes here" in one["note"]

    def test_a_full_boot_disk_is_named(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.nodes = {**IDLE, "worker-1": ("IDLE+DRAIN", DISK)}
        findings = found(hpc, kubectl, world)
        assert findings["known-problem-14 worker-1"]["todo"].startswith("./hpc ssh nebius worker-1 -- 'enroot list")
        assert "node-drained worker-1" in findings

    def test_one_whose_pod_is_gone_is_still_listed_by_slurmctld(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.nodes = {**IDLE, "worker-7": ("DOWN*+DYNAMIC_NORM", "Not responding")}
        one = found(hpc, kubectl, world)["known-problem-17 worker-7"]
        assert one["todo"] == "./hpc ssh nebius controller -- scontrol delete NodeName=worker-7"

    def test_one_that_is_off_on_request_is_not(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.nodes = {**IDLE, "worker-7": ("IDLE+CLOUD+POWERED_DOWN", "")}
        assert found(hpc, kubectl, world) == {}

    def test_a_host_with_suspected_hardware(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        suspected = condition("HardwareIssuesSuspected", "True", "GPUHealthCheckFailedSoperator", "xid 79")
        world.hosts = [host("host-1"), host("host-2", suspected)]
        one = found(hpc, kubectl, world)["host-condition host-2"]
        assert (
            "where worker-1 runs: HardwareIssuesSuspected is True (GPUHealthCheckFailedSoperator: xid 79)"
            in one["what"]
        )


class TestChecks:
    def test_a_failed_check_names_its_jobs(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.checks = [active_check("gpu-fryer", slurm="Failed", drains=True, failed={"71": "too slow"})]
        one = found(hpc, kubectl, world)["check-failed gpu-fryer"]
        assert one["what"] == "the last run of this check ended as Failed: job 71: too slow"

    def test_one_that_holds_up_the_bring_up(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.checks = [
            active_check("ib-gpu-perf", slurm="Failed"),
            active_check("ensure-healthy-nodes", pods="Pending", needs=["ib-gpu-perf"]),
        ]
        one = found(hpc, kubectl, world)["known-problem-16 ib-gpu-perf"]
        assert "ensure-healthy-nodes waits for it" in one["what"]
        assert one["todo"] == ("kubectl create job --namespace soperator --from=cronjob/ib-gpu-perf ib-gpu-perf-again")

    def test_missing_libraries_in_containers(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        text = "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system."
        world.checks = [active_check("nccl-in-docker", slurm="Failed", failed={"3": text})]
        one = found(hpc, kubectl, world)["known-problem-7 nccl-in-docker"]
        assert one["todo"] == "./hpc ssh nebius login-0 -- ldconfig"


class TestUnreached:
    def test_slurmctld_that_is_down(self, hpc: Hpc, kubectl: Made) -> None:
        world = World()
        world.ping = "Slurmctld(primary) at controller-0 is DOWN"
        one = found(hpc, kubectl, world)["slurmctld-down controller-0"]
        assert "is DOWN" in one["what"]
        assert one["todo"] == "./hpc logs nebius slurmctld"

    def test_an_api_that_does_not_answer_is_one_finding_with_its_reason(self, hpc: Hpc, kubectl: Made) -> None:
        kubectl("echo 'The connection to the server 203.0.113.7 was refused' >&2; exit 1")
        ended = hpc("status", "nebius", "--json")
        document = json.loads(ended.out)
        assert ended.code == 1
        assert {one["id"] for one in document["findings"]} == {"not-read"}
        assert "was refused" in document["findings"][0]["what"]
        assert not document["machines"]["controller-0"]["reached"]
        assert "nodes' states are not known" in hpc("status", "nebius").out

    def test_slurms_answers_are_of_utc(self, hpc: Hpc, kubectl: Made, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "America/New_York")
        world = World()
        world.nodes = {**IDLE, "worker-1": ("IDLE+DRAIN", "cable")}
        assert found(hpc, kubectl, world)["node-drained worker-1"]["since"] == pytest.approx(1767589200.0), SINCE
