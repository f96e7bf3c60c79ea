# shellcheck shell=bash
# Eight tasks, four at a time (--array above), each a job of its own with a number. Here each adds up its eighth of the
# numbers from 1 to 8000; with files it would be: input=$(sed -n "${SLURM_ARRAY_TASK_ID}p" list-of-files.txt)
last=$((SLURM_ARRAY_TASK_ID * 1000))
sum=$(seq $((last - 999)) "$last" | awk '{ sum += $1 } END { print sum }')
echo "task $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT on $(hostname): $((last - 999)) to $last is $sum"
