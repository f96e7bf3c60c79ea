# shellcheck shell=bash
# Images of NVIDIA: IMAGE=nvcr.io#nvidia/pytorch:24.12-py3 sbatch ..., after nvcrlogin has stored your key.
image=${IMAGE:-ubuntu:24.04}
# The folder that you submitted from is /workspace in the container.
# shellcheck disable=SC2016 # for the shell in the container
srun --container-image="$image" --container-mounts="$SLURM_SUBMIT_DIR:/workspace" --container-workdir=/workspace \
    bash -c '. /etc/os-release
echo "$PRETTY_NAME in $PWD"
if command -v nvidia-smi >/dev/null; then nvidia-smi --list-gpus; fi'
