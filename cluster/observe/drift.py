"""Differences between a cluster as its stack describes it and as it was observed: pure functions."""

import base64
import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from cluster.config.accounting import Qos
from cluster.config.section import slurm_fields
from cluster.observe.observation import NOTHING, ClusterObservation, Difference, MachineObservation, Mends
from cluster.slurm.paths import CONTROLLER_FILES
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import same_limit, seconds_of


@dataclass(frozen=True, kw_only=True)
class ExpectedCluster:
    """The cluster as its stack has it, in the form in which machines report what they have."""

    files: Mapping[str, str]
    """Slurm's files on the controller by name; slurmdbd.conf with a mark in place of its password."""
    users: Sequence[Mapping[str, Any]]
    """Unix users, as scripts/node/system/users.py takes them."""
    groups: Sequence[Mapping[str, Any]]
    accounting: Mapping[str, Any]
    """Accounts, users and QOS for scripts/node/accounting/accounts.py."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The tree of prologs and epilogs that there must be, as cluster.slurm.script_tree.expected returns it."""
    root_keys: Sequence[str] = ()
    """Hashes of the keys that the stack lets log in as root, besides the controller's own to the nodes."""
    nodes: Sequence[str]
    """Names in Slurm."""
    setup: str
    """Version of the set-up that this program brings."""
    setup_of_stack: str | None
    """Version that the last `up` brought; None where that is not known."""


def differences(wanted: ExpectedCluster, cluster: ClusterObservation) -> list[Difference]:
    """Every difference, one for the same thing on many machines; empty when nothing differs."""
    return _together(
        [
            *_gone(cluster),
            *_setups(wanted, cluster),
            *_cluster_states(cluster),
            *_daemons(cluster),
            *_controller_files(wanted, cluster),
            *_running_values(wanted, cluster),
            *_partitions(wanted, cluster),
            *_nodes(wanted, cluster),
            *_copies(wanted, cluster),
            *script_differences(wanted, cluster),
            *_people(wanted, cluster),
            *_keys(wanted, cluster),
            *_guarded(wanted, cluster),
            *_accounting(wanted, cluster),
        ]
    )


def unread_parts(cluster: ClusterObservation) -> list[str]:
    """List what could not be compared, and why: an empty list of differences says nothing about it."""
    found: list[str] = []
    for machine in cluster.machines:
        found += [f"{machine.name}: all of it: {machine.why}"] if machine.late else []
        names = ("unix", "keys", "files", "guarded")
        found += [f"{machine.name}: {name}: {why}" for name in names if (why := machine.error(name))]
    for group, names in (("slurm", ("config", "partitions", "nodes")), ("accounting", ("associations", "qos"))):
        found += [
            f"{cluster.controller.name}: {group} {name}: {why}"
            for name in names
            if (why := cluster.controller.error(group, name))
        ]
    return found


def _together(found: Iterable[Difference]) -> list[Difference]:
    groups: dict[Difference, tuple[str, ...]] = {}
    for difference in found:
        key = replace(difference, where=())
        groups[key] = (*groups.get(key, ()), *difference.where)
    return [replace(difference, where=where) for difference, where in groups.items()]


def _on(
    machine: MachineObservation, kind: str, what: str, stack: str, there: str, *, mends: Mends = "mend"
) -> Difference:
    return Difference(id=kind, where=(machine.name,), what=what, stack=stack, there=there, mends=mends)


def _gone(cluster: ClusterObservation) -> Iterator[Difference]:
    """Machines that do not answer: nothing can be said of what is on them."""
    for machine in cluster.machines:
        if not machine.reached and not machine.late:
            yield _on(machine, "machine-gone", "the machine", "running", f"no answer: {machine.why}", mends="up")


def _daemons(cluster: ClusterObservation) -> Iterator[Difference]:
    for machine in cluster.machines:
        for name, unit in machine.daemons.items():
            if unit["state"] not in ("active", "reloading"):
                text = unit["state"] if unit["state"] == unit["sub"] else f"{unit['state']} ({unit['sub']})"
                yield _on(machine, "daemon-stopped", name, "running", text)


