#!/bin/bash
# The network driver for gVNIC with large frames: newer than the one that this kernel has.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs GVE_URL GVE_VERSION GVE_COMMIT BAKE

if [[ $(modinfo -k "$(kernel)" -F version gve 2>/dev/null) != "$GVE_VERSION"* ]] ||
    ! built "gve/$GVE_VERSION" >/dev/null 2>&1; then
    packages coccinelle
    checkout "$GVE_URL" "$GVE_COMMIT" "$BUILD/gve"
    (cd "$BUILD/gve" && ./build_src.sh --target=oot --version="$GVE_VERSION")
    source=/usr/src/gve-$GVE_VERSION
    rm -rf "$source"
    cp -a "$BUILD/gve/build" "$source"
    put "$source/dkms.conf" <<END
PACKAGE_NAME="gve"
PACKAGE_VERSION="$GVE_VERSION"
BUILT_MODULE_NAME[0]="gve"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make KERNELDIR=/lib/modules/\${kernelver}/build"
CLEAN="make clean"
AUTOINSTALL="yes"
END
    dkms remove -m gve -v "$GVE_VERSION" --all >/dev/null 2>&1 || true
    dkms add -m gve -v "$GVE_VERSION"
    dkms install -m gve -v "$GVE_VERSION" -k "$(kernel)" --force
fi
module_for gve
put /etc/modules-load.d/hpc-gve.conf <<<gve
# The driver is also what an image boots its network with.
update-initramfs -u -k "$(kernel)"
# The builder's own network shows whether it works: a driver that does not would take every machine off the network.
running=/sys/module/gve/version
if [[ $BAKE == 1 && -r $running && $(uname -r) == "$(kernel)" && $(<"$running") != "$GVE_VERSION"* ]]; then
    exit "$REBOOT"
fi
