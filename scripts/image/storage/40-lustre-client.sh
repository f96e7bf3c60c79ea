#!/bin/bash
# The Lustre client for EXAScaler, built for the image's kernel: the modules that Whamcloud has built are for others.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs LUSTRE_URL LUSTRE_VERSION LUSTRE_COMMIT KERNEL

names=("lustre-client-modules-$KERNEL" lustre-client-utils)
if [[ $(installed "${names[0]}") != "$LUSTRE_VERSION"* || $(installed "${names[1]}") != "$LUSTRE_VERSION"* ]]; then
    packages git automake libtool pkg-config module-assistant debhelper quilt rsync ed swig bison flex bzip2 \
        libreadline-dev libyaml-dev libnl-genl-3-dev libselinux1-dev libsnmp-dev mpi-default-dev libssl-dev \
        libpython3-dev libmount-dev libkeyutils-dev zlib1g-dev
    checkout "$LUSTRE_URL" "$LUSTRE_COMMIT" "$BUILD/lustre/lustre"
    cd "$BUILD/lustre/lustre"
    # `make debs` stops where a package that the control file asks for is missing, and two are: dpatch, which is not in
    # every release and has no patch to apply here (Lustre's LU-18010 drops it), and the headers of a kernel that this
    # image does not have. Those that the modules are built with are named below.
    sed -i '/^Build-Depends:/{s/ dpatch,//;s/ linux-headers-generic |[^,]*,//}' debian/control debian/control.main
    sed -i '/^\tdpatch /d' debian/rules
    # What another compiler than upstream's warns of is no error: gcc 12 does, of a path in lnetctl.
    sed -i 's/-Wall -Werror/-Wall/' lustre/autoconf/lustre-core.m4
    sh autogen.sh
    ./configure --disable-server --disable-tests --with-linux="/usr/src/linux-headers-$KERNEL" \
        --with-linux-obj="/usr/src/linux-headers-$KERNEL"
    make -j "$(nproc)" debs
    files=()
    for name in "${names[@]}"; do
        file=$(compgen -G "debs/${name}_*.deb") || die "Lustre's build made no package $name"
        files+=("$PWD/$file")
    done
    packages "${files[@]}"
    cd /
fi
hold "${names[@]}"
depmod "$KERNEL"
module_for lustre
lustre_network
