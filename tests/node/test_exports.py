"""Folders are shared with the cluster's network alone, and the server is told only what is new to it."""

import pytest
from system import state_disk
from system.host import SetupError

SHARED: state_disk.Exports = {"paths": ["/home", "/opt/apps"], "network": "10.0.0.0/20"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of which systemd and the NFS server are left out; what was asked of them."""
    asked: list[str] = []
    for name in ("EXPORTS", "EXPORTS_APPLIED", "NFS_CONF", "NFS_NEEDS"):
        monkeypatch.setattr(state_disk, name, tmp_path / name.lower())

    def write(path, text, **_):
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        return changed

    monkeypatch.setattr(state_disk, "write", write)
    monkeypatch.setattr(state_disk, "service", lambda name, **_: asked.append(name))
    monkeypatch.setattr(state_disk, "run", lambda *command: asked.append(" ".join(command)) or "")
    monkeypatch.setattr(state_disk.shutil, "which", lambda *_, **__: "/usr/sbin/exportfs")
    return asked


def test_to_the_clusters_network_alone(machine):
    state_disk.share_folders(SHARED)
    assert state_disk.EXPORTS.read_text() == (
        "/home 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
        "/opt/apps 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
    )
    assert "RequiresMountsFor=/home /opt/apps" in state_disk.NFS_NEEDS.read_text()
    assert machine == ["systemctl daemon-reload", "nfs-server", "exportfs -r -a"]


def test_a_second_run_tells_the_server_nothing(machine):
    state_disk.share_folders(SHARED)
    del machine[:]
    state_disk.share_folders(SHARED)
    assert machine == ["nfs-server"]


def test_one_that_was_killed_in_between_is_made_good(machine, monkeypatch):
    def killed(*command):
        if command[0] == "exportfs":
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(state_disk, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            state_disk.share_folders(SHARED)
    state_disk.share_folders(SHARED)
    assert machine[-1] == "exportfs -r -a"


def test_what_is_no_longer_shared_is_taken_back(machine):
    state_disk.share_folders(SHARED)
    state_disk.share_folders(None)
    assert state_disk.EXPORTS.read_text() == ""
    assert machine[-1] == "exportfs -r -a"


def test_a_machine_that_shares_nothing_needs_no_server(machine, monkeypatch):
    monkeypatch.setattr(state_disk.shutil, "which", lambda *_, **__: None)
    state_disk.share_folders(None)
    assert machine == []
    with pytest.raises(SetupError, match="install the package nfs-kernel-server"):
        state_disk.share_folders(SHARED)
