"""Folders are shared with the cluster's network alone, and the server is told only what is new to it."""

import pytest
from system import nfs_exports
from system.host import SetupError

SHARED: nfs_exports.Exports = {"paths": ["/home", "/opt/apps"], "network": "10.0.0.0/20"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of which systemd and the NFS server are left out; what was asked of them."""
    asked: list[str] = []
    for name in ("EXPORTS", "APPLIED", "SERVER", "NEEDS"):
        monkeypatch.setattr(nfs_exports, name, tmp_path / name.lower())

    def write(path, text, **_):
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        return changed

    monkeypatch.setattr(nfs_exports, "write", write)
    monkeypatch.setattr(nfs_exports, "service", lambda name, **_: asked.append(name))
    monkeypatch.setattr(nfs_exports, "run", lambda *command: asked.append(" ".join(command)) or "")
    monkeypatch.setattr(nfs_exports.shutil, "which", lambda *_, **__: "/usr/sbin/exportfs")
    return asked


def test_to_the_clusters_network_alone(machine):
    nfs_exports.share(SHARED)
    assert nfs_exports.EXPORTS.read_text() == (
        "/home 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
        "/opt/apps 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
    )
    assert "RequiresMountsFor=/home /opt/apps" in nfs_exports.NEEDS.read_text()
    assert machine == ["systemctl daemon-reload", "nfs-server", "exportfs -r -a"]


def test_a_second_run_tells_the_server_nothing(machine):
    nfs_exports.share(SHARED)
    del machine[:]
    nfs_exports.share(SHARED)
    assert machine == ["nfs-server"]


def test_one_that_was_killed_in_between_is_made_good(machine, monkeypatch):
    def killed(*command):
        if command[0] == "exportfs":
            raise KeyboardInterrupt
        return ""

    with monkeypatch.context() as patch:
        patch.setattr(nfs_exports, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            nfs_exports.share(SHARED)
    nfs_exports.share(SHARED)
    assert machine[-1] == "exportfs -r -a"


def test_what_is_no_longer_shared_is_taken_back(machine):
    nfs_exports.share(SHARED)
    nfs_exports.share(None)
    assert nfs_exports.EXPORTS.read_text() == ""
    assert machine[-1] == "exportfs -r -a"


def test_a_machine_that_shares_nothing_needs_no_server(machine, monkeypatch):
    monkeypatch.setattr(nfs_exports.shutil, "which", lambda *_, **__: None)
    nfs_exports.share(None)
    assert machine == []
    with pytest.raises(SetupError, match="install the package nfs-kernel-server"):
        nfs_exports.share(SHARED)
