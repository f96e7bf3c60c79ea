#!/bin/bash
# gIB, NCCL's plugin for the RDMA network of A3 Ultra and A4, and the tools that list its devices. The kernel has the
# adapters' driver (mlx5); NCCL is of the version that the plugin is tested with.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs GIB NCCL

nvidia_repository
google_repository transport apt-transport-artifact-registry-stable
packages apt-transport-artifact-registry
repository gib "$REGISTRY_KEY" "$GOOGLE_FINGERPRINT" \
    'deb [signed-by=@key@] ar+https://us-apt.pkg.dev/projects/gce-ai-infra gpudirect-gib-apt main'
packages ibverbs-utils rdma-core "libnccl2=$NCCL" "libnccl-dev=$NCCL" "nccl-gib=$GIB"
hold libnccl2 libnccl-dev nccl-gib
[[ -r /usr/local/gib/scripts/set_nccl_env.sh ]] || die "nccl-gib $GIB has no /usr/local/gib/scripts/set_nccl_env.sh"
module_for mlx5_ib
put /etc/modules-load.d/hpc-rdma.conf <<<mlx5_ib
