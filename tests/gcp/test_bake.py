"""Bakes: the image is complete or missing, and no machine is left, whatever Google answers and whenever a run ends."""

import _thread
import contextlib
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.gcp.bake_design import GoogleCloudError
from components.gcp.baked_image import BakeProvider, LeftoversProvider
from components.local.compute_engine.errors import QUOTA
from components.local.compute_engine.http import Call, DroppedConnectionError, RefusalError
from tests.gcp.baking import (
    BUILDER,
    IMAGE,
    LONG_LIMITS,
    REQUESTS,
    SHORT_LIMITS,
    assert_image_ready,
    assert_machines_delete_themselves,
    assert_no_machines,
    bake_and_kill,
    finish_operations,
    props,
    run_bake,
)
from tests.lab.google.compute import STEPS, STOCK_OUT, FakeCompute, Fault, Machine

LABELS = {"hpc-cluster": "a3mega", "slurm": "25-11-8", "hpc-digest": "0123456789ab"}


def use_short_operations(fake: FakeCompute) -> FakeCompute:
    """Have machines report a single step, and operations end when they are asked for: each request is a moment of its
    own."""
    fake.steps = fake.trial_steps = ("step 1 of 1: packages", "done")
    fake.requests_each = 1
    return fake


@pytest.fixture
def short_fake(fake: FakeCompute) -> FakeCompute:
    return use_short_operations(fake)


def test_the_number_of_requests_of_a_bake_is_known(short_fake: FakeCompute) -> None:
    run_bake(short_fake)
    assert len(short_fake.calls) == REQUESTS


class TestWhole:
    def test_the_image_has_its_labels_and_the_builder_is_deleted(self, fake: FakeCompute) -> None:
        made = BakeProvider().create(props(fake))
        outs = made.outs or {}
        assert made.id == outs["self_link"] == IMAGE
        assert not {"script", "trial"} & set(outs)
        assert_image_ready(fake)
        assert_no_machines(fake)
        image = fake.world.images[IMAGE]
        assert image["labels"] == {**LABELS, "hpc-booted": "yes", "hpc-owner": outs["owner"]}
        assert {feature["type"] for feature in image["guestOsFeatures"]} == {"GVNIC", "UEFI_COMPATIBLE"}
        assert image["storageLocations"] == ["us-central1"]

    def test_each_step_is_reported_once(self, fake: FakeCompute) -> None:
        fake.steps = [step for step in STEPS for _ in range(3)]
        reports: list[str] = []
        run_bake(fake, reports.append)
        # Of the builder, then of the machine that boots the image.
        assert [line.partition(": ")[2] for line in reports if ": step" in line] == [s for s in STEPS[1:-1] if s] * 2

    def test_the_next_run_uses_the_image_and_changes_nothing(self, fake: FakeCompute) -> None:
        run_bake(fake)
        before = len(fake.calls)
        run_bake(fake)
        assert {call.method for call in fake.calls[before:]} == {"GET"}

    def test_change_requests_have_ids(self, fake: FakeCompute) -> None:
        run_bake(fake)
        changes = [call for call in fake.calls if call.method != "GET"]
        assert len(changes) == 7
        # Labels have a fingerprint instead: a second request finds another one, and what it asked for.
        once = [call for call in changes if not call.path.endswith("/setLabels")]
        assert len({call.query["requestId"] for call in once}) == len(once) == 6

    def test_the_builder_has_no_public_address_and_is_deleted_at_its_end(self, fake: FakeCompute) -> None:
        run_bake(fake, minutes=120.0)
        builder = next(c.body for c in fake.calls if c.method == "POST" and c.path.endswith("/instances"))
        assert builder["networkInterfaces"] == [
            {"subnetwork": "projects/p/regions/us-central1/subnetworks/a3mega", "nicType": "GVNIC"}
        ]
        assert builder["scheduling"]["maxRunDuration"] == {"seconds": str((120 + 20) * 60)}
        assert builder["scheduling"]["instanceTerminationAction"] == "DELETE"
        assert builder["shieldedInstanceConfig"]["enableSecureBoot"] is False
        assert builder["tags"] == {"items": ["a3mega"]}

    def test_labels_change_in_place(self, fake: FakeCompute) -> None:
        run_bake(fake)
        BakeProvider().update(IMAGE, props(fake), props(fake, labels={"hpc-cluster": "a3mega", "slurm": "25-11-9"}))
        labels = finish_operations(fake).world.images[IMAGE]["labels"]
        assert labels == {**LABELS, "slurm": "25-11-9", "hpc-booted": "yes"}

    def test_deleting_a_missing_image_succeeds(self, fake: FakeCompute) -> None:
        run_bake(fake)
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
        {"fault": ("instances.insert", Fault(never=True)), "pace": SHORT_LIMITS},
        ("operation-1 was not done in", "run again"),
    ),
    "endless stop": (
        {"fault": ("instances.stop", Fault(never=True)), "pace": SHORT_LIMITS},
        ("operation-2 was not done in", "run again"),
    ),
}


