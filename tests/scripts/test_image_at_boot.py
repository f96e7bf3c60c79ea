"""What an image does and tests at a boot: scripts that its steps write, run with a sysfs and programs of our own."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.scripts.test_image_library import bash

FOLDER = Path(__file__).parents[2] / "scripts" / "image"


def written(step: str, name: str, folder: Path) -> Path:
    """A script that the step writes to $OURS."""
    (path,) = FOLDER.glob(f"*/{step}.sh")
    text = path.read_text()
    (body,) = re.findall(rf"""put "\$OURS/{name}" 0755 <<'END'\n(.*?)\nEND\n""", text, re.DOTALL)
    path = folder / name
    path.write_text(body + "\n")
    path.chmod(0o755)
    return path


def stub(folder: Path, name: str, text: str) -> Path:
    """A program in the place of another."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def library(folder: Path) -> str:
    """The library of steps, which sets its own PATH: stand-ins come before it again."""
    (folder / "library.sh").write_text(f'. "{FOLDER}/library.sh"; PATH={folder}/bin:$PATH\n')
    return str(folder / "library.sh")


def pci(folder: Path, *devices: str) -> str:
    """A sysfs with these devices, VENDOR:DEVICE each."""
    for number, device in enumerate(devices):
        at = folder / "pci" / str(number)
        at.mkdir(parents=True)
        for name, value in zip(("vendor", "device"), device.split(":"), strict=True):
            (at / name).write_text(f"0x{value}\n")
    (folder / "pci").mkdir(exist_ok=True)
    return str(folder / "pci")


def run(path: Path, folder: Path, **environment: str) -> tuple[int, str]:
    """Exit code and output."""
    (folder / "bin").mkdir(exist_ok=True)
    env = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", **environment}
    done = subprocess.run([path], capture_output=True, text=True, check=False, env=env)
    return done.returncode, done.stdout + done.stderr


