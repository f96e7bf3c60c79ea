"""Waits of `up`: each passes in the end, or says what was missing."""

import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.nebius import waits
from components.nebius.kubectl import Kubectl, KubectlError
from components.nebius.poll import Poll
from components.nebius.waits import Progress, WaitError, WaitGoal, wait_for
from scripts.node.slurm import nodes
from tests.nebius.deploy.kubectl_stand_in import Cluster, row
from tests.waiting import PATIENCE

GROUP = {"name": "worker-gpu-0", "id": "g", "count": 2, "gpus": 8}


def wait_facts(kind: str, kubectl: Cluster, /, limit: float = PATIENCE, **spec: Any) -> dict[str, Any]:
    """The facts of a wait."""
    return waits.wait(cast("Kubectl", kubectl), kind, spec, seconds=limit, pace=0.01)


def wait_error(kind: str, kubectl: Cluster, /, **spec: Any) -> str:
    """Return what a wait says that has 0.3 s, and does not end well."""
    with pytest.raises(WaitError) as raised:
        wait_facts(kind, kubectl, 0.3, **spec)
    return str(raised.value)


class TestAnyWait:
    def test_a_wait_ends_with_what_was_missing_and_what_to_do(self) -> None:
        awaited = WaitGoal(
            "a thing", lambda: Progress("half of it"), "look", lambda: "  an event", "nebius.timeouts.login"
        )
        with pytest.raises(WaitError) as error:
            wait_for(awaited, seconds=0.02, pace=0.01)
        assert str(error.value).splitlines() == [
            "a thing did not come within 0 s (nebius.timeouts.login): half of it", "  an event", "to do: look",
        ]  # fmt: skip

    def test_a_wait_ends_at_once_if_its_goal_can_not_be_reached(self) -> None:
        def look() -> Progress:
            raise KubectlError("`kubectl get` failed: getting credentials: exec: executable nebius not found")

        with pytest.raises(WaitError, match=r"nebius.token_command"):
            wait_for(WaitGoal("a thing", look), seconds=60, pace=10)
        with pytest.raises(WaitError, match="a thing failed: BackoffLimitExceeded"):
            wait_for(WaitGoal("a thing", lambda: Progress("BackoffLimitExceeded", failed=True)), seconds=60, pace=10)

    def test_an_api_server_that_does_not_answer_is_asked_again(self) -> None:
        answers = iter([KubectlError("connection refused"), Progress(done=True, facts={"a": 1})])

        def look() -> Progress:
            if isinstance(found := next(answers), Exception):
                raise found
            return found

        assert wait_for(WaitGoal("a thing", look), seconds=PATIENCE, pace=0.01) == {"a": 1}

    def test_long_waits_poll_less_often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now, slept = [100.0], list[float]()
        monkeypatch.setattr(time, "monotonic", lambda: now[0])
        monkeypatch.setattr(time, "sleep", slept.append)
        poll = Poll(600, 0.3)
        for now[0] in (101, 112, 500, 698):
            poll.pause()
        assert slept == [0.3, 1.2, 5, 2]


class TestPermissions:
    def review(self, allowed: Callable[[], bool]) -> Cluster:
        cluster = Cluster()
        cluster.answers["create"] = lambda _: json.dumps({"status": {"allowed": allowed()}})
        return cluster

    def test_charts_wait_until_this_account_may_create_definitions(self) -> None:
        left = iter([False] * 5)
        cluster = self.review(lambda: next(left, True))
        wait_facts("api", cluster)
        assert len(cluster.ran) == 5 + len(waits.NEEDED)

    def test_a_permission_that_never_comes_is_reported(self) -> None:
        text = wait_error("api", self.review(lambda: False))
        assert "may not create customresourcedefinitions yet" in text
        assert "may edit the project" in text


