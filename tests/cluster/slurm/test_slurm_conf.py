"""Rendering is a pure function: fast, the same text for the same configuration, and a digest that tells any change."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.load import parse, validate
from cluster.platforms.local.address_plan import plan
from cluster.slurm.files import digest, render, render_slurmdbd
from scripts.node.slurm import hostlist
from tests.cluster.catalog.test_slurm_releases import lines
from tests.cluster.stacks import cluster, config, local


def large():
    """Ten thousand nodes of two kinds, more than this machine's bridge takes: the rules between parts are left out."""
    kinds = {"cpu": {"count": 5000}, "gpu": {"count": 5000, "machine_type": "a3-megagpu-8g"}}
    partitions = {"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}}
    return validate(local(network={"cidr": "10.64.0.0/12"}, nodesets=kinds, partitions=partitions))


def test_ten_thousand_nodes_take_well_under_a_second():
    config = large()
    addresses = plan(config).of
    start = time.process_time()
    text = render(config, addresses)["slurm.conf"]
    assert time.process_time() - start < 4
    assert "NodeName=dev-gpu-[0-4999] " in text


def test_names_and_addresses_of_nodes_pair_up():
    config = large()
    addresses = plan(config).of
    for pairs in lines(render(config, addresses)["slurm.conf"]):
        if "NodeAddr" in pairs:
            named = zip(hostlist.expand(pairs["NodeName"]), hostlist.expand(pairs["NodeAddr"]), strict=True)
            assert all(addresses[name] == address for name, address in named)


def test_without_addresses_names_alone_are_written():
    text = render(config("example-full"))["slurm.conf"]
    assert "NodeAddr" not in text
    assert "SlurmctldHost=full-controller\n" in text


def test_machines_of_their_own_are_confined_to_their_cores_and_a_rehearsals_are_not():
    """Machines of a rehearsal share the host's cores, and may claim more than it has."""
    given = local(platform="gcp", image={"base": "ubuntu-2204"}, nodesets={"a3": {"machine_type": "a3-megagpu-8g"}})
    given["partitions"]["cpu"]["nodesets"] = ["a3"]
    place = {"gcp:project": "my-project", "gcp:zone": "us-central1-a"}
    files = {
        "gcp": render(parse({"hpc:cluster": given, **place})),
        "local": render(cluster(nodesets=given["nodesets"], partitions=given["partitions"])),
    }
    differences = {
        "slurm.conf": ["TaskPlugin=task/affinity,task/cgroup", "JobAcctGatherType=jobacct_gather/cgroup"],
        "cgroup.conf": ["ConstrainCores=yes"],
    }
    for name, only_there in differences.items():
        for line in only_there:
            assert line in files["gcp"][name].splitlines()
            assert line not in files["local"][name].splitlines()
    assert "config_overrides" not in files["gcp"]["slurm.conf"]
    assert "RealMemory=1860368 Gres=gpu:h100:8" in files["gcp"]["slurm.conf"]


def test_extra_settings_replace_defaults_and_stand_once():
    text = render(cluster(slurm={"extra": {"priorityweightqos": 7, "SlurmdDebug": "debug"}}))["slurm.conf"]
    assert text.count("PriorityWeightQOS=") == 1
    assert "PriorityWeightQOS=7\n" in text.partition("slurm.extra")[2]
    assert "SlurmdDebug=info" not in text


def test_tokens_are_accepted_where_there_is_rest_and_by_both_daemons():
    some = cluster(slurm={"slurmrestd": True}, image={"base": "debian-13"})
    written = "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/etc/slurm/jwt.key"
    assert f"{written},max_token_lifespan=2592000\n" in render(some)["slurm.conf"]
    assert f"{written}\n" in render_slurmdbd(some, "x")
    assert "AuthAlt" not in render(cluster())["slurm.conf"] + render_slurmdbd(cluster(), "x")


def test_values_of_several_words_are_quoted():
    text = render(cluster(slurm={"extra": {"JobSubmitPlugins": "lua", "SchedulerParameters": "a b"}}))["slurm.conf"]
    assert 'SchedulerParameters="a b"\n' in text
    assert "JobSubmitPlugins=lua\n" in text


def test_memory_that_is_kept_for_the_system_is_not_shared_out():
    """Or a job on all CPUs of a node would ask for more than the node can give, and wait for ever."""
    text = render(cluster(nodesets={"cpu": {"machine_type": "local-2c", "node_conf": {"MemSpecLimit": 48}}}))
    assert "DefMemPerCPU=1000" in text["slurm.conf"]


def test_lua_is_a_file_of_its_own_and_named_in_slurm_conf():
    lua = "-- slurm_job_submit\n\n-- slurm_job_modify"
    files = render(cluster(slurm={"job_submit_lua": lua}))
    assert files["job_submit_site.lua"] == lua + "\n"
    without = render(cluster())
    assert "job_submit_site.lua" not in without
    for each in (files, without):
        assert each["job_submit.lua"] == 'dofile("/etc/slurm/submissions.lua")\n'
        assert "JobSubmitPlugins=lua\n" in each["slurm.conf"]


class TestCpusOfGpus:
    """A job that asks for GPUs alone gets CPUs by their share of the node."""

    GPU = {"gpu": {"machine_type": "a3-megagpu-8g", "count": 1}, "cpu": {"count": 1}}  # noqa: RUF012

    def rendered(self, nodesets: list[str], **slurm: object) -> str:
        part = {"main": {"nodesets": nodesets, "default": True}}
        return render(cluster(nodesets=self.GPU, partitions=part, slurm=slurm))["slurm.conf"]

    def test_are_those_of_the_nodes_that_have_some(self):
        assert " DefCPUPerGPU=26" in self.rendered(["gpu"])
        assert " DefCPUPerGPU=26" in self.rendered(["cpu", "gpu"])

    def test_are_the_users_own_where_they_say_so(self):
        assert " DefCPUPerGPU=" not in self.rendered(["gpu"], extra={"DefCpuPerGPU": 8})
        assert " DefCPUPerGPU=" not in self.rendered(["cpu"])


FILES = st.dictionaries(st.sampled_from(["a", "b", "ab"]), st.text(max_size=5))


@given(FILES, FILES)
def test_the_digest_is_the_same_exactly_if_the_files_are(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.parametrize("password", ["", "a b", "a#b", 'a"b', "a=b", "a\\b", "a\nb", "pässword"])
def test_a_password_that_slurm_would_read_as_something_else_is_refused(password):
    with pytest.raises(ValueError, match="database password"):
        render_slurmdbd(config("example-smallest"), password)
