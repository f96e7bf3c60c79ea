"""The rehearsal on this machine: addresses, checks, and how a cloud stack becomes a local one."""
