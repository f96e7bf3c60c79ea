"""Jobs that end while MariaDB is down, and that slurmctld forgets before it is killed: no record of them ever was."""

import shlex
import time

from tests.e2e.cluster import Cluster, eventually

FORGED = r"""a\n{"job_id":77,"submit_time":1}\nJobId=88 ', 1); DROP TABLE qos_table; -- "\\ \303\244\377"""
"""A name with line breaks, a line of another job, SQL, quotes, a backslash, UTF-8 and a byte that is none (printf)."""
NOTED = "/var/log/slurm/job_completions.log"
EARLIER = f"""import json, pathlib, sys
file = pathlib.Path({NOTED!r})
jobs = [json.loads(line) for line in file.read_bytes().split(b"\\n")[1:]]
for job in jobs:
    if str(job["job_id"]) in sys.argv[1:]:
        job.update((key, job[key] - 7200) for key in ("submit_time", "start_time", "end_time"))
file.write_text("".join("\\n" + json.dumps(job) for job in jobs))"""
"""Two hours earlier: sreport counts whole hours."""


def lost_records_come_back(cluster: Cluster) -> None:
    """Lose the records of two jobs of alice's beside one that runs, and rebuild them."""

    def controller(line: str) -> str:
        return cluster.inside("controller", line, check=False)

    def submit(command: str, name: str = "x") -> str:
        given = f'cd /tmp; runuser -u alice -- sbatch --parsable --output=/dev/null -n1 --job-name="$(printf {name})"'
        return controller(f"{given} --wrap {shlex.quote(command)}")

    def forget_after(seconds: int) -> None:
        controller(f"sed -i 's/^MinJobAge=.*/MinJobAge={seconds}/' /etc/slurm/slurm.conf && scontrol reconfigure")

    goes_on = submit("sleep infinity")
    shown = "sacct -XnP -o state,account,exitcode,cputimeraw,systemcomment -j"
    eventually(lambda: controller(f"{shown} {goes_on}").startswith("RUNNING"), what="its record")
    account = controller(f"{shown} {goes_on}").split("|")[1]
    forget_after(5)
    controller("systemctl stop mariadb")
    lost = [submit("sleep 3; exit 3"), submit("true", shlex.quote(FORGED))]
    known = f"squeue --noheader --states=all --jobs={','.join(lost)} --format=%A 2>/dev/null"
    eventually(lambda: not controller(known), what="slurmctld's forgetting")
    # It saves what it knows within five seconds of a change of a job; not what waits for slurmdbd.
    controller(f"scontrol update jobid={goes_on} comment=x")
    time.sleep(7)
    assert "slurmdbd has not taken yet" in cluster.said("accounting", "rebuild", code=1)
    controller("pkill -KILL -x slurmctld; systemctl start mariadb")
    eventually(lambda: controller("scontrol ping").endswith("UP"), what="slurmctld")
    try:
        assert not controller(known)
        # The first rollup, at slurmdbd's start too, begins with the cluster.
        controller("systemctl restart slurmdbd")
        table = f"mariadb -N slurm_acct_db -e 'SELECT {{}} FROM {cluster.name}_{{}}'"  # noqa: S608 - the test's own
        rolled = table.format("hourly_rollup", "last_ran_table")
        eventually(lambda: controller(rolled) != "", what="the first rollup")
        controller(f"python3 -c {shlex.quote(EARLIER)} {' '.join(lost)}")
        unrecorded = f"2 jobs ended, and the accounting does not have them: {', '.join(lost)}"
        eventually(lambda: unrecorded in str(cluster.findings().get("jobs-unrecorded")), what="the finding")
        told = cluster.said("accounting", "rebuild", code=1)
        assert "writing 2 records without a terminal needs --yes" in told
        assert [line.split()[:5] for line in told.splitlines() if line.split()[0] in lost] == [
            [number, "alice", account, "cpu", state]
            for number, state in zip(lost, ("FAILED", "COMPLETED"), strict=True)
        ]
        assert controller(f"{shown} {','.join(lost)}") == ""
        assert "wrote the records of 2 jobs" in cluster.said("accounting", "rebuild", "--yes")
        assert "No ended job" in cluster.said("accounting", "rebuild", "--yes")
        failed, forger = controller(f"{shown} {','.join(lost)} -S now-1days").splitlines()
        assert failed.startswith(f"FAILED|{account}|3:0|")
        assert forger.startswith(f"COMPLETED|{account}|0:0|")
        assert failed.endswith("|rebuilt from job_completions.log")
        assert controller("sacct -Xn -j 77,88 -S now-1days") == ""
        assert controller("mariadb -N slurm_acct_db -e 'SELECT COUNT(*) FROM qos_table'") != ""
        assert cluster.state(goes_on) == "RUNNING"
        # It counts usage at its start, and every hour. sreport adds these up, in hours that the cluster has seen.
        controller("systemctl restart slurmdbd")
        counted = table.format(
            "SUM(alloc_secs)", "assoc_usage_hour_table WHERE id_tres = 1 AND time_start < UNIX_TIMESTAMP() - 5400"
        )
        used = sum(int(line.split("|")[3]) for line in (failed, forger))
        assert used > 0
        eventually(lambda: controller(counted) == str(used), what="the usage")
        # slurmctld's next records take no row of theirs.
        after = submit("true")
        eventually(lambda: controller(f"{shown} {after}").startswith("COMPLETED"), what="a record")
        assert len(controller(f"{shown} {','.join(lost)} -S now-1days").splitlines()) == 2
        assert "jobs-unrecorded" not in cluster.findings()
    finally:
        forget_after(300)
        controller(f"scancel {goes_on}")
