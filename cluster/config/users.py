"""People: the same login name, uid, groups and keys on every machine."""

from pydantic import Field

from cluster.config.section import Section
from cluster.config.types import AccountName, GroupName, Program, PublicKey, QosName, RegularId, UserName


class User(Section):
    """One person."""

    name: UserName = Field(examples=["alice"])
    """Login name."""
    uid: RegularId = Field(examples=[2001])
    """User number, the same on every machine and never used again for somebody else."""
    gid: RegularId | None = None
    """Number of the primary group. Default: a group of the user's own name with the uid's number."""
    groups: tuple[GroupName, ...] = ()
    """Further groups, each defined under `groups`."""
    keys: tuple[PublicKey, ...] = ()
    """SSH public keys that may log in, as in ~/.ssh/id_ed25519.pub."""
    shell: Program = "/bin/bash"
    """Login shell."""
    account: AccountName | None = None
    """Account that jobs are charged to. Default: the only account there is, else `general`."""
    accounts: tuple[AccountName, ...] = ()
    """Further accounts that the user may charge with --account."""
    qos: tuple[QosName, ...] = ()
    """QOS that the user may ask for with --qos; the first one is the default. Default: normal."""

    @property
    def primary_gid(self) -> int:
        """Number of the primary group."""
        return self.uid if self.gid is None else self.gid
