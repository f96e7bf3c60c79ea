# shellcheck shell=bash
echo "job $SLURM_JOB_ID of $USER on $SLURM_JOB_NODELIST, submitted in $SLURM_SUBMIT_DIR"
# srun starts one task on each node of the job (--ntasks-per-node above).
# shellcheck disable=SC2016 # for the shell of each task
srun bash -c 'echo "$(hostname): $(nproc) processors, GPUs: ${CUDA_VISIBLE_DEVICES:-none}"'
