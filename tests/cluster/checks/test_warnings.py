"""What a stack is warned of: the case itself, and nothing where all is as it should be."""

import re
from datetime import date, datetime
from typing import Any, ClassVar

import pytest

from cluster.catalog import IMAGES
from cluster.catalog.slurm_releases import SUPPORT_ENDS
from cluster.checks import settings as settings_checks
from cluster.jobs.warm_up import warm_up
from cluster.load import find_warnings, parse
from cluster.platforms.gcp import checks
from tests.clouds import A3, EXASCALER, MANAGED, google, settings
from tests.cluster.stacks import EVERY, cluster, config

MEGA: dict[str, Any] = {
    "nodesets": {"a3": A3},
    "partitions": {"main": {"nodesets": ["a3"], "default": True, "exclusive": True}},
}
RXDM: dict[str, Any] = {"rxdm": {"partitions": ["main"]}, "timers": {"batch_start": 600, "prolog_epilog": 600}}
OLD = {"base": "ubuntu-2204", "recipe": "2025-01"}
OTHER = {"other": {"nodesets": ["a3"], "exclusive": True}}


def warned(**changes: Any) -> dict[str, str]:
    """Place and text of each warning of a cluster of A3 Mega nodes."""
    found = find_warnings(google(**{**MEGA, "slurm": RXDM, **changes}))
    return {".".join(map(str, one.at)): one.what for one in found}


@pytest.mark.parametrize("name", [name for name in EVERY if not name.startswith("example-")])
def test_the_stacks_that_are_here_to_start_from_use_their_gpu_networks(name):
    assert list(map(str, checks.rxdm_warnings(config(name)))) == []


class TestExascaler:
    def test_it_stands_on_what_google_supports_no_longer(self):
        (what,) = [what for at, what in warned(storage={"lustre": EXASCALER}).items() if at == "storage.lustre.kind"]
        assert "Runtime Configurator, which is out of support since 31 December 2025" in what

    def test_the_stack_that_is_recommended_is_warned_of_nothing(self):
        assert warned(storage={"lustre": MANAGED}) == {}
        assert find_warnings(config("a3mega-managed")) == []
        assert [".".join(map(str, one.at)) for one in find_warnings(config("a3mega"))] == ["storage.lustre.kind"]


class TestEnds:
    """Nodes whose machines the platform deletes at a known time."""

    def warned(self, capacity: dict[str, Any], **partition: str) -> dict[str, str]:
        main = {"nodesets": ["a3"], "default": True, "exclusive": True, **partition}
        return warned(nodesets={"a3": {**A3, "capacity": capacity}}, partitions={"main": main})

    def test_a_job_without_a_limit_would_never_start_on_them(self):
        for capacity in ({"flex": {}}, {"calendar": {"name": "week", "ends": "20261201T080000Z"}}):
            found = self.warned(capacity)
            assert "never start on a3, whose machines end" in found["partitions.main.default_time"]
            assert self.warned(capacity, default_time="1-00:00:00") == {}
            assert self.warned(capacity, max_time="1-00:00:00") == {}

    def test_a_calendar_of_unknown_end_is_a_warning(self):
        assert "before week ends" in self.warned({"calendar": "week"})["nodesets.a3.capacity.calendar"]


class TestExistingFileSystems:
    NFS: ClassVar[list[dict[str, str]]] = [{"server": "10.128.4.2", "path": "/shared", "mount": "/data"}]
    LUSTRE: ClassVar[dict[str, str]] = {"kind": "managed", "existing": "10.128.0.3", "fsname": "lustre"}

    def test_a_network_of_the_stacks_own_may_not_reach_them(self):
        found = warned(storage={"lustre": self.LUSTRE, "nfs": self.NFS})
        assert list(found) == ["storage.lustre.existing", "storage.nfs.0"]
        assert "from which 10.128.4.2 is reached only if you connect the two" in found["storage.nfs.0"]

    def test_the_network_that_they_are_in_does(self):
        network = {"existing": {"network": "n", "subnetwork": "s"}, "services_cidr": "10.128.0.0/20"}
        assert warned(storage={"lustre": self.LUSTRE, "nfs": self.NFS}, network=network) == {}


