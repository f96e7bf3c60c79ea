"""The platform `local`: a cluster's machines, network and shared folders on this host."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.catalog import SYSTEMS
from cluster.config import ClusterConfig
from cluster.platforms.local.address_plan import AddressPlan, plan
from cluster.roster import MachineSpec, controller_name, machines
from cluster.slurm import paths
from cluster.slurm.script_tree import Tree
from components import machines as on_machines
from components.deploy import Deployment
from components.local.host.images import recipe
from components.local.host.owner import state_id
from components.local.host.paths import HostError, host_root, images_root
from components.local.resources import Image, LocalMachine, Network, SharedFolder
from components.machine import Boot, Machine
from components.slurm.cluster import boot_files
from components.slurm.keys import ClusterKeys

GPU_MAJOR = 60  # for local and experimental use (Linux' Documentation/admin-guide/devices.txt): no driver answers
MAIL_GID = 8  # group `mail` (Debian's base-passwd)
LONGEST_FOLDER = 50
"""Characters of a folder's name, without the digest that some have: a folder's name has at most 63."""
STATE_FOLDER = "hpc--state"
"""The folder that serves as the controller's state disk; no directory has this name, see `folder_name`."""
MODES = {"/var/mail": (0o2775, MAIL_GID)}
"""Mode and group of a shared folder, where it is not root's and 0755: mailboxes are made by the delivery agent."""


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    return on_machines.deploy(config, scripts, _make)


def _make(config: ClusterConfig, keys: ClusterKeys) -> on_machines.Machines:
    made = LocalPlatform(
        config.name,
        LocalPlatformArgs(
            config=config,
            admin_key=keys.admin.public_key_openssh,
            boot=boot_files(keys, mounts=mounts(config), controller=controller_name(config)),
            os_release=SYSTEMS[config.image.presents_as] if config.image.presents_as else {},
        ),
    )
    return on_machines.Machines(
        machines=made.machines, mounts=lambda _: made.mounts, addresses=made.addresses, state=state(config)
    )


def _no_files(_: MachineSpec) -> Boot:
    return {}


@dataclass(frozen=True, kw_only=True)
class LocalPlatformArgs:
    config: ClusterConfig
    admin_key: pulumi.Input[str]
    """Public half (OpenSSH) of the key that may log in as root everywhere."""
    boot: Callable[[MachineSpec], Boot] = _no_files
    """Files of each machine, in place before its first boot."""
    os_release: Mapping[str, str] = field(default_factory=dict)
    """/etc/os-release of the system that the machines present themselves as; what they are, if empty."""


class LocalPlatform(pulumi.ComponentResource):
    """A cluster's machines on this host, answering SSH."""

    def __init__(self, name: str, args: LocalPlatformArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:local:LocalPlatform", name, {}, opts)
        self._name, self._args = name, args
        config, addresses = args.config, plan(args.config)
        self._state = pulumi.Output.from_input(args.admin_key).apply(state_id)
        try:
            self._root, self._images = str(host_root()), str(images_root())
            self._digest = recipe(config.image.base, config.image.packages).digest
        except HostError as error:
            raise pulumi.RunError(str(error)) from None
        child = pulumi.ResourceOptions(parent=self)
        image = Image(
            f"{name}-image",
            base=config.image.base, images=self._images, digest=self._digest,
            packages=config.image.packages, opts=child,
        )  # fmt: skip
        network = Network(
            f"{name}-network",
            root=self._root, stack=config.name, owner=f"{pulumi.get_project()}/{pulumi.get_stack()}",
            cidr=config.network.cidr, gateway=addresses.gateway, hosts=addresses.of, state=self._state, opts=child,
        )  # fmt: skip
        shared = [self._shared(target, network) for target in config.storage.shared]
        shared.append(self._kept(STATE_FOLDER, network, mode=0o700))
        self.addresses = addresses.of
        self.mounts = mounts(config)
        self.machines = tuple(
            self._machine(spec, addresses, depends_on=[image, network, *shared]) for spec in machines(config)
        )
        """In the roster's order: controller, login machines, nodes."""
        self.register_outputs({"bridge": network.bridge, "machine_addresses": dict(addresses.of)})

    def _shared(self, target: str, network: Network) -> SharedFolder:
        mode, gid = MODES.get(target, (0o755, 0))
        return self._kept(folder_name(target), network, mode=mode, gid=gid)

    def _kept(self, folder: str, network: Network, *, mode: int, gid: int = 0) -> SharedFolder:
        config = self._args.config
        return SharedFolder(
            f"{self._name}-{folder}",
            root=self._root, stack=config.name, folder=folder, mode=mode, gid=gid, state=self._state,
            # Data is protected, machines are not.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[network], protect=config.deletion_protection),
        )  # fmt: skip

    def _machine(self, spec: MachineSpec, addresses: AddressPlan, *, depends_on: list[pulumi.Resource]) -> Machine:
        made = LocalMachine(
            spec.name,
            root=self._root, images=self._images, stack=self._args.config.name, machine=spec.name,
            address=addresses.of[spec.name], prefix=addresses.prefix, image=self._digest,
            authorized_keys=self._args.admin_key, files=self._args.boot(spec),
            os_release=_os_release(self._args.os_release), devices=devices(spec),
            orderly="controller" in spec.roles, opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )  # fmt: skip
        return Machine(
            spec=spec, address=addresses.of[spec.name], instance_id=made.instance_id, boot_id=made.boot_id,
            resource=made, host_key=made.host_key,
        )  # fmt: skip


def mounts(config: ClusterConfig) -> tuple[Mapping[str, str], ...]:
    """The shared file systems of every machine, for fstab: source, target, fs_type, options."""
    gateway = plan(config).gateway
    return tuple(
        {
            "source": f"{gateway}@tcp:/{folder_name(target)}",
            "target": target,
            "fs_type": "lustre",
            "options": f"{'ro' if target in config.storage.read_only else 'defaults'},_netdev",
        }
        for target in config.storage.shared
    )


def state(config: ClusterConfig) -> Mapping[str, Any]:
    """What the controller keeps when its machine is recreated, as scripts/node/system/state_disk.py takes it."""
    source = f"{plan(config).gateway}@tcp:/{STATE_FOLDER}"
    return {"source": source, "fs_type": "lustre", "options": "defaults,_netdev", "folders": list(paths.KEPT)}


def folder_name(target: str) -> str:
    """Name of the shared folder that is mounted at `target`: /opt/apps is `opt-apps`.

    Other paths, such as /opt-apps or /Data, get a digest at the end, so that no two have the same name.
    """
    path = target.strip("/")
    if re.fullmatch("[a-z0-9]+(/[a-z0-9]+)*", path) and len(path) <= LONGEST_FOLDER:
        return path.replace("/", "-")
    plain = re.sub("[^a-z0-9]+", "-", path.lower()).strip("-")[:LONGEST_FOLDER].rstrip("-")
    return f"{plain}-{hashlib.sha256(target.encode()).hexdigest()[:8]}".lstrip("-")


def devices(spec: MachineSpec) -> list[dict[str, object]]:
    """Character devices of a machine: one for each GPU that Slurm is to hand out."""
    count = spec.gpu.count if spec.gpu else 0
    return [{"name": f"nvidia{index}", "major": GPU_MAJOR, "minor": index} for index in range(count)]


def _os_release(fields: Mapping[str, str]) -> str:
    """Text of os-release(5). Plain words are not quoted, as in distributions' own files."""
    quoted = {name: value if re.fullmatch("[a-z]+", value) else f'"{value}"' for name, value in fields.items()}
    return "".join(f"{name}={value}\n" for name, value in quoted.items())
