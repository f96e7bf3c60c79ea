#!/bin/bash
# The container image of stable-diffusion as one file.
#SBATCH --job-name=mlperf-sd-image
#SBATCH --comment=/data
#SBATCH --partition=debug
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=2
#SBATCH --time=240
#SBATCH --output=/data/.hpc/mlperf-sd-image-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --dependency=singleton

set -euo pipefail

DATA=/data
IMAGE='cr.eu-north1.nebius.cloud#slurm-mlperf-training/sd-3.0-mlcommons:0.1.5'
FILE=slurm-mlperf-training_sd-3.0-mlcommons_0.1.5.sqsh

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
