# shellcheck shell=bash
# Runs on a node as root, in a job: downloads container images for all users of the node.
#     bash -c TEXT warm-up FILE=IMAGE...    prints "warm-up: ready", and "warm-up: rxdm" if rxdm has run since the boot
#     bash -c TEXT warm-up --look FILE=IMAGE...
#                                           the same without a download: prints "warm-up: lacks FILE" for a missing image
#     bash -c TEXT warm-up --send NODE FILE=IMAGE...
#                                           in a job on several nodes: sends all images from NODE to the others
#     bash -c TEXT warm-up --rxdm           in a job on several nodes, after rxdm's prolog: records that it has run
# IMAGE is REGISTRY/NAME:TAG; it is put at FILE, below the folder of images, by enroot (FILE.sqsh) or apptainer
# (FILE.sif). A file that exists is not downloaded again.
set -euo pipefail
# The images must be readable by all users, whatever umask srun passes on.
umask 022
# srun passes no environment (--export=NONE).
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

folder=/var/lib/hpc/images
# The mark is lost at the next boot. Another version of the prolog pulls other images, so it has a mark of its own.
version=$(sha256sum /opt/apps/adm/slurm/scripts/rxdm 2>/dev/null || echo none)
mark=/run/hpc/warm-up/rxdm-${version:0:16}

# enroot separates a registry from the name by #.
enroot_uri() {
    local first=${1%%/*}
    if [[ $1 == */* && ($first == *.* || $first == *:* || $first == localhost) ]]; then
        echo "docker://$first#${1#*/}"
    else
        echo "docker://$1"
    fi
}

# Sets the program that runs containers here, and the ending of its files.
runtime() {
    if command -v enroot >/dev/null; then
        program=enroot ending=sqsh
    elif program=$(command -v apptainer || command -v singularity); then
        ending=sif
    else
        echo "neither enroot nor apptainer is on $(hostname -s): no image can be downloaded" >&2
        return 1
    fi
}

download() {
    local name=$1 image=$2
    local target=$folder/$name.$ending work=$folder/.work
    [[ ! -e $target ]] || return 0
    # If nodes share this folder, as in a jail, one downloads and the others wait. Only root can open the file, because
    # anybody who can open it can hold the lock.
    (umask 077 && : >>"$folder/.lock")
    exec 9>"$folder/.lock"
    flock --wait 3600 9 || { echo "another download has held $folder/.lock for an hour on $(hostname -s) or a node that shares it" >&2; return 1; }
    if [[ ! -e $target ]]; then
        # Remove files of a killed job. The work folder is not below a folder that users can write to.
        rm -rf "$work"
        mkdir -m 0700 "$work"
        # A failed download must not keep tens of GB: a full disk may be its cause.
        trap 'rm -rf "$folder/.work"' EXIT
        if [[ $program == enroot ]]; then
            ENROOT_CACHE_PATH=$work/cache ENROOT_DATA_PATH=$work/data ENROOT_TEMP_PATH=$work \
                ENROOT_RUNTIME_PATH=$work/run TMPDIR=$work \
                enroot import --output "$work/image" "$(enroot_uri "$image")" >&2
        else
            APPTAINER_CACHEDIR=$work/cache APPTAINER_TMPDIR=$work TMPDIR=$work \
                "$program" pull "$work/image" "docker://$image" >&2
        fi
        chmod 0644 "$work/image"
        mv "$work/image" "$target"
        rm -rf "$work"
        trap - EXIT
    fi
    exec 9>&-
}

# On all nodes of a job: the node $1 sends files to all others. They are renamed after slurmd has written all of them,
# so that no incomplete file has an image's name.
send() {
    local from=$1 pair file
    sent=$folder/.sent-$SLURM_JOB_ID
    shift
    if [[ $SLURMD_NODENAME == "$from" ]]; then
        trap 'rm -f "$folder"/.copy-* "$folder"/.sent-*' EXIT  # also what a killed job left
        for pair; do
            # A node whose disk is slow answers late; without it sbcast waits for MessageTimeout.
            sbcast --timeout=120 --force "$folder/${pair%%=*}.$ending" "$folder/.copy-${pair%%=*}"
        done
        echo sent >"$sent.from"
        sbcast --timeout=120 --force "$sent.from" "$sent"
        return
    fi
    trap 'rm -f "$folder"/.copy-* "$sent"' EXIT
    until [[ -e $sent ]]; do sleep 0.5; done
    for pair; do
        file=$folder/${pair%%=*}.$ending
        [[ -e $file ]] || { chmod 0644 "$folder/.copy-${pair%%=*}" && mv "$folder/.copy-${pair%%=*}" "$file"; }
    done
}

if [[ ${1-} == --look ]]; then
    runtime
    shift
    lacking=0
    for pair; do
        [[ -e $folder/${pair%%=*}.$ending ]] || { echo "warm-up: lacks ${pair%%=*}" && lacking=1; }
    done
    ((!lacking)) || exit 0
elif [[ ${1-} == --send ]]; then
    runtime
    mkdir -p "$folder"
    send "${@:2}"
    exit
elif [[ ${1-} == --rxdm ]]; then
    mkdir -p "${mark%/*}"
    touch "$mark"
elif (($#)); then
    runtime
    mkdir -p "$folder"
    for pair; do
        download "${pair%%=*}" "${pair#*=}"
    done
fi
[[ ! -e $mark ]] || echo "warm-up: rxdm"
echo "warm-up: ready"
