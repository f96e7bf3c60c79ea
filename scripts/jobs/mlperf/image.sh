# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153,SC2034
# The container image as one file, so that nodes do not pull it each for themselves. import_image is defined before.
image=$DATA/images/$FILE
from=docker://$IMAGE

import() {
    need enroot "enroot runs the benchmark's container: see docs/guides/mlperf.md"
    rm -f "$image.part"
    import_image
    mv "$image.part" "$image"
}
mkdir -p "$DATA/images"
once "image-$FILE" "$IMAGE" import
