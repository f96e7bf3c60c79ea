"""The platform `local`: a cluster's machines, network and shared folders on this host."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pulumi
import pulumi_random as random

from cluster.catalog import SYSTEMS
from cluster.config import ClusterConfig
from cluster.config.validators import minutes
from cluster.platforms.local.address_plan import CLOUD_PORT, plan
from cluster.roster import (
    MachineSpec,
    controller_name,
    elastic_machine,
    elastic_names,
    machines,
    nodeset_type,
    static_names,
)
from cluster.slurm import paths
from cluster.slurm.power_saving import repaired_nodesets
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.local.host.images import BaseImageRecipe, recipe
from components.local.host.owner import state_id
from components.local.host.paths import HostError, host_root, images_root
from components.local.resources import HostImage, LocalCloud, LocalMachine, LocalNetwork, SharedFolder
from components.machine import Boot, BootFile, ElasticApi, Machine, Machines
from components.slurm.cluster import boot_files, deploy_machines
from components.slurm.keys import ClusterKeys
from components.slurm.payload import CLOUD_TOKEN

GPU_MAJOR = 60  # for local and experimental use (Linux' Documentation/admin-guide/devices.txt): no driver answers
MAIL_GID = 8  # group `mail` (Debian's base-passwd)
LONGEST_FOLDER = 50
"""Longest name of a shared folder, without the digest that some have: 63 characters are allowed."""
STATE_FOLDER = "hpc--state"
"""The folder for the controller's state disk. No shared folder can have this name, see `folder_name`."""
_PROJECT, _ZONE = "rehearsal", "local-a"
"""The place of elastic nodes in requests for them."""
_GPU_EXPORTER = Path(__file__).parents[2] / "scripts/local/dcgm_exporter.py"
_GPU_EXPORTER_UNIT = """\
[Unit]
Description=Stand-in for NVIDIA DCGM-exporter
[Service]
ExecStart=/usr/bin/dcgm-exporter
[Install]
WantedBy=multi-user.target
"""
_PROPERTIES: Mapping[str, Any] = {
    "spot": {"scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"}},
    "flex": {"scheduling": {"provisioningModel": "FLEX_START", "instanceTerminationAction": "DELETE"}},
}
"""Properties of instances by the kind of their capacity."""
MODES = {"/var/mail": (0o2775, MAIL_GID)}
"""Mode and group of a shared folder, where it is not root's and 0755: mailboxes are made by the delivery agent."""


IMAGE_INPUTS: Mapping[str, Sequence[str]] = {"pulumi-python:dynamic/local:Machine": ("image", "os_release")}
"""Types of resources that are machines, each with the inputs of its image."""


def machine_image(config: ClusterConfig) -> str:
    """Return the digest of the machines' image, and the system that they present themselves as."""
    try:
        return f"{_recipe(config).digest} {config.image.presents_as or ''}".rstrip()
    except HostError as error:
        raise pulumi.RunError(str(error)) from None


def _recipe(config: ClusterConfig) -> BaseImageRecipe:
    return recipe(config.image.base, config.packages, config.slurm_version)


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    return deploy_machines(config, scripts, _make)


def _make(config: ClusterConfig, keys: ClusterKeys) -> Machines:
    boot = boot_files(keys, mounts=mounts(config), controller=controller_name(config))
    if config.monitoring:
        boot = _with_gpu_exporter(boot)
    platform = LocalPlatform(config.name, config, keys.admin.public_key_openssh, boot)
    return Machines(
        platform=platform,
        machines=platform.machines,
        mounts=lambda _: mounts(config),
        addresses=plan(config).of,
        state=state(config),
        elastic=platform.elastic,
        ready=platform.ready,
    )


def _with_gpu_exporter(boot: Callable[[MachineSpec], Boot]) -> Callable[[MachineSpec], Boot]:
    """Add a stand-in for dcgm-exporter to the boot files of machines with stand-in GPUs."""
    files = {
        "/usr/bin/dcgm-exporter": BootFile(content=_GPU_EXPORTER.read_text(), mode=0o755),
        "/etc/systemd/system/nvidia-dcgm-exporter.service": BootFile(content=_GPU_EXPORTER_UNIT),
    }
    return lambda spec: {**boot(spec), **(files if spec.gpu else {})}


