"""The clouds' stacks of this project, rehearsed: their own Slurm side, on local machines."""

import json
import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.jobs.examples import examples
from cluster.load import parse
from cluster.platforms.local.rehearsal import lines
from tests.cluster import stacks
from tests.cluster.platforms.local.test_rehearsal import expected_files
from tests.e2e.cluster import ROOT, Cluster, eventually, free

pytestmark = pytest.mark.e2e

PROFILE = "/var/lib/tcpxo/lib64/nccl-env-profile.sh"
EXPORT = "export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices"
GPUS = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES" $(ls /dev/nvidia[0-9] | wc -l)'
STACKS = ("a3mega", "classic", "nebius")
GOOGLE = STACKS[:2]
"""Stacks whose Slurm files are this program's in production too."""
STAND_IN = (ROOT / "tests" / "lab" / "slurm" / "all_gather_perf.sh").read_text()
BUCKET = {"name": "my-datasets", "mount": "/gcs", "read_only": True}


def production(stack: str) -> dict[str, Any]:
    """Settings of a stack as it is shipped; the small one with a bucket more, that can only be read."""
    settings = stacks.load(stack)
    if stack == "classic":
        settings["hpc:cluster"]["storage"] = {"buckets": [BUCKET]}
    return settings


def command(cluster: Cluster) -> list[str]:
    """./hpc rehearse of the stack."""
    return ["rehearse", cluster.name.removesuffix("-rehearsal"), "--config-file", str(cluster.file)]


@pytest.fixture(scope="module")
def rehearsals(clusters) -> Iterator[dict[str, Cluster]]:
    """The stacks' rehearsals, brought up side by side; `run` and `ssh` name them as their users do."""
    named = {stack: clusters(f"{stack}-rehearsal") for stack in STACKS}
    for stack in STACKS:
        # In the place of the file that the fixture of local clusters wrote.
        named[stack].file.write_text(yaml.safe_dump({"config": production(stack)}))
    with ThreadPoolExecutor() as pool:
        # They say their networks, as those that look for one at the same moment may find the same; one finds its own.
        networks = {"a3mega": ["--cidr", free("a3mega")], "nebius": ["--cidr", free("nebius")], "classic": []}
        ups = pool.map(lambda stack: named[stack].call(*command(named[stack]), *networks[stack]), STACKS)
        for done in ups:
            assert done.returncode == 0, done.stdout + done.stderr
    yield named
    for stack, cluster in named.items():
        cluster.call("rehearse", stack, "--destroy")


@pytest.fixture
def mega(rehearsals: dict[str, Cluster]) -> Cluster:
    return rehearsals["a3mega"]


@pytest.fixture
def classic(rehearsals: dict[str, Cluster]) -> Cluster:
    return rehearsals["classic"]


@pytest.mark.parametrize("stack", GOOGLE)
def test_slurms_files_on_the_controller_are_productions_but_for_reported_changes(
    rehearsals: dict[str, Cluster], stack: str
):
    cluster = rehearsals[stack]
    file = cluster.file.parent / f"rehearsals/Pulumi.{stack}-rehearsal.yaml"
    local = parse(yaml.safe_load(file.read_text())["config"])
    expected = expected_files(parse(production(stack)), local)
    read = cluster.inside(
        "controller", f"cd /etc/slurm && for name in {' '.join(expected)}; do cat $name; echo %%; done"
    )
    assert dict(zip(expected, map(lines, read.split("%%")), strict=False)) == expected


@pytest.mark.parametrize("stack", STACKS)
def test_again_there_is_nothing_to_do_and_all_is_well(rehearsals: dict[str, Cluster], stack: str):
    document = json.loads(rehearsals[stack].call(*command(rehearsals[stack]), "--json").stdout)
    assert document["ok"], document
    assert set(document["counts"]) == {"same"}
    eventually(lambda: rehearsals[stack].findings() == {}, what="a status without findings")
    drift = ("drift", f"{stack}-rehearsal")
    eventually(lambda: rehearsals[stack].call(*drift).returncode == 0, what="a drift without differences")


def test_users_and_directories_are_where_the_stack_has_them(mega: Cluster):
    look = "id -u alice; for at in /home /opt/apps /lustre; do findmnt --noheadings --output TARGET $at; done"
    found = ["2001", "/home", "/opt/apps", "/lustre"]
    assert mega.inside("controller", look).splitlines() == found
    assert mega.run("sh", "-c", f"echo seen > ~/word; {look}").splitlines() == found
    assert mega.run("srun", "-N2", "sh", "-c", look).splitlines().count("/lustre") == 2
    assert mega.run("srun", "-p", "debug", "sh", "-c", f"{look}; cat ~/word").splitlines() == [*found, "seen"]


def test_a_job_gets_eight_gpus_on_each_of_two_nodes(mega: Cluster):
    found = mega.run("srun", "-N2", "--gpus-per-node=8", "sh", "-c", GPUS).splitlines()
    assert sorted(found) == [f"a3mega-a3mega-{node} 0,1,2,3,4,5,6,7 8" for node in (0, 1)]


@pytest.mark.parametrize("stack", GOOGLE)
def test_productions_examples_of_jobs_are_what_slurmctld_takes(rehearsals: dict[str, Cluster], stack: str):
    scripts = examples(parse(production(stack))).scripts
    files = "".join(f"cat >{script.name} <<'%%%'\n{script.text()}%%%\n" for script in scripts)
    test = (
        f"mkdir -p ~/examples; cd ~/examples\n{files}for one in *.sh; do echo $one; sbatch --test-only $one 2>&1; done"
    )
    printed = rehearsals[stack].run("bash", "-c", test, user="alice").splitlines()
    starts = dict(zip(printed[::2], printed[1::2], strict=True))
    assert set(starts) == {script.name for script in scripts}
    assert [line for line in starts.values() if " to start at " not in line] == []


