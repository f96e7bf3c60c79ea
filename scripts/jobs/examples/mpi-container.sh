# shellcheck shell=bash
# The image has Open MPI and a compiler. Its file on the shared file system saves the download: see pytorch-container.sh.
image=${IMAGE:-nvcr.io#nvidia/pytorch:24.12-py3}
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
if [[ -n ${GLOO_SOCKET_IFNAME:-} ]]; then
    export OMPI_MCA_btl_tcp_if_include=$GLOO_SOCKET_IFNAME
fi
in_image=(--container-image="$image" --container-mounts="$HPC_CONTAINER_MOUNTS,$SLURM_SUBMIT_DIR:/workspace")
in_image+=(--container-workdir=/workspace)
# Compiled once, in the image that it then runs in.
srun --nodes=1 --ntasks=1 "${in_image[@]}" \
    mpicc -O2 -o "pi-$SLURM_JOB_ID" "${PROGRAM:-/opt/apps/hpc/examples/pi.c}" -lm
srun --mpi=pmix "${in_image[@]}" "./pi-$SLURM_JOB_ID"