class LocalPlatform(pulumi.ComponentResource):
    """A cluster's machines on this host, answering SSH."""

    machines: tuple[Machine, ...]
    """The machines in the roster's order."""
    elastic: ElasticApi | None
    """The API by which the controller creates and repairs machines of nodes; None if it does not."""
    ready: Sequence[pulumi.Resource]
    """The process behind that API, which must run before the controller's first request."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        admin_key: pulumi.Input[str],
        boot: Callable[[MachineSpec], Boot],
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`admin_key` is the public half (OpenSSH) of the key that may log in as root everywhere. `boot` returns the
        files that a machine has before its first boot.
        """
        super().__init__("hpc:local:LocalPlatform", name, {}, opts)
        addresses, presents_as = plan(config), config.image.presents_as
        try:
            place = {"root": str(host_root()), "stack": config.name}
            images = str(images_root())
            image_recipe = _recipe(config)
            digest = image_recipe.digest
        except HostError as error:
            raise pulumi.RunError(str(error)) from None
        key = pulumi.Output.from_input(admin_key).apply(state_id)
        child = pulumi.ResourceOptions(parent=self)
        inputs: dict[str, Any] = {"base": config.image.base, "images": images, "digest": digest}
        # These inputs are missing without a value: a new input would be a change of every stack that is up.
        inputs |= {"packages": list(config.packages)} if config.packages else {}
        inputs |= {"slurm": image_recipe.slurm} if image_recipe.slurm else {}
        image = HostImage(f"{name}-image", inputs, child)
        elastic = [nodeset for nodeset, section in config.nodesets.items() if section.elastic]
        network = LocalNetwork(
            f"{name}-network",
            {
                **place,
                "owner": f"{pulumi.get_project()}/{pulumi.get_stack()}",
                "cidr": config.network.cidr,
                "gateway": addresses.gateway,
                "hosts": dict(addresses.of),
                "state": key,
                # Also without elastic nodes: the controller deletes the machines of the last ones after a change of
                # the network.
                "open_to": {addresses.of[controller_name(config)]: CLOUD_PORT},
            },
            child,
        )
        # Data is protected, machines are not.
        data = pulumi.ResourceOptions(parent=self, depends_on=[network], protect=config.deletion_protection)
        folders = {folder_name(target): MODES.get(target, (0o755, 0)) for target in config.storage.shared}
        shared = [
            # Pulumi's numbers are floats, so the mode is a text.
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
        self.ready, self.elastic = (), None
        repaired = repaired_nodesets(config)
        if elastic or repaired:
            token = random.RandomPassword(f"{name}-cloud-token", length=40, special=False, opts=child).result
            designs = {
                nodeset: ({**common, "devices": devices(spec), "orderly": False}, boot(spec))
                for nodeset in (*elastic, *repaired)
                if (
                    spec := elastic_machine(config, nodeset)
                    or next(machine for machine in machines(config) if machine.nodeset == nodeset)
                )
            }
            # After the controller: no node may get a newer slurmd before it has a new slurmctld.
            controller = pulumi.ResourceOptions(depends_on=[self.machines[0].resource])
            opts = pulumi.ResourceOptions.merge(after, controller)
            self.ready = (LocalCloud(f"{name}-cloud", _cloud(config, place, token, key), designs, opts),)
            self.elastic = _elastic(config, token)
        self.register_outputs({"bridge": network.bridge, "machine_addresses": dict(addresses.of)})


def _machine(spec: MachineSpec, common: Mapping[str, Any], files: Boot, opts: pulumi.ResourceOptions) -> Machine:
    own = {"name": spec.name, "devices": devices(spec), "orderly": "controller" in spec.roles}
    resource = LocalMachine(spec.name, {**common, **own}, files, opts)
    return Machine(
        spec=spec,
        address=common["address"],
        instance_id=resource.instance_id,
        boot_id=resource.boot_id,
        resource=resource,
        host_key=resource.host_key,
    )


def _cloud(
    config: ClusterConfig, place: Mapping[str, str], token: pulumi.Output[str], state: pulumi.Output[str]
) -> dict[str, Any]:
    """Return the inputs of the process that creates elastic nodes, which compute_engine/host_compute.py reads."""
    addresses = plan(config)
    elastic = {name: section for name, section in config.nodesets.items() if section.elastic}
    nodesets = (*elastic, *repaired_nodesets(config))
    static = {node: name for name in nodesets for node in static_names(config, name)}
    labels = {"hpc-cluster": config.name, "hpc-part": "node"}
    return {
        **place,
        "state": state,
        "gateway": addresses.gateway,
        "port": CLOUD_PORT,
        "token": token,
        "place": f"projects/{_PROJECT}/zones/{_ZONE}",
        "labels": labels,
        "static": static,
        "addresses": {
            node: addresses.of[node]
            for name in nodesets
            for node in (*static_names(config, name), *elastic_names(config, name))
        },
        "templates": {
            _template(config, name, capacity.way): {
                "nodeset": name,
                "way": capacity.way,
                "properties": {
                    "labels": {**labels, "hpc-nodeset": name, "hpc-made-by": "reconcile"},
                    "machineType": f"zones/{_ZONE}/machineTypes/{nodeset_type(config, section).name}",
                    **_PROPERTIES.get(capacity.way, {}),
                },
            }
            for name, section in elastic.items()
            for capacity in section.ways
        },
    }


def _elastic(config: ClusterConfig, token: pulumi.Output[str]) -> ElasticApi:
    """Return the API of that process for the controller, which is the one of Google Cloud."""
    cloud = {"project": _PROJECT, "zone": _ZONE, "region": _ZONE.rpartition("-")[0], "cluster": config.name}
    endpoint = f"http://{plan(config).gateway}:{CLOUD_PORT}"
    return ElasticApi(
        cloud={**cloud, "endpoint": endpoint, "token_file": CLOUD_TOKEN},
        templates={
            name: [
                {
                    "way": capacity.way,
                    "template": f"projects/{_PROJECT}/global/instanceTemplates/{_template(config, name, capacity.way)}",
                    **({"run_seconds": int(minutes(capacity.flex.max_run) * 60)} if capacity.flex else {}),
                }
                for capacity in section.ways
            ]
            for name, section in config.nodesets.items()
            if section.elastic
        }
        | dict.fromkeys(repaired_nodesets(config), ()),
        token=token,
    )


def _template(config: ClusterConfig, nodeset: str, way: str) -> str:
    """Return the name of a template. As on Google Cloud, another image has another name: the reconcile loop replaces
    machines of the old one."""
    mark = hashlib.sha256(machine_image(config).encode()).hexdigest()[:8]
    return f"{config.name}-{nodeset}-{way.replace('_', '-')}-{mark}"


def mounts(config: ClusterConfig) -> tuple[Mapping[str, str], ...]:
    """Return the shared file systems of every machine, for fstab: source, target, fs_type, options."""
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
    """Return the controller's state disk and its folders, for scripts/node/system/state_disk.py."""
    source = f"{plan(config).gateway}@tcp:/{STATE_FOLDER}"
    return {"source": source, "fs_type": "lustre", "options": "defaults,_netdev", "folders": list(paths.KEPT)}


def folder_name(target: str) -> str:
    """Return the name of the shared folder that is mounted at `target`: /opt/apps is `opt-apps`.

    Names of other paths, such as /opt-apps or /Data, end with a digest, so that no two are equal.
    """
    path = target.strip("/")
    if re.fullmatch("[a-z0-9]+(/[a-z0-9]+)*", path) and len(path) <= LONGEST_FOLDER:
        return path.replace("/", "-")
    plain = re.sub("[^a-z0-9]+", "-", path.lower()).strip("-")[:LONGEST_FOLDER].rstrip("-")
    return f"{plain}-{hashlib.sha256(target.encode()).hexdigest()[:8]}".lstrip("-")


def devices(spec: MachineSpec) -> list[dict[str, object]]:
    """Return the character devices of a machine: one for each of its GPUs in Slurm."""
    count = spec.gpu.count if spec.gpu else 0
    return [{"name": f"nvidia{index}", "major": GPU_MAJOR, "minor": index} for index in range(count)]


def _os_release(fields: Mapping[str, str]) -> str:
    """Return the text of os-release(5). Plain words are not quoted, as in distributions' files."""
    quoted = {name: value if re.fullmatch("[a-z]+", value) else f'"{value}"' for name, value in fields.items()}
    return "".join(f"{name}={value}\n" for name, value in quoted.items())
