#!/bin/bash
# The Lustre client for Google Cloud Managed Lustre: a package of modules for the kernel where Google has one, else DKMS.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs KERNEL

# from PROJECT: have the repository of this project of Google's.
from() {
    repository "$1" "$REGISTRY_KEY" "$GOOGLE_FINGERPRINT" \
        "deb [signed-by=@key@] https://us-apt.pkg.dev/projects/$1 lustre-client-ubuntu-$(codename) main"
    refresh
}
offered() { apt-cache show "$1" >/dev/null 2>&1; }

from lustre-client-binaries
names=("lustre-client-modules-$KERNEL" lustre-client-utils)
if ! offered "${names[0]}"; then
    # For a kernel that Google has no modules for, they are built from its source, which public guides find in either
    # project.
    names[0]=lustre-client-modules-dkms
    offered "${names[0]}" || from lustre-client-modules-dkms
    offered "${names[0]}" ||
        die "Google's repositories have neither modules for $KERNEL nor ${names[0]}; they have $(apt-cache pkgnames lustre-client- | sort | tr '\n' ' ')"
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
