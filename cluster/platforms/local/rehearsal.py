"""The rehearsal of a cloud stack: the same Slurm cluster on local machines, its network, and what differs there."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.catalog import IMAGES, SYSTEMS
from cluster.catalog.base_system import LOGIN_SHELLS, missing_interpreter
from cluster.catalog.fabrics import ROCE
from cluster.catalog.slurm_releases import CONF, NODE, PARTITION, Table
from cluster.checks.scripts import placed_scripts
from cluster.config.cluster import ClusterConfig
from cluster.config.machines import Nodeset
from cluster.config.slurm import Script
from cluster.platforms.gcp.filesystems.registry import targets
from cluster.platforms.local.address_plan import BLOCKS, plan
from cluster.roster import monitoring_machine, nodeset_type
from cluster.slurm.files import render
from cluster.slurm.slurm_conf import topology

_ADDRESSES = "local machines have fixed addresses"
WHY: Mapping[str, str] = {
    "SlurmctldHost": _ADDRESSES,
    "SlurmctldParameters": _ADDRESSES,
    "NodeAddr": _ADDRESSES,
    "ResumeTimeout": "local machines boot in seconds, and a day of faults has one that does not",
    "HealthCheckInterval": "a day of faults does not wait for minutes until a check",
    "SlurmdParameters": "a local machine stands for a larger one",
    "TaskPlugin": "local machines share the host's cores",
    "ConstrainCores": "local machines share the host's cores",
    "JobAcctGatherType": "which cgroup controllers can be read depends on the host",
}
"""Reasons that are the same in every rehearsal."""
COUNT = "the rehearsal has another number of nodes"
_MANY = ("NodeName", "NodeSet", "PartitionName", "SwitchName")
"""Parameters that begin a line of several, of which a file has many."""
_ASSIGNMENT = re.compile(r'([^\s=]+)=("[^"]*"|\S*)')


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A setting that differs."""

    file: str
    key: str
    """The line, by the keys of `lines`."""
    line: str
    """The line's beginning, with its name where a file has many such lines: `NodeName=a3mega-gpu-[0-3]`."""
    name: str
    production: str | None
    """The value in production; None where its line does not have it."""
    here: str | None
    why: str

    def __str__(self) -> str:
        whose = "" if self.line.partition("=")[0] == self.name else f" of {self.line}"
        here = f"{self.name} not set" if self.here is None else f"{self.name}={self.here}"
        there = "where production has none" if self.production is None else f"where production has {self.production}"
        return f"{self.file}: {here}{whose}, {there}: {self.why}"


def differences(
    production: ClusterConfig, local: ClusterConfig, *, addresses: Mapping[str, str] | None = None
) -> list[Difference]:
    """Every setting that differs, in the files' order. `addresses` are production's, where its slurm.conf has some.

    An elastic nodeset that the rehearsal has as a static one is compared as such (see `stood_in`).
    """
    there, here = render(comparable(production, local), addresses or None), render(local, plan(local).of)
    # job_submit.lua and the stack's own rules in Lua are the same.
    files = [file for file in here if file.endswith(".conf")]
    return [found for file in files for found in _of_file(file, lines(there[file]), lines(here[file]), local)]


def comparable(production: ClusterConfig, local: ClusterConfig) -> ClusterConfig:
    """The stack with those of its elastic nodesets static that are so in the rehearsal."""
    nodesets = {
        name: row
        if not row.elastic or local.nodesets[name].elastic
        else row.model_copy(update={"count": row.most, "idle": None})
        for name, row in production.nodesets.items()
    }
    return production.model_copy(update={"nodesets": nodesets})


def lines(text: str) -> dict[str, dict[str, str]]:
    """The lines of a file of Slurm's without its comments: the settings of each, by a key of its own."""
    seen: Counter[str] = Counter()
    found: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        if line.startswith("#") or not line.strip():
            continue
        settings = dict(_ASSIGNMENT.findall(line))
        first = next(iter(settings))
        # Nodes may be fewer here, and then named otherwise; nodesets and partitions come in the same order.
        found[f"{first}/{seen[first]}" if first in _MANY else first] = settings
        seen[first] += 1
    return found


