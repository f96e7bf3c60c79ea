"""DDN EXAScaler: a Lustre file system on machines of the stack."""

import pulumi
from pulumi_gcp import projects, runtimeconfig, serviceaccount

from cluster.platforms.gcp.filesystems.exascaler import PERMISSIONS, Exascaler, http_tag, startup_script
from cluster.platforms.gcp.names import account_id, place
from components.gcp.barrier import Barrier
from components.gcp.network.firewall import LNET_PORT, allow, host
from components.gcp.storage.exascaler_server import ExascalerServer, ExascalerServerArgs
from components.gcp.storage.lustre import LustreComponent

TABLES = ("fs-config", "startup-config")
"""Configs of the Runtime Configurator in which the servers keep what they must know of each other."""


class ExascalerLustre(LustreComponent[Exascaler]):
    """Management, metadata and object storage servers, each started after those that it registers with.

    They are made; whether the file system is up, a command on the controller asks (`probe`).
    """

    TYPE = "hpc:gcp:ExascalerLustre"

    def make(self) -> None:
        name, args, config = self.name, self.args, self.args.config
        email, allowed = self._account()
        before = [*args.network.built, *allowed, *self._tables(), *self._firewalls()]
        script = startup_script(args.kind)
        made: dict[str, list[pulumi.Resource]] = {"mgs": [], "mds": [], "oss": []}
        earlier = {"mgs": [], "mds": made["mgs"], "oss": made["mds"]}
        for server in args.kind.servers():
            one = ExascalerServer(
                f"{name}-{server.kind}{server.index}",
                ExascalerServerArgs(
                    config=config, server=server, image=args.kind.section.image, script=script, service_account=email,
                    subnetwork=args.network.system, address=args.network.addresses[server.name], after=before,
                    servers_before=earlier[server.kind],
                ),
                opts=pulumi.ResourceOptions(parent=self),
            )  # fmt: skip
            made[server.kind].append(one.instance)
        self.ready = [Barrier(f"{name}-servers", [*made["mgs"], *made["mds"], *made["oss"]], parent=self)]
        address = args.network.addresses[f"{config.name}-mgs0"]
        self.finish(address, pulumi.Output.format("{0}@tcp:/{1}", address, args.kind.section.fsname))

    def more_facts(self) -> dict[str, object]:
        return {"servers": {one.name: self.args.network.addresses[one.name] for one in self.args.kind.servers()}}

    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self, depends_on=self.args.network.built)

    def _account(self) -> tuple[pulumi.Output[str], list[pulumi.Resource]]:
        """The servers' own account, with what loci needs: finding disks and servers, and the two configs."""
        config = self.args.config
        child = self._child()
        account = serviceaccount.Account(
            f"{self.name}-account",
            account_id=account_id(config, "lustre"),
            display_name=f"Lustre servers of the cluster {config.name}",
            opts=child,
        )
        role = projects.IAMCustomRole(
            f"{self.name}-role",
            role_id=f"{config.name.replace('-', '_')}_lustre",
            title=f"Lustre servers of the cluster {config.name}",
            description="What DDN EXAScaler's servers need to find their disks and each other",
            permissions=list(PERMISSIONS),
            opts=child,
        )
        member = projects.IAMMember(
            f"{self.name}-member",
            project=place(config).project,
            role=role.name,
            member=pulumi.Output.concat("serviceAccount:", account.email),
            opts=child,
        )
        return account.email, [member]

    def _tables(self) -> list[pulumi.Resource]:
        name = self.args.config.name
        return [
            runtimeconfig.Config(
                f"{self.name}-{table}", name=f"{name}-{table}",
                description=f"hpc: kept by the Lustre servers of {name}", opts=self._child(),
            )
            for table in TABLES
        ]  # fmt: skip

    def _firewalls(self) -> list[pulumi.Resource]:
        """Lustre itself between all machines, which servers connect back to; the clients' packages from MGS."""
        config, network = self.args.config, self.args.network
        rules = (("lnet", str(LNET_PORT), network.tag), ("repo", "80", http_tag(config.name)))
        return [
            allow(
                f"{self.name}-{part}", f"{config.name}-{part}", network.system_network, [config.network.cidr],
                allows={"tcp": [port]}, tags=[tag], project=host(config), opts=self._child(),
            )
            for part, port, tag in rules
        ]  # fmt: skip
