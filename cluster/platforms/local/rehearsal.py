"""The rehearsal of a cloud stack on local machines: its stack file, its network, its differences from production."""

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cluster.catalog import IMAGES, SYSTEMS
from cluster.catalog.base_system import LOGIN_SHELLS, missing_interpreter
from cluster.catalog.fabrics import ROCE
from cluster.catalog.slurm_releases import CONF, NODE, PARTITION, ParameterTable
from cluster.config.cluster import ClusterConfig
from cluster.config.nodesets import Nodeset
from cluster.placed_scripts import placed_scripts
from cluster.platforms import registry
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
"""First parameters of lines of which a file has several."""
_ASSIGNMENT = re.compile(r'([^\s=]+)=("[^"]*"|\S*)')


@dataclass(frozen=True, kw_only=True)
class SettingDifference:
    """A setting that differs from production."""

    file: str
    key: str
    """The line, by the keys of `lines`."""
    line: str
    """The line's beginning, with its name if a file has several such lines: `NodeName=a3mega-gpu-[0-3]`."""
    name: str
    production: str | None
    """The value in production; None if its line does not have the setting."""
    here: str | None
    """The value in the rehearsal; None if its line does not have the setting."""
    why: str

    def __str__(self) -> str:
        whose = "" if self.line.partition("=")[0] == self.name else f" of {self.line}"
        here = f"{self.name} not set" if self.here is None else f"{self.name}={self.here}"
        there = "where production has none" if self.production is None else f"where production has {self.production}"
        return f"{self.file}: {here}{whose}, {there}: {self.why}"


def differences(
    production: ClusterConfig, local: ClusterConfig, *, addresses: Mapping[str, str] | None = None
) -> list[SettingDifference]:
    """Return every setting that differs, in the files' order. `addresses` are production's, if its slurm.conf has any.

    An elastic nodeset that is static in the rehearsal is compared as a static one (see `stood_in`). There are no files
    of production to compare with where another program writes them.
    """
    if not _writes_slurms_files(production):
        return []
    there, here = render(comparable(production, local), addresses or None), render(local, plan(local).of)
    # The stack's rules in Lua are the same.
    files = [file for file in here if file.endswith(".conf")]
    return [row for file in files for row in _file_differences(file, lines(there[file]), lines(here[file]), local)]


def _writes_slurms_files(config: ClusterConfig) -> bool:
    return registry.get(config.platform).installs_slurm


def comparable(production: ClusterConfig, local: ClusterConfig) -> ClusterConfig:
    """Return the stack with each elastic nodeset static that is static in the rehearsal."""
    nodesets = {
        name: row
        if not row.elastic or local.nodesets[name].elastic
        else row.model_copy(update={"count": row.most, "idle": None})
        for name, row in production.nodesets.items()
    }
    return production.model_copy(update={"nodesets": nodesets})


def lines(text: str) -> dict[str, dict[str, str]]:
    """Return the lines of one of Slurm's files without comments: the settings of each line, by a unique key."""
    counts: Counter[str] = Counter()
    rows: dict[str, dict[str, str]] = {}
    for line in text.split("\n"):
        if line.startswith("#") or not line.strip():
            continue
        settings = dict(_ASSIGNMENT.findall(line))
        first = next(iter(settings))
        # By their position: fewer nodes have another name, but nodesets and partitions have the same order.
        rows[f"{first}/{counts[first]}" if first in _MANY else first] = settings
        counts[first] += 1
    return rows


