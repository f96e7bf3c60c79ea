"""The day after: logs, nodes out of service and back, who used what, and the records brought back after a loss."""

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.asked import ENTERED, ask, node, said, state
from tests.e2e.cluster import ROOT, Cluster, eventually
from tests.e2e.lost_records import lost_records_come_back

pytestmark = pytest.mark.e2e

LATE = 240.0
"""Seconds for what Slurm does by itself: records reach the database every five, the rest sooner."""


@pytest.fixture(scope="module")
def made(clusters: Callable[..., Cluster]) -> Iterator[Cluster]:
    """Controller and login machine in one, a node, and one with stand-in GPUs."""
    cluster = clusters(
        "day",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 1}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
        users=[{"name": "alice", "uid": 2001, "account": "research"}, {"name": "bob", "uid": 2002}],
        accounting={"accounts": [{"name": "research"}]},
    )
    cluster.up()
    ENTERED.clear()
    yield cluster
    cluster.hpc("destroy", check=False)


_BEGUN: list[str] = []


@pytest.fixture
def day(made: Cluster) -> Iterator[Cluster]:
    """It, without the jobs of the test afterwards, and with its nodes in service."""
    yield made
    if _BEGUN:
        _BEGUN.clear()
        ask(made, "controller", "scontrol update nodename=ALL state=resume 2>/dev/null || true")
        wait = "timeout 30 sh -c 'while squeue -h | grep .; do sleep 0.2; done'"
        ask(made, "controller", f"scancel --state=pending; scancel --state=running; {wait}")


def job(cluster: Cluster, *options: str, node: str = "cpu-0") -> str:
    """A batch job of alice's that runs for long, once it runs."""
    words = ["sbatch", "--parsable", "--chdir=/tmp", f"--nodelist={cluster.name}-{node}", *options]
    number = cluster.run(*words, "--wrap", "sleep 600")
    _BEGUN.append(number)
    eventually(lambda: state(cluster, number) == "RUNNING", seconds=LATE, what=f"job {number}")
    return number


class TestLogs:
    def test_each_daemons_log_is_shown_from_where_it_is(self, day: Cluster):
        assert "slurmctld version" in said(day, "logs", "slurmctld", "-n", "10000")
        assert "slurmdbd version" in said(day, "logs", "slurmdbd", "-n", "10000")
        assert "MariaDB" in said(day, "logs", "mariadb", "-n", "10000")
        assert "systemd" in said(day, "logs", "controller", "-n", "10000")
        setup = said(day, "logs", "setup", "-n", "10000")
        assert "day-cpu-0 | " in setup
        assert "started slurmd" in setup

    def test_those_of_several_machines_are_in_one_order_and_one_is_enough_on_request(self, day: Cluster):
        lines = [line.split(" | ", 1) for line in said(day, "logs", "munge", "--since", "1h").splitlines()]
        assert {name.strip() for name, _ in lines} == {"day-controller", "day-cpu-0", "day-gpu-0"}
        times = [text[:19].replace(" ", "T") for _, text in lines]
        assert times == sorted(times)
        text = said(day, "logs", "slurmd", "--on", "cpu-0", "-n", "10000")
        assert "slurmd version" in text
        assert " | " not in text

    def test_a_log_that_is_not_there_and_one_without_news_are_named(self, day: Cluster):
        ask(day, "cpu-0", "mv /var/log/slurm/prolog.log /root/ 2>/dev/null; true")
        assert "day-cpu-0: there is no /var/log/slurm/prolog.log" in said(day, "logs", "prolog")
        assert "day-controller: nothing since 0s in" in said(day, "logs", "mariadb", "--since", "0s")

    def test_following_ends_with_ctrl_c_and_leaves_nothing_running(self, day: Cluster, tmp_path: Path):
        shown = tmp_path / "shown"
        with shown.open("wb") as out:
            process = subprocess.Popen(
                [str(ROOT / "hpc"), "logs", day.name, "slurmd", "-f", "-n", "0"],
                env=day.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            )  # fmt: skip
            followers = "pgrep -x tail || true"
            for name in ("cpu-0", "gpu-0"):
                eventually(lambda name=name: ask(day, name, followers) != "", seconds=LATE, what="a follower")
            line = "[2099-01-01T00:00:00.000] from a test"
            ask(day, "gpu-0", f"echo '{line}' >>/var/log/slurm/slurmd.log")
            eventually(lambda: f"day-gpu-0 | {line}" in shown.read_text(), seconds=LATE, what="the line")
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 128 + signal.SIGINT
        for name in ("cpu-0", "gpu-0"):
            eventually(lambda name=name: ask(day, name, followers) == "", seconds=LATE, what="no follower")
        ask(day, "gpu-0", "sed -i /2099/d /var/log/slurm/slurmd.log")

    def test_a_machine_that_is_dead_does_not_keep_the_others(self, day: Cluster):
        ask(day, "gpu-0", "systemctl stop ssh.socket ssh 2>/dev/null || systemctl kill --kill-whom=main ssh")
        try:
            text = said(day, "logs", "slurmd")
        finally:
            day.cut_power("gpu-0")
            day.up()
        assert "day-gpu-0: does not answer" in text
        assert "day-cpu-0 | " in text


