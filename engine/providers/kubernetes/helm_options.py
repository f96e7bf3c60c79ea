"""The inputs of a Helm release as helm's options and values."""

import hashlib
import json
from pathlib import Path

import yaml

from engine.providers.base import CheckFailed
from engine.values import UNKNOWN, Props, Value

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
    "allowNullValues": False, "atomic": False, "cleanupOnFail": False, "createNamespace": False,
    "dependencyUpdate": False, "description": "", "devel": False, "disableCRDHooks": False,
    "disableOpenapiValidation": False, "disableWebhooks": False, "forceUpdate": False, "keyring": "", "lint": False,
    "postrender": "", "recreatePods": False, "renderSubchartNotes": False, "replace": False, "resetValues": False,
    "reuseValues": False, "skipAwait": False, "skipCrds": False, "takeOwnership": False, "timeout": 0, "verify": False,
    "version": "", "waitForJobs": False,
}  # fmt: skip
"""What pulumi-kubernetes writes into the state of every release (provider/pkg/provider/helm_release.go, Release)."""
_REPOSITORY_DEFAULTS: Props = dict.fromkeys(("caFile", "certFile", "keyFile", "password", "repo", "username"), "")
_OWN = ("chart", "maxHistory", "name", "namespace", "repositoryOpts", "values")
"""Inputs without a default there."""
_DROPPED = ("compat", "manifest", "resourceNames", "valueYamlFiles")
"""What the SDK sends, and the provider does not keep."""


def checked(inputs: Props, olds: Props, root: Path) -> Props:
    """The inputs in the form in which pulumi-kubernetes keeps them: with all defaults, and the version of the chart.

    A default that the state does not have is left out, and what else it has and the program does not give stays: other
    versions of the provider know other inputs. Raises CheckFailed for what helm's command can't do.
    """
    wrong = [name for name in _UNSUPPORTED if inputs.get(name) is True]
    # pulumi-kubernetes takes it for the hooks of upgrades, where disableWebhooks is for those of installations.
    wrong += ["disableCRDHooks"] if inputs.get("disableCRDHooks") is True and not inputs.get("disableWebhooks") else []
    if wrong:
        raise CheckFailed("\n".join(f"{name}: the embedded engine does not support it" for name in wrong))
    repository = inputs.get("repositoryOpts") or {}
    if repository != UNKNOWN and (repository.get("password") or repository.get("username")):
        raise CheckFailed(
            "repositoryOpts: helm takes a password on its command line only, which others can read. Log in with "
            "`helm registry login`, or give the chart's folder"
        )
    given = {key: value for key, value in inputs.items() if key not in _DROPPED}
    if inputs.get("valueYamlFiles"):
        given["values"] = _values(inputs)
    if isinstance(repository, dict) and repository:
        given["repositoryOpts"] = {**_REPOSITORY_DEFAULTS, **repository}
    if not inputs.get("skipAwait"):
        given.setdefault("timeout", _DEFAULT_SECONDS)
    if (about := _local(inputs, root)) is not None:
        given["version"] = str(yaml.safe_load((about / "Chart.yaml").read_text(encoding="utf-8"))["version"])
    elif not given.get("version") and olds.get("version"):
        given["version"] = olds["version"]
    defaults = {key: value for key, value in _DEFAULTS.items() if not olds or key in olds}
    kept = {key: olds[key] for key in olds if key not in (*_DEFAULTS, *_OWN, *_DROPPED, "checksum")}
    return {**defaults, **kept, **given}


def checksum(inputs: Props, root: Path) -> str:
    """Of a chart that is a folder or file here, so that a changed one is an update; nothing for one that is not."""
    chart = root / str(inputs.get("chart"))
    return _checksum(chart) if not inputs.get("repositoryOpts") and chart.exists() else ""


def _local(inputs: Props, root: Path) -> Path | None:
    """The chart's folder, if it is one here."""
    chart = inputs.get("chart")
    if not isinstance(chart, str) or chart == UNKNOWN or inputs.get("repositoryOpts"):
        return None
    return root / chart if (root / chart / "Chart.yaml").is_file() else None


def arguments(inputs: Props) -> list[str]:
    """The chart and the options of `helm upgrade --install`, without values and place."""
    repository = inputs.get("repositoryOpts") or {}
    chart, repo = str(inputs["chart"]), str(repository.get("repo") or "")
    # A name stands for a repository that the user has added.
    found = [f"{repo}/{chart}" if repo and "://" not in repo else chart]
    found += [f"--repo={repo}"] if "://" in repo else []
    found += [flag for name, flag in _SWITCHES.items() if inputs.get(name) is True]
    found += [f"{flag}={_plain(inputs[name])}" for name, flag in _OPTIONS.items() if inputs.get(name) not in (None, "")]
    found += [f"{flag}={repository[name]}" for name, flag in _REPOSITORY.items() if repository.get(name)]
    if not inputs.get("skipAwait"):
        found += ["--wait", *(["--wait-for-jobs"] if inputs.get("waitForJobs") else [])]
    return found


def seconds(inputs: Props) -> int:
    """helm's own limit, for each of its operations."""
    return int(inputs.get("timeout") or _DEFAULT_SECONDS)


def values(inputs: Props) -> str:
    """All values as JSON. A null removes a chart's default. It is kept whatever `allowNullValues` says, as by
    pulumi-kubernetes from 4.30 on."""
    return json.dumps(inputs.get("values") or {})


def _values(inputs: Props) -> Value:
    """The values of files, in order, with `values` over them."""
    merged: Props = {}
    for file in inputs["valueYamlFiles"]:
        merged.update(yaml.safe_load(_text(file)) or {})
    return _merge(merged, inputs.get("values") or {})


def _merge(below: Value, above: Value) -> Value:
    if isinstance(below, dict) and isinstance(above, dict):
        return {**below, **{key: _merge(below.get(key), value) for key, value in above.items()}}
    return above


def _text(asset: Props) -> str:
    if "text" in asset:
        return asset["text"]
    if asset.get("path"):
        return Path(asset["path"]).read_text(encoding="utf-8")
    raise CheckFailed(
        f"valueYamlFiles: {asset.get('uri')}: the embedded engine fetches nothing; give a file that is here"
    )


def _plain(value: Value) -> str:
    # Numbers travel as floats.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _checksum(chart: Path) -> str:
    files = sorted(file for file in chart.rglob("*") if file.is_file()) if chart.is_dir() else [chart]
    found = hashlib.sha256()
    for file in files:
        found.update(f"{file.relative_to(chart)}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return found.hexdigest()
