"""The service hpc-metrics on the controller: writes metrics for node_exporter's textfile collector.

They are Slurm's metrics, if its release has none of its own, and those of the set-up: findings, health checks, config
versions, the reconcile loop, shared file systems. If Prometheus has a machine of its own, the service also runs there,
and writes the use of GPUs by jobs for the controller.

A child process reads each part with a deadline, as in phase `look`. So one that hangs costs only its own metrics, and
hpc_collector_success has its name.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import collect as observation
from accounting import backup
from health import outcome
from health.check_kinds import KINDS as HEALTH_KINDS
from health.check_kinds import is_old
from judge import findings
from judge.document import part as observed
from judge.kinds import KINDS
from monitoring import gpu_use, prometheus, slurm_metrics
from monitoring.metrics import Sample, render
from monitoring.service import SETTINGS, TEXTFILES, has_web_listener
from reconcile import service as reconcile
from slurm import hostlist, jobs, nodes, slurmctld
from slurm.output import valid_time
from system import cluster_state, installation, mounts, munge
from system.host import Part, SetupError, listens, log, read_json, remove, run, side_by_side, write
from system.protected_files import TOKEN_KEY

FILE = TEXTFILES / "hpc.prom"
SECONDS = 8.0  # for all parts together
COMMAND_SECONDS = 6
SEEN = Path("/run/hpc/findings.json")  # when each finding was seen first and last
KEYS = cluster_state.FOLDER / "keys.json"  # the fingerprint of each key, and since when the cluster has it


def main() -> None:
    """Collect metrics for ever, at the interval of Prometheus."""
    settings = read_json(SETTINGS, {})
    interval, leave_out = int(settings["interval_seconds"]), tuple(settings["leave_out"])
    os.environ["TZ"], os.environ["SLURM_BITSTR_LEN"] = "UTC", "0"  # print UTC, and all numbers of long arrays
    has_prometheus = settings.get("prometheus_on") == socket.gethostname()
    while True:
        began = time.monotonic()
        if has_prometheus:
            try:
                if settings["idle"]:
                    gpu_use.publish(settings["idle"], interval)
            except (OSError, SetupError) as error:
                log(f"nothing for the controller of what jobs make of GPUs: {error}")
            if has_web_listener():
                write(FILE, collect({"certificate": _certificate}), quiet=True)
            else:
                remove(FILE)
        else:
            write(FILE, collect(parts(), leave_out), quiet=True)
        time.sleep(max(interval - (time.monotonic() - began), 1))


def collect(parts: dict[str, Callable[[], Iterable[Sample]]], leave_out: tuple[str, ...] = ()) -> str:
    """Return the metrics of these parts as text, without those whose names begin with one of `leave_out`."""

    def reader(part: Callable[[], Iterable[Sample]]) -> Part:
        return lambda: [sample for sample in part() if not sample.name.startswith(leave_out)]

    answers = side_by_side({name: reader(part) for name, part in parts.items()}, seconds=SECONDS)
    samples: list[Sample] = []
    for name, answer in answers.items():
        succeeded = isinstance(answer, list)
        samples.append(Sample("hpc_collector_success", succeeded, {"collector": name}))
        samples += [Sample(*row) for row in answer] if succeeded else []
    return render(samples)


def _ask(*command: str) -> str:
    """Run a command of Slurm, if slurmctld listens: without it, a command would retry for many seconds."""
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=COMMAND_SECONDS)


def _jobs() -> list[jobs.Job]:
    mark = os.urandom(8).hex()
    return jobs.parse(_ask(*jobs.command(mark, "--all", "--states=all")), mark)


def _names(key: str) -> list[str]:
    """Return the names of the nodes or partitions in the slurm.conf that slurmctld runs with."""
    conf = slurmctld.applied().get("slurm.conf", "")
    return [name for hosts in re.findall(rf"(?m)^{key}=(\S+)", conf) for name in hostlist.expand(hosts)]


def _findings() -> Iterator[Sample]:
    """Yield the findings of the cluster: 1 from when on one pages; and whether its daemons answer in time. Texts, in
    which figures change, have a metric of their own, so that a finding stays the same series."""
    stack = read_json(SETTINGS, {})["stack"]
    document = observation.read(findings.PARTS)
    rows, seen = findings.publish(findings.findings(document), read_json(SEEN, {}), time.time())
    write(SEEN, json.dumps(seen) + "\n", quiet=True)
    for row in rows:
        place = {"id": row.id, "where": row.where}
        yield Sample("hpc_finding", row.pages, {**place, "severity": KINDS[row.id].severity})
        yield Sample("hpc_finding_text", 1, {**place, "what": row.what, "todo": row.todo.replace("STACK", stack)})
    yield Sample("hpc_slurmctld_up", bool(observed(document, "slurm", "ping", "up")))
    yield Sample("hpc_slurmctld_ping_seconds", observed(document, "slurm", "ping", "seconds") or 0)
    yield Sample("hpc_slurmdbd_up", bool(observed(document, "slurm", "database", "up")))
    yield Sample("hpc_munge_works", bool(observed(document, "munge", "works")))


def _machines() -> Iterator[Sample]:
    """Yield machines with a failed set-up, nodes with an old config version, and the age of the image."""
    newest, names = read_json(cluster_state.CONFIG, {}).get("digest", ""), set(_names("NodeName"))
    counts = Counter({"configured": 0, "outdated": 0, "failed": 0})
    for name, report in cluster_state.reports().items():
        state = "failed" if report.get("state") == "failed" else "configured"
        if state == "configured" and name in names and report.get("digest") != newest:
            state = "outdated"
        counts[state] += 1
        if state != "configured":
            yield Sample("hpc_machine_config_not_applied", 1, {"machine": name, "state": state})
    yield from (Sample("hpc_machines", count, {"state": state}) for state, count in counts.items())
    image = installation.image()
    if image.get("made"):
        yield Sample("hpc_image_age_seconds", time.time() - float(image["made"]))


def _ages() -> Iterator[Sample]:
    """Yield the ages of keys and of the last backup, which do not change if the controller's machine is recreated."""
    now, stored = time.time(), read_json(KEYS, {})
    keys: dict[str, dict[str, Any]] = {}
    for name, path in {"munge": munge.KEY, "tokens": TOKEN_KEY}.items():
        if path.exists():
            key, before = munge.fingerprint(path.read_bytes()), stored.get(name, {})
            keys[name] = before if before.get("key") == key else {"key": key, "since": now}
    if keys != stored:
        write(KEYS, json.dumps(keys) + "\n", quiet=True)
    cluster = read_json(cluster_state.CONFIG, {}).get("cluster", "")
    for name, row in keys.items():
        yield Sample("hpc_key_age_seconds", now - row["since"], {"key": name, "cluster": cluster})
    if not backup.MADE.exists():
        write(backup.MADE, f"{now:.0f}\n", quiet=True)  # without a backup, the age counts from here
    yield Sample("hpc_accounting_backup_age_seconds", now - float(backup.MADE.read_text()))


