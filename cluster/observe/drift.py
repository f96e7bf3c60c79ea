"""Differences between the stack's configuration and an observation of the cluster. Pure functions."""

import base64
import difflib
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from cluster.config.accounting import GroupLimits, Qos
from cluster.config.section import slurm_fields
from cluster.observe.observation import NOTHING, ClusterObservation, Difference, MachineObservation, Mends
from cluster.slurm.paths import CONTROLLER_FILES
from scripts.node.slurm.hostlist import expand
from scripts.node.slurm.output import same_limit
from scripts.node.slurm.times import seconds_of


@dataclass(frozen=True, kw_only=True)
class ExpectedCluster:
    """The stack's configuration, in the form of machines' reports."""

    files: Mapping[str, str]
    """Slurm's files on the controller by name; slurmdbd.conf with a placeholder for its password."""
    users: Sequence[Mapping[str, Any]]
    """Unix users, as scripts/node/system/users.py takes them."""
    groups: Sequence[Mapping[str, Any]]
    accounting: Mapping[str, Any]
    """Accounts, users and QOS for scripts/node/accounting/accounts.py."""
    scripts: Mapping[str, str] = field(default_factory=dict)
    """The tree of prologs and epilogs, as cluster.slurm.script_tree.expected returns it."""
    root_keys: Sequence[str] = ()
    """Hashes of the stack's keys that may log in as root, without the controller's own key."""
    nodes: Sequence[str]
    """NodeNames in Slurm."""
    setup: str
    """Version of this program's set-up."""
    setup_of_stack: str | None
    """Version of the set-up that the last `up` copied; None if it is not known."""


def differences(expected: ExpectedCluster, cluster: ClusterObservation) -> list[Difference]:
    """Return all differences, with one for the same difference on several machines."""
    groups: dict[Difference, tuple[str, ...]] = {}
    for difference in (
        *_machines(cluster),
        *_setups(expected, cluster),
        *_daemons(cluster),
        *_controller_files(expected, cluster),
        *_running_values(expected, cluster),
        *_partitions(expected, cluster),
        *_nodes(expected, cluster),
        *_copies(expected, cluster),
        *script_differences(expected, cluster),
        *_users_and_groups(expected, cluster),
        *_keys(expected, cluster),
        *_protected_files(expected, cluster),
        *_accounting(expected, cluster),
    ):
        key = replace(difference, where=())
        groups[key] = (*groups.get(key, ()), *difference.where)
    return [replace(difference, where=where) for difference, where in groups.items()]


def unread_parts(cluster: ClusterObservation) -> list[str]:
    """Return the parts that could not be compared, each with the reason."""
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


def _on(
    machine: MachineObservation, kind: str, what: str, stack: str, there: str, *, mends: Mends = "mend"
) -> Difference:
    return Difference(id=kind, where=(machine.name,), what=what, stack=stack, there=there, mends=mends)


