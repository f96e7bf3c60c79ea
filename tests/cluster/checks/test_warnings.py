"""Warnings about a stack, for each case and for cases without any."""

from collections.abc import Callable, Mapping
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
from tests.clouds import A3, EXASCALER, MANAGED, google, settings
from tests.cluster.stacks import EVERY, cluster, config

Reviewed = Callable[[str, Mapping[str, str]], None]
MEGA: dict[str, Any] = {
    "nodesets": {"a3": A3},
    "partitions": {"main": {"nodesets": ["a3"], "default": True, "exclusive": True}},
}
RXDM: dict[str, Any] = {"rxdm": {"partitions": ["main"]}, "timers": {"batch_start": 600, "prolog_epilog": 600}}
OLD = {"base": "ubuntu-2204", "recipe": "2025-01"}
CPU = {"cpu": {"nodesets": ["cpu"], "default": True}}
OTHER = {"other": {"nodesets": ["a3"], "exclusive": True}}


def capacity(way: dict[str, Any], **partition: str) -> dict[str, Any]:
    """A3 Mega nodes with a capacity, and keys of their partition."""
    main = {"nodesets": ["a3"], "default": True, "exclusive": True, **partition}
    return {"nodesets": {"a3": {**A3, "capacity": way}}, "partitions": {"main": main}}


FLEX: dict[str, Any] = {"flex": {}}
WEEK = {"calendar": {"name": "week", "ends": "20261201T080000Z"}}
ELSEWHERE = {
    "lustre": {"kind": "managed", "existing": "10.128.0.3", "fsname": "lustre"},
    "nfs": [{"server": "10.128.4.2", "path": "/shared", "mount": "/data"}],
}
NETWORK = {"existing": {"network": "n", "subnetwork": "s"}, "services_cidr": "10.128.0.0/20"}
SHARED = {"main": {"nodesets": ["a3"], "default": True}}
GROWING = {**A3, "count": {"min": 2, "max": 16}, "capacity": [{"reservation": "mine"}, "spot"]}
ALICE, BOB = {"name": "alice", "uid": 2001, "sudo": True}, {"name": "bob", "uid": 2002}
AT_BOOT: dict[str, Any] = {
    "nodesets": {"cpu": {"machine_type": "c2-standard-8", "count": {"min": 0, "max": 4}}},
    "partitions": CPU,
    "image": {"base": "ubuntu-2404"},
    "slurm": {"join_seconds": 1800},
}


def elastic(**changes: Any) -> dict[str, Any]:
    return {"nodesets": {"a3": GROWING}, **changes}


def reconciled(mode: str) -> dict[str, Any]:
    return {"slurm": {**RXDM, "reconcile": {"mode": mode}}}


