#!/bin/bash
# What programs and kernel modules are built with, and what the later steps use.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

packages build-essential fakeroot devscripts equivs debhelper dh-exec dkms git curl ca-certificates gnupg jq pciutils \
    ethtool python3 lsb-release logrotate nftables # the last one for scripts/gcp/shield.sh
# What users of login machines reach for (docs/guides/user-guide.md).
packages python3-venv tmux nano
# The kernel's own compiler: an older one does not know the options that its headers ask for.
config=/lib/modules/$(kernel)/build/.config
if [[ -f $config ]]; then
    major=$(sed -n 's/^CONFIG_GCC_VERSION=\([0-9]*\)[0-9][0-9][0-9][0-9]$/\1/p' "$config")
    [[ -n $major ]] || die "$config does not say which compiler the kernel was built with"
    packages "gcc-$major" "g++-$major"
    update-alternatives --quiet --install /usr/bin/gcc gcc "/usr/bin/gcc-$major" "$((major * 10))"
    update-alternatives --quiet --set gcc "/usr/bin/gcc-$major"
fi
