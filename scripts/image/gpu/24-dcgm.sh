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
