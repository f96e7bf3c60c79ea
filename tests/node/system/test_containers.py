"""Users can write to enroot's folders on every kind of machine; docker prints what to use instead."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from interface import UnixUser
from system import containers, mounts

from tests import programs

ROOT = Path(__file__).parents[3]
ALICE: UnixUser = {"name": "alice", "uid": 2001, "gid": 2001, "groups": [], "shell": "/bin/bash", "keys": []}
BOB: UnixUser = {**ALICE, "name": "bob", "uid": 2002, "gid": 3000}
WRITABLE = {"ENROOT_ROOTFS_WRITABLE": "yes"}
ON_SSD = {
    **WRITABLE,
    "ENROOT_RUNTIME_PATH": "/mnt/localssd/2001/enroot/runtime",
    "ENROOT_CACHE_PATH": "/mnt/localssd/2001/enroot/cache",
    "ENROOT_DATA_PATH": "/mnt/localssd/2001/enroot/data",
    "ENROOT_TEMP_PATH": "/mnt/localssd/2001/enroot",
}
# As enroot 3.5.0 reads its settings (config::init in enroot.in): the environment first, then each file in the order of
# names; what is set stays, and values are expanded by the shell.
READ = r"""
cd "$1"
for file in *.conf; do
    while IFS=$' \t=' read -r key value; do
        [[ $key =~ ^ENROOT_[A-Z_]+$ ]] || continue
        export "$key=${!key:-$(eval echo "$value")}"
    done <"$file"
done
env | grep ^ENROOT_ || :
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """A machine with enroot and without local SSDs; return the commands that ran."""
    called: list[tuple[str, ...]] = []
    for name in ("ENROOT", "TMPFILES", "ON_SSD", "NVCRLOGIN", "DOCKER", "WRAPPER"):
        monkeypatch.setattr(containers, name, tmp_path / name.lower())
    (tmp_path / "enroot").mkdir()
    step = (ROOT / "scripts/image/slurm/32-enroot.sh").read_text()
    setting = re.search(r"10-hpc.conf <<<'(.*)'", step)
    assert setting
    (tmp_path / "enroot/10-hpc.conf").write_text(setting[1] + "\n")
    monkeypatch.setattr(containers, "run", lambda *command: called.append(command))
    monkeypatch.setattr(mounts, "is_mounted", lambda _: False)
    return called


