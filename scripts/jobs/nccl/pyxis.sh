# shellcheck shell=bash
# shellcheck disable=SC2154,SC2034 # variables are the whole script's
# Containers by enroot and pyxis. $image is the image's file, $from where it comes from; $folder is mounted.
import_image() {
    # enroot keeps its runtime files in XDG_RUNTIME_DIR, and a job has no session of systemd that would make one.
    (
        if [[ -z ${XDG_RUNTIME_DIR:-} || ! -w ${XDG_RUNTIME_DIR:-} ]]; then
            XDG_RUNTIME_DIR=$(mktemp -d)
            export XDG_RUNTIME_DIR
            trap 'rm -rf "$XDG_RUNTIME_DIR"' EXIT
        fi
        enroot import --output "$image.part" "$from"
    )
}

# What srun needs before a command, so that it runs in the container with the job's environment. env.sh is read inside
# again: there, LD_LIBRARY_PATH is the image's own, which the plugin's libraries come before.
contained=(
    --container-image="$image"
    --container-mounts="$HPC_CONTAINER_MOUNTS,$folder:$folder"
    --container-env="$HPC_CONTAINER_ENV"
    bash -c '. /opt/apps/hpc/env.sh && exec "$@"' bash
)
