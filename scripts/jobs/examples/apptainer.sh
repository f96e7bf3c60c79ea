# shellcheck shell=bash
# An image is one file, which you can copy and keep.
image=${IMAGE:-$HOME/ubuntu-24.04.sif}
[[ -e $image ]] || apptainer pull "$image" docker://ubuntu:24.04
# --nv brings the GPUs of the job and their driver into the container; it only warns where there are none.
# shellcheck disable=SC2016 # for the shell in the container
srun apptainer exec --nv --bind "$SLURM_SUBMIT_DIR:/workspace" --pwd /workspace "$image" \
    bash -c '. /etc/os-release
echo "$PRETTY_NAME in $PWD"
if command -v nvidia-smi >/dev/null; then nvidia-smi --list-gpus; fi'
