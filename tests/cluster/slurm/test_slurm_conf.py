"""Rendering of slurm.conf and the other files, its speed, and the digest of the files."""

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
    """Return ten thousand nodes of two kinds, without checks: a bridge of this machine would not take as many."""
    kinds = {"cpu": {"count": 5000}, "gpu": {"count": 5000, "machine_type": "a3-megagpu-8g"}}
    partitions = {"cpu": {"nodesets": ["cpu"], "default": True}, "gpu": {"nodesets": ["gpu"]}}
    return validate(local(network={"cidr": "10.64.0.0/12"}, nodesets=kinds, partitions=partitions))


def test_ten_thousand_nodes_are_rendered_in_seconds():
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


def test_without_addresses_only_names_are_written():
    text = render(config("example-full"))["slurm.conf"]
    assert "NodeAddr" not in text
    assert "SlurmctldHost=full-controller\n" in text


def test_cores_are_confined_on_google_cloud_and_not_in_a_rehearsal():
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


def test_extra_settings_replace_defaults():
    text = render(cluster(slurm={"extra": {"priorityweightqos": 7, "SlurmdDebug": "debug"}}))["slurm.conf"]
    assert text.count("PriorityWeightQOS=") == 1
    assert "PriorityWeightQOS=7\n" in text.partition("slurm.extra")[2]
    assert "SlurmdDebug=info" not in text


def test_slurmrestd_makes_both_daemons_accept_tokens():
    some = cluster(slurm={"slurmrestd": True}, image={"base": "debian-13"})
    written = "AuthAltTypes=auth/jwt\nAuthAltParameters=jwt_key=/etc/slurm/jwt.key"
    assert f"{written},max_token_lifespan=2592000\n" in render(some)["slurm.conf"]
    assert f"{written}\n" in render_slurmdbd(some, "x")
    assert "AuthAlt" not in render(cluster())["slurm.conf"] + render_slurmdbd(cluster(), "x")


def test_values_of_several_words_are_quoted():
    text = render(cluster(slurm={"extra": {"JobSubmitPlugins": "lua", "SchedulerParameters": "a b"}}))["slurm.conf"]
    assert 'SchedulerParameters="a b"\n' in text
    assert "JobSubmitPlugins=lua\n" in text


def test_reserved_memory_is_not_in_def_mem_per_cpu():
    """Otherwise a job on all CPUs of a node would ask for more memory than there is, and wait forever."""
    text = render(cluster(nodesets={"cpu": {"machine_type": "local-2c", "node_conf": {"MemSpecLimit": 48}}}))
    assert "DefMemPerCPU=1000" in text["slurm.conf"]


def test_job_submit_lua_is_a_file_of_its_own():
    lua = "-- slurm_job_submit\n\n-- slurm_job_modify"
    files, without = render(cluster(slurm={"job_submit_lua": lua})), render(cluster())
    assert files["job_submit.lua"] == lua + "\n"
    assert "JobSubmitPlugins=lua\n" in files["slurm.conf"]
    assert "job_submit.lua" not in without
    assert "JobSubmitPlugins" not in without["slurm.conf"]


class TestCpusOfGpus:
    """A job that asks for GPUs alone gets CPUs by their share of the node."""

    GPU = {"gpu": {"machine_type": "a3-megagpu-8g", "count": 1}, "cpu": {"count": 1}}  # noqa: RUF012

    def rendered(self, nodesets: list[str], **slurm: object) -> str:
        part = {"main": {"nodesets": nodesets, "default": True}}
        return render(cluster(nodesets=self.GPU, partitions=part, slurm=slurm))["slurm.conf"]

    def test_are_a_share_of_the_nodes_with_gpus(self):
        assert " DefCPUPerGPU=26" in self.rendered(["gpu"])
        assert " DefCPUPerGPU=26" in self.rendered(["cpu", "gpu"])

    def test_are_left_out_if_extra_has_them_or_no_node_has_gpus(self):
        assert " DefCPUPerGPU=" not in self.rendered(["gpu"], extra={"DefCpuPerGPU": 8})
        assert " DefCPUPerGPU=" not in self.rendered(["cpu"])


FILES = st.dictionaries(st.sampled_from(["a", "b", "ab"]), st.text(max_size=5))


@given(FILES, FILES)
def test_the_digest_is_equal_if_and_only_if_the_files_are(one, other):
    assert (digest(one) == digest(other)) == (one == other)


@pytest.mark.parametrize("password", ["", "a b", "a#b", 'a"b', "a=b", "a\\b", "a\nb", "pässword"])
def test_a_password_that_slurm_would_read_as_something_else_is_refused(password):
    with pytest.raises(ValueError, match="database password"):
        render_slurmdbd(config("example-smallest"), password)
