# shellcheck shell=bash
# shellcheck source=begin.sh disable=SC2153
# Folders, code and vocabulary of GPT-3.
mkdir -p "$DATA"/{dataset/bpe,checkpoint,logs,images}

# PyTorch 2 has no torch._six; torch.inf is in all versions that the benchmark runs with.
configure() {
    clone
    sed -i 's/^from torch\._six import inf$/from torch import inf/' \
        "$DATA/training/large_language_model/megatron-lm/megatron/optimizer/clip_grads.py"
}
once code "$REPOSITORY $COMMIT" configure

# Of the GPT-2 tokenizer, where Megatron-LM takes the size of the vocabulary from.
vocabulary() {
    need curl "install the package curl on the nodes"
    local file sha256 got
    while read -r sha256 file; do
        curl --fail --silent --show-error --location --retry 5 --output "$DATA/dataset/bpe/$file.new" "$VOCABULARY/$file" </dev/null
        got=$(sha256sum <"$DATA/dataset/bpe/$file.new")
        [[ ${got%% *} == "$sha256" ]] ||
            fail "$VOCABULARY/$file has SHA-256 ${got%% *}, expected $sha256" \
                "look at $DATA/dataset/bpe/$file.new: a proxy may have answered; run this again when the file is right"
        mv "$DATA/dataset/bpe/$file.new" "$DATA/dataset/bpe/$file"
    done <<<"$VOCABULARY_SHA256"
}
once vocabulary "$VOCABULARY" vocabulary
