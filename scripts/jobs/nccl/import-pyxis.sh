# shellcheck shell=bash
# Imports a container image with enroot: $image is the file, $from where it comes from.
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