class TestFailure:
    @pytest.mark.parametrize("name", FAILURES)
    def test_a_failure_is_a_message_and_leaves_nothing(self, fake: FakeCompute, name: str, pauses: None) -> None:
        given, expected = FAILURES[name]
        fake.steps, fake.console = given.get("steps", STEPS), given.get("console", "")
        fake.faults = dict([given["fault"]]) if "fault" in given else {}
        with pytest.raises(GoogleCloudError) as raised:
            run_bake(fake, minutes=given.get("minutes", 1.0), pace=given.get("pace", LONG_LIMITS))
        message = str(raised.value)
        assert [part for part in expected if part not in message] == []
        assert "left over" not in message
        assert_no_machines(fake)
        assert fake.world.images == {}

    def test_a_failure_shows_the_end_of_the_log(self, fake: FakeCompute) -> None:
        fake.steps, fake.console = FAILED_STEP, CONSOLE
        with pytest.raises(GoogleCloudError) as raised:
            run_bake(fake)
        message = str(raised.value)
        assert "line 461 of" in message
        assert "line 460 of" not in message
        assert "\x1b" not in message
        assert "lctl: no such module" in message

    @pytest.mark.parametrize("kind", ["images.insert", "instances.delete"])
    def test_an_endless_operation_is_named_and_the_builder_deletes_itself(
        self, fake: FakeCompute, kind: str, pauses: None
    ) -> None:
        fake.faults = {kind: Fault(never=True)}
        with pytest.raises(
            GoogleCloudError, match=r"was not done in.*[\s\S]*perhaps left over: a3mega-0123456789ab-builder"
        ):
            run_bake(fake, pace=SHORT_LIMITS)
        assert_machines_delete_themselves(fake)
        fake.faults = {}
        finish_operations(fake)
        run_bake(fake)
        assert_image_ready(fake)
        assert_no_machines(fake)

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
    def test_a_refusal_is_not_retried(self, fake: FakeCompute, refusal: RefusalError, expected: str) -> None:
        def refuse(_number: int, call: Call) -> None:
            if call.method == "POST":
                raise refusal

        fake.before = refuse
        with pytest.raises(GoogleCloudError) as raised:
            run_bake(fake)
        assert expected in str(raised.value)
        assert len([call for call in fake.calls if call.method == "POST"]) == 1

    @pytest.mark.parametrize("kind", ["machine", "image"])
    def test_resources_of_others_are_left_alone(self, fake: FakeCompute, kind: str) -> None:
        run_bake(fake, digest="ffffffffffff") if kind == "image" else bake_and_kill(fake, 4)
        for machine in fake.world.machines.values():
            machine.resource["labels"] = {}
        with pytest.raises(GoogleCloudError, match="which this stack did not make"):
            run_bake(fake)
        assert {"machine": fake.world.machines, "image": fake.world.images}[kind]


