"""Phase `configure`, for a machine that is set up over SSH, and phase `boot`, for a node that sets itself up.

Each machine compiles what is imported here at its first boot.
"""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from health import program
from monitoring import service as monitoring
from slurm import slurmd
from system import cluster_state, containers, installation, login, mounts, munge, protected_files, users
from system.host import SetupError, enable, reload_units, service, write

NODE = Path("/etc/hpc/node.json")


def configure(payload: dict[str, Any]) -> None:
    """Controller and login machines, alone or in one, nodes that share one with either, the machine of Prometheus."""
    installation.wait_until_installed()
    reload_units()  # what a set-up that was killed has written
    roles = payload["roles"]
    # Only there: a login machine would compile it as well.
    control: Any = import_module("control") if "controller" in roles else None
    wanted = payload["mounts"] if control else mounts.without_new_clients(payload["mounts"])
    shared = {mount["target"] for mount in wanted}
    if control:
        control.drain.refuse_busy(users.removed_names(payload["users"]))
    # First all that systemd reads, since that takes it long.
    enable("munge.service")
    mounts.write_fstab(wanted)
    if "login" in roles:
        login.prepare_for_users()
    if "node" in roles:
        slurmd.write_settings(payload["conf_server"])
    if control:
        control.begin(payload)
    mounts.mount_all(wanted, controller=payload["conf_server"])
    if control:
        control.state_disk.share_folders(payload.get("exports"))
    users.converge(payload["users"], payload["groups"], with_homes=control is not None or "/home" not in shared)
    containers.converge(
        payload["users"], data=payload.get("containers", ""), login="login" in roles, node="node" in roles
    )
    login.allow_logins(users="login" in roles)
    protected_files.restore_modes()
    munge.start()
    slurmd.link_pmix()
    slurmd.drop_empty_include()
    if control:
        control.control(payload)
    else:
        slurmd.stop_controller_daemons()
    config = cluster_state.wait_for_config(controller=payload["conf_server"].partition(":")[0])
    if control is None:
        login.configure(payload.get("files", {}))
    if "monitoring" in roles:
        monitoring.converge(payload["monitoring"])
    if "node" in roles:
        program.converge(config.get("health"))
        monitoring.export_gpus(config.get("gpu_exporter"))
        slurmd.start_slurmd(payload["conf_server"], config["slurmd"], at_boot=True)
    monitoring.export(payload.get("node_exporter", ""), required=control is not None)
    cluster_state.report("configured", config["digest"])


def boot() -> None:
    """A compute node, at boot and whenever the config version changes."""
    node = json.loads(NODE.read_text())
    try:
        reload_units()  # as for `configure`
        # First all that systemd reads, since that takes it long.
        enable("munge.service")
        slurmd.write_settings(node["conf_server"])
        mounts.mount_all(mounts.without_new_clients(node["mounts"]), controller=node["conf_server"])
        if not login.SSHD.exists():
            login.allow_logins(users=False)
        protected_files.restore_modes()
        slurmd.link_pmix()
        config = cluster_state.wait_for_config()
        munge.start(config["munge"])
        login.allow_logins_of_jobs(allowed=config.get("adopt", False))
        shared = {mount["target"] for mount in node["mounts"]}
        users.converge(config["users"], config["groups"], with_homes="/home" not in shared)
        containers.converge(config["users"], data=config.get("containers", ""))
        slurmd.stop_controller_daemons()
        program.converge(config.get("health"))
        monitoring.export(config.get("node_exporter", ""), required=False)
        monitoring.export_gpus(config.get("gpu_exporter"))
        slurmd.start_slurmd(node["conf_server"], config["slurmd"], at_boot=False)
    except SetupError as error:
        # Reported in the cluster state if that is reachable; the journal has it in any case.
        if cluster_state.FOLDER.is_dir():
            cluster_state.report("failed", "", str(error))
        raise
    # What the watcher compares with: the config version that this machine has applied.
    write("/etc/hpc/orders.json", json.dumps(config, indent=1) + "\n")
    # Newer than the one that runs, after a new set-up was brought. It comes after this phase, so it is not waited for.
    service("hpc-watch", settings=(Path(__file__).parent / "watch.sh").read_text(), block=False)
    cluster_state.report("configured", config["digest"])
