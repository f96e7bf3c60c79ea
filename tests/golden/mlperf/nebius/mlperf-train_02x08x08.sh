#!/bin/bash
# Trains MLPerf's Stable Diffusion on 2 nodes.
#SBATCH --job-name=mlperf-train_02x08x08
#SBATCH --partition=main
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
#SBATCH --time=240
#SBATCH --output=/mlperf-sd/logs/%j_train_02x08x08.out
#SBATCH --no-requeue
#SBATCH --cpus-per-task=8
#SBATCH --mem-per-cpu=4096M

set -euo pipefail

DATA=/mlperf-sd
ENVIRONMENT=/opt/apps/hpc/env.sh
IMAGE=/mlperf-sd/images/slurm-mlperf-training_sd-3.0-mlcommons_0.1.5.sqsh
CONFIG=train_02x08x08.yaml
GPUS=8

# Training runs in the benchmark's container.
if [[ $(srun --help 2>&1) != *--container-image* ]]; then
    echo "error: srun on ${SLURMD_NODENAME:-this machine} has no --container-image" >&2
    echo "to do: run the benchmark on a cluster with enroot and pyxis" >&2
    exit 1
fi
# Since 22.05 srun does not take the number of CPUs of a task from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}

# Trains Stable Diffusion. CONFIG is a file of $DATA/training/stable_diffusion/configs, IMAGE a file or a registry's.
# shellcheck source=/dev/null
. "$ENVIRONMENT"
# Names as enroot passes them into the container; run_and_time.sh sets the rest.
export HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 TRANSFORMERS_OFFLINE=1 DIFFUSERS_OFFLINE=1 HF_HOME=/hf_home
code=$DATA/training/stable_diffusion
mounts=$code:/workdir,$DATA/datasets/laion-400m:/datasets/laion-400m,$DATA/datasets/coco2014:/datasets/coco2014
mounts+=,$DATA/checkpoints:/checkpoints,$DATA/hf_home:/hf_home,$DATA/results:/results
mounts+=,$HPC_CONTAINER_MOUNTS
# Configurations name the statistics differently from the file that is published.
stats=$DATA/datasets/coco2014
if [[ -e $stats/val2014_30k_stats.npz && ! -e $stats/val2014_512x512_30k_stats.npz ]]; then
    ln -s val2014_30k_stats.npz "$stats/val2014_512x512_30k_stats.npz" 2>/dev/null || true
fi
# The container has its own LD_LIBRARY_PATH: env.sh, read there again, puts the libraries of the network before it.
# shellcheck disable=SC2016
srun --container-image="$IMAGE" --container-writable --container-workdir=/workdir --container-mounts="$mounts" \
    --container-env="$HPC_CONTAINER_ENV,HF_HUB_OFFLINE,HF_DATASETS_OFFLINE,TRANSFORMERS_OFFLINE,DIFFUSERS_OFFLINE,HF_HOME" \
    bash -c '. "$0" && exec "$@"' "$ENVIRONMENT" \
    ./run_and_time.sh --num-nodes "$SLURM_JOB_NUM_NODES" --gpus-per-node "$GPUS" \
    --checkpoint /checkpoints/sd/512-base-ema.ckpt --results-dir /results --config "configs/$CONFIG"
