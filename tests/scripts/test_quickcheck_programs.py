"""Programs of the quickcheck: what they find, and nothing passes that was not seen."""

import json
import os
import pwd
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scripts.jobs.quickcheck import container, driver, node
from tests import programs
from tests.waiting import PATIENCE, lives, wait_for

MIB = 1024 * 1024
V1 = "9:name=systemd:/x\n4:memory:/slurm/uid_1/job_3/step_0\n3:cpuset:/\n0::/x\n"
V2 = "0::/system.slice/slurmstepd.scope/job_3/step_0\n"


def limit(root: Path, folder: str, name: str, text: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / name).write_text(f"{text}\n")


class TestMemoryLimit:
    def test_v1_has_the_smallest_limit_of_its_parents(self, tmp_path: Path):
        limit(tmp_path, "memory", "memory.limit_in_bytes", "9223372036854771712")
        limit(tmp_path, "memory/slurm/uid_1/job_3", "memory.limit_in_bytes", "1000")
        limit(tmp_path, "memory/slurm/uid_1/job_3/step_0", "memory.limit_in_bytes", "2000")
        assert node.memory_limit(V1, tmp_path) == 1000

    def test_v2(self, tmp_path: Path):
        (tmp_path / "cgroup.controllers").write_text("memory")
        limit(tmp_path, "system.slice/slurmstepd.scope/job_3", "memory.max", "512")
        limit(tmp_path, "system.slice/slurmstepd.scope/job_3/step_0", "memory.max", "max")
        assert node.memory_limit(V2, tmp_path) == 512

    def test_no_limit_differs_from_no_cgroup(self, tmp_path: Path):
        assert node.memory_limit(V2, tmp_path) is None
        assert node.memory_limit("", tmp_path) is None
        (tmp_path / "cgroup.controllers").write_text("memory")
        limit(tmp_path, "system.slice", "memory.max", "max")
        assert node.memory_limit(V2, tmp_path) == -1


class TestHome:
    @pytest.fixture
    def home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path), pw_name="alice"))
        (tmp_path / ".hpc-check-ab12").mkdir()
        (tmp_path / ".hpc-check-ab12" / "login").write_text("ab12\n")
        return tmp_path

    def test_files_are_read_and_written(self, home: Path):
        assert node.check_home("ab12", "n-0") == ("pass",)
        assert (home / ".hpc-check-ab12" / "node-n-0").read_text() == "ab12 n-0\n"

    def test_another_content_is_an_error(self, home: Path):
        (home / ".hpc-check-ab12" / "login").write_text("old\n")
        assert "another content" in str(node.check_home("ab12", "n-0"))

    def test_another_owner_is_an_error(self, home: Path, monkeypatch: pytest.MonkeyPatch):
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert f"is of uid {own} here, and of 4711 (alice)" in str(node.check_home("ab12", "n-0"))

    def test_a_missing_home_is_an_error(self, home: Path):
        missing = f"{home}/.hpc-check-other/login: No such file or directory"
        assert node.check_home("other", "n-0") == ("fail", missing)


@pytest.mark.parametrize(
    ("limit", "result"),
    [
        (None, ("skip", "the job sees no memory cgroup")),
        (-1, ("fail", "no limit on a job's memory")),
        (2048 * MIB, ("fail", "limit 2048 MiB, asked for 512 MiB")),
        (512 * MIB + 4096, ("pass", "512 MiB")),
    ],
)
def test_a_limit_on_memory_is_the_one_that_was_asked_for(limit: int | None, result: tuple[str, str]):
    assert node.check_memory(512, limit) == result


def found(count: int, used: int, source: str = "device files", **more: Any) -> node.JobGpus:
    usable = {"can be opened": used, "in CUDA_VISIBLE_DEVICES": used}
    return node.JobGpus(count=count, source=source, usable={**usable, **more.pop("usable", {})}, **more)


GPUS: dict[str, tuple[str, node.JobGpus]] = {
    "one of two": ("node", found(2, 1)),
    "all of two": ("gpus", found(2, 2)),
    "not confined": ("node", found(2, 2)),
    "none where one is asked for": ("node", found(2, 0)),
    "two by nvidia-smi where one is asked for": ("node", found(2, 1, usable={"by nvidia-smi": 2})),
    "a GPU that is missing": ("gpus", found(1, 1)),
    "a GPU that the driver does not have": ("node", found(1, 1, "the driver")),
    "a GPU that is lost": ("gpus", found(2, 2, usable={"by nvidia-smi": 1}, smi_code=15, smi_error="GPU is lost")),
    "a warning of nvidia-smi": ("gpus", found(2, 2, smi_code=14, smi_error="WARNING: infoROM")),
    "another exit code": ("gpus", found(2, 2, smi_code=99)),
}


