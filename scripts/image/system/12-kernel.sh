#!/bin/bash
# One kernel, held: every module here is built for it, and a second one would boot without them.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs KERNEL

# Of the recipe's own date: a later state of the archive, which the stack may ask for, may lack it.
if [[ -n ${KERNEL_SNAPSHOT:-} ]]; then
    archive kernel "$KERNEL_SNAPSHOT"
fi
packages "linux-image-$KERNEL" "linux-modules-$KERNEL" "linux-modules-extra-$KERNEL" "linux-headers-$KERNEL"
hold "linux-image-$KERNEL" "linux-modules-$KERNEL" "linux-modules-extra-$KERNEL" "linux-headers-$KERNEL"

rm -f "$APT/sources.list.d/hpc-kernel.list"

# The packages that bring the next kernel, then every other kernel; also the one that runs, which is asked about.
debconf-set-selections <<<'linux-base linux-base/removing-running-kernel boolean false'
others=()
while read -r name; do
    [[ $name == *"$KERNEL"* ]] || others+=("$name")
done < <(dpkg-query --show --showformat='${db:Status-Status} ${Package}\n' 'linux-image-*' 'linux-modules-*' \
    'linux-headers-*' 'linux-gcp*' 2>/dev/null | sed -n 's/^installed //p')
# The headers of a flavour share a package with its version only: linux-gcp-headers-5.15.0-1077.
keep=${KERNEL%-*}
gone=()
for name in "${others[@]}"; do
    [[ $name == *"$keep" ]] || gone+=("$name")
done
if [[ ${#gone[@]} -gt 0 ]]; then
    apt_get purge --allow-change-held-packages "${gone[@]}"
fi

kernels=(/boot/vmlinuz-*)
[[ ${#kernels[@]} == 1 && ${kernels[0]} == "/boot/vmlinuz-$KERNEL" ]] ||
    die "/boot must hold the kernel $KERNEL and no other, and holds ${kernels[*]}"
[[ -e /lib/modules/$KERNEL/build/Makefile ]] || die "the headers of $KERNEL are missing: no module could be built"
[[ $(uname -r) == "$KERNEL" ]] || exit "$REBOOT"
