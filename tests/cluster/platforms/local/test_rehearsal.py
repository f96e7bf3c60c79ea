"""The rehearsal of a cloud's stack: nothing of Slurm's side is lost on the way, and what differs is reported."""

import ipaddress
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from cluster.catalog.slurm_releases import CONF
from cluster.config import ClusterConfig
from cluster.findings import ConfigError
from cluster.load import parse
from cluster.people import accounts
from cluster.placed_scripts import placed_scripts
from cluster.platforms.gcp.filesystems.registry import targets
from cluster.platforms.local.address_plan import plan
from cluster.platforms.local.rehearsal import (
    AT_MOST,
    COUNT,
    GIB,
    STAND_IN,
    candidates,
    comparable,
    differences,
    lines,
    rehearsed,
    room,
    stood_in,
)
from cluster.roster import elastic_machines, machines, node_names
from cluster.slurm.accounting import desired
from cluster.slurm.files import render
from components.local.deploy import mounts
from components.slurm import payload
from tests.cluster import stacks

CLOUD = [name for name in stacks.STACKS if stacks.load(name)["hpc:cluster"]["platform"] == "gcp"]
PLACE = {"gcp:project": "my-project", "gcp:zone": "us-central1-a"}
SMALL: dict[str, Any] = {
    "platform": "gcp",
    "name": "lab",
    "nodesets": {"a3mega": {"machine_type": "a3-megagpu-8g", "count": 9}, "cpu": {"machine_type": "n2-standard-2"}},
    "partitions": {"a3mega": {"nodesets": ["a3mega"], "default": True}, "cpu": {"nodesets": ["cpu"]}},
    "users": [{"name": "alice", "uid": 2001}],
}


Files = dict[str, dict[str, dict[str, str]]]
"""Settings by file and line, as `lines` reads them."""


def settings_of(files: Mapping[str, str]) -> Files:
    """The settings of Slurm's own files."""
    return {name: lines(text) for name, text in files.items() if name.endswith(".conf")}


def expected_files(production: ClusterConfig, rehearsal: ClusterConfig) -> Files:
    """Production's files with every difference that is reported put into them."""
    files = settings_of(render(comparable(production, rehearsal)))
    for difference in differences(production, rehearsal):
        settings = files[difference.file].setdefault(difference.key, {})
        if difference.here is None:
            del settings[difference.name]
        else:
            settings[difference.name] = difference.here
    return {name: {key: value for key, value in found.items() if value} for name, found in files.items()}


def cloud(**changes: Any) -> ClusterConfig:
    return parse({**PLACE, "hpc:cluster": {**SMALL, **changes}})


def local(config: ClusterConfig, **options: Any) -> ClusterConfig:
    """The rehearsal, as the program would read it from its stack file."""
    return parse({"hpc:cluster": rehearsed(config, **options)})


