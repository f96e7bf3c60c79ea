"""Findings that compare machines with this host, with each other or with this program's catalog: unreachable, cut off;
MUNGE keys, clocks, configuration, releases."""

from collections.abc import Iterator

from cluster.catalog.floors import vulnerable
from cluster.findings import ClusterFinding
from cluster.observe.observation import ClusterObservation, MachineObservation
from cluster.slurm.paths import CONTROLLER_FILES
from scripts.node.judge.kinds import SKEW_SECONDS

LIFETIME = 300
"""Seconds that a MUNGE credential is valid (munge(7)). If two clocks differ by more, each machine takes credentials of
the other for expired or for not yet valid."""
_LOSSES = {
    "controller": ("controller machine", "no job starts and nobody can ask for one; jobs that run go on"),
    "login": ("login machine", "nobody can log in there"),
    "monitoring": ("machine of Prometheus", "nothing collects metrics and no alert fires; Slurm and jobs go on"),
}
"""Name of a machine by its role, and what fails without it."""


def unreachable(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines that do not answer SSH; nodes have a finding of their own."""
    for machine in cluster.machines:
        if machine.reached or machine.late or machine.roles == ("node",):
            continue
        kind, loss = next(row for role, row in _LOSSES.items() if role in machine.roles)
        yield ClusterFinding(
            id="machine-unreachable",
            where=(machine.name,),
            what=f"{kind} does not answer SSH ({machine.why}): {loss}",
            todo=f"./hpc up {cluster.stack}",
            note=f"It starts the machine again if it is not running; on Google Cloud after "
            f"./hpc refresh {cluster.stack}.",
        )


def late(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines that accept connections but sent no report, or only a part, in time."""
    todo = f"./hpc status {cluster.stack} --timeout 60"
    if len(cluster.machines) > 1 and all(machine.late for machine in cluster.machines):
        yield ClusterFinding(
            id="host-busy",
            where=tuple(machine.name for machine in cluster.machines),
            what=f"each accepts connections, and none gave a report ({cluster.machines[0].why}): this host is busy, or "
            "the network to them is slow. Nothing is known of the cluster",
            todo=todo,
        )
        return
    for machine in cluster.machines:
        if machine.late or machine.is_busy:
            yield ClusterFinding(
                id="machine-late",
                where=(machine.name,),
                what=f"is there, and gave no report: {machine.why}"
                if machine.late
                else "gave a part of its report only",
                todo=todo,
                note="It or this host is busy, or it hangs. What is missing is not checked.",
            )


def not_set_up(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines without the set-up."""
    for machine in cluster.machines:
        if machine.reached and not machine.has_facts:
            yield ClusterFinding(
                id="setup-missing",
                where=(machine.name,),
                what=f"has no set-up that can report ({machine.why})",
                # `up` compares the stack with its last run only, so it can't find damage that was done since then.
                todo=f"./hpc up {cluster.stack}" if machine.old else f"./hpc drift {cluster.stack} --mend",
                note="" if machine.old else "It brings the set-up again, and has the machine do its part.",
            )


def cut_off(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines that answer this host but can't reach slurmctld, although it is up."""
    for machine in cluster.machines:
        port = machine.controller
        if port.get("reached") is not False or not cluster.slurmctld_answers:
            continue
        address = f"{port.get('host')}:{port.get('port')}"
        yield ClusterFinding(
            id="network-cut",
            where=(machine.name,),
            what=f"answers SSH from here, but cannot reach the controller ({address}: {port.get('why', '')}), where "
            "slurmctld is up: the network between the two is cut",
            todo=f"./hpc ssh {cluster.stack} {machine.name} -- ping -c 3 {port.get('host')}",
            note="Look at its network and at firewalls between the two.",
        )


def munge_keys(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines with another MUNGE key than the controller; none if the controller's is not known."""
    expected = (cluster.controller.munge or {}).get("key")
    for machine in cluster.machines:
        if not expected or machine.munge is None or (key := machine.munge.get("key")) == expected:
            continue
        if not key:
            yield ClusterFinding(
                id="munge-key",
                where=(machine.name,),
                what="has no MUNGE key: its set-up has not come that far",
                todo=f"./hpc up {cluster.stack}",
            )
            continue
        restart = f"./hpc ssh {cluster.stack} {machine.name} -- systemctl restart hpc-node"
        yield ClusterFinding(
            id="munge-key",
            where=(machine.name,),
            what="has another MUNGE key than the controller: no authentication between the two succeeds",
            todo=restart if machine.roles == ("node",) else f"./hpc drift {cluster.stack} --mend",
            note="It installs again the key that the stack gave it.",
        )


def clocks(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines whose clock differs from the controller's by more than the time that reading it took."""
    for machine in cluster.machines:
        skew = clock_skew(machine, cluster.controller)
        if abs(skew) < SKEW_SECONDS:
            continue
        effect = (
            "Every credential between the two is refused"
            if abs(skew) >= LIFETIME
            else f"MUNGE refuses credentials from {LIFETIME} s on"
        )
        yield ClusterFinding(
            id="clock-skew",
            where=(machine.name,),
            what=f"its clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the controller's. {effect}",
            todo=f"./hpc ssh {cluster.stack} {machine.name} -- timedatectl",
            note="Let it follow the time server that the controller follows.",
        )


def unauthenticated(cluster: ClusterObservation) -> set[str]:
    """Return the machines that can't authenticate to the controller, so that slurmctld gets no answer from them."""
    by_clock = {
        machine.name for machine in cluster.machines if abs(clock_skew(machine, cluster.controller)) >= LIFETIME
    }
    return by_clock.union(*(finding.where for finding in munge_keys(cluster)))


def clock_skew(machine: MachineObservation, reference: MachineObservation) -> float:
    """Return the seconds by which a machine's clock, as its munged reads it, is certainly ahead; negative: behind; 0 if
    one of the clocks is not known.

    A clock was read at some time between request and response, so that much of a difference is not certain.
    """
    if not machine.has_facts or not reference.has_facts:
        return 0.0
    low, high = _clock_bounds(machine)
    other_low, other_high = _clock_bounds(reference)
    return max(low - other_high, 0.0) or min(high - other_low, 0.0)


def _clock_bounds(machine: MachineObservation) -> tuple[float, float]:
    time = machine.time + (machine.munge or {}).get("ahead", 0)
    return time - machine.answered, time - machine.asked


def older_slurm(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines with an earlier release of Slurm than the controller: an upgrade has not ended."""
    new = _release(cluster.controller)
    for machine in cluster.machines:
        if (old := _release(machine)) and old < new:
            yield ClusterFinding(
                id="slurm-older",
                where=(machine.name,),
                what=f"runs Slurm {old}, the controller {new}: an upgrade is not at its end",
                todo=f"./hpc up {cluster.stack}",
                note="It goes on with it: nodes are recreated when their jobs have ended, then login machines.",
            )


def vulnerable_software(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines with software below its security floor, and daemons that run a program that was replaced."""
    for machine in cluster.machines:
        software = machine.part("software") or {}
        if found := [*vulnerable(software.get("versions", {}))]:
            yield ClusterFinding(
                id="vulnerable",
                where=(machine.name,),
                what=f"has software with published vulnerabilities: {'; '.join(found)}",
                todo=f"./hpc preview {cluster.stack}",
                note="It shows whether this program has later versions; `up` brings them as another image while jobs "
                "run on (docs/guides/upgrade.md).",
            )
        if names := software.get("replaced"):
            yield ClusterFinding(
                id="vulnerable",
                where=(machine.name,),
                what=f"{', '.join(names)} still run{'s' * (len(names) == 1)} what an update has replaced",
                todo=f"./hpc ssh {cluster.stack} {machine.name} -- systemctl restart {' '.join(map(_unit, names))}",
                note="Jobs run on. A job step keeps its slurmstepd until it ends.",
            )


def _unit(daemon: str) -> str:
    return {"munged": "munge", "slurmstepd": "slurmd"}.get(daemon, daemon)


def _release(machine: MachineObservation) -> str:
    """Return the release of a machine's Slurm, such as 26.05; empty if it is not known."""
    version = (machine.part("versions") or {}).get("slurm") or ""
    return ".".join(version.split(".")[:2])


def outdated(cluster: ClusterObservation) -> Iterator[ClusterFinding]:
    """Yield machines with an older configuration than the controller."""
    newest = (cluster.controller.part("cluster_state", "newest") or {}).get("digest")
    files = cluster.controller.part("files", "etc") or {}
    applied = cluster.controller.part("files", "applied") or {}
    served = {name: files.get(name) for name in applied if name not in CONTROLLER_FILES}
    for machine in cluster.machines:
        if why := [*_config_files(machine, served), *_config_version(machine, newest)]:
            yield ClusterFinding(
                id="old-config",
                where=(machine.name,),
                what=f"has another configuration than the controller: {'; '.join(why)}",
                todo=f"./hpc drift {cluster.stack}",
                note=f"It shows what differs; ./hpc drift {cluster.stack} --mend makes it as the stack says.",
            )


def _config_files(machine: MachineObservation, served: dict[str, str | None]) -> Iterator[str]:
    cached = machine.part("files", "cache") or {}
    # A node on the controller's machine reads the controller's own files.
    if "node" not in machine.roles or not cached:
        return
    differing = sorted(name for name, value in served.items() if value is not None and cached.get(name) != value)
    if differing:
        yield f"its slurmd's {', '.join(differing)} differ{'s' * (len(differing) == 1)} from the controller's"


def _config_version(machine: MachineObservation, newest: str | None) -> Iterator[str]:
    report = machine.report
    # A login machine is configured by its own command of `up`, not by the config version.
    if not newest or "node" not in machine.roles or report.get("state") == "failed":
        return
    if report and report.get("digest") != newest:
        yield f"it reported config version {report.get('digest') or 'unknown'}, the controller has {newest}"
    elif machine.roles == ("node",) and (applied := machine.part("followed")) is not None and applied != newest:
        yield f"it applied config version {applied or 'none'}, the controller has {newest}"
