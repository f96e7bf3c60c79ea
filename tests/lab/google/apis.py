"""A stand-in of Google's APIs for questions before `up`: each request and each answer is held against the discovery
documents, and requests are answered side by side.

A service is reached below its own name: http://127.0.0.1:PORT/serviceusage/v1/projects/...; so are hosts of files that
others publish (tests/lab/public_files.py).
"""

import json
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

from typing_extensions import Self

from tests.lab.google.discovery import extracts
from tests.lab.google.skus import PAGE
from tests.lab.public_files import is_published

Answer = tuple[int, Any]
Rule = Callable[["Asked"], "Answer | None"]


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    service: str
    path: str
    query: Mapping[str, list[str]]
    body: dict[str, Any]
    headers: Mapping[str, str] = field(repr=False)
    id: str
    """The method of the discovery document, such as compute.machineTypes.get."""


def refusal(status: int, message: str, *, reason: str = "", **metadata: str) -> Answer:
    """An error as Google's newer APIs answer it, with google.rpc.ErrorInfo where there is a reason."""
    info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}
    details = [{**info, "metadata": metadata}] if reason else []
    return status, {"error": {"code": status, "message": message, "details": details}}


class GoogleApis:
    """Answers by the first rule that has an answer, until the end of a `with`."""

    def __init__(self, *rules: Rule) -> None:
        self.rules = list(rules)
        self.asked: list[Asked] = []
        self.files: list[Asked] = []
        """Requests for files of other hosts, whose `id` is the host."""
        self.misfits: list[str] = []
        """What does not fit the discovery documents, in requests and in answers."""
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.apis = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def endpoint(self) -> str:
        """Address of a service, with {} for its name."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/{{}}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, method: str, target: str, body: dict[str, Any], headers: Mapping[str, str]) -> Answer:
        """Answer a request."""
        parts = urlsplit(target)
        # A quoted slash is part of a name.
        service, _, rest = unquote(parts.path.replace("%2F", "%252F")).removeprefix("/").partition("/")
        document, path, query = extracts().get(service), f"/{rest}", parse_qs(parts.query)
        if "." in service:
            file = Asked(method, service, path, query, body, headers, service)
            self.files.append(file)
            answers = (rule(file) for rule in self.rules)
            return next((answer for answer in answers if answer is not None), (404, {}))
        found = document.method(method, path) if document else None
        if document is None or found is None:
            self.misfits.append(f"{service} has no {method} {path}")
            return refusal(404, "no such method")
        self.misfits += [f"sent to {found['id']}: {text}" for text in document.request(found, query, body)]
        asked = Asked(method, service, path, query, body, headers, found["id"])
        self.asked.append(asked)
        for rule in self.rules:
            if (answer := rule(asked)) is not None:
                if answer[0] == 200 and isinstance(answer[1], dict):
                    misfits = document.misfits(answer[1], found["response"])
                    self.misfits += [f"answer of {found['id']}: {text}" for text in misfits]
                return answer
        return refusal(404, f"{path} was not found")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    apis: GoogleApis

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that no longer waits is no error."""


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        apis = cast("_Server", self.server).apis
        status, document = apis.answer(
            self.command, self.path, json.loads(text) if text else {}, dict(self.headers.items())
        )
        payload = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - names of the standard library

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the standard library's name
        """Print nothing."""


MACHINE_TYPES = {
    "a3-megagpu-8g": (208, 1872 * 1024, 8),
    "a3-ultragpu-8g": (224, 2952 * 1024, 8),
    "a4-highgpu-8g": (224, 3968 * 1024, 8),
}
"""vCPUs, MiB and GPUs of machine types (cloud.google.com/compute/docs/accelerator-optimized-machines)."""
STANDARD_MIB = {"c2": 4096, "e2": 4096, "n1": 3840, "n2": 4096}
"""MiB for each vCPU of FAMILY-standard-VCPUS (cloud.google.com/compute/docs/general-purpose-machines and
compute-optimized-machines)."""


def _machine_type(name: str) -> Answer | None:
    family, kind, size = name.split("-")
    if name in MACHINE_TYPES:
        cpus, memory, gpus = MACHINE_TYPES[name]
    elif kind == "standard":
        cpus, memory, gpus = int(size), int(size) * STANDARD_MIB[family], 0
    else:
        return None
    cards = [{"guestAcceleratorType": "nvidia-h100-mega-80gb", "guestAcceleratorCount": gpus}] if gpus else []
    return 200, {"name": name, "guestCpus": cpus, "memoryMb": memory, "accelerators": cards}


GLOBAL = {"FIREWALLS", "GPUS_ALL_REGIONS", "NETWORKS", "ROUTERS", "SUBNETWORKS"}
"""Quotas of a project; others are of a region (GoogleCloudPlatform/cluster-toolkit 1047080, pkg/validators)."""


def quotas(*, of_project: bool, limit: float = 1e6, **limits: float) -> list[dict[str, Any]]:
    """The quotas of a project or a region, unused."""
    metrics = extracts()["compute"].schemas["Quota"]["properties"]["metric"]["enum"]
    return [
        {"metric": metric, "limit": limits.get(metric, limit), "usage": 0.0}
        for metric in metrics
        if (metric in GLOBAL) is of_project
    ]


def reservation(machine_type: str, *, count: int = 1000, used: int = 0, **changes: Any) -> Answer:
    """A specific reservation."""
    properties = {"machineType": machine_type}
    sku = {"count": str(count), "inUseCount": str(used), "instanceProperties": properties}
    return 200, {"status": "READY", "specificReservationRequired": True, "specificReservation": sku, **changes}


