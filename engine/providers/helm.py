"""Helm releases (kubernetes:helm.sh/v3:Release of pulumi-kubernetes 4.34), with the program helm."""

import hashlib
import json
import secrets
from pathlib import Path

import yaml

from engine.core.diff import Diff
from engine.errors import EngineError
from engine.providers.base import Context, InputCheckError, Provider, unfinished
from engine.providers.kubernetes import Cluster, namespace, succeeded
from engine.values import UNKNOWN, Props, Value, same, secret

_SWITCHES = {
    "atomic": "--atomic",
    "cleanupOnFail": "--cleanup-on-fail",
    "createNamespace": "--create-namespace",
    "dependencyUpdate": "--dependency-update",
    "devel": "--devel",
    "disableOpenapiValidation": "--disable-openapi-validation",
    "disableWebhooks": "--no-hooks",
    "forceUpdate": "--force",
    "renderSubchartNotes": "--render-subchart-notes",
    "resetValues": "--reset-values",
    "reuseValues": "--reuse-values",
    "skipCrds": "--skip-crds",
    "takeOwnership": "--take-ownership",
    "verify": "--verify",
}
_OPTIONS = {
    "description": "--description",
    "keyring": "--keyring",
    "maxHistory": "--history-max",
    "postrender": "--post-renderer",
    "version": "--version",
}
_REPOSITORY = {"caFile": "--ca-file", "certFile": "--cert-file", "keyFile": "--key-file"}
_UNSUPPORTED = ("lint", "recreatePods", "replace")
_DEFAULT_SECONDS = 300
_DEFAULTS: Props = {
    **dict.fromkeys((*_SWITCHES, *_UNSUPPORTED), False),
    **dict.fromkeys(("allowNullValues", "disableCRDHooks", "skipAwait", "waitForJobs"), False),
    **dict.fromkeys(("description", "keyring", "postrender", "version"), ""),
    "timeout": 0,
}
"""Defaults in the state of every release, from pulumi-kubernetes (provider/pkg/provider/helm_release.go, Release)."""
_REPOSITORY_DEFAULTS: Props = dict.fromkeys(("caFile", "certFile", "keyFile", "password", "repo", "username"), "")
_OWN = ("chart", "maxHistory", "name", "namespace", "repositoryOpts", "values")
"""Inputs without a default in the state."""
_DROPPED = ("compat", "manifest", "resourceNames", "valueYamlFiles")
"""Inputs that the SDK sends and the provider does not keep."""


def checked(inputs: Props, olds: Props, root: Path) -> Props:
    """Return the inputs as pulumi-kubernetes keeps them: with all defaults, and the version of the chart.

    Other versions of the provider have other inputs. So a default that the old state does not have is left out, and
    inputs of the old state that the program does not give are kept. Raises InputCheckError for inputs that the helm
    command does not support.
    """
    unsupported = [name for name in _UNSUPPORTED if inputs.get(name) is True]
    # In pulumi-kubernetes it is for the hooks of upgrades, and disableWebhooks for those of installations.
    if inputs.get("disableCRDHooks") is True and not inputs.get("disableWebhooks"):
        unsupported.append("disableCRDHooks")
    if unsupported:
        raise InputCheckError("\n".join(f"{name}: the embedded engine does not support it" for name in unsupported))
    repository = inputs.get("repositoryOpts") or {}
    if repository != UNKNOWN and (repository.get("password") or repository.get("username")):
        raise InputCheckError(
            "repositoryOpts: helm takes a password on its command line only, which others can read. Log in with "
            "`helm registry login`, or give the chart's folder"
        )
    news = {key: value for key, value in inputs.items() if key not in _DROPPED}
    if inputs.get("valueYamlFiles"):
        news["values"] = _merged_values(inputs)
    if isinstance(repository, dict) and repository:
        news["repositoryOpts"] = {**_REPOSITORY_DEFAULTS, **repository}
    if not inputs.get("skipAwait"):
        news.setdefault("timeout", _DEFAULT_SECONDS)
    if (folder := _local_chart(inputs, root)) is not None:
        news["version"] = str(yaml.safe_load((folder / "Chart.yaml").read_text(encoding="utf-8"))["version"])
    elif not news.get("version") and olds.get("version"):
        news["version"] = olds["version"]
    defaults = {key: value for key, value in _DEFAULTS.items() if not olds or key in olds}
    kept = {key: olds[key] for key in olds if key not in (*_DEFAULTS, *_OWN, *_DROPPED, "checksum")}
    return {**defaults, **kept, **news}


