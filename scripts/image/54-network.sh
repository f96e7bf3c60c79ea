#!/bin/bash
# Nine network interfaces: names and time come by the system network, the eight of the GPUs have addresses only.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/netplan/90-hpc.yaml 0600 <<'END'
# By name and not by address: an image is for many machines. enp0s* is the system network's on A3 Mega.
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
END
if command -v netplan >/dev/null; then
    netplan generate || die "netplan does not take /etc/netplan/90-hpc.yaml"
fi
# Each interface that comes up restarts it; nine at once are more than systemd allows a daemon by default.
put /etc/systemd/system/systemd-timesyncd.service.d/hpc.conf <<'END'
[Unit]
StartLimitBurst=20
END
systemctl daemon-reload
