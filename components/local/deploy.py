"""The platform `local`: a cluster's machines, network and shared folders on this host."""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any

import pulumi

from cluster.catalog import SYSTEMS
from cluster.config import ClusterConfig
from cluster.platforms.local.address_plan import plan
from cluster.roster import MachineSpec, controller_name, machines
from cluster.slurm import paths
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.local.host.images import recipe
from components.local.host.owner import state_id
from components.local.host.paths import HostError, host_root, images_root
from components.local.resources import Image, LocalMachine, Network, SharedFolder
from components.machine import Boot, Machine, Machines
from components.slurm.cluster import boot_files, deploy_machines
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
    return deploy_machines(config, scripts, _make)


def _make(config: ClusterConfig, keys: ClusterKeys) -> Machines:
    boot = boot_files(keys, mounts=mounts(config), controller=controller_name(config))
    made = LocalPlatform(config.name, config, keys.admin.public_key_openssh, boot)
    return Machines(
        machines=made.machines, mounts=lambda _: mounts(config), addresses=plan(config).of, state=state(config)
    )


class LocalPlatform(pulumi.ComponentResource):
    """A cluster's machines on this host, answering SSH."""

    machines: tuple[Machine, ...]
    """The machines in the roster's order: controller, login machines, nodes."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        admin_key: pulumi.Input[str],
        boot: Callable[[MachineSpec], Boot],
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`admin_key` is the public half (OpenSSH) of the key that may log in as root everywhere; `boot` gives the
        files of a machine that are in place before its first boot.
        """
        super().__init__("hpc:local:LocalPlatform", name, {}, opts)
        addresses, presents_as = plan(config), config.image.presents_as
        try:
            place = {"root": str(host_root()), "stack": config.name}
            images = str(images_root())
            digest = recipe(config.image.base, config.image.packages).digest
        except HostError as error:
            raise pulumi.RunError(str(error)) from None
        key = pulumi.Output.from_input(admin_key).apply(state_id)
        child = pulumi.ResourceOptions(parent=self)
        made = {"base": config.image.base, "images": images, "digest": digest}
        # Only where there are some: another input would be a change of every stack that is up.
        own = {"packages": list(config.image.packages)} if config.image.packages else {}
        image = Image(f"{name}-image", {**made, **own}, child)
        network = Network(
            f"{name}-network",
            {
                **place,
                "owner": f"{pulumi.get_project()}/{pulumi.get_stack()}",
                "cidr": config.network.cidr,
                "gateway": addresses.gateway,
                "hosts": dict(addresses.of),
                "state": key,
            },
            child,
        )
        # Data is protected, machines are not.
        data = pulumi.ResourceOptions(parent=self, depends_on=[network], protect=config.deletion_protection)
        folders = {folder_name(target): MODES.get(target, (0o755, 0)) for target in config.storage.shared}
        shared = [
            # Pulumi's numbers are floats; a mode is better kept as it is written.
            SharedFolder(
                f"{name}-{folder}",
                {**place, "folder": folder, "mode": f"{mode:04o}", "gid": gid, "state": key},
                data,
            )
            for folder, (mode, gid) in {**folders, STATE_FOLDER: (0o700, 0)}.items()
        ]
        common = {
            **place,
            "images": images,
            "image": digest,
            "prefix": addresses.prefix,
            "authorized_keys": admin_key,
            "os_release": _os_release(SYSTEMS[presents_as]) if presents_as else "",
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=[image, network, *shared])
        self.machines = tuple(
            _machine(spec, {**common, "address": addresses.of[spec.name]}, boot(spec), after)
            for spec in machines(config)
        )
        self.register_outputs({"bridge": network.bridge, "machine_addresses": dict(addresses.of)})


def _machine(spec: MachineSpec, common: Mapping[str, Any], files: Boot, opts: pulumi.ResourceOptions) -> Machine:
    own = {"name": spec.name, "devices": devices(spec), "orderly": "controller" in spec.roles}
    made = LocalMachine(spec.name, {**common, **own}, files, opts)
    return Machine(
        spec=spec,
        address=common["address"],
        instance_id=made.instance_id,
        boot_id=made.boot_id,
        resource=made,
        host_key=made.host_key,
    )


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
    """Return what the controller keeps when its machine is recreated, as scripts/node/system/state_disk.py takes it."""
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
