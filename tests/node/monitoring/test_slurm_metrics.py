"""Slurm's metrics with slurmctld's names, and their text for node_exporter: escaped, bounded, one value per series."""

import ast
import re
from calendar import timegm
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from monitoring import exporter, metrics
from monitoring.metrics import HELP, LONGEST, Sample, render
from monitoring.slurm_metrics import gpu_job_metrics, job_metrics, node_metrics, scheduler_metrics
from slurm import findings, nodes
from slurm.jobs import Job

NOW = float(timegm((2026, 11, 23, 12, 0, 0)))
_NODE = "CPUTot=8 RealMemory=1024 Partitions=cpu"
NODES = f"""\
NodeName=a-0 CPUAlloc=4 CPUEfctv=8 AllocMem=512 State=MIXED {_NODE},all Gres=gpu:h100:2(S:0-1) AllocTRES=gres/gpu=1
NodeName=a-1 CPUAlloc=0 CPUEfctv=8 State=IDLE+DRAIN {_NODE} Reason=State=DOWN NodeName=x [root@2026-11-23T11:00:00]
NodeName=a-2 CPUAlloc=8 State=ALLOCATED+DRAIN {_NODE} Gres=(null) AllocTRES= Reason=slow [bob@2026-11-22T12:00:00]
NodeName=a-3 CPUAlloc=0 State=DOWN* {_NODE} Gres=(null) AllocTRES= Reason=Not responding [slurm@Unknown]
NodeName=a-4 CPUAlloc=0 State=IDLE+CLOUD+POWERED_DOWN {_NODE} Gres=(null) AllocTRES=
"""
DRAINED = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
"""src/slurmctld/job_scheduler.c at slurm-26-05-3-1."""
JOBS = [
    Job(number, state=state, partition=partition, user=user, account=account, count=count, cpus=cpus, reason=reason,
        submitted=submitted)
    for number, state, partition, user, account, count, cpus, reason, submitted in (
        ("1", "RUNNING", "cpu", "alice", "research", "2", "16", "None", "2026-11-23T10:00:00"),
        ("2_[1-4,9]", "PENDING", "cpu,all", "alice", "research", "1", "1", "Resources", "2026-11-23T11:00:00"),
        ("3", "PENDING", "cpu", "bob", "teaching", "1", "1", "JobHeldUser", "2026-11-23T11:00:00"),
        ("4", "PENDING", "cpu", "bob", "teaching", "1", "1", "launch failed requeued held", "2026-11-23T11:00:00"),
        ("5", "PENDING", "cpu", "bob", "teaching", "1", "1", "Dependency", "2026-11-20T11:00:00"),
        ("6", "COMPLETED", "cpu", "bob", "teaching", "1", "1", "None", "2026-11-23T11:00:00"),
        ("7", "PENDING", "sick", "bob", "teaching", "1", "1", "ReqNodeNotAvail,_UnavailableNodes:a-1", "Unknown"),
        ("8", "PENDING", "sick", "bob", "teaching", "2", "2", DRAINED, "Unknown"),
    )
]  # fmt: skip
STATISTICS = """\
Server thread count:  3
DBD Agent queue size: 12
Jobs started:   7
Main schedule statistics (microseconds):
\tLast cycle:   80
Backfilling stats
\tLast cycle: 90
Latency for 1000 calls to gettimeofday(): 20 microseconds
\tLast cycle: 1
"""


def values(samples) -> dict[str, float]:
    return {name + "".join(f" {value}" for value in labels.values()): value for name, value, labels in samples}


def test_nodes_count_by_state_and_flags():
    found = values(node_metrics(nodes.parse(NODES).values(), NOW))
    said = {name.removeprefix("slurm_nodes_"): count for name, count in found.items() if name.startswith("slurm_nodes")}
    assert said.pop("slurm_nodes") == 5
    assert {name: count for name, count in said.items() if count} == {
        "mixed": 1, "idle": 2, "alloc": 1, "down": 1, "drain": 1, "drained": 1, "draining": 1, "noresp": 1, "cloud": 1,
        "powered_down": 1,
    }  # fmt: skip
    assert (found["slurm_node_gpus a-0"], found["slurm_node_gpus_alloc a-0"]) == (2, 1)
    assert found["slurm_node_cpus_idle a-0"] == 4
    assert (found["slurm_partition_nodes cpu"], found["slurm_partition_nodes all"]) == (5, 1)


@pytest.mark.parametrize(
    ("state", "free"),
    [
        *(("IDLE", 1), ("IDLE+CLOUD+POWERED_DOWN", 1), ("IDLE+DRAIN", 0), ("IDLE+PLANNED", 0), ("IDLE+RESERVED", 0)),
        *(("IDLE*", 0), ("MIXED", 0), ("DOWN", 0), ("IDLE+MAINTENANCE+RESERVED", 0)),
    ],
)
def test_free_nodes_are_idle_without_certain_flags(state, free):
    found = values(node_metrics(nodes.parse(f"NodeName=a-0 State={state} Partitions=cpu,all").values(), NOW))
    assert (found["hpc_partition_nodes_free cpu"], found["hpc_partition_nodes_free all"]) == (free, free)


