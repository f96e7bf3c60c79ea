"""Parts of the platforms' clouds for programs on this machine: environment variables, buckets for state, and checks.

Each row is a function, which imports the cloud's programs when they are needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from cluster.catalog.prices import PriceRow
from cluster.cloud_checks import CloudCheckError, CloudRow
from cluster.config import ClusterConfig
from components.state_bucket import Backend, BucketRecord, Environment


@dataclass(frozen=True, kw_only=True)
class CloudEnvironment:
    """The environment variables of a stack's cloud."""

    names: tuple[str, ...]
    """Names of all that `read` may return."""
    project: str
    """Id of the cloud's project that the stack is in."""
    read: Callable[[], Environment]


@dataclass(frozen=True, kw_only=True)
class StateBuckets:
    """A kind of bucket for state."""

    record: Callable[..., BucketRecord]
    """Returns the record of a bucket that may not exist yet, from the options of `./hpc backend init KIND`."""
    backend: type[Backend]


def _gcp(config: ClusterConfig) -> CloudEnvironment:
    from components.gcp import environment

    read = partial(environment.environment, config)
    return CloudEnvironment(names=environment.VARIABLES, project=environment.project(config), read=read)


def _nebius(config: ClusterConfig) -> CloudEnvironment:
    from components.nebius import environment

    read = partial(environment.environment, config)
    return CloudEnvironment(names=environment.VARIABLES, project=environment.project(config), read=read)


def _cloud_storage() -> StateBuckets:
    from components.gcp import state

    return StateBuckets(record=state.record, backend=state.CloudStorage)


def _object_storage() -> StateBuckets:
    from components.nebius import state

    return StateBuckets(record=state.record, backend=state.ObjectStorage)


def _ask_google(config: ClusterConfig, before: ClusterConfig | None, state: str) -> list[CloudRow]:
    from components.gcp import cloud_checks
    from components.gcp.bake_design import GoogleCloudError

    try:
        return cloud_checks.check(config, before, state)
    except GoogleCloudError as error:
        raise CloudCheckError(str(error)) from None


def _ask_nebius(config: ClusterConfig, before: ClusterConfig | None, state: str) -> list[CloudRow]:
    from components.nebius import cloud_checks
    from components.nebius.api.client import NebiusError

    try:
        return cloud_checks.check(config, before, state)
    except NebiusError as error:
        raise CloudCheckError(str(error)) from None


def _google_prices(config: ClusterConfig) -> tuple[list[CloudRow], list[PriceRow]]:
    from components.gcp import price_list
    from components.gcp.bake_design import GoogleCloudError

    try:
        return price_list.read(config)
    except GoogleCloudError as error:
        raise CloudCheckError(str(error)) from None


ENVIRONMENTS: Mapping[str, Callable[[ClusterConfig], CloudEnvironment]] = {"gcp": _gcp, "nebius": _nebius}
"""Environment variables by platform. A platform without a cloud has none."""
STATE_BUCKETS: Mapping[str, Callable[[], StateBuckets]] = {"gcs": _cloud_storage, "nebius": _object_storage}
"""Buckets by their kind, as in `./hpc backend init KIND`."""
CHECKS: Mapping[str, Callable[[ClusterConfig, ClusterConfig | None, str], list[CloudRow]]] = {
    "gcp": _ask_google,
    "nebius": _ask_nebius,
}
"""Functions that ask a platform's cloud what a stack needs of it, given the configuration of the stack file, that of
the running cluster, and the URL of the state."""
PRICES: Mapping[str, Callable[[ClusterConfig], tuple[list[CloudRow], list[PriceRow]]]] = {"gcp": _google_prices}
"""Functions that read the price list of a platform's cloud, which takes longer: rows of its items, and their prices."""

_GOOGLE_ROWS = frozenset(
    {"accelerator", "disk-type", "file-system", "machine-type", "packages", "policy", "price", "quota"}
)
_NEBIUS_ROWS = frozenset({"capacity", "fabric", "kubernetes-version", "machine-type", "node-image"})
NAMELESS: Mapping[str, Mapping[str, frozenset[str]]] = {
    "gcp": {"asked": _GOOGLE_ROWS, "seen": _GOOGLE_ROWS | {"state"}},
    "nebius": {"asked": _NEBIUS_ROWS, "seen": _NEBIUS_ROWS | {"quota"}},
}
"""Kinds of rows, by platform and field of CloudRow, whose text has no name of the user's own: names of machine types,
quotas, policies and zones are the cloud's. Only these are written for others."""


def state_buckets(kind: str) -> StateBuckets:
    """Return the buckets of a kind. Raises KeyError: there is none."""
    return STATE_BUCKETS[kind]()
