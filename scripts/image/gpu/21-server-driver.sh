#!/bin/bash
# NVIDIA's server driver and CUDA toolkit of the distribution, on machines that have a GPU.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs DRIVER_BRANCH

if ! has_gpu && [[ $BAKE != 1 ]]; then
    say "this machine has no NVIDIA GPU"
    exit 0
fi
packages "linux-headers-$(kernel)" dkms "nvidia-dkms-$DRIVER_BRANCH-server" "nvidia-utils-$DRIVER_BRANCH-server" \
    "nvidia-compute-utils-$DRIVER_BRANCH-server" "libnvidia-compute-$DRIVER_BRANCH-server" nvidia-cuda-toolkit
# A library that is updated without its module makes nvidia-smi fail until the next reboot; a kernel, until a rebuild.
names=("nvidia-dkms-$DRIVER_BRANCH-server" "nvidia-utils-$DRIVER_BRANCH-server" \
    "nvidia-compute-utils-$DRIVER_BRANCH-server" "libnvidia-compute-$DRIVER_BRANCH-server")
for name in "linux-image-$(kernel)" "linux-headers-$(kernel)" linux-gcp linux-image-gcp linux-headers-gcp; do
    [[ -z $(installed "$name") ]] || names+=("$name")
done
hold "${names[@]}"
dkms status -k "$(kernel)" | grep -q '^nvidia.*installed' || die "the driver was not built for $(kernel): $(dkms status)"
module_for nvidia
# Once: another driver may hold the GPU until then.
if has_gpu && ! nvidia-smi --list-gpus | grep -q '^GPU 0:'; then
    exit "$REBOOT"
fi
