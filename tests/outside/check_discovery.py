"""Requests of this program to Google's REST APIs, and answers of their stand-ins, beside Google's discovery documents.

Artifact: the document of Compute Engine v1 (compute.v1.json of the package google-api-python-client, folder
googleapiclient/discovery_cache/documents), with the package's other documents beside it. The requests are those of the
tests in tests/gcp, which bake, start nodes, and boot machines in every way they know. The tests of `check cloud` hold
its requests against an extract of the documents, and this check holds the extract against the documents.
"""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from cluster.platforms.gcp.cloud_checks import SERVICES_AT_ONCE
from components.gcp.cloud_checks import GOOGLE
from components.gcp.credentials import SCOPES
from components.local.compute_engine.http import Call, GoogleHttp
from tests.lab.google.discovery import FILE, METHODS, Document, Json, extract_all, methods_of, read
from tests.lab.google.metadata import METADATA, FakeGoogle
from tests.lab.google.skus import PAGE
from tests.outside.mutation import ROOT
from tests.outside.recorder import Recorder

OTHERS = ("secretmanager.v1.json", "storage.v1.json")
ROWS = {
    "compute:v1": ("google-compute-requests", "google-compute-answers"),
    "secretmanager:v1": ("google-secret-manager-answers",),
    "storage:v1": ("google-storage-requests",),
}
"""Assumptions that each document holds."""
STAND_INS = re.compile(r"lab\.google|tests\.gcp\.(baking|flexing)|tests\.nebius\.state\.buckets")
"""What tests import that talk to a stand-in."""


@pytest.fixture(scope="module")
def exchanges() -> list[tuple[Call, int, Json]]:
    """Every request of the tests with the stand-ins' answer."""
    seen: list[tuple[Call, int, Json]] = []
    answer, google = GoogleHttp.answer, FakeGoogle.answer

    def compute(self: GoogleHttp, call: Call) -> tuple[int, Json]:
        status, body = answer(self, call)
        seen.append((call, status, json.loads(json.dumps(body))))
        return status, body

    def other(self: FakeGoogle, path: str, query: dict[str, str], headers: Any) -> tuple[int, str, bytes]:
        status, kind, body = google(self, path, query, headers)
        if not path.startswith(METADATA):
            parts = urlsplit(path)
            call = Call("GET", parts.path, {**query, **dict(parse_qsl(parts.query))}, {}, {})
            seen.append((call, status, json.loads(body) if kind.startswith("application/json") else {}))
        return status, kind, body

    folders = ROOT / "tests" / "gcp", ROOT / "tests" / "nebius" / "state"
    files = [file for folder in folders for file in folder.glob("test_*.py") if STAND_INS.search(file.read_text())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GoogleHttp, "answer", compute)
        patch.setattr(FakeGoogle, "answer", other)
        assert pytest.main(["-q", "-m", "not e2e", "--no-header", "-p", "no:warnings", *map(str, files)]) == 0
    return seen


@pytest.fixture(scope="module")
def documents(artifact: Path) -> list[Document]:
    return [read(artifact), *(read(artifact.with_name(name)) for name in OTHERS)]


def test_requests_and_answers_fit(
    documents: list[Document], exchanges: list[tuple[Call, int, Json]], outside: Recorder
) -> None:
    found, calls = Counter[str](), Counter[str]()
    for call, status, body in exchanges:
        document = next((candidate for candidate in documents if call.path.startswith(candidate.root)), None)
        if document is None:
            calls[f"{call.path.split('/')[1]}/: no document given"] += 1
        elif method := document.method(call.method, call.path):
            calls[method["id"]] += 1
            found.update(
                f"sent to {method['id']}: {misfit}" for misfit in document.request(method, call.query, call.body)
            )
            if status == 200 and call.query.get("alt") != "media":
                misfits = document.misfits(body, method["response"])
                found.update(f"stand-in of {method['id']}: {misfit}" for misfit in misfits)
        elif status == 200:
            found[f"{document.content['id']} has no {call.method} {re.sub('[0-9]+', 'N', call.path)}"] += 1
    for compared in documents:
        outside.did(f"compared requests and answers with {compared.content['id']} of {compared.content['revision']}")
        outside.holds(*ROWS[compared.content["id"]])
    outside.did(f"methods: {', '.join(f'{name} ({count})' for name, count in sorted(calls.items()))}")
    for text, count in sorted(found.items()):
        outside.differs("discovery", f"{text} ({count} times)")


