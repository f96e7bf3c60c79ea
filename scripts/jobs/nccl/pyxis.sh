# shellcheck shell=bash
# Containers by enroot and pyxis: $image is the image's file, $folder is mounted.
#
# What srun needs before a command, so that it runs in the container with the job's environment. env.sh is read inside
# again: there, LD_LIBRARY_PATH is the image's own, which the plugin's libraries come before.
contained=(
    --container-image="$image"
    --container-mounts="$HPC_CONTAINER_MOUNTS,$folder:$folder"
    --container-env="$HPC_CONTAINER_ENV"
    bash -c '. /opt/apps/hpc/env.sh && exec "$@"' bash
)
