"""A user comes, works and leaves by `./hpc user`, on a cluster where others work meanwhile."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def carols_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The private half; the public one lies beside it."""
    key = tmp_path_factory.mktemp("carol") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "carol@laptop", "-f", str(key)], check=True)
    return key


@pytest.fixture(scope="module")
def user(lab: Cluster) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`./hpc user ACTION lab ...`"""
    return lambda action, *words: lab.call("user", action, "lab", *words, "--config-file", str(lab.file))


@pytest.fixture(scope="module")
def carol(lab: Cluster, user: Callable[..., subprocess.CompletedProcess[str]], carols_key: Path) -> str:
    """A user who was added, with what was printed."""
    added = user("add", "carol", "--key", f"{carols_key}.pub", "--account", "research", "--sudo", "--yes")
    assert added.returncode == 0, added.stdout + added.stderr
    return added.stdout


def _effect(user: Callable[..., subprocess.CompletedProcess[str]], name: str) -> dict:
    return next(row["in_effect"] for row in json.loads(user("list", "--json").stdout)["users"] if row["name"] == name)


def test_is_added_with_the_next_number_and_nothing_else_changes(lab: Cluster, carol: str):
    assert lab.inside("cpu-7", "id carol") == "uid=2003(carol) gid=2003(carol) groups=2003(carol)"
    assert "created" not in carol
    assert "deleted" not in carol


def test_logs_in_and_runs_jobs_on_the_account(lab: Cluster, carol: str, carols_key: Path):
    script = "id -un; srun -N2 sh -c 'id -un; echo $SLURM_JOB_ACCOUNT'"
    assert sorted(lab.log_in("carol", carols_key, "login-0", script).split()) == ["carol"] * 3 + ["research"] * 2


def test_copies_files_though_the_shell_prints_something(lab: Cluster, carol: str, carols_key: Path, tmp_path: Path):
    """sshd serves SFTP itself, and starts no shell for it."""
    lab.inside("login-0", "sed -i '1i echo welcome' /home/carol/.bashrc")
    assert lab.log_in("carol", carols_key, "login-0", "true") == "welcome\n"
    (tmp_path / "data").write_text("42\n")
    there = lab.sftp("carol", carols_key, "login-0", f"put {tmp_path}/data\nget data {tmp_path}/back\nrm data\n")
    assert there.returncode == 0, there.stderr
    assert (tmp_path / "back").read_text() == "42\n"
    lab.inside("login-0", "sed -i 1d /home/carol/.bashrc")


def test_has_no_sftp_with_a_shell_that_refuses(lab: Cluster, carol: str, carols_key: Path):
    text = lab.file.read_text()
    stack = yaml.safe_load(text)
    (row,) = (row for row in stack["config"]["hpc:cluster"]["users"] if row["name"] == "carol")
    row["shell"] = "/bin/false"
    lab.file.write_text(yaml.safe_dump(stack))
    lab.up()
    assert lab.sftp("carol", carols_key, "login-0", "ls\n").returncode != 0
    assert lab.log_in("carol", carols_key, "login-0", "echo in") == ""
    lab.file.write_text(text)
    lab.up()
    assert lab.log_in("carol", carols_key, "login-0", "id -un") == "carol\n"


def test_is_root_by_sudo_on_every_machine_and_in_jobs(lab: Cluster, carol: str, carols_key: Path, user):
    assert lab.log_in("carol", carols_key, "login-0", "sudo -n id -u; srun sudo -n id -u").split() == ["0", "0"]
    effect = _effect(user, "carol")
    assert (effect["uid"], effect["account"], effect["sudo"]) == (2003, "research", True)
    public = Path(f"{carols_key}.pub")
    said = subprocess.run(["ssh-keygen", "-l", "-f", str(public)], capture_output=True, text=True, check=True).stdout
    assert effect["keys"] == [said.split()[1]]
    assert _effect(user, "alice")["sudo"] is False


def test_the_right_is_gone_with_the_flag(lab: Cluster, carol: str, carols_key: Path, user):
    lab.file.write_text(lab.file.read_text().replace("sudo: true", "sudo: false"))
    lab.up()
    lacking = "sudo -n id -u 2>&1; srun sudo -n id -u 2>&1"
    # Nodes notice a new config version within two seconds.
    eventually(
        lambda: lab.log_in("carol", carols_key, "login-0", lacking).count("a password is required") == 2,
        what="a user without sudo",
    )
    assert lab.inside("cpu-0", "ls /etc/sudoers.d") == "README"
    assert _effect(user, "carol")["sudo"] is False


def test_leaves_once_there_are_no_jobs_and_nobody_gets_the_number(lab: Cluster, carol: str, user):
    number = lab.submit("sleep infinity", user="carol")
    before = lab.file.read_text()
    refused = user("remove", "carol", "--yes")
    assert refused.returncode == 1
    assert number in refused.stderr
    assert lab.file.read_text() == before
    lab.run("scancel", number, user="carol")
    # As the command asks: a job that is completing counts.
    eventually(lambda: lab.inside("controller", "squeue --noheader --user=carol") == "", what="the job's end")
    lab.inside("login-0", "setsid runuser -u carol -- sleep 600 >/dev/null 2>&1 </dev/null & true")
    eventually(lambda: lab.inside("login-0", "pgrep -u carol sleep || true") != "", what="a process of hers")
    removed = user("remove", "carol", "--yes")
    assert removed.returncode == 0, removed.stdout + removed.stderr
    assert "/home/carol, owned by uid 2003" in removed.stderr
    eventually(lambda: lab.inside("cpu-7", "id carol 2>&1 || true").endswith("no such user"), what="cpu-7")
    assert lab.inside("login-0", "stat -c %u /home/carol; sacctmgr -nP show user carol").splitlines() == ["2003"]
    text = lab.file.read_text()
    assert "former_users" in text
    added = user("add", "dave", "--account", "research", "--no-apply")
    assert "uid: 2004" in added.stdout
    assert user("remove", "dave", "--no-apply").returncode == 0
    assert lab.file.read_text() == text
