"""File systems are mounted as in fstab; a mount that fails has the state of its server in its error."""

import socket

import pytest
from system import mounts
from system.host import SetupError
from system.mounts import Mount
from system.text_block import with_block


def mount(source: str, kind: str = "lustre") -> Mount:
    """A mount at /data."""
    return Mount(source=source, target="/data", fs_type=kind, options="")


def test_the_state_of_a_server_is_described(monkeypatch):
    refused = mounts.describe_server(mount("127.0.0.1@tcp:/fs"))
    assert refused.startswith("\n127.0.0.1:988 can't be reached ([Errno 111] Connection refused): is the server up")
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setitem(mounts.PORTS, "nfs", server.getsockname()[1])
        answers = mounts.describe_server(mount("127.0.0.1:/home", "nfs"))
    assert "answers: the server is up, but does not give" in answers

    def time_out(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setitem(mounts.PORTS, "nfs", 2049)
    monkeypatch.setattr(mounts.socket, "create_connection", time_out)
    assert "10.9.9.9:2049 does not answer: is the server up" in mounts.describe_server(mount("10.9.9.9:/home", "nfs"))
    assert mounts.describe_server(mount("my-bucket", "gcsfuse")) == "", "a bucket has no server"


@pytest.fixture(autouse=True)
def fstab(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "FSTAB", tmp_path / "fstab")


@pytest.fixture
def refusing(monkeypatch):
    """A machine whose kernel refuses every mount, as if it existed already (EBUSY, mount(2))."""
    monkeypatch.setattr(mounts, "require_mount_programs", lambda _: None)
    monkeypatch.setattr(mounts, "write_unit", lambda *_: False)
    monkeypatch.setattr(mounts, "succeeds", lambda *command, **_: command[0] != "mount")
    monkeypatch.setattr(mounts.Path, "mkdir", lambda *_, **__: None)


def test_a_type_that_cannot_be_mounted_fails_at_once():
    with pytest.raises(SetupError, match=r"/data can't be mounted.*install the package gcsfuse"):
        mounts.mount_all([mount("my-bucket", "gcsfuse")])
    assert not mounts.FSTAB.exists()


def test_a_failed_mount_describes_its_server(refusing, monkeypatch):
    def refuse(*_: object) -> str:
        raise SetupError("`mount /data` failed: no such device")

    monkeypatch.setattr(mounts, "run", refuse)
    with pytest.raises(SetupError, match=r"no such device\n127.0.0.1:988 can't be reached"):
        mounts.mount_all([mount("127.0.0.1@tcp:/fs")], seconds=0)


def test_a_mount_by_systemd_counts(refusing, monkeypatch):
    seen = iter([False, True])
    monkeypatch.setattr(mounts, "is_mounted", lambda _: next(seen))
    assert mounts.mount_all([mount("127.0.0.1@tcp:/fs")], seconds=0)


@pytest.mark.parametrize(("source", "seconds"), [("lab-controller:/home", 900), ("10.0.0.9:/home", 120)])
def test_the_timeout_for_the_controller_includes_its_set_up(refusing, monkeypatch, source, seconds):
    asked: list[float] = []
    monkeypatch.setattr(mounts, "wait", lambda *_, seconds, **__: asked.append(seconds))
    mounts.mount_all([mount(source, "nfs")], controller="lab-controller:6817")
    assert asked == [seconds]


def test_blanks_in_fstab_are_escaped():
    line = Mount(source="10.0.0.1@tcp:/home", target="/my home", fs_type="lustre", options="")
    assert mounts.fstab_lines([line]) == ["10.0.0.1@tcp:/home /my\\040home lustre defaults,nosuid,nodev 0 0"]


def test_a_mount_whose_client_needs_another_image_is_left_out(monkeypatch):
    monkeypatch.setattr(mounts, "which", lambda name, _: "" if name == "mount.gcsfuse" else "/sbin/" + name)
    rows = [mount("my-bucket", "gcsfuse"), Mount(source="a@tcp:/fs", target="/fs", fs_type="lustre", options="")]
    mounts.FSTAB.write_text("UUID=1 / ext4 defaults 0 1\n")
    assert mounts.without_new_clients(rows) == rows, "a new machine without the client is refused"
    mounts.FSTAB.write_text(with_block("", mounts.fstab_lines(rows[1:])))
    assert mounts.without_new_clients(rows) == rows[1:]
    monkeypatch.setattr(mounts, "which", lambda *_: "")
    assert mounts.without_new_clients(rows) == rows[1:], "what it had mounted is waited for"
    assert mounts.without_new_clients([mount("c:/home", "nfs")]) == [mount("c:/home", "nfs")], "refused, as before"
