"""The small programs in the image of a machine: they stand for real ones, so they answer as those do."""

import shutil
import subprocess
from pathlib import Path

import pytest
from system.login import sshd_settings

from components.local.host.images import BUILD, ROOTFS, TRIM


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


def test_sshd_starts_as_the_set_up_of_a_node_has_it_and_need_not_read_its_settings_again() -> None:
    assert (ROOTFS / "etc/ssh/sshd_config.d/hpc.conf").read_text() == sshd_settings(users=False)


SCRIPTS = [
    BUILD, TRIM, BUILD.parent / "start-machine.sh", BUILD.parent / "keep-machine.sh",
    ROOTFS / "usr/sbin/mount.lustre", ROOTFS / "usr/lib/hpc/machine-setup",
]  # fmt: skip


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_clean_and_can_be_run(script: Path) -> None:
    checker = shutil.which("shellcheck", path=str(Path(__file__).parents[2] / ".venv/bin")) or "shellcheck"
    done = subprocess.run([checker, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert script.stat().st_mode & 0o111
