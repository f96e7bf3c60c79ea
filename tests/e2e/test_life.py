"""A cluster's life: it comes up working, stays so, and destroy leaves nothing."""

import re
from pathlib import Path

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

# What the daemons write when all is well: first start without a state, a virtual machine's slow clock, a client that
# was done before the last answer, a new cluster whose first association slurmdbd (24.11) has not in its cache yet, a
# busy host, on which messages take long, and an external step that cleans up while its X11 forwarding is ended as the
# user, as its whole process then is (_shutdown_x11_forward in slurmstepd/mgr.c, SchedMD/slurm slurm-24-11-5-1).
HARMLESS = re.compile(
    r"state file|Trying backup state save file|fed_mgr_state|High latency for 1000 calls to gettimeofday"
    r"|(slurm_receive_msg|_conn_readable|slurm_send_node_msg).*(Zero Bytes|Connection reset)"
    r"|We can't find assoc 1 on cluster|processing time|timed out|not responding"
    r"|extern\] error: (Unable to unlink domain socket|common_file_write_uints: unable to open|Unable to move pid)"
)


class TestWorking:
    """What `up` ends with."""

    def test_a_job_runs_on_both_nodes(self, many: Cluster):
        lines = many.run("srun", "-N2", "-l", "hostname").splitlines()
        assert sorted(line.partition(": ")[2] for line in lines) == ["many-cpu-0", "many-cpu-1"]

    def test_nothing_complains(self, many: Cluster):
        look = "cat /var/log/slurm/*.log | grep -iE 'error|warning|deprecated|fatal|invalid' || true"
        for machine in ("controller", "cpu-0", "cpu-1", "gpu-0"):
            lines = many.inside(machine, look).splitlines()
            assert [line for line in lines if not HARMLESS.search(line)] == [], machine
            assert many.inside(machine, "systemctl --failed --no-legend --plain") == ""
            unread = many.inside(machine, "systemctl show --property=NeedDaemonReload --value '*'").split()
            assert "yes" not in unread, machine

    def test_the_accounting_names_job_user_and_account(self, many: Cluster):
        many.run("srun", "--job-name", "counted", "true", user="bob")
        # slurmctld hands over what happened every five seconds.
        eventually(lambda: "counted" in many.run("sacct", "-X", user="bob"), what="the job's record")
        columns = "--format=JobName,User,Account,Partition,State"
        line = next(line for line in many.run("sacct", "-X", columns, user="bob").splitlines() if "counted" in line)
        assert {"bob", "teaching", "cpu", "COMPLETED"} <= set(line.split())

    def test_a_dead_rank_ends_its_step(self, many: Cluster):
        script = "[ $SLURM_PROCID = 1 ] && exit 3; sleep 300"
        ended = many.call("run", "many", "--", "srun", "-N2", "sh", "-c", script)
        assert ended.returncode not in {0, 124}
        eventually(lambda: many.run("squeue", "--noheader") == "", what="the end of the job on both nodes")

    def test_limits_of_the_login_machine_stay_there(self, many: Cluster):
        found = many.run("sh", "-c", "ulimit -S -n 300; ulimit -n; srun sh -c 'ulimit -n'").split()
        assert found[0] == "300"
        assert int(found[1]) > 300
        assert "DefCpuPerGPU=1" in many.run("scontrol", "show", "partition", "gpu")

    def test_who_has_no_account_cannot_submit(self, many: Cluster):
        refused = many.inside("login-0", "runuser -u games -- srun true 2>&1; true")
        assert "Invalid account" in refused

    def test_users_are_the_same_on_every_machine(self, many: Cluster):
        for machine in many.outputs()["machines"]:
            assert many.inside(machine, "id alice") == "uid=2001(alice) gid=2001(alice) groups=2001(alice),3001(ml)"

    def test_a_login_machine_runs_no_daemon_of_slurms(self, many: Cluster):
        assert many.inside("login-0", "pgrep -l 'slurm|mariadb' || true") == ""

    def test_users_log_in_to_login_machines_only(self, many: Cluster, alices_key: Path):
        assert "Permission denied" in many.log_in("alice", alices_key, "controller", "id -un")
        assert "Access denied by pam_slurm_adopt" in many.log_in("alice", alices_key, "cpu-1", "id -un")

    def test_users_reach_the_nodes_of_their_jobs_within_those(self, many: Cluster, alices_key: Path):
        number = many.job("sleep infinity", "--nodelist=many-cpu-1")
        # A job is RUNNING before its node has made the step that takes logins in.
        step = f"scontrol listpids {number} 2>/dev/null | grep extern; true"
        eventually(lambda: "extern" in many.inside("cpu-1", step), what="the job's step for logins")
        found = many.log_in("alice", alices_key, "cpu-1", "id -un; cat /proc/self/cgroup")
        assert found.split()[0] == "alice"
        assert f"/job_{number}/step_extern" in found
        many.run("scancel", number, user="alice")
        eventually(lambda: many.run("squeue", "-h", "-j", number) == "", what="the job's end")
        assert "Access denied by pam_slurm_adopt" in many.log_in("alice", alices_key, "cpu-1", "id -un")

    def test_mail_about_a_job_is_delivered(self, many: Cluster):
        many.run("sbatch", "--wait", "--mail-type=END", "--job-name=lettered", "--chdir=/tmp", "--wrap", "true")
        eventually(lambda: "lettered" in many.run("cat", "/var/mail/alice", check=False), what="the mail")

    def test_an_address_is_no_option_and_no_command(self, many: Cluster):
        for address in ("--x", "|touch /var/log/slurm/by-mail", "/var/log/slurm/by-mail"):
            many.run("sbatch", "--mail-type=BEGIN", f"--mail-user={address}", "--chdir=/tmp", "--wrap", "true")
        refused = "journalctl --output=cat --identifier=hpc-mail | grep -c '^no mail to '; true"
        eventually(lambda: many.inside("controller", refused) == "3", what="the refusals")
        assert many.inside("controller", "ls /var/log/slurm | grep by-mail; true") == ""

    def test_logs_are_rotated_and_the_daemons_write_on(self, many: Cluster):
        for machine, log in (("controller", "slurmctld"), ("cpu-0", "slurmd")):
            assert many.inside(machine, "logrotate --force /etc/logrotate.conf 2>&1") == ""
            assert many.inside(machine, f"ls /var/log/slurm/{log}.log.1")
        many.run("srun", "-w", "many-cpu-0", "true")
        for machine, log in (("controller", "slurmctld"), ("cpu-0", "slurmd")):
            eventually(
                lambda m=machine, name=log: "done" in many.inside(m, f"cat /var/log/slurm/{name}.log"),
                what=f"a line about the job in the new {log}.log",
            )


def test_a_machine_that_was_killed_comes_back_with_its_files(one: Cluster):
    one.run("sh", "-c", "echo kept > ~/kept")
    one.cut_power("controller")
    assert not one.reachable("controller")
    printed = one.up()
    assert "one-controller" in printed
    assert one.run("srun", "cat", "/home/carol/kept") == "kept"
    assert "Nothing to do" in one.up()
