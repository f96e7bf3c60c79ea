"""Each difference from the stack is named, and Slurm's own spelling of the same value is none."""

import hashlib
from typing import Any

import pytest
from accounting import accounts

from cluster.observe.drift import Wanted, alike, differences, keys_digest, script_differences, unseen
from cluster.observe.observation import ClusterObservation, Difference, MachineObservation
from cluster.slurm.script_tree import expected
from tests.cluster.observe.observations import facts, healthy, without
from tests.cluster.stacks import cluster

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
USERS = [
    {"name": name, "uid": uid, "gid": uid, "groups": [], "shell": "/bin/bash", "keys": []}
    for name, uid in (("alice", 2001), ("bob", 2002))
]


def stack(seen: ClusterObservation, **changes: Any) -> Wanted:
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
    return Wanted(**{**said, **changes})


def only(wanted: Wanted, seen: ClusterObservation) -> Difference:
    found = differences(wanted, seen)
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize(("old", "kind", "mends"), [(True, "setup-old", "up"), (False, "setup-damaged", "mend")])
def test_a_machine_without_a_report_is_mended_by_up_or_mend(seen: ClusterObservation, old: bool, kind: str, mends: str):
    blind = MachineObservation(name="hc-cpu-1", roles=("node",), reached=True, why="SyntaxError", old=old)
    found = only(stack(seen), ClusterObservation(stack="hc", machines=(*seen.machines[:-1], blind)))
    assert (found.id, found.where, found.mends) == (kind, ("hc-cpu-1",), mends)


def test_a_damaged_cluster_state_is_mended(seen: ClusterObservation):
    facts(seen, "controller")["cluster_state"]["damaged"] = "is not what the controller wrote"
    found = only(stack(seen), seen)
    assert (found.id, found.mends) == ("cluster-state-damaged", "mend")


def test_nothing_differs_on_a_cluster_that_nobody_touched(seen: ClusterObservation):
    assert differences(stack(seen), seen) == []
    assert unseen(seen) == []


class TestFiles:
    def test_each_line_is_named_with_both_sides(self, seen: ClusterObservation):
        wanted = stack(seen)
        texts = facts(seen, "controller")["files"]["texts"]
        texts["slurm.conf"] = texts["slurm.conf"].replace("KillWait=30\n", "KillWait=31\n") + "Extra=1\n"
        changed, added = differences(wanted, seen)
        assert (changed.stack, changed.there) == ("KillWait=30", "KillWait=31")
        assert changed.what == f"slurm.conf, line {1 + wanted.files['slurm.conf'].splitlines().index('KillWait=30')}"
        assert (added.stack, added.there) == ("(nothing)", "Extra=1")

    def test_another_password_is_a_difference_and_is_not_shown(self, seen: ClusterObservation):
        wanted = stack(seen)
        texts = facts(seen, "controller")["files"]["texts"]
        texts["slurmdbd.conf"] = texts["slurmdbd.conf"].replace("@database-password@", "@another-password@")
        assert "another" in only(wanted, seen).there

    def test_a_topology_that_slurmctld_was_not_given(self, seen: ClusterObservation):
        wanted = stack(seen)
        files = facts(seen, "controller")["files"]
        files["applied"]["topology.conf"] = files["etc"]["topology.conf"] = "0123456789abcdef"
        assert not differences(wanted, seen)
        files["etc"]["topology.conf"] = "fedcba9876543210"
        assert only(wanted, seen).what == "topology.conf"

    def test_a_file_that_is_gone(self, seen: ClusterObservation):
        wanted = stack(seen)
        del facts(seen, "controller")["files"]["texts"]["gres.conf"]
        assert only(wanted, seen).id == "file-missing"

    def test_copies_that_nodes_and_login_machines_have(self, seen: ClusterObservation):
        for name in ("cpu-0", "cpu-1"):
            facts(seen, name)["files"]["cache"]["gres.conf"] = "other"
        found = only(stack(seen), seen)
        assert (found.what, found.where) == ("slurmd's copy of gres.conf", ("hc-cpu-0", "hc-cpu-1"))
        seen = healthy()
        facts(seen, "login-0")["files"]["etc"]["slurm.conf"] = "other"
        assert only(stack(seen), seen).what == "/etc/slurm/slurm.conf"


