# shellcheck shell=bash
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# Open MPI tries all networks of a node, also those that only GPUs reach each other by.
if [[ -n ${GLOO_SOCKET_IFNAME:-} ]]; then
    export OMPI_MCA_btl_tcp_if_include=$GLOO_SOCKET_IFNAME
fi
# srun in place of mpirun: PMIx connects the processes. Your program in its place: srun --mpi=pmix ./program
srun --mpi=pmix python3 "${PROGRAM:-/opt/apps/hpc/examples/pi.py}"
