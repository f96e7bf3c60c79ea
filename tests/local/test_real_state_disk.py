"""The state disk on a real block device: what it is given stays on it, for this machine and the next."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
NODE = Path(__file__).parents[2] / "scripts" / "node"

# In a mount namespace of its own: what is mounted ends with it. Its fstab and folders are those of a folder.
DRIVER = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
from system import host as system, mounts, state_disk as state
root, device = pathlib.Path(sys.argv[2]), sys.argv[3]
real = system.run
fstab = mounts.FSTAB = root / "fstab"
def run(*command, **more):
    if command[0] == "systemctl":
        return ""
    return real(*(("mount", "--fstab", str(fstab), command[1]) if command[0] == "mount" else command), **more)
system.UNREAD = root / "unread-units"
system.run = run
state.run, state.MOUNT_POINT, state.SETUP_FOLDER = run, root / "srv", str(root / "ours")
state.DAEMONS = {str(root / "db"): ("", "games", 0o700)}
told = {"source": device, "fs_type": "ext4", "options": "defaults", "folders": [str(root / "db"), str(root / "home")]}
for turn in range(int(sys.argv[4])):
    print("--", turn)
    state.converge(told)
print("--", sorted(p.name for p in (root / "db").iterdir()), (root / "db").owner())
(root / "db" / sys.argv[5]).touch()
"""


@pytest.fixture
def device(tmp_path: Path) -> Iterator[str]:
    """A disk of 16 MiB."""
    with (tmp_path / "disk").open("wb") as file:
        file.truncate(16 << 20)
    made = subprocess.run(["losetup", "--find", "--show", tmp_path / "disk"], capture_output=True, check=True)
    yield made.stdout.decode().strip()
    subprocess.run(["losetup", "--detach", made.stdout.decode().strip()], check=True)


def keep(machine: Path, device: str, *, leaves: str, turns: int = 1) -> list[str]:
    """Return what the set-up says on a machine that has the disk."""
    command = ["unshare", "--mount", sys.executable, "-c", DRIVER, NODE, machine, device, str(turns), leaves]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_what_is_on_it_outlives_the_machine(tmp_path, device):
    machine = tmp_path / "machine"
    (machine / "db").mkdir(parents=True)
    (machine / "db" / "packages").touch()

    said = keep(machine, device, leaves="jobs", turns=2)
    assert said[-1] == "-- ['packages'] games"
    assert said[-2] == "-- 1", "a second run changed something"
    assert [p.name for p in (machine / "db").iterdir()] == ["packages"], "the machine's own was written to"

    # Another machine in its place.
    shutil.rmtree(machine)
    machine.mkdir()
    said = keep(machine, device, leaves="more")
    assert said[-1] == "-- ['jobs', 'packages'] games"
    assert not any("made an ext4" in line for line in said)
