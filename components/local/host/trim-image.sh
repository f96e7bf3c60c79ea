#!/bin/sh
# trim-image.sh ROOT: leaves in a fresh Debian root what a rehearsed machine needs, and lets it start fast.
set -eu

root=$1

# What a role needs is enabled by the node's set-up, not by the package.
chroot "$root" systemctl --quiet disable slurmctld.service slurmd.service slurmdbd.service munge.service \
    mariadb.service remote-fs.target
[ ! -e "$root/usr/sbin/slurmrestd" ] || chroot "$root" systemctl --quiet disable slurmrestd.service
chroot "$root" systemctl --quiet enable ssh.service hpc-machine.service
# There is no console to log in at, no seat, no disk to unlock, no network to wait for, no TPM, and no package or file
# system to look after; users, kernel modules and settings, libraries, host keys and device files are the image's and
# the host's; and the journal is not kept.
chroot "$root" systemctl --quiet mask console-getty.service getty.target systemd-logind.service \
    systemd-ask-password-console.path systemd-ask-password-wall.path systemd-initctl.socket \
    cryptsetup.target integritysetup.target veritysetup.target kmod-static-nodes.service systemd-modules-load.service \
    systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-pstore.service \
    systemd-sysusers.service systemd-sysctl.service systemd-tmpfiles-setup-dev.service \
    systemd-tmpfiles-setup-dev-early.service systemd-remount-fs.service systemd-journal-flush.service \
    systemd-journal-catalog-update.service systemd-update-done.service systemd-hibernate-clear.service \
    systemd-firstboot.service systemd-machine-id-commit.service systemd-random-seed.service systemd-repart.service \
    systemd-binfmt.service proc-sys-fs-binfmt_misc.automount ldconfig.service sshd-keygen.service \
    systemd-pcrphase.service systemd-pcrphase-sysinit.service systemd-pcrmachine.service \
    systemd-tpm2-setup.service systemd-tpm2-setup-early.service systemd-creds.socket systemd-pcrextend.socket \
    systemd-pcrlock.socket systemd-sysext.socket systemd-hostnamed.socket \
    apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer systemd-tmpfiles-clean.timer \
    systemd-user-sessions.service dev-hugepages.mount dev-mqueue.mount run-lock.mount sys-fs-fuse-connections.mount \
    sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount 2>/dev/null
# Users may log in as soon as sshd runs.
ln -s /dev/null "$root/etc/tmpfiles.d/systemd-nologin.conf"
# Started by its socket, for who asks.
rm -f "$root/usr/lib/systemd/system/multi-user.target.wants/dbus.service"
chroot "$root" systemctl --quiet set-default multi-user.target
mkdir -p "$root/etc/systemd/system-generators"
for generator in bless-boot cryptsetup debug hibernate-resume getty gpt-auto integritysetup rc-local run ssh sysv \
    system-update tpm2 veritysetup; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done
# pam_motd would run five processes at each login over SSH, also of a program.
rm -rf "$root/etc/update-motd.d"
# By the name that users know.
[ -e "$root/usr/bin/nano" ] || ln -s nano-tiny "$root/usr/bin/nano"

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
