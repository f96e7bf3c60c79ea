"""The observation of a machine is complete in time if parts hang, contains no secret, and parses systemd and Slurm."""

import json
import os
import shutil
import time
from pathlib import Path

import collect
import pytest
from accounting import accounts
from slurm import jobs, output, scheduler, slurmctld, slurmd
from system import cluster_state, mounts, protected_files
from system.host import Part, SetupError

from tests.waiting import PATIENCE


def fails() -> None:
    raise SetupError("munged is not there")


def crashes() -> None:
    raise RuntimeError("unforeseen")


class TestParts:
    def test_parts_are_read_in_parallel_and_grouped(self):
        ours, theirs = os.pipe(), os.pipe()

        def answered(mine: tuple[int, int], others: tuple[int, int]) -> str:
            """Answer only if the other part runs at the same time."""
            os.write(mine[1], b"x")
            return os.read(others[0], 1).decode()

        parts = {"one": lambda: answered(ours, theirs), "other": lambda: answered(theirs, ours), "disks /": lambda: 1}
        found = collect.side_by_side({**parts, "disks /home": lambda: [2]}, seconds=300)
        for end in (*ours, *theirs):
            os.close(end)
        assert found == {"one": "x", "other": "x", "disks": {"/": 1, "/home": [2]}}

    def test_a_part_that_hangs_costs_only_itself(self):
        began = time.monotonic()
        found = collect.side_by_side({"hung": lambda: time.sleep(600), "well": lambda: "x" * 200_000}, seconds=5)
        assert time.monotonic() - began < PATIENCE
        assert found == {"hung": {"error": "no answer within 5 s"}, "well": "x" * 200_000}

    def test_a_part_that_fails_has_its_error(self):
        found = collect.side_by_side(
            {"fails": fails, "crashes": crashes, "ends": lambda: os._exit(3), "absent": lambda: {}["x"]}, seconds=300
        )
        assert found["fails"] == {"error": "munged is not there"}
        assert found["crashes"] == {"error": "RuntimeError: unforeseen"}
        assert found["ends"] == {"error": "its reader was ended"}
        assert "x" in found["absent"]["error"]

    def test_a_failure_does_not_affect_parts_of_the_same_process(self):
        parts = {"fails": fails, "crashes": crashes, "ends": lambda: os._exit(3), "well": os.getpid, "alone": os.getpid}
        found = collect.side_by_side(parts, seconds=300, together=["fails", "crashes", "well", "ends"])
        assert found["well"] != found["alone"]
        assert {name: found[name] for name in ("fails", "crashes", "ends")} == {
            "fails": {"error": "munged is not there"},
            "crashes": {"error": "RuntimeError: unforeseen"},
            "ends": {"error": "its reader was ended"},
        }

    @pytest.mark.parametrize("hangs", [{"hung"}, {"hung", "disks /c"}])
    def test_other_processes_read_the_parts_behind_one_that_hangs(self, hangs: set[str]):
        names = ["disks /a", "hung", "disks /b", "disks /c", "last"]
        parts: dict[str, Part] = {
            name: (lambda name=name: time.sleep(600) if name in hangs else name) for name in names
        }
        found = collect.side_by_side(parts, seconds=6, together=names, stuck=0.1)
        hung = {"error": "no answer within 6 s"}
        third = hung if "disks /c" in hangs else "disks /c"
        assert found == {"hung": hung, "last": "last", "disks": {"/a": "disks /a", "/b": "disks /b", "/c": third}}

    @pytest.mark.parametrize("stuck", [0.0, 60.0])
    def test_a_late_answer_is_awaited(self, stuck: float):
        parts: dict[str, Part] = {name: (lambda name=name: time.sleep(0.05) or name) for name in "abc"}
        found = collect.side_by_side(parts, seconds=300, together="abc", stuck=stuck)
        assert found == {"a": "a", "b": "b", "c": "c"}

    def test_output_of_a_part_is_not_in_the_document(self, capfd: pytest.CaptureFixture[str]):
        collect.side_by_side({"loud": lambda: os.write(1, b"noise")}, seconds=300)
        assert capfd.readouterr().out == ""

    def test_the_document_is_one_line_of_json(self, capfd: pytest.CaptureFixture[str]):
        collect.show()
        found = json.loads(capfd.readouterr().out)
        assert abs(found["time"] - time.time()) < PATIENCE
        assert {"boot", "cluster_state", "munge", "daemons", "files", "unix", "disks"} <= set(found)
        assert found["disks"]["/"]["size"] > 0