def _of_file(
    file: str, there: Mapping[str, Mapping[str, str]], here: Mapping[str, Mapping[str, str]], local: ClusterConfig
) -> Iterator[Difference]:
    for key in dict.fromkeys([*there, *here]):
        ours, theirs = here.get(key, {}), there.get(key, {})
        first = next(iter(ours or theirs))
        line = f"{first}={(ours or theirs)[first]}" if key != first else first
        for name in dict.fromkeys([*theirs, *ours]):
            if ours.get(name) != theirs.get(name):
                yield Difference(
                    file=file,
                    key=key,
                    line=line,
                    name=name,
                    production=theirs.get(name),
                    here=ours.get(name),
                    why=_why(first, name, local),
                )


def _why(first: str, name: str, local: ClusterConfig) -> str:
    table = {"NodeName": NODE, "PartitionName": PARTITION}.get(first, CONF)
    release, known = local.slurm_version, table.canonical(name)
    if known and release not in table.versions(known):
        return f"Slurm {release}, which local machines run, does not know it"
    return WHY.get(name, COUNT)


PRIVATE = ipaddress.IPv4Network("10.0.0.0/8")
FIRST = ipaddress.IPv4Address("10.78.0.0")
"""The first candidate: after the network of Pulumi.dev.yaml, so that both can be up."""
USUAL = 20
"""Prefix length that a rehearsal has unless it needs more room: 510 nodes in each of seven nodesets."""


def candidates(room: int) -> Iterator[str]:
    """Private networks of the usual size, or of the prefix length `room` if that is larger, always in the same order;
    none where no network is that large."""
    prefix = min(USUAL, room)
    if prefix < PRIVATE.prefixlen:
        return
    start = ipaddress.IPv4Network((FIRST, prefix), strict=False)
    first = int(start.network_address)
    for address in range(first, int(PRIVATE.broadcast_address), start.num_addresses):
        yield f"{ipaddress.IPv4Address(address)}/{prefix}"


def prefix(counts: Mapping[str, int], logins: int) -> int:
    """Longest prefix of a network for nodesets with so many nodes, 0 for one on the controller."""
    # A block's first and last address stay free; the first block has the network's own, the host and the controller.
    block = max(*(count + 2 for count in counts.values()), logins + 4, 1)
    bits = (block - 1).bit_length()
    while len(counts) >= BLOCKS and len(counts) > ((BLOCKS - 1) << (bits - _bits(block))):
        bits += 1
    return 32 - 3 - bits


def blocks(cidr: str, counts: Mapping[str, int]) -> dict[str, str]:
    """Blocks that nodesets must be given by name: none where each has an eighth of the network anyway."""
    if len(counts) < BLOCKS:
        return {}
    network = ipaddress.IPv4Network(cidr)
    size = 1 << _bits(max(counts.values()) + 2)
    first = int(network.network_address) + network.num_addresses // BLOCKS
    length = 33 - size.bit_length()
    return {
        name: f"{ipaddress.IPv4Address(first + position * size)}/{length}"
        for position, name in enumerate(name for name, count in counts.items() if count)
    }


def _bits(addresses: int) -> int:
    return (addresses - 1).bit_length()


