#!/bin/bash
# /home and /opt/apps come from the controller by NFS; any machine of this image may be it.
# shellcheck source-path=SCRIPTDIR source=library.sh
. "$HPC_LIBRARY"

packages nfs-common nfs-kernel-server
off nfs-kernel-server.service
# 256 threads serve a few hundred nodes that start a job at once; 8, the default, make them wait in line.
put /etc/nfs.conf.d/hpc.conf <<'END'
[nfsd]
threads = 256
END
