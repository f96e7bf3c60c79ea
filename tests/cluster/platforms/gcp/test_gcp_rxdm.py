"""The rxdm prolog, its NCCL plugin and the driver: the default version matches, and mismatches are warnings."""

import pytest

from cluster.catalog.prologs import QUALIFIED, RXDM_VERSIONS, fitting
from cluster.catalog.recipes import R580_RXDM, RECIPES
from cluster.config import ClusterConfig
from cluster.load import find_warnings
from cluster.platforms.gcp import checks
from cluster.slurm.script_tree import default_rxdm
from tests.clouds import A3, google
from tests.cluster.stacks import STACKS, config

BY_PLUGIN = {row.plugin: row for row in reversed(RXDM_VERSIONS.values())}


def a3mega(rxdm: dict[str, str] | None = None) -> ClusterConfig:
    """A cluster of A3 Mega nodes with the prolog."""
    return google(
        image={"base": "ubuntu-2204"},
        nodesets={"a3": A3},
        partitions={"a3": {"nodesets": ["a3"], "default": True, "exclusive": True}},
        slurm={"rxdm": {"partitions": ["a3"], **(rxdm or {})}, "timers": {"batch_start": 600, "prolog_epilog": 600}},
    )


def staged(plugin: str) -> dict[str, str]:
    """A version that the stack file names."""
    return {"url": BY_PLUGIN[plugin].url, "sha256": BY_PLUGIN[plugin].sha256}


def rxdm_warnings(cluster: ClusterConfig) -> list[str]:
    """All warnings but that of the driver's vulnerabilities, of which no other is qualified."""
    return [str(finding) for finding in find_warnings(cluster) if finding.id != "vulnerable"]


class TestDefault:
    def test_the_newest_version_was_qualified_with_the_newest_recipes_driver(self):
        assert R580_RXDM.version in fitting(R580_RXDM.version).drivers
        assert default_rxdm(a3mega()) is BY_PLUGIN["v1.0.15"]
        assert rxdm_warnings(a3mega()) == []

    def test_every_recipe_of_a_version_and_system_has_one_driver(self):
        drivers: dict[tuple[str, str], set[str]] = {}
        for (version, base, _), row in RECIPES.items():
            drivers.setdefault((version, base), set()).add(row.driver.version)
        assert {len(found) for found in drivers.values()} == {1}

    def test_an_unknown_driver_gets_the_newest_version(self):
        assert fitting("999.1") is next(iter(RXDM_VERSIONS.values()))

    @pytest.mark.parametrize("stack", [name for name in STACKS if name.startswith("a3mega")])
    def test_the_shipped_stacks_have_no_mismatch(self, stack: str):
        assert list(checks.rxdm_warnings(config(stack))) == []


class TestMismatch:
    def test_a_version_for_another_driver_is_a_warning_with_what_to_do(self):
        (text,) = rxdm_warnings(a3mega(staged("v1.0.17")))
        assert text.startswith(
            "hpc:cluster.slurm.rxdm: plugin v1.0.17 and rxdm v1.0.23 were qualified with driver 595.71.05"
        )
        assert "recipe 2026-11 has 580.95.05" in text
        assert "remove url and sha256 for the version of 2026-01-22" in text

    def test_a_version_that_google_did_not_qualify_is_a_warning(self):
        (text,) = rxdm_warnings(a3mega(staged("v1.0.8-1")))
        assert "with no driver that is known here" in text

    def test_unknown_versions_are_not_checked(self):
        assert rxdm_warnings(a3mega({"url": "https://example.org/x.sh", "sha256": "a" * 64})) == []
        assert find_warnings(google()) == []

    def test_each_qualified_driver_is_a_whole_version(self):
        for drivers in QUALIFIED.values():
            assert all(len(driver.split(".")) == 3 for driver in drivers)
