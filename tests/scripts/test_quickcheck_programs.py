"""Programs of the quickcheck that run on nodes: what they read of cgroups, homes and libraries."""

import os
import pwd
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts.jobs.quickcheck import container, driver, node
from tests import programs
from tests.waiting import PATIENCE, lives, wait_for

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
        assert node.home("ab12", "n-0") == {}
        assert (home / ".hpc-check-ab12" / "node-n-0").read_text() == "ab12 n-0\n"

    def test_another_content_is_an_error(self, home: Path):
        (home / ".hpc-check-ab12" / "login").write_text("old\n")
        assert "another content" in str(node.home("ab12", "n-0"))

    def test_another_owner_is_an_error(self, home: Path, monkeypatch: pytest.MonkeyPatch):
        own = os.getuid()
        monkeypatch.setattr(os, "getuid", lambda: 4711)
        assert f"is of uid {own} here, and of 4711 (alice)" in str(node.home("ab12", "n-0"))

    def test_a_missing_home_is_an_error(self, home: Path):
        assert node.home("other", "n-0") == {"error": f"{home}/.hpc-check-other/login: No such file or directory"}


class TestContainer:
    def test_libraries_are_those_with_a_path(self):
        text = (
            "\tlinux-vdso.so.1 (0x00007ffe)\n"
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n"
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"
        )
        assert list(container.libraries(text)) == ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]

    def test_a_root_folder_has_cat_and_its_libraries(self, tmp_path: Path):
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
            ("apptainer", "nvcr.io#a/b", "apptainer exec --contain --no-home docker://nvcr.io/a/b cat /etc/os-release"),
            ("enroot", "nvcr.io#a/b", "enroot import --output /r.sqsh docker://nvcr.io#a/b"),
            ("enroot", "alpine", "enroot import --output /r.sqsh docker://alpine"),
            ("enroot", "/a.sqsh", "enroot create --name hpc-check-ab12 /a.sqsh"),
        ],
    )
    def test_commands(self, runtime: str, image: str, first: str):
        assert " ".join(container.commands(runtime, "ab12", "/r", image)[0]) == first


def test_the_driver_removes_leftovers_of_killed_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path), pw_name="alice"))
    for name in (".hpc-check-old", ".hpc-check-new", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "login").touch()
        if name != ".hpc-check-new":
            os.utime(tmp_path / name, (0, 0))
    driver.Driver({"run": "ab12"}).remove_leftovers()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hpc-check-new", "kept"]


def test_options_of_srun_are_those_of_the_job():
    spec = {"run": "ab12", "jobs": [], "mail": "n-0", "wait": False, "immediate": 15, "image": "", "pyxis": False}
    job = {
        "key": "node", "partition": "p", "tasks": 2, "options": ["--mem=64M"], "program": ["node.py", "node", "ab12"],
        "seconds": 60, "minutes": 1, "nodes": "n-0", "each": True,
    }  # fmt: skip
    line = driver.Driver(spec).line(job, ["n-0"])
    assert line[0] == "srun"
    options = "--job-name=hpc-check-ab12 --time=1 --partition=p --nodelist=n-0 --ntasks=2 --mem=64M --immediate=15"
    assert set(options.split()) <= set(line)
    assert any(word.startswith("--mail-type=END") for word in line)
    assert line[-2:] == ["node", "ab12"]
    waiting = driver.Driver({**spec, "wait": True, "pyxis": True, "image": "alpine"})
    waiting.image = "alpine"
    line = waiting.line({**job, "key": "container"}, ["n-1"])
    assert not any(word.startswith(("--immediate", "--mail")) for word in line)
    assert line[-3:] == ["--container-image=alpine", "cat", "/etc/os-release"]


class TestImage:
    """The download of the image on the login machine, with a stand-in for enroot."""

    @pytest.fixture
    def here(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path), pw_name="alice"))
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        (tmp_path / ".hpc-check-ab12").mkdir()
        return tmp_path

    def a_driver(self, **more: object) -> driver.Driver:
        jobs = [{"key": "container"}]
        spec = {"run": "ab12", "jobs": jobs, "image": "nvcr.io#a/b", "shared_home": True, "image_seconds": 30}
        return driver.Driver({**spec, **more})

    def program(self, folder: Path, name: str, text: str) -> None:
        programs.write(folder / name, text)

    def test_it_is_downloaded_to_the_home(self, here: Path):
        self.program(here, "enroot", 'echo "$4" >"$3"')
        place = self.a_driver()._image()
        assert place == f"{here}/.hpc-check-ab12/image.sqsh"
        assert Path(place).read_text() == "docker://nvcr.io#a/b\n"

    def test_apptainer_has_no_hash_behind_the_registry(self, here: Path):
        self.program(here, "apptainer", 'echo "$3" >"$2"')
        assert Path(self.a_driver()._image()).read_text() == "docker://nvcr.io/a/b\n"

    def test_it_is_not_downloaded_without_a_shared_home(self, here: Path):
        self.program(here, "enroot", f"touch {here}/asked")
        assert self.a_driver(shared_home=False)._image() == "nvcr.io#a/b"
        assert not (here / "asked").exists()

    def test_after_a_failed_download_nodes_pull_the_image(self, here: Path):
        self.program(here, "enroot", "exit 3")
        assert self.a_driver()._image() == "nvcr.io#a/b"
        self.program(here, "enroot", "sleep 60")
        assert self.a_driver(image_seconds=0.2)._image() == "nvcr.io#a/b"

    def test_the_download_ends_with_the_run(self, here: Path):
        """All of it: enroot is a script, and what it has started goes on without it."""
        self.program(here, "enroot", f"sleep 600 & echo $! >{here}/pid; wait")
        self.program(here, "scancel", "")
        runner = self.a_driver()
        thread = threading.Thread(target=runner._image)
        thread.start()
        wait_for(lambda: (here / "pid").exists() and (here / "pid").read_text())
        runner.cancel_all()
        thread.join(PATIENCE)
        assert not thread.is_alive()
        wait_for(lambda: not lives(int((here / "pid").read_text())))


def test_a_node_with_a_failed_container_runs_the_job_on_all_nodes(monkeypatch: pytest.MonkeyPatch):
    runner = driver.Driver({"run": "ab12"})
    monkeypatch.setattr(runner, "_run", lambda job, _: int(job["key"] == "container"))
    runner._node([({"key": "node"}, "n-0"), ({"key": "container"}, "n-0")])
    assert runner.good == {"n-0": True}


def test_output_of_many_tasks_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Two lines of each of 400 nodes: without the first of them nodes would pass for silent."""
    programs.write(tmp_path / "srun", "seq -f '%0119g' 800")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    told: list[dict[str, object]] = []
    monkeypatch.setattr(driver, "event", lambda kind, **more: told.append({"event": kind, **more}))
    spec = {"run": "ab12", "jobs": [], "mail": "", "wait": True, "image": "", "pyxis": False}
    job = {
        "key": "together", "partition": "p", "tasks": 2, "options": [], "program": ["node.py", "hello"],
        "seconds": 60, "minutes": 1,
    }  # fmt: skip
    driver.Driver(spec)._run(job, [f"n-{n}" for n in range(400)])
    assert len(str(told[0]["out"]).splitlines()) == 800
