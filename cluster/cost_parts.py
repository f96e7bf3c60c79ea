"""Parts of a cluster that cost money."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Group = Literal["machines", "storage", "network", "license"]

WAYS: Mapping[str, str] = {"reservation": "on_demand"}
"""The way whose price a way of `capacity` has, where that is another: a reservation bills at on-demand rates while it
exists (pub.dev/documentation/terradart_google 0.34.0, GoogleComputeReservation). One that comes of a future
reservation may have another price, which is then a rate of the stack file."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some units of one item. Equal parts of two configurations are the same part."""

    what: str
    """Its role: `controller`, `nodeset a3mega`, `state disk`."""
    item: str
    """A machine type, or another item of cluster/catalog/prices.csv: the key of `pricing.rates`."""
    count: float
    """Machines, GPUs or GB."""
    group: Group
    ways: tuple[str, ...] = ("on_demand",)
    """Ways of buying it, of which any may be used; the dearest counts."""
    elastic: bool = False
    """True if it exists while jobs need it. It is then counted at its most."""
    protected: bool = False
    """True if `destroy` does not delete it, so that it goes on costing."""
    nodeset: str = ""
    """The nodeset that it is a part of, if any."""

    @property
    def key(self) -> tuple[str, str, bool]:
        """Identity among the parts of a cluster."""
        return self.what, self.item, self.elastic
