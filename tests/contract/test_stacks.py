"""What holds for every stack, shipped or the tests' own: made, previewed, and with everything unknown."""

import json
import re

import pytest

from cluster.load import parse_output
from cluster.platforms import registry
from cluster.platforms.local.address_plan import plan
from cluster.roster import machines, monitoring_name
from components.slurm.keys import fingerprint
from tests.cluster import stacks
from tests.contract.seen import Seen, components_of, modes, record, texts
from tests.harness import FAKE_SECRETS, deploy

# State refers to resources by these names: a changed one would replace what it stands for.
SLURM = {"hpc:slurm:ClusterKeys", "hpc:slurm:SlurmCluster"}
TOKENS: dict[str, set[str]] = {
    "local": {
        "hpc:local:LocalPlatform",
        "pulumi-python:dynamic/local:Cloud",
        "pulumi-python:dynamic/local:Image",
        "pulumi-python:dynamic/local:Machine",
        "pulumi-python:dynamic/local:Network",
        "pulumi-python:dynamic/local:SharedFolder",
    },
    "gcp": {
        *(
            f"hpc:gcp:{name}"
            for name in (
                "GcpPlatform Services Network Nat Peering Identity Secrets SetupBucket Storage ExascalerLustre "
                "ExascalerServer ManagedLustre ExistingLustre FilestoreShare NfsDirectories Buckets Image Machines "
                "Controller Login Monitoring Nodeset"
            ).split()
        ),
        "pulumi-python:dynamic/gcp:BakeLeftovers",
        "pulumi-python:dynamic/gcp:Barrier",
        "pulumi-python:dynamic/gcp:ElasticInstances",
        "pulumi-python:dynamic/gcp:FlexNode",
        "pulumi-python:dynamic/gcp:FlexQueue",
        "pulumi-python:dynamic/gcp:FlexRequest",
        "pulumi-python:dynamic/gcp:BakedImage",
        "pulumi-python:dynamic/gcp:Controller",
    },
}
DATA = {
    "pulumi-python:dynamic/local:SharedFolder",
    "gcp:compute/disk:Disk",
    "gcp:compute/regionDisk:RegionDisk",
    "gcp:filestore/instance:Instance",
    "gcp:lustre/instance:Instance",
}
"""What people's files and records are in."""


def own_components() -> set[type]:
    """Every component class of clusters of machines, wherever it is defined."""
    return {one for one in components_of("components") if not one.__module__.startswith("components.nebius.")}


def test_the_shipped_stacks_are_among_them():
    assert {"dev", "a3mega", "a3mega-managed", "classic"} <= set(stacks.STACKS)


class TestTree:
    def test_types_are_those_that_states_already_name(self, seen):
        own = {one.type for one in seen.recording.resources if one.type.startswith(("hpc:", "pulumi-python:"))}
        assert SLURM <= own <= SLURM | TOKENS[seen.config.platform]

    def test_every_type_is_in_use(self):
        used = {one.type for name in stacks.STACKS for one in record(name, "made").recording.resources}
        assert set().union(SLURM, *TOKENS.values()) <= used

    def test_components_are_named_after_their_class(self):
        assert own_components()
        for one in own_components():
            assert f"hpc:{one.__module__.split('.')[1]}:{one.__name__}" in set().union(SLURM, *TOKENS.values())

    def test_components_say_what_they_made(self, seen):
        made = [one for one in seen.recording.resources if not one.custom]
        assert made
        for one in made:
            assert seen.recording.registered_outputs[one.urn], f"{one.type} registers no outputs"

    def test_everything_is_part_of_a_component(self, seen):
        own = {one.urn: one for one in seen.recording.resources if not one.custom}
        for one in seen.recording.resources:
            if one.custom:
                assert one.parent in own, f"{one.name} is nobody's child"
                assert one.name.startswith(own[one.parent].name + "-")

    def test_no_output_became_text(self, every):
        shown = [made.inputs for made in every.recording.resources] + [*every.recording.registered_outputs.values()]
        assert [t for t in texts(shown) if "Calling __str__" in t or re.search(r"\bOutput\[|\.Output ", t)] == []


class TestCommands:
    def test_a_machine_made_anew_is_set_up_again(self, seen):
        assert seen.commands()
        for one in seen.commands():
            assert one.inputs["triggers"], f"{one.name} has no triggers"
            whole = f"{seen.config.name}-controller"
            machine, _, _ = one.name.rpartition("-")
            known = {spec.name for spec in machines(seen.config)}
            assert seen.machine_of(one).name == (machine if machine in known else whole)

    def test_no_machine_is_trusted_because_it_answered(self, seen):
        for one in seen.commands():
            if seen.known:
                assert one.inputs["connection"]["hostKey"].startswith("ssh-ed25519 ")
                proxy = one.inputs["connection"].get("proxy")
                assert proxy is None or proxy["hostKey"].startswith("ssh-ed25519 ")
            else:
                # A key that was left out would be known to be missing.
                assert one.inputs["connection"] is None or "hostKey" in one.inputs["connection"]

    def test_a_changed_input_runs_the_same_again(self, seen):
        for one in seen.commands():
            assert one.inputs["update"] == one.inputs["create"]

    def test_another_munge_key_is_taken_up_and_proved(self, seen):
        (drawn,) = [one for one in seen.recording.resources if one.name == f"{seen.config.name}-munge"]
        for one in seen.commands():
            follows = drawn.urn in one.request.propertyDependencies["triggers"].urns
            whole = {f"{seen.config.name}-{phase}" for phase in ("nodes", "ready")}
            assert follows == (one.name.endswith("-configure") or one.name in whole)


