"""The day after: logs, nodes out of service and back, who used what, and the records brought back after a loss."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import PATIENCE, Cluster, eventually

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def made(bring_up: Callable[..., Cluster]) -> Cluster:
    """Controller and login machine in one, a node, and one with stand-in GPUs."""
    return bring_up(
        "day",
        login={"on": "controller"},
        nodesets={"cpu": {"count": 1}, "gpu": {"count": 1, "machine_type": "local-2c-2gpu"}},
        partitions={"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}},
        users=[{"name": "alice", "uid": 2001, "account": "research"}, {"name": "bob", "uid": 2002}],
        accounting={"accounts": [{"name": "research"}]},
    )


@pytest.fixture
def day(made: Cluster) -> Iterator[Cluster]:
    """It, without the jobs of the test afterwards, and with its nodes in service."""
    yield made
    if made.inside("controller", "squeue --noheader"):
        made.inside("controller", "scontrol update nodename=ALL state=resume 2>/dev/null || true")
        made.inside("controller", "scancel --state=pending; scancel --state=running")
        eventually(lambda: made.inside("controller", "squeue --noheader") == "", what="the end of the jobs")


def job(cluster: Cluster, *options: str) -> str:
    """A job on the CPU node that runs for long."""
    return cluster.job("sleep infinity", f"--nodelist={cluster.name}-cpu-0", *options)


def node(cluster: Cluster, name: str) -> dict[str, str]:
    """States (IDLE+DRAIN) and reason of a node."""
    line = f"sinfo --noheader --nodes={cluster.name}-{name} --format='%E' | head -n 1"
    states = f"scontrol --oneliner show node {cluster.name}-{name} | grep -o ' State=[^ ]*'"
    reason, states = cluster.inside("controller", f"{line}; {states}").split("\n")
    return {"reason": reason, "states": states}


class TestLogs:
    def test_each_daemons_log_is_shown_from_where_it_is(self, day: Cluster):
        assert "slurmctld version" in day.said("logs", "slurmctld", "-n", "10000")
        assert "slurmdbd version" in day.said("logs", "slurmdbd", "-n", "10000")
        assert "MariaDB" in day.said("logs", "mariadb", "-n", "10000")
        assert "systemd" in day.said("logs", "controller", "-n", "10000")
        setup = day.said("logs", "setup", "-n", "10000")
        assert "day-cpu-0 | " in setup
        assert "started slurmd" in setup

    def test_those_of_several_machines_are_in_one_order_and_one_is_enough_on_request(self, day: Cluster):
        lines = [line.split(" | ", 1) for line in day.said("logs", "munge", "--since", "1h").splitlines()]
        assert {name.strip() for name, _ in lines} == {"day-controller", "day-cpu-0", "day-gpu-0"}
        times = [text[:19].replace(" ", "T") for _, text in lines]
        assert times == sorted(times)
        text = day.said("logs", "slurmd", "--on", "cpu-0", "-n", "10000")
        assert "slurmd version" in text
        assert " | " not in text

    def test_following_ends_with_ctrl_c_and_leaves_nothing_running(self, day: Cluster, tmp_path: Path):
        shown = tmp_path / "shown"
        with shown.open("wb") as out:
            process = day.start("logs", day.name, "slurmd", "-f", "-n", "0", out=out)
            followers = "pgrep -x tail || true"
            for name in ("cpu-0", "gpu-0"):
                eventually(lambda name=name: day.inside(name, followers) != "", what="a follower")
            line = "[2099-01-01T00:00:00.000] from a test"
            day.inside("gpu-0", f"echo '{line}' >>/var/log/slurm/slurmd.log")
            eventually(lambda: f"day-gpu-0 | {line}" in shown.read_text(), what="the line")
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 128 + signal.SIGINT
        for name in ("cpu-0", "gpu-0"):
            eventually(lambda name=name: day.inside(name, followers) == "", what="no follower")
        day.inside("gpu-0", "sed -i /2099/d /var/log/slurm/slurmd.log")


class TestNodes:
    def test_a_node_with_a_job_is_left_alone_until_told(self, day: Cluster):
        number = job(day, "--job-name=mine", "--time=1:00:00")
        refused = day.said("nodes", "drain", "cpu-0", "--reason", "fan", code=1)
        assert f"day-cpu-0: job {number} (mine) of alice on day-cpu-0: running for" in refused
        assert "left" in refused
        assert "nothing was done" in day.said("nodes", "reboot", "cpu-0", code=1)
        assert node(day, "cpu-0")["reason"] == "none"
        assert "draining, 1 job still running" in day.said("nodes", "drain", "cpu-0", "--reason", "fan", "--force")
        assert node(day, "cpu-0")["reason"] == "fan"
        assert "nothing was done" in day.said("nodes", "resume", "cpu-0", code=1)
        day.said("nodes", "resume", "cpu-0", "--force")
        assert day.state(number) == "RUNNING"

    def test_draining_waits_for_the_job_on_request(self, day: Cluster):
        number = job(day)
        process = day.start("nodes", day.name, "drain", "cpu-0", "--reason", "fan", "--wait")
        assert process.stdout
        assert f"Waiting for job {number} of alice on day-cpu-0" in process.stdout.readline()
        assert "DRAIN" in node(day, "cpu-0")["states"]
        assert process.poll() is None
        day.inside("controller", f"scancel {number}")
        text, _ = process.communicate(timeout=300)
        assert text.splitlines()[-1] == "day-cpu-0: drained"
        assert "is drained already" in day.said("nodes", "drain", "day-cpu-[0]", "--reason", "another")
        assert "day-cpu-0: idle" in day.said("nodes", "resume", "cpu-0").splitlines()
        assert "nothing to resume" in day.said("nodes", "resume", "cpu-0")

    def test_a_stuck_node_is_set_down_and_resumed(self, day: Cluster):
        number = job(day)
        day.inside("cpu-0", "systemctl kill --kill-whom=main --signal=STOP slurmd")
        day.inside("controller", f"scancel {number}; scontrol update nodename=day-cpu-0 state=drain reason=stuck")
        eventually(lambda: "COMPLETING" in node(day, "cpu-0")["states"], what="completing")
        process = day.start("nodes", day.name, "resume", "cpu-0")
        done = "grep -c 'update_node: node day-cpu-0 state set to DOWN' /var/log/slurm/slurmctld.log || true"
        before = int(day.inside("controller", done))
        eventually(lambda: int(day.inside("controller", done)) > before, what="DOWN")
        day.inside("cpu-0", "systemctl kill --kill-whom=main --signal=CONT slurmd")
        text, _ = process.communicate(timeout=300)
        assert "RESUME was not enough" in text
        assert text.splitlines()[-1] == "day-cpu-0: idle"
        assert day.run("srun", "hostname") == "day-cpu-0"

    def test_a_reboot_is_one_and_ends_as_it_began(self, day: Cluster):
        number = job(day)
        day.said("nodes", "drain", "gpu-0", "--reason", "row remap")
        before = day.boots()
        issued = "grep -c 'reboot request queued for nodes' /var/log/slurm/slurmctld.log || true"
        asked = int(day.inside("controller", issued))
        text = day.said("nodes", "reboot", "cpu-0", "gpu-0", "--force", "--reason", "kernel")
        # By slurmctld: one request for those that come back by themselves, one for those that stay drained.
        assert int(day.inside("controller", issued)) == asked + 2
        assert node(day, "cpu-0")["reason"] == "none"
        assert f"job {number} (wrap) of alice" in text
        assert {"day-cpu-0: idle", "day-gpu-0: drained, as it was before: row remap"} <= set(text.splitlines())
        after = day.boots()
        assert {name for name in after if after[name] != before[name]} == {"day-cpu-0", "day-gpu-0"}
        # The batch job waits again, for two minutes; a machine that rebooted by itself is no difference to `up`.
        assert " Restarts=1 " in day.inside("controller", f"scontrol --oneliner show job {number}")
        assert "Nothing to do" in day.up()
        day.said("nodes", "resume", "gpu-0")

    def test_a_reboot_waits_for_the_job_on_request_and_slurmctld_ends_it_alone(self, day: Cluster):
        number = job(day)
        before = day.boots()
        process = day.start("nodes", day.name, "reboot", "cpu-0", "--wait")
        eventually(lambda: "REBOOT_REQUESTED" in node(day, "cpu-0")["states"], what="the request")
        process.kill()
        process.communicate()
        assert (day.state(number), day.boots()) == ("RUNNING", before)
        day.inside("controller", f"scancel {number}")
        # What was cut off goes on by itself, and the same command follows it.
        assert "day-cpu-0: idle" in day.said("nodes", "reboot", "cpu-0", "--wait").splitlines()
        after = day.boots()
        assert [name for name in after if after[name] != before[name]] == ["day-cpu-0"]

    def test_a_node_that_slurmctld_does_not_reach_is_rebooted_all_the_same(self, day: Cluster):
        day.inside("cpu-0", "systemctl stop slurmd")
        # Once resumed it has to answer before it takes jobs.
        update = "scontrol update nodename=day-cpu-0 state="
        day.inside("controller", f"{update}down reason=silent; {update}resume")
        before = day.boots()
        assert "NOT_RESPONDING" in node(day, "cpu-0")["states"]
        assert "day-cpu-0: idle" in day.said("nodes", "reboot", "cpu-0").splitlines()
        assert day.boots() != before


class TestUsage:
    def test_it_is_what_sacct_says(self, day: Cluster):
        runs = job(day, "-n1")
        day.run("srun", "-n1", "sleep", "2")
        day.run("srun", "-p", "gpu", "--gpus=2", "-n1", "sleep", "1")
        last = "sacct -X -P -n -a -S now-1hours -u alice -o jobid,elapsedraw,state,alloccpus,alloctres | tail -n 1"
        eventually(lambda: "gres/gpu=2" in day.inside("controller", last), what="the job's record")
        rows = day.inside("controller", last.replace("tail -n 1", "cat")).splitlines()
        cells = [row.split("|") for row in rows if "COMPLETED" in row]
        told = json.loads(day.said("usage", "--json", "--by", "partition", "--user", "alice", "--since", "1h"))
        gpu = next(row for row in told["rows"] if row["partition"] == "gpu")
        assert gpu["gpu_seconds"] == 2 * sum(int(row[1]) for row in cells if "gres/gpu=2" in row[4]) > 0
        # Those that ended, and the one that runs, which counts until now.
        ended = sum(int(row[1]) * int(row[3]) for row in cells)
        assert ended >= 3
        assert told["total"]["cpu_seconds"] > ended
        assert 0 <= told["total"]["cpu_efficiency"] < 1
        assert any(row.startswith(f"{runs}|") and "RUNNING" in row for row in rows)

    def test_what_faults_cost_is_read_beside_it(self, day: Cluster):
        day.command("nodes", "drain", "gpu-0", "--reason", "new driver", "--force")
        found: dict = {}

        def is_out() -> bool:
            found.update(json.loads(day.said("reliability", "--json", "--since", "1h")))
            return found["hours"]["nodes_out_otherwise"] > 0

        eventually(is_out, what="the drained node's hours")
        day.command("nodes", "resume", "gpu-0")
        hours = found["hours"]
        assert (found["unit"], found["failures"], found["lemons"]) == ("gpu", 0, [])
        assert hours["capacity"] > hours["nodes_out_otherwise"]
        assert 0 < found["availability"] < 1
        assert "GPU hours, capacity" in day.said("reliability")

    def test_one_page_has_all_of_it(self, day: Cluster, tmp_path: Path):
        file = tmp_path / "report.html"
        expected = {"day-controller", "/home", "local-2c-2gpu", "alice", "research", "By account", "ETTR"}

        def missing() -> set[str]:
            assert day.said("report", "--output", str(file)).startswith(f"Wrote {file}")
            page = file.read_text()
            return {text for text in expected if text not in page} | ({"all"} if "ould not be read" in page else set())

        # Answers of machines come late on a busy host: each is a finding of the page.
        eventually(lambda: missing() == set(), what=f"a page with {', '.join(sorted(expected))}")


class TestAccounting:
    def test_lost_records_come_back_beside_running_jobs(self, day: Cluster, tmp_path: Path):
        day.run("srun", "--job-name=kept", "true")
        early = job(day, "-n1", "--job-name=early")
        names = "sacct -X -a -n -P -S now-1hours -o jobname,state"
        wanted = {"kept|COMPLETED", "early|RUNNING"}
        eventually(lambda: wanted <= {*day.inside("controller", names).splitlines()}, what="the records")
        file = tmp_path / "backup.sql.gz"
        # As another set-up does, which is waited for.
        day.inside("controller", "flock /run/hpc/setup.lock sleep 5 >/dev/null 2>&1 &")
        assert "job records" in day.said("accounting", "backup", str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        late = job(day, "-n1", "--job-name=late")
        eventually(lambda: "late|RUNNING" in day.inside("controller", names), what="the record")
        day.inside(
            "controller",
            "mariadb slurm_acct_db -e \"DELETE FROM day_job_table WHERE job_name = 'kept'; DROP TABLE qos_table\"",
        )
        assert "kept|" not in day.inside("controller", names)
        text = day.said("accounting", "restore", str(file), "--yes")
        assert "what was there is kept on the controller: /var/lib/hpc/accounting/before-restore-" in text
        listed = day.inside("controller", names)
        assert {"kept|COMPLETED", "early|RUNNING"} <= set(listed.splitlines())
        assert "late|" not in listed, "it began after the backup"
        assert (day.state(early), day.state(late)) == ("RUNNING", "RUNNING")
        day.inside("controller", f"scancel {late}")
        day.run("srun", "-p", "gpu", "--job-name=after", "true")
        eventually(lambda: "after|COMPLETED" in day.inside("controller", names), what="the next job's record")
        assert "Nothing to do" in day.up()

    def test_a_cluster_made_anew_takes_the_old_ones_records(self, day: Cluster, tmp_path: Path):
        day.run("srun", "--job-name=ancient", "true")
        names = "sacct -X -a -D -n -P -S now-1hours -o jobid,jobname,state"
        eventually(lambda: "ancient|COMPLETED" in day.inside("controller", names), what="the record")
        before = {line for line in day.inside("controller", names).splitlines() if line.endswith("|COMPLETED")}
        file = tmp_path / "backup.sql.gz"
        day.said("accounting", "backup", str(file))
        day.hpc("destroy")
        day.up()
        number = job(day, "--job-name=young")
        day.said("accounting", "restore", str(file), "--yes")
        after = set(day.inside("controller", names).splitlines())
        assert before <= after
        assert day.state(number) == "RUNNING"
        # Its number is that of a row of the old cluster, whose record its end leaves alone.
        day.inside("controller", f"scancel {number}")
        day.run("srun", "--job-name=next", "true")
        eventually(lambda: "next|COMPLETED" in day.inside("controller", names), what="the next job's record")
        assert before <= set(day.inside("controller", names).splitlines())
        number = job(day, "--job-name=young")
        # Its own state agrees with the restored records: it starts again.
        day.inside("controller", "systemctl restart slurmctld")
        eventually(lambda: day.state(number) == "RUNNING", what="slurmctld")
