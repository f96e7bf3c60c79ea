#!/bin/bash
# Stands for a program of nccl-tests: rank 0 prints the log of the guide's run on two A3 Mega nodes,
# and NCCL's variables as they reached it.
[[ $SLURM_PROCID == 0 ]] || exit 0
cat <<'END'
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  8388608        131072     float    none      -1    349.2   24.02   22.52    N/A    347.0   24.18   22.67    N/A
  16777216        262144     float    none      -1    400.8   41.86   39.24    N/A    393.6   42.63   39.96    N/A
  33554432        524288     float    none      -1    444.0   75.57   70.85    N/A    443.6   75.65   70.92    N/A
  67108864       1048576     float    none      -1    726.4   92.39   86.62    N/A    728.5   92.12   86.37    N/A
  134217728       2097152     float    none      -1   1120.9  119.74  112.26    N/A   1152.3  116.48  109.20    N/A
  268435456       4194304     float    none      -1   1765.3  152.06  142.56    N/A   1764.5  152.13  142.63    N/A
  536870912       8388608     float    none      -1   2876.0  186.68  175.01    N/A   2874.7  186.76  175.09    N/A
  1073741824      16777216     float    none      -1   5539.6  193.83  181.72    N/A   5583.2  192.32  180.30    N/A
  2147483648      33554432     float    none      -1    10863  197.69  185.34    N/A    10845  198.02  185.64    N/A
  4294967296      67108864     float    none      -1    21511  199.67  187.19    N/A    21493  199.83  187.34    N/A
  8589934592     134217728     float    none      -1    42783  200.78  188.23    N/A    42777  200.81  188.26    N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 126.358
#
END
env | grep ^NCCL_
