# shellcheck shell=bash
# shellcheck disable=SC2154 # variables are the whole script's
# Imports a container image with apptainer: $image is the file, $from where it comes from.
import_image() {
    apptainer pull --force --name "$image.part" "$from"
}
