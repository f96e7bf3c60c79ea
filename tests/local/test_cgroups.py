"""Every machine has a control group of its own, made here or by the host's systemd, and it ends with the machine."""

from pathlib import Path

import pytest

from components.local.host import cgroups
from components.local.host.cgroups import allow_watches
from components.local.host.process import run

V1 = "{n} 1 0:{n} / {mount} rw,relatime - cgroup cgroup rw,{controllers}\n"


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Hierarchies of a host with both versions: v1 for cpuset and memory, v2 without controllers, all plain folders."""
    for name in ("cpuset", "memory", "unified"):
        (tmp_path / name).mkdir()
    (tmp_path / "cpuset/cpuset.cpus").write_text("0-3")
    (tmp_path / "cpuset/cpuset.mems").write_text("0")
    (tmp_path / "unified/cgroup.controllers").write_text("\n")
    table = V1.format(n=1, mount=tmp_path / "cpuset", controllers="cpuset")
    table += V1.format(n=2, mount=tmp_path / "memory", controllers="memory")
    table += f"3 1 0:3 / {tmp_path / 'unified'} rw - cgroup2 cgroup rw\n4 1 0:4 / /proc rw - proc proc rw\n"
    (tmp_path / "mountinfo").write_text(table)
    monkeypatch.setattr(cgroups, "_MOUNTS", tmp_path / "mountinfo")
    monkeypatch.setattr(cgroups, "_BOOTED", tmp_path / "no-systemd")
    return tmp_path


def test_cgroup_v1_and_v2_hierarchies_are_distinguished(mounts: Path) -> None:
    found = [(h.mount.name, h.unified, h.cpuset) for h in cgroups.hierarchies()]
    assert found == [("cpuset", False, True), ("memory", False, False), ("unified", True, False)]


@pytest.fixture
def real_v1_layout(mounts: Path) -> Path:
    """cgroup v1 only: plain folders lack the files that the kernel puts into each new group."""
    table = (mounts / "mountinfo").read_text().splitlines(keepends=True)
    (mounts / "mountinfo").write_text("".join(table[:2]))
    return mounts


def test_a_machine_starts_inside_its_group_in_every_hierarchy(real_v1_layout: Path) -> None:
    command = [*cgroups.prefix("h1", Path("/r")), "sh", "-c", "echo $$"]
    pid = run(command).strip()
    groups = cgroups.leftover_groups(Path("/r"))
    assert [group.name for group in groups] == ["h1", "h1"]
    assert [(group / "cgroup.procs").read_text().strip() for group in groups] == [pid, pid]
    assert (real_v1_layout / "cpuset/hpc" / groups[0].parent.name / "h1/cpuset.cpus").read_text() == "0-3"
    assert cgroups.leftover_groups(Path("/other")) == []


def test_tasks_are_limited_and_a_controller_has_weight_if_the_host_can(mounts: Path) -> None:
    list(cgroups._make("h1", Path("/r"), cgroups.WEIGHT))
    group = next(iter((mounts / "memory/hpc").glob("*/h1")))
    files = ("pids.max", "cpu.weight", "cpu.shares")
    assert not any((group / name).exists() for name in files), "another hierarchy's controller"
    for name in files:
        (group / name).write_text("max\n")
    list(cgroups._make("h1", Path("/r"), cgroups.WEIGHT))
    assert [(group / name).read_text() for name in files] == [str(cgroups.TASKS), "400", "4096"]


def test_with_systemd_the_group_is_a_delegated_scope(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cgroups, "_BOOTED", tmp_path)
    command = cgroups.prefix("h1", Path("/r"))
    assert command[:2] == ["systemd-run", "--scope"]
    assert {"--unit=hpc-h1.scope", "--property=Delegate=yes", "--property=TasksMax=1024"} <= set(command)
    assert "--property=CPUWeight=100" in command
    assert "--property=CPUWeight=400" in cgroups.prefix("h1", Path("/r"), controller=True)
    assert command[-1] == "--"


def test_a_scope_has_ended_before_its_name_is_reused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    states = iter(["active", "deactivating", "inactive"])
    killed: list[str] = []

    def answer(command: list[str]) -> str:
        if command[1] == "show":
            return f"{next(states)}\n"
        killed.append(command[-1])
        return ""

    monkeypatch.setattr(cgroups, "_BOOTED", tmp_path)
    monkeypatch.setattr(cgroups, "run", answer)
    cgroups.remove("h1", Path("/r"))
    assert killed == ["hpc-h1.scope", "hpc-h1.scope"]
    assert next(states, None) is None


@pytest.mark.parametrize(
    ("before", "after", "lines"), [("128\n", "8192", 1), ("8192\n", "8192\n", 0), ("65536\n", "65536\n", 0)]
)
def test_the_inotify_limit_is_only_raised_and_reported(tmp_path: Path, before: str, after: str, lines: int) -> None:
    path = tmp_path / "max_user_instances"
    path.write_text(before)
    said: list[str] = []
    allow_watches(said.append, path)
    assert path.read_text() == after
    assert len(said) == lines
