"""A stand-in for Nebius's API on this machine, which speaks its protocol and keeps its rules."""
