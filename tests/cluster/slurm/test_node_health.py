"""Health checks of nodes: reasons, results, and the settings in slurm.conf and of the set-up."""

import pytest

from cluster.config.slurm import HealthChecks, NcclTest
from cluster.findings import Actor
from cluster.load import parse
from cluster.observe.health_check_results import findings, results
from cluster.slurm.files import render
from cluster.slurm.health import health, measurements
from cluster.slurm.script_tree import expected, has_scripts, links
from scripts.node.health.advice import ADVICE, advice, drained
from scripts.node.health.check_kinds import KINDS, LONGEST, PREFIX, kinds_of_reason, may_resume, parse_reason, reason
from scripts.node.slurm import scheduler
from scripts.node.slurm.nodes import Node
from tests.cluster.stacks import STACKS, load

NOW = 1_000_000.0


def node(name: str = "lab-gpu-0", reason: str = "", *states: str) -> Node:
    return Node(name=name, states=frozenset(states or ("IDLE",)), reason=reason)


def config(name: str = "dev", **checks: object):
    values = load(name)
    values["hpc:cluster"].setdefault("slurm", {})["health"] = checks
    return parse(values)


class TestVocabulary:
    def test_every_kind_has_advice(self):
        assert set(ADVICE) == set(KINDS)
        assert all(Actor(advised.actor) for advised in ADVICE.values())

    def test_a_reason_has_its_kinds_for_any_figures(self):
        failed = {kind: f'it\'s; "bad": gpu-ecc: \u2028{kind * 40}' for kind in KINDS}
        text = reason(failed)
        assert kinds_of_reason(text) == KINDS
        assert text.isascii()
        assert text.isprintable()
        assert not {"'", '"'} & set(text)
        assert len(text) <= 2 * LONGEST

    def test_a_reason_is_parsed_to_what_was_written(self):
        found = {"gpu-count": "7 of 8 GPUs: no device nvidia3", "mount": "/home is not mounted"}
        assert parse_reason(reason(found)) == found

    @pytest.mark.parametrize("text", ["", "Kill task failed", "new driver", "hpc: leaves the cluster", PREFIX])
    def test_other_reasons_have_no_kinds_and_no_advice(self, text):
        assert kinds_of_reason(text) == ()
        assert not may_resume(text)
        assert advice(text) is None

    def test_only_faults_that_can_end_by_themselves_are_resumed(self):
        assert may_resume(reason({"mount": "x", "clock": "y"}))
        assert not may_resume(reason({"mount": "x", "gpu-ecc": "y"}))

    def test_the_worst_fault_decides_who_must_act(self):
        found = advice(reason({"clock": "x", "gpu-memory": "y"}))
        assert found
        assert Actor(found.actor) is Actor.SUPPORT


