"""Nodes that are waited for: machines of Dynamic Workload Scheduler's flex start, which the provider's own resources
can't ask Google to queue."""