class TestValues:
    @pytest.mark.parametrize(
        ("said", "shown"),
        [("30", "30 sec"), ("7-0", "7-00:00:00"), ("24:00:00", "1-00:00:00"), ("slurm", "slurm(64030)"),
         ("CR_Core_Memory", "CR_CORE_MEMORY"), ("INFINITE", "UNLIMITED"), ("Contain", "Alloc,Contain"),
         ("gres/gpu", "cpu,mem,energy,gres/gpu"), ("b,a", "a,b,c"), ("n-[0-1]", "n-0,n-1"), ("", "(null)")],
    )  # fmt: skip
    def test_slurms_spelling_of_the_same(self, said: str, shown: str):
        assert alike(said, shown)

    @pytest.mark.parametrize(
        ("said", "shown"), [("30", "31 sec"), ("24:00:00", "02:00:00"), ("gres/gpu", "cpu,mem"), ("a", ""), ("", "a,b")]
    )
    def test_other_values(self, said: str, shown: str):
        assert not alike(said, shown)

    def test_a_value_that_was_set_while_it_ran(self, seen: ClusterObservation):
        facts(seen, "controller")["slurm"]["config"]["KillWait"] = "31 sec"
        found = only(stack(seen), seen)
        assert (found.what, found.stack, found.there) == ("running value of KillWait", "30", "31 sec")

    def test_a_partition_that_scontrol_changed(self, seen: ClusterObservation):
        facts(seen, "controller")["slurm"]["partitions"]["cpu"]["MaxTime"] = "01:00:00"
        assert only(stack(seen), seen).what == "partition cpu: MaxTime"
        facts(seen, "controller")["slurm"]["partitions"]["cpu"].update(MaxTime="1-00:00:00", State="DRAIN")
        assert only(stack(seen), seen).what == "partition cpu: State"

    def test_partitions_and_nodes_of_one_side_only(self, seen: ClusterObservation):
        slurm = facts(seen, "controller")["slurm"]
        slurm["partitions"]["mine"] = dict(slurm["partitions"]["cpu"])
        assert only(stack(seen), seen).there == "a partition"
        del slurm["partitions"]["mine"], slurm["nodes"]["hc-cpu-1"]
        assert only(stack(seen), seen).there == "slurmctld does not know it"


class TestMachines:
    def test_one_that_is_gone_is_for_up(self):
        seen = without(healthy(), "cpu-1")
        found = only(stack(healthy()), seen)
        assert (found.id, found.mends) == ("machine-gone", "up")

    def test_a_daemon_that_was_stopped(self, seen: ClusterObservation):
        facts(seen, "controller")["daemons"]["slurmdbd"].update(state="inactive", sub="dead")
        found = only(stack(seen), seen)
        assert (found.id, found.what, found.there) == ("daemon-stopped", "slurmdbd", "inactive (dead)")

    def test_a_set_up_that_somebody_edited_and_one_of_another_version(self, seen: ClusterObservation):
        wanted = stack(seen)
        facts(seen, "cpu-0")["setup"] = "edited"
        assert (only(wanted, seen).id, only(wanted, seen).where) == ("setup-changed", ("hc-cpu-0",))
        seen = healthy()
        assert only(stack(seen, setup="newer"), seen).mends == "up"


