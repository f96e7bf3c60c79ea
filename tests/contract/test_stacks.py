"""Properties of every stack of machines: made, previewed, and with all outputs unknown."""

import json
import re

import pytest

from cluster.load import parse_output
from cluster.platforms import registry
from cluster.platforms.local.address_plan import plan
from cluster.roster import machines, monitoring_name
from components.slurm.keys import fingerprint
from tests.cluster import stacks
from tests.contract.recorded import StackRun, components_of, modes, record, texts, unnamed
from tests.harness import FAKE_SECRETS, deploy

# State refers to resources by these names: a changed one would replace what it stands for.
SLURM = {"hpc:slurm:ClusterKeys", "hpc:slurm:DeletionProtection", "hpc:slurm:SlurmCluster"}
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
    return {
        component
        for component in components_of("components")
        if not component.__module__.startswith("components.nebius.")
    }


def test_the_shipped_stacks_are_tested():
    assert {"dev", "a3mega", "a3mega-managed", "classic"} <= set(stacks.STACKS)


class TestTree:
    def test_types_of_resources_are_constant(self, run):
        own = {
            resource.type
            for resource in run.recording.resources
            if resource.type.startswith(("hpc:", "pulumi-python:"))
        }
        assert SLURM <= own <= SLURM | TOKENS[run.config.platform]

    def test_every_type_is_used(self):
        used = {resource.type for name in stacks.STACKS for resource in record(name, "made").recording.resources}
        assert set().union(SLURM, *TOKENS.values()) <= used

    def test_the_class_of_a_component_has_the_name_of_its_type(self):
        """A class may have more words, since the platforms' classes have different names: hpc:gcp:Network is the class
        GoogleNetwork of components/gcp."""
        types = {name for name in set().union(SLURM, *TOKENS.values()) if name.startswith("hpc:")}
        assert own_components()
        assert unnamed(types, own_components()) == (set(), set())

    def test_components_register_outputs(self, run):
        made = [resource for resource in run.recording.resources if not resource.custom]
        assert made
        for component in made:
            assert run.recording.registered_outputs[component.urn], f"{component.type} registers no outputs"

    def test_everything_is_part_of_a_component(self, run):
        own = {resource.urn: resource for resource in run.recording.resources if not resource.custom}
        for resource in run.recording.resources:
            if resource.custom:
                assert resource.parent in own, f"{resource.name} is nobody's child"
                assert resource.name.startswith(own[resource.parent].name + "-")

    def test_no_output_became_text(self, every):
        shown = [made.inputs for made in every.recording.resources] + [*every.recording.registered_outputs.values()]
        assert [t for t in texts(shown) if "Calling __str__" in t or re.search(r"\bOutput\[|\.Output ", t)] == []


class TestCommands:
    def test_a_machine_made_anew_is_set_up_again(self, run):
        assert run.commands()
        for command in run.commands():
            assert command.inputs["triggers"], f"{command.name} has no triggers"
            whole = f"{run.config.name}-controller"
            machine, _, _ = command.name.rpartition("-")
            known = {spec.name for spec in machines(run.config)}
            assert run.machine_of(command).name == (machine if machine in known else whole)

    def test_host_keys_are_pinned_in_connections(self, run):
        for command in run.commands():
            if run.known:
                assert command.inputs["connection"]["hostKey"].startswith("ssh-ed25519 ")
                proxy = command.inputs["connection"].get("proxy")
                assert proxy is None or proxy["hostKey"].startswith("ssh-ed25519 ")
            else:
                # A key that was left out would be known to be missing.
                assert command.inputs["connection"] is None or "hostKey" in command.inputs["connection"]

    def test_an_update_runs_the_same_command(self, run):
        for command in run.commands():
            assert command.inputs["update"] == command.inputs["create"]

    def test_another_munge_key_configures_all_machines_again(self, run):
        (drawn,) = [resource for resource in run.recording.resources if resource.name == f"{run.config.name}-munge"]
        for command in run.commands():
            follows = drawn.urn in command.request.propertyDependencies["triggers"].urns
            whole = {f"{run.config.name}-{phase}" for phase in ("nodes", "ready")}
            assert follows == (command.name.endswith("-configure") or command.name in whole)


class TestLeaving:
    """A node is emptied before its machine goes, and a whole cluster without that."""

    def test_every_node_has_a_leave_that_is_deleted_before_its_machine(self, run):
        nodes = {machine.name for machine in machines(run.config) if machine.roles == ("node",)}
        assert {leave.name for leave in run.leaves()} == {f"{name}-leave" for name in nodes}
        controller = run.machine(f"{run.config.name}-controller")
        for leave in run.leaves():
            machine = run.machine(leave.name.removesuffix("-leave"))
            assert list(leave.request.propertyDependencies["triggers"].urns) == [machine.urn]
            assert "update" not in leave.inputs
            assert "leave" in leave.inputs["delete"]
            assert leave.name.removesuffix("-leave") in leave.inputs["stdin"]
            assert leave.inputs["connection"] == run.command(f"{controller.name}-configure").inputs["connection"]
            assert leave.request.deletedWith == controller.urn


