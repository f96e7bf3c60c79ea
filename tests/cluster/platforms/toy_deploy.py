"""Deploys the toy platform: a password, a directory, and a pod in it, which commands run in."""

import json
import shlex

from pulumi_command import local
from pulumi_random import RandomPassword

from cluster.config.cluster import ClusterConfig
from cluster.slurm.script_tree import Tree
from components.deploy import Deployment, config_text
from tests.cluster.observe.observations import FACTS
from tests.cluster.platforms.toy import Pods

POD = """\
mkdir -p {folder}/bin && cd {folder}/bin && printf '%s' "$FACTS" >../facts.json
printf '#!/bin/sh\\nexec cat "$(dirname "$0")/../facts.json"\\n' >python3 && chmod 755 python3
"""
"""The pod's Python prints what a controller's observation printed, so that `status` reads a pod's."""


def deploy(config: ClusterConfig, scripts: Tree) -> Deployment:
    """Deploy one pod, which is controller and login."""
    pods = config.section(Pods)
    assert pods
    name = f"{config.name}-login"
    password = RandomPassword(f"{config.name}-password", length=12)
    project = local.Command(
        f"{config.name}-project",
        create=f"mktemp -d -t {pods.project}-XXXXXX",
        delete='rm -r "$PULUMI_COMMAND_STDOUT"',
        triggers=[pods.project],
    )
    facts = json.loads((FACTS / "controller.json").read_text())
    facts["slurm"]["nodes"] = {}
    pod = local.Command(
        name,
        create=project.stdout.apply(lambda folder: POD.format(folder=shlex.quote(folder))),
        environment={"FACTS": json.dumps({**facts, "name": name})},
    )
    target = {"method": "toy", "roles": ["controller", "login"], "pod": project.stdout}
    return Deployment(
        login=name,
        targets={name: target},
        config=pod.stdout.apply(lambda _: config_text(config)),
        outputs={"password": password.result},
    )