class TestSecrets:
    CONF = "StorageUser=slurm\nStoragePass={}\nDbdHost=x\n"

    @pytest.fixture(autouse=True)
    def password(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(protected_files, "DATABASE_PASSWORD", tmp_path / "password")
        monkeypatch.setattr(slurmd, "ETC", tmp_path / "etc")
        monkeypatch.setattr(slurmctld, "APPLIED", tmp_path / "applied.json")
        (tmp_path / "password").write_text("s3cret\n")
        (tmp_path / "etc").mkdir()

    @pytest.mark.parametrize(("given", "shown"), [("s3cret", slurmctld.PASSWORD_MARK), ("guess", "@another-password@")])
    def test_the_database_password_is_not_in_the_document(self, given: str, shown: str):
        (slurmd.ETC / "slurmdbd.conf").write_text(self.CONF.format(given))
        found = collect._files(controls=True)
        assert found["texts"]["slurmdbd.conf"] == self.CONF.format(shown)
        assert given not in json.dumps(found)
        assert "slurmdbd.conf" not in found["etc"], "not even its hash: a password is short"


def test_units_are_parsed():
    text = (
        "Result=success\nNRestarts=0\nId=munge.service\nLoadState=loaded\nActiveState=active\nSubState=running\n"
        "StateChangeTimestampMonotonic=90000000\nActiveEnterTimestampMonotonic=90000000\n\n"
        "Result=exit-code\nNRestarts=7\nId=slurmd.service\nLoadState=loaded\nActiveState=activating\n"
        "SubState=auto-restart\nStateChangeTimestampMonotonic=99500000\nActiveEnterTimestampMonotonic=0\n\n"
        "Result=success\nNRestarts=0\nId=mariadb.service\nLoadState=not-found\nActiveState=inactive\nSubState=dead\n"
        "StateChangeTimestampMonotonic=0\nActiveEnterTimestampMonotonic=0\n"
    )
    found = collect.parse_units(text, now=1000.0, monotonic=100.0)
    assert found["munge"] == {
        "state": "active", "sub": "running", "result": "success", "restarts": 0, "since": 990.0, "started": 990.0
    }  # fmt: skip
    assert (found["slurmd"]["state"], found["slurmd"]["restarts"], found["slurmd"]["started"]) == ("activating", 7, 0.0)
    assert (found["mariadb"]["state"], found["mariadb"]["since"]) == ("not-found", 0.0)


def test_a_machine_with_two_roles_has_the_daemons_of_both():
    assert collect.units_of(["controller", "node"]) == ["munge", "mariadb", "slurmdbd", "slurmctld", "ssh", "slurmd"]
    assert collect.units_of([]) == ["munge", "ssh"], "one whose set-up has not ended"
    assert collect.units_of(["node"]) == ["munge", "slurmd", "ssh", "hpc-node", "hpc-watch"]


def test_rows_of_scontrol_keep_texts_of_users():
    text = (
        "NodeName=a OS=Linux 6.1 #1 SMP State=IDLE+DRAIN Partitions=cpu  "
        "Reason=disk = bad, see x=1 [root@2026-11-21T06:00:00]\n"
    )
    (row,) = output.parse_rows(text)
    assert row["OS"] == "Linux 6.1 #1 SMP"
    assert row["State"] == "IDLE+DRAIN"
    assert row["Reason"] == "disk = bad, see x=1 [root@2026-11-21T06:00:00]"


@pytest.mark.parametrize(
    ("number", "count"), [("7", 1), ("7_2", 1), ("7_[3-20]", 18), ("7_[1-5,9%2]", 6), ("7_[0-10:5]", 3), ("7+1", 1)]
)
def test_tasks_of_an_array_are_counted(number: str, count: int):
    assert jobs.count_tasks(number) == count


@pytest.mark.parametrize(
    ("state", "reason", "held"),
    [
        ("PENDING", "launch failed requeued held", True),
        ("PENDING", "job requeued in held state", True),
        ("SPECIAL_EXIT", "job requeued in held state", True),
        ("PENDING", "JobHeldAdmin", True),
        ("PENDING", "JobHoldMaxRequeue", True),
        ("PENDING", "JobHeldUser", False),
        ("PENDING", "Resources", False),
        ("RUNNING", "None", False),
    ],
)
def test_jobs_that_only_an_operator_can_release_are_held(state: str, reason: str, held: bool):
    assert jobs.Job("7", state=state, reason=reason).needs_operator is held


def test_shared_file_systems_are_those_in_the_block_of_fstab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mounts, "FSTAB", tmp_path / "fstab")
    mounts.FSTAB.write_text(
        "/dev/vda / ext4 x 0 0\n# hpc: begin\na@tcp:/h /home lustre d 0 0\nb /my\\040data nfs d 0 0\n# hpc: end\n"
    )
    assert mounts.shared_targets() == ["/home", "/my data"]
    assert mounts.shared_usage("/my data") == {"mounted": False, "shared": True}


