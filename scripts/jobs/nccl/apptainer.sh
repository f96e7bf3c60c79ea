# shellcheck shell=bash
# Containers by apptainer: $image is the image's file; $folder is mounted, and slurmd's $spool, which has PMIx's sockets.
#
# What srun needs before a command, so that it runs in the container with the job's environment.
contained=(
    apptainer exec --nv --bind "$HPC_CONTAINER_MOUNTS,$folder,$spool" "$image"
    bash -c '. /opt/apps/hpc/env.sh && exec "$@"' bash
)
