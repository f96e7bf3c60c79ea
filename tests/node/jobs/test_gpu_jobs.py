"""The files with the jobs of each GPU, as prolog and epilog write them for dcgm-exporter."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.architecture.test_sources import ROOT

SCRIPT = ROOT / "scripts/node/jobs/gpu_jobs.sh"


@pytest.fixture
def run(tmp_path: Path):
    """Runs the script for a job at a time, and returns the files."""
    (tmp_path / "spool").mkdir()

    def at(kind: str, job: str, gpus: str = "") -> dict[str, str]:
        names = {"HPC_GPU_JOBS": "map", "HPC_NVIDIA_PROC": "proc", "HPC_SLURMD_SPOOL": "spool"}
        env = {
            "PATH": os.environ["PATH"],
            **{name: str(tmp_path / folder) for name, folder in names.items()},
            "SLURM_JOB_ID": job,
            "SLURM_SCRIPT_CONTEXT": f"{kind}_slurmd",
            **({"SLURM_JOB_GPUS": gpus} if gpus else {}),
        }
        subprocess.run(["bash", str(SCRIPT)], env=env, check=True)
        return {path.name: path.read_text() for path in (tmp_path / "map").glob("[0-9]*")}

    return at


def devices(folder: Path, *minors: int) -> None:
    """GPUs of NVIDIA's driver in the order of their bus ids, with these minors."""
    for bus, minor in enumerate(minors):
        gpu = folder / "proc" / f"0000:{bus:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t NVIDIA H100\nDevice Minor: \t {minor}\nGPU Excluded:\t No\n")


def test_gpu_numbers_of_slurm_become_those_of_dcgm(run, tmp_path: Path):
    devices(tmp_path, 3, 2, 1, 0)
    assert run("prolog", "7", "0,1") == {"3": "7\n", "2": "7\n"}
    assert run("prolog", "8", "3") == {"3": "7\n", "2": "7\n", "0": "8\n"}


def test_without_the_driver_the_numbers_are_the_same(run):
    assert run("prolog", "7", "0,1") == {"0": "7\n", "1": "7\n"}


def test_a_gpu_has_a_line_for_each_of_its_jobs(run):
    run("prolog", "7", "0")
    run("prolog", "8", "0")
    assert run("prolog", "7", "0") == {"0": "7\n8\n"}
    assert run("epilog", "7", "0") == {"0": "8\n"}
    # Empty, not gone: dcgm-exporter fails a scrape if a file goes between its look at the folder and at the file.
    assert run("epilog", "8", "0") == {"0": ""}
    assert run("epilog", "8", "0") == {"0": ""}


def test_a_job_without_gpus_writes_nothing(run, tmp_path: Path):
    assert run("prolog", "7") == {}
    assert run("epilog", "7") == {}
    assert run("prolog", "../x", "0") == {}
    assert not (tmp_path / "map").exists()


def test_an_old_job_without_a_process_is_removed(run, tmp_path: Path):
    for job in ("7", "8", "9"):
        run("prolog", job, "0")
    for job in ("7", "8"):
        os.utime(tmp_path / "map/jobs" / job, (0, 0))
    (tmp_path / "spool" / "node-0_8.4294967291").touch()
    assert run("prolog", "10", "1") == {"0": "8\n9\n", "1": "10\n"}
