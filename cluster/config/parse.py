"""From a stack's settings to one ClusterConfig, or to every reason why not."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from cluster.config.cluster import ClusterConfig
from cluster.config.crosschecks import crosscheck
from cluster.config.explain import explain
from cluster.config.findings import ROOT, ConfigError, Finding, show
from cluster.config.platforms import PLATFORMS


def parse(stack_config: Mapping[str, Any]) -> ClusterConfig:
    """Read the settings of a stack, such as `{"hpc:cluster": {...}}`; the cluster may also be JSON text.

    Raises ConfigError with every finding at once. Other keys belong to providers and are left to them.
    """
    given = _cluster(stack_config)
    _refuse_unbuilt(given)
    try:
        config = ClusterConfig.model_validate(given)
    except ValidationError as error:
        raise ConfigError(explain(error, given)) from None
    findings = crosscheck(config)
    if findings:
        raise ConfigError(findings)
    return config


def _cluster(stack_config: Mapping[str, Any]) -> Mapping[str, Any]:
    if ROOT not in stack_config:
        raise ConfigError([_shape("nothing")])
    given = stack_config[ROOT]
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            raise ConfigError([_shape(show(given))]) from None
    if not isinstance(given, Mapping):
        raise ConfigError([_shape(show(given))])
    return given


def _shape(given: str) -> Finding:
    return Finding(
        where=ROOT,
        given=given,
        allowed="the cluster as a mapping, e.g. {platform: local, name: dev, nodesets: ..., partitions: ...}",
        todo="describe the cluster under `config: hpc:cluster:` in Pulumi.<stack>.yaml; Pulumi.dev.yaml is an example",
    )


def _refuse_unbuilt(given: Mapping[str, Any]) -> None:
    platform = PLATFORMS.get(str(given.get("platform")))
    if platform is None or platform.built:
        return
    built = ", ".join(name for name, one in PLATFORMS.items() if one.built)
    raise ConfigError(
        [
            Finding(
                where=f"{ROOT}.platform",
                given=platform.name,
                allowed=f"{built}: platform {platform.name!r} is not built yet",
                todo="use one of the allowed platforms, e.g. platform: local",
            ),
        ],
    )
