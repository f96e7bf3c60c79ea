"""env.sh in a real bash, as jobs source it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cluster.jobs.script import render_environment
from cluster.load import parse
from tests import programs
from tests.cluster.shell import shellcheck
from tests.cluster.stacks import EVERY, config, load

PROFILE = "export NCCL_FASTRAK_IFNAME=eth1\nexport NCCL_SOCKET_IFNAME=eth0\nexport NCCL_TUNER=$NCCL_LIB_DIR\n"
LATER = PROFILE + "export LD_LIBRARY_PATH=/var/lib/tcpxo/lib64:${LD_LIBRARY_PATH}\n"
"""What the prolog of 2025 appends; unset variables are no error there."""
NAMES = re.compile(r"(NCCL_|GLOO_|HPC_|MASTER_|LD_LIBRARY_PATH)")


class Job:
    """A node's file system in a folder, and a bash there."""

    def __init__(self, folder: Path, stack: str | dict[str, Any]) -> None:
        self.folder = folder
        text = render_environment(config(stack) if isinstance(stack, str) else parse(stack))
        # A folder stands for the paths of a node.
        for place in ("/var/", "/usr/local/gib"):
            text = text.replace(place, f"{folder}{place}")
        self.text = text.replace("/sys/class/net", f"{folder}/net")
        addresses = "echo '2: docker0 inet 172.17.0.1/16'; echo '3: ens4    inet 10.0.0.5/32'"
        programs.write(folder / "bin/ip", addresses)
        programs.write(folder / "bin/scontrol", 'echo "${SLURM_JOB_NODELIST%%,*}"')

    def profile(self, text: str) -> None:
        path = self.folder / "var/lib/tcpxo/lib64/nccl-env-profile.sh"
        path.parent.mkdir(parents=True)
        path.write_text(text.replace("/var/", f"{self.folder}/var/"))

    def nic(self, name: str) -> None:
        (self.folder / "net" / name).mkdir(parents=True)

    def run(self, script: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        (self.folder / "env.sh").write_text(self.text)
        environ = {"PATH": f"{self.folder}/bin:/usr/bin:/bin", **variables}
        program = f"set -euo pipefail\n{script.replace('ENV', f'{self.folder}/env.sh')}\n"
        return programs.run(["bash", "-c", program], env=environ)

    def sourced(self, times: int = 1, /, **variables: str) -> dict[str, str]:
        done = self.run(". ENV\n" * times + "env; declare -F; set -o | grep -E 'errexit|nounset'", **variables)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        lines = done.stdout.splitlines()
        assert [line for line in lines if line.startswith("declare")] == []
        assert [line.split()[1] for line in lines if line.startswith(("errexit", "nounset"))] == ["on", "on"]
        found = dict(line.split("=", 1) for line in lines if "=" in line)
        place = str(self.folder)
        return {name: value.replace(place, "") for name, value in found.items() if NAMES.match(name)}


def in_job(partition: str, nodes: int, **more: str) -> dict[str, str]:
    names = ",".join(f"n-{number}" for number in range(nodes))
    return {
        "SLURM_JOB_ID": "12345", "SLURM_JOB_PARTITION": partition, "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NODELIST": names, "SLURMD_NODENAME": "n-0", **more,
    }  # fmt: skip


def variables(found: dict[str, str]) -> dict[str, str]:
    return {name: found[name] for name in sorted(found)}


@pytest.fixture
def mega(tmp_path: Path) -> Job:
    """A node of A3 Mega with the NICs of one."""
    job = Job(tmp_path, "a3mega")
    job.nic("enp0s12")
    return job


class TestTcpxo:
    def test_two_nodes_get_what_the_guide_sets(self, mega: Job, reviewed):
        mega.profile(PROFILE)
        reviewed("jobs/environment-tcpxo", variables(mega.sourced(**in_job("a3mega", 2))))

    @pytest.mark.parametrize("profile", [PROFILE, LATER])
    @pytest.mark.parametrize("times", [1, 3])
    def test_libraries_of_the_plugin_are_first_and_the_jobs_own_are_kept(self, mega: Job, profile: str, times: int):
        mega.profile(profile)
        own = f"/a:{mega.folder}/var/lib/tcpxo/lib64:/b"
        found = mega.sourced(times, **in_job("a3mega", 2, LD_LIBRARY_PATH=own))
        assert found["LD_LIBRARY_PATH"] == "/var/lib/tcpxo/lib64:/usr/lib/x86_64-linux-gnu:/a:/b"

    def test_one_node_loads_no_plugin(self, mega: Job):
        mega.profile(PROFILE)
        found = mega.sourced(**in_job("a3mega", 1))
        assert found["NCCL_NET_PLUGIN"] == "none"
        assert "NCCL_FASTRAK_IFNAME" not in found
        assert "LD_LIBRARY_PATH" not in found
        assert "tcpxo" not in found["HPC_CONTAINER_MOUNTS"]

    def test_a_job_submitted_from_a_job_on_one_node_loads_the_plugin(self, mega: Job):
        mega.profile(PROFILE)
        assert "NCCL_NET_PLUGIN" not in mega.sourced(**in_job("a3mega", 2, NCCL_NET_PLUGIN="none"))
        assert mega.sourced(**in_job("a3mega", 2, NCCL_NET_PLUGIN="mine"))["NCCL_NET_PLUGIN"] == "mine"

    @pytest.mark.parametrize("times", [1, 3])
    def test_variables_of_the_job_override_those_of_googles_profile(self, mega: Job, times: int):
        mega.profile(
            PROFILE + "export NCCL_DEBUG=WARN NCCL_DEBUG_SUBSYS=ENV\nexport CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\n"
        )
        own = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "CUDA_VISIBLE_DEVICES": "2,3"}
        script = ". ENV\n" * times + "declare -p NCCL_DEBUG NCCL_DEBUG_SUBSYS CUDA_VISIBLE_DEVICES 2>/dev/null"
        done = mega.run(script, **in_job("a3mega", 2, **own))
        assert done.stdout.splitlines() == [f'declare -x {name}="{value}"' for name, value in own.items()]
        # Of what a job does not have, NCCL's settings are Google's, and the GPUs nobody's but Slurm's.
        done = mega.run(script + " || true", **in_job("a3mega", 2))
        assert done.stdout.splitlines() == ['declare -x NCCL_DEBUG="WARN"', 'declare -x NCCL_DEBUG_SUBSYS="ENV"']

    @pytest.mark.parametrize(("asked", "given"), [({}, "block:block"), ({"SLURM_DISTRIBUTION": "cyclic"}, "cyclic")])
    def test_ranks_are_in_the_order_of_gpus_unless_the_job_has_another(
        self, mega: Job, asked: dict[str, str], given: str
    ):
        done = mega.run(". ENV; echo $SLURM_DISTRIBUTION", **in_job("a3mega", 1, **asked))
        assert done.stdout == f"{given}\n"

    def test_without_the_plugin_the_job_ends_with_the_reason(self, mega: Job):
        done = mega.run(". ENV; echo went on", **in_job("a3mega", 2))
        assert (done.returncode, done.stdout) == (1, "")
        assert "nccl-env-profile.sh is not on n-0. On the node the rxdm prolog writes it" in done.stderr

    @pytest.mark.parametrize("script", [". ENV || exit 7", ". ENV && echo went on", ". ENV; exit $?"])
    def test_scripts_without_errexit_get_the_status(self, mega: Job, script: str):
        done = mega.run(f"set +e\n{script}", **in_job("a3mega", 2))
        assert done.returncode == (7 if "7" in script else 1)
        assert done.stdout == ""

    def test_without_the_prolog_no_profile_is_required(self, tmp_path: Path):
        settings = load("a3mega")
        del settings["hpc:cluster"]["slurm"]["rxdm"]
        assert Job(tmp_path, settings).sourced(**in_job("a3mega", 2))["NCCL_SOCKET_IFNAME"] == "ens4"

    def test_a_rehearsal_has_other_nics(self, tmp_path: Path):
        job = Job(tmp_path, "a3mega")
        job.profile(PROFILE)
        found = job.sourced(**in_job("a3mega", 2))
        assert (found["NCCL_SOCKET_IFNAME"], found["GLOO_SOCKET_IFNAME"]) == ("enp0s12", "ens4")


