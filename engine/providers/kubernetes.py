"""Objects of the package `kubernetes` (pulumi-kubernetes 4.34), with kubectl; and running kubectl and helm."""

import base64
import hashlib
import itertools
import json
import os
import secrets
import shutil
import threading
from pathlib import Path

from engine.core.diff import Diff, contains, differences, parse_path
from engine.errors import EngineError
from engine.project import KubernetesTools
from engine.providers import process
from engine.providers.base import Context, Provider, unfinished
from engine.providers.process import Outcome
from engine.values import Props, Value, contains_unknown, secret
from hostfiles import PrivateFolder, write_atomically

AUTONAMED = "pulumi.com/autonamed"

_SELECTOR = ("spec.selector",)
_REPLACES: dict[str, tuple[str, ...]] = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("data", "stringData", "type"),
    "Job": ("spec.completions", "spec.parallelism", "spec.selector", "spec.template"),
    "Deployment": _SELECTOR,
    "DaemonSet": _SELECTOR,
    "StatefulSet": (
        "spec.podManagementPolicy",
        "spec.revisionHistoryLimit",
        "spec.selector",
        "spec.serviceName",
        "spec.volumeClaimTemplates",
    ),
    "PersistentVolumeClaim": ("spec",),
    "Pod": ("spec",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "StorageClass": ("parameters", "provisioner"),
    "ResourceQuota": ("spec.scopes",),
}
"""Fields whose change replaces an object, besides its name and namespace: most are immutable on the server, and users
of a ConfigMap or Secret would not notice a change. From pulumi-kubernetes, provider/pkg/provider/diff.go."""
_MUTABLE = {"ConfigMap": "enableConfigMapMutable", "Secret": "enableSecretMutable"}
"""Settings of the provider with which the data of these kinds are changed in place."""


def identity(type_: str, id_: str, inputs: Props) -> Props:
    """Return the fields that identify an object to kubectl. Without inputs, as for one that is only read, they come
    from its type and id."""
    _, group_version, kind = type_.split(":", 2)
    metadata = inputs.get("metadata") or {}
    namespace, _, name = id_.rpartition("/")
    names = {"name": metadata.get("name") or name, "namespace": metadata.get("namespace") or namespace}
    return {
        "apiVersion": inputs.get("apiVersion") or group_version.removeprefix("core/"),
        "kind": inputs.get("kind") or kind,
        "metadata": {key: value for key, value in names.items() if value},
    }


def named(ctx: Context, olds: Props, news: Props) -> Props:
    """Return the inputs with a name: their own, else the old one, else the resource's name with a random suffix."""
    metadata = news.get("metadata") or {}
    if not isinstance(metadata, dict) or metadata.get("name") or metadata.get("generateName"):
        return news
    before = (olds.get("metadata") or {}) if isinstance(olds.get("metadata"), dict) else {}
    automatic = (before.get("annotations") or {}).get(AUTONAMED) == "true"
    name = before["name"] if automatic and before.get("name") else f"{ctx.name.lower()}-{secrets.token_hex(4)}"
    annotations = {**(metadata.get("annotations") or {}), AUTONAMED: "true"}
    return {**news, "metadata": {**metadata, "name": name, "annotations": annotations}}


def normalized(inputs: Props) -> Props:
    """Return the inputs as pulumi-kubernetes keeps them: a Secret's `stringData` is in `data`, as base64 and secret."""
    if inputs.get("kind") != "Secret" or contains_unknown(inputs):
        return inputs
    others = {key: value for key, value in inputs.items() if key != "stringData"}
    texts = inputs.get("stringData") or {}
    data = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
    return {**others, "data": secret({**(inputs.get("data") or {}), **data})}


def keeps_name(olds: Props, news: Props) -> bool:
    """Return whether a replacement has the same name as the old object."""
    old, new = olds.get("metadata") or {}, news.get("metadata") or {}
    automatic = (new.get("annotations") or {}).get(AUTONAMED) == "true"
    return not automatic and all(old.get(key) == new.get(key) for key in ("name", "namespace"))


def field_manager(ctx: Context, outputs: Props) -> str:
    """Return the field manager of an object: the recorded one, else one that no other resource has, which identifies an
    object that an interrupted creation left."""
    return outputs.get("__fieldManager") or f"pulumi-kubernetes-{hashlib.sha256(ctx.urn.encode()).hexdigest()[:8]}"


