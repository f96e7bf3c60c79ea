"""A run that is killed at any of its calls leaves no orphan and no double: the next `up` or `destroy` ends clean."""

import random

import pytest

from lab.nebius_api.server import NebiusServer
from tests.nebius.api.project import Project, cluster_rows, few_rows, owned

SEEDS = (1, 2, 3)


def no_doubles(api: NebiusServer) -> None:
    assert {name: ids for name, ids in owned(api).items() if len(ids) > 1} == {}


class TestKilled:
    # The calls of a creation: log in, list, create, poll, read; whichever resource makes them.
    @pytest.mark.parametrize("number", [2, 3, 4, 5, 7])
    def test_at_a_call_of_up_and_then_up(self, api: NebiusServer, project: Project, number: int) -> None:
        project.write(few_rows())
        assert project.killed("up", number)
        no_doubles(api)
        project.run("up")
        no_doubles(api)
        assert len(owned(api)) == len(few_rows())
        assert project.pending() == []
        assert project.run("preview") == {}
        project.run("destroy")
        assert owned(api) == {}

    @pytest.mark.parametrize("number", [3, 4, 8])
    def test_at_a_call_of_up_and_then_destroy(self, api: NebiusServer, project: Project, number: int) -> None:
        project.write(few_rows())
        assert project.killed("up", number)
        project.run("destroy")
        assert owned(api) == {}
        assert project.state() == {}

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", SEEDS)
    def test_at_random_calls_one_after_another(self, api: NebiusServer, project: Project, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - not for secrets
        project.write(cluster_rows())
        kills = 0
        for _ in range(8):
            kills += project.killed("destroy" if chance.random() < 0.2 else "up", chance.randint(2, 50))
            no_doubles(api)
        assert kills
        project.run("up")
        assert len(owned(api)) == len(cluster_rows())
        no_doubles(api)
        assert project.run("preview") == {}
        for _ in range(4):
            project.killed("destroy", chance.randint(2, 20))
            no_doubles(api)
        project.run("destroy")
        assert owned(api) == {}
        assert project.state() == {}

    def test_in_an_update(self, api: NebiusServer, project: Project) -> None:
        rows = few_rows()
        project.up(rows)
        rows[1]["spec"]["ipv4_private_pools"] = {"use_network_pools": True}
        project.write(rows)
        assert project.killed("up", 3)
        project.run("up")
        (subnet,) = (row for row in api.store.of("Subnet") if row["metadata"]["name"] == "subnet")
        assert subnet["spec"]["ipv4_private_pools"] == {"use_network_pools": True}
        assert project.run("preview") == {}

    def test_in_a_creation_whose_inputs_change_before_the_next_run(self, api: NebiusServer, project: Project) -> None:
        rows = [row for row in cluster_rows() if row["name"] == "account"]
        project.write(rows)
        assert project.killed("up", 3)
        rows[0]["spec"]["description"] = "another"
        project.up(rows)
        no_doubles(api)
        (row,) = api.store.of("ServiceAccount")
        assert row["spec"]["description"] == "another"
        project.run("destroy")
        assert owned(api) == {}


def test_an_api_that_is_restarted_remembers(api: NebiusServer, project: Project) -> None:
    """Also in the middle of an operation, and with the keys of requests that it answered."""
    state = project.root / "nebius.json"
    with NebiusServer(seconds=0.2, state=state) as first:
        project.api = first
        project.write(few_rows())
        assert project.killed("up", 3)
        objects = dict(first.store.objects)
    with NebiusServer(port=first.port, seconds=0.2, state=state) as second:
        assert second.store.objects == objects
        project.api = second
        project.run("up")
        no_doubles(second)
        assert len(owned(second)) == len(few_rows())
