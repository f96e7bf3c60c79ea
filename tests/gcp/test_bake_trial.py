"""The finished image is booted once, before a machine of the cluster does."""

from collections.abc import Iterator

import pytest

from components.gcp.bake.design import BakeError
from lab.google.compute import FakeCompute
from lab.google.http import Call, RefusalError
from tests.gcp.baking import IMAGE, make, no_machine_is_left, the_image_is_whole


@pytest.fixture
def fake() -> Iterator[FakeCompute]:
    with FakeCompute() as server:
        yield server


class TestTrial:
    """The finished image is booted once before a machine of the cluster does."""

    def test_the_machine_is_small_of_that_image_and_ends_by_itself(self, fake: FakeCompute) -> None:
        make(fake)
        _, trial = [c.body for c in fake.calls if c.method == "POST" and c.path.endswith("/instances")]
        assert trial["name"] == "a3mega-0123456789ab-trial"
        assert trial["disks"][0]["initializeParams"]["sourceImage"] == IMAGE
        assert trial["machineType"].endswith("/e2-standard-2")
        assert trial["networkInterfaces"][0]["nicType"] == "GVNIC"
        assert "serviceAccounts" not in trial
        assert {"key": "startup-script", "value": "#!/bin/bash\necho try\n"} in trial["metadata"]["items"]
        assert 0 < int(trial["scheduling"]["maxRunDuration"]["seconds"]) <= 35 * 60

    def test_an_image_that_does_not_boot_well_is_not_kept(self, fake: FakeCompute) -> None:
        fake.trial_steps, fake.console = (None, "step 1 of 2: smoke", "failed: boot"), "hpc: wrong: ssh.service\n"
        with pytest.raises(BakeError) as raised:
            make(fake)
        told = str(raised.value)
        assert "the trial boot of a3mega-0123456789ab failed at: boot" in told
        assert "wrong: ssh.service" in told
        no_machine_is_left(fake)
        assert fake.world.images == {}

    def test_one_that_never_says_anything_is_not_kept(self, fake: FakeCompute) -> None:
        fake.trial_steps = (None,)
        with pytest.raises(BakeError, match=r"trial boot of .* was not done within 0\.05 minutes"):
            make(fake, minutes=0.05)
        assert fake.world.images == {}

    def test_where_no_machine_can_be_had_for_it_the_image_stays_and_the_next_run_tries_it(
        self, fake: FakeCompute
    ) -> None:
        def full(_number: int, call: Call) -> None:
            if call.method == "POST" and str(call.body.get("name", "")).endswith("-trial"):
                raise RefusalError(403, "quotaExceeded", "Quota 'CPUS' exceeded. Limit: 24.0")

        fake.before = full
        with pytest.raises(BakeError, match="quotaExceeded"):
            make(fake)
        no_machine_is_left(fake)
        the_image_is_whole(fake)
        assert "hpc-booted" not in fake.world.images[IMAGE]["labels"]
        fake.before = lambda _number, _call: None
        fake.calls.clear()
        make(fake)
        made = [c.body["name"] for c in fake.calls if c.method == "POST" and c.path.endswith("/instances")]
        assert made == ["a3mega-0123456789ab-trial"]
        assert fake.world.images[IMAGE]["labels"]["hpc-booted"] == "yes"
