"""The newest release in the tables, by its own programs where Debian's unstable suite has them: they read our files.

The suite rolls and is not always signed for today: where it can't be had, or has moved on, this is skipped. Nothing is
installed: the packages are unpacked into a folder, which is the programs' root.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest

from cluster.catalog.slurm_releases import VERSIONS
from cluster.slurm.files import render
from components.local.host.images import host_sources
from tests.cluster.stacks import STACKS, config

pytestmark = pytest.mark.e2e

NEWEST = VERSIONS[-1]
OPTIONS = ('APT::Install-Recommends "0"', 'Acquire::Check-Valid-Until "false"')


def run(*command: str, seconds: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        timeout=seconds, env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def root(real_root: Path) -> Path:
    """A folder with the release's programs and what they link to."""
    made = real_root / "sid"
    files: list[str] = []
    for number, source in enumerate(host_source for host_source in host_sources("sid") if "sid" in host_source.suites):
        path = real_root / f"sid-{number}{source.suffix}"
        path.write_text(re.sub(r" sid-\w+", "", source.text))  # it has no updates beside it
        files.append(str(path))
    options = [f"--aptopt={option}" for option in OPTIONS]
    command = ("mmdebstrap", "--quiet", "--variant=extract", "--include=slurm-client,slurmctld", *options)
    try:
        got = run(*command, "sid", str(made), *files)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"Debian's unstable suite can't be had here: {error}")
    if got.returncode:
        pytest.skip(f"Debian's unstable suite can't be had here: {got.stdout.strip().splitlines()[-1:]}")
    for name in ("bin", "sbin", "lib", "lib64"):
        if not (made / name).exists():
            (made / name).symlink_to(f"usr/{name}")
    said = run("chroot", str(made), "/usr/sbin/slurmctld-wlm", "-V").stdout
    if f" {NEWEST}." not in said:
        pytest.skip(f"Debian's unstable suite has {said.strip()} by now, the tables end with {NEWEST}")
    (made / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\nslurm:x:64030:64030::/:/bin/sh\n")
    (made / "etc/slurm").mkdir(exist_ok=True)
    return made


def conf(stack: str) -> str:
    """slurm.conf of a stack, as the release would have it."""
    cluster = config(stack)
    newest = cluster.model_copy(update={"slurm": cluster.slurm.model_copy(update={"version": NEWEST})})
    return render(newest)["slurm.conf"]


def read(root: Path, text: str) -> tuple[int, str]:
    """Exit code and words of a command that reads slurm.conf and asks no daemon."""
    (root / "etc/slurm/slurm.conf").write_text(text)
    done = run("unshare", "--net", "chroot", str(root), "/usr/bin/scontrol", "show", "hostnames", "n[1-2]")
    return done.returncode, done.stdout


@pytest.mark.parametrize("stack", STACKS)
def test_the_newest_slurm_accepts_every_line(root: Path, stack: str) -> None:
    assert read(root, conf(stack)) == (0, "n1\nn2\n")


@pytest.mark.parametrize("line", ["Bogus=1", "NodeName=n1 Bogus=1", "PartitionName=p Nodes=ALL Bogus=1"])
def test_the_newest_slurm_refuses_an_unknown_parameter(root: Path, line: str) -> None:
    code, said = read(root, f"{conf('dev')}{line}\n")
    assert code != 0
    assert "Bogus" in said
