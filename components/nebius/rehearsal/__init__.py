"""Stand-ins for Nebius: what `./hpc rehearse nebius` runs in place of the cloud."""
