"""slurmdbd and its database: values of slurmNodes.accounting."""

from typing import Any

from cluster.platforms.nebius import sizing
from cluster.platforms.nebius.machine_types import MUNGE
from cluster.platforms.nebius.releases.inputs import Inputs
from cluster.platforms.nebius.releases.values import volumes

_RECORDS = ("Event", "Job", "Resv", "Step", "Suspend", "TXN", "Usage")
_ARCHIVED = ("Events", "Jobs", "Steps")
WEIGHTS = {"priorityWeightFairshare": 10000, "priorityWeightQOS": 5000, "priorityWeightAge": 1000}
"""As on the other platforms (cluster/slurm/conf.py). Soperator's are 0: priorities of QOS would have no effect."""


def accounting(inputs: Inputs) -> dict[str, Any]:
    """slurmdbd, and MariaDB by its operator, on the accounting node and its file system."""
    keep = f"{inputs.config.accounting.purge_after_months}month"
    return {
        "enabled": True,
        "k8sNodeFilterName": "accounting",
        "mariadbOperator": {
            "enabled": True,
            "resources": sizing.MARIADB.quantities,
            "metrics": {"enabled": False},
            "storage": {
                "ephemeral": False,
                "storageClassName": volumes.LOCAL_CLASS,
                # It names no volume: the claim finds the one of its class that has no claim.
                "volumeClaimTemplate": {
                    "accessModes": ["ReadWriteMany"],
                    "resources": {"requests": {"storage": volumes.SIZE}},
                    "storageClassName": volumes.LOCAL_CLASS,
                },
            },
        },
        "slurmdbd": {"resources": sizing.slurmdbd(inputs.settings).quantities},
        "munge": {"resources": MUNGE.quantities},
        "slurmConfig": {
            # The custom resource accepts no GPU types here.
            "accountingStorageTRES": "CPU,Mem,Node,VMem,Gres/gpu" if inputs.gpus else "CPU,Mem,Node,VMem",
            "jobAcctGatherType": f"jobacct_gather/{inputs.config.slurm.job_account_gather or 'cgroup'}",
            "jobAcctGatherFrequency": 30,
            **WEIGHTS,
        },
        "slurmdbdConfig": {
            **{f"archive{one}": "yes" for one in _ARCHIVED},
            **{f"purge{one}After": keep for one in _RECORDS},
        },
        "customInitContainers": volumes.ensure_mounted(inputs),
    }
