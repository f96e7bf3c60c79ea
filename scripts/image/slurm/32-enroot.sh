#!/bin/bash
# enroot: containers that users start without being root.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs ENROOT_URL ENROOT_VERSION ENROOT_COMMIT

packages git make gcc libtool automake libmd-dev libcap2-bin gawk jq parallel squashfs-tools zstd pigz bsdmainutils \
    fuse-overlayfs squashfuse
if [[ $(enroot version 2>/dev/null) != "$ENROOT_VERSION" ]]; then
    checkout "$ENROOT_URL" "$ENROOT_COMMIT" "$BUILD/enroot"
    make -C "$BUILD/enroot" -j "$(nproc)" prefix=/usr sysconfdir=/etc install
    make -C "$BUILD/enroot" prefix=/usr setcap
fi
# PMI and PyTorch's variables reach into containers only through these hooks.
for hook in 50-slurm-pmi.sh 50-slurm-pytorch.sh; do
    install -m 0755 "/usr/share/enroot/hooks.d/$hook" "/etc/enroot/hooks.d/$hook"
done
# Where files go is said for each machine at its boot: on local SSDs if it has some (hpc-localssd), else in the user's home.
# shellcheck disable=SC2016 # enroot itself puts the user's home there
put /etc/enroot/enroot.conf.d/10-hpc.conf <<<'ENROOT_CONFIG_PATH ${HOME}/.enroot'
# Containers of users need their own namespaces; releases from 24.04 on forbid that by default.
if [[ -e /proc/sys/kernel/apparmor_restrict_unprivileged_userns ]]; then
    put /etc/sysctl.d/90-hpc-enroot.conf <<<'kernel.apparmor_restrict_unprivileged_userns = 0'
fi
