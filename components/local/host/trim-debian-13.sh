#!/bin/sh
# trim-debian-13.sh ROOT: as trim-image.sh, and what debian-13 has beyond the others. A script of its own: with another
# trim-image.sh, machines of debian-12 that are up would be recreated.
set -eu

# By the name that users know.
ln -s nano-tiny "$1/usr/bin/nano"
chroot "$1" systemctl --quiet disable slurmrestd.service
# More that this systemd starts and a rehearsed machine has no use for: caches of libraries and of the journal's texts
# are as the packages made them, there is no TPM, and nobody logs in through a socket of the host.
chroot "$1" systemctl --quiet mask ldconfig.service systemd-journal-catalog-update.service \
    systemd-update-done.service systemd-networkd-persistent-storage.service systemd-tmpfiles-setup-dev-early.service
mkdir -p "$1/etc/systemd/system-generators"
ln -sf /dev/null "$1/etc/systemd/system-generators/systemd-ssh-generator"
ln -sf /dev/null "$1/etc/systemd/system-generators/systemd-tpm2-generator"
exec "$(dirname "$0")/trim-image.sh" "$1"
