"""Plain objects of the package `kubernetes` (pulumi-kubernetes 4.34), by kubectl; and how kubectl and helm are run."""

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
"""Fields whose change replaces an object, besides its name and namespace: most are immutable on the server, and what
uses a ConfigMap or Secret would not notice. From pulumi-kubernetes, provider/pkg/provider/diff.go."""
_MUTABLE = {"ConfigMap": "enableConfigMapMutable", "Secret": "enableSecretMutable"}
"""Settings of the provider with which the data of these are changed in place."""


def identity(type_: str, id_: str, inputs: Props) -> Props:
    """Return what names an object to kubectl; by its type and id where there are no inputs, as for one that is only
    read."""
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
    """Return whether a replacement has the name of what it replaces."""
    was, now = olds.get("metadata") or {}, news.get("metadata") or {}
    automatic = (now.get("annotations") or {}).get(AUTONAMED) == "true"
    return not automatic and all(was.get(key) == now.get(key) for key in ("name", "namespace"))


def field_manager(ctx: Context, outputs: Props) -> str:
    """The field manager of an object: the recorded one, else one that no other resource has, so that an object that an
    interrupted creation left is known again."""
    return outputs.get("__fieldManager") or f"pulumi-kubernetes-{hashlib.sha256(ctx.urn.encode()).hexdigest()[:8]}"


def replacing(ctx: Context, olds: Props, news: Props) -> tuple[str, ...]:
    """The changed properties that replace the object."""
    kind = str(news.get("kind"))
    fields = ("apiVersion.group", "kind", "metadata.name", "metadata.namespace", *_fields(ctx, kind, olds))
    patterns = [parse_path(field) for field in fields]
    changed = (change.path for change in differences(olds, news))
    hit = [path for path in changed if any(contains(p, parse_path(path)) for p in patterns)]
    moved = _group(olds) != _group(news)
    return (*hit, *(("apiVersion",) if moved else ()))


def _fields(ctx: Context, kind: str, olds: Props) -> tuple[str, ...]:
    setting = _MUTABLE.get(kind)
    if setting and str(ctx.settings().get(setting)).lower() == "true" and not olds.get("immutable"):
        return ("type",) if kind == "Secret" else ()
    return _REPLACES.get(kind, ())


def _group(inputs: Props) -> str:
    return str(inputs.get("apiVersion", "")).rpartition("/")[0]


