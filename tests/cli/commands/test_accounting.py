"""`./hpc accounting`: backups are atomic, a refused restore changes nothing, and missing records are rebuilt."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from cli.cluster.backup import FIRST, LAST
from tests.cli.conftest import Hpc, Tool

pytestmark = pytest.mark.usefixtures("up")


def write_backup(path: Path, **header: object) -> Path:
    values = {"cluster": "dev", "slurm": "22.05.8", "date": "2026-11-21T05:30:00+0000", "jobs": 3, **header}
    text = FIRST + b"-- " + json.dumps(values).encode() + b"\nSELECT 1;\n"
    path.write_bytes(gzip.compress(text + LAST + hashlib.sha256(text).hexdigest().encode() + b"\n"))
    return path


def test_a_backup_is_private_and_overwrites_nothing(hpc: Hpc, tool: Tool, tmp_path: Path):
    tool("ssh", f"cat {write_backup(tmp_path / 'there')}")
    target = tmp_path / "b.sql.gz"
    assert "3 job records" in hpc("accounting", "backup", "dev", str(target)).out
    assert target.stat().st_mode & 0o777 == 0o600
    assert "is there already" in hpc("accounting", "backup", "dev", str(target)).err
    assert "there is no folder" in hpc("accounting", "backup", "dev", str(tmp_path / "no" / "b")).err
    folder = tmp_path / "folder"
    folder.mkdir()
    assert hpc("accounting", "backup", "dev", str(folder)).code == 0
    assert [path.name.startswith("dev-accounting-") for path in folder.iterdir()] == [True]


def test_the_default_folder_is_in_the_state_dir(hpc: Hpc, tool: Tool, tmp_path: Path):
    tool("ssh", f"cat {write_backup(tmp_path / 'there', cluster='other')}")
    assert hpc("accounting", "backup", "dev").code == 0
    (made,) = (tmp_path / "home/accounting-backups").iterdir()
    assert "is of cluster other" in hpc("accounting", "restore", "dev", made.name).err


@pytest.mark.parametrize(
    ("ssh", "message"),
    [
        ("head -c 100 {there}", "did not arrive whole"),
        ("cat {there}; echo broken >&2; exit 1", "dev-controller: broken"),
        ("exit 2", "older than this program. Bring it up to date: ./hpc up dev"),
        ("exit 255", "does not answer"),
    ],
)
def test_a_failed_backup_leaves_no_file(hpc: Hpc, tool: Tool, tmp_path: Path, ssh: str, message: str):
    tool("ssh", ssh.format(there=write_backup(tmp_path / "there")))
    folder = tmp_path / "folder"
    folder.mkdir()
    assert message in hpc("accounting", "backup", "dev", str(folder)).error
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"cluster": "prod"}, "is of cluster prod, and stack dev is cluster dev"),
        ({"slurm": "24.11.1"}, "was made with Slurm 24.11.1, whose tables the cluster's 22.05.8 can't read"),
        ({"slurm": "21.08.8"}, "was made with Slurm 21.08.8, whose tables the cluster's 22.05.8 can't read"),
        ({}, "without a terminal needs --yes"),
    ],
)
def test_a_refused_restore_changes_nothing(hpc: Hpc, tool: Tool, tmp_path: Path, header: dict[str, str], message: str):
    tool("ssh", f'for line; do :; done; echo "$line" >>{tmp_path}/log; echo slurm 22.05.8')
    assert message in hpc("accounting", "restore", "dev", str(write_backup(tmp_path / "b", **header))).error
    log = tmp_path / "log"
    assert not log.exists() or set(log.read_text().splitlines()) == {"slurmctld -V"}


def test_restore_refuses_a_file_that_is_no_backup(hpc: Hpc, tmp_path: Path):
    (tmp_path / "x").write_text("hello")
    assert "no backup of ours" in hpc("accounting", "restore", "dev", str(tmp_path / "x"), "--yes").err
    assert "can't be read" in hpc("accounting", "restore", "dev", str(tmp_path / "y"), "--yes").err
