#!/bin/bash
# DCGM, which checks and measures GPUs, for the CUDA that the driver reports: the toolkit's may be older. Newer builds of
# 4.5 came and went within weeks: pinned and held.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"
needs DCGM DRIVER_CUDA

nvidia_repository
names=("datacenter-gpu-manager-4-cuda$DRIVER_CUDA" datacenter-gpu-manager-4-dev datacenter-gpu-manager-4-core)
packages "${names[@]/%/=$DCGM}"
hold "${names[@]}"
# hpc-gpu starts it on machines that have GPUs.
off nvidia-dcgm.service

# dcgm-exporter, and DCGM's part that reads profiling fields. A cluster works without its GPUs' metrics, so they may be
# missing, which is then printed.
if [[ -n ${DCGM_EXPORTER:-} ]]; then
    # In a shell of its own: its failure is not the step's.
    if (packages "datacenter-gpu-manager-exporter=$DCGM_EXPORTER" "datacenter-gpu-manager-4-proprietary=$DCGM"); then
        hold datacenter-gpu-manager-exporter datacenter-gpu-manager-4-proprietary
        # The node's set-up starts it.
        off nvidia-dcgm-exporter.service
    else
        say "warning: dcgm-exporter $DCGM_EXPORTER could not be installed; there are no metrics of GPUs"
    fi
fi
