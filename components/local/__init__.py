"""The rehearsal: a cluster's machines as systemd-nspawn machines on this host."""
