#!/bin/bash
# The Lustre client for Google Cloud Managed Lustre: a package of modules for the kernel where Google has one, else DKMS.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs KERNEL

repository lustre "$REGISTRY_KEY" "$GOOGLE_FINGERPRINT" \
    "deb [signed-by=@key@] https://us-apt.pkg.dev/projects/lustre-client-binaries lustre-client-ubuntu-$(codename) main"
refresh
names=("lustre-client-modules-$KERNEL" lustre-client-utils)
if ! apt-cache show "${names[0]}" >/dev/null 2>&1; then
    # For a kernel that the repository has no modules for, they are built from its source.
    names[0]=lustre-client-modules-dkms
    apt-cache show "${names[0]}" >/dev/null 2>&1 ||
        die "Google's repository has neither modules for $KERNEL nor ${names[0]}; it has $(apt-cache pkgnames lustre-client- | sort | tr '\n' ' ')"
    packages dkms
fi
packages "${names[@]}"
hold "${names[@]}"
if [[ ${names[0]} == *-dkms ]]; then
    # The package builds for the kernel that runs; the image's may be another.
    dkms autoinstall -k "$KERNEL" || die "the Lustre client was not built for $KERNEL: $(dkms status)"
fi
depmod "$KERNEL"
module_for lustre
lustre_network