def test_gpus(reviewed):
    request = {"gpus": 2, "one_gpu": True, "smi_exit_codes": {"14": "infoROM", "15": "off the bus"}}
    results = {case: node.check_gpus(job, request, gpus) for case, (job, gpus) in GPUS.items()}
    lines = {
        case: "\n".join(f"{check}: {' | '.join(filter(None, result))}" for check, result in found.items())
        for case, found in results.items()
    }
    reviewed("jobs/quickcheck-gpus", lines)


def test_a_job_without_a_gpu_is_not_checked_for_one():
    request = {"gpus": 2, "one_gpu": False}
    assert node.check_gpus("node", request, found(2, 0)) == {"gpus": ("pass", "2 GPUs by device files")}


class TestContainer:
    def test_a_root_folder_has_cat_and_its_libraries(self, tmp_path: Path):
        container.fill(tmp_path)
        assert (tmp_path / "etc/os-release").read_text() == "ID=hpc-check\n"
        assert os.access(tmp_path / "bin/cat", os.X_OK)
        assert list(tmp_path.rglob("libc.so.6"))

    @pytest.mark.parametrize(
        ("case", "result"),
        [
            (("podman", "echo ID=hpc-check", ""), ("pass", "podman")),
            (("podman", "echo ID=debian", ""), ("fail", "podman did not start one", "ID=debian\n")),
            (("apptainer", "echo ID=rhel", "alpine"), ("pass", "apptainer")),
            (("apptainer", "true", "alpine"), ("fail", "apptainer did not start one", "")),
            (("enroot", "true", ""), ("skip", "enroot needs an image: give one with --image")),
            (("other", "true", ""), ("skip", "no pyxis, enroot, apptainer or podman on the node")),
        ],
    )
    def test_results(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str], result: tuple[str, ...]
    ):
        runtime, script, image = case
        for name in ("cat", "sh", "ldd"):
            (tmp_path / name).symlink_to(f"/usr/bin/{name}")
        programs.write(tmp_path / runtime, script)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("XDG_DATA_HOME", raising=False)
        monkeypatch.delenv("APPTAINER_CACHEDIR", raising=False)
        assert container.check(image, tmp_path / "hpc-check-x") == result

    def test_a_command_that_fails_is_quoted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        programs.write(tmp_path / "podman", "echo no >&2; exit 3")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        status, text, output = container.check("alpine", tmp_path)
        assert (status, text) == ("fail", "podman did not start one")
        assert output.endswith("alpine cat /etc/os-release: exit code 3\nno")

    @pytest.mark.parametrize(
        ("runtime", "image", "first"),
        [
            ("podman", "", "podman run --rm --network none --cgroups disabled --rootfs /r/root cat /etc/os-release"),
            ("apptainer", "", "apptainer exec --contain --no-home /r/root cat /etc/os-release"),
            ("apptainer", "/a.sif", "apptainer exec --contain --no-home /a.sif cat /etc/os-release"),
            ("apptainer", "alpine", "apptainer exec --contain --no-home docker://alpine cat /etc/os-release"),
            ("apptainer", "nvcr.io#a/b", "apptainer exec --contain --no-home docker://nvcr.io/a/b cat /etc/os-release"),
            ("enroot", "nvcr.io#a/b", "enroot import --output /r/image.sqsh docker://nvcr.io#a/b"),
            ("enroot", "alpine", "enroot import --output /r/image.sqsh docker://alpine"),
            ("enroot", "/a.sqsh", "enroot create --name r /a.sqsh"),
        ],
    )
    def test_commands(self, runtime: str, image: str, first: str):
        assert " ".join(container.commands(runtime, Path("/r"), image)[0]) == first