def quota_metric(family: str, limit: int, region: str = "us-central1", dimension: str = "gpu_family") -> dict[str, Any]:
    """A quota of a service by region, and by family of GPUs or machines where there is one."""
    places = [{}, {"region": region}]
    of_family = [{**place, dimension: family} for place in places]
    buckets = [
        {"dimensions": dimensions, "effectiveLimit": str(limit if dimensions.get("region") else 0)}
        for dimensions in (of_family if family else places)
    ]
    unit = "1/{project}/{region}" + (f"/{{{dimension}}}" if family else "")
    rates = {"unit": "1/min/{project}", "quotaBuckets": [{"effectiveLimit": "600"}]}
    return {"displayName": "Capacity", "consumerQuotaLimits": [rates, {"unit": unit, "quotaBuckets": buckets}]}


IMAGE = {"status": "READY", "creationTimestamp": "2026-09-06T00:00:00.000-07:00"}
NETWORK = {"mtu": 8896, "peerings": [{"name": "servicenetworking-googleapis-com", "state": "ACTIVE"}]}
CONTROLLER = "serviceAccount:cloud-ctl@my-project.iam.gserviceaccount.com"
POLICY = {
    "version": 3,
    "bindings": [{"role": f"roles/compute.{role}", "members": [CONTROLLER]} for role in ("networkUser", "imageUser")],
}
ALLOCATED = {"name": "theirs", "address": "10.128.0.0", "prefixLength": 20, "network": "a/global/networks/shared"}
GATEWAY = "https://www.googleapis.com/compute/v1/projects/p/global/gateways/default-internet-gateway"
ROUTE = {"name": "default-route-1", "destRange": "0.0.0.0/0", "nextHopGateway": GATEWAY}
ACCOUNT = "012345-567890-ABCDEF"
"""Google's own example of a billing account (cloudbilling.v1, ProjectBillingInfo.billingAccountName)."""
ANSWERS: dict[str, Answer] = {
    "cloudbilling.billingAccounts.get": (200, {"name": f"billingAccounts/{ACCOUNT}", "currencyCode": "USD"}),
    "cloudbilling.projects.getBillingInfo": (
        200,
        {"billingEnabled": True, "billingAccountName": f"billingAccounts/{ACCOUNT}"},
    ),
    "cloudbilling.services.skus.list": (200, PAGE),
    "compute.acceleratorTypes.get": (200, {}),
    "compute.addresses.list": (200, {}),
    "compute.diskTypes.get": (200, {}),
    "compute.disks.list": (200, {}),
    "compute.firewalls.list": (200, {}),
    "compute.globalAddresses.list": (200, {"items": [ALLOCATED]}),
    "compute.images.get": (200, IMAGE),
    "compute.images.getFromFamily": (200, IMAGE),
    "compute.images.getIamPolicy": (200, POLICY),
    "compute.instances.list": (200, {}),
    "compute.networks.get": (200, NETWORK),
    "compute.networks.list": (200, {}),
    "compute.projects.get": (200, {"quotas": quotas(of_project=True)}),
    "compute.regionDisks.list": (200, {}),
    "compute.regions.get": (200, {"quotas": quotas(of_project=False)}),
    "compute.reservationBlocks.get": (200, {"resource": {"status": "READY", "count": 18, "inUseCount": 0}}),
    "compute.routers.list": (200, {"items": [{"name": "out", "nats": [{"name": "nat"}]}]}),
    "compute.routes.list": (200, {"items": [ROUTE]}),
    "compute.reservations.get": reservation("a3-megagpu-8g"),
    "compute.subnetworks.getIamPolicy": (200, POLICY),
    "compute.subnetworks.get": (200, {"ipCidrRange": "10.0.0.0/20"}),
    "file.projects.locations.get": (200, {"locationId": "us-central1-a"}),
    "file.projects.locations.instances.list": (200, {}),
    "iam.projects.serviceAccounts.list": (200, {}),
    "secretmanager.projects.secrets.list": (200, {}),
    "serviceusage.services.consumerQuotaMetrics.get": (200, quota_metric("NVIDIA_H100_MEGA", 4096)),
    "serviceusage.services.consumerQuotaMetrics.list": (200, {"metrics": [quota_metric("", 1_000_000)]}),
    "storage.buckets.list": (200, {}),
    "storage.buckets.get": (200, {"location": "US", "versioning": {"enabled": True}}),
    "orgpolicy.projects.policies.getEffectivePolicy": (200, {"spec": {"rules": [{"enforce": False}]}}),
}


def healthy(asked: Asked) -> Answer | None:
    """A project in which everything can be created."""
    if "." in asked.service:
        return (206, b"!") if is_published(asked.service, asked.path) else (404, b"")
    if asked.id == "serviceusage.services.batchGet":
        return 200, {"services": [{"name": name, "state": "ENABLED"} for name in asked.query["names"]]}
    if asked.id.endswith(".testIamPermissions"):
        return 200, {"permissions": asked.body["permissions"]}
    if asked.id == "compute.machineTypes.get":
        return _machine_type(asked.path.rpartition("/")[2])
    if asked.path.endswith("local_ssd_total_storage_per_vm_family"):
        return 200, quota_metric("A3", 24_000, dimension="vm_family")
    return ANSWERS.get(asked.id)


def on(method: str, answer: Answer, part: str = "") -> Rule:
    """A rule for one method, and for paths that contain `part`."""
    return lambda asked: answer if asked.id == method and re.search(part, asked.path) else None
