#!/bin/bash
# On a machine that installs at its first boot: starts what an image would start at a boot, so that none has to follow.
# What is of a role (Slurm, MUNGE, MariaDB, NFS) is left to the machine's set-up.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

systemctl daemon-reload
systemctl restart systemd-modules-load.service || say "warning: some kernel module could not be loaded"
sysctl --quiet --system
if [[ -f /etc/udev/rules.d/00-hpc-aperture.rules ]]; then
    udevadm control --reload
    udevadm trigger --action=add --subsystem-match=pci --settle
fi
if [[ -f /etc/netplan/90-hpc.yaml ]]; then
    netplan apply
fi
for unit in hpc-hostname hpc-localssd hpc-gpu hpc-lnet docker google-cloud-ops-agent; do
    if systemctl is-enabled --quiet "$unit.service" 2>/dev/null; then
        systemctl restart "$unit.service" || say "warning: $unit did not start: journalctl -u $unit"
    fi
done