AT_MOST = 4
"""Nodes of each nodeset, by default: enough for jobs on several nodes, few enough for a laptop."""
BASE = "debian-13"
"""The image of local machines."""
HURRIED_SECONDS, CHECKED_SECONDS = 120, 10
"""ResumeTimeout where faults are played: many times what local machines take to boot; and the time between checks."""
MAIL = "/var/mail"
"""Local mailboxes are shared between controller and login machines, as everywhere on this platform."""
STAND_IN = "lab/slurm/rxdm.sh"
"""The replacement of rxdm: its containers need GPUs, and a rehearsal has no way out to fetch them."""
STAND_INS = {"name": "00-stand-ins", "file": "scripts/node/stand_ins.sh"}
"""A prolog before rxdm's own script, which gives nodes the programs that it calls, as far as it needs them."""
GIB = {"name": "00-gib", "file": "lab/slurm/gib.sh"}
"""The replacement of gIB, which images of A3 Ultra and A4 have: a prolog that writes the file of its settings."""
_CLOUDS_OWN = ("version", "join_seconds")
"""Keys of `slurm` that are the cloud's own: the release is what local machines run, and these boot in seconds."""
_ABSENT = "#!/bin/sh\n# Stands for {what}, which a rehearsal can not have.\nexit 0\n"

Section = dict[str, Any]


def rehearsed(
    config: ClusterConfig,
    *,
    nodes: int | None = None,
    cidr: str | None = None,
    real_prolog: bool = False,
    elastic: bool = False,
    faults: bool = False,
) -> Section:
    """The stack's rehearsal, as it would stand under `hpc:cluster` in a stack file.

    `nodes` is the count of each nodeset, more than the stack's too; default: the stack's, up to AT_MOST. `cidr` is
    the local network; default: the first of those that are large enough. `real_prolog` leaves rxdm's own script in
    place, which a rehearsal can only take from a file. `elastic` keeps elastic nodesets so, with all of their nodes or
    `nodes` of them; without it their nodes are static. `faults` waits less for machines that do not boot,
    and for health checks.
    """
    given = config.model_dump(mode="json", exclude_unset=True)
    counts = _counts(config, nodes, elastic=elastic)
    cidr = cidr or next(candidates(room(config, nodes=nodes, elastic=elastic)), str(PRIVATE))
    presents = {"presents_as": config.image.base} if config.image.base in SYSTEMS else {}
    own = {key: given[key] for key in ("groups", "users", "accounting") if given.get(key) is not None}
    prologs = _prologs(config, real_prolog=real_prolog)
    slurm = _slurm(given.get("slurm") or {}, prologs, topology=topology(config), real_prolog=real_prolog)
    return {
        "platform": "local",
        "name": config.name,
        "network": {"cidr": cidr},
        "storage": {"shared": shared(config), **_read_only(config)},
        "image": {"base": BASE, **presents},
        "controller": _only(given.get("controller") or {}, "failover", "failover_mode")
        | {"machine_type": config.controller.machine_type},
        "login": _only(given.get("login") or {}, "on", "count", "machine_type"),
        "nodesets": _nodesets(config, given["nodesets"], counts, blocks(cidr, counts), elastic=elastic),
        "partitions": {name: _partition(config, name, row, counts) for name, row in given["partitions"].items()},
        **_people(own),
        **_monitoring(given.get("monitoring")),
        "slurm": _hurried(slurm) if faults else slurm,
        "deletion_protection": False,
    }


def _people(own: Section) -> Section:
    """People with shells that local machines have: nobody could log in with another, and no image is made for it."""
    users = [
        {key: value for key, value in user.items() if key != "shell" or value in LOGIN_SHELLS}
        for user in own.get("users", ())
    ]
    return own | ({"users": users} if users else {})


def _monitoring(given: Section | None) -> Section:
    """Metrics and alerts as they are; nobody gets these, since a rehearsal has no way out, and no way in."""
    if given is None:
        return {}
    found = {key: one for key, one in given.items() if key not in ("ops_agent", "receivers", "machine", "web")}
    own = {"machine": _only(given["machine"], "machine_type")} if given.get("machine") is not None else {}
    return {"monitoring": {**found, **own}}


