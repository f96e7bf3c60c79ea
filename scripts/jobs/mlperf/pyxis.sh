# shellcheck shell=bash
# Training runs in the benchmark's container.
if [[ $(srun --help 2>&1) != *--container-image* ]]; then
    echo "error: srun on ${SLURMD_NODENAME:-this machine} has no --container-image" >&2
    echo "to do: run the benchmark on a cluster with enroot and pyxis" >&2
    exit 1
fi
# Since 22.05 srun does not take the number of CPUs of a task from sbatch.
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
