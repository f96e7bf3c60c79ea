# shellcheck shell=bash
# Imports a container image with apptainer: $image is the file, $from where it comes from.
import_image() {
    apptainer pull --force --name "$image.part" "$from"
}