def room(config: ClusterConfig, *, nodes: int | None = None, elastic: bool = False) -> int:
    """Longest prefix of a network that the rehearsal's machines fit into."""
    own = monitoring_machine(config) is not None
    return prefix(_counts(config, nodes, elastic=elastic), own + (0 if config.login.on else config.login.count))


def shared(config: ClusterConfig) -> list[str]:
    """Every directory that the stack's machines share, and the mailboxes."""
    return list(dict.fromkeys([*targets(config), MAIL]))


def _read_only(config: ClusterConfig) -> Section:
    found = [bucket.mount for bucket in config.storage.buckets if bucket.read_only]
    return {"read_only": found} if found else {}


def stood_in(
    config: ClusterConfig, *, nodes: int | None = None, real_prolog: bool = False, elastic: bool = False
) -> list[str]:
    """Return what a rehearsal has other than the stack does, beside Slurm's own files; a line for each."""
    counts = _counts(config, nodes, elastic=elastic)
    lines = [
        f"nodeset {name}: {counts[name]} of {row.most} nodes"
        if counts[name] < row.most
        else f"nodeset {name}: {counts[name]} nodes, where the stack has {row.most}"
        for name, row in config.nodesets.items()
        if not row.on and counts[name] != row.most
    ]
    lines += [
        f"nodeset {name}: a process of this host stands for the cloud, and creates the elastic nodes' machines"
        if _static(row, counts[name], elastic=elastic) < counts[name]
        else f"nodeset {name}: static nodes, where the stack has elastic ones; --elastic has these too"
        for name, row in config.nodesets.items()
        if row.elastic
    ]
    if config.controller.failover:
        lines.append("failover: the controller's machine starts again on this host, in the zones of a stand-in")
    if config.slurm.rxdm:
        lines.append(
            f"rxdm: {STAND_INS['file']} stands for docker, gcloud, curl, modprobe and nvidia-smi, which it calls"
            if real_prolog
            else f"rxdm: {STAND_IN} stands for the prolog, whose containers need GPUs and a way out"
        )
    if GIB in _prologs(config, real_prolog=real_prolog):
        lines.append(f"gIB: {GIB['file']} stands for NCCL's plugin, which needs RDMA adapters")
    if config.monitoring and config.monitoring.receivers.names:
        lines.append(f"alerts: {', '.join(config.monitoring.receivers.names)} get none; ./hpc status shows them")
    if config.monitoring and config.monitoring.web:
        lines.append("Prometheus: on the loopback address, without TLS and a password")
    if config.image.packages:
        lines.append(
            f"packages {', '.join(config.image.packages)}: not installed; {BASE} may have others by these names"
        )
    lines += [
        f"script {name}: does nothing; a rehearsal has no way out to {url}"
        for name, url in {script.name: script.url for script in _scripts(config) if script.url}.items()
    ]
    lines += [
        f"script {name}: does nothing; it is {what}, which local machines lack"
        for name, what in {script.name: _foreign(script.text) for script in _scripts(config)}.items()
        if what
    ]
    return lines + [
        f"user {user.name}: /bin/bash in place of {user.shell}, which local machines lack"
        for user in config.users
        if user.shell not in LOGIN_SHELLS
    ]


def _scripts(config: ClusterConfig) -> list[Script]:
    return [script for _, script in placed_scripts(config)]


def _counts(config: ClusterConfig, nodes: int | None, *, elastic: bool) -> dict[str, int]:
    """Machines of each nodeset, elastic nodes included; none of one that is on the controller."""

    def count(row: Nodeset) -> int:
        if row.on:
            return 0
        if nodes is not None:
            return nodes
        # Elastic nodes have machines only as long as jobs need them.
        return row.most if elastic and row.elastic else min(row.most, AT_MOST)

    return {name: count(row) for name, row in config.nodesets.items()}


def _static(row: Nodeset, count: int, *, elastic: bool) -> int:
    """Static ones among so many nodes of a nodeset."""
    return min(row.static, AT_MOST, count) if elastic and row.elastic else count