def give_ssd(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = (ROOT / "scripts/image/storage/50-localssd.sh").read_text()
    (folder / "50-localssd.conf").write_text(step.split("<<'CONF'\n")[1].split("CONF\n")[0])
    monkeypatch.setattr(mounts, "is_mounted", lambda path: path == "/mnt/localssd")


def settings_of(folder: Path, **variables: str) -> dict[str, str]:
    """The settings that enroot has for alice."""
    script = READ.replace("${UID}", "2001")
    values = {"HOME": "/home/alice", "PATH": os.environ["PATH"], **variables}
    for conf in folder.glob("*.conf"):
        conf.write_text(conf.read_text().replace("${UID}", "2001"))  # bash's own, which can't be set
    done = programs.run(["bash", "-c", script, "-", str(folder)], env=values, check=True)
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def test_users_can_write_to_the_paths_without_ssds(machine: list[tuple[str, ...]], tmp_path: Path):
    assert containers.converge([ALICE, BOB])
    assert settings_of(tmp_path / "enroot", XDG_RUNTIME_DIR="/run/user/2001") == {
        **WRITABLE,
        "ENROOT_CONFIG_PATH": "/home/alice/.enroot",
        "ENROOT_RUNTIME_PATH": "/run/enroot/2001",
        "ENROOT_CACHE_PATH": "/var/cache/enroot/2001",
        "ENROOT_TEMP_PATH": "/var/tmp",  # noqa: S108
    }
    # Slurm gives every job this one.
    assert settings_of(tmp_path / "enroot", TMPDIR="/tmp")["ENROOT_TEMP_PATH"] == "/var/tmp"  # noqa: S108
    assert settings_of(tmp_path / "enroot", ENROOT_TEMP_PATH="/scratch")["ENROOT_TEMP_PATH"] == "/scratch"
    assert machine == [("systemd-tmpfiles", "--create", str(tmp_path / "tmpfiles"))]
    assert (tmp_path / "tmpfiles").read_text().splitlines()[1:] == [
        "d /run/enroot 1777 root root -", "d /var/cache/enroot 1777 root root -",
        "d /run/enroot/2001 0700 2001 2001 -", "d /run/enroot/2002 0700 2002 3000 -",
        "d /var/cache/enroot/2001 0700 2001 2001 -", "d /var/cache/enroot/2002 0700 2002 3000 -",
    ]  # fmt: skip
    assert not (tmp_path / "on_ssd").exists()


def test_a_second_run_changes_nothing(machine: list[tuple[str, ...]]):
    assert containers.converge([ALICE], login=True)
    assert not containers.converge([ALICE], login=True)
    # Folders of a memory file system are gone after a boot, so they are made again whatever the file says.
    assert len(machine) == 2


def test_local_ssds_keep_their_settings(
    machine: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    give_ssd(tmp_path / "enroot", monkeypatch)
    assert containers.converge([ALICE])
    assert settings_of(tmp_path / "enroot") == {"ENROOT_CONFIG_PATH": "/home/alice/.enroot", **ON_SSD}
    assert "d /mnt/localssd/2001 0700 2001 2001 -" in (tmp_path / "on_ssd").read_text()
    assert machine[1:] == [("systemd-tmpfiles", "--create", str(tmp_path / "on_ssd"))]


def test_data_of_containers_at_home(machine: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    give_ssd(tmp_path / "enroot", monkeypatch)
    assert containers.converge([ALICE], data="home")
    at_home = {"ENROOT_CONFIG_PATH": "/home/alice/.enroot", **ON_SSD}
    assert settings_of(tmp_path / "enroot") == {**at_home, "ENROOT_DATA_PATH": "/home/alice/.local/share/enroot"}
    assert containers.converge([ALICE])
    assert settings_of(tmp_path / "enroot") == at_home
    assert len(machine) == 4


def test_data_of_containers_on_the_node(
    machine: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    containers.converge([ALICE], data="node", login=True, node=False)
    assert "ENROOT_DATA_PATH" not in settings_of(tmp_path / "enroot"), "only jobs need it"
    assert containers.converge([ALICE], data="node")
    assert settings_of(tmp_path / "enroot")["ENROOT_DATA_PATH"] == "/var/lib/enroot/2001"
    assert "d /var/lib/enroot/2001 0700 2001 2001 -" in (tmp_path / "tmpfiles").read_text()
    give_ssd(tmp_path / "enroot", monkeypatch)
    assert settings_of(tmp_path / "enroot")["ENROOT_DATA_PATH"] == ON_SSD["ENROOT_DATA_PATH"]
    assert containers.converge([ALICE])
    assert "/var/lib" not in (tmp_path / "tmpfiles").read_text()
    assert not (tmp_path / "enroot/60-hpc-data.conf").exists()
    assert machine


def test_machines_without_enroot_get_no_settings(machine: list[tuple[str, ...]], tmp_path: Path):
    (tmp_path / "enroot/10-hpc.conf").unlink()
    (tmp_path / "enroot").rmdir()
    assert not containers.converge([ALICE])
    assert machine == []
    assert list(tmp_path.iterdir()) == []


def test_login_machines_have_nvcrlogin(machine: list[tuple[str, ...]], tmp_path: Path):
    del machine
    containers.converge([ALICE])
    assert not (tmp_path / "nvcrlogin").exists()
    containers.converge([ALICE], login=True)
    done = programs.run([tmp_path / "nvcrlogin", "--help"], check=False)
    assert "API key of NVIDIA NGC" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="asks as root and as somebody else")
def test_docker_works_for_root_only(machine: list[tuple[str, ...]], tmp_path: Path):
    del machine
    (tmp_path / "docker").touch()
    assert containers.converge([ALICE])
    assert not containers.converge([ALICE])
    script = (tmp_path / "wrapper").read_text().replace("/usr/bin/docker", "/bin/echo")

    def call(user: int, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", "-c", script, "docker", "ps", "a  b"]
        return programs.run(command, user=user, env=variables)

    assert call(0).stdout == call(2001, DOCKER_HOST="unix:///x").stdout == "ps a  b\n"
    refused = call(2001)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "srun --container-image=" in refused.stderr
    (tmp_path / "docker").unlink()
    assert containers.converge([ALICE])
    assert not (tmp_path / "wrapper").exists()


def test_another_docker_wrapper_stays(machine: list[tuple[str, ...]], tmp_path: Path):
    del machine
    (tmp_path / "docker").touch()
    (tmp_path / "wrapper").write_text('#!/bin/sh\nexec podman "$@"\n')
    assert containers.converge([ALICE])
    assert "podman" in (tmp_path / "wrapper").read_text()
    (tmp_path / "docker").unlink()
    assert not containers.converge([ALICE])
    assert (tmp_path / "wrapper").exists()
