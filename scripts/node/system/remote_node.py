"""Commands of the controller's root on other machines of the cluster: over SSH, with the pinned host key."""

import subprocess
from pathlib import Path

from system import cluster_state
from system.host import SetupError

KEY = Path("/root/.ssh/hpc_cluster")
SECONDS = 15


def run_on_node(name: str, address: str, script: str, *, host_key: str = "") -> str:
    """Run a shell script as root on a machine, and return its output.

    `host_key` is the machine's public host key if it has not reported it itself. Raises SetupError, with the reason, if
    the machine does not answer or the script fails.
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