class TestPeople:
    @pytest.mark.parametrize(
        ("key", "value", "mends"),
        [("shell", "/bin/sh", "mend"), ("uid", 2999, "hand"), ("groups", ["docker"], "mend"), ("gid", 100, "mend")],
    )
    def test_a_user_who_was_changed(self, seen: ClusterObservation, key: str, value: object, mends: str):
        for name in ("controller", "cpu-0"):
            facts(seen, name)["unix"]["users"]["alice"][key] = value
        found = only(stack(seen), seen)
        assert (found.what, found.where, found.mends) == (f"user alice: {key}", ("hc-controller", "hc-cpu-0"), mends)

    @pytest.mark.parametrize(
        ("right", "there", "shown"),
        [
            ({"sudo": True}, {"sudo": False}, ("sudo", "true", "false")),
            ({}, {"sudo": True}, ("sudo", "false", "true")),
            ({"containers": False}, {"containers": True}, ("containers", "false", "true")),
        ],
    )
    def test_a_right_that_was_changed(
        self, seen: ClusterObservation, right: dict[str, bool], there: dict[str, bool], shown: tuple[str, ...]
    ):
        facts(seen, "cpu-0")["unix"]["users"]["alice"].update(there)
        found = only(stack(seen, users=[{**USERS[0], **right}, USERS[1]]), seen)
        assert (found.what, found.stack, found.there) == (f"user alice: {shown[0]}", *shown[1:])
        assert found.where == ("hc-cpu-0",)

    def test_a_machine_without_sudo_and_a_range_that_nobody_asked_for_are_no_differences(
        self, seen: ClusterObservation
    ):
        facts(seen, "cpu-0")["unix"]["users"]["alice"]["containers"] = True
        assert differences(stack(seen, users=[{**USERS[0], "sudo": True}, USERS[1]]), seen) == []

    def test_one_who_was_removed_and_one_who_should_be_gone(self, seen: ClusterObservation):
        del facts(seen, "cpu-1")["unix"]["users"]["bob"]
        assert only(stack(seen), seen).there == "no such user"
        seen = healthy()
        for one in seen.machines:
            one.part("unix")["managed"]["users"].append("zoe")
            one.part("unix")["users"]["zoe"] = one.part("unix")["users"]["bob"]
        assert only(stack(seen), seen).stack == "no such user"

    def test_somebody_elses_users_are_theirs(self, seen: ClusterObservation):
        facts(seen, "cpu-0")["unix"]["users"]["zoe"] = {"uid": 1000}
        assert differences(stack(seen), seen) == []

    def test_keys_are_compared_and_not_shown(self, seen: ClusterObservation):
        key = "ssh-ed25519 AAAA alice@laptop"
        users = [{**USERS[0], "keys": [key]}, USERS[1]]
        found = only(stack(seen, users=users), seen)
        assert found.id == "keys-changed"
        assert "AAAA" not in repr(found)
        for one in seen.machines:
            one.part("keys")["alice"] = keys_digest([key])
        assert differences(stack(seen, users=users), seen) == []


def ledger(seen: ClusterObservation) -> dict[str, Any]:
    return facts(seen, "controller")["accounting"]


def place(seen: ClusterObservation, account: str, user: str = "") -> dict[str, str]:
    return next(row for row in ledger(seen)["associations"] if (row["account"], row["user"]) == (account, user))


def mended(seen: ClusterObservation) -> list[list[str]]:
    return accounts.plan(ACCOUNTING, ACCOUNTING, ledger(seen), mend=True)


class TestAccounting:
    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [("MaxWall", "02:00:00", "MaxWall=24:00:00"), ("Priority", "5", "Priority=100"),
         ("MaxTRESPerUser", "cpu=8,mem=4G", "MaxTRESPerUser=cpu=4,mem=-1"), ("MaxSubmitJobsPerUser", "9",
         "MaxSubmitJobsPerUser=-1"), ("Preempt", "", "Preempt=low"), ("Flags", "", "Flags=DenyOnLimit"),
         ("GrpTRES", "gres/gpu=1", "GrpTRES=gres/gpu=-1")],
    )  # fmt: skip
    def test_a_limit_that_was_changed_and_the_words_that_mend_it(
        self, seen: ClusterObservation, key: str, value: str, words: str
    ):
        ledger(seen)["qos"]["urgent"][key] = value
        assert only(stack(seen), seen).what == f"QOS urgent: {key}"
        assert mended(seen) == [["modify", "qos", "where", "name=urgent", "set", words]]

    def test_minutes_are_minutes(self, seen: ClusterObservation):
        ledger(seen)["qos"]["urgent"]["MaxWall"] = "1440"
        assert differences(stack(seen), seen) == []

    def test_an_account_that_was_changed(self, seen: ClusterObservation):
        place(seen, "research")["share"] = "9"
        assert (only(stack(seen), seen).what, mended(seen)[0][-1]) == ("account research: fairshare", "fairshare=3")
        place(seen, "research").update(share="3", parentname="root")
        assert (only(stack(seen), seen).what, mended(seen)[0][-1]) == ("account research: parent", "parent=science")

    def test_a_user_who_was_limited(self, seen: ClusterObservation):
        place(seen, "research", "alice")["MaxJobs"] = "1"
        found = only(stack(seen), seen)
        assert (found.what, mended(seen)[0][-1]) == ("user alice in research: MaxJobs", "MaxJobs=-1")

    def test_a_user_who_lost_rights_or_is_gone(self, seen: ClusterObservation):
        place(seen, "research", "alice")["qos"] = "normal"
        assert (only(stack(seen), seen).stack, mended(seen)[0][-1]) == ("normal,urgent", "qos=normal,urgent")
        seen = healthy()
        del ledger(seen)["users"]["bob"]
        assert only(stack(seen), seen).what == "user bob in the accounting"

    def test_what_others_added_is_theirs(self, seen: ClusterObservation):
        ledger(seen)["qos"]["mine"] = {"Priority": "7"}
        ledger(seen)["accounts"]["mine"] = {"description": "x", "organization": "y"}
        assert differences(stack(seen), seen) == []

    def test_a_database_that_is_down_is_not_taken_for_an_empty_one(self, seen: ClusterObservation):
        wanted = stack(seen)
        facts(seen, "controller")["accounting"] = {
            name: {"error": "nothing listens on slurmdbd's port 6819"} for name in ledger(seen)
        }
        assert differences(wanted, seen) == []
        assert any("6819" in text for text in unseen(seen))


