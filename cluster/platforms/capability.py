"""Capabilities of platforms. Commands ask for these, so this imports nothing."""

from enum import Enum


class Capability(str, Enum):
    """A capability that a command needs of the platform; without it the command fails and prints this name."""

    RUN = "run"
    """Run commands as a user of the cluster."""
    SSH = "ssh"
    """Log in to machines."""
    CONSOLE = "console"
    """Read what a machine writes to its console."""
    REBOOT = "reboot"
    """Restart nodes once their jobs have ended."""
    MEND = "mend"
    """Have machines take on again what they should have."""
    BACKUP = "backup"
    """Copy the accounting database and Slurm's state."""
    STATUS = "status"
    NODES = "nodes"
    """List, drain and resume nodes."""
    DRIFT = "drift"
    """Compare machines with what the stack made."""
    LOGS = "logs"
    USAGE = "usage"
    REHEARSE = "rehearse"
    """Be brought up on local machines."""
