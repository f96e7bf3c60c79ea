"""slurmdbd.conf: the one file with the database's password, readable by slurm alone (0600)."""

import re

from cluster.config.cluster import ClusterConfig
from cluster.roster import controller_name
from cluster.slurm import paths
from cluster.slurm.daemons import tokens
from cluster.slurm.text import Group, document, groups, header

_PLAIN = re.compile(r"^[A-Za-z0-9_.!%*+,:;<>?@^~-]+$")


def render_slurmdbd(config: ClusterConfig, password: str) -> str:
    """Text of slurmdbd.conf.

    Raises ValueError for a password with characters that Slurm's parser would read as its own (spaces, quotes, #, =).
    """
    if not _PLAIN.match(password):
        raise ValueError("database password: letters, digits and _.!%*+,:;<>?@^~- only; generate it without others")
    keep = f"{config.accounting.purge_after_months}months"
    daemon = {
        "AuthType": "auth/munge",
        **tokens(config),
        "DbdHost": controller_name(config),
        "DbdPort": paths.SLURMDBD_PORT,
        "SlurmUser": paths.USER,
        "DebugLevel": "info",
        "LogFile": f"{paths.LOGS}/slurmdbd.log",
        "PidFile": f"{paths.RUN}/slurmdbd.pid",
    }
    database = {
        "StorageType": "accounting_storage/mysql",
        "StorageHost": "localhost",
        "StoragePort": paths.DATABASE_PORT,
        "StorageLoc": paths.DATABASE,
        "StorageUser": paths.USER,
        "StoragePass": password,
    }
    purge = {
        "ArchiveDir": paths.ARCHIVE,
        **dict.fromkeys(("ArchiveEvents", "ArchiveJobs", "ArchiveSteps"), True),
        **{f"Purge{records}After": keep for records in ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage")},
    }
    same_machine = "On the same machine: the password never crosses a network."
    archived = "Unpurged tables make every query slower for ever. What is purged is archived first."
    parts = [
        Group(title="Daemon", settings=daemon),
        Group(title="Database", why=same_machine, settings=database),
        Group(title="Purge", why=archived, settings=purge),
    ]
    return document(header(config), groups(parts))
