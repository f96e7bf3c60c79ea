"""Security floors: versions are compared as dpkg does, and each component is compared with the row of its series."""

import shutil
import subprocess
from dataclasses import replace
from itertools import product

import pytest

from cluster.catalog.floors import FLOORS, TITLES, floor, order, vulnerable
from cluster.catalog.recipes import RECIPES
from cluster.platforms.nebius.versions import SLURM

VERSIONS = (
    *"22.05.8-4 22.05.8-4+deb12u2 22.05.8-4+deb12u3 25.11.7-1 25.11.8 25.11.8-1 25.11.10-1 26.05.5-1 1:4.5.2-1".split(),
    *"1.0~rc1 1.0 1.0a 1.0+b 3.5.3+ds1-6 3.5.3 6.8.0-1074 6.8.0-1074.82~22.04.1 535.309.01 580 2.42.0+ds-5".split(),
)


@pytest.mark.skipif(not shutil.which("dpkg"), reason="no dpkg here")
def test_versions_are_in_the_order_of_dpkg() -> None:
    wrong = [
        (left, relation, right)
        for left, right in product(VERSIONS, VERSIONS)
        for relation, expected in (("lt", order(left) < order(right)), ("eq", order(left) == order(right)))
        if (subprocess.run(["dpkg", "--compare-versions", left, relation, right], check=False).returncode == 0)
        is not expected
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("component", "version", "found"),
    [
        ("slurm", "26.05.4-1", "Slurm 26.05.4-1 is before 26.05.5 ("),
        ("slurm", "26.05.5-1", ""),
        ("slurm", "25.11.7-1", "Slurm 25.11.7-1 is before 25.11.8 ("),
        ("slurm", "25.11.8-1", ""),
        ("slurm", "24.11.7-1", "Slurm 24.11.7-1 is of a series without a known fix ("),
        ("slurm", "27.05.0-1", ""),
        # Debian's fixes are revisions of its own package.
        ("slurm-wlm", "24.11.5-4", "the distribution's Slurm 24.11.5-4 is before 24.11.5-4+deb13u1 ("),
        ("slurm-wlm", "24.11.5-4+deb13u1", ""),
        ("slurm-wlm", "22.05.8-4+deb12u2", "the distribution's Slurm 22.05.8-4+deb12u2 is before 22.05.8-4+deb12u3 ("),
        ("slurm-wlm", "22.05.8-4+deb12u3", ""),
        (
            "slurm-wlm",
            "23.11.4-1.2ubuntu5",
            "the distribution's Slurm 23.11.4-1.2ubuntu5 is of a series without a known",
        ),
        ("nvidia", "570.133.20", "NVIDIA driver 570.133.20 is of a series without a known fix ("),
        ("nvidia", "580.159.03", ""),
        ("linux", "6.8.0-1021", "kernel 6.8.0-1021 is before 6.8.0-1074 ("),
        ("linux", "6.8.0-1074", ""),
        ("linux", "6.8.0-45", ""),  # another build of Ubuntu's, whose numbers are its own
        ("linux", "6.12.48+deb13", ""),
        ("prometheus", "2.42.0+ds-5+deb12u1", ""),
        ("prometheus", "3.5.1+ds1-1", "Prometheus 3.5.1+ds1-1 is before 3.5.3 ("),
        ("enroot", "3.5.0", ""),
        ("slurm", "", ""),
    ],
)
def test_a_version_is_compared_with_the_floor_of_its_series(component: str, version: str, found: str) -> None:
    assert [text[: len(found)] for text in vulnerable({component: version})] == ([found] if found else [])


def test_every_component_has_a_floor_with_its_source() -> None:
    assert {row.component for row in FLOORS} == set(TITLES)
    assert all(row.source and row.advisory and row.date.startswith("202") for row in FLOORS)
    assert len({(row.component, row.series) for row in FLOORS}) == len(FLOORS)
    for row in FLOORS:
        assert floor(row.component, row.series or "0") is row
        assert not row.version or row.version == "0" or order(row.series) <= order(row.version)


def test_every_slurm_that_an_image_can_have_is_at_its_floor() -> None:
    pinned = {source.version for row in RECIPES.values() for source in row.slurm.values()}
    assert pinned == {"26.05.5", "25.11.8"}
    assert not [text for version in pinned for text in vulnerable({"slurm": version})]
    # No released Soperator has one; this is to fail when the first does, for the words of the preview.
    assert [*vulnerable({"slurm": SLURM})]


def test_a_floor_of_no_version_is_below_nothing() -> None:
    (row,) = (row for row in FLOORS if row.component == "apptainer")
    assert floor("apptainer", "1.4.4", (replace(row, series="1.5"),)) is None
    assert floor("unknown", "1") is None