def replacing(ctx: Context, olds: Props, news: Props) -> tuple[str, ...]:
    """Return the changed properties that replace the object."""
    kind = str(news.get("kind"))
    fields = ("apiVersion.group", "kind", "metadata.name", "metadata.namespace", *_fields(ctx, kind, olds))
    patterns = [parse_path(field) for field in fields]
    changed = (change.path for change in differences(olds, news))
    replaces = [path for path in changed if any(contains(p, parse_path(path)) for p in patterns)]
    return (*replaces, *(("apiVersion",) if _group(olds) != _group(news) else ()))


def _fields(ctx: Context, kind: str, olds: Props) -> tuple[str, ...]:
    """Return the fields of an object whose change replaces it, besides its name and namespace."""
    setting = _MUTABLE.get(kind)
    if setting and str(ctx.settings().get(setting)).lower() == "true" and not olds.get("immutable"):
        return ("type",) if kind == "Secret" else ()
    return _REPLACES.get(kind, ())


def _group(inputs: Props) -> str:
    return str(inputs.get("apiVersion", "")).rpartition("/")[0]


def id_of(live: Props) -> str:
    """Return NAMESPACE/NAME of an object, or NAME if it is in no namespace."""
    metadata = live["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def outputs_of(inputs: Props, live: Props, field_manager: str) -> Props:
    """Return the outputs of an object for the state: its inputs, and all fields that do not change with every write."""
    metadata = {k: v for k, v in live["metadata"].items() if k not in ("managedFields", "resourceVersion")}
    internal = {"__fieldManager": field_manager, "__initialApiVersion": live["apiVersion"]}
    data = {"data": secret(live["data"])} if live.get("kind") == "Secret" and "data" in live else {}
    return {**live, "metadata": metadata, **data, "__inputs": inputs, **internal}


def actual_inputs(inputs: Value, live: Value) -> Value:
    """Return the inputs with the object's actual values, without the fields that the server adds."""
    if isinstance(inputs, dict) and isinstance(live, dict):
        return {key: actual_inputs(value, live[key]) for key, value in inputs.items() if key in live}
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        return [actual_inputs(a, b) for a, b in zip(inputs, live, strict=True)]
    return live


_CLUSTER_VARIABLES = ("KUBECONFIG", "HELM_KUBE", "HELM_NAMESPACE", "HELM_DRIVER")
"""Beginnings of variables that would select another cluster or namespace than the provider resource does."""
_GRACE_SECONDS = 10.0
"""Time for kubectl and helm to end by themselves, with a message of their own, after the timeout of a resource."""
_ERROR_LINES = 8
"""Lines of an error that are shown."""


class Cluster:
    """kubectl and helm, with a private folder for their caches and for a kubeconfig file of each provider resource."""

    def __init__(self, root: Path, tools: KubernetesTools) -> None:
        """Relative paths of charts are relative to `root`."""
        self._root, self._tools = root, tools
        self._folder: PrivateFolder | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Remove the private folder."""
        with self._lock:
            if self._folder:
                self._folder.remove()
                self._folder = None

    def kubectl(self, ctx: Context, *arguments: str, stdin: str = "", waits: bool = False) -> process.Outcome:
        """Run kubectl to its end. With `waits`, it only waits for something and is stopped at Ctrl-C."""
        argv = [str(self._tools.kubectl), *self._flags(ctx, "--context"), *arguments]
        return self._run(ctx, argv, stdin, waits=waits)

    def helm(self, ctx: Context, *arguments: str, stdin: str = "") -> process.Outcome:
        """Run helm to its end. It is stopped at Ctrl-C, after which it marks its release as failed."""
        argv = [str(self._tools.helm), *arguments, *self._flags(ctx, "--kube-context")]
        return self._run(ctx, argv, stdin, waits=True)

    def file(self, text: str) -> Path:
        """Return the path of a private file with this text, which exists until `close`."""
        with self._lock:
            path = self._private() / hashlib.sha256(text.encode()).hexdigest()[:16]
            if not path.exists():
                write_atomically(path, text, mode=0o600)
            return path

    def _private(self) -> Path:
        self._folder = self._folder or PrivateFolder("hpc-kubernetes")
        return self._folder.path

    def _flags(self, ctx: Context, context_flag: str) -> list[str]:
        settings = ctx.settings()
        kubeconfig = settings.get("kubeconfig")
        if not kubeconfig or contains_unknown(kubeconfig):
            raise EngineError(
                "its provider has no kubeconfig, and the embedded engine uses no cluster of the environment: give one "
                "to pulumi_kubernetes.Provider"
            )
        context = settings.get("context")
        file = self.file(_kubeconfig_text(kubeconfig))
        return [f"--kubeconfig={file}", *([f"{context_flag}={context}"] if context else [])]

    def _run(self, ctx: Context, argv: list[str], stdin: str, *, waits: bool) -> process.Outcome:
        env = {key: value for key, value in os.environ.items() if not key.startswith(_CLUSTER_VARIABLES)}
        # Both cache the API's description, which changes with every CustomResourceDefinition.
        with self._lock:
            env["KUBECACHEDIR"] = str(self._private() / "cache")
        # Without this, kubectl and helm would go on after a kill of this process, and their result would be lost.
        setpriv = shutil.which("setpriv")
        guard = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        return process.run(
            [*guard, *argv],
            stdin=stdin,
            env=env,
            cwd=self._root,
            timeout=ctx.timeout + _GRACE_SECONDS if ctx.timeout else None,
            stopped=ctx.stopped if waits else None,
        )


def failure(outcome: process.Outcome, ctx: Context) -> str:
    """Return the reason why kubectl or helm failed: the end of its error, without warnings and general advice."""
    lines = [line.strip() for line in outcome.stderr.strip().splitlines() if line.strip()]
    errors = [
        line for line in lines if not line.startswith(("W0", "W1", "I0", "I1", "E0", "E1", "Warning:", "WARNING:"))
    ]
    errors = list(itertools.takewhile(lambda line: not line.startswith("Please review the fields above"), errors))
    text = "\n".join((errors or lines)[-_ERROR_LINES:]) or f"exit status {outcome.status}, without a message"
    return f"stopped by Ctrl-C: {text}" if ctx.stopped() else text.removeprefix("error: ").removeprefix("Error: ")


def succeeded(outcome: process.Outcome, ctx: Context, what: str) -> process.Outcome:
    """Return the outcome of kubectl or helm if it succeeded. Raises EngineError with `what` and the reason if not."""
    if outcome.status:
        raise EngineError(f"{what}: {failure(outcome, ctx)}")
    return outcome


def namespace(settings: Props) -> str:
    """Return the provider's namespace, for objects and releases that do not name one."""
    return str(settings.get("namespace") or "")


def _kubeconfig_text(kubeconfig: str) -> str:
    """Return the text of a kubeconfig, which may also be the path of a file, as in pulumi-kubernetes."""
    if "\n" in kubeconfig or kubeconfig.lstrip().startswith("{"):
        return kubeconfig
    try:
        return Path(kubeconfig).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise EngineError(f"kubeconfig {kubeconfig}: {error.strerror}") from None


_SECONDS = 600
"""Default timeout of pulumi-kubernetes for readiness and for a deletion."""
_REQUEST = "--request-timeout=60s"
_NO_KIND = ("no matches for kind", "the server doesn't have a resource type", "could not find the requested resource")
_ROLLOUTS = ("Deployment", "DaemonSet", "StatefulSet")
_CONDITIONS = {"CustomResourceDefinition": "established", "Job": "complete"}


class Object(Provider):
    """Provider of Kubernetes objects, whose field manager is the resource's own."""

    readable = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        return normalized(named(ctx, olds, news))

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        replaces = replacing(ctx, olds, news)
        # Two objects can't have the same name; an object that was named automatically gets another name.
        first = bool(replaces) and keeps_name(olds, news)
        return Diff(replaces=replaces, delete_first=first)

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        manager = field_manager(ctx, {})
        existing = self._get(ctx, news)
        adopts = str(ctx.settings().get("upsertExistingObjects")).lower() == "true"
        if existing and not adopts and manager not in _managers(existing):
            raise EngineError(
                f"{_name(news)} already exists and is not this resource's. Delete it, or set upsertExistingObjects "
                "of the provider to take it over"
            )
        with unfinished(lambda: manager in _managers(self._get(ctx, news))):
            return self._apply(ctx, news, manager)

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return self._apply(ctx, news, field_manager(ctx, outputs))[1]

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        seconds = ctx.timeout or _seconds(inputs)
        wait = ["--ignore-not-found", "--wait=true", f"--timeout={seconds:g}s"]
        what = identity(ctx.type, id_, inputs)
        done = self._kubectl(ctx, what, "delete", "--filename=-", *wait, waits=True)
        if not _is_unknown_kind(done):
            succeeded(done, ctx, f"{_name(what)} could not be deleted")

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        live = self._get(ctx, identity(ctx.type, id_, inputs))
        if live is None:
            return None
        return id_of(live), actual_inputs(inputs, live), outputs_of(inputs, live, field_manager(ctx, outputs))

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        with unfinished():
            existing = self._get(ctx, inputs)
            # Only if this resource applied the object, and no other resource has it.
            if existing and id_of(existing) not in existing_ids and field_manager(ctx, {}) in _managers(existing):
                self.delete(ctx, id_of(existing), inputs, {})

    def _apply(self, ctx: Context, news: Props, manager: str) -> tuple[str, Props]:
        annotations = (news.get("metadata") or {}).get("annotations") or {}
        forced = "true" in (
            annotations.get("pulumi.com/patchForce"),
            str(ctx.settings().get("enablePatchForce")).lower(),
        )
        options = ["--server-side", f"--field-manager={manager}", *(["--force-conflicts"] if forced else [])]
        done = self._kubectl(ctx, news, "apply", *options, "--filename=-", "--output=json", _REQUEST)
        live = json.loads(succeeded(done, ctx, _name(news)).stdout)
        if annotations.get("pulumi.com/skipAwait") != "true":
            live = self._await(ctx, live, news) or live
        return id_of(live), outputs_of(news, live, manager)

    def _await(self, ctx: Context, live: Props, news: Props) -> Props | None:
        """Wait until an object is ready. Returns the object then; None if its kind has no such condition."""
        kind, limit = live["kind"], f"--timeout={ctx.timeout or _seconds(news):g}s"
        what = identity(ctx.type, "", live)
        if kind in _CONDITIONS:
            condition = f"--for=condition={_CONDITIONS[kind]}"
            done = self._kubectl(ctx, what, "wait", condition, limit, "--filename=-", waits=True)
        elif kind in _ROLLOUTS:
            done = self._kubectl(ctx, what, "rollout", "status", limit, "--filename=-", waits=True)
        else:
            return None
        succeeded(done, ctx, f"{_name(live)} was applied and is not ready")
        return self._get(ctx, what)

    def _get(self, ctx: Context, what: Props) -> Props | None:
        options = ["--output=json", "--ignore-not-found", "--show-managed-fields", _REQUEST]
        done = self._kubectl(ctx, identity(ctx.type, "", what), "get", "--filename=-", *options)
        if _is_unknown_kind(done) or not succeeded(done, ctx, _name(what)).stdout.strip():
            return None
        # With --ignore-not-found, kubectl prints a list of one.
        live = json.loads(done.stdout)
        return live["items"][0] if live["kind"] == "List" else live

    def _kubectl(self, ctx: Context, what: Props, *arguments: str, waits: bool = False) -> Outcome:
        place = (what.get("metadata") or {}).get("namespace") or namespace(ctx.settings())
        options = [f"--namespace={place}"] if place else []
        manifest = json.dumps({key: value for key, value in what.items() if key != "status"})
        return self._cluster.kubectl(ctx, *arguments, *options, stdin=manifest, waits=waits)


def _managers(live: Props | None) -> set[str]:
    return {row.get("manager", "") for row in live["metadata"].get("managedFields") or []} if live else set()


def _is_unknown_kind(done: Outcome) -> bool:
    """Return whether kubectl failed because the object's kind is not served, so that the object can't exist: its
    CustomResourceDefinition was deleted."""
    return done.status != 0 and any(text in done.stderr for text in _NO_KIND)


def _seconds(inputs: Props) -> float:
    annotations = (inputs.get("metadata") or {}).get("annotations") or {}
    return float(annotations.get("pulumi.com/timeoutSeconds") or _SECONDS)


def _name(inputs: Props) -> str:
    metadata = inputs.get("metadata") or {}
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{inputs.get('kind')} {place}{metadata.get('name', '')}"
