"""Logs of nccl-tests (github.com/NVIDIA/nccl-tests) -> tables, results, comparisons."""
