"""People: the same login name, uid, groups and keys on every machine, and the containers of their jobs."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.config.accounting import IN_DATABASE, GroupLimits
from cluster.config.impact_annotations import NoEffect, Refuse
from cluster.config.section import Section
from cluster.config.types import AccountName, Flag, GroupName, Program, PublicKey, QosName, RegularId, UserName

LEAVES = NoEffect(
    "Slurm's database takes it over; an account that is taken away stays while jobs of the user charge it, and "
    "`./hpc drift STACK --mend` then removes it"
)
ON_MACHINES = NoEffect("every machine follows within seconds, without a daemon's restart")


class User(Section):
    """A person."""

    name: UserName = Field(examples=["alice"])
    """Login name."""
    uid: Annotated[RegularId, Refuse("the user's files and running jobs belong to the number: put it back")] = Field(
        examples=[2001]
    )
    """User number, the same on every machine and never used again for somebody else."""
    gid: RegularId | None = None
    """Number of the primary group. Default: a group of the user's own name with the uid's number."""
    groups: Annotated[tuple[GroupName, ...], ON_MACHINES] = ()
    """Further groups, each defined under `groups`."""
    keys: Annotated[tuple[PublicKey, ...], ON_MACHINES] = ()
    """SSH public keys that may log in, as in ~/.ssh/id_ed25519.pub."""
    shell: Annotated[Program, ON_MACHINES] = "/bin/bash"
    """Login shell. `nologin` and `false` refuse SFTP too; other shells are not started for it."""
    account: Annotated[AccountName | None, LEAVES] = None
    """Account that jobs are charged to. Default: the only account there is, else `general`."""
    accounts: Annotated[
        tuple[AccountName, ...],
        LEAVES,
    ] = ()
    """Further accounts that the user may charge with --account."""
    qos: Annotated[tuple[QosName, ...], IN_DATABASE] = ()
    """QOS that the user may ask for with --qos; the first one is the default. Default: normal."""
    limits: GroupLimits = Field(default_factory=GroupLimits.model_construct)
    """Limits of the user's jobs, in each account by themselves. The account's own limits hold as well."""
    sudo: Annotated[Flag | None, ON_MACHINES] = None
    """True if the user becomes root by `sudo`, without a password, on every machine and in jobs. Such a user can act as
    anybody in the cluster. Default: true on nebius, as with its createuser; false elsewhere."""
    containers: Annotated[Flag | None, ON_MACHINES] = None
    """True if the user may run containers that need a right: on nebius by the group docker; elsewhere rootless ones by
    subordinate uids (/etc/subuid), for podman and `apptainer --fakeroot`. enroot needs neither. Default: true on
    nebius; elsewhere what the operating system gives."""

    @property
    def primary_gid(self) -> int:
        """Number of the primary group."""
        return self.uid if self.gid is None else self.gid


class FormerUser(Section):
    """Somebody whose account was removed."""

    name: UserName = Field(examples=["carol"])
    """Login name."""
    uid: RegularId = Field(examples=[2003])
    """User number, which only this person can have again."""


class Containers(Section):
    """Containers that enroot and pyxis run (docs/explanation/containers.md)."""

    data: Annotated[
        Literal["node", "home"] | None,
        NoEffect("holds for containers that are created from then on; those that exist stay where they are"),
    ] = None
    """The place where enroot unpacks containers: `node` on the node, on its local SSDs if it has some; `home` in the
    user's home, where `srun --container-name=NAME` finds a container on every machine, and jobs on several nodes need
    one that has a name and was made before. Default: as `node` on nodes with local SSDs, as `home` on others."""
