#!/bin/bash
# The Lustre client for Google Cloud Managed Lustre. There is one package of modules for each kernel, and only for some.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs KERNEL

repository lustre "$REGISTRY_KEY" "$GOOGLE_FINGERPRINT" \
    "deb [signed-by=@key@] https://us-apt.pkg.dev/projects/lustre-client-binaries lustre-client-ubuntu-$(codename) main"
refresh
name=lustre-client-modules-$KERNEL
apt-cache show "$name" >/dev/null 2>&1 ||
    die "Google's repository has no $name; it has $(apt-cache pkgnames lustre-client-modules- | sort | tr '\n' ' ')"
packages "$name" lustre-client-utils
hold "$name" lustre-client-utils
depmod "$KERNEL"
module_for lustre
lustre_network