def starting_machines(cluster: ClusterObservation) -> list[str]:
    """Machines with a daemon that is starting: a node that joins again has hpc-node, for some seconds."""
    return [
        machine.name
        for machine in cluster.machines
        if any((unit["state"], unit["sub"]) == ("activating", "start") for unit in machine.daemons.values())
    ]


def _setups(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Machines whose set-up is not the one that the stack was made with, or that this program would bring."""
    stack = wanted.setup_of_stack
    if stack and stack != wanted.setup:
        # Not drift of the cluster's, but nothing can be mended with another set-up than its own.
        brings, brought = f"{wanted.setup}, which this program brings", f"{stack}, which the last `up` brought"
        yield _on(cluster.controller, "setup-old", "version of the set-up", brings, brought, mends="up")
    for machine in cluster.machines:
        if machine.reached and not machine.has_facts:
            kind, mends = ("setup-old", "up") if machine.old else ("setup-damaged", "mend")
            yield _on(machine, kind, "the set-up", wanted.setup, machine.why, mends=mends)
        there = machine.part("setup")
        if there and there != (stack or wanted.setup):
            yield _on(machine, "setup-changed", "files of the set-up", stack or wanted.setup, there)


def _cluster_states(cluster: ClusterObservation) -> Iterator[Difference]:
    for machine in cluster.machines:
        if why := machine.part("cluster_state", "damaged"):
            stack = "the config version, and a report of every machine"
            yield _on(machine, "cluster-state-damaged", "the cluster state", stack, why)


_TOPOLOGY = "topology.conf"


def _controller_files(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    texts = cluster.controller.part("files", "texts")
    if texts is None:
        return
    for name, text in sorted(wanted.files.items()):
        if name not in texts:
            yield _on(cluster.controller, "file-missing", name, "a file", "no such file")
            continue
        for number, said, found in _lines(text, texts[name]):
            yield _on(cluster.controller, "file-changed", f"{name}, line {number}", said, found)
    # From the places of nodes: the right one is what slurmctld was given.
    etc, applied = ((cluster.controller.part("files", side) or {}).get(_TOPOLOGY) for side in ("etc", "applied"))
    if applied and etc != applied:
        yield _on(cluster.controller, "file-changed", _TOPOLOGY, f"hash {applied}", f"hash {etc}" if etc else NOTHING)


def _lines(wanted: str, found: str) -> Iterator[tuple[int, str, str]]:
    """Number (in the wanted text, or where it would stand), wanted and found line of each difference."""
    ours, theirs = (text.removesuffix("\n").split("\n") for text in (wanted, found))
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = zip_longest(ours[i:i_end], theirs[j:j_end], fillvalue=NOTHING)
            yield from ((i + offset + 1, said, there) for offset, (said, there) in enumerate(pairs))


def _copies(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Files that slurmd fetched, and the one that machines without it read, as far as they are other ones."""
    for machine in cluster.machines:
        there: Mapping[str, str] = machine.part("files", "cache") or {}
        title, names = "slurmd's copy of ", sorted(set(wanted.files) - CONTROLLER_FILES)
        if not {"controller", "node"} & set(machine.roles) and (etc := machine.part("files", "etc")) is not None:
            there, title, names = etc, "/etc/slurm/", ["slurm.conf"]
        elif "node" not in machine.roles or not there:
            continue
        for name in names:
            if there.get(name) != (right := hashlib.sha256(wanted.files[name].encode()).hexdigest()[:16]):
                found = f"hash {there[name]}" if name in there else "no such file"
                yield _on(machine, "copy-changed", f"{title}{name}", f"hash {right}", found)


_UNKNOWN = "slurmctld does not know it"
_LISTS = {"nodename", "nodeset", "partitionname", "slurmctldhost", "downnodes", "frontendname", "switchname", "include"}
"""Lines of slurm.conf that describe things instead of setting a value."""
_UNLIMITED = {"unlimited", "infinite", "none", "n/a", "(null)", "(null type)", ""}


def _running_values(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Parameters of slurm.conf that have another value in slurmctld."""
    config = cluster.slurm("config")
    if not config:
        return
    known = {name.lower(): (name, value) for name, value in config.items()}
    for line in wanted.files["slurm.conf"].split("\n"):
        key, equals, said = line.partition("=")
        name = key.strip().lower()
        if not equals or name.startswith("#") or name in _LISTS or name not in known:
            continue
        shown, value = known[name]
        if not is_same_value(said.strip(), value):
            yield _value(cluster, f"running value of {shown}", said.strip(), value)


def _partitions(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Partitions that are not there, are too many, or were changed with `scontrol update`."""
    found = cluster.slurm("partitions")
    if found is None:
        return
    lines = [line for line in wanted.files["slurm.conf"].split("\n") if line.startswith("PartitionName=")]
    rows = ({key: value for key, _, value in (word.partition("=") for word in line.split())} for line in lines)
    ours = {row["PartitionName"]: row for row in rows}
    # Not a partition, but what holds for all of them.
    ours.pop("DEFAULT", None)
    for name, row in ours.items():
        if name not in found:
            yield _value(cluster, f"partition {name}", "a partition", _UNKNOWN)
            continue
        there: Mapping[str, str] = {key.lower(): value for key, value in found[name].items()}
        for key, said in row.items():
            value = there.get(key.lower())
            if value is not None and key.lower() != "nodes" and not is_same_value(said, value):
                yield _value(cluster, f"partition {name}: {key}", said, value)
        if there.get("state", "UP").upper() != row.get("State", "UP").upper() and "State" not in row:
            yield _value(cluster, f"partition {name}: State", "UP", there["state"])
    for name in found.keys() - ours.keys():
        yield _value(cluster, f"partition {name}", "no such partition", "a partition")


def _nodes(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    found = cluster.slurm("nodes")
    if found is None:
        return
    for name in wanted.nodes:
        if name not in found:
            yield Difference(id="node-unknown", where=(name,), what=f"node {name}", stack="a node", there=_UNKNOWN)
    for name in sorted(found.keys() - set(wanted.nodes)):
        there = "slurmctld has it"
        yield Difference(id="node-unknown", where=(name,), what=f"node {name}", stack="no such node", there=there)


def _value(cluster: ClusterObservation, what: str, stack: str, there: str) -> Difference:
    return _on(cluster.controller, "value-changed", what, stack, there)


def is_same_value(said: str, shown: str) -> bool:
    """Return whether Slurm shows for `said` what it shows here: it adds units, names and what a value implies."""
    ours, theirs = _plain(said), _plain(shown)
    if ours == theirs:
        return True
    if None not in (seconds_of(ours), seconds_of(theirs)):
        return seconds_of(ours) == seconds_of(theirs)
    if "[" in ours + theirs:
        try:
            return sorted(expand(ours)) == sorted(expand(theirs))
        except ValueError:
            return False
    # AccountingStorageTRES=gres/gpu is shown with what is always counted, PrologFlags=Contain with what it implies.
    return bool(ours) and "," in theirs and set(ours.split(",")) <= set(theirs.split(","))


def _plain(text: str) -> str:
    value = text.strip().lower()
    if value in _UNLIMITED:
        return ""
    value = re.sub(r"\s+(sec|min|percent|nodes/min|mb)$", "", value)
    # slurm(64030): a user with its number.
    value = re.sub(r"\([0-9]+\)$", "", value)
    return re.sub(r"%$", "", value)


SCRIPT_TREE = "/opt/apps/adm/slurm"


def script_differences(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Every file and link of the tree that is gone or another one; what others put there is theirs."""
    found = cluster.controller.part("scripts")
    if found is None:
        return
    for path, said in wanted.scripts.items():
        there = found.get(path)
        if there is None:
            kind = "script-missing"
        elif (said and there != said) or there in ("changed", "not executable"):
            kind = "script-changed"
        else:
            continue
        shown = "no such file" if there is None else _link_or_hash(there)
        yield _on(cluster.controller, kind, f"{SCRIPT_TREE}/{path}", _link_or_hash(said) or "as it was staged", shown)


def _link_or_hash(text: str) -> str:
    return text if text.startswith("-> ") or len(text) != 64 else f"hash {text[:16]}"


def _people(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    for machine in cluster.machines:
        found = machine.part("unix")
        if found is None:
            continue
        for group in wanted.groups:
            name, right = group["name"], group["gid"]
            gid = found["groups"].get(name)
            if gid is None:
                yield _on(machine, "group-changed", f"group {name}", f"gid {right}", "no such group")
            elif gid != right:
                yield _on(machine, "group-changed", f"group {name}: gid", str(right), str(gid), mends="hand")
        for user in wanted.users:
            yield from _unix_user(machine, user, found["users"].get(user["name"]))
        for name in sorted(set(found["managed"].get("users", ())) - {user["name"] for user in wanted.users}):
            if name in found["users"]:
                yield _on(machine, "user-changed", f"user {name}", "no such user", "a user")


def _unix_user(
    machine: MachineObservation, user: Mapping[str, Any], found: Mapping[str, Any] | None
) -> Iterator[Difference]:
    name = user["name"]
    if found is None:
        yield _on(machine, "user-changed", f"user {name}", f"uid {user['uid']}", "no such user")
        return
    for key in ("uid", "gid", "groups", "shell"):
        said, there = (
            ", ".join(side[key]) or "none" if isinstance(side[key], list) else str(side[key]) for side in (user, found)
        )
        if said != there:
            # Files belong to a number: it is not changed behind anybody's back.
            what = f"user {name}: {key}"
            yield _on(machine, "user-changed", what, said, there, mends="hand" if key == "uid" else "mend")
    for key, default in (("sudo", False), ("containers", None)):
        # One without sudo reports no right to it.
        right = user.get(key, default)
        if right is not None and key in found and found[key] != right:
            yield _on(machine, "user-changed", f"user {name}: {key}", str(right).lower(), str(found[key]).lower())


def _keys(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """SSH keys that the stack gives and that are not what is there; those that users added are theirs."""
    for machine in cluster.machines:
        found = machine.part("keys") or {}
        for user in wanted.users:
            there = found.get(user["name"])
            if there is not None and there != keys_digest(user["keys"]):
                text = f"user {user['name']}: authorized_keys"
                what = there if " " in there else "others"  # no hash: what kept them from being read
                yield _on(machine, "keys-changed", text, f"{len(user['keys'])} of the stack's", what)


def keys_digest(lines: list[str]) -> str:
    """The hash that scripts/node/collect.py reports."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def _guarded(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    own = {*wanted.root_keys, cluster.controller.part("guarded", "cluster_key")}
    for machine in cluster.machines:
        found = machine.part("guarded")
        if found is None:
            continue
        for path, row in found["modes"].items():
            yield _on(machine, "mode-changed", f"{path}: mode and owner", row["wanted"], row["there"])
        # The controller has a key of its own, which it reports.
        if wanted.root_keys and cluster.controller.part("guarded") is not None:
            for key in sorted(set(found["root"]) - own):
                what = "a key that may log in as root"
                yield _on(machine, "root-key", what, "no such key", found["root"][key], mends="hand")
        munge = machine.munge or {}
        if munge.get("delivered") and munge.get("key") != munge["delivered"]:
            yield _on(machine, "munge-key-changed", "the MUNGE key", "as delivered", "another")


def key_id(private: str) -> str:
    """The hash of a private key's public half, as scripts/node/system/protected_files.py has it; empty for other texts.

    The key in OpenSSH's format (its PROTOCOL.key): cipher, kdf and its options, the number of keys, and the public one.
    """
    try:
        rest = base64.b64decode("".join(private.split("-----")[2].split()))[len("openssh-key-v1\0") :]
    except (ValueError, IndexError):
        return ""
    for _ in range(3):
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    public = rest[8 : 8 + int.from_bytes(rest[4:8], "big")]
    return hashlib.sha256(base64.b64encode(public)).hexdigest()[:16]


Row = Mapping[str, Any]
QOS_LIMITS = tuple(slurm.parameter for _, slurm in slurm_fields(Qos))
"""Limits of a QOS that a stack can set."""
NOT_LIMITS = {"account", "user", "parentname", "share", "defaultqos", "qos"}
"""Fields of an association that are no limits."""


def _accounting(wanted: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    found = {name: cluster.controller.part("accounting", name) for name in ("accounts", "associations", "users", "qos")}
    if any(part is None for part in found.values()):
        return
    ledger = cluster.controller
    for row in wanted.accounting["qos"]:
        yield from _qos(ledger, row, found["qos"].get(row["name"]))
    places = {association["account"]: association for association in found["associations"] if not association["user"]}
    for row in wanted.accounting["accounts"]:
        yield from _account(ledger, row, found["accounts"].get(row["name"]), places.get(row["name"], {}))
    for row in wanted.accounting["users"]:
        mine = {
            association["account"]: association
            for association in found["associations"]
            if association["user"] == row["name"]
        }
        yield from _accounting_user(ledger, row, found["users"].get(row["name"]), mine)


def _row(machine: MachineObservation, what: str, stack: str, there: str) -> Difference:
    return _on(machine, "accounting-changed", what, stack, there)


def _qos(machine: MachineObservation, row: Row, found: Row | None) -> Iterator[Difference]:
    name = row["name"]
    if found is None:
        yield _row(machine, f"QOS {name}", "a QOS", "no such QOS")
        return
    for key in QOS_LIMITS:
        said, there = row.get(key, ""), found.get(key, "")
        if not same_limit(key, said, there):
            yield _row(machine, f"QOS {name}: {key}", said or "no limit", there or "no limit")


def _account(machine: MachineObservation, row: Row, found: Row | None, place: Row) -> Iterator[Difference]:
    name = row["name"]
    if found is None:
        yield _row(machine, f"account {name}", "an account", "no such account")
        return
    there = {
        "description": found["description"],
        "organization": found["organization"],
        "parent": place.get("parentname", ""),
        "fairshare": place.get("share", ""),
    }
    said = {**row, "fairshare": row.get("fairshare", 1)}
    for key, text in there.items():
        # Slurm keeps descriptions and organizations in lower case.
        if str(said[key]).lower() != text.lower():
            yield _row(machine, f"account {name}: {key}", str(said[key]), text or "none")
    yield from _limits(machine, f"account {name}", place)


def _accounting_user(
    machine: MachineObservation, row: Row, default: str | None, mine: Mapping[str, Row]
) -> Iterator[Difference]:
    name = row["name"]
    if default is None:
        yield _row(machine, f"user {name} in the accounting", "a user", "no such user")
        return
    if default != row["default_account"]:
        yield _row(machine, f"user {name}: default account", row["default_account"], default or "none")
    for account in row["accounts"]:
        if account not in mine:
            yield _row(machine, f"user {name}: account {account}", "a member", "not a member")
            continue
        place = mine[account]
        said, there = row["qos"] or ["normal"], sorted(filter(None, place["qos"].split(",")))
        if sorted(said) != there:
            yield _row(machine, f"user {name} in {account}: QOS", ",".join(said), ",".join(there) or "none")
        first = row["qos"][0] if row["qos"] else ""
        if place["defaultqos"] != first:
            there = place["defaultqos"] or "none"
            yield _row(machine, f"user {name} in {account}: default QOS", first or "none", there)
        if place["share"] != "1":
            yield _row(machine, f"user {name} in {account}: fairshare", "1", place["share"])
        yield from _limits(machine, f"user {name} in {account}", place)


def _limits(machine: MachineObservation, what: str, place: Row) -> Iterator[Difference]:
    """Limits of an account or of a user in one. A stack sets none: it limits by QOS."""
    for key, there in place.items():
        if key not in NOT_LIMITS and there:
            yield _row(machine, f"{what}: {key}", "no limit", there)
