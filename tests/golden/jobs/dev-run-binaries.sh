#!/bin/bash
# Measures all_gather of NCCL on 1 local-2c-2gpu.
#SBATCH --job-name=hpc-nccl
#SBATCH --output=nccl/logs/%j.log
#SBATCH --partition=gpu
#SBATCH --nodes=1
#SBATCH --gpus-per-node=standin:2
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --nodelist=dev-gpu-0
#SBATCH --ntasks-per-node=1
#SBATCH --time=30

set -euo pipefail

gpus=2
program=/opt/nccl-tests/all_gather_perf
context='cluster=dev machine_type=local-2c-2gpu nodes=1 collective=all_gather'
warm_up="$HOME/nccl/logs/$SLURM_JOB_ID-warm-up.log"
options=(--mpi=none --ntasks-per-node=1 --cpu-bind=none)
first=(-b 8M -e 8M -f 2 -g 2 -w 2 -n 5 -c 0)
arguments=(-b 8M -e 8G -f 2 -g 2 -c 0)

. /opt/apps/hpc/env.sh

# Programs that the nodes have themselves: srun needs nothing before a command.
contained=()

# Runs one program of nccl-tests: $program with $arguments, after a short run with $first that leaves everything warm.
# $options are srun's, $gpus is how many GPUs each node must have, $context describes the run for the report.

# Lines that begin so are the progress that `./hpc nccl` shows.
say() { echo "==> $*"; }

echo "# hpc: $context nodelist=$SLURM_JOB_NODELIST job=$SLURM_JOB_ID date=$(date -u +%FT%TZ)"
say "nodes: $SLURM_JOB_NODELIST"
# shellcheck disable=SC2016 # expanded on each node
srun --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --cpu-bind=none bash -c '
    found=$(compgen -G "/dev/nvidia[0-9]*" | wc -l)
    (($1 == found)) || { echo "$SLURMD_NODENAME: $found GPUs, and the partition has $1 on each node" >&2; exit 1; }
' bash "$gpus"

# Containers are unpacked, libraries read and connections made outside the measurement. NCCL says which network it uses.
say "warm-up"
if ! NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET srun "${options[@]}" "${contained[@]}" stdbuf -oL "$program" "${first[@]}" >"$warm_up" 2>&1; then
    echo "the warm-up failed; the end of $warm_up on this cluster:" >&2
    uniq "$warm_up" | tail -n 40 >&2
    exit 1
fi
# The report reads these lines: one for each network, and each node's active InfiniBand ports.
awk '/NCCL INFO .*Using network / && !seen[substr($0, index($0, "Using network"))]++
    /NCCL INFO NET\/IB : Using / { split($0, host, ":"); if (!seen[host[1]]++) print }' "$warm_up"
say "test: ${program##*/} ${arguments[*]}"
srun "${options[@]}" "${contained[@]}" stdbuf -oL "$program" "${arguments[@]}"
