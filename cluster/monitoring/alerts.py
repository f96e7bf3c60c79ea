"""Alerts, read from alerts.yml beside this file, and Prometheus' rules for them."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from cluster.config.cluster import ClusterConfig
from cluster.findings import Actor
from scripts.node.health.advice import ADVICE
from scripts.node.health.check_kinds import KINDS, MACHINE, REPAIRED_A_SECOND
from scripts.node.interface import lookback_seconds
from scripts.node.judge.kinds import FREE_SHARE, SKEW_SECONDS, WATCHDOG_ALERT

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FILE = Path(__file__).with_suffix(".yml")
IDLE = 'count by (hpc_job) (max_over_time(DCGM_FI_DEV_GPU_UTIL{hpc_job!=""}[1m]) == 0)'
"""PromQL: the number of GPUs without any load in the last minute or longer, by job."""
IDLE_LONG = f'{IDLE} and on (hpc_job) ALERTS{{alertname="GpusIdle",alertstate="firing"}}'
"""The same for jobs whose alert fires."""

FATAL_XIDS = (46, 48, 62, 64, 74, 79, 95, 109, 110, 119, 120, 136, 140, 143, 151, 158)
"""Xids that page: the health check is certain that the GPU is at fault (scripts/node/health/xids.py)."""

NVLINK_LOST = (
    "RECOVERY_ERROR_COUNT_TOTAL",
    *(f"COUNT_RX_{name}_ERRORS" for name in ("SYMBOL", "MALFORMED_PACKET", "BUFFER_OVERRUN", "GENERAL")),
    *("COUNT_RX_ERRORS", "COUNT_LOCAL_LINK_INTEGRITY_ERRORS", "COUNT_LINK_RECOVERY_FAILED_EVENTS"),
)
NVLINK_REPAIRED = ("CRC_FLIT_ERROR_COUNT_TOTAL", "REPLAY_ERROR_COUNT_TOTAL", "COUNT_EFFECTIVE_ERRORS")
"""DCGM's names, after DCGM_FI_DEV_NVLINK_, of the counters that the health check has under the names of nvidia-smi:
errors that cost jobs something, and those that links repair."""


def _nvlink(names: Iterable[str]) -> str:
    """Return the sum of the counters by GPU, which has some of them."""
    series = f'{{__name__=~"DCGM_FI_DEV_NVLINK_({"|".join(names)})"}}'
    return f"sum by (instance, gpu) (max by (__name__, instance, gpu) ({series}))"


JOB_ON_GPU = (
    "{{ with query (printf \"count by (hpc_job) (DCGM_FI_DEV_GPU_UTIL{instance='%s',gpu='%s',hpc_job!=''})\" "
    '$labels.instance $labels.gpu) }}, which has job {{ . | first | label "hpc_job" }},{{ end }}'
)
"""Template of alerts: the job that has the GPU now, if one has."""
FOUND_BY_CHECK = (
    "{{ with query (printf \"last_over_time(hpc_health_check_text{node='%s',kind='%s'}[5m])\" $labels.node "
    '$labels.kind) }}: {{ . | first | label "text" }}{{ end }}'
)
"""Template of alerts: what the health check has found, as far as it is known."""

_VALUES = {
    "FREE_SHARE": f"{FREE_SHARE}",
    "FREE_PERCENT": f"{FREE_SHARE:.0%}".replace("%", " %"),
    "SKEW_SECONDS": f"{SKEW_SECONDS}",
    "LOCAL_DISKS": '{fstype!~"tmpfs|ramfs|squashfs|fuse.*|virtiofs|nfs.*|lustre",role!="controller"}',
    "IDLE_GPUS": IDLE,
    "FATAL_XIDS": "|".join(map(str, FATAL_XIDS)),
    "NVLINK_LOST": _nvlink(NVLINK_LOST),
    "NVLINK_REPAIRED": _nvlink(NVLINK_REPAIRED),
    "REPAIRED_A_SECOND": f"{REPAIRED_A_SECOND}",
    "JOB_ON_GPU": JOB_ON_GPU,
}
"""Values of names in alerts.yml. A shared file system is the same for all machines, and the
controller's disks are findings: neither has the alert FileSystemFull."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert; its fields are those of alerts.yml."""

    name: str
    expression: str
    minutes: int = 0
    severity: str = ""
    """critical or warning; none if the alert itself calls nobody; empty: that of the series."""
    actor: Actor = Actor.ADMIN
    what: str
    todo: str
    findings: str = ""
    """Kinds of findings, separated by blanks, that show the same in `./hpc status`."""


