"""The controller's part of phase `configure`."""

from typing import Any

from accounting import database
from health import measure
from jobs import drain_leaving, prologs
from monitoring import service as monitoring
from reconcile import service
from slurm import conf_changes, slurmctld, topology, upgrade
from system import cluster_state, munge, state_disk

# Keys of the payload that are part of the config version.
PUBLISHED = "cluster users groups setup adopt containers health node_exporter gpu_exporter".split()


def prepare(payload: dict[str, Any]) -> None:
    """Mount the state disk, prepare slurmctld, and start the database, which takes a while."""
    state_disk.converge(payload.get("state"))
    slurmctld.prepare()
    database.configure()  # does not wait for the start


def run_daemons(payload: dict[str, Any]) -> None:
    """Run the daemons with their files, then publish the config version for all other machines."""
    files = {name: "\n".join(lines) + "\n" for name, lines in payload["files"].items()}
    dbd = files.pop("slurmdbd.conf")
    files |= topology.files(payload.get("topology"))
    slurmctld.refuse_other_name(payload["cluster"])
    if slurmctld.JOB_SUBMIT in files:
        slurmctld.check_job_submit(files[slurmctld.JOB_SUBMIT])
    release = payload.get("release")
    acts = payload.get("reconcile", {}).get("mode") == "act"
    upgrade.check_nodes(release, seconds=payload["drain_seconds"] if acts else 0)
    drain_leaving.drain_removed(
        slurmctld.applied().get("slurm.conf", ""),
        files["slurm.conf"],
        seconds=payload["drain_seconds"],
        part=payload["max_unavailable"],
    )
    if payload.get("slurmrestd"):
        slurmctld.keep_token_key()
    service.prepare(payload.get("reconcile"))
    with service.hold_loop(), upgrade.take_over(release) as before_slurmdbd, slurmctld.restore_on_failure(files):
        slurmctld.write_files(files)
        slurmctld.run_slurmdbd(dbd, before=before_slurmdbd)
        slurmctld.register(payload["cluster"], payload["qos"])
        slurmctld.run_slurmctld(files)
    topology.converge(payload.get("topology"))
    if payload.get("slurmrestd"):
        slurmctld.start_slurmrestd()
    else:
        slurmctld.remove_slurmrestd()
    service.converge(payload.get("reconcile"))
    config = {name: payload[name] for name in PUBLISHED if name in payload}
    config["munge"] = munge.fingerprint(munge.KEY.read_bytes())
    cluster_state.publish({**config, "slurmd": conf_changes.slurmd_epoch(files)}, {"slurm.conf": files["slurm.conf"]})
    monitoring.converge(payload.get("monitoring"))
    measure.converge(payload.get("measure"))
    prologs.keep_environment(payload.get("environment", []))
