"""Job scripts for a cluster: their text, their environment, and what they must know of partitions."""
