"""Buckets that hold the state of stacks: how each kind is created, and what Pulumi needs to use it."""