def test_unavailable_nodes_have_the_age_of_their_reason():
    found = values(node_metrics(nodes.parse(NODES).values(), NOW))
    away = {name: age for name, age in found.items() if name.startswith("hpc_node_unavailable_seconds")}
    name = "hpc_node_unavailable_seconds"
    assert away == {f"{name} a-1 drained": 3600, f"{name} a-2 drained": 86400, f"{name} a-3 down": 0}


@pytest.mark.parametrize(
    ("state", "taken_out"),
    [
        ("DOWN+REBOOT_ISSUED", True),
        ("DOWN*+MAINTENANCE+RESERVED", True),
        ("DOWN*+RESERVED", False),
        ("IDLE+REBOOT_REQUESTED", False),
        ("DOWN*", False),
    ],
)
def test_a_node_that_reboots_by_command_or_has_maintenance_is_not_down(state: str, taken_out: bool):
    node = nodes.Node.of("a-0", {"State": state})
    assert ("hpc_node_taken_out a-0" in values(node_metrics([node], NOW))) is taken_out
    assert bool([*findings.down([node], cooling=False)]) is ("DOWN" in state and not taken_out)


def test_jobs_count_by_tasks_and_held_jobs_do_not_wait():
    found = values(job_metrics(JOBS, ["cpu", "all", "sick"], NOW))
    assert found["slurm_jobs"] == 12
    assert found["slurm_jobs_pending"] == 10
    assert found["slurm_jobs_hold"] == 2
    assert found["hpc_jobs_held"] == 1
    assert found["hpc_jobs_waiting"] == 7
    assert [found[f"hpc_partition_jobs_{kind} sick"] for kind in ("waiting", "blocked")] == [2, 2]
    assert [found[f"hpc_partition_jobs_{kind} all"] for kind in ("waiting", "blocked")] == [5, 0]
    assert found["slurm_jobs_cpus_alloc"] == 16
    assert found["slurm_partition_jobs_pending all"] == 5
    assert found["hpc_partition_oldest_waiting_seconds cpu"] == 3600
    assert found["slurm_user_jobs_pending alice"] == 5
    assert found["slurm_account_jobs_running research"] == 1


def test_lines_of_sdiag_belong_to_their_section():
    assert values(scheduler_metrics(STATISTICS)) == {
        "slurm_server_thread_cnt": 3, "slurm_slurmdbd_queue_size": 12, "slurm_sdiag_jobs_started": 7,
        "slurm_schedule_cycle_last": 80, "slurm_bf_cycle_last": 90,
    }  # fmt: skip


def test_a_failing_part_costs_only_its_metrics():
    def fails():
        raise OSError("no")

    def works():
        return [Sample("slurm_jobs", 1), Sample("hpc_node_taken_out", 2, {"node": "a"})]

    text = exporter.collect({"one": fails, "two": works}, ("slurm_",))
    assert 'hpc_collector_success{collector="one"} 0' in text
    assert 'hpc_collector_success{collector="two"} 1' in text
    assert "slurm_jobs" not in text
    assert 'hpc_node_taken_out{node="a"} 2' in text
    assert "slurm_jobs 1" in exporter.collect({"two": works})


def test_an_invalid_record_costs_only_metrics_of_its_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(exporter.outcome, "RESULTS", tmp_path)
    monkeypatch.setattr(exporter.outcome, "MEASURED", tmp_path / "none")
    monkeypatch.setattr(exporter, "_names", lambda _: [f"n-{number}" for number in range(9)])
    monkeypatch.setattr(exporter.slurmctld, "applied", lambda: {"slurm.conf": "HealthCheckInterval=300\n"})
    monkeypatch.setattr(exporter.time, "time", lambda: 1000.0)
    sound = '{"time": 990, "checks": {"disk": {"state": "failed", "text": "full"}}}'
    others = ('{"time": "x"}', '{"time": NaN, "checks": []}', '{"time": 1e999, "checks": {"disk": 7}}', "[" * 60_000)
    for number, text in enumerate((sound, *others)):
        (tmp_path / f"n-{number}.json").write_text(text)
    (tmp_path / "$(reboot).json").write_text(sound)
    found = values(exporter._health())
    age, old = "hpc_health_age_seconds n-", "hpc_health_old n-"
    assert {name: value for name, value in found.items() if not name.startswith("hpc_health_checks_failed ")} == {
        "hpc_health_check_failed n-0 disk": 1, "hpc_health_check_text n-0 disk full": 1,
        f"{age}0": 10, f"{age}1": 1000, f"{age}2": 1000, f"{age}3": 1000,
        f"{old}0": 0, f"{old}1": 1, f"{old}2": 1, f"{old}3": 1,
    }  # fmt: skip
    assert found["hpc_health_checks_failed disk"] == 1


