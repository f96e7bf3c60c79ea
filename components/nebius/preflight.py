"""Checks before the first resource is created: programs, a credential, Nebius's versions, quotas and capacity.

Without them `up` would find a refused version, a full quota or a missing program half an hour and some paid resources
later.
"""

import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cluster.catalog.nebius_machine_types import preset_of
from cluster.platforms.nebius.kubectl import EXEC_API, INSTALL_KUBECTL, credential_command
from cluster.platforms.nebius.request import AVAILABILITIES, gpu_quota
from components.dynamic import ActionProvider, ActionResource, report, without_traceback
from components.nebius.api import client, objects
from components.nebius.api.client import MORE_QUOTA, NebiusError, nebius_error

CREDENTIAL_SECONDS = 120
"""Timeout of the credential command, which may open a browser."""
FATAL = frozenset({"UNAUTHENTICATED", ""})
"""Codes of errors that every further call would return as well. After other errors a check is left out."""
_TIB = 1 << 40


class PreflightProvider(ActionProvider):
    """Compares what the stack requests with what Nebius offers, and changes nothing."""

    ID = "{project}/preflight"
    ACTED_ON = ("request",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Check the whole request, or what is new or more than before. Raises NebiusError with all that is missing."""
        with without_traceback(NebiusError):
            _check(news, olds["request"] if olds else {})


class Preflight(ActionResource, module="nebius", name="Preflight"):
    """The checks that every other resource waits for.

    Inputs: `tenant`, `project`, `region`, `request` (of cluster.platforms.nebius.request), `command` (the credential
    command).
    """

    PROVIDER = PreflightProvider


def _check(props: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raise NebiusError with every reason why the stack can't be brought up."""
    client.sdk()
    versions = list(_versions(props, before))
    reasons = [
        *(() if before else _programs(props["command"])),
        *(versions or _images(props, before)),
        *_quotas(props, before),
    ]
    if reasons:
        todo = f"correct each of these, then run `up` again{'' if before else '; nothing was created'}"
        raise nebius_error("start", reasons, todo)
    _report_capacity(props, before)


def _programs(command: Sequence[str]) -> Iterator[str]:
    """Yield why kubectl or the credential command can't be used."""
    if shutil.which("kubectl") is None:
        yield f"kubectl is not on PATH, which `up` talks to the cluster with: install it ({INSTALL_KUBECTL})"
    words = credential_command(command)
    if shutil.which(words[0]) is None:
        yield f"{words[0]} is not on PATH, which gives kubectl and Helm their credential (nebius.token_command)"
        return
    request = {"apiVersion": EXEC_API, "kind": "ExecCredential", "spec": {"interactive": False}}
    environ = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(request)}
    shown = f"the credential command `{' '.join(words)}`"
    try:
        done = subprocess.run(
            words,
            check=False,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=CREDENTIAL_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield f"{shown} did not end well: {error}"
        return
    try:
        answer = json.loads(done.stdout)
        is_credential = (answer["kind"], answer["apiVersion"]) == ("ExecCredential", EXEC_API) and answer["status"]
    except (ValueError, KeyError, TypeError):
        is_credential = False
    if done.returncode:
        yield f"{shown} failed with exit code {done.returncode}: {' '.join(done.stderr.split())[-500:]}"
    elif not is_credential:
        yield f"{shown} does not print an ExecCredential of {EXEC_API}, which kubectl and Helm expect of it"


def _versions(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield why Nebius creates no cluster of the requested version of Kubernetes."""
    version = props["request"]["kubernetes"]
    if version == before.get("kubernetes"):
        return
    answer = _answered("versions of Kubernetes", objects.kubernetes_versions)
    rows = {row["version"]: row for row in answer}
    if not rows:
        return
    row = rows.get(version)
    offered = [name for name, other in rows.items() if not other.get("deprecated") and not other.get("restricted")]
    # A cluster that is up may go to a version that no new one is created of.
    if row is None or row.get("restricted") or (row.get("deprecated") and not before):
        why = "has no such version" if row is None else "creates no clusters of it"
        ends = f" (end of life: {str(row['end_of_life'])[:10]})" if row and row.get("end_of_life") else ""
        yield f"nebius.kubernetes.version: {version}: Nebius {why}{ends}; it has {', '.join(sorted(offered))}"


def _images(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield which of the requested node images Nebius does not have."""
    request = props["request"]
    version = request["kubernetes"]
    checked = before.get("images", ()) if version == before.get("kubernetes") else ()
    for image in (image for image in request["images"] if image not in checked):
        platform, preset = image["platform"], image["drivers_preset"]
        rows = _answered(
            f"node images of {platform}",
            partial(objects.node_images, version, platform),
        )
        if not rows or any(row["os"] == image["os"] and row["drivers_preset"] == preset for row in rows):
            continue
        offered = sorted(f"{row['os']} with {row['drivers_preset'] or 'no driver'}" for row in rows)
        yield (
            f"nodes of {platform} with Kubernetes {version}: Nebius has no image of {image['os']} with "
            f"{preset or 'no driver'} (nebius.gpu.drivers_preset); it has {', '.join(dict.fromkeys(offered))}"
        )


def _quotas(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    """Yield which quotas have no room for the request; report those that elastic nodes may exceed later."""
    old, request = before.get("quotas", {}), props["request"]
    now = _more(request["quotas"], old)
    at_most = {**now, **_more(request.get("most", {}), before.get("most", old))}
    rows = _answered("quotas", lambda: objects.quotas(props["tenant"])) if at_most else []
    short = [row for row in rows if row.region in ("", props["region"]) and at_most.get(row.name, 0) > row.free]
    reserved = _reserved(props) if any(row.name.startswith("compute.instance.gpu.") for row in short) else {}
    for row in short:
        needed, in_blocks = at_most[row.name], reserved.get(row.name, 0)
        if needed <= row.free + in_blocks:
            continue
        if ".size." in row.name and row.unit != "byte":
            continue  # of an unknown unit
        blocks = f", {in_blocks} free in capacity blocks" if in_blocks else ""
        text = (
            f"quota {row.name} of {props['tenant']} in {props['region']}: {_amount(row.name, needed)} more needed, "
            f"{_amount(row.name, row.free)} free of {_amount(row.name, row.limit)}{blocks}: {MORE_QUOTA}"
        )
        if now.get(row.name, 0) > row.free + in_blocks:
            yield text
        else:
            report(f"not all elastic nodes can come: {text}")


def _reserved(props: Mapping[str, Any]) -> dict[str, int]:
    """Return how many GPUs capacity blocks have free for nodes without a policy, which take them first, by quota."""
    gpus = Counter[str]()
    advice = _answered("room", lambda: objects.capacities(props["tenant"]))
    for node in props["request"]["nodes"]:
        if node["ways"] != AVAILABILITIES["AUTO"] or not node["platform"].startswith("gpu-"):
            continue
        free = sum(
            row.available(("reserved",))
            for row in advice
            if (row.region, row.platform, row.preset) == (props["region"], node["platform"], node["preset"])
            and node["fabric"] in ("", row.fabric)
        )
        each = preset_of(f"{node['platform']}/{node['preset']}").gpus
        gpus[gpu_quota(node["platform"])] += min(free, node["most"]) * each
    return dict(gpus)


def _more(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> dict[Any, int]:
    """Return by how much each count of `new` exceeds that of `old`, if it does."""
    differences = {name: int(count - old.get(name, 0)) for name, count in new.items()}
    return {name: count for name, count in differences.items() if count > 0}


def _report_capacity(props: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Report where Nebius has fewer free nodes than the stack requests, because their node groups would wait."""

    def key(node: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(node[name]) for name in ("platform", "preset", "fabric", "ways"))

    old, new = (
        {key(node): node["count"] for node in nodes} for nodes in (before.get("nodes", ()), props["request"]["nodes"])
    )
    more = _more(new, old)
    advice = _answered("room", lambda: objects.capacities(props["tenant"])) if more else []
    for (platform, preset, fabric, ways), count in more.items():
        place = (props["region"], platform, preset)
        fitting = [row for row in advice if (row.region, row.platform, row.preset) == place]
        here = [row for row in fitting if fabric in ("", row.fabric)]
        free = sum(row.available(ways.split("+")) for row in here)
        if not here or free >= count:
            continue
        others = sorted(row.fabric for row in fitting if fabric and row.available(ways.split("+")) >= count)
        report(
            f"{platform}/{preset}{' on ' + fabric if fabric else ''}: Nebius has room for {free} more nodes at present "
            f"({ways.replace('_', ' ').replace('+', ' and ')}), and {count} are asked for: their node group waits "
            f"until there is room{'. With room: ' + ', '.join(others) if others else ''}"
        )


def _answered(what: str, call: Callable[[], list[Any]]) -> list[Any]:
    """Return the rows of an answer; if Nebius does not return them, report why and return none."""
    try:
        return call()
    except NebiusError as error:
        if error.code in FATAL:
            raise
        report(f"{what}: not known ({error.code}); Nebius refuses what it does not have when it is created")
        return []


def _amount(name: str, value: int) -> str:
    return f"{value / _TIB:.4g} TiB" if ".size." in name else str(value)
