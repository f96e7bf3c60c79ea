"""Slurm on given machines: one remote command for each phase, each safe to run again."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pulumi
from pulumi_command import local, remote

from cluster.config import ClusterConfig
from cluster.config.slurm import WarmUp
from cluster.jobs.warm_up import warm_up
from cluster.roster import MachineSpec, monitoring_name
from cluster.slurm.accounting import desired
from cluster.slurm.files import digest
from cluster.slurm.script_tree import Tree, has_scripts
from components.deploy import Deployment, config_text, monitoring_secrets
from components.machine import Boot, BootFile, Machine, Machines
from components.slurm import payload
from components.slurm.keys import ClusterKeys, certificate
from scripts.node.monitoring.tls import leaf


def deploy_machines(
    config: ClusterConfig, scripts: Tree, make: Callable[[ClusterConfig, ClusterKeys], Machines]
) -> Deployment:
    """Create the machines of a cluster with the platform's function `make`, and set up Slurm on them over SSH."""
    monitoring_secrets(config)  # a missing one stops the run before anything is registered
    keys = ClusterKeys(config.name, tokens=config.slurm.slurmrestd)
    machines = make(config, keys)
    slurm = SlurmCluster(config.name, config, keys, machines, scripts)
    DeletionProtection(config.name, on=config.deletion_protection, everything=[machines.platform, slurm])
    return Deployment(
        login=slurm.login,
        targets={machine.spec.name: machine.target for machine in machines.machines},
        config=slurm.config,
        outputs={
            "machines": {machine.spec.name: machine.summary for machine in machines.machines},
            "admin_key": keys.admin.private_key_openssh,
            "munge_key": slurm.munge_key,
            "config_hash": slurm.config_hash,
            "place": slurm.place,
            **({"prometheus": slurm.prometheus} if slurm.prometheus else {}),
            **machines.outputs,
        },
    )


class DeletionProtection(pulumi.ComponentResource):
    """Keeps Pulumi from deleting anything of the cluster: it needs everything, so it would have to go first.

    Without it `pulumi destroy --skip-preview` would delete the machines before it refuses to delete their disks. They
    can't be protected themselves, since protection refuses a replacement as well.
    """

    def __init__(self, name: str, *, on: bool, everything: Sequence[pulumi.Resource]) -> None:
        super().__init__("hpc:slurm:DeletionProtection", name)
        # It runs nothing, and has no input that could change.
        local.Command(
            f"{name}-deletion-protection",
            opts=pulumi.ResourceOptions(parent=self, protect=on, depends_on=everything),
        )
        self.register_outputs({"on": on})


