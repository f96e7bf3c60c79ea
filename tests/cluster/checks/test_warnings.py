"""Warnings about a stack, for each case and for cases without any."""

from datetime import date, datetime
from typing import Any

import pytest

from cluster.catalog import IMAGES
from cluster.catalog.slurm_releases import SUPPORT_ENDS
from cluster.checks import settings as settings_checks
from cluster.findings import Level
from cluster.jobs.warm_up import warm_up
from cluster.load import find_warnings, parse
from cluster.platforms.gcp import checks
from tests.clouds import A3, MANAGED, google, settings
from tests.cluster.stacks import EVERY, cases, cluster, config

MEGA: dict[str, Any] = {
    "nodesets": {"a3": A3},
    "partitions": {"main": {"nodesets": ["a3"], "default": True, "exclusive": True}},
}
RXDM: dict[str, Any] = {"rxdm": {"partitions": ["main"]}, "timers": {"batch_start": 600, "prolog_epilog": 600}}


def test_warnings_are_those_that_were_reviewed(reviewed) -> None:
    found = {
        case: find_warnings(google(**{**MEGA, "slurm": RXDM, **given}))
        for case, given in cases("google-warned").items()
    }
    found |= {case: find_warnings(cluster(**given)) for case, given in cases("local-warned").items()}
    found |= {f"the stack {name}": find_warnings(config(name)) for name in EVERY if not name.startswith("example-")}
    reviewed("refused/warned", {case: "\n".join(map(str, every)) for case, every in found.items()})


def test_a_warm_up_uses_a_partition_that_admits_root() -> None:
    config = cluster(**cases("local-warned")["a warm-up in one of two that root may use"])
    assert config.slurm.warm_up
    (part, *_) = warm_up(config, config.slurm.warm_up)["partitions"]
    assert part["name"] == "open"


class TestKernel:
    @pytest.mark.parametrize(("day", "expected"), [("2027-03-20", 0), ("2027-03-21", 1)])
    def test_the_newest_kernel_has_a_warning_when_old(self, monkeypatch: pytest.MonkeyPatch, day: str, expected: int):
        monkeypatch.setattr(checks, "today", lambda: datetime.fromisoformat(day))
        found = find_warnings(google(**MEGA, slurm=RXDM, storage={"lustre": MANAGED}, image={"base": "ubuntu-2204"}))
        assert [finding.id for finding in found] == ["vulnerable", *["kernel-old"] * expected]
        assert all("a newer version of this program" in finding.todo for finding in found)


class TestSlurmsSupport:
    @staticmethod
    def found(day: str, **changes: Any) -> list[str]:
        return [
            f"{finding.what}; {finding.todo}"
            for finding in settings_checks.end_of_support(google(**changes), date.fromisoformat(day))
        ]

    def test_a_release_has_a_warning_from_two_months_before_its_end(self):
        chosen = {"image": {"base": "ubuntu-2204"}, "slurm": {"version": "25.11"}}
        assert self.found("2027-03-31", **chosen) == []
        (before,) = self.found("2027-04-01", **chosen)
        assert before.startswith("SchedMD's support for Slurm 25.11 ends on 2027-05-31: ")
        assert before.endswith("; go to Slurm 26.05; `preview` says what the upgrade does")
        (after,) = self.found("2027-06-01", **chosen)
        assert "25.11 ended on 2027-05-31" in after

    def test_the_newest_release_has_a_warning_after_its_end(self):
        (found,) = self.found("2027-12-01", image={"base": "ubuntu-2204"})
        assert found.endswith("; update this program")

    def test_packages_of_a_distribution_have_an_info_about_their_maintainer(self):
        (found,) = settings_checks.end_of_support(google(image={"base": "ubuntu-2404"}), date(2026, 11, 23))
        assert found.level is Level.INFO
        assert (
            "SchedMD mends Slurm 23.11 until 2025-05-31; the packages of ubuntu-2404 are mended by Ubuntu" in found.what
        )
        assert all(bool(image.mended) != image.built for image in IMAGES.values())

    def test_the_release_of_pods_is_the_one_of_soperator(self):
        pods = config("nebius")
        (found,) = settings_checks.end_of_support(pods, date(2027, 5, 1))
        assert pods.slurm_version == "25.11"
        assert found.todo == "update this program"

    def test_the_default_of_an_image_that_is_built_is_the_newest(self):
        built = [image for image in IMAGES.values() if image.built and image.name != "soperator"]
        assert [image.slurm_versions[0] for image in built] == [max(SUPPORT_ENDS)] * len(built)


class TestZones:
    @staticmethod
    def warned(zone: str, **changes: Any) -> list[str]:
        return list(map(str, checks.zone_warnings(parse({**settings(**changes), "gcp:zone": zone}))))

    def test_a_zone_without_the_machine_type_is_a_warning(self):
        (warning,) = self.warned("us-west4-b", **MEGA)
        assert warning.startswith(
            "gcp:zone: us-west4-b is not known to have a3-megagpu-8g; zones that have it: us-central1-a, "
        )
        assert warning.endswith(
            " To do: take one of these, unless `gcloud compute machine-types list --filter zone:us-west4-b` shows "
            "a3-megagpu-8g."
        )

    def test_a_zone_without_the_gpus_is_a_warning(self):
        nodesets = {"gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}}
        (warning,) = self.warned("us-central1-d", nodesets=nodesets)
        assert "not known to have t4; zones that have it: us-central1-a" in warning
        assert "accelerator-types list --filter zone:us-central1-d" in warning

    def test_machine_types_without_a_list_of_zones_have_no_warning(self):
        assert self.warned("europe-west12-a") == []

    def test_a_zone_with_the_machine_type_has_no_warning(self):
        assert self.warned("us-west4-a", **MEGA) == []
