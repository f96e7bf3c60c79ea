# shellcheck shell=bash
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
