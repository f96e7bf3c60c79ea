"""Machines of a stack, for real: they are reached only by their own key, live on through changes, and leave nothing."""

import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from components.local.host import images, machine
from components.local.host import network as networks
from components.local.host.bridge import bridge_name, interface_name
from components.local.host.machine import Design, design
from components.local.host.paths import HostError
from components.local.host.process import Process
from components.local.resources import MachineProvider, NetworkProvider
from tests import programs
from tests.local.real import RealStack
from tests.waiting import PATIENCE, wait_for

pytestmark = pytest.mark.e2e

UBUNTU = 'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nNAME="Ubuntu"\nID=ubuntu\nVERSION_ID="22.04"\n'
NOTE = {"content": "first", "mode": "0640", "owner": "root:munge"}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., RealStack]) -> Iterator[RealStack]:
    """Two machines, made side by side."""
    made = new_stack("ta")
    devices = [{"name": "nvidia0", "major": 60.0, "minor": 0.0}, {"name": "nvidia1", "major": 60.0, "minor": 1.0}]
    made.up(
        made.machine("m0", files={"/etc/hpc/note": NOTE, "/etc/hpc/link": {"link": "note"}}),
        made.machine("m1", os_release=UBUNTU, devices=devices, orderly=True),
    )
    yield made
    made.down()


def _process(stack: RealStack, name: str) -> Process:
    process = Process.load(stack.root / "stacks" / stack.name / "machines" / name / "run.json")
    assert process is not None
    return process