class TestArchive:
    DAY = "20261101T000000Z"

    def test_it_is_ubuntus_of_that_day_as_apt_itself_reads_it(self, tmp_path: Path):
        status, said = bash(f"codename() {{ echo jammy; }}\narchive ubuntu {self.DAY}", HPC_APT=str(tmp_path))
        assert status == 0, said
        sources = tmp_path / "sources.list.d" / "hpc-ubuntu.list"
        options = [f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=-", "-oDir::Etc::main=-"]
        command = ["apt-get", *options, f"-oDir::State={tmp_path}", "--print-uris", "update"]
        asked = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        at = f"https://snapshot.ubuntu.com/ubuntu/{self.DAY}/dists/jammy"
        assert re.findall(r"'(.*)/InRelease'", asked) == [at, f"{at}-updates", f"{at}-security"]
        assert sources.read_text().count(" main restricted universe multiverse\n") == 3
        assert sources.read_text().count("[signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg]") == 3

    @pytest.mark.parametrize(
        ("day", "why"),
        [
            ("2026-11-01", "2026-11-01 is no date"),
            ("20261101", "20261101 is no date"),
            ("newest", "newest is no date"),
            ("20991231T000000Z", "still to come"),  # it would be another one each time
        ],
    )
    def test_any_other_day_is_refused(self, tmp_path: Path, day: str, why: str):
        status, said = bash(f"archive ubuntu {day}", HPC_APT=str(tmp_path))
        assert (status, why in said) == (1, True)
        assert not list(tmp_path.rglob("*.list"))


class TestGpuBoot:
    def test_it_loads_uvm_before_any_container_asks_for_it(self, tmp_path: Path):
        stub(tmp_path, "nvidia-modprobe", f'echo "$@" >{tmp_path}/asked')
        stub(tmp_path, "systemctl", "exit 1")
        script = written("20-nvidia", "gpu-boot", tmp_path)
        assert run(script, tmp_path, HPC_PCI=pci(tmp_path, "10de:2330"))[0] == 0
        assert (tmp_path / "asked").read_text() == "-u -c=0\n"

    def test_a_machine_without_gpus_loads_nothing(self, tmp_path: Path):
        stub(tmp_path, "nvidia-modprobe", f"touch {tmp_path}/asked")
        assert run(written("20-nvidia", "gpu-boot", tmp_path), tmp_path, HPC_PCI=pci(tmp_path, "1ae0:0042"))[0] == 0
        assert not (tmp_path / "asked").exists()

    def test_what_can_not_be_loaded_is_told_and_the_rest_is_started(self, tmp_path: Path):
        stub(tmp_path, "nvidia-modprobe", "exit 1")
        stub(tmp_path, "systemctl", f'echo "$@" >>{tmp_path}/asked')
        status, said = run(written("20-nvidia", "gpu-boot", tmp_path), tmp_path, HPC_PCI=pci(tmp_path, "10de:2330"))
        assert (status, "nvidia_uvm could not be loaded" in said) == (0, True)
        assert "start nvidia-persistenced" in (tmp_path / "asked").read_text()


NINE = ("1ae0:0042",) * 9


class TestNetworks:
    """slurmd waits until all of a machine's gVNICs have their addresses."""

    def interfaces(self, folder: Path, *names: str) -> str:
        for name in names:
            at = folder / "net" / name / "device"
            at.mkdir(parents=True)
            (at / "vendor").write_text("0x1ae0\n")
        (folder / "net" / "lo").mkdir(parents=True)
        return str(folder / "net")

    def wait(self, folder: Path, devices: tuple[str, ...], *names: str, online: str = "exit 0") -> tuple[int, str]:
        asked = f'echo "$@" >{folder}/asked; {online}'
        return run(
            written("54-network", "wait-for-networks", folder), folder, HPC_PCI=pci(folder, *devices),
            HPC_NET=self.interfaces(folder, *names), HPC_ONLINE=str(stub(folder, "online", asked)), HPC_SECONDS="0",
        )  # fmt: skip

    def test_all_nine_are_asked_for(self, tmp_path: Path):
        names = [f"enp{number}s0" for number in range(9)]
        assert self.wait(tmp_path, NINE, *names) == (0, "")
        asked = (tmp_path / "asked").read_text().split()
        assert asked == [
            "--quiet",
            "--timeout=1",
            "--operational-state=routable",
            *(f"--interface={name}" for name in names),
        ]

    def test_a_machine_with_one_waits_for_nothing(self, tmp_path: Path):
        assert self.wait(tmp_path, NINE[:1]) == (0, "")
        assert not (tmp_path / "asked").exists()

    def test_one_whose_driver_is_not_there_yet_is_missed(self, tmp_path: Path):
        status, said = self.wait(tmp_path, NINE, "enp0s12")
        assert (status, said.startswith("1 of 9 network interfaces are there")) == (255, True)

    def test_one_without_an_address_fails_in_a_way_that_systemd_tries_again(self, tmp_path: Path):
        names = [f"enp{number}s0" for number in range(9)]
        assert self.wait(tmp_path, NINE, *names, online="exit 1")[0] == 255

    def test_the_real_program_takes_what_it_is_asked(self):
        program = Path("/lib/systemd/systemd-networkd-wait-online")
        if not program.exists():
            program = Path(shutil.which("systemd-networkd-wait-online") or program)
        words = ["--quiet", "--timeout=1", "--operational-state=routable", "--interface=lo", "--help"]
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, "--interface=INTERFACE" in done.stdout) == (0, True)


