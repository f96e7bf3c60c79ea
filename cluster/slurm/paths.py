"""Slurm's folders, files and ports, which are the same on every machine of every platform."""

from scripts.node.interface import SPOOLS

CONFIG = "/etc/slurm"
STATE = SPOOLS["controller"]
LOGS = "/var/log/slurm"
RUN = "/run/slurm"
"""Pid files; a folder of slurm's own, because slurm may not write into /run itself."""
ARCHIVE = "/var/spool/slurmdbd"
"""The folder to which slurmdbd writes job records before it purges them; its default, /tmp, would lose them."""
KEPT = (STATE, ARCHIVE, "/var/lib/mysql")
"""Folders of the controller on a file system that stays when its machine is recreated, so that jobs and accounting go
on."""
MAIL = "/usr/local/sbin/hpc-mail"
"""Sends a job's mail with /usr/bin/mail; scripts/node/slurm/slurmctld.py puts it on the controller."""
JOB_SUBMIT = "job_submit.lua"
"""The file that slurmctld reads, beside slurm.conf (get_extra_conf_path, src/plugins/job_submit/lua)."""
CONTROLLER_FILES = {"slurmdbd.conf", JOB_SUBMIT}
"""Files that slurmctld does not serve to other machines."""
REBOOT = "/usr/sbin/reboot"
"""The program of Debian's and Ubuntu's systemd-sysv, without arguments: for a job that asks for a reboot, slurmd runs
only the first word of the line (src/slurmd/slurmd/req.c, _rpc_reboot)."""
PROLOG, EPILOG = "/opt/apps/adm/slurm/slurm_prolog", "/opt/apps/adm/slurm/slurm_epilog"
"""Programs on the shared file system that run the stack's scripts before and after jobs."""
RECONCILE = "/usr/local/lib/hpc/reconcile"
RESUME, SUSPEND, RESUME_FAILED = (f"{RECONCILE}/{name}" for name in ("resume", "suspend", "resume-failed"))
"""Programs of slurmctld's power saving on the controller; scripts/node/reconcile puts them there."""
AWAIT_NODES = f"{RECONCILE}/await-nodes"
"""The PrologSlurmctld. It ends when a job's nodes have booted, so that the job starts at once."""
HEALTH = "/usr/local/sbin/hpc-health"
"""The HealthCheckProgram of slurmd; scripts/node/health/run_checks.py puts it on nodes."""

SLURMCTLD_PORT = 6817
SLURMD_PORT = 6818
SLURMDBD_PORT = 6819
TOKEN_KEY = f"{CONFIG}/jwt.key"
"""The key with which slurmctld and slurmdbd sign and check tokens; scripts/node/slurm/slurmctld.py puts it there."""
DATABASE = "slurm_acct_db"
DATABASE_PORT = 3306
USER = "slurm"
