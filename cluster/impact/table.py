"""Each field of the configuration, and what changing it does to running jobs.

The table speaks before an `up`; on the machine, the text of the rendered files decides
(scripts/node/slurm/config_changes.py). A test holds the two together, and the table to the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cluster.config.section import Section
from cluster.findings import show
from cluster.impact import image, machines, people, storage
from cluster.impact.edits import Edit, edits
from cluster.impact.impact import Consequence, Effect, nothing, reconfigure, refused, restart
from cluster.impact.rule import POSSIBLE, Verdict
from cluster.platforms.gcp.impact import table

if TYPE_CHECKING:
    from cluster.config.cluster import ClusterConfig


_PARTITION = reconfigure("the partition's line in slurm.conf; jobs that run keep what they were given")
_TIMER = reconfigure("a timer that follows `scontrol reconfigure`")
_DATABASE = nothing("Slurm's database takes it over; jobs that run keep what they were given")
_LIMIT = nothing("Slurm's database takes it over; it holds for jobs that start from then on")
_PEOPLE = nothing("every machine follows within seconds, without a daemon's restart")
_LAUNCH = restart("slurmctld and slurmd restart; jobs that run keep what they were started with")
_SCRIPT = reconfigure("holds for jobs that begin, or end, from then on; what runs already is left alone")

TABLE: Mapping[str, Consequence | Verdict] = {
    "platform": refused("a cluster can't move from one platform to another"),
    "name": refused("every host name, Slurm's state and the accounting database carry the name"),
    "network.cidr": refused("machines are known by their addresses"),
    "storage.shared": storage.shared,
    "storage.read_only": nothing("machines mount it so at their next boot", "./hpc ssh {stack} MACHINE -- reboot"),
    "image.base": image.base,
    "image.presents_as": image.presented,
    "controller.machine_type": machines.controller_machine,
    "login.on": machines.logins,
    "login.count": machines.logins,
    "login.machine_type": machines.login_machine,
    "nodesets": machines.nodeset_order,
    "nodesets.*": image.or_image(machines.nodeset),
    "nodesets.*.on": machines.nodes_on,
    "nodesets.*.count": machines.count,
    "nodesets.*.machine_type": image.or_image(machines.node_machine),
    "nodesets.*.gpus": image.or_image(machines.node_machine),
    "nodesets.*.gpus.type": image.or_image(machines.node_machine),
    "nodesets.*.gpus.count": machines.node_machine,
    "nodesets.*.features": restart("slurmctld and the nodeset's slurmd restart to know them; jobs run on"),
    "nodesets.*.node_conf.*": machines.node_conf,
    "nodesets.*.addresses": machines.addresses,
    "partitions.*": machines.partition,
    **dict.fromkeys(
        (
            f"partitions.*.{key}"
            for key in (
                "nodesets", "default", "exclusive", "max_time", "default_time", "def_mem_per_cpu", "max_mem_per_cpu",
                "min_nodes", "max_nodes", "priority_tier", "qos", "allow_accounts", "allow_groups", "allow_qos",
                "conf.*",
            )
        ),
        _PARTITION,
    ),
    "groups.*": people.group,
    "users.*": people.user,
    "users.*.uid": refused("the user's files and running jobs belong to the number: put it back"),
    "users.*.gid": people.gid,
    "users.*.groups": _PEOPLE,
    "users.*.keys": _PEOPLE,
    "users.*.shell": _PEOPLE,
    "users.*.account": _DATABASE,
    "users.*.accounts": nothing("sacctmgr refuses to take away an account that has jobs of the user's running"),
    "users.*.qos": _DATABASE,
    "accounting.accounts.*": people.account,
    **dict.fromkeys(
        (f"accounting.accounts.*.{key}" for key in ("parent", "description", "organization", "fairshare")), _DATABASE
    ),
    "accounting.qos.*": people.qos,
    **dict.fromkeys(
        (
            f"accounting.qos.*.{key}"
            for key in (
                "priority", "max_wall", "max_jobs_per_user", "max_submit_jobs_per_user", "max_tres_per_job.*",
                "max_tres_per_user.*", "grp_tres.*", "flags",
            )
        ),
        _LIMIT,
    ),
    "accounting.qos.*.preempt": people.preempt,
    "accounting.enforce": reconfigure("holds for jobs that are submitted from then on"),
    "accounting.purge_after_months": nothing("slurmdbd restarts, and slurmctld keeps its records until it is back"),
    "slurm.version": image.slurm,
    **{
        f"slurm.timers.{key}": _TIMER
        for key in (
            "slurmctld", "slurmd", "inactive", "kill_wait", "min_job_age", "unkillable_step", "message", "batch_start",
            "prolog_epilog",
        )
    },
    "slurm.timers.wait": restart("slurmctld restarts; steps that run keep the time they were started with"),
    "slurm.consumable": restart("slurmctld restarts; jobs that run keep the cores or threads that they have"),
    "slurm.return_to_service": reconfigure("holds for nodes that come back from then on"),
    "slurm.join_seconds": nothing("how long `up` waits, and nothing else"),
    "slurm.drain_seconds": nothing("how long `up` waits, and nothing else"),
    **{
        f"{place}scripts.*{key}": _SCRIPT
        for place in ("slurm.", "partitions.*.", "nodesets.*.")
        for key in ("", ".on", ".file", ".url", ".text", ".sha256")
    },
    "slurm.rxdm": _SCRIPT,
    **{f"slurm.rxdm.{key}": _SCRIPT for key in ("partitions", "file", "url", "sha256")},
    "slurm.pam_slurm_adopt": nothing("every node follows within seconds; jobs do not notice"),
    "slurm.scrontab": restart("slurmctld restarts; jobs run on, and what users have in their scrontab is kept"),
    "slurm.slurmrestd": restart("slurmctld and slurmdbd restart, to know tokens or no longer; jobs run on"),
    "slurm.job_submit_lua": restart("slurmctld restarts; asked about jobs that are submitted or changed from then on"),
    "slurm.mpi_default": _LAUNCH,
    "slurm.prolog_flags": _LAUNCH,
    "slurm.job_account_gather": _LAUNCH,
    "slurm.extra.*": machines.extra,
    "deletion_protection": nothing("only `destroy` asks for it"),
    **table.TABLE,
}  # fmt: skip
"""Consequence of a change, by pattern; `*` stands for a name, and a pattern that ends with one for its coming, going
or, where it is a value, changing."""


@dataclass(frozen=True, kw_only=True)
class FieldChange:
    """One edit with its consequence, in words to be shown."""

    path: str
    """Dotted, such as `partitions.cpu.max_time`."""
    old: str
    new: str
    effect: Effect
    reason: str
    command: str
    """What to type."""

    @property
    def shown(self) -> str:
        """Path and values on one line."""
        if self.old == _NOTHING and self.new == _THERE:
            return f"{self.path}: added"
        if self.old == _THERE and self.new == _NOTHING:
            return f"{self.path}: removed"
        return f"{self.path}: {self.old} -> {self.new}"


_NOTHING, _THERE = "nothing", "(as written)"


def effects(before: ClusterConfig, after: ClusterConfig, stack: str) -> list[FieldChange]:
    """What leads from one configuration to another does to running jobs: worst first, then in the order of the file.

    `before` is what the cluster runs with; `stack` its stack's name, for the commands.
    """
    found = [_judged(edit, stack) for edit in edits(before, after)]
    return sorted(found, key=lambda change: -change.effect.harm)


def worst(changes: list[FieldChange]) -> Effect:
    """The effect that harms running jobs most; of no change, none."""
    return max((change.effect for change in changes), key=lambda effect: effect.harm, default=Effect.NOTHING)


def possible(pattern: str) -> tuple[Effect, ...]:
    """What a change of a field may come to, mildest first; nothing for what holds no value itself."""
    verdict = TABLE.get(pattern)
    if verdict is None:
        return ()
    return (verdict.effect,) if isinstance(verdict, Consequence) else POSSIBLE[verdict]


def consequence(edit: Edit) -> Consequence:
    """What the table says of one edit."""
    verdict = TABLE[edit.pattern]
    return verdict if isinstance(verdict, Consequence) else verdict(edit)


def _judged(edit: Edit, stack: str) -> FieldChange:
    told = consequence(edit)
    return FieldChange(
        path=edit.dotted,
        old=_shown(edit.old),
        new=_shown(edit.new),
        effect=told.effect,
        reason=told.reason,
        command=told.command.format(stack=stack),
    )


def _shown(value: Any) -> str:  # noqa: ANN401 - a field may be anything
    """A value as a stack file has it; a whole section stands there as written."""
    if isinstance(value, Section):
        return show(value.model_dump(exclude_none=True)) if value.one_value else _THERE
    return show(value)
