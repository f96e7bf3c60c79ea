"""The service on the controller that writes what node_exporter does not have, for its textfile collector:
Slurm's metrics where the release has none of its own, and what this set-up alone has: health checks, config versions,
the reconcile loop, shared file systems. Where Prometheus has a machine of its own, it runs there too, and gives the
controller what jobs make of their GPUs.

Each part is read by a process of its own with a deadline, as those of phase `look` are: one that hangs costs its own
metrics, and hpc_collector_success says which.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
from calendar import timegm
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from accounting import backup
from health import outcome
from health.kinds import KINDS
from monitoring import gpu_use, prometheus, slurm_metrics
from monitoring.service import SETTINGS, TEXTFILES, has_web_listener
from monitoring.slurm_metrics import Sample, render
from reconcile import service as reconcile
from slurm import hostlist, scheduler, slurmctld
from slurm.output import valid_time
from system import cluster_state, installation, mounts, munge
from system.host import Part, SetupError, listens, log, read_json, remove, run, side_by_side, succeeds, write
from system.protected_files import TOKEN_KEY

FILE = TEXTFILES / "hpc.prom"
SECONDS = 8.0  # for all parts together
COMMAND_SECONDS = 6
KEYS = cluster_state.FOLDER / "keys.json"  # fingerprints, and since when


def main() -> None:
    """Collect again and again, as often as Prometheus does."""
    settings = read_json(SETTINGS, {})
    interval, leave_out = float(settings["interval_seconds"]), tuple(settings["leave_out"])
    os.environ["TZ"], os.environ["SLURM_BITSTR_LEN"] = "UTC", "0"  # times as UTC, numbers of a long array in full
    gives = settings.get("prometheus_on") == socket.gethostname()
    while True:
        began = time.monotonic()
        if gives:
            _give(settings["idle"])
            if has_web_listener():
                write(FILE, collect({"certificate": _certificate}), quiet=True)
            else:
                remove(FILE)
        else:
            write(FILE, collect(parts(), leave_out), quiet=True)
        time.sleep(max(interval - (time.monotonic() - began), 1))


def _give(idle: str) -> None:
    try:
        if idle:
            gpu_use.give(idle)
    except (OSError, SetupError) as error:
        log(f"nothing for the controller of what jobs make of GPUs: {error}")


def collect(wanted: dict[str, Callable[[], Iterable[Sample]]], leave_out: tuple[str, ...] = ()) -> str:
    """The metrics of these parts, without those whose names begin with one of `leave_out`."""

    def reader(part: Callable[[], Iterable[Sample]]) -> Part:
        return lambda: [sample for sample in part() if not sample.name.startswith(leave_out)]

    found = side_by_side({name: reader(part) for name, part in wanted.items()}, seconds=SECONDS)
    samples: list[Sample] = []
    for name, answer in found.items():
        works = isinstance(answer, list)
        samples.append(Sample("hpc_collector_success", works, {"collector": name}))
        samples += [Sample(*row) for row in answer] if works else []
    return render(samples)


def _ask(*command: str) -> str:
    # A command whose daemon is gone tries for many seconds before it says so.
    if not listens(slurmctld.SLURMCTLD_PORT):
        raise SetupError(f"nothing listens on slurmctld's port {slurmctld.SLURMCTLD_PORT}")
    return run(*command, timeout=COMMAND_SECONDS)


def _nodes() -> Iterator[Sample]:
    return slurm_metrics.node_metrics(_ask("scontrol", "--oneliner", "--all", "show", "node"), time.time())


def _jobs() -> Iterator[Sample]:
    text = _ask("squeue", "--noheader", "--all", "--states=all", f"--format={slurm_metrics.COLUMNS}")
    return slurm_metrics.job_metrics(text, _named("PartitionName"), time.time())


def _named(kind: str) -> list[str]:
    """Names of the nodes or partitions in the files that slurmctld runs with."""
    conf = slurmctld.applied().get("slurm.conf", "")
    return [name for hosts in re.findall(rf"(?m)^{kind}=(\S+)", conf) for name in hostlist.expand(hosts)]


def _scheduler() -> Iterator[Sample]:
    return slurm_metrics.scheduler_metrics(_ask("sdiag"))


def _gpu_jobs() -> Iterator[Sample]:
    text = _ask("squeue", "--noheader", "--all", "--states=running", f"--Format={slurm_metrics.GPU_COLUMNS}")
    return slurm_metrics.gpu_job_metrics(text)


def _daemons() -> Iterator[Sample]:
    try:
        answer = scheduler.ping()
    except SetupError:
        answer = {"up": False, "seconds": 0}
    yield Sample("hpc_slurmctld_up", answer["up"])
    yield Sample("hpc_slurmctld_ping_seconds", answer["seconds"])
    yield Sample("hpc_slurmdbd_up", scheduler.database()["up"])
    yield Sample("hpc_munge_works", munge.check()["works"])


def _machines() -> Iterator[Sample]:
    """Yield whether the set-up of machines has failed, and whether nodes, which alone follow it, have the newest config
    version."""
    newest, nodes = read_json(cluster_state.CONFIG, {}).get("digest", ""), set(_named("NodeName"))
    counts = Counter({"configured": 0, "outdated": 0, "failed": 0})
    for name, report in cluster_state.reports().items():
        state = "failed" if report.get("state") == "failed" else "configured"
        if state == "configured" and name in nodes and report.get("digest") != newest:
            state = "outdated"
        counts[state] += 1
        if state != "configured":
            yield Sample("hpc_machine_config_not_applied", 1, {"machine": name, "state": state})
    yield from (Sample("hpc_machines", count, {"state": state}) for state, count in counts.items())
    image = installation.image()
    if image.get("made"):
        yield Sample("hpc_image_age_seconds", time.time() - float(image["made"]))
    if image.get("kernel"):
        yield Sample("hpc_kernel_age_seconds", time.time() - timegm(time.strptime(image["kernel"], "%Y-%m-%d")))


def _ages() -> Iterator[Sample]:
    """Yield the ages of keys and of the last backup: since the cluster has each, whatever machine the controller is."""
    now, there = time.time(), read_json(KEYS, {})
    files = {"munge": munge.KEY, "tokens": TOKEN_KEY}
    prints = {name: munge.fingerprint(path.read_bytes()) for name, path in files.items() if path.exists()}
    known = {name: there.get(name, {}) for name in prints}
    known = {
        name: known[name] if known[name].get("key") == key else {"key": key, "since": now}
        for name, key in prints.items()
    }
    if known != there:
        write(KEYS, json.dumps(known) + "\n", quiet=True)
    cluster = read_json(cluster_state.CONFIG, {}).get("cluster", "")
    for name, row in known.items():
        yield Sample("hpc_key_age_seconds", now - row["since"], {"key": name, "cluster": cluster})
    if not backup.MADE.exists():
        write(backup.MADE, f"{now:.0f}\n", quiet=True)  # from when on there is something to back up
    yield Sample("hpc_accounting_backup_age_seconds", now - float(backup.MADE.read_text()))


def _certificate() -> Iterator[Sample]:
    yield Sample("hpc_certificate_valid_seconds", prometheus.certificate_end() - time.time(), {"of": "prometheus"})


def _health() -> Iterator[Sample]:
    failing: Counter[str] = Counter(dict.fromkeys(KINDS, 0))
    found = outcome.results()
    # Root of a node writes there what it likes: also a result of no node, whose name would stand in an alert's command.
    for name in found.keys() & set(_named("NodeName")):
        if found[name].keys() - {"measured"}:
            age = time.time() - (valid_time(found[name].get("time")) or 0)
            yield Sample("hpc_health_age_seconds", max(age, 0), {"node": name})
        parts = [part for key in ("checks", "measured") if isinstance(part := found[name].get(key), dict)]
        for kind in KINDS:
            results = [part[kind] for part in parts if isinstance(part.get(kind), dict)]
            if results and results[-1].get("state") == "failed":
                failing[kind] += 1
                yield Sample("hpc_health_check_failed", 1, {"node": name, "kind": kind})
    yield from (Sample("hpc_health_checks_failed", count, {"kind": kind}) for kind, count in failing.items())


def _reconcile() -> Iterator[Sample]:
    status = reconcile.status()
    if status:
        for mode in ("act", "advise", "off"):
            yield Sample("hpc_reconcile_mode", status.get("mode") == mode, {"mode": mode})
        # A mode is of the stack file, and a metric of its own: no alert fires for it all the time.
        brakes = [row for row in status.get("brakes", ()) if not row["brake"].startswith("mode: ")]
        yield Sample("hpc_reconcile_brakes", len(brakes))
        for kind in ("cooling", "alerts"):
            yield Sample(f"hpc_reconcile_{kind}", len(status.get(kind, ())))
        # systemd starts one that ends at once again and again, which is no failed unit.
        runs = succeeds("systemctl", "is-active", "--quiet", reconcile.NAME)
        yield Sample("hpc_reconcile_blind", bool(status.get("why")) or not runs)
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
        yield Sample("hpc_shared_filesystem_readonly", usage["read_only"], labels)


def parts() -> dict[str, Callable[[], Iterable[Sample]]]:
    """Return all parts, by name; a name has no blank."""
    found: dict[str, Callable[[], Iterable[Sample]]] = {
        "nodes": _nodes,
        "jobs": _jobs,
        "scheduler": _scheduler,
        "daemons": _daemons,
        "machines": _machines,
        "ages": _ages,
        "health": _health,
        "reconcile": _reconcile,
    }
    settings = read_json(SETTINGS, {})
    if idle := settings.get("idle"):
        read = gpu_use.given if settings.get("prometheus_on") else lambda: gpu_use.now(idle)
        found |= {"gpu_jobs": _gpu_jobs, "gpu_use": lambda: gpu_use.collect(read())}
    if has_web_listener():
        found["certificate"] = _certificate
    for path in mounts.shared_targets():
        found[f"mount:{path.replace(' ', '_')}"] = lambda path=path: _shared(path)
    return found


if __name__ == "__main__":
    main()
