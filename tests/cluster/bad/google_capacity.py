"""Google Cloud: how machines are asked for. Cases as in google_machines.py."""

from typing import Any

from tests.clouds import A3

Changes = dict[str, Any]
CLOSE = {"placement": {"max_distance": 2}}
ELSEWHERE = "projects/other-project/regions/us-central1/resourcePolicies/tight"


def a3(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"a3": {**A3, **({"capacity": capacity} if capacity else {}), **keys}}}


def cpu(capacity: Any = None, **keys: Any) -> Changes:
    return {"nodesets": {"cpu": {**({"capacity": capacity} if capacity else {}), **keys}}}


CASES = {
    "a reservation with placement": (
        a3({"reservation": "mine", **CLOSE}),
        "nodesets.a3.capacity",
        "{reservation: mine, placement: {max_distance: 2}}",
        "placement within on_demand or spot",
        "a reservation brings its own",
    ),
    "a placement policy beside a reservation": (
        a3({"reservation": "mine", "placement_policy": "tight"}),
        "nodesets.a3.capacity",
        "{reservation: mine, placement_policy: tight}",
        "placement_policy within reservation",
        "the reservation's own",
    ),
    "a placement policy of spot machines": (
        a3({"spot": {}, "placement_policy": "tight"}),
        "nodesets.a3.capacity",
        "{spot: {}, placement_policy: tight}",
        "placement_policy within reservation",
        "`placement` keeps machines close without",
    ),
    "a placement in a reservation": (
        a3({"reservation": {"name": "mine", **CLOSE}}),
        "nodesets.a3.capacity.reservation.placement",
        "placement: {max_distance: 2}",
        "the keys name, placement_policy",
        "write `placement_policy:`",
    ),
    "a placement policy that is no name": (
        a3({"reservation": {"name": "mine", "placement_policy": "projects/my-project/tight"}}),
        "nodesets.a3.capacity.reservation.placement_policy",
        "projects/my-project/tight",
        "projects/PROJECT/regions/REGION/resourcePolicies/NAME",
        "gcloud compute resource-policies list",
    ),
    "a placement policy of another project": (
        a3({"reservation": {"name": "mine", "placement_policy": ELSEWHERE}}),
        "nodesets.a3.capacity.reservation.placement_policy",
        ELSEWHERE,
        "a policy of the stack's own project and region: projects/my-project/regions/us-central1/resourcePolicies/NAME",
        "create one there",
    ),
    "a reservation without a name": (
        a3({"reservation": {"placement_policy": "tight"}}),
        "nodesets.a3.capacity.reservation.name",
        "nothing",
        "Its name",
        "add `name:`",
    ),
    "spot machines from a reservation": (
        a3({"spot": {}, "reservation": "mine"}),
        "nodesets.a3.capacity",
        "{spot: {}, reservation: mine}",
        "exactly one of",
        "keep one of spot and reservation",
    ),
    "flex from a reservation": (
        a3({"flex": {}, "reservation": "mine"}),
        "nodesets.a3.capacity",
        "{flex: {}, reservation: mine}",
        "exactly one of",
        "keep one of reservation and flex",
    ),
    "capacity that says nothing": (cpu({"spot": None}), "nodesets.cpu.capacity", "{spot: null}", "exactly one", "name"),
    "flex with placement": (
        a3({"flex": CLOSE}),
        "nodesets.a3.capacity.flex.placement",
        "placement",
        "max_run",
        "remove it",
    ),
    "placement too far": (
        a3({"spot": {"placement": {"max_distance": 4}}}),
        "nodesets.a3.capacity.spot.placement.max_distance",
        "4",
        "at most 3",
        "lower it",
    ),
    "placement of machines that have none": (
        cpu({"on_demand": CLOSE}, machine_type="e2-standard-4"),
        "nodesets.cpu.capacity.on_demand.placement",
        "on e2-standard-4",
        "other than e2, n1",
        "another machine type",
    ),
    "flex of a family that it does not give": (
        cpu({"flex": {}}),
        "nodesets.cpu.capacity.flex",
        "flex on n2-standard-2",
        "accelerator-optimized machines",
        "on_demand",
    ),
    "flex of T4": (
        {
            "nodesets": {
                "t4": {
                    "machine_type": "n1-standard-4",
                    "count": 2,
                    "gpus": {"type": "t4", "count": 1},
                    "capacity": {"flex": {}},
                }
            }
        },
        "nodesets.t4.capacity.flex",
        "flex on n1-standard-4",
        "accelerator-optimized machines",
        "on_demand",
    ),
    "flex for eight days": (
        a3({"flex": {"max_run": "8-00:00:00"}}),
        "nodesets.a3.capacity.flex.max_run",
        "8-00:00:00",
        "ten minutes to seven days",
        "shorten it",
    ),
    "flex for ever": (
        a3({"flex": {"max_run": "INFINITE"}}),
        "nodesets.a3.capacity.flex.max_run",
        "INFINITE",
        "seven days",
        "shorten it",
    ),
    "an end of a calendar that is no time": (
        a3({"calendar": {"name": "my-week", "ends": "2026-12-01"}}),
        "nodesets.a3.capacity.calendar.ends",
        "2026-12-01",
        "a time in UTC, YYYYMMDDTHHMMSSZ",
        "future-reservations describe",
    ),
    "a calendar without GPUs": (
        cpu({"calendar": "my-week"}),
        "nodesets.cpu.capacity.calendar",
        "my-week for n2-standard-2",
        "A3 machines",
        "on_demand",
    ),
    "a reservation that is no name": (
        a3({"reservation": "projects/p/mine"}),
        "nodesets.a3.capacity.reservation",
        "projects/p/mine",
        "projects/PROJECT/reservations/NAME",
        "gcloud compute reservations list",
    ),
    "a controller from a reservation": (
        {"controller": {"capacity": {"reservation": "mine"}}},
        "controller.capacity.reservation",
        "reservation: mine",
        "on_demand, spot",
        "remove it",
    ),
    "a controller close to itself": (
        {"controller": {"capacity": {"spot": CLOSE}}},
        "controller.capacity.spot.placement",
        "{max_distance: 2}",
        "placement of nodesets",
        "remove it here",
    ),
    "spot and on demand": (
        {"login": {"capacity": {"spot": {}, "on_demand": {}}}},
        "login.capacity",
        "{spot: {}, on_demand: {}}",
        "exactly one of",
        "keep one",
    ),
    "T4 on a machine that takes none": (
        cpu(gpus={"type": "t4", "count": 1}),
        "nodesets.cpu.gpus.type",
        "t4",
        "on n2-standard-2: none",
        "n1-standard-1",
    ),
    "three T4": (
        cpu(machine_type="n1-standard-4", gpus={"type": "t4", "count": 3}),
        "nodesets.cpu.gpus.count",
        "3",
        "1, 2, 4",
        "more nodes",
    ),
    "rehearsal machines": (
        cpu(machine_type="local-2c"),
        "nodesets.cpu.machine_type",
        "local-2c",
        "a machine type of gcp",
        "write ",
    ),
    "addresses of nodes": (
        cpu(addresses="172.16.1.0/24"),
        "nodesets.cpu.addresses",
        "172.16.1.0/24",
        "nothing on gcp",
        "remove it",
    ),
}
