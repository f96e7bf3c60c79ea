"""Sections that a stack file has as settings of Pulumi's provider, such as `gcp:project`, beside `hpc:cluster`."""

from collections.abc import Mapping
from typing import Any

from cluster.findings import ROOT, Finding, show
from cluster.load.model import platform_of
from cluster.platforms import registry
from cluster.platforms.base import Platform, Provider


def provider_keys() -> dict[str, tuple[str, ...]]:
    """Settings that are read of each provider, by its namespace."""
    return {
        provider.namespace: (*_section_keys(one, provider), *provider.more)
        for one in registry.all_platforms()
        if (provider := one.provider)
    }


def with_provider_sections(
    stack_config: Mapping[str, Any], given: Mapping[str, Any], findings: list[Finding]
) -> dict[str, Any]:
    """The cluster with the section that its platform has in the provider's settings; what is wrong with these is added
    to `findings`."""
    findings += [
        _misplaced(one.provider, _section_keys(one, one.provider), given[one.provider.namespace])
        for one in registry.all_platforms()
        if one.provider and given.get(one.provider.namespace) is not None
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
