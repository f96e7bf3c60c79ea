"""The state disk is formatted only when it is empty; exports are applied once they differ."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from system import mounts, state_disk
from system.host import SetupError


@pytest.fixture
def disk(tmp_path):
    """A file as an empty disk."""
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    return path


def kind(disk: Path) -> str:
    """Return the type of its file system."""
    done = subprocess.run(["blkid", "-p", "-s", "TYPE", "-o", "value", disk], capture_output=True, check=False)
    return done.stdout.decode().strip()


class TestFormat:
    def test_an_empty_disk_gets_a_file_system_once(self, disk, capsys):
        state_disk.format_if_empty(str(disk))
        assert kind(disk) == "ext4"
        before = disk.read_bytes()
        state_disk.format_if_empty(str(disk))
        assert disk.read_bytes() == before
        assert capsys.readouterr().out.splitlines() == [f"made an ext4 file system on {disk}"]

    @pytest.mark.parametrize("make", [["mkfs.ext3", "-q", "-F"], ["mkswap", "-q"]])
    def test_other_contents_stay(self, disk, make):
        subprocess.run([*make, str(disk)], check=True, capture_output=True)
        before = disk.read_bytes()
        with pytest.raises(SetupError, match=r"holds (ext3|swap), not an ext4 file system of ours, and is left alone"):
            state_disk.format_if_empty(str(disk))
        assert disk.read_bytes() == before

    def test_partitions_stay(self, disk):
        # A partition of type Linux (0x83) from the 2048th sector on, and the mark at the sector's end.
        entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (8192).to_bytes(4, "little")
        with disk.open("r+b") as file:
            file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        with pytest.raises(SetupError, match="holds dos partitions"):
            state_disk.format_if_empty(str(disk))

    def test_a_missing_disk_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setattr(state_disk, "wait", lambda what, *_, **__: (_ for _ in ()).throw(SetupError(what)))
        with pytest.raises(SetupError, match="the state disk /dev/none"):
            state_disk.format_if_empty("/dev/none")


@pytest.mark.parametrize(("blocks", "grown"), [((100, 100), False), ((100, 300), True)])
def test_the_file_system_grows_with_its_disk(monkeypatch, capsys, blocks, grown):
    sizes = iter(blocks)
    monkeypatch.setattr(state_disk.os, "statvfs", lambda _: SimpleNamespace(f_blocks=next(sizes)))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(state_disk, "run", lambda *command, **_: asked.append(command))
    state_disk.grow_file_system("/dev/x")
    assert asked == [("resize2fs", "/dev/x")]
    assert ("grown" in capsys.readouterr().out) == grown


@pytest.mark.parametrize(
    ("source", "kind", "options", "own", "remote"),
    [
        ("/dev/x", "ext4", "defaults", "/dev/x /srv/state ext4 defaults,nofail 0 2", ""),
        ("1.2.3.4@tcp:/s", "lustre", "_netdev", "1.2.3.4@tcp:/s /srv/state lustre _netdev,nofail 0 0", ",_netdev"),
    ],
)
def test_fstab_has_the_disk_and_its_folders_with_nofail(source, kind, options, own, remote):
    assert state_disk.state_lines(
        {"source": source, "fs_type": kind, "options": options, "folders": ["/var/lib/mysql"]}
    ) == [
        own,
        f"/srv/state/var-lib-mysql /var/lib/mysql none bind,nofail{remote} 0 0",
        f"/srv/state/var-lib-hpc-controller /var/lib/hpc/controller none bind,nofail{remote} 0 0",
    ]


def test_without_a_state_disk_nothing_changes(tmp_path, monkeypatch):
    monkeypatch.setattr(mounts, "FSTAB", tmp_path / "fstab")
    state_disk.converge(None)
    assert list(tmp_path.iterdir()) == []


SHARED: state_disk.Exports = {"paths": ["/home", "/opt/apps"], "network": "10.0.0.0/20"}


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine without systemd and an NFS server; return the requests to both."""
    asked: list[str] = []
    for name in ("EXPORTS", "EXPORTS_APPLIED", "NFS_CONF", "NFS_NEEDS"):
        monkeypatch.setattr(state_disk, name, tmp_path / name.lower())

    def write(path, text, **_):
        changed = not path.exists() or path.read_text() != text
        path.write_text(text)
        return changed

    monkeypatch.setattr(state_disk, "write", write)
    monkeypatch.setattr(state_disk, "write_unit", write)
    monkeypatch.setattr(state_disk, "service", lambda name, **_: asked.append(name))
    monkeypatch.setattr(state_disk, "run", lambda *command: asked.append(" ".join(command)) or "")
    monkeypatch.setattr(state_disk.shutil, "which", lambda *_, **__: "/usr/sbin/exportfs")
    return asked


def test_folders_are_exported_to_the_clusters_network(machine):
    state_disk.share_folders(SHARED)
    assert state_disk.EXPORTS.read_text() == (
        "/home 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
        "/opt/apps 10.0.0.0/20(rw,sync,no_subtree_check,root_squash,mountpoint)\n"
    )
    assert "RequiresMountsFor=/home /opt/apps" in state_disk.NFS_NEEDS.read_text()
    assert machine == ["nfs-server", "exportfs -r -a"]
    state_disk.share_folders(SHARED)
    assert machine[2:] == ["nfs-server"], "a second run applies nothing"


def test_an_interrupted_export_is_completed(machine, monkeypatch):
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


def test_removed_exports_are_withdrawn(machine):
    state_disk.share_folders(SHARED)
    state_disk.share_folders(None)
    assert state_disk.EXPORTS.read_text() == ""
    assert machine[-1] == "exportfs -r -a"


def test_only_exports_need_an_nfs_server(machine, monkeypatch):
    monkeypatch.setattr(state_disk.shutil, "which", lambda *_, **__: None)
    state_disk.share_folders(None)
    assert machine == []
    with pytest.raises(SetupError, match="install the package nfs-kernel-server"):
        state_disk.share_folders(SHARED)
