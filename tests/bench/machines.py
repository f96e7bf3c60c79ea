"""Creates machines for by-hand.sh as a cloud's own command would: all in parallel, and reachable by SSH at its end.

    python -m tests.bench.machines make ROOT STACK CIDR PUBLIC_KEY NAME=GPUS...   prints NAME ADDRESS HOST_KEY of each
    python -m tests.bench.machines remove ROOT STACK                             whatever there is of it

The functions of rehearsals create them, with the same network, names and shared folders, so that the bench compares
only the set-up. ROOT and the cache of images are those of HPC_LOCAL_ROOT and HPC_LOCAL_IMAGES.
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

BASE = "debian-12"
"""The image of both sides of a comparison."""
SHARED = ("home", "opt-apps")


def make(root: Path, stack: str, cidr: str, key: Path, wanted: list[str]) -> list[str]:
    """Create network, shared folders and machines; return a line for each machine."""
    block = ipaddress.IPv4Network(cidr)
    gpus = {name: int(count) for name, _, count in (word.partition("=") for word in wanted)}
    addresses = {name: str(block[2 + number]) for number, name in enumerate(gpus)}
    ensure_image(BASE, images_root(), _say)
    allow_watches(_say)
    own = network.Network(
        root=root, stack=stack, owner="tests/bench/by-hand", cidr=cidr, gateway=str(block[1]), hosts=addresses
    )
    network.ensure(own)
    for folder in SHARED:
        network.ensure_shared(own.paths, folder, mode=0o755, gid=0)
    designs = [
        Design(
            root=root,
            images=images_root(),
            stack=stack,
            name=name,
            address=addresses[name],
            prefix=block.prefixlen,
            image=recipe(BASE).digest,
            authorized_keys=key.read_text(),
            devices=tuple((f"nvidia{number}", GPU_MAJOR, number) for number in range(count)),
        )
        for name, count in gpus.items()
    ]
    with ThreadPoolExecutor(max_workers=len(designs)) as pool:
        made = list(pool.map(machine.create, designs))
    return [f"{design.name} {design.address} {facts.host_key}" for design, facts in zip(designs, made, strict=True)]


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main(arguments: list[str]) -> None:
    action, root, stack, *rest = arguments
    if action == "make":
        cidr, key, *wanted = rest
        print("\n".join(make(Path(root), stack, cidr, Path(key), wanted)))
    else:
        network.sweep(Path(root), stack)


if __name__ == "__main__":
    main(sys.argv[1:])
