#!/bin/bash
# Folders and code of stable-diffusion.
#SBATCH --job-name=mlperf-sd-code
#SBATCH --comment=/data
#SBATCH --partition=main
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=60
#SBATCH --output=/data/.hpc/mlperf-sd-code-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --dependency=singleton

set -euo pipefail

DATA=/data
REPOSITORY=https://github.com/mlcommons/training
COMMIT=00f04c57d589721aabce4618922780d29f73cf4e

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
