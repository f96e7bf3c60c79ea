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
    return document(
        header(config),
        groups(
            [
                Group(
                    title="Daemon",
                    settings={
                        "AuthType": "auth/munge",
                        **tokens(config),
                        "DbdHost": controller_name(config),
                        "DbdPort": paths.SLURMDBD_PORT,
                        "SlurmUser": paths.USER,
                        "DebugLevel": "info",
                        "LogFile": f"{paths.LOGS}/slurmdbd.log",
                        "PidFile": f"{paths.RUN}/slurmdbd.pid",
                    },
                ),
                Group(
                    title="Database",
                    why="On the same machine: the password never crosses a network.",
                    settings={
                        "StorageType": "accounting_storage/mysql",
                        "StorageHost": "localhost",
                        "StoragePort": paths.DATABASE_PORT,
                        "StorageLoc": paths.DATABASE,
                        "StorageUser": paths.USER,
                        "StoragePass": password,
                    },
                ),
                Group(
                    title="Purge",
                    why="Unpurged tables make every query slower for ever. What is purged is archived first.",
                    settings={
                        "ArchiveDir": paths.ARCHIVE,
                        "ArchiveEvents": True,
                        "ArchiveJobs": True,
                        "ArchiveSteps": True,
                        "PurgeEventAfter": keep,
                        "PurgeJobAfter": keep,
                        "PurgeResvAfter": keep,
                        "PurgeStepAfter": keep,
                        "PurgeSuspendAfter": keep,
                        "PurgeTXNAfter": keep,
                        "PurgeUsageAfter": keep,
                    },
                ),
            ]
        ),
    )