def _file_differences(
    file: str, there: Mapping[str, Mapping[str, str]], here: Mapping[str, Mapping[str, str]], local: ClusterConfig
) -> Iterator[SettingDifference]:
    for key in dict.fromkeys([*there, *here]):
        ours, theirs = here.get(key, {}), there.get(key, {})
        first = next(iter(ours or theirs))
        line = f"{first}={(ours or theirs)[first]}" if key != first else first
        for name in dict.fromkeys([*theirs, *ours]):
            if ours.get(name) != theirs.get(name):
                yield SettingDifference(
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
    release, parameter = local.slurm_version, table.canonical(name)
    if parameter and release not in table.versions(parameter):
        return f"Slurm {release}, which local machines run, does not know it"
    return WHY.get(name, COUNT)


PRIVATE = ipaddress.IPv4Network("10.0.0.0/8")
FIRST = ipaddress.IPv4Address("10.78.0.0")
"""The first candidate. It comes after the network of Pulumi.dev.yaml, so that both can be up."""
USUAL = 20
"""Usual prefix length of a rehearsal's network, enough for 510 nodes in each of seven nodesets."""


def candidates(room: int) -> Iterator[str]:
    """Yield private networks of the usual size, or larger ones of the prefix length `room`, always in the same order;
    none if no private network is that large."""
    prefix = min(USUAL, room)
    if prefix < PRIVATE.prefixlen:
        return
    start = ipaddress.IPv4Network((FIRST, prefix), strict=False)
    first = int(start.network_address)
    for address in range(first, int(PRIVATE.broadcast_address), start.num_addresses):
        yield f"{ipaddress.IPv4Address(address)}/{prefix}"


def prefix(counts: Mapping[str, int], logins: int) -> int:
    """Return the longest prefix of a network for nodesets with so many nodes, 0 for a nodeset on the controller."""
    # A block's first and last address stay free; the first block has the network's own, the host and the controller.
    block = max(*(count + 2 for count in counts.values()), logins + 4, 1)
    bits = (block - 1).bit_length()
    while len(counts) >= BLOCKS and len(counts) > ((BLOCKS - 1) << (bits - _bits(block))):
        bits += 1
    return 32 - 3 - bits


def blocks(cidr: str, counts: Mapping[str, int]) -> dict[str, str]:
    """Return the blocks of addresses of nodesets by name; empty if each can have its eighth of the network."""
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
"""Default of the largest number of nodes of a nodeset: enough for jobs on several nodes, few enough for a laptop."""
BASE = "debian-13"
"""The image of local machines."""
FAULTS_RESUME_SECONDS, FAULTS_CHECK_SECONDS = 120, 10
"""ResumeTimeout and HealthCheckInterval of a day of faults. Local machines boot in a fraction of the first."""
MAIL = "/var/mail"
"""Local mailboxes are shared between controller and login machines, as everywhere on this platform."""
STAND_IN = "scripts/local/rxdm.sh"
"""The stand-in for rxdm, whose containers need GPUs and a download, which a rehearsal can't do."""
STAND_INS = {"name": "00-stand-ins", "file": "scripts/node/stand_ins.sh"}
"""A prolog before rxdm's own script, which installs stand-ins for the programs that the script calls."""
GIB = {"name": "00-gib", "file": "scripts/local/gib.sh"}
"""The stand-in for gIB, which images of A3 Ultra and A4 have: a prolog that writes the file of its settings."""
_NOT_REHEARSED = ("version", "join_seconds")
"""Keys of `slurm` that a rehearsal lacks: it runs the release of its image, and its machines boot in seconds."""
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
    """Return `hpc:cluster` of the stack's rehearsal.

    `nodes` is the count of each nodeset, which may exceed the stack's; default: the stack's, up to AT_MOST. `cidr` is
    the local network; default: the first one that is large enough. `real_prolog` keeps rxdm's own script, which must be
    a file. `elastic` keeps elastic nodesets, with all of their nodes or `nodes` of them; without it their nodes are
    static. `faults` shortens the timeout of machines that do not boot, and the interval of health checks.
    """
    given = config.model_dump(mode="json", exclude_unset=True)
    counts = _counts(config, nodes, elastic=elastic)
    cidr = cidr or next(candidates(room(config, nodes=nodes, elastic=elastic)), str(PRIVATE))
    presents = {"presents_as": config.image.base} if config.image.base in SYSTEMS else {}
    read_only = [bucket.mount for bucket in config.storage.buckets if bucket.read_only]
    own = {key: given[key] for key in ("groups", "users", "accounting") if given.get(key) is not None}
    prologs = _prologs(config, real_prolog=real_prolog)
    slurm = _slurm(given.get("slurm") or {}, prologs, topology=topology(config), real_prolog=real_prolog)
    return {
        "platform": "local",
        "name": config.name,
        **_only(given, "host_names"),
        "network": {"cidr": cidr},
        "storage": {"shared": shared(config), **({"read_only": read_only} if read_only else {})},
        "image": {"base": BASE, **presents},
        "controller": {"machine_type": config.controller.machine_type},
        "login": _only(given.get("login") or {}, "on", "count", "machine_type"),
        "nodesets": _nodesets(config, given["nodesets"], counts, blocks(cidr, counts), elastic=elastic),
        "partitions": {name: _partition(config, name, row, counts) for name, row in given["partitions"].items()},
        **_users(own),
        **_monitoring(given.get("monitoring")),
        "slurm": _with_short_times(slurm) if faults else slurm,
        "deletion_protection": False,
    }


def _users(own: Section) -> Section:
    """Return users without shells that local machines lack, since nobody could log in with these."""
    users = [
        {key: value for key, value in user.items() if key != "shell" or value in LOGIN_SHELLS}
        for user in own.get("users", ())
    ]
    return own | ({"users": users} if users else {})


def _monitoring(given: Section | None) -> Section:
    """Return the section of metrics and alerts without receivers and web access, which need a network."""
    if given is None:
        return {}
    kept = {key: value for key, value in given.items() if key not in ("ops_agent", "receivers", "machine", "web")}
    machine = {"machine": _only(given["machine"], "machine_type")} if given.get("machine") is not None else {}
    return {"monitoring": {**kept, **machine}}


def room(config: ClusterConfig, *, nodes: int | None = None, elastic: bool = False) -> int:
    """Return the longest prefix of a network with enough addresses for the rehearsal's machines."""
    own = monitoring_machine(config) is not None
    return prefix(_counts(config, nodes, elastic=elastic), own + (0 if config.login.on else config.login.count))


def shared(config: ClusterConfig) -> list[str]:
    """Return every directory that the stack's machines share, and the mailboxes. Machines have their own `/`."""
    mounts = registry.get(config.platform).places(config).mounts
    return list(dict.fromkeys([*targets(config), *(path for path in mounts if path != "/"), MAIL]))


def stood_in(
    config: ClusterConfig, *, nodes: int | None = None, real_prolog: bool = False, elastic: bool = False
) -> list[str]:
    """Return a line for each difference of a rehearsal from the stack outside of Slurm's files."""
    scripts = [script for _, script in placed_scripts(config)]
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
    platform = registry.get(config.platform)
    if not _writes_slurms_files(config):
        lines.append(
            f"Slurm's files: this program's; on {platform.title} an operator of Slurm writes them, from the same "
            "nodes, partitions and settings. That operator, Kubernetes and what else runs in pods are not there"
        )
    if "/" in platform.places(config).mounts:
        lines.append(f"/: machines share {', '.join(shared(config))}; on {platform.title} they share all of /")
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
        for name, url in {script.name: script.url for script in scripts if script.url}.items()
    ]
    lines += [
        f"script {name}: does nothing; it is {what}, which local machines lack"
        for name, what in {script.name: _missing_interpreter(script.text) for script in scripts}.items()
        if what
    ]
    return lines + [
        f"user {user.name}: /bin/bash in place of {user.shell}, which local machines lack"
        for user in config.users
        if user.shell not in LOGIN_SHELLS
    ]