class TestSmoke:
    def said(self, folder: Path, **environment: str) -> str:
        """Return what the step says with these parameters; most of it is missing here."""
        stub(folder, "apt-mark", "")  # the real one reads the lists of all packages, for half a second
        env = {**os.environ, "HPC_LIBRARY": library(folder), "BAKE": "1", **environment}
        done = subprocess.run(
            ["bash", FOLDER / "finish/90-smoke.sh"], capture_output=True, text=True, check=False, env=env, cwd=folder
        )
        assert done.returncode == 1
        return done.stdout

    DRIVER = {"DRIVER_PACKAGE": "580.95.05-0ubuntu1", "DRIVER_VERSION": "580.95.05", "DRIVER_FLAVOUR": "-open"}  # noqa: RUF012

    def test_firmware_of_another_version_is_none(self, tmp_path: Path):
        assert "wrong: GSP firmware of 580.95.05" in self.said(tmp_path, HPC_FIRMWARE=str(tmp_path), **self.DRIVER)
        for version, expected in (("570.133.20", "wrong"), ("580.95.05", "ok")):
            file = tmp_path / "nvidia" / version / "gsp_ga10x.bin"
            file.parent.mkdir(parents=True)
            file.touch()
            found = self.said(tmp_path, HPC_FIRMWARE=str(tmp_path), **self.DRIVER)
            assert f"{expected}: GSP firmware of 580.95.05" in found

    def test_plugins_of_dcgm_for_another_cuda_are_missed(self, tmp_path: Path):
        (tmp_path / "cuda12").mkdir()
        (tmp_path / "cuda12" / "libMemtest.so.4").touch()
        for cuda, expected in (("12", "ok"), ("13", "wrong")):
            said = self.said(tmp_path, DCGM="1:4.5.2-1", DRIVER_CUDA=cuda, HPC_DCGM_PLUGINS=str(tmp_path))
            assert f"{expected}: DCGM's plugins for CUDA {cuda}" in said

    def test_the_closed_driver_needs_none(self, tmp_path: Path):
        assert "GSP" not in self.said(tmp_path, **{**self.DRIVER, "DRIVER_FLAVOUR": ""})

    def test_the_import_helper_is_loaded_and_not_only_built(self, tmp_path: Path):
        said = self.said(tmp_path, TCPXO="1")
        assert "dmabuf's import-helper is built" in said
        assert "dmabuf's import-helper can be loaded" in said

    @pytest.mark.parametrize(("running", "expected"), [("1.4.0", "ok"), ("1.0.0", "wrong")])
    def test_the_machines_own_network_must_run_by_what_was_built(self, tmp_path: Path, running: str, expected: str):
        (tmp_path / "version").write_text(running + "\n")
        kernel = os.uname().release
        said = self.said(tmp_path, GVE_VERSION="1.4.0", KERNEL=kernel, HPC_GVE=str(tmp_path))
        assert f"{expected}: this machine's own network runs by gVNIC 1.4.0" in said


class TestBoot:
    """The first machine that boots the finished image."""

    def boot(self, folder: Path, failed: str = "", inactive: str = "", kernel: str = "") -> tuple[int, str]:
        stub(
            folder, "systemctl",
            f"""case "$*" in
                list-jobs*) [[ -e {folder}/asked ]] && exit; touch {folder}/asked; echo 7 docker.service start ;;
                list-units*) printf '{failed}' ;;
                is-enabled*) exit 0 ;;
                is-active*) [[ "{inactive}" != *"${{@: -1}}"* || -z "{inactive}" ]] || {{ echo inactive; exit 3; }} ;;
            esac""",
        )  # fmt: skip
        stub(folder, "journalctl", "echo its last words")
        env = {**os.environ, "HPC_LIBRARY": library(folder), "HPC_PAUSE": "0", "KERNEL": kernel}
        done = subprocess.run(
            ["bash", FOLDER / "finish/91-boot.sh"], capture_output=True, text=True, check=False, env=env
        )
        return done.returncode, done.stdout + done.stderr

    def test_a_machine_that_is_well(self, tmp_path: Path):
        assert self.boot(tmp_path, kernel=os.uname().release) == (0, "")
        assert (tmp_path / "asked").exists()

    @pytest.mark.parametrize(
        ("fault", "status", "text"),
        [
            ({"kernel": "5.15.0-1112-gcp"}, 1, f"wrong: the kernel {os.uname().release} runs, not 5.15.0-1112-gcp"),
            (
                {"failed": "hpc-lnet.service loaded failed failed\\n"},
                1,
                "wrong: hpc-lnet.service has failed: its last words",
            ),
            ({"failed": "motd-news.service loaded failed failed\\n"}, 0, "warning: motd-news.service has failed\n"),
            ({"inactive": "ssh.service"}, 1, "wrong: ssh.service is inactive"),
        ],
        ids=["another kernel", "a unit of ours", "one of others", "no way in"],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, fault: dict[str, str], status: int, text: str):
        found, said = self.boot(tmp_path, **fault)
        assert (found, text in said) == (status, True)
        assert found or said == text