class TestResults:
    def test_results_are_ok_failed_old_or_missing(self):
        stored = {
            "a": {"time": NOW - 10, "checks": {"disk": {"state": "ok", "text": ""}}},
            "b": {"time": NOW - 10, "checks": {"disk": {"state": "failed", "text": "/ has 1 % free"}}},
            "c": {"time": NOW - 9999, "checks": {}},
        }
        found = results("abcd", {name: node(name) for name in "abcd"}, stored, now=NOW, interval=300)
        assert [result.word for result in found] == ["ok", "failed", "old", "no result"]
        assert [(finding.id, finding.where) for finding in findings("lab", found)] == [
            ("health-failed", ("b",)), ("health-old", ("c",)), ("health-old", ("d",)),
        ]  # fmt: skip

    def test_a_failed_measurement_is_a_failure_of_the_node(self):
        stored = {"a": {"time": NOW, "checks": {}, "measured": {"network": {"state": "failed", "text": "9 Mbit/s"}}}}
        (found,) = results("a", {"a": node("a")}, stored, now=NOW, interval=300)
        assert found.failing == {"network": "9 Mbit/s"}

    @pytest.mark.parametrize(
        "stored",
        [
            None,
            [],
            "x",
            {"time": "x"},
            {"time": float("nan")},
            {"time": -1e300},
            {"time": 10**400},
            {"checks": []},
            {"checks": {"disk": 1, "other": {}}, "measured": 3},
        ],
    )
    def test_damaged_results_are_treated_as_missing(self, stored):
        (found,) = results("a", {"a": node("a")}, {"a": stored}, now=NOW, interval=300)
        assert found.word == "no result"
        assert found.failing == {}

    def test_a_finding_about_a_drained_node_has_figures_and_commands(self):
        said = drained("lab-gpu-0", reason({"gpu-count": "7 of 8 GPUs"}))
        assert said
        what, todo, note = said
        assert "gpu-count: 7 of 8 GPUs" in what
        assert todo == "./hpc nodes STACK reboot lab-gpu-0"
        assert "./hpc nodes STACK resume lab-gpu-0" in note

    def test_a_warning_is_shown_and_is_no_finding(self):
        checks = {"gpu-xid": {"state": "warning", "text": "Xid 94"}, "disk": {"state": "ok", "text": ""}}
        (found,) = results(["gpu-0"], {}, {"gpu-0": {"time": 10.0, "checks": checks}}, now=11.0, interval=300)
        assert (found.word, found.noted, found.failing) == ("warning", {"gpu-xid": "Xid 94"}, {})
        assert findings("dev", [found]) == []


