#!/bin/sh
# trim-image.sh ROOT: leaves in a fresh Debian root what a rehearsed machine needs, and lets it start fast.
set -eu

root=$1

# What a role needs is enabled by the node's set-up, not by the package.
chroot "$root" systemctl --quiet disable slurmctld.service slurmd.service slurmdbd.service munge.service \
    mariadb.service remote-fs.target
chroot "$root" systemctl --quiet enable ssh.service systemd-networkd.service hpc-machine.service
# There is no console to log in at, no seat, no disk to unlock, no network to wait for, and no package or file system to
# look after; users, kernel settings and device files are the image's and the host's; and the journal is not kept.
chroot "$root" systemctl --quiet mask console-getty.service getty.target systemd-logind.service \
    systemd-ask-password-console.path systemd-ask-password-wall.path systemd-initctl.socket \
    cryptsetup.target integritysetup.target veritysetup.target \
    systemd-networkd-wait-online.service systemd-network-generator.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-pstore.service \
    systemd-sysusers.service systemd-sysctl.service systemd-tmpfiles-setup-dev.service \
    systemd-remount-fs.service systemd-journal-flush.service \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer systemd-tmpfiles-clean.timer \
    dev-hugepages.mount sys-fs-fuse-connections.mount
chroot "$root" systemctl --quiet set-default multi-user.target
mkdir -p "$root/etc/systemd/system-generators"
for generator in bless-boot cryptsetup debug hibernate-resume getty gpt-auto integritysetup rc-local run sysv \
    system-update veritysetup; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done

# Scripts for another init: `systemctl enable` would run them through a program of half a second for each service.
rm -f "$root"/etc/init.d/* "$root"/etc/rc?.d/*

# A machine's own identity is made with the machine.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/hostname" "$root/etc/hosts" "$root/etc/resolv.conf" "$root/etc/mailname" \
    "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
: > "$root/etc/machine-id"
: > "$root/etc/hosts"
rm -f "$root/etc/munge/munge.key"

# Files of the packages that were unpacked before dpkg knew which to leave out, and what building left.
for folder in man info doc doc-base locale lintian bug X11 bash-completion zsh; do
    rm -rf "${root:?}/usr/share/$folder"
done
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/var/cache/debconf/*-old "$root"/var/log/*.log \
    "$root"/var/log/apt "$root"/usr/lib/python3*/test "$root"/tmp/* "$root"/run/*
mkdir -p "$root/usr/share/man/man1" "$root/srv/shared" "$root/etc/hpc"