class TestTrouble:
    @settings(max_examples=25)
    @given(
        st.lists(
            st.sampled_from(["", "", "429", "503", "500", "rateLimitExceeded", "drop before", "drop after"]),
            max_size=80,
        )
    )
    def test_transient_errors_are_retried(self, troubles: list[str]) -> None:
        with use_short_operations(FakeCompute()) as fake:
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
            run_bake(fake)
            assert_image_ready(fake)
            assert fake.world.machines == {}

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_after_an_outage_the_next_run_completes_the_image(self, short_fake: FakeCompute, number: int) -> None:
        def out(now: int, _call: Call) -> None:
            if now >= number:
                raise RefusalError(500, "backendError", "Internal error")

        short_fake.before = out
        with pytest.raises(GoogleCloudError, match="backendError: Internal error"):
            run_bake(short_fake, pace={**LONG_LIMITS, "retry_seconds": 0.01})
        assert_machines_delete_themselves(short_fake)
        short_fake.before = lambda _number, _call: None
        run_bake(short_fake)
        assert_image_ready(short_fake)
        assert_no_machines(short_fake)

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_one_failure_leaves_nothing(self, short_fake: FakeCompute, number: int) -> None:
        def fail(now: int, _call: Call) -> None:
            if now == number:
                raise RefusalError(400, "invalid", "no")

        short_fake.before = fail
        with pytest.raises(GoogleCloudError, match="invalid: no"):
            run_bake(short_fake)
        assert_no_machines(short_fake)
        assert {image["status"] for image in short_fake.world.images.values()} <= {"READY"}


