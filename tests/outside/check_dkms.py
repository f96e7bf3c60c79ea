"""What real DKMS says of a module beside what an image's steps read of it (`built` in scripts/image/library.sh).

Artifact: a folder of DKMS programs, as packages of a distribution (`apt-get download dkms`) or as files dkms-VERSION
(`git show v2.8.7:dkms` of a checkout of dkms-project/dkms; Ubuntu 22.04 has 2.8.7). Each adds, builds and installs a
module whose folder is called as Google's package dmabuf-import-helper has it, with a compiler that only writes a file.
"""

import os
import subprocess
from pathlib import Path

import pytest

from tests.outside.mutation import ROOT
from tests.outside.recorder import Recorder

KERNEL, MODULE, VERSION = "6.8.0-1074-gcp", "dmabuf-import-helper", "1.1"
CONF = f"""
PACKAGE_NAME="import-helper"
PACKAGE_VERSION="{VERSION}"
BUILT_MODULE_NAME[0]="import-helper"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="echo built >import-helper.ko"
CLEAN="true"
AUTOINSTALL="yes"
"""


class Dkms:
    """One version at work in a folder of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.folder = folder
        self.installed = folder / "modules"
        source, kernel = folder / "src" / f"{MODULE}-{VERSION}", folder / "kernel"
        for path in (source, kernel / "include", self.installed / KERNEL, folder / "tree", folder / "bin"):
            path.mkdir(parents=True)
        (source / "dkms.conf").write_text(CONF)
        for file in (source / "import-helper.c", kernel / "Makefile", kernel / ".config"):
            file.touch()
        # As the image's steps call it; the options say where everything is.
        options = f"--dkmstree {folder}/tree --sourcetree {folder}/src --installtree {self.installed}"
        wrapper = folder / "bin" / "dkms"
        wrapper.write_text(f'#!/bin/sh\nexec bash {program} "$@" {options}\n')
        wrapper.chmod(0o755)
        self.env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "KERNEL": KERNEL}

    def run(self, *words: str) -> str:
        """Run a command of it; what it printed."""
        done = subprocess.run(["dkms", *words], env=self.env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"dkms {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def built(self, name: str = MODULE) -> bool:
        """What an image's steps make of it."""
        # The library sets its own PATH.
        command = f". {ROOT}/scripts/image/library.sh; PATH={self.folder}/bin:$PATH; built {name}"
        return subprocess.run(["bash", "-c", command], env=self.env, capture_output=True, check=False).returncode == 0


@pytest.fixture(scope="module")
def programs(artifact: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Every version of the artifact."""
    found = {file.name: file for file in artifact.glob("dkms-*") if file.is_file() and file.suffix != ".deb"}
    for package in artifact.glob("dkms_*.deb"):
        unpacked = tmp_path_factory.mktemp("package")
        subprocess.run(["dpkg-deb", "--extract", package, unpacked], check=True)
        found[package.stem] = unpacked / "usr" / "sbin" / "dkms"
    assert found, f"{artifact} has no dkms_*.deb and no dkms-VERSION"
    return found


def test_what_is_installed_is_told_from_what_is_not(
    programs: dict[str, Path], tmp_path: Path, outside: Recorder
) -> None:
    module = ("-m", MODULE, "-v", VERSION)
    for name, program in sorted(programs.items()):
        dkms = Dkms(program, tmp_path / name)
        said = []
        for state, command in {
            "added": ("add", *module),
            "built": ("build", *module, "-k", KERNEL, "--kernelsourcedir", f"{dkms.folder}/kernel"),
            "installed": ("install", *module, "-k", KERNEL, "--no-depmod"),
            "lost": (),
        }.items():
            if command:
                dkms.run(*command)
            else:
                next(dkms.installed.rglob("*.ko*")).unlink()
            said.append(dkms.run("status", "-k", KERNEL).strip())
            if dkms.built() != (state == "installed"):
                outside.differs(f"dkms-{state}", f"{name}: {said[-1]!r} is read wrongly")
            if dkms.built("import-helper"):
                outside.differs("dkms-name", f"{name}: the name inside dkms.conf is taken for the module's")
        outside.did(f"{name}: {'; '.join(said)}")
    outside.holds("image-dkms-status")
