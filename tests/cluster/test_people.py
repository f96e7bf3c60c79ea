"""Accounts, limits and Unix groups of a file, with their defaults."""

from cluster.load import find_warnings
from cluster.people import unix_groups
from cluster.slurm.accounting import desired
from components.slurm import payload
from tests.cluster.stacks import cluster

ALICE = {"name": "alice", "uid": 2001}
GPU = {"cpu": {"machine_type": "local-2c-2gpu"}}
BOB = {"name": "bob", "uid": 2002}


def accounts(**changes):
    database = desired(cluster(**changes))
    names = [account["name"] for account in database["accounts"]]
    return names, {user["name"]: user["accounts"] for user in database["users"]}


def test_accounts_follow_from_users_where_none_are_declared():
    users = [{**ALICE, "account": "research", "accounts": ["teaching"]}, BOB]
    assert accounts(users=users) == (
        ["general", "research", "teaching"],
        {"alice": ["research", "teaching"], "bob": ["general"]},
    )


def test_the_only_account_is_the_default_of_all_users():
    assert accounts(users=[ALICE], accounting={"accounts": [{"name": "lab"}]}) == (["lab"], {"alice": ["lab"]})


def test_parents_come_before_their_accounts():
    """sacctmgr refuses an account below one that it does not have yet."""
    given = [{"name": "c", "parent": "b"}, {"name": "b", "parent": "a"}, {"name": "a"}]
    assert accounts(accounting={"accounts": given})[0] == ["a", "b", "c"]


def test_a_qos_comes_after_those_that_it_preempts():
    qos = [{"name": "a", "preempt": ["b", "normal"]}, {"name": "b", "preempt": ["c"]}, {"name": "c"}]
    assert [row["name"] for row in desired(cluster(accounting={"qos": qos}))["qos"]] == ["c", "b", "a"]


def test_without_users_there_are_no_accounts():
    assert accounts() == ([], {})


def test_limits_have_sacctmgrs_names_and_unset_ones_are_left_out():
    qos = {
        "name": "short",
        "max_wall": "01:00:00",
        "max_tres_per_user": {"cpu": 8, "gres/gpu": 2},
        "flags": ["NoDecay"],
    }
    assert desired(cluster(nodesets=GPU, accounting={"qos": [qos]}))["qos"] == [
        {"name": "short", "MaxWall": "01:00:00", "MaxTRESPerUser": "cpu=8,gres/gpu=2", "Flags": "NoDecay"},
    ]


def test_a_limit_of_zero_is_a_limit():
    qos = {"name": "none", "priority": 0, "grp_tres": {"gres/gpu": 0}}
    assert desired(cluster(nodesets=GPU, accounting={"qos": [qos]}))["qos"] == [
        {"name": "none", "Priority": "0", "GrpTRES": "gres/gpu=0"}
    ]


def test_limits_of_accounts_and_users_have_sacctmgrs_names_and_hours_are_minutes():
    account = {"name": "a", "limits": {"grp_tres_hours": {"cpu": 10, "gres/gpu": 400}, "grp_jobs": 0}}
    found = desired(
        cluster(
            nodesets=GPU,
            accounting={"accounts": [account], "period": "weekly"},
            users=[{**ALICE, "account": "a", "limits": {"grp_tres": {"gres/gpu": 8}, "grp_submit_jobs": 9}}],
        )
    )
    assert found["accounts"][0] == {
        "name": "a", "parent": "root", "description": "a", "organization": "a",
        "GrpTRESMins": "cpu=600,gres/gpu=24000", "GrpJobs": "0",
    }  # fmt: skip
    assert found["users"][0] == {
        "name": "alice", "default_account": "a", "accounts": ["a"], "qos": [],
        "GrpTRES": "gres/gpu=8", "GrpSubmitJobs": "9",
    }  # fmt: skip


def groups(**changes):
    return [(group.name, group.gid, group.members) for group in unix_groups(cluster(**changes))]


def test_every_user_has_an_own_group():
    assert groups(users=[ALICE, {**BOB, "gid": 2500}]) == [("alice", 2001, ()), ("bob", 2500, ())]


def test_shared_groups_have_members_and_can_be_a_primary_group():
    assert groups(groups={"ml": 3001, "lab": 3002}, users=[{**ALICE, "groups": ["ml"]}, {**BOB, "gid": 3002}]) == [
        ("lab", 3002, ()),
        ("ml", 3001, ("alice",)),
        ("alice", 2001, ()),
    ]


def test_a_former_user_may_return_with_the_same_uid():
    carol = {"name": "carol", "uid": 2003}
    assert cluster(users=[carol], former_users=[carol]).users[0].uid == 2003


class TestRights:
    def test_rights_are_sent_to_machines_if_the_file_has_them(self):
        given = payload.users(cluster(users=[ALICE, {**BOB, "sudo": True, "containers": False}]))
        assert not {"sudo", "containers"} & set(given[0]), "payloads of clusters that are up stay as they are"
        assert (given[1].get("sudo"), given[1].get("containers")) == (True, False)

    def test_sudo_without_its_package_is_a_warning(self):
        users = [{**ALICE, "sudo": True}, {**BOB, "sudo": False}]
        (found,) = find_warnings(cluster(users=users))
        assert (found.id, found.where) == ("user-sudo-missing", "hpc:cluster.users[0].sudo")
        assert find_warnings(cluster(users=users, image={"base": "debian-13", "packages": ["sudo"]})) == []

    def test_sudo_beside_pam_slurm_adopt_is_a_warning(self):
        image = {"base": "debian-13", "packages": ["sudo"]}
        slurm = {"pam_slurm_adopt": True, "prolog_flags": ["Contain"]}
        (found,) = find_warnings(cluster(users=[{**ALICE, "sudo": True}], image=image, slurm=slurm))
        assert found.id == "user-sudo-adopt"
