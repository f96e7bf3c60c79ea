"""Checks of a node on files of a test machine, and the deadlines of checks that may hang."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from health import checks, outcome
from system import mounts
from system.host import SetupError, side_by_side

from tests import programs
from tests.node.health.gpu_documents import document, failed
from tests.waiting import lives, wait_for


def install_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Put this script on PATH as nvidia-smi."""
    programs.write(folder / "nvidia-smi", text)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


WANTED: dict[str, Any] = {
    "mine": {
        "gpus": 2, "nvlinks": 0, "nvlink_gbps": 0, "nics": [], "nic_count": 0, "apertures": False, "local_ssds": 0,
    },
    "limits": {"disk_free_percent": 0, "clock_seconds": 5, "ecc_errors": 0, "nvlink_errors": 0, "nic_mbps": 0},
    "skip": ["clock", "mount", "nic", "gpu-count", "gpu-xid"], "seconds": 1, "resume_after": 2, "drain": True,
    "epilog": True, "requeue": False,
}  # fmt: skip


def settings(*skip: str) -> dict[str, Any]:
    """Return the settings of a node without GPUs."""
    return {**WANTED, "skip": skip, "mine": {**WANTED["mine"], "gpus": 0}}


class TestTime:
    def test_a_program_that_hangs_is_killed_with_its_children(self, tmp_path, monkeypatch):
        install_nvidia_smi(tmp_path, monkeypatch, f"echo $$ >{tmp_path}/pid; sleep 600 & wait")
        began = time.monotonic()
        found = checks.all_checks(WANTED)
        assert time.monotonic() - began < 120
        assert failed(found) == {"gpu-driver": "nvidia-smi did not answer in 1 s"}
        pid = int((tmp_path / "pid").read_text())
        wait_for(lambda: not lives(pid))

    def test_a_check_that_has_not_ended_is_not_started_again(self):
        release, held = os.pipe(), os.pipe()
        if not (pid := os.fork()):
            outcome.unless_running("gpus", lambda: (os.write(held[1], b"x"), os.read(release[0], 1)), seconds=1)()
            os._exit(0)
        os.read(held[0], 1)
        with pytest.raises(SetupError, match="just now"):
            outcome.unless_running("gpus", lambda: None, seconds=1)()
        with pytest.raises(SetupError, match="still waits"):
            outcome.unless_running("gpus", lambda: None, seconds=-outcome.ENDING - 1)()
        os.write(release[1], b"x")
        os.waitpid(pid, 0)
        assert outcome.unless_running("gpus", lambda: 7, seconds=300)() == 7

    def test_epilogs_at_the_same_time_do_not_fail_each_other(self, tmp_path, monkeypatch):
        # It answers when both others have ended.
        smi = f"""mkdir {tmp_path}/asked.$$; case "$*" in
            *-x*) until [ $(ls -d {tmp_path}/ended.* | wc -l) = 2 ]; do sleep 0.1; done; cat {tmp_path}/document;;
        esac"""
        (tmp_path / "document").write_text(document())
        install_nvidia_smi(tmp_path, monkeypatch, smi)
        monkeypatch.setattr(mounts, "shared_targets", list)
        wanted = {**WANTED, "seconds": 200}

        def ends(name: str, check: Callable[[], dict[str, Any]]) -> Callable[[], dict[str, Any]]:
            def run() -> dict[str, Any]:
                found = check()
                (tmp_path / f"ended.{name}").touch()
                return found

            return run

        occasions = {
            "first": ends("first", lambda: checks.after_job(wanted, "7")),
            "second": ends("second", lambda: checks.after_job(wanted, "8")),
            "periodic": ends("periodic", lambda: checks.all_checks(wanted)),
        }
        found = side_by_side(occasions, seconds=300)
        states = [results["gpu-driver"]["state"] for results in found.values()]
        assert sorted(states) == ["ok", "skipped", "skipped"]
        assert [failed(results) for results in found.values()] == [{}, {}, {}]

    def test_a_late_file_server_is_an_unsure_failure(self, monkeypatch):
        monkeypatch.setattr(mounts, "shared_targets", lambda: ["/"])
        monkeypatch.setattr(checks, "file_system_answers", lambda _: time.sleep(30))
        found = checks.all_checks(settings("clock", "nic", "gpu-xid"))["mount"]
        assert (found["text"], found.get("unsure")) == ("/: no answer within 1 s", True)
        # Another path: the check of the first may not have ended yet, and is then not started again.
        monkeypatch.setattr(mounts, "shared_targets", lambda: ["/proc"])
        monkeypatch.setattr(checks, "file_system_answers", lambda _: outcome.failed("/proc is read only"))
        found = checks.all_checks(settings("clock", "nic", "gpu-xid"))["mount"]
        assert found == outcome.failed("/proc is read only")

    def test_a_silent_controller_is_not_a_fault_of_the_node(self, tmp_path, monkeypatch):
        monkeypatch.setenv("PATH", str(tmp_path))
        found = checks.all_checks(settings("mount", "nic"))
        assert failed(found) == {}
        assert found["clock"]["state"] == "skipped"


