"""Each difference from the stack is named, and Slurm's own spelling of the same value is none."""

import hashlib
from typing import Any

import pytest
from accounting import accounts

from cluster.observe.drift import (
    ExpectedCluster,
    differences,
    is_same_value,
    keys_digest,
    script_differences,
    unread_parts,
)
from cluster.observe.observation import ClusterObservation, Difference, MachineObservation
from cluster.slurm.script_tree import expected
from tests.cluster.observe.observations import Change, facts, healthy, part, without
from tests.cluster.stacks import cluster

MACHINES = ("controller", "login-0", "cpu-0", "cpu-1")
ACCOUNTING = {
    "cluster": "hc",
    "accounts": [
        {"name": "science", "parent": "root", "description": "Everybody", "organization": "lab"},
        {"name": "research", "parent": "science", "description": "research", "organization": "science", "fairshare": 3},
        {"name": "teaching", "parent": "science", "description": "teaching", "organization": "science"},
    ],
    "users": [
        {"name": "alice", "default_account": "research", "accounts": ["research"], "qos": ["normal", "urgent"]},
        {"name": "bob", "default_account": "teaching", "accounts": ["teaching"], "qos": []},
    ],
    "qos": [
        {
            "name": "urgent", "Priority": "100", "MaxWall": "24:00:00", "MaxJobsPerUser": "2",
            "MaxTRESPerUser": "cpu=4", "Preempt": "low", "Flags": "DenyOnLimit",
        },
        {"name": "low"},
    ],
}  # fmt: skip
LIMITED = {
    **ACCOUNTING,
    "accounts": [
        {**row, "GrpTRESMins": "gres/gpu=24000", "GrpJobs": "20"} if row["name"] == "research" else row
        for row in ACCOUNTING["accounts"]
    ],
    "users": [{**row, "GrpJobs": "4"} if row["name"] == "bob" else row for row in ACCOUNTING["users"]],
}
USERS = [
    {"name": name, "uid": uid, "gid": uid, "groups": [], "shell": "/bin/bash", "keys": []}
    for name, uid in (("alice", 2001), ("bob", 2002))
]


def stack(seen: ClusterObservation, **changes: Any) -> ExpectedCluster:
    """Return what the stack of the recorded cluster says."""
    controller = facts(seen, "controller")
    said: dict[str, Any] = {
        "files": dict(controller["files"]["texts"]),
        "users": USERS,
        "groups": [{"name": "alice", "gid": 2001}, {"name": "bob", "gid": 2002}],
        "accounting": ACCOUNTING,
        "nodes": ["hc-cpu-0", "hc-cpu-1"],
        "setup": controller["setup"],
        "setup_of_stack": controller["setup"],
    }
    return ExpectedCluster(**{**said, **changes})


def blind(*, old: bool) -> Change:
    """The last node has a set-up of an earlier version, or a damaged one."""
    node = MachineObservation(name="hc-cpu-1", roles=("node",), reached=True, why="SyntaxError", old=old)
    return lambda seen: ClusterObservation(stack="hc", machines=(*seen.machines[:-1], node))


def texts(name: str, old: str, new: str) -> Change:
    """One of the controller's files, edited."""

    def change(seen: ClusterObservation) -> None:
        found = facts(seen, "controller")["files"]["texts"]
        assert old in found[name]
        found[name] = found[name].replace(old, new)

    return change


def without_key(machine: str, *path: str) -> Change:
    """A part of a machine's document is not there."""

    def change(seen: ClusterObservation) -> None:
        found = facts(seen, machine)
        for key in path[:-1]:
            found = found[key]
        del found[path[-1]]

    return change


def topology(key: str, text: str) -> Change:
    return part("controller", "files", key, **{"topology.conf": text * 16})


def managed_zoe(seen: ClusterObservation) -> None:
    """A user whom the stack had once."""
    for machine in seen.machines:
        machine.part("unix")["managed"]["users"].append("zoe")
        machine.part("unix")["users"]["zoe"] = machine.part("unix")["users"]["bob"]


