"""Instances of elastic nodes as a resource: it creates none, and its deletion deletes what the controller created."""

from typing import Any

from components.dynamic import Action, ActionProvider, report, without_traceback
from components.gcp.bake.design import BakeError


class ElasticInstancesProvider(ActionProvider):
    """Creates nothing: the reconcile loop on the controller does, from the nodeset's templates.

    Another place has other instances: those of the old one are deleted with the old resource.
    """

    ID = "{project}/{zone}/{cluster}/{nodeset}"
    PLACE = ("project", "zone", "cluster", "nodeset")
    ACTED_ON = ("endpoint",)

    def delete(self, _id: str, _props: dict[str, Any]) -> None:
        """Delete the nodeset's elastic instances, and wait until they are gone; a killed run continues here."""
        # Google's client takes seconds to import: only what calls Google imports it.
        from components.gcp import instances  # noqa: PLC0415

        with without_traceback(BakeError):
            instances.delete_instances(_props, report)


class ElasticInstances(Action, module="gcp", name="ElasticInstances"):
    """The instances that the controller creates for a nodeset.

    The controller depends on it, and it depends on what the instances are made of. So it is deleted after the
    controller, which then creates no more, and before templates, placement policies, networks and accounts. Inputs:
    `project`, `zone`, `cluster`, `nodeset`, `endpoint`.
    """

    PROVIDER = ElasticInstancesProvider
