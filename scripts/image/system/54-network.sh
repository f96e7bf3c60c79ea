#!/bin/bash
# Many network interfaces: names and time come by the system network, those of the GPUs have addresses only.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/netplan/90-hpc.yaml 0600 <<'END'
# By name and not by address: an image is for many machines. enp0s* is the system network's on A3 Mega, A3 Ultra and A4;
# adapters for RDMA, whose names depend on the image, are found by their driver.
network:
  version: 2
  ethernets:
    hpc-system:
      match: {name: "enp0s*"}
      dhcp4: true
    hpc-gpus:
      match: {name: "enp[1-9]*"}
      dhcp4: true
      dhcp4-overrides: {use-dns: false, use-ntp: false, use-hostname: false, route-metric: 1000}
    hpc-rdma:
      match: {driver: mlx5_core}
      dhcp4: true
      dhcp4-overrides: {use-dns: false, use-ntp: false, use-hostname: false, route-metric: 1000}
END
if command -v netplan >/dev/null; then
    netplan generate || die "netplan does not take /etc/netplan/90-hpc.yaml"
fi
put "$OURS/wait-for-networks" 0755 <<'END'
#!/bin/bash
# Waits until every gVNIC and RDMA adapter of this machine has its address, at most three minutes: a job that began with fewer than all
# would have its node drained, or run slowly.
net=${HPC_NET:-/sys/class/net} pci=${HPC_PCI:-/sys/bus/pci/devices} seconds=${HPC_SECONDS:-180}
online=${HPC_ONLINE:-/lib/systemd/systemd-networkd-wait-online}
# By the devices: one whose driver is not loaded yet has no interface.
want=0
for device in "$pci"/*; do
    case $(cat "$device/vendor" "$device/device" 2>/dev/null | tr -d '\n') in
        0x1ae00x0042 | 0x15b3*) want=$((want + 1)) ;;
    esac
done
[[ $want -gt 1 ]] || exit 0
ends=$((SECONDS + seconds))
while :; do
    names=()
    for device in "$net"/*/device/vendor; do
        [[ -r $device && $(<"$device") =~ ^0x(1ae0|15b3)$ ]] && names+=("$(basename "${device%/device/vendor}")")
    done
    [[ ${#names[@]} -lt $want && $SECONDS -lt $ends ]] || break
    sleep 1
done
left=$((ends - SECONDS))
# routable: it has an address that others reach. One of its own making, as IPv6 gives each link, is not enough.
options=(--quiet --timeout="$((left > 1 ? left : 1))" --operational-state=routable)
if [[ ${#names[@]} -ge $want ]] && "$online" "${options[@]}" "${names[@]/#/--interface=}"; then
    exit 0
fi
echo "${#names[@]} of $want network interfaces are there, and not all have an address: see networkctl" >&2
# 255 and not 1: systemd takes 1 for a reason not to start slurmd at all, and does not try again.
exit 255
END
put /etc/systemd/system/slurmd.service.d/networks.conf <<END
[Service]
ExecCondition=$OURS/wait-for-networks
# For both conditions and the start itself.
TimeoutStartSec=330
END
# Each interface that comes up restarts it; nine at once are more than systemd allows a daemon by default.
put /etc/systemd/system/systemd-timesyncd.service.d/hpc.conf <<'END'
[Unit]
StartLimitBurst=20
END
systemctl daemon-reload
