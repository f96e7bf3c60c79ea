"""What differs between a stack and its cluster, and making the cluster as its stack says again."""
