"""The local stack that runs the pods of a Slurm cluster: the same host names, nodes and partitions. A pure function."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from cluster.catalog import MACHINE_TYPES
from cluster.config.cluster import ClusterConfig
from cluster.config.fields import MEMBER, patterns
from cluster.config.partitions import Partition
from cluster.config.section import Slurm, metadata, slurm_fields
from cluster.findings import ROOT, ConfigError, Location
from cluster.load import parse
from lab.soperator.pods import LOGIN
from lab.soperator.wanted import Wanted, Workers

BASE = "debian-13"
"""What machines run: its Slurm is the newest that local machines can have."""
SHARED = ("/home", "/opt/apps", "/var/mail")
"""What machines share of the jail, besides accounts; the rest of it is each machine's own."""
_UNKNOWN_TYPE = "local-2c"
"""Machine type of a nodeset whose nodes the catalog does not have."""
_SIZES = {"cpus": "CPUs", "sockets": "Sockets", "corespersocket": "CoresPerSocket", "threadspercore": "ThreadsPerCore"}
_MEBIBYTES = {"Ki": 1 / 1024, "Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_EVERYWHERE = frozenset({"state"})
"""Parameters of partitions that local stacks have anyway."""
_TRIES = 50

Section = dict[str, Any]


def section(wanted: Wanted, pods: Mapping[str, str], *, cidr: str) -> tuple[Section, list[str]]:
    """`hpc:cluster` of the stack, and what of the SlurmCluster it can't have, in words.

    `pods` are the pods that have a node, with the machine type of it (or nothing).
    """
    nodesets = {worker.name: _nodeset(worker, pods) for worker in wanted.workers}
    found: Section = {
        "platform": "local",
        "name": wanted.name,
        "host_names": "pods",
        "network": {"cidr": cidr},
        "storage": {"shared": [*SHARED, *(mount for mount in wanted.mounts if mount not in SHARED)]},
        "image": {"base": BASE},
        "login": {"count": _consecutive(pods, LOGIN, wanted.login)},
        "nodesets": nodesets,
        "partitions": _partitions(wanted, list(nodesets)),
        "slurm": {},
        "deletion_protection": False,
    }
    for name, value in _lines(wanted.custom):
        _set(found, name, value)
    return found, list(_fitted(found))


def _nodeset(workers: Workers, pods: Mapping[str, str]) -> Section:
    words = {name.lower(): value for name, value in _words(workers.settings)}
    if "socketsperboard" in words:
        words["sockets"] = str(int(words["socketsperboard"]) * int(words.get("boards", 1)))
    conf = {written: int(words[key]) for key, written in _SIZES.items() if key in words}
    memory = _mebibytes(workers.memory)
    if memory:
        conf["RealMemory"] = memory
    kind = pods.get(f"{workers.name}-0", "")
    return {
        "count": _consecutive(pods, workers.name, workers.count),
        "machine_type": kind if kind in MACHINE_TYPES else _UNKNOWN_TYPE,
        **({"features": list(workers.features)} if workers.features else {}),
        **({"node_conf": conf} if conf else {}),
    }


def _consecutive(pods: Mapping[str, str], name: str, count: int) -> int:
    """Return how many of a kind can be started: counts change at the end."""
    return next((index for index in range(count) if f"{name}-{index}" not in pods), count)


def _partitions(wanted: Wanted, nodesets: list[str]) -> dict[str, Section]:
    found = {name: _partition(text, nodesets) for name, text in wanted.partitions}
    kept = {name: one for name, one in found.items() if one["nodesets"]}
    defaults = [name for name, one in kept.items() if one.get("default")]
    for name, one in kept.items():
        one["default"] = name == (defaults or list(kept))[0]
    return kept


def _partition(text: str, nodesets: list[str]) -> Section:
    owned = {setting.parameter.lower(): (key, setting.written) for key, setting in slurm_fields(Partition)}
    section: Section = {"nodesets": nodesets}
    conf: dict[str, str] = {}
    for name, value in _words(text):
        key, written = owned.get(name.lower(), ("", {}))
        if key == "nodesets":
            section[key] = (
                nodesets if value.upper() == "ALL" else [word for word in value.split(",") if word in nodesets]
            )
        elif not key:
            conf.update({} if name.lower() in _EVERYWHERE else {name: value})
        elif written:
            section[key] = value.upper() in map(str, written.values())
        elif key.startswith("allow_"):
            section[key] = value.split(",")
        else:
            section[key] = int(value) if value.isdecimal() else value
    return {**section, **({"conf": conf} if conf else {})}


@cache
def _owners() -> Mapping[str, tuple[tuple[str, ...], Slurm, bool]]:
    """The fields that set a parameter of slurm.conf, by the parameter in lower case, and whether they are lists."""
    return {
        setting.parameter.lower(): (tuple(pattern.split(".")), setting, isinstance(_default(info), tuple))
        for pattern, info in patterns(ClusterConfig)
        if MEMBER not in pattern and (setting := metadata(info, Slurm))
    }


def _default(info: Any) -> Any:  # noqa: ANN401 - a field may be anything
    return info.get_default(call_default_factory=True, validated_data={})


def _set(found: Section, name: str, value: str) -> None:
    """Take over a line of slurm.conf: as the field that sets the parameter, else as a parameter more."""
    if name.lower() not in _owners():
        found["slurm"].setdefault("extra", {})[name] = value
        return
    (*above, last), setting, is_list = _owners()[name.lower()]
    inner = found
    for step in above:
        inner = inner.setdefault(step, {})
    meaning = {str(written): given for given, written in setting.written.items()}
    plain = value.removeprefix(setting.form.partition("{}")[0])
    if is_list:
        inner[last] = plain.split(",")
    else:
        inner[last] = meaning.get(value, int(plain) if plain.isdecimal() else plain)


def _words(text: str) -> Iterator[tuple[str, str]]:
    """`Name=value` words, as lines of slurm.conf have them."""
    for word in text.split():
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _lines(text: str) -> Iterator[tuple[str, str]]:
    """`Name=value` lines, as slurm.conf has them."""
    for line in text.splitlines():
        name, equals, value = line.partition("#")[0].strip().partition("=")
        if equals and value.strip():
            yield name.strip(), value.strip()


def _mebibytes(quantity: str) -> int:
    found = re.fullmatch("([0-9]+)([KMGT]i)", quantity)
    return int(int(found[1]) * _MEBIBYTES[found[2]]) if found else 0


def _fitted(found: Section) -> Iterator[str]:
    """Take out what local machines can't have, until the rest can be brought up; yields each in words."""
    for _ in range(_TRIES):
        try:
            parse({ROOT: found})
        except ConfigError as error:
            removed = [
                finding for finding in error.findings if isinstance(finding.at, tuple) and _remove(found, finding.at)
            ]
            if not removed:
                raise
            yield from (f"{finding.where} = {finding.given} is left out: {finding.allowed}" for finding in removed)
        else:
            return


def _remove(found: Section, at: Location) -> bool:
    """Remove what is at a place, if something is; a place in a list stands for the list."""
    *above, last = at
    inner: Any = found
    for position, step in enumerate(above):
        if isinstance(inner, list):
            return _remove(found, tuple(at[: position - 1]))
        if not isinstance(inner, dict) or step not in inner:
            return False
        inner = inner[step]
    if isinstance(inner, list):
        return _remove(found, tuple(above))
    return isinstance(inner, dict) and inner.pop(last, None) is not None