def guarded(seen: ClusterObservation) -> None:
    """Keys of root and modes of secrets, as the stack has them."""
    for machine in seen.machines:
        mine = facts(seen, machine.name[3:])
        key = "cluster" if "controller" in machine.roles else ""
        mine["guarded"] = {"modes": {}, "root": {"admin": "a", "cluster": "c"}, "cluster_key": key}
        mine["munge"]["delivered"] = mine["munge"]["key"]


def association(account: str, user: str = "", **row: str) -> Change:
    """A row of an account in the database, or of a user in it."""

    def change(seen: ClusterObservation) -> None:
        rows = facts(seen, "controller")["accounting"]["associations"]
        next(row for row in rows if (row["account"], row["user"]) == (account, user)).update(row)

    return change


def silent_database(seen: ClusterObservation) -> None:
    found = facts(seen, "controller")["accounting"]
    found.update({name: {"error": "nothing listens on slurmdbd's port 6819"} for name in found})


def user(machine: str, **row: Any) -> Change:
    return part(machine, "unix", "users", "alice", **row)


def alice(**row: Any) -> dict[str, Any]:
    return {"users": [{**USERS[0], **row}, USERS[1]]}


KEY = "ssh-ed25519 AAAA alice@laptop"
MUNGE_KEY = "/etc/munge/munge.key"
ROOT: dict[str, Any] = {"root_keys": ["admin"]}
CPU = ("controller", "slurm", "partitions", "cpu")
DIFFERENCES: dict[str, tuple[dict[str, Any], tuple[Change, ...]]] = {
    "a cluster that nobody touched": ({}, ()),
    "a machine with an older set-up": ({}, (blind(old=True),)),
    "a machine with a damaged set-up": ({}, (blind(old=False),)),
    "a damaged cluster state": ({}, (part("controller", "cluster_state", damaged="is not what was written"),)),
    "a line that was changed and one that was added": (
        {},
        (texts("slurm.conf", "KillWait=30\n", "KillWait=31\nExtra=1\n"),),
    ),
    "another password": ({}, (texts("slurmdbd.conf", "@database-password@", "@another-password@"),)),
    "a topology as slurmctld was given it": (
        {},
        tuple(topology(key, "0") for key in ("applied", "etc")),
    ),
    "a topology that slurmctld was not given": (
        {},
        tuple(topology(key, text) for key, text in (("applied", "0"), ("etc", "f"))),
    ),
    "a file that is gone": ({}, (without_key("controller", "files", "texts", "gres.conf"),)),
    "copies that nodes have": (
        {},
        tuple(part(name, "files", "cache", **{"gres.conf": "other"}) for name in ("cpu-0", "cpu-1")),
    ),
    "the copy of a login machine": ({}, (part("login-0", "files", "etc", **{"slurm.conf": "other"}),)),
    "a value that was set while it ran": ({}, (part("controller", "slurm", "config", KillWait="31 sec"),)),
    "a partition's limit": ({}, (part(*CPU, MaxTime="01:00:00"),)),
    "a partition's state": ({}, (part(*CPU, State="DRAIN"),)),
    "a partition of one side only": ({}, (part("controller", "slurm", "partitions", mine={"State": "UP"}),)),
    "a node of one side only": ({}, (without_key("controller", "slurm", "nodes", "hc-cpu-1"),)),
    "a machine that is gone": ({}, (lambda seen: without(seen, "cpu-1"),)),
    "a daemon that was stopped": ({}, (part("controller", "daemons", "slurmdbd", state="inactive", sub="dead"),)),
    "a set-up that somebody edited": ({}, (part("cpu-0", setup="edited"),)),
    "a set-up of a newer version": ({"setup": "newer"}, ()),
    **{
        f"a user's {key}": ({}, tuple(user(name, **{key: value}) for name in ("controller", "cpu-0")))
        for key, value in (("shell", "/bin/sh"), ("uid", 2999), ("groups", ["docker"]), ("gid", 100))
    },
    "a right that was taken": (alice(sudo=True), (user("cpu-0", sudo=False),)),
    "a right that was given": ({}, (user("cpu-0", sudo=True),)),
    "containers that were allowed": (alice(containers=False), (user("cpu-0", containers=True),)),
    "a machine without sudo, and a range that nobody asked for": (alice(sudo=True), (user("cpu-0", containers=True),)),
    "a user who was removed": ({}, (without_key("cpu-1", "unix", "users", "bob"),)),
    "a user who should be gone": ({}, (managed_zoe,)),
    "a user of somebody else": ({}, (part("cpu-0", "unix", "users", zoe={"uid": 1000}),)),
    "a key that is not there": (alice(keys=[KEY]), ()),
    "a key that is there": (
        alice(keys=[KEY]),
        tuple(part(name, "keys", alice=keys_digest([KEY])) for name in MACHINES),
    ),
    "keys of root as the stack has them": (ROOT, (guarded,)),
    "a key of root that the stack does not give": (
        ROOT,
        (guarded, part("cpu-1", "guarded", "root", other="eve@laptop")),
    ),
    "keys of root without the controller's": (ROOT, (guarded, part("controller", guarded={"error": "no answer"}))),
    "a secret that others can read": (
        ROOT,
        (
            guarded,
            part(
                "cpu-1", "guarded", "modes", **{"/etc/munge/munge.key": {"wanted": "0400 munge", "there": "0644 munge"}}
            ),
        ),
    ),
    "another MUNGE key": (ROOT, (guarded, part("cpu-1", "munge", key="foreign"))),
    **{
        f"a QOS with {key}={value}": ({}, (part("controller", "accounting", "qos", "urgent", **{key: value}),))
        for key, value in (
            ("MaxWall", "02:00:00"), ("MaxWall", "1440"), ("Priority", "5"), ("MaxTRESPerUser", "cpu=8,mem=4G"),
            ("MaxSubmitJobsPerUser", "9"), ("Preempt", ""), ("Flags", ""), ("GrpTRES", "gres/gpu=1"),
        )
    },
    "an account's share": ({}, (association("research", share="9"),)),
    "an account's parent": ({}, (association("research", parentname="root"),)),
    "hours of an account that somebody raised, and jobs of a user that somebody limited no more": (
        {"accounting": LIMITED},
        (association("research", GrpTRESMins="gres/gpu=48000", GrpJobs="20"),),
    ),
    "a user who was limited": ({}, (association("research", "alice", MaxJobs="1"),)),
    "a user who lost a QOS": ({}, (association("research", "alice", qos="normal"),)),
    "a user who is gone from the accounting": ({}, (without_key("controller", "accounting", "users", "bob"),)),
    "a QOS and an account of others": (
        {},
        (
            part("controller", "accounting", "qos", mine={"Priority": "7"}),
            part("controller", "accounting", "accounts", mine={"description": "x", "organization": "y"}),
        ),
    ),
    "a database that is down": ({}, (silent_database,)),
}  # fmt: skip


