# shellcheck shell=bash
# Runs on a node as root, in a job: downloads container images for all users of the node.
#     bash -c TEXT warm-up FILE=IMAGE...    prints "warm-up: ready", and "warm-up: rxdm" if rxdm has run since the boot
#     bash -c TEXT warm-up --rxdm           in a job on several nodes, after rxdm's prolog: notes that it has run
# IMAGE is REGISTRY/NAME:TAG; it is put at FILE, below the folder of images, by enroot (FILE.sqsh) or apptainer
# (FILE.sif). A file that exists is not downloaded again.
set -euo pipefail
# The images are for all users, whatever umask srun brings along.
umask 022
# srun gives it no environment: what root has here is of no use there.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root

folder=/var/lib/hpc/images
# Gone with the next boot; another version of the prolog pulls other images.
version=$(sha256sum /opt/apps/adm/slurm/scripts/rxdm 2>/dev/null || echo none)
mark=/run/hpc/warm-up/rxdm-${version:0:16}

# enroot separates the registry from the name by #, where there is one.
enroot_uri() {
    local first=${1%%/*}
    if [[ $1 == */* && ($first == *.* || $first == *:* || $first == localhost) ]]; then
        echo "docker://$first#${1#*/}"
    else
        echo "docker://$1"
    fi
}

download() {
    local name=$1 image=$2 ending program
    if command -v enroot >/dev/null; then
        program=enroot ending=sqsh
    elif program=$(command -v apptainer || command -v singularity); then
        ending=sif
    else
        echo "neither enroot nor apptainer is on $(hostname -s): image $image can't be downloaded" >&2
        return 1
    fi
    local target=$folder/$name.$ending work=$folder/.work
    [[ ! -e $target ]] || return 0
    # Where nodes share this folder, as in a jail, one downloads and the others wait.
    # Root's alone: whoever can open the file can hold the lock.
    (umask 077 && : >>"$folder/.lock")
    exec 9>"$folder/.lock"
    flock 9
    if [[ ! -e $target ]]; then
        # What a killed job left. Not in the cache of a user, nor below a folder that users can write to.
        rm -rf "$work"
        mkdir -m 0700 "$work"
        # Nor does one that fails keep tens of GB: a full disk may be why.
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

if [[ ${1-} == --rxdm ]]; then
    mkdir -p "${mark%/*}"
    touch "$mark"
elif (($#)); then
    mkdir -p "$folder"
    for pair; do
        download "${pair%%=*}" "${pair#*=}"
    done
fi
[[ ! -e $mark ]] || echo "warm-up: rxdm"
echo "warm-up: ready"
