"""Checks of Slurm's settings: parameters that the release has, and that no other field sets."""

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from functools import reduce
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from cluster import platform_interface, roster
from cluster.catalog import IMAGES
from cluster.catalog.bounds import COUNT, NUMBERS
from cluster.catalog.slurm_releases import (
    CONF,
    NODE,
    PARTITION,
    SUPPORT_ENDS,
    SUPPORT_NOTICE,
    ParameterTable,
    takes_over,
)
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import conf_fields
from cluster.config.nodesets import Nodeset
from cluster.config.partitions import Partition
from cluster.config.section import Section, Slurm, slurm_fields
from cluster.findings import Finding, Level, Location, listing, nearest, show
from cluster.slurm import paths

_WHOLE = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)[kK]?")
_LONGEST_NUMBER = 20
APART = {"NoHold": ("Contain", "X11", "RunInJob"), "Serial": ("RunInJob",)}
"""Flags of PrologFlags, each with those that it excludes (slurm.conf(5); RunInJob implies Contain)."""
RUN_BY_SLURMCTLD = """
    EpilogSlurmctld PluginDir PrologSlurmctld ResumeFailProgram ResumeProgram ResvEpilog ResvProlog
    SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SuspendProgram
""".split()
"""Parameters with paths of programs that slurmctld runs, or plugins that it loads (slurm.conf(5))."""
NOT_EXECUTED = (
    *"/opt/apps /home /root /run/user /var/mail /tmp /var/tmp /dev/shm /etc/hpc".split(),
    *paths.KEPT,
    paths.LOGS,
)
"""Folders in which slurmctld's unit may execute nothing (scripts/node/slurm/slurmctld.py)."""


def find_errors(config: ClusterConfig) -> Iterator[Finding]:
    version = config.slurm_version
    yield from _settings(("slurm", "extra"), config.slurm.extra, CONF, owned_conf(type(config)), version)
    for name, section in config.nodesets.items():
        at = ("nodesets", name, "node_conf")
        yield from _settings(at, section.node_conf, NODE, owned_node(type(section)), version)
        yield from _node_sizes(config, name)
    for name, part in config.partitions.items():
        yield from _settings(("partitions", name, "conf"), part.conf, PARTITION, owned_partition(type(part)), version)
    for at, slurm, value, table in _slurm_fields(config):
        yield from _unsupported(at, slurm, value, table, version)
    yield from _prolog_flags(config)
    yield from _pam_slurm_adopt(config)
    yield from _programs(config)
    yield from _slurmrestd(config)
    yield from _mpi_default(config)
    timers = config.slurm.timers
    if timers.unkillable_step < 5 * timers.message:
        yield Finding(
            id="timer-unkillable-step",
            at=("slurm", "timers", "unkillable_step"),
            given=str(timers.unkillable_step),
            allowed=f"at least 5 times timers.message ({timers.message}), that is {5 * timers.message}",
            todo="raise it or lower timers.message: Slurm would drain nodes that are only slow to answer",
        )


def _mpi_default(config: ClusterConfig) -> Iterator[Finding]:
    """Check that the image has srun's default MPI plugin: without it, every job step would fail."""
    release, base = config.slurm_version, config.image.base
    if config.slurm.mpi_default == "pmix" and release in IMAGES[base].without_pmix:
        yield Finding(
            id="mpi-default",
            at=("slurm", "mpi_default"),
            given="pmix",
            allowed=f"pmi2 or none: the packages of Slurm {release} on {base} have no plugin for PMIx",
            todo="write `mpi_default: pmi2`",
        )


SERIES = 260
"""Time series of a machine, besides one for each hardware thread: those of node_exporter and Slurm."""


def find_warnings(config: ClusterConfig) -> Iterator[Finding]:
    yield from end_of_support(config, datetime.now(timezone.utc).date())
    yield from _monitoring(config)


