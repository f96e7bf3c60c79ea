"""Versions of components with a security floor, as a machine reports them."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from system import software

from cluster.catalog.floors import TITLES
from tests.waiting import wait_for


def test_every_component_is_one_that_has_a_floor() -> None:
    assert {*software.PACKAGES.values(), "linux", "nvidia", "enroot"} == set(TITLES)


def test_installed_packages_kernel_and_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (
        "apptainer installed 1.4.5-2\nprometheus config-files 2.42.0+ds-5\nslurm-smd installed 26.05.5-1\n"
        "slurm-wlm-basic-plugins not-installed \n"
    )
    monkeypatch.setattr(software, "run", lambda *words, **_: "3.5.0\n" if words[0] == "enroot" else listed)
    monkeypatch.setattr(software, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(software, "CONTAINER", tmp_path / "container")
    monkeypatch.setattr(software, "NVIDIA", tmp_path / "version")
    (tmp_path / "version").write_text("580.159.03\n")
    release = os.uname_result(("Linux", "n", "6.8.0-1074-gcp", "#1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: release)
    versions = {
        "apptainer": "1.4.5-2", "slurm": "26.05.5-1", "linux": "6.8.0-1074", "nvidia": "580.159.03",
        "enroot": "3.5.0",
    }  # fmt: skip
    assert software.observe()["versions"] == versions
    (tmp_path / "container").touch()  # the kernel is the host's
    assert "linux" not in software.observe()["versions"]


def test_a_daemon_whose_program_was_replaced_runs_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "DAEMONS", {"exampled"})
    program, new = tmp_path / "exampled", tmp_path / "new"
    for path in (program, new):
        shutil.copy("/bin/sleep", path)
    with subprocess.Popen([program, "600"]) as process:
        try:
            wait_for(lambda: Path(f"/proc/{process.pid}/exe").readlink() == program, "the daemon")
            assert software.replaced() == []
            new.replace(program)  # as dpkg does
            assert software.replaced() == ["exampled"]
        finally:
            process.kill()