def check(production: ClusterConfig, rehearsal: ClusterConfig) -> None:
    """What must hold of every rehearsal."""
    # What stands for gIB is the rehearsal's own.
    scripts = tuple(script for script in rehearsal.slurm.scripts if script.name != GIB["name"])
    rehearsal = rehearsal.model_copy(update={"slurm": rehearsal.slurm.model_copy(update={"scripts": scripts})})
    assert rehearsal.platform == "local"
    assert (rehearsal.name, rehearsal.login.on) == (production.name, production.login.on)
    assert list(rehearsal.nodesets) == list(production.nodesets)
    assert list(rehearsal.partitions) == list(production.partitions)
    for name, part in production.partitions.items():
        there = rehearsal.partitions[name].model_dump(exclude={"min_nodes", "max_nodes", "scripts", "conf"})
        assert there == part.model_dump(exclude={"min_nodes", "max_nodes", "scripts", "conf"})
    assert payload.users(rehearsal) == payload.users(production)
    assert payload.groups(rehearsal) == payload.groups(production)
    assert desired(rehearsal) == desired(production)
    assert accounts(rehearsal) == accounts(production)
    assert set(rehearsal.storage.shared) == {*targets(production), "/var/mail"}
    assert [s.name for _, s in placed_scripts(rehearsal)] == [s.name for _, s in placed_scripts(production)]
    assert not any(script.url for _, script in placed_scripts(rehearsal))
    assert not rehearsal.deletion_protection
    kinds = [
        {(m.nodeset, m.roles, m.machine_type.name, m.gpu) for m in (*machines(config), *elastic_machines(config))}
        for config in (production, rehearsal)
    ]
    assert kinds[0] == kinds[1]
    here = render(rehearsal, plan(rehearsal).of)
    assert expected_files(production, rehearsal) == settings_of(here)
    there = render(production)
    assert {name: text for name, text in here.items() if name.endswith(".lua")} == {
        name: text for name, text in there.items() if name.endswith(".lua")
    }


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("nodes", [None, 1, 16, 160])
@pytest.mark.parametrize("name", CLOUD)
def test_rehearsals_of_all_stacks_keep_slurms_configuration(name: str, nodes: int | None, elastic: bool):
    production = stacks.config(name)
    check(production, local(production, nodes=nodes, elastic=elastic))


def test_elastic_nodesets_stay_elastic_on_request():
    count = {"min": 6, "max": 9}
    nodesets = {"cpu": {"machine_type": "n2-standard-2", "count": count, "idle": "5m", "capacity": [{"spot": {}}]}}
    production = cloud(nodesets=nodesets, partitions={"cpu": {"nodesets": ["cpu"], "default": True}})
    assert (local(production).nodesets["cpu"].count, local(production, nodes=9).nodesets["cpu"].count) == (4, 9)
    kept = local(production, elastic=True).nodesets["cpu"]
    assert (kept.static, kept.most, kept.idle) == (AT_MOST, 9, "5m")
    assert [way.way for way in kept.ways] == ["spot"]
    assert not local(production, elastic=True, nodes=3).nodesets["cpu"].elastic
    names = [
        {difference.name for difference in differences(production, local(production, **options))}
        for options in ({}, {"elastic": True}, {"elastic": True, "faults": True})
    ]
    # Power saving is compared where it is rehearsed; a day of faults alone changes a time.
    assert not names[0] & {"ResumeProgram", "SuspendTime"}
    assert names[2] - names[1] == {"ResumeTimeout"}


@pytest.mark.parametrize("elastic", [False, True])
@pytest.mark.parametrize("changes", [{}, {"nodesets": {"worker": {"count": {"min": 1, "max": 16}, "idle": "20m"}}}])
def test_pods_are_machines_with_the_names_nodes_users_and_folders_of_the_stack(changes, elastic):
    given = stacks.load("nebius")
    given["hpc:cluster"]["nodesets"]["worker"] |= changes.get("nodesets", {}).get("worker", {})
    given["hpc:cluster"]["monitoring"] = {"disk_gb": 20, "receivers": {"slack": "#alerts"}}
    production = parse(given)
    rehearsal = local(production, nodes=2, elastic=elastic)
    assert [machine.name for machine in machines(rehearsal) if not machine.nodeset] == [
        machine.name for machine in machines(production) if not machine.nodeset
    ]
    assert node_names(rehearsal, "worker") == ("worker-0", "worker-1")
    assert "Gres=gpu:nvidia_h100_80gb_hbm3:8" in render(rehearsal)["slurm.conf"]
    assert payload.users(rehearsal) == payload.users(production)
    assert desired(rehearsal) == desired(production)
    assert set(rehearsal.storage.shared) == {"/home", "/opt/apps", "/mlperf-sd", "/var/mail"}
    # Soperator writes Slurm's files there.
    assert differences(production, rehearsal) == []
    assert any("an operator of Slurm writes them" in line for line in stood_in(production))


