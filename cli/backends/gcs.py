"""State buckets in Google Cloud Storage."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from cli.backends import buckets
from cli.backends.buckets import Backend, Done, Record, Step, Version
from cli.errors import CliError
from cluster.config import ClusterConfig
from cluster.platforms.gcp.names import GoogleCloud
from components.environment import Environment
from components.gcp.state import Storage

NAME = re.compile(r"(?!goog)[a-z0-9][a-z0-9_-]{1,61}[a-z0-9]")
"""Names without dots (cloud.google.com/storage/docs/buckets#naming)."""
KEPT = 100
"""Old versions of each file that are kept by default."""
_UNDELETE_SECONDS = 7 * 24 * 3600
"""Time for which a deleted object can be restored: Google's own default for soft delete."""


def default_name(project: str) -> str:
    """The name of a project's bucket: the same on every machine, and nobody else's."""
    return f"pulumi-slurm-{hashlib.md5(project.encode(), usedforsecurity=False).hexdigest()}"


def record(
    config: ClusterConfig | None, *, project: str | None, bucket: str | None, location: str | None, keep: int
) -> Record:
    """The record of a bucket that may not exist yet; what is not given is the stack's own.

    Raises CliError: no project is known, or the name can't be a bucket's.
    """
    where = config.section(GoogleCloud) if config else None
    project = project or (where.project if where else "")
    if not project:
        raise CliError("--project is missing, and no stack on Google Cloud is given that has one (--stack).")
    name = bucket or default_name(project)
    if not NAME.fullmatch(name) or "google" in name:
        raise CliError(
            f"--bucket\n  given: {name!r}\n  allowed: 3 to 63 of a-z, 0-9, - and _, a letter or digit first and "
            "last, no `goog` in front, no `google` anywhere"
        )
    location = location or (where.region if where else "US")
    return Record(kind="gcs", bucket=name, project=project, settings={"location": location, "keep": str(keep)})


class CloudStorage(Backend):
    """A Cloud Storage bucket. Whoever runs Pulumi needs roles/storage.objectAdmin on it, with Google credentials."""

    kind = "gcs"
    title = "Google Cloud Storage"

    def prepare(self, *, dry_run: bool) -> Iterator[Step]:
        """Find or create the bucket."""
        name, location = self.record.bucket, self.record.settings["location"]
        storage = Storage(self.record.project)
        found, done = storage.find(name), Done.FOUND
        if found is None and dry_run:
            yield Step(what=f"bucket {name}", done=Done.TO_CREATE, detail=f"in {location}, {self._kept}")
            return
        if found is None:
            done = Done.CREATED if storage.create(name, self._body) else Done.FOUND
            found = storage.find(name)  # another run may have created it meanwhile
        if found is None:
            raise CliError(
                f"the bucket {name} belongs to another project: names are unique in all of Google Cloud.\n"
                "  to do: choose another --bucket"
            )
        _require_safe(found)
        detail = f"in {found.get('location', location)}, {self._kept if done is Done.CREATED else _versions(found)}"
        if not dry_run:
            buckets.save(self.record)
        yield Step(what=f"bucket {name}", done=done, detail=detail)

    def renew(self) -> str:
        """Do nothing: Google's own libraries renew tokens."""
        return ""

    def environment(self, cli: Version) -> Environment:  # noqa: ARG002 - all versions read the same URL
        """The URL."""
        return Environment(variables={"PULUMI_BACKEND_URL": f"gs://{self.record.bucket}"})

    @property
    def _kept(self) -> str:
        return f"the last {self.record.settings['keep']} versions are kept"

    @property
    def _body(self) -> Mapping[str, Any]:
        """The bucket's settings, in the API's own names."""
        # The live version counts as newer than the first old one.
        condition = {"isLive": False, "numNewerVersions": int(self.record.settings["keep"]) + 1}
        return {
            "location": self.record.settings["location"],
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            "versioning": {"enabled": True},
            "softDeletePolicy": {"retentionDurationSeconds": str(_UNDELETE_SECONDS)},
            "lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": condition}]},
            "labels": {"hpc": "state"},
        }


BACKEND = CloudStorage


def _require_safe(bucket: Mapping[str, Any]) -> None:
    """Raises CliError: a bucket that was there before lacks something without which it may not hold state."""
    access = bucket.get("iamConfiguration") or {}
    wanted = {
        "--versioning": (bucket.get("versioning") or {}).get("enabled"),
        "--uniform-bucket-level-access": (access.get("uniformBucketLevelAccess") or {}).get("enabled"),
        "--public-access-prevention": access.get("publicAccessPrevention") == "enforced",
    }
    missing = [flag for flag, there in wanted.items() if not there]
    if missing:
        raise CliError(
            f"the bucket {bucket['name']} exists without {', '.join(flag[2:].replace('-', ' ') for flag in missing)}, "
            "which a bucket with state must have. It was left as it is.\n"
            f"  to do: gcloud storage buckets update gs://{bucket['name']} {' '.join(missing)}, then run again"
        )


def _versions(bucket: Mapping[str, Any]) -> str:
    rules = (bucket.get("lifecycle") or {}).get("rule") or ()
    limits = [number for rule in rules if (number := (rule.get("condition") or {}).get("numNewerVersions"))]
    return f"the last {min(limits) - 1} versions are kept" if limits else "all versions are kept"