GROUP = {
    "nodes": "c-0", "partition": "p", "tasks": 2, "memory": 512, "container_memory": 1024, "gpus": 0, "one_gpu": False,
    "all_gpus": False,
}  # fmt: skip
PARTITION = {"together": "c-0,g-0", "most_nodes": 2, "most_minutes": 5, "prolog_seconds": 0}
SPEC = {
    "run": "ab12", "container": False, "wait": False, "exclusive": False, "seconds": 60, "image": "", "pyxis": False,
    "shared_home": True, "mail": "c-0", "smi_exit_codes": {}, "partitions": {"p": PARTITION},
    "groups": [GROUP, {**GROUP, "nodes": "g-0", "gpus": 2, "one_gpu": True, "all_gpus": True}],
}  # fmt: skip
BUSY = "srun: error: Unable to allocate resources: Requested nodes are busy"


def task(node: str, number: int = 0, **results: Any) -> str:
    found = {"node": node, "task": number, "cpus": 2, **({"results": results} if results else {})}
    return f"hpc-check {json.dumps(found)}\n"


def ended(out: str = "", err: str = "", code: int = 0, how: str = "") -> driver.Ended:
    return driver.Ended(code, how or f"exit code {code}", out, err)


FINE: dict[str, Any] = {"home": ("pass",), "shared": ("pass",), "memory": ("pass", "512 MiB")}
COUNTED: dict[str, Any] = {
    "gpus": ("pass", "2 GPUs by device files"),
    "confined": ("pass", "a job with 1 GPU opens that one only"),
}
TOGETHER = "".join(task(name, n) for n, name in enumerate(("c-0", "c-0", "g-0", "g-0")))
GOOD: dict[str, Any] = {
    "node c-0": ended(task("c-0", **FINE) + task("c-0", 1)),
    "node g-0": ended(task("g-0", 1) + task("g-0", **FINE, **COUNTED)),
    "gpus g-0": ended(task("g-0", gpus=("pass", "2 GPUs by device files"))),
    "together c-0,g-0": ended(TOGETHER),
    "container c-0": ended(task("c-0", container=("pass", "podman"))),
    "container g-0": ended("ID=rhel\n"),
    "files": {"c-0": os.getuid(), "g-0": os.getuid()},
    "sacct": "c-0|7|alice|research|normal|COMPLETED\ng-0|8|alice|research|normal|COMPLETED\n",
    "squeue": "",
}
"""What a run in which everything passes sees, by job."""
LOST = ended(err=BUSY, code=1)
OUTCOMES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "one task of two": {"node c-0": ended(task("c-0", **FINE))},
    "another host": {"node c-0": ended(task("x", **FINE) + task("x", 1))},
    "a launch that failed": {"node c-0": ended(err="srun: error: Task launch failed", code=1)},
    "a job that hangs": {"node c-0": ended(code=124, how="no end within 60 s")},
    "an answer that is cut": {"node c-0": ended("hpc-check {cut")},
    "an exit code": {"node c-0": ended(GOOD["node c-0"].out, code=3)},
    "a home that is missing": {
        "node c-0": ended(task("c-0", **FINE | {"home": ("fail", "/home/a: no")}) + task("c-0", 1))
    },
    "a file that is not on the login machine": {"files": {"g-0": os.getuid()}},
    "a file of another owner": {"files": {"c-0": 4711, "g-0": os.getuid()}},
    "a job that is not recorded": {"sacct": "g-0|8|alice|research|normal|COMPLETED\n"},
    "a record without account": {"sacct": GOOD["sacct"].replace("7|alice|research", "7|alice|")},
    "no accounting": {"sacct": subprocess.CompletedProcess([], 1, "", "slurmdbd is down\n")},
    "a job with all GPUs that fails": {"gpus g-0": ended(err="srun: error: gpu: launch failed", code=1)},
    "a GPU that is missing, and a job with all GPUs that fails": {
        "node g-0": ended(task("g-0", 1) + task("g-0", **FINE, gpus=("fail", "1 of 2 GPUs by the driver"))),
        "gpus g-0": ended(code=1),
    },
    "other jobs that took the GPUs": {"gpus g-0": LOST},
    "other jobs that took the GPUs, by priority": {
        "gpus g-0": ended(err=f"{driver.NOT_BEGUN}Immediate execution impossible, insufficient priority", code=1)
    },
    "other jobs that took the node": {"node c-0": LOST, "squeue": "12 RUNNING\n14 COMPLETING\n"},
    "other jobs that nobody may see": {"node c-0": LOST},
    "an account that may not begin": {"node c-0": ended(err=f"{driver.NOT_BEGUN}Invalid account", code=1)},
    "a task that is silent among all nodes": {"together c-0,g-0": ended("".join(task("c-0", n) for n in (0, 1)))},
    "one task four times": {"together c-0,g-0": ended(task("c-0", 0) * 4)},
    "no room on all nodes": {"together c-0,g-0": LOST},
    "another job on the node of a container": {"container c-0": LOST},
    "an image that can't be imported": {"container c-0": ended(err="pyxis: failed to import", code=1)},
    "a container that hangs": {"container c-0": ended(code=124, how="no end within 300 s")},
    "a container without output": {"container c-0": ended()},
}


