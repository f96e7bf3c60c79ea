# shellcheck shell=bash
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# A job that is put back into the queue keeps its id, and this folder. Slurm starts it again two minutes later.
checkpoints=$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_ID
restarts=${SLURM_RESTART_COUNT:-0}
echo "run $((restarts + 1)) of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"

requeue() {
    echo "$1: back into the queue"
    # Slurm ends this script with the job; a job's excluded nodes can be changed once it is in the queue again.
    trap '' TERM
    scontrol requeue "$SLURM_JOB_ID"
    [[ -n ${2:-} ]] && exclude "$2"
    exit 0
}
# Nodes that Slurm has drained or lost, else the one on which a task failed first.
failed_nodes() {
    local lost
    lost=$(sinfo --noheader --Node --nodes="$SLURM_JOB_NODELIST" --states=drain,down,fail,no_respond --format=%N | sort -u)
    echo "${lost:-$(sed -n 's/^srun: error: \([^ :]*\): task .*/\1/p;T;q' "$errors")}" | paste -sd, -
}
# Where enough others are left, the next run does without them.
exclude() {
    local before all
    before=$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%x)
    all=$1${before:+,$before}
    if (($(others "$all") >= SLURM_JOB_NUM_NODES)); then
        scontrol update "JobId=$SLURM_JOB_ID" "ExcNodeList=$all" && echo "not again on $all"
    fi
}
others() {
    sinfo --noheader --Node --partition="$SLURM_JOB_PARTITION" --states=idle,mixed,allocated,completing --format=%N |
        grep --invert-match --line-regexp --fixed-strings --file=<(scontrol show hostnames "$1") | sort -u | wc -l
}
errors=$(mktemp)
# Two minutes before the time limit (--signal above).
trap 'requeue "the time limit is near"' USR1

# In the background: bash runs a trap only between commands, or while it waits.
srun "$python" "$program" --steps "${STEPS:-2000}" --every "${EVERY:-50}" --pause "${PAUSE:-0}" \
    --checkpoints "$checkpoints" 2> >(tee "$errors" >&2) &
wait "$!" && exit 0

# Where a node fails, Slurm puts the job back (--requeue above). Often the other nodes see it before Slurm does, and the
# program ends with an error: once there is a checkpoint, another run is worth it.
if [[ -e $checkpoints/checkpoint.pt ]] && ((restarts < ${RESTARTS:-5})); then
    requeue "the program failed" "$(failed_nodes)"
fi
exit 1
