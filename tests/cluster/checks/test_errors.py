"""Errors about a stack file: place, given value, allowed values with an example, and what to do. And their ids, by
which people and programs refer to a rule: none is renamed, and none stands for two rules."""

import ast
from collections import Counter
from functools import cache

from tests.cluster.stacks import ROOT, cases, cloud_findings, findings

TWO_ENDS = ("accounts in a circle", "QOS that preempt each other")
"""Circles have two ends to break them at."""


def test_one_mistake_is_one_error(reviewed) -> None:
    """With a second finding, a reader would search for a second mistake."""
    found = {case: findings(**changes) for case, changes in cases("local").items()}
    assert [case for case, every in found.items() if len(every) != (2 if case in TWO_ENDS else 1)] == []
    reviewed("refused/local", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


def test_one_mistake_on_google_cloud_is_one_error(reviewed) -> None:
    found = {case: cloud_findings(changes) for case, changes in cases("google").items()}
    assert [case for case, every in found.items() if len(every) != 1] == []
    reviewed("refused/google", {case: "\n".join(map(str, every.values())) for case, every in found.items()})


IDS = """
account-circle account-parent-unknown account-root accounting-name-twice addresses-missing addresses-outside
addresses-overlap addresses-too-few admin-cidrs-unused bucket-twice calendar-ends calendar-family cluster-shape
customize-protected disk-boot-size disk-provisioned disk-size disk-type elastic-calendar elastic-capacity
elastic-capacity-twice elastic-flex elastic-flex-time elastic-idle elastic-idle-shared elastic-idle-short
elastic-install elastic-login elastic-many elastic-parameter elastic-partition-missing elastic-platform
elastic-private-data elastic-reconcile-off end-no-limit exascaler-unsupported existing-file-system-network
failover-disk failover-machine-type failover-zone failover-zone-unused field-release filestore-size flex-duration
flex-family gcp-region gpu-metrics gpu-network-nodes gpu-network-size gpus-built-in gpus-count gpus-unknown
group-gid-taken health-parameter health-user-unknown host-name-length image-bake image-builder-type
image-builder-unused image-name-alone image-platform image-provision-size image-recipe image-snapshot-future
kernel-old key-unknown local-capacity login-count login-public-nobody login-public-nowhere lustre-client
lustre-kind-field lustre-size lustre-throughput machine-type-fabric machine-type-fabrics machine-type-gpu
machine-type-platform machines-too-many mlperf-data-missing mlperf-data-owner mlperf-data-root mlperf-not-prepared
mlperf-storage-size monitoring-disk monitoring-disk-small monitoring-open monitoring-samples mount-hides mount-overlap
mpi-default nccl-against nccl-average-differs nccl-average-failed nccl-collective-assumed nccl-complaints nccl-drop
nccl-fabric-inactive nccl-mixed nccl-no-log nccl-no-reference nccl-no-rows nccl-nodes-differ nccl-one-slow
nccl-runs-by-task nccl-several-runs nccl-slow-node nccl-small-only nccl-torn nccl-truncated nccl-unchecked
nccl-unreadable nccl-unsteady nccl-wrong-results nebius-architecture nebius-backup-size nebius-capacity
nebius-capacity-list nebius-cluster-name nebius-disk-size nebius-disk-type nebius-drivers-preset nebius-elastic-asleep
nebius-elastic-late nebius-fabric nebius-filesystem-large nebius-filesystem-twice nebius-gpu-cluster nebius-group-type
nebius-host-names nebius-jail-existing nebius-jail-overwrite nebius-kubernetes-version nebius-login-count
nebius-login-exposure nebius-no-gpu-cluster nebius-nodeset-name nebius-partition-name nebius-placement
nebius-placement-policy nebius-preset-small nebius-region nebius-release-unknown nebius-reservation
nebius-service-type nebius-slurm-release nebius-soperator-faults nebius-soperator-old nebius-soperator-unknown
nebius-submount-hides nebius-submount-home nebius-submount-overlap nebius-topology nebius-unused nebius-user-name
nebius-user-uid nebius-value-nodeset nebius-value-owned nebius-value-refused nebius-workers-unknown network-nat
network-overlap network-size node-cpus node-reserved-memory nodeset-name-taken nodeset-on-controller
pam-slurm-adopt-contain parameter-number parameter-owned parameter-release parameter-twice parameter-unknown
partition-default-missing partition-default-time partition-default-twice partition-memory-default
partition-memory-limit partition-min-nodes partition-name-case partition-node-limit partition-nodeset-twice
partition-qos-unknown placement-family placement-policy-elsewhere placement-role platform-field preemption-settings
program-missing prolog-flags-exclusive provider-section qos-circle qos-limit-untracked read-only-needed repair-many
rxdm-driver rxdm-nodes rxdm-partition-missing rxdm-partition-twice rxdm-shared-nodes rxdm-timers rxdm-version
script-file script-interpreter script-name-differs script-name-twice script-parameter services-network-size
slurm-end-of-support slurm-version slurmctld-program slurmrestd-parameter spare-count spare-reconcile-off
timer-unkillable-step unknown-name unknown-setting user-account-unknown user-gid-of-group user-gid-taken
user-name-of-group user-name-twice user-shell user-sudo-adopt user-sudo-missing user-uid-before user-uid-former
user-uid-taken value-choice value-invalid value-missing warm-up-closed warm-up-image-twice warm-up-nothing
warm-up-partition-twice zone-unknown
""".split()
"""In alphabetical order. A new rule adds its own; one that was released stays."""
SEVERAL = {"customize-protected": 3, "nccl-truncated": 2, "slurm-end-of-support": 2, "value-invalid": 2}
"""Ids in several places of the code."""


@cache
def _ids() -> list[str]:
    return [
        str(value.value)
        for file in sorted((ROOT / "cluster").rglob("*.py"))
        if "observe" not in file.parts
        for call in ast.walk(ast.parse(file.read_text()))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        for value in _of_call(call, call.func.id)
        if isinstance(value, ast.Constant)
    ]


def _of_call(call: ast.Call, function: str) -> list[ast.expr]:
    """Return where a call has an id: `_finding` of NCCL's results and `taken` of Nebius's names first, Finding as `id`;
    functions of cluster/findings.py make findings for several rules."""
    if function in ("_finding", "taken"):
        return call.args[:1]
    return [keyword.value for keyword in call.keywords if keyword.arg == ("id" if function == "Finding" else "rule")]


def test_ids_of_findings_are_listed_here() -> None:
    assert sorted(set(_ids())) == IDS


def test_each_id_belongs_to_one_rule() -> None:
    assert {id_: times for id_, times in Counter(_ids()).items() if times > 1} == SEVERAL
