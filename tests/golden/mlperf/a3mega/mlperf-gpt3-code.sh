#!/bin/bash
# Folders and code of gpt3.
#SBATCH --job-name=mlperf-gpt3-code
#SBATCH --comment=/data
#SBATCH --partition=debug
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=60
#SBATCH --output=/data/.hpc/mlperf-gpt3-code-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --dependency=singleton

set -euo pipefail

DATA=/data
REPOSITORY=https://github.com/mlcommons/training
COMMIT=00f04c57d589721aabce4618922780d29f73cf4e
VOCABULARY=https://huggingface.co/gpt2/resolve/607a30d783dfa663caf39e06633721c8d4cfcd7e
VOCABULARY_SHA256='196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783  vocab.json
1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5  merges.txt'

# What the preparation jobs of a benchmark share. DATA is its folder.

# Ends the job. Arguments: what is wrong, what to do.
fail() {
    printf 'error: %s\nto do: %s\n' "$1" "$2" >&2
    exit 1
}

# Arguments: a program, how to get it.
need() {
    command -v "$1" >/dev/null || fail "$1 is not on ${SLURMD_NODENAME:-this machine}" "$2"
}

# Runs a step once: a finished one leaves a file with what it was given. Arguments: name, what it was given, command.
once() {
    local name=$1 given=$2 done=$DATA/.hpc/$1
    shift 2
    if [[ -f $done && $(<"$done") == "$given" ]]; then
        echo "$name: already there"
        return
    fi
    echo "$name: begins, $(date +%FT%T)"
    "$@"
    printf '%s\n' "$given" >"$done.new"
    mv "$done.new" "$done"
    echo "$name: done, $(date +%FT%T)"
}

mkdir -p "$DATA/.hpc" || fail "$DATA can't be written" "choose another --data, or have its owner give it to you"

# The benchmarks' code, at the pinned commit, in $DATA/training. REPOSITORY and COMMIT are given.

# A clone that was interrupted is completed: git fetches again, and checks out what differs. Files of the benchmark that
# somebody changed are put back; other files stay.
clone() {
    need git "install the package git on the nodes"
    # The data folder is another file system than its parent.
    export GIT_DISCOVERY_ACROSS_FILESYSTEM=1
    local tree=$DATA/training
    [[ -d $tree/.git ]] || git init --quiet "$tree"
    # Locks of a git that was killed; jobs of this name run one at a time.
    rm -f "$tree/.git/index.lock" "$tree/.git/shallow.lock"
    git -C "$tree" remote remove origin 2>/dev/null || true
    git -C "$tree" remote add origin "$REPOSITORY"
    git -C "$tree" fetch --quiet --depth 1 origin "$COMMIT"
    git -C "$tree" checkout --quiet --force --detach "$COMMIT"
}

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