def test_host_names_are_those_of_production():
    production = cloud(login={"count": 2})
    names = [machine.name for machine in machines(local(production, nodes=9))]
    assert names == [
        "lab-controller", "lab-login-0", "lab-login-1", *(f"lab-a3mega-{n}" for n in range(9)),
        *(f"lab-cpu-{n}" for n in range(9)),
    ]  # fmt: skip


def test_a_large_nodeset_is_reduced_by_default_and_reported():
    production = cloud()
    rehearsal = local(production)
    assert {name: item.count for name, item in rehearsal.nodesets.items()} == {"a3mega": AT_MOST, "cpu": 1}
    assert stood_in(production) == ["nodeset a3mega: 4 of 9 nodes"]
    assert stood_in(production, nodes=16) == [
        "nodeset a3mega: 16 nodes, where the stack has 9",
        "nodeset cpu: 16 nodes, where the stack has 1",
    ]


def test_limits_of_partitions_are_at_most_their_nodes():
    partitions = {"a3mega": {"nodesets": ["a3mega", "cpu"], "default": True, "min_nodes": 8, "max_nodes": 10}}
    part = local(cloud(partitions=partitions), nodes=2).partitions["a3mega"]
    assert (part.min_nodes, part.max_nodes) == (4, 4)


def test_differences_have_both_values_and_the_reason():
    production = cloud()
    found = [str(difference) for difference in differences(production, local(production, cidr="10.99.0.0/20"))]
    assert found[0] == (
        "slurm.conf: SlurmctldHost=lab-controller(10.99.0.2), where production has lab-controller: local machines have "
        "fixed addresses"
    )
    assert (
        "slurm.conf: NodeAddr=10.99.4.1 of NodeName=lab-cpu-0, where production has none: local machines have fixed "
        "addresses"
    ) in found
    assert (
        "slurm.conf: NodeName=lab-a3mega-[0-3], where production has lab-a3mega-[0-8]: the rehearsal has another "
        "number of nodes"
    ) in found
    names = {difference.name for difference in differences(production, local(production)) if difference.why != COUNT}
    assert names == {
        "SlurmctldHost", "SlurmdParameters", "TaskPlugin", "JobAcctGatherType", "NodeAddr", "ConstrainCores"
    }  # fmt: skip


def test_a_parameter_of_a_newer_slurm_is_left_out_and_reported():
    newer = next(name for name in CONF.names("25.11") if "24.11" not in CONF.versions(name))
    production = cloud(slurm={"extra": {newer: "1", "KillOnBadExit": 1}, "version": "25.11"})
    rehearsal = local(production)
    assert dict(rehearsal.slurm.extra) == {"KillOnBadExit": 1}
    assert rehearsal.slurm_version == "24.11"
    (one,) = [difference for difference in differences(production, rehearsal) if difference.name == newer]
    assert str(one) == (
        f"slurm.conf: {newer} not set, where production has 1: Slurm 24.11, which local machines run, does not know it"
    )


def test_rxdm_is_a_stand_in_unless_the_real_prolog_is_requested():
    production = cloud(slurm={"rxdm": {"partitions": ["a3mega"], "file": "mine.sh"}})
    stand_in, real = local(production).slurm.rxdm, local(production, real_prolog=True).slurm.rxdm
    assert stand_in
    assert real
    assert (stand_in.file, real.file) == (STAND_IN, "mine.sh")
    assert stood_in(production, nodes=1)[-1].startswith("rxdm: scripts/local/rxdm.sh stands for the prolog")
    assert "scripts/node/stand_ins.sh stands for docker" in stood_in(production, nodes=1, real_prolog=True)[-1]
    assert [script.file for script in local(production, real_prolog=True).slurm.scripts] == [
        "scripts/node/stand_ins.sh"
    ]
    assert local(production).slurm.scripts == ()


