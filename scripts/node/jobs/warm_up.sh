# shellcheck shell=bash
# Runs on a node as root, in a job: bash -c TEXT warm-up SOURCE FILE=IMAGE...
# Prints "warm-up: NODE ready", or "warm-up: NODE lacks" if SOURCE is empty and an image is missing. The node SOURCE
# downloads IMAGE, which is REGISTRY/NAME:TAG, to FILE.sqsh (enroot) or FILE.sif (apptainer), below the folder of
# images, and sends it to the other nodes of the job. A file that exists is not downloaded again.
set -euo pipefail
# The images must be readable by all users, whatever umask srun passes on. It passes no environment (--export=NONE).
umask 022
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
folder=/var/lib/hpc/images source=$1 result=ready
shift
if command -v enroot >/dev/null; then
    program=enroot ending=sqsh
elif program=$(command -v apptainer || command -v singularity); then
    ending=sif
elif (($#)); then
    echo "neither enroot nor apptainer is on $SLURMD_NODENAME: no image can be downloaded" >&2
    exit 1
fi

# Downloads $2 as $1. If nodes share the folder, as in a jail, one downloads and the others wait. Only root can open the
# lock, because anybody who can open it can hold it.
download() {
    (umask 077 && : >>"$folder/.lock")
    exec 9>"$folder/.lock"
    flock --wait 3600 9 || { echo "another download has held $folder/.lock for an hour" >&2; exit 1; }
    [[ ! -e $folder/$1.$ending ]] || return 0
    trap 'rm -rf "$folder/.work" "$folder"/.copy-* "$folder"/.sent-*' EXIT  # the lock is held until then
    work=$folder/.work
    rm -rf "$work" && mkdir -m 0700 "$work"
    export ENROOT_CACHE_PATH=$work/cache ENROOT_DATA_PATH=$work/data ENROOT_TEMP_PATH=$work ENROOT_RUNTIME_PATH=$work/run
    export APPTAINER_CACHEDIR=$work/cache APPTAINER_TMPDIR=$work TMPDIR=$work
    if [[ $program != enroot ]]; then
        "$program" pull "$work/image" "docker://$2" >&2
    elif [[ ${2%%/*} == *[.:]* || $2 == localhost/* ]]; then  # enroot separates a registry from the name by #
        enroot import --output "$work/image" "docker://${2/\//#}" >&2
    else
        enroot import --output "$work/image" "docker://$2" >&2
    fi
    chmod 0644 "$work/image"
    mv "$work/image" "$folder/$1.$ending"
}

if [[ $source ]]; then
    mkdir -p "$folder"
    sent=$folder/.sent-$SLURM_JOB_ID
    trap 'rm -f "$folder"/.copy-* "$folder"/.sent-*' EXIT
fi
for pair; do
    file=$folder/${pair%%=*}.$ending
    if [[ $source == "$SLURMD_NODENAME" ]]; then
        download "${pair%%=*}" "${pair#*=}"
        # A node whose disk is slow answers late; without it sbcast waits for MessageTimeout.
        ((SLURM_JOB_NUM_NODES == 1)) || sbcast --timeout=120 --force "$file" "$folder/.copy-${pair%%=*}"
    elif [[ ! $source && ! -e $file ]]; then
        result=lacks
    fi
done
# Files are renamed after slurmd has written all of them, so that no incomplete file has an image's name.
if [[ $source == "$SLURMD_NODENAME" ]] && ((SLURM_JOB_NUM_NODES > 1)); then
    echo sent >"$sent.from"
    sbcast --timeout=120 --force "$sent.from" "$sent"
elif [[ $source && $source != "$SLURMD_NODENAME" ]]; then
    for pair; do
        file=$folder/${pair%%=*}.$ending
        until [[ -e $sent || -e $file ]]; do sleep 0.5; done
        [[ -e $file ]] || { chmod 0644 "$folder/.copy-${pair%%=*}" && mv "$folder/.copy-${pair%%=*}" "$file"; }
    done
fi
echo "warm-up: $SLURMD_NODENAME $result"
