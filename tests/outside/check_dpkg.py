"""Packages that this program installs by name, beside the indexes of the suites they come from, by real apt and dpkg.

Artifact: a folder with one folder for each suite (jammy, noble, bookworm, trixie). Each has apt's sources.list and, in
`lists`, what apt fetches for it:

    apt-get update -o Dir::Etc::sourcelist=$PWD/sources.list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$PWD/lists

Sources of Ubuntu are main, restricted, universe and multiverse of SUITE, SUITE-updates and SUITE-security. Packages of
NVIDIA's and Google's repositories are compared where sources.list names these. Real .deb files of linux-headers, if
there are any in `debs` of a suite, say which compiler their kernel wants.
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from cli.commands.test import _EMULATOR
from cluster.catalog.base_system import JOB_PROGRAMS
from cluster.catalog.images import IMAGES
from cluster.catalog.recipes import NEWEST, RECIPES, Recipe
from cluster.config import ClusterConfig
from cluster.platforms.gcp import cloud_packages
from cluster.platforms.gcp.cloud_request import AskedStack
from cluster.platforms.gcp.image import FOLDER, parameters, steps
from components.local.host.images import SUITES, _missing_packages, recipe
from components.local.host.process import TOOLS
from tests import programs
from tests.clouds import A3, EXASCALER, MANAGED, google
from tests.outside.recorder import Recorder

UBUNTU = {"ubuntu-2204": "jammy", "ubuntu-2404": "noble"}
LUSTRE = {"exascaler": {"lustre": EXASCALER}, "managed": {"lustre": MANAGED}, "none": {}}
BUCKETS = [{"name": "data", "mount": "/gcs"}]
T4 = {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}
KERNEL = re.compile(r"linux-(image|modules|headers|gcp)")
"""What step 12-kernel looks at."""
DATABASE = re.compile(
    r"(Package|Version|Architecture|Maintainer|Multi-Arch|Essential|(Pre-)?Depends|Provides|Breaks|Conflicts):"
)
NO_VERSION = re.compile(r"E: Version '.+' for '(.+)' was not found")
SHELL = r"""
{ . /dev/stdin; } <<<"$HPC_TEXT"
PATH=/nonexistent
command_not_found_handle() { :; }
packages() { printf 'packages %s\n' "$*"; }
hold() { printf 'hold %s\n' "$*"; }
apt_get() { printf '%s\n' "$*"; }
repository() { printf 'repository %s\n' "$4"; }
upgrade() { :; }; refresh() { :; }; fetch() { :; }; checkout() { :; }; put() { :; }; die() { :; }; cd() { :; }
codename() { printf '%s' "$HPC_SUITE"; }
sed() { command -p sed "$@"; }
dpkg-query() { command -p dpkg-query --admindir="$HPC_DATABASE" "$@"; }
set +e
"""
"""A shell in which a step says what it would do, and can do nothing: without programs, and as nobody."""


@dataclass
class Suite:
    """A suite of packages, by real apt and dpkg. A machine of it has no packages yet."""

    folder: Path
    work: Path
    options: list[str] = field(init=False)

    def __post_init__(self) -> None:
        for name in ("updates", "info", "cache"):
            (self.work / name).mkdir()
        (self.work / "status").touch(0o644)
        given = {
            "Dir::Etc::sourcelist": self.folder / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "Dir::Etc::preferencesparts": "-",
            "Dir::State::lists": self.folder / "lists",
            "Dir::State::status": self.work / "status",
            "Dir::State::extended_states": self.work / "auto",
            "Dir::Cache": self.work / "cache",
            "Dir::Cache::pkgcache": "pkgcache.bin",
            "Dir::Cache::srcpkgcache": "srcpkgcache.bin",
            "APT::Architecture": "amd64",
            "APT::Architectures::": "amd64",
        }
        self.options = [word for key, value in given.items() for word in ("-o", f"{key}={value}")]
        assert self.candidate("bash"), f"{self.folder} has no index: see the top of {Path(__file__).name}"

    def apt(self, program: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run apt-get or apt-cache on the indexes."""
        command = [program, *self.options, *words]
        return programs.run(command, env={**os.environ, "LC_ALL": "C"})

    def candidate(self, name: str) -> str:
        """Version of a package that apt would install; empty: none."""
        said = re.search(r"^  Candidate: (.+)$", self.apt("apt-cache", "policy", name).stdout, re.MULTILINE)
        return said[1] if said and said[1] != "(none)" else ""

    def install(self, *words: str) -> tuple[dict[str, str], list[str], str]:
        """What apt would install for these names, those that there are not, and its error about the others."""
        wanted, missing = list(dict.fromkeys(words)), list[str]()
        options = ("--simulate", "--no-remove", "--no-install-recommends", "--allow-downgrades")
        while True:
            # Each round misses names: apt tells of versions only when it has found all names.
            done = self.apt("apt-get", *options, "install", *wanted)
            lines = done.stderr.splitlines()
            gone = {*_missing_packages(lines), *(match[1] for line in lines if (match := NO_VERSION.fullmatch(line)))}
            if not gone.intersection(word.split("=")[0] for word in wanted):
                found = re.findall(r"^Inst (\S+) (?:\[.*?\] )?\((\S+)", done.stdout, re.MULTILINE)
                return dict(found), missing, done.stderr if done.returncode else ""
            missing += [word for word in wanted if word.split("=")[0] in gone]
            wanted = [word for word in wanted if word not in missing]

    def has_installed(self, packages: dict[str, str]) -> None:
        """Give the machine these packages, with the fields that the index has of them."""
        shown = self.apt("apt-cache", "show", *(f"{name}={version}" for name, version in packages.items())).stdout
        # dpkg takes no fields of an archive in its database.
        kept = (line for line in shown.splitlines() if not line or DATABASE.match(line))
        text = "\n".join(kept).replace("\nVersion:", "\nStatus: install ok installed\nVersion:")
        (self.work / "status").write_text(f"{text}\n")

    def shell(self, text: str, given: dict[str, str]) -> str:
        """What a step's text prints in the shell above."""
        env = {"HPC_TEXT": (FOLDER / "library.sh").read_text(), "HPC_LIBRARY": "/dev/null", "LC_ALL": "C"}
        env |= {"HPC_SUITE": self.folder.name, "HPC_DATABASE": str(self.work), **given}
        user = "nobody" if os.geteuid() == 0 else None
        command = ["/bin/bash", "-c", SHELL + text]
        return programs.run(command, env=env, cwd="/", stdin=subprocess.DEVNULL, user=user).stdout

    def said(self, step: str, given: dict[str, str]) -> Iterator[list[str]]:
        """What a step of an image asks for: lines of words."""
        (file,) = FOLDER.glob(f"*/{step}.sh")
        return (line.split() for line in self.shell(file.read_text(), given).splitlines() if line)


