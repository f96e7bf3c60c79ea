#!/bin/bash
# Measures all_gather of NCCL on 2 n1-standard-1.
#SBATCH --job-name=hpc-nccl
#SBATCH --output=nccl/logs/%j.log
#SBATCH --partition=gpu
#SBATCH --nodes=2
#SBATCH --gpus-per-node=t4:2
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --ntasks-per-node=1
#SBATCH --time=30

set -euo pipefail

folder="$HOME/nccl"
image="$HOME/nccl/nvidia+pytorch+24.04-py3.sif"
spool=/var/spool/slurmd
gpus=2
program="$HOME/nccl/nccl-tests-2.13.11-24.04-py3/build/all_gather_perf"
context='cluster=classic machine_type=n1-standard-1 nodes=2 collective=all_gather'
warm_up="$HOME/nccl/logs/$SLURM_JOB_ID-warm-up.log"
options=(--mpi=pmix --ntasks-per-node=1 --cpu-bind=none)
first=(-b 8M -e 8M -f 2 -g 2 -w 2 -n 5 -c 0)
arguments=(-b 8M -e 8G -f 2 -g 2 -c 1)

. /opt/apps/hpc/env.sh

# Containers by apptainer: $image is the image's file; $folder is mounted, and slurmd's $spool, which has PMIx's sockets.
#
# What srun needs before a command, so that it runs in the container with the job's environment.
contained=(
    apptainer exec --nv --bind "$HPC_CONTAINER_MOUNTS,$folder,$spool" "$image"
    bash -c '. /opt/apps/hpc/env.sh && exec "$@"' bash
)

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