class TestTheLoginAddress:
    def test_a_project_without_public_addresses_is_named_within_the_deadline(self) -> None:
        cluster = Cluster()
        cluster.objects["service"] = [row("slurm-login-svc", spec={"type": "LoadBalancer"})]
        why = {"reason": "SyncLoadBalancerFailed", "message": "public addresses are forbidden"}
        cluster.objects["events"] = [row("event-1", **why)]
        start = time.monotonic()
        text = wait_error("login", cluster, cluster="slurm", type="LoadBalancer")
        assert "has no address" in text
        assert "public addresses are forbidden" in text
        assert "nebius.login.exposure: internal" in text
        assert time.monotonic() - start >= 0.3

    def test_the_error_has_the_deadline_in_seconds(self) -> None:
        text = wait_error("login", Cluster(), cluster="slurm", type="LoadBalancer")
        assert "did not come within 0 s (nebius.timeouts.login)" in text

    def test_an_address_that_comes_late_is_taken(self) -> None:
        cluster, looks = Cluster(), iter(range(3))

        def items(kind: str, *_arguments: str) -> list[dict[str, Any]]:
            assert kind in ("service", "events")
            ingress = [] if next(looks, None) is not None else [{"ip": "192.0.2.7"}]
            status = {"loadBalancer": {"ingress": ingress}}
            return [row("slurm-login-svc", spec={"type": "LoadBalancer"}, status=status)]

        cluster.items = items
        facts = wait_facts("login", cluster, cluster="slurm", type="LoadBalancer")
        assert facts == {"address": "192.0.2.7", "port": 22}


class TestKubernetesNodes:
    def node(self, name: str, gpus: int, group: str = "g", ready: str = "True") -> dict[str, Any]:
        status = {
            "conditions": [{"type": "Ready", "status": ready, "reason": "KubeletNotReady"}],
            "allocatable": {waits.GPU: str(gpus)} if gpus else {},
        }
        return row(name, metadata={"labels": {waits.NODE_GROUP_LABEL: group}}, status=status)

    def cluster(self, *nodes: dict[str, Any]) -> Cluster:
        cluster = Cluster()
        cluster.objects["nodes"] = [self.node("a", 8), *nodes]
        return cluster

    def test_the_wait_ends_when_all_nodes_have_their_gpus(self) -> None:
        wait_facts("nodes", self.cluster(self.node("b", 8)), groups=[GROUP])

    def test_slurm_is_not_waited_for_before_nodes_advertise_their_gpus(self) -> None:
        text = wait_error("nodes", self.cluster(self.node("b", 7)), groups=[GROUP])
        assert "1 nodes do not advertise 8 nvidia.com/gpu: b has 7" in text

    def test_a_node_that_is_not_ready_is_named(self) -> None:
        text = wait_error("nodes", self.cluster(self.node("b", 8, ready="False")), groups=[GROUP])
        assert "worker-gpu-0: 1 of 2 nodes are Ready (b: KubeletNotReady: )" in text

    def test_nodes_of_other_groups_do_not_count(self) -> None:
        assert "1 of 2 nodes are Ready" in wait_error("nodes", self.cluster(self.node("b", 8, "other")), groups=[GROUP])


class TestTheJail:
    def job(self, *conditions: dict[str, str]) -> Cluster:
        cluster = Cluster()
        cluster.objects["job"] = [row("slurm-populate-jail", status={"conditions": list(conditions), "active": 1})]
        return cluster

    def test_pods_are_waited_for_after_the_jail_is_populated(self) -> None:
        wait_facts("populated", self.job({"type": "Complete", "status": "True"}), cluster="slurm")

    def test_a_population_that_fails_shows_its_log_at_once(self) -> None:
        cluster = self.job({"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"})
        cluster.logs["job/slurm-populate-jail"] = "restic: repository not found\n"
        text = wait_error("populated", cluster, cluster="slurm")
        assert "Job slurm-populate-jail failed: BackoffLimitExceeded" in text
        assert "restic: repository not found" in text


NUMBERS = st.lists(st.integers(0, 40), unique=True)


