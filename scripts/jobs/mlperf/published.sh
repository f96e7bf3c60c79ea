# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153
# Datasets and checkpoints of Stable Diffusion by its own scripts, which download with wget, go on where they were, and
# check sums. The code is prepared first.
published() {
    need wget "install the package wget on the nodes"
    local scripts=$DATA/training/stable_diffusion/scripts
    [[ -d $scripts ]] || fail "$scripts is not there" "look at the log of the job that prepares the code"
    bash "$scripts/$1" --output-dir "$DATA/$2"
}
once published-sd "$COMMIT" published checkpoints/download_sd.sh checkpoints/sd
once published-clip "$COMMIT" published checkpoints/download_clip.sh checkpoints/clip
once published-inception "$COMMIT" published checkpoints/download_inception.sh checkpoints/inception
once published-prompts "$COMMIT" published datasets/coco2014-validation-download-prompts.sh datasets/coco2014
once published-stats "$COMMIT" published datasets/coco2014-validation-download-stats.sh datasets/coco2014
once published-moments "$COMMIT" published datasets/laion400m-filtered-download-moments.sh \
    datasets/laion-400m/webdataset-moments-filtered
