"""Objects as data: which one it is, what is applied, and which changes replace it."""

import base64
import hashlib
import json
import secrets

from engine.core import diff
from engine.core.diff import differences
from engine.providers.base import Context
from engine.values import Props, Value, contains_unknown, secret

AUTONAMED = "pulumi.com/autonamed"
_NOT_OBJECTS = ("kubernetes:helm.sh/", "kubernetes:yaml", "kubernetes:kustomize")

_SELECTOR = ("spec.selector",)
_REPLACES: dict[str, tuple[str, ...]] = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("data", "stringData", "type"),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "Deployment": _SELECTOR,
    "DaemonSet": _SELECTOR,
    "StatefulSet": (
        "spec.podManagementPolicy", "spec.revisionHistoryLimit", "spec.selector", "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "PersistentVolumeClaim": ("spec",),
    "Pod": ("spec",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "StorageClass": ("parameters", "provisioner"),
    "ResourceQuota": ("spec.scopes",),
}  # fmt: skip
"""Fields whose change replaces an object, besides its name and namespace: most are immutable on the server, and what
uses a ConfigMap or Secret would not notice. From pulumi-kubernetes, provider/pkg/provider/diff.go."""
_MUTABLE = {"ConfigMap": "enableConfigMapMutable", "Secret": "enableSecretMutable"}
"""Settings of the provider with which the data of these are changed in place."""


def embeds(type_: str) -> bool:
    """Whether a type of the package is a plain object: not a patch of one, not a list, not a component."""
    return not type_.startswith(_NOT_OBJECTS) and not type_.endswith(("Patch", "List"))


def identity(type_: str, id_: str, inputs: Props) -> Props:
    """What names an object to kubectl; by its type and id where there are no inputs, as for one that is only read."""
    _, group_version, kind = type_.split(":", 2)
    metadata = inputs.get("metadata") or {}
    namespace, _, name = id_.rpartition("/")
    found = {"name": metadata.get("name") or name, "namespace": metadata.get("namespace") or namespace}
    return {
        "apiVersion": inputs.get("apiVersion") or group_version.removeprefix("core/"),
        "kind": inputs.get("kind") or kind,
        "metadata": {key: value for key, value in found.items() if value},
    }


def named(ctx: Context, olds: Props, news: Props) -> Props:
    """The inputs with a name: their own, else that of before, else the resource's with a random suffix."""
    metadata = news.get("metadata") or {}
    if not isinstance(metadata, dict) or metadata.get("name") or metadata.get("generateName"):
        return news
    before = (olds.get("metadata") or {}) if isinstance(olds.get("metadata"), dict) else {}
    automatic = (before.get("annotations") or {}).get(AUTONAMED) == "true"
    name = before["name"] if automatic and before.get("name") else f"{ctx.name.lower()}-{secrets.token_hex(4)}"
    annotations = {**(metadata.get("annotations") or {}), AUTONAMED: "true"}
    return {**news, "metadata": {**metadata, "name": name, "annotations": annotations}}


def normalized(inputs: Props) -> Props:
    """The inputs as pulumi-kubernetes keeps them: `stringData` of a Secret is in `data`, as base64, and secret."""
    if inputs.get("kind") != "Secret" or contains_unknown(inputs):
        return inputs
    found = {key: value for key, value in inputs.items() if key != "stringData"}
    texts = inputs.get("stringData") or {}
    data = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
    return {**found, "data": secret({**(inputs.get("data") or {}), **data})}


def keeps_name(olds: Props, news: Props) -> bool:
    """Whether a replacement has the name of what it replaces."""
    was, now = olds.get("metadata") or {}, news.get("metadata") or {}
    automatic = (now.get("annotations") or {}).get(AUTONAMED) == "true"
    return not automatic and all(was.get(key) == now.get(key) for key in ("name", "namespace"))


def manager(ctx: Context, outputs: Props) -> str:
    """The field manager of an object: the recorded one, else one that no other resource has, so that an object that an
    interrupted creation left is known again."""
    return outputs.get("__fieldManager") or f"pulumi-kubernetes-{hashlib.sha256(ctx.urn.encode()).hexdigest()[:8]}"


def replacing(ctx: Context, olds: Props, news: Props) -> tuple[str, ...]:
    """The changed properties that replace the object."""
    kind = str(news.get("kind"))
    fields = ("apiVersion.group", "kind", "metadata.name", "metadata.namespace", *_fields(ctx, kind, olds))
    patterns = [diff.parse(field) for field in fields]
    changed = (change.path for change in differences(olds, news))
    hit = [path for path in changed if any(diff.contains(p, diff.parse(path)) for p in patterns)]
    moved = _group(olds) != _group(news)
    return (*hit, *(("apiVersion",) if moved else ()))


def _fields(ctx: Context, kind: str, olds: Props) -> tuple[str, ...]:
    setting = _MUTABLE.get(kind)
    if setting and str(ctx.settings().get(setting)).lower() == "true" and not olds.get("immutable"):
        return ("type",) if kind == "Secret" else ()
    return _REPLACES.get(kind, ())


def _group(inputs: Props) -> str:
    return str(inputs.get("apiVersion", "")).rpartition("/")[0]


def text(inputs: Props) -> str:
    """What is applied, as JSON."""
    return json.dumps({key: value for key, value in inputs.items() if key != "status"})


def id_of(live: Props) -> str:
    """NAMESPACE/NAME, or NAME of what is in no namespace."""
    metadata = live["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def outputs_of(inputs: Props, live: Props, field_manager: str) -> Props:
    """What the state records of an object: all but what changes with every write, and the inputs."""
    metadata = {k: v for k, v in live["metadata"].items() if k not in ("managedFields", "resourceVersion")}
    notes = {"__fieldManager": field_manager, "__initialApiVersion": live["apiVersion"]}
    hidden = {"data": secret(live["data"])} if live.get("kind") == "Secret" and "data" in live else {}
    return {**live, "metadata": metadata, **hidden, "__inputs": inputs, **notes}


def as_found(inputs: Value, live: Value) -> Value:
    """The inputs with the values that the object really has; what the server adds beside them is left out."""
    if isinstance(inputs, dict) and isinstance(live, dict):
        return {key: as_found(value, live[key]) for key, value in inputs.items() if key in live}
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        return [as_found(a, b) for a, b in zip(inputs, live, strict=True)]
    return live
