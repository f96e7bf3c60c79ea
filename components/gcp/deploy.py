"""The platform `gcp`: networks, file systems, image and machines on Google Cloud, and the stack's outputs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pulumi
from pulumi_command import remote

from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.platforms.gcp import iap
from cluster.platforms.gcp.address_plan import plan
from cluster.platforms.gcp.filesystems.registry import exports, file_systems
from cluster.platforms.gcp.image import bake_script, bakes, boots_from, content, digest, recipe, trial_script, versions
from cluster.platforms.gcp.names import labels, place
from cluster.roster import MachineSpec, controller_name, machines, node_names
from cluster.slurm import paths
from cluster.slurm.power_saving import repaired_nodesets
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment
from components.gcp.access import Access
from components.gcp.bake.design import image_link
from components.gcp.bake.resource import BakedImage, BakeLeftovers
from components.gcp.customize import Customizer
from components.gcp.machines.boot import STATE_DISK, BootArgs, metadata
from components.gcp.machines.identity import BUILDER, INSTALL, NO_MEMBERS, SETUP, Identity, roles
from components.gcp.machines.machines import MachineArgs, endpoint
from components.gcp.machines.machines import Machines as GoogleMachines
from components.gcp.network import Network
from components.gcp.services import Services
from components.gcp.storage.filesystems import Storage
from components.machine import Elastic, Machine, Machines
from components.slurm.cluster import deploy_machines
from components.slurm.keys import ClusterKeys
from scripts.node.slurm import hostlist


class Image(pulumi.ComponentResource):
    """The image of all machines.

    A baked one is named after a hash of all that goes in. Another content (recipe, Slurm, own steps, what the stack's
    parts want) is another image, created before the old one is deleted, and its machines are recreated. A newer
    program alone changes no existing image.
    """

    self_link: pulumi.Output[str]
    """projects/PROJECT/global/images/NAME."""
    baked: bool
    """True if the stack makes it itself."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        network: Network,
        account: pulumi.Input[str],
        after: Sequence[pulumi.Resource] = (),
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """The builder is in `network`, which needs access to package repositories, and acts as the service account
        with the email `account`. `after` has what has to be there before it can install.
        """
        super().__init__("hpc:gcp:Image", name, {}, opts)
        self.baked = bakes(config)
        self._after = list(after)
        try:
            link = self._bake(name, config, network, account) if self.baked else existing(config)
        except ConfigError as error:
            raise pulumi.RunError(str(error)) from None
        self.self_link = pulumi.Output.from_input(link)
        self.register_outputs({"self_link": self.self_link, "baked": self.baked})

    def _bake(
        self, name: str, config: ClusterConfig, network: Network, account: pulumi.Input[str]
    ) -> pulumi.Output[str]:
        row, hashed, builder = recipe(config), digest(config), config.image.builder
        where = {
            "project": place(config).project,
            "zone": place(config).zone,
            "endpoint": endpoint(),
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=self._after)
        leftovers = BakeLeftovers(f"{name}-leftovers", **where, cluster=config.name, opts=after)
        made = {
            **where,
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
            # Where its machines are, and where an organisation's policies on locations allow it.
            "storage_location": place(config).region,
        }
        after = pulumi.ResourceOptions(parent=self, depends_on=[leftovers, *self._after])
        return BakedImage(f"{name}-bake", made, after).self_link


def existing(config: ClusterConfig) -> str:
    """The image of a stack that bakes none: the one it names, else the public one that bakes start from."""
    named = config.image.name
    if named is None:
        return recipe(config).image
    return named if "/" in named else image_link(place(config).project, named)


def machine_image(config: ClusterConfig) -> str:
    try:
        return boots_from(config)
    except ConfigError as error:
        raise pulumi.RunError(str(error)) from None


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    return deploy_machines(config, scripts, _make)


def _make(config: ClusterConfig, keys: ClusterKeys) -> Machines:
    made = GcpPlatform(config.name, config, keys)
    return Machines(
        machines=made.machines,
        mounts=made.mounts,
        state=state(config),
        exports=exported(config),
        elastic=made.elastic,
        ready=made.ready,
        outputs=made.outputs,
    )