def id_of(live: Props) -> str:
    """NAMESPACE/NAME, or NAME of what is in no namespace."""
    metadata = live["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])


def outputs_of(inputs: Props, live: Props, field_manager: str) -> Props:
    """Return what the state records of an object: all but what changes with every write, and the inputs."""
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


_FOREIGN = ("KUBECONFIG", "HELM_KUBE", "HELM_NAMESPACE", "HELM_DRIVER")
"""Beginnings of variables that would choose another cluster or place than the provider resource does."""
_GRACE_SECONDS = 10.0
"""Time for kubectl and helm to end by themselves at the limit of a resource, with a message of their own."""
_SHOWN = 8
"""Lines of an error that are shown."""


class Cluster:
    """kubectl and helm, with a kubeconfig file for each provider resource in a private folder, which also has what they
    cache of the cluster's API."""

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
        """Run kubectl to its end; `waits` says that it may be stopped at Ctrl-C."""
        argv = [str(self._tools.kubectl), *self._flags(ctx, "--context"), *arguments]
        return self._run(ctx, argv, stdin, waits=waits)

    def helm(self, ctx: Context, *arguments: str, stdin: str = "") -> process.Outcome:
        """Run helm to its end. It is stopped at Ctrl-C, and then marks its release as failed."""
        argv = [str(self._tools.helm), *arguments, *self._flags(ctx, "--kube-context")]
        return self._run(ctx, argv, stdin, waits=True)

    def file(self, text: str) -> Path:
        """A private file with this text, for what no program reads from its standard input; until `close`."""
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
        given = settings.get("kubeconfig")
        if not given or contains_unknown(given):
            raise EngineError(
                "its provider has no kubeconfig, and the embedded engine uses no cluster of the environment: give one "
                "to pulumi_kubernetes.Provider"
            )
        text = _text(given)
        context = settings.get("context")
        return [f"--kubeconfig={self.file(text)}", *([f"{context_flag}={context}"] if context else [])]

    def _run(self, ctx: Context, argv: list[str], stdin: str, *, waits: bool) -> process.Outcome:
        env = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        # Both keep the API's description, which changes with every CustomResourceDefinition.
        with self._lock:
            env["KUBECACHEDIR"] = str(self._private() / "cache")
        # Otherwise kubectl and helm go on after a kill of this process, and nobody has seen what they did.
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
        return process.run(
            [*bound, *argv],
            stdin=stdin,
            env=env,
            cwd=self._root,
            timeout=ctx.timeout + _GRACE_SECONDS if ctx.timeout else None,
            stopped=ctx.stopped if waits else None,
        )


def failure(outcome: process.Outcome, ctx: Context) -> str:
    """The reason why kubectl or helm failed: the end of its own error, without its warnings and its general advice."""
    lines = [line.strip() for line in outcome.stderr.strip().splitlines() if line.strip()]
    shown = [
        line for line in lines if not line.startswith(("W0", "W1", "I0", "I1", "E0", "E1", "Warning:", "WARNING:"))
    ]
    shown = list(itertools.takewhile(lambda line: not line.startswith("Please review the fields above"), shown))
    text = "\n".join((shown or lines)[-_SHOWN:]) or f"exit status {outcome.status}, without a message"
    return f"stopped by Ctrl-C: {text}" if ctx.stopped() else text.removeprefix("error: ").removeprefix("Error: ")


def succeeded(outcome: process.Outcome, ctx: Context, what: str) -> process.Outcome:
    """The outcome of kubectl or helm. Raises EngineError: `what` failed, and why."""
    if outcome.status:
        raise EngineError(f"{what}: {failure(outcome, ctx)}")
    return outcome


def namespace(settings: Props) -> str:
    """The provider's namespace for what names none."""
    return str(settings.get("namespace") or "")


def _text(kubeconfig: str) -> str:
    """The kubeconfig's text; as pulumi-kubernetes, a provider may also be given the path of a file."""
    if "\n" in kubeconfig or kubeconfig.lstrip().startswith("{"):
        return kubeconfig
    try:
        return Path(kubeconfig).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise EngineError(f"kubeconfig {kubeconfig}: {error.strerror}") from None


_SECONDS = 600
"""pulumi-kubernetes's default time for readiness and for a deletion."""
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
        # Two objects can't have one name at a time; one that was named automatically gets another name.
        first = bool(replaces) and keeps_name(olds, news)
        return Diff(replaces=replaces, delete_first=first)

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        manager = field_manager(ctx, {})
        there = self._get(ctx, news)
        adopts = str(ctx.settings().get("upsertExistingObjects")).lower() == "true"
        if there and not adopts and manager not in _managers(there):
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
        return id_of(live), as_found(inputs, live), outputs_of(inputs, live, field_manager(ctx, outputs))

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        with unfinished():
            there = self._get(ctx, inputs)
            # Only what this very resource has applied, and what no other resource holds.
            if there and id_of(there) not in held and field_manager(ctx, {}) in _managers(there):
                self.delete(ctx, id_of(there), inputs, {})

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
        """Wait for what the object is for, where its kind says when that is; the object as it is then."""
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
        named_by = identity(ctx.type, "", what)
        done = self._kubectl(ctx, named_by, "get", "--filename=-", *options)
        if _is_unknown_kind(done) or not succeeded(done, ctx, _name(what)).stdout.strip():
            return None
        # With --ignore-not-found, kubectl prints a list of one.
        found = json.loads(done.stdout)
        return found["items"][0] if found["kind"] == "List" else found

    def _kubectl(self, ctx: Context, what: Props, *arguments: str, waits: bool = False) -> Outcome:
        place = (what.get("metadata") or {}).get("namespace") or namespace(ctx.settings())
        inside = [f"--namespace={place}"] if place else []
        manifest = json.dumps({key: value for key, value in what.items() if key != "status"})
        return self._cluster.kubectl(ctx, *arguments, *inside, stdin=manifest, waits=waits)


def _managers(live: Props | None) -> set[str]:
    return {row.get("manager", "") for row in live["metadata"].get("managedFields") or []} if live else set()


def _is_unknown_kind(done: Outcome) -> bool:
    """An object whose kind is not served (any more) is not there: its CustomResourceDefinition is gone."""
    return done.status != 0 and any(text in done.stderr for text in _NO_KIND)


def _seconds(inputs: Props) -> float:
    annotations = (inputs.get("metadata") or {}).get("annotations") or {}
    return float(annotations.get("pulumi.com/timeoutSeconds") or _SECONDS)


def _name(inputs: Props) -> str:
    metadata = inputs.get("metadata") or {}
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{inputs.get('kind')} {place}{metadata.get('name', '')}"
