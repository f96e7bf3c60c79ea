"""Another machine of the cluster, as the controller's root reaches it: by SSH, with its pinned host key."""

import subprocess
from pathlib import Path

from system import cluster_state
from system.host import SetupError

KEY = Path("/root/.ssh/hpc_cluster")
SECONDS = 15


def run_there(name: str, address: str, script: str, *, host_key: str = "") -> str:
    """Return what a shell script prints that root runs on a machine.

    `host_key` is the machine's public one, if it is not the one that the machine reported. Raises SetupError, with the
    reason, where there is no answer, or the script fails.
    """
    host_key = host_key or cluster_state.host_keys().get(name, "")
    if not host_key or not KEY.exists():
        raise SetupError("it can't be reached from here: its host key is not known, it has not reported it yet")
    import tempfile

    with tempfile.NamedTemporaryFile("w", prefix="hpc-known-hosts-") as known:
        known.write(f"{address} {host_key}\n")
        known.flush()
        options = ["BatchMode=yes", "ConnectTimeout=5", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={known.name}"]
        flags = [word for option in options for word in ("-o", option)]
        command = ["ssh", "-i", str(KEY), *flags, f"root@{address}", script]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise SetupError("it does not answer SSH") from None
        except FileNotFoundError:
            raise SetupError("there is no ssh on this machine: install openssh-client") from None
    if done.returncode:
        raise SetupError(done.stderr.strip() or f"exit code {done.returncode}")
    return done.stdout
