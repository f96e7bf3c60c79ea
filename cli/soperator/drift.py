"""Compares a cluster of pods with its stack: charts and their objects, node sets, Slurm's own view and its database."""

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import yaml

from cli.access.kubectl import Answer, KubeApi, Kubernetes
from cli.errors import CliError
from cli.interrupts import unwound
from cli.soperator.ask import ask
from cluster.load.parse import parse_output
from cluster.observe.drift import Difference
from cluster.platforms.nebius.drift import (
    SELECTOR,
    Installed,
    Live,
    differences,
    installed,
    key,
    unseen,
    wanted_releases,
)
from cluster.platforms.nebius.observation import ACCOUNTING
from cluster.platforms.nebius.section import Nebius

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def drift(stack: str, outputs: Mapping[str, Any], *, seconds: float) -> tuple[list[Difference], list[str]]:
    """What differs, and what could not be compared. Raises CliError: the last `up` did not end well."""
    if "config" not in outputs:
        raise CliError(
            f"stack {stack} has no output of its configuration: its last `up` did not end well. Repeat it: "
            f"./hpc up {stack}"
        )
    config = parse_output(outputs["config"])
    settings = config.section(Nebius)
    if settings is None:
        raise CliError(f"stack {stack} has no section nebius in its output of the configuration.")
    seen = ask(stack, outputs, more=ACCOUNTING, seconds=seconds)
    with unwound(), ExitStack() as stack_of_files:
        api = KubeApi(stack_of_files, Kubernetes.of(outputs.get("kubernetes")), seconds)
        secrets = api.ask("get", "secrets", "--all-namespaces", f"--selector={SELECTOR}", "--output=json")
        releases = None if secrets.code else installed(secrets.items)
        wanted = wanted_releases(config, settings)
        own = {one.name for one in wanted if one.repo == settings.soperator.charts}
        ours = [one for name, one in (releases or {}).items() if name in own]
        manifests = {one.name: _documents(one) for one in ours}
        with ThreadPoolExecutor() as pool:
            rows = pool.map(lambda one: _applied(api, one.namespace, manifests[one.name]), ours)
            answers = dict(zip(manifests, rows, strict=True))
    unread = [f"objects of release {name}: {one.why}" for name, one in answers.items() if one.code]
    unread += [f"Helm's releases: {secrets.why}"] if secrets.code else []
    objects: dict[tuple[str, str, str], dict[str, Any]] = {}
    for item in (item for one in answers.values() for item in one.items):
        kind, namespace, name = key(item)
        objects[kind, namespace, name] = item
        # Charts leave the namespace of most objects to the release.
        objects.setdefault((kind, "", name), item)
    live = Live(
        seen=seen.cluster,
        view=seen.view,
        releases=releases,
        objects=objects,
        manifests=[item for name, items in manifests.items() if not answers[name].code for item in items],
        hosts=seen.objects["nodes"],
    )
    return differences(config, wanted, live), unseen(live, unread)


def _documents(release: Installed) -> list[dict[str, Any]]:
    """The objects of a release."""
    found: Iterable[Any] = yaml.load_all(release.manifest, Loader=_Loader)
    return [item for item in found if isinstance(item, dict) and "kind" in item]


def _applied(api: KubeApi, namespace: str, manifest: Iterable[Mapping[str, Any]]) -> Answer:
    """The objects of a release as they are now; those that are not there are left out."""
    # Not by --namespace: kubectl refuses objects that name another one, which charts may have.
    given = [
        {
            "apiVersion": one.get("apiVersion"),
            "kind": one["kind"],
            "metadata": {"name": one["metadata"]["name"], "namespace": one["metadata"].get("namespace") or namespace},
        }
        for one in manifest
    ]
    if not given:
        return Answer(code=0, out="", err="")
    words = ("get", "--filename=-", "--ignore-not-found", "--output=json")
    return api.ask(*words, stdin="\n".join(map(json.dumps, given)))
