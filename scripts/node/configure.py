"""Phase `configure`, for a machine that is set up over SSH, and phase `boot`, for a node that sets itself up.

Every machine compiles the modules that this one imports, at its first boot.
"""

import json
from pathlib import Path
from typing import Any

from health import run_checks
from monitoring import service as monitoring
from slurm import slurmd
from system import cluster_state, containers, installation, login, mounts, munge, protected_files, users
from system.host import SetupError, enable, reload_units, service, write

NODE = Path("/etc/hpc/node.json")


def configure(payload: dict[str, Any]) -> None:
    """Set up a machine with any of the roles controller, login, node and monitoring."""
    installation.wait_until_installed()
    reload_units()  # reads unit files that a killed run has written
    roles = payload["roles"]
    control = None
    if "controller" in roles:
        import control  # so that a login machine does not compile it
    file_systems = payload["mounts"] if control else mounts.without_new_clients(payload["mounts"])
    shared = {mount["target"] for mount in file_systems}
    if leaving := users.removed_names(payload["users"]):
        # On every machine: a login machine would remove the user before the controller refuses.
        from jobs import drain_leaving

        drain_leaving.refuse_busy(leaving)
    # First the files that systemd reads: one reload, which takes long, is then enough for all.
    enable("munge.service")
    mounts.write_fstab(file_systems)
    if "login" in roles:
        login.prepare_for_users()
    if "node" in roles:
        slurmd.write_settings(payload["conf_server"])
    if control:
        control.prepare(payload)
    mounts.mount_all(file_systems, controller=payload["conf_server"])
    if control:
        control.state_disk.share_folders(payload.get("exports"))
    users.converge(payload["users"], payload["groups"], with_homes=control is not None or "/home" not in shared)
    containers.converge(
        payload["users"], data=payload.get("containers", ""), login="login" in roles, node="node" in roles
    )
    login.allow_logins(payload["users"] if "login" in roles else None)
    protected_files.restore_modes()
    munge.start()
    slurmd.link_pmix()
    slurmd.drop_empty_include()
    if control:
        control.run_daemons(payload)
    else:
        slurmd.stop_controller_daemons()
    config = cluster_state.wait_for_config(controller=payload["conf_server"].partition(":")[0])
    if control is None:
        login.configure(payload.get("files", {}))
    if "monitoring" in roles:
        monitoring.converge(payload["monitoring"])
    if "node" in roles:
        run_checks.converge(config.get("health"))
        monitoring.export_gpus(config.get("gpu_exporter"))
        slurmd.start_slurmd(payload["conf_server"], config["slurmd"], at_boot=True)
    monitoring.export(payload.get("node_exporter", ""), required=control is not None)
    cluster_state.report("configured", config["digest"])


def boot() -> None:
    """Set up a compute node, at its boot and whenever the config version changes."""
    node = json.loads(NODE.read_text())
    try:
        reload_units()  # as for `configure`
        # First the files that systemd reads, as in `configure`.
        enable("munge.service")
        slurmd.write_settings(node["conf_server"])
        mounts.mount_all(mounts.without_new_clients(node["mounts"]), controller=node["conf_server"])
        if not login.SSHD.exists():
            login.allow_logins(None)
        protected_files.restore_modes()
        slurmd.link_pmix()
        config = cluster_state.wait_for_config()
        munge.start(config["munge"])
        login.allow_logins_of_jobs(config["users"], allowed=config.get("adopt", False))
        shared = {mount["target"] for mount in node["mounts"]}
        users.converge(config["users"], config["groups"], with_homes="/home" not in shared)
        containers.converge(config["users"], data=config.get("containers", ""))
        slurmd.stop_controller_daemons()
        run_checks.converge(config.get("health"))
        monitoring.export(config.get("node_exporter", ""), required=False)
        monitoring.export_gpus(config.get("gpu_exporter"))
        slurmd.start_slurmd(node["conf_server"], config["slurmd"], at_boot=False)
    except SetupError as error:
        # The journal has the error in any case; the cluster state may not be reachable.
        if cluster_state.FOLDER.is_dir():
            cluster_state.report("failed", "", str(error))
        raise
    # The config version that this machine has applied, with which the watcher compares the newest one.
    write("/etc/hpc/orders.json", json.dumps(config, indent=1) + "\n")
    # Restarts the watcher if the set-up is new. It starts after this phase, so that waiting for it would be a deadlock.
    service("hpc-watch", settings=(Path(__file__).parent / "watch.sh").read_text(), block=False)
    cluster_state.report("configured", config["digest"])
