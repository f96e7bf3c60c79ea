"""A machine that runs behind a cable that leads nowhere is plugged in again by the next `up`, and goes on."""

import ipaddress
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.local.host.bridge import bridge_name, interface_name
from components.local.host.process import Process
from components.local.resources import MachineProvider, NetworkProvider
from tests.local.real import RealStack

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def stack(
    real_root: Path,
    real_images: Path,
    digest: str,
    free_networks: Iterator[ipaddress.IPv4Network],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealStack]:
    """Two machines that reach each other."""
    key = RealStack.keygen(tmp_path_factory.mktemp("key"))
    made = RealStack(real_root, real_images, digest, "cable", next(free_networks), key)
    made.up(made.machine("m0"), made.machine("m1"))
    yield made
    made.down()


CUTS = (
    "ip link del dev {bridge}",
    "ip link set dev {bridge} down",
    "ip link set dev {cable} down",
    "ip link set dev {cable} nomaster",
    "nsenter --net=/proc/{inside}/ns/net ip link set dev host0 down",
    "nft delete table inet {bridge}",
)


@pytest.mark.parametrize("cut", CUTS)
def test_it_is_mended(stack: RealStack, cut: str) -> None:
    before = stack.state["m0"]
    process = Process.load(stack.root / "stacks" / stack.name / "machines" / "m0" / "run.json")
    assert process is not None
    names = {
        "bridge": bridge_name(stack.root, stack.name),
        "cable": interface_name(stack.root, stack.name, "m0"),
        "inside": process.children()[0],
    }
    subprocess.run(cut.format(**names).split(), check=True)
    given = stack.network()
    if NetworkProvider().diff("id", given, given).changes:
        NetworkProvider().update("id", given, given)
    for name in ("m0", "m1"):
        old = stack.state[name]
        diff = MachineProvider().diff("id", old, old)
        assert not diff.replaces
        if diff.changes:
            stack.state[name] = MachineProvider().update("id", old, old).outs or {}
    assert stack.ssh("m0", "timeout 9 sh -c 'until ping -c1 -W1 m1 >/dev/null; do :; done'; hostname") == "m0"
    assert stack.state["m0"] == before, "neither started nor made anew"
    assert not NetworkProvider().diff("id", given, given).changes
