"""The platform `gcp`: networks, file systems, image and machines on Google Cloud, and the stack's outputs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pulumi
from pulumi_command import remote
from pulumi_gcp import projects

from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.platforms.gcp import iap
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.filesystems.registry import exports, file_systems
from cluster.platforms.gcp.image import bake_script, bakes, boots_from, content, digest, recipe, trial_script, versions
from cluster.platforms.gcp.names import labels, place
from cluster.platforms.gcp.permissions import FIRST_SERVICE, services
from cluster.roster import MachineSpec, controller_name, machines, node_names
from cluster.slurm import paths
from cluster.slurm.power_saving import repaired_nodesets
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.gcp import timeouts
from components.gcp.access import Access
from components.gcp.bake_design import image_link
from components.gcp.baked_image import BakedImage, BakeLeftovers
from components.gcp.billing import create_budget
from components.gcp.boot import STATE_DISK, BootArgs, metadata
from components.gcp.customize import Customizer
from components.gcp.filesystems import GoogleStorage
from components.gcp.identity import BUILDER, INSTALL, NO_MEMBERS, SETUP, Identity, roles
from components.gcp.machines import GoogleMachines, MachineArgs, endpoint
from components.gcp.network import GoogleNetwork
from components.machine import ElasticApi, Machine, Machines
from components.slurm.cluster import deploy_machines
from components.slurm.keys import ClusterKeys
from scripts.node.slurm import hostlist


class Services(pulumi.ComponentResource):
    """The enabled services. They stay enabled when the stack is destroyed: others in the project may use them."""

    ready: list[pulumi.Resource]
    """Dependencies of all other resources."""

    def __init__(self, name: str, config: ClusterConfig, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:gcp:Services", name, {}, opts)
        first = self._enable(name, FIRST_SERVICE)
        others = [service for service in services(config) if service != FIRST_SERVICE]
        self.ready = [first, *(self._enable(name, service, after=[first]) for service in others)]
        self.register_outputs({"services": list(services(config))})

    def _enable(self, name: str, service: str, after: Sequence[pulumi.Resource] = ()) -> projects.Service:
        return projects.Service(
            f"{name}-{service.partition('.')[0]}",
            service=service,
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(parent=self, depends_on=list(after)),
        )


class MachineImage(pulumi.ComponentResource):
    """The image of all machines.

    The name of a baked image contains a hash of all its inputs. Another content (recipe, Slurm, own steps, needs of
    other parts of the stack) is another image: it is created before the old one is deleted, and the machines are
    recreated. A newer program alone changes no existing image.
    """

    self_link: pulumi.Output[str]
    """projects/PROJECT/global/images/NAME."""
    baked: bool
    """True if the stack bakes it."""
    ready: list[pulumi.Resource]
    """Dependencies of what costs money and needs a working image: the bake, where there is one."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: GoogleNetwork,
        account: pulumi.Input[str],
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """The builder is in `network`, which needs access to package repositories, and acts as the service account
        with the email `account`. It can install once the resources `after` exist.
        """
        super().__init__("hpc:gcp:Image", name, {}, opts)
        self.baked = bakes(config)
        self.ready, self._after = [], list(after)
        try:
            link = self._bake(name, config, network, account) if self.baked else existing_image(config)
        except ConfigError as error:
            raise pulumi.RunError(str(error)) from None
        self.self_link = pulumi.Output.from_input(link)
        self.register_outputs({"self_link": self.self_link, "baked": self.baked})

    def _bake(
        self, name: str, config: ClusterConfig, network: GoogleNetwork, account: pulumi.Input[str]
    ) -> pulumi.Output[str]:
        row, hashed, builder = recipe(config), digest(config), config.image.builder
        location = {"project": place(config).project, "zone": place(config).zone, "endpoint": endpoint()}
        opts = pulumi.ResourceOptions(parent=self, depends_on=self._after)
        leftovers = BakeLeftovers(f"{name}-leftovers", **location, cluster=config.name, opts=opts)
        inputs = {
            **location,
            "image": f"{config.name}-{hashed}",
            "digest": hashed,
            "content": content(config),
            "labels": {**labels(config, "image"), **versions(config)},
            "builder_labels": labels(config, "image"),
            "description": f"Made for the cluster {config.name} from {row.image}; what is in it stands in its labels",
            "source_image": row.image,
            "machine_type": builder.machine_type,
            "size_gb": builder.size_gb,
            "minutes": builder.minutes,
            "subnetwork": network.system,
            "tag": network.tag,
            "service_account": account,
            "script": bake_script(config),
            "trial": trial_script(config),
            # The region of the machines, which an organisation's policies on locations allow.
            "storage_location": place(config).region,
        }
        opts = pulumi.ResourceOptions(parent=self, depends_on=[leftovers, *self._after])
        image = BakedImage(f"{name}-bake", inputs, opts)
        self.ready.append(image)
        return image.self_link


