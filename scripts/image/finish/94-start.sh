#!/bin/bash
# On a machine that installs at its first boot: starts what an image would start at a boot, so that none has to follow.
# What is of a role (Slurm, MUNGE, MariaDB, NFS) is left to the machine's set-up.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

# A machine that no image replaces mends itself: the security updates of the day, but for what is held (kernel, driver,
# Slurm), and without a restart. Only now, so that what the steps installed is of the recipe's own date.
if [[ -n ${SNAPSHOT:-} ]]; then
    packages unattended-upgrades
    put "$APT/sources.list.d/hpc-security.list" <<END
deb [signed-by=/usr/share/keyrings/ubuntu-archive-keyring.gpg] http://security.ubuntu.com/ubuntu $(codename)-security main restricted universe multiverse
END
    put "$APT/apt.conf.d/52hpc-upgrades" <<'END'
#clear Unattended-Upgrade::Allowed-Origins;
Unattended-Upgrade::Allowed-Origins { "${distro_id}:${distro_codename}-security"; };
Unattended-Upgrade::Automatic-Reboot "false";
Unattended-Upgrade::Remove-Unused-Kernel-Packages "false";
END
    put "$APT/apt.conf.d/20auto-upgrades" <<'END'
APT::Periodic::Update-Package-Lists "1";
APT::Periodic::Unattended-Upgrade "1";
END
    systemctl unmask --quiet unattended-upgrades.service apt-daily.service apt-daily-upgrade.service apt-daily.timer \
        apt-daily-upgrade.timer
    systemctl enable --quiet --now apt-daily.timer apt-daily-upgrade.timer
fi

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
