#!/bin/bash
# All packages of the distribution as new as its archive has them: the public image is older than its security updates.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs BAKE

# What belongs to the kernel stays: modules are built for it, and which one it is, the recipe says.
mapfile -t kernels < <(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' 'linux-image-*' 'linux-modules-*' \
    'linux-headers-*' 'linux-gcp*' 2>/dev/null | sed -n 's/^installed //p')
[[ ${#kernels[@]} == 0 ]] || hold "${kernels[@]}"

mark=/run/hpc-upgraded # gone after a restart
before=$(dpkg-query --show | sha256sum)
upgrade
[[ $(dpkg-query --show | sha256sum) == "$before" ]] || touch "$mark"
# A machine of a cluster runs what was upgraded; of a builder, only the disk is used.
[[ $BAKE == 1 || ! -e $mark ]] || exit "$REBOOT"
