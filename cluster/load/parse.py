"""From a stack's settings, or from its output `config`, to one ClusterConfig, or to every error at once."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from pydantic import ValidationError

from cluster.checks.run import find_errors
from cluster.config.cluster import ClusterConfig
from cluster.findings import ROOT, ConfigError, Finding, dotted, nearest, show
from cluster.load.explain import explain
from cluster.load.model import platform_of, validate
from cluster.load.partial import Salvage, salvage
from cluster.platforms import registry
from cluster.platforms.base import Platform, Provider

_DEEPEST = 50
_MOST_EXPLAINED = 100
"""Most findings that are explained; a file with more was not written as a stack file."""
_SCREEN = 10
"""Findings of such a file that are explained."""


def parse(stack_config: Mapping[str, Any]) -> ClusterConfig:
    """Read the settings of a stack file, such as `{"hpc:cluster": {...}}`.

    Raises ConfigError with every finding at once. Keys of other namespaces belong to providers and are left to them,
    but for the section that the platform has there.

    The order of a mapping's keys has no meaning: the Pulumi CLI hands them to the program sorted.
    """
    findings = _unknown_keys(stack_config)
    given = with_provider_sections(stack_config, _cluster(stack_config.get(ROOT), findings), findings)
    in_order = _sorted(given)
    with contextlib.suppress(ValidationError):
        config = validate(in_order)
        if not findings and not any(find_errors(config)):
            return config
    # Once more as it is written: errors show what was given, and name the later of two that differ.
    _checked(given, findings)
    return validate(in_order)


def parse_output(exported: Any) -> ClusterConfig:  # noqa: ANN401 - an output may be anything
    """Read the output `config` of a stack, which has all sections in one. Raises ConfigError."""
    return _checked(_cluster(exported, []), [])


def _checked(given: Mapping[str, Any], findings: list[Finding]) -> ClusterConfig:
    try:
        config = validate(given)
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        explained = wrong if len(wrong) <= _MOST_EXPLAINED else wrong[:_SCREEN]
        findings += [explain(item, item["loc"]) for item in explained]
        more = len(wrong) - len(explained)
        saved = None if more else salvage(given, error)
        findings += _of_the_rest(saved) if saved else []
        unchecked = sorted(dotted(place) for place in saved.unchecked) if saved else [ROOT]
        raise ConfigError(findings, more=more, unchecked=unchecked) from None
    findings += islice(find_errors(config), _MOST_EXPLAINED)
    if findings:
        raise ConfigError(findings)
    return config


def _of_the_rest(saved: Salvage) -> list[Finding]:
    at_fault = any(place[0] == "partitions" for place in saved.removed)
    return [
        replace(finding, at=saved.written(finding.at))
        for finding in find_errors(saved.config)
        # What was taken out may be just what is missed now, and what stands in for it is not the file's.
        if finding.at[0] not in saved.stand_ins
        and not (
            finding.missing and (saved.about_removed(finding.missing) or (finding.missing == "default" and at_fault))
        )
    ]


def _unknown_keys(stack_config: Mapping[str, Any]) -> list[Finding]:
    """Keys of this program's own namespace that it does not read."""
    namespace = ROOT.split(":", 1)[0]
    unknown = [key for key in stack_config if key.startswith(f"{namespace}:") and key != ROOT][:_MOST_EXPLAINED]
    return [
        Finding(
            id="unknown-setting",
            at=key,
            given=show(stack_config[key]),
            allowed=ROOT,
            todo=f"write {ROOT}" if nearest(key, [ROOT]) and ROOT not in stack_config else "remove it",
        )
        for key in unknown
    ]


def _cluster(given: Any, findings: list[Finding]) -> Mapping[str, Any]:  # noqa: ANN401 - may have any shape
    """The cluster as a mapping, which may come as JSON text."""
    if isinstance(given, str):
        # What is no JSON, or nested too deep to be read, is reported below as any other text.
        with contextlib.suppress(ValueError, RecursionError):
            given = json.loads(given)
    if isinstance(given, Mapping) and not _too_deep(given):
        return _keys_as_written(given)
    shape = Finding(
        id="cluster-shape",
        at=ROOT,
        given=f"more than {_DEEPEST} levels of nesting" if isinstance(given, Mapping) else show(given),
        allowed="the cluster as a mapping, e.g. {platform: local, name: dev, nodesets: ..., partitions: ...}",
        todo="describe the cluster under `config: hpc:cluster:` in Pulumi.<stack>.yaml; Pulumi.dev.yaml is an example",
    )
    raise ConfigError([*findings, shape])


def _too_deep(tree: Any, levels: int = _DEEPEST) -> bool:  # noqa: ANN401 - what stands in the file may have any shape
    """Whether a tree has more levels, as one that holds itself has."""
    below = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, list) else ()
    return not levels or any(_too_deep(branch, levels - 1) for branch in below)


def _sorted(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    """The same with the keys of every mapping sorted."""
    if isinstance(tree, Mapping):
        return {key: _sorted(tree[key]) for key in sorted(tree, key=str)}
    return [_sorted(branch) for branch in tree] if isinstance(tree, list) else tree


def _keys_as_written(tree: Any) -> Any:  # noqa: ANN401 - what stands in the file may have any shape
    """Undo what YAML 1.1 readers make of the key `on`: a truth value, which is "true" after a passage through JSON."""
    if isinstance(tree, Mapping):
        return {
            "on" if key is True or key == "true" else str(key): _keys_as_written(value) for key, value in tree.items()
        }
    return [_keys_as_written(branch) for branch in tree] if isinstance(tree, list) else tree


def provider_keys() -> dict[str, tuple[str, ...]]:
    """Settings that are read of each provider, by its namespace."""
    return {
        provider.namespace: (*_section_keys(platform, provider), *provider.more)
        for platform in registry.all_platforms()
        if (provider := platform.provider)
    }


def with_provider_sections(
    stack_config: Mapping[str, Any], given: Mapping[str, Any], findings: list[Finding]
) -> dict[str, Any]:
    """The cluster with the section that its platform has in the provider's settings; what is wrong with these is added
    to `findings`."""
    findings += [
        _misplaced(platform.provider, _section_keys(platform, platform.provider), given[platform.provider.namespace])
        for platform in registry.all_platforms()
        if platform.provider and given.get(platform.provider.namespace) is not None
    ]
    keys = provider_keys()
    cluster = {key: value for key, value in given.items() if key not in keys}
    if provider := platform_of(given).provider:
        named = {key: stack_config.get(f"{provider.namespace}:{key}") for key in keys[provider.namespace]}
        settings = {key: value for key, value in named.items() if value is not None}
        findings += provider.check(settings)
        cluster[provider.namespace] = {key: value for key, value in settings.items() if key not in provider.more}
    return cluster


def _section_keys(platform: Platform, provider: Provider) -> tuple[str, ...]:
    return tuple(platform.sections[provider.namespace].model_fields)


def _misplaced(provider: Provider, keys: tuple[str, ...], within: object) -> Finding:
    names = [f"{provider.namespace}:{key}" for key in keys]
    return Finding(
        id="provider-section",
        at=f"{ROOT}.{provider.namespace}",
        given=show(within),
        allowed=f"{' and '.join(names)} beside {ROOT}, where the provider reads them too",
        todo=f"remove it, and write {' and '.join(f'`{name}: ...`' for name in names)} under `config:`",
    )
