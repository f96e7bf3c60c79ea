"""`terraform-provider-google=CHECKOUT`: how long Google's provider waits, what it does when that is over, and how it
reads services, beside the timeouts of this program and the order in which it enables services."""

import re
from pathlib import Path

from components.gcp.timeouts import TIMEOUTS
from tests.contract.provider_limits import PROVIDER, Limits
from tests.outside.recorder import Recorder

LIMIT = r"{}:\s+schema\.DefaultTimeout\((\d+) \* time\.Minute\)"
SERVICES = "google/services"
GIVEN_UP = re.compile(r"resource didn't actually create\n\s+d\.SetId\(\"\"\)")


def limits(source: str) -> Limits:
    """Return the minutes to create, update and delete in a resource's source."""
    found = (re.search(LIMIT.format(operation), source) for operation in ("Create", "Update", "Delete"))
    create, update, delete = (int(match[1]) if match else None for match in found)
    return create, update, delete


def test_limits_of_every_type(artifact: Path, outside: Recorder) -> None:
    found = {type_: row for type_, row in PROVIDER.items() if row[0]}
    for type_, (file, ours) in found.items():
        theirs = limits((artifact / SERVICES / f"{file}.go").read_text())
        if theirs != ours:
            outside.differs("provider-limit", f"{type_}: theirs {theirs}, ours {ours}")
    outside.did(f"compared the limits of {len(found)} types")
    outside.holds("google-provider-timeouts")


def test_a_creation_that_is_given_up_is_in_no_state(artifact: Path, outside: Recorder) -> None:
    files = {type_: PROVIDER[type_][0] for type_ in TIMEOUTS if "/connection:" not in type_}
    for type_, file in files.items():
        if not GIVEN_UP.search((artifact / SERVICES / f"{file}.go").read_text()):
            outside.differs("provider-given-up", f"{type_} keeps its id when the wait for it ends")
    outside.did(f"read what {len(files)} types do when a wait ends")
    outside.holds("google-provider-timeouts")


def test_a_service_is_read_through_cloud_resource_manager(artifact: Path, outside: Recorder) -> None:
    source = (artifact / SERVICES / "resourcemanager/resource_google_project_service.go").read_text()
    create, read = (_function(source, f"resourceGoogleProjectService{name}") for name in ("Create", "Read"))
    if "resourceGoogleProjectServiceRead(d, meta)" not in create:
        outside.differs("service-read", "a created service is not read")
    for text in (".Projects.Get(project)", '"X-Goog-User-Project"', "projectGetCall.Do()"):
        if text not in read:
            outside.differs("service-read", f"the read of a service has no {text}")
    if "Retry(" in read:
        outside.differs("service-read", "the read of a service is retried")
    outside.did("read how a service is created and read")
    outside.holds("google-service-order")


def _function(source: str, name: str) -> str:
    return source.partition(f"\nfunc {name}(")[2].partition("\n}\n")[0]
