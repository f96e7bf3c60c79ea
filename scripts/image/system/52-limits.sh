#!/bin/bash
# Limits that large jobs run into: locked memory for RDMA, open files and processes for frameworks.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

put /etc/security/limits.d/99-hpc.conf <<'END'
* - memlock unlimited
* - nproc unlimited
* - stack unlimited
* - cpu unlimited
* - rtprio unlimited
* - nofile 1048576
END