def test_rxdm_runs_for_jobs_on_two_nodes_with_the_exports_of_ubuntu(mega: Cluster):
    manager = "pgrep -f '[s]tands-for-rxdm' >/dev/null && echo there || echo gone"
    seen = mega.run("srun", "-N2", "sh", "-c", f"grep -c '^{EXPORT}$' {PROFILE}; {manager}")
    assert sorted(seen.split()) == ["1", "1", "there", "there"]
    eventually(lambda: mega.inside("a3mega-0", manager) == "gone", what="the end of the stand-in")
    mega.inside("a3mega-0", f"rm {PROFILE}")
    assert mega.run("srun", "-N1", "-w", "a3mega-a3mega-0", "sh", "-c", manager) == "gone"
    assert mega.inside("a3mega-0", f"test ! -e {PROFILE} && echo none") == "none"


def test_productions_slurmctld_takes_the_nccl_test(mega: Cluster):
    for command in ("build", "run"):
        script = mega.call("nccl", command, "a3mega", "--dry-run").stdout
        checked = mega.run("sh", "-c", f"printf %s {shlex.quote(script)} | sbatch --test-only 2>&1")
        # One may still be completing the job before.
        nodes = r"a3mega-a3mega-[01]" if command == "build" else r"a3mega-a3mega-\[0-1\]"
        assert "to start at" in checked, checked
        assert re.search(f"on nodes {nodes} in partition a3mega", checked), checked
    assert "stack a3mega-rehearsal is a rehearsal" in mega.call("nccl", "run", "a3mega-rehearsal").stderr


def test_a_stand_in_for_the_nccl_test_gets_productions_environment(mega: Cluster, tmp_path: Path):
    """The whole of `nccl run` but for GPUs: a program that prints a log stands for nccl-tests."""
    mega.run("sh", "-c", f"mkdir -p ~/tests && printf %s {shlex.quote(STAND_IN)} >~/tests/all_gather_perf")
    mega.run("chmod", "755", "tests/all_gather_perf")
    log = tmp_path / "run.log"
    done = mega.call("nccl", "run", "a3mega-rehearsal", "--binaries", "/home/alice/tests", "--output", str(log))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Saved {log}" in done.stdout
    assert "Result: pass" in done.stdout
    assert "average busbw of all rows: 126.358 GB/s" in done.stdout
    assert "8,192 MiB    188.23 GB/s" in done.stderr
    seen = dict(line.split("=", 1) for line in log.read_text().splitlines() if line.startswith("NCCL_"))
    assert seen["NCCL_FASTRAK_IFNAME"] == "enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0"
    assert (seen["NCCL_FASTRAK_CTRL_DEV"], seen["NCCL_SOCKET_IFNAME"]) == ("enp0s12", "enp0s12")
    assert "all_gather on 2 a3-megagpu-8g" in done.stderr


def test_classic_is_one_machine_with_all_roles_and_two_with_gpus(classic: Cluster):
    assert {name: row["roles"] for name, row in classic.outputs()["machines"].items()} == {
        "classic-controller": ["controller", "login", "node"],
        "classic-gpu-0": ["node"],
        "classic-gpu-1": ["node"],
    }
    assert classic.run("srun", "sh", "-c", ". /etc/os-release; hostname; echo $PRETTY_NAME").splitlines() == [
        "classic-controller",
        "Ubuntu 24.04.3 LTS",
    ]
    found = classic.run("srun", "-p", "gpu", "-N2", "--gpus-per-node=2", "sh", "-c", GPUS).splitlines()
    assert sorted(found) == [f"classic-gpu-{node} 0,1 2" for node in (0, 1)]
    for look in (
        classic.inside("gpu-1", "touch /gcs/x 2>&1 || true"),
        classic.run("sh", "-c", "touch /gcs/x 2>&1 || true"),
    ):
        assert "Read-only file system" in look
    assert classic.run("sacctmgr", "--noheader", "--parsable2", "show", "assoc", "user=alice", "format=account") == (
        "acc-sub-group"
    )


def test_pods_of_nebius_are_machines_with_their_names_whose_users_share_folders(rehearsals: dict[str, Cluster]):
    nebius = rehearsals["nebius"]
    found = nebius.run("srun", "-N2", "--gpus-per-node=8", "sh", "-c", GPUS).splitlines()
    assert sorted(found) == [f"worker-{node} 0,1,2,3,4,5,6,7 8" for node in (0, 1)]
    look = "id -un; for at in /home /mlperf-sd; do findmnt --noheadings --output TARGET $at; done; hostname"
    assert nebius.run("sh", "-c", look, user="alice").splitlines() == ["alice", "/home", "/mlperf-sd", "login-0"]
    accounts = nebius.run("sacctmgr", "--noheader", "--parsable2", "show", "assoc", "user=alice", "format=account")
    assert accounts == "research"


def test_destroy_leaves_nothing(rehearsals: dict[str, Cluster], nothing_left):
    with ThreadPoolExecutor() as pool:
        ended = pool.map(lambda stack: rehearsals[stack].call("rehearse", stack, "--destroy"), STACKS)
        assert [done.returncode for done in ended] == [0] * len(STACKS)
    for stack, cluster in rehearsals.items():
        assert nothing_left(production(stack)["hpc:cluster"]["name"]) == []
        assert not (cluster.file.parent / "rehearsals").exists()
        assert f"{stack}-rehearsal" not in cluster.call("stacks").stdout
    assert (ROOT / "Pulumi.a3mega.yaml").exists()
