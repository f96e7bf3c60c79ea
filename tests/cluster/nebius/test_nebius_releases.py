"""The releases of every cluster: their order, what they name, sizes, and values of the stack file."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from cluster.catalog.nebius_machine_types import GIB, allocatable, preset_of
from cluster.platforms.nebius.releases import ChartRelease, CloudFacts, merge_values
from tests.cluster.nebius.clusters import CASES, FACTS, config, described, given, groups, releases_of

VERSIONS = ("4.1.4", "4.1.11")


@pytest.fixture(params=[*CASES, *VERSIONS])
def described_cluster(request):
    return CASES.get(request.param) or described(request.param)


@pytest.fixture
def every(described_cluster):
    return releases_of(described_cluster)


def _found(value, key) -> Iterator:
    """Every value of a key, wherever it stands."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            if name == key:
                yield item
            yield from _found(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from _found(item, key)


class TestOrder:
    def test_each_comes_after_those_that_it_needs(self, every):
        before: set[str] = set()
        for release in every.values():
            assert set(release.needs) <= before, release.name
            before.add(release.name)

    def test_what_is_waited_for_is_known(self, every):
        words = {word for release in every.values() for word in release.after}
        assert words <= {"nodes", "populated", "available", "people"}

    # Known problem: nothing comes up without OpenKruise.
    def test_soperator_needs_open_kruise(self, every):
        assert "kruise" in every["soperator"].needs
        assert every["soperator"].values["kruise"] == {"installOperator": False}

    def test_without_a_bucket_there_are_no_backups(self):
        assert "k8up" not in releases_of(CASES["h100"], FACTS)


class TestNames:
    def test_the_cluster_is_called_as_its_namespace(self, described_cluster, every):
        one = every["slurm-cluster"]
        assert one.values["clusterName"] == one.namespace == described_cluster["name"]
        assert every["slurm-cluster-storage"].namespace == described_cluster["name"]

    def test_filters_that_pods_name_exist(self, every):
        values = every["slurm-cluster"].values
        assert set(_found(values, "k8sNodeFilterName")) <= {
            node_filter["name"] for node_filter in values["k8sNodeFilters"]
        }

    def test_volumes_that_pods_name_exist(self, every):
        values = every["slurm-cluster"].values
        assert set(_found(values, "volumeSourceName")) <= {source["name"] for source in values["volumeSources"]}

    def test_every_claim_is_one_of_the_storage_chart(self, every):
        volume = every["slurm-cluster-storage"].values["volume"]
        claims = {"jail-pvc", "controller-spool-pvc"}
        claims |= {f"jail-submount-{submount['name']}-pvc" for submount in volume["jailSubMounts"]}
        assert {claim for release in every.values() for claim in _found(release.values, "claimName")} <= claims


class TestNodes:
    def test_filters_select_and_tolerate_the_nodes_of_a_group(self, described_cluster, every):
        cluster = config(described_cluster)
        by_role = {group.role: group for group in groups(cluster)}
        for node_filter in every["slurm-cluster"].values["k8sNodeFilters"]:
            (wanted,) = _found(node_filter, "matchExpressions")
            group = by_role[node_filter["name"]]
            assert all(group.labels[each["key"]] in each["values"] for each in wanted)
            tolerated = {each["key"]: each.get("value") for each in node_filter.get("tolerations", ())}
            assert all(tolerated.get(key, "no") in (value, None) for key, value in group.taints.items())

    def test_nodesets_select_and_tolerate_their_own_nodes(self):
        cluster = config(CASES["large"])
        by_nodeset = {group.nodeset: group for group in groups(cluster) if group.nodeset}
        for nodeset in releases_of(CASES["large"])["nodesets"].values["nodesets"]:
            group = by_nodeset[nodeset["name"]]
            assert nodeset["nodeSelector"].items() <= group.labels.items()
            assert {each["key"] for each in nodeset["tolerations"]} >= set(group.taints)

    def test_pods_of_the_jail_run_wherever_it_is_attached(self, described_cluster, every):
        cluster = config(described_cluster)
        jail = every["slurm-cluster-storage"].values["storage"]["jail"]
        tolerated = {toleration["key"] for toleration in jail["tolerations"]}
        for group in groups(cluster):
            assert all(
                group.labels[expression["key"]] in expression["values"] for expression in jail["matchExpressions"]
            )
            assert set(group.taints) <= tolerated


class TestSizes:
    def test_containers_of_a_node_never_ask_for_more_than_it_has(self, described_cluster, every):
        cluster = config(described_cluster)
        nodes = every["slurm-cluster"].values["slurmNodes"]
        by_name = {group.nodeset or group.role: group for group in groups(cluster)}
        pods = {
            "controller": [nodes["controller"]["slurmctld"], nodes["controller"]["munge"]],
            "login": [nodes["login"]["sshd"], nodes["login"]["munge"]],
            "accounting": [nodes["accounting"][key] for key in ("slurmdbd", "munge", "mariadbOperator")],
        }
        for nodeset in every["nodesets"].values["nodesets"]:
            pods[nodeset["name"]] = [nodeset["slurmd"], nodeset["munge"]]
        pods["system"] = [nodes["rest"]["rest"]]
        for name, containers in pods.items():
            group = by_name[name]
            preset = preset_of(group.machine_type)
            node = allocatable(preset.vcpus, preset.memory_gib, group.disk_gib)
            asked = [_amounts(container["resources"]) for container in containers]
            assert sum(item[0] for item in asked) <= node.cpu, name
            assert sum(item[1] for item in asked) <= node.memory, name
            assert sum(item[2] for item in asked) <= node.disk, name

    def test_rest_fits_a_system_node_of_any_size(self):
        slurm = releases_of(given(nodesets={"worker": {"count": 1000}}))["slurm-cluster"].values["slurmNodes"]
        assert slurm["rest"]["rest"]["resources"]["memory"] == "28Gi"

    def test_services_of_large_clusters_have_more(self):
        made_of = [releases_of(given(nodesets={"worker": {"count": count}}))["kruise"] for count in (2, 150, 600)]
        sizes = [release.values["manager"]["resources"]["limits"]["memory"] for release in made_of]
        assert sizes == ["2Gi", "4Gi", "8Gi"]


def _amounts(resources):
    cpu = int(resources["cpu"].removesuffix("m"))
    return cpu, _mib(resources["memory"]), _mib(resources.get("ephemeralStorage", "0Mi"))


def _mib(text):
    return int(text[:-2]) * (GIB if text.endswith("Gi") else 1)


class TestValues:
    def test_every_placeholder_is_filled(self, every):
        assert "${" not in str([release.values for release in every.values()])

    def test_what_only_the_cloud_knows_is_placed_and_not_looked_into(self):
        class Output:
            """Refuses to be compared, converted or asked, as Pulumi's outputs do."""

            def __hash__(self):
                raise AssertionError

            def __bool__(self):
                raise AssertionError

            def __eq__(self, other):
                raise AssertionError

            def __str__(self):
                raise AssertionError

        key, allocation, bucket = Output(), Output(), Output()
        facts = CloudFacts(
            stack="nebius", root_keys=[key], allocation=allocation, backups={"name": bucket, "endpoint": bucket}
        )
        every = releases_of(CASES["h100"], facts)
        login = every["slurm-cluster"].values["slurmNodes"]["login"]
        assert login["sshRootPublicKeys"][0] is key
        assert login["sshdServiceAnnotations"]["nebius.com/load-balancer-allocation-id"] is allocation
        assert every["soperator-backup-config"].values["bucket"]["name"] is bucket


GOLDEN = Path(__file__).parents[2] / "golden" / "nebius-releases"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data):
        return True


