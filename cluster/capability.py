"""Capabilities of platforms. Commands ask for these, so this imports nothing."""

from enum import Enum


class Capability(str, Enum):
    """A capability that a command needs of the platform; without it the command fails and prints this name."""

    RUN = "run"
    """Run commands as a user of the cluster."""
    SSH = "ssh"
    """Log in to machines."""
    CONSOLE = "console"
    """Read the console of a machine."""
    REBOOT = "reboot"
    """Restart nodes after the end of their jobs."""
    MEND = "mend"
    """Apply the last `up`'s configuration to machines again."""
    BACKUP = "backup"
    """Copy the accounting database and Slurm's state."""
    STATUS = "status"
    NODES = "nodes"
    """List, drain and resume nodes."""
    DRIFT = "drift"
    """Compare machines with the last `up`."""
    LOGS = "logs"
    USAGE = "usage"
