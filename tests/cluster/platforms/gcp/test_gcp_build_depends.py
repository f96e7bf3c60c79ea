"""Steps of the image that build packages: earlier steps install the sources' build dependencies."""

import re
import subprocess
from pathlib import Path

import pytest

from cluster.platforms.gcp.image import FOLDER

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
PROVIDES = {"libselinux1-dev": "libselinux-dev", "libreadline-dev": "libreadline6-dev"}
"""Virtual packages, by the real one (packages.ubuntu.com/jammy)."""
FLAGS = "lustre/autoconf/lustre-core.m4"
"""Where the same sets the compiler's flags."""
BUILDS = re.compile(r"dpkg-buildpackage|\bdebs\b|debuild")


def text(step: str) -> str:
    (path,) = FOLDER.glob(f"*/{step}.sh")
    return path.read_text()


def installed(*steps: str) -> set[str]:
    """Return what the steps give to `packages` by name."""
    found: set[str] = set()
    for step in steps:
        for line in text(step).replace("\\\n", " ").splitlines():
            if line.strip().startswith("packages "):
                words = line.split("#")[0].split()[1:]
                found |= {word for word in words if re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", word)}
    return found


def missing(control: str, packages: set[str]) -> str:
    """Clauses of Build-Depends that no package here satisfies; versions are not compared, outside checks do that."""
    (declared,) = re.findall(r"^Build-Depends: (.*)", control, re.MULTILINE)
    there = packages | {PROVIDES[name] for name in packages if name in PROVIDES}
    clauses = [[name.split("(")[0].strip() for name in clause.split("|")] for clause in declared.split(",")]
    return ", ".join(" | ".join(clause) for clause in clauses if not set(clause) & there)


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

    def test_the_published_package_can_not_be_built(self):
        assert missing(LUSTRE, self.PACKAGES) == (
            "dpatch, linux-headers-generic | linux-headers-amd64 | linux-headers-arm64"
        )

    @pytest.mark.parametrize("name", ["control", "control.main"])
    def test_the_changed_package_has_all_build_dependencies(self, source: Path, name: str):
        edit(source)
        control = (source / "debian" / name).read_text()
        assert missing(control, self.PACKAGES) == ""
        assert missing(control, self.PACKAGES - {"swig"}) == "swig"
        assert missing(control, self.PACKAGES - {"libselinux1-dev"}) == "libselinux-dev"

    def test_the_modules_package_finds_its_build_dependencies(self):
        assert missing(LUSTRE_MODULES, self.PACKAGES) == ""

    def test_its_rules_run_only_existing_programs_and_a_warning_does_not_end_the_bake(self, source: Path):
        edit(source)
        rules = (source / "debian/rules").read_text()
        assert rules == "clean:\n\tdh_testdir\n\tdh_clean\npatch-stamp:\n\ttouch $@\n"
        assert (source / FLAGS).read_text() == '\t[CFLAGS="$CFLAGS -Wall"])\n'


def test_every_step_that_builds_a_package_is_compared_with_its_build_dependencies():
    building = {path.stem for path in FOLDER.glob("*/[0-9]*.sh") if BUILDS.search(path.read_text())}
    assert building == {"30-slurm", "40-lustre-client"}


def test_slurms_build_dependencies_come_from_its_control_file():
    step = text("30-slurm")
    assert step.index("mk-build-deps --install") < step.index("dpkg-buildpackage")
    # mk-build-deps is of devscripts, and makes its package with equivs.
    assert {"devscripts", "equivs", "fakeroot", "dh-exec"} <= installed("14-tools")
