"""Programs of the quickcheck that run on nodes: what they read of cgroups, homes and libraries."""

import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.jobs.checks import container, driver, node

V1 = "9:name=systemd:/x\n4:memory:/slurm/uid_1/job_3/step_0\n3:cpuset:/\n0::/x\n"
V2 = "0::/system.slice/slurmstepd.scope/job_3/step_0\n"


def limit(root: Path, folder: str, name: str, text: str) -> None:
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / folder / name).write_text(f"{text}\n")


class TestMemoryLimit:
    def test_of_v1_is_the_smallest_on_the_way_up(self, tmp_path: Path):
        limit(tmp_path, "memory", "memory.limit_in_bytes", "9223372036854771712")
        limit(tmp_path, "memory/slurm/uid_1/job_3", "memory.limit_in_bytes", "1000")
        limit(tmp_path, "memory/slurm/uid_1/job_3/step_0", "memory.limit_in_bytes", "2000")
        assert node.memory_limit(V1, tmp_path) == 1000

    def test_of_v2(self, tmp_path: Path):
        (tmp_path / "cgroup.controllers").write_text("memory")
        limit(tmp_path, "system.slice/slurmstepd.scope/job_3", "memory.max", "512")
        limit(tmp_path, "system.slice/slurmstepd.scope/job_3/step_0", "memory.max", "max")
        assert node.memory_limit(V2, tmp_path) == 512

    def test_none_set_is_not_none_seen(self, tmp_path: Path):
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

    def test_both_ways(self, home: Path):
        assert node.home("ab12", "n-0") == {}
        assert (home / ".hpc-check-ab12" / "node-n-0").read_text() == "ab12 n-0\n"

    def test_another_content_is_an_error(self, home: Path):
        (home / ".hpc-check-ab12" / "login").write_text("old\n")
        assert "another content" in str(node.home("ab12", "n-0"))

    def test_another_owner_is_an_error(self, home: Path, monkeypatch: pytest.MonkeyPatch):
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert f"is of uid {own} here, and of 4711 (alice)" in str(node.home("ab12", "n-0"))

    def test_a_home_that_is_not_there_is_named(self, home: Path):
        assert node.home("other", "n-0") == {"error": f"{home}/.hpc-check-other/login: No such file or directory"}


class TestContainer:
    def test_libraries_are_those_with_a_path(self):
        text = (
            "\tlinux-vdso.so.1 (0x00007ffe)\n"
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"
        )
        assert list(container.libraries(text)) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]

    def test_a_root_folder_has_what_cat_needs(self, tmp_path: Path):
        container.fill(tmp_path, "ab12")
        assert (tmp_path / "hpc-check").read_text() == "ab12\n"
        assert os.access(tmp_path / "bin/cat", os.X_OK)
        assert list(tmp_path.rglob("libc.so.6"))

    @pytest.mark.parametrize(
        ("runtime", "image", "first"),
        [
            ("podman", "", "podman run --rm --network none --cgroups disabled --rootfs /r cat /hpc-check"),
            ("apptainer", "", "apptainer exec --contain --no-home /r cat /hpc-check"),
            ("apptainer", "/a.sif", "apptainer exec --contain --no-home /a.sif cat /etc/os-release"),
            ("apptainer", "alpine", "apptainer exec --contain --no-home docker://alpine cat /etc/os-release"),
            ("enroot", "alpine", "enroot import --output /r.sqsh docker://alpine"),
            ("enroot", "/a.sqsh", "enroot create --name hpc-check-ab12 /a.sqsh"),
        ],
    )
    def test_commands(self, runtime: str, image: str, first: str):
        assert " ".join(container.commands(runtime, "ab12", "/r", image)[0]) == first


def test_the_driver_removes_what_killed_runs_have_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path), pw_name="alice"))
    for name in (".hpc-check-old", ".hpc-check-new", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "login").touch()
        if name != ".hpc-check-new":
            os.utime(tmp_path / name, (0, 0))
    driver.Driver({"run": "ab12"}).sweep()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hpc-check-new", "kept"]


def test_the_driver_asks_srun_for_what_the_plan_says():
    spec = {"run": "ab12", "jobs": [], "mail": "n-0", "wait": False, "immediate": 15, "image": "", "pyxis": False}
    job = {
        "key": "node", "partition": "p", "tasks": 2, "options": ["--mem=64M"], "program": ["node.py", "node", "ab12"],
        "seconds": 60, "nodes": "n-0", "each": True,
    }  # fmt: skip
    line = driver.Driver(spec).line(job, ["n-0"])
    assert line[:2] == ["srun", "--job-name=hpc-check-ab12"]
    assert {"--time=1", "--partition=p", "--nodelist=n-0", "--ntasks=2", "--mem=64M", "--immediate=15"} <= set(line)
    assert any(word.startswith("--mail-type=END") for word in line)
    assert line[-2:] == ["node", "ab12"]
    waiting = driver.Driver({**spec, "wait": True, "pyxis": True, "image": "alpine"})
    waiting.image = "alpine"
    line = waiting.line({**job, "key": "container"}, ["n-1"])
    assert not any(word.startswith(("--immediate", "--mail")) for word in line)
    assert line[-3:] == ["--container-image=alpine", "cat", "/etc/os-release"]
