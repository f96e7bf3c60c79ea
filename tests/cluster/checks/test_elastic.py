"""Elastic nodesets: allowed settings, and the lines of a preview about them."""

from typing import Any, ClassVar

import pytest

from cluster.config.impact_annotations import Effect
from cluster.impact.table import effects
from cluster.platforms.gcp import checks
from cluster.platforms.gcp.address_plan import room
from cluster.platforms.gcp.permissions import BINDINGS, policies, reconcile_condition
from cluster.platforms.gcp.request import describe_request, elastic_requests
from tests.clouds import A3, google, unchecked
from tests.cluster.stacks import cloud_findings, findings, nodeset

GROWING: dict[str, Any] = A3 | {"count": {"min": 2, "max": 16}, "capacity": [{"reservation": "mine"}, "spot"]}


FLEX = {"flex": {"max_run": "2-00:00:00"}}
SOUND: dict[str, dict[str, Any]] = {
    "elastic nodes": {},
    "a spare of two nodes": {"nodesets": {"a3": A3 | {"count": 2, "spare": 1}}},
    "a spare less than nodes": {"nodesets": {"a3": GROWING | {"spare": 15}}},
    "power saving of one's own": {"slurm": {"extra": {"suspendprogram": "/sbin/off"}}, "nodesets": {"a3": A3}},
    "a calendar of static nodes": {"nodesets": {"a3": A3 | {"capacity": {"calendar": "week"}}}},
    "flex start as the last way": {"nodesets": {"a3": GROWING | {"capacity": [{"reservation": "mine"}, "spot", FLEX]}}},
    "flex start alone": {"nodesets": {"a3": GROWING | {"capacity": [FLEX]}}},
}


@pytest.mark.parametrize("case", SOUND)
def test_allowed_settings_have_no_errors(case: str) -> None:
    partition = {"nodesets": ["a3"], "default": True, "max_time": "1-23:45:00"}
    assert cloud_findings({"nodesets": {"a3": GROWING}, "partitions": {"a": partition}, **SOUND[case]}) == {}


@pytest.mark.parametrize(("base", "words"), [("debian-12", "jobs,cloud"), ("debian-13", "jobs,usage")])
def test_private_data_with_cloud_or_on_a_later_release_is_allowed(base: str, words: str) -> None:
    given = {"image": {"base": base}, "slurm": {"extra": {"privatedata": words}}}
    assert findings(**nodeset(count={"min": 0, "max": 2}), **given) == {}


class TestGoogleCloud:
    def test_a_preview_has_the_largest_cost_of_elastic_nodes(self) -> None:
        lines = describe_request(unchecked(nodesets={"a3": GROWING}))
        assert any(line.startswith("2 x a3-megagpu-8g: nodeset a3, from reservation mine") for line in lines)
        (up_to, most) = (line for line in lines if "elastic" in line)
        assert up_to == (
            "up to 14 x a3-megagpu-8g: elastic nodes of a3, deleted after 10m idle, from reservation mine, then spot; "
            "2912 CPUs, 112 GPUs (h100)"
        )
        assert most == (
            "elastic nodes add at most 14 machines, 112 GPUs, 126 internal addresses, 84,000 GB of local SSD, "
            "2,800 GB of pd-ssd"
        )

    def test_a_preview_has_the_cost_of_spares(self) -> None:
        lines = describe_request(unchecked(nodesets={"a3": A3 | {"count": 4, "spare": 1}}))
        (spare,) = (line for line in lines if "spare" in line)
        assert spare == (
            "1 of the 4 nodes of a3 take no jobs until another is out of service: spares are paid for while their "
            "machines are there"
        )

    def test_a_nodeset_without_static_nodes_requests_only_elastic_ones(self) -> None:
        config = unchecked(nodesets={"cpu": {"count": {"min": 0, "max": 4}}})
        assert not any("nodeset cpu" in line for line in describe_request(config))
        assert [row.count for row in elastic_requests(config)] == [4]

    def test_the_address_plan_has_room_for_all_elastic_nodes(self) -> None:
        fixed, some = google(nodesets={"a3": A3 | {"count": 16}}), unchecked(nodesets={"a3": GROWING})
        assert room(some) == room(fixed)

    def test_placement_policies_include_elastic_nodes(self) -> None:
        none = unchecked(nodesets={"a3": GROWING | {"count": {"min": 0, "max": 4}}})
        assert policies(none) == policies(google(nodesets={"a3": A3}))

    def test_a_preview_has_the_queue_and_the_cost_of_flex_start(self) -> None:
        lines = describe_request(unchecked(nodesets={"a3": GROWING | {"capacity": ["spot", "flex"]}}))
        (line,) = (line for line in lines if "queue" in line)
        assert line == (
            "jobs on a3 may wait for hours in the queue of flex start, which costs nothing; then all machines of a job "
            "are paid for until it has ended and they were idle, 7-00:00:00 at most"
        )

    def test_a_role_is_bound_for_a_limited_number_of_nodesets(self) -> None:
        def found(count: int) -> list[str]:
            nodesets = {f"n{number}": GROWING for number in range(count)}
            return [
                finding.id
                for finding in checks.find_errors(unchecked(nodesets=nodesets))
                if finding.id == "elastic-many"
            ]

        assert (found(BINDINGS), found(BINDINGS + 1)) == ([], ["elastic-many"])
        condition = reconcile_condition(unchecked(nodesets={"a3": GROWING}), "a3")
        assert condition.count("&&") + condition.count("||") <= 12

    CLOSE: ClassVar = {"placement": {"max_distance": 2}}

    @pytest.mark.parametrize(
        ("old", "new", "effect"),
        [
            # The policy that instances are in can't be deleted.
            ([{"spot": CLOSE}], ["spot"], Effect.REFUSED),
            (["spot", {"on_demand": CLOSE}], ["spot"], Effect.REFUSED),
            ([{"spot": CLOSE}], [{"spot": CLOSE}, "on_demand"], Effect.NOTHING),
            (["spot", "on_demand"], ["spot", {"reservation": "mine"}], Effect.NOTHING),
            (["spot", "on_demand"], ["on_demand", "spot"], Effect.REPLACE),
        ],
    )
    def test_another_list_of_capacities_has_an_effect(self, old: Any, new: Any, effect: Effect) -> None:
        before, after = (unchecked(nodesets={"a3": GROWING | {"capacity": ways}}) for ways in (old, new))
        assert [change.effect for change in effects(before, after, "a3")] == [effect]


def test_another_machine_type_recreates_static_nodes_at_once_and_elastic_ones_at_their_next_start() -> None:
    def reason(**count: int) -> str:
        before, after = (
            unchecked(nodesets={"cpu": {"count": count, "machine_type": kind}})
            for kind in ("n2-standard-2", "n2-standard-4")
        )
        return next(change.reason for change in effects(before, after, "x") if change.path.endswith("machine_type"))

    assert reason(min=2, max=4).startswith("cloud-cpu-[0-1] is recreated, a part of each partition at a time; a node")
    assert reason(min=0, max=4).startswith("elastic nodes have it from their next start on")
