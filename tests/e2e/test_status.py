"""`status` says that a healthy cluster is one; `drift` names what hands changed, and mends it beside a running job."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

# A file and what runs with it, a partition, people, limits, a daemon: each by the tool that a hand would take.
BY_HAND = {
    "controller": """
        sed -i 's/^KillWait=30/KillWait=31/' /etc/slurm/slurm.conf
        scontrol reconfigure
        scontrol update partitionname=cpu maxtime=60
        sacctmgr -i modify qos where name=urgent set MaxWall=02:00:00
        sacctmgr -i modify user where name=alice set MaxJobs=1
    """,
    "cpu-0": """
        usermod --shell /bin/sh alice; groupadd --gid 4444 theirs
        chmod 644 /etc/munge/munge.key /etc/hpc/munge.key
    """,
    "login-0": "userdel bob; systemctl stop munge",
}
NAMED = {
    "munge", "slurm.conf, line", "running value of KillWait", "partition cpu: MaxTime", "slurmd's copy of slurm.conf",
    "/etc/munge/munge.key: mode", "/etc/hpc/munge.key: mode",
    "user alice: shell", "user bob", "QOS urgent: MaxWall", "user alice in research: MaxJobs",
}  # fmt: skip


@pytest.fixture(scope="module")
def seen(bring_up: Callable[..., Cluster]) -> Cluster:
    """A controller, a login machine and a node."""
    return bring_up(
        "seen",
        nodesets={"cpu": {"count": 1}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True, "max_time": "24:00:00"}},
        users=[
            {"name": "alice", "uid": 2001, "account": "research", "qos": ["normal", "urgent"]},
            {"name": "bob", "uid": 2002, "account": "research"},
        ],
        accounting={"accounts": [{"name": "research"}], "qos": [{"name": "urgent", "max_wall": "24:00:00"}]},
    )


def ask(cluster: Cluster, command: str) -> dict[str, Any]:
    """The document that a command prints."""
    done = cluster.call(command, cluster.name, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    return found


def all_is_well(cluster: Cluster) -> bool:
    found = ask(cluster, "status")
    assert found["findings"] == []  # a red test prints them
    return found["ok"]


def nothing_differs(cluster: Cluster) -> bool:
    assert ask(cluster, "drift") == {"stack": cluster.name, "ok": True, "differences": [], "unseen": []}
    return True


class TestHealthy:
    def test_all_is_well_and_nothing_differs(self, seen: Cluster):
        printed = seen.command("status")
        assert printed.startswith("seen: all is well: 1 node idle, 0 jobs.\n")
        assert "seen-cpu-0" in printed
        same = "seen: nothing differs from the stack.\n"
        eventually(lambda: seen.call("drift", "seen").stdout == same, what=same)

    def test_every_part_of_every_machine_can_be_read_and_none_is_secret(self, seen: Cluster):
        found = ask(seen, "status")
        assert found["findings"] == []
        text = json.dumps(found)
        assert '"error"' not in text
        password = seen.inside("controller", "cat /etc/hpc/database-password")
        assert len(password) > 20
        assert password not in text
        assert seen.inside("controller", "cat /etc/hpc/munge.key") not in text
        assert "PRIVATE KEY" not in text

    def test_it_answers_while_a_set_up_holds_its_lock(self, seen: Cluster):
        held = "exec 9>/run/hpc/setup.lock; flock 9; timeout 300 python3 /usr/local/lib/hpc/node look"
        assert json.loads(seen.inside("controller", held))["roles"] == ["controller"]


NODE, BOARD = "/usr/local/lib/hpc/node", "/opt/apps/adm/hpc"


@pytest.mark.parametrize(
    "damage",
    [
        {
            "setup-missing": ("cpu-0", f"echo 'x y z' >{NODE}/collect.py"),
            "cluster-state-damaged": ("controller", f"sed -i s/alice/mallory/ {BOARD}/cluster.json"),
        },
        {"setup-missing": ("controller", f"rm -r {NODE}; echo nonsense >{BOARD}/cluster.json")},
        {"cluster-state-damaged": ("controller", f"rm -r {BOARD}; echo x >{BOARD}")},
    ],
    ids=["node", "controller", "folder"],
)
def test_what_is_damaged_is_mended_by_the_command_that_is_advised(seen: Cluster, damage: dict[str, tuple[str, str]]):
    for machine, script in damage.values():
        seen.inside(machine, script)
    found: dict[str, dict[str, Any]] = {}

    def named() -> bool:
        found.update({finding["id"]: finding for finding in ask(seen, "status")["findings"]})
        return damage.keys() <= found.keys()

    # On a busy host a machine may answer too late.
    eventually(named, what=f"the findings {', '.join(damage)}")
    for kind in damage:
        assert found[kind]["todo"] == "./hpc drift seen --mend"
    seen.command("drift", "--mend")
    eventually(lambda: all_is_well(seen), what="a status without findings")


def test_a_failed_edit_goes_back_and_its_rest_with_the_file(seen: Cluster):
    before = seen.copy()
    seen.edit(lambda c: c.update(slurm={"extra": {"PriorityType": "priority/nonsense"}}))
    seen.edit(lambda c: c["users"].append({"name": "eve", "uid": 2009}))
    failed = seen.hpc("up", check=False)
    assert failed.returncode == 1
    assert "cannot find priority plugin for priority/nonsense" in failed.stdout
    assert "The edit did not take effect" in failed.stdout
    assert seen.run("srun", "hostname").startswith("seen-cpu-"), "with the files from before"
    assert seen.inside("controller", "id -u eve") == "2009"
    seen.revert(before)
    assert "the last run failed; running it again with the input of the one before" in seen.up()
    assert seen.inside("controller", "id -u eve || echo gone").endswith("gone")
    # Nodes take a new config version by themselves, a moment later.
    eventually(lambda: seen.inside("cpu-0", "id -u eve || echo gone").endswith("gone"), what="the node's users")
    eventually(lambda: nothing_differs(seen), what="a drift without differences")
    assert "did not end well" not in seen.up()


def test_what_hands_changed_is_named_and_mended_beside_a_job(seen: Cluster):
    job = seen.job("sleep infinity")
    for machine, script in BY_HAND.items():
        seen.inside(machine, script)
    found: list[dict[str, Any]] = []

    def missed() -> set[str]:
        found[:] = ask(seen, "drift")["differences"]
        return {name for name in NAMED if not any(finding["what"].startswith(name) for finding in found)}

    # Nodes take a reconfigure a moment later.
    eventually(lambda: not missed(), what=f"all of {sorted(NAMED)}")
    assert not any("theirs" in finding["what"] for finding in found), (
        "a group that we did not make is not ours to judge"
    )
    seen.command("drift", "--mend")
    eventually(lambda: nothing_differs(seen), what="a drift without differences")
    eventually(lambda: all_is_well(seen), what="a status without findings")
    assert seen.state(job) == "RUNNING"
    assert "MaxTime=1-00:00:00" in seen.inside("controller", "scontrol show partition cpu")
    seen.inside("controller", f"scancel {job}")
