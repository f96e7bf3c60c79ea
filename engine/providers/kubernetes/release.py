"""Helm releases, by the command helm."""

import hashlib
import json
import secrets
from pathlib import Path

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.providers.base import Context, Provider, Unfinished
from engine.providers.kubernetes import helm_options
from engine.providers.kubernetes.cluster import Cluster, failure, namespace
from engine.values import Props, same, secret

RELEASE = "kubernetes:helm.sh/v3:Release"

_LABEL = "pulumi.com/resource"
"""Label of a release's records that names its resource, so that what an interrupted creation left is known again."""
_CHECKSUM = "__checksum"
"""Output with the checksum of a chart that is here; pulumi-kubernetes has none, and leaves it alone."""
_HEALTHY = ("deployed", "failed", "superseded")
"""States of the latest revision that an upgrade starts from."""
_LOST = ("pending-install", "uninstalling", "uninstalled")
"""States of a first revision that has nothing to go back to."""


class Release(Provider):
    """One release for each resource: `helm upgrade --install`, waiting until it is ready unless `skipAwait`."""

    readable = True

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self._cluster, self._root = cluster, root

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        place = news.get("namespace") or namespace(ctx.settings()) or "default"
        # As pulumi-kubernetes names it: with a suffix, and not anew in each run.
        name = news.get("name") or olds.get("name") or f"{ctx.name.lower()}-{secrets.token_hex(4)}"
        return helm_options.checked({**news, "name": name, "namespace": place}, olds, self._root)

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        replaces = tuple(key for key in ("name", "namespace") if not same(olds.get(key), news.get(key)))
        status = (outputs.get("status") or {}).get("status", "deployed")
        changed = _CHECKSUM in outputs and outputs[_CHECKSUM] != helm_options.checksum(news, self._root)
        return Diff(changes=True if status != "deployed" or changed else None, replaces=replaces)

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        revisions = self._revisions(ctx, news)
        if revisions and revisions[-1].get(_LABEL) != _label(ctx):
            raise EngineError(
                f"the release {_name(news)} already exists and is not this resource's: uninstall it first"
            )
        try:
            return _id(news), self._upgrade(ctx, news, revisions)
        except EngineError as error:
            if self._may_be_there(ctx, news):
                raise Unfinished(str(error)) from None
            raise

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return self._upgrade(ctx, news, self._revisions(ctx, news))

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        hooks = ["--no-hooks"] if inputs.get("disableWebhooks") else []
        options = ["--wait", "--ignore-not-found", _limit(ctx, inputs), *hooks]
        done = self._cluster.helm(ctx, "uninstall", inputs["name"], *_place(inputs), *options)
        if done.status:
            raise EngineError(f"helm can't uninstall {_name(inputs)}: {failure(done, ctx)}")

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        place, _, name = id_.rpartition("/")
        found = {**inputs, "name": name, "namespace": place or "default"}
        done = self._cluster.helm(ctx, "get", "metadata", name, *_place(found), "--output=json")
        if done.status and "not found" in done.stderr:
            return None
        if done.status:
            raise EngineError(f"helm can't read {_name(found)}: {failure(done, ctx)}")
        return id_, inputs, {**(outputs or found), "status": _status(json.loads(done.stdout))}

    def abandon(self, ctx: Context, inputs: Props, held: frozenset[str]) -> None:
        try:
            revisions = self._revisions(ctx, inputs)
            if revisions and _id(inputs) not in held and revisions[-1].get(_LABEL) == _label(ctx):
                self.delete(ctx, _id(inputs), inputs, {})
        except EngineError as error:
            raise Unfinished(str(error)) from None

    def _upgrade(self, ctx: Context, news: Props, revisions: list[Props]) -> Props:
        self._recover(ctx, news, revisions)
        options = ["--install", "--values=-", f"--labels={_LABEL}={_label(ctx)}", _limit(ctx, news), *_place(news)]
        chart, *rest = helm_options.arguments(news)
        done = self._cluster.helm(
            ctx, "upgrade", news["name"], chart, *options, *rest, "--output=json", stdin=helm_options.values(news)
        )
        if done.status:
            raise EngineError(f"helm can't install {_name(news)}: {failure(done, ctx)}")
        release = json.loads(done.stdout)
        chart_of = release["chart"]["metadata"]
        found = {
            **{key: release[key] for key in ("name", "namespace")},
            "chart": chart_of["name"], "version": chart_of["version"], "appVersion": chart_of.get("appVersion", ""),
            "revision": release["version"], "status": release["info"]["status"],
        }  # fmt: skip
        mark = helm_options.checksum(news, self._root)
        return {
            **news, "status": _status(found), "__inputs": secret(news), **({_CHECKSUM: mark} if mark else {})
        }  # fmt: skip

    def _recover(self, ctx: Context, news: Props, revisions: list[Props]) -> None:
        """Undo what a killed helm left: it refuses all work on a release that another helm seems to work on."""
        state = revisions[-1]["status"] if revisions else "deployed"
        if state in _HEALTHY:
            return
        kept = [row for row in revisions if row["status"] in ("deployed", "superseded")]
        ctx.log("info", f"the release is in state {state}, which an interrupted run left: recovering it")
        if kept and state not in _LOST:
            back = ["rollback", news["name"], kept[-1]["version"], "--no-hooks"]
        else:
            back = ["uninstall", news["name"], "--wait", "--ignore-not-found"]
        done = self._cluster.helm(ctx, *back, *_place(news), _limit(ctx, news))
        if done.status:
            raise EngineError(f"helm can't recover {_name(news)} from the state {state}: {failure(done, ctx)}")

    def _may_be_there(self, ctx: Context, inputs: Props) -> bool:
        try:
            return bool(self._revisions(ctx, inputs))
        except EngineError:
            return True

    def _revisions(self, ctx: Context, inputs: Props) -> list[Props]:
        """The labels of a release's records, oldest first. helm's own commands do not show labels, and `helm history`
        reads every revision in full."""
        labels = '{range .items[*]}{.metadata.labels}{"\\n"}{end}'
        selector = f"--selector=owner=helm,name={inputs['name']}"
        done = self._cluster.kubectl(
            ctx, "get", "secrets", *_place(inputs), selector, f"--output=jsonpath={labels}", "--request-timeout=60s"
        )
        if done.status:
            raise EngineError(f"{_name(inputs)}: {failure(done, ctx)}")
        return sorted(map(json.loads, done.stdout.splitlines()), key=lambda row: int(row["version"]))


def _label(ctx: Context) -> str:
    return hashlib.sha256(ctx.urn.encode()).hexdigest()[:16]


def _limit(ctx: Context, inputs: Props) -> str:
    """helm's own limit: that of the release, or of the resource (customTimeouts) if that is less."""
    seconds = helm_options.seconds(inputs)
    return f"--timeout={min(seconds, int(ctx.timeout or seconds))}s"


def _place(inputs: Props) -> list[str]:
    return [f"--namespace={inputs['namespace']}"]


def _id(inputs: Props) -> str:
    return f"{inputs['namespace']}/{inputs['name']}"


def _name(inputs: Props) -> str:
    return f"{inputs['name']} in {inputs['namespace']}"


def _status(found: Props) -> Props:
    return {
        key: found.get(key) for key in ("appVersion", "chart", "name", "namespace", "revision", "status", "version")
    }
