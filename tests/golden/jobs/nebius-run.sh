#!/bin/bash
# Measures all_gather of NCCL on 2 gpu-h100-sxm/8gpu-128vcpu-1600gb.
#SBATCH --job-name=hpc-nccl
#SBATCH --output=nccl/logs/%j.log
#SBATCH --partition=main
#SBATCH --nodes=2
#SBATCH --gpus-per-node=nvidia_h100_80gb_hbm3:8
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --ntasks-per-node=8
#SBATCH --time=30

set -euo pipefail

gpus=8
program=all_gather_perf_mpi
context='cluster=soperator machine_type=gpu-h100-sxm/8gpu-128vcpu-1600gb nodes=2 collective=all_gather'
warm_up="$HOME/nccl/logs/$SLURM_JOB_ID-warm-up.log"
options=(--mpi=pmix --ntasks-per-node=8 --cpu-bind=none)
first=(-b 512M -e 512M -f 2 -g 1 -w 2 -n 5 -c 0)
arguments=(-b 512M -e 8G -f 2 -g 1 -c 0)

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