def _certificate() -> Iterator[Sample]:
    yield Sample("hpc_certificate_valid_seconds", prometheus.certificate_end() - time.time(), {"of": "prometheus"})


def _health() -> Iterator[Sample]:
    failing: Counter[str] = Counter(dict.fromkeys(HEALTH_KINDS, 0))
    records = outcome.results()
    interval = re.search(r"(?m)^HealthCheckInterval=(\d+)", slurmctld.applied().get("slurm.conf", ""))
    # Root of a node may write any file there. Other names than those of nodes would get into the commands of alerts.
    for name in records.keys() & set(_names("NodeName")):
        if records[name].keys() - {"measured"}:
            age = max(time.time() - (valid_time(records[name].get("time")) or 0), 0)
            yield Sample("hpc_health_age_seconds", age, {"node": name})
            if interval:
                yield Sample("hpc_health_old", is_old(age, int(interval[1])), {"node": name})
        parts = [part for key in ("checks", "measured") if isinstance(part := records[name].get(key), dict)]
        for kind in HEALTH_KINDS:
            results = [part[kind] for part in parts if isinstance(part.get(kind), dict)]
            if results and results[-1].get("state") == "failed":
                failing[kind] += 1
                yield Sample("hpc_health_check_failed", 1, {"node": name, "kind": kind})
                if text := results[-1].get("text"):
                    yield Sample("hpc_health_check_text", 1, {"node": name, "kind": kind, "text": str(text)})
    yield from (Sample("hpc_health_checks_failed", count, {"kind": kind}) for kind, count in failing.items())