def _machines(cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield machines that do not answer, so that nothing on them can be compared."""
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
    """Return machines with a daemon that is starting, such as hpc-node while a node joins."""
    return [
        machine.name
        for machine in cluster.machines
        if any((unit["state"], unit["sub"]) == ("activating", "start") for unit in machine.daemons.values())
    ]


def _setups(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield set-ups of another version than the last `up` copied or this program has, and damaged cluster states."""
    stack = expected.setup_of_stack
    if stack and stack != expected.setup:
        # Not a manual change, but no machine can be mended with another set-up than its own.
        brings, brought = f"{expected.setup}, which this program brings", f"{stack}, which the last `up` brought"
        yield _on(cluster.controller, "setup-old", "version of the set-up", brings, brought, mends="up")
    for machine in cluster.machines:
        if machine.reached and not machine.has_facts:
            kind, mends = ("setup-old", "up") if machine.old else ("setup-damaged", "mend")
            yield _on(machine, kind, "the set-up", expected.setup, machine.why, mends=mends)
        there = machine.part("setup")
        if there and there != (stack or expected.setup):
            yield _on(machine, "setup-changed", "files of the set-up", stack or expected.setup, there)
    for machine in cluster.machines:
        if why := machine.part("cluster_state", "damaged"):
            content = "the config version, and a report of every machine"
            yield _on(machine, "cluster-state-damaged", "the cluster state", content, why)


_TOPOLOGY = "topology.conf"


def _controller_files(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    texts = cluster.controller.part("files", "texts")
    if texts is None:
        return
    for name, text in sorted(expected.files.items()):
        if name not in texts:
            yield _on(cluster.controller, "file-missing", name, "a file", "no such file")
            continue
        for number, stack, there in _changed_lines(text, texts[name]):
            yield _on(cluster.controller, "file-changed", f"{name}, line {number}", stack, there)
    # The controller writes topology.conf from the nodes' places, so the text that slurmctld applied is expected.
    etc, applied = ((cluster.controller.part("files", side) or {}).get(_TOPOLOGY) for side in ("etc", "applied"))
    if applied and etc != applied:
        yield _on(cluster.controller, "file-changed", _TOPOLOGY, f"hash {applied}", f"hash {etc}" if etc else NOTHING)


def _changed_lines(expected: str, found: str) -> Iterator[tuple[int, str, str]]:
    """Yield number (in the expected text), expected line and found line of each difference."""
    ours, theirs = (text.removesuffix("\n").split("\n") for text in (expected, found))
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind != "equal":
            pairs = zip_longest(ours[i:i_end], theirs[j:j_end], fillvalue=NOTHING)
            yield from ((number, *pair) for number, pair in enumerate(pairs, i + 1))


def _copies(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield differences in the files that slurmd fetched, and in slurm.conf of machines without slurmd."""
    for machine in cluster.machines:
        hashes: Mapping[str, str] = machine.part("files", "cache") or {}
        title, names = "slurmd's copy of ", sorted(set(expected.files) - CONTROLLER_FILES)
        if not {"controller", "node"} & set(machine.roles) and (etc := machine.part("files", "etc")) is not None:
            hashes, title, names = etc, "/etc/slurm/", ["slurm.conf"]
        elif "node" not in machine.roles or not hashes:
            continue
        for name in names:
            if hashes.get(name) != (right := _hash(expected.files[name])):
                there = f"hash {hashes[name]}" if name in hashes else "no such file"
                yield _on(machine, "copy-changed", f"{title}{name}", f"hash {right}", there)


def _hash(text: str) -> str:
    """Return the hash of a text as scripts/node/collect.py reports it."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


_UNKNOWN = "slurmctld does not know it"
_LISTS = {"nodename", "nodeset", "partitionname", "slurmctldhost", "downnodes", "frontendname", "switchname", "include"}
"""Lines of slurm.conf that define an object, and set no parameter."""
_UNLIMITED = {"unlimited", "infinite", "none", "n/a", "(null)", "(null type)", ""}


def _running_values(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield parameters of slurm.conf that have another value in slurmctld."""
    config = cluster.slurm("config") or {}
    running = {name.lower(): (name, value) for name, value in config.items() if name.lower() not in _LISTS}
    for line in expected.files["slurm.conf"].split("\n"):
        key, _, stack = (part.strip() for part in line.partition("="))
        name, value = running.get(key.lower(), (key, stack))
        if not is_same_value(stack, value):
            yield _value(cluster, f"running value of {name}", stack, value)


def _partitions(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield partitions that are missing, were added, or were changed with `scontrol update`."""
    running = cluster.slurm("partitions")
    if running is None:
        return
    lines = [line for line in expected.files["slurm.conf"].split("\n") if line.startswith("PartitionName=")]
    rows = ({key: value for key, _, value in (word.partition("=") for word in line.split())} for line in lines)
    # PartitionName=DEFAULT is no partition: it sets defaults for the others.
    partitions = {row["PartitionName"]: row for row in rows if row["PartitionName"] != "DEFAULT"}
    for name, row in partitions.items():
        if name not in running:
            yield _value(cluster, f"partition {name}", "a partition", _UNKNOWN)
            continue
        values: Mapping[str, str] = {key.lower(): value for key, value in running[name].items()}
        for key, stack in {**row, "State": row.get("State", "UP")}.items():
            value = values.get(key.lower())
            if value is not None and key.lower() != "nodes" and not is_same_value(stack, value):
                yield _value(cluster, f"partition {name}: {key}", stack, value)
    for name in running.keys() - partitions.keys():
        yield _value(cluster, f"partition {name}", "no such partition", "a partition")


def _nodes(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    running = cluster.slurm_nodes
    if running is None:
        return
    missing = [(name, "a node", _UNKNOWN) for name in expected.nodes if name not in running]
    added = [(name, "no such node", "slurmctld has it") for name in sorted(running.keys() - set(expected.nodes))]
    for name, stack, there in missing + added:
        yield Difference(id="node-unknown", where=(name,), what=f"node {name}", stack=stack, there=there)


def _value(cluster: ClusterObservation, what: str, stack: str, there: str) -> Difference:
    return _on(cluster.controller, "value-changed", what, stack, there)


def is_same_value(written: str, printed: str) -> bool:
    """Return whether scontrol prints `printed` for a value that is `written` in slurm.conf: it adds units, numbers of
    users and implied values."""
    ours, theirs = _plain(written), _plain(printed)
    if ours == theirs:
        return True
    if None not in (seconds_of(ours), seconds_of(theirs)):
        return seconds_of(ours) == seconds_of(theirs)
    if "[" in ours + theirs:
        try:
            return sorted(expand(ours)) == sorted(expand(theirs))
        except ValueError:
            return False
    # scontrol prints AccountingStorageTRES=gres/gpu with the default TRES, PrologFlags=Contain with Alloc.
    return bool(ours) and "," in theirs and set(ours.split(",")) <= set(theirs.split(","))


def _plain(text: str) -> str:
    value = text.strip().lower()
    if value in _UNLIMITED:
        return ""
    value = re.sub(r"\s+(sec|min|percent|nodes/min|mb)$", "", value)
    # scontrol prints a user with the uid: slurm(64030).
    value = re.sub(r"\([0-9]+\)$", "", value)
    return re.sub(r"%$", "", value)


SCRIPT_TREE = "/opt/apps/adm/slurm"


def script_differences(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield missing and changed files and links of the tree; files of others there are not compared."""
    scripts = cluster.controller.part("scripts")
    if scripts is None:
        return
    for path, stack in expected.scripts.items():
        there = scripts.get(path)
        if there is None:
            kind = "script-missing"
        elif (stack and there != stack) or there in ("changed", "not executable"):
            kind = "script-changed"
        else:
            continue
        shown = "no such file" if there is None else _link_or_hash(there)
        yield _on(cluster.controller, kind, f"{SCRIPT_TREE}/{path}", _link_or_hash(stack) or "as it was staged", shown)


def _link_or_hash(text: str) -> str:
    return f"hash {text[:16]}" if len(text) == 64 and not text.startswith("-> ") else text


def _users_and_groups(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    for machine in cluster.machines:
        found = machine.part("unix")
        if found is None:
            continue
        for group in expected.groups:
            name, right = group["name"], group["gid"]
            gid = found["groups"].get(name)
            if gid is None:
                yield _on(machine, "group-changed", f"group {name}", f"gid {right}", "no such group")
            elif gid != right:
                yield _on(machine, "group-changed", f"group {name}: gid", str(right), str(gid), mends="hand")
        for user in expected.users:
            yield from _unix_user(machine, user, found["users"].get(user["name"]))
        for name in sorted(set(found["managed"].get("users", ())) - {user["name"] for user in expected.users}):
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
        stack, there = (
            ", ".join(side[key]) or "none" if isinstance(side[key], list) else str(side[key]) for side in (user, found)
        )
        if stack != there:
            # Files are owned by the uid, so it is only changed manually.
            what = f"user {name}: {key}"
            yield _on(machine, "user-changed", what, stack, there, mends="hand" if key == "uid" else "mend")
    for key, default in (("sudo", False), ("containers", None)):
        # A machine without sudo does not report that right.
        right = user.get(key, default)
        if right is not None and key in found and found[key] != right:
            yield _on(machine, "user-changed", f"user {name}: {key}", str(right).lower(), str(found[key]).lower())


def _keys(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    """Yield users with other SSH keys than the stack's; keys that users added themselves are not compared."""
    for machine in cluster.machines:
        found = machine.part("keys") or {}
        for user in expected.users:
            there = found.get(user["name"])
            if there is not None and there != keys_digest(user["keys"]):
                what = f"user {user['name']}: authorized_keys"
                # A text with a blank is no hash, but the reason why the file could not be read.
                shown = there if " " in there else "others"
                yield _on(machine, "keys-changed", what, f"{len(user['keys'])} of the stack's", shown)


def keys_digest(lines: list[str]) -> str:
    """Return the hash of authorized_keys that scripts/node/collect.py reports."""
    return _hash("\n".join(lines))


def _protected_files(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    own = {*expected.root_keys, cluster.controller.part("guarded", "cluster_key")}
    for machine in cluster.machines:
        found = machine.part("guarded")
        if found is None:
            continue
        for path, row in found["modes"].items():
            yield _on(machine, "mode-changed", f"{path}: mode and owner", row["wanted"], row["there"])
        # The controller reports its own key, which the nodes have.
        if expected.root_keys and cluster.controller.part("guarded") is not None:
            for key in sorted(set(found["root"]) - own):
                what = "a key that may log in as root"
                yield _on(machine, "root-key", what, "no such key", found["root"][key], mends="hand")
        munge = machine.munge or {}
        if munge.get("delivered") and munge.get("key") != munge["delivered"]:
            yield _on(machine, "munge-key-changed", "the MUNGE key", "as delivered", "another")


def key_id(private: str) -> str:
    """Return the hash of a private key's public half, as scripts/node/system/protected_files.py reports it; empty for a
    text that is no private key.

    Fields of OpenSSH's format (its PROTOCOL.key): cipher, kdf, options of the kdf, number of keys, public key.
    """
    try:
        rest = base64.b64decode("".join(private.split("-----")[2].split()))[len("openssh-key-v1\0") :]
    except (ValueError, IndexError):
        return ""
    for _ in range(3):
        rest = rest[4 + int.from_bytes(rest[:4], "big") :]
    public = rest[8 : 8 + int.from_bytes(rest[4:8], "big")]
    return _hash(base64.b64encode(public).decode())


Row = Mapping[str, Any]
QOS_LIMITS = tuple(slurm.parameter for _, slurm in slurm_fields(Qos))
"""Limits of a QOS that a stack can set."""
GROUP_LIMITS = tuple(slurm.parameter for _, slurm in slurm_fields(GroupLimits))
"""Limits of an association that a stack can set."""
NOT_LIMITS = {"account", "user", "parentname", "share", "defaultqos", "qos"}
"""Fields of an association that are no limits."""
_Change = tuple[str, str, str]
"""Object, value of the stack, value in the database."""


def _accounting(expected: ExpectedCluster, cluster: ClusterObservation) -> Iterator[Difference]:
    found = {name: cluster.controller.part("accounting", name) for name in ("accounts", "associations", "users", "qos")}
    if any(part is None for part in found.values()):
        return
    associations: dict[str, dict[str, Row]] = {}
    for association in found["associations"]:
        associations.setdefault(association["user"], {})[association["account"]] = association
    changes: list[_Change] = []
    for row in expected.accounting["qos"]:
        changes += _qos(row, found["qos"].get(row["name"]))
    for row in expected.accounting["accounts"]:
        association = associations.get("", {}).get(row["name"], {})
        changes += _account(row, found["accounts"].get(row["name"]), association)
    for row in expected.accounting["users"]:
        changes += _accounting_user(row, found["users"].get(row["name"]), associations.get(row["name"], {}))
    for change in changes:
        yield _on(cluster.controller, "accounting-changed", *change)


def _qos(row: Row, found: Row | None) -> Iterator[_Change]:
    name = row["name"]
    if found is None:
        yield f"QOS {name}", "a QOS", "no such QOS"
        return
    for key in QOS_LIMITS:
        stack, there = row.get(key, ""), found.get(key, "")
        if not same_limit(key, stack, there):
            yield f"QOS {name}: {key}", stack or "no limit", there or "no limit"


def _account(row: Row, found: Row | None, association: Row) -> Iterator[_Change]:
    name = row["name"]
    if found is None:
        yield f"account {name}", "an account", "no such account"
        return
    there = {
        "description": found["description"],
        "organization": found["organization"],
        "parent": association.get("parentname", ""),
        "fairshare": association.get("share", ""),
    }
    stack = {"fairshare": 1, **row}
    for key, text in there.items():
        # Slurm keeps descriptions and organizations in lower case.
        if str(stack[key]).lower() != text.lower():
            yield f"account {name}: {key}", str(stack[key]), text or "none"
    yield from _limits(f"account {name}", row, association)


def _accounting_user(row: Row, default: str | None, associations: Mapping[str, Row]) -> Iterator[_Change]:
    name = row["name"]
    if default is None:
        yield f"user {name} in the accounting", "a user", "no such user"
        return
    if default != row["default_account"]:
        yield f"user {name}: default account", row["default_account"], default or "none"
    for account in row["accounts"]:
        if account not in associations:
            yield f"user {name}: account {account}", "a member", "not a member"
            continue
        association = associations[account]
        stack, there = row["qos"] or ["normal"], sorted(filter(None, association["qos"].split(",")))
        if sorted(stack) != there:
            yield f"user {name} in {account}: QOS", ",".join(stack), ",".join(there) or "none"
        first = row["qos"][0] if row["qos"] else ""
        if association["defaultqos"] != first:
            yield f"user {name} in {account}: default QOS", first or "none", association["defaultqos"] or "none"
        if association["share"] != "1":
            yield f"user {name} in {account}: fairshare", "1", association["share"]
        yield from _limits(f"user {name} in {account}", row, association)


def _limits(what: str, row: Row, association: Row) -> Iterator[_Change]:
    """Yield limits of an association that differ from the stack's, or that it does not set."""
    limits = {**dict.fromkeys(GROUP_LIMITS, ""), **association}
    for key in (key for key in limits if key not in NOT_LIMITS):
        stack, there = row.get(key, ""), limits[key]
        if not same_limit(key, stack, there):
            yield f"{what}: {key}", stack or "no limit", there or "no limit"