def test_a_read_only_bucket_is_rehearsed_read_only():
    read_only = {"name": "my-datasets", "mount": "/gcs", "read_only": True}
    storage = {"buckets": [read_only, {"name": "my-results", "mount": "/results"}]}
    rehearsal = local(cloud(storage=storage))
    assert rehearsal.storage.read_only == ("/gcs",)
    options = {mount["target"]: mount["options"] for mount in mounts(rehearsal)}
    assert (options["/gcs"], options["/results"]) == ("ro,_netdev", "defaults,_netdev")


def test_metrics_are_rehearsed_without_receivers_of_alerts():
    wanted = {"retention_days": 3, "receivers": {"slack": "#alerts", "webhook": True, "watchdog": True}}
    config = parse({"hpc:cluster": {**SMALL, "monitoring": wanted}, **PLACE})
    assert rehearsed(config)["monitoring"] == {"retention_days": 3}
    assert "alerts: slack, webhook, watchdog get none; ./hpc status shows them" in stood_in(config)
    assert "monitoring" not in rehearsed(parse({"hpc:cluster": SMALL, **PLACE}))


def test_programs_of_a_custom_image_have_stand_ins():
    zsh = {"name": "site", "text": "#!/usr/bin/zsh\n"}
    users = [{"name": "alice", "uid": 2001, "shell": "/usr/bin/zsh"}, {"name": "bob", "uid": 2002, "shell": "/bin/sh"}]
    with pytest.raises(ConfigError):
        cloud(users=users)
    production = cloud(users=users, slurm={"scripts": [zsh]}, image={"name": "ours-with-zsh"})
    rehearsal = local(production)
    assert [user.shell for user in rehearsal.users] == ["/bin/bash", "/bin/sh"]
    assert [script.text for script in rehearsal.slurm.scripts] == [
        "#!/bin/sh\n# Stands for a script for '/usr/bin/zsh', which a rehearsal can not have.\nexit 0\n"
    ]
    assert stood_in(production)[-2:] == [
        "script site: does nothing; it is a script for '/usr/bin/zsh', which local machines lack",
        "user alice: /bin/bash in place of /usr/bin/zsh, which local machines lack",
    ]


def test_a_script_by_url_does_nothing_and_keeps_its_place():
    url = {"name": "site", "on": ["prolog", "epilog"], "url": "https://example.org/site.sh", "sha256": "0" * 64}
    production = cloud(slurm={"scripts": [url]}, nodesets={**SMALL["nodesets"], "cpu": {"scripts": [url]}})
    (first, second) = [script for _, script in placed_scripts(local(production))]
    assert first == second
    assert first.on == ("prolog", "epilog")
    assert (
        first.text == "#!/bin/sh\n# Stands for https://example.org/site.sh, which a rehearsal can not have.\nexit 0\n"
    )
    assert "script site: does nothing; a rehearsal has no way out to https://example.org/site.sh" in stood_in(
        production
    )


class TestNetwork:
    def test_candidate_networks_overlap_neither_each_other_nor_dev(self):
        found = [ipaddress.IPv4Network(item) for item, _ in zip(candidates(20), range(300), strict=False)]
        assert found[0] == ipaddress.IPv4Network("10.78.0.0/20")
        assert len(set(found)) == 300
        assert not any(item.overlaps(ipaddress.IPv4Network("10.77.0.0/20")) for item in found)

    def test_there_is_no_candidate_for_more_than_the_private_range(self):
        assert list(candidates(8)) == ["10.0.0.0/8"]
        assert list(candidates(7)) == []

    @pytest.mark.parametrize(
        ("nodes", "logins", "wanted"),
        [(None, 1, 26), (6, 1, 26), (7, 1, 25), (510, 1, 20), (511, 1, 19), (1, 508, 20), (1, 509, 19), (5000, 1, 16)],
    )
    def test_the_network_is_as_large_as_needed(self, nodes: int | None, logins: int, wanted: int):
        production = cloud(login={"count": logins}, network={"cidr": "172.16.0.0/12"})
        assert room(production, nodes=nodes) == wanted
        if nodes is None or nodes <= 510:  # more than a bridge takes are refused
            local(production, nodes=nodes)
            local(production, nodes=nodes, cidr=f"10.0.0.0/{wanted}")


