"""Steps of an image: their library, and the scripts that they write, with a sysfs and programs of the test."""

import http.server
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests import programs

FOLDER = Path(__file__).parents[2] / "scripts" / "image"
LIBRARY = FOLDER / "library.sh"
CONTENT = b"what was named\n"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Address of a web server for the files of a folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "file").write_bytes(CONTENT)

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any):
            super().__init__(*args, directory=str(folder))

    with programs.served(Handler) as port:
        yield f"http://127.0.0.1:{port}"


def bash(text: str, **environment: str) -> tuple[int, str]:
    """Exit code and output of a step with this text."""
    script = f'. "{LIBRARY}"\n{environment.pop("before", "")}\n{text}'
    # The library sets its own PATH: stand-ins come before it again.
    done = programs.run(["bash", "-c", script], env={**os.environ, **environment})
    return done.returncode, done.stdout + done.stderr


def git(folder: Path, *words: str) -> str:
    """Run git in a repository of the test's."""
    identity = ["-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "protocol.file.allow=always"]
    done = programs.run(["git", *identity, *words], cwd=folder, check=True)
    return done.stdout.strip()


class TestPut:
    def test_text_and_mode_are_written_once(self, tmp_path: Path):
        path = tmp_path / "new" / "file"
        assert bash(f"put {path} 0750 <<<text") == (0, f"wrote {path}\n")
        assert path.read_text() == "text\n"
        assert path.stat().st_mode & 0o7777 == 0o750
        assert bash(f"put {path} 0750 <<<text") == (0, "")
        assert list(path.parent.iterdir()) == [path]

    def test_another_mode_or_a_link_is_replaced(self, tmp_path: Path):
        path = tmp_path / "file"
        bash(f"put {path} <<<text")
        path.chmod(0o666)
        assert bash(f"put {path} <<<text") == (0, f"wrote {path}\n")
        (tmp_path / "other").write_text("text\n")
        path.unlink()
        path.symlink_to(tmp_path / "other")
        bash(f"put {path} <<<new")
        assert (tmp_path / "other").read_text() == "text\n"
        assert path.read_text() == "new\n"


STATUS = {
    # What `dkms status -k KERNEL` printed for one real module of each kind, built for Debian's 6.1.0-56-cloud-amd64.
    "2.8.1": "{}, 1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
    "2.8.7": "{}/1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
    "3.0.10": "{}/1.1, 6.1.0-56-cloud-amd64, x86_64: {}\n",
}
LOST = (
    "installed (WARNING! Diff between built and installed module!)",
    "installed (Differences between built and installed modules)",
)


class TestBuilt:
    """Modules that DKMS has built and installed, by what `dkms status` of its versions prints."""

    def built(self, said: str, name: str = "dmabuf-import-helper") -> tuple[int, str]:
        return bash(f"built {name}", before=f"dkms() {{ printf %b {said!r}; }}", KERNEL="6.1.0-56-cloud-amd64")

    @pytest.mark.parametrize("version", STATUS)
    @pytest.mark.parametrize(
        "state", ["installed", "installed (original_module exists)", "installed (Original modules exist)"]
    )
    def test_installed_modules_are_found(self, version: str, state: str):
        said = "nvidia/580.95.05, 6.1.0-56-cloud-amd64, x86_64: built\n" + STATUS[version].format(
            "dmabuf-import-helper", state
        )
        assert self.built(said) == (0, "")

    @pytest.mark.parametrize("version", STATUS)
    @pytest.mark.parametrize("state", ["added", "built", *LOST])
    def test_missing_or_lost_modules_are_an_error(self, version: str, state: str):
        said = STATUS[version].format("dmabuf-import-helper", state)
        status, told = self.built(said)
        assert (status, said.strip() in told) == (1, True)

    def test_a_name_is_the_whole_name(self):
        said = STATUS["3.0.10"].format("dmabuf-import-helper", "installed")
        assert [self.built(said, name)[0] for name in ("import-helper", "dmabuf", "dmabuf-import-helper/1.1")] == [
            1,
            1,
            0,
        ]
        assert "it has no modules for it" in self.built("")[1]


class TestFetch:
    def test_a_file_with_the_right_hash_is_not_fetched_again(self, served: str, tmp_path: Path):
        path, hash_ = tmp_path / "to" / "file", sha256(CONTENT).hexdigest()
        assert bash(f"fetch {served}/file {hash_} {path}")[0] == 0
        assert path.read_bytes() == CONTENT
        assert bash(f"fetch {served}/gone {hash_} {path}")[0] == 0

    def test_a_file_with_another_hash_is_refused(self, served: str, tmp_path: Path):
        path = tmp_path / "file"
        path.write_text("old")
        status, said = bash(f"fetch {served}/file {'0' * 64} {path}")
        assert status == 1
        assert f"error: what stands at {served}/file has SHA-256 {sha256(CONTENT).hexdigest()}, not {'0' * 64}" in said
        assert path.read_text() == "old"


class TestCheckout:
    @pytest.fixture
    def upstream(self, tmp_path: Path) -> Path:
        """A repository with two commits."""
        folder = tmp_path / "upstream"
        folder.mkdir()
        git(folder, "init", "-q", "-b", "main")
        git(folder, "config", "uploadpack.allowAnySHA1InWant", "true")
        for number in (1, 2):
            (folder / "file").write_text(f"{number}\n")
            git(folder, "add", ".")
            git(folder, "commit", "-q", "-m", str(number))
        return folder

    def test_the_tree_is_exactly_the_commit(self, upstream: Path, tmp_path: Path):
        there, first = tmp_path / "tree", git(upstream, "rev-parse", "HEAD~")
        assert bash(f"checkout file://{upstream} {first} {there}") == (0, "")
        assert (there / "file").read_text() == "1\n"
        (there / "file").write_text("changed")
        (there / "left").write_text("from a build that was killed")
        assert bash(f"checkout file:///gone {first} {there}") == (0, "")
        assert (there / "file").read_text() == "1\n"
        assert not (there / "left").exists()

    def test_a_folder_of_a_killed_run_is_replaced(self, upstream: Path, tmp_path: Path):
        there = tmp_path / "tree"
        there.mkdir()
        (there / "half").write_text("")
        assert bash(f"checkout file://{upstream} {git(upstream, 'rev-parse', 'HEAD')} {there}")[0] == 0
        assert sorted(path.name for path in there.iterdir()) == [".git", "file"]

    def test_submodules_have_their_commits(self, upstream: Path, tmp_path: Path):
        whole, first = tmp_path / "whole", git(upstream, "rev-parse", "HEAD~")
        whole.mkdir()
        git(whole, "init", "-q", "-b", "main")
        git(whole, "submodule", "--quiet", "add", f"file://{upstream}", "part")
        git(whole / "part", "checkout", "-q", first)
        git(whole, "add", ".")
        git(whole, "commit", "-q", "-m", "with a part")
        git(whole, "config", "uploadpack.allowAnySHA1InWant", "true")
        local = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.file.allow", "GIT_CONFIG_VALUE_0": "always"}
        there, commit = tmp_path / "tree", git(whole, "rev-parse", "HEAD")
        assert bash(f"checkout file://{whole} {commit} {there}", **local)[0] == 0
        assert (there / "part" / "file").read_text() == "1\n"
        # Also what a build has changed there is as it was, the next time.
        (there / "part" / "file").write_text("built")
        bash(f"checkout file://{whole} {commit} {there}", **local)
        assert (there / "part" / "file").read_text() == "1\n"

    def test_branches_and_unknown_commits_are_refused(self, upstream: Path, tmp_path: Path):
        status, said = bash(f"checkout file://{upstream} main {tmp_path / 'tree'}")
        assert status == 1
        assert "main is no commit: a branch or a tag can change" in said
        status, said = bash(f"checkout file://{upstream} {'1' * 40} {tmp_path / 'tree'}")
        assert status == 1
        assert f"commit {'1' * 40} could not be had" in said


class TestRepository:
    @pytest.fixture
    def keys(self, served: str, tmp_path: Path) -> tuple[str, list[str]]:
        """A file of two keys on the web server, and their fingerprints."""
        home = tmp_path / "gpg"
        home.mkdir(mode=0o700)
        found = []
        for name in ("one", "two"):
            command = ["gpg", "--homedir", str(home), "--batch", "--quiet"]
            key = ["--passphrase", "", "--quick-generate-key", f"{name}@localhost", "ed25519"]
            programs.run([*command, *key], check=True)
            listed = programs.run([*command, "--with-colons", "--fingerprint", f"{name}@localhost"], check=True).stdout
            found.append(next(line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr")))
        exported = programs.run(["gpg", "--homedir", str(home), "--armor", "--export"], check=True).stdout
        (tmp_path / "served" / "keys").write_text(exported)
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False)
        return f"{served}/keys", found

    def test_only_the_named_key_is_trusted(self, keys: tuple[str, list[str]], tmp_path: Path):
        url, (one, two) = keys
        line = "deb [signed-by=@key@] https://example.org/ /"
        status, said = bash(f"repository ours {url} {two} '{line}'", HPC_APT=str(tmp_path / "apt"))
        assert status == 0, said
        kept = tmp_path / "apt" / "keyrings" / "hpc-ours.gpg"
        shown = programs.run(["gpg", "--show-keys", str(kept)], check=True).stdout
        assert two in shown
        assert one not in shown
        listed = (tmp_path / "apt" / "sources.list.d" / "hpc-ours.list").read_text()
        assert listed == f"deb [signed-by={kept}] https://example.org/ /\n"

    def test_another_key_is_refused(self, keys: tuple[str, list[str]], tmp_path: Path):
        status, said = bash(f"repository ours {keys[0]} {'A' * 40} deb", HPC_APT=str(tmp_path / "apt"))
        assert status == 1
        assert f"the key at {keys[0]} is not {'A' * 40}" in said
        assert not (tmp_path / "apt").exists()

    @pytest.mark.parametrize("which", ["kept", "refused", "not had"])
    def test_no_file_and_no_process_is_left(self, keys: tuple[str, list[str]], tmp_path: Path, which: str):
        scratch = tmp_path / "scratch"
        scratch.mkdir()
        url, fingerprint = keys[0] + ("-of-nobody" if which == "not had" else ""), keys[1][0]
        wanted = "A" * 40 if which == "refused" else fingerprint
        bash(f"repository ours {url} {wanted} deb", HPC_APT=str(tmp_path / "apt"), TMPDIR=str(scratch))
        assert list(scratch.iterdir()) == []
        mine = str(scratch).encode()
        assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mine in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


BINARIES, SOURCE, MODULES = (
    "lustre-client-binaries",
    "lustre-client-modules-dkms",
    "lustre-client-modules-6.8.0-1074-gcp",
)
BUILT = ["dkms", f"{SOURCE} lustre-client-utils", "dkms autoinstall -k 6.8.0-1074-gcp"]
UBUNTU = """
. "$REAL"
repository() { echo "$4" >>"$WORK/repositories"; }
refresh() { :; }
codename() { echo jammy; }
apt-cache() {
    local name project
    while read -r name project; do
        [[ $1 == show && $name != "$2" ]] || ! grep -q "/projects/$project " "$WORK/repositories" || return 0
    done <"$WORK/offers"
    return 1
}
packages() { echo "$*" >>"$WORK/done"; }
hold() { :; }
dkms() { echo "dkms $*" >>"$WORK/done"; }
depmod() { :; }
module_for() { :; }
lustre_network() { :; }
"""
"""The library on an Ubuntu whose repositories have packages of the file `offers`: a name and a project on each line."""


class TestManagedLustre:
    """Modules for the kernel where Google has them, else DKMS, from whichever of its projects has that."""

    def install(self, tmp_path: Path, offers: dict[str, str]) -> tuple[int, str, list[str], list[str]]:
        """Exit code, output, what was done, and the projects whose repositories were added."""
        (tmp_path / "library.sh").write_text(UBUNTU)
        for name, lines in (("offers", [" ".join(row) for row in offers.items()]), ("done", []), ("repositories", [])):
            (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
        given = {"HPC_LIBRARY": str(tmp_path / "library.sh"), "REAL": str(LIBRARY), "WORK": str(tmp_path)}
        done = programs.run(
            ["bash", str(FOLDER / "storage" / "41-lustre-managed.sh")],
            env={**os.environ, **given, "KERNEL": "6.8.0-1074-gcp"},
        )
        added = re.findall(r"projects/(\S+) lustre-client-ubuntu-jammy main", (tmp_path / "repositories").read_text())
        return done.returncode, done.stdout + done.stderr, (tmp_path / "done").read_text().splitlines(), added

    @pytest.mark.parametrize(
        ("offers", "commands", "projects"),
        [
            ({MODULES: BINARIES, SOURCE: BINARIES}, [f"{MODULES} lustre-client-utils"], [BINARIES]),
            ({SOURCE: BINARIES}, BUILT, [BINARIES]),
            ({SOURCE: SOURCE}, BUILT, [BINARIES, SOURCE]),
        ],
    )
    def test_the_client_is_installed_from_where_it_is(
        self, tmp_path: Path, offers: dict[str, str], commands: list[str], projects: list[str]
    ):
        code, said, done, added = self.install(tmp_path, offers)
        assert code == 0, said
        assert (done, added) == (commands, projects)

    def test_a_client_that_is_nowhere_is_said(self, tmp_path: Path):
        code, said, done, _ = self.install(tmp_path, {"lustre-client-modules-6.8.0-1021-gcp": BINARIES})
        assert (code, done) == (1, [])
        assert f"neither modules for 6.8.0-1074-gcp nor {SOURCE}" in said


class TestMachine:
    @pytest.mark.parametrize(("vendors", "there"), [(["0x8086"], False), (["0x8086", "0x10de"], True), ([], False)])
    def test_a_gpu_is_found_by_its_vendor(self, vendors: list[str], tmp_path: Path, *, there: bool):
        for number, vendor in enumerate(vendors):
            (tmp_path / str(number)).mkdir()
            (tmp_path / str(number) / "vendor").write_text(vendor + "\n")
        assert bash("has_gpu && echo yes || echo no", HPC_PCI=str(tmp_path)) == (0, "yes\n" if there else "no\n")

    @pytest.mark.parametrize(
        ("made_for", "status"), [("5.15.0-1077-gcp", 0), ("5.15.0-1078-gcp", 1), ("5.15.0-1077-gcp-other", 1)]
    )
    def test_a_module_for_another_kernel_is_an_error(self, made_for: str, status: int):
        modinfo = f"modinfo() {{ echo '{made_for} SMP mod_unload'; }}"
        found, said = bash("module_for lustre", before=modinfo, KERNEL="5.15.0-1077-gcp")
        assert found == status
        assert not said or "the kernel module lustre is not there for 5.15.0-1077-gcp" in said

    def test_a_missing_parameter_is_an_error(self):
        status, said = bash("needs SLURM_URL")
        assert status == 1
        assert "error: the parameter SLURM_URL is empty" in said


def written(step: str, name: str, folder: Path) -> Path:
    """A script that the step writes to $OURS."""
    (path,) = FOLDER.glob(f"*/{step}.sh")
    text = path.read_text()
    (body,) = re.findall(rf"""put "\$OURS/{name}" 0755 <<'END'\n(.*?)\nEND\n""", text, re.DOTALL)
    return programs.write(folder / name, body + "\n")


def stub(folder: Path, name: str, text: str) -> Path:
    """A program in the place of another."""
    return programs.write(folder / "bin" / name, text)


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
    done = programs.run([path], env=env)
    return done.returncode, done.stdout + done.stderr


class TestArchive:
    DAY = "20261101T000000Z"

    def test_apt_reads_ubuntus_archive_of_that_day(self, tmp_path: Path):
        status, said = bash(f"codename() {{ echo jammy; }}\narchive ubuntu {self.DAY}", HPC_APT=str(tmp_path))
        assert status == 0, said
        sources = tmp_path / "sources.list.d" / "hpc-ubuntu.list"
        options = [f"-oDir::Etc::sourcelist={sources}", "-oDir::Etc::sourceparts=-", "-oDir::Etc::main=-"]
        command = ["apt-get", *options, f"-oDir::State={tmp_path}", "--print-uris", "update"]
        asked = programs.run(command, check=True).stdout
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
    def test_other_dates_are_refused(self, tmp_path: Path, day: str, why: str):
        status, said = bash(f"archive ubuntu {day}", HPC_APT=str(tmp_path))
        assert (status, why in said) == (1, True)
        assert not list(tmp_path.rglob("*.list"))


class TestGpuBoot:
    def boot(self, folder: Path, device: str, modprobe: str) -> tuple[int, str]:
        stub(folder, "nvidia-modprobe", modprobe)
        stub(folder, "systemctl", f'echo "$@" >>{folder}/systemctl')
        return run(written("20-nvidia", "gpu-boot", folder), folder, HPC_PCI=pci(folder, device))

    @pytest.mark.parametrize(("device", "calls"), [("10de:2330", ["-u -c=0"]), ("1ae0:0042", [])])
    def test_it_loads_uvm_on_machines_with_gpus(self, tmp_path: Path, device: str, calls: list[str]):
        (tmp_path / "calls").touch()
        assert self.boot(tmp_path, device, f'echo "$@" >>{tmp_path}/calls')[0] == 0
        assert (tmp_path / "calls").read_text().splitlines() == calls

    def test_daemons_start_without_uvm(self, tmp_path: Path):
        status, output = self.boot(tmp_path, "10de:2330", "exit 1")
        assert (status, "nvidia_uvm could not be loaded" in output) == (0, True)
        assert "start nvidia-persistenced" in (tmp_path / "systemctl").read_text()


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

    def test_it_waits_for_all_nine_interfaces(self, tmp_path: Path):
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

    def test_a_missing_interface_is_an_error(self, tmp_path: Path):
        status, said = self.wait(tmp_path, NINE, "enp0s12")
        assert (status, said.startswith("1 of 9 network interfaces are there")) == (255, True)

    def test_systemd_retries_after_an_interface_without_address(self, tmp_path: Path):
        names = [f"enp{number}s0" for number in range(9)]
        assert self.wait(tmp_path, NINE, *names, online="exit 1")[0] == 255

    def test_the_real_program_accepts_the_options(self):
        program = Path("/lib/systemd/systemd-networkd-wait-online")
        if not program.exists():
            program = Path(shutil.which("systemd-networkd-wait-online") or program)
        words = ["--quiet", "--timeout=1", "--operational-state=routable", "--interface=lo", "--help"]
        done = programs.run([program, *words])
        assert (done.returncode, "--interface=INTERFACE" in done.stdout) == (0, True)


class TestSmoke:
    def said(self, folder: Path, **environment: str) -> str:
        """Return what the step says with these parameters; most of it is missing here."""
        stub(folder, "apt-mark", "")  # the real one reads the lists of all packages, for half a second
        env = {**os.environ, "HPC_LIBRARY": library(folder), "BAKE": "1", **environment}
        done = programs.run(["bash", FOLDER / "finish/90-smoke.sh"], env=env, cwd=folder)
        assert done.returncode == 1
        return done.stdout

    DRIVER = {"DRIVER_PACKAGE": "580.95.05-0ubuntu1", "DRIVER_VERSION": "580.95.05", "DRIVER_FLAVOUR": "-open"}  # noqa: RUF012

    def test_firmware_of_another_version_is_missing(self, tmp_path: Path):
        assert "wrong: GSP firmware of 580.95.05" in self.said(tmp_path, HPC_FIRMWARE=str(tmp_path), **self.DRIVER)
        for version, expected in (("570.133.20", "wrong"), ("580.95.05", "ok")):
            file = tmp_path / "nvidia" / version / "gsp_ga10x.bin"
            file.parent.mkdir(parents=True)
            file.touch()
            found = self.said(tmp_path, HPC_FIRMWARE=str(tmp_path), **self.DRIVER)
            assert f"{expected}: GSP firmware of 580.95.05" in found

    def test_plugins_of_dcgm_must_match_cuda(self, tmp_path: Path):
        (tmp_path / "cuda12").mkdir()
        (tmp_path / "cuda12" / "libMemtest.so.4").touch()
        for cuda, expected in (("12", "ok"), ("13", "wrong")):
            said = self.said(tmp_path, DCGM="1:4.5.2-1", DRIVER_CUDA=cuda, HPC_DCGM_PLUGINS=str(tmp_path))
            assert f"{expected}: DCGM's plugins for CUDA {cuda}" in said

    def test_the_closed_driver_needs_no_firmware(self, tmp_path: Path):
        assert "GSP" not in self.said(tmp_path, **{**self.DRIVER, "DRIVER_FLAVOUR": ""})

    def test_the_import_helper_must_load(self, tmp_path: Path):
        said = self.said(tmp_path, TCPXO="1")
        assert "dmabuf's import-helper is built" in said
        assert "dmabuf's import-helper can be loaded" in said

    @pytest.mark.parametrize(("running", "expected"), [("1.4.0", "ok"), ("1.0.0", "wrong")])
    def test_the_machine_must_use_the_new_gvnic_driver(self, tmp_path: Path, running: str, expected: str):
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
        done = programs.run(["bash", FOLDER / "finish/91-boot.sh"], env=env)
        return done.returncode, done.stdout + done.stderr

    def test_a_healthy_machine_passes(self, tmp_path: Path):
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
    def test_faults_are_named(self, tmp_path: Path, fault: dict[str, str], status: int, text: str):
        found, said = self.boot(tmp_path, **fault)
        assert (found, text in said) == (status, True)
        assert found or said == text