def _nodesets(
    config: ClusterConfig,
    given: Mapping[str, Section],
    counts: Mapping[str, int],
    blocks: Mapping[str, str],
    *,
    elastic: bool,
) -> dict[str, Section]:
    found: dict[str, Section] = {}
    for name, row in given.items():
        section = _only(row, "on", "machine_type", "gpus", "features", "node_conf", "scripts")
        if counts[name]:
            section |= {"count": counts[name]} | ({"addresses": blocks[name]} if name in blocks else {})
            if (spare := min(row.get("spare", 0), counts[name] - 1)) > 0:
                section |= {"spare": spare}
        static = _static(config.nodesets[name], counts[name], elastic=elastic)
        if static < counts[name]:
            section |= {"count": {"min": static, "max": counts[name]}, **_only(row, "idle", "capacity")}
        found[name] = _scripted(_known(section, "node_conf", NODE))
    return found


def _partition(config: ClusterConfig, name: str, given: Section, counts: Mapping[str, int]) -> Section:
    """A partition, whose jobs can have no more nodes than there are."""
    section = _scripted(_known(given, "conf", PARTITION))
    there = sum(counts[nodeset] or 1 for nodeset in set(config.partitions[name].nodesets))
    for key in ("min_nodes", "max_nodes"):
        if section.get(key) is not None:
            section[key] = min(section[key], there)
    return section


def _prologs(config: ClusterConfig, *, real_prolog: bool) -> list[Section]:
    """Prologs before the stack's own, which give nodes what images or a way out would."""
    gib = any(nodeset_type(config, section).family.fabric is ROCE for section in config.nodesets.values())
    return [GIB] * gib + [STAND_INS] * (real_prolog and config.slurm.rxdm is not None)


def _slurm(given: Section, prologs: list[Section], *, topology: str, real_prolog: bool) -> Section:
    section = _scripted(_known({key: value for key, value in given.items() if key not in _CLOUDS_OWN}, "extra", CONF))
    if section.get("job_account_gather") == "cgroup":
        # Which controllers machines may read depends on the host; /proc can be read on every one.
        del section["job_account_gather"]
    if topology == "places":
        section["topology"] = topology  # which only the cloud's platform has by itself
    if prologs:
        section["scripts"] = [*prologs, *(section.get("scripts") or [])]
    if section.get("rxdm") and not real_prolog:
        section["rxdm"] = {"partitions": section["rxdm"]["partitions"], "file": STAND_IN}
    return section


def _hurried(given: Section) -> Section:
    checks = given.get("health")
    health = {} if checks is None else {"health": {**checks, "interval_seconds": CHECKED_SECONDS}}
    return {**given, **health, "extra": {**(given.get("extra") or {}), "ResumeTimeout": HURRIED_SECONDS}}


def _known(section: Section, key: str, table: Table) -> Section:
    """The section without parameters that the local release of Slurm does not know."""
    if not section.get(key):
        return dict(section)
    release = IMAGES[BASE].slurm_versions[0]
    kept = {
        name: value for name, value in section[key].items() if release in table.versions(table.canonical(name) or name)
    }
    return {**section, key: kept}


def _scripted(section: Section) -> Section:
    """The section with its scripts, where those that would be downloaded do nothing."""
    if not section.get("scripts"):
        return section
    return {**section, "scripts": [_script(script) for script in section["scripts"]]}


def _script(given: Section) -> Section:
    what = given.get("url") or _foreign(given.get("text"))
    return {**_only(given, "name", "on"), "text": _ABSENT.format(what=what)} if what else given


def _foreign(text: str | None) -> str:
    """Return what a script is, if local machines lack what it is written for; production's image may have it."""
    missing = missing_interpreter(text) if text else None
    return f"a script for {missing!a}" if missing else ""


def _only(section: Mapping[str, Any], *keys: str) -> Section:
    return {key: section[key] for key in keys if section.get(key) is not None}