def _monitoring(config: ClusterConfig) -> Iterator[Finding]:
    """Yield the disk space and the cost of metrics, which a preview prints, and warn of an open Prometheus."""
    section = config.monitoring
    if section is None:
        return
    specs = (*roster.machines(config), *roster.elastic_machines(config))
    # A sample takes 1 to 2 bytes (prometheus.io/docs/prometheus/latest/storage).
    series = sum(SERIES + spec.machine_type.cpus for spec in specs)
    gigabytes = section.retention_days * 86_400 / section.interval_seconds * series * 1.5 / 1e9
    yield Finding(
        id="monitoring-disk",
        level=Level.INFO,
        at=("monitoring",),
        what=f"Prometheus keeps metrics of {len(specs):,} machines for {section.retention_days} days, about "
        f"{max(gigabytes, 0.1):,.1f} GB, and at most {section.disk_gb:,} GB of disk"
        + (f" on {roster.monitoring_name(config)}" if section.machine else ""),
        todo="nothing" if gigabytes < section.disk_gb else "raise disk_gb: there is no room for all of these days",
    )
    if section.ops_agent:
        samples = series * 86_400 / section.interval_seconds
        yield Finding(
            id="monitoring-samples",
            level=Level.INFO,
            at=("monitoring", "ops_agent"),
            what=f"the Ops Agent sends about {max(samples / 1e6, 0.1):,.1f} million samples a day to Managed Service "
            "for Prometheus, which bills by the sample",
            todo="raise interval_seconds for fewer"
            + (f", and have the agent in the image {config.image.name}" if config.image.name else ""),
        )
    for number, cidr in enumerate(section.web.cidrs if section.web else ()):
        if cidr.endswith("/0"):
            yield Finding(
                id="monitoring-open",
                level=Level.WARNING,
                at=("monitoring", "web", "cidrs", number),
                what=f"{cidr} lets everybody who reaches the machine's address try passwords of Prometheus",
                todo="name the networks that Grafana and people come from",
            )


def end_of_support(config: ClusterConfig, today: date) -> Iterator[Finding]:
    """Warn of a release that SchedMD does not support any more. For packages that a distribution maintains, the finding
    is no warning."""
    release, image = config.slurm_version, IMAGES[config.image.base]
    if release not in SUPPORT_ENDS:
        return
    end = date.fromisoformat(SUPPORT_ENDS[release])
    if today < end - timedelta(days=SUPPORT_NOTICE):
        return
    if not image.built:
        # A cluster on this host is a rehearsal or a personal one, where this would be in each preview.
        if not platform_interface.get(config.platform).on_this_host:
            yield Finding(
                id="slurm-end-of-support",
                level=Level.INFO,
                at=("slurm", "version"),
                what=f"SchedMD mends Slurm {release} until {end}; the packages of {config.image.base} are mended by "
                f"{image.mended}",
                todo="nothing, or choose an image.base on which this program builds a later release",
            )
        return
    later = [new for new in image.slurm_versions if new > release and takes_over(new, release)]
    ends = "ended" if today > end else "ends"
    yield Finding(
        id="slurm-end-of-support",
        level=Level.WARNING,
        at=("slurm", "version"),
        what=f"SchedMD's support for Slurm {release} {ends} on {end}: faults and holes in it are not mended after that",
        todo="update this program" if not later else f"go to Slurm {max(later)}; `preview` says what the upgrade does",
    )


def _slurm_fields(config: ClusterConfig) -> Iterator[tuple[Location, Slurm, Any, ParameterTable]]:
    """Yield place, parameter, value and the line's table of every field that sets a parameter of slurm.conf."""
    for path, slurm in conf_fields(type(config)):
        at = tuple(path.split("."))
        yield at, slurm, reduce(getattr, at, config), CONF
    for key, sections, table in (("nodesets", config.nodesets, NODE), ("partitions", config.partitions, PARTITION)):
        for name, section in sections.items():
            for field, slurm in slurm_fields(type(section)):
                yield (key, name, field), slurm, getattr(section, field), table


def _unsupported(at: Location, slurm: Slurm, value: Any, table: ParameterTable, version: str) -> Iterator[Finding]:  # noqa: ANN401
    """Check that the release has a field's parameter and its values. Daemons do not start with an unknown one."""
    if slurm.value(value) is None:
        return
    words = enumerate(value) if slurm.values else ()
    values = [((*at, position), word, slurm.values.versions(word)) for position, word in words if slurm.values]
    for place, name, releases in ((at, at[-1], table.versions(slurm.parameter)), *values):
        if version not in releases:
            yield Finding(
                id="field-release",
                at=place,
                given=str(name),
                allowed=f"what Slurm {version} has; {name} is in {listing(releases)}",
                todo="remove it, or use an image with such a release",
            )


