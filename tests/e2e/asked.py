"""What a cluster says when it is asked: ./hpc, its machines, its slurmctld."""

import json

from cli.access import remote
from cli.cluster.cluster import Cluster as Entered
from cli.cluster.cluster import from_outputs
from tests.e2e.cluster import Cluster

ENTERED: dict[str, Entered] = {}
"""The way in of each cluster, by its name, once it was asked; to be emptied where one is made anew."""


def said(cluster: Cluster, *words: str, code: int = 0) -> str:
    """What ./hpc COMMAND CLUSTER ... prints, on both streams."""
    command = 2 if words[0] == "accounting" else 1
    done = cluster.call(*words[:command], cluster.name, *words[command:])
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def ask(cluster: Cluster, machine: str, line: str) -> str:
    """What a line prints that root runs on a machine, without a process of ./hpc's for each look."""
    entered = ENTERED.get(cluster.name) or from_outputs(
        cluster.name, json.loads(cluster.call("outputs", cluster.name, "--json", "--show-secrets").stdout)
    )
    ENTERED[cluster.name] = entered
    return remote.capture(entered.target(machine), entered.admin_key, line, seconds=180).out.strip()


def state(cluster: Cluster, number: str) -> str:
    return ask(cluster, "controller", f"squeue --noheader --states=all --jobs={number} --format=%T")


def node(cluster: Cluster, name: str) -> dict[str, str]:
    """States (IDLE+DRAIN) and reason of a node."""
    line = f"sinfo --noheader --nodes={cluster.name}-{name} --format='%E' | head -n 1"
    states = f"scontrol --oneliner show node {cluster.name}-{name} | grep -o ' State=[^ ]*'"
    reason, states = ask(cluster, "controller", f"{line}; {states}").split("\n")
    return {"reason": reason, "states": states}
