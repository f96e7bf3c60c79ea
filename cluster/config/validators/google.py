"""Names and choices of Google Cloud."""

import ipaddress
import re
from datetime import datetime, timezone

from cluster.catalog import DISK_TYPES
from cluster.findings import Refused, listing, suggest

_NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = "[a-z][-a-z0-9]{4,28}[a-z0-9]"
WORLD = "0.0.0.0/0"
_FIRST_SNAPSHOT = "20230301T000000Z"
"""Ubuntu's snapshot service has none before (snapshot.ubuntu.com)."""


def disk_type(value: str) -> str:
    """A disk type of the catalog."""
    if value not in DISK_TYPES:
        raise Refused(
            f"a disk type of the catalog: {listing(DISK_TYPES)}", suggest(value, DISK_TYPES, "take one of these")
        )
    return value


def project_id(value: str) -> str:
    """A project id, which is not a project's name or number."""
    if not re.fullmatch(_PROJECT, value):
        raise Refused(
            "a project id: 6 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. my-project",
            "copy it from `gcloud projects list`, column PROJECT_ID",
        )
    return value


def zone(value: str) -> str:
    """A zone by its form; whether it has the machine types is a rule."""
    if not re.fullmatch(r"[a-z]+-[a-z]+[0-9]+-[a-z]", value):
        raise Refused(
            "a zone, e.g. us-central1-a", "write region, - and the zone's letter: `gcloud compute zones list`"
        )
    return value


def resource_type(value: str) -> str:
    """A type of resource by its form; whether the provider has it is asked of its own classes."""
    if not re.fullmatch(r"gcp:[a-z0-9]+/[A-Za-z0-9]+:[A-Za-z0-9]+", value):
        raise Refused(
            "a type of resource of Google Cloud, e.g. gcp:compute/instance:Instance", "copy it from a preview"
        )
    return value


def reservation(value: str) -> str:
    """A reservation by name, or with the project that shares it."""
    return _named(value, "reservations", rf"projects/{_PROJECT}/reservations/{_NAME}", "my-reservation")


def policy(value: str) -> str:
    """A placement policy by name, or with its project and region."""
    pattern = rf"projects/{_PROJECT}/regions/[a-z]+-[a-z]+[0-9]+/resourcePolicies/{_NAME}"
    return _named(value, "resource-policies", pattern, "my-placement")


def calendar(value: str) -> str:
    """A future reservation by name."""
    if not re.fullmatch(_NAME, value):
        raise Refused(
            "the name of a future reservation, e.g. my-week", "copy it from `gcloud compute future-reservations list`"
        )
    return value


def resource(value: str) -> str:
    """A network or subnetwork by name, or with its project."""
    pattern = rf"projects/{_PROJECT}/(global/networks|regions/[a-z0-9-]+/subnetworks)/{_NAME}"
    return _named(value, "networks", pattern, "shared-vpc")


def image(value: str) -> str:
    """One image, by name or with its project; no family."""
    if "/family/" in value:
        raise Refused(
            "one image, e.g. a3mega-0123456789ab or projects/my-project/global/images/a3mega-0123456789ab",
            "name an image of the family (`gcloud compute images describe-from-family`): a family's newest image "
            "changes by itself, and with it kernel, driver and Lustre client",
        )
    return _named(value, "images", rf"projects/{_PROJECT}/global/images/{_NAME}", "a3mega-0123456789ab")


def snapshot(value: str) -> str:
    """A date of Ubuntu's archive, as its snapshot service writes it."""
    try:
        datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
        known = re.fullmatch("[0-9]{8}T[0-9]{6}Z", value) is not None and value >= _FIRST_SNAPSHOT
    except ValueError:
        known = False
    if not known:
        raise Refused(
            f"a date of Ubuntu's archive in UTC, YYYYMMDDTHHMMSSZ, from {_FIRST_SNAPSHOT} on, e.g. 20261115T000000Z",
            "write the day whose security updates the machines should have",
        )
    return value


def server_image(value: str) -> str:
    """An image of Lustre servers; a family as well, since the Marketplace publishes families."""
    if not re.fullmatch(rf"projects/{_PROJECT}/global/images/(family/)?{_NAME}", value):
        raise Refused(
            "projects/PROJECT/global/images/NAME, or projects/PROJECT/global/images/family/NAME",
            "copy it from the Marketplace solution, or remove it for DDN's newest known",
        )
    return value


def bucket(value: str) -> str:
    """A bucket's name."""
    if not re.fullmatch(r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]", value) or value.startswith("goog"):
        raise Refused(
            "a bucket's name: 3 to 222 of a-z, 0-9, -, _ and ., e.g. my-datasets",
            "write the name alone, without gs:// and without a path",
        )
    return value


def fsname(value: str) -> str:
    """A Lustre file system's name: at most eight characters (lustre/include/uapi: LUSTRE_MAXFSNAME)."""
    if not re.fullmatch("[A-Za-z0-9]{1,8}", value):
        raise Refused(
            "1 to 8 letters and digits, e.g. exacloud", "shorten it: Lustre puts it into every target's label"
        )
    return value


def public_network(value: str) -> str:
    """A network from which people come; never the whole world."""
    example = "the networks of those who log in, e.g. 203.0.113.7/32"
    try:
        network = ipaddress.IPv4Network(value, strict=False)
    except ValueError:
        raise Refused(example, "write four numbers, a slash and the prefix length") from None
    if network.prefixlen < 8:
        raise Refused(
            f"{example}, /8 at the widest", "name the networks that people come from: SSH is never open to the world"
        )
    if str(network) != value:
        raise Refused(example, f"write the network's first address: {network}")
    return value


def _named(value: str, kind: str, pattern: str, example: str) -> str:
    if not re.fullmatch(_NAME, value) and not re.fullmatch(pattern, value):
        written = pattern.replace(_PROJECT, "PROJECT").replace(_NAME, "NAME").replace("[a-z]+-[a-z]+[0-9]+", "REGION")
        raise Refused(
            f"a name of 1 to 63 of a-z, 0-9 and -, e.g. {example}, or {written}",
            f"copy it from `gcloud compute {kind} list`",
        )
    return value