class TestTrial:
    """The finished image is booted once before a machine of the cluster boots it."""

    def test_the_trial_machine_is_small_and_deletes_itself(self, fake: FakeCompute) -> None:
        run_bake(fake)
        _, trial = [c.body for c in fake.calls if c.method == "POST" and c.path.endswith("/instances")]
        assert trial["name"] == "a3mega-0123456789ab-trial"
        assert trial["disks"][0]["initializeParams"]["sourceImage"] == IMAGE
        assert trial["machineType"].endswith("/e2-standard-2")
        assert trial["networkInterfaces"][0]["nicType"] == "GVNIC"
        assert "serviceAccounts" not in trial
        assert {"key": "startup-script", "value": "#!/bin/bash\necho try\n"} in trial["metadata"]["items"]
        assert 0 < int(trial["scheduling"]["maxRunDuration"]["seconds"]) <= 35 * 60

    def test_an_image_whose_trial_fails_is_deleted(self, fake: FakeCompute) -> None:
        fake.trial_steps, fake.console = (None, "step 1 of 2: smoke", "failed: boot"), "hpc: wrong: ssh.service\n"
        with pytest.raises(GoogleCloudError) as raised:
            run_bake(fake)
        message = str(raised.value)
        assert "the trial boot of a3mega-0123456789ab failed at: boot" in message
        assert "wrong: ssh.service" in message
        assert_no_machines(fake)
        assert fake.world.images == {}

    def test_an_image_whose_trial_never_reports_is_deleted(self, fake: FakeCompute, pauses: None) -> None:
        fake.trial_steps = (None,)
        with pytest.raises(GoogleCloudError, match=r"trial boot of .* was not done within 0\.05 minutes"):
            run_bake(fake, minutes=0.05, pace={**LONG_LIMITS, "poll": 0.1})
        assert fake.world.images == {}

    def test_without_capacity_for_the_trial_the_image_stays_for_the_next_run(self, fake: FakeCompute) -> None:
        def full(_number: int, call: Call) -> None:
            if call.method == "POST" and str(call.body.get("name", "")).endswith("-trial"):
                raise RefusalError(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0")

        fake.before = full
        with pytest.raises(GoogleCloudError, match="quotaExceeded"):
            run_bake(fake)
        assert_no_machines(fake)
        assert_image_ready(fake)
        assert "hpc-booted" not in fake.world.images[IMAGE]["labels"]
        fake.before = lambda _number, _call: None
        fake.calls.clear()
        run_bake(fake)
        made = [c.body["name"] for c in fake.calls if c.method == "POST" and c.path.endswith("/instances")]
        assert made == ["a3mega-0123456789ab-trial"]
        assert fake.world.images[IMAGE]["labels"]["hpc-booted"] == "yes"


def builders(fake: FakeCompute) -> list[str]:
    """Machine types of the builders that were made, in order."""
    made = [call.body for call in fake.calls if call.path.endswith("/instances") and call.method == "POST"]
    return [body["machineType"].rpartition("/")[2] for body in made if body["name"].endswith("-builder")]


class TestInterrupted:
    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_a_keyboard_interrupt_leaves_nothing(self, short_fake: FakeCompute, number: int) -> None:
        def interrupt(now: int, _call: Call) -> None:
            if now == number:
                _thread.interrupt_main()

        short_fake.after = interrupt
        with pytest.raises(KeyboardInterrupt):
            run_bake(short_fake)
        assert_no_machines(short_fake)
        assert {image["status"] for image in short_fake.world.images.values()} <= {"READY"}

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_after_a_kill_the_next_run_completes_the_image(self, short_fake: FakeCompute, number: int) -> None:
        assert bake_and_kill(short_fake, number)
        assert_machines_delete_themselves(short_fake)
        run_bake(short_fake)
        assert_image_ready(short_fake)
        assert_no_machines(short_fake)

    def test_after_several_kills_the_next_run_completes_the_image(self, fake: FakeCompute) -> None:
        fake.requests_each = 5
        for number in range(3, 60, 3):
            if not bake_and_kill(fake, number):
                break
            assert_machines_delete_themselves(fake)
        assert_image_ready(fake)
        assert_no_machines(fake)

    def test_a_builder_that_still_installs_is_continued(self, fake: FakeCompute) -> None:
        fake.steps = (*STEPS[:2],)
        assert bake_and_kill(fake, 12)
        fake.world.machines[BUILDER].reports = ["done"]
        reports: list[str] = []
        run_bake(fake, reports.append)
        assert any("continuing with the builder" in line for line in reports)
        assert builders(fake) == ["c2-standard-8"]

    def test_a_builder_with_other_inputs_is_replaced(self, fake: FakeCompute) -> None:
        fake.steps = STEPS[:2]
        assert bake_and_kill(fake, 12)
        fake.steps = STEPS
        run_bake(fake, machine_type="e2-standard-8")
        assert builders(fake) == ["c2-standard-8", "e2-standard-8"]
        assert_no_machines(fake)


class TestDestroyed:
    """A stack that is destroyed in place of another up: no state knows of what a killed bake made."""

    PROPS: ClassVar[dict[str, Any]] = {
        "project": "p",
        "zone": "us-central1-a",
        "cluster": "a3mega",
        "pace": LONG_LIMITS,
    }

    @pytest.mark.parametrize("number", range(1, REQUESTS + 1))
    def test_nothing_is_left(self, short_fake: FakeCompute, number: int) -> None:
        def cut_off(now: int, _call: Call) -> None:
            """From then on nothing that the bake asks for is done, as after a kill."""
            if now > number:
                raise RefusalError(400, "invalid", "no")

        short_fake.before = cut_off
        with contextlib.suppress(GoogleCloudError):
            run_bake(short_fake)
        short_fake.before = lambda _number, _call: None
        LeftoversProvider().delete("", {**self.PROPS, "endpoint": short_fake.endpoint})
        assert short_fake.world.machines == short_fake.world.images == {}

    def test_similar_resources_are_left_alone(self, fake: FakeCompute) -> None:
        run_bake(fake)
        (image,) = fake.world.images.values()
        others = {
            "projects/p/global/images/a3mega-copy": {**image, "name": "a3mega-copy"},
            "projects/p/global/images/a3mega-000000000000": {**image, "name": "a3mega-000000000000"},
            "projects/p/global/images/b-0123456789ab": {**image, "labels": {"hpc-cluster": "b"}},
        }
        machine = {"name": "a3mega-controller", "labels": {"hpc-cluster": "a3mega"}, "status": "RUNNING"}
        fake.world.images |= others
        fake.world.machines["projects/p/zones/us-central1-a/instances/a3mega-controller"] = Machine(machine, [])
        LeftoversProvider().delete("", {**self.PROPS, "endpoint": fake.endpoint})
        assert set(fake.world.images) == set(others)
        assert len(fake.world.machines) == 1

    def test_another_zone_deletes_builders_in_the_old_one_and_keeps_the_image(self, fake: FakeCompute) -> None:
        assert bake_and_kill(fake, 22)
        given = {**self.PROPS, "endpoint": fake.endpoint}
        other = {**given, "zone": "us-central1-b"}
        found = LeftoversProvider().diff("", given, other)
        assert (found.changes, found.replaces) == (True, [])
        LeftoversProvider().update("", given, other)
        assert_no_machines(fake)
        assert_image_ready(fake)
