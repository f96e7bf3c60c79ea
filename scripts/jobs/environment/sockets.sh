# shellcheck shell=bash
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
