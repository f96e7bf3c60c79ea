#!/bin/bash
# Prolog and epilog: writes the jobs of each GPU of this node for dcgm-exporter (--hpc-job-mapping-dir), which puts them into
# the label hpc_job of each GPU's metrics.
#   /run/hpc-gpu-jobs/N           the jobs of the GPU with DCGM's number N, one a line; empty without a job
#   /run/hpc-gpu-jobs/jobs/JOB    the GPUs of a job, by DCGM's numbers; the files above are made from these
# The folder is empty after a boot. The exit code is always 0, because no failure here should drain the node.
shopt -s nullglob

folder=${HPC_GPU_JOBS:-/run/hpc-gpu-jobs} driver=${HPC_NVIDIA_PROC:-/proc/driver/nvidia/gpus}
spool=${HPC_SLURMD_SPOOL:-/var/spool/slurmd}
GRACE=1800 # seconds; longer than prologs take, before which a job has no process here

# Slurm's number N is /dev/nvidiaN, a device minor. DCGM numbers GPUs in the order of their bus ids. Without NVIDIA's driver,
# in a rehearsal, both are the same.
declare -A index
count=0
for information in "$driver"/*/information; do
    minor=$(sed -n 's/^Device Minor:[[:space:]]*//p' "$information" 2>/dev/null)
    [[ -n $minor ]] && index[$minor]=$count
    count=$((count + 1))
done

# replace PATH <TEXT: by a rename, as the file may be read at any time. dcgm-exporter ignores the temporary name.
replace() {
    local part=${1%/*}/.${1##*/}.new
    cat >"$part" && mv -f "$part" "$1"
}

note() {
    local gpu
    local -a numbers=()
    for gpu in ${SLURM_JOB_GPUS//,/ }; do
        [[ $gpu =~ ^[0-9]+$ ]] || continue
        if ((count == 0)); then numbers+=("$gpu"); elif [[ -n ${index[$gpu]:-} ]]; then numbers+=("${index[$gpu]}"); fi
    done
    ((${#numbers[@]})) && printf '%s\n' "${numbers[@]}" | replace "$folder/jobs/$SLURM_JOB_ID"
}

# Removes jobs whose epilog did not run, for example because slurmd was killed: they are old, and have no process here.
forget_ended() {
    local file sockets
    for file in "$folder"/jobs/*; do
        sockets=("$spool"/*_"${file##*/}".*)
        ((${#sockets[@]} || EPOCHSECONDS - $(stat -c %Y "$file") < GRACE)) || rm -f "$file"
    done
}

show() {
    local file number
    local -A jobs=()
    for file in "$folder"/[0-9]*; do jobs[${file##*/}]=; done
    for file in "$folder"/jobs/*; do
        while read -r number; do jobs[$number]+=${file##*/}$'\n'; done <"$file"
    done
    for number in "${!jobs[@]}"; do
        printf %s "${jobs[$number]}" | replace "$folder/$number"
    done
}

[[ ${SLURM_JOB_ID:-} =~ ^[0-9]+$ ]] || exit 0
case ${SLURM_SCRIPT_CONTEXT:-} in
    prolog_slurmd) [[ -n ${SLURM_JOB_GPUS:-} ]] || exit 0 ;;
    epilog_slurmd) [[ -e $folder/jobs/$SLURM_JOB_ID ]] || exit 0 ;;
    *) exit 0 ;;
esac
# Whoever can open a file can hold its lock.
mkdir -p "$folder/jobs" && chmod 0700 "$folder/jobs" && (umask 077 && : >>"$folder/jobs/.lock") || exit 0
exec 9>"$folder/jobs/.lock" && flock --wait 20 9 || exit 0
if [[ $SLURM_SCRIPT_CONTEXT == prolog_slurmd ]]; then note; else rm -f "$folder/jobs/$SLURM_JOB_ID"; fi
forget_ended
show
exit 0
