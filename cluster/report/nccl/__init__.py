"""Logs of nccl-tests (github.com/NVIDIA/nccl-tests) -> tables, verdicts, comparisons."""
