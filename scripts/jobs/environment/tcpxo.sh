# shellcheck shell=bash
# GPUDirect-TCPXO on A3 Mega nodes. Arguments: the NIC for control messages, the NICs for data, comma-separated.
_hpc_tcpxo() {
    local - libraries=/var/lib/tcpxo/lib64 name place rest
    local -A own=()
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
    # The profile sets these too. What the job has of them stays, and Slurm alone says which GPUs it has.
    for name in NCCL_DEBUG NCCL_DEBUG_SUBSYS CUDA_VISIBLE_DEVICES; do
        [[ -z ${!name+set} ]] || own[$name]=${!name}
    done
    set +eu
    # shellcheck disable=SC1091 # on A3 Mega nodes only
    NCCL_LIB_DIR=$libraries . "$libraries/nccl-env-profile.sh"
    set -u
    for name in "${!own[@]}"; do
        export "$name=${own[$name]}"
    done
    [[ -n ${own[CUDA_VISIBLE_DEVICES]+set} ]] || unset -v CUDA_VISIBLE_DEVICES
    export NCCL_FASTRAK_CTRL_DEV=$1 NCCL_FASTRAK_IFNAME=$2 NCCL_SOCKET_IFNAME=$1
    export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=/dev/aperture_devices
    # The plugin's NCCL comes before any other, and the driver's libraries before those of the image.
    rest=:${LD_LIBRARY_PATH:-}:
    for place in "$libraries" /usr/lib/x86_64-linux-gnu; do
        while [[ $rest == *":$place:"* ]]; do rest=${rest/":$place:"/:}; done
    done
    rest=${rest#:}
    rest=${rest%:}
    export LD_LIBRARY_PATH=$libraries:/usr/lib/x86_64-linux-gnu${rest:+:$rest}
    _hpc_mounts+=,/var/tmp:/var/tmp,$libraries:$libraries
}