class TestStack:
    @pytest.mark.parametrize("stack", STACKS)
    def test_without_the_section_there_are_no_health_checks(self, stack):
        values = load(stack)
        values["hpc:cluster"].get("slurm", {}).pop("health", None)
        cluster = parse(values)
        assert health(cluster) is None
        assert "HealthCheck" not in render(cluster, None)["slurm.conf"]

    def test_slurm_conf_names_the_program(self):
        text = render(config(interval_seconds=60), None)["slurm.conf"]
        for line in (
            "HealthCheckProgram=/usr/local/sbin/hpc-health", "HealthCheckInterval=60", "HealthCheckNodeState=ANY,CYCLE",
            "Prolog=/opt/apps/adm/slurm/slurm_prolog",
        ):  # fmt: skip
            assert f"\n{line}\n" in text

    def test_the_job_of_a_lost_gpu_is_started_on_another_node_within_90_s(self):
        """All that it waits for, each as long as it may take: the next check, which waits for an nvidia-smi that hangs,
        processes that ignore SIGTERM, the look of the process that hastens it, and slurmctld's scheduler."""
        cluster = config(requeue=True)
        check = cluster.slurm.health
        assert check
        assert "\nHealthCheckInterval=30\n" in render(cluster, None)["slurm.conf"]
        look, scheduled = 1 + scheduler.REVOKED_SECONDS, 1 + 1
        waits = check.interval + check.timeout_seconds + cluster.slurm.timers.kill_wait + look + scheduled
        assert waits < 90
        assert cluster.slurm.timers.kill_wait < scheduler.BEGIN_SECONDS

    def test_the_prolog_is_staged_like_a_script_of_the_stack(self):
        assert "prolog_slurmd.d/00-hpc-health.prolog_slurmd" in links(config())
        assert "scripts/00-hpc-health" in expected(config())
        assert not has_scripts(config(prolog=False, epilog=False))
        assert [path for path in links(config(prolog=False)) if "prolog" in path] == []

    def test_the_epilog_comes_after_that_of_rxdm(self):
        folder = "partition-a3mega-epilog_slurmd.d"
        paths = [path for path in links(config("a3mega")) if path.startswith(folder)]
        assert paths == [f"{folder}/rxdm.epilog_slurmd", f"{folder}/zz-hpc-health.epilog_slurmd"]

    def test_a3_mega_has_eight_gpus_nine_nics_and_apertures(self):
        found = health(config("a3mega", nccl={}))
        assert found
        mine = found["nodes"]["a3mega-a3mega"]
        assert (mine["gpus"], len(mine["nics"]), mine["nic_count"], mine["apertures"]) == (8, 9, 9, True)
        assert (mine["nvlinks"], mine["nvlink_gbps"]) == (18, 26.562)
        assert found["nodes"]["a3mega-debug"]["gpus"] == 0

    @pytest.mark.parametrize(("given", "least"), [({}, 420), ({"min_busbw_gbps": 300}, 300)])
    def test_the_nccl_test_of_a_node_has_the_catalogs_threshold_or_the_stacks(self, given, least):
        found = measurements(config("a3mega", nccl=given))
        assert found
        (part,) = found["nccl"]["partitions"]
        assert (part["partition"], part["busbw_gbps"], part["nodes"]) == (
            "a3mega",
            least,
            ["a3mega-a3mega-0", "a3mega-a3mega-1"],
        )
        assert "all_reduce_perf" in part["script"]
        assert found["nccl"]["user"] == "alice"

    def test_pairs_of_a3_mega_are_measured_over_their_fabric(self):
        found = measurements(config("a3mega", fabric={}))
        assert found
        (part, *_) = found["fabric"]["partitions"]
        assert part["busbw_gbps"] == 150
        assert "--nodes=2" in part["script"]
        assert "all_gather_perf" in part["script"]
        assert "arguments=(-b 2G -e 8G " in part["script"]

    def test_repaired_nodes_of_elastic_nodesets_pass_the_test_of_pairs_without_a_schedule(self):
        values = load("a3mega")
        given = values["hpc:cluster"]
        given.setdefault("slurm", {})["health"] = {}
        assert measurements(parse(values)) is None, "nothing repairs its nodes"
        given["slurm"]["reconcile"] = {"static": True}
        assert measurements(parse(values))
        del given["slurm"]["reconcile"]
        given["nodesets"]["a3mega"]["count"] = {"min": 1, "max": 4}
        found = measurements(parse(values))
        assert found
        (part,) = found["fabric"]["partitions"]
        assert (found["fabric"]["hours"], part["over_fabric"], part["busbw_gbps"]) == (0, True, 150)
        assert part["built"].startswith("nccl/nccl-tests-")

    def test_every_node_is_measured_in_one_partition(self):
        found = measurements(config(network={}))
        assert found
        assert found["network"]["partitions"] == [
            {"partition": "cpu", "nodes": ["dev-cpu-0", "dev-cpu-1"]}, {"partition": "gpu", "nodes": ["dev-gpu-0"]},
        ]  # fmt: skip
        assert measurements(config()) is None
        values = load("dev")
        values["hpc:cluster"]["partitions"] = {
            "some": {"nodesets": ["cpu"], "default": True}, "every": {"nodesets": ["cpu", "gpu"]},
        }  # fmt: skip
        values["hpc:cluster"]["nodesets"]["gpu"] = {"count": 1}
        values["hpc:cluster"]["slurm"] = {"health": {"network": {}}}
        found = measurements(parse(values))
        assert found
        assert found["network"]["partitions"] == [
            {"partition": "some", "nodes": ["dev-cpu-0", "dev-cpu-1"]}, {"partition": "every", "nodes": ["dev-gpu-0"]},
        ]  # fmt: skip

        values["hpc:cluster"]["partitions"]["some"]["allow_accounts"] = ["research"]
        found = measurements(parse(values))
        assert found
        nodes = ["dev-cpu-0", "dev-cpu-1", "dev-gpu-0"]
        assert found["network"]["partitions"] == [{"partition": "every", "nodes": nodes}]

    def test_skip_accepts_kinds_of_checks(self):
        assert HealthChecks(nccl=NcclTest(), skip=("clock", "gpu-ecc")).skip == ("clock", "gpu-ecc")
