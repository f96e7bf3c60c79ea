"""slurmrestd comes with its key before Slurm's daemons read their files, and goes without a trace."""

from pathlib import Path

import pytest
from slurm import slurmctld
from system import host
from system.host import SetupError


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A machine with slurmrestd, a delivered key and running daemons; what systemd was told, in order."""
    (tmp_path / "slurmrestd").touch()
    (tmp_path / "delivered").write_text("key\n")
    monkeypatch.setattr(slurmctld, "SLURMRESTD", str(tmp_path / "slurmrestd"))
    for name, file in (("TOKEN_KEY_DELIVERED", "delivered"), ("TOKEN_KEY", "key"), ("SLURMRESTD_UNIT", "unit")):
        monkeypatch.setattr(slurmctld, name, tmp_path / file)
    monkeypatch.setattr(host, "STARTED", tmp_path / "started")
    monkeypatch.setattr(slurmctld, "write", lambda path, text, **_: path.write_bytes(text))
    monkeypatch.setattr(slurmctld, "succeeds", lambda *_: True)
    told: list[str] = []
    monkeypatch.setattr(slurmctld, "run", lambda *command: told.append(" ".join(command[1:])))
    monkeypatch.setattr(slurmctld, "stop_service", lambda name: told.append(f"stopped {name}"))
    return told


def test_daemons_that_run_are_ended_for_a_key_and_for_no_other_reason(machine: list[str]):
    slurmctld.keep_token_key()
    assert machine == ["stop slurmctld", "stop slurmdbd"]
    slurmctld.keep_token_key()
    assert machine == ["stop slurmctld", "stop slurmdbd"]


def test_a_kill_between_daemons_and_key_is_made_good(
    machine: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as killed:
        killed.setattr(slurmctld, "write", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            slurmctld.keep_token_key()
    slurmctld.keep_token_key()
    assert (tmp_path / "key").read_text() == "key\n"
    assert machine == ["stop slurmctld", "stop slurmdbd"] * 2


@pytest.mark.parametrize(
    ("gone", "why"), [("slurmrestd", "there is no slurmrestd"), ("delivered", "no key for tokens")]
)
def test_nothing_is_changed_where_something_is_missing(machine: list[str], tmp_path: Path, gone: str, why: str):
    (tmp_path / gone).unlink()
    with pytest.raises(SetupError, match=why):
        slurmctld.keep_token_key()
    assert machine == []
    assert not (tmp_path / "key").exists()


def test_undoing_leaves_nothing_and_may_be_run_again(machine: list[str], tmp_path: Path):
    slurmctld.keep_token_key()
    (tmp_path / "unit").write_text(slurmctld.slurmrestd_unit("10.0.0.2"))
    machine.clear()
    slurmctld.remove_slurmrestd()
    assert machine == ["stopped slurmrestd", "daemon-reload"]
    assert [name for name in ("key", "delivered", "unit") if (tmp_path / name).exists()] == []
    slurmctld.remove_slurmrestd()
    assert machine == ["stopped slurmrestd", "daemon-reload", "stopped slurmrestd"]


def test_it_listens_on_one_address_and_takes_tokens_alone():
    (line,) = [line for line in slurmctld.slurmrestd_unit("10.0.0.2").splitlines() if line.startswith("ExecStart=")]
    assert line == "ExecStart=/usr/sbin/slurmrestd -a rest_auth/jwt 10.0.0.2:6820"


def test_an_address_that_no_other_machine_reaches_is_refused(machine: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(slurmctld.pwd, "getpwnam", lambda _: None)
    monkeypatch.setattr(slurmctld.socket, "gethostbyname", lambda _: "127.0.1.1")
    with pytest.raises(SetupError, match=r"is 127\.0\.1\.1 on this machine"):
        slurmctld.start_slurmrestd()
    assert machine == []
