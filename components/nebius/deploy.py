"""The platform `nebius`: managed Kubernetes, and Slurm in pods that Soperator runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from cluster.config import ClusterConfig
from cluster.roster import machines
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment, config_text
from components.nebius.infrastructure import Infrastructure, InfrastructureArgs
from components.nebius.kubernetes.pods import LOGIN, pod_of
from components.nebius.slurm import Slurm, SlurmArgs


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy a cluster; Soperator has prologs and epilogs of its own, so there are no `scripts`."""
    del scripts
    platform = NebiusPlatform(config.name, NebiusPlatformArgs(config=config))
    cloud, slurm = platform.infrastructure, platform.slurm
    kubernetes = cloud.cluster
    return Deployment(
        login=LOGIN.name,
        targets=targets(config),
        config=slurm.ready.apply(lambda _: config_text(config)),
        outputs={
            "kubernetes": kubernetes.access,
            "address": slurm.login.apply(lambda found: found["address"]),
            "port": slurm.login.apply(lambda found: int(found["port"])),
            "ssh": slurm.login.apply(ssh_command),
            "kubeconfig": kubernetes.kubeconfig,
            "admin_key": cloud.admin.private_key_openssh,
            "filesystems": cloud.filesystems.ids,
        },
    )


@dataclass(frozen=True, kw_only=True)
class NebiusPlatformArgs:
    config: ClusterConfig


class NebiusPlatform(pulumi.ComponentResource):
    """A cluster on Nebius: Kubernetes with all that it needs around it, and Slurm in its pods."""

    infrastructure: Infrastructure
    slurm: Slurm

    def __init__(self, name: str, args: NebiusPlatformArgs, *, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("hpc:nebius:NebiusPlatform", name, {}, opts)
        # Clusters that are up have both without a parent: nothing of theirs is replaced.
        child = pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)])
        self.infrastructure = Infrastructure(name, InfrastructureArgs(config=args.config), opts=child)
        self.slurm = Slurm(name, SlurmArgs(infrastructure=self.infrastructure), opts=child)
        self.register_outputs({"ready": self.slurm.ready})


def targets(config: ClusterConfig) -> Mapping[str, Mapping[str, Any]]:
    """How each pod of Slurm's is reached, by its name."""
    return {spec.name: pod_of(spec.name, spec.roles).target(spec.roles, config.name) for spec in machines(config)}


def ssh_command(login: Mapping[str, Any]) -> str:
    """The command that logs in as root, with a key of nebius.login.root_keys."""
    port = "" if login["port"] == 22 else f"-p {login['port']:.0f} "
    return f"ssh {port}root@{login['address']}"
