"""The host's side of the rehearsal: plain Python on plain data, which knows nothing of Pulumi."""