@pytest.fixture(scope="module")
def indexes(artifact: Path) -> Iterator[dict[str, Suite]]:
    """Every suite of the artifact. The machines' databases are where nobody may read them, as a step's shell does."""
    with tempfile.TemporaryDirectory() as work:
        Path(work).chmod(0o755)
        found = {}
        for name in (UBUNTU | SUITES).values():
            (at := Path(work, name)).mkdir()
            found[name] = Suite(artifact / name, at)
        yield found


@pytest.fixture
def suites(indexes: dict[str, Suite]) -> dict[str, Suite]:
    """The same, with machines that have no packages."""
    for suite in indexes.values():
        (suite.work / "status").write_text("")
    return indexes


def cluster(row: Recipe) -> ClusterConfig:
    """A cluster whose image takes as many of a recipe's steps as can be."""
    gpu = A3 if row.slurm else T4
    partitions = {"main": {"nodesets": ["gpu"], "default": True}}
    image = {"base": row.base, "recipe": row.version, "bake": bool(row.slurm)}
    return google(
        nodesets={"gpu": gpu}, partitions=partitions, image=image, storage={**LUSTRE[row.lustre], "buckets": BUCKETS}
    )


def asked(suite: Suite, config: ClusterConfig) -> tuple[list[str], set[str]]:
    """Packages that an image's steps ask for, and those that may be in a repository that the indexes lack."""
    words, elsewhere = list[str](), set[str]()
    sources = (suite.folder / "sources.list").read_text()
    for step in steps(config):
        lines = list(suite.said(step.name, parameters(config)))
        hosts = [re.findall(r"//([^/]+)/", " ".join(line))[0] for line in lines if line[0] == "repository"]
        own = [word for line in lines if line[0] == "packages" for word in line[1:] if "/" not in word]
        words += own
        if any(host not in sources for host in hosts):
            elsewhere.update(own)
    return words, elsewhere