@pytest.fixture
def guarded() -> ClusterObservation:
    seen = healthy()
    for one in seen.machines:
        key = "cluster" if "controller" in one.roles else ""
        facts(seen, one.name[3:])["guarded"] = {
            "modes": {}, "root": {"admin": "a", "cluster": "c"}, "cluster_key": key,
        }  # fmt: skip
        facts(seen, one.name[3:])["munge"]["delivered"] = facts(seen, one.name[3:])["munge"]["key"]
    return seen


def test_as_the_stack_has_it(guarded: ClusterObservation):
    assert differences(stack(guarded, root_keys=["admin"]), guarded) == []


def test_a_key_that_the_stack_does_not_give(guarded: ClusterObservation):
    facts(guarded, "cpu-1")["guarded"]["root"]["other"] = "eve@laptop"
    found = only(stack(guarded, root_keys=["admin"]), guarded)
    assert (found.id, found.where, found.there, found.mends) == ("root-key", ("hc-cpu-1",), "eve@laptop", "hand")


def test_keys_are_not_compared_without_the_controllers(guarded: ClusterObservation):
    facts(guarded, "controller")["guarded"] = {"error": "no answer within 12 s"}
    assert differences(stack(guarded, root_keys=["admin"]), guarded) == []
    assert unseen(guarded) == ["hc-controller: guarded: no answer within 12 s"]


def test_a_secret_that_others_can_read(guarded: ClusterObservation):
    row = {"wanted": "0400 munge", "there": "0644 munge"}
    facts(guarded, "cpu-1")["guarded"]["modes"]["/etc/munge/munge.key"] = row
    found = only(stack(guarded, root_keys=["admin"]), guarded)
    assert (found.id, found.stack, found.there, found.mends) == ("mode-changed", *row.values(), "mend")


def test_another_munge_key(guarded: ClusterObservation):
    facts(guarded, "cpu-1")["munge"]["key"] = "foreign"
    assert only(stack(guarded, root_keys=["admin"]), guarded).id == "munge-key-changed"


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
    wanted = Wanted(
        files={}, users=[], groups=[], accounting={}, nodes=[], setup="", setup_of_stack=None, scripts=expected(CONFIG)
    )
    controller = MachineObservation(
        name="dev-controller", roles=("controller",), reached=True, facts={"scripts": there}
    )
    return list(script_differences(wanted, ClusterObservation(stack="dev", machines=(controller,))))


def test_all_of_it_and_files_of_others_are_fine():
    assert set(expected(CONFIG)) == set(THERE) - {"prolog_slurmd.d/theirs.prolog_slurmd"}
    assert script_drift(THERE) == []


def test_a_lost_tree_is_every_file_of_it():
    assert {(one.id, one.what.removeprefix("/opt/apps/adm/slurm/")) for one in script_drift({})} == {
        ("script-missing", path) for path in expected(CONFIG)
    }


@pytest.mark.parametrize(
    ("path", "found", "stack", "there"),
    [
        ("scripts/check", "5" * 64, f"hash {THERE['scripts/check'][:16]}", f"hash {'5' * 16}"),
        ("slurm_prolog", "-> /bin/true", "-> slurm_mux", "-> /bin/true"),
        ("scripts/rxdm", "changed", "as it was staged", "changed"),
        ("scripts/mine", "not executable", "as it was staged", "not executable"),
    ],
)
def test_a_changed_script_is_shown_with_both_sides(path: str, found: str, stack: str, there: str):
    (one,) = script_drift(THERE | {path: found})
    assert (one.id, one.what, one.stack, one.there) == ("script-changed", f"/opt/apps/adm/slurm/{path}", stack, there)


def test_what_could_not_be_read_is_no_difference():
    assert script_drift({"error": "no answer within 4 s"}) == []


def test_a_cluster_without_scripts_expects_none():
    assert expected(cluster()) == {}