class TestLeaving:
    """A node is emptied before its machine goes, and a whole cluster without that."""

    def test_every_nodes_machine_has_one_that_goes_before_it(self, seen):
        nodes = {one.name for one in machines(seen.config) if one.roles == ("node",)}
        assert {one.name for one in seen.leaves()} == {f"{name}-leave" for name in nodes}
        controller = seen.machine(f"{seen.config.name}-controller")
        for one in seen.leaves():
            machine = seen.machine(one.name.removesuffix("-leave"))
            assert list(one.request.propertyDependencies["triggers"].urns) == [machine.urn]
            assert "update" not in one.inputs
            assert "leave" in one.inputs["delete"]
            assert one.name.removesuffix("-leave") in one.inputs["stdin"]
            assert one.inputs["connection"] == seen.command(f"{controller.name}-configure").inputs["connection"]
            assert one.request.deletedWith == controller.urn


CERTIFICATE = "tls:index/selfSignedCert:SelfSignedCert"


class TestSecrets:
    def test_nothing_is_drawn_whose_id_is_what_was_drawn(self, seen):
        """Ids stand in the state in clear. Of a password it is a word, of a TLS key a hash of the public half, of a
        certificate its number."""
        drawn = [one for one in seen.recording.resources if one.type.startswith(("random:", "tls:"))]
        # The end of a role's name is no secret.
        drawn = {one.type for one in drawn if not one.name.endswith("-role-id")} - {CERTIFICATE}
        assert drawn == {"random:index/randomPassword:RandomPassword", "tls:index/privateKey:PrivateKey"}

    def test_none_is_shown(self, every):
        for made in every.recording.resources:
            leaks = [text for text in texts(made.shown) for secret in FAKE_SECRETS if secret in text]
            assert leaks == [], f"{made.name} shows a secret"
        shown = texts(every.recording.shown_outputs)
        assert [text for text in shown for secret in FAKE_SECRETS if secret in text] == []

    def test_none_is_on_a_command_line(self, seen):
        """Everybody on the machine reads those."""
        for one in seen.commands():
            for key in ("create", "update", "delete", "environment"):
                assert not one.secret(key)
                assert not any(secret in json.dumps(one.inputs.get(key, "")) for secret in FAKE_SECRETS)

    def test_connections_and_deliveries_are_marked(self, seen):
        for one in seen.commands():
            assert one.secret("connection")
            assert one.secret("stdin") == one.name.endswith("-secrets")

    @pytest.mark.parametrize("stack", stacks.STACKS)
    def test_they_arrive(self, stack):
        seen = record(stack, "made")
        for machine in machines(seen.config):
            if machine.roles == ("node",):
                continue  # these have them from the platform
            brought = json.loads(seen.command(f"{machine.name}-secrets").inputs["stdin"])
            assert all(brought.values())
            assert ("/etc/hpc/database-password" in brought) == ("controller" in machine.roles)

    @pytest.mark.parametrize("stack", ["dev", "a3mega"])
    def test_a_key_for_tokens_is_drawn_where_there_is_rest_and_brought_to_the_controller_alone(self, stack):
        settings = stacks.load(stack)
        without = {one.urn for one in record(stack, "made").recording.resources}
        settings["hpc:cluster"].setdefault("slurm", {})["slurmrestd"] = True
        recording = deploy(settings)
        (tokens,) = [one for one in recording.resources if one.urn not in without]
        assert (tokens.type, tokens.inputs["length"]) == ("random:index/randomPassword:RandomPassword", 64)
        assert without < {one.urn for one in recording.resources}
        brought = [
            one.name
            for one in recording.all("command:remote:Command")
            if one.name.endswith("-secrets") and "/etc/hpc/jwt.key" in json.loads(one.inputs["stdin"])
        ]
        assert brought == [f"{stacks.config(stack).name}-controller-secrets"]


class TestProtection:
    @pytest.mark.parametrize("protected", [True, False])
    @pytest.mark.parametrize("stack", stacks.STACKS)
    def test_data_is_kept_where_the_stack_says_so_and_nothing_else(self, stack, protected):
        recording = record(stack, "made").recording
        if stacks.config(stack).deletion_protection is not protected:
            settings = stacks.load(stack)
            settings["hpc:cluster"]["deletion_protection"] = protected
            recording = deploy(settings)
        data = {one.name for one in recording.resources if one.type in DATA and not one.name.endswith("-boot")}
        assert data
        assert {one.name for one in recording.resources if one.request.protect} == (data if protected else set())

    def test_nothing_is_left_behind_by_destroy(self, seen):
        assert [one.name for one in seen.recording.resources if one.request.retainOnDelete] == []


