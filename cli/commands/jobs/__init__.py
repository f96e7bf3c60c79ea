"""Commands that run jobs on a cluster, and report what they measured."""
