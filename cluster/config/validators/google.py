"""Names and choices of Google Cloud."""

import re
from datetime import datetime, timezone
from ipaddress import IPv4Address

from cluster.config.validators.names import matching, read_network
from cluster.findings import RefusedError

_NAME = "[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT = "[a-z][-a-z0-9]{4,28}[a-z0-9]"
_FIRST_SNAPSHOT = "20230301T000000Z"
"""Ubuntu's snapshot service has none before (snapshot.ubuntu.com)."""


project_id = matching(
    _PROJECT,
    "a project id: 6 to 30 of a-z, 0-9 and -, a letter first and no - last, e.g. my-project",
    "copy it from `gcloud projects list`, column PROJECT_ID",
)
"""Not a project's name or number."""
zone = matching(
    "[a-z]+-[a-z]+[0-9]+-[a-z]",
    "a zone, e.g. us-central1-a",
    "write region, - and the zone's letter: `gcloud compute zones list`",
)
"""Only the form: a check compares it with the zones of the machine types."""
resource_type = matching(
    "gcp:[a-z0-9]+/[A-Za-z0-9]+:[A-Za-z0-9]+",
    "a type of resource of Google Cloud, e.g. gcp:compute/instance:Instance",
    "copy it from a preview",
)
"""Only the form: the provider's own classes say whether there is such a type."""
calendar = matching(
    _NAME,
    "the name of a future reservation, e.g. my-week",
    "copy it from `gcloud compute future-reservations list`",
)
server_image = matching(
    rf"projects/{_PROJECT}/global/images/(family/)?{_NAME}",
    "projects/PROJECT/global/images/NAME, or projects/PROJECT/global/images/family/NAME",
    "copy it from the Marketplace solution, or remove it for DDN's newest known",
)
"""Image of Lustre servers; a family as well, since the Marketplace publishes families."""
bucket = matching(
    "(?!goog)[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]",
    "a bucket's name: 3 to 222 of a-z, 0-9, -, _ and ., e.g. my-datasets",
    "write the name alone, without gs:// and without a path",
)
fsname = matching(
    "[A-Za-z0-9]{1,8}",
    "1 to 8 letters and digits, e.g. exacloud",
    "shorten it: Lustre puts it into every target's label",
)
"""At most eight characters (lustre/include/uapi: LUSTRE_MAXFSNAME)."""


def reservation(value: str) -> str:
    """A reservation by name, or with the project that shares it."""
    return _named(value, "reservations", rf"projects/{_PROJECT}/reservations/{_NAME}", "my-reservation")


def policy(value: str) -> str:
    """A placement policy by name, or with its project and region."""
    pattern = rf"projects/{_PROJECT}/regions/[a-z]+-[a-z]+[0-9]+/resourcePolicies/{_NAME}"
    return _named(value, "resource-policies", pattern, "my-placement")


def resource(value: str) -> str:
    """A network or subnetwork by name, or with its project."""
    pattern = rf"projects/{_PROJECT}/(global/networks|regions/[a-z0-9-]+/subnetworks)/{_NAME}"
    return _named(value, "networks", pattern, "shared-vpc")


def image(value: str) -> str:
    """One image, by name or with its project; no family."""
    if "/family/" in value:
        raise RefusedError(
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
        raise RefusedError(
            f"a date of Ubuntu's archive in UTC, YYYYMMDDTHHMMSSZ, from {_FIRST_SNAPSHOT} on, e.g. 20261115T000000Z",
            "write the day whose security updates the machines should have",
        )
    return value


def end(value: str) -> str:
    """A time in UTC, in the same form as that of a snapshot."""
    try:
        datetime.strptime(value, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        raise RefusedError(
            "a time in UTC, YYYYMMDDTHHMMSSZ, e.g. 20261201T080000Z",
            "write the end that `gcloud compute future-reservations describe` shows, in UTC",
        ) from None
    return value


def server_address(value: str) -> str:
    """The private IPv4 address of a server."""
    try:
        address = IPv4Address(value)
    except ValueError:
        address = None
    if address is None or not address.is_private or address.is_loopback or address.is_link_local:
        raise RefusedError(
            "a private IPv4 address, e.g. 10.128.0.3",
            "write the address at which machines of the network reach the server, without @tcp and without a path",
        )
    return value


def public_network(value: str) -> str:
    """A network from which people come; never the whole world."""
    example = "the networks of those who log in, e.g. 203.0.113.7/32"
    network = read_network(value, example)
    if network.prefixlen < 8:
        raise RefusedError(
            f"{example}, /8 at the widest", "name the networks that people come from: SSH is never open to the world"
        )
    if str(network) != value:
        raise RefusedError(example, f"write the network's first address: {network}")
    return value


def _named(value: str, kind: str, pattern: str, example: str) -> str:
    if not re.fullmatch(_NAME, value) and not re.fullmatch(pattern, value):
        written = pattern.replace(_PROJECT, "PROJECT").replace(_NAME, "NAME").replace("[a-z]+-[a-z]+[0-9]+", "REGION")
        raise RefusedError(
            f"a name of 1 to 63 of a-z, 0-9 and -, e.g. {example}, or {written}",
            f"copy it from `gcloud compute {kind} list`",
        )
    return value
