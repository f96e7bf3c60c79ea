#!/bin/bash
# Stands for gIB on nodes that have no RDMA adapters: a prolog that writes the file of NCCL's settings which the package
# nccl-gib brings in images of A3 Ultra and A4. It names no network, so that NCCL's stand-ins run without one.
set -e

settings=/usr/local/gib/scripts/set_nccl_env.sh
[[ ! -e $settings ]] || exit 0
mkdir -p "${settings%/*}" /usr/local/gib/lib64
printf 'export NCCL_CROSS_NIC=0\nexport NCCL_NET_GDR_LEVEL=PIX\n' >"$settings.$$"
mv "$settings.$$" "$settings"
