"""Backups of the jail into a bucket, by k8up."""

from cluster.platforms.nebius.releases.charts import other_release, soperator_release
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.release import Release

SECRET = "jail-backup"  # noqa: S105 - the name of a Secret
"""Secret in the cluster's namespace, with the keys aws-access-key-id, aws-access-secret-key and backup-password."""


def backups(inputs: Inputs) -> tuple[Release, ...]:
    """k8up, and the schedule.

    The schedule comes after the jail is populated: a backup that starts before ends in a repository that no later
    backup can use (github.com/nebius/nebius-solutions-library issue 217).
    """
    if not inputs.facts.backups:
        return ()
    settings = inputs.settings.backups
    values = {
        "secret": {"name": SECRET},
        "bucket": {"name": inputs.facts.backups["name"], "endpoint": inputs.facts.backups["endpoint"]},
        "backup": {"schedule": settings.schedule},
        "prune": {"schedule": settings.schedule, "retention": {"keepDaily": settings.keep_daily}},
    }
    return (
        # Only the jail's claim has the annotation: submounts are data sets.
        other_release(inputs, "k8up", values={"k8up": {"skipWithoutAnnotation": True}}, needs=("cert-manager",)),
        soperator_release(
            inputs,
            "soperator-backup-config",
            values=values,
            needs=("k8up", "slurm-cluster"),
            after=("populated",),
        ),
    )
