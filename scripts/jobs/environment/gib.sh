# shellcheck shell=bash
# GPUDirect RDMA by gIB on A3 Ultra and A4 nodes. Arguments: the NICs for control messages.
_hpc_gib() {
    local gib=/usr/local/gib names
    _hpc_sockets "$1"
    names=$(IFS=,; echo "$*")
    if [[ ! -r $gib/scripts/set_nccl_env.sh ]]; then
        # A job on one node needs no network between GPUs.
        ((${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-1}} > 1)) || return 0
        echo "env.sh: $gib/scripts/set_nccl_env.sh is not on ${SLURMD_NODENAME:-this machine}. The image of A3 Ultra and" \
            "A4 nodes has it; in a container it needs --container-mounts=\"\$HPC_CONTAINER_MOUNTS\"." >&2
        return 1
    fi
    _hpc_settings "$gib/scripts/set_nccl_env.sh"
    export NCCL_NET=gIB NCCL_SOCKET_IFNAME=$names
    _hpc_libraries "$gib/lib64"
    _hpc_mounts+=,/var/tmp:/var/tmp,$gib:$gib
}
