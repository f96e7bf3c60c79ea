"""The environment of jobs: env.sh, which they source. It sets what their NCCL needs on the nodes that they run on.

Sources: cluster-toolkit, examples/machine-learning/a3-megagpu-8g/nccl-tests (TCPXO: profile, variables, order of
LD_LIBRARY_PATH, mounts); nebius-solutions-library, soperator/test/mlperf-sd and mlperf-gpt3 (InfiniBand: topology file,
eth0); NVIDIA's documentation of NCCL, "Environment Variables" (NCCL_NET_PLUGIN, NCCL_SOCKET_IFNAME).
"""

import re
import shlex

from cluster.config.cluster import ClusterConfig
from cluster.jobs.partition_facts import PartitionFacts, partition_facts
from cluster.jobs.script import ENV, FOLDER, source

_DIGITS = re.compile(r"[0-9]+$")
_DEFINED = re.compile(r"^([a-z_]+)\(\)", re.MULTILINE)


def environment(config: ClusterConfig) -> str:
    """Text of env.sh."""
    by_partition: dict[str, list[PartitionFacts]] = {}
    for row in partition_facts(config):
        by_partition.setdefault(row.name, []).append(row)
    cases = "".join(
        f"        {name})\n{_indented(_partition(config, rows))}            ;;\n" for name, rows in by_partition.items()
    )
    fabrics = (row.fabric for rows in by_partition.values() for row in rows)
    own = [name for fabric in fabrics for name in fabric.environment if f"_hpc_{fabric.environment[-1]} " in cases]
    bodies = dict.fromkeys(["sockets", *own, "job"])
    functions = "\n".join(source(f"environment/{name}.sh") for name in bodies)
    return f"""\
# Environment of jobs on the cluster {config.name}, by partition. In a job script: . {ENV}
# Written from the stack's configuration: a change here is lost.
# shellcheck shell=bash

# Jobs source this with any options of bash (set -euo pipefail), in containers too, and more than once.

{functions}
unset -v _hpc_failed
if [[ -n ${{SLURM_JOB_ID:-}} ]]; then
    _hpc_mounts={FOLDER}:{FOLDER}:ro
    case ${{SLURM_JOB_PARTITION:-}} in
{cases}        *)
            echo "env.sh: not written for partition ${{SLURM_JOB_PARTITION:-(none)}}; NCCL gets no settings" >&2
            ;;
    esac
    _hpc_master
    _hpc_distribution
    _hpc_container "$_hpc_mounts"
fi
unset -f {" ".join(_DEFINED.findall(functions))}
unset -v _hpc_mounts
# The status of this file, also for scripts without set -e: . {ENV} || exit
[[ -z ${{_hpc_failed:-}} ]]
"""


def _partition(config: ClusterConfig, rows: list[PartitionFacts]) -> list[str]:
    """Lines for a partition; where its nodes differ, by the name of the node."""
    calls = [_call(config, row) for row in rows]
    if len(set(calls)) == 1:
        return [calls[0]]
    lines: list[str] = []
    for word, row, call in zip(["if", *["elif"] * len(rows)], rows, calls, strict=False):
        names = "|".join(
            sorted({_DIGITS.sub("", node) + ("[0-9]+" if _DIGITS.search(node) else "") for node in row.nodes})
        )
        lines += [f"{word} [[ ${{SLURMD_NODENAME:-}} =~ ^({names})$ ]]; then", f"    {call}"]
    return [*lines, "fi"]


def _call(config: ClusterConfig, row: PartitionFacts) -> str:
    fabric, rxdm = row.fabric, config.slurm.rxdm
    # Without the prolog that installs the plugin, nodes have what they have without a fabric.
    installed = not fabric.rxdm or (rxdm is not None and row.name in rxdm.partitions)
    call = [f"_hpc_{fabric.environment[-1] if installed else 'sockets'}", *filter(None, fabric.host_nics)]
    names = [",".join(fabric.nic_names)] if installed and fabric.nic_names else []
    # Where the fabric's NICs are the stack's, jobs end without what the fabric needs.
    return shlex.join([*call, *names]) + (" || _hpc_failed=1" if installed and fabric.nics else "")


def _indented(lines: list[str]) -> str:
    return "".join(f"            {line}\n" for line in lines)
