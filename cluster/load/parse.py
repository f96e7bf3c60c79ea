"""From a stack's settings to one ClusterConfig, or to every reason why not."""

import contextlib
import json
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pydantic import ValidationError

from cluster.checks.run import broken
from cluster.config.cluster import ClusterConfig
from cluster.findings import ROOT, ConfigError, Finding, listing, nearest, show
from cluster.load.explain import explain
from cluster.load.partial import salvage
from cluster.load.provider_config import place
from cluster.platforms.defaults import PLATFORMS, built

_DEEPEST = 50
_MOST_EXPLAINED = 100
"""Findings that are worked out; a file with more is no stack file that somebody wrote."""


def parse(stack_config: Mapping[str, Any]) -> ClusterConfig:
    """Read the settings of a stack, such as `{"hpc:cluster": {...}}`; the cluster may also be JSON text.

    Raises ConfigError with every finding at once. Keys of other namespaces belong to providers and are left to them,
    but for the project and zone of a stack on Google Cloud.
    """
    findings = _unknown_keys(stack_config)
    given = _cluster(stack_config, findings)
    _refuse_unbuilt(given)
    given = {**given, "gcp": place(stack_config, given, findings)}
    try:
        config = ClusterConfig.model_validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        findings += [explain(item, item["loc"]) for item in wrong[:_MOST_EXPLAINED]]
        more = len(wrong) - _MOST_EXPLAINED
        if more <= 0:
            findings += _of_the_rest(given, error)
        raise ConfigError(findings, more=max(more, 0)) from None
    findings += [one.finding(one.at) for one in islice(broken(config), _MOST_EXPLAINED)]
    if findings:
        raise ConfigError(findings)
    return config


def _of_the_rest(given: Mapping[str, Any], error: ValidationError) -> list[Finding]:
    saved = salvage(given, error)
    if saved is None:
        return []
    at_fault = any(place[0] == "partitions" for place in saved.removed)
    return [
        one.finding(saved.written(one.at))
        for one in broken(saved.config)
        # What was taken out may be just what is missed now, and what stands in for it is not the file's.
        if not (one.at[0] == "gcp" and any(place[0] == "gcp" for place in saved.removed))
        and not (one.missing and (saved.about_removed(one.missing) or (one.missing == "default" and at_fault)))
    ]


def _unknown_keys(stack_config: Mapping[str, Any]) -> list[Finding]:
    """Keys of this program's own namespace that it does not read."""
    namespace = ROOT.split(":", 1)[0]
    unknown = [key for key in stack_config if key.startswith(f"{namespace}:") and key != ROOT][:_MOST_EXPLAINED]
    return [
        Finding(
            where=key,
            given=show(stack_config[key]),
            allowed=ROOT,
            todo=f"write {ROOT}" if nearest(key, [ROOT]) and ROOT not in stack_config else "remove it",
        )
        for key in unknown
    ]


def _cluster(stack_config: Mapping[str, Any], findings: list[Finding]) -> Mapping[str, Any]:
    given = stack_config.get(ROOT)
    if isinstance(given, str):
        # What is no JSON, or nested too deep to be read, is told below, as any other text would be.
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if isinstance(given, Mapping) and not _too_deep(given):
        return _keys_as_written(given)
    shape = Finding(
        where=ROOT,
        given=f"more than {_DEEPEST} levels of nesting" if isinstance(given, Mapping) else show(given),
        allowed="the cluster as a mapping, e.g. {platform: local, name: dev, nodesets: ..., partitions: ...}",
        todo="describe the cluster under `config: hpc:cluster:` in Pulumi.<stack>.yaml; Pulumi.dev.yaml is an example",
    )
    raise ConfigError([*findings, shape])


def _too_deep(tree: Any, levels: int = _DEEPEST) -> bool:  # noqa: ANN401 - what stands in the file may have any shape
    """Whether a tree has more levels, as one that holds itself has."""
    below = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return not levels or any(_too_deep(one, levels - 1) for one in below)


def _keys_as_written(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    """Undo what YAML 1.1 readers make of the key `on`: a truth value, which is "true" after a passage through JSON."""
    if isinstance(tree, Mapping):
        return {
            "on" if key is True or key == "true" else str(key): _keys_as_written(value) for key, value in tree.items()
        }
    return [_keys_as_written(one) for one in tree] if isinstance(tree, list) else tree


def _refuse_unbuilt(given: Mapping[str, Any]) -> None:
    """A platform that this version can't build has keys that it does not know: telling of them would only mislead."""
    platform = PLATFORMS.get(str(given.get("platform")))
    if platform is None or platform.built:
        return
    raise ConfigError(
        [
            Finding(
                where=f"{ROOT}.platform",
                given=platform.name,
                allowed=f"{listing(built())} (platform {platform.name!r} is not built yet)",
                todo=f"use an allowed platform, e.g. `platform: {built()[0]}`",
            ),
        ],
    )
