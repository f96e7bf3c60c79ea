"""Checks before the first resource is created: programs, a credential, Nebius's versions, quotas and room.

A cluster whose version is refused, whose quota is full, or that nobody can talk to would be found half an hour and some
paid resources later.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.platforms.nebius.kubectl import EXEC_API, INSTALL_KUBECTL, credential_command
from components.dynamic import Action, ActionProvider, report, without_traceback
from components.nebius.api.client import MORE_QUOTA, NebiusError, nebius_error

CREDENTIAL_SECONDS = 120
"""Time for the credential command, which may open a browser."""
FATAL = frozenset({"UNAUTHENTICATED", ""})
"""Errors that every later call would end with too. After all others the answer is not known, and a run goes on."""
_TIB = 1 << 40


class PreflightProvider(ActionProvider):
    """Asks, and changes nothing."""

    ID = "{project}/preflight"
    ACTED_ON = ("request",)

    def act(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None, /) -> None:
        """Ask for everything, or for what is new or more than before. Fails with all that is missing."""
        with without_traceback(NebiusError):
            _check(news, olds["request"] if olds else {})


class Preflight(Action, module="nebius", name="Preflight"):
    """Everything else waits for it.

    Inputs: `tenant`, `project`, `region`, `request` (of cluster.platforms.nebius.request), `command` (the credential
    command), `endpoint`.
    """

    PROVIDER = PreflightProvider


def _check(props: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Raises NebiusError with every reason why the stack can't be brought up."""
    from components.nebius.api import client

    client.sdk(props["endpoint"])
    versions = list(_versions(props, before))
    reasons = [
        *(() if before else _programs(props["command"])),
        *(versions or _images(props, before)),
        *_quotas(props, before),
    ]
    if reasons:
        todo = "correct each of these, then run `up` again; nothing was created"
        raise nebius_error("start", reasons, todo if not before else "correct each of these, then run `up` again")
    _room(props, before)


def _programs(command: Sequence[str]) -> Iterator[str]:
    if shutil.which("kubectl") is None:
        yield f"kubectl is not on PATH, which `up` talks to the cluster with: install it ({INSTALL_KUBECTL})"
    words = credential_command(command)
    if shutil.which(words[0]) is None:
        yield f"{words[0]} is not on PATH, which gives kubectl and Helm their credential (nebius.token_command)"
        return
    asked = {"apiVersion": EXEC_API, "kind": "ExecCredential", "spec": {"interactive": False}}
    environ = {**os.environ, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
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
        right = (answer["kind"], answer["apiVersion"]) == ("ExecCredential", EXEC_API) and bool(answer["status"])
    except (ValueError, KeyError, TypeError):
        right = False
    if done.returncode:
        yield f"{shown} failed with exit code {done.returncode}: {' '.join(done.stderr.split())[-500:]}"
    elif not right:
        yield f"{shown} does not print an ExecCredential of {EXEC_API}, which kubectl and Helm expect of it"


def _versions(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    version = props["request"]["kubernetes"]
    if version == before.get("kubernetes"):
        return
    from components.nebius.api import objects

    rows = {row["version"]: row for row in _answered("versions of Kubernetes", objects.kubernetes_versions, props)}
    if not rows:
        return
    found = rows.get(version)
    offered = [name for name, row in rows.items() if not row.get("deprecated") and not row.get("restricted")]
    # A cluster that is up may go to a version that no new one is created of.
    if found is None or found.get("restricted") or (found.get("deprecated") and not before):
        why = "has no such version" if found is None else "creates no clusters of it"
        ends = f" (end of life: {str(found['end_of_life'])[:10]})" if found and found.get("end_of_life") else ""
        yield f"nebius.kubernetes.version: {version}: Nebius {why}{ends}; it has {', '.join(sorted(offered))}"


def _images(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    request = props["request"]
    version = request["kubernetes"]
    known = before.get("images", ()) if version == before.get("kubernetes") else ()
    from components.nebius.api import objects

    for image in request["images"]:
        if image in known:
            continue
        platform, preset = image["platform"], image["drivers_preset"]
        rows = _answered(f"node images of {platform}", objects.node_images, props, version, platform)
        if not rows or any(row["os"] == image["os"] and row["drivers_preset"] == preset for row in rows):
            continue
        offered = sorted(f"{row['os']} with {row['drivers_preset'] or 'no driver'}" for row in rows)
        yield (
            f"nodes of {platform} with Kubernetes {version}: Nebius has no image of {image['os']} with "
            f"{preset or 'no driver'} (nebius.gpu.drivers_preset); it has {', '.join(dict.fromkeys(offered))}"
        )


def _quotas(props: Mapping[str, Any], before: Mapping[str, Any]) -> Iterator[str]:
    from components.nebius.api import objects

    had, asked = before.get("quotas", {}), props["request"]
    now = _more(asked["quotas"], had)
    # Nodes that Slurm asks for later count against quotas then.
    more = {**now, **_more(asked.get("most", {}), before.get("most", had))}
    rows = _answered("quotas", lambda: objects.quotas(props["tenant"], props["endpoint"])) if more else []
    for row in rows:
        needed = more.get(row.name, 0)
        if row.region not in ("", props["region"]) or needed <= row.free:
            continue
        if ".size." in row.name and row.unit != "byte":
            continue  # of an unknown unit
        text = (
            f"quota {row.name} of {props['tenant']} in {props['region']}: {_amount(row.name, needed)} more needed, "
            f"{_amount(row.name, row.free)} free of {_amount(row.name, row.limit)}: {MORE_QUOTA}"
        )
        if now.get(row.name, 0) > row.free:
            yield text
        else:
            report(f"not all elastic nodes can come: {text}")


def _more(asked: Mapping[str, Any], had: Mapping[str, Any]) -> dict[str, int]:
    found = {name: int(count - had.get(name, 0)) for name, count in asked.items()}
    return {name: count for name, count in found.items() if count > 0}


def _room(props: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """Report where Nebius has fewer nodes at present than the stack asks for: their node groups would wait."""
    from components.nebius.api import objects

    def key(node: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(node[name]) for name in ("platform", "preset", "fabric", "ways"))

    had = {key(node): node["count"] for node in before.get("nodes", ())}
    counts = {key(node): int(node["count"] - had.get(key(node), 0)) for node in props["request"]["nodes"]}
    wanted = {node: count for node, count in counts.items() if count > 0}
    advice = _answered("room", lambda: objects.rooms(props["tenant"], props["endpoint"])) if wanted else []
    for (platform, preset, fabric, ways), count in wanted.items():
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


def _answered(what: str, ask: Any, props: Mapping[str, Any] | None = None, *more: str) -> list[Any]:  # noqa: ANN401
    """The rows of an answer; none, and a line that says why, where Nebius does not give them."""
    try:
        return list(ask() if props is None else ask(*more, endpoint=props["endpoint"]))
    except NebiusError as error:
        if error.code in FATAL:
            raise
        report(f"{what}: not known ({error.code}); Nebius refuses what it does not have when it is created")
        return []


def _amount(name: str, value: int) -> str:
    return f"{value / _TIB:.4g} TiB" if ".size." in name else str(value)
