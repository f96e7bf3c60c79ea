"""Steps of the image that build packages: what a source declares as needed is what the steps before it install."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cluster.platforms.gcp.install_program import FOLDER

LUSTRE = """\
Source: lustre
Section: admin
Build-Depends: module-assistant, libreadline-dev, debhelper (>= 11), dpatch, automake (>=1.7) | automake1.7 | \
automake1.8 | automake1.9, pkg-config, libtool, libyaml-dev, libnl-genl-3-dev, libselinux-dev, libsnmp-dev, \
mpi-default-dev, bzip2, quilt, linux-headers-generic | linux-headers-amd64 | linux-headers-arm64, rsync, libssl-dev, \
libpython3-dev, swig, libmount-dev, ed
"""
"""debian/control and debian/control.main of lustre-release at v2_15_8, as far as a build asks."""
LUSTRE_MODULES = "Source: lustre\nBuild-Depends: debhelper (>= 11), bzip2\n"
"""debian/control.modules.in of the same: `m-a build` asks once more, for the modules' own package."""
LUSTRE_RULES = (
    "clean:\n\tdh_testdir\n\tdpatch deapply-all -v\n\tdh_clean\npatch-stamp:\n\tdpatch apply-all -v\n\ttouch $@\n"
)
"""debian/rules of the same: the lines that run dpatch, with what stands beside them; debian/patches holds nothing."""
VERSIONS = {"debhelper": "13.6ubuntu1", "automake": "1:1.16.5-1.3"}
"""Of Ubuntu 22.04 (packages.ubuntu.com/jammy), where a control file asks for one; others have some version."""
PROVIDES = {"libselinux1-dev": "libselinux-dev", "libreadline-dev": "libreadline6-dev"}
"""Virtual packages, by the real one (the same pages)."""
FLAGS = "lustre/autoconf/lustre-core.m4"
"""Where the same sets the compiler's flags."""
BUILDS = re.compile(r"dpkg-buildpackage|\bdebs\b|debuild")


def text(step: str) -> str:
    (path,) = FOLDER.glob(f"*/{step}.sh")
    return path.read_text()


def installed(*steps: str) -> set[str]:
    """What the steps give to `packages` by name."""
    found: set[str] = set()
    for step in steps:
        for line in text(step).replace("\\\n", " ").splitlines():
            if line.strip().startswith("packages "):
                words = line.split("#")[0].split()[1:]
                found |= {word for word in words if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", word)}
    return found


def missing(control: Path, packages: set[str], folder: Path) -> str:
    """What dpkg-checkbuilddeps misses on a machine with these packages; its own words, or the same by hand."""
    database = folder / "dpkg"
    (database / "updates").mkdir(parents=True, exist_ok=True)
    rows = [
        f"Package: {name}\nStatus: install ok installed\nMaintainer: T <t@hpc>\nArchitecture: amd64\n"
        f"Version: {VERSIONS.get(name, '1')}\n"
        + (f"Provides: {PROVIDES[name]}\n" if name in PROVIDES else "")
        + "Description: x\n"
        for name in sorted(packages)
    ]
    (database / "status").write_text("\n".join(rows))
    by_hand = _missing(control.read_text(), packages)
    if checker := shutil.which("dpkg-checkbuilddeps"):
        # -I: without build-essential, which step 14 installs by that name.
        done = subprocess.run(
            [checker, f"--admindir={database}", "-a", "amd64", "-I", str(control)],
            capture_output=True,
            text=True,
            check=False,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin"},
        )
        assert done.stderr.partition("dependencies: ")[2].strip() == _as_told(by_hand), done.stderr
    return by_hand


def _missing(control: str, packages: set[str]) -> str:
    (declared,) = re.findall(r"^Build-Depends: (.*)", control, re.MULTILINE)
    there = packages | {PROVIDES[name] for name in packages if name in PROVIDES}
    clauses = [[one.split("(")[0].strip() for one in clause.split("|")] for clause in declared.split(",")]
    return ", ".join(" | ".join(clause) for clause in clauses if not set(clause) & there)


def _as_told(by_hand: str) -> str:
    """The same, as dpkg-checkbuilddeps writes it: without commas."""
    return by_hand.replace(",", "")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Lustre's source, as far as the step changes it."""
    folder = tmp_path / "lustre" / "debian"
    folder.mkdir(parents=True)
    (folder.parent / "lustre" / "autoconf").mkdir(parents=True)
    (folder.parent / FLAGS).write_text('\t[CFLAGS="$CFLAGS -Wall -Werror"])\n')
    for name in ("control", "control.main"):
        (folder / name).write_text(LUSTRE)
    (folder / "rules").write_text(LUSTRE_RULES)
    return folder.parent


def edit(source: Path) -> None:
    """What the step does to the source before it builds: its own lines, run."""
    lines = [line.strip() for line in text("40-lustre-client").splitlines() if line.strip().startswith("sed -i")]
    assert len(lines) == 3
    subprocess.run(["bash", "-euc", "\n".join(lines)], cwd=source, check=True)


class TestLustre:
    PACKAGES = installed("14-tools", "40-lustre-client")

    def test_as_it_is_published_it_could_not_be_built(self, source: Path, tmp_path: Path):
        assert missing(source / "debian/control", self.PACKAGES, tmp_path) == (
            "dpatch, linux-headers-generic | linux-headers-amd64 | linux-headers-arm64"
        )

    def test_as_the_step_changes_it_nothing_is_missing(self, source: Path, tmp_path: Path):
        edit(source)
        for name in ("control", "control.main"):
            assert missing(source / "debian" / name, self.PACKAGES, tmp_path) == ""

    def test_what_else_it_needs_is_still_asked_for(self, source: Path, tmp_path: Path):
        edit(source)
        assert missing(source / "debian/control", self.PACKAGES - {"swig"}, tmp_path) == "swig"
        assert missing(source / "debian/control", self.PACKAGES - {"libselinux1-dev"}, tmp_path) == "libselinux-dev"

    def test_the_modules_own_package_finds_what_it_asks_for(self, tmp_path: Path):
        control = tmp_path / "control"
        control.write_text(LUSTRE_MODULES)
        assert missing(control, self.PACKAGES, tmp_path) == ""

    def test_its_rules_run_nothing_that_is_not_there(self, source: Path):
        edit(source)
        rules = (source / "debian/rules").read_text()
        assert "dpatch" not in rules
        assert rules == "clean:\n\tdh_testdir\n\tdh_clean\npatch-stamp:\n\ttouch $@\n"

    def test_a_warning_does_not_end_the_bake(self, source: Path):
        edit(source)
        assert (source / FLAGS).read_text() == '\t[CFLAGS="$CFLAGS -Wall"])\n'


def test_every_step_that_builds_a_package_is_held_against_what_it_declares():
    building = {path.stem for path in FOLDER.glob("*/[0-9]*.sh") if BUILDS.search(path.read_text())}
    assert building == {"30-slurm", "40-lustre-client"}


def test_slurm_has_what_it_declares_installed_from_its_own_control_file():
    step = text("30-slurm")
    assert step.index("mk-build-deps --install") < step.index("dpkg-buildpackage")
    # mk-build-deps is of devscripts, and makes its package with equivs.
    assert {"devscripts", "equivs", "fakeroot", "dh-exec"} <= installed("14-tools")