CERTIFICATE = "tls:index/selfSignedCert:SelfSignedCert"


class TestSecrets:
    def test_no_random_resource_has_its_secret_as_id(self, run):
        """Ids stand in the state in clear. Of a password it is a word, of a TLS key a hash of the public half, of a
        certificate its number."""
        drawn = [resource for resource in run.recording.resources if resource.type.startswith(("random:", "tls:"))]
        # The end of a role's name is no secret.
        drawn = {resource.type for resource in drawn if not resource.name.endswith("-role-id")} - {CERTIFICATE}
        assert drawn == {"random:index/randomPassword:RandomPassword", "tls:index/privateKey:PrivateKey"}

    def test_none_is_shown(self, every):
        for made in every.recording.resources:
            leaks = [text for text in texts(made.shown) for secret in FAKE_SECRETS if secret in text]
            assert leaks == [], f"{made.name} shows a secret"
        shown = texts(every.recording.shown_outputs)
        assert [text for text in shown for secret in FAKE_SECRETS if secret in text] == []

    def test_none_is_on_a_command_line(self, run):
        """Everybody on the machine reads those."""
        for command in run.commands():
            for key in ("create", "update", "delete", "environment"):
                assert not command.secret(key)
                assert not any(secret in json.dumps(command.inputs.get(key, "")) for secret in FAKE_SECRETS)

    def test_connections_and_inputs_with_secrets_are_marked_secret(self, run):
        for command in run.commands():
            assert command.secret("connection")
            assert command.secret("stdin") == command.name.endswith("-secrets")

    @pytest.mark.parametrize("stack", stacks.STACKS)
    def test_secrets_are_sent_to_controller_and_login_machines(self, stack):
        run = record(stack, "made")
        for machine in machines(run.config):
            if machine.roles == ("node",):
                continue  # these have them from the platform
            brought = json.loads(run.command(f"{machine.name}-secrets").inputs["stdin"])
            assert all(brought.values())
            assert ("/etc/hpc/database-password" in brought) == ("controller" in machine.roles)

    @pytest.mark.parametrize("stack", ["dev", "a3mega"])
    def test_slurmrestd_adds_a_key_that_only_the_controller_gets(self, stack):
        settings = stacks.load(stack)
        without = {resource.urn for resource in record(stack, "made").recording.resources}
        settings["hpc:cluster"].setdefault("slurm", {})["slurmrestd"] = True
        recording = deploy(settings)
        (tokens,) = [resource for resource in recording.resources if resource.urn not in without]
        assert (tokens.type, tokens.inputs["length"]) == ("random:index/randomPassword:RandomPassword", 64)
        assert without < {resource.urn for resource in recording.resources}
        brought = [
            command.name
            for command in recording.all("command:remote:Command")
            if command.name.endswith("-secrets") and "/etc/hpc/jwt.key" in json.loads(command.inputs["stdin"])
        ]
        assert brought == [f"{stacks.config(stack).name}-controller-secrets"]


class TestProtection:
    @pytest.mark.parametrize("protected", [True, False])
    @pytest.mark.parametrize("stack", stacks.STACKS)
    def test_data_and_what_needs_everything_are_protected_if_the_stack_asks_for_it(self, stack, protected):
        recording = record(stack, "made").recording
        if stacks.config(stack).deletion_protection is not protected:
            settings = stacks.load(stack)
            settings["hpc:cluster"]["deletion_protection"] = protected
            recording = deploy(settings)
        data = {
            resource.name
            for resource in recording.resources
            if resource.type in DATA and not resource.name.endswith("-boot")
        }
        assert data
        guard = f"{stacks.config(stack).name}-deletion-protection"
        assert {resource.name for resource in recording.resources if resource.request.protect} == (
            {*data, guard} if protected else set()
        )

    def test_what_is_protected_needs_everything_so_pulumi_deletes_nothing_before_it(self, run):
        """Also without a preview (pulumi v3.274.1, pkg/resource/deploy/deployment_executor.go)."""
        name = f"{run.config.name}-deletion-protection"
        guard = run.recording.one(name)
        needed = {resource.name for resource in run.recording.resources if run.recording.waits_for(guard, resource)}
        custom = {resource.name for resource in run.recording.resources if resource.request.custom}
        assert custom - needed == {name}

    def test_destroy_keeps_no_resource(self, run):
        assert [resource.name for resource in run.recording.resources if resource.request.retainOnDelete] == []