MOUNTS = st.lists(
    st.sampled_from(["/gcs", "/data", "/Data", "/my_data", "/opt-apps", "/mnt/sets", "/scratch.1"]),
    max_size=4, unique=True,
)  # fmt: skip
MACHINES = st.sampled_from(
    [
        {"machine_type": "n2-standard-2"},
        {"machine_type": "a3-megagpu-8g"},
        {"machine_type": "n1-standard-1", "gpus": {"type": "t4", "count": 2}},
        {"machine_type": "n2-standard-4", "features": ["fast"], "node_conf": {"Weight": 7}},
        {"machine_type": "n2-standard-2", "scripts": [{"name": "own", "text": "#!/bin/sh\n"}]},
    ]
)


@st.composite
def clusters(draw: st.DrawFn) -> Mapping[str, Any]:
    names = draw(st.lists(st.sampled_from([f"set{n}" for n in range(14)]), min_size=1, max_size=12, unique=True))
    counts = st.integers(1, 600)
    nodesets: dict[str, dict[str, Any]] = {name: {**draw(MACHINES), "count": draw(counts)} for name in names}
    if draw(st.booleans()):
        nodesets[names[0]] = {"on": "controller"}
    partitions: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        part: dict[str, Any] = {"nodesets": names[: number + 1], "default": number == 0}
        there = sum(nodesets[nodeset].get("count", 1) for nodeset in part["nodesets"])
        if draw(st.booleans()):
            part["min_nodes"] = draw(st.integers(0, there))
        if draw(st.booleans()):
            part["max_nodes"] = draw(st.integers(max(1, part.get("min_nodes", 1)), there))
        if draw(st.booleans()):
            part |= {"exclusive": True, "max_time": "12:00:00", "allow_groups": ["ml"]}
        partitions[name] = part
    mounts = draw(MOUNTS)
    storage: dict[str, Any] = {"buckets": [{"name": f"my-bucket-{n}", "mount": at} for n, at in enumerate(mounts)]}
    if draw(st.booleans()):
        storage["filestore"] = {"mount": draw(st.sampled_from(["/home", "/shared", "/opt/apps"]))}
    if draw(st.booleans()):
        storage["lustre"] = {"kind": "managed", "mount": "/lustre"}
    slurm: dict[str, Any] = {}
    if draw(st.booleans()):
        slurm["extra"] = {"DebugFlags": "Gres", "PriorityWeightAge": 7}
    if draw(st.booleans()):
        slurm |= {"job_account_gather": draw(st.sampled_from(["cgroup", "linux"])), "consumable": "cpu"}
    if draw(st.booleans()):
        slurm["rxdm"] = {"partitions": [names[-1]]}
    return {
        "platform": "gcp",
        "name": "lab",
        "network": {"cidr": "172.16.0.0/12"},
        "storage": storage,
        "login": draw(st.sampled_from([{}, {"on": "controller"}, {"count": 0}, {"count": 40}])),
        "monitoring": draw(st.sampled_from([None, {"machine": {"machine_type": "n2-standard-4"}}])),
        "nodesets": nodesets,
        "partitions": partitions,
        "groups": {"ml": 3001},
        "users": [{"name": "alice", "uid": 2001, "groups": ["ml"], "account": "research"}],
        "slurm": slurm,
    }  # fmt: skip


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(clusters(), st.one_of(st.none(), st.integers(1, 80)))
def test_rehearsals_of_generated_stacks_keep_slurms_configuration(section: Mapping[str, Any], nodes: int | None):
    try:
        production = parse({**PLACE, "hpc:cluster": section})
    except ConfigError:
        assume(False)
        raise
    check(production, local(production, nodes=nodes))
