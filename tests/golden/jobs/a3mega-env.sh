# Environment of jobs on the cluster a3mega, by partition. In a job script: . /opt/apps/hpc/env.sh
# Written from the stack's configuration: a change here is lost.
# shellcheck shell=bash

# Jobs source this with any options of bash (set -euo pipefail), in containers too, and more than once.

# What NCCL and PyTorch's gloo connect over: a NIC by name, or the one that has the machine's first address where there
# is none of that name, as in a rehearsal.
_hpc_sockets() {
    local nic=${1:-}
    if [[ -z $nic || ! -e /sys/class/net/$nic ]] && command -v ip >/dev/null; then
        nic=$(ip -4 -oneline address show up scope global |
            awk '$2 !~ /^(docker|br-|veth|virbr)/ && !n++ {print $2}') || nic=
    fi
    if [[ -n $nic ]]; then
        export NCCL_SOCKET_IFNAME=$nic GLOO_SOCKET_IFNAME=$nic
    else
        export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-^lo,docker}
    fi
}

# What NCCL's plugins of Google's have in common.
#
# _hpc_settings FILE: reads a file of Google's with NCCL's variables. It sets some that are the job's own business: what
# the job has of them stays, and Slurm alone says which GPUs it has.
_hpc_settings() {
    local - name
    local -A own=()
    for name in NCCL_DEBUG NCCL_DEBUG_SUBSYS CUDA_VISIBLE_DEVICES; do
        [[ -z ${!name+set} ]] || own[$name]=${!name}
    done
    set +eu
    # shellcheck disable=SC1090 # on nodes only
    . "$1"
    set -u
    for name in "${!own[@]}"; do
        export "$name=${own[$name]}"
    done
    [[ -n ${own[CUDA_VISIBLE_DEVICES]+set} ]] || unset -v CUDA_VISIBLE_DEVICES
}

# _hpc_libraries FOLDER: the plugin's NCCL comes before any other, and the driver's libraries before those of the image.
_hpc_libraries() {
    local place rest=:${LD_LIBRARY_PATH:-}:
    for place in "$1" /usr/lib/x86_64-linux-gnu; do
        while [[ $rest == *":$place:"* ]]; do rest=${rest/":$place:"/:}; done
    done
    rest=${rest#:}
    rest=${rest%:}
    export LD_LIBRARY_PATH=$1:/usr/lib/x86_64-linux-gnu${rest:+:$rest}
}

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

# Where rank 0 of a PyTorch job listens: on the job's first node, at a port below the kernel's ephemeral ones.
_hpc_master() {
    if command -v scontrol >/dev/null; then
        read -r MASTER_ADDR < <(scontrol show hostnames "$SLURM_JOB_NODELIST") || return 0
        export MASTER_ADDR
    fi
    export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))
}

# Ranks fill a node and a socket before the next, as GPUs are numbered; a distribution that the job asked for stays.
_hpc_distribution() {
    export SLURM_DISTRIBUTION=${SLURM_DISTRIBUTION:-block:block}
}

# What srun's --container-mounts (the argument) and --container-env take. Without the latter an image's own variables win
# over the job's.
_hpc_container() {
    local name
    export HPC_CONTAINER_MOUNTS=$1 HPC_CONTAINER_ENV=MASTER_ADDR,MASTER_PORT
    for name in $(compgen -A export NCCL_ || true) GLOO_SOCKET_IFNAME; do
        [[ -z ${!name:-} ]] || HPC_CONTAINER_ENV+=,$name
    done
}

unset -v _hpc_failed
if [[ -n ${SLURM_JOB_ID:-} ]]; then
    _hpc_mounts=/opt/apps/hpc:/opt/apps/hpc:ro
    case ${SLURM_JOB_PARTITION:-} in
        a3mega)
            _hpc_tcpxo enp0s12 enp6s0,enp7s0,enp13s0,enp14s0,enp134s0,enp135s0,enp141s0,enp142s0 || _hpc_failed=1
            ;;
        debug)
            _hpc_sockets
            ;;
        *)
            echo "env.sh: not written for partition ${SLURM_JOB_PARTITION:-(none)}; NCCL gets no settings" >&2
            ;;
    esac
    _hpc_master
    _hpc_distribution
    _hpc_container "$_hpc_mounts"
fi
unset -f _hpc_sockets _hpc_settings _hpc_libraries _hpc_tcpxo _hpc_master _hpc_distribution _hpc_container
unset -v _hpc_mounts
# The status of this file, also for scripts without set -e: . /opt/apps/hpc/env.sh || exit
[[ -z ${_hpc_failed:-} ]]