class TestOrder:
    def test_a_machine_is_configured_once_set_up_and_secrets_are_there(self, seen):
        for one in seen.commands():
            machine, _, phase = one.name.rpartition("-")
            if phase == "configure":
                for earlier in ("setup", "secrets"):
                    assert seen.recording.waits_for(one, seen.command(f"{machine}-{earlier}"))

    def test_nodes_and_accounts_wait_for_the_controller(self, seen):
        configured = seen.command(f"{seen.config.name}-controller-configure")
        for phase in ("nodes", "accounting"):
            assert seen.recording.waits_for(seen.command(f"{seen.config.name}-{phase}"), configured)

    def test_waiting_for_nodes_begins_once_they_are_made(self, seen):
        waits = seen.command(f"{seen.config.name}-nodes")
        nodes = [machine.name for machine in machines(seen.config) if "node" in machine.roles]
        assert nodes
        assert all(seen.recording.waits_for(waits, seen.machine(name)) for name in nodes)

    def test_the_proof_comes_last(self, seen):
        """After it Slurm is told when machines end, which is of no cluster that does not work."""
        last, waits_for = seen.command(f"{seen.config.name}-ready"), seen.recording.waits_for
        for one in (one for one in seen.commands() if one is not last):
            assert waits_for(one, last) if one.name == f"{seen.config.name}-ends" else waits_for(last, one)

    def test_machines_are_set_up_side_by_side(self, seen):
        """A login machine that waited for the controller would add its minutes to the controller's."""
        whole = {f"{seen.config.name}-{phase}" for phase in ("nodes", "accounting", "ready", "ends", "lustre-ready")}
        alone = [one for one in seen.commands() if one.name not in whole]
        for one in alone:
            for other in alone:
                if seen.machine_of(one).urn != seen.machine_of(other).urn:
                    assert not seen.recording.waits_for(one, other)


class TestOutputs:
    """What the command line reads; it has nothing else to find the machines by."""

    def test_they_are_these(self, seen):
        every = {
            "admin_key", "cluster", "config", "config_hash", "login", "machines", "munge_key", "place", "platform",
            "releases", "images", "targets", "users",
        }  # fmt: skip
        if seen.config.monitoring and seen.config.monitoring.web:
            every.add("prometheus")
        own = {"local": set(), "gcp": {"addresses", "console", "image", "nodes", "ssh", "storage"}}
        assert set(seen.recording.outputs) == every | own[seen.config.platform]

    def test_the_configuration_can_be_read_back(self, seen):
        if seen.recording.outputs["config"] is None:
            return  # nothing is made yet, so nothing runs with it
        read = parse_output(seen.recording.outputs["config"])
        assert read == registry.get(seen.config.platform).keep(None, seen.config)

    def test_every_machine_is_there_with_how_to_reach_it(self, seen):
        found = seen.recording.outputs["machines"]
        assert set(found) == {machine.name for machine in machines(seen.config)}
        for machine in machines(seen.config):
            assert found[machine.name]["roles"] == list(machine.roles)
            assert {"address", "host_key"} <= set(found[machine.name])

    def test_people_log_in_where_they_may(self, seen):
        outputs = seen.recording.outputs
        assert "login" in outputs["machines"][outputs["login"]]["roles"]
        assert outputs["users"] == [user.name for user in seen.config.users]
        assert outputs["cluster"] == seen.config.name

    def test_the_operators_key_is_secret(self, every):
        (shown,) = [out for urn, out in every.recording.shown_outputs.items() if "pulumi:pulumi:Stack" in urn]
        assert shown["admin_key"] is None
        if every.known:
            assert "PRIVATE KEY" in every.recording.outputs["admin_key"]

    def test_the_hash_is_known_once_the_controller_runs_with_it(self, seen):
        found = seen.recording.outputs["config_hash"]
        assert re.fullmatch(r"[0-9a-f]{64}", found) if seen.known else found is None


LOCAL = [name for name in stacks.STACKS if stacks.config(name).platform == "local"]


@pytest.fixture(params=[(stack, mode) for stack in LOCAL for mode in modes(stack)], ids="-".join)
def rehearsal(request: pytest.FixtureRequest) -> Seen:
    return record(*request.param)


def test_a_command_logs_in_where_it_is_meant_to(rehearsal):
    for one in rehearsal.commands():
        if rehearsal.known:
            machine = rehearsal.machine_of(one)
            key = [fingerprint("bXVuZ2Uta2V5")] if one.name.endswith(("-configure", "-nodes", "-ready")) else []
            if rehearsal.config.monitoring and one.name == f"{monitoring_name(rehearsal.config)}-configure":
                key += one.inputs["triggers"][2:]  # a hash of its secrets
                assert one.secret("triggers") == bool(rehearsal.config.monitoring.secrets)
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
def test_a_local_node_is_made_with_its_key(stack):
    seen = record(stack, "made")
    for machine in machines(seen.config):
        if machine.roles == ("node",):
            files = seen.recording.one(machine.name).inputs["files"]
            assert "bXVuZ2Uta2V5" in files["/etc/hpc/munge.key"]["content"]
