# shellcheck shell=bash
# GPUDirect-TCPXO on A3 Mega nodes. Arguments: the NIC for control messages, the NICs for data, comma-separated.
_hpc_tcpxo() {
    local libraries=/var/lib/tcpxo/lib64
    _hpc_sockets "$1"
    if ((${SLURM_JOB_NUM_NODES:-${SLURM_NNODES:-1}} < 2)); then
        # The prolog starts the receive data path manager for two nodes and more. Without it the plugin, which an
        # earlier job may have left on the node, fails.
        export NCCL_NET_PLUGIN=none
        return 0
    fi
    if [[ ! -r $libraries/nccl-env-profile.sh ]]; then
        echo "env.sh: $libraries/nccl-env-profile.sh is not on ${SLURMD_NODENAME:-this machine}. On the node the rxdm" \
            "prolog writes it; in a container it needs --container-mounts=\"\$HPC_CONTAINER_MOUNTS\"." >&2
        return 1
    fi
    # Of a job on one node, where this one was submitted.
    [[ ${NCCL_NET_PLUGIN:-} != none ]] || unset -v NCCL_NET_PLUGIN
    NCCL_LIB_DIR=$libraries _hpc_settings "$libraries/nccl-env-profile.sh"
    export NCCL_FASTRAK_CTRL_DEV=$1 NCCL_FASTRAK_IFNAME=$2 NCCL_SOCKET_IFNAME=$1
    export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices
    _hpc_libraries "$libraries"
    _hpc_mounts+=,/var/tmp:/var/tmp,$libraries:$libraries
}