class TestKernel:
    def test_a_recipe_of_long_ago_is_a_warning(self):
        (what,) = [what for at, what in warned(storage={"lustre": MANAGED}, image=OLD).items() if at == "image.recipe"]
        assert re.fullmatch("kernel 6.8.0-1021-gcp of recipe 2025-01 is of 2025-01-28, [0-9]+ days ago: .*", what)

    @pytest.mark.parametrize(("day", "expected"), [("2027-03-20", 0), ("2027-03-21", 1)])
    def test_the_newest_gets_old_as_well(self, monkeypatch: pytest.MonkeyPatch, day: str, expected: int):
        monkeypatch.setattr(checks, "today", lambda: datetime.fromisoformat(day))
        found = find_warnings(google(**MEGA, slurm=RXDM, storage={"lustre": MANAGED}, image={"base": "ubuntu-2204"}))
        assert [one.id for one in found] == ["kernel-old"] * expected
        assert all("a newer version of this program" in one.todo for one in found)

    def test_what_an_image_of_ones_own_has_is_not_known(self):
        assert warned(storage={"lustre": MANAGED}, image={**OLD, "name": "mine"}) == {}


class TestSlurmsSupport:
    @staticmethod
    def found(day: str, **changes: Any) -> list[str]:
        return [
            f"{one.what}; {one.todo}"
            for one in settings_checks.end_of_support(google(**changes), date.fromisoformat(day))
        ]

    def test_a_release_is_warned_of_two_months_before_its_end(self):
        chosen = {"image": {"base": "ubuntu-2204"}, "slurm": {"version": "25.05"}}
        assert self.found("2026-09-30", **chosen) == []
        (before,) = self.found("2026-10-01", **chosen)
        assert before.startswith("SchedMD's support for Slurm 25.05 ends on 2026-11-30: ")
        assert before.endswith("; go to Slurm 26.05; `preview` says what the upgrade does")
        (after,) = self.found("2026-12-01", **chosen)
        assert "25.05 ended on 2026-11-30" in after

    def test_the_newest_gets_old_as_well(self):
        (found,) = self.found("2027-12-01", image={"base": "ubuntu-2204"})
        assert found.endswith("; update this program")

    def test_of_pods_the_operators_version_decides(self):
        pods = config("nebius")
        (found,) = settings_checks.end_of_support(pods, date(2027, 5, 1))
        assert pods.slurm_version == "25.11"
        assert found.todo == "take a version of soperator that has Slurm 26.05: it brings Slurm"

    def test_the_default_of_an_image_that_is_built_is_the_newest(self):
        built = [image for image in IMAGES.values() if image.built and image.name != "soperator"]
        assert [image.slurm_versions[0] for image in built] == [max(SUPPORT_ENDS)] * len(built)

    def test_a_distribution_mends_its_own(self):
        assert self.found("2030-01-01", image={"base": "ubuntu-2404"}) == []


class TestZones:
    @staticmethod
    def warned(zone: str, **changes: Any) -> list[str]:
        return list(map(str, checks.zone_warnings(parse({**settings(**changes), "gcp:zone": zone}))))

    def test_one_that_is_not_known_to_have_the_machines(self):
        (one,) = self.warned("us-west4-b", **MEGA)
        assert one.startswith(
            "gcp:zone: us-west4-b is not known to have a3-megagpu-8g; zones that have it: us-central1-a, "
        )
        assert one.endswith(
            " To do: take one of these, unless `gcloud compute machine-types list --filter zone:us-west4-b` shows "
            "a3-megagpu-8g."
        )

    def test_one_that_is_not_known_to_have_the_gpus(self):
        nodesets = {"gpu": {"machine_type": "n1-standard-4", "gpus": {"type": "t4", "count": 1}}}
        (one,) = self.warned("us-central1-d", nodesets=nodesets)
        assert "not known to have t4; zones that have it: us-central1-a" in one
        assert "accelerator-types list --filter zone:us-central1-d" in one

    def test_machines_that_nobody_looked_up(self):
        assert self.warned("europe-west12-a") == []

    def test_one_that_has_them(self):
        assert self.warned("us-west4-a", **MEGA) == []


