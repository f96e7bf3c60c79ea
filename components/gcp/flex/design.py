"""The design of a flex start: what is asked for, and how long it is waited for."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from components.gcp.bake.design import Pace, pace_of

WAIT_SECONDS = 7200
"""Time for which Google queues a machine: 90 s to two hours, by `params.requestValidForDuration`; without, it does not
wait at all (cloud.google.com/compute/docs/instances/about-flex-start-vms, .../instance-lifecycle: PENDING)."""
MARGIN_SECONDS = 1800.0
"""Time for its start, and for what Google takes longer than it was asked to."""
POLL_SECONDS = 15.0
"""Between two reads of a node: one call each, of 1500 reads a minute that a project has."""
TEMPLATE_KEY = "hpc-template"
"""Metadata key with the template that a node was made from: one of another template is recreated."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    project: str
    zone: str
    name: str
    cluster: str
    """The label of everything that a cluster has, by which a machine is known to be the stack's own."""
    template: str = ""
    """Self link; another one makes another machine."""
    labels: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    endpoint: str = ""
    """The endpoint of the Compute Engine API, where it isn't Google's."""
    pace: Pace = field(default_factory=Pace)

    @property
    def link(self) -> str:
        """The machine, as other resources take it."""
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def mark(self) -> str:
        """A hash of the template's name, which is unique to each template."""
        return mark_of(self.template)

    @property
    def all_metadata(self) -> dict[str, str]:
        return {**self.metadata, TEMPLATE_KEY: self.mark}


def mark_of(template: str) -> str:
    return hashlib.sha256(template.rpartition("/")[2].encode()).hexdigest()[:16]


def all_wanted(props: Mapping[str, Any]) -> list[Wanted]:
    """The nodes that a queue's inputs describe."""
    return [wanted_of({**props, "name": name}) for name in props["names"]]


def wanted_of(props: Mapping[str, Any]) -> Wanted:
    """The node that a resource's inputs describe."""
    return Wanted(
        **{name: props[name] for name in ("project", "zone", "name", "cluster", "endpoint")},
        template=props.get("template") or "",
        labels=dict(props.get("labels") or {}),
        metadata=dict(props.get("metadata") or {}),
        pace=pace_of(props) if props.get("pace") else Pace(poll=POLL_SECONDS),
    )
