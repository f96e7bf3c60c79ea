#!/bin/sh
# build-image.sh WORK MEMORY SUITE PACKAGES ROOTFS TRIM [SOURCES...]: makes WORK/root, a Debian of SUITE with PACKAGES.
# Runs in mount and process namespaces of its own: when it is killed, its mounts and processes go with it.
#   MEMORY   yes to unpack in memory first: package managers write small files often, which costs half of the time on
#            a disk
#   ROOTFS   folder whose files are laid into the image before its packages come
#   TRIM     script run at the end with the image's root as its argument
#   SOURCES  apt source files; mmdebstrap's own choice if there are none
set -eu

work=$1 memory=$2 suite=$3 packages=$4 rootfs=$5 trim=$6
shift 6

stage=$work/root
if [ "$memory" = yes ]; then
    mkdir "$work/stage"
    mount -t tmpfs -o size=3g,mode=0755 hpc-image "$work/stage"
    stage=$work/stage/root
fi

# Host keys that exist are not generated, which takes RSA a second; trim.sh removes them.
# Single quotes: mmdebstrap's shell has the root as $1 and the environment's ROOTFS.
# shellcheck disable=SC2016
ROOTFS=$rootfs mmdebstrap --mode=root --variant=apt --include="$packages" \
    --hook-dir=/usr/share/mmdebstrap/hooks/merged-usr \
    --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    --aptopt='Acquire::Retries "3"' --aptopt='Acquire::http::Timeout "30"' --aptopt='Acquire::https::Timeout "30"' \
    --dpkgopt=force-unsafe-io --dpkgopt=force-confold \
    --extract-hook='cp -R --no-preserve=ownership,timestamps "$ROOTFS/." "$1/"' \
    --extract-hook='for kind in rsa ecdsa ed25519; do echo "made by the machine" > "$1/etc/ssh/ssh_host_${kind}_key"; done' \
    "$suite" "$stage" "$@" 2>&1

echo "I: finishing the image..."
"$trim" "$stage" 2>&1

if [ "$memory" = yes ]; then
    echo "I: writing the image to disk..."
    cp -a "$stage" "$work/root.half"
    mv "$work/root.half" "$work/root"
fi
