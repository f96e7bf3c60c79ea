"""Creates machines for by-hand.sh as a cloud's own command would: all in parallel, and reachable by SSH at its end.

    python -m tests.bench.machines make ROOT STACK CIDR PUBLIC_KEY NAME=GPUS...   prints NAME ADDRESS HOST_KEY of each
    python -m tests.bench.machines remove ROOT STACK                             whatever there is of it

The functions of rehearsals create them, with the same network, names and shared folders, so that the bench compares
only the set-up.
"""

import ipaddress
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from components.local.deploy import GPU_MAJOR
from components.local.host import machine, network
from components.local.host.cgroups import allow_watches
from components.local.host.images import ensure_image, recipe
from components.local.host.machine import Design
from components.local.host.paths import images_root
from tests.bench.clusters import BASE


def say(text: str) -> None:
    print(text, file=sys.stderr)


def make(root: Path, stack: str, cidr: str, key: Path, wanted: list[str]) -> None:
    block = ipaddress.IPv4Network(cidr)
    gpus = {name: int(count) for name, _, count in (word.partition("=") for word in wanted)}
    addresses = {name: str(block[2 + number]) for number, name in enumerate(gpus)}
    ensure_image(BASE, images_root(), say)
    allow_watches(say)
    own = network.HostNetwork(
        root=root, stack=stack, owner="tests/bench/by-hand", cidr=cidr, gateway=str(block[1]), hosts=addresses
    )
    network.ensure(own)
    for folder in ("home", "opt-apps"):
        network.ensure_shared(own.paths, folder, mode=0o755, gid=0)
    designs = [
        Design(
            root=root, images=images_root(), stack=stack, name=name, address=addresses[name], prefix=block.prefixlen,
            image=recipe(BASE).digest, authorized_keys=key.read_text(),
            devices=tuple((f"nvidia{number}", GPU_MAJOR, number) for number in range(count)),
        )
        for name, count in gpus.items()
    ]  # fmt: skip
    with ThreadPoolExecutor(max_workers=len(designs)) as pool:
        for design, facts in zip(designs, pool.map(machine.create, designs), strict=True):
            print(design.name, design.address, facts.host_key)


if __name__ == "__main__":
    action, root, stack, *rest = sys.argv[1:]
    if action == "make":
        make(Path(root), stack, rest[0], Path(rest[1]), rest[2:])
    else:
        network.sweep(Path(root), stack)
