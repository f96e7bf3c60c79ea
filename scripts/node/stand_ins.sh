#!/bin/bash
# Replaces the programs that the rxdm prolog of A3 Mega nodes calls, on other nodes. Called by one of the names below,
# it acts as that program does on a healthy node. Called by any other name, as a prolog before rxdm, it installs itself
# under those names.
#
# The prolog needs the following: Google's metadata server returns `machine-type`; docker starts, lists, stops and shows
# containers; the plugin's installer writes NCCL's profile, for network interfaces called eth0 to eth8, and the receive
# data path manager logs that it has started.
set -u

containers=/run/hpc-stand-ins
profile=/var/lib/tcpxo/lib64/nccl-env-profile.sh

install_stand_ins() {
    local name place
    # A machine's own programs of these names would not find the modules of an A3 Mega node.
    for name in docker gcloud modprobe nvidia-smi; do
        install -m 0755 -- "$0" "/usr/local/sbin/$name"
    done
    # The machine's own ones of these work. The prolog calls curl by its full path.
    for place in /usr/bin/curl /usr/bin/lsb_release; do
        [[ -e $place ]] || install -m 0755 -- "$0" "$place"
    done
}

write_profile() {
    mkdir -p "${profile%/*}"
    cat >"$profile" <<-'EOT'
		export NCCL_FASTRAK_CTRL_DEV=eth0
		export NCCL_FASTRAK_IFNAME=eth1,eth2,eth3,eth4,eth5,eth6,eth7,eth8
		export NCCL_SOCKET_IFNAME=eth0
	EOT
}

docker() {
    mkdir -p "$containers"
    case "$*" in
        "container list"*) ls "$containers" ;;
        "container stop "* | "stop "*)
            local container
            for container in "$@"; do rm -f "$containers/$container"; done
            ;;
        *"logs "*) echo "stand-in: Buffer manager initialization complete" ;;
        run*"/nccl-plugin-"*) write_profile ;;
        run*--detach*)
            while (($# > 1)); do
                [[ $1 == --name ]] && : >"$containers/$2"
                shift
            done
            ;;
    esac
}

case ${0##*/} in
    curl)
        case "$*" in
            *"/instance/machine-type"*) echo "projects/1/machineTypes/a3-megagpu-8g" ;;
            *) exit 22 ;;
        esac
        ;;
    docker) docker "$@" ;;
    lsb_release) (. /etc/os-release && echo "$VERSION_ID") ;;
    gcloud | modprobe | nvidia-smi) ;;
    *) install_stand_ins ;;
esac