def differing(given: dict[str, Any], changes: tuple[Change, ...]) -> str:
    """Differences: id, machines, text, both sides, who mends it; what could not be read; what mends the database."""
    seen = healthy()
    wanted = stack(seen, **given)
    for change in changes:
        seen = change(seen) or seen
    lines = [
        f"{row.id} on {','.join(row.where)}: {row.what}\n"
        f"  stack: {row.stack}\n  there: {row.there}\n  mends: {row.mends}"
        for row in differences(wanted, seen)
    ]
    lines += [f"unseen: {text}" for text in unread_parts(seen)]
    ledger, there = facts(seen, "controller").get("accounting", {}), dict(wanted.accounting)
    if not any("error" in rows for rows in ledger.values()):
        lines += [" ".join(["sacctmgr:", *words]) for words in accounts.plan(there, there, ledger, mend=True)]
    return "\n".join(lines)


def test_differences_have_both_values(reviewed):
    reviewed("drift/machines", {case: differing(*given) for case, given in DIFFERENCES.items()})


class TestValues:
    @pytest.mark.parametrize(
        ("said", "shown"),
        [("30", "30 sec"), ("7-0", "7-00:00:00"), ("24:00:00", "1-00:00:00"), ("slurm", "slurm(64030)"),
         ("CR_Core_Memory", "CR_CORE_MEMORY"), ("INFINITE", "UNLIMITED"), ("Contain", "Alloc,Contain"),
         ("gres/gpu", "cpu,mem,energy,gres/gpu"), ("b,a", "a,b,c"), ("n-[0-1]", "n-0,n-1"), ("", "(null)")],
    )  # fmt: skip
    def test_values_that_slurm_prints_differently_are_the_same(self, said: str, shown: str):
        assert is_same_value(said, shown)

    @pytest.mark.parametrize(
        ("said", "shown"), [("30", "31 sec"), ("24:00:00", "02:00:00"), ("gres/gpu", "cpu,mem"), ("a", ""), ("", "a,b")]
    )
    def test_other_values_differ(self, said: str, shown: str):
        assert not is_same_value(said, shown)