def _counts(config: ClusterConfig, nodes: int | None, *, elastic: bool) -> dict[str, int]:
    """Return the number of machines of each nodeset, elastic nodes included; 0 for a nodeset on the controller."""

    def count(row: Nodeset) -> int:
        if row.on:
            return 0
        if nodes is not None:
            return nodes
        # Elastic nodes have machines only while jobs need them.
        return row.most if elastic and row.elastic else min(row.most, AT_MOST)

    return {name: count(row) for name, row in config.nodesets.items()}


def _static(row: Nodeset, count: int, *, elastic: bool) -> int:
    """Return the number of static nodes among so many nodes of a nodeset."""
    return min(row.static, AT_MOST, count) if elastic and row.elastic else count


def _nodesets(
    config: ClusterConfig,
    given: Mapping[str, Section],
    counts: Mapping[str, int],
    blocks: Mapping[str, str],
    *,
    elastic: bool,
) -> dict[str, Section]:
    sections: dict[str, Section] = {}
    for name, row in given.items():
        section = _only(row, "on", "machine_type", "gpus", "features", "node_conf", "scripts")
        if counts[name]:
            section |= {"count": counts[name]} | ({"addresses": blocks[name]} if name in blocks else {})
            if (spare := min(row.get("spare", 0), counts[name] - 1)) > 0:
                section |= {"spare": spare}
        static = _static(config.nodesets[name], counts[name], elastic=elastic)
        if static < counts[name]:
            section |= {"count": {"min": static, "max": counts[name]}, **_only(row, "idle", "capacity")}
        sections[name] = _with_absent_scripts(_supported(section, "node_conf", NODE))
    return sections


