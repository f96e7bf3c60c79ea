#!/bin/bash
# slurmd starts this as slurm_prolog before a job and as slurm_epilog after it; both names are links to it. It runs the
# scripts beside it, as root: those for all nodes, then those of the job's partition, then those of the node's nodeset,
# each in the order of their names.
#   prolog: it ends at the first script that fails, and slurmd drains the node
#   epilog: all scripts run, also after one that fails; the exit code is that of the first failure
# A script that can't be run is skipped, with a line in the log.
# The scripts' output goes to prolog.log or epilog.log on the node, with a line before and after each script.
set -u
LC_ALL=C # the order of names, the same on every node
# slurmd sets no PATH, and a shell's default may contain the current folder.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

here=$(dirname -- "$0")
me=$(basename -- "$0")
case $me in
    slurm_prolog | slurm_epilog) kind=${me#slurm_} ;;
    *)
        echo "$me: call it by one of its links, slurm_prolog or slurm_epilog" >&2
        exit 2
        ;;
esac
export SLURM_SCRIPT_CONTEXT=${SLURM_SCRIPT_CONTEXT:-${kind}_slurmd}
job=${SLURM_JOB_ID:-none}

cluster='' controller_nodeset='' logs=/var/log/slurm known=no
while IFS='=' read -r key value; do
    case $key in
        cluster) cluster=$value known=yes ;;
        controller_nodeset) controller_nodeset=$value ;;
        logs) logs=$value ;;
    esac
done <"$here/etc/slurm_mux.conf"

# Readable by root only, as slurmd's own log is: it shows who ran which job, and jobs can read files of their node.
log=$logs/$kind.log
if ! { mkdir -p "$logs" && (umask 077 && : >>"$log"); } 2>/dev/null; then
    # If the disk is full or the folder is missing, the journal gets the lines.
    exec > >(exec logger --tag "$me") 2>&1
    log=/dev/stdout
fi

say() {
    printf '%(%Y-%m-%dT%H:%M:%S%z)T job=%s %s %s\n' -1 "$job" "$me" "$1" >>"$log"
}

# Also writes to the journal and standard error, because slurmd's own log has only that the prolog failed.
complain() {
    say "$1"
    logger --tag "$me" --priority daemon.err "job=$job $1; see $log" 2>/dev/null
    echo "$me: job=$job $1; see $log" >&2
}

# The nodeset is in the node's name, CLUSTER-NODESET-NUMBER, so that a new node needs no change here.
nodeset_of() {
    if [[ $1 == "$cluster-controller" ]]; then
        echo "$controller_nodeset"
    elif [[ $1 =~ ^"$cluster"-(.+)-[0-9]+$ ]]; then
        echo "${BASH_REMATCH[1]}"
    fi
}

if [[ $known == no ]]; then
    complain "failed: $here/etc/slurm_mux.conf cannot be read; run \`up\` again, which writes it"
    exit 1
fi
trap 'complain "was stopped while a script ran, by its time limit (PrologEpilogTimeout) or by slurmd"; exit 143' TERM

folders=("$here/${kind}_slurmd.d")
[[ -n ${SLURM_JOB_PARTITION:-} ]] && folders+=("$here/partition-$SLURM_JOB_PARTITION-${kind}_slurmd.d")
nodeset=$(nodeset_of "${SLURMD_NODENAME:-$(hostname -s)}")
[[ -n $nodeset ]] && folders+=("$here/nodeset-$nodeset-${kind}_slurmd.d")

# The rxdm prolog ends with exit code 0 also if it did nothing, for example because the metadata server did not answer.
# Jobs on two or more nodes would use plain TCP then, without an error.
profile=/var/lib/tcpxo/lib64/nccl-env-profile.sh
rxdm_did_nothing() {
    [[ $kind == prolog && $1 == rxdm && ${SLURM_JOB_NUM_NODES:-1} -gt 1 ]] || return 1
    # A file's time may be a moment behind the clock.
    ! { [[ -e $profile ]] && (($(stat -c %Y "$profile") + 1 >= $2)) &&
        grep -q '^[[:space:]]*export NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY=' "$profile"; }
}

shopt -s nullglob
failure=0
for folder in "${folders[@]}"; do
    for script in "$folder"/*."${kind}_slurmd"; do
        name=$(basename -- "$script" ".${kind}_slurmd")
        began=$EPOCHSECONDS code=0 did=ended
        if [[ -f $script && -x $script ]]; then
            say "$name: starts (user ${SLURM_JOB_USER:-?}, partition ${SLURM_JOB_PARTITION:-?})"
            "$script" >>"$log" 2>&1 </dev/null
            code=$?
        else
            did=skipped
            say "$name: cannot be run, as $script is not executable or a link to nothing"
        fi
        if ((code == 0)) && rxdm_did_nothing "$name" "$began"; then
            say "$name: did not write $profile, so NCCL would use plain TCP; was the metadata server in reach?"
            code=1
        fi
        if ((code == 0)); then
            say "$name: $did, exit code 0"
            continue
        fi
        complain "$name: failed, exit code $code"
        ((failure == 0)) && failure=$code
        [[ $kind == prolog ]] && exit "$failure"
    done
done
exit "$failure"
