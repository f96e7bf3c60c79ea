# shellcheck shell=bash
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
