"""Google's discovery documents: the method of a request, and whether requests and answers fit.

tests/lab/google/discovery.json has the methods of METHODS with their schemas, of the documents in
google-api-python-client 2.202.0 (googleapiclient/discovery_cache/documents; taken 2026-11-28). `python -m
tests.lab.google.discovery FOLDER` writes it again from a folder with the documents; tests/outside/check_discovery.py
compares it with newer ones.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

Json = dict[str, Any]
FILE = Path(__file__).with_name("discovery.json")
METHODS: Mapping[str, tuple[str, ...]] = {
    "cloudbilling.v1": (
        "cloudbilling.billingAccounts.get",
        "cloudbilling.billingAccounts.testIamPermissions",
        "cloudbilling.projects.getBillingInfo",
        "cloudbilling.services.skus.list",
    ),
    "cloudresourcemanager.v3": ("cloudresourcemanager.projects.testIamPermissions",),
    "compute.v1": (
        "compute.acceleratorTypes.get",
        "compute.addresses.list",
        "compute.diskTypes.get",
        "compute.disks.list",
        "compute.firewalls.list",
        "compute.globalAddresses.list",
        "compute.images.get",
        "compute.images.getFromFamily",
        "compute.images.getIamPolicy",
        "compute.images.testIamPermissions",
        "compute.instances.list",
        "compute.machineTypes.get",
        "compute.networks.get",
        "compute.networks.list",
        "compute.projects.get",
        "compute.regionDisks.list",
        "compute.regions.get",
        "compute.reservationBlocks.get",
        "compute.reservations.get",
        "compute.routers.list",
        "compute.routes.list",
        "compute.subnetworks.get",
        "compute.subnetworks.getIamPolicy",
    ),
    "file.v1": ("file.projects.locations.get", "file.projects.locations.instances.list"),
    "iam.v1": ("iam.projects.serviceAccounts.list",),
    "orgpolicy.v2": ("orgpolicy.projects.policies.getEffectivePolicy",),
    "secretmanager.v1": ("secretmanager.projects.secrets.list",),
    "serviceusage.v1": ("serviceusage.services.batchGet",),
    "serviceusage.v1beta1": (
        "serviceusage.services.consumerQuotaMetrics.get",
        "serviceusage.services.consumerQuotaMetrics.list",
    ),
    "storage.v1": ("storage.buckets.get", "storage.buckets.list"),
}
"""Methods that the checks of a stack call, by document."""
KINDS = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}
SYSTEM_PARAMETERS = {"$alt"}
"""Of every API (google.aip.dev), and in no document."""
_KEPT = {"$ref", "type", "format", "enum", "items", "properties", "additionalProperties", "repeated"}
_METHOD = ("id", "httpMethod", "path", "flatPath", "parameters", "request", "response")


class Document:
    """One API."""

    def __init__(self, content: Json) -> None:
        self.content = content
        self.schemas: Json = content["schemas"]
        path = content["servicePath"]
        self.methods = [(_pattern(path, method), method) for method in methods_of(content["resources"])]
        self.root = "/" + (path or f"{content['version']}/")

    def method(self, verb: str, path: str) -> Json | None:
        """The method that a request calls."""
        found = (method for pattern, method in self.methods if method["httpMethod"] == verb and pattern.fullmatch(path))
        return next(found, None)

    def request(self, method: Json, query: Json, body: Json) -> Iterator[str]:
        """What a request has that the method does not take."""
        known = {*method.get("parameters", {}), *self.content.get("parameters", {}), *SYSTEM_PARAMETERS}
        yield from (f"query parameter {name}" for name in query if name not in known)
        if body and "request" not in method:
            yield "a body"
        elif body:
            yield from self.misfits(body, method["request"], sent=True)

    def misfits(self, value: object, schema: Json, where: str = "", *, sent: bool = False) -> Iterator[str]:
        """Where a value does not fit: keys that there are not, other types, other texts than those of an enum."""
        schema = self.schemas[schema["$ref"]] if "$ref" in schema else schema
        kind = schema.get("type", "any")
        if kind == "any":
            return
        if not isinstance(value, KINDS[kind]) or (kind == "integer" and isinstance(value, bool)):
            yield f"{where}: a {type(value).__name__} is no {kind}"
        elif isinstance(value, dict):
            properties, others = schema.get("properties", {}), schema.get("additionalProperties")
            for key, inner in value.items():
                if (found := properties.get(key, others)) is None:
                    yield f"{where}.{key}: there is no such field"
                    continue
                if sent and found.get("description", "").startswith(("[Output Only]", "Output only.")):
                    yield f"{where}.{key}: is output only"
                yield from self.misfits(inner, found, f"{where}.{key}", sent=sent)
        elif isinstance(value, list):
            for number, inner in enumerate(value):
                yield from self.misfits(inner, schema["items"], f"{where}[{number}]", sent=sent)
        elif "enum" in schema and value not in schema["enum"]:
            yield f"{where}: {value!r} is none of {', '.join(schema['enum'])}"
        elif schema.get("format") in ("int64", "uint64") and not re.fullmatch(r"-?\d+", str(value)):
            yield f"{where}: {value!r} is no {schema['format']}"


def _pattern(service_path: str, method: Json) -> re.Pattern[str]:
    # A parameter is one part of a path; of Storage's objects, whose names have slashes, all that follows.
    path = re.sub(r"\{object\}", ".+", method.get("flatPath", method["path"]))
    return re.compile(f"/{service_path}" + re.sub(r"\{[^}]+\}", "[^/]+", path))


def methods_of(resources: Json) -> Iterator[Json]:
    """The methods of a document's resources."""
    for resource in resources.values():
        yield from resource.get("methods", {}).values()
        yield from methods_of(resource.get("resources", {}))


