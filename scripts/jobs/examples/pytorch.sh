# shellcheck shell=bash
. /opt/apps/hpc/env.sh
# srun does not take --cpus-per-task over from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# One task for each GPU. Slurm says each its rank, env.sh where rank 0 listens.
srun "$python" "$program" --steps 200 --checkpoints "$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_ID"
