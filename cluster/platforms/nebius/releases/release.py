"""A Helm release, and the facts that only the cloud knows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a release's values carry that is known only once the cloud has created it.

    Each may be an output of Pulumi's: the adapters place these and never look into them.
    """

    root_keys: Sequence[Any]
    """SSH public keys that may log in as root, the stack's own first."""
    allocation: Any = None
    """Id of the login Service's public address; None where it has none of its own."""
    backups: Mapping[str, Any] = field(default_factory=dict)
    """Of the backup bucket: name, endpoint; empty without backups."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One Helm release."""

    name: str
    chart: str
    """Name of the chart in its repository; with an `oci://` or a folder as repository, the last part of its path."""
    repo: str
    """A repository of charts (`https://...`), a registry (`oci://...`) or a folder."""
    version: str
    namespace: str
    values: Mapping[str, Any] = field(default_factory=dict)
    needs: tuple[str, ...] = ()
    """Names of releases that are installed before it."""
    after: tuple[str, ...] = ()
    """What else is waited for: `nodes` (node groups are complete), `gpu` (the GPU operator is deployed and nodes offer
    their GPUs), `populated` (the Job that populates the jail is Complete), `available` (the SlurmCluster is), `people`
    (users and accounts are made)."""
    hooks: bool = True
    """Whether the chart's hooks run. Without them, what they wait for is waited for by the program itself."""
    post_renderer: str = ""
    """A program that changes the chart's objects before they are installed, by its path in this project."""
    timeout: int = 1200
    """Seconds until its installation has failed. A failed one is left as it is, to be looked at and repeated: Helm's
    `atomic` would uninstall it, and all that users have in it."""