TEXT = "#!/bin/sh\ntrue\n"
CONFIG = cluster(
    slurm={
        "scripts": [{"name": "check", "text": TEXT}, {"name": "mine", "file": "mine.sh"}],
        "rxdm": {"partitions": ["cpu"]},
    }
)
THERE = {
    "slurm_mux": "0" * 64,
    "etc/slurm_mux.conf": "1" * 64,
    "slurm_prolog": "-> slurm_mux",
    "slurm_epilog": "-> slurm_mux",
    "scripts/check": hashlib.sha256(TEXT.encode()).hexdigest(),
    "scripts/mine": "2" * 64,
    "scripts/rxdm": "3" * 64,
    "prolog_slurmd.d/check.prolog_slurmd": "-> ../scripts/check",
    "prolog_slurmd.d/mine.prolog_slurmd": "-> ../scripts/mine",
    "partition-cpu-prolog_slurmd.d/rxdm.prolog_slurmd": "-> ../scripts/rxdm",
    "partition-cpu-epilog_slurmd.d/rxdm.epilog_slurmd": "-> ../scripts/rxdm",
    "prolog_slurmd.d/theirs.prolog_slurmd": "4" * 64,
}


def script_drift(there: Any) -> list[Difference]:
    wanted = ExpectedCluster(
        files={}, users=[], groups=[], accounting={}, nodes=[], setup="", setup_of_stack=None, scripts=expected(CONFIG)
    )
    controller = MachineObservation(
        name="dev-controller", roles=("controller",), reached=True, facts={"scripts": there}
    )
    return list(script_differences(wanted, ClusterObservation(stack="dev", machines=(controller,))))


def test_a_complete_tree_with_files_of_others_has_no_difference():
    assert set(expected(CONFIG)) == set(THERE) - {"prolog_slurmd.d/theirs.prolog_slurmd"}
    assert script_drift(THERE) == []


def test_an_empty_tree_lacks_every_file():
    assert {
        (difference.id, difference.what.removeprefix("/opt/apps/adm/slurm/")) for difference in script_drift({})
    } == {("script-missing", path) for path in expected(CONFIG)}


@pytest.mark.parametrize(
    ("path", "found", "stack", "there"),
    [
        ("scripts/check", "5" * 64, f"hash {THERE['scripts/check'][:16]}", f"hash {'5' * 16}"),
        ("slurm_prolog", "-> /bin/true", "-> slurm_mux", "-> /bin/true"),
        ("scripts/rxdm", "changed", "as it was staged", "changed"),
        ("scripts/mine", "not executable", "as it was staged", "not executable"),
    ],
)
def test_a_changed_script_has_both_values(path: str, found: str, stack: str, there: str):
    (difference,) = script_drift(THERE | {path: found})
    assert (difference.id, difference.what, difference.stack, difference.there) == (
        "script-changed",
        f"/opt/apps/adm/slurm/{path}",
        stack,
        there,
    )


def test_an_unread_tree_has_no_difference():
    assert script_drift({"error": "no answer within 4 s"}) == []


def test_a_cluster_without_scripts_expects_none():
    assert expected(cluster()) == {}