def read(file: Path) -> Iterator[Alert]:
    """Yield the alerts of a file such as alerts.yml."""
    text = file.read_text(encoding="utf-8")
    for name, value in _VALUES.items():
        text = text.replace(name, value)
    rows: list[dict[str, Any]] = yaml.load(text, Loader=_Loader)  # noqa: S506 - a safe one
    for row in rows:
        if "health" in row:
            for kind in KINDS:
                yield Alert(
                    name="Health" + "".join(word.capitalize() for word in kind.split("-")),
                    expression=f'hpc_health_check_failed{{kind="{kind}"}} == 1',
                    what=f"The health check {kind} of {{{{ $labels.node }}}} fails{FOUND_BY_CHECK}",
                    **_advice(kind, "node"),
                )
        elif "check" in row:
            yield Alert(**_advice(row.pop("check"), "instance"), **row)
        else:
            yield Alert(**row | {"actor": Actor[row.get("actor", "ADMIN")]})


def _advice(kind: str, label: str) -> dict[str, Any]:
    """Return severity, actor and command for a failed health check, as `./hpc health` has them. The label `label` has
    the node's name."""
    advice = ADVICE[kind]
    todo = advice.todo.replace("NODE", f"{{{{ $labels.{label} }}}}")
    return {"severity": "critical" if kind in MACHINE else "warning", "actor": Actor(advice.actor), "todo": todo}


ALERTS = tuple(read(_FILE))
WATCHDOG = Alert(
    name=WATCHDOG_ALERT,
    expression="vector(1)",
    severity="none",
    what="Prometheus and Alertmanager send alerts; when this one stops, they do not",
    todo="./hpc status STACK",
)


def alerts_for(config: ClusterConfig) -> tuple[Alert, ...]:
    """Return the alerts of a cluster: the watchdog too where it has a receiver."""
    has_receiver = config.monitoring is not None and config.monitoring.receivers.watchdog
    return (*ALERTS, WATCHDOG) if has_receiver else ALERTS


_RANGE = re.compile(r"\[([0-9]+)([smh])(?=[]:])")
_UNITS = {"s": 1, "m": 60, "h": 3600}


def widen(expression: str, interval: int) -> str:
    """Return PromQL whose ranges are long enough for metrics that are collected each `interval` seconds."""

    def wide(found: re.Match[str]) -> str:
        seconds = int(found[1]) * _UNITS[found[2]]
        least = lookback_seconds(interval, seconds)
        return found[0] if least == seconds else f"[{least}s"

    return _RANGE.sub(wide, expression)


def rules(
    interval: int, alerts: Iterable[Alert] = ALERTS, *, stack: str, machine: str = "controller"
) -> dict[str, Any]:
    """Return Prometheus' rules file for metrics that are collected each `interval` seconds. `stack` is the name for
    commands, `machine` the role of Prometheus' machine."""
    rows = [
        {
            "alert": alert.name,
            "expr": widen(alert.expression, interval),
            "for": f"{alert.minutes}m",
            "labels": {**({"severity": alert.severity} if alert.severity else {}), "actor": alert.actor.value},
            "annotations": {
                "summary": widen(alert.what, interval),
                "todo": widen(alert.todo, interval).replace("STACK", stack).replace("PROMETHEUS", machine),
                **({"findings": alert.findings} if alert.findings else {}),
            },
        }
        for alert in alerts
    ]
    return {"groups": [{"name": "hpc", "rules": rows}]}