@pytest.mark.parametrize("key", RECIPES, ids="-".join)
def test_packages_of_an_image(key: tuple[str, str, str], suites: dict[str, Suite], outside: Recorder) -> None:
    row = RECIPES[key]
    suite, config, label = suites[UBUNTU[row.base]], cluster(row), "-".join(key)
    words, elsewhere = asked(suite, config)
    found, missing, error = suite.install(*words)
    for word in missing:
        if word not in elsewhere:
            outside.differs(f"{label}-{word}", f"{suite.folder.name} has no package {word}")
    if error:
        outside.differs(f"{label}-together", error)
    unseen = sorted(set(missing) & elsewhere)
    outside.did(f"{label}: {len(words) - len(unseen)} names, {len(found)} packages; not in these indexes: {unseen}")
    outside.holds("image-packages-by-name")


@pytest.mark.parametrize("key", [key for key, row in RECIPES.items() if row.kernel], ids="-".join)
def test_a_kernel_alone_is_left(key: tuple[str, str, str], suites: dict[str, Suite], outside: Recorder) -> None:
    suite, config = suites[UBUNTU[key[1]]], cluster(RECIPES[key])
    given = parameters(config)
    (kernel,) = [line[1:] for line in suite.said("12-kernel", given) if line[0] == "packages"]
    ours, *_ = suite.install(*kernel)
    # As a public image is: with packages that bring the next kernel, and an older one.
    others, *_ = suite.install("linux-gcp", "linux-image-generic", "grub-efi-amd64-signed")
    suite.has_installed({**others, **ours})
    (purged,) = [line[2:] for line in suite.said("12-kernel", given) if line[0] == "purge"]
    done = suite.apt("apt-get", "--simulate", "purge", *purged)
    removed = set(re.findall(r"^Purg (\S+)", done.stdout, re.MULTILINE))
    kernels = {name for name in {**others, **ours} if KERNEL.match(name)}
    if lost := removed & ours.keys():
        outside.differs(f"{key[0]}-kernel", f"with the other kernels {sorted(lost)} would be removed: {done.stderr}")
    if left := kernels - removed - ours.keys():
        outside.differs(f"{key[0]}-kernels", f"{sorted(left)} would be left beside {given['KERNEL']}")
    stay = sorted(name for name in ours if KERNEL.match(name))
    outside.did(f"{'-'.join(key)}: {len(removed)} of {len(kernels)} packages of kernels go, {stay} stay")
    outside.holds("image-kernel-packages")


@pytest.mark.parametrize("key", [key for key, row in RECIPES.items() if row.kernel], ids="-".join)
def test_files_of_a_kernel(key: tuple[str, str, str], suites: dict[str, Suite], outside: Recorder) -> None:
    suite, config = suites[UBUNTU[key[1]]], cluster(RECIPES[key])
    (kernel,) = [line[1:] for line in suite.said("12-kernel", parameters(config)) if line[0] == "packages"]
    shown = suite.apt("apt-cache", "show", *kernel).stdout
    files = {f"/{path}" for path in re.findall(r"^Filename: (.+)$", shown, re.MULTILINE)}
    urls = [request for check in cloud_packages.packages(AskedStack(config=config)) for request in check.requests]
    asked = {url[url.index("/pool/") :] for url in urls if "/pool/" in url}
    if len(files) != len(kernel) or files != asked:
        outside.differs(
            f"{key[0]}-kernel-files", f"{suite.folder.name} has {sorted(files)}, asked for: {sorted(asked)}"
        )
    outside.did(f"{'-'.join(key)}: {len(files)} files of the kernel by their paths")
    outside.holds("image-kernel-files")