def _partition(config: ClusterConfig, name: str, given: Section, counts: Mapping[str, int]) -> Section:
    """Return a partition, whose limits of nodes are at most the number of its nodes."""
    section = _with_absent_scripts(_supported(given, "conf", PARTITION))
    nodes = sum(counts[nodeset] or 1 for nodeset in set(config.partitions[name].nodesets))
    for key in ("min_nodes", "max_nodes"):
        if section.get(key) is not None:
            section[key] = min(section[key], nodes)
    return section


def _prologs(config: ClusterConfig, *, real_prolog: bool) -> list[Section]:
    """Return the prologs with stand-ins, which run before those of the stack."""
    gib = any(nodeset_type(config, section).family.fabric is ROCE for section in config.nodesets.values())
    return [GIB] * gib + [STAND_INS] * (real_prolog and config.slurm.rxdm is not None)


def _slurm(given: Section, prologs: list[Section], *, topology: str, real_prolog: bool) -> Section:
    kept = {key: value for key, value in given.items() if key not in _NOT_REHEARSED}
    section = _with_absent_scripts(_supported(kept, "extra", CONF))
    if section.get("job_account_gather") == "cgroup":
        # Machines of some hosts can't read cgroup controllers; /proc can be read everywhere.
        del section["job_account_gather"]
    if topology == "places":
        section["topology"] = topology  # only the cloud's platform has this default
    if prologs:
        section["scripts"] = [*prologs, *(section.get("scripts") or [])]
    if section.get("rxdm") and not real_prolog:
        section["rxdm"] = {"partitions": section["rxdm"]["partitions"], "file": STAND_IN}
    return section


def _with_short_times(given: Section) -> Section:
    checks = given.get("health")
    health = {} if checks is None else {"health": {**checks, "interval_seconds": FAULTS_CHECK_SECONDS}}
    return {**given, **health, "extra": {**(given.get("extra") or {}), "ResumeTimeout": FAULTS_RESUME_SECONDS}}


def _supported(section: Section, key: str, table: ParameterTable) -> Section:
    """Return the section without parameters that the local release of Slurm lacks."""
    if not section.get(key):
        return dict(section)
    release = IMAGES[BASE].slurm_versions[0]
    kept = {
        name: value for name, value in section[key].items() if release in table.versions(table.canonical(name) or name)
    }
    return {**section, key: kept}


def _with_absent_scripts(section: Section) -> Section:
    """Return the section with scripts that do nothing for those that would be downloaded or lack an interpreter."""
    if not section.get("scripts"):
        return section
    scripts = []
    for script in section["scripts"]:
        absent = script.get("url") or _missing_interpreter(script.get("text"))
        scripts.append({**_only(script, "name", "on"), "text": _ABSENT.format(what=absent)} if absent else script)
    return {**section, "scripts": scripts}


def _missing_interpreter(text: str | None) -> str:
    """Return a description of a script whose interpreter local machines lack; empty for any other script."""
    missing = missing_interpreter(text) if text else None
    return f"a script for {missing!a}" if missing else ""


def _only(section: Mapping[str, Any], *keys: str) -> Section:
    return {key: section[key] for key in keys if section.get(key) is not None}
