"""Measurements find the slow node of a pair, run as jobs that delay no user, and drain slow nodes."""

import json
import socket
import threading
from types import SimpleNamespace

import pytest
from health import drain_unhealthy, measure, outcome, throughput
from hypothesis import given
from hypothesis import strategies as st
from slurm.nodes import Node
from system.host import SetupError

from tests import squeue
from tests.waiting import PATIENCE

NODES = st.integers(0, 9).map(lambda count: [f"n{number}" for number in range(count)])


def measured(nodes: list[str], bad: set[str]) -> dict[measure.Pair, bool]:
    """Return the results of all rounds, in which a pair is fast if neither node is in `bad`."""
    found: dict[measure.Pair, bool] = {}
    for _ in range(measure.ROUNDS):
        for pair in measure.next_pairs(nodes, found):
            found[pair] = not bad & set(pair)
    return found


class TestPairs:
    @given(NODES, st.sets(st.integers(0, 9).map(lambda number: f"n{number}"), max_size=1))
    def test_one_slow_node_is_found_among_three_or_more(self, nodes, bad):
        found = measured(nodes, bad)
        if len(nodes) >= 3:
            assert set(measure.slow_nodes(found)) == bad & set(nodes)
            assert measure.good_nodes(found) == set(nodes) - bad

    @given(NODES, st.sets(st.integers(0, 9).map(lambda number: f"n{number}")))
    def test_no_fast_node_is_called_slow(self, nodes, bad):
        found = measured(nodes, bad)
        assert set(measure.slow_nodes(found)) <= bad
        assert not measure.good_nodes(found) & bad

    def test_neither_of_two_nodes_is_called_slow(self):
        found = measured(["a", "b"], {"a"})
        assert measure.slow_nodes(found) == {}
        assert measure.undecided(found) == {"a", "b"}

    @given(NODES, st.sets(st.integers(0, 9).map(lambda number: f"n{number}")))
    def test_a_round_measures_each_node_once_and_repeats_no_pair(self, nodes, bad):
        found = measured(nodes, bad)
        for pair in measure.next_pairs(nodes, found):
            assert pair not in found
            assert pair[::-1] not in found
        flat = [name for pair in measure.next_pairs(nodes, {}) for name in pair]
        assert len(flat) == len(set(flat))