def checksum(inputs: Props, root: Path) -> str:
    """Return a hash of a chart that is a local folder or file, by which a changed one is an update; "" for others."""
    chart = root / str(inputs.get("chart"))
    if inputs.get("repositoryOpts") or not chart.exists():
        return ""
    total = hashlib.sha256()
    for file in sorted(file for file in chart.rglob("*") if file.is_file()) if chart.is_dir() else [chart]:
        total.update(f"{file.relative_to(chart)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def _local_chart(inputs: Props, root: Path) -> Path | None:
    """Return the chart's folder, if the chart is a local folder."""
    chart = inputs.get("chart")
    if not isinstance(chart, str) or chart == UNKNOWN or inputs.get("repositoryOpts"):
        return None
    return root / chart if (root / chart / "Chart.yaml").is_file() else None


def arguments(inputs: Props) -> list[str]:
    """Return the chart and the options of `helm upgrade --install`, without values and namespace."""
    repository = inputs.get("repositoryOpts") or {}
    chart, repo = str(inputs["chart"]), str(repository.get("repo") or "")
    # Without a scheme, it is the name of a repository that the user has added.
    argv = [f"{repo}/{chart}" if repo and "://" not in repo else chart]
    argv += [f"--repo={repo}"] if "://" in repo else []
    argv += [flag for name, flag in _SWITCHES.items() if inputs.get(name) is True]
    argv += [f"{flag}={_text(inputs[name])}" for name, flag in _OPTIONS.items() if inputs.get(name) not in (None, "")]
    argv += [f"{flag}={repository[name]}" for name, flag in _REPOSITORY.items() if repository.get(name)]
    if not inputs.get("skipAwait"):
        argv += ["--wait", *(["--wait-for-jobs"] if inputs.get("waitForJobs") else [])]
    return argv


def values(inputs: Props) -> str:
    """Return all values as JSON. A null removes a chart's default, whatever `allowNullValues` is, as in
    pulumi-kubernetes since 4.30."""
    return json.dumps(inputs.get("values") or {})


def _merged_values(inputs: Props) -> Value:
    """Return the values of all files in order, with `values` merged over them."""
    merged: Props = {}
    for file in inputs["valueYamlFiles"]:
        merged.update(yaml.safe_load(_read(file)) or {})
    return _merge(merged, inputs.get("values") or {})


def _merge(below: Value, above: Value) -> Value:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return above


def _read(asset: Props) -> str:
    if "text" in asset:
        return asset["text"]
    if asset.get("path"):
        return Path(asset["path"]).read_text(encoding="utf-8")
    raise InputCheckError(
        f"valueYamlFiles: {asset.get('uri')}: the embedded engine fetches nothing; give a file that is here"
    )


def _text(value: Value) -> str:
    # The SDK sends numbers as floats.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_LABEL = "pulumi.com/resource"
"""Label of a release's records with a hash of the resource's URN. It identifies what an interrupted creation left."""
_CHECKSUM = "__checksum"
"""Output with the checksum of a local chart. pulumi-kubernetes has no such output and does not change it."""
_HEALTHY = ("deployed", "failed", "superseded")
"""States of the latest revision from which an upgrade can start."""
_LOST = ("pending-install", "uninstalling", "uninstalled")
"""States of a first revision, which can't be rolled back."""


class Release(Provider):
    """Provider of Helm releases: `helm upgrade --install`, which waits for readiness unless `skipAwait`."""

    readable = True

    def __init__(self, cluster: Cluster, root: Path) -> None:
        self._cluster, self._root = cluster, root

    def check(self, ctx: Context, olds: Props, news: Props) -> Props:
        place = news.get("namespace") or namespace(ctx.settings()) or "default"
        # As in pulumi-kubernetes, the name has a random suffix, and later runs keep it.
        name = news.get("name") or olds.get("name") or f"{ctx.name.lower()}-{secrets.token_hex(4)}"
        return checked({**news, "name": name, "namespace": place}, olds, self._root)

    def diff(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Diff:  # noqa: ARG002
        replaces = tuple(key for key in ("name", "namespace") if not same(olds.get(key), news.get(key)))
        status = (outputs.get("status") or {}).get("status", "deployed")
        changed = _CHECKSUM in outputs and outputs[_CHECKSUM] != checksum(news, self._root)
        return Diff(changes=True if status != "deployed" or changed else None, replaces=replaces)

    def create(self, ctx: Context, news: Props) -> tuple[str, Props]:
        revisions = self._revisions(ctx, news)
        if revisions and revisions[-1].get(_LABEL) != _label(ctx):
            raise EngineError(
                f"the release {_name(news)} already exists and is not this resource's: uninstall it first"
            )
        with unfinished(lambda: bool(self._revisions(ctx, news))):
            return _id(news), self._upgrade(ctx, news, revisions)

    def update(self, ctx: Context, id_: str, olds: Props, outputs: Props, news: Props) -> Props:  # noqa: ARG002
        return self._upgrade(ctx, news, self._revisions(ctx, news))

    def delete(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> None:  # noqa: ARG002
        hooks = ["--no-hooks"] if inputs.get("disableWebhooks") else []
        options = ["--wait", "--ignore-not-found", _limit(ctx, inputs), *hooks]
        done = self._cluster.helm(ctx, "uninstall", inputs["name"], *_place(inputs), *options)
        succeeded(done, ctx, f"helm can't uninstall {_name(inputs)}")

    def read(self, ctx: Context, id_: str, inputs: Props, outputs: Props) -> tuple[str, Props, Props] | None:
        place, _, name = id_.rpartition("/")
        release = {**inputs, "name": name, "namespace": place or "default"}
        done = self._cluster.helm(ctx, "get", "metadata", name, *_place(release), "--output=json")
        if done.status and "not found" in done.stderr:
            return None
        status = _status(json.loads(succeeded(done, ctx, f"helm can't read {_name(release)}").stdout))
        return id_, inputs, {**(outputs or release), "status": status}

    def abandon(self, ctx: Context, inputs: Props, existing_ids: frozenset[str]) -> None:
        with unfinished():
            revisions = self._revisions(ctx, inputs)
            if revisions and _id(inputs) not in existing_ids and revisions[-1].get(_LABEL) == _label(ctx):
                self.delete(ctx, _id(inputs), inputs, {})

    def _upgrade(self, ctx: Context, news: Props, revisions: list[Props]) -> Props:
        self._recover(ctx, news, revisions)
        options = ["--install", "--values=-", f"--labels={_LABEL}={_label(ctx)}", _limit(ctx, news), *_place(news)]
        chart, *rest = arguments(news)
        arguments_ = ("upgrade", news["name"], chart, *options, *rest, "--output=json")
        done = self._cluster.helm(ctx, *arguments_, stdin=values(news))
        release = json.loads(succeeded(done, ctx, f"helm can't install {_name(news)}").stdout)
        metadata = release["chart"]["metadata"]
        status = {
            **{key: release[key] for key in ("name", "namespace")},
            "chart": metadata["name"],
            "version": metadata["version"],
            "appVersion": metadata.get("appVersion", ""),
            "revision": release["version"],
            "status": release["info"]["status"],
        }
        total = checksum(news, self._root)
        return {**news, "status": _status(status), "__inputs": secret(news), **({_CHECKSUM: total} if total else {})}

    def _recover(self, ctx: Context, news: Props, revisions: list[Props]) -> None:
        """Repair the state that a killed helm left. Otherwise helm refuses all operations on the release, because it
        assumes that another helm is at work."""
        state = revisions[-1]["status"] if revisions else "deployed"
        if state in _HEALTHY:
            return
        usable = [row for row in revisions if row["status"] in ("deployed", "superseded")]
        ctx.log("info", f"the release is in state {state}, which an interrupted run left: recovering it")
        if usable and state not in _LOST:
            command = ["rollback", news["name"], usable[-1]["version"], "--no-hooks"]
        else:
            command = ["uninstall", news["name"], "--wait", "--ignore-not-found"]
        done = self._cluster.helm(ctx, *command, *_place(news), _limit(ctx, news))
        succeeded(done, ctx, f"helm can't recover {_name(news)} from the state {state}")

    def _revisions(self, ctx: Context, inputs: Props) -> list[Props]:
        """Return the labels of a release's records, oldest first. helm's own commands do not show labels, and `helm
        history` reads every revision in full."""
        labels = '{range .items[*]}{.metadata.labels}{"\\n"}{end}'
        selector = f"--selector=owner=helm,name={inputs['name']}"
        done = self._cluster.kubectl(
            ctx, "get", "secrets", *_place(inputs), selector, f"--output=jsonpath={labels}", "--request-timeout=60s"
        )
        rows = succeeded(done, ctx, _name(inputs)).stdout.splitlines()
        return sorted(map(json.loads, rows), key=lambda row: int(row["version"]))


def _label(ctx: Context) -> str:
    return hashlib.sha256(ctx.urn.encode()).hexdigest()[:16]


def _limit(ctx: Context, inputs: Props) -> str:
    """Return helm's own timeout: the release's, or the resource's (customTimeouts) if that is shorter."""
    limit = int(inputs.get("timeout") or _DEFAULT_SECONDS)
    return f"--timeout={min(limit, int(ctx.timeout or limit))}s"


def _place(inputs: Props) -> list[str]:
    return [f"--namespace={inputs['namespace']}"]


def _id(inputs: Props) -> str:
    return f"{inputs['namespace']}/{inputs['name']}"


def _name(inputs: Props) -> str:
    return f"{inputs['name']} in {inputs['namespace']}"


def _status(release: Props) -> Props:
    return {
        key: release.get(key) for key in ("appVersion", "chart", "name", "namespace", "revision", "status", "version")
    }
