"""kill -9 at random moments of `up` and `destroy`: what comes after it ends clean, with nothing twice or left."""

import random

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1])
def test_killed_again_and_again(site, seed):
    chance = random.Random(seed)  # noqa: S311 - not for secrets
    site.write()
    kills = 0
    while kills < 4 and site.killed("up", chance.uniform(2, 9)):
        kills += 1
        names = [name for name in site.owned() if not name.startswith("Disk")]
        assert len(names) == len(set(names)), names
    assert kills
    site.run("up")
    assert site.run("preview") == {}
    # Later each time: on a busy machine, nothing is done in the first seconds.
    while site.killed("destroy", chance.uniform(1.5, 4) * (1 + kills / 8)):
        kills += 1
        assert kills < 25
    assert site.owned() == []
    assert site.in_cluster() == []
    assert site.resources() == []


def test_killed_in_up_and_then_destroyed(site):
    site.write()
    assert site.killed("up", 10)
    site.run("destroy")
    assert site.owned() == []
    assert site.in_cluster() == []
