"""The report of `check cloud --send`: no name of the user's own is in it, whatever Google answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.cloud_checks import CloudOutcome, CloudReport, CloudRow
from cluster.load import parse
from components import cloud_questions
from components.clouds import CHECKS, NAMELESS
from components.gcp import cloud_checks, price_list
from tests.clouds import MANAGED
from tests.lab.google.apis import ACCOUNT, IMAGE, Answer, GoogleApis, Rule, healthy, refusal, reservation
from tests.lab.public_files import served_at

_KINDS = (
    "project",
    "cluster",
    "host",
    "network",
    "subnetwork",
    "holder",
    "reservation",
    "image",
    "user",
    "account",
    "login",
    "organization",
    "bucket",
    "datasets",
    "nodeset",
    "partition",
)
NAMES = {kind: f"our-{kind}-7q" for kind in _KINDS} | {kind: f"our{kind[:6]}7q" for kind in ("nodeset", "partition")}
STATE = f"gs://{NAMES['bucket']}/{NAMES['cluster']}"


def stack(names: dict[str, str] = NAMES, **image: Any) -> dict[str, Any]:
    """A stack file that has these names wherever a name can be. One with an image of its own and one without ask each
    question."""
    shared = f"projects/{names['host']}"
    held = f"projects/{names['holder']}/reservations/{names['reservation']}"
    nodeset = names["nodeset"]
    return {
        "gcp:project": names["project"],
        "gcp:zone": "us-central1-a",
        "hpc:cluster": {
            "platform": "gcp",
            "name": names["cluster"],
            "network": {
                "cidr": "10.0.0.0/20",
                "existing": {
                    "network": f"{shared}/global/networks/{names['network']}",
                    "subnetwork": f"{shared}/regions/us-central1/subnetworks/{names['subnetwork']}",
                },
            },
            "image": image or {"bake": False, "name": f"projects/{names['holder']}/global/images/{names['image']}"},
            "storage": {"lustre": MANAGED, "buckets": [{"name": names["datasets"], "mount": "/data"}]},
            "nodesets": {
                "t4": {"machine_type": "n1-standard-1", "count": 1, "gpus": {"type": "t4", "count": 1}},
                nodeset: {"machine_type": "n2-standard-8", "count": 3, "capacity": {"reservation": {"name": held}}},
            },
            "partitions": {names["partition"]: {"nodesets": ["t4", nodeset], "default": True}},
            "users": [{"name": names["user"], "uid": 2001, "account": names["account"]}],
            "accounting": {"accounts": [{"name": names["account"]}]},
            "budget": {"month": 1e6, "billing_account": ACCOUNT},
        },
    }


def worlds() -> Iterator[tuple[str, Rule]]:
    """What Google may answer, with names wherever it has some."""
    everything = " ".join(NAMES.values())
    consumer = {"consumer": f"projects/{NAMES['project']}", "uid": NAMES["login"]}
    members = [f"principalSet://{NAMES['organization']}", f"user:{NAMES['login']}@example.com"]
    policy = {"spec": {"rules": [{"values": {"allowedValues": members, "deniedValues": [NAMES["organization"]]}}]}}
    named: dict[str, Answer] = {
        "compute.images.get": (200, {**IMAGE, "family": NAMES["image"], "description": everything}),
        "compute.networks.get": (200, {"peerings": [{"name": NAMES["network"], "state": "ACTIVE"}]}),
        "compute.reservations.get": reservation("n2-standard-8", count=1, name=NAMES["reservation"]),
        "orgpolicy.projects.policies.getEffectivePolicy": (200, policy),
        "storage.buckets.get": (200, {"location": "US", "name": NAMES["bucket"]}),
    }
    yield "all is well", healthy
    yield "names in answers", lambda asked: named.get(asked.id) or healthy(asked)
    yield "another form", lambda _: (200, dict(NAMES))
    for status in (400, 403, 404):
        yield str(status), lambda _, status=status: refusal(status, everything)
    for reason in cloud_checks._REASONS:
        yield reason, lambda _, reason=reason: refusal(403, everything, reason=reason, **consumer)


WORLDS = dict(worlds())


@pytest.mark.parametrize("world", WORLDS)
def test_no_name_is_in_it_whatever_google_answers(world: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with GoogleApis(WORLDS[world]) as apis:
        monkeypatch.setattr(cloud_checks, "GOOGLE", apis.endpoint)
        monkeypatch.setattr(cloud_questions, "PAUSES", ())
        served_at(apis.endpoint, monkeypatch)
        step = {"name": NAMES["cluster"], "url": f"https://{NAMES['bucket']}/x", "sha256": "0" * 64}
        baked = cloud_checks.check(parse(stack(packages=[NAMES["user"]], provision=[step])))
        rows = [*cloud_checks.check(parse(stack()), state=STATE), *baked, *price_list.read(parse(stack()))[0]]
    assert {row.id for row in rows} >= NAMELESS["gcp"]["asked"] | NAMELESS["gcp"]["seen"]
    texts = " ".join(f"{row.asked} {row.seen} {row.todo}" for row in rows)
    assert NAMES["project"] in texts
    assert ACCOUNT in texts
    assert [name for name in (*NAMES.values(), ACCOUNT) if name in sent(rows)] == []


ROWS = st.builds(
    CloudRow,
    id=st.sampled_from(sorted(NAMELESS["gcp"]["seen"] | {"permissions", "network", "a kind of later"})),
    asked=st.just("asked"),
    seen=st.just("seen"),
    todo=st.sampled_from(["", "todo", "report this: todo", "todo, and report this: todo"]),
    outcome=st.sampled_from(CloudOutcome),
)


@given(st.lists(ROWS, max_size=5))
def test_only_texts_of_listed_kinds_are_in_it(rows: list[CloudRow]) -> None:
    document = json.loads(sent(rows))
    assert document["date"] == "2026-11-28"
    for row, written in zip(rows, document["checks"], strict=True):
        report = row.todo not in ("", "todo")
        expected = {"id": row.id, "outcome": row.outcome.value, "report": report, "assumptions": []}
        expected |= {"asked": "asked"} if row.id in NAMELESS["gcp"]["asked"] else {}
        answer = "" if row.outcome is CloudOutcome.NOT_ASKED else "seen"
        expected |= {"seen": answer} if row.id in NAMELESS["gcp"]["seen"] else {}
        assert written == expected


def sent(rows: list[CloudRow]) -> str:
    report = CloudReport(date="2026-11-28T10:00:00+00:00", request="", rows=rows)
    return json.dumps(report.without_names(NAMELESS["gcp"]))


def test_each_platform_that_is_asked_says_which_rows_are_without_names() -> None:
    assert {name: set(fields) for name, fields in NAMELESS.items()} == {name: {"asked", "seen"} for name in CHECKS}
