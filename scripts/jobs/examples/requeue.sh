# shellcheck shell=bash
. /opt/apps/hpc/env.sh
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
# A job that is put back into the queue keeps its id, and this folder. Slurm starts it again two minutes later.
checkpoints=$SLURM_SUBMIT_DIR/checkpoints-$SLURM_JOB_ID
restarts=${SLURM_RESTART_COUNT:-0}
echo "run $((restarts + 1)) of job $SLURM_JOB_ID on $SLURM_JOB_NODELIST"

requeue() {
    echo "$1: back into the queue"
    scontrol requeue "$SLURM_JOB_ID"
    exit 0
}
# Two minutes before the time limit (--signal above).
trap 'requeue "the time limit is near"' USR1

# In the background: bash runs a trap only between commands, or while it waits.
srun "$python" "$program" --steps "${STEPS:-2000}" --every "${EVERY:-50}" --pause "${PAUSE:-0}" \
    --checkpoints "$checkpoints" &
wait "$!" && exit 0

# Where a node fails, Slurm puts the job back (--requeue above). Often the other nodes see it before Slurm does, and the
# program ends with an error: once there is a checkpoint, another run is worth it.
if [[ -e $checkpoints/checkpoint.pt ]] && ((restarts < ${RESTARTS:-5})); then
    requeue "the program failed"
fi
exit 1