def read(file: Path) -> Document:
    """A document of Google's, whole."""
    return Document(json.loads(file.read_text(encoding="utf-8")))


@cache
def extracts() -> dict[str, Document]:
    """The documents of discovery.json, by service."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    merged: dict[str, Json] = {}
    for name, content in stored.items():
        # Versions of one service are told apart by their paths.
        first = merged.setdefault(name.partition(".")[0], {**content, "resources": {}, "schemas": {}})
        first["resources"][name] = {"resources": content["resources"]}
        first["schemas"] |= content["schemas"]
    documents = {name: Document(content) for name, content in merged.items()}
    # Locations are one interface of all services, google.cloud.location.Locations, at the same path in Managed Lustre's
    # API (googleapis/googleapis 6c345ac, google/cloud/lustre/v1/lustre_v1.yaml), of which the package has no document.
    # Its instances are listed at Filestore's path, with the same parameters, name and labels (lustre.proto,
    # instance.proto there).
    return {**documents, "lustre": documents["file"]}


def extract(content: Json, ids: tuple[str, ...]) -> Json:
    """The part of a document that some of its methods need."""
    found = {method["id"]: method for method in methods_of(content["resources"]) if method["id"] in ids}
    methods = {name: _without_texts({key: found[name][key] for key in _METHOD if key in found[name]}) for name in ids}
    schemas: Json = {}
    open_ = sorted(_references(methods))
    while open_:
        if (name := open_.pop()) not in schemas:
            schemas[name] = _without_texts(content["schemas"][name])
            open_ += sorted(_references(schemas[name]))
    keys = {key: content[key] for key in ("id", "version", "revision", "rootUrl", "servicePath")}
    return {
        **keys,
        "parameters": {name: {} for name in sorted(content.get("parameters", {}))},
        "resources": {"all": {"methods": methods}},
        "schemas": dict(sorted(schemas.items())),
    }


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from _references(inner)


def _without_texts(value: Json) -> Json:
    """A method or a schema without descriptions, but for the mark of fields that only answers have."""
    kept: Json = {}
    for key, inner in value.items():
        if key in ("properties", "parameters"):
            kept[key] = {name: _without_texts(field) for name, field in inner.items()}
        elif key in ("items", "additionalProperties", "request", "response"):
            kept[key] = _without_texts(inner)
        elif key in _KEPT or key in _METHOD:
            kept[key] = inner
        elif key == "description" and inner.startswith(("[Output Only]", "Output only.")):
            kept[key] = "Output only."
    return kept


def extract_all(folder: Path) -> Json:
    """The contents of discovery.json, from a folder with the documents."""
    files = {name: folder / f"{name}.json" for name in METHODS}
    return {name: extract(json.loads(file.read_text(encoding="utf-8")), METHODS[name]) for name, file in files.items()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(extract_all(Path(sys.argv[1])), indent=1) + "\n", encoding="utf-8")