def _prolog_flags(config: ClusterConfig) -> Iterator[Finding]:
    """Check that no flags exclude each other. slurmctld and slurmd would not start with them."""
    flags = config.slurm.prolog_flags
    for position, flag in enumerate(flags):
        for other in APART.get(flag, ()):
            if other in flags:
                yield Finding(
                    id="prolog-flags-exclusive",
                    at=("slurm", "prolog_flags", position),
                    given=f"{flag} and {other}",
                    allowed="one of the two: slurm.conf(5) rules out both together",
                    todo=f"remove {flag} or {other}",
                )


def _pam_slurm_adopt(config: ClusterConfig) -> Iterator[Finding]:
    """Check that the image has pam_slurm_adopt, and that jobs have the containers into which it puts log-ins."""
    at = ("slurm", "pam_slurm_adopt")
    if not config.slurm.pam_slurm_adopt:
        return
    yield from _missing_program(config, at, {name for name, image in IMAGES.items() if image.pam_slurm_adopt})
    if not {"Contain", "X11", "RunInJob"} & set(config.slurm.prolog_flags):
        yield Finding(
            id="pam-slurm-adopt-contain",
            at=at,
            given="true",
            allowed="true with Contain in slurm.prolog_flags: jobs have a container on their nodes only then",
            todo="add Contain to slurm.prolog_flags",
        )


def _programs(config: ClusterConfig) -> Iterator[Finding]:
    """Check that no program of slurmctld is in a folder where its unit may execute nothing. slurmctld would run without
    the program, or not start."""
    if not platform_interface.get(config.platform).installs_slurm:
        return
    for key, value in config.slurm.extra.items():
        for path in re.split("[,:]", str(value)) if CONF.canonical(key) in RUN_BY_SLURMCTLD else ():
            if any(PurePosixPath(normpath(path)).is_relative_to(folder) for folder in NOT_EXECUTED):
                yield Finding(
                    id="slurmctld-program",
                    at=("slurm", "extra", key),
                    given=path,
                    allowed=f"a path outside of {listing(NOT_EXECUTED)}: slurmctld's unit executes nothing there",
                    todo="put it on the controller's own disk, e.g. into /usr/local/sbin, and write that path",
                )


def _missing_program(config: ClusterConfig, at: tuple[str, str], images: set[str]) -> Iterator[Finding]:
    """Check that the stack's image is one of those with a program; the setting has the name of the program."""
    if config.image.base not in images:
        own = platform_interface.get(config.platform).images
        suitable = [name for name in IMAGES if name in images and name in own]
        yield Finding(
            id="program-missing",
            at=at,
            given="true",
            allowed=f"false on {config.image.base}, whose machines do not have {at[-1]}",
            todo=f"leave it out, or use an image that has it: {listing(suitable)}",
        )


def _slurmrestd(config: ClusterConfig) -> Iterator[Finding]:
    at = ("slurm", "slurmrestd")
    if not config.slurm.slurmrestd:
        return
    yield from _missing_program(config, at, {name for name, image in IMAGES.items() if image.slurmrestd})
    for name in config.slurm.extra:
        if name.lower() in ("authalttypes", "authaltparameters"):
            yield Finding(
                id="slurmrestd-parameter",
                at=("slurm", "extra", name),
                given=name,
                allowed="other parameters, where slurm.slurmrestd is true: it sets this one",
                todo="remove it, or slurm.slurmrestd",
            )


def _node_sizes(config: ClusterConfig, name: str) -> Iterator[Finding]:
    size = roster.sizes(config, config.nodesets[name])
    cores = size.sockets * size.cores
    if size.cpus not in (cores, cores * size.threads):
        yield Finding(
            id="node-cpus",
            at=("nodesets", name, "node_conf"),
            given=f"{size.cpus} CPUs on {size.sockets} sockets of {size.cores} cores with {size.threads} threads",
            allowed=f"{cores * size.threads} CPUs, one for each thread, or {cores}, one for each core",
            todo="leave CPUs out: it follows from the others",
        )
    if size.reserved >= size.memory:
        yield Finding(
            id="node-reserved-memory",
            at=("nodesets", name, "node_conf"),
            given=f"MemSpecLimit {size.reserved} of {size.memory} MiB",
            allowed="a MemSpecLimit below RealMemory, so that jobs have memory",
            todo="lower MemSpecLimit",
        )


