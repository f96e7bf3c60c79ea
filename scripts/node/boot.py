"""Phase `boot`: a compute node joins the cluster. Each machine compiles what is imported here at its first boot."""

import json
from pathlib import Path

from health import program
from monitoring import service as monitoring
from slurm import slurmd
from system import cluster_state, containers, login, mounts, munge, protected_files, users
from system.host import SetupError, enable, reload_units, service, write

NODE = Path("/etc/hpc/node.json")


def boot() -> None:
    """A compute node, at boot and whenever the config version changes."""
    node = json.loads(NODE.read_text())
    try:
        reload_units()  # as for `configure`
        # First all that systemd reads, since that takes it long.
        enable("munge.service")
        slurmd.write_settings(node["conf_server"])
        mounts.mount_all(mounts.of_image(node["mounts"]), controller=node["conf_server"])
        if not login.SSHD.exists():
            login.admit(users=False)
        protected_files.restore_modes()
        slurmd.link_pmix()
        config = cluster_state.wait_for_config()
        munge.start(config["munge"])
        login.let_in(jobs=config.get("adopt", False))
        shared = {mount["target"] for mount in node["mounts"]}
        users.converge(config["users"], config["groups"], with_homes="/home" not in shared)
        containers.converge(config["users"], data=config.get("containers", ""))
        slurmd.stop_controller_daemons()
        program.keep(config.get("health"))
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