@given(NUMBERS, st.integers(0, 20), st.integers(1, 20))
def test_static_nodes_are_powered_up_and_others_left_as_slurm_has_them(
    active: list[int], static: int, more: int
) -> None:
    most = static + more
    found = waits.required_nodes(active, static, most)
    assert found == sorted(set(found))
    assert set(range(static)) <= set(found) <= set(range(most))
    assert set(found) - set(range(static)) == {number for number in active if static <= number < most}
    assert waits.required_nodes(found, static, most) == found


def test_nodes_are_powered_as_the_stack_file_has_them_unless_slurm_changes_them_meanwhile() -> None:
    cluster = slurm("NodeName=gpu-0 State=IDLE", "NodeName=gpu-1 State=IDLE")
    state = row("gpu", metadata={"resourceVersion": "7"}, spec={"nodeSetRef": "gpu", "activeNodes": [5, 0, 9]})
    cluster.objects["nodesetpowerstates"] = [state, row("other", metadata={"resourceVersion": "8"})]
    wait_facts("scheduler", cluster, nodes={"gpu-0": 0, "gpu-1": 0}, nodesets=["gpu"], powered={"gpu": [2.0, 8.0]})
    ((_, kind, name, merge, patch),) = [words for words in cluster.ran if words[0] == "patch"]
    assert (kind, name, merge) == ("nodesetpowerstates.slurm.nebius.ai", "gpu", "--type=merge")
    given_ = json.loads(patch.removeprefix("--patch="))
    assert given_ == {"metadata": {"resourceVersion": "7"}, "spec": {"activeNodes": [0, 1, 5]}}


def test_the_power_state_of_a_new_nodeset_is_waited_for() -> None:
    """Soperator creates it after the NodeSet (reconcileNodeSetPowerState in nodesetcontroller/reconcile.go, 4.1.7)."""
    cluster = slurm("NodeName=gpu-0 State=IDLE")
    asked = wait_error("scheduler", cluster, nodes={"gpu-0": 0}, nodesets=["gpu"], powered={"gpu": [1, 8]})
    assert "power states of elastic NodeSets did not come" in asked
    assert "gpu has none yet" in asked


def slurm(*lines: str) -> Cluster:
    """A cluster whose login pod answers with these nodes."""
    cluster = Cluster()
    shown = [*lines]

    def scontrol(_pod: str, words: Any) -> str:
        if words[1] == "delete":
            shown[:] = [line for line in shown if words[2] not in line.split()]
        return "\n".join(shown) + "\n"

    cluster.programs["scontrol"] = scontrol
    cluster.programs["nvidia-smi"] = lambda _pod, _words: "".join(f"GPU {index}: H100\n" for index in range(8))
    return cluster


