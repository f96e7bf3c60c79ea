# shellcheck shell=bash
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# One task on each node: torchrun, which starts a process for each GPU. They find each other at the first node.
srun "$python" -m torch.distributed.run --nnodes="$SLURM_NNODES" --nproc-per-node="${SLURM_GPUS_ON_NODE:-1}" \
    --rdzv-id="$SLURM_JOB_ID" --rdzv-backend=c10d --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \
    "$program" --steps 200 --checkpoints "$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_ID"
