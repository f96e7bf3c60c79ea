"""Plain objects of any kind, by server-side apply."""

import json

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.providers.base import Context, Provider, Unfinished
from engine.providers.kubernetes import manifests
from engine.providers.kubernetes.cluster import Cluster, failure, namespace
from engine.providers.process import Outcome
from engine.values import Props

_SECONDS = 600
"""How long pulumi-kubernetes waits by default, for readiness and for a deletion."""
_REQUEST = "--request-timeout=60s"
_NO_KIND = ("no matches for kind", "the server doesn't have a resource type", "could not find the requested resource")
_ROLLOUTS = ("Deployment", "DaemonSet", "StatefulSet")
_CONDITIONS = {"CustomResourceDefinition": "established", "Job": "complete"}


class Object(Provider):
    """One object for each resource, whose field manager is the resource's own."""

    readable = True

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        return manifests.normalized(manifests.named(ctx, olds, news))

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        replaces = manifests.replacing(ctx, olds, news)
        # Two objects can't have one name at a time; one that was named automatically gets another name.
        first = bool(replaces) and manifests.keeps_name(olds, news)
        return Diff(replaces=replaces, delete_first=first)

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        manager = manifests.manager(ctx, {})
        there = self._get(ctx, news)
        adopts = str(ctx.settings().get("upsertExistingObjects")).lower() == "true"
        if there and not adopts and manager not in _managers(there):
            raise EngineError(
                f"{_name(news)} already exists and is not this resource's. Delete it, or set upsertExistingObjects "
                "of the provider to take it over"
            )
        try:
            return self._apply(ctx, news, manager)
        except EngineError as error:
            if self._may_be_there(ctx, news, manager):
                raise Unfinished(str(error)) from None
            raise

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return self._apply(ctx, news, manifests.manager(ctx, outputs))[1]

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        seconds = ctx.timeout or _seconds(inputs)
        wait = ["--ignore-not-found", "--wait=true", f"--timeout={seconds:g}s"]
        what = manifests.identity(ctx.type, id_, inputs)
        done = self._kubectl(ctx, what, "delete", "--filename=-", *wait, waits=True)
        if done.status and not _is_unknown_kind(done):
            raise EngineError(f"{_name(what)} could not be deleted: {failure(done, ctx)}")

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        live = self._get(ctx, manifests.identity(ctx.type, id_, inputs))
        if live is None:
            return None
        return (
            manifests.id_of(live),
            manifests.as_found(inputs, live),
            manifests.outputs_of(inputs, live, manifests.manager(ctx, outputs)),
        )

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        try:
            there = self._get(ctx, inputs)
            # Only what this very resource has applied, and what no other resource holds.
            if there and manifests.id_of(there) not in held and manifests.manager(ctx, {}) in _managers(there):
                self.delete(ctx, manifests.id_of(there), inputs, {})
        except EngineError as error:
            raise Unfinished(str(error)) from None

    def _apply(self, ctx: Context, news: Props, manager: str) -> tuple[str, Props]:
        annotations = (news.get("metadata") or {}).get("annotations") or {}
        forced = "true" in (
            annotations.get("pulumi.com/patchForce"),
            str(ctx.settings().get("enablePatchForce")).lower(),
        )
        options = ["--server-side", f"--field-manager={manager}", *(["--force-conflicts"] if forced else [])]
        done = self._kubectl(ctx, news, "apply", *options, "--filename=-", "--output=json", _REQUEST)
        if done.status:
            raise EngineError(f"{_name(news)}: {failure(done, ctx)}")
        live = json.loads(done.stdout)
        if annotations.get("pulumi.com/skipAwait") != "true":
            live = self._await(ctx, live, news) or live
        return manifests.id_of(live), manifests.outputs_of(news, live, manager)

    def _await(self, ctx: Context, live: Props, news: Props) -> Props | None:
        """Wait for what the object is for, where its kind says when that is; the object as it is then."""
        kind, limit = live["kind"], f"--timeout={ctx.timeout or _seconds(news):g}s"
        what = manifests.identity(ctx.type, "", live)
        if kind in _CONDITIONS:
            condition = f"--for=condition={_CONDITIONS[kind]}"
            done = self._kubectl(ctx, what, "wait", condition, limit, "--filename=-", waits=True)
        elif kind in _ROLLOUTS:
            done = self._kubectl(ctx, what, "rollout", "status", limit, "--filename=-", waits=True)
        else:
            return None
        if done.status:
            raise EngineError(f"{_name(live)} was applied and is not ready: {failure(done, ctx)}")
        return self._get(ctx, what)

    def _may_be_there(self, ctx: Context, inputs: Props, manager: str) -> bool:
        try:
            there = self._get(ctx, inputs)
        except EngineError:
            return True
        return there is not None and manager in _managers(there)

    def _get(self, ctx: Context, what: Props) -> Props | None:
        options = ["--output=json", "--ignore-not-found", "--show-managed-fields", _REQUEST]
        identity = manifests.identity(ctx.type, "", what)
        done = self._kubectl(ctx, identity, "get", "--filename=-", *options)
        if done.status and not _is_unknown_kind(done):
            raise EngineError(f"{_name(what)}: {failure(done, ctx)}")
        if done.status or not done.stdout.strip():
            return None
        # With --ignore-not-found, kubectl prints a list of one.
        found = json.loads(done.stdout)
        return found["items"][0] if found["kind"] == "List" else found

    def _kubectl(self, ctx: Context, manifest: Props, *arguments: str, waits: bool = False) -> Outcome:
        place = (manifest.get("metadata") or {}).get("namespace") or namespace(ctx.settings())
        inside = [f"--namespace={place}"] if place else []
        return self._cluster.kubectl(ctx, *arguments, *inside, stdin=manifests.text(manifest), waits=waits)


def _managers(live: Props) -> set[str]:
    return {row.get("manager", "") for row in live["metadata"].get("managedFields") or []}


def _is_unknown_kind(done: Outcome) -> bool:
    """An object whose kind is not served (any more) is not there: its CustomResourceDefinition is gone."""
    return any(text in done.stderr for text in _NO_KIND)


def _seconds(inputs: Props) -> float:
    annotations = (inputs.get("metadata") or {}).get("annotations") or {}
    return float(annotations.get("pulumi.com/timeoutSeconds") or _SECONDS)


def _name(inputs: Props) -> str:
    metadata = inputs.get("metadata") or {}
    place = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{inputs.get('kind')} {place}{metadata.get('name', '')}"