class TestSlurmsNodes:
    @pytest.mark.parametrize(
        ("states", "gres", "text"),
        [
            (("IDLE+DYNAMIC_NORM", "MIXED+DYNAMIC_NORM"), "", ""),
            # A check that only comments does not hold up the cluster.
            (("IDLE", "ALLOCATED Comment=[node_problem] ib-gpu-perf failed"), "", ""),
            (("IDLE", "DOWN"), "", "gpu-1 is down"),
            (("IDLE", "IDLE*"), "", "gpu-1 is "),
            (("IDLE", "DOWN+DRAIN"), "", "gpu-1 is "),
            (("IDLE",), "", "gpu-1 has not registered"),
            (("IDLE", "IDLE"), "gpu:7", "gpu-1 has 7 GPUs in Slurm, not 8"),
        ],
    )
    def test_nodes_must_take_jobs_and_have_their_gpus(self, states: tuple[str, ...], gres: str, text: str) -> None:
        given = ("gpu:nvidia_h100_80gb_hbm3:8(S:0-1)", gres or "gpu:h100:8")
        rows = zip(states, given, strict=False)
        text_of = "\n".join(f"NodeName=gpu-{index} Gres={of} State={state}" for index, (state, of) in enumerate(rows))
        found = waits.slurm_progress({"gpu-0": 8, "gpu-1": 8}, nodes.parse(text_of))
        assert found.done is not bool(text)
        assert text in found.text

    def test_a_drained_node_is_a_warning_with_its_reason(self, capfd: pytest.CaptureFixture[str]) -> None:
        reason = "[user_problem] boot disk is used by 95%"
        line = f"NodeName=worker-0 State=IDLE+DRAIN Gres=gpu:8 Reason={reason} [root@2026-11-22T05:00:00]"
        wait_facts("scheduler", slurm(line), nodes={"worker-0": 8}, nodesets=["worker"])
        assert f"worker-0 is drained: {reason} (root)" in "".join(capfd.readouterr())

    def test_nodes_that_have_left_are_deleted_from_slurm_and_those_of_others_are_not(self) -> None:
        cluster = slurm(
            "NodeName=worker-0 State=IDLE Gres=gpu:8",
            "NodeName=worker-1 State=DOWN* Gres=gpu:8",
            "NodeName=worker-2 State=IDLE Gres=gpu:8",
            "NodeName=cloud-1 State=DOWN* Gres=",
        )
        wait_facts("scheduler", cluster, nodes={"worker-0": 8}, nodesets=["worker"])
        deleted = [words for words in cluster.ran if "delete" in words]
        assert deleted == [("login-0", "scontrol", "delete", "NodeName=worker-1")]

    def test_a_drained_node_that_leaves_is_waited_for(self) -> None:
        left = f"NodeName=worker-1 State=IDLE+DRAIN Reason={waits.LEAVES} [root@2026-11-22T05:00:00]"
        cluster = slurm("NodeName=worker-0 State=IDLE Gres=gpu:8", left)
        text = wait_error("scheduler", cluster, nodes={"worker-0": 8}, nodesets=["worker"])
        assert "worker-1: leaving, and slurmd still answers" in text

    def test_elastic_nodes_may_sleep_and_static_nodes_may_not(self) -> None:
        lines = ["NodeName=worker-0 State=IDLE+CLOUD", "NodeName=worker-1 State=IDLE+CLOUD+POWERED_DOWN"]
        spec = {"nodesets": ["worker"], "elastic": ["worker-1", "worker-2"]}
        cluster = slurm(*lines, "NodeName=worker-2 State=DOWN+CLOUD+POWERED_DOWN+NOT_RESPONDING")
        wait_facts("scheduler", cluster, nodes={"worker-0": 0}, **spec)
        assert not any("update" in words or "delete" in words for words in cluster.ran)
        assert "worker-1 is idle~" in wait_error("scheduler", cluster, nodes={"worker-0": 0, "worker-1": 0}, **spec)

    def test_a_node_that_became_elastic_is_powered_down_and_a_recreated_one_is_resumed(self) -> None:
        at = "[root@2026-11-22T05:00:00]"
        cluster = slurm(
            "NodeName=worker-0 State=IDLE+CLOUD",
            f"NodeName=worker-1 State=IDLE+CLOUD+DRAIN Reason={waits.LEAVES} {at}",
            f"NodeName=worker-2 State=IDLE+CLOUD+DRAIN Reason={waits.RECREATED} {at}",
            f"NodeName=worker-3 State=IDLE+CLOUD+DRAIN Reason=cable {at}",
        )
        elastic = ["worker-1", "worker-2", "worker-3"]
        wait_facts("scheduler", cluster, nodes={"worker-0": 0}, nodesets=["worker"], elastic=elastic)
        assert [words[2:] for words in cluster.ran if "update" in words] == [
            ("update", "NodeName=worker-1", "State=POWER_DOWN"), ("update", "NodeName=worker-2", "State=RESUME"),
        ]  # fmt: skip

    def test_gpus_are_counted_inside_the_jail(self) -> None:
        cluster = slurm("NodeName=worker-0 State=IDLE Gres=gpu:nvidia_h100_80gb_hbm3:8(S:0-1)")
        cluster.programs["nvidia-smi"] = lambda _pod, _words: "".join(f"GPU {index}: H100\n" for index in range(7))
        text = wait_error("scheduler", cluster, nodes={"worker-0": 8}, nodesets=["worker"])
        assert "worker-0 has 7 of 8 GPUs in its jail" in text
        assert "./hpc run STACK -- srun --nodes=1 --gpus=1 ldconfig" in text
