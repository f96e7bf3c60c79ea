"""The small programs that a machine's image brings: they stand for real ones, so they answer as those do."""

import shutil
import subprocess
from pathlib import Path

import pytest

from components.local.host.recipe import BUILD, ROOTFS, TRIM

LSB_RELEASE = ROOTFS / "usr/bin/lsb_release"
UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nVERSION_CODENAME=jammy\nID=ubuntu\n'


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (["-rs"], "22.04\n"),
        (["-i", "-s"], "Ubuntu\n"),
        (["--short", "--codename"], "jammy\n"),
        (["-d"], "Description:\tUbuntu 22.04.4 LTS\n"),
        (["-a"], "Distributor ID:\tUbuntu\nDescription:\tUbuntu 22.04.4 LTS\nRelease:\t22.04\nCodename:\tjammy\n"),
        (["-cr"], "Release:\t22.04\nCodename:\tjammy\n"),
    ],
)
def test_lsb_release_tells_what_os_release_says(tmp_path: Path, options: list[str], answer: str) -> None:
    (tmp_path / "os-release").write_text(UBUNTU)
    script = tmp_path / "lsb_release"
    script.write_text(LSB_RELEASE.read_text().replace("/etc/os-release", str(tmp_path / "os-release")))
    done = subprocess.run(["sh", str(script), *options], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == (answer, 0)


def test_lsb_release_refuses_what_it_does_not_know() -> None:
    done = subprocess.run(["sh", str(LSB_RELEASE), "-x"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "lsb_release: -x: unknown option\n")


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["10.0.0.1@tcp:/home"], 1, "usage: mount.lustre"),
        (["10.0.0.1:/home", "/home"], 1, "not of the form ADDRESS@tcp:/NAME"),
        (["10.0.0.1@tcp:/nope", "/"], 2, "this cluster has no shared folder nope"),
    ],
)
def test_mount_lustre_refuses_with_a_reason(arguments: list[str], status: int, said: str) -> None:
    done = subprocess.run(
        ["sh", str(ROOTFS / "usr/sbin/mount.lustre"), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == status
    assert said in done.stderr


SCRIPTS = [
    BUILD, TRIM, BUILD.parent / "start-machine.sh", LSB_RELEASE, ROOTFS / "usr/sbin/mount.lustre",
    ROOTFS / "usr/lib/hpc/machine-setup",
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean_and_can_be_run(script: Path) -> None:
    checker = shutil.which("shellcheck", path=str(Path(__file__).parents[2] / ".venv/bin")) or "shellcheck"
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert script.stat().st_mode & 0o111
