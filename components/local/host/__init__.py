"""The host's side of the rehearsal: plain Python on plain data, without Pulumi."""
