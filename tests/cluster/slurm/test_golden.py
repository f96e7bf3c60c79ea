"""The rendered files of every stack are in tests/golden, so that a review has every line that a change affects."""

import json

import pytest

from cluster.config import ClusterConfig
from cluster.monitoring import files as monitoring
from cluster.platforms.local.address_plan import plan
from cluster.roster import machines
from cluster.slurm.accounting import desired
from cluster.slurm.files import render, render_slurmdbd
from tests.cluster.stacks import ROOT, STACKS, config

GOLDEN = ROOT / "tests" / "golden"


def rendered(cluster: ClusterConfig, stack: str) -> dict[str, str]:
    # On a cloud, names resolve, and addresses are not known beforehand.
    addresses = plan(cluster).of if cluster.platform == "local" else {}
    roster = "".join(
        f"{spec.name:24} {addresses.get(spec.name, '-'):16} {spec.machine_type.name:16} {','.join(spec.roles)}\n"
        for spec in machines(cluster)
    )
    return {
        **render(cluster, addresses),
        "slurmdbd.conf": render_slurmdbd(cluster, "golden-password"),
        "accounting.json": json.dumps(desired(cluster), indent=2) + "\n",
        "machines.txt": roster,
        **_monitoring(cluster, stack),
    }


def _monitoring(cluster: ClusterConfig, stack: str) -> dict[str, str]:
    """Files of Prometheus and Alertmanager. The rules are those of docs/reference/alerts.md."""
    wanted = cluster.monitoring
    if wanted is None:
        return {}
    files = {name.replace("/", "-"): text for name, text in monitoring.render(cluster, wanted, stack).items()}
    files.pop(monitoring.RULES.replace("/", "-"))
    part = monitoring.monitoring(cluster, stack, monitoring.server_role(wanted)) or {}
    said = {name: value for name, value in part.items() if name not in ("files", "idle", "ops_agent")}
    if agent := part.get("ops_agent"):
        files["ops-agent.yaml"] = "\n".join([*agent["lines"], ""])
    arguments = {**said, "node_exporter": monitoring.node_exporter(cluster)}
    return {**files, "monitoring.json": json.dumps(arguments, indent=2) + "\n"}


@pytest.mark.parametrize("stack", STACKS)
def test_rendered_files_equal_the_reviewed_ones(stack, golden_folder):
    golden_folder(stack, rendered(config(stack), stack))


def test_every_golden_folder_belongs_to_a_stack():
    ours = {path.name for path in GOLDEN.iterdir() if (path / "slurm.conf").exists()}
    assert ours == set(STACKS)
