"""Root of a node, which has the MUNGE key and so is SlurmUser too, gets neither the controller nor a login machine."""

import pytest

from tests.e2e.cluster import Cluster, eventually

pytestmark = pytest.mark.e2e

PROGRAM = """\
#!/bin/sh
{
    echo "as $(id -un)"
    cat /etc/slurm/slurmdbd.conf /etc/hpc/database-password
    for one in $(pidof slurmdbd); do cat /proc/$one/root/etc/slurm/slurmdbd.conf /proc/$one/environ /proc/$one/mem; done
    ls /home /root /var/lib/mysql
    touch /etc/slurm/by-trigger /usr/by-trigger /var/spool/slurmdbd/by-trigger && echo wrote
} >/var/log/slurm/by-trigger 2>/dev/null
"""


@pytest.mark.parametrize("before", ["", "/bin/sh "], ids=["program", "interpreter"])
def test_a_trigger_finds_no_secret_on_the_controller(many: Cluster, before: str):
    many.inside("controller", "rm -f /var/log/slurm/by-trigger")
    program = "/opt/apps/adm/by-trigger"
    many.inside("cpu-0", f"cat >{program} <<'X'\n{PROGRAM}X\nchmod 755 {program}")
    trigger = f"strigger --set --node=many-cpu-1 --drained --program='{before}{program}'"
    log = "grep -c 'trigger.*node:drained.*exit=' /var/log/slurm/slurmctld.log; true"
    try:
        many.inside("cpu-0", f'su -s /bin/sh slurm -c "{trigger}"')
        known = int(many.inside("controller", log))
        many.inside("cpu-0", "scontrol update nodename=many-cpu-1 state=drain reason=trigger")
        if before:
            eventually(
                lambda: many.inside("controller", "cat /var/log/slurm/by-trigger; true") == "as slurm",
                what="the program, which finds nothing",
            )
        eventually(lambda: int(many.inside("controller", log)) > known, what="slurmctld's word of its end")
        assert many.inside("controller", "cat /var/log/slurm/by-trigger; true") == ("as slurm" if before else "")
        assert many.inside("controller", "ls /etc/slurm /usr /var/spool/slurmdbd | grep by-trigger; true") == ""
    finally:
        many.inside("controller", f"rm -f /var/log/slurm/by-trigger {program}")
        many.inside("controller", "scontrol update nodename=many-cpu-1 state=resume")


def test_what_it_writes_into_the_cluster_state_is_no_setting_of_login_machines(many: Cluster):
    published = "/opt/apps/adm/hpc/etc/slurm.conf"
    kept = many.inside("cpu-0", f"cat {published}")
    many.inside("cpu-0", f"sed -i 's|^ClusterName=.*|&\\nPluginDir=/opt/apps/adm/plugins|' {published}")
    try:
        assert "PluginDir" in many.inside("login-0", f"cat {published}")
        assert "PluginDir" not in many.inside("login-0", "cat /etc/slurm/slurm.conf")
        assert "UP" in many.inside("login-0", "scontrol ping")
    finally:
        many.inside("cpu-0", f"cat >{published} <<'X'\n{kept}\nX")
        # Machines that do not answer in time on a busy host are named as differences.
        eventually(lambda: many.call("drift", "many", "--mend").returncode == 0, what="a cluster as it was")


def test_what_it_puts_in_the_place_of_reports_leads_nobody_anywhere(many: Cluster):
    reports, results = "/opt/apps/adm/hpc/nodes", "/opt/apps/adm/hpc/health"
    many.inside("controller", f"cp -a {reports} /root/kept; echo precious >/root/precious; chmod 600 /root/precious")
    many.inside(
        "cpu-0",
        f"cd {reports} && rm many-controller.json many-login-0.json && ln -s /root/precious many-controller.json"
        f" && mkfifo many-login-0.json {results}/many-cpu-1.json && ln -sfn /root many-cpu-1.json",
    )
    try:
        many.inside("cpu-1", "systemctl restart hpc-node")
        reported = f"stat -c %U:%F {reports}/many-cpu-1.json"
        eventually(lambda: many.inside("controller", reported) == "slurm:regular file", what="the machine's own report")
        many.up()
        program = "python3 /usr/local/lib/hpc/node"
        found = many.inside("controller", f"timeout 300 {program} health-results && timeout 300 {program} host-keys")
        assert "many-cpu-1" in found
        assert "many-login-0" not in found
        assert many.inside("controller", "cat /root/precious; stat -c %U:%a /root /root/precious") == (
            "precious\nroot:700\nroot:600"
        )
    finally:
        many.inside("controller", f"rm -rf {reports}/* {results}/many-cpu-1.json && cp -a /root/kept/. {reports}")
