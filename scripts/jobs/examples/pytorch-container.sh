# shellcheck shell=bash
# Every node unpacks the image before its first task. A file on the shared file system saves the download:
#     enroot import --output ~/pytorch.sqsh docker://nvcr.io#nvidia/pytorch:24.12-py3
# and then: IMAGE=~/pytorch.sqsh sbatch ...
image=${IMAGE:-nvcr.io#nvidia/pytorch:24.12-py3}
export PROGRAM=${PROGRAM:-/opt/apps/hpc/examples/train.py}
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# The container has its own LD_LIBRARY_PATH: env.sh puts the libraries of the network before it.
# shellcheck disable=SC2016 # for the shell in the container
srun --container-image="$image" --container-mounts="$HPC_CONTAINER_MOUNTS,$SLURM_SUBMIT_DIR:/workspace" \
    --container-workdir=/workspace --container-env="$HPC_CONTAINER_ENV" \
    bash -c '. /opt/apps/hpc/env.sh
exec python3 "$PROGRAM" --steps 200 --checkpoints "/workspace/checkpoints-$SLURM_JOB_ID"'