class TestMade:
    def test_images_of_running_machines_are_in_use_without_a_record(
        self, stack: RealStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert str(stack.root) in [note.read_text() for note in (stack.images / ".roots").iterdir()]
        monkeypatch.setattr(images, "_ROOTS", "no-such-folder")
        monkeypatch.setenv("HPC_LOCAL_ROOT", "/no/such/root")
        assert stack.digest in images._used(stack.images)

    def test_services_of_roles_are_not_enabled_in_the_image(self, stack: RealStack) -> None:
        roles = "munge slurmctld slurmd slurmdbd mariadb"
        assert set(stack.ssh("m0", f"systemctl is-enabled {roles} || true").split()) == {"disabled"}

    def test_machines_resolve_each_others_names_only(self, stack: RealStack) -> None:
        assert stack.ssh("m0", "ping -c1 -W60 m1 >/dev/null && echo found") == "found"
        assert stack.ssh("m0", "ip route show default; ip -6 route show default") == ""

    def test_machines_can_not_reach_services_of_the_host(self, stack: RealStack) -> None:
        with socket.create_server(("0.0.0.0", 0)) as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:  # noqa: S104
            udp.bind(("0.0.0.0", 0))  # noqa: S104
            udp.settimeout(1)
            gateway = stack.cidr[1]
            begin = f"timeout 60 bash -c 'echo hello > /dev/tcp/{gateway}/{tcp.getsockname()[1]}' 2>&1; true"
            assert "refused" in stack.ssh("m0", begin)
            stack.ssh("m0", f"bash -c 'echo hello > /dev/udp/{gateway}/{udp.getsockname()[1]}'; true")
            with pytest.raises(TimeoutError):
                udp.recv(16)

    def test_shared_folders_are_mounted_as_lustre_is(self, stack: RealStack) -> None:
        mount = f"mount -t lustre {stack.cidr[1]}@tcp:/home /mnt"
        stack.ssh("m0", f"{mount} && {mount} && echo both > /mnt/file && grep -c ' /mnt ' /proc/mounts")
        assert stack.ssh("m1", f"{mount} -o ro && cat /mnt/file && ! touch /mnt/other 2>/dev/null") == "both"
        for name in ("m0", "m1"):
            assert stack.ssh(name, "umount /mnt; grep -c ' /mnt ' /proc/mounts || true") == "0"


class TestChanged:
    def test_files_change_under_a_running_machine(self, stack: RealStack) -> None:
        before = stack.ssh("m0", "cut -d' ' -f22 /proc/1/stat")
        boot = stack.state["m0"]["boot_id"]
        new = stack.update("m0", files={"/etc/hpc/note": {**NOTE, "content": "second"}})
        assert stack.ssh("m0", "cat /etc/hpc/note; echo; ls /etc/hpc") == "second\naddress\nnote"
        assert (new["boot_id"], stack.ssh("m0", "cut -d' ' -f22 /proc/1/stat")) == (boot, before)

    def test_an_added_machine_is_in_the_hosts_file_of_all(self, stack: RealStack) -> None:
        NetworkProvider().update("id", stack.network(), stack.network(machines=3))
        assert stack.ssh("m0", "getent hosts m2").split() == [stack.address("m2"), "m2"]
        NetworkProvider().update("id", stack.network(machines=3), stack.network())
        assert stack.ssh("m0", "getent hosts m2 || echo gone") == "gone"

    def test_a_forced_replacement_keeps_the_network(self, stack: RealStack) -> None:
        old = stack.network()
        stack.lay("network", NetworkProvider().create(old).outs)
        NetworkProvider().delete("id", old)
        assert [stack.ssh(name, "hostname") for name in ("m0", "m1")] == ["m0", "m1"]

    def test_an_orderly_stop_shuts_down_services(self, stack: RealStack) -> None:
        stack.ssh("m1", "systemd-run --unit=last -p ExecStop='/bin/touch /root/ended' sleep 600")
        before = machine.facts(_design(stack, "m1"))
        machine.stop(_design(stack, "m1"), orderly=True)
        after = machine.update(_design(stack, "m1"))
        assert before is not None
        assert (after.instance_id, after.boot_id != before.boot_id) == (before.instance_id, True)
        assert stack.ssh("m1", "ls /root") == "ended"

    def test_a_reboot_from_inside_is_a_reboot(self, stack: RealStack) -> None:
        old = _process(stack, "m1")
        stack.ssh("m1", "touch /run/before; systemctl --no-block reboot 2>/dev/null || true")
        wait_for(lambda: _process(stack, "m1") != old)
        console = _design(stack, "m1").paths.console
        machine.wait_for_ssh("m1", _process(stack, "m1"), stack.address("m1"), console)
        assert stack.ssh("m1", "ls /run/before /root/ended 2>/dev/null || true") == "/root/ended"
        assert float(stack.ssh("m1", "cut -d' ' -f1 /proc/uptime")) < PATIENCE
        assert stack.diff("m1").changes is False
        machine.stop(_design(stack, "m1"))
        assert machine.running(_design(stack, "m1").paths) is None
        stack.update("m1")


class TestDead:
    """A machine that was killed, or whose host was restarted, shows as a difference, and `update` heals it."""

    @pytest.mark.parametrize("which", ["nspawn", "first process inside"])
    def test_a_killed_machine_is_restarted_with_its_files(self, stack: RealStack, which: str) -> None:
        old = dict(stack.state["m0"])
        stack.ssh("m0", "echo mine > /root/kept")
        process = _process(stack, "m0")
        victim = process if which == "nspawn" else Process.of(process.children()[0])
        assert victim is not None
        assert victim.end(signal.SIGKILL, wait=PATIENCE)
        wait_for(lambda: machine.running(_design(stack, "m0").paths) is None)
        process.end(signal.SIGKILL, wait=0)
        new = stack.update("m0")
        assert (new["instance_id"], new["host_key"]) == (old["instance_id"], old["host_key"])
        assert new["boot_id"] != old["boot_id"]
        assert stack.ssh("m0", "cat /root/kept") == "mine"
        assert stack.diff("m0").changes is False

    def test_after_a_restart_of_the_host_machines_are_restarted(self, stack: RealStack) -> None:
        for name in stack.state:
            machine.stop(machine.bare(stack.root, stack.name, name))
            assert machine.running(_design(stack, name).paths) is None
        subprocess.run(["ip", "link", "del", bridge_name(stack.root, stack.name)], check=True)
        network = stack.network()
        assert NetworkProvider().diff("id", network, network).changes
        NetworkProvider().update("id", network, network)
        for name in stack.state:
            stack.update(name)
        assert stack.ssh("m0", "ping -c1 -W60 m1 >/dev/null && cat /root/kept") == "mine"

    def test_a_machine_that_never_answers_times_out_with_its_console(
        self, stack: RealStack, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        nonsense = {"content": "Nonsense yes\n", "mode": "0644", "owner": "root:root"}
        props = stack.machine("m7", files={"/etc/ssh/sshd_config.d/a.conf": nonsense})
        console = design(props).paths.console

        def monotonic() -> float:
            """The time, which is over as soon as the console has a word about its sshd."""
            over = console.exists() and "ssh.service" in console.read_text(errors="replace")
            return time.monotonic() + machine.SSH_SECONDS * over

        monkeypatch.setattr(machine, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))
        with pytest.raises(HostError) as caught:
            MachineProvider().create(props)
        assert str(caught.value).startswith("machine m7: no SSH server after 240 s; the last lines of its console:\n  ")
        assert "ssh.service" in str(caught.value)
        assert not (stack.root / "stacks/ta/machines/m7").exists()


CUTS = (
    "ip link del dev {bridge}",
    "ip link set dev {bridge} down",
    "ip link set dev {cable} down",
    "ip link set dev {cable} nomaster",
    "nsenter --net=/proc/{inside}/ns/net ip link set dev host0 down",
    "nft delete table inet {bridge}",
)


@pytest.mark.parametrize("cut", CUTS)
def test_a_disconnected_machine_is_reconnected_by_the_next_up(stack: RealStack, cut: str) -> None:
    before = stack.state["m0"]
    names = {
        "bridge": bridge_name(stack.root, stack.name),
        "cable": interface_name(stack.root, stack.name, "m0"),
        "inside": _process(stack, "m0").children()[0],
    }
    subprocess.run(cut.format(**names).split(), check=True)
    given = stack.network()
    if NetworkProvider().diff("id", given, given).changes:
        NetworkProvider().update("id", given, given)
    for name in ("m0", "m1"):
        diff = stack.diff(name)
        assert not diff.replaces
        if diff.changes:
            stack.update(name)
    assert stack.ssh("m0", "timeout 120 sh -c 'until ping -c1 -W1 m1 >/dev/null; do :; done'; hostname") == "m0"
    assert stack.state["m0"] == before, "neither started nor made anew"
    assert not NetworkProvider().diff("id", given, given).changes


def test_two_stacks_run_side_by_side(stack: RealStack, new_stack: Callable[..., RealStack]) -> None:
    """The same machine names in both; removing one does not touch the other."""
    other = new_stack("tb")
    other.up(other.machine("m0"))
    assert (stack.ssh("m0", "hostname -I"), other.ssh("m0", "hostname -I")) == (
        stack.address("m0"),
        other.address("m0"),
    )
    with pytest.raises(AssertionError):
        other.ssh("m0", f"ping -c1 -W1 {stack.address('m0')}")
    taken = {**other.network(), "stack": "tc", "cidr": str(stack.cidr)}
    with pytest.raises(HostError, match=rf"network.cidr: {stack.cidr} is in use on this host by"):
        NetworkProvider().create(taken)
    other.down()
    assert stack.ssh("m0", "hostname") == "m0"
    assert not [left for left in networks.leftovers(stack.root) if "tb" in left]


CREATE = """
import json, sys
from components.local.resources import MachineProvider
MachineProvider().create(json.load(sys.stdin))
"""


@pytest.mark.parametrize("delay", [0.0, 0.1, 0.4])
def test_a_machine_of_a_killed_create_is_replaced(stack: RealStack, delay: float) -> None:
    props = stack.machine("m2")
    with subprocess.Popen(
        [sys.executable, "-c", CREATE],
        stdin=subprocess.PIPE, cwd=Path(__file__).parents[2], stderr=subprocess.DEVNULL,
    ) as run:  # fmt: skip
        assert run.stdin is not None
        run.stdin.write(json.dumps(props).encode())
        run.stdin.close()
        wait_for((stack.root / "stacks/ta/machines/m2").exists)
        time.sleep(delay)
        run.kill()
    stack.state["m2"] = MachineProvider().create(props).outs or {}
    assert stack.ssh("m2", "hostname") == "m2"
    assert len([left for left in networks.leftovers(stack.root) if left.startswith("process") and "/m2/" in left]) <= 1
    MachineProvider().delete("id", stack.state.pop("m2"))


def test_a_late_start_of_a_killed_run_does_not_become_the_machine(tmp_path: Path) -> None:
    (tmp_path / "wanted").write_text("newer")
    start = Path(machine.__file__).parent / "start-machine.sh"
    folders = [str(tmp_path)] * 4
    done = programs.run([start, tmp_path / "run.json", "older", *folders, "touch", tmp_path / "ran"])
    assert (done.returncode, done.stderr) == (1, "another start of this machine has taken over\n")
    assert {path.name for path in tmp_path.iterdir()} == {"wanted"}


def test_destroy_also_removes_machines_without_state(stack: RealStack, new_stack: Callable[..., RealStack]) -> None:
    gone = new_stack("td")
    gone.up(gone.machine("m0"), gone.machine("m1"))
    gone.state.pop("m1")  # as if the run that made it had been killed before it could write that down
    processes = [_process(gone, name) for name in ("m0", "m1")]
    cables = [interface_name(gone.root, "td", name) for name in ("m0", "m1")]
    gone.down()
    left = json.dumps(networks.leftovers(stack.root))
    assert "/td" not in left
    assert bridge_name(gone.root, "td") not in left
    # And looking ourselves:
    assert not (stack.root / "stacks/td").exists()
    assert "/stacks/td/" not in Path("/proc/mounts").read_text()
    links = programs.run(["ip", "-brief", "link"], check=True).stdout
    assert not any(name in links for name in [*cables, bridge_name(gone.root, "td")])
    commands = programs.run(["ps", "-eo", "args"], check=True).stdout
    assert "/stacks/td/" not in commands
    assert not any(process.alive() for process in processes)
    assert not any(Path("/run/systemd/nspawn/propagate").glob(cables[0].removeprefix("vb-")))
    ids = {cable.removeprefix("vb-") for cable in cables}
    assert not [path for path in Path("/sys/fs/cgroup").glob("*/hpc/*/*") if path.name in ids]


def _design(stack: RealStack, name: str) -> Design:
    return design(stack.inputs[name])


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
    done = programs.run(command, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_files_on_the_state_disk_outlive_the_machine(tmp_path, device):
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
