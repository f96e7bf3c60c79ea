"""munged runs with the delivered key, also after somebody has replaced it."""

import pytest
from system import host, munge

from components.slurm import keys


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without systemd, munge and file owners; return the started units, in order."""
    (tmp_path / "delivered").write_bytes(b"right")
    monkeypatch.setattr(munge, "log", lambda _: None)
    monkeypatch.setattr(munge, "DELIVERED", tmp_path / "delivered")
    monkeypatch.setattr(munge, "KEY", tmp_path / "munge.key")
    monkeypatch.setattr(host, "STARTED", tmp_path / "started")
    monkeypatch.setattr(munge, "folder", lambda *_, **__: False)
    monkeypatch.setattr(munge, "write", lambda path, key, **_: path.write_bytes(key))
    monkeypatch.setattr(munge, "run", lambda *_, **__: "")
    began: list[str] = []

    def systemd(*command: str, **_: object) -> str:
        if command[1] in ("start", "restart"):
            began.append(f"{command[1]} {command[-1]}")
        return "ActiveState=active\nUnitFileState=enabled\n"

    monkeypatch.setattr(host, "run", systemd)
    monkeypatch.setattr(
        host, "write", lambda path, text, **_: (path.parent.mkdir(exist_ok=True), path.write_text(text))
    )
    return began


def test_a_second_run_starts_nothing(machine):
    munge.start()
    munge.start()
    assert machine == ["restart munge"]


def test_another_key_is_replaced_and_munged_restarted(machine, tmp_path):
    munge.start()
    (tmp_path / "munge.key").write_bytes(b"wrong")
    munge.start()
    assert (tmp_path / "munge.key").read_bytes() == b"right"
    assert machine == ["restart munge", "restart munge"]


def test_a_run_killed_between_key_and_start_is_completed(machine, tmp_path, monkeypatch):
    munge.start()
    (tmp_path / "munge.key").write_bytes(b"wrong")
    with monkeypatch.context() as killed:
        killed.setattr(munge, "service", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception):
            munge.start()
    munge.start()
    assert machine == ["restart munge", "restart munge"]


def test_a_munged_that_does_not_authenticate_is_restarted(machine, monkeypatch):
    munge.start()
    monkeypatch.setattr(munge, "authenticates", lambda: len(machine) > 1)
    assert munge.start()
    assert machine == ["restart munge", "restart munge"]
    assert not munge.start()


def test_a_munged_that_never_authenticates_is_an_error(machine, monkeypatch):
    munge.start()

    def refuse(*_: str, **__: object) -> str:
        raise host.SetupError("`unmunge` failed")

    monkeypatch.setattr(munge, "run", refuse)
    with pytest.raises(host.SetupError, match="unmunge"):
        munge.start()


OLD, NEW = munge.fingerprint(b"right"), munge.fingerprint(b"newer")


@pytest.mark.parametrize(
    ("wanted", "there", "key", "restarts"),
    [
        (OLD, b"right", b"right", 0),  # it waits for the controller
        (NEW, b"right", b"newer", 1),  # and follows it
        (None, b"right", b"newer", 1),  # the controller itself
        (OLD, b"wrong", b"newer", 1),  # a key that somebody put there
        (OLD, None, b"newer", 1),  # a new node takes what was delivered
    ],
)
def test_a_node_changes_to_another_key_together_with_the_controller(machine, tmp_path, wanted, there, key, *, restarts):
    """Messages of jobs between two keys are refused."""
    munge.start()
    (tmp_path / "delivered").write_bytes(b"newer")
    (tmp_path / "munge.key").unlink()
    if there:
        (tmp_path / "munge.key").write_bytes(there)
    munge.start(wanted)
    assert (tmp_path / "munge.key").read_bytes() == key
    assert machine == ["restart munge"] * (1 + restarts)


def test_node_and_program_compute_the_same_fingerprint():
    assert munge.fingerprint(b"key\n") == keys.fingerprint("key")
