"""Elastic nodesets: what the file may say of them, what is warned of, and the most that they may cost."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from cluster.checks import elastic
from cluster.config.impact import Effect
from cluster.impact.table import effects
from cluster.load import validate
from cluster.platforms import registry
from cluster.platforms.gcp import checks
from cluster.platforms.gcp.address_plan import room
from cluster.platforms.gcp.permissions import BINDINGS, policies, reconcile_condition
from cluster.platforms.gcp.request import describe_request, elastic_asks
from tests.clouds import A3, google, unchecked
from tests.cluster.stacks import local

GROWING: dict[str, Any] = A3 | {"count": {"min": 2, "max": 16}, "capacity": [{"reservation": "mine"}, "spot"]}


def found(of: Any, **changes: Any) -> dict[str, str]:
    config = unchecked(**{"nodesets": {"a3": GROWING}, **changes})
    return {one.id: ".".join(map(str, one.at)) for one in of(config) if one.id != "elastic-platform"}


def test_a_sound_elastic_nodeset_is_neither_refused_nor_warned_of() -> None:
    assert (found(elastic.find_errors), found(elastic.find_warnings)) == ({}, {})


def test_a_platform_without_elastic_nodes_refuses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    real = registry.get
    monkeypatch.setattr(elastic.registry, "get", lambda name: replace(real(name), elastic=False))
    (one,) = elastic.find_errors(unchecked(nodesets={"a3": GROWING | {"capacity": None}}))
    assert (one.id, one.given, one.todo[:18]) == ("elastic-platform", "{min: 2, max: 16}", "write `count: 16`,")


def test_a_way_stands_once() -> None:
    ways = [{"reservation": "mine"}, "spot", {"spot": {}}]
    given = found(elastic.find_errors, nodesets={"a3": GROWING | {"capacity": ways}})
    assert given == {"elastic-capacity-twice": "nodesets.a3.capacity.2"}


def test_a_spare_leaves_a_node_for_jobs() -> None:
    assert found(elastic.find_errors, nodesets={"a3": A3 | {"count": 2, "spare": 2}}) == {
        "spare-count": "nodesets.a3.spare"
    }
    assert found(elastic.find_errors, nodesets={"a3": A3 | {"count": 2, "spare": 1}}) == {}
    assert found(elastic.find_errors, nodesets={"a3": GROWING | {"spare": 15}}) == {}


def test_a_spare_is_kept_by_the_loop() -> None:
    changes = {"nodesets": {"a3": A3 | {"count": 2, "spare": 1}}, "slurm": {"reconcile": {"mode": "off"}}}
    assert found(elastic.find_warnings, **changes) == {"spare-reconcile-off": "slurm.reconcile.mode"}


def test_what_power_saving_depends_on_is_not_set_elsewhere() -> None:
    extra = {"suspendprogram": "/usr/local/sbin/off", "SuspendTimeout": 300}
    assert found(elastic.find_errors, slurm={"extra": extra}) == {
        "elastic-parameter": "slurm.extra.suspendprogram",
    }
    assert found(elastic.find_errors, slurm={"extra": extra}, nodesets={"a3": A3}) == {}


def test_private_data_does_not_hide_sleeping_nodes() -> None:
    nodesets, partitions = {"cpu": {"count": {"min": 0, "max": 2}}}, {"cpu": {"nodesets": ["cpu"], "default": True}}
    for base, words, expected in (
        ("debian-12", "jobs,usage", ["elastic-private-data"]),
        ("debian-12", "jobs,cloud", []),
        ("debian-13", "jobs,usage", []),
    ):
        given = {"image": {"base": base}, "slurm": {"extra": {"privatedata": words}}}
        config = validate(local(nodesets=nodesets, partitions=partitions, **given))
        assert [one.id for one in elastic.find_errors(config)] == expected


def test_no_job_can_ask_for_nodes_of_no_partition() -> None:
    partitions = {"main": {"nodesets": ["cpu"], "default": True}}
    given = found(elastic.find_warnings, nodesets={"a3": GROWING, "cpu": {}}, partitions=partitions)
    assert given == {"elastic-partition-missing": "nodesets.a3"}


def test_nodesets_of_one_partition_share_its_longest_idle_time() -> None:
    nodesets = {"a3": GROWING, "cpu": {"count": {"min": 0, "max": 9}, "idle": "1h"}}
    assert found(elastic.find_warnings, nodesets=nodesets) == {"elastic-idle-shared": "nodesets.a3.idle"}


def test_machines_are_not_deleted_in_less_than_they_take_to_boot() -> None:
    given = found(elastic.find_warnings, nodesets={"a3": GROWING | {"idle": "90s"}})
    assert given == {"elastic-idle-short": "nodesets.a3.idle"}


def test_a_loop_that_is_off_creates_nothing() -> None:
    for mode in ("off", "advise"):
        given = found(elastic.find_warnings, slurm={"reconcile": {"mode": mode}})
        assert given == {"elastic-reconcile-off": "slurm.reconcile.mode"}


class TestGoogleCloud:
    def test_a_preview_has_the_most_that_elastic_nodes_may_cost(self) -> None:
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

    def test_a_preview_says_which_nodes_are_paid_for_without_jobs(self) -> None:
        lines = describe_request(unchecked(nodesets={"a3": A3 | {"count": 4, "spare": 1}}))
        (spare,) = (line for line in lines if "spare" in line)
        assert spare == (
            "1 of the 4 nodes of a3 take no jobs until another is out of service: spares are paid for while their "
            "machines are there"
        )

    def test_a_nodeset_without_static_nodes_asks_for_none(self) -> None:
        config = unchecked(nodesets={"cpu": {"count": {"min": 0, "max": 4}}})
        assert not any("nodeset cpu" in line for line in describe_request(config))
        assert [one.count for one in elastic_asks(config)] == [4]

    def test_the_address_plan_has_room_for_all_of_them(self) -> None:
        fixed, some = google(nodesets={"a3": A3 | {"count": 16}}), unchecked(nodesets={"a3": GROWING})
        assert room(some) == room(fixed)

    def test_policies_hold_for_machines_that_are_not_there_yet(self) -> None:
        none = unchecked(nodesets={"a3": GROWING | {"count": {"min": 0, "max": 4}}})
        assert policies(none) == policies(google(nodesets={"a3": A3}))

    def test_machines_that_are_paid_for_anyway_do_not_come_and_go(self) -> None:
        way = {"calendar": "week"}
        nodesets = {"a3": GROWING | {"capacity": ["spot", way]}}
        (finding,) = [one for one in checks.find_errors(unchecked(nodesets=nodesets)) if one.id.startswith("elastic")]
        assert (finding.id, finding.at) == ("elastic-calendar", ("nodesets", "a3", "capacity", 1, "calendar"))
        assert "count: 16" in finding.todo
        fixed = google(nodesets={"a3": A3 | {"capacity": way}}, partitions={"a": {"nodesets": ["a3"], "default": True}})
        assert not [one for one in checks.find_errors(fixed) if one.id.startswith("elastic")]

    def flexes(self, *ways: Any, max_time: str = "1-00:00:00") -> list[Any]:
        of = unchecked(
            nodesets={"a3": GROWING | {"capacity": list(ways)}},
            partitions={"a": {"nodesets": ["a3"], "default": True, "max_time": max_time}},
        )
        return [one for one in checks.find_errors(of) if one.id.startswith("elastic-flex")]

    def test_flex_start_is_the_last_way(self) -> None:
        flex = {"flex": {"max_run": "2-00:00:00"}}
        assert self.flexes({"reservation": "mine"}, "spot", flex) == self.flexes(flex) == []
        (one,) = self.flexes(flex, "spot")
        assert (one.id, one.at) == ("elastic-flex", ("nodesets", "a3", "capacity", 0))

    @pytest.mark.parametrize(("limit", "refused"), [("1-23:45:00", False), ("1-23:46:00", True), ("INFINITE", True)])
    def test_no_job_can_ask_for_more_time_than_machines_are_held(self, limit: str, refused: bool) -> None:
        found = self.flexes("spot", {"flex": {"max_run": "2-00:00:00"}}, max_time=limit)
        assert [(one.id, one.at, one.todo) for one in found] == [
            ("elastic-flex-time", ("partitions", "a", "max_time"), 'write `max_time: "1-23:45:00"`')
        ] * refused
        assert self.flexes("spot", max_time=limit) == []

    def test_a_preview_says_what_waits_and_what_it_costs(self) -> None:
        lines = describe_request(unchecked(nodesets={"a3": GROWING | {"capacity": ["spot", "flex"]}}))
        (line,) = (line for line in lines if "queue" in line)
        assert line == (
            "jobs on a3 may wait for hours in the queue of flex start, which costs nothing; then all machines of a job "
            "are paid for until it has ended and they were idle, 7-00:00:00 at most"
        )

    def test_iam_binds_a_role_for_so_many_nodesets(self) -> None:
        def found(count: int) -> list[str]:
            nodesets = {f"n{number}": GROWING for number in range(count)}
            return [one.id for one in checks.find_errors(unchecked(nodesets=nodesets)) if one.id == "elastic-many"]

        assert (found(BINDINGS), found(BINDINGS + 1)) == ([], ["elastic-many"])
        condition = reconcile_condition(unchecked(nodesets={"a3": GROWING}), "a3")
        assert condition.count("&&") + condition.count("||") <= 12

    def test_users_who_are_root_where_machines_are_created_from_are_warned_of(self) -> None:
        alice = {"name": "alice", "uid": 2001, "sudo": True}
        on = {"nodesets": {"a3": GROWING}, "login": {"on": "controller"}}

        def warned(**changes: Any) -> list[str]:
            return [
                one.what for one in checks.find_warnings(unchecked(**{**on, **changes})) if one.id == "elastic-login"
            ]

        (what,) = warned(users=[alice, {"name": "bob", "uid": 2002}])
        assert what.startswith("alice can become root on the controller")
        assert warned(users=[alice | {"sudo": False}]) == []
        assert warned(users=[alice], login={}) == []
        assert warned(users=[alice], nodesets={"a3": A3}) == []

    def test_machines_that_install_at_each_boot_are_awaited_long_enough(self) -> None:
        def warned(**changes: Any) -> list[str]:
            cpu = {"machine_type": "c2-standard-8", "count": {"min": 0, "max": 4}}
            given = {"nodesets": {"cpu": cpu}, "image": {"base": "ubuntu-2404"}, "slurm": {"join_seconds": 1800}}
            return [one.what for one in checks.find_warnings(unchecked(**{**given, **changes})) if "install" in one.id]

        (what,) = warned()
        assert what.endswith("for up to 1800 s (slurm.join_seconds), and Slurm waits 900 s for a node")
        assert warned(image={"base": "ubuntu-2404", "name": "ours-1"}) == []
        assert warned(slurm={"join_seconds": 600}) == []
        main = {"main": {"nodesets": ["cpu"], "default": True, "conf": {"ResumeTimeout": 1800}}}
        assert warned(partitions=main) == []

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
    def test_what_another_list_of_ways_does(self, old: Any, new: Any, effect: Effect) -> None:
        before, after = (unchecked(nodesets={"a3": GROWING | {"capacity": ways}}) for ways in (old, new))
        assert [change.effect for change in effects(before, after, "a3")] == [effect]


def test_another_type_recreates_static_nodes_and_waits_for_the_next_start_of_elastic_ones() -> None:
    def reason(**count: int) -> str:
        before, after = (
            unchecked(nodesets={"cpu": {"count": count, "machine_type": kind}})
            for kind in ("n2-standard-2", "n2-standard-4")
        )
        return next(one.reason for one in effects(before, after, "x") if one.path.endswith("machine_type"))

    assert reason(min=2, max=4).startswith("cloud-cpu-[0-1] is recreated, a part of each partition at a time; a node")
    assert reason(min=0, max=4).startswith("elastic nodes have it from their next start on")
