"""The wait for a first boot that installs packages, and facts of the image."""

import subprocess
import time
from pathlib import Path

import pytest
from system import installation
from system.host import SetupError


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """State, log and start-up state of a machine made of a folder."""
    for name in ("STATE", "LOG", "BOOT"):
        monkeypatch.setattr(installation, name, tmp_path / name.lower())
    return tmp_path


def test_a_baked_image_needs_no_wait(machine):
    installation.wait_until_installed(seconds=0)


def test_each_step_is_logged_once(machine, monkeypatch, capsys):
    words = iter(["running 10-a", "running 10-a", "running 20-b", "done"])

    def pause(_: float) -> None:
        (machine / "state").write_text(next(words) + "\n")

    monkeypatch.setattr(installation.time, "sleep", pause)
    pause(0)
    installation.wait_until_installed(seconds=300)
    assert capsys.readouterr().out.splitlines() == [
        "the machine is being installed: 10-a",
        "the machine is being installed: 20-b",
    ]


def test_a_failed_step_is_an_error_with_the_end_of_the_log(machine):
    (machine / "state").write_text("failed 20-b\n")
    (machine / "log").write_text("".join(f"line {n}\n" for n in range(50)))
    with pytest.raises(SetupError, match="failed to install 20-b") as told:
        installation.wait_until_installed()
    assert str(told.value).endswith("line 49")
    assert "line 29\n" not in str(told.value)


def test_a_failed_start_up_script_is_logged(machine, capsys):
    (machine / "state").write_text("running boot\n")
    (machine / "boot").write_text("failed: no key\n")
    with pytest.raises(SetupError, match="still at `boot` after 0 s"):
        installation.wait_until_installed(seconds=0, interval=0.01)
    assert "its start-up script says: failed: no key" in capsys.readouterr().out


class TestImage:
    def test_image_reads_the_file_of_the_bake(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        step = (Path(__file__).parents[3] / "scripts/image/finish/92-image.sh").read_text()
        (tmp_path / "library").write_text(f'. "{Path(__file__).parents[3]}/scripts/image/library.sh"\n')
        monkeypatch.setattr(installation, "IMAGE", tmp_path / "image.json")
        step = step.replace("/etc/hpc/image.json", str(installation.IMAGE))
        env = {"HPC_LIBRARY": str(tmp_path / "library"), "BAKE": "1", "RECIPE": "2026-11"}
        env |= {"SNAPSHOT": "20261101T000000Z", "KERNEL_DAY": "2026-10-30"}
        began = int(time.time())
        subprocess.run(["bash", "-c", step], check=True, env=env, capture_output=True)
        found = installation.image()
        assert began <= found.pop("made") <= time.time()
        assert found == {"recipe": "2026-11", "snapshot": "20261101T000000Z", "kernel": "2026-10-30", "baked": 1}
        before = installation.IMAGE.read_bytes()
        subprocess.run(["bash", "-c", step], check=True, env={**env, "SNAPSHOT": "x"}, capture_output=True)
        assert installation.IMAGE.read_bytes() == before
