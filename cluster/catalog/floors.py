"""Security floors: for each component, the first version without a published vulnerability, with its advisory.

Versions are compared as dpkg does (deb-version(7)), since a distribution's fix is a revision of its own package:
Debian's 24.11.5-4+deb13u1 has the fixes of SchedMD's 25.05.9. The source of each row stands in it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Floor:
    """The first fixed version of a component, from a version `series` on up to the next row of the component."""

    component: str
    series: str
    """First version that the row is for; empty: from the beginning."""
    version: str
    """The first version with all known fixes; empty if no fixed version is known, `0` if no vulnerability is."""
    advisory: str
    date: str
    """Date of the advisory, YYYY-MM-DD or YYYY-MM."""
    source: str
    feeds: tuple[tuple[str, str], ...] = ()
    """Ecosystem and package by which records of OSV name it (ossf.github.io/osv-schema); empty if none do."""


TITLES: Mapping[str, str] = {
    "slurm": "Slurm",
    "slurm-wlm": "the distribution's Slurm",
    "linux": "kernel",
    "nvidia": "NVIDIA driver",
    "nvidia-container-toolkit": "NVIDIA container toolkit",
    "enroot": "enroot",
    "apptainer": "Apptainer",
    "prometheus": "Prometheus",
}
"""Components and their names in findings. `slurm` is SchedMD's own packaging, and Soperator's, `slurm-wlm` that of
Debian and Ubuntu, `linux` the kernel as `uname -r` prints it, without its last part."""

_SEPTEMBER = "CVE-2026-65107, 65108, 65109, 65138, 65139, 65140, 65165, 65168"
_SCHEDMD = "SchedMD's releases of 2026-09-02, by aws-parallelcluster#7601, cluster-toolkit#6264, openhpc/ohpc#2686"
_DRIVERS = "NVIDIA's bulletin 5821 by flatcar/Flatcar#2155, which names 535, 580 and 595 only"
_DRIVER_CVES = "CVE-2026-24187 and others, NVIDIA's bulletin 5821"
_UBUNTU = "the newest of jammy-updates on 2026-11-20 (cluster/catalog/recipes.py); notices of Ubuntu were not read"
_KERNELS = "Ubuntu's kernel updates up to that day"
# fmt: off
FLOORS: tuple[Floor, ...] = (
    Floor(component="slurm", series="", version="", advisory=_SEPTEMBER, date="2026-09-02", source=_SCHEDMD),
    Floor(component="slurm", series="25.05", version="25.05.9", advisory=_SEPTEMBER, date="2026-09-02",
          source=_SCHEDMD),
    # Whether 25.11 has the two faults of 26.05.5 is not known here; no later 25.11 was seen on 2026-11-28.
    Floor(component="slurm", series="25.11", version="25.11.8", advisory=_SEPTEMBER, date="2026-09-02",
          source=_SCHEDMD),
    Floor(component="slurm", series="26.05", version="26.05.5", date="2026-10-13",
          advisory="slurmd takes a launch credential of another user; heap overflow in the I/O of steps",
          source="SchedMD's release notes of 26.05.5"),
    # Debian 12 has no fix of those of 2026-09-02, nor had its security archive on 2026-11-28.
    Floor(component="slurm-wlm", series="22.05", version="22.05.8-4+deb12u3", advisory="CVE-2025-43904",
          date="2025-07-04", source="debian/changelog of that package, bookworm-security",
          feeds=(("Debian:12", "slurm-wlm"),)),
    Floor(component="slurm-wlm", series="23.02", version="", advisory=_SEPTEMBER, date="2026-09-02",
          source="canonical/ubuntu-security-notices, UBUNTU-CVE-2026-65107 of 2026-09-03: not fixed, nor in Ubuntu Pro",
          feeds=(("Ubuntu:Pro:24.04:LTS", "slurm-wlm"),)),
    Floor(component="slurm-wlm", series="24.11", version="24.11.5-4+deb13u1", advisory=_SEPTEMBER, date="2026-09-07",
          source="debian/changelog and debian/patches of that package, trixie-security; DSA-6491-1",
          feeds=(("Debian:13", "slurm-wlm"),)),
    Floor(component="slurm-wlm", series="25.05", version="26.05.5", date="2026-10-13",
          advisory="as SchedMD's 26.05.5", source="Debian's index of sources (sid, 2026-10-30): 26.05.5-1",
          feeds=(("Debian:14", "slurm-wlm"),)),
    Floor(component="linux", series="5.15.0-1000", version="5.15.0-1122", advisory=_KERNELS, date="2026-11-20",
          source=_UBUNTU, feeds=(("Ubuntu:22.04:LTS", "linux-gcp"),)),
    Floor(component="linux", series="6.8.0-1000", version="6.8.0-1074", advisory=_KERNELS, date="2026-11-20",
          source=_UBUNTU, feeds=(("Ubuntu:22.04:LTS", "linux-gcp-6.8"),)),
    Floor(component="nvidia", series="535", version="535.309.01", advisory=_DRIVER_CVES, date="2026-05-26",
          source=_DRIVERS, feeds=(("Ubuntu:24.04:LTS", "nvidia-graphics-drivers-535-server"),)),
    Floor(component="nvidia", series="536", version="", advisory=_DRIVER_CVES, date="2026-05-26", source=_DRIVERS),
    Floor(component="nvidia", series="580", version="580.159.03", advisory=_DRIVER_CVES, date="2026-05-26",
          source=_DRIVERS, feeds=(("Ubuntu:24.04:LTS", "nvidia-graphics-drivers-580-server"),)),
    Floor(component="nvidia", series="595", version="595.71.05", advisory=_DRIVER_CVES, date="2026-05-26",
          source=_DRIVERS),
    Floor(component="nvidia-container-toolkit", series="", version="1.19.1", advisory="CVE-2026-24260",
          date="2026-06", source="NVIDIA's bulletin 5850 of June 2026; ALAS2023NVIDIA-2026-297",
          feeds=(("Go", "github.com/NVIDIA/nvidia-container-toolkit"),)),
    Floor(component="enroot", series="", version="0", advisory="none is known", date="2026-11-28",
          source="no advisory of NVIDIA or GitHub was found on that day"),
    Floor(component="apptainer", series="", version="1.4.5", advisory="CVE-2025-65105", date="2025-12-02",
          source="github.com/advisories/GHSA-j3rw-fx6g-q46j", feeds=(("Go", "github.com/apptainer/apptainer"),)),
    # Packages of 2.x in Debian 12, 13 and Ubuntu: neither has a fix (prometheus 2.42.0+ds-5+deb12u1, 2.53.3+ds1-2).
    Floor(component="prometheus", series="", version="0", advisory="CVE-2026-40179, without a fix of the distribution",
          date="2026-11-28", source="debian/changelog of bookworm's package; Debian's index of sources",
          feeds=(("Debian:12", "prometheus"), ("Debian:13", "prometheus"))),
    Floor(component="prometheus", series="3", version="3.5.3", advisory="CVE-2026-42151, 42154", date="2026-05",
          source="stolostron/multicluster-observability-operator#2640, coderabbitai/grafana#238",
          feeds=(("Debian:14", "prometheus"),)),
    Floor(component="prometheus", series="3.6", version="3.11.3", advisory="CVE-2026-42151, 42154", date="2026-05",
          source="stolostron/multicluster-observability-operator#2640, coderabbitai/grafana#238"),
)
# fmt: on


def floor(component: str, version: str, floors: tuple[Floor, ...] = FLOORS) -> Floor | None:
    """Return the row for a version of a component; None if there is none."""
    rows = [row for row in floors if row.component == component and order(row.series) <= order(version)]
    return max(rows, key=lambda row: order(row.series), default=None)


def vulnerable(versions: Mapping[str, str]) -> Iterator[str]:
    """Yield each version of a component that is below its floor, in words: the version, the floor and the advisory.

    Components without a version are not compared.
    """
    for component, title in TITLES.items():
        version = versions.get(component, "")
        row = floor(component, version) if version else None
        if row is None or (row.version and order(row.version) <= order(version)):
            continue
        what = f"is before {row.version}" if row.version else "is of a series without a known fix"
        yield f"{title} {version} {what} ({row.advisory}; {row.date})"


Key = tuple[int, tuple[tuple[tuple[int, ...], int], ...], tuple[tuple[tuple[int, ...], int], ...]]


def order(version: str) -> Key:
    """Return a key that sorts versions as dpkg does: epoch, upstream version, revision of the package."""
    epoch, colon, rest = version.partition(":")
    if not (colon and epoch.isdecimal()):
        epoch, rest = "0", version
    upstream, _, revision = rest.rpartition("-") if "-" in rest else (rest, "", "")
    return int(epoch), _parts(upstream), _parts(revision)


def _parts(text: str) -> tuple[tuple[tuple[int, ...], int], ...]:
    """Return a text as pairs of other characters and a number. A tilde is before the end, letters before the rest."""
    pairs = re.findall(r"([^0-9]*)([0-9]*)", text)
    return tuple(((*map(_weight, other), 0), int(number or 0)) for other, number in pairs)


def _weight(character: str) -> int:
    if character == "~":
        return -1
    return ord(character) if character.isalpha() else ord(character) + 256
