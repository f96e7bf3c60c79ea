# shellcheck shell=bash
. /opt/apps/hpc/env.sh
# Programs number the GPUs of a job from 0, whichever of the node's they are.
echo "GPU ${CUDA_VISIBLE_DEVICES:-none} of $SLURM_JOB_NODELIST"
if ! command -v nvidia-smi >/dev/null; then
    echo "This node has no nvidia-smi: its GPUs are stand-ins of a rehearsal."
    exit 0
fi
srun nvidia-smi --query-gpu=name,uuid,memory.total,driver_version --format=csv
# Your program in its place: srun python3 my_program.py