def _reconcile() -> Iterator[Sample]:
    status = reconcile.status()
    if status:
        for mode in ("act", "advise", "off"):
            yield Sample("hpc_reconcile_mode", status.get("mode") == mode, {"mode": mode})
        # A mode is set in the stack file and has a metric of its own. As a brake it would keep an alert firing.
        brakes = [row for row in status.get("brakes", ()) if not row["brake"].startswith("mode: ")]
        yield Sample("hpc_reconcile_brakes", len(brakes))
        yield Sample("hpc_reconcile_cooling", len(status.get("cooling", ())))
        done = Counter(str(row.get("action", "")) for row in status.get("actions", ()) if row.get("action"))
        for action, count in done.items():
            yield Sample("hpc_reconcile_recent_actions", count, {"action": action})


def _shared(path: str) -> Iterator[Sample]:
    began, labels = time.monotonic(), {"mountpoint": path}
    usage = mounts.shared_usage(path)
    yield Sample("hpc_shared_filesystem_answer_seconds", time.monotonic() - began, labels)
    yield Sample("hpc_shared_filesystem_mounted", usage["mounted"], labels)
    if usage["mounted"]:
        yield Sample("hpc_shared_filesystem_size_bytes", usage["size"], labels)
        yield Sample("hpc_shared_filesystem_free_bytes", usage["free"], labels)
        yield Sample("hpc_shared_filesystem_files", usage["inodes"], labels)
        yield Sample("hpc_shared_filesystem_files_free", usage["inodes_free"], labels)
        yield Sample("hpc_shared_filesystem_readonly", usage["read_only"], labels)


def parts() -> dict[str, Callable[[], Iterable[Sample]]]:
    """Return all parts by name. Names have no blanks."""
    found: dict[str, Callable[[], Iterable[Sample]]] = {
        "nodes": lambda: slurm_metrics.node_metrics(nodes.parse(_ask(*nodes.COMMAND)).values(), time.time()),
        "jobs": lambda: slurm_metrics.job_metrics(_jobs(), _names("PartitionName"), time.time()),
        "scheduler": lambda: slurm_metrics.scheduler_metrics(_ask("sdiag")),
        "findings": _findings,
        "machines": _machines,
        "ages": _ages,
        "health": _health,
        "reconcile": _reconcile,
    }
    settings = read_json(SETTINGS, {})
    if idle := settings.get("idle"):
        interval = int(settings["interval_seconds"])

        def figures() -> gpu_use.Figures:
            on_another = settings.get("prometheus_on")
            return gpu_use.read_published(interval) if on_another else gpu_use.query_now(idle, interval)

        found["gpu_jobs"] = lambda: slurm_metrics.gpu_job_metrics(
            _ask("squeue", "--noheader", "--all", "--states=running", f"--Format={slurm_metrics.GPU_COLUMNS}")
        )
        found["gpu_use"] = lambda: gpu_use.collect(figures(), interval)
    if has_web_listener():
        found["certificate"] = _certificate
    for path in mounts.shared_targets():
        found[f"mount:{path.replace(' ', '_')}"] = lambda path=path: _shared(path)
    return found


if __name__ == "__main__":
    main()