def test_ages_of_keys_and_backups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock, key = [1000.0], tmp_path / "munge.key"
    key.write_text("first")
    for module, name in ((exporter, "KEYS"), (exporter, "TOKEN_KEY"), (exporter.backup, "MADE")):
        monkeypatch.setattr(module, name, tmp_path / name)
    monkeypatch.setattr(exporter.munge, "KEY", key)
    monkeypatch.setattr(exporter.cluster_state, "CONFIG", tmp_path / "none")
    monkeypatch.setattr(exporter.time, "time", lambda: clock[0])
    ages = lambda: {name.split()[0]: age for name, age in values(exporter._ages()).items()}  # noqa: E731
    backup, munge = "hpc_accounting_backup_age_seconds", "hpc_key_age_seconds"
    assert ages() == {backup: 0, munge: 0}
    clock[0] += 500
    # Another machine for the controller has the same key in a new file.
    key.unlink()
    key.write_text("first")
    assert ages() == {backup: 500, munge: 500}
    (tmp_path / "MADE").write_text("1400\n")
    key.write_text("second")
    assert ages() == {backup: 100, munge: 0}


_LINE = re.compile(r'(?P<name>[a-z_]+)\{node="(?P<value>(?:[^"\\\n]|\\["\\n])*)"\} (?P<number>[0-9.e+-]+)')


def unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


@given(st.lists(st.text(), max_size=5), st.floats(0, 1e15, allow_nan=False))
def test_any_name_is_one_series(names: list[str], value: float):
    lines = render(Sample("hpc_node_taken_out", value, {"node": name}) for name in names).split("\n")
    assert lines.pop() == ""
    shown = list(dict.fromkeys(metrics.printable(name)[:LONGEST] for name in names))
    if names:
        assert lines.pop(0) == f"# HELP hpc_node_taken_out {HELP['hpc_node_taken_out']}"
        assert lines.pop(0) == "# TYPE hpc_node_taken_out gauge"
    found = [_LINE.fullmatch(line) for line in lines]
    assert [unescaped(line["value"]) for line in found if line] == shown
    assert all(found)
    assert all(abs(float(line["number"]) - value) <= value * 1e-12 for line in found if line)
    assert "".join(lines).isprintable() or not "".join(names).isprintable()


def test_the_number_of_series_is_limited(monkeypatch):
    monkeypatch.setattr(metrics, "MOST", 3)
    text = render(Sample("hpc_node_taken_out", number, {"node": str(number)}) for number in range(9))
    assert text.count("hpc_node_taken_out{") == 3


def test_samples_are_grouped_by_metric_and_the_last_one_counts():
    rows = (("hpc_machines", 1, "x"), ("hpc_jobs_held", 2, ""), ("hpc_machines", 3, ""), ("hpc_machines", 4, "x"))
    text = render(Sample(name, value, {"state": state} if state else {}) for name, value, state in rows)
    assert re.sub("# HELP .*\n", "", text) == (
        "# TYPE hpc_jobs_held gauge\nhpc_jobs_held 2\n"
        '# TYPE hpc_machines gauge\nhpc_machines{state="x"} 4\nhpc_machines 3\n'
    )


def names_in_source() -> set[str]:
    """The names of metrics that the exporter's modules have as constants."""
    found: set[str] = set()
    for path in Path(exporter.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Sample":
                found |= {str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)}
    return found


def names_from_tables() -> set[str]:
    """The names that are put together from tables, of nodes and jobs in all states, and of each line of sdiag."""
    states = [*metrics.NODE_STATES, *(f"IDLE+{flag}" for flag in metrics.NODE_FLAGS), "IDLE+DRAIN", "MIXED+DRAIN", "?"]
    all_nodes = [
        nodes.Node.of(f"a-{n}", {"State": state, "Partitions": "cpu", "Gres": "gpu:2"})
        for n, state in enumerate(states)
    ]
    reasons = ("Resources", "JobHeldUser")
    jobs = [
        Job("1", state=state, partition="cpu", user="alice", account="x", count="1", cpus="1", reason=reason,
            submitted="Unknown")
        for state in (*metrics.JOB_STATES, "PENDING", "?")
        for reason in reasons
    ]  # fmt: skip
    lines = (f"{key}: 1" for key in metrics.STATISTICS)
    sdiag = "\n".join((*lines, "Backfilling stats", *(f"{key}: 1" for key in metrics.BACKFILL)))
    samples = (
        *node_metrics(all_nodes, NOW),
        *job_metrics(jobs, ["cpu"], NOW),
        *scheduler_metrics(sdiag),
        *gpu_job_metrics("7|alice|research|gres/gpu=2|"),
    )
    return {sample.name for sample in samples}


def test_each_metric_has_a_help_text_and_each_text_a_metric():
    found = names_in_source() | names_from_tables()
    assert found <= set(HELP)
    assert set(HELP) - found == {"slurm_partition_jobs_requeued"}, "a requeued job counts as pending"


def test_help_texts_need_no_escapes_and_say_more_than_the_name():
    for name, text in HELP.items():
        assert re.fullmatch(r"[a-z_]+", name)
        assert re.fullmatch(r"[A-Z0-9][ -\[\]-~]+[^.]", text), text
        assert " " in text or name == "slurm_nodes"