class TestOrder:
    def test_a_machine_is_configured_once_set_up_and_secrets_are_there(self, run):
        for command in run.commands():
            machine, _, phase = command.name.rpartition("-")
            if phase == "configure":
                for earlier in ("setup", "secrets"):
                    assert run.recording.waits_for(command, run.command(f"{machine}-{earlier}"))

    def test_nodes_and_accounts_wait_for_the_controller(self, run):
        configured = run.command(f"{run.config.name}-controller-configure")
        for phase in ("nodes", "accounting"):
            assert run.recording.waits_for(run.command(f"{run.config.name}-{phase}"), configured)

    def test_waiting_for_nodes_starts_after_their_creation(self, run):
        waits = run.command(f"{run.config.name}-nodes")
        nodes = [machine.name for machine in machines(run.config) if "node" in machine.roles]
        assert nodes
        assert all(run.recording.waits_for(waits, run.machine(name)) for name in nodes)

    def test_the_ready_command_is_the_last(self, run):
        """After it Slurm is told when machines end, which is of no cluster that does not work."""
        last, waits_for = run.command(f"{run.config.name}-ready"), run.recording.waits_for
        for command in (each for each in run.commands() if each is not last):
            assert waits_for(command, last) if command.name == f"{run.config.name}-ends" else waits_for(last, command)

    def test_machines_are_set_up_in_parallel(self, run):
        """A login machine that waited for the controller would add its minutes to the controller's."""
        whole = {f"{run.config.name}-{phase}" for phase in ("nodes", "accounting", "ready", "ends", "lustre-ready")}
        alone = [command for command in run.commands() if command.name not in whole]
        for command in alone:
            for other in alone:
                if run.machine_of(command).urn != run.machine_of(other).urn:
                    assert not run.recording.waits_for(command, other)


class TestOutputs:
    """What the command line reads; it has nothing else to find the machines by."""

    def test_they_are_these(self, run):
        every = {
            "admin_key", "cluster", "config", "config_hash", "login", "machines", "munge_key", "place", "platform",
            "releases", "images", "targets", "users",
        }  # fmt: skip
        if run.config.monitoring and run.config.monitoring.web:
            every.add("prometheus")
        own = {"local": set(), "gcp": {"addresses", "console", "image", "nodes", "ssh", "storage"}}
        assert set(run.recording.outputs) == every | own[run.config.platform]

    def test_the_configuration_can_be_read_back(self, run):
        if run.recording.outputs["config"] is None:
            return  # nothing is made yet, so nothing runs with it
        read = parse_output(run.recording.outputs["config"])
        assert read == registry.get(run.config.platform).keep(None, run.config)

    def test_outputs_have_every_machine_with_its_connection(self, run):
        found = run.recording.outputs["machines"]
        assert set(found) == {machine.name for machine in machines(run.config)}
        for machine in machines(run.config):
            assert found[machine.name]["roles"] == list(machine.roles)
            assert {"address", "host_key"} <= set(found[machine.name])

    def test_the_login_output_is_a_login_machine(self, run):
        outputs = run.recording.outputs
        assert "login" in outputs["machines"][outputs["login"]]["roles"]
        assert outputs["users"] == [user.name for user in run.config.users]
        assert outputs["cluster"] == run.config.name

    def test_the_operators_key_is_secret(self, every):
        (shown,) = [out for urn, out in every.recording.shown_outputs.items() if "pulumi:pulumi:Stack" in urn]
        assert shown["admin_key"] is None
        if every.known:
            assert "PRIVATE KEY" in every.recording.outputs["admin_key"]

    def test_the_hash_is_known_once_the_controller_runs_with_it(self, run):
        found = run.recording.outputs["config_hash"]
        assert re.fullmatch(r"[0-9a-f]{64}", found) if run.known else found is None


LOCAL = [name for name in stacks.STACKS if stacks.config(name).platform == "local"]


@pytest.fixture(params=[(stack, mode) for stack in LOCAL for mode in modes(stack)], ids="-".join)
def rehearsal(request: pytest.FixtureRequest) -> StackRun:
    return record(*request.param)


def test_a_command_connects_to_its_own_machine(rehearsal):
    for command in rehearsal.commands():
        if rehearsal.known:
            machine = rehearsal.machine_of(command)
            key = [fingerprint("bXVuZ2Uta2V5")] if command.name.endswith(("-configure", "-nodes", "-ready")) else []
            if rehearsal.config.monitoring and command.name == f"{monitoring_name(rehearsal.config)}-configure":
                key += command.inputs["triggers"][2:]  # a hash of its secrets
                assert command.secret("triggers") == bool(rehearsal.config.monitoring.secrets)
            assert command.inputs["triggers"] == [f"instance-{machine.name}", *key]
            assert command.inputs["connection"]["hostKey"] == f"ssh-ed25519 host-key-of-{machine.name}"
            assert command.inputs["connection"]["host"] == machine.inputs["address"]


def test_local_machines_have_addresses_without_a_jump_host(rehearsal):
    addresses = plan(rehearsal.config).of
    for machine in machines(rehearsal.config):
        assert rehearsal.recording.outputs["machines"][machine.name] == {
            "address": addresses[machine.name],
            "roles": list(machine.roles),
            "host_key": f"ssh-ed25519 host-key-of-{machine.name}" if rehearsal.known else None,
        }


@pytest.mark.parametrize("stack", LOCAL)
def test_a_local_node_is_created_with_its_host_key(stack):
    run = record(stack, "made")
    for machine in machines(run.config):
        if machine.roles == ("node",):
            files = run.recording.one(machine.name).inputs["files"]
            assert "bXVuZ2Uta2V5" in files["/etc/hpc/munge.key"]["content"]