@pytest.mark.parametrize(
    ("options", "read_only"), [("ro,_netdev", False), ("defaults,_netdev", True), ("rw,errors=ro", True)]
)
def test_a_mount_with_option_ro_is_not_reported_as_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, read_only: bool
):
    monkeypatch.setattr(mounts, "FSTAB", tmp_path / "fstab")
    mounts.FSTAB.write_text(f"# hpc: begin\nbucket / gcsfuse {options} 0 0\n# hpc: end\n")
    monkeypatch.setattr(mounts, "disk_usage", lambda _path: {"read_only": True})
    assert mounts.shared_usage("/") == {"mounted": True, "shared": True, "read_only": read_only}


def test_queries_without_their_daemon_fail_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "slurmdbd.conf").touch()
    monkeypatch.setattr(slurmctld, "ETC", tmp_path)
    monkeypatch.setattr(accounts, "listens", lambda _port: False)
    monkeypatch.setattr(scheduler, "listens", lambda _port: False)
    with pytest.raises(SetupError, match="slurmdbd's port 6819"):
        accounts.known_qos()
    with pytest.raises(SetupError, match="slurmctld's port 6817"):
        scheduler.PARTS["nodes"]()
    assert scheduler.database() == {"up": False, "said": "nothing listens on port 6819"}


class TestClusterState:
    @pytest.fixture(autouse=True)
    def written(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write the cluster state of a controller, which is this machine."""
        for name, path in (("FOLDER", "b"), ("CONFIG", "b/o"), ("CLIENT", "b/etc"), ("REPORTS", "b/nodes")):
            monkeypatch.setattr(cluster_state, name, tmp_path / path)
        monkeypatch.setattr(cluster_state, "write", lambda path, text: bool(path.write_text(text)))
        monkeypatch.setattr(cluster_state, "folder", lambda path: path.mkdir(exist_ok=True))
        for name in ("protect_shared", "require_root_only"):
            monkeypatch.setattr(cluster_state.host, name, lambda _: None)
        monkeypatch.setattr(slurmctld, "applied", lambda: {"slurm.conf": "ClusterName=x\n"})
        cluster_state.publish({"users": ["alice"], "setup": "v"}, {"slurm.conf": "ClusterName=x\n"})
        monkeypatch.setattr(cluster_state, "boot_id", lambda: "b")
        cluster_state.report("configured", "d")

    def test_an_unchanged_one_is_not_damaged(self):
        found = collect._cluster_state(controls=True)
        assert (found["damaged"], found["newest"]["setup"], found["report"]["state"]) == ("", "v", "configured")

    @pytest.mark.parametrize(
        ("file", "text"),
        [
            ("b/o", "nonsense"),
            ("b/o", "[]"),
            ("b/o", '{"users": ["mallory"], "digest": "x"}'),
            ("b/etc/slurm.conf", "x"),
        ],
    )
    def test_a_changed_or_missing_file_is_damage(self, tmp_path: Path, file: str, text: str):
        (tmp_path / file).write_text(text)
        assert "is not what the controller wrote" in collect._cluster_state(controls=True)["damaged"]
        (tmp_path / file).unlink()
        assert collect._cluster_state(controls=True)["damaged"]

    def test_an_unreadable_report_is_damage(self):
        next(cluster_state.REPORTS.iterdir()).write_text("nonsense")
        assert "can't be read" in collect._cluster_state(controls=True)["damaged"]
        assert cluster_state.reports() == {}

    def test_a_file_in_place_of_the_folder_is_replaced(self, tmp_path: Path):
        shutil.rmtree(tmp_path / "b")
        (tmp_path / "b").write_text("x")
        assert "is empty" in collect._cluster_state(controls=True)["damaged"]
        with pytest.raises(SetupError, match="is empty"):
            collect._cluster_state(controls=False)
        cluster_state.publish({"users": []}, {"slurm.conf": "ClusterName=x\n"})
        assert collect._cluster_state(controls=True)["damaged"] == ""


class TestVersions:
    @pytest.mark.parametrize("driver", ["", "580.95.05\n"])
    def test_version_of_nvidias_driver_if_its_module_is_loaded(self, driver: str, tmp_path, monkeypatch):
        file = tmp_path / "version"
        if driver:
            file.write_text(driver)
        monkeypatch.setattr(collect, "NVIDIA", file)
        monkeypatch.setattr(collect, "run", lambda *words, **_: "slurm 25.11.5" if "-V" in words else "munge-0.5.15 x")
        found = collect._versions(controls=False)
        assert (found["slurm"], found["munge"], found.get("nvidia", "")) == ("25.11.5", "munge-0.5.15", driver.strip())