class TestGib:
    @pytest.fixture
    def job(self, tmp_path: Path) -> Job:
        """A node of A3 Ultra with its first NIC."""
        job = Job(tmp_path, "a3ultra")
        job.nic("enp0s19")
        return job

    @pytest.mark.parametrize("times", [1, 3])
    def test_jobs_get_what_the_blueprint_sets(self, job: Job, times: int, reviewed):
        path = job.folder / "usr/local/gib/scripts/set_nccl_env.sh"
        path.parent.mkdir(parents=True)
        path.write_text("export NCCL_CROSS_NIC=0 NCCL_DEBUG=WARN\n")
        found = job.sourced(times, **in_job("a3ultra", 2, LD_LIBRARY_PATH="/a", NCCL_DEBUG="INFO"))
        reviewed("jobs/environment-gib", variables(found))

    def test_without_the_plugin_only_jobs_on_one_node_run(self, job: Job):
        assert job.sourced(**in_job("a3ultra", 1))["NCCL_SOCKET_IFNAME"] == "enp0s19"
        done = job.run(". ENV; echo went on", **in_job("a3ultra", 2))
        assert (done.returncode, done.stdout) == (1, "")
        assert "set_nccl_env.sh is not on n-0" in done.stderr


class TestOthers:
    def test_without_a_fabric_only_the_nic_is_set(self, tmp_path: Path, reviewed):
        reviewed("jobs/environment", variables(Job(tmp_path, "classic").sourced(**in_job("gpu", 2))))

    def test_infiniband_has_the_hosts_topology_where_there_is_one(self, tmp_path: Path):
        job = Job(tmp_path, "nebius")
        job.nic("eth0")
        found = job.sourced(**in_job("main", 2))
        assert found["NCCL_SOCKET_IFNAME"] == "eth0"
        assert "NCCL_TOPO_FILE" not in found
        topology = tmp_path / "var/run/nvidia-topologyd/virtualTopology.xml"
        topology.parent.mkdir(parents=True)
        topology.write_text("<system/>")
        found = job.sourced(**in_job("main", 2))
        assert found["NCCL_TOPO_FILE"] == "/var/run/nvidia-topologyd/virtualTopology.xml"
        assert found["HPC_CONTAINER_MOUNTS"].endswith(f",{found['NCCL_TOPO_FILE']}:{found['NCCL_TOPO_FILE']}")
        assert "NCCL_TOPO_FILE" in found["HPC_CONTAINER_ENV"].split(",")

    def test_in_a_mixed_partition_variables_depend_on_the_node(self, tmp_path: Path):
        settings = load("nebius")
        settings["hpc:cluster"]["nodesets"]["cpu"] = {"count": 1}
        settings["hpc:cluster"]["partitions"]["main"]["nodesets"] = ["worker", "cpu"]
        job = Job(tmp_path, settings)
        topology = tmp_path / "var/run/nvidia-topologyd/virtualTopology.xml"
        topology.parent.mkdir(parents=True)
        topology.write_text("<system/>")
        found = {
            node: "NCCL_TOPO_FILE" in job.sourced(**in_job("main", 2, SLURMD_NODENAME=node))
            for node in ("worker-0", "worker-12", "cpu-0")
        }
        assert found == {"worker-0": True, "worker-12": True, "cpu-0": False}

    def test_in_a_container_the_address_of_the_first_node_is_kept(self, tmp_path: Path):
        job = Job(tmp_path, "classic")
        (tmp_path / "bin/scontrol").unlink()
        (tmp_path / "bin/ip").write_text("#!/bin/sh\nexit 1\n")
        found = job.sourced(**in_job("gpu", 2, MASTER_ADDR="n-7", NCCL_SOCKET_IFNAME="ens9"))
        assert (found["MASTER_ADDR"], found["NCCL_SOCKET_IFNAME"]) == ("n-7", "ens9")

    def test_outside_a_job_nothing_is_set(self, tmp_path: Path):
        assert Job(tmp_path, "classic").sourced() == {}

    def test_an_unknown_partition_is_reported(self, tmp_path: Path):
        done = Job(tmp_path, "classic").run(". ENV; echo went on", **in_job("new", 1))
        assert done.stdout == "went on\n"
        assert "not written for partition new" in done.stderr


def test_the_file_is_clean_for_shellcheck(tmp_path: Path):
    for stack in EVERY:
        (tmp_path / f"{stack}.sh").write_text(render_environment(config(stack)))
    assert shellcheck(*tmp_path.iterdir()) == ""