def test_throughput_is_measured_in_both_directions(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    other = threading.Thread(target=throughput.server, args=("127.0.0.1", port, 0.2), daemon=True)
    other.start()
    found = throughput.client("127.0.0.1", port, 0.2)
    other.join(PATIENCE)
    assert found["there"] > 10
    assert found["back"] > 10


class Slurm:
    """Stand-in for the commands of Slurm."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.called: list[tuple[str, ...]] = []
        self.refuses = False
        self.pending = ""
        self.drained: dict[str, str] = {}

    def run(self, *words: str, stdin: str | None = None, **_: object) -> str:
        self.called.append(words)
        if words[:5] == ("runuser", "-u", "alice", "--", "env"):
            assert "HOME=/home/x" in words
            assert words[5] == "-i"
            words = words[next(at for at, word in enumerate(words) if at > 5 and "=" not in word) :]
        elif words[0] == "runuser":
            words = words[4:]
        if words[0] == "sbatch":
            if self.refuses:
                raise SetupError("sbatch: error: Invalid account")
            return str(len(self.called))
        if words[0] == "squeue":
            if self.states:
                return "".join(f"{job} {state}\n" for job, state in self.states.items())
            return squeue.printed(words, [{"r": reason} for reason in self.pending.split()])
        if words[0] == "scontrol":
            return "".join(f"NodeName={name} State=IDLE\n" for name in ("a", "b", "c"))
        if words[0] == "tail":
            return "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 88.4\n#\n"
        return ""


def report_driver(state: str, *names: str, text: str = "") -> None:
    """Write the health record of nodes with this outcome of the check of the driver."""
    for name in names:
        document = {"checks": {"gpu-driver": {"state": state, "text": text}}}
        (outcome.RESULTS / f"{name}.json").write_text(json.dumps(document))


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path) -> Slurm:
    found = Slurm()
    monkeypatch.setattr(measure, "run", found.run)
    monkeypatch.setattr(measure.scheduler, "run", found.run)
    monkeypatch.setattr(measure.time, "sleep", lambda _: None)
    monkeypatch.setattr(measure, "folder", lambda path: path.mkdir(exist_ok=True))
    monkeypatch.setattr(measure, "write", lambda path, text, **_: path.write_text(text))
    for module, name, place in ((outcome, "RESULTS", ""), (outcome, "MEASURED", "measured"), (measure, "LOGS", "jobs")):
        (tmp_path / place).mkdir(exist_ok=True)
        monkeypatch.setattr(module, name, tmp_path / place)
    monkeypatch.setattr(drain_unhealthy, "read_node", lambda name: Node(name, frozenset({"IDLE"})))
    monkeypatch.setattr(drain_unhealthy, "apply_action", lambda name, _, why: found.drained.update({name: why}))
    monkeypatch.setattr(
        measure.pwd, "getpwnam", lambda name: SimpleNamespace(pw_name=name, pw_dir="/home/x", pw_shell="/bin/bash")
    )
    return found


NETWORK = {"hours": 24, "seconds": 1, "mbps": 100, "partitions": [{"partition": "p", "nodes": ["a", "b", "c"]}]}
PART = {"partition": "p", "nodes": ["a"], "busbw_gbps": 420, "script": "#!/bin/bash\n", "log": "nccl/logs/%j.log"}
NCCL = {"hours": 24, "minutes": 10, "user": "alice", "partitions": [PART]}


class TestJobs:
    def test_nothing_is_measured_while_jobs_are_pending(self, slurm):
        slurm.pending = "JobHeldUser\nPriority\n"
        measure._measure({"network": NETWORK}, [])
        assert [words[0] for words in slurm.called] == ["squeue"]

    def test_pending_jobs_that_do_not_wait_for_nodes_are_ignored(self, slurm):
        slurm.pending = "JobHeldUser\nDependency\nJobArrayTaskLimit\n"
        measure._measure({"network": NETWORK}, [])
        assert [words for words in slurm.called if words[0] == "sbatch"]

    def test_jobs_are_exclusive_and_have_the_lowest_priority(self, slurm):
        measure._measure({"network": NETWORK}, ["a", "b"])
        (job,) = (words for words in slurm.called if words[0] == "sbatch")
        for option in ("--exclusive", "--no-requeue", "--nice=10000", "--nodelist=a,b", "--partition=p"):
            assert option in job

    def test_a_job_that_does_not_start_is_cancelled(self, slurm, monkeypatch):
        now = iter(range(0, 10_000, 40))
        monkeypatch.setattr(measure.time, "monotonic", lambda: next(now))
        slurm.states = {"7": "PENDING", "8": "RUNNING"}
        measure.wait_for_jobs(["7", "8"], 300)
        cancelled = [words for words in slurm.called if words[0] == "scancel"]
        assert cancelled[0] == ("scancel", "7")
        assert ("scancel", "8") in cancelled

    def test_a_refused_or_invalid_measurement_drains_no_node(self, slurm):
        slurm.refuses = True
        measure._measure({"network": NETWORK}, ["a", "b"])
        slurm.refuses = False
        for text in ("", "garbage", "[]", '{"there": "x"}', "null"):
            (measure.LOGS / "7.out").write_text(text)
            measure._measure_throughput({"partition": "p"}, 1, [("a", "b")])
        assert slurm.drained == {}

    def test_a_slow_nccl_test_drains_the_node(self, slurm):
        report_driver("ok", "a")
        measure._measure({"nccl": NCCL}, ["a"])
        assert slurm.drained == {"a": "hpc-health: nccl: 88.4 GB/s bus bandwidth, least 420"}
        (job,) = (words for words in slurm.called if "sbatch" in words)
        assert job[:6] == ("runuser", "-u", "alice", "--", "env", "-i")
        read = next(words for words in slurm.called if "tail" in words)
        assert read[:3] == ("runuser", "-u", "alice")
        assert measure._is_due("a", "nccl", NCCL)

    def test_a_failed_diagnostic_of_dcgm_drains_the_node(self, slurm):
        warning = {"error_category": 3, "error_id": 4, "error_severity": 2, "warning": "GPU 1 is broken"}
        results = [{"entity_group": "GPU", "entity_id": 1, "status": "Fail", "warnings": [warning]}]
        report = {"DCGM Diagnostic": {"test_categories": [{"tests": [{"name": "memory", "results": results}]}]}}
        part = {"partition": "p", "nodes": ["a"]}
        wanted = {"diag": {"hours": 1, "minutes": 5, "level": 2, "partitions": [part]}}
        for job in range(9):
            (measure.LOGS / f"{job}.out").write_text(json.dumps(report))
        measure._diag(part, ["a"], ["a"], wanted["diag"])
        assert slurm.drained == {"a": "hpc-health: diag: memory of GPU 1: GPU 1 is broken"}
        (job,) = (words for words in slurm.called if words[0] == "sbatch")
        kept = '2>&1 | runuser -u slurm -- tee "/opt/apps/adm/hpc/jobs/$SLURM_JOB_ID.out" >/dev/null'
        assert job[-2:] == ("--wrap", f"srun --mpi=none dcgmi diag -r 2 -j {kept}")

    def test_a_node_that_is_slow_with_every_partner_is_drained(self, slurm, monkeypatch):
        """The fabric between pairs: b is slow with a, then with c, which was fast with somebody."""
        busbw = {"a,b": 22.4, "c,d": 187.0, "a,c": 187.0, "b,c": 22.5, "a,d": 187.0, "b,d": 22.5}
        submitted: dict[str, str] = {}

        def run(*words: str, **options: object) -> str:
            said = slurm.run(*words, **options)
            if "sbatch" in words:
                submitted[said] = next(word for word in words if word.startswith("--nodelist=")).partition("=")[2]
            if "tail" in words:
                job = words[-1].removesuffix(".log").rpartition("/")[2]
                return f"# Avg bus bandwidth    : {busbw[','.join(sorted(submitted[job].split(',')))]}\n"
            if words[0] == "scontrol":
                return "".join(f"NodeName={name} State=IDLE\n" for name in "abcd")
            return said

        monkeypatch.setattr(measure, "run", run)
        part = {**PART, "nodes": list("abcd"), "busbw_gbps": 150}
        measure._measure({"fabric": {**NCCL, "partitions": [part]}}, list("abcd"))
        assert list(slurm.drained) == ["b"]
        assert slurm.drained["b"].startswith("hpc-health: fabric: 22 GB/s with ")
        assert slurm.drained["b"].endswith(", least 150")

    def test_if_most_nodes_are_slow_none_is_drained(self, slurm):
        report_driver("ok", *"abc")
        wanted = {**NCCL, "partitions": [{**PART, "nodes": ["a", "b", "c"]}]}
        measure._measure({"nccl": wanted}, ["a", "b", "c"])
        assert slurm.drained == {}
        found = outcome.results()["a"]["measured"]["nccl"]
        assert found["state"] == "failed"
        assert "is the limit right?" in found["text"]
        assert not measure._is_due("a", "nccl", wanted)

    def test_two_slow_nodes_among_fast_ones_are_drained(self, slurm):
        for name in ("c", "d", "e"):
            measure.record_result(name, "nccl", "ok", "450.0 GB/s")
        measure._record_and_drain("nccl", list("abcde"), dict.fromkeys("ab", ("failed", "88.4 GB/s")))
        assert set(slurm.drained) == {"a", "b"}

    def test_a_fast_node_is_recorded_and_not_due(self, slurm):
        report_driver("ok", "a")
        measure._measure({"nccl": {**NCCL, "partitions": [{**PART, "busbw_gbps": 0}]}}, ["a"])
        assert slurm.drained == {}
        assert not measure._is_due("a", "nccl", NCCL)

    def test_stand_in_gpus_are_not_measured(self, slurm):
        report_driver("skipped", "a", text="stand-ins")
        measure._measure({"nccl": NCCL}, ["a"])
        assert not [words for words in slurm.called if "sbatch" in words]
        found = outcome.results()["a"]["measured"]["nccl"]
        assert (found["state"], found["text"]) == ("skipped", "stand-ins")
