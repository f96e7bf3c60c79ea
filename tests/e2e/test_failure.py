"""What goes wrong in a cluster and around it ends with what to do, nothing is lost by it, and the next `up` goes on."""

import copy
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from components.local.host import machine
from tests.e2e.cluster import Cluster, eventually
from tests.e2e.faults import saved

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def ill(bring_up: Callable[..., Cluster]) -> Cluster:
    """A small cluster that is made to suffer; it waits for jobs that slurmctld misses only briefly."""
    return bring_up(
        "ill",
        image={"base": "debian-12"},
        login={"on": "controller"},
        nodesets={"cpu": {"count": 2}},
        slurm={"timers": {"batch_start": 30, "message": 10}},
    )


def test_a_node_that_does_not_come_is_named_with_the_end_of_its_logs(ill: Cluster):
    ill.inside("cpu-1", "groupadd --gid 4000 eve")
    ill.edit(lambda c: c["users"].append({"name": "eve", "uid": 2009}))
    ill.edit(lambda c: c["slurm"].update(join_seconds=25))
    failed = ill.hpc("up", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    # On a busy host the other one may be late as well.
    assert re.search(r"[12] of the cluster's nodes did not come within 25 s: .*ill-cpu-(1|\[0-1\])", said), said
    assert "its set-up failed: group eve has gid 4000 on this machine, the stack says 2009" in said
    assert "hpc-node.service: Failed with result" in said, "the end of the node's journal"
    ill.inside("cpu-1", "groupdel eve")
    ill.edit(lambda c: c["slurm"].pop("join_seconds"))
    ill.up()
    assert ill.run("srun", "-N2", "id", "-u", user="eve").split() == ["2009", "2009"]


END = "/home/alice/end"


@pytest.fixture(scope="module")
def missed(ill: Cluster) -> str:
    """A job that has run for a while, as `status` names only those that began a minute ago; it ends with a file."""
    script = f"rm -f {END}; until [ -e {END} ]; do sleep 1; done"
    return ill.job(script, "-w", "ill-cpu-1", user="root")


KILLS = """cat > /usr/local/bin/sacctmgr <<'X'
#!/bin/sh
[ "$1" = --immediate ] || exec /usr/bin/sacctmgr "$@"
echo >> /run/told
[ "$(wc -l < /run/told)" -ne 2 ] || { %s; kill -9 $PPID; exit 1; }
exec /usr/bin/sacctmgr "$@"
X
chmod 755 /usr/local/bin/sacctmgr; rm -f /run/told"""
"""The second change of the accounting is the last one of its set-up."""


@pytest.mark.usefixtures("missed")
def test_accounting_that_was_killed_is_finished_or_taken_back_by_the_next_up(ill: Cluster):
    def edit(c: dict[str, Any]) -> None:
        c["accounting"] = {
            "accounts": [{"name": "lab"}, {"name": "team", "parent": "lab", "fairshare": 4}],
            "qos": [{"name": "short", "priority": 7, "max_tres_per_user": {"cpu": 2}}],
        }
        for user in c["users"]:
            user["account"] = "team"
        c["users"][0]["qos"] = ["normal", "short"]

    before = ill.copy()
    # The last command came to nothing, then it came to its end.
    for config, command in {"edited": "true", "before": '/usr/bin/sacctmgr "$@" >/dev/null 2>&1'}.items():
        ill.inside("controller", KILLS % command)
        ill.edit(edit)
        failed = ill.hpc("up", check=False)
        ill.inside("controller", "rm /usr/local/bin/sacctmgr")
        assert failed.returncode == 1, failed.stdout
        assert ill.inside("controller", "wc -l < /run/told") == "2"
        if config == "before":
            ill.revert(before)
        ill.up()
        eventually(lambda: ill.call("drift", ill.name).returncode == 0, what="nothing that differs")
        shown = ill.inside("controller", "sacctmgr -nP show qos format=name,priority,maxtrespu")
        assert ("short|7|cpu=2" in shown) == (config == "edited")
        if config == "edited":
            # An account whose parent stays, and a limit of resources that goes.
            ill.edit(lambda c: c["accounting"]["accounts"][1].update(fairshare=9))
            ill.edit(lambda c: c["accounting"]["qos"][0].pop("max_tres_per_user"))
            ill.up()
            eventually(lambda: ill.call("drift", ill.name).returncode == 0, what="nothing that differs")
            ill.revert(before)
            ill.up()


def test_another_state_does_not_make_it_anew(ill: Cluster, tmp_path: Path):
    boots = ill.boots()
    other = copy.copy(ill)
    other.env = {**ill.env, "HPC_HOME": str(tmp_path)}
    refused = other.hpc("up", check=False)
    assert refused.returncode == 1
    assert f"with the state in file://{ill.env['HPC_HOME']}" in refused.stderr
    assert "To remove it with its jobs and shared folders: ./hpc destroy ill --leftovers" in other.hpc("destroy").stderr
    assert ill.boots() == boots


def test_a_job_that_ended_while_slurmctld_was_away_is_ended_and_no_other(ill: Cluster, missed: str):
    """slurmctld is killed after it heard of a job's end and before it saved that: it takes the job to be running."""
    live = ill.job("sleep infinity", "-w", "ill-cpu-0", user="root")
    both = ill.job("sleep infinity", "-N2", "--oversubscribe", "-n2", user="root")
    saved(ill, live)
    ill.inside(
        "controller",
        f"""cd /var/spool/slurmctld; cp -a job_state /root/job_state; touch {END}
        while squeue -h -t R,CG -o %A | grep -qx {missed}; do sleep 0.2; done
        kill -9 $(pidof slurmctld); cp -a /root/job_state job_state
        until scontrol ping >/dev/null 2>&1; do sleep 0.2; done""",
    )
    running = "squeue -h -t R -o '%A %S'"
    before = dict(line.split() for line in ill.inside("controller", running).splitlines())
    assert {live, both, missed} <= set(before)
    eventually(lambda: "jobs-missing" in ill.findings(), what="the finding")
    eventually(
        lambda: missed not in ill.inside("controller", "squeue -h -t R -o %A").split(),
        what="the end of the job",
    )
    after = dict(line.split() for line in ill.inside("controller", running).splitlines())
    assert {number: after.get(number) for number in (live, both)} == {number: before[number] for number in (live, both)}
    assert f"job {missed} is on none of its nodes" in ill.inside("controller", "journalctl -u hpc-lost-jobs --no-pager")
    ill.inside("controller", f"scancel {live} {both} {missed}; rm -f {END}")


def test_a_controller_made_anew_goes_on_with_its_jobs_and_their_records(ill: Cluster):
    ill.run("srun", "--job-name", "before", "true")
    go = "/home/alice/go"
    script = f"while [ ! -e {go} ]; do sleep 1; done"
    number = ill.job(script)
    before = ill.outputs()["machines"]["ill-controller"]["host_key"]
    # In its order: what slurmctld has not written down yet, it does then.
    ill.inside("controller", "systemctl stop slurmctld slurmdbd mariadb")
    machine.delete(machine.bare(ill.root, "ill", "ill-controller"))

    ill.edit(lambda c: c["users"].pop())
    ill.up()
    assert ill.outputs()["machines"]["ill-controller"]["host_key"] != before
    # The job before may have ended without slurmctld: its node says so again.
    eventually(
        lambda: ill.run("squeue", "-h", "-o", "%i %T") == f"{number} RUNNING", what="the running job alone in the queue"
    )
    ill.run("touch", go)
    eventually(
        lambda: (number, "COMPLETED") in {tuple(line.split("|")) for line in _records(ill)},
        what="the end of the job that ran meanwhile",
    )
    assert any(line.startswith("before|") for line in _records(ill, "jobname,state"))
    assert ill.inside("controller", "sacctmgr -nP show user format=user where user=eve") == ""


def _records(cluster: Cluster, fields: str = "jobid,state") -> list[str]:
    return cluster.run("sacct", "-X", "-n", "-P", f"--format={fields}").splitlines()


def test_ctrl_c_ends_with_130_and_words_and_the_next_up_completes(ill: Cluster):
    ill.edit(lambda c: c["nodesets"]["cpu"].update(count=3))
    with ill.start("up", ill.name, "--config-file", str(ill.file)) as running:
        machine = ill.root / "stacks" / ill.name / "machines" / f"{ill.name}-cpu-2"
        eventually(machine.exists, what="the third node's making")
        os.kill(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=300)
    assert running.returncode == 130, said
    assert "Stopping: what has begun is finished, nothing new is begun." in said
    assert f"What was done is kept: ./hpc up {ill.name} goes on from here." in said
    assert "Traceback" not in said
    ill.up()
    assert len(ill.run("srun", "-N3", "hostname").splitlines()) == 3
    assert "Nothing to do" in ill.up()


def test_a_machine_that_does_not_answer_is_given_up_with_its_console_and_comes_back(ill: Cluster):
    ill.inside("controller", "systemctl stop ssh.service ssh.socket 2>/dev/null; true")
    ill.edit(lambda c: c["partitions"]["cpu"].update(max_time="02:00:00"))
    failed = ill.hpc("up", check=False)
    said = failed.stdout + failed.stderr
    assert failed.returncode == 1
    assert re.search(r"\b10\.\d+\.\d+\.\d+: no SSH connection after \d+ attempts?: .*Connection refused", said)
    assert f"Machine {ill.name}-controller runs, but does not answer SSH; the last lines of its console:" in said
    assert "ssh.service" in said, "the end of the console"
    hint = re.search(r"its disk as it is: kill -KILL (\d+); \./hpc up ill", said)
    assert hint, said
    os.kill(int(hint[1]), signal.SIGKILL)
    ill.up()
    assert "02:00:00" in ill.run("scontrol", "show", "partition", "cpu")
    assert ill.run("srun", "hostname")


UNREAD = "/run/systemd/system/munge.service.d"


def test_a_killed_up_is_finished_by_the_next(ill: Cluster):
    ill.edit(lambda c: c["nodesets"]["cpu"].update(count=4))
    running = ill.start("up", ill.name, "--config-file", str(ill.file))
    eventually((ill.root / "stacks" / ill.name / "machines" / "ill-cpu-3").exists, what="the fourth node's making")
    os.kill(running.pid, signal.SIGKILL)
    running.communicate()
    # As when it was killed between a unit's file and systemd's reading it.
    ill.inside("controller", "touch /run/hpc-unread-units")
    ill.inside("controller", f"mkdir -p {UNREAD}; printf '[Unit]\\nDescription=New\\n' > {UNREAD}/killed.conf")
    ill.up()
    assert ill.inside("controller", "systemctl show --property=Description --value munge").strip() == "New"
    assert len(ill.run("srun", "-N4", "-O", "hostname").splitlines()) == 4
    assert "Nothing to do" in ill.up()
