#!/bin/bash
# The kernel module through which GPUDirect-TCPXO lends GPU memory to the network.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

google_repository transport apt-transport-artifact-registry-stable
packages apt-transport-artifact-registry
repository tcpxo "$REGISTRY_KEY" "$GOOGLE_FINGERPRINT" \
    'deb [arch=all signed-by=@key@] ar+https://us-apt.pkg.dev/projects/gce-ai-infra gpudirect-tcpxo-apt main'
packages dmabuf-import-helper
hold dmabuf-import-helper
dkms autoinstall -k "$(kernel)"
built dmabuf-import-helper || die "GPUDirect-TCPXO would not run with this kernel"
put /etc/modules-load.d/hpc-import-helper.conf <<<import-helper
