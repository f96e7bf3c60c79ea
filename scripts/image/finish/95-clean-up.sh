#!/bin/bash
# What must not be the same on every machine of the image, and what none of them needs. Last: nothing may write after it.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

rm -rf "$BUILD"
apt_get autoremove --purge
apt-get clean
rm -rf /var/lib/apt/lists/* /run/hpc-apt-lists

# Made by each machine at its first boot. Empty and not missing: systemd then makes a number, and takes the boot for the first.
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id /etc/ssh/ssh_host_* /etc/munge/munge.key /var/lib/systemd/random-seed
rm -f /etc/enroot/enroot.conf.d/50-localssd.conf /etc/hostname
if command -v cloud-init >/dev/null; then
    cloud-init clean --logs
fi
rm -f /root/.bash_history /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys
find /var/log -type f ! -name "$(basename "$HPC_LOG")" \( -name '*.gz' -o -name '*.[0-9]' -o -path '*/journal/*' \) -delete
find /var/log -type f ! -name "$(basename "$HPC_LOG")" -exec truncate --size=0 {} +
# The disk becomes the image as it lies there.
sync