class GcpPlatform(pulumi.ComponentResource):
    """A cluster's machines on Google Cloud, and all that they need there."""

    machines: Sequence[Machine]
    """The machines in the roster's order."""
    ready: Sequence[pulumi.Resource]
    """Resources after which machines are set up: file systems whose servers take their time."""
    elastic: Elastic | None
    """The way in which the controller creates and repairs machines of nodes; None where it does not."""
    outputs: Mapping[str, Any]
    """Outputs of the stack."""

    def __init__(
        self, name: str, config: ClusterConfig, keys: ClusterKeys, *, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        customizer = Customizer(config)
        super().__init__("hpc:gcp:GcpPlatform", name, {}, pulumi.ResourceOptions.merge(opts, customizer.options()))
        self._config, self._keys = config, keys
        child = pulumi.ResourceOptions(parent=self)
        enabled = Services(f"{name}-services", config, opts=child).ready
        self._network = Network(f"{name}-network", config, enabled, opts=child)
        self._identity = Identity(f"{name}-identity", config, keys, enabled, opts=child)
        accounts = {role: self._identity.email(role) for role in roles(config) if role not in NO_MEMBERS}
        self._storage = Storage(f"{name}-storage", config, self._network, accounts, opts=child)
        image = self._image(f"{name}-image").self_link
        args = MachineArgs(
            config=config,
            network=self._network,
            identity=self._identity,
            image=image,
            metadata=self._metadata,
            after=enabled,
            mounted=self._storage.ready,
        )
        made = GoogleMachines(f"{name}-machines", args, opts=child)
        access = Access(config)
        self.machines = tuple(_reached(access, machine, made.public) for machine in made.machines)
        self.ready = self._lustre_ready(self.machines[0])
        templates = {**made.templates, **dict.fromkeys(repaired_nodesets(config), ())}
        self.elastic = self._elastic(templates) if templates else None
        self.outputs = {
            "image": image,
            "addresses": dict(plan(config).of),
            "nodes": {nodeset: hostlist.compress(node_names(config, nodeset)) for nodeset in config.nodesets},
            "storage": self._storage.facts,
            "ssh": pulumi.Output.all(**made.public).apply(lambda public: ssh_commands(config, public)),
            "console": console_links(config),
        }
        customizer.report()
        self.register_outputs({"machines": len(self.machines), "image": image})

    def mounts(self, spec: MachineSpec) -> Sequence[Mapping[str, pulumi.Input[str]]]:
        """Shared file systems of a machine: source, target, fs_type, options."""
        return self._storage.mounts(spec)

    def _image(self, name: str) -> Image:
        own = pulumi.ResourceOptions(parent=self)
        if BUILDER not in roles(self._config):
            return Image(name, self._config, self._network, "", [self._network.ready], opts=own)
        after = [self._network.ready, *self._identity.ready(BUILDER)]
        return Image(name, self._config, self._network, self._identity.email(BUILDER), after, opts=own)

    def _elastic(self, templates: Mapping[str, Sequence[Mapping[str, pulumi.Input[Any]]]]) -> Elastic:
        where = place(self._config)
        # Without the path that the provider's setting has: the client adds it.
        api = urlsplit(endpoint())
        at = f"{api.scheme}://{api.netloc}" if api.netloc else ""
        # Google's own metadata server has the token, for root alone.
        cloud = {"project": where.project, "zone": where.zone, "region": where.region, "cluster": self._config.name}
        return Elastic(cloud={**cloud, "endpoint": at, "token_file": ""}, templates=templates)

    def _lustre_ready(self, controller: Machine) -> list[pulumi.Resource]:
        """Check from the controller that Lustre is up, before any machine mounts it."""
        asked = self._storage.probe
        if asked is None:
            return []
        return [
            remote.Command(
                f"{self._config.name}-lustre-ready",
                connection=controller.connection(self._keys.admin.private_key_openssh),
                create=asked,
                update=asked,
                triggers=[controller.instance_id],
                add_previous_output_in_env=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
        ]

    def _metadata(self, spec: MachineSpec) -> Mapping[str, pulumi.Input[str]]:
        keys, stored = self._keys, self._identity.objects
        args = BootArgs(
            admin_key=keys.admin.public_key_openssh,
            cluster_key=keys.cluster.public_key_openssh,
            secrets=self._identity.versions(spec),
            setup=stored[SETUP],
            install=stored.get(INSTALL),
            mounts=self.mounts(spec),
        )
        return metadata(self._config, spec, args)


def state(config: ClusterConfig) -> Mapping[str, Any]:
    """Return what the controller keeps on the disk that outlives it, as scripts/node/system/state_disk.py takes it."""
    folders = [*paths.KEPT, *exports(config)]
    return {"source": STATE_DISK, "fs_type": "ext4", "options": "defaults,noatime", "folders": folders}


def exported(config: ClusterConfig) -> Mapping[str, Any]:
    """Return what the controller shares by NFS, as scripts/node/system/state_disk.py takes it."""
    return {"paths": list(exports(config)), "network": config.network.cidr}


def _reached(access: Access, machine: Machine, public: Mapping[str, pulumi.Output[str]]) -> Machine:
    name = machine.spec.name
    reach = access.reach(
        machine.spec,
        address=machine.address,
        public=public.get(name),
        instance_id=machine.instance_id,
        name=name,
        zone=machine.zone,
        host_key=machine.host_key,
    )
    return replace(machine, reach=reach)


CONSOLE = "https://console.cloud.google.com"
SOMEBODY = "USER"
"""The name in a command where the stack has no user, to be replaced by the reader."""


def ssh_commands(config: ClusterConfig, public: Mapping[str, str] | None = None) -> dict[str, str]:
    """A command line for each machine where somebody logs in, by its name.

    On login machines as the first of the stack's users, with that person's own key. On a controller that is no login
    machine, as root with the stack's key, which the command under `admin_key` fetches; nobody else gets in there.
    `public` are the public addresses of those that have one. Not gcloud's own `compute ssh`, which would put a key
    into the machine's metadata, where the stack has nothing of that kind.
    """
    addresses, key = public or {}, f"{config.name}.key"
    user = config.users[0].name if config.users else SOMEBODY
    found: dict[str, str] = {}
    for spec in machines(config):
        if spec.roles == ("node",):
            continue
        who = f"{user}@" if "login" in spec.roles else f"-i {key} root@"
        found[spec.name] = _command(config, spec.name, who, addresses, key)
    fetch = f"umask 077; pulumi stack output admin_key --show-secrets >{key}"
    return {**found, "admin_key": f"({fetch})"}


def console_links(config: ClusterConfig) -> dict[str, str]:
    """Pages of the Cloud Console, by what they show. Some show the whole project: what is the cluster's has a name that
    begins with the cluster's own."""
    where = place(config)
    project = {"project": where.project}
    controller = f"/compute/instancesDetail/zones/{where.zone}/instances/{controller_name(config)}"
    logged = f'resource.type="gce_instance" labels."compute.googleapis.com/resource_name"=~"^{config.name}-"'
    pages = {
        "machines": _page("/compute/instances", project),
        "controller": _page(controller, project),
        "controller's console": _page(f"{controller}/console", {"port": "1", **project}),
        "images": _page("/compute/images", project),
        "disks": _page("/compute/disks", project),
        "networks": _page("/networking/networks/list", project),
        "logs": _page(f"/logs/query;query={quote(logged, safe='')}", project),
    }
    pages |= {
        what: _page(path, project) for file_system in file_systems(config) for what, path in file_system.pages().items()
    }
    return pages


def _command(config: ClusterConfig, name: str, who: str, public: Mapping[str, str], key: str) -> str:
    if name in public:
        return f"ssh {who}{public[name]}"
    if public:
        # Not -J: the machine in between would not be given the key that stands on the command line.
        way = f"ssh -i {key} -W %h:%p root@{next(iter(public.values()))}"
    else:
        where = place(config)
        way = shlex.join(["gcloud", *iap.Instance(name=name, project=where.project, zone=where.zone).piped()])
    return f"ssh -o ProxyCommand={shlex.quote(way)} {who}{name}"


def _page(path: str, query: Mapping[str, str]) -> str:
    return f"{CONSOLE}{path}?{urlencode(query)}"