def existing_image(config: ClusterConfig) -> str:
    """Return the image of a stack that bakes none: the one that it names, else the recipe's public one."""
    name = config.image.name
    if name is None:
        return recipe(config).image
    return name if "/" in name else image_link(place(config).project, name)


IMAGE_INPUTS: Mapping[str, Sequence[str]] = {
    "gcp:compute/instance:Instance": ("bootDisk.initializeParams.image",),
    # Both: a template can't change, and a new template recreates the machines even if its image is the same.
    "gcp:compute/instanceTemplate:InstanceTemplate": ("disks[0].sourceImage",),
    "gcp:compute/instanceFromTemplate:InstanceFromTemplate": ("sourceInstanceTemplate",),
    "pulumi-python:dynamic/gcp:FlexNode": ("template",),
}
"""Types of resources that are machines or their templates, each with the inputs of its image."""


def machine_image(config: ClusterConfig) -> str:
    """Return an id of the machines' image, for upgrades. Raises pulumi.RunError if there is no such image."""
    try:
        return boots_from(config)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    return deploy_machines(config, scripts, _create_machines)


def _create_machines(config: ClusterConfig, keys: ClusterKeys) -> Machines:
    platform = GcpPlatform(config.name, config, keys)
    return Machines(
        platform=platform,
        machines=platform.machines,
        mounts=platform.mounts,
        state=state_disk_settings(config),
        exports=export_settings(config),
        elastic=platform.elastic,
        ready=platform.ready,
        outputs=platform.outputs,
    )


