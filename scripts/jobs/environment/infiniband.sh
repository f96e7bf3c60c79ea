# shellcheck shell=bash
# InfiniBand: the driver finds the adapters by itself. Argument: the NIC for control messages.
_hpc_infiniband() {
    local topology=/var/run/nvidia-topologyd/virtualTopology.xml
    _hpc_sockets "$1"
    # Virtual machines hide which GPU is near which adapter; the file says it, where the host has one.
    if [[ -r $topology ]]; then
        export NCCL_TOPO_FILE=$topology
        _hpc_mounts+=,$topology:$topology
    fi
}
