"""Outputs for people to copy: commands to log in without `./hpc`, pages of the Cloud Console."""

import shlex
from collections.abc import Mapping
from urllib.parse import quote, urlencode

from cluster.config.cluster import ClusterConfig
from cluster.platforms.gcp.filesystems.registry import file_systems
from cluster.platforms.gcp.iap import Instance
from cluster.platforms.gcp.names import place
from cluster.roster import controller_name, machines

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
        way = shlex.join(["gcloud", *Instance(name=name, project=where.project, zone=where.zone).piped()])
    return f"ssh -o ProxyCommand={shlex.quote(way)} {who}{name}"


def _page(path: str, query: Mapping[str, str]) -> str:
    return f"{CONSOLE}{path}?{urlencode(query)}"