class GcpPlatform(pulumi.ComponentResource):
    """The machines of a cluster on Google Cloud, with networks, accounts, file systems and image."""

    machines: Sequence[Machine]
    """The machines in the roster's order."""
    ready: Sequence[pulumi.Resource]
    """Resources that the set-up of machines waits for: file systems whose servers need time after their creation."""
    elastic: ElasticApi | None
    """The controller's settings for the creation and repair of nodes' machines; None where it does neither."""
    outputs: Mapping[str, Any]
    """Outputs of the stack."""

    def __init__(
        self, name: str, config: ClusterConfig, keys: ClusterKeys, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        customizer = Customizer(config)
        for more in (timeouts.options(), customizer.options()):
            opts = pulumi.ResourceOptions.merge(opts, more)
        super().__init__("hpc:gcp:GcpPlatform", name, {}, opts)
        self._config, self._keys = config, keys
        child = pulumi.ResourceOptions(parent=self)
        enabled = Services(f"{name}-services", config, opts=child).ready
        self._network = GoogleNetwork(f"{name}-network", config, enabled, opts=child)
        self._identity = Identity(f"{name}-identity", config, keys, enabled, opts=child)
        create_budget(f"{name}-budget", config, self._identity.project_number, opts=child)
        accounts = {role: self._identity.email(role) for role in roles(config) if role not in NO_MEMBERS}
        baked = self._image(f"{name}-image")
        image = baked.self_link
        # What holds data is protected and costs from its first minute, so a bake that fails comes before it.
        self._storage = GoogleStorage(f"{name}-storage", config, self._network, accounts, baked.ready, opts=child)
        args = MachineArgs(
            config=config,
            network=self._network,
            identity=self._identity,
            image=image,
            metadata=self._metadata,
            after=[*enabled, *baked.ready],
            mounted=self._storage.ready,
        )
        machines = GoogleMachines(f"{name}-machines", args, opts=child)
        access = Access(config)
        self.machines = tuple(_with_access(access, machine, machines.public) for machine in machines.machines)
        self.ready = self._wait_for_lustre(self.machines[0])
        templates = {**machines.templates, **dict.fromkeys(repaired_nodesets(config), ())}
        self.elastic = self._elastic(templates) if templates else None
        self.outputs = {
            "image": image,
            "addresses": dict(plan(config).of),
            "nodes": {nodeset: hostlist.compress(node_names(config, nodeset)) for nodeset in config.nodesets},
            "storage": self._storage.facts,
            "ssh": pulumi.Output.all(**machines.public).apply(lambda public: ssh_commands(config, public)),
            "console": console_links(config),
        }
        customizer.report()
        self.register_outputs({"machines": len(self.machines), "image": image})

    def mounts(self, spec: MachineSpec) -> Sequence[Mapping[str, pulumi.Input[str]]]:
        """Return the shared file systems of a machine: source, target, fs_type, options."""
        return self._storage.mounts(spec)

    def _image(self, name: str) -> MachineImage:
        opts = pulumi.ResourceOptions(parent=self)
        if BUILDER not in roles(self._config):
            return MachineImage(name, self._config, self._network, "", [self._network.ready], opts=opts)
        after = [self._network.ready, *self._identity.ready(BUILDER)]
        return MachineImage(name, self._config, self._network, self._identity.email(BUILDER), after, opts=opts)

    def _elastic(self, templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]) -> ElasticApi:
        where = place(self._config)
        # Without the path that the provider's setting has: the client adds it.
        api = urlsplit(endpoint())
        host = f"{api.scheme}://{api.netloc}" if api.netloc else ""
        cloud = {"project": where.project, "zone": where.zone, "region": where.region, "cluster": self._config.name}
        # No token file: root gets the token from Google's metadata server.
        return ElasticApi(cloud={**cloud, "endpoint": host, "token_file": ""}, templates=templates)

    def _wait_for_lustre(self, controller: Machine) -> list[pulumi.Resource]:
        """Create the command on the controller that waits for Lustre, before any machine mounts it."""
        probe = self._storage.probe
        if probe is None:
            return []
        return [
            remote.Command(
                f"{self._config.name}-lustre-ready",
                connection=controller.connection(self._keys.admin.private_key_openssh),
                create=probe,
                update=probe,
                triggers=[controller.instance_id],
                add_previous_output_in_env=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
        ]

    def _metadata(self, spec: MachineSpec) -> Mapping[str, pulumi.Input[str]]:
        keys, objects = self._keys, self._identity.objects
        args = BootArgs(
            admin_key=keys.admin.public_key_openssh,
            cluster_key=keys.cluster.public_key_openssh,
            secrets=self._identity.versions(spec),
            setup=objects[SETUP],
            install=objects.get(INSTALL),
            mounts=self.mounts(spec),
        )
        return metadata(self._config, spec, args)


def state_disk_settings(config: ClusterConfig) -> Mapping[str, Any]:
    """Return the state disk's mount and folders, as scripts/node/system/state_disk.py takes them."""
    folders = [*paths.KEPT, *exports(config)]
    return {"source": STATE_DISK, "fs_type": "ext4", "options": "defaults,noatime", "folders": folders}


def export_settings(config: ClusterConfig) -> Mapping[str, Any]:
    """Return the folders that the controller shares by NFS, as scripts/node/system/state_disk.py takes them."""
    return {"paths": list(exports(config)), "network": config.network.cidr}


def _with_access(access: Access, machine: Machine, public: Mapping[str, pulumi.Output[str]]) -> Machine:
    name = machine.spec.name
    machine_access = access.machine_access(
        machine.spec,
        address=machine.address,
        public=public.get(name),
        instance_id=machine.instance_id,
        name=name,
        host_key=machine.host_key,
    )
    return replace(machine, access=machine_access)


CONSOLE = "https://console.cloud.google.com"
SOMEBODY = "USER"
"""Placeholder for the user in a command, where the stack has no users."""


def ssh_commands(config: ClusterConfig, public: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a command for each machine that people log in to, by the machine's name.

    On login machines it logs in as the first of the stack's users, with that user's own key. On a controller that is no
    login machine it logs in as root with the stack's key, which the command under `admin_key` fetches: nobody else can
    log in there. `public` has the public addresses of machines. `gcloud compute ssh` is not used, since it would add a
    key to the machine's metadata.
    """
    addresses, key = public or {}, f"{config.name}.key"
    user = config.users[0].name if config.users else SOMEBODY
    commands: dict[str, str] = {}
    for spec in machines(config):
        if spec.roles == ("node",):
            continue
        who = f"{user}@" if "login" in spec.roles else f"-i {key} root@"
        commands[spec.name] = _ssh_command(config, spec.name, who, addresses, key)
    fetch = f"umask 077; pulumi stack output admin_key --show-secrets >{key}"
    return {**commands, "admin_key": f"({fetch})"}


def console_links(config: ClusterConfig) -> dict[str, str]:
    """Return pages of the Cloud Console, by what they show. Some show the whole project: names of the cluster's
    resources begin with the cluster's name."""
    where = place(config)
    project = {"project": where.project}
    controller = f"/compute/instancesDetail/zones/{where.zone}/instances/{controller_name(config)}"
    log_filter = f'resource.type="gce_instance" labels."compute.googleapis.com/resource_name"=~"^{config.name}-"'
    pages = {
        "machines": _page("/compute/instances", project),
        "controller": _page(controller, project),
        "controller's console": _page(f"{controller}/console", {"port": "1", **project}),
        "images": _page("/compute/images", project),
        "disks": _page("/compute/disks", project),
        "networks": _page("/networking/networks/list", project),
        "logs": _page(f"/logs/query;query={quote(log_filter, safe='')}", project),
    }
    pages |= {
        what: _page(path, project) for file_system in file_systems(config) for what, path in file_system.pages().items()
    }
    return pages


def _ssh_command(config: ClusterConfig, name: str, who: str, public: Mapping[str, str], key: str) -> str:
    if name in public:
        return f"ssh {who}{public[name]}"
    if public:
        # Not -J, which does not use the key of the command line for the jump host.
        proxy = f"ssh -i {key} -W %h:%p root@{next(iter(public.values()))}"
    else:
        where = place(config)
        proxy = shlex.join(
            ["gcloud", *iap.InstanceName(name=name, project=where.project, zone=where.zone).pipe_arguments()]
        )
    return f"ssh -o ProxyCommand={shlex.quote(proxy)} {who}{name}"


def _page(path: str, query: Mapping[str, str]) -> str:
    return f"{CONSOLE}{path}?{urlencode(query)}"