class TestFiles:
    def test_missing_gpus_are_named(self, tmp_path):
        os.mknod(tmp_path / "nvidia0", 0o020666, os.makedev(195, 0)) if os.geteuid() == 0 else pytest.skip("needs root")
        (tmp_path / "nvidia1").touch()
        (tmp_path / "nvidiactl").touch()
        assert checks.gpu_count(3, tmp_path) == outcome.failed("1 of 3 GPUs: no device nvidia1, nvidia2")
        assert checks.gpu_count(1, tmp_path)["state"] == "ok"
        assert checks.gpu_count(0, tmp_path)["state"] == "skipped"

    @pytest.mark.parametrize(("there", "shown", "state"), [(0, 0, "failed"), (2, 1, "failed"), (2, 2, "ok")])
    def test_apertures_on_the_bus_must_be_below_dev(self, tmp_path, there, shown, state):
        for number in range(there):
            (tmp_path / f"pci/{number}").mkdir(parents=True)
            (tmp_path / f"pci/{number}/vendor").write_text("0x1ae0\n")
            (tmp_path / f"pci/{number}/device").write_text("0x0084\n")
        for number in range(shown):
            (tmp_path / f"dev/{number}").mkdir(parents=True)
            (tmp_path / f"dev/{number}/resource").touch()
        assert checks.aperture(tmp_path / "pci", tmp_path / "dev", wanted=True)["state"] == state

    def nic(self, folder: Path, name: str, *, state: str = "up", speed: str = "200000") -> None:
        (folder / name / "device").mkdir(parents=True)
        (folder / name / "operstate").write_text(f"{state}\n")
        (folder / name / "speed").write_text(f"{speed}\n")

    def test_nics_are_checked_by_name_link_and_speed(self, tmp_path):
        self.nic(tmp_path, "enp0s12")
        self.nic(tmp_path, "enp6s0", state="down")
        self.nic(tmp_path, "enp7s0", speed="100")
        self.nic(tmp_path, "enp8s0", speed="-1")
        names = ["enp0s12", "enp6s0", "enp7s0", "enp8s0", "enp9s0"]
        found = checks.nic(names, 5, 1000, net=tmp_path, container=False)
        assert found["text"].split(", ") == [
            "enp9s0 is missing", "enp6s0 has no link", "enp7s0 runs at 100 Mbit/s", "least 1000",
        ]  # fmt: skip
        assert checks.nic(names[:1], 1, 1000, net=tmp_path, container=False)["state"] == "ok"
        assert "4 of 9 NICs" in checks.nic([], 9, 0, net=tmp_path, container=False)["text"]

    def test_a_container_needs_an_interface_that_is_up(self, tmp_path):
        (tmp_path / "host0").mkdir()
        (tmp_path / "host0/operstate").write_text("down\n")
        assert checks.nic(["enp0s12"], 9, 0, net=tmp_path, container=True)["state"] == "failed"
        (tmp_path / "host0/operstate").write_text("up\n")
        assert checks.nic(["enp0s12"], 9, 0, net=tmp_path, container=True)["state"] == "ok"

    def test_full_disks_and_missing_mounts_fail(self, tmp_path, monkeypatch):
        usage = {"device": 1, "size": 100, "used": 97, "free": 3, "inodes": 0, "inodes_free": 0, "read_only": False}
        monkeypatch.setattr(mounts, "disk_usage", lambda _: usage)
        assert checks.disk(5, (str(tmp_path),))["text"] == f"{tmp_path} has 3.0 % free, least 5 %"
        assert checks.disk(3, (str(tmp_path),))["state"] == "ok"
        usage["read_only"] = True
        assert "read only" in checks.disk(0, (str(tmp_path),))["text"]
        monkeypatch.setattr(mounts, "shared_targets", lambda: ["/", str(tmp_path)])
        assert checks.shared_mounts() == outcome.failed(f"{tmp_path} is not mounted")

    @pytest.mark.parametrize(
        ("mine", "state"), [(0.0, "ok"), (0.9, "ok"), (-0.9, "ok"), (5.0, "ok"), (7.1, "failed"), (-6.0, "failed")]
    )
    def test_clocks_are_compared_to_a_second(self, mine, state):
        now = 1_700_000_000.0
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
        assert checks.compare_clocks(text, now + mine, now + mine + 0.02, 5)["state"] == state
