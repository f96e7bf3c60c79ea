# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153
# Folders and code of Stable Diffusion.
mkdir -p "$DATA"/{datasets/laion-400m,datasets/coco2014,checkpoints,hf_home,results,logs,images}

# The commit has configurations of 1 and 32 nodes. That of 2 is the first one with another number of nodes.
configure() {
    clone
    local configs=$DATA/training/stable_diffusion/configs
    sed 's/^    num_nodes: 1$/    num_nodes: 2/' "$configs/train_01x08x08.yaml" >"$configs/train_02x08x08.yaml.new"
    grep -q '^    num_nodes: 2$' "$configs/train_02x08x08.yaml.new" ||
        fail "$configs/train_01x08x08.yaml has no num_nodes: 1" "remove $DATA/training and prepare again"
    mv "$configs/train_02x08x08.yaml.new" "$configs/train_02x08x08.yaml"
}
once code "$REPOSITORY $COMMIT" configure
