"""An image is whole or not there, and no machine is left behind, whatever Google answers."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.gcp.bake.design import BakeError
from components.gcp.bake.resource import BakeProvider
from lab.google.compute import QUOTA, STEPS, STOCK_OUT, FakeCompute, Fault
from lab.google.http import Call, DroppedConnectionError, RefusalError
from tests.gcp.baking import (
    HASTY,
    IMAGE,
    PATIENT,
    REQUESTS,
    make,
    make_and_be_killed,
    no_machine_is_left,
    props,
    settled,
    the_image_is_whole,
    what_is_left_ends_by_itself,
)

LABELS = {"hpc-cluster": "a3mega", "slurm": "25-05-8", "hpc-digest": "0123456789ab"}


@pytest.fixture
def fake() -> Iterator[FakeCompute]:
    with FakeCompute() as server:
        yield server


def test_every_moment_of_a_bake_is_tried(fake: FakeCompute) -> None:
    make(fake)
    assert len(fake.calls) == REQUESTS


class TestWhole:
    def test_the_image_is_there_with_its_labels_and_the_builder_gone(self, fake: FakeCompute) -> None:
        made = BakeProvider().create(props(fake))
        outs = made.outs or {}
        assert made.id == outs["self_link"] == IMAGE
        assert not {"script", "trial"} & set(outs)
        the_image_is_whole(fake)
        no_machine_is_left(fake)
        image = fake.world.images[IMAGE]
        assert image["labels"] == {**LABELS, "hpc-booted": "yes", "hpc-owner": outs["owner"]}
        assert {feature["type"] for feature in image["guestOsFeatures"]} == {"GVNIC", "UEFI_COMPATIBLE"}
        assert image["storageLocations"] == ["us-central1"]

    def test_each_step_is_told_once(self, fake: FakeCompute) -> None:
        fake.steps = [step for step in STEPS for _ in range(3)]
        said: list[str] = []
        make(fake, said.append)
        # Of the builder, then of the machine that boots the image.
        assert [line.partition(": ")[2] for line in said if ": step" in line] == [s for s in STEPS[1:-1] if s] * 2

    def test_the_next_run_takes_the_image_and_changes_nothing(self, fake: FakeCompute) -> None:
        make(fake)
        before = len(fake.calls)
        make(fake)
        assert {call.method for call in fake.calls[before:]} == {"GET"}

    def test_no_credential_travels_in_the_clear(self, fake: FakeCompute) -> None:
        make(fake)
        assert [call for call in fake.calls if "authorization" in {name.lower() for name in call.headers}] == []

    def test_a_change_request_can_be_sent_again(self, fake: FakeCompute) -> None:
        make(fake)
        changes = [call for call in fake.calls if call.method != "GET"]
        assert len(changes) == 7
        # Labels have a fingerprint instead: a second request finds another one, and what it asked for.
        once = [call for call in changes if not call.path.endswith("/setLabels")]
        assert len({call.query["requestId"] for call in once}) == len(once) == 6

    def test_the_builder_has_no_way_in_and_an_end(self, fake: FakeCompute) -> None:
        make(fake, minutes=120.0)
        builder = next(c.body for c in fake.calls if c.method == "POST" and c.path.endswith("/instances"))
        assert builder["networkInterfaces"] == [
            {"subnetwork": "projects/p/regions/us-central1/subnetworks/a3mega", "nicType": "GVNIC"}
        ]
        assert builder["scheduling"]["maxRunDuration"] == {"seconds": str((120 + 20) * 60)}
        assert builder["scheduling"]["instanceTerminationAction"] == "DELETE"
        assert builder["shieldedInstanceConfig"]["enableSecureBoot"] is False
        assert builder["tags"] == {"items": ["a3mega"]}

    def test_labels_change_in_place(self, fake: FakeCompute) -> None:
        make(fake)
        BakeProvider().update(IMAGE, props(fake), props(fake, labels={"hpc-cluster": "a3mega", "slurm": "25-05-9"}))
        labels = settled(fake).world.images[IMAGE]["labels"]
        assert labels == {**LABELS, "slurm": "25-05-9", "hpc-booted": "yes"}

    def test_deleting_accepts_that_it_is_gone(self, fake: FakeCompute) -> None:
        make(fake)
        provider = BakeProvider()
        assert provider.read(IMAGE, props(fake)).id == IMAGE
        provider.delete(IMAGE, props(fake))
        assert fake.world.images == {}
        assert provider.read(IMAGE, props(fake)).id == ""
        provider.delete(IMAGE, props(fake))


FAILED_STEP = (None, "step 1 of 2: packages", "failed: tests")
CONSOLE = (
    "".join(f"line {number} of the log\r\n" for number in range(500)) + "hpc: lctl: \x1b[31mno such module\x1b[0m\n"
)

FAILURES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "smoke test": ({"steps": FAILED_STEP, "console": CONSOLE}, ("failed at: tests", "no such module", "line 499 of")),
    "silence": (
        {"steps": (None,), "minutes": 0.001},
        ("within 0.001 minutes", "never reported its progress", "builder.minutes"),
    ),
    "too slow": ({"steps": STEPS[:2], "minutes": 0.002}, ("it was at step 1 of 2: packages", "builder.minutes")),
    "vanished": ({"steps": (*STEPS[:2], "gone")}, ("is gone", "it was at step 1 of 2: packages", "run again")),
    "switched off": ({"steps": (*STEPS[:2], "off")}, ("has stopped before it was done (TERMINATED)", "run again")),
    "quota": (
        {"fault": ("instances.insert", Fault(errors=[QUOTA]))},
        ("QUOTA_EXCEEDED", "C2_CPUS", "C2-CPUS-per-project-region: 4 in us-central1", "iam-admin/quotas?project=p"),
    ),
    "stock-out": (
        {"fault": ("instances.insert", Fault(errors=[STOCK_OUT]))},
        ("ZONE_RESOURCE_POOL_EXHAUSTED", "image.builder.machine_type", "another family, e.g. e2-standard-8"),
    ),
    "image": (
        {"fault": ("images.insert", Fault(errors=[{"code": "INTERNAL_ERROR", "message": "Internal error."}]))},
        ("write the image", "INTERNAL_ERROR: Internal error."),
    ),
    "stop": (
        {"fault": ("instances.stop", Fault(errors=[{"code": "X", "message": "y"}]))},
        ("stop the builder", "X: y"),
    ),
    "endless start": (
        {"fault": ("instances.insert", Fault(never=True)), "pace": HASTY},
        ("operation-1 was not done in", "run again"),
    ),
    "endless stop": (
        {"fault": ("instances.stop", Fault(never=True)), "pace": HASTY},
        ("operation-2 was not done in", "run again"),
    ),
}


class TestFailure:
    @pytest.mark.parametrize("name", FAILURES)
    def test_it_is_told_in_words_and_nothing_is_left(self, fake: FakeCompute, name: str) -> None:
        given, expected = FAILURES[name]
        fake.steps, fake.console = given.get("steps", STEPS), given.get("console", "")
        fake.faults = dict([given["fault"]]) if "fault" in given else {}
        with pytest.raises(BakeError) as raised:
            make(fake, minutes=given.get("minutes", 1.0), pace=given.get("pace", PATIENT))
        told = str(raised.value)
        assert [part for part in expected if part not in told] == []
        assert "left over" not in told
        no_machine_is_left(fake)
        assert fake.world.images == {}

    def test_the_end_of_the_log_is_shown_and_no_more(self, fake: FakeCompute) -> None:
        fake.steps, fake.console = FAILED_STEP, CONSOLE
        with pytest.raises(BakeError) as raised:
            make(fake)
        told = str(raised.value)
        assert "line 461 of" in told
        assert "line 460 of" not in told
        assert "\x1b" not in told
        assert "lctl: no such module" in told

    @pytest.mark.parametrize("kind", ["images.insert", "instances.delete"])
    def test_what_google_does_not_finish_is_named_and_ends_by_itself(self, fake: FakeCompute, kind: str) -> None:
        fake.faults = {kind: Fault(never=True)}
        with pytest.raises(BakeError, match=r"was not done in.*[\s\S]*perhaps left over: a3mega-0123456789ab-builder"):
            make(fake, pace=HASTY)
        what_is_left_ends_by_itself(fake)
        fake.faults = {}
        settled(fake)
        make(fake)
        the_image_is_whole(fake)
        no_machine_is_left(fake)

    @pytest.mark.parametrize(
        ("refusal", "expected"),
        [
            (
                RefusalError(403, "forbidden", "Required 'compute.instances.create' permission"),
                "compute.instanceAdmin.v1",
            ),
            (
                RefusalError(401, "authError", "Request had invalid authentication credentials."),
                "application-default login",
            ),
            (RefusalError(403, "accessNotConfigured", "API has not been used in project p"), "services enable compute"),
            (RefusalError(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0"), "iam-admin/quotas?project=p"),
            (RefusalError(404, "notFound", "The resource 'projects/x/global/images/y' was not found"), "was withdrawn"),
            (
                RefusalError(403, "forbidden", "Guest attributes endpoint access is disabled"),
                "disableGuestAttributesAccess",
            ),
            (RefusalError(400, "invalid", "Machine type with name 'c2-standard-9' does not exist"), "does not exist"),
        ],
    )
    def test_a_refusal_is_not_tried_again(self, fake: FakeCompute, refusal: RefusalError, expected: str) -> None:
        def refuse(_number: int, call: Call) -> None:
            if call.method == "POST":
                raise refusal

        fake.before = refuse
        with pytest.raises(BakeError) as raised:
            make(fake)
        assert expected in str(raised.value)
        assert len([call for call in fake.calls if call.method == "POST"]) == 1

    @pytest.mark.parametrize("kind", ["machine", "image"])
    def test_what_is_not_ours_is_left_alone(self, fake: FakeCompute, kind: str) -> None:
        make(fake, digest="ffffffffffff") if kind == "image" else make_and_be_killed(fake, 4)
        for machine in fake.world.machines.values():
            machine.resource["labels"] = {}
        with pytest.raises(BakeError, match="which this stack did not make"):
            make(fake)
        assert {"machine": fake.world.machines, "image": fake.world.images}[kind]


class TestTrouble:
    @given(
        st.lists(
            st.sampled_from(["", "", "429", "503", "500", "rateLimitExceeded", "drop before", "drop after"]),
            max_size=80,
        )
    )
    def test_what_passes_is_tried_again(self, troubles: list[str]) -> None:
        with FakeCompute() as fake:
            row: dict[str, int] = {"in a row": 0}

            def trouble(moment: str, number: int) -> None:
                what = troubles[number - 1] if number <= len(troubles) else ""
                if moment == "before":
                    row["in a row"] = row["in a row"] + 1 if what else 0
                if not what or row["in a row"] > 3:
                    return
                if what.startswith("drop"):
                    if what.endswith(moment):
                        raise DroppedConnectionError
                elif moment == "before":
                    status = int(what) if what.isdigit() else 403
                    raise RefusalError(status, what if status == 403 else "backendError", "later")

            fake.before = lambda number, _call: trouble("before", number)
            fake.after = lambda number, _call: trouble("after", number)
            make(fake)
            the_image_is_whole(fake)
            assert fake.world.machines == {}

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_an_outage_leaves_nothing_for_long_and_the_next_run_makes_it_good(
        self, fake: FakeCompute, number: int
    ) -> None:
        def out(now: int, _call: Call) -> None:
            if now >= number:
                raise RefusalError(500, "backendError", "Internal error")

        fake.before = out
        with pytest.raises(BakeError, match="backendError: Internal error"):
            make(fake, pace={**PATIENT, "retry_seconds": 0.01})
        what_is_left_ends_by_itself(fake)
        fake.before = lambda _number, _call: None
        make(fake)
        the_image_is_whole(fake)
        no_machine_is_left(fake)

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_one_failure_leaves_nothing(self, fake: FakeCompute, number: int) -> None:
        def fail(now: int, _call: Call) -> None:
            if now == number:
                raise RefusalError(400, "invalid", "no")

        fake.before = fail
        with pytest.raises(BakeError, match="invalid: no"):
            make(fake)
        no_machine_is_left(fake)
        assert {image["status"] for image in fake.world.images.values()} <= {"READY"}