def _settings(
    at: Location, values: Mapping[str, object], table: ParameterTable, owned: Mapping[str, str], version: str
) -> Iterator[Finding]:
    """Check free settings: names, releases and values, and that no field sets the same parameter."""
    names: set[str] = set()
    for key in values:
        name = table.canonical(key)
        if name is None:
            meant = nearest(key, [*table.names(version), *owned])
            yield Finding(
                id="parameter-unknown",
                at=(*at, key),
                given=key,
                allowed=f"a parameter that Slurm {version} reads here, as its manual lists them",
                todo=f"write {meant}" if meant else "look the name up in the manual (man 5 slurm.conf), or remove it",
            )
        elif name in owned:
            yield Finding(
                id="parameter-owned",
                at=(*at, key),
                given=show(values[key]),
                allowed=f"any parameter but {name}, which is set elsewhere",
                todo=owned[name],
            )
        elif version not in table.versions(name):
            yield Finding(
                id="parameter-release",
                at=(*at, key),
                given=key,
                allowed=f"a parameter that Slurm {version} has; {name} is in {listing(table.versions(name))}",
                todo="remove it, or use an image with such a release",
            )
        elif name in names:
            yield Finding(
                id="parameter-twice", at=(*at, key), given=key, allowed=f"{name} once", todo="remove the second one"
            )
        elif error := _number_error(name, values[key]):
            allowed, todo = error
            yield Finding(id="parameter-number", at=(*at, key), given=show(values[key]), allowed=allowed, todo=todo)
        names.add(name or key)


def _number_error(name: str, value: object) -> tuple[str, str] | None:
    """Return `allowed` and `todo` if a value is not a number that the parameter can have."""
    if name not in NUMBERS:
        fits = isinstance(value, bool | str) or (isinstance(value, int) and abs(value) <= COUNT)
        return None if fits else (f"-{COUNT} to {COUNT}", "correct it")
    most, text = NUMBERS[name], str(value).strip()
    if isinstance(value, str) and text.upper() in ("INFINITE", "UNLIMITED"):
        return None
    match = None if isinstance(value, bool) else _WHOLE.fullmatch(text)
    if match and len(text) <= _LONGEST_NUMBER and int(match[1], 16 if match[1][:2].lower() == "0x" else 10) <= most:
        return None
    return (
        f"for {name} a whole number, 0 to {most}, or INFINITE",
        "correct it: slurmctld would not start, or misread it",
    )


_BUILT_ON = "remove it: the machines, their set-up and the commands of this program are built on its value"
_FOLLOWS = "remove it: it follows from the machines of the configuration"
_DAEMONS = """
    AccountingStorageHost AccountingStoragePort AccountingStorageType AuthType CredType MailProg
    ProctrackType SelectType SlurmUser SlurmctldAddr SlurmctldLogFile SlurmctldParameters SlurmctldPidFile
    SlurmctldPort SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdPort SlurmdSpoolDir SlurmdUser
    StateSaveLocation TaskPlugin TopologyPlugin
""".split()
_CONF = {
    **dict.fromkeys(_DAEMONS, _BUILT_ON),
    **dict.fromkeys(("AccountingStorageTRES", "GresTypes"), _FOLLOWS),
    "AccountingStoragePass": "remove it: slurmdbd alone holds a password, and it is generated",
}
_NODE = {
    **dict.fromkeys(("NodeAddr", "NodeHostname", "Port", "State", "Reason"), _BUILT_ON),
    "Gres": "remove it: GPUs come from the machine type, or from `gpus:` of the nodeset",
}


def owned_conf(model: type[Section] = ClusterConfig) -> dict[str, str]:
    """Return the parameters that `slurm.extra` may not set, and what to do instead."""
    fields = {slurm.parameter: f"set `{path}` instead" for path, slurm in conf_fields(model) if not slurm.replaceable}
    return _CONF | fields


def owned_node(model: type[Section] = Nodeset) -> dict[str, str]:
    """Return the parameters that `nodesets.*.node_conf` may not set, and what to do instead."""
    return _NODE | {slurm.parameter: f"set `{key}:` of the nodeset instead" for key, slurm in slurm_fields(model)}


def owned_partition(model: type[Section] = Partition) -> dict[str, str]:
    """Return the parameters that `partitions.*.conf` may not set, and what to do instead."""
    fields = {slurm.parameter: f"set `{key}:` of the partition instead" for key, slurm in slurm_fields(model)}
    return fields | {"State": _BUILT_ON}
