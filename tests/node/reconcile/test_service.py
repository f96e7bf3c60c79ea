"""The service of the reconcile loop: requests of slurmctld's programs, its lock, its pauses, and its removal."""

import subprocess
from pathlib import Path

import pytest
from reconcile import loop, service
from reconcile.world import BadHost, Cooling
from system import cluster_state
from system.host import SetupError, take_lock, write

from cluster.slurm import paths
from tests import programs
from tests.node.reconcile.simulated import Cluster
from tests.waiting import PATIENCE


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "cluster")


def test_a_program_of_slurmctld_leaves_a_request_and_always_succeeds(tmp_path, cluster):
    text = service.REQUEST_PROGRAM.replace(str(service.REQUESTS), str(tmp_path / "requests"))
    for kind in service.KINDS:
        program = programs.write(tmp_path / kind, text)
        # Also where there is no loop yet.
        assert subprocess.run([program, "c-gpu-[0-3]"], check=False).returncode == 0
    (tmp_path / "requests").mkdir()
    for kind in service.KINDS:
        assert subprocess.run([tmp_path / kind, "c-gpu-[0-3]"], check=False).returncode == 0
    service.take_requests(cluster.loop, tmp_path / "requests")
    assert sorted(row["rule"] for row in cluster.journal()) == ["asked-resume", "asked-resume-failed", "asked-suspend"]
    assert {tuple(row["nodes"]) for row in cluster.journal()} == {("c-gpu-[0-3]",)}
    assert list((tmp_path / "requests").iterdir()) == []


def test_requests_that_are_not_regular_files_are_deleted_unread(tmp_path, cluster):
    secret = tmp_path / "secret"
    secret.write_text("resume c-gpu-0\n")
    place = tmp_path / "requests"
    place.mkdir()
    (place / "link").symlink_to(secret)
    service.take_requests(cluster.loop, place)
    assert cluster.journal() == []
    assert secret.exists()
    assert list(place.iterdir()) == []


def test_the_request_lift_forgets_actions_cool_downs_and_hosts(tmp_path, cluster):
    record = cluster.loop.record
    record.actions, record.boots, record.retry = [cluster.now], {"gpu": 3}, {"c-gpu-0": cluster.now + 60}
    record.cooling = {"gpu/spot": Cooling(cluster.now + 600, 10, "no capacity")}
    record.hosts = {"/b/s/h": BadHost(cluster.now, "c-gpu-9: lost")}
    (tmp_path / "lift").write_text("lift\n")
    service.take_requests(cluster.loop, tmp_path)
    assert (record.actions, record.boots, record.retry, record.cooling, record.hosts) == ([], {}, {}, {}, {})


def test_removal_deletes_the_loops_instances_and_no_others(cluster):
    cluster.slurm.submit("1", 3, 10_000)
    cluster.run(120)
    cluster.machine("c-gpu-1")["labels"].pop("hpc-made-by")
    service.delete_instances(cluster.loop.cloud)
    cluster.loop.cloud.instances()
    cluster.loop.cloud.instances()
    assert list(cluster.instances) == ["c-gpu-1"]


def test_removal_deletes_all_files(tmp_path, cluster, monkeypatch):
    there = tmp_path / "there"
    for module, name in (
        *((service, name) for name in ("COMMAND", "UNIT", "PROGRAMS")),
        *((loop, name) for name in ("SETTINGS", "PAUSED")),
        (cluster_state, "REGISTER"),
    ):
        monkeypatch.setattr(module, name, there / name)
    for name in ("stop_services", "unread_units", "forget", "reload_units", "service"):
        monkeypatch.setattr(service, name, lambda *_, **__: None)
    monkeypatch.setattr(service.reservations, "keep_spares", lambda *_: None)
    monkeypatch.setattr(service, "write_unit", write)
    monkeypatch.setattr(service, "ComputeEngine", lambda _: cluster.loop.cloud)
    cluster.settings["cloud"]["token_file"] = str(there / "token")
    service.prepare(cluster.settings)
    service.converge(cluster.settings)
    for name in ("PAUSED", "REGISTER", "token"):
        write(there / name, "")
    service.converge(None)
    assert [path for path in there.rglob("*") if path.is_file()] == []


def test_removal_fails_on_a_partial_list(cluster):
    cluster.faults = 1.0
    cluster.random.choice = lambda _: "partial"
    with pytest.raises(SetupError, match="run `up` again"):
        service.delete_instances(cluster.loop.cloud)


def test_hold_loop_takes_the_loops_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(service, "LOCK", tmp_path / "run" / "lock")
    with service.hold_loop(), (tmp_path / "run" / "lock").open("w") as lock:
        assert not take_lock(lock)
    with (tmp_path / "run" / "lock").open("w") as lock:
        assert take_lock(lock)


def test_slurm_conf_has_the_paths_of_the_programs():

    assert [str(service.PROGRAMS / kind) for kind in (*service.KINDS, service.AWAIT_NODES)] == [
        paths.RESUME,
        paths.SUSPEND,
        paths.RESUME_FAILED,
        paths.AWAIT_NODES,
    ]


class TestWaitForNodes:
    """The PrologSlurmctld, with commands of Slurm that read files."""

    @pytest.fixture
    def run(self, tmp_path: Path):
        sleep = f"echo slept >>{tmp_path}/slept; . {tmp_path}/next"
        program = programs.write(tmp_path / "await-nodes", service.AWAIT_PROGRAM.replace('sleep "$pause"', sleep))
        (tmp_path / "next").write_text("")
        for command in ("sinfo", "squeue"):
            programs.write(tmp_path / command, f"cat {tmp_path}/{command}.txt")
            (tmp_path / f"{command}.txt").write_text("")
        programs.write(tmp_path / "scontrol", "echo 'PrologEpilogTimeout     = 100'")
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "c-gpu-[0-1]"}

        def run() -> int:
            assert subprocess.run([program], env=env, check=False, timeout=PATIENCE).returncode == 0
            slept = tmp_path / "slept"
            return len(slept.read_text().split()) if slept.exists() else 0

        return run

    @pytest.mark.parametrize(
        ("off", "jobs", "after", "slept"),
        [
            ("", "", "", 0),  # all nodes are up
            ("2\n", "c-gpu-5\nc-gpu-[0-1]\n", '[ "$waited" -lt 5 ] || : >{}/sinfo.txt\n', 6),  # until the last is up
            ("2\n", "c-gpu-[4-5]\n", "", 0),  # the job has ended, or has other nodes
            ("2\n", "c-gpu-[0-1]\n", "", 20 + (100 - 20 - 20 + 2) // 3),  # until shortly before PrologEpilogTimeout
        ],
    )
    def test_it_waits_until_the_nodes_have_booted(self, tmp_path, run, off, jobs, *, after, slept):
        (tmp_path / "sinfo.txt").write_text(off)
        (tmp_path / "squeue.txt").write_text(jobs)
        (tmp_path / "next").write_text(after.format(tmp_path))
        assert run() == slept