CASES: dict[str, dict[str, Any]] = {
    "elastic nodes": elastic(),
    "elastic nodes of no partition": elastic(
        nodesets={"a3": GROWING, "cpu": {}}, partitions={"main": {"nodesets": ["cpu"], "default": True}}, slurm={}
    ),
    "idle times of one partition": elastic(
        nodesets={"a3": GROWING, "cpu": {"count": {"min": 0, "max": 9}, "idle": "1h"}},
        partitions={"main": {"nodesets": ["a3", "cpu"], "default": True, "exclusive": True}},
        slurm={},
    ),
    "an idle time shorter than a boot": elastic(nodesets={"a3": {**GROWING, "idle": "90s"}}),
    "elastic nodes of a loop that is off": elastic(**reconciled("off")),
    "elastic nodes of a loop that advises": elastic(**reconciled("advise")),
    "a spare of a loop that is off": {"nodesets": {"a3": {**A3, "spare": 1}}, **reconciled("off")},
    "root where machines are created from": elastic(login={"on": "controller"}, users=[ALICE, BOB]),
    "nobody is root there": elastic(login={"on": "controller"}, users=[{**ALICE, "sudo": False}]),
    "root on a login machine": elastic(users=[ALICE]),
    "root where no machine is created from": {"login": {"on": "controller"}, "users": [ALICE]},
    "elastic nodes that install at each boot": AT_BOOT,
    "elastic nodes of an image": {**AT_BOOT, "image": {"base": "ubuntu-2404", "name": "ours-1"}},
    "elastic nodes that join in time": {**AT_BOOT, "slurm": {"join_seconds": 600}},
    "elastic nodes that Slurm waits for": {
        **AT_BOOT,
        "partitions": {"cpu": {**CPU["cpu"], "conf": {"ResumeTimeout": 1800}}},
    },
    "nodes with rxdm": {},
    "managed Lustre": {"storage": {"lustre": MANAGED}},
    "EXAScaler Lustre": {"storage": {"lustre": EXASCALER}},
    # A job without a limit would never start on nodes that end.
    "nodes of flex start": capacity(FLEX),
    "nodes of flex start with a default time": capacity(FLEX, default_time="1-00:00:00"),
    "nodes of flex start with a longest time": capacity(FLEX, max_time="1-00:00:00"),
    "nodes of a calendar": capacity(WEEK),
    "nodes of a calendar with a default time": capacity(WEEK, default_time="1-00:00:00"),
    "nodes of a calendar with a longest time": capacity(WEEK, max_time="1-00:00:00"),
    "a calendar of unknown end": capacity({"calendar": "week"}),
    "file systems that a network of the stack's own may not reach": {"storage": ELSEWHERE},
    "file systems in the network of the machines": {"storage": ELSEWHERE, "network": NETWORK},
    "a recipe of long ago": {"storage": {"lustre": MANAGED}, "image": OLD},
    "an image of one's own": {"storage": {"lustre": MANAGED}, "image": {**OLD, "name": "mine"}},
    "jobs that share a node": {"partitions": SHARED},
    "A3 Mega nodes without rxdm": {"slurm": {}},
    "A3 Mega nodes that are also in a partition without it": {"partitions": {**MEGA["partitions"], **OTHER}},
    "timers that are too short for its containers": {"slurm": {"rxdm": RXDM["rxdm"], "timers": {"prolog_epilog": 120}}},
    "nodes without GPUs": {"nodesets": {"cpu": {"count": 1}}, "partitions": CPU, "slurm": {}},
    "a warm-up of rxdm": {"slurm": {**RXDM, "warm_up": {}}},
    "a warm-up of a partition without rxdm": {
        "slurm": {**RXDM, "warm_up": {"partitions": ["other"]}},
        "partitions": {**MEGA["partitions"], **OTHER},
    },
}
CLOSED = {"nodesets": ["cpu"], "allow_accounts": ["ml"], "default": True}
IMAGES_OF_ML = {
    "accounting": {"accounts": [{"name": "ml"}]},
    "slurm": {"warm_up": {"containers": ["alpine:3.20"]}},
}
BOTH = {"partitions": {"cpu": CLOSED, "open": {"nodesets": ["cpu"]}}, **IMAGES_OF_ML}
LOCAL: dict[str, dict[str, Any]] = {
    "nodes that a rehearsal with rxdm shares": {
        "slurm": {"rxdm": {"partitions": ["cpu"], "file": "lab/slurm/rxdm.sh"}}
    },
    "a warm-up of nothing": {"slurm": {"warm_up": {}}},
    "a warm-up of an image": {"slurm": {"warm_up": {"containers": ["alpine:3.20"]}}},
    "a warm-up in a partition that root may not use": {"partitions": {"cpu": CLOSED}, **IMAGES_OF_ML},
    "a warm-up in one of two that root may use": BOTH,
}


def test_warnings_are_those_that_were_reviewed(reviewed: Reviewed) -> None:
    found = {case: find_warnings(google(**{**MEGA, "slurm": RXDM, **given})) for case, given in CASES.items()}
    found |= {case: find_warnings(cluster(**given)) for case, given in LOCAL.items()}
    found |= {f"the stack {name}": find_warnings(config(name)) for name in EVERY if not name.startswith("example-")}
    reviewed("refused/warned", {case: "\n".join(map(str, every)) for case, every in found.items()})


def test_a_warm_up_uses_a_partition_that_admits_root() -> None:
    config = cluster(**BOTH)
    assert config.slurm.warm_up
    (part, *_) = warm_up(config, config.slurm.warm_up)["partitions"]
    assert part["name"] == "open"


class TestKernel:
    @pytest.mark.parametrize(("day", "expected"), [("2027-03-20", 0), ("2027-03-21", 1)])
    def test_the_newest_kernel_has_a_warning_when_old(self, monkeypatch: pytest.MonkeyPatch, day: str, expected: int):
        monkeypatch.setattr(checks, "today", lambda: datetime.fromisoformat(day))
        found = find_warnings(google(**MEGA, slurm=RXDM, storage={"lustre": MANAGED}, image={"base": "ubuntu-2204"}))
        assert [finding.id for finding in found] == ["kernel-old"] * expected
        assert all("a newer version of this program" in finding.todo for finding in found)


class TestSlurmsSupport:
    @staticmethod
    def found(day: str, **changes: Any) -> list[str]:
        return [
            f"{finding.what}; {finding.todo}"
            for finding in settings_checks.end_of_support(google(**changes), date.fromisoformat(day))
        ]

    def test_a_release_has_a_warning_from_two_months_before_its_end(self):
        chosen = {"image": {"base": "ubuntu-2204"}, "slurm": {"version": "25.05"}}
        assert self.found("2026-09-30", **chosen) == []
        (before,) = self.found("2026-10-01", **chosen)
        assert before.startswith("SchedMD's support for Slurm 25.05 ends on 2026-11-30: ")
        assert before.endswith("; go to Slurm 26.05; `preview` says what the upgrade does")
        (after,) = self.found("2026-12-01", **chosen)
        assert "25.05 ended on 2026-11-30" in after

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

    def test_the_release_of_pods_depends_on_the_version_of_soperator(self):
        pods = config("nebius")
        (found,) = settings_checks.end_of_support(pods, date(2027, 5, 1))
        assert pods.slurm_version == "25.11"
        assert found.todo == "take a version of soperator that has Slurm 26.05: it brings Slurm"

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
