#!/bin/bash
# Copies data to /data/dataset; goes on where it was.
#SBATCH --job-name=mlperf-gpt3-data
#SBATCH --comment=/data
#SBATCH --partition=main
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=8
#SBATCH --time=2880
#SBATCH --output=/data/.hpc/mlperf-gpt3-data-%j.out
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --dependency=singleton

set -euo pipefail

DATA=/data
NAME=gpt3-data
SOURCE=mirror:mlperf/dataset_c4_spm.tar
TARGET=dataset
ENDPOINT=''

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

# Copies SOURCE to $DATA/$TARGET: from an rclone remote, or from s3://BUCKET/PATH by the AWS CLI. Both leave out files
# that are there already, so a job that was interrupted goes on where it was. Keys come from your own configuration
# (~/.config/rclone/rclone.conf, ~/.aws) or from the environment (RCLONE_*, AWS_*).
copy() {
    # The name of an archive: of REMOTE:DIR/X.tar and of REMOTE:X.tar.
    local name=${SOURCE##*[:/]}
    mkdir -p "$DATA/$TARGET"
    if [[ $SOURCE == s3://* ]]; then
        need aws "install the AWS CLI on the nodes, or name an rclone remote as --source"
        local options=(--no-progress)
        [[ -z $ENDPOINT ]] || options+=(--endpoint-url "$ENDPOINT")
        [[ -e ~/.aws/credentials || -n ${AWS_ACCESS_KEY_ID:-} ]] || options+=(--no-sign-request)
        if [[ $SOURCE == *.tar ]]; then
            aws s3 cp "${options[@]}" "$SOURCE" "$DATA/$TARGET/$name"
        else
            aws s3 sync "${options[@]}" "$SOURCE" "$DATA/$TARGET"
        fi
    else
        need rclone "install the package rclone on the nodes"
        if [[ $SOURCE == recipe:* && -n $ENDPOINT ]]; then
            # A remote by its variables: rclone 1.53 of Ubuntu 22.04 takes no connection string.
            export RCLONE_CONFIG_RECIPE_TYPE=s3 RCLONE_CONFIG_RECIPE_PROVIDER=Other RCLONE_CONFIG_RECIPE_ENDPOINT=$ENDPOINT
        fi
        # Figures of the recipe's own job. A copy of one file takes its folder as the target.
        rclone copy "$SOURCE" "$DATA/$TARGET" --links --transfers 64 --checkers 16 --retries 10 --low-level-retries 20 \
            --stats 30s --stats-one-line --stats-log-level NOTICE
    fi
    local archive=$DATA/$TARGET/$name
    if [[ $SOURCE == *.tar ]]; then
        tar --blocking-factor=8192 -xf "$archive" -C "$DATA/$TARGET"
        rm "$archive"
    fi
}
once "copy-$NAME" "$SOURCE" copy
