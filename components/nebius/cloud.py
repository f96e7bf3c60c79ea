"""What every resource of one cluster on Nebius has in common: project, owner, labels, endpoint."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.platforms.nebius.section import Nebius
from components.nebius.resource import NebiusResource

CLUSTER_LABEL = "hpc-cluster"
NAME_LIMIT = 63
"""Characters of a resource's name in Nebius."""
PACE, REHEARSAL_PACE = 5.0, 0.3
"""Seconds between two looks at what is waited for; a rehearsal's stand-ins are fast."""


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """Where the resources of one cluster are created."""

    config: ClusterConfig
    settings: Nebius
    owner: pulumi.Output[str]
    """Identifies the stack's state: Nebius has it as a label of each resource."""
    after: Sequence[pulumi.Resource] = field(default_factory=tuple)
    """What every resource waits for."""

    @property
    def pace(self) -> float:
        """Seconds between two looks at what is waited for."""
        return REHEARSAL_PACE if self.settings.endpoint else PACE

    def resource(
        self,
        kind: str,
        name: str,
        spec: Mapping[str, Any],
        *,
        called: pulumi.Input[str] = "",
        parent_id: pulumi.Input[str] = "",
        opts: pulumi.ResourceOptions | None = None,
    ) -> NebiusResource:
        """A resource of a kind, in the project unless `parent_id` says otherwise.

        `name` is its name in the stack, `called` that in Nebius; the stack's name of it by default.
        """
        return NebiusResource(
            kind,
            name,
            parent_id=parent_id or self.settings.project,
            owner=self.owner,
            resource_name=called or shortened(name),
            labels={CLUSTER_LABEL: self.config.name},
            spec=spec,
            endpoint=self.settings.endpoint,
            pace=self.pace if self.settings.endpoint else None,
            opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=list(self.after))),
        )


def settings_of(config: ClusterConfig) -> Nebius:
    """The section `nebius`; ValueError of a configuration of another platform."""
    section = config.section(Nebius)
    if section is None:
        raise ValueError(f"{config.name}: the configuration has no section nebius")
    return section


def shortened(name: str, suffix: str = "") -> str:
    """A name of at most 63 characters that keeps its `suffix`."""
    text = f"{name}-{suffix}" if suffix else name
    if len(text) <= NAME_LIMIT:
        return text
    kept = NAME_LIMIT - len(suffix) - 1 if suffix else NAME_LIMIT
    return f"{name[:kept].rstrip('-')}-{suffix}" if suffix else name[:kept].rstrip("-")
