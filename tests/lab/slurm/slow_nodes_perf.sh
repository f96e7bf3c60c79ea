#!/bin/bash
# Stands for a program of nccl-tests on a cluster whose slow nodes are named in ~/slow: rank 0 prints the large sizes of
# the guide's run, a quarter as fast where one of the job's nodes is slow. With ~/hold it goes on for ever.
[[ $SLURM_PROCID == 0 ]] || exit 0
[[ ! -e ~/hold ]] || sleep 600
factor=100
! scontrol show hostnames "$SLURM_JOB_NODELIST" | grep -qxFf ~/slow || factor=25
echo '#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong'
for row in "536870912 17501" "1073741824 18172" "2147483648 18534" "4294967296 18719" "8589934592 18823"; do
    read -r size busbw <<<"$row"
    half=$(awk -v size="$size" -v busbw="$busbw" -v factor="$factor" 'BEGIN {
        bus = busbw * factor / 10000; printf "%.1f %.2f %.2f N/A", size / bus / 1000, bus, bus }')
    echo "$size $((size / 4)) float none -1 $half $half"
done
echo '# Out of bounds values : 0 OK'
echo "# Avg bus bandwidth    : $(awk -v factor="$factor" 'BEGIN {print 183.498 * factor / 100}')"
