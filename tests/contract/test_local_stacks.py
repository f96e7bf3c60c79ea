"""What holds for every rehearsal: addresses known beforehand, files that machines are made with."""

import pytest

from cluster.platforms.local.address_plan import plan
from cluster.roster import machines
from components.slurm.keys import fingerprint
from tests.cluster import stacks
from tests.contract.seen import MODES, Seen, record

LOCAL = [name for name in stacks.STACKS if stacks.config(name).platform == "local"]


@pytest.fixture(params=[(stack, mode) for stack in LOCAL for mode in MODES], ids="-".join)
def rehearsal(request: pytest.FixtureRequest) -> Seen:
    return record(*request.param)


def test_a_command_logs_in_where_it_is_meant_to(rehearsal):
    for one in rehearsal.commands():
        if rehearsal.known:
            machine = rehearsal.machine_of(one)
            key = [fingerprint("bXVuZ2Uta2V5")] if one.name.endswith(("-configure", "-nodes", "-ready")) else []
            assert one.inputs["triggers"] == [f"instance-{machine.name}", *key]
            assert one.inputs["connection"]["hostKey"] == f"ssh-ed25519 host-key-of-{machine.name}"
            assert one.inputs["connection"]["host"] == machine.inputs["address"]


def test_every_machine_is_told_with_its_address_and_nothing_in_between(rehearsal):
    addresses = plan(rehearsal.config).of
    for machine in machines(rehearsal.config):
        assert rehearsal.recording.outputs["machines"][machine.name] == {
            "address": addresses[machine.name],
            "roles": list(machine.roles),
            "host_key": f"ssh-ed25519 host-key-of-{machine.name}" if rehearsal.known else None,
        }


@pytest.mark.parametrize("stack", LOCAL)
def test_a_node_is_made_with_its_key(stack):
    seen = record(stack, "made")
    for machine in machines(seen.config):
        if machine.roles == ("node",):
            files = seen.recording.one(machine.name).inputs["files"]
            assert "bXVuZ2Uta2V5" in files["/etc/hpc/munge.key"]["content"]