class SlurmCluster(pulumi.ComponentResource):
    """A running Slurm cluster: every static node is idle, and a job has run in every partition.

    If nodes do not join, the error has their names and the end of their logs.
    """

    config_hash: pulumi.Output[str]
    """sha256 of Slurm's files as rendered for the controller."""
    munge_key: pulumi.Output[str]
    """Fingerprint of the MUNGE key that the cluster runs with."""
    config: pulumi.Output[str]
    """The configuration as the stack gives it, once the cluster runs with it: what later edits are compared with."""
    place: dict[str, Any]
    """Facts of the platform that `drift --mend` needs: `addresses` in Slurm's files, `mounts` of each machine that is
    set up over SSH, `state`, `exports` and `elastic` of the controller, and `nodes_release` during an upgrade."""
    prometheus: dict[str, Any]
    """`user`, `password` and `certificate` of Prometheus if it accepts connections of other machines; else empty."""
    login: pulumi.Output[str]
    """The machine where users log in: the first login machine, or the controller if it has that role."""

    def __init__(
        self,
        name: str,
        config: ClusterConfig,
        keys: ClusterKeys,
        platform: Machines,
        scripts: Tree,
        *,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`scripts` is what slurmd runs before and after jobs."""
        super().__init__("hpc:slurm:SlurmCluster", name, {}, opts)
        self._name, self._config, self._keys, self._platform = name, config, keys, platform
        self._scripts, self._key, self.prometheus = scripts, keys.munge_fingerprint, {}
        controller = next(m for m in platform.machines if "controller" in m.spec.roles)
        others = [m for m in platform.machines if m.spec.roles != ("node",) and m is not controller]
        self._controller = controller
        elastic = platform.elastic
        facts = {"cloud": dict(elastic.cloud), "templates": dict(elastic.templates)} if elastic else None
        self._elastic: pulumi.Output[dict[str, Any] | None] = pulumi.Output.from_input(facts)
        self._digest = digest(payload.slurm_files(config, platform.addresses))
        controls = self._configure(controller)
        # In parallel with the controller: the set-up of the others waits for the config version at its end.
        configured = [self._configure(machine) for machine in others]
        joined = self._wait_for_nodes(after=[controls])
        accounts = self._cluster_phase("accounting", payload.as_lines(desired(config)), after=[controls])
        ready = self._run_probe_jobs(after=[joined, accounts, *configured])
        self._set_machine_ends(after=[ready])
        if config.slurm.warm_up:
            self._warm_up(config.slurm.warm_up, after=[ready])
        # Computed once, not for each node: a preview of hundreds of nodes would be slower.
        connection = pulumi.Output.from_input(controller.connection(keys.admin.private_key_openssh))
        for machine in platform.machines:
            if machine.spec.roles == ("node",):
                self._drain_on_delete(machine, connection)
        self.munge_key = pulumi.Output.all(ready.id, keys.munge_fingerprint).apply(lambda both: both[1])
        # The value is known before the run, but must only be exported once the controller runs with it.
        self.config_hash = controls.id.apply(lambda _: self._digest)
        self.config = ready.id.apply(lambda _: config_text(config))
        self.place = {
            "addresses": ready.id.apply(lambda _: dict(platform.addresses)),
            "mounts": {machine.spec.name: self._mounts(machine) for machine in (controller, *others)},
            "state": platform.state,
            "exports": platform.exports,
            "elastic": self._elastic,
            "nodes_release": config.nodes_release,
        }
        login = next((m for m in platform.machines if "login" in m.spec.roles), controller)
        self.login = pulumi.Output.from_input(login.spec.name)
        self.register_outputs({"config_hash": self.config_hash, "login": self.login})

    def _configure(self, machine: Machine) -> remote.Command:
        """Copy the set-up and secrets to a machine, and run its phase `configure`."""
        keys, platform, monitoring = self._keys, self._platform, dict[str, pulumi.Output[str]]()
        secrets: dict[str, pulumi.Output[str]] = {payload.MUNGE_KEY: keys.munge}
        if machine is self._controller:
            secrets[payload.DATABASE_PASSWORD] = keys.database_password
            secrets["/root/.ssh/hpc_cluster"] = keys.cluster.private_key_openssh
            if keys.tokens is not None:
                secrets[payload.TOKEN_KEY] = keys.tokens
            if platform.elastic and platform.elastic.token is not None:
                secrets[payload.CLOUD_TOKEN] = platform.elastic.token
        if machine.spec.name == monitoring_name(self._config):
            monitoring = self._monitoring_secrets(machine)
            secrets |= monitoring
        setup = self._phase(machine, "setup", payload.packed_setup(), command=payload.UNPACK)
        text = pulumi.Output.secret(pulumi.Output.json_dumps(secrets))
        stored = self._phase(machine, "secrets", text, command=payload.STORE_SECRETS)
        text = pulumi.Output.all(self._mounts(machine), self._elastic).apply(
            lambda values: payload.configure(
                self._config,
                machine.spec,
                stack=pulumi.get_stack(),
                mounts=values[0],
                addresses=platform.addresses,
                controller=self._controller.spec.name,
                state=platform.state,
                exports=platform.exports,
                elastic=values[1],
            )
        )
        staged = self._stage_scripts(after=[setup, *platform.ready]) if machine is self._controller else []
        # Only this phase has munged read another key, and the daemons of monitoring other secrets.
        triggers = [self._key]
        if monitoring:
            triggers.append(pulumi.Output.secret(pulumi.Output.json_dumps(monitoring).apply(_sha256)))
        after = [setup, stored, *staged, *platform.ready]
        return self._phase(machine, "configure", text, after=after, triggers=triggers)

    def _monitoring_secrets(self, machine: Machine) -> dict[str, pulumi.Output[str]]:
        """Return the secrets of monitoring for the machine that has Prometheus, by the path of their file."""
        from cluster.monitoring.files import secret_file  # noqa: PLC0415 - with the table of alerts

        files = {secret_file(name): text for name, text in monitoring_secrets(self._config).items()}
        web = self._config.monitoring.web if self._config.monitoring else None
        if web is None:
            return files
        path = secret_file("hpc:prometheusCertificate")
        if path not in files:
            pair = certificate(f"{self._name}-prometheus", machine.spec.name, machine.address, parent=self)
            files[path] = pulumi.Output.secret(pulumi.Output.concat(*pair))
        self.prometheus = {
            "user": web.user,
            "password": files[secret_file("hpc:prometheusPassword")],
            "certificate": pulumi.Output.unsecret(files[path].apply(leaf)),
        }
        return files

    def _mounts(self, machine: Machine) -> pulumi.Output[list[dict[str, Any]]]:
        """Return the file systems of a machine. The address of a server that this run creates is not known before."""
        return pulumi.Output.all(*[dict(mount) for mount in self._platform.mounts(machine.spec)])

    def _stage_scripts(self, *, after: Sequence[pulumi.Resource]) -> list[remote.Command]:
        """Stage the scripts of jobs. They come before slurm.conf, which names the program that runs them, and the last
        ones are removed after it."""
        scripts = self._scripts
        if not has_scripts(self._config):
            return []
        text = self._mounts(self._controller).apply(
            lambda mounts: payload.prologs_input(self._config, scripts, mounts=mounts, state=self._platform.state)
        )
        stage = self._cluster_phase("prologs", text, after=after, undo="no-prologs")
        if scripts.rxdm is None:
            return [stage]
        return [stage, self._cluster_phase("rxdm", payload.rxdm_input(scripts), after=[stage], undo="no-rxdm")]

    def _wait_for_nodes(self, *, after: Sequence[pulumi.Resource]) -> remote.Command:
        """Wait for the compute nodes, a node on the controller's machine included.

        The input changes whenever the wait must be repeated: at another boot of a node or the controller, for other
        files, users or another set-up.
        """
        nodes = [
            {"name": m.spec.name, "address": m.address, "host_key": m.host_key, "boot": m.boot_id}
            for m in self._platform.machines
            if "node" in m.spec.roles
        ]
        after_state = {
            "boot": self._controller.boot_id,
            "config": self._digest,
            "setup": payload.setup_version(),
            "users": payload.users(self._config),
        }
        request = {"nodes": nodes, "seconds": self._config.slurm.join_seconds, "after": after_state}
        stdin = pulumi.Output.json_dumps(request, indent=1)
        # Nodes change to another MUNGE key by themselves, once the controller has it.
        return self._cluster_phase("nodes", stdin, after=after, triggers=[self._key])

    def _run_probe_jobs(self, *, after: Sequence[pulumi.Resource]) -> remote.Command:
        """Run a job in every partition, and again after every change that could keep it from running."""
        boots = {m.spec.name: m.boot_id for m in self._platform.machines}
        after_state = {"config": self._digest, "setup": payload.setup_version(), "boots": boots}
        if has_scripts(self._config):
            after_state["scripts"] = payload.scripts_digest(self._scripts)
        stdin = pulumi.Output.json_dumps({"probes": payload.probes(self._config), "after": after_state}, indent=1)
        return self._cluster_phase("ready", stdin, after=after, triggers=[self._key])

    def _set_machine_ends(self, *, after: Sequence[pulumi.Resource]) -> None:
        """Give Slurm the times when machines end, so that no job starts on a machine that ends before the job."""
        ends = {m.spec.name: m.ends for m in self._platform.machines if m.ends is not None}
        if ends:
            self._cluster_phase("ends", pulumi.Output.json_dumps({"ends": ends}, indent=1), after=after, undo="no-ends")

    def _warm_up(self, wanted: WarmUp, *, after: Sequence[pulumi.Resource]) -> None:
        """Download to nodes what their first jobs would wait for, and again after a node's boot: it may be new."""
        request = warm_up(self._config, wanted)
        nodes = {node for part in request["partitions"] for node in part["nodes"]}
        boots = {m.spec.name: m.boot_id for m in self._platform.machines if m.spec.name in nodes}
        after_state: dict[str, Any] = {"boots": boots}
        if any(part["rxdm"] for part in request["partitions"]):
            after_state["scripts"] = payload.scripts_digest(self._scripts)
        stdin = pulumi.Output.json_dumps({**request, "after": after_state}, indent=1)
        self._cluster_phase("warm-up", stdin, after=after)

    def _drain_on_delete(self, machine: Machine, connection: pulumi.Output[remote.ConnectionArgs]) -> None:
        """Register a command that drains a node before its machine is deleted. It does nothing at its creation.

        It depends on the machine, so it is deleted first. It does not run if the controller is deleted too: a whole
        cluster is destroyed without waiting for jobs, even if its controller is dead.
        """
        remote.Command(
            f"{machine.spec.name}-leave",
            connection=connection,
            delete=payload.undo_command("leave"),
            stdin=payload.as_lines({"node": machine.spec.name}),
            triggers=[machine.instance_id],
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(parent=self, deleted_with=self._controller.resource),
        )

    def _cluster_phase(
        self,
        phase: str,
        stdin: pulumi.Input[str],
        *,
        after: Sequence[pulumi.Resource],
        undo: str | None = None,
        triggers: Sequence[pulumi.Input[str]] = (),
    ) -> remote.Command:
        """Run a phase for the whole cluster on the controller. The resource is named after the cluster."""
        machine = self._controller
        return self._phase(machine, phase, stdin, after=after, name=self._name, undo=undo, triggers=triggers)

    def _phase(
        self,
        machine: Machine,
        phase: str,
        stdin: pulumi.Input[str],
        *,
        after: Sequence[pulumi.Resource] = (),
        name: str = "",
        command: str = "",
        undo: str | None = None,
        triggers: Sequence[pulumi.Input[str]] = (),
    ) -> remote.Command:
        """Run a phase of the set-up on one machine. `undo` is the phase that runs when the resource is deleted."""
        return remote.Command(
            f"{name or machine.spec.name}-{phase}",
            connection=machine.connection(self._keys.admin.private_key_openssh),
            create=command or payload.phase_command(phase),
            update=command or payload.phase_command(phase),
            delete=payload.undo_command(undo) if undo else None,
            stdin=stdin,
            # The instance, not its address: a recreated machine is set up again, whatever else stayed the same.
            triggers=[machine.instance_id, *triggers],
            # The set-up does not need the previous output, and sshd would have to accept it (AcceptEnv).
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(after),
                # The other way round, a replacement that is forced would undo what it has just done.
                delete_before_replace=True if undo else None,
                # Nothing is undone on a machine that is deleted itself: it may be unreachable.
                deleted_with=machine.resource if undo else None,
            ),
        )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


UNITS = ("hpc-node.service", "hpc-watch.service")


def boot_files(
    keys: ClusterKeys, *, mounts: Sequence[Mapping[str, Any]], controller: str
) -> Callable[[MachineSpec], Boot]:
    """Return a function that returns the files of a machine's first boot beside those of the set-up; none for machines
    that are set up over SSH."""

    def files(machine: MachineSpec) -> Boot:
        if machine.roles != ("node",):
            return {}
        boot: dict[str, BootFile] = {}
        for unit in UNITS:
            boot[f"/etc/systemd/system/{unit}"] = BootFile(content=payload.setup_files()[unit])
            boot[f"/etc/systemd/system/multi-user.target.wants/{unit}"] = BootFile(link=f"/etc/systemd/system/{unit}")
        boot["/etc/hpc/node.json"] = BootFile(content=payload.node_json(mounts=mounts, controller=controller))
        boot[payload.MUNGE_KEY] = BootFile(content=keys.munge.apply(lambda key: key + "\n"), mode=0o600)
        boot["/root/.ssh/authorized_keys2"] = BootFile(content=keys.cluster.public_key_openssh, mode=0o600)
        return boot

    return files
