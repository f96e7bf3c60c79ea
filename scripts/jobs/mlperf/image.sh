# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153
# The container image as one file, so that nodes do not pull it each for themselves.
import() {
    need enroot "enroot runs the benchmark's container: see docs/mlperf.md"
    rm -f "$DATA/images/$FILE.new"
    enroot import --output "$DATA/images/$FILE.new" "docker://$IMAGE"
    mv "$DATA/images/$FILE.new" "$DATA/images/$FILE"
}
mkdir -p "$DATA/images"
once "image-$FILE" "$IMAGE" import
