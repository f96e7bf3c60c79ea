"""Whether the jail is backed up."""

from cluster.platforms.nebius.section import Nebius

AUTO_LIMIT_GIB = 12 * 1024
"""GiB of a jail from which on `auto` makes no backups (nebius-solutions-library, soperator, variables.tf)."""


def backs_up(settings: Nebius) -> bool:
    """Whether there is a bucket for backups, and a schedule: as the stack file says, or by the jail's size."""
    wanted, jail = settings.backups.enabled, settings.filesystems.jail
    if wanted == "auto":
        return jail.spec is not None and jail.spec.size_gib < AUTO_LIMIT_GIB
    return wanted
