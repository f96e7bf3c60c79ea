"""Groups of slurm.conf about the daemons themselves: who and where they are, what they write, how long they wait."""

from collections.abc import Mapping

from cluster.config.cluster import ClusterConfig
from cluster.config.metadata import slurm_settings
from cluster.platforms import registry
from cluster.roster import controller_name
from cluster.slurm import paths
from cluster.slurm.script_tree import has_scripts
from cluster.slurm.text import FIELD, Group

TOKEN_SECONDS = 30 * 86400


def identity(config: ClusterConfig, addresses: Mapping[str, str] | None) -> Group:
    """Names, ports, and how daemons authenticate each other."""
    controller = controller_name(config)
    overrides = registry.get(config.platform).slurm.config_overrides
    return Group(
        title="Who and where",
        why="enable_configless: nodes and login machines fetch their files from slurmctld, so a change is one file and "
        "one `scontrol reconfigure`."
        + (" config_overrides: a machine of a rehearsal stands for a larger one." if overrides else ""),
        settings={
            "ClusterName": FIELD,
            "SlurmctldHost": f"{controller}({addresses[controller]})" if addresses else controller,
            "SlurmctldPort": paths.SLURMCTLD_PORT,
            "SlurmdPort": paths.SLURMD_PORT,
            "SlurmUser": paths.USER,
            "AuthType": "auth/munge",
            "CredType": "cred/munge",
            **_limited(tokens(config)),
            "SlurmctldParameters": "enable_configless",
            "SlurmdParameters": "config_overrides" if overrides else None,
        },
    )


def tokens(config: ClusterConfig) -> dict[str, str]:
    """How slurmctld and slurmdbd authenticate tokens, for slurmrestd; empty without it."""
    if not config.slurm.slurmrestd:
        return {}
    return {"AuthAltTypes": "auth/jwt", "AuthAltParameters": f"jwt_key={paths.TOKEN_KEY}"}


def _limited(tokens: dict[str, str]) -> dict[str, str]:
    """With the longest life of a token that slurmctld makes: a single one can't be revoked. slurmdbd makes none."""
    key = "AuthAltParameters"
    return {**tokens, key: f"{tokens[key]},max_token_lifespan={TOKEN_SECONDS}"} if key in tokens else tokens


def places() -> Group:
    return Group(
        title="Places",
        why=f"Pid files are in {paths.RUN}: slurmctld runs as slurm, which may not write into /run. MailProg sends "
        "what --mail-type asks for, through the controller's own mail system; it takes addresses alone.",
        settings={
            "StateSaveLocation": paths.STATE,
            "SlurmdSpoolDir": paths.SPOOL,
            "SlurmctldPidFile": f"{paths.RUN}/slurmctld.pid",
            "SlurmdPidFile": f"{paths.RUN}/slurmd.pid",
            "MailProg": paths.MAIL,
        },
    )


def logs() -> Group:
    return Group(
        title="Logs",
        settings={
            "SlurmctldDebug": "info",
            "SlurmctldLogFile": f"{paths.LOGS}/slurmctld.log",
            "SlurmdDebug": "info",
            "SlurmdLogFile": f"{paths.LOGS}/slurmd.log",
        },
    )


def scripts(config: ClusterConfig) -> Group:
    """What slurmd runs before and after each job; nothing in a cluster without scripts, which then pays nothing."""
    some = has_scripts(config)
    return Group(
        title="Prolog and epilog",
        why="One program for each runs the stack's scripts in order: those for all nodes, for the partition, for the "
        f"nodeset. A node whose prolog or epilog fails is drained; prolog.log or epilog.log in {paths.LOGS} says why.",
        settings={"Prolog": paths.PROLOG if some else None, "Epilog": paths.EPILOG if some else None},
    )


def health(config: ClusterConfig) -> Group:
    """What slurmd runs on each node every now and then; nothing in a cluster without health checks."""
    wanted = config.slurm.health
    return Group(
        title="Health checks",
        why="The program drains a node that fails a check, and always ends with exit code 0: a slurmd that starts "
        "waits for that. ANY: nodes with jobs too. CYCLE: not on all nodes at the same moment.",
        settings={
            "HealthCheckProgram": paths.HEALTH if wanted else None,
            "HealthCheckInterval": wanted.interval_seconds if wanted else None,
            "HealthCheckNodeState": "ANY,CYCLE" if wanted else None,
        },
    )


BOOT_SECONDS = 900
"""ResumeTimeout: from `scontrol reboot` until the node has registered. Slurm's default, 60 s, is less than a virtual
machine with eight GPUs takes. Source: cluster-toolkit, examples/machine-learning/a3-megagpu-8g, partition_conf."""


def timers(config: ClusterConfig) -> Group:
    """How long daemons wait, and what brings a node back."""
    back = {
        0: "a node that was down stays down until somebody resumes it.",
        1: "a node that stopped answering comes back by itself, one that rebooted on its own does not.",
        2: "a node that was cut off, killed or rebooted comes back as soon as it registers; a drained one stays so.",
    }
    return Group(
        title="Timers (seconds) and nodes that come back",
        why="UnkillableStepTimeout: a process with much memory takes long to die, and its node is drained if it takes "
        f"longer than this. ReturnToService={config.slurm.return_to_service}: {back[config.slurm.return_to_service]} "
        "`scontrol reboot` has slurmd run RebootProgram once the node is idle, and slurmctld wait for it for "
        "ResumeTimeout.",
        settings={
            **slurm_settings(config.slurm.timers),
            "ReturnToService": FIELD,
            "RebootProgram": paths.REBOOT,
            "ResumeTimeout": BOOT_SECONDS,
        },
    )
