"""Values that a chart does not have are refused: Helm would ignore them without a message."""

import pytest

from cluster.platforms.nebius.releases.keys import CHARTS, UnknownValue, check_values, unknown
from cluster.platforms.nebius.releases.keys.check import parse
from cluster.platforms.nebius.releases.release import Release


def release(chart: str, version: str, values: dict) -> Release:
    return Release(name="x", chart=chart, repo="", version=version, namespace="x", values=values)


class TestTree:
    def test_a_key_has_those_below_it(self):
        tree = parse("a b(c d*) e")
        assert set(tree.below) == {"a", "b", "e"}
        assert set(tree.below["b"].below) == {"c", "d"}
        assert tree.below["b"].below["d"].free
        assert not tree.below["b"].below["c"].free

    @pytest.mark.parametrize("chart", CHARTS)
    def test_every_text_is_closed_and_has_no_key_twice_below_one(self, chart):
        assert all(not set("()@*") & set(name) for name in _names(CHARTS[chart]))


def _names(key):
    for name, one in key.below.items():
        yield name
        yield from _names(one)


class TestUnknown:
    def test_a_typo_is_refused_with_its_path_and_the_key_that_was_meant(self):
        with pytest.raises(UnknownValue, match=r"slurmNodes\.login\.sshdServiceTyp: .* write sshdServiceType"):
            check_values(release("helm-slurm-cluster", "4.1.7", {"slurmNodes": {"login": {"sshdServiceTyp": "x"}}}))

    def test_a_typo_in_a_list_has_its_position(self):
        found = list(unknown("helm-nodesets", {"nodesets": [{"name": "a"}, {"nmae": "b"}]}))
        assert [one.dotted for one in found] == ["nodesets[1].nmae"]
        assert found[0].nearest == "name"

    def test_what_a_chart_hands_to_kubernetes_may_have_any_key(self):
        values = {"slurmNodes": {"login": {"sshdServiceAnnotations": {"example.com/a": "b"}}}}
        assert not list(unknown("helm-slurm-cluster", values))

    # Known problem: nodes of ephemeral nodesets are set DOWN while their pods start (pull request 2859).
    def test_ephemeral_nodes_are_refused_with_the_reason(self):
        found = list(unknown("helm-nodesets", {"nodesets": [{"ephemeralNodes": True}]}))
        assert [one.why for one in found] == [
            "before Soperator 5.0 an ephemeral node is set DOWN while its pod is still starting"
        ]

    # Known problem: an existing jail is overwritten.
    def test_wiping_the_jail_is_refused(self):
        assert list(unknown("helm-slurm-cluster", {"populateJail": {"overwrite": True}}))
