"""Phase `configure` refuses what cannot be done on any machine before it changes something on one."""

import json
from pathlib import Path

import configure
import pytest
from jobs import drain_leaving
from slurm.jobs import Job
from system.host import SetupError

BUSY = Job("17", user="alice", state="RUNNING", partition="cpu", nodes="dev-cpu-1")


class ChangedError(Exception):
    """The machine would have been changed."""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine whose set-up made alice and bob, beside a slurmctld with one job of alice. It can't be changed."""

    def change(*_: object, **__: object) -> None:
        raise ChangedError

    monkeypatch.setattr(configure.installation, "wait_until_installed", lambda: None)
    monkeypatch.setattr(configure, "reload_units", lambda: None)
    managed = tmp_path / "users.json"
    managed.write_text(json.dumps({"users": ["alice", "bob"], "groups": []}))
    monkeypatch.setattr(configure.users, "MANAGED", managed)
    monkeypatch.setattr(drain_leaving, "succeeds", lambda *_: True)
    monkeypatch.setattr(drain_leaving, "all_jobs", lambda: [BUSY])
    for name in ("enable", "write", "service"):
        monkeypatch.setattr(configure, name, change)
    for module, name in (("mounts", "write_fstab"), ("mounts", "mount_all"), ("users", "converge")):
        monkeypatch.setattr(getattr(configure, module), name, change)


def set_up(roles: list[str], users: list[str]) -> None:
    payload = {"mounts": [], "conf_server": "dev-controller:6817", "groups": []}
    configure.configure({**payload, "roles": roles, "users": [{"name": name} for name in users]})


ROLES = pytest.mark.parametrize("roles", [["login"], ["monitoring"], ["node"], ["controller"], ["controller", "login"]])


@ROLES
def test_a_user_with_jobs_who_leaves_is_refused_before_the_machine_changes(roles: list[str]):
    with pytest.raises(SetupError, match=r"(?s)alice leaves the cluster and has jobs:.*job 17.*Nothing was changed"):
        set_up(roles, ["bob"])


@ROLES
@pytest.mark.parametrize("users", [["alice"], ["alice", "bob"]])
def test_a_user_without_jobs_leaves_and_one_with_jobs_stays(roles: list[str], users: list[str]):
    with pytest.raises(ChangedError):
        set_up(roles, users)