class TestNodes:
    def test_a_node_with_a_job_is_left_alone_until_told(self, day: Cluster):
        number = job(day, "--job-name=mine", "--time=1:00:00")
        refused = said(day, "nodes", "drain", "cpu-0", "--reason", "fan", code=1)
        assert f"day-cpu-0: job {number} (mine) of alice: running for" in refused
        assert "left" in refused
        assert "nothing was done" in said(day, "nodes", "reboot", "cpu-0", code=1)
        assert node(day, "cpu-0")["reason"] == "none"
        assert "draining, 1 job still running" in said(day, "nodes", "drain", "cpu-0", "--reason", "fan", "--force")
        assert node(day, "cpu-0")["reason"] == "fan"
        assert "nothing was done" in said(day, "nodes", "resume", "cpu-0", code=1)
        said(day, "nodes", "resume", "cpu-0", "--force")
        assert state(day, number) == "RUNNING"

    def test_draining_waits_for_the_job_on_request(self, day: Cluster):
        number = job(day)
        process = subprocess.Popen(
            [str(ROOT / "hpc"), "nodes", day.name, "drain", "cpu-0", "--reason", "fan", "--wait"],
            env=day.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert process.stdout
        assert f"Waiting for job {number} of alice on day-cpu-0" in process.stdout.readline()
        assert "DRAIN" in node(day, "cpu-0")["states"]
        assert process.poll() is None
        ask(day, "controller", f"scancel {number}")
        text, _ = process.communicate(timeout=300)
        assert text.splitlines()[-1] == "day-cpu-0: drained"
        assert "is drained already" in said(day, "nodes", "drain", "day-cpu-[0]", "--reason", "another")
        assert "day-cpu-0: idle" in said(day, "nodes", "resume", "cpu-0").splitlines()
        assert "nothing to resume" in said(day, "nodes", "resume", "cpu-0")

    def test_a_stuck_node_is_set_down_and_resumed(self, day: Cluster):
        number = job(day)
        ask(day, "cpu-0", "systemctl kill --kill-whom=main --signal=STOP slurmd")
        ask(day, "controller", f"scancel {number}; scontrol update nodename=day-cpu-0 state=drain reason=stuck")
        eventually(lambda: "COMPLETING" in node(day, "cpu-0")["states"], seconds=LATE, what="completing")
        process = subprocess.Popen(
            [str(ROOT / "hpc"), "nodes", day.name, "resume", "cpu-0"],
            env=day.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        done = "grep -c 'update_node: node day-cpu-0 state set to DOWN' /var/log/slurm/slurmctld.log || true"
        before = int(ask(day, "controller", done))
        eventually(lambda: int(ask(day, "controller", done)) > before, seconds=LATE, what="DOWN")
        ask(day, "cpu-0", "systemctl kill --kill-whom=main --signal=CONT slurmd")
        text, _ = process.communicate(timeout=300)
        assert "RESUME was not enough" in text
        assert text.splitlines()[-1] == "day-cpu-0: idle"
        assert day.run("srun", "hostname") == "day-cpu-0"

    def test_a_reboot_is_one_and_ends_as_it_began(self, day: Cluster):
        number = job(day)
        said(day, "nodes", "drain", "gpu-0", "--reason", "row remap")
        before = day.boots()
        issued = "grep -c 'reboot request queued for nodes' /var/log/slurm/slurmctld.log || true"
        asked = int(ask(day, "controller", issued))
        text = said(day, "nodes", "reboot", "cpu-0", "gpu-0", "--force", "--reason", "kernel")
        # By slurmctld: one request for those that come back by themselves, one for those that stay drained.
        assert int(ask(day, "controller", issued)) == asked + 2
        assert node(day, "cpu-0")["reason"] == "none"
        assert f"job {number} (wrap) of alice" in text
        assert {"day-cpu-0: idle", "day-gpu-0: drained, as it was before: row remap"} <= set(text.splitlines())
        after = day.boots()
        assert {name for name in after if after[name] != before[name]} == {"day-cpu-0", "day-gpu-0"}
        # The batch job waits again; a machine that rebooted by itself is no difference to `up`.
        assert state(day, number) == "PENDING"
        assert "Nothing to do" in day.up()
        said(day, "nodes", "resume", "gpu-0")

    def test_a_reboot_waits_for_the_job_on_request_and_slurmctld_ends_it_alone(self, day: Cluster):
        number = job(day)
        before = day.boots()
        process = subprocess.Popen(
            [str(ROOT / "hpc"), "nodes", day.name, "reboot", "cpu-0", "--wait"],
            env=day.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        eventually(lambda: "REBOOT_REQUESTED" in node(day, "cpu-0")["states"], seconds=LATE, what="the request")
        process.kill()
        process.communicate()
        assert (state(day, number), day.boots()) == ("RUNNING", before)
        ask(day, "controller", f"scancel {number}")
        # What was cut off goes on by itself, and the same command follows it.
        assert "day-cpu-0: idle" in said(day, "nodes", "reboot", "cpu-0", "--wait").splitlines()
        after = day.boots()
        assert [name for name in after if after[name] != before[name]] == ["day-cpu-0"]

    def test_a_node_that_slurmctld_does_not_reach_is_rebooted_all_the_same(self, day: Cluster):
        ask(day, "cpu-0", "systemctl stop slurmd")
        # Once resumed it has to answer before it takes jobs.
        update = "scontrol update nodename=day-cpu-0 state="
        ask(day, "controller", f"{update}down reason=silent; {update}resume")
        before = day.boots()
        assert "NOT_RESPONDING" in node(day, "cpu-0")["states"]
        assert "day-cpu-0: idle" in said(day, "nodes", "reboot", "cpu-0").splitlines()
        assert day.boots() != before

    def test_unknown_nodes_are_named_together_and_nothing_is_done(self, day: Cluster):
        refused = said(day, "nodes", "drain", "cpu-[0-1]", "gppu-0", "--reason", "x", code=1)
        assert "no node 'cpu-1'" in refused
        assert "no node 'gppu-0'. Did you mean day-gpu-0?" in refused
        assert node(day, "cpu-0")["reason"] == "none"


class TestUsage:
    def test_it_is_what_sacct_says(self, day: Cluster):
        runs = job(day, "-n1")
        day.run("srun", "-n1", "sleep", "2")
        day.run("srun", "-p", "gpu", "--gpus=2", "-n1", "sleep", "1")
        last = "sacct -X -P -n -a -S now-1hours -u alice -o jobid,elapsedraw,state,alloccpus,alloctres | tail -n 1"
        eventually(lambda: "gres/gpu=2" in ask(day, "controller", last), seconds=LATE, what="the job's record")
        rows = ask(day, "controller", last.replace("tail -n 1", "cat")).splitlines()
        cells = [row.split("|") for row in rows if "COMPLETED" in row]
        told = json.loads(said(day, "usage", "--json", "--by", "partition", "--user", "alice", "--since", "1h"))
        gpu = next(row for row in told["rows"] if row["partition"] == "gpu")
        assert gpu["gpu_seconds"] == 2 * sum(int(row[1]) for row in cells if "gres/gpu=2" in row[4]) > 0
        # Those that ended, and the one that runs, which counts until now.
        ended = sum(int(row[1]) * int(row[3]) for row in cells)
        assert ended >= 3
        assert told["total"]["cpu_seconds"] > ended
        assert any(row.startswith(f"{runs}|") and "RUNNING" in row for row in rows)


class TestAccounting:
    def test_lost_records_come_back_beside_a_running_job(self, day: Cluster, tmp_path: Path):
        day.run("srun", "--job-name=kept", "true")
        early = job(day, "-n1", "--job-name=early")
        names = "sacct -X -a -n -P -S now-1hours -o jobname,state"
        eventually(lambda: "early|RUNNING" in ask(day, "controller", names), seconds=LATE, what="the records")
        file = tmp_path / "backup.sql.gz"
        assert "job records" in said(day, "accounting", "backup", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        late = job(day, "-n1", "--job-name=late")
        eventually(lambda: "late|RUNNING" in ask(day, "controller", names), seconds=LATE, what="the record")
        ask(
            day,
            "controller",
            "mariadb slurm_acct_db -e \"DELETE FROM day_job_table WHERE job_name = 'kept'; DROP TABLE qos_table\"",
        )
        assert "kept|" not in ask(day, "controller", names)
        text = said(day, "accounting", "restore", str(file), "--yes")
        assert "what was there is kept on the controller: /var/lib/hpc/accounting/before-restore-" in text
        listed = ask(day, "controller", names)
        assert {"kept|COMPLETED", "early|RUNNING", "late|RUNNING"} <= set(listed.splitlines())
        assert (state(day, early), state(day, late)) == ("RUNNING", "RUNNING")
        ask(day, "controller", f"scancel {late}")
        day.run("srun", "-p", "gpu", "--job-name=after", "true")
        for line in ("late|CANCELLED", "after|COMPLETED"):
            eventually(lambda line=line: line in ask(day, "controller", names), seconds=LATE, what=line)
        assert "Nothing to do" in day.up()

    def test_records_that_a_killed_slurmctld_took_with_it_are_rebuilt(self, day: Cluster):
        lost_records_come_back(day)

    def test_it_is_for_this_cluster_whole_and_asked_for(self, day: Cluster, tmp_path: Path):
        file = tmp_path / "backup.sql.gz"
        said(day, "accounting", "backup", str(file))
        assert "is there already" in said(day, "accounting", "backup", str(file), code=1)
        assert "needs --yes" in said(day, "accounting", "restore", str(file), code=1)
        cut = tmp_path / "cut.sql.gz"
        cut.write_bytes(file.read_bytes()[:-20])
        assert "cut off" in said(day, "accounting", "restore", str(cut), "--yes", code=1)
        assert {path.name for path in tmp_path.iterdir()} == {"backup.sql.gz", "cut.sql.gz"}

    def test_a_cluster_made_anew_takes_the_old_ones_records(self, day: Cluster, tmp_path: Path):
        day.run("srun", "--job-name=ancient", "true")
        names = "sacct -X -a -D -n -P -S now-1hours -o jobid,jobname,state"
        eventually(lambda: "ancient|COMPLETED" in ask(day, "controller", names), seconds=LATE, what="the record")
        before = {line for line in ask(day, "controller", names).splitlines() if line.endswith("|COMPLETED")}
        file = tmp_path / "backup.sql.gz"
        said(day, "accounting", "backup", str(file))
        day.hpc("destroy")
        day.up()
        ENTERED.clear()
        number = job(day, "--job-name=young")
        said(day, "accounting", "restore", str(file), "--yes")
        after = set(ask(day, "controller", names).splitlines())
        assert before <= after
        assert f"{number}|young|RUNNING" in after
        # No number twice: sacct would show the newest of them only.
        numbers = [int(line.split("|")[0]) for line in before]
        assert int(day.run("sbatch", "--parsable", "--chdir=/tmp", "--wrap", "true")) > max(numbers)
        # Its own state agrees with the restored records: it starts again.
        ask(day, "controller", "systemctl restart slurmctld")
        eventually(lambda: state(day, number) == "RUNNING", seconds=LATE, what="slurmctld")