class Cluster:
    """A stand-in for srun and its cluster."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, home: Path, seen: dict[str, Any]) -> None:
        self.seen, self.rows = seen, list[dict[str, Any]]()
        self.home = home / ".hpc-check-ab12"
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(home), pw_name="alice"))
        monkeypatch.setattr(driver, "report", lambda **row: self.rows.append(row))
        monkeypatch.setattr(driver, "ask", self.ask)

    def run(self, **spec: Any) -> list[dict[str, Any]]:
        runner = driver.CheckRun({**SPEC, "seconds": 0, **spec})
        runner.execute = self.execute  # type: ignore[method-assign]
        runner.work()
        # Nodes are checked side by side, and what belongs to all of them comes last.
        return sorted(self.rows, key=lambda row: row["node"] or "~")

    def execute(self, line: list[str], _: float) -> driver.Ended:
        options = dict(word[2:].split("=", 1) for word in line if word.startswith("--") and "=" in word)
        if options["comment"] == "node":
            for name, owner in self.seen["files"].items():
                (self.home / f"node-{name}").touch()
                os.chown(self.home / f"node-{name}", owner, -1)
        return self.seen[f"{options['comment']} {options['nodelist']}"]

    def ask(self, *words: str) -> subprocess.CompletedProcess[str]:
        # scontrol show hostnames, scontrol show hostlistsorted
        answer = words[-1].replace(",", "\n") if "hostnames" in words else words[-1] if words[0] == "scontrol" else ""
        answer = self.seen.get(words[0], answer)
        return subprocess.CompletedProcess(words, 0, answer, "") if isinstance(answer, str) else answer


def shown(row: dict[str, Any]) -> str:
    if "why" in row:
        return f"{row['node']} is not checked{' (unavailable)' * row['unavailable']}: {row['why']}"
    text = f"{row['node'] or '-'} {row['check']}: {row['status']}, {row.get('text', '')}"
    return " | ".join(filter(None, (text, row.get("output", ""))))


@pytest.mark.skipif(os.getuid() != 0, reason="gives files another owner")
def test_results_of_faults(reviewed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = {}
    for case, changes in OUTCOMES.items():
        home = tmp_path / case.replace(" ", "-")
        home.mkdir()
        options = {"container": True, "pyxis": True} if "container" in case + str([*changes]) else {}
        rows = Cluster(monkeypatch, home, GOOD | changes).run(**options)
        found[case] = [shown(row) for row in rows]
        assert not list(home.iterdir())
    fine = set(found["nothing"])
    assert all(": pass" in line for line in fine)
    lines = {case: "\n".join(line for line in every if line not in fine) for case, every in found.items()}
    reviewed("jobs/quickcheck", {"everything passes": "\n".join(found["nothing"]), **lines})


def test_the_driver_removes_leftovers_of_killed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Cluster(monkeypatch, tmp_path, GOOD)
    for name in (".hpc-check-old", ".hpc-check-new", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "login").touch()
        if name != ".hpc-check-new":
            os.utime(tmp_path / name, (0, 0))
    driver.CheckRun(SPEC).remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hpc-check-new", "kept"]


def line(
    key: str = "node", nodes: tuple[str, ...] = ("c-0",), gpus: int = 0, seconds: int = 60, **spec: Any
) -> list[str]:
    return driver.CheckRun({**SPEC, **spec}).line(key, list(nodes), GROUP, gpus=gpus, seconds=seconds)


def test_options_of_srun():
    every = "--time=1 --partition=p --nodelist=c-0 --ntasks=2 --mem=512M --mpi=none --immediate=15 --mail-type=END"
    assert line()[0] == "srun"
    assert {"--job-name=hpc-check-ab12", *every.split()} <= set(line())
    assert line()[-2] == "node"
    assert json.loads(line()[-1])["memory"] == 512
    assert not any(word.startswith(("--exclusive", "--gres")) for word in line())
    assert {"--exclusive", "--gres=gpu:2"} <= set(line("gpus", gpus=2, exclusive=True))
    assert not any(word.startswith(("--immediate", "--mail")) for word in line(nodes=("n-1",), wait=True))
    together = line("together", ("c-0", "c-1"))
    assert {"--nodes=2", "--ntasks=4"} <= set(together)
    assert "--mpi=none" not in together
    assert line("container", pyxis=True, image="alpine")[-3:] == ["--container-image=alpine", "cat", "/etc/os-release"]
    assert line("container", image="/a.sif")[-1] == "/a.sif"


def test_no_job_asks_for_longer_than_its_partition_allows():
    assert "--time=5" in line("container", seconds=600)
    assert "--time=2" in line("container", seconds=61)


def test_jobs_over_all_nodes_keep_to_the_partitions_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = [f"c-{n}" for n in range(5)]
    cluster = Cluster(monkeypatch, tmp_path, GOOD)
    runner = driver.CheckRun({**SPEC, "partitions": {"p": {**PARTITION, "together": ",".join(names)}}})
    runner.good = dict.fromkeys(["c-0", "c-1", "c-3", "c-4"], GROUP)
    asked: list[list[str]] = []
    monkeypatch.setattr(runner, "srun", lambda _, nodes, *__, **___: asked.append(nodes) or LOST)
    runner.check_partition("p")
    assert asked == [["c-0", "c-1"], ["c-3", "c-4"]]
    runner.good = {"c-0": GROUP}
    runner.check_partition("p")
    assert cluster.rows[-1]["text"] == "fewer than two nodes answered alone"


class TestImage:
    """The download of the image on the login machine, with a stand-in for enroot."""

    @pytest.fixture
    def runner(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> driver.CheckRun:
        Cluster(monkeypatch, tmp_path, GOOD)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        (tmp_path / ".hpc-check-ab12").mkdir()
        return driver.CheckRun(SPEC)

    def test_it_is_downloaded_to_the_home(self, runner: driver.CheckRun):
        programs.write(runner.home / "enroot", 'echo "$4" >"$3"')
        place = runner.downloaded("nvcr.io#a/b")
        assert place == f"{runner.folder}/image.enroot"
        assert Path(place).read_text() == "docker://nvcr.io#a/b\n"

    def test_apptainer_has_no_hash_behind_the_registry(self, runner: driver.CheckRun):
        programs.write(runner.home / "apptainer", 'echo "$3" >"$2"')
        assert Path(runner.downloaded("nvcr.io#a/b")).read_text() == "docker://nvcr.io/a/b\n"

    def test_after_a_failed_download_nodes_pull_the_image(
        self, runner: driver.CheckRun, monkeypatch: pytest.MonkeyPatch
    ):
        programs.write(runner.home / "enroot", "exit 3")
        assert runner.downloaded("nvcr.io#a/b") == "nvcr.io#a/b"
        programs.write(runner.home / "enroot", "sleep 60")
        monkeypatch.setattr(driver, "IMAGE_SECONDS", 0.2)
        assert runner.downloaded("nvcr.io#a/b") == "nvcr.io#a/b"

    def test_the_download_ends_with_the_run(self, runner: driver.CheckRun):
        """All of it: enroot is a script, and what it has started goes on without it."""
        programs.write(runner.home / "enroot", f"sleep 600 & echo $! >{runner.home}/pid; wait")
        thread = threading.Thread(target=runner.downloaded, args=["a"], daemon=True)
        thread.start()
        pid = runner.home / "pid"
        wait_for(lambda: pid.exists() and pid.read_text())
        runner.cancel_all()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        wait_for(lambda: not lives(int(pid.read_text())))


def test_a_program_that_takes_too_long_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Cluster(monkeypatch, tmp_path, GOOD)
    runner = driver.CheckRun(SPEC)
    assert runner.execute(["sh", "-c", "echo out; exit 3"], 60) == ended("out\n", code=3)
    late = runner.execute(["sleep", "600"], 1)
    assert (late.code, late.how) == (124, "no end within 1 s")
    runner.stop.set()
    assert runner.execute(["false"], 1).how == "stopped"
