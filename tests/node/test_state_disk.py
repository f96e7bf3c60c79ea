"""The state disk: formatted only when it is empty, and never instead of somebody's data."""

import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from system import state_disk
from system.host import SetupError


@pytest.fixture
def disk(tmp_path):
    """An empty disk: a file, which all that looks at disks takes for one."""
    path = tmp_path / "disk"
    with path.open("wb") as file:
        file.truncate(16 << 20)
    return path


def kind(disk: Path) -> str:
    """What is on it."""
    found = subprocess.run(["blkid", "-p", "-s", "TYPE", "-o", "value", disk], capture_output=True, check=False)
    return found.stdout.decode().strip()


class TestPrepare:
    def test_an_empty_disk_gets_a_file_system_once(self, disk, capsys):
        state_disk.prepare(str(disk))
        assert kind(disk) == "ext4"
        before = disk.read_bytes()
        state_disk.prepare(str(disk))
        assert disk.read_bytes() == before
        assert capsys.readouterr().out.splitlines() == [f"made an ext4 file system on {disk}"]

    @pytest.mark.parametrize("make", [["mkfs.ext3", "-q", "-F"], ["mkswap", "-q"]])
    def test_anything_else_on_it_stays(self, disk, make):
        subprocess.run([*make, str(disk)], check=True, capture_output=True)
        before = disk.read_bytes()
        with pytest.raises(SetupError, match=r"holds (ext3|swap), not an ext4 file system of ours, and is left alone"):
            state_disk.prepare(str(disk))
        assert disk.read_bytes() == before

    def test_partitions_stay(self, disk):
        # A partition of type Linux (0x83) from the 2048th sector on, and the mark at the sector's end.
        entry = bytes([0, 0, 0, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (8192).to_bytes(4, "little")
        with disk.open("r+b") as file:
            file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")
        with pytest.raises(SetupError, match="holds dos partitions"):
            state_disk.prepare(str(disk))

    def test_a_disk_that_is_not_attached_is_told(self, tmp_path, monkeypatch):
        monkeypatch.setattr(state_disk, "wait", lambda what, *_, **__: (_ for _ in ()).throw(SetupError(what)))
        with pytest.raises(SetupError, match="the state disk /dev/none"):
            state_disk.prepare("/dev/none")


@pytest.mark.parametrize(("blocks", "told"), [((100, 100), []), ((100, 300), ["grown"])])
def test_it_grows_with_its_disk(monkeypatch, capsys, blocks, told):
    sizes = iter(blocks)
    monkeypatch.setattr(state_disk.os, "statvfs", lambda _: SimpleNamespace(f_blocks=next(sizes)))
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(state_disk, "run", lambda *command, **_: asked.append(command))
    state_disk.grow("/dev/x")
    assert asked == [("resize2fs", "/dev/x")]
    assert [word for word in ("grown",) if word in capsys.readouterr().out] == told


def test_the_machine_boots_without_it_and_its_folders_wait_for_it():
    told = state_disk.state_lines(
        {"source": "/dev/x", "fs_type": "ext4", "options": "defaults", "folders": ["/var/lib/mysql"]}
    )
    assert told == [
        "/dev/x /srv/state ext4 defaults,nofail 0 2",
        "/srv/state/var-lib-mysql /var/lib/mysql none bind,nofail 0 0",
        "/srv/state/var-lib-hpc-controller /var/lib/hpc/controller none bind,nofail 0 0",
    ]


def test_folders_of_a_file_system_in_the_network_come_with_it():
    told = state_disk.state_lines(
        {"source": "1.2.3.4@tcp:/s", "fs_type": "lustre", "options": "_netdev", "folders": ["/home"]}
    )
    assert told[1] == "/srv/state/home /home none bind,nofail,_netdev 0 0"


def test_nothing_happens_without_one(tmp_path):
    state_disk.keep(None, fstab=tmp_path / "fstab")
    assert list(tmp_path.iterdir()) == []