_Plain.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, "|" if "\n" in text else None)
)


def written(release: ChartRelease) -> dict:
    return {
        "release": release.name,
        "chart": f"{release.repo.rstrip('/')}/{release.chart}",
        "version": release.version,
        "namespace": release.namespace,
        "needs": list(release.needs),
        "after": list(release.after),
        "hooks": release.hooks,
        "timeout": release.timeout,
        "values": release.values,
    }


@pytest.mark.parametrize("case", CASES)
def test_every_cluster_has_the_releases_that_were_reviewed(case, golden):
    documents = [written(item) for item in releases_of(CASES[case]).values()]
    text = yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=118)
    golden(f"nebius-releases/{case}.yaml", text)


def test_no_golden_file_outlives_its_cluster():
    assert {path.stem for path in GOLDEN.iterdir()} == set(CASES)


class TestMerged:
    @pytest.mark.parametrize(
        ("values", "over", "wanted"),
        [
            ({"a": 1}, {"b": 2}, {"a": 1, "b": 2}),
            ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
            ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
            ({"a": {"b": 1}}, {"a": None}, {"a": None}),
            ([{"name": "x", "b": 1}, {"name": "y"}], [{"name": "x", "c": 2}, {"name": "z"}],
             [{"name": "x", "b": 1, "c": 2}, {"name": "y"}, {"name": "z"}]),
        ],
    )  # fmt: skip
    def test_mappings_and_named_members_are_merged_and_the_rest_is_replaced(self, values, over, wanted):
        assert merge_values({"of": values}, {"of": over}) == {"of": wanted}


class TestTaken:
    def test_a_value_is_laid_over_what_follows_from_the_rest(self):
        given = {"slurm-cluster": {"slurmConfig": {"completeWait": 10}}, "kruise": {"manager": {"replicas": 3}}}
        before, after = releases_of(CASES["h100"]), releases_of(described(nebius={"values": given}))
        conf = before["slurm-cluster"].values["slurmConfig"]
        assert after["slurm-cluster"].values["slurmConfig"] == {**conf, "completeWait": 10}
        assert after["kruise"].values["manager"]["replicas"] == 3

    def test_a_nodeset_keeps_what_is_not_given(self):
        memory = {"name": "worker", "slurmd": {"volumes": {"sharedMemorySize": "512Gi"}}}
        (before,) = releases_of(described())["nodesets"].values["nodesets"]
        changed = releases_of(described(nebius={"values": {"nodesets": {"nodesets": [memory]}}}))
        (after,) = changed["nodesets"].values["nodesets"]
        assert after["slurmd"]["volumes"] == {**before["slurmd"]["volumes"], "sharedMemorySize": "512Gi"}
        assert after["nodeConfig"] == before["nodeConfig"]
