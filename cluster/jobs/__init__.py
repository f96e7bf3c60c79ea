"""Job scripts for a cluster: their text, their environment, and the facts about partitions that they need."""