def test_the_extract_for_checks_is_current(artifact: Path, outside: Recorder) -> None:
    """Requests and answers of `./hpc check cloud` are held against an extract in every run of the tests."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    for name, theirs in extract_all(artifact.parent).items():
        ours = stored[name]
        for part in ("rootUrl", "servicePath", "parameters", "resources"):
            if theirs[part] != ours[part]:
                outside.differs("discovery", f"{name}: other {part}")
        for schema, content in theirs["schemas"].items():
            if content != ours["schemas"].get(schema):
                outside.differs("discovery", f"{name}: another {schema}")
        outside.did(f"compared {len(METHODS[name])} methods of {name} of {theirs['revision']} with {FILE.name}")
    outside.holds("google-check-cloud")


def test_check_cloud_asks_as_the_documents_describe(artifact: Path, outside: Recorder) -> None:
    """Addresses, scopes, and texts by which answers are read. A method that changes something is none of them."""
    documents = {name: json.loads((artifact.parent / f"{name}.json").read_text(encoding="utf-8")) for name in METHODS}
    for name, content in documents.items():
        if content["rootUrl"] != (ours := f"{GOOGLE.format(name.partition('.')[0])}/"):
            outside.differs("discovery", f"{name} is at {content['rootUrl']}, not at {ours}")
        for method in methods_of(content["resources"]):
            if method["id"] in METHODS[name]:
                assert set(SCOPES) <= set(method["scopes"]), method["id"]
                assert method["httpMethod"] == "GET" or method["id"].endswith(".testIamPermissions"), method["id"]
    outside.did(f"compared addresses and scopes of {len(METHODS)} services")

    def text(name: str, schema: str, field: str) -> str:
        return " ".join(documents[name]["schemas"][schema]["properties"][field]["description"].split())

    batch = documents["serviceusage.v1"]["resources"]["services"]["methods"]["batchGet"]
    assert f"a maximum of {SERVICES_AT_ONCE} services at a time" in batch["parameters"]["names"]["description"]
    billing = documents["cloudbilling.v1"]["resources"]["projects"]["methods"]["getBillingInfo"]
    assert "must have the `resourcemanager.projects.get` permission" in billing["description"]
    enabled = text("cloudbilling.v1", "ProjectBillingInfo", "billingEnabled")
    assert "associated with an open billing account, to which usage on the project is charged" in enabled
    assert "currency in which the billing account is billed" in text(
        "cloudbilling.v1", "BillingAccount", "currencyCode"
    )
    budgets = read(artifact.with_name("billingbudgets.v1.json")).schemas
    described = {name: " ".join(json.dumps(schema).split()) for name, schema in budgets.items()}
    amount, filtered = (described[f"GoogleCloudBillingBudgetsV1{name}"] for name in ("BudgetAmount", "Filter"))
    assert "it must match the currency of the billing account" in amount
    assert "A single label and value pair" in filtered
    required = text("compute.v1", "Reservation", "specificReservationRequired")
    assert "only VMs that target the reservation by name can consume from this reservation" in required
    assert "auto-deleted by Compute Engine" in text("compute.v1", "Reservation", "deleteAtTime")
    assert "how many instances are in use" in text("compute.v1", "AllocationSpecificSKUReservation", "inUseCount")
    state = text("compute.v1", "DeprecationStatus", "state")
    assert "OBSOLETE orDELETED resources will be rejected" in state
    assert "using aDEPRECATED resource will return successfully" in state
    rule = "GoogleCloudOrgpolicyV2PolicySpecPolicyRule"
    assert "all values are denied" in text("orgpolicy.v2", rule, "denyAll")
    assert "If `true`, then the policy is enforced" in text("orgpolicy.v2", rule, "enforce")
    outside.did("read what these documents say of services, billing, budgets, reservations, images and policies")
    outside.holds("google-check-cloud-texts")


def test_price_lists_are_read_as_documented(artifact: Path, outside: Recorder) -> None:
    """The answer that the check `price-list` reads."""
    document = read(artifact.with_name("cloudbilling.v1.json"))
    for misfit in document.misfits(dict(PAGE), {"$ref": "ListSkusResponse"}):
        outside.differs("discovery", f"price list: {misfit}")
    described = {name: json.dumps(schema) for name, schema in document.schemas.items()}
    assert "timeline of pricing info for this SKU in chronological order" in described["Sku"]
    assert "sorted by ascending order of start_usage_amount" in described["PricingExpression"]
    assert "Number of nano (10^-9) units" in described["Money"]
    method = document.content["resources"]["services"]["resources"]["skus"]["methods"]["list"]
    assert "If not specified USD will be used" in method["parameters"]["currencyCode"]["description"]
    assert "Defaults to 5000" in method["parameters"]["pageSize"]["description"]
    assert "filter" not in method["parameters"]
    assert "specifying which fields to include" in document.content["parameters"]["fields"]["description"]
    outside.did(f"compared the form of price lists with {document.content['id']} of {document.content['revision']}")
    outside.holds("google-price-list-form")


def test_what_the_document_promises(artifact: Path, outside: Recorder) -> None:
    """Texts and enums on which the reconcile loop relies."""
    document = read(artifact)
    schemas, methods = document.schemas, document.content["resources"]["instances"]["methods"]

    def text(described: Json) -> str:
        return " ".join(described["description"].split())

    for name in ("insert", "bulkInsert", "delete", "reset", "reportHostAsFaulty", "performMaintenance"):
        repeated = text(methods[name]["parameters"]["requestId"])
        assert "check if original operation with the same request ID was received" in repeated
        assert "a valid UUID" in repeated
    outside.holds("google-request-ids")

    least = text(schemas["BulkInsertInstanceResource"]["properties"]["minCount"])
    assert "no instances will be created and instances already created will be deleted" in least
    assert "bulkInsert" in text(schemas["Operation"]["properties"]["operationGroupId"])
    outside.holds("google-bulk-all-or-none")

    upcoming = schemas["UpcomingMaintenance"]["properties"]
    assert "can be customer triggered" in text(upcoming["canReschedule"])
    assert {"PENDING", "ONGOING"} <= {*upcoming["maintenanceStatus"]["enum"]}
    assert {"FAILURE_GPU", "FAILURE_NVLINK"} <= {*upcoming["maintenanceReasons"]["items"]["enum"]}
    assert schemas["ResourceStatus"]["properties"]["upcomingMaintenance"]["$ref"] == "UpcomingMaintenance"
    assert "request" not in methods["performMaintenance"]
    outside.holds("google-maintenance-on-request")

    resize = schemas["InstanceGroupManagerResizeRequest"]["properties"]
    assert {"CREATING", "ACCEPTED", "SUCCEEDED", "FAILED", "CANCELLED"} <= {*resize["state"]["enum"]}
    described = " ".join(" ".join(resize["state"]["enumDescriptions"]).split())
    assert "any VMs that were created during provisioning are rolled back and removed from the MIG" in described
    assert "names of instances to be created by this resize request" in text(resize["instances"])
    assert "At the end of the run duration instance will be deleted" in text(resize["requestedRunDuration"])
    outside.holds("google-resize-requests")
    groups = document.content["resources"]["instanceGroupManagers"]["methods"]
    assert "and all of the instances in that group" in text(groups["delete"])
    assert "reduces thetargetSize of the managed instance group" in text(groups["deleteInstances"])
    assert schemas["ResourceStatus"]["properties"]["scheduling"]["$ref"] == "ResourceStatusScheduling"
    assert "will be terminated" in text(schemas["ResourceStatusScheduling"]["properties"]["terminationTimestamp"])
    outside.holds("google-termination-timestamp")

    forced = text(schemas["AttachedDisk"]["properties"]["forceAttach"])
    assert "force attach the regional disk even if it's currently attached to another instance" in forced
    assert "should be replicated to" in text(schemas["Disk"]["properties"]["replicaZones"])
    outside.holds("gcp-force-attach")

    host = text(schemas["ResourceStatus"]["properties"]["physicalHost"])
    assert "including the block, sub-block, and host" in host
    outside.holds("google-physical-host-form")

    reported = schemas["InstancesReportHostAsFaultyRequest"]["properties"]
    assert "Required field, only allows IMMEDIATE" in text(reported["disruptionSchedule"])
    behavior = schemas["InstancesReportHostAsFaultyRequestFaultReason"]["properties"]["behavior"]
    meanings = dict(zip(behavior["enum"], behavior["enumDescriptions"], strict=True))
    assert meanings["UNRECOVERABLE_GPU_ERROR"] == "Unrecoverable GPU error identified by an XID"
    outside.holds("google-report-request")

    restarted = text(schemas["Scheduling"]["properties"]["automaticRestart"])
    assert "automatically restarted if it is terminated by Compute Engine (not terminated by a user)" in restarted
    outside.holds("google-automatic-restart-of-ends")
    outside.did(
        "read what the document says of request ids, of all or none, of maintenance, resizes, disks and repairs"
    )