def test_versions_and_names_are_read_from_dpkg(suites: dict[str, Suite], outside: Recorder) -> None:
    suite, config = suites["noble"], cluster(RECIPES[NEWEST, "ubuntu-2404", "none"])
    words, _ = asked(suite, config)
    found, *_ = suite.install(*(word for word in words if word.startswith(("slurm", "munge"))))
    suite.has_installed(found)
    (held,) = [line[1:] for line in suite.said("31-slurm-packages", parameters(config)) if line[0] == "hold"]
    slurm = {name for name in found if name.startswith("slurm")}
    if set(held) != slurm:
        outside.differs("dpkg-names", f"step 31 holds {sorted(held)}, and dpkg has {sorted(slurm)}")
    text = 'for name in $HPC_NAMES; do printf "%s %s\\n" "$name" "$(installed "$name")"; done'
    lines = suite.shell(text, {"HPC_NAMES": " ".join([*found, "hpc-none"])}).splitlines()
    read = {name: version for name, _, version in (line.partition(" ") for line in lines)}
    if read != {**found, "hpc-none": ""}:
        outside.differs("dpkg-versions", f"`installed` reads {set(read.items()) ^ set(found.items())}")
    outside.did(f"dpkg-query: {len(found)} versions, {len(slurm)} names by a pattern")
    outside.holds("image-dpkg-query")


def test_compilers_of_kernels(artifact: Path, suites: dict[str, Suite], outside: Recorder, tmp_path: Path) -> None:
    for number, deb in enumerate(sorted(artifact.glob("*/debs/linux-headers-*.deb"))):
        subprocess.run(["dpkg-deb", "--extract", deb, tmp_path / str(number)], check=True)
        (config,) = tmp_path.glob(f"{number}/usr/src/*/.config")
        # As step 14-tools reads it.
        (pattern,) = re.findall(r"sed -n '(s/\^CONFIG_GCC.+?)'", (FOLDER / "system/14-tools.sh").read_text())
        major = programs.run(["sed", "-n", pattern, config], check=True).stdout.strip()
        _, missing, error = suites[deb.parents[1].name].install(f"gcc-{major}", f"g++-{major}")
        if not major or missing or error:
            outside.differs("kernel-compiler", f"{deb.name}: compiler {major!r}: no {missing} {error}")
        outside.did(f"{deb.name}: compiler {major}")


def test_packages_of_rehearsals_and_hosts(suites: dict[str, Suite], outside: Recorder) -> None:
    wanted = {f"image {base}": (suite, recipe(base).packages) for base, suite in SUITES.items()}
    hosts = (*TOOLS, *_EMULATOR, "openssh-server", "python3-venv")
    wanted |= {f"host {name}": (name, hosts) for name in suites}
    for label, (name, packages) in wanted.items():
        found, missing, error = suites[name].install(*packages)
        for word in missing:
            outside.differs(f"{label}-{word}", f"{name} has no package {word}")
        if error:
            outside.differs(f"{label}-together", error)
        outside.did(f"{label}: {len(packages)} names, {len(found)} packages")
    outside.holds("machines-packages-by-name")


def test_programs_and_versions_that_the_catalog_names(suites: dict[str, Suite], outside: Recorder) -> None:
    for base, name in (UBUNTU | SUITES).items():
        version = suites[name].candidate("slurm-wlm")
        ours = IMAGES[base].slurm_versions
        built = base == "ubuntu-2204"
        if any(version.startswith(f"{release}.") for release in ours) == built:
            outside.differs(f"{base}-slurm", f"{name} has Slurm {version}, the catalog {ours}")
        outside.did(
            f"{name}: slurm-wlm {version}; { ({program: suites[name].candidate(program) for program in JOB_PROGRAMS}) }"
        )
    for program in JOB_PROGRAMS:
        if not any(suites[name].candidate(program) for name in (UBUNTU | SUITES).values()):
            outside.differs(f"job-program-{program}", f"no suite has a package {program}")
    outside.holds("machines-slurm-of-distributions")


def test_errors_of_apt_name_packages_that_there_are_not(suites: dict[str, Suite], outside: Recorder) -> None:
    names = ["hpc-none", "mail-transport-agent", "bash"]
    for name, suite in suites.items():
        lines = suite.apt("apt-get", "--simulate", "install", *names).stderr.splitlines()
        if _missing_packages(lines) != names[:2]:
            outside.differs(f"{name}-errors", f"{lines} is read as {_missing_packages(lines)}")
    outside.did(f"errors of apt-get in {len(suites)} suites")
    outside.holds("machines-apt-errors")
