"""The resources of a local cluster: in which order, what is protected, what is secret."""

import pickle
from typing import Any

import pulumi
import pytest

from cluster.load import parse
from cluster.roster import MachineSpec, machines
from components.local.deploy import LocalPlatform, devices, folder_name, mounts
from components.local.host.paths import checked_name
from components.machine import Boot, BootFile
from tests.harness import Recording, deploy

CONFIG: dict[str, Any] = {
    "platform": "local",
    "name": "lab",
    "nodesets": {"cpu": {"count": 2}, "gpu": {"machine_type": "local-2c-2gpu", "count": 1}},
    "partitions": {"cpu": {"nodesets": ["cpu"], "default": True}},
}


def _deploy(**changes: Any) -> Recording:
    config = parse({"hpc:cluster": {**CONFIG, **changes}})

    def boot(spec: MachineSpec) -> Boot:
        if spec.roles != ("node",):
            return {}
        key = pulumi.Output.secret("munge")
        return {"/etc/munge/munge.key": BootFile(content=key, mode=0o400, owner="munge:munge")}

    def program() -> None:
        made = LocalPlatform("lab", config, "ssh-ed25519 AAAA", boot)
        pulumi.export("mounts", list(mounts(config)))
        for machine in made.machines:
            # Host keys are pinned: nobody is trusted because he answered first.
            connection = machine.connection("PRIVATE")
            assert (connection.host, connection.host_key) == (machine.address, machine.host_key)

    return deploy(program)


@pytest.fixture(scope="module")
def recording() -> Recording:
    return _deploy()


MACHINES = ["lab-controller", "lab-login-0", "lab-cpu-0", "lab-cpu-1", "lab-gpu-0"]


def test_machines_wait_for_image_network_and_shared_folders(recording: Recording) -> None:
    for name in MACHINES:
        for earlier in ("lab-image", "lab-network", "lab-home", "lab-opt-apps", "lab-var-mail"):
            assert recording.waits_for(recording.one(name), recording.one(earlier))


def test_machines_do_not_wait_for_each_other(recording: Recording) -> None:
    for later in MACHINES:
        for earlier in MACHINES:
            assert not recording.waits_for(recording.one(later), recording.one(earlier))


def test_a_machine_is_deleted_before_its_replacement_also_by_force(recording: Recording) -> None:
    """`pulumi up --replace URN` removed the new one, which had the old one's folder, and reported success."""
    assert all(recording.one(name).request.deleteBeforeReplace for name in MACHINES)
    # These are taken over by their successor (components.local.host.owner): what is in them stays.
    for name in ("lab-network", "lab-home", "lab-image"):
        assert not recording.one(name).request.deleteBeforeReplace


def test_everything_is_the_platforms_child_and_it_registers_outputs(recording: Recording) -> None:
    platform = recording.one("lab")
    assert platform.type == "hpc:local:LocalPlatform"
    assert all(r.parent == platform.urn for r in recording.resources if r is not platform)
    assert recording.registered_outputs[platform.urn]["machine_addresses"]["lab-controller"] == "10.77.0.2"


def test_secrets_in_boot_files_are_secret(recording: Recording) -> None:
    assert recording.one("lab-cpu-0").secret("files")
    assert recording.one("lab-cpu-0").inputs["files"]["/etc/munge/munge.key"] == {
        "content": "munge",
        "mode": "0400",
        "owner": "munge:munge",
    }
    assert recording.one("lab-controller").inputs["files"] == {}


def test_the_names_of_machines_are_an_input_of_the_network_only(recording: Recording) -> None:
    """A node more must change the network, and no other machine."""
    assert sorted(recording.one("lab-network").inputs["hosts"]) == sorted(MACHINES)
    more = _deploy(nodesets={**CONFIG["nodesets"], "cpu": {"count": 3}})
    for name in MACHINES:
        assert more.one(name).inputs == recording.one(name).inputs
    assert "lab-cpu-2" in more.one("lab-network").inputs["hosts"]


def test_only_data_is_protected() -> None:
    recording = _deploy(deletion_protection=True)
    protected = {r.name for r in recording.resources if r.request.protect}
    assert protected == {"lab-home", "lab-opt-apps", "lab-var-mail", "lab-hpc--state"}


def test_mounts_are_valid_in_fstab(recording: Recording) -> None:
    assert recording.outputs["mounts"][1] == {
        "source": "10.77.0.1@tcp:/opt-apps",
        "target": "/opt/apps",
        "fs_type": "lustre",
        "options": "defaults,_netdev",
    }


def test_mailboxes_can_be_made_by_the_delivery_agent(recording: Recording) -> None:
    assert recording.one("lab-var-mail").inputs["mode"] == "2775"
    assert recording.one("lab-var-mail").inputs["gid"] == 8
    assert recording.one("lab-home").inputs["mode"] == "0755"


def test_gpus_are_character_devices(recording: Recording) -> None:
    specs = {spec.name: spec for spec in machines(parse({"hpc:cluster": CONFIG}))}
    assert devices(specs["lab-cpu-0"]) == []
    assert devices(specs["lab-gpu-0"]) == [
        {"name": "nvidia0", "major": 60, "minor": 0},
        {"name": "nvidia1", "major": 60, "minor": 1},
    ]


def test_only_the_database_is_shut_down_in_order(recording: Recording) -> None:
    assert [name for name in MACHINES if recording.one(name).inputs["orderly"]] == ["lab-controller"]


def test_folders_are_named_after_their_mount_points() -> None:
    assert [folder_name(target) for target in ("/home", "/opt/apps", "/var/mail")] == ["home", "opt-apps", "var-mail"]


def test_folders_of_different_mount_points_have_different_valid_names() -> None:
    places = ["/opt/apps", "/opt-apps", "/opt.apps", "/Opt/apps", "/my_data", "/my-data", "/___", "/" + "d" * 200]
    names = {folder_name(place) for place in places}
    assert len(names) == len(places)
    assert {checked_name(name, "shared folder") for name in names} == names


def test_presents_as_sets_os_release() -> None:
    text = _deploy(image={"presents_as": "ubuntu-2204"}).one("lab-cpu-0").inputs["os_release"]
    assert {"ID=ubuntu", "ID_LIKE=debian", 'VERSION_ID="22.04"'} <= set(text.splitlines())
    assert _deploy().one("lab-cpu-0").inputs["os_release"] == ""


def test_a_root_that_can_not_hold_machines_is_refused_with_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPC_LOCAL_ROOT", "/srv/my machines")
    with pytest.raises(pulumi.RunError, match="/srv/my machines: the folder of local machines must be"):
        _deploy()


def test_any_number_of_resources_can_be_made_in_one_program() -> None:
    """The SDK nests a wrapper into pickle's Pickler for each dynamic resource; hundreds of machines would fail."""
    pickler = vars(pickle)["_Pickler"]
    before = dict(vars(pickler))
    deploy("dev")
    assert dict(vars(pickler)) == before