class TestRxdm:
    def test_a_partition_as_it_should_be(self):
        assert warned() == {}

    def test_jobs_that_share_a_node(self):
        (at, what), *rest = warned(partitions={"main": {"nodesets": ["a3"], "default": True}}).items()
        assert (at, rest) == ("partitions.main.exclusive", [])
        assert "the prolog of the second stops the container of the first" in what

    def test_a3_mega_nodes_without_it(self):
        assert "partition main use plain TCP" in warned(slurm={})["slurm.rxdm"]

    def test_a3_mega_nodes_that_are_also_in_a_partition_without_it(self):
        (what,) = warned(partitions={**MEGA["partitions"], **OTHER}).values()
        assert "jobs of partition other use plain TCP between the A3 Mega nodes of a3" in what

    def test_timers_that_are_too_short_for_its_containers(self):
        assert set(warned(slurm={"rxdm": RXDM["rxdm"], "timers": {"prolog_epilog": 120}})) == {
            "slurm.timers.prolog_epilog",
            "slurm.timers.batch_start",
        }

    def test_nodes_without_gpus_need_none(self):
        assert find_warnings(google()) == []

    def test_a_rehearsal_is_warned_of_shared_nodes_alone(self):
        found = find_warnings(cluster(slurm={"rxdm": {"partitions": ["cpu"], "file": "lab/slurm/rxdm.sh"}}))
        assert [one.at for one in found] == [("partitions", "cpu", "exclusive")]

    def test_it_says_where_what_and_what_to_do(self):
        (one,) = find_warnings(google(**MEGA))
        assert str(one).startswith("hpc:cluster.slurm.rxdm: jobs of partition main use plain TCP")
        assert str(one).endswith("To do: add main to slurm.rxdm.partitions.")


class TestWarmUp:
    def test_with_nothing_to_download_it_does_nothing(self):
        (one,) = find_warnings(cluster(slurm={"warm_up": {}}))
        assert (one.id, one.at) == ("warm-up-nothing", ("slurm", "warm_up"))
        assert warned(slurm={**RXDM, "warm_up": {"partitions": ["other"]}}, partitions={**MEGA["partitions"], **OTHER})

    def test_partitions_that_root_may_not_use_are_named(self):
        accounts = {"accounting": {"accounts": [{"name": "ml"}]}, "slurm": {"warm_up": {"containers": ["alpine:3.20"]}}}
        closed = {"nodesets": ["cpu"], "allow_accounts": ["ml"]}
        (one,) = find_warnings(cluster(partitions={"cpu": {**closed, "default": True}}, **accounts))
        assert one.id == "warm-up-closed"
        assert "may not run in cpu" in one.what
        both = {"cpu": {**closed, "default": True}, "open": {"nodesets": ["cpu"]}}
        assert find_warnings(cluster(partitions=both, **accounts)) == []
        found = cluster(partitions=both, **accounts)
        assert found.slurm.warm_up
        (part, *_) = warm_up(found, found.slurm.warm_up)["partitions"]
        assert part["name"] == "open"

    def test_images_or_rxdm_are_something(self):
        assert find_warnings(cluster(slurm={"warm_up": {"containers": ["alpine:3.20"]}})) == []
        assert warned(slurm={**RXDM, "warm_up": {}}) == warned()
